//! All clients of a world: those that read and write single rows, and one each that takes points, loads in
//! bulk, and runs jobs.

use crate::backup_client::BackupClient;
use crate::call_client::CallClient;
use crate::check::backups::{Backup, Restored};
use crate::check::calls::Asked;
use crate::check::commits::{GivenUp, TxnOperation};
use crate::check::effects::ReportedLoss;
use crate::check::history::{Answer, Operation};
use crate::check::lineage::Change;
use crate::check::turns::Turn;
use crate::check::{cluster_snapshots::CompleteSnapshot, jobs::JobAnswer, tables::TableOperation};
use crate::client::adversary::Adversary;
use crate::client::native::Native;
use crate::client::{ClientEffect, LinkNews, RowClient};
use crate::job_client::JobClient;
use crate::load_client::LoadClient;
use crate::lsm_files::LsmFiles;
use crate::network::{Conn, Endpoint};
use crate::plan::RunPlan;
use crate::plan::turns::TurnPlan;
use crate::random::{Concern, Stream};
use crate::snapshot_client::SnapshotClient;
use crate::table_client::TableClient;
use crate::turn_client::TurnClient;
use crate::txn_client::{Draws, RecoveryClient, TxnClient};
use std::collections::{BTreeMap, BTreeSet};
use types::{LoadId, PartitionId, Position, Rules, SessionId};
use wire::{Message, Reply};

/// Which client has a number.
enum Which {
    Rows(usize),
    Snapshots,
    Loads,
    Jobs,
    Tables(usize),
    Calls(usize),
    Transactions(usize),
    Recovery,
    Backups,
    Turns(usize),
}

/// What came of a reply.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Operations on rows that ended with it.
    pub ended: u64,
    /// What is worth being counted.
    pub seen: Vec<&'static str>,
    /// What it must never say.
    pub fault: Option<String>,
}

impl Heard {
    /// Of a client of rows: operations that ended with it.
    fn of_rows(ended: &[Operation], fault: Option<&str>) -> Heard {
        let seen = ended.iter().flat_map(Operation::seen).flatten().collect();
        Heard { ended: ended.len() as u64, seen, fault: fault.map(ToString::to_string) }
    }
}

/// The clients, by number: those of rows first.
pub(super) struct Workload {
    rows: Vec<Box<dyn RowClient>>,
    snapshots: SnapshotClient,
    loads: LoadClient,
    jobs: JobClient,
    /// Those of a database's tables.
    tables: Vec<TableClient>,
    /// Those of its procedures.
    calls: Vec<CallClient>,
    /// Those of global transactions, and the recovery manager.
    transactions: (Vec<TxnClient>, RecoveryClient),
    backups: BackupClient,
    /// Those that ask for turns at rows.
    turns: Vec<TurnClient>,
}

impl Workload {
    /// The clients of a plan. Files of loads are made beside those of engines.
    pub fn new(seed: u64, plan: &RunPlan, rules: Rules, files: &mut LsmFiles) -> Workload {
        let draws = |which| Stream::new(seed, Concern::Workload, which);
        let trees = plan.workload.loads && plan.tables.iter().any(|table| table.lsm);
        let scratch = trees.then(|| files.make_root().expect("a directory can be made").join("load"));
        Workload {
            rows: (0..plan.workload.clients)
                .map(|id| row_client(id, draws(u64::from(id)), plan, rules))
                .collect(),
            snapshots: SnapshotClient::new(plan.workload.clients, draws(1_000), plan, rules),
            loads: LoadClient::new(plan.workload.clients + 1, draws(1_001), plan, scratch),
            jobs: JobClient::new(plan.workload.clients + 2, draws(1_002), plan),
            tables: (0..plan.workload.table_clients)
                .filter_map(|at| {
                    let streams = (draws(3_000 + u64::from(at)), draws(3_500 + u64::from(at)));
                    TableClient::new((plan.workload.clients + 3 + at, at), streams, (plan, rules))
                })
                .collect(),
            calls: Workload::callers(plan)
                .filter_map(|id| CallClient::new(id, draws(4_000 + u64::from(id)), plan))
                .collect(),
            transactions: transactions(seed, plan, rules),
            backups: BackupClient::new(Workload::backups(plan), draws(7_000), plan, rules),
            turns: plan.workload.turns.iter().flat_map(|turns| turn_clients(plan, turns)).collect(),
        }
    }

