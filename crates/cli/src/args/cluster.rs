//! Commands on tables, nodes, partitions and logs.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `understudy table`.
#[derive(Subcommand, Debug)]
pub enum TableCommand {
    /// Create a table.
    #[command(after_help = "Examples:
  understudy table create users --columns 'id:int,name:text!,born:date,tags:json' --key id
  understudy table create events --columns 'device:text,at:timestamp,value:float' --key device,at \\
      --partition-by 1 --partitions 12 --policy semi
  understudy table create cache --columns 'k:text,v:bytes' --key k --engine memory --log memory --policy semi
  understudy table create accounts --database bank --columns 'id:int,balance:int' --key id

Types: int, float, decimal, text, bytes, bool, date, timestamp, json. A ! behind a type means: never null.
Policies: none, async, semi, local, durable, sync.")]
    Create {
        /// Its name.
        name: String,
        /// Its columns.
        #[arg(long, value_name = "NAME:TYPE,..")]
        columns: String,
        /// The columns of its key.
        #[arg(long, value_delimiter = ',', required = true, value_name = "COLUMN,..")]
        key: Vec<String>,
        /// Make it in this database, as which it is kept. Commands know it as DATABASE.NAME.
        #[arg(long, conflicts_with_all = ["partition_by", "partitions", "factor", "policy", "min_in_sync",
            "available", "engine", "log", "standby", "failover_target", "placement"])]
        database: Option<String>,
        /// How it is kept.
        #[command(flatten)]
        options: CreateOptions,
    },
    /// List tables.
    #[command(after_help = "Example:
  understudy table list --json
  understudy table list --database bank")]
    List {
        /// The tables of this database.
        #[arg(long)]
        database: Option<String>,
    },
    /// Change what a table's commits promise, how many copies there are, or add columns, while it serves.
    #[command(after_help = "Examples:
  understudy table alter users --policy sync
  understudy table alter users --factor 3       copies are made, or removed, while rows are written
  understudy table alter users --available      go on with fewer copies than min_in_sync
  understudy table alter users --standby cold   backups keep the log and files, and apply nothing
  understudy table alter users --add-column note:text,seen:timestamp")]
    Alter {
        /// Its name.
        name: String,
        /// The new policy.
        #[arg(long)]
        policy: Option<String>,
        /// How many copies there are; those that stay are not moved.
        #[arg(long, value_name = "COPIES")]
        factor: Option<u8>,
        /// The fewest copies with which commits go on.
        #[arg(long, value_name = "COPIES")]
        min_in_sync: Option<u8>,
        /// Go on below that; every answer says how many copies there are.
        #[arg(long, conflicts_with = "strict")]
        available: bool,
        /// Stop below that.
        #[arg(long)]
        strict: bool,
        /// What backups do with commits.
        #[arg(long, value_enum)]
        standby: Option<StandbyArg>,
        /// At most so much time of log is to be replayed in a failover, as 500ms; `none`: what the log's
        /// budget allows.
        #[arg(long, value_name = "TIME", value_parser = super::target)]
        failover_target: Option<u64>,
        /// Columns that the table gets; rows that are there have null in them.
        #[arg(long, value_name = "NAME:TYPE,..")]
        add_column: Option<String>,
    },
    /// Drop a table with all its rows.
    #[command(after_help = "Example:
  understudy table drop users --yes")]
    Drop {
        /// Its name.
        name: String,
        /// Really.
        #[arg(long)]
        yes: bool,
    },
}

