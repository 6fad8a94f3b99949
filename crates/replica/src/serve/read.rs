//! Requests that look at a state: at `committed`, or at a snapshot.

use crate::answer::Answer;
use crate::context::Identity;
use crate::data::Data;
use crate::features::pause::Pause;
use crate::features::{commits, index, job};
use crate::readers::Readers;
use crate::rows::feed_key;
use crate::scope::Scope;
use crate::serve::commit;
use crate::session::SCAN_BYTES;
use types::engine::EngineError;
use types::{Lsn, Micros, PartitionId, ReadAt, Rules};
use wire::request::ReadSnapshot;
use wire::{Body, CommitAnswer, Op, Status};

/// What a state is looked at with.
pub(crate) struct Reading<'a> {
    id: PartitionId,
    rules: Rules,
    data: &'a Data,
    readers: &'a mut Readers,
    now: Micros,
}

impl<'a> Reading<'a> {
    pub fn new(identity: Identity, data: &'a Data, readers: &'a mut Readers, now: Micros) -> Reading<'a> {
        Reading { id: identity.id, rules: identity.rules, data, readers, now }
    }

    /// Why a read at any replica is refused here, if so: below the LSN that was asked for, or too old
    /// (PR-27). All that was acknowledged was committed here at `fresh_at`, and could be read unless a bulk
    /// load is not installed yet (PR-114).
    pub fn too_stale(&self, fresh_at: Micros, max_lag_ms: u64, min_lsn: Lsn) -> Option<Status> {
        if !self.rules.stale_reads_are_refused() {
            return None;
        }
        let committed = self.data.readable();
        if committed < min_lsn {
            return Some(Status::NotYet(format!("this replica is at LSN {committed}, not at {min_lsn} yet")));
        }
        if committed < self.data.marks.committed() && max_lag_ms < u64::MAX {
            let why = "this replica installs a bulk load, and shows what was before it, however old that is";
            return Some(Status::NotYet(why.into()));
        }
        let age = self.now.since(fresh_at).as_millis();
        (age > max_lag_ms).then(|| {
            Status::NotYet(format!("this replica may be {age} ms behind, over the bound of {max_lag_ms} ms"))
        })
    }

    /// [`Op::Pause`] holds `committed` where it is, [`Op::Resume`] lets it go on and says where it stood.
    pub fn pause(&mut self, pause: &mut Pause, op: &Op) -> Answer {
        let (committed, now) = (self.data.marks.committed(), self.now);
        match op {
            Op::Pause { for_ms } if pause.hold(now, committed, *for_ms) => self.readers.open(committed, now),
            Op::Pause { .. } => return Answer::not_yet("the partition was held at one position just now"),
            Op::Resume { at } if !self.data.on_history(*at) => {
                let why = "the position is no part of the partition's history: a failover has lost it";
                return Answer::only(Status::TooOld(why.into()));
            }
            _ => pause.release(now),
        }
        Answer::only(Status::Ok).leased()
    }

    /// What is found at a position that [`Reading::position_of`] gave.
    pub fn read(&mut self, op: &Op, scope: &Scope, (at, lsn): (ReadAt, Lsn)) -> Result<Answer, EngineError> {
        let (status, body) = match op {
            Op::Find { .. } => {
                index::find(self.data.engine.as_ref(), (self.id, scope.keys(), self.rules), op, at)?
            }
            Op::Manager(op) => match commits::look(self.data.engine.as_ref(), op, at)? {
                Ok(answer) => (Status::Ok, Body::Commit(answer)),
                Err(why) => (Status::TooOld(why), Body::None),
            },
            op => (Status::Ok, self.look(op, scope, at)?),
        };
        if matches!(&body, Body::Found { next, .. } if !next.is_empty())
            && let ReadAt::Lsn(lsn) = at
        {
            self.readers.open(lsn, self.now);
        }
        Ok(Answer::new(status, body).read_at(lsn))
    }

    /// Where a read looks, and the LSN that its answer is made at. A state that is asked for by name is kept
    /// from now on; one that somebody `holds` for a transaction over partitions no longer than those may last
    /// (PR-466). A `leading` replica shows a commit of a global transaction that is executed here: it is
    /// committed in the transaction manager's log, and what a failover loses of its flush is brought again.
    pub fn position_of(
        &mut self,
        snapshot: ReadSnapshot,
        leading: bool,
        holds: bool,
    ) -> Result<Result<(ReadAt, Lsn), Status>, EngineError> {
        let committed = self.data.readable();
        let newest =
            if self.rules.reads_are_at_committed() { ReadAt::Lsn(committed) } else { ReadAt::Applied };
        let wanted = match snapshot {
            ReadSnapshot::Newest => return Ok(Ok((newest, committed))),
            ReadSnapshot::Begin => committed,
            ReadSnapshot::At(wanted) if !self.data.on_history(wanted) => {
                let why =
                    "the snapshot is no part of the partition's history: a failover has lost what it showed";
                return Ok(Err(Status::TooOld(why.into())));
            }
            ReadSnapshot::At(wanted) if wanted.lsn > committed => {
                let why = format!("this replica is at LSN {committed}, not at {} yet", wanted.lsn);
                return Ok(Err(Status::NotYet(why)));
            }
            ReadSnapshot::At(wanted) => wanted.lsn,
            ReadSnapshot::Commit { at, after } => {
                let engine = self.data.engine.as_ref();
                let in_state = |lsn| commit::lsn_of_snapshot(engine, self.rules, (at, after), lsn);
                let found = match in_state(committed)? {
                    Err(behind @ Status::Behind(_)) => match in_state(engine.applied().lsn)? {
                        found if leading => found,
                        // A flush that is not committed here names the one before it all the same: so what
                        // is committed is all that the snapshot shows.
                        Ok(lsn) if lsn <= committed => Ok(lsn),
                        _ => Err(behind),
                    },
                    found => found,
                };
                match found {
                    Ok(lsn) => self.readers.named.name(self.rules, (at, after), lsn),
                    Err(status) => return Ok(Err(status)),
                }
            }
        };
        let read_floor = self.data.engine.read_floor();
        if wanted < read_floor {
            let old = EngineError::SnapshotTooOld { asked: wanted, read_floor };
            return Ok(Err(Status::TooOld(old.to_string())));
        }
        match holds && matches!(snapshot, ReadSnapshot::Commit { .. }) {
            true => self.readers.hold((wanted, committed), (self.now, self.data.written())),
            false => self.readers.open(wanted, self.now),
        }
        Ok(Ok((ReadAt::Lsn(wanted), wanted)))
    }

    /// [`Op::FlushState`]. `set`: so many copies are in the partition's set, and so many there are to be.
    pub fn flush_state(&mut self, set: (usize, u8), copies: u8) -> Result<Answer, EngineError> {
        let enough_copies = commit::are_enough(set, copies);
        let secured = match self.rules.copies_secure_commits() {
            true => self.data.marks.secured(),
            false => self.data.log.durable(),
        };
        let committed = self.data.readable();
        let state = commit::flush_state(self.data.engine.as_ref(), (committed, secured), enough_copies)?;
        Ok(Answer::new(Status::Ok, Body::Commit(CommitAnswer::State(state))).read_at(committed))
    }

    fn look(&mut self, op: &Op, scope: &Scope, at: ReadAt) -> Result<Body, EngineError> {
        Ok(match op {
            Op::Get { key, .. } => Body::Row(self.data.engine.get(&scope.keys().row_key(key), at)?),
            Op::Scan { from, to, limit, .. } => return self.scan(scope, (from, to), *limit, at),
            Op::Feed { feed } => {
                let row = self.data.engine.get(&feed_key(self.rules, scope, *feed), at)?;
                let position = row.and_then(|(_, value)| value[..].try_into().ok().map(u64::from_le_bytes));
                Body::Number(position.unwrap_or(0))
            }
            Op::TermEnd { term } => Body::TermEnd(self.data.log.history().ended(*term)),
            Op::Indexes => return index::index_status(self.data.engine.as_ref(), at),
            Op::ShowJob { job } => Body::Job(job::status_of(self.data.engine.as_ref(), *job, at)?),
            // Each of these is handled by itself, or reads nothing.
            _ => Body::None,
        })
    }

    fn scan(
        &mut self,
        scope: &Scope,
        (from, to): (&[u8], &[u8]),
        limit: u32,
        at: ReadAt,
    ) -> Result<Body, EngineError> {
        let (from, end) = scope.range(from, to);
        let limit = (limit as usize).clamp(1, 100_000);
        let at = if self.rules.scans_are_at_committed() { at } else { ReadAt::Applied };
        let mut rows = self.data.engine.scan(&from, &end, at, limit + 1, SCAN_BYTES)?;
        let bytes: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let more = rows.len() > limit || bytes >= SCAN_BYTES;
        rows.truncate(limit);
        if let (ReadAt::Lsn(lsn), true) = (at, more) {
            self.readers.open(lsn, self.now);
        }
        let keys = scope.keys();
        let rows = rows.into_iter().map(|row| (keys.key_of(&row.key), row.lsn, row.value)).collect();
        Ok(Body::Rows { rows, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at, member};
    use crate::recovered::Recovered;
    use types::commits::{encode_timestamp, flush_key, newest_flush_key};
    use types::{Finding, Mutation, Position, Term};
    use wire::Entry;
    use wire::entry::Kind;

    /// A log of three entries that are committed; one of them may be of a load that is not installed.
    fn data(identity: Identity, pending: Option<Position>) -> Data {
        let mut engine = FakeEngine::new();
        engine.pending = pending;
        let mut data = Data::recover(identity, Box::new(engine), &Recovered::nothing(), false);
        for _ in 0..3 {
            let entry = Entry::encode(data.next_header(Term(1), Kind::Noop, 0), &[]);
            assert!(data.append(entry, false, &mut Vec::new()).is_ok());
        }
        data.marks.commit(Lsn(3), Lsn(3));
        data
    }

    #[test]
    fn pr365_what_the_primary_alone_has_on_its_disk_is_not_secured_and_without_the_rule_it_is() {
        let secured = |rules: Rules| {
            let identity = Identity { me: member(), id: PartitionId(1), rules };
            let engine = Box::new(FakeEngine::new());
            let mut data = Data::recover(identity, engine, &Recovered::nothing(), false);
            let mark = Mutation {
                key: newest_flush_key(),
                value: Some(bytes::Bytes::copy_from_slice(&encode_timestamp(at(7)))),
            };
            let entry = Entry::encode(data.next_header(Term(1), Kind::Rows, 0), &[]);
            data.append_known(entry, &[mark], &mut Vec::new());
            data.log.synced(at(1));
            data.marks.commit(Lsn(1), Lsn(1));
            let mut readers = Readers::default();
            assert_eq!(data.marks.secured(), Lsn::ZERO, "another member has nothing yet");
            let answer = Reading::new(identity, &data, &mut readers, Micros::ZERO).flush_state((2, 2), 2);
            match answer.expect("no error").body {
                Body::Commit(CommitAnswer::State(state)) => state.secured,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(secured(Rules::ALL), Position::ZERO);
        let mutant = Rules::without(Finding::Pr365).expect("this build has mutants");
        assert_eq!(secured(mutant), at(7));
    }

    #[test]
    fn pr468_a_flush_that_is_not_committed_here_says_what_lies_before_it() {
        let identity = Identity { me: member(), id: PartitionId(1), rules: Rules::ALL };
        let engine = Box::new(FakeEngine::new());
        let mut data = Data::recover(identity, engine, &Recovered::nothing(), false);
        for (commit, previous) in [(3, 0), (10, 3)] {
            let stored = |key, commit: u64| Mutation {
                key,
                value: Some(bytes::Bytes::copy_from_slice(&encode_timestamp(at(commit)))),
            };
            let marks = [stored(flush_key(at(commit)), previous), stored(newest_flush_key(), commit)];
            let entry = Entry::encode(data.next_header(Term(1), Kind::Rows, 0), &[]);
            data.append_known(entry, &marks, &mut Vec::new());
        }
        data.marks.commit(Lsn(1), Lsn(2));
        let found = |after: u64, leading: bool| {
            let mut readers = Readers::default();
            let mut reading = Reading::new(identity, &data, &mut readers, Micros::ZERO);
            let snapshot = ReadSnapshot::Commit { at: at(9), after: at(after) };
            let found = reading.position_of(snapshot, leading, false).expect("no error");
            found.map(|(_, lsn)| lsn)
        };
        assert_eq!((found(9, false), found(9, true)), (Ok(Lsn(1)), Ok(Lsn(1))));
        assert_eq!(found(11, false), Err(Status::Behind(at(3))), "that one may be told between");
    }

    #[test]
    fn pr114_what_was_before_a_load_that_is_being_installed_is_not_fresh() {
        let identity = Identity { me: member(), id: PartitionId(1), rules: Rules::ALL };
        let now = Micros::from_millis(1_000);
        let refused = |pending, max_lag_ms, min_lsn| {
            let (data, mut readers) = (data(identity, pending), Readers::default());
            let reading = Reading::new(identity, &data, &mut readers, now);
            reading.too_stale(now, max_lag_ms, min_lsn).is_some()
        };
        assert!(!refused(None, 400, Lsn(3)));
        assert!(!refused(Some(at(4)), 400, Lsn(3)), "the load is not committed yet");
        assert!(refused(Some(at(2)), 400, Lsn::ZERO));
        assert!(refused(Some(at(2)), u64::MAX, Lsn(2)), "below the LSN that was asked for");
        assert!(!refused(Some(at(2)), u64::MAX, Lsn(1)), "however old it is");
    }
}
