//! Global transactions ([`types::commits`]): commits at the transaction manager's partition, and their parts
//! in the partitions under it.

use crate::answer::{AckCondition, Answer};
use crate::features::commits::{Definitions, Keep, Looked, Unfit, Unmended};
use crate::rows::hash_row;
use crate::serve::write::{Writing, refused};
use crate::session::{self, MAX_OUTCOMES};
use bytes::Bytes;
use types::commits::{
    decode_horizon, decode_timestamp, encode_horizon, encode_timestamp, flush_key, flushes_above,
    horizon_key, newest_flush_key, timestamp_of_flush,
};
use types::database::{catalog_key, standing_of};
use types::engine::{Engine, EngineError, Row};
use types::system::{commit_key, read_commit};
use types::{KeySpace, Lsn, Mutation, PartitionId, Position, ReadAt, Rules, SessionId, TableId, TableState};
use wire::commit::{CommitAnswer, CommitRequest, FlushState, decode_write_set};
use wire::entry::Kind;
use wire::request::TablePart;
use wire::{Body, Effects, Flush, ManagerOp, Outcome, Request, Status};

/// The most markers of older flushes that one flush removes.
const MARKERS: usize = 4;

impl Writing<'_> {
    /// [`wire::Op::Manager`], unless it only looks at the books.
    pub fn manage(&mut self, request: &Request, asked: &ManagerOp) -> Result<Answer, EngineError> {
        match asked {
            ManagerOp::Secured { partitions } => self.secured(request, partitions),
            ManagerOp::Forget { partitions } => self.forget_dropped(request, partitions),
            ManagerOp::Kept { .. } | ManagerOp::Executing { .. } => self.count(asked),
            ManagerOp::Mend { partition, has, upto } => self.mend(request, (*partition, *has, *upto)),
            ManagerOp::Define { partitions, tables, gone } => {
                self.define(request, Definitions::read(partitions, tables, gone))
            }
            _ => self.commit(request, asked),
        }
    }

    /// [`wire::ManagerOp::Commit`]; with the snapshot at which its constraints were looked at,
    /// [`wire::ManagerOp::CommitChecked`]; with what its rows refer to by values, too,
    /// [`wire::ManagerOp::CommitLooked`]. Or [`wire::ManagerOp::Outcome`].
    pub fn commit(&mut self, request: &Request, asked: &ManagerOp) -> Result<Answer, EngineError> {
        let parents = asked.parents();
        let (asked, checked) = match asked {
            ManagerOp::Commit(asked) => (asked, None),
            ManagerOp::CommitChecked(asked, checked) => (asked, Some(*checked)),
            ManagerOp::CommitLooked { asked, checked, .. } => (asked, Some(*checked)),
            ManagerOp::Outcome { session, seq } => return self.outcome(request, (*session, *seq)),
            _ => return Ok(Answer::only(Status::Bad("it asks for no commit".into()))),
        };
        let looked = checked.map(|checked| Looked { checked, parents });
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let hash = hash_of(asked);
        if let Some(answer) = self.check_session(request, hash)? {
            return self.repeat_commit(answer);
        }
        let books = self.commits.books(self.data.engine.as_ref(), self.term)?;
        let partitions = asked.writes.iter().map(|writes| writes.partition);
        if let Some(why) = books.is_full(self.settings.commits_most_bytes, partitions) {
            return Ok(Answer::only(Status::NotYet(why)));
        }
        // What a failover lost of the commits may have been in the snapshot.
        let gone = |at: &Position| *at > Position::ZERO && !self.data.on_history(*at);
        let lost = asked.snapshots().iter().chain(&checked).any(gone);
        let refusal = match books.unfit((asked, looked)) {
            // What its rows claim rests on rows that others have changed.
            Some(Unfit::Claims(_)) if lost || books.conflicts(self.rules, (asked, looked)) => {
                Some(Outcome::Changed)
            }
            Some(Unfit::Place(why) | Unfit::Claims(why)) => return Ok(Answer::only(Status::Bad(why))),
            Some(Unfit::TooLarge(why)) => return Ok(Answer::only(Status::Bad(why.to_string()))),
            Some(Unfit::Stale) => Some(Outcome::Stale),
            Some(Unfit::Changed) => Some(Outcome::Changed),
            None => (lost || books.conflicts(self.rules, (asked, looked))).then_some(Outcome::Changed),
        };
        if let Some(outcome) = refusal {
            self.commits.counts().refused += 1;
            return self.log_evaluated(request, hash, refused(outcome));
        }
        let at = self.data.next_header(self.term, Kind::Rows, self.now.wall_ms).at;
        let stamp = books.stamp(self.rules, at);
        let (mutations, previous) = books.commit((stamp, self.now.wall_ms), (asked, parents));
        let rows = u32::try_from(previous.len()).unwrap_or(u32::MAX);
        let logged = self.log_evaluated(request, hash, (Outcome::Done, rows, mutations));
        let mut answer = logged.inspect_err(|_| self.commits.forget())?;
        assert_eq!(answer.entry, Some(at), "PR-250: a commit's timestamp is the position of its entry");
        (answer.entry, answer.body) = (Some(stamp), Body::Commit(CommitAnswer::Committed(previous)));
        self.commits.counts().committed += 1;
        Ok(answer)
    }

    /// What became of the commit with this number of a session. One that was not executed uses its number up
    /// as a refusal, so that a copy of it that comes later is none that could be done (PR-361).
    fn outcome(
        &mut self,
        request: &Request,
        (session, seq): (SessionId, u64),
    ) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let known = session::read(self.data.engine.as_ref(), session)?;
        let forgotten = || Status::TooOld("the commit's session is not known here any more".into());
        let Some(known) = known else { return Ok(self.seen(Answer::only(forgotten()))) };
        if let Some(kept) = known.kept.iter().find(|kept| kept.seq == seq) {
            let status = if kept.outcome.is_done() { Status::Ok } else { Status::Refused(kept.outcome) };
            return self.repeat_commit(Answer::new(status, Body::Affected(kept.affected)).of_entry(kept.at));
        }
        match seq.checked_sub(known.last) {
            None | Some(0) => Ok(self.seen(Answer::only(forgotten()))),
            Some(ahead) if ahead > MAX_OUTCOMES as u64 => {
                Ok(Answer::only(Status::Bad(format!("a session at {} has no number {seq}", known.last))))
            }
            Some(_) if !self.rules.unmade_commits_use_their_number_up() => {
                Ok(self.seen(Answer::new(Status::Refused(Outcome::Changed), Body::Affected(0))))
            }
            Some(_) => {
                let numbered = Request { session, seq, ..request.clone() };
                self.log_evaluated(&numbered, 0, refused(Outcome::Changed))
            }
        }
    }

    /// [`wire::ManagerOp::Define`]. What is asked may be unreadable, as a sentence.
    pub fn define(
        &mut self,
        request: &Request,
        asked: Result<Definitions, String>,
    ) -> Result<Answer, EngineError> {
        let definitions = match (self.refuses(), asked) {
            (Some(status), _) => return Ok(Answer::only(status)),
            (None, Err(why)) => return Ok(Answer::only(Status::Bad(why))),
            (None, Ok(definitions)) => definitions,
        };
        let books = self.commits.books(self.data.engine.as_ref(), self.term)?;
        let news = definitions.news(books);
        if news.is_empty() {
            let end = self.data.log.end().lsn;
            return Ok(Answer::new(Status::Ok, Body::Affected(0)).covered(end, AckCondition::Seen));
        }
        let at = self.data.next_header(self.term, Kind::Rows, self.now.wall_ms).at;
        let stamp = books.stamp(self.rules, at);
        let (mutations, previous) = books.define((stamp, self.now.wall_ms), news);
        let logged = self.log_evaluated(request, 0, (Outcome::Done, 1, mutations));
        let mut answer = logged.inspect_err(|_| self.commits.forget())?;
        assert_eq!(answer.entry, Some(at), "PR-250: a commit's timestamp is the position of its entry");
        (answer.entry, answer.body) = (Some(stamp), Body::Commit(CommitAnswer::Committed(previous)));
        Ok(answer)
    }

    /// What is counted for people, and makes no entry.
    pub fn count(&mut self, asked: &ManagerOp) -> Result<Answer, EngineError> {
        match asked {
            ManagerOp::Kept { upto } => self.kept(upto),
            ManagerOp::Executing { who, open, oldest_ms } => Ok(self.executing((*who, *open, *oldest_ms))),
            _ => Ok(Answer::only(Status::Bad("it asks for no count".into()))),
        }
    }

    /// [`wire::ManagerOp::Kept`].
    fn kept(&mut self, upto: &[Position]) -> Result<Answer, EngineError> {
        let engine = self.data.engine.as_ref();
        self.commits.books(engine, self.term)?;
        let kept = self.commits.kept(engine, self.now.wall_ms, upto)?;
        let end = self.data.log.end().lsn;
        Ok(Answer::new(Status::Ok, Body::Commit(CommitAnswer::Kept(kept))).covered(end, AckCondition::Seen))
    }

    /// [`wire::ManagerOp::Executing`]. Nothing is logged, and the answer waits for nothing: it is for people,
    /// who may read what a primary says that is none any more.
    fn executing(&mut self, report: (u64, u32, u64)) -> Answer {
        let body = match self.commits.executing(self.now.mono, report) {
            Some(executing) => Body::Commit(CommitAnswer::Executing(executing)),
            None => Body::None,
        };
        Answer::new(Status::Ok, body)
    }

    /// [`wire::ManagerOp::Mend`].
    pub fn mend(
        &mut self,
        request: &Request,
        mended: (PartitionId, Position, Position),
    ) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let engine = self.data.engine.as_ref();
        let books = self.commits.books(engine, self.term)?;
        let at = self.data.next_header(self.term, Kind::Rows, self.now.wall_ms).at;
        let stamp = books.stamp(self.rules, at);
        let mutations = match books.mend(engine, (stamp, self.now.wall_ms), mended)? {
            Ok(mutations) => mutations,
            Err(Unmended::Gone(why)) => return Ok(Answer::only(Status::TooOld(why))),
            Err(Unmended::Ahead(why)) => return Ok(Answer::only(Status::Bad(why))),
        };
        if mutations.is_empty() {
            let end = self.data.log.end().lsn;
            return Ok(Answer::new(Status::Ok, Body::Affected(0)).covered(end, AckCondition::Seen));
        }
        let logged = self.log_evaluated(request, 0, (Outcome::Done, 1, mutations));
        let answer = logged.inspect_err(|_| self.commits.forget())?;
        assert_eq!(answer.entry, Some(at), "PR-250: a commit's timestamp is the position of its entry");
        Ok(answer)
    }

    /// The answer to a commit that was asked for before says the same as the first one did.
    fn repeat_commit(&self, mut answer: Answer) -> Result<Answer, EngineError> {
        if let (Status::Ok, Some(at)) = (&answer.status, answer.entry) {
            let key = KeySpace::Bare.row_key(&commit_key(at));
            let row = self.data.engine.get(&key, ReadAt::Applied)?;
            // Once it is not kept any more, every partition has secured it.
            let kept = row.map(|(_, row)| read_commit(&KeySpace::Bare.key_of(&key), &row));
            let kept = kept.transpose().map_err(EngineError::Corrupt)?;
            let kept = kept.map(|(_, _, write_set)| decode_write_set(&write_set)).transpose();
            let kept = kept.map_err(EngineError::Corrupt)?.unwrap_or_default();
            let previous = kept.iter().map(|writes| (writes.partition, writes.previous)).collect();
            answer.body = Body::Commit(CommitAnswer::Committed(previous));
        }
        Ok(self.seen(answer))
    }

    /// [`wire::ManagerOp::Secured`].
    pub fn secured(
        &mut self,
        request: &Request,
        partitions: &[(PartitionId, Position)],
    ) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let engine = self.data.engine.as_ref();
        let books = self.commits.books(engine, self.term)?;
        // What is secured everywhere leaves room for what is not, however little there is.
        let bytes = self.settings.commits_kept_bytes.min(self.settings.commits_most_bytes / 4);
        let keep = Keep { time: self.settings.commits_kept, bytes };
        let secured = books.secure((engine, self.rules), (self.now.wall_ms, keep), partitions);
        let (mutations, removed) = secured.inspect_err(|_| self.commits.forget())?;
        if mutations.is_empty() {
            let end = self.data.log.end().lsn;
            return Ok(Answer::new(Status::Ok, Body::None).covered(end, AckCondition::Seen));
        }
        let logged = self.log_evaluated(request, 0, (Outcome::Done, removed, mutations));
        logged.inspect_err(|_| self.commits.forget())
    }

    /// [`wire::ManagerOp::Forget`].
    pub fn forget_dropped(
        &mut self,
        request: &Request,
        partitions: &[PartitionId],
    ) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let books = self.commits.books(self.data.engine.as_ref(), self.term)?;
        let (mutations, removed) = books.forget_dropped(partitions);
        if mutations.is_empty() {
            let end = self.data.log.end().lsn;
            return Ok(Answer::new(Status::Ok, Body::None).covered(end, AckCondition::Seen));
        }
        let logged = self.log_evaluated(request, 0, (Outcome::Done, removed, mutations));
        let mut answer = logged.inspect_err(|_| self.commits.forget())?;
        // A number would be one of write-sets.
        answer.body = Body::None;
        Ok(answer)
    }

    /// [`wire::Op::Flush`].
    pub fn flush(&mut self, request: &Request, flush: &Flush) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let engine = self.data.engine.as_ref();
        let newest = newest_flush(engine, ReadAt::Applied)?;
        if flush.commit <= newest && self.rules.flushes_follow_their_chain() {
            let end = self.data.log.end().lsn;
            return Ok(Answer::new(Status::Ok, Body::Affected(0)).covered(end, AckCondition::Seen));
        }
        if flush.previous != newest && self.rules.flushes_follow_their_chain() {
            return Ok(Answer::only(Status::Behind(newest)));
        }
        let rows = rows_of(engine, &flush.parts)?;
        let (mut mutations, defines) = match self.rules.commits_reach_indexes() {
            true => self.catalog.followed(engine, self.term, rows)?,
            false => (rows, false),
        };
        let affected = u32::try_from(mutations.len()).unwrap_or(u32::MAX);
        let (marks, removed) = marks(engine, flush, self.commits.marks_removed(self.term))?;
        mutations.extend(marks);
        mutations.extend(self.commits.horizon_to_tell().map(horizon_row));
        let effects =
            Effects { request_hash: 0, confirmed: 0, outcome: Outcome::Done as u8, affected, mutations };
        let at = self.log_effects(request, effects)?;
        self.commits.note_marks_removed(self.term, removed);
        if defines {
            self.catalog.changed_at(at);
        }
        let answer = Answer::new(Status::Ok, Body::Affected(affected)).of_entry(at);
        Ok(answer.covered(at.lsn, AckCondition::Entry))
    }
}

