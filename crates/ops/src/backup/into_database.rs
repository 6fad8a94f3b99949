//! A database of a backup, made anew, in whatever cluster and under whatever name.
//!
//! Everything in it gets numbers that this cluster gives out now: ids of tables, versions of their columns,
//! constraints. None of them was ever another table's (PR-182), and what names one of them is told the new
//! one: foreign keys, defaults that take numbers of a sequence, counters. Tables are filled under ids that
//! have no name ([`types::TableState::Filling`]); what finds rows and what is unique is kept as they come. At
//! the end all are named, with their foreign keys, and the primary looks at these rows once more as at those
//! of any table that gets one. So whoever sees a table of the database sees all of its rows.

use super::manifest::{DatabaseEntry, TableEntry};
use super::restore::{Numbers, RestorePlan, load, request};
use crate::failure::{Failure, Status};
use crate::load::Watcher;
use client::database::Database;
use client::{Client, created, wall_ms};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::data::{Constraint, Demand, Fallback, Schema, SchemaParts, Standing};
use types::database::SHARED;
use types::{CatalogTable, TableId};
use wire::control::MOST_NUMBERS;
use wire::message::MAX_CHANGES;
use wire::{RecordText, TableChange};

/// Definitions of one entry have so many bytes at most, beside the first of them.
const MOST_BYTES: usize = 4 << 20;
/// Between two looks at how far constraints are.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A table that is made anew.
struct Remade<'a> {
    entry: &'a TableEntry,
    id: TableId,
    /// Of its columns as it is filled, and as it is named.
    versions: (u32, u32),
    /// Its constraints' numbers, by the former ones.
    constraints: BTreeMap<u32, u32>,
}

/// Makes the database and all that is in it. The fewest copies that an acknowledgement counted.
pub(super) fn restore(
    client: &mut Client,
    plan: &RestorePlan,
    (name, entry): (&str, &DatabaseEntry),
    numbers: &Numbers,
    watcher: &mut dyn Watcher,
) -> Result<Option<u8>, Failure> {
    let remade = draw(client, entry)?;
    let ids: BTreeMap<TableId, TableId> = remade.iter().map(|one| (one.entry.record.id, one.id)).collect();
    // What is wrong with a definition is known before there is anything.
    let definitions = remade.iter().map(|one| Ok((one, one.definitions(&ids)?)));
    let definitions: Vec<_> = definitions.collect::<Result<_, Failure>>()?;
    let database = made(client, (name, entry), plan.factor)?;
    let filling = definitions.iter().filter_map(|(_, (filling, _))| filling.as_ref());
    change(client, &database, filling.map(created).collect())?;
    let mut copies: Option<u8> = None;
    for (one, (filling, _)) in &definitions {
        numbers.give_all(client, &one.entry.record, one.id)?;
        let Some(filling) = filling else { continue };
        let table = &one.entry.record.name;
        watcher.say(&format!("restores table {name}.{table}: {} rows", one.entry.rows));
        let into = database.table(filling.clone());
        let counted = load(client, plan, one.entry, &into, Some(one.versions.0), watcher)?;
        copies = copies.into_iter().chain(counted).min();
    }
    let named = |(one, (filling, named)): &(&Remade<'_>, (Option<CatalogTable>, CatalogTable))| match filling
    {
        None => created(named),
        Some(_) => TableChange::Alter { from: one.versions.0, to: RecordText::new(named) },
    };
    change(client, &database, definitions.iter().map(named).collect())?;
    settled(client, &database, &remade, watcher)?;
    Ok(copies)
}

/// Numbers of this cluster for all that is in a database.
fn draw<'a>(client: &mut Client, entry: &'a DatabaseEntry) -> Result<Vec<Remade<'a>>, Failure> {
    let wanted = entry.tables.iter().map(|table| 3 + table.record.schema.constraints().len() as u64).sum();
    let mut drawn = Drawn { left: 0..0, wanted };
    let mut remade = Vec::new();
    for table in &entry.tables {
        let id = TableId(drawn.next(client)?);
        let versions = (drawn.next(client)?, drawn.next(client)?);
        let mut constraints = BTreeMap::new();
        for one in table.record.schema.constraints() {
            constraints.insert(one.number, drawn.next(client)?);
        }
        remade.push(Remade { entry: table, id, versions, constraints });
    }
    Ok(remade)
}

/// Numbers, each higher than the one before.
struct Drawn {
    left: std::ops::Range<u32>,
    wanted: u64,
}

impl Drawn {
    fn next(&mut self, client: &mut Client) -> Result<u32, Failure> {
        if self.left.is_empty() {
            let count = self.wanted.clamp(1, u64::from(MOST_NUMBERS)) as u32;
            let first = client.numbers(count)?;
            self.left = first..first + count;
        }
        self.wanted = self.wanted.saturating_sub(1);
        Ok(self.left.next().expect("some were drawn"))
    }
}

