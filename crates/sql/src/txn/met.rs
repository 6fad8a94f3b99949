//! ON CONFLICT in a transaction: what becomes of a row that was new when the statement looked, and that
//! somebody else has inserted before COMMIT.
//!
//! PostgreSQL waits for the other one, and then does what the statement says (READ COMMITTED), or has the
//! transaction begin again (REPEATABLE READ). Here it begins again (`40001`), whatever it is: its statement
//! sees the row then. What was there when it looked, and what the transaction has written itself, would be so
//! each time, and is a duplicate (`23505`).

use super::buffer::aside;
use super::{After, Arbiter, Buffer, Edit, View, global};
use crate::catalog::Catalog;
use crate::constraints::unique::{self, Finder, Found};
use crate::driver::Handle;
use crate::fault;
use crate::read;
use bytes::Bytes;
use client::Table;
use pg::Failure;
use std::sync::Arc;
use types::data::constraint::Constraint;
use types::data::{Row, Value};
use types::{Position, TableId};
use wire::message::MAX_OPS;

/// How often tables are looked at again that were changed meanwhile.
const MAX_LOOKS: u32 = 4;

/// True if a row is there now, and was not when ON CONFLICT looked for it, that one of these is like by the
/// unique constraint with this number; `None`: by any that it looked by. The transaction cannot commit, and
/// its statement does something else when it is done again. Nothing rests on the answer, since nothing is
/// written any more: of what cannot be read it is true.
pub async fn is_met(handle: &Handle, written: &Arc<Buffer>, number: Option<u32>) -> bool {
    for _ in 0..MAX_LOOKS {
        match look(handle, written, number).await {
            Ok(met) => return met,
            Err(failure) if fault::is_stale(&failure) => handle.look_again().await,
            Err(_) => return true,
        }
    }
    true
}

