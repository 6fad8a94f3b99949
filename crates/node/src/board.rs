//! What the executor puts up for the HTTP thread to read, and what that thread may ask of it.

use crate::metrics::Metrics;
use crate::net::Harm;
use crate::stop::Stopper;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use types::Member;
use wire::control::NodeStatus;

/// Shared by a node's threads.
#[derive(Debug)]
pub struct Board {
    /// The node.
    pub me: Member,
    /// Its counters.
    pub metrics: Arc<Metrics>,
    /// Cuts that are played; `None` if the configuration does not allow it.
    pub harm: Option<Arc<Harm>>,
    /// A controller has sent its picture.
    pub registered: AtomicBool,
    /// How the node is to end.
    pub stop: Stopper,
    status: Mutex<Arc<NodeStatus>>,
}

impl Board {
    /// An empty board.
    pub fn new(me: Member, metrics: Arc<Metrics>, harm: Option<Arc<Harm>>, stop: Stopper) -> Board {
        Board {
            me,
            metrics,
            harm,
            registered: AtomicBool::new(false),
            stop,
            status: Mutex::new(Arc::new(NodeStatus { member: me, ..NodeStatus::default() })),
        }
    }

    /// The node's newest status.
    pub fn status(&self) -> Arc<NodeStatus> {
        self.status.lock().expect("a thread panicked while it held the status").clone()
    }

    /// Puts up a new status.
    pub fn put_status(&self, status: NodeStatus) {
        let status = Arc::new(status);
        *self.status.lock().expect("a thread panicked while it held the status") = status;
    }
}
