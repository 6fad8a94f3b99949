//! PR-250 to PR-254: global transactions are of one order, that of the transaction manager's log. A
//! transaction read what commits up to its snapshot had written, its snapshot shows all that was acknowledged
//! before it began, and nobody wrote a row that it writes between the snapshot at which it read that row and
//! its commit.
//!
//! Where an operator had a copy of the manager's log lead that lacks some of it (PR-293), what is lost may be
//! seen in partitions that had it, and must be seen in those behind which the manager was told to go on.
//! Nothing is committed that rests on it.

use super::lineage::{Commit, Known};
use super::{Broken, claims};
use std::collections::{BTreeMap, BTreeSet};
use types::{PartitionId, Position};

/// What an operator has given up (`txn skip`), as it was reported: where a partition lacks commits for good.
/// Where both ends are the same the manager was told to go on behind what the partition has (`txn recover`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GivenUp {
    /// Which.
    pub partition: PartitionId,
    /// It has those up to here.
    pub from: Position,
    /// It goes on behind this one.
    pub upto: Position,
    /// Since when, virtual microseconds.
    pub since: u64,
}

/// How a transaction ended for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnEnd {
    /// It wrote nothing.
    ReadOnly,
    /// It was committed there.
    Committed(Position),
    /// Another one was faster.
    Refused,
    /// It may have been committed.
    Unknown,
    /// It was not committed.
    NotDone,
}

/// A transaction as its client saw it. Times are virtual microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnOperation {
    /// Whose.
    pub client: u32,
    /// When it was begun.
    pub invoked: u64,
    /// When its end was known.
    pub completed: u64,
    /// Its snapshot, once it had one; the first, if each of its statements had its own.
    pub snapshot: Option<Position>,
    /// What it read: keys, values, none where there was no row, and at which snapshot.
    pub reads: Vec<(String, Option<u64>, Position)>,
    /// What it wanted to write; none: the row goes.
    pub writes: Vec<(String, Option<u64>)>,
    /// Each of its statements has a snapshot of its own: what it reads need not be one state.
    pub statements: bool,
    /// It reads what all copies have secured, which may be old.
    pub stale: bool,
    /// It is a backup: it has read all rows.
    pub backup: bool,
    /// How it ended.
    pub told: TxnEnd,
    /// That said the session of its commit, whose answer nobody had seen.
    pub resolved: bool,
}

impl TxnOperation {
    /// One that begins now.
    pub fn new(client: u32, now: u64) -> TxnOperation {
        TxnOperation {
            client,
            invoked: now,
            completed: now,
            snapshot: None,
            reads: Vec::new(),
            writes: Vec::new(),
            statements: false,
            stale: false,
            backup: false,
            told: TxnEnd::Unknown,
            resolved: false,
        }
    }
}

impl TxnOperation {
    /// The snapshot that what it writes under a key rests on: the one at which it read the key first.
    pub fn seen_at(&self, name: &str) -> Position {
        let first = self.reads.iter().find(|(key, ..)| key == name).map(|(_, _, at)| *at);
        first.or(self.snapshot).unwrap_or_default()
    }

    /// What is worth being counted of it.
    pub fn seen(&self) -> Option<&'static str> {
        match self.told {
            TxnEnd::Committed(_) if self.resolved => Some("commit-found-made"),
            TxnEnd::Refused if self.resolved => Some("commit-found-not-made"),
            TxnEnd::Committed(_) => Some("transaction-committed"),
            TxnEnd::Refused => Some("transaction-refused"),
            TxnEnd::ReadOnly if self.stale => Some("secured-read"),
            _ => None,
        }
    }
}

/// What a promotion has lost of the manager's log.
#[derive(Debug, Default)]
pub struct Lost {
    /// Its entries.
    entries: BTreeSet<Position>,
    /// The commits among them.
    commits: BTreeMap<Position, LostCommit>,
}

/// A commit that is lost.
#[derive(Debug)]
struct LostCommit {
    writes: Commit,
    /// The partitions whose logs ever had its part, and whether the log that is left has it.
    had: BTreeMap<PartitionId, bool>,
}

