//! What a replica is in its partition's configuration.
//!
//! | from | to |
//! | --- | --- |
//! | Idle | Leader, Backup, Damaged |
//! | Leader | Idle |
//! | Backup | Leader, Backup of another term, Idle, Damaged |
//! | Damaged | Backup, with a copy |
//!
//! A leader becomes idle first, whatever it is to be next: that answers everybody who waits
//! ([`Replica::step_down`]).
//!
//! [`Replica::step_down`]: crate::Replica::step_down

use crate::backup::Backup;
use crate::backup::acks::Due;
use crate::config::Config;
use crate::damage::Damage;
use crate::data::Data;
use crate::log_state::LogState;
use crate::output::Output;
use crate::primary::Primary;
use crate::sender::progress::Progress;
use crate::sender::shipping::Shipping;
use types::{LogKind, Lsn, Member, Micros, PartitionRecord, PinId, Term};

pub(crate) enum Role {
    /// Holds data, perhaps, but no part in the configuration.
    Idle,
    Leader(Box<Primary>),
    Backup(Backup),
    /// Found damage: refuses everything until it is given a copy.
    Damaged(Damage),
}

impl Role {
    fn word(&self) -> &'static str {
        match self {
            Role::Idle => "idle",
            Role::Leader(_) => "a leader",
            Role::Backup(_) => "a backup",
            Role::Damaged(_) => "damaged",
        }
    }

    /// Becomes `next`.
    pub fn becomes(&mut self, next: Role) {
        let may = match (&*self, &next) {
            (Role::Idle | Role::Backup(_), _) | (Role::Leader(_), Role::Idle) => true,
            (Role::Damaged(_), Role::Backup(_)) => true,
            (Role::Leader(_) | Role::Damaged(_), _) => false,
        };
        assert!(may, "R1: what is {} becomes {}", self.word(), next.word());
        *self = next;
    }

    /// The term that it leads in.
    pub fn term(&self) -> Option<Term> {
        match self {
            Role::Leader(primary) => Some(primary.term),
            _ => None,
        }
    }

    pub fn leader_mut(&mut self) -> Option<&mut Primary> {
        match self {
            Role::Leader(primary) => Some(primary),
            _ => None,
        }
    }

    /// What is known of a member, if it sends to any.
    pub fn progress(&mut self, member: &Member) -> Option<&mut Progress> {
        self.leader_mut()?.members.get_mut(member)
    }

    fn shippings(&self) -> impl Iterator<Item = (Member, &Shipping)> {
        let members = match self {
            Role::Leader(leader) => Some(&leader.members),
            _ => None,
        };
        let all = members.into_iter().flatten();
        all.filter_map(|(member, progress)| Some((*member, progress.files.as_deref()?)))
    }

    /// The files that are on their way to members.
    pub fn pins_sent(&self) -> impl Iterator<Item = PinId> {
        self.shippings().filter_map(|(_, shipping)| shipping.pin())
    }

    /// Those who wait for a piece of a file.
    pub fn wait_for_pieces(&self) -> Vec<Member> {
        self.shippings().filter(|(_, shipping)| shipping.is_wanted()).map(|(member, _)| member).collect()
    }

    /// Those of them that catch up, where nothing is acknowledged before one of them counts (PR-472).
    pub fn needed_members(&self, config: &Config) -> Vec<Member> {
        let Some(record) = config.record().filter(|record| record.starves()) else { return Vec::new() };
        let mut waiting = self.wait_for_pieces();
        waiting.retain(|member| record.catching_up.contains(member));
        waiting
    }

    /// True while files are on their way to members.
    pub fn sends_files(&self) -> bool {
        self.shippings().next().is_some()
    }

    /// When this replica's `committed` was surely all that was acknowledged, by its own clock; zero: never.
    /// `led_at`: as [`Primary::led_at`] says.
    pub fn fresh_at(&self, led_at: Micros) -> Micros {
        match self {
            Role::Leader(leader) if leader.promotion.serves() => led_at,
            // What the primary before it acknowledged is not all committed here yet.
            Role::Leader(leader) => leader.promotion.fresh_at(),
            Role::Backup(backup) => backup.fresh_at(),
            Role::Idle | Role::Damaged(_) => Micros::ZERO,
        }
    }

    /// True if the log has entries that the engine has not executed.
    pub fn lags(&self, data: &Data) -> bool {
        data.lags() && !self.is_damaged() && !self.is_copying()
    }

    /// True if this replica keeps the log and files only.
    pub fn is_cold(&self, config: &Config, data: &Data) -> bool {
        self.backup().is_some() && data.ships_files() && config.is_cold()
    }

    /// True if there is something to be executed, or to be set aside, beside other work.
    pub fn has_replay(&self, config: &Config, data: &Data) -> bool {
        let takes_part = matches!(self, Role::Leader(_) | Role::Backup(_));
        // What is being set aside is not executed any more.
        let goes_on = self.lags(data) && takes_part && !self.is_cold(config, data) && !data.reads_slice();
        data.asides() || goes_on && !data.diverges()
    }

    /// True if this replica is damaged and catching up: only a copy helps. One that was damaged on the way,
    /// by a full disk for instance, takes none for a while, and one whose engine has no place takes none at
    /// all.
    pub fn awaits_copy(&self, catching_up: bool, now: Micros) -> bool {
        catching_up && self.damage().is_some_and(|damage| damage.takes_copy(now))
    }

    /// True if its engine has no place.
    pub fn is_storage_lost(&self) -> bool {
        self.damage().is_some_and(Damage::is_storage_lost)
    }

    pub fn is_damaged(&self) -> bool {
        matches!(self, Role::Damaged(_))
    }

    pub fn damage(&self) -> Option<&Damage> {
        match self {
            Role::Damaged(damage) => Some(damage),
            _ => None,
        }
    }

    pub fn damage_mut(&mut self) -> Option<&mut Damage> {
        match self {
            Role::Damaged(damage) => Some(damage),
            _ => None,
        }
    }

    pub fn backup(&self) -> Option<&Backup> {
        match self {
            Role::Backup(backup) => Some(backup),
            _ => None,
        }
    }

    pub fn backup_mut(&mut self) -> Option<&mut Backup> {
        match self {
            Role::Backup(backup) => Some(backup),
            _ => None,
        }
    }

    /// What a backup tells its primary now: what has changed, if that is due.
    pub fn acknowledge(
        &mut self,
        data: &Data,
        (me, record): (Member, Option<&PartitionRecord>),
        due: Due,
    ) -> Option<Output> {
        self.backup_mut()?.acknowledge(data, record?, me, due)
    }

    /// True if a torn end of this log counts no more. What it may have taken is here again once this term's
    /// log reaches from its first entry to all that is committed, or once this replica serves by what the
    /// term has decided. Until then every life is told of it (PR-18): a short life leaves a log that looks
    /// whole.
    pub fn settles_torn(&self, log: &LogState, term: Option<Term>) -> bool {
        let kept = match log.kind() {
            LogKind::Disk => log.durable(),
            LogKind::Memory => Lsn::MAX,
        };
        match self {
            Role::Leader(leader) => leader.promotion.serves(),
            Role::Backup(backup) => {
                backup.has_committed(kept).is_some_and(|here| log.history().term_at(here) == term)
            }
            Role::Idle | Role::Damaged(_) => false,
        }
    }

    /// What must hold of it in this configuration.
    pub fn validate(&self, record: Option<&PartitionRecord>) -> Result<(), String> {
        match (self, record) {
            (Role::Backup(backup), _) => backup.validate(),
            (Role::Leader(primary), Some(record)) => primary.validate(record),
            _ => Ok(()),
        }
    }

    /// True if half of the state is here.
    pub fn is_copying(&self) -> bool {
        self.backup().is_some_and(|backup| backup.copy.is_open())
    }

    /// True for a backup that has a whole state.
    pub fn is_whole_backup(&self) -> bool {
        self.backup().is_some_and(|backup| !backup.copy.is_open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged() -> Role {
        Role::Damaged(Damage::new("torn".into(), Micros::ZERO))
    }

    #[test]
    fn a_damaged_replica_follows_again_once_it_has_a_copy() {
        let mut role = Role::Idle;
        role.becomes(Role::Backup(Backup::new(Micros(1))));
        assert!(role.is_whole_backup() && !role.is_copying());
        role.becomes(damaged());
        assert!(role.is_damaged() && role.damage().is_some());
        role.becomes(Role::Backup(Backup::new(Micros(1))));
        role.backup_mut().expect("a backup").copy.begin(1);
        assert!(role.is_copying() && !role.is_whole_backup());
    }

    #[test]
    #[should_panic(expected = "R1: what is damaged becomes idle")]
    fn damage_does_not_go_away_by_itself() {
        damaged().becomes(Role::Idle);
    }
}
