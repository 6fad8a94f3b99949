//! Procedures of a database: made, listed, called.
//!
//! Who may call: whoever may write the database. A call that changes something goes by the caller's session,
//! so it is made once, however often it is sent; its result is kept until the session has it. One of a
//! procedure that is read only needs no session.

use crate::call::{Answer, Call};
use crate::client::Client;
use crate::database::{Database, created, wall_ms};
use crate::error::ClientError;
use crate::table::Table;
use std::sync::Arc;
use types::data::kind::Procedure as Definition;
use types::data::{self, Column, Schema, Signature, Value};
use types::{CatalogTable, PartitionId, TableId, TableRecord};
use wire::{Body, CallRequest, CallResult, Op, TableChange};

/// A procedure as its definition says. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Procedure {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    database: Database,
    table: Table,
    arguments: Signature,
    results: Option<Signature>,
}

impl Procedure {
    /// From what the catalog has under its name; none: that is something else.
    fn of(database: &Database, table: Table) -> Option<Procedure> {
        let (parameters, definition) = table.schema().procedure()?;
        let arguments = Signature::new(parameters).ok()?;
        let results = match definition.results.is_empty() {
            true => None,
            false => Some(Signature::new(&definition.results).ok()?),
        };
        let inner = Inner { database: database.clone(), arguments, results, table };
        Some(Procedure { inner: Arc::new(inner) })
    }

    /// From its record, as a table of this database. The error: it is something else.
    pub fn of_record(database: &Database, record: Arc<TableRecord>) -> Result<Procedure, ClientError> {
        let name = record.name.clone();
        Procedure::of(database, Table::new(record)).ok_or(ClientError::NoProcedure(name))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.inner.table.name()
    }

    /// Its id in the catalog of its database.
    pub fn id(&self) -> TableId {
        self.inner.table.id()
    }

    /// Its parameters, in order.
    pub fn parameters(&self) -> &[Column] {
        self.inner.arguments.columns()
    }

    /// Language, text, columns of what it gives.
    pub fn definition(&self) -> &Definition {
        let (_, definition) = self.inner.table.schema().procedure().expect("it was looked at");
        definition
    }

    fn data(&self, why: impl ToString) -> ClientError {
        ClientError::Procedure { name: self.name().to_string(), why: why.to_string() }
    }

    /// Where a call with these arguments is made, and what the keys of all rows begin with that it may touch.
    /// The first arguments choose the partition of a database that has several.
    fn place(&self, arguments: &[Value]) -> Result<(PartitionId, Vec<u8>), ClientError> {
        let record = self.inner.database.record();
        let by = record.partition_key();
        if by.is_empty() {
            return Ok((record.first_partition, Vec::new()));
        }
        let names: Vec<&str> = by.iter().map(|column| column.name.as_str()).collect();
        let schema = Schema::new(by.to_vec(), &names, by.len(), false).map_err(|error| self.data(error))?;
        let first = arguments.get(..by.len()).ok_or_else(|| self.data("it has too few arguments"))?;
        let key = data::encode_key(&schema, first).map_err(|error| self.data(error))?;
        let place = record.place_of(&schema, &key);
        let place = place.map_err(|error| self.data(error))?;
        Ok((PartitionId(record.first_partition.0 + place), key))
    }

    /// A call with these arguments. The error: they are others than it takes.
    pub fn call(&self, arguments: Vec<Value>) -> Result<Call, ClientError> {
        let (partition, route) = self.place(&arguments)?;
        let arguments = self.inner.arguments.encode(arguments).map_err(|error| self.data(error))?;
        let table = &self.inner.table;
        let request = CallRequest {
            procedure: table.id(),
            version: table.schema().version(),
            arguments: arguments.into(),
            route: route.into(),
            read_only: self.definition().read_only,
        };
        Ok(Call::new(self.inner.database.id(), 0, partition, Op::Call(request)))
    }

    /// The rows that a call gave.
    pub fn rows(&self, answer: &Answer) -> Result<Vec<Vec<Value>>, ClientError> {
        let Body::Called(CallResult::Rows(rows)) = &answer.body else {
            return Err(ClientError::Protocol("a call was answered with something else".into()));
        };
        self.decoded(rows)
    }

    /// Rows that a call gave, as they are encoded.
    pub fn decoded(&self, rows: &[bytes::Bytes]) -> Result<Vec<Vec<Value>>, ClientError> {
        let Some(results) = &self.inner.results else { return Ok(Vec::new()) };
        rows.iter().map(|row| results.decode(row).map_err(|error| self.data(error))).collect()
    }
}

impl Client {
    /// Makes a procedure. The error says why it can be none: its text cannot be read, or it names what is not
    /// there. In a database of several partitions its first parameters are the columns that choose the
    /// partition.
    pub fn create_procedure(
        &mut self,
        database: &Database,
        name: &str,
        parameters: &[Column],
        definition: Definition,
    ) -> Result<Procedure, ClientError> {
        let refused = |why: String| ClientError::Procedure { name: name.to_string(), why };
        let by = database.record().partition_key();
        let alike = |(one, other): (&Column, &Column)| one.column_type == other.column_type;
        if by.len() > parameters.len() || !by.iter().zip(parameters).all(alike) {
            let columns: Vec<String> =
                by.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
            let why = format!(
                "its first parameters must be those by which rows of `{}` are spread: {}",
                database.name(),
                columns.join(", ")
            );
            return Err(refused(why));
        }
        let id = TableId(self.numbers(1)?);
        let table = CatalogTable::procedure(id, name, parameters, definition, wall_ms()).map_err(refused)?;
        self.define(database, created(&table))?;
        self.procedure(database, name)
    }

    /// The procedures of a database, by their names.
    pub fn procedures_of(&mut self, database: &Database) -> Result<Vec<Procedure>, ClientError> {
        let tables = self.tables_of(database)?;
        Ok(tables.into_iter().filter_map(|table| Procedure::of(database, table)).collect())
    }

    /// A procedure of a database.
    pub fn procedure(&mut self, database: &Database, name: &str) -> Result<Procedure, ClientError> {
        let all = self.procedures_of(database)?;
        all.into_iter()
            .find(|one| one.name() == name)
            .ok_or_else(|| ClientError::NoProcedure(name.to_string()))
    }

    /// Drops a procedure.
    pub fn drop_procedure(&mut self, procedure: &Procedure) -> Result<Answer, ClientError> {
        let (database, table) = (&procedure.inner.database, &procedure.inner.table);
        let change = TableChange::Drop { table: table.id(), schema: table.schema().version() };
        self.define(database, change)
    }

    /// Calls a procedure and gives the rows that it gives. [`ClientError::Call`] says why it failed: nothing
    /// of it was done then. Another procedure of its name may have taken its place; then that one is called.
    pub fn call_procedure(
        &mut self,
        procedure: &Procedure,
        arguments: Vec<Value>,
    ) -> Result<Vec<Vec<Value>>, ClientError> {
        let called = self.call(procedure.call(arguments.clone())?);
        if !matches!(called, Err(ClientError::Stale)) {
            return procedure.rows(&called?);
        }
        let database = procedure.inner.database.clone();
        self.level(&database)?;
        let procedure = self.procedure(&database, procedure.name())?;
        let answer = self.call(procedure.call(arguments)?)?;
        procedure.rows(&answer)
    }
}