/// How a new table is kept.
#[derive(Args, Clone, Debug)]
pub struct CreateOptions {
    /// How many leading columns of the key choose the partition; otherwise all.
    #[arg(long, value_name = "COLUMNS")]
    pub partition_by: Option<usize>,
    /// Rows may have fields that are not columns.
    #[arg(long)]
    pub open: bool,
    /// Partitions.
    #[arg(long, default_value_t = 6)]
    pub partitions: u32,
    /// Copies; otherwise 3, or as many as there are nodes.
    #[arg(long, value_name = "COPIES")]
    pub factor: Option<u8>,
    /// What each copy must have done before a commit is acknowledged.
    #[arg(long, default_value = "durable")]
    pub policy: String,
    /// The fewest copies with which commits go on.
    #[arg(long, value_name = "COPIES")]
    pub min_in_sync: Option<u8>,
    /// Go on below that; every answer says how many copies there are.
    #[arg(long)]
    pub available: bool,
    /// Where rows are kept.
    #[arg(long, value_enum, default_value_t = EngineArg::Lsm)]
    pub engine: EngineArg,
    /// Where the log is kept.
    #[arg(long, value_enum, default_value_t = LogArg::Disk)]
    pub log: LogArg,
    /// What backups do with commits.
    #[arg(long, value_enum, default_value_t = StandbyArg::Hot)]
    pub standby: StandbyArg,
    /// At most so much time of log is to be replayed in a failover, as 500ms: primaries flush early enough
    /// for it.
    #[arg(long, value_name = "TIME", value_parser = super::target)]
    pub failover_target: Option<u64>,
    /// Where copies go: chained, interleaved, mirrored or spread (`understudy plan` compares them); or a file
    /// with the nodes of each partition, one line per partition, or a JSON list of lists.
    #[arg(long, value_name = "SCHEME|FILE")]
    pub placement: Option<PathBuf>,
}

/// An engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum EngineArg {
    /// A log-structured merge tree on disk.
    Lsm,
    /// In memory, with snapshots on disk.
    Memory,
}

/// What backups do with commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum StandbyArg {
    /// Apply them at once: failover takes milliseconds, and backups can be read.
    Hot,
    /// Keep the log and the primary's files: less work, and a failover replays what is not in files. Needs
    /// engine lsm.
    Cold,
}

impl From<StandbyArg> for types::policy::Standby {
    fn from(standby: StandbyArg) -> types::policy::Standby {
        match standby {
            StandbyArg::Hot => types::policy::Standby::Hot,
            StandbyArg::Cold => types::policy::Standby::Cold,
        }
    }
}

/// What backups are sent of calls of procedures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ShipArg {
    /// What they have written.
    Effects,
    /// The calls, which backups make themselves: less to send where a call writes much.
    Calls,
}

impl From<ShipArg> for types::Ship {
    fn from(ship: ShipArg) -> types::Ship {
        match ship {
            ShipArg::Effects => types::Ship::Effects,
            ShipArg::Calls => types::Ship::Calls,
        }
    }
}

/// A place for a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogArg {
    /// The node's write-ahead log.
    Disk,
    /// Memory only.
    Memory,
}

/// How far a transaction reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TransactionsArg {
    /// Over the rows of one partition.
    Partition,
    /// Over all partitions of the database.
    Global,
}

/// `understudy txn`.
#[derive(Subcommand, Debug)]
pub enum TxnCommand {
    /// How far the commits of global transactions have come in each partition.
    #[command(after_help = "Examples:
  understudy txn status
  understudy txn status --json

A commit is durable in the transaction manager's log from its acknowledgement on. It is flushed when its partition
has it, and secured when every copy that counts has it on disk. What is secured everywhere is removed from the
manager's log a while later. The status also says how many are committed, flushed and secured, for how long the oldest
ones have not been, which partition holds them back, what operators have given up, and an alarm where too many commits wait for
too long (limits.commits_alarm, timing.commits_alarm_ms).")]
    Status,
    /// Bring a partition the commits that it lacks, and have the manager go on behind those that only it has.
    #[command(after_help = "Examples:
  understudy txn recover 66
  understudy txn recover p66            as other commands print it

The recovery manager brings partitions what they lack by itself. This does it now for one of them, whatever becomes of the
others. A forced promotion of sys_commits may have lost commits which partitions have: such a partition takes no commits until
this was said. It keeps what it has; other partitions may lack their parts of the same transactions, and that is noted.")]
    Recover {
        /// The partition: its number, with or without the p before it, or TABLE/0 for a table's first.
        partition: String,
    },
    /// Give up commits that a partition lacks and that are not kept any more: the last word, and a loss.
    #[command(after_help = "Example:
  understudy txn skip 66 --accept-loss

If a copy was forced to lead that lacks what all had secured, the commits between are nowhere. Reads of the partition fail until
they are given up. `txn status` goes on saying what was.")]
    Skip {
        /// The partition: its number, with or without the p before it, or TABLE/0 for a table's first.
        partition: String,
        /// What the partition lacks is lost. Without this it is only said.
        #[arg(long)]
        accept_loss: bool,
    },
}

