//! What replicas had when their process ended, or their directory was lost: whoever is dead has not received
//! what came later (F04).

use crate::check::lineage::Lineage;
use crate::check::wanted::Wanted;
use std::collections::BTreeMap;
use types::{Lsn, Member, PartitionId, Position};

/// How far a replica was when its process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Last {
    /// Where its log ended.
    pub end: Position,
    /// What it had executed.
    pub applied: Lsn,
}

/// How far each was.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<(Member, PartitionId), Last>);

impl Ends {
    /// A process of this member ended, with its replicas here. What one had executed before its directory was
    /// lost it had executed.
    pub fn ended(&mut self, member: Member, replicas: impl Iterator<Item = (PartitionId, Last)>) {
        for (id, last) in replicas {
            let before = self.of(&member, id).map_or(Lsn::ZERO, |before| before.applied);
            self.0.insert((member, id), Last { applied: last.applied.max(before), ..last });
        }
    }

    /// How far this member's replica was when its process ended; none if it did not end, or had none.
    pub fn of(&self, member: &Member, partition: PartitionId) -> Option<Last> {
        self.0.get(&(*member, partition)).copied()
    }

    /// What a member that has ended did not have of an entry when it ended; none if it had what was needed,
    /// or nobody can tell.
    pub fn lacks(
        &self,
        lineage: &Lineage,
        member: &Member,
        (partition, at): (PartitionId, Position),
        need: Wanted,
    ) -> Option<&'static str> {
        let last = self.of(member, partition)?;
        let had = lineage.has(partition, last.end, at);
        match () {
            () if need.received && !had => Some("did not have it"),
            () if need.applied && last.applied < at.lsn => Some("had not executed it"),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::epochs::tests::member;
    use crate::check::lineage::tests::{P, at};

    #[test]
    fn who_runs_has_no_end_and_who_ended_has_what_it_had() {
        let mut ends = Ends::default();
        let last = Last { end: at(1, 5), applied: Lsn(4) };
        ends.ended(member(1), std::iter::once((P, last)));
        assert_eq!(ends.of(&member(1), P), Some(last));
        assert_eq!(ends.of(&member(2), P), None);
        let empty = Last { end: at(1, 6), applied: Lsn::ZERO };
        ends.ended(member(1), std::iter::once((P, empty)));
        assert_eq!(ends.of(&member(1), P), Some(Last { end: at(1, 6), applied: Lsn(4) }));
    }
}
