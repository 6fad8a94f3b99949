//! What can happen, and to whom.

use super::World;
use crate::lsm_files::NewJob;
use crate::network::{Conn, Endpoint, Lane};
use crate::world::fault_injector::Cure;
use replica::{ClientRef, ReadFor};
use std::cmp::Ordering;
use types::{Lsn, Micros, PartitionId};
use wire::{Message, Reply};

/// Something that happens at a time. `incarnation` names the process that it is meant for; in another life it is nothing.
#[expect(missing_docs, reason = "the fields say what their names say")]
#[derive(Debug)]
pub enum Event {
    /// A message arrives.
    Arrive { conn: Conn, forth: bool, message: Box<Message> },
    /// A connection breaks, unless a cut that doomed it has healed.
    Break { conn: Conn, if_cut: bool },
    /// Somebody connects.
    Dial { from: (Endpoint, u64), to: Endpoint, lane: Lane },
    /// A node's process starts.
    Start { node: u32 },
    /// A heartbeat interval has passed.
    Tick { node: u32, incarnation: u64 },
    /// No input is left.
    Flush { node: u32, incarnation: u64 },
    /// It is time to tell the controllers how things are.
    Status { node: u32, incarnation: u64 },
    /// The disk is through with a batch.
    Synced { node: u32, incarnation: u64 },
    /// The disk may have room again.
    Retry { node: u32, incarnation: u64 },
    /// The log is idle.
    Mark { node: u32, incarnation: u64 },
    /// A component is made.
    Checkpoint { node: u32, incarnation: u64 },
    /// A component is made because a member asked for it.
    Component { node: u32, incarnation: u64, partition: PartitionId },
    /// An engine's job has its turn.
    Job { node: u32, incarnation: u64, job: NewJob },
    /// An engine's job has ended: what was begun with it goes on.
    GoOn { node: u32, incarnation: u64, partition: PartitionId },
    /// Entries are read back.
    Read {
        node: u32,
        incarnation: u64,
        partition: PartitionId,
        purpose: ReadFor,
        from: Lsn,
        max_bytes: usize,
    },
    /// What was received is being checked and installed.
    Install { node: u32, incarnation: u64, partition: PartitionId },
    /// An answer's bytes leave.
    Leave { node: u32, incarnation: u64, to: ClientRef, reply: Box<Reply>, valid_until: Option<Micros> },
    /// A controller starts.
    ControllerStart { id: u32 },
    /// A controller's clock ticks.
    ControllerTick { id: u32, incarnation: u64 },
    /// A controller asks the metastore for changes.
    ControllerWatch { id: u32, incarnation: u64 },
    /// A transaction reaches the metastore.
    Meta { id: u32, incarnation: u64, tag: controller::Tag, txn: Box<controller::Txn>, told: bool },
    /// A transaction's outcome reaches the controller.
    MetaDone {
        id: u32,
        incarnation: u64,
        tag: controller::Tag,
        outcome: Box<Result<controller::TxnOutcome, controller::TxnError>>,
    },
    /// A client looks what it can do.
    Client { id: u32 },
    /// The operator looks what there is to do.
    Operator,
    /// An index is wanted, or not any more.
    Index,
    /// Another number of copies is wanted.
    Factor,
    /// A node comes, or is to go.
    Nodes,
    /// An operator goes on without a node, step by step.
    Force(super::forced::Step),
    /// A fault strikes.
    InjectFault,
    /// A fault is over.
    Cure(Cure),
    /// Everything is looked at.
    Inspect,
}

