//! Transactions: read anywhere, each partition at one state; write in one partition, at COMMIT, unless a row
//! that is written or locked has changed since (first committer wins).
//!
//! | what | where |
//! | --- | --- |
//! | one transaction: modes, savepoints, its end | here |
//! | what it has written | [`buffer`] |
//! | ON CONFLICT, and rows that come meanwhile | [`arbiter`], [`met`] |
//! | how much memory that takes | [`memory`] |
//! | what memory has no room for | [`spill`] |
//! | COMMIT: one write of everything; more than one has is `crate::large::commit`'s | [`commit`] |
//! | which tables it has made and dropped | [`defined`] |
//! | what of them is stored already | [`acknowledged`] |
//! | at which states it reads | [`view`] |
//! | keeping those states | [`keeper`] |
//! | rows that several transactions of a node want | [`turns`] |
//! | rows that transactions of several nodes want | [`shared_turns`] |
//! | transactions over all partitions of a database | [`global`] |

pub mod acknowledged;
pub mod arbiter;
pub mod buffer;
pub mod commit;
pub mod defined;
pub mod global;
pub mod keeper;
pub mod memory;
pub mod met;
pub mod shared_turns;
pub mod spill;
#[cfg(test)]
mod spill_tests;
pub mod turns;
pub mod view;

pub use acknowledged::Acknowledged;
pub use arbiter::Arbiter;
pub use buffer::{After, Buffer, Edit, Limit};
pub use defined::{Definitions, Loads};
pub use memory::{NodeMemory, Room};
pub use spill::{SpillCounters, SpillSettings};
pub use turns::{TurnGuard, Turns};
pub use view::{Known, View};

use crate::catalog::Catalog;
use crate::constraints::violation::{self, Refused};
use crate::database;
use crate::deferring::{Setting, Timing};
use crate::driver::Handle;
use crate::edits::Edits;
use crate::fault::{self, Decided};
use crate::read::CALL;
use crate::settings::Settings;
use crate::write::{self, Batch};
use buffer::UndoLog;
use bytes::Bytes;
use client::Table;
use keeper::Keeper;
use pg::{Cancel, Failure, Overdue, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::{TableId, TableRecord};
use wire::RowOp;

/// Memory that a transaction has for what it writes, however much others have: as much as one write takes.
const FREE_BYTES: usize = 32 << 20;
/// So many rows are taken in at once.
const PIECE_ROWS: usize = 10_000;

/// How far a transaction is kept apart from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// READ UNCOMMITTED, READ COMMITTED.
    #[default]
    Committed,
    /// REPEATABLE READ, which is what a transaction gets in any case.
    Repeatable,
}

impl Isolation {
    /// As SHOW has it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Committed => "read committed",
            Isolation::Repeatable => "repeatable read",
        }
    }
}

/// What BEGIN and SET TRANSACTION say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
    /// SNAPSHOT 'secured': what all partitions have secured.
    pub secured: bool,
}

struct Savepoint {
    name: String,
    /// How much there was to undo.
    undo: usize,
    settings: Settings,
    definitions: Definitions,
    timing: Timing,
}

/// A transaction that is open.
pub struct Open {
    /// It ends with the message that began it, or with the Sync.
    pub implicit: bool,
    /// A statement of it has failed: only its end is accepted.
    pub failed: bool,
    /// It does not write.
    pub read_only: bool,
    /// As the client asked for it.
    pub isolation: Isolation,
    /// When it began, in microseconds since 1970.
    pub now: i64,
    /// Tables were created or dropped in it, which is done at once.
    pub defined: bool,
    /// Those of them that it has made or emptied.
    pub emptied: BTreeSet<TableId>,
    /// Parameters as they are after a ROLLBACK.
    pub before: Settings,
    /// A statement has read or written.
    queried: bool,
    /// It reads what all partitions have secured.
    secured: bool,
    view: View,
    /// The states of all statements that still read.
    known: Known,
    /// The rows whose turn it has.
    turns: TurnGuard,
    definitions: Definitions,
    loads: Loads,
    /// The tables whose rows are written.
    tables: BTreeMap<TableId, Table>,
    undo: UndoLog,
    savepoints: Vec<Savepoint>,
    keeper: Option<Keeper>,
    /// When it looks at constraints.
    timing: Timing,
}

