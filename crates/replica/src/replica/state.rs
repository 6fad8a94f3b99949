//! What all roles share: the log's end, tentative execution, publication, cuts and truncation.

use crate::damage::Damage;
use crate::features::bulk::staged_load;
use crate::history::History;
use crate::output::{LogOp, Note, Output};
use crate::replica::{Ctx, Replica, Role};
use crate::session::{self, Session, session_key};
use bytes::Bytes;
use types::engine::mutation_fault;
use types::{Durable, EngineError, LogKind, Lsn, Micros, Mutation, Position, SessionId, Watermarks};
use wire::entry::Kind;
use wire::{Effects, Entry};

/// A partition whose log could be shorter has it cut at least this often.
const TRIM_EVERY: Micros = Micros::from_millis(5_000);

/// A replica that was damaged while it caught up is given a copy no sooner.
const FROM_SCRATCH: Micros = Micros::from_millis(1_000);

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
        self.log.to_replay()
    }

    /// Executes entries that are already in the log on disk, at the start of a node. A damaged replica only remembers them:
    /// what the primary never had is set aside before a copy comes (R9).
    pub fn replay(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            let (end, at) = (self.log.end(), entry.at());
            if at.lsn <= end.lsn || self.log.to_replay().is_none() {
                continue;
            }
            if at.lsn != end.lsn.next() || at.term < end.term || !self.log.chains(&entry) {
                self.log.distrust();
                if !self.is_damaged() {
                    self.found_damage(format!("R3: {at} does not follow {end} in the log"));
                }
                continue;
            }
            if !self.is_damaged() {
                match self.take(entry.clone()) {
                    Ok(_) => continue,
                    Err(unfit) => self.found_damage(unfit.reason()),
                }
            }
            self.log.remember(entry, self.marks.secured());
        }
        let end = self.log.end().lsn;
        let publish = self.marks.secured().min(end);
        if !self.is_damaged() {
            self.marks.commit(publish, end);
            if let Err(error) = self.engine.publish(publish) {
                self.found_damage(error.to_string());
            }
        }
    }

    /// A start found damage: a copy helps at once.
    fn found_damage(&mut self, reason: String) {
        self.role.becomes(Role::Damaged(Damage::new(reason, Micros::ZERO)));
    }

    /// A log that begins behind files, or rows, of which the sender did not remember the checksum any more begins with that which
    /// its first entry names: no log takes an entry that does not continue it. To be followed by [`LogState::chains`].
    pub(crate) fn name_base(&self, ctx: &mut Ctx, entry: &Entry) {
        if let Some(crc) = self.log.base_named_by(entry) {
            let (partition, at) = (self.id, self.log.end());
            ctx.out.push(Output::Log(LogOp::Base { partition, at, crc }));
        }
    }

    /// Puts an entry at the end of log and engine; of the log alone where the engine is to follow later. True if a term begins.
    fn take(&mut self, entry: Entry) -> Result<bool, Unfit> {
        if self.lags() || self.is_cold() {
            understood(&entry)?;
            if entry.header().kind == Kind::Bulk {
                staged_load(self.engine.as_ref(), self.rules, &entry)?;
            }
        } else {
            self.execute(&entry)?;
        }
        self.features.loads.note(&entry);
        Ok(self.log.append(entry))
    }

    /// Executes the entry that follows what the engine has.
    pub(crate) fn execute(&mut self, entry: &Entry) -> Result<(), Unfit> {
        let mutations = self.mutations(entry)?;
        match entry.header().kind {
            Kind::Bulk => {
                let load = staged_load(self.engine.as_ref(), self.rules, entry)?.load;
                let staging = self.engine.staging_mut().expect("PR-39: it stages loads, or has none");
                staging.execute_load(entry.at(), load, &mutations);
            }
            _ => self.engine.execute(entry.at(), &mutations),
        }
        Ok(())
    }

    /// Takes an entry in and has it logged.
    pub(crate) fn append(&mut self, ctx: &mut Ctx, entry: Entry) -> Result<(), Unfit> {
        let begins = self.take(entry.clone())?;
        self.appended(ctx, entry, begins);
        Ok(())
    }

    /// Appends an entry whose effect is known already: the leader's path, which decodes nothing.
    pub(crate) fn append_known(&mut self, ctx: &mut Ctx, entry: Entry, mutations: &[Mutation]) {
        self.engine.execute(entry.at(), mutations);
        let begins = self.log.append(entry.clone());
        self.appended(ctx, entry, begins);
    }

    fn appended(&mut self, ctx: &mut Ctx, entry: Entry, begins: bool) {
        if begins {
            self.note(ctx, Note::History, self.log.history().encode());
        }
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
                let session = session::mutation_of(self.engine.as_ref(), entry, &effects)?;
                let mut mutations = effects.mutations;
                mutations.extend(session);
                Ok(mutations)
            }
            Kind::Bulk => {
                let effects = staged_load(self.engine.as_ref(), self.rules, entry)?.effects;
                let session = session::mutation_of(self.engine.as_ref(), entry, &effects)?;
                let mut mutations = effects.mutations;
                mutations.extend(session);
                Ok(mutations)
            }
            Kind::SessionOpen => {
                let session = Session { touched_ms: entry.header().wall_ms, ..Session::default() };
                let key = session_key(SessionId(entry.at()));
                Ok(vec![Mutation { key, value: Some(session.encode()) }])
            }
            Kind::SessionExpire => session::decode_expired(entry.payload()).map_err(Unfit::Entry),
            Kind::Schema => crate::features::index::decode(entry).map_err(Unfit::Entry),
            Kind::Policy | Kind::Configuration | Kind::Noop => Ok(Vec::new()),
            _ => Err(not_understood(entry)),
        }
    }

    /// The position before the first entry that its log still has.
    pub fn log_base(&self) -> Position {
        self.log.base()
    }

    /// This replica's watermarks.
    pub fn watermarks(&self) -> Watermarks {
        Watermarks {
            received: self.log.end().lsn,
            durable: self.log.durable(),
            applied: self.engine.applied().lsn,
            persisted: self.persisted(),
        }
    }

    /// What a restart does not need the log for. A memory log forgets everything anyway, so nothing is kept for it.
    fn persisted(&self) -> Lsn {
        match self.config.log_kind() {
            LogKind::Disk => self.engine.persisted().lsn,
            LogKind::Memory => self.engine.published().lsn,
        }
    }

    /// Storage made something durable. Tokens of entries that were cut meanwhile are ignored.
    pub(crate) fn on_synced(&mut self, token: Durable<Position>) {
        if self.config.log_kind() == LogKind::Disk {
            self.log.synced(token.get());
        }
    }

    /// Moves what is committed and secured from the overlay into the engine (R7, PR-41).
    pub(crate) fn publish(&mut self, ctx: &mut Ctx) {
        let secured = if self.rules.engines_publish_what_is_secured() {
            self.marks.secured()
        } else {
            self.marks.committed()
        };
        let upto = self.marks.committed().min(secured).min(self.engine.applied().lsn);
        // A load stops it, and what is above it must stay readable until then.
        let upto = self.engine.pending_load().map_or(upto, |at| upto.min(at.lsn.prev()));
        if upto <= self.engine.published().lsn || self.copying() {
            return;
        }
        // Without an open scan old versions need not be kept at all.
        self.engine.raise_read_floor(self.readers.lowest().map_or(upto, |lowest| lowest.min(upto)));
        if let Err(error) = self.engine.publish(upto) {
            self.fail(ctx, error.to_string());
        }
    }

    /// A member is to join: what nobody can have published yet is not secured before it has it too.
    pub(crate) fn secure_with_joiner(&mut self) {
        // A load that may be installed counts as published, above `committed`.
        if self.engine.pending_load().is_none() {
            self.marks.secure_with_joiner(self.engine.published().lsn);
        }
    }

    /// Forgets what nobody needs: in memory above a budget, in the log at or below every bound (R8).
    pub(crate) fn forget(&mut self, ctx: &mut Ctx) {
        // What is to be set aside stays until it is.
        let diverges = self.log.aside().is_some();
        let installing = self.transfer.incoming.is_installing();
        if !self.is_damaged() && !diverges && !installing {
            let keep = ctx.settings.tail_bytes;
            // What the engine is to follow later is read back from the disk then.
            let upto = match self.lags() || self.is_cold() {
                true => self.marks.surely_kept(self.log.durable()),
                false => self.engine.published().lsn,
            };
            let upto = upto.prev();
            self.log.trim_memory(upto.min(self.marks.log_floor().prev()), keep);
            self.log.trim_memory(upto, keep * 4);
        }
        let publishable = self.marks.publishable();
        if self.config.log_kind() == LogKind::Disk && self.log.notes_secured(publishable) {
            let value = Bytes::copy_from_slice(&publishable.0.to_le_bytes());
            self.note(ctx, Note::Secured, value);
        }
        let bound = match self.rules.log_is_kept_for_members() {
            true => self
                .marks
                .log_floor()
                .min(self.persisted())
                .min(self.leading().map_or(Lsn::MAX, |(primary, view)| primary.held(&view))),
            false => self.marks.committed(),
        };
        // A full log takes a truncation ahead of what waits for room only if it names what the log has. One that catches up may
        // have more in its files (F20).
        let written = if self.config.log_kind() == LogKind::Disk { self.log.durable() } else { Lsn::MAX };
        let bound = bound.min(written);
        // A partition with little to do must not hold back the log that it shares with others for ever (F20).
        let idle = ctx.now.mono.since(self.log.trimmed_at()) >= TRIM_EVERY && bound > self.log.base().lsn;
        // Each checkpoint makes room at once, which a full log waits for.
        let checkpointed = bound > self.log.base().lsn && bound == self.engine.persisted().lsn.min(written);
        if !diverges && (bound.0 > self.log.base().lsn.0 + 256 || idle || checkpointed) {
            let Some((position, _)) = self.log.position_at(bound) else { return };
            self.log.trim(position, ctx.now.mono);
            ctx.out.push(Output::Log(LogOp::Trim { partition: self.id, below: bound.next() }));
        }
    }

    /// Drops every entry above `to` (F02). False if that would take back what is published: then only a copy helps.
    pub(crate) fn truncate(&mut self, ctx: &mut Ctx, to: Lsn) -> bool {
        if to >= self.log.end().lsn {
            return true;
        }
        if to < self.engine.published().lsn || to < self.log.tail().base().lsn {
            return false;
        }
        let (position, _) = self.log.tail().at(to).expect("at or above the base");
        let cut = self.log.truncate(to);
        self.features.loads.forget_above(to);
        self.set_aside(ctx, cut);
        ctx.out.push(Output::Log(LogOp::Truncate { partition: self.id, to: position }));
        self.note(ctx, Note::History, self.log.history().encode());
        if self.engine.applied().lsn > to {
            self.engine.discard_above(position);
        }
        self.marks.cut(to);
        true
    }

    /// What a torn end may have taken is here again once this term's log reaches from its first entry to all that is committed, or
    /// once this replica serves by what the term has decided. Until then every life is told of it (PR-18): a short life leaves
    /// a log that looks whole.
    pub(crate) fn settle_torn(&mut self, ctx: &mut Ctx) {
        if !self.log.is_torn() {
            return;
        }
        let term = self.config.record().map(|record| record.term);
        let kept = match self.config.log_kind() {
            LogKind::Disk => self.log.durable(),
            LogKind::Memory => Lsn::MAX,
        };
        let settled = match &self.role {
            Role::Leader(_) => self.serves(),
            Role::Backup(backup) => {
                backup.has_committed(kept).is_some_and(|here| self.log.history().term_at(here) == term)
            }
            Role::Idle | Role::Damaged(_) => false,
        };
        if settled {
            self.log.settle_torn();
            self.note(ctx, Note::Torn, Bytes::new());
        }
    }

    /// Sets aside what is in memory above `common`, the last entry that the primary has too (R9). [`Replica::is_aside`] comes first.
    pub(crate) fn cut_aside(&mut self, ctx: &mut Ctx, common: Lsn) {
        let entries = self.log.take_tail(common);
        self.set_aside(ctx, entries);
    }

    /// Gives up everything this replica holds; a copy follows. The primary has it up to `common`: what is above is set aside first,
    /// and as long as that is not done, nothing happens and this gives false.
    pub(crate) fn start_over(&mut self, ctx: &mut Ctx, common: Lsn) -> bool {
        if !self.is_aside(ctx, common) {
            return false;
        }
        self.cut_aside(ctx, common);
        self.transfer.incoming.forget();
        if let Err(error) = self.engine.reset(Position::ZERO).and_then(|()| self.engine.finish_install()) {
            self.fail(ctx, error.to_string());
            return false;
        }
        self.rebase(ctx, Position::ZERO, 0, History::default());
        true
    }

    /// Makes log and positions begin at `at`, which the engine holds.
    pub(crate) fn rebase(&mut self, ctx: &mut Ctx, at: Position, crc: u32, history: History) {
        self.features.loads.forget_above(Lsn::ZERO);
        // The log says when it begins there: until then a start finds another one beside the files (PR-35).
        let durable = match self.config.log_kind() {
            LogKind::Disk => self.log.durable().min(at.lsn),
            LogKind::Memory => at.lsn,
        };
        self.log.begin_at(at, crc, history, durable);
        self.marks.begin_at(at.lsn);
        ctx.out.push(Output::Log(LogOp::Base { partition: self.id, at, crc }));
        if self.log.settle_torn() {
            self.note(ctx, Note::Torn, Bytes::new());
        }
        self.note(ctx, Note::History, self.log.history().encode());
        self.note(ctx, Note::Secured, Bytes::copy_from_slice(&at.lsn.0.to_le_bytes()));
    }

    /// Stops: what the engine has cannot be trusted (I12). The partition is not named in heartbeats any more, so another leads. The
    /// log is none the worse for it: whoever leads next may fetch what it has (R6).
    pub(crate) fn fail(&mut self, ctx: &mut Ctx, reason: String) {
        if self.is_damaged() {
            return;
        }
        self.log.note_whole();
        self.transfer.incoming.forget();
        self.step_down(ctx, "this replica is damaged");
        ctx.leases.lead(self.id, None);
        ctx.out.push(Output::Damaged { partition: self.id, reason: reason.clone() });
        self.role.becomes(Role::Damaged(Damage::new(reason, ctx.now.mono + FROM_SCRATCH)));
    }

    /// The same where the log cannot be trusted either.
    pub(crate) fn fail_with_log(&mut self, ctx: &mut Ctx, reason: String) {
        if !self.is_damaged() {
            self.fail(ctx, reason);
            self.log.distrust();
        }
    }
}
