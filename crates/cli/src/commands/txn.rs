//! `txn`: global transactions.

mod mend;

use crate::args::cluster::TxnCommand;
use crate::connect::Context;
use client::Client;
use ops::Failure;
use serde::Serialize;
use types::system::COMMITS;
use types::{PartitionId, Position, TableId};
use wire::commit::{FlushState, KeptCommits, Threshold};
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
    /// `level`, `flushing`, `securing`, `ahead` of the manager, or `silent`.
    state: &'static str,
    /// It holds back what all partitions have flushed (T_F*).
    holds_flushed_back: bool,
    /// It holds back what all partitions have secured (T_P*).
    holds_secured_back: bool,
    #[serde(skip)]
    threshold: Threshold,
    #[serde(skip)]
    newest: Option<Position>,
}

impl Shown {
    fn new(database: String, threshold: Threshold, flushed: Option<FlushState>) -> Shown {
        let state = match flushed {
            None => "silent",
            Some(state) if state.newest > threshold.newest => "ahead",
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
            holds_flushed_back: false,
            holds_secured_back: false,
            threshold,
            newest: flushed.map(|state| state.newest),
        }
    }

    /// Up to where it surely has everything: one that does not answer has what it had secured.
    fn has(&self) -> Position {
        self.newest.unwrap_or(self.threshold.secured)
    }
}

/// How many commits are in a state, and for how long the oldest of them has been waiting for the next one.
#[derive(Serialize)]
struct CommitStage {
    commits: u64,
    oldest_ms: Option<u64>,
}

/// All commits that are kept, by state. What executes is known to its client alone, and what was aborted left
/// nothing.
#[derive(Serialize)]
struct Stages {
    /// Kept, and not in all of their partitions yet.
    committed: CommitStage,
    /// In all of their partitions, and not on all disks that count.
    flushed: CommitStage,
    /// On all of them, and not removed from the manager's log yet.
    persisted: CommitStage,
    /// Committed since the manager's partition has its present primary.
    committed_in_term: u64,
    /// Refused since then, because another transaction was faster.
    aborted_in_term: u64,
    kept_bytes: u64,
    /// All is flushed up to here, and all is secured up to here.
    flushed_upto: String,
    secured_upto: String,
}

impl Stages {
    fn of(kept: &KeptCommits, (flushed, secured): (Position, Position)) -> Stages {
        let count = |at: usize| kept.counts.get(at).copied().unwrap_or((kept.commits, None));
        let ((not_above_secured, next_to_secure), (not_above_flushed, next_to_flush)) = (count(0), count(1));
        let age = |since: Option<u64>| since.map(|since| kept.now_ms.saturating_sub(since));
        let stage = |commits: u64, since: Option<u64>| CommitStage {
            commits,
            oldest_ms: age(since.filter(|_| commits > 0)),
        };
        Stages {
            committed: stage(kept.commits.saturating_sub(not_above_flushed), next_to_flush),
            flushed: stage(not_above_flushed.saturating_sub(not_above_secured), next_to_secure),
            persisted: stage(not_above_secured, kept.oldest_ms),
            committed_in_term: kept.committed,
            aborted_in_term: kept.refused,
            kept_bytes: kept.bytes,
            flushed_upto: flushed.to_string(),
            secured_upto: secured.to_string(),
        }
    }
}

/// `txn ...`
pub fn run(command: TxnCommand, context: &mut Context) -> Result<(), Failure> {
    if context.cluster_map()?.table(COMMITS).is_none() {
        return Err(Failure::usage(
            "there are no global transactions: `understudy database create NAME --transactions global`",
        ));
    }
    match command {
        TxnCommand::Status => status(context),
        TxnCommand::Recover { partition } => mend::recover(context, PartitionId(partition)),
        TxnCommand::Skip { partition, accept_loss } => {
            mend::skip(context, PartitionId(partition), accept_loss)
        }
    }
}

fn status(context: &mut Context) -> Result<(), Failure> {
    let client = context.client()?;
    let (thresholds, truncated) = thresholds(client)?;
    // Of those that were dropped nobody waits for anything.
    let there = thresholds.into_iter().filter_map(|threshold| {
        let (table, name) = owner(client, threshold.partition)?;
        let state = flush_state(client, table, threshold.partition);
        Some(Shown::new(name, threshold, state))
    });
    let mut shown: Vec<Shown> = there.collect();
    let lowest = hold_back(&mut shown);
    let kept = kept(client, &[lowest.1, lowest.0])?;
    let stages = Stages::of(&kept, lowest);
    if context.out.json {
        shown.iter().for_each(|partition| context.out.object(partition));
        for (partition, from, upto, when_ms) in &kept.given_up {
            let (from, upto) = (from.to_string(), upto.to_string());
            context.out.object(&serde_json::json!({
                "given_up": partition.0, "from": from, "upto": upto, "when_ms": when_ms,
            }));
        }
        context.out.object(&serde_json::json!({ "truncated": truncated.to_string(), "stages": stages }));
        return Ok(());
    }
    if shown.is_empty() {
        context.out.line("no transaction has been committed yet");
        return Ok(());
    }
    show(context, &shown, &stages, &kept);
    context.out.line(format!("commits up to {truncated} are secured everywhere, and are not kept any more"));
    Ok(())
}

