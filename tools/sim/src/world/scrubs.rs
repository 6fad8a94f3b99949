//! An operator has replicas read their own files and logs back, and gives up those that are damaged, as
//! `understudy scrub --repair` does: once without a reason, and soon after something has rotted.
//!
//! Of a node that no fault befell nothing may be found. A replica of which something was found is given up
//! when another one leads whose files are sound, and counts again when it has got a copy; in a healed world
//! all must (I13). The operator talks to the nodes directly: what networks do to requests, clients see.

use super::{Event, Phase, World};
use crate::check::nodes::{self, At};
use crate::faults::Fault;
use crate::network::Conn;
use crate::random::Stream;
use replica::ClientRef;
use std::collections::BTreeMap;
use types::{Lsn, Member, NodeId, PartitionId, PartitionRecord};
use wire::control::AdminCommand;
use wire::scrub::{Damage, Scrubbed};
use wire::{Body, Op, ReadLevel, Reply, Request, Status};

/// The operator's connection, to every node.
const SCRUBS: Conn = Conn::MAX - 2_000;
/// Between two questions how far a replica is, microseconds.
const POLL_INTERVAL_US: u64 = 100_000;
/// Between two questions for another primary, microseconds.
const HAND_OVER_US: u64 = 1_000_000;
/// What has not come to an end by then is given up, microseconds.
const WAIT_LIMIT_US: u64 = 10_000_000;
/// What a replica says that is damaged already, or takes in a copy: there is nothing to be read.
const NO_STATE: &str = "the replica is damaged or takes in a copy";

/// A replica: its partition and its node.
type OfNode = (PartitionId, u32);

/// How far the operator is with a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScrubStep {
    /// It is asked to begin.
    Asked,
    /// It reads its files and its log.
    Reading,
    /// Nothing was found.
    Clean,
    /// Something was found.
    Damaged,
    /// It was given up, and waits for a copy.
    GivenUp,
    /// Nothing more is asked of it.
    Done,
}

/// A replica that is read back by the process that ran when the operator began.
#[derive(Clone, Copy, Debug)]
struct Scrub {
    incarnation: u64,
    stage: ScrubStep,
}

/// All replicas are read back once.
#[derive(Debug)]
struct Round {
    began: u64,
    replicas: BTreeMap<OfNode, Scrub>,
    /// Another primary is not asked for before, microseconds.
    next_hand_over: u64,
}

/// How far the operator is.
pub(super) struct Scrubbing {
    random: Stream,
    /// It has been time to begin.
    begun: bool,
    round: Option<Round>,
    /// Something rotted since the round began.
    again: bool,
    last_request: u64,
    /// Requests that are not answered yet.
    requests: BTreeMap<u64, OfNode>,
}

impl Scrubbing {
    /// An operator who has done nothing yet, and draws from this.
    pub fn new(random: Stream) -> Scrubbing {
        let requests = BTreeMap::new();
        Scrubbing { random, begun: false, round: None, again: false, last_request: 0, requests }
    }

    fn begin(&mut self, now: u64, replicas: BTreeMap<OfNode, Scrub>) {
        self.requests.clear();
        self.round = Some(Round { began: now, replicas, next_hand_over: now });
    }

    fn stage(&self, replica: OfNode) -> Option<ScrubStep> {
        Some(self.round.as_ref()?.replicas.get(&replica)?.stage)
    }

    fn becomes(&mut self, replica: OfNode, stage: ScrubStep) {
        if let Some(scrub) = self.round.as_mut().and_then(|round| round.replicas.get_mut(&replica)) {
            scrub.stage = stage;
        }
    }

    /// A request's number.
    fn request(&mut self, replica: OfNode) -> u64 {
        self.last_request += 1;
        self.requests.insert(self.last_request, replica);
        self.last_request
    }

    /// The replica that this answer is of, and how far the operator is with it.
    fn answered(&mut self, to: ClientRef) -> Option<(OfNode, ScrubStep)> {
        let request = Some(to.request).filter(|_| to.connection == SCRUBS)?;
        let replica = self.requests.remove(&request)?;
        Some((replica, self.stage(replica)?))
    }

