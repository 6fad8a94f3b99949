//! What can happen, and to whom.

use super::World;
use crate::network::{Conn, Endpoint, Lane};
use crate::world::strikes::Cure;
use replica::{ClientRef, ReadFor};
use std::cmp::Ordering;
use types::{Lsn, Micros, PartitionId};
use wire::{Message, Reply};

/// Something that happens at a time. `life` names the process that it is meant for; in another life it is nothing.
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
    /// A beacon interval has passed.
    Tick { node: u32, life: u64 },
    /// No input is left.
    Flush { node: u32, life: u64 },
    /// It is time to tell the controllers how things are.
    Status { node: u32, life: u64 },
    /// The disk is through with a batch.
    Synced { node: u32, life: u64 },
    /// The disk may have room again.
    Retry { node: u32, life: u64 },
    /// The log is idle.
    Mark { node: u32, life: u64 },
    /// A component is made.
    Checkpoint { node: u32, life: u64 },
    /// A component is made because a member asked for it.
    Component { node: u32, life: u64, partition: PartitionId },
    /// Entries are read back.
    Read { node: u32, life: u64, partition: PartitionId, purpose: ReadFor, from: Lsn, max_bytes: usize },
    /// What was received is being checked and installed.
    Install { node: u32, life: u64, partition: PartitionId },
    /// An answer's bytes leave.
    Leave { node: u32, life: u64, to: ClientRef, reply: Box<Reply>, valid_until: Option<Micros> },
    /// A controller starts.
    BrainStart { id: u32 },
    /// A controller's clock ticks.
    BrainTick { id: u32, life: u64 },
    /// A controller asks the metastore for changes.
    BrainWatch { id: u32, life: u64 },
    /// A transaction reaches the metastore.
    Meta { id: u32, life: u64, tag: controller::Tag, txn: Box<controller::Txn>, told: bool },
    /// A transaction's outcome reaches the controller.
    MetaDone {
        id: u32,
        life: u64,
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
    /// A fault strikes.
    Strike,
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
                Some((node, open.lane != Lane::Beacon))
            }
            Event::Dial { from: (Endpoint::Node(node), _), .. } => Some((*node, false)),
            Event::Flush { node, .. }
            | Event::Read { node, .. }
            | Event::Install { node, .. }
            | Event::Component { node, .. }
            | Event::Checkpoint { node, .. } => Some((*node, true)),
            Event::Tick { node, .. }
            | Event::Status { node, .. }
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
        match event {
            Event::Arrive { conn, forth, message } => self.arrive(conn, forth, *message),
            Event::Break { conn, if_cut } => self.break_conn(conn, if_cut),
            Event::Dial { from, to, lane } => self.dial(from, to, lane),
            Event::Start { node } => self.start(node),
            Event::Tick { node, life } => self.tick(node, life),
            Event::Flush { node, life } => self.flush(node, life),
            Event::Status { node, life } => self.status(node, life),
            Event::Synced { node, life } => self.synced(node, life),
            Event::Retry { node, life } => self.retry_log(node, life),
            Event::Mark { node, life } => self.mark_log(node, life),
            Event::Checkpoint { node, life } => self.checkpoint(node, life),
            Event::Component { node, life, partition } => self.flush_engine(node, life, partition),
            Event::Read { node, life, partition, purpose, from, max_bytes } => {
                self.read_log(node, life, (partition, from, max_bytes), purpose);
            }
            Event::Install { node, life, partition } => self.install(node, life, partition),
            Event::Leave { node, life, to, reply, valid_until } => {
                self.leave(node, life, to, *reply, valid_until)
            }
            Event::BrainStart { id } => self.brain_start(id),
            Event::BrainTick { id, life } => self.brain_tick(id, life),
            Event::BrainWatch { id, life } => self.brain_watch(id, life),
            Event::Meta { id, life, tag, txn, told } => self.meta_txn(id, life, tag, *txn, told),
            Event::MetaDone { id, life, tag, outcome } => self.meta_done(id, life, tag, *outcome),
            Event::Client { id } => self.client_wakes(id),
            Event::Operator => self.operator_wakes(),
            Event::Index => self.wish_index(),
            Event::Factor => self.wish_factor(),
            Event::Nodes => self.wish_nodes(),
            Event::Strike => self.strike(),
            Event::Cure(cure) => self.cure(cure),
            Event::Inspect => self.inspect(),
        }
    }
}
