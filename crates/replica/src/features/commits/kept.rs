//! What the transaction manager keeps, for people; and an operator's last word on a partition whose commits
//! do not follow each other any more.

use super::{Books, Commit, KnownCommits, commits_above, damaged, encode_write_set};
use std::collections::VecDeque;
use types::commits::GivenUp;
use types::engine::{Engine, EngineError};
use types::system::commit_row;
use types::{KeySpace, Micros, Mutation, PartitionId, Position, ReadAt, Term};
use wire::commit::{CommitRequest, KeptCommits, PartitionWrites};

/// What one partition has not secured may have one part in so many of the bytes that there may be in all.
const SHARES: usize = 4;

/// The commits with a part in one partition that it has not secured.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Each with the bytes of that part, about; oldest first.
    parts: VecDeque<(Position, u32)>,
    /// The bytes of all of them.
    bytes: usize,
}

impl Backlog {
    /// A commit later than all before has so many bytes there.
    pub fn note(&mut self, at: Position, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.parts.push_back((at, bytes));
        self.bytes += bytes as usize;
    }

    /// The partition has secured its commits up to here; `each` is told which these are.
    pub fn secure(&mut self, upto: Position, mut each: impl FnMut(Position)) {
        while let Some((at, bytes)) = self.parts.pop_front_if(|(at, _)| *at <= upto) {
            self.bytes -= bytes as usize;
            each(at);
        }
    }
}

/// Why a partition does not go on, in a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unmended {
    /// Commits between are gone, and nobody gives them up.
    Gone(String),
    /// It has what no manager can have committed yet.
    Ahead(String),
}

impl KnownCommits {
    /// What is worth an operator's attention, in a sentence: so `many` commits that some partition has not
    /// secured, or the oldest of them so `old`. Empty: nothing, or nobody has committed in this term.
    /// `now_ms` is the wall clock's.
    pub fn alarm(&self, term: Term, now_ms: u64, worth: (usize, Micros)) -> String {
        let known = (self.term == term).then_some(&self.books);
        known.and_then(|books| books.alarm(now_ms, worth)).unwrap_or_default()
    }

    /// [`wire::ManagerOp::Kept`]. The books must have been read.
    pub fn kept(
        &self,
        engine: &dyn Engine,
        now_ms: u64,
        upto: &[Position],
    ) -> Result<KeptCommits, EngineError> {
        let books = &self.books;
        let (from, to) = GivenUp::range();
        let rows = engine.scan(&from, &to, ReadAt::Applied, usize::MAX, usize::MAX)?;
        let given_up = rows.iter().map(|row| {
            let (partition, of) =
                GivenUp::decode(&row.key, &row.value).ok_or_else(|| damaged("what was given up"))?;
            Ok((partition, of.from, of.upto, of.wall_ms))
        });
        Ok(KeptCommits {
            counts: upto.iter().map(|at| books.count(*at)).collect(),
            commits: books.kept.len() as u64,
            bytes: books.kept.bytes() as u64,
            oldest_ms: books.kept.oldest().map(|stamp| stamp.wall_ms),
            now_ms,
            committed: self.counts.committed,
            refused: self.counts.refused,
            given_up: given_up.collect::<Result<_, EngineError>>()?,
        })
    }
}

impl Books {
    /// How many are kept up to this one, and when the next one was made.
    fn count(&self, upto: Position) -> (u64, Option<u64>) {
        (self.kept.count(upto) as u64, self.kept.first_above(upto).map(|stamp| stamp.wall_ms))
    }

    /// Why nothing more is committed in these partitions, if so: partitions that secure nothing would fill
    /// the memory of the node. What one of them has not secured may have a fourth of the `most` bytes, about;
    /// beyond that, commits without a part there are made all the same (PR-367). With `most` bytes of commits
    /// none are, whoever has not secured them.
    pub fn is_full(&self, most: usize, partitions: impl IntoIterator<Item = PartitionId>) -> Option<String> {
        let share = |partition: PartitionId| {
            let backlog = self.backlogs.get(&partition).filter(|backlog| backlog.bytes >= most / SHARES)?;
            Some((partition, backlog.parts.len(), backlog.bytes))
        };
        let whole = || {
            let lagging = self.heads.iter().filter(|(_, head)| head.lags());
            let (back, _) = lagging.min_by_key(|(_, head)| head.secured)?;
            let bytes = self.kept.bytes();
            (bytes >= most).then_some((*back, self.kept.len(), bytes))
        };
        let (back, commits, bytes) = partitions.into_iter().find_map(share).or_else(whole)?;
        Some(format!(
            "{commits} commits of {bytes} bytes are kept, and partition {back} has not secured them"
        ))
    }

