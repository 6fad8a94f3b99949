//! What partitions have of global transactions, where they are served: in a healed world all of it.

use super::World;
use crate::check::claims::{self, Rows};
use crate::check::truncation::Removed;
use crate::rows::{self, LETTERS, NOTES, PEOPLE, TABLE};
use crate::txn_client::spread::FIRST;
use bytes::Bytes;
use replica::Replica;
use std::collections::{BTreeMap, BTreeSet};
use types::commits::{Head, decode_timestamp, head_key, newest_flush_key, removed_key, truncated_key};
use types::data::constraint::Standing;
use types::data::decode_known;
use types::database::catalog_key;
use types::engine::Engine;
use types::index::entry_prefix;
use types::policy::Standby;
use types::{CatalogTable, KeySpace, PartitionId, PartitionRecord, Position, ReadAt, TableId, TableState};

/// What the index of the clients' table has in this state, and what it should have. None: there is no such
/// index, or it is not valid.
fn index_of(engine: &dyn Engine, at: ReadAt) -> Option<Result<(), String>> {
    let (_, definition) = engine.get(&catalog_key(TABLE), at).ok()??;
    let (_, table) =
        CatalogTable::decode(&KeySpace::Catalog.key_of(&catalog_key(TABLE)), &definition).ok()?;
    let index = table.schema.constraints().first().filter(|one| one.standing == Standing::Valid)?;
    let space = KeySpace::Table(TABLE);
    let all = |(from, to): (Vec<u8>, Vec<u8>)| engine.scan(&from, &to, at, 1 << 20, 1 << 30).ok();
    let prefix = space.index_prefix(Some(index.number));
    let there: BTreeSet<Bytes> =
        all(space.index_range(Some(index.number)))?.into_iter().map(|row| row.key).collect();
    let mut wanted = BTreeSet::new();
    for row in all(space.range(&[], &[]))? {
        let key = space.key_of(&row.key);
        let read = decode_known(&table.schema, &key, &row.value).ok()?;
        let value = entry_prefix(&[read.values[rows::MARK].clone()]).ok()?;
        wanted.insert(Bytes::from([&prefix[..], &value, &key].concat()));
    }
    let differ = || format!("its index has {} entries and not {}, or others", there.len(), wanted.len());
    Some(if there == wanted { Ok(()) } else { Err(differ()) })
}

/// The tables that are changed, by number: version and name. Those that are being removed are not there.
fn catalog(replica: &Replica) -> BTreeMap<TableId, (u32, String)> {
    let key = |id: &u32| catalog_key(TableId(*id));
    let ids = FIRST.0..FIRST.0 + 8;
    let found = ids.filter_map(|id| {
        let (_, row) = replica.engine().get(&key(&id), ReadAt::Applied).ok()??;
        let (state, table) = CatalogTable::decode(&KeySpace::Catalog.key_of(&key(&id)), &row).ok()?;
        let there = state != TableState::Dropping;
        there.then(|| (TableId(id), (table.schema.version(), table.name.to_string())))
    });
    found.collect()
}

impl World {
    /// Every replica's index of rows that commits have written has exactly these rows (PR-257).
    pub(super) fn check_indexes_of_commits(&mut self) {
        let written = self.checks.lineage.transactional().written.clone();
        let processes = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        let replicas = processes.flat_map(|process| process.host.replicas());
        let sound = replicas.filter(|replica| written.contains(&replica.id()) && !replica.is_damaged());
        let look = |replica: &Replica| {
            let fault = index_of(replica.engine(), ReadAt::Applied)?.err()?;
            Some(format!("{} at {}: {fault}", replica.id(), replica.log().end()))
        };
        let faults: Vec<String> = sound.filter_map(look).collect();
        for fault in faults {
            self.checks.fault("PR-257", self.now(), fault);
        }
    }

