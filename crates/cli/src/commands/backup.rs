//! `backup`.

use super::failover::when;
use crate::args::backup::{BackupCommand, CreateArgs, RestoreArgs};
use crate::connect::Context;
use crate::out::counted;
use crate::progress::Bar;
use ops::Failure;
use ops::backup::{create, restore, verify};
use ops::overview::size;
use ops::pipeline::Limits;
use std::path::Path;
use std::time::Duration;

/// How long a refusal that may pass is tried again: a failover in the middle is to be waited for.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// `backup ...`
pub fn run(command: BackupCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        BackupCommand::Create(args) => make(args, context),
        BackupCommand::Restore(args) => bring_back(args, context),
        BackupCommand::List { backup } => list(&backup, context),
        BackupCommand::Verify { backup } => check(&backup, context),
    }
}

fn make(args: CreateArgs, context: &mut Context) -> Result<(), Failure> {
    let plan = create::BackupPlan {
        dir: args.backup,
        tables: args.tables,
        databases: args.databases,
        bytes_per_second: args.max_rate,
    };
    context.be_patient(WAIT_LIMIT);
    let mut bar = Bar::new();
    let report = create::create(context.client()?, &plan, &mut bar)?;
    bar.clear();
    context.out.either(&report, || {
        format!(
            "{}: {}, {}, {}, as of {}; acknowledgements waited {} ms for it",
            report.dir.display(),
            counted(report.tables.len() as u64, "table", "tables"),
            counted(report.rows, "row", "rows"),
            size(report.file_bytes),
            when(report.taken_ms),
            report.held_ms
        )
    });
    Ok(())
}

fn bring_back(args: RestoreArgs, context: &mut Context) -> Result<(), Failure> {
    let plan = restore::RestorePlan {
        dir: args.backup,
        tables: args.tables,
        databases: args.databases,
        rename: args.rename,
        factor: args.factor,
        yes: args.yes,
        limits: Limits::default(),
    };
    context.be_patient(WAIT_LIMIT);
    let mut bar = Bar::new();
    let report = restore::restore(context.client()?, &plan, &mut bar)?;
    bar.clear();
    context.out.either(&report, || {
        format!(
            "restored {}, {}, as of {}: count and digest of each are those of the backup",
            counted(report.tables.len() as u64, "table", "tables"),
            counted(report.rows, "row", "rows"),
            when(report.taken_ms)
        )
    });
    Ok(())
}

fn list(dir: &Path, context: &mut Context) -> Result<(), Failure> {
    let report = verify::list(dir)?;
    context.out.either(&report, || {
        let table = |one: &create::TableReport| format!("{}  {} rows", one.table, one.rows);
        let database = |one: &create::DatabaseReport| {
            let tables = counted(one.tables, "table", "tables");
            format!("database {}  {tables}, {} rows", one.database, one.rows)
        };
        let databases = report.databases.iter().map(database);
        let lines: Vec<String> = databases.chain(report.tables.iter().map(table)).collect();
        format!("{}\nas of {}, {}", lines.join("\n"), when(report.taken_ms), size(report.file_bytes))
    });
    Ok(())
}

fn check(dir: &Path, context: &mut Context) -> Result<(), Failure> {
    let mut bar = Bar::new();
    let report = verify::verify(dir, &mut bar)?;
    bar.clear();
    let out = &mut context.out;
    if out.json {
        out.object(&report);
    } else {
        report.damaged.iter().for_each(|file| out.line(format!("{}: {}", file.file, file.what)));
    }
    let count = report.damaged.len() as u64;
    if count > 0 {
        let files = counted(count, "file is", "files are");
        return Err(Failure::failed(format!("{files} damaged in {}", dir.display())));
    }
    if !out.json {
        let taken = report.taken_ms.map(when).unwrap_or_default();
        let tables = counted(report.tables.len() as u64, "table", "tables");
        out.line(format!("sound: {tables}, {}, as of {taken}", counted(report.rows, "row", "rows")));
    }
    Ok(())
}
