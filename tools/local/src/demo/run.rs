//! The load of an act and what happens during it: fault at a third, return at two thirds, then until all is
//! in sync.

use super::act::{Act, Scene, connect};
use super::clock::Moment;
use super::figures::{self, Sample};
use super::options::Fault;
use super::prober::{ProbeReport, Prober};
use super::report::grouped;
use super::stale::{Past, Stale, StaleOutcome};
use super::workload::{LoadReport, Shared, Workload};
use crate::cluster::Cluster;
use crate::error::LocalError;
use crate::terminal::Progress;
use client::Client;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use types::{Epoch, NodeId, PartitionId};

/// Between two looks at the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Between two live lines.
const LIVE: Duration = Duration::from_millis(1000);
/// How long the cluster may take after the load until everything is in sync.
const IN_SYNC_WITHIN: Duration = Duration::from_secs(60);
/// A power loss is seldom clean: the node's links to other nodes go this long before the node itself. Without
/// that, there is hardly ever anything that only the primary had.
const DARK: Duration = Duration::from_millis(100);

/// What happened when.
pub(super) struct Timeline {
    pub start: Moment,
    pub fault: Moment,
    /// The node came back.
    pub back: Moment,
    /// The load ended.
    pub end: Moment,
    /// Every partition had all its copies again.
    pub in_sync: Option<Moment>,
    pub victim: NodeId,
    /// What it led, and in which epoch.
    pub led: Vec<(PartitionId, Epoch)>,
    pub load: LoadReport,
    pub probe: ProbeReport,
    /// What a client of the past was told by the old primary.
    pub stale: Option<StaleOutcome>,
    /// Fsyncs per second and commits per fsync before the fault.
    pub syncs: (Option<f64>, Option<f64>),
}

/// The threads of the load.
struct Threads<'scope> {
    load: ScopedJoinHandle<'scope, Result<LoadReport, LocalError>>,
    probe: ScopedJoinHandle<'scope, Result<ProbeReport, LocalError>>,
}

/// Asks the threads to stop, also when the act fails.
struct StopOnDrop<'a>(&'a Shared);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// The load of an act.
pub(super) struct Run<'a> {
    pub act: &'a Act<'a>,
    pub scene: &'a Scene<'a>,
    pub cluster: &'a mut Cluster,
    pub client: &'a mut Client,
}

/// A run with its threads at work.
struct Running<'a, 'scope> {
    run: Run<'a>,
    threads: Threads<'scope>,
    shared: &'a Shared,
    start: Moment,
    shown: (Instant, u64),
    /// When the node came back, once it has.
    back: Option<Moment>,
    in_sync: Option<Moment>,
    victim: NodeId,
}

impl<'a> Run<'a> {
    /// Plays the load from start to end.
    pub fn play(self, out: &mut dyn Progress) -> Result<Timeline, LocalError> {
        let shared = Shared::default();
        std::thread::scope(|scope| self.play_with(scope, &shared, out))
    }

    fn play_with<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        shared: &'scope Shared,
        out: &mut dyn Progress,
    ) -> Result<Timeline, LocalError>
    where
        'a: 'scope,
    {
        let seconds = self.act.options.seconds as f64;
        let clients = self.act.options.clients;
        out.step(&format!("{clients} clients read and write for {seconds} s"));
        let stop = StopOnDrop(shared);
        let threads = self.start_threads(scope, shared)?;
        let start = Moment::now();
        let (shown, victim) = ((start.at, 0), NodeId(0));
        let mut running =
            Running { run: self, threads, shared, start, shown, back: None, in_sync: None, victim };
        // The first half second warms up: sessions are opened, caches filled.
        running.until(0.5, out)?;
        let before = Sample::take(running.run.client)?;
        running.until(seconds / 3.0, out)?;
        let after = Sample::take(running.run.client)?;
        let syncs = figures::syncs(&before, &after);
        let led = running.choose()?;
        let stale = running.stale(&led)?;
        let fault = running.faults(out)?;
        let stale = stale.map(|stale| scope.spawn(move || stale.insist()));
        running.until(seconds * 2.0 / 3.0, out)?;
        let back = running.bring_back(out)?;
        running.until(seconds, out)?;
        drop(stop);
        let end = Moment::now();
        let victim = running.victim;
        let (in_sync, load, probe) = running.finish(out)?;
        let stale = stale.map(|thread| thread.join().expect("the stale client does not panic"));
        Ok(Timeline { start, fault, back, end, in_sync, victim, led, load, probe, stale, syncs })
    }

    fn start_threads<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        shared: &'scope Shared,
    ) -> Result<Threads<'scope>, LocalError>
    where
        'a: 'scope,
    {
        let (scene, act, seed) = (self.scene, self.act, self.act.options.seed);
        let load = Workload {
            client: connect(self.cluster, seed.wrapping_add(1))?,
            table: &scene.table,
            data: scene.data,
            places: &scene.places,
            shared,
            promised: act.promised(),
            seed,
        };
        let probe = Prober {
            client: connect(self.cluster, seed.wrapping_add(2))?,
            table: &scene.table,
            data: scene.data,
            number: act.options.clients,
            keys: &scene.probes,
            shared,
        };
        Ok(Threads { load: scope.spawn(move || load.run()), probe: scope.spawn(move || probe.run()) })
    }
}

