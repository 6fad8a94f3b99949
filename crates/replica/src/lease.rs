//! Beacons, leases and promises (R5, N5, N18): who may serve, and until when.
//!
//! A primary's beacon names the partitions it leads, each with the epoch in which its reign began. A node that answers
//! promises, for the grace time from now by its own clock, to serve nothing newer for them. The primary's lease counts from
//! *sending* the beacon that was answered. Both are per partition (PR-05), and a process's start counts as an answer that
//! it may have forgotten (PR-06).
//!
//! [`Beat`] is pure. A node runs it on a thread of its own, so that neither a busy executor nor a slow disk delays it
//! (PR-65); the executor reaches it through [`Leases`].

use crate::settings::Settings;
use std::collections::{BTreeMap, VecDeque};
use types::{Epoch, Finding, Member, Micros, NodeId, PartitionId, Remedy};
use wire::peer::{Beacon, BeaconAnswer};

/// What replicas ask and tell about leases. `mono` times are the caller's own clock.
pub trait Leases {
    /// Until when `by` has promised to serve nothing newer than this reign of ours; zero: no promise.
    fn held_until(&self, partition: PartitionId, reign: Epoch, by: Member) -> Micros;
    /// When this member last answered a beacon of ours; zero: never.
    fn answered_at(&self, by: Member) -> Micros;
    /// Since when this node has listened without a gap: another node's silence is its own only from then on. A node that
    /// does not listen now has listened since `now` at the earliest. No promise depends on it, only who is suspected or
    /// evicted (F18).
    fn listening_since(&self, now: Micros) -> Micros;
    /// When this member last named the partition as its own, in a beacon; zero: never.
    fn heard_at(&self, partition: PartitionId, from: Member) -> Micros;
    /// Until when a promise that we gave for a reign before `reign` binds us.
    fn promised_until(&self, partition: PartitionId, reign: Epoch) -> Micros;
    /// From now on promise nothing about reigns before this one.
    fn know(&mut self, partition: PartitionId, reign: Epoch);
    /// Name this partition in our beacons, or no more (`None`).
    fn lead(&mut self, partition: PartitionId, reign: Option<Epoch>);
}

/// What is known of another node's present life.
#[derive(Clone, Debug)]
struct Peer {
    member: Member,
    /// Beacons sent and not answered yet, with what they named.
    sent: VecDeque<(Micros, Vec<(PartitionId, Epoch)>)>,
    /// When its newest answer came.
    answered_at: Micros,
    /// Per partition that we lead: the reign it promised for, and when the beacon was sent.
    granted: BTreeMap<PartitionId, (Epoch, Micros)>,
    /// Per partition that it leads: the reign, and when its newest beacon came.
    heard: BTreeMap<PartitionId, (Epoch, Micros)>,
}

/// The state behind a node's beacons. `R` is [`types::Sound`] outside the simulator.
#[derive(Clone, Debug)]
pub struct Beat<R> {
    me: Member,
    started_at: Micros,
    lease: Micros,
    grace: Micros,
    /// An absence that other nodes' silence could be mistaken for.
    gap: Micros,
    /// When the beat last had its turn, if its driver tells, and since when it has had one all the time.
    turned: Option<Micros>,
    steady_since: Micros,
    remedy: R,
    peers: BTreeMap<NodeId, Peer>,
    leads: BTreeMap<PartitionId, Epoch>,
    known: BTreeMap<PartitionId, Epoch>,
    /// Promises given: per partition the reign and when, for the newest two reigns.
    promised: BTreeMap<PartitionId, Vec<(Epoch, Micros)>>,
}

/// Beacons that may be on the way to one node at a time; older ones are forgotten, which only shortens leases.
const MAX_SENT: usize = 64;

impl<R: Remedy> Beat<R> {
    /// A beat for this life of this node, which started now.
    pub fn new(me: Member, settings: &Settings, now: Micros, remedy: R) -> Beat<R> {
        Beat {
            me,
            started_at: now,
            lease: settings.lease,
            grace: settings.grace,
            gap: Micros(settings.suspect.0 / 2),
            turned: None,
            steady_since: now,
            remedy,
            peers: BTreeMap::new(),
            leads: BTreeMap::new(),
            known: BTreeMap::new(),
            promised: BTreeMap::new(),
        }
    }

