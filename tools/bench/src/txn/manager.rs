//! What the transaction manager commits, if nothing else is done: write-sets of one row, 64 in flight, on one
//! server with a durable log, which is kept on one core. Beside it the same rows are put into a table. The
//! recovery manager makes a pass an hour meanwhile, so the partitions are told of nothing.

use super::store::{Store, start};
use super::{Goal, Run, Shape, figures_of, rates};
use crate::affinity;
use crate::closed::{self, Asking};
use crate::cluster::Shared;
use crate::error::{BenchError, During};
use crate::generate::key;
use crate::stats::Spread;
use crate::subject::{Counters, Load, Sources, Subject, Way, interleave};
use client::{Call, Outcome, Table};
use serde_json::Value;
use std::time::Duration;
use types::Position;
use types::data::Value as Datum;
use types::random::Random;
use wire::commit::PartitionWrites;
use wire::control::CreateTable;
use wire::{Body, CommitAnswer, CommitRequest, ManagerOp, RowOp};

const SHAPE: Shape = Shape {
    name: "manager",
    title: "the transaction manager alone",
    across: "in flight",
    unit: "write-sets/s",
    columns: &[
        ("p50_ms", "p50 ms"),
        ("p99_ms", "p99 ms"),
        ("cpu_us_per_txn", "CPU us each"),
        ("txn_per_fsync", "each fsync"),
        ("throughput_ratio", "over puts"),
    ],
};
const GOAL: f64 = 50_000.0;
/// Keys are drawn of so many: two commits of one are rare.
const KEYS: u64 = 1 << 33;
/// Bytes that a row has beside its key and its value.
const BESIDE: usize = 40;

/// Which cores the server and the load generator run on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Cores {
    /// The server's one; none: there is no process of ours to be kept there, or the system does not permit
    /// it.
    server: Option<usize>,
    /// The load generator's.
    generator: Vec<usize>,
}

impl Cores {
    /// The last core is the server's and all others the generator's. Of a single one both have it.
    fn of(all: &[usize]) -> Cores {
        let Some((last, others)) = all.split_last() else {
            return Cores { server: None, generator: Vec::new() };
        };
        let generator = if others.is_empty() { all } else { others };
        Cores { server: Some(*last), generator: generator.to_vec() }
    }

    /// Keeps these processes on the server's core.
    fn pin(processes: &[u32]) -> Result<Cores, BenchError> {
        let all = affinity::own_cores().during("the cores of this process are not told")?;
        let cores = Cores::of(&all);
        let Some(core) = cores.server.filter(|_| !processes.is_empty()) else {
            return Ok(Cores { server: None, generator: all });
        };
        let pinned = processes.iter().try_for_each(|process| affinity::pin_process(*process, &[core]));
        match pinned {
            Ok(()) => Ok(cores),
            Err(_) => Ok(Cores { server: None, generator: all }),
        }
    }

    fn in_words(&self) -> String {
        match self.server {
            Some(core) if self.generator.contains(&core) => {
                format!("server and load generator share core {core}")
            }
            Some(core) => format!("the server runs on core {core} alone, the load generator on others"),
            None => "the server is not kept on one core".into(),
        }
    }
}

pub(super) fn measure(run: &mut Run) -> Result<(), BenchError> {
    let options = run.options;
    let settings = [("controller.recovery_ms", "3600000"), ("node.executors", "1")];
    let shared = start(options, 1, &settings)?;
    let processes = shared.borrow().processes();
    let cores = Cores::pin(&processes)?;
    run.say(&format!("txn: {}", cores.in_words()));
    let small = super::TxnOptions { rows: Some(100), factor: Some(1), ..options.clone() };
    let store = Store::create(&small, &shared, 1, "async")?;
    let puts = {
        let request = CreateTable {
            factor: Some(1),
            ..CreateTable::new("bench_puts", store.table.schema().clone(), "local")
        };
        shared.borrow_mut().client().create_table(&request)?
    };
    let mut commits = Alone::new(run, (&shared, &cores), store.table.clone(), Some(store));
    let mut puts = Alone::new(run, (&shared, &cores), puts, None);
    let series = interleave(&mut [&mut commits, &mut puts], options.common.plan(), run.progress)?;
    let ratio = Spread::of_ratios(&rates(&series[0]), &rates(&series[1]));
    for (at, kind) in ["commits", "puts"].into_iter().enumerate() {
        let mut figures = figures_of(&series[at]);
        figures["write_set_bytes"] = options.write_set_bytes.into();
        figures["settings"] = series[at].settings.clone().into();
        figures["server_core"] = cores.server.into();
        figures["generator_cores"] = cores.generator.clone().into();
        if at == 0 {
            figures["throughput_ratio"] = ratio.as_ref().map_or(Value::Null, |ratio| ratio.median.into());
        }
        let place = (options.flying.to_string(), kind.to_string());
        let mut point = run.point(&SHAPE, place, &rates(&series[at]), figures);
        if at == 0 {
            let median = point.value.as_ref().map_or(0.0, |value| value.median);
            point.goals.push(Goal::at_least("write-sets a second", median, GOAL));
        }
        run.done(point);
    }
    run.finish(&SHAPE);
    Ok(())
}

