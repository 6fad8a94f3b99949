//! Bulk loads ([`crate::features::bulk`]) between a primary and its members.

use crate::answer::Answer;
use crate::context::Ctx;
use crate::features::bulk::{OURS, PIECE, pieces_of_ours, stage_of_ours};
use crate::output::Output;
use crate::replica::{Replica, Role};
use crate::serve::stage::take_staging;
use types::Lsn;
use wire::PeerMessage;
use wire::bulk::StageAnswer;
use wire::peer::AppendRefused;

impl Replica {
    /// Time has passed: who waits for members that do not answer, and what nobody wants.
    pub(crate) fn loads_tick(&mut self, ctx: &mut Ctx) {
        let (now, unasked) = (ctx.now.mono, ctx.settings.load_unasked);
        let late = match self.data.loads.tick(self.data.engine.as_mut(), now, unasked) {
            Ok(late) => late,
            Err(error) => return self.fail(ctx, error),
        };
        let why = "a replica that counts does not say how far it is with the load";
        for (to, request) in late {
            self.give(ctx, to, &request, Answer::not_yet(why));
        }
    }

    /// The primary has files staged here, sends pieces of them, or wants them no more.
    pub(crate) fn on_staging(&mut self, ctx: &mut Ctx, message: &PeerMessage) {
        let (from, epoch) = match message {
            PeerMessage::StageLoad(stage) => (stage.from, stage.epoch),
            PeerMessage::StagePiece(piece) => (piece.from, piece.epoch),
            PeerMessage::Unstage(unstage) => (unstage.from, unstage.epoch),
            _ => return,
        };
        let ours = self.config.record().is_some_and(|record| record.primary == from && record.epoch == epoch);
        let Some(origin) = self.config.origin(self.identity).filter(|_| ours && self.role.is_whole_backup())
        else {
            return;
        };
        if let Err(error) = take_staging(&mut self.data, origin, ctx.now.mono, message, ctx.out) {
            self.fail(ctx, error);
        }
    }

    /// How far a member is. One that was refused goes on with what this replica stages there by itself.
    pub(crate) fn on_stage_answer(&mut self, ctx: &mut Ctx, told: StageAnswer) {
        let (Role::Leader(_), Some(origin)) = (&self.role, self.config.origin(self.identity)) else { return };
        if told.number == OURS {
            let most = ctx.settings.copy_bytes.clamp(1, PIECE);
            if let Err(error) = pieces_of_ours(self.data.engine.as_mut(), &origin, &told, most, ctx.out) {
                self.fail(ctx, error);
            }
            return;
        }
        let load = told.load;
        if self.data.loads.hear(told) {
            self.answer_staged(ctx, load);
        }
    }

    /// A member lacks the files that an entry names. If this replica's own files have them, it is given
    /// those.
    pub(crate) fn on_unstaged(&mut self, ctx: &mut Ctx, refused: &AppendRefused, lsn: Lsn) {
        let from = refused.from;
        if self.role.progress(&from).is_none_or(|progress| !progress.is_current(refused.number)) {
            return;
        }
        let counts = self.leading_mut().is_some_and(|(leader, view)| leader.cannot_go_on(&view, &from));
        let (origin, engine) = (self.config.origin(self.identity), self.data.engine.as_ref());
        let Some(progress) = self.role.progress(&from) else { return };
        if engine.persisted().lsn >= lsn {
            self.send(ctx, from, |sender| sender.start_copy());
        } else if counts {
            progress.health.taint();
        } else {
            progress.pause(ctx.now.mono);
            // The entry may have to wait for this very member: it is given the load's files from here.
            let load = self.data.loads.named_at(lsn).zip(origin);
            let message = load.and_then(|(load, origin)| stage_of_ours(engine, &origin, load));
            ctx.out.extend(message.map(|message| Output::Send { to: from, message }));
        }
    }
}
