//! Calls of procedures from outside. Where a procedure finds all of its rows in one partition, it is called
//! there. Where transactions are global, no primary has all that it may need: it runs here, as a transaction
//! of its own, and again if others were faster.

use bytes::Bytes;
use client::txn::AtMost;
use client::{Client, ClientError, Database, Procedure, Table, Transaction};
use procedure::{Given, Limits, Prepared, Progress, Rows, Runtime, Shape};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};
use types::data::Value;
use types::{CatalogTable, EngineError, KeySpace, Micros, TableId, TableState};
use wire::Op;
use xxhash_rust::xxh3::xxh3_64;

/// Calls procedures of one database. What is compiled in must be so here, too.
pub struct Caller {
    database: Database,
    runtime: Runtime,
    tables: BTreeMap<TableId, Table>,
}

impl Caller {
    /// With the programs that every node has.
    pub fn new(client: &mut Client, database: &Database) -> Result<Caller, ClientError> {
        Caller::with(client, database, Runtime::default())
    }

    /// With these programs.
    pub fn with(client: &mut Client, database: &Database, runtime: Runtime) -> Result<Caller, ClientError> {
        // Elsewhere the primary knows them.
        let tables = if database.record().is_global() { client.tables_of(database)? } else { Vec::new() };
        let tables = tables.into_iter().map(|table| (table.id(), table)).collect();
        Ok(Caller { database: database.clone(), runtime, tables })
    }

    /// Calls one and gives the rows that it gives. [`ClientError::Call`]: it failed, and nothing of it was
    /// done.
    pub fn call(
        &self,
        client: &mut Client,
        procedure: &Procedure,
        arguments: Vec<Value>,
    ) -> Result<Vec<Vec<Value>>, ClientError> {
        if !self.database.record().is_global() {
            return client.call_procedure(procedure, arguments);
        }
        let prepared = self.prepared(procedure)?;
        let Op::Call(request) = procedure.call(arguments)?.op else {
            return Err(ClientError::Protocol("a call that is none".into()));
        };
        let copies = client.cluster_map().partitions().find(|one| self.database.partition() == one.id);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let given = Given {
            now_ms: now.as_millis() as u64,
            seed: xxh3_64(&[&now.as_nanos().to_le_bytes()[..], &request.arguments].concat()),
            policy: copies.map(|record| record.policy.name.clone()).unwrap_or_default(),
            copies: copies.map_or(0, |record| u8::try_from(record.in_sync.len()).unwrap_or(u8::MAX)),
            route: Bytes::new(),
        };
        let rows = client.transact(&self.database, |client, transaction| {
            self.run(client, transaction, (&prepared, &given, &request.arguments))
        })?;
        procedure.decoded(&rows)
    }

    fn prepared(&self, procedure: &Procedure) -> Result<Prepared, ClientError> {
        let refused = |why: String| ClientError::Procedure { name: procedure.name().into(), why };
        let (id, definition) = (procedure.id(), procedure.definition().clone());
        let defined = CatalogTable::procedure(id, procedure.name(), procedure.parameters(), definition, 0);
        let find = |name: &str| {
            let table = self.tables.values().find(|table| table.name() == name)?;
            let (id, name, schema) = (table.id(), table.name().to_string(), table.schema().clone());
            Some(Shape { id, name, schema, state: TableState::Live })
        };
        self.runtime.prepare(&defined.map_err(refused)?, &find).map_err(refused)
    }

