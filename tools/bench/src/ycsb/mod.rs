//! `bench ycsb`: policies against each other on one running cluster, and a durable table against the log
//! alone; YCSB's own workloads; and the figures of the document on H-Store's replication ([`sweep`]).

pub(crate) mod arrivals;
pub mod letters;
mod load;
pub mod store;
pub mod sweep;

use self::arrivals::Arrivals;
use self::letters::{Letter, Mix};
use self::load::OperationsUnderLoad;
use self::store::{Asking, Store};
use self::sweep::Sweep;
use crate::appends::{LogUnderLoad, Manner};
use crate::cluster::{Ours, Shared, TableKind, TableUnderLoad, Target};
use crate::error::BenchError;
use crate::generate::{Distribution, Workload};
use crate::goals::Sides;
use crate::options::{Common, LoadSize};
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::{Subject, interleave};
use crate::unit_costs::UnitCosts;
use serde_json::{Value, json};
use std::io::Write;
use types::{EngineKind, LogKind, Policy, Ship};

/// Lines of this bench with their goals, for each share of updates: main-memory tables with three copies
/// against one copy.
const LADDER: [(&str, f64); 2] = [("semi", 0.55), ("async", 0.70)];
/// The least share of what ten waiting writers reach on the log alone that a durable table should reach.
const DURABLE_GOAL: f64 = 0.5;

/// Names of lines, without the share of updates that follows the first ones.
pub const YCSB_LINES: [&str; 7] = [
    "semi-vs-none",
    "async-vs-none",
    "durable-lsm-vs-log",
    "durable-memory-vs-log",
    "custom",
    "workload",
    "sweep",
];
/// Shares of updates that are measured where nothing else is asked for.
const UPDATES: [u8; 3] = [0, 50, 100];

/// The table that options ask for. If any of these is given, one line for each mix replaces the comparisons,
/// with the table's defaults for what is not given.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CustomTable {
    /// `--factor N`.
    pub factor: Option<u8>,
    /// `--policy NAME`.
    pub policy: Option<String>,
    /// `--engine lsm|memory`.
    pub engine: Option<EngineKind>,
    /// `--log disk|memory`.
    pub log: Option<LogKind>,
}

/// How operations are offered. If any of the first two is other than the default, one line for each mix
/// replaces the comparisons.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Offer {
    /// `--by put|procedure`.
    pub asking: Asking,
    /// `--rate N`: operations that are to begin in each second. None: closed loop.
    pub rate: Option<f64>,
    /// `--ship calls`: against effects, of a database beside it.
    pub ship: Ship,
    /// `--cpu-quota PERCENT` of a processor for each node.
    pub quota: Option<u32>,
}

/// Options of `bench ycsb`.
#[derive(Clone, Debug, Default)]
pub struct YcsbOptions {
    /// Options of every bench.
    pub common: Common,
    /// Which cluster.
    pub target: Target,
    /// How large the load is.
    pub load: LoadSize,
    /// `--updates P,P,...`: shares of updates in percent. Empty: the default of what is measured.
    pub updates: Vec<u8>,
    /// `--distribution uniform|zipfian|latest`. None: uniform, and of a workload its own.
    pub distribution: Option<Distribution>,
    /// `--workload a,b,...`: YCSB's own workloads instead of shares of updates.
    pub letters: Vec<Letter>,
    /// Which table.
    pub table: CustomTable,
    /// How operations are offered.
    pub offer: Offer,
    /// `--sweep`, `--paper-times`: the four figures instead.
    pub sweep: Option<Sweep>,
}

impl YcsbOptions {
    fn check(&self) -> Result<(), BenchError> {
        self.common.check(&YCSB_LINES)?;
        let usage = |sentence: String| Err(BenchError::Usage(sentence));
        self.load.check()?;
        if self.updates.iter().any(|percent| *percent > 100) {
            return usage("shares of updates are percentages, 0 to 100".into());
        }
        if self.offer.rate.is_some_and(|rate| !(rate.is_finite() && (0.01..=10_000_000.0).contains(&rate))) {
            return usage("between 0.01 and 10000000 operations a second can be offered".into());
        }
        if self.offer.quota.is_some_and(|percent| !(10..=6_400).contains(&percent)) {
            return usage("a node's share is 10 to 6400 percent of a processor".into());
        }
        if self.offer.ship == Ship::Calls && self.offer.asking == Asking::Put {
            return usage("only calls can be shipped as such: --ship calls goes with --by procedure".into());
        }
        if !self.letters.is_empty() && !self.updates.is_empty() {
            return usage(
                "a workload has its own share of updates: leave out --updates or --workload".into(),
            );
        }
        if self.sweep.is_some() && (!self.letters.is_empty() || self.table != CustomTable::default()) {
            return usage("--sweep has tables and mixes of its own: leave out --workload, --policy, --factor, --engine and --log".into());
        }
        let refused =
            |letter: &Letter| Store::refuses(self.offer.asking, letter.mix(), self.load.value_bytes);
        match self.letters.iter().find_map(refused) {
            Some(why) => usage(why),
            None => Ok(()),
        }
    }

