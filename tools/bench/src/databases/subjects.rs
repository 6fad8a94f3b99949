//! Both sides of pgbench: a database of ours at one node's gateway, and PostgreSQL with two standbys.

use super::DatabasesOptions;
use super::pgbench::{Address, Counts, Script};
use crate::cluster::Shared;
use crate::error::BenchError;
use crate::peers::postgres::{self, Servers};
use crate::peers::session::Session;
use crate::subject::{Counters, Load, Sources, Subject, Way};
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;

/// The user of our gateway, and the database that is always there.
const US: &str = "understudy";
/// Money never comes or goes: the sum of all accounts is that of the tellers, the branches and the history.
const SUMS: &str = "SELECT (SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts), \
                    (SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers), \
                    (SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches), \
                    (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";
/// pgbench's tables with the keys that it gives them behind their rows: rows that are there already do not
/// get other keys in a database of several partitions.
const KEYED: &str = "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22)); \
                     CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84)); \
                     CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84)); \
                     CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88))";
/// Tables whose rows all replicas must have alike.
const TABLES: [&str; 4] = ["accounts", "tellers", "branches", "history"];

/// Where pgbench's tables are.
pub enum Place {
    /// A database of a cluster of ours.
    Ours {
        /// The cluster.
        shared: Shared,
        /// The gateway of its first node, and the database.
        address: Address,
        /// What the database is, in a few words.
        kind: String,
        /// It has several partitions.
        several: bool,
    },
    /// A primary with two standbys.
    Theirs {
        /// All three.
        servers: Servers,
        /// The primary.
        address: Address,
    },
}

impl Place {
    /// Makes a database of so many partitions; with more than one its transactions are global.
    pub fn ours(options: &DatabasesOptions, shared: &Shared, partitions: u32) -> Result<Place, BenchError> {
        let first = shared.borrow().sql_addresses()?.swap_remove(0);
        let server = first.parse().map_err(|error| BenchError::Wrong(format!("{first}: {error}")))?;
        let database = shared.borrow_mut().fresh_name();
        let global = if partitions > 1 { ", transactions = global" } else { "" };
        let with = format!("partitions = {partitions}, policy = {}{global}", options.policy);
        let address = Address { server, user: US, database };
        let made = format!("CREATE DATABASE {} WITH ({with})", address.database);
        session(&Address { database: US.into(), ..address.clone() })?.simple(&made)?;
        Ok(Place::Ours { shared: shared.clone(), address, kind: with, several: partitions > 1 })
    }

    /// Starts PostgreSQL.
    pub fn theirs(options: &DatabasesOptions) -> Result<Place, BenchError> {
        let servers = Servers::start(&options.common)?;
        let address =
            Address { server: servers.primary(), user: postgres::USER, database: postgres::USER.into() };
        Ok(Place::Theirs { servers, address })
    }

    fn address(&self) -> &Address {
        match self {
            Place::Ours { address, .. } | Place::Theirs { address, .. } => address,
        }
    }

    fn has_several(&self) -> bool {
        matches!(self, Place::Ours { several: true, .. })
    }

    fn label(&self) -> String {
        match self {
            Place::Ours { kind, .. } => format!("understudy SQL, {kind}"),
            Place::Theirs { servers, .. } => {
                format!("postgresql {}, two standbys, synchronous_commit = on", servers.major())
            }
        }
    }

    fn processes(&self) -> Vec<u32> {
        match self {
            Place::Ours { shared, .. } => shared.borrow().processes(),
            Place::Theirs { servers, .. } => servers.processes(),
        }
    }

    fn sources(&self) -> Sources {
        match self {
            Place::Ours { .. } => Sources { wire: "", fsyncs: "NodeStatus.fsyncs of all nodes" },
            Place::Theirs { .. } => postgres::SOURCES,
        }
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        match self {
            Place::Ours { shared, .. } => {
                Ok(Counters { fsyncs: Some(shared.borrow_mut().fsyncs()?), ..Counters::default() })
            }
            Place::Theirs { servers, .. } => servers.counters(),
        }
    }
}

