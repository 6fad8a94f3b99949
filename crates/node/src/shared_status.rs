//! What the executor puts up for the HTTP thread to read, and what that thread may ask of it.

use crate::metrics::Metrics;
use crate::net::FaultInjection;
use crate::stop::Stopper;
use ::sql::system::sessions::Sessions;
use client::Map;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use types::{Member, Micros};
use wire::control::NodeStatus;

/// So long after it was asked for last the records are put up no more.
const WATCH: Micros = Micros::from_millis(15_000);

/// Shared by a node's threads.
#[derive(Debug)]
pub struct SharedStatus {
    /// The node.
    pub me: Member,
    /// Its counters.
    pub metrics: Arc<Metrics>,
    /// Cuts that are played; `None` if the configuration does not allow it.
    pub faults: Option<Arc<FaultInjection>>,
    /// A controller has sent its cluster map.
    pub registered: AtomicBool,
    /// How the node is to end.
    pub stop: Stopper,
    /// The sessions of its SQL gateway.
    pub sessions: Arc<Sessions>,
    status: Mutex<Arc<NodeStatus>>,
    /// When somebody asked for the records last, by the monotonic clock.
    watched: AtomicU64,
    /// The records, and which version of them; `None` while nobody asks.
    cluster_map: Mutex<Option<(u64, Arc<Map>)>>,
}

impl SharedStatus {
    /// An empty board.
    pub fn new(
        me: Member,
        metrics: Arc<Metrics>,
        faults: Option<Arc<FaultInjection>>,
        stop: Stopper,
    ) -> SharedStatus {
        SharedStatus {
            me,
            metrics,
            faults,
            registered: AtomicBool::new(false),
            stop,
            sessions: Arc::default(),
            status: Mutex::new(Arc::new(NodeStatus { member: me, ..NodeStatus::default() })),
            watched: AtomicU64::new(0),
            cluster_map: Mutex::default(),
        }
    }

    /// The node's newest status.
    pub fn status(&self) -> Arc<NodeStatus> {
        self.status.lock().expect("a thread panicked while it held the status").clone()
    }

    /// Asks for the records, for a while from now on: the executor puts them up with its next status.
    pub fn watch(&self, now: Micros) {
        let before = self.watched.swap(now.0, Ordering::AcqRel);
        if now.since(Micros(before)) >= WATCH {
            // What lies there is of the last time that somebody looked.
            *self.cluster_map.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// The records, once they were put up.
    pub fn cluster_map(&self) -> Option<Arc<Map>> {
        let cluster_map = self.cluster_map.lock().unwrap_or_else(PoisonError::into_inner);
        cluster_map.as_ref().map(|(_, map)| map.clone())
    }

    /// Puts up the records of this version if somebody asks for them and has them not.
    pub fn put_cluster_map(&self, now: Micros, version: u64, records: impl FnOnce() -> Map) {
        if now.since(Micros(self.watched.load(Ordering::Acquire))) >= WATCH {
            return;
        }
        let mut cluster_map = self.cluster_map.lock().unwrap_or_else(PoisonError::into_inner);
        if cluster_map.as_ref().is_none_or(|(known, _)| *known != version) {
            *cluster_map = Some((version, Arc::new(records())));
        }
    }

    /// Puts up a new status.
    pub fn put_status(&self, status: NodeStatus) {
        let status = Arc::new(status);
        *self.status.lock().expect("a thread panicked while it held the status") = status;
    }
}
