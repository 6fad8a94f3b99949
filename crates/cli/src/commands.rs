//! One module per group of commands. Each parses nothing and decides nothing: it asks the crates below, and
//! prints.

mod backup;
mod bench;
mod bulk;
mod database;
mod failover;
mod follow;
mod index;
mod log;
mod nodes;
mod partition;
mod plan;
mod procedure;
mod process;
mod rebuild;
mod rows;
mod scrub;
mod shell;
mod simulate;
mod sql;
mod status;
mod table;
mod txn;

use crate::args::{Command, Verb};
use crate::connect::Context;
use ops::Failure;

/// Runs a command.
pub fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => process::demo(args, context),
        Command::Check(args) => process::check(args, context),
        Command::Dev(args) => process::dev(args, context),
        Command::Node(args) => process::node(args, context),
        Command::Controller(args) => process::controller(args, context),
        Command::Init(args) => process::init(&args, context),
        Command::Config(command) => process::config(&command, context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Sim(args) => simulate::run(&args, context),
        Command::Bench(command) => bench::run(command, context),
        Command::Shell(args) => shell::run(&args, context),
        Command::Sql(args) => sql::run(&args, context),
        Command::Verb(verb) => run_verb(verb, context),
        Command::Log(command) => log::run(command, context),
        Command::Backup(command) => backup::run(command, context),
        Command::Scrub(args) => scrub::run(args, context),
        Command::Version => version(context),
    }
}

/// Runs a verb, on a command line or in the shell.
pub fn run_verb(verb: Verb, context: &mut Context) -> Result<(), Failure> {
    let table = table_of(&verb).map(str::to_string);
    run_any(verb, context).map_err(|mut failure| {
        // A partition knows its table by number only, and advises on `TABLE`.
        if let Some(table) = table {
            failure.sentence =
                failure.sentence.replace("table alter TABLE ", &format!("table alter {table} "));
        }
        failure
    })
}

/// The table that a verb on rows is about.
fn table_of(verb: &Verb) -> Option<&str> {
    Some(match verb {
        Verb::Put(args) | Verb::Insert(args) => &args.table,
        Verb::Get(args) => &args.key.table,
        Verb::Delete(args) => &args.table,
        Verb::Scan(args) => &args.range.table,
        Verb::Count(args) => &args.range.table,
        Verb::Load(args) => &args.table,
        Verb::Ingest(args) => &args.table,
        _ => return None,
    })
}

fn run_any(verb: Verb, context: &mut Context) -> Result<(), Failure> {
    match verb {
        Verb::Table(command) => table::run(command, context),
        Verb::Database(command) => database::run(command, context),
        Verb::Index(command) => index::run(&command, context),
        Verb::Procedure(command) => procedure::run(command, context),
        Verb::Call(args) => procedure::call(&args, context),
        Verb::Txn(command) => txn::run(command, context),
        Verb::Put(args) => rows::put(&args, false, context),
        Verb::Insert(args) => rows::put(&args, true, context),
        Verb::Get(args) => rows::get(&args, context),
        Verb::Delete(args) => rows::delete(&args, context),
        Verb::Scan(args) => rows::scan(&args, context),
        Verb::Count(args) => rows::count(&args, context),
        Verb::Load(args) => bulk::load(&args, context),
        Verb::Ingest(args) => bulk::ingest(&args, context),
        Verb::Status(args) => status::run(&args, context),
        Verb::Failover(_) => failover::list(context),
        Verb::Partition(command) => partition::run(command, context),
        Verb::Switchover(args) => partition::switchover(&args, context),
    }
}

fn version(context: &mut Context) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let protocol = wire::hello::PROTOCOL;
    let object = serde_json::json!({ "version": version, "protocol": protocol });
    context.out.either(&object, || format!("understudy {version} (protocol {protocol})"));
    Ok(())
}
