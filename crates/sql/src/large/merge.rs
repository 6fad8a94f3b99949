//! The rows of a table as a large transaction leaves them: its own, with what the transaction has written
//! laid over them.
//!
//! A row that the transaction has changed, removed or locked must be as it was seen: the first committer wins
//! (PR-78). That is compared here, and not by the primary, since nobody writes the table meanwhile. The
//! states that were seen are on the primary's history, or the table was not held.

use crate::constraints::violation::Refused;
use crate::driver::Handle;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::refill::{Convert, FoundRow, Refusal};
use crate::statements::canceled;
use crate::txn::commit::forbidden;
use crate::txn::spill::unreadable;
use crate::txn::{After, Buffer, Edit, Limit};
use crate::write;
use bytes::Bytes;
use client::Table;
use pg::{Cancel, Failure};
use std::sync::Arc;
use tokio::runtime;
use types::data::{Row, Value};
use types::{Lsn, TableId};

/// New rows that are given at once.
const ROWS: usize = 2_000;
/// Bytes of rows behind which no more are given at once.
const BYTES: usize = 4 << 20;

/// What becomes of a row that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate<'e> {
    /// It stays as it is.
    Stays,
    /// It is this, as it is stored.
    Becomes(&'e Bytes),
    /// There is none any more.
    Goes,
}

/// Why a row that is there is none that the transaction has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unfit {
    /// It was written since.
    Changed,
    /// There was none.
    Exists,
}

/// What a transaction makes of a row that this entry has written.
fn fate(edit: Option<&Edit>, version: Lsn) -> Result<Fate<'_>, Unfit> {
    let Some(edit) = edit else { return Ok(Fate::Stays) };
    match &edit.after {
        After::Row(_) if !edit.existed => Err(Unfit::Exists),
        _ if !edit.existed => Ok(Fate::Stays),
        _ if edit.since.is_some_and(|since| version > since.lsn) => Err(Unfit::Changed),
        After::Row(stored) => Ok(Fate::Becomes(stored)),
        After::Gone => Ok(Fate::Goes),
        After::Same => Ok(Fate::Stays),
    }
}

/// A foreign key by which rows refer that are not looked at: what they refer to must stay.
pub struct Guard {
    /// What it is called, and its table.
    pub name: (String, String),
    /// The columns that it refers to.
    pub columns: Vec<usize>,
}

impl Guard {
    /// True if rows may refer to what a row has been and is no more.
    fn forbids(&self, old: &Row, new: Option<&Row>) -> bool {
        let values = |row: &Row| self.columns.iter().map(|at| row.values[*at].clone()).collect::<Vec<_>>();
        let old = values(old);
        !old.iter().any(Value::is_null) && new.map(values) != Some(old)
    }

    fn failure(&self) -> Failure {
        let (name, table) = &self.name;
        let hint = format!("\"{name}\" of \"{table}\" refers to its rows: commit more often");
        Limit::WRITE.passed().hint(hint)
    }
}

/// Makes the rows of such a table.
pub struct Merge {
    handle: Handle,
    cancel: Cancel,
    runtime: runtime::Handle,
    /// As the transaction knows it.
    table: Table,
    buffer: Arc<Buffer>,
    guards: Vec<Guard>,
    /// So many of the rows that the transaction has seen are there.
    met: usize,
    /// From which key on new rows are to be given.
    next: Option<Bytes>,
    /// So many new rows there are, and were given.
    new: usize,
    given: usize,
}

/// How many rows of a table a transaction has written that were there, and new ones.
fn counted(buffer: &Buffer, table: TableId) -> Result<(usize, usize), Failure> {
    let (mut existed, mut new) = (0, 0);
    for edit in buffer.all(table) {
        let edit = edit?;
        existed += usize::from(edit.existed);
        new += usize::from(!edit.existed && matches!(edit.after, After::Row(_)));
    }
    Ok((existed, new))
}

impl Merge {
    /// Of this table.
    pub fn new(evaluator: &Evaluator, (table, buffer): (Table, Arc<Buffer>), guards: Vec<Guard>) -> Merge {
        Merge {
            handle: evaluator.handle.clone(),
            cancel: evaluator.cancel.clone(),
            runtime: runtime::Handle::current(),
            table,
            buffer,
            guards,
            met: 0,
            next: Some(Bytes::new()),
            new: 0,
            given: 0,
        }
    }

    /// True if the row with this key is none that another one stands against, but to be met.
    fn is_met(&self, key: &[u8]) -> bool {
        // Of what cannot be read it is so: nothing is written any more.
        self.buffer.has_puts() || self.buffer.has_looked(self.table.id(), key).unwrap_or(true)
    }

    fn unfit(&self, why: Unfit, key: &Bytes) -> Failure {
        match why {
            Unfit::Exists if !self.is_met(key) => write::duplicate(&self.table, Some(key)),
            Unfit::Exists | Unfit::Changed => fault::conflict(),
        }
    }

    fn decode(&self, key: &Bytes, stored: &Bytes) -> Result<Row, Failure> {
        self.table.decode(key, stored).map_err(fault::of_client)
    }

    fn goes_on(&self) -> Result<(), Failure> {
        if self.cancel.asked() { Err(canceled()) } else { Ok(()) }
    }
}

