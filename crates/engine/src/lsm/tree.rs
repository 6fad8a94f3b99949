//! The one place that touches the crate `lsm-tree` (N19). Its traps and what is done about each:
//!
//! - It stamps every version with a counter, and a read at `s` uses the newest version stamped below `s`. Our
//!   sequence numbers are 2^40 + LSN and its counter is private and starts at 0, so the newest version is
//!   always chosen (PR-68).
//! - Its collector drops an older version below the threshold even if a reader between the two needs it. The
//!   threshold is 0 unless no reader is below the highest persisted entry (PR-69).
//! - Its flush merges and collects. Ours writes the rows of [`Memtable`] as they are (section 10 of the
//!   protocol); the crate's own memory stays empty.
//! - Opening deletes files that the version does not name, makes an empty tree where the version is missing,
//!   does not check the version's checksum and panics on some damage. All that is looked at before, behind a
//!   barrier (PR-72).
//! - A range read does not give sequence numbers, so the LSN stands in front of each value. A bulk load's
//!   rows were written before their LSN was known: the load's number stands there, and a row of the partition
//!   says at which LSN it became part of the state.
//! - Its ingestion stamps what it takes in by its own counter and flushes everything (PR-71, PR-84). Ours
//!   writes a load's files in a scratch tree and registers them with the sequence number of the load's entry,
//!   together with the flush of that entry.

mod load_files;

pub(super) use load_files::{LoadKeys, check_load};

use super::background::FileCall;
use super::digest::{digest_file, missing_is_damage, order_files, read_whole, verify_version};
use super::environment::{Environment, Resources};
use super::memtable::{Frozen, POSITION_KEY};
use super::merge_pacing::{MergePacing, Shape};
use crate::files::{is_for_now, keep_spare, not_read, not_written, patiently, remove_if_there, sync_dir};
use crate::scan::{FIRST_KEY, bound};
use bytes::Bytes;
use lsm_tree::compaction::{CompactionStrategy, MoveDown};
use lsm_tree::{AbstractTree, AnyTree, Checksum, Config, Guard, InternalValue, SequenceNumberCounter, Slice};
use lsm_tree::{Table, ValueType};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use types::bulk::{load_of, load_range};
use types::engine::{MAX_KEY_BYTES, Row};
use types::{Component, ComponentSet, EngineError, LoadId, Lsn, Position, Term};

/// Lies above every stamp that the crate draws and below every sequence number.
pub(super) const SEQUENCE_BASE: u64 = 1 << 40;
/// Handed to `register_tables`, which prunes the versions stamped below it: all but the newest.
const PRUNE_BELOW: u64 = 1 << 39;
/// The crate's sequence numbers have 63 bits.
const MAX_SEQUENCE: u64 = (1 << 63) - 1;
/// In front of a value: the rest is the number of a load, not an LSN.
const LOADED: u64 = 1 << 63;

/// A tree whose versions are LSNs. Clones share it.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) tree: AnyTree,
    dir: PathBuf,
    environment: Environment,
    pacing: Arc<MergePacing>,
    loads: Arc<Loads>,
}

/// The loads that are part of a tree, and at which LSN each became so.
#[derive(Default)]
pub(super) struct Loads(RwLock<BTreeMap<LoadId, Lsn>>);

impl Loads {
    fn note(&self, load: LoadId, lsn: Lsn) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(load, lsn);
    }

    fn lsn(&self, load: LoadId) -> Option<Lsn> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&load).copied()
    }

    /// Takes the stored value apart again.
    fn split(&self, stored: &[u8]) -> Result<(Lsn, Bytes), EngineError> {
        let Some((stamp, value)) = stored.split_first_chunk::<8>() else {
            return Err(corrupt("a value without its LSN"));
        };
        let stamp = u64::from_le_bytes(*stamp);
        let lsn = match stamp & LOADED {
            0 => Some(Lsn(stamp)),
            _ => self.lsn(LoadId(stamp & !LOADED)),
        };
        let lsn = lsn.ok_or_else(|| corrupt("a row of a load that is not part of the state"))?;
        Ok((lsn, Bytes::copy_from_slice(value)))
    }
}

/// A version whose files stay as long as this does.
pub(super) struct Pinned {
    /// The set that the version is.
    pub(super) set: ComponentSet,
    /// Where the set's files are, in its order.
    pub(super) paths: Vec<PathBuf>,
    /// The crate removes a table's file when nobody has the table any more.
    _tables: Vec<lsm_tree::Table>,
}

