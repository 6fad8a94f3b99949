//! The log on its thread, on real files and on files that forget.

mod common;
use common::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use types::{Epoch, Lsn, PartitionId, Position};
use understudy_wal::faulty::{Faults, MemFiles};
use understudy_wal::writer::{SyncedBatch, Writer};
use understudy_wal::{Files, Log, LogError, Options, RealFiles, Record, VolatileFiles};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

fn start(files: Arc<dyn Files>, options: Options) -> (Writer, mpsc::Receiver<SyncedBatch>) {
    let (log, _) = Log::open(files, options).expect("opens");
    let (tell, told) = mpsc::channel();
    let writer = Writer::start(
        log,
        Box::new(move |batch| {
            // The test may have gone before the thread.
            let _ = tell.send(batch);
        }),
    );
    (writer, told)
}

/// Makes entries one after the other.
#[derive(Default)]
struct Maker {
    ends: BTreeMap<PartitionId, (Position, u32)>,
}

impl Maker {
    fn next(&mut self, id: PartitionId, payload: &[u8]) -> Record {
        let (end, crc) = self.ends.get(&id).copied().unwrap_or_default();
        let entry = entry(id, at(1, end.lsn.0 + 1), crc, payload);
        self.ends.insert(id, (entry.at(), entry.crc()));
        Record::Entry(entry)
    }
}

fn wait_for(told: &mpsc::Receiver<SyncedBatch>, ticket: u64) -> Vec<SyncedBatch> {
    let mut batches = Vec::new();
    loop {
        let batch = told.recv_timeout(WAIT_LIMIT).expect("the log's thread answers");
        let through = batch.through;
        batches.push(batch);
        if through >= ticket {
            return batches;
        }
    }
}

#[test]
fn what_is_submitted_is_synced_in_order_and_in_batches() {
    let directory = tempfile::tempdir().expect("a directory");
    let files: Arc<dyn Files> = Arc::new(RealFiles::open(directory.path()).expect("opens"));
    let options = Options { segment_bytes: 1 << 20, ..Options::default() };
    let (writer, told) = start(files.clone(), options.clone());
    let mut maker = Maker::default();
    let mut last = 0;
    for i in 0..5000u32 {
        let id = PartitionId(64 + i % 3);
        last = writer.submit(vec![maker.next(id, &[0; 900])]);
    }
    let batches = wait_for(&told, last);
    assert!(batches.len() < 3000, "{} batches", batches.len());
    assert!(batches.windows(2).all(|pair| pair[0].through < pair[1].through));
    assert!(batches.iter().all(|batch| batch.refused.is_empty() && batch.fatal.is_none()));
    let mut durable = BTreeMap::new();
    for (id, token) in batches.iter().flat_map(|batch| &batch.durable) {
        assert!(durable.insert(*id, token.get()).is_none_or(|before| before < token.get()));
    }
    for (id, (end, _)) in &maker.ends {
        assert_eq!(durable[id], *end);
        assert_eq!(writer.reader().read(*id, Lsn(1), 100).expect("reads").len(), 1);
    }
    writer.shutdown().expect("shuts down");
    let (_, recovered) = Log::open(files, options).expect("opens");
    assert!(recovered.clean_shutdown && recovered.damage.is_empty());
    assert_eq!(recovered.partitions.len(), 3);
}

#[test]
fn an_idle_log_is_marked() {
    let files = MemFiles::new();
    let (writer, told) = start(Arc::new(files.clone()), small());
    let mut maker = Maker::default();
    let first = writer.submit(vec![maker.next(P, b"one")]);
    let frames = wait_for(&told, first)[0].stats.frames;
    std::thread::sleep(Duration::from_millis(60));
    let second = writer.submit(vec![maker.next(P, b"two")]);
    assert!(wait_for(&told, second)[0].stats.frames >= frames + 2);
    drop(writer);
    let (_, recovered) = open(&files.crash(None));
    assert!(!recovered.clean_shutdown);
    assert_eq!(recovered.partitions[&P].end, at(1, 2));
}

