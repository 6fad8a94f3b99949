//! Tables in one database: people (1), whose second column is unique by constraint 90, and letters (2), whose
//! second column refers to people. Notes (3) refer to that value of people, by constraint 92.

use super::*;
use types::data::constraint::{Constraint, Demand, Reference};
use types::data::{Column, ColumnType, Row, Schema, Value, encode_key, encode_row};

const PEOPLE: TableId = TableId(1);
const LETTERS: TableId = TableId(2);
const NOTES: TableId = TableId(3);

fn table(id: TableId) -> types::TableRecord {
    let columns = vec![Column::new("k", ColumnType::Int), Column::new("v", ColumnType::Text)];
    let letters = vec![Column::new("k", ColumnType::Int), Column::new("to", ColumnType::Int)];
    let columns = if id == LETTERS { letters } else { columns };
    let reference = Reference {
        columns: vec![1],
        parent: PEOPLE,
        parent_columns: vec![usize::from(id == NOTES)],
        on_delete: Default::default(),
        on_update: Default::default(),
        deferred: None,
    };
    let one = match id {
        PEOPLE => Constraint::new(90, "people_v_key", Demand::Unique(vec![1])),
        NOTES => Constraint::new(92, "notes_v_fkey", Demand::Foreign(reference)),
        _ => Constraint::new(91, "letters_to_fkey", Demand::Foreign(reference)),
    };
    let schema = Schema::new(columns, &["k"], 1, false).expect("valid");
    let schema = schema.with_constraints(vec![one]).expect("valid");
    let policy = types::Policy::preset("durable", 1, types::LogKind::Disk).expect("a preset");
    let record = types::TableRecord::new(id, &format!("t{}", id.0), schema, policy);
    types::TableRecord { partitions: 4, first_partition: ONE, ..record }
}

fn put(table_id: TableId, key: i64, value: Value) -> (TableId, RowOp) {
    let schema = table(table_id).schema;
    let row = Row::new(vec![Value::Int(key), value]);
    let key = encode_key(&schema, &row.values[..1]).expect("a key").into();
    let row = encode_row(&schema, &row).expect("a row").into();
    (table_id, RowOp::Put { key, row })
}

fn person(key: i64, name: &str) -> (TableId, RowOp) {
    put(PEOPLE, key, Value::Text(name.into()))
}

fn letter(key: i64, to: i64) -> (TableId, RowOp) {
    put(LETTERS, key, Value::Int(to))
}

fn gone(key: i64) -> (TableId, RowOp) {
    let (table, op) = person(key, "");
    (table, RowOp::Delete { key: op.key().clone() })
}

/// What becomes of a transaction that was looked at up to `checked`.
#[derive(PartialEq, Debug)]
enum Became {
    Committed,
    Conflict,
    Unfit(Unfit),
}

fn commit(world: &mut World, checked: Option<u64>, all: &[(TableId, RowOp)]) -> Became {
    commit_found(world, checked, all, &[])
}

/// The same, whose notes refer to people that were found.
fn commit_found(
    world: &mut World,
    checked: Option<u64>,
    all: &[(TableId, RowOp)],
    parents: &[ParentRow],
) -> Became {
    let mut writes: BTreeMap<PartitionId, Vec<TablePart>> = BTreeMap::new();
    for (id, op) in all {
        let place = table(*id).place_of(&table(*id).schema, op.key()).expect("a key");
        let parts = writes.entry(PartitionId(ONE.0 + place)).or_default();
        match parts.iter_mut().find(|part| part.table == *id) {
            Some(part) => part.ops.push(op.clone()),
            None => parts.push(TablePart { table: *id, schema: 1, ops: vec![op.clone()], seen: Vec::new() }),
        }
    }
    let writes = writes.into_iter().map(|(partition, parts)| PartitionWrites { partition, parts });
    let request = CommitRequest { snapshot: at(world.lsn), writes: writes.collect() };
    let looked = checked.map(|checked| Looked { checked: at(checked), parents });
    let books = world.known.books(&world.engine, TERM).expect("no error");
    if let Some(unfit) = books.unfit((&request, looked)) {
        return Became::Unfit(unfit);
    }
    if books.conflicts(Rules::ALL, (&request, looked)) {
        return Became::Conflict;
    }
    let (mutations, _) = books.commit((at(world.lsn + 1), 1_000 * world.lsn), (&request, parents));
    world.execute(&mutations);
    Became::Committed
}

/// A world that knows people and letters: its first commit says so.
fn world() -> World {
    world_of(&[PEOPLE, LETTERS])
}

fn world_of(tables: &[TableId]) -> World {
    let mut world = World::new();
    let tables = tables.iter().copied().map(table).collect();
    let partitions = (64..68).map(PartitionId).collect();
    let definitions = Definitions { partitions, tables, gone: Vec::new() };
    let books = world.known.books(&world.engine, TERM).expect("no error");
    let (mutations, _) = books.define((at(1), 0), definitions);
    world.execute(&mutations);
    world
}

