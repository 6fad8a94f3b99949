//! The controllers' disk is lost, and an operator makes the records anew of what nodes keep (PR-107).
//!
//! Nobody is missing when the operator is through: whoever is down or stands still is waited for. So nothing
//! may be lost by it, and the records must follow the newest that anybody acted on (`check/epochs.rs`).
//!
//! In some seeds one node loses power at that moment, and the operator goes on without it
//! (`--accept-missing`). It comes back later: it counts for nothing any more, and only what nobody else had
//! acknowledged with it may be lost, if the record says so.

use super::machines::End;
use super::{Event, World};
use crate::check::nodes;
use crate::faults::Fault;
use crate::network::{Conn, Endpoint};
use crate::node::Machine;
use controller::Key;
use controller::rebuild::{Order, Rebuilt, Refusal, newest_generation, rebuild};
use std::collections::{BTreeMap, BTreeSet};
use types::config::{ClusterRecord, NodeRecord};
use types::{ClusterId, Epoch, Generation, NodeId, PartitionId, RemovedDirectories};
use wire::{KeptRecords, Message, RecordText};

/// The operator asks one node after the other, and whoever is not there again. Microseconds.
const NEXT: u64 = 60_000;

/// How far an operator is who makes the records anew.
#[derive(Debug, Default)]
pub(super) struct Rebuilding {
    /// The records are gone, and there are no others yet.
    under_way: bool,
    /// What the nodes that were asked keep.
    reports: BTreeMap<u32, KeptRecords>,
    /// What they listen to from then on.
    generation: Generation,
    /// Reports of failovers that are gone with the records.
    failovers: Vec<RecordText>,
    /// The node that the operator goes on without: it is down until there are records.
    left_out: Option<u32>,
    /// Controllers of no earlier process have anything to say.
    first_process: u64,
}

impl Rebuilding {
    /// True as long as there are no records.
    pub fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// What nodes listen to that were asked.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// True if a node is not there, and is not waited for.
    pub fn leaves_out(&self, node: u32) -> bool {
        self.left_out == Some(node)
    }

    /// True if this process of a controller was there before the records were made anew.
    pub fn is_of_before(&self, process: u64) -> bool {
        process < self.first_process
    }

    /// Reports of failovers that an operator has seen, and that are gone.
    pub fn failovers(&self) -> &[RecordText] {
        &self.failovers
    }
}

impl World {
    /// True if the seed has such a loss: only then nodes keep what they are told.
    fn keeps_records(&self) -> bool {
        self.plan.own.faults.contains(&Fault::RecordsLost)
    }

    /// What comes to a node is kept before it acts on it. False: it is of a controller that it does not
    /// listen to any more.
    pub(super) fn keep(&mut self, node: u32, from: Endpoint, conn: Conn, message: &Message) -> bool {
        if !self.keeps_records() {
            return true;
        }
        let process = self.machine(node).process.as_ref();
        let is_open = process.is_some_and(|process| process.links.controllers().contains(&conn));
        // What a connection still carries when a node closes it is never read.
        if matches!(from, Endpoint::Controller(_)) && !is_open {
            return false;
        }
        let is_removed = self.is_removed(node);
        let kept = &mut self.machine_mut(node).kept;
        let brings = matches!(message, Message::Inform(_) | Message::AppendRefused(_));
        let peer = brings.then(|| message.clone().into_peer()).flatten();
        let news = match &peer {
            Some(peer) => kept.of_peer(peer).unwrap_or_default(),
            None => kept.of_controller(message),
        };
        // Who was removed keeps what it is told, and acts in nothing.
        if !news.is_empty() && !is_removed {
            let epochs: Vec<(PartitionId, Epoch)> = kept.epochs().collect();
            epochs.into_iter().for_each(|(id, epoch)| self.checks.epochs.heard(NodeId(node), id, epoch));
        }
        true
    }

    /// The disk of the controllers is gone, and in some seeds this node loses power as well. False if
    /// somebody would not be there who must tell what it keeps.
    pub(super) fn lose_records(&mut self, node: u32) -> bool {
        // Who is down on a disk that was harmed may not be able to start there: then it gets an empty one.
        let keeps = |node: u32| {
            let machine = self.machine(node);
            machine.process.is_some() || !machine.health.is_impaired()
        };
        let tells = |node: u32| {
            let starts = &self.machine(node).starts;
            // Who is down may have been removed meanwhile.
            let gone = starts.last().is_some_and(|last| self.control.records.is_removed(last.store));
            match gone || self.is_removed(node) {
                true => self.is_known_to_be_gone(node, None),
                false => !starts.is_dead() && self.machine(node).kept.report().whole.is_some() && keeps(node),
            }
        };
        let on_disk = |record: &types::PartitionRecord| {
            let same = |member: &types::Member| {
                self.machine(member.node.0).starts.last().is_some_and(|last| last.same_store(member))
            };
            record.members().all(same)
        };
        let may = self.plan.recoverable
            && !self.control.rebuilding.under_way
            && !self.faults.forced.is_under_way()
            // The report that is to name what was put aside would be gone before it does.
            && self.faults.forced.are_told()
            && (1..=self.plan.nodes).all(tells)
            && self.checks.epochs.records().all(on_disk)
            && self.checks.epochs.newest_heard().all(on_disk)
            && self.knows_every_disk();
        if !may {
            return false;
        }
        self.note_changes();
        self.keep_old_controller();
        self.open_cut_journal();
        let failovers = self.control.meta.lose();
        self.control.rebuilding.failovers.extend(failovers);
        self.control.rebuilding.under_way = true;
        for id in 0..self.plan.controllers {
            self.controller_process_dies(id);
        }
        self.disturbs(None);
        if self.plan.own.leaves_out && self.may_be_left_out(node) {
            self.end(node, End::Power);
            self.control.rebuilding.left_out = Some(node);
            self.injected("node-left-out");
        }
        let wait = self.faults.own().between(50_000, 1_500_000);
        self.after(wait, Event::Rebuild);
        true
    }

