//! Whether a partition needs another primary, and who (R6, N1, PR-07, PR-17, PR-85). Decides; [`crate::seal`]
//! acts.

use crate::api::ConnId;
use crate::candidate::Candidate;
use crate::controller::Controller;
use crate::failure_detector::{Missed, Spans, Stamps};
use crate::ledger::{Ledger, Purpose};
use crate::seal::{PER_TXN, SealPlan};
use std::collections::{BTreeMap, BTreeSet};
use types::config::{Cause, NodeRecord, PartitionRecord};
use types::{Epoch, Lsn, Member, Micros, NodeId, Now, PartitionId};
use wire::control::Suspect;

/// What is remembered about seals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sealing {
    /// Partitions whose recorded primary's process is not the one that runs now: that one's life, and since
    /// when somebody of the recorded set is here to lead on.
    restarts: BTreeMap<PartitionId, (Member, Micros)>,
    /// Terms that do not serve although another one could help.
    stalled: BTreeMap<PartitionId, Stalled>,
    /// Terms that do not serve, whose primary backups alone hear. How far they are is what these say is
    /// committed.
    unheard: BTreeMap<PartitionId, Stalled>,
    /// Primaries on whose disk acknowledgements rest, and whose disk has something to write.
    writing: BTreeMap<PartitionId, Writing>,
    /// When a failover's seal was answered, milliseconds since 1970, until its report is completed.
    pub(crate) answered_ms: BTreeMap<u64, u64>,
}

/// A term that stands still.
#[derive(Clone, Copy, Debug)]
struct Stalled {
    /// With which epoch it began.
    term: Epoch,
    /// How far its primary had executed its log. As long as that moves, it replays, and waits for nobody.
    applied: Lsn,
    /// Since when.
    since: Micros,
}

/// A primary's log that is not durable to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Writing {
    /// Whose.
    primary: Member,
    /// Up to where it is.
    durable: Lsn,
    /// Since when that does not move.
    since: Micros,
}

/// That a partition needs another term.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FailoverDecision {
    /// Why.
    pub(crate) cause: Cause,
    /// True if acknowledged commits may be lost by it.
    pub(crate) lossy: bool,
    /// True if members count in their present lives, whatever these may have forgotten: everyone was
    /// compared.
    pub(crate) compared: bool,
    /// Who may lead.
    pub(crate) candidates: Vec<Candidate>,
}

impl Sealing {
    /// When the present life of a partition's primary was first seen, if it is not the recorded one.
    pub(crate) fn restarted_at(&self, partition: PartitionId) -> Option<Micros> {
        self.restarts.get(&partition).map(|(_, at)| *at)
    }

    /// How long this term has stood still although another one could help.
    fn stalled_for(&self, record: &PartitionRecord, now: Now) -> Option<Micros> {
        let stalled = self.stalled.get(&record.id)?;
        (stalled.term == record.term.began()).then(|| now.mono.since(stalled.since))
    }

    /// How long the disk of this primary has written nothing although it had to.
    pub(crate) fn hung_for(&self, record: &PartitionRecord, now: Now) -> Option<Micros> {
        let writing = self.writing.get(&record.id).filter(|writing| writing.primary == record.primary)?;
        Some(now.mono.since(writing.since))
    }

    /// Checks that no partition is being sealed twice at once. The error is a sentence.
    pub(crate) fn validate(&self, ledger: &Ledger) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for purpose in ledger.purposes() {
            let Purpose::Seal(partitions) = purpose else { continue };
            if let Some(twice) = partitions.iter().find(|partition| !seen.insert(**partition)) {
                return Err(format!("partition {twice} is being sealed twice"));
            }
        }
        Ok(())
    }
}

impl Controller {
    /// An in-sync backup misses its primary.
    pub(crate) fn on_suspect(&mut self, now: Now, conn: ConnId, suspect: Suspect) {
        if self.failure_detector.member(conn) != Some(suspect.by) {
            return;
        }
        let silent_ms = Micros(suspect.silent_us).as_millis();
        let stamps = Stamps { asked_ms: now.wall_ms, last_heard_ms: now.wall_ms.saturating_sub(silent_ms) };
        for (partition, epoch, end) in suspect.partitions {
            let Some(record) =
                self.records.partition(partition).filter(|record| record.primary == suspect.primary)
            else {
                continue;
            };
            self.failure_detector.missed(record, suspect.by, epoch, Missed { at: now.mono, end }, stamps);
        }
        self.decide_all(now);
    }

