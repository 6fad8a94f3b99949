//! Bare tables whose rows are being copied somewhere else ([`crate::moving`]): nobody writes them meanwhile,
//! and whoever waits for one ends a hold of which nobody speaks any more (PR-402).

use crate::ddl::on_a_client;
use crate::driver::Handle;
use client::{Client, Map, wall_ms};
use std::sync::Arc;
use std::time::Duration;
use types::{Moves, TableId, TableRecord, system};
use wire::RecordText;
use wire::control::AdminCommand;
use wire::moves::{MoveStep, MoveTable};

/// A table that somebody holds and has not spoken of for so long is written again.
pub const STALE_HOLD_MS: u64 = 60_000;

/// How long this node may take to hear that a hold was ended. What is done is done.
const HEARD: Duration = Duration::from_secs(5);

/// The bare tables that are held, as a cluster map has them.
fn all(map: &Map) -> impl Iterator<Item = &Arc<TableRecord>> {
    map.tables().filter(|table| table.policy.moves.is_some())
}

/// True if a bare table is held of which this is true, or one of its partitions is still, as far as this node
/// knows.
pub fn any(handle: &Handle, concerns: impl Fn(&TableRecord) -> bool) -> bool {
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

/// Ends these holds. What cannot be ended now is left to the next one who waits.
pub async fn lift(handle: &Handle, abandoned: Vec<Arc<TableRecord>>) {
    for table in abandoned {
        let Some(moves) = table.policy.moves else { continue };
        let (number, version) = (moves.number, table.policy.version);
        let step = MoveStep::Free { said_ms: Some(table.held_ms()) };
        let asked = MoveTable { table: table.id, number, version, step };
        let freed = on_a_client(handle, move |client: &mut Client| {
            client.admin(AdminCommand::MoveTable(RecordText::new(&asked)))?;
            // It may not be there: then there is nothing to drop.
            let _ = client.admin(AdminCommand::DropTable(system::moving(number)));
            Ok(())
        });
        if freed.await.is_ok() {
            let holds = |found: Option<Moves>| found.is_some_and(|found| found.number == number);
            let known = |map: &Map| {
                let mut own = map.partitions().filter(|record| record.table == table.id);
                let table = map.owner(table.id).and_then(|now| now.policy.moves);
                !holds(table) && own.all(|record| !holds(record.moves()))
            };
            let _ = tokio::time::timeout(HEARD, handle.wait_map(known)).await;
        }
    }
}
