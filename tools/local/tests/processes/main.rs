//! End-to-end tests with real processes: this program runs itself again as node, controller and `dev`.
//!
//! It has its own `main` for that reason. Arguments that are no flags choose tests by a part of their names.

mod bank;
mod browser;
mod catalogs;
mod commits;
mod copy;
mod demos;
mod differential;
mod drivers;
mod dumps;
mod failback;
mod faults;
mod logic;
mod role;
mod sql;
mod web;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// A test and its name.
type Test = (&'static str, fn());

/// So many of [`BESIDE`] run at once: they wait for other people's programs more than for a processor.
const MAX_TESTS_AT_ONCE: usize = 2;
/// Room for what the deepest test calls.
const STACK: usize = 8 << 20;

/// Tests that say nothing of how long something takes, and so run beside each other.
const BESIDE: &[Test] = &[
    ("psql_copies_in_and_out", sql::copies),
    ("psql_encrypts", sql::encryption),
    ("what_psql_was_told_is_committed_is_counted_once", commits::client),
    ("psql_describes_tables_and_the_cluster", catalogs::client),
    ("psycopg_works", drivers::psycopg),
    ("sqlalchemys_orm_works_in_a_database", drivers::sqlalchemy),
    ("sqlalchemys_own_documents_are_done_as_they_stand", drivers::documents),
    ("sqlalchemys_dialect_works_in_a_database", drivers::tutorial),
    ("djangos_bundled_apps_work_in_a_database", drivers::django),
    ("djangos_own_tests_of_its_bundled_apps_pass", drivers::django_suites),
    ("pgjdbc_works", drivers::jdbc),
    ("node_postgres_works", drivers::node),
    ("pg_dump_of_a_database_is_restored_by_psql", dumps::restored),
];

/// Tests that measure, or take so much that others would wait for them: one after the other.
const ALONE: &[Test] = &[
    ("a_cluster_survives_its_nodes_and_leaves_nothing_behind", faults::survives),
    ("a_frozen_node_goes_on_as_a_backup", faults::frozen),
    ("a_power_loss_of_everything_loses_nothing_durable", faults::power_loss),
    ("whoever_dies_while_a_node_comes_back", failback::by_files),
    ("whoever_dies_while_a_node_comes_back_by_rows", failback::by_rows),
    ("three_controllers_keep_their_records_in_etcd", faults::etcd),
    ("a_program_that_does_not_start_says_why", faults::does_not_start),
    ("dev_keeps_a_cluster_and_takes_harm", faults::dev),
    ("devs_that_start_at_once_have_their_own_ports", faults::dev_twice),
    ("dev_gives_up_a_port_that_was_taken", faults::ports_taken),
    ("nothing_outlives_a_killed_dev", faults::dev_killed),
    ("psql_works_on_every_node_and_outlives_one", sql::client),
    ("a_browser_sees_a_failover_on_the_page", web::failover),
    ("pgbench_works_with_scripts_of_its_own", drivers::pgbench),
    ("pgbenchs_own_bank_in_a_database", drivers::pgbench_bank),
    ("pgbenchs_bank_loses_nothing_with_its_primary", bank::survives),
    ("pgbenchs_bank_over_partitions_loses_nothing_with_a_primary", bank::survives_over_partitions),
    ("statements_are_answered_as_by_postgresql", differential::run),
    ("sqllogictest_scripts_outlive_a_node", logic::scripts_outlive_a_node),
    ("demo_kill_and_second_act", demos::kill),
    ("demo_stop", demos::stop),
    ("demo_cut", demos::cut),
    ("demo_of_a_file", demos::file),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(status) = role::run(&arguments) {
        return status;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let chosen = |test: &&Test| wanted.is_empty() || wanted.iter().any(|part| test.0.contains(part.as_str()));
    let beside: Vec<&Test> = BESIDE.iter().filter(chosen).collect();
    let alone: Vec<&Test> = ALONE.iter().filter(chosen).collect();
    let tests: Vec<&Test> = beside.iter().chain(&alone).copied().collect();
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = run(&beside, MAX_TESTS_AT_ONCE);
    failed.extend(run(&alone, 1));
    println!("\n{} passed, {} failed {failed:?}", tests.len() - failed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs tests, so many at once. Gives the names of those that failed.
fn run(tests: &[&Test], at_once: usize) -> Vec<&'static str> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            let ended = catch_unwind(test);
            let how = if ended.is_ok() { "ok" } else { "FAILED" };
            println!("test {name} ... {how} ({:.1} s)", started.elapsed().as_secs_f64());
            if ended.is_err() {
                failed.lock().expect("no thread panics with it").push(*name);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once {
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).expect("a thread");
        }
    });
    failed.into_inner().expect("all threads have ended")
}
