//! What a replica that missed some updates lacks of the primary's files: one JSON object per kind of updates.
//!
//! `delta [MIB] [WINDOWS] [FLUSHES]`: a table of so many MiB is loaded in key order; then a hundredth of its
//! rows is updated in each window, one after the other or at random, flushed in so many times, and merged.
//! Shown are the bytes of files that one has to be sent who has those of before the window, in per cent of
//! all.

use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Instant;
use types::engine::ShipsFiles;
use types::engine::space;
use types::{Component, Engine, Lsn, Mutation, Position, Term};
use understudy_engine::LsmEngine;

const VALUE: usize = 1000;

struct Table {
    engine: LsmEngine,
    rows: u64,
    /// Rows in memory that are flushed at once.
    flush: u64,
    written: u64,
    random: u64,
    lsn: u64,
}

impl Table {
    fn put(&mut self, row: u64) {
        self.lsn += 1;
        let mut value = vec![0; VALUE];
        for chunk in value.chunks_mut(8) {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            chunk.copy_from_slice(&self.random.to_le_bytes()[..chunk.len()]);
        }
        let key = |space: u8, text: String| Bytes::from([&[space], text.as_bytes()].concat());
        let mutations = [
            Mutation { key: key(space::ROW, format!("{row:012}")), value: Some(value.into()) },
            // The session that wrote it.
            Mutation { key: key(space::SESSION, "00000001".into()), value: Some(vec![7; 60].into()) },
        ];
        self.engine.execute(Position::new(Term(1), Lsn(self.lsn)), &mutations);
        self.engine.raise_read_floor(Lsn(self.lsn));
        self.engine.publish(Lsn(self.lsn)).expect("publishes");
        self.written += 1;
        if self.written == self.flush {
            self.checkpoint();
        }
    }

    fn checkpoint(&mut self) {
        self.written = 0;
        self.engine.checkpoint().expect("flushes");
        self.engine.wait_for_merge().expect("merges");
    }

    fn files(&mut self) -> BTreeSet<Component> {
        let (pin, set) = self.engine.pin().expect("reads").expect("there are files");
        self.engine.unpin(pin);
        set.files.into_iter().collect()
    }
}

fn bytes<'a>(files: impl Iterator<Item = &'a Component>) -> u64 {
    files.map(|file| file.bytes).sum()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (mib, windows, flushes) = (number(256), number(12), number(1));
    let rows = (mib << 20) / (VALUE as u64 + 30);
    for kind in ["in order", "random"] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = LsmEngine::open(dir.path()).expect("opens");
        let load = rows.min((32 << 20) / VALUE as u64);
        let mut table =
            Table { engine, rows, flush: load, written: 0, random: 0x9E37_79B9_7F4A_7C15, lsn: 0 };
        let start = Instant::now();
        (0..rows).for_each(|row| table.put(row));
        table.checkpoint();
        let loaded = start.elapsed();
        let window = rows / 100;
        table.flush = window.div_ceil(flushes);
        let (mut lacking, mut next) = (Vec::new(), rows / 3);
        let start = Instant::now();
        for _ in 0..windows {
            let before = table.files();
            for _ in 0..window {
                next = match kind {
                    "random" => table.random % table.rows,
                    _ => (next + 1) % table.rows,
                };
                table.put(next);
            }
            if table.written > 0 {
                table.checkpoint();
            }
            let after = table.files();
            let share = 100.0 * bytes(after.difference(&before)) as f64 / bytes(after.iter()) as f64;
            lacking.push((share * 100.0).round() / 100.0);
        }
        let mean = lacking.iter().sum::<f64>() / lacking.len() as f64;
        let most = lacking.iter().copied().fold(0.0, f64::max);
        println!(
            "{{\"updates\":\"{kind}\",\"mib\":{mib},\"flushes\":{flushes},\"files\":{},\"load_seconds\":{:.2},\"update_seconds\":{:.2},\
             \"resident_mib\":{},\"mean_per_cent\":{mean:.2},\"most_per_cent\":{most:.2},\"per_cent\":{lacking:?}}}",
            table.files().len(),
            loaded.as_secs_f64(),
            start.elapsed().as_secs_f64(),
            resident_mib(),
        );
    }
}

/// The memory of this process, MiB; 0 where it cannot be told.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
