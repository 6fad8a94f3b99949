//! What all roles share: the log's end, tentative execution, publication, cuts and truncation.

use super::{Ctx, Replica, Role};
use crate::history::History;
use crate::output::{LogOp, Note, Output};
use crate::session::{Kept, Session, session_key};
use crate::tail::Tail;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeSet;
use types::config::TailReport;
use types::engine::mutation_fault;
use types::{
    Durable, Epoch, Finding, LogKind, Lsn, Micros, Mutation, Position, ReadAt, Remedy, SessionId, Watermarks,
};
use wire::entry::Kind;
use wire::peer::LogSummary;
use wire::{Effects, Entry, Outcome};

/// A partition whose log could be shorter has it cut at least this often.
const TRUNCATES: Micros = Micros::from_millis(5_000);

/// A replica that was damaged while it caught up is given a copy no sooner.
const ANEW: Micros = Micros::from_millis(1_000);

/// A damaged replica remembers so many bytes of its log at least, and whatever was not everywhere.
const REMEMBERED: usize = 64 << 20;

/// Why an entry was not taken in. Nothing has changed.
pub(super) enum Unfit {
    /// Its content: no engine could store it. Whoever sent it made it so.
    Entry(String),
    /// The files that it names: they are not here.
    Unstaged(String),
    /// This replica: it cannot go on.
    Here(String),
}

