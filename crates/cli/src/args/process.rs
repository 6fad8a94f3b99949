//! Commands that run processes: nodes, controllers, local clusters, the demo.

use super::cluster::NodeCommand;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `understudy demo`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy demo
  understudy demo --short --fault stop
  understudy demo --data flights.csv.gz --key year,month,day,carrier,flight,origin --null NA")]
pub struct DemoArgs {
    /// The table's policy in the first act.
    #[arg(long, default_value = "durable")]
    pub policy: String,
    /// Nodes.
    #[arg(long, default_value_t = 3)]
    pub nodes: u32,
    /// Seconds of load in each act.
    #[arg(long, default_value_t = 20)]
    pub seconds: u64,
    /// Clients, each with one operation at a time.
    #[arg(long, default_value_t = 10)]
    pub clients: u32,
    /// Partitions of the table.
    #[arg(long, default_value_t = 6)]
    pub partitions: u32,
    /// What happens to the node with the most primaries.
    #[arg(long, value_enum, default_value_t = FaultArg::Kill)]
    pub fault: FaultArg,
    /// Only the first act.
    #[arg(long)]
    pub short: bool,
    /// Real rows instead of a made-up social network.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub data: Option<PathBuf>,
    /// The columns of --data that name each row once.
    #[arg(long, value_delimiter = ',', requires = "data", value_name = "COLUMN,..")]
    pub key: Vec<String>,
    /// The text in --data that stands for no value.
    #[arg(long, requires = "data", value_name = "TEXT")]
    pub null: Option<String>,
    /// Users of the made-up social network.
    #[arg(long, default_value_t = 50_000)]
    pub users: u64,
    /// Seed of the network and of the choice of operations.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write every acknowledged write into this file.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Where the chart and lists go; otherwise a new temporary directory.
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Where the cluster's records are kept.
    #[arg(long, value_enum, default_value_t = MetastoreArg::Embedded)]
    pub metastore: MetastoreArg,
    /// Settings for every process.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
}

/// `understudy check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy check
  understudy check --seconds 60 --faults kill,stop,cut,power --policy durable
  understudy check --policy async --faults power --json
  understudy check --transactions global --policy async
  understudy check --no-goals            on a slow machine: how long a gap was fails nothing")]
pub struct CheckArgs {
    /// Seconds of load.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// What happens to nodes, in turn, to two at once, and to one again as soon as it is back: kill, stop
    /// (frozen), cut, power.
    #[arg(long, value_delimiter = ',', default_value = "kill,stop,cut,power", value_name = "FAULT,..")]
    pub faults: Vec<String>,
    /// The table's policy.
    #[arg(long, default_value = "durable")]
    pub policy: String,
    /// `global`: transfers between accounts of any partitions by global transactions, and snapshots of all
    /// accounts. The controller and the transaction manager's node are hit, too.
    #[arg(long, value_parser = ["global"])]
    pub transactions: Option<String>,
    /// Leaves the goals for gaps out of the verdict, for machines that are slow or have other work.
    #[arg(long)]
    pub no_goals: bool,
    /// Seed of the choice of operations and of nodes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where a wrong history goes; otherwise a new temporary directory.
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Settings for every process.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
}

/// A fault that the demo plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FaultArg {
    /// Its process is killed.
    Kill,
    /// Its process is frozen, with all connections open.
    Stop,
    /// It is cut off from nodes and controllers, but clients reach it.
    Cut,
    /// It loses power: what its log had not synced is gone. Engine files stay as the system has them.
    Power,
}

/// Where a local cluster keeps its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MetastoreArg {
    /// In the one controller.
    Embedded,
    /// In three etcd members; etcd must be installed.
    Etcd,
}

