//! Rows that become others: columns of other types, random values or numbers, another primary key or none.

use super::apply::{Applied, RowValue};
use crate::bind::{Binder, Bound};
use crate::catalog::Catalog;
use crate::constraints::define::invalid;
use crate::constraints::{check, children, violation};
use crate::ddl;
use crate::evaluate::{Evaluator, Given};
use crate::fault;
use crate::numbering;
use crate::read::Values;
use crate::refill::{self, Convert, FoundRow, Refusal, Target, whole};
use crate::rows::fitted;
use crate::several;
use crate::statements::canceled;
use crate::{database, eval, write};
use client::{Client, ClientError, Table};
use pg::{Failure, code};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime;
use types::data::constraint::{Constraint, Demand, Standing};
use types::data::kind::Kind;
use types::data::{Column, Row, Schema, SchemaParts, Value};
use types::{CatalogTable, TableId, TableRecord};

/// Between two looks whether a table can be written again.
const WRITABLE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often the rows of a table are copied again because some were lost with a primary.
const LOSSES: usize = 3;
/// How often they are copied again because somebody has changed the table, or one that refers to it.
const MAX_CHANGES: usize = 16;
/// The number of the first row of a table that loses its key: new rows are numbered from 1 on.
const FIRST_NUMBER: i64 = -(1 << 62);

/// Where the values of a column come from.
#[derive(Clone, PartialEq, Debug)]
enum Origin {
    /// What the row has there.
    Kept(usize),
    /// The next of what is computed of the row.
    Computed(usize),
    /// The same for all rows.
    Fixed(Value),
    /// Something random.
    Random,
    /// The row's number, in the order of keys.
    Numbered,
    /// The next number of this sequence, in the order of keys.
    Next(TableId),
}

/// The columns that a table gets, with their places in it as it was, and where their values come from.
type Columns = Vec<(usize, Column, Origin)>;

/// What becomes of a table, and of its rows.
pub struct Rewrite {
    target: Target,
    columns: Vec<Origin>,
    /// The row's number, and what is computed of it.
    bound: Option<Arc<Bound>>,
    /// Sequences that come with new columns. Nobody sees them before the table is what it becomes.
    made: Vec<CatalogTable>,
}

impl Rewrite {
    /// For columns that steps of an ALTER TABLE have changed.
    pub fn of(catalog: &Catalog, table: &Arc<TableRecord>, applied: &Applied) -> Result<Rewrite, Failure> {
        let (made, gone) = (&applied.sequences.made, &applied.sequences.gone);
        let numbers =
            |other: &Arc<TableRecord>| other.id != table.id && numbering::is_numbered_by(other, gone);
        if !applied.gone.is_empty() || catalog.all().any(numbers) {
            let what = "DROP COLUMN ... CASCADE beside another type for a column";
            return Err(Failure::unsupported(what, "write an ALTER TABLE of its own for it"));
        }
        let (before, after) = (&table.schema, &applied.schema);
        let bound = transforms(table, applied)?;
        let mut count = 0..;
        let mut columns = Vec::new();
        for (at, column) in after.columns().iter().enumerate() {
            let mut column = column.clone();
            column.nullable &= !applied.never_null.contains(&column.name);
            let from = match applied.values.get(&at) {
                _ if column.rules.hidden && !after.key().contains(&at) => continue,
                Some(RowValue::Random) => Origin::Random,
                Some(RowValue::Next(sequence)) => Origin::Next(*sequence),
                Some(RowValue::Computed(..)) => Origin::Computed(count.next().unwrap_or_default()),
                None if at < before.columns().len() => Origin::Kept(at),
                None => Origin::Fixed(of_older(&column)),
            };
            columns.push((at, column, from));
        }
        let partition_by = after.partition_by();
        if let Some(one) = made.iter().find(|one| catalog.has_relation(&one.name)) {
            return Err(database::taken(&one.name));
        }
        let mut rewrite =
            Rewrite::new(catalog, table, (&applied.name, after), (columns, after.key(), partition_by))?;
        let dropped = catalog.others().filter(|other| gone.contains(&other.id));
        let dropped = dropped.map(|sequence| database::dropped(sequence));
        rewrite.target.definitions = dropped.chain(made.iter().map(client::created)).collect();
        Ok(Rewrite { bound, made: made.clone(), ..rewrite })
    }

