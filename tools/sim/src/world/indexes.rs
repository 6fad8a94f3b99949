//! Indexes are created and dropped while faults strike; every replica's are compared with its rows (I15).

use super::{Event, Phase, World};
use crate::check::{indexes, loads};
use crate::rows;
use types::index::{IndexState, Wanted};
use types::{Indexes, PartitionId, PartitionRecord, ReadAt, TableRecord};
use wire::RecordText;
use wire::control::{AddIndex, AdminCommand, AlterTable, ClusterMap};

impl World {
    /// The operator wants another index, or one fewer.
    pub(super) fn want_index(&mut self) {
        if self.stage.phase() != Phase::Faults {
            return;
        }
        let random = self.faults.indexes();
        let wait = random.between(100_000, 2_500_000);
        let (name, columns) = *random.pick(&rows::INDEXES).expect("not empty");
        let (add, table) = (random.chance(650), random.pick(&self.plan.tables).cloned());
        self.after(wait, Event::Index);
        let Some(table) = table.filter(|table| table.is_plain()) else { return };
        let columns = columns.iter().map(ToString::to_string).collect();
        let alter = AlterTable {
            name: table.name,
            add_index: add.then(|| AddIndex { name: name.into(), columns }),
            drop_index: (!add).then(|| name.to_string()),
            ..AlterTable::default()
        };
        self.ask(AdminCommand::AlterTable(RecordText::new(&alter)));
    }

    /// A table's record was written.
    pub(super) fn note_table(&mut self, text: &RecordText) {
        match text.read::<TableRecord>() {
            Ok(table) => {
                if !table.indexes.is_empty() {
                    self.trace.note(self.now(), format_args!("{} wants {:?}", table.name, table.indexes));
                    self.injected("index");
                }
                if self.control.records.write_table(table) {
                    self.injected("factor");
                }
            }
            Err(reason) => self.checks.fault("I10", self.now(), reason),
        }
    }

    /// A node hears of tables; a cluster map that is older than one it has says nothing new of them.
    pub(super) fn learn_tables(&mut self, node: u32, cluster_map: &ClusterMap) {
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        for table in process.heard.learn(cluster_map) {
            process.host.want_indexes(table.id, &Wanted::of(&table));
            process.host.ship(table.id, table.ship);
        }
    }

    /// Compares a node's indexes with its rows.
    pub(super) fn look_at_indexes(&mut self, node: u32, unread: &[PartitionId]) {
        let Some(process) = self.machine(node).process.as_ref().filter(|_| self.plan.workload.indexes) else {
            return;
        };
        // Rows of a load can be read when it is published, and not before. A database has its own checker.
        let sound = |replica: &&replica::Replica| {
            let lineage = &self.checks.lineage;
            let apart =
                lineage.has_tables(replica.id()) || lineage.transactional().written.contains(&replica.id());
            let whole = replica.engine().pending_load().is_none() && !apart;
            let read = unread.contains(&replica.id());
            whole && read && !replica.is_damaged() && !process.reports.damaged().contains(&replica.id())
        };
        let faults: Vec<String> = process
            .host
            .replicas()
            .filter(sound)
            .filter_map(|replica| {
                let verdict = indexes::check(replica.engine(), ReadAt::Applied)?;
                Some(format!("n{node} {} at {}: {}", replica.id(), replica.log().end(), verdict.err()?))
            })
            .collect();
        for fault in faults {
            self.checks.fault("I15", self.now(), fault);
        }
    }

    /// Looks at what bulk loads have left in a node's published states.
    pub(super) fn look_at_loads(&mut self, node: u32, unread: &[PartitionId]) {
        let Some(process) = self.machine(node).process.as_ref().filter(|_| self.plan.workload.loads) else {
            return;
        };
        let sound = |replica: &&replica::Replica| {
            unread.contains(&replica.id())
                && !replica.is_damaged()
                && !process.reports.damaged().contains(&replica.id())
        };
        let look = |replica: &replica::Replica| {
            let at = replica.engine().published().lsn;
            let why = loads::check(replica.engine(), at)?.err()?;
            Some(format!("n{node} {} at {at}: {why}", replica.id()))
        };
        let faults: Vec<String> = process.host.replicas().filter(sound).filter_map(look).collect();
        for fault in faults {
            self.checks.fault("PR-39", self.now(), fault);
        }
    }

    /// A node that has something staged of a load.
    pub(super) fn stages_a_load(&self, record: &PartitionRecord) -> Option<types::Member> {
        let mut processes = self
            .machines
            .iter()
            .filter_map(|machine| machine.process.as_ref().filter(|_| !machine.health.hangs()));
        let stages = |process: &&crate::node::Process| {
            process.host.replica(record.id).is_some_and(|replica| !replica.engine().loads().is_empty())
        };
        processes
            .find(|process| record.holds(&process.member) && stages(process))
            .map(|process| process.member)
    }

    /// What a partition still lacks of what its table wants, once it is served.
    pub(super) fn lacks_indexes(&self, record: &PartitionRecord) -> Option<String> {
        let wanted: &Indexes = &self.control.records.table(record.table)?.indexes;
        let process = self.machine(record.primary.node.0).process.as_ref()?;
        let definitions =
            replica::definitions_at(process.host.replica(record.id)?.engine(), ReadAt::Applied).ok()?;
        // A number that was given out twice would be another index's.
        let ready = |index: &types::IndexRecord| {
            definitions.iter().any(|known| known.index == *index && known.state == IndexState::Ready)
        };
        let same = definitions.len() == wanted.wanted.len();
        let all = wanted.wanted.iter().all(ready);
        (!same || !all).then(|| {
            let states: Vec<String> = definitions
                .iter()
                .map(|known| format!("{} {} is {}", known.index.number, known.index.name, known.state.name()))
                .collect();
            format!("{} has not the indexes that are wanted: {}", record.id, states.join(", "))
        })
    }
}