    /// The table that the options ask for, if they ask for one.
    fn custom(&self) -> Result<Option<TableKind>, BenchError> {
        let own = !self.letters.is_empty() || self.offers_its_own_way();
        if self.table == CustomTable::default() && !own {
            return Ok(None);
        }
        let CustomTable { factor, policy, engine, log } = self.table.clone();
        let log = log.unwrap_or(LogKind::Disk);
        let memory = log == LogKind::Memory;
        let engine = engine.unwrap_or(if memory { EngineKind::Memory } else { EngineKind::Lsm });
        let policy = policy.unwrap_or_else(|| if memory { "semi" } else { "durable" }.into());
        let factor = factor.unwrap_or(if policy == "none" { 1 } else { 3 });
        let checked = Policy::preset(&policy, factor, log).and_then(|policy| policy.check(engine));
        checked.map_err(|error| BenchError::Usage(error.to_string()))?;
        let partitions = self.load.partitions;
        Ok(Some(TableKind { policy, factor, engine, log, partitions, ship: Ship::Effects }))
    }

    fn offers_its_own_way(&self) -> bool {
        self.offer.asking != Asking::Put || self.offer.rate.is_some()
    }

    fn arrivals(&self) -> Arrivals {
        self.offer.rate.map_or(Arrivals::Closed, Arrivals::Open)
    }

    fn updates_or(&self, default: &[u8]) -> Vec<u8> {
        if self.updates.is_empty() { default.to_vec() } else { self.updates.clone() }
    }

    fn workload(&self, update_percent: u8) -> Workload {
        let distribution = self.distribution.unwrap_or_default();
        Workload { distribution, ..self.load.workload(update_percent, self.common.seed) }
    }

    fn in_json(&self, update_percent: u8) -> Value {
        let mut workload =
            self.in_json_of(Mix::updates(update_percent), self.distribution.unwrap_or_default());
        workload["update_percent"] = json!(update_percent);
        workload
    }

    /// The same of any mix.
    fn in_json_of(&self, mix: Mix, distribution: Distribution) -> Value {
        let mut workload = json!({
            "records": self.load.records, "value_bytes": self.load.value_bytes,
            "distribution": distribution.to_string(), "clients": self.load.clients, "partitions": self.load.partitions,
        });
        if self.offers_its_own_way() || !self.letters.is_empty() {
            workload["mix"] = json!({
                "read": mix.reads(), "update": mix.update, "insert": mix.insert, "scan": mix.scan, "modify": mix.modify,
            });
            workload["by"] = json!(self.offer.asking.to_string());
            workload["ship"] = json!(self.offer.ship);
        }
        if self.offer.asking == Asking::Procedure {
            workload["partitions"] = json!(1);
        }
        if let Some(rate) = self.offer.rate {
            workload["offered_s"] = json!(rate);
        }
        if let Some(percent) = self.offer.quota {
            workload["cpu_quota_percent"] = json!(percent);
        }
        workload
    }
}

/// What a run carries along.
struct Run<'a> {
    options: &'a YcsbOptions,
    shared: Shared,
    machine: Machine,
    units: UnitCosts,
    progress: &'a mut dyn Write,
    emit: &'a mut dyn FnMut(&Line),
    lines: Vec<Line>,
}

