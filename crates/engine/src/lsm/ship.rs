//! Receiving a set of components and making it the engine's state, beside reads and writes.
//!
//! The set becomes a tree in a directory of its own, and the engine's tree is exchanged for it by one rename
//! of `CURRENT`: a crash leaves the old state or the new one (PR-37). Files that both have are linked, not
//! copied. What the engine has published above the set is in its memory only, as the set has more than its
//! files, and goes on into the new tree's memory.

use super::LsmEngine;
use super::background::FileCall;
use super::digest::order_files;
use super::incoming::{Incoming, Made, Sealing};
use super::memtable::Memtable;
use super::pointer::{Pointer, remove_others, tree_dir, tree_number, tree_numbers};
use super::tree::Tree;
use crate::files::{not_made, not_read, not_written};
use bytes::Bytes;
use std::fs;
use types::engine::{ShipsFiles, Wake};
use types::{ComponentSet, EngineError, Installation, Missing, PinId, Position};

impl LsmEngine {
    /// If it is to come `whole`, the files here count for nothing.
    pub(super) fn begin_receive(&mut self, set: ComponentSet, whole: bool) -> Result<bool, EngineError> {
        let useful = set.fault().is_none() && order_files(&set.order).is_some();
        if !useful || self.installing.is_some() || !self.lacks(&set, whole) {
            return Ok(false);
        }
        self.stop_sealing()?;
        // What cannot be read is not here.
        let here = match self.tree.pin(self.persisted).map_err(not_made) {
            Ok(here) => here.filter(|_| !whole),
            Err(EngineError::Corrupt(_) | EngineError::Io(_)) => None,
            Err(error) => return Err(error),
        };
        let here =
            here.iter().flat_map(|here| here.set.files.iter().copied().zip(here.paths.iter().cloned()));
        let staged = if whole { Vec::new() } else { self.stage.all_files() };
        let here = here.chain(staged).collect();
        self.incoming = Some(Incoming::begin(&self.dir, set, &here, whole, &self.environment)?);
        Ok(true)
    }

    /// True if the set has more than the files here, or is wanted whole and has as much. What is published
    /// above it is in memory, and stays.
    fn lacks(&self, set: &ComponentSet, whole: bool) -> bool {
        let (at, same) = (set.at.lsn, self.overlay.published() == self.persisted);
        at > self.persisted.lsn || (at == self.persisted.lsn && (same || whole))
    }

    pub(super) fn begin_sealing(&mut self, wake: &Wake) -> Result<Installation, EngineError> {
        if self.finishing.is_some() {
            return self.go_on_sealing();
        }
        if !self.incoming.as_ref().is_some_and(|incoming| incoming.missing().is_empty()) {
            return Ok(Installation::Refused("no whole set has been received".into()));
        }
        // What runs is waited for beside other work, and then decides whether the set is of use.
        if self.merger.is_busy_until(wake) {
            self.sealing_waits = Some(wake.clone());
            return Ok(Installation::Waiting);
        }
        self.end_all()?;
        let published = self.overlay.published();
        if self.kept.is_none() && published != self.persisted {
            self.kept = Some(self.set_apart(published));
        }
        let above = self.kept.as_ref().map(|kept| kept.frozen.clone());
        let highest = tree_numbers(&self.dir)?.into_iter().max().unwrap_or(self.number);
        let to = tree_dir(&self.dir, highest.max(self.number) + 1);
        let incoming = self.incoming.as_ref().expect("just seen");
        self.finishing = Some(incoming.finish(&to, above, wake)?);
        Ok(Installation::Waiting)
    }

    pub(super) fn go_on_sealing(&mut self) -> Result<Installation, EngineError> {
        let Some(finishing) = &self.finishing else {
            return match self.sealing_waits.take() {
                Some(wake) => self.begin_sealing(&wake),
                None => Ok(Installation::Refused("no installation was begun".into())),
            };
        };
        let Some(outcome) = finishing.outcome() else { return Ok(Installation::Waiting) };
        self.finishing = None;
        let made = match outcome {
            Ok(made) => made,
            Err(error) => {
                // What came stays for the next time.
                self.incoming = None;
                return Err(error);
            }
        };
        match made {
            Made::Tainted(files) => {
                let incoming = self.incoming.as_mut().expect("it is there while it is sealed");
                incoming.tainted(&files)?;
                Ok(Installation::Tainted(files))
            }
            Made::Refused(why) => self.refuse(&why),
            Made::Tree(tree, memtable) => self.exchange(tree, memtable),
        }
    }