fn session(address: &Address) -> Result<Session, BenchError> {
    let stream = TcpStream::connect(address.server)
        .map_err(|error| BenchError::io(format!("{} cannot be connected to", address.server), error))?;
    Session::start(stream, address.user, &address.database)
}

/// A bank that is filled, under pgbench.
pub struct Bank {
    place: Place,
    script: Script,
    clients: u32,
    counts: Counts,
    /// pgbench's logs of transactions.
    folder: TempDir,
}

impl Bank {
    /// Fills the bank.
    pub fn new(
        options: &DatabasesOptions,
        place: Place,
        script: Script,
        progress: &mut dyn Write,
    ) -> Result<Bank, BenchError> {
        if place.has_several() {
            session(place.address())?.simple(KEYED)?;
        }
        let filled = place.address().fill(options.scale, place.has_several())?;
        let (rows, seconds) = (filled.ops, filled.elapsed.as_secs_f64());
        let _ = writeln!(progress, "databases: {}: {rows} accounts in {seconds:.1} s", place.label());
        let folder = options.common.folder("pgbench")?;
        Ok(Bank { place, script, clients: options.load.clients, counts: Counts::default(), folder })
    }

    /// Refuses money that came or went, and replicas that differ.
    pub fn check(&mut self) -> Result<(), BenchError> {
        let rows = session(self.place.address())?.simple(SUMS)?;
        let sums: Vec<&str> = rows.iter().flatten().map(|sum| sum.as_deref().unwrap_or("null")).collect();
        if sums.len() != TABLES.len() || sums.iter().any(|sum| *sum != sums[0]) {
            return Err(BenchError::Wrong(format!("{}: the bank's sums are {sums:?}", self.place.label())));
        }
        if let Place::Ours { shared, address, .. } = &self.place {
            for table in TABLES {
                shared.borrow_mut().check_replicas(&format!("{}.pgbench_{table}", address.database))?;
            }
        }
        Ok(())
    }

    /// What became of the transactions.
    pub fn done(&self) -> serde_json::Value {
        let Counts { processed, failed, retries, .. } = self.counts;
        let each = retries as f64 / processed.max(1) as f64;
        json!({ "transactions": processed, "failed": failed, "aborts_per_transaction": crate::stats::tidy(each) })
    }
}

impl Subject for Bank {
    fn label(&self) -> String {
        let what = if self.script == Script::Tpcb { "TPC-B" } else { "-S" };
        format!("{}, pgbench's {what}", self.place.label())
    }

    fn settings(&self) -> String {
        format!(
            "pgbench, {} clients, one thread, -M prepared, --max-tries=1000, all at {}",
            self.clients,
            if matches!(self.place, Place::Ours { .. }) { "the first node" } else { "the primary" }
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.place.processes()
    }

    fn sources(&self) -> Sources {
        self.place.sources()
    }

    fn way(&self) -> Way {
        // A transaction asks seven statements, of which the last one waits for copies.
        let update = if self.script == Script::Tpcb { 100 } else { 0 };
        let way = Way::of_copies(3, 3, true, update);
        let others = if self.script == Script::Tpcb { 12.0 } else { 0.0 };
        Way { messages: way.messages + others, ..way }
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.place.counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let (script, clients) = (self.script, self.clients);
        let (load, counts) = self.place.address().run(script, clients, time, self.folder.path())?;
        self.counts.add(counts);
        Ok(load)
    }
}

/// `pgbench -i`, again and again.
pub struct Filling {
    place: Place,
    scale: u32,
}

impl Filling {
    /// Of the options' scale.
    pub fn new(options: &DatabasesOptions, place: Place) -> Filling {
        Filling { place, scale: options.scale }
    }
}

impl Subject for Filling {
    fn label(&self) -> String {
        format!("{}, accounts of pgbench -i -s {}", self.place.label(), self.scale)
    }

    fn processes(&self) -> Vec<u32> {
        self.place.processes()
    }

    fn sources(&self) -> Sources {
        self.place.sources()
    }

    fn way(&self) -> Way {
        Way::of_copies(3, 3, true, 100)
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.place.counters()
    }

    fn run(&mut self, _time: Duration) -> Result<Load, BenchError> {
        self.place.address().fill(self.scale, false)
    }
}
