//! Operators who want different things and ask for them at the same moment, each another controller: leads
//! that are to be handed to two nodes, copies that are to move to two places, policies of which one must
//! win. In a healed world the records say which did, and all must have come to be so.

use super::World;
use crate::network::Conn;
use controller::{ConnId, Input};
use types::{NodeId, PartitionId, PartitionRecord};
use wire::Message;
use wire::control::{Admin, AdminCommand};

/// Connections of operators who do not wait for an answer: the first of them.
const RIVALS: Conn = Conn::MAX - 1_000;

impl World {
    /// Two operators ask for what does not go together. False if there is nothing to ask for.
    pub(super) fn ask_twice(&mut self) -> bool {
        let records: Vec<PartitionRecord> = self.checks.epochs.records().cloned().collect();
        let Some(record) = self.faults.own().pick(&records).cloned() else { return false };
        let commands = match self.faults.own().below(5) {
            0 => [self.handing_over(&record), self.handing_over(&record)],
            1 => [self.handing_over(&record), self.moving(&record)],
            2 => [self.moving(&record), self.moving(&record)],
            3 => [self.alteration(), self.moving(&record)],
            _ => [self.alteration(), self.alteration()],
        };
        let [Some(one), Some(other)] = commands else { return false };
        for (number, command) in (0..).zip([one, other]) {
            let id = self.faults.own().below(u64::from(self.plan.controllers)) as u32;
            self.trace.note(self.now(), format_args!("an operator asks c{id}: {command:?}"));
            let message = Message::Admin(Admin { id: number, command });
            self.think(id, Input::Received { conn: ConnId(RIVALS + u64::from(id)), message });
        }
        true
    }

    fn some_node(&mut self) -> NodeId {
        NodeId(1 + self.faults.own().below(u64::from(self.plan.nodes)) as u32)
    }

    fn handing_over(&mut self, record: &PartitionRecord) -> Option<AdminCommand> {
        let to = self.some_node();
        Some(AdminCommand::Switchover { partition: Some(record.id), to: Some(to) })
    }

    /// A copy is to go from where it is wanted to where it is not.
    fn moving(&mut self, record: &PartitionRecord) -> Option<AdminCommand> {
        let (partition, row) = (record.id, self.wanted_on(record.id)?);
        let from = self.faults.own().pick(&row).copied()?;
        let others: Vec<NodeId> =
            (1..=self.plan.nodes).map(NodeId).filter(|node| !row.contains(node)).collect();
        let to = self.faults.own().pick(&others).copied()?;
        Some(AdminCommand::Move { partition, from, to })
    }

    /// Where a partition is wanted.
    fn wanted_on(&self, partition: PartitionId) -> Option<Vec<NodeId>> {
        let record = self.checks.epochs.newest(partition)?;
        let table = self.control.records.table(record.table)?;
        table.placement.get((partition.0 - table.first_partition.0) as usize).cloned()
    }
}