    /// True if nothing is waited for any more. `faults`: they go on, and so nothing is healed yet, in which
    /// nothing new is begun.
    fn is_over(&self, now: u64, faults: bool) -> bool {
        let Some(round) = &self.round else { return true };
        let waits = |scrub: &Scrub| match scrub.stage {
            ScrubStep::Asked | ScrubStep::Damaged => faults,
            ScrubStep::Reading | ScrubStep::GivenUp => true,
            ScrubStep::Clean | ScrubStep::Done => false,
        };
        now > round.began + WAIT_LIMIT_US || !round.replicas.values().any(waits)
    }
}

impl World {
    /// The first time, some time after the faults have begun.
    pub(super) fn plan_scrub(&mut self) {
        let wait = self.faults.scrubbing.random.between(1_000_000, 6_000_000);
        self.after(wait, Event::Scrub { begins: true });
    }

    /// A fault has befallen a node: what rotted is looked for soon.
    pub(super) fn scrub_after(&mut self, fault: Fault) {
        if self.plan.scrubs && fault.rots() {
            let wait = self.faults.scrubbing.random.between(50_000, 800_000);
            self.after(wait, Event::Scrub { begins: true });
        }
    }

    /// The operator begins with all replicas, or goes on with them.
    pub(super) fn scrub(&mut self, begins: bool) {
        let faults = self.stage.phase() == Phase::Faults;
        if begins && self.faults.scrubbing.round.is_some() {
            self.faults.scrubbing.again = true;
            return;
        }
        if begins && (!faults || self.rots_first()) {
            return;
        }
        if begins {
            self.begin_scrub();
        }
        self.go_on_scrubbing(faults);
        if !self.faults.scrubbing.is_over(self.now(), faults) {
            return self.after(POLL_INTERVAL_US, Event::Scrub { begins: false });
        }
        self.faults.scrubbing.round = None;
        if std::mem::take(&mut self.faults.scrubbing.again) {
            self.after(POLL_INTERVAL_US, Event::Scrub { begins: true });
        }
    }

    /// More often than not a bit rots unseen before the first time, where that may be. True if it did: the
    /// operator begins soon.
    fn rots_first(&mut self) -> bool {
        let (nodes, scrubbing) = (self.plan.nodes, &mut self.faults.scrubbing);
        if std::mem::replace(&mut scrubbing.begun, true) || !scrubbing.random.chance(800) {
            return false;
        }
        let first = scrubbing.random.below(u64::from(nodes)) as u32;
        (0..nodes).any(|turn| self.befall(Fault::QuietRot, 1 + (first + turn) % nodes))
    }

    /// All replicas that count and run are to be read back.
    fn begin_scrub(&mut self) {
        let mut replicas = BTreeMap::new();
        for record in self.checks.epochs.records() {
            for member in &record.in_sync {
                let machine = self.machine(member.node.0);
                let runs = machine.incarnation().filter(|_| machine.member() == Some(*member));
                if let Some(incarnation) = runs {
                    let scrub = Scrub { incarnation, stage: ScrubStep::Asked };
                    replicas.insert((record.id, member.node.0), scrub);
                }
            }
        }
        self.faults.scrubbing.begin(self.schedule.now(), replicas);
    }

    /// Does what is due of each replica.
    fn go_on_scrubbing(&mut self, faults: bool) {
        let Some(round) = &self.faults.scrubbing.round else { return };
        let replicas: Vec<(OfNode, Scrub)> =
            round.replicas.iter().map(|(replica, scrub)| (*replica, *scrub)).collect();
        for (replica, scrub) in replicas {
            let runs_on = self.machine(replica.1).incarnation() == Some(scrub.incarnation);
            match scrub.stage {
                // The process that knew of it is over.
                _ if !runs_on => self.faults.scrubbing.becomes(replica, ScrubStep::Done),
                ScrubStep::Asked if faults => self.ask_replica(replica, Op::Scrub { start: true }),
                ScrubStep::Reading => self.ask_replica(replica, Op::Scrub { start: false }),
                ScrubStep::Damaged if faults => self.repair(replica),
                ScrubStep::GivenUp => self.look_if_repaired(replica),
                ScrubStep::Asked | ScrubStep::Damaged | ScrubStep::Clean | ScrubStep::Done => {}
            }
        }
    }

