//! Preconditions on tables in memory: what is done, what is refused, and what a step beside requests finds.

use super::*;
use crate::fake::{FakeEngine, at, member};
use crate::features::catalog::{Refused, evaluate_parts, read_changes};
use ::procedure::Runtime;
use types::data::constraint::{Action, Demand, Reference};
use types::data::{Column, ColumnType, Row, Schema, SchemaParts, Value, encode_key, encode_row};
use types::{Epoch, Finding, LogKind, PartitionId, PartitionRecord, Policy};
use wire::{RecordText, RowOp, TableChange, TablePart};

const TOWNS: TableId = TableId(7);
const PETS: TableId = TableId(8);
/// `towns(id, code)`: `code` is unique.
const CODE: u32 = 21;
/// `pets(id, town)`: `town` is one of the towns.
const TOWN: u32 = 22;

fn schema(version: u32, constraints: Vec<Constraint>) -> Schema {
    let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
    let plain = Schema::new(columns, &["id"], 1, false).expect("valid").into_parts();
    Schema::from_parts(SchemaParts { version, constraints, ..plain }).expect("valid")
}

fn unique() -> Constraint {
    Constraint::new(CODE, "code", Demand::Unique(vec![1]))
}

fn foreign(parent_column: usize) -> Constraint {
    let reference = Reference {
        columns: vec![1],
        parent: TOWNS,
        parent_columns: vec![parent_column],
        on_delete: Action::None,
        on_update: Action::None,
        deferred: None,
    };
    Constraint::new(TOWN, "town", Demand::Foreign(reference))
}

fn table(id: TableId, version: u32, constraints: Vec<Constraint>) -> CatalogTable {
    let name = if id == TOWNS { "towns" } else { "pets" };
    CatalogTable::new(id, name, schema(version, constraints), 0)
}

/// A row: its number, and what else it has.
fn row(id: i64, value: Option<i64>) -> (Bytes, Bytes) {
    let values = vec![Value::Int(id), value.map_or(Value::Null, Value::Int)];
    let schema = schema(1, Vec::new());
    let key = encode_key(&schema, &values[..1]).expect("a key");
    (key.into(), encode_row(&schema, &Row::new(values)).expect("a row").into())
}

fn put(id: i64, value: impl Into<Option<i64>>) -> RowOp {
    let (key, row) = row(id, value.into());
    RowOp::Put { key, row }
}

fn delete(id: i64) -> RowOp {
    RowOp::Delete { key: row(id, None).0 }
}

fn part(table: TableId, schema: u32, ops: Vec<RowOp>) -> TablePart {
    TablePart { table, schema, ops, seen: Vec::new() }
}

/// A partition in memory that does one write after the other.
struct World {
    engine: FakeEngine,
    known: KnownCatalog,
    lsn: u64,
    rules: Rules,
}

impl World {
    /// With both tables under their constraints.
    fn new(parent_column: usize) -> World {
        let mut world = World::bare();
        let create = |table: CatalogTable| TableChange::Create(RecordText::new(&table));
        let tables =
            [create(table(TOWNS, 1, vec![unique()])), create(table(PETS, 1, vec![foreign(parent_column)]))];
        assert_eq!(world.write(&tables, &[]), Ok(0));
        world
    }

    fn bare() -> World {
        let (engine, known) = (FakeEngine::new(), KnownCatalog::default());
        World { engine, known, lsn: 0, rules: Rules::ALL }
    }

    fn execute(&mut self, mutations: &[Mutation]) -> types::Position {
        self.lsn += 1;
        self.engine.execute(at(self.lsn), mutations);
        at(self.lsn)
    }

