//! Who sends the log to whom.

use types::{Member, PartitionRecord};

/// To whom this member sends what it has of the log. In a star the primary sends to every other member, and
/// nobody else sends anything; in a chain each member would send to the next.
pub(crate) fn next_hops<'a>(record: &'a PartitionRecord, me: &Member) -> impl Iterator<Item = &'a Member> {
    let sends = record.primary == *me;
    record.members().filter(move |member| sends && **member != record.primary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::config::Cause;
    use types::{Epoch, Incarnation, LogKind, NodeId, PartitionId, Policy, StoreId, TableId};

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), store: StoreId(node.into()), incarnation: Incarnation(1) }
    }

    #[test]
    fn in_a_star_the_primary_sends_to_every_member_and_nobody_else_sends() {
        let record = PartitionRecord {
            catching_up: vec![member(3)],
            cause: Cause::InSync,
            ..PartitionRecord::new(
                PartitionId(1),
                TableId(1),
                Epoch(1),
                vec![member(1), member(2)],
                Policy::preset("semi", 3, LogKind::Disk).expect("a preset"),
            )
        };
        let hops = |me: u32| next_hops(&record, &member(me)).map(|hop| hop.node.0).collect::<Vec<u32>>();
        assert_eq!((hops(1), hops(2), hops(3)), (vec![2, 3], vec![], vec![]));
    }
}
