//! Commands on rows, and those that bring many.

use super::backup::bytes;
use super::cluster::CreateOptions;
use super::duration;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// `put` and `insert`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy put users '{\"id\": 42, \"name\": \"Ada\"}'
  understudy put users id=42 name=Ada
  understudy put users 42 --row '{\"name\": \"Ada\"}'

The answer says at which LSN the write is committed, how many copies have it, and under which policy.")]
pub struct PutArgs {
    /// The table.
    pub table: String,
    /// The row: one JSON object, or name=value for each column; with --row the values of the key.
    #[arg(value_name = "ROW", allow_negative_numbers = true)]
    pub words: Vec<String>,
    /// The row as a JSON object, which need not repeat the key.
    #[arg(long, value_name = "JSON")]
    pub row: Option<String>,
}

/// `get`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy get users 42
  understudy get flights 2013 1 1 UA 1545 EWR
  understudy get users 42 --any --max-lag 500ms
  understudy get users 42 --any --after 64:3:120    what `put --json` said as \"token\"")]
pub struct GetArgs {
    /// Which row.
    #[command(flatten)]
    pub key: KeyArgs,
    /// Who may answer.
    #[command(flatten)]
    pub level: LevelArgs,
}

/// A table and a key.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  understudy delete users 42")]
pub struct KeyArgs {
    /// The table.
    pub table: String,
    /// The values of the key, one per column.
    #[arg(required = true, allow_negative_numbers = true)]
    pub key: Vec<String>,
}

/// Who may answer a read.
#[derive(Args, Clone, Debug)]
pub struct LevelArgs {
    /// Any replica may answer, with what it knows to be committed.
    #[arg(long)]
    pub any: bool,
    /// With --any: how old the answer may be.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub max_lag: Duration,
    /// With --any: the answer shows the write whose answer had this token. May be repeated.
    #[arg(long, value_name = "TOKEN", requires = "any")]
    pub after: Vec<client::Token>,
}

/// A part of a table.
#[derive(Args, Debug)]
pub struct RangeArgs {
    /// The table.
    pub table: String,
    /// The first values of the key: only rows that begin with them.
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub prefix: Vec<String>,
    /// The first key: values with commas, as many of the key's columns as wanted.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// The end, not included.
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<String>,
}

/// `scan`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy scan users --limit 10
  understudy scan flights 2013 12 25     all flights of a day
  understudy scan flights --from 2013,12 --to 2013,12,24
  understudy scan users --where 'town = Vienna' --where 'age >= 18'
  understudy scan flights --where 'distance BETWEEN 2000 AND 2500' --limit 10
  understudy scan users --json > users.ndjson

With --where the rows that meet all conditions are read by an index, if one begins with a column that a condition is on and
is ready; else all rows of the range are read. Which of the two is said on standard error.")]
pub struct ScanArgs {
    /// What to read.
    #[command(flatten)]
    pub range: RangeArgs,
    /// At most so many rows.
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<u64>,
    /// Only rows that meet this: COLUMN = VALUE (or <, <=, >, >=), or COLUMN BETWEEN VALUE AND VALUE. May be
    /// repeated.
    #[arg(long = "where", value_name = "CONDITION")]
    pub conditions: Vec<String>,
    /// Who may answer.
    #[command(flatten)]
    pub level: LevelArgs,
}

/// `understudy index`.
#[derive(Subcommand, Debug)]
pub enum IndexCommand {
    /// Create an index; the table serves meanwhile.
    #[command(after_help = "Examples:
  understudy index create users town
  understudy index create flights carrier,distance --name far --wait

It is built in every partition beside the writes, which keep it up to date from its beginning. NULLs are in it too.")]
    Create {
        /// The table.
        table: String,
        /// Its columns, most significant first; all but json.
        #[arg(value_delimiter = ',', required = true, value_name = "COLUMN,..")]
        columns: Vec<String>,
        /// Its name; otherwise made of the table's and the columns'.
        #[arg(long)]
        name: Option<String>,
        /// Wait until it is ready in every partition.
        #[arg(long)]
        wait: bool,
    },
    /// Drop an index.
    #[command(after_help = "Example:
  understudy index drop users users_town_idx")]
    Drop {
        /// The table.
        table: String,
        /// The index.
        name: String,
    },
    /// List indexes, and how far they are built.
    #[command(after_help = "Examples:
  understudy index list
  understudy index list users --json")]
    List {
        /// Only those of this table.
        table: Option<String>,
    },
}

/// `count`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy count users
  understudy count flights 2013 12 25")]
pub struct CountArgs {
    /// What to count.
    #[command(flatten)]
    pub range: RangeArgs,
}

/// What becomes of malformed rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnError {
    /// `load` checks the whole file first and loads nothing; `ingest` stops before the row.
    Abort,
    /// The rest is loaded, and malformed rows go into a file.
    Skip,
}

/// The form of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FormatArg {
    /// Comma-separated, with a header line.
    Csv,
    /// A JSON object per line.
    Ndjson,
}

