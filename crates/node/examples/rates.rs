//! How fast three nodes in one process answer: writes and reads of ten closed-loop clients, and one that
//! waits for each.
//!
//! `cargo run --release -p understudy-node --example rates`. For figures that count see `understudy bench`.

#[path = "../tests/all/common/mod.rs"]
mod common;

use client::{Client, LaneId};
use common::{Cluster, create};
use std::time::{Duration, Instant};
use types::data::{Row, Value};
use types::{EngineKind, LogKind};
use understudy_node::clock;
use wire::control::CreateTable;

fn main() {
    let cluster = Cluster::with(3, &[("log.segment_bytes", "67108864")]);
    let mut client = cluster.ready();
    for (name, policy, log) in [
        ("durable", "durable", LogKind::Disk),
        ("local", "local", LogKind::Disk),
        ("semi", "semi", LogKind::Memory),
        ("async", "async", LogKind::Memory),
    ] {
        let wanted = create(name, policy, EngineKind::Memory, log);
        let wanted = CreateTable { factor: Some(3), partitions: 6, ..wanted };
        let table = client.create_table(&wanted).expect("creates");
        for (what, lanes, reads) in
            [("write", 1, false), ("write", 10, false), ("write", 64, false), ("read", 10, true)]
        {
            measure(&mut client, &table, &format!("{name} {what} x{lanes}"), lanes, reads);
        }
    }
}

/// Three seconds of closed-loop clients.
fn measure(client: &mut Client, table: &client::Table, what: &str, lanes: u32, reads: bool) {
    let value = "x".repeat(1000);
    let mut next = 0i64;
    let mut call = move || {
        next = (next * 7919 + 13) % 10_000;
        let row = Row::new(vec![Value::Int(next), Value::Text(value.clone())]);
        if reads { table.get(&[Value::Int(next)]) } else { table.put(&row) }.expect("encodes")
    };
    for lane in 0..lanes {
        client.submit(LaneId(lane), call());
    }
    let (started, cpu) = (Instant::now(), clock::cpu_us());
    let (mut done, mut slowest) = (0u64, Duration::ZERO);
    let mut last = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        let completed = client.poll(Duration::from_secs(5)).expect("polls");
        slowest = slowest.max(last.elapsed());
        last = Instant::now();
        for one in completed {
            done += 1;
            client.submit(one.lane, call());
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu = (clock::cpu_us() - cpu) as f64 / done as f64;
    println!(
        "{what:20} {:8.0}/s  {cpu:6.1} us of CPU each, longest pause {slowest:?}",
        done as f64 / seconds
    );
    while client.open_calls() > 0 {
        client.poll(Duration::from_secs(5)).expect("polls");
    }
}
