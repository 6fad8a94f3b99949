//! `txn`: global transactions.

use crate::args::cluster::TxnCommand;
use crate::connect::Context;
use client::Client;
use ops::Failure;
use serde::Serialize;
use types::system::COMMITS;
use types::{PartitionId, Position};
use wire::commit::{FlushState, Threshold};
use wire::{Body, CommitAnswer, ManagerOp, Op};

/// A partition that global transactions write.
#[derive(Serialize)]
struct Shown {
    database: String,
    partition: u32,
    /// The newest commit with a part in it.
    committed: String,
    /// The newest one that it has; none: it does not answer.
    flushed: Option<String>,
    /// Up to here every copy that counts has everything on disk.
    secured: String,
    /// `level`, `flushing`, `securing`, or `silent`.
    state: &'static str,
}

impl Shown {
    fn new(database: String, threshold: Threshold, flushed: Option<FlushState>) -> Shown {
        let state = match flushed {
            None => "silent",
            Some(state) if state.newest < threshold.newest => "flushing",
            Some(_) if threshold.secured < threshold.newest => "securing",
            Some(_) => "level",
        };
        Shown {
            database,
            partition: threshold.partition.0,
            committed: threshold.newest.to_string(),
            flushed: flushed.map(|state| state.newest.to_string()),
            secured: threshold.secured.to_string(),
            state,
        }
    }
}

/// `txn ...`
pub fn run(command: TxnCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        TxnCommand::Status => status(context),
    }
}

fn status(context: &mut Context) -> Result<(), Failure> {
    if context.cluster_map()?.table(COMMITS).is_none() {
        return Err(Failure::usage(
            "there are no global transactions: `understudy database create NAME --transactions global`",
        ));
    }
    let client = context.client()?;
    let (thresholds, truncated) = thresholds(client)?;
    let shown: Vec<Shown> = thresholds.into_iter().map(|threshold| look(client, threshold)).collect();
    if context.out.json {
        shown.iter().for_each(|partition| context.out.object(partition));
        context.out.object(&serde_json::json!({ "truncated": truncated.to_string() }));
        return Ok(());
    }
    if shown.is_empty() {
        context.out.line("no transaction has been committed yet");
        return Ok(());
    }
    let row = |shown: &Shown| {
        vec![
            shown.database.clone(),
            shown.partition.to_string(),
            shown.committed.clone(),
            shown.flushed.clone().unwrap_or_else(|| "?".into()),
            shown.secured.clone(),
            shown.state.to_string(),
        ]
    };
    let head = ["database", "partition", "committed", "flushed", "secured", "state"];
    context.out.table(&head, shown.iter().map(row));
    context.out.line(format!("commits up to {truncated} are secured everywhere, and are not kept any more"));
    Ok(())
}

fn thresholds(client: &mut Client) -> Result<(Vec<Threshold>, Position), Failure> {
    let manager = client.transaction_manager()?;
    match client.call(manager.call(ManagerOp::Thresholds))?.body {
        Body::Commit(CommitAnswer::Thresholds { partitions, truncated }) => Ok((partitions, truncated)),
        other => Err(Failure::failed(format!("the transaction manager answered with {other:?}"))),
    }
}

fn look(client: &mut Client, threshold: Threshold) -> Shown {
    let database = owner(client, threshold.partition);
    let state = database.as_ref().and_then(|(table, _)| {
        let call = client::Call::new(*table, 0, threshold.partition, Op::FlushState { copies: 1 });
        match client.call(call).ok()?.body {
            Body::Commit(CommitAnswer::State(state)) => Some(state),
            _ => None,
        }
    });
    Shown::new(database.map_or_else(|| "(dropped)".into(), |(_, name)| name), threshold, state)
}

fn owner(client: &Client, partition: PartitionId) -> Option<(types::TableId, String)> {
    let map = client.cluster_map();
    let table = map.partition(partition)?.table;
    Some((table, map.owner(table)?.name.clone()))
}