impl Remade<'_> {
    /// How it is filled, if it has rows, and how it is named.
    fn definitions(
        &self,
        ids: &BTreeMap<TableId, TableId>,
    ) -> Result<(Option<CatalogTable>, CatalogTable), Failure> {
        let record = &self.entry.record;
        let bad = |why: String| Failure::failed(format!("table `{}` of the backup: {why}", record.name));
        let parts = self.renumbered(ids).map_err(bad)?;
        let first = |one: &Constraint| one.is_kept() && one.reference().is_none();
        let with = |constraints: Vec<Constraint>, version: u32| {
            let schema = Schema::from_parts(SchemaParts { constraints, version, ..parts.clone() });
            schema.map_err(|error| bad(error.to_string()))
        };
        let made = |schema, created_ms| CatalogTable::new(self.id, &record.name, schema, created_ms);
        if !self.entry.has_rows() {
            return Ok((None, made(with(parts.constraints.clone(), self.versions.0)?, record.created_ms)));
        }
        let kept = parts.constraints.iter().filter(|one| first(one)).cloned().collect();
        // Nobody takes it for one that was left half done while it is filled.
        let filling = made(with(kept, self.versions.0)?, wall_ms());
        let filling = CatalogTable { fills: Some(self.id), ..filling };
        let named = made(with(parts.constraints.clone(), self.versions.1)?, record.created_ms);
        Ok((Some(filling), named))
    }

    /// Its columns and constraints with this cluster's numbers. The error is a sentence.
    fn renumbered(&self, ids: &BTreeMap<TableId, TableId>) -> Result<SchemaParts, String> {
        let now = |id: TableId| {
            ids.get(&id)
                .copied()
                .ok_or_else(|| format!("it names table {id}, which the database does not have"))
        };
        let mut parts = self.entry.record.schema.clone().into_parts();
        for column in &mut parts.columns {
            let rules = &mut column.rules;
            // Its counter has its own name now.
            rules.counter = None;
            if let Some(sequence) = &mut rules.sequence {
                *sequence = now(TableId(*sequence))?.0;
            }
            if let Some(Fallback::Next(sequence)) = &mut rules.default {
                *sequence = now(TableId(*sequence))?.0;
            }
        }
        parts.constraints.retain(Constraint::is_enforced);
        for one in &mut parts.constraints {
            one.number = self.constraints[&one.number];
            if let Demand::Foreign(reference) = &mut one.demand {
                reference.parent = now(reference.parent)?;
            }
        }
        Ok(parts)
    }

    /// True if every row kept this constraint in the backup, by its number now.
    fn was_valid(&self, number: u32) -> bool {
        let all = self.entry.record.schema.constraints().iter();
        all.filter(|one| one.is_kept()).any(|one| self.constraints[&one.number] == number)
    }
}

/// Makes changes of tables, as many in one entry as there may be.
fn change(client: &mut Client, database: &Database, changes: Vec<TableChange>) -> Result<(), Failure> {
    let length = |change: &TableChange| match change {
        TableChange::Create(text) | TableChange::Alter { to: text, .. } => text.0.len(),
        TableChange::Drop { .. } => 0,
    };
    let (mut some, mut bytes): (Vec<TableChange>, usize) = (Vec::new(), 0);
    for change in changes {
        let more = length(&change);
        if !some.is_empty() && (some.len() >= MAX_CHANGES || bytes + more > MOST_BYTES) {
            client.call(database.transact(std::mem::take(&mut some), Vec::new(), None))?;
            bytes = 0;
        }
        bytes += more;
        some.push(change);
    }
    if !some.is_empty() {
        client.call(database.transact(some, Vec::new(), None))?;
    }
    // What is done in the first partition comes to the others (PR-170).
    client.level(database)?;
    Ok(())
}

/// The database that is to be filled: a new one, or the one that is always there, as it is.
fn made(
    client: &mut Client,
    (name, entry): (&str, &DatabaseEntry),
    factor: Option<u8>,
) -> Result<Database, Failure> {
    match client.database(name) {
        Ok(there) if name == SHARED => Ok(there),
        _ => {
            let request = request(&entry.record, name, factor);
            Ok(match request.global {
                true => client.create_global_database(&request)?,
                false => client.create_database(&request)?,
            })
        }
    }
}

/// Drops everything that has a name in a database that stays.
pub(super) fn empty(client: &mut Client, name: &str) -> Result<(), Failure> {
    let database = client.database(name)?;
    let tables = client.tables_of(&database)?;
    let drop =
        |table: &client::Table| TableChange::Drop { table: table.id(), schema: table.schema().version() };
    change(client, &database, tables.iter().map(drop).collect())
}

