//! What every store must do, as cases with names. [`check`] runs them.

use crate::store::{Refused, Sender, Store};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{Lsn, PartitionId, Position, TableId, Term};
use wire::request::TablePart;
use wire::{Flush, RowOp};

/// The table whose rows are written, where a store has no tables of its own.
pub const TABLE: TableId = TableId(7);
/// How often a store is asked again that says that it will be ready.
const MAX_TRIES: usize = 2_000;

/// A store that is to be checked, empty.
pub trait Subject: Store {
    /// A region of it.
    fn region(&self) -> PartitionId;

    /// A table with rows there.
    fn table(&self) -> TableId {
        TABLE
    }

    /// A timestamp below those of all commits that are put here, and not below any that is there.
    fn before(&self) -> Position {
        Position::new(Term(1), Lsn::ZERO)
    }

    /// A row of that region: its encoded key, and what it is stored as. Numbers of rows are below a hundred.
    fn encoded(&self, row: u64, value: u64) -> (Bytes, Bytes) {
        (Bytes::from(format!("row{row:03}")), Bytes::from(value.to_string()))
    }

    /// Ends whoever has the region, with everything that is in memory alone there. `false`: it cannot be done
    /// here, and what needs it is left out.
    fn fail(&mut self) -> bool;

    /// Waits a little, where the store does something by itself meanwhile.
    fn wait(&mut self) {}
}

/// Makes an empty one.
pub type Fresh<'a> = dyn FnMut() -> Box<dyn Subject> + 'a;

type Case = fn(&mut Run) -> bool;

