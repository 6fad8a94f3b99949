//! Bulk loads at the LSM engine (PR-39): staged beside everything else, part of the state at their entry and
//! not before, whole or not at all.

mod common;

use bytes::Bytes;
use common::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::bulk::{files_digest, load_key};
use types::engine::BackgroundCheckpoints;
use types::engine::ShipsFiles;
use types::engine::StagesLoads;
use types::engine::space;
use types::{Component, Engine, EngineError, Installation, LoadId, Lsn, Mutation, ReadAt, Staging};
use understudy_engine::LsmEngine;
use understudy_engine::lsm::write_load;

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const LOAD: LoadId = LoadId(LoadId::LEAST + 5);

type Files = Vec<(Component, PathBuf)>;

/// Every third row of `filled`, and as many new ones.
fn rows() -> Vec<(Vec<u8>, Vec<u8>)> {
    let name =
        |n: u64| if n.is_multiple_of(2) { format!("row {:04}", n * 3 / 2) } else { format!("sow {n:04}") };
    let mut rows: Vec<_> =
        (0..200).map(|n| (key(&name(n)).to_vec(), format!("loaded {n} ").repeat(20).into_bytes())).collect();
    rows.sort();
    rows
}

fn built(dir: &Path, load: LoadId) -> Files {
    write_load(&dir.join(format!("scratch {load}")), load, rows().into_iter()).unwrap()
}

fn named(files: &Files) -> Vec<Component> {
    files.iter().map(|(file, _)| *file).collect()
}

/// Stages what is wanted, `piece` bytes at a time, at most so many pieces.
fn stage(engine: &mut LsmEngine, load: LoadId, files: &Files, piece: usize, pieces: usize) -> Staging {
    let begun = Instant::now();
    let mut sent = 0;
    loop {
        assert!(begun.elapsed() < WAIT_LIMIT, "it is not staged in time");
        match engine.stage(load, &named(files)).unwrap() {
            Staging::Wants { .. } if sent == pieces => return Staging::Checking,
            Staging::Wants { file, from } => {
                let content = std::fs::read(&files[file as usize].1).unwrap();
                let end = content.len().min(from as usize + piece);
                let bytes = &content[from as usize..end];
                assert!(!engine.stage_piece(load, file as usize, from + 1, bytes).unwrap());
                assert!(engine.stage_piece(load, file as usize, from, bytes).unwrap());
                sent += 1;
            }
            Staging::Checking => std::thread::yield_now(),
            done => return done,
        }
    }
}

fn filled(engine: &mut LsmEngine, model: &mut Model) {
    for lsn in 1..=300u64 {
        let mut change = vec![put(&format!("row {lsn:04}"), &format!("value {lsn}"))];
        if lsn.is_multiple_of(7) {
            change.push(delete(&format!("row {:04}", lsn - 3)));
        }
        model.execute(engine, at(lsn), change);
        engine.publish(Lsn(lsn)).unwrap();
        if lsn == 200 {
            engine.checkpoint().unwrap();
        }
    }
}

/// The entry at 301 that makes the load part of the state, and what follows it.
fn marked(engine: &mut LsmEngine, model: &mut Model) {
    let own = vec![Mutation { key: load_key(LOAD), value: Some(Bytes::from_static(b"done")) }];
    engine.execute_load(at(301), LOAD, &own);
    let loaded = rows().into_iter().map(|(key, row)| Mutation { key: key.into(), value: Some(row.into()) });
    model.log.push((at(301), loaded.chain(own).collect()));
    for lsn in 302..=310 {
        model.execute(
            engine,
            at(lsn),
            vec![put(&format!("sow {:04}", lsn - 300), "newer"), delete("row 0003")],
        );
    }
}

fn same(engine: &LsmEngine, model: &Model, lsns: &[u64]) {
    for lsn in lsns {
        assert_eq!(all(engine, ReadAt::Lsn(Lsn(*lsn)), 37), model.rows(Lsn(*lsn)), "at {lsn}");
    }
}

