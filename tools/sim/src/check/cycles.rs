//! I5: snapshot isolation of global transactions from the versions that they have seen, as Elle looks for it:
//! a search for cycles of dependencies, by the checker of histories of real clusters ([`history::versions`]).
//!
//! The manager's log says in which order the versions of a row followed each other, and which transactions
//! there were, whatever their clients were told. What was read is what clients say. A timestamp says only
//! which removal it was of a row that was not there.

use super::Broken;
use super::commits::{TxnEnd, TxnOperation};
use super::lineage::Commit;
use history::{At, Ending, Transaction, Version, versions};
use std::collections::{BTreeMap, BTreeSet};
use types::Position;

/// Timestamps and moments are not looked at.
const NO_TIME: At = At { term: 0, lsn: 0 };

/// A version of a row, where it was committed, and whether the row is there behind that.
type Left = (Position, bool, Version);

/// The versions of every row, oldest first.
#[derive(Debug, Default)]
struct Chains<'a> {
    /// By name, with a number for each.
    rows: BTreeMap<&'a str, (u32, Vec<Left>)>,
    /// By values, each of which is written once: the commit's place among all, and the version.
    written: BTreeMap<u64, (usize, Version)>,
}

impl<'a> Chains<'a> {
    /// Of the commits of a log, in order; and what each of them writes.
    fn of(commits: &'a BTreeMap<Position, Commit>) -> (Chains<'a>, Vec<Vec<Version>>) {
        let (mut chains, mut written) = (Chains::default(), Vec::with_capacity(commits.len()));
        let mut tag = 0;
        for (place, (at, commit)) in commits.iter().enumerate() {
            let mut own = Vec::with_capacity(commit.len());
            for (name, value) in commit {
                let next = chains.rows.len() as u32;
                let (key, chain) = chains.rows.entry(name).or_insert_with(|| (next, Vec::new()));
                tag += 1;
                let prev = chain.last().map_or(0, |(.., version)| version.tag);
                let version = Version { key: *key, tag, prev, amount: 0 };
                chain.push((*at, value.is_some(), version));
                own.push(version);
                if let Some(value) = value {
                    chains.written.insert(*value, (place, version));
                }
            }
            written.push(own);
        }
        (chains, written)
    }

    /// The version that was read. None: there is no such one, and others say so (PR-252).
    fn read(&self, name: &str, value: Option<u64>, at: Position) -> Option<Version> {
        let (key, chain) = self.rows.get(name)?;
        if let Some(value) = value {
            return self.written.get(&value).map(|(_, version)| *version).filter(|found| found.key == *key);
        }
        match chain[..chain.partition_point(|(since, ..)| *since <= at)].last() {
            None => Some(Version { key: *key, tag: 0, prev: 0, amount: 0 }),
            Some((_, false, version)) => Some(*version),
            Some(_) => None,
        }
    }

    /// The commit that an operation has made, by its place; none: there is none, or nobody can tell.
    fn made_by(&self, operation: &TxnOperation, places: &BTreeMap<Position, usize>) -> Option<usize> {
        if let TxnEnd::Committed(at) = operation.told {
            return places.get(&at).copied();
        }
        operation.writes.iter().find_map(|(_, value)| Some(self.written.get(&(*value)?)?.0))
    }
}

/// What is looked at, with words for each.
#[derive(Debug, Default)]
struct Looked {
    transactions: Vec<Transaction>,
    words: Vec<String>,
}

impl Looked {
    fn add(&mut self, words: String, ending: Ending, reads: Vec<Version>, writes: Vec<Version>) {
        self.transactions.push(Transaction {
            number: self.transactions.len() as u64,
            client: 0,
            begun: 0,
            started: 0,
            asked: None,
            ended: None,
            snapshot: NO_TIME,
            whole: false,
            reads,
            writes,
            ending,
        });
        self.words.push(words);
    }
}

/// Looks at all commits of the log that is left, and at what clients have read.
pub fn check(commits: &BTreeMap<Position, Commit>, operations: &[TxnOperation]) -> Result<(), Broken> {
    let (chains, written) = Chains::of(commits);
    let places: BTreeMap<Position, usize> = commits.keys().copied().zip(0..).collect();
    let mut looked = Looked::default();
    for (at, writes) in commits.keys().zip(written) {
        looked.add(format!("the commit {at}"), Ending::Committed(NO_TIME), Vec::new(), writes);
    }
    for operation in operations {
        let read = |(name, value, at): &(String, Option<u64>, Position)| {
            Some((*at, chains.read(name, *value, *at)?))
        };
        let mut reads: Vec<(Position, Version)> = operation.reads.iter().filter_map(read).collect();
        if let Some(place) = chains.made_by(operation, &places) {
            let own = &mut looked.transactions[place];
            let keys: BTreeSet<u32> = own.writes.iter().map(|write| write.key).collect();
            // What it writes nobody was to write since it saw it, whichever of its statements did.
            let all = reads.iter().map(|(_, read)| *read);
            own.reads.extend(all.filter(|read| !operation.statements || keys.contains(&read.key)));
            if !operation.statements {
                reads.clear();
            }
        }
        for (at, reads) in snapshots(operation, &reads) {
            let words = format!("what client {} has read at {at}", operation.client);
            looked.add(words, Ending::Read, reads, Vec::new());
        }
    }
    versions::check(&looked.transactions).map_err(|wrong| {
        let told = |number: &u64| format!("T{number}: {}", looked.words[*number as usize]);
        let told: Vec<String> = wrong.operations.iter().map(told).collect();
        ("I5", format!("{} ({})", wrong.sentence, told.join("; ")))
    })
}

