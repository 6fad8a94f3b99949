//! `txn recover` and `txn skip`: one partition, by an operator's word.

use crate::connect::Context;
use client::txn::{Gap, GapStep, Next};
use client::view::transactions::{flush_state, owner, thresholds};
use client::{Call, Client, ClientError, FailKind};
use ops::Failure;
use serde_json::json;
use types::{PartitionId, Position, TableId};
use wire::commit::Threshold;
use wire::request::ReadSnapshot;
use wire::{Body, Flush, ManagerOp, Op};

/// A partition, and what the manager and it say of its commits.
struct Looked {
    table: TableId,
    threshold: Threshold,
    has: Position,
    truncated: Position,
}

fn look(client: &mut Client, partition: PartitionId) -> Result<Looked, Failure> {
    let (all, truncated) = thresholds(client)?;
    let known = all.into_iter().find(|threshold| threshold.partition == partition);
    let owner = owner(client, partition);
    let state = owner.as_ref().and_then(|(table, _)| flush_state(client, *table, partition));
    // A promotion of the manager may have lost all commits of a partition that has some.
    let zero = Threshold { partition, newest: Position::ZERO, secured: Position::ZERO };
    let lost = state.filter(|state| state.newest > Position::ZERO).map(|_| zero);
    let threshold = known.or(lost).ok_or_else(|| {
        Failure::usage(format!("no global transaction has written in partition {partition}"))
    })?;
    let (table, _) = owner.ok_or_else(|| Failure::usage(format!("partition {partition} was dropped")))?;
    let state = state.ok_or_else(|| Failure::failed(format!("partition {partition} does not answer")))?;
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
    let Next::Gone(upto) = behind(client, &looked)? else {
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

/// What comes behind the newest commit that the partition has.
fn behind(client: &mut Client, looked: &Looked) -> Result<Next, Failure> {
    let manager = client.transaction_manager()?;
    let said = (looked.threshold, looked.truncated);
    let (mut gap, mut step) = Gap::begin(manager, looked.table, said, looked.has);
    loop {
        let call = match step {
            GapStep::Found(next) => return Ok(next),
            GapStep::Call(call) => call,
        };
        let body = match client.call(*call) {
            Ok(answer) => Some(answer.body),
            Err(ClientError::Failed { kind: FailKind::TooOld, .. }) => None,
            Err(error) => return Err(error.into()),
        };
        step = gap.next(body).map_err(Failure::failed)?;
    }
}