    /// Looks at every partition, and seals those that need it. One transaction at a time: each takes numbers
    /// from the cluster's record.
    pub(crate) fn decide_all(&mut self, now: Now) {
        let spans = Spans { kept: self.settings.suspicion_kept, suspect: self.settings.suspect };
        for partition in self.failure_detector.suspected() {
            self.failure_detector.forget_old(partition, self.records.partition(partition), now.mono, spans);
        }
        self.note_restarts(now);
        self.note_stalled(now);
        self.note_unheard(now);
        self.note_writing(now);
        if self.takes_numbers() {
            return;
        }
        let mut led = None;
        let mut plans: Vec<SealPlan> = Vec::new();
        for record in self.records.partitions() {
            if plans.len() == PER_TXN {
                break;
            }
            let Some(decision) = self.failover_decision(now, record) else { continue };
            let led = led.get_or_insert_with(|| self.leads());
            let Some(candidate) = self.best(record, &decision.candidates, led) else { continue };
            *led.entry(candidate.present.node).or_insert(0) += 1;
            plans.push(self.plan_of(now, record, candidate, &decision));
        }
        if !plans.is_empty() {
            self.seal(now, plans);
        }
    }

    /// Remembers since when a restarted primary's partition could go on.
    fn note_restarts(&mut self, now: Now) {
        let mut seen = BTreeMap::new();
        for record in self.records.partitions() {
            let Some(node) = self.records.node(record.primary.node) else { continue };
            let present = node.member();
            if present == record.primary && !self.is_missed_unsaid(now, record) {
                continue;
            }
            let here = |member: &Member| {
                let node = self.records.node(member.node);
                node.is_some_and(|node| self.is_here(now, record, &node.member()))
            };
            match self.sealing.restarts.get(&record.id).filter(|(incarnation, _)| *incarnation == present) {
                Some(known) => seen.insert(record.id, *known),
                None if record.in_sync.iter().any(here) => seen.insert(record.id, (present, now.mono)),
                None => None,
            };
        }
        self.sealing.restarts = seen;
    }

    /// Whether this partition needs another term, and who may lead it. None: it does not, or not yet.
    fn failover_decision(&self, now: Now, record: &PartitionRecord) -> Option<FailoverDecision> {
        let other_incarnation =
            self.records.node(record.primary.node).filter(|node| node.member() != record.primary);
        let decision = match other_incarnation {
            Some(node) => self.after_restart(now, record, node),
            None => self
                .after_suspicion(now, record)
                .or_else(|| self.after_yielding(now, record))
                .or_else(|| self.after_another_restart(now, record))
                .or_else(|| self.after_silence(now, record))
                .or_else(|| self.after_all_backups_restarted(now, record)),
        };
        decision.filter(|decision| !decision.candidates.is_empty())
    }

    /// The recorded primary's process is not the one that runs there now: it leads nothing (N1).
    fn after_restart(
        &self,
        now: Now,
        record: &PartitionRecord,
        node: &NodeRecord,
    ) -> Option<FailoverDecision> {
        let required = self.requirements(record);
        let decision = |lossy, compared, candidates| {
            Some(FailoverDecision { cause: Cause::Restarted, lossy, compared, candidates })
        };
        let waits = self.settings.rules.lone_primaries_are_waited_for();
        if waits && required.alone && required.disk && self.worth_waiting_for(now, record, node) {
            // What was acknowledged may be nowhere else: its own disk is asked first (PR-85). If that disk
            // may lack an unsynced tail, the others are compared with it (F06).
            let complete = required.survives
                || self.all_back(now, record)
                || self.gathered(now, record, self.settings.failover_wait);
            let itself = Candidate { recorded: record.primary, present: node.member() };
            let leads = complete && self.fit(now, record, &itself.present);
            return leads.then(|| decision(!required.survives, true, vec![itself])).flatten();
        }
        let others = self.candidates(now, record, false);
        let unbroken = |other: &&Candidate| !required.survives || other.recorded == other.present;
        let unbroken: Vec<Candidate> = others.iter().filter(unbroken).copied().collect();
        if !unbroken.is_empty() {
            return decision(required.rests, false, unbroken);
        }
        if required.survives {
            let complete =
                self.all_back(now, record) || self.gathered(now, record, self.settings.restart_reconcile);
            return complete
                .then(|| decision(required.rests, false, self.candidates(now, record, true)))
                .flatten();
        }
        decision(true, true, self.after_all_restarted(now, record)?)
    }

