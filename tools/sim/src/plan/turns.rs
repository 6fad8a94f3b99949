//! Which seeds have clients that ask for turns at rows.

use crate::random::{Concern, Stream};

/// Remainders of the numbers of seeds with such clients: none of the seeds that found something before there
/// were any has one of them, so that those are what they were.
const SEEDS: [u64; 13] = [5, 27, 43, 60, 88, 112, 136, 167, 194, 210, 238, 270, 297];
const OF: u64 = 307;

/// What clients of turns do. All of them ask in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnPlan {
    seed: u64,
    /// So many there are.
    pub clients: u32,
    /// In which of the partitions of bare tables: this number, modulo how many there are.
    pub partition: u32,
    /// In a healed world the first of them gets a turn, and then says nothing more of it: others get theirs
    /// when that has ended by itself.
    pub dies_last: bool,
}

impl TurnPlan {
    /// What a seed has, if it has any of it.
    pub fn new(seed: u64) -> Option<TurnPlan> {
        SEEDS.contains(&(seed % OF)).then(|| {
            let mut random = Stream::new(seed, Concern::Shape, 8);
            TurnPlan {
                seed,
                clients: random.between(3, 5) as u32,
                partition: random.below(4) as u32,
                dies_last: random.chance(500),
            }
        })
    }

    /// What a seed has whatever its number: many clients, one of which dies.
    pub fn crowded(seed: u64) -> TurnPlan {
        TurnPlan { seed, clients: 5, partition: 0, dies_last: true }
    }

    /// Where a client draws from: a stream of its own, so that no other draw moves.
    pub fn stream(&self, client: u32) -> Stream {
        Stream::new(self.seed, Concern::Workload, 8_000 + u64::from(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_thirtieth_of_the_seeds_have_turns_and_they_differ() {
        let plans: Vec<TurnPlan> = (0..3_070).filter_map(TurnPlan::new).collect();
        assert_eq!(plans.len(), 130);
        let dying = plans.iter().filter(|plan| plan.dies_last).count();
        assert!((30..100).contains(&dying), "{dying}");
        assert!(plans.iter().all(|plan| (3..=5).contains(&plan.clients)));
    }
}
