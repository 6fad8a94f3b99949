//! What can go wrong when the log is written.

use crate::frame::LogOffset;
use crate::reader::ReadError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why the log did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// An ordinary refusal: there is no room. The log is as it was; reads, cuts and truncation go on (F20).
    #[error("the log is full: {used} of {limit} bytes are in use")]
    Full {
        /// Bytes that the log takes on the disk.
        used: u64,
        /// Bytes that it may take, or has found to be there.
        limit: u64,
    },
    /// An ordinary refusal too: the system has no more open files for now, and a new segment needs one, or it
    /// has no memory for a write (PR-459). The log is as it was.
    #[error("the log cannot be written for now: {0}")]
    ForNow(Arc<io::Error>),
    /// An earlier failure makes everything after it worthless: the process stops (R10, F08).
    #[error("the log has failed and takes nothing more: {cause}")]
    Poisoned {
        /// The failure.
        cause: String,
    },
    /// The disk refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the disk said.
        source: Arc<io::Error>,
    },
    /// An entry that had to be looked up could not be read. The log is as it was.
    #[error("an entry that is needed to go on: {0}")]
    Read(#[from] ReadError),
    /// No frame is here where a log must be, or its segments show that one was: nothing was begun and nothing
    /// removed.
    #[error("{}", missing(*.segments))]
    Missing {
        /// How many segment files there are.
        segments: usize,
    },
    /// Written by another version.
    #[error("the log was written in format {0}, this version reads another")]
    Format(u16),
    /// A frame whose checksums are right holds something that this version cannot read.
    #[error("the frame at {0} is whole, but this version cannot read it")]
    Unreadable(LogOffset),
}

impl LogError {
    /// True for a refusal that may pass: the same records can be tried again.
    pub fn is_passing(&self) -> bool {
        matches!(self, LogError::Full { .. } | LogError::ForNow(_))
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> LogError {
        LogError::Io { what: what.into(), source: Arc::new(source) }
    }
}

fn missing(segments: usize) -> String {
    match segments {
        0 => "it is empty".into(),
        _ => format!("none of its {segments} segments holds a frame"),
    }
}

/// The error number of a system without memory for a call.
pub(crate) const ENOMEM: i32 = 12;

/// True if the system has no memory for a call (ENOMEM), or gives no file, because so many are open (ENFILE,
/// EMFILE): the disk has nothing to do with it (PR-459).
pub(crate) fn is_for_now(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOMEM | 23 | 24))
}

/// Does what must be done for the log to go on, and again while the system has no memory for it: for a
/// second, which blocks the log's thread. Never a sync: one that failed must not be made again (F08).
pub(crate) fn patiently<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 0..50 {
        match work() {
            Err(error) if error.raw_os_error() == Some(ENOMEM) => std::thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
    work()
}

/// The error number of a disk that cannot read or write.
pub(crate) const EIO: i32 = 5;

/// True if what is on the disk cannot be read there (EIO, and EBADMSG and EUCLEAN of file systems with
/// checksums): it is lost, and the rest of the disk may be as good as ever.
pub fn is_unreadable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EIO | 74 | 117))
}

/// True if the disk said that it has no room.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