impl<'a> Running<'a, '_> {
    /// Looks at the cluster until so many seconds after the start.
    fn until(&mut self, seconds: f64, out: &mut dyn Progress) -> Result<(), LocalError> {
        while self.start.at.elapsed().as_secs_f64() < seconds {
            self.look()?;
            if self.threads.load.is_finished() || self.threads.probe.is_finished() {
                // Whoever ended early says why when it is joined.
                return Ok(());
            }
            let (at, done) = self.shown;
            if at.elapsed() >= LIVE {
                let now = self.shared.done.load(Ordering::Relaxed);
                let rate = (now - done) as f64 / at.elapsed().as_secs_f64();
                let told = grouped(self.shared.acknowledged.load(Ordering::Relaxed));
                let passed = self.start.at.elapsed().as_secs_f64();
                out.live(&format!(
                    "{passed:5.1} s  {:>8} operations/s  {told} writes acknowledged",
                    grouped(rate as u64)
                ));
                self.shown = (Instant::now(), now);
            }
        }
        Ok(())
    }

    /// Takes news of the cluster in, and notes when everything is in sync after the return.
    fn look(&mut self) -> Result<(), LocalError> {
        self.run.client.poll(POLL_INTERVAL)?;
        if self.back.is_some() && self.in_sync.is_none() && self.is_in_sync() {
            self.in_sync = Some(Moment::now());
        }
        Ok(())
    }

    fn is_in_sync(&self) -> bool {
        let map = self.run.client.cluster_map();
        let factor = usize::from(self.run.act.policy.factor);
        let present = map.node(self.victim).map(|node| node.member());
        self.run.scene.table.partitions().all(|id| {
            map.partition(id).is_some_and(|record| {
                let theirs = record.member_on(self.victim);
                // A member of a former life counts for nothing.
                record.in_sync.len() == factor && theirs.is_none_or(|member| Some(*member) == present)
            })
        })
    }

    /// Picks the node with the most primaries, the lowest of several. What it leads, and in which epoch.
    fn choose(&mut self) -> Result<Vec<(PartitionId, Epoch)>, LocalError> {
        let map = self.run.client.cluster_map();
        let mut led: BTreeMap<NodeId, Vec<(PartitionId, Epoch)>> = BTreeMap::new();
        for id in self.run.scene.table.partitions() {
            if let Some(record) = map.partition(id) {
                led.entry(record.primary.node).or_default().push((id, record.epoch));
            }
        }
        let most = led.into_iter().rev().max_by_key(|(_, partitions)| partitions.len());
        let (node, partitions) =
            most.ok_or_else(|| LocalError::Failed("no partition has a primary".into()))?;
        self.victim = node;
        Ok(partitions)
    }

    /// A client of the past, where the old primary will go on.
    fn stale(&self, led: &[(PartitionId, Epoch)]) -> Result<Option<Stale<'a>>, LocalError> {
        if !matches!(self.run.act.fault, Fault::Stop | Fault::Cut) {
            return Ok(None);
        }
        let Some((partition, epoch)) = led.first() else { return Ok(None) };
        let scene = self.run.scene;
        let keys = scene.stale.iter().find(|(place, _)| place == partition).map_or(&[][..], |(_, keys)| keys);
        let stale = Stale::connect(Past {
            address: self.run.cluster.addresses(self.victim).client.clone(),
            table: &scene.table,
            data: scene.data,
            partition: *partition,
            epoch: *epoch,
            number: self.run.act.options.clients + 1,
            keys,
            shared: self.shared,
        });
        stale.map(Some).map_err(LocalError::Failed)
    }

    fn faults(&mut self, out: &mut dyn Progress) -> Result<Moment, LocalError> {
        let (node, fault) = (self.victim, self.run.act.fault);
        let before = Moment::now();
        self.shared.fault_ms.store(before.wall_ms, Ordering::Relaxed);
        match fault {
            Fault::Kill => self.run.cluster.kill(node)?,
            Fault::Power => {
                self.run.cluster.cut_links(node)?;
                std::thread::sleep(DARK);
                self.run.cluster.power_loss_of(node)?;
            }
            Fault::Stop => self.run.cluster.stop(node)?,
            Fault::Cut => self.run.cluster.cut_from_cluster(node)?,
        }
        let how = match fault {
            Fault::Power => format!(", {} ms after its links to the other nodes", DARK.as_millis()),
            _ => String::new(),
        };
        out.step(&format!("node {} {}{how}", node.0, fault.done()));
        Ok(before)
    }

    fn bring_back(&mut self, out: &mut dyn Progress) -> Result<Moment, LocalError> {
        let (node, fault) = (self.victim, self.run.act.fault);
        let before = Moment::now();
        match fault {
            Fault::Kill | Fault::Power => self.run.cluster.restart(node)?,
            Fault::Stop => self.run.cluster.cont(node)?,
            Fault::Cut => self.run.cluster.heal(node)?,
        }
        self.back = Some(before);
        out.step(&format!("node {} {}", node.0, fault.undone()));
        Ok(before)
    }

    /// Waits for the threads, and until everything is in sync.
    fn finish(
        mut self,
        out: &mut dyn Progress,
    ) -> Result<(Option<Moment>, LoadReport, ProbeReport), LocalError> {
        if self.in_sync.is_none() {
            out.step("wait until every partition has all its copies in sync");
        }
        let deadline = Instant::now() + IN_SYNC_WITHIN;
        while self.in_sync.is_none() && Instant::now() < deadline {
            self.look()?;
        }
        let load = self.threads.load.join().expect("the load does not panic")?;
        let probe = self.threads.probe.join().expect("the prober does not panic")?;
        Ok((self.in_sync, load, probe))
    }
}
