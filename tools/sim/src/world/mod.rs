//! The simulated world: one queue of events, virtual time in microseconds, and everything that acts in it.
//!
//! The world is its parts. A part knows its own state, and says what came of what it was asked:
//!
//! | part | what |
//! | --- | --- |
//! | `schedule`, `stage` | virtual time and the queue of events; how far the run is |
//! | `fleet` | the machines ([`crate::node`]) and the files of LSM engines |
//! | `controllers`, `metastore`, `operator`, `cluster_records` | the control plane, and what it has written |
//! | `workload` | all clients |
//! | `faults` | what decides which fault strikes |
//! | `soundness` | since when nothing has been wrong with whom |
//! | `counts` | what is counted |
//!
//! What concerns several of them is methods of the world, by what they are about:
//!
//! | file | what |
//! | --- | --- |
//! | `events` | an event happens, now or later |
//! | `links` | connections are made, carry, break |
//! | `machines` | nodes start, recover, die |
//! | `executor` | inputs of the replicas, and what they ask to be done |
//! | `lsm` | engines on real files, and what they do beside their calls |
//! | `disks`, `directories` | group commit, marks, checkpoints, reading back; a second directory |
//! | `failback`, `decommission` | who comes back by the log; replicas that have moved away |
//! | `control` | what controllers and the operator ask is carried out |
//! | `clients` | the clients' side |
//! | `fault_injector`, `own_faults`, `file_faults` | when which fault strikes |
//! | `forced` | an operator forces a promotion |
//! | `indexes` | indexes are wanted, and compared with the rows |
//! | `commits` | what partitions have of global transactions |
//! | `tables` | what replicas of a database have |
//! | `rebuild` | the controllers' disk is lost, and the records are made anew |
//! | `old_controller` | a controller of before that comes back |
//! | `clones` | copies of nodes' disks are started beside them |
//! | `stranded` | a partition that an operator has to recover, and nobody does |
//! | `rivals` | operators who want different things |
//! | `scrubs` | an operator has files read back, and gives up replicas that are damaged |
//! | `online` | copies and nodes come and go |
//! | `phases` | setting up, faults, healing, converging |
//! | `staleness` | how old reads at any replica are |
//! | `states` | states of replicas are compared |
//! | `inspect` | what is looked at after events and now and then |
//! | `acknowledge` | what an answer that is ready acknowledges |
//! | `availability` | who is served, and how quickly another takes a primary's place |

mod acknowledge;
mod availability;
mod clients;
mod clones;
mod cluster_records;
mod commits;
mod control;
mod controllers;
mod counts;
mod decommission;
mod directories;
mod disks;
mod events;
mod executor;
mod failback;
mod fault_injector;
mod faults;
mod file_faults;
mod fleet;
mod forced;
mod indexes;
mod inspect;
mod links;
mod lsm;
mod machines;
mod metastore;
mod old_controller;
mod online;
mod operator;
mod own_faults;
mod phases;
mod rebuild;
mod rivals;
mod schedule;
mod scrubs;
mod soundness;
mod stage;
mod staleness;
mod states;
mod stranded;
mod tables;
mod workload;

pub use stage::Phase;

use crate::check::backups::Backup;
use crate::check::tables::told::check_numbers;
use crate::check::{Checks, ClientAnswers};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::event::Event;
use crate::lsm_files::LsmFiles;
use crate::network::Network;
use crate::node::Machine;
use crate::plan::RunPlan;
use crate::random::{Concern, Stream};
use crate::trace::Trace;
use cluster_records::ClusterRecords;
use control::ControlPlane;
use controllers::Controllers;
use counts::Counts;
use faults::Faults;
use fleet::Fleet;
use metastore::Meta;
use operator::Operator;
use schedule::Schedule;
use stage::RunStage;
use std::collections::BTreeMap;
use types::{Micros, Rules};
use workload::Workload;

/// Names of tails on a disk begin so.
const TAILS: &str = "tails/";

/// The whole of a run: its parts, which know nothing of each other.
pub struct World {
    /// Its shape.
    plan: RunPlan,
    /// What nodes are told.
    settings: replica::Settings,
    /// When what happens.
    schedule: Schedule,
    /// What stage it is in.
    stage: RunStage,
    /// What happened, in words and numbers.
    trace: Trace,
    /// Who watches.
    checks: Checks,
    /// What is counted.
    counts: Counts,
    network: Network,
    machines: Fleet,
    control: ControlPlane,
    clients: Workload,
    faults: Faults,
}

