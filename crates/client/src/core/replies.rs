//! What each reply means for its call, and for its session.

use super::pending::{Kind, ticket_of};
use super::{Core, Key, Waiter};
use crate::call::{Answer, FailKind, Loss, Outcome, Ticket};
use crate::session::{Phase, SessionRecovery};
use types::{Epoch, Lsn, Micros, NodeId, PartitionRecord, SessionId};
use wire::{ReadLevel, Reply, Status};

impl Core {
    /// A reply from a node.
    pub fn reply(&mut self, now: Micros, node: NodeId, reply: Reply) {
        self.heard(now, node);
        let ticket = ticket_of(reply.id);
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        let newest = pending.is_newest(reply.id);
        let decided = matches!(reply.status, Status::Ok | Status::Refused(_));
        // A refusal of an earlier attempt says nothing about the newest; its success is the call's.
        // What was sent under a number that the call has lost says nothing about it now.
        if reply.id <= pending.stale_id || (!newest && !decided) {
            return;
        }
        let goes_on = stepped_down(&reply);
        if newest {
            pending.flight = None;
            pending.maybe_done |= goes_on;
        }
        if self.leave_limbo(ticket) {
            return self.answered_in_limbo(now, ticket, reply);
        }
        let hint = reply.hint.as_ref().and_then(|hint| hint.record());
        match reply.status {
            Status::Ok | Status::Refused(_) if self.opens_nothing(ticket, &reply) => {
                let status = Status::NotYet("the node opened a session without a name".into());
                return self.not_done(now, ticket, status, hint);
            }
            Status::Ok | Status::Refused(_) => self.decided(now, ticket, reply),
            Status::Bad(why) => self.fail(now, ticket, FailKind::Bad, why),
            Status::TooOld(why) => self.fail(now, ticket, FailKind::TooOld, why),
            Status::NoIndex(why) => self.fail(now, ticket, FailKind::NoIndex, why),
            Status::Stale(why) => self.fail(now, ticket, FailKind::Stale, why),
            Status::Behind(newest) => {
                let why = word_of(&Status::Behind(newest));
                self.fail(now, ticket, FailKind::Behind(newest), why);
            }
            Status::Unknown(why) if self.pending[&ticket].kind == Kind::Write && !goes_on => {
                self.unknown(now, ticket, why)
            }
            Status::Expected(next) if self.pending[&ticket].kind == Kind::Write => {
                self.expected(now, ticket, next, reply.epoch);
            }
            status => return self.not_done(now, ticket, status, hint),
        }
        if let Some(record) = hint {
            self.adopt(now, record);
        }
    }

    /// True for an answer to an opening that names no session: nothing could be sent in it.
    fn opens_nothing(&self, ticket: Ticket, reply: &Reply) -> bool {
        let named = reply.status == Status::Ok && reply.lsn > Lsn::ZERO && reply.epoch > Epoch::ZERO;
        self.pending[&ticket].kind == Kind::Open && !named
    }

    fn decided(&mut self, now: Micros, ticket: Ticket, reply: Reply) {
        let pending = &self.pending[&ticket];
        let (kind, seq) = (pending.kind, pending.request().seq);
        let key: Key = (pending.request().partition, pending.lane);
        let status = reply.status.clone();
        let answer = Answer::of(reply);
        let position = answer.position();
        let outcome = match status {
            Status::Refused(why) => Outcome::Refused(why, answer),
            _ => Outcome::Ok(answer),
        };
        self.finish(now, ticket, outcome);
        if kind == Kind::Read {
            return;
        }
        let session = self.sessions.get_mut(&key).expect("a write on its way has a session");
        session.backoff.reset();
        session.used_at = now;
        if kind == Kind::Open {
            session.open(SessionId(position));
        } else {
            self.map.acknowledged(key.0, position);
            session.acknowledge(seq);
        }
        self.pump(now, key);
    }

    /// This attempt did nothing, or nobody can tell yet what it did ([`stepped_down`]); another may.
    fn not_done(&mut self, now: Micros, ticket: Ticket, status: Status, hint: Option<PartitionRecord>) {
        let pending = self.pending.get_mut(&ticket).expect("the caller looked it up");
        pending.last_word = word_of(&status);
        let seq = pending.request().seq;
        let key: Key = (pending.request().partition, pending.lane);
        let again = std::mem::replace(&mut pending.to_send, true);
        let (waiter, again) = match pending.kind {
            Kind::Read => (Waiter::Read(ticket), again),
            Kind::Open => (Waiter::Session(key), again),
            Kind::Write => {
                (Waiter::Session(key), self.sessions.get(&key).is_some_and(|session| session.is_unsent(seq)))
            }
        };
        if again {
            // It is to be sent again anyway, perhaps elsewhere; this answer is old news.
            if let Some(record) = hint {
                self.adopt(now, record);
            }
            return;
        }
        let lasting = softness(&status).filter(|kind| pending.soft_for(now, *kind) >= self.config.patience);
        if softness(&status).is_none() {
            pending.soft = None;
        }
        let leads_no_more = matches!(status, Status::NotPrimary | Status::Unknown(_));
        // Another member may know better who leads.
        let elsewhere = leads_no_more || matches!(status, Status::NotFound(_));
        let other_member =
            elsewhere || (pending.node.is_none() && pending.request().read != ReadLevel::Primary);
        if let Some(kind) = lasting {
            let word = pending.last_word.clone();
            return self.fail(now, ticket, kind, word);
        }
        // News of another primary has sent the call there already; if it names the same one, that node has
        // asked for it.
        let moved = hint.is_some_and(|record| self.adopt(now, record));
        if moved && leads_no_more {
            if let Waiter::Session(_) = waiter
                && self.pending.get(&ticket).is_some_and(|pending| pending.flight.is_none())
            {
                self.rewind(key);
            }
            return self.resume(now, waiter);
        }
        self.back_off(now, waiter, other_member);
    }

