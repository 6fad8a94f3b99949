//! The disk's side of a node: group commit, marks when idle, components, entries read back, tails set aside.

use super::machines::End;
use super::{Event, TAILS, World};
use crate::disk::Disk;
use crate::node::{Machine, Process};
use driver::held::Next;
use driver::tail_file::{Place, place};
use replica::{Leases, Output, ReadFor};
use std::io;
use types::config::TailReport;
use types::engine::Version;
use types::{Lsn, Micros, PartitionId};
use wire::log::Record;
use wire::{Entry, Message};

/// How long a log is idle before its mark is written.
const IDLE: u64 = 5_000;
impl World {
    /// Takes a change of a log: at once for a main-memory table, with the turn's submission for the disk.
    pub(super) fn log(&mut self, node: u32, op: Record) {
        if let Some(process) = self.machine_mut(node).process.as_mut() {
            process.logs.push(op);
        }
    }

    /// A turn ends: what came in it is submitted. If the disk is idle, everything that waits is one write and
    /// one sync.
    pub(super) fn submit_log(&mut self, node: u32) {
        let now = self.now();
        if let Some(process) = self.machine_mut(node).process.as_mut() {
            process.logs.submit(now);
        }
        self.write_log(node);
    }

    fn write_log(&mut self, node: u32) {
        let (now, health) = (self.now(), &self.machine(node).health);
        let (most, stuck) = (health.sync_us(), health.stuck_until());
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        let (incarnation, was_full) = (process.incarnation, process.logs.is_full());
        match process.logs.write() {
            Ok(None) => {}
            Ok(Some(begun)) => {
                if let Some(error) = begun.refused.filter(|_| !was_full) {
                    self.trace.note(now, format_args!("n{node}'s log refuses: {error}"));
                    self.injected("log-refused");
                }
                let latency = 30 + self.schedule.timing().below(most);
                self.at((now + latency).max(stuck), Event::Synced { node, incarnation });
            }
            Err(error) => {
                self.trace.note(now, format_args!("n{node}'s log cannot be written: {error}"));
                self.disk_failed(node);
            }
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
        let names_synced = process.logs.has_new_frames();
        let Ok(tokens) = process.logs.sync() else { return self.disk_failed(node) };
        let is_full = process.logs.is_full();
        // Each frame of the batch just synced names what was synced before it.
        if names_synced {
            self.checks.storage.settle(types::NodeId(node));
        }
        for (partition, token) in &tokens {
            self.checks.storage.proven(types::NodeId(node), *partition, token.get());
        }
        self.input(node, |host, now, out| host.synced(now, &tokens, out));
        if is_full {
            self.input(node, |host, now, out| host.short_of_room(now, out));
            self.promises_no_log(node, None);
        }
        self.write_log(node);
        self.after(IDLE, Event::Mark { node, incarnation });
    }

    pub(super) fn mark_log(&mut self, node: u32, incarnation: u64) {
        let stuck = self.machine(node).health.is_stuck(self.now());
        let process = self.machine_mut(node).process.as_mut();
        let Some(process) = process.filter(|process| process.incarnation == incarnation && !stuck) else {
            return;
        };
        match process.logs.mark() {
            // From here on no damage to the last batch is taken for a torn end (PR-18).
            Ok(true) => self.checks.storage.settle(types::NodeId(node)),
            Ok(false) => {}
            Err(_) => self.disk_failed(node),
        }
    }

    /// Looks for logs that are too long, and has engines written to disk.
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
        let (plan, hangs_alone) = (self.plan.flushes, self.plan.hangs_alone);
        let Some(Process { host, logs, storage, .. }) = self.machine_mut(node).process.as_mut() else {
            return;
        };
        // Whatever holds back a full log makes room in it.
        if plan.log_bytes.is_some() || logs.is_full() {
            storage.look(host, logs);
        }
        // What a full log needs is done without need in some seeds, or it would hardly ever be (PR-301).
        let apart = match logs.is_full() || hangs_alone {
            true => logs.put_apart(&host.to_put_apart(logs)),
            false => Ok(0),
        };
        match apart {
            Ok(0) => {}
            Ok(_) => self.counts.add("log-put-apart"),
            Err(_) => return self.disk_failed(node),
        }
        let Some(Process { host, logs, storage, .. }) = self.machine_mut(node).process.as_mut() else {
            return;
        };
        let ids = host.replicas().map(|replica| replica.id()).enumerate();
        let drawn =
            ids.filter(|(turn, id)| plan.by_lot && random >> turn & 1 == 1 && !logs.is_in_memory(*id));
        drawn.for_each(|(_, id)| storage.checkpoints.soon(id));
        self.write_engines(node);
        self.look_at(node);
    }

