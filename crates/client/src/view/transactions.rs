//! Global transactions as people look at them: how far partitions are, who holds back what is flushed or
//! secured everywhere (T_F*, T_P*), and how many commits are in which state.

use crate::call::Call;
use crate::client::Client;
use crate::error::ClientError;
use crate::table::unexpected;
use serde::Serialize;
use types::system::COMMITS;
use types::{PartitionId, Position, TableId};
use wire::commit::{ExecutingTransactions, FlushState, KeptCommits, Threshold};
use wire::{Body, CommitAnswer, ManagerOp, Op};

/// A partition that global transactions write.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PartitionCommits {
    /// Whose it is.
    pub database: String,
    /// Its number.
    pub partition: u32,
    /// The newest commit with a part in it.
    pub committed: String,
    /// The newest one that it has; none: it does not answer.
    pub flushed: Option<String>,
    /// Up to here every copy that counts has everything on disk.
    pub secured: String,
    /// `level`, `flushing`, `securing`, `ahead` of the manager, or `silent`.
    pub state: &'static str,
    /// It holds back what all partitions have flushed (T_F*).
    pub holds_flushed_back: bool,
    /// It holds back what all partitions have secured (T_P*).
    pub holds_secured_back: bool,
    #[serde(skip)]
    threshold: Threshold,
    #[serde(skip)]
    newest: Option<Position>,
}

impl PartitionCommits {
    fn new(database: String, threshold: Threshold, flushed: Option<FlushState>) -> PartitionCommits {
        let state = match flushed {
            None => "silent",
            Some(state) if state.newest > threshold.newest => "ahead",
            Some(state) if state.newest < threshold.newest => "flushing",
            Some(_) if threshold.secured < threshold.newest => "securing",
            Some(_) => "level",
        };
        PartitionCommits {
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

    /// Up to where it surely has everything: what it answers, or had secured, if that is more, as not every
    /// commit has a part in it. Where it had secured all of its own and has less now, it has lost something.
    fn has(&self) -> Position {
        let Threshold { newest, secured, .. } = self.threshold;
        self.newest.map_or(secured, |has| if secured < newest { has.max(secured) } else { has })
    }
}

/// How many commits are in a state, and for how long the oldest of them has been waiting for the next one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CommitStage {
    /// So many.
    pub commits: u64,
    /// So long, in milliseconds; none: there is none.
    pub oldest_ms: Option<u64>,
}

/// Transactions by state: those that execute, as their clients and gateways say, and all commits that are
/// kept. What was aborted left nothing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Stages {
    /// Open at clients and gateways that were heard in the last three seconds.
    pub executing: ExecutingTransactions,
    /// Kept, and not in all of their partitions yet.
    pub committed: CommitStage,
    /// In all of their partitions, and not on all disks that count.
    pub flushed: CommitStage,
    /// On all of them, and not removed from the manager's log yet.
    pub persisted: CommitStage,
    /// Committed since the manager's partition has its present primary.
    pub committed_in_term: u64,
    /// Refused since then, because another transaction was faster.
    pub aborted_in_term: u64,
    /// Bytes in the manager's memory, about.
    pub kept_bytes: u64,
    /// All is flushed up to here (T_F*).
    pub flushed_upto: String,
    /// All is secured up to here (T_P*).
    pub secured_upto: String,
}