    /// Asks something of a replica, if its node goes on.
    fn ask_replica(&mut self, replica: OfNode, op: Op) {
        let (id, node) = replica;
        let Some(table) = self.checks.epochs.newest(id).map(|record| record.table) else { return };
        let machine = self.machine(node);
        if machine.process.is_none() || !machine.standing.goes_on() {
            return;
        }
        let number = self.faults.scrubbing.request(replica);
        let read = ReadLevel::Any { max_lag_ms: 600_000, min_lsn: Lsn::ZERO };
        let request = Request { id: number, read, ..Request::new(table, 0, id, op) };
        self.request(node, SCRUBS, request);
    }

    /// An answer leaves its node. It may be one to the operator.
    pub(super) fn hear_scrub(&mut self, to: ClientRef, reply: &Reply) {
        let Some((replica, stage)) = self.faults.scrubbing.answered(to) else { return };
        match (stage, &reply.status, &reply.body) {
            (ScrubStep::Asked | ScrubStep::Reading, Status::Ok, Body::Scrubbed(scrubbed))
                if scrubbed.running =>
            {
                self.faults.scrubbing.becomes(replica, ScrubStep::Reading);
            }
            (ScrubStep::Reading, Status::Ok, Body::Scrubbed(scrubbed)) => {
                self.note_scrubbed(replica, scrubbed)
            }
            (ScrubStep::Damaged, Status::Ok, Body::None) => {
                self.faults.scrubbing.becomes(replica, ScrubStep::GivenUp);
                self.injected("scrub-gave-up");
            }
            // It is asked again.
            (ScrubStep::Damaged, ..) | (_, Status::NotYet(_), _) => {}
            // There is nothing to be read.
            (ScrubStep::Asked | ScrubStep::Reading, ..) => {
                self.faults.scrubbing.becomes(replica, ScrubStep::Done)
            }
            _ => {}
        }
    }

    /// A replica has read everything back. Where no fault befell its node meanwhile, nothing may be found.
    fn note_scrubbed(&mut self, replica: OfNode, scrubbed: &Scrubbed) {
        let ((id, node), now) = (replica, self.now());
        self.injected("scrubbed");
        let is_found = |damage: &&Damage| !damage.what.starts_with(NO_STATE);
        let found: Vec<&Damage> = scrubbed.damage.iter().filter(is_found).collect();
        if found.is_empty() {
            let whole = scrubbed.damage.is_empty();
            let stage = if whole { ScrubStep::Clean } else { ScrubStep::Done };
            return self.faults.scrubbing.becomes(replica, stage);
        }
        self.trace.note(now, format_args!("n{node} {id} finds {} of its files damaged", found.len()));
        self.injected("scrub-found");
        self.faults.scrubbing.becomes(replica, ScrubStep::Damaged);
        let began = self.faults.scrubbing.round.as_ref().map_or(now, |round| round.began);
        let soundness = &self.faults.soundness;
        let sound_us = soundness.is_sound(node).then(|| soundness.sound_for(node, now));
        let found: Vec<String> = found.iter().map(|damage| format!("{damage:?}")).collect();
        let verdict = nodes::check_scrubbed(At(NodeId(node), id), &found, sound_us, now - began);
        self.checks.expect("I12", now, verdict);
    }

    /// Has a damaged replica given up for a copy, once another one leads whose files are sound.
    fn repair(&mut self, replica: OfNode) {
        let (id, node) = replica;
        let Some(record) = self.checks.epochs.newest(id).cloned() else { return };
        if !record.in_sync.iter().any(|member| self.machine(node).member() == Some(*member)) {
            // Others have found it too.
            return self.faults.scrubbing.becomes(replica, ScrubStep::Done);
        }
        let scrubbing = &self.faults.scrubbing;
        let clean = |member: &&Member| scrubbing.stage((id, member.node.0)) == Some(ScrubStep::Clean);
        let source = std::iter::once(&record.primary).chain(&record.in_sync).find(clean);
        let Some(source) = source.map(|member| member.node) else { return };
        if !self.may_give_up(&record, node) {
            return;
        }
        if source != record.primary.node {
            return self.ask_to_lead(id, source);
        }
        self.faults_soundly(node);
        let why = "a scrubbing found it damaged".to_string();
        self.ask_replica(replica, Op::GiveUp { source, why });
    }

