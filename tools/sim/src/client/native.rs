//! A client that is the native client's core: what that asks for is carried out, as the native client's shell
//! does it, over a simulated network and in virtual time.

use crate::check::effects::ReportedLoss;
use crate::check::history::{Answer, Operation};
use crate::client::operations::{Decided, Operations};
use crate::client::shell::Shell;
use crate::client::{ClientEffect, LinkNews, RowClient};
use crate::network::{Conn, Endpoint};
use crate::plan::RunPlan;
use crate::random::Stream;
use ::client::{Call, Completed, CoreConfig, FailKind, LaneId, Outcome, Ticket};
use std::collections::BTreeMap;
use types::{Micros, PartitionId, Position, Rules, SessionId};
use wire::Message;

/// An attempt without an answer is given up after this.
const ATTEMPT: Micros = Micros::from_millis(400);
/// Refusals that may pass are reported after this.
const REFUSAL_TIMEOUT: Micros = Micros::from_millis(1_500);
/// A caller waits no longer, microseconds.
const DEADLINE_US: u64 = 4_000_000;
/// An operation that the core has.
#[derive(Debug)]
struct Open {
    operation: Operation,
    lane: LaneId,
    /// The session and number under which it was last sent.
    session: Option<(SessionId, u64)>,
}

/// Acknowledged writes, for what the core promises of them.
#[derive(Debug, Default)]
struct Acknowledged {
    /// Of each lane and partition: where each ticket's write is.
    places: BTreeMap<(PartitionId, LaneId), BTreeMap<Ticket, Position>>,
    /// What the client was told is lost, and when.
    lost: Vec<ReportedLoss>,
}

/// The client.
pub struct Native {
    operations: Operations,
    shell: Shell,
    /// Lanes, each with sessions of its own.
    lanes: u32,
    /// Operations that are asked at once.
    width: usize,
    open: BTreeMap<Ticket, Open>,
    acknowledged: Acknowledged,
    fault: Option<String>,
}

impl Acknowledged {
    /// Writes of a lane come to be in the order in which they were asked for. The error is a sentence.
    fn add(&mut self, of: (PartitionId, LaneId), ticket: Ticket, at: Position) -> Result<(), String> {
        let places = self.places.entry(of).or_default();
        let before = places.range(..ticket).next_back().filter(|(_, place)| **place > at);
        let behind = places.range(ticket..).next().filter(|(_, place)| **place < at);
        if let Some((other, place)) = before.or(behind) {
            return Err(format!("{} {}: {ticket} is at {at}, and {other} at {place}", of.0, of.1));
        }
        places.insert(ticket, at);
        Ok(())
    }

    /// These are lost. The error is a sentence: one was never acknowledged.
    fn lose(&mut self, now: u64, of: (PartitionId, LaneId), tickets: &[Ticket]) -> Result<(), String> {
        for ticket in tickets {
            let place = self.places.get(&of).and_then(|places| places.get(ticket));
            let Some(place) = place else {
                return Err(format!("{ticket} is said to be lost, and was never acknowledged"));
            };
            self.lost.push(ReportedLoss { partition: of.0, at: *place, time: now });
        }
        Ok(())
    }
}

impl Native {
    /// A client of the plan's tables.
    pub fn new(id: u32, mut random: Stream, plan: &RunPlan, rules: Rules) -> Native {
        let idle = *random.pick(&[400, 5_000, 60_000]).expect("not empty");
        let config = CoreConfig {
            window: 1 + random.below(4) as usize,
            attempt_timeout: ATTEMPT,
            patience: REFUSAL_TIMEOUT,
            idle: Micros::from_millis(idle),
            seed: random.next(),
            rules,
        };
        Native {
            shell: Shell::new(id, config, plan.controllers),
            lanes: 1 + random.below(2) as u32,
            width: 1 + random.below(4) as usize,
            operations: Operations::new(id, random, plan),
            open: BTreeMap::new(),
            acknowledged: Acknowledged::default(),
            fault: None,
        }
    }

    fn submit(&mut self, now: u64) {
        while self.open.len() < self.width {
            let Some((operation, _)) = self.operations.next(now) else { return };
            let (op, read) = self.operations.asks(&operation);
            let random = self.operations.random();
            let lane = LaneId(random.below(u64::from(self.lanes)) as u32);
            let hurried = random.chance(250);
            let deadline = if hurried { random.between(150_000, 900_000) } else { DEADLINE_US };
            let table = self.operations.tables()[&operation.partition];
            let mut call = Call::new(table, 1, operation.partition, op);
            (call.read, call.trace) = (read, operation.number);
            let ticket = self.shell.submit(now, lane, call.within(Micros(deadline)));
            self.open.insert(ticket, Open { operation, lane, session: None });
        }
    }

