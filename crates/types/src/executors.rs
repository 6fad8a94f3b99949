//! Which executor of a node has a partition. All of a node's parts, and everybody who knows how many
//! executors it has, come to the same answer by themselves.

use crate::ids::PartitionId;
use serde::{Deserialize, Serialize};

/// How many executors a node has. Each partition belongs to one of them, for as long as the node runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Executors(u32);

/// The golden ratio, in parts of 2^64: its multiples lie far from each other.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Executors {
    /// All partitions belong to one.
    pub const ONE: Executors = Executors(1);
    /// A node has no more than these: with the coordinator each of its threads has a bit of a word.
    pub const MAX_COUNT: u32 = 63;

    /// So many, numbered from 0. `None`: there cannot be so many, or there would be none.
    pub fn new(count: u32) -> Option<Executors> {
        (1..=Executors::MAX_COUNT).contains(&count).then_some(Executors(count))
    }

    /// How many a node has that is alone on a machine with so many cores, if nobody says it: as many as half
    /// of the cores, 16 at most. The other half is for the log, the coordinator, the SQL gateway, clients'
    /// programs and the system. Below four cores it is one.
    pub fn for_cores(cores: usize) -> Executors {
        Executors((cores / 2).clamp(1, 16) as u32)
    }

    /// True if all partitions belong to one.
    pub fn is_one(&self) -> bool {
        *self == Executors::ONE
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.0 as usize
    }

    /// How many threads handle a node's messages. With several executors there is one more, the coordinator,
    /// which has no partition; one alone is its own.
    pub fn threads(self) -> usize {
        if self.is_one() { 1 } else { self.count() + 1 }
    }

    /// The number of the coordinator among these threads: the last one. The others have those of their
    /// executors.
    pub fn coordinator(self) -> usize {
        self.threads() - 1
    }

    /// The number of the one that has this partition. Numbers of partitions that a node leads often lie
    /// as far apart as there are nodes, so the remainder alone would leave executors idle.
    pub fn of(self, partition: PartitionId) -> usize {
        let spread = u64::from(partition.0).wrapping_mul(SPREAD) >> 32;
        ((spread * u64::from(self.0)) >> 32) as usize
    }
}

impl Default for Executors {
    fn default() -> Executors {
        Executors::ONE
    }
}

impl From<Executors> for u32 {
    fn from(executors: Executors) -> u32 {
        executors.0
    }
}

impl TryFrom<u32> for Executors {
    type Error = String;

    /// The error is a sentence.
    fn try_from(count: u32) -> Result<Executors, String> {
        let executors = Executors::new(count);
        executors.ok_or_else(|| format!("{count} executors, and there are 1 to {}", Executors::MAX_COUNT))
    }
}

/// One of a node's executors, or its coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executor {
    /// How many its node has.
    pub all: Executors,
    /// Which of them it is, counted from 0 ([`Executors::coordinator`]).
    pub number: usize,
}

impl Executor {
    /// True if this partition belongs to it.
    pub fn has(self, partition: PartitionId) -> bool {
        self.all.of(partition) == self.number
    }

    /// True if it has what a node has but once: its listeners and controllers, the records that it keeps,
    /// what it tells of itself.
    pub fn is_coordinator(self) -> bool {
        self.number == self.all.coordinator()
    }

    /// True if partitions belong to it: to all but the coordinator of several executors.
    pub fn has_partitions(self) -> bool {
        self.number < self.all.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_cores_are_for_executors() {
        let counts = [0, 1, 2, 3, 4, 5, 8, 16, 32, 33, 256].map(|cores| Executors::for_cores(cores).count());
        assert_eq!(counts, [1, 1, 1, 1, 2, 2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn each_partition_has_one_executor_and_none_has_most_of_them() {
        assert_eq!(Executors::new(1), Some(Executors::ONE));
        assert_eq!((Executors::new(0), Executors::new(Executors::MAX_COUNT + 1)), (None, None));
        assert_eq!(serde_json::from_str::<Executors>("3").ok(), Executors::new(3));
        assert!(serde_json::from_str::<Executors>("0").is_err_and(|why| why.to_string().contains("1 to 63")));
        assert_eq!(serde_json::to_string(&Executors::default()).expect("a number"), "1");
        for count in 1..=16 {
            let executors = Executors::new(count).expect("so many can be");
            let coordinators = |number: &usize| Executor { all: executors, number: *number }.is_coordinator();
            let found: Vec<usize> = (0..executors.threads()).filter(coordinators).collect();
            assert_eq!(found, [if count == 1 { 0 } else { executors.count() }]);
            assert_eq!(Executor { all: executors, number: found[0] }.has_partitions(), count == 1);
            // What a node leads of a table, with so many nodes.
            for nodes in 1..=8 {
                let mut partitions = vec![0; executors.count()];
                for number in 0..count * 8 {
                    partitions[executors.of(PartitionId(64 + number * nodes))] += 1;
                }
                let most = partitions.iter().max().expect("there are some");
                assert!(*most <= 12, "{count} executors, every {nodes}th partition: {partitions:?}");
            }
        }
    }
}