#[test]
fn a_failed_sync_is_told_and_ends_the_thread() {
    let files = MemFiles::new();
    let (writer, told) = start(Arc::new(files.clone()), small());
    let mut maker = Maker::default();
    std::thread::sleep(Duration::from_millis(30));
    files.set_faults(Faults { fail_sync: Some(0), ..Faults::default() });
    writer.submit(vec![maker.next(P, b"one")]);
    let batch = told.recv_timeout(WAIT_LIMIT).expect("tells");
    assert!(matches!(batch.fatal, Some(LogError::Poisoned { .. })) && batch.durable.is_empty());
    assert!(writer.shutdown().is_err());
}

#[test]
fn a_full_log_refuses_entries_and_takes_promises() {
    let files = MemFiles::new();
    let options = Options { max_bytes: 32 * 1024, ..small() };
    let (writer, told) = start(Arc::new(files.clone()), options);
    let mut maker = Maker::default();
    let mut last = 0;
    for _ in 0..100 {
        last = writer.submit(vec![maker.next(P, &[0; 1000])]);
    }
    let promise = writer.submit(vec![Record::Promise { partition: Q, epoch: Epoch(3) }]);
    assert_eq!(promise, last + 1);
    let batches = wait_for(&told, promise);
    let refused: Vec<_> = batches.iter().flat_map(|batch| &batch.refused).collect();
    assert!(refused.len() > 60 && refused.len() < 90, "{} were refused", refused.len());
    assert!(refused.iter().all(|refused| refused.partitions == [P]));
    let (end, crc) = writer.reader().end(P).expect("known");
    assert_eq!(end.lsn.0 as usize, 100 - refused.len());
    // Room is made, and the owner goes on where the log ends.
    let reply = writer.submit(vec![Record::Trim { partition: P, below: end.lsn }]);
    wait_for(&told, reply);
    maker.ends.insert(P, (end, crc));
    let again = maker.next(P, b"again");
    let reply = writer.submit(vec![again.clone()]);
    let batches = wait_for(&told, reply);
    assert!(
        batches.iter().any(|batch| !batch.refused.is_empty()),
        "it may be what follows something refused"
    );
    let reply = writer.submit_again(vec![again]);
    let batches = wait_for(&told, reply);
    assert!(batches.iter().all(|batch| batch.refused.is_empty()));
    assert_eq!(writer.reader().end(P).expect("known").0.lsn.0, end.lsn.0 + 1);
}

#[test]
fn f06_a_log_that_refused_something_is_not_marked_clean() {
    for again in [false, true] {
        let files = MemFiles::new();
        let options = Options { max_bytes: 32 * 1024, ..small() };
        let (writer, told) = start(Arc::new(files.clone()), options.clone());
        let mut maker = Maker::default();
        let tickets: Vec<_> = (0..60).map(|_| writer.submit(vec![maker.next(P, &[0; 1000])])).collect();
        let batches = wait_for(&told, *tickets.last().expect("sixty"));
        assert!(batches.iter().any(|batch| !batch.refused.is_empty()));
        if again {
            let (end, crc) = writer.reader().end(P).expect("known");
            writer.submit(vec![Record::Trim { partition: P, below: end.lsn }]);
            maker.ends.insert(P, (end, crc));
            writer.submit_again(vec![maker.next(P, b"what was refused")]);
        }
        writer.shutdown().expect("closes");
        let (_, recovered) = Log::open(Arc::new(files.copy()), options).expect("opens");
        assert_eq!(recovered.clean_shutdown, again);
    }
}