    /// A request, as a primary does it. The error is a constraint's number, or 0: the tables are not so.
    fn write(&mut self, changes: &[TableChange], parts: &[TablePart]) -> Result<u32, u32> {
        let policy = Policy::preset("sync", 1, LogKind::Disk).expect("a preset");
        let record =
            PartitionRecord::new(PartitionId(64), TableId(5), Epoch(1), vec![member()], policy).of_database();
        let read = read_changes(changes).expect("sound");
        let evaluated =
            evaluate_parts(&self.engine, &record, (self.rules, &Runtime::default()), (&read, parts), None);
        let evaluated = match evaluated.expect("no error") {
            Ok(evaluated) => evaluated,
            Err(Refused::Outcome(Outcome::Stale)) => return Err(0),
            Err(other) => panic!("{other:?}"),
        };
        let checked = self.known.with_constraints(&self.engine, (Term(1), self.rules), evaluated);
        let (outcome, affected, mutations) = checked.expect("no error");
        if outcome == Outcome::Violates {
            assert!(mutations.is_empty(), "a refusal changes nothing");
            return Err(affected);
        }
        let at = self.execute(&mutations);
        if !changes.is_empty() {
            self.known.changed_at(at);
        }
        Ok(affected)
    }

    fn towns(&mut self, ops: Vec<RowOp>) -> Result<u32, u32> {
        self.write(&[], &[part(TOWNS, 1, ops)])
    }

    fn pets(&mut self, ops: Vec<RowOp>) -> Result<u32, u32> {
        self.write(&[], &[part(PETS, 1, ops)])
    }

    fn both(&mut self, towns: Vec<RowOp>, pets: Vec<RowOp>) -> Result<u32, u32> {
        self.write(&[], &[part(TOWNS, 1, towns), part(PETS, 1, pets)])
    }

    /// Steps beside requests until there is nothing to do. How many.
    fn tend(&mut self) -> usize {
        let settings = Settings { slice_rows: 2, ..Settings::default() };
        for steps in 0..100 {
            let step = self.known.next_step(&self.engine, (Term(1), false), &settings).expect("no error");
            let Some(mutations) = step else { return steps };
            let defines = mutations.iter().any(|mutation| KeySpace::Catalog.has(&mutation.key));
            let at = self.execute(&mutations);
            self.known.stepped_at(at, defines);
        }
        panic!("there is always something to do");
    }

    /// A table's definition as the state has it.
    fn defined(&self, id: TableId) -> CatalogTable {
        let key = types::database::catalog_key(id);
        let (_, value) = self.engine.get(&key, ReadAt::Applied).expect("no error").expect("there");
        CatalogTable::decode(&KeySpace::Catalog.key_of(&key), &value).expect("sound").1
    }

    fn standing(&self, id: TableId, number: u32) -> Option<(Standing, String)> {
        let table = self.defined(id);
        let found = table.schema.constraints().iter().find(|one| one.number == number);
        found.map(|one| (one.standing, one.note.clone()))
    }

    /// Index rows of a table.
    fn entries(&self, id: TableId) -> usize {
        let (from, to) = KeySpace::Table(id).index_range(None);
        self.engine.scan(&from, &to, ReadAt::Applied, 1000, usize::MAX).expect("no error").len()
    }

    /// Gives a table other constraints.
    fn alter(&mut self, id: TableId, version: u32, constraints: Vec<Constraint>) -> Result<u32, u32> {
        let from = self.defined(id).schema.version();
        let to = RecordText::new(&table(id, version, constraints));
        self.write(&[TableChange::Alter { from, to }], &[])
    }
}

#[test]
fn pr150_a_row_is_the_only_one_with_its_values_behind_the_whole_request() {
    let mut world = World::new(0);
    assert_eq!(world.towns(vec![put(1, 10), put(2, 20), put(3, None), put(4, None)]), Ok(4));
    assert_eq!(world.towns(vec![put(5, 10)]), Err(CODE));
    assert_eq!(world.towns(vec![put(2, 10)]), Err(CODE), "an update, too");
    assert_eq!(world.towns(vec![put(5, 50), put(6, 50)]), Err(CODE), "two of one request");
    assert_eq!(world.towns(vec![put(5, 10), put(1, 50)]), Ok(2), "whoever comes first in the request");
    assert_eq!(world.towns(vec![put(1, 20), put(2, 50)]), Ok(2), "they swap");
    assert_eq!(world.towns(vec![put(6, 50), delete(2)]), Ok(2));
    assert_eq!(world.towns(vec![put(1, 20)]), Ok(1), "nothing new is nothing against it");
    assert_eq!(world.towns(vec![put(7, 70), put(7, 20)]), Err(CODE), "the last one of a key counts");
    assert_eq!(world.towns(vec![put(7, 20), put(7, 70)]), Ok(2));
    assert_eq!(world.entries(TOWNS), 6);
}

