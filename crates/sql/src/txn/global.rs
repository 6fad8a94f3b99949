//! Transactions over all partitions of a database ([`types::commits`]): snapshots and commits of the
//! transaction manager.

use super::buffer::Written;
use super::view::View;
use crate::driver::Handle;
use crate::early::Checked;
use crate::fault::{self, Decided};
use crate::read::{self, CALL};
use bytes::Bytes;
use client::txn::{Manager, Owner, Secured, Securing};
use client::{Call, Table};
use pg::{Failure, code};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use types::system::COMMITS;
use types::{PartitionId, Position, TableId};
use wire::commit::{CommitAnswer, PartitionWrites, TooLarge, WriteSetSize};
use wire::request::TablePart;
use wire::{Body, CommitRequest, ManagerOp, RowOp};

/// The most rows of a table that are read again to find out whether others have changed them.
const MAX_LOOKED_AT: usize = 200;

async fn manager(handle: &Handle) -> Result<Manager, Failure> {
    let found = handle.wait_map(|map| map.table(COMMITS).is_some());
    let found = timeout(Duration::from_micros(CALL.0), found).await;
    let map = handle.map();
    let record = map.table(COMMITS).filter(|_| found.is_ok());
    record.map(|record| Manager::of(record)).ok_or_else(|| {
        Failure::new("57P03", "the transaction manager's table is not there")
            .hint("nothing was done; try again")
    })
}

/// What a statement sees that begins now: everything that was committed until then.
pub async fn begin(handle: &Handle, before: &View) -> Result<View, Failure> {
    let asked = manager(handle).await?.call(ManagerOp::Snapshot { since: Position::ZERO });
    let answer = fault::answer(handle.call(asked.within(CALL)).await)?;
    let Body::Commit(CommitAnswer::Snapshot { at, .. }) = answer.body else {
        return Err(Failure::new(code::INTERNAL, "the transaction manager gave no snapshot"));
    };
    Ok(before.at_commit(at, &kept(handle)?))
}

/// The partitions that are to keep a snapshot as long as somebody reads it.
fn kept(handle: &Handle) -> Result<Vec<(Table, PartitionId)>, Failure> {
    let database = handle.database_record()?;
    Ok(handle.partitions().map(|id| (database.catalog(), PartitionId(id))).collect())
}

/// What a transaction sees that is content with what all partitions have secured.
pub async fn begin_stale(handle: &Handle, before: &View) -> Result<View, Failure> {
    let manager = manager(handle).await?;
    // A copy may not have heard yet of what is secured since.
    let answer = match fault::answer(handle.call(Secured::call_of_primary(manager)).await) {
        Ok(answer) => answer,
        Err(_) => fault::answer(handle.call(Secured::call(manager).within(CALL)).await)?,
    };
    let own = handle.partitions();
    let secured = Secured::of(&answer, |partition| own.contains(&partition.0)).map_err(fault::of_client)?;
    Ok(before.at_secured(secured, &kept(handle)?))
}

