//! Turns at rows that transactions of several gateways want: who changes a row next ([`wire::row_turn`]).
//! They are in memory, for one term. Nothing rests on them: who has none is aborted if others were faster.
//!
//! A row has a holder and a queue behind it. The turn is passed on in the order of asking: when the row is
//! written by an entry behind which the turn did not begin (PR-410), when its holder is released, when its
//! holder's connection ends, and when the holder has asked nothing for [`LEASE`]. Who waits is answered when
//! its turn comes, when it has waited for as long as it wants to, or when the term ends. Each transaction
//! waits for one row at a time.

use crate::output::ClientRef;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{Lsn, Micros, TableId};
use wire::{Request, TurnAnswer, TurnHolder};

/// How long a transaction has its turns behind its last question: twice as long as anybody waits.
const LEASE: Micros = Micros::from_millis(10_000);
/// The most rows at which somebody has the turn.
const MAX_ROWS: usize = 20_000;
/// The most transactions that wait.
const MAX_WAITING: usize = 5_000;
/// The most memory of both, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// What a row or a place in a queue takes beside its key, in bytes.
const BESIDE_KEY: usize = 256;

/// A row of a table, by its encoded key.
pub(crate) type Row = (TableId, Bytes);

/// The turns of one term.
#[derive(Debug, Default)]
pub(crate) struct RowTurns {
    rows: BTreeMap<Row, Queue>,
    /// Everybody who has a turn or waits for one.
    holders: BTreeMap<TurnHolder, Holder>,
    /// How many of them wait.
    waiting: usize,
    /// What rows and places in queues take.
    bytes: usize,
    /// Where the primary's log ends.
    end: Lsn,
}

/// Who has the turn at a row, and who waits for it, in order.
#[derive(Debug)]
struct Queue {
    holder: TurnHolder,
    /// Where the log ended when the turn began.
    since: Lsn,
    next: VecDeque<TurnHolder>,
}

/// A transaction.
#[derive(Debug)]
struct Holder {
    rows: BTreeSet<Row>,
    waits: Option<Wait>,
    /// Its turns end then.
    until: Micros,
    /// That of its last question.
    connection: u64,
}

/// A question that is not answered yet.
#[derive(Debug)]
struct Wait {
    row: Row,
    to: ClientRef,
    request: Request,
    until: Micros,
}

/// A question: the row, and how long its answer is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub who: TurnHolder,
    pub row: Row,
    pub wait: Micros,
}

/// An answer to a request. `None`: it was asked again, and that is answered later.
#[derive(Debug)]
pub(crate) struct Answered {
    pub to: ClientRef,
    pub request: Request,
    pub answer: Option<TurnAnswer>,
}

impl Answered {
    fn of(to: ClientRef, request: Request, answer: TurnAnswer) -> Answered {
        Answered { to, request, answer: Some(answer) }
    }
}

fn bytes_of(row: &Row) -> usize {
    row.1.len() + BESIDE_KEY
}

impl RowTurns {
    /// The primary's log ends there by now: turns that begin later begin behind it.
    pub fn log_ends_at(&mut self, end: Lsn) {
        self.end = end;
    }

    /// True if nobody has a turn.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True if somebody who has a turn or waits has asked for it over this connection.
    pub fn are_of(&self, connection: u64) -> bool {
        self.holders.values().any(|holder| holder.connection == connection)
    }

    /// Somebody asks for a row. Gives the answers that are due now: to this question, unless it waits, and to
    /// an earlier one of the same transaction that is still open.
    pub fn ask(
        &mut self,
        now: Micros,
        (to, request): (ClientRef, Request),
        asked: Question,
    ) -> Vec<Answered> {
        let Question { who, row, wait } = asked;
        let mut answered = Vec::new();
        let until = now + wait;
        if let Some(holder) = self.holders.get_mut(&who) {
            (holder.until, holder.connection) = (now + LEASE, to.connection);
            if let Some(open) = holder.waits.as_mut().filter(|open| open.row == row) {
                // The same again, as when its connection broke: it keeps its place.
                let earlier = std::mem::replace(open, Wait { row, to, request, until });
                answered.push(Answered { to: earlier.to, request: earlier.request, answer: None });
                return answered;
            }
        }
        answered.extend(self.give_up(who));
        let Some(queue) = self.rows.get(&row) else {
            let answer = match self.has_room(&row) && self.rows.len() < MAX_ROWS {
                true => {
                    self.begin(now, who, (row, to.connection));
                    TurnAnswer::Granted { waited: false }
                }
                false => TurnAnswer::Without,
            };
            answered.push(Answered::of(to, request, answer));
            return answered;
        };
        let answer = if queue.holder == who {
            TurnAnswer::Granted { waited: false }
        } else if self.waits_for(&row, who) {
            TurnAnswer::Deadlock
        } else if wait == Micros::ZERO || self.waiting >= MAX_WAITING || !self.has_room(&row) {
            TurnAnswer::Without
        } else {
            self.wait(now, who, Wait { row, to, request, until });
            return answered;
        };
        answered.push(Answered::of(to, request, answer));
        answered
    }

