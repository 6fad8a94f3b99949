//! Terminals at work on our gateway or on PostgreSQL, each a thread with a connection of its own.

use super::draw::Draw;
use super::transactions::{Done, Terminal};
use super::{By, DISTRICTS, TpccOptions, conditions, load, replicas};
use crate::cluster::{Shared, WAIT_LIMIT};
use crate::error::BenchError;
use crate::peers::postgres::{self, Servers};
use crate::peers::session::Session;
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Our user, and the database that holds the tables.
const US: &str = "understudy";
pub(super) const DATABASE: &str = "tpcc";

/// Between two looks at how far partitions are.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often a transaction is tried again because others were in its way.
const MAX_TRIES: u32 = 1_000;

/// Terminals of one side, and what became of their transactions.
struct Terminals {
    all: Vec<Terminal>,
    committed: u64,
    rolled_back: u64,
    /// Tries that others were in the way of.
    again: u64,
}

impl Terminals {
    fn new(options: &TpccOptions, sessions: Vec<Session>) -> Terminals {
        let (scale, seed) = (options.scale, options.common.seed);
        let terminal = |(session, number): (Session, u64)| Terminal {
            session,
            draw: Draw::new(seed ^ (number + 1) << 40, scale),
            scale,
            warehouse: number % scale.warehouses + 1,
            remote: u64::from(options.remote),
            // Behind what was loaded, and each terminal's own.
            history: scale.customers * DISTRICTS + (number + 1) * (1 << 40),
        };
        Terminals {
            all: sessions.into_iter().zip(0..).map(terminal).collect(),
            committed: 0,
            rolled_back: 0,
            again: 0,
        }
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let begun = Instant::now();
        let ran: Vec<Result<Ran, BenchError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .all
                .iter_mut()
                .map(|terminal| scope.spawn(move || Ran::of(terminal, begun, time)))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a terminal does not panic")).collect()
        });
        let mut load = Load::empty();
        for ran in ran {
            let ran = ran?;
            load.join(&ran.load);
            self.committed += ran.load.ops - ran.rolled_back;
            self.rolled_back += ran.rolled_back;
            self.again += ran.again;
        }
        load.elapsed = begun.elapsed();
        Ok(load)
    }
}

/// What one terminal did in a round.
struct Ran {
    load: Load,
    rolled_back: u64,
    again: u64,
}

impl Ran {
    fn of(terminal: &mut Terminal, begun: Instant, time: Duration) -> Result<Ran, BenchError> {
        let mut ran = Ran { load: Load::empty(), rolled_back: 0, again: 0 };
        while begun.elapsed() < time {
            let asked = Instant::now();
            let mut tries = 0;
            let done = loop {
                match terminal.step() {
                    Ok(done) => break done,
                    Err(refused) if refused.is_passing() && tries < MAX_TRIES => tries += 1,
                    Err(refused) => return Err(refused.into()),
                }
            };
            note(&mut ran.load.latencies, asked.elapsed());
            ran.load.ops += 1;
            ran.again += u64::from(tries);
            ran.rolled_back += u64::from(done == Done::RolledBack);
        }
        ran.load.elapsed = begun.elapsed();
        Ok(ran)
    }
}

/// A session with the gateway of one node or another.
fn open(shared: &Shared, at: usize, database: &str) -> Result<Session, BenchError> {
    let listeners = shared.borrow().sql_addresses()?;
    let address = &listeners[at % listeners.len()];
    let stream = TcpStream::connect(address)
        .map_err(|error| BenchError::io(format!("{address} cannot be connected to"), error))?;
    Session::start(stream, US, database)
}

/// Makes our database and fills it. Gives a session in it.
pub(super) fn made(
    options: &TpccOptions,
    shared: &Shared,
    by: By,
    progress: &mut dyn Write,
) -> Result<Session, BenchError> {
    let (partitions, policy) = (options.partitions, &options.policy);
    let spread = match (partitions, options.remote) {
        // Transactions write in the partitions of several warehouses.
        (_, 1..) => ", transactions = global",
        (2.., 0) => ", partition_by = '(w_id)'",
        _ => "",
    };
    let ship = if options.ship.is_effects() { "" } else { ", ship = calls" };
    let engine = options.engine.name();
    let with = format!("partitions = {partitions}, policy = {policy}, engine = {engine}{spread}{ship}");
    open(shared, 0, US)?.simple(&format!("CREATE DATABASE {DATABASE} WITH ({with})"))?;
    let mut control = open(shared, 0, DATABASE)?;
    load::load(&mut control, (by, options.remote > 0), (options.scale, options.common.seed), progress)?;
    conditions::check(&mut control, options.remote > 0, Some(options.scale.customers))?;
    Ok(control)
}

