//! Why a bench ended early.

use std::io;

/// Why a bench ended early. Each is a sentence for a person.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The log refused something.
    #[error("the log under test failed: {0}")]
    Log(#[from] wal::LogError),
    /// Our client refused something.
    #[error("the cluster under test: {0}")]
    Client(#[from] client::ClientError),
    /// Our cluster could not be started.
    #[error(transparent)]
    Local(#[from] local::LocalError),
    /// A peer's server could not be started or behaved as it should not.
    #[error("{peer}: {why}")]
    Peer {
        /// Which.
        peer: &'static str,
        /// One sentence.
        why: String,
    },
    /// Options that cannot be carried out.
    #[error("{0}")]
    Usage(String),
    /// Somebody asked for it.
    #[error("stopped before all rounds were made; what was started is stopped as well")]
    Stopped,
    /// An operation under load did not do what it should have done, so its figure would mean nothing.
    #[error("{0}")]
    Wrong(String),
}

impl BenchError {
    /// An error of the system, with what was being done.
    pub fn io(what: impl Into<String>, source: io::Error) -> BenchError {
        BenchError::Io { what: what.into(), source }
    }

    /// The exit status that fits it: 2 usage, 4 unreachable, 7 disk, 1 otherwise.
    pub fn exit_status(&self) -> u8 {
        match self {
            BenchError::Usage(_) => 2,
            BenchError::Client(error) => error.exit_status(),
            BenchError::Local(error) => error.exit_status(),
            BenchError::Io { .. } => 7,
            BenchError::Log(_) | BenchError::Peer { .. } | BenchError::Wrong(_) | BenchError::Stopped => 1,
        }
    }
}

/// Gives an error of the system the words that say what was being done.
pub(crate) trait During<T> {
    /// Names what was being done.
    fn during(self, what: &str) -> Result<T, BenchError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: &str) -> Result<T, BenchError> {
        self.map_err(|source| BenchError::io(what, source))
    }
}
