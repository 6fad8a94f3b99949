//! `bench tpcc`: TPC-C's tables, transactions and mix, as SQL over the gateway and beside it on PostgreSQL,
//! in interleaved rounds.
//!
//! What is not as the specification has it, each named in the line: no think times (a closed loop), every
//! warehouse has its own copy of the items (all primary keys begin with the warehouse), no row of another
//! warehouse is asked for, and `history` has a key. The consistency conditions are checked when the rows are
//! loaded and behind all rounds, and all replicas must have the same rows then.

mod conditions;
mod draw;
mod load;
mod schema;
mod subjects;
mod transactions;

use crate::cluster::{Ours, Target};
use crate::error::BenchError;
use crate::options::Common;
use crate::peers::postgres;
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::interleave;
use serde_json::json;
use std::io::Write;
use subjects::{Gateway, Theirs};

/// Districts of a warehouse.
const DISTRICTS: u64 = 10;

const SQL: &str = "sql-vs-postgres";
/// Names of the lines.
pub const TPCC_LINES: [&str; 1] = [SQL];

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
        Ok(())
    }

    fn line(&self, name: &str, machine: &Machine) -> Line {
        let scale = self.scale;
        let workload = json!({
            "warehouses": scale.warehouses, "customers": scale.customers, "items": scale.items,
            "clients": self.clients, "partitions": self.partitions, "remote_percent": 0,
            "mix": "45 % new order, 43 % payment, 4 % each of order status, delivery, stock level",
            "deviations": "no think times; items are copied to each warehouse; no remote rows; history has a key",
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
    let shared = Ours::start(&options.common, &target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let mut ours = Gateway::start(options, &shared, progress)?;
    let line = options.line(SQL, &machine);
    let line = match postgres::installed() {
        None => {
            interleave(&mut [&mut ours], options.common.plan(), progress)?;
            line.skipped("PostgreSQL's initdb, postgres and pg_basebackup are not installed")
        }
        Some(_) => {
            let mut theirs = Theirs::start(options, progress)?;
            let series = interleave(&mut [&mut ours, &mut theirs], options.common.plan(), progress)?;
            theirs.check()?;
            line.compared(&series[0], &series[1], Some(1.0))
        }
    };
    ours.check()?;
    let _ = writeln!(progress, "tpcc: {}", ours.told());
    let _ = writeln!(progress, "{}", line.in_words());
    emit(&line);
    let lines = vec![line];
    plot::write(&options.common, "tpcc", &lines)?;
    Ok(lines)
}
