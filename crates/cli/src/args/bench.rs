//! `bench`: its help and its options.

use bench::{Asking, Distribution, Letter, Peer};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `understudy bench`.
#[derive(Subcommand, Debug)]
#[command(after_help = "Examples:
  understudy bench log
  understudy bench ycsb --only semi --json
  understudy bench ycsb --policy sync --engine lsm --updates 100
  understudy bench compare --peer postgres --seconds 5

Each line is one comparison: a ratio from interleaved rounds, its goal, and the reason where the goal was missed. With --json
each is one object. Everything runs on this machine, in temporary directories, and is stopped at the end.")]
pub enum BenchCommand {
    /// The write-ahead log against a bare thread that writes the same batches.
    Log(LogArgs),
    /// Policies and engines against each other, with the mix of YCSB.
    Ycsb(YcsbArgs),
    /// The same load on us and on Redis or PostgreSQL, with two backups each.
    Compare(CompareArgs),
    /// The SQL gateway beside PostgreSQL: SELECT and UPDATE by key, counts, psql.
    Sql(SqlArgs),
    /// TPC-C's tables, transactions and mix, as SQL on us and on PostgreSQL.
    Tpcc(TpccArgs),
    /// One node with two executors on two cores, against one with one on one.
    Executors(ExecutorsArgs),
    /// Calls of a procedure that reads and writes one row: compiled in, and in the language for users.
    Calls(CallsArgs),
    /// Tables in a database, and pgbench unchanged, on us and on PostgreSQL.
    Databases(DatabasesArgs),
    /// Transactions over partitions, lazy and synchronous persistence, and a server that fails.
    Txn(TxnArgs),
    /// The experiments of the AsterixDB replication document: ingestion, queries, failover, failback; and
    /// moves of copies.
    Gleambook(GleambookArgs),
}

/// What every bench takes.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// Only lines, or experiments, whose names begin so.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub only: Vec<String>,
    /// Length of one round. [default: 3; of `txn` and `gleambook`: 2; of `ycsb --sweep`: 1]
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Rounds of each side; fewer than five make a weak ratio. [default: 5; of `txn` and `ycsb --sweep`: 3;
    /// of `gleambook`: 2]
    #[arg(long)]
    pub rounds: Option<u32>,
    /// Where temporary files go: its disk is part of what is measured. (--dir is a dev cluster's.)
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
    /// Also draw the lines as an SVG file there.
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Decides keys and values.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `understudy bench log`.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// A program built from tools/bench/raft-engine, to be measured in the same rounds.
    #[arg(long, value_name = "PROGRAM")]
    pub raft_engine: Option<PathBuf>,
}

/// What benches of a cluster take.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Records in each table.
    #[arg(long, default_value_t = 10_000)]
    pub records: u64,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1_024)]
    pub value_bytes: usize,
    /// Clients, each of which waits for its answer.
    #[arg(long, default_value_t = 10)]
    pub clients: u32,
    /// Partitions of each table. [default: 6; of `ycsb --sweep`: 1]
    #[arg(long)]
    pub partitions: Option<u32>,
}

/// `understudy bench ycsb`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy bench ycsb --only semi --json
  understudy bench ycsb --workload a,b,c,d,e,f
  understudy bench ycsb --workload a --by procedure --rate 2000 --log memory
  understudy bench ycsb --sweep --cpu-quota 30 --plot figures
  understudy bench ycsb --sweep --by procedure --ship calls --updates 100

