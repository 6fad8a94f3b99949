//! A lane's session with one partition: numbers without gaps, and what an answer means for those on their way
//! (PR-45 to PR-47).

use crate::backoff::Backoff;
use crate::call::{Loss, Ticket};
use std::collections::VecDeque;
use types::{Micros, NodeId, Rules, SessionId};

/// Where a session is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// None is open; the next write opens one.
    #[default]
    Closed,
    /// This internal call opens it.
    Opening(Ticket),
    /// Open for new writes.
    Open(SessionId),
    /// A number was given up: what is on its way ends here, what is new waits for the next session.
    Retiring(SessionId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fill {
    Waiting,
    Acknowledged,
    GivenUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    ticket: Ticket,
    fill: Fill,
}

/// What [`Session::expected`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionRecovery {
    /// The partition lacks only what is unanswered: send that again, in order.
    Rewind,
    /// Acknowledged writes are gone. The session retires: whoever has them may lead again, and then their
    /// numbers must stand for nothing else (PR-283).
    Lost {
        /// The first number lost.
        from_seq: u64,
        /// The last acknowledged number that is lost.
        to_seq: u64,
        /// The acknowledged calls, as far as remembered.
        acknowledged: Vec<Ticket>,
        /// Unanswered calls from the lost number on, in order. They are no longer in the session.
        unanswered: Vec<Ticket>,
    },
    /// The partition waits for a number that was given up, or for one that never was: these calls, in order,
    /// can no longer be done in this session and are no longer in it.
    Stuck(Vec<Ticket>),
}

/// One session, and the queue of writes behind it.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Where it is in its life.
    pub phase: Phase,
    /// Writes without a number yet, in order.
    pub queue: VecDeque<Ticket>,
    /// Writes that lost their number while an answer to their only unanswered attempt may still come. If that
    /// refuses them too, they are queued again; until it is known, nothing new gets a number, so that the
    /// order stays.
    pub limbo: Vec<Ticket>,
    /// Attempts without success so far.
    pub backoff: Backoff,
    /// Nothing is sent before this time.
    pub retry_at: Option<Micros>,
    /// Which member is tried: 0 is the primary.
    pub turn: u32,
    /// The node that the unanswered writes were sent to.
    pub sent_to: Option<NodeId>,
    /// When it was last used.
    pub used_at: Micros,
    /// Unanswered numbers from this one on are to be sent; those below are on their way.
    unsent_from: u64,
    /// Slots of the numbers `confirmed + 1 ..`, none missing.
    slots: VecDeque<Slot>,
    /// Every number up to this one is acknowledged.
    confirmed: u64,
    /// The newest acknowledged calls, for the report of a loss.
    acknowledged: VecDeque<(u64, Ticket)>,
}

impl Session {
    /// The client has every reply up to this number.
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// The number that the next write gets.
    pub fn next_seq(&self) -> u64 {
        self.confirmed + self.slots.len() as u64 + 1
    }

    /// How many numbers are on their way or wait behind such.
    pub fn on_their_way(&self) -> usize {
        self.slots.len()
    }

    /// The session's id, if it has one.
    pub fn id(&self) -> Option<SessionId> {
        match self.phase {
            Phase::Open(id) | Phase::Retiring(id) => Some(id),
            Phase::Closed | Phase::Opening(_) => None,
        }
    }