    /// For another primary key: `None`: none that anybody sees.
    pub fn keyed(
        catalog: &Catalog,
        table: &Arc<TableRecord>,
        key: Option<&[String]>,
    ) -> Result<Rewrite, Failure> {
        let schema = &table.schema;
        let visible = schema.visible().map(|at| (at, schema.columns()[at].clone(), Origin::Kept(at)));
        let mut columns: Columns = visible.collect();
        let mut places = Vec::new();
        match key {
            None => {
                let at = schema.columns().len();
                columns.push((at, ddl::hidden_key(), Origin::Numbered));
                places.push(at);
            }
            Some(names) => {
                for name in names {
                    let (at, column, _) =
                        columns.iter_mut().find(|(_, column, _)| column.name == *name).ok_or_else(|| {
                            let message =
                                format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                            Failure::new("42703", message)
                        })?;
                    column.nullable = false;
                    places.push(*at);
                }
            }
        }
        Rewrite::new(catalog, table, (&table.name, schema), (columns, &places, places.len()))
    }

    /// The columns and constraints that the table gets, which is made by a transaction and has no rows. What
    /// others refer to must be where it was.
    pub fn of_no_rows(self, catalog: &Catalog, table: &TableRecord) -> Result<Schema, Failure> {
        let stays = |at: &usize| self.target.places[*at] == Some(*at);
        let all = children(catalog, table.id);
        match all.iter().find(|(.., reference)| !reference.parent_columns.iter().all(stays)) {
            None => Ok(self.target.schema),
            Some((child, foreign, _)) => {
                let what = format!("another primary key for \"{}\", which others refer to", table.name);
                let hint = format!("drop the constraint \"{}\" of \"{}\" first", foreign.name, child.name);
                Err(Failure::unsupported(what, hint))
            }
        }
    }

    /// Rows that refer to others of their table would come before these.
    fn refers_to_others(&self, table: &TableRecord) -> Result<(), Failure> {
        let own = |one: &&Constraint| one.reference().is_some_and(|reference| reference.parent == table.id);
        let Some(foreign) = self.target.schema.constraints().iter().find(own) else { return Ok(()) };
        let what = format!("writing rows of \"{}\" anew, which refer to each other", table.name);
        let hint = format!("leave \"{}\" out for it, and add it by an ALTER TABLE of its own", foreign.name);
        Err(Failure::unsupported(what, hint))
    }

    /// `columns` with their places in the table as it was, by which `key` names some of them.
    fn new(
        catalog: &Catalog,
        table: &Arc<TableRecord>,
        (name, schema): (&str, &Schema),
        (columns, key, partition_by): (Columns, &[usize], usize),
    ) -> Result<Rewrite, Failure> {
        let at = |before: usize| columns.iter().position(|(at, ..)| *at == before);
        let places: Vec<Option<usize>> = (0..schema.columns().len()).map(at).collect();
        let key = key.iter().filter_map(|before| at(*before)).collect();
        let constraints = schema.constraints().iter().filter(|one| one.is_enforced());
        let constraints = constraints.map(|one| moved(one.clone(), &places)).collect();
        let follows = referring(catalog, table);
        let counted = |(at, mut column, from): (usize, Column, Origin)| {
            column.rules.missing = None;
            let numbered = column.rules.identity.is_some() && column.rules.sequence.is_none();
            if numbered && from != Origin::Numbered {
                // Numbers go on.
                column.rules.counter = column.rules.counter.or(Some((table.id.0, at as u32)));
            }
            (column, from)
        };
        let (columns, from): (Vec<Column>, Vec<Origin>) = columns.into_iter().map(counted).unzip();
        let plain = table.schema.clone().into_parts();
        let parts = SchemaParts { columns, key, partition_by, open: false, version: 1, constraints, ..plain };
        let schema = Schema::from_parts(parts).map_err(invalid)?;
        let target = Target { name: name.into(), schema, places, children: follows, definitions: Vec::new() };
        if let Some((child, foreign)) = without_target(catalog, table, &target) {
            let key = format!("{}_pkey", catalog.placed(name).1);
            let what = format!("cannot drop constraint {key} on table {name}");
            let message = format!("{what} because other objects depend on it");
            let detail = format!("constraint {foreign} on table {child} depends on index {key}");
            return Err(violation::depended_on(message, detail));
        }
        Ok(Rewrite { target, columns: from, bound: None, made: Vec::new() })
    }
}

