//! Commands on rows.

use super::table::writable;
use crate::args::data::{CountArgs, GetArgs, KeyArgs, LevelArgs, PutArgs, RangeArgs, ScanArgs};
use crate::connect::Context;
use crate::out::counted;
use client::table::Table;
use client::{Answer, Fate, ScanOptions, Token};
use ops::filter::Filter;
use ops::{Failure, Status, keys};
use serde::Serialize;
use types::data::{key_to_text, row_to_json_text, row_to_text};
use types::{Lsn, PartitionId};
use wire::{Body, Op, ReadLevel};

/// What is said of a write.
#[derive(Serialize)]
struct Written<'a> {
    table: &'a str,
    key: String,
    partition: u32,
    epoch: u64,
    lsn: u64,
    copies: u8,
    policy: String,
    /// For `--after`.
    token: String,
    /// Of a table that global transactions write: its commit, in place of an LSN of the partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
}

impl Written<'_> {
    fn words(&self, what: &str) -> String {
        if let Some(commit) = &self.commit {
            let (table, key) = (self.table, &self.key);
            return format!("{what} {table} {key}: commit {commit} of the transaction manager");
        }
        let copies = counted(self.copies.into(), "copy", "copies");
        format!(
            "{what} {} {}: LSN {} of partition {}, {copies} secured, policy {}",
            self.table, self.key, self.lsn, self.partition, self.policy
        )
    }
}

fn written<'a>(
    table: &'a Table,
    key: String,
    partition: PartitionId,
    answer: &Answer,
    context: &mut Context,
) -> Result<Written<'a>, Failure> {
    // The policy in force is the partition's: it may be on its way to the table's.
    let record = context.cluster_map()?.partition(partition);
    let policy = record.map_or(&table.record().policy, |record| &record.policy);
    let policy = if policy.version == answer.policy {
        policy.name.clone()
    } else {
        table.record().policy.name.clone()
    };
    Ok(Written {
        table: table.name(),
        key,
        partition: partition.0,
        epoch: answer.epoch.0,
        lsn: answer.lsn.0,
        copies: answer.copies,
        policy,
        token: Token { partition, at: answer.position() }.to_string(),
        commit: table.is_global().then(|| answer.position().to_string()),
    })
}

/// `put` and `insert`.
pub fn put(args: &PutArgs, insert: bool, context: &mut Context) -> Result<(), Failure> {
    writable(&args.table)?;
    let client = context.client()?;
    let table = client.table(&args.table)?;
    let row = keys::row(&table, &args.words, args.row.as_deref())?;
    let (key, _) = table.encode(&row)?;
    let partition = table.partition_of(&key)?;
    let answer = if insert { client.insert(&table, &row) } else { client.put(&table, &row) }?;
    let values: Vec<_> = table.schema().key().iter().map(|column| row.values[*column].clone()).collect();
    let written = written(&table, key_to_text(&values), partition, &answer, context)?;
    context.out.either(&written, || written.words(if insert { "inserted" } else { "put" }));
    Ok(())
}

/// `delete`.
pub fn delete(args: &KeyArgs, context: &mut Context) -> Result<(), Failure> {
    writable(&args.table)?;
    let client = context.client()?;
    let table = client.table(&args.table)?;
    let key = keys::whole_key(&table, &args.key)?;
    if table.is_global() {
        if !client.delete(&table, &key)? {
            return Err(no_row(&table, &key));
        }
        let object = serde_json::json!({ "table": table.name(), "key": key_to_text(&key) });
        context.out.either(&object, || format!("deleted {} {}", table.name(), key_to_text(&key)));
        return Ok(());
    }
    let call = table.delete(&key)?;
    let partition = call.partition;
    let answer = client.call(call)?;
    if answer.body == Body::Affected(0) {
        return Err(no_row(&table, &key));
    }
    let written = written(&table, key_to_text(&key), partition, &answer, context)?;
    context.out.either(&written, || written.words("deleted"));
    Ok(())
}

/// `get`.
pub fn get(args: &GetArgs, context: &mut Context) -> Result<(), Failure> {
    let client = context.client()?;
    let table = client.table(&args.key.table)?;
    let key = keys::whole_key(&table, &args.key.key)?;
    let level = level(&args.level, &table, client)?;
    let row = client.get_at(&table, &key, level)?;
    let row = row.ok_or_else(|| no_row(&table, &key))?;
    let json = context.out.json;
    let schema = table.schema();
    context.out.line(if json { row_to_json_text(schema, &row) } else { row_to_text(schema, &row) });
    Ok(())
}

