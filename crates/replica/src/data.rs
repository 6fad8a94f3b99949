//! What a replica has: its log, the engine that executes it, and how far both count. It knows nothing of what
//! the replica is; that says who calls what here.
//!
//! | file | what |
//! | --- | --- |
//! | `execute` | what an entry does to an engine |
//! | `aside` | a divergent tail that reaches below what is in memory |

pub(crate) mod aside;
pub(crate) mod execute;

use crate::context::{Ctx, Identity};
use crate::damage::Fault;
use crate::data::aside::Aside;
use crate::data::execute::{execute, own_large, understood};
use crate::features::bulk::{BulkLoads, readable, staged_load};
use crate::history::History;
use crate::log_state::LogState;
use crate::marks::Marks;
use crate::output::{Output, ReadFor};
use crate::recovered::Recovered;
use crate::session::{self, Sessions};
use crate::unfit::Unfit;
use bytes::Bytes;
use types::engine::Row;
use types::{Engine, EngineError, Epoch, LogKind, Lsn, Micros, Mutation, Position, Rules, Term, Watermarks};
use wire::entry::Kind;
use wire::log::Record;
use wire::peer::{Copy, LogReport};
use wire::{CallMark, Effects, Entry, Header, Request};

/// A partition whose log could be shorter has it cut at least this often.
const TRIM_EVERY: Micros = Micros::from_millis(5_000);
/// Entries executed in one go, in bytes: a few milliseconds.
const SLICE: usize = 512 << 10;

/// The log, the engine and the marks of one replica, and the loads that entries of the log name.
///
/// Invariants (`validate`): the order of all positions (`DESIGN.md`).
pub(crate) struct Data {
    identity: Identity,
    pub engine: Box<dyn Engine>,
    pub log: LogState,
    pub marks: Marks,
    pub loads: BulkLoads,
    /// The last ones that were looked at or written (PR-511).
    pub sessions: Sessions,
    /// Entries that the engine is to execute are being read back.
    reads: bool,
    /// A divergent tail is being set aside, or was, as long as nothing takes its place.
    aside: Option<Box<Aside>>,
    /// Whoever leads did not count in the term before: what all had that counted there may be gone (PR-393).
    forced: bool,
    /// The last term of which that is so: of older entries all may have been secured, and be gone (PR-418).
    forced_term: Term,
    /// Bytes of the entries that came since the start.
    written: u64,
}

/// What else bounds what may be forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// All that is in memory stays.
    pub memory: bool,
    /// The engine follows its log later.
    pub later: bool,
    /// Somebody who catches up needs the log from here on.
    pub held: Lsn,
    /// Room is short, and another one leads: whoever lacks what is in the own files is given files (PR-281).
    pub short: bool,
}

impl Data {
    /// What a start found, beside `engine`. `damaged`: log or files cannot be used.
    pub fn recover(identity: Identity, engine: Box<dyn Engine>, found: &Recovered, damaged: bool) -> Data {
        let persisted = engine.persisted();
        let keeps_tail = found.keeps_tail(persisted, damaged);
        let committed = if keeps_tail { found.secured.min(found.end.lsn) } else { persisted.lsn };
        // What is said of a log holds for that log, not for files that may be of another one.
        let files = if keeps_tail { Lsn::ZERO } else { persisted.lsn };
        Data {
            identity,
            log: LogState::recover(found, persisted, damaged),
            marks: Marks::new(committed, found.secured.max(files)),
            loads: BulkLoads::default(),
            sessions: Sessions::default(),
            reads: false,
            aside: None,
            forced: false,
            forced_term: Term::default(),
            written: 0,
            engine,
        }
    }

    /// The rules that it keeps.
    pub fn rules(&self) -> Rules {
        self.identity.rules
    }

    /// What is told of it to a primary of this configuration, or to one that is about to go.
    pub fn report(&self, epoch: Epoch) -> LogReport {
        LogReport {
            partition: self.identity.id,
            epoch,
            from: self.identity.me,
            log: self.log.summary(),
            marks: self.watermarks(),
            committed: self.marks.committed(),
            torn: self.log.is_torn(),
            code: 0,
        }
    }

