//! What a node sets of its SQL service before it serves.

use super::Sql;
use crate::resume::Resuming;
use crate::system::sessions::Sessions;
use crate::txn::{NodeMemory, SpillCounters, SpillSettings};
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

impl Sql {
    /// The same, with its sessions in this list.
    pub fn listing(self, sessions: Arc<Sessions>) -> Sql {
        Sql { sessions, ..self }
    }

    /// The same, with large transactions that spill.
    pub fn spilling(self, settings: SpillSettings) -> Sql {
        Sql { memory: Arc::new(NodeMemory::default().spilling_to(settings)), ..self }
    }

    /// What large transactions have spilled.
    pub fn spilled(&self) -> SpillCounters {
        self.memory.spilling().counters()
    }

    /// The same, finishing what others have left half done of tables in databases whose first partition this
    /// node leads ([`crate::resume`]). Called on the runtime that it was started on.
    pub fn resuming(self, node: NodeId, every: Duration) -> Sql {
        let resuming = Resuming::start(self.handle.clone(), node, every);
        Sql { _resuming: Some(resuming), ..self }
    }
}
