//! Brings every partition to its table's policy (PR-24): the primary makes the steps, the planner reminds it.

use crate::controller::Controller;
use types::{Now, PartitionId, PartitionRecord, Policy};
use wire::RecordText;
use wire::control::Advice;

impl Controller {
    /// Advises the policy to primaries of partitions that have another one. After a failover the new primary
    /// is advised.
    pub(super) fn plan_policies(&mut self, now: Now) {
        let behind = |record: &&types::PartitionRecord| {
            let table = self.records.table(record.table);
            table.is_some_and(|table| {
                table.policy != record.policy && record.next_policy.as_ref() != Some(&table.policy)
            })
        };
        let behind: Vec<PartitionId> =
            self.records.partitions().filter(behind).map(|record| record.id).collect();
        for partition in behind {
            let Some(record) = self.records.partition(partition).cloned() else { continue };
            let Some(table) = self.records.table(record.table) else { continue };
            // A primary that does not serve for want of copies must hear that fewer are allowed now.
            let bound_only = table.policy.same_demands(&record.policy);
            if !(self.serves(&record) || bound_only || record.starves()) || self.advised(partition) {
                continue;
            }
            if awaits_copies(&record, &table.policy) && !record.starves() {
                continue;
            }
            let advice = Advice::Policy(RecordText::new(&table.policy));
            self.advise(now, &record, advice);
        }
    }
}

/// True if the policy wants more copies than before, and would stop commits until they are there: first they
/// come.
fn awaits_copies(record: &PartitionRecord, wanted: &Policy) -> bool {
    wanted.factor > record.policy.factor && record.in_sync.len() < usize::from(wanted.min_in_sync)
}
