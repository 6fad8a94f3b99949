//! I3, I6: all replicas commit the same entries, and equal positions have equal states.

use std::collections::{BTreeMap, BTreeSet};
use types::{Lsn, Member, PartitionId, Position, Term};

/// What was seen to be committed, and the states at positions.
#[derive(Debug, Default)]
pub struct Agreement {
    committed: BTreeMap<(PartitionId, Lsn), (Position, u32, Member)>,
    states: BTreeMap<(PartitionId, Position), (u64, Member)>,
    /// Partitions in which a failover may have lost something: old and new commits may differ, and it was
    /// said.
    doubtful: BTreeSet<PartitionId>,
}

impl Agreement {
    /// A failover may have lost something: commits are compared no more.
    pub fn doubt(&mut self, partition: PartitionId) {
        self.doubtful.insert(partition);
    }

    /// A replica holds this entry to be committed.
    pub fn commits(&mut self, id: PartitionId, at: Position, crc: u32, by: Member) -> Result<(), String> {
        if self.doubtful.contains(&id) || crc == 0 {
            return Ok(());
        }
        let (known, known_crc, first) = *self.committed.entry((id, at.lsn)).or_insert((at, crc, by));
        if (known, known_crc) == (at, crc) {
            return Ok(());
        }
        Err(format!("{id}: {by} committed {at} and {first} committed {known}"))
    }

    /// Positions of a partition from `from` on and below `below` of which the state is known, oldest first.
    pub fn known(&self, id: PartitionId, from: Lsn, below: Lsn) -> impl Iterator<Item = Position> {
        let of_partition = (id, Position::ZERO)..=(id, Position::new(Term(u64::MAX), Lsn::MAX));
        let positions = self.states.range(of_partition).map(|((_, at), _)| *at);
        positions.filter(move |at| (from..below).contains(&at.lsn))
    }

    /// A replica that has applied this has this state.
    pub fn state(&mut self, id: PartitionId, at: Position, digest: u64, by: Member) -> Result<(), String> {
        if at.term == Term::ZERO {
            return Ok(());
        }
        let (known, first) = *self.states.entry((id, at)).or_insert((digest, by));
        if known == digest {
            return Ok(());
        }
        Err(format!("{id}: at {at} {by} has digest {digest:016x} and {first} had {known:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::epochs::tests::member;
    use crate::check::lineage::tests::{P, at};

    #[test]
    fn two_commits_at_one_place_are_rejected() {
        let mut agreement = Agreement::default();
        agreement.commits(P, at(1, 5), 7, member(1)).expect("the first");
        agreement.commits(P, at(1, 5), 7, member(2)).expect("the same");
        assert!(agreement.commits(P, at(1, 5), 8, member(3)).is_err());
        assert!(agreement.commits(P, at(2, 5), 9, member(3)).is_err());
        agreement.doubt(P);
        agreement.commits(P, at(2, 5), 9, member(3)).expect("a loss was reported");
    }

    #[test]
    fn two_states_at_one_position_are_rejected() {
        let mut agreement = Agreement::default();
        agreement.state(P, at(1, 5), 7, member(1)).expect("the first");
        assert!(agreement.state(P, at(1, 5), 8, member(2)).is_err());
        agreement.state(P, at(2, 5), 8, member(2)).expect("another position");
        agreement.state(P, at(2, 9), 8, member(2)).expect("another position");
        assert_eq!(agreement.known(P, Lsn(2), Lsn(9)).collect::<Vec<_>>(), [at(1, 5), at(2, 5)]);
    }
}
