//! COPY, by itself and in transactions, and upkeep.

use super::SqlSession;
use crate::constraints::check;
use crate::copy::copy_input::{Into, not_begun};
use crate::copy::{CopyIn, CopyInput, CopyOut, Source};
use crate::edits::Edits;
use crate::fault;
use crate::plan::{StatementPlan, told_columns};
use crate::read::{self, Values};
use crate::replicated;
use crate::statements::Statement;
use crate::txn::{After, Edit, Limit};
use crate::upkeep::{Upkeep, What};
use crate::write::{duplicate, elsewhere};
use bytes::Bytes;
use client::Table;
use pg::{Failure, Outcome};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::TableRecord;
use wire::RowOp;

/// Rows of a COPY that a transaction takes in are looked at so many at once.
const PIECE_ROWS: usize = 2_000;
/// Where the transaction spills it takes them in when they take so much memory.
const PIECE_BYTES: usize = 8 << 20;

impl SqlSession {
    /// The client is sent rows: of a query, or what a statement that writes tells of its own.
    pub(super) async fn copy_out(
        &mut self,
        copy: &CopyOut,
        plan: &Arc<StatementPlan>,
        values: Values,
    ) -> Result<Outcome, Failure> {
        let done = match &copy.source {
            Source::Query(bound) => self.query(bound, values).await?,
            Source::Writing(planned) => self.write(Statement::of_planned(planned), plan, values).await?,
        };
        let Outcome::Rows(_, rows) = done else { unreachable!("what is copied gives rows") };
        let columns = copy.source.bound().map(told_columns).unwrap_or_default();
        Ok(Outcome::CopyOut(pg::CopyOut { format: copy.format.clone(), columns, rows }))
    }

    /// The client is to send rows. Those of a table that the transaction has made are stored as they come,
    /// where nobody else sees them, or, in a database of several partitions, where everybody does; those of
    /// another one are the transaction's like any others. A replicated table gets all of them at the end.
    pub(super) async fn copy_in(&mut self, copy: &CopyIn, values: &Values) -> Result<Outcome, Failure> {
        self.check_secured(&copy.table)?;
        let handle = self.evaluator.handle.clone();
        if let Some(open) = &self.open {
            open.busy()?;
        }
        if copy.freezes {
            self.note("FREEZE changes nothing here: rows are written as they are without it".into());
        }
        let is_replicated = copy.table.schema.is_replicated();
        if is_replicated && self.open.is_some() {
            return Err(fault::replicated_within(&copy.table.name));
        }
        let into = match &mut self.open {
            None if self.grouped => {
                let hint =
                    "its rows are committed as they come: send it by itself, or within BEGIN and COMMIT";
                return Err(Failure::unsupported("COPY FROM among other statements of a message", hint));
            }
            // All of its rows are written at the end, with those that are there.
            None if is_replicated => Into::Transaction,
            None => Into::Table,
            Some(open) if open.definitions().has_made(copy.table.id) => {
                open.load(&handle, &copy.table).await?;
                Into::Made
            }
            // Where rows are to be looked at together they are committed together.
            Some(open)
                if open.emptied.contains(&copy.table.id) && !(handle.is_global() && demands(&copy.table)) =>
            {
                let what = "rows of this COPY are stored as they come and stay, as the table was made or emptied at once";
                self.warn("01000", what);
                Into::Table
            }
            Some(_) if copy.table.database().is_some() => Into::Transaction,
            Some(_) => {
                let hint = "its rows are committed as they come: send it by itself, outside of BEGIN (drivers call it autocommit)";
                return Err(Failure::unsupported("COPY FROM inside of a transaction", hint));
            }
        };
        let limit = match &self.open {
            Some(open) => open.limit(&copy.table).in_memory(),
            None if is_replicated => replicated::LIMIT,
            None => Limit::WRITE,
        };
        self.copying = Some(CopyInput::new(self.evaluator.clone(), (copy, into, limit), values)?);
        Ok(Outcome::CopyIn(copy.columns.len()))
    }

    /// Rows of a COPY come. Those of a transaction that spills are its own piece by piece.
    pub(super) async fn take_copy_data(&mut self, data: &[u8]) -> Result<(), Failure> {
        let copying = self.copying.as_mut().ok_or_else(not_begun)?;
        copying.data(data).await?;
        let table = copying.table().record();
        let spills = self.open.as_ref().filter(|open| open.may_spill(table));
        let settings = spills.and_then(|open| open.buffer().spills(table));
        let Some(most) = settings.map(|settings| settings.threshold.min(PIECE_BYTES)) else { return Ok(()) };
        match copying.kept_over(most) {
            Some((table, rows)) => self.take_copied(table, rows, false).await,
            None => Ok(()),
        }
    }

