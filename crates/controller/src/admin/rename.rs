//! Another name: for a table that has got the rows of a table that moves that one's, and for a database any.

use super::names::{called, check_name, name_key, none};
use super::{Answer, FAILED, Job, REFUSED, USAGE};
use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::database::SHARED;
use types::{Holds, TableRecord};
use wire::RecordText;
use wire::control::AlterTable;

impl Controller {
    /// Gives a table the name that the request says, unless something has it. That there is a table neither
    /// of the one name nor of the other is said by a transaction, and not by what this controller remembers:
    /// whoever is told so drops what keeps the rows from being forgotten (PR-380).
    pub(super) fn rename_table(
        &mut self,
        conn: ConnId,
        id: u64,
        (holds, request): (Holds, AlterTable),
    ) -> Option<Answer> {
        let to = match checked(holds, &request) {
            Ok(to) => to,
            Err(refusal) => return Some(Err(refusal)),
        };
        let (from, wanted) = (name_key(holds, &request.name), name_key(holds, &to));
        let there = self.records.compare_with(&wanted);
        let Some(table) = self.records.named(&request.name, holds).cloned() else {
            if self.is_unreadable(holds, &request.name) {
                let why = format!("the record of {} cannot be read here", called(holds, &request.name));
                return Some(Err((FAILED, why)));
            }
            let mut txn = Txn::default().compare(&from, 0).compare(&wanted, there);
            for name in [&request.name, &to] {
                let holder = self.records.holder(name, holds);
                txn.also_read.extend(holder.map(|table| Key::Table(table).to_string()));
            }
            self.submit(Purpose::Admin(conn, id, Job::Rename(holds, request)), txn);
            return None;
        };
        let key = Key::Table(table.id);
        if there > 0 {
            return Some(Err((FAILED, format!("{} exists already", called(holds, &to)))));
        }
        let record = TableRecord { name: to, ..table };
        let txn = Txn::default()
            .compare(&key, self.records.compare_with(&key))
            .compare(&from, self.records.compare_with(&from))
            .compare(&wanted, 0)
            .put(&key, &record)
            .delete(&from)
            .put(&wanted, &record.id);
        self.submit(Purpose::Admin(conn, id, Job::Rename(holds, request)), txn);
        None
    }

    /// There is no table of the old name any more: the one of the new name, if there is one.
    pub(super) fn renamed(&self, holds: Holds, request: &AlterTable) -> Answer {
        let to = request.rename.as_deref().unwrap_or_default();
        match self.records.named(to, holds) {
            Some(table) => Ok(RecordText::new(table).0),
            None if self.records.holder(to, holds).is_some() => {
                Err((FAILED, format!("the record of {} cannot be read here", called(holds, to))))
            }
            None => Err(none(holds, &request.name)),
        }
    }

    /// True if the table of this name has a record, which this version cannot read.
    fn is_unreadable(&self, holds: Holds, name: &str) -> bool {
        let known = self.records.holder(name, holds).map(Key::Table);
        let there = known.is_some_and(|key| self.records.compare_with(&key) > 0);
        there && self.records.named(name, holds).is_none()
    }
}

/// The name that the request asks for, if it may be given.
fn checked(holds: Holds, request: &AlterTable) -> Result<String, (u8, String)> {
    let to = request.rename.clone().unwrap_or_default();
    let alone = AlterTable { rename: request.rename.clone(), ..AlterTable::default() };
    if *request != (AlterTable { name: request.name.clone(), ..alone }) {
        return Err((USAGE, format!("{} gets another name, and nothing else", called(holds, &request.name))));
    }
    let shared = holds == Holds::Database && [&request.name[..], &to].contains(&SHARED);
    if shared {
        return Err((REFUSED, format!("database '{SHARED}' is always there, under this name")));
    }
    if holds != Holds::Database && types::system::moves(&request.name).is_none() {
        let why = format!("{} has no rows of a table that moves", called(holds, &request.name));
        return Err((REFUSED, why));
    }
    check_name(holds, &to)?;
    match types::system::is_reserved(&to) {
        true => Err((USAGE, format!("'{to}' is kept for the cluster itself"))),
        false => Ok(to),
    }
}
