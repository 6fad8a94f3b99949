//! The state given row by row: a new tree is filled beside the old one and takes its place (PR-37).

use super::LsmEngine;
use super::environment::Environment;
use super::memtable::Memtable;
use super::merger::Kept;
use super::pointer::{Pointer, remove_others, tree_dir, tree_numbers};
use super::tree::Tree;
use crate::files::{not_made, not_written, sync_dir};
use crate::overlay::Overlay;
use std::path::Path;
use std::sync::Arc;
use types::engine::Wake;
use types::{EngineError, Lsn, Position};

/// An installation is written to disk whenever so much of it is in memory.
const INSTALL_FLUSH_BYTES: u64 = 32 << 20;
/// A disk that is slower than what arrives is waited for when so much of it is in memory.
const INSTALL_WAIT_BYTES: u64 = 2 * INSTALL_FLUSH_BYTES;

impl LsmEngine {
    /// Takes the old state out of the way and begins a new tree beside it.
    pub(super) fn begin_install(&mut self, base: Position) -> Result<(), EngineError> {
        self.end_all()?;
        self.pins.clear();
        if self.environment.rules.copies_begin_with_an_empty_tree() {
            (self.number, self.tree) = self.begin_tree()?;
            self.memtable = Memtable::default();
        }
        self.kept = None;
        (self.allowed, _) = (Lsn::ZERO, self.pending.clear());
        remove_others(&self.dir, Some(self.number))?;
        self.environment.made_durable();
        (self.overlay, self.read_floor) = (Overlay::new(base), base.lsn);
        (self.persisted, self.installing) = (Position::ZERO, Some(base));
        self.corrupt = false;
        Ok(())
    }

    /// Makes an empty tree, and names it as one that is not complete: from then on a restart finds an empty
    /// engine, up to then the old one, which stays if there is no room.
    fn begin_tree(&self) -> Result<(u64, Tree), EngineError> {
        let highest = tree_numbers(&self.dir)?.into_iter().max().unwrap_or(0);
        let number = highest.max(self.number) + 1;
        let dir = tree_dir(&self.dir, number);
        let made = Tree::create(&dir, &self.environment).map_err(not_made).and_then(|tree| {
            Pointer { number, complete: false }.write(&self.dir, &self.environment).map_err(not_written)?;
            Ok(tree)
        });
        if let Err(EngineError::Full(_)) = &made
            && dir.exists()
        {
            std::fs::remove_dir_all(&dir)?;
        }
        Ok((number, made?))
    }

    /// Bounds the memory and the number of files of an installation.
    pub(super) fn flush_install(&mut self) -> Result<(), EngineError> {
        if self.memtable.bytes_to_freeze() < INSTALL_FLUSH_BYTES {
            return Ok(());
        }
        if self.merger.is_busy() && self.memtable.bytes() < INSTALL_WAIT_BYTES {
            return Ok(());
        }
        self.end_flush()?;
        self.merger.wait()?;
        self.flush_kept()?;
        let frozen = self.memtable.freeze().expect("there is something in memory");
        // Nothing counts as persisted before the whole is, and nothing is collected.
        let kept = Kept { frozen, at: Position::ZERO, load: None };
        let unasked: Wake = Arc::new(|| {});
        self.flush = Some(self.merger.start_flush(&self.tree, kept, Lsn::ZERO, true, &unasked)?);
        Ok(())
    }

    /// Makes the installed tree the current one.
    pub(super) fn end_install(&mut self, base: Position) -> Result<(), EngineError> {
        self.end_flush()?;
        self.flush_at(base)?;
        // A restart finds an empty tree until the pointer says that this one is complete (PR-139).
        self.persisted = Position::ZERO;
        let pointer = Pointer { number: self.number, complete: true };
        pointer.write(&self.dir, &self.environment).map_err(not_written)?;
        self.persisted = base;
        self.environment.made_durable();
        Ok(())
    }
}

/// Begins with an empty tree, in a directory that no tree had before.
pub(super) fn begin(
    dir: &Path,
    at_least: u64,
    environment: &Environment,
) -> Result<(u64, Tree), EngineError> {
    let highest = tree_numbers(dir)?.into_iter().max().unwrap_or(0);
    let number = at_least.max(highest + 1);
    let tree = Tree::create(&tree_dir(dir, number), environment).map_err(not_made)?;
    // The directory's name is durable before the pointer that names it: one sync for both would leave their
    // order to the disk (PR-90).
    sync_dir(dir)?;
    Pointer { number, complete: true }.write(dir, environment).map_err(not_written)?;
    remove_others(dir, Some(number))?;
    Ok((number, tree))
}
