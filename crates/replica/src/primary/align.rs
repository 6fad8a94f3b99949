//! Where a member's log agrees with the primary's: a refused append, a report, and from where it is sent what it lacks.

use crate::output::Output;
use crate::primary::progress::Mode;
use crate::replica::{Ctx, Replica};
use types::{Member, PartitionRecord};
use wire::PeerMessage;
use wire::control::RecordText;
use wire::peer::{AppendRefused, Inform, LogSummary, Refusal};

impl Replica {
    /// A member did not take an append.
    pub(crate) fn on_refused(&mut self, ctx: &mut Ctx, refused: AppendRefused) {
        match refused.why {
            Refusal::OldEpoch(text) => {
                if let Ok(record) = serde_json::from_str::<PartitionRecord>(&text) {
                    self.configure(ctx, record);
                }
            }
            Refusal::Mismatch(summary) => self.realign(ctx, refused.from, refused.number, &summary),
            Refusal::Unstaged(lsn) => self.on_unstaged(ctx, &refused, lsn),
            Refusal::NotMine => {
                let Some(record) = self.config.record() else { return };
                let inform = Inform { partition: self.id, record: RecordText::new(record) };
                ctx.out.push(Output::Send { to: refused.from, message: PeerMessage::Inform(inform) });
                if let Some(progress) = self.progress(refused.from) {
                    progress.again();
                }
            }
            Refusal::Busy => {
                let now = ctx.now.mono;
                let counts =
                    self.config.record().is_some_and(|record| record.in_sync.contains(&refused.from));
                match self.progress(refused.from) {
                    Some(progress) if counts => progress.health.taint(),
                    // It need not leave what it is not in. When it has room it goes on from what it then has.
                    Some(progress) if matches!(progress.mode, Mode::Stream) => {
                        progress.mode = Mode::Probe { asked_at: now };
                        progress.health.forget_level();
                    }
                    _ => {}
                }
            }
        }
    }

    /// Finds where a member's log agrees, and goes on from there.
    fn realign(&mut self, ctx: &mut Ctx, member: Member, number: u64, theirs: &LogSummary) {
        if self.progress(member).is_some_and(|progress| progress.is_current(number)) {
            self.align(ctx, member, theirs);
        }
    }

    /// Begins to send to a member whose log is known.
    pub(crate) fn align(&mut self, ctx: &mut Ctx, member: Member, theirs: &LogSummary) {
        let common = self.log.history().common(self.log.end().lsn, theirs);
        if common.lsn < self.log.base().lsn || common.lsn < theirs.base.lsn {
            return self.start_copy(ctx, member);
        }
        if self.offers_choice(ctx, member, common.lsn) {
            return;
        }
        if let Some(progress) = self.progress(member) {
            progress.mode = Mode::Stream;
            // A member that catches up is to find the rest of the log, however long it takes (R8).
            progress.needs = common.lsn;
            progress.agree(common.lsn);
        }
    }
}
