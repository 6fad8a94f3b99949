//! What clients of a database were told, and every entry of its log, against the model: a write is done as a
//! whole or leaves nothing, by the tables as they were just below it; reads show one table of one state.

use super::keeps::CatalogState;
use super::model::Model;
use super::{Asked, Part, Refused, Shown, TableAnswer, TableOperation, Transaction, What};
use crate::check::Broken;
use crate::check::catalog::{Kept, Standing, Table};
use crate::check::final_log::Final;
use crate::check::lineage::Known;
use std::collections::BTreeMap;
use types::data::Standing as How;
use types::{Epoch, Lsn, Position, SessionId, Term};
use wire::request::ReadSnapshot;

/// The logs of a database's partition: the one that won, and those of terms that did not.
pub struct Logs<'a> {
    last: &'a Final<'a>,
    model: Model<'a>,
    others: BTreeMap<Term, Model<'a>>,
}

impl<'a> Logs<'a> {
    /// From the final log, and the others, oldest entry first.
    pub fn new(last: &'a Final<'a>, others: impl Iterator<Item = (Term, Vec<&'a Known>)>) -> Logs<'a> {
        let model = Model::of(last.line.iter().copied());
        Logs { last, model, others: others.map(|(term, line)| (term, Model::of(line))).collect() }
    }

    /// The states of which an answer in this epoch may show one.
    fn shown_in(&self, epoch: Epoch, any: bool) -> Vec<&Model<'a>> {
        if self.last.is_of(epoch) && (!any || self.last.lossy.is_none()) {
            return vec![&self.model];
        }
        let Some(term) = self.last.term_of(epoch) else { return Vec::new() };
        match any {
            true => self.others.range(..=term).map(|(_, model)| model).chain([&self.model]).collect(),
            false => vec![self.others.get(&term).unwrap_or(&self.model)],
        }
    }
}

/// All that is wrong with a partition's log, and with what clients were told of it.
pub fn check(logs: &Logs<'_>, operations: &[TableOperation]) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut asked: BTreeMap<(SessionId, u64), (&TableOperation, &Transaction)> = BTreeMap::new();
    for operation in operations {
        if let (Asked::Write(write), Some(session)) = (&operation.asked, operation.session) {
            asked.insert(session, (operation, write));
        }
    }
    let mut made = BTreeMap::new();
    for known in &logs.last.line {
        let ours = known.session.and_then(|session| asked.get(&session));
        match (ours, known.session) {
            (Some((operation, write)), Some(session)) => {
                if made.insert(session, known.at).is_some() {
                    broken.push(("I9", format!("{operation:?} is there twice, at {} too", known.at)));
                }
                broken.extend(entry(logs, known, (operation, write)).err());
            }
            _ => broken.extend(removal(&logs.model, known).err()),
        }
    }
    let mut newest: Vec<(u64, Lsn)> = Vec::new();
    for operation in operations {
        match &operation.asked {
            Asked::Write(_) => {
                let made = operation.session.and_then(|session| made.get(&session));
                broken.extend(answered(logs, operation, made.is_some()).err());
                if let TableAnswer::Done(at) = operation.told
                    && logs.last.has(&at)
                {
                    newest.push((operation.completed, at.lsn));
                }
            }
            _ => broken.extend(looked(logs, operation).err()),
        }
    }
    newest.sort();
    broken.extend(operations.iter().filter_map(|operation| is_fresh(logs, &newest, operation).err()));
    broken
}

/// An entry that a client asked for.
fn entry(
    logs: &Logs<'_>,
    known: &Known,
    (operation, write): (&TableOperation, &Transaction),
) -> Result<(), Broken> {
    let nothing = (Vec::new(), Vec::new());
    let comes_to = |strict| logs.model.comes_to(write, known.at.lsn.prev(), strict);
    // What can never be done is told to whoever asks, and makes no entry.
    let made_by = |expected: &Result<_, Refused>| {
        let (tables, rows) = expected.as_ref().unwrap_or(&nothing);
        known.tables == *tables && known.changes == *rows && *expected != Err(Refused::Never)
    };
    let mut expected = comes_to(true);
    if expected == Err(Refused::Violates) && !made_by(&expected) {
        expected = comes_to(false);
    }
    if !made_by(&expected) {
        let made = (&known.tables, &known.changes);
        let sentence =
            format!("{operation:?} should come to {expected:?} at {}, and made {made:?}", known.at);
        let held = |table: &Table| table.is_held();
        let below = |part: &Part| logs.model.table(part.table, known.at.lsn.prev()).is_some_and(held);
        let made_held = |part: &Part| {
            known.tables.iter().any(|(id, now)| *id == part.table && now.as_ref().is_some_and(held))
        };
        let writes_held = write.parts.iter().any(|part| below(part) || made_held(part));
        return Err((blamed(&expected, write, writes_held), sentence));
    }
    // A request that was answered by a log that was lost may have come again behind that.
    let fits = match &operation.told {
        TableAnswer::Done(at) => expected.is_ok() && *at == known.at || logs.last.lost.contains_key(at),
        TableAnswer::Refused(why, at) => {
            expected == Err(*why) && *at == known.at.lsn || !logs.last.is_after(operation.invoked)
        }
        TableAnswer::NotDone => expected.is_err(),
        TableAnswer::Unknown => true,
        TableAnswer::Shown(..) => false,
    };
    match fits {
        true => Ok(()),
        false => Err(("I9", format!("{operation:?} came to {expected:?} at {}", known.at))),
    }
}

/// The rule that was broken by an entry that should have come to something else.
fn blamed<T>(expected: &Result<T, Refused>, write: &Transaction, writes_held: bool) -> &'static str {
    match expected {
        Err(Refused::Stale) if writes_held => "PR-124",
        Err(Refused::Stale) => "PR-120",
        Err(Refused::Violates) => "PR-150",
        Err(Refused::Never) if !write.changes.is_empty() => "PR-122",
        _ => "I9",
    }
}

