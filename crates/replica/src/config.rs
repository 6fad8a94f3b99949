//! The partition's configuration as a replica knows it.

use types::{LogKind, Member, Micros, PartitionRecord};

/// The newest configuration known, and what holds only as long as there is no newer one.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// `None` until the first.
    record: Option<PartitionRecord>,
    /// When it came.
    since: Micros,
    /// The log was short of room in this configuration.
    no_room: bool,
    /// This replica has no place in it, and nothing that only it has.
    decommissioned: bool,
}

impl Config {
    pub fn record(&self) -> Option<&PartitionRecord> {
        self.record.as_ref()
    }

    /// When the newest record came; zero before the first.
    pub fn since(&self) -> Micros {
        self.since
    }

    /// Takes in a newer record and gives the one before.
    pub fn replace(&mut self, record: PartitionRecord, now: Micros) -> Option<PartitionRecord> {
        let before = self.record.take();
        *self = Config { record: Some(record), since: now, no_room: false, decommissioned: false };
        before
    }

    /// Where entries are kept. Until a record says otherwise, on the disk.
    pub fn log_kind(&self) -> LogKind {
        self.record.as_ref().map_or(LogKind::Disk, |record| record.policy.log)
    }

    /// True if `member` is catching up.
    pub fn is_catching_up(&self, member: &Member) -> bool {
        self.record.as_ref().is_some_and(|record| record.catching_up.contains(member))
    }

    /// True if the log was short of room in this configuration.
    pub fn no_room(&self) -> bool {
        self.no_room
    }

    /// The log is short of room.
    pub fn note_no_room(&mut self) {
        self.no_room = true;
    }

    /// True if this replica may be removed.
    pub fn is_decommissioned(&self) -> bool {
        self.decommissioned
    }

    /// What only this replica had is kept elsewhere.
    pub fn note_decommissioned(&mut self) {
        self.decommissioned = true;
    }
}
