//! Bulk loads at the LSM engine: the entries whose files are not installed yet, and their installation by a
//! flush (PR-39).

use super::LsmEngine;
use super::background::FileCall;
use super::merger::Kept;
use super::tree::Tree;
use crate::files::not_read;
use bytes::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use types::engine::StagesLoads;
use types::{Component, EngineError, LoadId, Lsn, Mutation, Position, Staged, Staging};

/// A load waits for a flush first if so much is in memory.
const MUCH: u64 = 8 << 20;

/// An entry that makes a load part of the state, and has not done so yet.
pub(super) struct PendingLoad {
    pub(super) at: Position,
    pub(super) load: LoadId,
    /// What the entry changes itself.
    mutations: Vec<Mutation>,
}

impl LsmEngine {
    pub(super) fn begin_stage(&mut self, load: LoadId, files: &[Component]) -> Result<Staging, EngineError> {
        let named: Vec<_> = files.iter().map(|file| (*file, PathBuf::new())).collect();
        if types::bulk::files_fault(load, files).is_some() || self.tree.has_numbers(&named) {
            return Ok(Staging::Refused(format!("the files of load {load} cannot be taken here")));
        }
        self.stage.stage(load, files)
    }

    pub(super) fn push_load(&mut self, at: Position, load: LoadId, mutations: &[Mutation]) {
        assert!(self.installing.is_none(), "R4: entry {at} executed on half a state");
        assert!(self.stage.ready(load).is_some(), "PR-39: the entry {at} names a load that is not staged");
        self.overlay.insert(at, mutations);
        self.pending.push_back(PendingLoad { at, load, mutations: mutations.to_vec() });
    }

    /// How far entries may be published.
    pub(super) fn publishable(&self, upto: Lsn) -> Lsn {
        self.pending.front().map_or(upto, |pending| upto.min(pending.at.lsn.prev()))
    }

    /// Sets the flush apart that installs the next load, if it may be installed now.
    pub(super) fn next_load(&mut self) -> Result<Option<Kept>, EngineError> {
        if self.kept.as_ref().is_some_and(|kept| kept.load.is_some()) {
            return Ok(self.kept.take());
        }
        let Some(next) = self.pending.front() else { return Ok(None) };
        let below = self.persisted.lsn == next.at.lsn.prev() && self.overlay.published() == self.persisted;
        if next.at.lsn > self.allowed || !below || self.kept.is_some() {
            return Ok(None);
        }
        let Some(mut files) = self.stage.files(next.load) else {
            return Err(EngineError::Corrupt(format!("PR-39: the files of load {} are gone", next.load)));
        };
        if !self.environment.rules.loads_have_all_their_files() {
            files.pop();
        }
        for mutation in &next.mutations {
            let value = mutation.value.as_ref().map(|value| &value[..]);
            self.memtable.write(&self.tree, &mutation.key, (next.at.lsn, self.read_floor), value);
        }
        Ok(Some(Kept { load: Some(files), ..self.set_apart(next.at) }))
    }

    /// Installs what may be installed at once, as part of a checkpoint that is waited for.
    pub(super) fn install_loads(&mut self) -> Result<(), EngineError> {
        if self.installing.is_some() || self.pending.is_empty() {
            return Ok(());
        }
        self.merger.wait()?;
        while let Some(kept) = self.next_load()? {
            let outcome = kept.flush(&self.tree);
            self.flushed(kept, outcome)?;
        }
        Ok(())
    }

    /// The files of the first pending load are part of the state.
    pub(super) fn load_installed(&mut self, at: Position) -> Result<(), EngineError> {
        let done = self.pending.pop_front().expect("it was installed");
        assert_eq!(done.at, at, "PR-39: loads are installed in the order of their entries");
        // The tree has what the entry changed.
        self.overlay.drain(at.lsn, |_, _, _| {});
        self.ahead.clear();
        Ok(self.stage.remove(done.load)?)
    }

    pub(super) fn read_load(
        &self,
        load: LoadId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        let files = self.stage.files(load).unwrap_or_default();
        let Some((component, path)) = files.get(file) else { return Ok(None) };
        let length = component.bytes.saturating_sub(from).min(max_bytes as u64) as usize;
        let mut bytes = vec![0; length];
        self.environment.before(FileCall::Open, path).map_err(not_read)?;
        File::open(path).and_then(|file| file.read_exact_at(&mut bytes, from)).map_err(not_read)?;
        Ok(Some(bytes.into()))
    }

    /// What is pending up to a state that took the place of the tree is part of it; so are loads that it has.
    pub(super) fn settle_loads(&mut self) -> Result<(), EngineError> {
        let persisted = self.persisted.lsn;
        self.pending.retain(|pending| pending.at.lsn > persisted);
        for load in self.stage.loads() {
            let pending = self.pending.iter().any(|pending| pending.load == load);
            if !pending && self.tree.has_load(load) {
                self.stage.remove(load)?;
            }
        }
        Ok(())
    }

    /// True if no merge runs and little is in memory.
    pub(super) fn may_load_soon(&self) -> bool {
        !self.merger.is_busy() && self.flush.is_none() && self.memtable.bytes() < MUCH
    }
}

/// Writes the files of a load in `dir`, which must not exist: they are to be staged on every replica of the
/// partition. The rows come as stored keys, in order and each once, with their values. Gives the files in
/// order. An error of the rows themselves is the caller's to keep: they end with it.
pub fn write_load(
    dir: &Path,
    load: LoadId,
    rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Result<Vec<(Component, PathBuf)>, EngineError> {
    Tree::write_load(dir, load, rows)
}

impl StagesLoads for LsmEngine {
    fn stage(&mut self, load: LoadId, files: &[Component]) -> Result<Staging, EngineError> {
        self.usable()?;
        let outcome = self.begin_stage(load, files);
        self.note(outcome)
    }

    fn stage_piece(
        &mut self,
        load: LoadId,
        file: usize,
        from: u64,
        bytes: &[u8],
    ) -> Result<bool, EngineError> {
        self.usable()?;
        let outcome = self.stage.write(load, file, from, bytes);
        self.note(outcome)
    }

    fn staged(&self, load: LoadId) -> Option<Staged> {
        self.stage.ready(load)
    }

    fn staged_keys(&self, load: LoadId) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        self.stage.keys(load)
    }

    fn staged_files(&self, load: LoadId) -> Vec<Component> {
        self.stage.files(load).unwrap_or_default().into_iter().map(|(file, _)| file).collect()
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
        self.stage.loads()
    }

    fn to_stage(&self) -> u64 {
        self.stage.lacking()
    }

    fn unstage(&mut self, load: LoadId) -> Result<(), EngineError> {
        if self.pending.iter().any(|pending| pending.load == load) {
            return Ok(());
        }
        let outcome = self.stage.remove(load).map_err(EngineError::from);
        self.note(outcome)
    }

    fn execute_load(&mut self, at: Position, load: LoadId, mutations: &[Mutation]) {
        self.push_load(at, load, mutations);
    }

    fn pending_load(&self) -> Option<Position> {
        self.pending.front().map(|pending| pending.at)
    }

    fn allow_load(&mut self, upto: Lsn) {
        self.allowed = self.allowed.max(upto.min(self.overlay.applied().lsn));
    }

    fn is_settled(&self) -> bool {
        self.may_load_soon()
    }
}
