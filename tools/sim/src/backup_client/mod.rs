//! A client that makes backups of the tables and of the database, and restores them into another table of the
//! same cluster, or what another cluster had into this one, as `understudy backup` does: a point over all
//! partitions, their rows page by page at that point, rows put in batches, and what is there then read back.
//! It is the native client's core, and the machines that the command uses ([`ClusterSnapshot`],
//! [`replica::SnapshotPages`]), over the simulated network.

mod reading;
mod restore;

use crate::check::backups::{Backup, Restored};
use crate::client::shell::Shell;
use crate::client::{ClientEffect, LinkNews};
use crate::network::{Conn, Endpoint};
use crate::plan::{Part, RunPlan};
use crate::random::Stream;
use ::client::{Call, Completed, CoreConfig, FailKind, LaneId, Outcome, Ticket};
use reading::{Reading, Source};
use replica::cluster_snapshot::{Ask, ClusterSnapshot, Found};
use restore::Restoring;
use std::collections::{BTreeMap, VecDeque};
use types::{Lsn, Micros, PartitionId, Position, Rules, TableId};
use wire::request::ReadSnapshot;
use wire::{Message, Op, ReadLevel};

/// Every call waits so long, if nothing else is said.
const CALL_TIMEOUT: Micros = Micros::from_millis(1_500);
/// A search for a point is given up after this.
const WAIT_LIMIT_US: u64 = 1_500_000;
/// How long partitions are asked to be held.
const HOLD_MS: u32 = 2_000;
/// How long copies may take to say that they keep the state too.
const COPIES: Micros = Micros::from_millis(150);
/// How often states are asked to be kept.
const KEEP_EVERY_US: u64 = 1_000_000;
/// Rows of a page.
const ROWS: u32 = 3;

/// What a call is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// A partition is held, or goes on.
    Ask(PartitionId),
    /// A copy keeps the state while all partitions are held.
    Hold,
    /// The states are kept while they are read.
    Keep,
    /// The catalog of a database with this partition.
    Catalog(PartitionId),
    /// A page of what has this place among what is read.
    Page(usize),
    /// Rows go into the other table.
    Put,
    /// They are read back.
    Look,
}

/// A search for a point.
struct Search {
    began: u64,
    snapshot: ClusterSnapshot,
    /// Copies that have not said yet that they keep the state; none were asked.
    copies: Option<usize>,
}

enum BackupStage {
    Idle,
    Searching(Search),
    Reading(Reading),
    Restoring(Restoring),
}

/// The client.
pub struct BackupClient {
    random: Stream,
    rules: Rules,
    shell: Shell,
    /// Under which name each partition is asked for states.
    sources: BTreeMap<PartitionId, Source>,
    /// What rows are restored into.
    target: Vec<(PartitionId, TableId)>,
    /// Backups of another cluster that are not restored here yet.
    given: VecDeque<Backup>,
    typed: bool,
    stage: BackupStage,
    /// Each attempt has a lane of its own, and its calls are no other one's.
    lane: LaneId,
    calls: BTreeMap<Ticket, (LaneId, Purpose)>,
    next_at: u64,
    made: Vec<Backup>,
    restored: Vec<Restored>,
    seen: Vec<&'static str>,
    fault: Option<String>,
}

impl BackupClient {
    /// The client of a plan with backups, with the name of a client.
    pub fn new(id: u32, mut random: Stream, plan: &RunPlan, rules: Rules) -> BackupClient {
        let config = CoreConfig {
            window: 1 + random.below(4) as usize,
            attempt_timeout: Micros::from_millis(400),
            patience: CALL_TIMEOUT,
            idle: Micros::from_millis(5_000),
            seed: random.next(),
            rules,
        };
        let bare = plan.bare_partitions();
        let bare = bare.map(|(partition, table)| Source { partition, table, version: 1 });
        let database = plan.database().map(|(partition, table)| Source { partition, table, version: 0 });
        let target = plan.partitions().filter(|(_, _, table)| table.part == Part::Restored);
        BackupClient {
            random,
            rules,
            shell: Shell::new(id, config, plan.controllers),
            sources: bare.chain(database).map(|source| (source.partition, source)).collect(),
            target: target.map(|(partition, number, _)| (partition, number)).collect(),
            given: plan.workload.given.iter().cloned().collect(),
            typed: plan.workload.indexes,
            stage: BackupStage::Idle,
            lane: LaneId(0),
            calls: BTreeMap::new(),
            next_at: 0,
            made: Vec::new(),
            restored: Vec::new(),
            seen: Vec::new(),
            fault: None,
        }
    }

