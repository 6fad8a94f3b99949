//! Transactions over any partitions: what the manager's partition keeps, and what the partitions under it do.
//!
//! A database whose transactions are *global* is written by commits of the transaction manager alone. The
//! manager is the partition of the system table [`crate::system::COMMITS`]. The position of a commit's entry
//! there is its *timestamp*. Of each commit, partitions are told their part by a *flush*, in the order of
//! timestamps: a flush names the commit before it that has a part in the same partition.
//!
//! The manager's partition has, beside the table's rows, one row for each partition that a commit ever had a
//! part in, and the highest timestamp that is not kept any more:
//!
//! ```text
//! 03 68 | partition u32, big-endian      newest commit 16 bytes | newest secured 16 bytes
//! 03 6b                                  highest truncated 16 bytes
//! 03 6c | partition u32 | 16 bytes       from 16 bytes | up to 16 bytes | when, ms since 1970, u64
//! ```
//!
//! The last is what an operator has given up: commits of a partition between two timestamps.
//!
//! A partition under it has one row for each flush that a snapshot may still lie below, and the newest:
//!
//! ```text
//! 03 66 | timestamp 16 bytes             the commit before it 16 bytes
//! 03 67                                  newest timestamp 16 bytes
//! ```
//!
//! A timestamp is the term and the LSN of the manager's entry, each u64 big-endian, so its bytes are in its
//! order.

use crate::engine::space;
use crate::ids::PartitionId;
use crate::position::{Lsn, Position, Term};
use bytes::{BufMut, Bytes, BytesMut};

const HEAD: u8 = 0x68;
const TRUNCATED: u8 = 0x6b;
const GIVEN_UP: u8 = 0x6c;
const FLUSH: u8 = 0x66;
const NEWEST: u8 = 0x67;

/// The bytes of a timestamp.
pub const TIMESTAMP_BYTES: usize = 16;

/// How far the commits of one partition have come, as the manager knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// The newest commit that has a part in the partition.
    pub newest: Position,
    /// Every commit up to this one is on every copy of the partition that counts, and its log is durable
    /// there (T_P of the partition).
    pub secured: Position,
}

/// A timestamp as it is stored.
pub fn encode_timestamp(at: Position) -> [u8; TIMESTAMP_BYTES] {
    let mut bytes = [0; TIMESTAMP_BYTES];
    bytes[..8].copy_from_slice(&at.term.0.to_be_bytes());
    bytes[8..].copy_from_slice(&at.lsn.0.to_be_bytes());
    bytes
}

/// A stored timestamp. `None`: these bytes are none.
pub fn decode_timestamp(bytes: &[u8]) -> Option<Position> {
    let (term, lsn) = bytes.split_first_chunk::<8>()?;
    let lsn: [u8; 8] = lsn.try_into().ok()?;
    Some(Position::new(Term(u64::from_be_bytes(*term)), Lsn(u64::from_be_bytes(lsn))))
}

impl Head {
    /// As it is stored.
    pub fn encode(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(2 * TIMESTAMP_BYTES);
        bytes.put_slice(&encode_timestamp(self.newest));
        bytes.put_slice(&encode_timestamp(self.secured));
        bytes.freeze()
    }

    /// What is stored. `None`: these bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let (newest, secured) = bytes.split_at_checked(TIMESTAMP_BYTES)?;
        Some(Head { newest: decode_timestamp(newest)?, secured: decode_timestamp(secured)? })
    }

    /// True if some commit of the partition is not secured yet.
    pub fn lags(self) -> bool {
        self.secured < self.newest
    }
}

/// The stored key of what the manager knows of a partition.
pub fn head_key(partition: PartitionId) -> Bytes {
    let mut key = BytesMut::with_capacity(6);
    key.put_slice(&[space::PARTITION, HEAD]);
    key.put_u32(partition.0);
    key.freeze()
}

/// The partition of such a key.
pub fn partition_of_head(key: &[u8]) -> Option<PartitionId> {
    let id = key.strip_prefix(&[space::PARTITION, HEAD])?.try_into().ok()?;
    Some(PartitionId(u32::from_be_bytes(id)))
}

/// Such keys are from the first on and below the second.
pub fn head_range() -> ([u8; 2], [u8; 2]) {
    ([space::PARTITION, HEAD], [space::PARTITION, HEAD + 1])
}

/// The stored key of the highest timestamp whose commit is not kept any more.
pub fn truncated_key() -> Bytes {
    Bytes::from_static(&[space::PARTITION, TRUNCATED])
}

/// What an operator has given up of a partition's commits, or has let it keep alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GivenUp {
    /// Commits above this one.
    pub from: Position,
    /// Up to this one. The same as `from`: the partition keeps commits up to it that are in no log of the
    /// manager.
    pub upto: Position,
    /// When, in milliseconds since 1970.
    pub wall_ms: u64,
}