    /// Remembers since when terms stand still that another one could help. One that replays its log moves on
    /// (PR-156).
    fn note_stalled(&mut self, now: Now) {
        let mut stalled = BTreeMap::new();
        for record in self.records.partitions() {
            let helps = || {
                self.is_another_here(now, record)
                    || self.waits_in_doubt(now, record)
                    || self.may_go_back(record)
            };
            if record.before.is_none() || self.serves(record) || !helps() {
                continue;
            }
            let applied = self.failure_detector.applied_of(&record.primary, record.id);
            let fresh = Stalled { term: record.term.began(), applied, since: now.mono };
            let known = self.sealing.stalled.get(&record.id).copied();
            let stands = known.filter(|known| known.term == fresh.term && known.applied >= applied);
            stalled.insert(record.id, stands.unwrap_or(fresh));
        }
        self.sealing.stalled = stalled;
    }

    /// Remembers since when terms stand still whose primary backups alone hear.
    fn note_unheard(&mut self, now: Now) {
        let (mut unheard, alive) = (BTreeMap::new(), self.settings.alive);
        for record in self.records.partitions() {
            if self.is_here(now, record, &record.primary) {
                continue;
            }
            let told = self.failure_detector.stands_at((record, self.serves(record)), now.mono, alive);
            let Some(applied) = told else { continue };
            let fresh = Stalled { term: record.term.began(), applied, since: now.mono };
            let known = self.sealing.unheard.get(&record.id).copied();
            let stands = known.filter(|known| known.term == fresh.term && known.applied >= applied);
            unheard.insert(record.id, stands.unwrap_or(fresh));
        }
        self.sealing.unheard = unheard;
    }

    /// Remembers since when the disks of primaries that acknowledgements rest on write nothing (PR-300).
    fn note_writing(&mut self, now: Now) {
        let mut writing = BTreeMap::new();
        for record in self.records.partitions() {
            let required = self.requirements(record);
            let rests = required.alone && required.disk;
            let (primary, alive) = (record.primary, self.settings.alive);
            let durable = || self.failure_detector.unwritten(record, now.mono, alive).filter(|_| rests);
            let Some((durable, waits)) = durable() else { continue };
            let fresh = Writing { primary, durable, since: now.mono - waits };
            let known = self.sealing.writing.get(&record.id).copied().filter(|_| waits == Micros::ZERO);
            let stands = known.filter(|known| (known.primary, known.durable) == (primary, durable));
            writing.insert(record.id, stands.unwrap_or(fresh));
        }
        self.sealing.writing = writing;
    }

    /// True if a member was started again, is fit, and counts in its later incarnation: all do where everyone
    /// is compared.
    fn is_another_here(&self, now: Now, record: &PartitionRecord) -> bool {
        record.in_sync.iter().any(|member| {
            let node = self.records.node(member.node).map(NodeRecord::member);
            let compared = node.filter(|present| record.lossy && present.same_store(member));
            let present = compared.or_else(|| self.unforgetful(self.requirements(record), member));
            present.is_some_and(|present| present != *member && self.fit(now, record, &present))
        })
    }

    /// True if a term in which a primary leads on after a restart, on whose disk alone acknowledgements rest,
    /// may be waiting for the report of a member that is not there, is damaged, or has another disk: where
    /// its own log's end was torn, that member may have more (PR-100).
    fn waits_in_doubt(&self, now: Now, record: &PartitionRecord) -> bool {
        let required = self.requirements(record);
        let leads_on = record.before.as_ref().is_some_and(|old| old.primary.same_store(&record.primary));
        let tells = |member: &Member| {
            let present = self.records.node(member.node).map(NodeRecord::member);
            present.is_some_and(|here| here.same_store(member) && self.fit(now, record, &here))
        };
        let all_tell = record.in_sync.iter().all(tells);
        required.rests && required.survives && leads_on && !record.lossy && !all_tell
    }