/// What a flush changes of rows. A flush is never refused for what tables are like now: rows are stored as
/// they were encoded, which later columns can read (PR-122), and also of a table that this partition does not
/// know yet. Of a table that is being removed nothing is stored.
fn rows_of(engine: &dyn Engine, parts: &[TablePart]) -> Result<Vec<Mutation>, EngineError> {
    let mut mutations = Vec::with_capacity(parts.iter().map(|part| part.ops.len()).sum::<usize>() + 3);
    for part in parts {
        if is_being_removed(engine, part.table)? {
            continue;
        }
        let keys = KeySpace::Table(part.table);
        let changes = part.ops.iter();
        let changes = changes.map(|op| Mutation { key: keys.row_key(op.key()), value: op.row().cloned() });
        mutations.extend(changes);
    }
    Ok(mutations)
}

fn is_being_removed(engine: &dyn Engine, table: TableId) -> Result<bool, EngineError> {
    let definition = engine.get(&catalog_key(table), ReadAt::Applied)?;
    let state = definition.map(|(_, value)| standing_of(&value)).transpose();
    Ok(state.map_err(EngineError::Corrupt)?.is_some_and(|(state, _)| state == TableState::Dropping))
}

/// What says that a flush is here. Marks that no snapshot needs any more go: those from below the lowest
/// state that can be read, but for the last of them. Those up to `removed` are gone: an engine would go over
/// what is left of each of them again and again (PR-294). Gives also up to where they are gone now.
fn marks(
    engine: &dyn Engine,
    flush: &Flush,
    removed: Position,
) -> Result<(Vec<Mutation>, Position), EngineError> {
    let (from, to) = flushes_above(removed);
    let oldest = engine.scan(&from, &to, ReadAt::Applied, MARKERS, usize::MAX)?;
    let floor = engine.read_floor();
    let behind = |pair: &[Row]| pair[1].lsn <= floor;
    let unneeded = oldest.windows(2).take_while(|pair| behind(pair)).count();
    let last = unneeded.checked_sub(1).and_then(|last| timestamp_of_flush(&oldest[last].key));
    let mut mutations: Vec<Mutation> =
        oldest.into_iter().take(unneeded).map(|row| Mutation { key: row.key, value: None }).collect();
    let stored = |key: Bytes, at: Position| Mutation {
        key,
        value: Some(Bytes::copy_from_slice(&encode_timestamp(at))),
    };
    mutations.push(stored(flush_key(flush.commit), flush.previous));
    mutations.push(stored(newest_flush_key(), flush.commit));
    Ok((mutations, last.unwrap_or(removed)))
}

