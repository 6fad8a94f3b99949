//! What is looked at after every event, and now and then: the world is shown to the checkers.

use super::World;
use super::lsm::place;
use crate::check::nodes::{self, At, DiskFaults};
use crate::check::requests::Asked;
use crate::check::storage::Start;
use crate::check::survival::Sealed;
use crate::check::wanted::{rests_on_primary, survives_restart};
use crate::node::{FIRST, PartFiles, SECOND};
use std::collections::BTreeSet;
use types::{LogKind, Lsn, Member, NodeId, PartitionId, PartitionRecord, Policy, Position};
use wire::Kind;
use wire::control::Role;
use wire::log::Record;
use wire::peer::Ack;
use wire::{Reply, Status};

impl World {
    /// A record was written to the metastore.
    pub(super) fn configured(&mut self, record: PartitionRecord) {
        if record.lossy {
            self.checks.agreement.may_lose(record.id, record.term);
        }
        let names = |members: &[Member]| -> String {
            let names: Vec<String> = members.iter().map(ToString::to_string).collect();
            names.join(" ")
        };
        self.trace.note(
            self.now(),
            format_args!(
                "record: p{} {} {:?}, in sync {}, catching up {}{}, '{}'{}",
                record.id.0,
                record.epoch,
                record.cause,
                names(&record.in_sync),
                names(&record.catching_up),
                if record.lossy { ", lossy" } else { "" },
                record.policy,
                record.next_policy.as_ref().map_or(String::new(), |policy| format!(" next '{policy}'")),
            ),
        );
        self.note_members(&record);
        self.note_forced(&record);
        self.note_cold(&record);
        self.note_sealed(&record);
        let process = self.machine(record.primary.node.0).process.as_ref();
        let leads = process.filter(|process| process.member == record.primary);
        let replica = leads.and_then(|process| process.host.replica(record.id));
        let committed = replica.map_or(Lsn::ZERO, |replica| replica.marks().committed());
        self.checks.epochs.note_committed((record.id, record.epoch), committed);
        let verdict = self.checks.epochs.written(self.now(), record);
        self.checks.expect("I10", self.now(), verdict);
    }

    /// A term that somebody takes the lead in: how the primary before was, who may be missed.
    fn note_sealed(&mut self, record: &PartitionRecord) {
        let Some(before) = record.before.as_ref().filter(|_| record.term.began() == record.epoch) else {
            return;
        };
        let (now, primary, node) = (self.now(), before.primary, before.primary.node.0);
        let machine = self.machine(node);
        let process = machine.process.as_ref().filter(|process| process.member == primary);
        let replica = process.and_then(|process| process.host.replica(record.id));
        let damaged = machine.process.as_ref().is_some_and(|process| {
            process.host.replica(record.id).is_none_or(|replica| replica.is_damaged())
        });
        let sound = replica.is_some() && !damaged && self.faults.soundness.is_sound(node);
        let ended = machine.starts.ended_at(&primary).unwrap_or(u64::MAX);
        let there_until = ended.min(self.faults.soundness.last_sound(node));
        let sealed = Sealed {
            from: primary,
            sound_us: if sound { self.faults.soundness.sound_for(node, now) } else { 0 },
            missed_us: if damaged { u64::MAX } else { now - there_until.min(now) },
        };
        self.checks.survival.sealed(record.id, record.term, sealed);
    }

    /// A replica's change of its log.
    pub(super) fn show_log(&mut self, node: u32, op: &Record) {
        let id = NodeId(node);
        match op {
            Record::Entry(entry) => {
                if entry.header().kind == Kind::Call {
                    self.injected("call-logged");
                }
                self.checks.storage.given(id, entry.header().partition, entry.at());
                self.checks.entry(self.now(), entry);
                self.check_truncation();
            }
            Record::Truncate { partition, to } => {
                self.trace.note(self.now(), format_args!("n{node} cuts p{} to {to}", partition.0));
                self.gives_up(node, *partition, to.lsn);
                self.checks.storage.truncate(id, *partition, *to);
            }
            Record::Base { partition, at, .. } => {
                self.trace.note(self.now(), format_args!("n{node} p{} begins again at {at}", partition.0));
                if !self.begins_at(node, *partition, *at) {
                    self.gives_up(node, *partition, Lsn::ZERO);
                    self.checks.storage.truncate(id, *partition, Position::ZERO);
                }
                // What was taken back may come again as the log's begin.
                self.checks.storage.given(id, *partition, *at);
            }
            _ => {}
        }
    }

