//! `txn recover` and `txn skip`: one partition, by an operator's word.

use crate::connect::Context;
use client::view::transactions::{flush_state, owner, thresholds};
use client::{Call, Client, ClientError, FailKind};
use ops::Failure;
use serde_json::json;
use types::{PartitionId, Position, TableId};
use wire::commit::Threshold;
use wire::request::ReadSnapshot;
use wire::{Body, CommitAnswer, Flush, ManagerOp, Op};

/// A partition, and what the manager and it say of its commits.
struct Looked {
    table: TableId,
    threshold: Threshold,
    has: Position,
    truncated: Position,
}

fn look(client: &mut Client, partition: PartitionId) -> Result<Looked, Failure> {
    let (all, truncated) = thresholds(client)?;
    let threshold = all.into_iter().find(|threshold| threshold.partition == partition);
    let threshold = threshold.ok_or_else(|| {
        Failure::usage(format!("no global transaction has written in partition {partition}"))
    })?;
    let (table, _) = owner(client, partition)
        .ok_or_else(|| Failure::usage(format!("partition {partition} was dropped")))?;
    let state = flush_state(client, table, partition)
        .ok_or_else(|| Failure::failed(format!("partition {partition} does not answer")))?;
    Ok(Looked { table, threshold, has: state.newest, truncated })
}

/// `txn recover`.
pub fn recover(context: &mut Context, partition: PartitionId) -> Result<(), Failure> {
    let client = context.client()?;
    let looked = look(client, partition)?;
    let manager = client.transaction_manager()?;
    let mend = ManagerOp::Mend { partition, has: looked.has, upto: looked.has };
    let mended = match client.call(manager.call(mend)) {
        Ok(answer) => answer.body == Body::Affected(1),
        Err(ClientError::Failed { kind: FailKind::TooOld, sentence, .. }) => {
            return Err(Failure::failed(format!(
                "{sentence}: `understudy txn skip {partition}` gives them up"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let newest = looked.threshold.newest.max(looked.has);
    let op = Op::Hold { at: ReadSnapshot::Commit { at: newest, after: looked.threshold.newest } };
    client.complete(Call::new(looked.table, 0, partition, op))?;
    let out = &mut context.out;
    let (has, newest) = (looked.has.to_string(), newest.to_string());
    if out.json {
        out.object(&json!({
            "partition": partition.0, "had": has, "has": newest, "kept_alone": mended.then_some(&has),
        }));
        return Ok(());
    }
    if mended {
        out.line(format!(
            "the transaction manager goes on behind commit {has}, which it does not have: partition {partition} keeps what it \
             wrote, and other partitions may lack their parts of it"
        ));
    }
    out.line(format!("partition {partition} has every commit up to {newest}"));
    Ok(())
}

/// `txn skip`.
pub fn skip(context: &mut Context, partition: PartitionId, accept_loss: bool) -> Result<(), Failure> {
    let client = context.client()?;
    let looked = look(client, partition)?;
    let Some(upto) = gap(client, partition, &looked)? else {
        return Err(Failure::usage(format!(
            "nothing is to be given up: what partition {partition} lacks is kept, and `understudy txn recover {partition}` \
             brings it"
        )));
    };
    let lost = format!(
        "partition {partition} has commits up to {}, and those up to {upto} are kept nowhere",
        looked.has
    );
    if !accept_loss {
        return Err(Failure::usage(format!("{lost}; with --accept-loss they are given up")));
    }
    let manager = client.transaction_manager()?;
    // It is noted before it is done: a loss that nobody reports is worse than one that is reported twice.
    client.call(manager.call(ManagerOp::Mend { partition, has: looked.has, upto }))?;
    let flush = Flush { commit: upto, previous: looked.has, parts: Vec::new() };
    client.call(Call::new(looked.table, 0, partition, Op::Flush(flush)))?;
    let out = &mut context.out;
    if out.json {
        let (from, upto) = (looked.has.to_string(), upto.to_string());
        out.object(&json!({ "partition": partition.0, "given_up": { "from": from, "upto": upto } }));
        return Ok(());
    }
    out.line(format!("{lost}: they are given up, and `understudy txn status` says so"));
    Ok(())
}

/// Where the partition's commits go on behind those that are not kept; none: nothing is missing that is not
/// kept.
fn gap(client: &mut Client, partition: PartitionId, looked: &Looked) -> Result<Option<Position>, Failure> {
    // What it has not secured is kept, and may just be on its way there.
    let gone = looked.truncated.max(looked.threshold.secured);
    if looked.has >= looked.threshold.newest || looked.has >= gone {
        return Ok(None);
    }
    let manager = client.transaction_manager()?;
    let mut from = looked.has;
    loop {
        let chain = ManagerOp::Chain { partition, after: looked.has, from };
        let body = match client.call(manager.call(chain)) {
            // The next one is gone, which may be newer than some that are kept (PR-394). So none is kept just
            // behind what the partition has.
            Err(ClientError::Failed { kind: FailKind::TooOld, .. }) if from == looked.has => {
                from = Position::new(from.term, from.lsn.next()).max(looked.truncated);
                continue;
            }
            answer => answer?.body,
        };
        let (flushes, next) = match body {
            Body::Commit(CommitAnswer::Chain { flushes, next }) => (flushes, next),
            other => {
                let why = format!("the transaction manager answered with {other:?}");
                return Err(Failure::failed(why));
            }
        };
        match (flushes.first(), next) {
            (Some(first), _) => {
                return Ok((first.previous > looked.has).then_some(first.previous));
            }
            (None, Some(next)) => from = next,
            (None, None) => return Ok(Some(looked.threshold.newest)),
        }
    }
}
