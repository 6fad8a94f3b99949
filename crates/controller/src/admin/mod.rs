//! Operators: what they ask for, and what they are told. A refusal is one sentence with the exit status that
//! fits it.

mod force;
mod moves;
mod moving;
mod names;
mod nodes;
mod rename;
mod tables;
mod transactions;

pub(crate) use names::name_key;

use crate::api::ConnId;
use crate::controller::Controller;
use std::collections::VecDeque;
use tables::{COPIES, Creation};
use types::{Holds, Micros, NodeId, Now, PartitionId, PartitionRecord};
use wire::RecordText;
use wire::control::{
    Admin, AdminAnswer, AdminCommand, AlterTable, BackOff, ClusterStatus, CreateTable, HungDisk,
};
use wire::moves::MoveTable;

/// The answer to an operator: JSON, or an exit status with a sentence.
pub(crate) type Answer = Result<String, Refusal>;

/// Why something is refused: the exit status that fits it, and a sentence.
type Refusal = (u8, String);

/// It failed.
const FAILED: u8 = 1;
/// The request makes no sense.
const USAGE: u8 = 2;
/// There is no such thing.
const NOT_FOUND: u8 = 3;
/// Somebody cannot be reached.
const UNREACHABLE: u8 = 4;
/// It would not be safe.
const REFUSED: u8 = 5;

/// A creation waits so long for nodes that are registered and silent. Clients wait longer for their answer.
const SILENT_NODES_WAIT: Micros = Micros::from_millis(1_500);

/// A disk that has written nothing for so long, milliseconds, is shown: what is due comes within a few.
const HUNG_MS: u64 = 1_000;

/// What an operator's transaction is a step of.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Job {
    /// A table's numbers are being reserved.
    Reserve(Box<Creation>),
    /// Its partitions are being written.
    Fill(Box<Creation>),
    /// It is being made visible.
    Publish(Box<Creation>),
    /// The record of a table or a database is being removed.
    Drop(Holds, String),
    /// Its policy is being changed.
    Alter(Holds, AlterTable),
    /// A table is being given another name, or it is being found out that there is none.
    Rename(Holds, AlterTable),
    /// A step of a table that moves, of those with partitions of their own.
    MoveTable(MoveTable),
    /// Numbers are being taken from the cluster's record.
    Numbers {
        /// The first of them.
        first: u32,
        /// How many.
        count: u32,
    },
    /// A copy's place is being changed in its table's record.
    Move {
        /// The partition.
        partition: PartitionId,
        /// From here.
        from: NodeId,
        /// To there.
        to: NodeId,
    },
    /// A node is being put first in a partition's placement.
    Prefer(PartitionId, NodeId),
    /// A node is being marked: it leads nothing until its next life.
    Drain(NodeId),
    /// A node is being marked: it is given copies.
    Add(NodeId),
    /// A node is being marked: everything is moved away from it.
    Remove {
        /// The node.
        node: NodeId,
        /// Also if it may have acknowledged commits that nobody else has.
        losing: bool,
    },
    /// A partition is being sealed on an operator's word.
    Force(PartitionId, Option<NodeId>),
}

impl Job {
    /// True if it writes the cluster's record.
    pub(crate) fn takes_numbers(&self) -> bool {
        matches!(self, Job::Reserve(_) | Job::Numbers { .. } | Job::Force(..))
    }
}

/// Wishes that need numbers from the cluster's record, while another transaction takes some.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(VecDeque<(ConnId, u64, AdminWait)>);

#[derive(Clone, Debug)]
enum AdminWait {
    /// With the time until which nodes that are registered and have not been heard are waited for.
    Create(Box<CreateTable>, Micros),
    Numbers(u32),
    Force(PartitionId, Option<NodeId>),
}