/// What rows have in a column that were there before it.
fn of_older(column: &Column) -> Value {
    let text = column.rules.missing.as_deref();
    text.and_then(|text| column.column_type.parse(text).ok()).unwrap_or_default()
}

/// A constraint of the same columns, which are in other places. Each row is looked at as it is copied.
fn moved(mut constraint: Constraint, places: &[Option<usize>]) -> Constraint {
    let columns = match &mut constraint.demand {
        Demand::Check(_) => return constraint,
        Demand::Unique(columns) | Demand::Index(columns) => columns,
        Demand::Foreign(reference) => &mut reference.columns,
    };
    columns.iter_mut().for_each(|at| *at = places[*at].unwrap_or(usize::MAX));
    constraint.turned(Standing::Valid)
}

/// What is computed of rows, with their numbers; `None`: nothing. The error: it cannot be.
pub fn transforms(table: &Arc<TableRecord>, applied: &Applied) -> Result<Option<Arc<Bound>>, Failure> {
    let computed = applied.values.iter().filter_map(|(at, value)| match value {
        RowValue::Computed(expr, ty, says) if !applied.schema.columns()[*at].rules.hidden => {
            Some((table.schema.columns()[*at].name.as_str(), expr.as_ref(), *ty, *says))
        }
        _ => None,
    });
    let computed: Vec<_> = computed.collect();
    match computed.is_empty() {
        true => Ok(None),
        false => Binder::new(&Catalog::default(), &[]).transforms(table, &computed).map(Arc::new).map(Some),
    }
}

/// The other tables that refer to one whose rows are copied.
pub fn referring(catalog: &Catalog, table: &TableRecord) -> Vec<Arc<TableRecord>> {
    let mut found: Vec<Arc<TableRecord>> = Vec::new();
    for (child, ..) in children(catalog, table.id) {
        if child.id != table.id && found.iter().all(|known| known.id != child.id) {
            found.push(child);
        }
    }
    found
}

/// The first table whose foreign key finds nothing unique any more, and the key's name.
fn without_target(catalog: &Catalog, table: &Arc<TableRecord>, target: &Target) -> Option<(String, String)> {
    let all = children(catalog, table.id).into_iter();
    let mut lost = all.filter(|(.., reference)| {
        let columns: Option<Vec<usize>> =
            reference.parent_columns.iter().map(|at| target.places[*at]).collect();
        columns.is_none_or(|columns| target.schema.target(&columns).is_none())
    });
    lost.next().map(|(child, foreign, _)| (child.name.clone(), foreign.name))
}

/// Makes rows to what they become.
struct Converting {
    evaluator: Evaluator,
    runtime: runtime::Handle,
    rewrite: Arc<Rewrite>,
    /// The table that the rows are of then, for whoever looks at checks.
    to: Table,
    now: i64,
    /// Rows until now.
    count: i64,
}

impl Converting {
    fn new(evaluator: &Evaluator, rewrite: Arc<Rewrite>, now: i64) -> Converting {
        let to = Table::new(check::as_record(&rewrite.target.name, &rewrite.target.schema));
        Converting {
            evaluator: evaluator.clone(),
            runtime: runtime::Handle::current(),
            rewrite,
            to,
            now,
            count: 0,
        }
    }

    fn values(&self) -> Values {
        Values { parameters: Vec::new(), now: self.now }
    }