    /// Its watermarks.
    pub fn watermarks(&self) -> Watermarks {
        Watermarks {
            received: self.log.end().lsn,
            durable: self.log.durable(),
            applied: self.engine.applied().lsn,
            persisted: self.persisted(),
        }
    }

    /// What a restart does not need the log for. A memory log forgets everything anyway, so nothing is kept
    /// for it.
    fn persisted(&self) -> Lsn {
        match self.log.kind() {
            LogKind::Disk => self.engine.persisted().lsn,
            LogKind::Memory => self.engine.published().lsn,
        }
    }

    /// True if the engine's files can be those of all replicas.
    pub fn ships_files(&self) -> bool {
        self.engine.ships_files() && self.log.kind() == LogKind::Disk
    }

    /// True if the log has entries that the engine has not executed.
    pub fn lags(&self) -> bool {
        self.engine.applied().lsn < self.log.end().lsn
    }

    /// Bytes of all entries that came since the start.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What reads may see of what is committed.
    pub fn readable(&self) -> Lsn {
        readable(self.engine.as_ref(), self.marks.committed())
    }

    /// True if the state that a reply called so is a part of this log (first committer wins): no term since
    /// then began below it.
    pub fn on_history(&self, snapshot: Position) -> bool {
        let rules = self.identity.rules;
        !rules.snapshots_lie_on_the_history() || self.log.history().holds(snapshot, self.log.end().lsn)
    }

    /// A log that begins behind files, or rows, of which the sender did not remember the checksum any more
    /// begins with that which its first entry names: no log takes an entry that does not continue it. To be
    /// followed by [`LogState::chains`].
    pub fn name_base(&self, entry: &Entry, out: &mut Vec<Output>) {
        if let Some(crc) = self.log.base_named_by(entry) {
            let (partition, at) = (self.identity.id, self.log.end());
            out.push(Output::Log(Record::Base { partition, at, crc }));
        }
    }

    /// Puts an entry at the end of log and engine; of the log alone where the engine is to follow `later`.
    /// `holds`: of how many bytes in memory it is a part, if that is known. True if a term begins.
    pub fn take(&mut self, entry: Entry, later: bool, holds: Option<usize>) -> Result<bool, Unfit> {
        let rules = self.identity.rules;
        if later {
            understood(&entry)?;
            if entry.header().kind == Kind::Bulk {
                staged_load(self.engine.as_ref(), rules, &entry)?;
            }
        } else {
            execute(self.engine.as_mut(), &mut self.sessions, rules, &entry, holds)?;
        }
        self.loads.note(&entry);
        self.aside = None;
        Ok(self.log.append(entry))
    }

    /// Takes an entry in and has it logged.
    pub fn append(&mut self, entry: Entry, later: bool, out: &mut Vec<Output>) -> Result<(), Unfit> {
        self.append_of(entry, later, None, out)
    }

    /// The same of an entry that is a part of so many bytes in memory, if that is known.
    pub fn append_of(
        &mut self,
        entry: Entry,
        later: bool,
        holds: Option<usize>,
        out: &mut Vec<Output>,
    ) -> Result<(), Unfit> {
        let begins = self.take(entry.clone(), later, holds)?;
        self.appended(entry, begins, out);
        Ok(())
    }

    /// Appends an entry whose effect is known already: the leader's path, which decodes nothing.
    pub fn append_known(&mut self, entry: Entry, mutations: &[Mutation], out: &mut Vec<Output>) {
        let before = self.engine.applied();
        self.engine.execute(entry.at(), mutations);
        self.sessions.executed(before, entry.at(), mutations);
        self.aside = None;
        let begins = self.log.append(entry.clone());
        self.appended(entry, begins, out);
    }

    fn appended(&mut self, entry: Entry, begins: bool, out: &mut Vec<Output>) {
        self.written += entry.bytes().len() as u64;
        if begins {
            out.push(self.log.note_history(self.identity.id));
        }
        out.push(Output::Log(Record::Entry(entry)));
    }

    /// The header of the next entry, of this term.
    pub fn next_header(&self, term: Term, kind: Kind, wall_ms: u64) -> Header {
        let at = Position::new(term, self.log.end().lsn.next());
        let mut header = Header::new(kind, self.identity.id, at, self.log.end_crc());
        header.wall_ms = wall_ms;
        header
    }

