//! `bench tpcc`: TPC-C's tables, transactions and mix, as procedures or as SQL over the gateway, and beside
//! it as SQL on PostgreSQL, in interleaved rounds; or as procedures while nodes fail.
//!
//! What is not as the specification has it, each named in the line: no think times (a closed loop), every
//! warehouse has its own copy of the items (all primary keys begin with the warehouse), no row of another
//! warehouse is asked for (but with `--remote`), `history` has a key, and procedures keep two tables more,
//! where SQL has indexes. The consistency conditions are checked when the rows are loaded and behind all
//! rounds, on each replica, and all replicas must have the same rows then.

mod calls;
mod conditions;
mod draw;
mod faults;
mod load;
mod procedures;
mod programs;
mod replicas;
mod schema;
mod subjects;
mod transactions;

use crate::cluster::{Ours, Shared, Target};
use crate::error::BenchError;
use crate::options::Common;
use crate::peers::postgres;
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::{Subject, interleave};
use local::demo::Fault;
use procedures::Procedures;
pub use programs::tpcc_programs;
use serde_json::json;
use std::io::Write;
use subjects::{Gateway, Theirs};
use types::{EngineKind, Ship};

/// Districts of a warehouse.
const DISTRICTS: u64 = 10;

const SQL: &str = "sql-vs-postgres";
const PROCEDURE: &str = "procedure-vs-postgres";
const UNDER_FAULTS: &str = "procedure-under-faults";
/// Names of the lines.
pub const TPCC_LINES: [&str; 3] = [SQL, PROCEDURE, UNDER_FAULTS];
/// A shorter round leaves no time for a fault, what follows from it, and its end.
const LEAST_FAULTY_SECONDS: f64 = 2.0;

/// How our transactions are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    /// As statements over the gateway.
    #[default]
    Sql,
    /// As calls of procedures that are compiled in.
    Procedure,
}

/// How many rows there are at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// `--warehouses N`.
    pub warehouses: u64,
    /// `--customers N` of each district; the specification's 3,000.
    pub customers: u64,
    /// `--items N`; the specification's 100,000.
    pub items: u64,
}

/// Options of `bench tpcc`.
#[derive(Clone, Debug)]
pub struct TpccOptions {
    /// Options of every bench.
    pub common: Common,
    /// Which cluster of ours: one that is started.
    pub target: Target,
    /// How many rows there are at first.
    pub scale: Scale,
    /// `--clients N`: terminals, spread over the warehouses.
    pub clients: u32,
    /// `--partitions N` of our database.
    pub partitions: u32,
    /// `--policy NAME` of our database.
    pub policy: String,
    /// `--engine lsm|memory` of our database.
    pub engine: EngineKind,
    /// `--by sql|procedure`.
    pub by: By,
    /// `--ship effects|calls`: what backups are sent of a call.
    pub ship: Ship,
    /// `--faults kill,stop,cut`: by procedure, a round for each, in the middle of which it happens to the
    /// node that leads most. Nothing is compared then.
    pub faults: Vec<Fault>,
    /// `--remote PERCENT` of payments that are of another warehouse's customers, and a fifteenth of it of
    /// order lines that another warehouse supplies: the specification's is 15. With any, transactions of our
    /// database are global.
    pub remote: u32,
}

impl Default for TpccOptions {
    fn default() -> TpccOptions {
        TpccOptions {
            common: Common::default(),
            target: Target::default(),
            scale: Scale { warehouses: 2, customers: 3_000, items: 100_000 },
            clients: 10,
            partitions: 2,
            policy: "durable".into(),
            engine: EngineKind::Lsm,
            by: By::Sql,
            ship: Ship::Effects,
            faults: Vec::new(),
            remote: 0,
        }
    }
}

impl TpccOptions {
    fn check(&self) -> Result<(), BenchError> {
        self.common.check(&TPCC_LINES)?;
        let usage = |sentence: &str| Err(BenchError::Usage(sentence.into()));
        let scale = self.scale;
        if scale.warehouses == 0 || self.clients == 0 || self.partitions == 0 {
            return usage("warehouses, clients and partitions are at least 1");
        }
        if scale.customers < 10 || scale.items < 20 {
            return usage("there are at least 10 customers of each district and 20 items");
        }
        if self.remote > 100 {
            return usage("--remote is a share of 100");
        }
        if self.remote > 0 && self.by == By::Procedure {
            return usage(
                "--remote goes with --by sql: a call reaches the rows of one warehouse's partition",
            );
        }
        if self.remote > 0 && self.scale.warehouses < 2 {
            return usage("with --remote there are at least 2 warehouses");
        }
        if self.by == By::Sql && (!self.faults.is_empty() || !self.ship.is_effects()) {
            return usage("--faults and --ship calls go with --by procedure");
        }
        if self.faults.contains(&Fault::Power) {
            return usage("a power loss is played by `understudy check`: choose of kill, stop, cut");
        }
        if !self.faults.is_empty() && self.common.seconds < LEAST_FAULTY_SECONDS {
            return usage("a round with a fault takes 2 seconds at least");
        }
        Ok(())
    }