#[test]
fn pr151_what_is_referred_to_is_there_behind_the_whole_request() {
    for parent_column in [0, 1] {
        // By the key, and by what is unique: both have the same numbers here.
        let mut world = World::new(parent_column);
        let same = |id: i64| put(id, id);
        assert_eq!(world.towns(vec![same(1), same(2)]), Ok(2));
        assert_eq!(world.pets(vec![put(1, 1), put(2, None)]), Ok(2));
        assert_eq!(world.pets(vec![put(3, 9)]), Err(TOWN));
        assert_eq!(world.pets(vec![put(1, 9)]), Err(TOWN));
        assert_eq!(world.towns(vec![delete(1)]), Err(TOWN));
        assert_eq!(world.towns(vec![delete(2)]), Ok(1), "nobody refers to it");
        assert_eq!(world.both(vec![same(3)], vec![put(3, 3)]), Ok(2), "both come");
        assert_eq!(world.both(vec![delete(3)], vec![delete(3)]), Ok(2), "both go");
        assert_eq!(world.both(vec![delete(1)], vec![put(1, None)]), Ok(2));
        assert_eq!(world.both(vec![delete(1)], vec![put(1, 1)]), Err(TOWN), "there is none any more");
    }
    let mut world = World::new(1);
    world.towns(vec![put(1, 10)]).expect("done");
    world.pets(vec![put(1, 10)]).expect("done");
    assert_eq!(world.towns(vec![put(1, 11)]), Err(TOWN), "the value goes");
    assert_eq!(world.towns(vec![delete(1), put(2, 10)]), Ok(2), "another one has it");
}

#[test]
fn pr150_writers_that_did_not_see_each_other_make_no_orphan_and_no_duplicate() {
    // Each writes rows that the other one does not write: the first committer does not win by its rows.
    let mut world = World::new(0);
    world.towns(vec![put(1, 10)]).expect("done");
    assert_eq!((world.pets(vec![put(1, 1)]), world.towns(vec![delete(1)])), (Ok(1), Err(TOWN)));
    world.pets(vec![delete(1)]).expect("done");
    assert_eq!((world.towns(vec![delete(1)]), world.pets(vec![put(1, 1)])), (Ok(1), Err(TOWN)));
    assert_eq!((world.towns(vec![put(2, 20)]), world.towns(vec![put(3, 20)])), (Ok(1), Err(CODE)));
}

#[test]
fn pr150_without_the_rule_there_are_orphans_and_duplicates() {
    let mut world = World::new(0);
    world.rules = Rules::without(Finding::Pr150).expect("a build of mutants");
    assert_eq!(world.towns(vec![put(1, 10), put(2, 10)]), Ok(2));
    assert_eq!(world.pets(vec![put(1, 9)]), Ok(1));
}

