//! Time as an argument: the pure crates never read a clock, they are told.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// A span of time or a reading of a monotonic clock, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// Nothing.
    pub const ZERO: Micros = Micros(0);

    /// So many milliseconds, or the longest span there is: clients and peers name any number.
    pub const fn from_millis(ms: u64) -> Micros {
        Micros(ms.saturating_mul(1000))
    }

    /// In whole milliseconds, rounded down.
    pub fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// This minus `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Micros {
    type Output = Micros;
    fn add(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }
}

impl Sub for Micros {
    type Output = Micros;
    fn sub(self, other: Micros) -> Micros {
        self.since(other)
    }
}

/// A moment, as the driver of a state machine read it from this machine's clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// A monotonic clock that counts while the machine is suspended (PR-03). Only differences mean anything.
    pub mono: Micros,
    /// Milliseconds since 1970, for stamps that people read. Never compared for safety.
    pub wall_ms: u64,
}
