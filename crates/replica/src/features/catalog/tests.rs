//! What changes of tables come to.

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
        let evaluated = evaluate_parts(&self.engine, &record(), (Rules::ALL, &Runtime::default()), all, None)
            .expect("no error")?;
        self.execute(&evaluated.2);
        Ok(evaluated.1)
    }

    fn rows(&self, table: TableId, schema: u32) -> Result<Vec<String>, String> {
        let scope = Scope::of(&self.engine, (&record(), Rules::ALL), (table, schema), ReadAt::Applied)
            .expect("no error")?;
        let (from, to) = scope.keys().range(&[], &[]);
        let rows = self.engine.scan(&from, &to, ReadAt::Applied, 1000, usize::MAX).expect("no error");
        let text =
            |row: &types::engine::Row| String::from_utf8_lossy(&scope.keys().key_of(&row.key)).into_owned();
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
fn pr358_feeds_go_on_in_the_table_that_takes_the_place() {
    let mut world = World::new();
    world.write(&[create(PETS, "pets")], &[]).expect("made");
    let (feed, value) = (types::FeedId(5), Some(bytes::Bytes::from_static(&[7; 8])));
    world.execute(&[Mutation { key: KeySpace::Table(PETS).feed_key(feed), value: value.clone() }]);
    let filling = CatalogTable { fills: Some(PETS), ..table(TOWNS, "pets", 1, 0) };
    world.write(&[TableChange::Create(RecordText::new(&filling))], &[]).expect("made");
    let named = TableChange::Alter { from: 1, to: RecordText::new(&table(TOWNS, "pets", 2, 0)) };
    world.write(&[TableChange::Drop { table: PETS, schema: 1 }, named], &[]).expect("switched");
    let found = world.engine.get(&KeySpace::Table(TOWNS).feed_key(feed), ReadAt::Applied);
    assert_eq!(found.expect("reads").map(|(_, value)| value), value);
}

fn replicated(id: TableId, version: u32) -> CatalogTable {
    let mut parts = table(id, "item", version, 0).schema.into_parts();
    parts.replicated = true;
    CatalogTable::new(id, "item", Schema::from_parts(parts).expect("valid"), 0)
}

#[test]
fn pr406_a_replicated_table_is_written_before_it_has_its_name_and_never_again() {
    let mut world = World::new();
    let (old, new) = (replicated(PETS, 2), replicated(TOWNS, 5));
    world.write(&[TableChange::Create(RecordText::new(&old))], &[]).expect("made");
    assert_eq!(world.write(&[], &[part(PETS, 2, &["a"])]), Err(STALE));
    let filling = new.to_fill().expect("the version before");
    world.write(&[TableChange::Create(RecordText::new(&filling))], &[]).expect("made without a name");
    assert_eq!(world.write(&[], &[part(TOWNS, 4, &["a", "b"])]), Ok(2));
    let named = TableChange::Alter { from: 4, to: RecordText::new(&new) };
    world.write(&[TableChange::Drop { table: PETS, schema: 2 }, named], &[]).expect("switched");
    assert_eq!(world.write(&[], &[part(TOWNS, 5, &["c"])]), Err(STALE));
    assert_eq!(world.rows(TOWNS, 5), Ok(vec!["a".into(), "b".into()]));
}

#[test]
fn pr407_of_two_who_give_a_replicated_table_other_rows_the_second_is_refused() {
    let mut world = World::new();
    world.write(&[TableChange::Create(RecordText::new(&replicated(PETS, 2)))], &[]).expect("made");
    let switch = |to: &CatalogTable| {
        let from = to.schema.version() - 1;
        let named = TableChange::Alter { from, to: RecordText::new(to) };
        [TableChange::Drop { table: PETS, schema: 2 }, named]
    };
    let (one, other) = (replicated(TOWNS, 5), replicated(TableId(9), 8));
    for table in [&one, &other] {
        let filling = table.to_fill().expect("the version before");
        world.write(&[TableChange::Create(RecordText::new(&filling))], &[]).expect("made without a name");
    }
    world.write(&switch(&one), &[]).expect("the first one");
    assert_eq!(world.write(&switch(&other), &[]), Err(STALE), "it has read what is there no more");
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
    let rests =
        |seen: Vec<Position>| TablePart { ops: vec![update("a"), update("b")], seen, ..part(PETS, 1, &[]) };
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
    // Rows come in files into a table, but not where commits say what there is.
    let load = Op::Load { load: types::LoadId(1), digest: [0; 16] };
    let stage = Op::Stage { load: types::LoadId(1), files: Vec::new() };
    let mut global = record();
    global.unknown.insert(PartitionRecord::TRANSACTIONS.into(), types::config::GLOBAL.into());
    for op in [load, stage] {
        assert!(!fault(&record(), PETS, op.clone()) && fault(&record(), DATABASE, op.clone()), "{op:?}");
        assert!(fault(&global, PETS, op.clone()), "{op:?}");
    }
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
