//! What a process does with its disk beside its logs: engines that are to be written, replicas and tails that
//! find no room. The decisions are those of a real node ([`driver`]).

use super::{Hosts, Logs};
use driver::checkpoints::{LogBudget, LogLengths};
use driver::{BlockedOutputs, CheckpointQueue, WaitingReplicas};
use std::collections::BTreeMap;
use types::{Lsn, Member, Micros, PartitionId, PartitionRecord};

/// Engines, replicas and tails that want something of the disk.
pub struct Storage {
    /// Engines that are to be written.
    pub checkpoints: CheckpointQueue,
    /// What replicas ask for while a tail finds no room.
    pub held: BlockedOutputs,
    /// Replicas that find no room here.
    pub waiting: WaitingReplicas,
    /// The newest configurations of those that are still to be made.
    wanted: BTreeMap<PartitionId, PartitionRecord>,
}

impl Storage {
    /// Of a process that starts. `flush_bytes`: how much log above an engine's files is too much, if that is
    /// looked at; `log_bytes`: the longest that the log may become.
    pub fn new(flush_bytes: Option<u64>, log_bytes: u64) -> Storage {
        let budget = LogBudget { partition_bytes: flush_bytes.unwrap_or(u64::MAX), log_bytes };
        Storage {
            checkpoints: CheckpointQueue::new(budget),
            held: BlockedOutputs::default(),
            waiting: WaitingReplicas::default(),
            wanted: BTreeMap::new(),
        }
    }

    /// Finds the logs that are too long.
    pub fn look(&mut self, host: &Hosts, logs: &Logs) {
        let count = host.replicas().count();
        self.checkpoints.look(host.replicas(), logs, (count, logs.is_full()));
    }

    /// What must hold after every event.
    pub fn validate(&self) -> Result<(), String> {
        self.checkpoints.validate()
    }

    /// There is no room for a replica that is to be made: it is tried again. True if that is news.
    pub fn wait(&mut self, record: PartitionRecord, now: Micros) -> bool {
        let id = record.id;
        self.wanted.insert(id, record);
        self.waiting.add(id, now)
    }

    /// A replica has what it needs, or needs nothing any more.
    pub fn found_room(&mut self, id: PartitionId) {
        self.wanted.remove(&id);
        self.waiting.remove(id);
    }

    /// The configurations of replicas that are to be made now, after forgetting those that are not wanted
    /// here any more. `lost`: those that are there and want another place.
    pub fn due(&mut self, me: &Member, lost: &[PartitionId], now: Micros) -> Vec<PartitionRecord> {
        let wanted = &mut self.wanted;
        wanted.retain(|_, record| record.holds(me));
        self.waiting.keep(|id| wanted.contains_key(&id) || lost.contains(&id));
        self.waiting.due(now).into_iter().filter_map(|id| wanted.get(&id).cloned()).collect()
    }
}

impl LogLengths for Logs {
    fn bytes_since(&self, partition: PartitionId, from: Lsn) -> u64 {
        if self.is_in_memory(partition) { 0 } else { self.log().bytes_since(partition, from) }
    }

    fn disk_bytes(&self) -> u64 {
        self.log().bytes()
    }

    fn holding_back(&self) -> Vec<PartitionId> {
        self.log().holding_back()
    }
}
