//! A cluster of this bench's own: tables in it, records into them, and what that cost.

use super::users::{Users, schema};
use crate::cluster::{Target, WAIT_LIMIT, connect};
use crate::error::BenchError;
use crate::options::Common;
use crate::procfs;
use client::{Client, LoadOptions, Table};
use local::{Cluster, ClusterOptions};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use types::NodeId;
use types::policy::Standby;
use wire::control::{AdminCommand, ClusterStatus, CreateTable};

/// Logs are looked at every half second; what has not changed for longer has nothing left to do.
const QUIET: Duration = Duration::from_millis(650);
/// Files that are still being made or shipped after this long are not waited for.
const SETTLES: Duration = Duration::from_secs(60);
/// Processes that were started are not waited for longer than this, looked at so often, until they use no
/// more than this many microseconds of processor time in between.
const RESTS: Duration = Duration::from_secs(10);
const REST_POLL_INTERVAL: Duration = Duration::from_millis(300);
const IDLE_US: u64 = 20_000;
/// One question over HTTP.
const ASK: Duration = Duration::from_secs(5);

/// Counters of all processes together. They only grow while no node is started again.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Counts {
    /// Processor microseconds of this process.
    pub own_us: u64,
    /// Processor microseconds of nodes and controllers.
    pub cluster_us: u64,
    /// Bytes that nodes sent, whoever got them.
    pub sent: u64,
    /// Bytes that this process got from nodes.
    pub answers: u64,
    /// Bytes written to logs.
    pub log: u64,
    /// Bytes of components that were sent.
    pub files: u64,
    /// Components written.
    pub flushes: u64,
}

impl Counts {
    /// What came to it since `before`.
    pub fn since(self, before: Counts) -> Counts {
        let grown = |now: u64, then: u64| now.saturating_sub(then);
        Counts {
            own_us: grown(self.own_us, before.own_us),
            cluster_us: grown(self.cluster_us, before.cluster_us),
            sent: grown(self.sent, before.sent),
            answers: grown(self.answers, before.answers),
            log: grown(self.log, before.log),
            files: grown(self.files, before.files),
            flushes: grown(self.flushes, before.flushes),
        }
    }

    /// Bytes between nodes: log, components, acknowledgements, heartbeats.
    pub fn between_nodes(self) -> u64 {
        self.sent.saturating_sub(self.answers)
    }

    /// Processor microseconds of everybody.
    pub fn cpu_us(self) -> u64 {
        self.own_us + self.cluster_us
    }
}

/// A cluster and a client of it.
pub(super) struct BenchCluster {
    pub client: Client,
    pub cluster: Cluster,
    tables: u32,
    /// Bytes that controllers told the client when they were asked.
    told: u64,
    // Behind the cluster: removed after it was stopped.
    _folder: TempDir,
}

impl BenchCluster {
    /// Starts so many nodes. What is in a partition's log beyond `memory_bytes` makes its memory component a
    /// file; `None`: it never becomes one.
    pub fn start(
        common: &Common,
        target: &Target,
        nodes: u32,
        memory_bytes: Option<u64>,
        settings: &[(&str, &str)],
    ) -> Result<BenchCluster, BenchError> {
        let folder = common.folder("gleambook")?;
        let mut options = ClusterOptions::new(folder.path().join("cluster"));
        options.faults = false;
        options.nodes = nodes;
        options.binary = target.binary.clone().unwrap_or(options.binary);
        let memory = memory_bytes.unwrap_or(1 << 40).to_string();
        let own = [("log.checkpoint_bytes", memory.as_str())];
        let named = own.iter().chain(settings).map(|(name, value)| (name.to_string(), value.to_string()));
        options.settings = named.chain(target.settings.iter().cloned()).collect();
        let cluster = Cluster::start(options)?;
        let client = connect(&cluster.controllers())?;
        let stage = BenchCluster { client, cluster, tables: 0, told: 0, _folder: folder };
        stage.rest();
        Ok(stage)
    }

