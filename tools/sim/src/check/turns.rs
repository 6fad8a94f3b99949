//! PR-374, PR-377, PR-410: turns at rows. In one term a row is one transaction's at a time, until it is
//! written, or the transaction ends, its connection does, or it has been silent for long; and who gets a turn
//! reads what was written in the one before. That each turn ends is looked at in healed worlds
//! (`world/phases.rs`).

use super::Broken;
use super::lineage::Lineage;
use std::collections::BTreeMap;
use types::{Epoch, Lsn, PartitionId, Term};

/// A transaction that asked for a turn longer ago than this, virtual microseconds, may have lost it: that
/// happens ten seconds behind its last question, by a clock that may be a little fast.
const MAY_BE_SILENT_US: u64 = 8_000_000;

/// A turn that a client was told of. Times are virtual microseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The client, and the number of its transaction.
    pub who: (u32, u64),
    /// The partition.
    pub partition: PartitionId,
    /// The row.
    pub key: String,
    /// When it was asked for.
    pub asked: u64,
    /// When it was told.
    pub answered: u64,
    /// Where the log ended when it began, as the answer has it.
    pub at: Lsn,
    /// The configuration in which it was told.
    pub epoch: Epoch,
    /// From then on somebody else may have it: its transaction said that it is over, or lost the connection.
    pub ended: Option<u64>,
    /// Where the first read behind it was answered, and in which configuration.
    pub read: Option<(Lsn, Epoch)>,
}

impl Turn {
    /// True if this one may have ended before that one began. `written` has the entries that wrote the row.
    fn ends_before(&self, next: &Turn, written: &[Lsn]) -> bool {
        let passed = written.iter().any(|at| *at > self.at && *at <= next.at);
        let over = self.ended.is_some_and(|ended| ended <= next.answered);
        let silent = next.answered >= self.asked + MAY_BE_SILENT_US;
        self.at <= next.at && (passed || over || silent)
    }

    /// True if this one and the other one need not have been at once.
    fn is_apart(&self, other: &Turn, written: &[Lsn]) -> bool {
        self.who == other.who || self.ends_before(other, written) || other.ends_before(self, written)
    }
}

/// All that is wrong with turns. `term` has the term of each configuration of a partition.
pub fn check(
    turns: &[Turn],
    lineage: &Lineage,
    term: impl Fn(PartitionId, Epoch) -> Option<Term>,
) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut rows: BTreeMap<(PartitionId, Term, &str), Vec<&Turn>> = BTreeMap::new();
    for turn in turns {
        let Some(of) = term(turn.partition, turn.epoch) else { continue };
        rows.entry((turn.partition, of, turn.key.as_str())).or_default().push(turn);
        let read = turn.read.filter(|(_, epoch)| term(turn.partition, *epoch) == Some(of));
        if let Some((at, _)) = read.filter(|(at, _)| *at < turn.at) {
            broken.push(("PR-377", format!("a read behind {turn:?} shows the state at {at}")));
        }
    }
    for ((partition, term, key), turns) in rows {
        let written = written(lineage, partition, term, key);
        broken.extend(shared(&turns, &written));
    }
    broken
}

/// The entries of a term that wrote a row.
fn written(lineage: &Lineage, partition: PartitionId, term: Term, key: &str) -> Vec<Lsn> {
    let Some(tip) = lineage.tips(partition).get(&term).copied() else { return Vec::new() };
    let line = lineage.line(partition, tip).take_while(|known| known.at.term == term);
    let writes = line.filter(|known| known.changes.iter().any(|(name, _)| name == key));
    writes.map(|known| known.at.lsn).collect()
}

/// Two transactions that had the turn at a row at once, in one term.
fn shared(turns: &[&Turn], written: &[Lsn]) -> Option<Broken> {
    for (place, one) in turns.iter().enumerate() {
        let two = turns[place + 1..].iter().find(|two| !one.is_apart(two, written));
        if let Some(two) = two {
            return Some(("PR-410", format!("{one:?} and {two:?} are at one row at once")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::tests::{P, at, entry};

    /// The turn of a transaction at `a`, asked for and told a moment later.
    fn turn(number: u64, lsn: u64, ended: Option<u64>) -> Turn {
        Turn {
            who: (1, number),
            partition: P,
            key: "a".into(),
            asked: 10 * number,
            answered: 10 * number + 1,
            at: Lsn(lsn),
            epoch: Epoch(1),
            ended,
            read: None,
        }
    }

    /// The log has two entries, of which the second one writes `a`.
    fn verdict(turns: &[Turn]) -> Vec<&'static str> {
        let mut lineage = Lineage::default();
        let first = entry(at(1, 1), 0, "b", 1);
        let second = entry(at(1, 2), first.crc(), "a", 2);
        [&first, &second].into_iter().for_each(|entry| lineage.add(entry).expect("it follows"));
        let term = |_: PartitionId, epoch: Epoch| (epoch < Epoch(9)).then_some(Term(1));
        check(turns, &lineage, term).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn pr410_two_turns_at_once_are_rejected_and_one_behind_the_other_is_not() {
        let none = [""; 0];
        assert_eq!(verdict(&[turn(1, 1, None), turn(2, 1, None)]), ["PR-410"]);
        assert_eq!(verdict(&[turn(1, 1, Some(15)), turn(2, 1, None)]), none, "it had said that it is over");
        assert_eq!(verdict(&[turn(1, 1, Some(25)), turn(2, 1, None)]), ["PR-410"], "that was later");
        assert_eq!(verdict(&[turn(1, 1, None), turn(2, 2, None)]), none, "the row was written in between");
        assert_eq!(verdict(&[turn(1, 2, None), turn(2, 2, None)]), ["PR-410"], "it was written before");
        assert_eq!(
            verdict(&[turn(2, 1, None), turn(1, 1, Some(15))]),
            none,
            "in whatever order they are told"
        );
        let late = Turn { answered: 9_000_000, ..turn(2, 1, None) };
        assert_eq!(verdict(&[turn(1, 1, None), late]), none, "it has been silent for long");
        let other = Turn { key: "b".into(), ..turn(2, 1, None) };
        assert_eq!(verdict(&[turn(1, 1, None), other]), none, "another row");
        let unknown = Turn { epoch: Epoch(9), ..turn(2, 1, None) };
        assert_eq!(verdict(&[turn(1, 1, None), unknown]), none, "whose term nobody knows");
        let again = Turn { who: (1, 1), ..turn(2, 1, None) };
        assert_eq!(verdict(&[turn(1, 1, None), again]), none, "it asks for what it has");
    }

    #[test]
    fn pr377_a_read_of_what_was_before_the_turn_is_rejected() {
        let read = |at: u64, epoch: u64| Turn { read: Some((Lsn(at), Epoch(epoch))), ..turn(1, 2, None) };
        assert_eq!(verdict(&[read(1, 1)]), ["PR-377"]);
        assert_eq!(verdict(&[read(2, 2)]), [""; 0]);
        assert_eq!(verdict(&[read(1, 9)]), [""; 0], "of another term");
    }
}
