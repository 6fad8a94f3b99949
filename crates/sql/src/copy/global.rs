//! Rows of a COPY into a table that global transactions write: about a megabyte of them in each transaction,
//! one after the other.

use super::CopyInput;
use super::copy_input::{Batch, twice};
use crate::early;
use crate::fault::{self, Decided};
use crate::read;
use crate::txn::buffer::Written;
use crate::txn::{View, global};
use crate::write;
use bytes::Bytes;
use pg::Failure;
use std::collections::BTreeMap;
use types::PartitionId;

/// So many bytes of keys and rows are one transaction.
const BYTES: usize = 1 << 20;
/// So many rows are.
const ROWS: usize = 2_000;
/// A transaction is done again so often because others have written one of its keys.
const ATTEMPTS: u32 = 5;

impl CopyInput {
    /// Commits the rows that have come, if they are as many as go into one transaction.
    pub(super) async fn commit_full(&mut self) -> Result<(), Failure> {
        let rows: usize = self.forming.values().map(|batch| batch.ops.len()).sum();
        match rows >= ROWS || self.forming_bytes >= BYTES {
            true => self.commit_rows().await,
            false => Ok(()),
        }
    }

    /// Commits the rows that have come and are not stored yet, all or none.
    pub(super) async fn commit_rows(&mut self) -> Result<(), Failure> {
        self.forming_bytes = 0;
        let mut all = Batch::default();
        for batch in std::mem::take(&mut self.forming).into_values() {
            all.ops.extend(batch.ops);
            all.lines.extend(batch.lines);
        }
        if all.ops.is_empty() {
            return Ok(());
        }
        self.check(&all).await?;
        let keys: Vec<Bytes> = all.ops.iter().map(|op| op.key().clone()).collect();
        if let Some(at) = twice(&keys) {
            return Err(self.is_there(&all, &keys, at));
        }
        let rows = keys.len() as u64;
        // Who is cancelled meanwhile does not know what became of these.
        self.unknown += rows;
        for _ in 0..ATTEMPTS {
            match self.commit_once(&all, &keys).await {
                Ok(Decided::Done(_)) => {
                    self.unknown -= rows;
                    self.stored.rows += rows;
                    return Ok(());
                }
                Ok(_) => {}
                Err(failure) => {
                    self.unknown -= if fault::is_unknown(&failure) { 0 } else { rows };
                    return Err(failure.context(format!("COPY {}", self.table.name())));
                }
            }
        }
        self.unknown -= rows;
        Err(fault::conflict())
    }

    async fn commit_once(&self, all: &Batch, keys: &[Bytes]) -> Result<Decided, Failure> {
        let securing = self.evaluator.securing(self.evaluator.asker.settings.waits_until_secured());
        let handle = securing.as_ref().unwrap_or(&self.evaluator.handle);
        let view = global::begin(handle, &View::default()).await?;
        let there = read::get_all(handle, &self.table, PartitionId::default(), keys, &view).await?;
        if let Some(at) = there.iter().position(Option::is_some) {
            return Err(self.is_there(all, keys, at));
        }
        let seen = view.position(PartitionId::default()).into_iter().cycle().take(keys.len()).collect();
        let written = Written { table: self.table.id(), ops: all.ops.clone(), seen };
        let tables = BTreeMap::from([(self.table.id(), self.table.clone())]);
        let parts = vec![written];
        let checked = early::before_commit(handle, &tables, &parts).await?;
        global::commit(handle, (&tables, checked), parts).await
    }

    fn is_there(&self, all: &Batch, keys: &[Bytes], at: usize) -> Failure {
        let failure = Failure { hint: None, ..write::duplicate(&self.table, Some(&keys[at])) };
        failure.context(format!("COPY {}, line {}", self.table.name(), all.lines[at]))
    }
}
