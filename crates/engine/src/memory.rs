//! The memory engine: every published row in an ordered map, and snapshots of it where it is to survive a
//! restart.
//!
//! A checkpoint writes the newest versions at the published position as one immutable component, with the
//! position inside (PR-40) and the sessions among the rows (PR-45). After a restart, versions below that
//! position cannot be read.

mod saving;
pub mod snapshot;
mod store;

pub use store::{SnapshotStore, SnapshotWriter};

use crate::files::not_written;
use crate::overlay::Overlay;
use crate::rows::Rows;
use crate::scan::{self, FIRST_KEY, resolve};
use bytes::Bytes;
use saving::Saving;
use snapshot::Header;
use std::io::{self, Read, Write};
use std::path::Path;
use store::DirStore;
use types::engine::{BackgroundCheckpoints, Checkpoint, ReadAt, Row, Wake, mutation_fault, space};
use types::{Engine, EngineError, Lsn, Mutation, Position, Rules};

/// Keys whose old versions are collected when the floor rises.
const COLLECT_ON_RAISE: usize = 256;
/// Keys whose old versions are collected with each publishing, beside twice as many as it wrote.
const COLLECT_ON_PUBLISH: usize = 4;

/// An engine in memory. Nodes run it with every rule in force.
pub struct MemoryEngine {
    /// Tentative entries, and the published and applied position.
    overlay: Overlay,
    /// Everything published.
    rows: Rows,
    /// The lowest LSN that can be read.
    read_floor: Lsn,
    /// What the snapshot in the store contains.
    persisted: Position,
    /// Bytes written since that snapshot was.
    unsaved: u64,
    /// The published position at the last snapshot. Differs from `persisted` only without the rule against
    /// PR-40.
    saved: Position,
    /// The state that is being installed, if one is.
    installing: Option<Position>,
    store: Option<Box<dyn SnapshotStore>>,
    /// A snapshot that is being written beside other work. It has the store meanwhile.
    saving: Option<Saving>,
    /// How a write of the snapshot failed, if one did.
    failed_write: Option<String>,
    rules: Rules,
}

impl MemoryEngine {
    /// An empty engine with nothing on disk.
    pub fn volatile() -> MemoryEngine {
        MemoryEngine::volatile_with(Rules::ALL)
    }

    /// The engine in `dir`, at its last checkpoint, or empty.
    pub fn open(dir: &Path) -> Result<MemoryEngine, EngineError> {
        MemoryEngine::open_with(dir, Rules::ALL)
    }

    /// The engine in `store`, at its last checkpoint, or empty.
    pub fn with_store(store: Box<dyn SnapshotStore>) -> Result<MemoryEngine, EngineError> {
        MemoryEngine::with_store_and(store, Rules::ALL)
    }

    /// An engine with nothing on disk in the state that `bytes` are a snapshot of.
    pub fn from_snapshot(bytes: &[u8]) -> Result<MemoryEngine, EngineError> {
        MemoryEngine::from_snapshot_with(bytes, Rules::ALL)
    }
}

impl MemoryEngine {
    /// [`MemoryEngine::volatile`] under these rules.
    pub fn volatile_with(rules: Rules) -> MemoryEngine {
        MemoryEngine {
            overlay: Overlay::new(Position::ZERO),
            rows: Rows::default(),
            read_floor: Lsn::ZERO,
            persisted: Position::ZERO,
            unsaved: 0,
            saved: Position::ZERO,
            installing: None,
            store: None,
            saving: None,
            failed_write: None,
            rules,
        }
    }

    /// [`MemoryEngine::open`] under these rules.
    pub fn open_with(dir: &Path, rules: Rules) -> Result<MemoryEngine, EngineError> {
        MemoryEngine::with_store_and(Box::new(DirStore::open(dir).map_err(not_written)?), rules)
    }

    /// [`MemoryEngine::with_store`] under these rules.
    pub fn with_store_and(
        mut store: Box<dyn SnapshotStore>,
        rules: Rules,
    ) -> Result<MemoryEngine, EngineError> {
        let mut engine = MemoryEngine::volatile_with(rules);
        if let Some(mut input) = store.load()? {
            engine.load(&mut input)?;
        }
        engine.store = Some(store);
        Ok(engine)
    }

