//! What all roles share: the log's end, tentative execution, publication, cuts and truncation.

use crate::history::History;
use crate::output::{LogOp, Note, Output};
use crate::replica::{Ctx, Replica, Role};
use crate::session::{Kept, Session, session_key};
use crate::tail::Tail;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeSet;
use types::config::TailReport;
use types::engine::mutation_fault;
use types::{
    Durable, EngineError, LogKind, Lsn, Micros, Mutation, Position, ReadAt, SessionId, Term, Watermarks,
};
use wire::entry::Kind;
use wire::peer::LogSummary;
use wire::{Effects, Entry, Outcome};

/// A partition whose log could be shorter has it cut at least this often.
const TRIM_EVERY: Micros = Micros::from_millis(5_000);

/// A replica that was damaged while it caught up is given a copy no sooner.
const FROM_SCRATCH: Micros = Micros::from_millis(1_000);

/// A damaged replica remembers so many bytes of its log at least, and whatever was not everywhere.
const REMEMBERED: usize = 64 << 20;

/// Why an entry was not taken in. Nothing has changed.
pub(crate) enum Unfit {
    /// Its content: no engine could store it. Whoever sent it made it so.
    Entry(String),
    /// The files that it names: they are not here.
    Unstaged(String),
    /// The engine could not look at its state just now: the same entry may be taken in later.
    Later(String),
    /// This replica: it cannot go on.
    Here(String),
}

impl Unfit {
    /// As a sentence, where all mean the same: the entry is this replica's own.
    pub fn reason(self) -> String {
        match self {
            Unfit::Entry(reason) | Unfit::Unstaged(reason) => reason,
            Unfit::Later(reason) | Unfit::Here(reason) => reason,
        }
    }
}

impl From<EngineError> for Unfit {
    fn from(error: EngineError) -> Unfit {
        match error {
            EngineError::Later(_) => Unfit::Later(error.to_string()),
            _ => Unfit::Here(error.to_string()),
        }
    }
}

fn not_understood(entry: &Entry) -> Unfit {
    let (kind, at) = (entry.header().kind, entry.at());
    Unfit::Here(format!("an entry of kind {kind:?} at {at} is not understood by this version"))
}

/// Refuses an entry that no engine of this version could execute.
fn understood(entry: &Entry) -> Result<(), Unfit> {
    match entry.header().kind {
        Kind::Bulk => Ok(()),
        Kind::Rows | Kind::SessionOpen | Kind::SessionExpire | Kind::Schema => Ok(()),
        Kind::Policy | Kind::Configuration | Kind::Noop => Ok(()),
        _ => Err(not_understood(entry)),
    }
}

impl Replica {
    /// The next LSN that [`Replica::replay`] takes, if the log on the disk has more of use here.
    pub fn to_replay(&self) -> Option<Lsn> {
        let next = self.tail.end().lsn.max(self.log_base.lsn).next();
        (next <= self.replays_to).then_some(next)
    }