Without --rate each client begins an operation when it has the answer to the one before. With --rate operations begin at their own
times, and latency counts from then, whether a client was free or not. --sweep measures throughput and latency over the share of
updates, without replication and with each way to replicate, with one backup and with two.")]
pub struct YcsbArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What benches of a cluster take.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Shares of updates, in percent. [default: 0,50,100; with --sweep 0,20,40,60,80,100]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(..=100))]
    pub updates: Vec<u8>,
    /// How keys are drawn. [default: uniform; of a workload its own]
    #[arg(long, value_enum)]
    pub distribution: Option<Keys>,
    /// YCSB's own workloads, instead of shares of updates.
    #[arg(long, value_delimiter = ',', value_name = "a..f", conflicts_with = "updates")]
    pub workload: Vec<Letter>,
    /// By what operations are asked for: calls of a table, or of procedures in a database of one partition.
    #[arg(long, default_value = "put", value_name = "put|procedure")]
    pub by: Asking,
    /// What backups are sent of calls of procedures; with `calls` a second database is sent effects, for
    /// comparison (not with --sweep).
    #[arg(long, value_enum, default_value_t = super::cluster::ShipArg::Effects)]
    pub ship: super::cluster::ShipArg,
    /// So many operations are to begin in each second.
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Gives each node so many percent of a processor, where the system permits it.
    #[arg(long, value_name = "PERCENT")]
    pub cpu_quota: Option<u32>,
    /// Throughput and latency over the share of updates, for each way to replicate.
    #[arg(long, conflicts_with_all = ["workload", "factor", "policy", "engine", "log"])]
    pub sweep: bool,
    /// The sweep with 30 s of warm-up, 120 s for each point and 300,000 operations offered a second: hours.
    #[arg(long, requires = "sweep")]
    pub paper_times: bool,
    /// Copies. With this or one of the next three, that table alone is measured.
    #[arg(long)]
    pub factor: Option<u8>,
    /// Policy.
    #[arg(long)]
    pub policy: Option<String>,
    /// Engine.
    #[arg(long, value_enum)]
    pub engine: Option<super::cluster::EngineArg>,
    /// Where the table's log lies.
    #[arg(long, value_enum)]
    pub log: Option<super::cluster::LogArg>,
}

/// `understudy bench compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Against whom.
    #[arg(long, value_name = "redis|postgres", value_parser = peer)]
    pub peer: Peer,
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What benches of a cluster take.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// `understudy bench sql`.
#[derive(Args, Debug)]
pub struct SqlArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What benches of a cluster take.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Rows of the table that is counted.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: u64,
}

/// `understudy bench tpcc`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy bench tpcc
  understudy bench tpcc --warehouses 1 --partitions 1 --items 1000 --customers 30
  understudy bench tpcc --by procedure --ship calls --policy sync
  understudy bench tpcc --by procedure --faults kill,stop,cut --items 1000 --customers 30

The specification's conditions of consistency are checked when the rows are loaded and behind all rounds, on each replica, and all
replicas must have the same rows then; with --faults behind each round. What deviates from the specification is named in the line; rows
of other warehouses are asked for with --remote alone.")]
pub struct TpccArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Warehouses.
    #[arg(long, default_value_t = 2)]
    pub warehouses: u64,
    /// Customers of each district, and its orders at first.
    #[arg(long, default_value_t = 3_000)]
    pub customers: u64,
    /// Items.
    #[arg(long, default_value_t = 100_000)]
    pub items: u64,
    /// Terminals, each of which waits for its answer.
    #[arg(long, default_value_t = 10)]
    pub clients: u32,
    /// Partitions of our database.
    #[arg(long, default_value_t = 2)]
    pub partitions: u32,
    /// Policy of our database.
    #[arg(long, default_value = "durable")]
    pub policy: String,
    /// Engine of our database. [default: lsm]
    #[arg(long, value_enum)]
    pub engine: Option<super::cluster::EngineArg>,
    /// Each transaction as statements over the gateway, or as a call of a procedure that is compiled in.
    #[arg(long, value_enum, default_value_t = TpccByArg::Sql)]
    pub by: TpccByArg,
    /// What backups are sent of a call.
    #[arg(long, value_enum, default_value_t = super::cluster::ShipArg::Effects)]
    pub ship: super::cluster::ShipArg,
    /// By procedure: a round for each of kill, stop and cut, in the middle of which it happens to the node
    /// that leads most.
    #[arg(long, value_delimiter = ',', value_name = "FAULT", value_parser = fault)]
    pub faults: Vec<local::demo::Fault>,
    /// By SQL: payments of a hundred that are of another warehouse's customers, and order lines of 1,500 that
    /// another warehouse supplies. The specification has 15. With any, transactions are global.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub remote: u32,
}

