//! Damage, publication, and engines that follow their log.

use crate::context::Ctx;
use crate::damage::{Damage, Fault};
use crate::output::Output;
use crate::replica::{Replica, Role, horizon};
use crate::unfit::Unfit;
use types::engine::{Checkpoint, Wake};
use types::{EngineError, Lsn, Micros, Position};
use wire::Entry;

/// A replica that was damaged while it caught up is given a copy no sooner.
const FROM_SCRATCH: Micros = Micros::from_millis(1_000);

impl Replica {
    /// Executes entries that are already in the log on disk, at the start of a node. A damaged replica only
    /// remembers them: what the primary never had is set aside before a copy comes (R9).
    pub fn replay(&mut self, entries: Vec<Entry>) {
        let (data, role) = (&mut self.data, &mut self.role);
        // A start found damage: a copy helps at once.
        let damaged = |role: &mut Role, fault: Fault| {
            role.becomes(Role::Damaged(Damage::new(fault.reason(), Micros::ZERO)));
        };
        for entry in entries {
            let (end, at) = (data.log.end(), entry.at());
            if at.lsn <= end.lsn || data.log.to_replay().is_none() {
                continue;
            }
            if at.lsn != end.lsn.next() || at.term < end.term || !data.log.chains(&entry) {
                data.log.distrust();
                if !role.is_damaged() {
                    damaged(role, Fault::Log(format!("R3: {at} does not follow {end} in the log")));
                }
                continue;
            }
            if !role.is_damaged() {
                match data.take(entry.clone(), data.lags(), None) {
                    Ok(_) => continue,
                    Err(unfit) => damaged(role, unfit.into()),
                }
            }
            data.log.remember(entry, data.marks.secured());
        }
        let end = data.log.end().lsn;
        let publish = data.marks.secured().min(end);
        if !role.is_damaged() {
            data.marks.commit(publish, end);
            if let Err(error) = data.engine.publish(publish) {
                damaged(role, error.into());
            }
        }
    }

    /// Takes an entry in and has it logged.
    pub(crate) fn append(&mut self, ctx: &mut Ctx, entry: Entry) -> Result<(), Unfit> {
        let later = self.role.lags(&self.data) || self.role.is_cold(&self.config, &self.data);
        self.data.append(entry, later, ctx.out)
    }

    /// Moves what is committed and secured from the overlay into the engine (R7, PR-41).
    pub(crate) fn publish(&mut self, ctx: &mut Ctx) {
        if self.role.is_copying() {
            return;
        }
        horizon::follow(self, ctx.now.mono);
        if let Err(error) = self.data.publish(self.readers.lowest()) {
            self.fail(ctx, error);
        }
    }

    /// Gives up everything this replica holds; a copy follows. The primary has it up to `common`: what is
    /// above is set aside first, and as long as that is not done, nothing happens and this gives false.
    pub(crate) fn start_over(&mut self, ctx: &mut Ctx, common: Lsn) -> bool {
        if !self.data.is_aside(ctx, common, self.role.is_damaged()) {
            return false;
        }
        self.data.truncate_aside(common, ctx.out);
        self.transfer.incoming.forget();
        let cleared = self.data.clear(ctx.out);
        cleared.map_err(|error| self.fail(ctx, error)).is_ok()
    }

    /// Stops: what the engine has cannot be trusted (I12). The partition is not named in heartbeats any more,
    /// so another leads. The log is none the worse for it, if the fault is not its own: whoever leads next
    /// may fetch what it has (R6).
    pub(crate) fn fail(&mut self, ctx: &mut Ctx, fault: impl Into<Fault>) {
        if self.is_damaged() {
            return;
        }
        let fault = fault.into();
        self.transfer.incoming.forget();
        self.step_down(ctx, "this replica is damaged");
        match fault {
            Fault::Engine(_) => self.data.log.note_whole(),
            Fault::Log(_) => self.data.log.distrust(),
        }
        let (partition, reason) = (self.identity.id, fault.reason());
        ctx.leases.lead(partition, None);
        ctx.out.push(Output::Damaged { partition, reason: reason.clone() });
        self.role.becomes(Role::Damaged(Damage::new(reason, ctx.now.mono + FROM_SCRATCH)));
    }

    /// Executes the next slice of the log, or sets one aside, if there is any: [`Role::has_replay`].
    pub(crate) fn replay_slice(&mut self, ctx: &mut Ctx) {
        if self.data.asides() {
            return self.data.aside_rows(ctx);
        }
        if let Some(entries) = self.data.next_slice(ctx.out) {
            self.replay_entries(ctx, &entries);
        }
    }

    /// Executes entries of the log, from memory or read back. A term that waited for the last of them goes
    /// on.
    pub(crate) fn replay_entries(&mut self, ctx: &mut Ctx, entries: &[Entry]) {
        if let Err(fault) = self.data.execute_slice(entries) {
            return self.fail(ctx, fault);
        }
        self.publish(ctx);
        let waited = matches!(&self.role, Role::Leader(leader) if leader.promotion.is_replaying());
        if waited && !self.role.lags(&self.data) {
            self.mark(ctx);
        }
    }

    /// Writes the engine's published state to disk, so that the log below it can go; or has the primary asked
    /// for it.
    pub fn checkpoint(&mut self) -> Result<Position, EngineError> {
        match self.makes_files() {
            true => self.data.engine.checkpoint(),
            false => Ok(self.data.engine.persisted()),
        }
    }

    /// Begins the same beside other work. The log goes only when the engine says that it is persisted.
    pub fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError> {
        match self.makes_files() {
            true => self.data.engine.begin_checkpoint(wake),
            false => Ok(Checkpoint::Idle),
        }
    }

    /// True if this replica makes its files itself, and can. Else the primary is asked for some.
    fn makes_files(&mut self) -> bool {
        if self.is_damaged() || self.role.is_copying() {
            return false;
        }
        let follows = self.role.backup().is_some();
        let counts = self.config.record().is_some_and(|record| record.holds(&self.identity.me));
        let shipped = follows && counts && self.data.ships_files();
        !self.transfer.flush.leave_to_primary(shipped, self.data.engine.persisted().lsn)
    }
}
