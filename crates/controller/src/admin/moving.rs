//! A bare table that moves: it is held, which is part of its policy, and at the end it is dropped, or another
//! one takes its name. Its partitions follow as they do with every policy (PR-24, PR-400).
//!
//! Nothing is decided here but what the table's record says: each step compares it, so whoever comes late,
//! behind somebody who has ended the hold, changes nothing (PR-402).

use super::names::{being_moved, called, name_key, none};
use super::{Answer, FAILED, Job, NOT_FOUND, REFUSED, Refusal, USAGE};
use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::{Holds, Moves, Policy, TableRecord, system};
use wire::RecordText;
use wire::moves::{MoveStep, MoveTable};

/// What becomes of a table by a step.
#[derive(Clone, PartialEq, Debug)]
enum Outcome {
    /// It has been done before.
    AsItIs,
    /// It has this record.
    Record(Box<TableRecord>),
    /// It is dropped, and the one with the rows gets its name.
    Replaced,
    /// It is dropped.
    Dropped,
}

impl Controller {
    pub(super) fn asked_to_move(&mut self, conn: ConnId, id: u64, text: &RecordText) -> Option<Answer> {
        match text.read::<MoveTable>() {
            Ok(request) => self.move_table(conn, id, request),
            Err(why) => Some(Err((USAGE, why))),
        }
    }

    /// Does a step. That there is no such table any more, that a step is not to be done, or that it has been
    /// done, is said behind a transaction: whoever is told so concludes from it what has become of the table.
    pub(super) fn move_table(&mut self, conn: ConnId, id: u64, request: MoveTable) -> Option<Answer> {
        let key = Key::Table(request.table);
        let known = self.records.compare_with(&key);
        let Some(table) = self.records.table(request.table) else {
            if known > 0 {
                let why = format!("the record of table {} cannot be read here", request.table);
                return Some(Err((FAILED, why)));
            }
            let moving = Key::Name(system::moving(request.number));
            let there = self.records.compare_with(&moving);
            let txn = Txn::default().compare(&key, 0).compare(&moving, there);
            self.submit(Purpose::Admin(conn, id, Job::MoveTable(request)), txn);
            return None;
        };
        let txn = match after(table, &request) {
            // That is found out in the metastore: this controller may know less.
            Err(_) | Ok(Outcome::AsItIs) => Txn::default().compare(&key, known),
            Ok(Outcome::Record(record)) => Txn::default().compare(&key, known).put(&key, &record),
            Ok(Outcome::Dropped) => self.dropping(table),
            Ok(Outcome::Replaced) => match self.replacing(table, &request) {
                Ok(txn) => txn,
                Err(refusal) => return Some(Err(refusal)),
            },
        };
        self.submit(Purpose::Admin(conn, id, Job::MoveTable(request)), txn);
        None
    }

    /// Removes the table's record and its name. Its partitions are swept away after it.
    fn dropping(&self, table: &TableRecord) -> Txn {
        let (key, name) = (Key::Table(table.id), name_key(table.holds, &table.name));
        Txn::default()
            .compare(&key, self.records.compare_with(&key))
            .compare(&name, self.records.compare_with(&name))
            .delete(&key)
            .delete(&name)
    }

    /// The same, and the table with the rows gets the name. Its record is compared as well. That there is no
    /// such table is found out in the metastore: what this finds there is looked at again.
    fn replacing(&self, table: &TableRecord, request: &MoveTable) -> Result<Txn, Refusal> {
        let moving = system::moving(request.number);
        let Some(filled) = self.records.named(&moving, Holds::Table) else {
            let holder = self.records.holder(&moving, Holds::Table).map(Key::Table);
            if holder.as_ref().is_some_and(|key| self.records.compare_with(key) > 0) {
                return Err((FAILED, format!("the record of table '{moving}' cannot be read here")));
            }
            let mut txn = Txn::default().compare(Key::Name(moving), 0);
            txn.also_read.extend(holder.map(|key| key.to_string()));
            return Ok(txn);
        };
        let (old, filled_key) = (Key::Table(table.id), Key::Table(filled.id));
        let (name, moving) = (name_key(table.holds, &table.name), Key::Name(moving));
        let record = TableRecord { name: table.name.clone(), ..filled.clone() };
        let compared = [&old, &filled_key, &name, &moving];
        let txn = compared.into_iter().fold(Txn::default(), |txn, key| {
            let revision = self.records.compare_with(key);
            txn.compare(key, revision)
        });
        Ok(txn.delete(&old).delete(&moving).put(&name, &filled.id).put(&filled_key, &record))
    }

