//! The rows of many partitions, each at the position that it has in one point ([`crate::ClusterSnapshot`]),
//! page by page. Pure: who reads sends what [`SnapshotPages::next_ask`] says and hands pages in.
//!
//! Every page names the position, with its term (PR-330). A state that is not kept any more, or that a
//! failover has lost, is refused then, and the reading begins anew with another point: what was read is of
//! one state, whoever answered which page.

use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use types::{Lsn, PartitionId, Position, Rules};
use wire::Op;
use wire::request::ReadSnapshot;

/// Streams that are read at once.
const MAX_STREAMS_READ: usize = 4;

/// A reading under way. Streams are named by their place in what is read.
#[derive(Clone, Debug)]
pub struct SnapshotPages {
    rules: Rules,
    /// Rows of a page.
    rows: u32,
    /// Of each stream: its partition, and the position that is read.
    streams: Vec<(PartitionId, Position)>,
    /// Streams that are not begun.
    left: VecDeque<usize>,
    /// Where streams go on.
    ready: VecDeque<(usize, Bytes)>,
    /// Streams of which a page is on its way.
    flying: BTreeSet<usize>,
}

impl SnapshotPages {
    /// Over all these streams, with so many rows in a page.
    pub fn new(streams: Vec<(PartitionId, Position)>, rows: u32, rules: Rules) -> SnapshotPages {
        assert!(rows > 0, "a page without rows never ends");
        let (left, ready) = ((0..streams.len()).collect(), VecDeque::new());
        SnapshotPages { rules, rows, streams, left, ready, flying: BTreeSet::new() }
    }

    /// The next page that is to be asked for: of which stream, and how. Each is given out once.
    pub fn next_ask(&mut self) -> Option<(usize, Op)> {
        while self.flying.len() + self.ready.len() < MAX_STREAMS_READ
            && let Some(stream) = self.left.pop_front()
        {
            self.ready.push_back((stream, Bytes::new()));
        }
        let (stream, from) = self.ready.pop_front()?;
        let first = self.flying.insert(stream);
        assert!(first, "PR-330: two pages of stream {stream} are on their way");
        let named = from.is_empty() || self.rules.pages_name_their_point();
        let at = if named { ReadSnapshot::At(self.streams[stream].1) } else { ReadSnapshot::Newest };
        Some((stream, Op::Scan { from, to: Bytes::new(), limit: self.rows, at }))
    }

    /// The page that was asked for last of a stream. True if that was all of it. The error is a sentence: no
    /// node answers so.
    pub fn heard(
        &mut self,
        stream: usize,
        rows: &[(Bytes, Lsn, Bytes)],
        more: bool,
    ) -> Result<bool, &'static str> {
        let flew = self.flying.remove(&stream);
        assert!(flew, "PR-330: no page of stream {stream} was asked for");
        match rows.last() {
            _ if !more => Ok(true),
            None => Err("a page without rows says that there are more"),
            Some((last, ..)) => {
                // The smallest key above the last one.
                self.ready.push_back((stream, [last, &[0u8][..]].concat().into()));
                Ok(false)
            }
        }
    }

    /// Partitions of which something is not read yet: their states are still needed.
    pub fn unread(&self) -> BTreeSet<PartitionId> {
        let ready = self.ready.iter().map(|(stream, _)| stream);
        let streams = self.left.iter().chain(ready).chain(&self.flying);
        streams.map(|stream| self.streams[*stream].0).collect()
    }

    /// True if nothing is on its way.
    pub fn is_waiting(&self) -> bool {
        self.flying.is_empty()
    }

    /// True if everything is read.
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && self.ready.is_empty() && self.flying.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;

    fn at(lsn: u64) -> Position {
        Position::new(Term(3), Lsn(lsn))
    }

    fn pages(streams: u32) -> SnapshotPages {
        let streams = (0..streams).map(|n| (PartitionId(64 + n), at(u64::from(n)))).collect();
        SnapshotPages::new(streams, 2, Rules::ALL)
    }

    fn row(key: &'static str) -> (Bytes, Lsn, Bytes) {
        (Bytes::from(key), Lsn(1), Bytes::new())
    }

    fn asked(pages: &mut SnapshotPages) -> (usize, Bytes, ReadSnapshot) {
        match pages.next_ask() {
            Some((stream, Op::Scan { from, at, .. })) => (stream, from, at),
            other => panic!("a page was to be asked for, not {other:?}"),
        }
    }

    #[test]
    fn pr330_every_page_names_the_point() {
        let mut pages = pages(1);
        assert_eq!(asked(&mut pages), (0, Bytes::new(), ReadSnapshot::At(at(0))));
        assert_eq!(pages.heard(0, &[row("a"), row("b")], true), Ok(false));
        assert_eq!(asked(&mut pages), (0, Bytes::from("b\0"), ReadSnapshot::At(at(0))));
        assert_eq!(pages.heard(0, &[row("c")], false), Ok(true));
        assert!(pages.is_done() && pages.next_ask().is_none());
    }

    #[test]
    fn a_few_streams_are_read_at_a_time_and_each_partition_is_needed_until_it_is_read() {
        let mut pages = pages(6);
        let first: Vec<usize> = (0..4).map(|_| asked(&mut pages).0).collect();
        assert_eq!((first, pages.next_ask()), (vec![0, 1, 2, 3], None));
        assert_eq!((pages.unread().len(), pages.is_waiting()), (6, false));
        assert_eq!(pages.heard(2, &[], false), Ok(true));
        assert_eq!(pages.unread().len(), 5);
        assert_eq!(asked(&mut pages).0, 4);
        assert!(!pages.is_done());
    }

    #[test]
    fn a_page_of_nothing_that_goes_on_is_none() {
        let mut pages = pages(1);
        let _ = asked(&mut pages);
        assert!(pages.heard(0, &[], true).is_err());
    }
}
