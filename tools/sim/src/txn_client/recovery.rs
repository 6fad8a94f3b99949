//! The recovery manager: one pass after the other, as the controller that plans makes them. In some worlds it
//! dies at any step of a pass and begins again, and for a while there are two of them, as there are while two
//! controllers plan. Where there is an operator ([`super::operator`]), or somebody makes backups
//! ([`super::copier`]), they ask over the same connections.

use super::copier::Copier;
use super::operator::Operator;
use super::{CALL_TIMEOUT, config};
use crate::check::backups::Restored;
use crate::check::commits::{GivenUp, TxnOperation};
use crate::client::shell::Shell;
use crate::client::{ClientEffect, LinkNews};
use crate::network::{Conn, Endpoint};
use crate::plan::RunPlan;
use crate::random::Stream;
use ::client::txn::{Manager, Owner, Part, Pass, Step, Steps};
use ::client::{Completed, LaneId, Outcome, Ticket};
use std::collections::BTreeMap;
use types::Rules;
use types::system::COMMITS;
use wire::Message;

/// Between two passes, microseconds.
const REST: u64 = 200_000;
/// The operator's calls wait for nobody else's.
const OPERATOR: LaneId = LaneId(u32::MAX);
/// Nor do those of whoever makes backups.
const COPIER: LaneId = LaneId(u32::MAX - 1);

/// One recovery manager, from its start to its death.
#[derive(Debug, Default)]
struct Passes {
    /// Its own: it does not wait for calls of one that is dead.
    lane: LaneId,
    pass: Option<Pass>,
    calls: BTreeMap<Ticket, Part>,
    /// Those that pause, until when.
    paused: Vec<(u64, Part)>,
    next_at: u64,
}

/// When recovery managers die, and when there are two.
struct Failures {
    random: Stream,
    /// They do now.
    goes_on: bool,
    /// When a second one begins, or ends.
    second_at: u64,
}

/// The client: what a recovery manager asks for goes over its connections, whichever it is.
pub struct RecoveryClient {
    random: Stream,
    shell: Shell,
    /// One, or two.
    managers: Vec<Passes>,
    failures: Option<Failures>,
    /// The last lane that was given out.
    last_lane: LaneId,
    /// Who gives up what is gone, or lets the manager go on, where there is one, and what is asked.
    operator: Option<(Operator, Option<Ticket>)>,
    /// Who makes backups, where somebody does, and what is asked.
    copier: Option<(Copier, Option<Ticket>)>,
}

impl RecoveryClient {
    /// The recovery manager of a plan with global transactions, with the name of a client. `failures` is the
    /// stream by which it fails, where it does.
    pub fn new(
        id: u32,
        (mut random, failures): (Stream, Stream),
        (plan, rules): (&RunPlan, Rules),
    ) -> RecoveryClient {
        let shell = Shell::new(id, config(&mut random), plan.controllers);
        let (managers, last_lane) = (vec![Passes::default()], LaneId::default());
        let fails = plan.workload.transactions.deaths.are_any();
        let failures = fails.then_some(Failures { random: failures, goes_on: false, second_at: 0 });
        let planned = plan.workload.transactions;
        let operator = (planned.skips || planned.recovers).then(|| (Operator::default(), None));
        let copier = planned.copies.then(|| (Copier::new(id, rules), None));
        RecoveryClient { random, shell, managers, failures, last_lane, operator, copier }
    }

    /// Backups that were made, each as a transaction, and transactions where they were restored.
    pub fn history(&self) -> &[TxnOperation] {
        self.copier.as_ref().map(|(copier, _)| copier.history()).unwrap_or_default()
    }

    /// What came of backups that were restored.
    pub fn restored(&self) -> &[Restored] {
        self.copier.as_ref().map(|(copier, _)| copier.restored()).unwrap_or_default()
    }

