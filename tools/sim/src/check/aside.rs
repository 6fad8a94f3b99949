//! R9: what a replica gives up and nobody else has is in tails, which say what they have.

use super::lineage::Known;
use crate::rows;
use std::collections::{BTreeMap, BTreeSet};
use types::config::TailReport;
use types::engine::{Version, space};
use types::{Lsn, NodeId, PartitionId, Position};
use wire::Entry;
use wire::entry::Kind;

/// All tails.
#[derive(Debug, Default)]
pub struct Aside {
    /// Entries, with the node whose disk has them.
    entries: BTreeSet<(NodeId, PartitionId, Position)>,
    /// Rows of entries that the log did not have any more.
    rows: BTreeSet<(NodeId, PartitionId, Lsn, String, Option<u64>)>,
    /// The reports of tails with rows.
    of_rows: Vec<TailReport>,
}

impl Aside {
    /// A tail was set aside: the file must hold what the report says.
    pub fn add(
        &mut self,
        report: &TailReport,
        entries: &[Entry],
        (rows, of_database): (&[Version], bool),
    ) -> Result<(), String> {
        let (node, partition) = (report.node, report.partition);
        let wrong =
            |what: &str| Err(format!("{what}: {} entries, {} rows, {report:?}", entries.len(), rows.len()));
        if report.rows.is_some() {
            let within = |row: &Version| (report.from..=report.to).contains(&row.lsn);
            if !entries.is_empty() || report.rows != Some(rows.len() as u64) || !rows.iter().all(within) {
                return wrong("a tail of rows is reported as it is not");
            }
            let last = report.commits == report.to.0 + 1 - report.from.0;
            if !last && report.commits != 0 || report.surely_acknowledged > report.commits {
                return wrong("a tail of rows counts what cannot be");
            }
            let users = rows.iter().filter(|row| row.key.first() == Some(&space::ROW));
            self.rows.extend(users.map(|row| {
                let (name, value) = rows::stored(of_database, &row.key, row.value.as_deref());
                (node, partition, row.lsn, name, value)
            }));
            self.of_rows.push(report.clone());
            return Ok(());
        }
        let span = (entries.first().map(Entry::lsn), entries.last().map(Entry::lsn));
        if span != (Some(report.from), Some(report.to)) || !rows.is_empty() {
            return wrong("a tail is reported as it is not");
        }
        let commit = |entry: &&Entry| matches!(entry.header().kind, Kind::Rows | Kind::Call | Kind::Bulk);
        // What is brought again is not counted, unless all had it.
        let most = entries.iter().filter(commit).count() as u64;
        let least = entries.iter().filter(commit).filter(|entry| !entry.is_flush()).count() as u64;
        if !(least..=most).contains(&report.commits) {
            return wrong("a tail counts what it does not have");
        }
        self.entries.extend(entries.iter().map(|entry| (node, partition, entry.at())));
        Ok(())
    }

    /// The entries that are in tails of this node, by themselves, and the last of those of which only rows
    /// are.
    pub fn tails(&self, node: NodeId, partition: PartitionId) -> impl Iterator<Item = Position> {
        let of_both = self.entries.iter().filter(move |(of, id, _)| (*of, *id) == (node, partition));
        let rows = self.of_rows.iter().filter(move |of| (of.node, of.partition) == (node, partition));
        of_both.map(|(_, _, at)| *at).chain(rows.map(|report| Position::new(report.term, report.to)))
    }

    /// Of what a node gives up, newest first, the first entry that is in none of its tails. Rows that a later
    /// entry of these wrote again, or deleted, are not asked for, nor are deletions: an engine does not know
    /// of them for long.
    pub fn lacks<'a>(
        &self,
        node: NodeId,
        partition: PartitionId,
        given_up: impl Iterator<Item = &'a Known>,
    ) -> Option<Position> {
        let mut later: BTreeSet<&str> = BTreeSet::new();
        for known in given_up {
            // Of what an entry itself writes again only the last is left.
            let last: BTreeMap<&str, Option<u64>> =
                known.changes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let has = |(name, value): (&&str, &Option<u64>)| {
                let row = (node, partition, known.at.lsn, name.to_string(), *value);
                later.contains(name) || value.is_none() || self.rows.contains(&row)
            };
            let in_rows = self.of_rows.iter().any(|report| covers(report, node, partition, known.at));
            let there =
                self.entries.contains(&(node, partition, known.at)) || in_rows && last.iter().all(has);
            // What a primary does by itself, its successor does again.
            if known.is_write && !known.changes.is_empty() && !there {
                return Some(known.at);
            }
            later.extend(known.changes.iter().map(|(name, _)| name.as_str()));
        }
        None
    }
}

