//! Bare tables whose rows are being copied somewhere else ([`crate::moving`]): nobody writes them meanwhile,
//! and whoever waits for one ends a hold of which nobody speaks any more (PR-402), or goes on with what was
//! decided ([`settle`], PR-404).

pub mod bare;

use crate::catalog::{Catalog, Following, as_of};
use crate::ddl::on_a_client;
use crate::driver::{Handle, Place};
use crate::fault;
use bare::{BareHold, asked, refused};
use bytes::Bytes;
use client::{Client, Database, Map, wall_ms};
use pg::Failure;
use std::sync::Arc;
use std::time::Duration;
use types::{CatalogTable, Moves, TableId, TableRecord, TableState, system};
use wire::control::AdminCommand;
use wire::moves::{MoveStep, MoveTable};
use wire::request::ReadSnapshot;
use wire::{Op, RecordText, TableChange};

/// A table that somebody holds and has not spoken of for so long is written again.
pub const STALE_HOLD_MS: u64 = 60_000;

/// How long this node may take to hear that a hold was ended. What is done is done.
const HEARD: Duration = Duration::from_secs(5);

/// Whoever has decided a move does the rest of it within so long; then others do.
const SETTLES_ALONE_MS: u64 = 1_000;

/// The bare tables that are held, as a cluster map has them.
fn all(map: &Map) -> impl Iterator<Item = &Arc<TableRecord>> {
    map.tables().filter(|table| table.policy.moves.is_some())
}

/// True if a bare table is held of which this is true, or one of its partitions is still, as far as this node
/// knows. Sessions in databases have nothing to do with such.
pub fn any(handle: &Handle, concerns: impl Fn(&TableRecord) -> bool) -> bool {
    if matches!(handle.place(), Place::In(_)) {
        return false;
    }
    let map = handle.map();
    let held = map.partitions().filter(|record| record.moves().is_some());
    let mut tables = held.filter_map(|record| map.owner(record.table)).chain(all(&map));
    tables.any(|table| concerns(table))
}

/// The numbers of the moves of bare tables, as a cluster map has them.
pub fn numbers(map: &Map) -> Vec<TableId> {
    all(map).filter_map(|table| Some(table.policy.moves?.number)).collect()
}

/// The tables that are held and of which nobody has spoken for long.
pub fn abandoned(handle: &Handle) -> Vec<Arc<TableRecord>> {
    let over = |table: &&Arc<TableRecord>| wall_ms().saturating_sub(table.held_ms()) > STALE_HOLD_MS;
    all(&handle.map()).filter(over).cloned().collect()
}

/// Ends the holds of these tables, or goes on with what was decided. What cannot be done now is left to the
/// next one who waits. `catalog` was read behind them: a definition that it lacks was dropped, and nothing
/// can be decided any more. So is that of another database into which one of them moves (PR-454).
pub async fn lift(handle: &Handle, abandoned: Vec<Arc<TableRecord>>, catalog: &Catalog) {
    for table in abandoned {
        let Some(moves) = table.policy.moves else { continue };
        let done = match moves.into {
            None => free(handle, &table, moves, None).await,
            Some(database) if handle.database() == Some(database) => {
                lift_by(handle, catalog, (&table, moves)).await
            }
            // Its definition is gone with the database.
            Some(database) if handle.map().owner(database).is_none() => {
                free(handle, &table, moves, None).await
            }
            Some(database) => {
                let there = handle.within(Place::In(database));
                match there.look().await {
                    Ok(catalog) => lift_by(&there, &catalog, (&table, moves)).await,
                    // Its definition cannot be looked for.
                    Err(_) => continue,
                }
            }
        };
        if done.is_ok() {
            let holds = |found: Option<Moves>| found.is_some_and(|found| found.number == moves.number);
            let known = |map: &Map| {
                let mut own = map.partitions().filter(|record| record.table == table.id);
                let table = map.owner(table.id).and_then(|now| now.policy.moves);
                !holds(table) && own.all(|record| !holds(record.moves()))
            };
            let _ = tokio::time::timeout(HEARD, handle.wait_map(known)).await;
        }
    }
}

/// Ends the hold of a table that moves into the database of this handle, as its catalog says, or goes on.
async fn lift_by(
    handle: &Handle,
    catalog: &Catalog,
    (table, moves): (&TableRecord, Moves),
) -> Result<(), Failure> {
    let under_way = &catalog.under_way;
    let fill = under_way.fills.iter().find(|fill| fill.id == moves.number);
    let gone = fill.map(|fill| TableChange::Drop { table: fill.id, schema: fill.version });
    match under_way.named.contains(&moves.number) {
        true => finish_by(handle, (moves.number, table.id)).await,
        false => free(handle, table, moves, gone).await,
    }
}