    /// True if the log on the disk has nothing but this position, and no more was proven: its checksum alone
    /// is named, and nothing is given up.
    fn begins_at(&self, node: u32, partition: PartitionId, at: Position) -> bool {
        let Some(process) = &self.machine(node).process else { return false };
        let is_at = |there: Option<(Position, u32)>| there.is_some_and(|(here, _)| here == at);
        let proven = self.checks.storage.holds(NodeId(node), partition);
        let no_more = proven.is_none_or(|proven| proven.lsn <= at.lsn);
        no_more && is_at(process.logs.log().base(partition)) && is_at(process.logs.log().end(partition))
    }

    /// R10: a member calls durable what its log has made durable, from where its log begins on.
    pub(super) fn says_durable(&mut self, node: u32, ack: &Ack) {
        let (id, said) = (ack.partition, ack.marks.durable);
        let Some(process) = self.machine(node).process.as_ref() else { return };
        let begins = process.host.replica(id).map_or(Lsn::MAX, |replica| replica.log().base().lsn);
        if process.logs.is_in_memory(id) {
            return;
        }
        let durable = self.checks.storage.holds(NodeId(node), id).map_or(Lsn::ZERO, |proven| proven.lsn);
        let verdict = nodes::check_durable(At(NodeId(node), id), begins, said, durable);
        self.checks.expect("R10", self.now(), verdict);
    }

    /// A replica drops its log above an LSN. Of a disk that was harmed nothing can be asked.
    fn gives_up(&mut self, node: u32, partition: PartitionId, above: Lsn) {
        let machine = self.machine(node);
        let faulted = machine.health.is_impaired()
            || machine.process.as_ref().is_some_and(|process| process.logs.is_in_memory(partition));
        let Some(proven) = self.checks.storage.holds(NodeId(node), partition).filter(|_| !faulted) else {
            return;
        };
        let others = self.machines.iter().filter(|machine| machine.id != node);
        let others: Vec<Position> = others
            .filter_map(|machine| Some(machine.process.as_ref()?.host.replica(partition)?.log().end()))
            .collect();
        self.checks.given_up(self.now(), NodeId(node), partition, (above, proven), &others);
    }

    /// A node starts on what its disk has.
    pub(super) fn show_start(
        &mut self,
        node: u32,
        id: PartitionId,
        part: &wal::RecoveredPartition,
        found: (Lsn, bool),
    ) {
        let (persisted, damaged) = found;
        let start = Start {
            end: part.end.lsn.max(persisted),
            damaged,
            torn: part.torn_end,
            faulted: self.machine(node).health.tears(),
        };
        let verdict = self.checks.storage.starts(NodeId(node), id, start);
        self.checks.expect("I12", self.now(), verdict);
        if !damaged {
            // `Log::open` returns when everything that it reports is on the disk.
            self.checks.storage.proven(NodeId(node), id, part.end);
        }
    }

    /// What a start makes of a replica that the log knows nothing of (I12).
    pub(super) fn show_unlogged(
        &mut self,
        node: u32,
        id: PartitionId,
        (end, torn): (Lsn, bool),
        damaged: bool,
    ) {
        let start = Start { end, damaged, torn, faulted: self.machine(node).health.tears() };
        let verdict = self.checks.storage.starts(NodeId(node), id, start);
        self.checks.expect("I12", self.now(), verdict);
    }

    /// A replica stops because of damage.
    pub(super) fn show_damage(&mut self, node: u32, id: PartitionId, reason: &str) {
        self.trace.note(self.now(), format_args!("n{node} p{} is damaged: {reason}", id.0));
        let stranded = self.is_stranded(id);
        let machine = self.machine_mut(node);
        // A sync that fails under a log ends the process, and under an engine's files this replica.
        let (_, failed) = machine.disk.syncs();
        let unsynced = machine.health.tell_syncs(failed);
        let faulted = machine.health.is_impaired() || unsynced || machine.disk.trouble().full;
        // Want of room damages nothing, but for a copy by rows: that begins anew. It can be shown long after.
        let refused = machine.disk.has_refused();
        let trouble = self.machines.files_mut().trouble(node);
        let faults = DiskFaults {
            disk: faulted || trouble.has_failed() || stranded,
            no_room: refused || trouble.has_refused(),
            unsteady: self.plan.calls.is_some_and(|calls| calls.unsteady.is_some()),
        };
        let verdict = nodes::check_damage(At(NodeId(node), id), reason, faults);
        self.checks.expect("I12", self.now(), verdict);
    }

