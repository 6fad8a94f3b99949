//! A cluster of processes on this machine: started, harmed and stopped.

mod config;
pub mod file;
mod launch;
mod options;
mod password;
mod plan;
mod running;

pub use file::{ClusterFile, ControllerFile, NodeFile, ProcessFile};
pub use options::{ClusterOptions, Metastore};
pub(crate) use password::TOKEN_FILE;
pub use running::{Healed, Running};

use crate::error::LocalError;
use crate::ports::PortLock;
use crate::process::{Process, Signal};
use file::{CLUSTER_FILE, write_json};
use launch::{addresses, sql_address, start_on, wait_answers, wait_http, wait_ports};
use node::datadir::{self, Kind};
use plan::LaunchPlan;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::NodeId;
use types::config::Addresses;

/// Members of etcd, where it is the metastore.
const ETCD_MEMBERS: u32 = 3;
/// How long processes may take to hand over and to flush before they are ended.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How often processes are started anew because one of them found its port taken.
const TRIES: u32 = 8;

/// A cluster whose processes are children of this one. Dropped, it ends them all.
#[derive(Debug)]
pub struct Cluster {
    plan: LaunchPlan,
    etcd: Vec<Process>,
    controllers: Vec<Process>,
    /// By number; none for a node that was removed from the cluster.
    nodes: Vec<Option<Process>>,
    /// Where nodes are reached in their present life.
    addresses: Vec<Addresses>,
    /// Where they speak SQL.
    sql: Vec<String>,
    /// What a person should hear of: ports that had to be given up.
    news: Vec<String>,
}

impl Cluster {
    /// Writes configurations, starts every process and waits until all answer. A port that somebody else took
    /// is replaced by another one: see [`Cluster::take_news`].
    pub fn start(options: ClusterOptions) -> Result<Cluster, LocalError> {
        let lock = PortLock::take();
        let mut cluster = Cluster {
            plan: LaunchPlan::new(options)?,
            etcd: vec![],
            controllers: vec![],
            nodes: vec![],
            addresses: vec![],
            sql: vec![],
            news: vec![],
        };
        cluster.start_all(lock)?;
        Ok(cluster)
    }

    /// The ports that were given up since it was asked last, because another process has them: a line each.
    pub fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// What runs in `dir`, whoever started it.
    pub fn find(dir: &Path) -> Result<Running, LocalError> {
        Running::find(dir)
    }

    /// Where everything is.
    pub fn dir(&self) -> &Path {
        &self.plan.options.dir
    }

    /// Controllers' addresses, as a client takes them.
    pub fn controllers(&self) -> Vec<String> {
        self.plan.controllers.clone()
    }

