//! Another name for a table: one that has got the rows of a table that moves takes the name of that one.

use super::tables::{called, check_name, name_key, none};
use super::{Answer, FAILED, Job, REFUSED, USAGE};
use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::{Holds, TableRecord};
use wire::RecordText;
use wire::control::AlterTable;

impl Controller {
    /// Gives a table the name that the request says, unless something has it. That there is no such table is
    /// said by a transaction, and not by what this controller remembers: whoever is told so drops what keeps
    /// the rows from being forgotten (PR-380).
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
        let from = name_key(holds, &request.name);
        let Some(table) = self.records.named(&request.name, holds).cloned() else {
            let known = self.records.holder(&request.name).map(Key::Table);
            if known.as_ref().is_some_and(|key| self.records.compare_with(key) > 0) {
                let why = format!("the record of {} cannot be read here", called(holds, &request.name));
                return Some(Err((FAILED, why)));
            }
            let mut txn = Txn::default().compare(&from, 0);
            txn.also_read.extend(known.map(|key| key.to_string()));
            self.submit(Purpose::Admin(conn, id, Job::Rename(holds, request)), txn);
            return None;
        };
        let (key, wanted) = (Key::Table(table.id), name_key(holds, &to));
        if self.records.compare_with(&wanted) > 0 {
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
        let found = request.rename.as_ref().and_then(|to| self.records.named(to, holds));
        found.map(|table| RecordText::new(table).0).ok_or_else(|| none(holds, &request.name))
    }
}

/// The name that the request asks for, if it may be given.
fn checked(holds: Holds, request: &AlterTable) -> Result<String, (u8, String)> {
    let to = request.rename.clone().unwrap_or_default();
    let alone = AlterTable { rename: request.rename.clone(), ..AlterTable::default() };
    if *request != (AlterTable { name: request.name.clone(), ..alone }) {
        return Err((USAGE, format!("{} gets another name, and nothing else", called(holds, &request.name))));
    }
    if holds != Holds::Table || types::system::moves(&request.name).is_none() {
        let why = format!("{} has no rows of a table that moves", called(holds, &request.name));
        return Err((REFUSED, why));
    }
    check_name(holds, &to)?;
    match types::system::is_reserved(&to) {
        true => Err((USAGE, format!("'{to}' is kept for the cluster itself"))),
        false => Ok(to),
    }
}
