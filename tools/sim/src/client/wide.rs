//! What clients ask beside single rows: writes of several rows, with marks of feeds, scans and finds by an
//! index, page by page, and counts. Drawn from a stream of its own, so that what else a client asks stays
//! what it is.

use crate::check::history::{Action, Answer, Batch, Bound, IndexRange, KeyRange, RowChange};
use crate::plan::wide::WidePlan;
use crate::random::Stream;
use crate::rows;
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{FeedId, Lsn, PartitionId, Position, Term};
use wire::request::{FeedMark, ReadSnapshot};
use wire::{Op, RowOp};

/// Of a thousand operations so many are of these.
const OFTEN: u64 = 450;
/// Ranges that are scanned and counted: of everything, and of keys of some kinds.
const RANGES: [(&str, &str); 6] = [("", ""), ("", ""), ("m", "n"), ("i3", "m3"), ("r", ""), ("", "m2")];

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Batch,
    Feed,
    Scan,
    Count,
    Find,
    Any,
}

/// What one client asks of this.
#[derive(Debug)]
pub struct Wide {
    random: Stream,
    kinds: Vec<Kind>,
    /// The client's own feed, if it marks how far it is.
    feed: Option<u64>,
    /// Pages that go on where earlier ones ended.
    pages: BTreeMap<PartitionId, Action>,
    /// The newest state that a primary has shown, of each partition.
    seen: BTreeMap<PartitionId, Position>,
    /// Indexes that were ready when somebody asked.
    ready: BTreeMap<PartitionId, Vec<(u32, String)>>,
    /// Reads at any replica are bounded in many ways.
    bounds: bool,
    /// The greatest LSN that any answer told, of each partition: what is read later has it too.
    tokens: BTreeMap<PartitionId, Lsn>,
}

impl Wide {
    /// What this client of a plan asks; by indexes, where there are some.
    pub fn new(client: u32, plan: &WidePlan, indexes: bool) -> Wide {
        let mut kinds = Vec::new();
        if plan.batches {
            kinds.extend([Kind::Batch, Kind::Batch]);
        }
        if plan.batches && plan.feeds {
            kinds.push(Kind::Feed);
        }
        if plan.ranges {
            kinds.extend([Kind::Scan, Kind::Scan, Kind::Count]);
        }
        if plan.ranges && indexes {
            kinds.extend([Kind::Find, Kind::Find, Kind::Find]);
        }
        if plan.bounds {
            kinds.extend([Kind::Any, Kind::Any]);
        }
        Wide {
            random: plan.stream(client),
            kinds,
            feed: plan.feeds.then(|| u64::from(client) + 1),
            pages: BTreeMap::new(),
            seen: BTreeMap::new(),
            ready: BTreeMap::new(),
            bounds: plan.bounds,
            tokens: BTreeMap::new(),
        }
    }

    /// The key and the action of an operation with this number on a partition, if it is to be one of these.
    /// The flag says whether a client that sends writes outside of sessions is to do so.
    pub fn choose(&mut self, number: u64, partition: PartitionId) -> Option<(String, Action, bool)> {
        if !self.random.chance(OFTEN) {
            return None;
        }
        if let Some(page) = self.pages.remove(&partition)
            && self.random.chance(850)
        {
            return Some((String::new(), page, false));
        }
        let kind = *self.random.pick(&self.kinds)?;
        let (range, at, any) = (self.range(), self.snapshot(partition), self.any(partition));
        let action = match kind {
            Kind::Batch => {
                let action = Action::Batch(Box::new(self.batch(number, partition)));
                return Some((String::new(), action, self.random.chance(700)));
            }
            Kind::Any => {
                let key = self.row(false).1;
                return Some((key, Action::GetAny(self.bound(partition)), false));
            }
            Kind::Feed => Action::Feed(self.feed.unwrap_or(1)),
            Kind::Scan => {
                let limit = *self.random.pick(&[1, 2, 3, 5, 8, 1_000]).expect("not empty");
                Action::Scan { range, limit, at, any }
            }
            Kind::Count => Action::Count { range, at, any },
            Kind::Find => match self.index_range(partition) {
                Some(range) => Action::Find { range, limit: 1 + self.random.below(6) as u32, at, any },
                None => Action::Indexes,
            },
        };
        Some((String::new(), action, false))
    }