    /// Makes the entry of a write, or of a `call` that is shipped as such, logs and executes it. Log, engine
    /// and members share the bytes of the entry, and nothing of what was asked stays in memory.
    pub fn log_effects(
        &mut self,
        mut header: Header,
        request: &Request,
        (mut effects, call): (Effects, Option<&CallMark>),
        out: &mut Vec<Output>,
    ) -> Result<Position, EngineError> {
        session::fill(&mut header, request);
        header.unit = request.op.job().map_or(0, |job| job.0);
        let at = header.at;
        let entry = match call {
            Some(mark) => Entry::encode_call(header, mark, &effects.encode()),
            None => Entry::encode_effects(header, &effects),
        };
        if let Some(encoded) = entry.effects() {
            effects.share(&encoded);
        }
        let (engine, sessions) = (self.engine.as_ref(), &mut self.sessions);
        let mut mutations = session::mutations_of(engine, sessions, &entry, effects)?;
        own_large(&mut mutations, Some(entry.bytes().len()));
        self.append_known(entry, &mutations, out);
        Ok(at)
    }

    /// The next slice of what the engine is to execute, if it is in memory. Else it is read back.
    pub fn next_slice(&mut self, out: &mut Vec<Output>) -> Option<Vec<Entry>> {
        let next = self.engine.applied().lsn.next();
        if next > self.log.tail().base().lsn {
            return Some(self.log.tail().run(next, SLICE).cloned().collect());
        }
        self.reads = true;
        let (partition, purpose) = (self.identity.id, ReadFor::Replay { from: next });
        out.push(Output::ReadLog { partition, from: next, max_bytes: SLICE, purpose });
        None
    }

    /// True while a slice is read back.
    pub fn reads_slice(&self) -> bool {
        self.reads
    }

    /// A slice was read back, or could not be. None: it is to be asked for again, or of no use any more.
    /// `lags`: the engine is still to follow this log.
    pub fn slice_read(
        &mut self,
        lags: bool,
        from: Lsn,
        entries: Result<Vec<Entry>, String>,
    ) -> Option<Result<Vec<Entry>, Fault>> {
        self.reads = false;
        let (next, base) = (self.engine.applied().lsn.next(), self.log.tail().base().lsn);
        // Files may have been installed meanwhile, or another log begun: then it is asked again.
        if !lags || next != from || next > base {
            return None;
        }
        Some(match entries {
            // What is in memory too may have been cut and written anew since it was read.
            Ok(mut entries) if !entries.is_empty() => {
                entries.retain(|entry| entry.lsn() <= base);
                Ok(entries)
            }
            Ok(_) => Err(Fault::Log(format!("R10: the log has nothing from {next} on"))),
            Err(reason) => Err(Fault::Log(format!("R10: the log cannot be read from {next} on: {reason}"))),
        })
    }

    /// Executes a slice, as far as the engine can look at its state now.
    pub fn execute_slice(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        for entry in entries {
            let applied = self.engine.applied();
            if entry.lsn() != applied.lsn.next() {
                let at = entry.at();
                return Err(Fault::Log(format!("R3: {at} does not follow {applied} in the log")));
            }
            let Data { engine, sessions, .. } = self;
            match execute(engine.as_mut(), sessions, self.identity.rules, entry, None) {
                Ok(()) => {}
                // The next slice begins with it.
                Err(Unfit::Later(_)) => return Ok(()),
                Err(unfit) => return Err(unfit.into()),
            }
        }
        Ok(())
    }

    /// Commits what was `reached` by the policy, once this term's first entry, at `marker`, is covered
    /// (PR-12); not past a load that is not in the files here (PR-39). True if a checkpoint is to be begun
    /// for that.
    pub fn commit(&mut self, marker: Option<Lsn>, reached: Lsn, times: (Micros, Micros)) -> bool {
        let (point, flushes) = self.loads.bound(self.engine.as_mut(), &self.marks, marker, reached, times);
        // Entries of older terms commit only with this term's marker (PR-12).
        let first = self.identity.rules.markers_commit_first();
        let covered = marker.is_some_and(|marker| reached >= marker || !first);
        if covered && point > self.marks.committed() {
            self.marks.commit(point, self.log.end().lsn);
        }
        flushes
    }

