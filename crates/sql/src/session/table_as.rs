//! `CREATE TABLE ... AS` and `SELECT ... INTO`: the table is made in a transaction, and the rows that the
//! query gives are written into it. COMMIT makes both, in one entry. Rows that are more than one write has
//! are stored as they come, under an id that has no name before COMMIT (PR-123).

use super::SqlSession;
use crate::bind::{Arbiters, Bound, Conflict, Insertion, Rows as Source};
use crate::database;
use crate::ddl;
use crate::edits::{self, Edits};
use crate::evaluate::{BEGINNINGS, size};
use crate::fault;
use crate::plan::StatementPlan;
use crate::read::{self, Values};
use crate::statements::{Statement, canceled};
use crate::table_as::{self, CreateAs};
use crate::txn::{After, Edit, Limit, Modes};
use crate::write;
use client::Table;
use pg::{Failure, Outcome, Reason, Row, Rows};
use std::sync::Arc;
use types::{CatalogTable, TableId, TableRecord};

/// Rows that are made, and written, at once.
const PIECE_ROWS: usize = 2_000;
/// Bytes of rows behind which no more are.
const PIECE_BYTES: usize = 4 << 20;

impl SqlSession {
    /// Makes a table with the rows of a query.
    pub(super) async fn create_as(
        &mut self,
        plan: &Arc<StatementPlan>,
        create: &CreateAs,
        values: Values,
    ) -> Result<Outcome, Failure> {
        let handle = self.evaluator.handle.clone();
        database::share(&handle).await?;
        if create.is_filled {
            self.note(ddl::NO_FILL.into());
        }
        if handle.spread().is_some() {
            return self.create_as_at_once(plan, create, values).await;
        }
        if self.open.is_some() {
            return self.create_as_within(plan, create, &values).await;
        }
        let mut beginnings = 1;
        loop {
            // A failover has lost what it was reading, or rows that were stored: nothing was made.
            let lost = |failure: &Failure| failure.code == fault::SERIALIZATION && !fault::is_stale(failure);
            match self.create_as_alone(plan, create, &values).await {
                Err(failure) if lost(&failure) && beginnings < BEGINNINGS => beginnings += 1,
                // Somebody else was faster.
                Err(failure) if failure.reason == Reason::NameTaken => return self.is_there_already(create),
                done => return done,
            }
        }
    }

    /// The same as a transaction of its own.
    async fn create_as_alone(
        &mut self,
        plan: &Arc<StatementPlan>,
        create: &CreateAs,
        values: &Values,
    ) -> Result<Outcome, Failure> {
        self.open = Some(self.begun(true, Modes::default()));
        let made = self.create_as_within(plan, create, values).await;
        let done = match (made, self.open.take()) {
            (Ok(outcome), Some(open)) => self.commit(open).await.map(|_| outcome),
            (Err(failure), Some(open)) => {
                self.settings.end(Some(open.before));
                Err(failure)
            }
            (made, None) => made,
        };
        self.see_own_tables();
        done
    }

    /// The same as a part of the transaction that is open.
    async fn create_as_within(
        &mut self,
        plan: &Arc<StatementPlan>,
        create: &CreateAs,
        values: &Values,
    ) -> Result<Outcome, Failure> {
        self.see_own_tables();
        let handle = self.evaluator.handle.clone();
        let catalog = handle.look().await?;
        if catalog.has_relation(&create.name) {
            return self.is_there_already(create);
        }
        database::counted(&handle, &create.schema).await?;
        let id = TableId(database::numbers(&handle, 1).await?);
        let table = CatalogTable::new(id, &create.name, create.schema.clone(), client::wall_ms());
        self.make(&catalog, table)?;
        self.see_own_tables();
        if !create.with_rows {
            return Ok(made_without_rows());
        }
        let catalog = self.evaluator.handle.current().await?;
        let record = catalog.table(&create.name).ok_or_else(|| database::missing(&create.name))?;
        let count = self.fill(record, (plan, create), values).await?;
        Ok(Outcome::Done(format!("SELECT {count}")))
    }

    /// The same where tables are made at once, whatever becomes of the transaction. Without one the table
    /// goes again if its rows cannot be written.
    async fn create_as_at_once(
        &mut self,
        plan: &Arc<StatementPlan>,
        create: &CreateAs,
        values: Values,
    ) -> Result<Outcome, Failure> {
        let table_as::Source::Query(query) = &create.source else {
            let what = "CREATE TABLE AS of a WITH that writes, where a table is made at once";
            return Err(Failure::unsupported(what, "CREATE TABLE, and then WITH ... INSERT ... SELECT"));
        };
        self.defining(&plan.work)?;
        let handle = self.evaluator.handle.clone();
        let asked = (create.name.clone(), create.schema.clone(), Vec::new(), Vec::new());
        if !database::create_table(&handle, asked, create.if_not_exists).await? {
            return self.is_there_already(create);
        }
        self.empty(std::slice::from_ref(&create.name)).await?;
        if !create.with_rows {
            return Ok(made_without_rows());
        }
        let catalog = handle.current().await?;
        let record = catalog.table(&create.name).ok_or_else(|| database::missing(&create.name))?;
        let insertion = insertion(record, query);
        match self.write(Statement::Insert(&insertion), plan, values).await {
            Ok(Outcome::Done(tag)) => Ok(Outcome::Done(tag.replacen("INSERT 0", "SELECT", 1))),
            Err(failure) if self.open.is_none() => {
                // The error that led here is told. A table that is left can be dropped.
                drop(database::drop_tables(&handle, vec![create.name.clone()], (true, false)).await);
                Err(failure)
            }
            done => done,
        }
    }

