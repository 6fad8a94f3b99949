//! The transactions as procedures: a call each, of lanes of one client. Nodes may fail meanwhile.

use super::calls::{Kind, Terminal};
use super::faults::Striking;
use super::replicas::{self, Three};
use super::subjects::{DATABASE, made};
use super::{By, TpccOptions, programs};
use crate::cluster::{Shared, WAIT_LIMIT};
use crate::error::BenchError;
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use client::{Client, Completed, LaneId, Outcome, Procedure};
use local::demo::Fault;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};
use types::data::Value;
use types::procedure::FailureKind;
use wire::{Body, CallResult};

/// How long answers are waited for at a time.
const WAIT: Duration = Duration::from_millis(20);

/// Terminals whose transactions are calls.
pub struct Procedures {
    shared: Shared,
    kind: String,
    copies: usize,
    procedures: Vec<Procedure>,
    terminals: Vec<Terminal>,
    /// What happens in the next round, where something is to.
    fault: Option<Fault>,
    acknowledged: BTreeSet<Three>,
    committed: u64,
    rolled_back: u64,
    /// Transactions of which it is not known whether they were done, or that were not, because of a fault.
    unknown: u64,
    /// How many replicas were looked at, all together.
    checked: usize,
}

/// What a terminal has on its way.
struct Asked {
    kind: Kind,
    at: Instant,
}

impl Procedures {
    /// Makes the database, fills it, and makes the procedures.
    pub fn start(
        options: &TpccOptions,
        shared: &Shared,
        progress: &mut dyn Write,
    ) -> Result<Procedures, BenchError> {
        drop(made(options, shared, By::Procedure, progress)?);
        let mut ours = shared.borrow_mut();
        let client = ours.client();
        let database = client.database(DATABASE)?;
        let mut procedures = Vec::new();
        for described in programs::all() {
            let (parameters, definition) = (&described.parameters, described.definition);
            procedures.push(client.create_procedure(&database, described.name, parameters, definition)?);
        }
        let copies = usize::from(database.record().policy.factor);
        replicas::wait_in_sync(&mut ours, DATABASE, copies)?;
        drop(ours);
        let ship = if options.ship.is_effects() { "" } else { ", calls shipped" };
        let mut procedures = Procedures {
            shared: shared.clone(),
            kind: format!("{}{ship}", options.kind()),
            copies,
            procedures,
            terminals: (0..options.clients).map(|at| Terminal::new(options, at.into())).collect(),
            fault: None,
            acknowledged: BTreeSet::new(),
            committed: 0,
            rolled_back: 0,
            unknown: 0,
            checked: 0,
        };
        procedures.check(progress)?;
        Ok(procedures)
    }

