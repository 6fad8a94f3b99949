//! Layer 6: workloads, comparisons, figures.
//!
//! Ten benches, each a function that takes its options, a writer for progress and a receiver for lines:
//! [`log()`] (the write-ahead log against a bare thread), [`ycsb()`] (policies against each other),
//! [`compare()`] (against Redis and PostgreSQL), [`sql()`] (the SQL gateway beside PostgreSQL),
//! [`executors()`] (a node on two cores),
//! [`databases()`] (tables in a database, and pgbench beside PostgreSQL),
//! [`tpcc()`] (TPC-C's tables and transactions on both), [`calls()`] (procedures), [`txn()`] (transactions
//! over partitions) and [`gleambook()`] (the experiments of the AsterixDB replication document). A [`Line`]
//! is one comparison and one JSON object. How rounds are made and counted is in [`subject`], who decides why
//! a goal was missed in `explain.rs`.

mod affinity;
pub mod appends;
pub mod arithmetic;
mod calls;
mod client_pool;
mod closed;
pub mod cluster;
mod compare;
pub mod costs;
mod databases;
pub mod error;
mod executors;
mod explain;
pub mod generate;
pub mod gleambook;
pub mod goals;
pub mod load;
pub mod options;
pub mod peers;
pub mod plot;
pub mod procfs;
mod quota;
pub mod report;
mod sql;
pub mod stats;
pub mod subject;
mod tpcc;
mod txn;
pub mod unit_costs;
mod ycsb;

pub use appends::{LOG_LINES, LogOptions, log};
pub use calls::{CALL_LINES, CallsOptions, calls};
pub use cluster::Target;
pub use compare::{CompareOptions, Peer, compare};
pub use databases::{DATABASE_LINES, DatabasesOptions, databases};
pub use error::BenchError;
pub use executors::{EXECUTOR_LINES, ExecutorsOptions, executors};
pub use generate::{Distribution, Workload};
pub use gleambook::{GleambookOptions, gleambook};
pub use options::{Common, LoadSize};
pub use report::Line;
pub use sql::{SqlOptions, sql};
pub use tpcc::{By, Scale, TPCC_LINES, TpccOptions, tpcc, tpcc_programs};
pub use txn::{TXN_EXPERIMENTS, TxnOptions, txn};
pub use ycsb::letters::Letter;
pub use ycsb::store::Asking;
pub use ycsb::sweep::Sweep;
pub use ycsb::{CustomTable, Offer, YCSB_LINES, YcsbOptions, ycsb};
