//! Rows that were read before they are asked for ([`types::Engine::read_ahead`]).

use bytes::Bytes;
use std::collections::HashMap;
use types::Lsn;

/// The most bytes of rows that are kept. What goes beyond is read again when it is asked for.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// The newest published version of a row: none if there is no row.
type Newest = Option<(Lsn, Bytes)>;

/// The newest published versions of some rows of one tree. Whatever is published takes its row out.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// The number of the tree that they were read from.
    tree: u64,
    rows: HashMap<Bytes, Newest>,
    /// Of their values.
    bytes: usize,
}

impl ReadAhead {
    /// What was read of this row of the tree with this number, unless it was written since.
    pub fn get(&self, tree: u64, key: &[u8]) -> Option<&Newest> {
        self.rows.get(key).filter(|_| self.tree == tree)
    }

    /// Keeps what was read of a row, if there is room.
    pub fn keep(&mut self, tree: u64, key: &Bytes, newest: Newest) {
        if self.tree != tree {
            self.clear();
            self.tree = tree;
        }
        let bytes = key.len() + newest.as_ref().map_or(0, |(_, value)| value.len());
        if self.bytes + bytes <= MAX_KEPT_BYTES {
            self.bytes += bytes;
            self.rows.insert(key.clone(), newest);
        }
    }

    /// A newer version of the row is published.
    pub fn written(&mut self, key: &[u8]) {
        if !self.rows.is_empty() {
            self.rows.remove(key);
        }
    }

    /// Nobody asks for them any more, or they may all have changed.
    pub fn clear(&mut self) {
        *self = ReadAhead::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_or_of_another_tree_is_not_known() {
        let (key, mut ahead) = (Bytes::from_static(b"k"), ReadAhead::default());
        let newest = Some((Lsn(4), Bytes::from_static(b"v")));
        ahead.keep(1, &key, newest.clone());
        assert_eq!(ahead.get(1, &key), Some(&newest));
        assert_eq!(ahead.get(2, &key), None);
        ahead.written(&key);
        assert_eq!(ahead.get(1, &key), None);
        ahead.keep(1, &key, None);
        assert_eq!(ahead.get(1, &key), Some(&None), "that there is no such row is known, too");
        ahead.keep(2, &Bytes::from_static(b"l"), newest);
        assert_eq!(ahead.get(2, &key), None);
    }

    #[test]
    fn it_keeps_so_many_bytes_and_no_more() {
        let mut ahead = ReadAhead::default();
        let value = Bytes::from(vec![0; 8 << 20]);
        for number in 0..9u8 {
            ahead.keep(1, &Bytes::copy_from_slice(&[number]), Some((Lsn(1), value.clone())));
        }
        assert_eq!(ahead.get(1, &[6]).and_then(Option::as_ref).map(|row| row.0), Some(Lsn(1)));
        assert_eq!(ahead.get(1, &[8]), None, "it is read again");
        assert!(ahead.bytes <= MAX_KEPT_BYTES);
    }
}