/// Ends a hold, once its definition is dropped, if there is one: a hold does not end while its move can still
/// be decided.
async fn free(
    handle: &Handle,
    table: &TableRecord,
    moves: Moves,
    gone: Option<TableChange>,
) -> Result<(), Failure> {
    let database = gone.as_ref().map(|_| handle.database_record()).transpose()?;
    let (number, version) = (moves.number, table.policy.version);
    let step = MoveStep::Free { said_ms: Some(table.held_ms()) };
    let request = MoveTable { table: table.id, number, version, step };
    on_a_client(handle, move |client: &mut Client| {
        if let (Some(database), Some(gone)) = (database, gone) {
            client.call(database.transact(vec![gone], Vec::new(), None))?;
        }
        asked(client, request)?;
        if moves.into.is_none() {
            // It may not be there: then there is nothing to drop.
            let _ = client.admin(AdminCommand::DropTable(system::moving(number)));
        }
        Ok(())
    })
    .await
}

/// Does what is left of moves that were decided in the catalog, unless whoever decided them is at it.
pub async fn settle(handle: &Handle, following: &[Following]) {
    let over = |one: &&Following| wall_ms().saturating_sub(one.since_ms) > SETTLES_ALONE_MS;
    for one in following.iter().filter(over) {
        // If it cannot be done now, the next one who needs it does it.
        drop(finish_by(handle, (one.id, one.of)).await);
        handle.outdate();
    }
}

async fn finish_by(handle: &Handle, (id, of): (TableId, TableId)) -> Result<(), Failure> {
    let database = handle.database_record()?;
    on_a_client(handle, move |client: &mut Client| Ok(finish(client, &database, (id, of)))).await?
}

/// Drops the bare table whose place the table with this id takes, once nobody reads it any more, and has that
/// one be written. It may be done by several at once, and again.
pub fn finish(client: &mut Client, database: &Database, (id, of): (TableId, TableId)) -> Result<(), Failure> {
    let known = client.cluster_map().owner(of).cloned();
    let known = known.filter(|record| record.policy.moves.is_some_and(|moves| moves.number == id));
    match known {
        Some(record) => give_way(client, &mut BareHold::of(record, id))?,
        // It is dropped already, or this cluster map is late: then that is refused, and done later.
        None => {
            let request = MoveTable { table: of, number: id, version: 0, step: MoveStep::Drop };
            asked(client, request).map_err(refused)?;
        }
    }
    be_written(client, database, id)
}

/// Drops a bare table whose rows are elsewhere, once nobody reads it any more.
pub fn give_way(client: &mut Client, hold: &mut BareHold) -> Result<(), Failure> {
    match hold.close(client) {
        Ok(()) => hold.ask(client, MoveStep::Drop).map(drop).map_err(refused),
        // Its partitions do not answer any more: somebody else has dropped it.
        Err(_) if hold.is_gone(client) => Ok(()),
        Err(why) => Err(why),
    }
}

/// The bare table whose place this one takes is dropped: it is written from now on.
pub fn be_written(client: &mut Client, database: &Database, id: TableId) -> Result<(), Failure> {
    let follows = |table: &CatalogTable| table.follows().is_some() && table.fills.is_none();
    let Some(table) = definition(client, database, id)?.filter(follows) else { return Ok(()) };
    let version = client.numbers(1).map_err(fault::of_client)?;
    let from = table.schema.version();
    let to = RecordText::new(&as_of(database.table(table).record(), version));
    let change = TableChange::Alter { from, to };
    match client.call(database.transact(vec![change], Vec::new(), None)).map_err(fault::of_client) {
        // Another one was faster.
        Err(failure) if !fault::is_stale(&failure) => Err(failure),
        _ => Ok(()),
    }
}

/// What the catalog has under this id now, unless it was dropped.
pub fn definition(
    client: &mut Client,
    database: &Database,
    id: TableId,
) -> Result<Option<CatalogTable>, Failure> {
    let key = Bytes::copy_from_slice(&id.0.to_be_bytes());
    let op = Op::Get { key: key.clone(), at: ReadSnapshot::Newest };
    let call = database.catalog().call(database.partition(), op);
    let answer = client.call(call).map_err(fault::of_client)?;
    let Some((_, stored)) = answer.row() else { return Ok(None) };
    let (state, table) = database.read_row(&key, stored).map_err(fault::of_client)?;
    Ok((state != TableState::Dropping).then_some(table))
}
