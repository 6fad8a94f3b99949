//! The partition's configuration as a replica knows it.

use crate::context::Identity;
use crate::output::{Origin, Output};
use types::policy::Standby;
use types::{Member, Micros, NodeId, PartitionRecord};
use wire::PeerMessage;
use wire::peer::ReportRequest;

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

    /// Whom messages of this replica are from; none before the first configuration.
    pub fn origin(&self, identity: Identity) -> Option<Origin> {
        let epoch = self.record.as_ref()?.epoch;
        Some(Origin { partition: identity.id, epoch, me: identity.me })
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

    /// What must hold after every event.
    pub fn validate(&self) -> Result<(), String> {
        match &self.record {
            Some(record) => record.validate().map_err(|what| format!("{}: {what}", record.id)),
            None if self.decommissioned => Err("it gave up a place that it never had".into()),
            None => Ok(()),
        }
    }

    /// True if backups keep the log and files only. While the policy changes they do what the warmer one asks
    /// for.
    pub fn is_cold(&self) -> bool {
        self.record.as_ref().is_some_and(|record| {
            let mut policies = record.next_policy.iter().chain([&record.policy]);
            policies.all(|policy| policy.standby == Standby::Cold)
        })
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

    /// One that has no place in it asks the primary for its log, until it may be removed.
    pub fn asks_to_leave(&self, me: Member) -> Option<Output> {
        let record = self.record.as_ref().filter(|record| record.member_on(me.node).is_none())?;
        let request = ReportRequest { partition: record.id, epoch: record.epoch, from: me };
        Some(Output::Send { to: record.primary, message: PeerMessage::ReportRequest(request) })
    }

    /// True if this replica may be removed.
    pub fn is_decommissioned(&self) -> bool {
        self.decommissioned
    }

    /// What only this replica had is kept elsewhere.
    pub fn note_decommissioned(&mut self, me: NodeId) {
        let has_place = self.record().is_some_and(|record| record.member_on(me).is_some());
        assert!(!has_place, "I16: {me} has a place, and would be removed");
        self.decommissioned = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::config::Cause;
    use types::{Epoch, LogKind, PartitionId, Policy, ProposalId, TableId, Term};

    fn record(epoch: u64, log: LogKind) -> PartitionRecord {
        PartitionRecord {
            term: Term(1),
            proposal: ProposalId(epoch),
            cause: Cause::Restarted,
            ..PartitionRecord::new(
                PartitionId(1),
                TableId(1),
                Epoch(epoch),
                vec![Member::default()],
                Policy::preset("sync", 1, log).expect("a preset"),
            )
        }
    }

    #[test]
    fn what_was_noted_of_a_configuration_ends_with_it() {
        let mut config = Config::default();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.replace(record(1, LogKind::Memory), Micros(5)), None);
        assert_eq!(config.since(), Micros(5));
        config.note_no_room();
        config.note_decommissioned(NodeId(9));
        assert!(config.no_room() && config.is_decommissioned());
        let before = config.replace(record(2, LogKind::Disk), Micros(9));
        assert_eq!(before.map(|record| record.epoch), Some(Epoch(1)));
        assert!(!config.no_room() && !config.is_decommissioned() && config.since() == Micros(9));
        assert_eq!(config.validate(), Ok(()));
    }
}
