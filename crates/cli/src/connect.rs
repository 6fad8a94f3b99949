//! Which cluster is meant, and the connection to it.

use crate::args::Global;
use crate::out::Out;
use client::{Client, Map, Options};
use local::ClusterFile;
use ops::Failure;
use ops::secured::read;
use std::time::{Duration, Instant};
use types::{Micros, NodeId, PartitionId};
use wire::control::{AdminCommand, ClusterStatus};

/// What a command works with.
pub struct Context {
    /// What every command takes.
    pub global: Global,
    /// Where results go.
    pub out: Out,
    client: Option<Client>,
    /// How long refusals that may pass are tried again before they are reported; `None`: as the client
    /// thinks.
    patience: Option<Duration>,
}

impl Context {
    /// Nothing is connected yet.
    pub fn new(global: &Global) -> Context {
        Context { global: global.clone(), out: Out::new(global.json), client: None, patience: None }
    }

    /// The controllers: as given, else those of the local cluster.
    pub fn controllers(&self) -> Result<Vec<String>, Failure> {
        let given: Vec<String> = self
            .global
            .connect
            .iter()
            .map(|text| text.trim().to_string())
            .filter(|text| !text.is_empty())
            .collect();
        if !given.is_empty() {
            return match given.iter().find(|address| !address.contains(':')) {
                Some(wrong) => Err(Failure::usage(format!("--connect {wrong}: expected HOST:PORT"))),
                None => Ok(given),
            };
        }
        match ClusterFile::find(&self.global.dir) {
            Ok(file) => Ok(file.controller_addresses()),
            Err(local::LocalError::NoCluster(dir)) => Err(Failure::new(
                ops::Status::Unreachable,
                format!(
                    "no cluster is named and none runs in {}; start one with `understudy dev`, or name one with \
                     --connect HOST:PORT or UNDERSTUDY_CONNECT",
                    dir.display()
                ),
            )),
            Err(error) => Err(failure(error)),
        }
    }

    /// The connection. Made by the first command that needs one.
    pub fn client(&mut self) -> Result<&mut Client, Failure> {
        if self.client.is_none() {
            let mut options = Options {
                controllers: self.controllers()?,
                timeout: self.global.timeout,
                secret: local::secret(),
                ..Options::default()
            };
            if let Some(patience) = self.patience {
                options.core.patience = Micros(patience.as_micros() as u64);
            }
            self.client = Some(Client::connect(options)?);
        }
        Ok(self.client.as_mut().expect("made above"))
    }

    /// For long work, before it connects: a failover in the middle is to be waited for, not reported.
    pub fn be_patient(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// The cluster map, with everything that has come so far.
    pub fn cluster_map(&mut self) -> Result<&Map, Failure> {
        let client = self.client()?;
        let _ = client.poll(Duration::ZERO)?;
        Ok(client.cluster_map())
    }

    /// An operator's request, and the controller's JSON.
    pub fn admin(&mut self, command: AdminCommand) -> Result<String, Failure> {
        Ok(self.client()?.admin(command)?)
    }

    /// The last status of every node.
    pub fn status(&mut self) -> Result<ClusterStatus, Failure> {
        read(&self.admin(AdminCommand::Status)?)
    }

    /// Waits until the cluster map shows something, at most the usual time. False if it did not.
    pub fn wait_for(&mut self, shows: impl Fn(&Map) -> bool) -> Result<bool, Failure> {
        let deadline = Instant::now() + self.global.timeout;
        loop {
            if shows(self.cluster_map()?) {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            let _ = self.client()?.poll(Duration::from_millis(20))?;
        }
    }

    /// A partition as a person names it: `64`, `p64`, or `users/0` for a table's first.
    pub fn partition(&mut self, text: &str) -> Result<PartitionId, Failure> {
        let wrong = || {
            Failure::usage(format!("`{text}` names no partition: give its number, or TABLE/0 for the first"))
        };
        let Some((table, place)) = text.rsplit_once('/') else {
            return partition_number(text).ok_or_else(wrong);
        };
        let place: u32 = place.parse().map_err(|_| wrong())?;
        let table = self.client()?.table(table)?;
        let found = table.partitions().nth(place as usize);
        found.ok_or_else(|| {
            let count = table.record().partitions;
            Failure::not_found(format!("table `{}` has partitions 0 to {}", table.name(), count - 1))
        })
    }
}

/// `64` or `p64`.
pub fn partition_number(text: &str) -> Option<PartitionId> {
    let digits = text.strip_prefix('p').unwrap_or(text);
    // A sign would be parsed, too.
    let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok());
    number.flatten().map(PartitionId)
}

/// `2` or `n2`.
pub fn node(text: &str) -> Result<NodeId, Failure> {
    let number = text.strip_prefix('n').unwrap_or(text).parse().ok();
    number.map(NodeId).ok_or_else(|| Failure::usage(format!("`{text}` names no node: give its number")))
}

/// What a local cluster could not do.
pub fn failure(error: local::LocalError) -> Failure {
    Failure { status: error.exit_status(), sentence: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_and_partitions() {
        assert_eq!(node("n2").map(|node| node.0), Ok(2));
        assert_eq!(node("2").map(|node| node.0), Ok(2));
        assert_eq!(node("two").expect_err("no number").status, 2);
        assert_eq!(partition_number("p64"), Some(PartitionId(64)));
        assert_eq!(partition_number("64"), Some(PartitionId(64)));
        for wrong in ["x", "", "p", "pp64", "+64", "p+64", "64p", "4294967296"] {
            assert_eq!(partition_number(wrong), None, "{wrong}");
        }
    }
}