    /// Moves what is committed and secured from the overlay into the engine (R7, PR-41). `reads`: the lowest
    /// position that is read.
    pub fn publish(&mut self, reads: Option<Lsn>) -> Result<(), EngineError> {
        let secured = if self.identity.rules.engines_publish_what_is_secured() {
            self.marks.secured()
        } else {
            self.marks.committed()
        };
        let upto = self.marks.committed().min(secured).min(self.engine.applied().lsn);
        // A load stops it, and what is above it must stay readable until then.
        let upto = self.engine.pending_load().map_or(upto, |at| upto.min(at.lsn.prev()));
        if upto <= self.engine.published().lsn {
            return Ok(());
        }
        // Without an open scan old versions need not be kept at all.
        self.engine.raise_read_floor(reads.map_or(upto, |lowest| lowest.min(upto)));
        self.engine.publish(upto)?;
        let published = self.engine.published().lsn;
        assert!(published <= upto, "R7: {published} is published, and {upto} is the most that may be");
        Ok(())
    }

    /// Reads look no lower than at `reads`, the lowest position that is read: what only those below it need
    /// may go, also where nothing is published.
    pub fn raise_read_floor(&mut self, reads: Option<Lsn>) {
        let published = self.engine.published().lsn;
        self.engine.raise_read_floor(reads.map_or(published, |lowest| lowest.min(published)));
    }

    /// A member is to join: what nobody can have published yet is not secured before it has it too.
    pub fn secure_with_joiner(&mut self) {
        // A load that may be installed counts as published, above `committed`.
        if self.engine.pending_load().is_none() {
            self.marks.secure_with_joiner(self.engine.published().lsn);
        }
    }

    /// Forgets what nobody needs: in memory above a budget, in the log at or below every bound (R8).
    pub fn forget(&mut self, ctx: &mut Ctx, kept: Kept) {
        // What is to be set aside stays until it is.
        let diverges = self.diverges();
        if !kept.memory && !diverges {
            let keep = ctx.settings.tail_bytes;
            // What the engine is to follow later is read back from the disk then.
            let upto = match kept.later {
                true => self.marks.surely_kept(self.log.durable()),
                false => self.engine.published().lsn,
            };
            let upto = upto.prev();
            self.log.trim_memory(upto.min(self.marks.log_floor().prev()), keep);
            self.log.trim_memory(upto, keep * 4);
        }
        let publishable = self.marks.publishable();
        if self.log.kind() == LogKind::Disk && self.log.notes_secured(publishable) {
            ctx.out.push(LogState::note_secured(self.identity.id, publishable));
        }
        let short = kept.short && self.identity.rules.full_logs_wait_for_nobody();
        let floor = match short && self.log.kind() == LogKind::Disk {
            true => Lsn::MAX,
            false => self.marks.log_floor().min(kept.held),
        };
        let bound = match self.identity.rules.log_is_kept_for_members() {
            true => floor.min(self.persisted()),
            false => self.marks.committed(),
        };
        // A full log takes a truncation ahead of what waits for room only if it names what the log has. One
        // that catches up may have more in its files (F20).
        let written = if self.log.kind() == LogKind::Disk { self.log.durable() } else { Lsn::MAX };
        let bound = bound.min(written);
        // A partition with little to do must not hold back the log that it shares with others for ever (F20).
        let base = self.log.base().lsn;
        let idle = ctx.now.mono.since(self.log.trimmed_at()) >= TRIM_EVERY && bound > base;
        // Each checkpoint makes room at once, which a full log waits for.
        let checkpointed = bound > base && bound == self.engine.persisted().lsn.min(written);
        if !diverges && (bound.0 > base.0 + 256 || idle || checkpointed) {
            let Some((position, _)) = self.log.position_at(bound) else { return };
            self.log.trim(position, ctx.now.mono);
            ctx.out.push(Output::Log(Record::Trim { partition: self.identity.id, below: bound.next() }));
        }
    }