#[test]
fn pr152_rows_that_were_there_are_looked_at_before_a_constraint_is_valid() {
    let mut world = World::bare();
    let create = |id| TableChange::Create(RecordText::new(&table(id, 1, Vec::new())));
    world.write(&[create(TOWNS), create(PETS)], &[]).expect("made");
    let rows = (1..=5).map(|id| put(id, id * 10));
    world.towns(rows.collect()).expect("done");
    world.pets(vec![put(1, 1), put(2, 9), put(3, None)]).expect("done");
    world.alter(TOWNS, 2, vec![unique()]).expect("altered");
    let write = |world: &mut World, ops| world.write(&[], &[part(TOWNS, 2, ops)]);
    assert_eq!(world.standing(TOWNS, CODE), Some((Standing::Building, String::new())));
    assert_eq!(write(&mut world, vec![put(6, 60)]), Ok(1));
    assert_eq!(write(&mut world, vec![put(7, 60)]), Err(CODE), "it is kept from the entry on");
    assert_eq!(world.tend(), 4);
    assert_eq!(world.standing(TOWNS, CODE), Some((Standing::Valid, String::new())));
    assert_eq!((world.entries(TOWNS), write(&mut world, vec![put(7, 30)])), (6, Err(CODE)));
    world.alter(PETS, 2, vec![foreign(0)]).expect("altered");
    world.tend();
    assert_eq!(world.standing(PETS, TOWN), Some((Standing::Failed, "(v)=(9)".into())));
    world.alter(PETS, 3, Vec::new()).expect("altered");
    assert_eq!(world.standing(PETS, TOWN).map(|(standing, _)| standing), Some(Standing::Dropping));
    assert_eq!(world.write(&[], &[part(PETS, 3, vec![put(4, 9)])]), Ok(1), "it demands nothing any more");
    world.tend();
    assert_eq!((world.standing(PETS, TOWN), world.entries(PETS)), (None, 0));
}

#[test]
fn pr152_a_duplicate_that_was_there_is_found_in_one_slice_and_across_slices() {
    for second in [2, 5] {
        let mut world = World::bare();
        let create = TableChange::Create(RecordText::new(&table(TOWNS, 1, Vec::new())));
        let rows = (1..=6).map(|id| put(id, if id == second { 10 } else { id * 10 })).collect();
        world.write(&[create], &[part(TOWNS, 1, rows)]).expect("made");
        world.alter(TOWNS, 2, vec![unique()]).expect("altered");
        world.tend();
        assert_eq!(world.standing(TOWNS, CODE), Some((Standing::Failed, "(v)=(10)".into())), "{second}");
    }
}

#[test]
fn pr152_the_next_term_looks_at_all_rows_again() {
    let mut world = World::bare();
    let create = TableChange::Create(RecordText::new(&table(TOWNS, 1, Vec::new())));
    let rows = (1..=6).map(|id| put(id, id * 10)).collect();
    world.write(&[create], &[part(TOWNS, 1, rows)]).expect("made");
    world.alter(TOWNS, 2, vec![unique()]).expect("altered");
    let settings = Settings { slice_rows: 2, ..Settings::default() };
    let first =
        world.known.next_step(&world.engine, (Term(1), false), &settings).expect("no error").expect("a step");
    world.execute(&first);
    let mut other = KnownCatalog::default();
    let again =
        other.next_step(&world.engine, (Term(2), false), &settings).expect("no error").expect("a step");
    assert_eq!(first, again, "the same is done again, and it is no duplicate of itself");
}

#[test]
fn pr153_nothing_refers_to_a_table_or_to_columns_that_are_not_there() {
    let mut world = World::new(1);
    let drop = |table, schema| TableChange::Drop { table, schema };
    assert_eq!(world.write(&[drop(TOWNS, 1)], &[]), Err(0));
    assert_eq!(world.alter(TOWNS, 2, Vec::new()), Err(0), "it is unique no more");
    assert_eq!(world.write(&[drop(PETS, 1), drop(TOWNS, 1)], &[]), Ok(0), "both go");
    world.tend();
    assert_eq!((world.entries(TOWNS), world.entries(PETS)), (0, 0));
    let create = TableChange::Create(RecordText::new(&table(PETS, 1, vec![foreign(0)])));
    assert_eq!(World::bare().write(&[create], &[]), Err(0), "there is no such table");
}

#[test]
fn a_dropped_table_takes_the_rows_of_its_indexes_with_it() {
    let mut world = World::new(0);
    world.towns((1..=5).map(|id| put(id, id)).collect()).expect("done");
    world.pets(vec![put(1, 1)]).expect("done");
    let drop = TableChange::Drop { table: PETS, schema: 1 };
    world.write(&[drop], &[]).expect("dropped");
    assert_eq!(world.towns(vec![delete(1)]), Ok(1), "nobody refers to it");
    world.tend();
    assert_eq!((world.entries(TOWNS), world.entries(PETS)), (4, 0));
}

