//! PR-330: a backup has of every partition exactly the state at the position that it names, and that is
//! committed there; and what was restored from it is what it has.

use crate::check::catalog::Table;
use crate::check::cluster_snapshots::CompleteSnapshot;
use crate::check::lineage::Lineage;
use crate::check::ranges::Shown;
use crate::check::states::States;
use crate::check::tables::model::Model;
use std::collections::BTreeMap;
use types::{Lsn, PartitionId, Position, TableId};

/// What a backup has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backup {
    /// When the first partition was asked, virtual microseconds.
    pub began: u64,
    /// The position that it names, of every partition.
    pub at: BTreeMap<PartitionId, Position>,
    /// The rows that were read of bare tables, in the order of their keys.
    pub rows: BTreeMap<PartitionId, Vec<Shown>>,
    /// The tables of the database that have a name there, and their rows.
    pub tables: BTreeMap<TableId, (Table, Vec<Shown>)>,
}

impl Backup {
    /// Of which nothing is read yet.
    pub fn new(began: u64, at: BTreeMap<PartitionId, Position>) -> Backup {
        Backup { began, at, rows: BTreeMap::new(), tables: BTreeMap::new() }
    }

    /// The point over all partitions that it names.
    pub fn cluster_snapshot(&self) -> CompleteSnapshot {
        CompleteSnapshot { began: self.began, at: self.at.clone() }
    }
}

/// What came of the restoration of a backup, all rows of which were acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Partitions of the table that the rows went into.
    pub into: Vec<PartitionId>,
    /// What was put, by the names of keys.
    pub wanted: BTreeMap<String, u64>,
    /// What was there when it was read back.
    pub found: BTreeMap<String, u64>,
}

/// Compares a backup with the logs that had its positions. `tip` is the newest committed entry of a
/// partition, if all that was committed there is still there. The error is a sentence.
pub fn check(
    backup: &Backup,
    lineage: &Lineage,
    tip: &dyn Fn(PartitionId) -> Option<Position>,
) -> Result<(), String> {
    for (partition, at) in &backup.at {
        let of = format!("the backup of {} us has {partition} at {at}", backup.began);
        if lineage.get(*partition, *at).is_none() {
            return Err(format!("{of}, where nothing was ever written"));
        }
        let is_there = |tip: Position| {
            lineage.has(*partition, tip, *at) || *at > tip && lineage.has(*partition, *at, tip)
        };
        if tip(*partition).is_some_and(|tip| !is_there(tip)) {
            return Err(format!("{of}, which was never committed"));
        }
        let mut line: Vec<_> = lineage.line(*partition, *at).collect();
        line.reverse();
        if lineage.has_tables(*partition) {
            check_tables(backup, &Model::of(line), *at).map_err(|why| format!("{of} {why}"))?;
            continue;
        }
        let states = States::of(line);
        let rows = backup.rows.get(partition).map(Vec::as_slice).unwrap_or_default();
        compare(rows, states.rows(at.lsn)).map_err(|why| format!("{of} {why}"))?;
    }
    Ok(())
}

/// Compares the tables of a backup, and their rows, with those of a log. The error is the end of a sentence.
fn check_tables(backup: &Backup, model: &Model<'_>, at: Position) -> Result<(), String> {
    let expected: Vec<_> = model.tables(at.lsn).filter(|table| table.standing.has_name()).collect();
    let found: Vec<_> = backup.tables.values().map(|(table, _)| table).collect();
    if expected != found {
        return Err(format!("with the tables {found:?} instead of {expected:?}"));
    }
    let rows = backup.tables.iter().map(|(id, (_, rows))| (id, rows));
    let mut compared = rows.map(|(id, rows)| {
        compare(rows, model.rows(*id, at.lsn)).map_err(|why| format!("{why}, in table {id}"))
    });
    compared.find(Result::is_err).unwrap_or(Ok(()))
}

/// Compares rows with those of a state. The error is the end of a sentence.
fn compare<'a>(rows: &[Shown], expected: impl Iterator<Item = (&'a str, Lsn, u64)>) -> Result<(), String> {
    let expected: Vec<_> = expected.collect();
    let found: Vec<_> = rows.iter().map(|(key, lsn, value)| (key.as_str(), *lsn, *value)).collect();
    if let Some(row) = found.iter().find(|row| !expected.contains(row)) {
        return Err(format!("with the row {row:?}, which is not of that state"));
    }
    if let Some(row) = expected.iter().find(|row| !found.contains(row)) {
        return Err(format!("without the row {row:?}"));
    }
    match found.len() == expected.len() {
        true => Ok(()),
        false => Err(format!("with {} rows instead of {}", found.len(), expected.len())),
    }
}

