//! Layer 2: the engines under a partition's replica.
//!
//! [`MemoryEngine`] and [`LsmEngine`] keep the contract of [`types::engine`], which is re-exported here. Both
//! hold tentative entries in an [`Overlay`] and are held to one conformance suite (`tools/conformance`).
//! [`open`] chooses by name.

mod files;
pub mod lsm;
pub mod memory;
pub mod overlay;
mod replay_rate;
mod rows;
mod scan;

pub use files::not_written;
pub use lsm::LsmEngine;
pub use memory::{MemoryEngine, SnapshotStore};
pub use overlay::Overlay;
pub use types::engine::*;

use std::path::Path;

/// Opens the engine of a replica in `dir`. The memory engine without a directory keeps nothing on disk; the
/// LSM engine needs one.
pub fn open(kind: EngineKind, dir: Option<&Path>) -> Result<Box<dyn Engine>, EngineError> {
    match (kind, dir) {
        (EngineKind::Memory, None) => Ok(Box::new(MemoryEngine::volatile())),
        (EngineKind::Memory, Some(dir)) => Ok(Box::new(MemoryEngine::open(dir)?)),
        (EngineKind::Lsm, Some(dir)) => Ok(Box::new(LsmEngine::open(dir)?)),
        (EngineKind::Lsm, None) => Err(EngineError::Library("the engine lsm needs a directory".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_opened_by_name() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (memory, lsm) = (dir.path().join("memory"), dir.path().join("lsm"));
        let persistent = |kind: EngineKind, dir: Option<&Path>| {
            let engine = open(kind, dir)?;
            assert_eq!(engine.ships_files(), kind.ships_files());
            assert_eq!(engine.staging().is_some(), kind.ships_files());
            Ok::<bool, EngineError>(engine.is_persistent())
        };
        assert!(matches!(persistent(EngineKind::Memory, None), Ok(false)));
        assert!(matches!(persistent(EngineKind::Memory, Some(&memory)), Ok(true)));
        assert!(matches!(persistent(EngineKind::Lsm, Some(&lsm)), Ok(true)));
        // PR-359: the directory that theirs lies in is somebody else's, and may be gone with its disk.
        for kind in [EngineKind::Memory, EngineKind::Lsm] {
            let refused = persistent(kind, Some(&dir.path().join("gone/engine")));
            assert!(matches!(refused, Err(EngineError::Io(_))), "{refused:?}");
        }
        assert!(!dir.path().join("gone").exists());
        assert!(matches!(persistent(EngineKind::Lsm, None), Err(EngineError::Library(_))));
    }
}
