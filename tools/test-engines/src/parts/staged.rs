//! Bulk loads at the parts engine: files that are staged, and the entries that make them part of the state
//! (PR-39).

use super::{PartsEngine, component, rows_of};
use bytes::Bytes;
use engine::memory::snapshot::{self, Header};
use engine::not_written;
use std::collections::BTreeMap;
use types::bulk::{files_digest, files_fault, load_key};
use types::engine::{ReadAt, StagesLoads, space};
use types::{Component, Engine, EngineError, LoadId, Lsn, Mutation, Position, Staged, Staging};

/// Names of what is staged begin so.
const STAGED: &str = "load-";
/// A load has so many files at most.
const FILES: usize = 2;

/// What is staged of a load.
pub(super) struct Load {
    files: Vec<Component>,
    have: Vec<u64>,
    ready: Option<Staged>,
}

/// An entry whose load is not installed.
pub(super) struct PendingLoad {
    pub(super) at: Position,
    load: LoadId,
    mutations: Vec<Mutation>,
}

/// The files of a load with these rows, which come as stored keys in order and each once, with their values.
pub fn load_files(load: LoadId, rows: &[(Bytes, Bytes)]) -> Vec<(Component, Bytes)> {
    let each = rows.len().div_ceil(FILES).max(1);
    let file = |(index, rows): (usize, &[(Bytes, Bytes)])| {
        let mut content = Vec::new();
        for (key, value) in rows {
            content.extend_from_slice(&(key.len() as u32).to_le_bytes());
            content.extend_from_slice(&(value.len() as u32).to_le_bytes());
            content.extend_from_slice(&0u64.to_le_bytes());
            content.extend_from_slice(key);
            content.extend_from_slice(value);
        }
        (component(load.first_file() + index as u64, &content), Bytes::from(content))
    };
    rows.chunks(each).enumerate().map(file).collect()
}

fn name(load: LoadId, file: usize) -> String {
    format!("{STAGED}{load}-{file}")
}

fn set_name(load: LoadId) -> String {
    format!("{STAGED}{load}-set")
}

impl PartsEngine {
    /// What a process before left behind: loads that are ready, and others, which go.
    pub(super) fn find_loads(&mut self) -> Result<(), EngineError> {
        let names: Vec<String> =
            self.parts.names().into_iter().filter(|name| name.starts_with(STAGED)).collect();
        for set in names.iter().filter(|name| name.ends_with("-set")) {
            let bytes = self.parts.read(set)?;
            let Ok((load, files, ready)) = postcard::from_bytes::<(LoadId, Vec<Component>, Staged)>(&bytes)
            else {
                continue;
            };
            let have = files.iter().map(|file| file.bytes).collect();
            self.loads.insert(load, Load { files, have, ready: Some(ready) });
        }
        for name in names {
            if !self.loads.keys().any(|load| name.starts_with(&format!("{STAGED}{load}-"))) {
                self.parts.remove(&name)?;
            }
        }
        self.settle_loads()
    }

    pub(super) fn begin_stage(&mut self, load: LoadId, files: &[Component]) -> Result<Staging, EngineError> {
        if files_fault(load, files).is_some() {
            return Ok(Staging::Refused(format!("the files of load {load} cannot be taken here")));
        }
        if !self.loads.contains_key(&load) {
            for index in 0..files.len() {
                self.parts.remove(&name(load, index))?;
                self.parts.create(&name(load, index)).map_err(not_written)?;
            }
            let have = vec![0; files.len()];
            self.loads.insert(load, Load { files: files.to_vec(), have, ready: None });
        }
        let known = &self.loads[&load];
        if known.files != files {
            return Ok(Staging::Refused(format!("load {load} has other files")));
        }
        if let Some(staged) = known.ready {
            return Ok(Staging::Ready(staged));
        }
        let lacks = known.have.iter().zip(&known.files).position(|(have, file)| *have < file.bytes);
        if let Some(file) = lacks {
            return Ok(Staging::Wants { file: file as u32, from: known.have[file] });
        }
        self.make_ready(load)
    }

