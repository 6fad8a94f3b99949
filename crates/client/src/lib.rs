//! Layer 4: the native client: routing, retries, sessions.
//!
//! A pure [`core`] (with [`session`], [`route`] and [`backoff`]) decides; [`Client`] is its shell over
//! sockets. `DESIGN.md` has the rules. [`view`] puts what is known into words.

pub mod ask;
pub mod backoff;
pub mod call;
pub mod client;
mod conn;
mod control;
mod copies;
pub mod core;
pub mod database;
pub mod error;
pub mod index;
pub mod job;
mod level;
pub mod load;
pub mod local;
pub mod pipe;
pub mod procedure;
pub mod route;
pub mod scan;
pub mod session;
pub mod stream;
pub mod table;
pub mod token;
pub mod txn;
pub mod view;

pub use call::{Answer, Call, Completed, FailKind, Fate, LaneId, Loss, Outcome, Ticket};
pub use client::{Client, Options};
pub use conn::Traffic;
pub use core::{Core, CoreConfig, Effect};
pub use database::{Database, created, wall_ms};
pub use error::ClientError;
pub use index::IndexProgress;
pub use job::{Job, JobOptions, JobReport, RunningJob};
pub use load::{LoadOptions, LoadReport, Loader};
pub use local::{LocalListener, LocalNode};
pub use pipe::{PipeEnd, PipeEvents};
pub use procedure::Procedure;
pub use route::Map;
pub use scan::{Found, Scan, ScanOptions};
pub use stream::Stream;
pub use table::{PartitionDigest, Table};
pub use token::Token;
pub use txn::Transaction;
