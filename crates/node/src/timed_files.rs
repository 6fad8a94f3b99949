//! The log's files with a watch on how long their fsyncs take, and a count of what is written to them.

use crate::metrics::Metrics;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use wal::{File, Files};

/// Files whose syncs are measured and whose writes are counted.
pub struct TimedFiles<F> {
    inner: F,
    metrics: Arc<Metrics>,
}

impl<F: Files> TimedFiles<F> {
    /// Measures the syncs of `inner`.
    pub fn new(inner: F, metrics: Arc<Metrics>) -> TimedFiles<F> {
        TimedFiles { inner, metrics }
    }

    fn timed(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(TimedFile { inner: file, metrics: self.metrics.clone() })
    }
}

impl<F: Files> Files for TimedFiles<F> {
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>> {
        self.inner.create(name, preallocate).map(|file| self.timed(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.inner.open(name).map(|file| self.timed(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }
}

struct TimedFile {
    inner: Arc<dyn File>,
    metrics: Arc<Metrics>,
}

impl File for TimedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.metrics.system_calls.count_file_write();
        self.inner.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buffer)
    }

    fn sync_data(&self) -> io::Result<()> {
        let started = Instant::now();
        let outcome = self.inner.sync_data();
        self.metrics.fsync.record(started.elapsed());
        outcome
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }
}
