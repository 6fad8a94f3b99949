//! Constraints of a database's tables (`types::data::constraint`): preconditions of every write to them.
//!
//! Only the primary thinks. Behind the operations of a request, and before its entry is made, it looks at
//! what has been executed with the request laid over it. Each row that was written must be the only one in
//! its range of an index that is unique (PR-150). What it refers to must be there, and nothing may refer to
//! what is there no more (PR-151). So it does not matter at which states the writers have read, or who they
//! are. Index rows are part of the same entry, and backups apply them like any others.

use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use types::data::constraint::{Constraint, Demand, Reference, Standing, Target};
use types::data::{Row, Schema, Value, decode_known, encode_key, prefix_end};
use types::engine::{Engine, EngineError, MAX_KEY_BYTES};
use types::{CatalogTable, KeySpace, Mutation, ReadAt, Rules, TableId, TableState, index};

/// Index rows that are looked at in one step.
const PAGE: usize = 256;

/// Every table of a state, those among them that are being removed.
pub(crate) type Tables = BTreeMap<TableId, (TableState, CatalogTable)>;

/// A foreign key, and the table that it is of.
#[derive(Clone, Debug)]
struct Child {
    table: TableId,
    number: u32,
    reference: Reference,
}

/// A table that has constraints, or that others refer to.
#[derive(Debug)]
struct Guarded {
    schema: Schema,
    children: Vec<Child>,
}

/// The constraints of a database's tables, as one state has them.
#[derive(Debug, Default)]
pub(crate) struct Guards(BTreeMap<TableId, Guarded>);

/// What constraints say to a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ConstraintCheck {
    /// It may be done; with what it changes in indexes.
    Fits(Vec<Mutation>),
    /// A row of it has no place in an index.
    Unindexable,
    /// The constraint with this number forbids it.
    Violates(u32),
}

/// What a constraint says to a row that was there before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Looked {
    /// The row keeps it, and is found in its index by this.
    Keeps(Mutation),
    /// The row is against it, as these words say, and is found in its index all the same (PR-490).
    Against(Mutation, String),
    /// Its index has no place for the row, as these words say.
    Unplaced(String),
}

/// Indexes that have no place for a row: their tables and numbers.
pub(crate) type Unplaced = BTreeSet<(TableId, u32)>;

impl Guards {
    /// Of these tables.
    pub fn of(tables: &Tables) -> Guards {
        let mut guards = BTreeMap::new();
        let live = || tables.iter().filter(|(_, (state, _))| *state != TableState::Dropping);
        let mut children: BTreeMap<TableId, Vec<Child>> = BTreeMap::new();
        for (table, (_, found)) in live() {
            for constraint in found.schema.constraints().iter().filter(|one| one.is_enforced()) {
                let Some(reference) = constraint.reference().cloned() else { continue };
                let child = Child { table: *table, number: constraint.number, reference };
                children.entry(child.reference.parent).or_default().push(child);
            }
        }
        for (table, (_, found)) in live() {
            let children = children.remove(table).unwrap_or_default();
            let indexed = found.schema.constraints().iter().any(|one| one.indexed().is_some());
            if indexed || !children.is_empty() {
                guards.insert(*table, Guarded { schema: found.schema.clone(), children });
            }
        }
        Guards(guards)
    }

    /// True if no write can be against any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How far a constraint is; none: it is not known.
    pub fn standing(&self, table: TableId, number: u32) -> Option<Standing> {
        let all = self.0.get(&table)?.schema.constraints();
        all.iter().find(|one| one.number == number).map(|one| one.standing)
    }

    /// Whether a write that changes this may be done.
    pub fn check(
        &self,
        engine: &dyn Engine,
        rules: Rules,
        mutations: &[Mutation],
    ) -> Result<ConstraintCheck, EngineError> {
        let mut after = After::new(engine, mutations);
        let touched = self.touched(&after)?;
        let Some(changes) = index_changes(&touched) else { return Ok(ConstraintCheck::Unindexable) };
        after.index.extend(changes.iter().map(|change| (change.key.clone(), change.value.is_some())));
        if rules.constraints_are_looked_at() {
            for one in &touched {
                if let Some(number) = self.against(&after, one)? {
                    return Ok(ConstraintCheck::Violates(number));
                }
            }
        }
        Ok(ConstraintCheck::Fits(changes))
    }

    /// Reads what a write of these rows has to look up for their constraints, and says nothing of it: it is
    /// read once more when the write is done, from memory then (PR-491).
    pub fn look_ahead(&self, engine: &dyn Engine, mutations: &[Mutation]) -> Result<(), EngineError> {
        let mut after = After::new(engine, mutations);
        let touched = self.touched(&after)?;
        let changes = index_changes(&touched).unwrap_or_default();
        after.index.extend(changes.into_iter().map(|change| (change.key, change.value.is_some())));
        touched.iter().try_for_each(|one| self.against(&after, one).map(|_| ()))
    }

