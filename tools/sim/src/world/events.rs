//! Events happen: now, or when whom they concern goes on.

use super::World;
use crate::event::{Event, numbers_of};
use crate::network::{Endpoint, Lane};
use wire::Message;

impl World {
    /// The node whose process handles this, and whether its executor does.
    fn handled_by(&self, event: &Event) -> Option<(u32, bool)> {
        match event {
            Event::Arrive { conn, forth, .. } => {
                let open = self.network.carrier(*conn)?;
                let (_, (to, _)) = open.ends(*forth);
                let Endpoint::Node(node) = to else { return None };
                Some((node, open.lane != Lane::Heartbeat))
            }
            Event::Dial { from: (Endpoint::Node(node), _), .. } => Some((*node, false)),
            Event::Flush { node, .. }
            | Event::Read { node, .. }
            | Event::Install { node, .. }
            | Event::Component { node, .. }
            | Event::GoOn { node, .. }
            | Event::ClientGone { node, .. }
            | Event::Checkpoint { node, .. } => Some((*node, true)),
            Event::Tick { node, .. }
            | Event::Status { node, .. }
            | Event::Job { node, .. }
            | Event::Mark { node, .. }
            | Event::Leave { node, .. } => Some((*node, false)),
            Event::Synced { node, .. } => Some((*node, true)),
            _ => None,
        }
    }

    /// Which of several executors of a node an event concerns, if it concerns one. That is asked only while
    /// one of them stands still by itself.
    fn part_of(&self, node: u32, event: &Event) -> Option<usize> {
        if !self.machine(node).standing.has_hung() {
            return None;
        }
        let partition = match event {
            Event::Arrive { message, .. } => match &**message {
                Message::Request(request) => request.partition,
                Message::Proposed(proposed) => proposed.partition,
                Message::Advise(advise) => advise.partition,
                other => other.clone().into_peer()?.partition(),
            },
            Event::Read { partition, .. }
            | Event::Install { partition, .. }
            | Event::Component { partition, .. }
            | Event::GoOn { partition, .. } => *partition,
            _ => return None,
        };
        Some(self.plan.executors.of(partition))
    }

    /// Lets something happen, now or when whom it concerns goes on.
    pub(super) fn handle(&mut self, mut event: Event) {
        if let Some((node, executor)) = self.handled_by(&event) {
            let part = self.part_of(node, &event);
            let Some(now) = self.machine_mut(node).standing.defer(event, executor, part) else { return };
            event = now;
        }
        self.trace.event(self.now(), &numbers_of(&event));
        match event {
            Event::Arrive { conn, forth, message } => self.arrive(conn, forth, *message),
            Event::Break { conn, if_cut } => self.break_conn(conn, if_cut),
            Event::Dial { from, to, lane } => self.dial(from, to, lane),
            Event::Start { node } => self.start_in_time(node),
            Event::Tick { node, incarnation } => self.tick(node, incarnation),
            Event::Flush { node, incarnation } => self.flush(node, incarnation),
            Event::ClientGone { node, incarnation, conn } => self.client_gone(node, incarnation, conn),
            Event::Status { node, incarnation } => self.status(node, incarnation),
            Event::Synced { node, incarnation } => self.synced(node, incarnation),
            Event::Mark { node, incarnation } => self.mark_log(node, incarnation),
            Event::Checkpoint { node, incarnation } => self.checkpoint(node, incarnation),
            Event::Component { node, incarnation, partition } => {
                self.flush_engine(node, incarnation, partition)
            }
            Event::Job { node, incarnation, job } => self.run_job(node, incarnation, job),
            Event::GoOn { node, incarnation, partition } => {
                self.go_on_checkpoint(node, incarnation, partition)
            }
            Event::Read { node, incarnation, partition, purpose, from, max_bytes } => {
                self.read_log(node, incarnation, (partition, from, max_bytes), purpose);
            }
            Event::Install { node, incarnation, partition } => self.install(node, incarnation, partition),
            Event::Leave { node, incarnation, to, reply, valid_until } => {
                self.leave(node, incarnation, to, *reply, valid_until)
            }
            Event::ControllerStart { id } => self.controller_process_start(id),
            Event::ControllerTick { id, incarnation } => self.controller_process_tick(id, incarnation),
            Event::ControllerWatch { id, incarnation } => self.controller_process_watch(id, incarnation),
            Event::Meta { id, incarnation, tag, txn, told } => {
                self.meta_txn(id, incarnation, tag, *txn, told)
            }
            Event::MetaDone { id, incarnation, tag, outcome } => {
                self.meta_done(id, incarnation, tag, *outcome)
            }
            Event::Client { id } => self.client_wakes(id),
            Event::Operator => self.operator_wakes(),
            Event::Index => self.want_index(),
            Event::Factor => self.want_factor(),
            Event::Nodes => self.want_nodes(),
            Event::Force(step) => self.force(step),
            Event::InjectFault => self.inject(),
            Event::InjectOwn => self.inject_own(),
            Event::InjectFileFault => self.inject_file_fault(),
            Event::Rebuild => self.rebuild_on(),
            Event::OldController => self.start_old_controller(),
            Event::Cloned => self.start_clone(),
            Event::Scrub { begins } => self.scrub(begins),
            Event::Cure(cure) => self.cure(cure),
            Event::Inspect => self.inspect(),
        }
        self.plan_jobs();
    }
}
