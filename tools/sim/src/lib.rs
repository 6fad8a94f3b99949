//! Layer 4: a simulated world for the very state machines that nodes run, and checkers that know only the
//! promises.
//!
//! A seed says everything: the shape of the world, the workload, every delay and every fault. The same seed
//! gives the same trace in every process and build profile. See [`run`] for one seed and [`run_range`] for
//! many.
//!
//! | what | where |
//! | --- | --- |
//! | what can happen, and that it does | [`event`], [`world`] |
//! | what a seed is made of | [`plan`], [`faults`] |
//! | machines | [`disk`], [`lsm_files`], [`network`], [`clock`], [`node`] |
//! | clients, keys and rows | [`client`], [`snapshot_client`], [`load_client`], [`job_client`], [`table_client`], [`call_client`], [`turn_client`], [`rows`], [`programs`] |
//! | checkers | [`check`] |
//! | planted bugs and the seeds that find them | [`plants`] |
//! | runs and their figures | [`outcome`], [`summary`] |

pub mod backup_client;
pub mod call_client;
pub mod check;
pub mod client;
pub mod clock;
pub mod disk;
pub mod event;
pub mod faults;
pub mod job_client;
pub mod load_client;
pub mod lsm_files;
pub mod network;
pub mod node;
pub mod outcome;
pub mod plan;
pub mod plants;
pub mod programs;
pub mod random;
pub mod rows;
pub mod snapshot_client;
pub mod summary;
pub mod table_client;
pub mod trace;
pub mod turn_client;
pub mod txn_client;
pub mod world;

pub use check::Violation;
pub use outcome::{Options, Outcome, run};

pub use summary::{Summary, run_all, run_range};
