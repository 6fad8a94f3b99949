//! The thread that drives the native client for all sessions of a node. Sessions hand it calls; it answers when they end.

use crate::catalog::Catalog;
use client::{Call, Client, FailKind, LaneId, Map, Options, Outcome, Ticket};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use types::TableRecord;

const WAKER: Token = Token(0);
const CLIENT: Token = Token(1);
/// While calls are open: deadlines and retries do not show as events.
const BUSY: Duration = Duration::from_millis(5);
/// While none are.
const CALM: Duration = Duration::from_millis(200);
/// One attempt to find the cluster.
const CONNECT: Duration = Duration::from_secs(1);

type Answer = Box<dyn FnOnce(Outcome) + Send>;

struct Ask {
    call: Call,
    answer: Answer,
}

#[derive(Default)]
struct Shared {
    catalog: RwLock<Arc<Catalog>>,
    map: RwLock<Arc<Map>>,
    changed: Notify,
    /// A picture of the cluster has come.
    ready: AtomicBool,
    stop: AtomicBool,
}

/// The thread. Dropping it ends it; calls that are open then are answered as not known.
pub struct Driver {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// A way to the driver. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    asks: Sender<Ask>,
    waker: Arc<Waker>,
    shared: Arc<Shared>,
    options: Options,
}

impl Driver {
    /// Starts the thread. It looks for the cluster until it finds it.
    pub fn start(options: Options) -> io::Result<Driver> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (asks, asked) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let options = Options { timeout: CONNECT, wait: true, ..options };
        let handle = Handle { asks, waker, shared: shared.clone(), options: options.clone() };
        let thread = Thread { poll, asked, shared, options, waiting: HashMap::new(), free: Vec::new() };
        let spawned = std::thread::Builder::new().name("sql-client".into()).spawn(move || thread.run())?;
        Ok(Driver { handle, thread: Some(spawned) })
    }

    /// A way to it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.handle.shared.stop.store(true, Ordering::Release);
        // Fails only when the thread is gone.
        let _ = self.handle.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// The tables that there are now; `None` as long as the cluster was not found.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        let ready = self.shared.ready.load(Ordering::Acquire);
        ready.then(|| self.shared.catalog.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The cluster's records, as new as the last picture.
    pub fn map(&self) -> Arc<Map> {
        self.shared.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands a call over. `answer` is called on the driver's thread and must not block it.
    pub fn submit(&self, call: Call, answer: impl FnOnce(Outcome) + Send + 'static) {
        let ask = Ask { call, answer: Box::new(answer) };
        if let Err(mpsc::SendError(ask)) = self.asks.send(ask) {
            return (ask.answer)(gone());
        }
        // Fails only when the thread is gone, and then the answer is dropped with the channel.
        let _ = self.waker.wake();
    }

    /// Makes a call and waits for its end.
    pub async fn call(&self, call: Call) -> Outcome {
        let (answer, answered) = oneshot::channel();
        self.submit(call, |outcome| {
            // Nobody waits any more.
            let _ = answer.send(outcome);
        });
        answered.await.unwrap_or_else(|_| gone())
    }

    /// Waits until the catalog is as wanted.
    pub async fn wait_catalog(&self, wanted: impl Fn(&Catalog) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            if self.catalog().is_some_and(|catalog| wanted(&catalog)) {
                return;
            }
            changed.await;
        }
    }

    /// How to reach the cluster, for a client of one's own.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

fn gone() -> Outcome {
    Outcome::Unknown("this node is going down".into())
}

struct Thread {
    poll: Poll,
    asked: Receiver<Ask>,
    shared: Arc<Shared>,
    options: Options,
    waiting: HashMap<Ticket, (Answer, Option<LaneId>)>,
    /// Lanes whose last write has ended. A lane's sessions live as long as it is used, whoever uses it.
    free: Vec<LaneId>,
}

impl Thread {
    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            match Client::connect(self.options.clone()) {
                Ok(client) => self.drive(client),
                Err(error) => self.refuse(&error.to_string()),
            }
        }
        for (answer, _) in std::mem::take(&mut self.waiting).into_values() {
            answer(gone());
        }
    }

    /// Nothing can be asked while the cluster was not found.
    fn refuse(&mut self, why: &str) {
        while let Ok(ask) = self.asked.try_recv() {
            (ask.answer)(Outcome::Failed(FailKind::TimedOut, why.to_string()));
        }
    }

    /// Until the operating system fails or the driver is dropped.
    fn drive(&mut self, mut client: Client) {
        let readiness = client.readiness();
        let registered = self.poll.registry().register(&mut SourceFd(&readiness), CLIENT, Interest::READABLE);
        if let Err(error) = registered {
            return eprintln!("sql: {error}");
        }
        let mut events = Events::with_capacity(4);
        let mut revision = None;
        while !self.shared.stop.load(Ordering::Acquire) {
            if let Err(error) = self.turn(&mut client) {
                eprintln!("sql: {error}");
                break;
            }
            if revision != Some(client.picture().revision()) {
                revision = Some(client.picture().revision());
                self.publish(&client);
            }
            let wait = if client.open_calls() > 0 { BUSY } else { CALM };
            if let Err(error) = self.poll.poll(&mut events, Some(wait))
                && error.kind() != io::ErrorKind::Interrupted
            {
                eprintln!("sql: {error}");
                break;
            }
        }
        // What was on its way is lost with the client.
        for (answer, _) in std::mem::take(&mut self.waiting).into_values() {
            answer(Outcome::Unknown("the connection to the cluster was given up".into()));
        }
        let _ = self.poll.registry().deregister(&mut SourceFd(&readiness));
    }

    /// Submits what was asked, sends it, takes in what has come, and again as long as there is something.
    fn turn(&mut self, client: &mut Client) -> Result<(), client::ClientError> {
        loop {
            let mut more = false;
            while let Ok(ask) = self.asked.try_recv() {
                self.submit(client, ask);
            }
            for completed in client.poll(Duration::ZERO)? {
                more = true;
                if let Some((answer, lane)) = self.waiting.remove(&completed.ticket) {
                    self.free.extend(lane);
                    answer(completed.outcome);
                }
            }
            for loss in client.take_losses() {
                eprintln!(
                    "sql: a failover of partition {} lost {} acknowledged writes; `understudy failover list` has the report",
                    loss.partition,
                    loss.to_seq + 1 - loss.from_seq
                );
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn submit(&mut self, client: &mut Client, ask: Ask) {
        let writes = ask.call.op.writes();
        let lane = writes.then(|| self.free.pop().unwrap_or_else(|| client.new_lane()));
        let ticket = client.submit(lane.unwrap_or(Client::BLOCKING), ask.call);
        self.waiting.insert(ticket, (ask.answer, lane));
    }

    fn publish(&mut self, client: &Client) {
        let tables = client.picture().tables().map(|table| (table.name.clone(), table.clone()));
        let tables: BTreeMap<String, Arc<TableRecord>> = tables.collect();
        let known = self.shared.catalog.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !known.is_like(&tables) {
            let next = Arc::new(Catalog::from_map(known.revision + 1, tables));
            *self.shared.catalog.write().unwrap_or_else(PoisonError::into_inner) = next;
        }
        *self.shared.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(client.picture().clone());
        self.shared.ready.store(true, Ordering::Release);
        self.shared.changed.notify_waiters();
    }
}
