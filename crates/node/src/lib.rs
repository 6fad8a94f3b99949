//! Layer 5: sockets, threads, files and timers around the state machines.
//!
//! One process is one node ([`run_node`]) or one controller ([`run_controller`]). [`node::start`] and
//! [`controller_process::start`] run them on threads of the calling process, which is how tests do it. A data
//! directory is made by [`datadir::init`] and never by accident; [`config::Config`] says everything else.
//!
//! | threads of a node | what they do |
//! | --- | --- |
//! | `node-N` | the executor: all sockets but the heartbeats', all replicas ([`node`]); the coordinator where there are several |
//! | `node-N.0` and so on | executors, if there are several: replicas and sockets of their own |
//! | `log` | group commit: one write and one fsync for whatever waited ([`journal`]) |
//! | `lease_manager` | heartbeats, answers, leases ([`lease_manager`]) |
//! | `http` | health, metrics, status; the web page ([`http`]) |
//! | `web-desk` | asks controllers for the web page, while somebody looks |
//! | `sql` | PostgreSQL's protocol, and the native client behind it ([`sql`]) |

pub mod clock;
pub mod config;
pub mod controller_process;
pub mod datadir;
mod descriptors;
pub mod failure;
mod http;
mod journal;
mod kept;
pub mod lease_manager;
pub mod metrics;
pub mod net;
pub mod node;
pub mod rebuilt;
pub mod shared_status;
mod sql;
pub mod stop;
mod stores;
pub mod system_calls;
pub mod tails;
mod timed_files;
mod watch;
mod web;

/// What programs that are compiled in are written with ([`Config::with_programs`]).
pub use ::procedure;
pub use ::sql::{DATABASE as SQL_DATABASE, USER as SQL_USER};
pub use config::Config;
pub use failure::Failure;

use datadir::{Identity, Kind};
use std::path::Path;
use types::NodeId;

/// What this build calls itself in handshakes.
pub const AGENT: &str = concat!("understudy ", env!("CARGO_PKG_VERSION"));

/// Runs a node until a signal ends it. `started` is told its ports once it listens.
pub fn run_node(config: Config, started: impl FnOnce(&datadir::Ports)) -> Result<(), Failure> {
    let running = node::start(config)?;
    started(running.ports());
    stop::with_signals(running.stopper().clone(), || running.wait())
}

/// Runs a controller until a signal ends it. `started` is told its ports once it listens.
pub fn run_controller(config: Config, started: impl FnOnce(&datadir::Ports)) -> Result<(), Failure> {
    let running = controller_process::start(config)?;
    started(running.ports());
    stop::with_signals(running.stopper().clone(), || running.wait())
}

/// Makes a node's data directory. Never formats a directory that has anything in it.
pub fn init_node(data_dir: &Path, id: NodeId) -> Result<Identity, Failure> {
    datadir::init(data_dir, Kind::Node, id)
}

/// Makes a controller's data directory, which founds a cluster.
pub fn init_controller(data_dir: &Path) -> Result<Identity, Failure> {
    datadir::init(data_dir, Kind::Controller, NodeId(0))
}
