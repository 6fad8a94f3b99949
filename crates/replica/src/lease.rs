//! Heartbeats, leases and promises (R5, N5, N18): who may serve, and until when.
//!
//! A primary's heartbeat names the partitions it leads, each with the epoch in which its term began. A node
//! that answers promises, for the grace time from now by its own clock, to serve nothing newer for them. The
//! primary's lease counts from *sending* the heartbeat that was answered. Both are per partition (PR-05), and
//! a process's start counts as an answer that it may have forgotten (PR-06).
//!
//! [`LeaseManager`] is pure. A node runs it on a thread of its own, so that neither a busy executor nor a
//! slow disk delays it (PR-65); the executor reaches it through [`Leases`].

use crate::settings::Settings;
use std::collections::{BTreeMap, VecDeque};
use types::{Member, Micros, NodeId, PartitionId, Rules, Term};
use wire::peer::{Heartbeat, HeartbeatAnswer};

/// What replicas ask and tell about leases. `mono` times are the caller's own clock.
pub trait Leases {
    /// Until when `by` has promised to serve nothing newer than this term of ours; zero: no promise.
    fn held_until(&self, partition: PartitionId, term: Term, by: Member) -> Micros;
    /// When this member last answered a heartbeat of ours; zero: never.
    fn answered_at(&self, by: Member) -> Micros;
    /// Since when this node has listened without a gap: another node's silence is its own only from then on.
    /// A node that does not listen now has listened since `now` at the earliest. No promise depends on it,
    /// only who is suspected or evicted (F18).
    fn listening_since(&self, now: Micros) -> Micros;
    /// When this member last named the partition as its own, in a heartbeat; zero: never.
    fn heard_at(&self, partition: PartitionId, from: Member) -> Micros;
    /// Until when a promise that we gave for a term before `term` binds us.
    fn promised_until(&self, partition: PartitionId, term: Term) -> Micros;
    /// From now on promise nothing about terms before this one.
    fn know(&mut self, partition: PartitionId, term: Term);
    /// Name this partition in our heartbeats, or no more (`None`).
    fn lead(&mut self, partition: PartitionId, term: Option<Term>);
}

/// What is known of another node's present life.
#[derive(Clone, Debug)]
struct Peer {
    member: Member,
    /// Heartbeats sent and not answered yet, with what they named.
    sent: VecDeque<(Micros, Vec<(PartitionId, Term)>)>,
    /// When its newest answer came.
    answered_at: Micros,
    /// Per partition that we lead: the term it promised for, and when the heartbeat was sent.
    granted: BTreeMap<PartitionId, (Term, Micros)>,
    /// Per partition that it leads: the term, and when its newest heartbeat came.
    heard: BTreeMap<PartitionId, (Term, Micros)>,
}

/// The state behind a node's heartbeats. `R` is [`types::Rules::ALL`] outside the simulator.
#[derive(Clone, Debug)]
pub struct LeaseManager {
    me: Member,
    started_at: Micros,
    lease: Micros,
    grace: Micros,
    /// An absence that other nodes' silence could be mistaken for.
    gap: Micros,
    /// When the beat last had its turn, if its driver tells, and since when it has had one all the time.
    turned: Option<Micros>,
    steady_since: Micros,
    rules: Rules,
    peers: BTreeMap<NodeId, Peer>,
    leads: BTreeMap<PartitionId, Term>,
    known: BTreeMap<PartitionId, Term>,
    /// Promises given: per partition the term and when, for the newest two terms.
    promised: BTreeMap<PartitionId, Vec<(Term, Micros)>>,
}

/// Heartbeats that may be on the way to one node at a time; older ones are forgotten, which only shortens
/// leases.
const MAX_SENT: usize = 64;

impl LeaseManager {
    /// A beat for this life of this node, which started now.
    pub fn new(me: Member, settings: &Settings, now: Micros) -> LeaseManager {
        LeaseManager {
            me,
            started_at: now,
            lease: settings.lease,
            grace: settings.grace,
            gap: Micros(settings.suspect.0 / 2),
            turned: None,
            steady_since: now,
            rules: settings.rules,
            peers: BTreeMap::new(),
            leads: BTreeMap::new(),
            known: BTreeMap::new(),
            promised: BTreeMap::new(),
        }
    }

    /// The beat has its turn. Its driver says so whenever it looks around, at least once in every heartbeat
    /// interval, unless the machine does not let it run.
    pub fn turn(&mut self, now: Micros) {
        if self.turned.is_some_and(|before| now.since(before) > self.gap) {
            self.steady_since = now;
        }
        self.turned = Some(now);
    }

