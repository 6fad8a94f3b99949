//! The state itself, by a scan at one LSN, for a member whose log is too old and that cannot be given files.

use crate::backup::Backup;
use crate::backup::copy_in::PieceIs;
use crate::history::History;
use crate::output::Output;
use crate::primary::progress::Mode;
use crate::replica::{Ctx, Replica, Role};
use types::engine::{Row, space};
use types::{Lsn, Member, Micros, Position, ReadAt};
use wire::PeerMessage;
use wire::peer::{Copied, Copy};

/// A copy that is being sent.
#[derive(Debug)]
pub(crate) struct CopyOut {
    number: u64,
    /// The position at which the state is copied.
    at: Position,
    at_crc: u32,
    next_key: Vec<u8>,
    /// The piece on its way.
    pending: Option<Copy>,
    sent_at: Micros,
    /// How often that piece was sent again.
    resent: u32,
}

/// A piece that was sent so often without an answer is of no use: the member may have lost what it had of the copy.
const RESENT: u32 = 5;

impl CopyOut {
    /// The connection is new: the piece on its way is lost.
    pub fn resend(&mut self) {
        self.sent_at = Micros::ZERO;
    }
}

impl Replica {
    /// Begins to send the state itself: by files if both have them, else as published now.
    pub(crate) fn start_copy(&mut self, ctx: &mut Ctx, member: Member) {
        let at = self.engine.published();
        let at_crc = self.log.tail().at(at.lsn).map_or(0, |(_, crc)| crc);
        let ships = self.engine.capabilities().ships_files && self.engine.persisted() != Position::ZERO;
        let catching_up = self.config.is_catching_up(&member);
        let now = ctx.now.mono;
        let Some(progress) = self.progress(member) else { return };
        if !catching_up {
            // A member of the set whose log does not agree is not what it was: it must leave the set first.
            progress.health.taint();
            return;
        }
        // Its positions go back with the copy, and that is no damage (PR-18).
        progress.begin_from_scratch(now);
        if ships && !progress.rows_only {
            return self.start_shipping(ctx, member);
        }
        progress.rewind(at.lsn.next());
        progress.needs = at.lsn;
        progress.mode = Mode::Copying(CopyOut {
            number: now.0,
            at,
            at_crc,
            next_key: vec![space::SESSION],
            pending: None,
            sent_at: Micros::ZERO,
            resent: 0,
        });
        self.copy_on(ctx, member);
    }

