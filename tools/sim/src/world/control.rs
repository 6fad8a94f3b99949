//! Controllers and the metastore: the real state machines over a simulated disk, with answers that come late, are lost, or
//! come before the work is done.

use super::{Event, Phase, World};
use crate::disk::Disk;
use crate::network::{Conn, Endpoint, Lane};
use crate::plan::TablePlan;
use crate::random::Stream;
use controller::{ConnId, Controller, Identity, Input, Output, Tag};
use metastore::{Embedded, Metastore};
use std::io;
use types::policy::Standby;
use types::{ClusterId, Micros};
use wire::control::{Admin, AdminCommand, CreateTable};
use wire::{Message, RecordText};

/// Between two looks at the metastore's changes.
const WATCH: u64 = 10_000;
/// Between two ticks of a controller.
const TICK: u64 = 20_000;

/// A controller and its machine.
pub(super) struct ControllerProcess {
    id: u32,
    clock: crate::clock::Clock,
    running: Option<(u64, Controller)>,
    seed: u64,
    /// It hears of changes late until then.
    pub stale_until: u64,
    /// It plans whoever else does.
    pub plans: bool,
}

impl ControllerProcess {
    pub fn new(id: u32, shape: &mut Stream) -> ControllerProcess {
        let clock = crate::clock::Clock::new(0, shape.between(10_000_000, 900_000_000));
        ControllerProcess { id, clock, running: None, seed: shape.next(), stale_until: 0, plans: false }
    }

    pub fn incarnation(&self) -> Option<u64> {
        self.running.as_ref().map(|(incarnation, _)| *incarnation)
    }
}

/// The metastore: one journal on one disk.
pub(super) struct Meta {
    disk: Disk,
    store: Embedded<Journal>,
    /// It answers nothing until then.
    pub down_until: u64,
    /// What a transaction takes at most.
    pub slow_us: u64,
    /// Answers that are lost, per thousand.
    pub lost: u64,
    seen: u64,
}

/// The journal of the metastore on a simulated disk.
pub(super) struct Journal {
    disk: Disk,
}

const JOURNAL: &str = "journal";

impl metastore::embedded::Store for Journal {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.disk.read(JOURNAL) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.append(JOURNAL, bytes, true)
    }

    fn hint(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.append(JOURNAL, bytes, false)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.replace(JOURNAL, bytes)
    }
}

impl Meta {
    pub fn new(disk: Disk) -> Meta {
        let store =
            Embedded::open(Journal { disk: disk.clone() }).expect("an empty disk holds an empty store");
        Meta { disk, store, down_until: 0, slow_us: 500, lost: 0, seen: 0 }
    }

    /// The machine under it loses power, and is started again.
    pub fn lose_power(&mut self) -> Result<(), String> {
        self.disk.lose_power();
        self.store =
            Embedded::open(Journal { disk: self.disk.clone() }).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Records that begin so, as text.
    pub fn records(&mut self, prefix: &str) -> Vec<RecordText> {
        let snapshot = self.store.range(prefix).map(|snapshot| snapshot.entries).unwrap_or_default();
        snapshot
            .into_iter()
            .map(|entry| RecordText(String::from_utf8_lossy(&entry.value).into_owned()))
            .collect()
    }
}

/// The operator: creates the tables, and asks for things.
#[derive(Default)]
pub(super) struct Operator {
    conn: Option<Conn>,
    dialling: bool,
    /// Tables that exist.
    pub created: usize,
    waiting: Option<u64>,
    next: u64,
    /// Asked for when connected.
    pub operator_draws: Vec<AdminCommand>,
}

/// What backups do.
pub(super) fn standby(cold: bool) -> Standby {
    if cold { Standby::Cold } else { Standby::Hot }
}

fn creation(table: &TablePlan) -> CreateTable {
    CreateTable {
        name: table.name.clone(),
        schema: crate::rows::schema(),
        engine: table.engine(),
        log: table.log,
        policy: table.policy.into(),
        factor: Some(table.factor),
        min_in_sync: Some(table.min_in_sync),
        available: table.available,
        partitions: table.partitions,
        placement: Vec::new(),
        scheme: Default::default(),
        standby: table.cold.map(standby),
        failover_target_ms: None,
    }
}

impl World {
    pub(super) fn controller_process_start(&mut self, id: u32) {
        let incarnation = self.next_incarnation;
        self.next_incarnation += 1;
        let down = self.meta.down_until > self.now;
        let loaded = self.meta.store.range("").ok().filter(|_| !down);
        let Some(loaded) = loaded else {
            self.after(100_000, Event::ControllerStart { id });
            return;
        };
        let rules = self.settings.rules;
        let controller_process = &mut self.controller_processes[id as usize];
        if controller_process.running.is_some() {
            return;
        }
        let identity =
            Identity { cluster: ClusterId(7), seed: controller_process.seed ^ incarnation.rotate_left(32) };
        controller_process.running = Some((
            incarnation,
            Controller::new(identity, controller::Settings { rules, ..controller_settings() }),
        ));
        controller_process.stale_until = 0;
        self.trace.note(self.now, format_args!("c{id} starts, life {incarnation}"));
        self.think(id, Input::Loaded { revision: loaded.revision, entries: loaded.entries });
        self.after(TICK, Event::ControllerTick { id, incarnation });
        self.after(WATCH, Event::ControllerWatch { id, incarnation });
    }

