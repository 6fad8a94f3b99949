//! How much of a file has been read, for a progress bar.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much of a file has been read. A copy sees the same numbers, also from another thread.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Progress {
    /// Nothing is read yet. `total` is in bytes.
    pub fn new(total: Option<u64>) -> Progress {
        Progress { read: Arc::default(), total }
    }

    /// So many bytes more are read.
    pub fn add(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes read so far, as they stand in the file: compressed ones, if it is.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The size of the file; not known of a stream.
    pub fn total(&self) -> Option<u64> {
        self.total
    }
}

/// Counts what passes through.
pub(crate) struct Counted<R> {
    pub(crate) inner: R,
    pub(crate) progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.progress.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
