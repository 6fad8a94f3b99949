//! What one entry costs, engine by engine: one core, 1 KB values, printed in nanoseconds per operation.

use bytes::Bytes;
use std::time::{Duration, Instant};
use types::engine::{Checkpoint, Wake, space};
use types::random::Random;
use types::{Engine, Lsn, Mutation, Position, ReadAt, Term};
use understudy_engine::{LsmEngine, MemoryEngine, Overlay};

/// Keys in the engine.
const KEYS: u64 = 200_000;
/// Operations measured.
const OPERATIONS: u64 = 400_000;

fn key(number: u64) -> Bytes {
    let mut key = vec![space::ROW];
    key.extend_from_slice(format!("user{number:012}").as_bytes());
    key.into()
}

fn write(engine: &mut dyn Engine, number: u64, value: &Bytes) -> Lsn {
    let lsn = engine.applied().lsn.next();
    engine.execute(Position::new(Term(1), lsn), &[Mutation { key: key(number), value: Some(value.clone()) }]);
    lsn
}

fn report(engine: &str, what: &str, operations: u64, start: Instant) {
    let each = start.elapsed().as_nanos() as f64 / operations as f64;
    println!("{engine:<8} {what:<44} {each:>8.0} ns");
}

/// What the overlay alone costs, on keys that are made beforehand, with `behind` entries waiting to be
/// published.
fn measure_overlay(behind: u64) {
    let value = Bytes::from(vec![7; 1024]);
    let mut random = Random::new(7);
    let changes: Vec<_> = (0..10_000)
        .map(|_| [Mutation { key: key(random.below(KEYS)), value: Some(value.clone()) }])
        .collect();
    let mut overlay = Overlay::new(Position::ZERO);
    let start = Instant::now();
    for (lsn, change) in (1..=OPERATIONS).zip(changes.iter().cycle()) {
        overlay.insert(Position::new(Term(1), Lsn(lsn)), change);
        overlay.drain(Lsn(lsn.saturating_sub(behind)), |_, _, _| {});
    }
    report("overlay", &format!("insert + drain, {behind} entries waiting"), OPERATIONS, start);
}

/// Runs every measurement on one engine.
fn measure(name: &str, engine: &mut dyn Engine) {
    let value = Bytes::from(vec![7; 1024]);
    let mut random = Random::new(7);
    let start = Instant::now();
    for number in 0..KEYS {
        let lsn = write(engine, number, &value);
        engine.raise_read_floor(lsn);
        engine.publish(lsn).expect("publish");
    }
    report(name, "load in key order", KEYS, start);

    let start = Instant::now();
    for _ in 0..OPERATIONS {
        let lsn = write(engine, random.below(KEYS), &value);
        engine.raise_read_floor(lsn);
        engine.publish(lsn).expect("publish");
    }
    report(name, "execute + publish, floor at the entry", OPERATIONS, start);

    let start = Instant::now();
    for _ in 0..OPERATIONS {
        let lsn = write(engine, random.below(KEYS), &value);
        engine.publish(lsn).expect("publish");
        engine.raise_read_floor(lsn);
    }
    report(name, "execute + publish, floor raised afterwards", OPERATIONS, start);

    let start = Instant::now();
    for _ in 0..OPERATIONS / 100 {
        let mut lsn = Lsn::ZERO;
        for _ in 0..100 {
            lsn = write(engine, random.below(KEYS), &value);
        }
        engine.raise_read_floor(lsn);
        engine.publish(lsn).expect("publish");
    }
    report(name, "execute, published by the hundred", OPERATIONS, start);

    let mut bytes = 0;
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        let row = engine.get(&key(random.below(KEYS)), ReadAt::Applied).expect("get");
        bytes += row.map_or(0, |(_, value)| value.len());
    }
    report(name, "get", OPERATIONS, start);
    assert_eq!(bytes as u64, OPERATIONS * 1024);

    let start = Instant::now();
    engine.digest(ReadAt::Applied).expect("digest");
    report(name, "scan and digest, per row", KEYS, start);

    let start = Instant::now();
    engine.checkpoint().expect("checkpoint");
    println!("{name:<8} checkpoint of {KEYS} rows at once: {:?}", start.elapsed());
    // The rows that the LSM engine has in memory again.
    for _ in 0..KEYS {
        let lsn = write(engine, random.below(KEYS), &value);
        engine.publish(lsn).expect("publish");
    }
    measure_beside(name, engine);
}

/// How long a driver is held up by a checkpoint beside its other work.
fn measure_beside(name: &str, engine: &mut dyn Engine) {
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    let (wake, woken) = std::sync::mpsc::channel();
    let wake = std::sync::Mutex::new(wake);
    let wake: Wake = std::sync::Arc::new(move || {
        // Nobody may be there to be woken any more.
        let _ = wake.lock().expect("a lock").send(());
    });
    let mut call = Instant::now();
    let mut stands = engine.begin_checkpoint(&wake).expect("checkpoint");
    loop {
        longest = longest.max(call.elapsed());
        match stands {
            Checkpoint::Idle => break,
            Checkpoint::Ready => {}
            Checkpoint::Waiting => woken.recv().expect("it is woken"),
        }
        call = Instant::now();
        stands = engine.go_on_checkpoint().expect("checkpoint");
    }
    println!("{name:<8} checkpoint beside: {:?}, longest call {longest:?}", start.elapsed());
}

fn main() {
    for behind in [0, 100, 5_000] {
        measure_overlay(behind);
    }
    measure("volatile", &mut MemoryEngine::volatile());
    let dir = tempfile::tempdir().expect("a temporary directory");
    measure("memory", &mut MemoryEngine::open(&dir.path().join("memory")).expect("open"));
    measure("lsm", &mut LsmEngine::open(&dir.path().join("lsm")).expect("open"));
}