    /// A controller's process dies.
    pub(super) fn controller_process_dies(&mut self, id: u32) {
        if self.controller_processes[id as usize].running.take().is_some() {
            self.trace.note(self.now, format_args!("c{id} ends"));
            self.drop_links(Endpoint::Controller(id), true);
        }
    }

    fn think(&mut self, id: u32, input: Input) {
        let controller_process = &mut self.controller_processes[id as usize];
        let now = controller_process.clock.read(self.now);
        let Some((incarnation, controller)) = &mut controller_process.running else { return };
        let incarnation = *incarnation;
        let outputs = controller.handle(now, input);
        if let Err(reason) = controller.validate() {
            return self.checks.fault("I10", self.now, format!("c{id}: {reason}"));
        }
        for output in outputs {
            match output {
                Output::Txn { tag, txn } => self.submit(id, incarnation, tag, txn),
                Output::Send { conn, message } => self.send(conn.0, false, message),
                Output::Close { conn } => self.break_conn(conn.0, false),
            }
        }
    }

    pub(super) fn controller_process_tick(&mut self, id: u32, incarnation: u64) {
        if self.controller_processes[id as usize].incarnation() != Some(incarnation) {
            return;
        }
        self.after(TICK, Event::ControllerTick { id, incarnation });
        let first = self
            .controller_processes
            .iter()
            .find(|controller_process| controller_process.running.is_some())
            .map(|controller_process| controller_process.id);
        let controller_process = &self.controller_processes[id as usize];
        let plans = first == Some(id) || controller_process.plans;
        if controller_process.running.as_ref().is_some_and(|(_, controller)| controller.is_leading() != plans)
        {
            self.think(id, Input::Lead(plans));
        }
        self.think(id, Input::Tick);
    }

    pub(super) fn controller_process_watch(&mut self, id: u32, incarnation: u64) {
        if self.controller_processes[id as usize].incarnation() != Some(incarnation) {
            return;
        }
        self.after(WATCH, Event::ControllerWatch { id, incarnation });
        let stale =
            self.controller_processes[id as usize].stale_until > self.now || self.meta.down_until > self.now;
        let Some((_, controller)) = &self.controller_processes[id as usize].running else { return };
        if stale {
            return;
        }
        let input = match self.meta.store.changes_since(controller.revision()) {
            Ok(metastore::Changes::Since { changes, .. }) if changes.is_empty() => return,
            Ok(metastore::Changes::Since { revision, changes }) => Input::Changed { revision, changes },
            Ok(metastore::Changes::Reload) => {
                let Ok(all) = self.meta.store.range("") else { return };
                Input::Loaded { revision: all.revision, entries: all.entries }
            }
            Err(_) => return,
        };
        self.think(id, input);
    }

    /// Sends a transaction to the metastore, which may answer late, never, or before it is done.
    fn submit(&mut self, id: u32, incarnation: u64, tag: Tag, txn: controller::Txn) {
        let wait = 50 + self.timing.below(self.meta.slow_us);
        let txn = Box::new(txn);
        if self.timing.chance(self.meta.lost) {
            self.injected("meta-lost");
            let unknown = Box::new(Err(controller::TxnError::Unknown));
            let told_at = 20_000 + self.timing.below(100_000);
            self.after(told_at, Event::MetaDone { id, incarnation, tag, outcome: unknown });
            if self.timing.chance(750) {
                // It happens all the same, perhaps long after nobody knew.
                let late = if self.timing.chance(300) { self.timing.below(400_000) } else { wait };
                self.after(late, Event::Meta { id, incarnation, tag, txn, told: false });
            }
            return;
        }
        self.after(wait, Event::Meta { id, incarnation, tag, txn, told: true });
    }

    pub(super) fn meta_txn(&mut self, id: u32, incarnation: u64, tag: Tag, txn: controller::Txn, told: bool) {
        if self.meta.down_until > self.now {
            let unknown = Box::new(Err(controller::TxnError::Unknown));
            let wait = 50_000 + self.timing.below(200_000);
            if told {
                self.after(wait, Event::MetaDone { id, incarnation, tag, outcome: unknown });
            }
            return;
        }
        let outcome = match self.meta.store.txn(txn) {
            Ok(outcome) => Ok(outcome),
            Err(metastore::MetaError::Invalid(why)) => Err(controller::TxnError::Refused(why)),
            Err(_) => Err(controller::TxnError::Unknown),
        };
        self.note_changes();
        if told {
            let wait = 30 + self.timing.below(self.meta.slow_us);
            self.after(wait, Event::MetaDone { id, incarnation, tag, outcome: Box::new(outcome) });
        }
    }

