//! What a primary hears of its members, what it tells them of the positions, and which replies go.

use crate::answer::AckCondition;
use crate::context::Ctx;
use crate::data::Data;
use crate::output::{Origin, Output};
use crate::primary::{Primary, View};
use crate::settings::Settings;
use crate::transfer::flush::answer_flush;
use types::{Lsn, Member, Micros, PartitionId, PartitionRecord, Policy, Position, Watermarks};
use wire::Status;
use wire::peer::Ack;
use wire::ship::FlushRequest;

impl Primary {
    /// A member's progress.
    pub fn on_ack(&mut self, view: &View, now: Micros, ack: &Ack) {
        let end = view.marks.received;
        if ack.epoch < self.term.began() || ack.epoch > view.record.epoch || ack.marks.received > end {
            return;
        }
        let Some(progress) = self.members.get_mut(&ack.from) else { return };
        if !progress.flight.takes_ack(ack.number) {
            return;
        }
        let back = progress.raise(&ack.marks);
        let newest = progress.acks.note(now, ack.sent_us);
        if back && newest && view.rules.torn_ends_are_reported() {
            progress.health.taint();
        }
        progress.flight.acknowledged(done(&view.record.policy, &progress.marks));
        // Level: nothing is missing but what is on its way right now.
        let level = progress.marks.received.0 + 4096 >= end.0 && progress.flight.bytes() < (1 << 20);
        progress.health.note_level(now, level);
    }

    /// True if a call is to be shipped as such: the database says so, and a member that counts would make it
    /// itself.
    pub fn ships_calls(&self, record: &PartitionRecord, ctx: &Ctx) -> bool {
        let makes = |member: &Member| {
            let progress = self.members.get(member);
            progress.is_some_and(|progress| progress.flight.calls.are_made(ctx.now.mono, ctx.settings))
        };
        ctx.calling.contains(&record.table) && record.in_sync.iter().any(makes)
    }

    /// A new connection to a member: what was on its way is lost.
    pub fn on_connected(&mut self, member: Member) {
        self.membership.saw(member);
        if let Some(progress) = self.members.get_mut(&member) {
            progress.reconnected();
        }
    }

    /// Has what was not acknowledged in time sent again: the network may have lost it. Notes who gets on.
    pub fn resend(&mut self, view: &View, now: Micros, settings: &Settings) {
        let (patience, end, policy) =
            (Micros(settings.resend.0 * 5), view.marks.received, &view.record.policy);
        let marked = self.promotion.marker().is_some();
        for progress in self.members.values_mut() {
            let done = done(policy, &progress.marks);
            let durable = policy.synced(&progress.marks).unwrap_or(end);
            let excused = !marked || progress.is_busy(now);
            progress.health.observe(now, (done, durable), end, excused);
            progress.resend(now, patience);
        }
    }

    /// Members that are told the positions now because nothing else does, each with the entry that it has
    /// last: the heartbeat of the commit path (F18, PR-27).
    pub fn positions_due(&mut self, view: &View, now: Micros, every: Micros) -> Vec<(Member, Lsn)> {
        if self.promotion.marker().is_none() {
            return Vec::new();
        }
        let (told_at, told) = self.told;
        if now.since(told_at) < every && told == view.committed {
            return Vec::new();
        }
        self.told = (now, view.committed);
        let streaming = self.members.iter().filter(|(_, progress)| progress.streams());
        streaming.map(|(member, progress)| (*member, progress.flight.next().prev())).collect()
    }

    /// The last moment at which this primary surely led; zero before it serves.
    pub fn led_at(&self, view: &View, ctx: &Ctx) -> Micros {
        if !self.promotion.serves() {
            return Micros::ZERO;
        }
        match self.lease_until(view, ctx) {
            Some(until) if ctx.settings.rules.freshness_ends_with_the_lease() => {
                until.since(ctx.settings.lease)
            }
            Some(_) => ctx.now.mono,
            None => ctx.now.mono,
        }
    }

    /// Answers everyone for whom `committed`, and where it matters `secured`, has come far enough (N7,
    /// PR-82). Gives how many.
    pub fn release(&mut self, view: &View, ctx: &mut Ctx) -> u64 {
        let ready = self.replies.release(view.committed, self.told_secured(view));
        if ready.is_empty() {
            return 0;
        }
        let alone = view.record.policy.rests_on().is_primary();
        let lease = self.lease_until(view, ctx);
        let count = ready.len() as u64;
        for mut waiting in ready {
            let valid_until = lease.filter(|_| alone || waiting.condition == AckCondition::Seen);
            waiting.reply.copies = self.copies(view, waiting.lsn);
            let (partition, reply) = (view.id, Box::new(waiting.reply));
            ctx.out.push(Output::Reply { partition, to: waiting.to, reply, valid_until });
        }
        count
    }

    /// Ends what clients do not wait for any more: "outcome unknown", and nothing else changes (F03).
    pub fn expire(&mut self, partition: PartitionId, now: Micros, out: &mut Vec<Output>) {
        for waiting in self.replies.expire(now) {
            let mut reply = waiting.reply;
            reply.status = Status::Unknown("not committed in time; it may be later".into());
            let (to, reply) = (waiting.to, Box::new(reply));
            out.push(Output::Reply { partition, to, reply, valid_until: None });
        }
    }

    /// A member's log is too long, and it asks for a flush. Gives the answer, or what must be done first.
    pub fn on_flush_request(
        &mut self,
        data: &Data,
        origin: Origin,
        request: &FlushRequest,
    ) -> Option<Output> {
        let known = (self.term.began()..=origin.epoch).contains(&request.epoch);
        if !known || !self.promotion.serves() {
            return None;
        }
        let (persisted, published) = (data.engine.persisted(), data.engine.published());
        let progress = self.members.get_mut(&request.from)?;
        // Whatever became of the last offer, it comes again.
        if progress.files.is_none() {
            progress.delivered = Lsn::ZERO;
        }
        if persisted.lsn <= request.persisted && published.lsn > persisted.lsn {
            progress.wants_flush = true;
            return Some(Output::Checkpoint { partition: origin.partition });
        }
        Some(answer_flush(origin, request.from, persisted, request.persisted))
    }

    /// Answers those who waited for the end of a flush: files hold all up to `at`.
    pub fn answer_flushes(&mut self, origin: Origin, at: Position, out: &mut Vec<Output>) {
        for (member, progress) in &mut self.members {
            let theirs = progress.marks.persisted;
            if progress.wants_flush && theirs < at.lsn {
                progress.wants_flush = false;
                out.push(answer_flush(origin, *member, at, theirs));
            }
        }
    }

    /// True, every so often, if sessions are to be looked for that nobody used for `ttl`.
    pub fn checks_sessions(&mut self, now: Micros, ttl: Micros) -> bool {
        let due = self.takes_requests() && now.since(self.sessions_checked) >= Micros(ttl.0 / 16);
        if due {
            self.sessions_checked = now;
        }
        due
    }
}

/// How far a member has come in what the policy needs of it; where it needs nothing, in memory.
fn done(policy: &Policy, marks: &Watermarks) -> Lsn {
    policy.reached(1, marks)
}
