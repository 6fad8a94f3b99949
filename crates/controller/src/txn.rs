//! Transactions as a controller asks for them: those of [`types::txn`], and what may become of one that has
//! no outcome.

pub use types::txn::{Change, Entry, Reading, Txn, TxnOutcome};

/// Why a transaction has no outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TxnError {
    /// It may or may not have been applied, now or later: the controller repeats it until it knows (F17).
    Unknown,
    /// It was surely not applied and never will be: a sentence.
    Refused(String),
}
