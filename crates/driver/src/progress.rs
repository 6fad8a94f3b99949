//! Whether heartbeats may vouch for the partitions that a node leads (PR-65): executor and disks make
//! progress.

use types::{Micros, PartitionRecord};

/// An executor that has not ticked for so long is not vouched for.
pub const EXECUTOR_DEAD: Micros = Micros::from_millis(500);
/// A log with a write pending for so long is not vouched for.
pub const DISK_DEAD: Micros = Micros::from_millis(1000);

/// What has its files on another disk than the log's that has not answered for so long is not vouched for,
/// where others can lead it at once. Such a disk may be slow while it is written by flushes and merges.
pub const DIRECTORY_DEAD: Micros = Micros::from_millis(3_000);
/// After so long a directory is taken for lost, until the process starts again: what was in it gets copies
/// elsewhere.
pub const DIRECTORY_LOST: Micros = Micros::from_millis(10_000);

/// True if a partition may be vouched for whose files' disk has not answered for this time, while the log's
/// does (PR-456). Where acknowledgements rest on this replica alone, or nobody else is in the set, it leads
/// on: what is written is in its log, and nobody could take over at once. `record`: none if it is not known.
pub fn is_vouched_for(silent: Micros, record: Option<&PartitionRecord>) -> bool {
    let stays = |record: &PartitionRecord| record.rests_alone() || record.in_sync.len() < 2;
    silent < DIRECTORY_DEAD || record.is_none_or(stays)
}

/// True if a directory whose disk has not answered for this time is lost (PR-456).
pub fn is_lost(silent: Micros) -> bool {
    silent >= DIRECTORY_LOST
}

/// True if the executor, which ticked last at `ticked`, and the log, whose oldest pending write was submitted
/// at `pending`, make progress. A write that was refused for want of room is not pending: the disk answered.
pub fn makes_progress(ticked: Micros, pending: Option<Micros>, now: Micros) -> bool {
    now.since(ticked) < EXECUTOR_DEAD && pending.is_none_or(|at| now.since(at) < DISK_DEAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Incarnation, LogKind, Member, NodeId, PartitionId, Policy, StoreId, TableId};

    #[test]
    fn pr456_what_lies_on_a_disk_that_hangs_is_vouched_for_where_nobody_else_could_lead_it() {
        let member = |node: u32| Member {
            node: NodeId(node),
            store: StoreId(u64::from(node)),
            incarnation: Incarnation(1),
        };
        let record = |policy: &str, nodes: u32| {
            let policy = Policy::preset(policy, 3, LogKind::Disk).expect("a preset");
            let in_sync = (1..=nodes).map(member).collect();
            PartitionRecord::new(PartitionId(64), TableId(1), Epoch(1), in_sync, policy)
        };
        let (soon, late) = (Micros(DIRECTORY_DEAD.0 - 1), DIRECTORY_DEAD);
        assert!(is_vouched_for(soon, Some(&record("durable", 3))), "any disk may take a while");
        assert!(!is_vouched_for(late, Some(&record("durable", 3))));
        assert!(is_vouched_for(late, Some(&record("durable", 1))), "nobody else counts");
        assert!(is_vouched_for(late, Some(&record("local", 3))), "its log has what was acknowledged");
        assert!(is_vouched_for(late, None));
        assert!(!is_lost(Micros(DIRECTORY_LOST.0 - 1)) && is_lost(DIRECTORY_LOST));
        const { assert!(DIRECTORY_DEAD.0 < DIRECTORY_LOST.0) }
    }

    #[test]
    fn n18_only_a_dead_executor_or_disk_is_not_vouched_for() {
        let now = 10_000;
        // When the executor ticked, since when a write has been pending, and whether that is progress.
        let cases = [
            (now, None, true),
            (now - 499, None, true),
            (now - 500, None, false),
            (now, Some(now - 999), true),
            (now, Some(now - 1_000), false),
            (now - 500, Some(now), false),
        ];
        for (ticked, pending, progress) in cases {
            let pending = pending.map(Micros::from_millis);
            let found = makes_progress(Micros::from_millis(ticked), pending, Micros::from_millis(now));
            assert_eq!(found, progress, "{ticked} {pending:?}");
        }
    }
}
