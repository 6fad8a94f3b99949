//! What replicas of a database have: rows of tables that their own catalog has, and in the end what the log
//! says (PR-120 to PR-124); no duplicate and no orphan (PR-150, PR-151).

use super::World;
use crate::check::calls;
use crate::check::catalog::{Standing, Table};
use crate::check::tables::model::Model;
use crate::check::tables::replicas::Found;
use replica::Replica;
use std::collections::BTreeMap;
use types::engine::Row;
use types::{KeySpace, PartitionId, PartitionRecord, ReadAt, TableId};

/// The tables of a replica, by number: version, name and how far each is. Those that are being removed are
/// not there, and how far constraints are each partition finds out by itself (PR-171). None: they cannot be
/// read.
fn tables_of(replica: &Replica) -> Option<BTreeMap<TableId, (u32, String, Standing)>> {
    let (from, to) = KeySpace::Catalog.range(&[], &[]);
    let rows = replica.engine().scan(&from, &to, ReadAt::Applied, 1 << 20, 1 << 30).ok()?;
    let read = |row: &Row| Table::read(&KeySpace::Catalog.key_of(&row.key), &row.value).ok();
    let there = rows.iter().filter_map(read).filter(|table| table.standing != Standing::Dropped);
    Some(there.map(|table| (table.id, (table.version, table.name, table.standing))).collect())
}

impl World {
    /// The sound replicas of the database on a node.
    fn databases_on(&self, node: u32) -> Vec<&Replica> {
        let Some(process) = self.machine(node).process.as_ref() else { return Vec::new() };
        let all = self.checks.lineage.databases().iter().filter_map(|id| process.host.replica(*id));
        let damaged = process.reports.damaged();
        all.filter(|replica| !replica.is_damaged() && !damaged.contains(&replica.id())).collect()
    }

    /// Compares a node's rows of tables with its catalog.
    pub(super) fn look_at_tables(&mut self, node: u32, unread: &[PartitionId]) {
        let replicas = self.databases_on(node).into_iter().filter(|replica| unread.contains(&replica.id()));
        let found = replicas.filter_map(|replica| {
            let at = replica.engine().published();
            Some((replica.id(), at, Found::read(replica.engine(), ReadAt::Lsn(at.lsn))?.err()?))
        });
        for (partition, at, (id, why)) in found.collect::<Vec<_>>() {
            self.checks.fault(id, self.now(), format!("n{node} {partition} at {at}: {why}"));
        }
    }

    /// Compares what every node has of tables with what the log says, at the end of a run.
    pub(super) fn check_tables(&mut self) {
        let compare = |(node, replica): (u32, &Replica)| {
            let at = replica.engine().published();
            let found = Found::read(replica.engine(), ReadAt::Lsn(at.lsn))?.ok()?;
            let mut line: Vec<_> = self.checks.lineage.line(replica.id(), at).collect();
            line.reverse();
            let why = found.compare(&Model::of(line), at.lsn).err()?;
            Some(format!("n{node} {} at {at}: {why}", replica.id()))
        };
        let nodes = 1..=self.plan.nodes;
        let all = nodes.flat_map(|node| self.databases_on(node).into_iter().map(move |one| (node, one)));
        let faults: Vec<String> = all.filter_map(compare).collect();
        for fault in faults {
            self.checks.fault("I6", self.now(), fault);
        }
    }

    /// Compares what calls of procedures came to, in the log that every node has, with what was asked and
    /// told, at the end of a run.
    pub(super) fn check_calls(&mut self) {
        // One that does something else than it says adds what nobody has asked for.
        if self.plan.calls.is_none_or(|calls| calls.unsteady.is_some()) {
            return;
        }
        let (asked, told) = self.clients.calls();
        let compare = |node: u32| {
            let replica = self.databases_on(node).into_iter().next()?;
            let at = replica.engine().published();
            let mut line: Vec<_> = self.checks.lineage.line(replica.id(), at).collect();
            line.reverse();
            let why = calls::compare(&line, &asked, &told).err()?;
            Some(format!("n{node} at {at}: {why}"))
        };
        let faults: Vec<String> = (1..=self.plan.nodes).filter_map(compare).collect();
        for fault in faults {
            self.checks.fault("I9", self.now(), fault);
        }
    }

    /// A table that was dropped, and whose rows are still there where the partition is served.
    pub(super) fn lacks_removal(&self, record: &PartitionRecord) -> Option<String> {
        let mut replicas = self.databases_on(record.primary.node.0).into_iter();
        let replica = replicas.find(|replica| replica.id() == record.id)?;
        let found = Found::read(replica.engine(), ReadAt::Applied)?.ok()?;
        found
            .dropped()
            .map(|table| format!("{} still has rows of table {table}, which was dropped", record.id))
    }

    /// A partition of the database whose tables are not those of the first one, although whoever comes brings
    /// it level (PR-170). Nobody gives the first one back what it has lost.
    pub(super) fn uneven_tables(&self) -> Option<String> {
        let all = self.checks.lineage.databases();
        let (first, others) = all.split_first().filter(|(_, others)| !others.is_empty())?;
        let (closed, epochs) = (self.closed_for_good(), &self.checks.epochs);
        let may_lose = |id: &PartitionId| {
            let lossy = epochs.was_forced(*id) || epochs.was_rebuilt(*id);
            lossy || closed.contains(id) || self.checks.survival.lossy(*id).is_some()
        };
        if all.iter().any(may_lose) {
            return None;
        }
        let known = tables_of(self.led(*first)?)?;
        let differs = |id: &&PartitionId| {
            let own = self.led(**id).and_then(tables_of);
            own.is_some_and(|own| own != known)
        };
        let other = others.iter().find(differs)?;
        Some(format!("PR-170: {other} has other tables than {first}"))
    }
}
