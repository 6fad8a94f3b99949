//! The cluster as one looks at it: what each table survives now and who is behind, then nodes and partitions.
//!
//! Made from the records and the last status of every node. It is for people; safety never rests on it.

use super::replay::Estimates;
use super::survive;
pub use super::words::size;
use super::words::{have, partitions_text, replay_words, writes_nothing};
use super::{back_offs, lacking};
use crate::route::Map;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use types::{Member, NodeId, NodeRecord, PartitionRecord, TableRecord};
use wire::control::{
    BackOff, ClusterStatus, DirectoryStatus, ExecutorStatus, Failback, HungDisk, NodeStatus, ReplicaStatus,
    Role,
};

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Overview {
    /// One per table.
    pub tables: Vec<TableLine>,
    /// One per node.
    pub nodes: Vec<NodeLine>,
    /// One per partition.
    pub partitions: Vec<PartitionLine>,
}

/// A table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TableLine {
    /// Its name.
    pub table: String,
    /// Its policy.
    pub policy: String,
    /// The fewest copies in sync of any partition.
    pub copies: usize,
    /// Copies wanted.
    pub factor: u8,
    /// What an acknowledged commit survives now.
    pub survives: String,
    /// Who is behind, or what is wrong; empty if all is well.
    pub behind: Vec<String>,
    /// True if some partition acknowledges no writes.
    pub stopped: bool,
    /// Milliseconds of log that a failover would replay now before the last of the table's partitions serves
    /// again, as estimated; none before anything was measured.
    pub replay_ms: Option<u64>,
    /// What that is to stay below, if the table has a failover target.
    pub failover_target_ms: Option<u64>,
    /// Of a database: what members are sent of calls of procedures.
    pub ship: types::Ship,
    /// All of it in one line.
    pub words: String,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeLine {
    /// The node.
    pub node: u32,
    /// Where clients reach it.
    pub address: String,
    /// True if the controller has heard it lately.
    pub live: bool,
    /// Milliseconds since the controller heard it.
    pub heard_ms_ago: Option<u64>,
    /// Partitions it leads.
    pub leads: usize,
    /// Replicas it is a member with.
    pub holds: usize,
    /// Bytes of log it keeps.
    pub log_bytes: u64,
    /// Commits it acknowledged since it started.
    pub commits: u64,
    /// Fsyncs since it started.
    pub fsyncs: u64,
    /// True if it refuses writes because its disk is full.
    pub full: bool,
    /// Tails set aside on its disk.
    pub tails: usize,
    /// The directories of its replicas, the data directory first, where there are several.
    pub directories: Vec<DirectoryStatus>,
    /// Its executors by their numbers, where there are several.
    pub executors: Vec<ExecutorStatus>,
    /// Partitions whose data on it are damaged.
    pub damaged: Vec<u32>,
    /// `joining`, `leaving` or `draining`, as operators asked for it.
    pub marks: Vec<&'static str>,
    /// True if it was drained and leads nothing any more: so it stays until it is started again or added.
    pub drained: bool,
}

/// A partition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PartitionLine {
    /// The partition.
    pub partition: u32,
    /// Its table.
    pub table: String,
    /// Its configuration's number.
    pub epoch: u64,
    /// The node that leads.
    pub primary: u32,
    /// What the primary is doing: `serving`, `promoting`, `hangs` (its executor does nothing), `not heard`.
    pub state: String,
    /// Nodes in sync, the primary first.
    pub in_sync: Vec<u32>,
    /// Nodes that catch up.
    pub catching_up: Vec<u32>,
    /// The primary's `committed`.
    pub committed: u64,
    /// Every replica.
    pub replicas: Vec<ReplicaLine>,
    /// What the primary waits for, or empty.
    pub waits: String,
    /// For how long the primary's disk has hung, milliseconds, where acknowledgements rest on it; 0: it does
    /// not.
    pub disk_hangs_ms: u64,
    /// Milliseconds of this partition's log that a failover would replay now, as estimated.
    pub replay_ms: Option<u64>,
}

