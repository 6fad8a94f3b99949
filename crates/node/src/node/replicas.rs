//! The replicas of a node, and what they have asked for and not been given yet: outputs to be carried out,
//! entries to be read back, files to be installed.

use crate::journal::Journal;
use crate::lease_manager::SharedLeases;
use driver::moved::Moved;
use replica::{Host, Output, ReadFor};
use std::collections::{BTreeSet, VecDeque};
use types::engine::Wake;
use types::{Lsn, Member, Now, PartitionId};

/// A read of the log that was asked for.
struct LogRead {
    partition: PartitionId,
    from: Lsn,
    max_bytes: usize,
    purpose: ReadFor,
}

/// Reads of the log in one turn: each is of a bounded length, and clients wait meanwhile.
const LOG_READS: usize = 4;

/// All replicas of a node, and what they wait for.
pub struct Replicas {
    host: Host<SharedLeases>,
    /// Outputs of the host that are not carried out yet, in order.
    out: Vec<Output>,
    log_reads: VecDeque<LogRead>,
    /// Partitions whose replica here installs files.
    installing: BTreeSet<PartitionId>,
    /// Those that have no place here any more.
    moved: Moved,
    /// Wakes this thread for an engine that works on a thread of its own.
    wake: Wake,
}

impl Replicas {
    /// Those of a node that starts.
    pub fn new(host: Host<SharedLeases>, wake: Wake) -> Replicas {
        let (out, log_reads) = (Vec::new(), VecDeque::new());
        Replicas { host, out, log_reads, installing: BTreeSet::new(), moved: Moved::default(), wake }
    }

    /// For looking at them.
    pub fn host(&self) -> &Host<SharedLeases> {
        &self.host
    }

    /// For what has no outputs. Inputs go through [`Replicas::input`].
    pub fn host_mut(&mut self) -> &mut Host<SharedLeases> {
        &mut self.host
    }

    /// Who this node is.
    pub fn me(&self) -> Member {
        self.host.me()
    }

    /// Hands an input to the host. What it asks for is kept behind what it asked for before.
    pub fn input<T>(
        &mut self,
        now: Now,
        act: impl FnOnce(&mut Host<SharedLeases>, Now, &mut Vec<Output>) -> T,
    ) -> T {
        act(&mut self.host, now, &mut self.out)
    }

    /// Those that have no place here any more, and since when.
    pub fn moved(&mut self) -> &mut Moved {
        &mut self.moved
    }

    /// True if there is work that waits for nobody.
    pub fn is_busy(&self) -> bool {
        !self.log_reads.is_empty() || self.host.aggregates()
    }

    /// What is to be carried out, in order. The list comes back by [`Replicas::give_back`].
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Takes the list back, empty: its memory is used again.
    pub fn give_back(&mut self, outputs: Vec<Output>) {
        assert!(outputs.is_empty() && self.out.is_empty(), "carrying outputs out is no input of a replica");
        self.out = outputs;
    }

    /// Entries are to be read back and given to the host.
    pub fn read_later(&mut self, partition: PartitionId, from: Lsn, max_bytes: usize, purpose: ReadFor) {
        self.log_reads.push_back(LogRead { partition, from, max_bytes, purpose });
    }

    /// Reads entries back for members that are behind.
    pub fn serve_log_reads(&mut self, now: Now, journal: &Journal) {
        for _ in 0..LOG_READS {
            let Some(read) = self.log_reads.pop_front() else { return };
            let entries = journal.read(read.partition, read.from, read.max_bytes);
            self.host.log_read(now, read.partition, read.purpose, entries, &mut self.out);
        }
    }

    /// A replica has files to install: from the next turn on.
    pub fn install_soon(&mut self, partition: PartitionId) {
        self.installing.insert(partition);
        (self.wake)();
    }

    /// Goes on with installations; each waits for a thread that wakes this one.
    pub fn install(&mut self, now: Now) {
        let Replicas { installing, host, wake, out, .. } = self;
        installing.retain(|id| host.install(now, *id, wake, out));
    }

    /// The engines to whose files a write failed, with what the system said.
    pub fn failed_writes(&self) -> Vec<(PartitionId, String)> {
        let failed = |replica: &replica::Replica| {
            let error = replica.engine().failed_write()?;
            Some((replica.id(), error.to_owned()))
        };
        self.host.replicas().filter_map(failed).collect()
    }

    /// True if this node leads a partition that another member could lead.
    pub fn lead_for_others(&self) -> bool {
        let me = self.host.me();
        let mut records = self.host.replicas().filter_map(|replica| replica.record());
        records.any(|record| record.primary == me && record.in_sync.len() > 1)
    }
}
