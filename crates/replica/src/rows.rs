//! Operations on rows, evaluated on the newest state: what comes of them, and what they change.

use crate::session::{feed_key, row_key};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::engine::EngineError;
use types::{Engine, Lsn, Mutation, Position, ReadAt, Rules};
use wire::request::FeedMark;
use wire::{Outcome, RowOp};

/// What a write comes to: its outcome, how many rows change, and how.
pub(crate) type Evaluated = (Outcome, u32, Vec<Mutation>);

/// Runs the operations on the newest state: their outcome, how many rows change, and how.
pub(crate) fn evaluate(
    engine: &dyn Engine,
    rules: Rules,
    ops: &[RowOp],
    mark: Option<FeedMark>,
    since: Option<Position>,
) -> Result<Evaluated, EngineError> {
    let mut mutations = Vec::with_capacity(ops.len() + 2);
    // A write sees its own earlier operations.
    let mut own: BTreeMap<Bytes, bool> = BTreeMap::new();
    let looks = ops.len() > 1 && ops.iter().any(|op| !matches!(op, RowOp::Put { .. }));
    let mut affected = 0;
    for op in ops {
        let key = row_key(op.key());
        let exists = match (op, own.get(&key)) {
            (RowOp::Put { .. }, _) => true,
            (_, Some(exists)) => *exists,
            _ => {
                let newest = engine.get(&key, ReadAt::Applied)?.map(|(lsn, _)| lsn);
                let since = since.filter(|_| rules.first_committer_wins());
                if let Some(outcome) = unfit(op, newest, since) {
                    return Ok((outcome, 0, Vec::new()));
                }
                newest.is_some()
            }
        };
        match op {
            RowOp::Insert { .. } if exists => return Ok((Outcome::Exists, 0, Vec::new())),
            RowOp::Delete { .. } | RowOp::Update { .. } if !exists => continue,
            RowOp::Keep { .. } => continue,
            _ => {}
        }
        if looks {
            own.insert(key.clone(), op.row().is_some());
        }
        affected += 1;
        mutations.push(Mutation { key, value: op.row().cloned() });
    }
    if let Some(mark) = mark {
        let value = Bytes::copy_from_slice(&mark.position.to_le_bytes());
        mutations.push(Mutation { key: feed_key(mark.feed), value: Some(value) });
    }
    Ok((Outcome::Done, affected, mutations))
}

/// Why a row whose newest version is this one refuses an operation that rests on a snapshot, if it does: the
/// first committer wins. An insert is refused for the row that is there, with or without one.
fn unfit(op: &RowOp, newest: Option<Lsn>, since: Option<Position>) -> Option<Outcome> {
    let since = since?.lsn;
    match (op, newest) {
        (RowOp::Put { .. } | RowOp::Insert { .. }, _) => None,
        (_, Some(lsn)) if lsn <= since => None,
        _ => Some(Outcome::Changed),
    }
}

/// A hash of what is asked, so that another request under an old number is noticed (PR-47).
pub(crate) fn request_hash(ops: &[RowOp], mark: Option<FeedMark>, since: Option<Position>) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    ops.iter().for_each(|op| hash_row(&mut hash, op));
    if let Some(mark) = mark {
        hash.update(&mark.feed.0.to_le_bytes());
        hash.update(&mark.position.to_le_bytes());
    }
    if let Some(since) = since {
        hash.update(&since.term.0.to_le_bytes());
        hash.update(&since.lsn.0.to_le_bytes());
    }
    hash.digest()
}

/// Adds what a row operation asks to a hash.
pub(crate) fn hash_row(hash: &mut xxhash_rust::xxh3::Xxh3, op: &RowOp) {
    let (kind, row) = match op {
        RowOp::Put { row, .. } => (1u8, &row[..]),
        RowOp::Insert { row, .. } => (2, &row[..]),
        RowOp::Delete { .. } => (3, &[][..]),
        RowOp::Update { row, .. } => (4, &row[..]),
        RowOp::Keep { .. } => (5, &[][..]),
    };
    hash.update(&[kind]);
    hash.update(&(op.key().len() as u64).to_le_bytes());
    hash.update(op.key());
    hash.update(&(row.len() as u64).to_le_bytes());
    hash.update(row);
}
