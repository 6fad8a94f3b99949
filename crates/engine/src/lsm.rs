//! The LSM engine: published rows in a log-structured merge tree on disk, by the rules of section 10 of the
//! protocol.
//!
//! ```text
//! dir/CURRENT        names the tree, and says whether it is complete
//! dir/tree-000001/   the tree's files, of the crate lsm-tree
//! dir/incoming/      a set of components that is being received
//! dir/staged/        files of bulk loads that are no part of the state yet
//! ```
//!
//! The applied position is a row of the tree, written last before each flush, so that the files cannot
//! disagree with it (PR-40). An installation fills a new directory, which becomes current by one rename
//! (PR-37). Only `lsm/tree.rs` touches the crate.

mod background;
mod deleted;
mod digest;
mod environment;
mod incoming;
mod loads;
mod memtable;
mod merge_pacing;
mod merger;
mod pins;
mod pointer;
mod read_ahead;
mod refill;
mod ship;
mod staged;
mod tree;

pub use background::{Background, FileCall, Job, Running, Threads};
pub use environment::{Environment, SharedFiles};
pub use loads::write_load;

use crate::files::{self, not_written, sync_dir};
use crate::memory::check_installed;
use crate::overlay::Overlay;
use crate::replay_rate::ReplayRate;
use crate::scan::{self, FIRST_KEY, resolve};
use bytes::Bytes;
use incoming::{Incoming, Sealing};
use loads::PendingLoad;
use memtable::{Frozen, Memtable};
use merger::{Flush, Kept, Merger};
use pins::Pins;
use pointer::{Pointer, has_tables, remove_others, tree_dir};
use read_ahead::ReadAhead;
use refill::begin;
use staged::StagedLoad;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use tree::Tree;
use types::engine::{BackgroundCheckpoints, Checkpoint, ReadAt, Row, ShipsFiles, StagesLoads, Wake};
use types::{Engine, EngineError, Lsn, Mutation, Position};

/// Giving back the memory of so many bytes of rows takes longer than starting a thread for it.
const MUCH_TO_FREE: u64 = 1 << 20;

/// An engine on disk.
pub struct LsmEngine {
    dir: PathBuf,
    environment: Environment,
    /// The number of the current tree's directory, or of the one being installed.
    number: u64,
    /// A flush beside other work.
    flush: Option<Flush>,
    /// What a flush found no room for: the next one begins with it.
    kept: Option<Kept>,
    /// Waits for its flush and merge when dropped, so it stands before the tree.
    merger: Merger,
    tree: Tree,
    /// Published rows that are in no file yet.
    memtable: Memtable,
    /// Tentative entries, and the published and applied position.
    overlay: Overlay,
    /// Rows that were read before they are asked for.
    ahead: ReadAhead,
    /// The lowest LSN that can be read.
    read_floor: Lsn,
    /// The position that a restart finds in the files.
    persisted: Position,
    /// The state that is being installed, if one is.
    installing: Option<Position>,
    /// Versions that others read.
    pins: Pins,
    /// A set that is being received.
    incoming: Option<Incoming>,
    /// The same while a thread checks it.
    finishing: Option<Sealing>,
    /// It is to be checked when what runs has ended.
    sealing_waits: Option<Wake>,
    /// Files of bulk loads.
    stage: StagedLoad,
    /// Entries whose loads are not installed, in log order.
    pending: VecDeque<PendingLoad>,
    /// Up to where they may be.
    allowed: Lsn,
    /// A write to disk failed. What is on disk is then unknown, and no later success may hide it (F08).
    failed: bool,
    /// The same where it was the disk that failed, and how.
    failed_write: Option<String>,
    /// What was on disk is damaged: nothing more is made of it. Another state can take its place.
    corrupt: bool,
    /// How long entries take.
    replay_rate: ReplayRate,
}

impl LsmEngine {
    /// The engine in `dir`, at its last checkpoint, or empty.
    pub fn open(dir: &Path) -> Result<LsmEngine, EngineError> {
        LsmEngine::open_in(dir, Environment::of_process())
    }

