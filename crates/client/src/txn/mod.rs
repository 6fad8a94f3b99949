//! Transactions over any partitions of a database ([`types::commits`]): snapshot isolation, the first
//! committer wins.
//!
//! ```text
//! let mut transaction = client.begin(&database)?;
//! let row = client.get_in(&transaction, &table, &key)?;
//! transaction.put(&table, &changed)?;
//! client.commit(transaction)?;
//! ```
//!
//! Nothing leaves the client before the commit. A commit that was acknowledged is in the transaction
//! manager's log; the partitions are told behind that, and whoever reads a snapshot waits for what it must
//! show.

mod background;
mod checks;
mod gap;
mod open;
mod plain;
mod reads;
mod recovery;
mod secure;
mod snapshots;
mod stale;
mod steps;
mod unknown;

pub(crate) use background::Background;
pub use gap::{Gap, GapStep, Next};
pub use open::{OpenTransaction, OpenTransactions};
pub use reads::{AtMost, StoredRows};
pub use recovery::{Owner, Part, Pass, Steps};
pub use secure::Securing;
pub use stale::{ANYWHERE, Secured};
pub use steps::{Doing, KnownCommits, Manager, SnapshotAsk, Step};

use crate::call::{Answer, Call, FailKind};
use crate::client::Client;
use crate::database::Database;
use crate::error::ClientError;
use crate::table::{Table, micros, unexpected};
use bytes::Bytes;
use checks::Checked;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use types::data::{Row, Value};
use types::system::COMMITS;
use types::{Holds, PartitionId, Position, TableId};
use wire::commit::{PartitionWrites, WriteSetSize};
use wire::control::CreateTable;
use wire::request::{ReadSnapshot, TablePart};
use wire::{Body, CommitAnswer, CommitRequest, ManagerOp, Op, RowOp};

/// How often [`Client::transact`] begins again.
const MAX_ATTEMPTS: u32 = 100;
/// The first pause between two attempts; it grows.
const PAUSE: Duration = Duration::from_millis(1);
/// The most transactions of one client that are open at once.
pub const MAX_OPEN: usize = 10_000;
/// A key that a transaction has written.
type Written = (TableId, Bytes);

/// A transaction that is being executed. It holds what it will write; dropped, it has never been.
#[derive(Clone, Debug)]
pub struct Transaction {
    database: Database,
    snapshot: Position,
    writes: BTreeMap<Written, Write>,
    /// The tables that it writes, as they were known last.
    tables: BTreeMap<TableId, Table>,
    size: WriteSetSize,
    /// It reads what all have secured, and writes nothing.
    secured: Option<Secured>,
    /// As long as it is there it counts among those of its client.
    _open: OpenTransaction,
}

/// What a transaction does to a row.
#[derive(Clone, Debug)]
struct Write {
    partition: PartitionId,
    /// The schema version by which it is encoded.
    schema: u32,
    /// Indexes of the table.
    indexes: usize,
    /// None: it is deleted.
    row: Option<Bytes>,
}

impl Write {
    fn bytes(&self, key: &Bytes) -> usize {
        key.len() + self.row.as_ref().map_or(0, Bytes::len)
    }
}

impl Transaction {
    fn new(database: &Database, snapshot: Position, open: OpenTransaction) -> Transaction {
        Transaction {
            database: database.clone(),
            snapshot,
            writes: BTreeMap::new(),
            tables: BTreeMap::new(),
            size: WriteSetSize::default(),
            secured: None,
            _open: open,
        }
    }

    /// The same read at its snapshot.
    fn asks_for(
        &self,
        known: &KnownCommits,
        table: &Table,
        partition: PartitionId,
        read: impl Fn(ReadSnapshot) -> Op,
    ) -> Call {
        match &self.secured {
            Some(secured) => table.call(partition, read(secured.snapshot(partition))).at_level(ANYWHERE),
            None => table.call(partition, read(known.at(self.snapshot, partition))),
        }
    }

    /// The timestamp of what it reads.
    pub fn snapshot(&self) -> Position {
        self.snapshot
    }

    /// How many rows it has written or deleted so far.
    pub fn written(&self) -> usize {
        self.writes.len()
    }

    /// Writes a row, whatever was there. The error: it is none of the table, or the transaction would write
    /// more than it may ([`ClientError::TooLarge`]); then it is what it was.
    pub fn put(&mut self, table: &Table, row: &Row) -> Result<(), ClientError> {
        self.of_database(table)?;
        table.takes_rows()?;
        let (key, stored) = table.encode(&table.widened(row))?;
        self.write(table, key, Some(stored))
    }

    /// Removes a row, if there is one.
    pub fn delete(&mut self, table: &Table, key: &[Value]) -> Result<(), ClientError> {
        self.of_database(table)?;
        self.write(table, table.key(key)?, None)
    }

    /// Writes a row as it is stored, or removes it: its encoded key and its encoded row, by the schema that
    /// the table has.
    pub fn write_stored(&mut self, table: &Table, key: Bytes, row: Option<Bytes>) -> Result<(), ClientError> {
        self.of_database(table)?;
        self.write(table, key, row)
    }

