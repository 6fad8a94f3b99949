//! Scripts with expected traces: `tests/scripts/*.txt`. `UPDATE=1 cargo test` writes what happens into them.
//!
//! A script is a list of cases: command lines, a line `----`, the expected trace, an empty line. Lines that
//! begin with `#` are comments. One command per line:
//!
//! ```text
//! append P COUNT EPOCH    entries of 100 bytes in one batch     cut P EPOCH LSN      base P EPOCH LSN CRC
//! truncate P BELOW        promise P EPOCH                       custom P KEY VALUE   forget P    repaired P
//! sync                    mark                                  reclaim              shutdown
//! crash                   nothing unsynced survives             restart              everything written survives
//! flip SEGMENT OFFSET     show P                                read P FROM BYTES    files
//! fail write|sync         the next one                          zero SEGMENT FROM LENGTH
//! ```

mod common;
use bytes::Bytes;
use common::*;
use std::fmt::Write;
use std::path::Path;
use types::{Epoch, Lsn, PartitionId, Position};
use understudy_wal::faulty::{Faults, MemFiles};
use understudy_wal::{Files, Log, Record};

struct Harness {
    files: MemFiles,
    log: Option<Log>,
}

impl Harness {
    fn new() -> Harness {
        let files = MemFiles::new();
        let (log, _) = open(&files);
        Harness { files, log: Some(log) }
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("a log that was not shut down")
    }

    fn run(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().expect("a verb");
        let rest: Vec<&str> = words.collect();
        let number =
            |at: usize| -> u64 { rest[at].parse().unwrap_or_else(|_| panic!("a number in `{line}`")) };
        let partition = rest.first().and_then(|word| word.strip_prefix('p')).and_then(|id| id.parse().ok());
        let partition = PartitionId(partition.unwrap_or(0));
        match verb {
            "append" => {
                let records = self.entries(partition, number(1), number(2));
                self.append(records)
            }
            "cut" => self.append(vec![Record::Truncate { partition, to: at(number(1), number(2)) }]),
            "base" => {
                let crc = number(3) as u32;
                self.append(vec![Record::Base { partition, at: at(number(1), number(2)), crc }])
            }
            "truncate" => self.append(vec![Record::Trim { partition, below: Lsn(number(1)) }]),
            "promise" => self.append(vec![Record::Promise { partition, epoch: Epoch(number(1)) }]),
            "custom" => {
                let value = Bytes::copy_from_slice(rest[2].as_bytes());
                self.append(vec![Record::Custom { partition, key: number(1) as u16, value }])
            }
            "forget" => self.append(vec![Record::Forget { partition }]),
            "repaired" => self.append(vec![Record::Repaired { partition }]),
            "read" => self.read(partition, Lsn(number(1)), number(2) as usize),
            "show" => self.show(partition),
            "flip" => {
                self.files.flip(&format!("{:08x}.log", number(0)), number(1), 1);
                "ok".to_owned()
            }
            "zero" => self.zero(&format!("{:08x}.log", number(0)), number(1), number(2)),
            "fail" => {
                let (write, sync) = (rest[0] == "write", rest[0] == "sync");
                let fault = |fails: bool| fails.then_some(0);
                let faults = Faults { fail_write: fault(write), fail_sync: fault(sync), ..Faults::default() };
                self.files.set_faults(faults);
                "ok".to_owned()
            }
            _ => self.whole(verb),
        }
    }

    /// Verbs without arguments.
    fn whole(&mut self, verb: &str) -> String {
        match verb {
            "sync" => match self.log().sync() {
                Ok(tokens) => {
                    tokens.iter().map(|(id, token)| format!("{id} durable {} ", token.get())).collect()
                }
                Err(error) => error.to_string(),
            },
            "mark" => said(self.log().mark()),
            "reclaim" => match self.log().reclaim() {
                Ok(count) => format!("{count} given back"),
                Err(error) => error.to_string(),
            },
            "shutdown" => said(self.log.take().expect("a log").shutdown()),
            "crash" => {
                self.files = self.files.crash(None);
                self.open()
            }
            "restart" => self.open(),
            "files" => {
                let files = &self.files;
                let line = |name: &String| {
                    format!("{name} {}\n", files.open(name).and_then(|f| f.size()).expect("is there"))
                };
                files.list().expect("lists").iter().map(line).collect()
            }
            _ => panic!("no verb `{verb}`"),
        }
    }

