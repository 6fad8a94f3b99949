//! Snapshot isolation from observed versions alone: a search for cycles of dependencies, as Adya names them
//! and Elle finds them. No timestamp and no clock is looked at.
//!
//! A transaction depends on another one that wrote what it reads (write-read) or replaces (write-write), and
//! who replaces what it has read comes behind it (read-write, the anti-dependency). Under snapshot isolation
//! each cycle has two anti-dependencies that follow each other: so a cycle without such a pair is an anomaly
//! (G0, G1c, G-single, and G-nonadjacent), and write skew is none. Takes `n log n` steps.

use crate::register::Wrong;
use crate::transaction::{Ending, Transaction, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Edges from each transaction to those behind it.
type Edges = Vec<BTreeSet<usize>>;

/// Dependencies of transactions, by their places in the history.
struct Dependencies {
    /// Who replaced what each wrote.
    replaces: Edges,
    /// Who read what each wrote.
    reads: Edges,
    /// Who replaced what each had read.
    anti: Edges,
}

/// Checks transactions in any order.
///
/// # Errors
///
/// The first thing found wrong: it begins with the name of the anomaly.
pub fn check(transactions: &[Transaction]) -> Result<(), Wrong> {
    let writers = writers(transactions)?;
    for transaction in transactions {
        check_reads(transaction, transactions, &writers)?;
    }
    let dependencies = Dependencies::new(transactions, &writers)?;
    match dependencies.anomaly() {
        None => Ok(()),
        Some((name, cycle)) => {
            let numbers: Vec<u64> = cycle.iter().map(|at| transactions[*at].number).collect();
            let shown: Vec<String> = numbers.iter().map(|number| format!("T{number}")).collect();
            let sentence = format!("{name}: each of {} depends on the one before it", shown.join(", "));
            Err(Wrong { sentence: format!("{sentence}, and the first on the last"), operations: numbers })
        }
    }
}

/// Who wrote each version.
fn writers(transactions: &[Transaction]) -> Result<BTreeMap<u64, usize>, Wrong> {
    let mut writers: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, transaction) in transactions.iter().enumerate() {
        for write in &transaction.writes {
            if let Some(other) = writers.insert(write.tag, at) {
                let sentence = format!("version {} was written twice", write.tag);
                return Err(Wrong {
                    sentence,
                    operations: vec![transactions[other].number, transaction.number],
                });
            }
        }
    }
    Ok(writers)
}

/// Each version that was read must be one that a transaction left behind that may have been committed.
fn check_reads(
    reader: &Transaction,
    transactions: &[Transaction],
    writers: &BTreeMap<u64, usize>,
) -> Result<(), Wrong> {
    for read in reader.reads.iter().filter(|read| read.tag != 0) {
        let (number, key, tag) = (reader.number, read.key, read.tag);
        let Some(writer) = writers.get(&tag).map(|at| &transactions[*at]) else {
            let sentence = format!("T{number} read version {tag} of row {key}, which nobody wrote");
            return Err(Wrong { sentence, operations: vec![number] });
        };
        let left = writer.last_writes().find(|write| write.key == key);
        let why = match (writer.ending, left) {
            (Ending::Aborted | Ending::Read, _) => "G1a: a version of an aborted transaction",
            (_, Some(left)) if left.tag != tag => "G1b: a version that its writer itself replaced",
            (_, Some(left)) if left == *read => continue,
            _ => "a row that differs from what was written",
        };
        let sentence = format!("{why}: T{number} read version {tag} of row {key} of T{}", writer.number);
        return Err(Wrong { sentence, operations: vec![writer.number, number] });
    }
    Ok(())
}

