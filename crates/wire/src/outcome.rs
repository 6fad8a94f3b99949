//! Outcomes of writes: what is kept of each in its session.

use serde::{Deserialize, Serialize};

/// The outcome of a write, as it is kept with its effect. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Outcome {
    /// Applied.
    Done = 0,
    /// An insert found its key; nothing was changed.
    Exists = 1,
    /// A row is not as the snapshot had it, or the snapshot is no part of the history; nothing was changed.
    Changed = 2,
    /// A row has no place in one of the table's indexes: its entry would be longer than a key may be, or it
    /// is no row of the table; nothing was changed.
    Unindexable = 3,
    /// With what changes in the table's indexes the write is larger than one entry of the log; nothing was
    /// changed.
    TooMuch = 4,
    /// Of a job: a record was refused, one before it is missing, or the job has ended. The job's row says
    /// what was done.
    Stopped = 5,
    /// A table of a database has another schema than the request names, or there is no such table; nothing
    /// was changed. Whoever asked looks at the catalog again.
    Stale = 6,
    /// A table of a database has the name that a new one was to have; nothing was changed.
    NameTaken = 7,
    /// A constraint of a database's table forbids it, as everything is that has been executed; nothing was
    /// changed. Its number is told in the place of how many rows were changed.
    Violates = 8,
    /// A procedure was called and gave its result, which is a row of its own. So many bytes are told in the
    /// place of how many rows were changed.
    Returned = 9,
    /// A procedure was called and failed: nothing was changed. Why is a row of its own, as for
    /// [`Outcome::Returned`].
    CallFailed = 10,
}

impl Outcome {
    /// The outcome with this number.
    pub fn from_number(number: u8) -> Option<Outcome> {
        use Outcome::*;
        [Done, Exists, Changed, Unindexable, TooMuch, Stopped, Stale, NameTaken, Violates]
            .into_iter()
            .chain([Returned, CallFailed])
            .find(|outcome| *outcome as u8 == number)
    }

    /// True if what was asked was done.
    pub fn is_done(self) -> bool {
        matches!(self, Outcome::Done | Outcome::Returned)
    }

    /// True if the result of a call is kept beside it.
    pub fn has_result(self) -> bool {
        matches!(self, Outcome::Returned | Outcome::CallFailed)
    }
}
