//! Calls that replicas make again: what they come to, what they may not, and who makes none.

use super::*;
use crate::backup::follow::AppendOutcome;
use crate::features::call_maker::{CallMaker, Unmade};
use bytes::BytesMut;
use procedure::{Builtin, Runtime, Shape, Tables};
use std::sync::Arc;
use types::{Lsn, Position};
use wire::Entry;
use wire::peer::{Append, Refusal};

/// A primary whose calls are shipped as such, and a replica that has what it has.
fn both() -> (World, World) {
    let primary = World { ships_calls: true, ..World::new() };
    (primary, World::new())
}

impl World {
    fn last(&self) -> Entry {
        self.data.log.tail().get(self.data.log.end().lsn).expect("in memory").clone()
    }

    /// Takes an entry in as it goes to who makes calls itself. What it has in its log then, or why not.
    fn take(&mut self, entry: &Entry, settings: &Settings, cold: bool) -> Result<Entry, AppendOutcome> {
        let behind = (self.data.log.end(), self.data.log.end_crc());
        self.take_behind(behind, entry, settings, cold)
    }

    /// The same of an entry that was sent as the next one behind this position.
    fn take_behind(
        &mut self,
        (prev, prev_crc): (Position, u32),
        entry: &Entry,
        settings: &Settings,
        cold: bool,
    ) -> Result<Entry, AppendOutcome> {
        let mut sent = BytesMut::new();
        entry.put_alone(&mut sent);
        let end = self.data.log.end();
        let append = Append {
            partition: PartitionId(1),
            epoch: Epoch(1),
            from: member(),
            number: 1,
            prev,
            prev_crc,
            committed: end.lsn,
            secured: end.lsn,
            log_floor: Lsn::ZERO,
            sent_us: 0,
            echo_us: 0,
            entries: sent.freeze(),
        };
        let mut maker = CallMaker { calls: &mut self.calls, settings };
        match self.data.take_append(&append, cold, &mut maker, &mut Vec::new()) {
            AppendOutcome::Yes(_) => Ok(self.last()),
            other => Err(other),
        }
    }
}

/// `count` that adds twice as much, and says that it is this edition.
struct Twice(u32);

impl Builtin for Twice {
    fn tables(&self) -> Vec<String> {
        vec!["counters".into()]
    }

    fn fault(&self, _: &[Column], _: &[Column], _: &[Shape]) -> Option<String> {
        None
    }

    fn edition(&self) -> u32 {
        self.0
    }

    fn call(&self, tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let [id, Value::Int(by)] = arguments else { panic!("two numbers") };
        tables.put(0, Row::new(vec![id.clone(), Value::Int(by * 2)]))?;
        tables.give(vec![Value::Int(by * 2)])
    }
}

fn with_twice(edition: u32) -> Settings {
    let twice = vec![("count".to_string(), Arc::new(Twice(edition)) as Arc<dyn Builtin>)];
    Settings { programs: Runtime::with(twice), ..Settings::default() }
}

#[test]
fn pr240_a_replica_makes_the_call_itself_and_logs_what_it_came_to() {
    let (mut primary, mut replica) = both();
    for (procedure, arguments) in [(8, vec![1, 5]), (8, vec![1, 2]), (9, vec![50]), (8, vec![2, 9])] {
        let answer = primary.call(procedure, &arguments);
        assert_eq!(answer.status, Status::Ok);
        let made = primary.last();
        assert_eq!((made.header().kind, Some(made.at())), (Kind::Call, answer.entry));
        assert!(!made.is_call_alone(), "the log of the primary has both");
        let taken = replica.take(&made, &Settings::default(), false).ok().expect("it makes it");
        assert_eq!(taken.bytes(), made.bytes(), "rows, index rows, result: all of it");
    }
    assert_eq!((primary.counter(1), primary.counter(2)), (Some(Value::Int(50)), Some(Value::Int(9))));
    assert_eq!((replica.counter(1), replica.counter(2)), (Some(Value::Int(50)), Some(Value::Int(9))));
    let (last, key) = (replica.seq, result_key(primary.session, primary.seq));
    assert!(replica.stored(&key).is_some() && last < primary.seq, "it can answer for the primary");
}

#[test]
fn pr448_a_replica_with_a_bulk_load_to_install_makes_no_call() {
    let (mut primary, mut replica) = both();
    assert_eq!(primary.call(8, &[1, 5]).status, Status::Ok);
    let (made, settings) = (primary.last(), Settings::default());
    let mut engine = crate::fake::FakeEngine::new();
    engine.pending = Some(crate::fake::at(3));
    let mut maker = CallMaker { calls: &mut replica.calls, settings: &settings };
    assert!(matches!(maker.make(&engine, &made), Err(Unmade::NotNow)), "it would not find rows of the load");
    assert!(replica.take(&made, &settings, false).is_ok(), "who has none makes it");
}

#[test]
fn f21_a_replica_that_comes_to_something_else_goes_no_further() {
    let (mut primary, mut replica) = both();
    primary.call(8, &[1, 5]);
    let before = replica.data.log.end();
    let wrong = with_twice(1);
    assert_eq!(wrong.programs.code(), Settings::default().programs.code(), "it says that it is the same");
    match replica.take(&primary.last(), &wrong, false) {
        Err(AppendOutcome::Differs(why)) => assert!(why.contains("F21"), "{why}"),
        _ => panic!("it goes on"),
    }
    assert_eq!((replica.data.log.end(), replica.counter(1)), (before, None), "nothing is acknowledged");
}

