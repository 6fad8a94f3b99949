//! How fast three nodes in one process answer: writes and reads of ten closed-loop clients, and one that waits for each.
//!
//! `cargo run --release -p understudy-node --example rates`. For figures that count see `understudy bench`.

use client::{Client, LaneId, Options};
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{EngineKind, LogKind, NodeId};
use understudy_node::{Config, clock, controller_process, init_controller, init_node, node};
use wire::control::CreateTable;

fn config(changes: &[(&str, &str)]) -> Config {
    let mut all = vec![
        ("controller.listen", "127.0.0.1:0"),
        ("node.listen_client", "127.0.0.1:0"),
        ("node.listen_peer", "127.0.0.1:0"),
        ("node.listen_heartbeat", "127.0.0.1:0"),
        ("node.listen_http", "127.0.0.1:0"),
        ("sql.listen", "off"),
    ];
    all.extend(changes);
    Config::with(&all).expect("a good configuration")
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: String| dir.path().join(name).to_str().expect("a name").to_string();
    let place = path("controller".into());
    init_controller(place.as_ref()).expect("initialises");
    let controller = controller_process::start(config(&[("controller.data_dir", &place)])).expect("starts");
    let address = controller.ports().listen["controller"].clone();
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let place = path(format!("node-{number}"));
        init_node(place.as_ref(), NodeId(number)).expect("initialises");
        let config = config(&[("node.data_dir", &place), ("node.controllers", &address)]);
        nodes.push(node::start(config).expect("starts"));
    }
    let options = Options { controllers: vec![address], wait: true, ..Options::default() };
    let mut client = Client::connect(options).expect("connects");
    while client.cluster_map().nodes().count() < 3 {
        client.poll(Duration::from_millis(5)).expect("polls");
    }
    for (name, policy, log) in [
        ("durable", "durable", LogKind::Disk),
        ("local", "local", LogKind::Disk),
        ("semi", "semi", LogKind::Memory),
        ("async", "async", LogKind::Memory),
    ] {
        let columns = vec![Column::new("id", ColumnType::Int), Column::new("value", ColumnType::Text)];
        let wanted = CreateTable {
            engine: EngineKind::Memory,
            log,
            factor: Some(3),
            partitions: 6,
            ..CreateTable::new(name, Schema::new(columns, &["id"], 1, false).expect("a schema"), policy)
        };
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