/// How a file is read.
#[derive(Args, Clone, Debug)]
pub struct ReadArgs {
    /// The text that stands for no value, as in NA; otherwise an empty field.
    #[arg(long, value_name = "TEXT")]
    pub null: Option<String>,
    /// Types that are not to be inferred.
    #[arg(long, value_name = "NAME:TYPE,..")]
    pub types: Option<String>,
    /// The form; otherwise by the name's ending, then by the first character.
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// What separates the fields of CSV.
    #[arg(long, value_name = "CHARACTER")]
    pub delimiter: Option<char>,
    /// Names of the columns of CSV without a header line.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    pub header: Option<Vec<String>>,
    /// What becomes of malformed rows.
    #[arg(long, value_enum, default_value_t = OnError::Abort)]
    pub on_error: OnError,
    /// Where malformed rows are kept; otherwise a file beside you, named after the source with `.bad` behind
    /// it.
    #[arg(long, value_name = "FILE")]
    pub bad_rows: Option<PathBuf>,
    /// Rows per batch; otherwise 500, or 2,000 where each batch is a global transaction.
    #[arg(long, value_name = "ROWS")]
    pub batch: Option<usize>,
}

/// `load`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy load users.ndjson --table users --key id --create
  understudy load flights.csv.gz --table flights --key year,month,day,carrier,flight,origin --create --null NA
  understudy load more.csv --table users --on-error skip --bad-rows bad.csv
  understudy load more.csv --table users --job --insert
  understudy load big.csv.gz --table users --bulk --sort-memory 1GB

With --on-error abort, the default, the whole file is read once before anything is written: if any row is
malformed, nothing is loaded and no table is made. A row whose key is there already replaces what was there.

With --job, rows are not acknowledged batch by batch: there is one answer at the end. Each row is committed for itself and
can be read from then on. If a row is refused, a partition does not answer for 60 seconds, or you press Ctrl-C, the job is
aborted, and the answer says of which records the rows are committed. They are secured by then: every copy that may come to
lead has them. With --insert a row whose key is there already is refused.

In a database whose transactions are global the rows are committed by such, in the order of the file, up to 2,000 rows or
1 MB in each. With --insert a row whose key is there ends the load: its transaction is not in, and those before it are.

With --bulk, for tables with the engine lsm, nothing can be seen of the load before its files are at all copies of all
partitions. Each partition then has all of its rows or none; if a failure leaves it in some partitions only, you are told
in which, and loading the file again is safe. Indexes of the table are built anew.

In a database --bulk goes into tables without constraints and indexes. While a partition puts the files in their place, which
takes a fraction of a second, writes to all tables of the database wait there: the report says for how long.

In a database whose transactions are global, --bulk goes with --create: rows are written into a table that has no name yet,
and it gets its name when all of them are secured. Nothing is sorted then.")]
pub struct LoadArgs {
    /// The file: CSV with a header line, or NDJSON; either also gzipped.
    pub file: PathBuf,
    /// The table.
    #[arg(long)]
    pub table: String,
    /// The columns of the key.
    #[arg(long, value_delimiter = ',', value_name = "COLUMN,..")]
    pub key: Vec<String>,
    /// Make the table, with types inferred from the first rows.
    #[arg(long, requires = "key")]
    pub create: bool,
    /// Load as one job: one answer at the end, which says what is committed.
    #[arg(long, conflicts_with = "bulk")]
    pub job: bool,
    /// Refuse a row whose key is there already, with --job or where transactions are global; otherwise it
    /// replaces what was there.
    #[arg(long, conflicts_with = "bulk")]
    pub insert: bool,
    /// Sort the rows, build the engine's files of them once, and have all copies install those.
    #[arg(long)]
    pub bulk: bool,
    /// Memory for sorting, with --bulk.
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = bytes, requires = "bulk")]
    pub sort_memory: u64,
    /// Where sorted rows and files are kept meanwhile, with --bulk; otherwise the system's directory for
    /// temporary files.
    #[arg(long, value_name = "DIR", requires = "bulk")]
    pub sort_dir: Option<PathBuf>,
    /// How the file is read.
    #[command(flatten)]
    pub read: ReadArgs,
    /// The table that is made.
    #[command(flatten)]
    pub options: CreateOptions,
}

/// `ingest`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy ingest events.ndjson --table events
  understudy ingest incoming/ --table events --follow     every file that appears, in the order of names
  tail -f log.ndjson | understudy ingest - --table events --feed log

A feed keeps its position in the partitions it writes, so that one that is started again neither skips nor repeats a
record. It ends only when what it committed is secured; Ctrl-C ends it cleanly. Files of a directory are each a feed of
their own; a file is to have its name when it is complete, so write it under another one (.tmp) first.")]
pub struct IngestArgs {
    /// A file, a directory, or - for standard input.
    pub source: String,
    /// The table.
    #[arg(long)]
    pub table: String,
    /// The columns of the table's key, if they are to be checked.
    #[arg(long, value_delimiter = ',', value_name = "COLUMN,..")]
    pub key: Vec<String>,
    /// The feed's name; otherwise the path of the source. Standard input without one keeps no position.
    #[arg(long, value_name = "NAME")]
    pub feed: Option<String>,
    /// Go on when the source has no more: wait for more.
    #[arg(long)]
    pub follow: bool,
    /// How long copies may take to follow at the end.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub secure_within: Duration,
    /// How the source is read.
    #[command(flatten)]
    pub read: ReadArgs,
}