    /// In the middle of the next round this happens to the node that leads most.
    pub fn fail(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Refuses what TPC-C's conditions refuse, on each replica, and replicas that differ.
    pub fn check(&mut self, progress: &mut dyn Write) -> Result<(), BenchError> {
        let mut ours = self.shared.borrow_mut();
        replicas::wait_in_sync(&mut ours, DATABASE, self.copies)?;
        let many = replicas::check(&mut ours, DATABASE, true, &self.acknowledged)?;
        self.checked += many;
        let (done, orders) = (self.committed, self.acknowledged.len());
        let _ = writeln!(
            progress,
            "tpcc: the conditions hold on each of {many} replicas, which are alike, behind {done} transactions; {orders} acknowledged orders are there"
        );
        Ok(())
    }

    /// What became of the transactions, in words.
    pub fn told(&self) -> String {
        format!(
            "{} committed, {} rolled back as specified, {} not known or not done because of faults",
            self.committed, self.rolled_back, self.unknown
        )
    }

    /// The same as numbers.
    pub fn done(&self) -> serde_json::Value {
        json!({
            "committed": self.committed, "rolled_back": self.rolled_back, "unknown": self.unknown,
            "acknowledged_orders": self.acknowledged.len(), "replicas_checked": self.checked,
        })
    }

    fn ask(&mut self, client: &mut Client, at: usize) -> Result<Asked, BenchError> {
        let (kind, arguments) = self.terminals[at].next();
        let call = self.procedures[kind as usize].call(arguments)?;
        client.submit(LaneId(at as u32), call);
        Ok(Asked { kind, at: Instant::now() })
    }

    fn answered(&mut self, kind: Kind, completed: &Completed, injected: bool) -> Result<bool, BenchError> {
        match &completed.outcome {
            Outcome::Ok(answer) => {
                if kind == Kind::NewOrder {
                    let rows = self.procedures[kind as usize].rows(answer)?;
                    self.ordered(completed, &rows)?;
                }
                self.committed += 1;
                Ok(true)
            }
            Outcome::Refused(_, answer) if is_rolled_back(kind, &answer.body) => {
                self.rolled_back += 1;
                Ok(true)
            }
            Outcome::Unknown(_) | Outcome::Failed(..) if injected => {
                self.unknown += 1;
                Ok(false)
            }
            other => Err(BenchError::Wrong(format!("{kind:?} was answered with {other:?}"))),
        }
    }

    /// No number of an order is given out twice.
    fn ordered(&mut self, completed: &Completed, rows: &[Vec<Value>]) -> Result<(), BenchError> {
        let terminal = &self.terminals[completed.lane.0 as usize];
        let [Value::Int(order), _] = rows.first().map(Vec::as_slice).unwrap_or_default() else {
            return Err(BenchError::Wrong("a new order was answered without its number".into()));
        };
        let order = (terminal.warehouse as i64, terminal.district() as i64, *order);
        match self.acknowledged.insert(order) {
            true => Ok(()),
            false => Err(BenchError::Wrong(format!("order {order:?} was given out twice"))),
        }
    }

    fn drive(&mut self, time: Duration) -> Result<Load, BenchError> {
        let shared = self.shared.clone();
        let mut ours = shared.borrow_mut();
        let mut load = Load::empty();
        let begun = Instant::now();
        let mut striking = Striking::new(self.fault.take(), time, DATABASE);
        let mut asked: Vec<Option<Asked>> = (0..self.terminals.len()).map(|_| None).collect();
        let mut heard = begun;
        loop {
            striking.turn(&mut ours, begun.elapsed())?;
            let goes_on = begun.elapsed() < time || striking.is_open();
            let client = ours.client();
            for (at, asked) in asked.iter_mut().enumerate() {
                if asked.is_none() && goes_on {
                    *asked = Some(self.ask(client, at)?);
                }
            }
            if asked.iter().all(Option::is_none) {
                break;
            }
            for completed in client.poll(WAIT)? {
                heard = Instant::now();
                let Some(was) = asked.get_mut(completed.lane.0 as usize).and_then(Option::take) else {
                    return Err(BenchError::Wrong("an answer came that nobody waits for".into()));
                };
                if self.answered(was.kind, &completed, striking.has_injected())? {
                    note(&mut load.latencies, was.at.elapsed());
                    load.ops += 1;
                }
            }
            if heard.elapsed() >= 2 * WAIT_LIMIT {
                return Err(BenchError::Wrong("no answer within a minute under load".into()));
            }
        }
        load.elapsed = begun.elapsed();
        Ok(load)
    }
}

/// One new order of a hundred names no item (clause 2.4.1.4).
fn is_rolled_back(kind: Kind, body: &Body) -> bool {
    let Body::Called(CallResult::Failed(failure)) = body else { return false };
    kind == Kind::NewOrder && failure.kind == FailureKind::Raised && failure.to_string().contains("not valid")
}

impl Subject for Procedures {
    fn label(&self) -> String {
        format!("understudy procedures, {}, transactions of TPC-C's mix", self.kind)
    }

    fn settings(&self) -> String {
        format!(
            "{}; each transaction is one call of a program that is compiled in; {} terminals are lanes of one client on one thread",
            self.kind,
            self.terminals.len()
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.shared.borrow().processes()
    }

    fn sources(&self) -> Sources {
        Sources { wire: "", fsyncs: "NodeStatus.fsyncs of all nodes" }
    }

    fn way(&self) -> Way {
        Way::of_copies(self.copies as u32, 3, true, 100)
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        Ok(Counters { fsyncs: Some(self.shared.borrow_mut().fsyncs()?), ..Counters::default() })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.drive(time)
    }
}
