//! The recovery manager: one pass after the other, as the controller that plans makes them.

use super::{CALL_TIMEOUT, config};
use crate::client::shell::Shell;
use crate::client::{ClientEffect, LinkNews};
use crate::network::{Conn, Endpoint};
use crate::plan::RunPlan;
use crate::random::Stream;
use ::client::txn::{Manager, Owner, Part, Pass, Step, Steps};
use ::client::{Completed, LaneId, Outcome, Ticket};
use std::collections::BTreeMap;
use types::system::COMMITS;
use wire::Message;

/// Between two passes, microseconds.
const REST: u64 = 200_000;

/// The client.
pub struct RecoveryClient {
    random: Stream,
    shell: Shell,
    pass: Option<Pass>,
    calls: BTreeMap<Ticket, Part>,
    paused: Vec<(u64, Part)>,
    next_at: u64,
}

impl RecoveryClient {
    /// The recovery manager of a plan with global transactions, with the name of a client.
    pub fn new(id: u32, mut random: Stream, plan: &RunPlan) -> RecoveryClient {
        let shell = Shell::new(id, config(&mut random), plan.controllers);
        RecoveryClient { random, shell, pass: None, calls: BTreeMap::new(), paused: Vec::new(), next_at: 0 }
    }

    /// When it has something to do next, if nothing happens before.
    pub fn wakes_at(&self) -> Option<u64> {
        let paused = self.paused.iter().map(|(until, _)| *until);
        paused.chain(self.shell.core().next_timer().map(|at| at.0)).min()
    }

    /// Does what is due.
    pub fn step(&mut self, now: u64) -> Vec<ClientEffect> {
        self.shell.tick(now);
        let record = self.shell.core().map().table(COMMITS).cloned();
        if let Some(record) = record.filter(|_| self.pass.is_none() && now >= self.next_at) {
            let (pass, call) = Pass::begin(Manager::of(&record), record.policy.min_in_sync);
            self.pass = Some(pass);
            self.take_steps(now, vec![(Part::Manager, Step::Call(Box::new(call)))]);
        }
        let due: Vec<_> = self.paused.extract_if(.., |(until, _)| *until <= now).collect();
        for (_, part) in due {
            self.go_on(now, part, None);
        }
        self.turn(now);
        self.shell.take_effects()
    }

    /// There is news of a connection.
    pub fn linked(&mut self, now: u64, to: Endpoint, news: LinkNews) {
        let random = &mut self.random;
        self.shell.linked(now, to, news, || random.between(1_000, 50_000));
        self.turn(now);
    }

    /// A message came.
    pub fn hear(&mut self, now: u64, from: (Endpoint, Conn), message: Message) {
        let random = &mut self.random;
        self.shell.hear(now, from, message, || random.between(1_000, 50_000));
        self.turn(now);
    }

    fn turn(&mut self, now: u64) {
        self.shell.carry_out(now);
        self.shell.take_sent();
        while let Some(Completed { ticket, outcome, .. }) = self.shell.next_completed() {
            if let Some(part) = self.calls.remove(&ticket) {
                self.go_on(now, part, Some(outcome));
                self.shell.carry_out(now);
            }
        }
        if self.calls.is_empty() && self.paused.is_empty() && self.pass.take().is_some() {
            self.next_at = now + REST;
        }
    }

    fn go_on(&mut self, now: u64, part: Part, outcome: Option<Outcome>) {
        let map = self.shell.core().map();
        let Some(pass) = &mut self.pass else { return };
        let steps = pass.next(part, outcome, |partition| Owner::of(map, partition));
        self.take_steps(now, steps);
    }

    fn take_steps(&mut self, now: u64, steps: Steps) {
        for (part, step) in steps {
            match step {
                Step::Call(call) => {
                    let ticket = self.shell.submit(now, LaneId(0), call.within(CALL_TIMEOUT));
                    self.calls.insert(ticket, part);
                }
                Step::Wait(time) => self.paused.push((now + time.0, part)),
                Step::Done(_) => {}
            }
        }
    }
}
