//! `bench databases`: what a table costs that lies in a database, and pgbench unchanged against the gateway
//! and against PostgreSQL with two standbys, in interleaved rounds.
//!
//! Behind the rounds of a bank its four sums must be equal, and every replica must have the same rows.

mod pgbench;
mod subjects;

use crate::cluster::{Ours, Shared, TableKind, TableUnderLoad, Target};
use crate::error::BenchError;
use crate::generate::Workload;
use crate::options::{Common, LoadSize};
use crate::peers::postgres;
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::{RoundPlan, interleave};
use pgbench::Script;
use serde_json::json;
use std::io::Write;
use subjects::{Bank, Filling, Place};
use types::EngineKind;

const PUT: &str = "put-in-a-database-vs-bare";
const GET: &str = "get-in-a-database-vs-bare";
const AMONG: &str = "get-among-many-tables";
const TPCB: &str = "pgbench-tpcb-vs-postgres";
const SELECT: &str = "pgbench-select-vs-postgres";
const INIT: &str = "pgbench-init-vs-postgres";
const GLOBAL: &str = "pgbench-tpcb-global-vs-postgres";
/// Names of the lines, in their order.
pub const DATABASE_LINES: [&str; 7] = [PUT, GET, AMONG, TPCB, SELECT, INIT, GLOBAL];

/// A table in a database may cost so much more.
const AS_CHEAP: f64 = 0.97;
/// pgbench may take one and a half times PostgreSQL's time to fill its tables.
const AS_FAST: f64 = 1.0 / 1.5;
/// Partitions of the bank with global transactions.
const PARTITIONS: u32 = 6;
/// What a line says that has nothing to be compared with.
const MISSING: &str = "pgbench, or PostgreSQL's initdb, postgres and pg_basebackup, are not installed";

/// Options of `bench databases`.
#[derive(Clone, Debug)]
pub struct DatabasesOptions {
    /// Options of every bench.
    pub common: Common,
    /// Which cluster of ours: one that is started.
    pub target: Target,
    /// Records of a table and clients; pgbench has as many clients.
    pub load: LoadSize,
    /// `--scale N`: of pgbench, 100,000 accounts each.
    pub scale: u32,
    /// `--tables N`: tables of the partition that has many.
    pub tables: u32,
    /// `--policy NAME` of our databases.
    pub policy: String,
}

impl Default for DatabasesOptions {
    fn default() -> DatabasesOptions {
        DatabasesOptions {
            common: Common::default(),
            target: Target::default(),
            load: LoadSize { partitions: 1, ..LoadSize::default() },
            scale: 10,
            tables: 1_000,
            policy: "durable".into(),
        }
    }
}

impl DatabasesOptions {
    fn check(&self) -> Result<(), BenchError> {
        self.common.check(&DATABASE_LINES)?;
        self.load.check()?;
        let usage = |sentence: &str| Err(BenchError::Usage(sentence.into()));
        if !(1..=1_000).contains(&self.scale) {
            return usage("--scale is from 1 to 1000");
        }
        // A database has up to 2,000 tables.
        if !(2..=1_900).contains(&self.tables) {
            return usage("--tables is from 2 to 1900");
        }
        Ok(())
    }

    fn kind(&self) -> TableKind {
        TableKind { policy: self.policy.clone(), ..TableKind::durable(EngineKind::Lsm, 1) }
    }

    fn line(&self, name: &str, machine: &Machine) -> Line {
        let workload = match name {
            PUT | GET | AMONG => json!({
                "records": self.load.records, "value_bytes": self.load.value_bytes, "clients": self.load.clients,
                "partitions": 1, "tables": if name == AMONG { self.tables } else { 1 }, "policy": self.policy,
            }),
            _ => json!({
                "scale": self.scale, "clients": self.load.clients, "policy": self.policy,
                "partitions": if name == GLOBAL { PARTITIONS } else { 1 },
                "protocol": "pgbench, prepared, one thread, all clients at one node",
            }),
        };
        Line::new("databases", name, workload, machine.clone())
    }
}

/// What all lines of a run share.
struct Run<'a> {
    options: &'a DatabasesOptions,
    shared: Shared,
    machine: Machine,
}

