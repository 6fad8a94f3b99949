//! What a statement comes to, and what is asked about it before it is carried out.

use crate::alter::Rekey;
use crate::alter_database::{self, AlterDatabase};
use crate::altering::Altering;
use crate::bind::{Bound, Change, Insertion, Parts, Rows};
use crate::constraining::Constraining;
use crate::constraints::define::Declared;
use crate::copy::{CopyIn, CopyOut};
use crate::cursors::Way;
use crate::ddl;
use crate::deferring::Setting;
use crate::explain::Explained;
use crate::indexes;
use crate::moving::Move;
use crate::numbering::{Counting, SequenceStatement};
use crate::procedures::{self, ProcedureStatement};
use crate::schemas::SchemaStatement;
use crate::table_as::CreateAs;
use crate::txn::Modes;
use crate::upkeep::Upkeep;
use crate::views::ViewStatement;
use sqlparser::ast::{CreateTable, DataType, Statement};
use std::sync::Arc;
use types::TableRecord;
use wire::control::AlterTable as Request;

/// What is to be done.
pub enum Work {
    /// Give rows.
    Query(Arc<Bound>),
    /// Write rows.
    Insert(Insertion),
    /// Change or remove rows.
    Change(Change),
    /// Write rows by several parts of one statement.
    Parts(Box<Parts>),
    /// Take rows from the client.
    CopyIn(CopyIn),
    /// Send the client rows.
    CopyOut(CopyOut),
    /// Change a table, if there is something to change.
    AlterTable(Option<Request>),
    /// Change a table of a database.
    Alter(Altering),
    /// Give a table partitions of its own.
    Move(Move),
    /// Make or drop indexes.
    Indexes(indexes::Change),
    /// Make, change or drop a sequence.
    Sequence(SequenceStatement),
    /// Number a column's rows by a sequence that is made for it.
    AddIdentity(Altering, Counting),
    /// Make or drop views.
    View(ViewStatement),
    /// Make or drop schemas.
    Schema(SchemaStatement),
    /// Make or drop procedures.
    Procedure(ProcedureStatement),
    /// Call a procedure.
    Call(procedures::Call),
    /// Make a table, with these indexes beside what it says itself.
    CreateTable(Box<CreateTable>, Vec<Declared>),
    /// Make a table with the rows of a query.
    CreateAs(Box<CreateAs>),
    /// Drop tables.
    DropTables {
        /// Their names.
        names: Vec<String>,
        /// A table that there is not is skipped.
        if_exists: bool,
        /// With the foreign keys that refer to them.
        cascade: bool,
    },
    /// Take all rows of tables away.
    Truncate {
        /// The tables' names.
        names: Vec<String>,
        /// How many of them the statement has named; the others refer to these.
        named: usize,
        /// Numbers begin again.
        restart: bool,
    },
    /// Give a table a key.
    Rekey(Rekey),
    /// Change constraints of a table, if there is something to change.
    Constrain(Option<Constraining>, &'static str),
    /// Upkeep that PostgreSQL needs, and locks on tables.
    Upkeep(Upkeep),
    /// Say when the transaction looks at constraints.
    SetConstraints(Setting),
    /// Make a database.
    CreateDatabase(Box<wire::control::CreateTable>),
    /// Change a database.
    AlterDatabase(AlterDatabase),
    /// Drop a database.
    DropDatabase {
        /// Its name.
        name: String,
        /// One that there is not is skipped.
        if_exists: bool,
        /// Also if it has tables, or somebody is in it.
        force: bool,
    },
    /// Collect the rows of a cursor.
    Declare {
        /// Its name.
        name: String,
        /// It outlives its transaction.
        hold: bool,
        /// What it reads.
        bound: Arc<Bound>,
    },
    /// Give rows of a cursor.
    Fetch {
        /// Its name.
        name: String,
        /// Which.
        way: Way,
        /// None of them, in truth.
        moves: bool,
    },
    /// Close a cursor, or all.
    Close(Option<String>),
    /// Keep a statement under a name.
    Prepare {
        /// The name.
        name: String,
        /// The types of its parameters.
        types: Vec<DataType>,
        /// Itself.
        statement: Box<Statement>,
    },
    /// Begin a transaction; with what the client is told.
    Begin(Modes, &'static str),
    /// Set the modes of the transaction.
    SetTransaction(Modes),
    /// Set the modes of transactions to come.
    SetSession(Modes),
    /// Mark a place in the transaction.
    Savepoint(String),
    /// Forget it.
    Release(String),
    /// Go back to it.
    BackTo(String),
    /// End it.
    Commit,
    /// End it.
    Rollback,
    /// Set parameters.
    Set(Vec<(String, Option<String>)>),
    /// Set parameters until the end of the transaction.
    SetLocal(Vec<(String, Option<String>)>),
    /// Set a parameter, or all, back; with what the client is told.
    Reset(Option<String>, &'static str),
    /// Forget a prepared statement, or all.
    Deallocate(Option<String>),
    /// Show a parameter.
    Show(String),
    /// Say where each part of a query runs.
    Explain(Explained),
}

impl Work {
    /// True if it changes something in the cluster.
    pub fn writes(&self) -> bool {
        let rows = matches!(self, Work::Insert(_) | Work::Change(_) | Work::Parts(_) | Work::CopyIn(_));
        let copies = matches!(self, Work::CopyOut(copy) if copy.source.writing().is_some());
        rows || copies || self.calls_what_writes() || self.defines() || self.locks()
    }

    /// True if it calls a procedure that is not read only.
    fn calls_what_writes(&self) -> bool {
        let Work::Call(call) = self else { return false };
        call.procedure.schema.procedure().is_some_and(|(_, definition)| !definition.read_only)
    }

    /// True if it is about the session or its transaction alone: the tables need not be known for it.
    pub fn names_no_table(&self) -> bool {
        let transaction = matches!(
            self,
            Work::Begin(..)
                | Work::Commit
                | Work::Rollback
                | Work::Savepoint(_)
                | Work::Release(_)
                | Work::BackTo(_)
        );
        let modes = matches!(self, Work::SetTransaction(_) | Work::SetSession(_));
        let settings = matches!(self, Work::Set(_) | Work::SetLocal(_) | Work::Reset(..) | Work::Show(_));
        let named = matches!(self, Work::Fetch { .. } | Work::Close(_) | Work::Prepare { .. });
        transaction || modes || settings || named || matches!(self, Work::Deallocate(_))
    }

    /// True if it reads and writes rows only of tables that have partitions for themselves.
    pub fn is_bare(&self) -> bool {
        let bare = |table: &TableRecord| table.database().is_none();
        let reads = |bound: &Bound| {
            bound.systems.is_empty() && bound.sources.iter().all(|source| bare(&source.table))
        };
        match self {
            Work::Query(bound) => !bound.sources.is_empty() && reads(bound),
            Work::Insert(Insertion { table, rows: Rows::Query(bound), .. }) => bare(table) && reads(bound),
            Work::Insert(insertion) => bare(&insertion.table),
            Work::Change(change) => bare(&change.table) && reads(&change.read),
            _ => false,
        }
    }

    /// True if it reads rows that must not change until the transaction commits.
    pub fn locks(&self) -> bool {
        matches!(self, Work::Query(bound) if bound.locks.is_some())
    }

    /// True if it makes, alters or drops a table.
    pub fn defines(&self) -> bool {
        let tables = matches!(self, Work::CreateTable(..) | Work::AlterTable(_) | Work::DropTables { .. });
        let tables = tables || matches!(self, Work::Alter(_) | Work::Move(_) | Work::CreateAs(_));
        let tables = tables || matches!(self, Work::Truncate { .. } | Work::Rekey(_) | Work::Constrain(..));
        tables
            || matches!(self, Work::Sequence(_) | Work::View(_) | Work::Procedure(_) | Work::AddIdentity(..))
            || matches!(self, Work::Schema(_))
            || self.is_about_databases()
            || matches!(self, Work::Indexes(_) | Work::AlterDatabase(_))
    }

    /// True if what it makes lies in its database's one partition, which must be there.
    pub fn shares(&self) -> bool {
        match self {
            Work::CreateTable(create, _) => !ddl::is_apart(create),
            Work::CreateAs(_) => true,
            Work::Sequence(statement) => matches!(statement, SequenceStatement::Create { .. }),
            Work::View(statement) => matches!(statement, ViewStatement::Create { .. }),
            Work::Schema(statement) => matches!(statement, SchemaStatement::Create { .. }),
            Work::Procedure(statement) => matches!(statement, ProcedureStatement::Create(_)),
            _ => false,
        }
    }

    /// True if it makes, changes or drops a database.
    pub fn is_about_databases(&self) -> bool {
        match self {
            Work::CreateDatabase(_) | Work::DropDatabase { .. } => true,
            Work::AlterDatabase(alter) => !matches!(alter.change, alter_database::Change::Nothing(_)),
            _ => false,
        }
    }

    /// What it is called where it is not allowed.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Query(bound) if bound.locks.is_some() => "SELECT FOR UPDATE",
            Work::Query(_) => "SELECT",
            Work::Insert(_) => "INSERT",
            Work::Change(change) if change.removes => "DELETE",
            Work::Change(_) => "UPDATE",
            Work::Parts(parts) => parts.name(),
            Work::CopyIn(_) => "COPY FROM",
            Work::CopyOut(copy) => copy.source.writing().unwrap_or("COPY TO"),
            Work::CreateTable(..) => "CREATE TABLE",
            Work::CreateAs(_) => "CREATE TABLE AS",
            Work::AlterTable(_) | Work::Alter(_) | Work::AddIdentity(..) | Work::Rekey(_) => "ALTER TABLE",
            Work::Move(_) => "ALTER TABLE",
            Work::Truncate { .. } => "TRUNCATE TABLE",
            Work::Indexes(change) => change.tag,
            Work::Constrain(_, tag) => tag,
            Work::DropTables { .. } => "DROP TABLE",
            Work::Sequence(statement) => statement.tag(),
            Work::View(statement) => statement.tag(),
            Work::Schema(statement) => statement.tag(),
            Work::Procedure(statement) => statement.tag(),
            Work::Call(_) => "CALL",
            Work::CreateDatabase(_) => "CREATE DATABASE",
            Work::AlterDatabase(_) => "ALTER DATABASE",
            Work::DropDatabase { .. } => "DROP DATABASE",
            _ => "this statement",
        }
    }
}