    /// Makes the tree of the set the current one.
    fn exchange(&mut self, tree: Tree, mut memtable: Memtable) -> Result<Installation, EngineError> {
        // What found no room is in the new tree's memory too.
        self.end_all()?;
        let incoming = self.incoming.take().expect("sealed");
        let at = incoming.set().at;
        if !self.lacks(incoming.set(), incoming.is_whole()) {
            let dir = tree.dir().to_owned();
            drop(tree);
            fs::remove_dir_all(dir)?;
            return self.refuse("it has newer files of its own");
        }
        let number = tree_number(tree.dir()).expect("named when the sealing began");
        match (Pointer { number, complete: true }).write(&self.dir, &self.environment).map_err(not_written) {
            // Nothing names it. What came stays for the next time.
            Err(error @ EngineError::Full(_)) => {
                let dir = tree.dir().to_owned();
                drop(tree);
                fs::rename(&dir, incoming.tree()).or_else(|_| fs::remove_dir_all(&dir))?;
                return Err(error);
            }
            named => named?,
        }
        self.environment.made_durable();
        // From here on this tree is given up. What was published since the sealing began, some of which a
        // flush may have found no room for:
        let takes = self.environment.rules.exchanges_take_what_came_since();
        if let Some(since) = self.memtable.take_all(&self.tree).filter(|_| takes) {
            memtable.take_above(&tree, &since, at.lsn);
        }
        (self.tree, self.memtable, self.number, self.kept) = (tree, memtable, number, None);
        if at.lsn >= self.overlay.published().lsn {
            self.overlay.rise(at);
        }
        self.read_floor = self.read_floor.max(at.lsn);
        self.persisted = at;
        self.corrupt = false;
        self.pins.clear();
        self.settle_loads()?;
        remove_others(&self.dir, Some(number))?;
        self.environment.made_durable();
        Incoming::remove(&self.dir)?;
        Ok(Installation::Done)
    }

    fn refuse(&mut self, why: &str) -> Result<Installation, EngineError> {
        self.give_up_set()?;
        Ok(Installation::Refused(why.into()))
    }

    pub(super) fn give_up_set(&mut self) -> Result<(), EngineError> {
        self.stop_sealing()?;
        Ok(Incoming::remove(&self.dir)?)
    }

    /// Gives up a check that is under way. It may have made a tree already, which nobody wants.
    fn stop_sealing(&mut self) -> Result<(), EngineError> {
        (self.incoming, self.sealing_waits) = (None, None);
        if self.finishing.take().is_some() {
            remove_others(&self.dir, Some(self.number))?;
        }
        Ok(())
    }
}

impl ShipsFiles for LsmEngine {
    fn pin(&mut self) -> Result<Option<(PinId, ComponentSet)>, EngineError> {
        self.sound()?;
        // While a flush runs, files and position may belong to different states.
        if self.flush.is_some() || self.installing.is_some() || self.persisted == Position::ZERO {
            return Ok(None);
        }
        Ok(self.tree.pin(self.persisted)?.map(|pinned| self.pins.add(pinned)))
    }

    fn read_component(
        &self,
        pin: PinId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        self.environment.before(FileCall::Open, &self.dir).map_err(not_read)?;
        self.pins.read(pin, file, from, max_bytes)
    }

    fn unpin(&mut self, pin: PinId) {
        self.pins.remove(pin);
    }

    fn receive(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.usable()?;
        let outcome = self.begin_receive(set, false);
        self.note(outcome)
    }

    fn receive_whole(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.usable()?;
        let outcome = self.begin_receive(set, true);
        self.note(outcome)
    }

    fn missing(&self) -> Vec<Missing> {
        self.incoming.as_ref().map(Incoming::missing).unwrap_or_default()
    }

    fn receive_piece(&mut self, file: usize, from: u64, bytes: &[u8]) -> Result<bool, EngineError> {
        self.usable()?;
        let Some(incoming) = self.incoming.as_mut().filter(|_| self.finishing.is_none()) else {
            return Ok(false);
        };
        let outcome = incoming.write(file, from, bytes);
        self.note(outcome)
    }

    fn begin_installation(&mut self, wake: &Wake) -> Result<Installation, EngineError> {
        self.usable()?;
        let outcome = self.begin_sealing(wake);
        self.note(outcome)
    }

    fn go_on_installation(&mut self) -> Result<Installation, EngineError> {
        self.usable()?;
        let outcome = self.go_on_sealing();
        self.note(outcome)
    }

    fn checked_bytes(&self) -> u64 {
        self.finishing.as_ref().map_or(0, Sealing::checked)
    }

    fn stop_receiving(&mut self) -> Result<(), EngineError> {
        let outcome = self.give_up_set();
        self.note(outcome)
    }
}