    /// Drops every entry above `to` (F02). False if that would take back what is published: then only a copy
    /// helps.
    pub fn truncate(&mut self, to: Lsn, out: &mut Vec<Output>) -> bool {
        if to >= self.log.end().lsn {
            return true;
        }
        if to < self.engine.published().lsn || to < self.log.tail().base().lsn {
            return false;
        }
        let partition = self.identity.id;
        let (position, _) = self.log.tail().at(to).expect("at or above the base");
        let dropped = self.log.truncate(to);
        self.aside = None;
        self.loads.forget_above(to);
        self.set_aside(to, dropped, out);
        out.push(Output::Log(Record::Truncate { partition, to: position }));
        out.push(self.log.note_history(partition));
        if self.engine.applied().lsn > to {
            self.engine.discard_above(position);
            self.sessions.forget();
        }
        self.marks.truncate(to);
        true
    }

    /// Makes log and positions begin at `at`, which the engine holds.
    pub fn rebase(&mut self, at: Position, crc: u32, history: History, out: &mut Vec<Output>) {
        let partition = self.identity.id;
        self.loads.forget_above(Lsn::ZERO);
        // The log says when it begins there: until then a start finds another one beside the files (PR-35).
        let durable = match self.log.kind() {
            LogKind::Disk => self.log.durable().min(at.lsn),
            LogKind::Memory => at.lsn,
        };
        self.log.begin_at(at, crc, history, durable);
        self.aside = None;
        self.sessions.forget();
        self.marks.begin_at(at.lsn);
        out.push(Output::Log(Record::Base { partition, at, crc }));
        out.extend(self.log.settle_torn(partition));
        out.push(self.log.note_history(partition));
        out.push(LogState::note_secured(partition, at.lsn));
    }

    /// Takes in a piece of a state that is copied row by row. With the last one the log begins where that
    /// state is.
    pub fn install_piece(&mut self, copy: &Copy, out: &mut Vec<Output>) -> Result<(), String> {
        let row = |(key, lsn, value): &(Bytes, Lsn, Bytes)| Row {
            key: key.clone(),
            lsn: *lsn,
            value: value.clone(),
        };
        let rows: Vec<Row> = copy.rows.iter().map(row).collect();
        self.engine.install(&rows).map_err(|error| error.to_string())?;
        if copy.last {
            self.engine.finish_install().map_err(|error| error.to_string())?;
            let mut history = History::new(copy.history.clone())?;
            history.truncate(copy.at.lsn);
            self.rebase(copy.at, copy.at_crc, history, out);
        }
        Ok(())
    }

    /// Files that came so far are given up.
    pub fn stop_receiving(&mut self) -> Result<(), EngineError> {
        self.engine.shipping_mut().map_or(Ok(()), |files| files.stop_receiving())
    }

    /// Gives up everything; a copy follows.
    pub fn clear(&mut self, out: &mut Vec<Output>) -> Result<(), EngineError> {
        self.engine.reset(Position::ZERO)?;
        self.engine.finish_install()?;
        self.rebase(Position::ZERO, 0, History::default(), out);
        Ok(())
    }

    /// The engine is gone: `empty` stands in for it, or will be filled by a copy. Gives the one that was
    /// there.
    pub fn replace_engine(&mut self, empty: Box<dyn Engine>) -> Box<dyn Engine> {
        let id = self.identity.id;
        assert!(empty.applied().lsn == Lsn::ZERO, "F15: {id}: what takes an engine's place is empty");
        self.loads.forget_above(Lsn::ZERO);
        self.sessions.forget();
        self.reads = false;
        std::mem::replace(&mut self.engine, empty)
    }

