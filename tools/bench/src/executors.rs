//! `bench executors`: what a node makes of a second core. One node with two executors on two cores against
//! one with one executor on one core; one copy, engine and log in memory.
//!
//! The load generator runs on the cores of the node that it loads, and its share of their time is not the
//! node's: rates are compared that the node would have if the generator ran elsewhere.

use crate::affinity;
use crate::cluster::{Ours, TableKind, TableUnderLoad, Target};
use crate::error::{BenchError, During};
use crate::generate::Workload;
use crate::goals::{self, Sides};
use crate::options::{Common, LoadSize};
use crate::plot;
use crate::report::{Line, Machine};
use crate::stats::Spread;
use crate::subject::{Counters, Load, Round, Series, Sources, Subject, Way, interleave};
use crate::unit_costs::UnitCosts;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Names of the lines, and their shares of updates.
const LINES: [(&str, u8); 2] = [("executors-put", 100), ("executors-get", 0)];
/// Names of the lines.
pub const EXECUTOR_LINES: [&str; 2] = [LINES[0].0, LINES[1].0];

/// Options of `bench executors`.
#[derive(Clone, Debug)]
pub struct ExecutorsOptions {
    /// Options of every bench.
    pub common: Common,
    /// The program with the subcommands `node` and `controller`. `None`: the one that runs now.
    pub binary: Option<PathBuf>,
    /// How large the load is. Clients are calls that are on their way at once.
    pub load: LoadSize,
}

impl Default for ExecutorsOptions {
    fn default() -> ExecutorsOptions {
        // Sixteen partitions are spread evenly over two executors.
        let load = LoadSize { clients: 64, partitions: 16, ..LoadSize::default() };
        ExecutorsOptions { common: Common::default(), binary: None, load }
    }
}

impl ExecutorsOptions {
    fn workload(&self, update_percent: u8) -> Workload {
        self.load.workload(update_percent, self.common.seed)
    }
}

/// Runs `bench executors`. Each line goes to `emit` as soon as it is there. Where there are no two cores the
/// lines say so.
pub fn executors(
    options: &ExecutorsOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    options.common.check(&EXECUTOR_LINES)?;
    options.load.check()?;
    let cores = affinity::own_cores().during("the cores of this process are not told")?;
    let wanted = LINES.into_iter().filter(|(name, _)| options.common.wants(name));
    let mut lines = Vec::new();
    let mut done = |line: Line, progress: &mut dyn Write| {
        let _ = writeln!(progress, "{}", line.in_words());
        emit(&line);
        lines.push(line);
    };
    let [first, second, ..] = cores[..] else {
        let machine = Machine::here(&options.common.base_dir());
        for (name, percent) in wanted {
            let line = Line::new("executors", name, workload_in_json(options, percent), machine.clone());
            done(line.skipped("there is one core alone"), progress);
        }
        return Ok(lines);
    };
    let units = UnitCosts::measure(&options.common, options.load.value_bytes)?;
    let _ = writeln!(progress, "executors: {}; starting", units.in_words());
    let mut two = Pinned::start(options, vec![first, second])?;
    let mut one = Pinned::start(options, vec![first])?;
    let machine = Machine::here(&options.common.base_dir());
    for (name, percent) in wanted {
        let _ = writeln!(progress, "executors: {name}");
        let workload = options.workload(percent);
        two.table.set_workload(&workload);
        one.table.set_workload(&workload);
        let series = interleave(&mut [&mut two, &mut one], options.common.plan(), progress)?;
        let (a, b) = (figures(&series[0], 2), figures(&series[1], 1));
        let mut workload = workload_in_json(options, percent);
        workload["ops_s_without_generator"] =
            json!({ "ours": Spread::of(a.iter().copied()), "base": Spread::of(b.iter().copied()) });
        let clients = options.load.clients;
        let sides = Sides { ours: &series[0], base: &series[1], shared: None };
        let line = Line::new("executors", name, workload, machine.clone());
        let line = line.compared_by((sides.ours, &a[..]), (sides.base, &b[..]), goals::ratio(name, clients));
        done(line.with_goals(clients, &sides).with_unit_costs(&units), progress);
    }
    plot::write(&options.common, "executors", &lines)?;
    Ok(lines)
}

