//! Versions of the tree whose files are kept for those who read them, while merges go on.

use super::tree::Pinned;
use crate::files::not_read;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use types::{ComponentSet, EngineError, PinId};

/// What is pinned.
#[derive(Default)]
pub(super) struct Pins {
    last: u64,
    pinned: BTreeMap<PinId, Pinned>,
}

impl Pins {
    /// Keeps a version.
    pub(super) fn add(&mut self, pinned: Pinned) -> (PinId, ComponentSet) {
        self.last += 1;
        let (id, set) = (PinId(self.last), pinned.set.clone());
        self.pinned.insert(id, pinned);
        (id, set)
    }

    /// Lets a version go.
    pub(super) fn remove(&mut self, id: PinId) {
        self.pinned.remove(&id);
    }

    /// The files of all versions are about to go.
    pub(super) fn clear(&mut self) {
        self.pinned.clear();
    }

    /// Reads a piece of a file.
    pub(super) fn read(
        &self,
        id: PinId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        let Some(pinned) = self.pinned.get(&id) else { return Ok(None) };
        let Some(component) = pinned.set.files.get(file) else { return Ok(None) };
        let length = component.bytes.saturating_sub(from).min(max_bytes as u64) as usize;
        let mut bytes = vec![0; length];
        let path = &pinned.paths[file];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, from));
        match read {
            Ok(()) => Ok(Some(bytes.into())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
                Err(EngineError::Corrupt(format!("lsm: {} is missing or cut", path.display())))
            }
            Err(error) => Err(not_read(error)),
        }
    }
}
