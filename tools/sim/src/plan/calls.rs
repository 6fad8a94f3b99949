//! Procedures of the database, and what is shipped of their calls.

use crate::programs::{Another, Unsteady};
use crate::random::{Concern, Stream};
use procedure::{Builtin, Runtime};
use std::sync::Arc;
use types::Ship;

/// Remainders of the numbers of seeds with procedures: none of the seeds that found something before there
/// were any has one of them, so that those are what they were.
const SEEDS: [u64; 9] = [3, 12, 19, 26, 34, 41, 47, 52, 58];
const OF: u64 = 61;

/// True if a seed has procedures.
pub fn has_calls(seed: u64) -> bool {
    SEEDS.contains(&(seed % OF))
}

/// What a seed has of procedures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallPlan {
    /// Of what limits are drawn.
    pub seed: u64,
    /// What is shipped.
    pub ship: Ship,
    /// Who calls.
    pub clients: u32,
    /// How long a slice of a call takes, microseconds.
    pub slice_us: u64,
    /// A node with another build: its code says that it is another one, and writes something more.
    pub another: Option<u32>,
    /// A node whose code says that it is the same, and is not.
    pub unsteady: Option<u32>,
}

impl CallPlan {
    /// That of a seed.
    pub fn new(seed: u64, nodes: u32) -> CallPlan {
        let mut random = Stream::new(seed, Concern::Calls, 0);
        let another = 1 + random.below(u64::from(nodes)) as u32;
        CallPlan {
            seed,
            ship: if random.chance(700) { Ship::Calls } else { Ship::Effects },
            clients: random.between(1, 3) as u32,
            slice_us: *random.pick(&[100, 2_000, 6_000]).expect("not empty"),
            another: random.chance(400).then_some(another),
            unsteady: None,
        }
    }

    /// The same as a profile has it: calls are shipped.
    pub fn shipped(self) -> CallPlan {
        CallPlan { ship: Ship::Calls, clients: 3, another: None, ..self }
    }

    /// Gives a process of a node the limits of its calls, which differ from node to node and from start to
    /// start, and the programs of its build.
    pub fn equipped(&self, (node, start): (u32, u64), mut settings: replica::Settings) -> replica::Settings {
        let mut random = Stream::new(self.seed, Concern::Calls, u64::from(node) << 20 | (start & 0xf_ffff));
        settings.call.steps = *random.pick(&[3_000, 60_000, 30_000_000]).expect("not empty");
        settings.call.written_rows = *random.pick(&[1, 10_000, 10_000]).expect("not empty");
        let named = |name: &str, program: Arc<dyn Builtin>| Runtime::with(vec![(name.to_string(), program)]);
        if self.another == Some(node) {
            settings.programs = named("count", Arc::new(Another));
        }
        if self.unsteady == Some(node) {
            settings.programs = named("count", Arc::new(Unsteady));
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seventh_of_the_seeds_have_procedures_and_all_kinds_of_them() {
        let seeds = (0..6_100).filter(|seed| has_calls(*seed));
        let plans: Vec<CallPlan> = seeds.map(|seed| CallPlan::new(seed, 3)).collect();
        assert_eq!(plans.len(), 900);
        for ship in [Ship::Effects, Ship::Calls] {
            assert!(plans.iter().filter(|plan| plan.ship == ship).count() > 200);
        }
        assert!(plans.iter().any(|plan| plan.another.is_some()));
        assert!(plans.iter().all(|plan| plan.unsteady.is_none()));
    }
}
