//! What rows claim beyond their own keys, in databases whose transactions are global: values that are unique
//! in their table over all partitions (PR-324), and rows of other tables that they refer to (PR-325).
//!
//! Whoever commits such rows has looked, at a snapshot, that nothing stands against them. The manager has the
//! rest: a commit is refused if another one, later than that snapshot, has claimed the same value, has
//! removed a row that is referred to, or refers to a row that is removed. What a row claims follows from the
//! row and from what the manager knows of its table, so nobody can claim less.
//!
//! A row may refer to another one by values that are unique instead of its key. A removal does not say which
//! values the row had, so who commits a row that refers brings the key of the one that it has found: it
//! claims that this one has the values, and whoever writes or removes that one claims that nobody refers to
//! what it had (PR-369). Such finds are in no log. A manager that begins to lead knows none of those before
//! it, and takes each row for one that was found.

use super::{BESIDE, Books};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::commits::KnownTable;
use types::data::constraint::{Demand, Reference, Target};
use types::data::{Row, Value, decode_row, encode_key};
use types::engine::MAX_KEY_BYTES;
use types::index::{BESIDE_ENTRY, entry_prefix};
use types::{Position, Rules, TableId};
use wire::RowOp;
use wire::commit::{KeptWrites, ParentRow};
use wire::request::TablePart;

/// What a row claims.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Claim {
    /// No other row has this value, which is unique by the constraint with this number.
    Value(u32, Bytes),
    /// The row with this key is there.
    Parent(TableId, Bytes),
    /// No row refers to the one with this key.
    Gone(TableId, Bytes),
    /// The row with this key has the values that a row refers to.
    Has(TableId, Bytes),
    /// No row refers to values that the one with this key had, and that no row has any more.
    Changed(TableId, Bytes),
}

impl Claim {
    /// What another commit has claimed that it stands against.
    fn opposite(&self) -> Claim {
        match self {
            Claim::Value(..) => self.clone(),
            Claim::Parent(table, key) => Claim::Gone(*table, key.clone()),
            Claim::Gone(table, key) => Claim::Parent(*table, key.clone()),
            Claim::Has(table, key) => Claim::Changed(*table, key.clone()),
            Claim::Changed(table, key) => Claim::Has(*table, key.clone()),
        }
    }

    /// The same with a key of its own: the request's bytes are not held by it.
    fn detached(self) -> Claim {
        match self {
            Claim::Gone(table, key) => Claim::Gone(table, Bytes::copy_from_slice(&key)),
            // What is encoded or was found is no part of the request.
            other => other,
        }
    }

    /// What it takes in the manager's memory, in bytes, about.
    fn memory(&self) -> usize {
        let (Claim::Value(_, bytes)
        | Claim::Parent(_, bytes)
        | Claim::Gone(_, bytes)
        | Claim::Has(_, bytes)
        | Claim::Changed(_, bytes)) = self;
        bytes.len() + BESIDE
    }
}

/// A foreign key to values that are unique, and no key.
#[derive(Debug)]
struct ByValue {
    /// Its number.
    constraint: u32,
    /// The columns of rows that refer.
    columns: Vec<usize>,
    parent: TableId,
    /// For each of them the column that it refers to.
    parent_columns: Vec<usize>,
}

impl ByValue {
    /// True if a row has these values where it is referred to. The error is a sentence.
    fn has(&self, tables: &Tables, (key, row): (&Bytes, &Bytes), value: &[u8]) -> Result<bool, String> {
        let Some(known) = tables.get(&self.parent) else { return Ok(false) };
        let columns = known.record.schema.columns();
        // Who told of the table may have said anything.
        let named = |at: &usize| columns.get(*at).is_some_and(|column| column.column_type.may_be_key());
        if !self.parent_columns.iter().all(named) {
            return Ok(false);
        }
        let read = decode_row(&known.record.schema, key, row);
        let read = read.map_err(|error| format!("a row of table {}: {error}", self.parent))?;
        let own = values(&read, &self.parent_columns).map(|values| entry_prefix(&values)).transpose();
        Ok(own.map_err(|error| error.to_string())?.is_some_and(|own| own == value))
    }
}

