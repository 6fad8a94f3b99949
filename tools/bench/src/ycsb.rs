//! `bench ycsb`: policies against each other on one running cluster, and a durable table against the log
//! alone.

use crate::appends::{LogUnderLoad, Manner};
use crate::cluster::{Ours, Shared, TableKind, TableUnderLoad, Target};
use crate::error::BenchError;
use crate::generate::{Distribution, Workload};
use crate::options::{Common, LoadSize};
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::{Subject, interleave};
use serde_json::{Value, json};
use std::io::Write;
use types::{EngineKind, LogKind, Policy};

/// Lines of this bench with their goals, for each share of updates: main-memory tables with three copies
/// against one copy.
const LADDER: [(&str, f64); 2] = [("semi", 0.55), ("async", 0.70)];
/// The least share of what ten waiting writers reach on the log alone that a durable table should reach.
const DURABLE_GOAL: f64 = 0.5;

/// Names of lines, without the share of updates that follows the first ones.
pub const YCSB_LINES: [&str; 5] =
    ["semi-vs-none", "async-vs-none", "durable-lsm-vs-log", "durable-memory-vs-log", "custom"];

/// Options of `bench ycsb`.
#[derive(Clone, Debug)]
pub struct YcsbOptions {
    /// Options of every bench.
    pub common: Common,
    /// Which cluster.
    pub target: Target,
    /// How large the load is.
    pub load: LoadSize,
    /// `--updates P,P,...`: shares of updates in percent.
    pub updates: Vec<u8>,
    /// `--distribution uniform|zipfian`.
    pub distribution: Distribution,
    /// `--factor N`. This and the next three: if any is given, one line `custom-uP` for each share of updates
    /// replaces the comparisons, with the table's defaults for what is not given.
    pub factor: Option<u8>,
    /// `--policy NAME`.
    pub policy: Option<String>,
    /// `--engine lsm|memory`.
    pub engine: Option<EngineKind>,
    /// `--log disk|memory`.
    pub log: Option<LogKind>,
}

impl Default for YcsbOptions {
    fn default() -> YcsbOptions {
        YcsbOptions {
            common: Common::default(),
            target: Target::default(),
            load: LoadSize::default(),
            updates: vec![0, 50, 100],
            distribution: Distribution::Uniform,
            factor: None,
            policy: None,
            engine: None,
            log: None,
        }
    }
}

impl YcsbOptions {
    fn check(&self) -> Result<(), BenchError> {
        self.common.check(&YCSB_LINES)?;
        let usage = |sentence: &str| Err(BenchError::Usage(sentence.into()));
        self.load.check()?;
        if self.updates.is_empty() || self.updates.iter().any(|percent| *percent > 100) {
            return usage("shares of updates are percentages, 0 to 100");
        }
        Ok(())
    }

    /// The table that the options ask for, if they ask for one.
    fn custom(&self) -> Result<Option<TableKind>, BenchError> {
        if self.factor.is_none() && self.policy.is_none() && self.engine.is_none() && self.log.is_none() {
            return Ok(None);
        }
        let log = self.log.unwrap_or(LogKind::Disk);
        let memory = log == LogKind::Memory;
        let engine = self.engine.unwrap_or(if memory { EngineKind::Memory } else { EngineKind::Lsm });
        let policy = self.policy.clone().unwrap_or_else(|| if memory { "semi" } else { "durable" }.into());
        let factor = self.factor.unwrap_or(if policy == "none" { 1 } else { 3 });
        let checked = Policy::preset(&policy, factor, log).and_then(|policy| policy.check(engine));
        checked.map_err(|error| BenchError::Usage(error.to_string()))?;
        Ok(Some(TableKind { policy, factor, engine, log, partitions: self.load.partitions }))
    }

    fn workload(&self, update_percent: u8) -> Workload {
        Workload { distribution: self.distribution, ..self.load.workload(update_percent, self.common.seed) }
    }

    fn in_json(&self, update_percent: u8) -> Value {
        json!({
            "records": self.load.records, "value_bytes": self.load.value_bytes, "update_percent": update_percent,
            "distribution": self.distribution.to_string(), "clients": self.load.clients, "partitions": self.load.partitions,
        })
    }
}

/// What a run carries along.
struct Run<'a> {
    options: &'a YcsbOptions,
    shared: Shared,
    machine: Machine,
    progress: &'a mut dyn Write,
    emit: &'a mut dyn FnMut(&Line),
    lines: Vec<Line>,
}

