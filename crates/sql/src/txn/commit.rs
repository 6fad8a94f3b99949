//! COMMIT: one write of everything, if nothing of it has changed since it was read.

use super::buffer::{Written, aside};
use super::{Buffer, Limit, Open, View, global, met};
use crate::catalog::Catalog;
use crate::constraints::violation::{self, Refused};
use crate::driver::Handle;
use crate::early::Checked;
use crate::fault::{self, Decided};
use crate::several;
use crate::write::{self, Batch};
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{TableId, TableRecord};
use wire::{RowOp, TableChange};

impl Open {
    /// What it writes, and its tables.
    ///
    /// It may block if rows are in a file; one write is never of such a transaction.
    pub fn written(&self) -> Result<(Vec<Written>, &BTreeMap<TableId, Table>), Failure> {
        let mut parts = self.view.buffer.operations()?;
        parts.retain(|part| !self.definitions.has_dropped(part.table));
        Ok((parts, &self.tables))
    }

    /// True if it can be committed by several entries.
    pub fn may_be_large(&self) -> bool {
        let large = |table: &Table| self.view.buffer.limit(table.record()) == Limit::LARGE;
        self.definitions.is_empty() && self.tables.values().all(large)
    }

    /// True if COMMIT is one write.
    pub fn fits_a_write(&self) -> bool {
        self.view.buffer.fits_a_write(|table| self.definitions.has_dropped(table))
    }

    /// Has all that it writes in memory again, where one write has it.
    pub async fn bring_back(&mut self) -> Result<(), Failure> {
        let buffer = aside(&self.view.buffer, Buffer::brought_back).await?;
        self.view.buffer = Arc::new(buffer);
        Ok(())
    }

