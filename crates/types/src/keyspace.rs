//! Where the rows of a table lie among the stored keys of its partition.
//!
//! A partition belongs to one bare table, or to a database with any number of tables. The stored key of a
//! row:
//!
//! ```text
//! of a bare table        10 | encoded key
//! of a database's table  10 | table u32, big-endian | encoded key
//! of its catalog         03 63 | encoded key
//! ```
//!
//! Rows of indexes lie beside them:
//!
//! ```text
//! of a bare table        20 | index u32 | entry
//! of a database's table  20 | table u32 | index u32 | entry
//! ```
//!
//! And positions of feeds ([`crate::FeedId`]):
//!
//! ```text
//! of a bare table        02 | feed u64, big-endian
//! of a database's table  02 | table u32 | feed u64
//! ```
//!
//! What calls of procedures gave, until the client confirms that it has it:
//!
//! ```text
//! 03 72 | session: term u64, LSN u64 | sequence number u64, all big-endian
//! ```
//!
//! Whoever reads or writes rows makes stored keys and ranges here and nowhere else. So a key cannot lie
//! outside of its table, and a range that is open ends with its table.

use crate::data::prefix_end;
use crate::engine::{MAX_KEY_BYTES, PartitionRows, space};
use crate::ids::{FeedId, SessionId, TableId};
use bytes::{BufMut, Bytes, BytesMut};

/// Begins the keys of the catalog's rows within [`space::PARTITION`].
const CATALOG: u8 = PartitionRows::Catalog as u8;

/// Begins the keys of results within [`space::PARTITION`].
const RESULT: u8 = PartitionRows::Results as u8;

/// The stored key of what the call with this number of a session gave.
pub fn result_key(session: SessionId, seq: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(26);
    key.put_slice(&[space::PARTITION, RESULT]);
    key.put_u64(session.0.term.0);
    key.put_u64(session.0.lsn.0);
    key.put_u64(seq);
    key.freeze()
}

/// The stored keys of one table's rows. They have a beginning in common, and nothing else begins so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySpace {
    /// Of a table that has its partitions for itself.
    Bare,
    /// Of a table of a database.
    Table(TableId),
    /// Of a database's catalog: one row for each of its tables ([`crate::database`]).
    Catalog,
}

impl KeySpace {
    /// What all its stored keys begin with: so many of these bytes.
    fn prefix(self) -> ([u8; 5], usize) {
        let mut bytes = [space::ROW; 5];
        match self {
            KeySpace::Bare => (bytes, 1),
            KeySpace::Table(table) => {
                bytes[1..].copy_from_slice(&table.0.to_be_bytes());
                (bytes, 5)
            }
            KeySpace::Catalog => {
                bytes[..2].copy_from_slice(&[space::PARTITION, CATALOG]);
                (bytes, 2)
            }
        }
    }

    /// The longest encoded key that a row of it can have, in bytes.
    pub fn longest_key(self) -> usize {
        MAX_KEY_BYTES - self.prefix().1
    }

    /// The stored key of a row, from its encoded key.
    pub fn row_key(self, key: &[u8]) -> Bytes {
        let (prefix, length) = self.prefix();
        let mut stored = BytesMut::with_capacity(length + key.len());
        stored.put_slice(&prefix[..length]);
        stored.put_slice(key);
        stored.freeze()
    }

    /// The encoded key of a row's stored key. Panics if the stored key is none of its own.
    pub fn key_of(self, stored: &Bytes) -> Bytes {
        let (prefix, length) = self.prefix();
        assert!(
            stored.starts_with(&prefix[..length]),
            "PR-121: a row of another table was given for one of {self:?}"
        );
        stored.slice(length..)
    }

    /// True if this is a stored key of one of its rows, or would be.
    pub fn has(self, stored: &[u8]) -> bool {
        let (prefix, length) = self.prefix();
        stored.starts_with(&prefix[..length])
    }

    /// What the stored keys of the rows of one of its indexes begin with; `None`: of all of them. A catalog
    /// has none.
    pub fn index_prefix(self, index: Option<u32>) -> Vec<u8> {
        let mut prefix = Vec::with_capacity(64);
        prefix.push(space::INDEX);
        match self {
            KeySpace::Bare => {}
            KeySpace::Table(table) => prefix.extend_from_slice(&table.0.to_be_bytes()),
            KeySpace::Catalog => panic!("a catalog has no indexes"),
        }
        prefix.extend(index.iter().flat_map(|index| index.to_be_bytes()));
        prefix
    }

    /// The stored keys of these index rows are from the first on and below the second.
    pub fn index_range(self, index: Option<u32>) -> (Vec<u8>, Vec<u8>) {
        let prefix = self.index_prefix(index);
        let end = prefix_end(&prefix);
        (prefix, end)
    }

    /// The stored key of how far a feed into its rows has come (PR-180). A catalog has none.
    pub fn feed_key(self, feed: FeedId) -> Bytes {
        let mut stored = BytesMut::with_capacity(13);
        stored.put_slice(&self.feed_prefix());
        stored.put_u64(feed.0);
        stored.freeze()
    }

    /// The stored keys of all its feeds' positions are from the first on and below the second.
    pub fn feed_range(self) -> (Vec<u8>, Vec<u8>) {
        let prefix = self.feed_prefix();
        let end = prefix_end(&prefix);
        (prefix, end)
    }

