//! Why a command failed: one sentence for a person, and the process's exit status.

use client::ClientError;
use input::InputError;
use std::fmt;

/// The exit statuses of the conventions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// It failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Something that was named does not exist.
    NotFound = 3,
    /// Unreachable, or not in time.
    Unreachable = 4,
    /// A safety check refused it.
    Refused = 5,
    /// Data are damaged.
    Corrupt = 6,
    /// The disk is full or failed.
    Io = 7,
}

/// Why a command failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The exit status.
    pub status: u8,
    /// One sentence that says what to do.
    pub sentence: String,
}

impl Failure {
    /// A failure with one of the conventions' statuses.
    pub fn new(status: Status, sentence: impl Into<String>) -> Failure {
        Failure { status: status as u8, sentence: sentence.into() }
    }

    /// [`Status::Failed`].
    pub fn failed(sentence: impl Into<String>) -> Failure {
        Failure::new(Status::Failed, sentence)
    }

    /// [`Status::Usage`].
    pub fn usage(sentence: impl Into<String>) -> Failure {
        Failure::new(Status::Usage, sentence)
    }

    /// [`Status::NotFound`].
    pub fn not_found(sentence: impl Into<String>) -> Failure {
        Failure::new(Status::NotFound, sentence)
    }

    /// [`Status::Refused`].
    pub fn refused(sentence: impl Into<String>) -> Failure {
        Failure::new(Status::Refused, sentence)
    }

    /// [`Status::Io`]: what the system said about a file.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Failure {
        Failure::new(Status::Io, format!("{what}: {error}"))
    }

    /// The same failure, with what else is to be said behind its sentence.
    pub fn and(mut self, more: impl fmt::Display) -> Failure {
        self.sentence = format!("{}; {more}", self.sentence);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure { status: error.exit_status(), sentence: error.to_string() }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        let missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let status = match &error {
            InputError::Io { error, .. } if missing(error) => Status::NotFound,
            InputError::Io { .. } => Status::Io,
            InputError::Damaged { .. } => Status::Corrupt,
            InputError::BadDelimiter(_) => Status::Usage,
            _ => Status::Failed,
        };
        Failure::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_follow_the_conventions() {
        let io = |kind: std::io::ErrorKind| InputError::Io { file: "a.csv".into(), error: kind.into() };
        assert_eq!(Failure::from(io(std::io::ErrorKind::NotFound)).status, 3);
        assert_eq!(Failure::from(io(std::io::ErrorKind::PermissionDenied)).status, 7);
        assert_eq!(Failure::from(ClientError::NoTable("t".into())).status, 3);
        assert_eq!(Failure::usage("x").and("do y").to_string(), "x; do y");
    }
}
