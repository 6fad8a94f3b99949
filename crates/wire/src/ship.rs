//! How a set of components (`types::component`) travels from a primary to a member, as its state or beside
//! the log.
//!
//! ```text
//! primary                                member
//!   Offer: a set, how long, at what position
//!                                        Want: pieces of the set's description, then of the files that it lacks
//!   Chunk: one piece, with its checksum
//!   ...                                  ...
//!                                        Taken: installed, or why not
//!   Withdrawn: an answer to a Want of what is not offered any more
//!                                        FlushRequest: its log is too long
//!   FlushAnswer: flushed (an Offer follows), or there was nothing to flush
//! ```
//!
//! The member asks, so whatever is lost is asked for again by the one who lacks it, and a member that comes
//! back with another life goes on where the files on its disk end.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::component::{MAX_COMPONENTS, MAX_ORDER_BYTES};
use types::{ComponentSet, Epoch, Lsn, Member, PartitionId, Position, Term};

/// In a [`Piece`]: the set's own description ([`encode_set`]), not one of its files.
pub const DESCRIPTION: u32 = u32::MAX;
/// The most pieces that are wanted and not answered.
pub const MAX_PIECES: usize = 32;
/// The longest piece, in bytes.
pub const MAX_PIECE_BYTES: u32 = 16 << 20;
/// The longest description, in bytes: a component takes at most 10 + 10 + 19.
pub const MAX_DESCRIPTION_BYTES: u64 = (MAX_ORDER_BYTES + 40 * MAX_COMPONENTS + 1024) as u64;
/// The longest reason in a [`Installed`], in bytes.
pub const MAX_REASON_BYTES: usize = 512;

/// A primary has files for this member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransferOffer {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// Names this offer; grows with each one in a term.
    pub number: u64,
    /// The position that the files hold.
    pub at: Position,
    /// The checksum of the entry at that position; 0: not known any more.
    pub at_crc: u32,
    /// The epochs of the primary's log: they tell the member which of its own entries the primary never had
    /// (R9).
    pub history: Vec<(Term, Lsn)>,
    /// The length of the set's description, in bytes.
    pub description_bytes: u64,
    /// How long the pieces are to be that the member asks for, in bytes.
    pub piece_bytes: u32,
    /// The member follows the log meanwhile; else the files are to be its state, and the log goes on above
    /// them.
    pub beside: bool,
    /// Bytes of log that would bring the member level without any files, if the log reaches back so far: the
    /// member chooses.
    pub log_alone: Option<u64>,
    /// Bytes of log above the files.
    pub log_above: u64,
}

/// A piece of a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// An index into the set's files, or [`DESCRIPTION`].
    pub file: u32,
    /// Its first byte.
    pub from: u64,
}

/// What a member lacks of an offer, as much as it wants at once; none: it is still busy with the offer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransferRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The offer's epoch.
    pub epoch: Epoch,
    /// The member.
    pub from: Member,
    /// The offer.
    pub number: u64,
    /// At most [`MAX_PIECES`].
    pub pieces: Vec<Piece>,
    /// Bytes of the files that are there; what it had already counts too. While the set is checked, what was
    /// checked is added.
    pub have: u64,
    /// Files that were not what the set says, and are wanted again.
    pub tainted: u64,
}

/// A piece, as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chunk {
    /// The partition.
    pub partition: PartitionId,
    /// The offer's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// The offer.
    pub number: u64,
    /// Which piece.
    pub piece: Piece,
    /// CRC-32C of the bytes, made where they were read.
    pub crc: u32,
    /// As many as the offer said, or fewer at the end of a file.
    pub bytes: Bytes,
}

/// What became of an offer at the member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// The set is the member's state, on its disk too.
    Installed,
    /// It is of no use there, for this reason. Rows are.
    Refused(String),
    /// The log alone ([`TransferOffer::log_alone`]) is less than what it lacks of the files and the log above
    /// them.
    LogIsLess,
}

/// The member is through with an offer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Installed {
    /// The partition.
    pub partition: PartitionId,
    /// The offer's epoch.
    pub epoch: Epoch,
    /// The member.
    pub from: Member,
    /// The offer.
    pub number: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// This offer does not stand any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Withdrawn {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// The offer.
    pub number: u64,
}

