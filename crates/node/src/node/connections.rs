//! Whom an executor talks to: clients, other nodes, and the other executors of this one; the coordinator also
//! to controllers, and by a thread of its own to the heartbeats of other nodes.
//!
//! Messages are queued here and written at the end of the turn. Nothing here knows what a message does to a
//! replica.

use super::heartbeat_targets::HeartbeatTargets;
use super::links::{Closed, Links, Role};
use super::mailbox::{Handed, Others};
use super::peers::{Controllers, Peers, Ways};
use super::resolver::Resolver;
use crate::clock;
use crate::lease_manager::{HeartbeatThread, SharedLeases};
use crate::metrics::Metrics;
use crate::net::{Cut, owner_of};
use replica::{ClientRef, Leases};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::{ClusterId, Generation, Member, Micros, NodeId, NodeRecord, PartitionId, Term};
use wire::control::{Propose, Suspect};
use wire::hello::Secret;
use wire::{Message, PeerMessage, Reply};

/// A proposal that comes again within this time was not answered.
const SAME_PROPOSAL: Micros = Micros::from_millis(1000);

/// What a node needs to know to talk to others.
pub struct Who {
    /// The node.
    pub me: Member,
    /// What everyone who connects must know.
    pub secret: Secret,
    /// After how long a silence a primary is missed ([`replica::Settings::suspect`]).
    pub suspect: Micros,
}

/// Checksums of proposals that are not answered, and when they were made.
#[derive(Debug, Default)]
struct Unanswered(BTreeMap<u32, Micros>);

impl Unanswered {
    /// Something is proposed. True if the same was a short time ago: then whoever it went to may stand still.
    fn comes_again(&mut self, propose: &Propose, now: Micros) -> bool {
        self.0.retain(|_, at| now.since(*at) < SAME_PROPOSAL);
        self.0.insert(crc32c::crc32c(propose.record.0.as_bytes()), now).is_some()
    }
}

/// All that an executor is connected to.
pub struct Connections {
    who: Who,
    links: Links,
    peers: Peers,
    controllers: Controllers,
    resolver: Resolver,
    /// Those of the node: the coordinator has them.
    heartbeats: Option<HeartbeatThread>,
    heartbeat_targets: HeartbeatTargets,
    leases: SharedLeases,
    proposals: Unanswered,
    metrics: Arc<Metrics>,
    others: Others,
    /// The executor behind this one makes no progress.
    next_hangs: bool,
}

impl Connections {
    /// Connected to nobody yet. Only the coordinator has controllers and heartbeats.
    pub fn new(
        who: Who,
        links: Links,
        controllers: Controllers,
        (heartbeats, leases): (Option<HeartbeatThread>, SharedLeases),
        metrics: Arc<Metrics>,
        others: Others,
    ) -> Connections {
        Connections {
            peers: Peers::new(who.me, others.me()),
            who,
            links,
            controllers,
            resolver: Resolver::default(),
            heartbeats,
            heartbeat_targets: HeartbeatTargets::default(),
            leases,
            proposals: Unanswered::default(),
            metrics,
            others,
            next_hangs: false,
        }
    }

    /// The other executors of this node.
    pub fn others(&self) -> &Others {
        &self.others
    }

    /// The connections themselves.
    pub fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// True if who says this may come in.
    pub fn admits(&self, secret: Option<&str>) -> bool {
        self.who.secret.admits(secret)
    }

    /// Whom there is to connect to is tried again where it is time to, and handshakes that take too long are
    /// closed.
    pub fn tick(&mut self, cluster: Option<ClusterId>, now: Micros) {
        let Connections { who, links, controllers, peers, resolver, .. } = self;
        links.tidy(now);
        let ways = Ways { links: &mut *links, resolver: &mut *resolver };
        controllers.dial(who.me, cluster, &who.secret, ways, now);
        if let Some(cluster) = cluster {
            peers.dial(cluster, &who.secret, Ways { links, resolver }, now);
            if let Some(heartbeats) = &self.heartbeats
                && self.heartbeat_targets.resolve(&mut self.resolver)
            {
                heartbeats.set_nodes(cluster, self.heartbeat_targets.found());
            }
        }
        if !self.others.is_alone() {
            self.look_at_next(now);
        }
    }

    /// Tells the other executors of controllers, and looks whether the one behind this one goes on (PR-395).
    fn look_at_next(&mut self, now: Micros) {
        if self.others.me().is_coordinator() {
            self.others.note_controller(self.has_controller());
        }
        let next = self.others.next();
        let hangs = self.hangs(next, now) > Micros::ZERO;
        if hangs && !self.next_hangs {
            self.metrics.executor_hangs.fetch_add(1, Ordering::Relaxed);
            let node = self.who.me.node.0;
            match next == self.others.me().all.coordinator() {
                true => eprintln!(
                    "the coordinator of node {node} has done nothing for half a second: nobody new is let in, and no controller \
                     hears of this node, until it goes on"
                ),
                false => eprintln!(
                    "executor {next} of node {node} has done nothing for half a second: nothing that it leads is vouched for until \
                     it goes on"
                ),
            }
        }
        self.next_hangs = hangs;
    }

