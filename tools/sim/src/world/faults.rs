//! What decides which fault strikes, how far operators are who force a promotion or have files read back, and
//! who is sound.

use super::clones::ClonedDisk;
use super::scrubs::Scrubbing;
use super::soundness::Soundness;
use crate::network::Endpoint;
use crate::random::{Concern, Stream};
use types::PartitionId;

/// Where decisions of faults and of operators are drawn from, each from a stream of its own.
pub(super) struct Faults {
    injector: Stream,
    own: Stream,
    files: Stream,
    returns: Stream,
    cloned: Option<ClonedDisk>,
    stranded: Option<PartitionId>,
    online: Stream,
    indexes: Stream,
    /// The operator who goes on without the node that has everything.
    pub forced: Forced,
    /// The operator who has files read back.
    pub scrubbing: Scrubbing,
    /// Whom they have left in peace.
    pub soundness: Soundness,
}

impl Faults {
    /// Those of a seed, before anything was drawn.
    pub fn new(seed: u64) -> Faults {
        Faults {
            injector: Stream::new(seed, Concern::Faults, 0),
            own: Stream::new(seed, Concern::OwnFaults, 1),
            files: Stream::new(seed, Concern::FileFaults, 1),
            returns: Stream::new(seed, Concern::OwnFaults, 2),
            cloned: None,
            stranded: None,
            online: Stream::new(seed, Concern::Workload, (1 << 32) + 1),
            indexes: Stream::new(seed, Concern::Workload, 1 << 32),
            forced: Forced::new(Stream::new(seed, Concern::Operator, 1)),
            scrubbing: Scrubbing::new(Stream::new(seed, Concern::Operator, 2)),
            soundness: Soundness::default(),
        }
    }

    /// Which fault strikes, whom, and how long.
    pub fn random(&mut self) -> &mut Stream {
        &mut self.injector
    }

    /// The same for faults that have a rhythm of their own.
    pub fn own(&mut self) -> &mut Stream {
        &mut self.own
    }

    /// The same for faults of files that have another rhythm.
    pub fn files(&mut self) -> &mut Stream {
        &mut self.files
    }

    /// What comes back of what had been replaced.
    pub fn returns(&mut self) -> &mut Stream {
        &mut self.returns
    }

    /// The copy of a node's disk, if there is one.
    pub fn cloned(&mut self) -> &mut Option<ClonedDisk> {
        &mut self.cloned
    }

    /// The partition that an operator has to recover, if there is one.
    pub fn stranded(&mut self) -> &mut Option<PartitionId> {
        &mut self.stranded
    }

    /// True if it is this one.
    pub fn is_stranded(&self, partition: PartitionId) -> bool {
        self.stranded == Some(partition)
    }

    /// How many copies and nodes are wanted.
    pub fn online(&mut self) -> &mut Stream {
        &mut self.online
    }

    /// Which indexes are wanted.
    pub fn indexes(&mut self) -> &mut Stream {
        &mut self.indexes
    }
}

/// How far an operator is who goes on without the node that has everything.
pub(super) struct Forced {
    random: Stream,
    /// From when a primary is to be left alone until its clients may reach it again.
    under_way: bool,
    /// Cut off, and does not know of the other term yet.
    away: Option<u32>,
    /// The node that is to lead, if it is not drawn.
    chosen: Option<u32>,
    /// Partitions that another was forced to lead, and who led them before.
    done: Vec<(PartitionId, u32)>,
    /// How often that was, the last partition, and when, virtual microseconds.
    last: (u32, Option<PartitionId>, u64),
}

impl Forced {
    fn new(random: Stream) -> Forced {
        Forced { random, under_way: false, away: None, chosen: None, done: Vec::new(), last: (0, None, 0) }
    }

    /// Where the operator's decisions are drawn from.
    pub fn random(&mut self) -> &mut Stream {
        &mut self.random
    }

    /// True while an operator is about to go on without the one that has everything: the disks of the others
    /// must do.
    pub fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// A primary is to be left alone.
    pub fn begin(&mut self) {
        self.under_way = true;
    }

    /// This node is to lead, whatever it lacks.
    pub fn choose(&mut self, node: u32) {
        self.chosen = Some(node);
    }

    /// The node that is to lead, if it is not drawn.
    pub fn chosen(&self) -> Option<u32> {
        self.chosen
    }

    /// It was not left alone after all.
    pub fn give_up(&mut self) {
        self.under_way = false;
    }

    /// The primary is alone and cut off.
    pub fn cut_off(&mut self, node: u32) {
        (self.under_way, self.away) = (true, Some(node));
    }

    /// True if this node is cut off and does not know of the other term yet.
    pub fn is_away(&self, node: u32) -> bool {
        self.away == Some(node)
    }

    /// Whoever was cut off knows of what came after it, or is another by now.
    pub fn is_back(&mut self, node: u32) {
        self.away = self.away.filter(|away| *away != node);
        self.under_way = self.away.is_some();
    }

    /// Who is cut off and does not know yet, and is not waited for any longer.
    pub fn take_away(&mut self) -> Option<u32> {
        self.away.take()
    }

    /// True if this is a client and the old primary, which does not know of the other term yet.
    pub fn keeps_apart(&self, from: Endpoint, to: Endpoint) -> bool {
        let away = self.away.map(Endpoint::Node);
        let client = |end: Endpoint| matches!(end, Endpoint::Client(_));
        client(from) && Some(to) == away || client(to) && Some(from) == away
    }

    /// Another was forced to lead a partition now than this node, which led it before: how often that was.
    pub fn done(&mut self, now: u64, partition: PartitionId, before: u32) -> u32 {
        self.done.push((partition, before));
        self.last = (self.last.0 + 1, Some(partition), now);
        self.last.0
    }

    /// The partition that another was forced to lead last.
    pub fn last_partition(&self) -> Option<PartitionId> {
        self.last.1
    }

    /// True until another was forced to lead so often, and for so many microseconds from then on.
    pub fn is_to_come(&self, now: u64, times: u32, settles: u64) -> bool {
        self.last.0 < times || now < self.last.2 + settles
    }

    /// True if no report is awaited of what was acknowledged by those who were put aside.
    pub fn are_told(&self) -> bool {
        self.done.is_empty()
    }

    /// Partitions that another was forced to lead, and who led them before.
    pub fn take_done(&mut self) -> Vec<(PartitionId, u32)> {
        std::mem::take(&mut self.done)
    }
}
