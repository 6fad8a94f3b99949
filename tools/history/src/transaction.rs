//! One transaction over rows of any partitions: what it read and wrote, when, and how it ended. One line of
//! JSON each.
//!
//! Every row says which version it is and which one it has replaced, so the versions of a row are a chain
//! that can be followed without any timestamp.

use crate::operation::At;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A row in one of its states.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Which row.
    pub key: u32,
    /// The state: a number that is written once only. 0: there was no row.
    pub tag: u64,
    /// The state that it has replaced.
    pub prev: u64,
    /// What the row is worth.
    pub amount: i64,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Its commit was acknowledged, with this timestamp.
    Committed(At),
    /// It may have been committed, or may still be.
    Unknown,
    /// It surely did nothing, though it would have written.
    Aborted,
    /// It has only read.
    Read,
}

/// A transaction of a history. Moments are microseconds since the history's beginning.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// Its number in the history.
    pub number: u64,
    /// Who executed it.
    pub client: u32,
    /// Before it was begun.
    pub begun: u64,
    /// When its snapshot was known.
    pub started: u64,
    /// Before its commit was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// When the answer had come; none if none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// The timestamp of what it reads.
    pub snapshot: At,
    /// True if it has read every row that there is.
    pub whole: bool,
    /// Rows as the store showed them.
    pub reads: Vec<Version>,
    /// Rows as it wrote them, in this order: of several of one row the last counts.
    pub writes: Vec<Version>,
    /// How it ended.
    pub ending: Ending,
}

impl Transaction {
    /// What it leaves of each row that it wrote.
    pub fn last_writes(&self) -> impl Iterator<Item = Version> {
        let last: BTreeMap<u32, Version> = self.writes.iter().map(|write| (write.key, *write)).collect();
        last.into_values()
    }

    /// Its timestamp, if it was acknowledged.
    pub fn committed(&self) -> Option<At> {
        match self.ending {
            Ending::Committed(at) => Some(at),
            _ => None,
        }
    }

    /// As a line of a file.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("a transaction has only text keys")
    }

    /// From a line of a file.
    ///
    /// # Errors
    ///
    /// If the line is no transaction: a sentence.
    pub fn from_line(line: &str) -> Result<Transaction, String> {
        serde_json::from_str(line).map_err(|error| format!("no transaction: {error}"))
    }
}

#[cfg(test)]
pub(crate) mod made {
    //! Short words for histories in tests.

    use super::*;

    pub fn at(lsn: u64) -> At {
        At { term: 1, lsn }
    }

    /// A state of a row: every row is worth 10 unless it says otherwise.
    pub fn row(key: u32, tag: u64, prev: u64) -> Version {
        Version { key, tag, prev, amount: if tag == 0 { 0 } else { 10 } }
    }

    fn of(snapshot: u64, reads: &[Version], writes: &[Version], ending: Ending) -> Transaction {
        let moment = snapshot * 10;
        Transaction {
            number: 0,
            client: 0,
            begun: moment + 1,
            started: moment + 2,
            asked: (ending != Ending::Read).then_some(moment + 3),
            ended: None,
            snapshot: at(snapshot),
            whole: false,
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            ending,
        }
    }

    /// Committed: acknowledged just behind its timestamp.
    pub fn commit(snapshot: u64, lsn: u64, reads: &[Version], writes: &[Version]) -> Transaction {
        let ended = Some(lsn * 10);
        Transaction { ended, ..of(snapshot, reads, writes, Ending::Committed(at(lsn))) }
    }

    pub fn unknown(snapshot: u64, reads: &[Version], writes: &[Version]) -> Transaction {
        of(snapshot, reads, writes, Ending::Unknown)
    }

    pub fn aborted(snapshot: u64, reads: &[Version], writes: &[Version]) -> Transaction {
        of(snapshot, reads, writes, Ending::Aborted)
    }

    pub fn reader(snapshot: u64, reads: &[Version]) -> Transaction {
        let ended = Some(snapshot * 10 + 3);
        Transaction { ended, ..of(snapshot, reads, &[], Ending::Read) }
    }

    /// Who has read all that there is.
    pub fn whole(snapshot: u64, reads: &[Version]) -> Transaction {
        Transaction { whole: true, ..reader(snapshot, reads) }
    }

    /// Rows 1 and 2, written by the commit 1.
    pub fn filled() -> Transaction {
        commit(0, 1, &[], &[row(1, 1, 0), row(2, 2, 0)])
    }

    pub fn numbered(transactions: impl IntoIterator<Item = Transaction>) -> Vec<Transaction> {
        let mut all: Vec<Transaction> = transactions.into_iter().collect();
        for (number, transaction) in (1..).zip(&mut all) {
            transaction.number = number;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::made::*;
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_the_last_write_counts() {
        let twice = commit(1, 2, &[row(1, 1, 0)], &[row(1, 3, 1), row(2, 4, 2), row(1, 5, 1)]);
        assert_eq!(Transaction::from_line(&twice.to_line()), Ok(twice.clone()));
        assert!(Transaction::from_line("{}").is_err());
        assert_eq!(twice.last_writes().collect::<Vec<_>>(), [row(1, 5, 1), row(2, 4, 2)]);
        assert_eq!((twice.committed(), unknown(1, &[], &[]).committed()), (Some(at(2)), None));
    }
}