    /// A step was done, or it was found out that it is not to be done. There may be no such table: either it
    /// was done before, or somebody has dropped the table.
    pub(super) fn table_moved(&self, request: &MoveTable) -> Answer {
        let moving = system::moving(request.number);
        let left = self.records.compare_with(&Key::Name(moving.clone())) > 0;
        if let Some(table) = self.records.table(request.table) {
            return match after(table, request)? {
                Outcome::AsItIs | Outcome::Record(_) => Ok(RecordText::new(table).0),
                // What was to get its name is not there.
                Outcome::Replaced | Outcome::Dropped => Err(none(Holds::Table, &moving)),
            };
        }
        match request.step {
            MoveStep::Drop => Ok("{}".into()),
            MoveStep::Replace if !left => Ok("{}".into()),
            _ => Err((NOT_FOUND, format!("table {} is not there any more", request.table))),
        }
    }
}

/// What becomes of a table by a step, if that may be done.
fn after(table: &TableRecord, request: &MoveTable) -> Result<Outcome, Refusal> {
    let with =
        |moves: Option<Moves>| Policy { version: table.policy.version + 1, moves, ..table.policy.clone() };
    let changed = |policy: Policy| {
        let mut record = TableRecord { policy, ..table.clone() };
        if record.policy.moves.is_none() {
            record.unknown.remove(TableRecord::HELD);
        }
        record
    };
    let said = |mut record: TableRecord, at_ms: u64| {
        record.unknown.insert(TableRecord::HELD.into(), at_ms.into());
        Ok(Outcome::Record(Box::new(record)))
    };
    let own = table.policy.moves.filter(|moves| moves.number == request.number);
    let closed = own.is_some_and(|moves| moves.closed);
    match request.step {
        MoveStep::Hold { at_ms, into } => {
            let moves = Moves { number: request.number, into, closed: false };
            may_be_held(table)?;
            match (own, table.policy.moves) {
                (Some(_), _) => Ok(Outcome::AsItIs),
                (None, Some(_)) => Err((REFUSED, being_moved(table))),
                (None, None) => said(changed(with(Some(moves))), at_ms),
            }
        }
        // Whoever frees it finds it free, be it by somebody else.
        MoveStep::Free { .. } if own.is_none() => Ok(Outcome::AsItIs),
        MoveStep::Free { said_ms } if said_ms.is_some_and(|said| said != table.held_ms()) => {
            Err((REFUSED, being_moved(table)))
        }
        MoveStep::Free { .. } => Ok(Outcome::Record(Box::new(changed(with(None))))),
        MoveStep::Close if closed && table.policy.version.checked_sub(1) == Some(request.version) => {
            Ok(Outcome::AsItIs)
        }
        _ if own.is_none() || table.policy.version != request.version => Err(ended(table)),
        MoveStep::Renew { at_ms } => said(table.clone(), at_ms),
        MoveStep::Close => {
            let moves = own.map(|own| Moves { closed: true, ..own });
            Ok(Outcome::Record(Box::new(changed(with(moves)))))
        }
        MoveStep::Replace | MoveStep::Drop if !closed => {
            Err((REFUSED, format!("{} is still read", called(table.holds, &table.name))))
        }
        MoveStep::Replace => Ok(Outcome::Replaced),
        MoveStep::Drop => Ok(Outcome::Dropped),
    }
}

/// Refuses what has no clients that write rows of it.
fn may_be_held(table: &TableRecord) -> Result<(), Refusal> {
    if !table.holds.is_table() {
        return Err((USAGE, format!("{} has no rows of its own", called(table.holds, &table.name))));
    }
    match system::is_reserved(&table.name) {
        true => Err((REFUSED, format!("table '{}' is the cluster's own", table.name))),
        false => Ok(()),
    }
}

/// Somebody has ended the hold, or changed the table's policy.
fn ended(table: &TableRecord) -> Refusal {
    (REFUSED, format!("{} is not held for that move any more", called(table.holds, &table.name)))
}