/// Our gateway, asked at all nodes.
pub struct Gateway {
    shared: Shared,
    control: Session,
    terminals: Terminals,
    kind: String,
    remote: bool,
}

impl Gateway {
    /// Makes the database and fills it.
    pub fn start(
        options: &TpccOptions,
        shared: &Shared,
        progress: &mut dyn Write,
    ) -> Result<Gateway, BenchError> {
        let control = made(options, shared, By::Sql, progress)?;
        let sessions: Result<Vec<_>, _> =
            (0..options.clients as usize).map(|at| open(shared, at, DATABASE)).collect();
        let terminals = Terminals::new(options, sessions?);
        let kind = options.kind();
        let remote = options.remote > 0;
        Ok(Gateway { shared: shared.clone(), control, terminals, kind, remote })
    }

    /// Refuses what TPC-C's conditions refuse, as SQL and on each replica, and replicas that differ.
    pub fn check(&mut self) -> Result<(), BenchError> {
        conditions::check(&mut self.control, self.remote, None)?;
        if self.remote {
            self.wait_until_secured()?;
        }
        let mut ours = self.shared.borrow_mut();
        replicas::check(&mut ours, DATABASE, false, &BTreeSet::new()).map(drop)
    }

    /// Partitions are told of commits behind their acknowledgement: waits until all copies have all.
    fn wait_until_secured(&mut self) -> Result<(), BenchError> {
        let behind = "SELECT partition FROM understudy.transaction_partitions WHERE state <> 'level'";
        let begun = Instant::now();
        while !self.control.simple(behind)?.is_empty() {
            if begun.elapsed() > WAIT_LIMIT {
                return Err(BenchError::Wrong("partitions do not come to have what was committed".into()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// What became of the transactions, in words.
    pub fn told(&self) -> String {
        let all = &self.terminals;
        format!(
            "{} committed, {} rolled back as specified, {} tries again; the conditions hold on each replica, and all are alike",
            all.committed, all.rolled_back, all.again
        )
    }
}

impl Subject for Gateway {
    fn label(&self) -> String {
        format!("understudy SQL, {}, transactions of TPC-C's mix", self.kind)
    }

    fn settings(&self) -> String {
        format!(
            "{}; READ COMMITTED, prepared statements; each of {} terminals has a thread and a connection, spread over the nodes",
            self.kind,
            self.terminals.all.len()
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.shared.borrow().processes()
    }

    fn sources(&self) -> Sources {
        Sources { wire: "", fsyncs: "NodeStatus.fsyncs of all nodes" }
    }

    fn way(&self) -> Way {
        Way::of_copies(3, 3, true, 100)
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        Ok(Counters { fsyncs: Some(self.shared.borrow_mut().fsyncs()?), ..Counters::default() })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.terminals.run(time)
    }
}

/// PostgreSQL with two standbys.
pub struct Theirs {
    servers: Servers,
    control: Session,
    terminals: Terminals,
    remote: bool,
}

impl Theirs {
    /// Starts it and fills its tables.
    pub fn start(options: &TpccOptions, progress: &mut dyn Write) -> Result<Theirs, BenchError> {
        let mut servers = Servers::start(&options.common)?;
        let mut control = servers.session()?;
        load::load(
            &mut control,
            (By::Sql, options.remote > 0),
            (options.scale, options.common.seed),
            progress,
        )?;
        control.simple("VACUUM ANALYZE")?;
        conditions::check(&mut control, options.remote > 0, Some(options.scale.customers))?;
        let sessions: Result<Vec<_>, _> = (0..options.clients).map(|_| servers.session()).collect();
        let terminals = Terminals::new(options, sessions?);
        Ok(Theirs { servers, control, terminals, remote: options.remote > 0 })
    }

    /// Refuses what TPC-C's conditions refuse.
    pub fn check(&mut self) -> Result<(), BenchError> {
        conditions::check(&mut self.control, self.remote, None)
    }
}

impl Subject for Theirs {
    fn label(&self) -> String {
        format!("postgresql {}, synchronous_commit = on, transactions of TPC-C's mix", self.servers.major())
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.processes()
    }

    fn sources(&self) -> Sources {
        postgres::SOURCES
    }

    fn way(&self) -> Way {
        postgres::way()
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.servers.counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.terminals.run(time)
    }
}