    /// Backups that are complete.
    pub fn made(&self) -> &[Backup] {
        &self.made
    }

    /// What came of those that were restored.
    pub fn restored(&self) -> &[Restored] {
        &self.restored
    }

    /// What happened since the last call, to be counted.
    pub fn take_seen(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.seen)
    }

    /// What an answer said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// When it has something to do next, if nothing happens before.
    pub fn wakes_at(&self) -> Option<u64> {
        self.shell.core().next_timer().map(|at| at.0)
    }

    /// Does what is due. Nothing new is begun unless `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        self.shell.tick(now);
        let knows = self.sources.keys().all(|id| self.shell.core().map().partition(*id).is_some());
        match &mut self.stage {
            BackupStage::Idle if goes_on && knows && now >= self.next_at => self.begin(now),
            BackupStage::Searching(search) if now >= search.began + WAIT_LIMIT_US => {
                search.snapshot.give_up("not every partition answered in time");
            }
            BackupStage::Reading(reading) if now >= reading.kept_at + KEEP_EVERY_US => {
                reading.kept_at = now;
                for (partition, at) in reading.unread() {
                    self.hold(now, partition, at, (CALL_TIMEOUT, Purpose::Keep));
                }
            }
            _ => {}
        }
        self.turn(now);
        self.shell.take_effects()
    }

    /// There is news of a connection.
    pub fn linked(&mut self, now: u64, to: Endpoint, news: LinkNews) {
        let random = &mut self.random;
        self.shell.linked(now, to, news, || random.between(1_000, 50_000));
        self.turn(now);
    }

    /// A message came.
    pub fn hear(&mut self, now: u64, from: (Endpoint, Conn), message: Message) {
        let random = &mut self.random;
        self.shell.hear(now, from, message, || random.between(1_000, 50_000));
        self.fault = self.fault.take().or(self.shell.take_fault());
        self.turn(now);
    }

    fn turn(&mut self, now: u64) {
        self.go_on(now);
        self.shell.carry_out(now);
        self.shell.take_sent();
        while let Some(Completed { ticket, outcome, .. }) = self.shell.next_completed() {
            // What an attempt asked that was given up is nobody's any more.
            let Some((lane, purpose)) = self.calls.remove(&ticket) else { continue };
            if lane == self.lane {
                self.ended(now, purpose, outcome);
                self.go_on(now);
            }
            self.shell.carry_out(now);
        }
        if !self.shell.core_mut().take_losses().is_empty() && matches!(self.stage, BackupStage::Restoring(_))
        {
            self.give_up(now, "restore-given-up");
        }
    }

    fn submit(&mut self, now: u64, call: Call, within: Micros, purpose: Purpose) {
        let ticket = self.shell.submit(now, self.lane, call.within(within));
        self.calls.insert(ticket, (self.lane, purpose));
    }

    fn begin(&mut self, now: u64) {
        self.lane = LaneId(self.lane.0 + 1);
        if let Some(backup) = self.given.front() {
            self.stage = BackupStage::Restoring(Restoring::new(backup, "given", self.typed));
            return self.restore(now);
        }
        let snapshot = ClusterSnapshot::new(self.sources.keys().copied(), self.rules);
        self.stage = BackupStage::Searching(Search { began: now, snapshot, copies: None });
    }

    /// The attempt is over: another begins after a while.
    fn give_up(&mut self, now: u64, why: &'static str) {
        self.seen.push(why);
        self.rest(now);
    }

    fn rest(&mut self, now: u64) {
        self.next_at = now + self.random.between(50_000, 700_000);
        self.stage = BackupStage::Idle;
    }

    /// Asks the primary and every in-sync copy of a partition to keep a state. How many were asked.
    fn hold(
        &mut self,
        now: u64,
        id: PartitionId,
        at: Position,
        (within, purpose): (Micros, Purpose),
    ) -> usize {
        let record = self.shell.core().map().partition(id);
        let members: Vec<_> = record.iter().flat_map(|r| &r.in_sync).map(|member| member.node).collect();
        let read = ReadLevel::Any { max_lag_ms: 60_000, min_lsn: Lsn::ZERO };
        for node in &members {
            let op = Op::Hold { at: ReadSnapshot::At(at) };
            let call = self.sources[&id].call(op).at_level(read).at_node(*node);
            self.submit(now, call, within, purpose);
        }
        members.len()
    }

    /// Asks what is to be asked now.
    fn go_on(&mut self, now: u64) {
        match &self.stage {
            BackupStage::Searching(_) => self.search(now),
            BackupStage::Reading(_) => self.read(now),
            BackupStage::Restoring(_) => self.restore(now),
            BackupStage::Idle => {}
        }
    }

    fn search(&mut self, now: u64) {
        let BackupStage::Searching(search) = &mut self.stage else { return };
        if search.copies.is_none()
            && let Some(at) = search.snapshot.paused()
        {
            search.copies = Some(0);
            let asked: usize =
                at.into_iter().map(|(id, at)| self.hold(now, id, at, (COPIES, Purpose::Hold))).sum();
            if let BackupStage::Searching(search) = &mut self.stage {
                search.copies = Some(asked);
            }
        }
        let BackupStage::Searching(search) = &mut self.stage else { return };
        if search.copies.is_some_and(|copies| copies > 0) && search.snapshot.found() == Found::NotYet {
            return;
        }
        let asks = search.snapshot.asks();
        let (found, began) = (search.snapshot.found(), search.began);
        for ask in asks {
            let (partition, op) = match ask {
                Ask::Pause(partition) => (partition, Op::Pause { for_ms: HOLD_MS }),
                Ask::Resume(partition, at) => (partition, Op::Resume { at }),
            };
            let call = self.sources[&partition].call(op);
            self.submit(now, call, Micros(WAIT_LIMIT_US), Purpose::Ask(partition));
        }
        match found {
            Found::NotYet => {}
            // Everybody who is held was asked to go on above.
            Found::Void(_) => self.rest(now),
            Found::ClusterSnapshot(at) => {
                let sources = self.sources.values().copied();
                let reading = Reading::new(now, Backup::new(began, at), sources, self.rules);
                self.stage = BackupStage::Reading(reading);
                self.read(now);
            }
        }
    }

    fn read(&mut self, now: u64) {
        loop {
            let BackupStage::Reading(reading) = &mut self.stage else { return };
            let Some((source, op, purpose)) = reading.next_ask() else { break };
            self.submit(now, source.call(op), CALL_TIMEOUT, purpose);
        }
        let BackupStage::Reading(reading) = &self.stage else { return };
        if let Some(backup) = reading.done().cloned() {
            self.seen.push(if backup.tables.is_empty() { "backup-made" } else { "backup-of-tables-made" });
            let restoring = Restoring::new(&backup, &self.made.len().to_string(), self.typed);
            self.stage = BackupStage::Restoring(restoring);
            self.made.push(backup);
            self.restore(now);
        }
    }

    /// A call has ended.
    fn ended(&mut self, now: u64, purpose: Purpose, outcome: Outcome) {
        match (&mut self.stage, purpose) {
            (BackupStage::Searching(search), Purpose::Ask(partition)) => {
                let answer = match outcome {
                    Outcome::Ok(answer) => Ok(answer.position()),
                    other => Err(format!("{other:?}")),
                };
                search.snapshot.heard(partition, answer);
            }
            (BackupStage::Searching(search), Purpose::Hold) => {
                search.copies = search.copies.map(|copies| copies.saturating_sub(1));
            }
            (BackupStage::Reading(reading), Purpose::Catalog(_) | Purpose::Page(_)) => match outcome {
                Outcome::Ok(answer) => {
                    let verdict = match purpose {
                        Purpose::Catalog(partition) => reading.catalog_came(partition, &answer),
                        Purpose::Page(stream) => reading.page_came(stream, answer),
                        _ => Ok(()),
                    };
                    self.fault = self.fault.take().or(verdict.err());
                }
                Outcome::Failed(FailKind::TooOld, _) => self.give_up(now, "backup-from-scratch"),
                _ => self.give_up(now, "backup-given-up"),
            },
            (BackupStage::Restoring(restoring), Purpose::Put | Purpose::Look) => match outcome {
                Outcome::Ok(answer) => {
                    let verdict = restoring.heard(&answer);
                    self.fault = self.fault.take().or(verdict.err());
                }
                _ => self.give_up(now, "restore-given-up"),
            },
            _ => {}
        }
    }

    fn restore(&mut self, now: u64) {
        loop {
            let BackupStage::Restoring(restoring) = &mut self.stage else { return };
            let Some((at, op, purpose)) = restoring.next_ask(self.target.len()) else { break };
            let (partition, table) = self.target[at];
            self.submit(now, Call::new(table, 1, partition, op), CALL_TIMEOUT, purpose);
        }
        let into: Vec<PartitionId> = self.target.iter().map(|(partition, _)| *partition).collect();
        if let BackupStage::Restoring(restoring) = &self.stage
            && let Some(restored) = restoring.done(&into)
        {
            self.restored.push(restored);
            self.seen.push(match self.given.pop_front() {
                Some(_) => "backup-of-another-cluster-restored",
                None => "backup-restored",
            });
            self.rest(now);
        }
    }
}
