//! What the new primary has acknowledged, as the prober was told: the ground on which the old primary's
//! answers to the client of the past are judged.

use super::history::KeyId;
use super::verify::Found;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use types::{Epoch, PartitionId, Position};

/// A write that the prober was told is done. Nobody else writes the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The key.
    pub key: KeyId,
    /// The prober's number as a client.
    pub client: u32,
    /// The number that the row carries.
    pub sequence: u64,
    /// The position of its entry.
    pub at: Position,
}

impl Answered {
    /// True if this shows the write, or a later one: what a read that was sent after the acknowledgement must
    /// show.
    pub fn is_shown_by(&self, found: Option<Found>) -> bool {
        match found {
            Some(Found::Row { client, sequence }) => client == self.client && sequence >= self.sequence,
            Some(Found::Foreign) | None => false,
        }
    }
}

/// The newest acknowledged write of the prober in each partition. The prober writes to it, the client of the
/// past reads it.
#[derive(Debug, Default)]
pub struct Answers(Mutex<BTreeMap<PartitionId, Answered>>);

impl Answers {
    /// The prober was told of a write.
    pub fn tell(&self, partition: PartitionId, told: Answered) {
        self.answers().insert(partition, told);
    }

    /// The newest, if it was acknowledged in a later term than this epoch: somebody else leads.
    pub fn after(&self, partition: PartitionId, epoch: Epoch) -> Option<Answered> {
        self.answers().get(&partition).copied().filter(|told| told.at.term.began() > epoch)
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Answered>> {
        self.0.lock().expect("a thread panicked while it held the board")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Lsn;
    use types::Term;

    #[test]
    fn anything_older_than_what_was_told_is_stale() {
        let at = Position::new(Term(3), Lsn(9));
        let told = Answered { key: KeyId(7), client: 10, sequence: 5, at };
        let row = |client, sequence| Some(Found::Row { client, sequence });
        assert!(told.is_shown_by(row(10, 5)) && told.is_shown_by(row(10, 6)));
        for older in [row(10, 4), row(0, 0), row(0, 9), None, Some(Found::Foreign)] {
            assert!(!told.is_shown_by(older), "{older:?}");
        }
    }

    #[test]
    fn only_a_later_term_says_that_somebody_else_leads() {
        let (answers, partition) = (Answers::default(), PartitionId(64));
        assert_eq!(answers.after(partition, Epoch(0)), None);
        let told = |epoch, sequence| {
            let at = Position::new(Term(epoch), Lsn(sequence));
            Answered { key: KeyId(1), client: 10, sequence, at }
        };
        answers.tell(partition, told(3, 1));
        assert_eq!(answers.after(partition, Epoch(3)), None);
        answers.tell(partition, told(4, 2));
        assert_eq!(answers.after(partition, Epoch(3)), Some(told(4, 2)));
        assert_eq!(answers.after(PartitionId(65), Epoch(3)), None);
    }
}
