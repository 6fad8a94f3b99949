//! Commands on databases.

use super::cluster::{EngineArg, LogArg, ShipArg, StandbyArg, TransactionsArg};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `understudy database`.
#[derive(Subcommand, Debug)]
pub enum DatabaseCommand {
    /// Create a database.
    #[command(after_help = "Examples:
  understudy database create bank
  understudy table create accounts --database bank --columns 'id:int,balance:int' --key id
  understudy put bank.accounts id=1 balance=100
  understudy database create shop --partitions 6 --partition-by w_id
  understudy database create ledger --partitions 6 --transactions global
  understudy database create wide --partitions 8 --partition-by w_id --placement spread

The tables of a database lie together in one partition, so that a transaction may write in all of them. One
partition is one thread's share of one node. With several partitions rows of all tables with the same values of
the partition key lie together, and a transaction writes rows of one such value. With global transactions each
table is spread by its own key, and a transaction writes rows of any partitions: it costs a message to the
transaction manager, which keeps all commits in the table sys_commits.")]
    Create(Box<CreateDatabase>),
    /// List databases.
    #[command(after_help = "Example:
  understudy database list")]
    List,
    /// Change what a database's commits promise, or how many copies there are, while it serves.
    #[command(after_help = "Examples:
  understudy database alter bank --policy sync
  understudy database alter bank --factor 3
  understudy database alter bank --ship calls")]
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
        /// What backups are sent of calls of procedures.
        #[arg(long, value_enum)]
        ship: Option<ShipArg>,
    },
    /// Drop a database with all its tables.
    #[command(after_help = "Example:
  understudy database drop bank --yes")]
    Drop {
        /// Its name.
        name: String,
        /// Really, with the tables that are in it.
        #[arg(long)]
        yes: bool,
    },
}

/// A new database.
#[derive(Args, Clone, Debug)]
pub struct CreateDatabase {
    /// Its name.
    pub name: String,
    /// Partitions. With several, --partition-by says which rows lie together.
    #[arg(long, default_value_t = 1)]
    pub partitions: u32,
    /// The columns that all primary keys begin with: `w_id`, a whole number, or `tenant:text,year:int`.
    #[arg(long, value_name = "COLUMNS")]
    pub partition_by: Option<String>,
    /// The lowest value of each partition behind the first one, ascending, in the first column of
    /// --partition-by: `100,200` for three partitions. Without it a hash spreads the rows.
    #[arg(long, value_name = "BOUNDS", requires = "partition_by", allow_hyphen_values = true)]
    pub ranges: Option<String>,
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
    /// How far a transaction reaches.
    #[arg(long, value_enum, default_value_t = TransactionsArg::Partition)]
    pub transactions: TransactionsArg,
    /// What backups are sent of calls of procedures.
    #[arg(long, value_enum, default_value_t = ShipArg::Effects)]
    pub ship: ShipArg,
    /// Where copies go: chained, interleaved, mirrored or spread (`understudy plan` compares them); or a file
    /// with the nodes of each partition, one line per partition, or a JSON list of lists.
    #[arg(long, value_name = "SCHEME|FILE")]
    pub placement: Option<PathBuf>,
}
