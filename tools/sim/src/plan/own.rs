//! Faults that have a rhythm and a stream of their own: whatever a seed has else stays what it was.

use crate::faults::Fault;
use crate::random::{Concern, Stream};
use std::collections::BTreeSet;

/// Which of them a seed has, and how often.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnFaults {
    /// Those that are switched on.
    pub faults: BTreeSet<Fault>,
    /// About how long until the next, microseconds.
    pub think_us: u64,
}

impl OwnFaults {
    /// Those of a seed: by its number, so that most seeds have none.
    pub fn new(seed: u64) -> OwnFaults {
        use Fault::{FewLogFiles, LogCut, MetaFull, MetaSyncFails, ReadFails};
        let faults: &[Fault] = match seed % 29 {
            3 => &[ReadFails, MetaFull],
            8 => &[FewLogFiles, MetaSyncFails],
            12 => &[LogCut],
            17 => &[ReadFails, MetaSyncFails],
            21 => &[FewLogFiles],
            25 => &[LogCut, MetaFull],
            _ => &[],
        };
        let think_us = Stream::new(seed, Concern::OwnFaults, 0).between(600_000, 1_800_000);
        OwnFaults { faults: faults.iter().copied().collect(), think_us }
    }
}