/// What is of one snapshot: all that a transaction has read, or what each of its statements has.
fn snapshots(operation: &TxnOperation, reads: &[(Position, Version)]) -> Vec<(Position, Vec<Version>)> {
    let mut all: BTreeMap<Position, Vec<Version>> = BTreeMap::new();
    for (at, read) in reads {
        let at = if operation.statements { *at } else { operation.snapshot.unwrap_or_default() };
        all.entry(at).or_default().push(*read);
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn rows(rows: &[(&str, Option<u64>)]) -> Commit {
        rows.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    /// Both rows were put at 1 and again at 3; one of them went at 5.
    fn commits() -> BTreeMap<Position, Commit> {
        let both = |value| rows(&[("a", Some(value)), ("b", Some(value + 1))]);
        [(at(1), both(1)), (at(3), both(3)), (at(5), rows(&[("a", None)]))].into()
    }

    /// A transaction that has read this, each row at this LSN.
    fn read(reads: &[(&str, Option<u64>, u64)]) -> TxnOperation {
        let reads = reads.iter().map(|(name, value, lsn)| (name.to_string(), *value, at(*lsn))).collect();
        TxnOperation { snapshot: Some(at(3)), reads, told: TxnEnd::ReadOnly, ..TxnOperation::new(1, 10) }
    }

    /// What is said, up to the comma.
    fn said(commits: &BTreeMap<Position, Commit>, operations: &[TxnOperation]) -> String {
        let found = check(commits, operations).err();
        found.map_or(String::new(), |(_, why)| why.split(',').next().unwrap_or_default().to_string())
    }

    #[test]
    fn a_transaction_sees_one_state() {
        let said = |operation: TxnOperation| said(&commits(), &[operation]);
        assert_eq!(said(read(&[("a", Some(3), 3), ("b", Some(4), 3)])), "");
        assert_eq!(said(read(&[("a", Some(1), 1), ("b", Some(4), 3)])), "G-single", "half of a commit");
        let statements = TxnOperation { statements: true, ..read(&[("a", Some(1), 1), ("b", Some(4), 3)]) };
        assert_eq!(said(statements), "", "each statement has a snapshot of its own");
        assert_eq!(said(read(&[("a", None, 6), ("b", Some(4), 6)])), "", "it went");
        assert_eq!(said(read(&[("a", None, 6), ("b", Some(2), 1)])), "G-single", "it went later");
        assert_eq!(said(read(&[("a", None, 0), ("b", Some(2), 1)])), "G-single", "it was not there yet");
    }

    #[test]
    fn who_was_told_nothing_has_lost_no_update_either() {
        let unknown = TxnOperation {
            writes: rows(&[("b", Some(9))]),
            told: TxnEnd::Unknown,
            ..read(&[("b", Some(2), 1)])
        };
        let mut commits = commits();
        commits.insert(at(7), rows(&[("b", Some(9))]));
        let statements = TxnOperation { statements: true, ..unknown.clone() };
        let newest = TxnOperation { reads: vec![("b".into(), Some(4), at(3))], ..unknown.clone() };
        assert_eq!(said(&commits, &[unknown]), "G-single");
        assert_eq!(said(&commits, &[statements]), "G-single", "whichever statement has read it");
        assert_eq!(said(&commits, &[newest]), "");
    }

    #[test]
    fn write_skew_is_no_anomaly() {
        let skew = |name: &str, value, lsn| TxnOperation {
            writes: rows(&[(name, Some(value))]),
            told: TxnEnd::Committed(at(lsn)),
            ..read(&[("a", Some(3), 3), ("b", Some(4), 3)])
        };
        let mut commits = commits();
        commits.insert(at(5), rows(&[("a", Some(7))]));
        commits.insert(at(6), rows(&[("b", Some(8))]));
        assert_eq!(said(&commits, &[skew("a", 7, 5), skew("b", 8, 6)]), "");
    }
}
