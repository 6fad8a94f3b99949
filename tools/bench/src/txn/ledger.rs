//! What was acknowledged, and whether it is there: `--check`.

use crate::error::BenchError;
use std::collections::BTreeMap;
use types::Position;

/// Bytes at the beginning of a row's value that say who wrote it.
pub(super) const TAG_BYTES: usize = 8;

/// The newest acknowledged write of every row, and writes of which nobody knows.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    committed: BTreeMap<u64, (Position, u64)>,
    unknown: BTreeMap<u64, Vec<u64>>,
    /// Transactions that were acknowledged, and those of which nobody knows.
    pub transactions: u64,
    pub unknown_transactions: u64,
}

impl Ledger {
    /// A transaction was committed at this timestamp, with these rows and tags.
    pub fn committed(&mut self, at: Position, writes: &BTreeMap<u64, u64>) {
        self.transactions += 1;
        for (row, tag) in writes {
            let newest = self.committed.entry(*row).or_default();
            if at >= newest.0 {
                *newest = (at, *tag);
            }
        }
    }

    /// Nobody knows whether it was committed.
    pub fn unknown(&mut self, writes: &BTreeMap<u64, u64>) {
        self.unknown_transactions += 1;
        for (row, tag) in writes {
            self.unknown.entry(*row).or_default().push(*tag);
        }
    }

    /// Checks the rows of one snapshot, each with the tag that it has. Rows that nobody wrote have the tag
    /// zero. The error names the first row that is not as it was acknowledged.
    pub fn check(&self, rows: u64, found: impl Iterator<Item = (u64, u64)>) -> Result<(), BenchError> {
        let mut seen = 0;
        for (row, tag) in found {
            seen += 1;
            let expected = self.committed.get(&row).map_or(0, |(_, tag)| *tag);
            let maybe = self.unknown.get(&row).is_some_and(|tags| tags.contains(&tag));
            if tag != expected && !maybe {
                return Err(BenchError::Wrong(format!(
                    "row {row} has the value of write {tag}, and {expected} was the last one acknowledged"
                )));
            }
        }
        match seen == rows {
            true => Ok(()),
            false => Err(BenchError::Wrong(format!("{seen} of {rows} rows are there"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    #[test]
    fn the_last_acknowledged_write_of_a_row_must_be_there() {
        let mut ledger = Ledger::default();
        ledger.committed(at(9), &[(1, 70), (2, 71)].into());
        // Acknowledged later, committed earlier.
        ledger.committed(at(5), &[(1, 60), (3, 61)].into());
        ledger.unknown(&[(2, 99)].into());
        let rows = |of: [u64; 4]| ledger.check(4, (0..4).zip(of));
        assert!(rows([0, 70, 71, 61]).is_ok());
        assert!(rows([0, 70, 99, 61]).is_ok(), "it may have been committed");
        assert!(rows([0, 60, 71, 61]).is_err_and(|why| why.to_string().contains("70 was the last")));
        assert!(rows([5, 70, 71, 61]).is_err(), "nobody wrote it");
        assert!(ledger.check(4, [(0, 0), (1, 70)].into_iter()).is_err(), "rows are gone");
    }
}
