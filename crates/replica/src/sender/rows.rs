//! The state itself to a member, by a scan at one LSN: its log is too old, and it cannot be given files.

use crate::sender::copy_out::CopyOut;
use crate::sender::{Given, Sender};
use types::engine::{EngineError, space};
use types::{Micros, Position, ReadAt};
use wire::PeerMessage;
use wire::peer::{Copied, Copy};

/// A piece that was sent so often without an answer is of no use: the member may have lost what it had of the
/// copy.
const RESENT: u32 = 5;

impl Sender<'_> {
    /// Begins to send the state itself: by files if both have them, else as published now.
    pub fn start_copy(&mut self) -> Result<(), EngineError> {
        if !self.catching_up() {
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
        self.progress.begin_copying(CopyOut {
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
    pub(super) fn copy_on(&mut self) -> Result<(), EngineError> {
        let (now, patience) = (self.now, Micros(self.settings.resend.0 * 20));
        let Some(copy) = self.progress.copy_out() else { return Ok(()) };
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
        let Some(copy) = self.progress.copy_out() else { return Ok(()) };
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
        let Some(copy) = self.progress.copy_out() else { return Ok(Given::Nothing) };
        let Some(pending) = &copy.pending else { return Ok(Given::Nothing) };
        if copy.number != copied.number || pending.piece != copied.piece {
            return Ok(Given::Nothing);
        }
        if pending.last {
            let at = copy.at.lsn;
            self.progress.stream_behind(at);
            return Ok(Given::Log);
        }
        copy.pending = None;
        self.next_piece(copied.piece + 1)?;
        Ok(Given::Nothing)
    }
}