    /// One attempt: what it writes becomes the transaction's. A call that writes commits only if what it has
    /// looked up by keys is still so: what it writes follows from that.
    fn run(
        &self,
        client: &mut Client,
        transaction: &mut Transaction,
        (prepared, given, arguments): (&Prepared, &Given, &[u8]),
    ) -> Result<Vec<Bytes>, ClientError> {
        let limits = Limits { time: Micros::ZERO, ..Limits::default() };
        let mut running = prepared.begin(arguments, given.clone(), limits).map_err(ClientError::Call)?;
        let sight = Sight {
            seen: RefCell::new(Seen { client, failed: None, looked_up: BTreeMap::new() }),
            transaction,
            tables: &self.tables,
        };
        let ended = loop {
            match running.go_on(&sight, u64::MAX) {
                Ok(Progress::More) => {}
                Ok(Progress::Ended(ended)) => break Ok(ended),
                Err(error) => break Err(error),
            }
        };
        let Seen { failed, looked_up, .. } = sight.seen.into_inner();
        if let Some(failed) = failed {
            return Err(failed);
        }
        let ended = ended.map_err(|error| ClientError::Protocol(format!("a call: {error}")))?;
        let effects = ended.map_err(ClientError::Call)?;
        let mut written = BTreeSet::new();
        for mutation in effects.mutations {
            let (table, key) = row_of(&self.tables, &mutation.key)?;
            transaction.write_stored(table, key, mutation.value)?;
            written.insert(mutation.key);
        }
        if !written.is_empty() {
            for (stored, row) in looked_up.into_iter().filter(|(key, _)| !written.contains(key)) {
                let (table, key) = row_of(&self.tables, &stored)?;
                transaction.write_stored(table, key, Some(row))?;
            }
        }
        Ok(effects.rows)
    }
}

/// Whose row has this stored key, and its encoded key.
fn row_of<'a>(
    tables: &'a BTreeMap<TableId, Table>,
    stored: &Bytes,
) -> Result<(&'a Table, Bytes), ClientError> {
    let of = tables.values().find(|table| KeySpace::Table(table.id()).has(stored));
    let table = of.ok_or_else(|| ClientError::Protocol("a call names a row of no table".into()))?;
    Ok((table, KeySpace::Table(table.id()).key_of(stored)))
}

/// What a call sees.
struct Sight<'a> {
    seen: RefCell<Seen<'a>>,
    transaction: &'a Transaction,
    tables: &'a BTreeMap<TableId, Table>,
}

/// What was asked for it so far.
struct Seen<'a> {
    client: &'a mut Client,
    /// Why rows could not be read.
    failed: Option<ClientError>,
    /// The rows that it has looked up by their keys.
    looked_up: BTreeMap<Bytes, Bytes>,
}

impl Sight<'_> {
    fn or_noted<T>(&self, found: Result<T, ClientError>) -> Result<T, EngineError> {
        found.map_err(|error| {
            let told = EngineError::Io(io::Error::other(error.to_string()));
            self.seen.borrow_mut().failed = Some(error);
            told
        })
    }

    fn look_up(&self, stored: Bytes) -> Result<Option<Bytes>, ClientError> {
        let (table, key) = row_of(self.tables, &stored)?;
        let mut seen = self.seen.borrow_mut();
        let row = seen.client.stored_in(self.transaction, table, &key)?;
        if let Some(row) = &row {
            seen.looked_up.insert(stored, row.clone());
        }
        Ok(row)
    }

    fn range(&self, from: &[u8], to: &[u8], most: AtMost) -> Result<Vec<(Bytes, Bytes)>, ClientError> {
        let (table, first) = row_of(self.tables, &Bytes::copy_from_slice(from))?;
        let space = KeySpace::Table(table.id());
        // A range may end where the table does.
        let to = if space.has(to) { space.key_of(&Bytes::copy_from_slice(to)) } else { Bytes::new() };
        let mut seen = self.seen.borrow_mut();
        let found = seen.client.stored_rows_in(self.transaction, table, (first, to), most)?;
        Ok(found.into_iter().map(|(key, row)| (space.row_key(&key), row)).collect())
    }
}

impl Rows for Sight<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.or_noted(self.look_up(Bytes::copy_from_slice(key)))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        rows: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        self.or_noted(self.range(from, to, AtMost { rows, bytes }))
    }
}