    /// True if a replica may be given up: in recoverable seeds no other disk may be in doubt, and the
    /// partition must be served, so that all that counts is where its policy wants it.
    fn may_give_up(&self, record: &PartitionRecord, node: u32) -> bool {
        let others_sound =
            self.machines.iter().all(|machine| machine.id == node || !machine.health.is_impaired());
        self.machine(node).standing.goes_on()
            && self.is_serving(record)
            && !self.control.rebuilding.is_under_way()
            && !self.faults.forced.is_under_way()
            && (others_sound || !self.plan.recoverable)
    }

    /// A node is to lead a partition: what it has is known to be good.
    fn ask_to_lead(&mut self, id: PartitionId, to: NodeId) {
        let now = self.now();
        let Some(round) = self.faults.scrubbing.round.as_mut() else { return };
        if now >= round.next_hand_over {
            round.next_hand_over = now + HAND_OVER_US;
            self.ask(AdminCommand::Switchover { partition: Some(id), to: Some(to) });
        }
    }

    /// A replica that was given up counts again when it has a copy.
    fn look_if_repaired(&mut self, replica: OfNode) {
        let (id, node) = replica;
        let Some(process) = &self.machine(node).process else { return };
        let record = self.checks.epochs.newest(id);
        let counts = record.is_some_and(|record| record.in_sync.contains(&process.member));
        let whole = process.host.replica(id).is_some_and(|replica| !replica.is_damaged());
        if counts && whole {
            self.trace.note(self.now(), format_args!("n{node} {id} counts again, by a copy"));
            self.injected("scrub-repaired");
            self.faults.scrubbing.becomes(replica, ScrubStep::Done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Concern;

    #[test]
    fn a_round_is_over_when_nothing_is_waited_for() {
        let mut scrubbing = Scrubbing::new(Stream::new(1, Concern::Operator, 2));
        assert!(scrubbing.is_over(5, true));
        let replica = (PartitionId(64), 1);
        let scrub = Scrub { incarnation: 3, stage: ScrubStep::Asked };
        scrubbing.begin(5, [(replica, scrub)].into());
        for (stage, waits, waits_when_healed) in [
            (ScrubStep::Asked, true, false),
            (ScrubStep::Reading, true, true),
            (ScrubStep::Damaged, true, false),
            (ScrubStep::GivenUp, true, true),
            (ScrubStep::Clean, false, false),
            (ScrubStep::Done, false, false),
        ] {
            scrubbing.becomes(replica, stage);
            assert_eq!(scrubbing.stage(replica), Some(stage));
            assert_eq!(scrubbing.is_over(6, true), !waits, "{stage:?}");
            assert_eq!(scrubbing.is_over(6, false), !waits_when_healed, "{stage:?}");
        }
        scrubbing.becomes(replica, ScrubStep::Reading);
        assert!(scrubbing.is_over(6 + WAIT_LIMIT_US, true), "it takes too long");
    }

    #[test]
    fn an_answer_belongs_to_its_request_once() {
        let mut scrubbing = Scrubbing::new(Stream::new(1, Concern::Operator, 2));
        let replica = (PartitionId(64), 1);
        scrubbing.begin(5, [(replica, Scrub { incarnation: 3, stage: ScrubStep::Asked })].into());
        let to = ClientRef { connection: SCRUBS, request: scrubbing.request(replica) };
        assert_eq!(scrubbing.answered(ClientRef { connection: 1, ..to }), None);
        assert_eq!(scrubbing.answered(to), Some((replica, ScrubStep::Asked)));
        assert_eq!(scrubbing.answered(to), None);
    }
}