    /// What rows that are taken in whatever they are change in indexes, and the indexes that have no place
    /// for one of them.
    pub fn follow(
        &self,
        engine: &dyn Engine,
        mutations: &[Mutation],
    ) -> Result<(Vec<Mutation>, Unplaced), EngineError> {
        let touched = self.touched(&After::new(engine, mutations))?;
        let (mut changes, mut broken) = (Vec::new(), BTreeSet::new());
        for one in &touched {
            for (constraint, columns) in one.enforced().filter_map(|one| Some((one, one.indexed()?))) {
                let of = |row| {
                    values(row, columns).and_then(|all| entry(one.id, constraint.number, &all, &one.key))
                };
                let (before, after) = (of(one.before()), of(one.after()));
                if one.new.is_some() && after.is_none() {
                    broken.insert((one.id, constraint.number));
                }
                if before != after {
                    changes.extend(before.map(|key| Mutation { key, value: None }));
                    changes.extend(after.map(|key| Mutation { key, value: Some(Bytes::new()) }));
                }
            }
        }
        Ok((changes, broken))
    }

    /// All indexes of the tables whose rows these are.
    pub fn indexes_of(&self, mutations: &[Mutation]) -> Unplaced {
        let tables: BTreeSet<TableId> =
            mutations.iter().filter_map(|mutation| KeySpace::table_of(&mutation.key)).collect();
        let mut all = Unplaced::new();
        for (table, guarded) in tables.iter().filter_map(|id| Some((*id, self.0.get(id)?))) {
            let indexed = guarded.schema.constraints().iter().filter(|one| one.indexed().is_some());
            all.extend(indexed.map(|one| (table, one.number)));
        }
        all
    }

    /// The rows that a write leaves other than they were, of tables with constraints.
    fn touched(&self, after: &After<'_>) -> Result<Vec<Touched<'_>>, EngineError> {
        let mut touched = Vec::new();
        for (stored, new) in &after.rows {
            let Some(id) = KeySpace::table_of(stored) else { continue };
            let Some(guarded) = self.0.get(&id) else { continue };
            let key = KeySpace::Table(id).key_of(stored);
            let old = after.engine.get(stored, ReadAt::Applied)?.map(|(_, value)| value);
            // What is no row of the table is not counted among its rows.
            let row = |value: &Bytes| decode_known(&guarded.schema, &key, value).ok();
            let new = new.map(|value| decode_known(&guarded.schema, &key, value));
            touched.push(Touched { id, guarded, old: old.as_ref().and_then(row), new, key });
        }
        Ok(touched)
    }

    /// The number of the constraint that a row is against.
    fn against(&self, after: &After<'_>, one: &Touched<'_>) -> Result<Option<u32>, EngineError> {
        for constraint in one.enforced() {
            let Some(columns) = constraint.indexed() else { continue };
            let (old, new) = (values(one.before(), columns), values(one.after(), columns));
            let Some(new) = new.filter(|new| old.as_ref() != Some(new) && !has_null(new)) else { continue };
            let kept = match &constraint.demand {
                Demand::Foreign(reference) => self.has_parent(after, reference, &new)?,
                Demand::Unique(_) => after.count(one.id, constraint.number, &new, 2)? == 1,
                Demand::Index(_) | Demand::Check(_) => true,
            };
            if !kept {
                return Ok(Some(constraint.number));
            }
        }
        for child in &one.guarded.children {
            let columns = &child.reference.parent_columns;
            let (old, new) = (values(one.before(), columns), values(one.after(), columns));
            let Some(old) = old.filter(|old| new.as_ref() != Some(old) && !has_null(old)) else { continue };
            let referred = after.count(child.table, child.number, &old, 1)? > 0;
            if referred && !self.has_parent(after, &child.reference, &old)? {
                return Ok(Some(child.number));
            }
        }
        Ok(None)
    }

    /// True if there is a row with these values that a foreign key refers to.
    fn has_parent(
        &self,
        after: &After<'_>,
        reference: &Reference,
        values: &[Value],
    ) -> Result<bool, EngineError> {
        let Some(parent) = self.0.get(&reference.parent) else { return Ok(false) };
        let ordered = |places: &[usize]| places.iter().map(|at| values[*at].clone()).collect::<Vec<_>>();
        match parent.schema.target(&reference.parent_columns) {
            None => Ok(false),
            Some(Target::Key(places)) => match encode_key(&parent.schema, &ordered(&places)) {
                Ok(key) => after.has_row(&KeySpace::Table(reference.parent).row_key(&key)),
                // No row can have it.
                Err(_) => Ok(false),
            },
            Some(Target::Unique(number, places)) => {
                Ok(after.count(reference.parent, number, &ordered(&places), 1)? > 0)
            }
        }
    }

    /// The index row for a row that was there before its constraint, and whether that row keeps it. Where
    /// transactions are `global` others see to it that it does (PR-324, PR-325).
    pub fn index_row(
        &self,
        (after, global): (&Building<'_>, bool),
        (table, number): (TableId, u32),
        (key, stored): (&[u8], &[u8]),
    ) -> Result<Looked, EngineError> {
        let unplaced = |why: &str| Ok(Looked::Unplaced(why.into()));
        let Some(guarded) = self.0.get(&table) else { return unplaced("the table is gone") };
        let all = guarded.schema.constraints().iter();
        let constraint = all.filter(|one| one.number == number).find_map(|one| Some((one, one.indexed()?)));
        let Some((constraint, columns)) = constraint else { return unplaced("it is gone") };
        let row = match decode_known(&guarded.schema, key, stored) {
            Ok(row) => row,
            Err(why) => return unplaced(&format!("a row cannot be read: {why}")),
        };
        let found = values(Some(&row), columns).unwrap_or_default();
        let Some(entry) = entry(table, number, &found, key) else {
            return unplaced("a row has no place in its index");
        };
        let looks = !has_null(&found) && !global;
        let kept = match &constraint.demand {
            Demand::Foreign(reference) if looks => self.has_parent(&after.0.borrow(), reference, &found)?,
            Demand::Unique(_) if looks => after.0.borrow().others(table, number, &found, &entry)? == 0,
            Demand::Foreign(_) | Demand::Unique(_) | Demand::Index(_) | Demand::Check(_) => true,
        };
        after.0.borrow_mut().index.insert(entry.clone(), true);
        let mutation = Mutation { key: entry, value: Some(Bytes::new()) };
        Ok(match kept {
            true => Looked::Keeps(mutation),
            false => Looked::Against(mutation, shown(&guarded.schema, columns, &found)),
        })
    }
}

/// The state as it is with the index rows of a slice that is being made.
pub(crate) struct Building<'a>(RefCell<After<'a>>);

impl<'a> Building<'a> {
    /// Nothing is made yet.
    pub fn new(engine: &'a dyn Engine) -> Building<'a> {
        Building(RefCell::new(After::new(engine, &[])))
    }
}

/// A row that a write leaves other than it was.
struct Touched<'a> {
    id: TableId,
    guarded: &'a Guarded,
    key: Bytes,
    old: Option<Row>,
    new: Option<Result<Row, types::data::RowError>>,
}

impl Touched<'_> {
    fn before(&self) -> Option<&Row> {
        self.old.as_ref()
    }

