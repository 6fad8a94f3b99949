//! Whether the positions that answers carry order everything that was told about one partition.
//!
//! Every write is one entry of the partition's log. Its position is known from its own answer, or from a row
//! that somebody read natively. So the log is a witness for the order of all writes, and it is compared with
//! what clients saw: positions follow time; all rows of a read are of one state; a write that rests on a
//! value has nothing between; a write of several rows is one entry. Reads without a position (over SQL) must
//! fit some state between two. Takes `n log n` steps.

use crate::operation::{End, Key, Operation, Over, Seen};
use crate::register::Wrong;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// The log of one partition, as far as it is known.
#[derive(Default)]
struct Log {
    /// The entry of each operation that wrote, and the operation of each entry.
    entry_of: BTreeMap<u64, u64>,
    writer_of: BTreeMap<u64, u64>,
    /// The operation of each value.
    written_by: BTreeMap<u64, u64>,
    /// The values of each key by their entries; `None`: the row was removed.
    versions: BTreeMap<Key, BTreeMap<u64, Option<u64>>>,
    /// Keys that were, or may have been, removed by an entry that is not known.
    removed_somewhere: BTreeMap<Key, u64>,
}

/// Two numbers that only grow along time: to look up what was known when.
struct Timeline(Vec<(u64, u64, u64)>);

/// Checks the operations of one partition, in any order. What was lost must have been taken out.
///
/// # Errors
///
/// The first thing found wrong.
pub fn check(operations: &[&Operation]) -> Result<(), Wrong> {
    let log = Log::new(operations)?;
    let (told, later) = (log.told(operations), log.later(operations));
    for operation in operations {
        log.check_time(operation, &told)?;
        log.check_writes(operation)?;
        log.check_reads(operation, &told, &later)?;
    }
    Ok(())
}

fn wrong<T>(sentence: String, operations: impl IntoIterator<Item = u64>) -> Result<T, Wrong> {
    let operations: BTreeSet<u64> = operations.into_iter().filter(|number| *number > 0).collect();
    Err(Wrong { sentence, operations: operations.into_iter().collect() })
}

impl Timeline {
    /// From moments and values; keeps the greatest value up to each moment. With it who brought it.
    fn new(mut moments: Vec<(u64, u64, u64)>) -> Timeline {
        moments.sort_unstable();
        let mut most = (0, 0);
        for (_, value, who) in &mut moments {
            most = most.max((*value, *who));
            (*value, *who) = most;
        }
        Timeline(moments)
    }

    /// The greatest value before a moment.
    fn before(&self, moment: u64) -> (u64, u64) {
        let at = self.0.partition_point(|(when, ..)| *when < moment);
        at.checked_sub(1).map_or((0, 0), |at| (self.0[at].1, self.0[at].2))
    }
}

impl Log {
    fn new(operations: &[&Operation]) -> Result<Log, Wrong> {
        let mut log = Log::default();
        for operation in operations {
            for tag in operation.writes.iter().filter_map(|write| write.tag) {
                log.written_by.insert(tag, operation.number);
            }
        }
        for operation in operations {
            if let (Some(at), false) = (operation.at, operation.writes.is_empty()) {
                log.learn(operation.number, at.lsn, operation.number)?;
            }
            for seen in operation.reads.iter().filter_map(|read| read.seen) {
                // A value that nobody wrote is what the other checker is for.
                let writer = log.written_by.get(&seen.tag).copied();
                if let (Some(lsn), Some(writer)) = (seen.lsn, writer) {
                    log.learn(writer, lsn, operation.number)?;
                }
            }
        }
        for operation in operations {
            let entry = log.entry_of.get(&operation.number).copied();
            for write in &operation.writes {
                match entry {
                    Some(entry) => {
                        log.versions.entry(write.key).or_default().insert(entry, write.tag);
                    }
                    None if write.tag.is_none() => {
                        let since = log.removed_somewhere.entry(write.key).or_insert(u64::MAX);
                        *since = (*since).min(operation.invoked);
                    }
                    None => {}
                }
            }
        }
        Ok(log)
    }

