//! The primary's side of replication: what each member has, what is sent to it, and how far commits reach.

use crate::output::{Output, ReadFor};
use crate::primary::progress::{Mode, Progress};
use crate::primary::reply_queue::AckCondition;
use crate::replica::{Ctx, Replica, Role};
use crate::transfer::failback::kept_for_absent;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use types::{LogKind, Lsn, Member, Micros, Policy, Position, Term, Watermarks};
use wire::control::RecordText;
use wire::peer::{Ack, Append, Inform, ReportRequest};
use wire::{Entry, PeerMessage};

impl Replica {
    /// Sends what is due to every member. Called after each batch of inputs, so that appends coalesce.
    pub(crate) fn ship(&mut self, ctx: &mut Ctx) {
        let Role::Leader(leader) = &self.role else { return };
        let marked = leader.promotion.marker().is_some();
        let members: Vec<Member> = leader.members.keys().copied().collect();
        let mut cached: Option<(Lsn, Lsn, Bytes)> = None;
        for member in members {
            let Some(progress) = self.progress(member) else { continue };
            match &progress.mode {
                Mode::Probe { asked_at } if ctx.now.mono.since(*asked_at) >= ctx.settings.resend => {
                    progress.mode = Mode::Probe { asked_at: ctx.now.mono };
                    self.ask_report(ctx, member);
                }
                Mode::Stream if marked => {
                    self.ship_to(ctx, member, &mut cached);
                    self.send_state(ctx, member, |sender| sender.deliver());
                }
                Mode::Copying(_) => {
                    self.send_state(ctx, member, |sender| sender.copy_on());
                }
                Mode::Shipping => {
                    self.send_state(ctx, member, |sender| sender.ship_on());
                }
                _ => {}
            }
        }
    }

    pub(crate) fn ask_report(&self, ctx: &mut Ctx, member: Member) {
        let Some(record) = self.config.record() else { return };
        let inform = Inform { partition: self.id, record: RecordText::new(record) };
        let request = ReportRequest { partition: self.id, epoch: record.epoch, from: self.me };
        ctx.out.push(Output::Send { to: member, message: PeerMessage::Inform(inform) });
        ctx.out.push(Output::Send { to: member, message: PeerMessage::ReportRequest(request) });
    }

    pub(crate) fn progress(&mut self, member: Member) -> Option<&mut Progress> {
        self.leader()?.members.get_mut(&member)
    }

    fn ship_to(&mut self, ctx: &mut Ctx, member: Member, cached: &mut Option<(Lsn, Lsn, Bytes)>) {
        loop {
            let (end, log_base) = (self.log.end().lsn, self.log.base().lsn);
            let tail_base = self.log.tail().base().lsn;
            let Some(progress) = self.progress(member) else { return };
            let next = progress.flight.next();
            if next > end || progress.flight.bytes() >= ctx.settings.window_bytes {
                return;
            }
            let prev = next.prev();
            if prev < tail_base
                || self.log.tail().at(prev).is_some_and(|(_, crc)| crc == 0 && prev != Lsn::ZERO)
            {
                if prev < log_base {
                    return self.start_copy(ctx, member);
                }
                // The entry before is read too: its checksum goes into the append.
                let progress = self.progress(member).expect("a member");
                progress.mode = Mode::Reading { since: ctx.now.mono };
                ctx.out.push(Output::ReadLog {
                    partition: self.id,
                    from: if prev > log_base { prev } else { next },
                    max_bytes: ctx.settings.append_bytes,
                    purpose: ReadFor::Ship(member),
                });
                return;
            }
            let (prev, prev_crc) = self.log.tail().at(prev).expect("in memory");
            let (last, bytes) = match cached {
                Some((from, last, bytes)) if *from == next => (*last, bytes.clone()),
                _ => {
                    let (last, bytes) = join(self.log.tail().run(next, ctx.settings.append_bytes));
                    *cached = Some((next, last, bytes.clone()));
                    (last, bytes)
                }
            };
            self.send_append(ctx, member, (prev, prev_crc), bytes, last);
        }
    }

    /// Sends one append; `last` is the LSN of its last entry, or `prev`'s if it is empty.
    fn send_append(
        &mut self,
        ctx: &mut Ctx,
        member: Member,
        prev: (Position, u32),
        entries: Bytes,
        last: Lsn,
    ) {
        let Some(record) = self.config.record() else { return };
        let (epoch, committed, secured, log_floor) =
            (record.epoch, self.marks.committed(), self.marks.publishable(), self.marks.log_floor());
        let (id, me, now, led_at) = (self.id, self.me, ctx.now.mono, self.led_at(ctx));
        let Some(progress) = self.progress(member) else { return };
        let append = Append {
            partition: id,
            epoch,
            from: me,
            number: progress.flight.send(now, last, entries.len()),
            prev: prev.0,
            prev_crc: prev.1,
            committed,
            secured,
            log_floor,
            sent_us: now.0,
            echo_us: progress.acks.tell(led_at),
            entries,
        };
        ctx.out.push(Output::Send { to: member, message: PeerMessage::Append(append) });
    }

