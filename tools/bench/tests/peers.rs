//! The peers for real: their servers come up with two replicas, answer a load, count it, and are gone
//! afterwards. Where one is not installed its test says so and passes.

use std::path::Path;
use std::time::Duration;
use understudy_bench::peers::{Postgres, Redis, postgres, redis};
use understudy_bench::subject::Subject;
use understudy_bench::{Common, Workload};

fn workload(update_percent: u8) -> Workload {
    Workload { records: 200, update_percent, ..Workload::default() }
}

/// A short round: everything that ended was checked by the clients themselves.
fn put_under_load(peer: &mut dyn Subject) {
    let before = peer.counters().expect("counts");
    let load = peer.run(Duration::from_millis(300)).expect("answers as it should");
    let after = peer.counters().expect("counts");
    assert!(load.ops > 0 && load.latencies.len() == load.ops);
    if let (Some(before), Some(after)) = (before.wire_bytes, after.wire_bytes) {
        // A value goes to the server or comes back, whatever else does.
        assert!(after - before > load.ops * 1_024, "{} bytes for {} operations", after - before, load.ops);
    }
}

fn is_running(process: u32) -> bool {
    Path::new(&format!("/proc/{process}/cmdline")).exists()
}

fn gone_afterwards<P: Subject>(peer: P) {
    let processes = peer.processes();
    assert!(processes.len() == 3 && processes.iter().all(|process| is_running(*process)));
    drop(peer);
    assert!(!processes.iter().any(|process| is_running(*process)), "a server still runs");
}

#[test]
fn redis_answers_with_two_replicas_behind_it() {
    if redis::installed().is_none() {
        return testing::missing("redis", "redis-server is not installed");
    }
    for (append_only, update_percent) in [(true, 100), (false, 50)] {
        let started = Redis::start(&Common::default(), &workload(update_percent), 10, append_only);
        let mut peer = started.expect("starts");
        put_under_load(&mut peer);
        gone_afterwards(peer);
    }
}

#[test]
fn postgres_answers_with_two_standbys_behind_it() {
    if postgres::installed().is_none() {
        return testing::missing("postgres", "PostgreSQL is not installed");
    }
    let mut peer = Postgres::start(&Common::default(), &workload(50), 10, "on").expect("starts");
    put_under_load(&mut peer);
    gone_afterwards(peer);
}