/// A member's log is too long, and its files come from the primary: it is to have all it can in files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlushRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The member's epoch.
    pub epoch: Epoch,
    /// The member.
    pub from: Member,
    /// What the member's files hold.
    pub persisted: Lsn,
}

/// The answer: what the primary's files hold now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlushAnswer {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// The position of the primary's files.
    pub at: Position,
    /// There are files that the member does not have, and they are offered next. If not, there was nothing to
    /// flush.
    pub flushed: bool,
}

impl TransferOffer {
    /// Why no primary can have sent this, or none.
    pub fn fault(&self) -> Option<&'static str> {
        if self.description_bytes == 0 || self.description_bytes > MAX_DESCRIPTION_BYTES {
            return Some("an offer's description has an impossible length");
        }
        if self.piece_bytes == 0 || self.piece_bytes > MAX_PIECE_BYTES {
            return Some("an offer's pieces have an impossible length");
        }
        None
    }
}

impl Chunk {
    /// The checksum of a piece's bytes.
    pub fn checksum(bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }

    /// True if the bytes are what they were when they were read.
    pub fn is_sound(&self) -> bool {
        Chunk::checksum(&self.bytes) == self.crc
    }
}

/// A set's description.
pub fn encode_set(set: &ComponentSet) -> Bytes {
    postcard::to_stdvec(set).expect("numbers and bytes can be encoded").into()
}

/// The same, as long whatever the digests are: each takes as many bytes as the longest. [`decode_set`] reads
/// both.
pub fn encode_set_evenly(set: &ComponentSet) -> Bytes {
    let even = |mut digest: u128| {
        let mut bytes = [0u8; 19];
        for byte in &mut bytes {
            (*byte, digest) = (0x80 | (digest & 0x7f) as u8, digest >> 7);
        }
        bytes[18] &= 0x7f;
        bytes
    };
    let files: Vec<_> = set.files.iter().map(|file| (file.number, file.bytes, even(file.digest))).collect();
    postcard::to_stdvec(&(set.at, &set.order, files)).expect("numbers and bytes can be encoded").into()
}

/// From [`encode_set`]. The error is a sentence; a peer said this.
pub fn decode_set(bytes: &[u8]) -> Result<ComponentSet, String> {
    let set = match postcard::take_from_bytes::<ComponentSet>(bytes) {
        Ok((set, [])) => set,
        Ok((_, rest)) => return Err(format!("{} bytes follow the description of a set", rest.len())),
        Err(error) => return Err(format!("not the description of a set: {error}")),
    };
    set.fault().map_or(Ok(set), |fault| Err(fault.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Component;

    #[test]
    fn a_description_reads_back_and_garbage_is_refused() {
        let files = vec![Component { number: 3, bytes: 9, digest: u128::MAX }];
        let set = ComponentSet { at: Position::new(Term(2), Lsn(7)), order: vec![1, 2], files };
        let bytes = encode_set(&set);
        assert_eq!(decode_set(&bytes), Ok(set.clone()));
        for length in 0..bytes.len() {
            assert!(decode_set(&bytes[..length]).is_err(), "{length}");
        }
        for digest in [0, 7, 1 << 126, u128::MAX] {
            let set = ComponentSet { files: vec![Component { digest, ..set.files[0] }], ..set.clone() };
            let even = encode_set_evenly(&set);
            assert_eq!((decode_set(&even), even.len()), (Ok(set), bytes.len()));
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(decode_set(&longer).is_err());
        let twice = ComponentSet { files: vec![set.files[0]; 2], ..set };
        assert!(decode_set(&encode_set(&twice)).unwrap_err().contains("twice"));
    }

    #[test]
    fn the_longest_description_has_its_limit() {
        let file = Component { number: u64::MAX, bytes: 0, digest: u128::MAX };
        let at = Position::new(Term(u64::MAX), Lsn(u64::MAX));
        let one = encode_set(&ComponentSet { at, order: vec![], files: vec![file] }).len();
        let none = encode_set(&ComponentSet { at, order: vec![], files: vec![] }).len();
        // The length itself is at most ten bytes longer.
        assert!(one - none + 9 <= 40, "{}", one - none);
    }
}