/// Tables by their ids.
type Tables = BTreeMap<TableId, KnownTable>;

/// What rows of a commit refer to by values.
struct Found<'a> {
    /// The table and the key of each row that was found, by the foreign key's number and the values. The key
    /// is one of its own, as in the books, which all rows that refer to it share.
    parents: BTreeMap<(u32, &'a [u8]), (TableId, Bytes)>,
    /// What the commit itself makes of rows that may be referred to so; none: it removes the row.
    own: BTreeMap<(TableId, &'a Bytes), Option<&'a Bytes>>,
}

impl<'a> Found<'a> {
    fn new(
        claims: &Claims,
        parts: impl Iterator<Item = &'a TablePart>,
        parents: &'a [ParentRow],
    ) -> Found<'a> {
        let found = |one: &ParentRow| (one.table, Bytes::copy_from_slice(&one.key));
        let parents = parents.iter().map(|one| ((one.constraint, &one.value[..]), found(one)));
        let mut own = BTreeMap::new();
        for part in parts {
            if claims.demands.get(&part.table).is_some_and(|demands| demands.is_parent_by_value) {
                own.extend(part.ops.iter().map(|op| ((part.table, op.key()), op.row())));
            }
        }
        Found { parents: parents.collect(), own }
    }

    /// The key of the row that has these values. The error is a sentence.
    fn parent(&self, tables: &Tables, by: &ByValue, value: &[u8]) -> Result<Bytes, String> {
        let found = self.parents.get(&(by.constraint, value)).filter(|(table, _)| *table == by.parent);
        let Some((table, key)) = found else {
            return Err(format!("a row refers to one of table {} that SQL has not looked up", by.parent));
        };
        let has = match self.own.get(&(*table, key)) {
            None => true,
            Some(None) => false,
            Some(Some(row)) => by.has(tables, (key, *row), value)?,
        };
        has.then(|| key.clone())
            .ok_or_else(|| format!("a row refers to one of table {table} that is removed or changed"))
    }
}

/// What rows of a table claim.
#[derive(Debug, Default)]
struct Demands {
    /// The numbers of unique constraints, and their columns.
    unique: Vec<(u32, Vec<usize>)>,
    /// Tables that rows refer to by their keys, and for each column of that key the row's own one.
    parents: Vec<(TableId, Vec<usize>)>,
    /// Foreign keys by which rows refer to others by their values.
    by_value: Vec<ByValue>,
    /// Rows of other tables refer to its rows.
    is_parent: bool,
    /// They do so by values.
    is_parent_by_value: bool,
}

/// The claims of the commits that are kept.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Tables whose rows claim anything.
    demands: BTreeMap<TableId, Demands>,
    newest: BTreeMap<Claim, Position>,
    kept: VecDeque<(Position, Vec<Claim>)>,
    /// Which rows commits up to here have found by values is not known.
    unknown_upto: Position,
}

impl Claims {
    /// Tables are like this now.
    pub fn follow(&mut self, tables: &Tables) {
        self.demands.clear();
        for known in tables.values() {
            for one in known.record.schema.constraints().iter().filter(|one| one.is_enforced()) {
                match &one.demand {
                    Demand::Unique(columns) => {
                        let own = self.demands.entry(known.record.id).or_default();
                        own.unique.push((one.number, columns.clone()));
                    }
                    Demand::Foreign(reference) => {
                        let Some(parent) = tables.get(&reference.parent) else { continue };
                        self.refer((known.record.id, one.number), reference, parent);
                    }
                    Demand::Check(_) | Demand::Index(_) => {}
                }
            }
        }
    }