    /// Waits until the processes do next to nothing: nodes that were started make the first segments of their
    /// logs.
    fn rest(&self) {
        let processes: Vec<u32> =
            self.cluster.file().processes().map(|process| process.pid.unsigned_abs()).collect();
        let (began, mut before) = (Instant::now(), procfs::trees_cpu_us(&processes).all);
        while began.elapsed() < RESTS {
            std::thread::sleep(REST_POLL_INTERVAL);
            let now = procfs::trees_cpu_us(&processes).all;
            if now.saturating_sub(before) <= IDLE_US {
                return;
            }
            before = now;
        }
    }

    /// Another client with connections of its own.
    pub fn another_client(&self) -> Result<Client, BenchError> {
        Ok(connect(&self.cluster.controllers())?)
    }

    /// An empty table of users. A single copy has nobody to stand by.
    pub fn table(&mut self, factor: u8, partitions: u32, standby: Standby) -> Result<Table, BenchError> {
        self.tables += 1;
        Ok(self.client.create_table(&CreateTable {
            factor: Some(factor),
            partitions,
            standby: (factor > 1).then_some(standby),
            ..CreateTable::new(&format!("gleambook_users_{}", self.tables), schema(), "durable")
        })?)
    }

    /// Drops a table with its files.
    pub fn drop_table(&mut self, table: &Table) -> Result<(), BenchError> {
        self.client.admin(AdminCommand::DropTable(table.name().into()))?;
        Ok(())
    }

    /// Every node's status, made after this was asked.
    pub fn status(&mut self) -> Result<ClusterStatus, BenchError> {
        let before = self.client.traffic().received;
        let status = crate::cluster::fresh_status(&mut self.client);
        self.told += self.client.traffic().received - before;
        status
    }

    /// Every node's last status, a few dozen milliseconds old.
    pub fn last_status(&mut self) -> Result<ClusterStatus, BenchError> {
        let before = self.client.traffic().received;
        let text = self.client.admin(AdminCommand::Status)?;
        self.told += self.client.traffic().received - before;
        serde_json::from_str(&text)
            .map_err(|error| BenchError::Wrong(format!("the cluster's status cannot be read: {error}")))
    }

    /// The counters of all processes, as they are now.
    pub fn counts(&self) -> Result<Counts, BenchError> {
        self.counts_without(None)
    }

    /// The same while a node is dead. What it had counted is not in it.
    pub fn counts_without(&self, dead: Option<NodeId>) -> Result<Counts, BenchError> {
        let file = self.cluster.file();
        let processes: Vec<u32> = file.processes().map(|process| process.pid.unsigned_abs()).collect();
        let mut counts = Counts {
            own_us: procfs::own_cpu_us().all,
            cluster_us: procfs::trees_cpu_us(&processes).all,
            answers: self.client.traffic().received - self.told,
            ..Counts::default()
        };
        for node in file.nodes.iter().filter(|node| Some(node.id) != dead) {
            let (_, text) = local::http::request("GET", &node.addresses.http, "/metrics", ASK)
                .map_err(|why| BenchError::Wrong(format!("node {} tells no counters: {why}", node.id)))?;
            let read = |name: &str| sample(&text, name).unwrap_or(0);
            counts.sent += read("understudy_network_sent_bytes_total");
            counts.log += read("understudy_log_written_bytes_total");
            counts.files += read("understudy_ship_sent_bytes_total");
            counts.flushes += read("understudy_checkpoints_total");
        }
        Ok(counts)
    }

    fn node_processes(&self) -> Vec<u32> {
        let file = self.cluster.file();
        file.nodes.iter().map(|node| node.process.pid.unsigned_abs()).collect()
    }

    /// From now on [`BenchCluster::peak`] is counted anew, if the system can do that.
    pub fn forget_peak(&self) {
        self.node_processes().into_iter().for_each(procfs::forget_peak);
    }

    /// The most memory that one of the nodes has had, in bytes.
    pub fn peak(&self) -> Option<u64> {
        self.node_processes().into_iter().filter_map(procfs::peak_bytes).max()
    }

