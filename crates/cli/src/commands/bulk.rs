//! `load` and `ingest`.

use super::table;
use crate::args::data::{FormatArg, IngestArgs, LoadArgs, OnError, ReadArgs};
use crate::connect::Context;
use crate::interrupt;
use crate::out::{counted, note};
use crate::progress::Bar;
use ops::bulk::{self, Means};
use ops::global_fill;
use ops::global_load;
use ops::ingest::{self, Source};
use ops::job;
use ops::load::{self, LoadPlan, OnBad, Watcher};
use ops::pipeline::Limits;
use ops::{Failure, LoadReport, Status, overview};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::data::{Schema, parse_columns};
use wire::control::CreateTable;

/// How long a refusal that may pass is tried again: copies that were left behind come back in this time.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// `load`. Nothing is made or written before what can be checked is checked.
pub fn load(args: &LoadArgs, context: &mut Context) -> Result<(), Failure> {
    let plan = LoadPlan {
        file: args.file.clone(),
        options: options(&args.read)?,
        on_bad: on_bad(args.read.on_error),
        bad_rows: args.read.bad_rows.clone().unwrap_or_else(|| load::default_bad_rows(&args.file)),
        limits: limits(&args.read),
    };
    load::open(&plan)?;
    context.be_patient(WAIT_LIMIT);
    if let Some((database, name)) = args.table.split_once('.') {
        return load_in(args, plan, (database, name), context);
    }
    check_insert(args)?;
    let (schema, create) = target(args, &plan, context)?;
    if args.bulk {
        let known = context.cluster_map()?.table(&args.table).map(|record| (record.engine, record.log));
        let wanted = create.as_ref().map(|request| (request.engine, request.log));
        if let Some((engine, log)) = wanted.or(known) {
            bulk::check_engine(&args.table, engine, log)?;
        }
    }
    let mut bar = Bar::new();
    if plan.on_bad == OnBad::Abort {
        load::check(&plan, &schema, &mut bar)?;
    } else {
        load::check_bad_rows(&plan)?;
    }
    let client = context.client()?;
    let table = match &create {
        Some(request) => client.create_table(request)?,
        None => client.wait_table(&args.table)?,
    };
    if args.bulk {
        return load_bulk(args, &plan, create.is_some(), (context, table), bar);
    }
    load_rows(args, &plan, create.is_some(), (context, table), bar)
}

/// `load` into a table of a database.
fn load_in(
    args: &LoadArgs,
    mut plan: LoadPlan,
    (database, name): (&str, &str),
    context: &mut Context,
) -> Result<(), Failure> {
    let found = context.client()?.database(database);
    let global = found.as_ref().is_ok_and(|found| found.record().is_global());
    check_way(args, global)?;
    if global && !args.bulk {
        plan.limits.rows = args.read.batch.unwrap_or(global_load::MOST_ROWS);
    }
    let (schema, table) = target_in(args, &plan, context)?;
    if args.bulk && !global {
        let record = found?.record().clone();
        bulk::check_engine(&args.table, record.engine, record.log)?;
        table.as_ref().map_or(Ok(()), bulk::check_table)?;
        note(bulk::warning(database));
    }
    let mut bar = Bar::new();
    if plan.on_bad == OnBad::Abort {
        load::check(&plan, &schema, &mut bar)?;
    } else {
        load::check_bad_rows(&plan)?;
    }
    let (client, created) = (context.client()?, table.is_none());
    let table = match table {
        Some(table) => table,
        None => {
            let database = client.database(database)?;
            if args.bulk && global {
                let report = global_fill::load(client, (&database, name), schema, &plan, &mut bar)?;
                bar.clear();
                filled(args, report, context);
                return Ok(());
            }
            client.create_table_in(&database, name, schema)?
        }
    };
    if args.bulk {
        // A partition that has not heard of the table yet takes no rows of it.
        let database = client.database(database)?;
        client.level(&database)?;
        return load_bulk(args, &plan, created, (context, table), bar);
    }
    load_rows(args, &plan, created, (context, table), bar)
}

