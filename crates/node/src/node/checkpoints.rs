//! Which engines are to be written to disk, and the one that is being written, beside its other work and one
//! at a time.

use super::storage::Storage;
use crate::config::Config;
use crate::journal::Journal;
use crate::lease_manager::SharedLeases;
use crate::metrics::Metrics;
use replica::{Host, Replica};
use std::collections::BTreeSet;
use std::time::Instant;
use types::engine::{Checkpoint, Wake};
use types::{EngineError, PartitionId};

/// What a component takes on the disk beside its rows, at most.
const COMPONENT: u64 = 1 << 20;

/// The engine that is being written.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    partition: PartitionId,
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
    /// Bytes of log above an engine's files that make a checkpoint due (`log.checkpoint_bytes`).
    budget: u64,
    /// The longest that the log on the disk may become.
    log_bytes: u64,
    /// Partitions whose log has grown past the budget, or that somebody asked for.
    due: Vec<PartitionId>,
    under_way: Option<UnderWay>,
    /// It was said that a checkpoint found no room.
    told_full: bool,
    /// Wakes this thread when a thread of the engine has got on.
    wake: Wake,
}

impl Checkpoints {
    /// None is due.
    pub fn new(config: &Config, wake: Wake) -> Checkpoints {
        let (budget, log_bytes) = (config.log.checkpoint_bytes, config.log.options.max_bytes);
        Checkpoints { budget, log_bytes, due: Vec::new(), under_way: None, told_full: false, wake }
    }

    /// True if one can begin or go on without waiting for the disk.
    pub fn are_due(&self) -> bool {
        match self.under_way {
            Some(under_way) => under_way.stands == Checkpoint::Ready,
            None => !self.due.is_empty(),
        }
    }

    /// A checkpoint of this partition is due, however long its log is.
    pub fn soon(&mut self, partition: PartitionId) {
        let under_way = self.under_way.is_some_and(|under_way| under_way.partition == partition);
        if !under_way && !self.due.contains(&partition) {
            self.due.push(partition);
        }
    }

    /// Finds the logs that are too long. `short`: there is no room, and every checkpoint may free some of the
    /// log.
    pub fn look(&mut self, host: &Host<SharedLeases>, journal: &Journal, replicas: usize, short: bool) {
        let budget = if short { 0 } else { self.budget };
        let long = host.replicas().filter(|replica| {
            let from = replica.engine().persisted().lsn.next();
            can_shorten(replica) && journal.bytes_since(replica.id(), from) > budget
        });
        let mut due: BTreeSet<PartitionId> = long.map(Replica::id).collect();
        due.extend(self.holding_back(host, journal, replicas));
        if let Some(under_way) = self.under_way {
            due.remove(&under_way.partition);
        }
        due.extend(std::mem::take(&mut self.due));
        self.due = due.into_iter().collect();
    }

    /// The partitions with little in the log that keep much of others in it: segments are given back from the
    /// oldest on.
    fn holding_back(
        &self,
        host: &Host<SharedLeases>,
        journal: &Journal,
        replicas: usize,
    ) -> Vec<PartitionId> {
        // What all partitions may have together, if each stays below its own budget.
        let together = self.budget.saturating_mul(replicas as u64 + 1);
        if journal.disk_bytes() <= together.min(self.log_bytes / 2) {
            return Vec::new();
        }
        let mut holding = journal.holding_back();
        holding.retain(|id| host.replica(*id).is_some_and(can_shorten));
        holding
    }

    /// Goes on writing one engine to disk, beside its other work, or begins with another.
    pub fn go_on(
        &mut self,
        host: &mut Host<SharedLeases>,
        storage: &Storage,
        metrics: &Metrics,
    ) -> Result<(), Failed> {
        let (id, since, begins) = match self.under_way.take() {
            Some(under_way) => (under_way.partition, under_way.since, false),
            None => match self.due.pop() {
                Some(id) if fits(host, storage, id) => (id, Instant::now(), true),
                _ => return Ok(()),
            },
        };
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
            Ok(stands) => self.under_way = Some(UnderWay { partition: id, since, stands }),
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

/// True if a checkpoint of this replica lets the log become shorter.
fn can_shorten(replica: &Replica) -> bool {
    let engine = replica.engine();
    engine.is_persistent() && engine.published().lsn > engine.persisted().lsn
}

/// True if there is room for what a checkpoint of this partition writes.
fn fits(host: &Host<SharedLeases>, storage: &Storage, id: PartitionId) -> bool {
    let bytes = host.replica(id).map_or(0, |replica| replica.engine().memory_bytes());
    bytes.saturating_add(bytes / 4).saturating_add(COMPONENT) <= storage.free_for(id)
}
