//! Flushes and merges beside the partition's work: they may take seconds, in which reads and writes go on.

use super::background::{Background, Task};
use super::memtable::Frozen;
use super::tree::Tree;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use types::engine::Wake;
use types::{Component, EngineError, Lsn, Position};

/// At most one flush or merge of one tree, beside the engine's calls. Another flush waits for it (PR-69).
pub(super) struct Merger {
    background: Arc<dyn Background>,
    running: Option<Task<Result<(), EngineError>>>,
    end: Arc<Mutex<End>>,
}

/// The end of what runs, and who waits for it.
#[derive(Default)]
struct End {
    came: bool,
    wake: Option<Wake>,
}

/// Rows that were set apart, until they are in files.
#[derive(Clone)]
pub(super) struct Kept {
    /// The rows.
    pub(super) frozen: Frozen,
    /// The state that the files will hold.
    pub(super) at: Position,
    /// The files of the load that becomes part of the state with it.
    pub(super) load: Option<Vec<(Component, PathBuf)>>,
}

impl Kept {
    /// Writes it into the tree.
    pub(super) fn flush(&self, tree: &Tree) -> Result<(), EngineError> {
        match &self.load {
            None => tree.flush_frozen(&self.frozen),
            Some(files) => tree.flush_load(&self.frozen, self.at.lsn, files),
        }
    }
}

/// A flush beside other work.
pub(super) struct Flush {
    /// What is flushed.
    pub(super) kept: Kept,
    outcome: Receiver<Result<(), EngineError>>,
}

impl Flush {
    /// How it ended, once it has.
    pub(super) fn outcome(&self) -> Option<Result<(), EngineError>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(panicked())),
        }
    }

    /// Waits for its end, which must be under way: see [`Merger::hurry`].
    pub(super) fn wait(&self) -> Result<(), EngineError> {
        self.outcome.recv().unwrap_or_else(|_| Err(panicked()))
    }
}

impl Merger {
    /// One that runs nothing yet.
    pub(super) fn new(background: Arc<dyn Background>) -> Merger {
        Merger { background, running: None, end: Arc::default() }
    }

    /// Starts a merge; see [`Tree::merge`]. The one before must have been waited for.
    pub(super) fn start(&mut self, tree: &Tree, readers_from: Lsn, persisted: Lsn) -> io::Result<()> {
        let tree = tree.clone();
        self.spawn("lsm merge", move || merge(&tree, readers_from, persisted))
    }

    /// Starts a flush of what was set apart, and, if it `merges`, a merge after it if one is due then.
    pub(super) fn start_flush(
        &mut self,
        tree: &Tree,
        kept: Kept,
        readers_from: Lsn,
        merges: bool,
        wake: &Wake,
    ) -> io::Result<Flush> {
        let (to, outcome) = channel();
        let (tree, wake) = (tree.clone(), wake.clone());
        let (work, at) = (kept.clone(), kept.at);
        self.spawn("lsm flush", move || {
            let flushed = work.flush(&tree);
            drop(work);
            let goes_on = flushed.is_ok() && merges;
            // Fails only when the engine is gone.
            let _ = to.send(flushed);
            drop(to);
            wake();
            if goes_on && tree.wants_merge() { merge(&tree, readers_from, at.lsn) } else { Ok(()) }
        })?;
        Ok(Flush { kept, outcome })
    }

    fn spawn(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(), EngineError> + Send + 'static,
    ) -> io::Result<()> {
        assert!(self.running.is_none(), "PR-69: flushes and merges of one tree run one after the other");
        self.end = Arc::default();
        let end = self.end.clone();
        self.running = Some(Task::start(&*self.background, name, move |to| {
            // Fails only when the engine is gone.
            let _ = to.send(work());
            let mut end = end.lock().unwrap_or_else(PoisonError::into_inner);
            end.came = true;
            if let Some(wake) = end.wake.take() {
                wake();
            }
        })?);
        Ok(())
    }

    /// Has what runs come to its end by itself, if no thread does that.
    pub(super) fn hurry(&mut self) {
        if let Some(running) = &mut self.running {
            running.hurry();
        }
    }

    /// True while a flush or a merge runs.
    pub(super) fn is_busy(&self) -> bool {
        self.running.as_ref().is_some_and(Task::is_busy)
    }

    /// The same; if it is so, `wake` is called when it has ended.
    pub(super) fn is_busy_until(&self, wake: &Wake) -> bool {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_busy() || end.came {
            return false;
        }
        end.wake = Some(wake.clone());
        true
    }

    /// Waits until nothing runs, and tells how the last one went. A flush tells its own failure.
    pub(super) fn wait(&mut self) -> Result<(), EngineError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        running.wait().unwrap_or_else(|_| Err(panicked()))
    }
}

/// A merge that finds no room has changed nothing, and comes again after the next flush.
fn merge(tree: &Tree, readers_from: Lsn, persisted: Lsn) -> Result<(), EngineError> {
    match tree.merge(readers_from, persisted) {
        Err(EngineError::Full(_)) => Ok(()),
        outcome => outcome,
    }
}

fn panicked() -> EngineError {
    EngineError::Corrupt("lsm: a flush or a merge panicked".into())
}

impl Drop for Merger {
    fn drop(&mut self) {
        // The directory must not change any more once the engine is gone. Its failure has no one left to
        // matter to: the files that it was to replace are still there.
        let _ = self.wait();
    }
}