    /// True if a term in which the lead was handed over says that it does not serve, and the one that had it
    /// is there: that one has what was acknowledged on a primary alone, and nothing was after it (PR-284).
    fn may_go_back(&self, record: &PartitionRecord) -> bool {
        let may = self.settings.rules.the_lead_may_go_back();
        let handed = record.before.as_ref().filter(|before| before.handed_over && may);
        handed.is_some_and(|before| record.in_sync.contains(&before.primary))
            && self.failure_detector.says_it_serves(record) == Some(false)
    }

    /// A promotion that compares what all members kept waits for each of them, and so does one whose reports
    /// fence nothing, for instance of torn logs. A member that starts again meanwhile is asked in its later
    /// incarnation, which only another term can name (PR-17, PR-102). Most promotions get on without: only
    /// those compared do not wait for that. Where acknowledgements rest on the primary's disk alone, and that
    /// is here, whoever is not is given up after a while, as that disk would be, with a report of loss
    /// (PR-141).
    fn after_another_restart(&self, now: Now, record: &PartitionRecord) -> Option<FailoverDecision> {
        let stalled = self.sealing.stalled_for(record, now)?;
        let is_fit = self.fit(now, record, &record.primary);
        let helps = self.is_another_here(now, record);
        let named = helps && (record.lossy || stalled >= self.settings.restart_reconcile && is_fit);
        let stays = !helps && !self.may_go_back(record);
        let gives_up = stays && stalled >= self.settings.failover_wait && is_fit;
        let itself = Candidate { recorded: record.primary, present: record.primary };
        (named || gives_up).then(|| FailoverDecision {
            cause: Cause::Restarted,
            lossy: record.lossy || gives_up,
            compared: record.lossy,
            candidates: vec![itself],
        })
    }

    /// A primary that does not serve says that a member has more than it can get: that one's log begins above
    /// the end of its own. That member leads, and compares as this term would have (PR-345).
    fn after_yielding(&self, now: Now, record: &PartitionRecord) -> Option<FailoverDecision> {
        // What it said long ago may be otherwise by now.
        let heard = self.is_here(now, record, &record.primary);
        let to = self.failure_detector.yields_to(record).filter(|_| heard)?;
        let required = self.requirements(record);
        let mut candidates = self.candidates(now, record, false);
        candidates.retain(|candidate| candidate.recorded == to);
        (!candidates.is_empty()).then_some(FailoverDecision {
            cause: Cause::Restarted,
            lossy: record.lossy || required.rests,
            compared: record.lossy && !required.survives,
            candidates,
        })
    }

    /// A primary that reaches no controller cannot put out of the set who is gone. Its backups hear it, so
    /// nobody misses it: one of them leads, and it stays in the set (PR-352). One that serves is waited for
    /// longer: a member may be slow just now.
    fn after_silence(&self, now: Now, record: &PartitionRecord) -> Option<FailoverDecision> {
        let required = self.requirements(record);
        let known = self.sealing.unheard.get(&record.id)?;
        let times = if self.serves(record) { 2 } else { 1 };
        let waited = now.mono.since(known.since).0 >= times * self.settings.restart_reconcile.0;
        // What its disk has alone, and what only it compared, is not given up for that (PR-85, PR-343).
        let alone = required.alone || record.lossy && !required.survives;
        (known.term == record.term.began() && waited && !alone).then(|| FailoverDecision {
            cause: Cause::Restarted,
            // What global transactions have committed there is brought again (PR-368).
            lossy: required.rests,
            compared: false,
            candidates: self.candidates(now, record, false),
        })
    }

    /// Who was started again is no member in its new life, so it misses nobody: where that has befallen all
    /// backups, and nobody hears the primary, or it says itself that it is damaged, a controller sees for
    /// itself that it is gone (PR-138, PR-142). Only those count that have forgotten nothing.
    fn after_all_backups_restarted(&self, now: Now, record: &PartitionRecord) -> Option<FailoverDecision> {
        let missed = self.is_missed_unsaid(now, record);
        let waited = self.gathered(now, record, self.settings.restart_reconcile);
        (missed && waited).then(|| FailoverDecision {
            cause: Cause::Restarted,
            lossy: self.requirements(record).rests,
            compared: false,
            candidates: self.candidates(now, record, false),
        })
    }