/// An entry that no client asked for removes rows of a table that was dropped, or its definition behind the
/// last of them; or a constraint is settled.
fn removal(model: &Model<'_>, known: &Known) -> Result<(), Broken> {
    let below = known.at.lsn.prev();
    let dropped = |id| model.table(id, below).is_some_and(|table| table.standing == Standing::Dropped);
    for (name, value) in &known.changes {
        let table = super::model::split(name).map(|(table, _)| table);
        if value.is_some() || !table.is_some_and(dropped) {
            return Err(("I9", format!("nobody asked for {name} {value:?} at {}", known.at)));
        }
    }
    for (id, table) in &known.tables {
        if let (Some(before), Some(now)) = (model.table(*id, below), table)
            && before.standing != Standing::Dropped
        {
            is_settled(&model.state(below), before, now)
                .map_err(|why| ("PR-152", format!("{why} at {}", known.at)))?;
            continue;
        }
        let left = model.rows(*id, known.at.lsn).count();
        if table.is_some() || !dropped(*id) || left > 0 {
            let sentence = format!("nobody asked for {table:?} of {id} at {}, with {left} rows", known.at);
            return Err(("I9", sentence));
        }
    }
    Ok(())
}

/// A table differs from what it was in how far one constraint is, and that is right (PR-152). The error is a
/// sentence.
fn is_settled(state: &CatalogState<'_>, before: &Table, now: &Table) -> Result<(), String> {
    let number = |kept: &Kept| (kept.number, kept.standing);
    let is_new = |kept: &&Kept| before.keeps.iter().all(|other| number(other) != number(kept));
    let turned: Vec<&Kept> = now.keeps.iter().filter(is_new).collect();
    let of = |number: u32| before.keeps.iter().find(|kept| kept.number == number);
    let gone = before.keeps.iter().filter(|kept| now.keeps.iter().all(|now| now.number != kept.number));
    let gone: Vec<&Kept> = gone.collect();
    let same = Table { keeps: before.keeps.clone(), ..now.clone() } == *before;
    let right = match (&turned[..], &gone[..]) {
        ([kept], []) => {
            let was = of(kept.number)
                .is_some_and(|was| was.standing == How::Building && was.demands == kept.demands);
            let breach = state.breach(before.id, kept).is_some();
            was && kept.standing == if breach { How::Failed } else { How::Valid }
        }
        ([], [kept]) => kept.standing == How::Dropping,
        _ => false,
    };
    match same && right {
        true => Ok(()),
        false => Err(format!("{before:?} has become {now:?}")),
    }
}

/// What a client was told of a write that has an entry in the final log, or none.
fn answered(logs: &Logs<'_>, operation: &TableOperation, is_there: bool) -> Result<(), Broken> {
    let missing = match &operation.told {
        TableAnswer::Done(at) => !is_there && !logs.last.lost.contains_key(at),
        TableAnswer::Refused(..) => !is_there && logs.last.is_after(operation.invoked),
        _ => false,
    };
    match missing {
        true => Err(("I9", format!("{operation:?} is not there"))),
        false => Ok(()),
    }
}

