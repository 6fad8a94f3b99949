//! Tests of calls at a primary, one by one.

use super::*;
use crate::answer::When;
use crate::context::Identity;
use crate::data::Data;
use crate::fake::{FakeEngine, at, member, request};
use crate::features::index::KnownIndexes;
use crate::features::procedure::Calls;
use crate::features::tend::KnownCatalog;
use crate::recovered::Recovered;
use crate::settings::Settings;
use bytes::Bytes;
use types::data::kind::{Language, Procedure};
use types::data::{Column, ColumnType, Constraint, Demand, Row, Schema, Signature, Value};
use types::{
    CatalogTable, Epoch, KeySpace, LogKind, Micros, Now, PartitionId, PartitionRecord, Policy, ReadAt, Rules,
    SessionId, TableId,
};
use wire::{Op, RecordText, TableChange};

mod repeated;

const DATABASE: TableId = TableId(1);
const COUNTERS: TableId = TableId(7);

/// A database with `counters (id int primary key, n int unique)` and one session.
struct World {
    record: PartitionRecord,
    data: Data,
    indexes: KnownIndexes,
    catalog: KnownCatalog,
    calls: Calls,
    session: SessionId,
    seq: u64,
    /// Its calls are shipped as such.
    ships_calls: bool,
}

fn client(request: u64) -> ClientRef {
    ClientRef { connection: 1, request }
}

fn int(name: &str) -> Column {
    Column::new(name, ColumnType::Int)
}

fn counters() -> CatalogTable {
    let schema = Schema::new(vec![int("id").not_null(), int("n")], &["id"], 1, false).expect("valid");
    let unique = Constraint::new(77, "n", Demand::Unique(vec![1]));
    CatalogTable::new(COUNTERS, "counters", schema.with_constraints(vec![unique]).expect("valid"), 0)
}

fn defined(id: u32, name: &str, language: Language, source: &str, parameters: &[&str]) -> CatalogTable {
    let results = vec![int("r")];
    let procedure = Procedure { language, source: source.into(), results, read_only: false, checked: false };
    let parameters: Vec<Column> = parameters.iter().map(|name| int(name)).collect();
    CatalogTable::procedure(TableId(id), name, &parameters, procedure, 0).expect("valid")
}

/// Counts to `n`, which takes a while, and then writes `counters (1, n)`.
const SLOW: &str = r#"(module
    (import "arg" "int n" (func $n (result i64)))
    (import "value" "int" (func $int (param i64)))
    (import "table:counters" "put" (func $put))
    (import "call" "result" (func $result))
    (func (export "run") (local $i i64)
      (loop $on
        (local.set $i (i64.add (local.get $i) (i64.const 1)))
        (br_if $on (i64.lt_s (local.get $i) (call $n))))
      (call $int (i64.const 1)) (call $int (local.get $i)) (call $put)
      (call $int (local.get $i)) (call $result)))"#;

