//! Who is in a database, on any node: it is not dropped, and gets no other name, under somebody's feet.
//!
//! Each node tells the controllers several times a second which databases its gateway's clients are in. So
//! who has just come to another node may not be seen. That costs nothing but a connection: when a database is
//! gone, every node ends the sessions in it (`Handle::dropped`).

use crate::ddl::on_a_client;
use crate::driver::Handle;
use crate::system::relations::database_oid;
use crate::system::sessions::Sessions;
use client::{Client, ClientError};
use pg::Failure;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{TableId, TableRecord};
use wire::RecordText;
use wire::control::{AdminCommand, ClusterStatus};

/// How long those who are in it are given to go, as in PostgreSQL.
const GO_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Milliseconds for which counts what a node has said. One that is silent for longer is down, or cut off, and
/// hears that a database is gone when it is back.
const SILENT_MS: u64 = 1_000;

/// Waits until nobody is in a database. The error: somebody stays. `sessions`: those of this node.
pub async fn unused(handle: &Handle, sessions: &Arc<Sessions>, record: &TableRecord) -> Result<(), Failure> {
    let (id, number, sessions) = (record.id, database_oid(record), sessions.clone());
    let is_left = on_a_client(handle, move |client| {
        let deadline = Instant::now() + GO_WITHIN;
        while sessions.is_in(number) || is_somewhere(client, id)? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            client.poll(LOOK_EVERY)?;
        }
        Ok(true)
    });
    match is_left.await? {
        true => Ok(()),
        false => {
            let message = format!("database \"{}\" is being accessed by other users", record.name);
            Err(Failure::new("55006", message))
        }
    }
}

/// True if a node has said that somebody is in it.
fn is_somewhere(client: &mut Client, database: TableId) -> Result<bool, ClientError> {
    let status = RecordText(client.admin(AdminCommand::Status)?).read::<ClusterStatus>();
    let status = status.map_err(|why| ClientError::Protocol(format!("the status of the cluster: {why}")))?;
    let mut heard = status.nodes.iter().filter(|(_, silent_ms)| *silent_ms < SILENT_MS);
    Ok(heard.any(|(node, _)| node.sessions.iter().any(|(id, count)| *id == database && *count > 0)))
}
