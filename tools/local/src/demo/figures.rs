//! Figures of an act: the cluster's own counters, and how the time of a failover splits.

use super::clock::Moment;
use super::workload::SLICE;
use crate::error::LocalError;
use client::Client;
use serde::Serialize;
use std::time::Instant;
use types::{FailoverRecord, NodeId};
use wire::control::{AdminCommand, ClusterStatus};

/// The counters of all nodes at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    at: Instant,
    status: ClusterStatus,
}

impl Sample {
    /// Asks a controller.
    pub fn take(client: &mut Client) -> Result<Sample, LocalError> {
        let text = client.admin(AdminCommand::Status)?;
        let status = serde_json::from_str(&text)
            .map_err(|error| LocalError::Failed(format!("the cluster's status cannot be read: {error}")))?;
        Ok(Sample { at: Instant::now(), status })
    }
}

/// Fsyncs of all nodes per second, and commits acknowledged by all nodes per fsync of any.
pub(super) fn syncs(before: &Sample, after: &Sample) -> (Option<f64>, Option<f64>) {
    let (mut fsyncs_s, mut fsyncs, mut commits) = (0.0, 0.0, 0.0);
    for (new, new_age) in &after.status.nodes {
        let old = before.status.nodes.iter().find(|(old, _)| old.member == new.member);
        let Some((old, old_age)) = old else { continue };
        // What a node said is as old as it says: the time between two statements, not between two questions.
        let asked = after.at.saturating_duration_since(before.at).as_secs_f64();
        let seconds = asked + (*old_age as f64 - *new_age as f64) / 1000.0;
        if seconds > 0.0 {
            fsyncs_s += (new.fsyncs - old.fsyncs) as f64 / seconds;
            fsyncs += (new.fsyncs - old.fsyncs) as f64;
            commits += (new.commits - old.commits) as f64;
        }
    }
    if fsyncs > 0.0 { (Some(fsyncs_s), Some(commits / fsyncs)) } else { (None, None) }
}

/// Operations per second between two moments of a run, given in seconds since its start.
pub(super) fn ops_s(slices: &[u32], from: f64, to: f64) -> Option<f64> {
    let slice = SLICE.as_secs_f64();
    let (first, end) = ((from / slice).ceil() as usize, (to / slice).floor() as usize);
    let counted = slices.get(first..end.min(slices.len()))?;
    // Slices without an operation at the end of a run are not in the list.
    let sum: u64 = counted.iter().map(|count| u64::from(*count)).sum();
    (end > first).then(|| sum as f64 / ((end - first) as f64 * slice))
}

/// Where the time of a failover went, in milliseconds; of the partition that took longest.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Split {
    /// From the fault to the request for a seal.
    pub suspect_ms: Option<f64>,
    /// From there until the seal was in the metastore.
    pub seal_ms: Option<f64>,
    /// From there until the new primary had its log.
    pub replay_ms: Option<f64>,
    /// From there until it served: old promises had run out.
    pub serve_ms: Option<f64>,
    /// From there until a write was acknowledged on every partition.
    pub first_write_ms: Option<f64>,
}

/// The failovers that a fault caused, and those that nobody asked for.
pub(super) fn caused<'a>(
    failovers: &'a [FailoverRecord],
    victim: NodeId,
    fault: &Moment,
) -> (Vec<&'a FailoverRecord>, Vec<&'a FailoverRecord>) {
    let by_fault =
        |record: &&FailoverRecord| record.old_primary.node == victim && record.sealed_ms >= fault.wall_ms;
    failovers.iter().partition(by_fault)
}

/// A failover that was not by the fault: whose lead ended, why, and when.
pub(super) fn in_words(record: &FailoverRecord, start: &Moment) -> String {
    let seconds = (record.sealed_ms as f64 - start.wall_ms as f64) / 1000.0;
    let (node, cause) = (record.old_primary.node.0, format!("{:?}", record.cause).to_lowercase());
    format!("partition {} of node {node}, {cause}, at {seconds:.1} s", record.partition.0)
}

/// From the fault to the seal on the slowest partition.
pub(super) fn detection_ms(caused: &[&FailoverRecord], fault: &Moment) -> Option<f64> {
    caused.iter().map(|record| ms(fault.wall_ms, record.sealed_ms)).reduce(f64::max)
}

/// How the slowest failover's time splits.
pub(super) fn split(caused: &[&FailoverRecord], fault: &Moment, failover_ms: Option<f64>) -> Split {
    let ended =
        |record: &&&FailoverRecord| record.serving_ms.or(record.reconciled_ms).unwrap_or(record.sealed_ms);
    let Some(record) = caused.iter().max_by_key(ended) else { return Split::default() };
    let reconciled = record.reconciled_ms;
    Split {
        suspect_ms: Some(ms(fault.wall_ms, record.suspected_ms)),
        seal_ms: Some(ms(record.suspected_ms, record.sealed_ms)),
        replay_ms: reconciled.map(|at| ms(record.sealed_ms, at)),
        serve_ms: reconciled.zip(record.serving_ms).map(|(from, to)| ms(from, to)),
        // The others are whole milliseconds.
        first_write_ms: failover_ms
            .zip(record.serving_ms)
            .map(|(all, to)| (all - ms(fault.wall_ms, to)).round()),
    }
}

fn ms(from: u64, to: u64) -> f64 {
    to as f64 - from as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use types::{Incarnation, Member};
    use wire::control::NodeStatus;

    fn sample(at: Instant, nodes: &[(u32, u64, u64, u64)]) -> Sample {
        let status = |(node, fsyncs, commits, age): &(u32, u64, u64, u64)| {
            let member = Member { node: NodeId(*node), incarnation: Incarnation(1), ..Member::default() };
            (NodeStatus { member, fsyncs: *fsyncs, commits: *commits, ..NodeStatus::default() }, *age)
        };
        let nodes = nodes.iter().map(status).collect();
        Sample { at, status: ClusterStatus { nodes, ..ClusterStatus::default() } }
    }

    #[test]
    fn counters_are_compared_at_the_moment_they_were_told() {
        let start = Instant::now();
        let before = sample(start, &[(1, 100, 1000, 0), (2, 50, 0, 0)]);
        let after =
            sample(start + Duration::from_secs(2), &[(1, 300, 3000, 0), (2, 150, 0, 0), (3, 9, 9, 0)]);
        let (fsyncs_s, per_fsync) = syncs(&before, &after);
        assert_eq!((fsyncs_s, per_fsync.map(|n| (n * 100.0).round())), (Some(150.0), Some(667.0)));
        assert_eq!(syncs(&before, &before), (None, None));
    }

    #[test]
    fn throughput_is_that_between_two_moments() {
        let slices = [10, 10, 10, 0, 0, 5, 5, 5];
        assert_eq!(ops_s(&slices, 0.0, 0.3).map(f64::round), Some(100.0));
        assert_eq!(ops_s(&slices, 0.3, 0.5).map(f64::round), Some(0.0));
        assert_eq!(ops_s(&slices, 0.5, 1.0).map(f64::round), Some(30.0));
        assert_eq!(ops_s(&slices, 2.0, 3.0), None);
    }
}
