//! Rows that several transactions of this node want to write: they take turns, so that each reads what
//! the one before it has committed. Whoever is first here asks the partition's primary where other nodes want
//! the row, too ([`super::shared_turns`]). Safety does not rest on it: COMMIT finds out what others have
//! changed, whoever they are.

use super::shared_turns::{self, SharedRows, SharedTurns};
use crate::driver::Handle;
use bytes::Bytes;
use client::Table;
use pg::{Cancel, Failure};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub use super::shared_turns::Row;

/// The longest wait of one statement. After it rows are read without a turn, and COMMIT finds out.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// A transaction that has so many rows takes no turns at more.
const MAX_ROWS: usize = 50_000;

/// Until when a statement that begins now waits.
pub fn deadline() -> Instant {
    Instant::now() + TURN_TIMEOUT
}

/// Who has which row, on one node.
#[derive(Debug, Default)]
pub struct Turns {
    state: Mutex<QueueState>,
    /// The rows that sessions of other nodes want, too.
    shared: SharedRows,
}

#[derive(Debug, Default)]
struct QueueState {
    rows: HashMap<Row, Queue>,
    /// What each transaction waits for.
    waiting: HashMap<u64, Row>,
    /// The number of the last transaction.
    last: u64,
}

#[derive(Debug)]
struct Queue {
    holder: u64,
    next: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Turns {
    /// Others were faster at one of these rows: the primary is asked for them from now on, for some seconds.
    pub fn note_conflict(&self, rows: &[Row]) {
        self.shared.note(rows.iter(), Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Takes a row, or a place in its queue. The error: all would wait for each other.
    fn ask(&mut self, who: u64, row: &Row) -> Result<Option<oneshot::Receiver<()>>, Failure> {
        if !self.rows.contains_key(row) {
            self.rows.insert(row.clone(), Queue { holder: who, next: VecDeque::new() });
            return Ok(None);
        }
        let holds = |state: &QueueState, row: &Row| state.rows.get(row).map(|queue| queue.holder);
        let mut holder = holds(self, row);
        while let Some(other) = holder {
            if other == who {
                return Err(shared_turns::deadlock());
            }
            holder = self.waiting.get(&other).and_then(|row| holds(self, row));
        }
        let (turn, comes) = oneshot::channel();
        if let Some(queue) = self.rows.get_mut(row) {
            queue.next.push_back((who, turn));
        }
        self.waiting.insert(who, row.clone());
        Ok(Some(comes))
    }

    /// Gives a row to whoever waits for it first, if it is this one's.
    fn pass(&mut self, from: u64, row: &Row) {
        let Some(queue) = self.rows.get_mut(row).filter(|queue| queue.holder == from) else { return };
        while let Some((who, turn)) = queue.next.pop_front() {
            // Who is gone does not take it.
            if turn.send(()).is_ok() {
                queue.holder = who;
                self.waiting.remove(&who);
                return;
            }
        }
        self.rows.remove(row);
    }
}

/// The rows that one transaction has. They are passed on when it is dropped.
pub struct TurnGuard {
    turns: Arc<Turns>,
    who: u64,
    rows: BTreeSet<Row>,
    /// What it waits for, or waited for when that was given up.
    wanted: Option<Row>,
    /// Its turns at primaries.
    shared: SharedTurns,
}

impl TurnGuard {
    /// A transaction that has none.
    pub fn new(turns: &Arc<Turns>) -> TurnGuard {
        let mut state = turns.state();
        state.last += 1;
        let (rows, shared) = (BTreeSet::new(), SharedTurns::default());
        TurnGuard { turns: turns.clone(), who: state.last, rows, wanted: None, shared }
    }

    /// Waits for a row, until this time, and then at its primary if sessions of other nodes want it. True if
    /// it may be another one than before.
    pub async fn take_among_all(
        &mut self,
        place: (&Handle, &Table),
        key: Bytes,
        wait: (Instant, &Cancel),
    ) -> Result<bool, Failure> {
        let row = (place.1.id(), key);
        if self.rows.contains(&row) {
            return Ok(false);
        }
        let waited = self.take(row.clone(), wait).await?;
        if !self.rows.contains(&row) {
            return Ok(waited);
        }
        let who = self.turns.shared.holder(self.who);
        let asked = self.shared.ask((&self.turns.shared, who), place, &row, wait).await?;
        Ok(waited || asked)
    }

    /// Its rows, if they are few.
    pub fn wanted(&self) -> Vec<Row> {
        shared_turns::few(self.rows.iter())
    }

    /// Others were faster at one of its rows.
    pub fn note_conflict(&self) {
        self.turns.note_conflict(&self.wanted());
    }

    /// Waits for a row, until this time. True if somebody had it: then it may be another one than before. Who
    /// has waited too long goes on without it.
    pub async fn take(&mut self, row: Row, (until, cancel): (Instant, &Cancel)) -> Result<bool, Failure> {
        self.settle();
        if self.rows.contains(&row) {
            return Ok(false);
        }
        let asked = self.turns.state().ask(self.who, &row)?;
        let Some(comes) = asked else {
            self.rows.insert(row);
            return Ok(false);
        };
        self.wanted = Some(row);
        let waited = tokio::select! {
            // Whether it came is looked up.
            _ = comes => Ok(true),
            () = tokio::time::sleep_until(until) => Ok(false),
            () = cancel.wait() => Err(crate::statements::canceled()),
        };
        self.settle();
        waited
    }

    /// Takes a row that nobody else has. True if it has it now.
    pub fn try_take(&mut self, row: Row) -> bool {
        if self.rows.contains(&row) {
            return true;
        }
        let mut state = self.turns.state();
        let new = || Queue { holder: self.who, next: VecDeque::new() };
        if state.rows.entry(row.clone()).or_insert_with(new).holder != self.who {
            return false;
        }
        drop(state);
        self.rows.insert(row);
        true
    }

    /// True if it has as many rows as it may.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= MAX_ROWS
    }

    /// True if it has this row.
    pub fn has(&self, row: &Row) -> bool {
        self.rows.contains(row)
    }

    /// Passes one row on.
    pub fn give_back(&mut self, row: &Row) {
        if self.rows.remove(row) {
            self.turns.state().pass(self.who, row);
        }
    }

    /// It waits no more. Has the row, if that has come.
    fn settle(&mut self) {
        let Some(row) = self.wanted.take() else { return };
        let mut state = self.turns.state();
        state.waiting.remove(&self.who);
        let Some(queue) = state.rows.get_mut(&row) else { return };
        queue.next.retain(|(who, _)| *who != self.who);
        if queue.holder == self.who {
            self.rows.insert(row);
        }
    }
}

impl TurnGuard {
    /// Passes its rows on: the transaction writes none of them any more.
    pub fn release(&mut self) {
        self.settle();
        self.shared.release();
        let mut state = self.turns.state();
        for row in std::mem::take(&mut self.rows) {
            state.pass(self.who, &row);
        }
    }

    /// What passes its rows on for somebody else than the transaction itself.
    pub fn leaver(&self) -> Leaver {
        Leaver { turns: self.turns.clone(), who: self.who }
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.release();
    }
}

/// Rows that are taken without waiting.
impl super::Open {
    /// Takes those of these rows that nobody else has, and passes those on that a look before has taken and
    /// that are not among them. True if it did not have all of them before, whether it could take them
    /// or not; and what these looks have taken.
    pub fn take_free(
        &mut self,
        rows: &BTreeSet<Row>,
        before: Option<&BTreeSet<Row>>,
    ) -> (bool, BTreeSet<Row>) {
        let none = BTreeSet::new();
        let before = before.unwrap_or(&none);
        before.difference(rows).for_each(|row| self.turns.give_back(row));
        let (mut again, mut taken) = (false, before.intersection(rows).cloned().collect::<BTreeSet<_>>());
        for row in rows {
            if self.turns.has(row) {
                continue;
            }
            again = true;
            if self.turns.try_take(row.clone()) {
                taken.insert(row.clone());
            }
        }
        (again, taken)
    }

    /// Its rows, for who looks which ones nobody else has.
    pub fn held(&self) -> Leaver {
        self.turns.leaver()
    }
}

/// The rows of a transaction, for somebody else: who passes them on when its client is silent, and who looks
/// which ones it may have.
#[derive(Clone, Debug)]
pub struct Leaver {
    turns: Arc<Turns>,
    who: u64,
}

impl Leaver {
    /// True if no other transaction has this row.
    pub fn may_have(&self, row: &Row) -> bool {
        self.turns.state().rows.get(row).is_none_or(|queue| queue.holder == self.who)
    }

    /// Does it.
    pub fn leave(&self) {
        let mut state = self.turns.state();
        let own = state.rows.iter().filter(|(_, queue)| queue.holder == self.who);
        let own: Vec<Row> = own.map(|(row, _)| row.clone()).collect();
        own.iter().for_each(|row| state.pass(self.who, row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::TableId;

    fn row(name: &str) -> Row {
        (TableId(1), Bytes::copy_from_slice(name.as_bytes()))
    }

    #[tokio::test]
    async fn a_row_is_passed_on_in_the_order_of_asking() {
        let (turns, cancel) = (Arc::new(Turns::default()), Cancel::default());
        let mut first = TurnGuard::new(&turns);
        assert_eq!(first.take(row("a"), (deadline(), &cancel)).await, Ok(false));
        assert_eq!(first.take(row("a"), (deadline(), &cancel)).await, Ok(false), "it has it");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for number in 0..3 {
            let (mut held, cancel, order) = (TurnGuard::new(&turns), cancel.clone(), order.clone());
            let task = tokio::spawn(async move {
                let waited = held.take(row("a"), (deadline(), &cancel)).await;
                order.lock().expect("no panic").push(number);
                waited
            });
            // It stands in the queue before the next one asks.
            while turns.state().waiting.len() <= number {
                tokio::task::yield_now().await;
            }
            waiting.push(task);
        }
        drop(first);
        for task in waiting {
            assert_eq!(task.await.expect("no panic"), Ok(true));
        }
        assert_eq!(*order.lock().expect("no panic"), [0, 1, 2]);
        assert!(turns.state().rows.is_empty() && turns.state().waiting.is_empty());
    }

    #[tokio::test]
    async fn who_waits_for_each_other_is_told_and_who_gives_up_leaves_the_queue() {
        let (turns, cancel) = (Arc::new(Turns::default()), Cancel::default());
        let (mut one, mut two) = (TurnGuard::new(&turns), TurnGuard::new(&turns));
        assert_eq!(one.take(row("a"), (deadline(), &cancel)).await, Ok(false));
        assert_eq!(two.take(row("b"), (deadline(), &cancel)).await, Ok(false));
        let stop = Cancel::default();
        let (stopped, task) =
            (stop.clone(), tokio::spawn(async move { (one.take(row("b"), (deadline(), &stop)).await, one) }));
        while turns.state().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            two.take(row("a"), (deadline(), &cancel)).await.map_err(|failure| failure.code),
            Err("40P01")
        );
        stopped.ask();
        let (waited, one) = task.await.expect("no panic");
        assert_eq!(waited.map_err(|failure| failure.code), Err("57014"));
        drop(two);
        assert!(!turns.state().rows.contains_key(&row("b")), "nobody waits for it any more");
        drop(one);
        assert!(turns.state().rows.is_empty());
    }

    #[tokio::test]
    async fn rows_of_one_that_is_over_are_passed_on_once() {
        let (turns, cancel) = (Arc::new(Turns::default()), Cancel::default());
        let (mut one, mut two) = (TurnGuard::new(&turns), TurnGuard::new(&turns));
        assert_eq!(one.take(row("a"), (deadline(), &cancel)).await, Ok(false));
        one.leaver().leave();
        assert_eq!(two.take(row("a"), (deadline(), &cancel)).await, Ok(false), "it is free");
        drop(one);
        assert!(turns.state().rows.contains_key(&row("a")), "it is the other one's");
        two.release();
        assert!(turns.state().rows.is_empty());
        // A statement that has waited long enough goes on without any of the rows that it wants.
        let mut three = TurnGuard::new(&turns);
        for name in ["a", "b"] {
            assert_eq!(two.take(row(name), (deadline(), &cancel)).await, Ok(false));
            assert_eq!(three.take(row(name), (Instant::now(), &cancel)).await, Ok(false));
        }
    }
}