    /// Sends the next piece, or the same again if it was not answered in time.
    pub(crate) fn copy_on(&mut self, ctx: &mut Ctx, member: Member) {
        let (now, patience) = (ctx.now.mono, Micros(ctx.settings.resend.0 * 20));
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return };
        let Some(Mode::Copying(copy)) = self.progress(member).map(|progress| &mut progress.mode) else {
            return;
        };
        if let Some(pending) = &mut copy.pending {
            if now.since(copy.sent_at) < patience {
                return;
            }
            if copy.resent >= RESENT {
                return self.restart_copy(member);
            }
            copy.resent += 1;
            copy.sent_at = now;
            pending.epoch = epoch;
            let message = PeerMessage::Copy(pending.clone());
            return ctx.out.push(Output::Send { to: member, message });
        }
        self.next_piece(ctx, member, 0);
    }

    fn next_piece(&mut self, ctx: &mut Ctx, member: Member, piece: u32) {
        let now = ctx.now.mono;
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return };
        let (id, me) = (self.id, self.me);
        let Some(Mode::Copying(copy)) = self.progress(member).map(|progress| &progress.mode) else { return };
        let (at, next_key) = (copy.at, copy.next_key.clone());
        let rows =
            match self.engine.scan(&next_key, &[], ReadAt::Lsn(at.lsn), 20_000, ctx.settings.copy_bytes) {
                Ok(rows) => rows,
                Err(types::EngineError::SnapshotTooOld { .. } | types::EngineError::Later(_)) => {
                    return self.restart_copy(member);
                }
                Err(error) => return self.fail(ctx, error.to_string()),
            };
        // All of it: the member finds out by it what this replica never had.
        let history = self.log.history().starts().to_vec();
        self.readers.open(at.lsn, now);
        let Some(Mode::Copying(copy)) = self.progress(member).map(|progress| &mut progress.mode) else {
            return;
        };
        if let Some(last) = rows.last() {
            copy.next_key = last.key.to_vec();
            copy.next_key.push(0);
        }
        let message = Copy {
            partition: id,
            epoch,
            from: me,
            number: copy.number,
            piece,
            at,
            at_crc: copy.at_crc,
            history,
            last: rows.is_empty(),
            rows: rows.into_iter().map(|row| (row.key, row.lsn, row.value)).collect(),
        };
        copy.pending = Some(message.clone());
        copy.resent = 0;
        copy.sent_at = now;
        ctx.out.push(Output::Send { to: member, message: PeerMessage::Copy(message) });
    }

    fn restart_copy(&mut self, member: Member) {
        if let Some(progress) = self.progress(member) {
            progress.mode = Mode::Probe { asked_at: Micros::ZERO };
        }
    }

    /// A piece was taken in.
    pub(crate) fn on_copied(&mut self, ctx: &mut Ctx, copied: &Copied) {
        let Some(progress) = self.progress(copied.from) else { return };
        let Mode::Copying(copy) = &mut progress.mode else { return };
        let Some(pending) = &copy.pending else { return };
        if copy.number != copied.number || pending.piece != copied.piece {
            return;
        }
        if pending.last {
            let at = copy.at.lsn;
            progress.mode = Mode::Stream;
            progress.agree(at);
            return self.ship(ctx);
        }
        copy.pending = None;
        self.next_piece(ctx, copied.from, copied.piece + 1);
    }

    /// A piece of the state arrives at a catching-up replica.
    pub(crate) fn on_copy(&mut self, ctx: &mut Ctx, copy: Copy) {
        let Some(record) = self.config.record() else { return };
        let ours = copy.epoch == record.epoch && copy.from == record.primary;
        if !ours || !record.catching_up.contains(&self.me) {
            return;
        }
        let begins = copy.piece == 0 && self.awaits_copy(ctx);
        let taken = if begins { self.begin_copy(ctx, &copy) } else { self.continues(ctx, &copy) };
        if !taken {
            return;
        }
        if let Err(error) = self.install_piece(ctx, &copy) {
            return self.fail(ctx, error);
        }
        self.send_copied(ctx, &copy);
    }

    /// True if this piece is to be taken in now. One that was taken in before is answered again.
    fn continues(&mut self, ctx: &mut Ctx, copy: &Copy) -> bool {
        let Some(backup) = self.role.backup() else { return false };
        match backup.copy.place(copy, self.log.base() == copy.at) {
            PieceIs::Next => true,
            PieceIs::First => self.begin_copy(ctx, copy),
            PieceIs::Again => {
                self.send_copied(ctx, copy);
                false
            }
            PieceIs::Stale => false,
        }
    }

    /// False if nothing can be installed here.
    fn begin_copy(&mut self, ctx: &mut Ctx, copy: &Copy) -> bool {
        // What the primary never had is set aside before everything here goes (R9). Of its own term, the newest, it has
        // all that there is.
        let theirs = History::new(copy.history.clone()).unwrap_or_default();
        let common = self.log.common_with(&theirs, Lsn::MAX);
        if !self.is_aside(ctx, common) {
            // The same piece comes again.
            return false;
        }
        self.cut_aside(ctx, common);
        self.rebase(ctx, Position::ZERO, 0, History::default());
        if self.is_damaged() {
            self.role.becomes(Role::Backup(Backup::new(ctx.settings.resend)));
        }
        self.incoming = None;
        if let Err(error) = self.engine.stop_receiving().and_then(|()| self.engine.reset(copy.at)) {
            self.fail(ctx, error.to_string());
            return false;
        }
        let Some(backup) = self.role.backup_mut() else { return false };
        backup.acks.begin_at(Lsn::ZERO);
        backup.copy.begin(copy.number);
        true
    }

    /// Up to where the engine has published this log. A damaged replica's files may be of another one (F15).
    pub(crate) fn published_in_log(&self) -> Lsn {
        let published = self.engine.published();
        if self.log.holds(published) { published.lsn } else { Lsn::ZERO }
    }

    fn install_piece(&mut self, ctx: &mut Ctx, copy: &Copy) -> Result<(), String> {
        let rows: Vec<Row> = copy
            .rows
            .iter()
            .map(|(key, lsn, value)| Row { key: key.clone(), lsn: *lsn, value: value.clone() })
            .collect();
        self.engine.install(&rows).map_err(|error| error.to_string())?;
        self.count_rows(rows.iter().map(|row| (row.key.len() + row.value.len()) as u64).sum());
        if copy.last {
            self.given(self.wants_all(ctx));
            self.engine.finish_install().map_err(|error| error.to_string())?;
            let mut history = History::new(copy.history.clone())?;
            history.truncate(copy.at.lsn);
            self.rebase(ctx, copy.at, copy.at_crc, history);
        }
        let Some(backup) = self.role.backup_mut() else { return Ok(()) };
        backup.copy.installed(copy);
        if copy.last {
            backup.acks.begin_at(copy.at.lsn);
        }
        Ok(())
    }

    fn send_copied(&self, ctx: &mut Ctx, copy: &Copy) {
        let copied = Copied {
            partition: self.id,
            epoch: copy.epoch,
            from: self.me,
            number: copy.number,
            piece: copy.piece,
        };
        ctx.out.push(Output::Send { to: copy.from, message: PeerMessage::Copied(copied) });
    }
}