impl Tree {
    /// Makes an empty tree in `dir`, in which there must be none.
    pub(super) fn create(dir: &Path, environment: &Environment) -> Result<Tree, EngineError> {
        environment.before(FileCall::Write, dir)?;
        assert!(!dir.exists(), "PR-37: a new directory per installation, but {} is there", dir.display());
        open_behind_barrier(dir, environment)
    }

    /// Opens the tree in `dir`, which must be whole.
    pub(super) fn open(dir: &Path, environment: &Environment) -> Result<Tree, EngineError> {
        verify_version(dir)?;
        // Opening removes what `current` does not name: that must not be taken back afterwards (PR-93).
        sync_dir(dir)?;
        let tree = open_behind_barrier(dir, environment)?;
        let (from, to) = load_range();
        for row in tree.range(&from, &to, Lsn::MAX) {
            let row = row?;
            let load = load_of(&row.key).ok_or_else(|| corrupt("a row about a load has another key"))?;
            tree.loads.note(load, row.lsn);
        }
        Ok(tree)
    }

    /// A row was written: one that says that a load is part of the state is remembered.
    pub(super) fn note_row(&self, key: &[u8], lsn: Lsn) {
        if let Some(load) = load_of(key) {
            self.loads.note(load, lsn);
        }
    }

    /// False in a mutant (PR-40).
    pub(super) fn flushes_name_their_own_position(&self) -> bool {
        self.environment.rules.flushes_name_their_own_position()
    }

    /// The position of the newest flush, from the rows themselves, or zero if there was none.
    pub(super) fn position(&self) -> Result<Position, EngineError> {
        let Some((lsn, value)) = self.get(POSITION_KEY, Lsn::MAX)? else {
            return match self.tree.table_count() {
                0 => Ok(Position::ZERO),
                _ => Err(corrupt("PR-40: there are files, but no applied position in them")),
            };
        };
        let Ok(bytes) = <[u8; 16]>::try_from(&value[..]) else {
            return Err(corrupt("PR-40: the row of the applied position has another length"));
        };
        let (epoch, own) = bytes.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a half of sixteen bytes"));
        let at = Position::new(Term(word(epoch)), Lsn(word(own)));
        if at.lsn != lsn || self.tree.get_highest_persisted_seqno() > Some(sequence(lsn)) {
            return Err(corrupt(&format!("PR-40: the files hold more than the state at {at}")));
        }
        Ok(at)
    }

    /// The version of `key` at `at` in the files.
    pub(super) fn get(&self, key: &[u8], at: Lsn) -> Result<Option<(Lsn, Bytes)>, EngineError> {
        // The crate asserts its own limit on look-ups too (PR-72).
        if key.len() > MAX_KEY_BYTES {
            return Ok(None);
        }
        match self.tree.get(key, read_sequence(at)).map_err(read_error)? {
            Some(stored) => self.loads.split(&stored).map(Some),
            None => Ok(None),
        }
    }

    /// The rows at `at` with `from <= key < to` (`to` empty: no end) in the files.
    pub(super) fn range(
        &self,
        from: &[u8],
        to: &[u8],
        at: Lsn,
    ) -> impl Iterator<Item = Result<Row, EngineError>> + use<> {
        let (from, to) = (bound(from), bound(to));
        let bounds = crate::overlay::key_bounds(from, to);
        // The crate does not say what it makes of an empty range.
        let empty = !to.is_empty() && from >= to;
        let rows = (!empty).then(|| self.tree.range::<&[u8], _>(bounds, read_sequence(at), None));
        let loads = self.loads.clone();
        rows.into_iter().flatten().map(move |item| {
            let (key, stored) = item.into_inner().map_err(read_error)?;
            let (lsn, value) = loads.split(&stored)?;
            Ok(Row { key: Bytes::copy_from_slice(&key), lsn, value })
        })
    }

    /// Its directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes what was set apart into files and makes them part of the tree, durably. Reads and writes may go
    /// on.
    ///
    /// The caller keeps merges away meanwhile (PR-69).
    pub(super) fn flush_frozen(&self, frozen: &Frozen) -> Result<(), EngineError> {
        let keeps_deletions = self.environment.rules.flushes_keep_deletions();
        let rows = stored(frozen).filter(|row| keeps_deletions || !row.is_tombstone()).map(Ok);
        self.writing(|| {
            // The crate syncs each table, then its directory, then the version that names it.
            let (tables, blobs) = self.tree.flush_to_tables(rows)?.expect("what is set apart has rows");
            assert!(blobs.is_none(), "PR-72: key-value separation is off");
            self.pacing.flushed(tables.iter().map(|table| table.metadata.file_size).sum());
            self.tree.register_tables(&tables, None, None, &[], PRUNE_BELOW)
        })
    }

