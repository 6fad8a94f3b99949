//! Layer 6: what the commands of the `understudy` binary do, without how they are parsed and printed.
//!
//! | what | where |
//! | --- | --- |
//! | rows in batches on their way to their partitions | [`pipeline`] |
//! | `load`: a file into a table, all or nothing or without its bad rows | [`load`] |
//! | `load` where only global transactions write | [`global_load`], [`global_fill`] |
//! | what every load has in common: reading, progress, report | `reading` |
//! | `load --bulk`: files that are built once and staged on all copies | [`bulk`] |
//! | `load --job`: one answer at the end, which says what is committed | [`job`] |
//! | `ingest`: feeds that neither skip nor repeat | [`ingest`] |
//! | all tables at one point into a directory, and back | [`backup`] |
//! | calls of procedures, also where transactions are global | [`calls`] |
//! | keys and ranges as people write them | [`keys`] |
//! | a new table from options | [`design`] |
//! | what the cluster survives now, who is behind, failovers: made by [`client::view`] | [`overview`], [`failovers`] |
//! | a client of the SQL gateway | [`gateway`] |
//! | what a forced promotion may lose | [`recover`] |
//! | a stopped node's log | [`logview`] |
//! | replicas read back, compared and repaired | [`scrub`] |
//!
//! A failure is one sentence with the exit status that the conventions give it ([`Failure`]).

pub mod backup;
pub mod badrows;
pub mod bulk;
pub mod calls;
pub mod design;
pub mod export;
mod failure;
pub mod filter;
pub mod gateway;
pub mod global_fill;
pub mod global_load;
pub mod ingest;
pub mod job;
pub mod keys;
pub mod load;
pub mod logview;
pub mod pipeline;
mod port;
mod reading;
pub mod recover;
pub mod scrub;
pub mod secured;

#[cfg(test)]
mod testing;

pub use client::view::{failovers, overview, survive};
pub use failure::{Failure, Status};
pub use port::Port;
pub use reading::LoadReport;