/// `scan`.
pub fn scan(args: &ScanArgs, context: &mut Context) -> Result<(), Failure> {
    let client = context.client()?;
    let (table, range) = range(&args.range, client)?;
    let filter = Filter::read(&table, &args.conditions)?;
    let limit = args.limit.unwrap_or(u64::MAX);
    let page = if filter.is_empty() { limit.clamp(1, 1000) as u32 } else { 1000 };
    let level = level(&args.level, &table, client)?;
    let mut options = ScanOptions {
        from: range.from.clone(),
        to: range.to.clone(),
        page,
        read: level,
        ..ScanOptions::default()
    };
    if !filter.is_empty() {
        by_index(&table, &filter, &mut options, client)?;
    }
    let inside = |key: &[u8]| key >= &range.from[..] && (range.to.is_empty() || key < &range.to[..]);
    let json = context.out.json;
    // The connection and the output are lent at the same time, so the rows of a page go through here.
    let mut scan = context.client()?.scan_partitions(&table, range.partitions, options);
    let mut out = crate::out::Out::new(json);
    let mut rows = 0;
    while rows < limit {
        let Some(found) = scan.next() else { break };
        let found = found?;
        let row = table.decode(&found.key, &found.stored)?;
        if !filter.meets(&row) || !inside(&found.key) {
            continue;
        }
        let schema = table.schema();
        out.line(if json { row_to_json_text(schema, &row) } else { row_to_text(schema, &row) });
        rows += 1;
    }
    out.flush();
    Ok(())
}

/// Has an index read, if one fits, the key is not given, and it is ready; says which way is taken.
fn by_index(
    table: &Table,
    filter: &Filter,
    options: &mut ScanOptions,
    client: &mut client::Client,
) -> Result<(), Failure> {
    let by_key = !options.from.is_empty() || !options.to.is_empty();
    let every = if by_key { "every row of the range is read" } else { "every row is read" };
    let Some(choice) = filter.choose(table).filter(|_| !by_key) else {
        eprintln!("{}: {every}", if by_key { "the key is given" } else { "no index fits" });
        return Ok(());
    };
    let name = &choice.index.name;
    let progress = client.indexes(table)?.into_iter().find(|index| index.number == choice.index.number);
    match progress.filter(|progress| !progress.is_ready()) {
        Some(progress) => eprintln!("index {name} is {}: {every}", progress.state()),
        None => {
            eprintln!("by index {name}");
            (options.from, options.to) = (choice.from.into(), choice.to.into());
            (options.index, options.ordered) = (Some(choice.index.number), false);
        }
    }
    Ok(())
}

/// `count`.
pub fn count(args: &CountArgs, context: &mut Context) -> Result<(), Failure> {
    let client = context.client()?;
    let (table, range) = range(&args.range, client)?;
    let op = Op::Count { from: range.from, to: range.to, at: Default::default() };
    let calls = range.partitions.into_iter().map(|partition| table.call(partition, op.clone()));
    let mut rows = 0;
    for answer in client.all(calls.collect())? {
        rows += answer.number().ok_or_else(|| Failure::failed("a count answered without a number"))?;
    }
    let object = serde_json::json!({ "table": table.name(), "rows": rows });
    context.out.either(&object, || rows.to_string());
    Ok(())
}

fn range(args: &RangeArgs, client: &mut client::Client) -> Result<(Table, keys::Range), Failure> {
    let table = client.table(&args.table)?;
    let range = keys::range(&table, &args.prefix, args.from.as_deref(), args.to.as_deref())?;
    Ok((table, range))
}

/// Who may answer, and what has to be in the answer.
fn level(args: &LevelArgs, table: &Table, client: &mut client::Client) -> Result<ReadLevel, Failure> {
    for token in &args.after {
        if !table.partitions().any(|partition| partition == token.partition) {
            return Err(Failure::usage(format!(
                "token {token} is of no partition of table {}",
                table.name()
            )));
        }
        still_there(*token, table, client)?;
        client.read_after(*token);
    }
    Ok(match args.any {
        true => ReadLevel::Any { max_lag_ms: args.max_lag.as_millis() as u64, min_lsn: Lsn::ZERO },
        false => ReadLevel::Primary,
    })
}

/// A write that a failover lost will never be in an answer (PR-29). Only where there was one the primary is
/// asked.
fn still_there(token: Token, table: &Table, client: &mut client::Client) -> Result<(), Failure> {
    let term = client.cluster_map().partition(token.partition).map(|record| record.term);
    if term.is_none_or(|since| since <= token.at.term) {
        return Ok(());
    }
    match client.fate(table, token.partition, token.at)? {
        Fate::Kept => Ok(()),
        Fate::Lost { ended } => Err(Failure::failed(format!(
            "the write of token {token} was lost in a failover: of its epoch nothing above LSN {ended} was kept"
        ))),
    }
}

fn no_row(table: &Table, key: &[types::data::Value]) -> Failure {
    Failure::new(Status::NotFound, format!("there is no row {}", keys::named(table, key)))
}
