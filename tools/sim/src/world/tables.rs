//! What replicas of a database have: rows of tables that their own catalog has, and in the end what the log
//! says (PR-120 to PR-124); no duplicate and no orphan (PR-150, PR-151).

use super::World;
use crate::check::calls;
use crate::check::tables::model::Model;
use crate::check::tables::replicas::Found;
use replica::Replica;
use types::{PartitionId, PartitionRecord, ReadAt};

impl World {
    /// The sound replica of the database on a node.
    fn database_on(&self, node: u32) -> Option<&Replica> {
        let process = self.machine(node).process.as_ref()?;
        let replica = process.host.replica(self.checks.lineage.database()?)?;
        let damaged = replica.is_damaged() || process.reports.damaged().contains(&replica.id());
        (!damaged).then_some(replica)
    }

    /// Compares a node's rows of tables with its catalog.
    pub(super) fn look_at_tables(&mut self, node: u32, unread: &[PartitionId]) {
        let replica = self.database_on(node).filter(|replica| unread.contains(&replica.id()));
        let found = replica.and_then(|replica| {
            let at = replica.engine().published();
            Some((at, Found::read(replica.engine(), ReadAt::Lsn(at.lsn))?.err()?))
        });
        if let Some((at, (id, why))) = found {
            self.checks.fault(id, self.now(), format!("n{node} at {at}: {why}"));
        }
    }

    /// Compares what every node has of tables with what the log says, at the end of a run.
    pub(super) fn check_tables(&mut self) {
        let compare = |node: u32| {
            let replica = self.database_on(node)?;
            let at = replica.engine().published();
            let found = Found::read(replica.engine(), ReadAt::Lsn(at.lsn))?.ok()?;
            let mut line: Vec<_> = self.checks.lineage.line(replica.id(), at).collect();
            line.reverse();
            let why = found.compare(&Model::of(line), at.lsn).err()?;
            Some(format!("n{node} at {at}: {why}"))
        };
        let faults: Vec<String> = (1..=self.plan.nodes).filter_map(compare).collect();
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
            let replica = self.database_on(node)?;
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
        let replica = self.database_on(record.primary.node.0).filter(|replica| replica.id() == record.id)?;
        let found = Found::read(replica.engine(), ReadAt::Applied)?.ok()?;
        found
            .dropped()
            .map(|table| format!("{} still has rows of table {table}, which was dropped", record.id))
    }
}