    /// Somebody said in which entry an operation wrote.
    fn learn(&mut self, writer: u64, lsn: u64, told_by: u64) -> Result<(), Wrong> {
        let known = *self.entry_of.entry(writer).or_insert(lsn);
        if known != lsn {
            let text = format!("what operation {writer} wrote is in the entries {known} and {lsn}");
            return wrong(text, [writer, told_by]);
        }
        let other = *self.writer_of.entry(lsn).or_insert(writer);
        if other != writer {
            let text = format!("the operations {other} and {writer} wrote the same entry {lsn}");
            return wrong(text, [other, writer, told_by]);
        }
        Ok(())
    }

    /// Where an operation stands: its own entry, or the state that it read.
    fn position(&self, operation: &Operation) -> Option<u64> {
        match operation.writes.is_empty() {
            true => operation.at.map(|at| at.lsn),
            false => self.entry_of.get(&operation.number).copied(),
        }
    }

    /// How far the log was, by the moments at which somebody had been told.
    fn told(&self, operations: &[&Operation]) -> Timeline {
        let told = operations
            .iter()
            .filter_map(|operation| Some((operation.ended()?, self.position(operation)?, operation.number)));
        Timeline::new(told.collect())
    }

    /// The first entry that was asked for only after a moment; turned around, so that the same search serves.
    fn later(&self, operations: &[&Operation]) -> Timeline {
        let asked =
            operations.iter().filter(|operation| !operation.writes.is_empty()).filter_map(|operation| {
                Some((u64::MAX - operation.invoked, u64::MAX - self.position(operation)?, operation.number))
            });
        Timeline::new(asked.collect())
    }

    /// Positions follow time.
    fn check_time(&self, operation: &Operation, told: &Timeline) -> Result<(), Wrong> {
        let Some(position) = self.position(operation) else { return Ok(()) };
        let (before, who) = told.before(operation.invoked);
        let is_late = if operation.writes.is_empty() { position < before } else { position <= before };
        if is_late {
            let text = format!(
                "operation {} is at LSN {position}, and LSN {before} had been told before it began",
                operation.number
            );
            return wrong(text, [operation.number, who]);
        }
        Ok(())
    }

    /// Nothing is between a value and what replaced it.
    fn check_writes(&self, operation: &Operation) -> Result<(), Wrong> {
        let Some(entry) = self.entry_of.get(&operation.number) else { return Ok(()) };
        for write in &operation.writes {
            let Over::Value(prev) = write.over else { continue };
            let Some(before) = self.versions.get(&write.key).and_then(|all| all.range(..entry).next_back())
            else {
                continue;
            };
            let known = self.written_by.get(&prev).and_then(|writer| self.entry_of.get(writer));
            if *before.1 != Some(prev) && known.is_some() {
                let text = format!(
                    "entry {entry} replaced value {prev} of row {}, and entry {} had written another",
                    write.key, before.0
                );
                return wrong(text, [operation.number, self.writer_of[before.0]]);
            }
        }
        Ok(())
    }

    /// All rows of a read are of one state; those of a transaction of one before its own entry.
    fn check_reads(&self, operation: &Operation, told: &Timeline, later: &Timeline) -> Result<(), Wrong> {
        // A row that it shows as it wrote it itself says nothing of the state before.
        let own = |seen: &Seen| operation.writes.iter().any(|write| write.tag == Some(seen.tag));
        if operation.end == End::Unknown
            || operation.reads.iter().all(|read| read.seen.as_ref().is_some_and(own))
        {
            return Ok(());
        }
        let Some(completed) = operation.completed else { return Ok(()) };
        let (mut from, mut from_by) = told.before(operation.invoked);
        let (until, until_by) = later.before(u64::MAX - completed);
        let (mut until, mut until_by) = (u64::MAX - until, until_by);
        let entry = self.entry_of.get(&operation.number);
        match (operation.at, entry) {
            (Some(at), None) => {
                (from, from_by) = (at.lsn, operation.number);
                (until, until_by) = (at.lsn + 1, operation.number);
            }
            (_, Some(entry)) if *entry < until => (until, until_by) = (*entry, operation.number),
            _ => {}
        }
        let shown = operation.reads.iter().filter_map(|read| Some((read.key, read.seen?)));
        for (key, seen) in shown.filter(|(_, seen)| !own(seen)) {
            let Some(entry) = self.entry(&seen) else { continue };
            if entry > from {
                (from, from_by) = (entry, self.writer_of[&entry]);
            }
            let after =
                self.versions.get(&key).and_then(|all| all.range((Excluded(entry), Unbounded)).next());
            if let Some((next, _)) = after
                && *next < until
            {
                (until, until_by) = (*next, self.writer_of[next]);
            }
        }
        for read in operation.reads.iter().filter(|read| read.seen.is_none()) {
            if self.removed_somewhere.get(&read.key).is_some_and(|since| *since < completed) {
                continue;
            }
            let Some((next, by)) = self.there_again(read.key, from, until) else { continue };
            if next < until {
                (until, until_by) = (next, by);
            }
        }
        if from < until {
            return Ok(());
        }
        let text = format!(
            "operation {} read rows of no one state: one is not before LSN {from}, another before LSN {until}",
            operation.number
        );
        wrong(text, [operation.number, from_by, until_by])
    }