    /// Shows the checkers every record that was written.
    fn note_changes(&mut self) {
        let Ok(metastore::Changes::Since { revision, changes }) =
            self.meta.store.changes_since(self.meta.seen)
        else {
            return;
        };
        self.meta.seen = revision;
        for change in changes {
            let text = change.value.map(|value| RecordText(String::from_utf8_lossy(&value).into_owned()));
            if let Some(node) = change.key.strip_prefix("node/").and_then(|name| name.parse().ok()) {
                self.note_node(node, text.as_ref());
            }
            let Some(text) = text else { continue };
            if change.key.starts_with("table/") {
                self.note_table(&text);
            }
            if !change.key.starts_with("partition/") {
                continue;
            }
            match text.read::<types::PartitionRecord>() {
                Ok(record) => {
                    self.trace.note(self.now, format_args!("recorded: {}", text.0));
                    self.configured(record);
                }
                Err(reason) => self.checks.fault("I10", self.now, reason),
            }
        }
    }

    pub(super) fn meta_done(
        &mut self,
        id: u32,
        incarnation: u64,
        tag: Tag,
        outcome: Result<controller::TxnOutcome, controller::TxnError>,
    ) {
        if self.controller_processes[id as usize].incarnation() == Some(incarnation) {
            self.think(id, Input::TxnDone { tag, outcome });
        }
    }

    /// The metastore is out of reach for a while; with `power` its machine also loses power.
    pub(super) fn meta_down(&mut self, us: u64, power: bool) {
        self.meta.down_until = self.now + us;
        if power && let Err(reason) = self.meta.lose_power() {
            self.checks.fault("I12", self.now, format!("the metastore cannot be opened again: {reason}"));
        }
    }

    pub(super) fn meta_weather(&mut self, slow_us: Option<u64>, lost: Option<u64>) {
        self.meta.slow_us = slow_us.unwrap_or(self.meta.slow_us);
        self.meta.lost = lost.unwrap_or(self.meta.lost);
    }

    pub(super) fn controller_process_weather(&mut self, id: u32, stale_us: Option<u64>, plans: Option<bool>) {
        let now = self.now;
        let controller_process = &mut self.controller_processes[id as usize];
        controller_process.stale_until = stale_us.map_or(controller_process.stale_until, |us| now + us);
        controller_process.plans = plans.unwrap_or(controller_process.plans);
    }

    /// The controllers' and the metastore's troubles are over.
    pub(super) fn heal_control(&mut self) {
        (self.meta.down_until, self.meta.slow_us, self.meta.lost) = (0, 500, 0);
        for id in 0..self.plan.controllers {
            self.controller_process_weather(id, Some(0), Some(false));
            if self.controller_processes[id as usize].running.is_none() {
                self.after(1_000, Event::ControllerStart { id });
            }
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
        self.meta.records(prefix)
    }

    /// The operator goes on with what there is to do.
    pub(super) fn operator_wakes(&mut self) {
        if self.phase == Phase::Setup || !self.operator.operator_draws.is_empty() {
            self.after(30_000, Event::Operator);
        }
        if self.operator.conn.is_none() {
            if !std::mem::replace(&mut self.operator.dialling, true) {
                let id = self.timing.below(u64::from(self.plan.controllers)) as u32;
                let lane = Lane::Control;
                self.after(
                    300,
                    Event::Dial { from: (Endpoint::Operator, 0), to: Endpoint::Controller(id), lane },
                );
            }
            return;
        }
        if self.operator.waiting.is_some() {
            return;
        }
        let command = match self.plan.tables.get(self.operator.created) {
            Some(table) => AdminCommand::CreateTable(RecordText::new(&creation(table))),
            None => match self.operator.operator_draws.pop() {
                Some(cut_or_isolate) => cut_or_isolate,
                None => return,
            },
        };
        self.operator.next += 1;
        self.operator.waiting = Some(self.operator.next);
        let admin = Admin { id: self.operator.next, command };
        let conn = self.operator.conn.expect("looked at above");
        self.send(conn, true, Message::Admin(admin));
    }

    pub(super) fn operator_linked(&mut self, conn: Conn) {
        self.operator.dialling = false;
        self.operator.conn = Some(conn);
        self.operator.waiting = None;
        self.operator_wakes();
    }

    pub(super) fn operator_unlinked(&mut self) {
        self.operator.dialling = false;
        self.operator.conn = None;
        self.operator.waiting = None;
    }

    pub(super) fn operator_hears(&mut self, message: Message) {
        let Message::AdminAnswer(answer) = message else { return };
        if self.operator.waiting != Some(answer.id) {
            return;
        }
        self.operator.waiting = None;
        if self.operator.created < self.plan.tables.len() && answer.result.is_ok() {
            self.operator.created += 1;
        }
    }
}

/// Controllers' settings in the simulator: shorter patience, so that what it leads to is seen.
fn controller_settings() -> controller::Settings {
    controller::Settings {
        failover_wait: Micros::from_millis(1500),
        restart_reconcile: Micros::from_millis(300),
        balance_after: Micros::from_millis(1500),
        spare_after: Micros::from_millis(2000),
        admit_again: Micros::from_millis(200),
        forgive_after: Micros::from_millis(5_000),
        ..controller::Settings::default()
    }
}
