//! Sets of files that together hold an engine's state at one position and can be shipped to another replica
//! (design section 7, AsterixDB's LSM component replication).
//!
//! A file is a *component*. It is named by a number and known by its content: two sets share a component if
//! number, length and digest agree, so a replica that comes back is sent only what it lacks. Nothing that a
//! peer sends is ever used as a name in the file system.

use crate::position::Position;
use serde::{Deserialize, Serialize};

/// The most components of one set.
pub const MAX_COMPONENTS: usize = 1 << 17;
/// The longest [`ComponentSet::order`], in bytes.
pub const MAX_ORDER_BYTES: usize = 32 << 20;

/// One file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Component {
    /// Names it within its set.
    pub number: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// XXH3 (128 bits) of its content.
    pub digest: u128,
}

/// The files that hold the state at one position.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComponentSet {
    /// Every entry up to here is in the files, and none above.
    pub at: Position,
    /// How the files belong together, in the engine's own format (the LSM engine's version).
    pub order: Vec<u8>,
    /// The files, each number once.
    pub files: Vec<Component>,
}

impl ComponentSet {
    /// Why no engine can have made this set, or none. Whoever takes one from a peer or a disk asks this
    /// first.
    pub fn fault(&self) -> Option<&'static str> {
        if self.files.len() > MAX_COMPONENTS {
            return Some("the set has too many files");
        }
        if self.order.len() > MAX_ORDER_BYTES {
            return Some("the set's order is too long");
        }
        let mut numbers: Vec<u64> = self.files.iter().map(|file| file.number).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some("the set names a file twice");
        }
        let total = self.files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.bytes));
        total.is_none().then_some("the set's files are longer than any disk")
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}

/// Names a set that an engine keeps for a reader; unknown after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PinId(pub u64);

/// What is missing of one component of a set that is being received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Which, as an index into [`ComponentSet::files`].
    pub file: usize,
    /// The first byte that is not here.
    pub from: u64,
}

/// Where the installation of a set that was received stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Installation {
    /// A thread checks the files and makes them durable; the engine wakes its driver.
    Waiting,
    /// The set is the engine's state, on disk too.
    Done,
    /// These files, as indices into [`ComponentSet::files`], are not what the set says. They are wanted again
    /// from their first byte, and whoever sent them is to be told.
    Tainted(Vec<usize>),
    /// The set cannot be installed, for this reason; nothing of it is kept, and the engine is as it was.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_no_engine_makes_are_refused() {
        let file = |number, bytes| Component { number, bytes, digest: 7 };
        let set = |files| ComponentSet { at: Position::ZERO, order: vec![], files };
        assert_eq!(set(vec![file(1, 5), file(2, 5)]).fault(), None);
        assert_eq!(set(vec![file(1, 5), file(2, 5)]).bytes(), 10);
        assert!(set(vec![file(1, 5), file(3, 5), file(1, 6)]).fault().is_some());
        assert!(set(vec![file(1, u64::MAX), file(2, 1)]).fault().is_some());
        assert!(set((0..=MAX_COMPONENTS as u64).map(|n| file(n, 0)).collect()).fault().is_some());
        let long = ComponentSet { order: vec![0; MAX_ORDER_BYTES + 1], ..set(vec![]) };
        assert!(long.fault().is_some());
    }
}
