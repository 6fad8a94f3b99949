//! A replica that the configuration has no place for any more. Before it is removed, the primary's log tells
//! which entries only this replica has (R9).

use crate::context::Ctx;
use crate::history::History;
use crate::replica::Replica;
use types::{Micros, NodeId, PartitionRecord, TableRecord};
use wire::Entry;
use wire::peer::Report;

/// A replica without a place stays this long: what is planned may change again.
pub const STAYS: Micros = Micros::from_millis(3_000);

/// True if all copies that there should be of a partition are elsewhere and none is wanted on `node`, as far
/// as these records say. Without its table's record nobody knows where copies are wanted, and the answer is
/// false.
pub fn has_moved(record: &PartitionRecord, table: Option<&TableRecord>, node: NodeId) -> bool {
    let row = table.and_then(|table| {
        let row = record.id.0.checked_sub(table.first_partition.0)?;
        table.placement.get(row as usize)
    });
    let enough = record.in_sync.len() >= usize::from(record.policy.factor);
    enough && record.member_on(node).is_none() && row.is_some_and(|row| !row.contains(&node))
}

impl Replica {
    /// True if this replica has nothing that must be kept: a driver may remove it once all that was asked for
    /// before is done.
    pub fn is_decommissioned(&self) -> bool {
        self.config.is_decommissioned()
    }

    /// The primary's log is known: what it never had is set aside.
    pub(crate) fn take_leave(&mut self, ctx: &mut Ctx, report: &Report) {
        let Some(record) = self.config.record() else { return };
        let asked = record.member_on(self.identity.me.node).is_none() && report.from == record.primary;
        let Ok(theirs) = History::new(report.log.history.clone()) else { return };
        if !asked || report.epoch != record.epoch || self.config.is_decommissioned() {
            return;
        }
        let common = self.data.log.common_with(&theirs, report.log.end.lsn);
        if !self.data.is_aside(ctx, common, self.role.is_damaged()) {
            return;
        }
        let keep = common.max(self.data.log.tail().base().lsn);
        let entries: Vec<Entry> = self.data.log.tail().run(keep.next(), usize::MAX).cloned().collect();
        self.data.set_aside(entries, ctx.out);
        self.config.note_decommissioned(self.identity.me.node);
    }
}
