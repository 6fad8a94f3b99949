//! Replicas that have no place on their node any more: when they take their leave, and when they go (R9).

use replica::{Replica, STAYS};
use std::collections::BTreeMap;
use types::{Micros, PartitionId};

/// Replicas that have no place here any more, and since when.
#[derive(Debug, Default)]
pub struct Moved {
    since: BTreeMap<PartitionId, Micros>,
}

/// What is to be done with a replica that has had no place for long enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// The log has something of it, and there are no files: a replica is made of it, as what the log has may
    /// be nowhere else.
    Make,
    /// It is told to take its leave ([`replica::Host::decommission`]).
    Decommission,
    /// What of it is being written must be known first: a replica that is made here again must not be told of
    /// it.
    Wait,
    /// Nothing is in it alone: it is removed, and forgotten by [`Moved::remove`].
    Remove,
}

impl Moved {
    /// Takes note of all that have no place now. Gives those that have had none for [`STAYS`], in the order
    /// of partitions.
    pub fn look(&mut self, moved: &[PartitionId], now: Micros) -> Vec<PartitionId> {
        self.since.retain(|id, _| moved.contains(id));
        for id in moved {
            self.since.entry(*id).or_insert(now);
        }
        self.since.iter().filter(|(_, since)| now.since(**since) >= STAYS).map(|(id, _)| *id).collect()
    }

    /// It is removed.
    pub fn remove(&mut self, id: PartitionId) {
        self.since.remove(&id);
    }
}

/// What is to be done with a replica that [`Moved::look`] gave. `writing`: something of it is on its way to
/// the disk.
pub fn next_step(replica: Option<&Replica>, writing: bool) -> Leave {
    step(replica.map(Replica::is_decommissioned), writing)
}

fn step(decommissioned: Option<bool>, writing: bool) -> Leave {
    match (decommissioned, writing) {
        (None, _) => Leave::Make,
        (Some(false), _) => Leave::Decommission,
        (Some(true), true) => Leave::Wait,
        (Some(true), false) => Leave::Remove,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_had_no_place_for_long_enough_is_told_again_and_again() {
        let (p, q, at) = (PartitionId(64), PartitionId(65), |ms| Micros::from_millis(1_000 + ms));
        let stays = STAYS.0 / 1_000;
        let mut moved = Moved::default();
        // When, who has no place then, and who has had none for long enough.
        let steps = [
            (0, vec![p, q], vec![]),
            (stays - 1, vec![p, q], vec![]),
            (stays, vec![p], vec![p]),
            (stays + 1, vec![p, q], vec![p]),
            (stays * 2, vec![p, q], vec![p]),
            (stays * 2 + 1, vec![p, q], vec![p, q]),
            (stays * 2 + 2, vec![], vec![]),
            (stays * 2 + 3, vec![p], vec![]),
        ];
        for (ms, without_place, due) in steps {
            assert_eq!(moved.look(&without_place, at(ms)), due, "after {ms} ms");
        }
        moved.look(&[p], at(stays * 4));
        moved.remove(p);
        assert_eq!(moved.look(&[p], at(stays * 4)), [], "it is another replica");
    }

    #[test]
    fn a_replica_goes_when_nothing_is_in_it_alone_and_nothing_is_being_written() {
        let steps = [
            (None, false, Leave::Make),
            (None, true, Leave::Make),
            (Some(false), true, Leave::Decommission),
            (Some(true), true, Leave::Wait),
            (Some(true), false, Leave::Remove),
        ];
        for (decommissioned, writing, wanted) in steps {
            assert_eq!(step(decommissioned, writing), wanted);
        }
    }
}