#[test]
fn a_load_is_part_of_the_state_at_its_entry_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("engine");
    let (mut engine, mut model) = (LsmEngine::open(&path).unwrap(), Model::default());
    filled(&mut engine, &mut model);
    let files = built(dir.path(), LOAD);
    assert!(matches!(stage(&mut engine, LOAD, &files, 700, usize::MAX), Staging::Ready(ready)
        if ready.digest == files_digest(&named(&files)) && ready.rows == 200));
    same(&engine, &model, &[200, 300]);
    marked(&mut engine, &mut model);
    assert_eq!(engine.pending_load(), Some(at(301)));
    engine.publish(Lsn(310)).unwrap();
    assert_eq!(
        (engine.published(), engine.checkpoint().unwrap()),
        (at(300), at(300)),
        "it is not allowed yet"
    );
    same(&engine, &model, &[300]);
    engine.unstage(LOAD).unwrap();
    engine.allow_load(Lsn(301));
    let (wake, woken) = waker();
    engine.begin_checkpoint(&wake).unwrap();
    woken.recv_timeout(WAIT_LIMIT).expect("it is woken");
    engine.go_on_checkpoint().unwrap();
    assert_eq!((engine.published(), engine.persisted(), engine.pending_load()), (at(301), at(301), None));
    assert!(engine.loads().is_empty());
    same(&engine, &model, &[300, 301, 305, 310]);
    engine.publish(Lsn(310)).unwrap();
    engine.checkpoint().unwrap();
    same(&engine, &model, &[301, 310]);
    // Merges and a restart.
    for lsn in 311..=330 {
        model.execute(&mut engine, at(lsn), vec![put(&format!("row {:04}", lsn - 300), "last")]);
        engine.publish(Lsn(lsn)).unwrap();
        engine.raise_read_floor(Lsn(lsn));
        engine.checkpoint().unwrap();
        engine.wait_for_merge().unwrap();
    }
    same(&engine, &model, &[330]);
    drop(engine);
    let mut engine = LsmEngine::open(&path).unwrap();
    engine.verify().unwrap();
    same(&engine, &model, &[330]);
    assert!(matches!(
        engine.stage(LOAD, &named(&files)).unwrap(),
        Staging::Refused(_) | Staging::Wants { .. }
    ));
}

#[test]
fn a_restart_keeps_what_is_ready_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("engine");
    let mut engine = LsmEngine::open(&path).unwrap();
    let files = built(dir.path(), LOAD);
    assert_eq!(stage(&mut engine, LOAD, &files, 500, 3), Staging::Checking);
    drop(engine);
    let mut engine = LsmEngine::open(&path).unwrap();
    assert_eq!((engine.loads(), engine.staged(LOAD)), (vec![], None));
    assert!(matches!(stage(&mut engine, LOAD, &files, 1 << 20, usize::MAX), Staging::Ready(_)));
    drop(engine);
    let mut engine = LsmEngine::open(&path).unwrap();
    assert_eq!(engine.staged(LOAD).expect("it is durable").rows, 200);
    // A tail that was cut takes its entry with it, and a load that nobody wants goes.
    let mut model = Model::default();
    filled(&mut engine, &mut model);
    marked(&mut engine, &mut model);
    engine.discard_above(at(300));
    assert_eq!(engine.pending_load(), None);
    engine.unstage(LOAD).unwrap();
    assert!(engine.loads().is_empty() && !path.join("staged").join(LOAD.to_string()).exists());
    drop(engine);
    assert!(LsmEngine::open(&path).unwrap().loads().is_empty());
}

#[test]
fn a_crash_before_the_installation_leaves_it_to_be_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("engine");
    let (mut engine, mut model) = (LsmEngine::open(&path).unwrap(), Model::default());
    filled(&mut engine, &mut model);
    let files = built(dir.path(), LOAD);
    stage(&mut engine, LOAD, &files, 1 << 20, usize::MAX);
    marked(&mut engine, &mut model);
    engine.publish(Lsn(310)).unwrap();
    engine.checkpoint().unwrap();
    drop(engine);
    let mut engine = LsmEngine::open(&path).unwrap();
    assert_eq!(engine.persisted(), at(300));
    let log = std::mem::take(&mut model.log);
    model.log = log[..300].to_vec();
    marked(&mut engine, &mut model);
    engine.allow_load(Lsn(310));
    engine.publish(Lsn(310)).unwrap();
    assert_eq!(engine.checkpoint().unwrap(), at(301));
    same(&engine, &model, &[301, 310]);
}

