//! Writes of replicated tables: those of which every partition of a database has all rows.
//!
//! A statement that writes such a table computes its edits like any other. The table gets another id then,
//! with the rows that these edits make of its own ([`crate::refill::whole`]). If somebody else was faster it
//! is planned and computed again (PR-407).

use crate::constraints::check;
use crate::constraints::violation::{self, Refused};
use crate::ddl::on_a_client;
use crate::edits::{Edits, Effects};
use crate::evaluate::Evaluator;
use crate::fault;
use crate::large;
use crate::read::Values;
use crate::refill::{Convert, FoundRow, Refusal, whole};
use crate::several;
use crate::statements::{Statement, canceled};
use crate::txn::{After, Edit, Limit, View};
use crate::write;
use bytes::Bytes;
use client::{Client, Table};
use pg::{Failure, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::runtime;
use types::TableRecord;
use types::data::Row;
use wire::RowOp;

/// What COPY may bring at once.
pub const LIMIT: Limit = Limit { rows: 1_000_000, bytes: whole::MAX_REPLICATED_BYTES };

/// Does a statement that writes such a table. `open`: it is one of a transaction, and refused. Stale: the
/// table has changed meanwhile, and nothing was done.
pub async fn write(
    evaluator: &Evaluator,
    statement: Statement<'_>,
    values: &Values,
    open: bool,
) -> Result<Outcome, Failure> {
    if open {
        return Err(fault::replicated_within(statement.replicated().map_or("", |table| table.name.as_str())));
    }
    let view = View::lasting();
    let effects = tokio::select! {
        effects = statement.edits(evaluator, values, &view) => effects?,
        () = evaluator.cancel.wait() => return Err(canceled()),
    };
    let Effects { edits, count, told } = effects;
    if let Some((table, edits)) = of_one_table(edits)? {
        replace(evaluator, &table, edits).await?;
    }
    Ok(statement.outcome(count, told))
}

/// Takes in the rows of a COPY, as a whole. Stale: the table has changed since it began, and nothing was
/// done.
pub async fn copied(
    evaluator: &Evaluator,
    table: &Table,
    rows: Vec<RowOp>,
    values: &Values,
) -> Result<(), Failure> {
    let (mut edits, mut seen, mut read) = (Vec::with_capacity(rows.len()), BTreeSet::new(), Vec::new());
    for op in rows {
        let RowOp::Insert { key, row } = op else { continue };
        if !seen.insert(key.clone()) {
            return Err(write::duplicate(table, Some(&key)));
        }
        if check::has_any(table.schema()) {
            read.push(table.decode(&key, &row).map_err(fault::of_client)?);
        }
        edits.push(Edit::new(key, false, After::Row(row)));
    }
    check::rows(evaluator, table, &read, values).await?;
    match edits.is_empty() {
        true => Ok(()),
        false => replace(evaluator, table, edits).await,
    }
}

/// What a statement does to the one table that it writes; `None`: nothing. The error: it writes others, too.
fn of_one_table(all: Vec<Edits>) -> Result<Option<(Table, Vec<Edit>)>, Failure> {
    let mut found: Option<(Table, Vec<Edit>)> = None;
    for Edits { table, edits, .. } in all.into_iter().filter(|part| !part.edits.is_empty()) {
        match &mut found {
            Some((known, more)) if known.id() == table.id() => more.extend(edits),
            None if table.schema().is_replicated() => found = Some((table, edits)),
            _ => {
                let what = "writing a replicated table and another one in one statement";
                return Err(Failure::unsupported(what, "write each by a statement of its own"));
            }
        }
    }
    Ok(found)
}

/// Gives a table the rows that edits make of its own.
async fn replace(evaluator: &Evaluator, table: &Table, edits: Vec<Edit>) -> Result<(), Failure> {
    let handle = &evaluator.handle;
    let catalog = handle.current().await?;
    let planned = |known: &&Arc<TableRecord>| {
        (known.id, known.schema.version()) == (table.id(), table.schema().version())
    };
    let known = catalog.all().find(planned).cloned().ok_or_else(fault::stale)?;
    let target = large::like(&catalog, &known, &BTreeMap::new())?;
    let mut edited = Edited {
        evaluator: evaluator.clone(),
        runtime: runtime::Handle::current(),
        ops: edits.iter().cloned().filter_map(Edit::operation).collect(),
        pending: Pending::new(table, edits),
    };
    let (database, table) = (handle.database_record()?, table.clone());
    let work =
        move |client: &mut Client| Ok(whole::refill(client, &database, (&table, &target), &mut edited));
    let done = on_a_client(handle, work).await?;
    handle.outdate();
    done?;
    several::finished(handle).await?;
    handle.look_again().await;
    Ok(())
}

/// Edits of a table of which some rows have not been found yet.
struct Pending {
    table: Table,
    edits: BTreeMap<Bytes, Edit>,
}

impl Pending {
    fn new(table: &Table, edits: Vec<Edit>) -> Pending {
        let edits = edits.into_iter().map(|edit| (edit.key.clone(), edit)).collect();
        Pending { table: table.clone(), edits }
    }

    /// What becomes of these rows.
    fn of(&mut self, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::with_capacity(found.len());
        for FoundRow { key, row, .. } in found {
            match self.edits.remove(&key) {
                None | Some(Edit { after: After::Same, .. }) => rows.push(row),
                Some(Edit { after: After::Gone, .. }) => {}
                Some(Edit { existed: false, .. }) => return Err(write::duplicate(&self.table, Some(&key))),
                Some(Edit { after: After::Row(stored), .. }) => rows.push(self.decode(&key, &stored)?),
            }
        }
        Ok(rows)
    }

    /// Those that were not there, once.
    fn new_rows(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        let mut rows = Vec::new();
        for (key, edit) in std::mem::take(&mut self.edits) {
            match edit.after {
                // It has seen a row that there is not.
                _ if edit.existed => return Err(fault::stale()),
                After::Row(stored) => rows.push(self.decode(&key, &stored)?),
                After::Gone | After::Same => {}
            }
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn decode(&self, key: &[u8], stored: &[u8]) -> Result<Row, Failure> {
        self.table.decode(key, stored).map_err(fault::of_client)
    }
}

/// A table with the edits of a statement.
struct Edited {
    evaluator: Evaluator,
    runtime: runtime::Handle,
    /// What the statement does, for what is said if it is refused.
    ops: Vec<RowOp>,
    pending: Pending,
}

impl Convert for Edited {
    fn rows(&mut self, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure> {
        match self.evaluator.cancel.asked() {
            true => Err(canceled()),
            false => self.pending.of(found),
        }
    }

    fn rest(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        self.pending.new_rows()
    }

    fn refused(&self, why: Refusal<'_>) -> Failure {
        match why {
            Refusal::Key(table, key) => write::duplicate(table, key.map(|key| &key[..])),
            Refusal::Constraint(table, number, _) => {
                let refused = Refused::new([(table, &self.ops[..])]);
                self.runtime.block_on(violation::told(&self.evaluator.handle, number, &refused))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Lsn;
    use types::data::{Column, ColumnType, Value};

    fn table() -> Table {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
        Table::new(Arc::new(crate::catalog::example(columns)))
    }

    fn row(id: i64, v: i64) -> Row {
        Row::new(vec![Value::Int(id), Value::Int(v)])
    }

    fn edit(id: i64, v: Option<i64>, existed: bool) -> Edit {
        let (key, stored) = table().encode(&row(id, v.unwrap_or(0))).expect("a row");
        let after = if v.is_some() { After::Row(stored) } else { After::Gone };
        Edit::new(key, existed, after)
    }

    /// What edits make of two rows.
    fn edited(edits: Vec<Edit>) -> Result<Vec<Row>, &'static str> {
        let found = [(1, 10), (2, 20)].map(|(id, v)| {
            let row = row(id, v);
            FoundRow { key: table().encode(&row).expect("a row").0, version: Lsn(1), row }
        });
        let mut pending = Pending::new(&table(), edits);
        let done = pending.of(found.into()).and_then(|mut rows| {
            rows.extend(pending.new_rows()?.unwrap_or_default());
            Ok(rows)
        });
        done.map_err(|failure| failure.code)
    }

    #[test]
    fn edits_make_other_rows_of_those_that_are_there() {
        let added = || edit(3, Some(30), false);
        assert_eq!(edited(vec![edit(2, None, true), added()]), Ok(vec![row(1, 10), row(3, 30)]));
        assert_eq!(edited(vec![edit(2, Some(21), true)]), Ok(vec![row(1, 10), row(2, 21)]));
        assert_eq!(edited(vec![edit(1, Some(11), false)]), Err("23505"));
        assert_eq!(edited(vec![edit(4, Some(11), true)]), Err(fault::SERIALIZATION), "of another table");
    }
}