    /// An answer leaves a node.
    pub(super) fn show_answer(&mut self, node: u32, asked: &Asked, reply: &Reply) {
        let Some(member) = self.machine(node).member() else { return };
        let decided = matches!(reply.status, Status::Ok | Status::Refused(_));
        if !decided || asked.turn {
            return;
        }
        if let Some(read) = asked.any {
            return self.look_at_age(asked.partition, read, reply);
        }
        let record = self.checks.epochs.newest(asked.partition).cloned();
        let Some(record) = record else { return };
        // What counts is what was recorded for the term that answered.
        let then = self.acknowledging(asked, &record);
        let rests = rests_on_primary(&then.policy);
        self.checks.availability.answers(asked.partition, self.now(), asked.term);
        // A refusal that is no entry says how things are, as a read does: no epoch fences it.
        let looked = !asked.fenced || !asked.numbered && reply.status != Status::Ok;
        // What it tells after an operator had another lead reaches nobody, or is compared with all else that
        // clients see.
        let fresh = (looked || rests) && !self.checks.survival.is_forced_over(&then, asked.term);
        let verdict = self.checks.serving.answered(asked.partition, asked.term, member, fresh);
        self.checks.expect("I2", self.now(), verdict);
        let secured = asked.is_told_when_secured(reply, &then);
        if asked.writes && (reply.status == Status::Ok || secured) {
            let then = if secured { as_secured(then) } else { then };
            let at = reply.position();
            self.checks.survival.acknowledged(self.now(), at, &then);
            self.checks.staleness.acknowledged(self.now(), asked.partition, at);
            // The next term may not have come to serve when the run ends: this is the newest that must be
            // there then.
            self.checks.tip(asked.partition, at);
        }
    }

    /// The newest configuration of the term that answered.
    fn acknowledging(&self, asked: &Asked, newest: &PartitionRecord) -> PartitionRecord {
        if newest.term == asked.term {
            return newest.clone();
        }
        let mut of_term = newest.clone();
        let mut epoch = asked.term.began();
        while let Some(record) = self.checks.epochs.get(asked.partition, epoch) {
            if record.term != asked.term {
                break;
            }
            of_term = record.clone();
            epoch = epoch.next();
        }
        of_term
    }

    /// After an event at a node: its invariants, and what became of its replicas.
    pub(super) fn look_at(&mut self, node: u32) {
        self.look_at_files(node);
        let now = self.now();
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        if let Err(sentence) = process.host.validate().and_then(|()| process.storage.validate()) {
            return self.checks.fault("R7", now, format!("n{node}: {sentence}"));
        }
        let mut news = Vec::new();
        for replica in process.host.replicas() {
            let (id, committed) = (replica.id(), replica.marks().committed());
            let serves = replica.record().map(|record| record.term).filter(|_| replica.serves());
            let seen = process.watched.seen(id);
            if (serves, committed) != seen {
                let at = replica.log().tail().at(committed);
                news.push((id, serves, committed, at, replica.record().cloned(), seen));
            }
        }
        let member = process.member;
        for (id, serves, committed, ..) in &news {
            process.watched.see(*id, *serves, *committed);
        }
        for (id, serves, committed, tip, record, seen) in news {
            let Some(record) = record else { continue };
            let verdict = self.checks.epochs.acted_in(&record);
            self.checks.expect("I10", now, verdict);
            if let Some((at, crc)) = tip.filter(|_| committed > seen.1) {
                let verdict = self.checks.agreement.commits((id, record.term), (at, crc), member);
                self.checks.expect("I3", now, verdict);
                if serves.is_some()
                    && self.checks.epochs.newest(id).is_some_and(|newest| newest.term == record.term)
                {
                    self.checks.tip(id, at);
                }
            }
            if serves.is_some() && serves != seen.0 {
                self.serves(node, &record);
            }
        }
    }