    /// The heartbeat to send to this node now; `vouch` says for which partitions the executor and the disk
    /// are alive.
    pub fn heartbeat(&mut self, now: Micros, to: Member, vouch: impl Fn(PartitionId) -> bool) -> Heartbeat {
        let leads: Vec<_> = self.leads.iter().filter(|(p, _)| vouch(**p)).map(|(p, e)| (*p, *e)).collect();
        let peer = self.peer(to);
        peer.sent.push_back((now, leads.clone()));
        if peer.sent.len() > MAX_SENT {
            peer.sent.pop_front();
        }
        Heartbeat { from: self.me, sent_us: now.0, leads }
    }

    /// Takes a heartbeat in and answers it.
    pub fn on_heartbeat(&mut self, now: Micros, heartbeat: &Heartbeat) -> HeartbeatAnswer {
        let mut except = Vec::new();
        for &(partition, term) in &heartbeat.leads {
            let newer = self.known.get(&partition).is_some_and(|known| *known > term);
            if newer {
                except.push(partition);
                continue;
            }
            let given = self.promised.entry(partition).or_default();
            assert!(given.iter().all(|(_, at)| *at <= now), "N5: {partition} was promised in the future");
            given.retain(|(other, _)| *other != term);
            given.push((term, now));
            if given.len() > 2 {
                given.remove(0);
            }
        }
        let peer = self.peer(heartbeat.from);
        for &(partition, term) in &heartbeat.leads {
            peer.heard.insert(partition, (term, now));
        }
        if !self.rules.answers_except_what_is_sealed() {
            except.clear();
        }
        HeartbeatAnswer { from: self.me, to: heartbeat.from, echo_us: heartbeat.sent_us, except }
    }

    /// Takes an answer in: leases now count from when the answered heartbeat was sent.
    pub fn on_answer(&mut self, now: Micros, answer: &HeartbeatAnswer) {
        if answer.to != self.me {
            return;
        }
        let peer = self.peer(answer.from);
        let Some(at) = peer.sent.iter().position(|(sent, _)| sent.0 == answer.echo_us) else { return };
        let (sent, named) = peer.sent[at].clone();
        assert!(sent <= now, "N5: a lease would count from {sent:?}, and it is {now:?}");
        peer.sent.drain(..=at);
        peer.answered_at = now;
        for (partition, term) in named {
            if answer.except.contains(&partition) {
                peer.granted.remove(&partition);
            } else {
                peer.granted.insert(partition, (term, sent));
            }
        }
    }

    /// What this node knows of that one: a new life starts from nothing.
    fn peer(&mut self, member: Member) -> &mut Peer {
        let fresh = Peer {
            member,
            sent: VecDeque::new(),
            answered_at: Micros::ZERO,
            granted: BTreeMap::new(),
            heard: BTreeMap::new(),
        };
        let peer = self.peers.entry(member.node).or_insert_with(|| fresh.clone());
        if peer.member.incarnation < member.incarnation || peer.member.store != member.store {
            *peer = fresh;
        }
        peer
    }

    fn known_peer(&self, member: Member) -> Option<&Peer> {
        self.peers.get(&member.node).filter(|peer| peer.member == member)
    }

    /// Every node heard, with when it was: its newest heartbeat or answer.
    pub fn heard_nodes(&self) -> Vec<(NodeId, Micros)> {
        let newest = |peer: &Peer| {
            let heartbeats = peer.heard.values().map(|(_, at)| *at).max().unwrap_or(Micros::ZERO);
            heartbeats.max(peer.answered_at)
        };
        self.peers.iter().map(|(node, peer)| (*node, newest(peer))).collect()
    }
}

impl Leases for LeaseManager {
    fn held_until(&self, partition: PartitionId, term: Term, by: Member) -> Micros {
        let granted = self.known_peer(by).and_then(|peer| peer.granted.get(&partition));
        match granted {
            Some((of, sent)) if *of == term => *sent + self.lease,
            _ => Micros::ZERO,
        }
    }

    fn answered_at(&self, by: Member) -> Micros {
        self.known_peer(by).map_or(Micros::ZERO, |peer| peer.answered_at)
    }

    fn listening_since(&self, now: Micros) -> Micros {
        match self.turned {
            Some(turned) if now.since(turned) > self.gap => now,
            Some(_) => self.steady_since,
            None => Micros::ZERO,
        }
    }

    fn heard_at(&self, partition: PartitionId, from: Member) -> Micros {
        let heard = self.known_peer(from).and_then(|peer| peer.heard.get(&partition));
        heard.map_or(Micros::ZERO, |(_, at)| *at)
    }

