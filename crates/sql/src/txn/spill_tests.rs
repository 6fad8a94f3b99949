//! What is spilled: it is seen as if it were in memory, read back whole or not at all, and bounded.

use super::buffer::aside;
use super::spill::*;
use super::{After, Arbiter, Buffer, Edit, Limit, NodeMemory, Room};
use bytes::Bytes;
use pg::Failure;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tempfile::TempDir;
use types::{Lsn, PartitionId, Position, TableId, Term};

const PETS: TableId = TableId(1);
const TOYS: TableId = TableId(2);
const HERE: PartitionId = PartitionId(7);

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Memory of a node that spills what is more than so many bytes.
fn node(directory: &TempDir, threshold: usize, limit: u64) -> Arc<NodeMemory> {
    let settings = SpillSettings { directory: directory.path().into(), threshold, limit };
    Arc::new(NodeMemory::default().spilling_to(settings))
}

fn edit(key: &str, existed: bool, after: Option<&str>) -> Edit {
    let after = after.map_or(After::Gone, |row| After::Row(Bytes::copy_from_slice(row.as_bytes())));
    Edit::new(Bytes::copy_from_slice(key.as_bytes()), existed, after)
}

/// Writes as a statement of a transaction does.
fn write(buffer: &mut Arc<Buffer>, table: TableId, edits: Vec<Edit>) -> Result<(), Failure> {
    run(async {
        let upper = Buffer::writable(buffer)?;
        upper.bring(table, &edits).await?;
        upper.take((table, HERE), edits, (Limit { rows: usize::MAX, bytes: usize::MAX }, None))?;
        Buffer::spill(buffer).await
    })
}

fn files(directory: &TempDir) -> usize {
    std::fs::read_dir(directory.path()).expect("a directory").count()
}

fn fresh(memory: &Arc<NodeMemory>) -> Arc<Buffer> {
    Arc::new(Buffer::with_room(Room::new(memory, 1 << 20)))
}

/// Everything that can be asked of a buffer.
fn shown(buffer: &Arc<Buffer>) -> Vec<String> {
    let mut all = Vec::new();
    for table in [PETS, TOYS] {
        let written = buffer.written(table).expect("it is read");
        all.extend(written.ops.iter().map(|op| format!("{table:?} {op:?}")));
        for (from, to) in [("", ""), ("k010", "k050"), ("k", "k100")] {
            let range = (Bytes::from(from), Bytes::from(to));
            let rows = buffer.range(table, (&range.0, &range.1), 70).expect("it is read");
            all.push(format!("{from}..{to} {rows:?} {:?}", buffer.grown(table, (&range.0, &range.1))));
        }
        for number in 0..130 {
            all.push(format!("{:?}", buffer.row((table, HERE), key(number).as_bytes())));
        }
    }
    all.push(format!("{:?}", buffer.unchanged(5)));
    all
}

fn key(number: u64) -> String {
    format!("k{number:03}")
}

#[test]
fn pr496_what_is_spilled_is_seen_as_if_it_were_in_memory() {
    let directory = TempDir::new().expect("a directory");
    for seed in 0..20_u64 {
        let memory = node(&directory, 600, NODE_SPILL_BYTES);
        let never = Arc::new(NodeMemory::default());
        let (mut spilled, mut plain) = (fresh(&memory), fresh(&never));
        let mut random = seed + 1;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for step in 0..60 {
            let table = if next(4) == 0 { TOYS } else { PETS };
            let mut edits = BTreeMap::new();
            for _ in 0..=next(12) {
                let key = key(next(120));
                let seen =
                    plain.own_edit(table, key.as_bytes()).expect("memory").map(|edit| edit.into_owned());
                let existed = seen.is_some_and(|edit| edit.existed || edit.after != After::Gone);
                let row = format!("row {step} {}", next(1_000));
                let after = match next(4) {
                    0 => After::Gone,
                    1 if existed => After::Same,
                    _ => After::Row(Bytes::from(row)),
                };
                let since = Some(Position::new(Term(3), Lsn(next(50))));
                let arbiter = if next(5) == 0 { Arbiter::Unique(9) } else { Arbiter::None };
                let existed = existed || next(3) == 0;
                let edit = Edit { since, arbiter, ..Edit::new(Bytes::from(key.clone()), existed, after) };
                edits.insert(key, edit);
            }
            let edits: Vec<Edit> = edits.into_values().collect();
            write(&mut spilled, table, edits.clone()).expect("room");
            write(&mut plain, table, edits).expect("room");
            assert_eq!(shown(&spilled), shown(&plain), "seed {seed}, step {step}");
        }
        assert!(memory.spilling().counters().times > 3, "seed {seed}");
        assert_eq!(never.spilling().counters().times, 0);
        // Who looks ahead sees what is below, and all of it can be brought back.
        let over = Arc::new(Buffer::over(&spilled));
        assert!(over.is_spilled());
        let ranges = |buffer: &Buffer| buffer.range(PETS, (&Bytes::new(), &Bytes::new()), usize::MAX);
        assert_eq!(run(aside(&over, ranges)), ranges(&plain));
        let back = Arc::new(spilled.brought_back().expect("it is read"));
        assert!(!back.is_spilled());
        assert_eq!(back.operations(), plain.operations());
        assert_eq!(files(&directory), 0, "the file has no name");
        drop((spilled, back, over));
        assert_eq!(memory.spilling().counters().used, 0);
    }
}

