//! Procedures of databases, and calls of them.

use clap::{Args, Subcommand, ValueEnum};

/// In which language a procedure is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LanguageArg {
    /// WebAssembly: a module, or its text.
    Wasm,
    /// A program of this release; FILE is its name.
    Builtin,
}

/// `understudy procedure`.
#[derive(Subcommand, Debug)]
#[command(after_help = "Examples:
  understudy procedure create transfer.wat --database bank \\
    --parameters source:int,target:int,amount:int --returns left:int
  understudy procedure list --database bank
  understudy procedure drop transfer --database bank")]
pub enum ProcedureCommand {
    /// Make a procedure of a file.
    #[command(after_help = "Examples:
  understudy procedure create transfer.wat --database bank \\
    --parameters source:int,target:int,amount:int --returns left:int
  understudy procedure create report.wasm --database bank --name totals --returns total:int --read-only")]
    Create {
        /// The module: WebAssembly, or its text.
        file: String,
        /// The database whose rows it is for.
        #[arg(long, value_name = "NAME", default_value = types::database::SHARED)]
        database: String,
        /// Its name; otherwise the file's.
        #[arg(long)]
        name: Option<String>,
        /// Its parameters, in order.
        #[arg(long, value_name = "NAME:TYPE,...", default_value = "")]
        parameters: String,
        /// The columns of the rows that it gives.
        #[arg(long, value_name = "NAME:TYPE,...", default_value = "")]
        returns: String,
        /// It changes nothing.
        #[arg(long)]
        read_only: bool,
        /// What the file is written in.
        #[arg(long, value_enum, default_value_t = LanguageArg::Wasm)]
        language: LanguageArg,
    },
    /// List the procedures of a database.
    List {
        /// The database.
        #[arg(long, value_name = "NAME", default_value = types::database::SHARED)]
        database: String,
    },
    /// Drop a procedure.
    Drop {
        /// Its name.
        name: String,
        /// The database.
        #[arg(long, value_name = "NAME", default_value = types::database::SHARED)]
        database: String,
    },
}

/// `understudy call`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  understudy call transfer 1 2 30 --database bank

A call is made where the rows are, as one operation: all of it or nothing. NULL stands for no value.
Exit status 1 if it fails; nothing of it was done then.")]
pub struct CallArgs {
    /// The procedure.
    pub procedure: String,
    /// Its arguments, in order.
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    pub arguments: Vec<String>,
    /// The database.
    #[arg(long, value_name = "NAME", default_value = types::database::SHARED)]
    pub database: String,
}