    fn write(&mut self, table: &Table, key: Bytes, row: Option<Bytes>) -> Result<(), ClientError> {
        if self.secured.is_some() {
            let why = "the transaction reads what all have secured, and writes nothing".into();
            return Err(ClientError::Data { table: table.name().into(), why });
        }
        let indexes = table.schema().constraints().iter().filter(|one| one.indexed().is_some()).count();
        let partition = table.partition_of(&key)?;
        let write = Write { partition, schema: table.schema().version(), indexes, row };
        let bytes = write.bytes(&key);
        let written = (table.id(), key);
        let before = self.writes.get(&written).map(|old| (old.partition, old.bytes(&written.1), old.indexes));
        if let Some((partition, bytes, indexes)) = before {
            self.size.remove(partition, bytes, indexes);
        }
        if let Err(why) = self.size.add(partition, bytes, indexes) {
            if let Some((partition, bytes, indexes)) = before {
                self.size.add(partition, bytes, indexes).expect("it had room");
            }
            return Err(ClientError::TooLarge(why));
        }
        self.writes.insert(written, write);
        let version = table.schema().version();
        if self.tables.get(&table.id()).is_none_or(|known| known.schema().version() != version) {
            self.tables.insert(table.id(), table.clone());
        }
        Ok(())
    }

    fn of_database(&self, table: &Table) -> Result<(), ClientError> {
        match table.record().database() == Some(self.database.id()) {
            true => Ok(()),
            false => Err(ClientError::Data {
                table: table.name().into(),
                why: format!("the transaction is one of database `{}`", self.database.name()),
            }),
        }
    }

    /// What it asks of the transaction manager; none: it has written nothing.
    fn asks(self) -> Option<CommitRequest> {
        let mut writes: BTreeMap<PartitionId, Vec<TablePart>> = BTreeMap::new();
        for ((table, key), Write { partition, schema, row, .. }) in self.writes {
            let parts = writes.entry(partition).or_default();
            if parts.last().is_none_or(|part| part.table != table) {
                parts.push(TablePart { table, schema, ops: Vec::new(), seen: Vec::new() });
            }
            let op = match row {
                Some(row) => RowOp::Put { key, row },
                None => RowOp::Delete { key },
            };
            parts.last_mut().expect("pushed above").ops.push(op);
        }
        let named = |(partition, parts)| PartitionWrites { partition, parts };
        let writes: Vec<PartitionWrites> = writes.into_iter().map(named).collect();
        (!writes.is_empty()).then_some(CommitRequest { snapshot: self.snapshot, writes })
    }
}

impl Client {
    /// Creates a database whose transactions reach over all its partitions, and the transaction manager if it
    /// is not there yet.
    pub fn create_global_database(&mut self, request: &CreateTable) -> Result<Database, ClientError> {
        self.transaction_manager_made()?;
        self.create_database(&CreateTable { global: true, holds: Holds::Database, ..request.clone() })
    }

    fn transaction_manager_made(&mut self) -> Result<(), ClientError> {
        if self.cluster_map().table(COMMITS).is_some() {
            return Ok(());
        }
        let nodes = self.cluster_map().nodes().count();
        let made = self.create_table(&CreateTable::system(COMMITS, nodes).expect("a table of this version"));
        match made {
            Ok(_) => Ok(()),
            // Somebody else may have been faster.
            Err(error) => self.wait_table(COMMITS).map(drop).map_err(|_| error),
        }
    }

    /// The transaction manager's partition. It is waited for where there is a database that needs it: its
    /// record may be on its way.
    pub fn transaction_manager(&mut self) -> Result<Manager, ClientError> {
        let known = self.cluster_map().databases().any(|database| database.is_global());
        self.manager_within(if known { self.timeout() } else { Duration::ZERO })
    }