/// What says which state is the lowest that the primary keeps for snapshots.
fn horizon_row(lowest: Lsn) -> Mutation {
    Mutation { key: horizon_key(), value: Some(Bytes::copy_from_slice(&encode_horizon(lowest))) }
}

/// In the state at `committed`: at which LSN the primary has said what it keeps for snapshots, and what that
/// is, if it has; and the LSN of the newest flush.
pub(crate) fn horizon_at(
    engine: &dyn Engine,
    committed: Lsn,
) -> Result<(Option<(Lsn, Lsn)>, Lsn), EngineError> {
    let told = engine.get(&horizon_key(), ReadAt::Lsn(committed))?;
    let told = told.and_then(|(at, value)| decode_horizon(&value).map(|lowest| (at, lowest)));
    let newest = engine.get(&newest_flush_key(), ReadAt::Lsn(committed))?;
    Ok((told, newest.map_or(Lsn::ZERO, |(at, _)| at)))
}

/// The newest commit that is in this state of a partition; zero: none is.
pub(super) fn newest_flush(engine: &dyn Engine, at: ReadAt) -> Result<Position, EngineError> {
    match engine.get(&newest_flush_key(), at)? {
        None => Ok(Position::ZERO),
        Some((_, value)) => decode_timestamp(&value)
            .ok_or_else(|| EngineError::Corrupt("the newest commit of a partition cannot be read".into())),
    }
}

