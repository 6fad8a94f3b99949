//! A replica that the configuration has no place for any more. Before it is removed, the primary's log tells
//! which entries only this replica has (R9).

use crate::config::Config;
use crate::context::{Ctx, Identity};
use crate::data::Data;
use crate::history::History;
use crate::replica::Replica;
use types::{Micros, NodeId, PartitionRecord, TableRecord};
use wire::Entry;
use wire::peer::LogReport;

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
}

/// The primary's log is known: what it never had is set aside. `damaged`: the replica is.
pub(crate) fn take_leave(
    identity: Identity,
    (config, data): (&mut Config, &mut Data),
    (report, damaged): (&LogReport, bool),
    ctx: &mut Ctx,
) {
    let Some(record) = config.record() else { return };
    let asked = record.member_on(identity.me.node).is_none() && report.from == record.primary;
    let Ok(theirs) = History::new(report.log.history.clone()) else { return };
    if !asked || report.epoch != record.epoch || config.is_decommissioned() {
        return;
    }
    let common = data.log.common_with(&theirs, report.log.end.lsn);
    if !data.is_aside(ctx, common, damaged) {
        return;
    }
    let keep = common.max(data.log.tail().base().lsn);
    let entries: Vec<Entry> = data.log.tail().run(keep.next(), usize::MAX).cloned().collect();
    data.set_aside(common, entries, ctx.out);
    config.note_decommissioned(identity.me.node);
}
