//! The load, and what happens to nodes meanwhile.

use crate::faults::{FaultPlan, Faults, Round, Shape, cycle, round_seconds};
use crate::keys::Keys;
use crate::native::{Native, NativeReport};
use crate::options::CheckOptions;
use crate::recorder::{Record, Shared};
use crate::scene;
use crate::sql::{self, Gateways, Sql};
use client::{Client, Table};
use local::demo::Fault;
use local::demo::report::grouped;
use local::{Cluster, LocalError, Progress};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use types::PartitionId;

/// Sessions of the load over SQL.
const SESSIONS: u32 = 3;
/// Between two looks at the cluster.
const CLUSTER_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Before the first fault.
const WARM_UP: f64 = 0.7;
/// The part of a round for which nodes are gone.
const GONE: f64 = 0.45;
/// Between the ends of two faults at once, and before a node that is back is hit again.
const BETWEEN: Duration = Duration::from_millis(150);
/// How long a killed controller is away.
const AWAY: Duration = Duration::from_millis(400);
/// What the manager's partition counts for where it is to be hit.
const MANAGER_WEIGHT: usize = 1000;
/// Between two live lines.
const LIVE: Duration = Duration::from_millis(1000);

/// What is played on.
pub struct Run<'a> {
    pub options: &'a CheckOptions,
    pub cluster: &'a mut Cluster,
    pub client: &'a mut Client,
    pub table: &'a Table,
    pub keys: &'a Keys,
    pub shared: &'a Shared,
}

/// What came of it.
pub struct Played {
    pub records: Vec<Record>,
    pub native: NativeReport,
    pub rounds: Vec<Round>,
    /// When the load ended, microseconds since the history's beginning.
    pub end: u64,
}

/// Asks the threads to stop, also when something fails.
pub struct StopOnDrop<'a>(pub &'a Shared);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

struct Threads<'scope> {
    native: ScopedJoinHandle<'scope, Result<NativeReport, LocalError>>,
    sql: Vec<ScopedJoinHandle<'scope, Result<Record, LocalError>>>,
}

impl Threads<'_> {
    /// True if a thread ended before it was asked to: it says why when it is joined.
    fn is_broken(&self) -> bool {
        self.native.is_finished() || self.sql.iter().any(ScopedJoinHandle::is_finished)
    }

    fn join(self) -> Result<(NativeReport, Vec<Record>), LocalError> {
        let native = self.native.join().expect("the native load does not panic");
        let sql = self.sql.into_iter().map(|thread| thread.join().expect("the load over SQL does not panic"));
        let records = sql.collect::<Result<Vec<Record>, LocalError>>();
        Ok((native?, records?))
    }
}

/// Whose primaries are hit.
pub struct Targets {
    /// Partitions: who leads most of them is hit first.
    pub partitions: Vec<PartitionId>,
    /// The transaction manager's; with one the controller is killed, too.
    pub manager: Option<PartitionId>,
}

/// What faults are played on, while a load runs.
pub struct FaultStage<'a> {
    pub options: &'a CheckOptions,
    pub cluster: &'a mut Cluster,
    pub client: &'a mut Client,
    pub shared: &'a Shared,
    pub gateways: &'a Gateways,
    pub targets: Targets,
}

impl FaultStage<'_> {
    /// Plays faults to the end, or until the load is broken.
    pub fn play(self, broken: &dyn Fn() -> bool, out: &mut dyn Progress) -> Result<Vec<Round>, LocalError> {
        let FaultStage { options, cluster, client, shared, gateways, targets } = self;
        let faults = Faults::new(cluster, shared, gateways, options.is_volatile(), options.seed);
        let start = Instant::now();
        let mut playing = Playing { faults, client, targets, broken, shared, start, shown: (start, 0) };
        playing.play(options, out)
    }
}

/// Somebody who harms the cluster while the load runs.
struct Playing<'a> {
    faults: Faults<'a>,
    client: &'a mut Client,
    targets: Targets,
    broken: &'a dyn Fn() -> bool,
    shared: &'a Shared,
    start: Instant,
    shown: (Instant, u64),
}

impl Run<'_> {
    /// Plays the load from start to end.
    pub fn play(self, out: &mut dyn Progress) -> Result<Played, LocalError> {
        let Run { options, cluster, client, table, keys, shared } = self;
        let gateways: Gateways = Mutex::new(sql::gateways(&cluster.sql_url()?)?);
        let seed = options.seed;
        let native = scene::connect(cluster, seed.wrapping_add(1))?;
        std::thread::scope(|scope| {
            let stop = StopOnDrop(shared);
            let load = Native { client: native, table, keys, shared, seed: seed.wrapping_add(2) };
            let session = |number: u32| {
                let seed = seed.wrapping_add(10 + u64::from(number));
                let load = Sql { number, gateways: &gateways, keys, shared, seed };
                scope.spawn(move || load.run())
            };
            let native = scope.spawn(move || load.run());
            let threads = Threads { native, sql: (1..=SESSIONS).map(session).collect() };
            let targets = Targets { partitions: table.partitions().collect(), manager: None };
            let broken = || threads.is_broken();
            let stage = FaultStage { options, cluster, client, shared, gateways: &gateways, targets };
            let rounds = stage.play(&broken, out);
            drop(stop);
            let end = shared.now();
            let joined = threads.join();
            // Why the load ended is the better reason.
            let (native, records) = joined?;
            Ok(Played { records, native, rounds: rounds?, end })
        })
    }
}