/// Commits rows of any partitions, if none of them was written since it was seen, and nothing stands against
/// what they claim since that was `checked`; none: they claim nothing. Where the handle says so it waits
/// until they are secured.
pub async fn commit(
    handle: &Handle,
    (tables, checked): (&BTreeMap<TableId, Table>, Option<Checked>),
    parts: Vec<Written>,
) -> Result<Decided, Failure> {
    let seen = || parts.iter().flat_map(|part| &part.seen);
    let Some(snapshot) = seen().min().copied() else {
        return Err(Failure::new(code::INTERNAL, "a transaction writes what it has not read"));
    };
    let mut writes: BTreeMap<PartitionId, Vec<TablePart>> = BTreeMap::new();
    let mut size = WriteSetSize::default();
    for Written { table, ops, seen } in parts {
        let table =
            tables.get(&table).ok_or_else(|| Failure::new(code::INTERNAL, "rows of an unknown table"))?;
        let indexes = table.schema().constraints().iter().filter(|one| one.indexed().is_some()).count();
        for (op, seen) in ops.into_iter().zip(seen) {
            let Some(op) = put(handle, table, op, seen).await? else { return Ok(Decided::Changed) };
            let place = table.partition_of(op.key()).map_err(fault::of_client)?;
            let bytes = op.key().len() + op.row().map_or(0, Bytes::len);
            size.add(place, bytes, indexes).map_err(too_large)?;
            let of = writes.entry(place).or_default();
            if of.last().is_none_or(|part| part.table != table.id()) {
                of.push(table.part(Vec::new()));
            }
            let part = of.last_mut().expect("pushed above");
            part.ops.push(op);
            part.seen.push(seen);
        }
    }
    let partitions: Vec<PartitionId> = writes.keys().copied().collect();
    let writes = writes.into_iter().map(|(partition, parts)| PartitionWrites { partition, parts }).collect();
    let asked = CommitRequest { snapshot, writes };
    let asked = match checked {
        None => ManagerOp::Commit(asked),
        Some(Checked { at, parents }) if parents.is_empty() => ManagerOp::CommitChecked(asked, at),
        Some(Checked { at: checked, parents }) => ManagerOp::CommitLooked { asked, checked, parents },
    };
    let asked = manager(handle).await?.call(asked);
    let decided = fault::decided(handle.call(asked.within(CALL)).await)?;
    if let (Decided::Done(answer), Some(late)) = (&decided, handle.late())
        && !are_secured(handle, answer.position(), partitions).await
    {
        // It is committed, and its client is told so (PR-370).
        late.store(true, Ordering::Release);
    }
    Ok(decided)
}

/// Waits until each of these partitions has secured a commit. False: some have not, in time.
async fn are_secured(handle: &Handle, commit: Position, partitions: Vec<PartitionId>) -> bool {
    let deadline = Instant::now() + Duration::from_micros(CALL.0);
    let mut securing = Securing::new(commit, partitions);
    let ask = |(partition, call): (PartitionId, Call)| {
        let (answer, answered) = oneshot::channel();
        handle.submit(call, |outcome| drop(answer.send(outcome)));
        (partition, answered)
    };
    loop {
        let map = handle.map();
        let calls = securing.asks(Securing::copies(&map), |partition| Owner::of(&map, partition));
        let asked: Vec<_> = calls.into_iter().map(ask).collect();
        for (partition, answered) in asked {
            // The node may go down.
            if let Ok(outcome) = answered.await {
                securing.answered(partition, &outcome);
            }
        }
        match securing.rest() {
            None => return true,
            Some(_) if Instant::now() >= deadline => return false,
            Some(rest) => sleep(Duration::from_micros(rest.0)).await,
        }
    }
}

/// True if a row of these is now another one than where it was seen.
pub async fn have_changed(
    handle: &Handle,
    tables: &BTreeMap<TableId, Table>,
    parts: &[Written],
) -> Result<bool, Failure> {
    let now = begin(handle, &View::default()).await?;
    for Written { table, ops, seen } in parts {
        let Some(table) = tables.get(table) else { continue };
        for (op, seen) in ops.iter().zip(seen).take(MAX_LOOKED_AT) {
            let then = View::default().at_commit(*seen, &[]);
            let before = read::get(handle, table, op.key(), &then).await?;
            if before != read::get(handle, table, op.key(), &now).await? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn too_large(why: TooLarge) -> Failure {
    Failure::new(code::LIMIT, why.to_string()).hint("commit more often")
}

/// The same as a put or a deletion. A row that is locked is written as it is. `None`: it is another one.
async fn put(handle: &Handle, table: &Table, op: RowOp, seen: Position) -> Result<Option<RowOp>, Failure> {
    Ok(Some(match op {
        RowOp::Put { key, row } | RowOp::Insert { key, row } | RowOp::Update { key, row } => {
            RowOp::Put { key, row }
        }
        RowOp::Delete { key } => RowOp::Delete { key },
        RowOp::Keep { key } => {
            let view = View::default().at_commit(seen, &[]);
            let Some(row) = read::get(handle, table, &key, &view).await? else { return Ok(None) };
            RowOp::Put { key, row }
        }
    }))
}