impl Convert for Merge {
    fn rows(&mut self, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure> {
        self.goes_on()?;
        let (buffer, table) = (self.buffer.clone(), self.table.id());
        let mut rows = Vec::with_capacity(found.len());
        for FoundRow { key, version, row } in found {
            let edit = buffer.own_edit(table, &key)?;
            let edit = edit.as_deref();
            self.met += usize::from(edit.is_some_and(|edit| edit.existed));
            let new = match fate(edit, version).map_err(|why| self.unfit(why, &key))? {
                Fate::Stays => {
                    rows.push(row);
                    continue;
                }
                Fate::Becomes(stored) => Some(self.decode(&key, stored)?),
                Fate::Goes => None,
            };
            if let Some(guard) = self.guards.iter().find(|guard| guard.forbids(&row, new.as_ref())) {
                return Err(guard.failure());
            }
            rows.extend(new);
        }
        Ok(rows)
    }

    fn rest(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        self.goes_on()?;
        let (buffer, table) = (self.buffer.clone(), self.table.id());
        let Some(from) = self.next.take() else { return Ok(None) };
        if from.is_empty() {
            let (existed, new) = counted(&buffer, table)?;
            self.new = new;
            if self.met < existed {
                // One that it has seen is there no more.
                return Err(fault::conflict());
            }
        }
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for edit in buffer.own(table, (&from, &Bytes::new())) {
            let edit = edit?;
            let (After::Row(stored), false) = (&edit.after, edit.existed) else { continue };
            if rows.len() == ROWS || bytes >= BYTES {
                self.next = Some(edit.key.clone());
                break;
            }
            rows.push(self.decode(&edit.key, stored)?);
            bytes += edit.bytes();
        }
        self.given += rows.len();
        if self.next.is_none() && self.given != self.new {
            return Err(unreadable(&format!("{} of {} new rows are there", self.given, self.new)));
        }
        Ok(Some(rows))
    }

    fn refused(&self, why: Refusal<'_>) -> Failure {
        match why {
            Refusal::Key(..) if self.buffer.has_puts() => fault::conflict(),
            Refusal::Key(table, key) => write::duplicate(table, key.map(|key| &key[..])),
            Refusal::Constraint(table, number, ops) => {
                let refused = Refused::new([(table, ops)]);
                self.runtime.block_on(forbidden(&self.handle, number, (&refused, &self.buffer)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use types::{Position, Term};

    fn edit(key: &str, existed: bool, after: After, since: u64) -> (Bytes, Edit) {
        let (key, since) = (Bytes::copy_from_slice(key.as_bytes()), Position::new(Term(9), Lsn(since)));
        (key.clone(), Edit { since: Some(since), ..Edit::new(key, existed, after) })
    }

    /// What becomes of rows, by their keys and the entries that have written them.
    fn fates(edits: &BTreeMap<Bytes, Edit>, rows: &[(&str, u64)]) -> Vec<String> {
        let one = |(key, version): &(&str, u64)| match fate(edits.get(key.as_bytes()), Lsn(*version)) {
            Ok(Fate::Stays) => (*key).to_string(),
            Ok(Fate::Becomes(row)) => format!("{key}={}", String::from_utf8_lossy(row)),
            Ok(Fate::Goes) => format!("-{key}"),
            Err(why) => format!("{key} {why:?}"),
        };
        rows.iter().map(one).collect()
    }

    #[test]
    fn pr78_rows_are_as_the_transaction_leaves_them_or_others_were_faster() {
        let row = |text: &str| After::Row(Bytes::copy_from_slice(text.as_bytes()));
        let edits: BTreeMap<Bytes, Edit> = [
            edit("b", true, row("new"), 20),
            edit("c", true, After::Gone, 20),
            edit("d", true, After::Same, 20),
            edit("e", false, row("mine"), 20),
            // Inserted and locked, or nothing: nobody has seen such a row.
            edit("f", false, After::Same, 20),
            edit("g", true, row("late"), 30),
        ]
        .into();
        let there = [("a", 99), ("b", 20), ("c", 7), ("d", 20), ("f", 99), ("g", 30)];
        assert_eq!(fates(&edits, &there), ["a", "b=new", "-c", "d", "f", "g=late"]);
        let changed = [("b", 21), ("c", 21), ("d", 21), ("e", 3), ("g", 31)];
        let expected = ["b Changed", "c Changed", "d Changed", "e Exists", "g Changed"];
        assert_eq!(fates(&edits, &changed), expected);
    }

    #[test]
    fn what_rows_refer_to_that_are_not_looked_at_stays() {
        let row = |id: i64, code: Option<i64>| {
            Row::new(vec![Value::Int(id), code.map_or(Value::Null, Value::Int), Value::Int(0)])
        };
        let guard = Guard { name: ("to".into(), "child".into()), columns: vec![1] };
        assert!(guard.forbids(&row(1, Some(5)), None));
        assert!(guard.forbids(&row(1, Some(5)), Some(&row(1, Some(6)))));
        assert!(guard.forbids(&row(1, Some(5)), Some(&row(1, None))));
        assert!(!guard.forbids(&row(1, Some(5)), Some(&row(2, Some(5)))));
        assert!(!guard.forbids(&row(1, None), None), "nothing refers to null");
        assert!(guard.failure().hint.is_some_and(|hint| hint.contains("\"to\" of \"child\"")));
        assert_eq!(guard.failure().code, "54000");
    }
}