impl Run<'_> {
    fn done(&mut self, line: Line) {
        let _ = writeln!(self.progress, "{}", line.in_words());
        (self.emit)(&line);
        self.lines.push(line);
    }

    fn line(&self, name: &str, update_percent: u8) -> Line {
        Line::new("ycsb", name, self.options.in_json(update_percent), self.machine.clone())
    }

    fn table(&self, kind: &TableKind, update_percent: u8) -> Result<TableUnderLoad, BenchError> {
        TableUnderLoad::new(
            &self.shared,
            kind,
            &self.options.workload(update_percent),
            self.options.load.clients,
        )
    }

    /// Main-memory tables: three copies under two policies against one copy.
    fn ladder(&mut self) -> Result<(), BenchError> {
        let partitions = self.options.load.partitions;
        let updates = self.options.updates.clone();
        let name = |policy: &str, percent: u8| format!("{policy}-vs-none-u{percent}");
        let wanted: Vec<(&str, f64)> = LADDER
            .into_iter()
            .filter(|(policy, _)| {
                updates.iter().any(|percent| self.options.common.wants(&name(policy, *percent)))
            })
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let _ = writeln!(self.progress, "ycsb: main-memory tables");
        let mut base = self.table(&TableKind::main_memory("none", 1, partitions), 100)?;
        let kinds = wanted.iter().map(|(policy, _)| TableKind::main_memory(policy, 3, partitions));
        let mut tables = kinds.map(|kind| self.table(&kind, 100)).collect::<Result<Vec<_>, _>>()?;
        for percent in updates {
            if !wanted.iter().any(|(policy, _)| self.options.common.wants(&name(policy, percent))) {
                continue;
            }
            let workload = self.options.workload(percent);
            let mut subjects: Vec<&mut dyn Subject> = Vec::new();
            for table in std::iter::once(&mut base).chain(&mut tables) {
                table.set_workload(&workload);
                subjects.push(table);
            }
            let series = interleave(&mut subjects, self.options.common.plan(), self.progress)?;
            for ((policy, goal), ours) in wanted.iter().zip(&series[1..]) {
                if self.options.common.wants(&name(policy, percent)) {
                    let line = self.line(&name(policy, percent), percent);
                    self.done(line.compared(ours, &series[0], Some(*goal)));
                }
            }
        }
        Ok(())
    }

    /// Durable tables with three copies against ten waiting writers on one log.
    fn durable(&mut self) -> Result<(), BenchError> {
        let common = &self.options.common;
        let names = [("durable-lsm-vs-log", EngineKind::Lsm), ("durable-memory-vs-log", EngineKind::Memory)];
        let wanted: Vec<(&str, EngineKind)> =
            names.into_iter().filter(|(name, _)| common.wants(name)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let _ = writeln!(self.progress, "ycsb: durable tables and the log alone");
        let kinds =
            wanted.iter().map(|(_, engine)| TableKind::durable(*engine, self.options.load.partitions));
        let mut tables = kinds.map(|kind| self.table(&kind, 100)).collect::<Result<Vec<_>, _>>()?;
        let folder = common.folder("log")?;
        let manner = Manner::Waiting { threads: self.options.load.clients };
        let mut log = LogUnderLoad::open(folder.path(), manner, self.options.load.value_bytes, common.seed)?;
        let mut subjects: Vec<&mut dyn Subject> = vec![&mut log];
        subjects.extend(tables.iter_mut().map(|table| table as &mut dyn Subject));
        let series = interleave(&mut subjects, common.plan(), self.progress)?;
        for ((name, _), ours) in wanted.iter().zip(&series[1..]) {
            let line = self.line(name, 100);
            self.done(line.compared(ours, &series[0], Some(DURABLE_GOAL)));
        }
        Ok(())
    }

    fn custom(&mut self, kind: &TableKind) -> Result<(), BenchError> {
        let mut table = self.table(kind, 100)?;
        for percent in self.options.updates.clone() {
            table.set_workload(&self.options.workload(percent));
            let series = interleave(&mut [&mut table], self.options.common.plan(), self.progress)?;
            let line = self.line(&format!("custom-u{percent}"), percent);
            self.done(line.alone(&series[0]));
        }
        Ok(())
    }
}

/// Runs `bench ycsb`. Each line goes to `emit` as soon as it is there.
pub fn ycsb(
    options: &YcsbOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    options.check()?;
    let custom = options.custom()?;
    let _ = writeln!(progress, "ycsb: starting");
    let shared = Ours::start(&options.common, &options.target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let mut run = Run { options, shared, machine, progress, emit, lines: Vec::new() };
    match custom {
        Some(kind) => run.custom(&kind)?,
        None => {
            run.ladder()?;
            run.durable()?;
        }
    }
    plot::write(&options.common, "ycsb", &run.lines)?;
    Ok(run.lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_ones_own_has_the_defaults_for_the_rest() {
        assert_eq!(YcsbOptions::default().custom().expect("fine"), None);
        let durable = YcsbOptions { factor: Some(2), ..YcsbOptions::default() };
        let kind = durable.custom().expect("fine").expect("asked for");
        assert_eq!(kind.in_words(), "durable factor 2, engine lsm, log disk");
        let memory = YcsbOptions { log: Some(LogKind::Memory), ..YcsbOptions::default() };
        let kind = memory.custom().expect("fine").expect("asked for");
        assert_eq!(kind.in_words(), "semi factor 3, engine memory, log memory");
        let alone = YcsbOptions { policy: Some("none".into()), ..YcsbOptions::default() };
        assert_eq!(alone.custom().expect("fine").map(|kind| kind.factor), Some(1));
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_starts() {
        let refused = |options: YcsbOptions| {
            let ended = ycsb(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
            assert_eq!(ended.exit_status(), 2);
            ended.to_string()
        };
        let default = YcsbOptions::default;
        let policy = refused(YcsbOptions { policy: Some("triplet".into()), ..default() });
        assert!(policy.contains("not available yet"), "{policy}");
        assert!(refused(YcsbOptions { updates: vec![101], ..default() }).contains("percentages"));
        assert!(
            refused(YcsbOptions { load: LoadSize { clients: 0, ..LoadSize::default() }, ..default() })
                .contains("at least 1")
        );
    }
}
