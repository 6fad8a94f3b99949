//! Scripts that people can review: what three replicas do, step by step, with the expected trace beside each command.
//!
//! `tests/scripts/*.txt` hold blocks of a command, `----` and the expected output. `UPDATE=1 cargo test -p understudy-replica
//! --test scripts` writes the outputs anew. Commands are explained in `harness::World::run`.

mod harness;

use harness::World;

fn run(name: &str) {
    let path = format!("{}/tests/scripts/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the script is there");
    let mut world = World::new();
    let mut out = String::new();
    let mut blocks =
        text.split("\n\n").map(str::trim_end).filter(|block| !block.trim().is_empty()).peekable();
    while let Some(block) = blocks.next() {
        let (command, _) = block.split_once("\n----").unwrap_or((block, ""));
        let trace = if command.starts_with('#') { None } else { Some(world.run(command)) };
        out.push_str(command);
        if let Some(trace) = trace {
            out.push_str("\n----\n");
            out.push_str(if trace.is_empty() { "ok\n" } else { &trace });
        } else {
            out.push('\n');
        }
        if blocks.peek().is_some() {
            out.push('\n');
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &out).expect("written");
    } else {
        assert!(text == out, "{name}: the trace differs\n--- expected\n{text}\n--- found\n{out}");
    }
}

macro_rules! scripts {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}

scripts! {
    a_new_primary_is_given_time,
    durable_write,
    semi_write,
    failover_keeps_what_was_acknowledged,
    f02_divergent_tail,
    pr02_promise_runs_out,
    pr16_change_in_flight,
    pr21_strict_below_min,
    pr22_duplicate_waits,
    pr23_refusal_waits,
    pr47_gap,
    join_and_copy,
    hand_over,
    async_loss,
    counts_in_slices,
    f18_who_slept_evicts_nobody,
}
