//! Tests of turns at rows: order, bounds, and what ends them.

use super::*;
use crate::fake;
use wire::Op;
use wire::request::ReadSnapshot;

const WAIT: Micros = Micros::from_millis(5_000);

fn who(number: u64) -> TurnHolder {
    TurnHolder { gateway: number % 2, transaction: number }
}

fn row(name: &str) -> Row {
    (TableId(1), Bytes::copy_from_slice(name.as_bytes()))
}

/// A second and so many milliseconds.
fn at(ms: u64) -> Micros {
    Micros::from_millis(1_000 + ms)
}

/// A request, and its answer.
type Given = (u64, Option<TurnAnswer>);

struct World {
    turns: RowTurns,
    requests: u64,
    /// Where the log ends.
    end: Lsn,
}

impl World {
    fn new() -> World {
        World { turns: RowTurns::default(), requests: 0, end: Lsn::ZERO }
    }

    /// What somebody asks, with its number as the connection's. Requests are numbered from 1.
    fn ask(&mut self, now: Micros, number: u64, name: &str, wait: Micros) -> Vec<Given> {
        self.requests += 1;
        let to = ClientRef { connection: number, request: self.requests };
        let key = row(name).1;
        let request =
            Request { id: self.requests, ..fake::request(Op::Get { key, at: ReadSnapshot::Newest }) };
        let asked = Question { who: who(number), row: row(name), wait };
        let answered = self.turns.ask(now, (to, request), asked);
        self.told(answered)
    }

    fn told(&self, answered: Vec<Answered>) -> Vec<Given> {
        self.turns.validate().expect("sound");
        answered.into_iter().map(|one| (one.request.id, one.answer)).collect()
    }

    /// A new entry writes a row.
    fn write(&mut self, now: Micros, name: &str) -> Vec<Given> {
        self.end = self.end.next();
        self.turns.log_ends_at(self.end);
        self.write_again(now, &[name])
    }

    /// The newest entry writes these rows, as it did before.
    fn write_again(&mut self, now: Micros, names: &[&str]) -> Vec<Given> {
        let rows: Vec<Row> = names.iter().map(|name| row(name)).collect();
        let answered = self.turns.written(now, self.end, rows.iter());
        self.told(answered)
    }

    fn release(&mut self, now: Micros, number: u64) -> Vec<Given> {
        let answered = self.turns.release(now, who(number));
        self.told(answered)
    }

    fn expire(&mut self, now: Micros) -> Vec<Given> {
        let mut answered = self.turns.end_waits(now);
        answered.extend(self.turns.end_silent(now));
        self.told(answered)
    }
}

/// No answer yet.
const NOTHING: [Given; 0] = [];
const FREE: Option<TurnAnswer> = Some(TurnAnswer::Granted { waited: false });
const COMES: Option<TurnAnswer> = Some(TurnAnswer::Granted { waited: true });
const WITHOUT: Option<TurnAnswer> = Some(TurnAnswer::Without);
const DEADLOCK: Option<TurnAnswer> = Some(TurnAnswer::Deadlock);

#[test]
fn a_turn_is_passed_on_in_the_order_of_asking_by_a_write_and_by_a_release() {
    let mut world = World::new();
    assert_eq!(world.ask(at(0), 1, "a", WAIT), [(1, FREE)]);
    assert_eq!(world.ask(at(1), 1, "a", WAIT), [(2, FREE)], "it has it");
    assert_eq!(world.ask(at(2), 2, "b", WAIT), [(3, FREE)], "another row");
    for number in [5, 4, 3] {
        assert_eq!(world.ask(at(3), number, "a", WAIT), NOTHING);
    }
    assert_eq!(world.write(at(4), "a"), [(4, COMES)]);
    assert_eq!(world.release(at(5), 1), NOTHING, "it has been passed on already");
    assert_eq!(world.release(at(6), 5), [(5, COMES)]);
    assert_eq!(world.release(at(7), 4), [(6, COMES)]);
    assert_eq!(world.write(at(8), "a"), NOTHING);
    assert_eq!(world.write(at(9), "never asked for"), NOTHING);
    assert_eq!(world.ask(at(10), 7, "a", WAIT), [(7, FREE)]);
    assert_eq!(world.release(at(11), 2), NOTHING);
    assert_eq!(world.release(at(12), 7), NOTHING);
    assert!(world.turns.is_empty() && world.turns.holders.is_empty());
}