impl Open {
    /// Begins.
    pub fn begin(
        now: i64,
        implicit: bool,
        modes: Modes,
        (settings, turns, memory): (&Settings, &Arc<Turns>, &Arc<NodeMemory>),
    ) -> Open {
        Open {
            implicit,
            failed: false,
            read_only: modes.read_only.unwrap_or_else(|| settings.read_only()),
            isolation: modes.isolation.unwrap_or_else(|| settings.isolation()),
            now,
            defined: false,
            emptied: BTreeSet::new(),
            before: settings.clone(),
            queried: false,
            secured: false,
            view: View::writing(Buffer::with_room(Room::new(memory, FREE_BYTES))),
            known: Known::default(),
            turns: TurnGuard::new(turns),
            definitions: Definitions::default(),
            loads: Loads::default(),
            tables: BTreeMap::new(),
            undo: UndoLog::default(),
            savepoints: Vec::new(),
            keeper: None,
            timing: Timing::default(),
        }
    }

    /// SET TRANSACTION.
    pub fn set(&mut self, modes: Modes) -> Result<(), Failure> {
        if let Some(isolation) = modes.isolation.filter(|isolation| *isolation != self.isolation) {
            if self.queried {
                let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                return Err(Failure::new("25001", message));
            }
            self.isolation = isolation;
        }
        if let Some(read_only) = modes.read_only {
            if self.read_only && !read_only && self.queried {
                let message = "transaction read-write mode must be set before any query";
                return Err(Failure::new("25001", message));
            }
            self.read_only = read_only;
        }
        if modes.secured {
            self.read_secured()?;
        }
        Ok(())
    }

    /// SET TRANSACTION SNAPSHOT 'secured'. It writes nothing from here on.
    fn read_secured(&mut self) -> Result<(), Failure> {
        if self.queried {
            let message = "SET TRANSACTION SNAPSHOT must be called before any query";
            return Err(Failure::new("25001", message));
        }
        if self.isolation != Isolation::Repeatable {
            let message =
                "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ";
            return Err(
                Failure::new(code::UNSUPPORTED, message).hint("BEGIN ISOLATION LEVEL REPEATABLE READ")
            );
        }
        (self.secured, self.read_only) = (true, true);
        Ok(())
    }

    /// A statement that reads or writes begins: at which states it reads, and what the transaction has
    /// written until now.
    pub async fn statement(&mut self, handle: &Handle, patience: Duration) -> Result<View, Failure> {
        // Everybody else's commits are seen by the next statement, unless the client wants it otherwise.
        let newest = self.isolation == Isolation::Committed;
        if self.secured && !handle.is_global() {
            let hint = "it is for databases WITH (transactions = global)";
            return Err(Failure::unsupported("SET TRANSACTION SNAPSHOT 'secured'", hint));
        }
        if self.secured && !self.view.is_global() {
            self.view = global::begin_stale(handle, &self.view).await?;
        } else if handle.is_global() && (newest || !self.view.is_global()) {
            self.view = global::begin(handle, &self.view).await?;
        } else if newest {
            self.view = self.view.with_nothing_seen(handle.partitions());
        }
        self.queried = true;
        self.known.add(&self.view);
        let keeper = self.keeper.get_or_insert_with(|| {
            let kept = (self.known.clone(), self.turns.leaver());
            Keeper::start(handle.clone(), kept, patience)
        });
        match keeper.busy() {
            true => Ok(self.view.clone()),
            false => Err(silent()),
        }
    }

    /// The client is silent no more. The error: it was for too long.
    pub fn busy(&self) -> Result<(), Failure> {
        match self.keeper.as_ref().is_none_or(Keeper::busy) {
            true => Ok(()),
            false => Err(silent()),
        }
    }

    /// What ends when the client has been silent for too long, with what it is told then; none: it has no
    /// states that are kept.
    pub fn overdue(&self) -> Option<Overdue> {
        let over = self.keeper.as_ref()?.over();
        Some(Box::pin(async move {
            over.await;
            silent()
        }))
    }

    /// Waits until nobody else of this node has written the rows with these keys and not committed, and
    /// nobody of another node that takes turns. True if they may be others than before.
    pub async fn take_turns(
        &mut self,
        place: (&Handle, &Table),
        keys: Vec<Bytes>,
        wait: (Instant, &Cancel),
    ) -> Result<bool, Failure> {
        let mut waited = false;
        for key in keys {
            // COMMIT finds out, here and for those who do not wait for it.
            if self.turns.is_full() {
                break;
            }
            waited |= self.turns.take_among_all(place, key, wait).await?;
        }
        Ok(waited)
    }

