//! What a restart finds: the last checkpoint or the last installation, whole; and that damage is told.

use crate::{Place, all, at, history, key, keyed, one_line, put, read};
use bytes::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use types::engine::{Row, space};
use types::{EngineError, Lsn, Mutation, Position, ReadAt, Term};

const APPLIED: ReadAt = ReadAt::Applied;

fn lsn(lsn: u64) -> ReadAt {
    ReadAt::Lsn(Lsn(lsn))
}

pub fn another_entry_takes_the_place_of_a_discarded_one(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("x", "0")]);
    engine.publish(Lsn(1)).expect("no error");
    engine.execute(Position::new(Term(1), Lsn(2)), &[put("x", "1"), put("y", "1")]);
    engine.discard_above(at(1));
    engine.execute(Position::new(Term(2), Lsn(2)), &[put("x", "2")]);
    engine.publish(Lsn(2)).expect("no error");
    engine.checkpoint().expect("no error");
    assert_eq!(read(engine.as_ref(), "x", lsn(2)), "2@2");
    assert_eq!(read(engine.as_ref(), "y", lsn(2)), "-");
    if engine.is_persistent() {
        engine = place.reopen(engine);
        assert_eq!(engine.published(), Position::new(Term(2), Lsn(2)));
        assert_eq!(read(engine.as_ref(), "x", lsn(2)), "2@2");
    }
}

pub fn entries_without_changes_move_the_positions(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[]);
    engine.execute(at(2), &[]);
    engine.publish(Lsn(1)).expect("no error");
    assert_eq!((engine.published(), engine.applied()), (at(1), at(2)));
    let persisted = engine.checkpoint().expect("no error");
    assert_eq!(persisted, if engine.is_persistent() { at(1) } else { Position::ZERO });
    engine = place.reopen(engine);
    assert_eq!((engine.applied(), engine.persisted()), (persisted, persisted));
}

pub fn a_restart_finds_the_checkpoint_and_replays(place: &Place) {
    let mut engine = place.open();
    let model = history();
    for stop in [20, 21, 40, 60] {
        let from = engine.applied().lsn;
        for (at, entry) in model.log.iter().filter(|(at, _)| at.lsn > from && at.lsn <= Lsn(stop)) {
            engine.execute(*at, entry);
        }
        engine.publish(Lsn(stop - 3)).expect("no error");
        let persisted = engine.checkpoint().expect("no error");
        assert_eq!(persisted, engine.persisted());
        if engine.is_persistent() {
            assert_eq!(persisted, engine.published());
        }
        engine = place.reopen(engine);
        assert_eq!([engine.applied(), engine.published(), engine.persisted()], [persisted; 3]);
        assert_eq!(engine.read_floor(), persisted.lsn);
        assert_eq!(all(engine.as_ref(), APPLIED, 5), model.rows(persisted.lsn));
    }
}

pub fn tentative_entries_are_in_no_checkpoint(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("a", "1")]);
    engine.publish(Lsn(1)).expect("no error");
    engine.execute(at(2), &[put("a", "2")]);
    let persisted = engine.checkpoint().expect("no error");
    assert!(persisted.lsn <= Lsn(1));
    engine = place.reopen(engine);
    assert_eq!(read(engine.as_ref(), "a", APPLIED), if engine.is_persistent() { "1@1" } else { "-" });
}

pub fn sessions_are_in_the_checkpoint(place: &Place) {
    let mut engine = place.open();
    if !engine.is_persistent() {
        return;
    }
    let session = Mutation { key: keyed(space::SESSION, "one"), value: Some(Bytes::from_static(b"7")) };
    engine.execute(at(1), &[session.clone(), put("a", "1")]);
    engine.publish(Lsn(1)).expect("no error");
    let before = engine.digest(APPLIED).expect("no error");
    engine.checkpoint().expect("no error");
    engine = place.reopen(engine);
    assert_eq!(
        engine.get(&session.key, APPLIED).expect("no error"),
        Some((Lsn(1), session.value.expect("no error")))
    );
    assert_eq!(engine.digest(APPLIED).expect("no error"), before);
}

pub fn an_installed_state_is_the_senders(place: &Place) {
    let model = history();
    let base = model.log[39].0;
    let mut engine = place.open();
    engine.execute(at(1), &[put("leftover", "1")]);
    engine.publish(Lsn(1)).expect("no error");
    engine.checkpoint().expect("no error");
    engine.execute(at(2), &[put("tentative leftover", "2")]);
    engine.reset(base).expect("no error");
    for rows in model.rows(base.lsn).chunks(3) {
        engine.install(rows).expect("no error");
    }
    engine.finish_install().expect("no error");
    assert_eq!([engine.applied(), engine.published()], [base; 2]);
    assert_eq!(engine.read_floor(), base.lsn);
    if engine.is_persistent() {
        assert_eq!(engine.persisted(), base);
        engine = place.reopen(engine);
    }
    assert_eq!(engine.applied(), base);
    assert_eq!(all(engine.as_ref(), APPLIED, 100), model.rows(base.lsn));
    for (at, entry) in &model.log[40..] {
        engine.execute(*at, entry);
    }
    engine.publish(Lsn(50)).expect("no error");
    engine.checkpoint().expect("no error");
    assert_eq!(all(engine.as_ref(), APPLIED, 100), model.rows(Lsn(60)));
}