    /// All rows of a COPY have come. The error: those that are on their way are to be waited for.
    pub(super) async fn finish_copy(&mut self) -> Result<String, Failure> {
        let copying = self.copying.as_mut().ok_or_else(not_begun)?;
        let tag = copying.finish().await?;
        let (kept, whole) = (copying.kept(), !copying.is_taken_in_pieces());
        if let Some(open) = self.open.as_mut().filter(|_| copying.is_taken_back()) {
            open.copied(copying.acknowledged());
        }
        self.copying = None;
        if let Some((table, rows)) = kept {
            match table.schema().is_replicated() {
                true => {
                    let values = Values { parameters: Vec::new(), now: super::now() };
                    replicated::copied(&self.evaluator, &table, rows, &values).await?;
                }
                false => self.take_copied(table, rows, whole).await?,
            }
        }
        Ok(tag)
    }

    /// Rows of a COPY become the transaction's. If they are not the whole COPY, `COMMIT` alone says
    /// whether they fit other rows, as it does of many rows.
    async fn take_copied(&mut self, table: Table, rows: Vec<RowOp>, whole: bool) -> Result<(), Failure> {
        let view = self.view().await?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = rows.iter().find(|op| !seen.insert(op.key().clone())) {
            return Err(duplicate(&table, Some(twice.key())));
        }
        let Some(first) = rows.first() else { return Ok(()) };
        let partition = table.partition_of(first.key()).map_err(fault::of_client)?;
        for op in rows.iter().filter(|_| !table.is_global()) {
            if table.partition_of(op.key()).map_err(fault::of_client)? != partition {
                let how = "rows that were sent lie in different partitions";
                return Err(elsewhere(&table, how, "COPY FROM in a transaction into several partitions"));
            }
        }
        drop(seen);
        let values = Values { parameters: Vec::new(), now: super::now() };
        for rows in rows.chunks(PIECE_ROWS) {
            let keys: Vec<_> = rows.iter().map(|op| op.key().clone()).collect();
            let there = read::get_all(&self.evaluator.handle, &table, partition, &keys, &view).await?;
            if let Some(at) = there.iter().position(Option::is_some) {
                return Err(duplicate(&table, Some(&keys[at])));
            }
            if check::has_any(table.schema()) {
                let read = |op: &RowOp| table.decode(op.key(), op.row().unwrap_or(&Bytes::new()));
                let read = rows.iter().map(read).collect::<Result<Vec<_>, _>>();
                let read = read.map_err(fault::of_client)?;
                check::rows(&self.evaluator, &table, &read, &values).await?;
            }
        }
        let edit = |op: RowOp| match op {
            RowOp::Insert { key, row } => Some(Edit::new(key, false, After::Row(row))),
            _ => None,
        };
        let edits: Vec<Edit> = rows.into_iter().filter_map(edit).collect();
        let count = edits.len() as u64;
        let (told, replaced) = (None, Vec::new());
        let edits = Edits { table, partition: Some(partition), edits, count, told, replaced };
        let mut all = [edits];
        if whole {
            self.keeps_constraints(&all, &view).await?;
        }
        drop(view);
        let [edits] = &mut all;
        match &mut self.open {
            Some(open) => open.take(edits).await,
            None => Ok(()),
        }
    }

    /// What PostgreSQL does for tables, and there is nothing to do for here.
    pub(super) fn upkeep(&mut self, upkeep: &Upkeep) -> Result<Outcome, Failure> {
        let explicit = self.open.as_ref().is_some_and(|open| !open.implicit);
        match upkeep.what {
            What::Vacuum if self.open.is_some() || self.grouped => {
                return Err(Failure::new("25001", "VACUUM cannot run inside a transaction block"));
            }
            What::Lock if !explicit => {
                return Err(Failure::new("25P01", "LOCK TABLE can only be used in transaction blocks"));
            }
            _ => {}
        }
        self.notices.push(upkeep.note());
        Ok(Outcome::Done(upkeep.tag().into()))
    }
}

/// True if rows of the table must fit other rows.
fn demands(table: &TableRecord) -> bool {
    table.schema.constraints().iter().any(|one| one.is_enforced() && !one.forbids_nothing())
}
