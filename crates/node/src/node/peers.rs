//! Whom this node connects to: every other node, every controller. Two nodes share a connection ([`Pair`]).

use super::links::{Links, Role};
use super::pair::{Kind, Pair};
use super::resolver::{Lookup, Resolver};
use crate::net::Conn;
use std::collections::{BTreeMap, BTreeSet};
use types::{ClusterId, Executor, Executors, Generation, Member, Micros, NodeId, NodeRecord};
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

/// Another node.
#[derive(Debug)]
struct Peer {
    target: Target,
    /// How many executors it has, by its record.
    executors: Executors,
    /// The connection that we opened last is for both.
    for_both: bool,
}

/// The other nodes, as one executor of this node is connected to them.
#[derive(Debug)]
pub struct Peers {
    me: Member,
    executor: Executor,
    /// Those in the cluster.
    peers: BTreeMap<NodeId, Peer>,
    /// The connections to them, and to nodes whose records have not been told yet.
    pairs: BTreeMap<NodeId, Pair>,
    /// Why nodes did not let us in, until they do.
    refused: BTreeMap<NodeId, String>,
}

impl Peers {
    /// Connected to nobody yet.
    pub fn new(me: Member, executor: Executor) -> Peers {
        let (peers, pairs, refused) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Peers { me, executor, peers, pairs, refused }
    }

    /// The nodes there are now. Gives the members that were connected before their node was known.
    pub fn set(
        &mut self,
        nodes: &BTreeMap<NodeId, NodeRecord>,
        links: &mut Links,
        now: Micros,
    ) -> Vec<Member> {
        let wanted = |node: &NodeId| nodes.get(node).map(|record| record.addresses.peer.as_str());
        let is_stale = |(node, peer): &(&NodeId, &Peer)| wanted(node) != Some(peer.target.address.as_str());
        let stale: Vec<NodeId> = self.peers.iter().filter(is_stale).map(|(node, _)| *node).collect();
        for node in stale {
            let peer = self.peers.remove(&node).expect("just seen");
            let removed = if nodes.contains_key(&node) { None } else { self.pairs.remove(&node) };
            let keys = removed.iter().flat_map(Pair::keys).chain(peer.target.link);
            keys.for_each(|key| links.close(key));
        }
        let mut connected = Vec::new();
        for (node, record) in nodes.iter().filter(|(node, _)| **node != self.me.node) {
            let is_known = self.peers.contains_key(node);
            let peer = self.peers.entry(*node).or_insert_with(|| Peer {
                target: Target::new(record.addresses.peer.clone()),
                executors: record.executors,
                for_both: false,
            });
            peer.executors = record.executors;
            let pair = pair(&mut self.pairs, self.me, *node, now);
            // It has been let in just now, so it is there.
            if pair.on_record(record.member(), now) && peer.target.link.is_none() {
                (peer.target.retry_at, peer.target.wait) = (now, SHORTEST_RECONNECT_DELAY);
            }
            if !is_known {
                connected.extend(pair.members());
            }
        }
        connected
    }

    /// Connects to whom it is time to, and closes what is not written to any more.
    pub fn dial(&mut self, cluster: ClusterId, secret: &Secret, ways: Ways, now: Micros) {
        let Ways { links, resolver } = ways;
        let Peers { me, executor, peers, pairs, .. } = self;
        for (node, Peer { target, executors, for_both }) in peers {
            // With another count of executors a partition's messages have no connection in common.
            let is_for_both = *executors == executor.all;
            let opens = pairs.get(node).is_none_or(|pair| pair.opens(is_for_both, now));
            if opens && target.link.is_none() && now >= target.retry_at && !links.cut_from(*node) {
                *for_both = is_for_both;
                let role = match is_for_both {
                    true => HelloRole::Pair { executor: executor.number as u8, executors: executor.all },
                    false => HelloRole::Peer,
                };
                let hello = hello(role, *me, Some(cluster), secret);
                let ways = Ways { links: &mut *links, resolver: &mut *resolver };
                target.dial(ways, Role::Dialing(*node), hello, now);
            }
        }
        pairs.values().flat_map(|pair| pair.due(now)).for_each(|key| links.close(key));
    }

    /// A connection that we opened is welcomed by this member. Gives its role; `None`: it is to be closed.
    pub fn welcomed(&mut self, key: u64, member: Member, now: Micros) -> Option<Role> {
        let peer = self.peers.get_mut(&member.node).filter(|peer| peer.target.link == Some(key))?;
        let (kind, role) = match peer.for_both {
            true => (Kind::Ours, Role::Pair(member)),
            false => (Kind::OneWay, Role::PeerOut(member)),
        };
        peer.target.wait = SHORTEST_RECONNECT_DELAY;
        self.refused.remove(&member.node);
        pair(&mut self.pairs, self.me, member.node, now).add(key, member, kind, now).then_some(role)
    }

    /// This member has opened a connection for both. False: it is to be closed.
    pub fn accepted(&mut self, key: u64, member: Member, now: Micros) -> bool {
        pair(&mut self.pairs, self.me, member.node, now).add(key, member, Kind::Theirs, now)
    }

    /// True if this node is in the cluster, as far as is known here.
    pub fn knows(&self, node: NodeId) -> bool {
        self.peers.contains_key(&node)
    }

    /// True once for each reason for which a node does not let us in.
    pub fn is_first_refusal(&mut self, node: NodeId, why: &str) -> bool {
        let is_known = self.refused.get(&node).is_some_and(|known| known == why);
        if !is_known {
            self.refused.insert(node, why.to_owned());
        }
        !is_known
    }

    /// A connection to this node is gone. Gives the member to which another one leads: what was on its way is
    /// to be sent again.
    pub fn lost(&mut self, node: NodeId, key: u64, now: Micros) -> Option<Member> {
        if let Some(peer) = self.peers.get_mut(&node)
            && peer.target.link == Some(key)
        {
            peer.target.lost(now);
        }
        let pair = self.pairs.get_mut(&node)?;
        let again = pair.remove(key, now);
        if pair.is_empty() && !self.peers.contains_key(&node) {
            self.pairs.remove(&node);
        }
        again
    }

    /// The connection to this very member.
    pub fn to(&self, member: Member) -> Option<u64> {
        self.pairs.get(&member.node)?.to(member)
    }
}

/// The connections to a node.
fn pair(pairs: &mut BTreeMap<NodeId, Pair>, me: Member, node: NodeId, now: Micros) -> &mut Pair {
    pairs.entry(node).or_insert_with(|| Pair::new(me.node < node, now))
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
        let executor = Executor { all: Executors::ONE, number: 0 };
        let mut peers = Peers::new(Member::default(), executor);
        let reasons =
            [(1, "another version"), (1, "another version"), (2, "another version"), (1, "a secret")];
        let said = reasons.map(|(node, why)| peers.is_first_refusal(NodeId(node), why));
        assert_eq!(said, [true, false, true, true]);
    }
}