    /// The same for the flush of the entry that makes a load part of the state: its files go in with it, all
    /// or none.
    pub(super) fn flush_load(
        &self,
        frozen: &Frozen,
        at: Lsn,
        files: &[(Component, PathBuf)],
    ) -> Result<(), EngineError> {
        let AnyTree::Standard(tree) = &self.tree else { unreachable!("PR-72: key-value separation is off") };
        let last = files.iter().map(|(file, _)| file.number).max().unwrap_or(0);
        if self.has_numbers(files) {
            return Err(corrupt("PR-36: the tree has files with a load's numbers already"));
        }
        let tables = self.dir.join("tables");
        let link = |(file, path): &(Component, PathBuf)| {
            let name = tables.join(file.number.to_string());
            self.environment.before(FileCall::Write, &name)?;
            remove_if_there(&name)?;
            fs::hard_link(path, &name)
        };
        let linked = files.iter().try_for_each(link).and_then(|()| sync_dir(&tables)).map_err(not_written);
        let work = || {
            let loaded = files.iter().map(|(file, _)| {
                let name = tables.join(file.number.to_string());
                let config = &tree.config;
                let (cache, descriptors) = (config.cache.clone(), config.descriptor_table.clone());
                let digest = Checksum::from_raw(file.digest);
                Table::recover(name, digest, sequence(at), tree.id(), cache, descriptors, false, false)
            });
            let loaded = loaded.collect::<lsm_tree::Result<Vec<_>>>()?;
            let rows = stored(frozen).map(Ok);
            let (mut all, blobs) = self.tree.flush_to_tables(rows)?.expect("what is set apart has rows");
            assert!(blobs.is_none(), "PR-72: key-value separation is off");
            // The entry's own rows are reserved ones: their keys are below those of all users' rows, so
            // together they are one run.
            all.extend(loaded);
            self.tree.register_tables(&all, None, None, &[], PRUNE_BELOW)
        };
        let written = linked.and_then(|()| self.writing(work));
        if let Err(EngineError::Full(_)) = &written {
            for (file, _) in files {
                remove_if_there(&tables.join(file.number.to_string()))?;
            }
        }
        written?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this counter numbers files, it stamps nothing (PR-68)"
        )]
        tree.table_id_counter.fetch_max(last + 1);
        Ok(())
    }

    /// True if the tree has files that are numbered as these.
    pub(super) fn has_numbers(&self, files: &[(Component, PathBuf)]) -> bool {
        let numbers: BTreeSet<u64> = files.iter().map(|(file, _)| file.number).collect();
        self.tree.current_version().iter_tables().any(|table| numbers.contains(&table.id()))
    }

    /// True if a load is part of the state, flushed or not.
    pub(super) fn has_load(&self, load: LoadId) -> bool {
        self.loads.lsn(load).is_some()
    }

    /// Runs what writes files, while nothing else does. If the disk has no room for them, or the system no
    /// open files (PR-96), and they are not part of the tree, they are removed, and the tree is as it was.
    fn writing(&self, work: impl FnOnce() -> lsm_tree::Result<()>) -> Result<(), EngineError> {
        let first = self.tree.get_next_table_id();
        let allowed = [FileCall::Write, FileCall::Sync]
            .into_iter()
            .try_for_each(|call| self.environment.before(call, &self.dir))
            .map_err(lsm_tree::Error::Io);
        match allowed.and_then(|()| work()).map_err(error) {
            Err(EngineError::Io(cause)) if is_for_now(&cause) => {
                if !patiently(|| self.is_as_named())? {
                    return Err(EngineError::Io(cause));
                }
                patiently(|| self.remove_tables_from(first))?;
                Err(EngineError::Full(cause))
            }
            outcome => {
                outcome?;
                self.environment.made_durable();
                Ok(())
            }
        }
    }

    /// True if the version on the disk is the one in memory.
    fn is_as_named(&self) -> Result<bool, EngineError> {
        let current = read_whole(&self.dir.join("current"))?;
        Ok(current.first_chunk().map(|number| u64::from_le_bytes(*number))
            == Some(self.tree.current_version().id()))
    }

    /// Removes the files of tables whose numbers were given out from `first` on.
    fn remove_tables_from(&self, first: u64) -> Result<(), EngineError> {
        for entry in fs::read_dir(self.dir.join("tables")).map_err(not_read)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if number.is_some_and(|number| number >= first) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// True if files are to be merged.
    pub(super) fn wants_merge(&self) -> bool {
        self.pacing.wants_merge(&self.shape())
    }

    /// Merges files until no level is too large, or as many as are due now. No read looks below
    /// `readers_from`; `persisted` is the newest flush.
    ///
    /// The caller keeps flushes away meanwhile, so that nothing newer than `persisted` is merged (PR-69).
    pub(super) fn merge(&self, readers_from: Lsn, persisted: Lsn) -> Result<(), EngineError> {
        let read_below = readers_from < persisted && self.environment.rules.merges_keep_what_readers_need();
        let collects = persisted > Lsn::ZERO && !read_below;
        let threshold = if collects { sequence(persisted) } else { 0 };
        let mut shape = self.shape();
        self.pacing.begin(&shape);
        while self.pacing.goes_on(&shape) {
            let before = self.tree.current_version().id();
            let strategy: Arc<dyn CompactionStrategy + Send + Sync> = match self.hole() {
                Some(above) => Arc::new(MoveDown(above, above + 1)),
                None => Arc::new(shape.strategy()),
            };
            self.writing(|| self.tree.compact(strategy, threshold).map(drop))?;
            if self.tree.current_version().id() == before {
                self.pacing.is_even();
                break;
            }
            let now = self.shape();
            self.pacing.merged(now.bytes_beside(&shape));
            shape = now;
        }
        Ok(())
    }

    /// A level that has files above one that has none. The crate's strategy takes it for granted that there
    /// is none, and asserts it in a debug build.
    fn hole(&self) -> Option<u8> {
        let version = self.tree.current_version();
        let runs: Vec<usize> = version.iter_levels().map(|level| level.run_count()).collect();
        // Only one run keeps its order in an empty level.
        let above =
            (1..runs.len().saturating_sub(1)).rev().find(|above| runs[*above] == 1 && runs[above + 1] == 0);
        above.map(|above| above as u8)
    }

    /// The files as merges see them.
    fn shape(&self) -> Shape {
        let version = self.tree.current_version();
        let first_level = version.level(0).map_or(0, |level| level.table_count());
        let tables = version.iter_tables().map(|table| (table.id(), table.metadata.file_size));
        Shape::new(first_level, tables)
    }

    /// Reads every file whole and compares it with the checksum that the version has for it.
    pub(super) fn verify(&self) -> Result<(), EngineError> {
        verify_version(&self.dir)?;
        for table in self.tree.current_version().iter_tables() {
            let (path, expected) = (&*table.path, table.checksum().into_u128());
            if digest_file(path)? != expected {
                return Err(corrupt(&format!("{} does not match its checksum", path.display())));
            }
        }
        Ok(())
    }

    /// The newest version, which holds the state at `at`, while merges may make others. None if they do so
    /// all the time.
    pub(super) fn pin(&self, at: Position) -> Result<Option<Pinned>, EngineError> {
        self.environment.before(FileCall::Open, &self.dir).map_err(not_read)?;
        for _ in 0..16 {
            let version = self.tree.current_version();
            let mut order = read_whole(&self.dir.join("current"))?;
            match fs::read(self.dir.join(format!("v{}", version.id()))) {
                Ok(content) => order.extend_from_slice(&content),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(not_read(error)),
            }
            if order.first_chunk().map(|number| u64::from_le_bytes(*number)) != Some(version.id()) {
                continue;
            }
            if order_files(&order).is_none() {
                return Err(corrupt(&format!("version {} does not match its checksum", version.id())));
            }
            let tables: Vec<_> = version.iter_tables().cloned().collect();
            let files = tables.iter().map(component).collect::<Result<Vec<_>, _>>()?;
            let paths = tables.iter().map(|table| table.path.to_path_buf()).collect();
            let kept = if self.environment.rules.pins_keep_their_files() { tables } else { Vec::new() };
            return Ok(Some(Pinned { set: ComponentSet { at, order, files }, paths, _tables: kept }));
        }
        Ok(None)
    }

    /// Opens the tree that a set was made into; damage if it is not what the set says.
    pub(super) fn open_set(
        dir: &Path,
        set: &ComponentSet,
        environment: &Environment,
    ) -> Result<Tree, EngineError> {
        let tree = Tree::open(dir, environment)?;
        let found =
            tree.tree.current_version().iter_tables().map(component).collect::<Result<Vec<_>, _>>()?;
        let sorted = |files: &[Component]| {
            let mut files = files.to_vec();
            files.sort_unstable();
            files
        };
        match sorted(&found) == sorted(&set.files) && tree.position()? == set.at {
            true => Ok(tree),
            false => Err(corrupt("the files are not the set that they came as")),
        }
    }

    /// How many files hold the tree's rows.
    pub(super) fn files(&self) -> usize {
        self.tree.table_count()
    }
}