    /// The numbers of those that call procedures: behind all others.
    fn callers(plan: &RunPlan) -> std::ops::Range<u32> {
        let first = plan.workload.clients + 3 + plan.workload.table_clients;
        first..first + plan.calls.map_or(0, |calls| calls.clients)
    }

    /// The number of the one that makes backups.
    fn backups(plan: &RunPlan) -> u32 {
        Workload::callers(plan).end + txn_clients(plan)
    }

    /// The numbers of those that ask for turns at rows: behind all others.
    fn turn_numbers(plan: &RunPlan) -> std::ops::Range<u32> {
        let first = Workload::backups(plan) + 1;
        first..first + plan.workload.turns.map_or(0, |turns| turns.clients)
    }

    /// The numbers of those that a plan wants, each with how long after the first it begins, microseconds.
    pub fn beginnings(plan: &RunPlan) -> Vec<(u32, u64)> {
        let rows = (0..plan.workload.clients).map(|id| (id, u64::from(id) * 1_000));
        let others = [
            (plan.workload.cluster_snapshots, 5_000),
            (plan.workload.loads, 6_000),
            (plan.workload.jobs, 7_000),
        ];
        let others = (plan.workload.clients..).zip(others);
        let others = others.filter(|(_, (wanted, _))| *wanted).map(|(id, (_, us))| (id, us));
        let tables = (plan.workload.clients + 3..plan.workload.clients + 3 + plan.workload.table_clients)
            .map(|id| (id, 8_000 + u64::from(id) * 1_000));
        let calls = Workload::callers(plan).map(|id| (id, 9_000 + u64::from(id) * 1_000));
        let first = Workload::callers(plan).end;
        let transactions = (first..first + txn_clients(plan)).map(|id| (id, 9_000 + u64::from(id) * 1_000));
        let backups = plan.workload.backups.then(|| (Workload::backups(plan), 10_000));
        let turns = Workload::turn_numbers(plan).map(|id| (id, 11_000 + u64::from(id) * 1_000));
        let all = rows.chain(others).chain(tables).chain(calls).chain(transactions);
        all.chain(backups).chain(turns).collect()
    }

    /// The numbers of all, whether a plan wants them or not.
    pub fn ids(plan: &RunPlan) -> std::ops::Range<u32> {
        match plan.workload.turns {
            Some(_) => 0..Workload::turn_numbers(plan).end,
            None => 0..Workload::backups(plan) + u32::from(plan.workload.backups),
        }
    }

    fn which(&self, id: u32) -> Which {
        match (id as usize).checked_sub(self.rows.len()) {
            None => Which::Rows(id as usize),
            Some(0) => Which::Snapshots,
            Some(1) => Which::Loads,
            Some(2) => Which::Jobs,
            Some(at) if at - 3 < self.tables.len() => Which::Tables(at - 3),
            Some(at) => match at - 3 - self.tables.len() {
                at if at < self.calls.len() => Which::Calls(at),
                at => self.which_behind(at - self.calls.len()),
            },
        }
    }

    /// Which of those behind the callers of procedures.
    fn which_behind(&self, at: usize) -> Which {
        let count = self.transactions.0.len();
        match at {
            at if at < count => Which::Transactions(at),
            at if at == count && count > 0 => Which::Recovery,
            at => match at - count - usize::from(count > 0) {
                0 => Which::Backups,
                at => Which::Turns(at - 1),
            },
        }
    }

    /// A client does what is due. Those that have no end begin nothing new unless `goes_on`.
    pub fn step(&mut self, id: u32, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        match self.which(id) {
            Which::Rows(at) => self.rows[at].step(now),
            Which::Snapshots => self.snapshots.step(now, goes_on),
            Which::Loads => self.loads.step(now, goes_on),
            Which::Jobs => self.jobs.step(now, goes_on),
            Which::Tables(at) => self.tables[at].step(now, goes_on),
            Which::Calls(at) => self.calls[at].step(now, goes_on),
            Which::Transactions(at) => self.transactions.0[at].step(now, goes_on),
            Which::Recovery => self.transactions.1.step(now, goes_on),
            Which::Backups => self.backups.step(now, goes_on),
            Which::Turns(at) => self.turns[at].step(now, goes_on),
        }
    }

