//! I3, I6: all replicas commit the same entries, and equal positions have equal states. Behind a failover
//! that may have lost something commits are compared with those of that term and later ones; those of terms
//! before it with one another.

use std::collections::{BTreeMap, BTreeSet};
use types::{Lsn, Member, PartitionId, Position, Term};

/// What was seen to be committed, and the states at positions.
#[derive(Debug, Default)]
pub struct Agreement {
    /// By the last term that may have lost something when it was seen; zero: none had.
    committed: BTreeMap<(PartitionId, Term, Lsn), (Position, u32, Member)>,
    states: BTreeMap<(PartitionId, Position), (u64, Member)>,
    /// Terms that may have lost something, and said so: commits of terms before may differ from theirs.
    lossy: BTreeSet<(PartitionId, Term)>,
}

impl Agreement {
    /// This term may lack what was committed before it, and says so.
    pub fn may_lose(&mut self, partition: PartitionId, term: Term) {
        self.lossy.insert((partition, term));
    }

    /// A replica whose newest configuration is of this term holds this entry to be committed.
    pub fn commits(
        &mut self,
        (id, term): (PartitionId, Term),
        (at, crc): (Position, u32),
        by: Member,
    ) -> Result<(), String> {
        if crc == 0 {
            return Ok(());
        }
        let lossy = self.lossy.range((id, Term::ZERO)..=(id, term)).next_back();
        let since = lossy.map_or(Term::ZERO, |(_, since)| *since);
        let place = (id, since, at.lsn);
        let (known, known_crc, first) = *self.committed.entry(place).or_insert((at, crc, by));
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
        let mut commits = |term, at, crc, by| agreement.commits((P, Term(term)), (at, crc), member(by));
        commits(1, at(1, 5), 7, 1).expect("the first");
        commits(1, at(1, 5), 7, 2).expect("the same");
        assert!(commits(1, at(1, 5), 8, 3).is_err());
        assert!(commits(2, at(2, 5), 9, 3).is_err());
    }

    #[test]
    fn commits_are_compared_from_the_last_lossy_term_on_and_before_it() {
        let mut agreement = Agreement::default();
        let p = |term| (P, Term(term));
        agreement.commits(p(1), (at(1, 5), 7), member(1)).expect("the first");
        agreement.may_lose(P, Term(3));
        agreement.commits(p(3), (at(3, 5), 9), member(2)).expect("a loss was reported");
        agreement.commits(p(1), (at(1, 6), 4), member(1)).expect("who has not heard of it goes on");
        assert!(agreement.commits(p(2), (at(2, 5), 8), member(3)).is_err(), "before it nothing was lost");
        assert!(agreement.commits(p(4), (at(4, 5), 8), member(3)).is_err(), "nor is anything behind it");
        agreement.commits(p(4), (at(3, 5), 9), member(3)).expect("the same");
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