/// The sequence number of what `lsn` wrote.
fn sequence(lsn: Lsn) -> u64 {
    let sequence = SEQUENCE_BASE.checked_add(lsn.0).filter(|sequence| *sequence < MAX_SEQUENCE);
    sequence.expect("PR-68: an LSN that no log reaches")
}

/// The sequence number that sees what was written at `at` and below: the crate's reads are exclusive.
pub(super) fn read_sequence(at: Lsn) -> u64 {
    SEQUENCE_BASE.saturating_add(at.0).min(MAX_SEQUENCE - 1) + 1
}

/// What was set apart as the crate has it.
fn stored(frozen: &Frozen) -> impl Iterator<Item = InternalValue> {
    frozen.versions().map(|row| match row.value {
        Some(value) => {
            let value = with_lsn(row.lsn, value);
            InternalValue::from_components(row.key, value, sequence(row.lsn), ValueType::Value)
        }
        None => InternalValue::new_tombstone(row.key, sequence(row.lsn)),
    })
}

/// The LSN and then the value, as it is stored.
fn with_lsn(lsn: Lsn, value: &[u8]) -> Slice {
    let mut stored = Vec::with_capacity(8 + value.len());
    stored.extend_from_slice(&lsn.0.to_le_bytes());
    stored.extend_from_slice(value);
    stored.into()
}