    /// The nodes that are in the cluster now. To connect to them it must be known which cluster that is.
    /// Gives the members that were connected before their node was known.
    pub fn set_nodes(
        &mut self,
        nodes: &BTreeMap<NodeId, NodeRecord>,
        cluster: Option<ClusterId>,
        now: Micros,
    ) -> Vec<Member> {
        let connected = match self.others.me().has_partitions() {
            true => self.peers.set(nodes, &mut self.links, now),
            false => Vec::new(),
        };
        let Some(cluster) = cluster else { return connected };
        let ways = Ways { links: &mut self.links, resolver: &mut self.resolver };
        self.peers.dial(cluster, &self.who.secret, ways, now);
        let Some(heartbeats) = &self.heartbeats else { return connected };
        let others = nodes.iter().filter(|(node, _)| **node != self.who.me.node);
        let wanted = others.map(|(node, record)| (*node, record.addresses.heartbeat.clone()));
        self.heartbeat_targets.set(wanted.collect());
        self.heartbeat_targets.resolve(&mut self.resolver);
        heartbeats.set_nodes(cluster, self.heartbeat_targets.found());
        connected
    }

    /// This life of a node lets us in. False: the connection is closed, as a newer one is known (PR-516).
    pub fn peer_welcomes(&mut self, key: u64, member: Member, now: Micros) -> bool {
        let role = self.peers.welcomed(key, member, now);
        match role {
            Some(role) => self.links.set_role(key, role, now),
            None => self.links.close(key),
        }
        role.is_some()
    }

    /// This life of a node is let in, on a connection for both. False: the connection is closed, as a newer
    /// one is known (PR-516).
    pub fn pairs_with(&mut self, key: u64, member: Member, now: Micros) -> bool {
        let is_let_in = self.peers.accepted(key, member, now);
        if !is_let_in {
            self.links.close(key);
        }
        is_let_in
    }

    /// A node does not let us in, perhaps as it is of another version. Each executor is refused: the first
    /// one says so, once for each reason.
    pub fn peer_refuses(&mut self, key: u64, node: NodeId, why: &str) {
        if self.peers.is_first_refusal(node, why) && self.others.me().number == 0 {
            eprintln!("{node} does not let {} in: {why}", self.who.me.node);
        }
        self.links.close(key);
    }

    /// True if this node is in the cluster, as far as is known here.
    pub fn knows(&self, node: NodeId) -> bool {
        self.peers.knows(node)
    }

    /// A controller of this generation lets us in.
    pub fn controller_welcomes(&mut self, key: u64, index: usize, generation: Generation, now: Micros) {
        self.links.set_role(key, Role::Controller(index), now);
        self.controllers.welcomed(index, generation);
    }

    /// Connections to controllers of lower generations.
    pub fn controllers_below(&self, generation: Generation) -> Vec<u64> {
        self.controllers.below(generation)
    }

    /// The addresses of the controllers that let us in.
    pub fn connected_controllers(&self) -> Vec<String> {
        self.controllers.connected()
    }

    /// True once for each generation in which this controller is not listened to.
    pub fn is_first_refusal(&mut self, index: usize, generation: Generation) -> bool {
        self.controllers.is_first_refusal(index, generation)
    }

    /// The address of a controller, by its place in the configuration.
    pub fn controller_address(&self, index: usize) -> &str {
        self.controllers.address(index)
    }

    /// True if some controller lets this node in.
    pub fn has_controller(&self) -> bool {
        match self.others.me().is_coordinator() {
            true => !self.controllers.all().is_empty(),
            false => self.others.has_controller(),
        }
    }

    /// Queues a message for whoever is at the other end.
    pub fn push(&mut self, key: u64, message: &Message) {
        self.links.push(key, message);
    }

    /// To another replica. Lost if that life of that node is not connected.
    pub fn send(&mut self, to: Member, message: PeerMessage) {
        if let Some(key) = self.peers.to(to) {
            if let PeerMessage::Chunk(chunk) = &message {
                self.metrics.ship_sent.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
            }
            self.links.push(key, &Message::from(message));
        }
    }

    /// To a client, before `valid_until` and not later (F01). Its connection may be another executor's, which
    /// compares the time when the bytes leave.
    pub fn reply(&mut self, to: ClientRef, reply: Reply, valid_until: Option<Micros>) {
        let owner = usize::from(owner_of(to.connection));
        match owner == self.others.me().number {
            true => self.links.reply(to.connection, reply, valid_until),
            false => self.others.give(owner, Handed::Reply { to, reply: Box::new(reply), valid_until }),
        }
    }