    /// [`MemoryEngine::from_snapshot`] under these rules.
    pub fn from_snapshot_with(mut bytes: &[u8], rules: Rules) -> Result<MemoryEngine, EngineError> {
        let mut engine = MemoryEngine::volatile_with(rules);
        engine.load(&mut bytes)?;
        Ok(engine)
    }

    /// The bytes that a checkpoint would write. The caller keeps them; what they contain counts as persisted
    /// from now on.
    ///
    /// Panics during an installation: half a state is no component.
    pub fn snapshot_bytes(&mut self) -> Vec<u8> {
        assert!(self.installing.is_none(), "R4: no component is made of half a state");
        assert!(self.saving.is_none(), "one snapshot at a time");
        let mut bytes = Vec::new();
        let header = self.header();
        self.write_snapshot(header, &mut bytes).expect("writing into memory does not fail");
        self.note_saved(header.position);
        bytes
    }

    /// Makes the state that `bytes` are a snapshot of this engine's own, in its store too, at once. What is
    /// above it stays, published or tentative; `above` has all of it. For engines that are built over this
    /// one.
    pub fn take_over(
        &mut self,
        mut bytes: &[u8],
        above: &[(Position, Vec<Mutation>)],
    ) -> Result<(), EngineError> {
        let (whole, mut rows) = (bytes, Rows::default());
        let header = snapshot::read(&mut bytes, |row| {
            rows.write(&row.key, row.lsn, Some(&row.value), Lsn::MAX);
        })?;
        if let Some(saving) = self.saving.take() {
            self.store = saving.cancel();
        }
        if let Some(store) = &mut self.store {
            store.save(&mut |out| out.write_all(whole)).map_err(not_written)?;
        }
        self.rows = rows;
        self.read_floor = self.read_floor.max(header.read_floor);
        (self.persisted, self.saved, self.unsaved) = (header.position, header.position, 0);
        let published = self.overlay.published();
        if published.lsn <= header.position.lsn {
            self.overlay.rise(header.position);
            return Ok(());
        }
        // R7: what is published is not taken back.
        self.overlay = Overlay::new(header.position);
        above.iter().for_each(|(at, mutations)| self.overlay.insert(*at, mutations));
        self.publish(published.lsn)
    }

    /// Memory held by all rows, tentative ones included.
    pub fn total_bytes(&self) -> u64 {
        self.overlay.bytes() + self.rows.bytes()
    }

    /// Old versions and tombstones that are kept for reads above the floor, or wait to be collected.
    pub fn old_versions(&self) -> usize {
        self.rows.hidden()
    }

    /// Keys that have a published row.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Fills an empty engine from a snapshot.
    fn load(&mut self, input: &mut dyn Read) -> Result<(), EngineError> {
        let mut newest = Lsn::ZERO;
        let rows = &mut self.rows;
        let header = snapshot::read(input, |row| {
            newest = newest.max(row.lsn);
            // Nothing is below: the floor is where the row is.
            rows.write(&row.key, row.lsn, Some(&row.value), Lsn::MAX);
        })?;
        if self.rules.positions_are_rows() && newest > header.position.lsn {
            return Err(EngineError::Corrupt(format!(
                "snapshot: a row of {newest} in the state at {}",
                header.position
            )));
        }
        self.overlay = Overlay::new(header.position);
        self.read_floor = header.read_floor;
        (self.persisted, self.saved, self.unsaved) = (header.position, header.position, 0);
        Ok(())
    }

    /// What a snapshot made now says about itself.
    fn header(&self) -> Header {
        // The defect of PR-40: the position stands in a manifest that is written apart from the data, and is
        // still the previous one when the process dies.
        let position = match self.rules.positions_are_rows() {
            true => self.overlay.published(),
            false => self.saved,
        };
        Header { position, read_floor: position.lsn }
    }

    fn write_snapshot(&self, header: Header, out: &mut dyn Write) -> io::Result<()> {
        let at = self.overlay.published().lsn;
        // The defect of PR-45: sessions are kept beside the state, so that a component does not contain them.
        let sessions = self.rules.sessions_are_rows();
        let rows = self.rows.range(FIRST_KEY, &[], at);
        snapshot::write(out, header, rows.filter(|(key, ..)| sessions || key[0] != space::SESSION))
    }

    /// Takes note that a snapshot of everything published is kept, which says `position` of itself.
    fn note_saved(&mut self, position: Position) {
        (self.persisted, self.saved, self.unsaved) = (position, self.overlay.published(), 0);
    }