/// An event in the queue. The earliest is the greatest; of several at one time the first entered.
pub(super) struct Scheduled {
    pub at: u64,
    pub sequence: u64,
    pub event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl World {
    /// The node whose process handles this, and whether its executor does.
    fn handled_by(&self, event: &Event) -> Option<(u32, bool)> {
        match event {
            Event::Arrive { conn, forth, .. } => {
                let open = self.network.carrier(*conn)?;
                let (_, (to, _)) = open.ends(*forth);
                let Endpoint::Node(node) = to else { return None };
                Some((node, open.lane != Lane::Heartbeat))
            }
            Event::Dial { from: (Endpoint::Node(node), _), .. } => Some((*node, false)),
            Event::Flush { node, .. }
            | Event::Read { node, .. }
            | Event::Install { node, .. }
            | Event::Component { node, .. }
            | Event::GoOn { node, .. }
            | Event::Checkpoint { node, .. } => Some((*node, true)),
            Event::Tick { node, .. }
            | Event::Status { node, .. }
            | Event::Job { node, .. }
            | Event::Retry { node, .. }
            | Event::Mark { node, .. }
            | Event::Leave { node, .. } => Some((*node, false)),
            Event::Synced { node, .. } => Some((*node, true)),
            _ => None,
        }
    }

    /// Lets something happen, now or when whom it concerns goes on.
    pub(super) fn handle(&mut self, event: Event) {
        if let Some((node, executor)) = self.handled_by(&event) {
            let machine = self.machine_mut(node);
            if machine.paused || machine.stalled && executor {
                machine.deferred.push(event);
                return;
            }
        }
        self.trace.event(self.now, &numbers_of(&event));
        match event {
            Event::Arrive { conn, forth, message } => self.arrive(conn, forth, *message),
            Event::Break { conn, if_cut } => self.break_conn(conn, if_cut),
            Event::Dial { from, to, lane } => self.dial(from, to, lane),
            Event::Start { node } => self.start(node),
            Event::Tick { node, incarnation } => self.tick(node, incarnation),
            Event::Flush { node, incarnation } => self.flush(node, incarnation),
            Event::Status { node, incarnation } => self.status(node, incarnation),
            Event::Synced { node, incarnation } => self.synced(node, incarnation),
            Event::Retry { node, incarnation } => self.retry_log(node, incarnation),
            Event::Mark { node, incarnation } => self.mark_log(node, incarnation),
            Event::Checkpoint { node, incarnation } => self.checkpoint(node, incarnation),
            Event::Component { node, incarnation, partition } => {
                self.flush_engine(node, incarnation, partition)
            }
            Event::Job { node, incarnation, job } => self.run_job(node, incarnation, job),
            Event::GoOn { node, incarnation, partition } => {
                self.go_on_checkpoint(node, incarnation, partition)
            }
            Event::Read { node, incarnation, partition, purpose, from, max_bytes } => {
                self.read_log(node, incarnation, (partition, from, max_bytes), purpose);
            }
            Event::Install { node, incarnation, partition } => self.install(node, incarnation, partition),
            Event::Leave { node, incarnation, to, reply, valid_until } => {
                self.leave(node, incarnation, to, *reply, valid_until)
            }
            Event::ControllerStart { id } => self.controller_process_start(id),
            Event::ControllerTick { id, incarnation } => self.controller_process_tick(id, incarnation),
            Event::ControllerWatch { id, incarnation } => self.controller_process_watch(id, incarnation),
            Event::Meta { id, incarnation, tag, txn, told } => {
                self.meta_txn(id, incarnation, tag, *txn, told)
            }
            Event::MetaDone { id, incarnation, tag, outcome } => {
                self.meta_done(id, incarnation, tag, *outcome)
            }
            Event::Client { id } => self.client_wakes(id),
            Event::Operator => self.operator_wakes(),
            Event::Index => self.want_index(),
            Event::Factor => self.want_factor(),
            Event::Nodes => self.want_nodes(),
            Event::Force(step) => self.force(step),
            Event::InjectFault => self.inject(),
            Event::Cure(cure) => self.cure(cure),
            Event::Inspect => self.inspect(),
        }
        self.plan_jobs();
    }
}

/// What tells one event from another, as numbers: its kind, whom it is for, and of a message its number and positions. Sentences and
/// records' texts are left out.
fn numbers_of(event: &Event) -> [u64; 6] {
    let plain = |kind: u64, who: u32, incarnation: u64| [kind, u64::from(who), incarnation, 0, 0, 0];
    match event {
        Event::Arrive { conn, forth, message } => {
            let [a, b, c] = numbers_in(message);
            [1, *conn, u64::from(*forth) << 32 | u64::from(message.number()), a, b, c]
        }
        Event::Break { conn, if_cut } => [2, *conn, u64::from(*if_cut), 0, 0, 0],
        Event::Dial { lane, .. } => [3, u64::from(*lane == Lane::Heartbeat), 0, 0, 0, 0],
        Event::Start { node } => plain(4, *node, 0),
        Event::Tick { node, incarnation } => plain(5, *node, *incarnation),
        Event::Flush { node, incarnation } => plain(6, *node, *incarnation),
        Event::Status { node, incarnation } => plain(7, *node, *incarnation),
        Event::Synced { node, incarnation } => plain(8, *node, *incarnation),
        Event::Retry { node, incarnation } => plain(9, *node, *incarnation),
        Event::Mark { node, incarnation } => plain(10, *node, *incarnation),
        Event::Checkpoint { node, incarnation } => plain(11, *node, *incarnation),
        Event::Component { node, incarnation, partition } => {
            [12, u64::from(*node), *incarnation, u64::from(partition.0), 0, 0]
        }
        Event::Read { node, incarnation, partition, from, .. } => {
            [13, u64::from(*node), *incarnation, u64::from(partition.0), from.0, 0]
        }
        Event::Install { node, incarnation, partition } => {
            [14, u64::from(*node), *incarnation, u64::from(partition.0), 0, 0]
        }
        Event::Leave { node, incarnation, reply, .. } => {
            [15, u64::from(*node), *incarnation, reply.id, reply.lsn.0, 0]
        }
        Event::ControllerStart { id } => plain(16, *id, 0),
        Event::ControllerTick { id, incarnation } => plain(17, *id, *incarnation),
        Event::ControllerWatch { id, incarnation } => plain(18, *id, *incarnation),
        Event::Meta { id, incarnation, told, .. } => {
            [19, u64::from(*id), *incarnation, u64::from(*told), 0, 0]
        }
        Event::MetaDone { id, incarnation, outcome, .. } => {
            [20, u64::from(*id), *incarnation, u64::from(outcome.is_ok()), 0, 0]
        }
        Event::Client { id } => plain(21, *id, 0),
        Event::Operator => plain(22, 0, 0),
        Event::Index => plain(23, 0, 0),
        Event::Factor => plain(24, 0, 0),
        Event::Nodes => plain(25, 0, 0),
        Event::InjectFault => plain(26, 0, 0),
        Event::Cure(_) => plain(27, 0, 0),
        Event::Inspect => plain(28, 0, 0),
        Event::Force(_) => plain(29, 0, 0),
        Event::Job { node, incarnation, job } => {
            [30, u64::from(*node), *incarnation, u64::from(job.place.partition.0), job.job, 0]
        }
        Event::GoOn { node, incarnation, partition } => {
            [31, u64::from(*node), *incarnation, u64::from(partition.0), 0, 0]
        }
    }
}

/// The positions in a message of the data path; of the others nothing but their number counts.
fn numbers_in(message: &Message) -> [u64; 3] {
    match message {
        Message::Append(m) => [m.prev.lsn.0, m.committed.0, m.secured.0 ^ (m.entries.len() as u64) << 32],
        Message::Ack(m) => [m.end.lsn.0, m.marks.durable.0, m.marks.applied.0],
        Message::Reply(m) => [m.id, m.lsn.0, m.epoch.0],
        Message::Request(m) => [m.id, m.seq, u64::from(m.partition.0)],
        Message::Chunk(m) => [m.number, m.bytes.len() as u64, u64::from(m.partition.0)],
        _ => [0; 3],
    }
}
