//! `txn`: global transactions.

mod mend;

use crate::args::cluster::TxnCommand;
use crate::connect::Context;
use client::view::transactions::{PartitionCommits, Stages, Transactions};
use ops::Failure;
use types::system::COMMITS;
use wire::commit::KeptCommits;
use wire::control::Role;

/// `txn ...`
pub fn run(command: TxnCommand, context: &mut Context) -> Result<(), Failure> {
    if context.cluster_map()?.table(COMMITS).is_none() {
        return Err(Failure::usage(
            "there are no global transactions: `understudy database create NAME --transactions global`",
        ));
    }
    match command {
        TxnCommand::Status => status(context),
        TxnCommand::Recover { partition } => {
            let partition = context.partition(&partition)?;
            mend::recover(context, partition)
        }
        TxnCommand::Skip { partition, accept_loss } => {
            let partition = context.partition(&partition)?;
            mend::skip(context, partition, accept_loss)
        }
    }
}

fn status(context: &mut Context) -> Result<(), Failure> {
    let found = Transactions::ask(context.client()?)?;
    let Some(Transactions { partitions, stages, kept, truncated }) = found else { return Ok(()) };
    let alarm = alarm(context)?;
    if context.out.json {
        partitions.iter().for_each(|partition| context.out.object(partition));
        for (partition, from, upto, when_ms) in &kept.given_up {
            let (from, upto) = (from.to_string(), upto.to_string());
            context.out.object(&serde_json::json!({
                "given_up": partition.0, "from": from, "upto": upto, "when_ms": when_ms,
            }));
        }
        context.out.object(&serde_json::json!({
            "truncated": truncated.to_string(), "stages": stages, "alarm": alarm,
        }));
        return Ok(());
    }
    if partitions.is_empty() {
        context.out.line("no transaction has been committed yet");
        context.out.line(executing(&stages));
        return Ok(());
    }
    show(context, &partitions, &stages, &kept);
    context.out.line(format!("commits up to {truncated} are secured everywhere, and are not kept any more"));
    if let Some(alarm) = alarm {
        context.out.line(format!("alarm: {alarm}"));
    }
    Ok(())
}

/// What the primary of `sys_commits` waits for, in a sentence: too many commits that are not secured, or one
/// that has not been for too long. It is as old as the last status of that node. None: nothing.
fn alarm(context: &mut Context) -> Result<Option<String>, Failure> {
    let manager = context.client()?.transaction_manager()?.partition();
    let status = context.status()?;
    let replicas = status.nodes.iter().flat_map(|(node, _)| &node.replicas);
    let leads = replicas.filter(|replica| replica.partition == manager && replica.role == Role::Primary);
    // A node that has ended may have said that it leads, too.
    let newest = leads.max_by_key(|replica| replica.epoch);
    Ok(newest.map(|replica| replica.waits.clone()).filter(|waits| !waits.is_empty()))
}

fn show(context: &mut Context, shown: &[PartitionCommits], stages: &Stages, kept: &KeptCommits) {
    let back = |shown: &PartitionCommits| match (shown.holds_flushed_back, shown.holds_secured_back) {
        (true, true) => "flushed, secured",
        (true, false) => "flushed",
        (false, true) => "secured",
        (false, false) => "",
    };
    let row = |shown: &PartitionCommits| {
        vec![
            shown.database.clone(),
            shown.partition.to_string(),
            shown.committed.clone(),
            shown.flushed.clone().unwrap_or_else(|| "?".into()),
            shown.secured.clone(),
            shown.state.to_string(),
            back(shown).to_string(),
        ]
    };
    let head = ["database", "partition", "committed", "flushed", "secured", "state", "holds back"];
    context.out.table(&head, shown.iter().map(row));
    context.out.line(executing(stages));
    for (name, stage) in
        [("committed", &stages.committed), ("flushed", &stages.flushed), ("persisted", &stages.persisted)]
    {
        let age = stage.oldest_ms.map_or(String::new(), |ms| format!(", the oldest for {ms} ms"));
        context.out.line(format!("{name}: {} commits{age}", stage.commits));
    }
    context.out.line(format!(
        "since the manager leads: {} committed, {} aborted; {} bytes are kept",
        stages.committed_in_term, stages.aborted_in_term, stages.kept_bytes
    ));
    for (partition, from, upto, _) in &kept.given_up {
        context.out.line(match from == upto {
            true => format!("partition {partition} keeps commits up to {upto} that the manager has lost"),
            false => format!("commits of partition {partition} above {from} up to {upto} were given up"),
        });
    }
}

/// What is open at clients, in a line.
fn executing(stages: &Stages) -> String {
    let executing = &stages.executing;
    let age = executing.oldest_ms.map_or(String::new(), |ms| format!(", the oldest for {ms} ms"));
    format!("executing: {} transactions of {} clients{age}", executing.transactions, executing.senders)
}