    /// I12: what is lost with the disk may be the end of its journal alone. Whoever opens that finds it
    /// damaged, or as it was at some moment; an operator makes new records either way.
    fn open_cut_journal(&mut self) {
        match self.control.meta.open_cut(self.faults.files()) {
            Ok(opens) => {
                self.injected("meta-cut");
                self.injected(if opens { "meta-cut-opens" } else { "meta-cut-damaged" });
            }
            Err(why) => self.checks.fault("I12", self.now(), why),
        }
    }

    /// True if each disk that the nodes know of is there. Who was lost with its disk, and came on another one
    /// to an old controller alone, is missing for the others: an operator must accept that, or it stays so.
    fn knows_every_disk(&self) -> bool {
        let asked = self.machines.iter().filter(|machine| !self.is_removed(machine.id));
        let report = |machine: &Machine| {
            let member = machine.starts.last()?;
            Some(KeptRecords { member, cluster: Some(ClusterId(7)), ..machine.kept.report() })
        };
        let reports: Vec<KeptRecords> = asked.filter_map(report).collect();
        let generation = Generation::beyond(newest_generation(&reports), self.now() / 1000);
        let wall_ms = self.now() / 1000;
        let order = Order { generation, accept_missing: false, wall_ms, seed: 0, rules: self.settings.rules };
        !matches!(rebuild(&reports, &order), Err(Refusal::Missing(_)))
    }

    /// True if a node could stay away for a while: what it has is on its disk, or others have it.
    fn may_be_left_out(&self, node: u32) -> bool {
        let machine = self.machine(node);
        let mut removed = (1..=self.plan.nodes).filter(|other| self.is_removed(*other));
        machine.process.is_some()
            && !self.is_removed(node)
            && self.may_forget(node, Fault::Power)
            && removed.all(|gone| self.is_known_to_be_gone(gone, Some(node)))
    }

    /// True if somebody who is asked knows that this node was removed. What nobody knows who is asked is not
    /// in the new records, the removal of a node neither.
    fn is_known_to_be_gone(&self, node: u32, left_out: Option<u32>) -> bool {
        let asked = |machine: &&Machine| !machine.starts.is_removed() && Some(machine.id) != left_out;
        let mut others = self.machines.iter().filter(asked);
        others.any(|other| other.kept.report().removed.iter().any(|(gone, _)| gone.0 == node))
    }

    /// The operator asks the next node, or makes the records.
    pub(super) fn rebuild_on(&mut self) {
        let rebuilding = &self.control.rebuilding;
        let asked = |node: &u32| rebuilding.reports.contains_key(node) || rebuilding.leaves_out(*node);
        if let Some(node) = (1..=self.plan.nodes).find(|node| !asked(node) && !self.is_removed(*node)) {
            self.ask_for_records(node);
            let wait = self.faults.own().below(NEXT);
            return self.after(wait, Event::Rebuild);
        }
        let wall_ms = self.now() / 1000;
        let order = Order {
            generation: self.control.rebuilding.generation,
            accept_missing: self.control.rebuilding.left_out.is_some(),
            wall_ms,
            seed: self.faults.own().next(),
            rules: self.settings.rules,
        };
        let reports: Vec<KeptRecords> = self.control.rebuilding.reports.values().cloned().collect();
        match rebuild(&reports, &order) {
            Ok(rebuilt) => self.begin_with(&rebuilt),
            Err(refusal @ (Refusal::Missing(_) | Refusal::Newer(..))) => {
                self.trace.note(self.now(), format_args!("the records are not made anew: {refusal}"));
                self.control.rebuilding.reports.clear();
                self.after(NEXT, Event::Rebuild);
            }
            Err(refusal) => self.checks.fault("PR-107", self.now(), refusal.to_string()),
        }
    }