#[test]
fn files_that_are_none_of_the_load_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = LsmEngine::open(&dir.path().join("engine")).unwrap();
    let files = built(dir.path(), LOAD);
    // Another load's files under this one's numbers.
    let other = built(dir.path(), LoadId(LoadId::LEAST + 6));
    let renamed: Files = other
        .iter()
        .enumerate()
        .map(|(index, (file, path))| {
            (Component { number: LOAD.first_file() + index as u64, ..*file }, path.clone())
        })
        .collect();
    assert!(matches!(stage(&mut engine, LOAD, &renamed, 1 << 20, usize::MAX), Staging::Refused(_)));
    assert!(engine.loads().is_empty());
    // Rows that are no users' rows.
    let reserved = LoadId(LoadId::LEAST + 7);
    let rows = vec![(vec![space::SESSION, 1], b"x".to_vec()), (key("a").to_vec(), b"x".to_vec())];
    let bad = write_load(&dir.path().join("reserved"), reserved, rows.into_iter()).unwrap();
    assert!(matches!(stage(&mut engine, reserved, &bad, 1 << 20, usize::MAX), Staging::Refused(_)));
    // No table at all, although its digest is right.
    let text = dir.path().join("text");
    std::fs::write(&text, b"no table").unwrap();
    let garbage = LoadId(LoadId::LEAST + 8);
    let file = Component {
        number: garbage.first_file(),
        bytes: 8,
        digest: xxhash_rust::xxh3::xxh3_128(b"no table"),
    };
    assert!(matches!(stage(&mut engine, garbage, &vec![(file, text)], 3, usize::MAX), Staging::Refused(_)));
    // A file that was tainted on the way is wanted again.
    let mut tainted = std::fs::read(&files[0].1).unwrap();
    tainted[10] ^= 1;
    assert!(matches!(engine.stage(LOAD, &named(&files)).unwrap(), Staging::Wants { file: 0, from: 0 }));
    assert!(engine.stage_piece(LOAD, 0, 0, &tainted).unwrap());
    assert!(matches!(stage(&mut engine, LOAD, &files, 1 << 20, usize::MAX), Staging::Ready(_)));
    assert!(matches!(engine.stage(LOAD, &named(&files)[..0]).unwrap(), Staging::Refused(_)));
}

#[test]
fn a_member_links_what_it_has_staged() -> Result<(), EngineError> {
    let dir = tempfile::tempdir().unwrap();
    let (mut source, mut model) = (LsmEngine::open(&dir.path().join("source"))?, Model::default());
    let mut target = LsmEngine::open(&dir.path().join("target"))?;
    filled(&mut source, &mut model);
    model.log.iter().for_each(|(at, change)| target.execute(*at, change));
    let files = built(dir.path(), LOAD);
    stage(&mut source, LOAD, &files, 1 << 20, usize::MAX);
    stage(&mut target, LOAD, &files, 1 << 20, usize::MAX);
    marked(&mut source, &mut model);
    let tail: Vec<_> = model.log[300..].to_vec();
    target.execute_load(tail[0].0, LOAD, &[Mutation { key: load_key(LOAD), value: Some("done".into()) }]);
    tail[1..].iter().for_each(|(at, change)| target.execute(*at, change));
    source.publish(Lsn(300))?;
    source.allow_load(Lsn(301));
    source.checkpoint()?;
    let (pin, set) = source.pin()?.expect("it has files");
    assert_eq!(set.at, at(301));
    target.publish(Lsn(310))?;
    assert_eq!(target.published(), at(300));
    assert!(target.receive(set.clone())?);
    let loaded: u64 = files.iter().map(|(file, _)| file.bytes).sum();
    let lacks: u64 =
        target.missing().iter().map(|missing| set.files[missing.file].bytes - missing.from).sum();
    assert_eq!(lacks, set.bytes() - loaded);
    while let Some(missing) = target.missing().first().copied() {
        let bytes = source.read_component(pin, missing.file, missing.from, 1 << 20)?.expect("it is pinned");
        assert!(target.receive_piece(missing.file, missing.from, &bytes)?);
    }
    let (wake, woken) = waker();
    let mut stands = target.begin_installation(&wake)?;
    while stands == Installation::Waiting {
        woken.recv_timeout(WAIT_LIMIT).expect("it is woken");
        stands = target.go_on_installation()?;
    }
    assert_eq!((stands, target.pending_load(), target.published()), (Installation::Done, None, at(301)));
    assert!(target.loads().is_empty());
    same(&target, &model, &[301, 310]);
    target.publish(Lsn(310))?;
    source.publish(Lsn(310))?;
    assert_eq!(target.digest(ReadAt::Lsn(Lsn(310)))?, source.digest(ReadAt::Lsn(Lsn(310)))?);
    Ok(())
}
