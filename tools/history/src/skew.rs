//! Write skew: of two transactions each has read what the other one replaced, and wrote another row. Snapshot
//! isolation allows it, so it is counted and no anomaly. What a transaction read is of one state before its
//! own entry, and nothing came between a value and what replaced it: [`crate::snapshot`] and
//! [`crate::register`] see to that, and so to whatever else snapshot isolation forbids.

use crate::operation::{End, Key, Operation, Over};
use std::collections::{BTreeMap, BTreeSet};

/// How many pairs of transactions are skewed. A transaction has rows that it read beside those that it wrote.
/// Takes `n log n` steps.
pub fn count(history: &[Operation]) -> u64 {
    let is_transaction = |operation: &&Operation| {
        operation.end == End::Done && !operation.reads.is_empty() && !operation.writes.is_empty()
    };
    // Who replaced a value, by its row.
    let mut replaced: BTreeMap<(Key, u64), u64> = BTreeMap::new();
    for operation in history.iter().filter(is_transaction) {
        for write in &operation.writes {
            if let Over::Value(before) = write.over {
                replaced.insert((write.key, before), operation.number);
            }
        }
    }
    // Whose reads another one has overtaken.
    let mut overtaken: BTreeSet<(u64, u64)> = BTreeSet::new();
    for operation in history.iter().filter(is_transaction) {
        for (key, seen) in operation.reads.iter().filter_map(|read| Some((read.key, read.seen?))) {
            let by = replaced.get(&(key, seen.tag)).filter(|by| **by != operation.number);
            overtaken.extend(by.map(|by| (operation.number, *by)));
        }
    }
    overtaken.iter().filter(|(one, other)| one < other && overtaken.contains(&(*other, *one))).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::made::*;

    #[test]
    fn two_that_replace_what_the_other_one_has_read_are_skewed() {
        let rows = |one, other| scan(&[(KEY, one, 5), (OTHER, other, 5)], 3, 9);
        let first = write(3, Over::Value(1), 3, 9).after(&rows(1, 2));
        let second = write(4, Over::Value(2), 3, 9).of(OTHER).after(&rows(1, 2));
        let both = put(1, 1, 2).with(2, OTHER);
        assert_eq!(count(&history([both.clone(), first.clone(), second.clone()])), 1);
        // The second one has read what the first one wrote.
        let later = write(4, Over::Value(2), 3, 9).of(OTHER).after(&rows(3, 2));
        assert_eq!(count(&history([both.clone(), first.clone(), later])), 0);
        let unknown = Operation { end: End::Unknown, ..second };
        assert_eq!(count(&history([both, first, unknown])), 0, "nobody knows of one");
    }
}