    /// The same in another environment than a node's process.
    pub fn open_in(dir: &Path, environment: Environment) -> Result<LsmEngine, EngineError> {
        files::create_dir(dir).map_err(not_written)?;
        environment.before(FileCall::Open, dir)?;
        files::remove_if_there(&dir.join("CURRENT.new"))?;
        // A process that was killed may have replaced CURRENT and not synced that. What is read here is
        // relied on, and what it does not name is removed, so a power loss must not take it back (PR-93);
        // so it is with a tree's version and with staged sets.
        sync_dir(dir)?;
        let (number, tree) = match Pointer::read(dir)? {
            Some(Pointer { number, complete: true }) => {
                let tree = Tree::open(&tree_dir(dir, number), &environment)?;
                remove_others(dir, Some(number))?;
                (number, tree)
            }
            Some(Pointer { number, complete: false }) => begin(dir, number + 1, &environment)?,
            None if has_tables(dir)? => {
                return Err(EngineError::Corrupt("lsm: there are files, but CURRENT is missing".into()));
            }
            None => begin(dir, 1, &environment)?,
        };
        let persisted = tree.position()?;
        let mut engine = LsmEngine {
            dir: dir.to_owned(),
            environment: environment.clone(),
            number,
            flush: None,
            kept: None,
            merger: Merger::new(environment.background.clone()),
            tree,
            memtable: Memtable::default(),
            overlay: Overlay::new(persisted),
            ahead: ReadAhead::default(),
            // Merges may have collected what only reads below needed.
            read_floor: persisted.lsn,
            persisted,
            installing: None,
            pins: Pins::default(),
            incoming: None,
            finishing: None,
            sealing_waits: None,
            stage: StagedLoad::open(dir, &environment)?,
            pending: VecDeque::new(),
            allowed: Lsn::ZERO,
            failed: false,
            failed_write: None,
            corrupt: false,
            replay_rate: ReplayRate::default(),
        };
        engine.settle_loads()?;
        engine.environment.made_durable();
        Ok(engine)
    }

    /// Reads every file and compares it with its checksum (F11). Waits for a merge that is running.
    pub fn verify(&mut self) -> Result<(), EngineError> {
        let outcome = self.end_flush();
        self.note(outcome)?;
        self.merger.wait()?;
        self.tree.verify()
    }

    /// Waits until no merge is running.
    pub fn wait_for_merge(&mut self) -> Result<(), EngineError> {
        let outcome = self.end_flush();
        self.note(outcome)?;
        let outcome = self.merger.wait();
        self.note(outcome)
    }

    /// How many files hold the rows.
    pub fn files(&self) -> usize {
        self.tree.files()
    }

    /// Remembers a failure of the disk. Want of room, or of open files, is none: nothing was changed.
    fn note<T>(&mut self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        match &outcome {
            Ok(_) | Err(EngineError::Full(_) | EngineError::Later(_)) => {}
            Err(EngineError::Corrupt(_)) => self.corrupt = true,
            Err(error) => {
                self.failed = true;
                if let EngineError::Io(error) = error {
                    self.failed_write.get_or_insert_with(|| error.to_string());
                }
            }
        }
        outcome
    }

    /// Refuses to go on after a failed write.
    fn usable(&self) -> Result<(), EngineError> {
        match self.failed {
            false => Ok(()),
            true => Err(EngineError::Library("F08: an earlier write to disk failed".into())),
        }
    }

    /// Refuses to make files of what is damaged.
    fn sound(&self) -> Result<(), EngineError> {
        self.usable()?;
        match self.corrupt {
            false => Ok(()),
            true => Err(EngineError::Corrupt("lsm: its files were found to be damaged".into())),
        }
    }