/// Waits until the primary has looked at all rows for what they refer to.
fn settled(
    client: &mut Client,
    database: &Database,
    remade: &[Remade<'_>],
    watcher: &mut dyn Watcher,
) -> Result<(), Failure> {
    watcher.phase("checking constraints", None);
    loop {
        let tables = client.tables_of(database)?;
        let own = |table: &client::Table| remade.iter().find(|one| one.id == table.id());
        let mut builds = false;
        for table in &tables {
            let Some(one) = own(table) else { continue };
            for constraint in table.schema().constraints() {
                // Each partition looks at its own rows (PR-171).
                let standings = match database.partitions().nth(1) {
                    Some(_) => client.standings(database, (table.id(), constraint.number))?,
                    None => vec![Some(constraint.standing)],
                };
                let some = |wanted: Standing| standings.contains(&Some(wanted));
                builds |= some(Standing::Building) && constraint.indexed().is_some();
                if some(Standing::Failed) && one.was_valid(constraint.number) {
                    return Err(Failure::failed(format!(
                        "the rows of `{}` do not keep its constraint `{}`: {}",
                        table.name(),
                        constraint.name,
                        constraint.note
                    )));
                }
            }
        }
        if !builds {
            return Ok(());
        }
        if watcher.stopped() {
            return Err(Failure::new(Status::Failed, "stopped"));
        }
        let until = Instant::now() + LOOK_EVERY;
        while Instant::now() < until {
            let _ = client.poll(until.saturating_duration_since(Instant::now()))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;
    use types::config::Holds;
    use types::data::constraint::Reference;
    use types::data::{Column, ColumnType, Identity};

    fn entry(schema: Schema) -> TableEntry {
        let mut record = table(1).record().clone();
        (record.id, record.name, record.holds) = (TableId(70), "bank".into(), Holds::Database);
        TableEntry::new(record.with_table(CatalogTable::new(TableId(71), "pets", schema, 3)), Vec::new())
    }

    fn schema(constraints: Vec<Constraint>) -> Schema {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("of", ColumnType::Int)];
        let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
        let mut parts = schema.with_constraints(constraints).expect("valid").into_parts();
        (parts.version, parts.columns[0].rules.sequence) = (500, Some(72));
        parts.columns[0].rules.identity = Some(Identity::ByDefault);
        parts.columns[1].rules.default = Some(Fallback::Next(72));
        Schema::from_parts(parts).expect("valid")
    }

    fn own(entry: &TableEntry) -> Remade<'_> {
        let constraints = (81..=84).map(|number| (number, number + 100)).collect();
        Remade { entry, id: TableId(171), versions: (172, 173), constraints }
    }

    #[test]
    fn pr182_everything_is_named_by_numbers_of_this_cluster() {
        let reference = Reference {
            columns: vec![1],
            parent: TableId(71),
            parent_columns: vec![0],
            on_delete: Default::default(),
            on_update: Default::default(),
            deferred: None,
        };
        let entry = entry(schema(vec![
            Constraint::new(81, "u", Demand::Unique(vec![1])),
            Constraint::new(82, "f", Demand::Foreign(reference)),
            Constraint::new(83, "late", Demand::Index(vec![1])).turned(Standing::Building),
            Constraint::new(84, "gone", Demand::Index(vec![0])).turned(Standing::Dropping),
        ]));
        let ids = [(TableId(71), TableId(171)), (TableId(72), TableId(272))].into();
        let (filling, named) = own(&entry).definitions(&ids).expect("sound");
        let filling = filling.expect("it has rows");
        let of = |table: &CatalogTable| {
            let all = table.schema.constraints().iter().map(|one| one.number).collect::<Vec<_>>();
            (table.id, table.fills, table.schema.version(), all)
        };
        assert_eq!(of(&filling), (TableId(171), Some(TableId(171)), 172, vec![181]));
        assert_eq!(of(&named), (TableId(171), None, 173, vec![181, 182, 183]));
        assert_eq!(named.change_fault(&filling), None);
        let behind = named.clone().behind(&filling).expect("sound");
        let standings: Vec<Standing> = behind.schema.constraints().iter().map(|one| one.standing).collect();
        assert_eq!(standings, [Standing::Valid, Standing::Building, Standing::Building]);
        let parent = named.schema.constraints()[1].reference().map(|reference| reference.parent);
        assert_eq!(parent, Some(TableId(171)));
        let rules: Vec<_> = named.schema.columns().iter().map(|column| &column.rules).collect();
        assert_eq!((rules[0].sequence, &rules[1].default), (Some(272), &Some(Fallback::Next(272))));
        assert_eq!(named.created_ms, 3);
        let missing = own(&entry).definitions(&[(TableId(71), TableId(171))].into());
        let why = missing.expect_err("a sequence is missing").sentence;
        assert!(why.contains("it names table"), "{why}");
    }
}
