//! A range read over an engine's rows and the versions in memory above them.

use crate::overlay::InMemory;
use bytes::Bytes;
use std::cmp::Ordering;
use std::iter::from_fn;
use types::engine::{MAX_KEY_BYTES, ReadAt, Row, space};
use types::{EngineError, Lsn};

/// Reads never see the row of the applied position: it is the engine's own.
pub(crate) const FIRST_KEY: &[u8] = &[space::SESSION];

/// The LSN a read looks at, if it is still readable (PR-34).
pub(crate) fn resolve(at: ReadAt, read_floor: Lsn) -> Result<Lsn, EngineError> {
    match at {
        ReadAt::Applied => Ok(Lsn::MAX),
        ReadAt::Lsn(asked) if asked < read_floor => Err(EngineError::SnapshotTooOld { asked, read_floor }),
        ReadAt::Lsn(asked) => Ok(asked),
    }
}

/// A bound of a range, cut to what a library with a limit of its own takes. No key is so long that it tells
/// the two apart.
pub(crate) fn bound(key: &[u8]) -> &[u8] {
    &key[..key.len().min(MAX_KEY_BYTES + 1)]
}

/// Merges the versions of two layers in key order. One of the upper layer hides that of the lower one.
pub(crate) fn layered<'a>(
    upper: impl Iterator<Item = InMemory<'a>>,
    lower: impl Iterator<Item = InMemory<'a>>,
) -> impl Iterator<Item = InMemory<'a>> {
    let (mut upper, mut lower) = (upper.peekable(), lower.peekable());
    from_fn(move || {
        let order = match (upper.peek(), lower.peek()) {
            (None, _) => Ordering::Greater,
            (_, None) => Ordering::Less,
            (Some(above), Some(below)) => above.key.cmp(below.key),
        };
        let below = if order.is_ge() { lower.next() } else { None };
        if order.is_le() { upper.next() } else { below }
    })
}

/// Merges the two in key order. A version in memory hides the engine's row, and hides it altogether if it is
/// a deletion.
pub(crate) fn merge<'a>(
    memory: impl Iterator<Item = InMemory<'a>>,
    base: impl Iterator<Item = Result<Row, EngineError>>,
    limit: usize,
    max_bytes: usize,
) -> Result<Vec<Row>, EngineError> {
    let mut memory = memory.peekable();
    let mut base = base.peekable();
    let (mut rows, mut bytes) = (Vec::new(), 0);
    // At least one row must come, or the caller could not go on after it.
    while rows.is_empty() || (rows.len() < limit && bytes < max_bytes) {
        let order = match (memory.peek(), base.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) | (Some(_), Some(Err(_))) => Ordering::Greater,
            (Some(above), Some(Ok(row))) => above.key.cmp(&row.key),
        };
        let below = if order.is_ge() { base.next().transpose()? } else { None };
        let above = if order.is_le() { memory.next() } else { None };
        let row = match above {
            None => below,
            Some(InMemory { key, lsn, value }) => {
                value.map(|value| Row { key: Bytes::copy_from_slice(key), lsn, value: value.clone() })
            }
        };
        if let Some(row) = row {
            bytes += row.key.len() + row.value.len();
            rows.push(row);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &'static [u8], lsn: u64, value: Option<&'static Bytes>) -> InMemory<'static> {
        InMemory { key, lsn: Lsn(lsn), value }
    }

    #[test]
    fn the_upper_layer_hides_the_lower_one_key_by_key() {
        static V: Bytes = Bytes::from_static(b"v");
        let upper = [row(b"b", 9, None), row(b"d", 8, Some(&V))];
        let lower =
            [row(b"a", 1, Some(&V)), row(b"b", 2, Some(&V)), row(b"c", 3, None), row(b"e", 4, Some(&V))];
        let both: Vec<_> = layered(upper.into_iter(), lower.into_iter()).map(|row| row.lsn.0).collect();
        assert_eq!(both, [1, 9, 3, 8, 4]);
        assert_eq!(layered(upper.into_iter(), [].into_iter()).count(), 2);
        assert_eq!(layered([].into_iter(), lower.into_iter()).count(), 4);
    }
}