    /// A record was written: a copy that executed nothing so far may come to lead.
    pub(super) fn note_cold(&mut self, record: &PartitionRecord) {
        let cold = record.is_global() && record.policy.standby == Standby::Cold;
        let before = record.before.as_ref().filter(|_| record.term.began() == record.epoch);
        if cold && before.is_some_and(|before| before.primary.node != record.primary.node) {
            self.injected("cold-copy-of-transactions-leads");
        }
    }

    /// The replica of the partition's recorded primary.
    pub(super) fn led(&self, partition: PartitionId) -> Option<&Replica> {
        let primary = self.checks.epochs.newest(partition)?.primary;
        let process = self.machine(primary.node.0).process.as_ref()?;
        process.host.replica(partition)
    }

    /// A partition whose tables are not those of the first one of their database, although whoever comes
    /// brings it level (PR-170).
    pub(super) fn uneven_catalogs(&self) -> Option<String> {
        let written = &self.checks.lineage.transactional().written;
        let closed = self.closed_for_good();
        let forced = |id: &PartitionId| closed.contains(id) || self.checks.epochs.was_forced(*id);
        if !self.plan.workload.transactions.spread || written.iter().any(forced) {
            return None;
        }
        let catalogs: Option<Vec<_>> =
            written.iter().map(|id| Some((*id, catalog(self.led(*id)?)))).collect();
        let catalogs = catalogs?;
        let (first, known) = catalogs.first()?;
        let (other, _) = catalogs.iter().find(|(_, tables)| tables != known)?;
        Some(format!("PR-170: {other} has other tables than {first}"))
    }

    /// Commits that the transaction manager keeps although all of their partitions have secured them for
    /// longer than it is to keep them (PR-290, PR-321), or that nobody could ever tell (PR-292).
    pub(super) fn kept_commits(&self) -> Option<String> {
        let transactional = self.checks.lineage.transactional();
        let closed = self.closed_for_good();
        let mut all = transactional.written.iter().chain(&transactional.manager);
        let open = !all.any(|partition| closed.contains(partition));
        let manager = self.led(transactional.manager.filter(|_| open)?)?;
        if transactional.written.iter().any(|partition| self.waits_for_skip(manager, *partition)) {
            return None;
        }
        let (from, to) = KeySpace::Bare.range(&[], &[]);
        let committed = ReadAt::Lsn(manager.marks().committed());
        let kept = manager.engine().scan(&from, &to, committed, 1_000, usize::MAX).ok()?;
        let claims = self.plan.workload.transactions.claims;
        (claims && !kept.is_empty()).then(|| format!("{} commits are still kept", kept.len()))
    }

    /// No two rows that are there have the same unique value, and none refers to one that is not there
    /// (PR-324, PR-325, PR-369), in whatever partitions they lie.
    pub(super) fn check_claims_of_states(&mut self) {
        let closed = self.closed_for_good();
        let transactional = self.checks.lineage.transactional();
        let written = &transactional.written;
        let known = |id: &PartitionId| !closed.contains(id) && !self.checks.epochs.was_forced(*id);
        // While the manager is closed nobody brings what a partition lacks.
        let brought = transactional.manager.is_none_or(|manager| !closed.contains(&manager));
        if !self.plan.workload.transactions.claims || !brought || !written.iter().all(known) {
            return;
        }
        let replicas: Option<Vec<&Replica>> = written.iter().map(|partition| self.led(*partition)).collect();
        let Some(replicas) = replicas else { return };
        let mut rows = Rows::new();
        let tables = [PEOPLE, LETTERS, NOTES];
        for (replica, table) in replicas.iter().flat_map(|one| tables.map(|table| (one, table))) {
            let (from, to) = KeySpace::Table(table).range(&[], &[]);
            let Ok(there) = replica.engine().scan(&from, &to, ReadAt::Applied, 1_000, usize::MAX) else {
                return;
            };
            let key = |stored: &Bytes| rows::name_of(&KeySpace::Table(table).key_of(stored));
            rows.extend(there.iter().map(|row| (key(&row.key), rows::table_value(&row.value))));
        }
        if let Some((id, why)) = claims::fault(&rows) {
            self.checks.fault(id, self.now(), format!("in the end {why}"));
        }
    }

