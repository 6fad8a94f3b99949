//! A metastore in one file, for a cluster with one controller.
//!
//! Every transaction that writes is one record of a journal ([`journal`]), fsynced before it is answered.
//! When most of the journal is history it is replaced by a record of everything. The disk is a small trait
//! ([`Store`]), so that the simulator can supply its own.

mod file;
pub mod journal;

pub use file::FileStore;

use crate::history::History;
use crate::table::Table;
use crate::txn::{Changes, MetaError, Metastore, RecordsSnapshot};
use journal::Record;
use std::io;
use types::txn::{Txn, TxnOutcome};

/// Where the journal lies.
pub trait Store: Send {
    /// All of it; none if there is no journal yet.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Adds to its end and makes everything in it durable before it returns.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Adds to its end. Need not be durable before the next [`Store::append`] returns.
    fn hint(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Replaces all of it by `bytes`, durably: after a crash there is either the old journal or the new one.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// A journal shorter than this is not compacted.
const SMALL: usize = 1 << 20;

/// The metastore of a cluster with one controller.
#[derive(Debug)]
pub struct Embedded<S> {
    store: S,
    table: Table,
    history: History,
    /// Bytes in the journal.
    length: usize,
    /// Why nothing is accepted any more (F08).
    poisoned: Option<String>,
}

impl<S: Store> Embedded<S> {
    /// Opens the journal, or begins one. A torn end is cut off; damage anywhere else is an error (F10).
    pub fn open(mut store: S) -> Result<Embedded<S>, MetaError> {
        let bytes = store.read().map_err(|error| MetaError::Unavailable(error.to_string()))?;
        let table = match bytes {
            None => Table::new(),
            Some(bytes) => journal::replay(&bytes).map_err(MetaError::Damaged)?.table,
        };
        let history = History::starting_at(table.revision());
        let mut opened = Embedded { store, table, history, length: 0, poisoned: None };
        // A torn end must be gone before anything is written behind it. And what was read may be in the
        // system's memory alone, after a sync that failed in an earlier life: it is written anew before
        // anybody is told of it (F08).
        opened.compact()?;
        Ok(opened)
    }

    /// The store below.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Takes the store back, for a test that crashes it.
    pub fn into_store(self) -> S {
        self.store
    }

    fn alive(&self) -> Result<(), MetaError> {
        match &self.poisoned {
            Some(why) => Err(MetaError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// After a failed write nobody knows what the disk holds: no retry may "succeed" (F08).
    fn poison(&mut self, error: io::Error) -> MetaError {
        self.poisoned = Some(error.to_string());
        MetaError::Unknown(error.to_string())
    }

    fn write(&mut self, txn: &Txn) -> Result<(), MetaError> {
        let revision = self.table.revision() + 1;
        let record = Record::Txn { revision, puts: txn.puts.clone(), deletes: txn.deletes.clone() };
        let bytes = record.encode();
        if let Err(error) = self.store.append(&bytes) {
            return Err(self.poison(error));
        }
        let mark = Record::Synced { revision }.encode();
        // The mark tells a torn end from a damaged one. It helps once it is on disk, and is not waited for.
        if let Err(error) = self.store.hint(&mark) {
            self.poisoned = Some(error.to_string());
        }
        self.length += bytes.len() + mark.len();
        let changes = self.table.write(&txn.puts, &txn.deletes);
        self.history.push(revision, changes);
        Ok(())
    }

    fn compact(&mut self) -> Result<(), MetaError> {
        let bytes = journal::fresh(&self.table);
        if let Err(error) = self.store.replace(&bytes) {
            return Err(self.poison(error));
        }
        self.length = bytes.len();
        Ok(())
    }
}

impl<S: Store> Metastore for Embedded<S> {
    fn txn(&mut self, txn: Txn) -> Result<TxnOutcome, MetaError> {
        self.alive()?;
        txn.validate().map_err(MetaError::Invalid)?;
        let succeeded = self.table.holds(&txn);
        if succeeded && txn.writes() {
            self.write(&txn)?;
        }
        let outcome = self.table.outcome(&txn, succeeded);
        if self.length > SMALL && self.length > 4 * self.table.bytes() && self.poisoned.is_none() {
            // The transaction is durable: a compaction that fails stops the store, not this answer.
            let _ = self.compact();
        }
        Ok(outcome)
    }

    fn range(&mut self, prefix: &str) -> Result<RecordsSnapshot, MetaError> {
        self.alive()?;
        Ok(self.table.snapshot(prefix))
    }

    fn changes_since(&mut self, revision: u64) -> Result<Changes, MetaError> {
        self.alive()?;
        Ok(self.history.since(revision))
    }
}
