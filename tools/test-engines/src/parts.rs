//! A memory engine whose snapshot ships as files: what simulators and tests use in place of
//! [`engine::LsmEngine`]. Its files are the snapshot's rows, dealt out by their keys, and it keeps the same
//! promises as the LSM engine's directory `incoming/`.

mod staged;

pub use staged::load_files;

use bytes::Bytes;
use engine::memory::snapshot::{self, Header};
use engine::{MemoryEngine, SnapshotStore, not_written};
use staged::{Load, PendingLoad};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read};
use types::engine::{BackgroundCheckpoints, Checkpoint, ReadAt, Row, ShipsFiles, StagesLoads, Wake};
use types::{
    Component, ComponentSet, Engine, EngineError, Installation, LoadId, Lsn, Missing, Mutation, PinId,
    Position, Rules,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Rows are dealt out to so many files.
const FILES: u64 = 6;
/// What [`ComponentSet::order`] is.
const ORDER: &[u8] = b"rows dealt out by their keys";
/// Names of what is pinned, and of what is received, begin so.
const PINNED: &str = "pin-";
const RECEIVED: &str = "in-";
const SET: &str = "set";

/// A place for small files.
pub trait Parts: Send {
    /// The whole of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Makes an empty file.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Adds to the end of a file; nothing is synced.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Makes a file of these bytes, durably, or leaves what was there.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Removes a file, if it is there.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// All names.
    fn names(&self) -> Vec<String>;
}

/// A memory engine with files.
pub struct PartsEngine {
    engine: MemoryEngine,
    /// The engine's own snapshot.
    snapshot: Box<dyn SnapshotStore>,
    parts: Box<dyn Parts>,
    pins: BTreeMap<PinId, ComponentSet>,
    last_pin: u64,
    incoming: Option<Incoming>,
    /// Without the rule against F11: what the files of the snapshot were when they were written.
    noted: BTreeMap<u64, Component>,
    /// Entries that may not be in the snapshot, in LSN order.
    recent: VecDeque<(Position, Vec<Mutation>)>,
    /// Files of bulk loads that are no part of the state yet.
    loads: BTreeMap<LoadId, Load>,
    /// Entries whose loads are not installed, in log order.
    pending: VecDeque<PendingLoad>,
    /// Up to where they may be.
    allowed: Lsn,
    /// Between a reset and the end of the installation.
    installing: bool,
    rules: Rules,
}

/// A set that is being received.
struct Incoming {
    set: ComponentSet,
    have: Vec<u64>,
    sealing: bool,
    /// Nothing of the engine's own is used.
    whole: bool,
    /// Files that were here.
    linked: BTreeSet<usize>,
}

impl Incoming {
    fn name(&self, file: usize) -> String {
        format!("{RECEIVED}{}", self.set.files[file].number)
    }
}

/// The payloads of a snapshot's blocks, whatever they hold: for the planted bug alone, which believes what it
/// has not read.
fn blocks(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut blocks, mut rest) = (Vec::new(), bytes.get(snapshot::HEADER_BYTES..).unwrap_or_default());
    while let Some((head, tail)) = rest.split_first_chunk::<8>() {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some((payload, after)) = tail.split_at_checked(length).filter(|_| length > 0) else { break };
        blocks.push(payload);
        rest = after;
    }
    blocks
}

/// The rows of a file, or none if its bytes are no rows.
fn rows_of(mut bytes: &[u8]) -> Option<Vec<(Bytes, Lsn, Bytes)>> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let lsn = u64::from(word(8) as u32) | u64::from(word(12) as u32) << 32;
        let (key, rest) = rest.split_at_checked(word(0))?;
        let (value, rest) = rest.split_at_checked(word(4))?;
        rows.push((Bytes::copy_from_slice(key), Lsn(lsn), Bytes::copy_from_slice(value)));
        bytes = rest;
    }
    Some(rows)
}

