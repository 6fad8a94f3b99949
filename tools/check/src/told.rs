//! What the cluster says it lost: asked of every partition for every term, and compared with the records of
//! failovers and with what the client noticed by itself.

use client::{Client, ClientError, Table};
use history::{At, Finding, Losses, Operation, Rule};
use local::LocalError;
use local::demo::history::Reports;
use std::collections::BTreeSet;
use types::{FailoverRecord, Lsn, PartitionId, Position, Term};
use wire::control::AdminCommand;
use wire::{Body, Op};

/// What the cluster says.
pub struct ClusterAnswers {
    /// By partition and term.
    pub losses: Losses,
    /// Failovers, for the count.
    pub failovers: u64,
    /// Where two say different things.
    pub findings: Vec<Finding>,
}

/// Asks.
pub fn ask(
    client: &mut Client,
    table: &Table,
    history: &[Operation],
    noticed: &[(u32, At)],
) -> Result<ClusterAnswers, LocalError> {
    let records = failovers(client, table)?;
    let mut terms: BTreeSet<(u32, u64)> = BTreeSet::new();
    for record in &records {
        terms.extend([(record.partition.0, record.old_term.0), (record.partition.0, record.new_epoch.0)]);
    }
    for operation in history.iter().filter(|operation| !operation.writes.is_empty()) {
        terms.extend(operation.at.map(|at| (operation.place, at.term)));
    }
    let (mut losses, mut reports) = (Losses::default(), Reports::default());
    for (place, term) in terms.into_iter().filter(|(_, term)| *term > 0) {
        let (partition, term) = (PartitionId(place), Term(term));
        match client.call(table.call(partition, Op::TermEnd { term }))?.body {
            Body::TermEnd(end) => {
                losses.ended(place, term.0, end.map(|end| end.0));
                if let Some(end) = end {
                    reports.ended(partition, term, end);
                }
            }
            other => return Err(ClientError::Protocol(format!("{other:?}")).into()),
        }
    }
    for record in &records {
        if let Some(kept) = record.loss.kept_position() {
            reports.failover(record.partition, record.new_epoch, kept);
        }
    }
    let mut findings: Vec<Finding> = compare(&reports, history).into_iter().collect();
    findings.extend(check_noticed(&losses, noticed));
    Ok(ClusterAnswers { losses, failovers: records.len() as u64, findings })
}

fn failovers(client: &mut Client, table: &Table) -> Result<Vec<FailoverRecord>, LocalError> {
    let text = client.admin(AdminCommand::Failovers)?;
    let all: Vec<FailoverRecord> = serde_json::from_str(&text)
        .map_err(|error| LocalError::Failed(format!("the list of failovers cannot be read: {error}")))?;
    let ours: BTreeSet<PartitionId> = table.partitions().collect();
    Ok(all.into_iter().filter(|record| ours.contains(&record.partition)).collect())
}

/// What a partition and the records of its failovers say of each acknowledged write must be the same.
fn compare(reports: &Reports, history: &[Operation]) -> Option<Finding> {
    history.iter().filter(|operation| !operation.writes.is_empty()).find_map(|operation| {
        let at = operation.at?;
        let (place, position) = (PartitionId(operation.place), Position::new(Term(at.term), Lsn(at.lsn)));
        let (own, records) = (reports.lost(place, position), reports.lost_by_records(place, position)?);
        (own != records).then(|| Finding {
            rule: Rule::Loss,
            key: None,
            place: Some(operation.place),
            sentence: format!(
                "partition {place} says that {position} is {}, and the record of its failover the opposite",
                if own { "lost" } else { "kept" }
            ),
            operations: vec![operation.number],
        })
    })
}

/// What the client noticed to be lost must be reported.
fn check_noticed(losses: &Losses, noticed: &[(u32, At)]) -> Option<Finding> {
    let (place, at) = noticed.iter().find(|(place, at)| !losses.is_lost(*place, *at))?;
    Some(Finding {
        rule: Rule::Loss,
        key: None,
        place: Some(*place),
        sentence: format!(
            "a session was told that its write at {}.{} is lost, and no report says so",
            at.term, at.lsn
        ),
        operations: Vec::new(),
    })
}
