//! What an engine takes from the process around it.

use super::background::{Background, FileCall, Threads};
use lsm_tree::{Cache, DescriptorTable};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use types::Rules;

/// Files of components that are kept open, of all engines of a process together.
const OPEN_FILES: usize = 512;

/// Who works beside an engine, by which clock it measures itself, and which open files and cache its trees
/// share. Clones share all of it.
#[derive(Clone)]
pub struct Environment {
    pub(super) background: Arc<dyn Background>,
    pub(super) resources: Resources,
    measures: bool,
    pub(super) rules: Rules,
}

impl Environment {
    /// A node's: threads, the machine's clock, and one table of open files for the process.
    pub fn of_process() -> Environment {
        let resources = Resources::of_process();
        Environment { background: Arc::new(Threads), resources, measures: true, rules: Rules::ALL }
    }

    /// A simulator's: no time passes within a call, so nothing is measured, and nothing is shared with others
    /// in the process but through `shared`.
    pub fn simulated(background: Arc<dyn Background>, shared: &SharedFiles) -> Environment {
        Environment { background, resources: shared.0.clone(), measures: false, rules: Rules::ALL }
    }

    /// The same for an engine that lacks a rule, so that its tests are tested.
    pub fn with_rules(self, rules: Rules) -> Environment {
        Environment { rules, ..self }
    }

    /// The time, if it is measured.
    pub(super) fn now(&self) -> Option<Instant> {
        self.measures.then(Instant::now)
    }

    /// See [`Background::before`].
    pub(super) fn before(&self, call: FileCall, path: &Path) -> io::Result<()> {
        self.background.before(call, path)
    }

    /// See [`Background::made_durable`].
    pub(super) fn made_durable(&self) {
        self.background.made_durable();
    }
}

/// A table of open files that the engines of one simulated world share. Their blocks are not cached: what a
/// read finds must not depend on what was read before.
pub struct SharedFiles(Resources);

impl SharedFiles {
    /// With so many files open at most.
    pub fn new(open_files: usize) -> SharedFiles {
        SharedFiles(Resources::uncached(open_files))
    }
}

/// Files that several trees keep open, and the cache of their blocks. Clones share both.
#[derive(Clone)]
pub(super) struct Resources {
    pub(super) descriptors: Arc<DescriptorTable>,
    /// None: each tree has one of the crate's size.
    pub(super) cache: Option<Arc<Cache>>,
}

impl Resources {
    /// The open files of all trees of the process together: a tree has many.
    pub(super) fn of_process() -> Resources {
        static TABLE: OnceLock<Arc<DescriptorTable>> = OnceLock::new();
        let descriptors = TABLE.get_or_init(|| Arc::new(DescriptorTable::new(OPEN_FILES))).clone();
        Resources { descriptors, cache: None }
    }

    /// A table of its own, and a cache that keeps nothing.
    pub(super) fn uncached(open_files: usize) -> Resources {
        let cache = Some(Arc::new(Cache::with_capacity_bytes(0)));
        Resources { descriptors: Arc::new(DescriptorTable::new(open_files)), cache }
    }
}
