//! Statements that write, inside and outside of transactions.

use crate::bind::{Change, Conflict, Insertion, Last, Merge, Parts, Planned, Writing};
use crate::constraints::check;
use crate::constraints::violation::{self, Refused};
use crate::driver::Handle;
use crate::early;
use crate::edits::{self, Edits, Effects};
use crate::evaluate::{BEGINNINGS, Evaluator};
use crate::fault::{self, Decided};
use crate::follow;
use crate::merge;
use crate::parts;
use crate::read::{self, Values};
use crate::txn::{TurnGuard, View, global};
use crate::write::{self, Batch, affected, duplicate};
use client::Table;
use pg::{Failure, Outcome, Row as PgRow, Rows};
use std::time::Duration;
use tokio::time::Instant;
use types::data::{Row, Value};
use types::{Position, TableRecord};
use wire::RowOp;

/// How long a statement is done again because others change the rows that it has read.
const WAIT_LIMIT: Duration = Duration::from_secs(10);
/// How often a statement over several partitions looks again because of rows that it had not seen.
const MAX_VIOLATIONS: u32 = 2;
/// How often a statement is computed again for rows that refer to what it changes, and came meanwhile: they
/// follow then. A row that stays against it is none of these.
const MAX_PASSES: u32 = 32;
/// How long a statement waits before it begins again for the first time.
const FIRST_WAIT: Duration = Duration::from_micros(250);
/// The longest wait before it is done again.
const LONGEST_WAIT: Duration = Duration::from_millis(32);

