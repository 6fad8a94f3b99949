//! An engine with files for the tests of single parts: rows as the memory engine has them, one file, and what
//! was asked of it.

use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Mutex;
use types::engine::{Row, ShipsFiles, StagesLoads, Wake};
use types::{
    Component, ComponentSet, Engine, EngineError, Incarnation, Installation, LoadId, Lsn, Member, Missing,
    Mutation, NodeId, PartitionId, PinId, Position, ReadAt, SessionId, Staged, Staging, StoreId, TableId,
    Term,
};
use understudy_engine::MemoryEngine;
use wire::{Op, ReadLevel, Request};
use xxhash_rust::xxh3::xxh3_128;

/// A position of the first term.
pub(crate) fn at(lsn: u64) -> Position {
    Position::new(Term(1), Lsn(lsn))
}

/// The engine.
pub(crate) struct FakeEngine {
    rows: MemoryEngine,
    /// What is on disk, in one file.
    pub persisted: Position,
    pub file: Bytes,
    pub pinned: Vec<PinId>,
    /// Loads beside the files, with how far each is.
    pub loads: Vec<(LoadId, Staging)>,
    /// The lowest and the highest key of what is ready of them, where it counts.
    pub staged_keys: Option<(Bytes, Bytes)>,
    pub pending: Option<Position>,
    pub allowed: Lsn,
    pub settled: bool,
    /// It writes files just now, so that none can be kept for anybody.
    pub writes: bool,
    /// What comes in: the set, and how much of its file is here.
    pub receiving: Option<(ComponentSet, u64)>,
    /// Keys that were asked for, and those from which on was read.
    pub asked: Mutex<BTreeSet<Bytes>>,
}

impl FakeEngine {
    pub fn new() -> FakeEngine {
        FakeEngine {
            rows: MemoryEngine::volatile(),
            persisted: Position::ZERO,
            file: Bytes::new(),
            pinned: Vec::new(),
            loads: Vec::new(),
            staged_keys: None,
            pending: None,
            allowed: Lsn::ZERO,
            settled: true,
            writes: false,
            receiving: None,
            asked: Mutex::default(),
        }
    }

    /// The set that its file makes.
    pub fn set(&self) -> ComponentSet {
        let file = Component { number: 1, bytes: self.file.len() as u64, digest: xxh3_128(&self.file) };
        ComponentSet { at: self.persisted, order: Vec::new(), files: vec![file] }
    }
}

impl Engine for FakeEngine {
    fn execute(&mut self, at: Position, mutations: &[Mutation]) {
        self.rows.execute(at, mutations);
    }

    fn publish(&mut self, upto: Lsn) -> Result<(), EngineError> {
        self.rows.publish(upto)
    }

    fn discard_above(&mut self, to: Position) {
        self.rows.discard_above(to);
    }

    fn applied(&self) -> Position {
        self.rows.applied()
    }

    fn published(&self) -> Position {
        self.rows.published()
    }

    fn persisted(&self) -> Position {
        self.persisted
    }

    fn get(&self, key: &[u8], at: ReadAt) -> Result<Option<(Lsn, Bytes)>, EngineError> {
        self.asked.lock().expect("no panic").insert(Bytes::copy_from_slice(key));
        self.rows.get(key, at)
    }

    fn scan(
        &self,
        a: &[u8],
        b: &[u8],
        at: ReadAt,
        most: usize,
        bytes: usize,
    ) -> Result<Vec<Row>, EngineError> {
        self.asked.lock().expect("no panic").insert(Bytes::copy_from_slice(a));
        self.rows.scan(a, b, at, most, bytes)
    }

    fn raise_read_floor(&mut self, read_floor: Lsn) {
        self.rows.raise_read_floor(read_floor);
    }

    fn read_floor(&self) -> Lsn {
        self.rows.read_floor()
    }

    fn memory_bytes(&self) -> u64 {
        self.rows.memory_bytes()
    }

    fn replay_ns(&self) -> u64 {
        self.rows.replay_ns()
    }

    fn failed_write(&self) -> Option<&str> {
        None
    }

    fn deletions(&self, from: &[u8], to: &[u8], above: Lsn) -> Result<Vec<(Bytes, Lsn)>, EngineError> {
        self.rows.deletions(from, to, above)
    }

    fn is_persistent(&self) -> bool {
        self.rows.is_persistent()
    }

    fn checkpoint(&mut self) -> Result<Position, EngineError> {
        self.persisted = self.rows.published();
        Ok(self.persisted)
    }

    fn reset(&mut self, base: Position) -> Result<(), EngineError> {
        self.rows.reset(base)
    }

    fn install(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        self.rows.install(rows)
    }

