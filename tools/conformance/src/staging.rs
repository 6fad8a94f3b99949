//! Bulk loads of engines that offer them: staged beside everything else, part of the state at their entry and
//! not before, whole or not at all (PR-39).

use crate::{Model, Place, WAIT_LIMIT, all, at, delete, key, one_line, put};
use bytes::Bytes;
use std::time::Instant;
use types::bulk::{files_digest, load_key};
use types::engine::StagesLoads;
use types::{Component, Engine, LoadId, Lsn, Mutation, ReadAt, Staging};

const LOAD: LoadId = LoadId(LoadId::LEAST + 5);
/// Bytes of a piece.
const PIECE: usize = 300;
/// The entry of the load.
const AT: u64 = 31;

type Files = Vec<(Component, Bytes)>;

/// Rows that are there already, and new ones.
fn rows() -> Vec<(Bytes, Bytes)> {
    let names = (0..20).map(|n| format!("row {n:02}")).chain((0..20).map(|n| format!("sow {n:02}")));
    names.map(|name| (key(&name), Bytes::from(format!("loaded {name} ").repeat(9)))).collect()
}

fn named(files: &Files) -> Vec<Component> {
    files.iter().map(|(file, _)| *file).collect()
}

fn staging(engine: &mut dyn Engine) -> &mut dyn StagesLoads {
    engine.staging_mut().expect("it offers that")
}

/// An engine with thirty entries on disk, their log, and the files of a load; none if the engine stages no
/// loads.
fn filled(place: &Place) -> Option<(Box<dyn Engine>, Model, Files)> {
    let mut engine = place.open();
    engine.staging()?;
    let mut model = Model::default();
    for lsn in 1..AT {
        let change =
            vec![put(&format!("row {:02}", lsn % 25), "own"), delete(&format!("row {:02}", lsn % 7))];
        model.execute(engine.as_mut(), at(lsn), change);
    }
    engine.publish(Lsn(AT - 1)).expect("no error");
    engine.checkpoint().expect("no error");
    Some((engine, model, place.subject.load_files(&place.path("scratch"), LOAD, &rows())))
}

/// Stages what is wanted, and says how that ended.
fn stage(engine: &mut dyn Engine, files: &Files) -> Staging {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < WAIT_LIMIT, "it is not staged in time");
        match staging(engine).stage(LOAD, &named(files)).expect("no error") {
            Staging::Wants { file, from } => {
                let (content, from) = (&files[file as usize].1, from as usize);
                let piece = &content[from..content.len().min(from + PIECE)];
                let (file, from) = (file as usize, from as u64);
                let elsewhere = staging(engine).stage_piece(LOAD, file, from + 1, piece);
                assert!(!elsewhere.expect("no error"), "a piece is taken that is not the next one");
                assert!(staging(engine).stage_piece(LOAD, file, from, piece).expect("no error"));
            }
            Staging::Checking => std::thread::yield_now(),
            ended => return ended,
        }
    }
}

fn is_ready(staging: &Staging, files: &Files) {
    let Staging::Ready(ready) = staging else { panic!("it is not ready: {staging:?}") };
    assert_eq!((ready.digest, ready.rows), (files_digest(&named(files)), rows().len() as u64));
}

/// The entry that makes the load part of the state, and one above it.
fn execute(engine: &mut dyn Engine, model: &mut Model) {
    let own = vec![Mutation { key: load_key(LOAD), value: Some(Bytes::from_static(b"done")) }];
    staging(engine).execute_load(at(AT), LOAD, &own);
    let loaded = rows().into_iter().map(|(key, value)| Mutation { key, value: Some(value) });
    model.log.push((at(AT), loaded.chain(own).collect()));
    model.execute(engine, at(AT + 1), vec![put("sow 03", "newer"), delete("row 04")]);
}

pub fn a_load_is_visible_all_at_once(place: &Place) {
    let Some((mut engine, mut model, files)) = filled(place) else { return };
    is_ready(&stage(engine.as_mut(), &files), &files);
    model.same(engine.as_ref());
    execute(engine.as_mut(), &mut model);
    assert_eq!(engine.pending_load(), Some(at(AT)));
    let unloaded = |engine: &dyn Engine| {
        let rows = engine.scan(&key("sow"), &key("sox"), ReadAt::Applied, 100, usize::MAX).expect("reads");
        assert_eq!(
            rows.iter().map(|row| row.lsn).collect::<Vec<_>>(),
            [Lsn(AT + 1)],
            "it is not installed yet"
        );
        assert_eq!(all(engine, ReadAt::Lsn(Lsn(AT - 1)), 9), model.rows(Lsn(AT - 1)));
    };
    unloaded(engine.as_ref());
    engine.publish(Lsn(AT + 1)).expect("no error");
    engine.checkpoint().expect("no error");
    assert_eq!(engine.published(), at(AT - 1), "it is not allowed yet");
    unloaded(engine.as_ref());
    staging(engine.as_mut()).unstage(LOAD).expect("no error");
    staging(engine.as_mut()).allow_load(Lsn(AT));
    engine.checkpoint().expect("no error");
    assert_eq!((engine.published(), engine.persisted(), engine.pending_load()), (at(AT), at(AT), None));
    assert!(engine.loads().is_empty(), "it is no load any more");
    for lsn in [AT, AT + 1] {
        assert_eq!(all(engine.as_ref(), ReadAt::Lsn(Lsn(lsn)), 9), model.rows(Lsn(lsn)), "at {lsn}");
    }
    engine.publish(Lsn(AT + 1)).expect("no error");
    engine.checkpoint().expect("no error");
    engine = place.reopen(engine);
    model.same(engine.as_ref());
}

