//! Rows that refer to others by values that are unique, and no keys, where transactions are global (PR-369).
//!
//! The transaction manager sees no values of a row that is removed. So it is told the key of each row that is
//! referred to, as it was found at the snapshot that was looked at; and who changes or removes a row has
//! looked at what that row had there, and that nobody refers to it.

use super::{Looking, Part};
use crate::constraints::unique::Found;
use crate::constraints::{children, violation};
use crate::driver::Handle;
use crate::fault;
use crate::follow::row_with;
use crate::read;
use crate::txn::View;
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use std::collections::BTreeMap;
use types::PartitionId;
use types::data::constraint::{Constraint, Reference, Target};
use types::data::{Row, Schema, Value};
use types::index::entry_prefix;
use wire::commit::{ParentRow, parents_fault};

/// No row has this key: it begins with no type.
const NO_KEY: &[u8] = &[0xff];

/// True if rows refer to the keys of a table with these columns.
pub fn is_by_key(parent: &Schema, reference: &Reference) -> bool {
    matches!(parent.target(&reference.parent_columns), Some(Target::Key(_)))
}

/// What was found, each foreign key with each value once. The error: a commit may not have as much.
pub fn each_once(parents: Vec<ParentRow>) -> Result<Vec<ParentRow>, Failure> {
    let mut all = BTreeMap::new();
    for one in parents {
        all.insert((one.constraint, one.value.clone()), one);
    }
    let all: Vec<ParentRow> = all.into_values().collect();
    match parents_fault(&all) {
        Some(why) => Err(Failure::new(code::LIMIT, why).hint("commit more often")),
        None => Ok(all),
    }
}

/// The constraint by which rows have values in these columns that no other one has, wherever its index is
/// built.
fn unique_in<'a>(parent: &'a Table, columns: &[usize]) -> Option<&'a Constraint> {
    let is_of = |own: &[usize]| own.len() == columns.len() && own.iter().all(|at| columns.contains(at));
    let mut all = parent.schema().constraints().iter().filter(|one| one.is_enforced());
    all.find(|one| one.unique().is_some_and(is_of))
}

/// The rows of a part that do not refer by this foreign key to what they referred to before, as this view has
/// them, and the others. Of a foreign key that not every row keeps these may refer to nothing: only who
/// changes what a row refers to must find it, as PostgreSQL has it.
pub(super) async fn by_change<'p>(
    handle: &Handle,
    part: &Part<'p>,
    reference: &Reference,
    without: &View,
) -> Result<(Part<'p>, Part<'p>), Failure> {
    let keys: Vec<Bytes> = part.rows.iter().map(|(key, _)| key.clone()).collect();
    let before = read::get_all(handle, part.table, part.partition, &keys, without).await?;
    let (mut others, mut same) = (Vec::new(), Vec::new());
    for ((key, row), before) in part.rows.iter().zip(before) {
        let before = before.map(|stored| part.table.decode(key, &stored)).transpose();
        let before = before.map_err(fault::of_client)?;
        let stays = |at: &usize| before.as_ref().is_some_and(|before| before.values[*at] == row.values[*at]);
        let rows = if reference.columns.iter().all(stays) { &mut same } else { &mut others };
        rows.push((key.clone(), row.clone()));
    }
    let of = |rows| Part { table: part.table, partition: part.partition, rows, gone: Vec::new() };
    Ok((of(others), of(same)))
}