/// True if this tail is of a log that had this entry, and reaches over it.
pub fn covers(report: &TailReport, node: NodeId, partition: PartitionId, at: Position) -> bool {
    let same = report.node == node && report.partition == partition;
    same && (report.from..=report.to).contains(&at.lsn) && report.term >= at.term
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::check::lineage::Lineage;
    use crate::check::lineage::tests::{P, at, entry};
    use types::Term;

    /// The report of a tail of the first node, of term 1.
    pub(crate) fn report(from: u64, to: u64, rows: Option<u64>) -> TailReport {
        TailReport {
            partition: P,
            node: NodeId(1),
            file: "x".into(),
            term: Term(1),
            from: Lsn(from),
            to: Lsn(to),
            commits: to + 1 - from,
            surely_acknowledged: 0,
            sessions: 0,
            rows,
        }
    }

    fn row(name: &str, lsn: u64, value: u64) -> Version {
        let key = [&[space::ROW][..], name.as_bytes()].concat();
        Version { key: key.into(), lsn: Lsn(lsn), value: Some(rows::row(name, value, false)) }
    }

    #[test]
    fn what_is_given_up_is_in_entries_or_in_rows_that_nothing_has_overwritten() {
        let mut lineage = Lineage::default();
        let mut log: Vec<Entry> = Vec::new();
        for (lsn, key, value) in [(1, "a", 1), (2, "b", 2), (3, "a", 3), (4, "c", 4)] {
            let crc = log.last().map_or(0, Entry::crc);
            log.push(entry(at(1, lsn), crc, key, value));
            lineage.add(&log[log.len() - 1]).expect("follows");
        }
        let lacks = |aside: &Aside| aside.lacks(NodeId(1), P, lineage.line(P, at(1, 4)));
        let mut aside = Aside::default();
        assert_eq!(lacks(&aside), Some(at(1, 4)));
        aside.add(&report(4, 4, None), &log[3..], (&[], false)).expect("as it says");
        assert_eq!(lacks(&aside), Some(at(1, 3)));
        aside.add(&report(1, 3, Some(1)), &[], (&[row("a", 3, 3)], false)).expect("as it says");
        assert_eq!(lacks(&aside), Some(at(1, 2)), "of b nothing is left");
        aside.add(&report(1, 3, Some(1)), &[], (&[row("b", 2, 2)], false)).expect("as it says");
        assert_eq!(lacks(&aside), None, "(1,1) was overwritten");
        assert!(aside.lacks(NodeId(2), P, lineage.line(P, at(1, 4))).is_some(), "another disk");
    }

    #[test]
    fn what_no_client_has_written_is_in_no_tail() {
        let mut lineage = Lineage::default();
        lineage.add(&entry(at(1, 1), 0, "a", 1)).expect("follows");
        let known = lineage.line(P, at(1, 1)).next().expect("it is there");
        let own = Known { is_write: false, ..known.clone() };
        let lacks = |known| Aside::default().lacks(NodeId(1), P, std::iter::once(known));
        assert_eq!((lacks(known), lacks(&own)), (Some(at(1, 1)), None));
    }

    #[test]
    fn a_tail_that_is_not_what_its_report_says_is_rejected() {
        let log = [entry(at(1, 4), 0, "a", 1)];
        assert!(Aside::default().add(&report(4, 5, None), &log, (&[], false)).is_err());
        assert!(Aside::default().add(&report(4, 4, Some(2)), &[], (&[row("a", 4, 1)], false)).is_err());
        assert!(Aside::default().add(&report(4, 4, Some(1)), &[], (&[row("a", 5, 1)], false)).is_err());
        let more = TailReport { commits: 2, ..report(4, 4, None) };
        assert!(Aside::default().add(&more, &log, (&[], false)).is_err());
    }
}
