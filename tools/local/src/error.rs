//! What can go wrong, one sentence each, with the exit status that the conventions give it.

use client::ClientError;
use input::InputError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a local cluster or the demo could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A file or directory failed.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A data directory could not be initialised.
    #[error(transparent)]
    DataDir(#[from] node::failure::Failure),
    /// The file of rows cannot be read.
    #[error(transparent)]
    InputTask(#[from] InputError),
    /// The options make no sense together.
    #[error("{0}")]
    Usage(String),
    /// A row of the file is no row, or the rows do not fit what the demo needs.
    #[error("{0}; nothing was loaded")]
    Data(String),
    /// A process ended before it was ready.
    #[error("{name} did not start: {why} (its log: {})", .log.display())]
    NotStarted {
        /// Which process.
        name: String,
        /// The last line that it wrote.
        why: String,
        /// Its exit status, if it had one.
        status: Option<i32>,
        /// Where its output is.
        log: PathBuf,
    },
    /// A process ended because another one has its port.
    #[error("{name} did not start: {why} (its log: {})", .log.display())]
    PortTaken {
        /// Which process.
        name: String,
        /// The last line that it wrote.
        why: String,
        /// Where its output is.
        log: PathBuf,
    },
    /// A process was not ready in time.
    #[error("{name} was not ready within {seconds} s: {why} (its log: {})", .log.display())]
    NotReady {
        /// Which process.
        name: String,
        /// How long it was waited for.
        seconds: u64,
        /// What it said last.
        why: String,
        /// Where its output is.
        log: PathBuf,
    },
    /// No cluster runs in this directory.
    #[error("no cluster runs in {}; start one with `understudy dev`", .0.display())]
    NoCluster(PathBuf),
    /// A cluster runs there already.
    #[error("a cluster runs in {} already (process {pid}); stop it first, or give another --dir", .dir.display())]
    Running {
        /// Where.
        dir: PathBuf,
        /// The process that keeps it.
        pid: i32,
    },
    /// A directory that is not a local cluster's is never wiped or written over.
    #[error("{}: {why}; nothing in it was touched", .dir.display())]
    NotOurs {
        /// Which.
        dir: PathBuf,
        /// What is missing or in the way.
        why: String,
    },
    /// The cluster has no such node.
    #[error("there is no node {asked}; the nodes are {nodes}")]
    NoNode {
        /// What was asked for.
        asked: String,
        /// Those that exist.
        nodes: String,
    },
    /// The cluster has no controller of this number.
    #[error("there is no controller {0}")]
    NoController(u32),
    /// A process that is to be signalled is not the one that was started.
    #[error("{name} does not run: process {pid} is gone or another one")]
    NotRunning {
        /// Which process.
        name: String,
        /// The pid it had.
        pid: i32,
    },
    /// A node did not do the harm that it was asked for.
    #[error("{name} refused: {why}")]
    FaultInjection {
        /// Which process.
        name: String,
        /// What it said.
        why: String,
    },
    /// A program that is needed is not installed.
    #[error("`{0}` is not installed")]
    NotInstalled(String),
    /// Something did not happen in time.
    #[error("{0}")]
    TimedOut(String),
    /// A part of the demo itself failed.
    #[error("{0}")]
    Failed(String),
}

impl LocalError {
    /// From what the system said about a path.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> LocalError {
        let path = path.as_ref().to_path_buf();
        move |error| LocalError::Io { path, error }
    }

    /// The process's exit status for it.
    pub fn exit_status(&self) -> u8 {
        match self {
            LocalError::Io { .. } => 7,
            LocalError::Client(error) => error.exit_status(),
            LocalError::DataDir(failure) => failure.status,
            LocalError::InputTask(InputError::Io { .. }) => 7,
            LocalError::InputTask(InputError::Damaged { .. }) => 6,
            LocalError::Usage(_) => 2,
            LocalError::NoNode { .. } | LocalError::NoController(_) | LocalError::NotInstalled(_) => 3,
            LocalError::NoCluster(_) | LocalError::NotReady { .. } | LocalError::TimedOut(_) => 4,
            LocalError::Running { .. } | LocalError::NotOurs { .. } | LocalError::NotRunning { .. } => 5,
            // What the process itself found out is the better reason.
            LocalError::NotStarted { status: Some(status @ 1..=7), .. } => *status as u8,
            LocalError::InputTask(_) | LocalError::Data(_) | LocalError::NotStarted { .. } => 1,
            LocalError::PortTaken { .. } | LocalError::FaultInjection { .. } | LocalError::Failed(_) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_follow_the_conventions() {
        let not_started = |status| LocalError::NotStarted {
            name: "node 1".into(),
            why: "another cluster's directory".into(),
            status,
            log: "n.log".into(),
        };
        assert_eq!(not_started(Some(5)).exit_status(), 5);
        assert_eq!(not_started(Some(101)).exit_status(), 1);
        assert_eq!(not_started(None).exit_status(), 1);
        assert_eq!(LocalError::NoCluster("x".into()).exit_status(), 4);
        assert_eq!(LocalError::Usage("x".into()).exit_status(), 2);
        assert_eq!(
            not_started(None).to_string(),
            "node 1 did not start: another cluster's directory (its log: n.log)"
        );
    }
}
