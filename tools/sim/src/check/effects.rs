//! I9, I4, F25: each request has at most one effect, at the place that was told; nothing was read that is not
//! there; and reads show what was there at their position.

use crate::check::final_log::Final;
use crate::check::history::{Action, Answer, Batch, Operation};
use crate::check::lineage::Known;
use crate::check::states::States;
use crate::check::{Broken, batches, ranges};
use std::collections::BTreeMap;
use types::{Lsn, PartitionId, Position, SessionId, Term};

/// Where writes have their effects, by what is known of a write.
struct Writers<'a> {
    by_value: BTreeMap<u64, Vec<&'a Known>>,
    by_session: BTreeMap<(SessionId, u64), Vec<&'a Known>>,
}

impl<'a> Writers<'a> {
    fn of(line: &[&'a Known]) -> Writers<'a> {
        let mut writers = Writers { by_value: BTreeMap::new(), by_session: BTreeMap::new() };
        for known in line {
            for value in known.changes.iter().filter_map(|(_, value)| *value) {
                let places = writers.by_value.entry(value).or_default();
                // A batch gives several rows one value.
                if places.last().is_none_or(|last| last.at != known.at) {
                    places.push(known);
                }
            }
            if let Some(session) = known.session {
                writers.by_session.entry(session).or_default().push(known);
            }
        }
        writers
    }

    /// The entries that this write made, without those that it was refused by.
    fn made(&self, operation: &Operation) -> &[&'a Known] {
        let value = operation.action.value();
        value.and_then(|value| self.by_value.get(&value)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The entries of its number in its session, refusals included.
    fn numbered(&self, operation: &Operation) -> &[&'a Known] {
        let numbered = operation.session.and_then(|session| self.by_session.get(&session));
        numbered.map(Vec::as_slice).unwrap_or_default()
    }

    /// The entry of a batch. One without values is known by its number, and where it was said to be: what was
    /// not done, or is lost, leaves its number to others. `after`: it was told of the log that won, `whole`:
    /// so was all that its session was told.
    fn entry(&self, operation: &Operation, after: bool, whole: bool) -> Option<&'a Known> {
        let here = |known: &&&Known| match operation.told {
            Answer::Done { at, .. } => known.at == at,
            Answer::Exists(at) | Answer::Changed(at) => after && known.at.lsn == at,
            Answer::Unknown => whole,
            _ => false,
        };
        let numbered = || self.numbered(operation).iter().find(here);
        self.made(operation).first().or_else(numbered).copied()
    }
}

/// All that is wrong with the operations on one partition, compared with its final log.
pub fn faults(last: &Final<'_>, operations: &[&Operation]) -> impl Iterator<Item = Broken> {
    let writers = Writers::of(&last.line);
    operations.iter().flat_map(move |operation| match operation.action.writes() {
        true => written(last, &writers, operation),
        false => {
            let verdicts = [read(last, &writers, operation), looked(last, operation)];
            verdicts.into_iter().filter_map(Result::err).collect()
        }
    })
}

/// An acknowledged write of which a session said that it is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportedLoss {
    /// Where.
    pub partition: PartitionId,
    /// Which.
    pub at: Position,
    /// When it said so, microseconds.
    pub time: u64,
}

/// PR-47: what sessions said is lost is not there. `forced` says when an operator last had another lead, and
/// in which term: that copy may have what was given up before, and an older term had made, and then it
/// counts again (PR-08).
pub fn check_losses<'a>(
    last: &Final<'_>,
    told: impl Iterator<Item = &'a ReportedLoss>,
    forced: Option<(u64, Term)>,
) -> Result<(), String> {
    let again =
        |lost: &ReportedLoss| forced.is_some_and(|(time, term)| lost.time < time && lost.at.term < term);
    let mut told = told.filter(|lost| !again(lost));
    let there = told.find(|lost| last.line.iter().any(|known| known.at == lost.at));
    there.map_or(Ok(()), |lost| Err(format!("what is at {} was said to be lost, and is there", lost.at)))
}

/// True if no log that an answer may be of has had a row of this key at or below an LSN.
fn never_had(last: &Final<'_>, operation: &Operation, at: Lsn) -> bool {
    !last.shown_at(operation.invoked).any(|states| states.ever_had(&operation.key, at))
}

/// True if a batch rests on no snapshot, or on one of the log that won: one that is lost refuses everything.
fn has_snapshot(last: &Final<'_>, batch: &Batch) -> bool {
    let is_ours = |since: Position| last.lossy.is_none_or(|lossy| lossy.epoch <= since.term.began());
    batch.since.is_none_or(is_ours)
}

/// A refusal that is no entry says how things are in one of the states that it may be of.
fn refused(last: &Final<'_>, operation: &Operation, batch: &Batch) -> Result<(), Broken> {
    if matches!(operation.told, Answer::Changed(_)) && !has_snapshot(last, batch) {
        return Ok(());
    }
    let verdicts = last.shown_at(operation.invoked);
    let mut verdicts = verdicts.map(|states| batches::check_refusal((operation, batch), states));
    let first = verdicts.next().unwrap_or(Ok(()));
    if first.is_err() && verdicts.any(|verdict| verdict.is_ok()) { Ok(()) } else { first }
}

fn written(last: &Final<'_>, writers: &Writers<'_>, operation: &Operation) -> Vec<Broken> {
    let mut broken = Vec::new();
    let made = writers.made(operation);
    let entries = [made, writers.numbered(operation)].into_iter().find(|entries| entries.len() > 1);
    if let Some(entries) = entries {
        let places: Vec<String> = entries.iter().map(|known| known.at.to_string()).collect();
        broken.push(("I9", format!("{operation:?} had an effect at {}", places.join(" and "))));
    }
    if let Action::Batch(batch) = &operation.action {
        let (after, has_session) = (last.is_after(operation.invoked), last.has_session(operation));
        let verdict = match writers.entry(operation, after, has_session) {
            Some(made) => {
                let whole = after && has_session && has_snapshot(last, batch);
                batches::check((operation, batch), made, &last.states, whole)
            }
            None => refused(last, operation, batch),
        };
        broken.extend(verdict.err());
        broken.extend(acknowledged(last, operation, made).err());
        return broken;
    }
    let verdicts =
        [rests(last, operation, made), acknowledged(last, operation, made), answered(last, operation, made)];
    broken.extend(verdicts.into_iter().filter_map(Result::err));
    broken
}

/// A write that is done only if a row is as it was, or not there, was made just above that state.
fn rests(last: &Final<'_>, operation: &Operation, made: &[&Known]) -> Result<(), Broken> {
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
    Ok(())
}

/// What a client was told of a write is what became of it.
fn answered(last: &Final<'_>, operation: &Operation, made: &[&Known]) -> Result<(), Broken> {
    match &operation.told {
        Answer::Done { .. }
            if last.is_kept(operation) && made.is_empty() && operation.action.value().is_some() =>
        {
            return Err(("I9", format!("{operation:?} was acknowledged without an effect")));
        }
        Answer::NotDone if !made.is_empty() => {
            return Err(("I9", format!("{operation:?} was not done, and is at {}", made[0].at)));
        }
        Answer::Exists(_) | Answer::Changed(_)
            if made.first().is_some_and(|made| !last.is_lost_answer(operation, made)) =>
        {
            return Err(("I9", format!("{operation:?} was refused, and is at {}", made[0].at)));
        }
        Answer::Exists(at) if never_had(last, operation, *at) => {
            return Err(("I4", format!("{operation:?} was shown a row that never was")));
        }
        _ => {}
    }
    Ok(())
}

/// What is the same for all reads, and what scans, counts and feeds found.
fn looked(last: &Final<'_>, operation: &Operation) -> Result<(), Broken> {
    let Some((at, epoch)) = operation.read_at() else { return Ok(()) };
    // A state that is asked for by name may be older than a token: who answers must have come that far.
    let (below, wrong) = match (operation.action.snapshot(), operation.action.bound()) {
        (Some(asked), _) => (false, asked.lsn != at),
        (None, bound) => (bound.is_some_and(|bound| at < bound.token), false),
    };
    if below {
        return Err(("I5", format!("{operation:?} was answered below its token")));
    }
    if wrong {
        return Err(("I5", format!("{operation:?} was answered of another state than it asked for")));
    }
    let unwritten = |rows: &[(String, Lsn, u64)]| rows.iter().any(|(_, lsn, _)| *lsn > at);
    if matches!(&operation.told, Answer::Rows { rows, .. } | Answer::FoundBy { rows, .. } if unwritten(rows))
    {
        return Err(("I4", format!("{operation:?} shows what was not committed")));
    }
    let mut wrong = None;
    for states in last.shown_in(epoch, operation.action.bound().is_some()) {
        match shows(operation, at, states) {
            Ok(()) => return Ok(()),
            Err(why) => wrong = wrong.or(Some(why)),
        }
    }
    wrong.map_or(Ok(()), |why| Err(("I5", format!("{operation:?} {why}"))))
}

/// Whether an answer shows this state. The error is the end of a sentence.
fn shows(operation: &Operation, at: Lsn, states: &States<'_>) -> Result<(), String> {
    match (&operation.action, &operation.told) {
        (_, Answer::Found { row, .. }) => match states.row(&operation.key, at) {
            there if there == *row => Ok(()),
            there => Err(format!("should have found {there:?}")),
        },
        (Action::Scan { range, limit, .. }, Answer::Rows { rows, more, .. }) => {
            ranges::check_scan((range, *limit), (rows, *more, at), states)
        }
        (Action::Find { range, limit, .. }, Answer::FoundBy { rows, next, .. }) => {
            ranges::check_find((range, *limit), (rows, next, at), states)
        }
        (Action::Count { range, .. }, Answer::Number { number, .. }) => {
            ranges::check_count(range, (*number, at), states)
        }
        (Action::Feed(feed), Answer::Number { number, .. }) => match states.mark(*feed, at) {
            mark if mark == *number => Ok(()),
            mark => Err(format!("should have told {mark}")),
        },
        _ => Ok(()),
    }
}

/// What was acknowledged and is not lost is where it was said to be.
fn acknowledged(last: &Final<'_>, operation: &Operation, made: &[&Known]) -> Result<(), Broken> {
    let Answer::Done { at, .. } = operation.told else { return Ok(()) };
    if !last.is_kept(operation) {
        return Ok(());
    }
    let there = last.line.iter().find(|known| known.at == at);
    let ours = there.is_some_and(|known| match (operation.session, &operation.action) {
        (Some(session), _) => known.session == Some(session),
        // What only removes, or finds nothing to do, has no value by which it is known.
        (None, Action::Batch(_)) if made.is_empty() => known.session.is_none(),
        (None, _) => made.first().is_some_and(|made| made.at == at),
    });
    match ours {
        true => Ok(()),
        false => Err(("I9", format!("{operation:?} has no effect there: {there:?}"))),
    }
}

fn read(last: &Final<'_>, writers: &Writers<'_>, operation: &Operation) -> Result<(), Broken> {
    match (&operation.told, &operation.action) {
        (Answer::Found { row: Some((lsn, value)), at, epoch }, action) => {
            if lsn > at {
                return Err(("I4", format!("{operation:?} shows what was not committed")));
            }
            let may_be_lost = last.lossy.is_some() && action.bound().is_some() || !last.is_of(*epoch);
            if !may_be_lost && !writers.by_value.contains_key(value) {
                return Err(("I4", format!("{operation:?} was shown what is lost")));
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
    use crate::check::history::Bound;
    use crate::check::lineage::tests::{P, at};
    use crate::check::survival::LossyFailover;
    use types::{Epoch, SessionId};

    fn known(lsn: u64, key: &str, value: u64, seq: u64) -> Known {
        let session = Some((SessionId(at(1, 1)), seq));
        Known {
            at: at(1, lsn),
            crc: 0,
            prev_crc: 0,
            is_write: true,
            session,
            changes: vec![(key.into(), Some(value))],
            marks: Vec::new(),
            tables: Vec::new(),
            commits: Vec::new(),
            counters: Vec::new(),
        }
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

    /// The first of what is broken.
    fn check(last: &Final<'_>, operations: &[&Operation]) -> Result<(), Broken> {
        faults(last, operations).next().map_or(Ok(()), Err)
    }

    fn verdict(line: &[Known], operation: &Operation) -> Result<(), &'static str> {
        let last = Final::new(line.iter().collect(), BTreeMap::new(), None);
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
        let any = Action::GetAny(Bound { token: Lsn(3), max_lag_ms: 400 });
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
        assert_eq!(verdict(&line, &operation("a", action, Answer::Changed(Lsn(4)))), Err("I9"));
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
        let last = Final::new(line.iter().collect(), BTreeMap::new(), None);
        let told = |at, time| ReportedLoss { partition: P, at, time };
        let check = |lost: &[ReportedLoss], forced| check_losses(&last, lost.iter(), forced);
        assert_eq!(check(&[told(at(1, 3), 5), told(at(2, 2), 5)], None), Ok(()));
        assert!(check(&[told(at(1, 3), 5), told(at(1, 2), 5)], None).is_err());
        assert_eq!(check(&[told(at(1, 2), 5)], Some((6, Term(3)))), Ok(()), "a forced copy had it");
        assert!(check(&[told(at(1, 2), 6)], Some((6, Term(3)))).is_err(), "it was said of the forced term");
        assert!(check(&[told(at(1, 2), 5)], Some((6, Term(1)))).is_err(), "the forced term made it itself");
    }

    #[test]
    fn a_loss_that_came_after_the_word_was_given_makes_it_no_lie() {
        let asked = operation("", Action::TermEnd(at(1, 2)), Answer::Ended(Some(Lsn(2))));
        let lost_at = |since| {
            let lost = BTreeMap::from([(at(1, 2), since)]);
            let last = Final::new(Vec::new(), lost, None);
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
        let last = Final::new(Vec::new(), lost, None);
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
            let last = Final::new(line.iter().collect(), BTreeMap::new(), lossy);
            let told = Answer::Found { row, at: Lsn(3), epoch: Epoch(epoch) };
            check(&last, &[&operation("a", action, told)]).map_err(|(id, _)| id)
        };
        let (won, gone) = (Some((Lsn(3), 8)), Some((Lsn(3), 9)));
        assert_eq!(read_in(3, Action::Get(false), gone), Ok(()), "before the failover it was there");
        assert_eq!(read_in(4, Action::Get(false), won), Ok(()));
        assert_eq!(read_in(4, Action::Get(false), gone), Err("I4"));
        assert_eq!(read_in(5, Action::Get(false), Some((Lsn(2), 7))), Err("I5"));
        let any = Action::GetAny(Bound { token: Lsn(3), max_lag_ms: 400 });
        assert_eq!(read_in(4, any, gone), Ok(()), "a replica may not know yet");
    }

    #[test]
    fn before_a_lossy_failover_reads_are_of_the_log_of_their_term() {
        let kept = [known(2, "a", 7, 1), Known { at: at(4, 3), ..known(3, "a", 9, 1) }];
        let lost = [known(2, "a", 7, 1), known(3, "a", 8, 2), known(4, "a", 10, 3)];
        let terms: BTreeMap<Epoch, Term> =
            [(Epoch(1), Term(1)), (Epoch(3), Term(1)), (Epoch(4), Term(4))].into();
        let read_in = |epoch, any: bool, row, lsn| {
            let lossy = Some(LossyFailover { epoch: Epoch(4), served: 30 });
            let others = [(Term(1), lost.iter().collect())].into_iter();
            let last =
                Final::new(kept.iter().collect(), BTreeMap::new(), lossy).with_terms(terms.clone(), others);
            let bound = Bound { token: Lsn(0), max_lag_ms: 400 };
            let action = if any { Action::GetAny(bound) } else { Action::Get(false) };
            let told = Answer::Found { row, at: Lsn(lsn), epoch: Epoch(epoch) };
            check(&last, &[&operation("a", action, told)]).map_err(|(id, _)| id)
        };
        let (gone, older) = (Some((Lsn(3), 8)), Some((Lsn(2), 7)));
        assert_eq!(read_in(3, false, gone, 3), Ok(()));
        assert_eq!(read_in(3, false, older, 3), Err("I5"), "it had been replaced");
        assert_eq!(read_in(3, false, Some((Lsn(3), 9)), 3), Err("I5"), "nobody had written that");
        assert_eq!(read_in(4, true, gone, 3), Ok(()), "a backup that has not heard of it yet");
        assert_eq!(read_in(4, true, Some((Lsn(3), 9)), 3), Ok(()));
        assert_eq!(read_in(4, true, older, 3), Err("I5"), "of no log");
        assert_eq!(read_in(3, true, Some((Lsn(4), 10)), 4), Ok(()));
    }
}
