//! The transaction manager: its partition's entries are the commits of global transactions
//! ([`types::commits`]).
//!
//! The first committer wins: a commit is refused if another one, later than its snapshot, wrote one of its
//! keys. Which commit wrote a key last is kept in memory, and known from the write-sets that are kept. A
//! snapshot below one that is not kept any more commits nothing (PR-52).
//!
//! A write-set is kept until every partition that has a part in it has secured it, and some time longer. So
//! there are two floors: up to the one nothing is kept; up to the other something is that was not removed
//! with what is newer (PR-394), and snapshots below it are those that commit nothing.

mod claims;
mod dropped;
mod executing;
mod kept;
mod stamps;
mod tables;

pub(crate) use kept::Unmended;
pub(crate) use tables::{Definitions, Unfit};

use bytes::Bytes;
use stamps::{Page, Stamp, Stamps};
use std::collections::BTreeMap;
use types::commits::{Head, decode_timestamp, encode_timestamp, head_key, head_range, partition_of_head};
use types::commits::{KnownTable, removed_key, truncated_key};
use types::engine::{Engine, EngineError, Row};
use types::system::{commit_key, commit_row, read_commit};
use types::{KeySpace, Lsn, Micros, Mutation, PartitionId, Position, ReadAt, Rules, TableId, Term};
use wire::commit::{
    CommitAnswer, CommitRequest, ExecutingTransactions, KeptWrites, ParentRow, Threshold, decode_write_set,
    encode_write_set, keys_of,
};
use wire::{Flush, ManagerOp};

/// Rows of commits that are read at once. One entry removes no more.
const PAGE: usize = 1024;
/// Bytes of them.
const PAGE_BYTES: usize = 4 << 20;
/// What a row takes in the manager's memory beside its key and value, and what it claims beside the bytes of
/// that, in bytes, about.
const BESIDE: usize = 128;

/// What whoever asks for a commit has looked at before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked<'a> {
    /// The snapshot at which nothing stood against its rows.
    pub checked: Position,
    /// What they refer to by values that are unique, and no keys (PR-369).
    pub parents: &'a [ParentRow],
}

/// What the manager knows. Good for one term: in it nobody else commits.
#[derive(Debug, Default)]
pub(crate) struct KnownCommits {
    /// The term that it is of; zero: none.
    term: Term,
    books: Books,
    counts: TermCounts,
    /// Of a partition that is told of commits: its term, and up to where marks of flushes are gone.
    marks_removed: (Term, Position),
    /// What clients have open. Of no term: who says it again says it to the next primary.
    executing: executing::Executing,
    /// Of a partition that is told of commits: the lowest state that its primary keeps for snapshots, which
    /// the next flush is to say.
    horizon: Option<Lsn>,
}

/// What became of commits in this term, for people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TermCounts {
    pub committed: u64,
    pub refused: u64,
}

/// What all entries so far come to.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// The newest commit of every key, where it is kept.
    keys: BTreeMap<(TableId, Bytes), Position>,
    heads: BTreeMap<PartitionId, Head>,
    /// Nothing at or below it is kept.
    truncated: Position,
    /// The newest commit that was removed: some at or below it may be kept.
    removed: Position,
    /// The commits that are kept.
    kept: Stamps,
    /// Of each partition, what it has not secured of them.
    backlogs: BTreeMap<PartitionId, kept::Backlog>,
    /// What tables are like.
    tables: BTreeMap<TableId, KnownTable>,
    /// What rows claim beside their keys.
    claims: claims::Claims,
}

/// What a commit's part in one partition takes in the manager's memory, in bytes, about.
fn bytes_of(writes: &KeptWrites) -> usize {
    let ops = writes.parts.iter().flat_map(|part| &part.ops);
    ops.map(|op| op.key().len() + op.row().map_or(0, Bytes::len) + BESIDE).sum()
}

