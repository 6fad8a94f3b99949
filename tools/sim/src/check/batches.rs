//! I9, I5: a write of several rows is done as a whole or not at all, at one position; it comes to what its
//! operations say of the state just below.

use crate::check::history::{Answer, Batch, Operation, RowChange};
use crate::check::lineage::{Change, Known};
use crate::check::states::States;
use std::collections::BTreeMap;
use types::Lsn;

/// Why a write is refused by what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// An insert found its row.
    Exists,
    /// A row is not as the snapshot had it.
    Changed,
}

/// What a batch comes to in the state at an LSN: its changes in order, or why it is refused.
pub fn comes_to(batch: &Batch, states: &States<'_>, at: Lsn) -> Result<Vec<Change>, Refused> {
    // A write sees its own earlier operations, and what it wrote itself rests on no snapshot.
    let mut own: BTreeMap<&str, bool> = BTreeMap::new();
    let mut changes = Vec::new();
    for (change, key) in &batch.ops {
        let there = match own.get(key.as_str()) {
            Some(there) => *there,
            None => {
                let row = states.row(key, at);
                let rests = !matches!(change, RowChange::Put | RowChange::Insert);
                let unchanged = |since: Lsn| row.is_some_and(|(lsn, _)| lsn <= since);
                if batch.since.is_some_and(|since| rests && !unchanged(since.lsn)) {
                    return Err(Refused::Changed);
                }
                row.is_some()
            }
        };
        match change {
            RowChange::Insert if there => return Err(Refused::Exists),
            RowChange::Update | RowChange::Delete if !there => continue,
            RowChange::Keep => continue,
            RowChange::Delete => changes.push((key.clone(), None)),
            RowChange::Put | RowChange::Insert | RowChange::Update => {
                changes.push((key.clone(), Some(batch.value)));
            }
        }
        own.insert(key, !matches!(change, RowChange::Delete));
    }
    Ok(changes)
}

/// Checks a batch against its entry in the log. Where `whole` is false its session was told of a log that is
/// lost, and what was refused rested on another state. The error is the id of the promise that was broken,
/// and a sentence.
pub fn check(
    (operation, batch): (&Operation, &Batch),
    known: &Known,
    states: &States<'_>,
    whole: bool,
) -> Result<(), (&'static str, String)> {
    let is_empty = known.changes.is_empty() && known.marks.is_empty();
    // A snapshot that is lost refuses everything.
    if !whole && is_empty && matches!(operation.told, Answer::Changed(_) | Answer::Unknown) {
        return Ok(());
    }
    // What is refused is an entry without changes.
    let expected = comes_to(batch, states, known.at.lsn.prev());
    let (changes, marks) = match &expected {
        Ok(changes) => (changes.as_slice(), batch.mark.as_slice()),
        Err(_) => (&[][..], &[][..]),
    };
    if known.changes != changes || known.marks != marks {
        let (at, made) = (known.at, (&known.changes, &known.marks));
        let sentence = format!("{operation:?} should come to {expected:?} at {at}, and made {made:?}");
        return Err(("I9", sentence));
    }
    let told = match operation.told {
        Answer::Done { .. } => expected.is_ok(),
        Answer::Exists(_) => expected == Err(Refused::Exists),
        Answer::Changed(_) => expected == Err(Refused::Changed),
        Answer::NotDone => expected.is_err(),
        _ => true,
    };
    match told {
        true => Ok(()),
        false => Err(("I9", format!("{operation:?} came to {expected:?} at {}", known.at))),
    }
}