    fn feed_prefix(self) -> Vec<u8> {
        let mut prefix = vec![space::FEED];
        match self {
            KeySpace::Bare => {}
            KeySpace::Table(table) => prefix.extend_from_slice(&table.0.to_be_bytes()),
            KeySpace::Catalog => panic!("nothing is fed into a catalog"),
        }
        prefix
    }

    /// The table whose row this stored key is of, in a partition of a database.
    pub fn table_of(stored: &[u8]) -> Option<TableId> {
        let id = stored.strip_prefix(&[space::ROW])?.first_chunk()?;
        Some(TableId(u32::from_be_bytes(*id)))
    }

    /// The stored keys of rows with `from <= encoded key < to` are from the first on and below the second. An
    /// empty `to`: up to the end of the table, and no further (PR-121).
    pub fn range(self, from: &[u8], to: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (prefix, length) = self.prefix();
        let end = match to.is_empty() {
            true => prefix_end(&prefix[..length]),
            false => self.row_key(to).to_vec(),
        };
        (self.row_key(from).to_vec(), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EACH: [KeySpace; 6] = [
        KeySpace::Bare,
        KeySpace::Catalog,
        KeySpace::Table(TableId(0)),
        KeySpace::Table(TableId(7)),
        KeySpace::Table(TableId(8)),
        KeySpace::Table(TableId(u32::MAX)),
    ];

    /// The layout is on disk: it must not change by accident.
    #[test]
    fn the_layout_stays_as_it_is() {
        assert_eq!(KeySpace::Bare.row_key(b"k")[..], [0x10, b'k']);
        assert_eq!(KeySpace::Table(TableId(0x0102)).row_key(b"k")[..], [0x10, 0, 0, 1, 2, b'k']);
        assert_eq!(KeySpace::Catalog.row_key(b"k")[..], [0x03, 0x63, b'k']);
        assert_eq!(KeySpace::Bare.index_prefix(Some(3)), [0x20, 0, 0, 0, 3]);
        let table = KeySpace::Table(TableId(7));
        assert_eq!(table.index_range(Some(3)).1, [0x20, 0, 0, 0, 7, 0, 0, 0, 4]);
        assert_eq!(table.index_range(None), (vec![0x20, 0, 0, 0, 7], vec![0x20, 0, 0, 0, 8]));
        assert_eq!(KeySpace::table_of(&table.row_key(b"k")), Some(TableId(7)));
        assert_eq!(KeySpace::table_of(&[0x10, 0, 0]), None);
        assert_eq!(KeySpace::Bare.feed_key(FeedId(9))[..], [2, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(table.feed_key(FeedId(9))[..], [2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(table.feed_range(), (vec![2, 0, 0, 0, 7], vec![2, 0, 0, 0, 8]));
        assert_eq!(KeySpace::Bare.range(b"", b""), (vec![0x10], vec![0x11]));
        assert_eq!(KeySpace::Bare.range(b"a", b"b"), (vec![0x10, b'a'], vec![0x10, b'b']));
    }

    #[test]
    fn pr121_a_range_that_is_open_ends_with_its_table() {
        for one in EACH {
            let (from, to) = one.range(b"", b"");
            for other in EACH.into_iter().filter(|other| *other != one) {
                // Bare tables have partitions for themselves: only the catalog's space is beside theirs.
                if one == KeySpace::Bare && other != KeySpace::Catalog || other == KeySpace::Bare {
                    continue;
                }
                for key in [&[][..], &[0], &[0xff; 40]] {
                    let stored = other.row_key(key);
                    assert!(stored[..] < from[..] || stored[..] >= to[..], "{one:?} has a row of {other:?}");
                    assert!(!one.has(&stored));
                }
            }
        }
    }

    #[test]
    fn the_longest_key_fits_and_a_key_of_another_table_is_noticed() {
        for one in EACH {
            assert_eq!(one.row_key(&vec![0xff; one.longest_key()]).len(), MAX_KEY_BYTES);
        }
        let stored = KeySpace::Table(TableId(7)).row_key(b"k");
        let taken = std::panic::catch_unwind(|| KeySpace::Table(TableId(8)).key_of(&stored));
        assert!(taken.is_err());
    }

    proptest! {
        /// Stored keys are in the order of the encoded keys, a range has exactly what it should, and keys
        /// read back.
        #[test]
        fn ranges_have_the_rows_that_they_name(
            keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..6), 3),
            ids in prop::collection::vec(any::<u32>(), 2),
        ) {
            let (one, other) = (KeySpace::Table(TableId(ids[0])), KeySpace::Table(TableId(ids[1])));
            for to in [&keys[1][..], &[]] {
                let (from, end) = one.range(&keys[0], to);
                for key in &keys {
                    let stored = one.row_key(key);
                    let wanted = keys[0] <= *key && (to.is_empty() || &key[..] < to);
                    prop_assert_eq!(stored[..] >= from[..] && stored[..] < end[..], wanted);
                    prop_assert_eq!(&one.key_of(&stored)[..], &key[..]);
                    let far = other.row_key(key);
                    let inside = far[..] >= from[..] && far[..] < end[..];
                    prop_assert!(ids[0] == ids[1] || !inside, "{:?} has a row of {:?}", one, other);
                }
            }
        }
    }
}
