//! One seed: run it, and say what came of it. A panic of a state machine is a violation, with its text.

use crate::check::Violation;
use crate::check::backups::Backup;
use crate::plan::RunPlan;
use crate::plan::transactions::has_transactions;
use crate::world::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use types::Finding;

/// How a seed is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The rule that is taken out.
    pub mutant: Option<Finding>,
    /// Biases faults and policies towards what brings this finding to light; its rule stays in unless it is
    /// planted.
    pub profile: Option<Finding>,
    /// Client operations.
    pub operations: u64,
    /// Keep every line of the trace.
    pub verbose: bool,
    /// So many nodes instead of the seed's own: 1 to 64.
    pub nodes: Option<u32>,
    /// Of a range of seeds only those are run whose worlds have global transactions.
    pub transactions: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mutant: None,
            profile: None,
            operations: 300,
            verbose: false,
            nodes: None,
            transactions: false,
        }
    }
}

impl Options {
    /// With this rule out, and the faults that bring it to light.
    pub fn of_mutant(finding: Finding) -> Options {
        Options { mutant: Some(finding), profile: Some(finding), ..Options::default() }
    }

    /// True if this seed of a range is run.
    pub fn chooses(&self, seed: u64) -> bool {
        !self.transactions || has_transactions(seed)
    }
}

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Promises that were broken; the run ends with the first.
    pub violations: Vec<Violation>,
    /// Client operations that ended.
    pub operations: u64,
    /// Virtual time that passed, microseconds.
    pub simulated_us: u64,
    /// Changes of primaries, over all partitions.
    pub primary_changes: u64,
    /// The most changes of one partition's primary.
    pub most_changes: u64,
    /// How long each failover took after which nothing else befell: from the fault that took the primary to
    /// the first request that the next one served. Virtual microseconds.
    pub failovers: Vec<u64>,
    /// How long it took each time until a partition was served again that could be, from the last fault that
    /// concerned it, or from when it could be. Virtual microseconds.
    pub closures: Vec<u64>,
    /// How often each class of faults struck.
    pub faults: BTreeMap<&'static str, u64>,
    /// The hash of the trace.
    pub trace_hash: u64,
    /// The hash of the events' numbers: the same as long as behaviour is, whatever the words are.
    pub event_hash: u64,
    /// The trace: all of it if that was asked for, else its end.
    pub trace: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        for violation in &self.violations {
            writeln!(f, "seed {} {}: {}", self.seed, violation.id, violation.sentence)?;
        }
        write!(f, "seed {} trace {:016x}", self.seed, self.trace_hash)
    }
}

impl Outcome {
    /// With what came of the cluster that a backup of this one was restored into.
    fn and_elsewhere(mut self, other: Outcome) -> Outcome {
        self.operations += other.operations;
        self.simulated_us += other.simulated_us;
        for (what, count) in other.faults.into_iter().filter(|(what, _)| what.starts_with("backup-")) {
            *self.faults.entry(what).or_default() += count;
        }
        self.trace.push("the last backup is restored into another cluster".into());
        self.trace.extend(other.trace);
        self.violations = other.violations;
        for violation in &mut self.violations {
            violation.seed = self.seed;
            violation.sentence.insert_str(0, "where a backup is restored into another cluster: ");
        }
        self
    }
}

/// Runs a seed; and if a backup was made in it, another cluster into which that is restored.
pub fn run(seed: u64, options: Options) -> Outcome {
    let plan = RunPlan::new(seed, options.operations, options.profile);
    let plan = match options.nodes {
        Some(nodes) => plan.with_nodes(nodes),
        None => plan,
    };
    let (outcome, backup) = run_plan(seed, plan, options);
    match backup.filter(|_| outcome.violations.is_empty() && options.profile.is_none()) {
        Some(backup) => {
            let (other, plan) = RunPlan::elsewhere(seed, backup);
            outcome.and_elsewhere(run_plan(other, plan, options).0)
        }
        None => outcome,
    }
}

/// Runs a world. Beside what came of it, the last backup that was made in it.
fn run_plan(seed: u64, plan: RunPlan, options: Options) -> (Outcome, Option<Backup>) {
    let mut world = World::new(seed, plan, RunPlan::rules(options.mutant), options.verbose);
    let run = catching(|| {
        world.run();
        world.finish();
    });
    if let Err(text) = run {
        let now = world.now();
        world.checks_mut().fault("panic", now, text);
    }
    let (hash, tail) = (world.trace().hash(), world.trace().tail());
    for violation in world.checks_mut().violations_mut() {
        violation.seed = seed;
        violation.trace.clone_from(&tail);
    }
    let outcome = Outcome {
        seed,
        violations: world.checks().violations().to_vec(),
        operations: world.operations(),
        simulated_us: world.now(),
        primary_changes: world.checks().epochs.primary_changes(),
        most_changes: world.checks().epochs.most_changes(),
        failovers: world.checks().availability.failovers().to_vec(),
        closures: world.checks().availability.closures().to_vec(),
        faults: world.injections().clone(),
        trace_hash: hash,
        event_hash: world.trace().structure(),
        trace: world.trace().lines(),
    };
    (outcome, world.last_backup().cloned())
}

thread_local! {
    /// The text of the last panic, on threads that simulate.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `act`; a panic in it is an error with its text and place.
fn catching(act: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = PANIC.with_borrow_mut(|text| match text {
                Some(text) => {
                    *text = info.to_string();
                    true
                }
                None => false,
            });
            if !ours {
                before(info);
            }
        }));
    });
    PANIC.set(Some(String::new()));
    let caught = catch_unwind(AssertUnwindSafe(act));
    let text = PANIC.take().unwrap_or_default();
    caught.map_err(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_text() {
        let text = catching(|| panic!("R3: something impossible")).unwrap_err();
        assert!(text.contains("R3: something impossible"), "{text}");
        assert_eq!(catching(|| {}), Ok(()));
    }
}
