//! Bare tables whose rows are being copied somewhere else ([`Moves`]): a hold, which is part of the policy of
//! the table and so reaches every partition as a policy does, outlives every process, and is there for
//! whoever leads next (PR-400).
//!
//! | a configuration whose policy, or next policy, has | clients write rows | clients read rows |
//! | --- | --- | --- |
//! | no hold | yes | yes |
//! | a hold | no | yes |
//! | a hold that is closed | no | no (PR-403) |

use crate::config::{PartitionRecord, TableRecord};
use crate::database::CatalogTable;
use crate::ids::TableId;
use crate::policy::Policy;
use serde::{Deserialize, Serialize};

/// A bare table whose rows are being copied somewhere else. Its clients do not write it meanwhile. Read from
/// records of any release: a policy without it has no hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Moves {
    /// The number of the move, which is given out once in the cluster.
    pub number: TableId,
    /// The database that it moves into, where the number is that of a definition in its catalog; `None`:
    /// into other partitions of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<TableId>,
    /// All rows are copied, and clients do not read them here any more: where they are they may be written
    /// next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

impl TableRecord {
    /// A field among those that older versions do not know, of a table that is held: when whoever copies its
    /// rows has said so last, milliseconds since 1970 by that one's clock. Nothing but patience rests on it.
    pub const HELD: &str = "held_ms";

    /// When somebody has said last that its rows are being copied, milliseconds since 1970; 0: not known.
    pub fn held_ms(&self) -> u64 {
        self.unknown.get(TableRecord::HELD).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }
}

impl CatalogTable {
    /// A field among those that older versions do not know, of a table that is filled: the bare table whose
    /// rows it gets. Of one that is held: it has them all. That one will not be read any more, and when it is
    /// dropped this one is written (PR-404).
    pub const FOLLOWS: &str = "follows";

    /// The bare table whose place it takes, or is to take.
    pub fn follows(&self) -> Option<TableId> {
        let of = self.unknown.get(CatalogTable::FOLLOWS)?.as_u64()?;
        u32::try_from(of).ok().map(TableId)
    }
}

impl PartitionRecord {
    /// The hold that keeps clients from writing rows: of the policy in force, or of the one that replaces it.
    pub fn moves(&self) -> Option<Moves> {
        let mut policies = [Some(&self.policy), self.next_policy.as_ref()].into_iter().flatten();
        policies.find_map(|policy| policy.moves)
    }

    /// True if clients do not read rows here any more either.
    pub fn is_closed(&self) -> bool {
        let mut policies = [Some(&self.policy), self.next_policy.as_ref()].into_iter().flatten();
        policies.any(|policy| policy.moves.is_some_and(|moves| moves.closed))
    }

    /// True if this policy is older than one with a hold that the partition has: whoever wants it has not
    /// heard of the hold, and would end it (PR-401).
    pub fn is_before_hold(&self, policy: &Policy) -> bool {
        let policies = [Some(&self.policy), self.next_policy.as_ref()].into_iter().flatten();
        let mut holds = policies.filter(|known| known.moves.is_some());
        holds.any(|known| policy.version < known.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, ColumnType, Schema};
    use crate::{Epoch, LogKind, Member, PartitionId, TableState};

    fn policy(version: u32, moves: Option<Moves>) -> Policy {
        Policy { version, moves, ..Policy::preset("durable", 3, LogKind::Disk).expect("a preset") }
    }

    fn record(policy: Policy, next: Option<Policy>) -> PartitionRecord {
        let members = vec![Member::default()];
        let record = PartitionRecord::new(PartitionId(64), TableId(3), Epoch(2), members, policy);
        PartitionRecord { next_policy: next, ..record }
    }

    const OPEN: Moves = Moves { number: TableId(7), into: None, closed: false };
    const CLOSED: Moves = Moves { closed: true, ..OPEN };
    const BACK: Moves = Moves { into: Some(TableId(5)), ..OPEN };

    #[test]
    fn pr400_a_policy_of_before_has_no_hold_and_one_without_a_hold_is_written_as_before() {
        let before = policy(1, None);
        let text = serde_json::to_string(&before).expect("JSON");
        assert!(!text.contains("moves"), "{text}");
        assert_eq!(serde_json::from_str::<Policy>(&text).expect("reads"), before);
        for (moves, says) in [
            (OPEN, r#""moves":{"number":7}"#),
            (CLOSED, r#""moves":{"number":7,"closed":true}"#),
            (BACK, r#""moves":{"number":7,"into":5}"#),
        ] {
            let one = policy(2, Some(moves));
            let text = serde_json::to_string(&one).expect("JSON");
            assert!(text.contains(says), "{text}");
            assert_eq!(serde_json::from_str::<Policy>(&text).expect("reads"), one);
            assert!(one.same_demands(&before) && !one.same_but_version(&before));
        }
    }

    #[test]
    fn pr404_a_definition_says_whose_place_it_takes_and_reads_back() {
        let schema = Schema::new(vec![Column::new("id", ColumnType::Int)], &["id"], 1, false).expect("valid");
        let one = CatalogTable::new(TableId(7), "pets", schema, 5);
        let mut follows = CatalogTable { held_ms: Some(5), ..one.clone() };
        follows.unknown.insert(CatalogTable::FOLLOWS.into(), 9.into());
        let (key, value) = (follows.stored_key(), follows.encode(follows.state()));
        let (state, read) = CatalogTable::decode(&key[2..], &value).expect("reads");
        assert_eq!((state, read.follows(), one.follows()), (TableState::Held, Some(TableId(9)), None));
    }

    #[test]
    fn pr400_a_hold_counts_in_both_policies_of_a_change_and_closing_does() {
        let (none, open, closed) = (policy(1, None), policy(2, Some(OPEN)), policy(3, Some(CLOSED)));
        let of = |policy: &Policy, next: Option<&Policy>| {
            let record = record(policy.clone(), next.cloned());
            (record.moves().is_some(), record.is_closed())
        };
        assert_eq!(of(&none, None), (false, false));
        assert_eq!(of(&none, Some(&open)), (true, false));
        assert_eq!(of(&open, None), (true, false));
        assert_eq!(of(&open, Some(&closed)), (true, true));
        assert_eq!(of(&closed, None), (true, true));
        assert_eq!(of(&closed, Some(&policy(4, None))), (true, true), "until that one is in force");
    }

    #[test]
    fn pr401_an_older_policy_is_known_from_one_that_ends_the_hold() {
        let (open, closed) = (policy(5, Some(OPEN)), policy(6, Some(CLOSED)));
        let changes = record(open.clone(), Some(closed.clone()));
        assert!(changes.is_before_hold(&policy(4, None)) && changes.is_before_hold(&open));
        assert!(!changes.is_before_hold(&closed) && !changes.is_before_hold(&policy(7, None)));
        let held = record(open, None);
        assert!(held.is_before_hold(&policy(4, None)) && !held.is_before_hold(&policy(6, None)));
        assert!(!record(policy(5, None), None).is_before_hold(&policy(4, None)), "as ever without a hold");
    }
}
