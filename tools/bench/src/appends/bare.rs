//! The base: one thread, one preallocated file, batches of recorded sizes, `fdatasync` after each.

use super::writers::Batches;
use crate::error::{BenchError, During};
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file's length: it is overwritten from the front once it is full, as a log's recycled segments are.
const FILE_BYTES: u64 = 64 << 20;

/// One thread without a log around it.
pub(crate) struct Bare {
    file: File,
    at: u64,
    batches: Batches,
    entry_bytes: usize,
    bytes: Vec<u8>,
    fsyncs: u64,
}

impl Bare {
    /// Preallocates the file: its bytes are written and synced, so that what overwrites them changes no
    /// metadata.
    pub fn open(folder: &Path, batches: Batches, entry_bytes: usize) -> Result<Bare, BenchError> {
        let path = folder.join("bare");
        let what = "the bare thread's file cannot be made";
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(path).during(what)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at).during(what)?;
        }
        file.sync_all().during(what)?;
        Ok(Bare { file, at: 0, batches, entry_bytes, bytes: Vec::new(), fsyncs: 0 })
    }

    fn write(&mut self, entries: u32) -> Result<(), BenchError> {
        let length = entries as usize * self.entry_bytes;
        if self.bytes.len() < length {
            self.bytes.resize(length, 0x5a);
        }
        if self.at + length as u64 > FILE_BYTES {
            self.at = 0;
        }
        let what = "the bare thread's file cannot be written";
        self.file.write_all_at(&self.bytes[..length], self.at).during(what)?;
        self.file.sync_data().during(what)?;
        self.at += length as u64;
        self.fsyncs += 1;
        Ok(())
    }
}

impl Subject for Bare {
    fn label(&self) -> String {
        "one bare thread, recorded batch sizes, fdatasync".into()
    }

    fn sources(&self) -> Sources {
        Sources { wire: "no network", fsyncs: "its own count" }
    }

    fn way(&self) -> Way {
        Way::ONE_LOG
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        Ok(Counters { wire_bytes: Some(0), fsyncs: Some(self.fsyncs), ..Counters::default() })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let batches = self.batches.recorded();
        if batches.is_empty() {
            return Err(BenchError::Wrong("no batch sizes were recorded".into()));
        }
        let mut load = Load::empty();
        let begun = Instant::now();
        for entries in batches.iter().cycle() {
            let from = Instant::now();
            self.write(*entries)?;
            // Each append of a batch waits for the whole batch.
            let took = from.elapsed();
            (0..*entries).for_each(|_| note(&mut load.latencies, took));
            load.ops += u64::from(*entries);
            load.elapsed = begun.elapsed();
            if load.elapsed >= time {
                break;
            }
        }
        Ok(load)
    }
}
