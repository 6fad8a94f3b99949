//! Whom this node connects to: every other node, every controller.

use super::links::{Links, Role};
use super::resolver::{Lookup, Resolver};
use crate::net::Conn;
use std::collections::{BTreeMap, BTreeSet};
use types::{ClusterId, Generation, Member, Micros, NodeId, NodeRecord};
use wire::Message;
use wire::hello::{Hello, HelloRole, PROTOCOL, Secret};

/// The shortest and the longest wait before another attempt.
const SHORTEST_RECONNECT_DELAY: Micros = Micros::from_millis(5);
const LONGEST_RECONNECT_DELAY: Micros = Micros::from_millis(100);

/// One place to connect to.
#[derive(Debug)]
struct Target {
    address: String,
    link: Option<u64>,
    retry_at: Micros,
    wait: Micros,
}

impl Target {
    fn new(address: String) -> Target {
        Target { address, link: None, retry_at: Micros::ZERO, wait: SHORTEST_RECONNECT_DELAY }
    }

    fn lost(&mut self, now: Micros) {
        self.link = None;
        self.retry_at = now + self.wait;
        self.wait = Micros(self.wait.0 * 2).min(LONGEST_RECONNECT_DELAY);
    }

    fn dial(&mut self, ways: Ways, role: Role, hello: Hello, now: Micros) {
        let Ways { links, resolver } = ways;
        let conn = match resolver.look_up(&self.address) {
            Lookup::Found(address) => Conn::dial(address).ok(),
            Lookup::NotYet => {
                self.retry_at = now + SHORTEST_RECONNECT_DELAY;
                return;
            }
            Lookup::Unknown => None,
        };
        match conn.and_then(|conn| links.add(conn, role, now)) {
            Some(key) => {
                self.link = Some(key);
                links.push(key, &Message::Hello(hello));
            }
            None => self.lost(now),
        }
    }
}

/// What it takes to connect.
pub struct Ways<'a> {
    /// Where connections are.
    pub links: &'a mut Links,
    /// What names mean.
    pub resolver: &'a mut Resolver,
}

/// The other nodes.
#[derive(Debug, Default)]
pub struct Peers {
    targets: BTreeMap<NodeId, Target>,
    /// Connections whose handshake named this very life.
    ready: BTreeMap<NodeId, (Member, u64)>,
    /// Why nodes did not let us in, until they do.
    refused: BTreeMap<NodeId, String>,
}

impl Peers {
    /// The nodes there are now.
    pub fn set(&mut self, me: NodeId, nodes: &BTreeMap<NodeId, NodeRecord>, links: &mut Links) {
        let wanted = |node: &NodeId| nodes.get(node).map(|record| record.addresses.peer.as_str());
        let stale: Vec<NodeId> = self
            .targets
            .iter()
            .filter(|(node, target)| wanted(node) != Some(target.address.as_str()))
            .map(|(node, _)| *node)
            .collect();
        for node in stale {
            let target = self.targets.remove(&node).expect("just seen");
            self.ready.remove(&node);
            target.link.into_iter().for_each(|key| links.close(key));
        }
        for (node, record) in nodes.iter().filter(|(node, _)| **node != me) {
            self.targets.entry(*node).or_insert_with(|| Target::new(record.addresses.peer.clone()));
        }
    }

    /// Connects to whom it is time to.
    pub fn dial(&mut self, me: Member, cluster: ClusterId, secret: &Secret, ways: Ways, now: Micros) {
        let Ways { links, resolver } = ways;
        for (node, target) in &mut self.targets {
            if target.link.is_none() && now >= target.retry_at && !links.cut_from(*node) {
                let hello = hello(HelloRole::Peer, me, Some(cluster), secret);
                let ways = Ways { links: &mut *links, resolver: &mut *resolver };
                target.dial(ways, Role::Dialing(*node), hello, now);
            }
        }
    }

    /// A connection is welcomed by this life of its node.
    pub fn welcomed(&mut self, key: u64, member: Member) {
        if let Some(target) = self.targets.get_mut(&member.node).filter(|target| target.link == Some(key)) {
            target.wait = SHORTEST_RECONNECT_DELAY;
            self.ready.insert(member.node, (member, key));
            self.refused.remove(&member.node);
        }
    }

    /// True once for each reason for which a node does not let us in.
    pub fn is_first_refusal(&mut self, node: NodeId, why: &str) -> bool {
        let is_known = self.refused.get(&node).is_some_and(|known| known == why);
        if !is_known {
            self.refused.insert(node, why.to_owned());
        }
        !is_known
    }

    /// A connection to this node is gone.
    pub fn lost(&mut self, node: NodeId, key: u64, now: Micros) {
        if let Some(target) = self.targets.get_mut(&node)
            && target.link == Some(key)
        {
            target.lost(now);
            self.ready.remove(&node);
        }
    }

    /// The connection to this very life.
    pub fn to(&self, member: Member) -> Option<u64> {
        self.ready.get(&member.node).filter(|(incarnation, _)| *incarnation == member).map(|(_, key)| *key)
    }
}

