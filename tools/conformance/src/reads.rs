//! Versions, snapshots at an LSN, scans, deletions, floors and digests: what is in memory or on disk makes no
//! difference.

use crate::{Place, all, at, delete, history, key, put, read};
use bytes::Bytes;
use types::engine::{MAX_KEY_BYTES, row_hash, space};
use types::{EngineError, Lsn, Mutation, Position, ReadAt};

const APPLIED: ReadAt = ReadAt::Applied;

fn lsn(lsn: u64) -> ReadAt {
    ReadAt::Lsn(Lsn(lsn))
}

pub fn a_new_engine_stands_at_zero(place: &Place) {
    let mut engine = place.open();
    assert_eq!(engine.applied(), Position::ZERO);
    assert_eq!(engine.published(), Position::ZERO);
    assert_eq!(engine.checkpoint().expect("no error"), Position::ZERO);
    assert_eq!(engine.is_persistent(), engine.is_persistent());
    assert_eq!(read(engine.as_ref(), "a", APPLIED), "-");
    assert_eq!(engine.digest(APPLIED).expect("no error"), 0);
    engine.publish(Lsn(5)).expect("no error");
    assert_eq!(engine.published(), Position::ZERO);
}

pub fn tentative_entries_are_read_at_their_lsn_and_dropped(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("a", "one")]);
    engine.execute(at(2), &[put("a", "two"), put("b", "two")]);
    assert_eq!(read(engine.as_ref(), "a", lsn(1)), "one@1");
    assert_eq!(read(engine.as_ref(), "b", lsn(1)), "-");
    assert_eq!(read(engine.as_ref(), "a", APPLIED), "two@2");
    engine.discard_above(at(1));
    assert_eq!(engine.applied(), at(1));
    assert_eq!(read(engine.as_ref(), "a", APPLIED), "one@1");
    assert_eq!(all(engine.as_ref(), APPLIED, 10).len(), 1);
    engine.discard_above(Position::ZERO);
    assert_eq!(read(engine.as_ref(), "a", APPLIED), "-");
}

pub fn publishing_changes_no_read(place: &Place) {
    let model = history();
    for upto in [0, 1, 13, 30, 60] {
        let mut engine = place.open_as(&format!("upto {upto}"));
        for (at, entry) in &model.log {
            engine.execute(*at, entry);
        }
        engine.publish(Lsn(upto)).expect("no error");
        assert_eq!(engine.published().lsn, Lsn(upto));
        assert_eq!(engine.applied(), model.applied());
        for n in 0..=60 {
            assert_eq!(all(engine.as_ref(), lsn(n), 3), model.rows(Lsn(n)), "at {n}, published {upto}");
        }
        assert_eq!(all(engine.as_ref(), APPLIED, 1), model.rows(Lsn::MAX));
    }
}

pub fn reads_below_the_floor_are_refused(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("a", "one")]);
    engine.execute(at(2), &[put("a", "two")]);
    engine.publish(Lsn(2)).expect("no error");
    engine.raise_read_floor(Lsn(2));
    engine.raise_read_floor(Lsn(1));
    assert_eq!(engine.read_floor(), Lsn(2));
    let too_old = |error| matches!(error, EngineError::SnapshotTooOld { asked: Lsn(1), read_floor: Lsn(2) });
    assert!(too_old(engine.get(&key("a"), lsn(1)).expect_err("an error")));
    assert!(too_old(engine.scan(&[], &[], lsn(1), 10, 10).expect_err("an error")));
    assert!(too_old(engine.digest(lsn(1)).expect_err("an error")));
    assert_eq!(read(engine.as_ref(), "a", lsn(2)), "two@2");
}

pub fn a_raised_floor_changes_no_read_above_it(place: &Place) {
    let mut engine = place.open();
    let model = history();
    for (position, entry) in &model.log {
        engine.execute(*position, entry);
        engine.publish(position.lsn).expect("no error");
        let read_floor = position.lsn.0.saturating_sub(position.lsn.0 % 8);
        engine.raise_read_floor(Lsn(read_floor));
        if position.lsn.0 % 9 == 0 {
            engine.checkpoint().expect("no error");
        }
        for n in read_floor..=position.lsn.0 {
            assert_eq!(all(engine.as_ref(), lsn(n), 4), model.rows(Lsn(n)));
        }
    }
}