impl Unfit {
    /// As a sentence, where all mean the same: the entry is this replica's own.
    pub fn reason(self) -> String {
        match self {
            Unfit::Entry(reason) | Unfit::Unstaged(reason) | Unfit::Here(reason) => reason,
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

impl<R: Remedy> Replica<R> {
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
            if at.lsn != end.lsn.next() || at.epoch < end.epoch || !self.chains(&entry) {
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
    pub(super) fn chains(&mut self, entry: &Entry) -> bool {
        let (end, prev_crc) = (self.tail.end(), entry.header().prev_crc);
        if self.tail.end_crc() == 0 && self.tail.bytes() == 0 && end.lsn > Lsn::ZERO {
            self.tail = Tail::new(end, prev_crc);
        }
        prev_crc == self.tail.end_crc()
    }

    /// A log that begins behind files, or rows, of which the sender did not remember the checksum any more begins with that which
    /// its first entry names: no log takes an entry that does not continue it. To be followed by [`Replica::chains`].
    pub(super) fn name_base(&self, ctx: &mut Ctx, entry: &Entry) {
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
    pub(super) fn execute(&mut self, entry: &Entry) -> Result<(), Unfit> {
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
    pub(super) fn append(&mut self, ctx: &mut Ctx, entry: Entry) -> Result<(), Unfit> {
        self.take(entry.clone())?;
        if self.history.append(entry.at()) {
            self.note(ctx, Note::History, self.history.encode());
        }
        ctx.out.push(Output::Log(LogOp::Entry(entry)));
        Ok(())
    }

    /// Appends an entry whose effect is known already: the leader's path, which decodes nothing.
    pub(super) fn append_known(&mut self, ctx: &mut Ctx, entry: Entry, mutations: &[Mutation]) {
        if self.history.append(entry.at()) {
            self.note(ctx, Note::History, self.history.encode());
        }
        self.engine.execute(entry.at(), mutations);
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
                let session = self.session_mutation(entry, &effects).map_err(Unfit::Here)?;
                let mut mutations = effects.mutations;
                mutations.extend(session);
                Ok(mutations)
            }
            Kind::Bulk => {
                let effects = self.staged_load(entry)?.effects;
                let session = self.session_mutation(entry, &effects).map_err(Unfit::Here)?;
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
            Kind::Schema => super::index::decode(entry).map_err(Unfit::Entry),
            Kind::Policy | Kind::Configuration | Kind::Noop => Ok(Vec::new()),
            _ => Err(not_understood(entry)),
        }
    }

    /// The session's row after this entry.
    pub(super) fn session_mutation(
        &self,
        entry: &Entry,
        effects: &Effects,
    ) -> Result<Option<Mutation>, String> {
        let header = entry.header();
        if !header.session.is_some() {
            return Ok(None);
        }
        let key = session_key(header.session);
        let mut session = self.session(header.session)?.unwrap_or_default();
        let outcome = Outcome::from_number(effects.outcome).ok_or_else(|| {
            format!("the entry at {} has the unknown outcome {}", entry.at(), effects.outcome)
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
    pub(super) fn session(&self, id: SessionId) -> Result<Option<Session>, String> {
        let row = self.engine.get(&session_key(id), ReadAt::Applied).map_err(|error| error.to_string())?;
        row.map(|(_, value)| Session::decode(&value)).transpose()
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

    pub(super) fn log_kind(&self) -> LogKind {
        self.record.as_ref().map_or(LogKind::Disk, |record| record.policy.log)
    }

    /// The log in few words.
    pub(super) fn summary(&self) -> LogSummary {
        LogSummary { base: self.log_base, end: self.tail.end(), history: self.history.starts().to_vec() }
    }

    /// What is in the log at `lsn`: its position, and its checksum if it is in memory.
    pub(super) fn position_at(&self, lsn: Lsn) -> Option<(Position, Option<u32>)> {
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
        self.history.epoch_at(lsn).map(|epoch| (Position::new(epoch, lsn), None))
    }

    /// Storage made something durable. Tokens of entries that were cut meanwhile are ignored.
    pub(crate) fn on_synced(&mut self, token: Durable<Position>) {
        let at = token.get();
        let here = at.lsn <= self.tail.end().lsn && self.history.epoch_at(at.lsn) == Some(at.epoch);
        if here && self.log_kind() == LogKind::Disk {
            self.durable = self.durable.max(at.lsn);
        }
    }

    /// Moves what is committed and secured from the overlay into the engine (R7, PR-41).
    pub(super) fn publish(&mut self, ctx: &mut Ctx) {
        let secured = if self.remedy.has(Finding::Pr31) { self.secured } else { self.committed };
        let upto = self.committed.min(secured).min(self.engine.applied().lsn);
        // A load stops it, and what is above it must stay readable until then.
        let upto = self.engine.pending_load().map_or(upto, |at| upto.min(at.lsn.prev()));
        if upto <= self.engine.published().lsn || self.copying() {
            return;
        }
        // Without an open scan old versions need not be kept at all.
        let scanned = self.scans.keys().next().map_or(upto, |lsn| Lsn(*lsn));
        let tallied = self.tallies.lowest().unwrap_or(upto);
        self.engine.raise_floor(upto.min(scanned).min(tallied));
        if let Err(error) = self.engine.publish(upto) {
            self.fail(ctx, error.to_string());
        }
    }

    /// Up to where nothing of the log can be cut any more. A cold standby forgets it in memory, and may wait for a load when it publishes it.
    pub(super) fn surely_kept(&self) -> Lsn {
        self.committed.min(self.secured).min(self.durable)
    }

    /// Forgets what nobody needs: in memory above a budget, in the log at or below every bound (R8).
    pub(super) fn forget(&mut self, ctx: &mut Ctx) {
        if !self.is_damaged() {
            let keep = ctx.settings.tail_bytes;
            // What the engine is to follow later is read back from the disk then.
            let upto = match self.lags() || self.is_cold() {
                true => self.surely_kept(),
                false => self.engine.published().lsn,
            };
            let upto = upto.prev();
            self.tail.trim(upto.min(self.kept_from.prev()), keep);
            self.tail.trim(upto, keep * 4);
        }
        if self.secured.0 >= self.noted.0 + 1024 && self.log_kind() == LogKind::Disk {
            self.noted = self.secured;
            let value = Bytes::copy_from_slice(&self.secured.0.to_le_bytes());
            self.note(ctx, Note::Secured, value);
        }
        let bound = match self.remedy.has(Finding::F13) {
            true => self.kept_from.min(self.persisted()).min(self.held()),
            false => self.committed,
        };
        // A full log takes a truncation ahead of what waits for room only if it names what the log has. One that catches up may
        // have more in its files (F20).
        let written = if self.log_kind() == LogKind::Disk { self.durable } else { Lsn::MAX };
        let bound = bound.min(written);
        // A partition with little to do must not hold back the log that it shares with others for ever (F20).
        let idle = ctx.now.mono.since(self.truncated_at) >= TRUNCATES && bound > self.log_base.lsn;
        // Each checkpoint makes room at once, which a full log waits for.
        let checkpointed = bound > self.log_base.lsn && bound == self.engine.persisted().lsn.min(written);
        if bound.0 > self.log_base.lsn.0 + 256 || idle || checkpointed {
            let Some((position, _)) = self.position_at(bound) else { return };
            self.truncated_at = ctx.now.mono;
            self.log_base = position;
            ctx.out.push(Output::Log(LogOp::Truncate { partition: self.id, below: bound.next() }));
        }
    }

    /// Drops every entry above `to` (F02). False if that would take back what is published: then only a copy helps.
    pub(super) fn cut(&mut self, ctx: &mut Ctx, to: Lsn) -> bool {
        if to >= self.tail.end().lsn {
            return true;
        }
        if to < self.engine.published().lsn || to < self.tail.base().lsn {
            return false;
        }
        let (position, _) = self.tail.at(to).expect("at or above the base");
        let cut = self.tail.cut(to);
        self.forget_loads(to);
        self.set_aside(ctx, cut);
        ctx.out.push(Output::Log(LogOp::Cut { partition: self.id, to: position }));
        self.history.cut(to);
        self.note(ctx, Note::History, self.history.encode());
        if self.engine.applied().lsn > to {
            self.engine.discard_above(position);
        }
        self.durable = self.durable.min(to);
        self.committed = self.committed.min(to);
        true
    }

    /// Writes clients' entries aside that will not be part of the log any more (R9).
    pub(super) fn set_aside(&mut self, ctx: &mut Ctx, entries: Vec<Entry>) {
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
            epoch: last.at().epoch,
            from: first.lsn(),
            to: last.lsn(),
            commits,
            surely_acknowledged: surely,
            sessions: sessions.len() as u64,
        };
        ctx.out.push(Output::SetAside { report, entries });
    }

    /// What a torn end may have taken is here again once this reign's log reaches from its first entry to all that is committed, or
    /// once this replica serves by what the reign has decided. Until then every life is told of it (PR-18): a short life leaves
    /// a log that looks whole.
    pub(super) fn settle_torn(&mut self, ctx: &mut Ctx) {
        if !self.cut {
            return;
        }
        let reign = self.record.as_ref().map(|record| record.led_since);
        let settled = match &self.role {
            Role::Leader(_) => self.serves(),
            Role::Follower(follower) if follower.copy.is_none() => {
                let here = match self.log_kind() {
                    LogKind::Disk => self.durable.min(follower.matched),
                    LogKind::Memory => follower.matched,
                };
                here >= follower.their_committed && self.history.epoch_at(here) == reign
            }
            Role::Follower(_) | Role::Idle | Role::Damaged(_) => false,
        };
        if settled {
            self.cut = false;
            self.note(ctx, Note::Torn, Bytes::new());
        }
    }

    /// Gives up everything this replica holds; a copy follows.
    pub(super) fn start_over(&mut self, ctx: &mut Ctx) {
        let published = self.engine.published().lsn.max(self.tail.base().lsn);
        if published < self.tail.end().lsn {
            let entries = self.tail.cut(published);
            self.set_aside(ctx, entries);
        }
        self.incoming = None;
        if let Err(error) = self.engine.reset(Position::ZERO).and_then(|()| self.engine.finish_install()) {
            return self.fail(ctx, error.to_string());
        }
        self.rebase(ctx, Position::ZERO, 0, History::default());
    }

    /// Makes log and positions begin at `at`, which the engine holds.
    pub(super) fn rebase(&mut self, ctx: &mut Ctx, at: Position, crc: u32, history: History) {
        self.tail = Tail::new(at, crc);
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
        self.kept_from = Lsn::ZERO;
        self.replays_to = Lsn::ZERO;
        ctx.out.push(Output::Log(LogOp::Base { partition: self.id, at, crc }));
        if std::mem::take(&mut self.cut) {
            self.note(ctx, Note::Torn, Bytes::new());
        }
        self.note(ctx, Note::History, self.history.encode());
        self.noted = Lsn::ZERO;
        self.note(ctx, Note::Secured, Bytes::copy_from_slice(&at.lsn.0.to_le_bytes()));
    }

    /// Stops: what the engine has cannot be trusted (I12). The partition is not named in beacons any more, so another leads. The
    /// log is none the worse for it: whoever leads next may fetch what it has (R6).
    pub(crate) fn fail(&mut self, ctx: &mut Ctx, reason: String) {
        if matches!(self.role, Role::Damaged(_)) {
            return;
        }
        self.anew_at = ctx.now.mono + ANEW;
        self.replays_to = self.tail.end().lsn;
        self.incoming = None;
        self.step_down(ctx, "this replica is damaged");
        ctx.leases.lead(self.id, None);
        ctx.out.push(Output::Damaged { partition: self.id, reason: reason.clone() });
        self.role = Role::Damaged(reason);
    }

    /// The same where the log cannot be trusted either.
    pub(super) fn fail_with_log(&mut self, ctx: &mut Ctx, reason: String) {
        if !self.is_damaged() {
            self.fail(ctx, reason);
            self.replays_to = Lsn::ZERO;
        }
    }
}

/// The payload that names expired sessions: epoch and LSN of each, little-endian.
pub(super) fn encode_expired(sessions: &[SessionId]) -> Bytes {
    let mut out = BytesMut::with_capacity(sessions.len() * 16);
    for session in sessions {
        out.put_u64_le(session.0.epoch.0);
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
        let id = SessionId(Position::new(Epoch(payload.get_u64_le()), Lsn(payload.get_u64_le())));
        mutations.push(Mutation { key: session_key(id), value: None });
    }
    Ok(mutations)
}
