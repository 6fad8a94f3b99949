//! The state on its way to this replica, beside its log, its readers and its role: what is taken in,
//! installed, and taken over.

use crate::backup::Backup;
use crate::context::Ctx;
use crate::damage::Fault;
use crate::output::{Origin, Output};
use crate::replica::{Replica, Role};
use crate::transfer::files_in::Due;
use crate::transfer::receive::{ReceiveError, Received, Receiver};
use types::{EngineError, Epoch, Lsn, Micros};
use wire::ship::{Outcome, TransferOffer};

impl Replica {
    fn receiver<'a>(&'a mut self, ctx: &'a mut Ctx) -> Receiver<'a> {
        let catching_up = self.config.is_catching_up(&self.identity.me);
        let wants_all = self.transfer.failback.wants_all(ctx.settings, catching_up);
        let epoch = self.config.record().map_or(Epoch::ZERO, |record| record.epoch);
        Receiver {
            files: &mut self.transfer.incoming,
            engine: self.data.engine.shipping_mut(),
            failback: &mut self.transfer.failback,
            origin: Origin { partition: self.identity.id, epoch, me: self.identity.me },
            now: ctx.now.mono,
            wants_all,
            names_position: self.identity.rules.copies_name_their_position(),
            out: ctx.out,
        }
    }

    /// A primary has files for this replica.
    pub(crate) fn on_transfer_offer(&mut self, ctx: &mut Ctx, offer: TransferOffer) {
        let Some(record) = self.config.record() else { return };
        let ours = offer.epoch == record.epoch && offer.from == record.primary;
        let able = match &self.role {
            Role::Backup(_) => true,
            Role::Damaged(_) => {
                let catching_up = record.catching_up.contains(&self.identity.me);
                self.role.awaits_copy(catching_up, ctx.now.mono)
            }
            Role::Idle | Role::Leader(_) => false,
        };
        if !ours || !able || !record.holds(&self.identity.me) {
            return;
        }
        // True if what is published here follows the state that is offered (R3).
        let at = offer.at;
        let fits =
            at.lsn >= self.data.engine.published().lsn || !self.is_damaged() && self.data.log.holds(at);
        self.receive(ctx, |receiver| receiver.offered(offer, fits).map(|()| Received::Nothing));
    }

    /// Takes in a piece of a file, or goes on with an installation, and does what follows. True if the engine
    /// is not through with that. Want of room ends it, for now: what came stays, and it is tried again
    /// (PR-135).
    pub(crate) fn receive(
        &mut self,
        ctx: &mut Ctx,
        act: impl FnOnce(&mut Receiver) -> Result<Received, ReceiveError>,
    ) -> bool {
        let done = act(&mut self.receiver(ctx));
        let waits = matches!(done, Ok(Received::Installing));
        let asked = match done {
            Ok(Received::Nothing | Received::Installing) => Ok(()),
            Ok(Received::Installed) => {
                self.take_over(ctx);
                Ok(())
            }
            Ok(Received::Kept) => self.receiver(ctx).ask(),
            Ok(Received::MayBeWhole) => {
                self.install_if_whole(ctx);
                self.receiver(ctx).ask()
            }
            Err(error) => Err(error),
        };
        match asked {
            Ok(()) => {}
            Err(ReceiveError::Stopping(error)) => self.fail(ctx, error),
            Err(ReceiveError::Receiving(error)) => match error {
                EngineError::Full(_) => {
                    self.transfer.incoming.pause(ctx.now.mono);
                    let what = format!("files cannot be received: {error}");
                    ctx.out.push(Output::Notice { partition: self.identity.id, what: what.into() });
                }
                _ => {
                    self.transfer.incoming.forget();
                    self.fail(ctx, Fault::Engine(format!("it cannot take in files: {error}")));
                }
            },
        }
        waits
    }

    /// What the primary never had is set aside before its files are installed (R9).
    fn install_if_whole(&mut self, ctx: &mut Ctx) {
        let incoming = &self.transfer.incoming;
        // Readers are not waited for where nobody can write until this copy counts (PR-136).
        let closed = self.config.record().is_some_and(|record| !record.policy.allows(record.in_sync.len()));
        let reads = self.readers.lowest().filter(|_| !closed);
        let Some((at, history)) = incoming.installable(ctx.now.mono, reads) else { return };
        let common = self.data.log.common_with(history, Lsn::MAX);
        if !self.is_damaged() && self.data.log.holds(at)
            || self.data.is_aside(ctx, common, self.role.is_damaged())
        {
            self.transfer.incoming.begin_installing();
            ctx.out.push(Output::Install { partition: self.identity.id });
        }
    }

    /// Time has passed: what was lost is asked for again. A replica that counts needs nothing of what never
    /// was a whole set. One that has no place now may be taken in again, and goes on with what is here.
    pub(crate) fn receive_tick(&mut self, ctx: &mut Ctx) {
        let patience = Micros(ctx.settings.resend.0 * 20);
        match self.transfer.incoming.due(ctx.now.mono, patience) {
            Due::Nothing => {}
            Due::Install => self.install_if_whole(ctx),
            Due::AskAgain => self.receiver(ctx).ask_again(),
            Due::TryAgain => {
                if let Some(offer) = self.transfer.incoming.take_paused() {
                    self.on_transfer_offer(ctx, offer);
                }
            }
            Due::Leftovers => {
                if self.config.record().is_some_and(|record| record.in_sync.contains(&self.identity.me)) {
                    self.transfer.incoming.clear_leftovers();
                    if let Err(error) = self.data.stop_receiving() {
                        self.fail(ctx, error);
                    }
                }
            }
        }
    }

    /// The set is the engine's state. Where the log does not hold its position, the log begins there (PR-35).
    fn take_over(&mut self, ctx: &mut Ctx) {
        let Some((offer, mut history)) = self.transfer.incoming.finish() else { return };
        // Of its own term, the newest, the primary has all that there is (R9).
        let common = self.data.log.common_with(&history, Lsn::MAX);
        let at = offer.at;
        self.data.sessions.forget();
        // True if the log here goes on from the primary's position.
        let follows = !self.identity.rules.logs_meet_the_files() && at.lsn <= self.data.log.end().lsn;
        let agrees = !self.is_damaged() && (self.data.log.holds(at) || follows);
        if agrees {
            self.data.marks.commit(at.lsn, self.data.log.end().lsn);
            self.data.marks.secure(at.lsn);
        } else {
            self.data.truncate_aside(common, ctx.out);
            let in_both = if self.is_damaged() { Lsn::ZERO } else { common };
            self.data.log.lower_durable(in_both);
            self.data.engine.discard_above(at);
            history.truncate(at.lsn);
            self.data.rebase(at, offer.at_crc, history, ctx.out);
        }
        if self.is_damaged() {
            self.role.becomes(Role::Backup(Backup::new(ctx.settings.resend)));
        }
        if let Some(backup) = self.role.backup_mut() {
            match agrees {
                true => backup.acks.agrees(at.lsn),
                false => backup.begin_at(at.lsn),
            }
        }
        let catching_up = self.config.is_catching_up(&self.identity.me);
        let whole = self.transfer.failback.wants_all(ctx.settings, catching_up);
        self.transfer.failback.given(whole);
        self.receiver(ctx).send_installed(&offer, Outcome::Installed);
    }
}
