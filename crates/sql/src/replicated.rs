//! Writes of replicated tables: those of which every partition of a database has all rows.
//!
//! Rows of such a table never change under its id (PR-406). A statement that writes it computes what rows
//! there are then. They are written under another id, which has no name yet, in the first partition, and one
//! entry of it gives that the name and drops the table as it was. Whoever brings the other partitions level
//! copies the rows there, and then switches the name (`client::Client::level`, PR-405). `DESIGN.md` says what
//! each interruption leaves.
//!
//! Nothing is held meanwhile: the last entry names the version of the table that was read. If somebody else
//! was faster it is refused, and the statement is planned and computed again (PR-407).

use crate::catalog::as_of;
use crate::constraints::violation::{self, Refused};
use crate::constraints::{check, children, names};
use crate::ddl::on_a_client;
use crate::edits::{Edits, Effects};
use crate::evaluate::Evaluator;
use crate::fault;
use crate::large;
use crate::read::Values;
use crate::several;
use crate::statements::{Statement, canceled};
use crate::txn::{After, Edit, Limit, View};
use crate::write;
use bytes::Bytes;
use client::{Client, ClientError, Database, Table, created, wall_ms};
use pg::{Failure, Outcome, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::constraint::Demand;
use types::data::{Row, Schema, Value};
use types::index::entry_prefix;
use types::{CatalogTable, Position, TableId, TableRecord};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RecordText, RowOp, TableChange};

/// The most bytes of keys and rows of such a table: all of them are written, in every partition, whenever one
/// of them changes.
const LONGEST: usize = 16 << 20;
/// Rows that are read or written at once.
const ROWS: u32 = 2_000;
/// Bytes of keys and rows behind which no more are written at once.
const BYTES: usize = 4 << 20;

/// What COPY may bring at once.
pub const LIMIT: Limit = Limit { rows: 1_000_000, bytes: LONGEST };

/// The rows of a table, by their encoded keys.
type TableRows = BTreeMap<Bytes, Row>;

/// The error of who writes or locks rows of such a table in a transaction.
pub fn within(table: &str) -> Failure {
    let what = format!("writing or locking rows of the replicated table \"{table}\" in a transaction");
    let hint = "send the statement by itself, outside of BEGIN: it fills the table again in every partition";
    Failure::unsupported(what, hint)
}

/// The error of a table with too many rows.
pub fn too_large(table: &str) -> Failure {
    let message = format!("the replicated table \"{table}\" has at most {LONGEST} bytes of keys and rows");
    let hint =
        "all of them are written again with each change: have its key begin with the partition key instead";
    Failure::new(code::LIMIT, message).hint(hint)
}

