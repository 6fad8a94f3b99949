//! Tidies up: what interrupted creations and dropped tables left behind, and failovers of long ago.

use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::{Now, Remedy, TableId};

impl<R: Remedy> Controller<R> {
    /// One transaction at a time; what it does not finish is found again.
    pub(super) fn sweep(&mut self, now: Now) {
        self.note_creating(now);
        if self.ledger.any(|purpose| matches!(purpose, Purpose::Sweep)) {
            return;
        }
        let mut keys: Vec<Key> = self.records.orphans().map(|record| Key::Partition(record.id)).collect();
        keys.extend(self.abandoned(now).map(Key::Creating));
        let many = self.records.failover_count().saturating_sub(self.settings.failovers_kept);
        keys.extend(self.records.failovers().take(many).map(|failover| Key::Failover(failover.id)));
        keys.truncate(Txn::MOST);
        if keys.is_empty() {
            return;
        }
        let remove = |txn: Txn, key: Key| {
            let revision = self.records.compare_with(&key);
            txn.compare(&key, revision).delete(&key)
        };
        let txn = keys.into_iter().fold(Txn::default(), remove);
        self.submit(Purpose::Sweep, txn);
    }

    fn note_creating(&mut self, now: Now) {
        let creating = self.records.creating();
        self.planner.creating.retain(|table, _| creating.contains(table));
        for table in creating {
            self.planner.creating.entry(*table).or_insert(now.mono);
        }
    }

    /// Creations that somebody began long ago and nobody ended. Taking the mark away makes their last step fail.
    fn abandoned(&self, now: Now) -> impl Iterator<Item = TableId> {
        let since = self.planner.creating.iter();
        let old = since.filter(move |(_, since)| now.mono.since(**since) >= self.settings.abandoned);
        old.map(|(table, _)| *table)
    }
}
