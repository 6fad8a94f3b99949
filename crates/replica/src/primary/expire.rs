//! What ends by itself: replies that nobody waits for any more, and sessions that nobody uses.

use crate::output::Output;
use crate::primary::serve::SCAN_BYTES;
use crate::replica::{Ctx, Replica};
use crate::session::{Session, session_of};
use types::engine::space;
use types::{Micros, ReadAt, SessionId};
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
        let Ok(rows) =
            self.engine.scan(&[space::SESSION], &[space::SESSION + 1], ReadAt::Applied, 10_000, SCAN_BYTES)
        else {
            return;
        };
        let idle =
            |value: &[u8]| Session::decode(value).is_ok_and(|s| s.touched_ms + ttl.as_millis() < now.wall_ms);
        let expired: Vec<SessionId> = rows
            .iter()
            .filter(|row| idle(&row.value))
            .filter_map(|row| session_of(&row.key))
            .take(1000)
            .collect();
        if expired.is_empty() {
            return;
        }
        let header = self.next_header(ctx, Kind::SessionExpire);
        let entry = Entry::encode(header, &crate::replica::state::encode_expired(&expired));
        if let Err(unfit) = self.append(ctx, entry) {
            self.fail(ctx, unfit.reason());
        }
    }
}
