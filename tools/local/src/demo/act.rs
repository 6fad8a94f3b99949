//! One act: a cluster, a table, rows, load, a fault, the return, and everything read back.

use super::bulk;
use super::chart::{Mark, Series};
use super::dataset::Dataset;
use super::figures;
use super::history::{Attempt, KeyId};
use super::journal::Journal;
use super::options::{DemoOptions, Fault};
use super::readback;
use super::report::{ActReport, grouped};
use super::run::{Run, Timeline};
use super::verify::{Counts, Evidence, verify};
use super::workload::SLICE;
use crate::cluster::{Cluster, ClusterOptions, Metastore};
use crate::error::LocalError;
use crate::terminal::Progress;
use client::table::Table;
use client::{Client, ClientError, Options};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::policy::Promise;
use types::{FailoverRecord, PartitionId, Policy};
use wire::control::{AdminCommand, CreateTable};

/// The table's name.
const TABLE: &str = "demo";
/// Keys of the prober in each partition, half of them for after a failover.
const PROBE_KEYS: usize = 400;
/// Keys of the stale client in each partition.
const STALE_KEYS: usize = 4;
/// How long blocking calls may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take until the controller that is asked has heard every node.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts to make the table.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// The exit status of what a safety check refused (conventions).
const REFUSED: u8 = 5;
/// Where an acknowledgement rests on the primary alone, how long it is waited for: long enough to see, short
/// enough to show.
const FAILOVER_WAIT_MS: u64 = 500;

/// What is played.
pub(super) struct Act<'a> {
    pub options: &'a DemoOptions,
    /// 1 or 2.
    pub number: u32,
    pub policy: Policy,
    pub fault: Fault,
    /// Where charts and lists go; the cluster is below it while it runs.
    pub output: &'a Path,
}

/// The table on its cluster, with the place of every key.
pub(super) struct Scene<'a> {
    pub table: Table,
    pub data: &'a Dataset,
    pub places: Vec<PartitionId>,
    /// The prober's keys in each partition.
    pub probes: Vec<(PartitionId, Vec<KeyId>)>,
    /// The stale client's keys in each partition.
    pub stale: Vec<(PartitionId, Vec<KeyId>)>,
}

/// Where an act's cluster is while it runs.
pub(super) fn cluster_dir(output: &Path, act: u32) -> PathBuf {
    output.join(format!("cluster-{act}"))
}

/// Where an act's lost writes are listed.
pub(super) fn lost_list(output: &Path, act: u32) -> PathBuf {
    output.join(format!("lost-{act}.ndjson"))
}

/// A client with sessions, connections and a thread of its own.
pub(super) fn connect(cluster: &Cluster, seed: u64) -> Result<Client, LocalError> {
    let mut options = Options {
        controllers: cluster.controllers(),
        timeout: CALL_TIMEOUT,
        wait: true,
        ..Options::default()
    };
    options.agent = "understudy demo".into();
    options.secret = crate::secret();
    options.core.seed = seed;
    Ok(Client::connect(options)?)
}

/// Makes the table. A node is ready when one controller took it in; with several, the one that is asked may
/// have heard of too few nodes for a moment, and refuses.
fn create(client: &mut Client, table: &CreateTable) -> Result<Table, LocalError> {
    let deadline = Instant::now() + HEARD_WITHIN;
    loop {
        match client.create_table(table) {
            Err(ClientError::Admin { status: REFUSED, .. }) if Instant::now() < deadline => {
                client.poll(ASK_AGAIN)?;
            }
            other => return Ok(other?),
        }
    }
}

