//! Transactions as a controller asks for them.
//!
//! The same shapes as the metastore's. They stand here as well because Layer 3 knows no store: whoever drives a controller
//! carries them across, field by field.

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
    /// What is then written.
    pub puts: Vec<(String, Vec<u8>)>,
    /// What is then removed.
    pub deletes: Vec<String>,
    /// Keys whose value is wanted beside those named above.
    pub also_read: Vec<String>,
}

/// What became of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnOutcome {
    /// True if the comparisons held and the writes are in.
    pub succeeded: bool,
    /// The metastore's revision as of this transaction.
    pub revision: u64,
    /// Every key that the transaction names, as it is after it, read inside it, whether it succeeded or not (PR-16).
    pub current: Vec<Reading>,
}

/// Why a transaction has no outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TxnError {
    /// It may or may not have been applied, now or later: the controller repeats it until it knows (F17).
    Unknown,
    /// It was surely not applied and never will be: a sentence.
    Refused(String),
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

impl Txn {
    /// Requires that `key` was last written at `revision`.
    pub fn compare(mut self, key: impl ToString, revision: u64) -> Txn {
        self.compares.push(Compare { key: key.to_string(), revision });
        self
    }

    /// Writes a record as JSON.
    pub fn put<T: serde::Serialize>(mut self, key: impl ToString, record: &T) -> Txn {
        self.puts.push((key.to_string(), wire::RecordText::new(record).0.into_bytes()));
        self
    }

    /// Removes a key.
    pub fn delete(mut self, key: impl ToString) -> Txn {
        self.deletes.push(key.to_string());
        self
    }

    /// The most keys that one side of a transaction may name, below etcd's default limit of 128 (PR-66).
    pub const MOST: usize = 100;

    /// True if what this transaction writes last is what was found: then it was applied, whatever its own answer said.
    ///
    /// So the last of the puts must be one that nobody else would write: it names a proposal or a new id.
    pub fn is_in(&self, current: &[Reading]) -> bool {
        let found =
            |key: &String| current.iter().find(|(name, _)| name == key).and_then(|(_, value)| value.as_ref());
        match self.puts.last() {
            Some((key, bytes)) => found(key).is_some_and(|(_, there)| there == bytes),
            None => !self.deletes.is_empty() && self.deletes.iter().all(|key| found(key).is_none()),
        }
    }
}
