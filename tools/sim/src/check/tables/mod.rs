//! Tables of a database, several in one partition (PR-120 to PR-124, PR-150 to PR-153): what clients asked of
//! them, what they were told, and what must hold of it, partition by partition.
//!
//! | file | what |
//! | --- | --- |
//! | `model` | the tables and their rows at every position of a log, and what a write comes to |
//! | `keeps` | what constraints demand of rows |
//! | `told` | what clients were told, and every entry of the log, against the model |
//! | `replicas` | what a replica has, by itself and against the model |

pub mod keeps;
#[cfg(test)]
pub(in crate::check) mod known_bad;
pub mod model;
pub mod replicas;
pub mod told;

use crate::check::catalog::{Standing, Table};
use crate::check::history::{Bound, KeyRange, RowChange};
use types::{Epoch, Lsn, PartitionId, Position, SessionId, TableId};
use wire::request::ReadSnapshot;

/// A change of tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TableChange {
    /// A new one.
    Create(Table),
    /// One takes the place of that version of itself.
    Alter(u32, Table),
    /// It is dropped, if it has that version.
    Drop(TableId, u32),
}

impl TableChange {
    /// The table.
    pub fn id(&self) -> TableId {
        match self {
            TableChange::Create(table) | TableChange::Alter(_, table) => table.id,
            TableChange::Drop(id, _) => *id,
        }
    }
}

/// What a write does to one table's rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The table.
    pub table: TableId,
    /// The version of its columns that the client knows.
    pub version: u32,
    /// Columns of that version behind those that every table has.
    pub more: u32,
    /// What becomes of which key, in order.
    pub ops: Vec<(RowChange, String)>,
    /// For each of them the state that it rests on; none: that of the whole.
    pub seen: Vec<Position>,
}

/// A write to several tables, all or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The value that each row is given, and that no other write gives.
    pub value: u64,
    /// What becomes of tables, in order; the rows come behind them.
    pub changes: Vec<TableChange>,
    /// What becomes of rows: no table twice.
    pub parts: Vec<Part>,
    /// The snapshot that it rests on.
    pub since: Option<Position>,
    /// It is sent as a write of its one table, and not as one of the database.
    pub alone: bool,
}

/// What is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// One row.
    Row(String),
    /// Rows of a range, at most so many.
    Rows(KeyRange, u32),
    /// How many rows a range has.
    Count(KeyRange),
}

/// What a client asked of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A write.
    Write(Box<Transaction>),
    /// Which tables there are.
    Catalog(ReadSnapshot),
    /// What a table has.
    Read {
        /// The table.
        table: TableId,
        /// The version of its columns that the client knows.
        version: u32,
        /// What of it.
        what: What,
        /// In which state.
        at: ReadSnapshot,
        /// At any replica.
        any: Option<Bound>,
    },
}

impl Asked {
    /// The state that it looks at, if it names one.
    pub fn snapshot(&self) -> ReadSnapshot {
        match self {
            Asked::Write(_) => ReadSnapshot::Newest,
            Asked::Catalog(at) | Asked::Read { at, .. } => *at,
        }
    }

    /// How old what is shown may be, where any replica may show it.
    pub fn bound(&self) -> Option<Bound> {
        match self {
            Asked::Read { any, .. } => *any,
            _ => None,
        }
    }
}

/// Why a write is refused by what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// An insert found its row.
    Exists,
    /// A row is not as it was seen.
    Changed,
    /// A table is not as the client knows it.
    Stale,
    /// Another table has the name.
    NameTaken,
    /// A constraint forbids it.
    Violates,
    /// Nobody may do that at any time.
    Never,
}

/// What was shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The tables, by their ids.
    Tables(Vec<Table>),
    /// A row: the LSN that wrote it, and its value.
    Row(Option<(Lsn, u64)>),
    /// Rows: key, the LSN that wrote it, value; and whether there are more.
    Rows(Vec<(String, Lsn, u64)>, bool),
    /// How many there are.
    Number(u64),
    /// The table is not as the client knows it.
    Stale,
}

/// What a client was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TableAnswer {
    /// The write is committed at this position.
    Done(Position),
    /// It was refused, by an entry at this LSN.
    Refused(Refused, Lsn),
    /// A state at this LSN, in this epoch.
    Shown(Shown, Lsn, Epoch),
    /// Nothing was done.
    NotDone,
    /// Nobody knows.
    Unknown,
}

/// A client's operation on a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableOperation {
    /// Of which partition.
    pub partition: PartitionId,
    /// It is to bring the partition to the tables that the first one has.
    pub levels: bool,
    /// What was asked.
    pub asked: Asked,
    /// Session and number of a write, once it was sent.
    pub session: Option<(SessionId, u64)>,
    /// When it began, virtual microseconds.
    pub invoked: u64,
    /// When it ended.
    pub completed: u64,
    /// How.
    pub told: TableAnswer,
}

impl TableOperation {
    /// What came of it, if that is worth being counted.
    pub fn seen(&self) -> Option<&'static str> {
        let Asked::Write(write) = &self.asked else {
            return matches!(self.told, TableAnswer::Shown(Shown::Stale, ..)).then_some("table-read-stale");
        };
        let takes_place = |change: &TableChange| {
            matches!(change, TableChange::Alter(1, table) if table.standing == Standing::Live)
                && write.changes.len() > 1
        };
        // Nothing else removes so many rows at once.
        let empties = |part: &Part| {
            part.ops.len() > 4 && part.ops.iter().all(|(change, _)| *change == RowChange::Delete)
        };
        let placed = write.changes.iter().filter(|change| takes_place(change)).count();
        match &self.told {
            TableAnswer::Done(_) if self.levels => Some("tables-levelled"),
            TableAnswer::Done(_) if placed > 1 => Some("large-write-committed"),
            TableAnswer::Done(_) if placed == 1 => Some("table-refilled"),
            TableAnswer::Done(_) if !write.changes.is_empty() => match write.parts.is_empty() {
                true => Some("tables-changed"),
                false => Some("tables-changed-with-rows"),
            },
            TableAnswer::Done(_) if write.parts.iter().any(empties) => Some("rows-cascaded"),
            TableAnswer::Done(_) if write.parts.len() > 1 => Some("tables-written"),
            TableAnswer::Refused(Refused::Stale, _) => Some("table-write-stale"),
            TableAnswer::Refused(Refused::Changed, _) => Some("table-row-changed"),
            TableAnswer::Refused(Refused::NameTaken, _) => Some("table-name-taken"),
            TableAnswer::Refused(Refused::Violates, _) => Some("table-constraint-kept"),
            TableAnswer::NotDone => Some("table-write-not-done"),
            _ => None,
        }
    }
}

/// The key of a row among all rows of the database.
pub fn row_name(table: TableId, key: &str) -> String {
    format!("{}/{key}", table.0)
}
