//! What is to be started: which processes, with which arguments, at which ports.

use super::file::{read_json, write_json};
use super::options::{ClusterOptions, Metastore};
use super::{ETCD_MEMBERS, check_nodes, config, password};
use crate::error::LocalError;
use crate::ports::{END, FreePorts, is_free};
use crate::process::Program;
use node::datadir::{self, Ports};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use types::config::Addresses;

/// Any port that is free.
const ANY: &str = "127.0.0.1:0";
/// The ports of etcd's members, which stay between runs.
const ETCD_FILE: &str = "etcd.json";

/// What is to be started, with all paths and ports decided.
#[derive(Clone, Debug)]
pub(super) struct LaunchPlan {
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
    /// The file with the operators' token.
    pub token_file: PathBuf,
    /// Etcd's members have data, and know each other by their ports.
    etcd_is_fixed: bool,
}

impl LaunchPlan {
    /// Decides on every path and port. With a first port, those of the run before are kept.
    pub fn new(mut options: ClusterOptions) -> Result<LaunchPlan, LocalError> {
        check_nodes(options.nodes)?;
        if options.controllers == 0 || (options.metastore == Metastore::Embedded && options.controllers > 1) {
            let why = "the embedded metastore has exactly one controller; several need etcd";
            return Err(LocalError::Usage(why.into()));
        }
        fs::create_dir_all(&options.dir).map_err(LocalError::io(&options.dir))?;
        options.dir = fs::canonicalize(&options.dir).map_err(LocalError::io(&options.dir))?;
        let members = if options.metastore == Metastore::Etcd { ETCD_MEMBERS as usize } else { 0 };
        // An empty address is one that nobody chose yet.
        let mut plan = LaunchPlan {
            controllers: vec![String::new(); options.controllers as usize],
            etcd: vec![Default::default(); members],
            nodes: vec![Addresses::default(); options.nodes as usize],
            sql: vec![String::new(); options.nodes as usize],
            password_file: password::keep(&options)?,
            token_file: password::keep_token(&options)?,
            options,
            etcd_is_fixed: false,
        };
        plan.recall()?;
        plan.choose()?;
        Ok(plan)
    }

