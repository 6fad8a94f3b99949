//! What statements do to rows: read, computed, and told of, before anything is written.

use crate::bind::{Arbiters, Bound, Change, Conflict, Insertion, Quick, Returning, Rows as Source, Upsert};
use crate::constraints::unique::Finder;
use crate::constraints::{Replaced, check, children, follows, violation};
use crate::evaluate::{Evaluator, Given};
use crate::fault;
use crate::read::{self, Values};
use crate::rows::{Filler, fitted};
use crate::txn::{After, Arbiter, Edit, Limit, Room, View};
use crate::write::{self, as_stored, duplicate, encoded};
use bytes::Bytes;
use client::Table;
use pg::{Failure, Row as PgRow, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::{Row, Value};
use types::{PartitionId, TableRecord};

/// Rows of which nothing is told are looked at so many at once.
const PIECE_ROWS: usize = 2_000;

/// What a statement does.
pub struct Edits {
    /// To this table.
    pub table: Table,
    /// In this partition; `None`: nothing.
    pub partition: Option<PartitionId>,
    /// Row by row, no key twice.
    pub edits: Vec<Edit>,
    /// How many rows it counts.
    pub count: u64,
    /// What the client is told, if it asked.
    pub told: Option<Vec<PgRow>>,
    /// Rows as they were and as they are, if something may follow from that, or RESTRICT look at it.
    pub replaced: Vec<Replaced>,
}

impl Edits {
    /// These edits, of which no two have one key. Nothing follows from them.
    pub fn new(
        table: Table,
        edits: Vec<Edit>,
        count: u64,
        told: Option<Vec<PgRow>>,
    ) -> Result<Edits, Failure> {
        let partition = write::place(&table, &edits)?;
        Ok(Edits { table, partition, edits, count, told, replaced: Vec::new() })
    }
}

/// What a statement does to rows, and what it says of them.
pub struct Effects {
    /// What it does, in order.
    pub edits: Vec<Edits>,
    /// How many rows it counts.
    pub count: u64,
    /// What the client is told, if it asked.
    pub told: Option<Vec<PgRow>>,
}

/// What an UPDATE or DELETE does.
pub async fn of_change(
    evaluator: &Evaluator,
    change: &Change,
    values: &Values,
    view: &View,
) -> Result<Edits, Failure> {
    of_change_beside(evaluator, change, values, (view, None)).await
}

/// The same of a part of a statement: rows that others have written, as `ahead` sees them, are left alone.
pub async fn of_change_beside(
    evaluator: &Evaluator,
    change: &Change,
    values: &Values,
    (view, ahead): (&View, Option<&View>),
) -> Result<Edits, Failure> {
    let table = Table::new(change.table.clone());
    let (follows, told_of) = (follows_from(evaluator, change), change.returning.is_some());
    // What is told of rows, and what follows from them, is kept of all.
    let limit = if follows || told_of { Limit::WRITE } else { view.limit(table.record()) };
    let (mut found, _room) = match &change.point {
        Some(key) => {
            let key: Vec<Value> = key.iter().map(|slot| values.of(slot)).collect();
            (of_point(evaluator, &table, change, values, &key, view).await?, None)
        }
        None => {
            read::pin(&evaluator.handle, read::partitions(&change.read.sources, values), view).await?;
            let (rows, room) =
                evaluator.all(change.read.clone(), values.clone(), view.clone(), limit).await?;
            (rows.into_iter().map(split).collect::<Result<Vec<_>, _>>()?, Some(room))
        }
    };
    let is_written = |key: &Bytes| ahead.is_some_and(|ahead| ahead.buffer.is_written_ahead(table.id(), key));
    found.retain(|(key, ..)| !is_written(key));
    let (mut edits, mut seen, mut replaced) = (Vec::with_capacity(found.len()), Vec::new(), Vec::new());
    let checks = !change.removes && check::has_any(table.schema());
    for (key, stored, new) in found {
        let mut row = table.decode(&key, &stored).map_err(fault::of_client)?;
        let old = follows.then(|| row.clone());
        let after = match change.removes {
            true => After::Gone,
            false => {
                set(&table, &mut row, &change.set, new)?;
                let stored = encoded(&table, &row)?.1;
                row = as_stored(&table, &key, &stored, row, change.returning.is_some())?;
                After::Row(stored)
            }
        };
        edits.push(Edit::new(key, true, after));
        replaced.extend(old.map(|old| (old, (!change.removes).then(|| row.clone()))));
        if checks || told_of {
            seen.push(row);
        }
        if edits.len().is_multiple_of(PIECE_ROWS) {
            if checks && !told_of {
                check::rows(evaluator, &table, &std::mem::take(&mut seen), values).await?;
            }
            // The sessions of a node share a thread.
            tokio::task::yield_now().await;
        }
    }
    if checks {
        check::rows(evaluator, &table, &seen, values).await?;
    }
    let told = told(evaluator, change.returning.as_ref(), values, &seen).await?;
    let count = edits.len() as u64;
    Ok(Edits { replaced, ..Edits::new(table, edits, count, told)? })
}

/// True if something may follow from what an UPDATE or DELETE does, or RESTRICT look at it.
pub fn follows_from(evaluator: &Evaluator, change: &Change) -> bool {
    let Some(catalog) = evaluator.handle.catalog() else { return false };
    children(&catalog, change.table.id).iter().any(|(.., reference)| match change.removes {
        true => reference.on_delete.is_at_once(),
        false => {
            let changes = reference.parent_columns.iter().any(|at| change.set.contains(at));
            changes && reference.on_update.is_at_once()
        }
    })
}

/// True if something follows from changes of the table's rows, or RESTRICT looks at them.
pub fn is_followed(evaluator: &Evaluator, table: &Table) -> bool {
    evaluator.handle.catalog().is_some_and(|catalog| follows(&catalog, table.id()))
}

/// A row that was found: its key, itself as it is stored, and new values.
pub type Found = (Bytes, Bytes, Vec<Value>);

/// One that was computed.
pub fn split(row: PgRow) -> Result<Found, Failure> {
    let mut row = row.into_iter();
    match (row.next(), row.next()) {
        (Some(Value::Bytes(key)), Some(Value::Bytes(stored))) => {
            Ok((key.into(), stored.into(), row.collect()))
        }
        other => Err(Failure::new(code::INTERNAL, format!("a row without its key: {other:?}"))),
    }
}

/// The row with this key.
async fn of_point(
    evaluator: &Evaluator,
    table: &Table,
    change: &Change,
    values: &Values,
    key: &[Value],
    view: &View,
) -> Result<Vec<Found>, Failure> {
    let Some(key) = read::encoded_key(table, key) else { return Ok(Vec::new()) };
    let Some(stored) = read::get(&evaluator.handle, table, &key, view).await? else {
        return Ok(Vec::new());
    };
    let row = table.decode(&key, &stored).map_err(fault::of_client)?;
    if let Some(quick) = &change.quick {
        return Ok(vec![(key, stored, computed(quick, &row.values, values)?)]);
    }
    if change.read.sources.len() > 1 {
        read::pin(&evaluator.handle, read::partitions(&change.read.sources, values), view).await?;
        let (rows, _room) =
            evaluator.all(change.read.clone(), values.clone(), view.clone(), Limit::WRITE).await?;
        return rows.into_iter().map(split).collect();
    }
    let given = Given { key, stored, values: row.values };
    let rows = evaluator.over(change.read.clone(), values, vec![given]).await?;
    rows.into_iter().map(split).collect()
}

/// These, without the engine.
pub fn computed(quick: &[Quick], row: &[Value], values: &Values) -> Result<Vec<Value>, Failure> {
    quick.iter().map(|one| one.value(row, &|slot| values.of(slot))).collect()
}

/// Sets columns of a row.
pub fn set(table: &Table, row: &mut Row, columns: &[usize], values: Vec<Value>) -> Result<(), Failure> {
    for (at, value) in columns.iter().zip(values) {
        row.values[*at] = fitted(&table.schema().columns()[*at], value)?;
    }
    write::check(table, row)
}

/// What RETURNING gives of these rows.
pub async fn told(
    evaluator: &Evaluator,
    returning: Option<&Returning>,
    values: &Values,
    rows: &[Row],
) -> Result<Option<Vec<PgRow>>, Failure> {
    let Some(returning) = returning else { return Ok(None) };
    if let Some(quick) = &returning.quick {
        let each = rows.iter().map(|row| computed(quick, &row.values, values));
        return each.collect::<Result<_, _>>().map(Some);
    }
    let given = rows.iter().map(|row| Given { values: row.values.clone(), ..Given::default() });
    evaluator.over(returning.bound.clone(), values, given.collect()).await.map(Some)
}

/// The rows that an INSERT names or computes, each with its key and as it is stored.
pub async fn new_rows(
    evaluator: &Evaluator,
    insertion: &Insertion,
    values: &Values,
    view: &View,
) -> Result<Vec<(Row, Bytes, Bytes)>, Failure> {
    let table = Table::new(insertion.table.clone());
    let (rows, _room) = given(evaluator, insertion, values, (view, Limit::WRITE)).await?;
    stored(evaluator, (&table, insertion), rows, values).await
}

/// What an INSERT names or computes.
async fn given(
    evaluator: &Evaluator,
    insertion: &Insertion,
    values: &Values,
    (view, limit): (&View, Limit),
) -> Result<(Vec<PgRow>, Option<Room>), Failure> {
    match &insertion.rows {
        Source::Slots(rows) => {
            let rows = rows.iter().map(|row| row.iter().map(|slot| values.of(slot)).collect());
            Ok((rows.collect(), None))
        }
        Source::Query(bound) => {
            read::pin(&evaluator.handle, read::partitions(&bound.sources, values), view).await?;
            let (rows, room) = evaluator.all(bound.clone(), values.clone(), view.clone(), limit).await?;
            Ok((rows, Some(room)))
        }
    }
}

/// Rows of an INSERT, each with its key and as it is stored.
async fn stored(
    evaluator: &Evaluator,
    (table, insertion): (&Table, &Insertion),
    rows: Vec<PgRow>,
    values: &Values,
) -> Result<Vec<(Row, Bytes, Bytes)>, Failure> {
    let mut whole = Vec::with_capacity(rows.len());
    for row in filled(evaluator, (table, &insertion.columns), rows, values).await? {
        let (key, stored) = encoded(table, &row)?;
        let row = as_stored(table, &key, &stored, row, insertion.returning.is_some())?;
        whole.push((row, key, stored));
    }
    if check::has_any(table.schema()) {
        let rows: Vec<Row> = whole.iter().map(|(row, ..)| row.clone()).collect();
        check::rows(evaluator, table, &rows, values).await?;
    }
    Ok(whole)
}

/// Rows of an INSERT that gives these columns, with all their columns.
pub async fn filled(
    evaluator: &Evaluator,
    (table, columns): (&Table, &[usize]),
    mut rows: Vec<PgRow>,
    values: &Values,
) -> Result<Vec<Row>, Failure> {
    let filler = Filler::new(table, columns, values)?;
    filler.fill(&evaluator.handle, evaluator.numbers(), table, &mut rows).await?;
    rows.into_iter().map(|row| write::whole(table, &filler.columns, row)).collect()
}

/// What an INSERT does, with the rows that are there looked at first: as `there_view` sees them, which is the
/// view by which it reads with what other parts of the statement have written.
pub async fn of_insertion(
    evaluator: &Evaluator,
    insertion: &Insertion,
    values: &Values,
    (view, there_view): (&View, &View),
) -> Result<Edits, Failure> {
    let table = Table::new(insertion.table.clone());
    let plain = insertion.returning.is_none() && matches!(insertion.conflict, Conflict::Fail);
    if plain && view.limit(table.record()) != Limit::WRITE {
        return of_plain_insertion(evaluator, insertion, values, (view, there_view)).await;
    }
    let rows = new_rows(evaluator, insertion, values, view).await?;
    let keys: Vec<Bytes> = rows.iter().map(|(_, key, _)| key.clone()).collect();
    let planned = keys.iter().map(|key| Edit::new(key.clone(), false, After::Same));
    let Some(partition) = write::place(&table, &planned.collect::<Vec<_>>())? else {
        return Edits::new(table, Vec::new(), 0, insertion.returning.as_ref().map(|_| Vec::new()));
    };
    let there = read::get_all(&evaluator.handle, &table, partition, &keys, there_view).await?;
    let by_key = keys.iter().zip(there).map(|(key, there)| there.map(|stored| (key.clone(), stored)));
    let there = met(evaluator, insertion, (&table, partition), &rows, by_key.collect(), there_view).await?;
    let mut upsert = match &insertion.conflict {
        Conflict::Update(upsert) => updated(evaluator, &table, upsert, values, &rows, &there).await?,
        _ => BTreeMap::new(),
    };
    let mut written: BTreeMap<Bytes, Edit> = BTreeMap::new();
    let (mut order, mut seen) = (Vec::new(), Vec::new());
    let (follows, mut replaced) = (is_followed(evaluator, &table), Vec::new());
    let looked = arbiter(insertion);
    for (number, ((row, own, stored), there)) in rows.into_iter().zip(there).enumerate() {
        let Some(there) = there else { continue };
        let existed = there.is_some();
        let key = there.as_ref().map_or(own, |(key, _)| key.clone());
        let by_others = existed && there_view.buffer.is_written_ahead(table.id(), &key);
        let twice = by_others || written.contains_key(&key);
        let row = match &insertion.conflict {
            Conflict::Fail if existed || twice => return Err(duplicate(&table, Some(&key))),
            Conflict::Keep if existed || twice => continue,
            Conflict::Replace | Conflict::Update(_) if twice => return Err(second_time()),
            Conflict::Update(_) if existed => match upsert.remove(&number) {
                Some(row) => row,
                None => continue,
            },
            _ => (row, stored),
        };
        if let Some((key, old)) = there.filter(|_| follows) {
            let old = table.decode(&key, &old).map_err(fault::of_client)?;
            replaced.push((old, Some(row.0.clone())));
        }
        order.push(key.clone());
        let edit = Edit::new(key.clone(), existed, After::Row(row.1));
        // A row that is met is changed, and is new to nobody.
        let arbiter = if existed { Arbiter::None } else { looked };
        written.insert(key, Edit { arbiter, ..edit });
        seen.push(row.0);
    }
    let told = told(evaluator, insertion.returning.as_ref(), values, &seen).await?;
    let edits: Vec<Edit> = order.iter().filter_map(|key| written.remove(key)).collect();
    let count = edits.len() as u64;
    Ok(Edits { replaced, ..Edits::new(table, edits, count, told)? })
}

/// By what an INSERT looks for a row that is there, to do something else then.
fn arbiter(insertion: &Insertion) -> Arbiter {
    let Arbiters { key, unique } = &insertion.arbiters;
    match (&insertion.conflict, key, unique.as_slice()) {
        (Conflict::Fail, ..) => Arbiter::None,
        (_, true, []) => Arbiter::Key,
        (_, false, [only]) => Arbiter::Unique(*only),
        _ => Arbiter::Any,
    }
}

/// The same where all rows must be new and nothing is told of them, in a database of one partition: they may
/// be many, and pass by in pieces.
async fn of_plain_insertion(
    evaluator: &Evaluator,
    insertion: &Insertion,
    values: &Values,
    (view, there_view): (&View, &View),
) -> Result<Edits, Failure> {
    let table = Table::new(insertion.table.clone());
    let limit = view.limit(table.record());
    let (rows, _room) = given(evaluator, insertion, values, (view, limit)).await?;
    let (mut edits, mut seen) = (Vec::with_capacity(rows.len()), BTreeSet::new());
    let mut rows = rows.into_iter();
    loop {
        let piece: Vec<PgRow> = rows.by_ref().take(PIECE_ROWS).collect();
        let piece = stored(evaluator, (&table, insertion), piece, values).await?;
        let keys: Vec<Bytes> = piece.iter().map(|(_, key, _)| key.clone()).collect();
        let Some(first) = keys.first() else { break };
        let partition = table.partition_of(first).map_err(fault::of_client)?;
        let there = read::get_all(&evaluator.handle, &table, partition, &keys, there_view).await?;
        for ((_, key, stored), there) in piece.into_iter().zip(there) {
            if there.is_some() || !seen.insert(key.clone()) {
                return Err(duplicate(&table, Some(&key)));
            }
            edits.push(Edit::new(key, false, After::Row(stored)));
        }
    }
    let count = edits.len() as u64;
    Edits::new(table, edits, count, None)
}

/// For each row that is to be inserted the row that it meets, by the key or by what ON CONFLICT names. The
/// outer `None`: the statement itself has a row that it meets, and it is skipped.
type Met = Vec<Option<Option<(Bytes, Bytes)>>>;

async fn met(
    evaluator: &Evaluator,
    insertion: &Insertion,
    (table, partition): (&Table, PartitionId),
    rows: &[(Row, Bytes, Bytes)],
    by_key: Vec<Option<(Bytes, Bytes)>>,
    view: &View,
) -> Result<Met, Failure> {
    let mut found: Met = by_key.into_iter().map(Some).collect();
    for number in &insertion.arbiters.unique {
        let by = violation::of_table(table.record(), *number)?;
        let mut finder = Finder::new(&evaluator.handle, (table, partition), view, by).await?;
        for ((row, key, _), found) in rows.iter().zip(&mut found) {
            let Some(known) = found else { continue };
            let there = finder.find(row).await?;
            let first = finder.take(row);
            match there {
                Some(there) => *known = Some(there),
                None if known.is_some() && !insertion.arbiters.key => {
                    return Err(duplicate(table, Some(key)));
                }
                None if first => {}
                None if matches!(insertion.conflict, Conflict::Keep) => *found = None,
                None => return Err(second_time()),
            }
        }
    }
    Ok(found)
}

fn second_time() -> Failure {
    Failure::new("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time")
        .hint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values.")
}

/// What DO UPDATE makes of the rows that are there already, by the number of the row that was to be inserted.
async fn updated(
    evaluator: &Evaluator,
    table: &Table,
    upsert: &Upsert,
    values: &Values,
    rows: &[(Row, Bytes, Bytes)],
    there: &[Option<Option<(Bytes, Bytes)>>],
) -> Result<BTreeMap<usize, (Row, Bytes)>, Failure> {
    let mut known = Vec::new();
    for (number, ((new, ..), there)) in rows.iter().zip(there).enumerate() {
        if let Some(Some((key, stored))) = there {
            let old = table.decode(key, stored).map_err(fault::of_client)?;
            let both = [&old.values[..], &new.values[..]].concat();
            known.push((number, old, both));
        }
    }
    let mut set_to: Vec<(usize, Vec<Value>)> = Vec::new();
    match &upsert.quick {
        Some(quick) => {
            for (at, (_, _, both)) in known.iter().enumerate() {
                set_to.push((at, computed(quick, both, values)?));
            }
        }
        None if known.is_empty() => {}
        None => {
            let given =
                known.iter().map(|(_, _, both)| Given { values: both.clone(), ..Given::default() }).collect();
            for row in evaluator.over(upsert.read.clone(), values, given).await? {
                let mut row = row.into_iter();
                let Some(Value::Int(at)) = row.next() else {
                    return Err(Failure::new(code::INTERNAL, "a row without its number"));
                };
                set_to.push((at as usize, row.collect()));
            }
        }
    }
    let mut made = BTreeMap::new();
    for (at, new) in set_to {
        let (number, old, _) = &known[at];
        let mut row = old.clone();
        set(table, &mut row, &upsert.set, new)?;
        let (key, stored) = encoded(table, &row)?;
        let row = as_stored(table, &key, &stored, row, true)?;
        made.insert(*number, (row, stored));
    }
    let rows: Vec<Row> = made.values().map(|(row, _)| row.clone()).collect();
    check::rows(evaluator, table, &rows, values).await?;
    Ok(made)
}

/// What a SELECT that locks gives, and the rows that must stay as they are.
pub async fn of_locking(
    evaluator: &Evaluator,
    bound: &Arc<Bound>,
    record: &Arc<TableRecord>,
    values: &Values,
    view: &View,
) -> Result<Edits, Failure> {
    let table = Table::new(record.clone());
    let mut found: BTreeSet<Bytes> = BTreeSet::new();
    let mut told = Vec::new();
    if let Some(point) = &bound.point {
        let key: Vec<Value> = point.key.iter().map(|slot| values.of(slot)).collect();
        told.extend(read::point(&evaluator.handle, &table, &key, &point.columns, view).await?);
        found.extend(read::encoded_key(&table, &key).filter(|_| !told.is_empty()));
    } else {
        read::pin(&evaluator.handle, read::partitions(&bound.sources, values), view).await?;
        let (rows, _room) = evaluator.all(bound.clone(), values.clone(), view.clone(), Limit::WRITE).await?;
        for mut row in rows {
            // The outer side of a join has no row to lock.
            if let Some(Value::Bytes(key)) = row.pop() {
                found.insert(key.into());
            }
            told.push(row);
        }
    }
    let lock = |key| Edit::new(key, true, After::Same);
    // Outside of a transaction the locks are gone when the statement ends.
    let locks = if view.is_lasting() { found.into_iter().map(lock).collect() } else { Vec::new() };
    let count = told.len() as u64;
    Edits::new(table, locks, count, Some(told))
}