/// Does a statement that writes such a table. `open`: it is one of a transaction, and refused. Stale: the
/// table has changed meanwhile, and nothing was done.
pub async fn write(
    evaluator: &Evaluator,
    statement: Statement<'_>,
    values: &Values,
    open: bool,
) -> Result<Outcome, Failure> {
    if open {
        return Err(within(statement.replicated().map_or("", |table| table.name.as_str())));
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
        edits.push(Edit { key, existed: false, after: After::Row(row), since: None });
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

/// Gives a table other rows.
async fn replace(evaluator: &Evaluator, table: &Table, edits: Vec<Edit>) -> Result<(), Failure> {
    let handle = &evaluator.handle;
    let catalog = handle.current().await?;
    let planned = |known: &&Arc<TableRecord>| {
        (known.id, known.schema.version()) == (table.id(), table.schema().version())
    };
    let known = catalog.all().find(planned).cloned().ok_or_else(fault::stale)?;
    let target = large::like(&catalog, &known, &BTreeMap::new())?;
    let referring = children(&catalog, known.id).into_iter().map(|(child, foreign, reference)| Referring {
        foreign: foreign.name,
        child: child.name.clone(),
        names: names(&known, &reference.parent_columns),
        columns: reference.parent_columns,
    });
    let ops: Vec<RowOp> = edits.iter().cloned().filter_map(Edit::operation).collect();
    let replacement = Replacement {
        table: table.clone(),
        schema: target.schema,
        children: target.children,
        referring: referring.collect(),
        edits,
    };
    let database = handle.database_record()?;
    let done = on_a_client(handle, move |client| Ok(replacement.carry_out(client, &database))).await?;
    handle.outdate();
    match done {
        Ok(()) => {}
        Err(Broken::Failed(failure)) => return Err(failure),
        Err(Broken::Violates(number)) => {
            let refused = Refused::new([(table, &ops[..])]);
            return Err(violation::told(handle, number, &refused).await);
        }
    }
    several::finished(handle).await?;
    handle.look_again().await;
    Ok(())
}

/// A foreign key of another table that refers to rows of this one.
struct Referring {
    child: String,
    foreign: String,
    /// The columns that it refers to.
    columns: Vec<usize>,
    names: Vec<String>,
}

/// Why a table does not get other rows. Nothing was done, unless a failure says that this is not known.
enum Broken {
    Failed(Failure),
    /// The constraint with this number forbids it.
    Violates(u32),
}

impl Broken {
    fn of(error: ClientError) -> Broken {
        Broken::Failed(fault::of_client(error))
    }

    /// The same of what comes before the last entry: whatever became of it, the table is as it was.
    fn before(error: ClientError) -> Broken {
        match error {
            ClientError::Violates(number) => Broken::Violates(number),
            error => {
                let failure = fault::of_client(error);
                Broken::Failed(if fault::is_unknown(&failure) { fault::stale() } else { failure })
            }
        }
    }
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Broken {
        Broken::Failed(failure)
    }
}

/// A table that gets other rows.
struct Replacement {
    /// As it was read.
    table: Table,
    /// Its columns and constraints under another id.
    schema: Schema,
    /// Tables whose foreign keys refer to it.
    children: Vec<Arc<TableRecord>>,
    referring: Vec<Referring>,
    edits: Vec<Edit>,
}

impl Replacement {
    /// Done in the first partition. The others get it from whoever brings them level.
    fn carry_out(&self, client: &mut Client, database: &Database) -> Result<(), Broken> {
        // What an earlier write has left to do comes first.
        client.level(database).map_err(Broken::before)?;
        let before = self.rows(client, database)?;
        let after = self.edited(&before)?;
        let count = 3 + self.children.len() as u32;
        let numbers = client.numbers(count).map_err(Broken::before)?;
        let named = self.named(numbers)?;
        let internal = |why: String| Failure::new(code::INTERNAL, why);
        let filling = CatalogTable { created_ms: wall_ms(), ..named.to_fill().map_err(internal)? };
        let to = database.table(filling.clone());
        let rows = encoded(&to, &after)?;
        let made = database.transact(vec![created(&filling)], Vec::new(), None);
        let made = client.call(made).map_err(Broken::before)?.position();
        let done = match fill(client, database, &to, (rows, made)) {
            Ok(last) => self.switch(client, database, (&filling, &named, last)),
            Err(broken) => Err(broken),
        };
        let Err(broken) = done else { return Ok(()) };
        // Nobody else gives it the name: without it the last entry is not made any more.
        let gone = TableChange::Drop { table: filling.id, schema: filling.schema.version() };
        let is_gone = client.call(database.transact(vec![gone], Vec::new(), None)).is_ok();
        Err(match broken {
            Broken::Failed(failure) if is_gone && fault::is_unknown(&failure) => fault::stale().into(),
            broken => broken,
        })
    }

    /// The table as it is.
    fn rows(&self, client: &mut Client, database: &Database) -> Result<TableRows, Broken> {
        let (mut found, mut next) = (TableRows::new(), Some(Bytes::new()));
        while let Some(first) = next {
            let op = Op::Scan { from: first, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
            let answer = client.call(self.table.call(database.partition(), op)).map_err(Broken::before)?;
            let Body::Rows { rows, more } = answer.body else {
                return Err(Failure::new(code::INTERNAL, "a table without rows").into());
            };
            // The smallest key above the last one.
            next = rows.last().filter(|_| more).map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
            for (key, _, stored) in rows {
                let row = self.table.decode(&key, &stored).map_err(Broken::before)?;
                found.insert(key, row);
            }
        }
        Ok(found)
    }

    /// The rows as they are to be.
    fn edited(&self, before: &TableRows) -> Result<TableRows, Broken> {
        let mut after = before.clone();
        for edit in &self.edits {
            match &edit.after {
                After::Same => {}
                After::Gone => drop(after.remove(&edit.key)),
                After::Row(stored) => {
                    let row = self.table.decode(&edit.key, stored).map_err(Broken::before)?;
                    if after.insert(edit.key.clone(), row).is_some() && !edit.existed {
                        return Err(write::duplicate(&self.table, Some(&edit.key)).into());
                    }
                }
            }
        }
        if self.edits.iter().any(|edit| edit.existed) {
            self.referring.iter().try_for_each(|one| one.stays(self.table.name(), before, &after))?;
        }
        Ok(after)
    }

    /// Its definition behind the last entry, by the first of three numbers.
    fn named(&self, numbers: u32) -> Result<CatalogTable, Failure> {
        let mut parts = self.schema.clone().into_parts();
        parts.version = numbers + 2;
        let schema = Schema::from_parts(parts);
        let schema = schema.map_err(|error| Failure::new("42P16", error.to_string()))?;
        let record = self.table.record();
        Ok(CatalogTable::new(TableId(numbers), &record.name, schema, record.created_ms))
    }

    /// The last entry: the name goes from the table as it was to the one that has the rows.
    fn switch(
        &self,
        client: &mut Client,
        database: &Database,
        (filling, named, last): (&CatalogTable, &CatalogTable, Position),
    ) -> Result<(), Broken> {
        let gone = TableChange::Drop { table: self.table.id(), schema: self.table.schema().version() };
        let from = filling.schema.version();
        let mut changes = vec![gone, TableChange::Alter { from, to: RecordText::new(named) }];
        for (child, version) in self.children.iter().zip(named.schema.version() + 1..) {
            let to = self.redirected(child, version, named.id)?;
            changes.push(TableChange::Alter { from: child.schema.version(), to: RecordText::new(&to) });
        }
        match client.call(database.transact(changes, Vec::new(), Some(last))) {
            Err(ClientError::OutcomeUnknown(_)) if is_there(client, database, named.id) => Ok(()),
            done => done.map(drop).map_err(Broken::of),
        }
    }

    /// A table that refers to this one, under another version: it refers to the other id.
    fn redirected(&self, child: &TableRecord, version: u32, id: TableId) -> Result<CatalogTable, Failure> {
        let to = as_of(child, version);
        let mut constraints = to.schema.constraints().to_vec();
        for constraint in &mut constraints {
            if let Demand::Foreign(reference) = &mut constraint.demand
                && reference.parent == self.table.id()
            {
                reference.parent = id;
            }
        }
        to.constrained(constraints).map_err(|why| Failure::new("42P16", why))
    }
}

/// True if a table of this id has a name.
fn is_there(client: &mut Client, database: &Database, id: TableId) -> bool {
    client.tables_of(database).is_ok_and(|tables| tables.iter().any(|table| table.id() == id))
}

/// Rows as they are stored in the table that gets them. The error: they are too many.
fn encoded(to: &Table, rows: &TableRows) -> Result<Vec<RowOp>, Failure> {
    let (mut ops, mut bytes) = (Vec::with_capacity(rows.len()), 0);
    for row in rows.values() {
        let (key, row) = write::encoded(to, row)?;
        bytes += key.len() + row.len();
        if bytes > LONGEST {
            return Err(too_large(to.name()));
        }
        ops.push(RowOp::Insert { key, row });
    }
    Ok(ops)
}

/// Writes rows in pieces, each resting on the one before. The last entry.
fn fill(
    client: &mut Client,
    database: &Database,
    to: &Table,
    (rows, mut last): (Vec<RowOp>, Position),
) -> Result<Position, Broken> {
    let (mut piece, mut bytes) = (Vec::new(), 0);
    let mut rows = rows.into_iter().peekable();
    while let Some(op) = rows.next() {
        bytes += op.key().len() + op.row().map_or(0, Bytes::len);
        piece.push(op);
        if piece.len() >= ROWS as usize || bytes >= BYTES || rows.peek().is_none() {
            let call = to.write_since(database.partition(), std::mem::take(&mut piece), last);
            last = client.call(call).map_err(Broken::before)?.position();
            bytes = 0;
        }
    }
    Ok(last)
}

impl Referring {
    /// What rows of other tables may refer to must stay: a partition takes rows that refer to it until it has
    /// switched (PR-408).
    fn stays(&self, table: &str, before: &TableRows, after: &TableRows) -> Result<(), Failure> {
        let of = |row: &Row| {
            let values: Vec<Value> = self.columns.iter().map(|at| row.values[*at].clone()).collect();
            // Null is referred to by nothing, nor is what is too long to be found.
            if values.iter().any(Value::is_null) { None } else { entry_prefix(&values).ok() }
        };
        let left: BTreeSet<Vec<u8>> = after.values().filter_map(of).collect();
        if before.values().filter_map(of).all(|value| left.contains(&value)) {
            return Ok(());
        }
        let Referring { child, foreign, names, .. } = self;
        let names = names.join(", ");
        let what = format!(
            "removing or changing ({names}) of the replicated table \"{table}\", \
             to which \"{foreign}\" of \"{child}\" refers,"
        );
        let hint = "drop that foreign key before, and add it again behind";
        Err(Failure::unsupported(what, hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::data::{Column, ColumnType};

    fn table() -> Table {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
        Table::new(Arc::new(crate::catalog::example(columns)))
    }

    fn row(id: i64, v: i64) -> Row {
        Row::new(vec![Value::Int(id), Value::Int(v)])
    }

    fn rows(all: &[(i64, i64)]) -> TableRows {
        let encoded = |(id, v): &(i64, i64)| (table().encode(&row(*id, *v)).expect("a row").0, row(*id, *v));
        all.iter().map(encoded).collect()
    }

    fn edit(id: i64, v: Option<i64>, existed: bool) -> Edit {
        let (key, stored) = table().encode(&row(id, v.unwrap_or(0))).expect("a row");
        let after = if v.is_some() { After::Row(stored) } else { After::Gone };
        Edit { key, existed, after, since: None }
    }

    fn replacement(edits: Vec<Edit>, columns: Option<usize>) -> Replacement {
        let referring = columns.map(|at| Referring {
            child: "stock".into(),
            foreign: "stock_item_fkey".into(),
            columns: vec![at],
            names: vec!["id".into()],
        });
        let (table, children) = (table(), Vec::new());
        let schema = table.schema().clone();
        Replacement { table, schema, children, referring: referring.into_iter().collect(), edits }
    }

    fn edited(edits: Vec<Edit>, columns: Option<usize>) -> Result<TableRows, &'static str> {
        match replacement(edits, columns).edited(&rows(&[(1, 10), (2, 20)])) {
            Ok(rows) => Ok(rows),
            Err(Broken::Failed(failure)) => Err(failure.code),
            Err(Broken::Violates(_)) => Err("23000"),
        }
    }

    #[test]
    fn pr408_what_rows_may_refer_to_stays() {
        let added = || edit(3, Some(30), false);
        assert_eq!(edited(vec![added()], Some(0)), Ok(rows(&[(1, 10), (2, 20), (3, 30)])));
        assert_eq!(edited(vec![edit(2, Some(21), true)], Some(0)), Ok(rows(&[(1, 10), (2, 21)])));
        assert_eq!(edited(vec![edit(2, None, true)], Some(0)), Err(code::UNSUPPORTED));
        assert_eq!(edited(vec![edit(2, Some(21), true)], Some(1)), Err(code::UNSUPPORTED), "a unique value");
        assert_eq!(edited(vec![edit(2, None, true), added()], None), Ok(rows(&[(1, 10), (3, 30)])));
        assert_eq!(edited(vec![edit(1, Some(11), false)], None), Err("23505"));
    }

    #[test]
    fn such_a_table_is_small() {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Text)];
        let table = Table::new(Arc::new(crate::catalog::example(columns)));
        let text = "x".repeat(1 << 20);
        let many: TableRows = (0..16)
            .map(|id| {
                let row = Row::new(vec![Value::Int(id), text.as_str().into()]);
                (table.encode(&row).expect("a row").0, row)
            })
            .collect();
        let count = |rows: &TableRows| match encoded(&table, rows) {
            Ok(ops) => Ok(ops.len()),
            Err(failure) => Err(failure.code),
        };
        assert_eq!(count(&many), Err(code::LIMIT));
        assert_eq!(count(&many.into_iter().take(15).collect()), Ok(15));
    }
}
