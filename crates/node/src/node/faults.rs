//! Faults that a node plays for tests, by its configuration or as it is asked to: cuts of its connections,
//! executors that hang, and freezing at a point of coming back, as it does by `SIGSTOP`, once in its life.

use crate::config::FreezeAt;
use crate::lease_manager::SharedLeases;
use crate::net::{Cut, FaultInjection};
use replica::Host;
use std::sync::Arc;
use types::{Now, PartitionId};
use wire::control::{ReplicaStatus, Role};

/// The faults that this node may play.
pub struct Faults {
    /// Cuts, and executors that hang; none if the configuration does not allow any.
    played: Option<Arc<FaultInjection>>,
    /// The newest cut that was taken.
    version: u64,
    /// Where it freezes itself, until it has.
    freeze_at: Option<FreezeAt>,
}

impl Faults {
    /// None was played yet.
    pub fn new(played: Option<Arc<FaultInjection>>, freeze_at: Option<FreezeAt>) -> Faults {
        Faults { played, version: 0, freeze_at }
    }

    /// A cut that was asked for since the last call.
    pub fn take_cut(&mut self) -> Option<Cut> {
        self.played.as_ref()?.news(&mut self.version)
    }

    /// Does nothing for a while if this executor was asked to.
    pub fn hang(&self, executor: usize) {
        if let Some(time) = self.played.as_ref().and_then(|faults| faults.take_hang(executor)) {
            eprintln!("executor {executor} hangs for {} ms as it was asked to", time.as_millis());
            std::thread::sleep(time);
        }
    }

    /// Freezes here if a replica of a user's table has come to the point at which it is to.
    pub fn freeze_by_status(&mut self, host: &Host<SharedLeases>, now: Now) {
        let there = |replica: &&ReplicaStatus| match self.freeze_at {
            _ if replica.partition.is_system() => false,
            Some(FreezeAt::Stage(stage)) => replica.failback.stage == stage,
            Some(FreezeAt::Promoting) => replica.role == Role::Promoting,
            Some(FreezeAt::Tail) | None => false,
        };
        let looks = matches!(self.freeze_at, Some(FreezeAt::Stage(_) | FreezeAt::Promoting));
        let replicas = if looks { host.status(now) } else { Vec::new() };
        if let Some(replica) = replicas.iter().find(there) {
            self.freeze(replica.partition);
        }
    }

    /// A divergent tail was set aside.
    pub fn freeze_by_tail(&mut self, partition: PartitionId) {
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
