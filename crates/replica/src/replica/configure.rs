//! A new configuration arrives (R1, R2): step up, step down, or go on in it.

use crate::answer::Answer;
use crate::backup::Backup;
use crate::context::Ctx;
use crate::damage::Fault;
use crate::output::Output;
use crate::primary::Primary;
use crate::primary::promotion::Promotion;
use crate::replica::{Replica, Role, row_turns};
use types::{Epoch, Lsn, Micros, PartitionRecord};
use wire::log::Record;
use wire::request::{Hint, Status};

impl Replica {
    /// Takes in a record that a compare-and-set has written. Older ones, and the same again, change nothing.
    pub(crate) fn configure(&mut self, ctx: &mut Ctx, record: PartitionRecord) {
        let known = self.config.record().map_or(Epoch::ZERO, |known| known.epoch);
        if record.id != self.identity.id || record.epoch <= known || record.validate().is_err() {
            return;
        }
        let first = self.config.record().is_none();
        ctx.leases.know(self.identity.id, record.term);
        ctx.out.push(Output::Log(Record::Promise { partition: self.identity.id, epoch: record.epoch }));
        let same_term = matches!(&self.role, Role::Leader(leader) if record.primary == self.identity.me && leader.term == record.term);
        let old = self.config.replace(record.clone(), ctx.now.mono);
        self.data.log.keep_in(record.policy.log);
        self.data.note_primary(&record);
        let same_term_as_before = old.as_ref().is_some_and(|old| old.term == record.term);
        self.transfer.reconsider(ctx.now.mono, &record, &self.identity.me, same_term_as_before);
        if same_term {
            let Some(leader) = self.role.leader_mut() else { return };
            leader.go_on(ctx.now.mono, &record);
            self.advance(ctx);
        } else if record.primary == self.identity.me {
            self.step_up(ctx, &record, first);
        } else {
            self.follow(ctx, &record, same_term_as_before);
        }
    }

    /// The first configuration of a term of this replica: R6 begins.
    fn step_up(&mut self, ctx: &mut Ctx, record: &PartitionRecord, first: bool) {
        if self.is_damaged() {
            return;
        }
        if self.role.is_copying() {
            // An operator made it lead, and nobody else can complete it (PR-231).
            return self.fail(ctx, Fault::Engine("it was to lead with half a copy".into()));
        }
        let led_at = self.leading().map_or(Micros::ZERO, |(primary, view)| primary.led_at(&view, ctx));
        let fresh_at = self.role.fresh_at(led_at);
        self.step_down(ctx, "another term begins");
        let now = ctx.now.mono;
        let handed_over = record.before.as_ref().is_some_and(|term| term.handed_over);
        let wait_until =
            if handed_over { Micros::ZERO } else { ctx.leases.promised_until(self.identity.id, record.term) };
        // A partition's very first term has nobody before it.
        let waits = record.before.is_some() && self.identity.rules.old_leases_end_first();
        let wait_until = if waits { wait_until } else { Micros::ZERO };
        ctx.leases.lead(self.identity.id, Some(record.term));
        let mut leader = Primary::begin(now, record, Promotion::begin(now, wait_until, fresh_at));
        // PR-01 without its rule: the process takes its old term up again as if nothing had been.
        if first
            && !self.identity.rules.restarts_lead_nothing()
            && self.data.log.history().term_at(Lsn::MAX) == Some(record.term)
        {
            leader.promotion.resume();
            self.data.marks.commit(self.data.log.end().lsn, self.data.log.end().lsn);
        }
        self.role.becomes(Role::Leader(Box::new(leader)));
        self.reconcile(ctx, true);
    }

    /// Another replica leads. One that is not a member any more keeps its data until a driver removes them or
    /// the partition is taken up again.
    fn follow(&mut self, ctx: &mut Ctx, record: &PartitionRecord, same_term: bool) {
        let member = record.holds(&self.identity.me);
        ctx.leases.lead(self.identity.id, None);
        self.step_down(ctx, if member { "another replica leads" } else { "this replica left the partition" });
        let goes_on = member && same_term;
        if !goes_on && self.role.is_copying() {
            // Half a copy is no state at all: nobody else can complete it.
            let end = self.data.log.end().lsn;
            self.start_over(ctx, end);
        }
        match &mut self.role {
            Role::Backup(_) if goes_on => {}
            Role::Damaged(_) => {}
            role if member => role.becomes(Role::Backup(Backup::new(ctx.settings.resend))),
            role => role.becomes(Role::Idle),
        }
    }

    /// Stops leading. What waits is answered with "unknown": it may yet be part of the new primary's log
    /// (N7). The hint beside it tells clients that whoever leads next can say more (PR-372).
    pub(crate) fn step_down(&mut self, ctx: &mut Ctx, why: &str) {
        let hint = self.config.record().map(|record| Box::new(Hint::new(record)));
        let partition = self.identity.id;
        let waiting = self.data.loads.stop();
        for (to, request) in waiting {
            self.give(ctx, to, &request, Answer::only(Status::NotPrimary));
        }
        row_turns::end_turns(self, ctx);
        let Some(leader) = self.role.leader_mut() else { return };
        for waiting in leader.replies.drain() {
            let mut reply = waiting.reply;
            reply.status = Status::Unknown(format!("the primary changed: {why}"));
            reply.hint = hint.clone();
            let (to, reply) = (waiting.to, Box::new(reply));
            ctx.out.push(Output::Reply { partition, to, reply, valid_until: None });
        }
        ctx.leases.lead(self.identity.id, None);
        self.role.becomes(Role::Idle);
    }
}
