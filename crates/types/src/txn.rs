//! Transactions of the metastore: what a controller asks for and what it is told.
//!
//! They stand in Layer 1 because a controller, which knows no store, makes them, and every store carries them
//! out.

use std::collections::BTreeSet;

/// A key as it was found in a transaction: the revision that wrote it and its bytes; none if the key is
/// absent.
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
    /// The most keys that one side of a transaction may name, below etcd's default limit of 128 (PR-66).
    pub const MAX_KEYS: usize = 100;

    /// Requires that `key` was last written at `revision`.
    pub fn compare(mut self, key: impl ToString, revision: u64) -> Txn {
        self.compares.push(Compare { key: key.to_string(), revision });
        self
    }

    /// Writes a record as JSON.
    pub fn put<T: serde::Serialize>(mut self, key: impl ToString, record: &T) -> Txn {
        self.puts.push((key.to_string(), serde_json::to_vec(record).expect("records have only text keys")));
        self
    }

    /// Removes a key.
    pub fn delete(mut self, key: impl ToString) -> Txn {
        self.deletes.push(key.to_string());
        self
    }

    /// True if what this transaction writes last is what was found: then it was applied, whatever its own
    /// answer said.
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
    /// Every key of [`Txn::keys`] as it is after this transaction, read inside it, whether it succeeded or
    /// not (PR-16).
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