#[test]
fn pr324_a_unique_value_is_claimed_over_all_partitions() {
    let mut world = world();
    let unchecked = commit(&mut world, None, &[person(1, "ada")]);
    let Became::Unfit(Unfit::Claims(why)) = unchecked else { panic!("{unchecked:?}") };
    assert!(why.contains("write these rows by SQL"), "{why}");
    assert_eq!(commit(&mut world, Some(1), &[person(1, "ada")]), Became::Committed);
    // Wherever the other row lies: nobody had seen this one.
    for known in [true, false] {
        if !known {
            world.known = KnownCommits::default();
        }
        let others: Vec<Became> =
            (2..12).map(|key| commit(&mut world, Some(1), &[person(key, "ada")])).collect();
        assert!(others.iter().all(|one| *one == Became::Conflict), "{others:?}");
    }
    assert_eq!(commit(&mut world, Some(1), &[person(2, "bob")]), Became::Committed);
    assert_eq!(commit(&mut world, Some(0), &[person(5, "eve")]), Became::Unfit(Unfit::Changed));
    let twice = commit(&mut world, Some(3), &[person(8, "eve"), person(9, "eve")]);
    assert!(matches!(twice, Became::Unfit(Unfit::Claims(_))), "{twice:?}");
    // Null is like nothing, and who has looked behind the first one knows what there is.
    let null = |key| put(PEOPLE, key, Value::Null);
    assert_eq!(commit(&mut world, None, &[null(22)]), Became::Committed, "it claims nothing");
    assert_eq!(commit(&mut world, Some(3), &[null(20), null(21)]), Became::Committed);
    assert_eq!(commit(&mut world, Some(2), &[person(1, "ada")]), Became::Committed, "the same row");
    let long = "x".repeat(types::engine::MAX_KEY_BYTES);
    let long = commit(&mut world, Some(3), &[person(30, &long)]);
    assert!(matches!(long, Became::Unfit(Unfit::Claims(_))), "{long:?}");
}

/// A manager that was not told of a table would note nothing of what its rows claim.
#[test]
fn pr324_what_was_looked_at_is_of_tables_that_the_manager_knows() {
    let mut world = World::new();
    assert_eq!(commit(&mut world, Some(0), &[person(1, "ada")]), Became::Unfit(Unfit::Stale));
    assert_eq!(commit(&mut world, None, &[person(1, "ada")]), Became::Committed, "as by who knows of none");
}

#[test]
fn pr325_a_row_that_is_referred_to_stays_whichever_partition_has_it() {
    let mut world = world();
    assert_eq!(commit(&mut world, Some(1), &[person(1, "ada"), person(2, "bob")]), Became::Committed);
    assert_eq!(commit(&mut world, Some(2), &[letter(7, 1)]), Became::Committed);
    assert_eq!(commit(&mut world, Some(2), &[gone(1)]), Became::Conflict, "a letter came");
    assert_eq!(commit(&mut world, Some(2), &[person(1, "eve")]), Became::Committed, "it is still there");
    assert_eq!(commit(&mut world, Some(2), &[gone(2)]), Became::Committed);
    world.known = KnownCommits::default();
    assert_eq!(commit(&mut world, Some(2), &[letter(8, 2)]), Became::Conflict, "it is gone");
    assert_eq!(commit(&mut world, Some(2), &[letter(8, 1)]), Became::Committed);
    let both = commit(&mut world, Some(2), &[gone(1), letter(9, 1)]);
    assert!(matches!(both, Became::Unfit(Unfit::Claims(_))), "{both:?}");
    // What is not kept any more is below every snapshot that commits.
    let books = world.known.books(&world.engine, TERM).expect("no error");
    let newest = |(partition, head): (&PartitionId, &Head)| (*partition, head.newest.lsn.0);
    let all: Vec<(PartitionId, u64)> = books.heads.iter().map(newest).collect();
    assert!(world.secure(1_000_000, &all) > 0);
    assert_eq!(commit(&mut world, Some(2), &[letter(10, 2)]), Became::Conflict, "too old");
    let books = world.known.books(&world.engine, TERM).expect("no error");
    let kept = books.kept.len();
    assert!(kept <= 1 && books.claims.len() <= kept, "{kept}");
}

fn note(key: i64, name: &str) -> (TableId, RowOp) {
    put(NOTES, key, Value::Text(name.into()))
}

/// The person with this key was found by this value.
fn found(name: &str, key: i64) -> ParentRow {
    let value = types::index::entry_prefix(&[Value::Text(name.into())]).expect("encodes").into();
    ParentRow { constraint: 92, value, table: PEOPLE, key: person(key, name).1.key().clone() }
}