    /// Loads that were put together since the last call, with what they change.
    pub fn take_made(&mut self) -> Vec<(LoadId, Vec<Change>)> {
        self.loads.take_made()
    }

    /// A connection of a client was made, or not, or broke.
    pub fn linked(&mut self, id: u32, now: u64, (to, slot): (Endpoint, u16), news: LinkNews) {
        match (self.which(id), to) {
            (Which::Rows(at), _) => self.rows[at].linked(now, to, slot, news),
            (Which::Tables(at), _) => self.tables[at].linked(to, news),
            (Which::Transactions(at), _) => self.transactions.0[at].linked(now, to, news),
            (Which::Recovery, _) => self.transactions.1.linked(now, to, news),
            (Which::Backups, _) => self.backups.linked(now, to, news),
            (Which::Snapshots, Endpoint::Node(node)) => self.snapshots.linked(node, news.up()),
            (Which::Loads, Endpoint::Node(node)) => self.loads.linked(node, news.up()),
            (Which::Jobs, Endpoint::Node(node)) => self.jobs.linked(node, news.up()),
            (Which::Calls(at), Endpoint::Node(node)) => self.calls[at].linked(node, news.up()),
            (Which::Turns(at), Endpoint::Node(node)) => self.turns[at].linked(now, node, news),
            _ => {}
        }
    }

    /// A client hears from somebody, on this connection.
    pub fn hear(&mut self, id: u32, now: u64, (from, conn): (Endpoint, Conn), message: Message) -> Heard {
        let reply = match (self.which(id), message) {
            (Which::Rows(at), message) => {
                let client = &mut self.rows[at];
                let before = client.operations().history().len();
                client.hear(now, from, conn, message);
                return Heard::of_rows(&client.operations().history()[before..], client.fault());
            }
            (Which::Tables(at), message) => {
                let client = &mut self.tables[at];
                let before = client.history().len();
                client.hear(now, conn, &message);
                let (ended, fault) = (&client.history()[before..], client.fault().map(ToString::to_string));
                let seen = ended.iter().filter_map(TableOperation::seen).collect();
                return Heard { ended: ended.len() as u64, seen, fault };
            }
            (Which::Transactions(at), message) => {
                let client = &mut self.transactions.0[at];
                let before = client.history().len();
                client.hear(now, (from, conn), message);
                let ended = &client.history()[before..];
                let seen = ended.iter().filter_map(TxnOperation::seen).collect();
                return Heard {
                    ended: ended.len() as u64,
                    seen,
                    fault: client.fault().map(ToString::to_string),
                };
            }
            (Which::Recovery, message) => {
                self.transactions.1.hear(now, (from, conn), message);
                let fault = self.transactions.1.fault().map(ToString::to_string);
                return Heard { fault, ..Heard::default() };
            }
            (Which::Backups, message) => {
                self.backups.hear(now, (from, conn), message);
                let fault = self.backups.fault().map(ToString::to_string);
                return Heard { seen: self.backups.take_seen(), fault, ..Heard::default() };
            }
            (Which::Turns(at), Message::Reply(reply)) => return self.of_turns(at, now, (conn, &reply)),
            (_, Message::Reply(reply)) => reply,
            _ => return Heard::default(),
        };
        match self.which(id) {
            Which::Rows(_) | Which::Tables(_) | Which::Transactions(_) | Which::Recovery => Heard::default(),
            Which::Backups | Which::Turns(_) => Heard::default(),
            Which::Snapshots => {
                self.snapshots.hear(now, &reply);
                Heard::default()
            }
            Which::Loads => {
                let before = self.loaded();
                self.loads.hear(now, &reply);
                let loaded = self.loaded() > before;
                Heard { seen: loaded.then_some("bulk-loaded").into_iter().collect(), ..Heard::default() }
            }
            Which::Calls(at) => {
                let seen = self.calls[at].hear(now, &reply).into_iter().collect();
                Heard { seen, fault: self.calls[at].fault().map(ToString::to_string), ..Heard::default() }
            }
            Which::Jobs => {
                let before = self.jobs.ended();
                self.jobs.hear(now, &reply);
                let (committed, aborted) = self.jobs.ended();
                let seen = (before.0..committed).map(|_| "job-committed");
                let seen = seen.chain((before.1..aborted).map(|_| "job-aborted")).collect();
                Heard { seen, ..Heard::default() }
            }
        }
    }

