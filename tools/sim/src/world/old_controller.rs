//! A controller of before the records were made anew comes back: its disk was only away, or somebody starts
//! it on a copy (PR-107). Nodes that were asked, or that have met the new one, do not listen to it, whatever
//! it goes on to write; who was not asked may, until it meets the new one.

use super::metastore::Meta;
use super::{Event, World};
use crate::check::nodes;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::event::Cure;
use crate::faults::Fault;
use crate::network::{Conn, Endpoint, Lane};
use crate::random::{Concern, Stream};
use controller::{Tag, Txn};
use driver::kept::listens_to;
use types::{Generation, NodeId};

/// From its start until it begins to tick and to look at its metastore, microseconds.
const FIRST_TURN: u64 = 10_000;

/// What is left of before the records were made anew.
#[derive(Default)]
pub(super) struct OldController {
    meta: Option<Meta>,
    /// Its number, once it was started.
    id: Option<u32>,
    generation: Generation,
}

impl OldController {
    /// True if that is the number of the controller of before.
    pub fn is(&self, id: u32) -> bool {
        self.id == Some(id)
    }

    /// What it has.
    pub fn meta(&mut self) -> Option<&mut Meta> {
        self.meta.as_mut()
    }
}

impl World {
    /// The records are about to be lost: what is on that disk now is kept for later. The first one stays, if
    /// they are lost again.
    pub(super) fn keep_old_controller(&mut self) {
        if self.control.old.meta.is_some() {
            return;
        }
        let stream = Stream::new(self.faults.returns().next(), Concern::Disk, 1_001);
        self.control.old.meta = Some(self.control.meta.copy(Disk::new(stream)));
        self.control.old.generation = self.control.rebuilding.generation();
    }

    /// Somebody starts it, if there are newer records. False if it runs, or there are none.
    pub(super) fn bring_back_old_controller(&mut self) -> bool {
        let runs = self.control.old.id.is_some_and(|id| self.control.controllers.incarnation(id).is_some());
        let newer = self.control.old.meta.is_some() && !self.control.rebuilding.is_under_way();
        if newer && !runs {
            self.after(1_000, Event::OldController);
        }
        newer && !runs
    }

    /// It starts, beside the newer one or in its place.
    pub(super) fn start_old_controller(&mut self) {
        let now = self.now();
        let opened = self.control.old.meta.as_mut().map(Meta::open);
        let Some(Ok(Some(loaded))) = opened else { return };
        let id = match self.control.old.id {
            Some(id) => id,
            None => {
                let random = self.faults.returns();
                let (clock, seed) = (Clock::new(0, random.between(10_000_000, 900_000_000)), random.next());
                *self.control.old.id.insert(self.control.controllers.add_old(clock, seed))
            }
        };
        let incarnation = self.counts.next_process();
        if !self.control.controllers.start(id, incarnation, self.settings.rules) {
            return;
        }
        self.trace.note(now, format_args!("c{id} starts on the records of before, life {incarnation}"));
        self.injected(Fault::OldController.name());
        self.injected("old-controller-starts");
        self.think(id, loaded);
        self.after(FIRST_TURN, Event::ControllerTick { id, incarnation });
        self.after(FIRST_TURN, Event::ControllerWatch { id, incarnation });
        (1..=self.plan.nodes).for_each(|node| self.dial_old_controller(node));
        if self.faults.returns().chance(400) {
            self.take_newer_controllers();
        }
        if self.faults.returns().chance(500) {
            let wait = self.faults.returns().between(300_000, 5_000_000);
            self.after(wait, Event::Cure(Cure::OldController));
        }
    }

    /// It was started in the place of the newer ones, which come back when that is noticed.
    fn take_newer_controllers(&mut self) {
        self.injected("old-controller-instead");
        self.disturbs(None);
        for id in 0..self.plan.controllers {
            self.controller_process_dies(id);
            let wait = self.faults.returns().between(200_000, 2_500_000);
            self.after(wait, Event::ControllerStart { id });
        }
    }

    /// Somebody stops it.
    pub(super) fn stop_old_controller(&mut self) {
        if let Some(id) = self.control.old.id {
            self.controller_process_dies(id);
        }
    }

    /// A node connects to it as to any other that it was told of.
    pub(super) fn dial_old_controller(&mut self, node: u32) {
        let Some(id) = self.control.old.id else { return };
        let Some(incarnation) = self.machine(node).incarnation() else { return };
        let wait = 100 + self.faults.returns().below(2_000);
        let from = (Endpoint::Node(node), incarnation);
        self.after(wait, Event::Dial { from, to: Endpoint::Controller(id), lane: Lane::Control });
    }

    /// A node hears of which generation a controller is, and says who it is to one that it listens to.
    pub(super) fn meets_controller(&mut self, node: u32, controller: u32, conn: Conn) {
        let old = self.control.old.is(controller);
        let newest = self.control.rebuilding.generation();
        let theirs = if old { self.control.old.generation } else { newest };
        let known = self.machine(node).generation;
        if !listens_to(self.settings.rules, known, theirs) {
            self.trace.note(
                self.now(),
                format_args!("n{node} does not listen to c{controller}: {theirs}, and not {known}"),
            );
            self.injected("old-controller-refused");
            return self.break_conn(conn, false);
        }
        if old {
            self.injected("old-controller-heard");
        }
        self.hear_only(node, theirs);
        self.register(node, conn);
    }

    /// From now on a node listens to no controller of a lower generation.
    pub(super) fn hear_only(&mut self, node: u32, generation: Generation) {
        let old = self.control.old.id.map(Endpoint::Controller);
        let machine = self.machine_mut(node);
        if generation <= machine.generation {
            return;
        }
        machine.generation = generation;
        let links = machine.process.as_ref().map(|process| &process.links);
        if let Some(conn) = links.zip(old).and_then(|(links, old)| links.to(old, Lane::Control)) {
            self.break_conn(conn, false);
        }
    }

    /// PR-107: what a node acts on is of no controller that it must not listen to any more.
    pub(super) fn check_listens_to(&mut self, node: u32, from: Endpoint) {
        let Endpoint::Controller(id) = from else { return };
        let known = self.machine(node).generation;
        if self.control.old.is(id) {
            let verdict = nodes::check_listens(NodeId(node), known, self.control.old.generation);
            self.checks.expect("PR-107", self.now(), verdict);
        }
    }

    /// A transaction reaches the metastore of before.
    pub(super) fn old_meta_txn(&mut self, incarnation: u64, tag: Tag, txn: Txn, told: bool) {
        let old = &mut self.control.old;
        let (Some(id), Some(meta)) = (old.id, old.meta.as_mut()) else { return };
        let outcome = Box::new(meta.txn(txn));
        if told {
            let wait = 30 + self.faults.returns().below(500);
            self.after(wait, Event::MetaDone { id, incarnation, tag, outcome });
        }
    }
}
