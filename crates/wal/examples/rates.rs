//! How fast the log is: `cargo run --release -p understudy-wal --example rates [directory]`.
//!
//! Three loads, each with its entries kept outstanding through the log's thread: (a) 64 of 1 KB, (b) ten of 1
//! KB, (c) 16 waiting threads with entries of 264 bytes. After (a), a bare thread writes the batch sizes that
//! were recorded into a preallocated file with fdatasync, in turns with the log, so that the ratio does not
//! depend on the disk's mood. Then (d) fdatasync of 4 KB that overwrite zeros against 4 KB that make a file
//! longer: why segments are filled with zeros.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use types::{Lsn, PartitionId, Position, Term};
use understudy_wal::writer::Writer;
use understudy_wal::{Log, Options, RealFiles, Record};
use wire::entry::{Entry, HEADER_BYTES, Header, Kind};

/// Before a round counts: until the log has segments to recycle, as in a node that has run for a while.
const WARM_UP: Duration = Duration::from_secs(1);
const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 7;

fn main() {
    let root = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = root.join(format!("understudy-rates-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("the directory can be made");
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let logged = outstanding(&directory, 64, 1024);
        let bare = bare(&directory, &logged.batches);
        println!(
            "(a) 64 outstanding, 1 KB: {:.0}/s, {:.1} per sync, median {:.0} us, p99 {:.0} us; bare thread with the same \
             batches {:.0}/s; ratio {:.2}",
            logged.rate,
            logged.per_sync,
            logged.median,
            logged.p99,
            bare,
            logged.rate / bare
        );
        ratios.push(logged.rate / bare);
        let ten = outstanding(&directory, 10, 1024);
        println!(
            "(b) 10 waiting, 1 KB: {:.0}/s, {:.1} per sync, median {:.0} us",
            ten.rate, ten.per_sync, ten.median
        );
        let threads = threads(&directory, 16, 264);
        println!("(c) 16 waiting threads, 264 bytes: {threads:.0}/s");
        let (over, longer) = syncs(&directory);
        println!(
            "(d) 4 KB and fdatasync, median: over zeros {over:.0} us, at the end of a growing file {longer:.0} us"
        );
        eprintln!("round {} of {ROUNDS} done", round + 1);
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratio of (a) to the bare thread, median: {:.2}", ratios[ratios.len() / 2]);
    fs::remove_dir_all(&directory).expect("the directory can be removed");
}

/// Makes the entries of one partition.
struct Maker {
    partition: PartitionId,
    end: Position,
    crc: u32,
    payload: Vec<u8>,
}

impl Maker {
    fn new(partition: u32, length: usize) -> Maker {
        let payload = (0..length - HEADER_BYTES).map(|at| at as u8).collect();
        Maker { partition: PartitionId(partition), end: Position::ZERO, crc: 0, payload }
    }

    fn next(&mut self) -> Record {
        let at = Position::new(Term(1), self.end.lsn.next());
        let entry = Entry::encode(Header::new(Kind::Rows, self.partition, at, self.crc), &self.payload);
        (self.end, self.crc) = (entry.at(), entry.crc());
        Record::Entry(entry)
    }

    /// A truncation that leaves the last few thousand entries: the log recycles its segments as it does in a
    /// node.
    fn trim(&self) -> Record {
        let below = Lsn(self.end.lsn.0.saturating_sub(4000).max(1));
        Record::Trim { partition: self.partition, below }
    }
}

fn open(directory: &Path, name: &str) -> Log {
    let path = directory.join(name);
    if path.exists() {
        fs::remove_dir_all(&path).expect("an old log can be removed");
    }
    let files = RealFiles::open(path).expect("the directory can be made");
    Log::open(Arc::new(files), Options::default()).expect("the log opens").0
}

struct Figures {
    rate: f64,
    per_sync: f64,
    median: f64,
    p99: f64,
    /// Bytes of each batch.
    batches: Vec<usize>,
}

/// One thread keeps `count` entries of `length` bytes outstanding.
fn outstanding(directory: &Path, count: usize, length: usize) -> Figures {
    let (tell, told) = mpsc::channel();
    let writer = Writer::start(
        open(directory, "log"),
        Box::new(move |batch| {
            // The receiver stops listening when its time is up.
            let _ = tell.send((Instant::now(), batch.through, batch.stats));
        }),
    );
    let mut maker = Maker::new(64, length);
    let mut sent = BTreeMap::new();
    let mut times = Vec::new();
    let mut batches = Vec::new();
    let (mut bytes, mut since) = (0, 0u64);
    let mut start = Instant::now();
    let mut warm = false;
    let mut send = |sent: &mut BTreeMap<u64, Instant>| {
        let mut records = vec![maker.next()];
        since += 1;
        if since.is_multiple_of(4000) {
            records.push(maker.trim());
        }
        sent.insert(writer.submit(records), Instant::now());
    };
    (0..count).for_each(|_| send(&mut sent));
    while start.elapsed() < if warm { ROUND } else { WARM_UP + ROUND } {
        let (at, through, stats) = told.recv().expect("the log's thread answers");
        if !warm && start.elapsed() >= WARM_UP {
            (warm, start) = (true, Instant::now());
            times.clear();
            batches.clear();
        }
        batches.push((stats.bytes - bytes) as usize);
        bytes = stats.bytes;
        while let Some(first) = sent.first_entry().filter(|first| *first.key() <= through) {
            times.push(at.duration_since(first.remove()).as_secs_f64() * 1e6);
            send(&mut sent);
        }
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    let per_sync = times.len() as f64 / batches.len() as f64;
    drop(writer);
    times.sort_by(f64::total_cmp);
    Figures { rate, per_sync, median: times[times.len() / 2], p99: times[times.len() * 99 / 100], batches }
}

/// What the disk can do with these batches: entries of 1 KB per second.
fn bare(directory: &Path, batches: &[usize]) -> f64 {
    let path = directory.join("bare");
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path).expect("a file");
    let length = 64 << 20;
    let zeros = vec![0; 1 << 20];
    (0..64).for_each(|at| file.write_all_at(&zeros, at << 20).expect("writes"));
    file.sync_all().expect("syncs");
    let longest = batches.iter().copied().max().unwrap_or(0);
    let bytes: Vec<u8> = (0..longest).map(|at| at as u8).collect();
    let start = Instant::now();
    let (mut at, mut done) = (0, 0u64);
    for batch in batches {
        if at + *batch as u64 > length {
            at = 0;
        }
        file.write_all_at(&bytes[..*batch], at).expect("writes");
        file.sync_data().expect("syncs");
        at += *batch as u64;
        done += (*batch / 1024) as u64;
    }
    done as f64 / start.elapsed().as_secs_f64()
}

/// Median microseconds of a write of 4 KB with fdatasync: over zeros, and at the end of a file.
fn syncs(directory: &Path) -> (f64, f64) {
    const COUNT: u64 = 300;
    let bytes = [1; 4096];
    let create = |name| {
        let path = directory.join(name);
        fs::OpenOptions::new().write(true).create(true).truncate(true).open(path).expect("a file")
    };
    let (zeros, growing) = (create("zeros"), create("growing"));
    zeros.write_all_at(&vec![0; 4096 * COUNT as usize], 0).expect("writes");
    zeros.sync_all().expect("syncs");
    let timed = |file: &fs::File, at: u64| {
        let start = Instant::now();
        file.write_all_at(&bytes, at * 4096).expect("writes");
        file.sync_data().expect("syncs");
        start.elapsed().as_secs_f64() * 1e6
    };
    let (mut over, mut longer): (Vec<f64>, Vec<f64>) =
        (0..COUNT).map(|at| (timed(&zeros, at), timed(&growing, at))).unzip();
    over.sort_by(f64::total_cmp);
    longer.sort_by(f64::total_cmp);
    (over[over.len() / 2], longer[longer.len() / 2])
}

/// Threads that each wait for their entry before they send the next; a partition each.
fn threads(directory: &Path, count: u32, length: usize) -> f64 {
    type Waiting = BTreeMap<u64, mpsc::SyncSender<()>>;
    #[derive(Default)]
    struct Waiters {
        waiting: Waiting,
        through: u64,
    }
    let waiters = Arc::new(Mutex::new(Waiters::default()));
    let waking = waiters.clone();
    let writer = Writer::start(
        open(directory, "threads"),
        Box::new(move |batch| {
            let mut waiters = waking.lock().expect("lock");
            waiters.through = batch.through;
            let later = waiters.waiting.split_off(&(batch.through + 1));
            let done = std::mem::replace(&mut waiters.waiting, later);
            drop(waiters);
            for waiter in done.into_values() {
                // A thread whose time was up has gone.
                let _ = waiter.send(());
            }
        }),
    );
    let start = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let work = |id| {
            let (writer, waiters) = (&writer, &waiters);
            move || {
                let mut maker = Maker::new(id, length);
                let (wake, woken) = mpsc::sync_channel(1);
                let mut done = 0;
                while start.elapsed() < ROUND {
                    let ticket = writer.submit(vec![maker.next()]);
                    let mut waiters = waiters.lock().expect("lock");
                    if waiters.through < ticket {
                        waiters.waiting.insert(ticket, wake.clone());
                        drop(waiters);
                        woken.recv().expect("the log's thread answers");
                    }
                    done += 1;
                }
                done
            }
        };
        let threads: Vec<_> = (64..64 + count).map(|id| scope.spawn(work(id))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    });
    total as f64 / start.elapsed().as_secs_f64()
}