    fn serves(&mut self, node: u32, record: &PartitionRecord) {
        self.trace.note(self.now(), format_args!("n{node} serves p{} in {}", record.id.0, record.epoch));
        let Some(process) = &self.machine(node).process else { return };
        let Some(tip) = process.host.replica(record.id).map(|replica| replica.log().end()) else { return };
        let newest = self.checks.epochs.newest(record.id);
        if newest.is_none_or(|newest| newest.term != record.term) {
            return;
        }
        self.checks.availability.serves(record.id, self.now(), record.term);
        let written = self.checks.epochs.get(record.id, record.term.began()).cloned();
        let written = written.unwrap_or_else(|| record.clone());
        let last = self.checks.epochs.before(&written);
        let past = (&self.checks.lineage, Some(&self.checks.epochs));
        let verdict = self.checks.survival.serves(self.now(), past, last, &written, tip);
        self.checks.expect("I1", self.now(), verdict);
        self.checks.tip(record.id, tip);
    }

    /// Now and then: states, cover, and who is good again. Every state is read again if `all` are.
    pub(super) fn look_at_all(&mut self, all: bool) {
        for node in 1..=self.plan.nodes {
            let met = self.machine(node).disk.take_met();
            met.into_iter().for_each(|what| self.injected(what));
            let unread = self.unread(node, all);
            self.look_at_states(node, &unread);
            self.look_at_indexes(node, &unread);
            self.look_at_loads(node, &unread);
            self.look_at_tables(node, &unread);
            self.look_at_cover(node);
            self.look_at_repair(node);
        }
    }

    /// In a world that has converged nothing is kept of what was shipped (I8, F12), once what is being
    /// shipped has arrived.
    pub(super) fn left_of_ships(&self) -> Option<String> {
        let (mut left, files) = (Vec::new(), self.machines.files());
        for record in self.checks.epochs.records() {
            for member in &record.in_sync {
                let machine = self.machine(member.node.0);
                let hangs = |member: &types::Member| self.machine(member.node.0).health.hangs();
                let to_others = !record.catching_up.is_empty() || record.in_sync.iter().any(hangs);
                let sends = *member == record.primary && to_others;
                if machine.member() != Some(*member) || sends || hangs(member) {
                    continue;
                }
                // What a directory has that is away nobody can look after.
                let there = |dir: &&str| dir != &SECOND || machine.second.is_there();
                for directory_of in [FIRST, SECOND].into_iter().filter(there) {
                    let mut names = machine.disk.names(&PartFiles::dir(directory_of, record.id));
                    names.extend(files.left_over(place(machine.id, directory_of, record.id)));
                    left.extend(names.into_iter().map(|name| format!("n{}: {name}", machine.id)));
                }
            }
        }
        (!left.is_empty()).then(|| format!("files of no version are left: {}", left.join(", ")))
    }

    /// I7: components and log together have everything.
    fn look_at_cover(&mut self, node: u32) {
        let Some(process) = &self.machine(node).process else { return };
        let mut gaps = Vec::new();
        for replica in process.host.replicas() {
            let id = replica.id();
            let counted =
                self.checks.epochs.newest(id).is_some_and(|record| record.in_sync.contains(&process.member));
            let (Some((base, _)), false) = (process.logs.log().base(id), process.logs.is_in_memory(id))
            else {
                continue;
            };
            // A log that is about to begin again has said so to the disk already: it does so before anything
            // that follows.
            if process.logs.begins_again(id) || process.storage.held.holds(id) {
                continue;
            }
            let persisted = replica.engine().persisted();
            if counted && !process.reports.damaged().contains(&id) {
                gaps.push(nodes::check_reach(At(NodeId(node), id), base, persisted));
            }
        }
        for gap in gaps {
            self.checks.expect("I7", self.now(), gap);
        }
    }

    /// A node whose disk was harmed is good again once it counts everywhere in its present life.
    fn look_at_repair(&mut self, node: u32) {
        let machine = self.machine(node);
        let Some(process) = machine.process.as_ref().filter(|_| machine.health.is_impaired()) else { return };
        let trouble = machine.disk.trouble();
        if trouble.fail_sync || trouble.misdirect || trouble.flip_read || trouble.fail_reads > 0 {
            return;
        }
        let member = process.member;
        let good = process.reports.damaged().is_empty()
            && self.checks.epochs.records().all(|record| {
                let held = record.members().any(|other| other.node.0 == node);
                !held || record.in_sync.contains(&member)
            });
        // What rots silently is found at a start only: the node must have been started since.
        let rots = self.machines.files().is_damaged(node);
        if good && !rots && machine.starts.lives() > 1 && machine.health.has_restarted() {
            self.machine_mut(node).health.recovers();
            self.checks.survival.made_good(self.now(), NodeId(node));
        }
    }

