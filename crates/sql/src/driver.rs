//! The task that drives the native client for all sessions of a node. Sessions hand it calls; it answers when
//! they end. It runs on the sessions' own thread: between a statement and its answer no thread waits for
//! another one but the partition's.

mod dropped;
mod levels;
mod looks;

use crate::catalog::{Catalog, UnderWay, as_filled};
use crate::fault;
use bytes::Bytes;
use client::txn::{OpenTransaction, OpenTransactions};
use client::{Call, Client, Database, FailKind, LaneId, Map, Options, Outcome, Ticket};
use levels::Levels;
use looks::Looks;
use pg::{Failure, code};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use types::database::SHARED;
use types::{Micros, PartitionId, TableId, TableRecord, TableState};
use wire::request::{Outcome as Refusal, ReadSnapshot};
use wire::{Body, Op};

/// While calls are open: deadlines and retries do not show as events.
const BUSY: Duration = Duration::from_millis(5);
/// While none are.
const CALM: Duration = Duration::from_millis(200);
/// One attempt to find the cluster.
const CONNECT: Duration = Duration::from_secs(1);

type Answer = Box<dyn FnOnce(Outcome) + Send>;

struct Ask {
    call: Call,
    /// It is one of a database whose transactions are global.
    global: bool,
    answer: Answer,
}

#[derive(Default)]
struct Shared {
    catalog: RwLock<Arc<Catalog>>,
    map: RwLock<Arc<Map>>,
    /// The catalogs of databases that somebody is connected to.
    databases: Looks,
    /// Who brings their partitions level.
    levels: Levels,
    /// What the tables of the database lie in that is always there, and lie together.
    together: RwLock<Option<(TableId, PartitionId)>>,
    /// All tables of that database.
    both: RwLock<Both>,
    /// No tables.
    none: Arc<Catalog>,
    /// Transactions of sessions over all partitions of their databases.
    open: OpenTransactions,
    changed: Notify,
    /// A cluster map has come.
    ready: AtomicBool,
}

/// How long a look at a database's catalog may take, and tables in one page of it.
const CATALOG_READ_TIMEOUT: Micros = Micros::from_millis(10_000);
const PAGE: u32 = 1_000;

/// The tables of the database that is always there: those that have partitions for themselves, and those that
/// lie together.
#[derive(Default)]
struct Both {
    bare: Arc<Catalog>,
    /// As far as somebody has looked.
    together: Arc<Catalog>,
    all: Arc<Catalog>,
}

impl Shared {
    /// Those of one kind and of the other.
    fn both(&self, bare: Arc<Catalog>, together: Arc<Catalog>) -> Arc<Catalog> {
        let known = |both: &Both| Arc::ptr_eq(&both.bare, &bare) && Arc::ptr_eq(&both.together, &together);
        {
            let both = self.both.read().unwrap_or_else(PoisonError::into_inner);
            if known(&both) {
                return both.all.clone();
            }
        }
        let mut both = self.both.write().unwrap_or_else(PoisonError::into_inner);
        if !known(&both) {
            let mut next = bare.beside(both.all.revision + 1, &together);
            if both.all.revision > 0 && next.is_same(&both.all) {
                next.revision = both.all.revision;
            }
            *both = Both { bare, together, all: Arc::new(next) };
        }
        both.all.clone()
    }
}

/// True if a primary has another schema of a table than was thought, or may have: what is perhaps done may be
/// a change of tables.
fn is_perhaps_stale(outcome: &Outcome) -> bool {
    let stale = matches!(outcome, Outcome::Refused(Refusal::Stale, _) | Outcome::Failed(FailKind::Stale, _));
    stale || matches!(outcome, Outcome::Unknown(_))
}

/// The task. Dropping it ends it; calls that are open then are answered as not known.
pub struct Driver {
    handle: Handle,
    task: JoinHandle<()>,
}

/// The tables that a session has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Those that have partitions for themselves.
    Bare,
    /// These, and those that lie together without a database that somebody has made.
    Shared,
    /// A database's.
    In(TableId),
}

/// A way to the driver. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    asks: UnboundedSender<Ask>,
    shared: Arc<Shared>,
    options: Options,
    place: Place,
    /// The tables as a transaction sees them that has changed them.
    overlay: Option<Arc<Catalog>>,
    /// Global transactions that are committed by it wait until they are secured. Set if one was not in time.
    late: Option<Arc<AtomicBool>>,
}

