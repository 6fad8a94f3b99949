//! What ends the sessions of a database that is dropped. Every node hears of that from the controllers,
//! whichever node the statement came to.

use super::{Handle, Place, Shared};
use pg::{Failure, Overdue, code};
use std::sync::PoisonError;
use types::TableId;

impl Handle {
    /// Ends once the database is gone that the session is in, with what its client is told then. None: the
    /// session is in the one that is always there.
    pub fn dropped(&self) -> Option<Overdue> {
        let Place::In(database) = self.place else { return None };
        let shared = self.shared.clone();
        Some(Box::pin(async move {
            loop {
                let changed = shared.changed.notified();
                if shared.is_gone(database) {
                    return terminated();
                }
                changed.await;
            }
        }))
    }
}

impl Shared {
    /// True if the cluster is known, and there is no such database in it.
    fn is_gone(&self, database: TableId) -> bool {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.cluster().is_some() && map.owner(database).is_none()
    }
}

fn terminated() -> Failure {
    Failure::new(code::SHUTDOWN, "terminating connection due to administrator command")
        .detail("the database was dropped")
        .fatal()
}
