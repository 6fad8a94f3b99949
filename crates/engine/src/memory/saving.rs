//! A snapshot that is written beside the engine's work: the executor hands over rows at one position in small
//! pieces, a thread encodes, writes and syncs them.

use super::snapshot::{self, Header};
use super::store::SnapshotStore;
use crate::files::not_written;
use crate::rows::Rows;
use crate::scan::FIRST_KEY;
use bytes::Bytes;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::Builder;
use types::engine::{Checkpoint, Wake};
use types::{EngineError, Position};

/// One piece has about so many rows and bytes.
const PIECE_ROWS: usize = 2048;
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that may wait for the disk.
const PIECES: usize = 4;

/// Rows in key order; none at all: the snapshot is complete.
type Piece = Vec<(Bytes, types::Lsn, Bytes)>;
type Store = Box<dyn SnapshotStore>;

/// What is being saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    /// What it says of itself.
    pub(super) header: Header,
    /// The state that it is.
    pub(super) at: Position,
    /// Bytes that were not saved before it.
    pub(super) unsaved: u64,
}

/// A snapshot on its way to the disk.
pub(super) struct Saving {
    /// Which.
    pub(super) what: What,
    /// Sessions are among the rows (PR-45).
    sessions: bool,
    /// The first key that is not handed over yet; none when all are.
    next: Option<Vec<u8>>,
    /// A piece that found no room.
    pending: Option<Piece>,
    pieces: SyncSender<Piece>,
    outcome: Receiver<(Store, io::Result<()>)>,
}

impl Saving {
    /// Starts the thread that will save what [`Saving::go_on`] hands over.
    pub(super) fn start(mut store: Store, what: What, sessions: bool, wake: &Wake) -> Saving {
        let (pieces, from) = sync_channel(PIECES);
        let (to, outcome) = channel();
        let wake = wake.clone();
        let save = move || {
            let saved = save(&mut *store, what.header, &from, &wake);
            // Both fail only when the engine is gone.
            let _ = to.send((store, saved));
            wake();
        };
        Builder::new().name("snapshot".into()).spawn(save).expect("the system gives no more threads");
        Saving { what, sessions, next: Some(FIRST_KEY.to_vec()), pending: None, pieces, outcome }
    }

    /// True while versions at its position are still to be read.
    pub(super) fn reads(&self) -> bool {
        self.next.is_some()
    }

    /// Hands over another piece, if there is room for one.
    pub(super) fn go_on(&mut self, rows: &Rows) -> Checkpoint {
        let piece = self.pending.take().or_else(|| self.piece(rows));
        let Some(piece) = piece else { return Checkpoint::Waiting };
        match self.pieces.try_send(piece) {
            Ok(()) if self.next.is_some() => Checkpoint::Ready,
            Ok(()) => Checkpoint::Waiting,
            Err(TrySendError::Full(piece)) => {
                self.pending = Some(piece);
                Checkpoint::Waiting
            }
            // The thread ended early; its outcome says why.
            Err(TrySendError::Disconnected(_)) => Checkpoint::Waiting,
        }
    }

    /// The next piece; none after the last one, which is empty.
    fn piece(&mut self, rows: &Rows) -> Option<Piece> {
        let from = self.next.take()?;
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for (key, lsn, value) in rows.range(&from, &[], self.what.at.lsn) {
            if !self.sessions && key[0] == types::engine::space::SESSION {
                continue;
            }
            bytes += key.len() + value.len();
            piece.push((Bytes::copy_from_slice(key), lsn, value.clone()));
            if piece.len() >= PIECE_ROWS || bytes >= PIECE_BYTES {
                break;
            }
        }
        self.next = piece.last().map(|(key, ..)| [key, &[0][..]].concat());
        Some(piece)
    }

    /// How it ended, and the store, once it has.
    pub(super) fn outcome(&mut self) -> Option<(Option<Store>, Result<(), EngineError>)> {
        match self.outcome.try_recv() {
            Ok((store, saved)) => Some((Some(store), saved.map_err(not_written))),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some((None, Err(panicked()))),
        }
    }

    /// Hands over all the rest and waits for the end.
    pub(super) fn finish(mut self, rows: &Rows) -> (Option<Store>, Result<(), EngineError>) {
        while let Some(piece) = self.pending.take().or_else(|| self.piece(rows)) {
            // Fails only if the thread ended early; its outcome says why.
            let _ = self.pieces.send(piece);
        }
        self.wait()
    }

    /// Gives it up. The snapshot before it stays, unless this one was complete already.
    pub(super) fn cancel(self) -> Option<Store> {
        self.wait().0
    }

    fn wait(self) -> (Option<Store>, Result<(), EngineError>) {
        let Saving { pieces, outcome, .. } = self;
        drop(pieces);
        match outcome.recv() {
            Ok((store, saved)) => (Some(store), saved.map_err(not_written)),
            Err(_) => (None, Err(panicked())),
        }
    }
}

fn panicked() -> EngineError {
    EngineError::Library("the thread that writes snapshots panicked".into())
}

/// What the thread does.
fn save(
    store: &mut dyn SnapshotStore,
    header: Header,
    from: &Receiver<Piece>,
    wake: &Wake,
) -> io::Result<()> {
    store.save(&mut |out| {
        let mut complete = false;
        let pieces = std::iter::from_fn(|| {
            let piece = from.recv().ok()?;
            wake();
            complete = piece.is_empty();
            (!complete).then_some(piece)
        });
        snapshot::write(out, header, pieces.flatten())?;
        // Without the empty piece the rest was not handed over: this must never become the snapshot.
        if complete { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    })
}