    /// The partition's map entry is missing: it may be new, so this is retried like a refusal that may pass.
    pub(super) fn unknown_partition(&mut self, now: Micros, waiter: Waiter) {
        let ticket = match waiter {
            Waiter::Read(ticket) => ticket,
            Waiter::Session(key) => match self.first_of(key) {
                Some(ticket) => ticket,
                None => return,
            },
        };
        let pending = self.pending.get_mut(&ticket).expect("waiting calls are pending");
        let sentence = format!("partition {} is not known to the cluster", pending.request().partition);
        pending.last_word = sentence.clone();
        if pending.soft_for(now, FailKind::NotFound) >= self.config.patience {
            self.fail(now, ticket, FailKind::NotFound, sentence);
        } else {
            self.back_off(now, waiter, false);
        }
    }

    /// The call that a session's others wait for.
    pub(super) fn first_of(&self, key: Key) -> Option<Ticket> {
        let session = self.sessions.get(&key)?;
        match session.phase {
            Phase::Opening(ticket) => Some(ticket),
            _ => session.unanswered().next().map(|(_, ticket)| ticket),
        }
    }

    /// Ends a call that was surely not done. An opening ends everything that waits for it.
    fn fail(&mut self, now: Micros, ticket: Ticket, kind: FailKind, why: String) {
        let pending = &self.pending[&ticket];
        let key: Key = (pending.request().partition, pending.lane);
        match pending.kind {
            Kind::Read => return self.finish(now, ticket, Outcome::Failed(kind, why)),
            Kind::Write => self.fail_write(now, ticket, kind, why),
            Kind::Open => {
                let session = self.sessions.get_mut(&key).expect("an opening belongs to a session");
                session.close();
                let queued = std::mem::take(&mut session.queue);
                self.pending.remove(&ticket);
                for waiting in queued {
                    self.finish(now, waiting, Outcome::Failed(kind, why.clone()));
                }
            }
        }
        self.pump(now, key);
    }

    fn fail_write(&mut self, now: Micros, ticket: Ticket, kind: FailKind, why: String) {
        let pending = &self.pending[&ticket];
        let key: Key = (pending.request().partition, pending.lane);
        let (seq, sure) = (pending.request().seq, pending.surely_not_done() || kind == FailKind::Bad);
        let session = self.sessions.get_mut(&key).expect("a numbered write has a session");
        if pending.surely_not_done() {
            session.take_back(seq);
        } else {
            session.give_up(seq);
        }
        let outcome = if sure { Outcome::Failed(kind, why) } else { Outcome::Unknown(why) };
        self.finish(now, ticket, outcome);
    }

    /// Nobody will ever tell what became of a write: its number is given up.
    fn unknown(&mut self, now: Micros, ticket: Ticket, why: String) {
        let pending = &self.pending[&ticket];
        let key: Key = (pending.request().partition, pending.lane);
        let seq = pending.request().seq;
        self.sessions.get_mut(&key).expect("a numbered write has a session").give_up(seq);
        self.finish(now, ticket, Outcome::Unknown(why));
        self.pump(now, key);
    }

    /// "Not done: the session's next number is `next`."
    fn expected(&mut self, now: Micros, ticket: Ticket, next: u64, epoch: Epoch) {
        let pending = &self.pending[&ticket];
        let key: Key = (pending.request().partition, pending.lane);
        let session = self.sessions.get_mut(&key).expect("a numbered write has a session");
        let id = session.id().expect("numbers are given in an open session");
        match session.expected(next, self.config.rules) {
            SessionRecovery::Rewind => self.back_off(now, Waiter::Session(key), false),
            SessionRecovery::Stuck(unanswered) => {
                let why = "the session cannot go on: a number before this write's was given up";
                self.set_free(now, key, unanswered, why);
            }
            SessionRecovery::Lost { from_seq, to_seq, acknowledged, unanswered } => {
                self.losses.push(Loss {
                    lane: key.1,
                    partition: key.0,
                    session: id,
                    from_seq,
                    to_seq,
                    tickets: acknowledged,
                    noticed_in: epoch,
                });
                let why =
                    format!("lost: a failover to {epoch} took back acknowledged writes before this one");
                self.set_free(now, key, unanswered, &why);
            }
        }
    }

