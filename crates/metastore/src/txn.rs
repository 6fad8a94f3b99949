//! The contract of a metastore: what it is asked with transactions ([`types::txn`]), snapshots and changes.

use types::txn::{Change, Entry, Txn, TxnOutcome};

/// All keys with a prefix, as of one revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordsSnapshot {
    /// As of this revision.
    pub revision: u64,
    /// The keys, in order.
    pub entries: Vec<Entry>,
}

/// What happened since a revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changes {
    /// Everything after the revision asked for, up to `revision`, in order.
    Since {
        /// Ask from here next time.
        revision: u64,
        /// The changes. Empty: nothing is known to have happened yet.
        changes: Vec<Change>,
    },
    /// The history does not reach back that far: read everything again with [`Metastore::range`].
    Reload,
}

/// Why a metastore did not answer. Each is a sentence for a person.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The transaction may or may not have been applied, now or later. Never to be taken for "not applied"
    /// (F17).
    #[error("the metastore did not answer, the outcome is unknown: {0}")]
    Unknown(String),
    /// A read did not get through. Nothing was changed.
    #[error("the metastore cannot be reached: {0}")]
    Unavailable(String),
    /// The request can never succeed as it is. Nothing was changed.
    #[error("the metastore refuses the request: {0}")]
    Invalid(String),
    /// What is stored cannot be trusted (F10).
    #[error("the metastore is damaged: {0}")]
    Damaged(String),
    /// A write to the disk failed before: nothing is accepted until the store is opened again (F08).
    #[error("the metastore stopped after a failed write: {0}")]
    Poisoned(String),
}

/// A store of small records that change only by compare-and-set.
///
/// Calls block. A caller that must not wait puts the metastore on a thread of its own.
pub trait Metastore: Send {
    /// Runs a transaction. Except for [`MetaError::Invalid`] and [`MetaError::Poisoned`] an error leaves its
    /// outcome unknown.
    fn txn(&mut self, txn: Txn) -> Result<TxnOutcome, MetaError>;

    /// All keys that begin with `prefix`, as of one revision. Linearizable: it sees every transaction
    /// answered before.
    fn range(&mut self, prefix: &str) -> Result<RecordsSnapshot, MetaError>;

    /// What happened after `revision`, as far as it has arrived here. Does not wait.
    fn changes_since(&mut self, revision: u64) -> Result<Changes, MetaError>;
}
