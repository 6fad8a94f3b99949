//! Controllers, the metastore and the operator: what they ask is carried out, with answers that come late,
//! are lost, or come before the work is done.

use super::clones;
use super::cluster_records::ClusterRecords;
use super::controllers::Controllers;
use super::metastore::Meta;
use super::old_controller::OldController;
use super::operator::{Operator, Want};
use super::rebuild::Rebuilding;
use super::{Event, Phase, World};
use crate::network::{Conn, Endpoint, Lane};
use controller::{ConnId, Input, Output, Tag, Txn, TxnError, TxnOutcome};
use std::collections::BTreeMap;
use types::{PartitionId, PartitionRecord};
use wire::control::AdminCommand;
use wire::{Message, RecordText};

/// Between two looks at the metastore's changes.
const WATCH: u64 = 10_000;
/// Between two ticks of a controller.
const TICK: u64 = 20_000;

/// What plans the cluster, and what it has written.
pub(super) struct ControlPlane {
    pub controllers: Controllers,
    pub meta: Meta,
    pub operator: Operator,
    pub records: ClusterRecords,
    pub rebuilding: Rebuilding,
    /// What primaries have asked for: while it follows the newest record it may be recorded at any moment.
    pub proposed: BTreeMap<PartitionId, Vec<PartitionRecord>>,
    /// What is left of before the records were made anew.
    pub old: OldController,
}

impl ControlPlane {
    /// The metastore of a controller.
    fn meta_of(&mut self, id: u32) -> Option<&mut Meta> {
        if self.old.is(id) { self.old.meta() } else { Some(&mut self.meta) }
    }
}

impl World {
    pub(super) fn controller_process_start(&mut self, id: u32) {
        let incarnation = self.counts.next_process();
        let down = self.control.meta.is_down(self.now());
        let opened = if down { Ok(None) } else { self.control.meta.open() };
        let opened = opened.unwrap_or_else(|reason| {
            let sentence = format!("the metastore cannot be opened again: {reason}");
            self.checks.fault("I12", self.now(), sentence);
            None
        });
        let Some(loaded) = opened else {
            return self.after(100_000, Event::ControllerStart { id });
        };
        self.note_changes();
        if !self.control.controllers.start(id, incarnation, self.settings.rules) {
            return;
        }
        self.trace.note(self.now(), format_args!("c{id} starts, life {incarnation}"));
        self.think(id, loaded);
        self.after(TICK, Event::ControllerTick { id, incarnation });
        self.after(WATCH, Event::ControllerWatch { id, incarnation });
    }

    /// A controller's process dies.
    pub(super) fn controller_process_dies(&mut self, id: u32) {
        if self.control.controllers.end(id) {
            self.trace.note(self.now(), format_args!("c{id} ends"));
            self.drop_links(Endpoint::Controller(id), true);
        }
    }

    pub(super) fn think(&mut self, id: u32, input: Input) {
        let now = self.now();
        let (incarnation, outputs) = match self.control.controllers.think(id, now, input) {
            Ok(Some(asked)) => asked,
            Ok(None) => return,
            Err(reason) => return self.checks.fault("I10", now, reason),
        };
        for output in outputs {
            match output {
                Output::Send { conn, message } if clones::is_clone(conn) => self.clone_hears(&message),
                Output::Close { conn } if clones::is_clone(conn) => {
                    self.think(id, Input::Disconnected { conn });
                }
                Output::Txn { tag, txn } => self.submit(id, incarnation, tag, txn),
                Output::Send { conn, message } => self.send(conn.0, false, message),
                Output::Close { conn } => self.close_conn(conn.0, false),
            }
        }
    }

    pub(super) fn controller_process_tick(&mut self, id: u32, incarnation: u64) {
        if self.control.controllers.incarnation(id) != Some(incarnation) {
            return;
        }
        self.after(TICK, Event::ControllerTick { id, incarnation });
        if let Some(plans) = self.control.controllers.is_to_lead(id) {
            self.think(id, Input::Lead(plans));
        }
        self.think(id, Input::Tick);
    }

    pub(super) fn controller_process_watch(&mut self, id: u32, incarnation: u64) {
        if self.control.controllers.incarnation(id) != Some(incarnation) {
            return;
        }
        self.after(WATCH, Event::ControllerWatch { id, incarnation });
        let now = self.now();
        let revision = self.control.controllers.hears_from(id, now);
        let Some(meta) = self.control.meta_of(id).filter(|meta| !meta.is_down(now)) else { return };
        if let Some(news) = revision.and_then(|revision| meta.changes_since(revision)) {
            self.think(id, news);
        }
    }

    /// Sends a transaction to the metastore, which may answer late, never, or before it is done.
    fn submit(&mut self, id: u32, incarnation: u64, tag: Tag, txn: Txn) {
        let wait = 50 + self.schedule.timing().below(self.control.meta.slow_us());
        let txn = Box::new(txn);
        if self.schedule.timing().chance(self.control.meta.unheard()) {
            self.injected("meta-lost");
            let unknown = Box::new(Err(TxnError::Unknown));
            let told_at = 20_000 + self.schedule.timing().below(100_000);
            self.after(told_at, Event::MetaDone { id, incarnation, tag, outcome: unknown });
            if self.schedule.timing().chance(750) {
                // It happens all the same, perhaps long after nobody knew.
                let timing = self.schedule.timing();
                let late = if timing.chance(300) { timing.below(400_000) } else { wait };
                self.after(late, Event::Meta { id, incarnation, tag, txn, told: false });
            }
            return;
        }
        self.after(wait, Event::Meta { id, incarnation, tag, txn, told: true });
    }

