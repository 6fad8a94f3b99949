//! The controllers' processes, and what each of them knows.

use crate::clock::Clock;
use crate::random::Stream;
use controller::{Controller, Identity, Input, Output};
use types::{ClusterId, Micros, Rules};

/// A controller and its machine.
struct ControllerProcess {
    clock: Clock,
    running: Option<(u64, Controller)>,
    seed: u64,
    /// It hears of changes late until then.
    stale_until: u64,
    /// It plans whoever else does.
    plans: bool,
    /// It is of before the records were made anew, and has a metastore of its own.
    is_old: bool,
}

/// All controllers.
pub(super) struct Controllers(Vec<ControllerProcess>);

impl Controllers {
    /// So many, none of which runs. Their clocks are drawn from `shape`.
    pub fn new(count: u32, shape: &mut Stream) -> Controllers {
        let process = |_| {
            let clock = Clock::new(0, shape.between(10_000_000, 900_000_000));
            ControllerProcess {
                clock,
                running: None,
                seed: shape.next(),
                stale_until: 0,
                plans: false,
                is_old: false,
            }
        };
        Controllers((0..count).map(process).collect())
    }

    /// There is another one, of before the records were made anew. Gives its number.
    pub fn add_old(&mut self, clock: Clock, seed: u64) -> u32 {
        let id = self.0.len() as u32;
        let (running, stale_until) = (None, 0);
        self.0.push(ControllerProcess { clock, running, seed, stale_until, plans: true, is_old: true });
        id
    }

    fn of_now(&self) -> impl Iterator<Item = &ControllerProcess> {
        self.0.iter().filter(|process| !process.is_old)
    }

    fn get(&self, id: u32) -> &ControllerProcess {
        &self.0[id as usize]
    }

    fn get_mut(&mut self, id: u32) -> &mut ControllerProcess {
        &mut self.0[id as usize]
    }

    /// Which of its lives runs; none if none does.
    pub fn incarnation(&self, id: u32) -> Option<u64> {
        self.get(id).running.as_ref().map(|(incarnation, _)| *incarnation)
    }

    /// A process starts. False if one runs.
    pub fn start(&mut self, id: u32, incarnation: u64, rules: Rules) -> bool {
        let process = self.get_mut(id);
        if process.running.is_some() {
            return false;
        }
        let identity = Identity { cluster: ClusterId(7), seed: process.seed ^ incarnation.rotate_left(32) };
        let controller = Controller::new(identity, controller::Settings { rules, ..settings() });
        process.running = Some((incarnation, controller));
        process.stale_until = 0;
        true
    }

    /// True if all run, hear of changes, and one plans.
    pub fn are_well(&self, now: u64) -> bool {
        let well = |process: &ControllerProcess| {
            process.running.is_some() && process.stale_until <= now && !process.plans
        };
        self.of_now().all(well)
    }

    /// The process ends. False if none ran.
    pub fn end(&mut self, id: u32) -> bool {
        self.get_mut(id).running.take().is_some()
    }

    /// Whether a controller is to begin to plan, or to stop; none if it does as it should. The first that
    /// runs plans, and who does so whoever else does. Here another one begins at once, where in a cluster it
    /// waits until a lease of etcd has run out, and two may plan for a moment, as there: nothing that is
    /// planned rests on its being planned by one alone (PR-10), since all of it is compared when it is
    /// written, or is advice that counts in one epoch (F16), and failovers need nobody who plans.
    pub fn is_to_lead(&self, id: u32) -> Option<bool> {
        let first = self.of_now().position(|process| process.running.is_some());
        let plans = first == Some(id as usize) || self.get(id).plans;
        let (_, controller) = self.get(id).running.as_ref()?;
        (controller.is_leading() != plans).then_some(plans)
    }

    /// The newest revision of the metastore that a controller knows of, if it runs and hears of changes now.
    pub fn hears_from(&self, id: u32, now: u64) -> Option<u64> {
        let process = self.get(id);
        let (_, controller) = process.running.as_ref()?;
        (process.stale_until <= now).then(|| controller.revision())
    }

    /// Hands an input to a controller, if it runs: which life took it, and what it asks to be done, in order.
    ///
    /// # Errors
    ///
    /// What does not hold of its state afterwards.
    pub fn think(&mut self, id: u32, now: u64, input: Input) -> Result<Option<(u64, Vec<Output>)>, String> {
        let process = self.get_mut(id);
        let clock = process.clock.read(now);
        let Some((incarnation, controller)) = &mut process.running else { return Ok(None) };
        let outputs = controller.handle(clock, input);
        controller.validate().map_err(|reason| format!("c{id}: {reason}"))?;
        Ok(Some((*incarnation, outputs)))
    }

    /// A controller hears of changes late until then.
    pub fn stale(&mut self, id: u32, until: u64) {
        self.get_mut(id).stale_until = until;
    }

    /// A controller plans whoever else does, or not any more.
    pub fn plans(&mut self, id: u32, plans: bool) {
        self.get_mut(id).plans = plans;
    }

    /// Their troubles are over: these do not run.
    pub fn heal(&mut self, now: u64) -> Vec<u32> {
        for process in self.0.iter_mut().filter(|process| !process.is_old) {
            (process.stale_until, process.plans) = (now, false);
        }
        let stopped = self.of_now().zip(0..).filter(|(process, _)| process.running.is_none());
        stopped.map(|(_, id)| id).collect()
    }
}

/// Controllers' settings in the simulator: shorter patience, so that what it leads to is seen.
fn settings() -> controller::Settings {
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