impl Run<'_> {
    fn done(&mut self, line: Line) {
        let line = line.with_unit_costs(&self.units);
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
        let updates = self.options.updates_or(&UPDATES);
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
                    let sides = Sides { ours, base: &series[0], shared: None };
                    let line = line.compared(ours, &series[0], Some(*goal));
                    self.done(line.with_goals(self.options.load.clients, &sides));
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
        for percent in self.options.updates_or(&UPDATES) {
            table.set_workload(&self.options.workload(percent));
            let series = interleave(&mut [&mut table], self.options.common.plan(), self.progress)?;
            let line = self.line(&format!("custom-u{percent}"), percent);
            self.done(line.alone(&series[0]));
        }
        Ok(())
    }

    /// What has mixes that are no shares of updates, or is asked for in another way.
    fn mixes(&mut self, kind: &TableKind) -> Result<(), BenchError> {
        let options = self.options;
        let mut mixes: Vec<(String, Mix, Distribution)> = Vec::new();
        for letter in &options.letters {
            let distribution = options.distribution.unwrap_or(letter.distribution());
            mixes.push((format!("workload-{letter}"), letter.mix(), distribution));
        }
        if mixes.is_empty() {
            let distribution = options.distribution.unwrap_or_default();
            let mix = |percent: u8| (format!("custom-u{percent}"), Mix::updates(percent), distribution);
            mixes.extend(options.updates_or(&UPDATES).into_iter().map(mix));
        }
        mixes.retain(|(name, ..)| options.common.wants(name));
        let _ = writeln!(self.progress, "ycsb: loading {} records", options.load.records);
        let workload = options.workload(100);
        let clients = (options.load.clients, options.arrivals());
        let offered = (&workload, options.offer.asking);
        // Calls are compared with what they come to.
        let ships: &[Ship] =
            if options.offer.ship.is_effects() { &[Ship::Effects] } else { &[Ship::Calls, Ship::Effects] };
        let kinds = ships.iter().map(|ship| TableKind { ship: *ship, ..kind.clone() });
        let new = |kind: TableKind| OperationsUnderLoad::new(&self.shared, &kind, offered, clients);
        let mut all = kinds.map(new).collect::<Result<Vec<_>, _>>()?;
        for (name, mix, distribution) in mixes {
            all.iter_mut().for_each(|one| one.change(mix, distribution));
            let mut subjects: Vec<&mut dyn Subject> =
                all.iter_mut().map(|one| one as &mut dyn Subject).collect();
            let series = interleave(&mut subjects, options.common.plan(), self.progress)?;
            let workload = options.in_json_of(mix, distribution);
            let line = Line::new("ycsb", &name, workload, self.machine.clone());
            self.done(match &series[..] {
                [calls, effects] => line.compared(calls, effects, None),
                _ => line.alone(&series[0]),
            });
        }
        Ok(())
    }

    /// Gives each node its share of a processor, if that is asked for. Where it is not permitted that is
    /// said, and processor time per operation stands for it.
    fn limit(&mut self) -> bool {
        let Some(percent) = self.options.offer.quota else { return false };
        let limited = self.shared.borrow_mut().limit(percent);
        let _ = match &limited {
            Ok(()) => writeln!(self.progress, "ycsb: each node has {percent} % of a processor"),
            Err(why) => {
                writeln!(self.progress, "ycsb: nodes share the processors, a quota is not permitted: {why}")
            }
        };
        limited.is_ok()
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
    let units = UnitCosts::measure(&options.common, options.load.value_bytes)?;
    let _ = writeln!(progress, "ycsb: {}; starting", units.in_words());
    let shared = Ours::start(&options.common, &options.target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let mut run = Run { options, shared, machine, units, progress, emit, lines: Vec::new() };
    let limited = run.limit();
    match custom {
        _ if options.sweep.is_some() => run.sweep(limited)?,
        Some(kind) if options.offers_its_own_way() || !options.letters.is_empty() => run.mixes(&kind)?,
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

    fn custom_table(table: CustomTable) -> YcsbOptions {
        YcsbOptions { table, ..YcsbOptions::default() }
    }

    #[test]
    fn a_table_of_ones_own_has_the_defaults_for_the_rest() {
        assert_eq!(YcsbOptions::default().custom().expect("fine"), None);
        let durable = custom_table(CustomTable { factor: Some(2), ..CustomTable::default() });
        let kind = durable.custom().expect("fine").expect("asked for");
        assert_eq!(kind.in_words(), "durable factor 2, engine lsm, log disk");
        let memory = custom_table(CustomTable { log: Some(LogKind::Memory), ..CustomTable::default() });
        let kind = memory.custom().expect("fine").expect("asked for");
        assert_eq!(kind.in_words(), "semi factor 3, engine memory, log memory");
        let alone = custom_table(CustomTable { policy: Some("none".into()), ..CustomTable::default() });
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
        let policy =
            refused(custom_table(CustomTable { policy: Some("triplet".into()), ..CustomTable::default() }));
        assert!(policy.contains("not available yet"), "{policy}");
        assert!(refused(YcsbOptions { updates: vec![101], ..default() }).contains("percentages"));
        let offer = |offer: Offer| YcsbOptions { offer, ..default() };
        assert!(refused(offer(Offer { rate: Some(f64::NAN), ..Offer::default() })).contains("a second"));
        assert!(refused(offer(Offer { quota: Some(5), ..Offer::default() })).contains("percent"));
        let scans = Offer { asking: Asking::Procedure, ..Offer::default() };
        assert!(
            refused(YcsbOptions { letters: vec![Letter::E], ..offer(scans) }).contains("--value-bytes 614")
        );
        let both = YcsbOptions { letters: vec![Letter::A], updates: vec![5], ..default() };
        assert!(refused(both).contains("leave out"));
        assert!(
            refused(YcsbOptions { sweep: Some(Sweep::Short), letters: vec![Letter::A], ..default() })
                .contains("sweep")
        );
        assert!(
            refused(YcsbOptions { load: LoadSize { clients: 0, ..LoadSize::default() }, ..default() })
                .contains("at least 1")
        );
    }
}
