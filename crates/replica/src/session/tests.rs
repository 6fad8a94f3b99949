//! Tests of sessions, one by one.

use super::*;
use crate::fake::{FakeEngine, at, request};
use types::PartitionId;
use wire::entry::Kind;

fn kept(seq: u64, hash: u64) -> Kept {
    let at = Position::new(Term(1), Lsn(seq + 10));
    Kept { seq, hash, outcome: Outcome::Done, affected: 1, at }
}

#[test]
fn pr47_a_gap_is_named_and_another_request_under_an_old_number_is_wrong() {
    let mut session = Session::default();
    for seq in 1..=5 {
        session.apply(kept(seq, seq * 100), 0, 7, |gone| panic!("{gone:?}"));
    }
    assert_eq!(session.standing(6, 1, true), Standing::Next);
    assert_eq!(session.standing(7, 1, true), Standing::Gap(6));
    assert_eq!(session.standing(5, 500, true), Standing::Repeated(kept(5, 500)));
    assert_eq!(session.standing(5, 501, true), Standing::Wrong);
    let mut gone = Vec::new();
    session.apply(kept(6, 600), 4, 8, |kept| gone.push(kept.seq));
    assert_eq!(gone, [1, 2, 3, 4]);
    assert_eq!(session.standing(4, 400, true), Standing::Wrong, "it was confirmed and forgotten");
    assert_eq!(session.kept.len(), 2);
}

#[test]
#[should_panic(expected = "older than one before it")]
fn r11_outcomes_are_kept_in_the_order_of_the_log() {
    let mut session = Session::default();
    session.apply(kept(2, 1), 0, 7, |_| {});
    session.apply(kept(1, 1), 0, 7, |_| {});
}

#[test]
fn r11_what_is_asked_again_was_seen_and_what_nobody_uses_is_idle() {
    let id = SessionId(at(1));
    let mut engine = FakeEngine::new();
    let mut asked = request(wire::Op::OpenSession);
    (asked.session, asked.seq) = (id, 5);
    let seen = |engine: &FakeEngine, request: &Request, hash: u64| {
        let seen = check(engine, &mut Sessions::default(), Rules::ALL, request, hash);
        seen.expect("reads").map(|seen| (seen.status, seen.at))
    };
    assert!(matches!(seen(&engine, &asked, 500), Some((Status::Unknown(_), None))));
    let mut session = Session { last: 4, ..Session::default() };
    session.apply(kept(5, 500), 0, 7, |_| {});
    let mutation = Mutation { key: session_key(id), value: Some(session.encode()) };
    engine.execute(at(15), &[mutation]);
    assert_eq!(seen(&engine, &asked, 500), Some((Status::Ok, Some(at(15)))));
    assert!(matches!(seen(&engine, &asked, 501), Some((Status::Bad(_), None))));
    asked.seq = 6;
    assert_eq!(seen(&engine, &asked, 600), None, "it is the next one");
    asked.seq = 7;
    assert_eq!(seen(&engine, &asked, 700), Some((Status::Expected(6), None)));
    assert_eq!(idle(&engine, 17, 9).expect("reads"), [id]);
    assert_eq!(idle(&engine, 17, 10).expect("reads"), []);
}

/// Has an engine execute an entry with these changes.
fn execute(engine: &mut FakeEngine, sessions: &mut Sessions, at: Position, mutations: &[Mutation]) {
    let before = engine.applied();
    engine.execute(at, mutations);
    sessions.executed(before, at, mutations);
}

/// Of a write with this number that changes nothing.
fn effects(seq: u64) -> Effects {
    let (outcome, mutations) = (Outcome::Done as u8, Vec::new());
    Effects { request_hash: seq, confirmed: seq - 1, outcome, affected: 0, mutations }
}

/// The same with an entry of a session and its next number, which changes nothing else.
fn write(engine: &mut FakeEngine, sessions: &mut Sessions, (id, seq, at): (SessionId, u64, Position)) {
    let mut header = Header::new(Kind::Rows, PartitionId(1), at, 0);
    (header.session, header.seq) = (id, seq);
    let effects = effects(seq);
    let entry = Entry::encode_effects(header, &effects);
    let mutations = mutations_of(engine, sessions, &entry, effects).expect("reads");
    execute(engine, sessions, at, &mutations);
}

fn last(sessions: &mut Sessions, engine: &FakeEngine, id: SessionId) -> Option<u64> {
    sessions.look(engine, id).expect("reads").map(|session| session.last)
}

fn is_known(sessions: &Sessions, id: SessionId) -> bool {
    sessions.newer.contains_key(&id) || sessions.older.contains_key(&id)
}