#[test]
fn a_dropped_table_is_refused_at_once_and_its_rows_go_in_slices_and_no_others() {
    let mut world = World::bare();
    let create = |id| TableChange::Create(RecordText::new(&table(id, 1, Vec::new())));
    let pets = part(PETS, 1, (1..=5).map(|id| put(id, None)).collect());
    let towns = part(TOWNS, 1, vec![put(1, None), put(2, None)]);
    world.write(&[create(PETS), create(TOWNS)], &[pets, towns]).expect("made");
    let drop = TableChange::Drop { table: PETS, schema: 1 };
    world.write(std::slice::from_ref(&drop), &[]).expect("dropped");
    assert_eq!(world.write(&[drop], &[]), Err(0));
    assert_eq!(world.pets(vec![put(9, None)]), Err(0));
    let settings = Settings { slice_rows: 2, ..Settings::default() };
    let mut slices = Vec::new();
    while let Some(slice) =
        world.known.next_step(&world.engine, (Term(1), false), &settings).expect("no error")
    {
        let last = slice.iter().any(|mutation| KeySpace::Catalog.has(&mutation.key));
        slices.push(slice.len());
        let at = world.execute(&slice);
        world.known.stepped_at(at, last);
        let (before, known) = (Lsn(at.lsn.0 - 1), &world.known);
        assert!(known.is_pending(Term(1), before) && !known.is_pending(Term(1), at.lsn));
    }
    assert_eq!(slices, [2, 2, 1, 1]);
    let (from, to) = KeySpace::Bare.range(&[], &[]);
    let left = world.engine.scan(&from, &to, ReadAt::Applied, 1000, usize::MAX).expect("no error");
    assert!(left.len() == 2 && left.iter().all(|row| KeySpace::Table(TOWNS).has(&row.key)), "{left:?}");
    assert_eq!(tables_at(&world.engine, ReadAt::Applied).expect("no error").len(), 1);
}

#[test]
fn the_next_term_goes_on_with_a_removal() {
    let mut world = World::bare();
    let create = TableChange::Create(RecordText::new(&table(PETS, 1, Vec::new())));
    world.write(&[create], &[part(PETS, 1, (1..=3).map(|id| put(id, None)).collect())]).expect("made");
    world.write(&[TableChange::Drop { table: PETS, schema: 1 }], &[]).expect("dropped");
    let settings = Settings { slice_rows: 2, ..Settings::default() };
    let mut known = KnownCatalog::default();
    let slice = known.next_step(&world.engine, (Term(1), false), &settings).expect("no error").expect("rows");
    let at = world.execute(&slice);
    known.stepped_at(at, false);
    let slice = known.next_step(&world.engine, (Term(2), false), &settings).expect("no error").expect("rows");
    assert_eq!(slice.len(), 1, "what is left of it");
    known.validate(Some(Term(2)), at.lsn).expect("valid");
}