#[test]
fn pr240_who_has_other_code_or_cannot_look_wants_what_the_call_came_to() {
    let (mut primary, mut replica) = both();
    primary.call(8, &[1, 5]);
    let call = primary.last();
    for (settings, cold) in [(with_twice(2), false), (Settings::default(), true)] {
        match replica.take(&call, &settings, cold) {
            Err(AppendOutcome::Refused(Refusal::Effects(lsn))) => assert_eq!(lsn, call.lsn()),
            _ => panic!("it takes it"),
        }
    }
    // What it gets then is the same entry, and no code is asked for.
    replica.data.append(call.clone(), false, &mut Vec::new()).ok().expect("it has its effects");
    assert_eq!((replica.last().crc(), replica.counter(1)), (call.crc(), Some(Value::Int(5))));
    let mut alone = BytesMut::new();
    primary.call(8, &[1, 5]);
    primary.last().put_alone(&mut alone);
    let alone = Entry::decode(alone.freeze()).expect("decodes");
    let refused = replica.data.append(alone, false, &mut Vec::new()).expect_err("nobody makes calls there");
    assert!(refused.reason().contains("PR-240"));
}

#[test]
fn pr220_a_replica_looks_at_no_limits_and_what_came_of_them_is_no_call() {
    let (mut primary, mut replica) = both();
    primary.call(9, &[5_000]);
    let call = primary.last();
    assert_eq!(call.header().kind, Kind::Call);
    let mut narrow = Settings::default();
    narrow.call = Limits { steps: 10, written_rows: 0, result_bytes: 0, memory_bytes: 0, ..narrow.call };
    let taken = replica.take(&call, &narrow, false).ok().expect("the limits are not its own");
    assert_eq!(taken, call);
    // One that takes more than a slice, and one that failed, are rows.
    assert_eq!(given(&primary.call(9, &[400_000])), [400_000]);
    assert_eq!(primary.last().header().kind, Kind::Rows);
    assert_eq!(failed(&primary.call(8, &[1, i64::MAX])), FailureKind::Raised);
    assert_eq!(primary.last().header().kind, Kind::Rows);
    assert_eq!(failed(&primary.call(9, &[i64::MAX])), FailureKind::Steps);
    assert_eq!(primary.last().header().kind, Kind::Rows);
}

#[test]
fn pr240_a_replica_sees_each_change_of_tables() {
    let (mut primary, mut replica) = both();
    let mut follow = |primary: &World| {
        let made = primary.last();
        let taken = replica.take(&made, &Settings::default(), false).ok().expect("it takes it");
        assert_eq!(taken, made);
    };
    primary.call(8, &[1, 5]);
    follow(&primary);
    let unconstrained = CatalogTable { id: TableId(30), name: "other".into(), ..counters() };
    assert_eq!(primary.change(&[unconstrained]), Status::Ok);
    follow(&primary);
    let text = SLOW.replace("table:counters", "table:other");
    assert_eq!(primary.change(&[defined(31, "into_other", Language::Wasm, &text, &["n"])]), Status::Ok);
    follow(&primary);
    assert_eq!(given(&primary.call(31, &[4])), [4]);
    assert_eq!(primary.last().header().kind, Kind::Call);
    follow(&primary);
}

/// What the document on replication in H-Store leaves to future work: forwards that are lost, come twice, or
/// overtake each other.
#[test]
fn lost_repeated_and_reordered_forwards_of_calls_are_made_once_and_in_order() {
    let (mut primary, mut replica) = both();
    let settings = Settings::default();
    let mut sent = vec![(primary.data.log.end(), primary.data.log.end_crc(), None)];
    for by in [5, 2, 9] {
        primary.call(8, &[1, by]);
        let (end, crc) = (primary.data.log.end(), primary.data.log.end_crc());
        sent.push((end, crc, Some(primary.last())));
    }
    let mut forward = |number: usize| {
        let (prev, crc, _) = &sent[number - 1];
        let entry = sent[number].2.as_ref().expect("an entry");
        let taken = replica.take_behind((*prev, *crc), entry, &settings, false);
        (taken.map(drop), replica.data.log.end(), replica.counter(1))
    };
    let number = |number: i64| Some(Value::Int(number));
    let (first, end, counter) = forward(1);
    assert!(first.is_ok() && end == sent[1].0 && counter == number(5));
    // The second one is lost, or is overtaken by the third: nothing of that is made.
    let (overtaking, end, counter) = forward(3);
    let refused = |taken: &Result<(), AppendOutcome>| {
        matches!(taken, Err(AppendOutcome::Refused(Refusal::Mismatch(_))))
    };
    assert!(refused(&overtaking), "it lacks what is before");
    assert_eq!((end, counter), (sent[1].0, number(5)));
    // Forwards that come again change nothing.
    let (again, end, counter) = forward(1);
    assert!(again.is_ok());
    assert_eq!((end, counter), (sent[1].0, number(5)));
    for (at, sum) in [(2, 7), (2, 7), (1, 7), (3, 16), (2, 16), (3, 16)] {
        let (taken, _, counter) = forward(at);
        assert!(taken.is_ok(), "{at}");
        assert_eq!(counter, number(sum), "{at}");
    }
    assert_eq!(replica.data.log.end(), primary.data.log.end());
    assert_eq!(replica.last().crc(), primary.last().crc());
}