    /// Rows of a table refer to others by the foreign key with this number.
    fn refer(&mut self, (table, number): (TableId, u32), reference: &Reference, parent: &KnownTable) {
        let own = self.demands.entry(table).or_default();
        match parent.record.schema.target(&reference.parent_columns) {
            Some(Target::Key(places)) => {
                let columns = places.iter().map(|at| reference.columns[*at]).collect();
                own.parents.push((reference.parent, columns));
                self.demands.entry(reference.parent).or_default().is_parent = true;
            }
            // How far the constraint is by which the values are unique does not matter here.
            Some(Target::Unique(..)) | None => {
                own.by_value.push(ByValue {
                    constraint: number,
                    columns: reference.columns.clone(),
                    parent: reference.parent,
                    parent_columns: reference.parent_columns.clone(),
                });
                self.demands.entry(reference.parent).or_default().is_parent_by_value = true;
            }
        }
    }

    /// The books are read, which have commits up to here: what these have found by values is in no log.
    pub fn found_from(&mut self, newest: Position) {
        self.unknown_upto = newest;
    }

    /// What these rows claim, where they refer to what was found; none: that is not known. The error is a
    /// sentence: a row is none that can be looked up.
    fn of(&self, tables: &Tables, part: &TablePart, found: Option<&Found<'_>>) -> Result<Vec<Claim>, String> {
        let mut all = Vec::new();
        let (Some(demands), Some(known)) = (self.demands.get(&part.table), tables.get(&part.table)) else {
            return Ok(all);
        };
        let schema = &known.record.schema;
        for op in &part.ops {
            if demands.is_parent_by_value {
                all.push(Claim::Changed(part.table, op.key().clone()));
            }
            match op {
                RowOp::Delete { key } if demands.is_parent => all.push(Claim::Gone(part.table, key.clone())),
                RowOp::Put { key, row } => {
                    let read = decode_row(schema, key, row);
                    let row = read.map_err(|error| format!("a row of table {}: {error}", part.table))?;
                    demands.of_row((tables, found), (key, &row), &mut all)?;
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// Of so many commits claims are known.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    fn note(&mut self, at: Position, claims: BTreeSet<Claim>) {
        for claim in &claims {
            self.newest.insert(claim.clone(), at);
        }
        if !claims.is_empty() {
            self.kept.push_back((at, claims.into_iter().collect()));
        }
    }

    /// Commits up to here are not kept any more.
    pub fn forget(&mut self, upto: Position) {
        while let Some((at, claims)) = self.kept.pop_front_if(|(at, _)| *at <= upto) {
            for claim in claims {
                if self.newest.get(&claim) == Some(&at) {
                    self.newest.remove(&claim);
                }
            }
        }
    }
}

impl Demands {
    fn of_row(
        &self,
        (tables, found): (&Tables, Option<&Found<'_>>),
        (key, row): (&Bytes, &Row),
        all: &mut Vec<Claim>,
    ) -> Result<(), String> {
        for (number, columns) in &self.unique {
            let Some(values) = values(row, columns) else { continue };
            let entry = entry_prefix(&values).map_err(|error| error.to_string())?;
            // One that has no place in the index would not be found by it.
            if entry.len() + key.len() + BESIDE_ENTRY > MAX_KEY_BYTES {
                return Err(format!("a unique value of {} bytes is too long to be looked up", entry.len()));
            }
            all.push(Claim::Value(*number, entry.into()));
        }
        for (parent, columns) in &self.parents {
            let (Some(values), Some(known)) = (values(row, columns), tables.get(parent)) else { continue };
            let key = encode_key(&known.record.schema, &values);
            let key = key.map_err(|error| format!("a row refers to none: {error}"))?;
            all.push(Claim::Parent(*parent, key.into()));
        }
        for (by, found) in self.by_value.iter().filter_map(|by| Some((by, found?))) {
            let Some(values) = values(row, &by.columns) else { continue };
            let value = entry_prefix(&values).map_err(|error| format!("a row refers to none: {error}"))?;
            all.push(Claim::Has(by.parent, found.parent(tables, by, &value)?));
        }
        Ok(())
    }
}

/// What a row has in these columns; none: one is null, and it claims nothing.
fn values(row: &Row, columns: &[usize]) -> Option<Vec<Value>> {
    let values = columns.iter().map(|at| row.values.get(*at).cloned()).collect::<Option<Vec<Value>>>()?;
    (!values.iter().any(Value::is_null)).then_some(values)
}

impl Books {
    /// What a transaction claims, whose rows refer to these `parents` by values. The error is a sentence: it
    /// claims what it cannot, or the same twice.
    pub(super) fn claimed<'a>(
        &self,
        parts: impl Iterator<Item = &'a TablePart> + Clone,
        parents: &'a [ParentRow],
    ) -> Result<BTreeSet<Claim>, String> {
        let mut all = BTreeSet::new();
        let found = Found::new(&self.claims, parts.clone(), parents);
        for part in parts {
            for claim in self.claims.of(&self.tables, part, Some(&found))? {
                let twice = matches!(claim, Claim::Value(..)) && all.contains(&claim);
                let by_key = matches!(claim, Claim::Parent(..) | Claim::Gone(..));
                let against = by_key && all.contains(&claim.opposite());
                if twice {
                    return Err(format!("two rows of table {} have the same unique value", part.table));
                }
                if against {
                    return Err(format!("a row refers to one of table {} that is removed", part.table));
                }
                all.insert(claim);
            }
        }
        Ok(all)
    }

    /// Notes what a commit claims, once however many rows do; no `parents`: what its rows refer to by values
    /// is not known any more. For its part in each partition: what that takes in memory, in bytes, about.
    pub(super) fn claim(
        &mut self,
        at: Position,
        kept: &[KeptWrites],
        parents: Option<&[ParentRow]>,
    ) -> Vec<usize> {
        let parts = kept.iter().flat_map(|writes| &writes.parts);
        let found = parents.map(|parents| Found::new(&self.claims, parts, parents));
        let (mut all, mut sizes) = (BTreeSet::new(), Vec::with_capacity(kept.len()));
        for writes in kept {
            let mut bytes = 0;
            for part in &writes.parts {
                // What was committed was looked at then; it may have been written under older tables.
                let claims = self.claims.of(&self.tables, part, found.as_ref()).unwrap_or_default();
                // Which commit has written a row last is in the books anyhow.
                for claim in claims.into_iter().filter(|claim| !matches!(claim, Claim::Changed(..))) {
                    let memory = claim.memory();
                    if all.insert(claim.detached()) {
                        bytes += memory;
                    }
                }
            }
            sizes.push(bytes);
        }
        self.claims.note(at, all);
        sizes
    }

    /// True if a commit later than this snapshot stands against one of these.
    pub(super) fn stands_against(
        &self,
        rules: Rules,
        (claims, checked): (&BTreeSet<Claim>, Position),
    ) -> bool {
        let later = |claim: &&Claim| self.newest_against(claim).is_some_and(|at| at > checked);
        let counts = |claim: &Claim| match claim {
            Claim::Value(..) => rules.unique_values_are_claimed(),
            Claim::Parent(..) | Claim::Gone(..) | Claim::Has(..) | Claim::Changed(..) => {
                rules.references_are_claimed()
            }
        };
        claims.iter().filter(later).any(counts)
    }

    /// The newest commit that stands against this, or may do so; none: none does.
    fn newest_against(&self, claim: &Claim) -> Option<Position> {
        let opposite = || self.claims.newest.get(&claim.opposite()).copied();
        match claim {
            Claim::Value(..) | Claim::Parent(..) | Claim::Gone(..) => opposite(),
            Claim::Has(table, key) => self.keys.get(&(*table, key.clone())).copied(),
            Claim::Changed(..) => opposite().max(Some(self.claims.unknown_upto)),
        }
    }
}
