//! Operations on rows, evaluated on the newest state: what comes of them, and what they change.

use crate::scope::Scope;
use bytes::Bytes;
use std::collections::BTreeMap;
use types::engine::EngineError;
use types::{Engine, FeedId, KeySpace, Lsn, Mutation, Position, ReadAt, Rules, TableId};
use wire::request::FeedMark;
use wire::{Outcome, RowOp, TableChange, TablePart};

/// What a write comes to: its outcome, how many rows change, and how.
pub(crate) type Evaluated = (Outcome, u32, Vec<Mutation>);

/// The states that operations rest on: none of their rows has changed since.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since<'a> {
    /// All on the same one, or on none.
    All(Option<Position>),
    /// Each on its own.
    Each(&'a [Position]),
}

impl Since<'_> {
    /// Of the operation with this number.
    fn of(self, at: usize) -> Option<Position> {
        match self {
            Since::All(since) => since,
            Since::Each(seen) => seen.get(at).copied(),
        }
    }
}

/// Runs the operations on the newest state: their outcome, how many rows change, and how.
pub(crate) fn evaluate(
    engine: &dyn Engine,
    rules: Rules,
    scope: &Scope,
    ops: &[RowOp],
    (mark, since): (Option<FeedMark>, Since<'_>),
) -> Result<Evaluated, EngineError> {
    let mut mutations = Vec::with_capacity(ops.len() + 2);
    // A write sees its own earlier operations.
    let mut own: BTreeMap<Bytes, bool> = BTreeMap::new();
    let looks = ops.len() > 1 && ops.iter().any(|op| !matches!(op, RowOp::Put { .. }));
    let mut affected = 0;
    for (at, op) in ops.iter().enumerate() {
        let key = scope.keys().row_key(op.key());
        let exists = match (op, own.get(&key)) {
            (RowOp::Put { .. }, _) => true,
            (_, Some(exists)) => *exists,
            _ => {
                let newest = engine.get(&key, ReadAt::Applied)?.map(|(lsn, _)| lsn);
                let since = since.of(at).filter(|_| rules.first_committer_wins());
                if let Some(outcome) = unfit(op, newest, since) {
                    return Ok((outcome, 0, left(rules, mutations)));
                }
                newest.is_some()
            }
        };
        match op {
            RowOp::Insert { .. } if exists => return Ok((Outcome::Exists, 0, left(rules, mutations))),
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
        mutations.push(Mutation { key: feed_key(rules, scope, mark.feed), value: Some(value) });
    }
    Ok((Outcome::Done, affected, mutations))
}

/// The stored key of how far a feed has come: in a database it is of the feed's table (PR-180).
pub(crate) fn feed_key(rules: Rules, scope: &Scope, feed: FeedId) -> Bytes {
    let keys = if rules.feeds_are_of_tables() { scope.keys() } else { KeySpace::Bare };
    keys.feed_key(feed)
}

/// How far feeds into a table have come, as positions of the table that takes its place with its rows: what
/// they have brought is not brought again (PR-358).
pub(crate) fn feeds_of(
    engine: &dyn Engine,
    rules: Rules,
    old: TableId,
    new: TableId,
) -> Result<Vec<Mutation>, EngineError> {
    if !rules.feeds_are_of_tables() {
        return Ok(Vec::new());
    }
    let (from, to) = KeySpace::Table(old).feed_range();
    let (begins, _) = KeySpace::Table(new).feed_range();
    let rows = engine.scan(&from, &to, ReadAt::Applied, usize::MAX, usize::MAX)?;
    let moved = |row: types::engine::Row| Mutation {
        key: [&begins[..], &row.key[from.len()..]].concat().into(),
        value: Some(row.value),
    };
    Ok(rows.into_iter().map(moved).collect())
}

/// What is left of a write that is refused: nothing (PR-112).
fn left(rules: Rules, mutations: Vec<Mutation>) -> Vec<Mutation> {
    if rules.refused_writes_change_nothing() { Vec::new() } else { mutations }
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

/// A hash of what is asked, so that another request under an old number is noticed (PR-47). In a database it
/// is of the table, too.
pub(crate) fn request_hash(
    table: Option<TableId>,
    ops: &[RowOp],
    mark: Option<FeedMark>,
    since: Option<Position>,
) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    if let Some(table) = table {
        hash.update(b"table");
        hash.update(&table.0.to_le_bytes());
    }
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

/// The same of a write to several tables of a database.
pub(crate) fn parts_hash(changes: &[TableChange], parts: &[TablePart], since: Option<Position>) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let number = |hash: &mut xxhash_rust::xxh3::Xxh3, number: u64| hash.update(&number.to_le_bytes());
    for change in changes {
        let (kind, of, text) = match change {
            TableChange::Create(table) => (1, 0, table.0.as_str()),
            TableChange::Alter { from, to } => (2, u64::from(*from), to.0.as_str()),
            TableChange::Drop { table, schema } => (3, u64::from(table.0) << 32 | u64::from(*schema), ""),
        };
        [kind, of, text.len() as u64].into_iter().for_each(|part| number(&mut hash, part));
        hash.update(text.as_bytes());
    }
    for part in parts {
        [4, part.table.0.into(), part.ops.len() as u64].into_iter().for_each(|part| number(&mut hash, part));
        part.ops.iter().for_each(|op| hash_row(&mut hash, op));
        for seen in &part.seen {
            [6, seen.term.0, seen.lsn.0].into_iter().for_each(|part| number(&mut hash, part));
        }
    }
    if let Some(since) = since {
        [5, since.term.0, since.lsn.0].into_iter().for_each(|part| number(&mut hash, part));
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
