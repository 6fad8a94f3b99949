//! Databases: their catalogs, tables in them, and writes to several of these.
//!
//! What tables a database has is rows of its partition, which anybody reads as a table
//! ([`Database::catalog`]). A caller keeps what it has read. The partition's primary refuses what rests on an
//! older schema, and then the caller looks again ([`Client::look_again`]).

use crate::call::{Answer, Call};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::Table;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use types::data::Schema;
use types::database::SHARED;
use types::{CatalogTable, PartitionId, Position, TableId, TableRecord, TableState};
use wire::control::{AdminCommand, CreateTable};
use wire::{Op, RecordText, TableChange, TablePart};

/// How often a call is made again because its table has another schema.
const MAX_ATTEMPTS: usize = 8;
/// Between two tries to write a table whose rows are being copied.
const HELD: Duration = Duration::from_millis(50);

/// A database as its record says. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Database {
    record: Arc<TableRecord>,
}

impl Database {
    /// From its record. Panics if that is a table's.
    pub fn new(record: Arc<TableRecord>) -> Database {
        assert!(record.is_database(), "{} is no database", record.name);
        Database { record }
    }

    /// Its record.
    pub fn record(&self) -> &Arc<TableRecord> {
        &self.record
    }

    /// Its id, which no table has.
    pub fn id(&self) -> TableId {
        self.record.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its first partition, whose catalog counts.
    pub fn partition(&self) -> PartitionId {
        self.record.first_partition
    }

    /// All of its partitions, in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        self.record.partition_ids()
    }

    /// True if it has several partitions.
    pub fn is_spread(&self) -> bool {
        self.record.partitions > 1
    }

    /// Its catalog, to be read like a table. What a row says: [`Database::table_of_row`].
    pub fn catalog(&self) -> Table {
        self.catalog_in(self.partition())
    }

    /// The catalog as this partition has it.
    pub fn catalog_in(&self, partition: PartitionId) -> Table {
        let record = TableRecord {
            first_partition: partition,
            partitions: 1,
            ranges: types::Ranges::default(),
            ..TableRecord::clone(&self.record)
        };
        Table::new(Arc::new(record))
    }

    /// What a row of the catalog says.
    pub fn read_row(&self, key: &[u8], stored: &[u8]) -> Result<(TableState, CatalogTable), ClientError> {
        CatalogTable::decode(key, stored)
            .map_err(|why| ClientError::Data { table: self.name().to_string(), why })
    }

    /// The table that a row of the catalog defines. None: it was dropped, or has no name yet.
    pub fn table_of_row(&self, key: &[u8], stored: &[u8]) -> Result<Option<Table>, ClientError> {
        let (state, table) = self.read_row(key, stored)?;
        Ok(state.is_named().then(|| self.table(table)))
    }

    /// A table of it.
    pub fn table(&self, table: CatalogTable) -> Table {
        Table::new(Arc::new(self.record.with_table(table)))
    }

    /// A write to several of its tables, all or none, in one entry. With `since`, as for
    /// [`Table::write_since`].
    pub fn transact(
        &self,
        changes: Vec<TableChange>,
        parts: Vec<TablePart>,
        since: Option<Position>,
    ) -> Call {
        self.transact_in(self.partition(), changes, parts, since)
    }

    /// The same in this partition of it.
    pub fn transact_in(
        &self,
        partition: PartitionId,
        changes: Vec<TableChange>,
        parts: Vec<TablePart>,
        since: Option<Position>,
    ) -> Call {
        Call::new(self.id(), 0, partition, Op::Transact { changes, parts, since })
    }
}

/// What brings a table of a database into the catalog.
pub fn created(table: &CatalogTable) -> TableChange {
    TableChange::Create(RecordText::new(table))
}

impl Client {
    /// A database that exists.
    pub fn database(&mut self, name: &str) -> Result<Database, ClientError> {
        // A cluster map that is on its way may have it.
        self.turn(Instant::now())?;
        let found = self.cluster_map().database(name).cloned().map(Database::new);
        found.ok_or_else(|| ClientError::NoDatabase(name.to_string()))
    }

    /// Creates a database and waits until it serves.
    pub fn create_database(&mut self, request: &CreateTable) -> Result<Database, ClientError> {
        self.admin(AdminCommand::CreateDatabase(RecordText::new(request)))?;
        let deadline = Instant::now() + self.timeout();
        let database = loop {
            if let Some(record) = self.cluster_map().database(&request.name) {
                break Database::new(record.clone());
            }
            if Instant::now() >= deadline {
                return Err(ClientError::NoDatabase(request.name.clone()));
            }
            self.turn(deadline)?;
        };
        // Only a primary that serves answers it.
        let asked: Vec<Table> = database.partitions().map(|one| database.catalog_in(one)).collect();
        match asked.iter().try_for_each(|catalog| self.count(catalog).map(drop)) {
            Ok(()) => Ok(database),
            Err(error) => Err(ClientError::NotReady { table: request.name.clone(), why: error.to_string() }),
        }
    }

    /// The database that is always there, or its record at least, which is made with its first table that
    /// shares a partition.
    pub fn shared_database(&mut self) -> Result<Database, ClientError> {
        match self.database(SHARED) {
            Err(ClientError::NoDatabase(_)) => {}
            found => return found,
        }
        match self.create_database(&CreateTable::database(SHARED, "durable")) {
            Ok(made) => Ok(made),
            // Somebody else may have been faster.
            Err(error) => self.database(SHARED).map_err(|_| error),
        }
    }

    /// True if a table lies together with others where SQL makes them, and has this name.
    pub(crate) fn is_shared(&mut self, name: &str) -> Result<bool, ClientError> {
        let Some(record) = self.cluster_map().database(SHARED).cloned() else { return Ok(false) };
        Ok(self.tables_of(&Database::new(record))?.iter().any(|table| table.name() == name))
    }

