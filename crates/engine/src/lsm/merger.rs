//! Merges beside the partition's work: a merge may take seconds, in which reads and writes go on.

use super::tree::Tree;
use std::io;
use std::thread::{Builder, JoinHandle};
use types::{EngineError, Lsn};

/// At most one merge of one tree, on a thread of its own. A flush waits for it (PR-69).
#[derive(Default)]
pub(super) struct Merger {
    running: Option<JoinHandle<Result<(), EngineError>>>,
}

impl Merger {
    /// Starts a merge; see [`Tree::merge`]. The one before must have been waited for.
    pub(super) fn start(&mut self, tree: &Tree, readers_from: Lsn, persisted: Lsn) -> io::Result<()> {
        assert!(self.running.is_none(), "PR-69: flushes and merges of one tree run one after the other");
        let tree = tree.clone();
        let merge = move || tree.merge(readers_from, persisted);
        self.running = Some(Builder::new().name("lsm merge".into()).spawn(merge)?);
        Ok(())
    }

    /// Waits until no merge runs, and tells how the last one went.
    pub(super) fn wait(&mut self) -> Result<(), EngineError> {
        match self.running.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(EngineError::Corrupt("lsm: a merge panicked".into())),
        }
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        // The directory must not change any more once the engine is gone. Its failure has no one left to matter to: the
        // files that it was to replace are still there.
        let _ = self.wait();
    }
}
