//! Layer 3, pure: one partition replica ([`Replica`]), a node's many ([`Host`]), and the leases between nodes
//! ([`LeaseManager`]).
//!
//! Nothing here does IO, reads a clock, starts a thread or draws a random number. A driver hands in the time
//! and an input and carries out the [`Output`]s in order. `node` does so on a real machine, `sim` in a
//! simulated world.

mod answer;
mod backup;
mod budget;
pub mod cluster_snapshot;
mod config;
mod context;
mod damage;
mod data;
#[cfg(test)]
mod fake;
mod features;
pub mod history;
pub mod host;
pub mod lease;
mod log_state;
mod marks;
pub mod output;
mod primary;
mod readers;
mod recovered;
mod replica;
mod role;
mod rows;
mod scope;
mod sender;
mod serve;
pub mod session;
pub mod settings;
mod snapshot_pages;
pub mod tail;
mod transfer;
mod unfit;

pub use budget::Budgets;
pub use cluster_snapshot::ClusterSnapshot;
pub use features::index::definitions_at;
pub use host::Host;
pub use lease::{LeaseManager, Leases};
pub use log_state::LogState;
pub use marks::Marks;
pub use output::{ClientRef, Note, Notice, Output, ReadFor};
pub use recovered::Recovered;
pub use replica::{Replica, STAYS, has_moved};
pub use settings::Settings;
pub use snapshot_pages::SnapshotPages;
