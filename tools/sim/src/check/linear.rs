//! R5, I4: reads and writes of each key are linearizable, unknown outcomes included: as histories of real
//! clusters are checked.

pub use history::linear::{Step, check};