impl KnownCommits {
    /// The books as of everything executed. They are read when they are asked for first in a term.
    pub fn books(&mut self, engine: &dyn Engine, term: Term) -> Result<&mut Books, EngineError> {
        if self.term != term {
            // What was forgotten in a term goes on counting.
            let counts = if self.term == Term::default() { self.counts } else { TermCounts::default() };
            let (books, executing) = (Books::read(engine)?, std::mem::take(&mut self.executing));
            *self = KnownCommits { term, books, counts, executing, ..KnownCommits::default() };
        }
        Ok(&mut self.books)
    }

    /// Up to where the marks of flushes were removed in this term; zero: nothing is known.
    pub fn marks_removed(&self, term: Term) -> Position {
        if self.marks_removed.0 == term { self.marks_removed.1 } else { Position::ZERO }
    }

    /// They were removed up to here, by an entry of this term.
    pub fn note_marks_removed(&mut self, term: Term, upto: Position) {
        self.marks_removed = (term, upto);
    }

    /// The next flush is to say that this is the lowest state that is kept for snapshots.
    pub fn tell_horizon(&mut self, lowest: Lsn) {
        self.horizon = Some(lowest);
    }

    /// What this flush is to say of it, if it is to say something.
    pub fn horizon_to_tell(&mut self) -> Option<Lsn> {
        self.horizon.take()
    }

    /// What became of commits in this term.
    pub fn counts(&mut self) -> &mut TermCounts {
        &mut self.counts
    }

    /// [`ManagerOp::Executing`], at `now` by the monotonic clock: the sum of all if the sender has nothing
    /// open.
    pub fn executing(
        &mut self,
        now: Micros,
        (who, open, oldest_ms): (u64, u32, u64),
    ) -> Option<ExecutingTransactions> {
        self.executing.note(now, (who, open, oldest_ms));
        (open == 0).then(|| self.executing.sum(now))
    }

    /// What was written into the books was not logged: they are read again.
    pub fn forget(&mut self) {
        let executing = std::mem::take(&mut self.executing);
        *self = KnownCommits { counts: self.counts, executing, ..KnownCommits::default() };
    }
}

impl Books {
    fn read(engine: &dyn Engine) -> Result<Books, EngineError> {
        let truncated = truncated_at(engine, ReadAt::Applied)?;
        let mut books = Books {
            heads: heads_at(engine, ReadAt::Applied)?,
            truncated,
            removed: timestamp_at(engine, &removed_key(), ReadAt::Applied)?.max(truncated),
            tables: tables::tables_at(engine, ReadAt::Applied)?,
            ..Books::default()
        };
        books.claims.follow(&books.tables);
        books.claims.found_from(newest_of(&books.heads));
        let mut from = Position::ZERO;
        loop {
            let rows = commits_above(engine, from, ReadAt::Applied)?;
            let Some(last) = rows.last() else { return Ok(books) };
            from = last.at;
            rows.iter().for_each(|commit| books.note((commit.at, commit.wall_ms), &commit.kept, None));
        }
    }

    /// Notes a commit, and what its rows refer to by values; none: that is not known any more.
    fn note(&mut self, (at, wall_ms): (Position, u64), kept: &[KeptWrites], parents: Option<&[ParentRow]>) {
        let claimed = self.claim(at, kept, parents);
        let sizes = kept.iter().zip(claimed).map(|(writes, claimed)| bytes_of(writes) + claimed);
        let sizes: Vec<usize> = sizes.collect();
        let mut unsecured = 0;
        for (writes, bytes) in kept.iter().zip(&sizes) {
            let head = self.heads.get(&writes.partition).copied().unwrap_or_default();
            if at > head.secured {
                self.backlogs.entry(writes.partition).or_default().note(at, *bytes);
                unsecured += 1;
            }
        }
        self.kept.push(Stamp::of((at, wall_ms), sizes.iter().sum(), unsecured));
        for (table, key) in kept.iter().flat_map(|writes| keys_of(&writes.parts)) {
            // A key of its own: the request's bytes are not held by it.
            let newest = self.keys.entry((table, Bytes::copy_from_slice(key))).or_default();
            *newest = at.max(*newest);
        }
    }