    /// The rows that it has changed or locked, if they are few.
    pub fn wanted_rows(&self) -> Vec<turns::Row> {
        self.turns.wanted()
    }

    /// Others were faster at one of its rows.
    pub fn note_conflict(&self) {
        self.turns.note_conflict();
    }

    /// A statement begins. Whether the client was silent too long is told to those that read or write.
    pub fn heard(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.busy();
        }
    }

    /// A statement of it has failed. Nothing of it is committed, unless it goes back to a savepoint.
    pub fn fail(&mut self) {
        self.failed = true;
        if self.savepoints.is_empty() {
            self.turns.release();
            // Its memory is others' from here on.
            self.view.buffer = Arc::default();
        }
    }

    /// A statement has ended.
    pub fn idle(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.idle();
        }
    }

    /// The table with partitions for itself that it has written, if it has.
    pub fn has_written_apart(&self) -> Option<&Table> {
        let table = self.tables.values().find(|table| table.record().database().is_none());
        table.filter(|_| !self.view.buffer.is_empty())
    }

    /// True if nothing is written yet.
    pub fn is_unwritten(&self) -> bool {
        self.view.buffer.is_empty() && self.definitions.is_empty()
    }

    /// What it has done to tables.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Does something to tables, of which nobody else knows before COMMIT.
    pub fn define(&mut self, act: impl FnOnce(&mut Definitions)) {
        act(&mut self.definitions);
        self.view.making(self.definitions.made());
    }

    /// True if rows of a table that it has made are in its buffer.
    pub fn has_written(&self, table: TableId) -> bool {
        // What it has made is in no file: see `Open::may_spill`.
        self.view.buffer.has_rows(table)
    }

    /// Has the rows of a table that it has made written into the partition itself from now on, where nobody
    /// else sees them.
    pub async fn load(&mut self, handle: &Handle, record: &Arc<TableRecord>) -> Result<(), Failure> {
        if !self.savepoints.is_empty() {
            let hint = "its rows could not be taken back by themselves: RELEASE the savepoint first";
            return Err(Failure::unsupported("loading a table behind a savepoint", hint));
        }
        if self.definitions.has_loaded(record.id) {
            return Ok(());
        }
        if handle.is_global() {
            // What is stored as it comes is in no commit, and lazy partitions may lose it.
            let hint = "transactions of this database reach over all partitions: load it outside of BEGIN";
            return Err(Failure::unsupported("loading a table that the transaction has made", hint));
        }
        let refers_to = |id: &TableId| {
            let all = record.schema.constraints().iter().filter_map(|one| one.reference());
            all.into_iter().any(|reference| reference.parent == *id && *id != record.id)
        };
        let made = self.definitions.made();
        if made.iter().any(|(id, loaded)| !loaded && refers_to(id)) {
            let hint = "load that one first, or add the foreign key behind the rows";
            let what = "loading a table that refers to another one which the transaction has made";
            return Err(Failure::unsupported(what, hint));
        }
        let version = database::numbers(handle, 1).await?;
        let (database, table) = (handle.database_record()?, Table::new(record.clone()));
        self.loads.add(handle, table.clone());
        let call = database.transact(vec![defined::filling(record)], Vec::new(), None).within(CALL);
        match fault::decided(handle.call(call).await)? {
            Decided::Done(answer) => self.loads.stored(answer.position()),
            Decided::Exists | Decided::Changed | Decided::Violates(_) => return Err(fault::conflict()),
        }
        let ops = Buffer::writable(&mut self.view.buffer)?.take_out(record.id);
        self.view.buffer.settle(Some(&self.undo));
        self.define(|definitions| definitions.load(record.id, version));
        if !ops.is_empty() {
            let batch = Batch { partition: Some(database.partition()), ops };
            self.store(handle, (batch, &table)).await?;
        }
        Ok(())
    }

    /// Writes rows of a table that it has loaded: at once.
    pub async fn write_loaded(&mut self, handle: &Handle, edits: &mut Edits) -> Result<(), Failure> {
        if !self.savepoints.is_empty() {
            let hint = "its rows could not be taken back by themselves: RELEASE the savepoint first";
            return Err(Failure::unsupported("writing to a table that was loaded, behind a savepoint", hint));
        }
        let list = std::mem::take(&mut edits.edits);
        let ops: Vec<RowOp> = list.into_iter().filter_map(Edit::operation).collect();
        if ops.is_empty() {
            return Ok(());
        }
        self.store(handle, (Batch { partition: edits.partition, ops }, &edits.table)).await
    }

    /// Stores rows of a table that is loaded.
    async fn store(&mut self, handle: &Handle, (batch, table): (Batch, &Table)) -> Result<(), Failure> {
        let refused = Refused::new([(table, &batch.ops[..])]);
        match batch.send(handle, table, None).await? {
            Decided::Done(answer) => {
                self.loads.stored(answer.position());
                Ok(())
            }
            Decided::Violates(number) => Err(violation::told(handle, number, &refused).await),
            Decided::Exists | Decided::Changed => Err(fault::conflict()),
        }
    }

    /// A COPY has stored rows of a table that is loaded.
    pub fn copied(&mut self, acknowledged: &Acknowledged) {
        self.loads.copied(acknowledged);
    }

    /// Takes a statement's writes in. All of a transaction's lie in one partition.
    pub async fn take(&mut self, edits: &mut Edits) -> Result<(), Failure> {
        let Some(partition) = edits.partition else { return Ok(()) };
        if edits.table.schema().is_replicated() {
            return Err(fault::replicated_within(edits.table.name()));
        }
        if !self.definitions.is_empty() && edits.table.record().database().is_none() {
            let how = "the transaction has made or dropped tables that lie together; this row is one";
            return Err(write::elsewhere(
                &edits.table,
                how,
                "a transaction that writes in several partitions",
            ));
        }
        let elsewhere = !self.view.buffer.holds(partition);
        if !self.view.buffer.is_empty() && elsewhere {
            let other = self.tables.values().find(|table| table.id() != edits.table.id());
            let how = match other {
                None => "rows of two statements lie in different partitions".to_string(),
                Some(table) => {
                    format!("the transaction has written rows of \"{}\"; this row is one", table.name())
                }
            };
            return Err(write::elsewhere(
                &edits.table,
                &how,
                "a transaction that writes in several partitions",
            ));
        }
        let mut list = std::mem::take(&mut edits.edits);
        let since = self.view.position(partition).filter(|_| !self.definitions.has_made(edits.table.id()));
        list.iter_mut().for_each(|edit| edit.since = since);
        let (id, limit) = (edits.table.id(), self.limit(edits.table.record()));
        // Nothing before the first savepoint is gone back to.
        let mut undo = (!self.savepoints.is_empty()).then_some(&mut self.undo);
        let buffer = Buffer::writable(&mut self.view.buffer)?;
        buffer.bring(id, &list).await?;
        buffer.admit(id, &list, (limit, undo.as_deref()))?;
        let mut list = list.into_iter();
        loop {
            buffer.put_all((id, partition), list.by_ref().take(PIECE_ROWS), undo.as_deref_mut());
            if list.as_slice().is_empty() {
                break;
            }
            // The sessions of a node share a thread.
            tokio::task::yield_now().await;
        }
        buffer.settle(undo.as_deref());
        self.tables.insert(id, edits.table.clone());
        if self.may_spill(edits.table.record()) {
            Buffer::spill(&mut self.view.buffer).await?;
        }
        Ok(())
    }

    /// True if rows of this table may go into a file: nothing that is kept to go back to a savepoint does,
    /// and nothing of a transaction that is one write with what it does to tables.
    pub fn may_spill(&self, table: &TableRecord) -> bool {
        let one = self.savepoints.is_empty() && self.definitions.is_empty();
        one && self.view.buffer.spills(table).is_some()
    }

    /// How much it may write, of this table among others. What it does to tables is one write with the rows.
    pub fn limit(&self, table: &TableRecord) -> Limit {
        match self.definitions.is_empty() {
            true => self.view.buffer.whole_limit(table),
            false => Limit::WRITE,
        }
    }

    /// Takes in what a call writes. A row that it has put and not seen is written only if there is none
    /// still.
    pub async fn take_called(&mut self, edits: &mut Edits) -> Result<(), Failure> {
        let puts = edits.edits.iter().any(|edit| !edit.existed && matches!(edit.after, After::Row(_)));
        self.take(edits).await?;
        if puts {
            Arc::make_mut(&mut self.view.buffer).puts();
        }
        Ok(())
    }

    /// When it looks at constraints.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// SET CONSTRAINTS. The numbers of the constraints of these tables by which is to be looked at what was
    /// written until now.
    pub fn set_timing(&mut self, setting: &Setting, catalog: &Catalog) -> BTreeSet<u32> {
        self.timing.set(setting, catalog.all().flat_map(|table| table.schema.constraints()))
    }

    /// SAVEPOINT.
    pub fn save(&mut self, name: &str, settings: &Settings) {
        let (name, settings) = (name.to_string(), settings.clone());
        let (definitions, timing) = (self.definitions.clone(), self.timing.clone());
        self.savepoints.push(Savepoint { name, undo: self.undo.len(), settings, definitions, timing });
    }

    fn savepoint(&self, name: &str) -> Result<usize, Failure> {
        let found = self.savepoints.iter().rposition(|known| known.name == name);
        found.ok_or_else(|| Failure::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// ROLLBACK TO SAVEPOINT. The parameters as they were at it. The error, behind which all is as before:
    /// there is no such savepoint, or no memory for what a portal still reads by.
    pub fn back_to(&mut self, name: &str) -> Result<Settings, Failure> {
        let at = self.savepoint(name)?;
        let buffer = Buffer::writable(&mut self.view.buffer)?;
        buffer.back(&mut self.undo, self.savepoints[at].undo);
        self.savepoints.truncate(at + 1);
        let Savepoint { settings, definitions, timing, .. } = &self.savepoints[at];
        (self.definitions, self.timing) = (definitions.clone(), timing.clone());
        self.view.making(self.definitions.made());
        self.view.buffer.settle(Some(&self.undo));
        self.failed = false;
        Ok(settings.clone())
    }

    /// RELEASE SAVEPOINT.
    pub fn release(&mut self, name: &str) -> Result<(), Failure> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at);
        if self.savepoints.is_empty() {
            self.undo = UndoLog::default();
            self.view.buffer.settle(None);
        }
        Ok(())
    }
}

