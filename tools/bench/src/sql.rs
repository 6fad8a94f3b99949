//! `bench sql`: the SQL gateway under load, beside PostgreSQL on the same machine, in interleaved rounds.
//!
//! Both sides speak the same protocol with the same load generator: prepared statements by key, each with a
//! Sync, one connection for each client. Our clients are spread over the nodes.

use crate::cluster::{Ours, Shared, TableKind, TableUnderLoad, Target};
use crate::error::BenchError;
use crate::generate::{Steps, Workload, key};
use crate::goals::{self, Sides};
use crate::load::Generator;
use crate::options::{Common, LoadSize};
use crate::peers::pg::{self, PgClient};
use crate::peers::{Postgres, postgres};
use crate::plot;
use crate::procfs;
use crate::report::{Line, Machine};
use crate::subject::{Counters, Load, Sources, Subject, Way, interleave, note};
use crate::unit_costs::UnitCosts;
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use types::EngineKind;

/// The user and the database of our door.
const US: &str = "understudy";
/// Rows a second that a count is to reach.
const ROWS_PER_SECOND: f64 = 1_000_000.0;

const SELECT: &str = "select-vs-postgres";
const DURABLE: &str = "update-durable-vs-postgres-on";
const SEMI: &str = "update-semi-vs-postgres-remote_write";
const COUNT: &str = "count-a-range";
const PSQL: &str = "psql-first-result";
/// Names of the lines, in their order.
const LINES: [&str; 5] = [SELECT, DURABLE, SEMI, COUNT, PSQL];

/// Options of `bench sql`.
#[derive(Clone, Debug)]
pub struct SqlOptions {
    /// Options of every bench.
    pub common: Common,
    /// Which cluster of ours: one that is started.
    pub target: Target,
    /// How large the load is.
    pub load: LoadSize,
    /// `--rows N`: rows of the table that is counted.
    pub rows: u64,
}

impl Default for SqlOptions {
    fn default() -> SqlOptions {
        SqlOptions {
            common: Common::default(),
            target: Target::default(),
            load: LoadSize::default(),
            rows: 1_000_000,
        }
    }
}

impl SqlOptions {
    fn workload(&self, update_percent: u8) -> Workload {
        self.load.workload(update_percent, self.common.seed)
    }

    fn line(&self, name: &str, update_percent: u8, machine: &Machine) -> Line {
        let workload = json!({
            "records": if name == COUNT { self.rows } else { self.load.records }, "value_bytes": self.load.value_bytes,
            "update_percent": update_percent, "distribution": "uniform", "clients": self.load.clients,
            "partitions": self.load.partitions, "protocol": "postgresql, prepared",
        });
        Line::new("sql", name, workload, machine.clone())
    }
}

