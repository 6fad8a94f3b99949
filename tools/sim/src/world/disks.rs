//! The disk's side of a node: group commit, marks when idle, components, entries read back, tails set aside.

use super::machines::End;
use super::{Event, World};
use crate::disk::Disk;
use replica::{LogOp, ReadFor};
use std::collections::{BTreeMap, BTreeSet};
use types::config::TailReport;
use types::engine::Version;
use types::{EngineError, Lsn, PartitionId};
use wal::{LogError, ReadLog, Record};
use wire::{Entry, Message};

/// How long a log is idle before its mark is written.
const IDLE: u64 = 5_000;
/// A refused batch is tried again after this.
const RETRY: u64 = 20_000;
/// Names of tails begin so.
const TAILS: &str = "tails/";

/// What the replica asks for, as the log takes it.
pub(super) fn record_of(op: LogOp) -> Record {
    match op {
        LogOp::Entry(entry) => Record::Entry(entry),
        LogOp::Truncate { partition, to } => Record::Truncate { partition, to },
        LogOp::Base { partition, at, crc } => Record::Base { partition, at, crc },
        LogOp::Trim { partition, below } => Record::Trim { partition, below },
        LogOp::Promise { partition, epoch } => Record::Promise { partition, epoch },
        LogOp::Note { partition, note, value } => Record::Custom { partition, key: note as u16, value },
    }
}

/// The reports of all tails on a disk, as far as they can be read: a file begins with one.
pub(super) fn tails_on(disk: &Disk) -> Vec<TailReport> {
    let read = |name: String| {
        let bytes = disk.read(&name).ok()?;
        serde_json::Deserializer::from_slice(&bytes).into_iter().next()?.ok()
    };
    disk.names(TAILS).into_iter().filter_map(read).collect()
}

impl World {
    /// Takes a change of a log: at once for a main-memory table, with the next batch for the disk.
    pub(super) fn log(&mut self, node: u32, op: LogOp) {
        let record = record_of(op);
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        if process.logs.in_memory.contains(&record.partition()) {
            process.logs.memory.append(&[record]);
        } else {
            process.logs.queue.push(record);
        }
    }

    /// Starts a batch if the disk is idle: everything that waits is one write and one sync. A disk that refused is tried
    /// again in its own time.
    pub(super) fn start_batch(&mut self, node: u32) {
        let refused =
            self.machine(node).process.as_ref().is_some_and(|process| process.logs.refused.is_some());
        if !refused {
            self.write_batch(node);
        }
    }

    fn write_batch(&mut self, node: u32) {
        let now = self.now();
        let (most, stuck) = (self.machine(node).health.sync_us(), self.machine(node).health.stuck_until());
        let latency = 30 + self.schedule.timing().below(most);
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        if process.logs.queue.is_empty() {
            // Nothing waits for room any more: what comes next is not held back by what was refused before.
            process.logs.refused = None;
        }
        if process.logs.syncing.is_some() || process.logs.queue.is_empty() {
            return;
        }
        let incarnation = process.incarnation;
        match process.logs.log.append(&process.logs.queue) {
            Ok(()) => {
                process.logs.queue.clear();
                process.logs.syncing = Some(now);
                process.logs.refused = None;
                self.at((now + latency).max(stuck), Event::Synced { node, incarnation });
            }
            Err(error) if !matches!(error, LogError::Full { .. }) => {
                self.trace.note(now, format_args!("n{node}'s log cannot be written: {error}"));
                self.disk_failed(node);
            }
            Err(error) => {
                if process.logs.refused.is_none() {
                    process.logs.refused = Some(now);
                    self.trace.note(now, format_args!("n{node}'s log refuses: {error}"));
                    self.injected("log-refused");
                }
                self.make_room(node, latency);
                self.input(node, |host, now, out| host.short_of_room(now, out));
                self.promises_no_log(node, None);
                self.after(RETRY, Event::Retry { node, incarnation });
            }
        }
    }