    /// Writes a snapshot into the store, if there is one.
    fn save(&mut self) -> Result<(), EngineError> {
        let header = self.header();
        let Some(mut store) = self.store.take() else { return Ok(()) };
        let saved = store.save(&mut |out| self.write_snapshot(header, out));
        self.store = Some(store);
        self.note(saved)?;
        self.note_saved(header.position);
        Ok(())
    }

    /// Remembers a failure of the disk (F08). Want of room is none: nothing was changed.
    fn note(&mut self, written: io::Result<()>) -> Result<(), EngineError> {
        let outcome = written.map_err(not_written);
        if let Err(EngineError::Io(error)) = &outcome {
            self.failed_write.get_or_insert_with(|| error.to_string());
        }
        outcome
    }

    /// True if there is a place for snapshots.
    fn persistent(&self) -> bool {
        self.store.is_some() || self.saving.is_some()
    }

    /// Takes note that a snapshot which was written beside other work is durable.
    fn note_written(&mut self, what: saving::What) {
        self.unsaved -= what.unsaved.min(self.unsaved);
        (self.persisted, self.saved) = (what.header.position, what.at);
    }

    /// Waits for a snapshot that is being written, to its end.
    fn finish_saving(&mut self) -> Result<(), EngineError> {
        let Some(saving) = self.saving.take() else { return Ok(()) };
        let what = saving.what;
        let (store, saved) = saving.finish(&self.rows);
        self.store = store;
        saved?;
        self.note_written(what);
        Ok(())
    }

    /// Reads during an installation would see half a state.
    fn readable(&self) -> Result<(), EngineError> {
        match self.installing {
            None => Ok(()),
            Some(base) => Err(EngineError::Library(format!("the state at {base} is being installed"))),
        }
    }
}

impl Drop for MemoryEngine {
    fn drop(&mut self) {
        // The directory must not change any more once the engine is gone.
        if let Some(saving) = self.saving.take() {
            saving.cancel();
        }
    }
}

impl Engine for MemoryEngine {
    fn execute(&mut self, at: Position, mutations: &[Mutation]) {
        assert!(self.installing.is_none(), "R4: entry {at} executed on half a state");
        self.overlay.insert(at, mutations);
    }

    fn publish(&mut self, upto: Lsn) -> Result<(), EngineError> {
        let (rows, read_floor) = (&mut self.rows, self.read_floor);
        let strict = self.rules.positions_are_rows();
        let written = self.overlay.drain_readable(upto, read_floor, |key, lsn, value| {
            let newer = rows.keep(key, lsn, value, read_floor);
            assert!(newer || !strict, "PR-40: entry {lsn} is published below a version of its row");
            self.unsaved += (key.len() + value.map_or(0, Bytes::len)) as u64;
        });
        self.rows.collect(read_floor, COLLECT_ON_PUBLISH + 2 * written);
        Ok(())
    }

    fn discard_above(&mut self, to: Position) {
        self.overlay.discard_above(to);
    }

    fn applied(&self) -> Position {
        self.overlay.applied()
    }

    fn published(&self) -> Position {
        self.overlay.published()
    }

    fn persisted(&self) -> Position {
        self.persisted
    }