impl Lost {
    /// These entries. `had` says which partitions' logs ever had the part of a commit, and whether the log
    /// that is left has it.
    pub fn of<'a>(
        entries: impl Iterator<Item = &'a Known>,
        had: impl Fn(Position) -> BTreeMap<PartitionId, bool>,
    ) -> Lost {
        let mut lost = Lost::default();
        for known in entries {
            lost.entries.insert(known.at);
            if !known.commits.is_empty() {
                let commit = LostCommit { writes: known.commits.clone(), had: had(known.at) };
                lost.commits.insert(known.at, commit);
            }
        }
        lost
    }

    /// True if nothing was.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The commits of the log that is left, in order, and what was lost of them in partitions.
#[derive(Debug, Default)]
pub struct History {
    commits: BTreeMap<Position, Commit>,
    given_up: Vec<GivenUp>,
    lost: Lost,
    /// In which partition each key lies.
    places: BTreeMap<String, PartitionId>,
}

/// What commits have made of each key, and where.
type Written<'a> = BTreeMap<&'a str, BTreeMap<Position, Option<u64>>>;

impl History {
    /// From the manager's log, oldest first.
    pub fn of<'a>(line: impl Iterator<Item = &'a Known>) -> History {
        let commits = line.filter(|known| !known.commits.is_empty());
        let commits = commits.map(|known| (known.at, known.commits.clone())).collect();
        History { commits, ..History::default() }
    }

    /// The same where operators have given this up; `places` says in which partition each key lies.
    pub fn without(self, given_up: &[GivenUp], places: &BTreeMap<String, PartitionId>) -> History {
        History { given_up: given_up.to_vec(), places: places.clone(), ..self }
    }

    /// The same where this is lost of the manager's log.
    pub fn and_lost(self, lost: Lost) -> History {
        History { lost, ..self }
    }

    /// These commits.
    #[cfg(test)]
    pub(crate) fn made_of(commits: BTreeMap<Position, Commit>) -> History {
        History { commits, ..History::default() }
    }

    /// The commits, in order.
    pub fn commits(&self) -> &BTreeMap<Position, Commit> {
        &self.commits
    }

    /// What is lost of the manager's log is among it where a partition had it.
    fn written(&self) -> Written<'_> {
        let mut written = Written::new();
        for (at, commit) in &self.commits {
            for (name, value) in commit {
                written.entry(name.as_str()).or_default().insert(*at, *value);
            }
        }
        for (at, commit) in &self.lost.commits {
            let had = |name: &str| self.places.get(name).is_some_and(|of| commit.had.contains_key(of));
            for (name, value) in commit.writes.iter().filter(|(name, _)| had(name)) {
                written.entry(name.as_str()).or_default().insert(*at, *value);
            }
        }
        written
    }

    /// True if what a commit has written under a key is lost of the manager's log, and need not be seen by
    /// this operation: its partition has lost it too, or nobody had told the manager yet to go on behind it.
    fn may_be_lost(&self, name: &str, at: Position, operation: &TxnOperation) -> bool {
        let Some(lost) = self.lost.commits.get(&at) else { return false };
        let Some(place) = self.places.get(name) else { return true };
        let goes_on = |one: &GivenUp| {
            let recovered = one.partition == *place && one.from == one.upto && one.from >= at;
            recovered && one.since < operation.invoked && !operation.stale
        };
        lost.had.get(place) != Some(&true) || !self.given_up.iter().any(goes_on)
    }

    /// True if what a commit has written under a key was given up before this moment.
    fn is_given_up(&self, name: &str, at: Position, before: u64) -> bool {
        let here = |one: &&GivenUp| self.places.get(name) == Some(&one.partition) && one.since <= before;
        self.given_up.iter().filter(here).any(|one| one.from < at && at <= one.upto)
    }

    /// Compares everything that clients saw with it. All that is broken.
    pub fn check(&self, operations: &[TxnOperation]) -> Vec<Broken> {
        let written = self.written();
        let mut broken: Vec<Broken> =
            operations.iter().flat_map(|operation| self.check_one(operation, &written)).collect();
        broken.extend(claims::check(self.commits.iter()).err());
        broken.extend(self.check_order(operations).err());
        broken
    }

    fn check_one(&self, operation: &TxnOperation, written: &Written<'_>) -> Vec<Broken> {
        let Some(snapshot) = operation.snapshot else { return Vec::new() };
        let (reads, commit) = (self.check_reads(operation, written), self.check_commit(operation, snapshot));
        let verdicts = [reads, commit, self.check_unmade(operation)];
        verdicts.into_iter().filter_map(Result::err).collect()
    }

    /// What was read is what the newest commit up to the snapshot has left. It may be what an older one has
    /// left, if all behind that are given up: a partition may have some of these, and lose them step by step.
    fn check_reads(&self, operation: &TxnOperation, written: &Written<'_>) -> Result<(), Broken> {
        for (name, seen, at) in &operation.reads {
            let (seen, at) = (*seen, *at);
            let up_to = || written.get(name.as_str()).into_iter().flat_map(move |all| all.range(..=at).rev());
            let stays = |commit: Position| {
                let gone = self.is_given_up(name, commit, operation.completed);
                !gone && !self.may_be_lost(name, commit, operation)
            };
            let left = up_to().find(|(commit, value)| **value == seen || stays(**commit));
            if seen != left.and_then(|(_, value)| *value) {
                let there = up_to().next().and_then(|(_, value)| *value);
                let sentence = format!("a transaction at {at} read {name} as {seen:?}, and it was {there:?}");
                let id = match (operation.stale, operation.backup) {
                    (true, _) => "PR-322",
                    (false, true) => "PR-330",
                    (false, false) => "PR-252",
                };
                return Err((id, sentence));
            }
        }
        Ok(())
    }

    /// What was acknowledged is there, and nobody wrote its rows behind the snapshot that they rest on.
    fn check_commit(&self, operation: &TxnOperation, snapshot: Position) -> Result<(), Broken> {
        let TxnEnd::Committed(at) = operation.told else { return Ok(()) };
        if self.lost.commits.get(&at).is_some_and(|lost| lost.writes == operation.writes) {
            return Ok(());
        }
        if self.commits.get(&at) != Some(&operation.writes) {
            let there = self.commits.get(&at);
            return Err(("I1", format!("{at} was acknowledged as {:?}, and is {there:?}", operation.writes)));
        }
        let names = operation.writes.iter().map(|(name, _)| name);
        let mut rests = names.map(|name| operation.seen_at(name)).chain([snapshot]);
        if let Some(gone) = rests.find(|seen| self.lost.entries.contains(seen)) {
            return Err(("PR-293", format!("{at} is committed, and rests on {gone}, which is lost")));
        }
        let between =
            self.commits.range((std::ops::Bound::Excluded(snapshot), std::ops::Bound::Excluded(at)));
        for (other, commit) in between {
            let hidden = |name: &str| *other > operation.seen_at(name);
            let mut both = commit.iter().filter(|(name, _)| hidden(name));
            let both = both.find(|(name, _)| operation.writes.iter().any(|(key, _)| key == name));
            if let Some((name, _)) = both {
                let sentence =
                    format!("{at}, which rests on {}, writes {name} over {other}", operation.seen_at(name));
                return Err(("PR-250", sentence));
            }
        }
        Ok(())
    }

    /// What its session said was not made is not there, however late copies of it came. No two of these
    /// transactions write the same values.
    fn check_unmade(&self, operation: &TxnOperation) -> Result<(), Broken> {
        let tells_apart = operation.writes.iter().any(|(_, value)| value.is_some());
        let unmade = operation.resolved && operation.told == TxnEnd::Refused && tells_apart;
        // With the manager's log the session's word may be lost.
        if !unmade || !self.lost.is_empty() {
            return Ok(());
        }
        match self.commits.iter().find(|(_, commit)| **commit == operation.writes) {
            Some((at, commit)) => Err(("PR-361", format!("{at} was said not to be made: {commit:?}"))),
            None => Ok(()),
        }
    }

    /// Whoever begins later sees what was acknowledged before.
    fn check_order(&self, operations: &[TxnOperation]) -> Result<(), Broken> {
        let committed = |operation: &TxnOperation| match operation.told {
            TxnEnd::Committed(at) if !self.lost.commits.contains_key(&at) => Some((operation.completed, at)),
            _ => None,
        };
        let mut acknowledged: Vec<(u64, Position)> = operations.iter().filter_map(committed).collect();
        acknowledged.sort();
        let mut newest = Position::ZERO;
        for (_, at) in &mut acknowledged {
            newest = newest.max(*at);
            *at = newest;
        }
        for operation in operations.iter().filter(|operation| !operation.stale) {
            let Some(snapshot) = operation.snapshot else { continue };
            let before = acknowledged.partition_point(|(since, _)| *since < operation.invoked);
            let Some((_, newest)) = before.checked_sub(1).map(|at| acknowledged[at]) else { continue };
            if snapshot < newest {
                return Err(("R5", format!("a transaction began at {snapshot} behind the commit {newest}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn history() -> History {
        let commit = |key: &str, value| vec![(key.to_string(), value)];
        let commits =
            [(at(2), commit("a", Some(1))), (at(4), commit("b", Some(2))), (at(6), commit("a", None))];
        History { commits: commits.into(), ..History::default() }
    }

    fn txn(snapshot: u64, reads: &[(&str, Option<u64>)], told: TxnEnd) -> TxnOperation {
        let reads = reads.iter().map(|(name, value)| (name.to_string(), *value, at(snapshot))).collect();
        TxnOperation { snapshot: Some(at(snapshot)), reads, told, ..TxnOperation::new(1, 10) }
    }

    /// The first promise that is broken.
    fn verdict(operations: &[TxnOperation]) -> Result<(), &'static str> {
        history().check(operations).into_iter().next().map_or(Ok(()), |(id, _)| Err(id))
    }

    #[test]
    fn a_transaction_reads_its_snapshot_and_nothing_else() {
        let check = |operation| verdict(&[operation]);
        assert_eq!(check(txn(4, &[("a", Some(1)), ("b", Some(2))], TxnEnd::ReadOnly)), Ok(()));
        assert_eq!(check(txn(6, &[("a", None)], TxnEnd::ReadOnly)), Ok(()));
        assert_eq!(check(txn(4, &[("a", None)], TxnEnd::ReadOnly)), Err("PR-252"), "of a later commit");
        assert_eq!(check(txn(4, &[("b", None)], TxnEnd::ReadOnly)), Err("PR-252"), "half of it");
    }

    #[test]
    fn what_an_operator_has_given_up_may_be_missing_and_nothing_else() {
        let places = [("a".to_string(), PartitionId(65)), ("b".to_string(), PartitionId(66))].into();
        let check = |reads: &[(&str, Option<u64>)], partition, (from, upto), since| {
            let given_up =
                GivenUp { partition: PartitionId(partition), from: at(from), upto: at(upto), since };
            let history = history().without(&[given_up], &places);
            let broken = history.check(&[txn(4, reads, TxnEnd::ReadOnly)]);
            broken.into_iter().next().map_or(Ok(()), |(id, _)| Err(id))
        };
        assert_eq!(check(&[("b", None)], 66, (2, 4), 5), Ok(()), "it is gone");
        assert_eq!(check(&[("b", Some(2))], 66, (2, 4), 5), Ok(()), "it was there before");
        assert_eq!(check(&[("b", None)], 66, (2, 4), 11), Err("PR-252"), "it is given up later");
        assert_eq!(check(&[("b", None)], 66, (4, 6), 5), Err("PR-252"), "what it has is not given up");
        assert_eq!(check(&[("b", None)], 66, (1, 3), 5), Err("PR-252"), "nor what lies behind");
        assert_eq!(check(&[("b", None)], 65, (2, 4), 5), Err("PR-252"), "another partition has lost it");
        assert_eq!(check(&[("a", None), ("b", None)], 66, (0, 4), 5), Err("PR-252"), "and this one has not");
    }

    #[test]
    fn of_what_is_given_up_a_partition_may_have_some() {
        let places = [("a".to_string(), PartitionId(65))].into();
        let given_up = |from, upto| {
            let (partition, since) = (PartitionId(65), 5);
            GivenUp { partition, from: at(from), upto: at(upto), since }
        };
        let check = |seen: Option<u64>, given_up: &[GivenUp]| {
            let history = history().without(given_up, &places);
            history.check(&[txn(6, &[("a", seen)], TxnEnd::ReadOnly)]).is_empty()
        };
        assert!(check(None, &[given_up(4, 6)]) && check(Some(1), &[given_up(4, 6)]));
        assert!(check(Some(1), &[given_up(0, 2), given_up(2, 6)]), "the later ones alone are gone");
        assert!(!check(Some(1), &[given_up(0, 2)]), "the later one is there");
    }

    #[test]
    fn the_first_committer_wins_and_what_was_acknowledged_is_there() {
        let check = |snapshot, at_lsn, key: &str, value| {
            let writes = vec![(key.to_string(), value)];
            let operation = TxnOperation { writes, ..txn(snapshot, &[], TxnEnd::Committed(at(at_lsn))) };
            verdict(&[operation])
        };
        assert_eq!(check(4, 6, "a", None), Ok(()));
        assert_eq!(check(1, 6, "a", None), Err("PR-250"), "written at 2");
        assert_eq!(check(4, 6, "a", Some(9)), Err("I1"), "another content");
        assert_eq!(check(4, 5, "a", None), Err("I1"), "lost");
    }

    #[test]
    fn pr361_what_was_said_not_to_be_made_is_not_there() {
        let check = |resolved, value| {
            let writes = vec![("b".to_string(), value)];
            verdict(&[TxnOperation { writes, resolved, ..txn(2, &[], TxnEnd::Refused) }])
        };
        assert_eq!(check(true, Some(9)), Ok(()), "another one wrote it");
        assert_eq!(check(true, Some(2)), Err("PR-361"), "a late copy of it was executed");
        assert_eq!(check(true, None), Ok(()), "rows that go say nothing of who removed them");
    }

    #[test]
    fn a_row_rests_on_the_snapshot_at_which_it_was_read() {
        let check = |read_at: u64| {
            let writes = vec![("a".to_string(), None)];
            let reads = vec![("a".to_string(), Some(1), at(read_at))];
            let operation = TxnOperation { writes, reads, ..txn(1, &[], TxnEnd::Committed(at(6))) };
            verdict(&[operation])
        };
        assert_eq!(check(2), Ok(()), "written at 2, read behind it");
        assert_eq!(check(1), Err("PR-252"), "there was nothing yet");
    }

    #[test]
    fn who_begins_later_sees_what_was_acknowledged() {
        let first = TxnOperation {
            writes: vec![("b".into(), Some(2))],
            invoked: 1,
            completed: 5,
            ..txn(2, &[], TxnEnd::Committed(at(4)))
        };
        assert_eq!(verdict(&[first.clone(), txn(4, &[], TxnEnd::ReadOnly)]), Ok(()));
        let old = txn(2, &[], TxnEnd::ReadOnly);
        assert_eq!(verdict(&[first.clone(), old.clone()]), Err("R5"));
        assert_eq!(verdict(&[first, TxnOperation { stale: true, ..old }]), Ok(()), "what all have secured");
    }

    #[test]
    fn pr322_what_all_have_secured_is_the_state_at_its_timestamp() {
        let check = |reads: &[(&str, Option<u64>)]| {
            verdict(&[TxnOperation { stale: true, ..txn(4, reads, TxnEnd::ReadOnly) }])
        };
        assert_eq!(check(&[("a", Some(1)), ("b", Some(2))]), Ok(()));
        assert_eq!(check(&[("a", Some(1)), ("b", None)]), Err("PR-322"), "a copy that lacked it");
        assert_eq!(check(&[("a", None)]), Err("PR-322"), "of a later commit");
    }
}