/// Commits of one row each, or puts.
struct Alone {
    shared: Shared,
    cores: Cores,
    table: Table,
    /// None: rows are put.
    store: Option<Store>,
    random: Random,
    value: Vec<u8>,
    flying: u32,
    /// The newest commit that is known.
    newest: Position,
}

impl Alone {
    fn new(run: &Run, (shared, cores): (&Shared, &Cores), table: Table, store: Option<Store>) -> Alone {
        let options = run.options;
        let value = vec![b'x'; options.write_set_bytes.saturating_sub(BESIDE)];
        let random = Random::new(options.common.seed);
        let (shared, cores) = (shared.clone(), cores.clone());
        let (flying, newest) = (options.flying, Position::ZERO);
        Alone { shared, cores, table, store, random, value, flying, newest }
    }
}

impl Asking for Alone {
    fn call(&mut self) -> Result<Call, BenchError> {
        let row = types::data::Row::new(vec![
            Datum::Text(key(self.random.below(KEYS))),
            Datum::Bytes(self.value.clone()),
        ]);
        let Some(store) = &self.store else { return Ok(self.table.put(&row)?) };
        let (key, row) = self.table.encode(&row)?;
        let partition = self.table.partition_of(&key)?;
        let parts = vec![self.table.part(vec![RowOp::Put { key, row }])];
        let writes = vec![PartitionWrites { partition, parts }];
        Ok(store.manager.call(ManagerOp::Commit(CommitRequest { snapshot: self.newest, writes })))
    }

    fn check(&mut self, outcome: &Outcome) -> Result<(), BenchError> {
        match outcome {
            Outcome::Ok(answer) => match &answer.body {
                Body::Commit(CommitAnswer::Committed(_)) => {
                    self.newest = self.newest.max(answer.position());
                    Ok(())
                }
                Body::Affected(1) => Ok(()),
                other => Err(BenchError::Wrong(format!("a write was answered with {other:?}"))),
            },
            // One key of many twice, while the first was on its way.
            Outcome::Refused(wire::Outcome::Changed, _) => Ok(()),
            other => Err(BenchError::Wrong(format!("a write ended with {other:?}"))),
        }
    }
}

impl Subject for Alone {
    fn label(&self) -> String {
        let what = if self.store.is_some() { "commits of one row" } else { "puts" };
        format!("understudy {what}, durable, one copy")
    }

    fn settings(&self) -> String {
        format!(
            "one server and one log on disk, one executor; {} lanes of one client on one thread; partitions are told of nothing; {}",
            self.flying,
            self.cores.in_words()
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.shared.borrow().processes()
    }

    fn sources(&self) -> Sources {
        self.shared.borrow().sources()
    }

    fn way(&self) -> Way {
        Way::ONE_LOG
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.shared.borrow_mut().counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let shared = self.shared.clone();
        let mut ours = shared.borrow_mut();
        if self.cores.server.is_none() {
            return closed::drive(ours.client(), self.flying, time, self);
        }
        let what = "the load generator cannot be kept on some cores";
        let before = affinity::own_cores().during(what)?;
        affinity::pin_own(&self.cores.generator).during(what)?;
        let load = closed::drive(ours.client(), self.flying, time, self);
        affinity::pin_own(&before).during(what)?;
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_server_has_one_core_and_the_load_generator_the_others() {
        assert_eq!(Cores::of(&[0, 2, 5]), Cores { server: Some(5), generator: vec![0, 2] });
        assert_eq!(Cores::of(&[3]), Cores { server: Some(3), generator: vec![3] });
        assert!(Cores::of(&[3]).in_words().contains("share core 3"));
        assert!(Cores::of(&[0, 3]).in_words().contains("on core 3 alone"));
        assert_eq!(Cores::of(&[]).in_words(), "the server is not kept on one core");
    }

    #[test]
    fn a_server_is_kept_on_one_core_and_none_is_no_error() {
        let all = affinity::own_cores().expect("told");
        assert_eq!(Cores::pin(&[]).expect("told"), Cores { server: None, generator: all.clone() });
        let mut child = Command::new("sleep").arg("30").stdin(Stdio::null()).spawn().expect("starts");
        let cores = Cores::pin(&[child.id()]);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        child.kill().expect("ours");
        child.wait().expect("ours");
        let core = cores.expect("told").server.expect("permitted");
        let status = status.expect("it ran");
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        assert_eq!(allowed.map(str::trim), Some(core.to_string().as_str()));
    }
}
