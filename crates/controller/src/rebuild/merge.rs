//! Which nodes, tables and partitions there are, and the newest record of each.

use super::known::{Known, When};
use super::{Refusal, end_of};
use crate::admin::name_key;
use std::collections::{BTreeMap, BTreeSet};
use types::config::{ClusterRecord, NodeRecord, PartitionRecord, TableRecord};
use types::{Epoch, Generation, NodeId, PartitionId, RemovedDirectories, StoreId, TableId};
use wire::KeptRecords;

/// All that the nodes keep, as one.
pub(super) struct Merged {
    pub cluster: ClusterRecord,
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    pub tables: BTreeMap<TableId, TableRecord>,
    /// The newest record of each partition.
    pub partitions: BTreeMap<PartitionId, PartitionRecord>,
    /// Nodes that were removed, and their disks: they do not come back on those by themselves.
    pub removed: BTreeMap<NodeId, RemovedDirectories>,
    /// The highest epoch that anything of a partition names, and where.
    pub seen: BTreeMap<PartitionId, (Epoch, NodeId)>,
    /// The disks whose records are complete: everything that their nodes ever heard.
    pub told: BTreeSet<(NodeId, StoreId)>,
    /// Nodes that may know more: nobody tells what is on a disk that counts.
    pub missing: BTreeSet<NodeId>,
    /// The highest revision that anybody was told.
    pub revision: u64,
    /// How often one of them was asked, this time among them.
    pub asked: u32,
    /// For which generations any of them was asked.
    pub askings: BTreeSet<Generation>,
}

impl Merged {
    pub fn of(reports: &[KeptRecords]) -> Result<Merged, Refusal> {
        let reports: Vec<&KeptRecords> = reports.iter().filter(|report| report.cluster.is_some()).collect();
        one_cluster(&reports)?;
        let known: Vec<Known<'_>> =
            reports.iter().map(|report| Known::read(report)).collect::<Result<_, _>>()?;
        let newest = known.iter().filter(|known| known.cluster.is_some()).max_by_key(|known| known.when());
        let Some(newest) = newest else { return Err(Refusal::Nothing) };
        let cluster = newest.cluster.clone().ok_or(Refusal::Nothing)?;
        let tables = tables(&known);
        let mut names = BTreeSet::new();
        if let Some(table) =
            tables.values().find(|table| !names.insert(name_key(table.holds, &table.name).to_string()))
        {
            return Err(Refusal::SameName(table.name.clone()));
        }
        let removed = removed(&known);
        let mut nodes = nodes(&known);
        // Whoever was removed stays out on that disk, whatever somebody still knows of it.
        nodes.retain(|id, node| !removed.get(id).is_some_and(|removed| removed.has(node.store)));
        let mut merged = Merged {
            cluster,
            nodes,
            partitions: partitions(&known, &tables)?,
            tables,
            removed,
            seen: seen(&known),
            told: known.iter().filter_map(Known::store).collect(),
            missing: BTreeSet::new(),
            revision: known.iter().map(|known| known.report.revision).max().unwrap_or_default(),
            asked: known.iter().map(|known| known.report.asked).max().unwrap_or_default(),
            askings: known.iter().flat_map(|known| known.report.askings.iter().copied()).collect(),
        };
        merged.count_numbers(&known);
        merged.find_missing();
        Ok(merged)
    }

