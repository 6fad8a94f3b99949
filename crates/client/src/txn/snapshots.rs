//! Snapshots of transactions that are open for long: partitions keep one for ten seconds, and longer if
//! somebody asks for it again ([`wire::Op::Hold`]).

use super::open::OpenTransactions;
use crate::call::{Call, Ticket};
use crate::client::{Client, Options};
use crate::database::Database;
use crate::error::ClientError;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use types::{Micros, Position};
use wire::Op;
use wire::request::ReadSnapshot;

/// Between two times that partitions are asked. A transaction that is open for less than this is not asked
/// for.
const EACH: Duration = Duration::from_millis(2_000);
/// A partition that does not answer in this time is asked the next time.
const ANSWER_LIMIT: Micros = Micros::from_millis(1_500);

/// Has partitions keep what a client's transactions read, as long as these are open. It does so by a thread
/// and connections of its own, as the client itself may be left alone between two reads; there are
/// connections only while a transaction is open for two seconds and more. Of each database it asks for the
/// oldest snapshot alone: what is above that is kept, too (PR-466).
#[derive(Debug)]
pub(crate) struct SnapshotKeeper {
    options: Options,
    /// There once the thread is, which ends with it.
    running: Option<Sender<()>>,
}

impl SnapshotKeeper {
    /// One that keeps nothing yet. `options`: how the cluster is reached.
    pub fn new(options: Options) -> SnapshotKeeper {
        let options = Options { timeout: EACH, wait: false, local: None, ..options };
        SnapshotKeeper { options, running: None }
    }

    /// From now on it keeps what these read.
    pub fn start(&mut self, open: &OpenTransactions) {
        if self.running.is_some() {
            return;
        }
        let (running, ended) = channel();
        let (options, open) = (self.options.clone(), open.clone());
        let work = move || keep(&options, &open, &ended);
        // Without a thread snapshots are kept for ten seconds, and the next transaction tries again.
        if thread::Builder::new().name("snapshots".into()).spawn(work).is_ok() {
            self.running = Some(running);
        }
    }
}

fn keep(options: &Options, open: &OpenTransactions, ended: &Receiver<()>) {
    let mut client = None;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EACH) {
        let calls = calls(&open.snapshots(EACH));
        // Who could not be asked is asked over other connections the next time.
        client = if calls.is_empty() { None } else { ask(client, options, calls).ok() };
    }
}

/// Every partition of each database is asked to keep its snapshot.
fn calls(snapshots: &[(Database, Position)]) -> Vec<Call> {
    let each = snapshots.iter().flat_map(|(database, at)| {
        let op = Op::Hold { at: ReadSnapshot::Commit { at: *at, after: Position::ZERO } };
        let table = database.id();
        database.partitions().map(move |partition| Call::new(table, 0, partition, op.clone()))
    });
    each.map(|call| call.within(ANSWER_LIMIT)).collect()
}

/// Makes these calls. What they are answered with is no matter: who reads what is not kept is told so.
fn ask(client: Option<Client>, options: &Options, calls: Vec<Call>) -> Result<Client, ClientError> {
    let mut client = match client {
        Some(client) => client,
        None => Client::connect(options.clone())?,
    };
    // What has come since the last time is news of who leads what.
    client.poll(Duration::ZERO)?;
    let mut asked: BTreeSet<Ticket> =
        calls.into_iter().map(|call| client.submit(Client::BLOCKING, call)).collect();
    while !asked.is_empty() {
        for completed in client.poll(EACH)? {
            asked.remove(&completed.ticket);
        }
    }
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::{Holds, LogKind, Lsn, PartitionId, Policy, TableId, TableRecord, Term};

    #[test]
    fn pr466_every_partition_of_a_database_is_asked_to_keep_a_snapshot() {
        let schema = types::system::schema(types::system::COMMITS).expect("a system table");
        let policy = Policy::preset("durable", 1, LogKind::Disk).expect("a preset");
        let record = TableRecord {
            holds: Holds::Database,
            partitions: 2,
            first_partition: PartitionId(64),
            ..TableRecord::new(TableId(5), "bank", schema, policy)
        };
        let snapshot = Position::new(Term(2), Lsn(9));
        let database = Database::new(Arc::new(record));
        let asked = calls(&[(database, snapshot)]).into_iter();
        let asked: Vec<(TableId, PartitionId, Op)> =
            asked.map(|call| (call.table, call.partition, call.op)).collect();
        let hold = Op::Hold { at: ReadSnapshot::Commit { at: snapshot, after: Position::ZERO } };
        let expected = [64, 65].map(|partition| (TableId(5), PartitionId(partition), hold.clone()));
        assert_eq!(asked, expected);
        assert!(calls(&[]).is_empty());
    }
}
