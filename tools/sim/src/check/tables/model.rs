//! The tables of a database and their rows at every position of one log, and what a write comes to there.

use super::keeps::CatalogState;
use super::{Part, Refused, TableChange, Transaction, row_name};
use crate::check::catalog::{CatalogChange, Kept, Standing, Table};
use crate::check::history::RowChange;
use crate::check::lineage::{Change, Known};
use std::collections::{BTreeMap, BTreeSet};
use types::data::Standing as How;
use types::{Lsn, Position, TableId, Term};

/// Versions along a log, oldest first; none: it was removed.
type Versions<T> = Vec<(Lsn, Option<T>)>;

/// Every version of every table and row along a log.
#[derive(Debug, Default)]
pub struct Model<'a> {
    tables: BTreeMap<TableId, Versions<&'a Table>>,
    rows: BTreeMap<TableId, BTreeMap<&'a str, Versions<u64>>>,
    terms: BTreeMap<Lsn, Term>,
}

impl<'a> Model<'a> {
    /// Along a log, whose oldest entry comes first.
    pub fn of(line: impl IntoIterator<Item = &'a Known>) -> Model<'a> {
        let mut model = Model::default();
        for known in line {
            model.terms.insert(known.at.lsn, known.at.term);
            for (id, table) in &known.tables {
                model.tables.entry(*id).or_default().push((known.at.lsn, table.as_ref()));
            }
            for (name, value) in &known.changes {
                let Some((table, key)) = split(name) else { continue };
                let rows = model.rows.entry(table).or_default();
                rows.entry(key).or_default().push((known.at.lsn, *value));
            }
        }
        model
    }

    /// A table at an LSN, whatever its standing.
    pub fn table(&self, id: TableId, at: Lsn) -> Option<&'a Table> {
        newest(self.tables.get(&id)?, at).map(|(_, table)| table)
    }