#[test]
fn pr374_a_wait_ends_in_time_and_the_turns_of_who_is_silent_end_too() {
    let mut world = World::new();
    assert_eq!(world.ask(at(0), 1, "a", WAIT), [(1, FREE)]);
    assert_eq!(world.ask(at(0), 2, "a", Micros::ZERO), [(2, WITHOUT)], "it does not wait at all");
    assert_eq!(world.ask(at(0), 3, "a", Micros::from_millis(100)), NOTHING);
    assert_eq!(world.ask(at(0), 4, "a", WAIT), NOTHING);
    assert_eq!(world.expire(at(99)), NOTHING);
    assert_eq!(world.expire(at(100)), [(3, WITHOUT)]);
    assert_eq!(world.expire(at(5_000)), [(4, WITHOUT)]);
    // Whoever has the turn says nothing any more.
    assert_eq!(world.ask(at(9_000), 5, "a", WAIT), NOTHING);
    assert_eq!(world.expire(at(9_999)), NOTHING);
    assert_eq!(world.expire(at(10_000)), [(5, COMES)]);
    // The same where its connection ends.
    assert_eq!(world.ask(at(11_000), 6, "a", WAIT), NOTHING);
    assert!(world.turns.are_of(5) && !world.turns.are_of(1));
    let answered = world.turns.gone(at(11_001), 5);
    assert_eq!(world.told(answered), [(6, COMES)]);
    // Who waits may be gone, too.
    assert_eq!(world.ask(at(11_002), 7, "a", WAIT), NOTHING);
    let answered = world.turns.gone(at(11_003), 7);
    assert_eq!(world.told(answered), [(7, WITHOUT)]);
    assert_eq!(world.write(at(11_004), "a"), NOTHING);
}

#[test]
fn pr374_when_the_term_ends_everybody_who_waits_is_answered() {
    let mut world = World::new();
    assert_eq!(world.ask(at(0), 1, "a", WAIT), [(1, FREE)]);
    assert_eq!(world.ask(at(0), 2, "a", WAIT), NOTHING);
    assert_eq!(world.ask(at(0), 3, "a", WAIT), NOTHING);
    let mut waited: Vec<u64> = world.turns.drain().into_iter().map(|(to, _)| to.request).collect();
    waited.sort_unstable();
    assert_eq!(waited, [2, 3]);
    assert!(world.turns.is_empty());
    world.turns.validate().expect("nothing is left");
}

#[test]
fn a_question_that_comes_again_keeps_its_place_and_another_one_gives_it_up() {
    let mut world = World::new();
    assert_eq!(world.ask(at(0), 1, "a", WAIT), [(1, FREE)]);
    assert_eq!(world.ask(at(0), 1, "b", WAIT), [(2, FREE)]);
    assert_eq!(world.ask(at(1), 2, "a", WAIT), NOTHING);
    assert_eq!(world.ask(at(2), 3, "a", WAIT), NOTHING);
    assert_eq!(world.ask(at(3), 2, "a", WAIT), [(3, None)], "each request has an answer");
    assert_eq!(world.write(at(4), "a"), [(5, COMES)], "and the newest one the turn");
    assert_eq!(world.ask(at(5), 3, "b", WAIT), [(4, WITHOUT)], "it waits for one row at a time");
    assert_eq!(world.release(at(6), 2), NOTHING);
    assert_eq!(world.release(at(7), 1), [(6, COMES)]);
}