impl Controller {
    pub(crate) fn on_admin(&mut self, now: Now, conn: ConnId, admin: Admin) {
        let id = admin.id;
        let answer = match admin.command {
            AdminCommand::Watch => {
                self.send_whole(conn);
                Some(Ok("{}".into()))
            }
            AdminCommand::Status => Some(Ok(RecordText::new(&self.cluster_status(now)).0)),
            AdminCommand::Failovers => {
                Some(Ok(RecordText::new(&self.records.failovers().collect::<Vec<_>>()).0))
            }
            AdminCommand::CreateTable(text) => self.asked_to_create(now, conn, id, (Holds::Table, text)),
            AdminCommand::CreateDatabase(text) => {
                self.asked_to_create(now, conn, id, (Holds::Database, text))
            }
            AdminCommand::AlterTable(text) => self.asked_to_alter(now, conn, id, (Holds::Table, text)),
            AdminCommand::AlterDatabase(text) => self.asked_to_alter(now, conn, id, (Holds::Database, text)),
            AdminCommand::DropTable(name) => self.drop_table(conn, id, (Holds::Table, name)),
            AdminCommand::DropDatabase(name) => self.drop_table(conn, id, (Holds::Database, name)),
            AdminCommand::Numbers(count) => self.wait(now, conn, id, AdminWait::Numbers(count)),
            AdminCommand::MoveTable(text) => self.asked_to_move(conn, id, &text),
            AdminCommand::Switchover { partition, to } => self.switchover(now, conn, id, partition, to),
            AdminCommand::Drain(node) => self.drain(now, conn, id, node),
            AdminCommand::Move { partition, from, to } => self.move_copy(now, conn, id, partition, from, to),
            AdminCommand::Add(node) => self.add_node(conn, id, node),
            AdminCommand::Remove { node, losing } => self.remove_node(now, conn, id, node, losing),
            AdminCommand::Force { partition, node } => {
                self.wait(now, conn, id, AdminWait::Force(partition, node))
            }
            AdminCommand::Records(_) => Some(Err((USAGE, "nodes are asked that".into()))),
        };
        if let Some(answer) = answer {
            self.answer(conn, id, answer);
        }
    }

    fn asked_to_create(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        (holds, text): (Holds, RecordText),
    ) -> Option<Answer> {
        match text.read::<CreateTable>() {
            Ok(request) => {
                let until = now.mono + SILENT_NODES_WAIT;
                self.wait(now, conn, id, AdminWait::Create(Box::new(CreateTable { holds, ..request }), until))
            }
            Err(why) => Some(Err((USAGE, why))),
        }
    }

    fn asked_to_alter(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        (holds, text): (Holds, RecordText),
    ) -> Option<Answer> {
        match text.read::<AlterTable>() {
            Ok(request) if request.rename.is_some() => self.rename_table(conn, id, (holds, request)),
            Ok(request) => self.alter_table(now, conn, id, (holds, request)),
            Err(why) => Some(Err((USAGE, why))),
        }
    }

    /// Answers an operator.
    pub(crate) fn answer(&mut self, conn: ConnId, id: u64, result: Answer) {
        self.send(conn, AdminAnswer { id, result });
    }

    fn cluster_status(&self, now: Now) -> ClusterStatus {
        let nodes = self.failure_detector.nodes().filter_map(|heard| heard.status.clone());
        let nodes = nodes.map(|(status, at)| (status, now.mono.since(at).as_millis())).collect();
        let hangs = |record: &PartitionRecord| {
            let ms = self.sealing.hung_for(record, now)?.as_millis();
            (ms >= HUNG_MS).then_some(HungDisk { partition: record.id, primary: record.primary, ms })
        };
        ClusterStatus {
            nodes,
            partitions: self.records.partitions().cloned().collect(),
            hung: self.records.partitions().filter_map(hangs).collect(),
            back_offs: self.planner.back_offs(now.mono).filter(|held| self.lacks(held)).collect(),
        }
    }

    /// True if this node is to have a copy of the partition and has none.
    fn lacks(&self, held: &BackOff) -> bool {
        self.records.partition(held.partition).is_some_and(|record| {
            record.member_on(held.node).is_none() && self.records.placement(record).contains(&held.node)
        })
    }

    fn wait(&mut self, now: Now, conn: ConnId, id: u64, wait_for: AdminWait) -> Option<Answer> {
        self.waiting.0.push_back((conn, id, wait_for));
        self.go_on_waiting(now);
        None
    }