impl GivenUp {
    /// The stored key, for this partition.
    pub fn key(&self, partition: PartitionId) -> Bytes {
        let mut key = BytesMut::with_capacity(6 + TIMESTAMP_BYTES);
        key.put_slice(&[space::PARTITION, GIVEN_UP]);
        key.put_u32(partition.0);
        key.put_slice(&encode_timestamp(self.upto));
        key.freeze()
    }

    /// Such keys are from the first on and below the second.
    pub fn range() -> ([u8; 2], [u8; 2]) {
        ([space::PARTITION, GIVEN_UP], [space::PARTITION, GIVEN_UP + 1])
    }

    /// As it is stored.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(2 * TIMESTAMP_BYTES + 8);
        bytes.put_slice(&encode_timestamp(self.from));
        bytes.put_slice(&encode_timestamp(self.upto));
        bytes.put_u64(self.wall_ms);
        bytes.freeze()
    }

    /// What is stored, and the partition. `None`: these bytes are none.
    pub fn decode(key: &[u8], bytes: &[u8]) -> Option<(PartitionId, GivenUp)> {
        let (partition, _) = key.strip_prefix(&[space::PARTITION, GIVEN_UP])?.split_first_chunk::<4>()?;
        let (from, rest) = bytes.split_at_checked(TIMESTAMP_BYTES)?;
        let (upto, wall_ms) = rest.split_at_checked(TIMESTAMP_BYTES)?;
        let wall_ms = u64::from_be_bytes(wall_ms.try_into().ok()?);
        let given_up = GivenUp { from: decode_timestamp(from)?, upto: decode_timestamp(upto)?, wall_ms };
        Some((PartitionId(u32::from_be_bytes(*partition)), given_up))
    }
}

/// The stored key of a flush, in the partition that was told.
pub fn flush_key(commit: Position) -> Bytes {
    let mut key = BytesMut::with_capacity(2 + TIMESTAMP_BYTES);
    key.put_slice(&[space::PARTITION, FLUSH]);
    key.put_slice(&encode_timestamp(commit));
    key.freeze()
}

/// The timestamp of such a key.
pub fn timestamp_of_flush(key: &[u8]) -> Option<Position> {
    decode_timestamp(key.strip_prefix(&[space::PARTITION, FLUSH])?)
}

/// The stored keys of flushes above this timestamp are from the first on and below the second.
pub fn flushes_above(at: Position) -> (Vec<u8>, Vec<u8>) {
    let mut from = flush_key(at).to_vec();
    from.push(0);
    (from, vec![space::PARTITION, FLUSH + 1])
}

/// The stored keys of all flushes are from the first on and below the second.
pub fn flush_range() -> ([u8; 2], [u8; 2]) {
    ([space::PARTITION, FLUSH], [space::PARTITION, FLUSH + 1])
}

/// The stored key of the newest flush's timestamp.
pub fn newest_flush_key() -> Bytes {
    Bytes::from_static(&[space::PARTITION, NEWEST])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(term: u64, lsn: u64) -> Position {
        Position::new(Term(term), Lsn(lsn))
    }

    /// The layout is on disk: it must not change by accident.
    #[test]
    fn the_layout_stays_as_it_is() {
        assert_eq!(head_key(PartitionId(0x0102))[..], [3, 0x68, 0, 0, 1, 2]);
        assert_eq!(partition_of_head(&head_key(PartitionId(7))), Some(PartitionId(7)));
        assert_eq!(flush_key(at(1, 2))[..], [3, 0x66, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!((&newest_flush_key()[..], &truncated_key()[..]), (&[3, 0x67][..], &[3, 0x6b][..]));
        let head = Head { newest: at(3, 4), secured: at(1, 2) };
        assert_eq!(Head::decode(&head.encode()), Some(head));
        for length in 0..2 * TIMESTAMP_BYTES {
            assert_eq!(Head::decode(&head.encode()[..length]), None);
        }
    }

    #[test]
    fn what_was_given_up_is_read_as_it_was_stored() {
        let given_up = GivenUp { from: at(1, 5), upto: at(1, 9), wall_ms: 77 };
        let (key, bytes) = (given_up.key(PartitionId(66)), given_up.encode());
        assert_eq!(GivenUp::decode(&key, &bytes), Some((PartitionId(66), given_up)));
        let (from, to) = GivenUp::range();
        assert!(from[..] <= key[..] && key[..] < to[..]);
        assert_eq!(GivenUp::decode(&key, &bytes[1..]), None);
    }

    proptest! {
        #[test]
        fn flushes_lie_in_the_order_of_their_timestamps(
            one in (any::<u64>(), any::<u64>()),
            other in (any::<u64>(), any::<u64>()),
        ) {
            let (one, other) = (at(one.0, one.1), at(other.0, other.1));
            prop_assert_eq!(one.cmp(&other), flush_key(one).cmp(&flush_key(other)));
            prop_assert_eq!(timestamp_of_flush(&flush_key(one)), Some(one));
            let (from, to) = flushes_above(one);
            let key = flush_key(other);
            prop_assert_eq!(other > one, from[..] <= key[..] && key[..] < to[..]);
        }
    }
}