#[test]
fn pr369_a_value_that_is_referred_to_stays_whichever_partition_has_its_row() {
    let mut world = world_of(&[PEOPLE, NOTES]);
    let people = [person(1, "ada"), person(2, "bob"), person(3, "eve")];
    assert_eq!(commit(&mut world, Some(1), &people), Became::Committed);
    let noted = |world: &mut World, checked, key, name| {
        commit_found(world, Some(checked), &[note(key, name)], &[found(name, 1)])
    };
    assert_eq!(noted(&mut world, 2, 7, "ada"), Became::Committed);
    assert_eq!(commit(&mut world, Some(2), &[gone(1)]), Became::Conflict, "a note came");
    assert_eq!(commit(&mut world, Some(2), &[person(1, "joe")]), Became::Conflict, "it had that value");
    assert_eq!(commit(&mut world, Some(3), &[person(1, "joe")]), Became::Committed, "who has seen it may");
    assert_eq!(noted(&mut world, 3, 8, "ada"), Became::Conflict, "it has another value now");
    assert_eq!(noted(&mut world, 4, 8, "joe"), Became::Committed);
    assert_eq!(commit(&mut world, Some(2), &[gone(2)]), Became::Committed, "nobody refers to it");
    // Who writes people, or refers to them, has looked.
    let unchecked = commit(&mut world, None, &[gone(3)]);
    assert!(matches!(unchecked, Became::Unfit(Unfit::Claims(_))), "{unchecked:?}");
    let null = put(NOTES, 20, Value::Null);
    assert_eq!(commit(&mut world, None, &[null]), Became::Committed, "it refers to nothing");
    let lacking = commit(&mut world, Some(6), &[note(9, "eve")]);
    let Became::Unfit(Unfit::Claims(why)) = lacking else { panic!("{lacking:?}") };
    assert!(why.contains("not looked up"), "{why}");
    let other = commit_found(&mut world, Some(6), &[note(9, "eve")], &[found("ada", 3)]);
    assert!(matches!(other, Became::Unfit(Unfit::Claims(_))), "{other:?}");
}

#[test]
fn pr369_what_a_commit_refers_to_by_value_may_be_its_own() {
    let mut world = world_of(&[PEOPLE, NOTES]);
    let both = |world: &mut World, checked, person: (TableId, RowOp), key| {
        commit_found(world, Some(checked), &[person, note(key, "ada")], &[found("ada", 1)])
    };
    assert_eq!(both(&mut world, 1, person(1, "ada"), 7), Became::Committed);
    assert_eq!(commit(&mut world, Some(1), &[gone(1)]), Became::Conflict);
    for person in [gone(1), person(1, "bob"), put(PEOPLE, 1, Value::Null)] {
        let became = both(&mut world, 2, person, 8);
        assert!(matches!(became, Became::Unfit(Unfit::Claims(_))), "{became:?}");
    }
}

/// What was found by values is in no log: of a row that may have been found nobody is told that it may go,
/// until who removes it has seen all that the manager before knew.
#[test]
fn pr369_a_manager_that_begins_does_not_know_what_was_found() {
    let mut world = world_of(&[PEOPLE, NOTES]);
    assert_eq!(commit(&mut world, Some(1), &[person(1, "ada"), person(2, "bob")]), Became::Committed);
    let noted = commit_found(&mut world, Some(2), &[note(7, "ada")], &[found("ada", 1)]);
    assert_eq!(noted, Became::Committed);
    world.known = KnownCommits::default();
    assert_eq!(commit(&mut world, Some(2), &[gone(1)]), Became::Conflict);
    assert_eq!(commit(&mut world, Some(2), &[gone(2)]), Became::Conflict, "that one might be it");
    assert_eq!(commit(&mut world, Some(3), &[gone(2)]), Became::Committed, "all notes were seen");
    // What was written of people is known.
    world.known = KnownCommits::default();
    let noted = commit_found(&mut world, Some(3), &[note(8, "bob")], &[found("bob", 2)]);
    assert_eq!(noted, Became::Conflict, "it is gone");
}

/// Many small rows refer by a value to one whose key is long. That key is kept once, and counted.
#[test]
fn what_a_commit_claims_counts_as_memory_of_it_once_however_many_rows_claim_it() {
    let long = 20_000;
    let kept_by = |notes: i64| {
        let mut world = world_of(&[PEOPLE, NOTES]);
        let parent = ParentRow { key: Bytes::from(vec![7; long]), ..found("ada", 1) };
        let notes: Vec<(TableId, RowOp)> = (0..notes).map(|key| note(key, "ada")).collect();
        let before = world.known.books(&world.engine, TERM).expect("no error").kept.bytes();
        assert_eq!(commit_found(&mut world, Some(1), &notes, &[parent]), Became::Committed);
        // What one partition has not secured has it, too (PR-367).
        let places: Vec<PartitionId> = (64..68).map(PartitionId).collect();
        assert!(world.full(4 * long, &places).is_some());
        let books = world.known.books(&world.engine, TERM).expect("no error");
        let newest = |(partition, head): (&PartitionId, &Head)| (*partition, head.newest.lsn.0);
        let (bytes, all) = (books.kept.bytes() - before, books.heads.iter().map(newest).collect::<Vec<_>>());
        assert_eq!(world.secure(1_000_000, &all), 2, "the tables, and the notes");
        let books = world.known.books(&world.engine, TERM).expect("no error");
        assert_eq!((books.kept.bytes(), books.claims.len()), (0, 0), "what is gone is given back");
        bytes
    };
    let (one, many) = (kept_by(1), kept_by(100));
    assert!(one > long, "{one}");
    assert!(many < 2 * long, "{many}: the key is there once");
}
