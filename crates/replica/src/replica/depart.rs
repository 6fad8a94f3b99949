//! A replica that the configuration has no place for any more. Before it is removed, the primary's log tells which entries
//! only this replica has (R9).

use super::{Ctx, Replica};
use crate::history::History;
use crate::output::Output;
use types::Remedy;
use wire::peer::{Report, ReportRequest};
use wire::{Entry, PeerMessage};

impl<R: Remedy> Replica<R> {
    /// Asks the primary for its log, until [`Replica::has_departed`].
    pub(crate) fn depart(&mut self, ctx: &mut Ctx) {
        let Some(record) = self.record.as_ref().filter(|record| record.member_on(self.me.node).is_none())
        else {
            return;
        };
        let request = ReportRequest { partition: self.id, epoch: record.epoch, from: self.me };
        ctx.out.push(Output::Send { to: record.primary, message: PeerMessage::ReportRequest(request) });
    }

    /// True if this replica has nothing that must be kept: a driver may remove it once all that was asked for before is done.
    pub fn has_departed(&self) -> bool {
        self.departed
    }

    /// One that is about to go asks for this primary's log.
    pub(super) fn report_to_departing(&self, ctx: &mut Ctx, request: &ReportRequest) {
        let Some(record) = &self.record else { return };
        let departing = record.member_on(request.from.node).is_none();
        if !departing || request.epoch != record.epoch || !self.serves() {
            return;
        }
        let report = Report {
            partition: self.id,
            epoch: record.epoch,
            from: self.me,
            log: self.summary(),
            marks: self.marks(),
            committed: self.committed,
            cut: self.cut,
        };
        ctx.out.push(Output::Send { to: request.from, message: PeerMessage::Report(report) });
    }

    /// The primary's log is known: what it never had is set aside.
    pub(super) fn take_leave(&mut self, ctx: &mut Ctx, report: &Report) {
        let Some(record) = &self.record else { return };
        let asked = record.member_on(self.me.node).is_none() && report.from == record.primary;
        let Ok(theirs) = History::new(report.log.history.clone()) else { return };
        if !asked || report.epoch != record.epoch || self.departed {
            return;
        }
        let common = theirs.common(report.log.end.lsn, &self.summary()).lsn;
        let keep = common.max(self.published_in_log()).max(self.tail.base().lsn);
        let entries: Vec<Entry> = self.tail.run(keep.next(), usize::MAX).cloned().collect();
        self.set_aside(ctx, entries);
        self.departed = true;
    }
}
