//! The state itself as a primary copies it, row by row, taken in here.

use crate::backup::Backup;
use crate::backup::copy_in::{self, PieceIs};
use crate::context::Ctx;
use crate::damage::Fault;
use crate::history::History;
use crate::output::Output;
use crate::replica::{Replica, Role};
use types::{Lsn, Position};
use wire::PeerMessage;
use wire::peer::{Copied, Copy};

impl Replica {
    /// A piece of the state arrives at a catching-up replica.
    pub(crate) fn on_copy(&mut self, ctx: &mut Ctx, copy: Copy) {
        let Some(record) = self.config.record() else { return };
        let ours = copy.epoch == record.epoch && copy.from == record.primary;
        let catching_up = record.catching_up.contains(&self.identity.me);
        if !ours || !catching_up {
            return;
        }
        let piece = match &self.role {
            _ if copy.piece == 0 && self.role.awaits_copy(catching_up, ctx.now.mono) => PieceIs::First,
            Role::Backup(backup) => backup.copy.place(&copy, self.data.log.base() == copy.at),
            _ => PieceIs::Stale,
        };
        match piece {
            // Its sender would wait for what was taken in here before it was damaged.
            PieceIs::Stale if self.is_damaged() => return copy_in::refuse(self.identity, &copy, ctx.out),
            PieceIs::Stale => return,
            PieceIs::First if !self.begin_copy(ctx, &copy) => return,
            PieceIs::First | PieceIs::Next => {
                let bytes = copy.rows.iter().map(|(key, _, value)| (key.len() + value.len()) as u64).sum();
                if let Err(error) = self.data.install_piece(&copy, ctx.out) {
                    self.fail(ctx, Fault::Engine(error));
                    return copy_in::refuse(self.identity, &copy, ctx.out);
                }
                self.transfer.failback.count_rows(bytes);
                if copy.last {
                    let whole = self.transfer.failback.wants_all(ctx.settings, catching_up);
                    self.transfer.failback.given(whole);
                }
                if let Some(backup) = self.role.backup_mut() {
                    backup.installed(&copy);
                }
            }
            PieceIs::Again => {}
        }
        let (partition, number) = (self.identity.id, copy.number);
        let copied =
            Copied { partition, epoch: copy.epoch, from: self.identity.me, number, piece: copy.piece };
        ctx.out.push(Output::Send { to: copy.from, message: PeerMessage::Copied(copied) });
    }

    /// False if nothing can be installed here.
    fn begin_copy(&mut self, ctx: &mut Ctx, copy: &Copy) -> bool {
        // What the primary never had is set aside before everything here goes (R9). Of its own term, the
        // newest, it has all that there is.
        let theirs = History::new(copy.history.clone()).unwrap_or_default();
        let common = self.data.log.common_with(&theirs, Lsn::MAX);
        if !self.data.is_aside(ctx, common, self.role.is_damaged()) {
            // The same piece comes again.
            return false;
        }
        self.data.truncate_aside(common, ctx.out);
        self.data.rebase(Position::ZERO, 0, History::default(), ctx.out);
        if self.is_damaged() {
            self.role.becomes(Role::Backup(Backup::new(ctx.settings.resend)));
        }
        self.transfer.incoming.forget();
        if let Err(error) = self.data.stop_receiving().and_then(|()| self.data.engine.reset(copy.at)) {
            self.fail(ctx, error);
            return false;
        }
        let Some(backup) = self.role.backup_mut() else { return false };
        backup.acks.begin_at(Lsn::ZERO);
        backup.copy.begin(copy.number);
        true
    }
}