fn push_row(file: &mut Vec<u8>, key: &[u8], lsn: Lsn, value: &[u8]) {
    file.extend_from_slice(&(key.len() as u32).to_le_bytes());
    file.extend_from_slice(&(value.len() as u32).to_le_bytes());
    file.extend_from_slice(&lsn.0.to_le_bytes());
    file.extend_from_slice(key);
    file.extend_from_slice(value);
}

fn component(number: u64, content: &[u8]) -> Component {
    Component { number, bytes: content.len() as u64, digest: xxh3_128(content) }
}

impl PartsEngine {
    /// Around `engine`, whose snapshot is in `snapshot`. What a process before left in `parts` and nobody
    /// reads is removed.
    pub fn new(
        engine: MemoryEngine,
        snapshot: Box<dyn SnapshotStore>,
        mut parts: Box<dyn Parts>,
        rules: Rules,
    ) -> Result<PartsEngine, EngineError> {
        for name in parts.names().into_iter().filter(|name| name.starts_with(PINNED)) {
            parts.remove(&name)?;
        }
        let mut engine = PartsEngine {
            engine,
            snapshot,
            parts,
            pins: BTreeMap::new(),
            last_pin: 0,
            incoming: None,
            noted: BTreeMap::new(),
            recent: VecDeque::new(),
            loads: BTreeMap::new(),
            pending: VecDeque::new(),
            allowed: Lsn::ZERO,
            installing: false,
            rules,
        };
        engine.note_files();
        engine.find_loads()?;
        Ok(engine)
    }

    /// Without the rule against F11 files are known by what they were when they were written.
    fn note_files(&mut self) {
        if self.rules.files_are_compared() {
            return;
        }
        if let Ok((_, files)) = self.files() {
            self.noted =
                files.iter().map(|(number, content)| (*number, component(*number, content))).collect();
        }
    }

