//! An answer is ready: what it acknowledges must be where the recorded set and policy want it, and who is
//! dead has no more than it had (I1, I14, F04).

use super::World;
use crate::check::answers::{self, Has};
use crate::check::wanted::Wanted;
use crate::node::{Machine, Process};
use replica::ClientRef;
use types::config::Cause;
use types::{Lsn, Member, NodeId, PartitionId, PartitionRecord, Policy, Position};
use wire::{Reply, Status};

impl World {
    /// An answer is ready: what it acknowledges must be where the recorded set and policy want it (I1, F04,
    /// PR-16).
    pub(super) fn released(&mut self, node: u32, to: ClientRef, reply: &Reply) {
        let Some(process) = &self.machine(node).process else { return };
        let member = process.member;
        let Some(asked) = self.checks.requests.get(to.connection, to.request) else { return };
        let replica = process.host.replica(asked.partition);
        let term = replica.and_then(|replica| replica.record()).map(|record| record.term).unwrap_or_default();
        self.checks.requests.answered(to.connection, to.request, term);
        if !asked.writes || !matches!(reply.status, Status::Ok | Status::Refused(_)) {
            return;
        }
        let process = self.machine(node).process.as_ref();
        let asked_here = process.and_then(|process| process.host.replica(asked.partition));
        let known = asked_here.and_then(|replica| replica.record()).cloned();
        let committed = asked_here.map_or(Lsn::ZERO, |replica| replica.marks().committed());
        let verdict = answers::check_committed(asked.partition, reply.lsn, committed);
        self.checks.expect("R12", self.now(), verdict);
        if reply.status != Status::Ok {
            return;
        }
        let Some(record) = self.checks.epochs.newest(asked.partition).cloned() else { return };
        if record.primary != member {
            return;
        }
        let at = reply.position();
        // Who asks again is told what was committed before.
        let told_again = |holds: &dyn Fn(&PartitionRecord) -> bool| {
            self.checks.epochs.was_committed((record.id, reply.lsn), holds)
        };
        // The primary does not ask for a record that is made anew. Until it hears of it, it goes by the
        // members that it knows, and all of these have what it acknowledges.
        let unheard = |known: &PartitionRecord| record.cause == Cause::Rebuilt && known.epoch < record.epoch;
        let counted = known.filter(unheard).unwrap_or_else(|| record.clone());
        let verdict = answers::check_members(&counted, at, told_again(&answers::has_too_few));
        if verdict.is_err() {
            return self.checks.expect("I1", self.now(), verdict);
        }
        let policies: Vec<Policy> =
            std::iter::once(&record.policy).chain(&record.next_policy).cloned().collect();
        // What committed before the next policy was recorded, and is told again, or when it was secured, need
        // not be what the next one wants: the entry that brings it in sees to that.
        let before = asked.is_told_when_secured(reply, &record)
            || told_again(&|other| other.next_policy == record.next_policy);
        let policies = if before { &policies[..1] } else { &policies[..] };
        for policy in policies {
            let has = |member: &Member, need| self.has_of(record.id, at, member, need);
            let verdict = answers::check_cover((&record, policy), at, has);
            if verdict.is_err() {
                return self.checks.expect("I1", self.now(), verdict);
            }
        }
        // It counts those of the record that it knows: a newer one may have fewer, after a rebuild.
        let process = self.machine(node).process.as_ref();
        let own = process.and_then(|process| process.host.replica(asked.partition)?.record().cloned());
        self.check_copies(&own.unwrap_or(record), reply, at);
    }

    /// What a member has of an entry, of which so much is needed.
    fn has_of(&self, id: PartitionId, at: Position, member: &Member, need: Wanted) -> Has {
        let machine = self.machine(member.node.0);
        let (ends, lineage) = (&self.checks.ends, &self.checks.lineage);
        let alive = machine.process.as_ref().filter(|process| process.member == *member);
        // Whoever is gone had it before, or it was never covered.
        let Some(process) = alive else { return Has::Ended(ends.lacks(lineage, member, (id, at), need)) };
        // Who comes back on an older copy of its disk has the number of a life that has ended, and that life
        // had it when it said so.
        let ended = machine.disk.is_older() && ends.of(member, id).is_some();
        if ended && ends.lacks(lineage, member, (id, at), need).is_none() {
            return Has::Ended(None);
        }
        let received = self.holds(process, id, at);
        let durable = !need.durable || machine.health.is_impaired() || self.is_proven(machine, id, at);
        let replica = process.host.replica(id);
        let applied = replica.is_some_and(|replica| {
            // Whose directory is lost had executed it when it said so.
            let before = ends.of(member, id).filter(|_| replica.is_damaged());
            replica.engine().applied().lsn >= at.lsn || before.is_some_and(|last| last.applied >= at.lsn)
        });
        Has::Now(Wanted { received, durable, applied })
    }

    /// True if the replica's log has this entry.
    fn holds(&self, process: &Process, id: PartitionId, at: Position) -> bool {
        let Some(replica) = process.host.replica(id) else { return false };
        match replica.log().tail().at(at.lsn) {
            Some((here, _)) => here == at,
            None => self.checks.lineage.has(id, replica.log().end(), at),
        }
    }

    pub(super) fn is_proven(&self, machine: &Machine, id: PartitionId, at: Position) -> bool {
        let proven = self.checks.storage.holds(NodeId(machine.id), id);
        let persisted = machine.process.as_ref().and_then(|process| process.host.replica(id));
        let persisted = persisted.map(|replica| replica.engine().persisted());
        [proven, persisted].into_iter().flatten().any(|tip| self.checks.lineage.has(id, tip, at))
    }

    /// I14: no more copies are named than there are.
    fn check_copies(&mut self, record: &PartitionRecord, reply: &Reply, at: Position) {
        // Who was evicted a moment ago may still have been counted: whoever has it, has it. "The reply says
        // what was secured": a member whose recorded life has ended, be the next one running or not, had it
        // when it said so.
        let has = |machine: &&Machine| match &machine.process {
            Some(process) => {
                let ended = |member: &Member| member.node.0 == machine.id && *member != process.member;
                // On an older copy of its disk it has the number of a life that has ended: that one had it.
                let before =
                    self.checks.ends.of(&process.member, record.id).filter(|_| machine.disk.is_older());
                let had = before.is_some_and(|last| self.checks.lineage.has(record.id, last.end, at));
                had || self.holds(process, record.id, at) || record.in_sync.iter().any(ended)
            }
            None => {
                let had = |member: &Member| {
                    let last = self.checks.ends.of(member, record.id);
                    last.is_none_or(|last| self.checks.lineage.has(record.id, last.end, at))
                };
                // The recorded life may not be the last one.
                let recorded = record.in_sync.iter().filter(|member| member.node.0 == machine.id);
                machine.starts.last().iter().chain(recorded).any(had)
            }
        };
        let copies = self.machines.iter().filter(has).count();
        let verdict = answers::check_copies((record.id, at), reply.copies, copies);
        self.checks.expect("I14", self.now(), verdict);
    }
}
