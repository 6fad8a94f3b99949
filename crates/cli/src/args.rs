//! The command line: every subcommand with its help.

pub mod backup;
pub mod bench;
pub mod cluster;
pub mod data;
pub mod database;
pub mod plan;
pub mod procedure;
pub mod process;
pub mod sql;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// A partitioned, replicated, transactional data store that outlives its nodes.
#[derive(Parser, Debug)]
#[command(name = "understudy", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  understudy demo                        kill a node under load and see that nothing is lost
  understudy dev                         run three nodes on this machine, in ./understudy-dev
  understudy load flights.csv --table flights --key year,month,day,carrier,flight,origin --create --null NA
  understudy get users 42
  understudy status --watch

Exit status: 0 ok, 1 failed, 2 wrong command line or configuration, 3 not found, 4 unreachable or timed out,
5 refused by a safety check, 6 data corrupt, 7 disk full or IO error.";

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Controllers of the cluster; otherwise the cluster that `understudy dev` runs in --dir.
    #[arg(
        long,
        global = true,
        env = "UNDERSTUDY_CONNECT",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "HOST:PORT"
    )]
    pub connect: Vec<String>,
    /// The directory of a local cluster, as `understudy dev` keeps it.
    #[arg(long, global = true, value_name = "DIR", default_value = local::dev::DEV_DIR)]
    pub dir: PathBuf,
    /// Print JSON: one object, or one per line.
    #[arg(long, global = true)]
    pub json: bool,
    /// How long a command waits for the cluster.
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Play a fault under load, and check that nothing acknowledged is lost.
    Demo(process::DemoArgs),
    /// Record what clients see while nodes fail in turn, and check that one history explains it.
    Check(process::CheckArgs),
    /// Run a cluster on this machine, or do harm to it.
    Dev(process::DevArgs),
    /// Run a node (with --config), or list, add, drain and remove nodes.
    Node(process::NodeArgs),
    /// Run a controller (with --config), or make its records anew from the nodes.
    Controller(process::ControllerArgs),
    /// Prepare an empty data directory for a node or a controller.
    Init(process::InitArgs),
    /// Check or show a configuration.
    #[command(subcommand)]
    Config(process::ConfigCommand),
    /// Play the planner's choices through: where copies go, and who takes over what when nodes fail.
    Plan(plan::PlanArgs),
    /// Simulate clusters under faults, seed by seed, and check every promise.
    Sim(process::SimArgs),
    /// Measure, with ratios and the reason for every miss.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Type commands interactively, with history and completion.
    Shell(ShellArgs),
    /// Type SQL, or run it from a file: the shell of the SQL gateway.
    Sql(sql::SqlArgs),
    /// A verb that the shell knows too.
    #[command(flatten)]
    Verb(Verb),
    /// A stopped node's log: look at entries, or verify all of it.
    #[command(subcommand)]
    Log(cluster::LogCommand),
    /// Back tables up as of one point, restore them, verify a backup.
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    /// Read every replica's files and log back, compare replicas, repair what is damaged.
    Scrub(cluster::ScrubArgs),
    /// Print the version.
    Version,
}