    /// Tells members the positions when nothing else does: the heartbeat of the commit path (F18, PR-27).
    pub(crate) fn tell_positions(&mut self, ctx: &mut Ctx) {
        let committed = self.marks.committed();
        let Some(leader) = self.leader() else { return };
        if leader.promotion.marker().is_none() {
            return;
        }
        let (told_at, told) = leader.told;
        let due = ctx.now.mono.since(told_at) >= Micros(ctx.settings.heartbeat.0 * 5);
        if !due && told == committed {
            return;
        }
        leader.told = (ctx.now.mono, committed);
        let streaming: Vec<(Member, Lsn)> = leader
            .members
            .iter()
            .filter(|(_, progress)| matches!(progress.mode, Mode::Stream))
            .map(|(member, progress)| (*member, progress.flight.next().prev()))
            .collect();
        for (member, prev) in streaming {
            if let Some((position, crc)) = self.log.tail().at(prev) {
                self.send_append(ctx, member, (position, crc), Bytes::new(), prev);
            }
        }
    }

    /// Entries came back from the log.
    pub(crate) fn on_log_read(
        &mut self,
        ctx: &mut Ctx,
        purpose: ReadFor,
        entries: Result<Vec<Entry>, String>,
    ) {
        match purpose {
            ReadFor::Ship(member) => self.ship_read(ctx, member, entries),
            ReadFor::Fetch(fetch) => self.fetch_read(ctx, &fetch, entries),
            ReadFor::Replay { from } => self.replay_read(ctx, from, entries),
            ReadFor::Aside { from } => self.aside_read(ctx, from, entries),
            ReadFor::Scrub { from } => {
                let bounds = (self.log.base().lsn, self.log.end().lsn);
                self.features.scrub.log_read(bounds, from, entries);
            }
        }
    }

    fn ship_read(&mut self, ctx: &mut Ctx, member: Member, entries: Result<Vec<Entry>, String>) {
        let Some(progress) = self.progress(member) else { return };
        if !matches!(progress.mode, Mode::Reading { .. }) {
            return;
        }
        progress.mode = Mode::Stream;
        let next = progress.flight.next();
        let Ok(entries) = entries else { return self.start_copy(ctx, member) };
        let before = entries.iter().take_while(|entry| entry.lsn() < next).last().map(|e| (e.at(), e.crc()));
        let rest: Vec<&Entry> = entries.iter().skip_while(|entry| entry.lsn() < next).collect();
        let first = rest.first().map(|entry| (entry.lsn(), entry.header().prev_crc));
        let before = before.or_else(|| {
            let (_, crc) = first.filter(|(lsn, _)| *lsn == next)?;
            let term = self.log.history().term_at(next.prev()).unwrap_or(self.log.base().term);
            let term = if next.prev() == Lsn::ZERO { Term::ZERO } else { term };
            Some((Position::new(term, next.prev()), crc))
        });
        let (Some(prev), Some(_)) = (before, first) else { return self.start_copy(ctx, member) };
        let (last, bytes) = join(rest.into_iter());
        self.send_append(ctx, member, prev, bytes, last);
    }

    /// A member's progress.
    pub(crate) fn on_ack(&mut self, ctx: &mut Ctx, ack: &Ack) {
        let Some(record) = self.config.record() else { return };
        let (epoch, policy, end) = (record.epoch, record.policy.clone(), self.log.end().lsn);
        let regress = self.rules.torn_ends_are_reported();
        let Some(leader) = self.leader() else { return };
        if ack.epoch < leader.term.began() || ack.epoch > epoch || ack.marks.received > end {
            return;
        }
        let Some(progress) = leader.members.get_mut(&ack.from) else { return };
        if !progress.flight.takes_ack(ack.number) {
            return;
        }
        let back = progress.raise(&ack.marks);
        let newest = progress.acks.note(ctx.now.mono, ack.sent_us);
        if back && newest && regress {
            progress.health.taint();
        }
        progress.flight.acknowledged(done(&policy, &progress.marks));
        // Level: nothing is missing but what is on its way right now.
        let level = progress.marks.received.0 + 4096 >= end.0 && progress.flight.bytes() < (1 << 20);
        progress.health.note_level(ctx.now.mono, level);
    }

    /// A new connection to a member: what was on its way is lost.
    pub(crate) fn on_connected(&mut self, member: Member) {
        if let Some(leader) = self.leader() {
            leader.membership.saw(member);
        }
        if let Some(progress) = self.progress(member) {
            match &mut progress.mode {
                Mode::Stream if progress.flight.next() > Lsn::ZERO => progress.again(),
                Mode::Copying(copy) => copy.resend(),
                _ => {}
            }
            if let Some(files) = &mut progress.files {
                files.resend();
            }
        }
    }

