//! Transactions: read anywhere, each partition at one state; write in one partition, at COMMIT, unless a row
//! that is written or locked has changed since (first committer wins).
//!
//! | what | where |
//! | --- | --- |
//! | one transaction: modes, savepoints, its end | here |
//! | what it has written | [`buffer`] |
//! | at which states it reads | [`view`] |
//! | keeping those states | [`keeper`] |

pub mod buffer;
pub mod keeper;
pub mod view;

pub use buffer::{After, Buffer, Edit};
pub use view::View;

use crate::driver::Handle;
use crate::edits::Edits;
use crate::fault::{self, Decided};
use crate::settings::Settings;
use crate::write::{self, Batch};
use buffer::Undo;
use client::Table;
use keeper::Keeper;
use pg::{Failure, code};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::TableId;

/// How far a transaction is kept apart from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// READ UNCOMMITTED, READ COMMITTED.
    #[default]
    Committed,
    /// REPEATABLE READ, which is what a transaction gets in any case.
    Repeatable,
}

impl Isolation {
    /// As SHOW has it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Committed => "read committed",
            Isolation::Repeatable => "repeatable read",
        }
    }
}

/// What BEGIN and SET TRANSACTION say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
}

struct Savepoint {
    name: String,
    /// How much there was to undo.
    undo: usize,
    settings: Settings,
}

/// A transaction that is open.
pub struct Open {
    /// It ends with the message that began it, or with the Sync.
    pub implicit: bool,
    /// A statement of it has failed: only its end is accepted.
    pub failed: bool,
    /// It does not write.
    pub read_only: bool,
    /// As the client asked for it.
    pub isolation: Isolation,
    /// When it began, in microseconds since 1970.
    pub now: i64,
    /// Tables were created or dropped in it, which is done at once.
    pub defined: bool,
    /// Parameters as they are after a ROLLBACK.
    pub before: Settings,
    /// A statement has read or written.
    queried: bool,
    view: View,
    /// The tables whose rows are written.
    tables: BTreeMap<TableId, Table>,
    undo: Vec<Undo>,
    savepoints: Vec<Savepoint>,
    keeper: Option<Keeper>,
}

impl Open {
    /// Begins.
    pub fn begin(now: i64, implicit: bool, modes: Modes, settings: &Settings) -> Open {
        Open {
            implicit,
            failed: false,
            read_only: modes.read_only.unwrap_or_else(|| settings.read_only()),
            isolation: modes.isolation.unwrap_or_else(|| settings.isolation()),
            now,
            defined: false,
            before: settings.clone(),
            queried: false,
            view: View::lasting(),
            tables: BTreeMap::new(),
            undo: Vec::new(),
            savepoints: Vec::new(),
            keeper: None,
        }
    }

    /// SET TRANSACTION.
    pub fn set(&mut self, modes: Modes) -> Result<(), Failure> {
        if let Some(isolation) = modes.isolation.filter(|isolation| *isolation != self.isolation) {
            if self.queried {
                let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                return Err(Failure::new("25001", message));
            }
            self.isolation = isolation;
        }
        if let Some(read_only) = modes.read_only {
            if self.read_only && !read_only && self.queried {
                let message = "transaction read-write mode must be set before any query";
                return Err(Failure::new("25001", message));
            }
            self.read_only = read_only;
        }
        Ok(())
    }

    /// A statement that reads or writes begins: at which states it reads, and what the transaction has
    /// written until now.
    pub fn statement(&mut self, handle: &Handle, patience: Duration) -> Result<View, Failure> {
        self.queried = true;
        let keeper =
            self.keeper.get_or_insert_with(|| Keeper::start(handle.clone(), self.view.clone(), patience));
        match keeper.busy() {
            true => Ok(self.view.clone()),
            false => Err(Failure::new("25P03", "the transaction was idle for too long")
                .hint("it is rolled back; SET idle_in_transaction_session_timeout says how long it may be")),
        }
    }

