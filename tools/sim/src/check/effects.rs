//! I9, I4, F25: each request has at most one effect, at the place that was told; nothing was read that is not
//! there; and reads show what was there at their position.

use crate::check::history::{Action, Answer, Operation};
use crate::check::lineage::Known;
use crate::check::survival::LossyFailover;
use std::collections::BTreeMap;
use types::{Epoch, Lsn, Position};

/// A partition's final log, oldest entry first, and what may be missing from it.
pub struct Final<'a> {
    /// Its entries.
    pub line: Vec<&'a Known>,
    /// Acknowledged commits that are lost, rightly, and since when (virtual microseconds).
    pub lost: BTreeMap<Position, u64>,
    /// The last failover that said that it may have lost something.
    pub lossy: Option<LossyFailover>,
}

impl Final<'_> {
    /// True if an answer of a primary in this epoch shows this log and no other: what was told before the
    /// last lossy failover may be lost.
    fn is_of(&self, epoch: Epoch) -> bool {
        self.lossy.is_none_or(|lossy| lossy.epoch <= epoch)
    }

    /// True if this was lost before the operation began, so that nobody may have called it kept.
    fn was_lost_before(&self, operation: &Operation, at: &Position) -> bool {
        self.lost.get(at).is_some_and(|since| *since < operation.invoked)
    }

    fn writers(&self) -> BTreeMap<u64, Vec<&Known>> {
        let mut writers: BTreeMap<u64, Vec<&Known>> = BTreeMap::new();
        for known in &self.line {
            for value in known.changes.iter().filter_map(|(_, value)| *value) {
                writers.entry(value).or_default().push(known);
            }
        }
        writers
    }

    /// The newest change of a key at or below an LSN.
    fn newest(&self, key: &str, at: Lsn) -> Option<(Lsn, u64)> {
        let below = self.line.iter().rev().skip_while(|known| known.at.lsn > at);
        for known in below {
            if let Some((_, value)) = known.changes.iter().rev().find(|(of, _)| of == key) {
                return value.map(|value| (known.at.lsn, value));
            }
        }
        None
    }
}

/// Checks the operations on one partition against its final log: the id of the promise that was broken, and a
/// sentence.
pub fn check(last: &Final<'_>, operations: &[&Operation]) -> Result<(), (&'static str, String)> {
    let writers = last.writers();
    for operation in operations {
        match operation.action.writes() {
            true => written(last, &writers, operation)?,
            false => read(last, &writers, operation)?,
        }
    }
    Ok(())
}

/// PR-47: what sessions said is lost is not there.
pub fn check_losses<'a>(
    last: &Final<'_>,
    mut told: impl Iterator<Item = &'a Position>,
) -> Result<(), String> {
    let there = told.find(|at| last.line.iter().any(|known| known.at == **at));
    there.map_or(Ok(()), |at| Err(format!("what is at {at} was said to be lost, and is there")))
}