async fn look(handle: &Handle, written: &Arc<Buffer>, number: Option<u32>) -> Result<bool, Failure> {
    let asked = aside(written, asked).await?;
    if asked.is_empty() {
        return Ok(false);
    }
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    let now = match handle.is_global() {
        true => global::begin(handle, &View::default()).await?,
        false => View::default(),
    };
    for (id, edits) in asked {
        let Some(looking) = Looking::of(handle, &catalog, id, (written, &now)) else { continue };
        let constraints: Vec<&Constraint> = unique::all(&looking.table).collect();
        for constraint in constraints {
            let wanted = number.is_none_or(|number| number == constraint.number);
            if wanted && looking.is_met(constraint, &edits).await? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The rows of each table before which ON CONFLICT has looked by something else than their keys, as many as
/// one write has.
fn asked(written: &Buffer) -> Result<Vec<(TableId, Vec<Edit>)>, Failure> {
    let looks = |edit: &Edit| matches!(edit.arbiter, Arbiter::Unique(_) | Arbiter::Any);
    let mut all = Vec::new();
    for id in written.tables() {
        let edits = written.all(id).filter(|edit| edit.as_ref().map_or(true, |edit| looks(edit)));
        let edits = edits.take(MAX_OPS).map(|edit| Ok(edit?.into_owned()));
        let edits = edits.collect::<Result<Vec<Edit>, Failure>>()?;
        if !edits.is_empty() {
            all.push((id, edits));
        }
    }
    Ok(all)
}

/// One table, and where it is looked.
struct Looking<'a> {
    handle: &'a Handle,
    table: Table,
    written: &'a Arc<Buffer>,
    /// All that is committed.
    now: &'a View,
}

impl<'a> Looking<'a> {
    /// `None`: nobody else knows the table.
    fn of(
        handle: &'a Handle,
        catalog: &Catalog,
        id: TableId,
        (written, now): (&'a Arc<Buffer>, &'a View),
    ) -> Option<Looking<'a>> {
        let table = Table::new(catalog.all().find(|table| table.id == id)?.clone());
        Some(Looking { handle, table, written, now })
    }

    /// True if one of these rows is like one that has come, by this constraint.
    async fn is_met(&self, constraint: &Constraint, edits: &[Edit]) -> Result<bool, Failure> {
        let mut rows: Vec<(&Edit, Row)> = Vec::new();
        for edit in edits.iter().filter(|edit| edit.arbiter.is_unique(constraint.number)) {
            let After::Row(stored) = &edit.after else { continue };
            rows.push((edit, self.table.decode(&edit.key, stored).map_err(fault::of_client)?));
        }
        let place = (&self.table, self.written.partition());
        let finder = Finder::new(self.handle, place, self.now, constraint).await?;
        let found = finder.find_all(rows.iter().map(|(edit, row)| (row, Some(&edit.key)))).await?;
        for ((edit, _), found) in rows.iter().zip(found) {
            let Some(found) = found else { continue };
            if self.has_come(constraint, &found, edit.since).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if a row that is there has come, or got these values, behind this state.
    async fn has_come(
        &self,
        constraint: &Constraint,
        (key, stored): &Found,
        since: Option<Position>,
    ) -> Result<bool, Failure> {
        let partition = self.written.partition();
        let is_written = Buffer::seen(self.written, (self.table.id(), partition), key).await?.is_some();
        let Some(since) = since.filter(|_| !is_written) else { return Ok(false) };
        let then = match self.now.is_global() {
            true => View::default().at_commit(since, &[]),
            false => View::lasting(),
        };
        then.saw(&self.table, partition, since);
        let before = match read::get(self.handle, &self.table, key, &then).await {
            Ok(before) => before,
            Err(failure) if fault::is_stale(&failure) => return Err(failure),
            // The state is gone.
            Err(_) => None,
        };
        let Some(before) = before else { return Ok(true) };
        Ok(self.values(constraint, (key, &before))? != self.values(constraint, (key, stored))?)
    }

    fn values(
        &self,
        constraint: &Constraint,
        (key, stored): (&Bytes, &Bytes),
    ) -> Result<Vec<Value>, Failure> {
        let row = self.table.decode(key, stored).map_err(fault::of_client)?;
        let columns = constraint.indexed().unwrap_or_default();
        Ok(columns.iter().map(|at| row.values[*at].clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::Limit;
    use types::PartitionId;

    const HERE: (TableId, PartitionId) = (TableId(1), PartitionId(7));

    fn row(key: &'static str, row: &'static str, arbiter: Arbiter) -> Edit {
        Edit { arbiter, ..Edit::new(Bytes::from_static(key.as_bytes()), false, After::Row(row.into())) }
    }

    #[test]
    fn a_row_that_was_inserted_after_a_look_stays_so_as_long_as_it_is_there() {
        let mut buffer = Buffer::default();
        let mut take = |edit: Edit| {
            buffer.take(HERE, vec![edit], (Limit::WRITE, None)).expect("room");
            let asked: Vec<Arbiter> = asked(&buffer)
                .expect("all is in memory")
                .iter()
                .flat_map(|(_, edits)| edits)
                .map(|edit| edit.arbiter)
                .collect();
            (buffer.has_looked(HERE.0, b"a") == Ok(true), asked)
        };
        assert_eq!(take(row("a", "1", Arbiter::Key)), (true, vec![]));
        assert_eq!(take(row("b", "1", Arbiter::Unique(7))), (true, vec![Arbiter::Unique(7)]));
        // An update of it is none of ON CONFLICT.
        assert_eq!(take(row("b", "2", Arbiter::None)), (true, vec![Arbiter::Unique(7)]));
        let gone = |key: &'static str| Edit::new(Bytes::from_static(key.as_bytes()), true, After::Gone);
        assert_eq!(take(gone("a")), (false, vec![Arbiter::Unique(7)]));
        assert_eq!(take(row("a", "1", Arbiter::None)), (false, vec![Arbiter::Unique(7)]));
        assert_eq!(take(gone("b")), (false, vec![]));
        // One that was there and was removed is new as well, where it is inserted.
        assert_eq!(take(gone("c")), (false, vec![]));
        assert_eq!(take(row("c", "1", Arbiter::Any)), (false, vec![Arbiter::Any]));
        assert!(Arbiter::Any.is_unique(7) && Arbiter::Any.is_key() && !Arbiter::Unique(7).is_unique(8));
    }
}