    /// To one controller; to another one if the same is proposed again without an answer.
    pub fn propose(&mut self, propose: Propose, now: Micros) {
        if !self.others.me().is_coordinator() {
            return drop(self.others.offer_coordinator(Handed::Propose(Box::new(propose))));
        }
        if self.proposals.comes_again(&propose, now) {
            self.controllers.another();
        }
        self.tell(&Message::Propose(propose));
    }

    /// A controller answered a proposal.
    pub fn proposal_answered(&mut self) {
        self.proposals = Unanswered::default();
    }

    /// To every controller that is there. A node that the machine did not let listen knows nothing of the
    /// others; it is asked again soon.
    pub fn suspect(&mut self, suspect: Suspect) {
        let now = clock::mono();
        if now.since(self.leases.listening_since(now)) >= self.who.suspect {
            self.tell_all(&Message::Suspect(suspect));
        }
    }

    /// To one controller. Who is not heard, because none is there or because it dies with the message, says
    /// it again when the node registers.
    pub fn tell(&mut self, message: &Message) {
        if !self.others.me().is_coordinator() {
            return self.others.give_coordinator(Handed::Tell(Box::new(message.clone())));
        }
        if let Some(key) = self.controllers.one() {
            self.links.push(key, message);
        }
    }

    /// To every controller that is there: something that is said again.
    pub fn tell_all(&mut self, message: &Message) {
        if !self.others.me().is_coordinator() {
            return drop(self.others.offer_coordinator(Handed::TellAll(Box::new(message.clone()))));
        }
        for key in self.controllers.all() {
            self.links.push(key, message);
        }
    }

    /// Notes which connections are gone, so that they are made again. Gives those of clients, and the members
    /// to which other connections lead: what was on its way to them is to be sent again (PR-517).
    pub fn note_closed(&mut self, now: Micros) -> (Vec<Closed>, Vec<Member>) {
        let (mut clients, mut members) = (Vec::new(), Vec::new());
        for closed in self.links.take_closed() {
            let Closed { key, role, .. } = closed;
            match role {
                Role::Dialing(node)
                | Role::PeerOut(Member { node, .. })
                | Role::Pair(Member { node, .. }) => members.extend(self.peers.lost(node, key, now)),
                Role::Controller(index) | Role::DialingController(index) => {
                    self.controllers.lost(index, key, now);
                }
                Role::Client => clients.push(closed),
                Role::New(_) | Role::Operator | Role::PeerIn(_) | Role::Refused => {}
            }
        }
        (clients, members)
    }

    /// A cut is in force for everything that is read from now on.
    pub fn set_cut(&mut self, cut: Cut) {
        self.links.set_cut(cut);
    }

    /// Heartbeats say that this node leads a partition in this term, or does not.
    pub fn lead(&mut self, partition: PartitionId, term: Option<Term>) {
        self.leases.lead(partition, term);
    }

    /// The nodes that were heard, and how many microseconds ago.
    pub fn hears(&self, now: Micros) -> Vec<(NodeId, u64)> {
        let heard = self.leases.heard_nodes().into_iter().filter(|(_, at)| *at > Micros::ZERO);
        heard.map(|(node, at)| (node, now.since(at).0)).collect()
    }

    /// For how long the executor with this number has done nothing, if it hangs; zero: it goes on.
    pub fn hangs(&self, executor: usize, now: Micros) -> Micros {
        self.leases.pulses().of(executor).silence(now)
    }

    /// The executors that hang, by their numbers.
    pub fn hung(&self, now: Micros) -> impl Iterator<Item = usize> {
        let all = 0..self.others.me().all.threads();
        all.filter(move |number| self.hangs(*number, now) > Micros::ZERO)
    }

    /// How many connections this executor has.
    pub fn count(&self) -> usize {
        self.links.count()
    }

    /// A sign of life of the executor, for heartbeats to vouch by: when the oldest write to a disk that is
    /// pending began.
    pub fn alive(&self, now: Micros, pending: Option<Micros>) {
        self.leases.pulses().of(self.others.me().number).leave(now, pending);
    }

    /// The executor ends, and with the coordinator the node: nobody is promised anything any more, and what
    /// waits to be written is.
    pub fn end(self) {
        let Connections { heartbeats, mut links, .. } = self;
        drop(heartbeats);
        links.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;
    use wire::RecordText;

    #[test]
    fn pr10_what_is_proposed_again_soon_was_not_answered() {
        let propose = |text: &str| Propose { expected: Epoch(3), record: RecordText(text.into()) };
        let mut unanswered = Unanswered::default();
        let began = Micros(7);
        assert!(!unanswered.comes_again(&propose("a"), began));
        assert!(!unanswered.comes_again(&propose("b"), began), "that is another one");
        let soon = Micros(6) + SAME_PROPOSAL;
        assert!(unanswered.comes_again(&propose("a"), soon), "another controller is asked");
        let late = soon + SAME_PROPOSAL;
        assert!(!unanswered.comes_again(&propose("a"), late), "that was answered, and is wanted once more");
    }
}
