//! How a call of a procedure fails, as everybody tells it who has to do with one.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kept a call from its end. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum FailureKind {
    /// It took more steps than a call may.
    Steps = 0,
    /// It asked for more memory than a call may have.
    Memory = 1,
    /// It called itself too deep.
    Depth = 2,
    /// It read more than a call may.
    Reads = 3,
    /// It wrote more than a call may.
    Writes = 4,
    /// What it gives is more than a call may give.
    Results = 5,
    /// The arguments are not its own.
    Arguments = 6,
    /// A table or a column that it needs is not there any more, or is another one.
    Tables = 7,
    /// It needs a row that lies in another partition.
    Elsewhere = 8,
    /// A row that it writes, or a value that it gives, is none of the table's or of the result's.
    Row = 9,
    /// It writes and says that it does not.
    ReadOnly = 10,
    /// Its program did what no program may: divided by zero, left its memory, came to its `unreachable`.
    Trap = 11,
    /// It said so itself.
    Raised = 12,
    /// Rows that it writes are being copied: the same call can be made later.
    Later = 13,
    /// It ran for longer than a call may.
    Time = 14,
}

/// A call that failed. Nothing of it was done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What kept it.
    pub kind: FailureKind,
    /// The same as a sentence.
    pub why: String,
}

impl Failure {
    /// The longest sentence, in bytes: what a program says itself is shortened to that.
    pub const MAX_WHY_BYTES: usize = 1000;

    /// A failure, with its sentence.
    pub fn new(kind: FailureKind, why: impl Into<String>) -> Failure {
        let mut why = why.into();
        let end = (0..=Failure::MAX_WHY_BYTES.min(why.len())).rev().find(|at| why.is_char_boundary(*at));
        why.truncate(end.unwrap_or(0));
        Failure { kind, why }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failure {}