pub fn a_staged_load_outlives_a_restart_until_it_is_given_up(place: &Place) {
    let Some((mut engine, mut model, files)) = filled(place) else { return };
    assert!(engine.staged(LOAD).is_none() && engine.loads().is_empty());
    is_ready(&stage(engine.as_mut(), &files), &files);
    engine = place.reopen(engine);
    model.same(engine.as_ref());
    assert!(engine.staged(LOAD).is_some_and(|staged| staged.digest == files_digest(&named(&files))));
    let at_engine = engine.staging().expect("it offers that");
    assert_eq!((at_engine.staged_files(LOAD), at_engine.to_stage()), (named(&files), 0));
    let (lowest, highest) = at_engine.staged_keys(LOAD).expect("no error").expect("it is ready");
    let rows: Vec<Bytes> = rows().into_iter().map(|(key, _)| key).collect();
    assert_eq!((Some(&lowest), Some(&highest)), (rows.first(), rows.last()));
    for (index, (_, content)) in files.iter().enumerate() {
        let read = at_engine.read_staged(LOAD, index, 0, content.len() + 1).expect("no error");
        assert_eq!(read.as_ref(), Some(content), "file {index}");
    }
    assert_eq!(at_engine.read_staged(LOAD, files.len(), 0, 1).expect("no error"), None);
    staging(engine.as_mut()).unstage(LOAD).expect("no error");
    assert!(engine.staged(LOAD).is_none() && engine.loads().is_empty(), "it was given up");
    engine = place.reopen(engine);
    assert!(engine.loads().is_empty(), "it was given up");
    // It can be staged anew, and then be loaded by what a restart finds.
    is_ready(&stage(engine.as_mut(), &files), &files);
    engine = place.reopen(engine);
    execute(engine.as_mut(), &mut model);
    staging(engine.as_mut()).allow_load(Lsn(AT));
    engine.checkpoint().expect("no error");
    engine.publish(Lsn(AT + 1)).expect("no error");
    model.same(engine.as_ref());
}

pub fn a_discarded_load_leaves_the_state_as_it_was(place: &Place) {
    let Some((mut engine, mut model, files)) = filled(place) else { return };
    is_ready(&stage(engine.as_mut(), &files), &files);
    execute(engine.as_mut(), &mut model);
    engine.discard_above(at(AT - 1));
    model.log.retain(|(position, _)| position.lsn < Lsn(AT));
    assert_eq!(engine.pending_load(), None);
    for lsn in AT..AT + 3 {
        model.execute(engine.as_mut(), at(lsn), vec![put("sow 01", "another entry")]);
    }
    engine.publish(Lsn(AT + 2)).expect("no error");
    engine.checkpoint().expect("no error");
    model.same(engine.as_ref());
    engine = place.reopen(engine);
    model.same(engine.as_ref());
}

pub fn tainted_files_of_a_load_are_wanted_again(place: &Place) {
    let Some((mut engine, mut model, files)) = filled(place) else { return };
    let mut tainted = files.clone();
    let mut bytes = tainted[0].1.to_vec();
    bytes[1] ^= 1;
    tainted[0].1 = bytes.into();
    // The first bytes of the first file are wrong when they come for the first time.
    let (begun, mut times) = (Instant::now(), 0);
    let ended = loop {
        assert!(begun.elapsed() < WAIT_LIMIT, "it is not staged in time");
        match staging(engine.as_mut()).stage(LOAD, &named(&files)).expect("no error") {
            Staging::Wants { file, from } => {
                times += u32::from((file, from) == (0, 0));
                let content = if times > 1 { &files[file as usize].1 } else { &tainted[file as usize].1 };
                let piece = &content[from as usize..];
                assert!(
                    staging(engine.as_mut()).stage_piece(LOAD, file as usize, from, piece).expect("no error")
                );
            }
            Staging::Checking => std::thread::yield_now(),
            ended => break ended,
        }
    };
    assert_eq!(times, 2, "what was tainted is wanted again, once");
    is_ready(&ended, &files);
    model.same(engine.as_ref());
    execute(engine.as_mut(), &mut model);
    staging(engine.as_mut()).allow_load(Lsn(AT));
    engine.checkpoint().expect("no error");
    engine.publish(Lsn(AT + 1)).expect("no error");
    model.same(engine.as_ref());
}

pub fn a_file_that_is_none_is_refused_in_one_line(place: &Place) {
    let Some((mut engine, model, files)) = filled(place) else { return };
    let refused = |staging: Staging| match staging {
        Staging::Refused(why) => one_line(&why),
        other => panic!("it is not refused: {other:?}"),
    };
    let misnamed = vec![Component { number: 7, ..files[0].0 }];
    refused(staging(engine.as_mut()).stage(LOAD, &misnamed).expect("no error"));
    refused(staging(engine.as_mut()).stage(LOAD, &[]).expect("no error"));
    model.same(engine.as_ref());
    assert!(engine.loads().is_empty(), "nothing of it is kept");
}
