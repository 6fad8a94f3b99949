//! What the demo is asked for.

use super::dataset::Source;
use crate::cluster::Metastore;
use crate::error::LocalError;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use types::policy::FailureScenario;
use types::{LogKind, Policy};

/// What happens to the node with the most primaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// Its process is killed, and started again later.
    #[default]
    Kill,
    /// Its process is frozen with all its connections open, and goes on later.
    Stop,
    /// It is cut off from nodes and controllers, and healed later. Clients reach it, and it must not answer
    /// them as a primary.
    Cut,
    /// Its process is killed and what it had not synced is gone; started again later.
    Power,
}

impl Fault {
    /// What a policy must promise for it.
    pub fn failure_scenario(self) -> FailureScenario {
        match self {
            Fault::Cut => FailureScenario::PrimaryCut,
            Fault::Kill | Fault::Stop | Fault::Power => FailureScenario::OneCrash,
        }
    }

    /// What happened, in two words.
    pub fn done(self) -> &'static str {
        match self {
            Fault::Kill => "killed",
            Fault::Stop => "stopped",
            Fault::Cut => "cut off",
            Fault::Power => "lost power",
        }
    }

    /// How the node comes back.
    pub fn undone(self) -> &'static str {
        match self {
            Fault::Kill | Fault::Power => "started again",
            Fault::Stop => "continued",
            Fault::Cut => "healed",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Kill => "kill",
            Fault::Stop => "stop",
            Fault::Cut => "cut",
            Fault::Power => "power",
        })
    }
}

impl FromStr for Fault {
    type Err = LocalError;

    fn from_str(text: &str) -> Result<Fault, LocalError> {
        let all = [Fault::Kill, Fault::Stop, Fault::Cut, Fault::Power];
        let found = all.into_iter().find(|fault| fault.to_string() == text);
        found.ok_or_else(|| {
            LocalError::Usage(format!("there is no fault `{text}`; choose one of kill, stop, cut, power"))
        })
    }
}

/// Everything about a run of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The program with the subcommands `node` and `controller`.
    pub binary: PathBuf,
    /// The policy of the first act.
    pub policy: String,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Seconds of load per act.
    pub seconds: u64,
    /// Closed-loop clients.
    pub clients: u32,
    /// Partitions of the table.
    pub partitions: u32,
    /// The fault of the first act.
    pub fault: Fault,
    /// Without the second act.
    pub short: bool,
    /// A file of rows; `None`: a made-up social network.
    pub data: Option<PathBuf>,
    /// The columns that name a row of that file.
    pub key: Vec<String>,
    /// The text in that file that stands for no value.
    pub null: Option<String>,
    /// Users of the social network.
    pub users: u64,
    /// What the social network and the choice of operations are made from.
    pub seed: u64,
    /// Where every acknowledged write is written to.
    pub journal: Option<PathBuf>,
    /// Where the chart and the lists go; `None`: a new temporary directory.
    pub output: Option<PathBuf>,
    /// Where the cluster's records are kept.
    pub metastore: Metastore,
    /// Settings over every process's configuration: `section.key` and the value.
    pub settings: Vec<(String, String)>,
}

impl Default for DemoOptions {
    fn default() -> DemoOptions {
        DemoOptions {
            binary: std::env::current_exe().unwrap_or_else(|_| "understudy".into()),
            policy: "durable".into(),
            nodes: 3,
            seconds: 20,
            clients: 10,
            partitions: 6,
            fault: Fault::Kill,
            short: false,
            data: None,
            key: Vec::new(),
            null: None,
            users: 50_000,
            seed: 1,
            journal: None,
            output: None,
            metastore: Metastore::Embedded,
            settings: Vec::new(),
        }
    }
}

impl DemoOptions {
    /// Checks what does not fit together, before anything is started.
    pub fn check(&self) -> Result<(), LocalError> {
        let usage = |why: String| Err(LocalError::Usage(why));
        match (&self.data, self.key.is_empty(), &self.null) {
            (Some(_), true, _) => {
                return usage("--data needs --key: the columns that name each row once".into());
            }
            (None, false, _) => return usage("--key says nothing without --data".into()),
            (None, _, Some(_)) => return usage("--null says nothing without --data".into()),
            _ => {}
        }
        if self.seconds < 6 {
            return usage(format!(
                "{} seconds are too few: a fault, a return and both sides need 6",
                self.seconds
            ));
        }
        if !(1..=1000).contains(&self.clients) {
            return usage(format!("the demo has 1 to 1000 clients, not {}", self.clients));
        }
        if !(1..=256).contains(&self.partitions) {
            return usage(format!("the demo's table has 1 to 256 partitions, not {}", self.partitions));
        }
        if self.nodes < 2 && self.policy != "none" {
            return usage("one node alone can keep no copies; choose --nodes 3, or --policy none".into());
        }
        self.policy_of(&self.policy).map(|_| ())
    }

    /// The policy that a table of this name gets on this many nodes.
    pub fn policy_of(&self, name: &str) -> Result<Policy, LocalError> {
        let policy = Policy::preset(name, self.factor(name), LogKind::Disk);
        policy.map_err(|error| LocalError::Usage(error.to_string()))
    }

    /// Copies of each partition.
    pub fn factor(&self, policy: &str) -> u8 {
        if policy == "none" { 1 } else { self.nodes.min(3) as u8 }
    }

    /// Where rows come from.
    pub fn source(&self) -> Source {
        match &self.data {
            Some(path) => Source::File { path: path.clone(), key: self.key.clone(), null: self.null.clone() },
            None => Source::Users { count: self.users, seed: self.seed },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_before_anything_starts() {
        let check = |change: fn(&mut DemoOptions)| {
            let mut options = DemoOptions::default();
            change(&mut options);
            let error = options.check().expect_err("refused");
            assert_eq!(error.exit_status(), 2);
            error.to_string()
        };
        assert!(DemoOptions::default().check().is_ok());
        assert!(check(|options| options.data = Some("x".into())).starts_with("--data needs --key"));
        assert!(check(|options| options.null = Some("NA".into())).starts_with("--null says nothing"));
        assert!(check(|options| options.seconds = 1).contains("too few"));
        assert!(check(|options| options.policy = "triplet".into()).contains("not available yet"));
        assert!(check(|options| options.policy = "best".into()).contains("no policy 'best'"));
        assert!(check(|options| options.nodes = 1).contains("can keep no copies"));
        assert!("rain".parse::<Fault>().expect_err("none").to_string().contains("kill, stop, cut"));
        assert_eq!("cut".parse::<Fault>().expect("one"), Fault::Cut);
    }
}
