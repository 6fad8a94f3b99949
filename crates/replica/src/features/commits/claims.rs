//! What rows claim beyond their own keys, in databases whose transactions are global: values that are unique
//! in their table over all partitions (PR-324), and rows of other tables that they refer to (PR-325).
//!
//! Whoever commits such rows has looked, at a snapshot, that nothing stands against them. The manager has the
//! rest: a commit is refused if another one, later than that snapshot, has claimed the same value, has
//! removed a row that is referred to, or refers to a row that is removed. What a row claims follows from the
//! row and from what the manager knows of its table, so nobody can claim less.

use super::Books;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::commits::KnownTable;
use types::data::constraint::{Demand, Target};
use types::data::{Row, Value, decode_row, encode_key};
use types::engine::MAX_KEY_BYTES;
use types::index::{BESIDE_ENTRY, entry_prefix};
use types::{Position, Rules, TableId};
use wire::RowOp;
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
}

impl Claim {
    /// What another commit has claimed that it stands against.
    fn opposite(&self) -> Claim {
        match self {
            Claim::Value(..) => self.clone(),
            Claim::Parent(table, key) => Claim::Gone(*table, key.clone()),
            Claim::Gone(table, key) => Claim::Parent(*table, key.clone()),
        }
    }
}

/// What rows of a table claim.
#[derive(Debug, Default)]
struct Demands {
    /// The numbers of unique constraints, and their columns.
    unique: Vec<(u32, Vec<usize>)>,
    /// Tables that rows refer to by their keys, and for each column of that key the row's own one.
    parents: Vec<(TableId, Vec<usize>)>,
    /// Rows of other tables refer to its rows.
    is_parent: bool,
}

/// The claims of the commits that are kept.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Tables whose rows claim anything.
    demands: BTreeMap<TableId, Demands>,
    newest: BTreeMap<Claim, Position>,
    kept: VecDeque<(Position, Vec<Claim>)>,
}

impl Claims {
    /// Tables are like this now.
    pub fn follow(&mut self, tables: &BTreeMap<TableId, KnownTable>) {
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
                        let by = parent.record.schema.target(&reference.parent_columns);
                        // By anything else than their keys rows of such databases do not refer.
                        let Some(Target::Key(places)) = by else { continue };
                        let columns = places.iter().map(|at| reference.columns[*at]).collect();
                        let own = self.demands.entry(known.record.id).or_default();
                        own.parents.push((reference.parent, columns));
                        self.demands.entry(reference.parent).or_default().is_parent = true;
                    }
                    Demand::Check(_) | Demand::Index(_) => {}
                }
            }
        }
    }

    /// What these rows claim. The error is a sentence: a row is none that can be looked up.
    fn of(&self, tables: &BTreeMap<TableId, KnownTable>, part: &TablePart) -> Result<Vec<Claim>, String> {
        let mut all = Vec::new();
        let (Some(demands), Some(known)) = (self.demands.get(&part.table), tables.get(&part.table)) else {
            return Ok(all);
        };
        let schema = &known.record.schema;
        for op in &part.ops {
            match op {
                RowOp::Delete { key } if demands.is_parent => all.push(Claim::Gone(part.table, key.clone())),
                RowOp::Put { key, row } => {
                    let read = decode_row(schema, key, row);
                    let row = read.map_err(|error| format!("a row of table {}: {error}", part.table))?;
                    demands.of_row(tables, (key, &row), &mut all)?;
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

    fn note(&mut self, at: Position, claims: Vec<Claim>) {
        for claim in &claims {
            self.newest.insert(claim.clone(), at);
        }
        if !claims.is_empty() {
            self.kept.push_back((at, claims));
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
        tables: &BTreeMap<TableId, KnownTable>,
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
        Ok(())
    }
}

/// What a row has in these columns; none: one is null, and it claims nothing.
fn values(row: &Row, columns: &[usize]) -> Option<Vec<Value>> {
    let values: Vec<Value> = columns.iter().map(|at| row.values[*at].clone()).collect();
    (!values.iter().any(Value::is_null)).then_some(values)
}

impl Books {
    /// What a transaction claims. The error is a sentence: it claims what it cannot, or the same twice.
    pub(super) fn claimed<'a>(
        &self,
        parts: impl Iterator<Item = &'a TablePart>,
    ) -> Result<BTreeSet<Claim>, String> {
        let mut all = BTreeSet::new();
        for part in parts {
            for claim in self.claims.of(&self.tables, part)? {
                let twice = matches!(claim, Claim::Value(..)) && all.contains(&claim);
                let against = !matches!(claim, Claim::Value(..)) && all.contains(&claim.opposite());
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

    /// Notes what a commit claims.
    pub(super) fn claim<'a>(&mut self, at: Position, parts: impl Iterator<Item = &'a TablePart>) {
        // What was committed was looked at then; it may have been written under older tables.
        let own = |part| self.claims.of(&self.tables, part).unwrap_or_default();
        let claims: Vec<Claim> = parts.flat_map(own).collect();
        self.claims.note(at, claims);
    }

    /// True if a commit later than this snapshot stands against one of these.
    pub(super) fn stands_against(
        &self,
        rules: Rules,
        (claims, checked): (&BTreeSet<Claim>, Position),
    ) -> bool {
        let later =
            |claim: &&Claim| self.claims.newest.get(&claim.opposite()).is_some_and(|at| *at > checked);
        let counts = |claim: &Claim| match claim {
            Claim::Value(..) => rules.unique_values_are_claimed(),
            Claim::Parent(..) | Claim::Gone(..) => rules.references_are_claimed(),
        };
        claims.iter().filter(later).any(counts)
    }
}
