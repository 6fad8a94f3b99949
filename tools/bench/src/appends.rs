//! `bench log`: the write-ahead log against one bare thread that writes and syncs batches of the same sizes.

mod bare;
mod program;
mod writers;

pub use program::Program;
pub use writers::{LogUnderLoad, Manner};

use crate::error::BenchError;
use crate::options::Common;
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::interleave;
use bare::Bare;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Appends a second of `raft-engine` 0.4.2 with sixteen threads and 264 bytes each, as recorded in the
/// project's notes on a machine such as this.
const DOCUMENTED_RAFT_ENGINE: f64 = 29_800.0;

/// Lines of this bench.
pub const LOG_LINES: [&str; 3] = ["outstanding-64", "waiting-10", "waiting-16"];

/// Options of `bench log`.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Options of every bench.
    pub common: Common,
    /// `--raft-engine PROGRAM`: a program built from `tools/bench/raft-engine`, measured in the same rounds
    /// as the sixteen waiting threads. `None`: the documented figure stands in, labelled as such.
    pub raft_engine: Option<PathBuf>,
}

/// Runs `bench log`. Each line goes to `emit` as soon as it is there.
pub fn log(
    options: &LogOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    let common = &options.common;
    common.check(&LOG_LINES)?;
    let mut lines = Vec::new();
    let mut done = |line: Line, progress: &mut dyn Write| {
        let _ = writeln!(progress, "{}", line.in_words());
        emit(&line);
        lines.push(line);
    };
    if common.wants("outstanding-64") {
        let manner = Manner::Outstanding { appends: 64, partitions: 6 };
        done(against_bare(common, "outstanding-64", manner, 0.8, progress)?, progress);
    }
    if common.wants("waiting-10") {
        let manner = Manner::Waiting { threads: 10 };
        done(against_bare(common, "waiting-10", manner, 0.6, progress)?, progress);
    }
    if common.wants("waiting-16") {
        done(against_raft_engine(options, progress)?, progress);
    }
    plot::write(common, "log", &lines)?;
    Ok(lines)
}

fn against_bare(
    common: &Common,
    name: &str,
    manner: Manner,
    goal: f64,
    progress: &mut dyn Write,
) -> Result<Line, BenchError> {
    let _ = writeln!(progress, "log {name}");
    let folder = common.folder("log")?;
    let mut ours = LogUnderLoad::open(folder.path(), manner, 1_024, common.seed)?;
    let mut bare = Bare::open(folder.path(), ours.batches(), ours.entry_bytes())?;
    let series = interleave(&mut [&mut ours, &mut bare], common.plan(), progress)?;
    let workload = json!({
        "entry_payload_bytes": 1_024, "entry_bytes": ours.entry_bytes(), "manner": manner.to_string(),
        "base": "one thread that writes the batches recorded in the round before to a preallocated file, each with fdatasync",
    });
    let line = Line::new("log", name, workload, Machine::here(folder.path()));
    Ok(line.compared(&series[0], &series[1], Some(goal)))
}

fn against_raft_engine(options: &LogOptions, progress: &mut dyn Write) -> Result<Line, BenchError> {
    let (common, name) = (&options.common, "waiting-16");
    let _ = writeln!(progress, "log {name}");
    let folder = common.folder("log")?;
    let manner = Manner::Waiting { threads: 16 };
    let mut ours = LogUnderLoad::open(folder.path(), manner, 264, common.seed)?;
    let workload = json!({
        "entry_payload_bytes": 264, "entry_bytes": ours.entry_bytes(), "manner": manner.to_string(),
    });
    let line = Line::new("log", name, workload, Machine::here(folder.path()));
    let Some(program) = &options.raft_engine else {
        let series = interleave(&mut [&mut ours], common.plan(), progress)?;
        let label = "raft-engine 0.4.2, 16 threads, 264 bytes: documented figure, not measured in this run";
        return Ok(line.against_document(&series[0], label, DOCUMENTED_RAFT_ENGINE));
    };
    let mut theirs = Program::new(program.clone(), folder.path().join("raft-engine"), 16, 264);
    let series = interleave(&mut [&mut ours, &mut theirs], common.plan(), progress)?;
    Ok(line.compared(&series[0], &series[1], None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_gives_all_lines_with_figures() {
        let common = Common { seconds: 0.05, rounds: 2, ..Common::default() };
        let options = LogOptions { common, raft_engine: None };
        let mut emitted = Vec::new();
        let lines =
            log(&options, &mut std::io::sink(), &mut |line| emitted.push(line.clone())).expect("runs");
        assert_eq!(emitted, lines);
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, LOG_LINES);
        for line in &lines {
            let ours = line.ours.as_ref().expect("measured");
            assert!(ours.ops_s.median > 0.0 && line.rounds == 2);
            let batch = ours.commits_per_fsync.expect("the log counts its fsyncs");
            assert!((0.5..=64.0).contains(&batch), "{batch} appends per fsync");
            assert!(line.ratio.is_some() && line.base.is_some());
        }
        assert_eq!(lines[2].base.as_ref().map(|base| base.measured), Some(false));
    }
}