/// `understudy dev`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  understudy dev                         three nodes, in the foreground; data stay in ./understudy-dev
  understudy dev --nodes 5 --reset       begin from nothing
  understudy dev kill 2                  from another terminal: end node 2 as a crash does
  understudy dev restart 2               and start it again; returns when it answers
  understudy dev restart 2 --full        the same, and it is sent everything instead of what it lacks
  understudy dev power-loss              everything loses power at once and is started again"
)]
pub struct DevArgs {
    /// Harm to the cluster that runs.
    #[command(subcommand)]
    pub faults: Option<FaultCommand>,
    /// Nodes; otherwise as many as there were, 3 at first.
    #[arg(long)]
    pub nodes: Option<u32>,
    /// Directories in which each node keeps replicas; otherwise as many as there were, 1 at first.
    #[arg(long)]
    pub data_dirs: Option<u32>,
    /// Begin from nothing.
    #[arg(long)]
    pub reset: bool,
    /// Where the cluster's records are kept.
    #[arg(long, value_enum)]
    pub metastore: Option<MetastoreArg>,
}

/// Harm to a local cluster.
#[derive(Subcommand, Debug)]
pub enum FaultCommand {
    /// End a node's process at once.
    Kill {
        /// The node.
        node: String,
    },
    /// Freeze a node's process: connections stay open and nothing comes.
    Stop {
        /// The node.
        node: String,
    },
    /// Cut a node off from nodes, controllers and clients.
    Cut {
        /// The node.
        node: String,
    },
    /// End a cut, and let a frozen process go on.
    Heal {
        /// The node.
        node: String,
    },
    /// Start a node again, whatever became of it, and wait until it answers.
    #[command(
        after_help = "It answers when a controller has let it in: then it serves clients, and its copies
are brought level. After 30 s the command says what is lacking and ends with status 4;
the node goes on trying."
    )]
    Restart {
        /// The node.
        node: String,
        /// Copies that come back on it ignore what is there and are sent everything; to compare with.
        #[arg(long)]
        full: bool,
        /// Return as soon as its ports are open, whether or not a controller lets it in.
        #[arg(long)]
        no_wait: bool,
    },
    /// Take power from everything at once; what no log had synced is gone, engine files stay as the system
    /// has them. Then start all of it again.
    PowerLoss,
}

/// `understudy node`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  understudy node --config node1.toml    run a node until SIGTERM
  understudy node list
  understudy node add 4                  move copies to node 4, or say how it is started
  understudy node drain 2                hand over everything that node 2 leads
  understudy node remove 4               move everything away from node 4, then forget it"
)]
pub struct NodeArgs {
    /// What to do with nodes of a cluster.
    #[command(subcommand)]
    pub command: Option<NodeCommand>,
    /// How the process is configured.
    #[command(flatten)]
    pub run: RunArgs,
    /// Copies that come back on this node ignore what is there and are sent everything; to compare with
    /// (failback.full).
    #[arg(long)]
    pub full_failback: bool,
}

/// `understudy controller`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  understudy controller --config controller.toml
  understudy controller --config controller.toml --set controller.listen=127.0.0.1:7500
  understudy controller rebuild --from n1:7401,n2:7401,n3:7401 --data-dir /var/lib/understudy-controller
Flags win over the environment (UNDERSTUDY_SECTION_KEY), that over the file, that over defaults."
)]
pub struct ControllerArgs {
    /// What to do with controllers.
    #[command(subcommand)]
    pub command: Option<ControllerCommand>,
    /// How the process is configured.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `understudy controller rebuild`.
#[derive(Subcommand, Debug)]
pub enum ControllerCommand {
    /// Make the cluster's records anew from what the nodes keep, after the metastore was lost.
    #[command(after_help = "Examples:
  understudy controller rebuild --from n1:7401,n2:7401,n3:7401 --data-dir NEW      says what it would write
  understudy controller rebuild --from n1:7401,n2:7401,n3:7401 --data-dir NEW --yes
  understudy controller rebuild --from n1:7401 --config etcd.toml --yes            into etcd, to move there

Nodes are started, controllers are not. Every node is asked; one that is named suffices to find the others. Of each partition the
record of the highest epoch is sealed by a new generation of controllers, and nodes refuse older ones from then on. Refused, with
exit status 5: while a node has a controller, where two records of one epoch differ, and where a node is missing. A missing node may
know a higher epoch: with --accept-missing it returns only as a copy, its tail set aside. The directory must be empty.")]
    Rebuild(RebuildArgs),
}

/// `understudy controller rebuild`.
#[derive(Args, Debug)]
pub struct RebuildArgs {
    /// Addresses of nodes, those for clients.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', required = true)]
    pub from: Vec<String>,
    /// The new controller's data directory: empty, or not there yet.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["config", "set"])]
    pub data_dir: Option<PathBuf>,
    /// The new controller's configuration: it says where the records go, into a directory or into etcd.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A setting over what the file and the environment say.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Go on without nodes that do not answer, or that have lost what they kept.
    #[arg(long)]
    pub accept_missing: bool,
    /// Really.
    #[arg(long)]
    pub yes: bool,
}

/// A process and its configuration.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The configuration, in TOML.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A setting over what the file and the environment say.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Listen beyond this machine although connections are not encrypted.
    #[arg(long)]
    pub insecure: bool,
}

