//! Layer 1: what every other crate speaks of.
//!
//! Identifiers and log positions are newtypes, so that an LSN cannot be passed where an epoch is meant.
//! Policies are small values with pure functions ([`policy`]). The records that the metastore keeps are in
//! [`config`], the contract between a replica and its engine is in [`engine`]. Nothing here does IO, reads a
//! clock or starts a thread.

pub mod bulk;
pub mod choice;
pub mod commits;
pub mod component;
pub mod config;
pub mod data;
pub mod database;
pub mod directories;
pub mod engine;
pub mod executors;
pub mod ids;
pub mod index;
pub mod job;
pub mod keyspace;
pub mod moves;
pub mod policy;
pub mod position;
pub mod procedure;
pub mod random;
pub mod ranges;
pub mod rules;
pub mod scheme;
pub mod ship;
pub mod system;
pub mod time;
pub mod txn;

pub use bulk::{LoadId, Staged, Staging};
pub use component::{Component, ComponentSet, Installation, Missing, PinId};
pub use config::{ClusterRecord, FailoverRecord, Holds, NodeRecord, PartitionRecord, TableRecord};
pub use database::{CatalogTable, TableState};
pub use directories::RemovedDirectories;
pub use engine::{Engine, EngineError, EngineKind, Mutation, ReadAt};
pub use executors::{Executor, Executors};
pub use ids::{
    ClusterId, FeedId, Generation, Incarnation, Member, NodeId, PartitionId, ProposalId, SessionId, StoreId,
    TableId,
};
pub use index::{IndexRecord, IndexState, Indexes};
pub use job::JobId;
pub use keyspace::KeySpace;
pub use moves::Moves;
pub use policy::{LogKind, Policy};
pub use position::{Durable, Epoch, Lsn, Position, Term, Watermarks};
pub use ranges::Ranges;
pub use rules::{Finding, Rules};
pub use scheme::Scheme;
pub use ship::Ship;
pub use time::{Micros, Now};
