//! Receiving a set of components and making it the engine's state, beside reads and writes.
//!
//! The set becomes a tree in a directory of its own, and the engine's tree is exchanged for it by one rename of `CURRENT`: a crash
//! leaves the old state or the new one (PR-37). Files that both have are linked, not copied.

use super::LsmEngine;
use super::incoming::Incoming;
use super::pointer::{Pointer, remove_others, tree_dir, tree_numbers};
use super::tree::{Tree, order_files};
use crate::files::sync_dir;
use std::fs;
use types::engine::Wake;
use types::{ComponentSet, EngineError, Installation};

impl LsmEngine {
    pub(super) fn begin_receive(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        let useful = set.fault().is_none() && order_files(&set.order).is_some();
        if !useful || self.installing.is_some() || set.at.lsn < self.overlay.published().lsn {
            return Ok(false);
        }
        (self.sealing, self.incoming) = (None, None);
        // What cannot be read is not here.
        let here = match self.tree.pin(self.persisted) {
            Ok(here) => here,
            Err(EngineError::Corrupt(_)) => None,
            Err(error) => return Err(error),
        };
        let here =
            here.iter().flat_map(|here| here.set.files.iter().copied().zip(here.paths.iter().cloned()));
        let here = here.collect();
        self.incoming = Some(Incoming::begin(&self.dir, set, &here)?);
        Ok(true)
    }

    pub(super) fn begin_sealing(&mut self, wake: &Wake) -> Result<Installation, EngineError> {
        if self.sealing.is_some() {
            return self.go_on_sealing();
        }
        match &self.incoming {
            Some(incoming) if incoming.missing().is_empty() => {
                self.sealing = Some(incoming.seal(wake)?);
                Ok(Installation::Waiting)
            }
            _ => Ok(Installation::Refused("no whole set has been received".into())),
        }
    }

    pub(super) fn go_on_sealing(&mut self) -> Result<Installation, EngineError> {
        let Some(sealing) = &self.sealing else {
            return Ok(Installation::Refused("no installation was begun".into()));
        };
        let Some(outcome) = sealing.outcome() else { return Ok(Installation::Waiting) };
        self.sealing = None;
        let spoilt = outcome?;
        let incoming = self.incoming.as_mut().expect("it is there while it is sealed");
        if !spoilt.is_empty() {
            incoming.spoilt(&spoilt)?;
            return Ok(Installation::Spoilt(spoilt));
        }
        if incoming.set().at.lsn < self.overlay.published().lsn {
            return self.refuse("more than the set holds has been published meanwhile");
        }
        self.exchange()
    }

    /// Makes the sealed set the current tree.
    fn exchange(&mut self) -> Result<Installation, EngineError> {
        match self.end_flush() {
            // What found no room is not needed any more.
            Err(EngineError::Full(_)) => {}
            outcome => outcome?,
        }
        self.merger.wait()?;
        let incoming = self.incoming.take().expect("sealed");
        let highest = tree_numbers(&self.dir)?.into_iter().max().unwrap_or(self.number);
        let number = highest.max(self.number) + 1;
        let dir = tree_dir(&self.dir, number);
        fs::rename(incoming.tree(), &dir)?;
        sync_dir(&self.dir)?;
        let tree = match Tree::open_set(&dir, incoming.set()) {
            Ok(tree) => tree,
            Err(EngineError::Corrupt(why)) => {
                fs::remove_dir_all(&dir)?;
                return self.refuse(&why);
            }
            Err(error) => return Err(error),
        };
        Pointer { number, complete: true }.write(&self.dir)?;
        let at = incoming.set().at;
        (self.tree, self.number, self.kept) = (tree, number, None);
        self.overlay.rise(at);
        self.floor = self.floor.max(at.lsn);
        (self.persisted, self.unflushed) = (at, 0);
        self.pins.clear();
        remove_others(&self.dir, Some(number))?;
        Incoming::remove(&self.dir)?;
        self.merge_if_due()?;
        Ok(Installation::Done)
    }

    fn refuse(&mut self, why: &str) -> Result<Installation, EngineError> {
        self.give_up_set()?;
        Ok(Installation::Refused(why.into()))
    }

    pub(super) fn give_up_set(&mut self) -> Result<(), EngineError> {
        (self.sealing, self.incoming) = (None, None);
        Ok(Incoming::remove(&self.dir)?)
    }
}
