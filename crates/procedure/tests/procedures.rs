//! Procedures against rows in a map: what they do, what they may not, and what stops them.

use bytes::Bytes;
use procedure::{Builtin, Effects, Given, Limits, Prepared, Progress, Rows, Running, Runtime, Shape, Tables};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::kind::{Language, Procedure};
use types::data::{Column, ColumnType, Row, Schema, Signature, Value, encode_key, encode_row};
use types::procedure::{Failure, FailureKind};
use types::{CatalogTable, EngineError, KeySpace, TableId, TableState};
use understudy_procedure as procedure;

const TRANSFER: &str = include_str!("../../../docs/examples/transfer.wat");

/// Rows of `accounts (id int primary key, balance int, note text)`.
#[derive(Default)]
struct World {
    rows: BTreeMap<Bytes, Bytes>,
    looks: Cell<usize>,
}

fn int(name: &str) -> Column {
    Column::new(name, ColumnType::Int)
}

fn accounts() -> CatalogTable {
    let columns = vec![int("id"), int("balance"), Column::new("note", ColumnType::Text)];
    CatalogTable::new(TableId(7), "accounts", Schema::new(columns, &["id"], 1, false).expect("valid"), 0)
}

fn counters() -> CatalogTable {
    let schema = Schema::new(vec![int("id"), int("n")], &["id"], 1, false).expect("valid");
    CatalogTable::new(TableId(8), "counters", schema, 0)
}

