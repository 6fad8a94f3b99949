//! What stage a run is in, and since when.

use std::collections::BTreeMap;
use types::NodeId;

/// What stage a run is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nodes register, tables are created. No faults.
    Setup,
    /// Clients work, faults strike: safety.
    Faults,
    /// A connected part is healed, the rest is dead: it must converge.
    Healed,
    /// Over.
    Done,
}

/// The stage, which only ever goes on to a later one.
#[derive(Debug)]
pub(super) struct RunStage {
    phase: Phase,
    began: u64,
    /// Bytes of files that each node's pieces had that arrived since.
    files: BTreeMap<NodeId, u64>,
}

impl RunStage {
    /// The first.
    pub fn new() -> RunStage {
        RunStage { phase: Phase::Setup, began: 0, files: BTreeMap::new() }
    }

    /// Which it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The next stage, or the last, begins.
    ///
    /// # Panics
    ///
    /// If a stage is left out, but for the last, or comes again.
    pub fn begin(&mut self, phase: Phase, now: u64) {
        let follows = match phase {
            Phase::Setup => false,
            Phase::Faults => self.phase == Phase::Setup,
            Phase::Healed => self.phase == Phase::Faults,
            Phase::Done => self.phase != Phase::Done,
        };
        assert!(follows, "{phase:?} comes after {:?}", self.phase);
        (self.phase, self.began) = (phase, now);
        self.files.clear();
    }

    /// A piece of a file has arrived, of so many bytes.
    pub fn sends_files(&mut self, from: NodeId, bytes: u64) {
        *self.files.entry(from).or_default() += bytes;
    }

    /// Bytes of files that arrived since it began from the node that sent the most.
    pub fn most_files(&self) -> u64 {
        self.files.values().copied().max().unwrap_or(0)
    }

    /// Since when it has been this one, virtual microseconds.
    pub fn began(&self) -> u64 {
        self.began
    }
}
