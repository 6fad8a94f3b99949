//! Turns at rows that sessions of several nodes want: they are asked of the partition's primary
//! ([`wire::row_turn`]). Only rows are asked for at which somebody else was faster a short while ago, so what
//! nobody else wants costs no message. Nothing rests on it.

use crate::driver::Handle;
use bytes::Bytes;
use client::{Answer, Call, Outcome, Table};
use pg::{Cancel, Failure};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use types::{Micros, PartitionId, TableId};
use wire::row_turn::MAX_TURN_WAIT_MS;
use wire::{Body, Op, TurnAnswer, TurnHolder, TurnOp};

/// So long a row is asked for at the primary after somebody else was faster, or had it.
const CONTENDED: Duration = Duration::from_secs(10);
/// The most rows that are known to be wanted by others. With one more all are forgotten.
const MAX_CONTENDED: usize = 10_000;
/// A transaction that wants more rows says nothing of them: which one others have changed is not known.
const MAX_WANTED: usize = 64;
/// The longest key that is remembered, in bytes.
const MAX_KEY: usize = 1_024;
/// The most rows for which one transaction asks primaries.
const MAX_ASKED: usize = 64;
/// How much longer than for a turn its answer is waited for.
const MARGIN: Micros = Micros::from_millis(500);
/// How long it is tried to tell a primary that a transaction is over.
const RELEASE: Micros = Micros::from_millis(1_000);

/// A row of a table, by its encoded key.
pub type Row = (TableId, Bytes);

/// The rows that others than this node's sessions want.
#[derive(Debug)]
pub struct SharedRows {
    /// Names this process.
    gateway: u64,
    /// Until when each is asked for.
    contended: Mutex<HashMap<Row, Instant>>,
}

impl Default for SharedRows {
    fn default() -> SharedRows {
        let gateway = std::hash::RandomState::new().build_hasher().finish();
        SharedRows { gateway, contended: Mutex::default() }
    }
}

impl SharedRows {
    fn contended(&self) -> MutexGuard<'_, HashMap<Row, Instant>> {
        self.contended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody else has changed one of these rows, or has it.
    pub fn note<'a>(&self, rows: impl Iterator<Item = &'a Row>, now: Instant) {
        let until = now + CONTENDED;
        let mut contended = self.contended();
        for (table, key) in rows.filter(|(_, key)| key.len() <= MAX_KEY) {
            // A key may be a part of what was read with it.
            let row = (*table, Bytes::copy_from_slice(key));
            if contended.len() >= MAX_CONTENDED && !contended.contains_key(&row) {
                contended.clear();
            }
            contended.insert(row, until);
        }
    }

    /// True if the primary is to be asked for a row.
    pub fn is_contended(&self, row: &Row, now: Instant) -> bool {
        let mut contended = self.contended();
        let until = contended.get(row).copied();
        let wanted = until.is_some_and(|until| now < until);
        if until.is_some() && !wanted {
            contended.remove(row);
        }
        wanted
    }

    /// The name of a transaction of this node.
    pub fn holder(&self, transaction: u64) -> TurnHolder {
        TurnHolder { gateway: self.gateway, transaction }
    }
}

/// These rows, if they are few enough to say something of others.
pub fn few<'a>(rows: impl ExactSizeIterator<Item = &'a Row>) -> Vec<Row> {
    if rows.len() <= MAX_WANTED { rows.cloned().collect() } else { Vec::new() }
}

/// What one transaction has asked of primaries.
#[derive(Default)]
pub struct SharedTurns {
    /// How many rows.
    asked: usize,
    /// By partition, what tells its primary that the transaction is over.
    over: BTreeMap<PartitionId, (Handle, Call)>,
}

impl SharedTurns {
    /// Asks for the turn at a row, and waits for it until this time, if others want the row. True if an
    /// answer came: the row may be another one than before. Without an answer, as while nobody leads, it
    /// goes on.
    pub async fn ask(
        &mut self,
        (rows, who): (&SharedRows, TurnHolder),
        (handle, table): (&Handle, &Table),
        row: &Row,
        (until, cancel): (Instant, &Cancel),
    ) -> Result<bool, Failure> {
        let now = Instant::now();
        if self.asked >= MAX_ASKED || !rows.is_contended(row, now) {
            return Ok(false);
        }
        let left = until.saturating_duration_since(now).as_millis();
        let wait_ms = u32::try_from(left).unwrap_or(u32::MAX).min(MAX_TURN_WAIT_MS);
        let Ok(partition) = table.partition_of(&row.1) else { return Ok(false) };
        self.asked += 1;
        let release = || table.call(partition, Op::Turn(TurnOp::Release { who })).within(RELEASE);
        // Also if the answer is not waited for: it may come, and stand in the way of others.
        self.over.entry(partition).or_insert_with(|| (handle.clone(), release()));
        let ask = Op::Turn(TurnOp::Ask { who, key: row.1.clone(), wait_ms });
        let patience = Micros::from_millis(u64::from(wait_ms)) + MARGIN;
        let outcome = tokio::select! {
            outcome = handle.call(table.call(partition, ask).within(patience)) => outcome,
            () = cancel.wait() => return Err(crate::statements::canceled()),
        };
        let Outcome::Ok(Answer { body: Body::Turn(answer), .. }) = outcome else { return Ok(false) };
        match answer {
            TurnAnswer::Deadlock => Err(deadlock()),
            TurnAnswer::Granted { waited: false } | TurnAnswer::Released => Ok(true),
            TurnAnswer::Granted { waited: true } | TurnAnswer::Without => {
                rows.note([row].into_iter(), Instant::now());
                Ok(true)
            }
        }
    }

    /// Tells the primaries that the transaction is over.
    pub fn release(&mut self) {
        self.asked = 0;
        for (handle, release) in std::mem::take(&mut self.over).into_values() {
            // Who is not told finds out by itself, seconds later.
            handle.submit(release, drop);
        }
    }
}

/// The error of who would wait for itself.
pub fn deadlock() -> Failure {
    Failure::new("40P01", "deadlock detected").hint("do the transaction again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        (TableId(1), Bytes::copy_from_slice(name.as_bytes()))
    }

    #[test]
    fn a_row_is_asked_for_some_seconds_after_somebody_else_was_faster() {
        let (rows, began) = (SharedRows::default(), Instant::now());
        assert!(!rows.is_contended(&row("a"), began));
        rows.note([row("a")].iter(), began);
        assert!(rows.is_contended(&row("a"), began) && !rows.is_contended(&row("b"), began));
        rows.note([row("b")].iter(), began + CONTENDED / 2);
        let later = began + CONTENDED;
        assert!(!rows.is_contended(&row("a"), later) && rows.is_contended(&row("b"), later));
        assert_eq!(rows.contended().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn pr376_what_is_known_of_rows_that_others_want_is_bounded() {
        let (rows, now) = (SharedRows::default(), Instant::now());
        for number in 0..=MAX_CONTENDED {
            rows.note([row(&number.to_string())].iter(), now);
        }
        assert_eq!(rows.contended().len(), 1);
        rows.note([row(&"k".repeat(MAX_KEY + 1))].iter(), now);
        assert_eq!(rows.contended().len(), 1);
        let many: Vec<Row> = (0..=MAX_WANTED).map(|number| row(&number.to_string())).collect();
        assert_eq!((few(many.iter()).len(), few(many[1..].iter()).len()), (0, MAX_WANTED));
        let (one, two) = (SharedRows::default().holder(1), SharedRows::default().holder(1));
        assert_ne!(one, two, "each process has a name of its own");
    }
}