    fn manager_within(&mut self, limit: Duration) -> Result<Manager, ClientError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(record) = self.cluster_map().table(COMMITS) {
                return Ok(Manager::of(record));
            }
            if Instant::now() >= deadline {
                return Err(ClientError::NoTable(COMMITS.into()));
            }
            self.turn(deadline)?;
        }
    }

    /// Begins a transaction. It reads what was committed before this call, by whomever. No more than
    /// [`MAX_OPEN`] of them are open at once. Before, it finds out what became of commits that ended as
    /// [`ClientError::OutcomeUnknown`]: from here on none of them comes later, and
    /// [`Client::resolved_commits`] says how they ended (PR-361).
    pub fn begin(&mut self, database: &Database) -> Result<Transaction, ClientError> {
        let manager = self.manager_for(database)?;
        self.resolve_commits()?;
        let snapshot = self.snapshot_now(manager)?;
        let open = self.background.begun(database, snapshot);
        Ok(Transaction::new(database, snapshot, open))
    }

    /// The timestamp of a snapshot of now.
    fn snapshot_now(&mut self, manager: Manager) -> Result<Position, ClientError> {
        let answer = self.answer_to(manager.call(ManagerOp::Snapshot { since: Position::ZERO }))?;
        match answer.body {
            Body::Commit(CommitAnswer::Snapshot { at, .. }) => Ok(at),
            other => Err(unexpected(&other)),
        }
    }

    /// Begins a transaction that reads what all partitions of the database have secured (T_P*), and writes
    /// nothing: it may be older than what was committed last, also by this client, and lags while a partition
    /// does. Any in-sync replica answers it, of the transaction manager's partition, too: so it goes on
    /// whichever of them fails.
    pub fn begin_stale(&mut self, database: &Database) -> Result<Transaction, ClientError> {
        let manager = self.manager_for(database)?;
        // A copy may not have heard yet of what is secured since.
        let answer = match self.call(Secured::call_of_primary(manager)) {
            Ok(answer) => answer,
            Err(_) => self.call(Secured::call(manager))?,
        };
        let own: BTreeSet<PartitionId> = database.partitions().collect();
        let secured = Secured::of(&answer, |partition| own.contains(&partition))?;
        let open = self.background.begun(database, secured.at());
        Ok(Transaction { secured: Some(secured.clone()), ..Transaction::new(database, secured.at(), open) })
    }

    /// The transaction manager, for one more transaction of this database.
    fn manager_for(&mut self, database: &Database) -> Result<Manager, ClientError> {
        if !database.record().is_global() {
            return Err(ClientError::Data {
                table: database.name().into(),
                why: "transactions of this database reach over one partition: make one with `--transactions global`"
                    .into(),
            });
        }
        if self.background.open.count() >= MAX_OPEN {
            return Err(ClientError::TooManyOpen(MAX_OPEN));
        }
        self.manager_within(self.timeout())
    }

    /// Commits a transaction: from then on everybody who begins one sees it. The timestamp; of one that has
    /// written nothing that of its snapshot. [`ClientError::Changed`]: another one has written one of its
    /// rows since it began, or no acknowledgement came and its session has found that it was not made;
    /// [`ClientError::Violates`]: a constraint of its tables, or of those that refer to them, forbids it.
    /// Then nothing was done. [`ClientError::OutcomeUnknown`]: the session could not be asked either, for
    /// five seconds; the next [`Client::begin`] asks it again.
    pub fn commit(&mut self, transaction: Transaction) -> Result<Position, ClientError> {
        let snapshot = transaction.snapshot;
        let checked = self.checked(&transaction)?;
        let Some(asked) = transaction.asks() else { return Ok(snapshot) };
        let written: Vec<PartitionId> = asked.writes.iter().map(|writes| writes.partition).collect();
        let asked = match checked {
            None => ManagerOp::Commit(asked),
            Some(Checked { at, parents }) if parents.is_empty() => ManagerOp::CommitChecked(asked, at),
            Some(Checked { at: checked, parents }) => ManagerOp::CommitLooked { asked, checked, parents },
        };
        let manager = self.transaction_manager()?;
        let answer = self.answer_to(manager.call(asked))?;
        let Body::Commit(CommitAnswer::Committed(_)) = &answer.body else {
            return Err(unexpected(&answer.body));
        };
        self.tend()?;
        if self.background.synchronous {
            self.wait_until_secured(answer.position(), written)?;
        }
        Ok(answer.position())
    }

    /// Runs a transaction, again and again until it is committed: `act` may be called several times, and must
    /// do nothing but by the transaction.
    pub fn transact<T>(
        &mut self,
        database: &Database,
        act: impl FnMut(&mut Client, &mut Transaction) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.transact_at(database, act).map(|(value, _)| value)
    }

    /// The same, with the timestamp of the commit.
    pub fn transact_at<T>(
        &mut self,
        database: &Database,
        mut act: impl FnMut(&mut Client, &mut Transaction) -> Result<T, ClientError>,
    ) -> Result<(T, Position), ClientError> {
        let (deadline, mut pause) = (Instant::now() + self.timeout(), PAUSE);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut transaction = self.begin(database)?;
            let done =
                act(self, &mut transaction).and_then(|value| self.commit(transaction).map(|at| (value, at)));
            match done {
                Err(error) if error.begins_again() && attempt < MAX_ATTEMPTS && Instant::now() < deadline => {
                    self.turn(Instant::now() + pause)?;
                    pause = (pause * 2).min(Duration::from_millis(64));
                }
                done => return done,
            }
        }
    }

    /// Makes a call of a transaction, with what it takes that its commits are there.
    pub fn complete(&mut self, goal: Call) -> Result<Body, ClientError> {
        self.transaction_manager()?;
        self.answer_to(goal).map(|answer| answer.body)
    }

    fn answer_to(&mut self, goal: Call) -> Result<Answer, ClientError> {
        let limit = micros(self.timeout());
        let ticket = self.submit_in_transaction(Client::BLOCKING, goal.within(limit));
        self.wait_for(ticket)?.outcome.into_result()
    }
}

impl ClientError {
    /// True if the transaction did nothing, and may succeed if it is begun again.
    pub fn begins_again(&self) -> bool {
        let old = |kind: &FailKind| matches!(kind, FailKind::TooOld | FailKind::Behind(_));
        match self {
            ClientError::Changed => true,
            ClientError::Failed { kind, .. } => old(kind),
            _ => false,
        }
    }
}