    /// True if a partition's recorded primary serves it. An executor that stands still by itself does not.
    pub(super) fn is_serving(&self, record: &PartitionRecord) -> bool {
        let machine = self.machine(record.primary.node.0);
        let hangs = machine.standing.hangs(self.plan.executors.of(record.id));
        let process = machine.process.as_ref().filter(|process| process.member == record.primary && !hangs);
        process.and_then(|process| process.host.replica(record.id)).is_some_and(|replica| replica.serves())
    }

    /// True if the primary's disk hangs for good, with something to write or a log that was full before, and
    /// others could lead (PR-300, PR-351).
    fn is_led_by_hung_disk(&self, record: &PartitionRecord) -> bool {
        let machine = self.machine(record.primary.node.0);
        let Some(process) = machine.process.as_ref().filter(|_| machine.health.hangs()) else { return false };
        let writes = |replica: &replica::Replica| {
            replica.log().durable() < replica.log().end().lsn || process.logs.is_full()
        };
        let owes = process.host.replica(record.id).is_some_and(writes);
        record.policy.log == LogKind::Disk && record.in_sync.len() > 1 && owes
    }

    /// What a healed world still lacks; none: it has converged (I13).
    pub(super) fn what_is_missing(&self) -> Option<String> {
        let mut closed = BTreeSet::new();
        for record in self.checks.epochs.records() {
            if !self.is_serving(record) {
                if self.is_closed_for_good(record) {
                    closed.insert(record.id);
                    continue;
                }
                return Some(format!("{} does not serve: {}", record.id, self.state_of(record)));
            }
            if self.is_led_by_hung_disk(record) {
                return Some(format!("{} is led where the disk hangs: {}", record.id, self.state_of(record)));
            }
            let wanted = self.copies_wanted(record);
            if record.in_sync.len() < wanted || record.next_policy.is_some() {
                return Some(format!("{} has too few copies in sync: {}", record.id, self.state_of(record)));
            }
            if let Some(member) = self.stages_a_load(record) {
                return Some(format!("{member} has files of a load that is given up"));
            }
            if let Some(lacks) = self.lacks_indexes(record) {
                return Some(lacks);
            }
            if let Some(lacks) = self.lacks_removal(record) {
                return Some(lacks);
            }
            if let Some(behind) = self.who_is_behind(record) {
                return Some(format!("{}: {behind}: {}", record.id, self.state_of(record)));
            }
        }
        // I13 speaks of partitions with an eligible copy: what is asked of the others need not end.
        let waits = self.clients.wait_beyond(&closed);
        waits.then(|| "a client's operation does not end".to_string())
    }

    /// A partition that everybody forgot, of main memory or with a member whose disk is gone, stays closed
    /// until an operator speaks (PR-17), and so does one whose set shrank to a member whose disk was lost
    /// just then, or rotted, or of which nobody has a whole log.
    pub(super) fn is_closed_for_good(&self, record: &PartitionRecord) -> bool {
        let faulted = |member: &types::Member| {
            let machine = self.machine(member.node.0);
            // What rots silently may be found while the process runs.
            let finds = || {
                let process = machine.process.as_ref();
                process.is_some_and(|process| process.reports.damaged().contains(&record.id))
            };
            // A sync that failed costs a replica whose files were to be synced, and nothing else of its disk.
            let unsynced = machine.disk.syncs().1 > 0 && machine.member() == Some(*member);
            machine.health.is_impaired() && (machine.has_ended(member) || finds()) || unsynced && finds()
        };
        let stranded = self.is_stranded(record.id);
        if stranded || record.in_sync.iter().all(faulted) || self.has_no_whole_log(record) {
            return true;
        }
        let present = |member: &types::Member| self.machine(member.node.0).member();
        let forgotten = |member: &types::Member| present(member) != Some(*member);
        let replaced = |member: &types::Member| present(member).is_some_and(|now| !now.same_store(member));
        let waits = record.policy.log == LogKind::Memory
            || !survives_restart(&record.policy) && record.in_sync.iter().any(replaced);
        waits && record.in_sync.iter().all(forgotten)
    }

