//! What ends by itself: replies that nobody waits for any more, and sessions that nobody uses.

use crate::output::Output;
use crate::replica::{Ctx, Replica};
use crate::session;
use types::Micros;
use wire::entry::Kind;
use wire::{Entry, Status};

impl Replica {
    /// Ends what clients do not wait for any more: "outcome unknown", and nothing else changes (F03).
    pub(crate) fn expire(&mut self, ctx: &mut Ctx) {
        let (now, partition) = (ctx.now.mono, self.id);
        let Some(leader) = self.leader() else { return };
        for waiting in leader.replies.expire(now) {
            let mut reply = waiting.reply;
            reply.status = Status::Unknown("not committed in time; it may be later".into());
            let (to, reply) = (waiting.to, Box::new(reply));
            ctx.out.push(Output::Reply { partition, to, reply, valid_until: None });
        }
    }

    /// Expires sessions that nobody used for long, by an entry that every replica applies (PR-46).
    pub(crate) fn expire_sessions(&mut self, ctx: &mut Ctx) {
        let (now, ttl) = (ctx.now, ctx.settings.session_ttl);
        let Some(leader) = self.leader() else { return };
        if !leader.takes_requests() || now.mono.since(leader.sessions_checked) < Micros(ttl.0 / 16) {
            return;
        }
        leader.sessions_checked = now.mono;
        let Ok(expired) = session::idle(self.engine.as_ref(), now.wall_ms, ttl.as_millis()) else { return };
        if expired.is_empty() {
            return;
        }
        let header = self.next_header(ctx, Kind::SessionExpire);
        let entry = Entry::encode(header, &session::encode_expired(&expired));
        if let Err(unfit) = self.append(ctx, entry) {
            self.fail(ctx, unfit.reason());
        }
    }
}