impl Dependencies {
    fn new(transactions: &[Transaction], writers: &BTreeMap<u64, usize>) -> Result<Dependencies, Wrong> {
        let none = || vec![BTreeSet::new(); transactions.len()];
        let mut all = Dependencies { replaces: none(), reads: none(), anti: none() };
        let seen: BTreeSet<u64> =
            transactions.iter().flat_map(|transaction| &transaction.reads).map(|read| read.tag).collect();
        // One of which nobody knows how it ended was committed if somebody has seen it.
        let happened = |transaction: &Transaction| match transaction.ending {
            Ending::Committed(_) => true,
            Ending::Unknown => transaction.writes.iter().any(|write| seen.contains(&write.tag)),
            Ending::Aborted | Ending::Read => false,
        };
        let mut next: BTreeMap<(u32, u64), usize> = BTreeMap::new();
        for (at, transaction) in transactions.iter().enumerate().filter(|(_, one)| happened(one)) {
            for Version { key, tag: _, prev, .. } in transaction.last_writes() {
                if let Some(other) = next.insert((key, prev), at) {
                    let numbers = vec![transactions[other].number, transaction.number];
                    let sentence = format!(
                        "G-single, a lost update: T{} and T{} both replaced version {prev} of row {key}",
                        numbers[0], numbers[1]
                    );
                    return Err(Wrong { sentence, operations: numbers });
                }
                if let Some(writer) = writers.get(&prev) {
                    all.replaces[*writer].insert(at);
                }
            }
        }
        for (at, transaction) in transactions.iter().enumerate() {
            for read in &transaction.reads {
                if let Some(writer) = writers.get(&read.tag) {
                    all.reads[*writer].insert(at);
                }
                let replaced = next.get(&(read.key, read.tag)).filter(|next| **next != at);
                all.anti[at].extend(replaced);
            }
        }
        Ok(all)
    }

    /// A cycle that snapshot isolation does not have, with its name.
    fn anomaly(&self) -> Option<(&'static str, Vec<usize>)> {
        if let Some(found) = cycle(&self.replaces) {
            return Some(("G0, a dirty write", found));
        }
        let depend = |at: usize| self.replaces[at].union(&self.reads[at]).copied();
        let forward: Edges = (0..self.reads.len()).map(|at| depend(at).collect()).collect();
        if let Some(found) = cycle(&forward) {
            return Some(("G1c, a circular flow of information", found));
        }
        // A place twice: come to by a dependency, or by an anti-dependency, behind which no other one may
        // come.
        let count = forward.len();
        let mut states: Edges = forward.clone();
        states.extend(forward.iter().cloned());
        for (at, anti) in self.anti.iter().enumerate() {
            states[at].extend(anti.iter().map(|next| next + count));
        }
        let found: Vec<usize> = cycle(&states)?.into_iter().map(|state| state % count).collect();
        match self.single(&forward) {
            Some(single) => Some(("G-single, read skew", single)),
            None => Some(("G-nonadjacent, several anti-dependencies and none behind another", found)),
        }
    }

    /// The shortest cycle with one anti-dependency that begins where some does.
    fn single(&self, forward: &Edges) -> Option<Vec<usize>> {
        (0..forward.len()).find_map(|at| {
            self.anti[at].iter().find_map(|next| {
                let mut way = path(forward, *next, at)?;
                way.rotate_right(1);
                Some(way)
            })
        })
    }
}

/// A shortest way, both ends included.
fn path(edges: &Edges, from: usize, to: usize) -> Option<Vec<usize>> {
    let mut came: BTreeMap<usize, usize> = BTreeMap::from([(from, from)]);
    let mut due = VecDeque::from([from]);
    while let Some(at) = due.pop_front() {
        if at == to {
            let mut way = vec![to];
            while *way.last().expect("not empty") != from {
                way.push(came[way.last().expect("not empty")]);
            }
            way.reverse();
            return Some(way);
        }
        for next in &edges[at] {
            if !came.contains_key(next) {
                came.insert(*next, at);
                due.push_back(*next);
            }
        }
    }
    None
}

