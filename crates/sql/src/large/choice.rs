//! Which tables of a large transaction are filled again, and in which order.

use crate::txn::{After, Edit, Limit};
use std::collections::{BTreeMap, BTreeSet};
use types::TableId;

/// What a transaction does to the rows of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// So many rows.
    rows: usize,
    /// So many bytes of keys and rows.
    bytes: usize,
    inserts: bool,
    updates: bool,
    removes: bool,
}

impl Extent {
    /// With this edit.
    pub fn add(&mut self, edit: &Edit) {
        self.rows += 1;
        self.bytes += edit.bytes();
        match (edit.existed, &edit.after) {
            (false, After::Row(_)) => self.inserts = true,
            (true, After::Row(_)) => self.updates = true,
            (true, After::Gone) => self.removes = true,
            (_, After::Same) | (false, After::Gone) => {}
        }
    }

    /// True if one write has all of these.
    pub fn fit_a_write<'a>(all: impl Iterator<Item = &'a Extent>) -> bool {
        let (rows, bytes) = all.fold((0, 0), |(rows, bytes), one| (rows + one.rows, bytes + one.bytes));
        rows <= Limit::WRITE.rows && bytes <= Limit::WRITE.bytes
    }

    /// How much of a write it takes.
    fn weight(&self) -> usize {
        self.bytes.max(self.rows * (Limit::WRITE.bytes / Limit::WRITE.rows))
    }

    /// True if rows come to which others may refer by this foreign key.
    fn brings(&self, key: &ForeignKey) -> bool {
        self.inserts || self.updates && !key.by_key
    }

    /// True if rows go to which others may refer by it.
    fn takes(&self, key: &ForeignKey) -> bool {
        self.removes || self.updates && !key.by_key
    }
}

/// A foreign key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignKey {
    /// What it is called.
    pub name: String,
    /// The table that it is of.
    pub child: TableId,
    /// The table that it refers to.
    pub parent: TableId,
    /// It refers to that one's key, which no UPDATE changes.
    pub by_key: bool,
}

/// The tables that are filled, each behind those that its rows refer to: so many of those that are written
/// that one write has the rest, or `all`. The error: this foreign key leaves no order.
pub fn chosen<'k>(
    written: &BTreeMap<TableId, Extent>,
    keys: &'k [ForeignKey],
    all: bool,
) -> Result<Vec<TableId>, &'k ForeignKey> {
    let mut filled = if all { written.keys().copied().collect() } else { largest(written) };
    let next = |filled: &BTreeSet<TableId>| {
        keys.iter().find_map(|key| {
            written.get(&key.child)?;
            let parent = written.get(&key.parent)?;
            match (filled.contains(&key.child), filled.contains(&key.parent)) {
                // Rows are looked at as they are copied: what they refer to must be there.
                (true, false) => parent.brings(key).then_some(key.parent),
                // Whether a row refers to one that goes is seen as all of them are copied.
                (false, true) => parent.takes(key).then_some(key.child),
                _ => None,
            }
        })
    };
    while let Some(more) = next(&filled) {
        filled.insert(more);
    }
    in_order(filled, keys)
}

/// Those with the most rows, without which one write has the rest, and as many bytes of index rows.
fn largest(written: &BTreeMap<TableId, Extent>) -> BTreeSet<TableId> {
    let mut all: Vec<(&TableId, &Extent)> = written.iter().collect();
    all.sort_by_key(|(_, extent)| extent.weight());
    let (mut rows, mut bytes, mut filled) = (0, 0, BTreeSet::new());
    for (table, extent) in all {
        rows += extent.rows;
        bytes += extent.bytes;
        if rows > Limit::WRITE.rows || bytes > Limit::WRITE.bytes / 2 {
            filled.insert(*table);
        }
    }
    filled
}

