//! Runs one bench from its defaults: `cargo run --release -p understudy-bench --example run -- BENCH
//! [LINE]...`, with `log`, `ycsb`, `redis` or `postgres` for BENCH.
//!
//! The `understudy` binary has the same with all options; this is for work on the benches. Like it, this
//! program is also the node and the controller that it starts.

use std::process::ExitCode;
use understudy_bench::{BenchError, Common, CompareOptions, Line, LogOptions, Peer, YcsbOptions};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (first, rest) = arguments.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    if first == "node" || first == "controller" {
        return serve(first, rest);
    }
    let mut common = Common { only: rest.to_vec(), ..Common::default() };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    common.seconds = number("BENCH_SECONDS").unwrap_or(common.seconds);
    common.rounds = number("BENCH_ROUNDS").map_or(common.rounds, |rounds| rounds as u32);
    match run(first, common) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn run(bench: &str, common: Common) -> Result<Vec<Line>, BenchError> {
    let progress = &mut std::io::stderr();
    let mut emit =
        |line: &Line| println!("{}", serde_json::to_string(line).expect("a line has only text keys"));
    match bench {
        "log" => {
            let raft_engine = std::env::var_os("BENCH_RAFT_ENGINE").map(Into::into);
            understudy_bench::log(&LogOptions { common, raft_engine }, progress, &mut emit)
        }
        "ycsb" => {
            understudy_bench::ycsb(&YcsbOptions { common, ..YcsbOptions::default() }, progress, &mut emit)
        }
        "redis" | "postgres" => {
            let peer: Peer = bench.parse().map_err(BenchError::Usage)?;
            let options = CompareOptions { common, ..CompareOptions::new(peer) };
            understudy_bench::compare(&options, progress, &mut emit)
        }
        other => Err(BenchError::Usage(format!(
            "there is no bench '{other}'; choose log, ycsb, redis or postgres"
        ))),
    }
}

/// What `understudy node` and `understudy controller` do.
fn serve(role: &str, arguments: &[String]) -> ExitCode {
    let mut sources = node::config::Sources { env: std::env::vars().collect(), ..Default::default() };
    for pair in arguments.chunks_exact(2) {
        match (pair[0].as_str(), pair[1].split_once('=')) {
            ("--config", _) => sources.file = Some(pair[1].clone().into()),
            ("--set", Some((name, value))) => sources.flags.push((name.into(), value.into())),
            _ => return ExitCode::from(2),
        }
    }
    let ended = node::config::Config::load(&sources).and_then(|config| match role {
        "node" => node::run_node(config, |_| ()),
        _ => node::run_controller(config, |_| ()),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.status)
        }
    }
}