/// Opens or makes the tree in `dir`. A panic of the crate is damage that it did not expect (PR-72).
fn open_behind_barrier(dir: &Path, environment: &Environment) -> Result<Tree, EngineError> {
    let open = || {
        let (stamps, visible) = (SequenceNumberCounter::default(), SequenceNumberCounter::default());
        let Resources { descriptors, cache } = environment.resources.clone();
        let config = Config::new(dir, stamps, visible).use_descriptor_table(Some(descriptors));
        match cache {
            Some(cache) => config.use_cache(cache).open(),
            None => config.open(),
        }
    };
    keep_spare();
    match catch_unwind(AssertUnwindSafe(open)) {
        Ok(Ok(tree)) => {
            let (dir, environment) = (dir.to_owned(), environment.clone());
            Ok(Tree { tree, dir, environment, pacing: Arc::default(), loads: Arc::default() })
        }
        Ok(Err(failure)) => Err(error(failure)),
        Err(_) => Err(corrupt(&format!("{} cannot be opened", dir.display()))),
    }
}

fn component(table: &lsm_tree::Table) -> Result<Component, EngineError> {
    let bytes = fs::metadata(&*table.path).map_err(|error| missing_is_damage(error, &table.path))?.len();
    Ok(Component { number: table.id(), bytes, digest: table.checksum().into_u128() })
}

/// The crate's error in our words: what the disk refused, or what it gave back wrongly.
pub(super) fn error(failure: lsm_tree::Error) -> EngineError {
    use ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    match failure {
        // A file that is cut or gone ends a read early, or sends it before the file's begin.
        lsm_tree::Error::Io(error)
            if matches!(error.kind(), UnexpectedEof | InvalidData | InvalidInput | NotFound) =>
        {
            corrupt(&error.to_string())
        }
        lsm_tree::Error::Io(error) => EngineError::Io(error),
        other => corrupt(&format!("{other:?}")),
    }
}

/// The same for what was only read.
fn read_error(failure: lsm_tree::Error) -> EngineError {
    match error(failure) {
        EngineError::Io(error) => not_read(error),
        other => other,
    }
}

pub(super) fn corrupt(what: &str) -> EngineError {
    EngineError::Corrupt(format!("lsm: {what}"))
}

/// The first key of a row that reads may see lies above the row of the position.
const _: () = assert!(FIRST_KEY[0] > POSITION_KEY[0]);
