//! The state itself, by a scan at one LSN, for a member whose log is too old and that cannot be given files.

use crate::backup::Backup;
use crate::backup::copy_in::PieceIs;
use crate::history::History;
use crate::output::Output;
use crate::primary::progress::Mode;
use crate::replica::{Ctx, Replica, Role};
use crate::transfer::offer::{Given, Sender};
use types::engine::{EngineError, Row, space};
use types::{Lsn, Micros, Position, ReadAt};
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

impl Sender<'_> {
    /// Begins to send the state itself: by files if both have them, else as published now.
    pub fn start_copy(&mut self) -> Result<(), EngineError> {
        if !self.catching_up {
            // A member of the set whose log does not agree is not what it was: it must leave the set first.
            self.progress.health.taint();
            return Ok(());
        }
        let ships = self.engine.ships_files() && self.engine.persisted() != Position::ZERO;
        // Its positions go back with the copy, and that is no damage (PR-18).
        self.progress.begin_from_scratch(self.now);
        if ships && !self.progress.rows_only {
            return self.start_shipping();
        }
        let at = self.engine.published();
        let at_crc = self.log.tail().at(at.lsn).map_or(0, |(_, crc)| crc);
        self.progress.rewind(at.lsn.next());
        self.progress.needs = at.lsn;
        self.progress.mode = Mode::Copying(CopyOut {
            number: self.now.0,
            at,
            at_crc,
            next_key: vec![space::SESSION],
            pending: None,
            sent_at: Micros::ZERO,
            resent: 0,
        });
        self.copy_on()
    }

    /// Sends the next piece, or the same again if it was not answered in time.
    pub fn copy_on(&mut self) -> Result<(), EngineError> {
        let (now, patience) = (self.now, Micros(self.settings.resend.0 * 20));
        let Mode::Copying(copy) = &mut self.progress.mode else { return Ok(()) };
        let Some(pending) = &mut copy.pending else { return self.next_piece(0) };
        if now.since(copy.sent_at) < patience {
            return Ok(());
        }
        if copy.resent >= RESENT {
            self.probe();
            return Ok(());
        }
        copy.resent += 1;
        copy.sent_at = now;
        pending.epoch = self.origin.epoch;
        let message = PeerMessage::Copy(pending.clone());
        self.send(message);
        Ok(())
    }

    fn next_piece(&mut self, piece: u32) -> Result<(), EngineError> {
        let Mode::Copying(copy) = &mut self.progress.mode else { return Ok(()) };
        let (at, bytes) = (copy.at, self.settings.copy_bytes);
        let rows = match self.engine.scan(&copy.next_key, &[], ReadAt::Lsn(at.lsn), 20_000, bytes) {
            Ok(rows) => rows,
            Err(EngineError::SnapshotTooOld { .. } | EngineError::Later(_)) => {
                self.probe();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.readers.open(at.lsn, self.now);
        if let Some(last) = rows.last() {
            copy.next_key = [&last.key[..], &[0]].concat();
        }
        let message = Copy {
            partition: self.origin.partition,
            epoch: self.origin.epoch,
            from: self.origin.me,
            number: copy.number,
            piece,
            at,
            at_crc: copy.at_crc,
            // All of it: the member finds out by it what this replica never had.
            history: self.log.history().starts().to_vec(),
            last: rows.is_empty(),
            rows: rows.into_iter().map(|row| (row.key, row.lsn, row.value)).collect(),
        };
        copy.pending = Some(message.clone());
        copy.resent = 0;
        copy.sent_at = self.now;
        self.send(PeerMessage::Copy(message));
        Ok(())
    }

    /// A piece was taken in.
    pub fn on_copied(&mut self, copied: &Copied) -> Result<Given, EngineError> {
        let Mode::Copying(copy) = &mut self.progress.mode else { return Ok(Given::Nothing) };
        let Some(pending) = &copy.pending else { return Ok(Given::Nothing) };
        if copy.number != copied.number || pending.piece != copied.piece {
            return Ok(Given::Nothing);
        }
        if pending.last {
            let at = copy.at.lsn;
            self.progress.mode = Mode::Stream;
            self.progress.agree(at);
            return Ok(Given::Log);
        }
        copy.pending = None;
        self.next_piece(copied.piece + 1)?;
        Ok(Given::Nothing)
    }
}

impl Replica {
    /// A piece of the state arrives at a catching-up replica.
    pub(crate) fn on_copy(&mut self, ctx: &mut Ctx, copy: Copy) {
        let Some(record) = self.config.record() else { return };
        let ours = copy.epoch == record.epoch && copy.from == record.primary;
        if !ours || !record.catching_up.contains(&self.me) {
            return;
        }
        let piece = match &self.role {
            _ if copy.piece == 0 && self.awaits_copy(ctx) => PieceIs::First,
            Role::Backup(backup) => backup.copy.place(&copy, self.log.base() == copy.at),
            _ => PieceIs::Stale,
        };
        match piece {
            PieceIs::Stale => return,
            PieceIs::First if !self.begin_copy(ctx, &copy) => return,
            PieceIs::First | PieceIs::Next => {
                if let Err(error) = self.install_piece(ctx, &copy) {
                    return self.fail(ctx, error);
                }
            }
            PieceIs::Again => {}
        }
        let (partition, number) = (self.id, copy.number);
        let copied = Copied { partition, epoch: copy.epoch, from: self.me, number, piece: copy.piece };
        ctx.out.push(Output::Send { to: copy.from, message: PeerMessage::Copied(copied) });
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
        self.transfer.incoming.forget();
        if let Err(error) = self.stop_receiving().and_then(|()| self.engine.reset(copy.at)) {
            self.fail(ctx, error.to_string());
            return false;
        }
        let Some(backup) = self.role.backup_mut() else { return false };
        backup.acks.begin_at(Lsn::ZERO);
        backup.copy.begin(copy.number);
        true
    }

    fn install_piece(&mut self, ctx: &mut Ctx, copy: &Copy) -> Result<(), String> {
        let rows: Vec<Row> = copy
            .rows
            .iter()
            .map(|(key, lsn, value)| Row { key: key.clone(), lsn: *lsn, value: value.clone() })
            .collect();
        self.engine.install(&rows).map_err(|error| error.to_string())?;
        let bytes = rows.iter().map(|row| (row.key.len() + row.value.len()) as u64).sum();
        self.transfer.failback.count_rows(bytes);
        if copy.last {
            let whole = self.wants_all(ctx);
            self.transfer.failback.given(whole);
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
}
