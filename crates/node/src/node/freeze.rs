//! Harm that a node does to itself: it freezes at a point of coming back, as it does by `SIGSTOP`, once in its life.

use super::Node;
use crate::config::FreezeAt;
use types::PartitionId;
use wire::control::{ReplicaStatus, Role};

impl Node {
    /// Freezes here if a replica of a user's table has come to the point at which it is to.
    pub(super) fn freeze_by_status(&mut self) {
        let there = |replica: &&ReplicaStatus| match self.freeze_at {
            _ if replica.partition.is_system() => false,
            Some(FreezeAt::Stage(stage)) => replica.failback.stage == stage,
            Some(FreezeAt::Promoting) => replica.role == Role::Promoting,
            Some(FreezeAt::Tail) | None => false,
        };
        let looks = matches!(self.freeze_at, Some(FreezeAt::Stage(_) | FreezeAt::Promoting));
        let replicas = if looks { self.host.status(self.now) } else { Vec::new() };
        if let Some(replica) = replicas.iter().find(there) {
            self.freeze(replica.partition);
        }
    }

    /// A divergent tail was set aside.
    pub(super) fn freeze_by_tail(&mut self, partition: PartitionId) {
        if self.freeze_at == Some(FreezeAt::Tail) {
            self.freeze(partition);
        }
    }

    fn freeze(&mut self, partition: PartitionId) {
        let Some(at) = self.freeze_at.take_if(|_| !partition.is_system()) else { return };
        eprintln!("partition {partition}: this node freezes as it was asked to ({at:?})");
        // Its own process can always be signalled.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    }
}
