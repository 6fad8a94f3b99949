//! At which state a statement or a transaction reads each partition, and what the transaction itself has
//! written.

use super::buffer::{Buffer, Limit};
use client::txn::{ANYWHERE, Secured};
use client::{Call, Table};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use types::{PartitionId, Position, TableId, TableRecord};
use wire::request::ReadSnapshot;

/// The states at which partitions were read.
type Seen = Mutex<BTreeMap<PartitionId, (Table, Position)>>;

/// The states of a transaction's statements, as long as somebody reads by them.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<Mutex<Vec<Weak<Seen>>>>);

impl Known {
    /// A statement reads by this view.
    pub fn add(&self, view: &View) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for new in [&view.seen, &view.now] {
            known.retain(|seen| seen.strong_count() > 0 && !seen.ptr_eq(&Arc::downgrade(new)));
            known.push(Arc::downgrade(new));
        }
    }

    /// All states that somebody may still read.
    pub fn all(&self) -> Vec<(Table, PartitionId, Position)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let states = known.iter().filter_map(Weak::upgrade).map(|seen| states(&seen));
        states.flatten().collect()
    }
}

fn states(seen: &Seen) -> Vec<(Table, PartitionId, Position)> {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.iter().map(|(partition, (table, position))| (table.clone(), *partition, *position)).collect()
}

/// What a statement sees. Cheap to clone; clones share what was seen, and have the writes that there were.
#[derive(Clone, Debug, Default)]
pub struct View {
    seen: Arc<Seen>,
    /// The same of partitions that each statement reads at a state of its own.
    now: Arc<Seen>,
    /// These partitions.
    own: Range<u32>,
    /// The snapshot of all partitions that is read, where transactions are global: its timestamp.
    snapshot: Option<Position>,
    /// It is one of what all have secured.
    secured: Option<Arc<Secured>>,
    /// What the transaction has written.
    pub buffer: Arc<Buffer>,
    /// Each partition is read at one state, the first that was seen of it.
    lasting: bool,
    /// Tables that the transaction has made, which nobody else knows; with whether there are rows of them in
    /// the partition already.
    made: Arc<BTreeMap<TableId, bool>>,
}

impl View {
    /// A transaction's.
    pub fn lasting() -> View {
        View { lasting: true, ..View::default() }
    }

    /// The same of one that writes into this buffer.
    pub fn writing(buffer: Buffer) -> View {
        View { buffer: Arc::new(buffer), ..View::lasting() }
    }

    /// How much a statement may write of this table.
    pub fn limit(&self, table: &TableRecord) -> Limit {
        self.buffer.limit(table)
    }

    /// What is written here is seen by whoever reads by this view from now on, and is not the transaction's.
    pub fn ahead(&mut self) -> &mut Buffer {
        // The transaction's own is never cloned for that, however large it is.
        if !self.buffer.is_ahead() {
            self.buffer = Arc::new(Buffer::over(&self.buffer));
        }
        Arc::make_mut(&mut self.buffer)
    }

    /// The same for the next statement of a transaction, with nothing seen yet of these partitions.
    pub fn with_nothing_seen(&self, partitions: Range<u32>) -> View {
        View { now: Arc::default(), own: partitions, ..self.clone() }
    }

    /// The same for the next statement of a global transaction: all partitions as commits up to `snapshot`
    /// have made them. `kept` are the partitions whose states must not go as long as somebody reads by it.
    pub fn at_commit(&self, snapshot: Position, kept: &[(Table, PartitionId)]) -> View {
        let state = |(table, partition): &(Table, PartitionId)| (*partition, (table.clone(), snapshot));
        let seen = Arc::new(Mutex::new(kept.iter().map(state).collect()));
        let mut view = View { seen, snapshot: Some(snapshot), lasting: true, ..self.clone() };
        // Once is enough: from the first row on it would be copied for that.
        if !view.buffer.is_spread() {
            Arc::make_mut(&mut view.buffer).spread();
        }
        view
    }

    /// The same for a transaction that reads what all partitions have secured.
    pub fn at_secured(&self, secured: Secured, kept: &[(Table, PartitionId)]) -> View {
        View { secured: Some(Arc::new(secured.clone())), ..self.at_commit(secured.at(), kept) }
    }

    /// A read as it is to be made: of what all have secured at any replica.
    pub fn asks(&self, call: Call) -> Call {
        if self.secured.is_some() { call.at_level(ANYWHERE) } else { call }
    }

    /// True if it reads a snapshot of a global transaction.
    pub fn is_global(&self) -> bool {
        self.snapshot.is_some()
    }

    fn states_of(&self, partition: PartitionId) -> MutexGuard<'_, BTreeMap<PartitionId, (Table, Position)>> {
        let seen = if self.own.contains(&partition.0) { &self.now } else { &self.seen };
        seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if each partition is read at one state, however often.
    pub fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// These are the tables that the transaction has made.
    pub fn making(&mut self, made: BTreeMap<TableId, bool>) {
        self.made = Arc::new(made);
    }

    /// True if the partition has no row of this table and does not even know it: the transaction has made it.
    pub fn is_empty(&self, table: &Table) -> bool {
        self.made.get(&table.id()) == Some(&false)
    }

    /// True if the transaction has made the table.
    pub fn is_made(&self, table: &Table) -> bool {
        self.made.contains_key(&table.id())
    }

    /// At which state a table is to be read in a partition. One that the transaction has made is as it is: it
    /// is changed by nobody else.
    pub fn at(&self, table: &Table, partition: PartitionId) -> ReadSnapshot {
        if self.made.contains_key(&table.id()) {
            return ReadSnapshot::Newest;
        }
        if let Some(secured) = &self.secured {
            return secured.snapshot(partition);
        }
        if let Some(at) = self.snapshot {
            // The driver knows which commits of the partition must be there.
            return ReadSnapshot::Commit { at, after: Position::ZERO };
        }
        match (self.lasting, self.position(partition)) {
            (true, Some(position)) => ReadSnapshot::At(position),
            (true, None) => ReadSnapshot::Begin,
            (false, _) => ReadSnapshot::Newest,
        }
    }

    /// Where the next page of a read is read, whose last one was at `at` and showed this state.
    pub fn next_page(at: ReadSnapshot, state: Position) -> ReadSnapshot {
        match at {
            ReadSnapshot::Commit { .. } => at,
            _ => ReadSnapshot::At(state),
        }
    }

    /// A partition was read at this state. A write that rests on several states rests on the oldest of them.
    pub fn saw(&self, table: &Table, partition: PartitionId, position: Position) {
        if self.made.contains_key(&table.id()) || self.snapshot.is_some() {
            return;
        }
        let mut seen = self.states_of(partition);
        match seen.get_mut(&partition) {
            None => drop(seen.insert(partition, (table.clone(), position))),
            Some((_, known)) if !self.lasting => *known = position.min(*known),
            Some(_) => {}
        }
    }

    /// The state at which a partition was read; where transactions are global, the snapshot's timestamp.
    pub fn position(&self, partition: PartitionId) -> Option<Position> {
        if self.snapshot.is_some() {
            return self.snapshot;
        }
        let seen = self.states_of(partition);
        seen.get(&partition).map(|(_, position)| *position)
    }
}
