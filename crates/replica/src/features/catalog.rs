//! Tables of a database ([`types::database`]): what becomes of them, and writes to several of them.
//!
//! Only the primary thinks. What it finds out is in its entries, so backups apply the catalog's rows like any
//! others.

use crate::features::constraint::{Tables, without_parent};
use crate::rows::{self, Evaluated, Since};
use crate::scope::Scope;
use procedure::{Runtime, Shape};
use std::collections::BTreeSet;
use types::data::constraint::Standing;
use types::data::kind::{Kind, Procedure};
use types::database::MAX_TABLES;
use types::engine::{Engine, EngineError};
use types::{
    CatalogTable, KeySpace, Mutation, PartitionRecord, Position, ReadAt, Rules, TableId, TableState,
};
use wire::{Op, Outcome, Request, TableChange, TablePart};

/// Why such a request can never be done in this partition, if so.
pub(crate) fn fault(record: &PartitionRecord, request: &Request) -> Option<String> {
    let (id, own) = (record.id, request.table == record.table);
    let transacts = matches!(request.op, Op::Transact { .. });
    if let Some(fault) = fault_of_transactions(record, &request.op) {
        return Some(fault);
    }
    if !record.is_of_database() {
        let calls = matches!(request.op, Op::Call(_));
        return (transacts || calls)
            .then(|| format!("partition {id} is of one table, and not of a database"));
    }
    match &request.op {
        Op::Call(_) if !own => Some("a call of a procedure is one of the database".into()),
        Op::Write { .. } if own => Some("a catalog is changed by changes of its tables".into()),
        Op::Transact { .. } if !own => Some("a write to several tables is one of the database".into()),
        Op::Feed { .. } | Op::Job { .. } | Op::EndJob { .. } if own => {
            Some("what is fed or done by a job is rows of a table, and not of a database".into())
        }
        Op::Stage { .. } | Op::StagePiece { .. } | Op::Unstage { .. } | Op::Load { .. } if own => {
            Some("a bulk load is of rows of a table, and not of a database".into())
        }
        // No commit says what such files have.
        Op::Stage { .. } | Op::StagePiece { .. } if record.is_global() => {
            Some(written_by_transactions(record))
        }
        _ => None,
    }
}

/// The same, for what a partition has to do with global transactions: rows that these write are written by
/// nobody else, or a snapshot would show what no commit says.
fn fault_of_transactions(record: &PartitionRecord, op: &Op) -> Option<String> {
    let id = record.id;
    let of_commits = matches!(op, Op::Flush(_) | Op::FlushState { .. });
    if of_commits && !record.is_global() {
        return Some(format!("partition {id} is written by no global transactions"));
    }
    if matches!(op, Op::Manager(_)) != record.keeps_commits()
        && (op.makes_entries() || matches!(op, Op::Manager(_)))
    {
        let why = match record.keeps_commits() {
            true => format!("partition {id} has the commits of global transactions, and nothing else"),
            false => format!("partition {id} has no commits of global transactions"),
        };
        return (!matches!(op, Op::OpenSession)).then_some(why);
    }
    let writes = match op {
        // A table without a name is filled by who makes it: no commit names it ([`names_a_table`]).
        Op::Write { .. } => false,
        Op::Job { .. } | Op::EndJob { .. } | Op::Load { .. } => true,
        Op::Transact { parts, .. } => !parts.is_empty(),
        // A partition has some of the rows that a call may look for.
        Op::Call(_) => true,
        _ => false,
    };
    (record.is_global() && writes).then(|| written_by_transactions(record))
}

/// A change of a table that was read and is sound by itself.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Change {
    Create(CatalogTable),
    Alter(u32, CatalogTable),
    Drop(TableId, u32),
}

/// The changes of a request. The error is a sentence.
pub(crate) fn read_changes(changes: &[TableChange]) -> Result<Vec<Change>, String> {
    let sound = |text: &wire::RecordText| {
        let table: CatalogTable = text.read()?;
        table.fault().map_or(Ok(table), Err)
    };
    let read = |change: &TableChange| match change {
        TableChange::Create(table) => sound(table).map(Change::Create),
        TableChange::Alter { from, to } => sound(to).map(|to| Change::Alter(*from, to)),
        TableChange::Drop { table, schema } => Ok(Change::Drop(*table, *schema)),
    };
    changes.iter().map(read).collect()
}

/// A partition that global transactions write may have rows of a table before it knows the table, since
/// nothing holds flushes up: its indexes are built of these (PR-257).
pub(crate) fn with_indexes_to_build(
    record: &PartitionRecord,
    changes: Vec<Change>,
) -> Result<Vec<Change>, String> {
    let to_build = |change: Change| match change {
        Change::Create(table) if record.is_global() => {
            let mut all = table.schema.constraints().to_vec();
            let indexes = all.iter_mut().filter(|one| one.indexed().is_some());
            indexes.for_each(|one| one.standing = Standing::Building);
            table.constrained(all).map(Change::Create)
        }
        change => Ok(change),
    };
    changes.into_iter().map(to_build).collect()
}

