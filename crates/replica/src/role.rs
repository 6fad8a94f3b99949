//! What a replica is in its partition's configuration.
//!
//! | from | to |
//! | --- | --- |
//! | Idle | Leader, Backup, Damaged |
//! | Leader | Idle |
//! | Backup | Leader, Backup of another term, Idle, Damaged |
//! | Damaged | Backup, with a copy |
//!
//! A leader becomes idle first, whatever it is to be next: that answers everybody who waits ([`Replica::step_down`]).
//!
//! [`Replica::step_down`]: crate::Replica::step_down

use crate::backup::Backup;
use crate::damage::Damage;
use crate::primary::Primary;
use types::Term;

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
    use types::Micros;

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