    fn finish_install(&mut self) -> Result<(), EngineError> {
        self.rows.finish_install()
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

impl ShipsFiles for FakeEngine {
    fn pin(&mut self) -> Result<Option<(PinId, ComponentSet)>, EngineError> {
        if self.persisted == Position::ZERO || self.writes {
            return Ok(None);
        }
        let pin = PinId(self.pinned.iter().map(|pin| pin.0).max().unwrap_or(0) + 1);
        self.pinned.push(pin);
        Ok(Some((pin, self.set())))
    }

    fn read_component(
        &self,
        pin: PinId,
        _: usize,
        from: u64,
        most: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        let from = (from as usize).min(self.file.len());
        let to = (from + most).min(self.file.len());
        Ok(self.pinned.contains(&pin).then(|| self.file.slice(from..to)))
    }

    fn unpin(&mut self, pin: PinId) {
        self.pinned.retain(|other| *other != pin);
    }

    fn receive(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.receiving = Some((set, 0));
        Ok(true)
    }

    fn receive_whole(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.receive(set)
    }

    fn missing(&self) -> Vec<Missing> {
        let missing = |(set, here): &(ComponentSet, u64)| {
            (*here < set.bytes()).then_some(Missing { file: 0, from: *here })
        };
        self.receiving.iter().filter_map(missing).collect()
    }

    fn receive_piece(&mut self, _: usize, from: u64, bytes: &[u8]) -> Result<bool, EngineError> {
        let Some((_, here)) = self.receiving.as_mut().filter(|(_, here)| *here == from) else {
            return Ok(false);
        };
        *here += bytes.len() as u64;
        Ok(true)
    }

    fn begin_installation(&mut self, _: &Wake) -> Result<Installation, EngineError> {
        Ok(Installation::Waiting)
    }

    fn go_on_installation(&mut self) -> Result<Installation, EngineError> {
        Ok(Installation::Waiting)
    }

    fn stop_receiving(&mut self) -> Result<(), EngineError> {
        self.receiving = None;
        Ok(())
    }
}

impl StagesLoads for FakeEngine {
    fn stage(&mut self, load: LoadId, _: &[Component]) -> Result<Staging, EngineError> {
        if let Some((_, staging)) = self.loads.iter().find(|(known, _)| *known == load) {
            return Ok(staging.clone());
        }
        let staging = Staging::Wants { file: 0, from: 0 };
        self.loads.push((load, staging.clone()));
        Ok(staging)
    }

    fn stage_piece(&mut self, load: LoadId, _: usize, _: u64, _: &[u8]) -> Result<bool, EngineError> {
        Ok(self.loads.iter().any(|(known, _)| *known == load))
    }

    fn staged(&self, load: LoadId) -> Option<Staged> {
        self.loads.iter().find_map(|(known, staging)| match staging {
            Staging::Ready(staged) if *known == load => Some(*staged),
            _ => None,
        })
    }

    fn staged_keys(&self, load: LoadId) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        Ok(self.staged(load).and(self.staged_keys.clone()))
    }

    fn staged_files(&self, _: LoadId) -> Vec<Component> {
        Vec::new()
    }

    fn read_staged(&self, _: LoadId, _: usize, _: u64, _: usize) -> Result<Option<Bytes>, EngineError> {
        Ok(None)
    }

    fn to_stage(&self) -> u64 {
        0
    }

    fn loads(&self) -> Vec<LoadId> {
        self.loads.iter().map(|(load, _)| *load).collect()
    }

    fn unstage(&mut self, load: LoadId) -> Result<(), EngineError> {
        self.loads.retain(|(known, _)| *known != load);
        Ok(())
    }

    fn execute_load(&mut self, at: Position, _: LoadId, mutations: &[Mutation]) {
        self.rows.execute(at, mutations);
        self.pending = self.pending.or(Some(at));
    }

    fn pending_load(&self) -> Option<Position> {
        self.pending
    }

    fn allow_load(&mut self, upto: Lsn) {
        self.allowed = upto;
    }

    fn is_settled(&self) -> bool {
        self.settled
    }
}

/// A member.
pub(crate) fn member() -> Member {
    Member { node: NodeId(1), store: StoreId(1), incarnation: Incarnation(1) }
}

/// A client's request to a primary.
pub(crate) fn request(op: Op) -> Request {
    let (table, partition) = (TableId(1), PartitionId(1));
    let (seq, confirmed, schema, trace) = (0, 0, 0, 0);
    let (session, read, deadline_ms) = (SessionId::NONE, ReadLevel::Primary, 10);
    Request { id: 1, session, seq, confirmed, deadline_ms, table, schema, partition, read, trace, op }
}
