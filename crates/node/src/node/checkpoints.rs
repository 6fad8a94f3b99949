//! The engine that is being written to disk, beside its other work; which one that is, is decided by
//! [`CheckpointQueue`].

use super::storage::Storage;
use crate::config::Config;
use crate::journal::Journal;
use crate::lease_manager::SharedLeases;
use crate::metrics::Metrics;
use driver::CheckpointQueue;
use driver::checkpoints::{LogBudget, LogLengths, bytes_needed};
use replica::Host;
use std::time::Instant;
use types::engine::{Checkpoint, Wake};
use types::{EngineError, Lsn, PartitionId};

/// The engine that is being written: since when, and whether it waits for its threads.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    since: Instant,
    stands: Checkpoint,
}

/// An engine that could not be written, and why.
pub enum Failed {
    /// Its disk failed.
    Disk(PartitionId, String),
    /// The engine did.
    Engine(PartitionId, String),
}

/// What is to be written, and what is being written.
pub struct Checkpoints {
    queue: CheckpointQueue,
    under_way: Option<UnderWay>,
    /// It was said that a checkpoint found no room.
    told_full: bool,
    /// Wakes this thread when a thread of the engine has got on.
    wake: Wake,
}

impl Checkpoints {
    /// None is due.
    pub fn new(config: &Config, wake: Wake) -> Checkpoints {
        let budget = LogBudget {
            partition_bytes: config.log.checkpoint_bytes,
            log_bytes: config.log.options.max_bytes,
        };
        Checkpoints { queue: CheckpointQueue::new(budget), under_way: None, told_full: false, wake }
    }

    /// True if one can begin or go on without waiting for the disk.
    pub fn are_due(&self) -> bool {
        match self.under_way {
            Some(under_way) => under_way.stands == Checkpoint::Ready,
            None => self.queue.has_next(),
        }
    }

    /// A checkpoint of this partition is due, however long its log is.
    pub fn soon(&mut self, partition: PartitionId) {
        self.queue.soon(partition);
    }

    /// Finds the logs that are too long. `short`: there is no room, and every checkpoint may free some of the
    /// log.
    pub fn look(&mut self, host: &Host<SharedLeases>, journal: &Journal, replicas: usize, short: bool) {
        self.queue.look(host.replicas(), journal, (replicas, short));
    }

    /// Goes on writing one engine to disk, beside its other work, or begins with another.
    pub fn go_on(
        &mut self,
        host: &mut Host<SharedLeases>,
        storage: &Storage,
        metrics: &Metrics,
    ) -> Result<(), Failed> {
        let (id, since, begins) = match (self.queue.under_way(), self.under_way.take()) {
            (Some(id), Some(under_way)) => (id, under_way.since, false),
            _ => match self.queue.take_next() {
                Some(id) if fits(host, storage, id) => (id, Instant::now(), true),
                _ => return Ok(()),
            },
        };
        self.queue.ended(id);
        let Some(replica) = host.replica_mut(id) else { return Ok(()) };
        let before = replica.engine().persisted();
        let outcome = match begins {
            true => replica.begin_checkpoint(&self.wake),
            false => replica.engine_mut().go_on_checkpoint(),
        };
        match outcome {
            Ok(Checkpoint::Idle) if replica.engine().persisted() == before => {}
            Ok(Checkpoint::Idle) => {
                self.told_full = false;
                metrics.checkpointed(since.elapsed());
            }
            Ok(stands) => {
                self.queue.begin(id);
                self.under_way = Some(UnderWay { since, stands });
            }
            // It is as it was, and the log keeps what the files lack.
            Err(error @ EngineError::Full(_)) => {
                if !std::mem::replace(&mut self.told_full, true) {
                    eprintln!("partition {id}: {error}; it is tried again");
                }
            }
            Err(EngineError::Io(error)) => return Err(Failed::Disk(id, error.to_string())),
            Err(error) => return Err(Failed::Engine(id, format!("its checkpoint failed: {error}"))),
        }
        Ok(())
    }
}

impl LogLengths for Journal {
    fn bytes_since(&self, partition: PartitionId, from: Lsn) -> u64 {
        Journal::bytes_since(self, partition, from)
    }

    fn disk_bytes(&self) -> u64 {
        Journal::disk_bytes(self)
    }

    fn holding_back(&self) -> Vec<PartitionId> {
        Journal::holding_back(self)
    }
}

/// True if there is room for what a checkpoint of this partition writes.
fn fits(host: &Host<SharedLeases>, storage: &Storage, id: PartitionId) -> bool {
    let memory = host.replica(id).map_or(0, |replica| replica.engine().memory_bytes());
    bytes_needed(memory) <= storage.free_for(id)
}