impl World {
    /// A world before anything has happened.
    pub fn new(seed: u64, plan: RunPlan, rules: Rules, verbose: bool) -> World {
        let mut shape = Stream::new(seed, Concern::Shape, 1);
        let machines = (1..=plan.all_nodes())
            .map(|id| {
                let disk = Disk::new(Stream::new(seed, Concern::Disk, u64::from(id)));
                Machine::new(id, disk, Clock::new(0, shape.between(10_000_000, 900_000_000)))
            })
            .collect();
        let mut checks = Checks::default();
        for (partition, _) in plan.database_partitions() {
            checks.lineage.will_have_tables(partition);
        }
        checks.lineage.will_have_transactions(plan.transactional());
        let mut files = LsmFiles::new(Stream::new(seed, Concern::Engines, 1), rules);
        let clients = Workload::new(seed, &plan, rules, &mut files);
        World {
            settings: settings(&plan, rules),
            schedule: Schedule::new(Stream::new(seed, Concern::Timing, 0)),
            stage: RunStage::new(),
            trace: Trace::new(verbose),
            checks,
            counts: Counts::default(),
            network: Network::new(Stream::new(seed, Concern::Network, 0)),
            machines: Fleet::new(machines, files),
            control: ControlPlane {
                controllers: Controllers::new(plan.controllers, &mut shape),
                meta: Meta::new(Disk::new(Stream::new(seed, Concern::Disk, 1000))),
                operator: Operator::default(),
                records: ClusterRecords::new(plan.nodes),
                rebuilding: Default::default(),
                proposed: Default::default(),
                old: Default::default(),
            },
            clients,
            faults: Faults::new(seed),
            plan,
        }
    }

    /// Runs until the end, or until a checker objects.
    pub fn run(&mut self) {
        self.begin();
        while self.stage.phase() != Phase::Done && self.checks.violations().is_empty() {
            let Some(event) = self.schedule.next() else { break };
            self.handle(event);
        }
    }

    /// Runs the checks that look at the whole history.
    pub fn finish(&mut self) {
        let (now, operations) = (self.now(), self.clients.operations());
        let (jobs, lost) = (self.clients.told_of_jobs(), self.clients.told_lost());
        let tables = self.clients.table_operations();
        let (transactions, turns) = (self.clients.transactions(), self.clients.turns());
        self.checks.finish(
            now,
            ClientAnswers {
                operations: &operations,
                jobs,
                lost: &lost,
                tables: &tables,
                transactions: &transactions,
                given_up: self.clients.given_up(),
                turns: &turns,
            },
        );
        let given_up = self.clients.given_up().iter();
        let (kept_alone, given_up): (Vec<&_>, Vec<&_>) = given_up.partition(|one| one.from == one.upto);
        let seen = [(given_up.is_empty(), "commits-given-up"), (kept_alone.is_empty(), "commits-kept-alone")];
        for (_, what) in seen.into_iter().filter(|(none, _)| !none) {
            self.injected(what);
        }
        let verdict = check_numbers(self.clients.numbers());
        self.checks.expect("PR-120", now, verdict);
        self.checks.cluster_snapshots(now, self.clients.taken(), &operations);
        let (made, restored) = self.clients.backed_up();
        let taken: Vec<_> = made.iter().map(Backup::cluster_snapshot).collect();
        self.checks.cluster_snapshots(now, &taken, &operations);
        self.checks.backups(now, made, restored);
        if transactions.iter().any(|one| one.backup) {
            self.injected("transactions-backed-up");
        }
        if !self.clients.copied().is_empty() {
            self.checks.backups(now, &[], self.clients.copied());
            self.injected("transactions-restored");
        }
    }

    /// Virtual time, microseconds.
    pub fn now(&self) -> u64 {
        self.schedule.now()
    }

    /// What happened.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The checkers.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// The same, to note what they cannot see, and to be told of the seed.
    pub fn checks_mut(&mut self) -> &mut Checks {
        &mut self.checks
    }

    /// Client operations that ended.
    pub fn operations(&self) -> u64 {
        self.counts.operations()
    }

    /// How often each fault struck.
    pub fn injections(&self) -> &BTreeMap<&'static str, u64> {
        self.counts.injected()
    }

    /// The last backup that was made.
    pub fn last_backup(&self) -> Option<&Backup> {
        self.clients.backed_up().0.last()
    }

    fn at(&mut self, at: u64, event: Event) {
        self.schedule.at(at, event);
    }

    fn after(&mut self, us: u64, event: Event) {
        self.schedule.at(self.schedule.now() + us, event);
    }

    fn machine(&self, node: u32) -> &Machine {
        self.machines.get(node)
    }

    fn machine_mut(&mut self, node: u32) -> &mut Machine {
        self.machines.get_mut(node)
    }

    fn injected(&mut self, what: &'static str) {
        self.counts.add(what);
    }
}

/// Nodes' settings in the simulator: smaller buffers and shorter patience, so that their limits are met.
fn settings(plan: &RunPlan, rules: Rules) -> replica::Settings {
    replica::Settings {
        rules,
        ship_bytes_per_second: plan.copies.ship_bytes_per_second,
        even_descriptions: plan.tables.iter().any(|table| table.lsm),
        failback_full: plan.copies.failback_full,
        failback_log_bytes: plan.copies.failback_log_bytes,
        failback_keep_bytes: plan.copies.failback_keep_bytes,
        tail_bytes: plan.copies.tail_bytes,
        suspect_alone: Micros::from_millis(500),
        evict_slow: Micros::from_millis(800),
        level: Micros::from_millis(100),
        session_ttl: Micros::from_millis(60_000),
        window_bytes: 64 << 10,
        append_bytes: 4 << 10,
        uncommitted_bytes: 1 << 20,
        copy_bytes: 2 << 10,
        load_unasked: Micros::from_millis(2_500),
        slice_rows: 3,
        commits_kept: Micros::from_millis(if plan.workload.transactions.brief { 20 } else { 1_500 }),
        ..replica::Settings::default()
    }
}