    /// Numbers that any node knows of were given out.
    fn count_numbers(&mut self, known: &[Known<'_>]) {
        let next = &mut self.cluster;
        for cluster in known.iter().filter_map(|known| known.cluster.as_ref()) {
            next.next_table = next.next_table.max(cluster.next_table);
            next.next_partition = next.next_partition.max(cluster.next_partition);
            next.next_system = next.next_system.max(cluster.next_system);
            next.next_failover = next.next_failover.max(cluster.next_failover);
        }
        for record in known.iter().flat_map(|known| known.partitions.values()) {
            next.next_failover = next.next_failover.max(record.failover.map_or(0, |failover| failover + 1));
        }
        for table in known.iter().flat_map(|known| known.tables.values()) {
            next.next_table = next.next_table.max(table.id.0 + 1);
            match table.first_partition.is_system() {
                true => next.next_system = next.next_system.max(end_of(table)),
                false => next.next_partition = next.next_partition.max(end_of(table)),
            }
        }
        for table in self.tables.values_mut() {
            let told = known.iter().filter_map(|known| known.tables.get(&table.id));
            let last = told.map(|told| told.indexes.last).max().unwrap_or_default();
            table.indexes.last = table.indexes.last.max(last);
            // A partition may have heard of a later policy, and takes no older one any more. That one counts,
            // unless it is of as many copies as no place is known for: a hold in it ends as all do, and not
            // by itself (PR-401).
            let records = table.partition_ids().filter_map(|id| self.partitions.get(&id));
            let policies = records.flat_map(|record| record.next_policy.iter().chain([&record.policy]));
            let newest = policies.max_by_key(|policy| policy.version);
            if let Some(policy) = newest.filter(|policy| policy.version > table.policy.version) {
                match policy.factor == table.policy.factor {
                    true => table.policy = policy.clone(),
                    false => table.policy.version = policy.version,
                }
            }
        }
    }

    /// Every node must tell what is on the disk that it registered with, and every member of a set what is on
    /// the disk that counts.
    fn find_missing(&mut self) {
        let nodes = self.nodes.values().map(|node| (node.id, node.store));
        let members = self.partitions.values().flat_map(PartitionRecord::members);
        let counts = nodes.chain(members.map(|member| (member.node, member.store)));
        let missing = counts.filter(|disk| !self.told.contains(disk)).map(|(node, _)| node);
        self.missing = missing.collect();
    }

    /// A partition of which something names a higher epoch than its newest record.
    pub fn ahead(&self) -> Option<(PartitionId, Epoch, NodeId)> {
        let known = |id: &PartitionId| self.partitions.get(id);
        let ahead = |(id, (epoch, node)): (&PartitionId, &(Epoch, NodeId))| {
            known(id).filter(|record| *epoch > record.epoch).map(|_| (*id, *epoch, *node))
        };
        self.seen.iter().find_map(ahead)
    }
}

fn one_cluster(reports: &[&KeptRecords]) -> Result<(), Refusal> {
    let Some(first) = reports.first() else { return Err(Refusal::Nothing) };
    let mut nodes = BTreeSet::new();
    for report in reports {
        let node = report.member.node;
        if report.cluster != first.cluster {
            return Err(Refusal::Clusters(first.member.node, node));
        }
        if !nodes.insert(node) {
            return Err(Refusal::Twice(node));
        }
        if let Some(controller) = report.controllers.first() {
            return Err(Refusal::HasController(node, controller.clone()));
        }
    }
    Ok(())
}

/// The newest of what these say of each thing. What a whole cluster map of that time or later does not
/// name is gone.
fn newest<'a, 'k: 'a, K: Ord + Copy + 'a, V: Clone + 'a>(
    known: &'a [Known<'k>],
    of: impl Fn(&'a Known<'k>) -> &'a BTreeMap<K, V>,
) -> BTreeMap<K, V> {
    let mut found: BTreeMap<K, (When, &V)> = BTreeMap::new();
    for one in known {
        for (id, record) in of(one) {
            let entry = found.entry(*id).or_insert((one.when(), record));
            if one.when() > entry.0 {
                *entry = (one.when(), record);
            }
        }
    }
    found.retain(|id, (when, _)| {
        !known.iter().any(|one| one.whole() >= Some(*when) && !of(one).contains_key(id))
    });
    found.into_iter().map(|(id, (_, record))| (id, record.clone())).collect()
}

/// The nodes of the cluster.
pub(super) fn nodes(known: &[Known<'_>]) -> BTreeMap<NodeId, NodeRecord> {
    newest(known, |one| &one.nodes)
}

/// The tables. A number is never given to another table, so one that any node knows to be dropped stays
/// dropped.
fn tables(known: &[Known<'_>]) -> BTreeMap<TableId, TableRecord> {
    let mut tables = newest(known, |one| &one.tables);
    tables.retain(|id, _| !known.iter().any(|one| one.dropped.contains(id)));
    tables
}

/// The nodes that anybody was told are gone (PR-159), each with all the disks that it had (PR-280), the one
/// that was told last at the end.
fn removed(known: &[Known<'_>]) -> BTreeMap<NodeId, RemovedDirectories> {
    let mut by_time: Vec<&Known<'_>> = known.iter().collect();
    by_time.sort_by_key(|one| one.when());
    let mut all: BTreeMap<NodeId, RemovedDirectories> = BTreeMap::new();
    for (node, store) in by_time.into_iter().flat_map(|one| one.report.removed.iter().copied()) {
        all.entry(node).or_default().add(store);
    }
    all
}

/// The record of the highest epoch of every partition of these tables. Two that differ in it say that one
/// epoch was written twice: then nothing here can be relied on.
fn partitions(
    known: &[Known<'_>],
    tables: &BTreeMap<TableId, TableRecord>,
) -> Result<BTreeMap<PartitionId, PartitionRecord>, Refusal> {
    let mut newest = BTreeMap::new();
    for table in tables.values() {
        for id in table.partition_ids() {
            let mut best: Option<(&PartitionRecord, NodeId)> = None;
            for one in known {
                let node = one.report.member.node;
                let Some(record) = one.partitions.get(&id).filter(|record| record.table == table.id) else {
                    continue;
                };
                match best {
                    Some((other, _)) if other.epoch > record.epoch => {}
                    Some((other, by)) if other.epoch == record.epoch && other != record => {
                        return Err(Refusal::Differ(id, record.epoch, by, node));
                    }
                    _ => best = Some((record, node)),
                }
            }
            let (record, _) = best.ok_or_else(|| Refusal::NoRecord(id, table.name.clone()))?;
            newest.insert(id, record.clone());
        }
    }
    Ok(newest)
}

/// The highest epoch that anything of each partition names.
fn seen(known: &[Known<'_>]) -> BTreeMap<PartitionId, (Epoch, NodeId)> {
    let mut seen: BTreeMap<PartitionId, (Epoch, NodeId)> = BTreeMap::new();
    for one in known {
        for (id, epoch) in &one.report.seen {
            let entry = seen.entry(*id).or_insert((*epoch, one.report.member.node));
            if *epoch > entry.0 {
                *entry = (*epoch, one.report.member.node);
            }
        }
    }
    seen
}