/// Runs `bench databases`. Each line goes to `emit` as soon as it is there. Without pgbench and PostgreSQL
/// the lines that need them say so.
pub fn databases(
    options: &DatabasesOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    options.check()?;
    let _ = writeln!(progress, "databases: starting");
    let mut target = options.target.clone();
    // pgbench says no password, to us as to PostgreSQL.
    target.settings.push(("sql.password_file".into(), String::new()));
    let shared = Ours::start(&options.common, &target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let run = Run { options, shared, machine };
    let mut lines = Vec::new();
    for name in DATABASE_LINES.into_iter().filter(|name| options.common.wants(name)) {
        let _ = writeln!(progress, "databases {name}");
        let line = match name {
            PUT | GET | AMONG => run.tables(name, progress)?,
            name => run.beside(name, progress)?,
        };
        let _ = writeln!(progress, "{}", line.in_words());
        emit(&line);
        lines.push(line);
    }
    plot::write(&options.common, "databases", &lines)?;
    Ok(lines)
}

impl Run<'_> {
    /// A table in a database beside one with a partition of its own, or beside one among few.
    fn tables(&self, name: &str, progress: &mut dyn Write) -> Result<Line, BenchError> {
        let (options, kind) = (self.options, self.options.kind());
        let updates = if name == PUT { 100 } else { 0 };
        let workload: Workload = options.load.workload(updates, options.common.seed);
        let clients = options.load.clients;
        let inside = |tables| TableUnderLoad::inside(&self.shared, &kind, &workload, clients, tables);
        let (mut ours, mut base) = match name {
            AMONG => (inside(options.tables)?, inside(1)?),
            _ => (inside(1)?, TableUnderLoad::new(&self.shared, &kind, &workload, clients)?),
        };
        let series = interleave(&mut [&mut ours, &mut base], options.common.plan(), progress)?;
        Ok(options.line(name, &self.machine).compared(&series[0], &series[1], Some(AS_CHEAP)))
    }

    /// pgbench against both.
    fn beside(&self, name: &str, progress: &mut dyn Write) -> Result<Line, BenchError> {
        let options = self.options;
        let line = options.line(name, &self.machine);
        if postgres::installed().is_none() || !pgbench::installed() {
            return Ok(line.skipped(MISSING));
        }
        let (script, goal) = match name {
            INIT => return self.filling(line, progress),
            SELECT => (Script::Select, 1.0),
            GLOBAL => (Script::Tpcb, 0.8),
            _ => (Script::Tpcb, 1.0),
        };
        let partitions = if name == GLOBAL { PARTITIONS } else { 1 };
        let mut ours = Bank::new(options, Place::ours(options, &self.shared, partitions)?, script, progress)?;
        let mut theirs = Bank::new(options, Place::theirs(options)?, script, progress)?;
        let series = interleave(&mut [&mut ours, &mut theirs], options.common.plan(), progress)?;
        ours.check()?;
        theirs.check()?;
        let mut line = line.compared(&series[0], &series[1], Some(goal));
        for (side, bank) in [("ours", &ours), ("base", &theirs)] {
            line.workload.insert(format!("done_{side}"), bank.done());
        }
        Ok(line)
    }

    /// `pgbench -i`, an operation of which is a row. Each round fills all tables, however long that takes.
    fn filling(&self, line: Line, progress: &mut dyn Write) -> Result<Line, BenchError> {
        let options = self.options;
        let mut ours = Filling::new(options, Place::ours(options, &self.shared, 1)?);
        let mut theirs = Filling::new(options, Place::theirs(options)?);
        let plan: RoundPlan = options.common.plan();
        let series = interleave(&mut [&mut ours, &mut theirs], plan, progress)?;
        Ok(line.compared(&series[0], &series[1], Some(AS_FAST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_is_refused_with_a_sentence() {
        let refused = |options: DatabasesOptions| {
            databases(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused").to_string()
        };
        let mut options = DatabasesOptions::default();
        options.common.only = vec!["views".into()];
        assert!(refused(options).contains(TPCB));
        assert!(refused(DatabasesOptions { scale: 0, ..DatabasesOptions::default() }).contains("--scale"));
        assert!(refused(DatabasesOptions { tables: 1, ..DatabasesOptions::default() }).contains("--tables"));
    }
}