    /// Executes entries that are already in the log on disk, at the start of a node. A damaged replica only remembers them:
    /// what the primary never had is set aside before a copy comes (R9).
    pub fn replay(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            let (end, at) = (self.tail.end(), entry.at());
            if at.lsn <= end.lsn || self.to_replay().is_none() {
                continue;
            }
            if at.lsn != end.lsn.next() || at.term < end.term || !self.chains(&entry) {
                self.replays_to = Lsn::ZERO;
                if !self.is_damaged() {
                    self.role = Role::Damaged(format!("R3: {at} does not follow {end} in the log"));
                }
                continue;
            }
            if !self.is_damaged()
                && let Err(unfit) = self.take(entry.clone())
            {
                self.role = Role::Damaged(unfit.reason());
            }
            if self.is_damaged() {
                self.tail.push(entry);
                self.tail.trim(self.secured, REMEMBERED);
            }
            self.history.append(at);
        }
        let publish = self.secured.min(self.tail.end().lsn);
        if !self.is_damaged() {
            self.committed = self.committed.max(publish);
            if let Err(error) = self.engine.publish(publish) {
                self.role = Role::Damaged(error.to_string());
            }
        }
    }

    /// True if the checksum before this entry is that of the log's end. Where that was not known, the entry names it.
    pub(crate) fn chains(&mut self, entry: &Entry) -> bool {
        let (end, prev_crc) = (self.tail.end(), entry.header().prev_crc);
        if self.tail.end_crc() == 0 && self.tail.bytes() == 0 && end.lsn > Lsn::ZERO {
            self.tail = Tail::new(end, prev_crc);
        }
        prev_crc == self.tail.end_crc()
    }

    /// A log that begins behind files, or rows, of which the sender did not remember the checksum any more begins with that which
    /// its first entry names: no log takes an entry that does not continue it. To be followed by [`Replica::chains`].
    pub(crate) fn name_base(&self, ctx: &mut Ctx, entry: &Entry) {
        let (end, crc) = (self.tail.end(), entry.header().prev_crc);
        let unknown = self.tail.end_crc() == 0 && self.tail.bytes() == 0 && end.lsn > Lsn::ZERO;
        if unknown && crc != 0 && self.log_base == end {
            ctx.out.push(Output::Log(LogOp::Base { partition: self.id, at: end, crc }));
        }
    }

    /// Puts an entry at the end of tail and engine; of the tail alone where the engine is to follow later.
    fn take(&mut self, entry: Entry) -> Result<(), Unfit> {
        if self.lags() || self.is_cold() {
            understood(&entry)?;
            if entry.header().kind == Kind::Bulk {
                self.staged_load(&entry)?;
            }
        } else {
            self.execute(&entry)?;
        }
        self.note_load(&entry);
        self.tail.push(entry);
        Ok(())
    }

    /// Executes the entry that follows what the engine has.
    pub(crate) fn execute(&mut self, entry: &Entry) -> Result<(), Unfit> {
        let mutations = self.mutations(entry)?;
        match entry.header().kind {
            Kind::Bulk => {
                let load = self.staged_load(entry)?.load;
                self.engine.execute_load(entry.at(), load, &mutations);
            }
            _ => self.engine.execute(entry.at(), &mutations),
        }
        Ok(())
    }

    /// Takes an entry in and has it logged.
    pub(crate) fn append(&mut self, ctx: &mut Ctx, entry: Entry) -> Result<(), Unfit> {
        self.take(entry.clone())?;
        self.aside = None;
        if self.history.append(entry.at()) {
            self.note(ctx, Note::History, self.history.encode());
        }
        ctx.out.push(Output::Log(LogOp::Entry(entry)));
        Ok(())
    }

    /// Appends an entry whose effect is known already: the leader's path, which decodes nothing.
    pub(crate) fn append_known(&mut self, ctx: &mut Ctx, entry: Entry, mutations: &[Mutation]) {
        if self.history.append(entry.at()) {
            self.note(ctx, Note::History, self.history.encode());
        }
        self.engine.execute(entry.at(), mutations);
        self.aside = None;
        self.tail.push(entry.clone());
        ctx.out.push(Output::Log(LogOp::Entry(entry)));
    }

    fn note(&self, ctx: &mut Ctx, note: Note, value: Bytes) {
        ctx.out.push(Output::Log(LogOp::Note { partition: self.id, note, value }));
    }

    /// What an entry changes: the same on every replica, since it depends on the entry and the state below it alone.
    fn mutations(&self, entry: &Entry) -> Result<Vec<Mutation>, Unfit> {
        match entry.header().kind {
            Kind::Rows => {
                let effects = Effects::decode(entry.payload()).map_err(Unfit::Entry)?;
                if let Some(fault) = effects.mutations.iter().find_map(mutation_fault) {
                    return Err(Unfit::Entry(format!("PR-72: the entry at {}: {fault}", entry.at())));
                }
                let session = self.session_mutation(entry, &effects)?;
                let mut mutations = effects.mutations;
                mutations.extend(session);
                Ok(mutations)
            }
            Kind::Bulk => {
                let effects = self.staged_load(entry)?.effects;
                let session = self.session_mutation(entry, &effects)?;
                let mut mutations = effects.mutations;
                mutations.extend(session);
                Ok(mutations)
            }
            Kind::SessionOpen => {
                let session = Session { touched_ms: entry.header().wall_ms, ..Session::default() };
                let key = session_key(SessionId(entry.at()));
                Ok(vec![Mutation { key, value: Some(session.encode()) }])
            }
            Kind::SessionExpire => decode_expired(entry.payload()).map_err(Unfit::Entry),
            Kind::Schema => crate::features::index::decode(entry).map_err(Unfit::Entry),
            Kind::Policy | Kind::Configuration | Kind::Noop => Ok(Vec::new()),
            _ => Err(not_understood(entry)),
        }
    }

    /// The session's row after this entry.
    pub(crate) fn session_mutation(
        &self,
        entry: &Entry,
        effects: &Effects,
    ) -> Result<Option<Mutation>, EngineError> {
        let header = entry.header();
        if !header.session.is_some() {
            return Ok(None);
        }
        let key = session_key(header.session);
        let mut session = self.session(header.session)?.unwrap_or_default();
        let outcome = Outcome::from_number(effects.outcome).ok_or_else(|| {
            let (at, number) = (entry.at(), effects.outcome);
            EngineError::Corrupt(format!("the entry at {at} has the unknown outcome {number}"))
        })?;
        let kept = Kept {
            seq: header.seq,
            hash: effects.request_hash,
            outcome,
            affected: effects.affected,
            at: entry.at(),
        };
        session.apply(kept, effects.confirmed, header.wall_ms);
        Ok(Some(Mutation { key, value: Some(session.encode()) }))
    }

    /// A session as executed so far.
    pub(crate) fn session(&self, id: SessionId) -> Result<Option<Session>, EngineError> {
        let row = self.engine.get(&session_key(id), ReadAt::Applied)?;
        row.map(|(_, value)| Session::decode(&value).map_err(EngineError::Corrupt)).transpose()
    }

    /// The position before the first entry that its log still has.
    pub fn log_base(&self) -> Position {
        self.log_base
    }

    /// This replica's watermarks.
    pub fn marks(&self) -> Watermarks {
        Watermarks {
            received: self.tail.end().lsn,
            durable: self.durable,
            applied: self.engine.applied().lsn,
            persisted: self.persisted(),
        }
    }

    /// What a restart does not need the log for. A memory log forgets everything anyway, so nothing is kept for it.
    fn persisted(&self) -> Lsn {
        match self.log_kind() {
            LogKind::Disk => self.engine.persisted().lsn,
            LogKind::Memory => self.engine.published().lsn,
        }
    }

    pub(crate) fn log_kind(&self) -> LogKind {
        self.record.as_ref().map_or(LogKind::Disk, |record| record.policy.log)
    }

    /// The log in few words.
    pub(crate) fn summary(&self) -> LogSummary {
        LogSummary { base: self.log_base, end: self.tail.end(), history: self.history.starts().to_vec() }
    }

    /// What is in the log at `lsn`: its position, and its checksum if it is in memory.
    pub(crate) fn position_at(&self, lsn: Lsn) -> Option<(Position, Option<u32>)> {
        if lsn == Lsn::ZERO {
            // Before every log, whatever was trimmed of it.
            return Some((Position::ZERO, None));
        }
        if let Some((position, crc)) = self.tail.at(lsn) {
            return Some((position, (crc != 0).then_some(crc)));
        }
        if lsn > self.tail.end().lsn {
            return None;
        }
        self.history.term_at(lsn).map(|epoch| (Position::new(epoch, lsn), None))
    }

    /// Storage made something durable. Tokens of entries that were cut meanwhile are ignored.
    pub(crate) fn on_synced(&mut self, token: Durable<Position>) {
        let at = token.get();
        let here = at.lsn <= self.tail.end().lsn && self.history.term_at(at.lsn) == Some(at.term);
        if here && self.log_kind() == LogKind::Disk {
            self.durable = self.durable.max(at.lsn);
        }
    }

    /// Moves what is committed and secured from the overlay into the engine (R7, PR-41).
    pub(crate) fn publish(&mut self, ctx: &mut Ctx) {
        let secured =
            if self.rules.engines_publish_what_is_secured() { self.secured } else { self.committed };
        let upto = self.committed.min(secured).min(self.engine.applied().lsn);
        // A load stops it, and what is above it must stay readable until then.
        let upto = self.engine.pending_load().map_or(upto, |at| upto.min(at.lsn.prev()));
        if upto <= self.engine.published().lsn || self.copying() {
            return;
        }
        // Without an open scan old versions need not be kept at all.
        let scanned = self.scans.keys().next().map_or(upto, |lsn| Lsn(*lsn));
        let tallied = self.aggregates.lowest().unwrap_or(upto);
        self.engine.raise_read_floor(upto.min(scanned).min(tallied));
        if let Err(error) = self.engine.publish(upto) {
            self.fail(ctx, error.to_string());
        }
    }

    /// What anybody may publish of this term's log. Nobody is told more, so that what is above it can wait for who joins.
    pub(crate) fn publishable(&self) -> Lsn {
        self.secured.min(self.committed)
    }

    /// A member is to join: what nobody can have published yet is not secured before it has it too.
    pub(crate) fn secure_with_joiner(&mut self) {
        // A load that may be installed counts as published, above `committed`.
        if self.engine.pending_load().is_none() {
            self.secured = self.publishable().max(self.engine.published().lsn);
        }
    }

    /// Up to where nothing of the log can be cut any more. A cold standby forgets it in memory, and may wait for a load when it publishes it.
    pub(crate) fn surely_kept(&self) -> Lsn {
        self.committed.min(self.secured).min(self.durable)
    }

    /// Forgets what nobody needs: in memory above a budget, in the log at or below every bound (R8).
    pub(crate) fn forget(&mut self, ctx: &mut Ctx) {
        // What is to be set aside stays until it is.
        let diverges = self.aside.is_some();
        let installing = self.incoming.as_ref().is_some_and(|incoming| incoming.is_installing());
        if !self.is_damaged() && !diverges && !installing {
            let keep = ctx.settings.tail_bytes;
            // What the engine is to follow later is read back from the disk then.
            let upto = match self.lags() || self.is_cold() {
                true => self.surely_kept(),
                false => self.engine.published().lsn,
            };
            let upto = upto.prev();
            self.tail.trim(upto.min(self.log_floor.prev()), keep);
            self.tail.trim(upto, keep * 4);
        }
        let publishable = self.publishable();
        if publishable.0 >= self.logged_secured.0 + 1024 && self.log_kind() == LogKind::Disk {
            self.logged_secured = publishable;
            let value = Bytes::copy_from_slice(&publishable.0.to_le_bytes());
            self.note(ctx, Note::Secured, value);
        }
        let bound = match self.rules.log_is_kept_for_members() {
            true => self.log_floor.min(self.persisted()).min(self.held()),
            false => self.committed,
        };
        // A full log takes a truncation ahead of what waits for room only if it names what the log has. One that catches up may
        // have more in its files (F20).
        let written = if self.log_kind() == LogKind::Disk { self.durable } else { Lsn::MAX };
        let bound = bound.min(written);
        // A partition with little to do must not hold back the log that it shares with others for ever (F20).
        let idle = ctx.now.mono.since(self.trimmed_at) >= TRIM_EVERY && bound > self.log_base.lsn;
        // Each checkpoint makes room at once, which a full log waits for.
        let checkpointed = bound > self.log_base.lsn && bound == self.engine.persisted().lsn.min(written);
        if !diverges && (bound.0 > self.log_base.lsn.0 + 256 || idle || checkpointed) {
            let Some((position, _)) = self.position_at(bound) else { return };
            self.trimmed_at = ctx.now.mono;
            self.log_base = position;
            ctx.out.push(Output::Log(LogOp::Trim { partition: self.id, below: bound.next() }));
        }
    }

    /// Drops every entry above `to` (F02). False if that would take back what is published: then only a copy helps.
    pub(crate) fn truncate(&mut self, ctx: &mut Ctx, to: Lsn) -> bool {
        if to >= self.tail.end().lsn {
            return true;
        }
        if to < self.engine.published().lsn || to < self.tail.base().lsn {
            return false;
        }
        let (position, _) = self.tail.at(to).expect("at or above the base");
        let cut = self.tail.truncate(to);
        self.aside = None;
        self.forget_loads(to);
        self.set_aside(ctx, cut);
        ctx.out.push(Output::Log(LogOp::Truncate { partition: self.id, to: position }));
        self.history.truncate(to);
        self.note(ctx, Note::History, self.history.encode());
        if self.engine.applied().lsn > to {
            self.engine.discard_above(position);
        }
        self.durable = self.durable.min(to);
        self.committed = self.committed.min(to);
        true
    }

    /// Writes clients' entries aside that will not be part of the log any more (R9).
    pub(crate) fn set_aside(&mut self, ctx: &mut Ctx, entries: Vec<Entry>) {
        let ours =
            |entry: &&Entry| matches!(entry.header().kind, Kind::Rows | Kind::Bulk | Kind::Call | Kind::Sql);
        let commits = entries.iter().filter(ours).count() as u64;
        let (Some(first), Some(last), true) = (entries.first(), entries.last(), commits > 0) else { return };
        let surely = entries.iter().filter(ours).filter(|entry| entry.lsn() <= self.committed).count() as u64;
        let sessions: BTreeSet<_> = entries.iter().filter(ours).map(|entry| entry.header().session).collect();
        let report = TailReport {
            partition: self.id,
            node: self.me.node,
            file: String::new(),
            term: last.at().term,
            from: first.lsn(),
            to: last.lsn(),
            commits,
            surely_acknowledged: surely,
            sessions: sessions.len() as u64,
            rows: None,
        };
        ctx.out.push(Output::SetAside { report, entries, rows: Vec::new() });
    }

    /// What a torn end may have taken is here again once this term's log reaches from its first entry to all that is committed, or
    /// once this replica serves by what the term has decided. Until then every life is told of it (PR-18): a short life leaves
    /// a log that looks whole.
    pub(crate) fn settle_torn(&mut self, ctx: &mut Ctx) {
        if !self.torn {
            return;
        }
        let term = self.record.as_ref().map(|record| record.term);
        let settled = match &self.role {
            Role::Leader(_) => self.serves(),
            Role::Follower(follower) if follower.copy.is_none() => {
                let here = match self.log_kind() {
                    LogKind::Disk => self.durable.min(follower.matched),
                    LogKind::Memory => follower.matched,
                };
                here >= follower.their_committed && self.history.term_at(here) == term
            }
            Role::Follower(_) | Role::Idle | Role::Damaged(_) => false,
        };
        if settled {
            self.torn = false;
            self.note(ctx, Note::Torn, Bytes::new());
        }
    }

    /// Sets aside what is in memory above `common`, the last entry that the primary has too (R9). [`Replica::is_aside`] comes first.
    pub(crate) fn cut_aside(&mut self, ctx: &mut Ctx, common: Lsn) {
        let keep = common.max(self.tail.base().lsn);
        if keep < self.tail.end().lsn {
            let entries = self.tail.truncate(keep);
            self.set_aside(ctx, entries);
        }
    }

    /// Gives up everything this replica holds; a copy follows. The primary has it up to `common`: what is above is set aside first,
    /// and as long as that is not done, nothing happens and this gives false.
    pub(crate) fn start_over(&mut self, ctx: &mut Ctx, common: Lsn) -> bool {
        if !self.is_aside(ctx, common) {
            return false;
        }
        self.cut_aside(ctx, common);
        self.incoming = None;
        if let Err(error) = self.engine.reset(Position::ZERO).and_then(|()| self.engine.finish_install()) {
            self.fail(ctx, error.to_string());
            return false;
        }
        self.rebase(ctx, Position::ZERO, 0, History::default());
        true
    }

    /// Makes log and positions begin at `at`, which the engine holds.
    pub(crate) fn rebase(&mut self, ctx: &mut Ctx, at: Position, crc: u32, history: History) {
        self.tail = Tail::new(at, crc);
        self.aside = None;
        self.forget_loads(Lsn::ZERO);
        self.history = history;
        self.log_base = at;
        // The log says when it begins there: until then a start finds another one beside the files (PR-35).
        self.durable = match self.log_kind() {
            LogKind::Disk => self.durable.min(at.lsn),
            LogKind::Memory => at.lsn,
        };
        self.committed = at.lsn;
        self.secured = at.lsn;
        self.log_floor = Lsn::ZERO;
        self.replays_to = Lsn::ZERO;
        ctx.out.push(Output::Log(LogOp::Base { partition: self.id, at, crc }));
        if std::mem::take(&mut self.torn) {
            self.note(ctx, Note::Torn, Bytes::new());
        }
        self.note(ctx, Note::History, self.history.encode());
        self.logged_secured = Lsn::ZERO;
        self.note(ctx, Note::Secured, Bytes::copy_from_slice(&at.lsn.0.to_le_bytes()));
    }

    /// Stops: what the engine has cannot be trusted (I12). The partition is not named in heartbeats any more, so another leads. The
    /// log is none the worse for it: whoever leads next may fetch what it has (R6).
    pub(crate) fn fail(&mut self, ctx: &mut Ctx, reason: String) {
        if matches!(self.role, Role::Damaged(_)) {
            return;
        }
        self.from_scratch_at = ctx.now.mono + FROM_SCRATCH;
        self.replays_to = self.tail.end().lsn;
        self.incoming = None;
        self.step_down(ctx, "this replica is damaged");
        ctx.leases.lead(self.id, None);
        ctx.out.push(Output::Damaged { partition: self.id, reason: reason.clone() });
        self.role = Role::Damaged(reason);
    }

    /// The same where the log cannot be trusted either.
    pub(crate) fn fail_with_log(&mut self, ctx: &mut Ctx, reason: String) {
        if !self.is_damaged() {
            self.fail(ctx, reason);
            self.replays_to = Lsn::ZERO;
        }
    }
}

/// The payload that names expired sessions: epoch and LSN of each, little-endian.
pub(crate) fn encode_expired(sessions: &[SessionId]) -> Bytes {
    let mut out = BytesMut::with_capacity(sessions.len() * 16);
    for session in sessions {
        out.put_u64_le(session.0.term.0);
        out.put_u64_le(session.0.lsn.0);
    }
    out.freeze()
}

fn decode_expired(mut payload: Bytes) -> Result<Vec<Mutation>, String> {
    if !payload.len().is_multiple_of(16) {
        return Err(format!("a list of expired sessions of {} bytes", payload.len()));
    }
    let mut mutations = Vec::with_capacity(payload.len() / 16);
    while payload.has_remaining() {
        let id = SessionId(Position::new(Term(payload.get_u64_le()), Lsn(payload.get_u64_le())));
        mutations.push(Mutation { key: session_key(id), value: None });
    }
    Ok(mutations)
}
