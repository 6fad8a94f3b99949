//! Numbers for rows that have none: each node takes blocks of them, by a conditional write of the row that
//! counts them.
//!
//! A number is never given out twice, also across failovers. Numbers that a node has taken and not used are
//! lost with it, and rows are not numbered in the order of time: so it is with PostgreSQL's sequences that
//! have a cache.

use crate::driver::Handle;
use crate::fault::{self, Decided};
use crate::read::CALL;
use client::{Answer, Outcome, Table};
use pg::{Failure, code};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use types::data::{Row, Value};
use types::system::SEQUENCES;
use types::{Position, TableId, Term};
use wire::request::Outcome as Refusal;
use wire::{Body, RowOp};

/// Numbers that a node takes at once.
const BLOCK: i64 = 100;
/// How often somebody else may be faster.
const ATTEMPTS: usize = 1_000;

/// A column of a table, by its index.
type Counted = (TableId, usize);

/// The numbers that this node has taken and not used yet.
#[derive(Default)]
pub struct Sequences {
    blocks: Mutex<HashMap<Counted, Vec<Range<i64>>>>,
}

impl Sequences {
    /// So many numbers for a column of a table.
    pub async fn take(
        &self,
        handle: &Handle,
        table: &Table,
        column: usize,
        count: usize,
    ) -> Result<Vec<i64>, Failure> {
        let counter = table.schema().columns().get(column).and_then(|column| column.rules.counter);
        let of = match counter {
            Some((table, column)) => (TableId(table), column as usize),
            None => (table.id(), column),
        };
        let mut numbers = Vec::with_capacity(count);
        loop {
            self.kept(of, count, &mut numbers);
            if numbers.len() == count {
                return Ok(numbers);
            }
            let wanted = BLOCK.max((count - numbers.len()) as i64);
            let block = block(handle, of, wanted).await?;
            let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.entry(of).or_default().push(block);
        }
    }

    fn kept(&self, of: Counted, count: usize, numbers: &mut Vec<i64>) {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(blocks) = blocks.get_mut(&of) else { return };
        for block in blocks.iter_mut() {
            numbers.extend(block.take(count - numbers.len()));
        }
        blocks.retain(|block| !block.is_empty());
    }
}

/// The table that counts.
fn counters(handle: &Handle) -> Result<Table, Failure> {
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    catalog.table(SEQUENCES).cloned().map(Table::new).ok_or_else(|| {
        Failure::new("57P03", format!("the table {SEQUENCES}, which numbers rows, is not there yet"))
            .hint("try again")
    })
}

/// Takes the next numbers for this node alone.
async fn block(handle: &Handle, of: Counted, wanted: i64) -> Result<Range<i64>, Failure> {
    let handle = &handle.within(None);
    let table = counters(handle)?;
    let key = [Value::Int(i64::from(of.0.0)), Value::Int(of.1 as i64)];
    let encoded = table.key(&key).map_err(fault::of_client)?;
    let partition = table.partition_of(&encoded).map_err(fault::of_client)?;
    for _ in 0..ATTEMPTS {
        let call = table.get(&key).map_err(fault::of_client)?.within(CALL);
        let read = fault::decided(handle.call(call).await)?;
        let Decided::Done(Answer { body: Body::Row(found), epoch, lsn, .. }) = read else {
            return Err(Failure::new(code::INTERNAL, "the answer was not of the expected kind"));
        };
        let (next, there) = match &found {
            None => (1, false),
            Some((_, stored)) => {
                let row = table.decode(&encoded, stored).map_err(fault::of_client)?;
                match row.values.get(2) {
                    Some(Value::Int(next)) => (*next, true),
                    _ => return Err(Failure::new(code::INTERNAL, "a counter without a number")),
                }
            }
        };
        let end = next
            .checked_add(wanted)
            .ok_or_else(|| Failure::new("2200H", "the numbers of this column are used up"))?;
        let row = Row::new(vec![key[0].clone(), key[1].clone(), Value::Int(end)]);
        let (key, row) = table.encode(&row).map_err(fault::of_client)?;
        let op = if there { RowOp::Update { key, row } } else { RowOp::Insert { key, row } };
        match handle
            .call(table.write_since(partition, vec![op], Position::new(Term::of(epoch), lsn)).within(CALL))
            .await
        {
            Outcome::Ok(_) => return Ok(next..end),
            // Somebody else was faster; or nobody knows, and then the block is given up.
            Outcome::Refused(Refusal::Exists | Refusal::Changed, _) | Outcome::Unknown(_) => {}
            other => fault::decided(other).map(drop)?,
        }
    }
    Err(Failure::new("55P03", "the numbers of this column are wanted by too many at once").hint("try again"))
}