/// Runs `bench sql`. Each line goes to `emit` as soon as it is there. Without PostgreSQL those that need it
/// say so.
pub fn sql(
    options: &SqlOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    options.common.check(&LINES)?;
    options.load.check()?;
    if options.rows == 0 {
        return Err(BenchError::Usage("rows are at least 1".into()));
    }
    let units = UnitCosts::measure(&options.common, options.load.value_bytes)?;
    let _ = writeln!(progress, "sql: {}; starting", units.in_words());
    let mut target = options.target.clone();
    // The load generator says no password, to us as to PostgreSQL.
    target.settings.push(("sql.password_file".into(), String::new()));
    let shared = Ours::start(&options.common, &target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let mut lines = Vec::new();
    for name in LINES.into_iter().filter(|name| options.common.wants(name)) {
        let _ = writeln!(progress, "sql {name}");
        let line = match name {
            COUNT => count(options, &shared, &machine, progress)?,
            PSQL => first_result(options, &shared, &machine, progress)?,
            name => duel(options, &shared, name, &machine, progress)?,
        };
        let line = line.with_unit_costs(&units);
        let _ = writeln!(progress, "{}", line.in_words());
        emit(&line);
        lines.push(line);
    }
    plot::write(&options.common, "sql", &lines)?;
    Ok(lines)
}

/// Statements by key on both sides.
fn duel(
    options: &SqlOptions,
    shared: &Shared,
    name: &'static str,
    machine: &Machine,
    progress: &mut dyn Write,
) -> Result<Line, BenchError> {
    // As PostgreSQL's, our tables and their logs are on disk, whatever a commit waits for.
    let durable = TableKind::durable(EngineKind::Lsm, options.load.partitions);
    let (kind, commit, updates) = match name {
        SEMI => (TableKind { policy: "semi".into(), ..durable }, "remote_write", 100),
        DURABLE => (durable, "on", 100),
        _ => (durable, "on", 0),
    };
    let line = options.line(name, updates, machine);
    if postgres::installed().is_none() {
        return Ok(line.skipped("PostgreSQL's initdb, postgres and pg_basebackup are not installed"));
    }
    let workload = options.workload(updates);
    let clients = options.load.clients;
    let mut ours = Listener::start(shared, &kind, &workload, clients)?;
    let mut theirs = Postgres::start(&options.common, &workload, clients, commit)?;
    let series = interleave(&mut [&mut ours, &mut theirs], options.common.plan(), progress)?;
    let sides = Sides { ours: &series[0], base: &series[1], shared: None };
    Ok(line.compared(sides.ours, sides.base, goals::ratio(name, clients)).with_goals(clients, &sides))
}

/// A table of ours under load through the SQL gateway.
struct Listener {
    table: TableUnderLoad,
    generator: Generator<PgClient>,
    steps: Steps,
    updates: u8,
    clients: u32,
}

impl Listener {
    fn start(
        shared: &Shared,
        kind: &TableKind,
        workload: &Workload,
        clients: u32,
    ) -> Result<Listener, BenchError> {
        let table = TableUnderLoad::new(shared, kind, workload, clients)?;
        let listeners = shared.borrow().sql_addresses()?;
        let mut connections = Vec::new();
        for at in 0..clients as usize {
            let mut stream = connect(&listeners[at % listeners.len()])?;
            pg::prepare(&mut stream, table.name()).map_err(BenchError::Wrong)?;
            connections.push((stream, PgClient::new(workload.value_bytes)));
        }
        let generator = Generator::new(connections)?;
        let (steps, updates) = (Steps::new(workload), workload.update_percent);
        Ok(Listener { table, generator, steps, updates, clients })
    }
}

fn connect(address: &str) -> Result<TcpStream, BenchError> {
    let mut stream = TcpStream::connect(address)
        .map_err(|error| BenchError::io(format!("{address} cannot be connected to"), error))?;
    pg::start(&mut stream, US, US).map_err(BenchError::Wrong)?;
    Ok(stream)
}

impl Subject for Listener {
    fn label(&self) -> String {
        let what = if self.updates > 0 { "UPDATE by key" } else { "SELECT by key" };
        format!("understudy SQL, {}, {what}", self.table.kind())
    }

    fn settings(&self) -> String {
        format!(
            "{}; prepared statements, one transaction per statement; each of {} clients has one connection, spread over the \
             nodes, all are on one thread",
            self.table.about(),
            self.clients
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.table.processes()
    }

    fn sources(&self) -> Sources {
        Sources { wire: "", ..self.table.sources() }
    }

    fn way(&self) -> Way {
        // The node that is asked asks the primary, which mostly is another one.
        let way = self.table.way();
        Way { messages: way.messages + 2.0, ..way }
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        let generator_calls = Some(self.generator.done.calls);
        Ok(Counters { wire_bytes: None, generator_calls, ..self.table.counters()? })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.generator.run(&mut self.steps, time)
    }
}

/// A range of a large table is counted again and again by one client; an operation is a row.
fn count(
    options: &SqlOptions,
    shared: &Shared,
    machine: &Machine,
    progress: &mut dyn Write,
) -> Result<Line, BenchError> {
    let kind = TableKind::durable(EngineKind::Lsm, options.load.partitions);
    let workload = Workload { records: options.rows, value_bytes: 16, ..options.workload(0) };
    let table = TableUnderLoad::new(shared, &kind, &workload, 1)?;
    let listeners = shared.borrow().sql_addresses()?;
    let sql = format!("SELECT count(*) FROM {} WHERE k >= '{}' AND k < 'v'", table.name(), key(0));
    let mut stream = connect(&listeners[0])?;
    let rows = options.rows;
    let ask = move || {
        let answer = pg::query(&mut stream, &sql).map_err(BenchError::Wrong)?;
        match answer == [rows.to_string()] {
            true => Ok(rows),
            false => Err(BenchError::Wrong(format!("{rows} rows were counted as {answer:?}"))),
        }
    };
    let label = format!("understudy SQL, {}, rows of SELECT count(*) over a range", table.kind());
    let mut counted = Repeated { label, of: Box::new(table), ask: Box::new(ask) };
    let series = interleave(&mut [&mut counted], options.common.plan(), progress)?;
    let label = "the goal: rows a second";
    Ok(options.line(COUNT, 0, machine).at_least(&series[0], label, ROWS_PER_SECOND))
}

/// One question that is asked again and again.
struct Repeated {
    label: String,
    /// Who is asked: what its processes do is counted, and it makes no load itself.
    of: Box<dyn Subject>,
    /// Asks it once. Gives how many operations that was.
    ask: Box<dyn FnMut() -> Result<u64, BenchError>>,
}

impl Subject for Repeated {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn processes(&self) -> Vec<u32> {
        self.of.processes()
    }

    fn sources(&self) -> Sources {
        Sources { wire: "", ..self.of.sources() }
    }

    fn way(&self) -> Way {
        self.of.way()
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        Ok(Counters { wire_bytes: None, generator_calls: None, ..self.of.counters()? })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let mut load = Load::empty();
        let before = procfs::reaped_cpu_us();
        let begun = Instant::now();
        while load.ops == 0 || begun.elapsed() < time {
            let asked = Instant::now();
            let operations = (self.ask)()?;
            note(&mut load.latencies, asked.elapsed());
            load.ops += operations;
        }
        load.elapsed = begun.elapsed();
        load.ended_cpu_us = procfs::reaped_cpu_us().saturating_sub(before);
        Ok(load)
    }
}

/// psql is started, connects, asks and ends, again and again; and the same with PostgreSQL, where it is
/// installed.
fn first_result(
    options: &SqlOptions,
    shared: &Shared,
    machine: &Machine,
    progress: &mut dyn Write,
) -> Result<Line, BenchError> {
    let line = options.line(PSQL, 0, machine);
    let version = Command::new("psql").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return Ok(line.skipped("psql is not installed"));
    }
    let kind = TableKind::durable(EngineKind::Lsm, 1);
    let workload = Workload { records: 1, ..options.workload(0) };
    let table = TableUnderLoad::new(shared, &kind, &workload, 1)?;
    let address = shared.borrow().sql_addresses()?.swap_remove(0);
    let url = format!("postgres://{US}@{address}/{US}");
    let ask = psql(url, table.name());
    let mut ours = Repeated { label: "psql with understudy".into(), of: Box::new(table), ask };
    if postgres::installed().is_none() {
        let series = interleave(&mut [&mut ours], options.common.plan(), progress)?;
        return Ok(line.alone(&series[0]));
    }
    let peer = Postgres::start(&options.common, &workload, 1, "on")?;
    let url = format!("postgres://{}@{}/postgres", postgres::USER, peer.address());
    let ask = psql(url, postgres::TABLE);
    let mut theirs = Repeated { label: "psql with postgresql".into(), of: Box::new(peer), ask };
    let series = interleave(&mut [&mut ours, &mut theirs], options.common.plan(), progress)?;
    let sides = Sides { ours: &series[0], base: &series[1], shared: None };
    Ok(line.compared(sides.ours, sides.base, None).with_goals(1, &sides))
}

/// One psql from its start to its end, with one row of this table in between.
fn psql(url: String, table: &str) -> Box<dyn FnMut() -> Result<u64, BenchError>> {
    let sql = format!("SELECT k FROM {table} WHERE k = '{}'", key(0));
    Box::new(move || {
        let mut command = Command::new("psql");
        command.args([&url, "-X", "-A", "-t", "-c", &sql]).stdin(Stdio::null());
        let output = command.output().map_err(|error| BenchError::io("psql cannot be run", error))?;
        match output.stdout.trim_ascii() == key(0).as_bytes() {
            true => Ok(1),
            false => Err(BenchError::Wrong(format!("psql: {}", String::from_utf8_lossy(&output.stderr)))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_there_is_not_is_refused() {
        let mut options = SqlOptions::default();
        options.common.only = vec!["inserts".into()];
        let refused = sql(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
        assert!(refused.to_string().contains(COUNT), "{refused}");
        let options = SqlOptions { rows: 0, ..SqlOptions::default() };
        assert!(sql(&options, &mut std::io::sink(), &mut |_| ()).is_err());
    }
}
