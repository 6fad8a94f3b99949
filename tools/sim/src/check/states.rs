//! The rows of a partition at every position of one log.

use crate::check::lineage::Known;
use std::collections::BTreeMap;
use types::Lsn;

/// A row: its key's name, the LSN that wrote it, and its value.
pub type StateRow<'a> = (&'a str, Lsn, u64);

/// Every version of every row, and of every feed's mark, along a log.
#[derive(Debug, Default)]
pub struct States<'a> {
    /// Oldest first; no value: it was removed.
    versions: BTreeMap<&'a str, Vec<(Lsn, Option<u64>)>>,
    marks: BTreeMap<u64, Vec<(Lsn, u64)>>,
}

impl<'a> States<'a> {
    /// The states along a log, whose oldest entry comes first.
    pub fn of(line: impl IntoIterator<Item = &'a Known>) -> States<'a> {
        let mut states = States::default();
        for known in line {
            for (key, value) in &known.changes {
                states.versions.entry(key).or_default().push((known.at.lsn, *value));
            }
            for (feed, position) in &known.marks {
                states.marks.entry(*feed).or_default().push((known.at.lsn, *position));
            }
        }
        states
    }

    /// The row of a key at an LSN: of several changes in one entry the last one counts.
    pub fn row(&self, key: &str, at: Lsn) -> Option<(Lsn, u64)> {
        newest(self.versions.get(key)?, at)
    }

    /// True if a key ever had a row at or below an LSN.
    pub fn ever_had(&self, key: &str, at: Lsn) -> bool {
        let versions = self.versions.get(key).into_iter().flatten();
        versions.into_iter().any(|(lsn, value)| *lsn <= at && value.is_some())
    }

    /// All rows at an LSN, in the order of their keys' names, which is that of their keys.
    pub fn rows(&self, at: Lsn) -> impl Iterator<Item = StateRow<'a>> {
        let row = move |(key, versions): (&&'a str, &Vec<_>)| {
            newest(versions, at).map(|(lsn, value)| (*key, lsn, value))
        };
        self.versions.iter().filter_map(row)
    }

    /// Where a feed's mark stands at an LSN; zero if it has none.
    pub fn mark(&self, feed: u64, at: Lsn) -> u64 {
        let marks = self.marks.get(&feed).map(Vec::as_slice).unwrap_or_default();
        let below = marks.partition_point(|(lsn, _)| *lsn <= at);
        below.checked_sub(1).map_or(0, |newest| marks[newest].1)
    }
}

fn newest(versions: &[(Lsn, Option<u64>)], at: Lsn) -> Option<(Lsn, u64)> {
    let below = versions.partition_point(|(lsn, _)| *lsn <= at);
    let (lsn, value) = versions[below.checked_sub(1)?];
    value.map(|value| (lsn, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::tests::known;

    #[test]
    fn a_state_has_the_newest_of_each_row_at_its_lsn() {
        let line = [
            known(2, &[("a", Some(1)), ("b", Some(1))], &[(7, 10)]),
            known(4, &[("a", None), ("c", Some(2)), ("c", Some(3))], &[]),
            known(5, &[("a", Some(4))], &[(7, 20)]),
        ];
        let states = States::of(&line);
        assert_eq!(states.row("a", Lsn(1)), None);
        assert_eq!(states.row("a", Lsn(3)), Some((Lsn(2), 1)));
        assert_eq!(states.row("a", Lsn(4)), None, "it was removed");
        assert_eq!(states.row("c", Lsn(9)), Some((Lsn(4), 3)));
        let rows: Vec<_> = states.rows(Lsn(4)).collect();
        assert_eq!(rows, [("b", Lsn(2), 1), ("c", Lsn(4), 3)]);
        assert_eq!([1, 2, 4].map(|lsn| states.ever_had("a", Lsn(lsn))), [false, true, true]);
        assert_eq!([1, 2, 4, 5].map(|lsn| states.mark(7, Lsn(lsn))), [0, 10, 10, 20]);
        assert_eq!(states.mark(8, Lsn(5)), 0);
    }
}