/// Why a write cannot be done in a partition that global transactions write, if so: the table has a name.
pub(crate) fn names_a_table(
    record: &PartitionRecord,
    engine: &dyn Engine,
    table: TableId,
) -> Result<Option<String>, EngineError> {
    if !record.is_global() {
        return Ok(None);
    }
    let definition = engine.get(&types::database::catalog_key(table), ReadAt::Applied)?;
    let state = definition.map(|(_, value)| types::database::standing_of(&value)).transpose();
    let fills = state.map_err(EngineError::Corrupt)?.is_some_and(|(state, _)| state == TableState::Filling);
    Ok((!fills).then(|| written_by_transactions(record)))
}

fn written_by_transactions(record: &PartitionRecord) -> String {
    format!("partition {} is written by global transactions: begin one, and commit it", record.id)
}

/// Why these changes cannot be made in a partition that global transactions write, if so, as a sentence.
pub(crate) fn fault_of_global(record: &PartitionRecord, changes: &[Change]) -> Option<String> {
    let table = |change: &Change| match change {
        Change::Create(table) | Change::Alter(_, table) => Some(table.clone()),
        Change::Drop(..) => None,
    };
    let mut tables = changes.iter().filter_map(table).filter(|_| record.is_global());
    tables.find_map(|table| {
        let name = &table.name;
        // A flush is never held up, so one could come behind the copy of its row.
        if table.state() == TableState::Held || table.fills.is_some_and(|of| of != table.id) {
            return Some(format!(
                "rows of table `{name}` cannot be copied into another one: nothing holds flushes up"
            ));
        }
        None
    })
}

/// Why rows do not come in files into this table of a database, if so, as a sentence: nobody looks at what
/// such rows are, and at what they replace (PR-449).
pub(crate) fn fault_of_load(table: &CatalogTable) -> Option<String> {
    let name = &table.name;
    match (table.schema.constraints().is_empty(), table.schema.is_replicated()) {
        (true, false) => None,
        (false, _) => {
            Some(format!("table `{name}` has constraints or indexes, which a bulk load does not look at"))
        }
        (true, true) => {
            Some(format!("table `{name}` is in all partitions, and a bulk load is of each alone"))
        }
    }
}

/// Why a write to a database's tables is not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// By what the state is.
    Outcome(Outcome),
    /// It never can be. A sentence.
    Bad(String),
}

/// Every table of a state, those among them that are being removed.
pub(crate) fn tables_at(engine: &dyn Engine, at: ReadAt) -> Result<Tables, EngineError> {
    let (from, to) = KeySpace::Catalog.range(&[], &[]);
    let rows = engine.scan(&from, &to, at, 2 * MAX_TABLES, usize::MAX)?;
    let read = |row: &types::engine::Row| {
        let (state, table) = CatalogTable::decode(&KeySpace::Catalog.key_of(&row.key), &row.value)?;
        Ok((table.id, (state, table)))
    };
    rows.iter().map(read).collect::<Result<_, String>>().map_err(EngineError::Corrupt)
}

/// Does the changes on what is there. Gives the tables that are others now.
fn apply_changes(
    (rules, runtime): (Rules, &Runtime),
    is_global: bool,
    mut tables: Tables,
    changes: &[Change],
) -> Result<Tables, Refused> {
    let mut changed = Vec::with_capacity(changes.len());
    let stale = || Refused::Outcome(Outcome::Stale);
    for change in changes {
        let (id, table, state) = match change {
            Change::Create(table) => {
                // Several clients bring a partition to what the first one has: one was faster.
                let made = tables.get(&table.id).map(|(_, there)| there.created_ms == table.created_ms);
                if made == Some(true) {
                    return Err(stale());
                }
                if made.is_some() {
                    return Err(Refused::Bad(format!("the id {} was given to two tables", table.id)));
                }
                (table.id, table.clone(), table.state())
            }
            Change::Alter(from, to) => {
                let before = known(rules, &tables, to.id, *from).ok_or_else(stale)?;
                let fault = to.change_fault(before).filter(|_| rules.changes_keep_rows_readable());
                if let Some(fault) = fault {
                    return Err(Refused::Bad(fault));
                }
                let to = to.clone().behind(before).map_err(Refused::Bad)?;
                (to.id, to.clone(), to.state())
            }
            Change::Drop(id, schema) => {
                (*id, known(rules, &tables, *id, *schema).ok_or_else(stale)?.clone(), TableState::Dropping)
            }
        };
        tables.insert(id, (state, table));
        changed.push(id);
    }
    if changed.iter().any(|id| shares_its_name(rules, &tables, *id)) {
        return Err(Refused::Outcome(Outcome::NameTaken));
    }
    if tables.len() > MAX_TABLES {
        return Err(Refused::Outcome(Outcome::TooMuch));
    }
    // Whoever asked did not see the other table as it is.
    if without_parent(&tables, is_global).is_some() {
        return Err(stale());
    }
    for id in &changed {
        if let Some(checked) = checked(runtime, &tables, *id).map_err(Refused::Bad)? {
            tables.insert(*id, (TableState::Live, checked));
        }
    }
    let mut names = BTreeSet::new();
    for (_, table) in tables.values().filter(|(state, _)| state.is_named()) {
        assert!(names.insert(&table.name), "PR-123: two tables of a database have the name '{}'", table.name);
    }
    tables.retain(|id, _| changed.contains(id));
    Ok(tables)
}

