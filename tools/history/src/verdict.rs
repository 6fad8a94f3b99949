//! All checkers over a history.

use crate::found;
use crate::operation::{End, Key, Operation, Protocol};
use crate::register::{self, Wrong};
use crate::snapshot;
use serde::Serialize;
use std::collections::BTreeMap;

/// The most findings that are told; one is enough to know that something is wrong.
const FINDINGS: usize = 20;

/// What was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Operations on one key have no order.
    Linearizable,
    /// Positions in one partition, or the rows of one read, contradict what was told.
    Snapshot,
    /// What was reported lost is still there, or may not be lost.
    Loss,
    /// There is nothing to judge.
    Load,
    /// Transactions depend on each other as snapshot isolation does not allow.
    Isolation,
    /// What a transaction read, or where it was committed, contradicts timestamps.
    Timestamp,
    /// Rows of one snapshot have another total.
    Total,
}

/// Something wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What was broken.
    pub rule: Rule,
    /// The row, if it is about one.
    pub key: Option<Key>,
    /// The partition, if it is about one.
    pub place: Option<u32>,
    /// In words.
    pub sentence: String,
    /// The numbers of operations that show it.
    pub operations: Vec<u64>,
}

impl Finding {
    /// About what was reported lost.
    pub fn of_losses(wrong: Wrong) -> Finding {
        let Wrong { sentence, operations } = wrong;
        Finding { rule: Rule::Loss, key: None, place: None, sentence, operations }
    }

    /// True if an operation belongs to what the finding is about.
    pub fn concerns(&self, operation: &Operation) -> bool {
        match (self.key, self.place) {
            (Some(key), _) => operation.keys().any(|other| other == key),
            _ => self.operations.contains(&operation.number),
        }
    }
}

/// What is wrong with a history in which one protocol was never answered: it shows nothing of it.
pub fn unanswered(history: &[Operation]) -> Vec<Finding> {
    let protocols = [(Protocol::Native, "the native client"), (Protocol::Sql, "SQL")];
    let answered = |protocol: Protocol| {
        history.iter().any(|operation| operation.protocol == protocol && operation.end == End::Done)
    };
    let silent = protocols.into_iter().filter(|(protocol, _)| !answered(*protocol));
    let finding = |(_, name): (Protocol, &str)| Finding {
        rule: Rule::Load,
        key: None,
        place: None,
        sentence: format!("nothing that was asked over {name} was answered"),
        operations: Vec::new(),
    };
    silent.map(finding).collect()
}

/// Checks every key and every partition. What was reported lost must have been taken out.
pub fn check(history: &[Operation]) -> Vec<Finding> {
    let mut keys: BTreeMap<Key, Vec<&Operation>> = BTreeMap::new();
    let mut places: BTreeMap<u32, Vec<&Operation>> = BTreeMap::new();
    for operation in history {
        let mut own: Vec<Key> = operation.keys().collect();
        own.sort_unstable();
        own.dedup();
        for key in own {
            keys.entry(key).or_default().push(operation);
        }
        places.entry(operation.place).or_default().push(operation);
    }
    let by_key = keys.iter().filter_map(|(key, operations)| {
        let checked = register::check(*key, operations).and_then(|()| found::check(*key, operations));
        let Wrong { sentence, operations } = checked.err()?;
        Some(Finding { rule: Rule::Linearizable, key: Some(*key), place: None, sentence, operations })
    });
    let by_place = places.iter().filter_map(|(place, operations)| {
        let Wrong { sentence, operations } = snapshot::check(operations).err()?;
        Some(Finding { rule: Rule::Snapshot, key: None, place: Some(*place), sentence, operations })
    });
    by_key.chain(by_place).take(FINDINGS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::made::*;

    fn rules(operations: impl IntoIterator<Item = Operation>) -> Vec<Rule> {
        check(&history(operations)).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_protocol_that_was_never_answered_shows_nothing() {
        let native = put(1, 1, 2).at(1, 5);
        let silent = |operations: &[Operation]| unanswered(operations).len();
        assert_eq!(silent(&history([native.clone(), read(seen(1, 0), 3, 4).sql()])), 0);
        let unknown = Operation { end: End::Unknown, ..put(2, 3, 4).sql() };
        assert_eq!(silent(&history([native, unknown])), 1);
    }

    #[test]
    fn each_checker_finds_what_the_other_does_not() {
        assert_eq!(rules([put(1, 1, 2).at(1, 5), read(seen(1, 0), 3, 4).at(1, 5)]), []);
        // Without positions only the key's own order tells.
        assert_eq!(rules([put(1, 1, 2).sql(), read(None, 3, 4).sql()]), [Rule::Linearizable]);
        // Each key for itself has an order, and the rows are of two states.
        let both = put(1, 1, 8).at(1, 5).with(2, OTHER);
        let half = scan(&[(KEY, 1, 5)], 1, 8).at(1, 5);
        let half = Operation {
            reads: [half.reads, vec![crate::operation::Read { key: OTHER, seen: None }]].concat(),
            ..half
        };
        assert_eq!(rules([both, half]), [Rule::Snapshot]);
        // Nobody reads the row, and an insert is refused for it.
        assert_eq!(rules([put(1, 1, 2), delete(3, 4), refused(5, 6)]), [Rule::Linearizable]);
    }
}