#[test]
fn reading_goes_on_while_segments_are_given_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let files: Arc<dyn Files> = Arc::new(RealFiles::open(directory.path()).expect("opens"));
    let options = Options { segment_bytes: 64 * 1024, keep_bytes: 4096, ..Options::default() };
    let (writer, told) = start(files, options);
    let failures = Mutex::new(Vec::new());
    let mut maker = Maker::default();
    std::thread::scope(|scope| {
        let reader = writer.reader();
        let failures = &failures;
        let reading = scope.spawn(move || {
            for round in 0..3000u64 {
                let Some((base, _)) = reader.base(P) else { continue };
                let read = reader.read(P, Lsn(base.lsn.0 + 1 + round % 50), 5000);
                if let Err(understudy_wal::ReadError::Corrupt { what, .. }) = read {
                    failures.lock().expect("lock").push(what);
                }
            }
        });
        for i in 1..=2000u64 {
            let mut ticket = writer.submit(vec![maker.next(P, &[0; 400])]);
            if i % 50 == 0 {
                ticket = writer.submit(vec![Record::Trim { partition: P, below: Lsn(i - 20) }]);
            }
            if i % 10 == 0 {
                wait_for(&told, ticket);
            }
        }
        reading.join().expect("reads");
    });
    assert_eq!(*failures.lock().expect("lock"), Vec::<String>::new());
}

#[test]
fn volatile_files_forget_what_was_not_synced() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options { segment_bytes: 32 * 1024, ..Options::default() };
    let open = || {
        let files = Arc::new(VolatileFiles::open(directory.path()).expect("opens"));
        Log::open(files as Arc<dyn Files>, options.clone()).expect("opens")
    };
    let (mut log, _) = open();
    for _ in 0..100 {
        add(&mut log, P, 1, &[5; 1000]);
    }
    log.sync().expect("syncs");
    for _ in 0..3 {
        add(&mut log, P, 1, &[6; 1000]);
    }
    // Dropping the files is what a killed process does to them.
    drop(log);
    let (log, recovered) = open();
    assert_eq!(recovered.partitions[&P].end, at(1, 100));
    assert!(recovered.damage.is_empty());
    assert_eq!(all(&log, P).len(), 100);
}

#[test]
fn volatile_names_last_from_the_sync_of_the_directory_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = VolatileFiles::open(directory.path()).expect("opens");
    let a = files.create("a", 10).expect("creates");
    files.sync_dir().expect("syncs");
    a.write_at(2, b"xyz").expect("writes");
    files.create("b", 0).expect("creates");
    files.rename("a", "c").expect("renames");
    let mut buffer = [1; 10];
    assert_eq!(files.open("c").expect("opens").read_at(0, &mut buffer).expect("reads"), 10);
    assert_eq!(&buffer, b"\0\0xyz\0\0\0\0\0");
    drop((files, a));
    let files = VolatileFiles::open(directory.path()).expect("opens");
    assert_eq!(files.list().expect("lists"), vec!["a".to_owned()]);
    assert_eq!(files.open("a").expect("opens").read_at(0, &mut buffer).expect("reads"), 10);
    assert_eq!(buffer, [0; 10]);
    files.rename("a", "c").expect("renames");
    files.sync_dir().expect("syncs");
    drop(files);
    let files = VolatileFiles::open(directory.path()).expect("opens");
    assert_eq!(files.list().expect("lists"), vec!["c".to_owned()]);
}

#[test]
fn a_log_that_begins_where_another_one_ended_is_told_to_be_durable() {
    let files: Arc<dyn Files> = Arc::new(MemFiles::new());
    let (mut log, _) = Log::open(files, Options::default()).expect("opens");
    let mut maker = Maker::default();
    let entries = [maker.next(P, b"one"), maker.next(P, b"two")];
    let durable = |log: &mut Log| {
        log.sync().expect("syncs").into_iter().map(|(_, token)| token.get()).collect::<Vec<_>>()
    };
    log.append(&entries).expect("appends");
    assert_eq!(durable(&mut log), [at(1, 2)]);
    // What is behind it is another log, of which nothing was told yet.
    let (end, crc) = maker.ends[&P];
    log.append(&[Record::Base { partition: P, at: end, crc }]).expect("appends");
    assert_eq!(log.durable(P).map(|token| token.get()), Some(Position::ZERO));
    assert_eq!(durable(&mut log), [at(1, 2)]);
    assert_eq!(durable(&mut log), []);
}