    /// The rows that it writes.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.view.buffer
    }

    /// A table whose rows it writes, as it knows that.
    pub fn table(&self, table: TableId) -> Result<&Table, Failure> {
        self.tables.get(&table).ok_or_else(unknown_table)
    }

    /// The tables that it writes are these from here on, where they have other versions now.
    pub fn look_at(&mut self, catalog: &Catalog) {
        for record in catalog.all() {
            if let Some(known) = self.tables.get_mut(&record.id) {
                *known = Table::new(record.clone());
            }
        }
    }

    /// The error of a transaction that has written a table which is not as it was. What it has made, altered
    /// or dropped itself is not looked at: COMMIT names the versions.
    pub fn knows_its_tables(&self, catalog: &Catalog) -> Result<(), Failure> {
        let own = |id: TableId| {
            let definitions = &self.definitions;
            let altered = definitions.altered().contains_key(&id);
            altered || definitions.has_made(id) || definitions.has_dropped(id)
        };
        let written = self.view.buffer.tables().into_iter().filter(|id| !own(*id));
        for known in written.filter_map(|id| self.tables.get(&id)) {
            let now = catalog.table(known.name()).filter(|now| now.id == known.id());
            if now.is_none_or(|now| now.schema.version() != known.schema().version()) {
                let name = known.name();
                let message = format!("table \"{name}\" was changed or dropped during the transaction");
                return Err(Failure::new(fault::SERIALIZATION, message).hint("do the transaction again"));
            }
        }
        Ok(())
    }

    /// COMMIT: one write of everything, if nothing of it has changed since it was read. Where transactions
    /// are global, what it claims was `checked`.
    pub async fn commit(&mut self, handle: &Handle, checked: Option<Checked>) -> Result<(), Failure> {
        if !self.definitions.is_empty() {
            self.busy()?;
            return self.commit_tables(handle).await;
        }
        let (parts, _) = self.written()?;
        if parts.is_empty() {
            return Ok(());
        }
        self.busy()?;
        let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
        self.knows_its_tables(&catalog)?;
        if handle.is_global() {
            return match global::commit(handle, (&self.tables, checked), parts).await? {
                Decided::Done(_) => Ok(()),
                _ => Err(fault::conflict()),
            };
        }
        let inserted = self.inserted(&parts);
        let refused = self.refused(&parts);
        let decided = self.send(handle, parts).await?;
        let refused_for = matches!(decided, Decided::Exists | Decided::Violates(_));
        // The outcome is known: whatever becomes of this question, nothing was written.
        if refused_for && matches!(self.is_overtaken(handle).await, Ok(true)) {
            return Err(fault::conflict());
        }
        match decided {
            Decided::Done(_) => Ok(()),
            Decided::Exists => Err(self.one_exists(handle, &inserted).await),
            Decided::Changed => Err(fault::conflict()),
            Decided::Violates(number) => Err(forbidden(handle, number, (&refused, self.buffer())).await),
        }
    }

    /// The error of a COMMIT one of whose new rows is there already.
    pub async fn one_exists(&self, handle: &Handle, inserted: &[(Table, Bytes)]) -> Failure {
        let buffer = self.buffer();
        match buffer.has_puts() {
            true => fault::conflict(),
            false => {
                // Of what cannot be read it is so: nothing is written any more.
                let looked = |table, key: &[u8]| buffer.has_looked(table, key).unwrap_or(true);
                write::one_exists(handle, inserted, looked).await
            }
        }
    }

    /// The first of the rows that are inserted, as many as are asked about if one of them is there already.
    pub fn inserted(&self, parts: &[Written]) -> Vec<(Table, Bytes)> {
        let rows = parts.iter().flat_map(|part| part.ops.iter().map(|op| (part.table, op)));
        let inserted = rows.filter(|(_, op)| matches!(op, RowOp::Insert { .. }));
        let named =
            inserted.filter_map(|(table, op)| Some((self.tables.get(&table)?.clone(), op.key().clone())));
        named.take(write::MAX_ASKED + 1).collect()
    }

    /// Writes rows of the transaction's partition, if none of them has changed since it was seen.
    async fn send(&self, handle: &Handle, mut parts: Vec<Written>) -> Result<Decided, Failure> {
        let partition = self.view.buffer.partition();
        let Some(since) = parts.iter().flat_map(|part| &part.seen).max().copied() else {
            return Err(Failure::new(code::INTERNAL, "a transaction writes what it has not read"));
        };
        let alike = parts.iter().flat_map(|part| &part.seen).all(|seen| *seen == since);
        if parts.len() == 1 && alike {
            let Written { table, ops, .. } = parts.remove(0);
            let table = self.tables.get(&table).ok_or_else(unknown_table)?;
            return Batch { partition: Some(partition), ops }.send(handle, table, Some(since)).await;
        }
        write::send_parts(handle, (Vec::new(), &self.tables), (parts, None), partition).await
    }

    /// True if others have changed a row since that the transaction has changed. It cannot commit any more,
    /// and what a statement is refused for may be so only because of that: the numbers that it took of a row
    /// are another's. Of a large transaction not all rows are looked at.
    pub async fn is_overtaken(&self, handle: &Handle) -> Result<bool, Failure> {
        let parts = aside(&self.view.buffer, |buffer| buffer.unchanged(0)).await?;
        if parts.is_empty() || !self.definitions.is_empty() {
            return Ok(false);
        }
        if handle.is_global() {
            return global::have_changed(handle, &self.tables, &parts).await;
        }
        Ok(matches!(self.send(handle, parts).await?, Decided::Changed))
    }

    /// The same of all rows of a large transaction.
    pub async fn is_overtaken_anywhere(&self, handle: &Handle) -> Result<bool, Failure> {
        let mut passed = 0;
        loop {
            let parts = aside(&self.view.buffer, move |buffer| buffer.unchanged(passed)).await?;
            if parts.is_empty() {
                return Ok(false);
            }
            passed += parts.iter().map(|part| part.ops.len()).sum::<usize>();
            if matches!(self.send(handle, parts).await?, Decided::Changed) {
                return Ok(true);
            }
        }
    }

    /// True if others have inserted a row since that one of the transaction's is like, where ON CONFLICT has
    /// looked for such a row: the statement does something else when it is done again.
    pub async fn is_met(&self, handle: &Handle) -> bool {
        met::is_met(handle, self.buffer(), None).await
    }

    /// What is said of a write of these rows.
    pub fn refused(&self, parts: &[Written]) -> Refused {
        Refused::new(parts.iter().filter_map(|part| Some((self.tables.get(&part.table)?, &part.ops[..]))))
    }

    /// COMMIT of what was done to tables, with all rows.
    async fn commit_tables(&mut self, handle: &Handle) -> Result<(), Failure> {
        let changes = self.definitions.changes();
        let built = self.definitions.to_build();
        self.commit_by(handle, (changes, &[])).await?;
        several::built_soon(handle, &built).await;
        Ok(())
    }

    /// COMMIT by these changes of tables, in one entry with all rows. Those of the tables that are given are
    /// written under the versions which these have there.
    pub async fn commit_by(
        &mut self,
        handle: &Handle,
        (changes, given): (Vec<TableChange>, &[Arc<TableRecord>]),
    ) -> Result<(), Failure> {
        let (parts, _) = self.written()?;
        let catalog = handle.current().await?;
        for part in &parts {
            let is_of = |record: &&Arc<TableRecord>| record.id == part.table;
            if let Some(record) = given.iter().find(is_of).or_else(|| catalog.all().find(is_of)) {
                // One that the transaction has made or altered may have got columns since.
                self.tables.insert(part.table, Table::new(record.clone()));
            }
        }
        // A table gets its name only where all of its rows are.
        let since = self.loads.acknowledged().newest(handle).await?;
        let refused = self.refused(&parts);
        let first = handle.database_record()?.partition();
        let sent = (changes.clone(), &self.tables);
        let decided = match write::send_parts(handle, sent, (parts, since), first).await {
            // What tables show is of the one entry that has the rows, too.
            Err(failure) if fault::is_unknown(&failure) => match several::are_done(handle, &changes).await {
                true => None,
                false => return Err(failure),
            },
            sent => Some(sent?),
        };
        match decided {
            None | Some(Decided::Done(_)) => {
                self.loads.committed(&self.definitions);
                handle.look_again().await;
                Ok(())
            }
            Some(Decided::Violates(number)) => {
                Err(forbidden(handle, number, (&refused, self.buffer())).await)
            }
            Some(Decided::Exists | Decided::Changed) => Err(fault::conflict()),
        }
    }

    /// How a statement sees rows now that rests on none of the transaction's states, with what the
    /// transaction has written.
    pub fn view_of_now(&self, handle: &Handle) -> View {
        self.view.with_nothing_seen(handle.partitions())
    }
}

fn unknown_table() -> Failure {
    Failure::new(code::INTERNAL, "a transaction writes a table that it does not know")
}

/// The error of a COMMIT that a constraint forbids, of what the transaction has written.
pub async fn forbidden(
    handle: &Handle,
    number: u32,
    (refused, written): (&Refused, &Arc<Buffer>),
) -> Failure {
    // What refers to a row that goes came meanwhile, or what ON CONFLICT is to meet.
    let came = violation::passes(handle, number, refused) || met::is_met(handle, written, Some(number)).await;
    match came {
        true => fault::conflict(),
        false => violation::told(handle, number, refused).await,
    }
}