#[test]
fn memory_is_bounded_by_the_threshold_and_what_one_statement_writes() {
    let directory = TempDir::new().expect("a directory");
    let memory = node(&directory, 100_000, NODE_SPILL_BYTES);
    let mut buffer = fresh(&memory);
    let row = "x".repeat(1_000);
    for piece in 0..100 {
        let edits = (0..20).map(|at| edit(&format!("{piece:04}{at:04}"), false, Some(&row))).collect();
        write(&mut buffer, PETS, edits).expect("room");
    }
    let counters = memory.spilling().counters();
    assert!(counters.most_kept < 100_000 + 20 * 1_300, "{counters:?}");
    assert!(counters.used > 1_900_000 && counters.times >= 10, "{counters:?}");
    assert!(buffer.has_more(PETS, 1_999) && !buffer.has_more(PETS, 2_000));
    assert!(!buffer.fits_a_write(|_| false), "it is looked at before");
    drop(buffer);
    assert_eq!(memory.spilling().counters().used, 0);
}

#[test]
fn who_still_reads_keeps_the_file_as_it_is() {
    let directory = TempDir::new().expect("a directory");
    let memory = node(&directory, 100, NODE_SPILL_BYTES);
    let mut buffer = fresh(&memory);
    write(&mut buffer, PETS, vec![edit("a", false, Some("1"))]).expect("room");
    assert!(buffer.is_spilled());
    let reader = buffer.clone();
    write(&mut buffer, PETS, vec![edit("a", true, Some("2")), edit("b", false, Some("3"))]).expect("room");
    let row = |buffer: &Buffer, key: &str| buffer.row((PETS, HERE), key.as_bytes()).expect("it is read");
    let one = |row: &'static str| Some(Some(Bytes::from_static(row.as_bytes())));
    assert_eq!((row(&reader, "a"), row(&reader, "b")), (one("1"), None));
    assert_eq!((row(&buffer, "a"), row(&buffer, "b")), (one("2"), one("3")));
    let times = memory.spilling().counters().times;
    drop(reader);
    write(&mut buffer, PETS, vec![edit("c", false, Some("4"))]).expect("room");
    assert_eq!(memory.spilling().counters().times, times + 1);
    assert_eq!((row(&buffer, "a"), row(&buffer, "c")), (one("2"), one("4")));
}

#[test]
fn files_of_a_process_that_ended_as_it_made_them_are_removed() {
    let directory = TempDir::new().expect("a directory");
    for name in ["sql-spill-1234", "sql-spilt", "other"] {
        std::fs::write(directory.path().join(name), "").expect("written");
    }
    SpillSettings::within(directory.path().into()).remove_files().expect("it is there");
    assert_eq!(files(&directory), 2);
}

/// A store with two hundred records, and its connection damaged by this statement.
fn damaged(statement: &str) -> Store {
    let directory = TempDir::new().expect("a directory");
    let memory = node(&directory, 100, NODE_SPILL_BYTES);
    let mut store = Store::open(memory.spilling()).expect("a file");
    let rows = (0..2_000).map(|number| {
        let edit = edit(&format!("{number:04}"), false, Some("a row"));
        (edit.key.clone(), edit)
    });
    store.put(&[(PETS, rows.collect())].into()).expect("room");
    assert_eq!(store.execute(statement), 1, "{statement}");
    store
}