/// A replica of a partition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplicaLine {
    /// Its node.
    pub node: u32,
    /// What it is.
    pub role: String,
    /// True if its node is heard, and its executor does not hang.
    pub heard: bool,
    /// In its memory.
    pub received: u64,
    /// Fsynced in its log.
    pub durable: u64,
    /// Executed by its engine.
    pub applied: u64,
    /// Its `committed`, as it knows it itself; 0 if it is not heard.
    pub committed: u64,
    /// In its files.
    pub persisted: u64,
    /// Bytes behind the primary.
    pub lag_bytes: u64,
    /// Seconds behind the primary.
    pub lag_seconds: f64,
    /// How it comes back into the set, or came back last in this life of its node.
    pub failback: Failback,
}

/// What operators ask of nodes.
const MARKS: [&str; 3] = [NodeRecord::JOINING, NodeRecord::DECOMMISSIONING, NodeRecord::DRAINING];

/// A node that was not heard for so long, milliseconds, is not live.
pub const SILENT_MS: u64 = 1_500;
/// In-sync copies further behind than this are named.
const BEHIND_BYTES: u64 = 4 << 20;
/// In-sync copies further behind than this are named.
const BEHIND_US: u64 = 1_000_000;

/// Puts the cluster map and the nodes' reports together.
pub fn overview(map: &Map, status: &ClusterStatus) -> Overview {
    let reports: BTreeMap<NodeId, (&NodeStatus, u64)> =
        status.nodes.iter().map(|(node, age)| (node.member.node, (node, *age))).collect();
    let mut records: BTreeMap<_, PartitionRecord> =
        map.partitions().map(|record| (record.id, record.clone())).collect();
    for record in &status.partitions {
        // Whichever way the newer one came.
        let known = records.get(&record.id);
        if known.is_none_or(|known| known.epoch < record.epoch) {
            records.insert(record.id, record.clone());
        }
    }
    let hung = status.hung.iter().map(|hung| (hung.partition, *hung)).collect();
    let back_offs = &status.back_offs[..];
    let mut look = Look { reports, records, hung, back_offs, estimates: Estimates::default() };
    let tables: Vec<&TableRecord> = map.owners().map(|table| table.as_ref()).collect();
    look.estimate(&tables);
    let name = |record: &PartitionRecord| {
        tables.iter().find(|table| table.id == record.table).map(|table| table.name.clone())
    };
    let partitions = look.records.values().filter_map(|record| Some(look.partition(record, name(record)?)));
    Overview {
        tables: tables.iter().map(|table| look.table(table)).collect(),
        nodes: map.nodes().map(|node| look.node(node)).collect(),
        partitions: partitions.collect(),
    }
}

impl Overview {
    /// The partitions that somebody should know of: without a primary that serves, with a copy missing,
    /// behind or silent, or waiting for something. In the order of their numbers.
    pub fn notable_partitions(&self) -> impl Iterator<Item = &PartitionLine> {
        let factors: BTreeMap<&str, usize> =
            self.tables.iter().map(|table| (table.table.as_str(), table.factor.into())).collect();
        let factor = move |line: &PartitionLine| factors.get(line.table.as_str()).copied().unwrap_or(0);
        self.partitions.iter().filter(move |line| !line.is_well(factor(line)))
    }
}

impl PartitionLine {
    /// True if it serves, waits for nothing, and has so many copies, all of them in sync and heard.
    fn is_well(&self, factor: usize) -> bool {
        let silent = |replica: &ReplicaLine| !replica.heard;
        self.state == "serving"
            && self.disk_hangs_ms == 0
            && self.waits.is_empty()
            && self.in_sync.len() >= factor
            && self.catching_up.is_empty()
            && !self.replicas.iter().any(silent)
    }
}

struct Look<'a> {
    reports: BTreeMap<NodeId, (&'a NodeStatus, u64)>,
    records: BTreeMap<types::PartitionId, PartitionRecord>,
    hung: BTreeMap<types::PartitionId, HungDisk>,
    back_offs: &'a [BackOff],
    estimates: Estimates,
}

