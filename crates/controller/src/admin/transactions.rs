//! What must be so before a database's transactions may be global ([`types::commits`]), and as long as there
//! is such a database.

use super::{REFUSED, USAGE};
use crate::controller::Controller;
use crate::keys::Key;
use crate::txn::Txn;
use types::policy::{Below, Guarantee};
use types::system::COMMITS;
use types::{Holds, LogKind, Policy, TableRecord};
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

    /// The same of the policy alone, where such a database is to have another one. Commits rest on the policy
    /// that is in force, so it must keep as much as the wanted one, and so must one that the manager's
    /// partition is on its way to (PR-392). Of the database its wanted policy counts: whoever asked for less
    /// is content with it, also before the partitions are there.
    fn check_manager(&self, name: &str, policy: &Policy) -> Result<(), (u8, String)> {
        let Some(manager) = self.records.named(COMMITS, Holds::Table) else {
            let why = format!("the table {COMMITS}, on which global transactions rest, is not there yet");
            return Err((USAGE, why));
        };
        check_kept(&manager.policy, (name, policy))?;
        let record = self.records.partition(manager.first_partition);
        let mut in_force =
            record.into_iter().flat_map(|record| [&record.policy].into_iter().chain(&record.next_policy));
        in_force.try_for_each(|kept| check_kept(kept, (name, policy))).map_err(|(_, why)| {
            (REFUSED, format!("{COMMITS} is not yet what it was altered to, ask again when it is: {why}"))
        })
    }

    /// A table or a database is to have this policy: the manager's table keeps what every database under it
    /// demands, whichever of them is altered (PR-366). What stays as it is is not refused.
    pub(super) fn check_altered(&self, table: &TableRecord, policy: &Policy) -> Result<(), (u8, String)> {
        if *policy == table.policy {
            return Ok(());
        }
        if table.is_global() {
            return self.check_manager(&table.name, policy);
        }
        if !is_manager(table) {
            return Ok(());
        }
        let mut databases = self.records.tables().filter(|database| database.is_global());
        databases.try_for_each(|database| check_kept(policy, (&database.name, &database.policy)))
    }

    /// A transaction that makes a database, if its transactions are `global`: it is not applied once the
    /// manager's record is another one than that which was looked at (PR-366).
    pub(super) fn under_manager(&self, global: bool) -> Txn {
        let manager = self.records.named(COMMITS, Holds::Table).filter(|_| global);
        self.comparing(manager.map(|manager| Key::Table(manager.id)))
    }

    /// A transaction that makes this record another one. Where that changes its policy it is not applied once
    /// what was looked at is otherwise (PR-366), and who is refused by that looks again. A database of global
    /// transactions writes the manager's record once more, as it is: so whoever alters the manager's table
    /// need not compare each of the databases, of which there may be any number (PR-391). One that is being
    /// made takes a number from the cluster's record before it is there, and has a mark until it is. The
    /// error says why it cannot be done now.
    pub(super) fn altering(&self, table: &TableRecord, to: &TableRecord) -> Result<Txn, (u8, String)> {
        let key = Key::Table(table.id);
        let own = |txn: Txn| txn.compare(&key, self.records.compare_with(&key)).put(&key, to);
        if to.policy == table.policy {
            return Ok(own(Txn::default()));
        }
        if !is_manager(table) {
            let mut txn = self.under_manager(table.is_global());
            let manager = self.records.named(COMMITS, Holds::Table).filter(|_| table.is_global());
            if let Some(manager) = manager {
                // The record that is altered is written last: this one is nobody's alone.
                txn = txn.put(Key::Table(manager.id), manager);
            }
            return Ok(own(txn));
        }
        let creating = self.records.creating();
        // The two others are the cluster's record, and the manager's own.
        if creating.len() > Txn::MAX_KEYS - 2 {
            let why = format!("{} tables are being made: ask again when they are there", creating.len());
            return Err((REFUSED, why));
        }
        let creating = creating.iter().map(|table| Key::Creating(*table));
        Ok(own(self.comparing(std::iter::once(Key::Cluster).chain(creating))))
    }

    fn comparing(&self, keys: impl IntoIterator<Item = Key>) -> Txn {
        let compare = |txn: Txn, key: Key| txn.compare(&key, self.records.compare_with(&key));
        keys.into_iter().fold(Txn::default(), compare)
    }
}

fn is_manager(table: &TableRecord) -> bool {
    table.name == COMMITS && table.holds == Holds::Table
}

/// The manager's table keeps with this policy what a database with that one demands: every copy has a commit
/// on disk before it is acknowledged, and there are as many copies, also when some are away.
fn check_kept(kept: &Policy, (name, policy): (&str, &Policy)) -> Result<(), (u8, String)> {
    let fewer = kept.factor < policy.factor || kept.min_in_sync < policy.min_in_sync;
    let why: String = if !kept.gives(Guarantee::AllDurable) {
        "that one must be `durable`, so that every copy has a commit on disk".into()
    } else if fewer {
        format!("fewer than the {} ({}) of the database", policy.factor, policy.min_in_sync)
    } else if fewest(kept) < fewest(policy) {
        "that one goes on with fewer, which the database does not".into()
    } else {
        return Ok(());
    };
    Err((
        USAGE,
        format!(
            "the commits of database '{name}' would be in {COMMITS}, which is `{}` with {} copies ({} at least): \
             {why}",
            kept.name, kept.factor, kept.min_in_sync
        ),
    ))
}

/// The fewest copies with which anything is acknowledged.
fn fewest(policy: &Policy) -> u8 {
    match policy.below {
        Below::Strict => policy.min_in_sync,
        Below::Available => 1,
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
