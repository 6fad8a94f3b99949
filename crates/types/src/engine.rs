//! The contract between a replica and the engine that applies its log (design section 7, N12).
//!
//! An engine is an ordered map from keys to values with a version per LSN. Entries above the published
//! position live in an *overlay* that can be dropped at any moment (PR-41); what is published is never taken
//! back. A replica publishes only up to `min(committed, secured)`, so what an engine has published, flushed
//! or merged is part of a divergent tail only if an operator forced a promotion, or a whole set forgot it
//! (R7, PR-31); the engine's state is replaced then. Sessions, feed positions and the applied position are
//! rows under reserved keys ([`crate::engine::space`]).

mod background;
mod kind;
mod shipping;
mod staging;

pub use background::{BackgroundCheckpoints, Checkpoint, Wake};
pub use kind::EngineKind;
pub use shipping::ShipsFiles;
pub use staging::StagesLoads;

use crate::position::{Lsn, Position};
use bytes::Bytes;

/// The first byte of every stored key says which space it belongs to.
pub mod space {
    /// The applied position, one row (PR-40).
    pub const POSITION: u8 = 0x00;
    /// Sessions: epoch and LSN of opening, both big-endian (PR-45).
    pub const SESSION: u8 = 0x01;
    /// Positions of ingestion feeds.
    pub const FEED: u8 = 0x02;
    /// Session horizon and other single rows of the partition (PR-46).
    pub const PARTITION: u8 = 0x03;
    /// Users' rows.
    pub const ROW: u8 = 0x10;
    /// Rows of secondary indexes ([`crate::index`]).
    pub const INDEX: u8 = 0x20;
}

/// The kinds of rows in [`space::PARTITION`]: the byte that follows the space's in their keys. They stand in
/// one place, so that the compiler refuses two kinds with one byte (PR-442).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum PartitionRows {
    /// The catalog's ([`crate::keyspace`]).
    Catalog = b'c',
    /// Commits of global transactions that arrived ([`crate::commits`]).
    Flushes = b'f',
    /// The newest of them.
    NewestFlush = b'g',
    /// The newest commit of each partition, at the transaction manager.
    Heads = b'h',
    /// Definitions of indexes ([`crate::index`]).
    Indexes = b'i',
    /// Jobs ([`crate::job`]).
    Jobs = b'j',
    /// Up to where the transaction manager keeps nothing.
    Truncated = b'k',
    /// Bulk loads that are part of the state ([`crate::bulk`]).
    Loads = b'l',
    /// Tables that the transaction manager knows.
    Tables = b'm',
    /// The newest commit that it has removed.
    Removed = b'n',
    /// The lowest state that the primary of a partition keeps for snapshots ([`crate::commits`]).
    Horizon = b'o',
    /// Results of calls ([`crate::keyspace`]).
    Results = b'r',
    /// Commits that an operator gave up.
    GivenUp = b's',
}

/// One change of an entry's effect: `None` deletes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutation {
    /// The stored key, space byte included. 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: Bytes,
    /// The new value.
    pub value: Option<Bytes>,
}

/// The longest stored key, in bytes (PR-72: the LSM crate panics above 65,535).
pub const MAX_KEY_BYTES: usize = 32 * 1024;
/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 8 * 1024 * 1024;

/// Values of so many bytes and more are kept in memory as they came, where that can be, and not copied.
pub const LARGE_VALUE_BYTES: usize = 16 * 1024;

/// The most memory, in bytes, that a value of this length may hold where it is kept as it came: a large one
/// is a part of an entry, which has at most a 32nd more. Budgets count this, so that what is held is never
/// more than what is counted.
pub const fn most_held(length: usize) -> usize {
    if length < LARGE_VALUE_BYTES { length } else { length + length / 32 }
}

/// Why a mutation cannot be stored, as text, or none if it can (PR-72: checked at the door).
///
/// Whoever takes mutations from a client or a peer asks this first; an engine asserts it.
pub fn mutation_fault(mutation: &Mutation) -> Option<&'static str> {
    match mutation.key.first() {
        None => return Some("the key is empty"),
        Some(&space::POSITION) => return Some("the key lies in the space of the applied position"),
        Some(_) => {}
    }
    if mutation.key.len() > MAX_KEY_BYTES {
        return Some("the key is too long");
    }
    match &mutation.value {
        Some(value) if value.len() > MAX_VALUE_BYTES => Some("the value is too long"),
        _ => None,
    }
}