fn workload_in_json(options: &ExecutorsOptions, update_percent: u8) -> serde_json::Value {
    json!({
        "records": options.load.records, "value_bytes": options.load.value_bytes, "update_percent": update_percent,
        "distribution": "uniform", "clients": options.load.clients, "partitions": options.load.partitions,
        "cores": { "ours": 2, "base": 1 },
    })
}

/// Operations a second of each round, without the load generator's share of so many cores.
fn figures(series: &Series, cores: u32) -> Vec<f64> {
    series.rounds.iter().map(|round| without_generator(round, cores).unwrap_or(f64::NAN)).collect()
}

/// What a node would do in a second if the load generator did not run on its cores. `None`: it is not known
/// what the generator used, or it used all.
fn without_generator(round: &Round, cores: u32) -> Option<f64> {
    let cores = f64::from(cores);
    let used = round.cost.as_ref()?.generator_us() * round.ops_s / 1e6;
    (used < cores).then(|| round.ops_s * cores / (cores - used))
}

/// A node that stays on some cores, with an executor for each, under load from the same cores.
struct Pinned {
    table: TableUnderLoad,
    cores: Vec<usize>,
}

impl Pinned {
    fn start(options: &ExecutorsOptions, cores: Vec<usize>) -> Result<Pinned, BenchError> {
        let executors = ("node.executors".to_string(), cores.len().to_string());
        let binary = options.binary.clone();
        let target = Target { nodes: 1, binary, settings: vec![executors], ..Target::default() };
        let shared = Ours::start(&options.common, &target)?;
        let processes = shared.borrow().processes();
        for process in processes {
            affinity::pin_process(process, &cores).during("a process cannot be kept on some cores")?;
        }
        let kind = TableKind::main_memory("none", 1, options.load.partitions);
        let table = TableUnderLoad::new(&shared, &kind, &options.workload(100), options.load.clients)?;
        Ok(Pinned { table, cores })
    }
}

impl Subject for Pinned {
    fn label(&self) -> String {
        let count = self.cores.len();
        let plural = if count == 1 { "" } else { "s" };
        format!("{}, one node, {count} executor{plural} on {count} core{plural}", self.table.label())
    }

    fn settings(&self) -> String {
        format!("{}; node, controller and load generator run on these cores alone", self.table.settings())
    }

    fn processes(&self) -> Vec<u32> {
        self.table.processes()
    }

    fn sources(&self) -> Sources {
        self.table.sources()
    }

    fn way(&self) -> Way {
        self.table.way()
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.table.counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let what = "the load generator cannot be kept on some cores";
        let before = affinity::own_cores().during(what)?;
        affinity::pin_own(&self.cores).during(what)?;
        let load = self.table.run(time);
        // The other side's cores are others.
        affinity::pin_own(&before).during(what)?;
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Cost;

    fn round(ops_s: f64, generator_us: f64) -> Round {
        Round {
            ops_s,
            ops: 1_000,
            cpu_us_per_op: 20.0,
            kernel_cpu_us_per_op: None,
            cost: Some(Cost { generator_user_us: generator_us, ..Cost::default() }),
            wire_bytes_per_op: None,
            ops_per_fsync: None,
            fsyncs_s: None,
            cpu_share: 1.0,
            other_cpu_share: 0.0,
            fsync_us: None,
            p99_us: 100.0,
        }
    }

    #[test]
    fn what_the_generator_used_of_the_cores_is_not_the_nodes() {
        // Five of twenty microseconds of an operation are the generator's: the node has 15 for each.
        assert_eq!(without_generator(&round(50_000.0, 5.0), 1), Some(50_000.0 / 0.75));
        assert_eq!(without_generator(&round(100_000.0, 5.0), 2), Some(100_000.0 * 2.0 / 1.5));
        assert_eq!(without_generator(&round(50_000.0, 20.0), 1), None, "nothing is left for the node");
        assert_eq!(without_generator(&Round { cost: None, ..round(1.0, 1.0) }, 1), None);
    }

    #[test]
    fn a_line_that_there_is_not_is_refused() {
        let mut options = ExecutorsOptions::default();
        options.common.only = vec!["scans".into()];
        let refused = executors(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
        assert!(refused.to_string().contains("executors-put"), "{refused}");
    }
}
