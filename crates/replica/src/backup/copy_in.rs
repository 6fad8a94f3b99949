//! A copy by rows on its way to a replica: which piece comes next.

use crate::context::Identity;
use crate::output::Output;
use wire::PeerMessage;
use wire::peer::{AppendRefused, Copy, Refusal};

/// Where a piece of a copy belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceIs {
    /// The first of a newer copy: what was taken in before goes.
    First,
    /// The piece that follows what is here.
    Next,
    /// Taken in before: its answer was lost.
    Again,
    /// Of no use any more.
    Stale,
}

/// The copies of one term, one at a time.
#[derive(Debug, Default)]
pub(crate) struct CopyIn {
    /// The next piece of the copy that is being taken in.
    next_piece: Option<u32>,
    /// The newest copy that was begun. Pieces of it, or of older ones, may come again after its end.
    newest: u64,
}

impl CopyIn {
    /// True if half of the state is here.
    pub fn is_open(&self) -> bool {
        self.next_piece.is_some()
    }

    /// What this piece is. `ends_here`: the log here begins where that copy is.
    pub fn place(&self, copy: &Copy, ends_here: bool) -> PieceIs {
        let same = copy.number == self.newest;
        match self.next_piece {
            Some(next) if same && next == copy.piece => PieceIs::Next,
            Some(next) if same && copy.piece + 1 == next => PieceIs::Again,
            None if copy.last && ends_here && copy.piece > 0 => PieceIs::Again,
            // What an older connection still carried must not undo a copy that was taken in since.
            _ if copy.piece == 0 && copy.number > self.newest => PieceIs::First,
            _ => PieceIs::Stale,
        }
    }

    /// A copy begins.
    pub fn begin(&mut self, number: u64) {
        (self.next_piece, self.newest) = (Some(0), number);
    }

    /// A piece was taken in. With the last one the state is whole.
    pub fn installed(&mut self, copy: &Copy) {
        assert!(
            self.next_piece == Some(copy.piece) && self.newest == copy.number,
            "R3: the piece is not the next one: {} of {}, {self:?}",
            copy.piece,
            copy.number
        );
        if copy.last {
            self.next_piece = None;
        } else if let Some(next) = &mut self.next_piece {
            *next = copy.piece + 1;
        }
    }
}

/// Nothing comes of a copy here: its sender hears that it is to begin anew (PR-117).
pub(crate) fn refuse(identity: Identity, copy: &Copy, out: &mut Vec<Output>) {
    if !identity.rules.ended_copies_are_told() {
        return;
    }
    let (partition, epoch, number) = (identity.id, copy.epoch, copy.number);
    let refused = AppendRefused { partition, epoch, from: identity.me, number, why: Refusal::Busy };
    out.push(Output::Send { to: copy.from, message: PeerMessage::AppendRefused(refused) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Member, PartitionId, Position};

    fn piece(number: u64, piece: u32, last: bool) -> Copy {
        Copy {
            partition: PartitionId(1),
            epoch: Epoch(1),
            from: Member::default(),
            number,
            piece,
            at: Position::ZERO,
            at_crc: 0,
            rows: Vec::new(),
            history: Vec::new(),
            last,
        }
    }

    #[test]
    fn pieces_come_in_order_and_again_but_never_of_an_older_copy() {
        let mut copy = CopyIn::default();
        assert_eq!(copy.place(&piece(3, 1, false), false), PieceIs::Stale, "its first piece is missing");
        assert_eq!(copy.place(&piece(3, 0, false), false), PieceIs::First);
        copy.begin(3);
        assert_eq!(copy.place(&piece(3, 0, false), false), PieceIs::Next);
        copy.installed(&piece(3, 0, false));
        assert!(copy.is_open());
        assert_eq!(copy.place(&piece(3, 0, false), false), PieceIs::Again);
        assert_eq!(copy.place(&piece(2, 0, false), false), PieceIs::Stale);
        assert_eq!(copy.place(&piece(4, 0, false), false), PieceIs::First);
        copy.installed(&piece(3, 1, true));
        assert!(!copy.is_open());
        assert_eq!(copy.place(&piece(3, 1, true), true), PieceIs::Again);
        assert_eq!(copy.place(&piece(3, 1, true), false), PieceIs::Stale);
        assert_eq!(copy.place(&piece(3, 0, false), true), PieceIs::Stale);
    }
}