impl Looking<'_> {
    /// The constraint by which rows are found that are referred to by values. None: its index is not there
    /// yet, and COMMIT will look. Who looks last is told so by the index.
    fn unique<'t>(
        &self,
        parent: &'t Table,
        reference: &Reference,
    ) -> Result<Option<&'t Constraint>, Failure> {
        if let Some(Target::Unique(number, _)) = parent.schema().target(&reference.parent_columns) {
            return violation::of_table(parent.record(), number).map(Some);
        }
        match unique_in(parent, &reference.parent_columns) {
            Some(by) if self.is_last() => Ok(Some(by)),
            // Tables are otherwise by now: a foreign key refers to what is unique.
            None if self.is_last() => Err(fault::stale()),
            _ => Ok(None),
        }
    }

    /// The rows that have these values where a foreign key refers to them; none: there is none. Nothing at
    /// all where nobody can look yet.
    pub(super) async fn found(
        &self,
        (parent, partition): (&Table, PartitionId),
        (constraint, reference): (&Constraint, &Reference),
        all: &[&[Value]],
    ) -> Result<Vec<Option<ParentRow>>, Failure> {
        let Some(by) = self.unique(parent, reference)? else { return Ok(Vec::new()) };
        let finder = self.finder((parent, partition), by).await?;
        let of = |values: &&[Value]| row_with(parent, &reference.parent_columns, values.iter().cloned());
        let rows: Vec<Row> = all.iter().map(of).collect();
        let there = finder.find_all(rows.iter().map(|row| (row, None))).await?;
        let mut found = Vec::with_capacity(there.len());
        for (values, there) in all.iter().zip(there) {
            let Some((key, _)) = there else {
                found.push(None);
                continue;
            };
            let value = entry_prefix(values);
            let value = value.map_err(|error| Failure::new(code::INTERNAL, error.to_string()))?.into();
            found.push(Some(ParentRow { constraint: constraint.number, value, table: parent.id(), key }));
        }
        Ok(found)
    }

    /// What rows refer to by values that the transaction has locked. They are written as they are, so the
    /// manager wants to know it of them, too.
    pub(super) async fn parents_of_kept(
        &self,
        (table, partition): (&Table, PartitionId),
        keys: &[Bytes],
    ) -> Result<Vec<ParentRow>, Failure> {
        let by_value = |(_, reference): &(&Constraint, &Reference)| {
            self.parent(reference).is_some_and(|parent| !is_by_key(parent.schema(), reference))
        };
        let all = table.schema().constraints().iter().filter(|one| self.looks_at(one));
        let all = all.filter_map(|one| Some((one, one.reference()?)));
        let foreign: Vec<(&Constraint, &Reference)> = all.filter(by_value).collect();
        let mut parents = Vec::new();
        if keys.is_empty() || foreign.is_empty() {
            return Ok(parents);
        }
        let mut part = Part { table, partition, rows: Vec::new(), gone: Vec::new() };
        // One that is gone is another one than was seen: the commit says so.
        let stored = self.stored(&part, keys).await?;
        part.rows.extend(stored.into_iter().flatten());
        for one in foreign {
            parents.extend(match one.0.is_kept() {
                true => self.has_parents(&part, one).await?,
                false => self.parents_or_none(&part, one).await?,
            });
        }
        Ok(parents)
    }

    /// What rows refer to by values, by a foreign key that not every row keeps. Where one refers to nothing
    /// since before there was that key, a row is named that there cannot be: the manager wants one, and
    /// nobody can remove that one.
    pub(super) async fn parents_or_none(
        &self,
        part: &Part<'_>,
        (constraint, reference): (&Constraint, &Reference),
    ) -> Result<Vec<ParentRow>, Failure> {
        let Some(parent) = self.parent(reference) else { return Ok(Vec::new()) };
        if !self.is_last() || is_by_key(parent.schema(), reference) {
            return Ok(Vec::new());
        }
        let mut all = BTreeMap::new();
        for (_, row) in &part.rows {
            let values: Vec<Value> = reference.columns.iter().map(|at| row.values[*at].clone()).collect();
            if !values.iter().any(Value::is_null) {
                let value = entry_prefix(&values);
                let value = value.map_err(|error| Failure::new(code::INTERNAL, error.to_string()))?;
                all.insert(value, values);
            }
        }
        let values: Vec<&[Value]> = all.values().map(Vec::as_slice).collect();
        let there = self.found((&parent, part.partition), (constraint, reference), &values).await?;
        let none = |value: Vec<u8>| {
            let (value, key) = (value.into(), Bytes::from_static(NO_KEY));
            ParentRow { constraint: constraint.number, value, table: parent.id(), key }
        };
        let each = all.into_keys().zip(there);
        Ok(each.map(|(value, found)| found.unwrap_or_else(|| none(value))).collect())
    }

    /// Rows of a table by their keys, as they are without the transaction; none: there is none.
    async fn stored(&self, part: &Part<'_>, keys: &[Bytes]) -> Result<Vec<Option<(Bytes, Row)>>, Failure> {
        let Some(before) = self.before else { return Ok(Vec::new()) };
        let stored = read::get_all(self.handle, part.table, part.partition, keys, before).await?;
        let decode = |(key, stored): (&Bytes, Option<Bytes>)| {
            let row = stored.map(|stored| part.table.decode(key, &stored)).transpose();
            row.map(|row| row.map(|row| (key.clone(), row))).map_err(fault::of_client)
        };
        keys.iter().zip(stored).map(decode).collect()
    }

    /// No row refers to values that one had which goes, or gets others, unless another one has them now.
    pub(super) async fn values_are_left(&self, part: &Part<'_>) -> Result<(), Failure> {
        let parent = part.table;
        let mut children = children(self.catalog, parent.id());
        children.retain(|(_, constraint, reference)| {
            !is_by_key(parent.schema(), reference) && self.looks_at(constraint)
        });
        if children.is_empty() {
            return Ok(());
        }
        let rows = part.rows.iter().map(|(key, row)| (key.clone(), Some(row)));
        let all = rows.chain(part.gone.iter().map(|key| (key.clone(), None)));
        let (keys, new): (Vec<Bytes>, Vec<Option<&Row>>) = all.unzip();
        let old = self.stored(part, &keys).await?;
        let changes: Vec<(Row, Option<&Row>)> =
            old.into_iter().zip(new).filter_map(|(old, new)| Some((old?.1, new))).collect();
        for (child, constraint, reference) in children {
            let child = Table::new(child);
            let of = |row: &Row| {
                reference.parent_columns.iter().map(|at| row.values[*at].clone()).collect::<Vec<Value>>()
            };
            let lost = changes.iter().filter(|(old, new)| {
                !of(old).iter().any(Value::is_null) && new.is_none_or(|new| of(new) != of(old))
            });
            let lost: Vec<&Row> = lost.map(|(old, _)| old).collect();
            if lost.is_empty() {
                continue;
            }
            let finder = self.finder((&child, part.partition), &constraint).await?;
            let referring: Vec<Row> =
                lost.iter().map(|old| row_with(&child, &reference.columns, of(old).into_iter())).collect();
            let found = finder.find_all(referring.iter().map(|row| (row, None))).await?;
            let referred: Vec<(&Row, Found)> =
                lost.into_iter().zip(found).filter_map(|(old, found)| Some((old, found?))).collect();
            let values: Vec<Vec<Value>> = referred.iter().map(|(old, _)| of(old)).collect();
            let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
            let there = self.found((parent, part.partition), (&constraint, &reference), &values).await?;
            if let Some(at) = there.iter().position(Option::is_none) {
                let (old, row) = &referred[at];
                let shown = violation::key(parent.record(), &reference.parent_columns, old);
                let failure =
                    violation::still_referred(child.record(), &constraint, parent.record(), Some(shown));
                return Err(self.unless_it_came((&child, &reference), row, failure).await);
            }
        }
        Ok(())
    }
}