/// `understudy node list|add|drain|remove`.
#[derive(Subcommand, Debug)]
pub enum NodeCommand {
    /// List nodes.
    List,
    /// Move copies to a node until it has as many as the others, within one; for a node that is not there
    /// yet, say how it is started. Takes back a removal or a drain.
    #[command(after_help = "Example:
  understudy node add 4

A node registers itself when it starts, and until it is added it only stands in where copies are missing. Copies are moved two at
a time and only from nodes that have at least two more; each is in sync on the new node before the old one goes. Tables
whose placement was written down (table create --placement FILE) stay where they are. Progress is shown; when nothing has changed
for --timeout the command ends with status 4, and the moves go on.")]
    Add {
        /// The node.
        node: String,
    },
    /// Hand over everything that a node leads, and let it lead nothing more.
    #[command(after_help = "Example:
  understudy node drain 2

Its copies stay, and are kept up to date. `node list` says `draining` while it leads something, then `drained` (JSON: `drained`).
A drain ends when the node's process is started again, and with `understudy node add 2`: from then on it may lead again.")]
    Drain {
        /// The node.
        node: String,
    },
    /// Move everything away from a node, then forget it: its process ends, and its data directory is of no
    /// use any more.
    #[command(after_help = "Example:
  understudy node remove 4

A node that is gone for good is removed in the same way. Refused, with exit status 5 and a list, while the node holds the last
living copy of anything, and while a table has more copies than there would be nodes. Refused without --yes, too, if it led
partitions under async or local when it failed and has not been back: commits that it alone acknowledged go with it. Each copy is in sync elsewhere before the
old one goes. Progress is shown; when nothing has changed for --timeout the command ends with status 4, and the removal goes
on; `understudy node add` takes it back.")]
    Remove {
        /// The node.
        node: String,
        /// Also with commits that it may have acknowledged alone.
        #[arg(long)]
        yes: bool,
    },
}

/// `understudy status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy status
  understudy status --watch
  understudy status --json")]
pub struct StatusArgs {
    /// Show it again every second.
    #[arg(long)]
    pub watch: bool,
    /// List every partition, however many there are.
    #[arg(long)]
    pub all: bool,
}

/// `understudy failover`.
#[derive(Subcommand, Debug)]
pub enum FailoverCommand {
    /// List failovers, newest last.
    #[command(after_help = "Example:
  understudy failover list")]
    List,
}

/// `understudy partition`.
#[derive(Subcommand, Debug)]
pub enum PartitionCommand {
    /// List partitions with their replicas.
    #[command(after_help = "Examples:
  understudy partition list
  understudy partition list users")]
    List {
        /// Only those of this table.
        table: Option<String>,
    },
    /// Move a replica to another node.
    #[command(after_help = "Example:
  understudy partition move 64 --from 1 --to 4")]
    Move {
        /// The partition: its number, or TABLE/0 for a table's first.
        partition: String,
        /// From this node.
        #[arg(long, value_name = "NODE")]
        from: String,
        /// To this node.
        #[arg(long, value_name = "NODE")]
        to: String,
    },
    /// Promote a living replica although acknowledged commits may be lost.
    #[command(after_help = "Examples:
  understudy partition recover 64             says what may be lost, and does nothing
  understudy partition recover 64 --yes")]
    Recover {
        /// The partition: its number, or TABLE/0 for a table's first.
        partition: String,
        /// This node's replica; otherwise the one with the longest log.
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
        /// Really.
        #[arg(long)]
        yes: bool,
    },
    /// Tails of old primaries that were set aside.
    #[command(subcommand)]
    #[command(after_help = "Examples:
  understudy partition tails list
  understudy partition tails export 64-2-11-12.tail --node 1 > tail.ndjson")]
    Tails(TailsCommand),
}