    /// Waits until no component is being made or shipped.
    pub fn settle(&mut self) -> Result<(), BenchError> {
        self.settle_without(None)
    }

    /// The same while a node is dead.
    pub fn settle_without(&mut self, dead: Option<NodeId>) -> Result<(), BenchError> {
        let deadline = Instant::now() + SETTLES;
        let mut before = self.counts_without(dead)?;
        while Instant::now() < deadline {
            std::thread::sleep(QUIET);
            let now = self.counts_without(dead)?;
            let since = now.since(before);
            let ships = self.last_status()?.nodes.iter().any(|(node, _)| ships(node));
            if since.log + since.files + since.flushes == 0 && !ships {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// Waits until every partition of the table has all its copies in sync and is led by somebody. How many
    /// copies the partition with the fewest has.
    pub fn copies(&mut self, table: &Table, wanted: usize, within: Duration) -> Result<usize, BenchError> {
        let deadline = Instant::now() + within;
        loop {
            // Records of partitions are as the controller has them now; nodes' reports are not needed.
            let status = self.last_status()?;
            let ours = status.partitions.iter().filter(|record| record.table == table.id());
            let fewest = ours.map(|record| record.in_sync.len()).min().unwrap_or(0);
            if fewest >= wanted || Instant::now() >= deadline {
                return Ok(fewest);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The node that leads most of the table's partitions, and these.
    pub fn busiest(&mut self, table: &Table) -> Result<(NodeId, Vec<types::PartitionId>), BenchError> {
        let status = self.status()?;
        let mut led: std::collections::BTreeMap<NodeId, Vec<types::PartitionId>> = Default::default();
        for record in status.partitions.iter().filter(|record| record.table == table.id()) {
            led.entry(record.primary.node).or_default().push(record.id);
        }
        let most =
            led.into_iter().max_by_key(|(node, partitions)| (partitions.len(), std::cmp::Reverse(*node)));
        most.ok_or_else(|| BenchError::Wrong("nobody leads the table".into()))
    }
}

fn ships(node: &wire::control::NodeStatus) -> bool {
    node.replicas.iter().any(|replica| !replica.shipping.is_empty())
}

/// The sum of a metric's samples, whatever their labels.
fn sample(text: &str, name: &str) -> Option<u64> {
    let samples = text.lines().filter_map(|line| {
        let (label, value) = line.rsplit_once(' ')?;
        let bare = label.split_once('{').map_or(label, |(bare, _)| bare);
        (bare == name).then(|| value.parse::<u64>().ok())?
    });
    samples.reduce(|sum, sample| sum + sample)
}

/// Writes the records with these ids; how long it took until the last one was acknowledged.
pub(super) fn ingest(
    client: &mut Client,
    table: &Table,
    users: &Users,
    ids: impl Iterator<Item = u64>,
) -> Result<Duration, BenchError> {
    let (begun, mut records) = (Instant::now(), 0);
    let mut loader = client.load(table, LoadOptions { deadline: WAIT_LIMIT, ..LoadOptions::default() });
    for id in ids {
        loader.add_op(client, users.put(id))?;
        records += 1;
    }
    let loaded = loader.finish(client)?;
    if loaded.rows != records {
        return Err(BenchError::Wrong(format!("{} of {records} records were acknowledged", loaded.rows)));
    }
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_their_labels() {
        let text = "# HELP a_total Words.\na_total 5\nb{p=\"1\"} 2\nb{p=\"2\"} 3\na_total_more 9\n";
        assert_eq!(sample(text, "a_total"), Some(5));
        assert_eq!(sample(text, "b"), Some(5));
        assert_eq!(sample(text, "c"), None);
    }

    #[test]
    fn what_nodes_answer_is_not_between_nodes() {
        let before = Counts { sent: 100, answers: 40, ..Counts::default() };
        let now = Counts { sent: 400, answers: 90, own_us: 7, cluster_us: 8, ..Counts::default() };
        assert_eq!(now.since(before).between_nodes(), 250);
        assert_eq!(now.since(before).cpu_us(), 15);
    }
}