    /// The beat has its turn. Its driver says so whenever it looks around, at least once in every beacon interval, unless
    /// the machine does not let it run.
    pub fn turn(&mut self, now: Micros) {
        if self.turned.is_some_and(|before| now.since(before) > self.gap) {
            self.steady_since = now;
        }
        self.turned = Some(now);
    }

    /// The beacon to send to this node now; `vouch` says for which partitions the executor and the disk are alive.
    pub fn beacon(&mut self, now: Micros, to: Member, vouch: impl Fn(PartitionId) -> bool) -> Beacon {
        let leads: Vec<_> = self.leads.iter().filter(|(p, _)| vouch(**p)).map(|(p, e)| (*p, *e)).collect();
        let peer = self.peer(to);
        peer.sent.push_back((now, leads.clone()));
        if peer.sent.len() > MAX_SENT {
            peer.sent.pop_front();
        }
        Beacon { from: self.me, sent_us: now.0, leads }
    }

    /// Takes a beacon in and answers it.
    pub fn on_beacon(&mut self, now: Micros, beacon: &Beacon) -> BeaconAnswer {
        let mut except = Vec::new();
        for &(partition, reign) in &beacon.leads {
            let newer = self.known.get(&partition).is_some_and(|known| *known > reign);
            if newer {
                except.push(partition);
                continue;
            }
            let given = self.promised.entry(partition).or_default();
            given.retain(|(other, _)| *other != reign);
            given.push((reign, now));
            if given.len() > 2 {
                given.remove(0);
            }
        }
        let peer = self.peer(beacon.from);
        for &(partition, reign) in &beacon.leads {
            peer.heard.insert(partition, (reign, now));
        }
        if !self.remedy.has(Finding::Pr05) {
            except.clear();
        }
        BeaconAnswer { from: self.me, to: beacon.from, echo_us: beacon.sent_us, except }
    }

