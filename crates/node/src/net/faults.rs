//! Cuts of the network, played by the connection layer for tests, `dev` and `demo`: messages to and from the
//! other side vanish while the sockets stay open, as when a switch fails. When the cut is healed, connections
//! that lost something are closed, since a stream with a gap would be worse than none. And executors that do
//! nothing for a while, as in a call of the system that does not return.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use types::NodeId;

/// Who cannot be reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// These nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Every controller.
    pub controllers: bool,
    /// Every client.
    pub clients: bool,
}

impl Cut {
    /// From `1,2,controllers,clients`. The error is a sentence.
    pub fn parse(text: &str) -> Result<Cut, String> {
        let mut cut = Cut::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "controllers" => cut.controllers = true,
                "clients" => cut.clients = true,
                number => {
                    let node = number.parse().map_err(|_| format!("'{number}' is not a node's number"))?;
                    cut.nodes.insert(NodeId(node));
                }
            }
        }
        Ok(cut)
    }
}

impl std::fmt::Display for Cut {
    /// In words: `nodes 1, 3, controllers, clients`, or `nothing`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.0.to_string()).collect();
        let mut words = Vec::new();
        match nodes.len() {
            0 => {}
            1 => words.push(format!("node {}", nodes[0])),
            _ => words.push(format!("nodes {}", nodes.join(", "))),
        }
        let others = [(self.controllers, "controllers"), (self.clients, "clients")];
        words.extend(others.iter().filter(|(cut, _)| *cut).map(|(_, who)| (*who).to_string()));
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

/// The cut in force, shared by all threads that have connections, and who is to hang.
#[derive(Debug, Default)]
pub struct FaultInjection {
    version: AtomicU64,
    cut: Mutex<Cut>,
    /// Executors that are to hang, by their numbers, and for how long.
    hangs: Mutex<BTreeMap<usize, Duration>>,
}

impl FaultInjection {
    /// Cuts these off, and nobody else. An empty cut heals. Gives the cut before.
    pub fn set(&self, cut: Cut) -> Cut {
        let before = std::mem::replace(&mut *self.cut(), cut);
        self.version.fetch_add(1, Ordering::Release);
        before
    }

    /// The cut, if it changed since the version `seen`, which is brought up to date.
    pub fn news(&self, seen: &mut u64) -> Option<Cut> {
        let version = self.version.load(Ordering::Acquire);
        if version == *seen {
            return None;
        }
        *seen = version;
        Some(self.cut().clone())
    }

    /// Has the executor with this number do nothing for so long, from its next turn on.
    pub fn hang(&self, executor: usize, time: Duration) {
        self.hangs().insert(executor, time);
    }

    /// For how long this executor is to hang, once after it was asked to.
    pub fn take_hang(&self, executor: usize) -> Option<Duration> {
        self.hangs().remove(&executor)
    }

    fn hangs(&self) -> MutexGuard<'_, BTreeMap<usize, Duration>> {
        self.hangs.lock().expect("a thread panicked while it looked at who is to hang")
    }

    fn cut(&self) -> MutexGuard<'_, Cut> {
        self.cut.lock().expect("a thread panicked while it held the cut")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_told_once_to_everyone_who_asks() {
        let faults = FaultInjection::default();
        let (mut one, mut other) = (0, 0);
        assert_eq!(faults.news(&mut one), None);
        faults.set(Cut::parse("2, 3,clients").expect("parses"));
        let cut = faults.news(&mut one).expect("news");
        assert!(cut.nodes.contains(&NodeId(2)) && cut.clients && !cut.controllers);
        assert_eq!((faults.news(&mut one), faults.news(&mut other)), (None, Some(cut)));
        let before = faults.set(Cut::default());
        assert_eq!(before.to_string(), "nodes 2, 3, clients");
        assert_eq!(faults.set(Cut::parse("1").expect("parses")).to_string(), "nothing");
        assert_eq!(faults.set(Cut::default()).to_string(), "node 1");
        assert!(Cut::parse("all").is_err());
        assert_eq!(Cut::parse(""), Ok(Cut::default()));
    }

    #[test]
    fn an_executor_hangs_once_for_each_time_that_it_was_asked_to() {
        let (faults, time) = (FaultInjection::default(), Duration::from_millis(3));
        faults.hang(1, time);
        assert_eq!([0, 1, 1].map(|executor| faults.take_hang(executor)), [None, Some(time), None]);
    }
}