pub fn scans_merge_tentative_and_published_rows(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("a", "1"), put("c", "1"), put("e", "1")]);
    engine.publish(Lsn(1)).expect("no error");
    engine.checkpoint().expect("no error");
    engine.execute(at(2), &[put("b", "2"), put("c", "2"), delete("e")]);
    let seen = |at| -> Vec<String> {
        let rows = engine.scan(&key(""), &[], at, 100, usize::MAX).expect("no error");
        rows.iter().map(|row| format!("{}{}", row.key[1] as char, row.lsn)).collect()
    };
    assert_eq!(seen(APPLIED), ["a1", "b2", "c2"]);
    assert_eq!(seen(lsn(1)), ["a1", "c1", "e1"]);
}

pub fn r9_deletions_are_known_while_something_needs_them(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &["a", "b", "c", "d"].map(|name| put(name, "1")));
    engine.publish(Lsn(1)).expect("no error");
    engine.checkpoint().expect("no error");
    engine.execute(at(2), &[delete("a")]);
    engine.execute(at(3), &[delete("b"), delete("c"), delete("never there")]);
    engine.execute(at(4), &[put("b", "4")]);
    engine.publish(Lsn(4)).expect("no error");
    engine.checkpoint().expect("no error");
    engine.execute(at(5), &[delete("d")]);
    let deleted = |from: &str, to: &[u8], above| -> Vec<(Bytes, Lsn)> {
        let mut deleted = engine.deletions(&key(from), to, Lsn(above)).expect("no error");
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

pub fn scans_keep_to_their_limits_and_bounds(place: &Place) {
    let mut engine = place.open();
    let names = ["a", "b", "c", "d", "e"];
    engine.execute(at(1), &names.map(|name| put(name, "12345678")));
    engine.publish(Lsn(1)).expect("no error");
    engine.execute(at(2), &[put("bb", "12345678")]);
    let count = |from: &str, to: &[u8], limit, max_bytes| {
        engine.scan(&key(from), to, APPLIED, limit, max_bytes).expect("no error").len()
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

pub fn the_position_is_not_among_the_rows(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("a", "1")]);
    engine.publish(Lsn(1)).expect("no error");
    engine.checkpoint().expect("no error");
    for engine in [engine.scan(&[], &[], APPLIED, 10, 1000), engine.scan(&[0], &[9], APPLIED, 10, 1000)] {
        assert!(engine.expect("no error").iter().all(|row| row.key[0] != space::POSITION));
    }
    assert_eq!(engine.get(&[space::POSITION], APPLIED).expect("no error"), None);
}

pub fn digests_do_not_depend_on_the_rhythm(place: &Place) {
    let model = history();
    let digest = |lsn| model.rows(Lsn(lsn)).iter().map(row_hash).fold(0, u64::wrapping_add);
    for every in [1, 4, 11, 60] {
        let mut engine = place.open_as(&format!("every {every}"));
        for (at, entry) in &model.log {
            engine.execute(*at, entry);
            if at.lsn.0 % every == 0 {
                engine.publish(at.lsn).expect("no error");
                engine.raise_read_floor(Lsn(at.lsn.0 / 2));
                engine.checkpoint().expect("no error");
            }
        }
        for n in 30..=60 {
            assert_eq!(engine.digest(lsn(n)).expect("no error"), digest(n));
        }
        assert_ne!(engine.digest(lsn(59)).expect("no error"), engine.digest(lsn(58)).expect("no error"));
    }
}

pub fn the_longest_key_is_stored(place: &Place) {
    let mut engine = place.open();
    let long = Bytes::from(vec![space::ROW; MAX_KEY_BYTES]);
    engine.execute(at(1), &[Mutation { key: long.clone(), value: Some(Bytes::new()) }]);
    engine.publish(Lsn(1)).expect("no error");
    engine.checkpoint().expect("no error");
    if engine.is_persistent() {
        engine = place.reopen(engine);
    }
    assert_eq!(engine.get(&long, APPLIED).expect("no error"), Some((Lsn(1), Bytes::new())));
    assert_eq!(all(engine.as_ref(), APPLIED, 9).len(), 1);
}

pub fn reads_take_keys_of_any_length(place: &Place) {
    let mut engine = place.open();
    let longest = Bytes::from(vec![b'm'; MAX_KEY_BYTES - 1]);
    let longest = Bytes::from([&[space::ROW][..], &longest].concat());
    let written =
        [put("a", "1"), Mutation { key: longest.clone(), value: Some(Bytes::new()) }, put("z", "1")];
    engine.execute(at(1), &written);
    for published in [false, true] {
        if published {
            engine.publish(Lsn(1)).expect("no error");
            engine.checkpoint().expect("no error");
        }
        for over in [1, 2, (1 << 16) - MAX_KEY_BYTES, 1 << 20] {
            let long = [&longest[..], &vec![b'm'; over]].concat();
            assert_eq!(engine.get(&long, APPLIED).expect("no error"), None, "{over} bytes too long");
            let keys = |from: &[u8], to: &[u8]| {
                let rows = engine.scan(from, to, APPLIED, 9, usize::MAX).expect("no error");
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

pub fn memory_is_counted(place: &Place) {
    let mut engine = place.open();
    let empty = engine.memory_bytes();
    engine.execute(at(1), &[put("a", &"x".repeat(1000))]);
    assert!(engine.memory_bytes() >= empty + 1000);
    engine.publish(Lsn(1)).expect("no error");
    assert!(engine.memory_bytes() >= empty + 1000);
    engine.checkpoint().expect("no error");
    assert_eq!(engine.memory_bytes() < empty + 1000, engine.is_persistent());
}

pub fn a_range_can_be_deleted_and_written_again(place: &Place) {
    let mut engine = place.open();
    let names: Vec<String> = (0..20).map(|n| format!("row {n:02}")).collect();
    engine.execute(at(1), &names.iter().map(|name| put(name, "old")).collect::<Vec<_>>());
    engine.publish(Lsn(1)).expect("no error");
    engine.checkpoint().expect("no error");
    engine.execute(at(2), &names[5..15].iter().map(|name| delete(name)).collect::<Vec<_>>());
    engine.execute(at(3), &[put("row 07", "new"), delete("row 99")]);
    for published in [false, true] {
        if published {
            engine.publish(Lsn(3)).expect("no error");
            engine.checkpoint().expect("no error");
        }
        let count = |at| all(engine.as_ref(), at, 4).len();
        assert_eq!([count(lsn(1)), count(lsn(2)), count(lsn(3)), count(APPLIED)], [20, 10, 11, 11]);
        let within = engine.scan(&key("row 05"), &key("row 15"), APPLIED, 100, usize::MAX);
        let within = within.expect("no error");
        assert_eq!(
            within.iter().map(|row| (&row.key[1..], row.lsn)).collect::<Vec<_>>(),
            [(&b"row 07"[..], Lsn(3))]
        );
        assert_eq!(read(engine.as_ref(), "row 07", lsn(2)), "-");
        assert_eq!(read(engine.as_ref(), "row 07", APPLIED), "new@3");
        assert_eq!(read(engine.as_ref(), "row 06", APPLIED), "-");
    }
}

pub fn what_is_read_ahead_changes_no_answer(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("a", "one"), put("b", "one"), put("c", "one")]);
    engine.publish(Lsn(1)).expect("no error");
    let ahead: Vec<Bytes> = ["a", "b", "c", "d"].map(key).into();
    for checkpoint in [false, true] {
        if checkpoint {
            engine.checkpoint().expect("writes");
        }
        engine.read_ahead(&ahead).expect("no error");
        assert_eq!(read(engine.as_ref(), "c", APPLIED), "one@1");
        assert_eq!(read(engine.as_ref(), "e", APPLIED), "-", "it was not read ahead");
    }
    engine.execute(at(2), &[put("a", "two"), delete("b"), put("d", "two")]);
    let newest = |engine: &dyn types::Engine| ["a", "b", "c", "d"].map(|name| read(engine, name, APPLIED));
    assert_eq!(newest(engine.as_ref()), ["two@2", "-", "one@1", "two@2"]);
    engine.discard_above(at(1));
    assert_eq!(newest(engine.as_ref()), ["one@1", "one@1", "one@1", "-"]);
    engine.execute(at(2), &[put("a", "two"), delete("b"), put("d", "two")]);
    engine.publish(Lsn(2)).expect("no error");
    assert_eq!(newest(engine.as_ref()), ["two@2", "-", "one@1", "two@2"], "written since they were read");
    assert_eq!(read(engine.as_ref(), "a", lsn(1)), "one@1", "an older state is as it was");
    engine.end_read_ahead();
    assert_eq!(newest(engine.as_ref()), ["two@2", "-", "one@1", "two@2"]);
}