/// The controllers.
#[derive(Debug)]
pub struct Controllers {
    targets: Vec<Target>,
    /// Those that let us in, with the generation of their records.
    ready: Vec<Option<Generation>>,
    /// Those that are not listened to, as far as that was said.
    refused: BTreeSet<(usize, Generation)>,
    /// The one that proposals go to, while it answers.
    preferred: usize,
}

impl Controllers {
    /// Those of the configuration.
    pub fn new(addresses: &[String]) -> Controllers {
        let targets: Vec<Target> = addresses.iter().cloned().map(Target::new).collect();
        Controllers { ready: vec![None; targets.len()], refused: BTreeSet::new(), targets, preferred: 0 }
    }

    /// Connects to whom it is time to.
    pub fn dial(&mut self, me: Member, cluster: Option<ClusterId>, secret: &Secret, ways: Ways, now: Micros) {
        let Ways { links, resolver } = ways;
        if links.cut_from_controllers() {
            return;
        }
        for (index, target) in self.targets.iter_mut().enumerate() {
            if target.link.is_none() && now >= target.retry_at {
                let hello = hello(HelloRole::Node, me, cluster, secret);
                let ways = Ways { links: &mut *links, resolver: &mut *resolver };
                target.dial(ways, Role::DialingController(index), hello, now);
            }
        }
    }

    /// A controller lets us in; its connection.
    pub fn welcomed(&mut self, index: usize, generation: Generation) -> Option<u64> {
        let target = &mut self.targets[index];
        target.wait = SHORTEST_RECONNECT_DELAY;
        self.ready[index] = target.link.map(|_| generation);
        target.link
    }

    /// The connections of those of lower generations.
    pub fn below(&self, generation: Generation) -> Vec<u64> {
        let lower = |ready: &Option<Generation>| ready.is_some_and(|theirs| theirs < generation);
        let below = self.targets.iter().zip(&self.ready).filter(|(_, ready)| lower(ready));
        below.filter_map(|(target, _)| target.link).collect()
    }

    /// The addresses of those that let us in.
    pub fn connected(&self) -> Vec<String> {
        let ready = self.targets.iter().zip(&self.ready).filter(|(_, ready)| ready.is_some());
        ready.map(|(target, _)| target.address.clone()).collect()
    }

    /// True once for each generation in which one is not listened to.
    pub fn is_first_refusal(&mut self, index: usize, generation: Generation) -> bool {
        self.refused.insert((index, generation))
    }

    /// A connection to a controller is gone.
    pub fn lost(&mut self, index: usize, key: u64, now: Micros) {
        if self.targets[index].link == Some(key) {
            self.targets[index].lost(now);
            self.ready[index] = None;
        }
    }

    /// The connections of all that let us in.
    pub fn all(&self) -> Vec<u64> {
        let ready = self.targets.iter().zip(&self.ready).filter(|(_, ready)| ready.is_some());
        ready.filter_map(|(target, _)| target.link).collect()
    }

    /// The connection of the one that proposals go to.
    pub fn one(&mut self) -> Option<u64> {
        let count = self.targets.len();
        let index =
            (0..count).map(|n| (self.preferred + n) % count).find(|index| self.ready[*index].is_some())?;
        self.preferred = index;
        self.targets[index].link
    }

    /// The one that proposals went to did not answer: the next one is tried.
    pub fn another(&mut self) {
        self.preferred = (self.preferred + 1) % self.targets.len().max(1);
    }

    /// The address of one.
    pub fn address(&self, index: usize) -> &str {
        &self.targets[index].address
    }
}

fn hello(role: HelloRole, me: Member, cluster: Option<ClusterId>, secret: &Secret) -> Hello {
    let agent = crate::AGENT.into();
    Hello { role, protocol: PROTOCOL, cluster, member: Some(me), secret: secret.said(), agent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pr10_proposals_go_to_the_next_controller_that_let_us_in() {
        let addresses = ["a", "b", "c"].map(String::from);
        let mut controllers = Controllers::new(&addresses);
        assert_eq!(controllers.one(), None);
        for (index, key) in [(0, 10), (2, 12)] {
            controllers.targets[index].link = Some(key);
            assert_eq!(controllers.welcomed(index, Generation::default()), Some(key));
        }
        assert_eq!((controllers.one(), controllers.one()), (Some(10), Some(10)), "it answers");
        controllers.another();
        assert_eq!(controllers.one(), Some(12), "the second one has not let us in");
        controllers.another();
        assert_eq!(controllers.one(), Some(10));
    }

    #[test]
    fn that_a_node_refuses_us_is_said_once_for_each_reason() {
        let mut peers = Peers::default();
        let reasons =
            [(1, "another version"), (1, "another version"), (2, "another version"), (1, "a secret")];
        let said = reasons.map(|(node, why)| peers.is_first_refusal(NodeId(node), why));
        assert_eq!(said, [true, false, true, true]);
    }
}
