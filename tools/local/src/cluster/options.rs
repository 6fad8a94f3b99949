//! What a cluster is started with.

use std::path::PathBuf;
use std::time::Duration;

/// Where the cluster's records are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Metastore {
    /// In a fsynced file of the one controller.
    #[default]
    Embedded,
    /// In three etcd members that are started with the cluster.
    Etcd,
}

/// A cluster of processes on this machine.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Everything is below this directory.
    pub dir: PathBuf,
    /// The program, with the subcommands `node` and `controller`.
    pub binary: PathBuf,
    /// Nodes; their ids count from 1.
    pub nodes: u32,
    /// Directories in which each node keeps replicas, its data directory included; at least 1.
    pub data_dirs: u32,
    /// Controllers; with [`Metastore::Embedded`] there is one.
    pub controllers: u32,
    /// Where the records are kept.
    pub metastore: Metastore,
    /// Unsynced bytes stay from the disk, so that a kill is a power loss.
    pub volatile: bool,
    /// Nodes can be cut off from others.
    pub faults: bool,
    /// How long a primary is waited for where a policy rests on it alone; `None`: the default.
    pub failover_wait_ms: Option<u64>,
    /// Settings over every process's configuration: `section.key` and the value.
    pub settings: Vec<(String, String)>,
    /// Added to every process's environment.
    pub env: Vec<(String, String)>,
    /// The lowest port to use, so that a cluster keeps its ports between runs; `None`: any.
    pub first_port: Option<u16>,
    /// How long a process may take until it is ready.
    pub ready_within: Duration,
}

impl ClusterOptions {
    /// Three nodes and one controller below `dir`, run from this very program.
    pub fn new(dir: impl Into<PathBuf>) -> ClusterOptions {
        ClusterOptions {
            dir: dir.into(),
            binary: std::env::current_exe().unwrap_or_else(|_| "understudy".into()),
            nodes: 3,
            data_dirs: 1,
            controllers: 1,
            metastore: Metastore::Embedded,
            volatile: false,
            faults: true,
            failover_wait_ms: None,
            settings: Vec::new(),
            env: Vec::new(),
            first_port: None,
            ready_within: Duration::from_secs(30),
        }
    }
}
