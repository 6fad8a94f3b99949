//! Who writes the engine to disk. Where engines ship files, only the primary makes them, so that every replica has the same ones
//! (PR-38): a member whose log is too long asks the primary for a flush, and installs what it is offered then.
//!
//! A member that gets nothing for long makes files of its own; the primary's next ones take their place.

use crate::output::Output;
use crate::replica::{Ctx, Replica};
use types::engine::{Checkpoint, Wake};
use types::{EngineError, LogKind, Lsn, Member, Micros, Position};
use wire::PeerMessage;
use wire::ship::{FlushAnswer, FlushRequest};

/// A request is made again after so long.
const ASKS: Micros = Micros::from_millis(1_000);
/// A member makes files of its own if nothing came for so long.
const WAIT_LIMIT: Micros = Micros::from_millis(5_000);

/// What a member wants of its primary.
#[derive(Debug)]
pub(crate) struct PendingFlush {
    /// What its files held then.
    persisted: Lsn,
    /// Since when nothing came; zero: since the next tick.
    since: Micros,
    asked_at: Micros,
}

impl Replica {
    /// Writes the engine's published state to disk, so that the log below it can go; or has the primary asked for it.
    pub fn checkpoint(&mut self) -> Result<Position, EngineError> {
        if self.is_damaged() || self.copying() || self.leaves_files_to_primary() {
            return Ok(self.engine.persisted());
        }
        self.engine.checkpoint()
    }

    /// Begins the same beside other work. The log goes only when the engine says that it is persisted.
    pub fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError> {
        if self.is_damaged() || self.copying() || self.leaves_files_to_primary() {
            return Ok(Checkpoint::Idle);
        }
        self.engine.begin_checkpoint(wake)
    }

    /// Goes on with it, for a bounded time.
    pub fn go_on_checkpoint(&mut self) -> Result<Checkpoint, EngineError> {
        self.engine.go_on_checkpoint()
    }

    /// True if the primary makes this replica's files. It is asked for some then.
    fn leaves_files_to_primary(&mut self) -> bool {
        let follows = self.role.backup().is_some();
        let counts = self.config.record().is_some_and(|record| record.holds(&self.me));
        let shipped = self.engine.capabilities().ships_files && self.config.log_kind() == LogKind::Disk;
        let ours = std::mem::take(&mut self.makes_own_files);
        if !(follows && counts && shipped) || ours {
            return false;
        }
        let persisted = self.engine.persisted().lsn;
        if self.pending_flush.is_none() {
            self.pending_flush =
                Some(PendingFlush { persisted, since: Micros::ZERO, asked_at: Micros::ZERO });
        }
        true
    }

    /// Asks the primary, and gives up waiting for it.
    pub(crate) fn pending_flush_tick(&mut self, ctx: &mut Ctx) {
        let (now, persisted) = (ctx.now.mono, self.engine.persisted().lsn);
        let loads = self.awaits_load();
        let busy = self.incoming.is_some();
        let ours = loads || self.engine.published().lsn > persisted;
        if loads && self.pending_flush.is_none() {
            self.pending_flush = Some(PendingFlush { persisted, since: Micros::ZERO, asked_at: now });
        }
        let (Some(record), Some(pending_flush)) = (self.config.record(), &mut self.pending_flush) else {
            return;
        };
        if self.role.backup().is_none() || pending_flush.persisted < persisted {
            self.pending_flush = None;
            return;
        }
        if busy || pending_flush.since == Micros::ZERO {
            pending_flush.since = now;
        }
        if now.since(pending_flush.since) >= WAIT_LIMIT {
            (self.pending_flush, self.makes_own_files) = (None, ours);
            if loads {
                ctx.out.push(Output::Checkpoint { partition: self.id });
            }
            return;
        }
        if busy || now.since(pending_flush.asked_at) < ASKS {
            return;
        }
        pending_flush.asked_at = now;
        let request = FlushRequest { partition: self.id, epoch: record.epoch, from: self.me, persisted };
        let to = record.primary;
        ctx.out.push(Output::Send { to, message: PeerMessage::FlushRequest(request) });
    }

    /// True if a bulk load is committed, secured and not in this member's files. The primary's next set has it.
    fn awaits_load(&mut self) -> bool {
        let (committed, secured) = (self.marks.committed(), self.marks.secured());
        let Some(at) = self.engine.pending_load() else { return false };
        let here = self.role.backup().is_some() && committed.min(secured) >= at.lsn;
        if here {
            self.engine.allow_load(at.lsn);
        }
        here
    }

    /// A member's log is too long.
    pub(crate) fn on_flush_request(&mut self, ctx: &mut Ctx, request: &FlushRequest) {
        let (persisted, published) = (self.engine.persisted(), self.engine.published());
        let serves = self.serves();
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return };
        let Some(leader) = self.leader() else { return };
        if request.epoch < leader.term.began() || request.epoch > epoch || !serves {
            return;
        }
        let Some(progress) = leader.members.get_mut(&request.from) else { return };
        // Whatever became of the last offer, it comes again.
        if progress.files.is_none() {
            progress.delivered = Lsn::ZERO;
        }
        if persisted.lsn <= request.persisted && published.lsn > persisted.lsn {
            progress.wants_flush = true;
            return ctx.out.push(Output::Checkpoint { partition: self.id });
        }
        self.answer_flush(ctx, request.from, request.persisted);
    }

    fn answer_flush(&self, ctx: &mut Ctx, to: Member, theirs: Lsn) {
        let Some(record) = self.config.record() else { return };
        let at = self.engine.persisted();
        let flushed = at.lsn > theirs;
        let answer = FlushAnswer { partition: self.id, epoch: record.epoch, from: self.me, at, flushed };
        ctx.out.push(Output::Send { to, message: PeerMessage::FlushAnswer(answer) });
    }

    /// Answers those who waited for the end of a flush.
    pub(crate) fn answer_flushes(&mut self, ctx: &mut Ctx) {
        let persisted = self.engine.persisted().lsn;
        let Some(leader) = self.leader() else { return };
        let waiting = leader.members.iter_mut().filter(|(_, progress)| progress.wants_flush);
        let flushed = waiting.filter(|(_, progress)| progress.marks.persisted < persisted);
        let flushed: Vec<_> = flushed
            .map(|(member, progress)| {
                progress.wants_flush = false;
                (*member, progress.marks.persisted)
            })
            .collect();
        for (member, theirs) in flushed {
            self.answer_flush(ctx, member, theirs);
        }
    }

    /// The primary has files for this replica, or knows of nothing that is not in files here.
    pub(crate) fn on_flush_answer(&mut self, ctx: &mut Ctx, answer: &FlushAnswer) {
        let ours = self.config.record().is_some_and(|record| record.primary == answer.from);
        let persisted = self.engine.persisted().lsn;
        let Some(pending_flush) = self.pending_flush.as_mut().filter(|_| ours) else { return };
        if answer.flushed {
            pending_flush.since = ctx.now.mono;
        } else if answer.at.lsn <= persisted {
            self.pending_flush = None;
        }
    }
}