/// `understudy bench calls`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy bench calls
  understudy bench calls --only calls-wasm --clients 10
  understudy bench calls --factor 3 --policy semi --ship calls

Each line is calls a second beside its goal, for a database of one partition in memory. Behind the rounds the numbers in the table must add
up to the calls that were answered.")]
pub struct CallsArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Rows of the table.
    #[arg(long, default_value_t = 10_000)]
    pub rows: u64,
    /// Calls that are on their way at once.
    #[arg(long, default_value_t = 100)]
    pub clients: u32,
    /// Copies.
    #[arg(long, default_value_t = 1)]
    pub factor: u8,
    /// Policy. [default: none with one copy, else semi]
    #[arg(long)]
    pub policy: Option<String>,
    /// Engine.
    #[arg(long, value_enum, default_value_t = super::cluster::EngineArg::Memory)]
    pub engine: super::cluster::EngineArg,
    /// Where the database's log lies.
    #[arg(long, value_enum, default_value_t = super::cluster::LogArg::Memory)]
    pub log: super::cluster::LogArg,
    /// What backups are sent of a call.
    #[arg(long, value_enum, default_value_t = super::cluster::ShipArg::Effects)]
    pub ship: super::cluster::ShipArg,
}

/// `understudy bench executors`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy bench executors
  understudy bench executors --only executors-get --clients 256

One copy, engine and log in memory. Node and load generator run on the same cores; the ratio is that of the rates without the generator's
share of their time (`ops_s_without_generator`).")]
pub struct ExecutorsArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Records of the table.
    #[arg(long, default_value_t = 10_000)]
    pub records: u64,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1_024)]
    pub value_bytes: usize,
    /// Calls that are on their way at once.
    #[arg(long, default_value_t = 64)]
    pub clients: u32,
    /// Partitions of the table.
    #[arg(long, default_value_t = 16)]
    pub partitions: u32,
}

/// `understudy bench databases`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy bench databases
  understudy bench databases --only pgbench-tpcb,pgbench-select --seconds 10
  understudy bench databases --only pgbench-tpcb-global --scale 100 --policy async

A table in a database beside one with a partition of its own, a table among many, and pgbench as PostgreSQL has it (-i, its own
transaction, -S) beside PostgreSQL with two synchronous standbys. Rounds with pgbench last whole seconds. Behind them the sums of
accounts, tellers, branches and history must be equal, and all replicas must have the same rows; aborts of a transaction are in the line.")]
pub struct DatabasesArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Records of a table that is not pgbench's.
    #[arg(long, default_value_t = 10_000)]
    pub records: u64,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1_024)]
    pub value_bytes: usize,
    /// Clients, pgbench's too, each of which waits for its answer.
    #[arg(long, default_value_t = 10)]
    pub clients: u32,
    /// pgbench's scale: 100,000 accounts each.
    #[arg(long, default_value_t = 10)]
    pub scale: u32,
    /// Tables of the database that has many.
    #[arg(long, default_value_t = 1_000)]
    pub tables: u32,
    /// Policy of our databases.
    #[arg(long, default_value = "durable")]
    pub policy: String,
}

/// `understudy bench txn`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy bench txn --plot figures
  understudy bench txn --only persistence --servers 3 --clients 1,50 --check
  understudy bench txn --only failure --rate 250 --rounds 5
  understudy bench txn --only manager --json