    /// The nodes' ids, without those that were removed.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (1..).zip(&self.nodes).filter(|(_, process)| process.is_some()).map(|(id, _)| NodeId(id))
    }

    /// Where a node is reached in its present life.
    pub fn addresses(&self, node: NodeId) -> &Addresses {
        &self.addresses[node.0 as usize - 1]
    }

    /// Where PostgreSQL's clients connect: all nodes in one URL, and the password in it.
    pub fn sql_url(&self) -> Result<String, LocalError> {
        let password = match &self.plan.password_file {
            Some(file) => Some(password::read(file)?),
            None => password::secret(&self.plan.options),
        };
        Ok(password::url(&self.sql_addresses(), password.as_deref()))
    }

    fn sql_addresses(&self) -> Vec<String> {
        self.sql.iter().filter(|address| !address.is_empty()).cloned().collect()
    }

    /// The web page: the first node's, any other shows the same.
    pub fn web_url(&self) -> String {
        let mut pages = self.addresses.iter().filter(|addresses| !addresses.http.is_empty());
        pages.next().map(|addresses| format!("http://{}/", addresses.http)).unwrap_or_default()
    }

    /// Where a node keeps its data.
    pub fn node_dir(&self, node: NodeId) -> PathBuf {
        self.plan.node_dir(node.0)
    }

    /// What runs, as `cluster.json` has it.
    pub fn file(&self) -> ClusterFile {
        let of = |process: &Process, mark: &str| {
            let program = process.program();
            // What follows the flag is a path that no other process has.
            let at = program.arguments.iter().position(|argument| argument == mark).map_or(0, |at| at + 1);
            ProcessFile {
                name: program.name.clone(),
                pid: process.pid(),
                mark: program.arguments[at].clone().into(),
                log: program.log.clone(),
            }
        };
        let controllers = self.controllers.iter().zip(&self.plan.controllers);
        let nodes = (1..).map(NodeId).zip(self.nodes.iter().zip(&self.addresses));
        ClusterFile {
            format: ClusterFile::FORMAT,
            keeper: std::process::id() as i32,
            controllers: controllers
                .map(|(process, address)| ControllerFile {
                    process: of(process, "--config"),
                    address: address.clone(),
                })
                .collect(),
            nodes: nodes
                .filter_map(|(id, (process, addresses))| {
                    Some(NodeFile {
                        id,
                        process: of(process.as_ref()?, "--config"),
                        addresses: addresses.clone(),
                        data_dir: self.plan.node_dir(id.0),
                    })
                })
                .collect(),
            sql_url: Some(password::url(&self.sql_addresses(), None)),
            etcd: self.etcd.iter().map(|process| of(process, "--data-dir")).collect(),
        }
    }

    /// The cluster as anyone finds it: for harm that needs no child.
    fn running(&self) -> Result<Running, LocalError> {
        Running::find(self.dir())
    }

    /// Ends a node's process at once, as a crash does.
    pub fn kill(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.process(node)?.kill();
        Ok(())
    }

    /// Freezes a node's process: its connections stay open, and nothing comes from it.
    pub fn stop(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.signal(node, Signal::Stop)
    }

    /// Lets a frozen process go on.
    pub fn cont(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.signal(node, Signal::Continue)
    }

    /// Cuts a node off from all other nodes, from controllers and from clients.
    pub fn cut(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.running()?.cut(node)
    }

    /// Cuts a node off from all other nodes and from controllers, but not from clients: it can still be
    /// asked.
    pub fn cut_from_cluster(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.running()?.cut_from_cluster(node)
    }

    /// Cuts a node off from all other nodes, but neither from controllers nor from clients.
    pub fn cut_links(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.running()?.cut_links(node)
    }

    /// Ends a cut, and lets the process go on if it was frozen.
    pub fn heal(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.running()?.heal(node).map(drop)
    }

    /// Ends a node's process at once; if the cluster is volatile, what it had not synced is gone with it.
    pub fn power_loss_of(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.kill(node)
    }

    /// Ends every process at once: all are signalled before any is waited for.
    pub fn power_loss(&mut self) {
        for process in self.all() {
            process.signal(Signal::Kill);
        }
        for process in self.all() {
            process.kill();
        }
    }

    /// Ends a node's process if it runs, and starts it again on its data. Returns when its ports are open;
    /// what it holds is brought level after that. Where another process took one of its ports meanwhile, it
    /// gets another.
    pub fn restart(&mut self, node: NodeId) -> Result<(), LocalError> {
        self.restart_with(node, &[])
    }

    /// [`Cluster::restart`] with settings for this one life of the node: `section.key` and the value. They
    /// win over the cluster's.
    ///
    /// # Errors
    ///
    /// If there is no such node, or it does not start: a setting that it refuses leaves it stopped.
    pub fn restart_with(&mut self, node: NodeId, settings: &[(&str, &str)]) -> Result<(), LocalError> {
        self.process(node)?.kill();
        let lock = PortLock::take();
        let at = node.0 as usize - 1;
        let dir = self.plan.node_dir(node.0);
        for attempt in 1.. {
            self.news.extend(self.plan.replace_taken_of(node.0)?);
            let program = self.plan.node(node.0)?.set(settings.iter().copied());
            let process = start_on(program, &dir, Kind::Node, node)?;
            match wait_ports(self.nodes[at].insert(process), &dir, self.plan.options.ready_within) {
                Ok(ports) => {
                    (self.addresses[at], self.sql[at]) = (addresses(&ports), sql_address(&ports));
                    break;
                }
                Err(LocalError::PortTaken { .. }) if attempt < TRIES => {}
                Err(error) => return Err(error),
            }
        }
        drop(lock);
        self.write_file()
    }

    /// Ends a controller's process at once, as a crash does. They are counted from 1.
    ///
    /// # Errors
    ///
    /// If there is none of this number.
    pub fn kill_controller(&mut self, number: u32) -> Result<(), LocalError> {
        self.controller(number)?.kill();
        Ok(())
    }

    /// Ends a controller's process if it runs, and starts it again on its data. Returns when its port is
    /// open.
    ///
    /// # Errors
    ///
    /// If there is none of this number, or it does not start: another process may have taken its port.
    pub fn restart_controller(&mut self, number: u32) -> Result<(), LocalError> {
        self.kill_controller(number)?;
        let (lock, dir) = (PortLock::take(), self.plan.controller_dir(number));
        let started = start_on(self.plan.controller(number)?, &dir, Kind::Controller, NodeId(0))?;
        let within = self.plan.options.ready_within;
        let process = self.controller(number)?;
        *process = started;
        wait_ports(process, &dir, within)?;
        drop(lock);
        self.write_file()
    }

    /// Waits until a node that was started again answers: a controller has let it in, and it serves clients.
    ///
    /// # Errors
    ///
    /// If its process has ended, as it does on another cluster's data: with what it said. If it does not
    /// answer `within` this time, as without a controller: with what is lacking. It still runs then.
    pub fn settle(&mut self, node: NodeId, within: Duration) -> Result<(), LocalError> {
        let http = self.addresses.get(node.0 as usize - 1).map(|addresses| addresses.http.clone());
        wait_answers(self.process(node)?, &http.unwrap_or_default(), within)
    }

    /// Starts everything again that does not run, as after a power loss, and waits until all answer.
    pub fn restart_all(&mut self) -> Result<(), LocalError> {
        self.power_loss();
        self.start_all(PortLock::take())
    }

    /// The processes that ended without having been asked, by name. For whoever keeps the cluster.
    pub fn ended(&mut self) -> Vec<(String, i32)> {
        let ended = self.all().filter_map(|process| {
            (!process.is_running()).then(|| (process.program().name.clone(), process.pid()))
        });
        ended.collect()
    }

    /// Stops everything: nodes hand over and flush, then controllers, then the metastore. What takes too long
    /// is ended.
    pub fn shutdown(mut self) {
        let mut nodes = std::mem::take(&mut self.nodes).into_iter().flatten().collect();
        for nodes in [&mut nodes, &mut self.controllers, &mut self.etcd] {
            for process in nodes.iter_mut() {
                process.signal(Signal::Terminate);
                // A frozen process cannot stop.
                process.signal(Signal::Continue);
            }
            let deadline = Instant::now() + STOP_WITHIN;
            for process in nodes.iter_mut() {
                process.wait(deadline.saturating_duration_since(Instant::now()));
                process.kill();
            }
        }
        // The file goes when the cluster is dropped, right now.
    }

    fn process(&mut self, node: NodeId) -> Result<&mut Process, LocalError> {
        let nodes: Vec<String> = self.nodes().map(|id| id.0.to_string()).collect();
        let found = (node.0 as usize).checked_sub(1).and_then(|at| self.nodes.get_mut(at)?.as_mut());
        found.ok_or(LocalError::NoNode { asked: node.0.to_string(), nodes: nodes.join(", ") })
    }

    fn controller(&mut self, number: u32) -> Result<&mut Process, LocalError> {
        let found = (number as usize).checked_sub(1).and_then(|at| self.controllers.get_mut(at));
        found.ok_or(LocalError::NoController(number))
    }

    fn signal(&mut self, node: NodeId, signal: Signal) -> Result<(), LocalError> {
        let process = self.process(node)?;
        let (name, pid) = (process.program().name.clone(), process.pid());
        if process.signal(signal) { Ok(()) } else { Err(LocalError::NotRunning { name, pid }) }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Process> {
        self.nodes.iter_mut().flatten().chain(&mut self.controllers).chain(&mut self.etcd)
    }

    /// Starts everything; `lock` is held until every port is bound.
    fn start_all(&mut self, lock: Option<PortLock>) -> Result<(), LocalError> {
        for attempt in 1.. {
            self.news.extend(self.plan.replace_taken()?);
            match self.bind_all() {
                Ok(()) => break,
                // Not everybody who takes ports knows of the lock.
                Err(LocalError::PortTaken { .. }) if attempt < TRIES => self.power_loss(),
                Err(error) => return Err(error),
            }
        }
        drop(lock);
        self.write_file()?;
        for (process, addresses) in self.nodes.iter_mut().zip(&self.addresses) {
            let Some(process) = process else { continue };
            wait_answers(process, &addresses.http, self.plan.options.ready_within)?;
        }
        Ok(())
    }

    /// Starts everything and waits until every port is bound.
    fn bind_all(&mut self) -> Result<(), LocalError> {
        let within = self.plan.options.ready_within;
        self.start_etcd(within)?;
        self.controllers.clear();
        for number in 1..=self.plan.options.controllers {
            let dir = self.plan.controller_dir(number);
            let program = self.plan.controller(number)?;
            self.controllers.push(start_on(program, &dir, Kind::Controller, NodeId(0))?);
        }
        self.nodes.clear();
        for id in 1..=self.plan.options.nodes {
            let dir = self.plan.node_dir(id);
            // A directory that was removed from its cluster starts no process: without it the others go on.
            let process = match datadir::is_removed(&dir) {
                true => None,
                false => Some(start_on(self.plan.node(id)?, &dir, Kind::Node, NodeId(id))?),
            };
            self.nodes.push(process);
        }
        for (process, number) in self.controllers.iter_mut().zip(1..) {
            wait_ports(process, &self.plan.controller_dir(number), within)?;
        }
        self.addresses.clear();
        self.sql.clear();
        for (process, id) in self.nodes.iter_mut().zip(1..) {
            let Some(process) = process else {
                self.addresses.push(Addresses::default());
                self.sql.push(String::new());
                continue;
            };
            let ports = wait_ports(process, &self.plan.node_dir(id), within)?;
            self.addresses.push(addresses(&ports));
            self.sql.push(sql_address(&ports));
        }
        Ok(())
    }

    fn start_etcd(&mut self, within: Duration) -> Result<(), LocalError> {
        self.etcd.clear();
        if self.plan.options.metastore != Metastore::Etcd {
            return Ok(());
        }
        for number in 1..=ETCD_MEMBERS {
            let started = Process::start(self.plan.etcd(number));
            self.etcd.push(started.map_err(|error| match error {
                LocalError::Io { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                    LocalError::NotInstalled("etcd".into())
                }
                error => error,
            })?);
        }
        for (process, (client, _)) in self.etcd.iter_mut().zip(&self.plan.etcd) {
            wait_http(process, client, "/health", within)?;
        }
        // Members know each other by these ports from now on.
        self.plan.keep_etcd()
    }

    fn write_file(&self) -> Result<(), LocalError> {
        write_json(&self.dir().join(CLUSTER_FILE), &self.file())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.power_loss();
        // Nobody is to find processes that are gone. A file that stays behind names pids that are not ours
        // any more.
        let _ = fs::remove_file(self.dir().join(CLUSTER_FILE));
    }
}

/// Refuses a number of nodes that a local cluster cannot have.
pub(crate) fn check_nodes(nodes: u32) -> Result<(), LocalError> {
    match nodes {
        1..=99 => Ok(()),
        _ => Err(LocalError::Usage(format!("a local cluster has 1 to 99 nodes, not {nodes}"))),
    }
}
