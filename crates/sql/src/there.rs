//! Rows that were there before a constraint, in a database whose transactions are global: a session looks at
//! them, each page as a snapshot of then has all partitions. Whatever is committed since the constraint is
//! there was looked at by whoever committed it, so it does not matter that the snapshots are several.

use crate::constraints::{check, violation};
use crate::driver::Handle;
use crate::early;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::read::{CALL, Values};
use crate::statements::canceled;
use crate::txn::{View, global};
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use std::sync::Arc;
use std::time::Duration;
use types::data::Row;
use types::data::constraint::{Constraint, Demand};
use types::{PartitionId, TableRecord};
use wire::{Body, Op};

/// Rows of a page.
const ROWS: u32 = 2_000;
/// Before a page is looked at again whose state is gone.
const PAUSE: Duration = Duration::from_millis(10);

/// How often one page is looked at.
const MAX_TRIES: u32 = 500;

/// A page of rows, and where the next one begins.
struct Page {
    rows: Vec<(Bytes, Row)>,
    next: Option<Bytes>,
}

/// What rows have against a constraint; `None`: all keep it.
pub async fn against(
    evaluator: &Evaluator,
    (record, constraint): (&Arc<TableRecord>, &Constraint),
    values: &Values,
) -> Result<Option<Failure>, Failure> {
    let table = Table::new(record.clone());
    let mut tries = 0;
    for partition in table.partitions() {
        let mut from = Some(Bytes::new());
        while let Some(begin) = from.clone() {
            match look(evaluator, (&table, constraint), (partition, begin), values).await {
                Ok((None, next)) => (from, tries) = (next, 0),
                Ok((against, _)) => return Ok(against),
                // A state is gone, or an index is not there at it.
                Err(failure) if is_for_now(&failure) && tries < MAX_TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(failure) => return Err(failure),
            }
            if evaluator.cancel.asked() {
                return Err(canceled());
            }
        }
    }
    Ok(None)
}

fn is_for_now(failure: &Failure) -> bool {
    failure.code == fault::SERIALIZATION && !fault::is_stale(failure)
}

/// Looks at a page: what is against the constraint, and where the next page begins.
async fn look(
    evaluator: &Evaluator,
    (table, constraint): (&Table, &Constraint),
    (partition, from): (PartitionId, Bytes),
    values: &Values,
) -> Result<(Option<Failure>, Option<Bytes>), Failure> {
    let handle = &evaluator.handle;
    let view = global::begin(handle, &View::default()).await?;
    let Page { rows, next } = page(handle, &view, table, (partition, from)).await?;
    let against = match &constraint.demand {
        Demand::Index(_) => None,
        Demand::Unique(_) | Demand::Foreign(_) => {
            early::against(handle, &view, (table, partition, rows), constraint).await?
        }
        Demand::Check(_) => {
            // No other check is asked.
            let alone = table.schema().clone().with_constraints(vec![constraint.clone()]);
            let schema = alone.map_err(|error| Failure::new(code::INTERNAL, error.to_string()))?;
            let alone = Table::new(Arc::new(TableRecord { schema, ..table.record().clone() }));
            let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
            let first = check::first_against(evaluator, &alone, &rows, values).await?;
            first.map(|_| violation::check_not_kept(table.record(), &constraint.name))
        }
    };
    Ok((against, next))
}

async fn page(
    handle: &Handle,
    view: &View,
    table: &Table,
    (partition, from): (PartitionId, Bytes),
) -> Result<Page, Failure> {
    let op = Op::Scan { from, to: Bytes::new(), limit: ROWS, at: view.at(table, partition) };
    let answer = fault::answer(handle.call(table.call(partition, op).within(CALL)).await)?;
    let Body::Rows { rows, more } = answer.body else {
        return Err(Failure::new(code::INTERNAL, "a table without rows"));
    };
    let next = rows.last().filter(|_| more).map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
    let decoded = rows.into_iter().map(|(key, _, stored)| {
        let row = table.decode(&key, &stored).map_err(fault::of_client)?;
        Ok((key, row))
    });
    Ok(Page { rows: decoded.collect::<Result<_, Failure>>()?, next })
}