    /// The files that are here, with what they are: read anew each time, since they may have rotted (F11).
    fn files_here(&mut self) -> Result<BTreeMap<u64, (Component, Vec<u8>)>, EngineError> {
        if !self.rules.files_are_compared() {
            return self.files_unread();
        }
        let files = match self.files() {
            Ok((_, files)) => files,
            Err(EngineError::Corrupt(_)) => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(files
            .into_iter()
            .map(|(number, content)| (number, (component(number, &content), content)))
            .collect())
    }

    /// The planted bug: what was noted of a file is believed, and its bytes are taken as they are.
    fn files_unread(&mut self) -> Result<BTreeMap<u64, (Component, Vec<u8>)>, EngineError> {
        let mut bytes = Vec::new();
        if let Some(mut input) = self.snapshot.load()? {
            input.read_to_end(&mut bytes)?;
        }
        let mut files: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (key, lsn, value) in blocks(&bytes).into_iter().filter_map(rows_of).flatten() {
            push_row(files.entry(xxh3_64(&key) % FILES).or_default(), &key, lsn, &value);
        }
        let noted = |(number, content)| Some((number, (*self.noted.get(&number)?, content)));
        Ok(files.into_iter().filter_map(noted).collect())
    }

    /// The files of the snapshot, and the state that they are.
    fn files(&mut self) -> Result<(Position, BTreeMap<u64, Vec<u8>>), EngineError> {
        let Some(mut input) = self.snapshot.load()? else { return Ok((Position::ZERO, BTreeMap::new())) };
        let mut files: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let header = snapshot::read(&mut input, |row| {
            push_row(files.entry(xxh3_64(&row.key) % FILES).or_default(), &row.key, row.lsn, &row.value);
        })?;
        Ok((header.position, files))
    }

    /// True if a set at `at` has more than the snapshot here, or is wanted whole and has as much.
    fn lacks(&self, at: Position, whole: bool) -> bool {
        let persisted = self.persisted();
        at.lsn > persisted.lsn || (at.lsn == persisted.lsn && (whole || self.published() == persisted))
    }

    fn begin_receive(&mut self, set: ComponentSet, whole: bool) -> Result<bool, EngineError> {
        let useful = set.fault().is_none() && set.order == ORDER;
        if !useful || self.installing || !self.lacks(set.at, whole) {
            return Ok(false);
        }
        let here = self.files_here()?;
        let here = if whole { BTreeMap::new() } else { here };
        let before = self.parts.read(SET).ok();
        let before = before.and_then(|bytes| postcard::from_bytes::<ComponentSet>(&bytes).ok());
        let before: BTreeSet<Component> = before.into_iter().flat_map(|set| set.files).collect();
        // PR-36: a file is known by its content. Without that, by its number.
        let strict = self.rules.files_are_known_by_digest();
        let same =
            |one: &Component, other: &Component| one.number == other.number && (!strict || one == other);
        let kept = |file: &&Component| before.iter().any(|other| same(file, other));
        let kept: BTreeSet<String> =
            set.files.iter().filter(kept).map(|file| format!("{RECEIVED}{}", file.number)).collect();
        for name in self.parts.names() {
            if name.starts_with(RECEIVED) && !kept.contains(&name) {
                self.parts.remove(&name)?;
            }
        }
        let bytes = postcard::to_stdvec(&set).expect("numbers and bytes can be encoded");
        self.parts.replace(SET, &bytes).map_err(not_written)?;
        let (have, linked) = (vec![0; set.files.len()], BTreeSet::new());
        let mut incoming = Incoming { have, set, sealing: false, whole, linked };
        for (index, file) in incoming.set.files.iter().enumerate() {
            let name = incoming.name(index);
            if let Some((known, content)) = here.get(&file.number)
                && same(known, file)
            {
                self.parts.remove(&name)?;
                self.parts.create(&name).map_err(not_written)?;
                self.parts.append(&name, content).map_err(not_written)?;
                incoming.have[index] = file.bytes;
                incoming.linked.insert(index);
            } else if let Ok(content) = self.parts.read(&name) {
                incoming.have[index] = content.len() as u64;
            } else {
                self.parts.create(&name).map_err(not_written)?;
            }
        }
        self.incoming = Some(incoming);
        Ok(true)
    }

    /// Checks every file, and then makes the set the engine's state by one replacement.
    fn exchange(&mut self) -> Result<Installation, EngineError> {
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.sealing) else {
            return Ok(Installation::Refused("no installation was begun".into()));
        };
        incoming.sealing = false;
        // F12: what came is looked at before anything names it.
        let strict = self.rules.received_files_are_whole() && self.rules.files_are_known_by_digest();
        let (mut tainted, mut rows) = (Vec::new(), Vec::new());
        for (index, file) in incoming.set.files.iter().enumerate() {
            let content = match self.parts.read(&incoming.name(index)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                content => content.unwrap_or_default(),
            };
            // F11: one that was here may have rotted since.
            let strict = strict && (self.rules.files_are_compared() || !incoming.linked.contains(&index));
            match rows_of(&content).filter(|_| !strict || component(file.number, &content) == *file) {
                Some(more) => rows.extend(more),
                None if strict => tainted.push(index),
                None => {}
            }
        }
        if !tainted.is_empty() {
            for index in &tainted {
                let name = incoming.name(*index);
                incoming.have[*index] = 0;
                self.parts.remove(&name)?;
                self.parts.create(&name).map_err(not_written)?;
            }
            return Ok(Installation::Tainted(tainted));
        }
        let (at, whole) = (incoming.set.at, incoming.whole);
        if !self.lacks(at, whole) {
            self.stop_receiving()?;
            return Ok(Installation::Refused("it has newer files of its own".into()));
        }
        rows.sort();
        rows.dedup_by(|later, earlier| later.0 == earlier.0);
        let mut bytes = Vec::new();
        let header = Header { position: at, read_floor: at.lsn };
        snapshot::write(&mut bytes, header, rows.into_iter()).expect("writing into memory does not fail");
        self.recent.retain(|(entry, _)| entry.lsn > at.lsn);
        let had_files = self.persisted() > Position::ZERO;
        self.engine.take_over(&bytes, self.recent.make_contiguous())?;
        if had_files && !self.rules.installations_have_own_directories() {
            // The planted bug: the old files go when nobody reads them, by names that are the new ones'.
            self.snapshot.clear()?;
        }
        self.note_files();
        self.unpin_all();
        self.settle_loads()?;
        self.stop_receiving()?;
        Ok(Installation::Done)
    }