    /// What an answer said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.copier.as_ref().and_then(|(copier, _)| copier.fault())
    }

    /// What was given up, or is kept by a partition alone.
    pub fn given_up(&self) -> &[GivenUp] {
        self.operator.as_ref().map(|(operator, _)| operator.given_up()).unwrap_or_default()
    }

    /// When it has something to do next, if nothing happens before.
    pub fn wakes_at(&self) -> Option<u64> {
        let paused = self.managers.iter().flat_map(|one| &one.paused).map(|(until, _)| *until);
        let copier = self.copier.as_ref().and_then(|(copier, _)| copier.wakes_at());
        paused.chain(self.shell.core().next_timer().map(|at| at.0)).chain(copier).min()
    }

    /// Does what is due. It fails only while the run `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        self.shell.tick(now);
        self.double(now, goes_on);
        let record = self.shell.core().map().table(COMMITS).cloned();
        for at in 0..self.managers.len() {
            let one = &mut self.managers[at];
            if let Some(record) = record.as_ref().filter(|_| one.pass.is_none() && now >= one.next_at) {
                let (pass, call) = Pass::begin(Manager::of(record), record.policy.min_in_sync);
                one.pass = Some(pass);
                self.take_steps(now, at, vec![(Part::Manager, Step::Call(Box::new(call)))]);
            }
            let due: Vec<_> = self.managers[at].paused.extract_if(.., |(until, _)| *until <= now).collect();
            for (_, part) in due {
                self.go_on(now, at, (part, None));
            }
        }
        self.operate(now, None);
        self.copy(now, goes_on, None);
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
            if self.operator.as_ref().is_some_and(|(_, asked)| *asked == Some(ticket)) {
                self.operate(now, Some(outcome));
                self.shell.carry_out(now);
                continue;
            }
            if self.copier.as_ref().is_some_and(|(_, asked)| *asked == Some(ticket)) {
                self.copy(now, false, Some(outcome));
                self.shell.carry_out(now);
                continue;
            }
            let asked = |one: &mut Passes| one.calls.remove(&ticket);
            let found = self.managers.iter_mut().enumerate().find_map(|(at, one)| Some((at, asked(one)?)));
            if let Some((at, part)) = found {
                self.go_on(now, at, (part, Some(outcome)));
                self.shell.carry_out(now);
            }
        }
        for one in &mut self.managers {
            if one.calls.is_empty() && one.paused.is_empty() && one.pass.take().is_some() {
                one.next_at = now + REST;
            }
        }
    }

    /// The operator looks, if it is time, or has heard how a call ended.
    fn operate(&mut self, now: u64, outcome: Option<Outcome>) {
        let map = self.shell.core().map();
        let manager = map.table(COMMITS).map(|record| Manager::of(record));
        let (Some(manager), Some((operator, ticket))) = (manager, &mut self.operator) else { return };
        let call = match outcome {
            None => operator.begin(now, manager),
            Some(outcome) => operator.next(now, outcome, (manager, map)),
        };
        if let Some(call) = call {
            *ticket = Some(self.shell.submit(now, OPERATOR, call.within(CALL_TIMEOUT)));
        }
    }

    /// Whoever makes backups goes on, or has heard how a call ended.
    fn copy(&mut self, now: u64, goes_on: bool, outcome: Option<Outcome>) {
        let map = self.shell.core().map();
        let manager = map.table(COMMITS).map(|record| Manager::of(record));
        let (Some(manager), Some((copier, ticket))) = (manager, &mut self.copier) else { return };
        let call = match outcome {
            None => copier.step(now, goes_on, (manager, map)),
            Some(outcome) => copier.next(now, outcome, (manager, map)),
        };
        if let Some(call) = call {
            *ticket = Some(self.shell.submit(now, COPIER, call));
        }
    }

    fn go_on(&mut self, now: u64, at: usize, (part, outcome): (Part, Option<Outcome>)) {
        if let Some(back_at) = self.failures.as_mut().and_then(|failures| failures.dies(now)) {
            // What it has asked for is done or not, and nobody hears of it.
            self.managers[at] = self.begun(back_at);
            return;
        }
        let map = self.shell.core().map();
        let Some(pass) = &mut self.managers[at].pass else { return };
        let steps = pass.next(part, outcome, |partition| Owner::of(map, partition));
        self.take_steps(now, at, steps);
    }

    fn take_steps(&mut self, now: u64, at: usize, steps: Steps) {
        for (part, step) in steps {
            let one = &mut self.managers[at];
            match step {
                Step::Call(call) => {
                    let ticket = self.shell.submit(now, one.lane, call.within(CALL_TIMEOUT));
                    one.calls.insert(ticket, part);
                }
                Step::Wait(time) => one.paused.push((now + time.0, part)),
                Step::Done(_) => {}
            }
        }
    }

    /// One that knows nothing of those before it.
    fn begun(&mut self, next_at: u64) -> Passes {
        self.last_lane = LaneId(self.last_lane.0 + 1);
        Passes { lane: self.last_lane, next_at, ..Passes::default() }
    }

    /// A second one comes, or is gone again, in the middle of a pass as well.
    fn double(&mut self, now: u64, goes_on: bool) {
        let Some(failures) = &mut self.failures else { return };
        failures.goes_on = goes_on;
        if !goes_on {
            return self.managers.truncate(1);
        }
        if now < failures.second_at {
            return;
        }
        failures.second_at = now + failures.random.between(500_000, 4_000_000);
        match self.managers.len() {
            1 => {
                let second = self.begun(now);
                self.managers.push(second);
            }
            _ => self.managers.truncate(1),
        }
    }
}

impl Failures {
    /// True if one dies with this step: when the next one begins.
    fn dies(&mut self, now: u64) -> Option<u64> {
        let dies = self.goes_on && self.random.chance(50);
        dies.then(|| now + self.random.between(0, 2_000_000))
    }
}