    fn get(&self, key: &[u8], at: ReadAt) -> Result<Option<(Lsn, Bytes)>, EngineError> {
        self.readable()?;
        let at = resolve(at, self.read_floor)?;
        if let Some((lsn, value)) = self.overlay.get(key, at) {
            return Ok(value.map(|value| (lsn, value.clone())));
        }
        Ok(self.rows.get(key, at).map(|(lsn, value)| (lsn, value.clone())))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        at: ReadAt,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Row>, EngineError> {
        self.readable()?;
        let at = resolve(at, self.read_floor)?;
        let from = from.max(FIRST_KEY);
        let base = self
            .rows
            .range(from, to, at)
            .map(|(key, lsn, value)| Ok(Row { key: Bytes::copy_from_slice(key), lsn, value: value.clone() }));
        scan::merge(self.overlay.range(from, to, at), base, limit, max_bytes)
    }

    fn deletions(&self, from: &[u8], to: &[u8], above: Lsn) -> Result<Vec<(Bytes, Lsn)>, EngineError> {
        self.readable()?;
        let deleted = self.rows.deleted(from.max(FIRST_KEY), to).filter(|(_, lsn)| *lsn > above);
        Ok(deleted.map(|(key, lsn)| (Bytes::copy_from_slice(key), lsn)).collect())
    }

    fn raise_read_floor(&mut self, read_floor: Lsn) {
        let read = self.saving.as_ref().filter(|saving| saving.reads()).map(|saving| saving.what.at.lsn);
        self.read_floor = self.read_floor.max(read.map_or(read_floor, |at| read_floor.min(at)));
        self.rows.collect(self.read_floor, COLLECT_ON_RAISE);
    }

    fn read_floor(&self) -> Lsn {
        self.read_floor
    }

    fn memory_bytes(&self) -> u64 {
        match self.persistent() {
            true => self.overlay.bytes() + self.unsaved,
            false => self.total_bytes(),
        }
    }

    fn replay_ns(&self) -> u64 {
        // It does not measure it.
        0
    }

    fn is_persistent(&self) -> bool {
        self.persistent()
    }

    fn checkpoint(&mut self) -> Result<Position, EngineError> {
        self.finish_saving()?;
        if self.store.is_none() {
            return Ok(Position::ZERO);
        }
        // During an installation a restart finds an empty engine, and must go on finding one.
        if self.installing.is_none() && self.saved != self.overlay.published() {
            self.save()?;
        }
        Ok(self.persisted)
    }

    fn failed_write(&self) -> Option<&str> {
        self.failed_write.as_deref()
    }

    fn reset(&mut self, base: Position) -> Result<(), EngineError> {
        if let Some(saving) = self.saving.take() {
            self.store = saving.cancel();
        }
        if let Some(store) = &mut self.store {
            let cleared = store.clear();
            self.note(cleared)?;
        }
        (self.overlay, self.rows, self.read_floor) = (Overlay::new(base), Rows::default(), base.lsn);
        (self.persisted, self.saved, self.unsaved) = (Position::ZERO, Position::ZERO, 0);
        self.installing = Some(base);
        Ok(())
    }

    fn install(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        let base = self.installing.expect("rows are installed between reset and finish_install");
        for row in rows {
            check_installed(row, base)?;
            self.rows.write(&row.key, row.lsn, Some(&row.value), Lsn::MAX);
            self.unsaved += (row.key.len() + row.value.len()) as u64;
        }
        Ok(())
    }

    fn finish_install(&mut self) -> Result<(), EngineError> {
        let base = self.installing.take().expect("an installation ends that was begun");
        assert_eq!(self.overlay.applied(), base, "nothing is executed during an installation");
        self.save()
    }

    fn background_checkpoints(&mut self) -> Option<&mut dyn BackgroundCheckpoints> {
        Some(self)
    }
}

impl BackgroundCheckpoints for MemoryEngine {
    fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError> {
        if self.saving.is_some() {
            return self.go_on_checkpoint();
        }
        let at = self.overlay.published();
        if self.installing.is_some() || self.saved == at || self.read_floor > at.lsn {
            return Ok(Checkpoint::Idle);
        }
        let what = saving::What { header: self.header(), at, unsaved: self.unsaved };
        let Some(store) = self.store.take() else { return Ok(Checkpoint::Idle) };
        self.saving = Some(Saving::start(store, what, self.rules.sessions_are_rows(), wake));
        Ok(Checkpoint::Ready)
    }

    fn go_on_checkpoint(&mut self) -> Result<Checkpoint, EngineError> {
        let Some(saving) = &mut self.saving else { return Ok(Checkpoint::Idle) };
        let Some((store, saved)) = saving.outcome() else { return Ok(saving.go_on(&self.rows)) };
        let what = saving.what;
        (self.saving, self.store) = (None, store);
        saved?;
        self.note_written(what);
        Ok(Checkpoint::Idle)
    }
}

/// Refuses a row that the state at `base` cannot contain. It comes from a peer, so this is no bug of ours.
pub(crate) fn check_installed(row: &Row, base: Position) -> Result<(), EngineError> {
    let mutation = Mutation { key: row.key.clone(), value: Some(row.value.clone()) };
    if let Some(fault) = mutation_fault(&mutation) {
        return Err(EngineError::Corrupt(format!("a row to be installed: {fault}")));
    }
    if row.lsn > base.lsn {
        return Err(EngineError::Corrupt(format!(
            "a row of {} to be installed in the state at {base}",
            row.lsn
        )));
    }
    Ok(())
}