fn written(
    last: &Final<'_>,
    writers: &BTreeMap<u64, Vec<&Known>>,
    operation: &Operation,
) -> Result<(), (&'static str, String)> {
    let made: &[&Known] = match operation.action.value() {
        Some(value) => writers.get(&value).map(Vec::as_slice).unwrap_or_default(),
        None => &[],
    };
    if made.len() > 1 {
        let places: Vec<String> = made.iter().map(|known| known.at.to_string()).collect();
        return Err(("I9", format!("{operation:?} had an effect at {}", places.join(" and "))));
    }
    if let (Action::Swap { read, since, .. }, Some(made)) = (&operation.action, made.first()) {
        let before = last.newest(&operation.key, made.at.lsn.prev());
        if before != *read {
            let sentence = format!("{operation:?} at {} rests on {since}, and follows {before:?}", made.at);
            return Err(("I5", sentence));
        }
    }
    if let (Action::Insert(_), Some(made)) = (&operation.action, made.first())
        && let Some(before) = last.newest(&operation.key, made.at.lsn.prev())
    {
        return Err(("I9", format!("{operation:?} at {} replaced {before:?}", made.at)));
    }
    match &operation.told {
        Answer::Done { at, .. } if last.lost.contains_key(at) => {}
        Answer::Done { at, .. } => {
            let there = last.line.iter().find(|known| known.at == *at);
            let ours = there.is_some_and(|known| match operation.session {
                Some(session) => known.session == Some(session),
                None => made.first().is_some_and(|made| made.at == *at),
            });
            if !ours {
                return Err(("I9", format!("{operation:?} has no effect there: {there:?}")));
            }
            if operation.action.value().is_some() && made.is_empty() {
                return Err(("I9", format!("{operation:?} was acknowledged without an effect")));
            }
        }
        Answer::NotDone if !made.is_empty() => {
            return Err(("I9", format!("{operation:?} was not done, and is at {}", made[0].at)));
        }
        Answer::Exists(_) | Answer::Changed if !made.is_empty() => {
            return Err(("I9", format!("{operation:?} was refused, and is at {}", made[0].at)));
        }
        Answer::Exists(at) if last.lossy.is_none() => {
            let there = last.line.iter().any(|known| {
                known.at.lsn <= *at
                    && known.changes.iter().any(|(key, value)| *key == operation.key && value.is_some())
            });
            if !there {
                return Err(("I4", format!("{operation:?} was shown a row that never was")));
            }
        }
        _ => {}
    }
    Ok(())
}

