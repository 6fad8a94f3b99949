//! What can happen, and to whom: values alone, which the world lets happen when their time has come.

use crate::lsm_files::NewJob;
use crate::network::{Conn, Endpoint, Lane};
use replica::{ClientRef, ReadFor};
use types::{Lsn, Micros, PartitionId};
use wire::{Message, Reply};

/// Something that happens at a time. `incarnation` names the process that it is meant for; in another life it
/// is nothing.
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
    /// A client's connection to it has ended.
    ClientGone { node: u32, incarnation: u64, conn: Conn },
    /// It is time to tell the controllers how things are.
    Status { node: u32, incarnation: u64 },
    /// The disk is through with a batch.
    Synced { node: u32, incarnation: u64 },
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
    Force(ForceStep),
    /// A fault strikes.
    InjectFault,
    /// A fault strikes of those that have a rhythm of their own.
    InjectOwn,
    /// A fault of files strikes.
    InjectFileFault,
    /// An operator who makes the records anew goes on.
    Rebuild,
    /// A controller of before the records were made anew starts.
    OldController,
    /// The copy of a node's disk is started.
    Cloned,
    /// An operator begins to have files read back, or goes on with it.
    Scrub { begins: bool },
    /// A fault is over.
    Cure(Cure),
    /// Everything is looked at.
    Inspect,
}

/// What ends a fault.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say what they say")]
pub enum Cure {
    Resume(u32),
    Unstall(u32),
    /// An executor goes on that stood still by itself.
    Executor(u32),
    Fast(u32),
    Room(u32),
    /// The log can be read again.
    Reads(u32),
    /// The log can be written again.
    Writes(u32),
    /// The log's process is given open files again.
    LogFiles(u32),
    /// A node is started as the build that the others are.
    Build(u32),
    /// A node gets an empty disk in place of an old copy.
    OldDisk(u32),
    /// Somebody stops the controller of before.
    OldController,
    /// There is room for the metastore.
    MetaRoom,
    /// The same under the LSM engines, and of open files.
    Trees(u32),
    Rate(u32),
    Link(Endpoint, Endpoint),
    LaneLink(Endpoint, Endpoint, Lane),
    Weather,
    Meta,
    OneLead(u32),
    /// What came before the loss of its second directory is over.
    Directory(u32),
}

/// How far the operator is.
#[derive(Clone, Copy, Debug)]
pub enum ForceStep {
    /// A primary is to be left alone.
    Begin,
    /// It should be alone.
    Cut(PartitionId, u32),
    /// Another is to lead.
    Force(PartitionId, u32),
    /// Clients may reach it again once it knows.
    Return(PartitionId, u32),
    /// A copy should be behind by now.
    Behind(PartitionId, u32),
    /// Who was made to lead hands the lead over.
    HandOver(PartitionId),
    /// Who led before is started again.
    Forget(u32),
}

/// What tells one event from another, as numbers: its kind, whom it is for, and of a message its number and
/// positions. Sentences and records' texts are left out.
pub fn numbers_of(event: &Event) -> [u64; 6] {
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
        Event::InjectOwn => plain(32, 0, 0),
        Event::Rebuild => plain(33, 0, 0),
        Event::OldController => plain(34, 0, 0),
        Event::Cloned => plain(35, 0, 0),
        Event::Scrub { begins } => plain(36, u32::from(*begins), 0),
        Event::InjectFileFault => plain(38, 0, 0),
        Event::ClientGone { node, incarnation, conn } => [37, u64::from(*node), *incarnation, *conn, 0, 0],
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
