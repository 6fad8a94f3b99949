//! The contract of a metastore: transactions, snapshots, changes.

use std::collections::BTreeSet;

/// A key as it was found in a transaction: the revision that wrote it and its bytes; none if the key is absent.
pub type Reading = (String, Option<(u64, Vec<u8>)>);

/// A condition on one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// The revision that must have written it last; 0: the key must be absent.
    pub revision: u64,
}

/// Writes that happen together, and only if every comparison holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Txn {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is then written. A key stands here or in `deletes`, once.
    pub puts: Vec<(String, Vec<u8>)>,
    /// What is then removed.
    pub deletes: Vec<String>,
    /// Keys whose value is wanted beside those named above.
    pub also_read: Vec<String>,
}

impl Txn {
    /// Every key that is named anywhere, once, in order. The outcome has a reading of each.
    pub fn keys(&self) -> Vec<String> {
        let compared = self.compares.iter().map(|compare| &compare.key);
        let put = self.puts.iter().map(|(key, _)| key);
        let all = compared.chain(put).chain(&self.deletes).chain(&self.also_read);
        all.collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    /// True if it can change something.
    pub fn writes(&self) -> bool {
        !self.puts.is_empty() || !self.deletes.is_empty()
    }

    /// Checks that no key is written twice. The error is a sentence.
    pub fn validate(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for key in self.puts.iter().map(|(key, _)| key).chain(&self.deletes) {
            if key.is_empty() {
                return Err("a transaction writes an empty key".into());
            }
            if !seen.insert(key) {
                return Err(format!("a transaction writes '{key}' twice"));
            }
        }
        Ok(())
    }
}

/// What became of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnOutcome {
    /// True if the comparisons held and the writes are in.
    pub succeeded: bool,
    /// The metastore's revision as of this transaction. A successful write is at exactly this one.
    pub revision: u64,
    /// Every key of [`Txn::keys`] as it is after this transaction, read inside it, whether it succeeded or not (PR-16).
    pub current: Vec<Reading>,
}

/// One key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The revision that wrote it.
    pub revision: u64,
    /// Its bytes.
    pub value: Vec<u8>,
}

/// All keys with a prefix, as of one revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordsSnapshot {
    /// As of this revision.
    pub revision: u64,
    /// The keys, in order.
    pub entries: Vec<Entry>,
}

/// A key that was written or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The key.
    pub key: String,
    /// The revision that did it.
    pub revision: u64,
    /// The new bytes; none if it was removed.
    pub value: Option<Vec<u8>>,
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
    /// The transaction may or may not have been applied, now or later. Never to be taken for "not applied" (F17).
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
    /// Runs a transaction. Except for [`MetaError::Invalid`] and [`MetaError::Poisoned`] an error leaves its outcome unknown.
    fn txn(&mut self, txn: Txn) -> Result<TxnOutcome, MetaError>;

    /// All keys that begin with `prefix`, as of one revision. Linearizable: it sees every transaction answered before.
    fn range(&mut self, prefix: &str) -> Result<RecordsSnapshot, MetaError>;

    /// What happened after `revision`, as far as it has arrived here. Does not wait.
    fn changes_since(&mut self, revision: u64) -> Result<Changes, MetaError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_once_and_in_order() {
        let txn = Txn {
            compares: vec![Compare { key: "b".into(), revision: 1 }],
            puts: vec![("b".into(), vec![1]), ("a".into(), vec![])],
            deletes: vec!["d".into()],
            also_read: vec!["a".into(), "c".into()],
        };
        assert_eq!(txn.keys(), ["a", "b", "c", "d"]);
        assert_eq!(txn.validate(), Ok(()));
    }

    #[test]
    fn a_key_written_twice_is_refused() {
        let mut txn = Txn { puts: vec![("a".into(), vec![]), ("a".into(), vec![])], ..Txn::default() };
        assert!(txn.validate().unwrap_err().contains("twice"));
        txn = Txn { puts: vec![("a".into(), vec![])], deletes: vec!["a".into()], ..Txn::default() };
        assert!(txn.validate().is_err());
        txn = Txn { deletes: vec![String::new()], ..Txn::default() };
        assert!(txn.validate().is_err());
    }
}