    /// True if the transaction may not be committed: a key that it writes has a commit that its snapshot does
    /// not show, or may have had one; or one that stands against what its rows claim is later than the
    /// snapshot at which that was looked at.
    pub fn conflicts(&self, rules: Rules, (request, looked): (&CommitRequest, Option<Looked<'_>>)) -> bool {
        let checked = looked.map(|looked| looked.checked);
        let oldest = checked.into_iter().chain([request.snapshot]).min().unwrap_or_default();
        if oldest < self.removed && rules.old_snapshots_commit_nothing() {
            return true;
        }
        if let Some(Looked { checked, parents }) = looked {
            let parts = request.writes.iter().flat_map(|writes| &writes.parts);
            // Where it claims what it cannot, it was refused.
            let claims = self.claimed(parts, parents).unwrap_or_default();
            if self.stands_against(rules, (&claims, checked)) {
                return true;
            }
        }
        let later = |(table, key, seen): (TableId, &Bytes, Position)| {
            self.keys.get(&(table, key.clone())).is_some_and(|newest| *newest > seen)
        };
        rules.first_commit_wins() && request.rows().any(later)
    }

    /// The timestamp of a commit whose entry comes to this position: the position, with its term. The LSNs of
    /// commits that a promotion has lost are given again, and partitions may have those (PR-363).
    pub fn stamp(&self, rules: Rules, at: Position) -> Position {
        if rules.timestamps_have_their_term() {
            return at;
        }
        let newest = self.heads.values().map(|head| head.newest).max();
        newest.map_or(at, |newest| Position::new(newest.term, at.lsn))
    }

    /// Commits a transaction, with what its rows refer to by values, at this timestamp: what is stored, and
    /// for each partition the commit before it.
    pub fn commit(
        &mut self,
        (at, wall_ms): (Position, u64),
        (request, parents): (&CommitRequest, &[ParentRow]),
    ) -> (Vec<Mutation>, Vec<(PartitionId, Position)>) {
        let keep = |writes: &wire::commit::PartitionWrites| KeptWrites {
            partition: writes.partition,
            previous: self.heads.get(&writes.partition).map_or(Position::ZERO, |head| head.newest),
            parts: writes.told(),
        };
        let kept: Vec<KeptWrites> = request.writes.iter().map(keep).collect();
        let chained = kept.iter().all(|writes| writes.previous < at);
        assert!(chained, "PR-250: {at} is committed behind a later commit of the same partition");
        let rows = kept.iter().flat_map(|writes| &writes.parts).map(|part| part.ops.len()).sum();
        let (key, row) = commit_row(at, wall_ms, (kept.len(), rows), &encode_write_set(&kept));
        let mut mutations = vec![Mutation { key: KeySpace::Bare.row_key(&key), value: Some(row) }];
        for writes in &kept {
            let head = self.heads.entry(writes.partition).or_default();
            // Between the newest one that it has secured and this one there is none that it could lack: a
            // partition that did nothing for long holds nothing back (PR-468).
            if !head.lags() {
                head.secured = Position::new(at.term, at.lsn.prev());
            }
            head.newest = at;
            mutations.push(stored(writes.partition, *head));
        }
        self.note((at, wall_ms), &kept, Some(parents));
        (mutations, kept.iter().map(|writes| (writes.partition, writes.previous)).collect())
    }

    /// Partitions have secured so much: what changes by it, and how many write-sets are removed: those that
    /// every partition has secured and that are old, a page at a time. Who asks again until none was removed
    /// has removed them all (PR-290).
    pub fn secure(
        &mut self,
        (engine, rules): (&dyn Engine, Rules),
        (wall_ms, keep): (u64, Keep),
        partitions: &[(PartitionId, Position)],
    ) -> Result<(Vec<Mutation>, u32), EngineError> {
        let mut mutations = Vec::new();
        for (partition, secured) in partitions {
            // What a partition claims beyond what it was ever told is no news of this log.
            let Some(head) = self.heads.get_mut(partition).filter(|head| *secured <= head.newest) else {
                continue;
            };
            if *secured > head.secured {
                head.secured = *secured;
                mutations.push(stored(*partition, *head));
                if let Some(backlog) = self.backlogs.get_mut(partition) {
                    backlog.secure(*secured, |commit| self.kept.secure(commit));
                }
            }
        }
        let removed = match mutations.is_empty() && !rules.what_is_secured_goes() {
            true => Vec::new(),
            false => self.removable(rules, (wall_ms, keep)),
        };
        for stamp in &removed {
            let key = KeySpace::Bare.row_key(&commit_key(stamp.at));
            let (_, row) = engine.get(&key, ReadAt::Applied)?.ok_or_else(|| damaged("a commit"))?;
            let commit = Commit::read(&key, &row).map_err(EngineError::Corrupt)?;
            for (table, key) in commit.kept.iter().flat_map(|writes| keys_of(&writes.parts)) {
                let key = (table, key.clone());
                if self.keys.get(&key) == Some(&commit.at) {
                    self.keys.remove(&key);
                }
            }
            self.removed = self.removed.max(stamp.at);
            mutations.push(Mutation { key, value: None });
        }
        if !removed.is_empty() {
            // What lies below it commits nothing, so nothing is claimed against it.
            self.claims.forget(self.removed);
            mutations.extend(self.floors());
        }
        Ok((mutations, removed.len() as u32))
    }

    /// Works out up to where nothing is kept, and says it, and what the newest one is that was removed, if an
    /// older one is kept.
    fn floors(&mut self) -> Vec<Mutation> {
        let below = |oldest: Stamp| Position::new(oldest.at.term, oldest.at.lsn.prev());
        let upto = self.kept.oldest().map_or(self.removed, |oldest| self.removed.min(below(oldest)));
        self.truncated = self.truncated.max(upto);
        let row = |key: Bytes, at: Position| {
            let value = Some(Bytes::copy_from_slice(&encode_timestamp(at)));
            Mutation { key, value }
        };
        let newest = (self.removed > self.truncated).then(|| row(removed_key(), self.removed));
        newest.into_iter().chain([row(truncated_key(), self.truncated)]).collect()
    }

    /// Commits that every partition with a part in them has secured, and that are old. They are old once they
    /// were kept as long as is wanted, or if there are more than is wanted. One that was made far in the
    /// future, by a clock that has gone back since, is old: it would be kept until then, and all behind it
    /// (PR-321).
    fn removable(&mut self, rules: Rules, (wall_ms, keep): (u64, Keep)) -> Vec<Stamp> {
        let before_ms = wall_ms.saturating_sub(keep.time.as_millis());
        let future_ms = wall_ms.saturating_add(keep.time.as_millis());
        let is_old = |stamp: &Stamp| {
            let future = stamp.wall_ms > future_ms && rules.the_future_is_old();
            stamp.wall_ms <= before_ms || future
        };
        let page = Page { commits: PAGE, bytes: PAGE_BYTES, keep: keep.bytes };
        self.kept.remove_old(page, !rules.commits_are_kept_for_all(), is_old)
    }
}

/// How much is kept of what every partition has secured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// So long.
    pub time: Micros,
    /// So many bytes, about, even if that is not so long.
    pub bytes: usize,
}