    fn is_there_already(&mut self, create: &CreateAs) -> Result<Outcome, Failure> {
        if !create.if_not_exists {
            return Err(database::taken(&create.name));
        }
        self.note(format!("relation \"{}\" already exists, skipping", create.name));
        Ok(made_without_rows())
    }

    /// Writes the rows of the query into the table that was made for them. How many they are.
    async fn fill(
        &mut self,
        record: &Arc<TableRecord>,
        (plan, create): (&Arc<StatementPlan>, &CreateAs),
        values: &Values,
    ) -> Result<u64, Failure> {
        self.check_secured(record)?;
        let (table, columns) = (Table::new(record.clone()), given(record));
        let mut rows = self.rows_for(plan, create, values).await?;
        let (mut count, mut waiting) = (0, Vec::new());
        loop {
            let piece = self.piece(&mut rows).await?;
            let last = piece.is_empty();
            count += piece.len() as u64;
            for row in edits::filled(&self.evaluator, (&table, &columns), piece, values).await? {
                let (key, stored) = write::encoded(&table, &row)?;
                waiting.push(Edit::new(key, false, After::Row(stored)));
            }
            self.take_made(record, &mut waiting, last).await?;
            if last {
                return Ok(count);
            }
        }
    }

    /// The rows that a table is made with.
    async fn rows_for(
        &mut self,
        plan: &Arc<StatementPlan>,
        create: &CreateAs,
        values: &Values,
    ) -> Result<Rows, Failure> {
        let query = match &create.source {
            table_as::Source::Query(query) => query,
            table_as::Source::Parts(parts) => {
                return match self.write(Statement::Parts(parts), plan, values.clone()).await? {
                    Outcome::Rows(_, rows) => Ok(rows),
                    _ => unreachable!("a query stands behind the parts"),
                };
            }
        };
        let view = self.view().await?;
        let partitions = read::partitions(&query.sources, values);
        tokio::select! {
            pinned = read::pin(&self.evaluator.handle, partitions, &view) => pinned?,
            () = self.evaluator.cancel.wait() => return Err(canceled()),
        }
        self.evaluator.start(query.clone(), values.clone(), view)
    }

    /// Some of the rows. None: there are no more.
    async fn piece(&self, rows: &mut Rows) -> Result<Vec<Row>, Failure> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        while found.len() < PIECE_ROWS && bytes < PIECE_BYTES {
            let next = tokio::select! {
                next = rows.next() => next,
                () = self.evaluator.cancel.wait() => return Err(canceled()),
            };
            let Some(row) = next.transpose()? else { break };
            bytes += row.iter().map(size).sum::<usize>();
            found.push(row);
        }
        Ok(found)
    }

    /// Takes rows of the new table in: all together with the last one, if COMMIT can write them with what
    /// else the transaction has written, or else piece by piece under its id.
    async fn take_made(
        &mut self,
        record: &Arc<TableRecord>,
        waiting: &mut Vec<Edit>,
        last: bool,
    ) -> Result<(), Failure> {
        let handle = self.evaluator.handle.clone();
        let Some(open) = &mut self.open else { return Ok(()) };
        let loaded = open.definitions().has_loaded(record.id);
        let fits = !loaded && open.buffer().admit(record.id, waiting, (Limit::WRITE, None)).is_ok();
        if waiting.is_empty() || fits && !last {
            return Ok(());
        }
        let table = Table::new(record.clone());
        let all = std::mem::take(waiting);
        if fits {
            return open.take(&mut edits_of(&table, all)?).await;
        }
        open.load(&handle, record).await?;
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for edit in all {
            bytes += edit.bytes();
            piece.push(edit);
            if piece.len() >= PIECE_ROWS || bytes >= PIECE_BYTES {
                let mut edits = edits_of(&table, std::mem::take(&mut piece))?;
                open.write_loaded(&handle, &mut edits).await?;
                bytes = 0;
            }
        }
        open.write_loaded(&handle, &mut edits_of(&table, piece)?).await
    }
}

/// Rows of a table that nobody else writes.
fn edits_of(table: &Table, edits: Vec<Edit>) -> Result<Edits, Failure> {
    let partition = write::place(table, &edits)?;
    let count = edits.len() as u64;
    Ok(Edits { table: table.clone(), partition, edits, count, told: None, replaced: Vec::new() })
}

/// The columns that rows of the query give.
fn given(record: &TableRecord) -> Vec<usize> {
    record.schema.visible().collect()
}

/// The INSERT of what the query gives.
fn insertion(record: &Arc<TableRecord>, query: &Arc<Bound>) -> Insertion {
    Insertion {
        table: record.clone(),
        columns: given(record),
        rows: Source::Query(query.clone()),
        conflict: Conflict::Fail,
        arbiters: Arbiters { key: true, unique: Vec::new() },
        returning: None,
    }
}

/// What the client is told of a table without the query's rows.
fn made_without_rows() -> Outcome {
    Outcome::Done("CREATE TABLE AS".into())
}