    /// Waits for what runs, of which nothing is needed any more: that it found no room, or damage, is no
    /// matter.
    fn end_all(&mut self) -> Result<(), EngineError> {
        for outcome in [self.end_flush(), self.merger.wait()] {
            match outcome {
                Err(EngineError::Full(_) | EngineError::Later(_) | EngineError::Corrupt(_)) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Reads during an installation would see half a state.
    fn readable(&self) -> Result<(), EngineError> {
        match self.installing {
            None => Ok(()),
            Some(base) => Err(EngineError::Library(format!("the state at {base} is being installed"))),
        }
    }

    /// The version of `key` at `at` in what is published.
    fn published_row(&self, key: &[u8], at: Lsn) -> Result<Option<(Lsn, Bytes)>, EngineError> {
        let at = self.seen_at(at);
        match self.memtable.version(key, at) {
            Some((lsn, value)) => Ok(value.map(|value| (lsn, value.clone()))),
            None => self.tree.get(key, at),
        }
    }

    /// What a read at `at` sees of what is published.
    fn seen_at(&self, at: Lsn) -> Lsn {
        match self.environment.rules.reads_see_nothing_newer() {
            true => at,
            false => Lsn(at.0.saturating_add(1)),
        }
    }

    /// Writes what is in memory to disk, together with the position `at` that it is the state of.
    fn flush_at(&mut self, at: Position) -> Result<(), EngineError> {
        self.merger.wait()?;
        self.flush_kept()?;
        self.kept = Some(self.set_apart(at));
        self.flush_kept()
    }

    /// Sets what is in memory apart, with the position `at` that it is the state of.
    fn set_apart(&mut self, at: Position) -> Kept {
        self.memtable.write_position(&self.tree, at);
        let frozen = self.memtable.freeze().expect("the position was just written");
        Kept { frozen, at, load: None }
    }

    /// Writes to disk what was set apart.
    fn flush_kept(&mut self) -> Result<(), EngineError> {
        let Some(kept) = self.kept.take() else { return Ok(()) };
        let outcome = kept.flush(&self.tree);
        self.flushed(kept, outcome)
    }

    /// Notes how a flush ended.
    fn flushed(&mut self, kept: Kept, outcome: Result<(), EngineError>) -> Result<(), EngineError> {
        match &outcome {
            Ok(()) => {
                let own = self.environment.rules.persisted_is_what_was_flushed();
                self.persisted = if own { kept.at } else { self.overlay.published() };
                self.memtable.flushed();
                self.free(kept.frozen);
                if kept.load.is_some() {
                    return self.load_installed(kept.at);
                }
            }
            Err(EngineError::Full(_)) => self.kept = Some(kept),
            // What the entry of a load changes is tentative until the load is installed.
            Err(_) if kept.load.is_some() => self.memtable.flushed(),
            Err(_) => self.memtable.not_flushed(&self.tree),
        }
        outcome
    }

    /// Gives back the memory of rows that are in files now: beside other work if that takes long.
    fn free(&self, rows: Frozen) {
        if rows.bytes() >= MUCH_TO_FREE {
            // Where none can be started, they are freed here.
            let _ = self.environment.background.start("lsm free", Box::new(move || drop(rows)));
        }
    }

    /// Begins the same beside other work.
    fn begin_flush(&mut self, at: Position, wake: &Wake) -> Result<Checkpoint, EngineError> {
        self.merger.wait()?;
        let kept = match self.next_load()? {
            Some(kept) => kept,
            None if at == self.persisted => return Ok(Checkpoint::Idle),
            None => self.kept.take().unwrap_or_else(|| self.set_apart(at)),
        };
        // No merge may hold up a load.
        let merges = self.pending.len() <= usize::from(kept.load.is_some());
        self.flush = Some(self.merger.start_flush(&self.tree, kept, self.read_floor, merges, wake)?);
        Ok(Checkpoint::Waiting)
    }

    /// Waits for a flush beside other work.
    fn end_flush(&mut self) -> Result<(), EngineError> {
        let Some(flush) = self.flush.take() else { return Ok(()) };
        self.merger.hurry();
        let outcome = flush.wait();
        self.flushed(flush.kept, outcome)
    }

    /// Starts a merge if there are enough small files.
    fn merge_if_due(&mut self) -> Result<(), EngineError> {
        if self.tree.wants_merge() {
            self.merger.start(&self.tree, self.read_floor, self.persisted.lsn)?;
        }
        Ok(())
    }
}

impl Engine for LsmEngine {
    fn execute(&mut self, at: Position, mutations: &[Mutation]) {
        assert!(self.installing.is_none(), "R4: entry {at} executed on half a state");
        let begun = self.replay_rate.begin(|| self.environment.now());
        self.overlay.insert(at, mutations);
        self.replay_rate.executed(begun);
    }

    fn publish(&mut self, upto: Lsn) -> Result<(), EngineError> {
        let upto = self.publishable(upto);
        let (tree, memtable, ahead) = (&self.tree, &mut self.memtable, &mut self.ahead);
        let (begun, before) = (self.environment.now(), self.overlay.published().lsn);
        let forgets = self.environment.rules.what_is_written_is_not_read_ahead();
        let read_floor = self.read_floor;
        let rows = self.overlay.drain_readable(upto, read_floor, |key, lsn, value| {
            memtable.keep(tree, key, (lsn, read_floor), value);
            if forgets {
                ahead.written(key);
            }
        });
        self.memtable.collect(read_floor, rows);
        self.replay_rate.published(begun, self.overlay.published().lsn.0 - before.0);
        Ok(())
    }

    fn discard_above(&mut self, to: Position) {
        match self.environment.rules.discards_stop_at_their_position() {
            true => self.overlay.discard_above(to),
            false => self.overlay.discard_from(to),
        }
        self.pending.retain(|pending| pending.at.lsn <= to.lsn);
        self.allowed = self.allowed.min(to.lsn);
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
        let newest = at == ReadAt::Applied;
        let at = resolve(at, self.read_floor)?;
        if let Some((lsn, value)) = self.overlay.get(key, at) {
            return Ok(value.map(|value| (lsn, value.clone())));
        }
        if let Some(known) = self.ahead.get(self.number, key).filter(|_| newest) {
            return Ok(known.clone());
        }
        if key < FIRST_KEY { Ok(None) } else { self.published_row(key, at) }
    }

    fn read_ahead(&mut self, keys: &[Bytes]) -> Result<(), EngineError> {
        self.readable()?;
        for key in keys.iter().filter(|key| &key[..] >= FIRST_KEY) {
            let newest = self.published_row(key, Lsn::MAX)?;
            self.ahead.keep(self.number, key, newest);
        }
        Ok(())
    }

    fn end_read_ahead(&mut self) {
        self.ahead.clear();
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
        let published = self.seen_at(at);
        let memory =
            scan::layered(self.overlay.range(from, to, at), self.memtable.range(from, to, published));
        scan::merge(memory, self.tree.range(from, to, published), limit, max_bytes)
    }

    fn deletions(&self, from: &[u8], to: &[u8], above: Lsn) -> Result<Vec<(Bytes, Lsn)>, EngineError> {
        self.readable()?;
        self.tree.deletions(from.max(FIRST_KEY), to, above, &self.memtable)
    }

    fn raise_read_floor(&mut self, read_floor: Lsn) {
        self.read_floor = self.read_floor.max(read_floor);
    }

    fn read_floor(&self) -> Lsn {
        self.read_floor
    }

    fn memory_bytes(&self) -> u64 {
        self.overlay.bytes() + self.memtable.bytes()
    }

    fn replay_ns(&self) -> u64 {
        self.replay_rate.nanos()
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn checkpoint(&mut self) -> Result<Position, EngineError> {
        self.sound()?;
        let outcome = self.end_flush();
        self.note(outcome)?;
        let published = self.overlay.published();
        // During an installation a restart finds an empty engine, and must go on finding one.
        if self.installing.is_none() && published != self.persisted {
            let outcome = self.flush_at(published).and_then(|()| self.merge_if_due());
            self.note(outcome)?;
        }
        let outcome = self.install_loads();
        self.note(outcome)?;
        Ok(self.persisted)
    }

    fn reset(&mut self, base: Position) -> Result<(), EngineError> {
        self.usable()?;
        let outcome = self.begin_install(base);
        self.note(outcome)
    }

    fn install(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        self.usable()?;
        let base = self.installing.expect("rows are installed between reset and finish_install");
        for row in rows {
            check_installed(row, base)?;
            self.memtable.write(&self.tree, &row.key, (row.lsn, base.lsn), Some(&row.value));
        }
        let outcome = self.flush_install();
        self.note(outcome)
    }

    fn finish_install(&mut self) -> Result<(), EngineError> {
        self.usable()?;
        let base = self.installing.expect("an installation ends that was begun");
        assert_eq!(self.overlay.applied(), base, "nothing is executed during an installation");
        let outcome = self.end_install(base);
        self.note(outcome)?;
        self.installing = None;
        let outcome = self.merge_if_due();
        self.note(outcome)
    }

    fn failed_write(&self) -> Option<&str> {
        self.failed_write.as_deref()
    }

    fn background_checkpoints(&mut self) -> Option<&mut dyn BackgroundCheckpoints> {
        Some(self)
    }

    fn shipping(&self) -> Option<&dyn ShipsFiles> {
        Some(self)
    }

    fn shipping_mut(&mut self) -> Option<&mut dyn ShipsFiles> {
        Some(self)
    }

    fn staging(&self) -> Option<&dyn StagesLoads> {
        Some(self)
    }

    fn staging_mut(&mut self) -> Option<&mut dyn StagesLoads> {
        Some(self)
    }
}

impl BackgroundCheckpoints for LsmEngine {
    fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError> {
        self.sound()?;
        if self.flush.is_some() {
            return self.go_on_checkpoint();
        }
        let at = self.overlay.published();
        // A merge that runs may take long; the log is kept until after it.
        let nothing = at == self.persisted && self.pending.is_empty();
        if self.installing.is_some() || nothing || self.merger.is_busy() {
            return Ok(Checkpoint::Idle);
        }
        let outcome = self.begin_flush(at, wake);
        self.note(outcome)
    }

    fn go_on_checkpoint(&mut self) -> Result<Checkpoint, EngineError> {
        let Some(flush) = &self.flush else { return Ok(Checkpoint::Idle) };
        let Some(outcome) = flush.outcome() else { return Ok(Checkpoint::Waiting) };
        let flush = self.flush.take().expect("just seen");
        let outcome = self.flushed(flush.kept, outcome);
        self.note(outcome)?;
        Ok(Checkpoint::Idle)
    }
}