/// A new procedure, once it is clear that it can run here (PR-191); none: this is something else.
fn checked(runtime: &Runtime, tables: &Tables, id: TableId) -> Result<Option<CatalogTable>, String> {
    let Some((TableState::Live, table)) = tables.get(&id) else { return Ok(None) };
    let Some((_, procedure)) = table.schema.procedure().filter(|(_, procedure)| !procedure.checked) else {
        return Ok(None);
    };
    let refused = |why: String| format!("procedure `{}`: {why}", table.name);
    runtime.prepare(table, &|name| shape_of(tables, name)).map_err(refused)?;
    let kind = Kind::Procedure(Procedure { checked: true, ..procedure.clone() });
    let schema = table.schema.clone().of_kind(kind).map_err(|error| error.to_string())?;
    Ok(Some(CatalogTable { schema, ..table.clone() }))
}

/// The table of this name, as procedures see it.
pub(crate) fn shape_of(tables: &Tables, name: &str) -> Option<Shape> {
    let named = |(state, table): &&(TableState, CatalogTable)| state.is_named() && table.name == name;
    tables.values().find(named).map(|(state, table)| Shape::of(*state, table))
}

/// True if another table has the name of this one. It is asked behind all changes of a request: in it two
/// tables may get each other's names.
fn shares_its_name(rules: Rules, tables: &Tables, id: TableId) -> bool {
    let is_named = |state: TableState| match rules.filled_tables_have_no_name() {
        true => state.is_named(),
        false => state != TableState::Dropping,
    };
    let Some((state, table)) = tables.get(&id) else { return false };
    let named = |(other, (state, there)): (&TableId, &(TableState, CatalogTable))| {
        *other != id && is_named(*state) && there.name == table.name
    };
    is_named(*state) && tables.iter().any(named)
}

/// The table with this id, if it is of this version and not being removed.
fn known(rules: Rules, tables: &Tables, id: TableId, schema: u32) -> Option<&CatalogTable> {
    let (state, table) = tables.get(&id)?;
    let same = table.schema.version() == schema || !rules.schemas_are_compared();
    (*state != TableState::Dropping && same).then_some(table)
}

/// What a write to a database's tables comes to: its outcome, how many rows change, and how.
pub(crate) fn evaluate_parts(
    engine: &dyn Engine,
    record: &PartitionRecord,
    (rules, runtime): (Rules, &Runtime),
    (changes, parts): (&[Change], &[TablePart]),
    since: Option<Position>,
) -> Result<Result<Evaluated, Refused>, EngineError> {
    let before = if changes.is_empty() { Tables::new() } else { tables_at(engine, ReadAt::Applied)? };
    let filled = |(_, table): &(TableState, CatalogTable)| Some((table.fills?, table.id));
    let filled: Vec<(TableId, TableId)> = before.values().filter_map(filled).collect();
    let changed = match apply_changes((rules, runtime), record.is_global(), before, changes) {
        Ok(changed) => changed,
        Err(refused) => return Ok(Err(refused)),
    };
    let store = |(state, table): &(TableState, CatalogTable)| Mutation {
        key: table.stored_key(),
        value: Some(table.encode(*state)),
    };
    let mut mutations: Vec<Mutation> = changed.values().map(store).collect();
    let state = |id: &TableId| changed.get(id).map(|(state, _)| *state);
    for (old, new) in filled {
        // It takes the place of the table from whose rows it was filled.
        if state(&old) == Some(TableState::Dropping) && state(&new) == Some(TableState::Live) {
            mutations.extend(rows::feeds_of(engine, rules, old, new)?);
        }
    }
    let mut affected = 0;
    for part in parts {
        let scope = match changed.get(&part.table) {
            Some((state, table)) => Scope::of_changed(rules, (*state, table), part.schema),
            None => Scope::of_writes(engine, (record, rules), (part.table, part.schema))?,
        };
        // The database's own id is that of no table.
        let Some(scope) = scope.ok().filter(|scope| scope.keys() == KeySpace::Table(part.table)) else {
            return Ok(Err(Refused::Outcome(Outcome::Stale)));
        };
        if let Some(fault) = scope.fault(&part.ops) {
            return Ok(Err(Refused::Bad(fault)));
        }
        let since = if part.seen.is_empty() { Since::All(since) } else { Since::Each(&part.seen) };
        let (outcome, rows, more) = rows::evaluate(engine, rules, &scope, &part.ops, (None, since))?;
        if outcome != Outcome::Done {
            return Ok(Err(Refused::Outcome(outcome)));
        }
        affected += rows;
        mutations.extend(more);
    }
    Ok(Ok((Outcome::Done, affected, mutations)))
}

#[cfg(test)]
mod tests;