/// A statement that writes rows.
#[derive(Clone, Copy)]
pub enum Statement<'a> {
    /// INSERT.
    Insert(&'a Insertion),
    /// UPDATE or DELETE.
    Change(&'a Change),
    /// MERGE.
    Merge(&'a Merge),
    /// Several, and perhaps a query, in one statement.
    Parts(&'a Parts),
}

impl<'a> Statement<'a> {
    /// One whose WITH may have parts that write.
    pub fn of_planned(planned: &'a Planned) -> Statement<'a> {
        match planned {
            Planned::Parts(parts) => Statement::Parts(parts),
            Planned::Alone(writing) => Statement::of(writing),
        }
    }

    /// One that writes.
    fn of(writing: &'a Writing) -> Statement<'a> {
        match writing {
            Writing::Insert(insertion) => Statement::Insert(insertion),
            Writing::Change(change) => Statement::Change(change),
            Writing::Merge(merge) => Statement::Merge(merge),
        }
    }

    /// The table whose rows it writes; the first of those.
    pub fn table(&self) -> &TableRecord {
        match self {
            Statement::Insert(insertion) => &insertion.table,
            Statement::Change(change) => &change.table,
            Statement::Merge(merge) => &merge.table,
            Statement::Parts(parts) => parts.table(),
        }
    }

    /// The replicated table whose rows it writes; `None`: it writes no such rows.
    pub fn replicated(&self) -> Option<&TableRecord> {
        match self {
            Statement::Parts(parts) => {
                let mut tables = parts.all().map(|one| &**one.table());
                tables.find(|table| table.schema.is_replicated())
            }
            one => Some(one.table()).filter(|table| table.schema.is_replicated()),
        }
    }

    fn tag(&self) -> &'static str {
        match self {
            Statement::Insert(_) => "INSERT 0",
            Statement::Change(change) if change.removes => "DELETE",
            Statement::Change(_) => "UPDATE",
            Statement::Merge(_) => "MERGE",
            Statement::Parts(Parts { last: Last::Rows(_), .. }) => "SELECT",
            Statement::Parts(Parts { last: Last::Writes(last), .. }) => Statement::of(last).tag(),
        }
    }

    /// What the client is told when it is done.
    pub fn outcome(&self, count: u64, told: Option<Vec<PgRow>>) -> Outcome {
        match told {
            Some(rows) => Outcome::Rows(self.tag(), Rows::of(rows)),
            None => Outcome::Done(format!("{} {count}", self.tag())),
        }
    }

    /// What it does, with all that follows from it, if rows are as the view has them.
    pub async fn edits(
        &self,
        evaluator: &Evaluator,
        values: &Values,
        view: &View,
    ) -> Result<Effects, Failure> {
        let mut first = match self {
            Statement::Insert(insertion) => {
                edits::of_insertion(evaluator, insertion, values, (view, view)).await?
            }
            Statement::Change(change) => edits::of_change(evaluator, change, values, view).await?,
            Statement::Merge(merge) => merge::of_merge(evaluator, merge, values, (view, view)).await?,
            Statement::Parts(parts) => return parts::effects(evaluator, parts, values, view).await,
        };
        let (count, told) = (first.count, first.told.take());
        let edits = follow::with_all(evaluator, vec![first], values, view).await?;
        Ok(Effects { edits, count, told })
    }

    /// True if it may be done although a row meets another one by the unique constraint with this number.
    fn meets(&self, number: u32) -> bool {
        match self {
            Statement::Insert(insertion) => {
                let looks = insertion.arbiters.unique.contains(&number);
                looks && !matches!(insertion.conflict, Conflict::Fail)
            }
            Statement::Change(_) | Statement::Merge(_) => false,
            Statement::Parts(parts) => parts.all().any(|one| Statement::of(one).meets(number)),
        }
    }
}

/// Does a statement by itself: as one write, which is committed when this returns. `turn` is that at the row
/// that it changes, if its key is given.
pub async fn alone(
    evaluator: &Evaluator,
    statement: Statement<'_>,
    values: &Values,
    turn: Option<&TurnGuard>,
) -> Result<Outcome, Failure> {
    let global = evaluator.handle.is_global();
    let at_once = match statement {
        Statement::Insert(insertion) if !global => insert_at_once(evaluator, insertion, values).await?,
        Statement::Change(change) if !global => change_at_once(evaluator, change, values).await?,
        // What is written at once is not looked at before.
        _ => None,
    };
    if let Some((count, told)) = at_once {
        return Ok(statement.outcome(count, told));
    }
    let (mut retry, mut beginnings, mut violations) = (Retry::begin(), 1, 0);
    loop {
        // Tables that lie together are read at one state.
        let view = match statement.table().database().is_some() {
            true if global => global::begin(&evaluator.handle, &View::default()).await?,
            true => View::lasting(),
            false => View::default(),
        };
        let effects = tokio::select! {
            effects = statement.edits(evaluator, values, &view) => effects,
            () = evaluator.cancel.wait() => return Err(canceled()),
        };
        // A failover has lost what it was reading; nothing was written.
        let lost = |failure: &Failure| failure.code == fault::SERIALIZATION && !fault::is_stale(failure);
        if effects.as_ref().is_err_and(lost) && beginnings < BEGINNINGS {
            beginnings += 1;
            continue;
        }
        let Effects { edits, count, told } = effects?;
        let Some(partition) = edits.iter().find_map(|edits| edits.partition) else {
            return Ok(statement.outcome(count, told));
        };
        let since = view.position(partition);
        let waits = retry.may();
        let securing = evaluator.securing(global && evaluator.asker.settings.waits_until_secured());
        let sent = send_all(securing.as_ref().unwrap_or(&evaluator.handle), edits, since).await;
        // Rows that it has not seen stand against what it does: it looks again, once.
        let stands = |failure: &Failure| global && failure.code.starts_with("23");
        if sent.as_ref().is_err_and(stands) && violations < MAX_VIOLATIONS {
            violations += 1;
            continue;
        }
        let (decided, refused) = sent?;
        match decided {
            Decided::Done(_) => return Ok(statement.outcome(count, told)),
            // What was read is not so any more: read again, as PostgreSQL does after it has waited for the
            // other one.
            Decided::Exists | Decided::Changed if waits => {
                turn.into_iter().for_each(TurnGuard::note_conflict);
            }
            Decided::Exists | Decided::Changed => return Err(fault::conflict()),
            Decided::Violates(number) => {
                let failure = violation::told(&evaluator.handle, number, &refused).await;
                violations += 1;
                let may = violations <= MAX_PASSES && violation::passes(&evaluator.handle, number, &refused);
                let again = may || statement.meets(number) && failure.code == "23505";
                if !waits || !again {
                    return Err(failure);
                }
            }
        }
        retry.pause(evaluator).await?;
    }
}

/// For how long a statement that others were faster than begins again, and how long it waits before.
pub struct Retry {
    began: Instant,
    wait: Duration,
}

impl Retry {
    /// It begins for the first time.
    pub fn begin() -> Retry {
        Retry { began: Instant::now(), wait: FIRST_WAIT }
    }

    /// True if it may begin once more.
    pub fn may(&self) -> bool {
        self.began.elapsed() < WAIT_LIMIT
    }

    /// Waits before that, each time longer. The error: it was canceled.
    pub async fn pause(&mut self, evaluator: &Evaluator) -> Result<(), Failure> {
        tokio::select! {
            () = tokio::time::sleep(spread(self.wait)) => {}
            () = evaluator.cancel.wait() => return Err(canceled()),
        }
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }
}

/// Sends what a statement does as one write. With what it was, for what is said if it is refused.
async fn send_all(
    handle: &Handle,
    mut edits: Vec<Edits>,
    since: Option<Position>,
) -> Result<(Decided, Refused), Failure> {
    if handle.is_global() {
        let (written, tables) = follow::gathered(edits, since)?;
        let refused = Refused::new([]);
        let checked = match early::before_commit(handle, &tables, &written).await {
            // What follows is to be computed for a row that came meanwhile, too.
            Err(failure) if fault::is_conflict(&failure) => return Ok((Decided::Changed, refused)),
            checked => checked?,
        };
        return Ok((global::commit(handle, (&tables, checked), written).await?, refused));
    }
    if edits.len() == 1 {
        let Edits { table, partition, edits, .. } = edits.remove(0);
        let ops: Vec<RowOp> = edits.into_iter().filter_map(|edit| edit.operation()).collect();
        let refused = Refused::new([(&table, &ops[..])]);
        return Ok((Batch { partition, ops }.send(handle, &table, since).await?, refused));
    }
    let Some(partition) = edits.iter().find_map(|edits| edits.partition) else {
        return Err(Failure::new(pg::code::INTERNAL, "a write of no rows"));
    };
    let (written, tables) = follow::gathered(edits, since)?;
    let parts = written.iter().filter_map(|part| Some((tables.get(&part.table)?, &part.ops[..])));
    let refused = Refused::new(parts);
    Ok((write::send_parts(handle, (Vec::new(), &tables), (written, None), partition).await?, refused))
}

/// Somewhere between nothing and this, differently for each of those who wait.
fn spread(wait: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    wait.mul_f64((random % 1024) as f64 / 1024.0)
}

/// What a statement counts, and what the client is told of its rows.
type AtOnce = Option<(u64, Option<Vec<PgRow>>)>;

/// An INSERT that needs to know nothing of the rows that are there.
async fn insert_at_once(
    evaluator: &Evaluator,
    insertion: &Insertion,
    values: &Values,
) -> Result<AtOnce, Failure> {
    if matches!(insertion.conflict, Conflict::Update(_)) || !insertion.arbiters.unique.is_empty() {
        return Ok(None);
    }
    let table = Table::new(insertion.table.clone());
    if matches!(insertion.conflict, Conflict::Replace) && edits::is_followed(evaluator, &table) {
        return Ok(None);
    }
    let rows = edits::new_rows(evaluator, insertion, values, &View::default()).await?;
    if rows.len() > 1 && matches!(insertion.conflict, Conflict::Keep) {
        return Ok(None);
    }
    let (mut batch, mut seen) = (Batch::default(), Vec::with_capacity(rows.len()));
    let mut keys = std::collections::BTreeSet::new();
    for (row, key, stored) in rows {
        let several = !keys.insert(key.clone());
        batch.add(
            &table,
            match insertion.conflict {
                Conflict::Replace if several => return Ok(None),
                Conflict::Replace => RowOp::Put { key, row: stored },
                _ if several => return Err(duplicate(&table, Some(&key))),
                _ => RowOp::Insert { key, row: stored },
            },
        )?;
        seen.push(row);
    }
    let told = edits::told(evaluator, insertion.returning.as_ref(), values, &seen).await?;
    if seen.is_empty() {
        return Ok(Some((0, told)));
    }
    let only = keys.first().filter(|_| keys.len() == 1).cloned();
    let refused = Refused::new([(&table, &batch.ops[..])]);
    match batch.send(&evaluator.handle, &table, None).await? {
        Decided::Done(_) => Ok(Some((seen.len() as u64, told))),
        Decided::Violates(number) => Err(violation::told(&evaluator.handle, number, &refused).await),
        _ if matches!(insertion.conflict, Conflict::Keep) => Ok(Some((0, told.map(|_| Vec::new())))),
        _ => Err(duplicate(&table, only.as_deref())),
    }
}

/// A DELETE of a row by its key, or an UPDATE of one that does not look at what it was: one message to the
/// row's primary.
async fn change_at_once(evaluator: &Evaluator, change: &Change, values: &Values) -> Result<AtOnce, Failure> {
    let Some(point) = &change.point else { return Ok(None) };
    let table = Table::new(change.table.clone());
    let schema = table.schema();
    if edits::follows_from(evaluator, change) || check::has_any(schema) && !change.removes {
        return Ok(None);
    }
    let key: Vec<Value> = point.iter().map(|slot| values.of(slot)).collect();
    let (op, told) = if change.removes {
        if change.returning.is_some() {
            return Ok(None);
        }
        let Some(key) = read::encoded_key(&table, &key) else { return Ok(Some((0, None))) };
        (RowOp::Delete { key }, None)
    } else {
        let blind = |quick: &&Vec<_>| {
            let all = schema.values().iter().all(|at| change.set.contains(at));
            all && !schema.is_open() && !quick.iter().any(crate::bind::Quick::reads)
        };
        let Some(quick) = change.quick.as_ref().filter(blind) else { return Ok(None) };
        let Some(encoded_key) = read::encoded_key(&table, &key) else {
            return Ok(Some((0, change.returning.as_ref().map(|_| Vec::new()))));
        };
        let mut row = Row::new(vec![Value::Null; schema.columns().len()]);
        let pairs = schema.key().iter().copied().zip(key);
        // What is wrong matters only if there is such a row.
        let Ok(new) = edits::computed(quick, &[], values) else { return Ok(None) };
        let set = change.set.iter().copied().zip(new);
        pairs.chain(set).for_each(|(at, value)| row.values[at] = value);
        if write::check(&table, &row).is_err() {
            return Ok(None);
        }
        let Ok((_, stored)) = write::encoded(&table, &row) else { return Ok(None) };
        let returning = change.returning.as_ref();
        let row = write::as_stored(&table, &encoded_key, &stored, row, returning.is_some())?;
        let Ok(told) = edits::told(evaluator, returning, values, &[row]).await else { return Ok(None) };
        (RowOp::Update { key: encoded_key, row: stored }, told)
    };
    let mut batch = Batch::default();
    batch.add(&table, op)?;
    let refused = Refused::new([(&table, &batch.ops[..])]);
    let decided = batch.send(&evaluator.handle, &table, None).await?;
    if let Decided::Violates(number) = decided {
        return Err(violation::told(&evaluator.handle, number, &refused).await);
    }
    let count = affected(&decided)?;
    Ok(Some((count, told.map(|told| if count > 0 { told } else { Vec::new() }))))
}

/// The error of a statement that was stopped.
pub fn canceled() -> Failure {
    Failure::new(pg::code::CANCELED, "canceling statement due to user request")
}
