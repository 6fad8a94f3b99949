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
        Op::Stage { .. } | Op::StagePiece { .. } | Op::Unstage { .. } | Op::Load { .. } => {
            let why =
                "bulk loads cannot be done in a database: they would hold up the writes of all its tables";
            Some(why.into())
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
    rules: Rules,
    runtime: &Runtime,
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
    if without_parent(&tables).is_some() {
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
    let changed = match changes.is_empty() {
        true => Tables::new(),
        false => match apply_changes(rules, runtime, tables_at(engine, ReadAt::Applied)?, changes) {
            Ok(changed) => changed,
            Err(refused) => return Ok(Err(refused)),
        },
    };
    let store = |(state, table): &(TableState, CatalogTable)| Mutation {
        key: table.stored_key(),
        value: Some(table.encode(*state)),
    };
    let mut mutations: Vec<Mutation> = changed.values().map(store).collect();
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
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at, member};
    use bytes::Bytes;
    use types::data::{Column, ColumnType, Schema};
    use types::{Epoch, LogKind, Lsn, PartitionId, Policy};
    use wire::{RecordText, RowOp};

    const DATABASE: TableId = TableId(5);
    const PETS: TableId = TableId(7);
    const TOWNS: TableId = TableId(8);

    fn record() -> PartitionRecord {
        let policy = Policy::preset("sync", 1, LogKind::Disk).expect("a preset");
        PartitionRecord::new(PartitionId(64), DATABASE, Epoch(1), vec![member()], policy).of_database()
    }

    fn table(id: TableId, name: &str, version: u32, more: usize) -> CatalogTable {
        let columns = (0..=more).map(|n| Column::new(format!("c{n}"), ColumnType::Int)).collect();
        let mut parts = Schema::new(columns, &["c0"], 1, false).expect("valid").into_parts();
        parts.version = version;
        CatalogTable::new(id, name, Schema::from_parts(parts).expect("valid"), 0)
    }

    fn create(id: TableId, name: &str) -> TableChange {
        TableChange::Create(RecordText::new(&table(id, name, 1, 0)))
    }

    fn part(table: TableId, schema: u32, keys: &[&str]) -> TablePart {
        let put = |key: &&str| RowOp::Put { key: Bytes::copy_from_slice(key.as_bytes()), row: "row".into() };
        TablePart { table, schema, ops: keys.iter().map(put).collect(), seen: Vec::new() }
    }

    /// A partition in memory that does one write after the other.
    struct World {
        engine: FakeEngine,
        lsn: u64,
    }

    impl World {
        fn new() -> World {
            World { engine: FakeEngine::new(), lsn: 0 }
        }

        fn execute(&mut self, mutations: &[Mutation]) -> Position {
            self.lsn += 1;
            self.engine.execute(at(self.lsn), mutations);
            at(self.lsn)
        }

        fn write(&mut self, changes: &[TableChange], parts: &[TablePart]) -> Result<u32, Refused> {
            let changes = read_changes(changes).map_err(Refused::Bad)?;
            let all = (&changes[..], parts);
            let evaluated =
                evaluate_parts(&self.engine, &record(), (Rules::ALL, &Runtime::default()), all, None)
                    .expect("no error")?;
            self.execute(&evaluated.2);
            Ok(evaluated.1)
        }

        fn rows(&self, table: TableId, schema: u32) -> Result<Vec<String>, String> {
            let scope = Scope::of(&self.engine, (&record(), Rules::ALL), (table, schema), ReadAt::Applied)
                .expect("no error")?;
            let (from, to) = scope.keys().range(&[], &[]);
            let rows = self.engine.scan(&from, &to, ReadAt::Applied, 1000, usize::MAX).expect("no error");
            let text = |row: &types::engine::Row| {
                String::from_utf8_lossy(&scope.keys().key_of(&row.key)).into_owned()
            };
            Ok(rows.iter().map(text).collect())
        }
    }

    const STALE: Refused = Refused::Outcome(Outcome::Stale);

    #[test]
    fn a_write_makes_tables_and_writes_rows_of_several_or_does_nothing() {
        let mut world = World::new();
        let both = [create(PETS, "pets"), create(TOWNS, "towns")];
        let parts = [part(PETS, 1, &["a", "b"]), part(TOWNS, 1, &["a"])];
        assert_eq!(world.write(&both, &parts), Ok(3));
        assert_eq!(world.rows(PETS, 1), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(world.rows(TOWNS, 1), Ok(vec!["a".into()]));
        let wrong = part(TOWNS, 2, &["z"]);
        assert_eq!(world.write(&[], &[part(PETS, 1, &["z"]), wrong]), Err(STALE));
        assert_eq!(world.rows(PETS, 1), Ok(vec!["a".into(), "b".into()]), "all or none");
        let insert = RowOp::Insert { key: "a".into(), row: "other".into() };
        let taken = TablePart { ops: vec![insert], ..part(TOWNS, 1, &[]) };
        let exists = Refused::Outcome(Outcome::Exists);
        assert_eq!(world.write(&[], &[part(PETS, 1, &["z"]), taken]), Err(exists));
    }

    #[test]
    fn where_flushes_are_never_refused_nothing_may_rest_on_refusals() {
        let mut global = record();
        global.unknown.insert(PartitionRecord::TRANSACTIONS.into(), types::config::GLOBAL.into());
        let fault = |record: &PartitionRecord, table: CatalogTable| {
            fault_of_global(record, &[Change::Alter(1, table)]).unwrap_or_default()
        };
        let plain = table(PETS, "pets", 2, 1);
        let held = CatalogTable { held_ms: Some(1), ..plain.clone() };
        let filling = CatalogTable { fills: Some(TOWNS), ..plain.clone() };
        let restored = CatalogTable { fills: Some(PETS), ..plain.clone() };
        assert_eq!(fault(&global, plain), "");
        assert_eq!(fault(&global, restored), "", "it is no other one's copy");
        for copied in [held, filling] {
            assert!(fault(&global, copied.clone()).contains("cannot be copied into another one"));
            assert_eq!(fault(&record(), copied), "", "elsewhere it may");
        }
    }

    #[test]
    fn names_and_ids_are_taken_once() {
        let mut world = World::new();
        world.write(&[create(PETS, "pets")], &[]).expect("made");
        let taken = Refused::Outcome(Outcome::NameTaken);
        assert_eq!(world.write(&[create(TOWNS, "pets")], &[]), Err(taken.clone()));
        let other = |name: &str| {
            let table = CatalogTable { created_ms: 9, ..table(PETS, name, 1, 0) };
            TableChange::Create(RecordText::new(&table))
        };
        assert!(matches!(world.write(&[other("others")], &[]), Err(Refused::Bad(_))));
        assert_eq!(world.write(&[create(PETS, "pets")], &[]), Err(STALE), "somebody was faster");
        assert!(matches!(world.write(&[create(TableId(0), "others")], &[]), Err(Refused::Bad(_))));
        let drop = TableChange::Drop { table: PETS, schema: 1 };
        world.write(&[drop, create(TOWNS, "pets")], &[part(TOWNS, 1, &["a"])]).expect("the name is free");
        assert!(matches!(world.write(&[other("again")], &[]), Err(Refused::Bad(_))), "ids never are");
        let rename = TableChange::Alter { from: 1, to: RecordText::new(&table(TOWNS, "towns", 9, 0)) };
        world.write(&[rename, create(TableId(9), "pets")], &[]).expect("the name is free");
        let swap = |id, from, name, version| TableChange::Alter {
            from,
            to: RecordText::new(&table(id, name, version, 0)),
        };
        let both = [swap(TOWNS, 9, "pets", 12), swap(TableId(9), 1, "towns", 13)];
        world.write(&both, &[]).expect("each has the other's name");
        assert_eq!(world.write(&[create(TableId(10), "towns")], &[]), Err(taken));
    }

    #[test]
    fn pr120_a_stale_schema_is_refused_and_rows_of_an_older_one_stay() {
        let mut world = World::new();
        world.write(&[create(PETS, "pets")], &[part(PETS, 1, &["old"])]).expect("made");
        let change = |from, version, more| TableChange::Alter {
            from,
            to: RecordText::new(&table(PETS, "pets", version, more)),
        };
        world.write(&[change(1, 20, 1)], &[part(PETS, 20, &["new"])]).expect("altered");
        assert_eq!(world.write(&[], &[part(PETS, 1, &["x"])]), Err(STALE));
        assert!(world.rows(PETS, 1).is_err());
        assert_eq!(world.rows(PETS, 20), Ok(vec!["new".into(), "old".into()]));
        assert_eq!(world.write(&[change(1, 30, 2)], &[]), Err(STALE), "somebody was faster");
        let bad = [change(20, 20, 2), change(20, 19, 2), change(20, 30, 0)];
        for change in bad {
            assert!(
                matches!(world.write(std::slice::from_ref(&change), &[]), Err(Refused::Bad(_))),
                "{change:?}"
            );
        }
        let before = ReadAt::Lsn(Lsn(1));
        let old = Scope::of(&world.engine, (&record(), Rules::ALL), (PETS, 1), before).expect("no error");
        assert!(old.is_ok(), "an earlier state has the schema that it had");
    }

    #[test]
    fn pr123_a_table_that_is_filled_has_no_name_until_it_gets_one() {
        let mut world = World::new();
        world.write(&[create(PETS, "pets")], &[part(PETS, 1, &["old"])]).expect("made");
        let filling = CatalogTable { fills: Some(PETS), ..table(TOWNS, "pets", 1, 0) };
        world.write(&[TableChange::Create(RecordText::new(&filling))], &[]).expect("its name is not taken");
        world.write(&[], &[part(TOWNS, 1, &["new"])]).expect("who knows its id writes it");
        let taken = Refused::Outcome(Outcome::NameTaken);
        let named = TableChange::Alter { from: 1, to: RecordText::new(&table(TOWNS, "pets", 9, 0)) };
        assert_eq!(world.write(std::slice::from_ref(&named), &[]), Err(taken), "both would have the name");
        world
            .write(&[TableChange::Drop { table: PETS, schema: 1 }, named], &[])
            .expect("one takes the other's place");
        assert_eq!(world.rows(TOWNS, 9), Ok(vec!["new".into()]));
        assert!(world.rows(PETS, 1).is_err());
        let again = CatalogTable { fills: Some(PETS), ..table(TOWNS, "pets", 10, 0) };
        let again = TableChange::Alter { from: 9, to: RecordText::new(&again) };
        assert!(matches!(world.write(&[again], &[]), Err(Refused::Bad(_))), "others know it");
    }

    #[test]
    fn pr124_a_table_whose_rows_are_copied_is_read_and_not_written() {
        let mut world = World::new();
        world.write(&[create(PETS, "pets")], &[part(PETS, 1, &["a"])]).expect("made");
        let held = |version| CatalogTable { held_ms: Some(1), ..table(PETS, "pets", version, 0) };
        let hold = TableChange::Alter { from: 1, to: RecordText::new(&held(9)) };
        assert_eq!(world.write(std::slice::from_ref(&hold), &[part(PETS, 9, &["b"])]), Err(STALE));
        world.write(&[hold], &[]).expect("held");
        for version in [1, 9] {
            assert_eq!(world.write(&[], &[part(PETS, version, &["b"])]), Err(STALE), "{version}");
            let write =
                Scope::of_writes(&world.engine, (&record(), Rules::ALL), (PETS, version)).expect("no error");
            assert!(write.is_err(), "by itself neither: {version}");
        }
        assert_eq!(world.rows(PETS, 9), Ok(vec!["a".into()]));
        assert_eq!(world.write(&[create(TOWNS, "pets")], &[]), Err(Refused::Outcome(Outcome::NameTaken)));
        // Somebody has lifted the hold, and written: whoever has copied cannot put the copy there.
        let lift = TableChange::Alter { from: 9, to: RecordText::new(&table(PETS, "pets", 12, 0)) };
        world.write(&[lift], &[part(PETS, 12, &["b"])]).expect("lifted");
        assert_eq!(world.write(&[TableChange::Drop { table: PETS, schema: 9 }], &[]), Err(STALE));
        assert_eq!(world.rows(PETS, 12), Ok(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn pr193_what_is_no_table_has_no_rows() {
        use types::data::kind::Kind;
        let mut world = World::new();
        let columns = vec![Column::new("kind", ColumnType::Int)];
        let mut parts = Schema::new(columns, &["kind"], 1, false).expect("valid").into_parts();
        parts.version = 1;
        let schema = Schema::from_parts(parts).expect("valid");
        let view = schema.clone().of_kind(Kind::View("SELECT 1".into())).expect("valid");
        let view = CatalogTable::new(TOWNS, "towns", view, 0);
        let create = |table: &CatalogTable| TableChange::Create(RecordText::new(table));
        assert_eq!(world.write(&[create(&view)], &[part(TOWNS, 1, &["a"])]), Err(STALE), "at once");
        world.write(&[create(&view)], &[]).expect("made");
        assert_eq!(world.write(&[], &[part(TOWNS, 1, &["a"])]), Err(STALE), "in an entry of several");
        let alone = Scope::of_writes(&world.engine, (&record(), Rules::ALL), (TOWNS, 1)).expect("no error");
        assert!(alone.is_err(), "by itself");
        // A table whose column has that name is one.
        let table = CatalogTable::new(PETS, "pets", schema, 0);
        world.write(&[create(&table)], &[part(PETS, 1, &["a"])]).expect("made and written");
        world.write(&[], &[part(PETS, 1, &["b"])]).expect("written");
        assert_eq!(world.rows(PETS, 1), Ok(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn each_row_of_a_write_may_rest_on_a_state_of_its_own() {
        let mut world = World::new();
        world.write(&[create(PETS, "pets")], &[part(PETS, 1, &["a", "b"])]).expect("made at 1");
        world.write(&[], &[part(PETS, 1, &["b"])]).expect("changed at 2");
        let update = |key: &str| RowOp::Update { key: key.to_string().into(), row: "new".into() };
        let rests = |seen: Vec<Position>| TablePart {
            ops: vec![update("a"), update("b")],
            seen,
            ..part(PETS, 1, &[])
        };
        let changed = Refused::Outcome(Outcome::Changed);
        assert_eq!(world.write(&[], &[rests(vec![at(1), at(1)])]), Err(changed.clone()));
        assert_eq!(world.write(&[], &[rests(vec![at(2), at(1)])]), Err(changed));
        assert_eq!(world.write(&[], &[rests(vec![at(1), at(2)])]), Ok(2));
    }

    #[test]
    fn requests_that_a_partition_cannot_do_are_told_apart() {
        let fault = |record: &PartitionRecord, table: TableId, op: Op| {
            fault(record, &Request::new(table, 1, record.id, op)).is_some()
        };
        let transact = || Op::Transact { changes: Vec::new(), parts: Vec::new(), since: None };
        let bare = PartitionRecord { unknown: Default::default(), ..record() };
        assert!(fault(&bare, DATABASE, transact()) && !fault(&bare, DATABASE, Op::write(Vec::new())));
        assert!(fault(&record(), DATABASE, Op::write(Vec::new())) && !fault(&record(), DATABASE, transact()));
        assert!(fault(&record(), PETS, transact()) && !fault(&record(), PETS, Op::write(Vec::new())));
        assert!(fault(&record(), PETS, Op::Unstage { load: types::LoadId(1) }));
    }

    #[test]
    fn a_key_that_has_no_room_beside_the_tables_id_is_refused() {
        let mut world = World::new();
        world.write(&[create(PETS, "pets")], &[]).expect("made");
        let longest = types::engine::MAX_KEY_BYTES - 5;
        assert_eq!(world.write(&[], &[part(PETS, 1, &[&"x".repeat(longest)])]), Ok(1));
        let over = world.write(&[], &[part(PETS, 1, &[&"x".repeat(longest + 1)])]);
        assert!(matches!(over, Err(Refused::Bad(_))));
    }
}