    fn entry(&self, seen: &Seen) -> Option<u64> {
        self.entry_of.get(self.written_by.get(&seen.tag)?).copied()
    }

    /// The entry before which a row must have been missed, if it was missed at `from` or later, and before
    /// `until`: only a removal between the two can help.
    fn there_again(&self, key: Key, from: u64, until: u64) -> Option<(u64, u64)> {
        if from >= until {
            return None;
        }
        let versions = self.versions.get(&key)?;
        let mut between = versions.range((Excluded(from), Excluded(until)));
        if between.any(|(_, tag)| tag.is_none()) {
            return None;
        }
        let entry = match versions.range(..=from).next_back() {
            Some((entry, Some(_))) => entry,
            _ => versions.range((Excluded(from), Unbounded)).next()?.0,
        };
        Some((*entry, self.writer_of[entry]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::made::*;

    fn verdict(operations: impl IntoIterator<Item = Operation>) -> Result<(), String> {
        let operations = history(operations);
        let all: Vec<&Operation> = operations.iter().collect();
        check(&all).map_err(|wrong| {
            assert!(!wrong.operations.is_empty(), "{wrong:?}");
            wrong.sentence
        })
    }

    /// Over SQL nothing says where it was.
    fn sql_scan(rows: &[(Key, u64)], began: u64, ended: u64) -> Operation {
        let rows: Vec<_> = rows.iter().map(|(key, tag)| (*key, *tag, 0)).collect();
        let mut scan = scan(&rows, began, ended).sql();
        scan.reads.iter_mut().flat_map(|read| &mut read.seen).for_each(|seen| seen.lsn = None);
        scan
    }

    fn missing(key: Key, mut operation: Operation) -> Operation {
        operation.reads.push(crate::operation::Read { key, seen: None });
        operation
    }

    #[test]
    fn good_histories_pass() {
        let good: [Vec<Operation>; 6] = [
            vec![],
            vec![put(1, 1, 9).at(1, 5).with(2, OTHER), scan(&[(KEY, 1, 5), (OTHER, 2, 5)], 2, 3).at(1, 5)],
            vec![put(1, 1, 2).at(1, 5), put(2, 3, None).sql(), scan(&[(KEY, 2, 8)], 4, 5).at(2, 9)],
            vec![put(1, 1, 2).at(1, 5), put(2, 3, 9).at(1, 6), sql_scan(&[(KEY, 1)], 4, 5)],
            vec![put(1, 1, 2).at(1, 5), delete(3, 4).at(1, 6), missing(KEY, sql_scan(&[], 5, 6))],
            vec![put(1, 1, 2).at(1, 5), delete(3, 4).sql(), missing(KEY, scan(&[], 5, 6).at(1, 8))],
        ];
        for operations in good {
            assert_eq!(verdict(operations.clone()), Ok(()), "{operations:?}");
        }
    }

    /// A transaction that has read both rows and replaces one of them.
    fn transaction(rows: [u64; 2], write: Operation) -> Operation {
        let [one, other] = rows;
        write.after(&sql_scan(&[(KEY, one), (OTHER, other)], 3, 9)).sql()
    }

    #[test]
    fn a_transaction_has_read_one_state_before_its_entry_and_skew_is_allowed() {
        let both = || put(1, 1, 2).at(1, 5).with(2, OTHER);
        let one = |tag, over| write(tag, Over::Value(over), 3, 9);
        let skew = [
            both(),
            transaction([1, 2], one(3, 1).at(1, 6)),
            transaction([1, 2], one(4, 2).of(OTHER).at(1, 7)),
        ];
        assert_eq!(verdict(skew), Ok(()));
        // An increment shows what it wrote itself.
        let increment = one(3, 1).at(1, 6).after(&sql_scan(&[(KEY, 3)], 3, 9));
        assert_eq!(verdict([both(), increment]), Ok(()));
        let two_states = [
            both(),
            write(3, Over::Value(1), 3, 4).at(1, 6),
            put(4, 3, 4).of(OTHER).at(1, 7),
            transaction([1, 4], one(5, 4).of(OTHER).at(1, 8)),
        ];
        assert!(verdict(two_states).is_err(), "one row from before what another one is from behind");
        let behind = [
            both(),
            transaction([1, 4], one(3, 1).at(1, 6)),
            write(4, Over::Value(2), 3, 9).of(OTHER).at(1, 7),
        ];
        assert!(verdict(behind).is_err(), "it has read what came behind its own entry");
        let old = [
            both(),
            write(3, Over::Value(1), 3, 4).at(1, 6),
            Operation { invoked: 5, ..transaction([1, 2], one(4, 2).of(OTHER).at(1, 7)) },
        ];
        assert!(verdict(old).is_err(), "its state is older than what had been told");
    }

    #[test]
    fn bad_histories_are_rejected() {
        let both = || put(1, 1, 2).at(1, 5).with(2, OTHER);
        let half = || missing(OTHER, scan(&[(KEY, 1, 5)], 1, 8).at(1, 5));
        let bad: [(&str, Vec<Operation>); 13] = [
            ("half of a write, removed later", vec![both(), half(), delete(10, 11).of(OTHER).at(1, 9)]),
            ("half of a write, removed later over SQL", vec![both(), half(), delete(10, 11).of(OTHER).sql()]),
            (
                "half of a write",
                vec![both(), put(3, 3, 4).at(1, 6).with(4, OTHER), sql_scan(&[(KEY, 1), (OTHER, 4)], 2, 9)],
            ),
            (
                "a row of an older state",
                vec![both(), put(3, 3, 4).at(1, 6), scan(&[(KEY, 1, 5)], 3, 9).at(1, 7)],
            ),
            (
                "a row of a newer state",
                vec![both(), put(3, 3, 9).at(1, 6), scan(&[(KEY, 3, 6)], 3, 9).at(1, 5)],
            ),
            ("a state older than what was told", vec![both(), scan(&[], 3, 4).at(1, 4)]),
            ("a write below what was told", vec![both(), put(3, 3, 4).at(1, 5)]),
            ("one value in two entries", vec![both(), scan(&[(KEY, 1, 4)], 3, 4).at(1, 9)]),
            ("two writes in one entry", vec![put(1, 1, 9).at(1, 5), put(2, 1, 9).at(1, 5)]),
            (
                "another write in between",
                vec![put(1, 1, 9).at(1, 5), put(2, 1, 9).at(1, 6), write(3, Over::Value(1), 1, 9).at(1, 7)],
            ),
            ("a row that was not found", vec![both(), missing(OTHER, scan(&[(KEY, 1, 5)], 3, 4).at(1, 6))]),
            ("a row that was not found over SQL", vec![both(), missing(OTHER, sql_scan(&[(KEY, 1)], 3, 4))]),
            (
                "two states over SQL",
                vec![
                    put(1, 1, 2).at(1, 5),
                    put(2, 3, 4).at(1, 6),
                    crate::operation::Operation {
                        writes: vec![crate::operation::Write { key: OTHER, tag: Some(3), over: Over::Blind }],
                        ..put(3, 5, 90).at(1, 7)
                    },
                    sql_scan(&[(KEY, 1), (OTHER, 3)], 3, 80),
                ],
            ),
        ];
        for (what, operations) in bad {
            assert!(verdict(operations).is_err(), "{what}");
        }
    }
}
