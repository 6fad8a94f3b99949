//! Why an entry was not taken in.

use crate::damage::Fault;
use types::EngineError;

/// Why an entry was not taken in. Nothing has changed.
pub(crate) enum Unfit {
    /// Because of its content: no engine could store it. The fault is the sender's.
    Entry(String),
    /// The files that it names: they are not here.
    Unstaged(String),
    /// The engine could not look at its state just now: the same entry may be taken in later.
    Later(String),
    /// This replica: it cannot go on.
    Here(String),
}

impl Unfit {
    /// As a sentence, where all mean the same: the entry is this replica's own.
    pub fn reason(self) -> String {
        match self {
            Unfit::Entry(reason) | Unfit::Unstaged(reason) => reason,
            Unfit::Later(reason) | Unfit::Here(reason) => reason,
        }
    }
}

impl From<EngineError> for Unfit {
    fn from(error: EngineError) -> Unfit {
        match error {
            EngineError::Later(_) => Unfit::Later(error.to_string()),
            _ => Unfit::Here(error.to_string()),
        }
    }
}

impl From<Unfit> for Fault {
    fn from(unfit: Unfit) -> Fault {
        Fault::Engine(unfit.reason())
    }
}
