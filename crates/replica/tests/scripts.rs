//! Scripts that people can review: what three replicas do, step by step, with the expected trace beside each
//! command.
//!
//! `tests/scripts/*.txt` hold blocks of a command, `----` and the expected output. `UPDATE=1 cargo test -p
//! understudy-replica --test scripts` writes the outputs anew. Commands are explained in
//! `harness::World::run`.

mod harness;

use harness::World;
use std::path::Path;

fn run(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    testing::expected::check(&folder.join(format!("{name}.txt")), play);
}

/// A script with what it really gives.
fn play(text: &str) -> String {
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
    out
}

macro_rules! scripts {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}

scripts! {
    a_new_primary_is_given_time,
    a_job_as_large_as_an_entry,
    large_writes_in_slices,
    durable_write,
    garbled_entries_come_again,
    pr108_who_left_without_knowing_it,
    semi_write,
    who_is_waited_for_is_named,
    pr460_who_is_needed_counts_as_soon_as_it_is_level,
    ship_files,
    ship_to_members,
    cold_standby,
    ship_to_who_gave_itself_up,
    lost_directory_of_a_primary,
    lost_directory_at_the_start,
    scrub_reads_back,
    scrub_keeps_the_last_good_copy,
    cold_hand_over,
    ship_resumes,
    ship_tainted,
    ship_or_rows,
    ship_amid_garbage,
    ship_sets_a_tail_aside,
    r5_stale_refusal,
    r6_an_entry_of_a_term_to_come,
    pr27_a_bound_holds_at_who_does_not_serve_yet,
    pr27_a_bound_holds_at_who_leads_no_more,
    pr72_keys_that_no_engine_takes,
    failback_by_files,
    failback_by_log,
    pr344_who_leads_beside_a_hung_disk_lets_others_in,
    pr35_the_log_begins_behind_files,
    pr115_a_full_log_hears_how_much_of_it_nobody_needs,
    pr118_who_is_forced_to_lead_waits_for_no_log_that_it_cannot_have,
    pr231_half_a_copy_does_not_lead,
    pr281_a_full_log_is_kept_for_nobody_who_is_away,
    pr143_who_joins_has_what_an_older_term_may_have_committed,
    r7_who_joins_has_what_is_published,
    r8_the_log_is_held_for_who_comes_back_by_it,
    r8_the_log_is_held_for_who_chose_it,
    r8_a_full_log_is_held_for_nobody,
    failback_files,
    failback_full,
    failover_keeps_what_was_acknowledged,
    f02_divergent_tail,
    f19_stuck_disk,
    pr02_promise_runs_out,
    pr16_change_in_flight,
    pr21_strict_below_min,
    pr22_duplicate_waits,
    first_committer_wins,
    pr80_committed_is_held,
    pr79_a_snapshot_that_is_lost,
    pr23_refusal_waits,
    pr24_another_aim,
    pr31_hung_disk_leaves,
    pr47_gap,
    pr510_who_is_not_waited_for_says_what_it_has_when_that_is_due,
    pr510_who_is_to_lead_next_is_asked_what_it_has,
    job_commits,
    job_stops_at_a_refusal,
    job_records_and_indexes,
    pr82_an_abort_is_told_when_it_is_secured,
    pr82_what_async_lost_of_a_job,
    a_write_larger_than_an_entry,
    join_and_copy,
    index_builds_and_goes,
    index_after_a_failover,
    index_copied_and_shipped,
    index_refusals,
    hand_over,
    hand_over_waits_for_a_change,
    async_loss,
    counts_in_slices,
    f18_who_slept_evicts_nobody,
    f20_a_member_without_room_comes_back,
    f20_a_member_without_room_for_long_comes_back,
    f19_replies_that_wait_are_counted,
    pr18_a_copy_is_no_going_back,
    r3_an_entry_that_goes_back,
    r6_a_damaged_source_with_a_whole_log,
    r6_a_hand_over_needs_no_report,
    r6_a_source_that_cannot_read_its_log,
    r6_a_lost_directory_leaves_the_log,
    r6_failed_files_leave_the_log,
    r6_who_does_not_answer_is_skipped,
    r9_a_damaged_replica_keeps_its_tail,
    r9_a_damaged_log_is_no_tail,
    r9_what_was_published_alone,
    r9_what_the_log_has_no_more,
    r9_what_the_disk_has_alone,
    r9_what_only_a_departing_replica_has,
    r9_what_the_primary_has_too_is_no_tail,
}