/// It ends the session, as PostgreSQL's does.
fn silent() -> Failure {
    Failure::new("25P03", "terminating connection due to idle-in-transaction timeout")
        .hint("it is rolled back; idle_in_transaction_session_timeout says how long it may be idle")
        .fatal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PartitionId, Position};

    fn inserted(number: u64) -> Edit {
        let (key, after) = (number.to_be_bytes(), After::Row(Bytes::from(vec![7; 100])));
        Edit::new(Bytes::copy_from_slice(&key), false, after)
    }

    /// Of who still reads by it, as a portal does that is suspended, the node has the memory, too.
    #[test]
    fn going_back_beside_a_reader_needs_memory_for_what_that_one_sees() {
        let memory = Arc::new(NodeMemory::of(100_000));
        let (settings, turns) = (Settings::default(), Arc::new(Turns::default()));
        let mut open = Open::begin(0, false, Modes::default(), (&settings, &turns, &memory));
        open.view.buffer = Arc::new(Buffer::with_room(Room::new(&memory, 0)));
        open.save("s", &settings);
        let (place, rows) = ((TableId(1), PartitionId(1)), (0..100).map(inserted).collect());
        let buffer = Buffer::writable(&mut open.view.buffer).expect("nobody else has it");
        buffer.take(place, rows, (Limit::WRITE, Some(&mut open.undo))).expect("room for it");
        let portal = open.view.clone();
        let back = |open: &mut Open| open.back_to("s").map(drop).map_err(|failure| failure.code);
        assert_eq!(back(&mut open), Err("53200"));
        assert!(open.has_written(TableId(1)), "all is as before");
        drop(portal);
        assert_eq!(back(&mut open), Ok(()));
        assert!(open.is_unwritten());
    }

    #[test]
    fn a_statement_of_a_global_transaction_copies_nothing_of_what_was_written() {
        let first = View::writing(Buffer::default()).at_commit(Position::ZERO, &[]);
        let next = first.at_commit(Position::ZERO, &[]);
        assert!(Arc::ptr_eq(&first.buffer, &next.buffer));
        assert!(next.buffer.holds(PartitionId(7)));
    }
}
