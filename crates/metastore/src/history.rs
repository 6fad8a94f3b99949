//! The last changes, so that those who follow need not read everything again.

use crate::txn::Changes;
use std::collections::VecDeque;
use types::txn::Change;

/// The most changes kept.
pub const KEPT: usize = 4096;

/// A run of changes without a gap.
#[derive(Clone, Debug)]
pub struct History {
    /// Everything after this revision is here.
    from: u64,
    /// Everything up to this revision is here.
    to: u64,
    changes: VecDeque<Change>,
}

impl History {
    /// Knows nothing before `revision`, and that nothing has happened since.
    pub fn starting_at(revision: u64) -> History {
        History { from: revision, to: revision, changes: VecDeque::new() }
    }

    /// Up to here everything is known.
    pub fn revision(&self) -> u64 {
        self.to
    }

    /// Adds the changes of all revisions up to `revision`.
    pub fn push(&mut self, revision: u64, changes: Vec<Change>) {
        assert!(revision >= self.to, "a metastore's revision went back from {} to {revision}", self.to);
        self.to = revision;
        self.changes.extend(changes);
        while self.changes.len() > KEPT {
            // A revision is forgotten as a whole: half of a transaction must never be told.
            let forgotten = self.changes.front().map_or(revision, |change| change.revision);
            while self.changes.front().is_some_and(|change| change.revision == forgotten) {
                self.changes.pop_front();
            }
            self.from = forgotten;
        }
    }

    /// What happened after `revision`.
    pub fn since(&self, revision: u64) -> Changes {
        if revision < self.from || revision > self.to {
            return Changes::Reload;
        }
        let changes = self.changes.iter().filter(|change| change.revision > revision).cloned().collect();
        Changes::Since { revision: self.to, changes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64) -> Change {
        Change { key: format!("k{revision}"), revision, value: None }
    }

    #[test]
    fn changes_are_told_once() {
        let mut history = History::starting_at(5);
        history.push(6, vec![change(6)]);
        history.push(9, vec![change(8), change(9)]);
        assert_eq!(history.since(6), Changes::Since { revision: 9, changes: vec![change(8), change(9)] });
        assert_eq!(history.since(9), Changes::Since { revision: 9, changes: vec![] });
    }

    #[test]
    fn what_was_forgotten_is_read_again() {
        let mut history = History::starting_at(0);
        for revision in 1..=KEPT as u64 + 10 {
            history.push(revision, vec![change(revision)]);
        }
        assert_eq!(history.since(9), Changes::Reload);
        assert!(matches!(history.since(10), Changes::Since { changes, .. } if changes.len() == KEPT));
        assert_eq!(
            history.since(u64::MAX),
            Changes::Reload,
            "a revision from the future is another metastore's"
        );
    }
}
