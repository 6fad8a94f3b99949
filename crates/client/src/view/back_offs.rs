//! Nodes that failed as members of partitions, and are let in again after a while (PR-67): who is waited for,
//! and for how long.

use super::survive;
use std::collections::BTreeMap;
use types::{NodeId, PartitionRecord};
use wire::control::BackOff;

/// What a partition waits for on their account; empty: nothing.
pub(super) fn of_partition(all: &[BackOff], record: &PartitionRecord) -> String {
    of_records(all, &[record]).join("; ")
}

/// A sentence for each node that some of these partitions wait for.
pub(super) fn of_records(all: &[BackOff], records: &[&PartitionRecord]) -> Vec<String> {
    let mut nodes: BTreeMap<NodeId, (u32, u64)> = BTreeMap::new();
    for held in all.iter().filter(|held| records.iter().any(|record| waits(held, record))) {
        let (times, ms) = nodes.entry(held.node).or_default();
        (*times, *ms) = ((*times).max(held.times), (*ms).max(held.ms));
    }
    let words = |(node, (times, ms)): (NodeId, (u32, u64))| {
        let often = if times == 1 { "once".to_string() } else { format!("{times} times in a row") };
        format!("{node} failed {often} and is let in again within {:.1} s", ms as f64 / 1e3)
    };
    nodes.into_iter().map(words).collect()
}

/// True if this partition waits for this node. Where nothing can be acknowledged before there is another copy
/// nobody is held off (PR-106).
fn waits(held: &BackOff, record: &PartitionRecord) -> bool {
    held.partition == record.id && record.member_on(held.node).is_none() && !survive::stopped(record)
}

#[cfg(test)]
mod tests {
    use super::super::overview::tests::record;
    use super::*;
    use types::PartitionId;

    #[test]
    fn who_is_let_in_again_later_is_named_with_the_time() {
        let held = |node, times, ms| BackOff { partition: PartitionId(64), node: NodeId(node), times, ms };
        let all = [held(3, 1, 940), held(2, 4, 7_450)];
        let both = "n2 failed 4 times in a row and is let in again within 7.5 s; \
                    n3 failed once and is let in again within 0.9 s";
        let one = "n3 failed once and is let in again within 0.9 s";
        assert_eq!(of_partition(&all, &record(64, &[1, 2], &[])), one, "n2 is a member");
        assert_eq!(of_partition(&all, &record(64, &[1, 4], &[])), both);
        assert_eq!(of_partition(&all, &record(65, &[1, 4], &[])), "", "of another partition");
        assert_eq!(of_partition(&all, &record(64, &[1], &[])), "", "they are let in at once");
    }
}