/// Says how `load --bulk --create` into a database with global transactions ended.
fn filled(args: &LoadArgs, report: LoadReport, context: &mut Context) {
    let report = LoadReport { table: args.table.clone(), ..report };
    context.out.either(&report, || loaded(&report, "named when all was secured, "));
    left_out(context, &report);
}

/// The schema that rows must have, and the table of a database, if it is there already.
fn target_in(
    args: &LoadArgs,
    plan: &LoadPlan,
    context: &mut Context,
) -> Result<(Schema, Option<client::Table>), Failure> {
    let found = context.client()?.table(&args.table);
    let missing = matches!(&found, Err(client::ClientError::NoTable(_)));
    match (found, args.create) {
        (Err(_), true) if missing => {
            let choices = table::choices(&args.options)?;
            let (schema, inferred) = load::infer(plan, &args.key, &choices)?;
            note(inferred.to_string().trim_end());
            Ok((schema, None))
        }
        (Err(_), false) if missing => Err(Failure::not_found(format!(
            "there is no table `{}`; --create --key COLUMN,.. makes it from the file",
            args.table
        ))),
        (Ok(_), true) => Err(Failure::failed(format!(
            "table `{}` exists already; leave --create out to load into it, or drop it first",
            args.table
        ))),
        (found, _) => {
            let table = found?;
            load::takes_rows(&table)?;
            if table.is_global() {
                table.takes_transactions()?;
            }
            check_key(table.schema(), &args.key, &args.table)?;
            Ok((table.schema().clone(), Some(table)))
        }
    }
}

/// Whether rows come into this database in the way that is asked for, before anything is looked at.
fn check_way(args: &LoadArgs, global: bool) -> Result<(), Failure> {
    match global {
        true if args.job => Err(global_load::no_job(&args.table)),
        true if args.bulk && !args.create => Err(global_load::no_bulk(&args.table)),
        true => Ok(()),
        false => check_insert(args),
    }
}

/// Refuses `--insert` where rows come in batches of one partition.
fn check_insert(args: &LoadArgs) -> Result<(), Failure> {
    match args.insert && !args.job {
        true => Err(Failure::usage("--insert needs --job, or a database whose transactions are global")),
        false => Ok(()),
    }
}

/// `load` and `load --job`, into a table that is there.
fn load_rows(
    args: &LoadArgs,
    plan: &LoadPlan,
    created: bool,
    (context, table): (&mut Context, client::Table),
    mut bar: Bar,
) -> Result<(), Failure> {
    if args.job {
        return load_job(args, plan, created, (context, table), bar);
    }
    let (client, global) = (context.client()?, table.is_global());
    let mut report = match global {
        true => global_load::load(client, &table, plan, args.insert, &mut bar)?,
        false => load::load(client, &table, plan, &mut bar)?,
    };
    bar.clear();
    (report.created, report.table) = (created, args.table.clone());
    context.out.either(&report, || loaded(&report, if global { "by global transactions, " } else { "" }));
    left_out(context, &report);
    Ok(())
}

/// The sentence about a load that ended well; `more` stands before its policy.
fn loaded(report: &LoadReport, more: &str) -> String {
    let copies = report
        .copies
        .map_or_else(String::new, |copies| format!(", {} secured", counted(copies.into(), "copy", "copies")));
    format!(
        "loaded {} ({}) into {} in {:.1} s: {:.0} rows/s; {more}policy {}{copies}",
        counted(report.rows, "row", "rows"),
        overview::size(report.bytes),
        report.table,
        report.seconds,
        report.rows_per_second,
        report.policy
    )
}

/// Says where malformed rows are.
fn left_out(context: &mut Context, report: &LoadReport) {
    if let (false, Some(file)) = (context.out.json, &report.bad_rows_file) {
        let rows = counted(report.bad_rows, "malformed row", "malformed rows");
        context.out.line(format!("left out {rows}; they are in {}", file.display()));
    }
}

