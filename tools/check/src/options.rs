//! What a check is asked for.

use local::LocalError;
use local::demo::Fault;
use std::path::PathBuf;
use types::policy::{FailureScenario, Promise};
use types::{LogKind, Policy};

/// Nodes of the cluster.
pub const NODES: u32 = 3;
/// A fault, its end and something on both sides take so long.
const LEAST_SECONDS: u64 = 5;

/// Everything about a check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The program with the subcommands `node` and `controller`.
    pub binary: PathBuf,
    /// The table's policy.
    pub policy: String,
    /// Seconds of load.
    pub seconds: u64,
    /// What happens to nodes, in turn.
    pub faults: Vec<Fault>,
    /// What the choice of operations and of nodes is made from.
    pub seed: u64,
    /// Where a wrong history goes; `None`: a new temporary directory.
    pub output: Option<PathBuf>,
    /// A bank over a database of global transactions instead of rows of one table.
    pub global: bool,
    /// The goals for gaps are part of the verdict, where they apply.
    pub goals: bool,
    /// Settings over every process's configuration: `section.key` and the value.
    pub settings: Vec<(String, String)>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            binary: std::env::current_exe().unwrap_or_else(|_| "understudy".into()),
            policy: "durable".into(),
            seconds: 60,
            faults: vec![Fault::Kill, Fault::Stop, Fault::Cut, Fault::Power],
            seed: 1,
            output: None,
            global: false,
            goals: true,
            settings: Vec::new(),
        }
    }
}

impl CheckOptions {
    /// True if a goal for gaps that is missed makes a check bad. Where acknowledgements rest on the primary
    /// alone it is waited for (PR-85), and a bank's controller is killed as well.
    ///
    /// # Errors
    ///
    /// As [`CheckOptions::policy`].
    pub fn goals_count(&self) -> Result<bool, LocalError> {
        Ok(self.goals && !self.global && !self.policy()?.rests_on().is_primary())
    }

    /// Checks what makes no sense, before anything is started.
    ///
    /// # Errors
    ///
    /// A sentence about the first such thing.
    pub fn check(&self) -> Result<(), LocalError> {
        if self.seconds < LEAST_SECONDS {
            let seconds = self.seconds;
            let why = format!(
                "{seconds} seconds are too few: a fault, its end and both sides need {LEAST_SECONDS}"
            );
            return Err(LocalError::Usage(why));
        }
        if self.faults.is_empty() {
            return Err(LocalError::Usage("name at least one fault: kill, stop, cut or power".into()));
        }
        self.policy().map(drop)
    }

    /// The table's policy.
    ///
    /// # Errors
    ///
    /// If there is none of this name, or it cannot be had here.
    pub fn policy(&self) -> Result<Policy, LocalError> {
        let factor = if self.policy == "none" { 1 } else { NODES as u8 };
        Policy::preset(&self.policy, factor, LogKind::Disk)
            .map_err(|error| LocalError::Usage(error.to_string()))
    }

    /// True if a node that goes takes with it what it has not synced.
    pub fn is_volatile(&self) -> bool {
        self.faults.contains(&Fault::Power)
    }

    /// True if the policy promises that nothing of what may happen here loses anything.
    ///
    /// # Errors
    ///
    /// As [`CheckOptions::policy`].
    pub fn is_promised(&self) -> Result<bool, LocalError> {
        let policy = self.policy()?;
        let mut scenarios =
            vec![FailureScenario::OneCrash, FailureScenario::TwoCrash, FailureScenario::PrimaryCut];
        if self.is_volatile() {
            // Nodes lose power one after the other, before they have caught up.
            scenarios.push(FailureScenario::AllPower);
        }
        Ok(scenarios.into_iter().all(|scenario| policy.promise(scenario) == Promise::Survives))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_starts() {
        let check = |change: fn(&mut CheckOptions)| {
            let mut options = CheckOptions::default();
            change(&mut options);
            let error = options.check().expect_err("refused");
            assert_eq!(error.exit_status(), 2);
            error.to_string()
        };
        assert!(CheckOptions::default().check().is_ok());
        assert!(check(|options| options.seconds = 0).starts_with("0 seconds are too few"));
        assert!(check(|options| options.policy = "best".into()).contains("no policy 'best'"));
        assert!(check(|options| options.policy = "triplet".into()).contains("not available yet"));
        assert!(check(|options| options.faults.clear()).starts_with("name at least one fault"));
    }

    #[test]
    fn goals_count_where_nobody_waits_for_the_old_primary() {
        let count = |policy: &str, change: fn(&mut CheckOptions)| {
            let mut options = CheckOptions { policy: policy.into(), ..CheckOptions::default() };
            change(&mut options);
            options.goals_count().expect("a policy")
        };
        for (policy, counts) in [
            ("durable", true),
            ("sync", true),
            ("semi", true),
            ("async", false),
            ("local", false),
            ("none", false),
        ] {
            assert_eq!(count(policy, |_| ()), counts, "{policy}");
        }
        assert!(!count("durable", |options| options.goals = false));
        assert!(!count("durable", |options| options.global = true));
    }

    #[test]
    fn what_may_be_lost_is_known_before() {
        let promised = |policy: &str, faults: &[Fault]| {
            let options =
                CheckOptions { policy: policy.into(), faults: faults.to_vec(), ..CheckOptions::default() };
            options.is_promised().expect("a policy")
        };
        assert!(promised("durable", &[Fault::Kill, Fault::Power]) && promised("sync", &[Fault::Power]));
        assert!(promised("semi", &[Fault::Kill]) && !promised("semi", &[Fault::Power]));
        for policy in ["async", "local", "none"] {
            assert!(!promised(policy, &[Fault::Kill]), "{policy}");
        }
    }
}