    /// Checks what came, and makes it durable.
    fn make_ready(&mut self, load: LoadId) -> Result<Staging, EngineError> {
        let files = self.loads[&load].files.clone();
        let mut rows = 0;
        for (index, file) in files.iter().enumerate() {
            let content = self.parts.read(&name(load, index))?;
            if component(file.number, &content) != *file {
                self.parts.remove(&name(load, index))?;
                self.parts.create(&name(load, index)).map_err(not_written)?;
                self.loads.get_mut(&load).expect("just looked at").have[index] = 0;
                return Ok(Staging::Wants { file: index as u32, from: 0 });
            }
            let found = rows_of(&content).unwrap_or_default();
            if found.is_empty() || found.iter().any(|(key, ..)| key.first() != Some(&space::ROW)) {
                self.remove_load(load)?;
                return Ok(Staging::Refused(format!("file {} is none of load {load}", file.number)));
            }
            rows += found.len() as u64;
            self.parts.replace(&name(load, index), &content).map_err(not_written)?;
        }
        let staged = Staged { digest: files_digest(&files), rows };
        let bytes = postcard::to_stdvec(&(load, files, staged)).expect("numbers can be encoded");
        self.parts.replace(&set_name(load), &bytes).map_err(not_written)?;
        self.loads.get_mut(&load).expect("just looked at").ready = Some(staged);
        Ok(Staging::Ready(staged))
    }

    pub(super) fn write_stage(
        &mut self,
        load: LoadId,
        file: usize,
        from: u64,
        bytes: &[u8],
    ) -> Result<bool, EngineError> {
        let Some(known) = self.loads.get_mut(&load).filter(|known| known.ready.is_none()) else {
            return Ok(false);
        };
        let Some(component) = known.files.get(file) else { return Ok(false) };
        let fits = from.checked_add(bytes.len() as u64).is_some_and(|end| end <= component.bytes);
        if from != known.have[file] || !fits || bytes.is_empty() {
            return Ok(false);
        }
        self.parts.append(&name(load, file), bytes).map_err(not_written)?;
        known.have[file] = from + bytes.len() as u64;
        Ok(true)
    }

    pub(super) fn ready_load(&self, load: LoadId) -> Option<Staged> {
        self.loads.get(&load)?.ready
    }

    pub(super) fn remove_load(&mut self, load: LoadId) -> Result<(), EngineError> {
        let Some(known) = self.loads.remove(&load) else { return Ok(()) };
        self.parts.remove(&set_name(load))?;
        for index in 0..known.files.len() {
            self.parts.remove(&name(load, index))?;
        }
        Ok(())
    }

    pub(super) fn push_load(&mut self, at: Position, load: LoadId, mutations: &[Mutation]) {
        let staged = self.ready_load(load).is_some() || !self.rules.loads_are_staged_first();
        assert!(staged, "PR-39: the entry {at} names a load that is not staged");
        self.pending.push_back(PendingLoad { at, load, mutations: mutations.to_vec() });
    }

    /// How far entries may be published.
    pub(super) fn publishable(&self, upto: Lsn) -> Lsn {
        self.pending.front().map_or(upto, |pending| upto.min(pending.at.lsn.prev()))
    }

    /// Makes the next load part of the state, if it may be now: by a snapshot with its rows.
    pub(super) fn install_load(&mut self) -> Result<bool, EngineError> {
        let (persisted, published) = (self.engine.persisted(), self.engine.published());
        let Some(next) = self.pending.front() else { return Ok(false) };
        let (at, load) = (next.at, next.load);
        if at.lsn > self.allowed || persisted.lsn != at.lsn.prev() || published != persisted {
            return Ok(false);
        }
        let mut rows = BTreeMap::new();
        let mut from = vec![space::SESSION];
        loop {
            let page = self.engine.scan(&from, &[], ReadAt::Lsn(published.lsn), 1000, 1 << 20)?;
            let Some(last) = page.last() else { break };
            from = [&last.key[..], &[0]].concat();
            rows.extend(page.into_iter().map(|row| (row.key, (row.lsn, row.value))));
        }
        rows.extend(self.rows_of_load(load)?.into_iter().map(|(key, value)| (key, (at.lsn, value))));
        for mutation in &self.pending[0].mutations {
            match &mutation.value {
                Some(value) => drop(rows.insert(mutation.key.clone(), (at.lsn, value.clone()))),
                None => drop(rows.remove(&mutation.key)),
            }
        }
        let mut bytes = Vec::new();
        let header = Header { position: at, read_floor: at.lsn };
        let rows = rows.into_iter().map(|(key, (lsn, value))| (key, lsn, value));
        snapshot::write(&mut bytes, header, rows).expect("writing into memory does not fail");
        self.recent.retain(|(entry, _)| entry.lsn > at.lsn);
        self.engine.take_over(&bytes, self.recent.make_contiguous())?;
        self.settle_loads()?;
        Ok(true)
    }

