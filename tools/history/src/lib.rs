//! Layer 1: what clients called and what came back, and checkers that read it. Pure: no IO, no clock.
//!
//! | what | where |
//! | --- | --- |
//! | one operation, and a line of JSON for it | [`operation`] |
//! | whether values can have followed each other, near linear | [`zones`] |
//! | linearizability of one register, as the simulator checks it | [`linear`] |
//! | linearizability of one key, with conditional writes, increments and a delete | [`register`] |
//! | that positions in a partition's log order what was told, and reads are of one snapshot | [`snapshot`] |
//! | rows that were there for inserts which were refused | [`found`] |
//! | write skew, which is counted | [`skew`] |
//! | what is subtracted where losses were reported | [`losses`] |
//! | all of it together | [`verdict`] |
//! | a transaction over rows of any partitions | [`transaction`] |
//! | snapshot isolation from observed versions, and from timestamps | [`versions`], [`timestamps`] |
//! | a bank: its total, what is kept, and all of it together | [`bank`] |

pub mod bank;
pub mod found;
pub mod linear;
pub mod losses;
pub mod operation;
pub mod register;
pub mod skew;
pub mod snapshot;
pub mod timestamps;
pub mod transaction;
pub mod verdict;
pub mod versions;
pub mod zones;

pub use bank::check_bank;
pub use losses::{Losses, Subtracted};
pub use operation::{At, End, Key, Operation, Over, Protocol, Read, Seen, Write};
pub use transaction::{Ending, Transaction, Version};
pub use verdict::{Finding, Rule, check, unanswered};