    /// What shortens a log is taken by a full one too, ahead of the entries that wait for room, and so is what comes before a
    /// partition's first entry that needs room (F20).
    fn make_room(&mut self, node: u32, latency: u64) {
        let (now, stuck) = (self.now(), self.machine(node).health.stuck_until());
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        without_replaced(&mut process.logs.queue);
        let moves = |record: &Record| {
            matches!(record, Record::Base { .. } | Record::Truncate { .. } | Record::Forget { .. })
        };
        let fixed: BTreeSet<PartitionId> =
            process.logs.queue.iter().filter(|record| moves(record)).map(Record::partition).collect();
        let shortens = |record: &Record| match record {
            Record::Trim { partition, below } => {
                let written =
                    process.logs.log.end(*partition).is_some_and(|(end, _)| *below <= end.lsn.next());
                written && !fixed.contains(partition)
            }
            _ => false,
        };
        let mut waits = BTreeSet::new();
        let (first, rest): (Vec<Record>, Vec<Record>) =
            process.logs.queue.iter().cloned().partition(|record| {
                if record.needs_room() {
                    waits.insert(record.partition());
                }
                !waits.contains(&record.partition()) || shortens(record)
            });
        if !first.is_empty() && process.logs.log.append(&first).is_ok() {
            let incarnation = process.incarnation;
            process.logs.queue = rest;
            process.logs.syncing = Some(now);
            self.at((now + latency).max(stuck), Event::Synced { node, incarnation });
        }
    }

    pub(super) fn retry_log(&mut self, node: u32, incarnation: u64) {
        let Some(process) =
            self.machine(node).process.as_ref().filter(|process| process.incarnation == incarnation)
        else {
            return;
        };
        match process.logs.syncing {
            Some(_) => self.after(RETRY, Event::Retry { node, incarnation }),
            None => self.write_batch(node),
        }
    }

    /// A failed sync stops the node (R10).
    fn disk_failed(&mut self, node: u32) {
        self.end(node, End::Crash);
        let wait = 100_000 + self.schedule.timing().below(1_000_000);
        self.start_later(node, wait);
    }

    pub(super) fn synced(&mut self, node: u32, incarnation: u64) {
        if self.machine(node).incarnation() != Some(incarnation) {
            return;
        }
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        process.logs.syncing = None;
        let tokens = match process.logs.log.sync() {
            Ok(tokens) => tokens,
            Err(_) => return self.disk_failed(node),
        };
        if process.logs.log.reclaim().is_err() {
            return self.disk_failed(node);
        }
        if let Some(order) = process.logs.log.wants_spare() {
            process.logs.log.add_spare(order.make());
        }
        // The batch just synced names what was synced before it.
        self.checks.storage.settle(types::NodeId(node));
        for (partition, token) in &tokens {
            self.checks.storage.proven(types::NodeId(node), *partition, token.get());
        }
        self.input(node, |host, now, out| host.synced(now, &tokens, out));
        self.start_batch(node);
        self.after(IDLE, Event::Mark { node, incarnation });
    }

    pub(super) fn mark_log(&mut self, node: u32, incarnation: u64) {
        let stuck = self.machine(node).health.is_stuck(self.now());
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        let idle = process.incarnation == incarnation
            && process.logs.syncing.is_none()
            && process.logs.queue.is_empty();
        if !idle || stuck || !process.logs.log.wants_mark() {
            return;
        }
        match process.logs.log.mark() {
            // From here on no damage to the last batch is taken for a torn end (PR-18).
            Ok(()) => self.checks.storage.settle(types::NodeId(node)),
            Err(LogError::Poisoned { .. }) => self.disk_failed(node),
            Err(_) => {}
        }
    }

    /// Makes components of some partitions.
    pub(super) fn checkpoint(&mut self, node: u32, incarnation: u64) {
        if self.machine(node).incarnation() != Some(incarnation) {
            return;
        }
        let wait = 300_000 + self.schedule.timing().below(3_000_000);
        self.after(wait, Event::Checkpoint { node, incarnation });
        if self.machine(node).health.is_stuck(self.now()) {
            return;
        }
        let random = self.schedule.timing().next();
        let lsm = |id: &PartitionId| self.plan.is_lsm(*id);
        let Some(process) = &self.machine(node).process else { return };
        let ids: Vec<PartitionId> = process.host.replicas().map(|replica| replica.id()).collect();
        let files: BTreeSet<PartitionId> = ids.iter().copied().filter(lsm).collect();
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        let mut made = Vec::new();
        let mut begun = Vec::new();
        for (turn, id) in ids.into_iter().enumerate() {
            if random >> turn & 1 == 0 || process.logs.in_memory.contains(&id) {
                continue;
            }
            if files.contains(&id) {
                begun.push(id);
                continue;
            }
            // A full disk is no reason to stop: the log below is kept for longer.
            if let Some(Ok(position)) = process.host.replica_mut(id).map(|replica| replica.checkpoint()) {
                made.push((id, position));
            }
        }
        for (id, position) in made {
            self.trace.note(self.now(), format_args!("n{node} makes a component of p{} at {position}", id.0));
        }
        self.look_at(node);
        begun.into_iter().for_each(|id| self.begin_checkpoint(node, id));
    }