    fn alarm(&self, now_ms: u64, (many, old): (usize, Micros)) -> Option<String> {
        let (back, head) =
            self.heads.iter().filter(|(_, head)| head.lags()).min_by_key(|(_, head)| head.secured)?;
        let oldest = self.kept.first_above(head.secured)?;
        let count = self.kept.len() - self.kept.count(head.secured);
        let age = now_ms.saturating_sub(oldest.wall_ms);
        (count >= many || age >= old.as_millis()).then(|| {
            format!(
                "{count} commits are not secured, the oldest for {} s: partition {back} holds them back",
                age / 1_000
            )
        })
    }

    /// [`wire::ManagerOp::Mend`], by an entry that would be at this position: what changes by it. Where the
    /// manager goes on behind what the partition has, and knows of no later commit there, it makes one
    /// without rows: the newest commit is the next snapshot, and must lie on the manager's own log (PR-415).
    pub fn mend(
        &mut self,
        engine: &dyn Engine,
        (at, wall_ms): (Position, u64),
        (partition, has, upto): (PartitionId, Position, Position),
    ) -> Result<Result<Vec<Mutation>, Unmended>, EngineError> {
        if has >= at {
            return Ok(Err(Unmended::Ahead(format!("no partition has {has}: this log ends below {at}"))));
        }
        let note =
            |given_up: GivenUp| Mutation { key: given_up.key(partition), value: Some(given_up.encode()) };
        let noted = note(GivenUp { from: has, upto, wall_ms });
        if upto > has {
            return Ok(Ok(vec![noted]));
        }
        let head = self.heads.get(&partition).copied().unwrap_or_default();
        let gone = |previous| {
            Unmended::Gone(format!(
                "partition {partition} has commits up to {has}, and those up to {previous} are not kept any more"
            ))
        };
        let next = match first_of(engine, partition, has)? {
            Some((_, previous)) if previous == has => return Ok(Ok(Vec::new())),
            Some((_, previous)) if previous > has => return Ok(Err(gone(previous))),
            Some((next, _)) => next,
            None if head.newest > has => return Ok(Err(gone(head.newest))),
            None if head.newest == has => return Ok(Ok(Vec::new())),
            None => {
                self.heads.entry(partition).or_default().newest = has;
                let writes = vec![PartitionWrites { partition, parts: Vec::new() }];
                let (mut mutations, _) =
                    self.commit((at, wall_ms), (&CommitRequest { snapshot: at, writes }, &[]));
                mutations.push(noted);
                return Ok(Ok(mutations));
            }
        };
        Ok(Ok(vec![linked(next, (partition, has)), noted]))
    }
}

/// The first commit behind this one with a part in the partition, and the one that it names.
fn first_of(
    engine: &dyn Engine,
    partition: PartitionId,
    has: Position,
) -> Result<Option<(Commit, Position)>, EngineError> {
    let mut from = has;
    loop {
        let commits = commits_above(engine, from, ReadAt::Applied)?;
        let Some(last) = commits.last() else { return Ok(None) };
        from = last.at;
        let named = commits.into_iter().find_map(|commit| {
            let previous = commit.kept.iter().find(|writes| writes.partition == partition)?.previous;
            Some((commit, previous))
        });
        if named.is_some() {
            return Ok(named);
        }
    }
}

/// The same commit, behind another one in this partition.
fn linked(mut commit: Commit, (partition, previous): (PartitionId, Position)) -> Mutation {
    for writes in commit.kept.iter_mut().filter(|writes| writes.partition == partition) {
        writes.previous = previous;
    }
    let rows = commit.kept.iter().flat_map(|writes| &writes.parts).map(|part| part.ops.len()).sum();
    let counts = (commit.kept.len(), rows);
    let (key, row) = commit_row(commit.at, commit.wall_ms, counts, &encode_write_set(&commit.kept));
    Mutation { key: KeySpace::Bare.row_key(&key), value: Some(row) }
}
