//! All clients of a world: those that read and write single rows, and one each that takes points, loads in
//! bulk, and runs jobs.

use crate::check::history::{Answer, Operation};
use crate::check::lineage::Change;
use crate::check::{cluster_snapshots::Taken, jobs::JobAnswer};
use crate::client::{Client, ClientEffect};
use crate::job_client::JobClient;
use crate::load_client::LoadClient;
use crate::lsm_files::LsmFiles;
use crate::network::Conn;
use crate::plan::RunPlan;
use crate::random::{Concern, Stream};
use crate::snapshot_client::SnapshotClient;
use std::collections::BTreeSet;
use types::{LoadId, PartitionId, Rules};
use wire::Reply;

/// Which client has a number.
enum Which {
    Rows(usize),
    Snapshots,
    Loads,
    Jobs,
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

/// The clients, by number: those of rows first.
pub(super) struct Workload {
    rows: Vec<Client>,
    snapshots: SnapshotClient,
    loads: LoadClient,
    jobs: JobClient,
}

impl Workload {
    /// The clients of a plan. Files of loads are made beside those of engines.
    pub fn new(seed: u64, plan: &RunPlan, rules: Rules, files: &mut LsmFiles) -> Workload {
        let draws = |which| Stream::new(seed, Concern::Workload, which);
        let trees = plan.loads && plan.tables.iter().any(|table| table.lsm);
        let scratch = trees.then(|| files.make_root().expect("a directory can be made").join("load"));
        Workload {
            rows: (0..plan.clients).map(|id| Client::new(id, draws(u64::from(id)), plan)).collect(),
            snapshots: SnapshotClient::new(plan.clients, draws(1_000), plan, rules),
            loads: LoadClient::new(plan.clients + 1, draws(1_001), plan, scratch),
            jobs: JobClient::new(plan.clients + 2, draws(1_002), plan),
        }
    }

    /// The numbers of those that a plan wants, each with how long after the first it begins, microseconds.
    pub fn beginnings(plan: &RunPlan) -> Vec<(u32, u64)> {
        let rows = (0..plan.clients).map(|id| (id, u64::from(id) * 1_000));
        let others = [(plan.cluster_snapshots, 5_000), (plan.loads, 6_000), (plan.jobs, 7_000)];
        let others = (plan.clients..).zip(others);
        rows.chain(others.filter(|(_, (wanted, _))| *wanted).map(|(id, (_, us))| (id, us))).collect()
    }

    /// The numbers of all, whether a plan wants them or not.
    pub fn ids(plan: &RunPlan) -> std::ops::Range<u32> {
        0..plan.clients + 3
    }

    fn which(&self, id: u32) -> Which {
        match (id as usize).checked_sub(self.rows.len()) {
            None => Which::Rows(id as usize),
            Some(0) => Which::Snapshots,
            Some(1) => Which::Loads,
            Some(_) => Which::Jobs,
        }
    }

    /// A client does what is due. Those that have no end begin nothing new unless `goes_on`.
    pub fn step(&mut self, id: u32, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        match self.which(id) {
            Which::Rows(at) => self.rows[at].step(now),
            Which::Snapshots => self.snapshots.step(now, goes_on),
            Which::Loads => self.loads.step(now, goes_on),
            Which::Jobs => self.jobs.step(now, goes_on),
        }
    }

    /// Loads that were put together since the last call, with what they change.
    pub fn take_made(&mut self) -> Vec<(LoadId, Vec<Change>)> {
        self.loads.take_made()
    }

    /// A connection of a client was made, or not, or broke.
    pub fn linked(&mut self, id: u32, node: u32, slot: u16, conn: Option<Conn>) {
        match self.which(id) {
            Which::Rows(at) => self.rows[at].linked(node, slot, conn),
            Which::Snapshots => self.snapshots.linked(node, conn),
            Which::Loads => self.loads.linked(node, conn),
            Which::Jobs => self.jobs.linked(node, conn),
        }
    }

    /// A client hears a reply.
    pub fn hear(&mut self, id: u32, now: u64, reply: Reply) -> Heard {
        match self.which(id) {
            Which::Rows(at) => {
                let client = &mut self.rows[at];
                let before = client.history().len();
                client.hear(now, reply);
                let ended = (client.history().len() - before) as u64;
                Heard { ended, fault: client.fault().map(ToString::to_string), ..Heard::default() }
            }
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

    fn loaded(&self) -> usize {
        let done = |operation: &&Operation| matches!(operation.told, Answer::Done { .. });
        self.loads.history().iter().filter(done).count()
    }

    /// True if those of rows have asked everything, and it was decided.
    pub fn are_done(&self) -> bool {
        self.rows.iter().all(Client::is_done)
    }

    /// True if one of those of rows waits for something that is not in these partitions alone.
    pub fn wait_beyond(&self, closed: &BTreeSet<PartitionId>) -> bool {
        self.rows.iter().any(|client| !client.is_done() && !client.waits_only_for(closed))
    }

    /// Those of rows have so much more to do.
    pub fn go_on(&mut self, operations: u64) {
        self.rows.iter_mut().for_each(|client| client.go_on(operations));
    }

    /// Whose last write was given up, and not in one of these partitions, asks once more: how many they are.
    pub fn ask_again(&mut self, closed: &[PartitionId]) -> usize {
        let mut unanswered = 0;
        for client in &mut self.rows {
            let last = client.history().iter().rev().find(|operation| operation.action.writes());
            let through = last.is_none_or(|last| {
                matches!(last.told, Answer::Done { .. } | Answer::Exists(_))
                    || closed.contains(&last.partition)
            });
            if !through {
                client.go_on(1);
                unanswered += 1;
            }
        }
        unanswered
    }

    /// The run is over: what is not decided stays unknown.
    pub fn abandon(&mut self, now: u64) {
        self.loads.abandon(now);
        self.rows.iter_mut().for_each(|client| client.abandon(now));
    }

    /// Everything that ended on rows, loads included.
    pub fn operations(&self) -> Vec<Operation> {
        let rows = self.rows.iter().flat_map(|client| client.history().iter());
        rows.chain(self.loads.history()).cloned().collect()
    }

    /// What jobs were told.
    pub fn told_of_jobs(&self) -> &[JobAnswer] {
        self.jobs.told()
    }

    /// Points that were taken.
    pub fn taken(&self) -> &[Taken] {
        self.snapshots.taken()
    }
}
