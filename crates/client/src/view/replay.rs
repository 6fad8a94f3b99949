//! How long a failover would replay log now: what lies between the files of whoever takes over and the log's
//! end, at the pace that the primary's engine measured. An estimate for people and for
//! [`TableRecord::failover_target_ms`].

use std::collections::BTreeMap;
use types::policy::Standby;
use types::{Member, NodeId, PartitionId, PartitionRecord, TableRecord};
use wire::control::ReplicaStatus;

/// Estimates by partition, and what a node's loss makes each successor replay.
#[derive(Debug, Default)]
pub struct Estimates {
    partitions: BTreeMap<PartitionId, (Loss, u64)>,
    together: BTreeMap<Loss, u64>,
}

/// Who is lost, and who takes over.
type Loss = (NodeId, NodeId);

impl Estimates {
    /// Takes in a partition whose primary said how it stands.
    pub fn add(&mut self, table: &TableRecord, record: &PartitionRecord, lead: &ReplicaStatus) {
        let index = record.id.0.wrapping_sub(table.first_partition.0) as usize;
        let order = table.placement.get(index).map_or(&[][..], |row| row);
        let successor = record.successor(order);
        let Some(micros) = micros(record, successor, lead) else { return };
        let loss = (record.primary.node, successor.unwrap_or(&record.primary).node);
        self.partitions.insert(record.id, (loss, micros));
        *self.together.entry(loss).or_default() += micros;
    }

    /// Microseconds of this partition's own log; none where nothing was measured.
    pub fn partition(&self, id: PartitionId) -> Option<u64> {
        self.partitions.get(&id).map(|(_, micros)| *micros)
    }

    /// Microseconds until the last partition of this table would be through: an successor executes the log of
    /// all partitions that it takes over, of other tables too, slice by slice.
    pub fn table(&self, table: &TableRecord) -> Option<u64> {
        let losses = table.partition_ids().filter_map(|id| self.partitions.get(&id));
        losses.filter_map(|(loss, _)| self.together.get(loss)).max().copied()
    }
}

/// What the successor would replay; without one, what the primary itself would after a restart.
fn micros(record: &PartitionRecord, successor: Option<&Member>, lead: &ReplicaStatus) -> Option<u64> {
    let seen = |member| lead.members.iter().find(|(other, ..)| other == member).map(|(_, marks, ..)| *marks);
    let there = match successor {
        None => lead.marks.persisted,
        Some(successor) if record.policy.standby == Standby::Cold => seen(successor)?.persisted,
        Some(_) => return Some(0),
    };
    let entries = lead.end.lsn.0.saturating_sub(there.0);
    match (entries, lead.replay_ns) {
        (0, _) => Some(0),
        (_, 0) => None,
        (entries, nanos) => Some(entries.saturating_mul(nanos) / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::overview::tests::{member, record, table};
    use super::*;
    use types::{Lsn, Position, Watermarks};

    fn lead(members: &[(u32, u64)], end: u64) -> ReplicaStatus {
        let marks = |persisted| Watermarks { persisted: Lsn(persisted), ..Watermarks::default() };
        ReplicaStatus {
            end: Position { lsn: Lsn(end), ..Position::ZERO },
            marks: marks(end / 2),
            members: members.iter().map(|(node, at)| (member(*node), marks(*at), 0, 0)).collect(),
            replay_ns: 2_000,
            ..ReplicaStatus::default()
        }
    }

    fn cold(mut record: PartitionRecord) -> PartitionRecord {
        record.policy.standby = Standby::Cold;
        record
    }

    #[test]
    fn the_successor_of_a_cold_table_replays_what_its_files_lack() {
        let (mut estimates, table) = (Estimates::default(), table(3));
        // The first two go to node 2, the third to node 1.
        for (at, primary, successor, persisted) in [(64, 1, 2, 400_000), (65, 1, 2, 700_000), (66, 3, 1, 0)] {
            let record = cold(record(at, &[primary, successor], &[]));
            estimates.add(&table, &record, &lead(&[(successor, persisted)], 1_000_000));
        }
        assert_eq!(estimates.partition(PartitionId(64)), Some(1_200_000));
        assert_eq!(estimates.partition(PartitionId(65)), Some(600_000));
        assert_eq!(estimates.table(&table), Some(2_000_000), "node 3 is the dearest to lose");
    }

    #[test]
    fn hot_successors_replay_nothing_and_a_single_copy_replays_its_own_log() {
        let (mut estimates, table) = (Estimates::default(), table(2));
        estimates.add(&table, &record(64, &[1, 2], &[]), &lead(&[(2, 0)], 500));
        assert_eq!(estimates.table(&table), Some(0));
        estimates.add(&table, &record(65, &[1], &[]), &lead(&[], 500));
        assert_eq!(estimates.table(&table), Some(500));
    }

    #[test]
    fn nothing_is_said_before_something_was_measured() {
        let (mut estimates, table) = (Estimates::default(), table(1));
        let unmeasured = ReplicaStatus { replay_ns: 0, ..lead(&[(2, 0)], 500) };
        estimates.add(&table, &cold(record(64, &[1, 2], &[])), &unmeasured);
        assert_eq!(estimates.table(&table), None);
    }
}