impl World {
    fn new() -> World {
        let policy = Policy::preset("sync", 1, LogKind::Disk).expect("a preset");
        let record = PartitionRecord::new(PartitionId(1), DATABASE, Epoch(1), vec![member()], policy);
        let identity = Identity { me: member(), id: PartitionId(1), rules: Rules::ALL };
        let mut world = World {
            record: record.of_database(),
            data: Data::recover(identity, Box::new(FakeEngine::new()), &Recovered::nothing(), false),
            indexes: KnownIndexes::default(),
            catalog: KnownCatalog::default(),
            calls: Calls::default(),
            session: SessionId::NONE,
            seq: 0,
            ships_calls: false,
        };
        let opened = world.with(|writing| writing.open_session()).expect("no error");
        world.session = SessionId(opened.entry.expect("an entry"));
        let count = defined(8, "count", Language::Builtin, "count", &["id", "by"]);
        let all = [counters(), count, defined(9, "slow", Language::Wasm, SLOW, &["n"])];
        assert_eq!(world.change(&all), Status::Ok);
        world
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Writing) -> T) -> T {
        act(&mut Writing {
            record: &self.record,
            term: self.record.term,
            rules: Rules::ALL,
            data: &mut self.data,
            indexes: &mut self.indexes,
            catalog: &mut self.catalog,
            commits: &mut Default::default(),
            calls: &mut self.calls,
            ships_calls: self.ships_calls,
            waiting: 0,
            now: Now { wall_ms: 5_000, ..Now::default() },
            settings: &Settings::default(),
            out: &mut Vec::new(),
        })
    }

    fn asked(&mut self, op: Op) -> Request {
        self.seq += 1;
        Request { table: DATABASE, schema: 0, session: self.session, seq: self.seq, ..request(op) }
    }

    fn change(&mut self, tables: &[CatalogTable]) -> Status {
        let changes: Vec<TableChange> =
            tables.iter().map(|table| TableChange::Create(RecordText::new(table))).collect();
        let asked = self.asked(Op::OpenSession);
        self.with(|writing| writing.transact(&asked, (&changes, &[]), None)).expect("no error").status
    }

    fn request(&mut self, procedure: u32, arguments: &[i64]) -> Request {
        let names: Vec<Column> = (0..arguments.len()).map(|at| int(&format!("a{at}"))).collect();
        let values = arguments.iter().copied().map(Value::Int).collect();
        let arguments = Signature::new(&names).expect("valid").encode(values).expect("fits").into();
        let procedure = TableId(procedure);
        self.asked(Op::Call(CallRequest {
            procedure,
            version: 1,
            arguments,
            route: Bytes::new(),
            read_only: false,
        }))
    }

    /// Asks, and goes on until there is an answer. Gives how many slices that took.
    fn ask(&mut self, request: &Request) -> (usize, Answer) {
        let Op::Call(call) = &request.op else { panic!("a call is asked for") };
        let to = client(1);
        let mut answer = self.with(|writing| writing.call(to, request, call)).expect("no error");
        let mut slices = 1;
        while answer.is_none() {
            let call = self.calls.take().expect("it is under way");
            answer = self.with(|writing| writing.go_on(call)).expect("no error");
            slices += 1;
        }
        (slices, answer.expect("it has ended"))
    }

    fn call(&mut self, procedure: u32, arguments: &[i64]) -> Answer {
        let request = self.request(procedure, arguments);
        self.ask(&request).1
    }

    fn stored(&self, key: &[u8]) -> Option<Bytes> {
        self.data.engine.get(key, ReadAt::Applied).expect("reads").map(|(_, value)| value)
    }

    fn counter(&self, id: i64) -> Option<Value> {
        let table = counters();
        let key: Bytes = types::data::encode_key(&table.schema, &[Value::Int(id)]).expect("a key").into();
        let value = self.stored(&KeySpace::Table(COUNTERS).row_key(&key))?;
        let Row { values, .. } = types::data::decode_row(&table.schema, &key, &value).expect("a row");
        Some(values[1].clone())
    }
}

fn given(answer: &Answer) -> Vec<i64> {
    let results = Signature::new(&[int("r")]).expect("valid");
    let number = |row: &Bytes| match results.decode(row).expect("a row")[..] {
        [Value::Int(number)] => number,
        _ => panic!("a number is given"),
    };
    match &answer.body {
        Body::Called(CallResult::Rows(rows)) => rows.iter().map(number).collect(),
        other => panic!("{other:?}"),
    }
}