    fn rows_of_load(&self, load: LoadId) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let Some(known) = self.loads.get(&load).filter(|known| known.ready.is_some()) else {
            return match self.rules.loads_are_staged_first() {
                true => Err(EngineError::Corrupt(format!("PR-39: the files of load {load} are gone"))),
                false => Ok(Vec::new()),
            };
        };
        let mut rows = Vec::new();
        for (index, file) in known.files.iter().enumerate() {
            let content = self.parts.read(&name(load, index))?;
            let found = rows_of(&content).filter(|_| component(file.number, &content) == *file);
            let found =
                found.ok_or_else(|| EngineError::Corrupt(format!("a file of load {load} is damaged")))?;
            rows.extend(found.into_iter().map(|(key, _, value)| (key, value)));
        }
        Ok(rows)
    }

    /// What is pending up to the persisted state is part of it; so are loads that it has.
    pub(super) fn settle_loads(&mut self) -> Result<(), EngineError> {
        let persisted = self.engine.persisted().lsn;
        self.pending.retain(|pending| pending.at.lsn > persisted);
        for load in self.loads.keys().copied().collect::<Vec<_>>() {
            let pending = self.pending.iter().any(|pending| pending.load == load);
            if !pending
                && self.engine.get(&load_key(load), ReadAt::Lsn(self.engine.published().lsn))?.is_some()
            {
                self.remove_load(load)?;
            }
        }
        Ok(())
    }

    pub(super) fn files_of_load(&self, load: LoadId) -> Vec<Component> {
        let known = self.loads.get(&load).filter(|known| known.ready.is_some());
        known.map(|known| known.files.clone()).unwrap_or_default()
    }

    pub(super) fn read_load(
        &self,
        load: LoadId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        if file >= self.files_of_load(load).len() {
            return Ok(None);
        }
        let content = self.parts.read(&name(load, file))?;
        let from = from.min(content.len() as u64) as usize;
        let to = from.saturating_add(max_bytes).min(content.len());
        Ok(Some(Bytes::copy_from_slice(&content[from..to])))
    }

    pub(super) fn is_pending(&self, load: LoadId) -> bool {
        self.pending.iter().any(|pending| pending.load == load)
    }
}

impl StagesLoads for PartsEngine {
    fn stage(&mut self, load: LoadId, files: &[Component]) -> Result<Staging, EngineError> {
        self.begin_stage(load, files)
    }

    fn stage_piece(
        &mut self,
        load: LoadId,
        file: usize,
        from: u64,
        bytes: &[u8],
    ) -> Result<bool, EngineError> {
        self.write_stage(load, file, from, bytes)
    }

    fn staged(&self, load: LoadId) -> Option<Staged> {
        self.ready_load(load)
    }

    fn staged_keys(&self, load: LoadId) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        if self.ready_load(load).is_none() {
            return Ok(None);
        }
        let rows = self.rows_of_load(load)?;
        let keys = rows.first().zip(rows.last());
        Ok(keys.map(|((lowest, _), (highest, _))| (lowest.clone(), highest.clone())))
    }

    fn staged_files(&self, load: LoadId) -> Vec<Component> {
        self.files_of_load(load)
    }

    fn read_staged(
        &self,
        load: LoadId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        self.read_load(load, file, from, max_bytes)
    }

    fn loads(&self) -> Vec<LoadId> {
        self.loads.keys().copied().collect()
    }

    fn to_stage(&self) -> u64 {
        let lacks = |load: &Load| {
            load.files.iter().map(|file| file.bytes).sum::<u64>() - load.have.iter().sum::<u64>()
        };
        self.loads.values().map(lacks).sum()
    }

    fn unstage(&mut self, load: LoadId) -> Result<(), EngineError> {
        if self.is_pending(load) { Ok(()) } else { self.remove_load(load) }
    }

    fn execute_load(&mut self, at: Position, load: LoadId, mutations: &[Mutation]) {
        self.execute(at, mutations);
        self.push_load(at, load, mutations);
    }

    fn pending_load(&self) -> Option<Position> {
        self.pending.front().map(|pending| pending.at)
    }

    fn allow_load(&mut self, upto: Lsn) {
        self.allowed = self.allowed.max(upto.min(self.engine.applied().lsn));
    }
}
