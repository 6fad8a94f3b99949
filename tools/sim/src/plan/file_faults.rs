//! Faults of files that came last, with a rhythm and streams of their own: whatever a seed has else stays
//! what it was.

use super::own::OwnFaults;
use crate::faults::Fault;
use crate::random::{Concern, Stream};
use std::collections::BTreeSet;

/// Remainders of the numbers of seeds: none of the seeds that found something before has one of them, nor
/// has that of another cluster into which such a seed's backup is restored.
const SEEDS: [u64; 230] = [
    0, 3, 4, 8, 13, 16, 17, 20, 22, 23, 27, 28, 29, 30, 33, 36, 39, 40, 41, 43, 45, 47, 48, 49, 50, 51, 54,
    55, 56, 58, 59, 60, 62, 63, 64, 69, 71, 73, 74, 75, 77, 79, 81, 82, 83, 84, 87, 88, 89, 90, 91, 92, 95,
    97, 99, 101, 103, 105, 107, 111, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 124, 125, 126, 128,
    130, 132, 134, 135, 137, 138, 140, 141, 142, 143, 144, 145, 146, 148, 151, 152, 153, 156, 160, 161, 164,
    167, 169, 173, 174, 175, 176, 182, 183, 184, 185, 189, 192, 193, 194, 195, 196, 197, 198, 200, 202, 203,
    204, 206, 207, 208, 210, 211, 212, 213, 216, 217, 218, 219, 220, 221, 222, 224, 226, 227, 228, 231, 232,
    233, 234, 235, 239, 240, 242, 243, 244, 245, 250, 252, 253, 254, 257, 258, 259, 260, 262, 265, 266, 268,
    269, 270, 273, 275, 277, 280, 282, 284, 285, 286, 290, 292, 293, 299, 300, 301, 302, 303, 304, 305, 309,
    310, 311, 313, 319, 320, 322, 325, 326, 327, 329, 331, 332, 333, 336, 338, 341, 343, 344, 346, 347, 349,
    350, 353, 355, 358, 362, 363, 365, 366, 367, 368, 370, 371, 374, 375, 377, 378, 380, 386, 387, 388, 389,
    390, 391, 395, 398, 400, 401, 403, 407, 408,
];
const OF: u64 = 409;

/// Which of them a seed has, and how often.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileFaults {
    /// Those that are switched on.
    pub faults: BTreeSet<Fault>,
    /// About how long until the next, microseconds.
    pub think_us: u64,
}

impl FileFaults {
    /// Those of a seed, by its number. Records are kept only where those of the controllers are lost, which
    /// is one of the `others`; and a second directory hangs only where there is one.
    pub fn new(seed: u64, others: &OwnFaults, directories: bool) -> FileFaults {
        let mut faults = BTreeSet::new();
        let Some(place) = SEEDS.iter().position(|rest| *rest == seed % OF) else {
            return FileFaults::default();
        };
        match place % 5 {
            0 => drop(faults.insert(Fault::LogWriteFails)),
            1 => drop(faults.insert(Fault::EngineCut)),
            _ => {}
        }
        if others.faults.contains(&Fault::RecordsLost) {
            faults.insert(Fault::RecordsCut);
        }
        if directories {
            faults.insert(Fault::SecondHangs);
        }
        let think_us = Stream::new(seed, Concern::FileFaults, 0).between(500_000, 1_500_000);
        FileFaults { faults, think_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::has_directories;

    #[test]
    fn each_is_in_more_than_a_fiftieth_of_the_seeds_and_often_enough_in_the_first_hundred() {
        let has = |fault: Fault, seed: &u64| {
            let plan = FileFaults::new(*seed, &OwnFaults::new(*seed), has_directories(*seed));
            plan.faults.contains(&fault)
        };
        for fault in [Fault::LogWriteFails, Fault::EngineCut, Fault::RecordsCut, Fault::SecondHangs] {
            let (all, first) =
                ((0..20_000).filter(|seed| has(fault, seed)), (0..100).filter(|seed| has(fault, seed)));
            assert!(all.count() >= 600 && first.count() >= 4, "{fault}");
        }
    }
}
