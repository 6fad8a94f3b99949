//! Algorithm 1: at a client.

use super::{Idle, Rules};
use std::collections::BTreeSet;
use types::Position;

/// What a client tracks of its commits.
#[derive(Clone, Debug)]
pub struct ClientTracker {
    /// T_F(c): each of its commits up to here has been flushed.
    flushed_upto: Position,
    /// FQ: commits, in their order.
    queue: BTreeSet<Position>,
    /// FQ': flushed ones, in their order.
    flushed: BTreeSet<Position>,
    /// The newest timestamp that it was told of, by anybody.
    heard: Position,
}

/// What a client says with a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// T_F(c).
    pub flushed_upto: Position,
    /// What it has flushed, for a manager that counts itself.
    pub flushed: Vec<Position>,
}

impl ClientTracker {
    /// On startup: T_F(c) is T_F*.
    pub fn start(flushed_by_all: Position) -> ClientTracker {
        ClientTracker {
            flushed_upto: flushed_by_all,
            queue: BTreeSet::new(),
            flushed: BTreeSet::new(),
            heard: flushed_by_all,
        }
    }

    /// On receiving a commit timestamp.
    pub fn committed(&mut self, at: Position) {
        self.queue.insert(at);
        self.heard(at);
    }

    /// It was told of a timestamp.
    pub fn heard(&mut self, at: Position) {
        self.heard = self.heard.max(at);
    }

    /// On post-flush of a transaction.
    pub fn flushed(&mut self, at: Position) {
        self.flushed.insert(at);
    }

    /// What it has committed and not flushed, as far as it knows.
    pub fn unflushed(&self) -> usize {
        self.queue.difference(&self.flushed).count()
    }

    /// On heartbeat: what it sends.
    pub fn heartbeat(&mut self, rules: Rules) -> Heartbeat {
        let flushed = self.flushed.iter().copied().collect();
        while let (Some(first), Some(done)) = (self.queue.first(), self.flushed.first()) {
            if first != done {
                break;
            }
            self.flushed_upto = *done;
            self.queue.pop_first();
            self.flushed.pop_first();
        }
        if rules.idle == Idle::Jumps && self.queue.is_empty() {
            self.flushed_upto = self.flushed_upto.max(self.heard);
        }
        Heartbeat { flushed_upto: self.flushed_upto, flushed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    #[test]
    fn the_threshold_follows_the_order_of_commits_whatever_the_order_of_flushes() {
        let mut client = ClientTracker::start(at(1));
        [3, 5, 6].map(at).into_iter().for_each(|commit| client.committed(commit));
        client.flushed(at(5));
        assert_eq!(client.heartbeat(Rules::PRINTED).flushed_upto, at(1));
        client.flushed(at(3));
        assert_eq!(client.heartbeat(Rules::PRINTED).flushed_upto, at(5));
        assert_eq!(client.unflushed(), 1);
    }
}
