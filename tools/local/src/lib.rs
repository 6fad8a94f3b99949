//! Layer 6: clusters of processes on one machine.
//!
//! | what | where |
//! | --- | --- |
//! | starts, harms, finds and stops a cluster | [`cluster`] |
//! | `understudy dev`: a cluster kept in a directory | [`dev`] |
//! | `understudy demo`: a fault under load, and everything checked afterwards | [`demo`] |
//! | the processes themselves, and proof that a pid is ours | [`process`] |
//!
//! Everything a cluster starts it stops by its own pid; what is left when the starting process dies is ended
//! by the kernel.

pub mod cluster;
pub mod demo;
pub mod dev;
mod error;
pub mod http;
mod ports;
pub mod process;
mod terminal;

pub use cluster::{Cluster, ClusterFile, ClusterOptions, Metastore, Running};
pub use demo::{DemoOptions, DemoReport, demo};
pub use dev::{DevCommand, DevOptions, dev, dev_command};
pub use error::LocalError;
pub use terminal::{Progress, Silent, Terminal};

/// The cluster's secret, which this process and every process that it starts have from the environment.
pub fn secret() -> Option<String> {
    std::env::var("UNDERSTUDY_SECRET").ok()
}
