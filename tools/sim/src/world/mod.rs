//! The simulated world: one queue of events, virtual time in microseconds, and everything that acts in it.
//!
//! | file | what |
//! | --- | --- |
//! | `events` | what can happen, and to whom |
//! | `links` | connections are made, carry, break |
//! | `machines` | nodes start, recover, die |
//! | `executor` | inputs of the replicas, and what they ask to be done |
//! | `lsm` | engines on real files, and what they do beside their calls |
//! | `disks` | group commit, marks, checkpoints, reading back |
//! | `control` | controllers and the metastore |
//! | `clients` | the clients' side |
//! | `fault_injector` | when which fault strikes |
//! | `forced` | an operator forces a promotion |
//! | `indexes` | indexes are wanted, and compared with the rows |
//! | `online` | copies and nodes come and go |
//! | `phases` | setting up, faults, healing, converging |
//! | `inspect` | what is looked at after events and now and then |

mod clients;
mod control;
mod decommission;
mod directories;
mod disks;
mod events;
mod executor;
mod failback;
mod fault_injector;
mod forced;
mod indexes;
mod inspect;
mod links;
mod lsm;
mod machines;
mod online;
mod phases;

pub use events::Event;

use crate::check::Checks;
use crate::client::Client;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::job_client::JobClient;
use crate::load_client::LoadClient;
use crate::lsm_files::LsmFiles;
use crate::network::Network;
use crate::node::Machine;
use crate::plan::RunPlan;
use crate::random::{Concern, Stream};
use crate::snapshot_client::SnapshotClient;
use crate::trace::Trace;
use control::{ControllerProcess, Meta, Operator};
use events::Scheduled;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use types::{Micros, Rules};

/// What stage a run is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nodes register, tables are created. No faults.
    Setup,
    /// Clients work, faults strike: safety.
    Faults,
    /// A connected part is healed, the rest is dead: it must converge.
    Healed,
    /// Over.
    Done,
}

