//! The state on its way to this replica, beside its log, its readers and its role: what is taken in, installed, and taken over.

use crate::backup::Backup;
use crate::output::{Origin, Output};
use crate::replica::{Ctx, Replica, Role};
use crate::transfer::files_in::Due;
use crate::transfer::receive::{ReceiveError, Received, Receiver};
use types::engine::Wake;
use types::{EngineError, Epoch, Lsn, Micros};
use wire::ship::{Chunk, Outcome, TransferOffer};

impl Replica {
    /// True if everything is to be sent, whatever is here.
    pub(crate) fn wants_all(&self, ctx: &Ctx) -> bool {
        self.transfer.failback.wants_all(ctx.settings, self.config.is_catching_up(&self.me))
    }

    fn receiver<'a>(&'a mut self, ctx: &'a mut Ctx) -> Receiver<'a> {
        let wants_all = self.wants_all(ctx);
        let epoch = self.config.record().map_or(Epoch::ZERO, |record| record.epoch);
        Receiver {
            files: &mut self.transfer.incoming,
            engine: self.engine.shipping_mut(),
            failback: &mut self.transfer.failback,
            origin: Origin { partition: self.id, epoch, me: self.me },
            now: ctx.now.mono,
            wants_all,
            names_position: self.rules.copies_name_their_position(),
            out: ctx.out,
        }
    }

    /// A primary has files for this replica.
    pub(crate) fn on_transfer_offer(&mut self, ctx: &mut Ctx, offer: TransferOffer) {
        let Some(record) = self.config.record() else { return };
        let ours = offer.epoch == record.epoch && offer.from == record.primary;
        let able = match &self.role {
            Role::Backup(_) => true,
            Role::Damaged(_) => self.awaits_copy(ctx),
            Role::Idle | Role::Leader(_) => false,
        };
        if !ours || !able || !record.holds(&self.me) {
            return;
        }
        // True if what is published here follows the state that is offered (R3).
        let at = offer.at;
        let fits = at.lsn >= self.engine.published().lsn || !self.is_damaged() && self.log.holds(at);
        let done = self.receiver(ctx).offered(offer, fits);
        self.receive_on(ctx, done.map(|()| Received::Nothing));
    }

    /// A piece of a file arrives.
    pub(crate) fn on_chunk(&mut self, ctx: &mut Ctx, chunk: &Chunk) {
        let done = self.receiver(ctx).chunk(chunk);
        self.receive_on(ctx, done);
    }

    /// Goes on with the installation. True if it is to be called again when `wake` was.
    pub(crate) fn install(&mut self, ctx: &mut Ctx, wake: &Wake) -> bool {
        let done = self.receiver(ctx).install(wake);
        let waits = matches!(done, Ok(Received::Installing));
        self.receive_on(ctx, done);
        waits
    }

    /// Files that came so far are given up.
    pub(crate) fn stop_receiving(&mut self) -> Result<(), EngineError> {
        self.engine.shipping_mut().map_or(Ok(()), |files| files.stop_receiving())
    }

    /// What follows from what was received. Want of room ends it, for now: what came stays, and the primary offers again after
    /// a while.
    fn receive_on(&mut self, ctx: &mut Ctx, done: Result<Received, ReceiveError>) {
        let asked = match done {
            Ok(Received::Nothing | Received::Installing) => Ok(()),
            Ok(Received::Installed) => return self.take_over(ctx),
            Ok(Received::Taken) => self.receiver(ctx).ask(),
            Ok(Received::MayBeWhole) => {
                self.install_if_whole(ctx);
                self.receiver(ctx).ask()
            }
            Err(error) => Err(error),
        };
        match asked {
            Ok(()) => {}
            Err(ReceiveError::Stopping(error)) => self.fail(ctx, error.to_string()),
            Err(ReceiveError::Receiving(error)) => {
                self.transfer.incoming.forget();
                match error {
                    EngineError::Full(_) => {
                        let what = format!("files cannot be received: {error}");
                        ctx.out.push(Output::Notice { partition: self.id, what });
                    }
                    _ => self.fail(ctx, format!("it cannot take in files: {error}")),
                }
            }
        }
    }

    /// What the primary never had is set aside before its files are installed (R9).
    fn install_if_whole(&mut self, ctx: &mut Ctx) {
        let incoming = &self.transfer.incoming;
        let Some((at, history)) = incoming.installable(ctx.now.mono, self.readers.lowest()) else { return };
        let common = self.log.common_with(history, Lsn::MAX);
        if !self.is_damaged() && self.log.holds(at) || self.is_aside(ctx, common) {
            self.transfer.incoming.begin_installing();
            ctx.out.push(Output::Install { partition: self.id });
        }
    }

    /// Time has passed: what was lost is asked for again. A replica that counts needs nothing of what never was a whole set. One that
    /// has no place now may be taken in again, and goes on with what is here.
    pub(crate) fn receive_tick(&mut self, ctx: &mut Ctx) {
        let patience = Micros(ctx.settings.resend.0 * 20);
        match self.transfer.incoming.due(ctx.now.mono, patience) {
            Due::Nothing => {}
            Due::Install => self.install_if_whole(ctx),
            Due::AskAgain => self.receiver(ctx).ask_again(),
            Due::Leftovers => {
                if self.config.record().is_some_and(|record| record.in_sync.contains(&self.me)) {
                    self.transfer.incoming.clear_leftovers();
                    if let Err(error) = self.stop_receiving() {
                        self.fail(ctx, error.to_string());
                    }
                }
            }
        }
    }

    /// The set is the engine's state. Where the log does not hold its position, the log begins there (PR-35).
    fn take_over(&mut self, ctx: &mut Ctx) {
        let Some((offer, mut history)) = self.transfer.incoming.finish() else { return };
        // Of its own term, the newest, the primary has all that there is (R9).
        let common = self.log.common_with(&history, Lsn::MAX);
        let at = offer.at;
        // True if the log here goes on from the primary's position.
        let agrees = !self.is_damaged() && self.log.holds(at);
        if agrees {
            self.marks.commit(at.lsn, self.log.end().lsn);
            self.marks.secure(at.lsn);
        } else {
            self.cut_aside(ctx, common);
            let in_both = if self.is_damaged() { Lsn::ZERO } else { common };
            self.log.lower_durable(in_both);
            self.engine.discard_above(at);
            history.truncate(at.lsn);
            self.rebase(ctx, at, offer.at_crc, history);
        }
        if self.is_damaged() {
            self.role.becomes(Role::Backup(Backup::new(ctx.settings.resend)));
        }
        if let Some(backup) = self.role.backup_mut() {
            match agrees {
                true => backup.acks.agrees(at.lsn),
                false => backup.acks.begin_at(at.lsn),
            }
        }
        let whole = self.wants_all(ctx);
        self.transfer.failback.given(whole);
        self.receiver(ctx).send_installed(&offer, Outcome::Installed);
    }
}