impl Look<'_> {
    fn estimate(&mut self, tables: &[&TableRecord]) {
        let mut estimates = Estimates::default();
        for record in self.records.values() {
            let table = tables.iter().find(|table| table.id == record.table);
            if let (Some(table), Some(lead)) = (table, self.lead(record)) {
                estimates.add(table, record, lead);
            }
        }
        self.estimates = estimates;
    }

    fn is_live(&self, node: NodeId) -> bool {
        self.reports.get(&node).is_some_and(|(_, age)| *age < SILENT_MS)
    }

    fn replica(&self, member: &Member, record: &PartitionRecord) -> Option<&ReplicaStatus> {
        let (report, _) = self.reports.get(&member.node)?;
        let same = report.member == *member;
        report.replicas.iter().find(|replica| same && replica.partition == record.id)
    }

    /// True if the executor of this partition's replica on a node hangs, as the node says.
    fn hangs(&self, node: NodeId, record: &PartitionRecord) -> bool {
        self.is_live(node) && self.reports.get(&node).is_some_and(|(report, _)| report.hangs(record.id))
    }

    /// The primary's own view of its partition.
    fn lead(&self, record: &PartitionRecord) -> Option<&ReplicaStatus> {
        let node = record.primary.node;
        let heard = self.is_live(node) && !self.hangs(node, record);
        self.replica(&record.primary, record).filter(|_| heard)
    }

    /// Its primary's disk, if that hangs.
    fn hung(&self, record: &PartitionRecord) -> Option<&HungDisk> {
        self.hung.get(&record.id).filter(|hung| hung.primary == record.primary)
    }

    fn node(&self, node: &types::NodeRecord) -> NodeLine {
        let report = self.reports.get(&node.id).map(|(report, _)| *report);
        let count = |mut which: Box<dyn FnMut(&PartitionRecord) -> bool + '_>| {
            self.records.values().filter(|record| which(record)).count()
        };
        let leads = count(Box::new(|record| record.primary.node == node.id));
        NodeLine {
            node: node.id.0,
            address: node.addresses.client.clone(),
            live: self.is_live(node.id),
            heard_ms_ago: self.reports.get(&node.id).map(|(_, age)| *age),
            leads,
            holds: count(Box::new(|record| record.member_on(node.id).is_some())),
            log_bytes: report.map_or(0, |report| report.log_bytes),
            commits: report.map_or(0, |report| report.commits),
            fsyncs: report.map_or(0, |report| report.fsyncs),
            full: report.is_some_and(|report| report.full),
            tails: report.map_or(0, |report| report.tails.len()),
            directories: report.map(|report| report.directories.clone()).unwrap_or_default(),
            executors: report.map(|report| report.executors.clone()).unwrap_or_default(),
            damaged: node.damaged.iter().map(|partition| partition.0).collect(),
            marks: MARKS.into_iter().filter(|mark| node.is_marked(mark)).collect(),
            drained: node.is_marked(NodeRecord::DRAINING) && leads == 0,
        }
    }

    fn partition(&self, record: &PartitionRecord, table: String) -> PartitionLine {
        let lead = self.lead(record);
        let state = match lead.map(|lead| lead.role) {
            Some(Role::Primary) => "serving",
            Some(Role::Promoting) => "promoting",
            Some(_) => "starting",
            None if self.hangs(record.primary.node, record) => "hangs",
            None => "not heard",
        };
        let replicas = record.members().map(|member| {
            let told = self.replica(member, record);
            let own = told.map(|replica| replica.marks);
            let seen = lead.and_then(|lead| lead.members.iter().find(|(other, ..)| other == member));
            let marks = own.or(seen.map(|(_, marks, ..)| *marks)).unwrap_or_default();
            let in_sync = record.in_sync.contains(member);
            let heard = self.is_live(member.node) && !self.hangs(member.node, record);
            let role = match (*member == record.primary, in_sync, heard) {
                (true, ..) => "primary",
                (_, true, true) => "in sync",
                (_, true, false) => "in sync, not heard",
                (_, false, true) => "catching up",
                (_, false, false) => "catching up, not heard",
            };
            ReplicaLine {
                node: member.node.0,
                role: role.into(),
                heard,
                received: marks.received.0,
                durable: marks.durable.0,
                applied: marks.applied.0,
                committed: told.map_or(0, |replica| replica.committed.0),
                persisted: marks.persisted.0,
                lag_bytes: seen.map_or(0, |(_, _, bytes, _)| *bytes),
                lag_seconds: seen.map_or(0.0, |(_, _, _, micros)| *micros as f64 / 1e6),
                failback: told.map(|replica| replica.failback).unwrap_or_default(),
            }
        });
        let nodes = |members: &[Member]| members.iter().map(|member| member.node.0).collect();
        let hung_ms = self.hung(record).map_or(0, |hung| hung.ms);
        PartitionLine {
            partition: record.id.0,
            table,
            epoch: record.epoch.0,
            primary: record.primary.node.0,
            state: state.into(),
            in_sync: nodes(&record.in_sync),
            catching_up: nodes(&record.catching_up),
            committed: lead.map_or(0, |lead| lead.committed.0),
            replicas: replicas.collect(),
            waits: match (lead.map(|lead| lead.waits.clone()).unwrap_or_default(), hung_ms) {
                (waits, 1..) if waits.is_empty() => format!("its disk, which {}", writes_nothing(hung_ms)),
                (waits, _) if waits.is_empty() => back_offs::of_partition(self.back_offs, record),
                (waits, _) => waits,
            },
            disk_hangs_ms: hung_ms,
            replay_ms: self.estimates.partition(record.id).map(|micros| micros.div_ceil(1000)),
        }
    }

    fn table(&self, table: &TableRecord) -> TableLine {
        let records: Vec<&PartitionRecord> =
            table.partition_ids().filter_map(|id| self.records.get(&id)).collect();
        let weakest = survive::weakest(records.iter().copied());
        let copies = weakest.map_or(0, |record| record.in_sync.len());
        let policy = weakest.map_or(&table.policy, |record| &record.policy);
        let survives = survive::survives(policy, copies, table.is_global());
        let (behind, stopped) = (self.behind(&records), self.trouble(table, &records));
        let wrong = !stopped.is_empty();
        let factor = table.policy.factor;
        let who = match behind.is_empty() {
            true => "nobody is behind".to_string(),
            false => behind.join(", "),
        };
        let mut words = format!(
            "{} ({}): {survives}; {copies} of {factor} copies in sync; {who}",
            table.name, policy.name
        );
        for sentence in &stopped {
            words.push_str(&format!("; {sentence}"));
        }
        let replay_ms = self.estimates.table(table).map(|micros| micros.div_ceil(1000));
        words.push_str(&replay_words(table, replay_ms));
        if !table.ship.is_effects() {
            words.push_str("; calls are shipped");
        }
        TableLine {
            table: table.name.clone(),
            policy: policy.name.clone(),
            copies,
            factor,
            survives,
            behind: behind.into_iter().chain(stopped).collect(),
            stopped: wrong,
            replay_ms,
            failover_target_ms: table.failover_target_ms,
            ship: table.ship,
            words,
        }
    }

    /// Who of these partitions' members is behind, by node.
    fn behind(&self, records: &[&PartitionRecord]) -> Vec<String> {
        let mut catching_up: BTreeMap<NodeId, (usize, u64)> = BTreeMap::new();
        let mut late: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut missing = 0;
        let mut silent = BTreeSet::new();
        for record in records {
            let lead = self.lead(record);
            let lag = |member: &Member| {
                let seen = lead.and_then(|lead| lead.members.iter().find(|(other, ..)| other == member));
                seen.map_or((0, 0), |(_, _, bytes, micros)| (*bytes, *micros))
            };
            for member in &record.catching_up {
                let entry = catching_up.entry(member.node).or_default();
                *entry = (entry.0 + 1, entry.1 + lag(member).0);
            }
            for member in record.in_sync.iter().skip(1) {
                let (bytes, micros) = lag(member);
                if bytes > BEHIND_BYTES || micros > BEHIND_US {
                    *late.entry(member.node).or_default() += bytes;
                }
            }
            silent.extend(record.members().map(|member| member.node).filter(|node| !self.is_live(*node)));
            missing += usize::from(record.policy.factor).saturating_sub(record.members().count());
        }
        let mut said: Vec<String> = Vec::new();
        for (node, (partitions, bytes)) in catching_up {
            said.push(format!("{node} is catching up in {} ({})", partitions_text(partitions), size(bytes)));
        }
        said.extend(late.into_iter().map(|(node, bytes)| format!("{node} is behind by {}", size(bytes))));
        said.extend(silent.into_iter().map(|node| format!("{node} is not heard")));
        if missing > 0 {
            let copies = if missing == 1 { "1 copy is".into() } else { format!("{missing} copies are") };
            said.push(format!("{copies} missing"));
        }
        said.extend(back_offs::of_records(self.back_offs, records));
        said
    }

    /// What keeps partitions from serving or from acknowledging.
    fn trouble(&self, table: &TableRecord, records: &[&PartitionRecord]) -> Vec<String> {
        let mut said = Vec::new();
        said.extend(lacking::sentence(table, records, |node| self.is_live(node)));
        let serves =
            |record: &&&PartitionRecord| self.lead(record).is_some_and(|lead| lead.role == Role::Primary);
        let without = records.len() - records.iter().filter(serves).count();
        if without > 0 {
            said.push(format!("{} {} no serving primary", partitions_text(without), have(without)));
        }
        let mut disks: BTreeMap<NodeId, (usize, u64)> = BTreeMap::new();
        for hung in records.iter().filter_map(|record| self.hung(record)) {
            let (count, ms) = disks.entry(hung.primary.node).or_default();
            (*count, *ms) = (*count + 1, hung.ms.max(*ms));
        }
        for (node, (count, ms)) in disks {
            let (leads, long) = (partitions_text(count), writes_nothing(ms));
            said.push(format!("the disk of {node}, which leads {leads}, {long}"));
        }
        said
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use types::config::Addresses;
    use types::data::{Column, ColumnType, Schema};
    use types::{Epoch, Lsn, NodeRecord, PartitionId, ProposalId, Term, Watermarks};
    use wire::RecordText;
    use wire::control::ClusterMap;

    pub fn table(partitions: u32) -> TableRecord {
        let columns = vec![Column::new("id", ColumnType::Int).not_null()];
        TableRecord {
            partitions,
            seed: 1,
            placement: vec![vec![NodeId(1)]; partitions as usize],
            ..TableRecord::new(
                types::TableId(1),
                "t",
                Schema::new(columns, &["id"], 1, false).expect("valid"),
                types::Policy::preset("durable", 3, types::LogKind::Disk).expect("known"),
            )
        }
    }

    pub fn member(node: u32) -> Member {
        Member { node: NodeId(node), ..Member::default() }
    }

    pub fn record(partition: u32, in_sync: &[u32], catching_up: &[u32]) -> PartitionRecord {
        PartitionRecord {
            term: Term(1),
            catching_up: catching_up.iter().map(|node| member(*node)).collect(),
            proposal: ProposalId(1),
            ..PartitionRecord::new(
                PartitionId(partition),
                types::TableId(1),
                Epoch(4),
                in_sync.iter().map(|node| member(*node)).collect(),
                table(1).policy,
            )
        }
    }

    pub fn map(records: &[PartitionRecord]) -> Map {
        let node = |id| NodeRecord {
            format: 1,
            id: NodeId(id),
            store: Default::default(),
            incarnation: Default::default(),
            clean_start: false,
            addresses: Addresses::default(),
            zone: String::new(),
            damaged: Vec::new(),
            start: 0,
            executors: Default::default(),
            unknown: Default::default(),
        };
        let cluster_map = ClusterMap {
            whole: true,
            revision: 1,
            cluster: None,
            nodes: [1, 2, 3].map(|id| RecordText::new(&node(id))).to_vec(),
            tables: vec![RecordText::new(&table(records.len() as u32))],
            partitions: records.iter().map(RecordText::new).collect(),
            dropped: Vec::new(),
        };
        let mut map = Map::default();
        map.apply(&cluster_map).expect("records read back");
        map
    }

    pub fn status(records: &[PartitionRecord], lag: u64, silent: Option<u32>) -> ClusterStatus {
        let replica = |record: &PartitionRecord, node: u32| ReplicaStatus {
            partition: record.id,
            role: if record.primary.node.0 == node { Role::Primary } else { Role::Backup },
            committed: Lsn(9),
            members: record.members().map(|member| (*member, Watermarks::default(), lag, 0)).collect(),
            ..ReplicaStatus::default()
        };
        let node = |id: u32| {
            let replicas = records.iter().map(|record| replica(record, id)).collect();
            let age = if silent == Some(id) { 60_000 } else { 100 };
            (NodeStatus { member: member(id), replicas, ..NodeStatus::default() }, age)
        };
        ClusterStatus { nodes: [1, 2, 3].map(node).to_vec(), ..ClusterStatus::default() }
    }

    #[test]
    fn all_is_well() {
        let records = [record(64, &[1, 2, 3], &[]), record(65, &[2, 3, 1], &[])];
        let seen = overview(&map(&records), &status(&records, 0, None));
        assert_eq!(
            seen.tables[0].words,
            "t (durable): survives any two node crashes, and a power loss of all nodes; 3 of 3 copies in sync; nobody \
             is behind"
        );
        assert_eq!((seen.nodes[1].leads, seen.nodes[1].holds, seen.nodes[1].live), (1, 2, true));
        assert_eq!((seen.partitions[0].state.as_str(), seen.partitions[0].committed), ("serving", 9));
    }

    #[test]
    fn partitions_of_which_somebody_should_know_are_told_from_the_others() {
        let records = [record(64, &[1, 2, 3], &[]), record(65, &[1, 2], &[3]), record(66, &[2, 1], &[])];
        let seen = |silent| overview(&map(&records), &status(&records, 0, silent));
        let notable =
            |seen: Overview| seen.notable_partitions().map(|line| line.partition).collect::<Vec<_>>();
        assert_eq!(notable(seen(None)), vec![65, 66], "one copy is behind, and one is missing");
        assert_eq!(notable(seen(Some(3))), vec![64, 65, 66], "node 3 is silent");
    }

    #[test]
    fn a_copy_that_is_behind_is_named() {
        let records = [record(64, &[1, 2], &[3]), record(65, &[2, 1, 3], &[])];
        let words = overview(&map(&records), &status(&records, 3 << 20, None)).tables.remove(0).words;
        assert!(words.contains("survives any one node crash"), "{words}");
        assert!(
            words.contains("2 of 3 copies in sync; n3 is catching up in 1 partition (3.0 MB)"),
            "{words}"
        );
    }

    #[test]
    fn pr300_a_primary_whose_disk_hangs_is_told() {
        let records = [record(64, &[1, 2, 3], &[]), record(65, &[2, 3, 1], &[])];
        let hung = |node| HungDisk { partition: PartitionId(64), primary: member(node), ms: 2_340 };
        let seen = |hung| overview(&map(&records), &ClusterStatus { hung, ..status(&records, 0, None) });
        let told = seen(vec![hung(1)]);
        let what = "the disk of n1, which leads 1 partition, has written nothing for 2.3 s";
        assert!(told.tables[0].words.ends_with(what) && told.tables[0].stopped, "{}", told.tables[0].words);
        assert_eq!(told.partitions[0].disk_hangs_ms, 2_340);
        assert_eq!(told.partitions[0].waits, "its disk, which has written nothing for 2.3 s");
        assert_eq!(told.notable_partitions().map(|line| line.partition).collect::<Vec<_>>(), [64]);
        assert_eq!(seen(vec![hung(2)]), seen(Vec::new()), "it led before");
    }

    #[test]
    fn a_table_that_stopped_says_so_and_what_goes_on() {
        let records = [record(64, &[1], &[])];
        let line = overview(&map(&records), &status(&records, 0, Some(1))).tables.remove(0);
        assert!(line.stopped);
        assert!(line.words.contains("n1 is not heard, 2 copies are missing"), "{}", line.words);
        assert!(line.words.contains("--available"), "{}", line.words);
        assert!(line.words.contains("1 partition has no serving primary"), "{}", line.words);
    }
}
