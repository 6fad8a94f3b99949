//! The transaction manager: its partition's entries are the commits of global transactions
//! ([`types::commits`]).
//!
//! The first committer wins: a commit is refused if another one, later than its snapshot, wrote one of its
//! keys. Which commit wrote a key last is kept in memory, and known from the write-sets that are kept. A
//! snapshot below one that is not kept any more commits nothing (PR-52).
//!
//! A write-set is kept until every partition that has a part in it has secured it, and some time longer.

mod kept;

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use types::commits::truncated_key;
use types::commits::{Head, decode_timestamp, encode_timestamp, head_key, head_range, partition_of_head};
use types::engine::{Engine, EngineError, Row};
use types::system::{commit_key, commit_row, read_commit};
use types::{KeySpace, Micros, Mutation, PartitionId, Position, ReadAt, Rules, TableId, Term};
use wire::commit::{
    CommitAnswer, CommitRequest, KeptWrites, Threshold, decode_write_set, encode_write_set, keys_of,
};
use wire::{Flush, ManagerOp};

/// Rows of commits that are read at once. One entry removes no more.
const PAGE: usize = 1024;
/// Bytes of them.
const PAGE_BYTES: usize = 4 << 20;
/// What a row takes in the manager's memory beside its key and value, in bytes, about.
const BESIDE: usize = 128;

/// What the manager knows. Good for one term: in it nobody else commits.
#[derive(Debug, Default)]
pub(crate) struct KnownCommits {
    /// The term that it is of; zero: none.
    term: Term,
    books: Books,
    counts: TermCounts,
    /// Of a partition that is told of commits: its term, and up to where marks of flushes are gone.
    marks_removed: (Term, Position),
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
    /// The commits that are kept, oldest first.
    kept: VecDeque<Stamp>,
    /// Bytes of them, about.
    kept_bytes: usize,
}

/// A commit that is kept, in few bytes.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    at: Position,
    wall_ms: u64,
    bytes: u32,
}

impl Stamp {
    fn of(at: Position, wall_ms: u64, kept: &[KeptWrites]) -> Stamp {
        let ops = kept.iter().flat_map(|writes| &writes.parts).flat_map(|part| &part.ops);
        let bytes: usize = ops.map(|op| op.key().len() + op.row().map_or(0, Bytes::len) + BESIDE).sum();
        Stamp { at, wall_ms, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }
}

impl KnownCommits {
    /// The books as of everything executed. They are read when they are asked for first in a term.
    pub fn books(&mut self, engine: &dyn Engine, term: Term) -> Result<&mut Books, EngineError> {
        if self.term != term {
            // What was forgotten in a term goes on counting.
            let counts = if self.term == Term::default() { self.counts } else { TermCounts::default() };
            *self = KnownCommits { term, books: Books::read(engine)?, counts, ..KnownCommits::default() };
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

    /// What became of commits in this term.
    pub fn counts(&mut self) -> &mut TermCounts {
        &mut self.counts
    }

    /// What was written into the books was not logged: they are read again.
    pub fn forget(&mut self) {
        *self = KnownCommits { counts: self.counts, ..KnownCommits::default() };
    }
}

impl Books {
    fn read(engine: &dyn Engine) -> Result<Books, EngineError> {
        let mut books = Books {
            heads: heads_at(engine, ReadAt::Applied)?,
            truncated: truncated_at(engine, ReadAt::Applied)?,
            ..Books::default()
        };
        let mut from = Position::ZERO;
        loop {
            let rows = commits_above(engine, from, ReadAt::Applied)?;
            let Some(last) = rows.last() else { return Ok(books) };
            from = last.at;
            rows.iter().for_each(|commit| books.note((commit.at, commit.wall_ms), &commit.kept));
        }
    }

    fn note(&mut self, (at, wall_ms): (Position, u64), kept: &[KeptWrites]) {
        let stamp = Stamp::of(at, wall_ms, kept);
        self.kept.push_back(stamp);
        self.kept_bytes += stamp.bytes as usize;
        for (table, key) in kept.iter().flat_map(|writes| keys_of(&writes.parts)) {
            // A key of its own: the request's bytes are not held by it.
            let newest = self.keys.entry((table, Bytes::copy_from_slice(key))).or_default();
            *newest = at.max(*newest);
        }
    }

    /// True if the transaction may not be committed: a key that it writes has a commit that its snapshot does
    /// not show, or may have had one.
    pub fn conflicts(&self, rules: Rules, request: &CommitRequest) -> bool {
        if request.snapshot < self.truncated && rules.old_snapshots_commit_nothing() {
            return true;
        }
        let later = |(table, key, seen): (TableId, &Bytes, Position)| {
            self.keys.get(&(table, key.clone())).is_some_and(|newest| *newest > seen)
        };
        rules.first_commit_wins() && request.rows().any(later)
    }

    /// Commits a transaction at this timestamp: what is stored, and for each partition the commit before it.
    pub fn commit(
        &mut self,
        (at, wall_ms): (Position, u64),
        request: &CommitRequest,
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
            head.newest = at;
            mutations.push(stored(writes.partition, *head));
        }
        self.note((at, wall_ms), &kept);
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
            }
        }
        let removed = self.removable(engine, rules, (wall_ms, keep))?;
        for commit in &removed {
            self.truncated = commit.at;
            if let Some(stamp) = self.kept.pop_front_if(|stamp| stamp.at == commit.at) {
                self.kept_bytes -= stamp.bytes as usize;
            }
            for (table, key) in commit.kept.iter().flat_map(|writes| keys_of(&writes.parts)) {
                let key = (table, key.clone());
                if self.keys.get(&key) == Some(&commit.at) {
                    self.keys.remove(&key);
                }
            }
            let key = KeySpace::Bare.row_key(&commit_key(commit.at));
            mutations.push(Mutation { key, value: None });
        }
        if !removed.is_empty() {
            let value = Bytes::copy_from_slice(&encode_timestamp(self.truncated));
            mutations.push(Mutation { key: truncated_key(), value: Some(value) });
        }
        Ok((mutations, removed.len() as u32))
    }