    /// The order of all positions. `lags`: the engine follows its log later; `may_lag`: and may.
    pub fn validate(&self, lags: bool, may_lag: bool) -> Result<(), String> {
        let (published, applied, end) = (self.engine.published(), self.engine.applied(), self.log.end());
        let ordered = |what: &str, low: Lsn, high: Lsn| {
            if low <= high { Ok(()) } else { Err(format!("{what}: {low} > {high}")) }
        };
        self.log.validate()?;
        self.marks.validate(end.lsn, published.lsn, self.engine.persisted().lsn)?;
        self.loads.validate(end.lsn)?;
        ordered("published <= applied", published.lsn, applied.lsn)?;
        match lags {
            true => ordered("the log holds what is not applied", self.log.base().lsn, applied.lsn)?,
            false => ordered(
                "the tail holds what is not published",
                self.log.tail().base().lsn,
                published.lsn.max(self.log.base().lsn).max(self.marks.surely_kept(self.log.durable())),
            )?,
        }
        if applied != end && !may_lag {
            return Err(format!("applied {applied} is not the log's end {end}"));
        }
        ordered("applied <= received", applied.lsn, end.lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, member};
    use crate::lease::LeaseManager;
    use crate::settings::Settings;
    use std::collections::BTreeSet;
    use types::{Finding, Now, PartitionId};

    fn data() -> Data {
        let identity = Identity { me: member(), id: PartitionId(1), rules: Rules::ALL };
        Data::recover(identity, Box::new(FakeEngine::new()), &Recovered::nothing(), false)
    }

    /// Appends an entry without an effect.
    fn append(data: &mut Data, later: bool, out: &mut Vec<Output>) {
        let header = data.next_header(Term(1), Kind::Noop, 0);
        assert!(data.append(Entry::encode(header, &[]), later, out).is_ok());
    }

    #[test]
    fn r7_what_is_committed_and_secured_is_published_and_stays() {
        let (mut data, mut out) = (data(), Vec::new());
        (0..4).for_each(|_| append(&mut data, false, &mut out));
        assert!(matches!(out[0], Output::Log(Record::Custom { .. })), "a term begins");
        assert_eq!(out.len(), 5);
        data.marks.commit(Lsn(3), Lsn(4));
        data.marks.secure(Lsn(2));
        assert!(data.publish(None).is_ok());
        assert_eq!(data.engine.published().lsn, Lsn(2));
        assert_eq!(data.validate(false, false), Ok(()));
        assert!(!data.truncate(Lsn(1), &mut out), "it is published");
        assert!(data.truncate(Lsn(3), &mut out));
        assert_eq!((data.log.end().lsn, data.engine.applied().lsn), (Lsn(3), Lsn(3)));
        assert_eq!(data.validate(false, false), Ok(()));
    }

    #[test]
    fn pr281_a_full_log_is_kept_for_nobody_and_without_the_rule_it_is() {
        let mutant = Rules::without(Finding::Pr281).expect("this build has mutants");
        for (rules, begins_behind) in [(Rules::ALL, Lsn(3)), (mutant, Lsn::ZERO)] {
            let identity = Identity { me: member(), id: PartitionId(1), rules };
            let found = Recovered::nothing();
            let (mut data, mut out) =
                (Data::recover(identity, Box::new(FakeEngine::new()), &found, false), Vec::new());
            (0..3).for_each(|_| append(&mut data, false, &mut out));
            data.log.synced(data.log.end());
            data.marks.commit(Lsn(3), Lsn(3));
            data.marks.secure(Lsn(3));
            assert!(data.publish(None).is_ok() && data.engine.checkpoint().is_ok());
            let settings = Settings::default();
            let mut leases = LeaseManager::new(member(), &settings, Micros::ZERO);
            let now = Now { mono: Micros::ZERO, wall_ms: 0 };
            let (leases, calling) = (&mut leases, &BTreeSet::new());
            let mut ctx = Ctx { now, leases, out: &mut out, settings: &settings, calling };
            data.forget(&mut ctx, Kept { memory: false, later: false, held: Lsn::MAX, short: true });
            assert_eq!(data.log.base().lsn, begins_behind);
        }
    }

    #[test]
    fn an_engine_that_follows_later_executes_the_log_in_order() {
        let (mut data, mut out) = (data(), Vec::new());
        (0..3).for_each(|_| append(&mut data, true, &mut out));
        assert!(data.lags());
        assert_eq!(data.validate(true, true), Ok(()));
        assert!(data.validate(false, false).is_err(), "a primary's engine has all of its log");
        let slice = data.next_slice(&mut out).expect("it is in memory");
        assert_eq!(data.execute_slice(&slice[..2]), Ok(()));
        assert!(matches!(data.execute_slice(&slice[..1]), Err(Fault::Log(_))), "R3");
        assert_eq!(data.execute_slice(&slice[2..]), Ok(()));
        assert!(!data.lags());
    }
}