    /// What is computed of rows, in their order.
    async fn computed(&self, rows: &[Row]) -> Result<Vec<Vec<Value>>, Failure> {
        let mut found = vec![Vec::new(); rows.len()];
        let Some(bound) = &self.rewrite.bound else { return Ok(found) };
        let given = rows.iter().map(|row| Given { values: row.values.clone(), ..Given::default() });
        for mut row in self.evaluator.over(bound.clone(), &self.values(), given.collect()).await? {
            let number = match row.first() {
                Some(Value::Int(at)) => usize::try_from(*at).ok().and_then(|at| found.get_mut(at)),
                _ => None,
            };
            let place = number.ok_or_else(|| Failure::new(code::INTERNAL, "a row without its number"))?;
            *place = row.split_off(1);
        }
        match found.iter().any(Vec::is_empty) {
            true => Err(Failure::new(code::INTERNAL, "a row of which nothing was computed")),
            false => Ok(found),
        }
    }

    /// Sequences that come with new columns begin with their first number, also where rows are copied again.
    async fn begun(&self) -> Result<(), Failure> {
        for made in &self.rewrite.made {
            if let Some(Kind::Sequence(how)) = made.schema.kind() {
                self.evaluator.sequences.set(&self.evaluator.handle, made.id, how.start).await?;
            }
        }
        Ok(())
    }

    /// Numbers for so many rows, for each column that takes them from a sequence.
    async fn numbers(&self, rows: usize) -> Result<Vec<Vec<i64>>, Failure> {
        let (sequences, told) = self.evaluator.numbers();
        let handle = &self.evaluator.handle;
        let mut found = Vec::new();
        for from in &self.rewrite.columns {
            let Origin::Next(sequence) = from else {
                found.push(Vec::new());
                continue;
            };
            found.push(match self.rewrite.made.iter().find(|one| one.id == *sequence) {
                Some(made) => sequences.first(handle, told, made, rows).await?,
                None => sequences.next(handle, told, *sequence, rows).await?,
            });
        }
        Ok(found)
    }

    async fn converted(&mut self, rows: Vec<Row>) -> Result<Vec<Row>, Failure> {
        if self.evaluator.cancel.asked() {
            return Err(canceled());
        }
        let (computed, numbers) = (self.computed(&rows).await?, self.numbers(rows.len()).await?);
        let mut found = Vec::with_capacity(rows.len());
        for (place, (mut row, computed)) in rows.into_iter().zip(&computed).enumerate() {
            let number = FIRST_NUMBER + self.count;
            self.count += 1;
            let mut value = |from: &Origin, numbers: &[i64]| match from {
                // Each column is kept in one place at most.
                Origin::Kept(at) => std::mem::take(&mut row.values[*at]),
                Origin::Computed(at) => computed[*at].clone(),
                Origin::Fixed(value) => value.clone(),
                Origin::Random => eval::random_uuid(),
                Origin::Numbered => Value::Int(number),
                Origin::Next(_) => numbers.get(place).copied().map_or(Value::Null, Value::Int),
            };
            let columns = self.to.schema().columns().iter().zip(&self.rewrite.columns).zip(&numbers);
            let values = columns.map(|((column, from), numbers)| fitted(column, value(from, numbers)));
            found.push(Row::new(values.collect::<Result<_, _>>()?));
        }
        match check::first_against(&self.evaluator, &self.to, &found, &self.values()).await? {
            None => Ok(found),
            Some((_, name)) => Err(violation::check_not_kept(self.to.record(), &name)),
        }
    }
}

impl Convert for Converting {
    fn begin(&mut self) -> Result<(), Failure> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.begun())
    }

    fn rows(&mut self, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.converted(found.into_iter().map(|one| one.row).collect()))
    }

    fn refused(&self, why: Refusal<'_>) -> Failure {
        match why {
            Refusal::Key(table, key) => {
                let message = format!("could not create unique index \"{}_pkey\"", table.name());
                let failure = Failure::new("23505", message);
                match key.and_then(|key| write::shown(table, key)) {
                    Some(key) => failure.detail(format!("Key {key} is duplicated.")),
                    None => failure,
                }
            }
            Refusal::Constraint(_, number, _) => {
                let mut all = self.to.schema().constraints().iter();
                match all.find(|one| one.number == number) {
                    Some(constraint) => violation::not_kept(self.to.record(), constraint, |_| None),
                    None => fault::of_client(ClientError::Violates(number)),
                }
            }
        }
    }
}

