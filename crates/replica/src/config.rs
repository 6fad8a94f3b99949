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

    /// What must hold after every event.
    pub fn validate(&self) -> Result<(), String> {
        match &self.record {
            Some(record) => record.validate().map_err(|what| format!("{}: {what}", record.id)),
            None if self.decommissioned => Err("it gave up a place that it never had".into()),
            None => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use types::config::Cause;
    use types::{Epoch, PartitionId, Policy, ProposalId, TableId, Term};

    fn record(epoch: u64, log: LogKind) -> PartitionRecord {
        PartitionRecord {
            format: 1,
            id: PartitionId(1),
            table: TableId(1),
            epoch: Epoch(epoch),
            primary: Member::default(),
            term: Term(1),
            in_sync: vec![Member::default()],
            catching_up: Vec::new(),
            policy: Policy::preset("sync", 1, log).expect("a preset"),
            next_policy: None,
            proposal: ProposalId(epoch),
            cause: Cause::Restarted,
            before: None,
            failover: None,
            lossy: false,
            unknown: Default::default(),
        }
    }

    #[test]
    fn what_was_noted_of_a_configuration_ends_with_it() {
        let mut config = Config::default();
        assert_eq!((config.log_kind(), config.validate()), (LogKind::Disk, Ok(())));
        assert_eq!(config.replace(record(1, LogKind::Memory), Micros(5)), None);
        assert_eq!((config.log_kind(), config.since()), (LogKind::Memory, Micros(5)));
        config.note_no_room();
        config.note_decommissioned();
        assert!(config.no_room() && config.is_decommissioned());
        let before = config.replace(record(2, LogKind::Disk), Micros(9));
        assert_eq!(before.map(|record| record.epoch), Some(Epoch(1)));
        assert!(!config.no_room() && !config.is_decommissioned() && config.since() == Micros(9));
        assert_eq!(config.validate(), Ok(()));
    }
}