fn failed(answer: &Answer) -> FailureKind {
    assert_eq!(answer.status, Status::Refused(Outcome::CallFailed));
    match &answer.body {
        Body::Called(CallResult::Failed(failure)) => failure.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pr192_a_repeated_call_is_told_the_same_until_its_result_is_confirmed() {
    let mut world = World::new();
    let first = world.request(8, &[1, 5]);
    let answer = world.ask(&first).1;
    let entry = answer.entry.expect("an entry");
    assert_eq!((answer.status.clone(), given(&answer)), (Status::Ok, vec![5]));
    assert_eq!(answer.when, When::Covered(entry.lsn, AckCondition::Entry));
    assert_eq!(given(&world.call(8, &[1, 2])), [7]);
    let again = world.ask(&first).1;
    assert_eq!((again.status, &again.body, again.entry), (answer.status, &answer.body, Some(entry)));
    assert_eq!(world.counter(1), Some(Value::Int(7)), "it was made once");
    let key = result_key(world.session, first.seq);
    assert!(world.stored(&key).is_some());
    let confirming = Request { confirmed: first.seq, ..world.request(8, &[1, 1]) };
    assert_eq!(given(&world.ask(&confirming).1), [8]);
    assert_eq!(world.stored(&key), None, "nobody asks for it any more");
    let wrong = world.ask(&first).1;
    assert!(matches!(wrong.status, Status::Bad(_)), "{wrong:?}");
    let last = result_key(world.session, confirming.seq);
    assert!(world.stored(&last).is_some());
    let gone = session::expire(world.data.engine.as_ref(), vec![world.session]).expect("reads");
    assert!(gone.iter().any(|mutation| mutation.key == last && mutation.value.is_none()), "{gone:?}");
}

#[test]
fn pr192_failures_and_refusals_are_told_again_and_change_nothing() {
    let mut world = World::new();
    assert_eq!(given(&world.call(8, &[1, 5])), [5]);
    let too_large = world.request(8, &[1, i64::MAX]);
    let answer = world.ask(&too_large).1;
    assert_eq!(failed(&answer), FailureKind::Raised);
    let again = world.ask(&too_large).1;
    assert_eq!((failed(&again), again.entry), (FailureKind::Raised, answer.entry));
    assert_eq!(failed(&world.call(8, &[1])), FailureKind::Arguments);
    // What the table demands holds for calls, too.
    let violates = world.call(8, &[2, 5]);
    assert_eq!((violates.status, violates.body), (Status::Refused(Outcome::Violates), Body::Affected(77)));
    assert_eq!((world.counter(1), world.counter(2)), (Some(Value::Int(5)), None));
    assert_eq!(world.call(88, &[]).status, Status::Refused(Outcome::Stale), "there is no such procedure");
    let end = world.data.log.end();
    let outside = Request { session: SessionId::NONE, seq: 0, ..world.request(8, &[1, i64::MAX]) };
    let answer = world.ask(&outside).1;
    assert_eq!(answer.when, When::Covered(end.lsn, AckCondition::Seen), "what it saw is not committed yet");
    assert_eq!(world.data.log.end(), end, "nothing to be kept and nothing changed");
}

#[test]
fn pr192_a_session_that_keeps_too_much_confirms_first() {
    let mut world = World::new();
    let mut kept = session::Session::default();
    let bytes = MAX_SESSION_RESULT_BYTES as u32;
    let old = session::Kept { seq: 2, hash: 0, outcome: Outcome::Returned, affected: bytes, at: at(2) };
    (kept.last, kept.kept) = (world.seq, vec![old]);
    let row = Mutation { key: session::session_key(world.session), value: Some(kept.encode()) };
    let next = world.data.log.end().lsn.next();
    world.data.engine.execute(at(next.0), &[row]);
    let request = world.request(8, &[1, 5]);
    let refused = world.ask(&request).1;
    assert!(matches!(&refused.status, Status::NotYet(why) if why.contains("confirm first")), "{refused:?}");
    assert_eq!(world.counter(1), None);
}

#[test]
fn pr190_a_call_goes_on_in_slices_and_writes_wait_behind_it() {
    let mut world = World::new();
    let request = world.request(9, &[200_000]);
    let Op::Call(call) = &request.op else { panic!("a call") };
    let begun = world.with(|writing| writing.call(client(1), &request, call)).expect("no error");
    assert_eq!(begun, None);
    let write = world.asked(Op::write(Vec::new()));
    let read = world.asked(Op::Indexes);
    world.seq -= 2;
    assert!(world.calls.hold(&write) && !world.calls.hold(&read));
    assert_eq!(world.calls.push(Waits::new(client(2), &write, Default::default())), None);
    assert!(world.calls.next_waiting().is_none(), "a call is under way");
    let call = world.calls.take().expect("it is under way");
    assert!(world.calls.hold(&write), "who came first is served first");
    world.calls.put(call);
    let (mut slices, mut answer) = (1, None);
    while answer.is_none() {
        let call = world.calls.take().expect("it is under way");
        answer = world.with(|writing| writing.go_on(call)).expect("no error");
        slices += 1;
    }
    assert!(slices > 2, "{slices} slices");
    assert_eq!(given(&answer.expect("it has ended")), [200_000]);
    assert!(world.calls.next_waiting().is_some_and(|asked| asked.request == write));
    let endless = world.request(9, &[i64::MAX]);
    let (slices, answer) = world.ask(&endless);
    assert_eq!(failed(&answer), FailureKind::Steps);
    assert!(slices >= 100, "{slices} slices of the {} steps of a call", Limits::default().steps);
}

#[test]
fn pr220_that_a_call_ran_too_long_is_its_outcome_and_is_told_again() {
    let mut world = World::new();
    let request = world.request(9, &[i64::MAX]);
    let Op::Call(call) = &request.op else { panic!("a call") };
    let begun = world.with(|writing| writing.call(client(1), &request, call)).expect("no error");
    assert_eq!(begun, None);
    let end = world.data.log.end();
    world.calls.ran(Micros::from_millis(11));
    let call = world.calls.take().expect("it is under way");
    let answer = world.with(|writing| writing.go_on(call)).expect("no error").expect("it has ended");
    assert_eq!(failed(&answer), FailureKind::Time);
    assert_eq!(world.data.log.end().lsn, end.lsn.next(), "one entry says so");
    assert_eq!(world.counter(1), None, "nothing of it is done");
    // Whoever asks again is told the same, however fast it would be now.
    let (slices, again) = world.ask(&request);
    assert_eq!((slices, failed(&again), again.entry), (1, FailureKind::Time, answer.entry));
}

#[test]
fn pr191_what_cannot_run_is_refused_once_and_where_it_was_made() {
    let mut world = World::new();
    let without = SLOW.replace("table:counters", "table:towns");
    let lost = defined(20, "lost", Language::Wasm, &without, &["n"]);
    let refused = world.change(std::slice::from_ref(&lost));
    assert!(matches!(&refused, Status::Bad(why) if why.contains("no table `towns`")), "{refused:?}");
    world.seq -= 1;
    // Another partition, whose first one has looked at it when there was such a table.
    let Some((_, procedure)) = lost.schema.procedure() else { panic!("a procedure") };
    let procedure = Procedure { checked: true, ..procedure.clone() };
    let lost = CatalogTable::procedure(TableId(20), "lost", &[int("n")], procedure, 0).expect("valid");
    assert_eq!(world.change(&[lost]), Status::Ok);
    assert_eq!(failed(&world.call(20, &[1])), FailureKind::Tables);
    let towns = CatalogTable { id: TableId(21), name: "towns".into(), ..counters() };
    assert_eq!(world.change(&[towns]), Status::Ok);
    assert_eq!(given(&world.call(20, &[1])), [1], "names are looked up as the tables are now");
    let value = world.stored(&types::database::catalog_key(TableId(9))).expect("a row");
    let key = KeySpace::Catalog.key_of(&types::database::catalog_key(TableId(9)));
    let (_, slow) = CatalogTable::decode(&key, &value).expect("reads");
    assert!(slow.schema.procedure().is_some_and(|(_, procedure)| procedure.checked));
}