#[test]
fn pr257_rows_come_into_indexes_or_these_fail() {
    let mut world = World::bare();
    // Rows that came before their table, as commits of global transactions may.
    let space = KeySpace::Table(TOWNS);
    let stored = |id: i64, value: i64| {
        let (key, row) = row(id, Some(value));
        Mutation { key: space.row_key(&key), value: Some(row) }
    };
    world.execute(&[stored(1, 10), stored(2, 10)]);
    let mut record = PartitionRecord::new(
        PartitionId(64),
        TableId(5),
        Epoch(1),
        vec![member()],
        Policy::preset("sync", 1, LogKind::Disk).expect("a preset"),
    );
    record.unknown.insert(PartitionRecord::TRANSACTIONS.into(), types::config::GLOBAL.into());
    let index = Constraint::new(CODE, "code", Demand::Index(vec![1]));
    let create = TableChange::Create(RecordText::new(&table(TOWNS, 1, vec![index])));
    let read = read_changes(&[create]).expect("sound");
    let read = crate::features::catalog::with_indexes_to_build(&record, read).expect("sound");
    let evaluated =
        evaluate_parts(&world.engine, &record, (Rules::ALL, &Runtime::default()), (&read, &[]), None);
    let (_, _, mutations) = evaluated.expect("no error").expect("made");
    let at = world.execute(&mutations);
    world.known.changed_at(at);
    assert_eq!(world.standing(TOWNS, CODE), Some((Standing::Building, String::new())));
    let follow = |world: &mut World, mutations: Vec<Mutation>| {
        let (mutations, defines) = world.known.followed(&world.engine, Term(1), mutations).expect("no error");
        assert!(crate::features::index::fit_an_entry(&mutations), "an entry can have it");
        let at = world.execute(&mutations);
        if defines {
            world.known.changed_at(at);
        }
        defines
    };
    assert!(!follow(&mut world, vec![stored(3, 30), stored(1, 11)]));
    world.tend();
    assert_eq!(world.standing(TOWNS, CODE), Some((Standing::Valid, String::new())));
    assert_eq!(world.entries(TOWNS), 3);
    let gone = Mutation { value: None, ..stored(2, 0) };
    assert!(!follow(&mut world, vec![gone]));
    assert_eq!(world.entries(TOWNS), 2);
    // More than one entry can have: the rows come in, and the index fails.
    let all = |value: i64| (10..40_010).map(|id| stored(id, value)).collect::<Vec<_>>();
    let (engine, known) = (FakeEngine::new(), KnownCatalog::default());
    let mut wide = World { engine, known, lsn: 0, rules: Rules::ALL };
    wide.execute(&mutations);
    assert!(!follow(&mut wide, all(1)), "so many new ones it can");
    assert!(follow(&mut wide, all(2)), "each takes one entry of the index away, and brings one");
    assert_eq!(wide.standing(TOWNS, CODE).map(|(standing, _)| standing), Some(Standing::Failed));
    // What cannot be read has no place in it.
    let unreadable = Mutation { value: Some("?".into()), ..stored(4, 0) };
    assert!(follow(&mut world, vec![unreadable.clone(), stored(5, 50)]));
    assert_eq!(world.standing(TOWNS, CODE).map(|(standing, _)| standing), Some(Standing::Failed));
    assert!(!follow(&mut world, vec![Mutation { key: space.row_key(&row(6, None).0), ..unreadable }]));
}

#[test]
fn pr491_what_constraints_look_up_for_many_rows_is_read_before_they_are_written() {
    let mut world = World::new(0);
    world.towns((1..=3).map(|id| put(id, id * 10)).collect()).expect("done");
    world.pets(vec![put(1, 1)]).expect("done");
    let space = |table, id| KeySpace::Table(table).row_key(&row(id, None).0);
    let written = |table, id, value| Mutation { key: space(table, id), value: Some(row(id, Some(value)).1) };
    let gone = Mutation { key: space(TOWNS, 1), value: None };
    // Town 99 comes by a part of the write that is not among these rows: nothing ends here.
    let rows = [written(PETS, 5, 99), written(PETS, 6, 2), written(TOWNS, 7, 30), gone];
    let before = world.engine.applied();
    let asked = |world: &mut World, rows: &[Mutation]| {
        world.engine.asked.lock().expect("no panic").clear();
        world.known.look_ahead(&world.engine, Term(1), rows).expect("no error");
        world.engine.asked.lock().expect("no panic").clone()
    };
    let all = asked(&mut world, &rows);
    for key in [space(TOWNS, 99), space(TOWNS, 2), space(PETS, 5), space(TOWNS, 1)] {
        assert!(all.contains(&key), "{key:?}");
    }
    let of_index = |table, number: u32, value: i64| {
        let prefix = types::index::entry_prefix(&[Value::Int(value)]).expect("a key");
        Bytes::from([KeySpace::Table(table).index_prefix(Some(number)), prefix].concat())
    };
    assert!(all.contains(&of_index(TOWNS, CODE, 30)), "who else has the value");
    assert!(all.contains(&of_index(PETS, TOWN, 1)), "who refers to what goes");
    assert_eq!(world.engine.applied(), before);
}

