//! Appends to `raft-engine` from threads that each wait until their entry is synced; prints what they did as
//! one JSON object: `ops`, `seconds`, `cpu_us` and every latency in `latencies_us`.
//!
//! Each thread writes to a region of its own and compacts it as it goes, so that files can be purged.

use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An entry that carries its index in its first eight bytes.
#[derive(Clone)]
struct Numbered;

impl MessageExt for Numbered {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        u64::from_le_bytes(entry.value[..8].try_into().expect("entries are longer than eight bytes"))
    }
}

/// Bytes that the encoding adds: a tag and a length of two bytes.
const ENCODING: usize = 3;
/// A region is compacted each time it has grown by so many entries.
const KEEP: u64 = 20_000;

struct Options {
    threads: u64,
    bytes: usize,
    seconds: f64,
    dir: String,
}

fn main() {
    let options = match options() {
        Some(options) if options.bytes > ENCODING + 8 && options.seconds > 0.0 => options,
        _ => {
            eprintln!("usage: raft-engine-appends --threads N --bytes N --seconds S --dir DIR");
            std::process::exit(2);
        }
    };
    let config = Config { dir: options.dir.clone(), ..Config::default() };
    let engine = Arc::new(Engine::open(config).unwrap_or_else(|error| {
        eprintln!("the engine cannot be opened in {}: {error}", options.dir);
        std::process::exit(1);
    }));
    let cpu = cpu_us();
    let begun = Instant::now();
    let limit = Duration::from_secs_f64(options.seconds);
    let threads: Vec<_> = (0..options.threads)
        .map(|region| {
            let engine = engine.clone();
            let bytes = options.bytes;
            std::thread::spawn(move || append(&engine, region + 1, bytes, begun, limit))
        })
        .collect();
    let latencies: Vec<u32> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a writer panicked")).collect();
    let seconds = begun.elapsed().as_secs_f64();
    let list: Vec<String> = latencies.iter().map(u32::to_string).collect();
    println!(
        "{{\"ops\":{},\"seconds\":{seconds},\"cpu_us\":{},\"latencies_us\":[{}]}}",
        latencies.len(),
        cpu_us() - cpu,
        list.join(",")
    );
}

fn append(engine: &Engine, region: u64, bytes: usize, begun: Instant, limit: Duration) -> Vec<u32> {
    let mut latencies = Vec::new();
    let first = engine.last_index(region).unwrap_or(0) + 1;
    let mut entry = BytesValue { value: vec![0x5a; bytes - ENCODING], ..BytesValue::default() };
    for index in first.. {
        if begun.elapsed() >= limit {
            break;
        }
        let from = Instant::now();
        entry.value[..8].copy_from_slice(&index.to_le_bytes());
        let mut batch = LogBatch::default();
        batch.add_entries::<Numbered>(region, std::slice::from_ref(&entry)).expect("an entry can be encoded");
        engine.write(&mut batch, true).expect("the engine takes and syncs an entry");
        latencies.push(from.elapsed().as_micros() as u32);
        if index % KEEP == 0 {
            engine.compact_to(region, index);
            if region == 1 {
                engine.purge_expired_files().expect("files can be purged");
            }
        }
    }
    latencies
}

fn options() -> Option<Options> {
    let mut options = Options { threads: 16, bytes: 264, seconds: 3.0, dir: String::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        match name.as_str() {
            "--threads" => options.threads = value.parse().ok()?,
            "--bytes" => options.bytes = value.parse().ok()?,
            "--seconds" => options.seconds = value.parse().ok()?,
            "--dir" => options.dir = value,
            _ => return None,
        }
    }
    (!options.dir.is_empty()).then_some(options)
}

/// Processor time of this process, from `/proc/self/stat`: hundredths of a second.
fn cpu_us() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000
}