    /// True if the end of every log that the set has was torn in a crash, so that it fences nothing (PR-18),
    /// and what the others had is lost with their disks. Where acknowledgements rest on the primary alone
    /// that is given up after a while (PR-141).
    pub(super) fn has_no_whole_log(&self, record: &PartitionRecord) -> bool {
        let replica = |member: &Member| {
            let process = self.machine(member.node.0).process.as_ref()?;
            let here = process.host.replica(record.id).filter(|_| process.member.same_store(member));
            here.filter(|replica| !replica.is_damaged())
        };
        let lost = |member: &&Member| {
            let machine = self.machine(member.node.0);
            machine.process.is_some()
                && machine.health.is_impaired()
                && machine.has_ended(member)
                && replica(member).is_none()
        };
        // A clean stop does not bring back what a crash before it tore off.
        let torn = |member: &Member| replica(member).is_some_and(|replica| replica.log().is_torn());
        let (gone, there): (Vec<&Member>, Vec<&Member>) = record.in_sync.iter().partition(lost);
        !gone.is_empty() && !rests_on_primary(&record.policy) && there.into_iter().all(torn)
    }

    /// Partitions that no healing opens again.
    pub(super) fn closed_for_good(&self) -> Vec<PartitionId> {
        let closed = |record: &&PartitionRecord| !self.is_serving(record) && self.is_closed_for_good(record);
        self.checks.epochs.records().filter(closed).map(|record| record.id).collect()
    }

    fn copies_wanted(&self, record: &PartitionRecord) -> usize {
        if self.counts.has("drain") {
            // A drained node is to have no copies.
            return usize::from(record.policy.min_in_sync);
        }
        let alive = self
            .machines
            .iter()
            .filter(|machine| machine.process.is_some() && !machine.health.hangs())
            .filter(|machine| !self.is_removed(machine.id) && !self.is_decommissioning(machine.id));
        usize::from(record.policy.factor).min(alive.count())
    }

    fn who_is_behind(&self, record: &PartitionRecord) -> Option<String> {
        let replica = |member: &types::Member| {
            let process =
                self.machine(member.node.0).process.as_ref().filter(|process| process.member == *member);
            process.and_then(|process| process.host.replica(record.id))
        };
        let first = replica(&record.primary)?;
        for member in &record.in_sync {
            let Some(other) = replica(member) else { return Some(format!("{member} is not there")) };
            let hangs = |member: &types::Member| self.machine(member.node.0).health.hangs();
            let to_others = !record.catching_up.is_empty() || record.in_sync.iter().any(hangs);
            let sends = *member == record.primary && to_others;
            if other.is_shipping() && !sends && !hangs(member) {
                return Some(format!("files are on their way from or to {member}"));
            }
            if other.engine().pending_load().is_some() && !hangs(member) {
                return Some(format!("a bulk load is not installed at {member}"));
            }
            let (here, there) = (other.log().end(), first.log().end());
            if here != there || other.marks().committed() != first.marks().committed() {
                return Some(format!("{member} ends at {here} of {there}"));
            }
        }
        None
    }

    pub(super) fn state_of(&self, record: &PartitionRecord) -> String {
        let mut text = format!(
            "{} {:?} in sync {:?} catching up {:?}",
            record.epoch, record.cause, record.in_sync, record.catching_up
        );
        for machine in self.machines.iter() {
            let Some(process) = &machine.process else { continue };
            let status = process.host.status(machine.clock.read(self.now()));
            let status = status.into_iter().find(|status| status.partition == record.id);
            if let Some(status) = status.filter(|status| status.role != Role::Idle) {
                text += &format!(
                    "; {} is {:?} in {} with {} committed {} {}",
                    process.member, status.role, status.epoch, status.marks, status.committed, status.waits
                );
            }
            if process.logs.is_full() {
                let oldest = process.logs.log().holding_back();
                let status = process.host.status(machine.clock.read(self.now()));
                let status = status.into_iter().filter(|status| oldest.contains(&status.partition));
                let oldest: Vec<_> =
                    status.map(|status| (status.partition, status.role, status.marks)).collect();
                text += &format!("; the log of {} is full, and its oldest is of {oldest:?}", process.member);
            }
        }
        text
    }
}

/// The record as if its policy counted every member. Each had it on its disk; who joins later has it in
/// memory at least.
fn as_secured(mut record: PartitionRecord) -> PartitionRecord {
    if !rests_on_primary(&record.policy) {
        return record;
    }
    let careful = Policy::preset("semi", record.policy.factor, record.policy.log).expect("a preset");
    let Policy { min_in_sync, below, .. } = record.policy;
    (record.policy, record.next_policy) = (Policy { min_in_sync, below, ..careful }, None);
    record
}