/// Has a table become what `make` says, from the tables as they are and the first of `count` numbers for
/// constraints. It is asked again where somebody else was faster.
pub async fn carry_out(
    evaluator: &Evaluator,
    (name, count): (&str, u32),
    values: &Values,
    make: impl Fn(&Catalog, &Arc<TableRecord>, u32) -> Result<Rewrite, Failure>,
) -> Result<(), Failure> {
    let is_spread = evaluator.handle.spread().is_some();
    refilled(evaluator, (name, count), |catalog, table, first| {
        fault::together(table, "another primary key or type")?;
        if is_spread && !table.schema.is_replicated() {
            let hint = "it says where rows lie: make another table, and INSERT ... SELECT what is there";
            let what = "another primary key or type in a database of several partitions";
            return Err(Failure::unsupported(what, hint));
        }
        let rewrite = Arc::new(make(catalog, table, first)?);
        rewrite.refers_to_others(table)?;
        Ok((rewrite.target.clone(), Converting::new(evaluator, rewrite, values.now)))
    })
    .await
}

/// Has a table filled under another id: `make` says with what, from the tables as they are and the first of
/// `count` numbers for constraints. It is asked again where somebody else was faster.
pub async fn refilled<C: Convert + Send + 'static>(
    evaluator: &Evaluator,
    (name, count): (&str, u32),
    make: impl Fn(&Catalog, &Arc<TableRecord>, u32) -> Result<(Target, C), Failure>,
) -> Result<(), Failure> {
    let handle = &evaluator.handle;
    let (mut losses, mut changes) = (0, 0);
    loop {
        database::lift_abandoned(handle).await?;
        let catalog = handle.look().await?;
        let missing = || Failure::new("42P01", format!("relation \"{name}\" does not exist"));
        let table = catalog.table(name).cloned().ok_or_else(missing)?;
        let busy = under_way(&catalog, table.id);
        if !busy {
            let first = database::numbers(handle, count.max(1)).await?;
            let (target, mut convert) = make(&catalog, &table, first)?;
            database::counted(handle, &target.schema).await?;
            let database = handle.database_record()?;
            let work = move |client: &mut Client| {
                let (table, convert) = (Table::new(table), &mut convert);
                Ok(match table.schema().is_replicated() {
                    true => whole::refill(client, &database, (&table, &target), convert),
                    false => refill::refill(client, &database, (&table, &target), convert),
                })
            };
            let done = ddl::on_a_client(handle, work).await;
            // Tables have other versions, whatever came of it.
            handle.outdate();
            match done? {
                Err(failure) if fault::is_stale(&failure) && changes < MAX_CHANGES => changes += 1,
                Err(failure) if fault::is_conflict(&failure) => {
                    losses += 1;
                    if losses > LOSSES {
                        let message = format!("rows of \"{name}\" that were copied were lost with a primary");
                        return Err(Failure::new(fault::SERIALIZATION, message)
                            .hint("nothing was changed; try again when the cluster is calm"));
                    }
                }
                done => {
                    if done.is_ok() {
                        several::finished(handle).await?;
                    }
                    handle.look_again().await;
                    return done;
                }
            }
        }
        pause(evaluator).await?;
    }
}

/// True while somebody copies the rows of a table, or of one that refers to it.
pub fn under_way(catalog: &Catalog, table: TableId) -> bool {
    let all: BTreeSet<TableId> =
        children(catalog, table).into_iter().map(|(child, ..)| child.id).chain([table]).collect();
    let following = catalog.under_way.following.iter().map(|following| &following.id);
    catalog.under_way.held.keys().chain(following).any(|held| all.contains(held))
}

/// Waits a moment, while somebody copies the rows of a table.
pub async fn pause(evaluator: &Evaluator) -> Result<(), Failure> {
    tokio::select! {
        () = tokio::time::sleep(WRITABLE_POLL_INTERVAL) => Ok(()),
        () = evaluator.cancel.wait() => Err(canceled()),
    }
}