fn in_order(mut left: BTreeSet<TableId>, keys: &[ForeignKey]) -> Result<Vec<TableId>, &ForeignKey> {
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |key: &&ForeignKey| left.contains(&key.child) && left.contains(&key.parent);
        let free = left.iter().find(|table| !keys.iter().filter(waits).any(|key| key.child == **table));
        let Some(free) = free.copied() else {
            let own = keys.iter().filter(waits).find(|key| key.child == key.parent);
            let first = own.or_else(|| keys.iter().find(waits));
            return Err(first.expect("each that is left waits for another one"));
        };
        left.remove(&free);
        ordered.push(free);
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 60_000;

    /// Tables by what is done to how many of their rows: `+` inserted, `=` updated, `-` removed.
    fn written(tables: &[(u32, &str, usize)]) -> BTreeMap<TableId, Extent> {
        let extent = |(id, done, rows): &(u32, &str, usize)| {
            let does = |sign: char| done.contains(sign);
            let (inserts, updates, removes) = (does('+'), does('='), does('-'));
            (TableId(*id), Extent { rows: *rows, bytes: rows * 20, inserts, updates, removes })
        };
        tables.iter().map(extent).collect()
    }

    /// From a table to another one; by its key, or else by something unique.
    fn keys(all: &[(u32, u32, bool)]) -> Vec<ForeignKey> {
        let key = |(child, parent, by_key): &(u32, u32, bool)| ForeignKey {
            name: format!("{child}to{parent}"),
            child: TableId(*child),
            parent: TableId(*parent),
            by_key: *by_key,
        };
        all.iter().map(key).collect()
    }

    type Case<'a> = (&'a [(u32, &'a str, usize)], &'a [(u32, u32, bool)], Result<&'a [u32], &'a str>);

    #[test]
    fn all_tables_are_filled_if_one_entry_has_too_little_room_for_their_indexes() {
        let few = written(&[(1, "+", 10), (2, "+", 10)]);
        let references = keys(&[(1, 2, true)]);
        assert_eq!(chosen(&few, &references, false).map_err(drop), Ok(vec![]));
        assert_eq!(chosen(&few, &references, true).map_err(drop), Ok(vec![TableId(2), TableId(1)]));
        assert!(Extent::fit_a_write(few.values()));
        assert!(!Extent::fit_a_write(written(&[(1, "+", MANY)]).values()));
    }

    #[test]
    fn tables_are_filled_behind_those_that_they_refer_to() {
        let cases: &[Case<'_>] = &[
            (&[(1, "=", MANY)], &[], Ok(&[1])),
            (&[(1, "=", MANY), (2, "+", 100)], &[], Ok(&[1])),
            // Two that each fit are too many together: the larger one is filled.
            (&[(1, "=", 30_000), (2, "+", 25_000), (3, "-", 5)], &[], Ok(&[1])),
            (&[(1, "=", MANY), (2, "=", MANY)], &[(1, 2, true)], Ok(&[2, 1])),
            // What its rows refer to must be there before them.
            (&[(1, "+", MANY), (2, "+", 1)], &[(1, 2, true)], Ok(&[2, 1])),
            (&[(1, "+", MANY), (2, "=", 1)], &[(1, 2, true)], Ok(&[1])),
            (&[(1, "+", MANY), (2, "=", 1)], &[(1, 2, false)], Ok(&[2, 1])),
            (&[(1, "-", MANY), (2, "-", 1)], &[(1, 2, true)], Ok(&[1])),
            // Rows that refer to those that go are looked at, if they are written, too.
            (&[(1, "-", MANY), (2, "-", 1)], &[(2, 1, true)], Ok(&[1, 2])),
            (&[(1, "=", MANY), (2, "-", 1)], &[(2, 1, true)], Ok(&[1])),
            (&[(1, "-", MANY)], &[(2, 1, true)], Ok(&[1])),
            (&[(1, "+", MANY), (2, "+", 1), (3, "+", 1)], &[(1, 2, true), (2, 3, true)], Ok(&[3, 2, 1])),
            // There is no order.
            (&[(1, "+", MANY), (2, "+", 1)], &[(1, 2, true), (2, 1, true)], Err("1to2")),
            (&[(1, "+", MANY), (2, "=", MANY)], &[(1, 2, true), (2, 2, true)], Err("2to2")),
            (&[(1, "+", MANY), (2, "=", 5)], &[(1, 2, true), (2, 2, true)], Ok(&[1])),
        ];
        for (tables, references, expected) in cases {
            let references = keys(references);
            let found = chosen(&written(tables), &references, false);
            let found = found.map(|all| all.iter().map(|table| table.0).collect::<Vec<_>>());
            let expected = expected.map(<[u32]>::to_vec).map_err(String::from);
            assert_eq!(found.map_err(|key| key.name.clone()), expected, "{tables:?} {references:?}");
        }
    }
}
