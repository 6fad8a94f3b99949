//! What is due: retries to the microsecond, deadlines and silent attempts in sweeps.

use super::pending::Kind;
use super::{Core, Waiter};
use crate::call::{FailKind, Outcome, Ticket};
use types::Micros;

/// How often deadlines and silent attempts are looked at while calls are open. Coarse: a sweep visits every
/// open call.
pub(super) const SWEEP: Micros = Micros::from_millis(10);

impl Core {
    /// Does what is due.
    pub fn tick(&mut self, now: Micros) {
        while let Some((at, waiter)) = self.retries.first().copied().filter(|(at, _)| *at <= now) {
            self.retries.pop_first();
            if self.is_due(at, waiter) {
                self.resume(now, waiter);
            }
        }
        if self.next_sweep.is_some_and(|at| at <= now) {
            self.sweep(now);
            self.next_sweep = (!self.pending.is_empty()).then(|| now + SWEEP);
        }
    }

    /// When [`Core::tick`] has something to do again.
    pub fn next_timer(&self) -> Option<Micros> {
        let retry = self.retries.first().map(|(at, _)| *at);
        [retry, self.next_sweep].into_iter().flatten().min()
    }

    /// False if the waiter was resumed earlier, and perhaps waits anew.
    fn is_due(&mut self, at: Micros, waiter: Waiter) -> bool {
        let retry_at = match waiter {
            Waiter::Session(key) => self.sessions.get_mut(&key).map(|session| &mut session.retry_at),
            Waiter::Read(ticket) => self.pending.get_mut(&ticket).map(|pending| &mut pending.retry_at),
        };
        match retry_at {
            Some(slot) if *slot == Some(at) => {
                *slot = None;
                true
            }
            _ => false,
        }
    }

    fn sweep(&mut self, now: Micros) {
        let timeout = self.config.attempt_timeout;
        let (mut late, mut silent) = (Vec::new(), Vec::new());
        for (ticket, pending) in &self.pending {
            if pending.deadline.is_some_and(|deadline| deadline <= now) {
                late.push(*ticket);
            } else if pending.is_silent(now, timeout) {
                silent.push(*ticket);
            }
        }
        for ticket in late {
            self.deadline_passed(now, ticket);
        }
        for ticket in silent {
            self.silent(now, ticket);
        }
    }

    fn deadline_passed(&mut self, now: Micros, ticket: Ticket) {
        let Some(pending) = self.pending.get(&ticket) else { return };
        let sure = pending.kind == Kind::Read || pending.surely_not_done();
        let mut sentence = format!("no answer within {} ms", now.since(pending.submitted).as_millis());
        let last_word =
            if pending.attempts == 0 { self.word_of_opening(ticket) } else { pending.last_word.clone() };
        if !last_word.is_empty() {
            sentence = format!("{sentence}; last heard: {last_word}");
        }
        let outcome = match pending.soft {
            Some((_, kind)) if sure => Outcome::Failed(kind, last_word),
            _ if sure => Outcome::Failed(FailKind::TimedOut, sentence),
            _ => Outcome::Unknown(sentence),
        };
        let in_limbo = self.leave_limbo(ticket);
        let pending = &self.pending[&ticket];
        let key = (pending.request().partition, pending.lane);
        let seq = pending.request().seq;
        if pending.kind == Kind::Write && !in_limbo {
            let session = self.sessions.get_mut(&key).expect("a write has a session or waits for one");
            match seq {
                0 => session.queue.retain(|queued| *queued != ticket),
                seq => session.give_up(seq),
            }
        }
        self.finish(now, ticket, outcome);
        if seq > 0 {
            self.pump(now, key);
        }
    }
}
