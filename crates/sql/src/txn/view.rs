//! At which state a statement or a transaction reads each partition, and what the transaction itself has
//! written.

use super::buffer::Buffer;
use client::Table;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use types::{PartitionId, Position};
use wire::request::Snapshot;

/// What a statement sees. Cheap to clone; clones share what was seen, and have the writes that there were.
#[derive(Clone, Debug, Default)]
pub struct View {
    seen: Arc<Mutex<BTreeMap<PartitionId, (Table, Position)>>>,
    /// What the transaction has written.
    pub buffer: Arc<Buffer>,
    /// Each partition is read at one state, the first that was seen of it.
    lasting: bool,
}

impl View {
    /// A transaction's.
    pub fn lasting() -> View {
        View { lasting: true, ..View::default() }
    }

    /// True if each partition is read at one state, however often.
    pub fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// At which state a partition is to be read.
    pub fn at(&self, partition: PartitionId) -> Snapshot {
        match (self.lasting, self.position(partition)) {
            (true, Some(position)) => Snapshot::At(position),
            (true, None) => Snapshot::Begin,
            (false, _) => Snapshot::Newest,
        }
    }

    /// A partition was read at this state. A write that rests on several states rests on the oldest of them.
    pub fn saw(&self, table: &Table, partition: PartitionId, position: Position) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get_mut(&partition) {
            None => drop(seen.insert(partition, (table.clone(), position))),
            Some((_, known)) if !self.lasting => *known = position.min(*known),
            Some(_) => {}
        }
    }

    /// The state at which a partition was read.
    pub fn position(&self, partition: PartitionId) -> Option<Position> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&partition).map(|(_, position)| *position)
    }

    /// All states that were read.
    pub fn all(&self) -> Vec<(Table, PartitionId, Position)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().map(|(partition, (table, position))| (table.clone(), *partition, *position)).collect()
    }
}
