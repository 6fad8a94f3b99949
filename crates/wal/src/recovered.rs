//! What opening a log found.

use crate::frame::{LogOffset, partition_bit};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use types::{Epoch, PartitionId, Position};

/// How the log was found to be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageKind {
    /// A frame is missing or not as it was written.
    Frame,
    /// A whole frame does not follow the one before it.
    Chain,
    /// A segment file is missing.
    MissingSegment,
    /// A segment file is shorter than it was made.
    ShortFile,
    /// A frame lies where another place's frame belongs: a disk wrote it there and acknowledged it.
    Astray,
    /// The disk cannot read what is there.
    NotReadable,
    /// Entries that should be in the log are not.
    Gap,
    /// An earlier opening found it, and the partition has not been repaired since.
    Earlier,
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DamageKind::Frame => "a frame is damaged",
            DamageKind::Chain => "a frame does not follow the one before it",
            DamageKind::MissingSegment => "a segment file is missing",
            DamageKind::ShortFile => "a segment file is too short",
            DamageKind::Astray => "a frame lies in another place than its own",
            DamageKind::NotReadable => "the disk cannot read what is there",
            DamageKind::Gap => "entries are missing",
            DamageKind::Earlier => "damage found before",
        })
    }
}

/// One place where what was synced is not there any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where.
    pub at: LogOffset,
    /// What.
    pub what: DamageKind,
    /// The partitions that must be taken for damaged because of it. Empty if a later state of all partitions
    /// shows that nothing that is still needed was hit.
    pub partitions: Vec<PartitionId>,
}

impl Damage {
    /// The segment's number.
    pub fn segment(&self) -> u32 {
        self.at.segment()
    }

    /// The offset in it.
    pub fn offset(&self) -> u64 {
        self.at.offset()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.what, self.at)
    }
}

/// One partition, as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredPartition {
    /// The position before the first entry.
    pub base: Position,
    /// The checksum of the entry there.
    pub base_crc: u32,
    /// The last entry, or the base. In a damaged partition the last one before the first gap.
    pub end: Position,
    /// The checksum of the entry there.
    pub end_crc: u32,
    /// The highest epoch promised.
    pub promised: Epoch,
    /// The custom values.
    pub custom: BTreeMap<u16, Bytes>,
    /// Set if entries, cuts, promises or values may be missing: the replica leaves the in-sync set and
    /// fetches good data (R10). Stays until a `Base`, `Repaired` or `Forget` record of the partition.
    pub damaged: Option<Damage>,
    /// A torn end was cut off that may have held entries of this partition (PR-18), now or at an earlier
    /// opening. None of them was ever claimed durable, unless the last batch before the stop was damaged
    /// before its mark was written. Stays until the owner takes the custom value [`crate::TORN`] away: the
    /// frame that replaces the torn end would hide it from a process that follows a short life.
    pub torn_end: bool,
}

/// What opening a log found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Every partition that the log knows.
    pub partitions: BTreeMap<PartitionId, RecoveredPartition>,
    /// No log was here: a new one was begun.
    pub fresh: bool,
    /// The last owner shut it down properly; the mark that said so is used up.
    pub clean_shutdown: bool,
    /// Bytes of a torn end that were cut off.
    pub torn_bytes: u64,
    /// Where the log now goes on.
    pub end: LogOffset,
    /// The how-manieth opening this is.
    pub generation: u32,
    /// All damage found.
    pub damage: Vec<Damage>,
    /// Damage that may have taken all that the log knew of some partition, so that it is not among
    /// `partitions`. Said by the opening that finds it, and not again: to the log such a partition is then
    /// one that it never had, unless its owner named it ([`crate::Owner::partitions`]).
    pub unknown_damaged: bool,
    /// The partitions that the torn end may have held, each by the bit that frames have for it
    /// ([`crate::frame`]).
    pub torn_partitions: u64,
}

impl Recovered {
    /// True if the log knows nothing of this partition, and damage may have taken all that it had of it
    /// (R10). Said by the opening that finds it, and not again, unless the partition was named
    /// ([`crate::Owner::partitions`]).
    pub fn may_have_lost(&self, partition: PartitionId) -> bool {
        self.unknown_damaged && !self.partitions.contains_key(&partition)
    }

    /// True if the log knows nothing of this partition, and the torn end that was cut off may have held all
    /// that it had of it: the first entries of a partition lie in the last batch, and none of them was ever
    /// claimed durable, unless that batch was damaged before its mark was written (PR-18). Said by the
    /// opening that finds it, and not again, unless the partition was named ([`crate::Owner::partitions`]).
    pub fn may_have_torn(&self, partition: PartitionId) -> bool {
        !self.partitions.contains_key(&partition) && self.torn_partitions & partition_bit(partition) != 0
    }
}
