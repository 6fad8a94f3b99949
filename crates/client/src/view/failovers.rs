//! Failovers as people look at them: why, how long each part took, what was lost.

use serde::Serialize;
use types::config::TailReport;
use types::{FailoverRecord, TableId};

/// One failover.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// Its number.
    pub id: u64,
    /// The partition.
    pub partition: u32,
    /// Its table.
    pub table: String,
    /// Why.
    pub cause: String,
    /// The node that led before.
    pub from: u32,
    /// The node that leads now.
    pub to: u32,
    /// When the old primary was last heard, milliseconds since 1970.
    pub at_ms: u64,
    /// From the last sign of life until a seal was asked for.
    pub detect_ms: u64,
    /// From there until the seal was in the metastore.
    pub seal_ms: u64,
    /// From there until the new primary had its log; `None`: not yet.
    pub reconcile_ms: Option<u64>,
    /// From there until it served; `None`: not yet.
    pub serve_ms: Option<u64>,
    /// All of it.
    pub total_ms: Option<u64>,
    /// What was lost, in words.
    pub loss: String,
    /// True if acknowledged commits may be lost.
    pub loss_possible: bool,
    /// Tails that came back and were set aside.
    pub tails: Vec<TailReport>,
}

/// The lines of these records, newest last. `table_of` names the table of a partition.
pub fn lines(
    records: &[FailoverRecord],
    table_of: impl Fn(types::PartitionId) -> Option<String>,
) -> Vec<Line> {
    let line = |record: &FailoverRecord| {
        let split = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        Line {
            id: record.id,
            partition: record.partition.0,
            table: table_of(record.partition).unwrap_or_else(|| "(dropped)".into()),
            cause: in_words(record.cause),
            from: record.old_primary.node.0,
            to: record.new_primary.node.0,
            at_ms: record.last_heard_ms,
            detect_ms: record.suspected_ms.saturating_sub(record.last_heard_ms),
            seal_ms: record.sealed_ms.saturating_sub(record.suspected_ms),
            reconcile_ms: split(Some(record.sealed_ms), record.reconciled_ms),
            serve_ms: split(record.reconciled_ms, record.serving_ms),
            total_ms: split(Some(record.last_heard_ms), record.serving_ms),
            loss: loss(record),
            loss_possible: record.loss.possible,
            tails: record.loss.tails.clone(),
        }
    };
    records.iter().map(line).collect()
}

/// The name of a partition's table.
pub fn table_name(map: &crate::Map, partition: types::PartitionId) -> Option<String> {
    let id: TableId = map.partition(partition)?.table;
    map.owners().find(|table| table.id == id).map(|table| table.name.clone())
}

/// A cause as the records write it: `evicted-slow`.
pub fn in_words(cause: types::config::Cause) -> String {
    serde_json::to_value(cause).ok().and_then(|text| text.as_str().map(str::to_string)).unwrap_or_default()
}

/// What becomes of commits of global transactions that are missing.
const BROUGHT_AGAIN: &str = "commits are brought again from sys_commits";

fn loss(record: &FailoverRecord) -> String {
    let report = &record.loss;
    let commits: u64 = report.tails.iter().map(|tail| tail.commits).sum();
    let surely: u64 = report.tails.iter().map(|tail| tail.surely_acknowledged).sum();
    let set_aside = |what: &str| match commits {
        0 => String::new(),
        _ => format!("; {commits} {what} set aside, {surely} of them surely acknowledged"),
    };
    if !report.possible && report.brought_again {
        return format!("nothing: {BROUGHT_AGAIN}{}", set_aside("other entries"));
    }
    if !report.possible && commits == 0 {
        return "nothing".into();
    }
    if !report.possible {
        return format!("nothing acknowledged; {commits} unacknowledged commits set aside");
    }
    // The last entry that was kept is older than the old primary's term: of that nothing is left, whatever
    // its LSNs (PR-98).
    let of_old_term = report.kept_term.is_some_and(|term| term < record.old_term);
    let mut text = match (report.kept, report.last_heard) {
        (Some(kept), _) if of_old_term => {
            let term = record.old_term.0;
            format!("possibly all that was acknowledged in term {term}, and above LSN {kept} in older ones")
        }
        (Some(kept), Some(heard)) if heard > kept => {
            format!("possibly LSN {} to {} or beyond", kept.next(), heard)
        }
        (Some(kept), _) => format!("whatever was acknowledged above LSN {kept}"),
        _ => "not known yet".into(),
    };
    if report.brought_again {
        text.push_str(&format!(" (changes of tables alone: {BROUGHT_AGAIN})"));
    }
    text.push_str(&set_aside("commits"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;
    use types::config::{Cause, LossReport};
    use types::{Epoch, Lsn, Member, NodeId, PartitionId};

    fn record(loss: LossReport) -> FailoverRecord {
        let member = |node| Member { node: NodeId(node), ..Member::default() };
        FailoverRecord {
            format: 1,
            id: 1,
            partition: PartitionId(64),
            cause: Cause::Suspected,
            old_epoch: Epoch(1),
            old_primary: member(1),
            old_term: Term(1),
            new_epoch: Epoch(2),
            new_primary: member(2),
            last_heard_ms: 1000,
            suspected_ms: 1120,
            sealed_ms: 1125,
            reconciled_ms: Some(1130),
            serving_ms: Some(1190),
            loss,
            unknown: Default::default(),
        }
    }

    #[test]
    fn pr368_what_is_brought_again_is_not_lost_in_words() {
        let report = LossReport { brought_again: true, kept: Some(Lsn(10)), ..LossReport::default() };
        let nothing = "nothing: commits are brought again from sys_commits";
        assert_eq!(loss(&record(report.clone())), nothing);
        let tail = TailReport {
            partition: PartitionId(64),
            node: NodeId(1),
            file: "1.tail".into(),
            term: Term(1),
            from: Lsn(11),
            to: Lsn(15),
            commits: 2,
            surely_acknowledged: 1,
            sessions: 1,
            rows: None,
        };
        let with_tail = LossReport { tails: vec![tail], ..report.clone() };
        let text = format!("{nothing}; 2 other entries set aside, 1 of them surely acknowledged");
        assert_eq!(loss(&record(with_tail)), text);
        let of_tables = LossReport { possible: true, ..report };
        assert_eq!(
            loss(&record(of_tables)),
            "whatever was acknowledged above LSN 10 (changes of tables alone: commits are brought again from sys_commits)"
        );
    }

    #[test]
    fn time_is_split_and_loss_is_in_words() {
        let line = &lines(&[record(LossReport::default())], |_| Some("t".into()))[0];
        assert_eq!((line.detect_ms, line.seal_ms, line.reconcile_ms), (120, 5, Some(5)));
        assert_eq!((line.serve_ms, line.total_ms, line.cause.as_str()), (Some(60), Some(190), "suspected"));
        assert_eq!(line.loss, "nothing");
        let lossy = LossReport {
            possible: true,
            kept: Some(Lsn(10)),
            last_heard: Some(Lsn(15)),
            ..LossReport::default()
        };
        assert_eq!(loss(&record(lossy.clone())), "possibly LSN 11 to 15 or beyond");
        let of_the_term = LossReport { kept_term: Some(Term(1)), ..lossy.clone() };
        assert_eq!(loss(&record(of_the_term)), "possibly LSN 11 to 15 or beyond");
        let before = LossReport { kept_term: Some(Term(0)), last_heard: Some(Lsn(10)), ..lossy };
        let text = "possibly all that was acknowledged in term 1, and above LSN 10 in older ones";
        assert_eq!(loss(&record(before)), text);
    }
}