    /// What our database is, in a few words.
    fn kind(&self) -> String {
        let global = if self.remote > 0 { " with global transactions" } else { "" };
        format!("{}, engine {}, {} partitions{global}", self.policy, self.engine.name(), self.partitions)
    }

    /// What is not as the specification has it.
    fn deviations(&self) -> String {
        let remote = match self.remote {
            0 => "no remote rows".into(),
            15 => "remote rows as specified".into(),
            remote => format!(
                "{remote} % of payments and {:.2} % of order lines are remote",
                f64::from(remote) / 15.0
            ),
        };
        let all = format!("no think times; items are copied to each warehouse; {remote}; history has a key");
        match self.by {
            By::Sql => all,
            By::Procedure => {
                format!("{all}; two more tables, customer_name and last_order, stand for indexes")
            }
        }
    }

    fn line(&self, name: &str, machine: &Machine) -> Line {
        let scale = self.scale;
        let workload = json!({
            "warehouses": scale.warehouses, "customers": scale.customers, "items": scale.items,
            "clients": self.clients, "partitions": self.partitions, "remote_percent": self.remote,
            "by": if self.by == By::Sql { "sql" } else { "procedure" },
            "faults": self.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "mix": "45 % new order, 43 % payment, 4 % each of order status, delivery, stock level",
            "engine": self.engine.name(),
            "deviations": self.deviations(),
        });
        Line::new("tpcc", name, workload, machine.clone())
    }
}

/// Runs `bench tpcc`. Each line goes to `emit` as soon as it is there. Without PostgreSQL only ours is run,
/// and that is said.
pub fn tpcc(
    options: &TpccOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    options.check()?;
    let _ = writeln!(progress, "tpcc: starting");
    let mut target = options.target.clone();
    // The terminals say no password, to us as to PostgreSQL.
    target.settings.push(("sql.password_file".into(), String::new()));
    target.faults = !options.faults.is_empty();
    let shared = Ours::start(&options.common, &target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let line = match (options.by, options.faults.is_empty()) {
        (By::Sql, _) => {
            let mut ours = Gateway::start(options, &shared, progress)?;
            let line = beside(options, (SQL, 1.0), &mut ours, &machine, progress)?;
            ours.check()?;
            let _ = writeln!(progress, "tpcc: {}", ours.told());
            line
        }
        (By::Procedure, true) => {
            let mut ours = Procedures::start(options, &shared, progress)?;
            let line = beside(options, (PROCEDURE, 5.0), &mut ours, &machine, progress)?;
            ours.check(progress)?;
            let _ = writeln!(progress, "tpcc: {}", ours.told());
            line
        }
        (By::Procedure, false) => under_faults(options, &shared, &machine, progress)?,
    };
    let _ = writeln!(progress, "{}", line.in_words());
    emit(&line);
    let lines = vec![line];
    plot::write(&options.common, "tpcc", &lines)?;
    Ok(lines)
}

/// Ours beside the same as SQL on PostgreSQL.
fn beside(
    options: &TpccOptions,
    (name, goal): (&str, f64),
    ours: &mut dyn Subject,
    machine: &Machine,
    progress: &mut dyn Write,
) -> Result<Line, BenchError> {
    let line = options.line(name, machine);
    if postgres::installed().is_none() {
        let series = interleave(&mut [ours], options.common.plan(), progress)?;
        let missing = "PostgreSQL's initdb, postgres and pg_basebackup are not installed";
        return Ok(if name == SQL { line.skipped(missing) } else { line.alone(&series[0]) });
    }
    let mut theirs = Theirs::start(options, progress)?;
    let series = interleave(&mut [ours, &mut theirs], options.common.plan(), progress)?;
    theirs.check()?;
    Ok(line.compared(&series[0], &series[1], Some(goal)))
}

/// A round for each fault. The conditions are looked at on each replica behind each.
fn under_faults(
    options: &TpccOptions,
    shared: &Shared,
    machine: &Machine,
    progress: &mut dyn Write,
) -> Result<Line, BenchError> {
    let mut ours = Procedures::start(options, shared, progress)?;
    ours.run(options.common.plan().warm_up)?;
    for fault in &options.faults {
        let _ = writeln!(progress, "tpcc: the node that leads most is {}", fault.done());
        ours.fail(*fault);
        ours.run(options.common.plan().time)?;
        ours.check(progress)?;
    }
    let _ = writeln!(progress, "tpcc: {}", ours.told());
    let mut line = options.line(UNDER_FAULTS, machine);
    line.workload.insert("done".into(), ours.done());
    Ok(line.skipped("nodes fail in the middle of each round, so speed is not measured"))
}
