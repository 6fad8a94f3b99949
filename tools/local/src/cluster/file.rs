//! `cluster.json`: what runs in a directory, so that every other command finds it. And `local.json`, which
//! stays between runs and says that the directory is a local cluster's.

use crate::error::LocalError;
use crate::process;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use types::NodeId;
use types::config::Addresses;

/// The file's name.
pub const CLUSTER_FILE: &str = "cluster.json";
/// The name of the file that marks a directory as a local cluster's.
pub const LOCAL_FILE: &str = "local.json";

/// One running process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessFile {
    /// What messages call it.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// A path that only this process has among its arguments: no pid is signalled without it.
    pub mark: PathBuf,
    /// Where its output goes.
    pub log: PathBuf,
}

impl ProcessFile {
    /// True if the process runs and is the one that was started.
    pub fn is_running(&self) -> bool {
        process::is_ours(self.pid, &self.mark)
    }

    /// Signals it, if it is still the one that was started.
    pub fn signal(&self, signal: process::Signal) -> Result<(), LocalError> {
        match process::signal_ours(self.pid, &self.mark, signal) {
            true => Ok(()),
            false => Err(LocalError::NotRunning { name: self.name.clone(), pid: self.pid }),
        }
    }
}

/// A controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ControllerFile {
    /// The process.
    pub process: ProcessFile,
    /// Where nodes, operators and clients reach it.
    pub address: String,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeFile {
    /// The node.
    pub id: NodeId,
    /// The process.
    pub process: ProcessFile,
    /// Where it is reached in its present life.
    pub addresses: Addresses,
    /// Its data.
    pub data_dir: PathBuf,
}

/// Everything that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterFile {
    /// Format number.
    pub format: u16,
    /// The process that keeps the cluster: its end is the cluster's.
    pub keeper: i32,
    /// Controllers.
    pub controllers: Vec<ControllerFile>,
    /// Nodes.
    pub nodes: Vec<NodeFile>,
    /// Where PostgreSQL's clients connect, without the password: that is in `sql.password`, or the cluster's
    /// secret.
    #[serde(default)]
    pub sql_url: Option<String>,
    /// Members of the metastore, if it is etcd.
    pub etcd: Vec<ProcessFile>,
}

impl ClusterFile {
    /// The format that this version writes.
    pub const FORMAT: u16 = 1;

    /// Reads the file of the cluster that runs in `dir`.
    pub fn find(dir: &Path) -> Result<ClusterFile, LocalError> {
        let path = dir.join(CLUSTER_FILE);
        if !path.exists() {
            return Err(LocalError::NoCluster(dir.to_path_buf()));
        }
        let file: ClusterFile = read_json(&path)?;
        let someone = file.processes().any(ProcessFile::is_running) || is_alive(file.keeper);
        if someone { Ok(file) } else { Err(LocalError::NoCluster(dir.to_path_buf())) }
    }

    /// Controllers' addresses, as a client takes them.
    pub fn controller_addresses(&self) -> Vec<String> {
        self.controllers.iter().map(|controller| controller.address.clone()).collect()
    }

    /// Every process.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessFile> {
        let controllers = self.controllers.iter().map(|controller| &controller.process);
        controllers.chain(self.nodes.iter().map(|node| &node.process)).chain(&self.etcd)
    }

    /// A node by its number.
    pub fn node(&self, id: NodeId) -> Result<&NodeFile, LocalError> {
        let found = self.nodes.iter().find(|node| node.id == id);
        found.ok_or_else(|| self.no_node(&id.0.to_string()))
    }

    /// A node as a person names it: `2` or `n2`.
    pub fn node_named(&self, text: &str) -> Result<&NodeFile, LocalError> {
        let number = text.strip_prefix('n').unwrap_or(text).parse().ok();
        let found = self.nodes.iter().find(|node| Some(node.id.0) == number);
        found.ok_or_else(|| self.no_node(text))
    }

    fn no_node(&self, asked: &str) -> LocalError {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.id.0.to_string()).collect();
        LocalError::NoNode { asked: asked.to_string(), nodes: nodes.join(", ") }
    }
}

/// True if the process is there and is an understudy: a keeper has no path of its own among its arguments.
fn is_alive(pid: i32) -> bool {
    let same = |path: &str| fs::read_link(path).ok();
    pid > 1 && same(&format!("/proc/{pid}/exe")).is_some_and(|exe| Some(exe) == same("/proc/self/exe"))
}

/// Writes a file so that it is there whole or not at all.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), LocalError> {
    let temporary = path.with_extension("new");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(LocalError::io(&temporary))?;
    fs::rename(&temporary, path).map_err(LocalError::io(path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(LocalError::io(dir))
}

/// Writes a record as JSON that people can read.
pub fn write_json<T: Serialize>(path: &Path, record: &T) -> Result<(), LocalError> {
    let mut text = serde_json::to_string_pretty(record).expect("records have only text keys");
    text.push('\n');
    write_atomic(path, text.as_bytes())
}

/// Reads a record that was written as JSON.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LocalError> {
    let text = fs::read_to_string(path).map_err(LocalError::io(path))?;
    let damaged = |error| std::io::Error::other(format!("it cannot be read: {error}"));
    serde_json::from_str(&text).map_err(damaged).map_err(LocalError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pid: i32) -> ClusterFile {
        let process =
            ProcessFile { name: "node 1".into(), pid, mark: "/m/node-1.toml".into(), log: "l".into() };
        let addresses = Addresses::default();
        let node = NodeFile { id: NodeId(1), process, addresses, data_dir: "d".into() };
        ClusterFile {
            format: 1,
            keeper: 0,
            controllers: vec![],
            nodes: vec![node],
            sql_url: None,
            etcd: vec![],
        }
    }

    #[test]
    fn a_directory_without_a_running_process_has_no_cluster() {
        let dir = tempfile::tempdir().expect("a directory");
        let no_cluster = |dir: &Path| matches!(ClusterFile::find(dir), Err(LocalError::NoCluster(_)));
        assert!(no_cluster(dir.path()));
        // The pid is alive, but it is not the process that was started.
        let path = dir.path().join(CLUSTER_FILE);
        write_json(&path, &file(std::process::id() as i32)).expect("written");
        assert!(no_cluster(dir.path()));
        let mut kept = file(4_000_000);
        kept.keeper = std::process::id() as i32;
        write_json(&path, &kept).expect("written");
        assert_eq!(ClusterFile::find(dir.path()).expect("kept by this process"), kept);
        fs::write(&path, "{").expect("written");
        assert!(matches!(ClusterFile::find(dir.path()), Err(LocalError::Io { .. })));
    }

    #[test]
    fn nodes_go_by_number_and_a_wrong_one_is_a_sentence() {
        let file = file(4_000_000);
        assert_eq!(file.node_named("n1").expect("there").id, NodeId(1));
        assert_eq!(file.node_named("1").expect("there").id, NodeId(1));
        let error = file.node_named("7").expect_err("not there");
        assert_eq!(error.to_string(), "there is no node 7; the nodes are 1");
        let refused = file.nodes[0].process.signal(process::Signal::Kill).expect_err("not ours");
        assert_eq!(refused.to_string(), "node 1 does not run: process 4000000 is gone or another one");
    }
}