#[test]
fn pr410_a_write_passes_on_no_turn_that_began_behind_it() {
    let mut world = World::new();
    assert_eq!(world.ask(at(0), 1, "a", WAIT), [(1, FREE)]);
    for number in [2, 3, 4] {
        assert_eq!(world.ask(at(1), number, "a", WAIT), NOTHING);
    }
    assert_eq!(world.write(at(2), "a"), [(2, COMES)]);
    assert_eq!(world.write_again(at(3), &["a"]), NOTHING, "the same is answered once more");
    // An entry that names a row twice.
    world.end = world.end.next();
    world.turns.log_ends_at(world.end);
    assert_eq!(world.write_again(at(4), &["a", "a"]), [(3, COMES)]);
    assert_eq!(world.release(at(5), 3), [(4, COMES)]);
    assert_eq!(world.write_again(at(6), &["a"]), NOTHING, "the turn came without a write");
}

#[test]
fn pr375_transactions_that_would_wait_for_each_other_are_told() {
    let mut world = World::new();
    for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(world.ask(at(0), number, name, WAIT), [(number, FREE)]);
    }
    assert_eq!(world.ask(at(1), 1, "b", WAIT), NOTHING);
    assert_eq!(world.ask(at(2), 2, "c", WAIT), NOTHING);
    assert_eq!(world.ask(at(3), 3, "a", WAIT), [(6, DEADLOCK)]);
    // It gives up, and the others go on.
    assert_eq!(world.release(at(4), 3), [(5, COMES)]);
    assert_eq!(world.release(at(5), 2), [(4, COMES)]);
    // Who stands in a queue waits for whoever has the turn by then.
    let mut world = World::new();
    assert_eq!(world.ask(at(0), 1, "a", WAIT), [(1, FREE)]);
    assert_eq!(world.ask(at(0), 2, "b", WAIT), [(2, FREE)]);
    assert_eq!(world.ask(at(1), 3, "a", WAIT), NOTHING);
    assert_eq!(world.ask(at(2), 2, "a", WAIT), NOTHING);
    assert_eq!(world.write(at(3), "a"), [(3, COMES)]);
    assert_eq!(world.ask(at(4), 3, "b", WAIT), [(5, DEADLOCK)]);
}

#[test]
fn pr376_what_is_kept_of_turns_is_bounded() {
    let mut world = World::new();
    let name = |number: u64| format!("row {number}");
    for number in 1..=MAX_ROWS as u64 {
        let key = row(&name(number)).1;
        let request = fake::request(Op::Get { key, at: ReadSnapshot::Newest });
        let to = ClientRef { connection: 0, request: number };
        let asked = Question { who: who(number), row: row(&name(number)), wait: WAIT };
        assert_eq!(world.turns.ask(at(0), (to, request), asked).len(), 1);
    }
    assert_eq!(world.ask(at(1), 1, "one more", WAIT), [(1, WITHOUT)]);
    assert_eq!(world.ask(at(1), 1, "row 1", WAIT), [(2, FREE)], "it has it");
    // Everybody goes, one after the other.
    assert_eq!(world.expire(at(30_000)), NOTHING);
    assert!(world.turns.is_empty() && world.turns.bytes == 0);
    // Waiting is bounded as well.
    let mut world = World::new();
    let key = Bytes::from(vec![b'k'; 20_000]);
    let most = MAX_BYTES / (20_000 + BESIDE_KEY);
    let mut told = Vec::new();
    for number in 1..=most as u64 + 1 {
        let request = fake::request(Op::Get { key: key.clone(), at: ReadSnapshot::Newest });
        let to = ClientRef { connection: 0, request: number };
        let asked = Question { who: who(number), row: (TableId(1), key.clone()), wait: WAIT };
        let answered = world.turns.ask(at(0), (to, request), asked);
        told.push(answered.first().and_then(|one| one.answer));
    }
    assert_eq!((told[0], told[1], told[most - 1], told[most]), (FREE, None, None, WITHOUT));
    world.turns.validate().expect("what is counted is there");
}
