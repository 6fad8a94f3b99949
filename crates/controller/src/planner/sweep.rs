//! Tidies up: what interrupted creations and dropped tables left behind, and failovers of long ago.

use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::{Now, TableId};

impl Controller {
    /// One transaction at a time; what it does not finish is found again.
    pub(super) fn sweep(&mut self, now: Now) {
        self.note_creating(now);
        if self.ledger.any(|purpose| matches!(purpose, Purpose::Sweep)) {
            return;
        }
        let txn = self.orphans_of_one().unwrap_or_else(|| self.leftovers(now));
        if txn != Txn::default() {
            self.submit(Purpose::Sweep, txn);
        }
    }

    /// Removes partitions of one table that is gone. That it is gone must hold in the metastore: what this
    /// controller has read of a few keys may be newer than what it knows of the rest.
    fn orphans_of_one(&self) -> Option<Txn> {
        let table = self.records.orphans().next()?.table;
        let absent = Txn::default().compare(Key::Table(table), 0).compare(Key::Creating(table), 0);
        let orphans = self.records.orphans().filter(|record| record.table == table).take(Txn::MAX_KEYS);
        Some(orphans.fold(absent, |txn, record| self.removing(txn, Key::Partition(record.id))))
    }

    fn leftovers(&self, now: Now) -> Txn {
        let mut keys: Vec<Key> = self.abandoned(now).map(Key::Creating).collect();
        let many = self.records.failover_count().saturating_sub(self.settings.failovers_kept);
        keys.extend(self.records.failovers().take(many).map(|failover| Key::Failover(failover.id)));
        keys.truncate(Txn::MAX_KEYS);
        keys.into_iter().fold(Txn::default(), |txn, key| self.removing(txn, key))
    }

    fn removing(&self, txn: Txn, key: Key) -> Txn {
        let revision = self.records.compare_with(&key);
        txn.compare(&key, revision).delete(&key)
    }

    fn note_creating(&mut self, now: Now) {
        let creating = self.records.creating();
        self.planner.creating.retain(|table, _| creating.contains(table));
        for table in creating {
            self.planner.creating.entry(*table).or_insert(now.mono);
        }
    }

    /// Creations that somebody began long ago and nobody ended. Taking the mark away makes their last step
    /// fail.
    fn abandoned(&self, now: Now) -> impl Iterator<Item = TableId> {
        let since = self.planner.creating.iter();
        let old = since.filter(move |(_, since)| now.mono.since(**since) >= self.settings.abandoned);
        old.map(|(table, _)| *table)
    }
}