/// The whole of a run.
pub struct World {
    /// The seed.
    pub seed: u64,
    /// Its shape.
    pub plan: RunPlan,
    /// Virtual time, microseconds.
    pub now: u64,
    /// The stage.
    pub phase: Phase,
    /// What happened.
    pub trace: Trace,
    /// The checkers.
    pub checks: Checks,
    /// How often each fault struck.
    pub injected: BTreeMap<&'static str, u64>,
    /// Client operations that ended.
    pub operations: u64,
    pub(crate) settings: replica::Settings,
    pub(crate) network: Network,
    pub(crate) machines: Vec<Machine>,
    /// After the machines, whose engines use them.
    lsm_files: LsmFiles,
    controller_processes: Vec<ControllerProcess>,
    meta: Meta,
    operator: Operator,
    clients: Vec<Client>,
    /// What tables are to be, as the metastore has it.
    wanted: BTreeMap<types::TableId, types::TableRecord>,
    /// The nodes, as the metastore has them.
    node_records: BTreeMap<types::NodeId, types::NodeRecord>,
    /// Disks of nodes that were removed.
    removed: BTreeSet<types::StoreId>,
    /// Nodes that an operator has brought copies to.
    added: BTreeSet<types::NodeId>,
    /// Nodes that were there from the beginning.
    founders: u32,
    operator_draws: Stream,
    online: Stream,
    snapshot_client: SnapshotClient,
    load_client: LoadClient,
    job_client: JobClient,
    fault_injector: fault_injector::FaultInjector,
    forced: forced::Forced,
    timing: Stream,
    next_incarnation: u64,
    queue: BinaryHeap<Scheduled>,
    sequence: u64,
    healed_at: u64,
    phase_began: u64,
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
        let controller_processes =
            (0..plan.controllers).map(|id| ControllerProcess::new(id, &mut shape)).collect();
        let workload = |id: u32| Stream::new(seed, Concern::Workload, u64::from(id));
        let clients = (0..plan.clients).map(|id| Client::new(id, workload(id), &plan)).collect();
        let cluster_snapshots = Stream::new(seed, Concern::Workload, 1_000);
        let snapshot_client = SnapshotClient::new(plan.clients, cluster_snapshots, &plan, rules);
        let loads = Stream::new(seed, Concern::Workload, 1_001);
        let mut lsm_files = LsmFiles::new(Stream::new(seed, Concern::Engines, 1));
        let trees = plan.loads && plan.tables.iter().any(|table| table.lsm);
        let scratch = trees.then(|| lsm_files.make_root().expect("a directory can be made").join("load"));
        let load_client = LoadClient::new(plan.clients + 1, loads, &plan, scratch);
        let jobs = Stream::new(seed, Concern::Workload, 1_002);
        let job_client = JobClient::new(plan.clients + 2, jobs, &plan);
        let meta = Meta::new(Disk::new(Stream::new(seed, Concern::Disk, 1000)));
        let fault_injector = fault_injector::FaultInjector::new(Stream::new(seed, Concern::Faults, 0));
        World {
            seed,
            now: 0,
            phase: Phase::Setup,
            trace: Trace::new(verbose),
            checks: Checks::default(),
            injected: BTreeMap::new(),
            operations: 0,
            settings: replica::Settings {
                rules,
                ship_bytes_per_second: plan.ship_bytes_per_second,
                even_descriptions: plan.tables.iter().any(|table| table.lsm),
                failback_full: plan.failback_full,
                failback_log_bytes: plan.failback_log_bytes,
                failback_keep_bytes: plan.failback_keep_bytes,
                tail_bytes: plan.tail_bytes,
                ..settings()
            },
            network: Network::new(Stream::new(seed, Concern::Network, 0)),
            machines,
            lsm_files,
            controller_processes,
            meta,
            operator: Operator::default(),
            clients,
            wanted: BTreeMap::new(),
            node_records: BTreeMap::new(),
            removed: BTreeSet::new(),
            added: BTreeSet::new(),
            founders: plan.nodes,
            online: Stream::new(seed, Concern::Workload, (1 << 32) + 1),
            operator_draws: Stream::new(seed, Concern::Workload, 1 << 32),
            snapshot_client,
            load_client,
            job_client,
            fault_injector,
            forced: forced::Forced::new(Stream::new(seed, Concern::Operator, 1)),
            timing: Stream::new(seed, Concern::Timing, 0),
            next_incarnation: 1,
            queue: BinaryHeap::new(),
            sequence: 0,
            healed_at: 0,
            phase_began: 0,
            plan,
        }
    }

    /// Runs until the end, or until a checker objects.
    pub fn run(&mut self) {
        self.begin();
        while self.phase != Phase::Done && self.checks.violations().is_empty() {
            let Some(Scheduled { at, event, .. }) = self.queue.pop() else { break };
            assert!(at >= self.now, "time goes back from {} to {at}", self.now);
            self.now = at;
            self.handle(event);
        }
    }

    /// Runs the checks that look at the whole history.
    pub fn finish(&mut self) {
        let operations = self.clients.iter().flat_map(|client| client.history().iter());
        let operations: Vec<_> = operations.chain(self.load_client.history()).cloned().collect();
        self.checks.finish(self.now, &operations, self.job_client.told());
        self.checks.cluster_snapshots(self.now, self.snapshot_client.taken(), &operations);
    }

    /// Changes of primaries under load, and how many of them came within a failover.
    pub fn primary_changes(&self) -> u64 {
        self.checks.epochs.primary_changes()
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Scheduled { at: at.max(self.now), sequence: self.sequence, event });
    }

    pub(crate) fn after(&mut self, us: u64, event: Event) {
        self.at(self.now + us, event);
    }

    pub(crate) fn machine(&self, node: u32) -> &Machine {
        &self.machines[node as usize - 1]
    }

    pub(crate) fn machine_mut(&mut self, node: u32) -> &mut Machine {
        &mut self.machines[node as usize - 1]
    }

    pub(crate) fn injected(&mut self, what: &'static str) {
        *self.injected.entry(what).or_insert(0) += 1;
    }
}

/// Nodes' settings in the simulator: smaller buffers and shorter patience, so that their limits are met.
fn settings() -> replica::Settings {
    replica::Settings {
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
        ..replica::Settings::default()
    }
}
