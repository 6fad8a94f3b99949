//! What promoting a replica by force may lose, as far as it can be known beforehand (PR-08).

use std::cmp::Reverse;
use types::{Member, NodeId, PartitionId, PartitionRecord, Position};
use wire::control::{ClusterStatus, ReplicaStatus, Role};

/// A node that was not heard for so long is not live.
const SILENT_MS: u64 = 1_500;

/// What a node said last of its replica.
struct Copy<'a> {
    member: Member,
    incarnations: bool,
    replica: &'a ReplicaStatus,
}

/// One sentence without a full stop: who would lead, how far its log goes, and what others were heard of that
/// it lacks. `wanted` is the node that is to lead; otherwise the controllers take the living copy with the
/// greatest log.
pub fn risk(status: &ClusterStatus, partition: PartitionId, wanted: Option<NodeId>) -> String {
    let record = status.partitions.iter().find(|record| record.id == partition);
    let nodes = status.nodes.iter().filter_map(|(node, age)| {
        let replica = node.replicas.iter().find(|replica| replica.partition == partition)?;
        Some(Copy { member: node.member, incarnations: *age < SILENT_MS, replica })
    });
    let copies: Vec<Copy> = nodes.collect();
    let best = best(&copies, record, wanted);
    let furthest = copies.iter().max_by_key(|copy| copy.replica.end);
    let (Some(best), Some(furthest)) = (best, furthest) else {
        return format!(
            "partition {partition}: no living node reports a sound copy; what only the others have would be lost"
        );
    };
    let (has, node) = (best.replica.end, best.member.node);
    let says = format!("partition {partition}: {node} has the log up to LSN {}", has.lsn);
    if furthest.replica.end <= has {
        return format!(
            "{says}; what was acknowledged beyond that, by a node that is not heard, would be lost"
        );
    }
    let other = furthest.member.node;
    let gone = if furthest.incarnations { "" } else { ", which is not heard now," };
    let heard = format!("{other}{gone} was heard of up to LSN {}", furthest.replica.end.lsn);
    match furthest.replica.end.term == has.term {
        true => format!("{says}, {heard}: what was acknowledged from LSN {} on may be lost", has.lsn.next()),
        // Where the two logs part is known when one is compared with the other, and not before.
        false => format!(
            "{says} of epoch {}, {heard} of epoch {}: what was acknowledged in later epochs than {} may be lost",
            has.term.0, furthest.replica.end.term.0, has.term.0
        ),
    }
}

/// Whom the controllers would take.
fn best<'a>(
    copies: &'a [Copy<'a>],
    record: Option<&PartitionRecord>,
    wanted: Option<NodeId>,
) -> Option<&'a Copy<'a>> {
    let counted = |copy: &Copy| {
        record.is_some_and(|record| record.in_sync.iter().any(|other| other.same_store(&copy.member)))
    };
    copies
        .iter()
        .filter(|copy| {
            copy.incarnations && copy.replica.role != Role::Damaged && copy.replica.end > Position::ZERO
        })
        .filter(|copy| wanted.is_none_or(|node| copy.member.node == node))
        .min_by_key(|copy| (Reverse(copy.replica.end), !counted(copy), copy.member.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;
    use types::{Incarnation, Lsn, StoreId};
    use wire::control::NodeStatus;

    const P: PartitionId = PartitionId(64);

    /// A node that was heard so long ago, and where its log ends.
    fn node(number: u32, age: u64, end: (u64, u64), role: Role) -> (NodeStatus, u64) {
        let store = StoreId(u64::from(number));
        let member = Member { node: NodeId(number), store, incarnation: Incarnation(1) };
        let end = Position::new(Term(end.0), Lsn(end.1));
        let replica = ReplicaStatus { partition: P, role, end, ..ReplicaStatus::default() };
        (NodeStatus { member, replicas: vec![replica], ..NodeStatus::default() }, age)
    }

    fn said(nodes: Vec<(NodeStatus, u64)>, wanted: Option<u32>) -> String {
        let status = ClusterStatus { nodes, ..ClusterStatus::default() };
        risk(&status, P, wanted.map(NodeId))
    }

    #[test]
    fn pr08_what_a_dead_node_had_more_is_named() {
        let nodes = || vec![node(1, 9000, (1, 55), Role::Primary), node(2, 10, (1, 40), Role::Idle)];
        assert_eq!(
            said(nodes(), None),
            "partition p64: n2 has the log up to LSN 40, n1, which is not heard now, was heard of up to LSN 55: what was \
             acknowledged from LSN 41 on may be lost"
        );
        assert!(said(nodes(), Some(1)).contains("no living node"), "{}", said(nodes(), Some(1)));
    }

    #[test]
    fn pr12_a_later_epoch_is_more_whatever_its_length() {
        let nodes = vec![node(1, 9000, (3, 50), Role::Primary), node(2, 10, (1, 60), Role::Idle)];
        let said = said(nodes, None);
        assert!(said.contains("in later epochs than 1 may be lost"), "{said}");
    }

    #[test]
    fn the_best_copy_is_named_and_a_damaged_one_is_none() {
        let nodes = || {
            let damaged = node(1, 10, (1, 70), Role::Damaged);
            vec![damaged, node(2, 10, (1, 40), Role::Backup), node(3, 10, (1, 41), Role::CatchingUp)]
        };
        assert!(said(nodes(), None).contains("n3 has the log up to LSN 41, n1 was heard of up to LSN 70"));
        assert!(said(nodes(), Some(2)).contains("n2 has the log up to LSN 40"));
        let alone = vec![node(2, 10, (1, 40), Role::Backup)];
        assert!(said(alone, None).ends_with("by a node that is not heard, would be lost"));
        assert!(said(vec![node(2, 9000, (1, 40), Role::Backup)], None).contains("no living node"));
    }
}