/// A commit that is kept, with its rows.
struct Commit {
    at: Position,
    wall_ms: u64,
    kept: Vec<KeptWrites>,
}

impl Commit {
    /// As it is stored. The error is a sentence.
    fn read(key: &Bytes, row: &Bytes) -> Result<Commit, String> {
        let (at, wall_ms, write_set) = read_commit(&KeySpace::Bare.key_of(key), row)?;
        Ok(Commit { at, wall_ms, kept: decode_write_set(&write_set)? })
    }
}

fn stored(partition: PartitionId, head: Head) -> Mutation {
    Mutation { key: head_key(partition), value: Some(head.encode()) }
}

fn damaged(what: &str) -> EngineError {
    EngineError::Corrupt(format!("{what} of the transaction manager cannot be read"))
}

/// The newest commit of all partitions; zero: there is none.
fn newest_of(heads: &BTreeMap<PartitionId, Head>) -> Position {
    heads.values().map(|head| head.newest).max().unwrap_or_default()
}

fn heads_at(engine: &dyn Engine, at: ReadAt) -> Result<BTreeMap<PartitionId, Head>, EngineError> {
    let (from, to) = head_range();
    let read = |row: &Row| Some((partition_of_head(&row.key)?, Head::decode(&row.value)?));
    let rows = engine.scan(&from, &to, at, usize::MAX, usize::MAX)?;
    rows.iter().map(|row| read(row).ok_or_else(|| damaged("a partition"))).collect()
}

