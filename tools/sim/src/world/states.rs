//! States of replicas are compared: the newest ones, and older ones that can still be read (I6).

use super::World;
use types::{PartitionId, Position, ReadAt};

impl World {
    /// The replicas of a node whose states are to be read now: some, or `all`.
    pub(super) fn unread(&mut self, node: u32, all: bool) -> Vec<PartitionId> {
        let Some(process) = self.machine_mut(node).process.as_mut() else { return Vec::new() };
        process.watched.look(process.host.replicas().map(|replica| (replica.id(), replica.engine())), all)
    }

    /// Shows a node's states to the checkers.
    pub(super) fn look_at_states(&mut self, node: u32, unread: &[PartitionId]) {
        let Some(process) = &self.machine(node).process else { return };
        let mut states = Vec::new();
        for replica in process.host.replicas().filter(|replica| unread.contains(&replica.id())) {
            let engine = replica.engine();
            let (published, applied) = (engine.published(), engine.applied());
            // A replica that takes in a copy cannot be read, and says so.
            if let Ok(digest) = engine.digest(ReadAt::Lsn(published.lsn)) {
                states.push((replica.id(), published, digest));
            }
            // What can still be read of an older state is what it was.
            let tail = replica.log().tail();
            let ours = |at: &Position| tail.at(at.lsn).is_some_and(|(here, _)| here == *at);
            let mut older =
                self.checks.agreement.known(replica.id(), engine.read_floor(), published.lsn).filter(ours);
            if let Some(at) = older.next()
                && let Ok(digest) = engine.digest(ReadAt::Lsn(at.lsn))
            {
                states.push((replica.id(), at, digest));
            }
            // Rows of a load are read when it is published, and not before.
            if applied != published
                && engine.pending_load().is_none()
                && let Ok(digest) = engine.digest(ReadAt::Applied)
            {
                states.push((replica.id(), applied, digest));
            }
        }
        let (member, now) = (process.member, self.now());
        let damaged = process.reports.damaged().to_vec();
        for (id, at, digest) in states {
            if !damaged.contains(&id) {
                let verdict = self.checks.agreement.state(id, at, digest, member);
                self.checks.expect("I6", now, verdict);
            }
        }
    }
}