impl Driver {
    /// Starts the task, on the runtime that this is called in. It looks for the cluster until it finds it.
    pub fn start(options: Options) -> Driver {
        let (asks, asked) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let options = Options { timeout: CONNECT, wait: true, ..options };
        let handle = Handle {
            asks,
            shared: shared.clone(),
            options: options.clone(),
            place: Place::Bare,
            overlay: None,
            late: None,
        };
        let task = Task { asked, shared, options, waiting: HashMap::new(), free: Vec::new() };
        Driver { handle, task: tokio::spawn(task.run()) }
    }

    /// A way to it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Handle {
    /// The same way, to the tables of a place.
    pub fn within(&self, place: Place) -> Handle {
        Handle { place, overlay: None, ..self.clone() }
    }

    /// The same way, to the tables that have partitions for themselves.
    pub fn bare(&self) -> Handle {
        self.within(Place::Bare)
    }

    /// The tables that its session has.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The same way, for a transaction that sees other tables than there are.
    pub fn seeing(&self, overlay: Option<Arc<Catalog>>) -> Handle {
        Handle { overlay, ..self.clone() }
    }

    /// The same way, for global transactions that wait until they are secured. `late` is set if one was not
    /// in time.
    pub fn securing(&self, late: Arc<AtomicBool>) -> Handle {
        Handle { late: Some(late), ..self.clone() }
    }

    /// What is set if a commit is not secured in time; none: nobody waits for that.
    pub fn late(&self) -> Option<&AtomicBool> {
        self.late.as_deref()
    }

    /// True if a transaction sees other tables here than there are.
    pub fn is_overlaid(&self) -> bool {
        self.overlay.is_some()
    }

    /// The database whose partition its session has tables in, if it has such.
    pub fn database(&self) -> Option<TableId> {
        match self.place {
            Place::Bare => None,
            Place::Shared => self.shared_partition().map(|(id, _)| id),
            Place::In(id) => Some(id),
        }
    }

    /// The partitions in which tables of its session lie together.
    pub fn partitions(&self) -> Range<u32> {
        let own = match self.place {
            Place::Bare => None,
            Place::Shared => self.shared_partition().map(|(_, partition)| partition.0..partition.0 + 1),
            Place::In(id) => self.map().owner(id).map(|record| {
                let first = record.first_partition.0;
                first..first + record.partitions
            }),
        };
        own.unwrap_or(0..0)
    }

    /// The database, if others than its first partition are told of its tables: it has several partitions, or
    /// its transactions are global, and the transaction manager is told, however many partitions there are
    /// (PR-360). What is done to its tables is done at once, and is no part of a transaction.
    pub fn spread(&self) -> Option<Database> {
        let is_told = |database: &Database| database.is_spread() || database.record().is_global();
        self.database_record().ok().filter(is_told)
    }

    /// True if its session is in a database whose transactions reach over all partitions.
    pub fn is_global(&self) -> bool {
        let Place::In(id) = self.place else { return false };
        self.map().owner(id).is_some_and(|record| record.is_global())
    }

    /// A transaction of its session begins, and is counted until this is dropped. None: its transactions are
    /// of one partition.
    pub fn begun(&self) -> Option<OpenTransaction> {
        self.is_global().then(|| self.shared.open.begun())
    }