/// `understudy partition tails`.
#[derive(Subcommand, Debug)]
pub enum TailsCommand {
    /// List them: as nodes and failovers report them, or those of a data directory.
    List {
        /// Look into this data directory instead of asking the cluster.
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
    /// Print a tail's entries, one JSON object per line: rows with their columns (`values`) if the cluster
    /// can be asked for them, and in hexadecimal digits in any case.
    Export {
        /// The tail's file, as `list` shows it.
        file: String,
        /// Where it lies.
        #[command(flatten)]
        place: TailPlace,
    },
    /// Delete a tail for good.
    Discard {
        /// The tail's file, as `list` shows it.
        file: String,
        /// Where it lies.
        #[command(flatten)]
        place: TailPlace,
        /// Really.
        #[arg(long)]
        yes: bool,
    },
}

/// Where a tail lies.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct TailPlace {
    /// In this data directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// On this node of the local cluster in --dir.
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

/// `understudy switchover`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy switchover 64 --to 2        hand partition 64 to node 2
  understudy switchover users/0          hand it to the node placed first
  understudy switchover --balance        bring all leads back to where they were placed")]
pub struct SwitchoverArgs {
    /// The partition: its number, or TABLE/0 for a table's first.
    #[arg(required_unless_present = "balance")]
    pub partition: Option<String>,
    /// The node that is to lead; otherwise the one placed first.
    #[arg(long, value_name = "NODE", requires = "partition")]
    pub to: Option<String>,
    /// All partitions, as they were placed.
    #[arg(long, conflicts_with_all = ["partition", "to"])]
    pub balance: bool,
}

/// `understudy log`.
#[derive(Subcommand, Debug)]
pub enum LogCommand {
    /// Print the entries of a stopped node's log.
    #[command(after_help = "Examples:
  understudy log dump --data-dir understudy-dev/node-1 --partition 64 --limit 20
  understudy log dump --data-dir understudy-dev/node-1 --json")]
    Dump {
        /// Where it is.
        #[command(flatten)]
        place: LogPlace,
        /// Only this partition.
        #[arg(long)]
        partition: Option<String>,
        /// Only from this LSN on.
        #[arg(long, default_value_t = 1, value_name = "LSN")]
        from: u64,
        /// At most so many entries.
        #[arg(long, value_name = "ENTRIES")]
        limit: Option<u64>,
    },
    /// Read all of a stopped node's log and check every entry; exit status 6 on damage.
    #[command(after_help = "Example:
  understudy log verify --data-dir understudy-dev/node-1")]
    Verify {
        /// Where it is.
        #[command(flatten)]
        place: LogPlace,
    },
}

/// `scrub`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy scrub
  understudy scrub --table users --repair

Every replica reads its component files and its log back, as fast as `scrub.bytes_per_second` of its node allows, and
compares them with their checksums; then the replicas of each partition are compared with each other at one LSN.
With --repair a damaged replica gives itself up and is sent good data, one after the other, unless it is the last good one.
Exit status 1 if damage was found that was not repaired, 4 if a replica could not be read.")]
pub struct ScrubArgs {
    /// Only this table.
    #[arg(long)]
    pub table: Option<String>,
    /// Damaged replicas fetch good data.
    #[arg(long)]
    pub repair: bool,
    /// How long each repair may take.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = super::duration)]
    pub repair_within: std::time::Duration,
}

/// Where a stopped node's log is.
#[derive(Args, Debug)]
pub struct LogPlace {
    /// The node's data directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The log's directory, if `log.dir` put it elsewhere.
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
}
