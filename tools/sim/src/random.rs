//! Seeded randomness, a separate stream per concern: a changed workload does not reshuffle the faults.

use types::random::Random;

/// What a stream of numbers is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Concern {
    /// The shape of the world: nodes, tables, policies, which faults.
    Shape = 1,
    /// Delays and losses of messages.
    Network = 2,
    /// What disks do.
    Disk = 3,
    /// What clients ask.
    Workload = 4,
    /// When which fault strikes.
    Faults = 5,
    /// How long work takes inside a node.
    Timing = 6,
    /// What an operator decides who goes on without a node.
    Operator = 7,
    /// What becomes of engines on real files.
    Engines = 8,
    /// When faults strike that have a rhythm of their own.
    OwnFaults = 9,
    /// How long logs may become before engines are written.
    Flushes = 10,
    /// What procedures there are, and what their calls may use.
    Calls = 11,
    /// When faults of files strike that have another rhythm.
    FileFaults = 12,
}

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Stream(Random);

impl Stream {
    /// The stream of this seed for this concern; `which` tells several of one concern apart.
    pub fn new(seed: u64, concern: Concern, which: u64) -> Stream {
        let mut stream = Random::new(seed ^ (concern as u64).rotate_left(56) ^ which.rotate_left(32));
        stream.draw();
        Stream(Random::new(stream.draw()))
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "a stream without an end is no iterator worth having")]
    pub fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below zero");
        self.next() % bound
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `permille` of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len() as u64) as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |concern, which| {
            let mut stream = Stream::new(7, concern, which);
            (0..4).map(|_| stream.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(Concern::Disk, 1), draw(Concern::Disk, 1));
        assert_ne!(draw(Concern::Disk, 1), draw(Concern::Disk, 2));
        assert_ne!(draw(Concern::Disk, 1), draw(Concern::Network, 1));
    }

    #[test]
    fn bounds_hold() {
        let mut stream = Stream::new(1, Concern::Shape, 0);
        assert!((0..1000).all(|_| (3..=5).contains(&stream.between(3, 5))));
        assert!(!stream.chance(0) && stream.chance(1000));
        assert_eq!(stream.pick::<u8>(&[]), None);
    }
}