    /// Carries out what the core asks for, and takes what it has to say.
    fn turn(&mut self, now: u64) {
        self.shell.carry_out(now);
        for (ticket, session, seq) in self.shell.take_sent() {
            if let Some(open) = self.open.get_mut(&ticket) {
                open.session = Some((session, seq));
            }
        }
        while let Some(completed) = self.shell.next_completed() {
            self.completed(now, completed);
        }
        for loss in self.shell.core_mut().take_losses() {
            let verdict = self.acknowledged.lose(now, (loss.partition, loss.lane), &loss.tickets);
            self.expect(verdict);
        }
    }

    fn completed(&mut self, now: u64, completed: Completed) {
        let Completed { ticket, outcome, .. } = completed;
        let Some(open) = self.open.remove(&ticket) else {
            return self.expect(Err(format!("{ticket} ends twice, or was never asked: {outcome:?}")));
        };
        let mut operation = open.operation;
        operation.session = open.session.filter(|_| operation.action.writes());
        let refused = match &outcome {
            Outcome::Refused(why, _) => Some(why),
            _ => None,
        };
        let told = match &outcome {
            Outcome::Ok(answer) | Outcome::Refused(_, answer) => {
                let (lsn, epoch, copies, body) = (answer.lsn, answer.epoch, answer.copies, &answer.body);
                self.operations.told(&operation, Decided { refused, lsn, epoch, copies, body })
            }
            Outcome::Failed(FailKind::Bad, why) => Err(format!("{operation:?} was told '{why}'")),
            Outcome::Failed(..) => Ok(Answer::NotDone),
            Outcome::Unknown(why) if !operation.action.writes() => {
                Err(format!("{operation:?} is unknown: '{why}'"))
            }
            Outcome::Unknown(_) => Ok(Answer::Unknown),
        };
        // A refused write is an entry too.
        if let Some(answer) = outcome.answer().filter(|_| operation.action.writes()) {
            let (of, at) = ((operation.partition, open.lane), answer.position());
            let verdict = self.acknowledged.add(of, ticket, at);
            self.expect(verdict);
        }
        let told = told.unwrap_or_else(|sentence| {
            self.expect(Err(sentence));
            Answer::Unknown
        });
        self.operations.ended(now, operation, told);
    }

    fn expect(&mut self, verdict: Result<(), String>) {
        if let Err(sentence) = verdict {
            self.fault.get_or_insert(sentence);
        }
    }
}

impl RowClient for Native {
    fn operations(&self) -> &Operations {
        &self.operations
    }

    fn operations_mut(&mut self) -> &mut Operations {
        &mut self.operations
    }

    fn step(&mut self, now: u64) -> Vec<ClientEffect> {
        self.shell.tick(now);
        self.submit(now);
        self.turn(now);
        self.shell.take_effects()
    }

    fn wakes_at(&self) -> Option<u64> {
        self.shell.core().next_timer().map(|at| at.0)
    }

    fn linked(&mut self, now: u64, to: Endpoint, _slot: u16, news: LinkNews) {
        let random = self.operations.random();
        self.shell.linked(now, to, news, || random.between(1_000, 50_000));
        self.turn(now);
    }

    fn hear(&mut self, now: u64, from: Endpoint, conn: Conn, message: Message) {
        let random = self.operations.random();
        self.shell.hear(now, (from, conn), message, || random.between(1_000, 50_000));
        let fault = self.shell.take_fault();
        self.expect(fault.map_or(Ok(()), Err));
        self.turn(now);
    }

    fn waits_for(&self) -> Vec<PartitionId> {
        self.open.values().map(|open| open.operation.partition).collect()
    }

    fn abandon(&mut self, now: u64) {
        self.operations.stop();
        for open in std::mem::take(&mut self.open).into_values() {
            self.operations.ended(now, open.operation, Answer::Unknown);
        }
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn told_lost(&self) -> &[ReportedLoss] {
        &self.acknowledged.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    #[test]
    fn acknowledged_writes_of_a_lane_stand_in_the_order_in_which_they_were_asked_for() {
        let of = (PartitionId(64), LaneId(0));
        let at = |term, lsn| Position::new(Term(term), Lsn(lsn));
        let mut acknowledged = Acknowledged::default();
        assert_eq!(acknowledged.add(of, Ticket(2), at(1, 9)), Ok(()));
        assert_eq!(acknowledged.add(of, Ticket(5), at(2, 3)), Ok(()), "a later term has smaller numbers");
        assert_eq!(acknowledged.add(of, Ticket(3), at(1, 12)), Ok(()));
        assert!(acknowledged.add(of, Ticket(4), at(1, 11)).is_err(), "before the third");
        assert!(acknowledged.add(of, Ticket(1), at(1, 10)).is_err(), "behind the second");
        assert_eq!(acknowledged.add((of.0, LaneId(1)), Ticket(4), at(1, 11)), Ok(()));
        assert_eq!(acknowledged.lose(7, of, &[Ticket(3), Ticket(5)]), Ok(()));
        let lost = |at| ReportedLoss { partition: of.0, at, time: 7 };
        assert_eq!(acknowledged.lost, [lost(at(1, 12)), lost(at(2, 3))]);
        assert!(acknowledged.lose(8, of, &[Ticket(4)]).is_err(), "it was never acknowledged");
    }
}
