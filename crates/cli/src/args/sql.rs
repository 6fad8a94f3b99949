//! `understudy sql`.

use clap::Args;
use std::path::PathBuf;

/// `understudy sql`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy sql
  understudy sql --command 'SELECT count(*) FROM flights'
  understudy sql --file report.sql --json
  understudy sql --database bank
  understudy sql --url 'postgres://understudy@db1:7405,db2:7405/understudy?sslmode=require'

Statements end with a semicolon. \\? lists what begins with a backslash: \\dt, \\d TABLE, \\timing, \\x, \\q. Ctrl-C cancels the
statement that runs. The first error ends a command, a file or a pipe with exit status 1.")]
pub struct SqlArgs {
    /// The door; otherwise that of the cluster which `understudy dev` runs in --dir. The password is in the
    /// URL, else in UNDERSTUDY_SECRET or PGPASSWORD.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The database, instead of the one in the URL.
    #[arg(long, short, value_name = "NAME")]
    pub database: Option<String>,
    /// Run these statements, and end. May be given several times.
    #[arg(long, short, value_name = "SQL")]
    pub command: Vec<String>,
    /// Run the statements of a file, and end; `-` is standard input.
    #[arg(long, short, value_name = "FILE", conflicts_with = "command")]
    pub file: Option<PathBuf>,
    /// Where the history is kept; otherwise `.understudy_sql_history` in the home directory.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
}
