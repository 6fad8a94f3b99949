//! A new configuration arrives (R1, R2): step up, step down, or go on in it.

use crate::backup::Backup;
use crate::output::{LogOp, Output};
use crate::primary::Primary;
use crate::primary::promotion::Promotion;
use crate::replica::{Ctx, Replica, Role};
use types::{Epoch, Lsn, Micros, PartitionRecord};
use wire::request::{Hint, Status};

impl Replica {
    /// Takes in a record that a compare-and-set has written. Older ones, and the same again, change nothing.
    pub(crate) fn configure(&mut self, ctx: &mut Ctx, record: PartitionRecord) {
        let known = self.config.record().map_or(Epoch::ZERO, |known| known.epoch);
        if record.id != self.id || record.epoch <= known || record.validate().is_err() {
            return;
        }
        let first = self.config.record().is_none();
        ctx.leases.know(self.id, record.term);
        ctx.out.push(Output::Log(LogOp::Promise { partition: self.id, epoch: record.epoch }));
        let same_term = matches!(&self.role, Role::Leader(leader) if record.primary == self.me && leader.term == record.term);
        let old = self.config.replace(record.clone(), ctx.now.mono);
        let same_term_as_before = old.as_ref().is_some_and(|old| old.term == record.term);
        self.transfer.reconsider(ctx.now.mono, &record, &self.me, same_term_as_before);
        if same_term {
            self.go_on(ctx, &record);
        } else if record.primary == self.me {
            self.step_up(ctx, &record, first);
        } else if record.holds(&self.me) {
            self.follow(ctx, &record, old.as_ref());
        } else {
            self.retire(ctx);
        }
    }

    /// Still the primary of the same term, in another set.
    fn go_on(&mut self, ctx: &mut Ctx, record: &PartitionRecord) {
        let Some(leader) = self.leader() else { return };
        leader.go_on(ctx.now.mono, record);
        self.advance(ctx);
    }

    /// The first configuration of a term of this replica: R6 begins.
    fn step_up(&mut self, ctx: &mut Ctx, record: &PartitionRecord, first: bool) {
        if self.is_damaged() {
            return;
        }
        let fresh_at = self.fresh_at(ctx);
        self.step_down(ctx, "another term begins");
        let now = ctx.now.mono;
        let handed_over = record.before.as_ref().is_some_and(|term| term.handed_over);
        let wait_until =
            if handed_over { Micros::ZERO } else { ctx.leases.promised_until(self.id, record.term) };
        // A partition's very first term has nobody before it.
        let wait_until = if record.before.is_none() { Micros::ZERO } else { wait_until };
        ctx.leases.lead(self.id, Some(record.term));
        let mut leader = Primary::begin(now, record, Promotion::begin(now, wait_until, fresh_at));
        // PR-01 without its rule: the process takes its old term up again as if nothing had been.
        if first
            && !self.rules.restarts_lead_nothing()
            && self.log.history().term_at(Lsn::MAX) == Some(record.term)
        {
            leader.promotion.resume();
            self.marks.commit(self.log.end().lsn, self.log.end().lsn);
        }
        self.role.becomes(Role::Leader(Box::new(leader)));
        self.collect_reports(ctx);
    }

    fn follow(&mut self, ctx: &mut Ctx, record: &PartitionRecord, old: Option<&PartitionRecord>) {
        ctx.leases.lead(self.id, None);
        self.step_down(ctx, "another replica leads");
        let same_term = old.is_some_and(|old| old.term == record.term);
        if !same_term {
            self.abandon_copy(ctx);
        }
        match &mut self.role {
            Role::Backup(_) if same_term => {}
            // It stays so until a copy comes: what is in its log may be nowhere else (R9).
            Role::Damaged(_) => {}
            role => role.becomes(Role::Backup(Backup::new(ctx.settings.resend))),
        }
    }

    /// Half a copy is no state at all: nobody else can complete it.
    fn abandon_copy(&mut self, ctx: &mut Ctx) {
        if self.copying() {
            let end = self.log.end().lsn;
            self.start_over(ctx, end);
        }
    }

    /// Not a member any more. The data stay until a driver removes them or the partition is taken up again.
    fn retire(&mut self, ctx: &mut Ctx) {
        ctx.leases.lead(self.id, None);
        self.step_down(ctx, "this replica left the partition");
        self.abandon_copy(ctx);
        if !self.is_damaged() {
            self.role.becomes(Role::Idle);
        }
    }

    /// Stops leading. What waits is answered with "unknown": it may yet be part of the new primary's log (N7).
    pub(crate) fn step_down(&mut self, ctx: &mut Ctx, why: &str) {
        let hint = self.config.record().map(|record| Box::new(Hint::new(record)));
        let partition = self.id;
        let waiting = self.features.loads.stop();
        self.refuse_loads(ctx, waiting, &Status::NotPrimary);
        let Some(leader) = self.leader() else { return };
        for waiting in leader.replies.drain() {
            let mut reply = waiting.reply;
            reply.status = Status::Unknown(format!("the primary changed: {why}"));
            reply.hint = hint.clone();
            let (to, reply) = (waiting.to, Box::new(reply));
            ctx.out.push(Output::Reply { partition, to, reply, valid_until: None });
        }
        ctx.leases.lead(self.id, None);
        self.role.becomes(Role::Idle);
    }
}