    fn promised_until(&self, partition: PartitionId, term: Term) -> Micros {
        let given = self.promised.get(&partition).into_iter().flatten();
        let newest = given.filter(|(of, _)| *of < term).map(|(_, at)| *at).max();
        let forgotten =
            if self.rules.promises_are_waited_for() { self.started_at + self.grace } else { Micros::ZERO };
        newest.map_or(forgotten, |at| (at + self.grace).max(forgotten))
    }

    fn know(&mut self, partition: PartitionId, term: Term) {
        let known = self.known.entry(partition).or_insert(term);
        *known = (*known).max(term);
    }

    fn lead(&mut self, partition: PartitionId, term: Option<Term>) {
        match term {
            Some(term) => drop(self.leads.insert(partition, term)),
            None => drop(self.leads.remove(&partition)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, StoreId};

    const P: PartitionId = PartitionId(64);

    fn member(node: u32, incarnation: u64) -> Member {
        Member { node: NodeId(node), store: StoreId(u64::from(node)), incarnation: Incarnation(incarnation) }
    }

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    fn pair() -> (LeaseManager, LeaseManager) {
        let settings = Settings::default();
        let mut primary = LeaseManager::new(member(1, 1), &settings, ms(0));
        primary.lead(P, Some(Term(3)));
        (primary, LeaseManager::new(member(2, 1), &settings, ms(0)))
    }

    #[test]
    fn n5_the_lease_counts_from_sending_and_the_promise_from_receipt() {
        let (mut primary, mut backup) = pair();
        let heartbeat = primary.heartbeat(ms(1000), member(2, 1), |_| true);
        let answer = backup.on_heartbeat(ms(1010), &heartbeat);
        primary.on_answer(ms(1100), &answer);
        assert_eq!(primary.held_until(P, Term(3), member(2, 1)), ms(1150));
        assert_eq!(backup.promised_until(P, Term(4)), ms(1190));
        assert_eq!(backup.heard_at(P, member(1, 1)), ms(1010));
    }

    #[test]
    fn pr05_an_answer_does_not_renew_what_is_sealed() {
        let (mut primary, mut backup) = pair();
        backup.know(P, Term(4));
        let heartbeat = primary.heartbeat(ms(1000), member(2, 1), |_| true);
        let answer = backup.on_heartbeat(ms(1001), &heartbeat);
        assert_eq!(answer.except, vec![P]);
        primary.on_answer(ms(1002), &answer);
        assert_eq!(primary.held_until(P, Term(3), member(2, 1)), ms(0));
        assert_eq!(backup.promised_until(P, Term(4)), ms(180), "only its own start binds it");
    }

    #[test]
    fn pr06_a_start_counts_as_an_answer() {
        let backup = LeaseManager::new(member(2, 2), &Settings::default(), ms(5000));
        assert_eq!(backup.promised_until(P, Term(9)), ms(5180));
    }

    #[test]
    fn another_incarnation_does_not_inherit_a_promise() {
        let (mut primary, mut backup) = pair();
        let heartbeat = primary.heartbeat(ms(1000), member(2, 1), |_| true);
        let answer = backup.on_heartbeat(ms(1001), &heartbeat);
        primary.on_answer(ms(1002), &answer);
        primary.heartbeat(ms(1020), member(2, 2), |_| true);
        assert_eq!(primary.held_until(P, Term(3), member(2, 1)), ms(0));
        assert_eq!(primary.held_until(P, Term(3), member(2, 2)), ms(0));
    }

    #[test]
    fn f18_who_did_not_listen_takes_nobody_for_silent() {
        let (mut lease_manager, _) = pair();
        (1000..1200).step_by(20).for_each(|at| lease_manager.turn(ms(at)));
        assert_eq!(lease_manager.listening_since(ms(1200)), ms(0));
        assert_eq!(lease_manager.listening_since(ms(1300)), ms(1300), "it is away now");
        lease_manager.turn(ms(1300));
        assert_eq!(lease_manager.listening_since(ms(1301)), ms(1300), "it was away until now");
        (1320..1440).step_by(20).for_each(|at| lease_manager.turn(ms(at)));
        assert_eq!(lease_manager.listening_since(ms(1440)), ms(1300));
    }

    #[test]
    fn a_partition_that_is_not_vouched_for_is_not_named() {
        let (mut primary, mut backup) = pair();
        let heartbeat = primary.heartbeat(ms(1000), member(2, 1), |_| false);
        backup.on_heartbeat(ms(1001), &heartbeat);
        assert_eq!(backup.heard_at(P, member(1, 1)), ms(0));
    }
}
