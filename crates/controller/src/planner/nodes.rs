//! Nodes that join and leave: placements are changed a few at a time, and a node that holds nothing more is
//! forgotten.
//!
//! Which copies move is decided by [`crate::moves`]; here that is asked and written down. What a move needs
//! is then seen in the records like any other difference between what is wanted and what is
//! ([`super::copies`], [`super::balance`]).

use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::moves::{self, Move, Part, Place, Row};
use crate::placement::Site;
use crate::txn::Txn;
use std::collections::BTreeMap;
use types::config::{NodeRecord, PartitionRecord, TableRecord};
use types::{NodeId, Now, TableId};

impl Controller {
    /// One transaction at a time: the next step is decided on what the last one made.
    pub(super) fn plan_nodes(&mut self, now: Now) {
        let concerned = |node: &NodeRecord| {
            node.is_marked(NodeRecord::DECOMMISSIONING) || node.is_marked(NodeRecord::JOINING)
        };
        let under_way = |purpose: &Purpose| matches!(purpose, Purpose::Place);
        if !self.records.nodes().any(concerned) || self.ledger.any(under_way) {
            return;
        }
        let (places, rows) = (self.places(now), self.rows(now));
        let steps = moves::next(&places, &rows, self.settings.moves);
        let txn = match steps.is_empty() {
            false => self.placing(&steps),
            true => self.parting(&rows).or_else(|| self.joined(&places, &rows)).unwrap_or_default(),
        };
        if txn != Txn::default() {
            self.submit(Purpose::Place, txn);
        }
    }

    fn places(&self, now: Now) -> Vec<Place> {
        let part = |node: &NodeRecord| match () {
            () if node.is_marked(NodeRecord::DECOMMISSIONING) => Part::Decommissions,
            () if !self.is_live(now, node.id) || self.is_draining(node.id) => Part::Stays,
            () if node.is_marked(NodeRecord::JOINING) => Part::Joins,
            () => Part::Takes,
        };
        let place = |node: &NodeRecord| Place {
            site: Site { node: node.id, zone: node.zone.clone() },
            part: part(node),
        };
        self.records.nodes().map(place).collect()
    }

    fn rows(&self, now: Now) -> Vec<Row> {
        self.records.tables().flat_map(|table| self.rows_of(now, table)).collect()
    }

    fn rows_of(&self, now: Now, table: &TableRecord) -> impl Iterator<Item = Row> {
        let pinned = table.is_pinned();
        table.partition_ids().zip(&table.placement).map(move |(partition, nodes)| {
            let record = self.records.partition(partition);
            let level = |node: &NodeId| {
                record.is_some_and(|record| record.in_sync.iter().any(|member| member.node == *node))
            };
            let whole = nodes.iter().all(level);
            // A copy that never gets level on a node that leaves is not waited for (PR-109), and no more is
            // one that failed again and again on a node that stays (PR-158).
            let fails = |node: &NodeId| self.planner.fails(partition, *node);
            let live = |node: &NodeId| self.is_live_in(now, partition, *node);
            let awaited = |node: &NodeId| live(node) && !self.is_decommissioning(*node) && !fails(node);
            let comes = nodes.iter().any(|node| !level(node) && awaited(node));
            // Who leads may have to until a copy is where one can lead: the next move is not held up by that.
            let nobody_may = nodes.iter().all(|node| self.is_draining(*node));
            let goes = record.is_none_or(|record| {
                record.members().any(|member| {
                    let leads_on =
                        *member == record.primary && (nobody_may || self.is_decommissioning(member.node));
                    !nodes.contains(&member.node) && !leads_on
                })
            });
            Row { partition, nodes: nodes.clone(), moving: comes || whole && goes, whole, pinned }
        })
    }

    /// Writes moves into the records of their tables.
    fn placing(&self, steps: &[Move]) -> Txn {
        let mut changed: BTreeMap<TableId, TableRecord> = BTreeMap::new();
        for step in steps {
            let Some(record) = self.records.partition(step.partition) else { continue };
            let Some(known) = self.records.table(record.table) else { continue };
            let table = changed.entry(known.id).or_insert_with(|| known.clone());
            let row = step.partition.0.checked_sub(table.first_partition.0);
            let Some(row) = row.and_then(|row| table.placement.get_mut(row as usize)) else { continue };
            let place = row.iter_mut().find(|node| **node == step.from);
            place.into_iter().for_each(|place| *place = step.to);
            let there = row.iter().filter(|node| **node == step.to).count();
            assert!(there <= 1, "I16: {} would have two copies of {}", step.to, step.partition);
        }
        changed.values().fold(Txn::default(), |txn, table| {
            let key = Key::Table(table.id);
            txn.compare(&key, self.records.compare_with(&key)).put(&key, table)
        })
    }

    /// Forgets a node that leaves and holds nothing. Its directories are remembered, so that it comes back by
    /// itself on none of them, nor on a copy (PR-280). Whoever makes a member on it writes its record too
    /// ([`Controller::taking_in`]); so if everything up to that record is known here, all of its copies are
    /// (PR-201).
    fn parting(&self, rows: &[Row]) -> Option<Txn> {
        let wanted = |node: NodeId| rows.iter().any(|row| row.nodes.contains(&node));
        let nothing_is_made = self.records.creating().is_empty();
        let mut decommissioning =
            self.records.nodes().filter(|node| node.is_marked(NodeRecord::DECOMMISSIONING));
        let all_is_known =
            |node: NodeId| self.records.complete() >= self.records.compare_with(&Key::Node(node));
        let gone = decommissioning.find(|node| {
            nothing_is_made && all_is_known(node.id) && !wanted(node.id) && !self.records.is_member(node.id)
        })?;
        let (key, removed) = (Key::Node(gone.id), Key::Removed(gone.id));
        let txn = Txn::default()
            .compare(&key, self.records.compare_with(&key))
            .compare(&removed, self.records.compare_with(&removed));
        let mut directories = self.records.removed(gone.id);
        match self.settings.rules.former_directories_go_too() {
            true => gone.directories().for_each(|store| directories.add(store)),
            false => directories.add(gone.store),
        }
        Some(txn.put(&removed, &directories).delete(&key))
    }

    /// What must be so, and is written, beside a record that has members on nodes on which the one before had
    /// none: those nodes are there, and nobody forgets one of them who does not know of it yet (PR-201).
    pub(crate) fn taking_in(&self, txn: Txn, old: &PartitionRecord, new: &PartitionRecord) -> Txn {
        let nodes = new.members().map(|member| member.node);
        nodes.filter(|node| old.member_on(*node).is_none()).fold(txn, |txn, node| {
            let key = Key::Node(node);
            let txn = txn.compare(&key, self.records.compare_with(&key));
            let leaves = |record: &&NodeRecord| record.is_marked(NodeRecord::DECOMMISSIONING);
            match self.records.node(node).filter(leaves) {
                Some(record) => txn.put(&key, record),
                None => txn,
            }
        })
    }

    /// Takes the mark from a node that has as much as the others.
    fn joined(&self, places: &[Place], rows: &[Row]) -> Option<Txn> {
        let mut joins = places.iter().filter(|place| place.part == Part::Joins).map(|place| place.site.node);
        let node = joins.find(|node| moves::has_joined(places, rows, *node))?;
        let mut record = self.records.node(node)?.clone();
        record.mark(NodeRecord::JOINING, false);
        let key = Key::Node(node);
        Some(Txn::default().compare(&key, self.records.compare_with(&key)).put(&key, &record))
    }
}