/// The LSN at which a partition shows what commits up to `at` have written, as of the state at `committed`.
/// `after` must be in it. The status says why it cannot be shown.
pub(super) fn lsn_of_snapshot(
    engine: &dyn Engine,
    rules: Rules,
    (at, after): (Position, Position),
    committed: Lsn,
) -> Result<Result<Lsn, Status>, EngineError> {
    let read = ReadAt::Lsn(committed);
    let newest = newest_flush(engine, read)?;
    if newest < after && rules.snapshots_are_whole() {
        return Ok(Err(Status::Behind(newest)));
    }
    if newest <= at {
        return Ok(Ok(committed));
    }
    let (from, to) = flushes_above(at);
    let rows = engine.scan(&from, &to, read, 1, usize::MAX)?;
    let next = rows.first().and_then(|row| {
        let previous = decode_timestamp(&row.value)?;
        timestamp_of_flush(&row.key).map(|_| (row.lsn, previous))
    });
    match next {
        Some((lsn, previous)) if previous <= at => Ok(Ok(lsn.prev())),
        Some(_) => Ok(Err(Status::TooOld(format!("what was before commit {at} is not known any more")))),
        None => Err(EngineError::Corrupt("a commit of a partition has no mark".into())),
    }
}

/// True if enough copies are in a partition's set for what they have durable to be secured: as many as the
/// manager's own table demands, or as the partition is to have, if these are fewer (PR-340).
pub(super) fn are_enough((in_sync, factor): (usize, u8), copies: u8) -> bool {
    in_sync >= usize::from(copies.min(factor))
}

