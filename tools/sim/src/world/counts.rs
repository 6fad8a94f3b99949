//! What is counted while a seed runs.

use std::collections::BTreeMap;

/// Counters.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// How often each fault struck, and what else is to be seen to happen.
    injected: BTreeMap<&'static str, u64>,
    /// Client operations that ended.
    operations: u64,
    /// Processes that started.
    processes: u64,
}

impl Counts {
    /// Something struck, or happened.
    pub fn add(&mut self, what: &'static str) {
        *self.injected.entry(what).or_insert(0) += 1;
    }

    /// True if it ever did.
    pub fn has(&self, what: &str) -> bool {
        self.injected.contains_key(what)
    }

    /// How often each did.
    pub fn injected(&self) -> &BTreeMap<&'static str, u64> {
        &self.injected
    }

    /// So many more client operations ended.
    pub fn add_operations(&mut self, ended: u64) {
        self.operations += ended;
    }

    /// Client operations that ended.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// A process starts: its number, which no other has.
    pub fn next_process(&mut self) -> u64 {
        self.processes += 1;
        self.processes
    }
}