    fn unpin_all(&mut self) {
        for pin in self.pins.keys().copied().collect::<Vec<_>>() {
            self.unpin(pin);
        }
    }
}

impl Engine for PartsEngine {
    fn execute(&mut self, at: Position, mutations: &[Mutation]) {
        self.engine.execute(at, mutations);
        let persisted = self.engine.persisted().lsn;
        while self.recent.front().is_some_and(|(entry, _)| entry.lsn <= persisted) {
            self.recent.pop_front();
        }
        self.recent.push_back((at, mutations.to_vec()));
    }

    fn publish(&mut self, upto: Lsn) -> Result<(), EngineError> {
        self.engine.publish(self.publishable(upto))
    }

    fn discard_above(&mut self, to: Position) {
        self.engine.discard_above(to);
        self.recent.retain(|(entry, _)| entry.lsn <= to.lsn);
        self.pending.retain(|pending| pending.at.lsn <= to.lsn);
        self.allowed = self.allowed.min(to.lsn);
    }

    fn applied(&self) -> Position {
        self.engine.applied()
    }

    fn published(&self) -> Position {
        self.engine.published()
    }

    fn persisted(&self) -> Position {
        self.engine.persisted()
    }

    fn get(&self, key: &[u8], at: ReadAt) -> Result<Option<(Lsn, Bytes)>, EngineError> {
        self.engine.get(key, at)
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        at: ReadAt,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Row>, EngineError> {
        self.engine.scan(from, to, at, limit, max_bytes)
    }

    fn deletions(&self, from: &[u8], to: &[u8], above: Lsn) -> Result<Vec<(Bytes, Lsn)>, EngineError> {
        self.engine.deletions(from, to, above)
    }

    fn raise_read_floor(&mut self, read_floor: Lsn) {
        self.engine.raise_read_floor(read_floor);
    }

    fn read_floor(&self) -> Lsn {
        self.engine.read_floor()
    }

    fn memory_bytes(&self) -> u64 {
        self.engine.memory_bytes()
    }

    fn replay_ns(&self) -> u64 {
        self.engine.replay_ns()
    }

    fn is_persistent(&self) -> bool {
        self.engine.is_persistent()
    }

    fn checkpoint(&mut self) -> Result<Position, EngineError> {
        self.engine.checkpoint()?;
        while self.install_load()? {}
        self.note_files();
        Ok(self.engine.persisted())
    }

    fn failed_write(&self) -> Option<&str> {
        self.engine.failed_write()
    }

    fn reset(&mut self, base: Position) -> Result<(), EngineError> {
        self.unpin_all();
        self.recent.clear();
        self.pending.clear();
        self.allowed = Lsn::ZERO;
        self.engine.reset(base)?;
        self.installing = true;
        Ok(())
    }

    fn install(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        self.engine.install(rows)
    }

    fn finish_install(&mut self) -> Result<(), EngineError> {
        // The memory engine is done with it even if its snapshot finds no room.
        self.installing = false;
        self.engine.finish_install()
    }

    fn digest(&self, at: ReadAt) -> Result<u64, EngineError> {
        self.engine.digest(at)
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

impl BackgroundCheckpoints for PartsEngine {
    fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError> {
        if self.install_load()? {
            self.note_files();
            return Ok(Checkpoint::Idle);
        }
        let begun = self.engine.begin_checkpoint(wake);
        self.note_files();
        begun
    }

    fn go_on_checkpoint(&mut self) -> Result<Checkpoint, EngineError> {
        let done = self.engine.go_on_checkpoint();
        self.note_files();
        done
    }
}

impl ShipsFiles for PartsEngine {
    fn pin(&mut self) -> Result<Option<(PinId, ComponentSet)>, EngineError> {
        if self.installing || self.engine.persisted() == Position::ZERO {
            return Ok(None);
        }
        let (at, files) = self.files()?;
        self.last_pin += 1;
        let pin = PinId(self.last_pin);
        let components = files.iter().map(|(number, content)| component(*number, content)).collect();
        self.pins.insert(pin, ComponentSet { at, order: ORDER.to_vec(), files: components });
        for (index, content) in files.values().enumerate() {
            let name = format!("{PINNED}{}-{index}", pin.0);
            if self.parts.create(&name).and_then(|()| self.parts.append(&name, content)).is_err() {
                // There is no room.
                self.unpin(pin);
                return Ok(None);
            }
        }
        Ok(Some((pin, self.pins[&pin].clone())))
    }

    fn read_component(
        &self,
        pin: PinId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        let known = self.pins.get(&pin).and_then(|set| set.files.get(file));
        if known.is_none() {
            return Ok(None);
        }
        let content = self.parts.read(&format!("{PINNED}{}-{file}", pin.0))?;
        let from = from.min(content.len() as u64) as usize;
        let to = from.saturating_add(max_bytes).min(content.len());
        Ok(Some(Bytes::copy_from_slice(&content[from..to])))
    }

    fn unpin(&mut self, pin: PinId) {
        let Some(set) = self.pins.remove(&pin) else { return };
        for file in 0..set.files.len() {
            // What cannot be removed now is removed at the next start.
            let _ = self.parts.remove(&format!("{PINNED}{}-{file}", pin.0));
        }
    }

    fn receive(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.begin_receive(set, false)
    }

    fn receive_whole(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.begin_receive(set, true)
    }

    fn missing(&self) -> Vec<Missing> {
        let Some(incoming) = &self.incoming else { return Vec::new() };
        let files = incoming.set.files.iter().zip(&incoming.have).enumerate();
        let lacking = files.filter(|(_, (file, have))| **have < file.bytes);
        lacking.map(|(file, (_, have))| Missing { file, from: *have }).collect()
    }

    fn receive_piece(&mut self, file: usize, from: u64, bytes: &[u8]) -> Result<bool, EngineError> {
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| !incoming.sealing) else {
            return Ok(false);
        };
        let Some(component) = incoming.set.files.get(file) else { return Ok(false) };
        let fits = from.checked_add(bytes.len() as u64).is_some_and(|end| end <= component.bytes);
        if from != incoming.have[file] || !fits || bytes.is_empty() {
            return Ok(false);
        }
        self.parts.append(&incoming.name(file), bytes).map_err(not_written)?;
        incoming.have[file] = from + bytes.len() as u64;
        Ok(true)
    }

    fn begin_installation(&mut self, wake: &Wake) -> Result<Installation, EngineError> {
        let whole = self.incoming.is_some() && self.missing().is_empty();
        match self.incoming.as_mut().filter(|_| whole) {
            Some(incoming) => {
                incoming.sealing = true;
                wake();
                Ok(Installation::Waiting)
            }
            None => Ok(Installation::Refused("no whole set has been received".into())),
        }
    }

    fn go_on_installation(&mut self) -> Result<Installation, EngineError> {
        self.exchange()
    }

    fn stop_receiving(&mut self) -> Result<(), EngineError> {
        self.incoming = None;
        for name in self.parts.names() {
            if name.starts_with(RECEIVED) || name.starts_with(SET) {
                self.parts.remove(&name)?;
            }
        }
        Ok(())
    }
}