fn read_all(store: &Store) -> Result<usize, &'static str> {
    let all = store.range(PETS, (Bytes::new(), Bytes::new())).collect::<Result<Vec<_>, _>>();
    all.map(|all| all.len()).map_err(|failure| failure.code)
}

#[test]
fn pr495_what_is_spilled_is_read_back_whole_or_the_transaction_fails() {
    // Nothing is damaged by this: the row is what it was.
    assert_eq!(read_all(&damaged("UPDATE edits SET edit = edit WHERE key = x'30303037'")), Ok(2_000));
    let get = |store: &Store| store.get(PETS, &[Bytes::from_static(b"0007")]).map_err(|why| why.code);
    for statement in [
        // The content, the key, and the checksum of a record.
        "UPDATE edits SET edit = CAST(substr(edit, 1, length(edit) - 1) || 'z' AS BLOB) WHERE key = x'30303037'",
        "UPDATE edits SET key = x'3030303700' WHERE key = x'30303037'",
        "UPDATE edits SET crc = crc + 1 WHERE key = x'30303037'",
        // One that is missing, the last one among them, and one of another table.
        "DELETE FROM edits WHERE key = x'30303037'",
        "DELETE FROM edits WHERE key = x'31393939'",
        "UPDATE edits SET of = 2 WHERE key = x'30303037'",
        // One that is not the transaction's.
        "INSERT INTO edits SELECT of, x'39', edit, crc FROM edits WHERE key = x'30303037'",
    ] {
        let store = damaged(statement);
        assert_eq!(read_all(&store), Err("58030"), "{statement}");
        if statement.starts_with("UPDATE edits SET edit") || statement.contains("crc +") {
            assert_eq!(get(&store), Err("58030"), "{statement}");
        }
    }
}

#[test]
fn a_full_disk_and_a_full_share_end_the_transaction_and_nothing_is_left() {
    let directory = TempDir::new().expect("a directory");
    let row = "x".repeat(1_000);
    // A quarter of the limit is one transaction's, and all together have the limit.
    let memory = node(&directory, 100, 40_000);
    let fill = |buffer: &mut Arc<Buffer>| {
        for at in 0..100 {
            if let Err(failure) = write(buffer, PETS, vec![edit(&format!("{at:04}"), false, Some(&row))]) {
                return (at, failure.code);
            }
        }
        panic!("there was no limit");
    };
    let mut buffers: Vec<Arc<Buffer>> = (0..4).map(|_| fresh(&memory)).collect();
    assert_eq!(fill(&mut buffers[0]), (9, "53100"));
    // What it had cannot be read any more: nothing of it is ever committed.
    assert_eq!(buffers[0].operations().map_err(|why| why.code), Err("58030"));
    assert!(buffers[0].is_there().is_err() && !buffers[0].is_empty());
    assert!(!buffers[0].fits_a_write(|_| false));
    assert_eq!(memory.spilling().counters().used, 0, "its file is gone at once");
    for buffer in &mut buffers[1..] {
        write(buffer, PETS, (0..9).map(|at| edit(&format!("{at}"), false, Some(&row))).collect())
            .expect("room");
    }
    let mut more: Vec<Arc<Buffer>> = (0..2).map(|_| fresh(&memory)).collect();
    let nine = || (0..9).map(|at| edit(&format!("{at}"), false, Some(&row))).collect();
    write(&mut more[0], PETS, nine()).expect("room");
    assert_eq!(write(&mut more[1], PETS, nine()).map_err(|why| why.code), Err("53100"));
    drop(buffers);
    drop(more);
    assert_eq!(memory.spilling().counters().used, 0);
    // There is no directory.
    let gone = Arc::new(NodeMemory::default().spilling_to(SpillSettings {
        directory: directory.path().join("gone"),
        threshold: 100,
        limit: 40_000,
    }));
    assert_eq!(write(&mut fresh(&gone), PETS, nine()).map_err(|why| why.code), Err("58030"));
    assert_eq!(of_io(&io::Error::from(io::ErrorKind::StorageFull)).code, "53100");
    assert_eq!(of_sqlite(&rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(13), None)).code, "53100");
    assert_eq!(of_sqlite(&rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(10), None)).code, "58030");
}
