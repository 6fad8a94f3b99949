//! Keys, values and revisions in memory: what a transaction means, without any disk or network.

use crate::txn::RecordsSnapshot;
use std::collections::BTreeMap;
use types::txn::{Change, Entry, Reading, Txn, TxnOutcome};

/// All keys with the revisions that wrote them.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The revision of the last transaction that wrote.
    revision: u64,
    keys: BTreeMap<String, (u64, Vec<u8>)>,
}

impl Table {
    /// An empty table.
    pub fn new() -> Table {
        Table::default()
    }

    /// A table with these keys.
    pub fn restore(snapshot: RecordsSnapshot) -> Table {
        let keys =
            snapshot.entries.into_iter().map(|entry| (entry.key, (entry.revision, entry.value))).collect();
        Table { revision: snapshot.revision, keys }
    }

    /// The revision of the last transaction that wrote.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.keys.iter().map(|(key, (_, value))| key.len() + value.len() + 16).sum()
    }

    /// True if every comparison holds.
    pub fn holds(&self, txn: &Txn) -> bool {
        txn.compares.iter().all(|compare| self.revision_of(&compare.key) == compare.revision)
    }

    /// Makes the writes of a transaction, at the next revision. The comparisons have been looked at before.
    pub fn write(&mut self, puts: &[(String, Vec<u8>)], deletes: &[String]) -> Vec<Change> {
        self.revision += 1;
        let mut changes = Vec::with_capacity(puts.len() + deletes.len());
        for (key, value) in puts {
            self.keys.insert(key.clone(), (self.revision, value.clone()));
            changes.push(Change { key: key.clone(), revision: self.revision, value: Some(value.clone()) });
        }
        for key in deletes {
            if self.keys.remove(key).is_some() {
                changes.push(Change { key: key.clone(), revision: self.revision, value: None });
            }
        }
        changes
    }

    /// The outcome of a transaction, after its writes were made or left out.
    pub fn outcome(&self, txn: &Txn, succeeded: bool) -> TxnOutcome {
        let current = txn.keys().into_iter().map(|key| self.reading(key)).collect();
        TxnOutcome { succeeded, revision: self.revision, current }
    }

    /// All keys that begin with `prefix`.
    pub fn snapshot(&self, prefix: &str) -> RecordsSnapshot {
        let from = self.keys.range(prefix.to_string()..);
        let entries = from
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, (revision, value))| Entry {
                key: key.clone(),
                revision: *revision,
                value: value.clone(),
            })
            .collect();
        RecordsSnapshot { revision: self.revision, entries }
    }

    fn reading(&self, key: String) -> Reading {
        let value = self.keys.get(&key).cloned();
        (key, value)
    }

    fn revision_of(&self, key: &str) -> u64 {
        self.keys.get(key).map_or(0, |(revision, _)| *revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::txn::Compare;

    fn put(key: &str, revision: u64, value: &[u8]) -> Txn {
        Txn {
            compares: vec![Compare { key: key.into(), revision }],
            puts: vec![(key.into(), value.to_vec())],
            ..Txn::default()
        }
    }

    #[test]
    fn a_comparison_names_the_revision_that_wrote_the_key() {
        let mut table = Table::new();
        assert!(table.holds(&put("a", 0, b"1")));
        table.write(&[("a".into(), b"1".to_vec())], &[]);
        table.write(&[("b".into(), b"2".to_vec())], &[]);
        assert!(!table.holds(&put("a", 0, b"1")));
        assert!(!table.holds(&put("a", 2, b"1")));
        assert!(table.holds(&put("a", 1, b"1")));
        assert_eq!(
            table.outcome(&put("a", 0, b"x"), false).current,
            [("a".to_string(), Some((1, b"1".to_vec())))]
        );
    }

    #[test]
    fn a_snapshot_holds_the_prefix_and_nothing_else() {
        let mut table = Table::new();
        let puts: Vec<_> =
            ["a", "node/1", "node/2", "nodes", "o"].map(|key| (key.to_string(), vec![])).to_vec();
        table.write(&puts, &[]);
        let keys: Vec<String> = table.snapshot("node/").entries.into_iter().map(|entry| entry.key).collect();
        assert_eq!(keys, ["node/1", "node/2"]);
        assert_eq!(table.snapshot("").entries.len(), 5);
    }

    #[test]
    fn removing_what_is_absent_changes_nothing() {
        let mut table = Table::new();
        assert_eq!(table.write(&[], &["a".into()]), []);
        assert_eq!(table.revision(), 1);
    }
}
