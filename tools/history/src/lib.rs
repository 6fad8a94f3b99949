//! Layer 1: what clients called and what came back, and checkers that read it. Pure: no IO, no clock.
//!
//! | what | where |
//! | --- | --- |
//! | one operation, and a line of JSON for it | [`operation`] |
//! | whether values can have followed each other, near linear | [`zones`] |
//! | linearizability of one register, as the simulator checks it | [`linear`] |
//! | linearizability of one key, with conditional writes, increments and a delete | [`register`] |
//! | that positions in a partition's log order what was told, and reads are of one snapshot | [`snapshot`] |
//! | what is subtracted where losses were reported | [`losses`] |
//! | all of it together | [`verdict`] |

pub mod linear;
pub mod losses;
pub mod operation;
pub mod register;
pub mod snapshot;
pub mod verdict;
pub mod zones;

pub use losses::{Losses, Subtracted};
pub use operation::{At, End, Key, Operation, Over, Protocol, Read, Seen, Write};
pub use verdict::{Finding, Rule, check, unanswered};