impl Rows for World {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.looks.set(self.looks.get() + 1);
        Ok(self.rows.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        rows: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let mut left = bytes;
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        let within = self.rows.range::<[u8], _>(range).take(rows).take_while(|(key, value)| {
            let goes_on = left > 0;
            left = left.saturating_sub(key.len() + value.len());
            goes_on
        });
        Ok(within.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

impl World {
    fn of(balances: &[(i64, i64)]) -> World {
        let mut world = World::default();
        for (id, balance) in balances {
            let row = vec![Value::Int(*id), Value::Int(*balance), Value::Text(format!("note {id}"))];
            world.write(&accounts(), row);
        }
        world
    }

    fn write(&mut self, table: &CatalogTable, row: Vec<Value>) {
        let key = encode_key(&table.schema, &row[..1]).expect("a key");
        let value = encode_row(&table.schema, &Row::new(row)).expect("a row");
        self.rows.insert(KeySpace::Table(table.id).row_key(&key), value.into());
    }

    /// Makes a call and writes what it comes to. Gives the numbers of the rows that it gives.
    fn call(&mut self, of: &Prepared, arguments: &[i64]) -> Result<Vec<i64>, Failure> {
        let effects = run(self, begin(of, arguments, Given::default())?, u64::MAX)?;
        for mutation in &effects.mutations {
            match &mutation.value {
                Some(value) => self.rows.insert(mutation.key.clone(), value.clone()),
                None => self.rows.remove(&mutation.key),
            };
        }
        let results = Signature::new(&[int("r")]).expect("valid");
        let number = |row: &Bytes| match results.decode(row).expect("a row")[..] {
            [Value::Int(number)] => number,
            _ => panic!("a number is given"),
        };
        Ok(effects.rows.iter().map(number).collect())
    }
}

fn begin(of: &Prepared, arguments: &[i64], given: Given) -> Result<Running, Failure> {
    let names: Vec<Column> = (0..arguments.len()).map(|at| int(&format!("a{at}"))).collect();
    let values = arguments.iter().copied().map(Value::Int).collect();
    let bytes = Signature::new(&names).expect("valid").encode(values).expect("fits");
    of.begin(&bytes, given, Limits::default())
}

fn run(world: &World, mut running: Running, slice: u64) -> Result<Effects, Failure> {
    loop {
        match running.go_on(world, slice).expect("rows can be read") {
            Progress::More => {}
            Progress::Ended(ended) => return ended,
        }
    }
}

fn defined(language: Language, source: &str, parameters: &[&str], read_only: bool) -> CatalogTable {
    let results = vec![int("r")];
    let procedure = Procedure { language, source: source.into(), results, read_only, checked: false };
    let parameters: Vec<Column> = parameters.iter().map(|name| int(name)).collect();
    CatalogTable::procedure(TableId(9), "p", &parameters, procedure, 0).expect("valid")
}

fn find(name: &str) -> Option<Shape> {
    [accounts(), counters()].iter().find(|one| one.name == name).map(|one| Shape::of(TableState::Live, one))
}

fn prepare(source: &str, parameters: &[&str]) -> Result<Prepared, String> {
    Runtime::default().prepare(&defined(Language::Wasm, source, parameters, false), &find)
}

/// A program of this body, with everything that the tests need.
fn program(body: &str) -> String {
    format!(
        r#"(module
        (import "arg" "int a" (func $a (result i64)))
        (import "value" "int" (func $int (param i64)))
        (import "value" "text" (func $text (param i32 i32)))
        (import "call" "result" (func $result))
        (import "call" "seed" (func $seed (result i64)))
        (import "call" "now" (func $now (result i64)))
        (import "table:accounts" "get" (func $get (result i32)))
        (import "table:accounts" "put" (func $put))
        (import "table:accounts" "new" (func $new))
        (import "table:accounts" "delete" (func $delete (result i32)))
        (import "table:accounts" "range" (func $range (param i32 i32) (result i32)))
        (import "table:accounts" "next" (func $next (result i32)))
        (import "table:accounts" "int id" (func $id (result i64)))
        (import "table:accounts" "int balance" (func $balance (result i64)))
        (import "table:accounts" "len note" (func $len (result i32)))
        (import "table:accounts" "read note" (func $read (param i32) (result i32)))
        (import "table:accounts" "set note" (func $set_note))
        (import "table:accounts" "set id" (func $set_id))
        (memory (export "memory") 1)
        (func $give (param i64) (call $int (local.get 0)) (call $result))
        (func $recurse (call $recurse))
        (func (export "run") (local $i i64) {body}))"#
    )
}

fn kind(ended: Result<Vec<i64>, Failure>) -> FailureKind {
    ended.expect_err("it fails").kind
}

#[test]
fn a_call_reads_and_writes_rows_or_does_nothing() {
    let transfer = prepare(TRANSFER, &["source", "target", "amount"]).expect("it is sound");
    let mut world = World::of(&[(1, 100), (2, 5)]);
    assert_eq!(world.call(&transfer, &[1, 2, 30]), Ok(vec![70]));
    assert_eq!(world.call(&transfer, &[2, 1, 35]), Ok(vec![0]));
    let before = world.rows.clone();
    let failed = world.call(&transfer, &[1, 2, 1000]).expect_err("it fails");
    assert_eq!((failed.kind, failed.why.as_str()), (FailureKind::Raised, "there is not enough money"));
    assert_eq!(
        kind(world.call(&transfer, &[1, 9, 1])),
        FailureKind::Raised,
        "behind a row that it had written"
    );
    assert_eq!(kind(world.call(&transfer, &[1, 9])), FailureKind::Arguments);
    assert_eq!(world.rows, before);
    // What was transferred to itself is seen by the call.
    assert_eq!(world.call(&transfer, &[1, 1, 10]), Ok(vec![95]));
    assert_eq!(world.rows, before, "nothing was left behind, and the note is there");
}

#[test]
fn slices_come_to_the_same_as_one_piece() {
    let transfer = prepare(TRANSFER, &["source", "target", "amount"]).expect("it is sound");
    let world = World::of(&[(1, 100), (2, 5)]);
    let whole = run(&world, begin(&transfer, &[1, 2, 30], Given::default()).expect("fits"), u64::MAX);
    for slice in [1, 3, 10, 2000] {
        let running = begin(&transfer, &[1, 2, 30], Given::default()).expect("fits");
        assert_eq!(run(&world, running, slice), whole, "slices of {slice}");
    }
    let mut running = begin(&transfer, &[1, 2, 30], Given::default()).expect("fits");
    assert_eq!(running.go_on(&world, 1).expect("reads"), Progress::More);
    fn is_sent<T: Send>(_: &T) {}
    is_sent(&running);
}

#[test]
fn a_range_has_what_the_call_has_written_and_not_what_it_has_removed() {
    let source = program(
        "(call $int (i64.const 3)) (drop (call $delete))
         (call $new) (call $int (i64.const 4)) (call $set_id) (call $put)
         (call $int (call $a)) (drop (call $range (i32.const 0) (i32.const 3)))
         (block $end (loop $on (br_if $end (i32.eqz (call $next))) (call $give (call $id)) (br $on)))",
    );
    let listed = prepare(&source, &["a"]).expect("it is sound");
    let mut world = World::of(&[(1, 0), (2, 0), (3, 0), (5, 0), (6, 0)]);
    assert_eq!(world.call(&listed, &[1]), Ok(vec![1, 2, 4]));
    assert_eq!(world.call(&listed, &[2]), Ok(vec![2, 4, 5]));
    assert_eq!(world.call(&listed, &[6]), Ok(vec![6]));
    assert_eq!(world.call(&listed, &[7]), Ok(vec![]));
}

#[test]
fn texts_are_read_and_written_through_memory() {
    let source = program(
        "(call $int (call $a)) (drop (call $get))
         (call $give (i64.extend_i32_u (call $read (i32.const 10))))
         (call $text (i32.const 10) (call $len)) (call $set_note)
         (i32.store8 (i32.const 10) (i32.const 0xff))
         (call $text (i32.const 10) (i32.const 1))",
    );
    let copied = prepare(&source, &["a"]).expect("it is sound");
    let mut world = World::of(&[(1, 100)]);
    assert_eq!(kind(world.call(&copied, &[1])), FailureKind::Trap, "that is no text");
    let outside = prepare(&program("(call $text (i32.const 65535) (i32.const 2))"), &["a"]).expect("sound");
    assert_eq!(kind(world.call(&outside, &[1])), FailureKind::Trap);
}

#[test]
fn what_goes_beyond_its_limits_is_stopped() {
    let mut world = World::of(&[(1, 100)]);
    let stopped = |world: &mut World, body: &str| {
        let prepared = prepare(&program(body), &["a"]).unwrap_or_else(|why| panic!("{why}"));
        kind(world.call(&prepared, &[1]))
    };
    assert_eq!(stopped(&mut world, "(loop $on (br $on))"), FailureKind::Steps);
    assert_eq!(stopped(&mut world, "(call $recurse)"), FailureKind::Depth);
    let grow = "(loop $on (drop (memory.grow (i32.const 1))) (br $on))";
    assert_eq!(stopped(&mut world, grow), FailureKind::Memory);
    let lists = "(loop $on (call $int (i64.const 1)) (br $on))";
    assert_eq!(stopped(&mut world, lists), FailureKind::Memory);
    let gives = "(loop $on (call $give (i64.const 1)) (br $on))";
    assert_eq!(stopped(&mut world, gives), FailureKind::Results);
    let writes = "(call $new) (loop $on (local.set $i (i64.add (local.get $i) (i64.const 1)))
        (call $int (local.get $i)) (call $set_id) (call $put) (br $on))";
    assert_eq!(stopped(&mut world, writes), FailureKind::Writes);
    let reads = "(loop $on (call $int (i64.const 1)) (drop (call $get)) (br $on))";
    let ended = stopped(&mut world, reads);
    assert!(ended == FailureKind::Reads || ended == FailureKind::Steps, "{ended:?}");
    assert_eq!(stopped(&mut world, "(unreachable)"), FailureKind::Trap);
    let divides = "(call $give (i64.div_s (call $a) (i64.const 0)))";
    assert_eq!(stopped(&mut world, divides), FailureKind::Trap);
    assert_eq!(stopped(&mut world, "(call $give (call $balance))"), FailureKind::Trap, "no row is current");
    let wrong = "(call $int (i64.const 1)) (call $int (i64.const 1)) (drop (call $get))";
    assert_eq!(stopped(&mut world, wrong), FailureKind::Row);
}

#[test]
fn what_may_not_run_is_refused_when_it_is_made() {
    let refused = |source: &str, says: &str| {
        let why = prepare(source, &["a"]).map(|_| ()).expect_err("refused");
        assert!(why.contains(says), "{source}: {why}");
        assert!(!why.contains('\n'), "{why}");
    };
    refused("(module", "its text cannot be read");
    refused("(module)", "exports no function `run`");
    refused("(module (func (export \"run\") (param i32)))", "exports no function `run`");
    let with = |import: &str| format!("(module {import} (func (export \"run\")))");
    refused(&with("(import \"wasi\" \"clock\" (func))"), "which there is not");
    refused(&with("(import \"table:towns\" \"get\" (func (result i32)))"), "there is no table `towns`");
    refused(&with("(import \"table:accounts\" \"int age\" (func (result i64)))"), "which there is not");
    refused(&with("(import \"table:accounts\" \"int note\" (func (result i64)))"), "`note` is of type text");
    refused(&with("(import \"arg\" \"int b\" (func (result i64)))"), "which there is not");
    refused(&with("(import \"table:accounts\" \"get\" (func (result i64)))"), "no module that can run here");
    refused(&with("(import \"call\" \"now\" (global i32))"), "no module that can run here");
    refused(&with("(func (result f64) (f64.const 1))"), "floating-point");
    refused(&with("(func $s) (start $s)"), "start");
    refused(&with("(memory 1000)"), "no module that can run here");
    let read_only = defined(Language::Wasm, TRANSFER, &["source", "target", "amount"], true);
    let why = Runtime::default().prepare(&read_only, &find).map(|_| ()).expect_err("refused");
    assert!(why.contains("read only"), "{why}");
}

#[test]
fn time_and_seed_are_given_and_rows_elsewhere_are_refused_by_name() {
    let both = program(
        "(call $give (call $now)) (call $give (call $seed)) (call $int (call $a)) (drop (call $get))",
    );
    let both = prepare(&both, &["a"]).expect("it is sound");
    let given = Given {
        now_ms: 17,
        seed: 4,
        route: encode_key(&accounts().schema, &[Value::Int(1)]).expect("a key").into(),
        ..Given::default()
    };
    let world = World::of(&[(1, 100), (2, 100)]);
    let ended = run(&world, begin(&both, &[1], given.clone()).expect("fits"), 1_000).expect("it ends");
    assert_eq!(ended.rows.len(), 2);
    let elsewhere = run(&world, begin(&both, &[2], given).expect("fits"), 1_000).expect_err("refused");
    assert_eq!(elsewhere.kind, FailureKind::Elsewhere);
    assert!(elsewhere.why.contains("`accounts`"), "{elsewhere}");
}

#[test]
fn pr406_rows_of_a_replicated_table_are_found_in_every_partition_and_not_written() {
    let mut parts = accounts().schema.into_parts();
    (parts.replicated, parts.version) = (true, 2);
    let table = CatalogTable { schema: Schema::from_parts(parts).expect("valid"), ..accounts() };
    let find = |name: &str| (name == "accounts").then(|| Shape::of(table.state(), &table));
    let (world, runtime) = (World::of(&[(1, 100), (2, 70)]), Runtime::default());
    let prepared = |source: &str| runtime.prepare(&defined(Language::Wasm, source, &["a"], false), &find);
    let put = "(import \"table:accounts\" \"put\" (func $put))";
    let why = prepared(&program("")).map(|_| ()).expect_err("it writes rows");
    assert!(why.contains("it is in all partitions"), "{why}");
    let of = |body: &str| {
        let prepared = prepared(&program(body).replace(put, "")).expect("it is sound");
        let route = encode_key(&accounts().schema, &[Value::Int(1)]).expect("a key").into();
        let running = begin(&prepared, &[2], Given { route, ..Given::default() }).expect("fits");
        run(&world, running, 1_000).map_err(|failure| failure.kind)
    };
    let found = of("(call $int (call $a)) (drop (call $get)) (call $give (call $balance))");
    assert_eq!(found.map(|effects| effects.rows.len()), Ok(1));
    let delete = of("(call $int (call $a)) (drop (call $delete))");
    assert_eq!(delete, Err(FailureKind::Row));
}

#[test]
fn what_is_compiled_in_does_the_same() {
    let count = Runtime::default()
        .prepare(&defined(Language::Builtin, "count", &["id", "by"], false), &find)
        .expect("it is there");
    let mut world = World::default();
    assert_eq!(world.call(&count, &[1, 5]), Ok(vec![5]));
    assert_eq!(world.call(&count, &[1, 2]), Ok(vec![7]));
    assert_eq!(kind(world.call(&count, &[1, i64::MAX])), FailureKind::Raised);
    let wrong = defined(Language::Builtin, "count", &["id"], false);
    assert!(Runtime::default().prepare(&wrong, &find).is_err());
    assert!(Runtime::default().prepare(&defined(Language::Builtin, "other", &["id"], false), &find).is_err());
}

#[test]
fn pr220_a_call_ends_when_it_was_said_to_have_run_for_too_long() {
    let spin = prepare(&program("(loop $on (br $on))"), &["a"]).expect("it is sound");
    let mut running = begin(&spin, &[1], Given::default()).expect("fits");
    let world = World::default();
    let slice = |running: &mut Running| running.go_on(&world, 1_000).expect("no error");
    running.ran(types::Micros::from_millis(10));
    assert_eq!(slice(&mut running), Progress::More, "as long as it may");
    running.ran(types::Micros(1));
    let Progress::Ended(Err(failure)) = slice(&mut running) else { panic!("it goes on") };
    assert_eq!(failure.kind, FailureKind::Time);
    assert!(failure.why.contains("10 ms") && failure.why.contains("procedures.time_ms"), "{failure}");
}

#[test]
fn ranges_are_read_backwards_with_what_the_call_has_written() {
    let body = |before: &str, many: u32| {
        let range = "(import \"table:accounts\" \"range_back\" (func $back (param i32 i32) (result i32)))";
        let source = program(&format!(
            "{before} (call $int (call $a)) (drop (call $back (i32.const 0) (i32.const {many})))
             (block $end (loop $on (br_if $end (i32.eqz (call $next))) (call $give (call $id)) (br $on)))"
        ));
        source.replacen("(module", &format!("(module {range}"), 1)
    };
    let mut world = World::of(&[(1, 0), (2, 0), (3, 0), (5, 0), (6, 0)]);
    let all = prepare(&body("", 100), &["a"]).expect("it is sound");
    assert_eq!(world.call(&all, &[5]), Ok(vec![5, 3, 2, 1]));
    assert_eq!(world.call(&all, &[4]), Ok(vec![3, 2, 1]));
    assert_eq!(world.call(&all, &[0]), Ok(vec![]));
    let two = prepare(&body("", 2), &["a"]).expect("it is sound");
    assert_eq!(world.call(&two, &[9]), Ok(vec![6, 5]));
    let own = "(call $int (i64.const 5)) (drop (call $delete))
        (call $new) (call $int (i64.const 4)) (call $set_id) (call $put)";
    let own = prepare(&body(own, 2), &["a"]).expect("it is sound");
    assert_eq!(world.call(&own, &[5]), Ok(vec![4, 3]));
    let many: Vec<(i64, i64)> = (0..10_001).map(|id| (id, 0)).collect();
    let mut world = World::of(&many);
    assert_eq!(world.call(&two, &[9_999]), Ok(vec![9_999, 9_998]));
    assert_eq!(kind(world.call(&two, &[10_000])), FailureKind::Reads, "it looks at no more rows");
}

#[test]
fn pr240_equal_code_says_the_same_and_other_code_something_else() {
    struct Other(u32);
    impl Builtin for Other {
        fn tables(&self) -> Vec<String> {
            Vec::new()
        }
        fn fault(&self, _: &[Column], _: &[Column], _: &[Shape]) -> Option<String> {
            None
        }
        fn edition(&self) -> u32 {
            self.0
        }
        fn call(&self, _: &mut Tables<'_>, _: &[Value]) -> Result<(), Failure> {
            Ok(())
        }
    }
    let with = |name: &str, edition: u32| {
        Runtime::with(vec![(name.into(), Arc::new(Other(edition)) as Arc<dyn Builtin>)]).code()
    };
    assert_eq!(Runtime::default().code(), Runtime::default().code());
    assert_eq!(with("a", 1), with("a", 1));
    let all = [Runtime::default().code(), with("a", 1), with("a", 2), with("b", 1)];
    assert_eq!(BTreeSet::from(all).len(), all.len(), "{all:?}");
    let lock =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).expect("is there");
    let versions: Vec<&str> = lock.split("name = \"wasmi\"\nversion = \"").skip(1).collect();
    let known = versions.iter().all(|rest| rest.starts_with("2.0.0\""));
    assert!(known && versions.len() == 1, "another interpreter: change INTERPRETER in prepared.rs, and this");
}

#[test]
fn pr240_a_call_that_ended_comes_to_the_same_without_limits() {
    let transfer = prepare(TRANSFER, &["source", "target", "amount"]).expect("it is sound");
    let world = World::of(&[(1, 100), (2, 5)]);
    let given = || Given { now_ms: 5, seed: 9, ..Given::default() };
    let first = run(&world, begin(&transfer, &[1, 2, 30], given()).expect("begins"), 100).expect("is done");
    let names = [int("a"), int("b"), int("c")];
    let values = [1, 2, 30].into_iter().map(Value::Int).collect();
    let bytes = Signature::new(&names).expect("valid").encode(values).expect("fits");
    let again = transfer.begin(&bytes, given(), Limits::of_repeated(8 << 20)).expect("begins");
    assert_eq!(run(&world, again, 1_000).expect("is done"), first);
}
