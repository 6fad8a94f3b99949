//! A replica that the configuration has no place for any more. Before it is removed, the primary's log tells which entries
//! only this replica has (R9).

use crate::history::History;
use crate::output::Output;
use crate::replica::{Ctx, Replica};
use types::{Micros, NodeId, PartitionRecord, TableRecord};
use wire::peer::{Report, ReportRequest};
use wire::{Entry, PeerMessage};

/// A replica without a place stays this long: what is planned may change again.
pub const STAYS: Micros = Micros::from_millis(3_000);

/// True if all copies that there should be of a partition are elsewhere and none is wanted on `node`, as far as these records say.
/// Without its table's record nobody knows where copies are wanted, and the answer is false.
pub fn has_moved(record: &PartitionRecord, table: Option<&TableRecord>, node: NodeId) -> bool {
    let row = table.and_then(|table| {
        let row = record.id.0.checked_sub(table.first_partition.0)?;
        table.placement.get(row as usize)
    });
    let enough = record.in_sync.len() >= usize::from(record.policy.factor);
    enough && record.member_on(node).is_none() && row.is_some_and(|row| !row.contains(&node))
}

impl Replica {
    /// Asks the primary for its log, until [`Replica::is_decommissioned`].
    pub(crate) fn decommission(&mut self, ctx: &mut Ctx) {
        let Some(record) = self.config.record().filter(|record| record.member_on(self.me.node).is_none())
        else {
            return;
        };
        let request = ReportRequest { partition: self.id, epoch: record.epoch, from: self.me };
        ctx.out.push(Output::Send { to: record.primary, message: PeerMessage::ReportRequest(request) });
    }

    /// True if this replica has nothing that must be kept: a driver may remove it once all that was asked for before is done.
    pub fn is_decommissioned(&self) -> bool {
        self.config.is_decommissioned()
    }

    /// One that is about to go asks for this primary's log.
    pub(crate) fn report_to_departing(&self, ctx: &mut Ctx, request: &ReportRequest) {
        let Some(record) = self.config.record() else { return };
        let departing = record.member_on(request.from.node).is_none();
        if !departing || request.epoch != record.epoch || !self.serves() {
            return;
        }
        let report = Report {
            partition: self.id,
            epoch: record.epoch,
            from: self.me,
            log: self.log.summary(),
            marks: self.watermarks(),
            committed: self.marks.committed(),
            torn: self.log.is_torn(),
        };
        ctx.out.push(Output::Send { to: request.from, message: PeerMessage::Report(report) });
    }

    /// The primary's log is known: what it never had is set aside.
    pub(crate) fn take_leave(&mut self, ctx: &mut Ctx, report: &Report) {
        let Some(record) = self.config.record() else { return };
        let asked = record.member_on(self.me.node).is_none() && report.from == record.primary;
        let Ok(theirs) = History::new(report.log.history.clone()) else { return };
        if !asked || report.epoch != record.epoch || self.config.is_decommissioned() {
            return;
        }
        let common = self.log.common_with(&theirs, report.log.end.lsn);
        if !self.is_aside(ctx, common) {
            return;
        }
        let keep = common.max(self.log.tail().base().lsn);
        let entries: Vec<Entry> = self.log.tail().run(keep.next(), usize::MAX).cloned().collect();
        self.set_aside(ctx, entries);
        self.config.note_decommissioned();
    }
}