    /// Takes an answer in: leases now count from when the answered beacon was sent.
    pub fn on_answer(&mut self, now: Micros, answer: &BeaconAnswer) {
        if answer.to != self.me {
            return;
        }
        let peer = self.peer(answer.from);
        let Some(at) = peer.sent.iter().position(|(sent, _)| sent.0 == answer.echo_us) else { return };
        let (sent, named) = peer.sent[at].clone();
        peer.sent.drain(..=at);
        peer.answered_at = now;
        for (partition, reign) in named {
            if answer.except.contains(&partition) {
                peer.granted.remove(&partition);
            } else {
                peer.granted.insert(partition, (reign, sent));
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

    /// Every node heard, with when it was: its newest beacon or answer.
    pub fn heard_nodes(&self) -> Vec<(NodeId, Micros)> {
        let newest = |peer: &Peer| {
            let beacons = peer.heard.values().map(|(_, at)| *at).max().unwrap_or(Micros::ZERO);
            beacons.max(peer.answered_at)
        };
        self.peers.iter().map(|(node, peer)| (*node, newest(peer))).collect()
    }
}

impl<R: Remedy> Leases for Beat<R> {
    fn held_until(&self, partition: PartitionId, reign: Epoch, by: Member) -> Micros {
        let granted = self.known_peer(by).and_then(|peer| peer.granted.get(&partition));
        match granted {
            Some((of, sent)) if *of == reign => *sent + self.lease,
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

    fn promised_until(&self, partition: PartitionId, reign: Epoch) -> Micros {
        let given = self.promised.get(&partition).into_iter().flatten();
        let newest = given.filter(|(of, _)| *of < reign).map(|(_, at)| *at).max();
        let forgotten =
            if self.remedy.has(Finding::Pr06) { self.started_at + self.grace } else { Micros::ZERO };
        newest.map_or(forgotten, |at| (at + self.grace).max(forgotten))
    }

    fn know(&mut self, partition: PartitionId, reign: Epoch) {
        let known = self.known.entry(partition).or_insert(reign);
        *known = (*known).max(reign);
    }

    fn lead(&mut self, partition: PartitionId, reign: Option<Epoch>) {
        match reign {
            Some(reign) => drop(self.leads.insert(partition, reign)),
            None => drop(self.leads.remove(&partition)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, Sound, StoreId};

    const P: PartitionId = PartitionId(64);

    fn member(node: u32, life: u64) -> Member {
        Member { node: NodeId(node), store: StoreId(u64::from(node)), incarnation: Incarnation(life) }
    }

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    fn pair() -> (Beat<Sound>, Beat<Sound>) {
        let settings = Settings::default();
        let mut primary = Beat::new(member(1, 1), &settings, ms(0), Sound);
        primary.lead(P, Some(Epoch(3)));
        (primary, Beat::new(member(2, 1), &settings, ms(0), Sound))
    }

    #[test]
    fn n5_the_lease_counts_from_sending_and_the_promise_from_receipt() {
        let (mut primary, mut backup) = pair();
        let beacon = primary.beacon(ms(1000), member(2, 1), |_| true);
        let answer = backup.on_beacon(ms(1010), &beacon);
        primary.on_answer(ms(1100), &answer);
        assert_eq!(primary.held_until(P, Epoch(3), member(2, 1)), ms(1150));
        assert_eq!(backup.promised_until(P, Epoch(4)), ms(1190));
        assert_eq!(backup.heard_at(P, member(1, 1)), ms(1010));
    }

    #[test]
    fn pr05_an_answer_does_not_renew_what_is_sealed() {
        let (mut primary, mut backup) = pair();
        backup.know(P, Epoch(4));
        let beacon = primary.beacon(ms(1000), member(2, 1), |_| true);
        let answer = backup.on_beacon(ms(1001), &beacon);
        assert_eq!(answer.except, vec![P]);
        primary.on_answer(ms(1002), &answer);
        assert_eq!(primary.held_until(P, Epoch(3), member(2, 1)), ms(0));
        assert_eq!(backup.promised_until(P, Epoch(4)), ms(180), "only its own start binds it");
    }

    #[test]
    fn pr06_a_start_counts_as_an_answer() {
        let backup = Beat::new(member(2, 2), &Settings::default(), ms(5000), Sound);
        assert_eq!(backup.promised_until(P, Epoch(9)), ms(5180));
    }

    #[test]
    fn another_life_does_not_inherit_a_promise() {
        let (mut primary, mut backup) = pair();
        let beacon = primary.beacon(ms(1000), member(2, 1), |_| true);
        let answer = backup.on_beacon(ms(1001), &beacon);
        primary.on_answer(ms(1002), &answer);
        primary.beacon(ms(1020), member(2, 2), |_| true);
        assert_eq!(primary.held_until(P, Epoch(3), member(2, 1)), ms(0));
        assert_eq!(primary.held_until(P, Epoch(3), member(2, 2)), ms(0));
    }

    #[test]
    fn f18_who_did_not_listen_takes_nobody_for_silent() {
        let (mut beat, _) = pair();
        (1000..1200).step_by(20).for_each(|at| beat.turn(ms(at)));
        assert_eq!(beat.listening_since(ms(1200)), ms(0));
        assert_eq!(beat.listening_since(ms(1300)), ms(1300), "it is away now");
        beat.turn(ms(1300));
        assert_eq!(beat.listening_since(ms(1301)), ms(1300), "it was away until now");
        (1320..1440).step_by(20).for_each(|at| beat.turn(ms(at)));
        assert_eq!(beat.listening_since(ms(1440)), ms(1300));
    }

    #[test]
    fn a_partition_that_is_not_vouched_for_is_not_named() {
        let (mut primary, mut backup) = pair();
        let beacon = primary.beacon(ms(1000), member(2, 1), |_| false);
        backup.on_beacon(ms(1001), &beacon);
        assert_eq!(backup.heard_at(P, member(1, 1)), ms(0));
    }
}