    /// True if nobody is heard to hear the primary, or it is damaged, and no backup is there in the life that
    /// could say that it misses it. Where acknowledgements rest on the primary alone, one that is not damaged
    /// is waited for (PR-85).
    fn is_missed_unsaid(&self, now: Now, record: &PartitionRecord) -> bool {
        let heard = self.is_heard_by_anyone(now, record);
        let speaks = |member: &Member| self.is_here(now, record, member);
        let mut backups = record.in_sync.iter().filter(|member| **member != record.primary);
        let gone = !self.requirements(record).alone && !heard || self.has_given_up(now, record);
        gone && !backups.any(speaks)
    }

    /// True if the old primary's own disk is there, sound, and not given up yet (PR-85).
    fn worth_waiting_for(&self, now: Now, record: &PartitionRecord, node: &NodeRecord) -> bool {
        let sound = node.member().same_store(&record.primary) && !node.damaged.contains(&record.id);
        let here = self.is_here(now, record, &node.member());
        let waited =
            self.gathered(now, record, self.settings.failover_wait) || self.waited_for_primary(now, record);
        sound && (here || !waited)
    }

    /// True if the members had this long to come back after a restart.
    fn gathered(&self, now: Now, record: &PartitionRecord, span: Micros) -> bool {
        self.sealing.restarted_at(record.id).is_some_and(|since| now.mono.since(since) >= span)
    }

    /// Nobody kept what was only in memory. When every member of the recorded set is back with its disk, the
    /// best of what is on the disks leads, with a report of loss. A log in memory stays closed until an
    /// operator speaks (PR-17).
    fn after_all_restarted(&self, now: Now, record: &PartitionRecord) -> Option<Vec<Candidate>> {
        if !self.requirements(record).disk || !self.all_back(now, record) {
            return None;
        }
        let present = |member: &Member| {
            let node = self.records.node(member.node)?;
            Some(Candidate { recorded: *member, present: node.member() })
        };
        let all = record.in_sync.iter().filter_map(present);
        Some(all.filter(|candidate| self.fit(now, record, &candidate.present)).collect())
    }

    /// True if every recorded member is connected, in whatever life, with the same disk.
    pub(crate) fn all_back(&self, now: Now, record: &PartitionRecord) -> bool {
        record.in_sync.iter().all(|member| {
            let node = self.records.node(member.node).filter(|node| node.member().same_store(member));
            node.is_some_and(|node| self.is_here(now, record, &node.member()))
        })
    }

    /// True if something came from this life of a node lately, whose executor of the partition goes on.
    fn is_here(&self, now: Now, record: &PartitionRecord, member: &Member) -> bool {
        self.failure_detector.hears_in(record.id, member, now.mono, self.settings.alive)
    }

    /// True if the primary was heard just now by anybody, and does not hang.
    fn is_heard_by_anyone(&self, now: Now, record: &PartitionRecord) -> bool {
        let suspect = self.settings.suspect;
        self.failure_detector.heard_by_anyone(record.id, &record.primary, now.mono, suspect)
    }

    /// In-sync members miss the primary: are they enough to be believed?
    fn after_suspicion(&self, now: Now, record: &PartitionRecord) -> Option<FailoverDecision> {
        let required = self.requirements(record);
        let rests = required.rests;
        // Who counts because all were compared may lack what the primary of that term has, until that term
        // serves: whoever follows it compares with that one as well (PR-343).
        let compared = record.lossy && !required.survives && !self.serves(record);
        let decision = || FailoverDecision {
            cause: Cause::Suspected,
            lossy: rests || compared,
            compared,
            candidates: self.candidates(now, record, false),
        };
        let suspect = self.settings.suspect;
        let silent = !self.failure_detector.hears_in(record.id, &record.primary, now.mono, suspect);
        let (suspecting, given_up) = (self.suspecting(record), self.has_given_up(now, record));
        if !self.settings.rules.losers_back_off() {
            // The planted bug: one ear is enough, were it the controller's own, and the loser may ask again
            // at once.
            return (silent || !suspecting.is_empty()).then(decision);
        }
        // One that says itself that its replica is damaged has no benefit of the doubt (PR-142).
        let plain = silent || given_up;
        if suspecting.is_empty() || !(plain || self.believed_without_us(now, record, &suspecting)) {
            return None;
        }
        let serves = self.failure_detector.says_it_serves(record) != Some(false);
        if !plain && self.arbitration.settling(record.id, now.mono, serves) {
            return None;
        }
        let waits = self.settings.rules.lone_primaries_are_waited_for();
        // What global transactions have committed is in their manager's log: it is brought again (PR-291).
        if waits && required.alone && !given_up && !self.waited_for_primary(now, record) {
            return None;
        }
        if compared && !given_up && !self.fit(now, record, &record.primary) {
            return None;
        }
        Some(decision())
    }

