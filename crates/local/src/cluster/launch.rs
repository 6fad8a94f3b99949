//! Starting: which processes, with which arguments, and when they are ready.

use super::config;
use super::options::ClusterOptions;
use crate::error::LocalError;
use crate::http;
use crate::process::{Process, Program};
use node::datadir::{self, Kind, Ports};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::NodeId;
use types::config::Addresses;

/// Between two looks for a file that will appear.
const LOOK: Duration = Duration::from_millis(3);
/// How long one question over HTTP may take.
const ASK: Duration = Duration::from_secs(2);

/// What is to be started, with all paths and ports decided.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub options: ClusterOptions,
    /// Controllers' addresses.
    pub controllers: Vec<String>,
    /// Members of etcd: client address, peer address.
    pub etcd: Vec<(String, String)>,
    /// Nodes' addresses, or any port.
    pub nodes: Vec<Addresses>,
    /// Where nodes speak SQL, or any port.
    pub sql: Vec<String>,
    /// The file with the password of SQL clients; `None`: it is the cluster's secret.
    pub password_file: Option<PathBuf>,
}

impl Plan {
    /// The program of a node.
    pub fn node(&self, id: u32) -> Result<Program, LocalError> {
        let config = self.path(&format!("node-{id}.toml"));
        config::write_node(self, id, &config)?;
        Ok(self.ours(format!("node {id}"), "node", &format!("node-{id}"), &config))
    }

    /// The program of a controller.
    pub fn controller(&self, number: u32) -> Result<Program, LocalError> {
        let config = self.path(&format!("controller-{number}.toml"));
        config::write_controller(self, number, &config)?;
        Ok(self.ours(format!("controller {number}"), "controller", &format!("controller-{number}"), &config))
    }

    fn ours(&self, name: String, command: &str, stem: &str, config: &Path) -> Program {
        let mut arguments = vec![command.into(), "--config".into(), config.display().to_string()];
        for (key, value) in &self.options.settings {
            arguments.extend(["--set".to_string(), format!("{key}={value}")]);
        }
        Program {
            name,
            binary: self.options.binary.clone(),
            arguments,
            env: self.options.env.clone(),
            log: self.path(&format!("{stem}.log")),
        }
    }

    /// The program of a member of etcd.
    pub fn etcd(&self, number: u32) -> Program {
        let name = |index: usize| format!("etcd-{}", index + 1);
        let peers = self.etcd.iter().enumerate();
        let cluster: Vec<String> =
            peers.map(|(index, (_, peer))| format!("{}=http://{peer}", name(index))).collect();
        let me = number as usize - 1;
        let (client, peer) = &self.etcd[me];
        let arguments = [
            ("--name", name(me)),
            ("--data-dir", self.etcd_dir(number).display().to_string()),
            ("--listen-client-urls", format!("http://{client}")),
            ("--advertise-client-urls", format!("http://{client}")),
            ("--listen-peer-urls", format!("http://{peer}")),
            ("--initial-advertise-peer-urls", format!("http://{peer}")),
            ("--initial-cluster", cluster.join(",")),
            ("--initial-cluster-state", "new".into()),
            ("--heartbeat-interval", "10".into()),
            ("--election-timeout", "100".into()),
        ];
        let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_string(), value]);
        Program {
            name: name(me).replace('-', " "),
            binary: "etcd".into(),
            arguments: arguments.collect(),
            env: Vec::new(),
            log: self.path(&format!("etcd-{number}.log")),
        }
    }

    /// Where a member of etcd keeps its data: also the path that it is known by.
    pub fn etcd_dir(&self, number: u32) -> PathBuf {
        self.path(&format!("etcd-{number}"))
    }

    /// Where a node keeps its data.
    pub fn node_dir(&self, id: u32) -> PathBuf {
        self.path(&format!("node-{id}"))
    }

    /// Where a controller keeps its data.
    pub fn controller_dir(&self, number: u32) -> PathBuf {
        self.path(&format!("controller-{number}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.options.dir.join(name)
    }
}

/// Starts a process of ours. A data directory that does not exist is initialised.
pub(super) fn start_on(
    program: Program,
    data_dir: &Path,
    kind: Kind,
    node: NodeId,
) -> Result<Process, LocalError> {
    if !data_dir.exists() {
        datadir::init(data_dir, kind, node)?;
    }
    Process::start(program)
}

/// Waits until a process has written its ports: the file of a former life names another process.
pub(super) fn wait_ports(
    process: &mut Process,
    data_dir: &Path,
    within: Duration,
) -> Result<Ports, LocalError> {
    let pid = process.pid() as u32;
    wait(process, within, LOOK, || {
        Ports::read(data_dir).filter(|ports| ports.pid == pid).ok_or_else(|| "it opened no ports".to_string())
    })
}

/// The addresses of a node among its ports.
pub(super) fn addresses(ports: &Ports) -> Addresses {
    let address = |name: &str| ports.listen.get(name).cloned().unwrap_or_default();
    Addresses {
        client: address("client"),
        peer: address("peer"),
        beacon: address("beacon"),
        http: address("http"),
    }
}

/// Where a node speaks SQL.
pub(super) fn sql_address(ports: &Ports) -> String {
    ports.listen.get("sql").cloned().unwrap_or_default()
}

/// Waits until a process answers this path over HTTP with success.
pub(super) fn wait_http(
    process: &mut Process,
    address: &str,
    path: &str,
    within: Duration,
) -> Result<(), LocalError> {
    wait(process, within, Duration::from_millis(10), || match http::request("GET", address, path, ASK) {
        Ok((200..=299, _)) => Ok(()),
        Ok((status, body)) => Err(format!("{status} {body}")),
        Err(why) => Err(why),
    })
}

/// Tries until it succeeds, the process ends or the time is over.
fn wait<T>(
    process: &mut Process,
    within: Duration,
    pause: Duration,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, LocalError> {
    let deadline = Instant::now() + within;
    loop {
        let why = match attempt() {
            Ok(done) => return Ok(done),
            Err(why) => why,
        };
        let (name, log) = (process.program().name.clone(), process.program().log.clone());
        if !process.is_running() {
            let (why, status) = process.last_words();
            return Err(LocalError::NotStarted { name, why, status, log });
        }
        if Instant::now() >= deadline {
            return Err(LocalError::NotReady { name, seconds: within.as_secs(), why, log });
        }
        std::thread::sleep(pause);
    }
}