    /// All tables at an LSN, by their ids.
    pub fn tables(&self, at: Lsn) -> impl Iterator<Item = &'a Table> {
        self.tables.values().filter_map(move |versions| newest(versions, at).map(|(_, table)| table))
    }

    /// A row at an LSN.
    pub fn row(&self, table: TableId, key: &str, at: Lsn) -> Option<(Lsn, u64)> {
        newest(self.rows.get(&table)?.get(key)?, at)
    }

    /// The rows of a table at an LSN, in the order of their keys.
    pub fn rows(&self, table: TableId, at: Lsn) -> impl Iterator<Item = (&'a str, Lsn, u64)> {
        let row = move |(key, versions): (&&'a str, &Versions<u64>)| {
            newest(versions, at).map(|(lsn, value)| (*key, lsn, value))
        };
        self.rows.get(&table).into_iter().flatten().filter_map(row)
    }

    /// The tables that have rows at an LSN, or had some once.
    pub fn with_rows(&self) -> impl Iterator<Item = TableId> {
        self.rows.keys().copied()
    }

    /// True if this log has the state that a read has shown there.
    fn has(&self, shown: Position) -> bool {
        let term = self.terms.range(..=shown.lsn).next_back().map(|(_, term)| *term);
        self.terms.contains_key(&shown.lsn) && term.is_some_and(|term| term <= shown.term)
    }

    /// Tables and rows at an LSN.
    pub fn state(&self, at: Lsn) -> CatalogState<'a> {
        let of = |id: TableId| (id, self.rows(id, at).map(|(key, _, value)| (key, value)).collect());
        let tables = self.tables(at).map(|table| (table.id, table)).collect();
        CatalogState { tables, rows: self.rows.keys().copied().map(of).collect() }
    }

    /// What a write comes to in the state at an LSN: its changes of tables, by their ids, and of rows, in
    /// order; or why it is refused. `strict`: constraints that some rows may not keep forbid it as well.
    pub fn comes_to(
        &self,
        write: &Transaction,
        at: Lsn,
        strict: bool,
    ) -> Result<(Vec<CatalogChange>, Vec<Change>), Refused> {
        if write.changes.iter().any(|change| !self.is_possible(change)) {
            return Err(Refused::Never);
        }
        let seen = write.parts.iter().flat_map(|part| &part.seen).chain(&write.since);
        let is_lost = seen.into_iter().any(|seen| !self.has(*seen));
        if is_lost && !write.alone {
            return Err(Refused::Changed);
        }
        let changed = self.tables_after(&write.changes, at)?;
        let mut rows = Vec::new();
        for part in &write.parts {
            let table = changed.get(&part.table).or_else(|| self.table(part.table, at));
            let writable = |table: &&Table| matches!(table.standing, Standing::Live | Standing::Filling(_));
            if table.filter(writable).is_none_or(|table| table.version != part.version) {
                return Err(Refused::Stale);
            }
            if is_lost {
                return Err(Refused::Changed);
            }
            rows.extend(self.rows_after(write, part, at)?);
        }
        if self.is_violated((&changed, &rows), at, strict) {
            return Err(Refused::Violates);
        }
        Ok((changed.into_iter().map(|(id, table)| (id, Some(table))).collect(), rows))
    }

    /// True if these changes at an LSN are against a constraint.
    fn is_violated(
        &self,
        (tables, rows): (&BTreeMap<TableId, Table>, &[Change]),
        at: Lsn,
        strict: bool,
    ) -> bool {
        let (before, mut after) = (self.state(at), self.state(at));
        after.tables.extend(tables.iter().map(|(id, table)| (*id, table)));
        let mut written = BTreeSet::new();
        for (name, value) in rows {
            let Some((table, key)) = split(name) else { continue };
            written.insert((table, key));
            let rows = after.rows.entry(table).or_default();
            match value {
                Some(value) => rows.insert(key, *value),
                None => rows.remove(key),
            };
        }
        after.is_violated(&written, &before, strict)
    }

    /// True if a change can be done in some state.
    fn is_possible(&self, change: &TableChange) -> bool {
        match change {
            TableChange::Create(table) | TableChange::Alter(_, table) => {
                !table.name.is_empty() && table.id != TableId(0)
            }
            TableChange::Drop(..) => true,
        }
    }

    /// The tables that are others behind these changes.
    fn tables_after(&self, changes: &[TableChange], at: Lsn) -> Result<BTreeMap<TableId, Table>, Refused> {
        let mut changed: BTreeMap<TableId, Table> = BTreeMap::new();
        for change in changes {
            let there = |id: &TableId| changed.get(id).or_else(|| self.table(*id, at));
            let of_version = |id: &TableId, version: u32| {
                let table = there(id).filter(|table| table.standing != Standing::Dropped);
                table.filter(|table| table.version == version).ok_or(Refused::Stale)
            };
            let table = match change {
                // Several bring a partition to what the first one has, and one was faster.
                TableChange::Create(table) if there(&table.id).is_some() => return Err(Refused::Stale),
                TableChange::Create(table) => table.clone(),
                TableChange::Alter(from, to) => {
                    let before = of_version(&to.id, *from)?;
                    let hides = matches!(to.standing, Standing::Filling(_))
                        && !matches!(before.standing, Standing::Filling(_));
                    // Rows that are there stay readable: columns come, and none goes.
                    if hides || to.version <= before.version || to.more < before.more {
                        return Err(Refused::Never);
                    }
                    Table { keeps: settled(&before.keeps, &to.keeps), ..to.clone() }
                }
                TableChange::Drop(id, version) => {
                    Table { standing: Standing::Dropped, ..of_version(id, *version)?.clone() }
                }
            };
            changed.insert(table.id, table);
        }
        // Behind all of them: two tables may get each other's names.
        let shares = |table: &Table| {
            let unchanged = self.tables(at).filter(|other| !changed.contains_key(&other.id));
            let named =
                |other: &Table| other.id != table.id && other.standing.has_name() && other.name == table.name;
            table.standing.has_name() && unchanged.chain(changed.values()).any(named)
        };
        if changed.values().any(shares) {
            return Err(Refused::NameTaken);
        }
        let mut state = CatalogState { rows: BTreeMap::new(), ..self.state(at) };
        state.tables.extend(changed.iter().map(|(id, table)| (*id, table)));
        match state.without_parent() {
            Some(_) => Err(Refused::Stale),
            None => Ok(changed),
        }
    }

    /// What becomes of one table's rows.
    fn rows_after(&self, write: &Transaction, part: &Part, at: Lsn) -> Result<Vec<Change>, Refused> {
        // A write sees its own earlier operations, and what it wrote itself rests on no snapshot.
        let mut own: BTreeMap<&str, bool> = BTreeMap::new();
        let mut changes = Vec::new();
        for (place, (change, key)) in part.ops.iter().enumerate() {
            let there = match own.get(key.as_str()) {
                Some(there) => *there,
                None => {
                    let row = self.row(part.table, key, at);
                    let since =
                        if part.seen.is_empty() { write.since } else { part.seen.get(place).copied() };
                    let rests = !matches!(change, RowChange::Put | RowChange::Insert);
                    let unchanged = |since: Lsn| row.is_some_and(|(lsn, _)| lsn <= since);
                    if since.is_some_and(|since| rests && !unchanged(since.lsn)) {
                        return Err(Refused::Changed);
                    }
                    row.is_some()
                }
            };
            let value = match change {
                RowChange::Insert if there => return Err(Refused::Exists),
                RowChange::Update | RowChange::Delete if !there => continue,
                RowChange::Keep => continue,
                RowChange::Delete => None,
                RowChange::Put | RowChange::Insert | RowChange::Update => Some(write.value),
            };
            changes.push((row_name(part.table, key), value));
            own.insert(key, value.is_some());
        }
        Ok(changes)
    }
}

/// A table's constraints behind a change that names these: how far one is that was there before says the
/// state, rows that were there are looked at for a new one, and one that is named no more goes.
fn settled(before: &[Kept], named: &[Kept]) -> Vec<Kept> {
    let find = |all: &[Kept], number: u32| all.iter().find(|kept| kept.number == number).cloned();
    let settle = |kept: &Kept| match find(before, kept.number) {
        // It was to go, and is there again: another partition has lost that it was dropped.
        Some(before) if !before.is_enforced() && kept.is_enforced() => {
            Some(Kept { standing: How::Building, ..before })
        }
        Some(before) => Some(before),
        None if kept.standing == How::Dropping => None,
        None => Some(Kept { standing: How::Building, ..kept.clone() }),
    };
    let gone = before.iter().filter(|kept| find(named, kept.number).is_none());
    let dropped = gone.map(|kept| Kept { standing: How::Dropping, ..kept.clone() });
    named.iter().filter_map(settle).chain(dropped).collect()
}

/// The table and the key of a row's name.
pub fn split(name: &str) -> Option<(TableId, &str)> {
    let (table, key) = name.split_once('/')?;
    Some((TableId(table.parse().ok()?), key))
}

fn newest<T: Copy>(versions: &[(Lsn, Option<T>)], at: Lsn) -> Option<(Lsn, T)> {
    let below = versions.partition_point(|(lsn, _)| *lsn <= at);
    let (lsn, value) = versions[below.checked_sub(1)?];
    value.map(|value| (lsn, value))
}
