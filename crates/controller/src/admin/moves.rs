//! Switchovers, draining a node, moving a copy. What is wanted is written into the records; the planner
//! brings it about and goes on after any interruption.

use super::{Answer, Job, NOT_FOUND, REFUSED, UNREACHABLE, USAGE};
use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::config::{NodeRecord, PartitionRecord, TableRecord};
use types::{Member, NodeId, Now, PartitionId};
use wire::control::Advice;

type Refusal = (u8, String);

impl Controller {
    /// Hands over one partition, to a node or as placed, or every partition as placed.
    pub(super) fn switchover(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        partition: Option<PartitionId>,
        to: Option<NodeId>,
    ) -> Option<Answer> {
        let Some(partition) = partition else {
            return Some(match to {
                Some(_) => Err((USAGE, "name a partition, or leave the node out to balance all".into())),
                None => Ok(self.balance_all(now)),
            });
        };
        let Some(record) = self.records.partition(partition).cloned() else {
            return Some(Err(no_partition(partition)));
        };
        let placed = self.records.placement(&record).first().copied();
        let Some(to) = to.or(placed) else { return Some(Err(no_partition(partition))) };
        if let Some(txn) = self.prefer(&record, to) {
            if let Err(refusal) = self.successor(now, &record, to) {
                return Some(Err(refusal));
            }
            self.submit(Purpose::Admin(conn, id, Job::Prefer(partition, to)), txn);
            return None;
        }
        if record.primary.node == to {
            return Some(Ok(advised(&[])));
        }
        Some(self.hand_over(now, &record, to))
    }

    fn hand_over(&mut self, now: Now, record: &PartitionRecord, to: NodeId) -> Answer {
        let member = self.successor(now, record, to)?;
        match self.advise(now, record, Advice::HandOver(member)) {
            true => Ok(advised(&[record.id])),
            false => Err(primary_away(record)),
        }
    }

    /// The member that is to lead, if it can.
    fn successor(&self, now: Now, record: &PartitionRecord, to: NodeId) -> Result<Member, Refusal> {
        if record.primary.node == to {
            return Ok(record.primary);
        }
        if !self.serves(record) {
            return Err((
                REFUSED,
                format!("partition {}: {} is still taking over", record.id, record.primary.node),
            ));
        }
        if let Some(member) = self.can_lead(now, record, to) {
            return Ok(member);
        }
        let in_sync: Vec<String> = record.in_sync.iter().map(|member| member.node.to_string()).collect();
        let why =
            if record.in_sync.iter().any(|member| member.node == to) { "not ready" } else { "not in sync" };
        Err((REFUSED, format!("partition {}: {to} is {why}; in sync are {}", record.id, in_sync.join(", "))))
    }

    /// The change of the placement that makes this node the one to lead; none if it is, or has no place
    /// there.
    fn prefer(&self, record: &PartitionRecord, to: NodeId) -> Option<Txn> {
        let (table, index) = self.row(record)?;
        let place = table.placement[index].iter().position(|node| *node == to).filter(|place| *place > 0)?;
        let mut table = table.clone();
        table.placement[index][..=place].rotate_right(1);
        Some(self.write_table(&table))
    }

    /// The table of a partition, and the number of its row in the placement.
    fn row(&self, record: &PartitionRecord) -> Option<(&TableRecord, usize)> {
        let table = self.records.table(record.table)?;
        let index = record.id.0.checked_sub(table.first_partition.0)? as usize;
        (index < table.placement.len()).then_some((table, index))
    }

    fn write_table(&self, table: &TableRecord) -> Txn {
        let key = Key::Table(table.id);
        Txn::default().compare(&key, self.records.compare_with(&key)).put(&key, table)
    }

    fn balance_all(&mut self, now: Now) -> String {
        let all: Vec<PartitionRecord> = self.records.partitions().cloned().collect();
        let mut moved = Vec::new();
        for record in all {
            let first =
                self.records.placement(&record).iter().find(|node| !self.is_draining(**node)).copied();
            let Some(to) = first.filter(|first| *first != record.primary.node) else { continue };
            if self.hand_over(now, &record, to).is_ok() {
                moved.push(record.id);
            }
        }
        advised(&moved)
    }

    /// Marks the node, and hands over what it leads.
    pub(super) fn drain(&mut self, now: Now, conn: ConnId, id: u64, node: NodeId) -> Option<Answer> {
        let Some(record) = self.records.node(node) else {
            return Some(Err((NOT_FOUND, format!("there is no node {node}"))));
        };
        if !self.is_draining(node) {
            let mut record: NodeRecord = record.clone();
            record.mark(NodeRecord::DRAINING, true);
            let key = Key::Node(node);
            let txn = Txn::default().compare(&key, self.records.compare_with(&key)).put(&key, &record);
            self.submit(Purpose::Admin(conn, id, Job::Drain(node)), txn);
            return None;
        }
        let led = self.records.partitions().filter(|record| record.primary.node == node);
        let led: Vec<PartitionRecord> = led.cloned().collect();
        let mut moved = Vec::new();
        for record in led {
            let Some(to) = self.takes_over(now, &record).filter(|_| self.serves(&record)) else {
                continue;
            };
            if self.advise(now, &record, Advice::HandOver(to)) {
                moved.push(record.id);
            }
        }
        Some(Ok(advised(&moved)))
    }

    /// Writes the new place into the table's record: the planner admits it there, then removes the old one.
    pub(super) fn move_copy(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        partition: PartitionId,
        from: NodeId,
        to: NodeId,
    ) -> Option<Answer> {
        match self.moved_row(now, partition, from, to) {
            Ok(txn) => {
                self.submit(Purpose::Admin(conn, id, Job::Move { partition, from, to }), txn);
                None
            }
            Err(refusal) => Some(Err(refusal)),
        }
    }

    fn moved_row(&self, now: Now, partition: PartitionId, from: NodeId, to: NodeId) -> Result<Txn, Refusal> {
        let record = self.records.partition(partition).ok_or_else(|| no_partition(partition))?;
        let (table, index) = self.row(record).ok_or_else(|| no_partition(partition))?;
        let row = &table.placement[index];
        let nowhere = || (NOT_FOUND, format!("partition {partition} has no place on {from}"));
        let place = row.iter().position(|node| *node == from).ok_or_else(nowhere)?;
        if row.contains(&to) {
            return Err((USAGE, format!("partition {partition} has a place on {to} already")));
        }
        if self.records.node(to).is_none() {
            return Err((NOT_FOUND, format!("there is no node {to}")));
        }
        if !self.is_live(now, to) {
            return Err((UNREACHABLE, format!("{to} is not live")));
        }
        if self.is_decommissioning(to) {
            return Err((REFUSED, format!("{to} is being removed: everything is moved away from it")));
        }
        let mut table = table.clone();
        table.placement[index][place] = to;
        Ok(self.write_table(&table))
    }

    /// The partition's new row.
    pub(super) fn placed(&self, partition: PartitionId) -> Answer {
        let record = self.records.partition(partition).ok_or_else(|| no_partition(partition))?;
        Ok(serde_json::json!({ "partition": partition, "placement": self.records.placement(record) })
            .to_string())
    }
}

fn advised(partitions: &[PartitionId]) -> String {
    serde_json::json!({ "advised": partitions }).to_string()
}

fn no_partition(partition: PartitionId) -> Refusal {
    (NOT_FOUND, format!("there is no partition {partition}"))
}

fn primary_away(record: &PartitionRecord) -> Refusal {
    (UNREACHABLE, format!("partition {}: its primary {} is not connected", record.id, record.primary.node))
}