    /// A node that is there tells what it keeps, and listens to no controller of before from then on.
    fn ask_for_records(&mut self, node: u32) {
        let machine = self.machine(node);
        let goes_on = machine.standing.goes_on();
        let Some(process) = machine.process.as_ref().filter(|_| goes_on) else { return };
        let seen = process.host.replicas().map(|replica| {
            let known = replica.record().map_or(Epoch::ZERO, |record| record.epoch);
            (replica.id(), known.max(replica.log().end().term.began()))
        });
        let report = KeptRecords {
            member: process.member,
            cluster: Some(ClusterId(7)),
            seen: seen.collect(),
            ..machine.kept.report()
        };
        let conns = process.links.controllers();
        if self.control.rebuilding.reports.is_empty() {
            let told = newest_generation(std::slice::from_ref(&report));
            let newest = told.max(self.control.rebuilding.generation);
            self.control.rebuilding.generation = Generation::beyond(newest, self.now() / 1000);
        }
        let generation = self.control.rebuilding.generation;
        let machine = self.machine_mut(node);
        machine.asked += 1;
        machine.askings.push(generation);
        let (asked, askings) = (machine.asked, machine.askings.clone());
        let report = KeptRecords { generation, asked, askings, ..report };
        self.trace.note(self.now(), format_args!("n{node} tells what it keeps"));
        self.control.rebuilding.reports.insert(node, report);
        self.hear_only(node, generation);
        conns.into_iter().for_each(|conn| self.break_conn(conn, false));
    }

    /// Controllers begin with the records that were made.
    /// Nodes that registered, and that nobody who was asked had heard of: the new records name them neither
    /// as there nor as removed, and they come on their disks as any others do.
    fn forget_unknown(&mut self, rebuilt: &Rebuilt) {
        let has = |text: &[u8], node: &NodeRecord| {
            let removed = serde_json::from_slice::<RemovedDirectories>(text);
            removed.is_ok_and(|removed| removed.has(node.store))
        };
        let named = |node: &&NodeRecord| {
            rebuilt.entries.iter().any(|(key, text)| match key {
                Key::Node(id) => *id == node.id,
                Key::Removed(id) => *id == node.id && has(text, node),
                _ => false,
            })
        };
        let unknown: Vec<NodeId> =
            self.control.records.nodes().filter(|node| !named(node)).map(|node| node.id).collect();
        let reports = self.control.rebuilding.reports.values();
        let newest = reports.max_by_key(|report| (generation_of(report), report.whole));
        let is_told = |id: &&NodeId| {
            let key = Key::Node(**id).to_string();
            newest.is_some_and(|report| report.records.iter().any(|(name, _)| *name == key))
        };
        let told: BTreeSet<NodeId> = unknown.iter().filter(is_told).copied().collect();
        let verdict = nodes::check_named(&told, &BTreeSet::new());
        self.checks.expect("PR-107", self.now(), verdict);
        for id in unknown {
            self.trace.note(self.now(), format_args!("{id} is in none of the new records"));
            self.control.records.forget_node(id);
        }
    }

    fn begin_with(&mut self, rebuilt: &Rebuilt) {
        let generation = self.control.rebuilding.generation;
        let left_out = self.control.rebuilding.left_out.take();
        self.trace
            .note(self.now(), format_args!("the records are made anew: {generation}, not {left_out:?}"));
        let not_asked = |node: &u32| left_out == Some(*node) || self.is_removed(*node);
        let not_asked = (1..=self.plan.nodes).filter(not_asked).map(NodeId).collect();
        self.checks.epochs.go_without(not_asked);
        let (now, sealed) = (self.now(), rebuilt.partitions.iter());
        for (id, node) in sealed.filter_map(|sealed| Some((sealed.record.id, left_out?))) {
            self.checks.survival.left_out(now, id, NodeId(node));
        }
        for record in rebuilt.partitions.iter().map(|sealed| &sealed.record) {
            // Who is left may never have heard of the last records, and so of who led by then.
            let last = self.checks.epochs.newest(record.id).map(|last| last.primary.node.0);
            let before = record.before.as_ref().map(|before| before.primary.node.0);
            if left_out.is_some() && [last, before].contains(&left_out) {
                self.checks.survival.goes_back(now, record.id, record.term);
            }
        }
        self.forget_unknown(rebuilt);
        self.control.meta.restore(rebuilt);
        self.control.rebuilding.first_process = self.counts.next_process();
        self.control.rebuilding.under_way = false;
        self.control.rebuilding.reports.clear();
        self.note_changes();
        self.disturbs(None);
        self.injected("records-rebuilt");
        if let Some(node) = left_out {
            let wait = self.faults.own().between(50_000, 2_000_000);
            self.start_later(node, wait);
        }
        for id in 0..self.plan.controllers {
            let wait = 1_000 + self.faults.own().below(200_000);
            self.after(wait, Event::ControllerStart { id });
        }
        if self.plan.own.faults.contains(&Fault::OldController) {
            let wait = self.faults.returns().below(1_500_000);
            self.after(wait, Event::OldController);
        }
    }
}

/// Of which generation the records are that a node keeps.
fn generation_of(report: &KeptRecords) -> Option<Generation> {
    let cluster = report.records.iter().find(|(key, _)| *key == Key::Cluster.to_string());
    Some(cluster?.1.read::<ClusterRecord>().ok()?.generation)
}