    /// The tables of a database, by their names.
    pub fn tables_of(&mut self, database: &Database) -> Result<Vec<Table>, ClientError> {
        let catalog = database.catalog();
        let mut tables = Vec::new();
        for found in self.scan_all(&catalog) {
            let found = found?;
            tables.extend(database.table_of_row(&found.key, &found.stored)?);
        }
        tables.sort_by(|one: &Table, two| one.name().cmp(two.name()));
        Ok(tables)
    }

    /// Makes a table in a database.
    pub fn create_table_in(
        &mut self,
        database: &Database,
        name: &str,
        schema: Schema,
    ) -> Result<Table, ClientError> {
        if database.name() == SHARED && self.cluster_map().table(name).is_some() {
            return Err(ClientError::NameTaken);
        }
        let placed = database.record().placed(schema);
        let schema = placed.map_err(|why| ClientError::Data { table: name.to_string(), why })?;
        let table = CatalogTable::new(TableId(self.numbers(1)?), name, schema, wall_ms());
        self.define(database, created(&table))?;
        Ok(database.table(table))
    }

    /// Drops a table of a database, with all its rows.
    pub fn drop_table_in(&mut self, table: &Table) -> Result<Answer, ClientError> {
        self.looking_again(table, |client, table| {
            let database = client.database_of(table)?;
            let change = TableChange::Drop { table: table.id(), schema: table.schema().version() };
            client.define(&database, change)
        })
    }

    /// Gives a table of a database other columns, or another name. `change` has what is there, and says what
    /// is to be; the version is not its concern.
    pub fn alter_table_in(
        &mut self,
        table: &Table,
        change: impl Fn(&Table) -> Result<(String, Schema), ClientError>,
    ) -> Result<Table, ClientError> {
        self.looking_again(table, |client, table| {
            let database = client.database_of(table)?;
            let (name, schema) = change(table)?;
            let mut parts = schema.into_parts();
            // Never one that was there, in whatever log (PR-120).
            parts.version = client.numbers(1)?;
            let schema = Schema::from_parts(parts).map_err(|error| ClientError::Data {
                table: table.name().to_string(),
                why: error.to_string(),
            })?;
            let to = CatalogTable::new(table.id(), &name, schema, table.record().created_ms);
            let from = table.schema().version();
            let change = TableChange::Alter { from, to: RecordText::new(&to) };
            client.define(&database, change)?;
            Ok(database.table(to))
        })
    }

    /// A change of tables in all partitions. What the first one may have lost it is given back before, or the
    /// change would rest on what others have left behind (PR-172).
    pub(crate) fn define(&mut self, database: &Database, change: TableChange) -> Result<Answer, ClientError> {
        self.level(database)?;
        let answer = self.call(database.transact(vec![change], Vec::new(), None))?;
        self.level(database)?;
        Ok(answer)
    }

    /// Numbers that no table of the cluster had, the first of so many.
    pub fn numbers(&mut self, count: u32) -> Result<u32, ClientError> {
        let answer = self.admin(AdminCommand::Numbers(count))?;
        answer.parse().map_err(|_| ClientError::Protocol(format!("`{answer}` is no number of a table")))
    }

    /// A table of a database as it is now, whatever its name; a table with partitions of its own by its name,
    /// as it may have moved. Other rows of a replicated table come under another id: of that it is the one
    /// that has the name and the same key.
    pub fn look_again(&mut self, table: &Table) -> Result<Table, ClientError> {
        if table.record().holds.is_table() {
            return self.table(table.name());
        }
        let database = self.database_of(table)?;
        self.level(&database)?;
        let tables = self.tables_of(&database)?;
        let key = |of: &Table| {
            let columns = of.schema().key_columns().map(|column| (column.name.clone(), column.column_type));
            columns.collect::<Vec<_>>()
        };
        let takes_its_place = |known: &&Table| {
            let replicated = known.schema().is_replicated() && table.schema().is_replicated();
            replicated && known.name() == table.name() && key(known) == key(table)
        };
        let same = tables.iter().find(|known| known.id() == table.id());
        let found = same.or_else(|| tables.iter().find(takes_its_place)).cloned();
        found.ok_or_else(|| ClientError::NoTable(format!("{}.{}", database.name(), table.name())))
    }

    /// The database of one of its tables. [`ClientError::NoDatabase`]: the table has partitions of its own,
    /// or the database was dropped.
    pub fn database_of(&mut self, table: &Table) -> Result<Database, ClientError> {
        let known = table.record().database().and_then(|id| self.cluster_map().owner(id)).cloned();
        let gone = || ClientError::NoDatabase(format!("of table {}", table.name()));
        known.filter(|record| record.is_database()).map(Database::new).ok_or_else(gone)
    }

    /// Does something with a table; again, with the table as it is now, as long as it has another schema than
    /// was thought.
    pub(crate) fn looking_again<T>(
        &mut self,
        table: &Table,
        act: impl Fn(&mut Client, &Table) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut done = act(self, table);
        let (mut known, mut looks) = (table.schema().version(), 0);
        let deadline = Instant::now() + self.timeout();
        while matches!(done, Err(ClientError::Stale)) && looks < MAX_ATTEMPTS && Instant::now() < deadline {
            let now = self.look_again(table)?;
            match now.schema().version() == known {
                // It is as it was known: its rows are being copied (PR-124), and nobody writes it meanwhile.
                true => self.turn(Instant::now() + HELD)?,
                false => looks += 1,
            }
            known = now.schema().version();
            done = act(self, &now);
        }
        done
    }
}

/// Milliseconds since 1970.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
