//! Transactions over any partitions: what the manager's partition keeps, and what the partitions under it do.
//!
//! A database whose transactions are *global* is written by commits of the transaction manager alone. The
//! manager is the partition of the system table [`crate::system::COMMITS`]. The position of a commit's entry
//! there is its *timestamp*. Of each commit, partitions are told their part by a *flush*, in the order of
//! timestamps: a flush names the commit before it that has a part in the same partition.
//!
//! The manager's partition has, beside the table's rows, one row for each partition that a commit ever had a
//! part in, until it was dropped, and the highest timestamp that is not kept any more:
//!
//! ```text
//! 03 68 | partition u32, big-endian      newest commit 16 bytes | secured up to 16 bytes
//! 03 6b                                  highest truncated 16 bytes
//! 03 6c | partition u32 | 16 bytes       from 16 bytes | up to 16 bytes | when, ms since 1970, u64
//! 03 6d | table u32                      timestamp 16 bytes | JSON of the table's record
//! 03 6e                                  newest removed 16 bytes
//! ```
//!
//! The fourth is what an operator has given up: commits of a partition between two timestamps. The fifth is
//! what tables are like, and since which commit. The last is there once commits were removed that are newer
//! than some that are kept, and counts while it is above the highest truncated one.
//!
//! A partition under it has one row for each flush that a snapshot may still lie below, and the newest:
//!
//! ```text
//! 03 66 | timestamp 16 bytes             the commit before it 16 bytes
//! 03 67                                  newest timestamp 16 bytes
//! 03 6f                                  the horizon: an LSN, u64, big-endian
//! ```
//!
//! The horizon is the lowest state of the partition that its primary keeps for snapshots. Every copy keeps
//! it, too, and what is above it (PR-465).
//!
//! A timestamp is the term and the LSN of the manager's entry, each u64 big-endian, so its bytes are in its
//! order.

use crate::config::{PartitionRecord, TableRecord};
use crate::engine::{PartitionRows, space};
use crate::ids::{PartitionId, TableId};
use crate::position::{Lsn, Position, Term};
use bytes::{BufMut, Bytes, BytesMut};

const HEAD: u8 = PartitionRows::Heads as u8;
const TRUNCATED: u8 = PartitionRows::Truncated as u8;
const GIVEN_UP: u8 = PartitionRows::GivenUp as u8;
const TABLE: u8 = PartitionRows::Tables as u8;
const REMOVED: u8 = PartitionRows::Removed as u8;
const FLUSH: u8 = PartitionRows::Flushes as u8;
const NEWEST: u8 = PartitionRows::NewestFlush as u8;
const HORIZON: u8 = PartitionRows::Horizon as u8;

/// The bytes of a timestamp.
pub const TIMESTAMP_BYTES: usize = 16;

/// How far the commits of one partition have come, as the manager knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// The newest commit that has a part in the partition.
    pub newest: Position,
    /// Every commit up to this timestamp is on every copy of the partition that counts, and its log is
    /// durable there (T_P of the partition). It need not be that of a commit: where all was secured, it is
    /// just below the next one (PR-468).
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

impl PartitionRecord {
    /// A field among those that older versions do not know: see [`PartitionRecord::last_uncounted`].
    pub const UNCOUNTED: &str = "uncounted_term";

    /// The last term of a partition of global transactions in which an operator had a copy lead that did not
    /// count in the term before: it may lack what all had that counted, and so does whoever followed it
    /// (PR-418). None: there was none.
    pub fn last_uncounted(&self) -> Option<Term> {
        self.unknown.get(PartitionRecord::UNCOUNTED)?.as_u64().map(Term)
    }