    fn after(&self) -> Option<&Row> {
        self.new.as_ref().and_then(|new| new.as_ref().ok())
    }

    fn enforced(&self) -> impl Iterator<Item = &Constraint> {
        self.guarded.schema.constraints().iter().filter(|one| one.is_enforced())
    }
}

/// What these rows change in indexes. None: a row has no place in one.
fn index_changes(touched: &[Touched<'_>]) -> Option<Vec<Mutation>> {
    let mut changes = Vec::new();
    for one in touched {
        if matches!(one.new, Some(Err(_))) {
            return None;
        }
        for (constraint, columns) in one.enforced().filter_map(|one| Some((one, one.indexed()?))) {
            let of = |values: Vec<Value>| entry(one.id, constraint.number, &values, &one.key);
            // A row that was there before its constraint may have no place in its index.
            let before = values(one.before(), columns).and_then(of);
            let after = match values(one.after(), columns) {
                Some(values) => Some(of(values)?),
                None => None,
            };
            if before == after {
                continue;
            }
            changes.extend(before.map(|key| Mutation { key, value: None }));
            changes.extend(after.map(|key| Mutation { key, value: Some(Bytes::new()) }));
        }
    }
    Some(changes)
}

/// A row's values in these columns.
fn values(row: Option<&Row>, columns: &[usize]) -> Option<Vec<Value>> {
    row.map(|row| columns.iter().map(|at| row.values[*at].clone()).collect())
}

fn has_null(values: &[Value]) -> bool {
    values.iter().any(Value::is_null)
}

/// Columns and their values, for people.
fn shown(schema: &Schema, columns: &[usize], values: &[Value]) -> String {
    let names: Vec<&str> = columns.iter().map(|at| schema.columns()[*at].name.as_str()).collect();
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}

/// The stored key of an index row; `None`: it would be too long.
fn entry(table: TableId, number: u32, values: &[Value], key: &[u8]) -> Option<Bytes> {
    let mut stored = KeySpace::Table(table).index_prefix(Some(number));
    stored.extend(index::entry_prefix(values).ok()?);
    stored.extend_from_slice(key);
    (stored.len() <= MAX_KEY_BYTES).then(|| stored.into())
}

/// The state that has been executed, with a write laid over it.
struct After<'a> {
    engine: &'a dyn Engine,
    rows: BTreeMap<&'a Bytes, Option<&'a Bytes>>,
    /// Index rows that come (true) or go.
    index: BTreeMap<Bytes, bool>,
}