    /// A statement has ended.
    pub fn idle(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.idle();
        }
    }

    /// True if nothing is written yet.
    pub fn is_unwritten(&self) -> bool {
        self.view.buffer.is_empty()
    }

    /// Takes a statement's writes in. All of a transaction's lie in one partition.
    pub fn take(&mut self, edits: &mut Edits) -> Result<(), Failure> {
        let Some(partition) = edits.partition else { return Ok(()) };
        if !self.view.buffer.is_empty() && self.view.buffer.partition() != partition {
            let other = self.tables.values().find(|table| table.id() != edits.table.id());
            let how = match other {
                None => "rows of two statements lie in different partitions".to_string(),
                Some(table) => {
                    format!("the transaction has written rows of \"{}\"; this row is one", table.name())
                }
            };
            return Err(write::elsewhere(
                &edits.table,
                &how,
                "a transaction that writes in several partitions",
            ));
        }
        let list = std::mem::take(&mut edits.edits);
        Arc::make_mut(&mut self.view.buffer).take((edits.table.id(), partition), list, &mut self.undo)?;
        self.tables.insert(edits.table.id(), edits.table.clone());
        if self.savepoints.is_empty() {
            self.undo.clear();
        }
        Ok(())
    }

    /// SAVEPOINT.
    pub fn save(&mut self, name: &str, settings: &Settings) {
        let (name, settings) = (name.to_string(), settings.clone());
        self.savepoints.push(Savepoint { name, undo: self.undo.len(), settings });
    }

    fn savepoint(&self, name: &str) -> Result<usize, Failure> {
        let found = self.savepoints.iter().rposition(|known| known.name == name);
        found.ok_or_else(|| Failure::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// ROLLBACK TO SAVEPOINT. The parameters as they were at it.
    pub fn back_to(&mut self, name: &str) -> Result<Settings, Failure> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at + 1);
        let Savepoint { undo, settings, .. } = &self.savepoints[at];
        Arc::make_mut(&mut self.view.buffer).back(&mut self.undo, *undo);
        self.failed = false;
        Ok(settings.clone())
    }

    /// RELEASE SAVEPOINT.
    pub fn release(&mut self, name: &str) -> Result<(), Failure> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at);
        if self.savepoints.is_empty() {
            self.undo.clear();
        }
        Ok(())
    }

    /// COMMIT: one write of everything, if nothing of it has changed since it was read.
    pub async fn commit(mut self, handle: &Handle, patience: Duration) -> Result<(), Failure> {
        let mut parts = self.view.buffer.operations();
        if parts.is_empty() {
            return Ok(());
        }
        self.statement(handle, patience)?;
        let partition = self.view.buffer.partition();
        let Some(since) = self.view.position(partition) else {
            return Err(Failure::new(code::INTERNAL, "a transaction writes what it has not read"));
        };
        let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
        for known in parts.iter().filter_map(|(table, _)| self.tables.get(table)) {
            let now = catalog.table(known.name()).filter(|now| now.id == known.id());
            if now.is_none_or(|now| now.schema.version() != known.schema().version()) {
                let name = known.name();
                let message = format!("table \"{name}\" was changed or dropped during the transaction");
                return Err(Failure::new(fault::SERIALIZATION, message).hint("do the transaction again"));
            }
        }
        // Which row it was is known if there is but one.
        let (first, ops) = &parts[0];
        let first = self.tables.get(first).cloned().ok_or_else(|| {
            Failure::new(code::INTERNAL, "a transaction writes a table that it does not know")
        })?;
        let only = match (parts.len(), ops.as_slice()) {
            (1, [only]) => Some(only.key().clone()),
            _ => None,
        };
        let decided = match parts.len() {
            1 => {
                let batch = Batch { partition: Some(partition), ops: parts.remove(0).1 };
                batch.send(handle, &first, Some(since)).await?
            }
            _ => write::send_parts(handle, &self.tables, parts, since).await?,
        };
        match decided {
            Decided::Done(_) => Ok(()),
            Decided::Exists => Err(write::duplicate(&first, only.as_deref())),
            Decided::Changed => Err(fault::conflict()),
        }
    }
}