impl Stages {
    fn of(
        executing: ExecutingTransactions,
        kept: &KeptCommits,
        (flushed, secured): (Position, Position),
    ) -> Stages {
        let count = |at: usize| kept.counts.get(at).copied().unwrap_or((kept.commits, None));
        let ((not_above_secured, next_to_secure), (not_above_flushed, next_to_flush)) = (count(0), count(1));
        let age = |since: Option<u64>| since.map(|since| kept.now_ms.saturating_sub(since));
        let stage = |commits: u64, since: Option<u64>| CommitStage {
            commits,
            oldest_ms: age(since.filter(|_| commits > 0)),
        };
        Stages {
            executing,
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

/// What the transaction manager and the partitions say.
#[derive(Clone, PartialEq, Debug)]
pub struct Transactions {
    /// Every partition that is there and that a transaction has written.
    pub partitions: Vec<PartitionCommits>,
    /// All commits that are kept, by state.
    pub stages: Stages,
    /// The same as the manager said it, with what operators have given up.
    pub kept: KeptCommits,
    /// Up to here nothing is kept any more.
    pub truncated: Position,
}

impl Transactions {
    /// Asks the manager and every partition; none: there is no transaction manager. A partition that does not
    /// answer is shown as silent. The errors are those of a call to the manager.
    pub fn ask(client: &mut Client) -> Result<Option<Transactions>, ClientError> {
        if client.cluster_map().table(COMMITS).is_none() {
            return Ok(None);
        }
        let (thresholds, truncated) = thresholds(client)?;
        // Of those that were dropped nobody waits for anything.
        let there = thresholds.into_iter().filter_map(|threshold| {
            let (table, name) = owner(client, threshold.partition)?;
            let state = flush_state(client, table, threshold.partition);
            Some(PartitionCommits::new(name, threshold, state))
        });
        let mut partitions: Vec<PartitionCommits> = there.collect();
        let lowest = hold_back(&mut partitions);
        let kept = kept(client, &[lowest.1, lowest.0])?;
        let stages = Stages::of(executing(client)?, &kept, lowest);
        Ok(Some(Transactions { partitions, stages, kept, truncated }))
    }
}

/// Up to where all partitions have flushed and secured everything (T_F*, T_P*), and who keeps these low.
fn hold_back(shown: &mut [PartitionCommits]) -> (Position, Position) {
    let newest = shown.iter().map(|shown| shown.threshold.newest).max().unwrap_or_default();
    let lowest = |of: &dyn Fn(&PartitionCommits) -> Position| {
        let lags = shown.iter().filter(|shown| of(shown) < shown.threshold.newest);
        lags.map(of).min().unwrap_or(newest)
    };
    let flushed = lowest(&PartitionCommits::has);
    let secured = lowest(&|shown| shown.threshold.secured).min(flushed);
    for shown in shown.iter_mut() {
        let holds = |at: Position, lowest: Position| at < shown.threshold.newest && at <= lowest;
        let (flushed_back, secured_back) =
            (holds(shown.has(), flushed), holds(shown.threshold.secured, secured));
        (shown.holds_flushed_back, shown.holds_secured_back) = (flushed_back, secured_back);
    }
    (flushed, secured)
}

/// How far every partition is in the manager's books, and up to where nothing is kept any more.
pub fn thresholds(client: &mut Client) -> Result<(Vec<Threshold>, Position), ClientError> {
    let manager = client.transaction_manager()?;
    match client.call(manager.call(ManagerOp::Thresholds))?.body {
        Body::Commit(CommitAnswer::Thresholds { partitions, truncated }) => Ok((partitions, truncated)),
        other => Err(unexpected(&other)),
    }
}

fn kept(client: &mut Client, upto: &[Position]) -> Result<KeptCommits, ClientError> {
    let manager = client.transaction_manager()?;
    match client.call(manager.call(ManagerOp::Kept { upto: upto.to_vec() }))?.body {
        Body::Commit(CommitAnswer::Kept(kept)) => Ok(kept),
        other => Err(unexpected(&other)),
    }
}

/// What clients and gateways say that they have open.
pub fn executing(client: &mut Client) -> Result<ExecutingTransactions, ClientError> {
    let manager = client.transaction_manager()?;
    // Nobody has this number, and nothing is said to be open there: it only asks.
    let asked = ManagerOp::Executing { who: 0, open: 0, oldest_ms: 0 };
    match client.call(manager.call(asked))?.body {
        Body::Commit(CommitAnswer::Executing(executing)) => Ok(executing),
        other => Err(unexpected(&other)),
    }
}

/// How far a partition says that it is; none: it does not answer.
pub fn flush_state(client: &mut Client, table: TableId, partition: PartitionId) -> Option<FlushState> {
    let call = Call::new(table, 0, partition, Op::FlushState { copies: 1 });
    match client.call(call).ok()?.body {
        Body::Commit(CommitAnswer::State(state)) => Some(state),
        _ => None,
    }
}

/// Whose a partition is: the database and its name; none: it was dropped.
pub fn owner(client: &Client, partition: PartitionId) -> Option<(TableId, String)> {
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

    fn shown(newest: u64, flushed: Option<u64>, secured: u64) -> PartitionCommits {
        let threshold = Threshold { partition: PartitionId(64), newest: at(newest), secured: at(secured) };
        let state = flushed.map(|flushed| FlushState { newest: at(flushed), secured: at(secured) });
        PartitionCommits::new("d".into(), threshold, state)
    }

    #[test]
    fn who_holds_thresholds_back_is_named() {
        let mut all = [shown(9, Some(9), 4), shown(8, Some(6), 6), shown(5, Some(5), 5), shown(7, None, 7)];
        assert_eq!(hold_back(&mut all), (at(6), at(4)));
        let backs: Vec<_> = all.iter().map(|one| (one.holds_flushed_back, one.holds_secured_back)).collect();
        assert_eq!(backs, [(false, true), (true, false), (false, false), (false, false)]);
        assert_eq!(all.map(|one| one.state), ["securing", "flushing", "level", "silent"]);
        assert_eq!(shown(5, Some(7), 5).state, "ahead");
        // Its newest commit is under way to it, and the one before that had no part in it for long.
        let mut all = [shown(12, Some(2), 11), shown(9, None, 4)];
        assert_eq!(hold_back(&mut all), (at(4), at(4)));
        assert!(all[1].holds_flushed_back && all[1].holds_secured_back && !all[0].holds_flushed_back);
        // It was forced to lead without what it had secured.
        let mut all = [shown(8, Some(4), 8), shown(9, Some(9), 9)];
        assert_eq!(hold_back(&mut all), (at(4), at(4)));
        assert!(all[0].holds_flushed_back && all[0].state == "flushing");
    }

    #[test]
    fn commits_are_counted_by_state() {
        let counts = vec![(10, Some(7_000)), (14, Some(9_500))];
        let kept =
            KeptCommits { counts, commits: 20, oldest_ms: Some(1_000), now_ms: 10_000, ..Default::default() };
        let executing = ExecutingTransactions { transactions: 3, senders: 2, oldest_ms: Some(40) };
        let stages = Stages::of(executing, &kept, (at(14), at(10)));
        let seen = [&stages.committed, &stages.flushed, &stages.persisted]
            .map(|stage| (stage.commits, stage.oldest_ms));
        assert_eq!(seen, [(6, Some(500)), (4, Some(3_000)), (10, Some(9_000))]);
        let json = serde_json::to_value(&stages).expect("names are texts");
        let executing = serde_json::json!({ "transactions": 3, "senders": 2, "oldest_ms": 40 });
        assert_eq!(json["executing"], executing);
    }
}