/// At which position a read looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAt {
    /// At everything executed, tentative entries included: for operations that run in the executor.
    Applied,
    /// At this LSN: every version made at or below it.
    Lsn(Lsn),
}

/// A key with the LSN that wrote it and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The stored key, space byte included.
    pub key: Bytes,
    /// The LSN of the entry that wrote the value.
    pub lsn: Lsn,
    /// The value.
    pub value: Bytes,
}

/// A version of a row, as it is set aside (R9).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The stored key, space byte included.
    pub key: Bytes,
    /// The LSN of the entry that made the version.
    pub lsn: Lsn,
    /// The value; none if the entry deleted the row.
    pub value: Option<Bytes>,
}

/// Why an engine could not do what it was asked. All take the replica out of service (PR-62), but for
/// [`EngineError::Full`] of a checkpoint, a set that is received, or a load, and for [`EngineError::Later`].
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The disk under the engine failed.
    #[error("the engine's storage failed: {0}")]
    Io(#[from] std::io::Error),
    /// The disk has no room, or the system no more open files or memory for now. The state that was there
    /// before is as it was, and the same can be tried again (F20); an installation by rows begins again from
    /// nothing ([`Engine::reset`]).
    #[error("there is no room for the engine's files: {0}")]
    Full(std::io::Error),
    /// The system has no more open files or memory for a read just now. Nothing is damaged: the same can be
    /// asked again.
    #[error("the system gives the engine nothing to read with for now: {0}")]
    Later(std::io::Error),
    /// What was read from disk does not agree with its checksum or with its manifest (I12).
    #[error("the engine's files are damaged: {0}")]
    Corrupt(String),
    /// A read below the collection floor; the reader must start again at a newer position (PR-34).
    #[error("the snapshot at LSN {asked} is too old: versions are kept from LSN {read_floor}")]
    SnapshotTooOld {
        /// The LSN that was asked for.
        asked: Lsn,
        /// The lowest LSN that can be read.
        read_floor: Lsn,
    },
    /// The underlying library refused.
    #[error("the engine failed: {0}")]
    Library(String),
}

/// An engine under one replica of one partition: what every engine must do. Used by one thread at a time.
///
/// Order of calls: LSNs given to [`Engine::execute`] only grow between two [`Engine::discard_above`] (PR-77);
/// an engine asserts this. What an engine may offer beside it are traits of their own, at the end.
pub trait Engine: Send {
    /// Applies an entry tentatively: readable at [`ReadAt::Applied`] and at its LSN, and droppable.
    ///
    /// A value may be kept as it comes, with all the memory that it is a part of, for as long as the row is
    /// there. So callers see to it that one of [`LARGE_VALUE_BYTES`] or more holds no more than
    /// [`most_held`]. Smaller ones are copied when they are published.
    ///
    /// Panics if `at.lsn` is not above the applied position.
    fn execute(&mut self, at: Position, mutations: &[Mutation]);

    /// Moves every tentative entry at or below `upto` into the engine proper, in LSN order. Never taken back.
    fn publish(&mut self, upto: Lsn) -> Result<(), EngineError>;

    /// Drops every tentative entry above `to.lsn`, which becomes the applied position. `to` is never below
    /// the published position (asserted); `to.epoch` is the epoch of the entry there.
    fn discard_above(&mut self, to: Position);

    /// The newest executed entry, tentative or not.
    fn applied(&self) -> Position;

    /// The newest published entry.
    fn published(&self) -> Position;

    /// The newest entry that the files on disk contain: a restart needs no log at or below it.
    fn persisted(&self) -> Position;

    /// The newest version of `key` at or below `at`, tentative entries included. None of a key over
    /// [`MAX_KEY_BYTES`].
    fn get(&self, key: &[u8], at: ReadAt) -> Result<Option<(Lsn, Bytes)>, EngineError>;

    /// Reads the newest versions of these rows now, so that [`Engine::get`] of them at [`ReadAt::Applied`]
    /// need not wait for a disk, whatever is written meanwhile: for work that would take too long in one
    /// piece. They are kept until [`Engine::end_read_ahead`], as far as there is room. No answer changes by
    /// it, so an engine whose rows are in memory does nothing.
    fn read_ahead(&mut self, _keys: &[Bytes]) -> Result<(), EngineError> {
        Ok(())
    }

    /// Nobody asks any more for what was read ahead.
    fn end_read_ahead(&mut self) {}

