//! The pure core: decides where each call goes, when it is sent again and what its end is. It does no IO and
//! knows no clock; the simulator's clients run it as it is.
//!
//! Inputs are methods with `now`; outputs are [`Effect`]s, [`Completed`] calls and [`Loss`]es, drained by the
//! driver.

mod dispatch;
mod links;
mod pending;
mod replies;
mod timers;

use crate::call::{Call, Completed, FailKind, LaneId, Loss, Outcome, Ticket};
use crate::route::Map;
use crate::session::{Phase, Session};
use pending::{Kind, Pending};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::random::Random;
use types::{Micros, NodeId, PartitionId, PartitionRecord, Rules};
use wire::Message;
use wire::control::ClusterMap;

/// Settings of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// How many writes of one session are on their way at once, unless [`Core::set_window`] says otherwise.
    pub window: usize,
    /// An attempt without an answer for so long is given up and made again.
    pub attempt_timeout: Micros,
    /// How long refusals that may pass (too few copies, a full disk, an unknown table, damage) are retried
    /// before they are reported.
    pub patience: Micros,
    /// A session that was not used for so long is left to expire; the next write opens another.
    pub idle: Micros,
    /// Seed of the spread of waits.
    pub seed: u64,
    /// The rules in force: all, but in a mutant.
    pub rules: Rules,
}

impl Default for CoreConfig {
    fn default() -> CoreConfig {
        CoreConfig {
            window: 1,
            attempt_timeout: Micros::from_millis(2_000),
            patience: Micros::from_millis(2_000),
            idle: Micros::from_millis(60_000),
            seed: 1,
            rules: Rules::ALL,
        }
    }
}

/// The most writes of one session that may be on their way at once.
pub const MAX_WINDOW: usize = 64;

/// What the driver is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Connect to this node, then call [`Core::connected`] or [`Core::disconnected`].
    Connect(NodeId),
    /// Send the request with this id, [`Core::message`], to this node. Effects for one node are carried out
    /// in order; without a connection they are dropped.
    Send(NodeId, u64),
    /// Close the connection to this node: it has been silent too long. The core treats it as closed already.
    Close(NodeId),
}

/// A session's key. By partition first, so that a partition's sessions lie together.
type Key = (PartitionId, LaneId);

/// What waits for a time or a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Waiter {
    Session(Key),
    Read(Ticket),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Connecting,
    /// Up, and when it was last heard.
    Up(Micros),
}

/// The client's state machine.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    map: Map,
    jitter: Random,
    last_ticket: u64,
    pending: BTreeMap<Ticket, Box<Pending>>,
    sessions: BTreeMap<Key, Session>,
    windows: BTreeMap<LaneId, usize>,
    links: BTreeMap<NodeId, Link>,
    /// Who waits for a connection to a node.
    parked: BTreeMap<NodeId, Vec<Waiter>>,
    /// Who tries again when.
    retries: BTreeSet<(Micros, Waiter)>,
    /// When deadlines and silent attempts are looked at next.
    next_sweep: Option<Micros>,
    /// What a session has to send, while it is looked at: kept for its room.
    unsent: Vec<Ticket>,
    effects: VecDeque<Effect>,
    completed: VecDeque<Completed>,
    losses: Vec<Loss>,
}

impl Core {
    /// A core that knows nothing yet.
    pub fn new(config: CoreConfig) -> Core {
        let jitter = Random::new(config.seed);
        Core {
            config,
            map: Map::default(),
            jitter,
            last_ticket: 0,
            pending: BTreeMap::new(),
            sessions: BTreeMap::new(),
            windows: BTreeMap::new(),
            links: BTreeMap::new(),
            parked: BTreeMap::new(),
            retries: BTreeSet::new(),
            next_sweep: None,
            unsent: Vec::new(),
            effects: VecDeque::new(),
            completed: VecDeque::new(),
            losses: Vec::new(),
        }
    }

    /// The cluster map.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// How many writes of each of this lane's sessions may be on their way at once: 1 to [`MAX_WINDOW`].
    pub fn set_window(&mut self, lane: LaneId, window: usize) {
        self.windows.insert(lane, window.clamp(1, MAX_WINDOW));
    }

    /// Takes a call in. It ends as a [`Completed`], whatever happens, if it has a deadline.
    pub fn submit(&mut self, now: Micros, lane: LaneId, call: Call) -> Ticket {
        let kind = if call.op.writes() { Kind::Write } else { Kind::Read };
        let pending = Pending::new(now, lane, kind, call);
        let partition = pending.request().partition;
        let bad = pending.check();
        let ticket = self.admit(now, pending);
        if let Some(sentence) = bad {
            self.finish(now, ticket, Outcome::Failed(FailKind::Bad, sentence));
        } else if kind == Kind::Read {
            self.pump_read(now, ticket);
        } else {
            let key = (partition, lane);
            let session = self.sessions.entry(key).or_default();
            session.queue.push_back(ticket);
            let idle = session.used_at + self.config.idle <= now
                && session.on_their_way() == 0
                && session.limbo.is_empty();
            if idle && matches!(session.phase, Phase::Open(_)) {
                session.close();
            }
            session.used_at = now;
            self.pump(now, key);
        }
        ticket
    }

    /// A controller's cluster map. The error is a sentence. Returns the nodes whose connections are of no use
    /// any more.
    pub fn cluster_map(&mut self, now: Micros, cluster_map: &ClusterMap) -> Result<Vec<NodeId>, String> {
        let changes = self.map.apply(cluster_map)?;
        for partition in changes.partitions {
            self.configuration_changed(now, partition);
        }
        Ok(changes.nodes)
    }

    /// A newer configuration, from wherever. True if it was newer than the known one.
    pub fn adopt(&mut self, now: Micros, record: PartitionRecord) -> bool {
        let partition = record.id;
        let newer = self.map.adopt(record);
        if newer {
            self.configuration_changed(now, partition);
        }
        newer
    }

    /// The next effect to carry out.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// What a [`Effect::Send`] sends; `None` if the call has ended meanwhile, or is sent elsewhere under
    /// another id.
    pub fn message(&self, id: u64) -> Option<&Message> {
        let pending = self.pending.get(&pending::ticket_of(id))?;
        pending.is_newest(id).then_some(&pending.message)
    }

    /// The next call that ended.
    pub fn next_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// Losses noticed since the last call.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses)
    }

    /// Calls that have not ended, the internal ones that open sessions included.
    pub fn open_calls(&self) -> usize {
        self.pending.len()
    }

    /// True if this call has not ended.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.pending.contains_key(&ticket)
    }

    /// Nobody waits for this read any more. A write goes on: its number must be used.
    pub fn forget(&mut self, ticket: Ticket) {
        if self.pending.get(&ticket).is_some_and(|pending| pending.kind == Kind::Read) {
            self.pending.remove(&ticket);
        }
    }

    fn admit(&mut self, now: Micros, pending: Pending) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.pending.insert(ticket, Box::new(pending));
        self.next_sweep.get_or_insert(now + timers::SWEEP);
        ticket
    }

    /// Ends a call. Its session must already know.
    fn finish(&mut self, now: Micros, ticket: Ticket, outcome: Outcome) {
        let Some(pending) = self.pending.remove(&ticket) else { return };
        if pending.kind == Kind::Open {
            return;
        }
        let request = pending.request();
        self.completed.push_back(Completed {
            ticket,
            lane: pending.lane,
            partition: request.partition,
            outcome,
            latency_us: now.since(pending.submitted).0,
            attempts: pending.attempts,
            number: request.session.is_some().then_some((request.session, request.seq)),
        });
    }
}