/// A cycle, if there is one: places that nothing leads to are taken away until none is left, or each that is
/// left has one before it.
fn cycle(edges: &Edges) -> Option<Vec<usize>> {
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); edges.len()];
    for (at, next) in edges.iter().enumerate() {
        for next in next {
            before[*next].insert(at);
        }
    }
    let mut waits: Vec<usize> = before.iter().map(BTreeSet::len).collect();
    let mut due: Vec<usize> = (0..edges.len()).filter(|at| waits[*at] == 0).collect();
    while let Some(at) = due.pop() {
        for next in &edges[at] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                due.push(*next);
            }
        }
    }
    let mut way: Vec<usize> = vec![(0..edges.len()).find(|at| waits[*at] > 0)?];
    loop {
        let last = *way.last().expect("not empty");
        let earlier = before[last].iter().copied().find(|at| waits[*at] > 0).expect("each has one before it");
        if let Some(at) = way.iter().position(|known| *known == earlier) {
            way.drain(..at);
            way.reverse();
            return Some(way);
        }
        way.push(earlier);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::made::*;

    /// What is said, up to the colon.
    fn said(transactions: impl IntoIterator<Item = Transaction>) -> String {
        let found = check(&numbered(transactions));
        let sentence = found.err().map_or(String::new(), |wrong| wrong.sentence);
        sentence.split([':', ',']).next().expect("a part").to_string()
    }

    #[test]
    fn what_snapshot_isolation_allows_passes() {
        let (one, two) = (row(1, 1, 0), row(2, 2, 0));
        // Write skew: each reads both, and writes another one.
        let skew = [
            filled(),
            commit(1, 2, &[one, two], &[row(1, 3, 1)]),
            commit(1, 3, &[one, two], &[row(2, 4, 2)]),
            whole(3, &[row(1, 3, 1), row(2, 4, 2)]),
        ];
        assert_eq!(said(skew), "");
        // One that nobody saw has no say, whoever replaced the same.
        let unseen = [filled(), unknown(1, &[one], &[row(1, 3, 1)]), commit(1, 3, &[one], &[row(1, 4, 1)])];
        assert_eq!(said(unseen), "");
        // Neither has an aborted one; what it read must be of one state all the same.
        let refused =
            [filled(), aborted(1, &[one, two], &[row(1, 3, 1)]), commit(1, 3, &[one], &[row(1, 4, 1)])];
        assert_eq!(said(refused), "");
    }

    #[test]
    fn each_anomaly_is_found_and_named() {
        let (one, two) = (row(1, 1, 0), row(2, 2, 0));
        let both = commit(1, 2, &[one, two], &[row(1, 3, 1), row(2, 4, 2)]);
        // Two write both rows, in two orders.
        let dirty = [
            filled(),
            commit(1, 2, &[], &[row(1, 3, 1), row(2, 4, 5)]),
            commit(1, 3, &[], &[row(1, 6, 3), row(2, 5, 2)]),
        ];
        assert_eq!(said(dirty), "G0");
        let aborted = [filled(), aborted(1, &[one], &[row(1, 3, 1)]), reader(2, &[row(1, 3, 1)])];
        assert_eq!(said(aborted), "G1a");
        let twice = commit(1, 2, &[one], &[row(1, 3, 1), row(1, 4, 1)]);
        assert_eq!(said([filled(), twice, reader(2, &[row(1, 3, 1)])]), "G1b");
        // Each reads what the other writes.
        let circle = [
            filled(),
            commit(1, 2, &[row(2, 4, 2)], &[row(1, 3, 1)]),
            commit(1, 3, &[row(1, 3, 1)], &[row(2, 4, 2)]),
        ];
        assert_eq!(said(circle), "G1c");
        let half = reader(2, &[row(1, 3, 1), two]);
        assert_eq!(said([filled(), both.clone(), half]), "G-single");
        let lost = [filled(), both, commit(1, 3, &[one], &[row(1, 5, 1)])];
        assert_eq!(said(lost), "G-single");
        // Two readers see two writers in two orders.
        let fork = [
            filled(),
            commit(1, 2, &[one], &[row(1, 3, 1)]),
            commit(1, 3, &[two], &[row(2, 4, 2)]),
            reader(2, &[row(1, 3, 1), two]),
            reader(3, &[one, row(2, 4, 2)]),
        ];
        assert_eq!(said(fork), "G-nonadjacent");
        assert_eq!(said([filled(), reader(2, &[row(1, 9, 1)])]), "T2 read version 9 of row 1");
        assert_eq!(said([filled(), reader(2, &[row(1, 1, 7)])]), "a row that differs from what was written");
    }

    #[test]
    fn a_cycle_is_told_by_its_transactions() {
        let (one, two) = (row(1, 1, 0), row(2, 2, 0));
        let both = commit(1, 2, &[one, two], &[row(1, 3, 1), row(2, 4, 2)]);
        let later = commit(2, 3, &[row(1, 3, 1)], &[row(1, 5, 3)]);
        let wrong = check(&numbered([filled(), both, later, reader(3, &[row(1, 5, 3), two])]));
        let wrong = wrong.expect_err("half of a commit");
        assert_eq!(wrong.operations, [4, 2, 3]);
    }
}