impl<'a> After<'a> {
    fn new(engine: &'a dyn Engine, mutations: &'a [Mutation]) -> After<'a> {
        let rows = mutations.iter().filter(|mutation| KeySpace::table_of(&mutation.key).is_some());
        // The last one of a key counts.
        let rows = rows.map(|mutation| (&mutation.key, mutation.value.as_ref())).collect();
        After { engine, rows, index: BTreeMap::new() }
    }

    fn has_row(&self, stored: &Bytes) -> Result<bool, EngineError> {
        match self.rows.get(stored) {
            Some(new) => Ok(new.is_some()),
            None => Ok(self.engine.get(stored, ReadAt::Applied)?.is_some()),
        }
    }

    /// How many rows have these values in the columns of an index: more than `enough` are not counted.
    fn count(
        &self,
        table: TableId,
        number: u32,
        values: &[Value],
        enough: usize,
    ) -> Result<usize, EngineError> {
        self.counted(table, number, values, enough, None)
    }

    /// How many other rows than that of this entry have its values, counted up to one.
    fn others(
        &self,
        table: TableId,
        number: u32,
        values: &[Value],
        entry: &Bytes,
    ) -> Result<usize, EngineError> {
        self.counted(table, number, values, 1, Some(entry))
    }

    fn counted(
        &self,
        table: TableId,
        number: u32,
        values: &[Value],
        enough: usize,
        but: Option<&Bytes>,
    ) -> Result<usize, EngineError> {
        // What is too long to be stored is in no index.
        let Ok(values) = index::entry_prefix(values) else { return Ok(0) };
        let prefix = [KeySpace::Table(table).index_prefix(Some(number)), values].concat();
        let (mut from, end) = (Bytes::from(prefix.clone()), Bytes::from(prefix_end(&prefix)));
        let own = self.index.range(from.clone()..end.clone());
        let mut found = own.filter(|(key, comes)| **comes && Some(*key) != but).count();
        while found < enough {
            let rows = self.engine.scan(&from, &end, ReadAt::Applied, PAGE, usize::MAX)?;
            let there = rows.iter().filter(|row| !self.index.contains_key(&row.key) && Some(&row.key) != but);
            found += there.count();
            match rows.last() {
                Some(last) if rows.len() == PAGE => from = [&last.key[..], &[0]].concat().into(),
                _ => break,
            }
        }
        Ok(found.min(enough))
    }
}

/// Why tables cannot be as they are, if so: what a foreign key refers to must be there, and be unique
/// (PR-153).
pub(crate) fn without_parent(tables: &Tables, is_global: bool) -> Option<u32> {
    let live = |id: &TableId| tables.get(id).filter(|(state, _)| *state != TableState::Dropping);
    let own = tables.values().filter(|(state, _)| *state != TableState::Dropping);
    own.flat_map(|(_, table)| table.schema.constraints())
        .filter(|constraint| constraint.is_enforced())
        .filter_map(|constraint| Some((constraint.number, constraint.reference()?)))
        .find(|(_, reference)| {
            live(&reference.parent).is_none_or(|(_, parent)| {
                let width = parent.schema.columns().len();
                let known = reference.parent_columns.iter().all(|at| *at < width);
                let columns = &reference.parent_columns;
                !known
                    || parent.schema.target(columns).is_none() && !(is_global && is_claimed(parent, columns))
            })
        })
        .map(|(number, _)| number)
}

/// True if values in these columns are unique, however far their index is: under global transactions the
/// manager sees to that, and to what refers to them, and not the partition that builds the index.
fn is_claimed(parent: &CatalogTable, columns: &[usize]) -> bool {
    let sorted = |columns: &[usize]| columns.iter().copied().collect::<BTreeSet<usize>>();
    let enforced = parent.schema.constraints().iter().filter(|one| one.is_enforced());
    enforced
        .filter_map(|one| one.unique())
        .any(|of| of.len() == columns.len() && sorted(of) == sorted(columns))
}

/// The next of a table's constraints for which something is to be done: rows that were there are looked at,
/// or its index is removed.
pub(crate) fn unsettled(table: &CatalogTable) -> Option<&Constraint> {
    table.schema.constraints().iter().find(|constraint| {
        let work = matches!(constraint.standing, Standing::Building | Standing::Dropping);
        work && constraint.indexed().is_some()
    })
}