fn truncated_at(engine: &dyn Engine, at: ReadAt) -> Result<Position, EngineError> {
    timestamp_at(engine, &truncated_key(), at)
}

/// The timestamp that is stored with this key; zero: none is.
fn timestamp_at(engine: &dyn Engine, key: &[u8], at: ReadAt) -> Result<Position, EngineError> {
    match engine.get(key, at)? {
        None => Ok(Position::ZERO),
        Some((_, value)) => decode_timestamp(&value).ok_or_else(|| damaged("what is kept")),
    }
}

/// The next commits above a timestamp: none if there are none.
fn commits_above(engine: &dyn Engine, above: Position, at: ReadAt) -> Result<Vec<Commit>, EngineError> {
    let mut from = commit_key(above).to_vec();
    from.push(0);
    let (from, to) = KeySpace::Bare.range(&from, &[]);
    let rows = engine.scan(&from, &to, at, PAGE, PAGE_BYTES)?;
    rows.iter()
        .map(|row| Commit::read(&row.key, &row.value))
        .collect::<Result<_, String>>()
        .map_err(EngineError::Corrupt)
}

/// Answers what looks at the books and changes nothing. The error is a sentence: commits are gone that
/// somebody asks for.
pub(crate) fn look(
    engine: &dyn Engine,
    op: &ManagerOp,
    at: ReadAt,
) -> Result<Result<CommitAnswer, String>, EngineError> {
    Ok(Ok(match op {
        ManagerOp::Snapshot { since } => {
            let heads = heads_at(engine, at)?;
            let newest = newest_of(&heads);
            let news = |(partition, head): (&PartitionId, &Head)| {
                (head.newest > *since).then_some((*partition, head.newest))
            };
            CommitAnswer::Snapshot { at: newest, heads: heads.iter().filter_map(news).collect() }
        }
        ManagerOp::Tables { first } => CommitAnswer::Tables(tables::known_tables(engine, *first, at)?),
        ManagerOp::Chain { partition, after, from } => {
            return chain(engine, (*partition, *after, *from), at);
        }
        _ => {
            let threshold = |(partition, head): (&PartitionId, &Head)| Threshold {
                partition: *partition,
                newest: head.newest,
                secured: head.secured,
            };
            CommitAnswer::Thresholds {
                partitions: heads_at(engine, at)?.iter().map(threshold).collect(),
                truncated: truncated_at(engine, at)?,
            }
        }
    }))
}

/// The flushes of a partition behind `after`, among the commits above `from`.
fn chain(
    engine: &dyn Engine,
    (partition, after, from): (PartitionId, Position, Position),
    at: ReadAt,
) -> Result<Result<CommitAnswer, String>, EngineError> {
    let newest = heads_at(engine, at)?.get(&partition).copied().unwrap_or_default().newest;
    let mut flushes: Vec<Flush> = Vec::new();
    let commits = commits_above(engine, after.max(from), at)?;
    let next = commits.last().map(|commit| commit.at).filter(|last| *last < newest);
    for commit in commits {
        let own = commit.kept.into_iter().find(|writes| writes.partition == partition);
        flushes.extend(own.map(|writes| writes.flush(commit.at)));
    }
    let first = flushes.first().map(|flush| flush.previous);
    let gone = match first {
        Some(previous) => previous > after && from <= after,
        None => next.is_none() && after < newest && from <= after,
    };
    if gone {
        return Ok(Err(format!(
            "partition {partition} has commits up to {after}, and the next ones are not kept any more"
        )));
    }
    Ok(Ok(CommitAnswer::Chain { flushes, next }))
}

#[cfg(test)]
mod tests;