#[test]
fn pr511_a_session_is_as_the_engine_has_it_behind_a_tail_that_was_undone() {
    let (mut engine, mut sessions) = (FakeEngine::new(), Sessions::default());
    let (one, two) = (SessionId(at(1)), SessionId(at(2)));
    for id in [one, two] {
        let row = Mutation { key: session_key(id), value: Some(Session::default().encode()) };
        execute(&mut engine, &mut sessions, id.0, &[row]);
    }
    write(&mut engine, &mut sessions, (one, 1, at(3)));
    write(&mut engine, &mut sessions, (two, 1, at(4)));
    write(&mut engine, &mut sessions, (one, 2, at(5)));
    assert!(is_known(&sessions, one) && is_known(&sessions, two), "neither is read again");
    assert_eq!([last(&mut sessions, &engine, one), last(&mut sessions, &engine, two)], [Some(2), Some(1)]);
    // The tail of another primary takes the place of this one, and has as many entries.
    engine.discard_above(at(3));
    let other = |lsn: u64| Position::new(Term(2), Lsn(lsn));
    execute(&mut engine, &mut sessions, other(4), &[]);
    assert!(!is_known(&sessions, one) && !is_known(&sessions, two));
    write(&mut engine, &mut sessions, (two, 1, other(5)));
    assert_eq!([last(&mut sessions, &engine, one), last(&mut sessions, &engine, two)], [Some(1), Some(1)]);
    engine.discard_above(at(3));
    assert_eq!([last(&mut sessions, &engine, one), last(&mut sessions, &engine, two)], [Some(1), Some(0)]);
}

#[test]
fn pr511_what_an_entry_was_to_make_of_a_session_is_nothing_until_it_is_executed() {
    let (mut engine, mut sessions, id) = (FakeEngine::new(), Sessions::default(), SessionId(at(1)));
    let row = Mutation { key: session_key(id), value: Some(Session::default().encode()) };
    execute(&mut engine, &mut sessions, at(1), &[row]);
    let mut header = Header::new(Kind::Rows, PartitionId(1), at(2), 0);
    (header.session, header.seq) = (id, 1);
    let entry = Entry::encode_effects(header, &effects(1));
    assert_eq!(mutations_of(&engine, &mut sessions, &entry, effects(1)).expect("reads").len(), 1);
    assert_eq!(last(&mut sessions, &engine, id), Some(0));
    // Another entry takes its place.
    execute(&mut engine, &mut sessions, Position::new(Term(2), Lsn(2)), &[]);
    assert_eq!(last(&mut sessions, &engine, id), Some(0));
}

#[test]
fn pr511_a_session_that_expires_or_is_written_by_others_is_not_known_any_more() {
    let (mut engine, mut sessions, id) = (FakeEngine::new(), Sessions::default(), SessionId(at(1)));
    let row = |session: &Session| Mutation { key: session_key(id), value: Some(session.encode()) };
    execute(&mut engine, &mut sessions, at(1), &[row(&Session::default())]);
    assert_eq!(last(&mut sessions, &engine, id), Some(0));
    execute(&mut engine, &mut sessions, at(2), &[row(&Session { last: 9, ..Session::default() })]);
    assert_eq!(last(&mut sessions, &engine, id), Some(9));
    let gone = expire(&engine, vec![id]).expect("reads");
    execute(&mut engine, &mut sessions, at(3), &gone);
    assert_eq!(last(&mut sessions, &engine, id), None);
}

#[test]
fn pr511_the_sessions_that_are_known_are_bounded_and_the_last_ones_are_among_them() {
    let (mut engine, mut sessions) = (FakeEngine::new(), Sessions::default());
    let many = Session { kept: (1..=200).map(|seq| kept(seq, seq)).collect(), ..Session::default() };
    for lsn in 1..=40 {
        let session = if lsn % 2 == 0 { many.clone() } else { Session::default() };
        let id = SessionId(at(lsn));
        let row = Mutation { key: session_key(id), value: Some(session.encode()) };
        execute(&mut engine, &mut sessions, at(lsn), &[row]);
        assert!(last(&mut sessions, &engine, id).is_some() && is_known(&sessions, id));
        let bytes = |of: &BTreeMap<SessionId, Session>| of.values().map(Session::memory_bytes).sum::<usize>();
        assert_eq!(bytes(&sessions.newer), sessions.bytes);
        assert!(sessions.bytes <= GENERATION_BYTES && bytes(&sessions.older) <= GENERATION_BYTES);
    }
    assert!(is_known(&sessions, SessionId(at(39))) && !is_known(&sessions, SessionId(at(1))));
    assert_eq!(last(&mut sessions, &engine, SessionId(at(1))), Some(0), "it is read again");
}

#[test]
#[should_panic(expected = "PR-511")]
#[cfg(debug_assertions)]
fn pr511_a_session_that_the_engine_does_not_have_so_is_a_bug() {
    let (mut engine, mut other, mut sessions) = (FakeEngine::new(), FakeEngine::new(), Sessions::default());
    let id = SessionId(at(1));
    let row = Mutation { key: session_key(id), value: Some(Session::default().encode()) };
    execute(&mut engine, &mut sessions, at(1), &[row]);
    assert_eq!(last(&mut sessions, &engine, id), Some(0));
    other.execute(at(1), &[]);
    last(&mut sessions, &other, id);
}

#[test]
fn a_session_reads_back_and_cuts_are_noticed() {
    let mut session = Session::default();
    session.apply(kept(1, 2), 0, 3, |_| {});
    let bytes = session.encode();
    assert_eq!(Session::decode(&bytes), Ok(session));
    for length in 0..bytes.len() {
        assert!(Session::decode(&bytes[..length]).is_err());
    }
    let id = SessionId(Position::new(Term(3), Lsn(9)));
    assert_eq!(session_of(&session_key(id)), Some(id));
    assert_eq!(session_of(b"other"), None);
}