pub fn an_interrupted_installation_leaves_nothing(place: &Place) {
    let mut engine = place.open();
    engine.execute(at(1), &[put("leftover", "1")]);
    engine.publish(Lsn(1)).expect("no error");
    engine.checkpoint().expect("no error");
    engine.reset(at(9)).expect("no error");
    engine.install(&[Row { key: key("a"), lsn: Lsn(3), value: Bytes::from_static(b"3") }]).expect("no error");
    assert!(engine.get(&key("a"), APPLIED).is_err(), "half a state is not read");
    assert_eq!(engine.checkpoint().expect("no error"), Position::ZERO);
    engine = place.reopen(engine);
    assert_eq!([engine.applied(), engine.persisted()], [Position::ZERO; 2]);
    assert!(all(engine.as_ref(), APPLIED, 10).is_empty());
    engine.reset(at(2)).expect("no error");
    engine.finish_install().expect("no error");
    engine.execute(at(3), &[put("b", "3")]);
    assert_eq!(all(engine.as_ref(), APPLIED, 10).len(), 1);
}

pub fn an_installation_refuses_foreign_rows(place: &Place) {
    let mut engine = place.open();
    let row = |key: Bytes, lsn| Row { key, lsn: Lsn(lsn), value: Bytes::new() };
    for row in [row(key("a"), 10), row(Bytes::new(), 1), row(Bytes::from_static(&[space::POSITION]), 1)] {
        engine.reset(at(9)).expect("no error");
        assert!(matches!(engine.install(&[row]), Err(EngineError::Corrupt(_))));
    }
}

pub fn a_restart_without_a_checkpoint_finds_the_last_one(place: &Place) {
    let mut engine = place.open();
    let model = history();
    model.replay(engine.as_mut(), Lsn(30));
    engine.publish(Lsn(30)).expect("no error");
    let persisted = engine.checkpoint().expect("no error");
    // What is published and in no checkpoint is in the log alone.
    model.replay(engine.as_mut(), Lsn(60));
    engine.publish(Lsn(55)).expect("no error");
    assert_eq!(engine.persisted(), persisted);
    engine = place.reopen(engine);
    assert_eq!([engine.applied(), engine.published(), engine.persisted()], [persisted; 3]);
    assert_eq!(all(engine.as_ref(), APPLIED, 5), model.rows(persisted.lsn));
    model.replay(engine.as_mut(), Lsn(60));
    engine.publish(Lsn(60)).expect("no error");
    let persisted = engine.checkpoint().expect("no error");
    engine = place.reopen(engine);
    assert_eq!(engine.applied(), persisted);
    assert_eq!(all(engine.as_ref(), APPLIED, 5), model.rows(persisted.lsn));
}

/// Every file below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// The engine tells the damage, when it is opened or when it is read, or it is not damaged at all.
fn told(place: &Place, expected: &[Row], what: &str) {
    let engine = match place.subject.open(&place.path("engine")) {
        Ok(engine) => engine,
        Err(error) => return one_line(&error),
    };
    match engine.scan(&[], &[], APPLIED, usize::MAX, usize::MAX) {
        Ok(rows) => assert_eq!(rows, expected, "{what}, and nothing is said of it"),
        Err(error) => one_line(&error),
    }
}

pub fn damaged_files_are_refused_in_one_line(place: &Place) {
    let mut engine = place.open();
    let model = history();
    model.replay(engine.as_mut(), Lsn(60));
    engine.publish(Lsn(60)).expect("no error");
    let persisted = engine.checkpoint().expect("no error");
    drop(engine);
    let expected = model.rows(persisted.lsn);
    let dir = place.path("engine");
    // What an engine does with damage may change its directory: each time it gets another one.
    let kept: Vec<(PathBuf, Vec<u8>)> =
        files(&dir).into_iter().map(|path| (path.clone(), fs::read(path).expect("reads"))).collect();
    for (path, whole) in &kept {
        let half = &whole[..whole.len() / 2];
        let mut flipped = whole.clone();
        if let Some(byte) = flipped.get_mut(whole.len() / 2) {
            *byte ^= 0x10;
        }
        let garbage = [b"garbage ".repeat(40), whole.clone()].concat();
        for (how, bytes) in [("cut off", half), ("flipped", &flipped[..]), ("garbage", &garbage[..])] {
            fs::remove_dir_all(&dir).expect("removes");
            for (path, bytes) in &kept {
                fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("makes");
                fs::write(path, bytes).expect("writes");
            }
            fs::write(path, bytes).expect("writes");
            let name = path.strip_prefix(&dir).unwrap_or(path);
            told(place, &expected, &format!("{} is {how}", name.display()));
        }
    }
}
