//! Tables that have moved into partitions of their own: whoever needs one gives it its name, if that is not
//! done yet, and drops what nobody fills any more ([`crate::moving`], PR-378, PR-379, PR-454).

use crate::catalog::{Catalog, Moved};
use crate::ddl::on_a_client;
use crate::driver::{Handle, Place};
use crate::fault;
use crate::held;
use client::{Client, ClientError, Database, wall_ms};
use pg::Failure;
use std::sync::Arc;
use std::time::Duration;
use types::{TableId, TableRecord, system};
use wire::control::{AdminCommand, AlterTable};
use wire::{RecordText, TableChange};

/// How long this node may take to hear that a table has got its name. What is done is done.
const HEARD: Duration = Duration::from_secs(5);

/// What stands for a table that has moved stays for so long once the table has its name: other nodes hear of
/// the name meanwhile.
pub const LINGER: Duration = Duration::from_secs(1);

/// Waits until this node knows a table with partitions of its own by this name.
pub async fn heard(handle: &Handle, name: &str) {
    let bare = handle.bare();
    let known = bare.wait_catalog(|catalog| catalog.table(name).is_some());
    // Whoever dropped it meanwhile was faster.
    let _ = tokio::time::timeout(HEARD, known).await;
    handle.look_again().await;
}

/// Waits until this node knows another table with partitions of its own by this name, or none.
pub async fn heard_instead(handle: &Handle, (name, old): (&str, TableId)) {
    let bare = handle.bare();
    let known = bare.wait_catalog(|catalog| catalog.table(name).is_none_or(|table| table.id != old));
    let _ = tokio::time::timeout(HEARD, known).await;
    handle.look_again().await;
}

/// The tables that there are now, once those that have moved out have got their names, and what nobody fills
/// any more is gone. What cannot be done about that now is left to the next one.
pub async fn settled(handle: &Handle) -> Result<Arc<Catalog>, Failure> {
    // Seen before the catalog is: what says that a table is needed is there before the table (PR-379), and
    // before a hold (PR-404).
    let (filled, abandoned) = (filled(handle), held::abandoned(handle));
    let reads = handle.database().is_some();
    let catalog = handle.look().await?;
    if handle.place() == Place::Bare || handle.is_overlaid() {
        return Ok(catalog);
    }
    let mut is_same = catalog.under_way.moved.is_empty() && catalog.under_way.following.is_empty();
    if handle.place() == Place::Shared {
        held::lift(handle, abandoned, &catalog).await;
        let left: Vec<String> = unneeded(&catalog, filled).collect();
        let (left, named) = settled_elsewhere(handle, left).await;
        is_same &= !named;
        // As long as this node has not heard of the partition it has not read what that speaks of.
        for name in left.into_iter().filter(|_| reads) {
            let gone = move |client: &mut Client| client.admin(AdminCommand::DropTable(name)).map(drop);
            drop(on_a_client(handle, gone).await);
        }
    }
    held::settle(handle, &catalog.under_way.following).await;
    for one in &catalog.under_way.moved {
        settle_by(handle, one).await;
    }
    if is_same { Ok(catalog) } else { handle.look().await }
}

/// Gives a table that has moved its name, and waits until this node has heard of it.
async fn settle_by(handle: &Handle, moved: &Moved) {
    let Ok(database) = handle.database_record() else { return };
    let own = moved.clone();
    let named = move |client: &mut Client| Ok(settle(client, &database, &own));
    if matches!(on_a_client(handle, named).await, Ok(Ok(true))) {
        heard(handle, &moved.name).await;
    }
}

/// Those of these tables that no other database speaks of; what cannot be read may speak of any (PR-454).
/// What has moved out of another database gets its name: true if that was done for some.
async fn settled_elsewhere(handle: &Handle, mut left: Vec<String>) -> (Vec<String>, bool) {
    let mut named = false;
    if left.is_empty() {
        return (left, named);
    }
    let others: Vec<TableId> = handle.map().databases().map(|database| database.id).collect();
    for id in others.into_iter().filter(|id| handle.database() != Some(*id)) {
        let there = handle.within(Place::In(id));
        let Ok(catalog) = there.look().await else { return (Vec::new(), named) };
        let gone = unneeded(&catalog, left.iter().filter_map(|name| numbered(name)).collect());
        left = gone.collect();
        for one in &catalog.under_way.moved {
            settle_by(&there, one).await;
            named = true;
        }
    }
    (left, named)
}

/// A table that gets rows, with the number of its move.
fn numbered(name: &str) -> Option<(TableId, String)> {
    Some((system::moves(name)?, name.to_string()))
}

/// Gives a table that has moved its name, and drops what says so if it has done that for long. False:
/// somebody has dropped the table.
fn settle(client: &mut Client, database: &Database, moved: &Moved) -> Result<bool, Failure> {
    let is_there = name(client, moved)?;
    let age = Duration::from_millis(wall_ms().saturating_sub(moved.since_ms));
    if !is_there || age > LINGER {
        forget(client, database, moved)?;
    }
    Ok(is_there)
}

/// Tables that get rows of others, as the cluster map has them, by the numbers of the moves; but for those of
/// bare tables that are held: as long as one is, it can still be decided that the rows are there.
fn filled(handle: &Handle) -> Vec<(TableId, String)> {
    let map = handle.map();
    let held = held::numbers(&map);
    let of = |table: &Arc<TableRecord>| numbered(&table.name);
    map.tables().filter_map(of).filter(|(number, _)| !held.contains(number)).collect()
}

/// Those of them that nothing speaks of in a catalog that was read later: their moves were given up.
pub fn unneeded(catalog: &Catalog, filled: Vec<(TableId, String)>) -> impl Iterator<Item = String> {
    let under_way = &catalog.under_way;
    let fills = under_way.fills.iter().map(|fill| fill.id);
    let needed: Vec<TableId> = fills.chain(under_way.moved.iter().map(|moved: &Moved| moved.id)).collect();
    filled.into_iter().filter(move |(number, _)| !needed.contains(number)).map(|(_, name)| name)
}

/// Gives the rows of a table that has moved its name. It may be done by several at once, and again. False:
/// somebody has dropped the table since it got it.
pub fn name(client: &mut Client, moved: &Moved) -> Result<bool, Failure> {
    let (name, rename) = (system::moving(moved.id), Some(moved.name.clone()));
    let request = AlterTable { name, rename, ..AlterTable::default() };
    match client.admin(AdminCommand::AlterTable(RecordText::new(&request))) {
        Ok(_) => Ok(true),
        Err(ClientError::Admin { status: 3, .. }) => Ok(false),
        Err(error) => Err(fault::of_client(error)),
    }
}

/// Drops what says in the catalog that a table has moved, once it has its name.
pub fn forget(client: &mut Client, database: &Database, moved: &Moved) -> Result<(), Failure> {
    let gone = TableChange::Drop { table: moved.id, schema: moved.version };
    match client.call(database.transact(vec![gone], Vec::new(), None)).map_err(fault::of_client) {
        // Another one was faster.
        Err(failure) if !fault::is_stale(&failure) => Err(failure),
        _ => Ok(()),
    }
}