    fn entries(&mut self, partition: PartitionId, count: u64, epoch: u64) -> Vec<Record> {
        let (mut end, mut crc) = self.log().end(partition).unwrap_or((Position::ZERO, 0));
        let mut make = || {
            let entry = entry(partition, at(epoch, end.lsn.0 + 1), crc, &[end.lsn.0 as u8; 8]);
            (end, crc) = (entry.at(), entry.crc());
            Record::Entry(entry)
        };
        (0..count).map(|_| make()).collect()
    }

    fn append(&mut self, records: Vec<Record>) -> String {
        let result = self.log().append(&records);
        self.log().validate();
        said(result)
    }

    fn read(&mut self, partition: PartitionId, from: Lsn, bytes: usize) -> String {
        match self.log().read(partition, from, bytes) {
            Ok(entries) => entries.iter().map(|entry| format!("{} ", entry.at())).collect(),
            Err(error) => error.to_string(),
        }
    }

    fn show(&mut self, partition: PartitionId) -> String {
        let log = self.log();
        match (log.base(partition), log.end(partition), log.durable(partition)) {
            (Some((base, _)), Some((end, _)), Some(durable)) => {
                format!("above {base} to {end}, durable {}", durable.get())
            }
            _ => "unknown".to_owned(),
        }
    }

    fn zero(&mut self, name: &str, from: u64, length: u64) -> String {
        let contents = self.files.contents(name);
        for at in from..from + length {
            self.files.flip(name, at, contents[at as usize]);
        }
        "ok".to_owned()
    }

    fn open(&mut self) -> String {
        self.files.set_faults(Faults::default());
        let (log, recovered) = open(&self.files);
        self.log = Some(log);
        let mut out = format!("generation {}, goes on at {}", recovered.generation, recovered.end);
        let clean = if recovered.clean_shutdown { ", clean" } else { "" };
        writeln!(out, "{clean}, torn {} bytes", recovered.torn_bytes).expect("writes");
        for damage in &recovered.damage {
            let hit: Vec<_> = damage.partitions.iter().map(PartitionId::to_string).collect();
            writeln!(out, "damage: {damage}, hits {}", hit.join(" ")).expect("writes");
        }
        for (id, found) in &recovered.partitions {
            write!(out, "{id}: above {} to {} promised {}", found.base, found.end, found.promised)
                .expect("writes");
            for (key, value) in &found.custom {
                write!(out, " {key}={}", String::from_utf8_lossy(value)).expect("writes");
            }
            let damaged = if found.damaged.is_some() { " DAMAGED" } else { "" };
            let cut = if found.torn_end { " torn" } else { "" };
            writeln!(out, "{damaged}{cut}").expect("writes");
        }
        out
    }
}

fn said(result: Result<(), understudy_wal::LogError>) -> String {
    result.map_or_else(|error| error.to_string(), |()| "ok".to_owned())
}

/// Runs a script and returns it with what really happened.
fn run(script: &str) -> String {
    let mut harness = Harness::new();
    let mut out = String::new();
    let mut in_trace = false;
    for line in script.lines() {
        if line.is_empty() {
            in_trace = false;
            out.push('\n');
        } else if line == "----" {
            in_trace = true;
        } else if line.starts_with('#') && !in_trace {
            writeln!(out, "{line}").expect("writes");
        } else if !in_trace {
            let happened = harness.run(line);
            let happened = Some(happened.trim_end()).filter(|said| !said.is_empty()).unwrap_or("nothing");
            writeln!(out, "{line}\n----\n{happened}").expect("writes");
        }
    }
    out
}

#[test]
fn scripts_go_as_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    testing::expected::check_all(&folder, run);
}
