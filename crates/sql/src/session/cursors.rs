//! Cursors and prepared statements that a session has named in SQL. A cursor's rows are collected when it is
//! declared: it shows what was committed then, forward and backward.

use super::SqlSession;
use crate::bind::Bound;
use crate::cursors::{CursorStatement, Way, filled};
use crate::plan::{Parsed, StatementPlan, Work, told_columns};
use crate::read::Values;
use pg::{Column, Failure, Outcome, Row, Rows, Shape, code};
use sqlparser::ast::{DataType, Expr, Statement};
use std::collections::HashMap;
use std::sync::Arc;
use types::data::Value;

/// The most bytes of rows that a session's cursors hold.
const MAX_BYTES: usize = 64 << 20;

/// A cursor.
struct Cursor {
    hold: bool,
    columns: Vec<Column>,
    rows: Vec<Row>,
    bytes: usize,
    /// How many rows are before the place where it stands: 0 is before the first, `n` is on the n-th.
    at: usize,
}

/// What a session has named.
#[derive(Default)]
pub struct Named {
    cursors: HashMap<String, Cursor>,
    prepared: HashMap<String, (Vec<DataType>, Statement)>,
}

impl Named {
    /// The columns of a cursor.
    pub fn columns(&self, name: &str) -> Option<Vec<Column>> {
        self.cursors.get(name).map(|cursor| cursor.columns.clone())
    }
}

fn no_cursor(name: &str) -> Failure {
    Failure::new("34000", format!("cursor \"{name}\" does not exist"))
}

impl Cursor {
    /// The rows that FETCH gives, and stands at the last of them.
    fn fetch(&mut self, way: Way) -> Vec<Row> {
        let len = self.rows.len();
        match way {
            Way::All => self.forward(usize::MAX),
            Way::AllBefore => self.backward(usize::MAX),
            Way::Next(0) => self.rows.get(self.at.wrapping_sub(1)).cloned().into_iter().collect(),
            Way::Next(count) if count > 0 => self.forward(count.unsigned_abs() as usize),
            Way::Next(count) => self.backward(count.unsigned_abs() as usize),
            Way::At(place) => {
                let at = if place < 0 { len as i64 + 1 + place } else { place };
                self.at = at.clamp(0, len as i64 + 1) as usize;
                self.rows.get(self.at.wrapping_sub(1)).cloned().into_iter().collect()
            }
        }
    }

    fn forward(&mut self, count: usize) -> Vec<Row> {
        let (from, len) = (self.at.min(self.rows.len()), self.rows.len());
        let end = from.saturating_add(count).min(len);
        // Whoever wants more than there is stands behind the end.
        self.at = if from.saturating_add(count) > len { len + 1 } else { end };
        self.rows[from..end].to_vec()
    }

    fn backward(&mut self, count: usize) -> Vec<Row> {
        let end = self.at.saturating_sub(1).min(self.rows.len());
        let from = end.saturating_sub(count);
        self.at = if count > end { 0 } else { from + 1 };
        self.rows[from..end].iter().rev().cloned().collect()
    }
}

/// About how much a row takes.
fn size(row: &Row) -> usize {
    let of = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Json(tree) => tree.to_json().to_string().len(),
        _ => 0,
    };
    row.iter().map(|value| 32 + of(value)).sum()
}

impl SqlSession {
    /// The plan of a FETCH, or the statement that an EXECUTE stands for; `None`: it is neither.
    pub(super) fn named_plan(&self, parsed: &Parsed) -> Result<Option<Resolved>, Failure> {
        match parsed.cursor() {
            Some(CursorStatement::Execute { name, arguments }) => {
                Ok(Some(Resolved::Statement(Parsed::of(self.prepared(name, arguments)?))))
            }
            Some(CursorStatement::Fetch { name, way, moves }) => {
                let cursor = self.named.cursors.get(name).ok_or_else(|| no_cursor(name))?;
                let columns = (!moves).then(|| cursor.columns.clone());
                let work = Work::Fetch { name: name.clone(), way: *way, moves: *moves };
                let shape = Shape { parameters: Vec::new(), columns };
                Ok(Some(Resolved::Plan(Arc::new(StatementPlan::apart(work, parsed, shape)))))
            }
            _ => Ok(None),
        }
    }

    fn prepared(&self, name: &str, arguments: &[Expr]) -> Result<Statement, Failure> {
        let found = self.named.prepared.get(name);
        let missing = || Failure::new("26000", format!("prepared statement \"{name}\" does not exist"));
        let (types, statement) = found.ok_or_else(missing)?;
        filled((name, types, statement), arguments)
    }