/// Runs every case, each on a store of its own. How many were run: those are left out that need a failure
/// which cannot be made here.
///
/// # Panics
///
/// If the store does not do what it must. The message names the case.
pub fn check(fresh: &mut Fresh) -> usize {
    let cases: [(&'static str, Case); 7] = [
        ("a part that is put again changes nothing", idempotent),
        ("parts are put in any order", any_order),
        ("a read shows what was committed up to its timestamp", versions),
        ("rows that are deleted are gone from there on", deletions),
        ("a threshold does not pass what was flushed, and does not fall", threshold),
        ("what lies below the threshold is left by a failure", failure),
        ("a region that reopens waits for what is replayed", reopening),
    ];
    let run = |(name, case): (&'static str, Case)| case(&mut Run { name, store: fresh() });
    cases.into_iter().map(run).filter(|run| *run).count()
}

/// A case on a store.
struct Run {
    name: &'static str,
    store: Box<dyn Subject>,
}

impl Run {
    /// The timestamp of the commit with this number, from 1 on.
    fn at(&self, number: u64) -> Position {
        let before = self.store.before();
        Position::new(before.term, Lsn(before.lsn.0 + number))
    }

    /// The commit with this number, behind the one with the number before: it writes each of these rows with
    /// its own number, or deletes it.
    fn commit(&self, (number, previous): (u64, u64), rows: &[(u64, bool)]) -> Flush {
        let op = |(row, there): &(u64, bool)| {
            let (key, row) = self.store.encoded(*row, number);
            if *there { RowOp::Put { key, row } } else { RowOp::Delete { key } }
        };
        let ops = rows.iter().map(op).collect();
        let part = TablePart { table: self.store.table(), schema: 1, ops, seen: Vec::new() };
        Flush { commit: self.at(number), previous: self.at(previous), parts: vec![part] }
    }

    /// Commits 1 to `count`, which write row 1, and each row 10 and its number.
    fn commits(&self, count: u64) -> Vec<Flush> {
        let rows = |number: u64| [(1, true), (10 + number, true)];
        (1..=count).map(|number| self.commit((number, number - 1), &rows(number))).collect()
    }

    fn refused(&self, what: &str, why: &Refused) -> ! {
        panic!("{}: {what} was refused: {why:?}", self.name)
    }

    /// Puts them in the order in which they are given, those that are refused as too early again behind the
    /// others.
    fn put(&mut self, flushes: &[Flush], sender: Sender) {
        let mut left: Vec<Flush> = flushes.to_vec();
        for _ in 0..MAX_TRIES {
            let mut early = Vec::new();
            for flush in left {
                let region = self.store.region();
                match self.store.put(region, &flush, sender) {
                    Ok(_) => {}
                    Err(Refused::Behind(_) | Refused::Unavailable(_)) => early.push(flush),
                    Err(why) => self.refused("a part of a commit", &why),
                }
            }
            if early.is_empty() {
                return;
            }
            left = early;
            self.store.wait();
        }
        panic!("{}: {} parts of commits are refused for ever", self.name, left.len());
    }

    /// The number with which a row was written, as of a timestamp.
    fn read(&mut self, row: u64, number: u64) -> Option<u64> {
        let (key, _) = self.store.encoded(row, 0);
        let (region, table, at) = (self.store.region(), self.store.table(), self.at(number));
        for _ in 0..MAX_TRIES {
            match self.store.read(region, (table, &key), at) {
                Ok(found) => {
                    let is = |value: &u64| Some(&self.store.encoded(row, *value).1) == found.as_ref();
                    let value = (0..100).find(is);
                    assert_eq!(value.is_some(), found.is_some(), "{}: it was never written", self.name);
                    return value;
                }
                Err(Refused::Unavailable(_)) => self.store.wait(),
                Err(why) => self.refused("a read", &why),
            }
        }
        panic!("{}: a read is refused for ever", self.name)
    }

    /// Persists until the threshold is there.
    fn persist(&mut self, flushed: u64) {
        let (region, at) = (self.store.region(), self.at(flushed));
        for _ in 0..MAX_TRIES {
            match self.store.persist(region, at) {
                Ok(threshold) if threshold >= at => return,
                Ok(_) | Err(Refused::Unavailable(_)) => self.store.wait(),
                Err(why) => self.refused("persisting", &why),
            }
        }
        panic!("{}: nothing is ever persistent", self.name)
    }

    fn persisted(&mut self) -> Position {
        for _ in 0..MAX_TRIES {
            let region = self.store.region();
            match self.store.persisted(region) {
                Ok(threshold) => return threshold,
                Err(Refused::Unavailable(_)) => self.store.wait(),
                Err(why) => self.refused("its threshold", &why),
            }
        }
        panic!("{}: it never says its threshold", self.name)
    }

    /// Row 1 and all others of commits 1 to `count` are as at each timestamp.
    fn expect(&mut self, count: u64) {
        for number in 0..=count {
            let newest = (number > 0).then_some(number);
            assert_eq!(self.read(1, number), newest, "{}: row 1 at {number}", self.name);
        }
        for number in 1..=count {
            let there = (self.read(10 + number, number - 1), self.read(10 + number, count));
            assert_eq!(there, (None, Some(number)), "{}: the row of commit {number}", self.name);
        }
    }

    /// What a failure has left is replayed, and the region opened. `twice`: in two goes, as if who replays
    /// had been replaced.
    fn replay(&mut self, commits: &[Flush], twice: bool) {
        let region = self.store.region();
        for one in self.store.reopening() {
            assert_eq!(one.region, region, "{}: another region has not failed", self.name);
            let above: Vec<Flush> =
                commits.iter().filter(|flush| flush.commit > one.persisted).cloned().collect();
            let sender = Sender::Recovery(one.tenure);
            self.put(&above[..above.len() / 2], sender);
            self.put(if twice { &above[..] } else { &above[above.len() / 2..] }, sender);
            if let Err(why) = self.store.open(&one) {
                self.refused("opening a region", &why);
            }
        }
        assert_eq!(self.store.reopening(), [], "{}: it is open", self.name);
    }
}

fn idempotent(run: &mut Run) -> bool {
    let commits = run.commits(5);
    run.put(&commits, Sender::Client);
    run.put(&commits[1..3], Sender::Client);
    run.put(&commits, Sender::Client);
    run.expect(5);
    true
}

fn any_order(run: &mut Run) -> bool {
    let commits = run.commits(6);
    let shuffled: Vec<Flush> = [4, 0, 5, 2, 1, 3].map(|place: usize| commits[place].clone()).to_vec();
    run.put(&shuffled, Sender::Client);
    run.expect(6);
    true
}

fn versions(run: &mut Run) -> bool {
    let commits = [run.commit((3, 0), &[(1, true), (2, true)]), run.commit((8, 3), &[(2, true), (3, true)])];
    run.put(&commits, Sender::Client);
    let seen: BTreeMap<u64, [Option<u64>; 3]> =
        [2, 3, 7, 8, 90].into_iter().map(|at| (at, [1, 2, 3].map(|row| run.read(row, at)))).collect();
    let before = [Some(3), Some(3), None];
    let after = [Some(3), Some(8), Some(8)];
    let all = [(2, [None; 3]), (3, before), (7, before), (8, after), (90, after)];
    assert_eq!(seen, BTreeMap::from(all), "{}", run.name);
    true
}

fn deletions(run: &mut Run) -> bool {
    let commits = [
        run.commit((2, 0), &[(1, true)]),
        run.commit((4, 2), &[(1, false), (2, false)]),
        run.commit((6, 4), &[(1, true)]),
    ];
    run.put(&[commits[2].clone(), commits[0].clone(), commits[1].clone()], Sender::Client);
    let seen = [2, 4, 5, 6].map(|at| (run.read(1, at), run.read(2, at)));
    let expected = [(Some(2), None), (None, None), (None, None), (Some(6), None)];
    assert_eq!(seen, expected, "{}", run.name);
    true
}

fn threshold(run: &mut Run) -> bool {
    let commits = run.commits(4);
    assert!(run.persisted() <= run.at(0), "{}: it is empty", run.name);
    run.put(&commits, Sender::Client);
    run.persist(4);
    let known = run.persisted();
    assert_eq!(known, run.at(4), "{}: no more than was flushed", run.name);
    run.put(&commits[..2], Sender::Client);
    assert!(run.persisted() >= known, "{}: it fell by what was put again", run.name);
    true
}

fn failure(run: &mut Run) -> bool {
    let commits = run.commits(6);
    run.put(&commits[..4], Sender::Client);
    run.persist(4);
    run.put(&commits[4..], Sender::Client);
    if !run.store.fail() {
        return false;
    }
    run.replay(&commits[4..], false);
    assert!(run.persisted() >= run.at(4), "{}: the threshold is lost", run.name);
    // Who replays brings the rest, also where the region has opened by itself.
    run.put(&commits[4..], Sender::Client);
    run.expect(6);
    true
}

fn reopening(run: &mut Run) -> bool {
    let commits = run.commits(6);
    run.put(&commits, Sender::Client);
    if !run.store.fail() {
        return false;
    }
    let region = run.store.region();
    let closed = run.store.reopening();
    if let Some(one) = closed.first() {
        let (key, _) = run.store.encoded(1, 0);
        let table = run.store.table();
        let at = run.at(6);
        let read = run.store.read(region, (table, &key), at);
        assert_eq!(read, Err(Refused::Closed), "{}: it is read before it is whole", run.name);
        let put = run.store.put(region, &commits[5], Sender::Client);
        assert_eq!(put, Err(Refused::Closed), "{}: a client writes into it", run.name);
        let again = run.store.reopening();
        assert_eq!(again.first(), Some(one), "{}: it is asked for until it is opened", run.name);
    }
    run.replay(&commits, true);
    run.put(&commits, Sender::Client);
    run.expect(6);
    true
}