    /// A client of turns hears of what it asked.
    fn of_turns(&mut self, at: usize, now: u64, (conn, reply): (Conn, &Reply)) -> Heard {
        let client = &mut self.turns[at];
        let before = client.operations().len();
        client.hear(now, conn, reply);
        let (ended, fault) = (client.operations().len() - before, client.fault());
        let fault = fault.map(ToString::to_string);
        Heard { ended: ended as u64, seen: client.take_seen(), fault }
    }

    fn loaded(&self) -> usize {
        let done = |operation: &&Operation| matches!(operation.told, Answer::Done { .. });
        self.loads.history().iter().filter(done).count()
    }

    /// True if those of rows have asked everything, and it was decided.
    pub fn are_done(&self) -> bool {
        self.rows.iter().all(|client| client.is_done())
    }

    /// True if one of those of rows waits for something that is not in these partitions alone.
    pub fn wait_beyond(&self, closed: &BTreeSet<PartitionId>) -> bool {
        let waits = |client: &TableClient| client.waits_for().is_some_and(|of| !closed.contains(&of));
        self.rows.iter().any(|client| !client.is_done() && !client.waits_only_for(closed))
            || self.tables.iter().any(waits)
    }

    /// Those of rows have so much more to do.
    pub fn go_on(&mut self, operations: u64) {
        self.rows.iter_mut().for_each(|client| client.operations_mut().go_on(operations));
    }

    /// Whose last write was given up, and not in one of these partitions, asks once more: how many they are.
    pub fn ask_again(&mut self, closed: &[PartitionId]) -> usize {
        let mut unanswered = 0;
        for client in &mut self.rows {
            let last = client.operations().history().iter().rev().find(|operation| operation.action.writes());
            let through = last.is_none_or(|last| {
                matches!(last.told, Answer::Done { .. } | Answer::Exists(_))
                    || closed.contains(&last.partition)
            });
            if !through {
                client.operations_mut().go_on(1);
                unanswered += 1;
            }
        }
        unanswered
    }

    /// The run is over: what is not decided stays unknown.
    pub fn abandon(&mut self, now: u64) {
        self.loads.abandon(now);
        self.rows.iter_mut().for_each(|client| client.abandon(now));
        self.tables.iter_mut().for_each(|client| client.give_up(now));
        self.calls.iter_mut().for_each(CallClient::forget);
        self.transactions.0.iter_mut().for_each(|client| client.abandon(now));
        self.turns.iter_mut().for_each(|client| client.abandon(now));
    }

    /// Everything that ended on rows, loads included.
    pub fn operations(&self) -> Vec<Operation> {
        let rows = self.rows.iter().flat_map(|client| client.operations().history());
        let turns = self.turns.iter().flat_map(TurnClient::operations);
        rows.chain(self.loads.history()).chain(turns).cloned().collect()
    }

    /// Turns at rows that clients were told of.
    pub fn turns(&self) -> Vec<Turn> {
        self.turns.iter().flat_map(TurnClient::turns).cloned().collect()
    }

    /// The partition in which clients still wait for their last turns, and how many they are.
    pub fn wait_for_turns(&self) -> Option<(PartitionId, usize)> {
        let mut waiting = self.turns.iter().filter_map(TurnClient::waits_for);
        let partition = waiting.next()?;
        Some((partition, 1 + waiting.count()))
    }