    /// Takes the addresses of the run before, as far as there were any.
    fn recall(&mut self) -> Result<(), LocalError> {
        let etcd = self.path(ETCD_FILE);
        if !self.etcd.is_empty() && etcd.exists() {
            let known: Vec<(String, String)> = read_json(&etcd)?;
            self.etcd_is_fixed = known.len() == self.etcd.len();
            if self.etcd_is_fixed {
                self.etcd = known;
            }
        }
        if self.options.first_port.is_none() {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        let (dir, first) = (self.options.dir.clone(), self.options.first_port);
        let mut recall = |slot: &mut String, stem: &str, name: &str| {
            let before = Ports::read(&dir.join(stem)).and_then(|ports| ports.address(name));
            let before = before.filter(|at| Some(at.port()) >= first && at.port() <= END && seen.insert(*at));
            *slot = before.map_or_else(String::new, |at| at.to_string());
        };
        for (number, slot) in (1..).zip(&mut self.controllers) {
            recall(slot, &format!("controller-{number}"), "controller");
        }
        for (id, node) in (1..).zip(&mut self.nodes) {
            for (name, slot) in slots(node) {
                recall(slot, &format!("node-{id}"), name);
            }
        }
        for (id, slot) in (1..).zip(&mut self.sql) {
            recall(slot, &format!("node-{id}"), "sql");
        }
        Ok(())
    }

    /// Chooses every address that nobody chose yet.
    fn choose(&mut self) -> Result<(), LocalError> {
        let mut ports = self.ports();
        let any_will_do = self.options.first_port.is_none();
        for (name, slot) in self.all() {
            if slot.is_empty() {
                let any = any_will_do && name.starts_with("node");
                *slot = if any { ANY.to_string() } else { another(&mut ports)? };
            }
        }
        Ok(())
    }

    /// Gives everything another port that would find its own taken: a line for each.
    pub fn replace_taken(&mut self) -> Result<Vec<String>, LocalError> {
        self.replace_where(|_| true)
    }

    /// The same for one node.
    pub fn replace_taken_of(&mut self, id: u32) -> Result<Vec<String>, LocalError> {
        self.replace_where(|name| name.split(',').next() == Some(&format!("node {id}")))
    }

    fn replace_where(&mut self, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>, LocalError> {
        let mut ports = self.ports();
        let mut news = Vec::new();
        let etcd_is_fixed = self.etcd_is_fixed;
        for (name, slot) in self.all() {
            let stays = etcd_is_fixed && name.starts_with("etcd");
            if stays || !wanted(&name) || is_free(slot) {
                continue;
            }
            let new = another(&mut ports)?;
            news.push(format!("{name}: another process has {slot} now; it listens at {new} from now on"));
            *slot = new;
        }
        Ok(news)
    }

    /// Every address with what it is for: `node 2, client`.
    fn all(&mut self) -> Vec<(String, &mut String)> {
        let mut all = Vec::new();
        for (number, slot) in (1..).zip(&mut self.controllers) {
            all.push((format!("controller {number}"), slot));
        }
        for (number, (client, peer)) in (1..).zip(&mut self.etcd) {
            all.push((format!("etcd {number}, client"), client));
            all.push((format!("etcd {number}, peer"), peer));
        }
        for (id, node) in (1..).zip(&mut self.nodes) {
            all.extend(slots(node).map(|(name, slot)| (format!("node {id}, {name}"), slot)));
        }
        // Behind the others, so that those stay where they were before nodes spoke SQL.
        for (id, slot) in (1..).zip(&mut self.sql) {
            all.push((format!("node {id}, sql"), slot));
        }
        all
    }

    /// Ports that nothing of this cluster has.
    fn ports(&mut self) -> FreePorts {
        let port = |slot: &String| slot.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let ours = self.all().into_iter().filter_map(|(_, slot)| port(slot)).collect();
        FreePorts::from(self.options.first_port, ours)
    }

    /// Notes the ports by which etcd's members know each other, if there are any: they can never be changed.
    pub fn keep_etcd(&mut self) -> Result<(), LocalError> {
        if !self.etcd.is_empty() && !self.etcd_is_fixed {
            write_json(&self.path(ETCD_FILE), &self.etcd)?;
            self.etcd_is_fixed = true;
        }
        Ok(())
    }

    /// The program of a node.
    pub fn node(&self, id: u32) -> Result<Program, LocalError> {
        let config = self.path(&format!("node-{id}.toml"));
        config::write_node(self, id, &config)?;
        // One that was used and is gone is what somebody wants to try.
        for dir in self.further_dirs(id).filter(|dir| !datadir::data_dirs::is_known(&self.node_dir(id), dir))
        {
            fs::create_dir_all(&dir).map_err(LocalError::io(&dir))?;
        }
        Ok(self.ours(format!("node {id}"), "node", &format!("node-{id}"), &config))
    }

    /// The program of a controller.
    pub fn controller(&self, number: u32) -> Result<Program, LocalError> {
        let config = self.path(&format!("controller-{number}.toml"));
        config::write_controller(self, number, &config)?;
        Ok(self.ours(format!("controller {number}"), "controller", &format!("controller-{number}"), &config))
    }

    fn ours(&self, name: String, command: &str, stem: &str, config: &Path) -> Program {
        Program {
            name,
            binary: self.options.binary.clone(),
            arguments: vec![command.into(), "--config".into(), config.display().to_string()],
            env: self.options.env.clone(),
            log: self.path(&format!("{stem}.log")),
        }
        .set(self.options.settings.iter().map(|(key, value)| (&**key, &**value)))
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

    /// Where a node keeps more replicas.
    pub fn further_dirs(&self, id: u32) -> impl Iterator<Item = PathBuf> {
        (2..=self.options.data_dirs).map(move |number| self.path(&format!("node-{id}-disk-{number}")))
    }

    /// Where a controller keeps its data.
    pub fn controller_dir(&self, number: u32) -> PathBuf {
        self.path(&format!("controller-{number}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.options.dir.join(name)
    }
}

fn another(ports: &mut FreePorts) -> Result<String, LocalError> {
    ports.address().ok_or_else(|| LocalError::Failed("no free port was found".into()))
}

/// A node's addresses by name.
fn slots(node: &mut Addresses) -> impl Iterator<Item = (&'static str, &mut String)> {
    let Addresses { client, peer, heartbeat, http } = node;
    [("client", client), ("peer", peer), ("heartbeat", heartbeat), ("http", http)].into_iter()
}