/// Compares what is there after a restoration with what the backup has. The error is a sentence.
pub fn check_restored(restored: &Restored) -> Result<(), String> {
    let Restored { wanted, found, .. } = restored;
    let differs = |(key, value): (&String, &u64)| (found.get(key) != Some(value)).then(|| key.clone());
    if let Some(key) = wanted.iter().find_map(differs) {
        let (was, is) = (wanted[&key], found.get(&key));
        return Err(format!("what was restored has {is:?} under {key}, where the backup has {was}"));
    }
    match found.keys().find(|key| !wanted.contains_key(*key)) {
        Some(key) => Err(format!("what was restored has {key}, which is in no backup")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::catalog::Standing;
    use crate::check::lineage::tests::{P, at, entry};
    use crate::check::tables::known_bad::{ONE, TWO, both, live, table};
    use wire::Entry;

    /// A log that writes 1, 2 and so on, each to the key of its place, and from the second entry on another
    /// one, of term 2.
    fn two_logs() -> Lineage {
        let mut lineage = Lineage::default();
        let mut log: Vec<Entry> = Vec::new();
        for (lsn, key) in (1..).zip(["a", "b", "a"]) {
            log.push(entry(at(1, lsn), log.last().map_or(0, Entry::crc), key, lsn));
        }
        let other = entry(at(2, 2), log[0].crc(), "c", 7);
        log.iter().chain([&other]).for_each(|entry| lineage.add(entry).expect("follows"));
        lineage
    }

    fn verdict(named: Position, rows: &[(&str, u64, u64)], tip: Option<Position>) -> Result<(), String> {
        let rows = rows.iter().map(|(key, lsn, value)| (key.to_string(), Lsn(*lsn), *value)).collect();
        let backup = Backup { rows: [(P, rows)].into(), ..Backup::new(5, [(P, named)].into()) };
        check(&backup, &two_logs(), &|_| tip)
    }

    #[test]
    fn a_backup_is_of_the_state_that_it_names() {
        assert_eq!(verdict(at(1, 2), &[("a", 1, 1), ("b", 2, 2)], Some(at(1, 3))), Ok(()));
        assert_eq!(verdict(at(1, 3), &[("a", 3, 3), ("b", 2, 2)], Some(at(1, 2))), Ok(()), "it goes on");
        assert!(verdict(at(1, 2), &[("a", 3, 3), ("b", 2, 2)], None).is_err(), "a newer row");
        assert!(verdict(at(1, 3), &[("a", 1, 1), ("b", 2, 2)], None).is_err(), "an older row");
        assert!(verdict(at(1, 2), &[("a", 1, 1)], None).is_err(), "one is missing");
        assert!(
            verdict(at(1, 2), &[("a", 1, 1), ("b", 2, 2), ("b", 2, 2)], None).is_err(),
            "one comes twice"
        );
        assert!(verdict(at(1, 9), &[], None).is_err(), "there is no such entry");
    }

    #[test]
    fn a_backup_is_of_one_log_and_of_what_is_committed() {
        assert_eq!(verdict(at(2, 2), &[("a", 1, 1), ("c", 2, 7)], Some(at(2, 2))), Ok(()));
        assert!(verdict(at(2, 2), &[("a", 1, 1), ("b", 2, 2)], None).is_err(), "rows of the other log");
        assert!(verdict(at(1, 2), &[("a", 1, 1), ("b", 2, 2)], Some(at(2, 2))).is_err(), "it was given up");
        assert_eq!(verdict(at(1, 2), &[("a", 1, 1), ("b", 2, 2)], None), Ok(()), "it may be lost there");
    }

    #[test]
    fn what_is_restored_is_what_the_backup_has() {
        let rows = |all: &[(&str, u64)]| all.iter().map(|(key, value)| (key.to_string(), *value)).collect();
        let restored = |found: &[(&str, u64)]| Restored {
            into: vec![P],
            wanted: rows(&[("a", 1), ("b", 2)]),
            found: rows(found),
        };
        assert_eq!(check_restored(&restored(&[("a", 1), ("b", 2)])), Ok(()));
        assert!(check_restored(&restored(&[("a", 1)])).is_err(), "b is missing");
        assert!(check_restored(&restored(&[("a", 1), ("b", 3)])).is_err(), "b is another one");
        assert!(check_restored(&restored(&[("a", 1), ("b", 2), ("c", 2)])).is_err(), "c is too much");
    }

    /// A row of a backup: key, LSN, value.
    type BackedUp = (&'static str, u64, u64);

    /// What the checker of backups says of one at this entry, with these tables and their rows.
    fn backed_up(lsn: u64, tables: &[(Table, &[BackedUp])]) -> usize {
        let (mut log, _) = both();
        log.checks.tip(P, at(1, log.end));
        let row = |(key, lsn, value): &BackedUp| (key.to_string(), Lsn(*lsn), *value);
        let one = |(table, rows): &(Table, &[_])| (table.id, (table.clone(), rows.iter().map(row).collect()));
        let tables = tables.iter().map(one).collect();
        let made = Backup { tables, ..Backup::new(5, [(P, at(1, lsn))].into()) };
        log.checks.backups(100, &[made], &[]);
        log.checks.violations().len()
    }

    #[test]
    fn pr330_a_backup_of_tables_that_are_not_those_of_the_state_that_it_names() {
        let (one, two): (&[_], &[_]) = (&[("m1", 2, 2)], &[("m2", 2, 2)]);
        assert_eq!(backed_up(2, &[(live(ONE), one), (live(TWO), two)]), 0);
        assert_eq!(backed_up(1, &[(live(ONE), &[]), (live(TWO), &[])]), 0);
        assert_eq!(backed_up(2, &[(live(ONE), one)]), 1, "a table is missing");
        assert_eq!(backed_up(2, &[(live(ONE), one), (live(TWO), &[])]), 1, "a row is missing");
        assert_eq!(backed_up(1, &[(live(ONE), one), (live(TWO), &[])]), 1, "a row of a later entry");
        assert_eq!(backed_up(2, &[(live(ONE), two), (live(TWO), one)]), 1, "rows of each other");
        let later = table(ONE, "t7", 2, Standing::Live);
        assert_eq!(backed_up(2, &[(later, one), (live(TWO), two)]), 1, "another version");
    }
}