    pub(super) fn meta_txn(&mut self, id: u32, incarnation: u64, tag: Tag, txn: Txn, told: bool) {
        if self.control.old.is(id) {
            return self.old_meta_txn(incarnation, tag, txn, told);
        }
        let rebuilding = &self.control.rebuilding;
        if rebuilding.is_under_way() || rebuilding.is_of_before(incarnation) {
            // The metastore that it was meant for is gone, and so is who asked.
            return;
        }
        if self.control.meta.is_down(self.now()) {
            let unknown = Box::new(Err(TxnError::Unknown));
            let wait = 50_000 + self.schedule.timing().below(200_000);
            if told {
                self.after(wait, Event::MetaDone { id, incarnation, tag, outcome: unknown });
            }
            return;
        }
        let outcome = Box::new(self.control.meta.txn(txn));
        self.note_changes();
        if self.control.meta.has_failed() {
            return self.restart_metastore();
        }
        if told {
            let wait = 30 + self.schedule.timing().below(self.control.meta.slow_us());
            self.after(wait, Event::MetaDone { id, incarnation, tag, outcome });
        }
    }

    /// Shows the checkers every record that was written.
    pub(super) fn note_changes(&mut self) {
        for (key, text) in self.control.meta.news() {
            if let Some(node) = key.strip_prefix("node/").and_then(|name| name.parse().ok()) {
                self.note_node(node, text.as_ref());
            }
            let Some(text) = text else { continue };
            if key.starts_with("table/") {
                self.note_table(&text);
            }
            if !key.starts_with("partition/") {
                continue;
            }
            match text.read::<types::PartitionRecord>() {
                Ok(record) => {
                    self.trace.note(self.now(), format_args!("recorded: {}", text.0));
                    self.configured(record);
                }
                Err(reason) => self.checks.fault("I10", self.now(), reason),
            }
        }
    }

    pub(super) fn meta_done(
        &mut self,
        id: u32,
        incarnation: u64,
        tag: Tag,
        outcome: Result<TxnOutcome, TxnError>,
    ) {
        if self.control.controllers.incarnation(id) == Some(incarnation) {
            self.think(id, Input::TxnDone { tag, outcome });
        }
    }

    /// The metastore is out of reach for a while; with `power` its machine also loses power.
    pub(super) fn meta_down(&mut self, us: u64, power: bool) {
        let now = self.now();
        if let Err(reason) = self.control.meta.goes_down(now + us, power) {
            self.checks.fault("I12", now, format!("the metastore cannot be opened again: {reason}"));
        }
    }

    /// The controllers' and the metastore's troubles are over.
    pub(super) fn heal_control(&mut self) {
        self.control.meta.heal();
        for id in self.control.controllers.heal(self.now()) {
            self.after(1_000, Event::ControllerStart { id });
        }
    }

    pub(super) fn controller_process_hears(&mut self, id: u32, conn: Conn, message: Message) {
        self.think(id, Input::Received { conn: ConnId(conn), message });
    }

    pub(super) fn controller_process_disconnected(&mut self, id: u32, conn: Conn) {
        self.think(id, Input::Disconnected { conn: ConnId(conn) });
    }

    /// Records of the metastore whose keys begin so.
    pub(super) fn records(&mut self, prefix: &str) -> Vec<RecordText> {
        self.control.meta.records(prefix)
    }

    /// The operator goes on with what there is to do.
    pub(super) fn operator_wakes(&mut self) {
        if self.stage.phase() == Phase::Setup || self.control.operator.has_commands() {
            self.after(30_000, Event::Operator);
        }
        match self.control.operator.wakes(&self.plan.tables) {
            Some(Want::Dial) => {
                let id = self.schedule.timing().below(u64::from(self.plan.controllers)) as u32;
                let (from, to) = ((Endpoint::Operator, 0), Endpoint::Controller(id));
                self.after(300, Event::Dial { from, to, lane: Lane::Control });
            }
            Some(Want::Send(conn, admin)) => self.send(conn, true, Message::Admin(admin)),
            None => {}
        }
    }

    pub(super) fn operator_linked(&mut self, conn: Conn) {
        self.control.operator.linked(Some(conn));
        self.operator_wakes();
    }

    pub(super) fn operator_unlinked(&mut self) {
        self.control.operator.linked(None);
    }

    pub(super) fn operator_hears(&mut self, message: Message) {
        if let Message::AdminAnswer(answer) = message {
            self.control.operator.hears(&answer, self.plan.tables.len());
        }
    }

    /// Asks something of the operator.
    pub(super) fn ask(&mut self, command: AdminCommand) {
        if self.control.operator.queue(command) {
            self.after(100, Event::Operator);
        }
    }
}