/// `understudy sim`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy sim --seeds 0..100
  understudy sim --seeds 0..2000 --mutant F05    take the rule against a known bug out: it must be found
  understudy sim --seeds 0..14000 --transactions those of them with global transactions, one of seven
  understudy sim --trace 17                      everything that happens in one seed

The simulator drives the very state machines that nodes run. Exit status 1 if a promise was broken; with --mutant, if
the bug was not found. Mutants are in builds with `--features mutants` only.")]
pub struct SimArgs {
    /// Seeds to run: A..B, the last not included.
    #[arg(long, value_name = "A..B", value_parser = seeds, required_unless_present = "trace")]
    pub seeds: Option<std::ops::Range<u64>>,
    /// Take the rule against this finding out.
    #[arg(long, alias = "plant", value_name = "FINDING", value_parser = finding)]
    pub mutant: Option<types::Finding>,
    /// Seeds that are run at the same time; otherwise one per processor.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Run one seed and print all that happens in it.
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    pub trace: Option<u64>,
    /// So many nodes in each seed's world, 1 to 64; otherwise as the seed has it.
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: Option<u32>,
    /// Only seeds whose worlds have transactions over several partitions.
    #[arg(long, conflicts_with_all = ["mutant", "trace"])]
    pub transactions: bool,
    /// Operations of clients per seed, with --trace.
    #[arg(long, requires = "trace", default_value_t = 300)]
    pub operations: u64,
}

/// `understudy init`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy init /var/lib/understudy --node 1
  understudy init /var/lib/understudy-controller --controller

A directory that holds anything is never touched.")]
pub struct InitArgs {
    /// The directory: empty, or not there yet.
    pub data_dir: PathBuf,
    /// For the node with this number.
    #[arg(
        long,
        value_name = "NUMBER",
        conflicts_with = "controller",
        required_unless_present = "controller"
    )]
    pub node: Option<u32>,
    /// For a controller: founds a new cluster.
    #[arg(long)]
    pub controller: bool,
}

/// `understudy config`.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Say whether a configuration is right.
    #[command(after_help = "Example:
  understudy config check --config node1.toml")]
    Check(RunArgs),
    /// Show every setting in force.
    #[command(after_help = "Example:
  understudy config show --config node1.toml --origin")]
    Show {
        /// Which configuration.
        #[command(flatten)]
        run: RunArgs,
        /// Also where each value comes from, and what it is for.
        #[arg(long)]
        origin: bool,
    },
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected section.key=value")?;
    Ok((name.trim().to_string(), value.trim().to_string()))
}

fn seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let parsed =
        text.split_once("..").and_then(|(from, to)| Some(from.trim().parse().ok()?..to.trim().parse().ok()?));
    match parsed {
        Some(seeds) if seeds.start < seeds.end => Ok(seeds),
        _ => Err("expected two numbers such as 0..100, the first below the second".into()),
    }
}

fn finding(text: &str) -> Result<types::Finding, String> {
    let finding = types::Finding::parse(text).ok_or_else(|| {
        let all: Vec<&str> = types::Finding::ALL.iter().map(|finding| finding.id()).collect();
        let others: Vec<&str> = types::Finding::ALIASES.iter().map(|(alias, _)| *alias).collect();
        let (all, others) = (all.join(", "), others.join(", "));
        format!("the findings that can be planted are {all}; {others} are other names of some")
    })?;
    let of_mutants = "this build has no mutants: make one with `cargo build --release --features mutants --target-dir \
                      target/mutants`";
    types::Rules::without(finding).map(|_| finding).ok_or_else(|| of_mutants.to_owned())
}