impl Playing<'_> {
    fn play(&mut self, options: &CheckOptions, out: &mut dyn Progress) -> Result<Vec<Round>, LocalError> {
        let seconds = options.seconds as f64;
        let length = round_seconds(seconds - WARM_UP, options.faults.len());
        let plans = cycle(&options.faults);
        let mut rounds: Vec<Round> = Vec::new();
        self.until(WARM_UP, out)?;
        for plan in plans.iter().cycle() {
            let begins = WARM_UP + rounds.len() as f64 * length;
            if begins + length > seconds || (self.broken)() {
                break;
            }
            self.until(begins, out)?;
            let round = self.round(*plan, (rounds.len(), begins + GONE * length), out)?;
            rounds.push(round);
        }
        self.until(seconds, out)?;
        Ok(rounds)
    }

    /// Looks at the cluster until so many seconds after the start.
    fn until(&mut self, seconds: f64, out: &mut dyn Progress) -> Result<(), LocalError> {
        while self.start.elapsed().as_secs_f64() < seconds && !(self.broken)() {
            self.client.poll(CLUSTER_POLL_INTERVAL)?;
            let (at, done) = self.shown;
            if at.elapsed() >= LIVE {
                let now = self.shared.done();
                let rate = (now - done) as f64 / at.elapsed().as_secs_f64();
                let passed = self.start.elapsed().as_secs_f64();
                out.live(&format!(
                    "{passed:5.1} s  {:>7} operations/s  {} in all",
                    grouped(rate as u64),
                    grouped(now)
                ));
                self.shown = (Instant::now(), now);
            }
        }
        Ok(())
    }

    /// How many partitions each node leads; every other time the manager's counts for more than all.
    fn leading(&self, round: usize) -> BTreeMap<u32, usize> {
        let map = self.client.cluster_map();
        let mut leading = BTreeMap::new();
        for record in self.targets.partitions.iter().filter_map(|partition| map.partition(*partition)) {
            *leading.entry(record.primary.node.0).or_default() += 1;
        }
        let manager = self.targets.manager.filter(|_| round.is_multiple_of(2));
        if let Some(record) = manager.and_then(|partition| map.partition(partition)) {
            *leading.entry(record.primary.node.0).or_default() += MANAGER_WEIGHT;
        }
        leading
    }

    /// Plays a round of this number; nodes come back so many seconds after the start.
    fn round(
        &mut self,
        plan: FaultPlan,
        (number, back): (usize, f64),
        out: &mut dyn Progress,
    ) -> Result<Round, LocalError> {
        let nodes = self.faults.choose(plan, &self.leading(number));
        let injected = self.faults.now();
        let controller = self.targets.manager.is_some() && number % 3 == 1;
        if controller {
            self.faults.kill_controller()?;
            out.line(&format!("    {:5.1} s  the controller is killed", self.start.elapsed().as_secs_f64()));
        }
        let hits: Vec<(Fault, u32)> = plan.faults.into_iter().zip(nodes.iter().copied()).collect();
        for (fault, node) in &hits {
            self.faults.strike(*fault, *node)?;
            out.line(&format!(
                "    {:5.1} s  node {node} {}",
                self.start.elapsed().as_secs_f64(),
                fault.done()
            ));
        }
        if controller {
            std::thread::sleep(AWAY);
            self.faults.restart_controller()?;
        }
        self.until(back, out)?;
        for (turn, (fault, node)) in hits.iter().enumerate() {
            if turn > 0 {
                std::thread::sleep(BETWEEN);
            }
            self.faults.heal(*fault, *node)?;
        }
        if plan.shape == Shape::Again {
            let (fault, node) = (plan.faults[1], nodes[0]);
            std::thread::sleep(BETWEEN);
            self.faults.strike(fault, node)?;
            out.line(&format!("    {:5.1} s  again {}", self.start.elapsed().as_secs_f64(), fault.done()));
            std::thread::sleep(BETWEEN * 2);
            self.faults.heal(fault, node)?;
        }
        Ok(Round { plan, nodes, controller, injected, healed: self.faults.now() })
    }
}

/// How often each kind of fault was injected.
pub fn injected(rounds: &[Round]) -> BTreeMap<String, u64> {
    let mut injected = BTreeMap::new();
    for round in rounds {
        let count = if round.plan.shape == Shape::One { 1 } else { 2 };
        for fault in round.plan.faults.iter().take(count) {
            *injected.entry(fault.to_string()).or_default() += 1;
        }
        if round.controller {
            *injected.entry("controller".into()).or_default() += 1;
        }
    }
    injected
}