    /// The entry at this LSN has written these rows: their turns are passed on. One that began behind the
    /// entry stays: the write is answered once more, or names the row twice (PR-410).
    pub fn written<'a>(
        &mut self,
        now: Micros,
        at: Lsn,
        rows: impl Iterator<Item = &'a Row>,
    ) -> Vec<Answered> {
        let mut answered = Vec::new();
        for row in rows {
            if self.rows.get(row).is_some_and(|queue| queue.since < at) {
                answered.extend(self.pass(now, row));
            }
        }
        answered
    }

    /// A transaction has ended: its turns are passed on, and it waits no more.
    pub fn release(&mut self, now: Micros, who: TurnHolder) -> Vec<Answered> {
        let mut answered: Vec<Answered> = self.give_up(who).into_iter().collect();
        let rows = self.holders.get_mut(&who).map(|holder| std::mem::take(&mut holder.rows));
        for row in rows.unwrap_or_default() {
            answered.extend(self.pass(now, &row));
        }
        self.forget_idle(who);
        answered
    }

    /// A connection has ended: so have the transactions that have asked over it last.
    pub fn gone(&mut self, now: Micros, connection: u64) -> Vec<Answered> {
        let of = self.holders.iter().filter(|(_, holder)| holder.connection == connection);
        let all: Vec<TurnHolder> = of.map(|(who, _)| *who).collect();
        all.into_iter().flat_map(|who| self.release(now, who)).collect()
    }

    /// Time has passed: who has waited for long enough goes on without.
    pub fn end_waits(&mut self, now: Micros) -> Vec<Answered> {
        let late = |holder: &Holder| holder.waits.as_ref().is_some_and(|wait| wait.until <= now);
        let late: Vec<TurnHolder> =
            self.holders.iter().filter(|(_, holder)| late(holder)).map(|(who, _)| *who).collect();
        late.into_iter().filter_map(|who| self.give_up(who)).collect()
    }

    /// Time has passed: who has asked nothing for long loses its turns.
    pub fn end_silent(&mut self, now: Micros) -> Vec<Answered> {
        let over = self.holders.iter().filter(|(_, holder)| holder.until <= now);
        let over: Vec<TurnHolder> = over.map(|(who, _)| *who).collect();
        over.into_iter().flat_map(|who| self.release(now, who)).collect()
    }

    /// The term ends: everybody who waits, in the order of names. Nobody has a turn any more.
    pub fn drain(&mut self) -> Vec<(ClientRef, Request)> {
        let all = std::mem::take(self).holders.into_values();
        all.filter_map(|holder| holder.waits.map(|wait| (wait.to, wait.request))).collect()
    }

    /// Rows and transactions know of each other, each transaction waits where it says, and what is counted is
    /// there.
    pub fn validate(&self) -> Result<(), String> {
        let places = |row: &Row, queue: &Queue| bytes_of(row) * (1 + queue.next.len());
        let bytes: usize = self.rows.iter().map(|(row, queue)| places(row, queue)).sum();
        let waiting: usize = self.rows.values().map(|queue| queue.next.len()).sum();
        if (bytes, waiting) != (self.bytes, self.waiting) || bytes > MAX_BYTES {
            return Err(format!(
                "PR-376: turns take {bytes} bytes and {waiting} wait, and that is not counted"
            ));
        }
        let has =
            |who: &TurnHolder, row: &Row| self.holders.get(who).is_some_and(|one| one.rows.contains(row));
        let waits = |who: &TurnHolder, row: &Row| {
            let wait = self.holders.get(who).and_then(|holder| holder.waits.as_ref());
            wait.is_some_and(|wait| wait.row == *row)
        };
        let sound = |row: &Row, queue: &Queue| {
            has(&queue.holder, row) && queue.next.iter().all(|who| waits(who, row))
        };
        if !self.rows.iter().all(|(row, queue)| sound(row, queue)) {
            return Err("PR-374: a row is in a turn of which its transaction knows nothing".into());
        }
        let turns: usize = self.holders.values().map(|holder| holder.rows.len()).sum();
        let waits = self.holders.values().filter(|holder| holder.waits.is_some()).count();
        if (turns, waits) != (self.rows.len(), self.waiting) {
            return Err("PR-374: a transaction waits for a row, or has one, that knows nothing of it".into());
        }
        Ok(())
    }

    fn has_room(&self, row: &Row) -> bool {
        self.bytes + bytes_of(row) <= MAX_BYTES
    }

    /// A row that nobody has is this one's.
    fn begin(&mut self, now: Micros, who: TurnHolder, (row, connection): (Row, u64)) {
        self.bytes += bytes_of(&row);
        self.holder(now, who, connection).rows.insert(row.clone());
        self.rows.insert(row, Queue { holder: who, since: self.end, next: VecDeque::new() });
    }

    /// Stands in the queue of a row that somebody has.
    fn wait(&mut self, now: Micros, who: TurnHolder, wait: Wait) {
        let Some(queue) = self.rows.get_mut(&wait.row) else { return };
        queue.next.push_back(who);
        self.waiting += 1;
        self.bytes += bytes_of(&wait.row);
        let holder = self.holder(now, who, wait.to.connection);
        holder.waits = Some(wait);
    }

    fn holder(&mut self, now: Micros, who: TurnHolder, connection: u64) -> &mut Holder {
        let new = || Holder { rows: BTreeSet::new(), waits: None, until: now + LEASE, connection };
        self.holders.entry(who).or_insert_with(new)
    }

    /// True if whoever has this row waits for this transaction, perhaps by way of others.
    fn waits_for(&self, row: &Row, who: TurnHolder) -> bool {
        let mut row = row;
        // Nobody waits for itself, so the way ends.
        for _ in 0..=self.holders.len() {
            let Some(queue) = self.rows.get(row) else { return false };
            if queue.holder == who {
                return true;
            }
            let holder = self.holders.get(&queue.holder);
            let Some(wait) = holder.and_then(|holder| holder.waits.as_ref()) else { return false };
            row = &wait.row;
        }
        false
    }

    /// Passes the turn at a row on to whoever waits for it first. Gives the answer to that one.
    fn pass(&mut self, now: Micros, row: &Row) -> Option<Answered> {
        let queue = self.rows.get_mut(row)?;
        let before = queue.holder;
        let next = queue.next.pop_front();
        if let Some(holder) = self.holders.get_mut(&before) {
            holder.rows.remove(row);
        }
        let Some(who) = next else {
            self.rows.remove(row);
            self.bytes -= bytes_of(row);
            self.forget_idle(before);
            return None;
        };
        (queue.holder, queue.since) = (who, self.end);
        self.waiting -= 1;
        self.bytes -= bytes_of(row);
        self.forget_idle(before);
        let holder = self.holders.get_mut(&who)?;
        holder.rows.insert(row.clone());
        holder.until = now + LEASE;
        let wait = holder.waits.take()?;
        Some(Answered::of(wait.to, wait.request, TurnAnswer::Granted { waited: true }))
    }

    /// A transaction waits no more, if it does: it goes on without.
    fn give_up(&mut self, who: TurnHolder) -> Option<Answered> {
        let wait = self.holders.get_mut(&who)?.waits.take()?;
        if let Some(queue) = self.rows.get_mut(&wait.row) {
            queue.next.retain(|other| *other != who);
        }
        self.waiting -= 1;
        self.bytes -= bytes_of(&wait.row);
        self.forget_idle(who);
        Some(Answered::of(wait.to, wait.request, TurnAnswer::Without))
    }

    /// Who has nothing and waits for nothing is forgotten.
    fn forget_idle(&mut self, who: TurnHolder) {
        if self.holders.get(&who).is_some_and(|holder| holder.rows.is_empty() && holder.waits.is_none()) {
            self.holders.remove(&who);
        }
    }
}

#[cfg(test)]
mod tests;
