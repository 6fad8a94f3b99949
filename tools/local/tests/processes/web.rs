//! The web page in a real browser, through a failover: it is opened once, and shows everything that happens.

use crate::browser::{Browser, installed};
use client::view::failovers::{Line, lines};
use client::{Client, Options};
use testing::missing;
use types::config::FailoverRecord;
use types::data::{Column, ColumnType, Schema};
use types::{EngineKind, NodeId};
use understudy_local::{Cluster, ClusterOptions};
use wire::control::{AdminCommand, CreateTable};

/// Skipped where no browser is installed.
pub fn failover() {
    match installed() {
        Some(binary) => through_a_failover(binary),
        None => missing("chromium", "chromium is not installed"),
    }
}

fn table() -> CreateTable {
    let columns = vec![Column::new("id", ColumnType::Int).not_null()];
    CreateTable {
        engine: EngineKind::Memory,
        factor: Some(3),
        partitions: 3,
        ..CreateTable::new("flights", Schema::new(columns, &["id"], 1, false).expect("valid"), "durable")
    }
}

fn through_a_failover(binary: std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    let options = Options {
        controllers: cluster.controllers(),
        secret: understudy_local::secret(),
        ..Options::default()
    };
    let mut client = Client::connect(options).expect("connects");
    let partition = client.create_table(&table()).expect("made").partitions().next().expect("three of them");
    let primary = client.cluster_map().primary(partition).expect("somebody leads");
    let other = cluster.nodes().find(|node| *node != primary).expect("three nodes");
    let id = partition.0;

    let mut browser = Browser::start(binary);
    browser.open(&format!("http://{}/", cluster.addresses(other).http));
    let _ = browser.wait("document.querySelectorAll('[data-node][data-state=up]').length === 3");
    let _ = browser.wait(&format!(
        "document.querySelector('#p{id}[data-state=serving][data-primary=\"{}\"]') !== null",
        primary.0
    ));
    let _ = browser.wait("document.querySelector('#live.good') !== null");
    let _ = browser.run("window.sameDocument = true");

    cluster.kill(primary).expect("killed");
    let _ = browser
        .wait(&format!("document.querySelector('[data-node=\"{}\"][data-state=down]') !== null", primary.0));
    let next = browser.wait(&format!(
        "((p) => p.dataset.state === 'serving' && p.dataset.primary !== '{}' && p.dataset.primary)(document.querySelector('#p{id}'))",
        primary.0
    ));
    // The newest one: a busy machine may have had others.
    let listed = browser.wait(&format!(
        "((row) => row && [row.dataset.failover, row.dataset.total, row.innerText])(
            [...document.querySelectorAll('[data-failover][data-partition=\"{id}\"]')]
                .find((row) => row.dataset.total && row.innerText.includes('node {} →')))",
        primary.0
    ));
    assert_eq!(browser.run("window.sameDocument"), true, "the page was loaded anew");
    checked(&mut client, &next, &listed, partition, primary);
    operated(&mut browser, &mut cluster, primary);
    assert_eq!(browser.complaints, Vec::<String>::new());
    browser.close();
    cluster.shutdown();
}

/// What the page says is what the records say.
fn checked(
    client: &mut Client,
    next: &serde_json::Value,
    listed: &serde_json::Value,
    partition: types::PartitionId,
    killed: NodeId,
) {
    let records = client.admin(AdminCommand::Failovers).expect("told");
    let records: Vec<FailoverRecord> = serde_json::from_str(&records).expect("records");
    let lines = lines(&records, |_| Some("flights".into()));
    let number = listed[0].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    let line = lines.iter().find(|line: &&Line| line.id == number).expect("it is known");
    assert_eq!((line.partition, line.from), (partition.0, killed.0));
    assert_ne!(next.as_str(), Some(killed.0.to_string().as_str()));
    assert_eq!(listed[1].as_str().map(str::to_string), line.total_ms.map(|ms| ms.to_string()));
    let row = listed[2].as_str().expect("text");
    let (reconcile, serve) = (line.reconcile_ms.expect("done"), line.serve_ms.expect("done"));
    let split = format!(
        "detect {} ms, seal {} ms, reconcile {reconcile} ms, serve {serve} ms",
        line.detect_ms, line.seal_ms
    );
    for part in [&split, "flights", &line.cause, &format!("node {} → node {}", line.from, line.to)] {
        assert!(row.contains(part), "{part} is missing in {row}");
    }
}

/// Without the token nothing is done; with it a node is drained from the page.
fn operated(browser: &mut Browser, cluster: &mut Cluster, node: NodeId) {
    cluster.restart(node).expect("starts again");
    let _ = browser
        .wait(&format!("document.querySelector('[data-node=\"{}\"][data-state=up]') !== null", node.0));
    let refused = browser.run(
        "fetch('/operate', { method: 'POST', body: '{\"action\":\"drain\",\"node\":1}' }).then((answer) => answer.status)",
    );
    assert_eq!(refused, 403);
    let token = std::fs::read_to_string(cluster.dir().join("operator.token")).expect("made");
    let drain = "document.querySelector('[data-node=\"1\"] button')";
    assert_eq!(browser.run(&format!("getComputedStyle({drain}).display")), "none");
    let _ = browser.run(&format!(
        "document.querySelector('#operator input').value = '{}'; document.querySelector('#operator button').click()",
        token.trim()
    ));
    assert_ne!(browser.run(&format!("getComputedStyle({drain}).display")), "none");
    let _ = browser.run(&format!("{drain}.click()"));
    let _ = browser.wait("document.querySelector('[data-node=\"1\"][data-state=drained]') !== null");
    let said = browser.wait("document.querySelector('#said').textContent.includes('hands over')");
    assert_eq!(said, true);
}