    /// Begins the next wish that waited for its turn at the cluster's record.
    pub(crate) fn go_on_waiting(&mut self, now: Now) {
        let mut put_off = VecDeque::new();
        while !self.takes_numbers() {
            let Some((conn, id, wait_for)) = self.waiting.0.pop_front() else { break };
            if self.waits_for_nodes(now, conn, &wait_for) {
                put_off.push_back((conn, id, wait_for));
                continue;
            }
            let answer = match wait_for {
                AdminWait::Create(request, _) => self.create_table(now, conn, id, *request),
                AdminWait::Numbers(count) => self.give_numbers(conn, id, count),
                AdminWait::Force(partition, node) => self.force(now, conn, id, partition, node),
            };
            if let Some(answer) = answer {
                self.answer(conn, id, answer);
            }
        }
        put_off.append(&mut self.waiting.0);
        self.waiting.0 = put_off;
    }

    /// True if a creation would be refused, or made of fewer copies, only because nodes that are registered
    /// have not been heard yet: a controller that has just started, or stood still, hears them in a moment.
    fn waits_for_nodes(&self, now: Now, conn: ConnId, wait_for: &AdminWait) -> bool {
        let AdminWait::Create(request, until) = wait_for else { return false };
        now.mono < *until && self.failure_detector.is_open(conn) && self.lacks_nodes(now, request)
    }

    /// True if a creation needs more nodes than are live, and no more than are registered.
    fn lacks_nodes(&self, now: Now, request: &CreateTable) -> bool {
        let registered = self.records.nodes().filter(|node| !self.is_draining(node.id)).count();
        let default = if request.policy == "none" { 1 } else { registered.min(COPIES) };
        let wanted = request.factor.map_or(default, usize::from);
        wanted <= registered && self.open_sites(now).len() < wanted
    }

    /// A step was taken, or somebody else was faster: then it is begun again on what the records are now.
    pub(crate) fn job_done(&mut self, now: Now, conn: ConnId, id: u64, job: Job, applied: bool) {
        let answer = match (job, applied) {
            (Job::Reserve(creation), true) => self.fill(conn, id, *creation),
            (Job::Reserve(creation), false) => {
                self.wait(now, conn, id, AdminWait::Create(Box::new(creation.request), now.mono))
            }
            (Job::Fill(creation), true) => self.fill(conn, id, *creation),
            (Job::Fill(creation), false) => Some(self.creation_failed(&creation)),
            (Job::Publish(creation), true) => Some(self.created(&creation)),
            (Job::Publish(creation), false) => Some(self.creation_failed(&creation)),
            (Job::Drop(_, name), true) => Some(Ok(serde_json::json!({ "dropped": name }).to_string())),
            (Job::Drop(holds, name), false) => self.drop_table(conn, id, (holds, name)),
            (Job::Alter(holds, request), true) => Some(self.altered(holds, &request)),
            (Job::Alter(holds, request), false) => self.alter_table(now, conn, id, (holds, request)),
            (Job::Rename(holds, request), true) => Some(self.renamed(holds, &request)),
            (Job::Rename(holds, request), false) => self.rename_table(conn, id, (holds, request)),
            (Job::MoveTable(request), true) => Some(self.table_moved(&request)),
            (Job::MoveTable(request), false) => self.move_table(conn, id, request),
            (Job::Numbers { first, .. }, true) => Some(Ok(first.to_string())),
            (Job::Numbers { count, .. }, false) => self.wait(now, conn, id, AdminWait::Numbers(count)),
            (Job::Move { partition, .. }, true) => Some(self.placed(partition)),
            (Job::Move { partition, from, to }, false) => self.move_copy(now, conn, id, partition, from, to),
            (Job::Prefer(partition, to), _) => self.switchover(now, conn, id, Some(partition), Some(to)),
            (Job::Drain(node), _) => self.drain(now, conn, id, node),
            (Job::Add(node), true) => Some(self.added(node)),
            (Job::Add(node), false) => self.add_node(conn, id, node),
            (Job::Remove { node, losing }, _) => self.remove_node(now, conn, id, node, losing),
            (Job::Force(partition, _), true) => Some(self.forced(partition)),
            (Job::Force(partition, node), false) => {
                self.wait(now, conn, id, AdminWait::Force(partition, node))
            }
        };
        if let Some(answer) = answer {
            self.answer(conn, id, answer);
        }
    }
}