    fn shared_partition(&self) -> Option<(TableId, PartitionId)> {
        *self.shared.together.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of the database that its session is in.
    pub fn database_record(&self) -> Result<Database, Failure> {
        let found = self.database().and_then(|id| self.map().owner(id).cloned());
        let found = found.filter(|record| record.is_database()).map(Database::new);
        found.ok_or_else(|| Failure::new("3D000", "the database was dropped"))
    }

    /// The tables of the session's database that lie together, if they are known as they are now.
    fn together(&self, database: TableId) -> Option<Arc<Catalog>> {
        let map = self.map();
        let is_same = |record: &Arc<TableRecord>| map.owner(database).is_some_and(|known| known == record);
        self.shared.databases.current(database, is_same)
    }

    /// With the tables that have partitions for themselves, if its session has these.
    fn with_bare(&self, together: Arc<Catalog>) -> Result<Arc<Catalog>, Failure> {
        match self.place {
            Place::Shared => {
                let bare = self.bare().catalog().ok_or_else(fault::not_ready)?;
                Ok(self.shared.both(bare, together))
            }
            _ => Ok(together),
        }
    }

    /// True if tables must be looked at before it is known what there is.
    pub fn must_look(&self) -> bool {
        self.overlay.is_none() && self.database().is_some_and(|database| self.together(database).is_none())
    }

    /// The tables that there are now. Those of a database are read, unless nobody has said that they changed
    /// since the last look.
    pub async fn current(&self) -> Result<Arc<Catalog>, Failure> {
        if let Some(overlay) = &self.overlay {
            return Ok(overlay.clone());
        }
        let Some(database) = self.database() else { return self.catalog().ok_or_else(fault::not_ready) };
        match self.together(database) {
            Some(catalog) => self.with_bare(catalog),
            None => self.look().await,
        }
    }

    /// The tables of the session's database, read from its partition.
    pub async fn look(&self) -> Result<Arc<Catalog>, Failure> {
        if self.database().is_none() || self.overlay.is_some() {
            return self.catalog().ok_or_else(fault::not_ready);
        }
        let database = self.database_record()?;
        let begun = self.shared.databases.begin(database.record().id);
        let (mut tables, mut under_way) = (BTreeMap::new(), UnderWay::default());
        let (mut from, mut at) = (Bytes::new(), ReadSnapshot::Newest);
        loop {
            let op = Op::Scan { from, to: Bytes::new(), limit: PAGE, at };
            let call = database.catalog().call(database.partition(), op).within(CATALOG_READ_TIMEOUT);
            let answer = fault::answer(self.call(call).await)?;
            let state = answer.snapshot();
            at = ReadSnapshot::At(state);
            let Body::Rows { rows, more } = answer.body else {
                return Err(Failure::new(code::INTERNAL, "a catalog without rows"));
            };
            for (key, _, stored) in &rows {
                let (state, table) = database.read_row(key, stored).map_err(fault::of_client)?;
                let table = match (state, table.fills) {
                    (TableState::Dropping, _) => continue,
                    (_, Some(of)) => {
                        under_way.note(&table, of);
                        let Some(shown) = as_filled(table) else { continue };
                        shown
                    }
                    (_, None) => {
                        under_way.note_named(&table);
                        table
                    }
                };
                let record = database.table(table).record().clone();
                tables.insert(record.name.clone(), Arc::new(record));
            }
            match rows.last() {
                Some((last, ..)) if more => from = Bytes::from([last, &[0u8][..]].concat()),
                _ => {
                    let of = (database.record().clone(), state);
                    return self.with_bare(self.shared.databases.end(begun, of, (tables, under_way)));
                }
            }
        }
    }

    /// Tables may be others than at the last look: whoever needs them next reads them.
    pub fn outdate(&self) {
        if let Some(database) = self.database() {
            self.shared.databases.outdate(database);
        }
    }

    /// Tables were changed: they are read again. If that fails, whoever needs them does it: what is done is
    /// done, and nobody is told an error.
    pub async fn look_again(&self) {
        self.outdate();
        if self.database().is_some() {
            drop(self.seeing(None).look().await);
        }
    }

    /// The tables that were there at the last look; `None` as long as nobody has looked, or the cluster was
    /// not found. Those that have partitions for themselves need no look.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        if self.overlay.is_some() {
            return self.overlay.clone();
        }
        let ready = self.shared.ready.load(Ordering::Acquire);
        let bare = || self.shared.catalog.read().unwrap_or_else(PoisonError::into_inner).clone();
        let looked = |database: TableId| self.shared.databases.last(database);
        match self.place {
            Place::Bare => ready.then(bare),
            Place::Shared if ready => {
                let together = self.database().and_then(looked);
                let none = || self.shared.none.clone();
                Some(self.shared.both(bare(), together.unwrap_or_else(none)))
            }
            Place::Shared => None,
            Place::In(database) => looked(database),
        }
    }

    /// Has the partitions of a database brought level by `level`, or by whoever of this node begins with that
    /// behind this call.
    pub async fn levelled(
        &self,
        database: TableId,
        level: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        self.shared.levels.once(database, level).await
    }

    /// The cluster's records, as new as the last cluster map.
    pub fn map(&self) -> Arc<Map> {
        self.shared.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands a call over. `answer` is called by the driver and must not block. Of a table that the session's
    /// transaction has altered the partition is asked under the version that it knows (PR-451).
    pub fn submit(&self, mut call: Call, answer: impl FnOnce(Outcome) + Send + 'static) {
        if let Some(overlay) = &self.overlay {
            call.schema = overlay.known_version(call.table, call.schema);
        }
        let answer: Answer = match self.database() {
            None => Box::new(answer),
            Some(database) => {
                let shared = self.shared.clone();
                Box::new(move |outcome| {
                    if is_perhaps_stale(&outcome) {
                        shared.databases.outdate(database);
                    }
                    answer(outcome)
                })
            }
        };
        let ask = Ask { call, global: self.is_global(), answer };
        if let Err(mpsc::error::SendError(ask)) = self.asks.send(ask) {
            (ask.answer)(gone());
        }
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

    /// Waits until the cluster's records are as wanted.
    pub async fn wait_map(&self, wanted: impl Fn(&Map) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            if wanted(&self.map()) {
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

/// What tells that the client has something to take in. It must be dropped before the client.
fn readiness(client: &Client) -> io::Result<AsyncFd<RawFd>> {
    #[expect(unsafe_code, reason = "tokio takes a descriptor that somebody else owns by no other way")]
    // SAFETY: the descriptor is the client's until it is dropped; `drive` drops the client last.
    let registered = unsafe { AsyncFd::register_with_interest(client.readiness(), Interest::READABLE) };
    Ok(registered?)
}

struct Task {
    asked: UnboundedReceiver<Ask>,
    shared: Arc<Shared>,
    options: Options,
    waiting: HashMap<Ticket, (Answer, Option<LaneId>)>,
    /// Lanes whose last write has ended. A lane's sessions live as long as it is used, whoever uses it.
    free: Vec<LaneId>,
}

impl Task {
    async fn run(mut self) {
        while !self.asked.is_closed() {
            let options = self.options.clone();
            // Looking for the cluster blocks.
            match tokio::task::spawn_blocking(|| Client::connect(options)).await {
                Ok(Ok(client)) => {
                    if let Err(why) = self.drive(client).await {
                        eprintln!("sql: {why}");
                    }
                    // What was on its way is lost with the client.
                    for (answer, _) in std::mem::take(&mut self.waiting).into_values() {
                        answer(Outcome::Unknown("the connection to the cluster was given up".into()));
                    }
                }
                Ok(Err(error)) => self.refuse(&error.to_string()),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }

    /// Nothing can be asked while the cluster was not found.
    fn refuse(&mut self, why: &str) {
        while let Ok(ask) = self.asked.try_recv() {
            (ask.answer)(Outcome::Failed(FailKind::TimedOut, why.to_string()));
        }
    }

    /// Until the operating system fails. The error is a sentence.
    async fn drive(&mut self, mut client: Client) -> Result<(), String> {
        let system = |error: io::Error| error.to_string();
        let readiness = readiness(&client).map_err(system)?;
        client.speak_for(self.shared.open.clone());
        let mut due = pin!(sleep(Duration::ZERO));
        let mut revision = None;
        // Something has come, or may have.
        let mut look = true;
        loop {
            while let Ok(ask) = self.asked.try_recv() {
                self.submit(&mut client, ask);
            }
            self.turn(&mut client, look).map_err(|error| error.to_string())?;
            if revision != Some(client.cluster_map().revision()) {
                revision = Some(client.cluster_map().revision());
                self.publish(&client);
            }
            let wait = if client.open_calls() > 0 { BUSY } else { CALM };
            let wanted = Instant::now() + wait;
            if due.is_elapsed() || due.deadline() > wanted {
                due.as_mut().reset(wanted);
            }
            look = tokio::select! {
                ready = readiness.readable() => {
                    ready.map_err(system)?.clear_ready();
                    true
                }
                ask = self.asked.recv() => match ask {
                    Some(ask) => {
                        self.submit(&mut client, ask);
                        false
                    }
                    // Nobody can ask any more.
                    None => return Ok(()),
                },
                () = &mut due => true,
            };
        }
    }

    /// Sends what was submitted, takes in what has come if it is to look for that, and answers what has
    /// ended.
    fn turn(&mut self, client: &mut Client, look: bool) -> Result<(), client::ClientError> {
        let ended = if look { client.poll(Duration::ZERO)? } else { client.push() };
        for completed in ended {
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
        Ok(())
    }

    fn submit(&mut self, client: &mut Client, ask: Ask) {
        let writes = ask.call.op.writes();
        let lane = writes.then(|| self.free.pop().unwrap_or_else(|| client.new_lane()));
        let own = lane.unwrap_or(Client::BLOCKING);
        let ticket = match ask.global {
            true => client.submit_in_transaction(own, ask.call),
            false => client.submit(own, ask.call),
        };
        self.waiting.insert(ticket, (ask.answer, lane));
    }

    fn publish(&mut self, client: &Client) {
        let tables = client.cluster_map().tables().map(|table| (table.name.clone(), table.clone()));
        let tables: BTreeMap<String, Arc<TableRecord>> = tables.collect();
        let known = self.shared.catalog.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !known.is_like(&tables) || !self.shared.ready.load(Ordering::Acquire) {
            let next = Arc::new(Catalog::from_map(known.revision + 1, tables));
            *self.shared.catalog.write().unwrap_or_else(PoisonError::into_inner) = next;
        }
        let together =
            client.cluster_map().database(SHARED).map(|record| (record.id, record.first_partition));
        *self.shared.together.write().unwrap_or_else(PoisonError::into_inner) = together;
        *self.shared.map.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(client.cluster_map().clone());
        self.shared.ready.store(true, Ordering::Release);
        self.shared.changed.notify_waiters();
    }
}
