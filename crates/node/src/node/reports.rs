//! What this node tells of itself: to controllers, and to the threads that read its status and its counters.

use super::view::View;
use crate::metrics::Metrics;
use crate::shared_status::SharedStatus;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::config::{Addresses, TailReport};
use types::{Executors, Micros, PartitionId, Term};
use wire::Message;
use wire::control::{ExecutorStatus, NodeStatus, Register, Role, Served};

/// So many of the newest failovers are told again: controllers keep no more of them either.
const MOST_SERVED: usize = 1000;

/// Who this node is in this life.
#[derive(Clone)]
pub struct ThisNode {
    /// Where it listens.
    pub addresses: Addresses,
    /// The zone it is in.
    pub zone: String,
    /// Its log had been shut down properly.
    pub clean_start: bool,
    /// How many executors it has.
    pub executors: Executors,
}

/// What was told, and what is to be told again.
pub struct Reports {
    this: ThisNode,
    /// Partitions whose replica here is damaged.
    damaged: Vec<PartitionId>,
    /// The lives of this directory that have registered.
    starts: Vec<u64>,
    /// Why controllers refused this process, as last said.
    refused: String,
    /// Failovers to this node in this life of it, with how they went.
    served: VecDeque<Served>,
    /// The terms in which this node leads or led.
    led: BTreeMap<PartitionId, Term>,
    shared_status: Arc<SharedStatus>,
    /// What the other executors have, by their numbers, as they said last.
    parts: BTreeMap<usize, NodeStatus>,
    /// One of them has something that controllers should hear soon.
    news: bool,
}

impl Reports {
    /// Nothing was told yet.
    pub fn new(this: ThisNode, shared_status: Arc<SharedStatus>) -> Reports {
        let (damaged, served, led) = (Vec::new(), VecDeque::new(), BTreeMap::new());
        let (starts, refused) = (Vec::new(), String::new());
        let (parts, news) = (BTreeMap::new(), false);
        Reports { this, damaged, starts, refused, served, led, shared_status, parts, news }
    }

    /// Another executor says what it has of the node's status.
    pub fn note_part(&mut self, number: usize, status: NodeStatus, news: bool) {
        self.parts.insert(number, status);
        self.news |= news;
    }

    /// True once after another executor has said something that controllers should hear soon.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// The node's status: the coordinator's with what the others have. `hangs`: for how long the executor
    /// with this number has done nothing, if it hangs. What that one has said of the disk does not count any
    /// more; what it has said of its replicas stays, and controllers do not go by it (PR-421).
    pub fn with_parts(&self, mut status: NodeStatus, hangs: impl Fn(usize) -> Micros) -> NodeStatus {
        for (number, part) in &self.parts {
            let silence = hangs(*number);
            let hung = |executor: &ExecutorStatus| ExecutorStatus { hangs_us: silence.0, ..*executor };
            status.executors.extend(part.executors.iter().map(hung));
            status.replicas.extend(part.replicas.iter().cloned());
            status.log_bytes += part.log_bytes;
            status.commits += part.commits;
            status.tails.extend(part.tails.iter().cloned());
            if silence == Micros::ZERO {
                status.full |= part.full;
                status.log_waits_us = status.log_waits_us.max(part.log_waits_us);
            }
        }
        status.replicas.sort_by_key(|replica| replica.partition);
        status.sessions = self.shared_status.sessions.counts();
        status
    }

    /// The lives of this directory that have registered: this one is about to.
    pub fn will_register(&mut self, starts: Vec<u64>) {
        self.starts = starts;
    }

    /// Controllers do not take this process for the node: that is said, once.
    pub fn refused(&mut self, why: String) {
        if self.refused != why {
            eprintln!("the controllers do not take this process for its node: {why}");
            self.refused = why;
        }
    }

    /// This node's counters.
    pub fn metrics(&self) -> &Metrics {
        &self.shared_status.metrics
    }

    /// True if a controller has sent its cluster map.
    pub fn is_registered(&self) -> bool {
        self.shared_status.registered.load(Ordering::Acquire)
    }

    /// A controller has sent its cluster map.
    pub fn registered(&self) {
        self.shared_status.registered.store(true, Ordering::Release);
    }

    /// Who this is, for controllers.
    pub fn registration(&self) -> Message {
        Message::Register(Register {
            member: self.shared_status.me,
            clean_start: self.this.clean_start,
            addresses: self.this.addresses.clone(),
            zone: self.this.zone.clone(),
            damaged: self.damaged.clone(),
            starts: self.starts.clone().into(),
            executors: self.this.executors,
        })
    }

    /// A failover to this node went so: what to tell.
    pub fn serves(&mut self, served: Served) -> Message {
        if self.served.len() >= MOST_SERVED {
            self.served.pop_front();
        }
        self.served.push_back(served.clone());
        Message::Served(served)
    }

    /// How failovers to this node went, and every tail on its disk: of these, too, a life before may not have
    /// been heard.
    pub fn again(&self, tails: &[TailReport]) -> Vec<Message> {
        let served = self.served.iter().cloned().map(Message::Served);
        served.chain(tails.iter().cloned().map(Message::TailSetAside)).collect()
    }

    /// Looks at a new status. True if this node's registration is another now.
    pub fn note(&mut self, status: &NodeStatus, view: &View) -> bool {
        let of = |role: Role| {
            let replicas = status.replicas.iter().filter(move |replica| replica.role == role);
            replicas.map(|replica| replica.partition)
        };
        let terms = of(Role::Primary).filter_map(|id| Some((id, view.partition(id)?.term)));
        let begun = terms.filter(|(id, term)| self.led.insert(*id, *term) != Some(*term)).count();
        self.metrics().primary_changes.fetch_add(begun as u64, Ordering::Relaxed);
        let damaged: Vec<PartitionId> = of(Role::Damaged).collect();
        let changed = damaged != self.damaged;
        self.damaged = damaged;
        changed
    }

    /// Puts up what other threads read.
    pub fn put_up(&self, status: NodeStatus, view: &View, now: Micros) {
        self.shared_status.put_status(status);
        self.shared_status.put_cluster_map(now, view.version(), || view.map());
    }
}