    /// Rows with `from <= key < to` (`to` empty: no end) in key order, at most `limit` rows and about
    /// `max_bytes` bytes. Gives at least one row if there is one. The caller goes on after the last key it
    /// was given. Bounds have any length.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        at: ReadAt,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Row>, EngineError>;

    /// Keys with `from <= key < to` (`to` empty: no end), in no order, whose newest published version is a
    /// deletion by an entry above `above`, and the entry's LSN: as far as the engine still knows. It may
    /// forget deletions that no read needs, and have none of what is not in its files.
    fn deletions(&self, from: &[u8], to: &[u8], above: Lsn) -> Result<Vec<(Bytes, Lsn)>, EngineError>;

    /// Versions that only reads below `read_floor` need may be collected from now on. Never lowers the floor.
    fn raise_read_floor(&mut self, read_floor: Lsn);

    /// The lowest LSN that can still be read.
    fn read_floor(&self) -> Lsn;

    /// Bytes held in memory by tentative entries and by what is not yet on disk.
    fn memory_bytes(&self) -> u64;

    /// Nanoseconds that executing and publishing one entry took lately; 0 if the engine has not measured it.
    /// For estimates alone.
    fn replay_ns(&self) -> u64;

    /// True if it keeps its state on disk between runs.
    fn is_persistent(&self) -> bool;

    /// Writes everything published to disk, fsynced, and returns the position that a restart will find. An
    /// engine that is not [`Engine::is_persistent`] returns [`Position::ZERO`].
    fn checkpoint(&mut self) -> Result<Position, EngineError>;

    /// How a write of this engine's files failed, if one did: what the disk has is unknown then, and no later
    /// success may hide it (F08), so only another engine in its place helps. Checkpoints tell it themselves.
    fn failed_write(&self) -> Option<&str>;

    /// Drops everything, on disk too, and starts again as the state at `base`, still without rows. Rows of
    /// that state then come by [`Engine::install`]; until [`Engine::finish_install`] a restart finds an empty
    /// engine.
    fn reset(&mut self, base: Position) -> Result<(), EngineError>;

    /// Adds rows of the state at the base given to [`Engine::reset`], each with the LSN that wrote it.
    fn install(&mut self, rows: &[Row]) -> Result<(), EngineError>;

    /// Ends an installation: the state is complete, on disk too for a persistent engine.
    fn finish_install(&mut self) -> Result<(), EngineError>;

    /// A hash of every row (reserved ones too, except the position) at `at`, independent of how it was stored
    /// (I6).
    fn digest(&self, at: ReadAt) -> Result<u64, EngineError> {
        let mut sum = 0u64;
        let mut from: Vec<u8> = vec![space::SESSION];
        loop {
            let rows = self.scan(&from, &[], at, 4096, 4 << 20)?;
            let Some(last) = rows.last() else { return Ok(sum) };
            from = last.key.to_vec();
            from.push(0);
            for row in &rows {
                sum = sum.wrapping_add(row_hash(row));
            }
        }
    }

    /// Itself as an engine that writes checkpoints beside other work, if it offers that.
    fn background_checkpoints(&mut self) -> Option<&mut dyn BackgroundCheckpoints> {
        None
    }

    /// Itself as an engine that ships files, if it offers that: always the same answer.
    fn shipping(&self) -> Option<&dyn ShipsFiles> {
        None
    }

    /// The same, to change it.
    fn shipping_mut(&mut self) -> Option<&mut dyn ShipsFiles> {
        None
    }

    /// Itself as an engine that stages bulk loads, if it offers that: always the same answer.
    fn staging(&self) -> Option<&dyn StagesLoads> {
        None
    }

    /// The same, to change it.
    fn staging_mut(&mut self) -> Option<&mut dyn StagesLoads> {
        None
    }
}

/// The part of one row in a digest: order-free, so that digests add up.
pub fn row_hash(row: &Row) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&(row.key.len() as u64).to_le_bytes());
    hash.update(&row.key);
    hash.update(&row.lsn.0.to_le_bytes());
    hash.update(&row.value);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_refuses_what_an_engine_cannot_store() {
        let fault = |key: Vec<u8>| mutation_fault(&Mutation { key: key.into(), value: None });
        assert!(fault(vec![]).is_some());
        assert!(fault(vec![space::POSITION]).is_some());
        assert!(fault(vec![space::ROW; MAX_KEY_BYTES + 1]).is_some());
        assert_eq!(fault(vec![space::ROW; MAX_KEY_BYTES]), None);
    }
}