    /// DECLARE ... CURSOR.
    pub(super) async fn declare(
        &mut self,
        (name, hold): (&str, bool),
        bound: &Arc<Bound>,
        values: Values,
    ) -> Result<Outcome, Failure> {
        if self.open.is_none() && !hold {
            return Err(Failure::new("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        }
        self.drop_cursors();
        if self.named.cursors.contains_key(name) {
            return Err(Failure::new("42P03", format!("cursor \"{name}\" already exists")));
        }
        let Outcome::Rows(_, mut found) = self.query(bound, values).await? else {
            return Err(Failure::new(code::INTERNAL, "a query without rows"));
        };
        let held: usize = self.named.cursors.values().map(|cursor| cursor.bytes).sum();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.next().await {
            let row = row?;
            bytes += size(&row);
            if held + bytes > MAX_BYTES {
                let message = format!("the cursors of a session hold at most {} MiB", MAX_BYTES >> 20);
                return Err(Failure::new(code::LIMIT, message)
                    .hint("read without a cursor: rows come as they are read"));
            }
            rows.push(row);
        }
        let cursor = Cursor { hold, columns: told_columns(bound), rows, bytes, at: 0 };
        self.named.cursors.insert(name.to_string(), cursor);
        Ok(Outcome::Done("DECLARE CURSOR".into()))
    }

    /// Cursors end with their transaction, unless they are held.
    pub(super) fn drop_cursors(&mut self) {
        if self.open.is_none() {
            self.named.cursors.retain(|_, cursor| cursor.hold);
        }
    }

    /// FETCH, MOVE, CLOSE and PREPARE.
    pub(super) fn named(&mut self, work: &Work) -> Result<Outcome, Failure> {
        match work {
            Work::Fetch { name, way, moves } => {
                self.drop_cursors();
                let cursor = self.named.cursors.get_mut(name).ok_or_else(|| no_cursor(name))?;
                let rows = cursor.fetch(*way);
                Ok(match moves {
                    true => Outcome::Done(format!("MOVE {}", rows.len())),
                    false => Outcome::Rows("FETCH", Rows::of(rows)),
                })
            }
            Work::Close(None) => {
                self.named.cursors.clear();
                Ok(Outcome::Done("CLOSE CURSOR ALL".into()))
            }
            Work::Close(Some(name)) => {
                self.drop_cursors();
                self.named.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
                Ok(Outcome::Done("CLOSE CURSOR".into()))
            }
            Work::Prepare { name, types, statement } => {
                if self.named.prepared.contains_key(name) {
                    let message = format!("prepared statement \"{name}\" already exists");
                    return Err(Failure::new("42P05", message));
                }
                self.named.prepared.insert(name.clone(), (types.clone(), (**statement).clone()));
                Ok(Outcome::Done("PREPARE".into()))
            }
            _ => unreachable!("handled by the caller"),
        }
    }

    /// Forgets all that SQL has named, and what sequences have given.
    pub(super) fn discard(&mut self) -> bool {
        self.named = Named::default();
        self.evaluator.asker.told.forget();
        true
    }

    /// Forgets a statement that SQL has prepared, or all. True if that was all that was asked for.
    pub(super) fn forget(&mut self, name: Option<&String>) -> bool {
        match name {
            Some(name) => self.named.prepared.remove(name).is_some(),
            None => {
                self.named.prepared.clear();
                false
            }
        }
    }
}

/// What a statement that names another one comes to.
pub enum Resolved {
    /// This plan.
    Plan(Arc<StatementPlan>),
    /// This statement.
    Statement(Parsed),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_stand_before_on_and_behind_rows_as_in_postgresql() {
        let rows: Vec<Row> = (1..=3).map(|n| vec![Value::Int(n)]).collect();
        let mut cursor = Cursor { hold: false, columns: Vec::new(), rows, bytes: 0, at: 0 };
        for (way, expected) in [
            (Way::Next(2), vec![1, 2]),
            (Way::Next(0), vec![2]),
            (Way::Next(-1), vec![1]),
            (Way::Next(-1), vec![]),
            (Way::Next(1), vec![1]),
            (Way::All, vec![2, 3]),
            (Way::Next(1), vec![]),
            (Way::Next(-2), vec![3, 2]),
            (Way::At(3), vec![3]),
            (Way::At(-3), vec![1]),
            (Way::At(9), vec![]),
            (Way::AllBefore, vec![3, 2, 1]),
            (Way::Next(1), vec![1]),
            (Way::At(0), vec![]),
            (Way::Next(3), vec![1, 2, 3]),
            (Way::Next(-1), vec![2]),
        ] {
            let found: Vec<Row> = cursor.fetch(way);
            let expected: Vec<Row> = expected.into_iter().map(|n| vec![Value::Int(n)]).collect();
            assert_eq!(found, expected, "{way:?}");
        }
    }
}