/// Checks a batch that has no entry in the log. Outside of a session a refusal is none: it says what is at
/// its position. The error is the id of the promise that was broken, and a sentence.
pub fn check_refusal(
    (operation, batch): (&Operation, &Batch),
    states: &States<'_>,
) -> Result<(), (&'static str, String)> {
    let (why, at) = match operation.told {
        Answer::Exists(at) => (Refused::Exists, at),
        Answer::Changed(at) => (Refused::Changed, at),
        _ => return Ok(()),
    };
    let expected = comes_to(batch, states, at);
    match expected == Err(why) {
        true => Ok(()),
        false => Err(("I9", format!("{operation:?} should come to {expected:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::history::Action;
    use crate::check::lineage::tests::{P, at};
    use RowChange::*;

    fn known(lsn: u64, changes: &[(&str, Option<u64>)]) -> Known {
        crate::check::lineage::tests::known(lsn, changes, &[])
    }

    fn batch(ops: &[(RowChange, &str)], since: Option<u64>) -> Batch {
        let ops = ops.iter().map(|(change, key)| (*change, key.to_string())).collect();
        Batch { value: 9, ops, since: since.map(|lsn| at(1, lsn)), mark: None }
    }

    fn verdict(
        below: &[Known],
        batch: Batch,
        made: Option<&Known>,
        told: Answer,
    ) -> Result<(), &'static str> {
        let action = Action::Batch(Box::new(batch.clone()));
        let (key, session) = (String::new(), None);
        let operation = Operation {
            number: 9,
            client: 0,
            partition: P,
            key,
            action,
            session,
            invoked: 0,
            completed: 1,
            told,
        };
        let states = States::of(below.iter().chain(made));
        let verdict = match made {
            Some(made) => check((&operation, &batch), made, &states, true),
            None => check_refusal((&operation, &batch), &states),
        };
        verdict.map_err(|(id, _)| id)
    }

    #[test]
    fn a_write_that_was_done_in_part_is_rejected() {
        let below = [known(2, &[("a", Some(1))])];
        let two = || batch(&[(Put, "a"), (Insert, "b")], None);
        let done = Answer::Done { at: at(1, 3), copies: 3 };
        let whole = known(3, &[("a", Some(9)), ("b", Some(9))]);
        assert_eq!(verdict(&below, two(), Some(&whole), done.clone()), Ok(()));
        assert_eq!(verdict(&below, two(), Some(&whole), Answer::Unknown), Ok(()));
        assert_eq!(verdict(&below, two(), Some(&whole), Answer::NotDone), Err("I9"));
        let part = known(3, &[("a", Some(9))]);
        assert_eq!(verdict(&below, two(), Some(&part), done.clone()), Err("I9"));
        assert_eq!(verdict(&below, two(), Some(&part), Answer::Unknown), Err("I9"));
        // What is refused changes nothing at all.
        let refused = batch(&[(Put, "b"), (Insert, "a")], None);
        let exists = Answer::Exists(Lsn(3));
        assert_eq!(verdict(&below, refused.clone(), Some(&known(3, &[])), exists.clone()), Ok(()));
        let left = known(3, &[("b", Some(9))]);
        assert_eq!(verdict(&below, refused, Some(&left), exists), Err("I9"));
    }

    #[test]
    fn a_write_that_rests_on_what_was_replaced_is_rejected() {
        let below = [known(2, &[("a", Some(1))]), known(4, &[("a", Some(2))])];
        let made = known(5, &[("b", Some(9))]);
        let since = |lsn| batch(&[(Keep, "a"), (Put, "b")], Some(lsn));
        assert_eq!(verdict(&below, since(4), Some(&made), Answer::Unknown), Ok(()));
        assert_eq!(verdict(&below, since(3), Some(&made), Answer::Unknown), Err("I9"));
        let changed = || Answer::Changed(Lsn(5));
        assert_eq!(verdict(&below, since(3), Some(&known(5, &[])), changed()), Ok(()));
        assert_eq!(verdict(&below, since(4), Some(&known(5, &[])), changed()), Err("I9"));
        assert_eq!(verdict(&below, since(3), None, changed()), Ok(()));
        assert_eq!(verdict(&below, since(4), None, changed()), Err("I9"), "nothing had changed");
    }

    #[test]
    fn a_write_sees_its_own_earlier_operations() {
        let below = [known(2, &[("a", Some(1))])];
        let states = States::of(&below);
        let come = |ops: &[(RowChange, &str)]| comes_to(&batch(ops, None), &states, Lsn(2));
        let row = |key: &str, value| (key.to_string(), value);
        assert_eq!(come(&[(Delete, "a"), (Insert, "a")]), Ok(vec![row("a", None), row("a", Some(9))]));
        assert_eq!(come(&[(Insert, "b"), (Insert, "b")]), Err(Refused::Exists));
        assert_eq!(come(&[(Update, "b"), (Keep, "a"), (Delete, "c")]), Ok(vec![]));
    }

    #[test]
    fn a_mark_that_is_not_beside_its_rows_is_rejected() {
        let marked = Batch { mark: Some((1, 9)), ..batch(&[(Put, "a")], None) };
        let done = || Answer::Done { at: at(1, 3), copies: 3 };
        let with = |marks: Vec<(u64, u64)>| Known { marks, ..known(3, &[("a", Some(9))]) };
        assert_eq!(verdict(&[], marked.clone(), Some(&with(vec![(1, 9)])), done()), Ok(()));
        assert_eq!(verdict(&[], marked.clone(), Some(&with(vec![])), done()), Err("I9"));
        assert_eq!(verdict(&[], marked, Some(&with(vec![(1, 8)])), done()), Err("I9"));
    }
}