    /// The same, whose term is such a one.
    pub fn led_by_uncounted(mut self) -> PartitionRecord {
        self.unknown.insert(PartitionRecord::UNCOUNTED.into(), self.term.0.into());
        self
    }
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

/// The stored key of the newest commit that was removed, if an older one was kept then.
pub fn removed_key() -> Bytes {
    Bytes::from_static(&[space::PARTITION, REMOVED])
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

/// A table that the manager knows.
#[derive(Clone, PartialEq, Debug)]
pub struct KnownTable {
    /// Since this commit it is like this: what began below it rests on something else.
    pub at: Position,
    /// Columns, key, and where rows lie.
    pub record: TableRecord,
}

impl KnownTable {
    /// The stored key of a table.
    pub fn key(table: TableId) -> Bytes {
        let mut key = BytesMut::with_capacity(6);
        key.put_slice(&[space::PARTITION, TABLE]);
        key.put_u32(table.0);
        key.freeze()
    }

    /// Such keys are from the first on and below the second.
    pub fn range() -> ([u8; 2], [u8; 2]) {
        ([space::PARTITION, TABLE], [space::PARTITION, TABLE + 1])
    }

    /// As it is stored.
    pub fn encode(&self) -> Bytes {
        let mut bytes = encode_timestamp(self.at).to_vec();
        bytes.extend(serde_json::to_vec(&self.record).expect("records have only text keys"));
        bytes.into()
    }

    /// What is stored. `None`: these bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<KnownTable> {
        let (at, record) = bytes.split_at_checked(TIMESTAMP_BYTES)?;
        Some(KnownTable { at: decode_timestamp(at)?, record: serde_json::from_slice(record).ok()? })
    }

    /// True if this partition has rows of it.
    pub fn is_in(&self, partition: PartitionId) -> bool {
        let first = self.record.first_partition.0;
        (first..first + self.record.partitions).contains(&partition.0)
    }

    /// The partition of a row with this key; none: it is no key of the table.
    pub fn partition_of(&self, key: &[u8]) -> Option<PartitionId> {
        let place = self.record.place_of(&self.record.schema, key).ok()?;
        Some(PartitionId(self.record.first_partition.0 + place))
    }

    /// How many indexes a row of it may be in.
    pub fn indexes(&self) -> usize {
        self.record.schema.constraints().iter().filter(|one| one.indexed().is_some()).count()
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

/// The stored key of a partition's horizon.
pub fn horizon_key() -> Bytes {
    Bytes::from_static(&[space::PARTITION, HORIZON])
}

/// A horizon as it is stored: the lowest LSN that is kept for snapshots.
pub fn encode_horizon(lowest: Lsn) -> [u8; 8] {
    lowest.0.to_be_bytes()
}

/// A stored horizon. `None`: these bytes are none.
pub fn decode_horizon(bytes: &[u8]) -> Option<Lsn> {
    Some(Lsn(u64::from_be_bytes(bytes.try_into().ok()?)))
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
        assert_eq!((&removed_key()[..], &horizon_key()[..]), (&[3, 0x6e][..], &[3, 0x6f][..]));
        assert_eq!(decode_horizon(&encode_horizon(Lsn(0x0102))), Some(Lsn(0x0102)));
        assert_eq!((encode_horizon(Lsn(1))[7], decode_horizon(&[0; 7])), (1, None));
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

    #[test]
    fn pr442_what_was_given_up_is_no_load() {
        let key = GivenUp { from: at(1, 5), upto: at(1, 9), wall_ms: 77 }.key(PartitionId(66));
        assert_eq!(key[..2], [3, b's']);
        let (from, to) = crate::bulk::load_range();
        assert!(key[..] < from[..] || key[..] >= to[..], "an engine looks for its loads between these");
    }

    #[test]
    fn a_table_is_read_as_it_was_stored() {
        use crate::LogKind;
        use crate::data::{Column, ColumnType, Schema, Value, encode_key};
        let schema = Schema::new(vec![Column::new("k", ColumnType::Int)], &["k"], 1, false).expect("valid");
        let policy = crate::Policy::preset("durable", 1, LogKind::Disk).expect("a preset");
        let record = TableRecord { partitions: 4, ..TableRecord::new(TableId(9), "t", schema, policy) };
        let known = KnownTable { at: at(2, 7), record };
        let bytes = known.encode();
        assert_eq!(KnownTable::decode(&bytes), Some(known.clone()));
        assert_eq!((KnownTable::decode(&bytes[..15]), KnownTable::decode(&bytes[..20])), (None, None));
        assert_eq!(KnownTable::key(TableId(9))[..], [3, 0x6d, 0, 0, 0, 9]);
        let key = encode_key(&known.record.schema, &[Value::Int(3)]).expect("a key");
        let place = known.partition_of(&key).expect("a key");
        assert!(known.is_in(place) && !known.is_in(PartitionId(place.0 + 4)));
        assert_eq!((known.partition_of(&[0xff; 3]), known.indexes()), (None, 0));
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