    /// Commits that every partition has secured, and that are old, oldest first. They are old once they were
    /// kept as long as is wanted, or if there are more than is wanted.
    fn removable(
        &self,
        engine: &dyn Engine,
        rules: Rules,
        (wall_ms, keep): (u64, Keep),
    ) -> Result<Vec<Commit>, EngineError> {
        let upto = self.secured_by_all(rules);
        let before_ms = wall_ms.saturating_sub(keep.time.as_millis());
        let mut beyond = self.kept_bytes.saturating_sub(keep.bytes);
        let is_old = |stamp: &&Stamp| {
            let old = stamp.at <= upto && (stamp.wall_ms <= before_ms || beyond > 0);
            beyond = beyond.saturating_sub(stamp.bytes as usize);
            old
        };
        let old = self.kept.iter().take(PAGE).take_while(is_old).count();
        if old == 0 {
            return Ok(Vec::new());
        }
        let mut commits = commits_above(engine, self.truncated, ReadAt::Applied)?;
        commits.truncate(old);
        Ok(commits)
    }

    /// Every commit up to here is secured in all partitions that have a part in it (T_P*): idle partitions
    /// hold nothing back.
    fn secured_by_all(&self, rules: Rules) -> Position {
        let newest = self.heads.values().map(|head| head.newest).max().unwrap_or_default();
        let lagging = self.heads.values().filter(|head| head.lags() && rules.commits_are_kept_for_all());
        lagging.map(|head| head.secured).min().unwrap_or(newest)
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

fn stored(partition: PartitionId, head: Head) -> Mutation {
    Mutation { key: head_key(partition), value: Some(head.encode()) }
}

fn damaged(what: &str) -> EngineError {
    EngineError::Corrupt(format!("{what} of the transaction manager cannot be read"))
}

fn heads_at(engine: &dyn Engine, at: ReadAt) -> Result<BTreeMap<PartitionId, Head>, EngineError> {
    let (from, to) = head_range();
    let read = |row: &Row| Some((partition_of_head(&row.key)?, Head::decode(&row.value)?));
    let rows = engine.scan(&from, &to, at, usize::MAX, usize::MAX)?;
    rows.iter().map(|row| read(row).ok_or_else(|| damaged("a partition"))).collect()
}

fn truncated_at(engine: &dyn Engine, at: ReadAt) -> Result<Position, EngineError> {
    match engine.get(&truncated_key(), at)? {
        None => Ok(Position::ZERO),
        Some((_, value)) => decode_timestamp(&value).ok_or_else(|| damaged("what is kept")),
    }
}

/// The next commits above a timestamp: none if there are none.
fn commits_above(engine: &dyn Engine, above: Position, at: ReadAt) -> Result<Vec<Commit>, EngineError> {
    let mut from = commit_key(above).to_vec();
    from.push(0);
    let (from, to) = KeySpace::Bare.range(&from, &[]);
    let read = |row: &Row| {
        let (at, wall_ms, write_set) = read_commit(&KeySpace::Bare.key_of(&row.key), &row.value)?;
        Ok(Commit { at, wall_ms, kept: decode_write_set(&write_set)? })
    };
    let rows = engine.scan(&from, &to, at, PAGE, PAGE_BYTES)?;
    rows.iter().map(read).collect::<Result<_, String>>().map_err(EngineError::Corrupt)
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
            let newest = heads.values().map(|head| head.newest).max().unwrap_or_default();
            let news = |(partition, head): (&PartitionId, &Head)| {
                (head.newest > *since).then_some((*partition, head.newest))
            };
            CommitAnswer::Snapshot { at: newest, heads: heads.iter().filter_map(news).collect() }
        }
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
mod tests {
    use super::*;
    use crate::fake::FakeEngine;
    use types::{Lsn, PartitionId};
    use wire::RowOp;
    use wire::commit::PartitionWrites;
    use wire::request::TablePart;

    const ONE: PartitionId = PartitionId(64);
    const OTHER: PartitionId = PartitionId(65);
    const TERM: Term = Term(3);

    fn at(lsn: u64) -> Position {
        Position::new(TERM, Lsn(lsn))
    }

    /// A manager in memory.
    struct World {
        engine: FakeEngine,
        known: KnownCommits,
        lsn: u64,
        keep_bytes: usize,
    }

    impl World {
        fn new() -> World {
            World {
                engine: FakeEngine::new(),
                known: KnownCommits::default(),
                lsn: 0,
                keep_bytes: usize::MAX,
            }
        }

        fn execute(&mut self, mutations: &[Mutation]) -> Position {
            self.lsn += 1;
            self.engine.execute(at(self.lsn), mutations);
            at(self.lsn)
        }

        /// Commits these keys in these partitions; `None`: refused.
        fn commit(&mut self, snapshot: u64, keys: &[(PartitionId, &str)]) -> Option<Vec<Position>> {
            let mut writes: Vec<PartitionWrites> = Vec::new();
            for (partition, key) in keys {
                let put = RowOp::Put { key: Bytes::copy_from_slice(key.as_bytes()), row: "row".into() };
                let part = TablePart { table: TableId(7), schema: 1, ops: vec![put], seen: Vec::new() };
                writes.push(PartitionWrites { partition: *partition, parts: vec![part] });
            }
            let request = CommitRequest { snapshot: at(snapshot), writes };
            let books = self.known.books(&self.engine, TERM).expect("no error");
            if books.conflicts(Rules::ALL, &request) {
                return None;
            }
            let (mutations, previous) = books.commit((at(self.lsn + 1), 1_000 * self.lsn), &request);
            self.execute(&mutations);
            Some(previous.into_iter().map(|(_, previous)| previous).collect())
        }

        /// How many write-sets were removed.
        fn secure(&mut self, wall_ms: u64, secured: &[(PartitionId, u64)]) -> u32 {
            let secured: Vec<_> = secured.iter().map(|(partition, lsn)| (*partition, at(*lsn))).collect();
            let books = self.known.books(&self.engine, TERM).expect("no error");
            let keep = (wall_ms, Keep { time: Micros::from_millis(1_000), bytes: self.keep_bytes });
            let secured = books.secure((&self.engine, Rules::ALL), keep, &secured);
            let (mutations, removed) = secured.expect("no error");
            self.execute(&mutations);
            removed
        }

        fn chain(&self, partition: PartitionId, after: u64) -> Result<Vec<u64>, String> {
            let chained = (partition, at(after), Position::ZERO);
            match chain(&self.engine, chained, ReadAt::Applied).expect("no error")? {
                CommitAnswer::Chain { flushes, next: None } => {
                    Ok(flushes.iter().map(|flush| flush.commit.lsn.0).collect())
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn pr250_the_first_committer_wins_and_commits_of_a_partition_are_chained() {
        let mut world = World::new();
        assert_eq!(world.commit(0, &[(ONE, "a"), (OTHER, "b")]), Some(vec![Position::ZERO; 2]));
        assert_eq!(world.commit(0, &[(ONE, "a")]), None, "written behind the snapshot");
        assert_eq!(world.commit(0, &[(ONE, "c")]), Some(vec![at(1)]), "another key");
        assert_eq!(world.commit(1, &[(ONE, "a"), (OTHER, "b")]), Some(vec![at(2), at(1)]));
        assert_eq!((world.chain(ONE, 0), world.chain(OTHER, 1)), (Ok(vec![1, 2, 3]), Ok(vec![3])));
    }

    #[test]
    fn pr250_a_row_may_have_been_written_up_to_where_it_was_read() {
        let mut world = World::new();
        world.commit(0, &[(ONE, "a")]).expect("committed");
        world.commit(0, &[(ONE, "b")]).expect("committed");
        let mut conflicts = |snapshot: u64, seen: &[u64]| {
            let ops = ["a", "b"].map(|key| RowOp::Put { key: key.into(), row: "row".into() }).to_vec();
            let seen = seen.iter().map(|lsn| at(*lsn)).collect();
            let part = TablePart { table: TableId(7), schema: 1, ops, seen };
            let writes = vec![PartitionWrites { partition: ONE, parts: vec![part] }];
            let books = world.known.books(&world.engine, TERM).expect("no error");
            books.conflicts(Rules::ALL, &CommitRequest { snapshot: at(snapshot), writes })
        };
        assert!(conflicts(1, &[]), "b was written behind 1");
        assert!(!conflicts(1, &[1, 2]));
        assert!(conflicts(0, &[0, 2]), "a was written behind 0");
    }

    #[test]
    fn pr254_what_is_forgotten_makes_older_snapshots_worthless() {
        let mut world = World::new();
        for key in ["a", "b", "c"] {
            world.commit(10, &[(ONE, key)]).expect("committed");
        }
        world.commit(10, &[(OTHER, "z")]).expect("committed");
        world.secure(2_500, &[(ONE, 2), (OTHER, 4)]);
        assert_eq!(world.chain(ONE, 2), Ok(vec![3]), "the others are secured, and old");
        assert!(world.chain(ONE, 0).is_err_and(|why| why.contains("not kept any more")));
        assert_eq!(world.commit(1, &[(ONE, "new")]), None, "nobody knows what came after it");
        assert!(world.commit(2, &[(ONE, "new")]).is_some());
        world.known = KnownCommits::default();
        assert_eq!(world.commit(1, &[(ONE, "newer")]), None, "another term knows as much");
        assert_eq!(world.commit(3, &[(ONE, "new")]), None);
        assert!(world.commit(6, &[(ONE, "new")]).is_some());
    }

    #[test]
    fn pr253_what_some_partition_has_not_secured_is_kept() {
        let mut world = World::new();
        world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
        world.commit(10, &[(ONE, "c")]).expect("committed");
        world.secure(1_000_000, &[(ONE, 2)]);
        assert_eq!(world.chain(OTHER, 0), Ok(vec![1]));
        world.secure(1_000_000, &[(OTHER, 1)]);
        assert_eq!(world.chain(OTHER, 1), Ok(Vec::new()));
        assert!(world.chain(OTHER, 0).is_err());
    }

    #[test]
    fn pr290_everything_old_is_removed_and_not_a_little_of_it() {
        let mut world = World::new();
        (0..3_000).for_each(|_| drop(world.commit(5_000, &[(ONE, "a")]).expect("committed")));
        let removed: Vec<u32> = std::iter::once(world.secure(u64::MAX, &[(ONE, 3_000)]))
            .chain(std::iter::from_fn(|| Some(world.secure(u64::MAX, &[])).filter(|removed| *removed > 0)))
            .collect();
        assert_eq!(removed.iter().sum::<u32>(), 3_000);
        assert!(removed.len() <= 3, "{removed:?}");
        let books = world.known.books(&world.engine, TERM).expect("no error");
        assert_eq!((books.kept.len(), books.kept_bytes, books.keys.len()), (0, 0, 0));
    }

    #[test]
    fn pr290_what_is_young_goes_where_there_is_too_much_of_it() {
        let mut world = World::new();
        world.lsn = 1;
        (0..100).for_each(|_| drop(world.commit(5_000, &[(ONE, "a")]).expect("committed")));
        assert_eq!(world.secure(0, &[(ONE, 101)]), 0, "young");
        world.keep_bytes = 50 * (BESIDE + "a".len() + "row".len());
        assert_eq!(world.secure(0, &[]), 50);
        assert_eq!(world.chain(ONE, 101), Ok(Vec::new()));
        world.commit(5_000, &[(OTHER, "b")]).expect("committed");
        let last = world.lsn;
        world.keep_bytes = 0;
        assert_eq!(world.secure(0, &[]), 0, "what is not secured stays, and all behind it");
        assert_eq!(world.chain(OTHER, 0).map(|chain| chain.len()), Ok(1));
        assert_eq!(world.secure(0, &[(OTHER, last)]), 51);
    }

    #[test]
    fn pr293_a_partition_that_knows_more_than_the_manager_goes_on_when_an_operator_says_so() {
        let mut world = World::new();
        for key in ["a", "b"] {
            world.commit(10, &[(ONE, key)]).expect("committed");
        }
        // It has a commit of an older term, which the manager has lost.
        let lost = Position::new(Term(2), Lsn(900));
        let mend = |world: &mut World, partition, has, upto| {
            let books = world.known.books(&world.engine, TERM).expect("no error");
            let mended = books.mend(&world.engine, 5, (partition, has, upto)).expect("no error");
            mended.map(|mutations| {
                world.execute(&mutations);
            })
        };
        assert_eq!(mend(&mut world, ONE, at(2), at(2)), Ok(()), "nothing is to be mended");
        assert_eq!(mend(&mut world, ONE, lost, lost), Ok(()), "the first commit behind it names it");
        let chained = chain(&world.engine, (ONE, lost, Position::ZERO), ReadAt::Applied).expect("no error");
        let Ok(CommitAnswer::Chain { flushes, .. }) = chained else { panic!("{chained:?}") };
        assert_eq!(flushes.iter().map(|flush| flush.previous).collect::<Vec<_>>(), [lost, at(1)]);
        let other = Position::new(Term(2), Lsn(800));
        assert_eq!(mend(&mut world, OTHER, other, other), Ok(()));
        assert_eq!(world.commit(10, &[(OTHER, "z")]), Some(vec![other]), "the next one names it");
        let kept = world.known.kept(&world.engine, 9, &[at(1), at(90)]).expect("no error");
        assert_eq!((kept.commits, kept.counts), (3, vec![(1, Some(1_000)), (3, None)]));
        assert_eq!(kept.given_up, [(ONE, lost, lost, 5), (OTHER, other, other, 5)]);
    }

    #[test]
    fn pr293_what_is_gone_is_given_up_by_name() {
        let mut world = World::new();
        for key in ["a", "b", "c"] {
            world.commit(10, &[(ONE, key)]).expect("committed");
        }
        world.secure(u64::MAX, &[(ONE, 2)]);
        let books = world.known.books(&world.engine, TERM).expect("no error");
        let same = books.mend(&world.engine, 5, (ONE, at(1), at(1))).expect("no error");
        let gone = format!("commits up to {}, and those up to {} are not kept any more", at(1), at(2));
        assert!(same.as_ref().is_err_and(|why| why.contains(&gone)), "{same:?}");
        let given = books.mend(&world.engine, 5, (ONE, at(1), at(2))).expect("no error");
        assert_eq!(given.map(|mutations| mutations.len()), Ok(1), "it is noted");
    }

    #[test]
    fn what_is_not_secured_for_long_is_worth_a_word() {
        let mut world = World::new();
        world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
        assert_eq!(world.known.alarm(TERM, 9_999), "");
        let alarm = world.known.alarm(TERM, 12_000);
        assert!(alarm.starts_with("1 commits are not secured, the oldest for 12 s"), "{alarm}");
        world.secure(0, &[(ONE, 1), (OTHER, 1)]);
        assert_eq!(world.known.alarm(TERM, 12_000), "");
    }

    #[test]
    fn what_partitions_do_not_secure_fills_no_memory_without_end() {
        let mut world = World::new();
        world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
        let full =
            |world: &mut World, most| world.known.books(&world.engine, TERM).expect("no error").is_full(most);
        assert_eq!(full(&mut world, 1_000), None);
        assert!(full(&mut world, 100).is_some_and(|why| why.contains("64 has not secured")));
        world.secure(0, &[(ONE, 1), (OTHER, 1)]);
        assert_eq!(full(&mut world, 100), None, "what is secured can be removed");
    }
}