    /// True if the members that miss the primary are a majority of the backups, or all that this controller
    /// hears (PR-07).
    fn believed_without_us(&self, now: Now, record: &PartitionRecord, suspecting: &[Member]) -> bool {
        let backups = record.in_sync.len() - 1;
        if 2 * suspecting.len() > backups {
            return true;
        }
        let missing: BTreeSet<NodeId> = suspecting.iter().map(|member| member.node).collect();
        let (id, suspect) = (record.id, self.settings.suspect);
        let heard = |member: &&Member| {
            let present = self.records.node(member.node).map(|node| node.member());
            present.is_some_and(|here| self.failure_detector.hears_in(id, &here, now.mono, suspect))
        };
        let backups = record.in_sync.iter().filter(|member| **member != record.primary);
        backups.filter(heard).all(|member| missing.contains(&member.node))
    }

    /// True if the primary's node says that its replica is damaged: what it has acknowledged alone is not to
    /// be had by waiting. What its log has of that is set aside before it is given a copy (R9). A node's
    /// record may still say so after a copy has mended the replica, which leads since: what the node says
    /// itself counts more, while it is heard (PR-155).
    fn has_given_up(&self, now: Now, record: &PartitionRecord) -> bool {
        let node = self.records.node(record.primary.node);
        let damaged =
            node.is_some_and(|node| node.member() == record.primary && node.damaged.contains(&record.id));
        let suspect = self.settings.suspect;
        let serves = self.failure_detector.hears_in(record.id, &record.primary, now.mono, suspect)
            && self.failure_detector.says_it_serves(record) == Some(true);
        damaged && !serves
    }

    /// True if the primary was missed by everybody for the whole wait (PR-85), or has not come to serve in
    /// all of it and the lead may go back: a node whose log's disk hangs is heard for ever (PR-284). Where it
    /// serves, its disk has written nothing in all of that time (PR-300).
    fn waited_for_primary(&self, now: Now, record: &PartitionRecord) -> bool {
        let waited = |span: Option<Micros>| span.is_some_and(|span| span >= self.settings.failover_wait);
        if self.may_go_back(record) && waited(self.sealing.stalled_for(record, now)) {
            return true;
        }
        if self.settings.rules.hung_disks_are_given_up() && waited(self.sealing.hung_for(record, now)) {
            return true;
        }
        let suspicion = self.failure_detector.suspicion(record.id);
        suspicion.is_some_and(|suspicion| now.mono.since(suspicion.since) >= self.settings.failover_wait)
            && !self.is_heard_by_anyone(now, record)
    }

    /// The in-sync members, as recorded, that miss the primary now. A member that restarted counts as the one
    /// that is recorded, if it can have forgotten nothing.
    pub(crate) fn suspecting(&self, record: &PartitionRecord) -> Vec<Member> {
        let Some(suspicion) = self.failure_detector.suspicion(record.id) else { return Vec::new() };
        if suspicion.primary != record.primary {
            return Vec::new();
        }
        let required = self.requirements(record);
        let speaks = |member: &&Member| {
            let present = self.unforgetful(required, member);
            suspicion.by.contains_key(member)
                || present.is_some_and(|present| suspicion.by.contains_key(&present))
        };
        record.in_sync.iter().filter(|member| **member != record.primary).filter(speaks).copied().collect()
    }

    /// True if a transaction under way takes numbers from the cluster's record.
    pub(crate) fn takes_numbers(&self) -> bool {
        self.records.cluster().is_none() || self.ledger.any(Purpose::takes_numbers)
    }
}