    /// Unanswered calls with their numbers, in order.
    pub fn unanswered(&self) -> impl Iterator<Item = (u64, Ticket)> + '_ {
        let first = self.confirmed + 1;
        let waiting = self.slots.iter().zip(first..).filter(|(slot, _)| slot.fill == Fill::Waiting);
        waiting.map(|(slot, seq)| (seq, slot.ticket))
    }

    /// Unanswered calls that are to be sent, in order.
    pub fn unsent(&self) -> impl Iterator<Item = Ticket> + '_ {
        let first = self.unsent_from.saturating_sub(self.confirmed + 1) as usize;
        let slots = self.slots.range(first.min(self.slots.len())..);
        slots.filter(|slot| slot.fill == Fill::Waiting).map(|slot| slot.ticket)
    }

    /// True if nothing of it is to be sent: it is open, no write waits for a number, and all with one are on
    /// their way.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Open(_)) && self.queue.is_empty() && self.unsent().next().is_none()
    }

    /// True if this number is to be sent, for the first time or again.
    pub fn is_unsent(&self, seq: u64) -> bool {
        seq >= self.unsent_from
    }

    /// Everything unsent is now on its way.
    pub fn sent(&mut self) {
        self.unsent_from = self.next_seq();
    }

    /// Everything unanswered is to be sent again.
    pub fn rewind(&mut self) {
        self.unsent_from = 0;
    }

    /// Starts as a fresh session with this id.
    pub fn open(&mut self, id: SessionId) {
        assert!(
            self.slots.is_empty(),
            "a session opens while {} numbers of the last are unresolved",
            self.slots.len()
        );
        self.phase = Phase::Open(id);
        self.confirmed = 0;
        self.acknowledged.clear();
    }

    /// Gives the next number to a call.
    pub fn assign(&mut self, ticket: Ticket) -> u64 {
        assert!(matches!(self.phase, Phase::Open(_)), "a number is given in phase {:?}", self.phase);
        let seq = self.next_seq();
        self.slots.push_back(Slot { ticket, fill: Fill::Waiting });
        seq
    }

    /// The write with this number is acknowledged.
    pub fn acknowledge(&mut self, seq: u64) {
        let slot = self.slot(seq).expect("only numbers on their way are acknowledged");
        slot.fill = Fill::Acknowledged;
        let ticket = slot.ticket;
        if self.acknowledged.len() == Loss::TICKETS {
            self.acknowledged.pop_front();
        }
        self.acknowledged.push_back((seq, ticket));
        self.advance();
    }

    /// The caller no longer waits for this number, and whether it was used is not known: the session retires.
    pub fn give_up(&mut self, seq: u64) {
        let slot = self.slot(seq).expect("only numbers on their way are given up");
        slot.fill = Fill::GivenUp;
        self.retire();
        self.advance();
    }

    /// No more numbers are given in it.
    fn retire(&mut self) {
        if let Phase::Open(id) = self.phase {
            self.phase = Phase::Retiring(id);
        }
    }

    /// The write with this number was surely not done. The number is used again if nothing came after it;
    /// else it leaves a hole.
    pub fn take_back(&mut self, seq: u64) {
        if seq + 1 == self.next_seq() {
            self.slots.pop_back();
            self.unsent_from = self.unsent_from.min(seq);
            self.advance();
        } else {
            self.give_up(seq);
        }
    }

    /// The partition says that the session's next number is `next`.
    pub fn expected(&mut self, next: u64, rules: Rules) -> SessionRecovery {
        if next > self.next_seq() || next == 0 {
            // It knows numbers that were never given: this is not our session.
            let stuck = self.unanswered().map(|(_, ticket)| ticket).collect();
            self.close();
            return SessionRecovery::Stuck(stuck);
        }
        let acknowledged =
            (self.confirmed + 1..).zip(&self.slots).filter(|(_, slot)| slot.fill == Fill::Acknowledged);
        let highest = acknowledged.map(|(seq, _)| seq).last().unwrap_or(self.confirmed);
        let lost_to = (highest >= next).then_some(highest);
        if let Some(to_seq) = lost_to {
            return self.lost(next, to_seq, rules);
        }
        if self.slot(next).is_some_and(|slot| slot.fill == Fill::GivenUp) {
            let stuck = self.cut(next);
            self.advance();
            return SessionRecovery::Stuck(stuck);
        }
        SessionRecovery::Rewind
    }

    /// Queues a call again, by its age.
    pub fn requeue(&mut self, ticket: Ticket) {
        let at = self.queue.partition_point(|queued| *queued < ticket);
        self.queue.insert(at, ticket);
    }

    /// Forgets everything but the queue and who is in limbo.
    pub fn close(&mut self) {
        self.slots.clear();
        self.confirmed = 0;
        self.unsent_from = 0;
        self.phase = Phase::Closed;
        self.sent_to = None;
    }

    fn lost(&mut self, next: u64, to_seq: u64, rules: Rules) -> SessionRecovery {
        let acknowledged =
            self.acknowledged.iter().filter(|(seq, _)| *seq >= next).map(|(_, ticket)| *ticket);
        let acknowledged = acknowledged.collect();
        self.acknowledged.retain(|(seq, _)| *seq < next);
        let unanswered = self.cut(next);
        self.confirmed = self.confirmed.min(next - 1);
        if rules.losses_end_sessions() {
            self.retire();
        }
        self.advance();
        SessionRecovery::Lost { from_seq: next, to_seq, acknowledged, unanswered }
    }

    /// Removes the slots from `first` on; the unanswered calls among them.
    fn cut(&mut self, first: u64) -> Vec<Ticket> {
        let keep = first.saturating_sub(self.confirmed + 1) as usize;
        let cut = self.slots.split_off(keep.min(self.slots.len()));
        self.unsent_from = self.unsent_from.min(first);
        cut.iter().filter(|slot| slot.fill == Fill::Waiting).map(|slot| slot.ticket).collect()
    }

    fn slot(&mut self, seq: u64) -> Option<&mut Slot> {
        let at = seq.checked_sub(self.confirmed + 1)?;
        self.slots.get_mut(at as usize)
    }

    /// Confirms what is acknowledged without a gap; a retiring session without unanswered calls is over.
    fn advance(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.fill == Fill::Acknowledged) {
            self.slots.pop_front();
            self.confirmed += 1;
        }
        if matches!(self.phase, Phase::Retiring(_)) && self.unanswered().next().is_none() {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Finding, Lsn, Position, Term};

    #[test]
    fn pr283_a_loss_ends_a_session_and_without_the_rule_its_numbers_are_given_again() {
        let mutant = Rules::without(Finding::Pr283).expect("this build has mutants");
        for (rules, goes_on) in [(Rules::ALL, false), (mutant, true)] {
            let mut session = Session::default();
            session.open(SessionId(Position::new(Term(1), Lsn(1))));
            for ticket in 1..=3 {
                let seq = session.assign(Ticket(ticket));
                session.sent();
                session.acknowledge(seq);
            }
            let lost = SessionRecovery::Lost {
                from_seq: 3,
                to_seq: 3,
                acknowledged: vec![Ticket(3)],
                unanswered: Vec::new(),
            };
            assert_eq!(session.expected(3, rules), lost);
            let next = matches!(session.phase, Phase::Open(_)).then(|| session.next_seq());
            assert_eq!(next, goes_on.then_some(3));
        }
    }
}
