//! One suite that every engine passes: what `types::engine::Engine` says, method by method.

mod common;

use bytes::Bytes;
use common::*;
use types::engine::{MAX_KEY_BYTES, Row, space};
use types::{Engine, EngineError, Lsn, Mutation, Position, ReadAt, Term};

/// Makes each function of [`suite`] a test of each engine.
macro_rules! conformance {
    ($($test:ident),* $(,)?) => {
        mod volatile { $(#[test] fn $test() { super::suite::$test::<super::Volatile>() })* }
        mod persistent { $(#[test] fn $test() { super::suite::$test::<super::Persistent>() })* }
        mod lsm { $(#[test] fn $test() { super::suite::$test::<super::Lsm>() })* }
    };
}

conformance!(
    a_new_engine_stands_at_zero,
    tentative_entries_are_read_at_their_lsn_and_dropped,
    publishing_changes_no_read,
    reads_below_the_floor_are_refused,
    a_raised_floor_changes_no_read_above_it,
    scans_merge_tentative_and_published_rows,
    scans_keep_to_their_limits_and_bounds,
    r9_deletions_are_known_while_something_needs_them,
    the_position_is_not_among_the_rows,
    another_entry_takes_the_place_of_a_discarded_one,
    entries_without_changes_move_the_positions,
    digests_do_not_depend_on_the_rhythm,
    the_longest_key_is_stored,
    reads_take_keys_of_any_length,
    a_restart_finds_the_checkpoint_and_replays,
    tentative_entries_are_in_no_checkpoint,
    sessions_are_in_the_checkpoint,
    an_installed_state_is_the_senders,
    an_interrupted_installation_leaves_nothing,
    an_installation_refuses_foreign_rows,
    memory_is_counted,
);

const APPLIED: ReadAt = ReadAt::Applied;

fn lsn(lsn: u64) -> ReadAt {
    ReadAt::Lsn(Lsn(lsn))
}

/// Entries that overwrite, delete and skip, in every space.
fn history() -> Model {
    let mut log = Vec::new();
    for n in 1..=60u64 {
        let term = Term(1 + n / 25);
        let mut entry = Vec::new();
        if n % 10 != 0 {
            entry.push(put(&format!("row {}", n % 7), &format!("value {n}")));
            entry.push(Mutation { key: keyed(space::SESSION, "s"), value: Some(Bytes::from(n.to_string())) });
        }
        if n % 5 == 0 {
            entry.push(delete(&format!("row {}", n % 6)));
        }
        log.push((Position::new(term, Lsn(n)), entry));
    }
    Model { log }
}

mod suite {
    use super::*;

    fn open<S: Subject>() -> (tempfile::TempDir, S::Engine) {
        let dir = tempfile::tempdir().unwrap();
        let engine = S::open(&dir.path().join("engine"));
        (dir, engine)
    }

    fn reopen<S: Subject>(dir: &tempfile::TempDir, engine: S::Engine) -> S::Engine {
        drop(engine);
        S::open(&dir.path().join("engine"))
    }

    pub fn a_new_engine_stands_at_zero<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        assert_eq!(engine.applied(), Position::ZERO);
        assert_eq!(engine.published(), Position::ZERO);
        assert_eq!(engine.checkpoint().unwrap(), Position::ZERO);
        assert_eq!(engine.is_persistent(), S::PERSISTENT);
        assert_eq!(read(&engine, "a", APPLIED), "-");
        assert_eq!(engine.digest(APPLIED).unwrap(), 0);
        engine.publish(Lsn(5)).unwrap();
        assert_eq!(engine.published(), Position::ZERO);
    }

    pub fn tentative_entries_are_read_at_their_lsn_and_dropped<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("a", "one")]);
        engine.execute(at(2), &[put("a", "two"), put("b", "two")]);
        assert_eq!(read(&engine, "a", lsn(1)), "one@1");
        assert_eq!(read(&engine, "b", lsn(1)), "-");
        assert_eq!(read(&engine, "a", APPLIED), "two@2");
        engine.discard_above(at(1));
        assert_eq!(engine.applied(), at(1));
        assert_eq!(read(&engine, "a", APPLIED), "one@1");
        assert_eq!(all(&engine, APPLIED, 10).len(), 1);
        engine.discard_above(Position::ZERO);
        assert_eq!(read(&engine, "a", APPLIED), "-");
    }

    pub fn publishing_changes_no_read<S: Subject>() {
        let model = history();
        for upto in [0, 1, 13, 30, 60] {
            let (_dir, mut engine) = open::<S>();
            for (at, entry) in &model.log {
                engine.execute(*at, entry);
            }
            engine.publish(Lsn(upto)).unwrap();
            assert_eq!(engine.published().lsn, Lsn(upto));
            assert_eq!(engine.applied(), model.applied());
            for n in 0..=60 {
                assert_eq!(all(&engine, lsn(n), 3), model.rows(Lsn(n)), "at {n}, published {upto}");
            }
            assert_eq!(all(&engine, APPLIED, 1), model.rows(Lsn::MAX));
        }
    }

    pub fn reads_below_the_floor_are_refused<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("a", "one")]);
        engine.execute(at(2), &[put("a", "two")]);
        engine.publish(Lsn(2)).unwrap();
        engine.raise_read_floor(Lsn(2));
        engine.raise_read_floor(Lsn(1));
        assert_eq!(engine.read_floor(), Lsn(2));
        let too_old =
            |error| matches!(error, EngineError::SnapshotTooOld { asked: Lsn(1), read_floor: Lsn(2) });
        assert!(too_old(engine.get(&key("a"), lsn(1)).unwrap_err()));
        assert!(too_old(engine.scan(&[], &[], lsn(1), 10, 10).unwrap_err()));
        assert!(too_old(engine.digest(lsn(1)).unwrap_err()));
        assert_eq!(read(&engine, "a", lsn(2)), "two@2");
    }

    pub fn a_raised_floor_changes_no_read_above_it<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        let model = history();
        for (position, entry) in &model.log {
            engine.execute(*position, entry);
            engine.publish(position.lsn).unwrap();
            let read_floor = position.lsn.0.saturating_sub(position.lsn.0 % 8);
            engine.raise_read_floor(Lsn(read_floor));
            if position.lsn.0 % 9 == 0 {
                engine.checkpoint().unwrap();
            }
            for n in read_floor..=position.lsn.0 {
                assert_eq!(all(&engine, lsn(n), 4), model.rows(Lsn(n)));
            }
        }
    }

    pub fn scans_merge_tentative_and_published_rows<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("a", "1"), put("c", "1"), put("e", "1")]);
        engine.publish(Lsn(1)).unwrap();
        engine.checkpoint().unwrap();
        engine.execute(at(2), &[put("b", "2"), put("c", "2"), delete("e")]);
        let seen = |at| -> Vec<String> {
            let rows = engine.scan(&key(""), &[], at, 100, usize::MAX).unwrap();
            rows.iter().map(|row| format!("{}{}", row.key[1] as char, row.lsn)).collect()
        };
        assert_eq!(seen(APPLIED), ["a1", "b2", "c2"]);
        assert_eq!(seen(lsn(1)), ["a1", "c1", "e1"]);
    }

    pub fn r9_deletions_are_known_while_something_needs_them<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        engine.execute(at(1), &["a", "b", "c", "d"].map(|name| put(name, "1")));
        engine.publish(Lsn(1)).unwrap();
        engine.checkpoint().unwrap();
        engine.execute(at(2), &[delete("a")]);
        engine.execute(at(3), &[delete("b"), delete("c"), delete("never there")]);
        engine.execute(at(4), &[put("b", "4")]);
        engine.publish(Lsn(4)).unwrap();
        engine.checkpoint().unwrap();
        engine.execute(at(5), &[delete("d")]);
        let deleted = |from: &str, to: &[u8], above| -> Vec<(Bytes, Lsn)> {
            let mut deleted = engine.deletions(&key(from), to, Lsn(above)).unwrap();
            deleted.retain(|(name, _)| *name != key("never there"));
            deleted.sort();
            deleted
        };
        assert_eq!(deleted("", &[], 0), [(key("a"), Lsn(2)), (key("c"), Lsn(3))]);
        assert_eq!(deleted("", &[], 2), [(key("c"), Lsn(3))]);
        assert_eq!(deleted("", &key("c"), 0), [(key("a"), Lsn(2))]);
        assert_eq!(deleted("b", &key("a"), 0), []);
        assert_eq!(deleted("", &[], 3), []);
    }

    pub fn scans_keep_to_their_limits_and_bounds<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        let names = ["a", "b", "c", "d", "e"];
        engine.execute(at(1), &names.map(|name| put(name, "12345678")));
        engine.publish(Lsn(1)).unwrap();
        engine.execute(at(2), &[put("bb", "12345678")]);
        let count = |from: &str, to: &[u8], limit, max_bytes| {
            engine.scan(&key(from), to, APPLIED, limit, max_bytes).unwrap().len()
        };
        assert_eq!(count("", &[], 100, usize::MAX), 6);
        assert_eq!(count("b", &key("d"), 100, usize::MAX), 3);
        assert_eq!(count("d", &key("b"), 100, usize::MAX), 0);
        assert_eq!(count("d", &key("d"), 100, usize::MAX), 0);
        assert_eq!(count("", &[], 4, usize::MAX), 4);
        assert_eq!(count("", &[], 100, 15), 2);
        assert_eq!(count("", &[], 100, 0), 1);
        assert_eq!(count("", &[], 0, usize::MAX), 1);
        assert_eq!(count("x", &[], 1, 1), 0);
    }

    pub fn the_position_is_not_among_the_rows<S: Subject>() {
        let (dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("a", "1")]);
        engine.publish(Lsn(1)).unwrap();
        engine.checkpoint().unwrap();
        for engine in [engine.scan(&[], &[], APPLIED, 10, 1000), engine.scan(&[0], &[9], APPLIED, 10, 1000)] {
            assert!(engine.unwrap().iter().all(|row| row.key[0] != space::POSITION));
        }
        assert_eq!(engine.get(&[space::POSITION], APPLIED).unwrap(), None);
        drop(dir);
    }

    pub fn another_entry_takes_the_place_of_a_discarded_one<S: Subject>() {
        let (dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("x", "0")]);
        engine.publish(Lsn(1)).unwrap();
        engine.execute(Position::new(Term(1), Lsn(2)), &[put("x", "1"), put("y", "1")]);
        engine.discard_above(at(1));
        engine.execute(Position::new(Term(2), Lsn(2)), &[put("x", "2")]);
        engine.publish(Lsn(2)).unwrap();
        engine.checkpoint().unwrap();
        assert_eq!(read(&engine, "x", lsn(2)), "2@2");
        assert_eq!(read(&engine, "y", lsn(2)), "-");
        if S::PERSISTENT {
            engine = reopen::<S>(&dir, engine);
            assert_eq!(engine.published(), Position::new(Term(2), Lsn(2)));
            assert_eq!(read(&engine, "x", lsn(2)), "2@2");
        }
    }

    pub fn entries_without_changes_move_the_positions<S: Subject>() {
        let (dir, mut engine) = open::<S>();
        engine.execute(at(1), &[]);
        engine.execute(at(2), &[]);
        engine.publish(Lsn(1)).unwrap();
        assert_eq!((engine.published(), engine.applied()), (at(1), at(2)));
        let persisted = engine.checkpoint().unwrap();
        assert_eq!(persisted, if S::PERSISTENT { at(1) } else { Position::ZERO });
        engine = reopen::<S>(&dir, engine);
        assert_eq!((engine.applied(), engine.persisted()), (persisted, persisted));
    }

    pub fn digests_do_not_depend_on_the_rhythm<S: Subject>() {
        let model = history();
        let mut reference = understudy_engine::MemoryEngine::volatile();
        for (at, entry) in &model.log {
            reference.execute(*at, entry);
        }
        for every in [1, 4, 11, 60] {
            let (_dir, mut engine) = open::<S>();
            for (at, entry) in &model.log {
                engine.execute(*at, entry);
                if at.lsn.0 % every == 0 {
                    engine.publish(at.lsn).unwrap();
                    engine.raise_read_floor(Lsn(at.lsn.0 / 2));
                    engine.checkpoint().unwrap();
                }
            }
            for n in 30..=60 {
                assert_eq!(engine.digest(lsn(n)).unwrap(), reference.digest(lsn(n)).unwrap());
            }
            assert_ne!(engine.digest(lsn(59)).unwrap(), engine.digest(lsn(58)).unwrap());
        }
    }

    pub fn the_longest_key_is_stored<S: Subject>() {
        let (dir, mut engine) = open::<S>();
        let long = Bytes::from(vec![space::ROW; MAX_KEY_BYTES]);
        engine.execute(at(1), &[Mutation { key: long.clone(), value: Some(Bytes::new()) }]);
        engine.publish(Lsn(1)).unwrap();
        engine.checkpoint().unwrap();
        if S::PERSISTENT {
            engine = reopen::<S>(&dir, engine);
        }
        assert_eq!(engine.get(&long, APPLIED).unwrap(), Some((Lsn(1), Bytes::new())));
        assert_eq!(all(&engine, APPLIED, 9).len(), 1);
    }

    pub fn reads_take_keys_of_any_length<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        let longest = Bytes::from(vec![b'm'; MAX_KEY_BYTES - 1]);
        let longest = Bytes::from([&[space::ROW][..], &longest].concat());
        let written =
            [put("a", "1"), Mutation { key: longest.clone(), value: Some(Bytes::new()) }, put("z", "1")];
        engine.execute(at(1), &written);
        for published in [false, true] {
            if published {
                engine.publish(Lsn(1)).unwrap();
                engine.checkpoint().unwrap();
            }
            for over in [1, 2, (1 << 16) - MAX_KEY_BYTES, 1 << 20] {
                let long = [&longest[..], &vec![b'm'; over]].concat();
                assert_eq!(engine.get(&long, APPLIED).unwrap(), None, "{over} bytes too long");
                let keys = |from: &[u8], to: &[u8]| {
                    let rows = engine.scan(from, to, APPLIED, 9, usize::MAX).unwrap();
                    rows.iter().map(|row| row.key[1]).collect::<Vec<u8>>()
                };
                assert_eq!(keys(&long, &[]), b"z");
                assert_eq!(keys(&[], &long), b"am");
                assert_eq!(keys(&long, &long), b"");
                assert_eq!(keys(&longest, &long), b"m");
                assert_eq!(keys(&long, &longest), b"");
            }
        }
    }

    pub fn a_restart_finds_the_checkpoint_and_replays<S: Subject>() {
        let (dir, mut engine) = open::<S>();
        let model = history();
        for stop in [20, 21, 40, 60] {
            let from = engine.applied().lsn;
            for (at, entry) in model.log.iter().filter(|(at, _)| at.lsn > from && at.lsn <= Lsn(stop)) {
                engine.execute(*at, entry);
            }
            engine.publish(Lsn(stop - 3)).unwrap();
            let persisted = engine.checkpoint().unwrap();
            assert_eq!(persisted, engine.persisted());
            if S::PERSISTENT {
                assert_eq!(persisted, engine.published());
            }
            engine = reopen::<S>(&dir, engine);
            assert_eq!([engine.applied(), engine.published(), engine.persisted()], [persisted; 3]);
            assert_eq!(engine.read_floor(), persisted.lsn);
            assert_eq!(all(&engine, APPLIED, 5), model.rows(persisted.lsn));
        }
    }

    pub fn tentative_entries_are_in_no_checkpoint<S: Subject>() {
        let (dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("a", "1")]);
        engine.publish(Lsn(1)).unwrap();
        engine.execute(at(2), &[put("a", "2")]);
        let persisted = engine.checkpoint().unwrap();
        assert!(persisted.lsn <= Lsn(1));
        engine = reopen::<S>(&dir, engine);
        assert_eq!(read(&engine, "a", APPLIED), if S::PERSISTENT { "1@1" } else { "-" });
    }

    pub fn sessions_are_in_the_checkpoint<S: Subject>() {
        if !S::PERSISTENT {
            return;
        }
        let (dir, mut engine) = open::<S>();
        let session = Mutation { key: keyed(space::SESSION, "one"), value: Some(Bytes::from_static(b"7")) };
        engine.execute(at(1), &[session.clone(), put("a", "1")]);
        engine.publish(Lsn(1)).unwrap();
        let before = engine.digest(APPLIED).unwrap();
        engine.checkpoint().unwrap();
        engine = reopen::<S>(&dir, engine);
        assert_eq!(engine.get(&session.key, APPLIED).unwrap(), Some((Lsn(1), session.value.unwrap())));
        assert_eq!(engine.digest(APPLIED).unwrap(), before);
    }

    pub fn an_installed_state_is_the_senders<S: Subject>() {
        let model = history();
        let base = model.log[39].0;
        let (dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("leftover", "1")]);
        engine.publish(Lsn(1)).unwrap();
        engine.checkpoint().unwrap();
        engine.execute(at(2), &[put("tentative leftover", "2")]);
        engine.reset(base).unwrap();
        for rows in model.rows(base.lsn).chunks(3) {
            engine.install(rows).unwrap();
        }
        engine.finish_install().unwrap();
        assert_eq!([engine.applied(), engine.published()], [base; 2]);
        assert_eq!(engine.read_floor(), base.lsn);
        if S::PERSISTENT {
            assert_eq!(engine.persisted(), base);
            engine = reopen::<S>(&dir, engine);
        }
        assert_eq!(engine.applied(), base);
        assert_eq!(all(&engine, APPLIED, 100), model.rows(base.lsn));
        for (at, entry) in &model.log[40..] {
            engine.execute(*at, entry);
        }
        engine.publish(Lsn(50)).unwrap();
        engine.checkpoint().unwrap();
        assert_eq!(all(&engine, APPLIED, 100), model.rows(Lsn(60)));
    }

    pub fn an_interrupted_installation_leaves_nothing<S: Subject>() {
        let (dir, mut engine) = open::<S>();
        engine.execute(at(1), &[put("leftover", "1")]);
        engine.publish(Lsn(1)).unwrap();
        engine.checkpoint().unwrap();
        engine.reset(at(9)).unwrap();
        engine.install(&[Row { key: key("a"), lsn: Lsn(3), value: Bytes::from_static(b"3") }]).unwrap();
        assert!(engine.get(&key("a"), APPLIED).is_err(), "half a state is not read");
        assert_eq!(engine.checkpoint().unwrap(), Position::ZERO);
        engine = reopen::<S>(&dir, engine);
        assert_eq!([engine.applied(), engine.persisted()], [Position::ZERO; 2]);
        assert!(all(&engine, APPLIED, 10).is_empty());
        engine.reset(at(2)).unwrap();
        engine.finish_install().unwrap();
        engine.execute(at(3), &[put("b", "3")]);
        assert_eq!(all(&engine, APPLIED, 10).len(), 1);
    }

    pub fn an_installation_refuses_foreign_rows<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        let row = |key: Bytes, lsn| Row { key, lsn: Lsn(lsn), value: Bytes::new() };
        for row in [row(key("a"), 10), row(Bytes::new(), 1), row(Bytes::from_static(&[space::POSITION]), 1)] {
            engine.reset(at(9)).unwrap();
            assert!(matches!(engine.install(&[row]), Err(EngineError::Corrupt(_))));
        }
    }

    pub fn memory_is_counted<S: Subject>() {
        let (_dir, mut engine) = open::<S>();
        let empty = engine.memory_bytes();
        engine.execute(at(1), &[put("a", &"x".repeat(1000))]);
        assert!(engine.memory_bytes() >= empty + 1000);
        engine.publish(Lsn(1)).unwrap();
        assert!(engine.memory_bytes() >= empty + 1000);
        engine.checkpoint().unwrap();
        assert_eq!(engine.memory_bytes() < empty + 1000, S::PERSISTENT);
    }
}