    /// Calls that lost their number: those surely not done wait for a new one, in order; those that may prove
    /// so wait for that; the others are unknown.
    fn set_free(&mut self, now: Micros, key: Key, tickets: Vec<Ticket>, why: &str) {
        for ticket in tickets {
            let pending = self.pending.get_mut(&ticket).expect("a session's calls are pending");
            let session = self.sessions.get_mut(&key).expect("the caller has it");
            if pending.surely_not_done() {
                pending.forget_number();
                session.requeue(ticket);
            } else if pending.maybe_done {
                self.finish(now, ticket, Outcome::Unknown(why.to_string()));
            } else {
                pending.last_word = why.to_string();
                pending.in_limbo = true;
                session.limbo.push(ticket);
            }
        }
        self.rewind(key);
        self.pump(now, key);
    }

    /// Takes a call out of limbo. False if it is not there.
    pub(super) fn leave_limbo(&mut self, ticket: Ticket) -> bool {
        let Some(pending) = self.pending.get_mut(&ticket).filter(|pending| pending.in_limbo) else {
            return false;
        };
        pending.in_limbo = false;
        let key: Key = (pending.request().partition, pending.lane);
        let Some(session) = self.sessions.get_mut(&key) else { return false };
        let at = session.limbo.iter().position(|other| *other == ticket);
        at.map(|at| session.limbo.remove(at)).is_some()
    }

    /// The answer to the newest attempt of a call that was in limbo.
    fn answered_in_limbo(&mut self, now: Micros, ticket: Ticket, reply: Reply) {
        let pending = self.pending.get_mut(&ticket).expect("the caller looked it up");
        let key: Key = (pending.request().partition, pending.lane);
        match reply.status {
            Status::Ok => self.finish(now, ticket, Outcome::Ok(Answer::of(reply))),
            Status::Refused(why) => self.finish(now, ticket, Outcome::Refused(why, Answer::of(reply))),
            Status::Bad(why) => self.finish(now, ticket, Outcome::Failed(FailKind::Bad, why)),
            Status::Unknown(why) => self.finish(now, ticket, Outcome::Unknown(why)),
            _ => {
                pending.forget_number();
                self.sessions.get_mut(&key).expect("it was in limbo there").requeue(ticket);
            }
        }
        self.pump(now, key);
    }

    /// The last word about the opening that a queued call waits for.
    pub(super) fn word_of_opening(&self, ticket: Ticket) -> String {
        let pending = &self.pending[&ticket];
        let key: Key = (pending.request().partition, pending.lane);
        let first = self.first_of(key).filter(|_| pending.kind == Kind::Write);
        first.map_or(pending.last_word.clone(), |first| self.pending[&first].last_word.clone())
    }
}

/// True for "unknown" from a primary that stepped down while a write waited to be committed: its hint says
/// who leads. The write is in the old primary's log, and the next one has it or has not, just as after a lost
/// connection. So it is asked for again under the same number: sessions are rows of the data (PR-45) whose
/// numbers are used once and without gaps (PR-47), so whoever leads says what became of it, or does it now,
/// and no log has it twice. What came behind it in the session is sent again behind it. Without a hint
/// "unknown" is the last word: the session is not known (PR-46), or the time is over (PR-372).
fn stepped_down(reply: &Reply) -> bool {
    matches!(reply.status, Status::Unknown(_)) && reply.hint.is_some()
}

/// Refusals that may pass, but are reported when they last.
fn softness(status: &Status) -> Option<FailKind> {
    match status {
        Status::TooFewCopies(_) => Some(FailKind::TooFewCopies),
        Status::Full(_) => Some(FailKind::Full),
        Status::NotFound(_) => Some(FailKind::NotFound),
        Status::Corrupt(_) => Some(FailKind::Corrupt),
        _ => None,
    }
}

fn word_of(status: &Status) -> String {
    match status {
        Status::Ok | Status::Refused(_) => String::new(),
        Status::NotPrimary => "the node asked does not lead the partition".into(),
        Status::Expected(next) => format!("the session's next number is {next}"),
        Status::NotYet(why) | Status::Unknown(why) | Status::Bad(why) | Status::TooFewCopies(why) => {
            why.clone()
        }
        Status::Full(why) | Status::NotFound(why) | Status::Corrupt(why) | Status::TooOld(why) => why.clone(),
        Status::NoIndex(why) | Status::Stale(why) => why.clone(),
        Status::Behind(newest) => format!("the newest commit that has arrived is {newest}"),
    }
}

impl Answer {
    fn of(reply: Reply) -> Answer {
        Answer {
            lsn: reply.lsn,
            epoch: reply.epoch,
            policy: reply.policy,
            copies: reply.copies,
            body: reply.body,
        }
    }
}