    fn range(&mut self) -> KeyRange {
        let (from, to) = *self.random.pick(&RANGES).expect("not empty");
        KeyRange { from: from.into(), behind: false, to: to.into() }
    }

    /// A part of an index that is known to be ready, or was.
    fn index_range(&mut self, partition: PartitionId) -> Option<IndexRange> {
        let ready = self.ready.get(&partition).filter(|_| self.random.chance(850))?;
        let (index, name) = self.random.pick(ready).cloned()?;
        let (from, to) = match self.random.below(3) {
            0 => (rows::entries_of_hue(1), rows::entries_of_hue(3)),
            _ => (Bytes::new(), Bytes::new()),
        };
        Some(IndexRange { index, name, from, to })
    }

    fn snapshot(&mut self, partition: PartitionId) -> ReadSnapshot {
        match (self.random.below(10), self.seen.get(&partition)) {
            (0..2, Some(at)) => ReadSnapshot::At(*at),
            (2..5, _) => ReadSnapshot::Begin,
            _ => ReadSnapshot::Newest,
        }
    }

    fn any(&mut self, partition: PartitionId) -> Option<Bound> {
        (self.bounds && self.random.chance(350)).then(|| self.bound(partition))
    }

    /// How old an answer may be: tight enough that hardly anybody can give it, or loose; with all that was
    /// told before, or without.
    fn bound(&mut self, partition: PartitionId) -> Bound {
        let max_lag_ms = *self.random.pick(&[30, 60, 100, 200, 400, 1_500]).expect("not empty");
        let token = self.tokens.get(&partition).copied().filter(|_| self.random.chance(500));
        Bound { token: token.unwrap_or_default(), max_lag_ms }
    }

    fn batch(&mut self, value: u64, partition: PartitionId) -> Batch {
        let since = self.seen.get(&partition).copied().filter(|_| self.random.chance(350));
        let mut ops: Vec<(RowChange, String)> = Vec::new();
        for _ in 0..self.random.between(2, 5) {
            let (change, key) = self.row(since.is_some());
            // What becomes of a register must be known from the answer alone.
            if !key.starts_with('r') || ops.iter().all(|(_, other)| *other != key) {
                ops.push((change, key));
            }
        }
        let mark = self.feed.filter(|_| self.random.chance(300)).map(|feed| (feed, value));
        Batch { value, ops, since, mark }
    }

    /// One row's part of a write. Rows named m are of such writes alone.
    fn row(&mut self, rests: bool) -> (RowChange, String) {
        use RowChange::*;
        let (name, rows, changes): (_, _, &[RowChange]) = match self.random.below(10) {
            0..6 => ("m", 8, &[Put, Put, Insert, Update, Delete, Keep]),
            6..8 if rests => ("r", 4, &[Put, Update, Keep]),
            6..8 => ("r", 4, &[Put, Put, Put, Insert, Keep]),
            8 => ("i", 12, &[Insert]),
            _ => ("d", 2, &[Put, Update, Delete]),
        };
        let key = format!("{name}{}", self.random.below(rows));
        (*self.random.pick(changes).expect("not empty"), key)
    }

    /// What an answer tells for later operations.
    pub fn heard(&mut self, partition: PartitionId, action: &Action, told: &Answer) {
        let (at, epoch) = match told {
            Answer::Found { at, epoch, .. } | Answer::Rows { at, epoch, .. } => (*at, *epoch),
            Answer::FoundBy { at, epoch, .. } => (*at, *epoch),
            Answer::Indexes(ready) => {
                self.ready.insert(partition, ready.clone());
                return;
            }
            Answer::Done { at, .. } => {
                let token = self.tokens.entry(partition).or_default();
                *token = at.lsn.max(*token);
                return;
            }
            _ => return,
        };
        let token = self.tokens.entry(partition).or_default();
        *token = at.max(*token);
        let at = Position::new(Term::of(epoch), at);
        if action.bound().is_none() {
            self.seen.insert(partition, at);
        }
        if let (Action::Find { range, limit, any, .. }, Answer::FoundBy { next, .. }) = (action, told)
            && !next.is_empty()
        {
            let range = IndexRange { from: next.clone(), ..range.clone() };
            let (limit, at, any) = (*limit, ReadSnapshot::At(at), *any);
            self.pages.insert(partition, Action::Find { range, limit, at, any });
        }
        if let (Action::Scan { range, limit, any, .. }, Answer::Rows { rows, more: true, .. }) =
            (action, told)
            && let Some((last, ..)) = rows.last()
        {
            let range = KeyRange { from: last.clone(), behind: true, to: range.to.clone() };
            let (limit, at, any) = (*limit, ReadSnapshot::At(at), *any);
            self.pages.insert(partition, Action::Scan { range, limit, at, any });
        }
    }
}