    /// The newest commit that a partition has.
    fn flushed_in(&self, partition: PartitionId) -> Option<Position> {
        let there = self.led(partition)?.engine().get(&newest_flush_key(), ReadAt::Applied).ok()?;
        there.map_or(Some(Position::ZERO), |(_, value)| decode_timestamp(&value))
    }

    /// True if an operator had a copy of a partition lead that lacks what all had secured: the manager does
    /// not keep it, whoever reads a snapshot there is told so, and what was committed since is kept until an
    /// operator says that the rest is given up (`txn skip`).
    fn waits_for_skip(&self, manager: &Replica, partition: PartitionId) -> bool {
        let read = |key: Bytes| {
            let (_, value) = manager.engine().get(&key, ReadAt::Applied).ok().flatten()?;
            decode_timestamp(&value)
        };
        let kept = read(truncated_key()).max(read(removed_key())).unwrap_or_default();
        let lacks = self.flushed_in(partition).is_some_and(|there| there < kept);
        lacks && self.checks.epochs.was_forced(partition)
    }

    /// What the transaction manager's log has just removed is on the disk of every copy that counts, in each
    /// partition with a part in it (I11). Nothing can be asked of a disk that was harmed, or is an older one,
    /// nor of partitions in which an operator went on without what somebody may have had.
    pub(super) fn check_truncation(&mut self) {
        let checks = &mut self.checks;
        let removed = checks.truncation.removed(&checks.lineage);
        let (epochs, survival) = (&self.checks.epochs, &self.checks.survival);
        let doubtful = |id: PartitionId| {
            epochs.was_forced(id) || epochs.was_rebuilt(id) || survival.last_forced(id).is_some()
        };
        let manager = self.checks.lineage.transactional().manager;
        if removed.is_empty() || manager.is_some_and(doubtful) {
            return;
        }
        let look = |one: &Removed| {
            let record = epochs.newest(one.partition).filter(|_| !doubtful(one.partition))?;
            one.fault(record, |member, at| {
                let machine = self.machine(member.node.0);
                let asked = !machine.health.is_impaired() && !machine.disk.is_older();
                !asked || self.is_proven(machine, one.partition, at)
            })
        };
        let faults: Vec<String> = removed.iter().filter_map(look).collect();
        for fault in faults {
            self.checks.fault("I11", self.now(), fault);
        }
    }

    /// A commit that is in the transaction manager's log, and not where it writes (PR-253).
    pub(super) fn missing_commits(&self) -> Option<String> {
        let transactional = self.checks.lineage.transactional();
        // What waits for a disk that is gone is brought once an operator has another copy lead. Where that is
        // the manager's nobody brings anything, and a damaged copy of its log tells of old commits alone.
        let closed = self.closed_for_good();
        let manager = transactional.manager.filter(|manager| !closed.contains(manager))?;
        let manager = self.led(manager)?;
        // Some worlds have an operator who gives up what is gone. What is kept is brought when somebody reads
        // it, and nobody does any more: it goes once nothing is kept, which never is where one is closed.
        let planned = self.plan.workload.transactions;
        let given_up = planned.skips || planned.recovers;
        let all_open = !transactional.written.iter().any(|partition| closed.contains(partition));
        let waits = |partition: PartitionId| match given_up {
            true => !all_open && self.checks.epochs.was_forced(partition),
            false => self.waits_for_skip(manager, partition),
        };
        let mut open = transactional.written.iter().filter(|partition| !closed.contains(partition));
        open.find_map(|partition| {
            // What its own copies do not have yet nobody was told of.
            let committed = ReadAt::Lsn(manager.marks().committed());
            let head = manager.engine().get(&head_key(*partition), committed).ok()??.1;
            let wanted = Head::decode(&head)?.newest;
            let there = self.flushed_in(*partition)?;
            let why = format!("{partition} has commits up to {there}, and {wanted} was committed");
            (there != wanted && !waits(*partition)).then_some(why)
        })
    }
}