A transaction is ten row operations, half of which write. Experiments: persistence (response time over throughput, lazy and
synchronous), interval (of the recovery manager's passes), failure (throughput and response time over time while a server is
killed, four rounds long) and manager (commits alone). Behind a failure what was acknowledged is compared with the rows on every replica; with
--check behind every experiment.")]
pub struct TxnArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Rows of the table. [default: 50000; with --paper: 500000]
    #[arg(long)]
    pub rows: Option<u64>,
    /// Bytes of a row's value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Clients, each of which waits for its answer; other experiments than the first have the last number.
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [1, 10, 25, 50])]
    pub clients: Vec<u32>,
    /// Servers; other experiments than the first have the first number.
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [2, 3])]
    pub servers: Vec<u32>,
    /// Copies. [default: one on each server, at most three]
    #[arg(long)]
    pub factor: Option<u8>,
    /// Partitions of the database.
    #[arg(long, default_value_t = 6)]
    pub partitions: u32,
    /// Row operations of a transaction.
    #[arg(long, default_value_t = 10)]
    pub operations: u32,
    /// How many of a hundred of them write.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(..=100))]
    pub updates: u8,
    /// Times between two passes of the recovery manager. [default: 50,200,1000,10000; with --paper more]
    #[arg(long, value_delimiter = ',', value_name = "MS")]
    pub intervals: Vec<u64>,
    /// Transactions that are to begin each second while a server fails.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 250.0)]
    pub rate: f64,
    /// Bytes of what the manager alone is asked to commit.
    #[arg(long, default_value_t = 200)]
    pub write_set_bytes: usize,
    /// How much of that is on its way at once.
    #[arg(long, default_value_t = 64)]
    pub flying: u32,
    /// Compare what was acknowledged with the rows, and the replicas with each other.
    #[arg(long)]
    pub check: bool,
    /// Rows and times as in the document.
    #[arg(long)]
    pub paper: bool,
}

/// How TPC-C's transactions are asked for.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TpccByArg {
    /// Statements.
    Sql,
    /// Calls of procedures.
    Procedure,
}

fn fault(text: &str) -> Result<local::demo::Fault, String> {
    text.parse().map_err(|error: local::LocalError| error.to_string())
}

/// `understudy bench gleambook`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy bench gleambook --plot figures
  understudy bench gleambook --only ingestion-by-factor --records 1000000 --json

Each configuration is one JSON object with --json; otherwise each experiment is a table, with increases in percent beside times. Three
nodes share this machine, and sizes of data sets and memory components have the document's proportions to --records, so increases
compare with the document's and times do not. Data sets below the largest have half as many rounds.")]
pub struct GleambookArgs {
    /// What every bench takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Records of the largest data set, 384 bytes each.
    #[arg(long, default_value_t = bench::gleambook::RECORDS)]
    pub records: u64,
    /// Data sets, in twentieths of the largest.
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = bench::gleambook::SIZES)]
    pub sizes: Vec<u64>,
    /// Partitions of each table.
    #[arg(long, default_value_t = 6)]
    pub partitions: u32,
    /// Copies that are moved, one after the other.
    #[arg(long, default_value_t = 50)]
    pub moves: u32,
    /// What backups do, where an experiment does not compare both.
    #[arg(long, value_enum, default_value_t = super::cluster::StandbyArg::Cold)]
    pub standby: super::cluster::StandbyArg,
}

/// How keys are drawn.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// All alike.
    Uniform,
    /// A few much more often than the others.
    Zipfian,
    /// The newest much more often than the others.
    Latest,
}

impl From<Keys> for Distribution {
    fn from(keys: Keys) -> Distribution {
        match keys {
            Keys::Uniform => Distribution::Uniform,
            Keys::Zipfian => Distribution::Zipfian,
            Keys::Latest => Distribution::Latest,
        }
    }
}

fn peer(text: &str) -> Result<Peer, String> {
    text.parse()
}