    /// Makes a component of a partition because a member asked for it.
    pub(super) fn flush_engine(&mut self, node: u32, incarnation: u64, partition: PartitionId) {
        let usable = self.machine(node).incarnation() == Some(incarnation)
            && !self.machine(node).health.is_stuck(self.now());
        let Some(process) = self.machine_mut(node).process.as_mut().filter(|_| usable) else { return };
        process.storage.checkpoints.soon(partition);
        self.trace.note(self.now(), format_args!("n{node} is asked for a component of p{}", partition.0));
        self.write_engines(node);
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
        let entries = process.logs.read(partition, from, max_bytes);
        if entries.is_err() {
            self.promises_no_log(node, Some(partition));
        }
        self.input(node, |host, now, out| host.log_read(now, partition, purpose, entries, out));
    }

    /// Writes a tail to a file, durably. Without room for it its partition waits; a node that cannot write it
    /// for another reason stops: what follows would destroy the only copy (R9).
    pub(super) fn set_aside(
        &mut self,
        node: u32,
        report: TailReport,
        entries: Vec<Entry>,
        rows: Vec<Version>,
    ) {
        let (now, partition) = (Micros(self.now()), report.partition);
        self.fill_for_tail(node);
        let written = write_tail(&self.machine(node).disk, &report, (&entries, &rows));
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        match written {
            Ok(report) => self.is_set_aside(node, &report, &entries, &rows),
            Err(error) if wal::is_full(&error) => {
                process.storage.held.begin(partition, Output::SetAside { report, entries, rows }, now);
                self.trace.note(now.0, format_args!("n{node} {partition} waits for room for a tail"));
                self.injected("tail-waits");
            }
            Err(_) => self.disk_failed(node),
        }
    }

    /// Tries again what found no room, and goes on with what came after it.
    pub(super) fn retry_held(&mut self, node: u32, incarnation: u64) {
        let now = Micros(self.now());
        let due = self.machine(node).process.iter().flat_map(|process| process.storage.held.due(now));
        for id in due.collect::<Vec<_>>() {
            while self.go_on_held(node, incarnation, id, now) {}
        }
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        // Who waits cannot lead: whoever can is to miss this node's heartbeats.
        for id in process.storage.held.partitions() {
            process.host.leases().lead(id, None);
        }
        self.submit_log(node);
    }

    /// The next of what a partition waits with. False if it waits on, or that was all.
    fn go_on_held(&mut self, node: u32, incarnation: u64, id: PartitionId, now: Micros) -> bool {
        let Machine { disk, process, .. } = self.machine_mut(node);
        let process = process.as_mut().filter(|process| process.incarnation == incarnation);
        let Some(process) = process else { return false };
        let next = process.storage.held.go_on(id, now, |report, entries, rows| {
            match write_tail(disk, report, (entries, rows)) {
                Ok(report) => Ok(Some(report)),
                Err(error) if wal::is_full(&error) => Ok(None),
                Err(error) => Err(error),
            }
        });
        match next {
            Ok(Next::Free) => {
                let replica = process.host.replica(id).filter(|replica| !replica.is_damaged());
                let record = replica.and_then(|replica| replica.record());
                let term = record.filter(|record| record.primary == process.member).map(|record| record.term);
                if term.is_some() {
                    process.host.leases().lead(id, term);
                }
                false
            }
            Ok(Next::Waits) => false,
            Ok(Next::SetAside(report, entries, rows)) => {
                self.is_set_aside(node, &report, &entries, &rows);
                true
            }
            Ok(Next::Carry(output)) => {
                self.carry(node, incarnation, output);
                true
            }
            Err(_) => {
                self.disk_failed(node);
                false
            }
        }
    }

    /// A tail is on the disk: controllers hear of it.
    fn is_set_aside(&mut self, node: u32, report: &TailReport, entries: &[Entry], rows: &[Version]) {
        self.trace.note(self.now(), format_args!("n{node} sets aside {report:?}"));
        self.checks.set_aside(self.now(), report, entries, rows);
        if report.rows.is_some() {
            self.injected("tail-of-rows");
        }
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        process.reports.set_aside(report.clone());
        let conns: Vec<_> = process.links.controllers();
        for conn in conns {
            self.send(conn, true, Message::TailSetAside(report.clone()));
        }
    }
}

/// Writes a tail to its file, and gives the report under which it is there.
fn write_tail(
    disk: &Disk,
    report: &TailReport,
    (entries, rows): (&[Entry], &[Version]),
) -> io::Result<TailReport> {
    let look = |name: &str| match disk.read(&format!("{TAILS}{name}")) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // What is there and cannot be read is another tail's.
        Err(_) => Ok::<_, io::Error>(Some(Default::default())),
    };
    match place(report.clone(), entries, rows, look)? {
        Place::Known(known) => Ok(known),
        Place::New(report, bytes) => {
            disk.replace(&format!("{TAILS}{}", report.file), &bytes)?;
            Ok(report)
        }
    }
}
