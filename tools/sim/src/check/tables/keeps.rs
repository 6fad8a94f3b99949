//! What constraints demand of a database's rows (PR-150, PR-151): no two rows of a table have one mark, and
//! what a row refers to is there.

use crate::check::catalog::{Demands, Kept, Standing, Table};
use crate::rows;
use std::collections::{BTreeMap, BTreeSet};
use types::TableId;
use types::data::Standing as How;

/// The value of every row there is, by table and key.
pub type Rows<'a> = BTreeMap<TableId, BTreeMap<&'a str, u64>>;

/// Tables and rows of one state.
pub struct CatalogState<'a> {
    /// The tables, those among them that are being removed.
    pub tables: BTreeMap<TableId, &'a Table>,
    /// Their rows.
    pub rows: Rows<'a>,
}

impl<'a> CatalogState<'a> {
    fn live(&self) -> impl Iterator<Item = &'a Table> {
        self.tables.values().copied().filter(|table| table.standing != Standing::Dropped)
    }

    fn of(&self, table: TableId) -> impl Iterator<Item = (&'a str, u64)> {
        self.rows.get(&table).into_iter().flatten().map(|(key, value)| (*key, *value))
    }

    fn row(&self, table: TableId, key: &str) -> Option<u64> {
        self.rows.get(&table)?.get(key).copied()
    }

    /// A table that refers to rows of one that is not there (PR-153).
    pub fn without_parent(&self) -> Option<TableId> {
        let is_there = |id: &TableId| self.live().any(|table| table.id == *id);
        let parents = |table: &Table| {
            let parent = |kept: &Kept| match kept.demands {
                Demands::Parents(parent) => Some(parent),
                Demands::Marks => None,
            };
            table.enforced().filter_map(parent).collect::<Vec<_>>()
        };
        self.live().find(|table| !parents(table).iter().all(is_there)).map(|table| table.id)
    }

    /// A row of a table that does not keep a constraint of it, with the rule that is broken.
    pub fn breach(&self, table: TableId, kept: &Kept) -> Option<(&'static str, String)> {
        match kept.demands {
            Demands::Marks => {
                let mut marks = BTreeMap::new();
                let marked = self.of(table).filter_map(|(key, value)| Some((rows::mark(key, value)?, key)));
                let mut twice = marked.filter_map(|(mark, key)| Some((mark, marks.insert(mark, key)?, key)));
                twice.next().map(|(mark, one, two)| {
                    ("PR-150", format!("{one} and {two} of table {table} have the mark {mark}"))
                })
            }
            Demands::Parents(parent) => {
                let refers = |(key, value)| Some((key, rows::refers(key, value)?));
                let mut orphans = self.of(table).filter_map(refers);
                let orphan = orphans.find(|(_, to)| self.row(parent, to).is_none());
                orphan.map(|(key, to)| {
                    let what = format!("{key} of table {table} refers to {to} of table {parent}");
                    ("PR-151", format!("{what}, which is not there"))
                })
            }
        }
    }

    /// A row that does not keep a constraint that all rows of its table keep.
    pub fn first_breach(&self) -> Option<(&'static str, String)> {
        let valid = |table: &'a Table| table.keeps.iter().filter(|kept| kept.standing == How::Valid);
        let mut all = self.live().flat_map(|table| valid(table).map(|kept| (table.id, kept)));
        all.find_map(|(table, kept)| self.breach(table, kept))
    }

    /// True if the row of a key, which was written, has something in the column that it has not been allowed.
    fn is_against(&self, table: TableId, kept: &Kept, (key, old): (&str, Option<u64>)) -> bool {
        let Some(new) = self.row(table, key) else { return false };
        match kept.demands {
            Demands::Marks => {
                let of = |key: &str, value: u64| rows::mark(key, value);
                let (old, new) = (old.and_then(|old| of(key, old)), of(key, new));
                let same = || self.of(table).filter(|(key, value)| of(key, *value) == new).count();
                new.is_some() && old != new && same() > 1
            }
            Demands::Parents(parent) => {
                let old = old.and_then(|old| rows::refers(key, old));
                let new = rows::refers(key, new).filter(|new| old.as_ref() != Some(new));
                new.is_some_and(|new| self.row(parent, &new).is_none())
            }
        }
    }

    /// True if a write that has led to this state is against a constraint. `written` are the rows that it
    /// has written. Constraints that some rows may not keep count only if `strict`: which of those rows are
    /// in an index already is not known here.
    pub fn is_violated(
        &self,
        written: &BTreeSet<(TableId, &str)>,
        before: &CatalogState<'_>,
        strict: bool,
    ) -> bool {
        let counts = |kept: &&Kept| if strict { kept.is_enforced() } else { kept.standing == How::Valid };
        let refers = |parent: TableId, kept: &Kept| kept.demands == Demands::Parents(parent);
        let is_referred_to = |parent: TableId, key: &str| {
            let mut children = self
                .live()
                .filter(|table| table.keeps.iter().filter(counts).any(|kept| refers(parent, kept)));
            children.any(|child| {
                self.of(child.id).any(|(from, value)| rows::refers(from, value).as_deref() == Some(key))
            })
        };
        written.iter().any(|(id, key)| {
            let Some(table) = self.live().find(|table| table.id == *id) else { return false };
            let old = before.row(*id, key);
            let gone = old.is_some() && self.row(*id, key).is_none();
            table.keeps.iter().filter(counts).any(|kept| self.is_against(*id, kept, (key, old)))
                || gone && is_referred_to(*id, key)
        })
    }
}