/// How far a partition's commits have come: in what is committed, and in what every copy that counts has
/// durable.
pub(super) fn flush_state(
    engine: &dyn Engine,
    (committed, secured): (Lsn, Lsn),
    enough_copies: bool,
) -> Result<FlushState, EngineError> {
    let newest = newest_flush(engine, ReadAt::Lsn(committed))?;
    let sure = secured.min(committed);
    let secured = match enough_copies && sure >= engine.read_floor() {
        true => newest_flush(engine, ReadAt::Lsn(sure))?,
        false => Position::ZERO,
    };
    Ok(FlushState { newest, secured })
}

/// A hash of what is asked (PR-47).
fn hash_of(asked: &CommitRequest) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let number = |hash: &mut xxhash_rust::xxh3::Xxh3, number: u64| hash.update(&number.to_le_bytes());
    number(&mut hash, asked.snapshot.term.0);
    number(&mut hash, asked.snapshot.lsn.0);
    for writes in &asked.writes {
        number(&mut hash, u64::from(writes.partition.0) << 32 | writes.parts.len() as u64);
        for part in &writes.parts {
            number(&mut hash, u64::from(part.table.0) << 32 | part.ops.len() as u64);
            part.ops.iter().for_each(|op| hash_row(&mut hash, op));
            for seen in &part.seen {
                number(&mut hash, seen.term.0);
                number(&mut hash, seen.lsn.0);
            }
        }
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at as entry_at};
    use crate::readers::NamedSnapshots;
    use types::{Finding, Term};
    use wire::RowOp;

    const TABLE: TableId = TableId(7);

    fn commit(lsn: u64) -> Position {
        Position::new(Term(2), Lsn(lsn))
    }

    /// A partition that has these commits, each at the next LSN.
    fn partition(commits: &[u64]) -> FakeEngine {
        let mut engine = FakeEngine::new();
        let mut previous = Position::ZERO;
        for (number, lsn) in commits.iter().enumerate() {
            let put = RowOp::Put { key: "k".into(), row: Bytes::from(lsn.to_string()) };
            let part = TablePart { table: TABLE, schema: 1, ops: vec![put], seen: Vec::new() };
            let flush = Flush { commit: commit(*lsn), previous, parts: vec![part] };
            let mut mutations = rows_of(&engine, &flush.parts).expect("no error");
            mutations.extend(marks(&engine, &flush, Position::ZERO).expect("no error").0);
            engine.execute(entry_at(number as u64 + 1), &mutations);
            previous = flush.commit;
        }
        engine
    }

    fn shown(engine: &FakeEngine, at: u64, after: u64) -> Result<Lsn, Status> {
        let committed = engine.applied().lsn;
        let asked = (commit(at), commit(after));
        lsn_of_snapshot(engine, Rules::ALL, asked, committed).expect("no error")
    }

    #[test]
    fn pr252_a_snapshot_is_the_state_below_the_first_later_commit() {
        let engine = partition(&[5, 8, 20]);
        assert_eq!(shown(&engine, 4, 0), Ok(Lsn(0)));
        assert_eq!(shown(&engine, 5, 5), Ok(Lsn(1)));
        assert_eq!(shown(&engine, 19, 8), Ok(Lsn(2)));
        assert_eq!(shown(&engine, 20, 20), Ok(Lsn(3)));
        assert_eq!(shown(&engine, 90, 20), Ok(Lsn(3)), "no commit between has a part here");
        assert_eq!(shown(&engine, 90, 30), Err(Status::Behind(commit(20))), "one is to come");
    }

    /// A failover has lost the flushes behind the first one, and they came again behind its marker.
    #[test]
    fn pr364_a_snapshot_is_looked_for_again_in_another_log_and_without_the_rule_it_is_not() {
        let (before, mut after) = (partition(&[5, 8]), partition(&[5]));
        after.execute(entry_at(2), &[]);
        let flush = Flush { commit: commit(8), previous: commit(5), parts: Vec::new() };
        let marks = marks(&after, &flush, Position::ZERO).expect("no error").0;
        after.execute(entry_at(3), &marks);
        let read = |rules: Rules| {
            let mut named = NamedSnapshots::default();
            [&before, &after].map(|engine| {
                let snapshot = (commit(5), commit(5));
                let found = lsn_of_snapshot(engine, rules, snapshot, engine.applied().lsn);
                let lsn = found.expect("no error").expect("it is there");
                named.name(rules, snapshot, lsn)
            })
        };
        assert_eq!(read(Rules::ALL), [Lsn(1), Lsn(2)], "with the marker, and without a row of the next");
        let mutant = Rules::without(Finding::Pr364).expect("this build has mutants");
        assert_eq!(read(mutant), [Lsn(1), Lsn(1)]);
    }

    #[test]
    fn pr294_marks_that_are_gone_are_not_gone_over_again() {
        let mut engine = partition(&[5, 8, 20]);
        engine.raise_read_floor(Lsn(3));
        let flush = Flush { commit: commit(30), previous: commit(20), parts: Vec::new() };
        let removed = |(mutations, upto): (Vec<Mutation>, Position)| {
            let gone = mutations.iter().filter(|mutation| mutation.value.is_none());
            (gone.filter_map(|mutation| timestamp_of_flush(&mutation.key)).collect::<Vec<_>>(), upto)
        };
        let first = removed(marks(&engine, &flush, Position::ZERO).expect("no error"));
        assert_eq!(first, (vec![commit(5), commit(8)], commit(8)), "the last one stays");
        let second = removed(marks(&engine, &flush, commit(8)).expect("no error"));
        assert_eq!(second, (Vec::new(), commit(8)));
    }

    #[test]
    fn pr340_a_partition_of_fewer_copies_than_the_manager_demands_secures_what_all_of_them_have() {
        assert!(are_enough((1, 1), 2), "it is not to have more");
        assert!(!are_enough((1, 3), 2), "one is away");
        assert!(are_enough((2, 3), 2) && are_enough((3, 3), 1));
    }

    #[test]
    fn what_is_secured_is_said_of_enough_copies_alone() {
        let engine = partition(&[5, 8, 20]);
        let state = |secured, enough| flush_state(&engine, (Lsn(3), Lsn(secured)), enough).expect("no error");
        assert_eq!(state(2, true), FlushState { newest: commit(20), secured: commit(8) });
        assert_eq!(state(9, true).secured, commit(20), "no more than is committed");
        assert_eq!(state(2, false).secured, Position::ZERO);
    }
}