    /// Sends again what was not acknowledged in time: the network may have lost it. Notes who gets on.
    pub(crate) fn resend(&mut self, ctx: &mut Ctx) {
        let (now, patience) = (ctx.now.mono, Micros(ctx.settings.resend.0 * 5));
        let end = self.log.end().lsn;
        let Some(policy) = self.config.record().map(|record| record.policy.clone()) else { return };
        let Some(leader) = self.leader() else { return };
        let marked = leader.promotion.marker().is_some();
        for progress in leader.members.values_mut() {
            let done = done(&policy, &progress.marks);
            let busy = match &progress.mode {
                Mode::Reading { .. } | Mode::Copying(_) => true,
                Mode::Shipping => progress.files.as_ref().is_some_and(|files| files.is_alive(now)),
                Mode::Probe { .. } | Mode::Stream => false,
            };
            let durable = if policy.log == LogKind::Disk { progress.marks.durable } else { end };
            progress.health.observe(now, (done, durable), end, !marked || busy);
            match &progress.mode {
                Mode::Reading { since } if now.since(*since) > patience => progress.mode = Mode::Stream,
                Mode::Stream => {
                    let oldest = progress.flight.oldest();
                    let missing = progress.marks.received.next() < progress.flight.next();
                    if missing
                        && oldest.is_some_and(|at| now.since(at.max(progress.acks.came_at())) > patience)
                    {
                        progress.again();
                    }
                }
                _ => {}
            }
        }
    }

    /// Every other member that must have promised before this replica serves reads (PR-04, PR-06).
    pub(crate) fn lease_members(&self) -> BTreeSet<Member> {
        self.leading().map(|(primary, view)| primary.lease_members(&view)).unwrap_or_default()
    }

    /// Until when this primary's lease runs; `None`: nobody else could be promoted, so no end (PR-08).
    pub(crate) fn lease_until(&self, ctx: &Ctx) -> Option<Micros> {
        let Some((primary, view)) = self.leading() else { return Some(Micros::ZERO) };
        primary.lease_until(&view, ctx)
    }

    /// Moves `committed` and `secured` on and releases what they cover.
    pub(crate) fn advance(&mut self, ctx: &mut Ctx) {
        let Some((primary, view)) = self.leading() else { return };
        let (secured, kept) = primary.bounds(&view);
        let (end, keep_bytes) = (self.log.end().lsn, ctx.settings.failback_keep_bytes);
        let absent = match self.config.no_room() {
            true => Lsn::MAX,
            false => kept_for_absent(view.record, end, self.log.bytes_above(end.prev()), keep_bytes),
        };
        let kept = kept.min(absent);
        self.marks.secure(secured.min(self.log.end().lsn));
        self.marks.raise_log_floor(kept);
        let Some((primary, view)) = self.leading() else { return };
        let point = primary.commit_point(&view, ctx);
        let Role::Leader(leader) = &self.role else { return };
        let reached = leader.held_at(ctx.now.mono, self.marks.committed(), point);
        let (loads, engine, times) =
            (&mut self.features.loads, self.engine.as_mut(), (ctx.now.mono, ctx.settings.resend));
        let (point, flushes) = loads.bound(engine, &self.marks, leader.promotion.marker(), reached, times);
        if flushes {
            ctx.out.push(Output::Checkpoint { partition: self.id });
        }
        // Entries of older terms commit only with this term's marker (PR-12).
        let covered = match leader.promotion.marker() {
            Some(marker) => reached >= marker || !self.rules.markers_commit_first(),
            None => false,
        };
        if covered && point > self.marks.committed() {
            self.marks.commit(point, self.log.end().lsn);
        }
        self.publish(ctx);
        self.release(ctx);
        self.serve_if_ready(ctx);
    }

    /// Answers everyone for whom `committed`, and where it matters `secured`, has come far enough (N7, PR-82).
    pub(crate) fn release(&mut self, ctx: &mut Ctx) {
        let Some((primary, view)) = self.leading_mut() else { return };
        let secured = primary.told_secured(&view);
        let ready = primary.replies.release(view.committed, secured);
        if ready.is_empty() {
            return;
        }
        let alone = view.record.policy.rests_on().is_primary();
        let lease = primary.lease_until(&view, ctx);
        let count = ready.len() as u64;
        for mut waiting in ready {
            let valid_until = lease.filter(|_| alone || waiting.condition == AckCondition::Seen);
            waiting.reply.copies = primary.copies(&view, waiting.lsn);
            let (partition, reply) = (view.id, Box::new(waiting.reply));
            ctx.out.push(Output::Reply { partition, to: waiting.to, reply, valid_until });
        }
        self.commits += count;
    }
}

/// How far a member has come in what the policy needs of it; where it needs nothing, in memory.
fn done(policy: &Policy, marks: &Watermarks) -> Lsn {
    policy.reached(1, marks)
}

/// Entries as one run of bytes, with the LSN of the last.
fn join<'a>(entries: impl Iterator<Item = &'a Entry>) -> (Lsn, Bytes) {
    let mut out = BytesMut::new();
    let mut last = Lsn::ZERO;
    for entry in entries {
        out.extend_from_slice(entry.bytes());
        last = entry.lsn();
    }
    (last, out.freeze())
}
