//! Why a process did not start or had to stop: one sentence and the exit status of the conventions.

use crate::datadir::data_dirs::is_passing;
use std::fmt;
use std::path::Path;

/// Exit statuses (conventions).
pub mod status {
    /// It ended well.
    pub const OK: u8 = 0;
    /// It failed.
    pub const FAILED: u8 = 1;
    /// It was called or configured wrongly.
    pub const USAGE: u8 = 2;
    /// What was named does not exist.
    pub const NOT_FOUND: u8 = 3;
    /// Nobody answered.
    pub const UNREACHABLE: u8 = 4;
    /// A safety check refused.
    pub const REFUSED: u8 = 5;
    /// Data are corrupt.
    pub const CORRUPT: u8 = 6;
    /// The disk is full or failed.
    pub const IO: u8 = 7;
}

/// One sentence for a person, and the status to exit with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Failure {
    /// The exit status.
    pub status: u8,
    /// What is wrong.
    pub sentence: String,
    /// The disk has no room, or the system nothing to give just now, and nothing else is wrong: what was
    /// tried can be tried again.
    pub passing: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Failure {
    /// A failure with this status.
    pub fn new(status: u8, sentence: impl Into<String>) -> Failure {
        Failure { status, sentence: sentence.into(), passing: false }
    }

    /// The configuration or the call is wrong.
    pub fn usage(sentence: impl Into<String>) -> Failure {
        Failure::new(status::USAGE, sentence)
    }

    /// A safety check refuses.
    pub fn refused(sentence: impl Into<String>) -> Failure {
        Failure::new(status::REFUSED, sentence)
    }

    /// Something on disk cannot be trusted.
    pub fn corrupt(sentence: impl Into<String>) -> Failure {
        Failure::new(status::CORRUPT, sentence)
    }

    /// The disk failed at this path.
    pub fn io(path: &Path, error: &std::io::Error) -> Failure {
        let failure = Failure::new(status::IO, format!("{}: {error}", path.display()));
        Failure { passing: wal::is_full(error) || is_passing(error), ..failure }
    }
}
