//! Turns of a process's executor.

use replica::Output;

/// What is kept from one turn to the next.
#[derive(Debug, Default)]
pub struct Turn {
    /// A flush is on its way.
    flush_due: bool,
    /// The memory of outputs is used again.
    out: Vec<Output>,
    /// When the executor last made progress.
    progress_at: u64,
}

impl Turn {
    /// Those of a process that starts now.
    pub fn new(now: u64) -> Turn {
        Turn { progress_at: now, ..Turn::default() }
    }

    /// A turn begins: with an empty list for outputs.
    pub fn begin(&mut self, now: u64) -> Vec<Output> {
        self.progress_at = now;
        std::mem::take(&mut self.out)
    }

    /// A turn ends: its outputs were carried out.
    pub fn end(&mut self, mut out: Vec<Output>) {
        out.clear();
        self.out = out;
    }

    /// The replicas are to be flushed soon. False if a flush is on its way already.
    pub fn want_flush(&mut self) -> bool {
        !std::mem::replace(&mut self.flush_due, true)
    }

    /// The replicas were flushed.
    pub fn flushed(&mut self) {
        self.flush_due = false;
    }

    /// When the executor last made progress.
    pub fn progress_at(&self) -> u64 {
        self.progress_at
    }
}
