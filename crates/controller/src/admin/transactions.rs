//! What must be so before a database's transactions may be global ([`types::commits`]).

use super::USAGE;
use crate::controller::Controller;
use types::system::COMMITS;
use types::{Holds, LogKind, Policy};
use wire::control::CreateTable;

impl Controller {
    /// The transaction manager's log is what a commit rests on: it must not lose what any partition under it
    /// would have kept (PR-55).
    pub(super) fn check_global(&self, request: &CreateTable, policy: &Policy) -> Result<(), (u8, String)> {
        if !request.global {
            return Ok(());
        }
        let (name, usage) = (&request.name, |why: String| Err((USAGE, why)));
        if request.holds != Holds::Database {
            return usage(format!("transactions over partitions are a database's, and '{name}' is a table"));
        }
        if request.log != LogKind::Disk {
            return usage(format!("database '{name}' with global transactions needs its log on disk"));
        }
        self.check_manager(name, policy)
    }

    /// The same of the policy alone, where such a database is to have another one.
    pub(super) fn check_manager(&self, name: &str, policy: &Policy) -> Result<(), (u8, String)> {
        let usage = |why: String| Err((USAGE, why));
        let Some(manager) = self.records.named(COMMITS, Holds::Table) else {
            return usage(format!(
                "the table {COMMITS}, on which global transactions rest, is not there yet"
            ));
        };
        let kept = &manager.policy;
        let enough = kept.factor >= policy.factor && kept.min_in_sync >= policy.min_in_sync;
        match enough && (kept.factor == 1 || !kept.rests_on().is_primary()) {
            true => Ok(()),
            false => usage(format!(
                "the commits of database '{name}' would be in {COMMITS}, which is `{}` with {} copies ({} at least): \
                 fewer than the {} ({}) of the database",
                kept.name, kept.factor, kept.min_in_sync, policy.factor, policy.min_in_sync
            )),
        }
    }
}

/// What one partition of a database says of tables, others follow: a failover must not lose it.
/// Of global transactions the partitions are told again what they have lost.
pub(super) fn check_several(
    (holds, global): (Holds, bool),
    partitions: u32,
    policy: &Policy,
) -> Result<(), (u8, String)> {
    let loses = policy.rests_on().is_primary() && policy.factor > 1 && !global;
    match holds == Holds::Database && partitions > 1 && loses {
        true => Err((
            USAGE,
            format!(
                "a database of several partitions cannot have the policy {}: a failover may lose commits",
                policy.name
            ),
        )),
        false => Ok(()),
    }
}