impl Act<'_> {
    /// Plays it.
    pub fn play(&self, data: &mut Dataset, out: &mut dyn Progress) -> Result<ActReport, LocalError> {
        let dir = cluster_dir(self.output, self.number);
        let (nodes, name) = (self.options.nodes, &self.policy.name);
        out.step(&format!("start a cluster of {nodes} nodes in {}", dir.display()));
        let mut cluster = Cluster::start(self.cluster_options(&dir))?;
        let mut client = connect(&cluster, self.options.seed)?;
        let partitions = self.options.partitions;
        out.step(&format!(
            "create table `{TABLE}`: policy {name}, {} copies, {partitions} partitions",
            self.policy.factor
        ));
        let table = create(&mut client, &self.table(data))?;
        let scene = self.scene(table, data)?;
        let (rows, bytes) = (grouped(scene.data.loaded() as u64), scene.data.bytes() / 1_000_000);
        out.step(&format!("load {rows} rows, {bytes} MB"));
        let loaded = bulk::load(&mut client, &scene.table, scene.data, &scene.places, out)?;
        let run = Run { act: self, scene: &scene, cluster: &mut cluster, client: &mut client };
        let timeline = run.play(out)?;
        let report = self.check(&mut client, &scene, loaded, timeline, out)?;
        drop(cluster);
        if report.is_good() {
            std::fs::remove_dir_all(&dir).map_err(LocalError::io(&dir))?;
        } else {
            out.line(&format!("the cluster's files and logs stay in {}", dir.display()));
        }
        Ok(report)
    }

    fn cluster_options(&self, dir: &Path) -> ClusterOptions {
        let mut options = ClusterOptions::new(dir);
        options.binary = self.options.binary.clone();
        options.nodes = self.options.nodes;
        options.metastore = self.options.metastore;
        options.controllers = if options.metastore == Metastore::Etcd { 3 } else { 1 };
        options.volatile = self.fault == Fault::Power;
        options.failover_wait_ms = self.policy.rests_on().is_primary().then_some(FAILOVER_WAIT_MS);
        options.settings = self.options.settings.clone();
        options
    }

    fn table(&self, data: &Dataset) -> CreateTable {
        CreateTable {
            factor: Some(self.policy.factor),
            partitions: self.options.partitions,
            ..CreateTable::new(TABLE, data.schema().clone(), &self.policy.name)
        }
    }

    fn scene<'a>(&self, table: Table, data: &'a mut Dataset) -> Result<Scene<'a>, LocalError> {
        data.forget_spare();
        let partitions: Vec<PartitionId> = table.partitions().collect();
        let place = |key: &[u8]| table.partition_of(key).ok();
        let spare = data.spare(&partitions, PROBE_KEYS + STALE_KEYS, place)?;
        let places: Result<Vec<_>, _> = data.keys().iter().map(|key| table.partition_of(key)).collect();
        let part = |from: usize, to: usize| {
            let keys = spare.iter().map(|keys| keys[from..to].to_vec());
            partitions.iter().copied().zip(keys).collect()
        };
        let (probes, stale) = (part(0, PROBE_KEYS), part(PROBE_KEYS, PROBE_KEYS + STALE_KEYS));
        Ok(Scene { places: places?, table, data, probes, stale })
    }

    /// Reads everything back and puts the report together.
    fn check(
        &self,
        client: &mut Client,
        scene: &Scene<'_>,
        loaded: Vec<Attempt>,
        timeline: Timeline,
        out: &mut dyn Progress,
    ) -> Result<ActReport, LocalError> {
        out.step("read every row back from every replica");
        let mut attempts = loaded;
        attempts.extend(&timeline.load.attempts);
        attempts.extend(&timeline.probe.attempts);
        attempts.extend(timeline.stale.iter().flat_map(|stale| &stale.attempts));
        let failovers = failovers(client)?;
        let replicas = readback::replicas(client, &scene.table, scene.data)?;
        let reports = readback::reports(client, &scene.table, &scene.places, &attempts, &failovers)?;
        let promised = self.promised();
        let places = &scene.places;
        let verdict = verify(&Evidence {
            attempts: &attempts,
            places,
            replicas: &replicas,
            reports: &reports,
            promised,
        });
        let mut report = self.report(scene, &timeline, &failovers);
        report.replicas = replicas.len() as u64;
        report.add_verification(&verdict);
        report.add_stale(timeline.stale.iter().flat_map(|stale| &stale.suspects), &reports);
        report.add_untested();
        let journal = Journal { data: scene.data, places };
        if let Some(path) = &self.options.journal {
            let under_load: Vec<Attempt> =
                attempts.iter().filter(|attempt| attempt.sequence > 0).copied().collect();
            journal.acknowledged(path, self.number, &under_load)?;
        }
        if !verdict.lost.is_empty() {
            let path = lost_list(self.output, self.number);
            journal.lost(&path, &verdict.lost)?;
            report.lost_list = Some(path);
        }
        self.show(&report, &timeline, out)?;
        Ok(report)
    }

    /// True if the policy promises that this fault loses nothing.
    pub fn promised(&self) -> bool {
        self.policy.promise(self.fault.failure_scenario()) == Promise::Survives
    }

    fn report(&self, scene: &Scene<'_>, timeline: &Timeline, failovers: &[FailoverRecord]) -> ActReport {
        let (caused, others) = figures::caused(failovers, timeline.victim, &timeline.fault);
        let led: Vec<_> = timeline
            .led
            .iter()
            .map(|(partition, epoch)| {
                let record = caused.iter().find(|record| record.partition == *partition);
                (*partition, record.map_or(epoch.next(), |record| record.new_epoch))
            })
            .collect();
        let seconds = |moment: &super::clock::Moment| moment.seconds_since(&timeline.start);
        let (fault, back, end) = (seconds(&timeline.fault), seconds(&timeline.back), seconds(&timeline.end));
        let load = &timeline.load;
        let slices = &load.slices;
        let all = load.attempts.iter().chain(&timeline.probe.attempts);
        let with =
            |wanted: fn(&Attempt) -> bool| all.clone().filter(|attempt| wanted(attempt)).count() as u64;
        let gap = timeline.probe.longest_gap();
        let failover_ms = timeline.probe.failover_ms(timeline.fault.at, &led);
        let set_aside = failovers.iter().flat_map(|record| &record.loss.tails).map(|tail| tail.commits).sum();
        ActReport {
            policy: self.policy.name.clone(),
            fault: self.fault,
            node: timeline.victim.0,
            nodes: self.options.nodes,
            partitions: self.options.partitions,
            copies: self.policy.factor.into(),
            led: timeline.led.len() as u32,
            clients: self.options.clients,
            seconds: self.options.seconds,
            loaded: scene.data.loaded() as u64,
            acknowledged: with(|attempt| attempt.position().is_some()),
            reads: load.reads,
            unknown: with(|attempt| attempt.end == super::history::End::Unknown),
            not_done: with(|attempt| attempt.end == super::history::End::NotDone),
            counts: Counts::default(),
            wrong_reads: load.wrong_reads,
            noticed_by_clients: load.noticed,
            set_aside,
            replicas: 0,
            detection_ms: figures::detection_ms(&caused, &timeline.fault),
            failover_ms,
            longest_gap_ms: gap.map(|(ms, _)| ms),
            longest_gap_at_s: gap
                .map(|(_, at)| at.saturating_duration_since(timeline.start.at).as_secs_f64()),
            split: figures::split(&caused, &timeline.fault, failover_ms),
            other_failovers: others.len() as u64,
            others: others.iter().map(|record| figures::in_words(record, &timeline.start)).collect(),
            before_ops_s: figures::ops_s(slices, 0.5, fault),
            during_ops_s: figures::ops_s(slices, fault, back),
            after_ops_s: figures::ops_s(slices, back, end),
            rejoin_ms: timeline.in_sync.map(|at| super::clock::ms_between(timeline.back.at, at.at)),
            fsyncs_s: timeline.syncs.0,
            commits_per_fsync: timeline.syncs.1,
            stale: timeline.stale.as_ref().map(|stale| stale.report.clone()),
            chart: self.output.join(format!("throughput-{}.svg", self.number)),
            lost_list: None,
            findings: load.findings.clone(),
        }
    }

    fn show(
        &self,
        report: &ActReport,
        timeline: &Timeline,
        out: &mut dyn Progress,
    ) -> Result<(), LocalError> {
        let mark =
            |at: &super::clock::Moment, text: String| Mark { at: at.seconds_since(&timeline.start), text };
        let node = timeline.victim.0;
        let mut marks = vec![
            mark(&timeline.fault, format!("node {node} {}", self.fault.done())),
            mark(&timeline.back, format!("node {node} {}", self.fault.undone())),
        ];
        let in_time = timeline.in_sync.filter(|at| at.at <= timeline.end.at);
        marks.extend(in_time.map(|at| mark(&at, "in sync again".into())));
        let title = format!("policy {}, {} clients, half reads", self.policy.name, self.options.clients);
        let counts = timeline.load.slices.clone();
        let series = Series { title, counts, slice: SLICE.as_secs_f64(), marks };
        std::fs::write(&report.chart, series.to_svg()).map_err(LocalError::io(&report.chart))?;
        out.line("");
        out.line(&series.to_text());
        out.line(&report.table());
        out.line(&format!("chart: {}", report.chart.display()));
        if let Some(list) = &report.lost_list {
            let writes = grouped(report.counts.reported_lost);
            out.line(&format!(
                "{writes} acknowledged writes are reported lost; they are listed in {}",
                list.display()
            ));
        }
        for finding in &report.findings {
            out.line(&format!("WRONG: {finding}"));
        }
        Ok(())
    }
}

fn failovers(client: &mut Client) -> Result<Vec<FailoverRecord>, LocalError> {
    let text = client.admin(AdminCommand::Failovers)?;
    serde_json::from_str(&text)
        .map_err(|error| LocalError::Failed(format!("the list of failovers cannot be read: {error}")))
}