/// What a read found is what its table had in the state that it names.
fn looked(logs: &Logs<'_>, operation: &TableOperation) -> Result<(), Broken> {
    let TableAnswer::Shown(shown, at, epoch) = &operation.told else { return Ok(()) };
    let bound = operation.asked.bound();
    let wrong = match operation.asked.snapshot() {
        ReadSnapshot::At(asked) => asked.lsn != *at && *shown != Shown::Stale,
        _ => bound.is_some_and(|bound| *at < bound.token),
    };
    if wrong {
        return Err(("I5", format!("{operation:?} was answered of another state than it asked for")));
    }
    // Whoever refuses may say so of a state that it had before it was told of a newer one. Where a snapshot
    // is lost there is none to be compared.
    let ours = |at: &Position| logs.last.lossy.is_none_or(|lossy| lossy.epoch <= at.term.began());
    let is_lost = matches!(operation.asked.snapshot(), ReadSnapshot::At(at) if !ours(&at));
    if *shown == Shown::Stale && (is_lost || bound.is_some()) {
        return Ok(());
    }
    let at = match (shown, operation.asked.snapshot()) {
        (Shown::Stale, ReadSnapshot::At(asked)) => asked.lsn,
        _ => *at,
    };
    let mut wrong = None;
    for model in logs.shown_in(*epoch, bound.is_some()) {
        match shows(&operation.asked, shown, model, at) {
            Ok(()) => return Ok(()),
            Err(why) => wrong = wrong.or(Some(why)),
        }
    }
    wrong.map_or(Ok(()), |(id, why)| Err((id, format!("{operation:?} {why}"))))
}

/// Whether an answer shows this state. The error is an id, and the end of a sentence.
fn shows(asked: &Asked, shown: &Shown, model: &Model<'_>, at: Lsn) -> Result<(), Broken> {
    let Asked::Read { table, version, what, .. } = asked else {
        let Shown::Tables(tables) = shown else { return Err(("I5", "shows no tables".into())) };
        return match tables.iter().eq(model.tables(at)) {
            true => Ok(()),
            false => Err(("I5", format!("should have shown {:?}", model.tables(at).collect::<Vec<_>>()))),
        };
    };
    let there = model.table(*table, at).filter(|table| table.standing != Standing::Dropped);
    let known = there.is_some_and(|table| table.version == *version);
    if known == (*shown == Shown::Stale) {
        return Err(("PR-120", format!("looks at {there:?}")));
    }
    let right = match (what, shown) {
        (_, Shown::Stale) => true,
        (What::Row(key), Shown::Row(row)) => *row == model.row(*table, key, at),
        (What::Rows(range, limit), Shown::Rows(rows, more)) => {
            let within: Vec<_> = model.rows(*table, at).filter(|(key, ..)| range.has(key)).collect();
            let first = within.iter().take(*limit as usize);
            let same = rows.iter().map(|(key, lsn, value)| (key.as_str(), *lsn, *value));
            same.eq(first.copied()) && *more == (within.len() > *limit as usize)
        }
        (What::Count(range), Shown::Number(number)) => {
            model.rows(*table, at).filter(|(key, ..)| range.has(key)).count() as u64 == *number
        }
        _ => false,
    };
    match right {
        true => Ok(()),
        false => {
            Err(("I5", format!("should have shown of {:?}", model.rows(*table, at).collect::<Vec<_>>())))
        }
    }
}

/// A primary's newest state has everything that was acknowledged before it was asked, and is in the log that
/// won where a failover lost something. `acknowledged` says when, and where, in order of time. Who answered
/// before that failover need not have it.
fn is_fresh(logs: &Logs<'_>, acknowledged: &[(u64, Lsn)], operation: &TableOperation) -> Result<(), Broken> {
    let TableAnswer::Shown(_, at, epoch) = &operation.told else { return Ok(()) };
    let newest =
        !matches!(operation.asked.snapshot(), ReadSnapshot::At(_)) && operation.asked.bound().is_none();
    if !newest || !logs.last.is_of(*epoch) {
        return Ok(());
    }
    let before = acknowledged.iter().take_while(|(completed, _)| *completed < operation.invoked);
    match before.map(|(_, lsn)| *lsn).max().filter(|lsn| lsn > at) {
        Some(lsn) => Err(("R5", format!("{operation:?} does not show {lsn}, which was acknowledged"))),
        None => Ok(()),
    }
}

/// PR-120: numbers are given out once. Lots are named by their first, and how many they have. The error is a
/// sentence.
pub fn check_numbers(mut lots: Vec<(u32, u32)>) -> Result<(), String> {
    lots.sort_unstable();
    match lots.windows(2).find(|two| two[0].0 + two[0].1 > two[1].0) {
        Some(two) => Err(format!("numbers from {} and from {} on were given to two", two[0].0, two[1].0)),
        None => Ok(()),
    }
}
