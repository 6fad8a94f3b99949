//! Harm to a cluster that runs, whoever started it. Found by `cluster.json`; every pid is verified before it
//! is signalled.

use super::file::{ClusterFile, NodeFile, ProcessFile};
use super::launch::{ASK_INTERVAL, answers};
use crate::error::LocalError;
use crate::http;
use crate::process::{self, Signal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::NodeId;

/// How long a node may take to carry out a cut or a heal.
const FAULTS_WITHIN: Duration = Duration::from_secs(5);

/// A cluster that runs.
#[derive(Clone, Debug)]
pub struct Running {
    dir: PathBuf,
    file: ClusterFile,
}

impl Running {
    /// Finds the cluster that runs in `dir`.
    pub fn find(dir: &Path) -> Result<Running, LocalError> {
        Ok(Running { dir: dir.to_path_buf(), file: ClusterFile::find(dir)? })
    }

    /// Where it runs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What runs.
    pub fn file(&self) -> &ClusterFile {
        &self.file
    }

    /// Where its nodes speak SQL, without the password; and the password.
    pub fn sql(&self) -> Result<(Option<String>, Option<String>), LocalError> {
        Ok((self.file.sql_url.clone(), super::password::of(&self.dir)?))
    }

    /// Ends a node's process at once.
    pub fn kill(&self, node: NodeId) -> Result<(), LocalError> {
        self.file.node(node)?.process.signal(Signal::Kill)
    }

    /// Freezes a node's process.
    pub fn stop(&self, node: NodeId) -> Result<(), LocalError> {
        self.file.node(node)?.process.signal(Signal::Stop)
    }

    /// Lets a frozen process go on.
    pub fn cont(&self, node: NodeId) -> Result<(), LocalError> {
        self.file.node(node)?.process.signal(Signal::Continue)
    }

    /// Cuts a node off from all other nodes, from controllers and from clients.
    pub fn cut(&self, node: NodeId) -> Result<(), LocalError> {
        faults(self.file.node(node)?, &format!("{}&controllers&clients", self.links(node))).map(drop)
    }

    /// Cuts a node off from all other nodes and from controllers, but not from clients: it can still be
    /// asked.
    pub fn cut_from_cluster(&self, node: NodeId) -> Result<(), LocalError> {
        faults(self.file.node(node)?, &format!("{}&controllers", self.links(node))).map(drop)
    }

    /// Cuts a node off from all other nodes, but neither from controllers nor from clients.
    pub fn cut_links(&self, node: NodeId) -> Result<(), LocalError> {
        faults(self.file.node(node)?, &self.links(node)).map(drop)
    }

    /// The request that cuts a node off from the other nodes.
    fn links(&self, node: NodeId) -> String {
        let others = self.file.nodes.iter().filter(|other| other.id != node);
        let others: Vec<String> = others.map(|other| other.id.0.to_string()).collect();
        format!("/harm/cut?nodes={}", others.join(","))
    }

    /// Ends a cut, and lets the process go on if it was frozen.
    pub fn heal(&self, node: NodeId) -> Result<Healed, LocalError> {
        let node = self.file.node(node)?;
        let frozen = process::is_stopped(node.process.pid);
        // Also if it does not look frozen: a stop that was asked for a moment ago may not have come into
        // force.
        if node.process.is_running() {
            node.process.signal(Signal::Continue)?;
        }
        let cut = faults(node, "/harm/heal")?;
        Ok(Healed { frozen, cut: Some(cut.trim().to_string()).filter(|cut| cut != "nothing") })
    }

    /// Waits until a node that was started again answers: a controller has let it in, and it serves clients.
    ///
    /// # Errors
    ///
    /// If its process has ended, as it does on another cluster's data: with what it said. If it does not
    /// answer `within` this time, as without a controller: with what is lacking. It still runs then.
    pub fn settle(&self, node: NodeId, within: Duration) -> Result<(), LocalError> {
        let node = self.file.node(node)?;
        let (name, log) = (node.process.name.clone(), node.process.log.clone());
        let deadline = Instant::now() + within;
        loop {
            let why = match answers(&node.addresses.http) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            };
            if !node.process.is_running() {
                let why = process::last_line(&log).unwrap_or_else(|| "it ended".into());
                return Err(LocalError::NotStarted { name, why, status: None, log });
            }
            if Instant::now() >= deadline {
                return Err(LocalError::NotReady { name, seconds: within.as_secs(), why, log });
            }
            std::thread::sleep(ASK_INTERVAL);
        }
    }

    /// Ends every process at once.
    pub fn power_loss(&self) -> Result<(), LocalError> {
        let alive: Vec<&ProcessFile> = self.file.processes().filter(|process| process.is_running()).collect();
        if alive.is_empty() {
            return Err(LocalError::NoCluster(self.dir.clone()));
        }
        for process in alive {
            // One that ended by itself in between is as dead as it should be.
            let _ = process.signal(Signal::Kill);
        }
        Ok(())
    }
}

/// What ended when a node was healed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Healed {
    /// Its process stood still.
    pub frozen: bool,
    /// Whom it could not reach, in words.
    pub cut: Option<String>,
}

/// Asks a node to cut itself off, or to heal. What it says.
fn faults(node: &NodeFile, path: &str) -> Result<String, LocalError> {
    let name = node.process.name.clone();
    if !node.process.is_running() {
        return Err(LocalError::NotRunning { name, pid: node.process.pid });
    }
    match http::request("POST", &node.addresses.http, path, FAULTS_WITHIN) {
        Ok((200..=299, body)) => Ok(body),
        Ok((404, _)) => {
            let why = "it was started without harm".to_string();
            Err(LocalError::FaultInjection { name, why })
        }
        Ok((status, body)) => Err(LocalError::FaultInjection { name, why: format!("{status} {body}") }),
        Err(why) => Err(LocalError::FaultInjection { name, why }),
    }
}