fn show(context: &mut Context, shown: &[Shown], stages: &Stages, kept: &KeptCommits) {
    let back = |shown: &Shown| match (shown.holds_flushed_back, shown.holds_secured_back) {
        (true, true) => "flushed, secured",
        (true, false) => "flushed",
        (false, true) => "secured",
        (false, false) => "",
    };
    let row = |shown: &Shown| {
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

/// Up to where all partitions have flushed and secured everything (T_F*, T_P*), and who keeps these low.
fn hold_back(shown: &mut [Shown]) -> (Position, Position) {
    let newest = shown.iter().map(|shown| shown.threshold.newest).max().unwrap_or_default();
    let lowest = |of: &dyn Fn(&Shown) -> Position| {
        let lags = shown.iter().filter(|shown| of(shown) < shown.threshold.newest);
        lags.map(of).min().unwrap_or(newest)
    };
    let flushed = lowest(&Shown::has);
    let secured = lowest(&|shown| shown.threshold.secured).min(flushed);
    for shown in shown.iter_mut() {
        let holds = |at: Position, lowest: Position| at < shown.threshold.newest && at <= lowest;
        let (flushed_back, secured_back) =
            (holds(shown.has(), flushed), holds(shown.threshold.secured, secured));
        (shown.holds_flushed_back, shown.holds_secured_back) = (flushed_back, secured_back);
    }
    (flushed, secured)
}

fn thresholds(client: &mut Client) -> Result<(Vec<Threshold>, Position), Failure> {
    let manager = client.transaction_manager()?;
    match client.call(manager.call(ManagerOp::Thresholds))?.body {
        Body::Commit(CommitAnswer::Thresholds { partitions, truncated }) => Ok((partitions, truncated)),
        other => Err(unfit(&other)),
    }
}

fn kept(client: &mut Client, upto: &[Position]) -> Result<KeptCommits, Failure> {
    let manager = client.transaction_manager()?;
    match client.call(manager.call(ManagerOp::Kept { upto: upto.to_vec() }))?.body {
        Body::Commit(CommitAnswer::Kept(kept)) => Ok(kept),
        other => Err(unfit(&other)),
    }
}

fn unfit(body: &Body) -> Failure {
    Failure::failed(format!("the transaction manager answered with {body:?}"))
}

fn flush_state(client: &mut Client, table: TableId, partition: PartitionId) -> Option<FlushState> {
    let call = client::Call::new(table, 0, partition, Op::FlushState { copies: 1 });
    match client.call(call).ok()?.body {
        Body::Commit(CommitAnswer::State(state)) => Some(state),
        _ => None,
    }
}

fn owner(client: &Client, partition: PartitionId) -> Option<(TableId, String)> {
    let map = client.cluster_map();
    let table = map.partition(partition)?.table;
    Some((table, map.owner(table)?.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn shown(newest: u64, flushed: Option<u64>, secured: u64) -> Shown {
        let threshold = Threshold { partition: PartitionId(64), newest: at(newest), secured: at(secured) };
        let state = flushed.map(|flushed| FlushState { newest: at(flushed), secured: at(secured) });
        Shown::new("d".into(), threshold, state)
    }

    #[test]
    fn who_holds_thresholds_back_is_named() {
        let mut all = [shown(9, Some(9), 4), shown(8, Some(6), 6), shown(5, Some(5), 5), shown(7, None, 7)];
        assert_eq!(hold_back(&mut all), (at(6), at(4)));
        let backs: Vec<_> = all.iter().map(|one| (one.holds_flushed_back, one.holds_secured_back)).collect();
        assert_eq!(backs, [(false, true), (true, false), (false, false), (false, false)]);
        assert_eq!(all.map(|one| one.state), ["securing", "flushing", "level", "silent"]);
        assert_eq!(shown(5, Some(7), 5).state, "ahead");
    }

    #[test]
    fn commits_are_counted_by_state() {
        let counts = vec![(10, Some(7_000)), (14, Some(9_500))];
        let kept =
            KeptCommits { counts, commits: 20, oldest_ms: Some(1_000), now_ms: 10_000, ..Default::default() };
        let stages = Stages::of(&kept, (at(14), at(10)));
        let seen = [&stages.committed, &stages.flushed, &stages.persisted]
            .map(|stage| (stage.commits, stage.oldest_ms));
        assert_eq!(seen, [(6, Some(500)), (4, Some(3_000)), (10, Some(9_000))]);
    }
}