    /// When a client has something to do next, if nothing happens before.
    pub fn wakes_at(&self, id: u32) -> Option<u64> {
        match self.which(id) {
            Which::Rows(at) => self.rows[at].wakes_at(),
            Which::Transactions(at) => self.transactions.0[at].wakes_at(),
            Which::Recovery => self.transactions.1.wakes_at(),
            Which::Backups => self.backups.wakes_at(),
            Which::Snapshots | Which::Loads | Which::Jobs | Which::Tables(_) | Which::Calls(_) => None,
            Which::Turns(_) => None,
        }
    }

    /// Acknowledged writes that sessions were told are lost.
    pub fn told_lost(&self) -> Vec<ReportedLoss> {
        self.rows.iter().flat_map(|client| client.told_lost()).copied().collect()
    }

    /// What jobs were told.
    pub fn told_of_jobs(&self) -> &[JobAnswer] {
        self.jobs.told()
    }

    /// Everything that ended on a database's tables.
    pub fn table_operations(&self) -> Vec<TableOperation> {
        self.tables.iter().flat_map(|client| client.history()).cloned().collect()
    }

    /// What was asked of procedures, by session and number, and what was told, by entry.
    pub fn calls(&self) -> (BTreeMap<(SessionId, u64), Asked>, BTreeMap<Position, i64>) {
        let asked = self.calls.iter().flat_map(|client| client.asked());
        let told = self.calls.iter().flat_map(|client| client.told());
        (asked.map(|(of, asked)| (*of, *asked)).collect(), told.map(|told| (told.at, told.number)).collect())
    }

    /// Numbers for tables that were given out: the first of each lot, and how many that has.
    pub fn numbers(&self) -> Vec<(u32, u32)> {
        self.tables.iter().flat_map(|client| client.numbers()).collect()
    }

    /// Global transactions that ended.
    pub fn transactions(&self) -> Vec<TxnOperation> {
        let clients = self.transactions.0.iter().flat_map(|client| client.history());
        clients.chain(self.transactions.1.history()).cloned().collect()
    }

    /// What was given up of global transactions.
    pub fn given_up(&self) -> &[GivenUp] {
        self.transactions.1.given_up()
    }

    /// Backups that were made, and what came of those that were restored.
    pub fn backed_up(&self) -> (&[Backup], &[Restored]) {
        (self.backups.made(), self.backups.restored())
    }

    /// What came of backups of a database of global transactions that were restored.
    pub fn copied(&self) -> &[Restored] {
        self.transactions.1.restored()
    }

    /// Points that were taken.
    pub fn taken(&self) -> &[CompleteSnapshot] {
        self.snapshots.taken()
    }
}

/// The last client is the adversary.
fn row_client(id: u32, random: Stream, plan: &RunPlan, rules: Rules) -> Box<dyn RowClient> {
    match id + 1 == plan.workload.clients {
        true => Box::new(Adversary::new(id, random, plan)),
        false => Box::new(Native::new(id, random, plan, rules)),
    }
}

/// Clients of global transactions, the recovery manager included.
fn txn_clients(plan: &RunPlan) -> u32 {
    let clients = plan.workload.transactions.clients;
    clients + u32::from(clients > 0)
}

/// Those that ask for turns.
fn turn_clients(plan: &RunPlan, turns: &TurnPlan) -> Vec<TurnClient> {
    let numbers = Workload::turn_numbers(plan).zip(0..);
    numbers.filter_map(|(id, at)| TurnClient::new(id, at, plan, turns)).collect()
}

fn transactions(seed: u64, plan: &RunPlan, rules: Rules) -> (Vec<TxnClient>, RecoveryClient) {
    let draws = |which: u32| Stream::new(seed, Concern::Workload, 5_000 + u64::from(which));
    let (first, count) = (Workload::callers(plan).end, plan.workload.transactions.clients);
    let client = |at| {
        let (own, changes, claims) = (draws(at), draws(1_000 + at), draws(1_100 + at));
        let (deaths, doubts, stale) = (draws(1_200 + at), draws(1_500 + at), draws(1_400 + at));
        let random = Draws { own, changes, claims, deaths, doubts, stale };
        TxnClient::new(first + at, random, (plan, rules))
    };
    let clients = (0..count).map(client).collect();
    (clients, RecoveryClient::new(first + count, (draws(count), draws(1_300)), (plan, rules)))
}
