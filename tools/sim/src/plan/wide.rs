//! What clients ask beside single rows, in some seeds.

use crate::random::{Concern, Stream};

/// Remainders of the numbers of seeds with such clients: none of the seeds that found something before there
/// were any has one of them, so that those are what they were.
const SEEDS: [u64; 14] = [1, 4, 5, 6, 8, 13, 14, 16, 17, 18, 22, 23, 25, 27];
const OF: u64 = 46;

/// What clients ask beside single rows.
#[derive(Clone, PartialEq, Debug)]
pub struct WidePlan {
    seed: u64,
    /// Writes of several rows, some of which rest on a snapshot.
    pub batches: bool,
    /// Marks of feeds with them.
    pub feeds: bool,
    /// Scans and counts.
    pub ranges: bool,
    /// Reads at any replica, with bounds and tokens of many kinds.
    pub bounds: bool,
}

impl WidePlan {
    /// What a seed has, if it has any of it.
    pub fn new(seed: u64) -> Option<WidePlan> {
        SEEDS.contains(&(seed % OF)).then(|| {
            let mut random = Stream::new(seed, Concern::Shape, 5);
            let mut often = || random.chance(750);
            WidePlan { seed, batches: often(), feeds: often(), ranges: often(), bounds: often() }
        })
    }

    /// All of it, whatever the seed's number.
    pub fn all(seed: u64) -> WidePlan {
        WidePlan { seed, batches: true, feeds: true, ranges: true, bounds: true }
    }

    /// Where a client draws from what it asks of this: a stream of its own, so that no other draw moves.
    pub fn stream(&self, client: u32) -> Stream {
        Stream::new(self.seed, Concern::Workload, 2_000 + u64::from(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_fifth_of_the_seeds_have_each_of_it() {
        let plans: Vec<WidePlan> = (0..4_600).filter_map(WidePlan::new).collect();
        let some = |has: fn(&WidePlan) -> bool| plans.iter().filter(|plan| has(plan)).count();
        let (batches, feeds) = (some(|plan| plan.batches), some(|plan| plan.feeds));
        let (ranges, bounds) = (some(|plan| plan.ranges), some(|plan| plan.bounds));
        for seeds in [batches, feeds, ranges, bounds] {
            assert!(seeds * 5 >= 4_600, "{seeds}");
        }
    }
}