/// What such an operation asks of a node; none: it is another one.
pub fn asks(action: &Action, typed: bool) -> Option<Op> {
    let ends = |range: &KeyRange| {
        let key = |name: &str| if name.is_empty() { Bytes::new() } else { rows::key(name, typed) };
        let from = key(&range.from);
        // The smallest key above.
        let from = if range.behind { [&from[..], &[0]].concat().into() } else { from };
        (from, key(&range.to))
    };
    Some(match action {
        Action::Batch(batch) => {
            let ops = batch.ops.iter().map(|(change, key)| row_op(*change, key, batch.value, typed));
            let mark = batch.mark.map(|(feed, position)| FeedMark { feed: FeedId(feed), position });
            Op::Write { ops: ops.collect(), mark, since: batch.since }
        }
        Action::Feed(feed) => Op::Feed { feed: FeedId(*feed) },
        Action::Scan { range, limit, at, .. } => {
            let (from, to) = ends(range);
            Op::Scan { from, to, limit: *limit, at: *at }
        }
        Action::Indexes => Op::Indexes,
        Action::Find { range, limit, at, .. } => {
            let (from, to) = (range.from.clone(), range.to.clone());
            Op::Find { index: range.index, from, to, limit: *limit, at: *at }
        }
        Action::Count { range, at, .. } => {
            let (from, to) = ends(range);
            Op::Count { from, to, at: *at }
        }
        _ => return None,
    })
}

fn row_op(change: RowChange, name: &str, value: u64, typed: bool) -> RowOp {
    let (key, row) = (rows::key(name, typed), rows::row(name, value, typed));
    match change {
        RowChange::Put => RowOp::Put { key, row },
        RowChange::Insert => RowOp::Insert { key, row },
        RowChange::Update => RowOp::Update { key, row },
        RowChange::Delete => RowOp::Delete { key },
        RowChange::Keep => RowOp::Keep { key },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Lsn};

    const P: PartitionId = PartitionId(64);

    #[test]
    fn a_page_goes_on_where_the_last_one_ended_at_its_state() {
        let mut wide = Wide::new(0, &WidePlan::all(1), false);
        let range = KeyRange { from: "".into(), behind: false, to: "m".into() };
        let action = Action::Scan { range, limit: 1, at: ReadSnapshot::Newest, any: None };
        let rows = vec![("a".to_string(), Lsn(2), 1)];
        let told = Answer::Rows { rows, more: true, at: Lsn(7), epoch: Epoch(3) };
        wide.heard(P, &action, &told);
        let at = ReadSnapshot::At(Position::new(Term(3), Lsn(7)));
        let range = KeyRange { from: "a".into(), behind: true, to: "m".into() };
        assert_eq!(wide.pages[&P], Action::Scan { range, limit: 1, at, any: None });
        let Some(Op::Scan { from, to, .. }) = asks(&wide.pages[&P], false) else { panic!("a scan") };
        assert_eq!((&from[..], &to[..]), (&b"a\0"[..], &b"m"[..]));
    }

    #[test]
    fn names_of_keys_stand_in_the_order_of_the_keys() {
        let names = ["d1", "i0", "i1", "i10", "i2", "m0", "m7", "r3"];
        for typed in [false, true] {
            assert!(
                names.windows(2).all(|two| rows::key(two[0], typed) < rows::key(two[1], typed)),
                "{typed}"
            );
            let behind = [&rows::key("i1", typed)[..], &[0]].concat();
            assert!(behind[..] > rows::key("i1", typed)[..] && behind[..] <= rows::key("i10", typed)[..]);
        }
    }
}
