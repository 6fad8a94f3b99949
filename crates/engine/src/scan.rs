//! A range read over an engine and the tentative versions above it.

use crate::overlay::Tentative;
use std::cmp::Ordering;
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

/// Merges the two in key order. A tentative version hides the engine's row, and hides it altogether if it is
/// a deletion.
pub(crate) fn merge<'a>(
    overlay: impl Iterator<Item = Tentative<'a>>,
    base: impl Iterator<Item = Result<Row, EngineError>>,
    limit: usize,
    max_bytes: usize,
) -> Result<Vec<Row>, EngineError> {
    let mut overlay = overlay.peekable();
    let mut base = base.peekable();
    let (mut rows, mut bytes) = (Vec::new(), 0);
    // At least one row must come, or the caller could not go on after it.
    while rows.is_empty() || (rows.len() < limit && bytes < max_bytes) {
        let order = match (overlay.peek(), base.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) | (Some(_), Some(Err(_))) => Ordering::Greater,
            (Some(tentative), Some(Ok(row))) => tentative.key.cmp(&row.key),
        };
        let below = if order.is_ge() { base.next().transpose()? } else { None };
        let above = if order.is_le() { overlay.next() } else { None };
        let row = match above {
            None => below,
            Some(Tentative { key, lsn, value }) => {
                value.map(|value| Row { key: key.clone(), lsn, value: value.clone() })
            }
        };
        if let Some(row) = row {
            bytes += row.key.len() + row.value.len();
            rows.push(row);
        }
    }
    Ok(rows)
}