/// Verbs, on a command line as in the shell.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Create, list, alter and drop tables.
    #[command(subcommand)]
    Table(cluster::TableCommand),
    /// Create, list, alter and drop databases: several tables whose rows are written together.
    #[command(subcommand)]
    Database(database::DatabaseCommand),
    /// Create, list and drop indexes of tables.
    #[command(subcommand)]
    Index(data::IndexCommand),
    /// Create, list and drop procedures of a database: programs that run where its rows are.
    #[command(subcommand)]
    Procedure(procedure::ProcedureCommand),
    /// Call a procedure.
    Call(procedure::CallArgs),
    /// Look at global transactions.
    #[command(subcommand)]
    Txn(cluster::TxnCommand),
    /// Write a row, whatever was there.
    Put(data::PutArgs),
    /// Write a row if there is none with its key.
    Insert(data::PutArgs),
    /// Read a row by its key.
    Get(data::GetArgs),
    /// Remove a row by its key.
    Delete(data::KeyArgs),
    /// Read rows in key order.
    Scan(data::ScanArgs),
    /// Count rows.
    Count(data::CountArgs),
    /// Load a file: CSV or NDJSON, also gzipped.
    Load(Box<data::LoadArgs>),
    /// Feed from a file, a directory or standard input, neither skipping nor repeating after a restart.
    Ingest(data::IngestArgs),
    /// What the cluster survives now, who is behind, and all nodes and partitions.
    Status(cluster::StatusArgs),
    /// Failovers: cause, time split, loss.
    #[command(subcommand)]
    Failover(cluster::FailoverCommand),
    /// Partitions: list, move, recover; tails that were set aside.
    #[command(subcommand)]
    Partition(cluster::PartitionCommand),
    /// Hand the lead of partitions to other nodes, without losing anything.
    Switchover(cluster::SwitchoverArgs),
}

/// `understudy shell`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy shell
  echo 'count users' | understudy shell --json")]
pub struct ShellArgs {
    /// Where the history is kept; otherwise `.understudy_history` in the home directory.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
}

/// A line of the shell.
#[derive(Parser, Debug)]
#[command(
    name = "understudy",
    no_binary_name = true,
    disable_help_flag = false,
    arg_required_else_help = true
)]
pub struct Line {
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// The verb.
    #[command(subcommand)]
    pub verb: LineVerb,
}

/// What a line of the shell can be.
#[derive(Subcommand, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, as long as a line is carried out")]
pub enum LineVerb {
    /// As on a command line.
    #[command(flatten)]
    Verb(Verb),
    /// List, add, drain and remove nodes.
    #[command(subcommand)]
    Node(cluster::NodeCommand),
}

/// What was wrong with a command line, in one sentence.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim);
    let said: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let said = said.join(" ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    format!("{said}; `--help` behind the command says what it takes")
}

/// Reads `500ms`, `2s`, `5m`; a number alone is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| "expected a time such as 500ms, 2s or 5m".to_string())?;
    let seconds = match unit.trim() {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("`{unit}` is no unit of time; ms, s, m and h are")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Reads the time that a failover may replay, in milliseconds; `none` is 0.
pub fn target(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        text => duration(text).map(|time| time.as_millis() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        Line::command().debug_assert();
    }

    #[test]
    fn durations() {
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "2 years", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_one_sentence() {
        let error = Cli::try_parse_from(["understudy", "table", "creat"]).expect_err("wrong");
        let said = sentence(&error);
        assert!(said.starts_with("unrecognized subcommand 'creat'"), "{said}");
        assert!(!said.contains('\n') && said.contains("--help"), "{said}");
    }

    #[test]
    fn node_runs_with_a_configuration_and_has_verbs() {
        let parse = |words: &[&str]| Cli::try_parse_from(words);
        assert!(parse(&["understudy", "node", "--config", "n.toml"]).is_ok());
        assert!(parse(&["understudy", "node", "list"]).is_ok());
        assert!(parse(&["understudy", "node", "drain", "2", "--connect", "127.0.0.1:1"]).is_ok());
        assert!(parse(&["understudy", "put", "t", "id=-5", "--row", "{}"]).is_ok());
        assert!(parse(&["understudy", "get", "t", "-5"]).is_ok());
    }

    #[test]
    fn every_command_shows_an_example() {
        let mut lacking = Vec::new();
        for command in Cli::command().get_subcommands() {
            let own = command.get_after_help().is_some();
            let below = command.get_subcommands().all(|command| command.get_after_help().is_some());
            if !own && (command.get_subcommands().count() == 0 || !below) {
                lacking.push(command.get_name().to_string());
            }
        }
        assert!(lacking.iter().all(|name| name == "version"), "{lacking:?}");
    }
}
