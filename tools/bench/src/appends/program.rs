//! Another log, measured by a program of its own: so that its dependencies stay out of this project's.

use crate::error::{BenchError, During};
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that appends with so many waiting threads and prints what it did as one JSON object.
pub struct Program {
    program: PathBuf,
    folder: PathBuf,
    threads: u32,
    bytes: usize,
    fsyncs: Option<u64>,
}

impl Program {
    /// Runs `program` in rounds; its files go below `folder`.
    pub fn new(program: PathBuf, folder: PathBuf, threads: u32, bytes: usize) -> Program {
        Program { program, folder, threads, bytes, fsyncs: None }
    }

    fn failed(&self, why: &str) -> BenchError {
        BenchError::Wrong(format!("{}: {why}", self.program.display()))
    }

    fn figures(&self, text: &str) -> Option<Load> {
        let value: Value = serde_json::from_str(text.lines().last()?).ok()?;
        let mut load = Load::empty();
        load.ops = value["ops"].as_u64()?;
        load.elapsed = Duration::from_secs_f64(value["seconds"].as_f64()?);
        load.ended_cpu_us = value["cpu_us"].as_u64()?;
        for item in value["latencies_us"].as_array()? {
            note(&mut load.latencies, Duration::from_micros(item.as_u64()?));
        }
        Some(load)
    }
}

impl Subject for Program {
    fn label(&self) -> String {
        let name = self.program.file_name().map_or("program".into(), |name| name.to_string_lossy());
        format!("{name}, {} threads that wait for each append", self.threads)
    }

    fn sources(&self) -> Sources {
        Sources { wire: "no network", fsyncs: "not counted" }
    }

    fn way(&self) -> Way {
        Way::ONE_LOG
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        Ok(Counters { wire_bytes: Some(0), fsyncs: self.fsyncs, ..Counters::default() })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let output = Command::new(&self.program)
            .args(["--threads", &self.threads.to_string(), "--bytes", &self.bytes.to_string()])
            .args(["--seconds", &time.as_secs_f64().to_string()])
            .arg("--dir")
            .arg(&self.folder)
            .stderr(Stdio::inherit())
            .output()
            .during(&format!("{} cannot be run", self.program.display()))?;
        if !output.status.success() {
            return Err(self.failed(&format!("ended with {}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        self.figures(&text).ok_or_else(|| self.failed("printed no figures"))
    }
}
