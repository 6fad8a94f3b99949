//! A node as a process runs it: SIGTERM ends it gently. Alone in its binary, since signals are for the whole
//! process.

#[path = "all/common/mod.rs"]
mod common;

use common::{Cluster, create, put_all};
use types::{EngineKind, LogKind};
use understudy_node::run_node;

#[test]
fn sigterm_ends_a_node_gently() {
    let mut cluster = Cluster::with(1, &[]);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Lsm, LogKind::Disk);
    wanted.factor = Some(1);
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 20, "x");
    cluster.stop(1);
    let config = cluster.node_config(1);
    let (tell, told) = std::sync::mpsc::channel();
    let process =
        std::thread::spawn(move || run_node(config, |ports| tell.send(ports.clone()).expect("heard")));
    let ports = told.recv().expect("it listens");
    assert_eq!((ports.node, ports.pid, ports.incarnation), (1, std::process::id(), 2));
    assert_eq!(client.count(&table).expect("counts"), 20);
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).expect("sends");
    process.join().expect("it does not panic").expect("it ends well");
    cluster.start_node(1);
    assert_eq!(client.count(&table).expect("counts"), 20);
    assert!(client.cluster_map().nodes().all(|record| record.clean_start), "the mark was there");
}