fn read(
    last: &Final<'_>,
    writers: &BTreeMap<u64, Vec<&Known>>,
    operation: &Operation,
) -> Result<(), (&'static str, String)> {
    match (&operation.told, &operation.action) {
        (Answer::Found { row, at, epoch }, action) => {
            let any = matches!(action, Action::GetAny(_));
            if let (Action::GetAny(token), None) = (action, last.lossy)
                && at < token
            {
                return Err(("I5", format!("{operation:?} was answered below its token")));
            }
            if row.is_some_and(|(lsn, _)| lsn > *at) {
                return Err(("I4", format!("{operation:?} shows what was not committed")));
            }
            if any && last.lossy.is_some() || !last.is_of(*epoch) {
                return Ok(());
            }
            if let Some((_, value)) = row
                && !writers.contains_key(value)
            {
                return Err(("I4", format!("{operation:?} was shown what is lost")));
            }
            let there = last.newest(&operation.key, *at);
            if there != *row {
                return Err(("I5", format!("{operation:?} should have found {there:?}")));
            }
        }
        (Answer::Ended(end), Action::TermEnd(asked)) => {
            let kept = last.line.iter().any(|known| known.at == *asked);
            // A term that goes on has everything that it acknowledged.
            let told_kept = end.is_none_or(|end| end >= asked.lsn);
            let wrong = match kept {
                true => !told_kept,
                false => told_kept && last.was_lost_before(operation, asked),
            };
            if wrong {
                return Err((
                    "I14",
                    format!("{operation:?}: {asked} is {}", if kept { "there" } else { "lost" }),
                ));
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::tests::{P, at};
    use types::SessionId;

    fn known(lsn: u64, key: &str, value: u64, seq: u64) -> Known {
        let session = Some((SessionId(at(1, 1)), seq));
        Known { at: at(1, lsn), crc: 0, prev_crc: 0, session, changes: vec![(key.into(), Some(value))] }
    }

    fn operation(key: &str, action: Action, told: Answer) -> Operation {
        let session = action.writes().then_some((SessionId(at(1, 1)), 1));
        Operation {
            number: 1,
            client: 0,
            partition: P,
            key: key.into(),
            action,
            session,
            invoked: 0,
            completed: 1,
            told,
        }
    }

    fn verdict(line: &[Known], operation: &Operation) -> Result<(), &'static str> {
        let last = Final { line: line.iter().collect(), lost: BTreeMap::new(), lossy: None };
        check(&last, &[operation]).map_err(|(id, _)| id)
    }

    fn found(row: Option<(u64, u64)>, at: u64) -> Answer {
        Answer::Found { row: row.map(|(lsn, value)| (Lsn(lsn), value)), at: Lsn(at), epoch: Epoch(1) }
    }

    #[test]
    fn effects_that_are_missing_doubled_or_unwanted_are_rejected() {
        let line = [known(2, "a", 7, 1)];
        let done = |lsn| Answer::Done { at: at(1, lsn), copies: 1 };
        assert_eq!(verdict(&line, &operation("a", Action::Put(7), done(2))), Ok(()));
        assert_eq!(verdict(&line, &operation("a", Action::Put(7), Answer::Unknown)), Ok(()));
        assert_eq!(verdict(&line, &operation("a", Action::Put(8), Answer::NotDone)), Ok(()));
        assert_eq!(verdict(&line, &operation("a", Action::Put(7), Answer::NotDone)), Err("I9"));
        assert_eq!(verdict(&line, &operation("a", Action::Put(8), done(2))), Err("I9"));
        assert_eq!(verdict(&line, &operation("a", Action::Put(7), done(3))), Err("I9"));
        assert_eq!(verdict(&line, &operation("a", Action::Insert(7), Answer::Exists(Lsn(2)))), Err("I9"));
        let twice = [known(2, "a", 7, 1), known(3, "a", 7, 2)];
        assert_eq!(verdict(&twice, &operation("a", Action::Put(7), Answer::Unknown)), Err("I9"));
    }

    #[test]
    fn rows_that_never_were_are_rejected() {
        let line = [known(2, "a", 7, 1), known(3, "a", 8, 2)];
        assert_eq!(verdict(&line, &operation("a", Action::Insert(9), Answer::Exists(Lsn(2)))), Ok(()));
        assert_eq!(verdict(&line, &operation("b", Action::Insert(9), Answer::Exists(Lsn(3)))), Err("I4"));
        assert_eq!(verdict(&line, &operation("a", Action::Insert(9), Answer::Exists(Lsn(1)))), Err("I4"));
        assert_eq!(verdict(&line, &operation("a", Action::Get(false), found(Some((3, 8)), 3))), Ok(()));
        assert_eq!(verdict(&line, &operation("a", Action::Get(false), found(Some((3, 8)), 2))), Err("I4"));
        assert_eq!(verdict(&line, &operation("a", Action::Get(false), found(Some((3, 99)), 3))), Err("I4"));
    }

    #[test]
    fn reads_of_another_state_than_that_of_their_position_are_rejected() {
        let line = [known(2, "a", 7, 1), known(3, "a", 8, 2)];
        assert_eq!(verdict(&line, &operation("a", Action::Get(false), found(Some((2, 7)), 3))), Err("I5"));
        assert_eq!(verdict(&line, &operation("a", Action::Get(false), found(None, 2))), Err("I5"));
        let any = Action::GetAny(Lsn(3));
        assert_eq!(
            verdict(&line, &operation("a", any, found(Some((2, 7)), 2))),
            Err("I5"),
            "below its token"
        );
    }

    #[test]
    fn a_write_that_rests_on_what_was_replaced_is_rejected() {
        let line = [known(2, "a", 7, 1), known(3, "a", 8, 2), known(4, "a", 9, 3)];
        let swap = |read, since| {
            let (action, told) = (Action::Swap { value: 9, read, since }, Answer::Unknown);
            verdict(
                &line,
                &Operation { session: Some((SessionId(at(1, 1)), 3)), ..operation("a", action, told) },
            )
        };
        assert_eq!(swap(Some((Lsn(3), 8)), at(1, 3)), Ok(()));
        assert_eq!(swap(Some((Lsn(2), 7)), at(1, 2)), Err("I5"));
        assert_eq!(swap(None, at(1, 1)), Err("I5"));
        let action = Action::Swap { value: 9, read: Some((Lsn(3), 8)), since: at(1, 3) };
        assert_eq!(verdict(&line, &operation("a", action, Answer::Changed)), Err("I9"));
    }

    #[test]
    fn a_wrong_word_about_an_epochs_end_is_rejected() {
        let line = [known(2, "a", 7, 1)];
        let asked = Action::TermEnd(at(1, 2));
        assert_eq!(verdict(&line, &operation("", asked.clone(), Answer::Ended(Some(Lsn(2))))), Ok(()));
        assert_eq!(verdict(&line, &operation("", asked, Answer::Ended(Some(Lsn(1))))), Err("I14"));
    }

    #[test]
    fn a_loss_that_is_told_and_is_none_is_rejected() {
        let line = [known(2, "a", 7, 1)];
        let last = Final { line: line.iter().collect(), lost: BTreeMap::new(), lossy: None };
        assert_eq!(check_losses(&last, [at(1, 3), at(2, 2)].iter()), Ok(()));
        assert!(check_losses(&last, [at(1, 3), at(1, 2)].iter()).is_err());
    }

    #[test]
    fn a_loss_that_came_after_the_word_was_given_makes_it_no_lie() {
        let asked = operation("", Action::TermEnd(at(1, 2)), Answer::Ended(Some(Lsn(2))));
        let lost_at = |since| {
            let lost = BTreeMap::from([(at(1, 2), since)]);
            let last = Final { line: Vec::new(), lost, lossy: None };
            let later = Operation { invoked: 20, completed: 21, ..asked.clone() };
            check(&last, &[&later]).map_err(|(id, _)| id)
        };
        assert_eq!(lost_at(20), Ok(()), "it was there when it was asked for");
        assert_eq!(lost_at(19), Err("I14"));
    }

    #[test]
    fn a_term_that_is_said_to_go_on_has_lost_nothing() {
        let asked = operation("", Action::TermEnd(at(1, 2)), Answer::Ended(None));
        let lost = BTreeMap::from([(at(1, 2), 5)]);
        let last = Final { line: Vec::new(), lost, lossy: None };
        let later = Operation { invoked: 20, completed: 21, ..asked.clone() };
        assert_eq!(check(&last, &[&later]).map_err(|(id, _)| id), Err("I14"));
        assert_eq!(check(&last, &[&asked]).map_err(|(id, _)| id), Ok(()), "it was lost later");
    }

    #[test]
    fn an_insert_that_replaces_a_row_is_rejected() {
        let line = [known(2, "a", 7, 1), known(3, "a", 8, 2)];
        let insert =
            |value, lsn| operation("a", Action::Insert(value), Answer::Done { at: at(1, lsn), copies: 1 });
        assert_eq!(verdict(&line[..1], &insert(7, 2)), Ok(()));
        let second = Operation { session: Some((SessionId(at(1, 1)), 2)), ..insert(8, 3) };
        assert_eq!(verdict(&line, &second), Err("I9"));
    }

    #[test]
    fn after_a_lossy_failover_reads_are_of_the_log_that_won() {
        let line = [known(2, "a", 7, 1), known(3, "a", 8, 2)];
        let read_in = |epoch, action: Action, row| {
            let lossy = Some(LossyFailover { epoch: Epoch(4), served: 30 });
            let last = Final { line: line.iter().collect(), lost: BTreeMap::new(), lossy };
            let told = Answer::Found { row, at: Lsn(3), epoch: Epoch(epoch) };
            check(&last, &[&operation("a", action, told)]).map_err(|(id, _)| id)
        };
        let (won, gone) = (Some((Lsn(3), 8)), Some((Lsn(3), 9)));
        assert_eq!(read_in(3, Action::Get(false), gone), Ok(()), "before the failover it was there");
        assert_eq!(read_in(4, Action::Get(false), won), Ok(()));
        assert_eq!(read_in(4, Action::Get(false), gone), Err("I4"));
        assert_eq!(read_in(5, Action::Get(false), Some((Lsn(2), 7))), Err("I5"));
        assert_eq!(read_in(4, Action::GetAny(Lsn(3)), gone), Ok(()), "a replica may not know yet");
    }
}