    /// Makes a component of a partition because a member asked for it.
    pub(super) fn flush_engine(&mut self, node: u32, incarnation: u64, partition: PartitionId) {
        let usable = self.machine(node).incarnation() == Some(incarnation)
            && !self.machine(node).health.is_stuck(self.now());
        if usable && self.plan.is_lsm(partition) {
            return self.begin_checkpoint(node, partition);
        }
        let Some(process) = self.machine_mut(node).process.as_mut().filter(|_| usable) else { return };
        let made = process.host.replica_mut(partition).map(|replica| replica.checkpoint());
        match made {
            Some(Ok(position)) => {
                let what = format_args!("n{node} was asked for a component of p{}: {position}", partition.0);
                self.trace.note(self.now(), what);
            }
            Some(Err(EngineError::Corrupt(why))) => {
                self.input(node, |host, now, out| host.fail(now, partition, why, out));
            }
            _ => {}
        }
        self.look_at(node);
    }

    /// Has entries read back, as another thread does.
    pub(super) fn read_log(
        &mut self,
        node: u32,
        incarnation: u64,
        what: (PartitionId, Lsn, usize),
        purpose: ReadFor,
    ) {
        let (partition, from, max_bytes) = what;
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        if process.incarnation != incarnation {
            return;
        }
        let entries = match process.logs.in_memory.contains(&partition) {
            true => process.logs.memory.read(partition, from, max_bytes),
            false => process.logs.log.read(partition, from, max_bytes),
        };
        let entries = entries.map_err(|error| error.to_string());
        if entries.is_err() {
            self.promises_no_log(node, Some(partition));
        }
        self.input(node, |host, now, out| host.log_read(now, partition, purpose, entries, out));
    }

    /// Writes a tail to a file, durably. A node that cannot do so stops: what follows would destroy the only copy (R9).
    pub(super) fn set_aside(
        &mut self,
        node: u32,
        mut report: TailReport,
        entries: &[Entry],
        rows: &[Version],
    ) -> bool {
        // The checksums of a log are a chain: the last one names all of it. The same tail comes twice after a crash between its
        // file and the cut, and is counted once.
        let crc = entries.last().map_or(0, Entry::crc);
        let first = rows.first().map_or(String::new(), |row| format!("-{:?}-{}", row.key, rows.len()));
        report.file = format!("p{}-{}-{}-{crc:08x}{first}", report.partition.0, report.term, report.from);
        let mut bytes = serde_json::to_vec(&report).expect("a report has only text keys");
        entries.iter().for_each(|entry| bytes.extend_from_slice(entry.bytes()));
        for row in rows {
            bytes.extend_from_slice(&row.key);
            bytes.extend_from_slice(row.value.as_deref().unwrap_or_default());
        }
        let known = self.machine(node).process.iter().flat_map(|process| process.reports.tails());
        if let Some(known) = known.clone().find(|known| known.file == report.file) {
            report = known.clone();
        } else if self.machine(node).disk.replace(&format!("{TAILS}{}", report.file), &bytes).is_err() {
            self.disk_failed(node);
            return false;
        }
        self.trace.note(self.now(), format_args!("n{node} sets aside {report:?}"));
        self.checks.set_aside(self.now(), &report, entries, rows);
        if report.rows.is_some() {
            self.injected("tail-of-rows");
        }
        let Some(process) = self.machine_mut(node).process.as_mut() else { return false };
        process.reports.set_aside(report.clone());
        let conns: Vec<_> = process.links.controllers();
        for conn in conns {
            self.send(conn, true, Message::TailSetAside(report.clone()));
        }
        true
    }
}

/// Takes out what belongs to a log that a later record begins anew: nobody waits for it.
fn without_replaced(queue: &mut Vec<Record>) {
    let mut begins = BTreeMap::new();
    for (at, record) in queue.iter().enumerate() {
        if matches!(record, Record::Base { .. }) {
            begins.insert(record.partition(), at);
        }
    }
    let mut at = 0;
    queue.retain(|record| {
        let replaced = begins.get(&record.partition()).is_some_and(|begins| at < *begins);
        at += 1;
        // Promises and notes are not the log's.
        !replaced || matches!(record, Record::Promise { .. } | Record::Custom { .. })
    });
}
