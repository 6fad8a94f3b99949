//! Operations of any mix under load: closed-loop clients, or operations that begin at their own times.

use super::arrivals::{Arrivals, Offered};
use super::letters::{Mix, Operation, Operations};
use super::store::{Asking, Store};
use crate::closed;
use crate::cluster::{Shared, TableKind, WAIT_LIMIT};
use crate::error::BenchError;
use crate::generate::{Distribution, Workload};
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use client::{Client, Completed, LaneId};
use std::time::{Duration, Instant};

/// An operation that a client has begun.
struct Flying {
    operation: Operation,
    /// When it was to begin, and when it did.
    due: Instant,
    begun: Instant,
    /// Calls on their way.
    open: u32,
    rows: u32,
    /// The second part, where there is one, is on its way.
    goes_on: bool,
}

/// Clients, each of which has at most one operation.
struct Clients {
    flying: Vec<Option<Flying>>,
    idle: Vec<usize>,
}

impl Clients {
    fn new(clients: u32) -> Clients {
        let clients = clients as usize;
        Clients { flying: (0..clients).map(|_| None).collect(), idle: (0..clients).collect() }
    }

    fn are_all_idle(&self) -> bool {
        self.idle.len() == self.flying.len()
    }
}

/// Records under a mix of operations.
pub struct OperationsUnderLoad {
    shared: Shared,
    kind: TableKind,
    store: Store,
    asking: Asking,
    operations: Operations,
    clients: u32,
    arrivals: Arrivals,
}

impl OperationsUnderLoad {
    /// Makes the table, or the database, and loads the records.
    pub fn new(
        shared: &Shared,
        kind: &TableKind,
        (workload, asking): (&Workload, Asking),
        (clients, arrivals): (u32, Arrivals),
    ) -> Result<OperationsUnderLoad, BenchError> {
        let kind = match asking {
            Asking::Put => kind.clone(),
            Asking::Procedure => TableKind { partitions: 1, ..kind.clone() },
        };
        let store = Store::create(shared, &kind, workload, asking)?;
        let operations = Operations::new(workload.records, workload.value_bytes, workload.seed);
        Ok(OperationsUnderLoad { shared: shared.clone(), kind, store, asking, operations, clients, arrivals })
    }

    /// Goes on with another mix over the same records.
    pub fn change(&mut self, mix: Mix, distribution: Distribution) {
        self.operations.change(mix, distribution);
    }

    /// Begins what is due, as long as there are clients for it.
    fn begin(
        &mut self,
        client: &mut Client,
        clients: &mut Clients,
        offered: &mut Offered,
    ) -> Result<(), BenchError> {
        let now = Instant::now();
        while let Some(at) = clients.idle.last().copied() {
            let Some(due) = offered.take(now) else { return Ok(()) };
            clients.idle.pop();
            let operation = self.operations.next();
            let calls = self.store.begin(&operation)?;
            let open = calls.len() as u32;
            let first = at as u32 * self.store.widest();
            for (number, call) in calls.into_iter().enumerate() {
                client.submit(LaneId(first + number as u32), call);
            }
            clients.flying[at] =
                Some(Flying { operation, due, begun: Instant::now(), open, rows: 0, goes_on: false });
        }
        Ok(())
    }

    /// Takes an answer in.
    fn answered(
        &mut self,
        client: &mut Client,
        clients: &mut Clients,
        completed: &Completed,
        load: &mut Load,
    ) -> Result<(), BenchError> {
        let at = (completed.lane.0 / self.store.widest()) as usize;
        let Some(flying) = clients.flying.get_mut(at).and_then(Option::as_mut) else {
            return Err(BenchError::Wrong("an answer came that nobody waits for".into()));
        };
        flying.rows += self.store.rows(&flying.operation, &completed.outcome)?;
        flying.open -= 1;
        if flying.open > 0 {
            return Ok(());
        }
        if !flying.goes_on
            && let Some(call) = self.store.go_on(&flying.operation)?
        {
            client.submit(completed.lane, call);
            (flying.open, flying.goes_on) = (1, true);
            return Ok(());
        }
        self.store.check(&flying.operation, flying.rows)?;
        if let Operation::Insert { record, .. } = flying.operation {
            self.operations.inserted(record);
        }
        note(&mut load.latencies, flying.due.elapsed());
        if self.arrivals != Arrivals::Closed {
            note(load.service.get_or_insert_with(crate::subject::latencies), flying.begun.elapsed());
        }
        load.ops += 1;
        clients.flying[at] = None;
        clients.idle.push(at);
        Ok(())
    }

    fn drive(&mut self, client: &mut Client, time: Duration) -> Result<Load, BenchError> {
        let mut load = Load::empty();
        let mut clients = Clients::new(self.clients);
        let begun = Instant::now();
        let mut offered = Offered::new(self.arrivals, begun, time);
        let mut heard = begun;
        loop {
            self.begin(client, &mut clients, &mut offered)?;
            let now = Instant::now();
            if clients.are_all_idle() {
                if offered.is_over(now) {
                    break;
                }
                heard = now;
            }
            let rest = offered.rest(now).filter(|_| !clients.idle.is_empty());
            for completed in closed::answers(client, rest.unwrap_or(WAIT_LIMIT))? {
                self.answered(client, &mut clients, &completed, &mut load)?;
                heard = Instant::now();
            }
            if heard.elapsed() >= WAIT_LIMIT {
                return Err(BenchError::Wrong("no answer within thirty seconds under load".into()));
            }
        }
        load.elapsed = begun.elapsed();
        Ok(load)
    }
}

impl Subject for OperationsUnderLoad {
    fn label(&self) -> String {
        let by = if self.asking == Asking::Procedure { ", by procedure" } else { "" };
        format!("understudy {}, {}{by}", self.kind.in_words(), self.operations.mix().in_words())
    }

    fn settings(&self) -> String {
        let arrivals = match self.arrivals {
            Arrivals::Closed => "each waits for its answer".to_string(),
            Arrivals::Open(rate) => format!(
                "{rate} operations a second are to begin; latency counts from then, service from when a client was free"
            ),
        };
        let scans = match (self.asking, self.operations.mix().scan) {
            (Asking::Put, 1..) => "; a scan asks all partitions at once for as many rows",
            _ => "",
        };
        format!(
            "{} partitions; reads at committed, from the primary; {} clients are lanes of one client on one thread: {arrivals}{scans}",
            self.kind.partitions, self.clients
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.shared.borrow().processes()
    }

    fn sources(&self) -> Sources {
        self.shared.borrow().sources()
    }

    fn way(&self) -> Way {
        self.shared.borrow().way(&self.kind, self.operations.mix().writes())
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.shared.borrow_mut().counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let shared = self.shared.clone();
        let mut ours = shared.borrow_mut();
        self.drive(ours.client(), time)
    }
}
