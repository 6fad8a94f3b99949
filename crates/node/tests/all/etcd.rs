//! Three controllers on a real etcd. Skipped, with a line that says so, where no `etcd` is installed.

use crate::common::{LONG, config, create, in_sync, put_all, wait_for};
use client::{Client, Options};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use types::{EngineKind, LogKind, NodeId};
use understudy_node::stop::Stop;
use understudy_node::{controller_process, init_controller, init_node, node};

/// One member, stopped by its process id.
struct Etcd {
    process: Child,
    address: String,
}

impl Etcd {
    fn start(dir: &Path) -> Option<Etcd> {
        let blocked: Vec<TcpListener> =
            (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("binds")).collect();
        let urls: Vec<String> = blocked
            .iter()
            .map(|listener| format!("http://{}", listener.local_addr().expect("bound")))
            .collect();
        drop(blocked);
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.join("etcd"))
            .args(["--listen-client-urls", &urls[0], "--advertise-client-urls", &urls[0]])
            .args(["--listen-peer-urls", &urls[1], "--initial-advertise-peer-urls", &urls[1]])
            .args(["--initial-cluster", &format!("default={}", urls[1])])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Etcd { process, address: urls[0].clone() })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.process.kill().expect("it was running");
        self.process.wait().expect("it ends");
    }
}

#[test]
fn a_cluster_outlives_its_controllers_and_a_node_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(etcd) = Etcd::start(dir.path()) else {
        return testing::missing("etcd", "etcd is not installed");
    };
    let place = |name: String| dir.path().join(name).to_str().expect("a name").to_string();
    let mut controllers = Vec::new();
    for number in 1..=3 {
        let place = place(format!("controller-{number}"));
        init_controller(place.as_ref()).expect("initialises");
        let etcd = [("controller.metastore", "etcd"), ("controller.endpoints", etcd.address.as_str())];
        let config = config(&[&etcd[..], &[("controller.data_dir", &place)]].concat());
        controllers.push(controller_process::start(config).expect("starts"));
    }
    let addresses: Vec<String> =
        controllers.iter().map(|running| running.ports().listen["controller"].clone()).collect();
    let all = addresses.join(",");
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let place = place(format!("node-{number}"));
        init_node(place.as_ref(), NodeId(number)).expect("initialises");
        let config = config(&[("node.data_dir", &place), ("node.controllers", &all)]);
        nodes.push(node::start(config).expect("starts"));
    }
    let options = Options { controllers: addresses, wait: true, timeout: LONG, ..Options::default() };
    let mut client = Client::connect(options).expect("connects");
    wait_for(&mut client, "every node to register", |status| status.nodes.len() == 3);
    let table =
        client.create_table(&create("t", "durable", EngineKind::Memory, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 100, "before");
    // Two of three controllers and a node at once.
    let dying = [controllers.remove(0), controllers.remove(0)];
    let node = nodes.remove(0);
    dying.iter().for_each(|controller| controller.stopper().ask(Stop::Now));
    node.stopper().ask(Stop::Now);
    node.wait().unwrap_err();
    dying.into_iter().for_each(|controller| drop(controller.wait().unwrap_err()));
    put_all(&mut client, &table, 50, 150, "after");
    assert_eq!(client.count(&table).expect("counts"), 150);
    wait_for(&mut client, "two copies of everything", |status| in_sync(status, 2));
}
