//! Replies that wait for what they tell of (N7, R12).

use crate::answer::AckCondition;
use crate::output::ClientRef;
use std::collections::VecDeque;
use types::{Lsn, Micros};
use wire::Reply;

/// A reply that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// What `committed`, or `secured`, must cover.
    pub lsn: Lsn,
    pub to: ClientRef,
    /// Complete but for `copies`.
    pub reply: Reply,
    pub condition: AckCondition,
    /// When the client stops waiting; zero: never.
    pub deadline: Micros,
}

impl Waiting {
    fn is_late(&self, now: Micros) -> bool {
        self.deadline > Micros::ZERO && now >= self.deadline
    }
}

/// All replies of a term that wait. Each of the two queues is in the order of LSNs, so that a reply which
/// could go earlier waits for those before it.
#[derive(Debug, Default)]
pub(crate) struct ReplyQueue {
    /// They wait for `committed`.
    committing: VecDeque<Waiting>,
    /// They wait for `secured` too.
    securing: VecDeque<Waiting>,
}

impl ReplyQueue {
    /// Adds a reply behind those that wait for the same.
    pub fn push(&mut self, mut waiting: Waiting) {
        let queue = match waiting.condition {
            AckCondition::Secured => &mut self.securing,
            AckCondition::Entry | AckCondition::Seen => &mut self.committing,
        };
        if let Some(last) = queue.back() {
            waiting.lsn = waiting.lsn.max(last.lsn);
        }
        queue.push_back(waiting);
    }

    /// Takes out what may go, now that these positions are reached.
    pub fn release(&mut self, committed: Lsn, secured: Lsn) -> Vec<Waiting> {
        let mut ready = Vec::new();
        for (queue, reached) in [(&mut self.committing, committed), (&mut self.securing, secured)] {
            while let Some(waiting) = queue.pop_front_if(|waiting| waiting.lsn <= reached) {
                ready.push(waiting);
            }
        }
        ready
    }

    /// Takes out what clients do not wait for any more.
    pub fn expire(&mut self, now: Micros) -> Vec<Waiting> {
        let mut expired = Vec::new();
        for queue in [&mut self.committing, &mut self.securing] {
            if queue.iter().any(|waiting| waiting.is_late(now)) {
                let (late, kept): (VecDeque<_>, _) =
                    std::mem::take(queue).into_iter().partition(|waiting| waiting.is_late(now));
                *queue = kept;
                expired.extend(late);
            }
        }
        expired
    }

    /// Takes out everything: the term is over.
    pub fn drain(&mut self) -> impl Iterator<Item = Waiting> {
        std::mem::take(&mut self.committing).into_iter().chain(std::mem::take(&mut self.securing))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.committing.len() + self.securing.len()
    }

    /// Both queues are in order, and whatever could go is gone.
    pub fn validate(&self) -> Result<(), String> {
        for queue in [&self.committing, &self.securing] {
            if !queue.iter().is_sorted_by_key(|waiting| waiting.lsn) {
                return Err("N7: replies wait out of order".into());
            }
        }
        let securing = |waiting: &Waiting| waiting.condition == AckCondition::Secured;
        if self.committing.iter().any(securing) || !self.securing.iter().all(securing) {
            return Err("PR-82: a reply waits in the wrong queue".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Body, Status};

    fn waiting(id: u64, lsn: u64, condition: AckCondition, deadline: u64) -> Waiting {
        let reply = Reply {
            id,
            status: Status::Ok,
            lsn: Lsn(lsn),
            epoch: types::Epoch(1),
            policy: 1,
            copies: 0,
            hint: None,
            body: Body::None,
        };
        let to = ClientRef { connection: 0, request: id };
        Waiting { lsn: Lsn(lsn), to, reply, condition, deadline: Micros(deadline) }
    }

    fn ids(waiting: impl IntoIterator<Item = Waiting>) -> Vec<u64> {
        waiting.into_iter().map(|waiting| waiting.reply.id).collect()
    }

    #[test]
    fn r12_a_reply_goes_when_what_it_waits_for_is_reached_and_not_before_those_ahead_of_it() {
        let mut queue = ReplyQueue::default();
        queue.push(waiting(1, 5, AckCondition::Entry, 0));
        // What was seen at 3 was asked for after 5 was written.
        queue.push(waiting(2, 3, AckCondition::Seen, 0));
        queue.push(waiting(3, 4, AckCondition::Secured, 0));
        queue.push(waiting(4, 6, AckCondition::Entry, 0));
        queue.validate().expect("in order");
        assert_eq!(ids(queue.release(Lsn(4), Lsn(3))), [] as [u64; 0]);
        assert_eq!(ids(queue.release(Lsn(5), Lsn(3))), [1, 2]);
        assert_eq!(ids(queue.release(Lsn(6), Lsn(4))), [4, 3]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn f03_only_what_is_late_expires() {
        let mut queue = ReplyQueue::default();
        queue.push(waiting(1, 5, AckCondition::Entry, 100));
        queue.push(waiting(2, 6, AckCondition::Entry, 0));
        queue.push(waiting(3, 7, AckCondition::Secured, 200));
        assert_eq!(ids(queue.expire(Micros(99))), [] as [u64; 0]);
        assert_eq!(ids(queue.expire(Micros(100))), [1]);
        assert_eq!(ids(queue.expire(Micros(1_000))), [3]);
        queue.validate().expect("still in order");
        assert_eq!(ids(queue.drain()), [2]);
        assert_eq!(queue.len(), 0);
    }
}
