//! What a replica says of its own files ([`crate::Op::Scrub`]).

use serde::{Deserialize, Serialize};

/// More damage of one replica is not listed.
pub const MAX_DAMAGE: usize = 64;

/// A file, or a part of the log, that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Damage {
    /// Which: `component 7`, `components`, `log`.
    pub file: String,
    /// One sentence's end.
    pub what: String,
}

/// How far the newest scrubbing of a replica is, or how it ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Scrubbed {
    /// It goes on.
    pub running: bool,
    /// Component files, and those that were read.
    pub files: (u32, u32),
    /// Their bytes, and those that were read.
    pub bytes: (u64, u64),
    /// Entries of the log that were read back.
    pub entries: u64,
    /// What was found; the first [`MAX_DAMAGE`].
    pub damage: Vec<Damage>,
}
