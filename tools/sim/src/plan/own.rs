//! Faults that have a rhythm and a stream of their own: whatever a seed has else stays what it was.

use super::executors;
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
    /// Whoever makes the records anew goes on without a node that is down.
    pub leaves_out: bool,
}

impl OwnFaults {
    /// Those of a seed: by its number, so that most seeds have none.
    pub fn new(seed: u64) -> OwnFaults {
        use Fault::{FewLogFiles, GiveUp, GoBack, LogCut, MetaFull, MetaSyncFails, ReadFails};
        let faults: &[Fault] = match seed % 29 {
            2 => &[GiveUp],
            22 => &[GoBack],
            3 => &[ReadFails, MetaFull],
            8 => &[FewLogFiles, MetaSyncFails],
            12 => &[LogCut],
            16 => &[GiveUp, MetaFull],
            17 => &[ReadFails, MetaSyncFails],
            21 => &[FewLogFiles],
            25 => &[LogCut, MetaFull],
            _ => &[],
        };
        let mut faults: BTreeSet<Fault> = faults.iter().copied().collect();
        // None of the seeds that found something before there were these faults has one of the remainders.
        if [13, 22, 24, 28, 45].contains(&(seed % 47)) {
            faults.insert(Fault::Rivals);
        }
        // What nodes keep does not go back with a disk that does.
        if [27, 29, 37, 39].contains(&(seed % 43)) && !faults.contains(&GoBack) {
            faults.insert(Fault::RecordsLost);
            // The seeds that found something before there were such controllers have none. Who was not
            // asked for what it keeps may listen to one, and what it acknowledges then is lost.
            if [1, 2, 4].contains(&(seed / 43 % 5)) && !(seed / 43).is_multiple_of(3) {
                faults.insert(Fault::OldController);
            }
        }
        // None of the seeds that found something before has one of these remainders either.
        if [37, 68, 97, 103, 106, 107, 108, 110, 112].contains(&(seed % 149)) {
            faults.insert(Fault::Cloned);
        }
        // Nor has one of them one of these.
        if [3, 6, 9, 18, 24, 38, 46].contains(&(seed % 83)) {
            faults.insert(Fault::OtherBuild);
        }
        // Nor has one of them one of these. What nodes keep does not go back with a disk that does.
        if [16, 42, 67, 95, 121, 142, 168, 188, 204, 226].contains(&(seed % 241))
            && !faults.contains(&Fault::RecordsLost)
        {
            faults.insert(GoBack);
        }
        if executors::hang(seed) {
            faults.insert(Fault::ExecutorHangs);
        }
        let leaves_out = faults.contains(&Fault::RecordsLost) && (seed / 43).is_multiple_of(3);
        let think_us = Stream::new(seed, Concern::OwnFaults, 0).between(600_000, 1_800_000);
        OwnFaults { faults, think_us, leaves_out }
    }
}