/// `load --job`, into a table that is there. A job that was aborted is a failure, behind its report.
fn load_job(
    args: &LoadArgs,
    plan: &LoadPlan,
    created: bool,
    (context, table): (&mut Context, client::Table),
    mut bar: Bar,
) -> Result<(), Failure> {
    let mut report = job::load(context.client()?, &table, plan, args.insert, &mut bar)?;
    bar.clear();
    (report.load.created, report.load.table) = (created, args.table.clone());
    let text = match report.committed {
        true => loaded(&report.load, &format!("job {}, ", report.job)),
        false => job::sentences(&report).join("\n"),
    };
    context.out.either(&report, || text);
    left_out(context, &report.load);
    match report.why.filter(|_| !report.committed) {
        None => Ok(()),
        Some(why) => {
            let status = if report.rows_unknown > 0 { Status::Unreachable } else { Status::Failed };
            Err(Failure::new(status, format!("job {} was aborted: {why}", report.job)))
        }
    }
}

/// `load --bulk`, into a table that is there.
fn load_bulk(
    args: &LoadArgs,
    plan: &LoadPlan,
    created: bool,
    (context, table): (&mut Context, client::Table),
    mut bar: Bar,
) -> Result<(), Failure> {
    let dir = args.sort_dir.clone().unwrap_or_else(std::env::temp_dir);
    let means = Means { memory: usize::try_from(args.sort_memory).unwrap_or(usize::MAX), dir };
    let mut report = bulk::load(context.client()?, &table, plan, &means, &mut bar)?;
    bar.clear();
    (report.load.created, report.load.table) = (created, args.table.clone());
    context.out.either(&report, || {
        let spilled = match report.spilled_bytes {
            0 => String::new(),
            bytes => format!(", {} sorted on disk", overview::size(bytes)),
        };
        let installed = match report.installed {
            true => "",
            false => "; some copies have not installed the files yet",
        };
        let waited = format!("writes waited for {} ms at most; ", report.writes_waited_ms);
        let files = format!("{} of files{spilled}; {waited}", overview::size(report.file_bytes));
        loaded(&report.load, &files) + installed
    });
    left_out(context, &report.load);
    Ok(())
}

/// The schema that rows must have, and the table to be made if there is none yet.
fn target(
    args: &LoadArgs,
    plan: &LoadPlan,
    context: &mut Context,
) -> Result<(Schema, Option<CreateTable>), Failure> {
    table::writable(&args.table)?;
    let known = context.cluster_map()?.table(&args.table).cloned();
    match (known, args.create) {
        (None, true) => {
            let choices = table::choices(&args.options)?;
            let (schema, inferred) = load::infer(plan, &args.key, &choices)?;
            note(inferred.to_string().trim_end());
            Ok((schema.clone(), Some(choices.table(&args.table, schema)?)))
        }
        (Some(_), true) => Err(Failure::failed(format!(
            "table `{}` exists already; leave --create out to load into it, or drop it first",
            args.table
        ))),
        (Some(record), false) => {
            check_key(&record.schema, &args.key, &args.table)?;
            Ok((record.schema.clone(), None))
        }
        (None, false) => Err(Failure::not_found(format!(
            "there is no table `{}`; --create --key COLUMN,.. makes it from the file",
            args.table
        ))),
    }
}