/// Rows of `towns` and `pets` that came before any constraint, some of which a foreign key and a unique
/// constraint find wrong.
fn with_breaches() -> World {
    let mut world = World::bare();
    let create = |id| TableChange::Create(RecordText::new(&table(id, 1, Vec::new())));
    world.write(&[create(TOWNS), create(PETS)], &[]).expect("made");
    world.towns((1..=9).map(|id| put(id, if id == 4 { 10 } else { id * 10 })).collect()).expect("done");
    world.pets((1..=9).map(|id| put(id, if id == 3 { 77 } else { id })).collect()).expect("done");
    world
}

#[test]
fn pr490_the_index_of_a_constraint_that_failed_has_all_rows() {
    let mut world = with_breaches();
    world.alter(PETS, 2, vec![foreign(0)]).expect("altered");
    world.tend();
    assert_eq!(world.standing(PETS, TOWN), Some((Standing::Failed, "(v)=(77)".into())));
    assert_eq!(world.entries(PETS), 9);
    for id in [1, 2, 4, 9] {
        assert_eq!(world.towns(vec![delete(id)]), Err(TOWN), "a row refers to {id}, valid or not");
    }
    assert_eq!(world.towns(vec![delete(3)]), Ok(1), "nobody refers to it");
    assert_eq!(world.write(&[], &[part(PETS, 2, vec![put(10, 88)])]), Err(TOWN));
    world.alter(TOWNS, 2, vec![unique()]).expect("altered");
    world.tend();
    assert_eq!(world.standing(TOWNS, CODE), Some((Standing::Failed, "(v)=(10)".into())));
    let towns = |world: &mut World, ops| world.write(&[], &[part(TOWNS, 2, ops)]);
    assert_eq!(towns(&mut world, vec![put(20, 90)]), Err(CODE), "of a row behind the two that are the same");
    assert_eq!((world.entries(TOWNS), world.entries(PETS)), (8, 9));
    // A second try has a number, and so an index, of its own, and the first one's goes.
    assert_eq!(towns(&mut world, vec![put(4, 40)]), Ok(1));
    let second = Constraint { number: CODE + 10, ..unique() };
    world.alter(TOWNS, 3, vec![second]).expect("altered");
    world.tend();
    assert_eq!(world.standing(TOWNS, CODE + 10), Some((Standing::Valid, String::new())));
    assert_eq!((world.standing(TOWNS, CODE), world.entries(TOWNS)), (None, 8));
}

#[test]
fn pr490_a_constraint_fails_only_by_a_row_that_is_against_it_at_the_end() {
    let settings = Settings { slice_rows: 2, ..Settings::default() };
    let step = |world: &mut World| {
        let step = world.known.next_step(&world.engine, (Term(1), false), &settings).expect("no error");
        let mutations = step.expect("there is something to do");
        assert!(!mutations.is_empty(), "an entry of nothing");
        let defines = mutations.iter().any(|mutation| KeySpace::Catalog.has(&mutation.key));
        let at = world.execute(&mutations);
        world.known.stepped_at(at, defines);
    };
    for (again, standing) in [(false, Standing::Valid), (true, Standing::Failed)] {
        let mut world = with_breaches();
        world.alter(PETS, 2, vec![foreign(0)]).expect("altered");
        // The row that refers to nothing is in the second slice. It is mended before the last one.
        (0..3).for_each(|_| step(&mut world));
        let pets = |world: &mut World, ops| world.write(&[], &[part(PETS, 2, ops)]);
        assert_eq!(pets(&mut world, vec![put(3, 5)]), Ok(1));
        if again {
            // A pet behind that one refers to nothing: its town went before it was looked at.
            assert_eq!(world.towns(vec![delete(9)]), Ok(1), "it is in no index yet");
        }
        world.tend();
        assert_eq!(world.standing(PETS, TOWN).map(|(standing, _)| standing), Some(standing));
        assert_eq!(world.entries(PETS), 9);
    }
}