/// `ingest`.
pub fn ingest(args: &IngestArgs, context: &mut Context) -> Result<(), Failure> {
    table::writable(&args.table)?;
    let path = PathBuf::from(&args.source);
    let source = match &args.source[..] {
        "-" => Source::Stdin,
        _ if path.is_dir() => Source::Directory(path),
        _ if path.exists() => Source::File(path),
        _ => return Err(Failure::not_found(format!("cannot read {}: there is no such file", args.source))),
    };
    if source == Source::Stdin && args.follow {
        return Err(Failure::usage("standard input is read until it ends; leave --follow out"));
    }
    let on_bad = on_bad(args.read.on_error);
    let beside =
        || load::default_bad_rows(Path::new(if source == Source::Stdin { "stdin" } else { &args.source }));
    let bad_rows = args.read.bad_rows.clone().or_else(|| (on_bad == OnBad::Skip).then(beside));
    let plan = ingest::IngestPlan {
        source,
        feed: args.feed.clone(),
        options: options(&args.read)?,
        on_bad,
        bad_rows,
        limits: limits(&args.read),
        follow: args.follow,
        secure_within: args.secure_within,
    };
    context.be_patient(WAIT_LIMIT);
    let client = context.client()?;
    let table = match args.table.contains('.') {
        true => client.table(&args.table)?,
        false => client.wait_table(&args.table)?,
    };
    if table.is_global() {
        return Err(global_load::no_feed(&args.table));
    }
    load::takes_rows(&table)?;
    check_key(table.schema(), &args.key, &args.table)?;
    let mut bar = Bar::new();
    if plan.feed.is_none() && plan.source == Source::Stdin {
        bar.say("standard input without --feed NAME keeps no position: if it is fed again, it begins anew");
    }
    let mut report = ingest::run(client, &table, &plan, &interrupt::stop_flag(), &mut bar)?;
    report.table = args.table.clone();
    bar.clear();
    context.out.either(&report, || {
        let mut text = format!("fed {} into {}", counted(report.rows, "row", "rows"), report.table);
        if report.already_in > 0 {
            text.push_str(&format!(
                ", {} in already",
                counted(report.already_in, "record was", "records were")
            ));
        }
        if report.bad_rows > 0 {
            text.push_str(&format!(", left out {} malformed", report.bad_rows));
            if let Some(file) = &report.bad_rows_file {
                text.push_str(&format!(" (they are in {})", file.display()));
            }
        }
        let end = if report.stopped { "stopped" } else { "at its end" };
        text.push_str(&format!("; {end}, record {}; policy {}", report.position, report.policy));
        if let Some(copies) = report.copies {
            text.push_str(&format!(", {} secured", counted(copies.into(), "copy", "copies")));
        }
        text
    });
    Ok(())
}

fn check_key(schema: &Schema, key: &[String], table: &str) -> Result<(), Failure> {
    let own: Vec<&str> = schema.key_columns().map(|column| column.name.as_str()).collect();
    if !key.is_empty() && own != key.iter().map(String::as_str).collect::<Vec<_>>() {
        return Err(Failure::failed(format!(
            "the key of table `{table}` is {}, not {}",
            own.join(","),
            key.join(",")
        )));
    }
    Ok(())
}

fn options(args: &ReadArgs) -> Result<input::Options, Failure> {
    let types = match &args.types {
        Some(text) => parse_columns(text).map_err(|error| Failure::usage(format!("--types: {error}")))?,
        None => Vec::new(),
    };
    let delimiter = args.delimiter.map(|c| {
        let byte = u8::try_from(c).ok().filter(u8::is_ascii);
        byte.ok_or_else(|| Failure::usage(format!("{c:?} cannot separate the fields of a CSV file")))
    });
    Ok(input::Options {
        format: args.format.map(|format| match format {
            FormatArg::Csv => input::Format::Csv,
            FormatArg::Ndjson => input::Format::Ndjson,
        }),
        delimiter: delimiter.transpose()?,
        null: args.null.clone(),
        columns: args.header.clone(),
        types,
        ..input::Options::default()
    })
}

fn on_bad(on_error: OnError) -> OnBad {
    match on_error {
        OnError::Abort => OnBad::Abort,
        OnError::Skip => OnBad::Skip,
    }
}

fn limits(args: &ReadArgs) -> Limits {
    let limits = Limits::default();
    Limits { rows: args.batch.unwrap_or(limits.rows), ..limits }
}
