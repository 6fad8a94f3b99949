//! The catalogs of a database's partitions brought to that of its first one ([`wire::spread`]).

use crate::call::Call;
use crate::client::Client;
use crate::database::Database;
use crate::error::ClientError;
use crate::table::unexpected;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use types::data::Standing;
use types::{CatalogTable, PartitionId, Position, TableId, TableState};
use wire::spread::{self, Tables};
use wire::{Body, CommitAnswer, ManagerOp, RecordText};

/// How often partitions are compared until they have the same tables, while others change these.
const MAX_LEVELLINGS: usize = 32;
/// Before they are compared again because the first one is removing something that must be gone.
const REMOVAL: Duration = Duration::from_millis(50);

/// The catalogs of all partitions of a database. The first one's was read last, so it has what others have.
struct Catalogs {
    others: Vec<(PartitionId, Tables)>,
    first: Tables,
    /// The state of each partition that was read.
    states: Vec<(PartitionId, Position)>,
}

/// A catalog, and the state that it is of.
type ReadCatalog = (Tables, Position);

impl Catalogs {
    fn others(&self) -> Vec<&Tables> {
        self.others.iter().map(|(_, own)| own).collect()
    }

    /// Writes of nothing, one in each partition. They are refused where what was read is no part of what is
    /// there, and done when it is secured: the transaction manager is told of nothing before (PR-362).
    fn securing(&self, database: &Database) -> Vec<Call> {
        let of = |(partition, at): &(PartitionId, Position)| {
            database.transact_in(*partition, Vec::new(), Vec::new(), Some(*at))
        };
        self.states.iter().map(of).collect()
    }
}

impl Client {
    /// Brings the catalogs of all partitions of a database to that of its first one, whoever left them behind
    /// (PR-170). What the first one has lost it is given back by those who have it (PR-172). Where
    /// transactions are global, the transaction manager is told what the tables are like, also of a database
    /// of one partition (PR-360). Nothing is to be done for any other one of one partition.
    pub fn level(&mut self, database: &Database) -> Result<(), ClientError> {
        if !database.is_spread() && !database.record().is_global() {
            return Ok(());
        }
        for _ in 0..MAX_LEVELLINGS {
            // Before the catalogs: what the manager knows, they have had. Else what comes between the two
            // would be told to it as gone.
            let known = self.known_tables(database)?;
            let catalogs = self.catalogs(database)?;
            if spread::must_wait(&catalogs.others(), &catalogs.first) {
                let until = Instant::now() + REMOVAL;
                while Instant::now() < until {
                    self.turn(until)?;
                }
                continue;
            }
            let lost = self.lost_tables(database, &catalogs)?;
            let done = match self.next_calls(database, &catalogs, &lost) {
                Ok(calls) if calls.is_empty() => self.announce(database, &catalogs, &known).map(|()| true),
                Ok(calls) => self.all(calls).map(|_| false),
                Err(error) => Err(error),
            };
            match done {
                Ok(true) => return Ok(()),
                // Somebody else was faster, or a failover has lost what was read.
                Ok(false) | Err(ClientError::Stale | ClientError::NameTaken | ClientError::Changed) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ClientError::Stale)
    }

    /// What is to be done next: what the first partition is given back that it has lost, or else what the
    /// others are told, nothing of tables that the first one has lost. Rows of replicated tables are copied
    /// before (PR-405, PR-409). None: all partitions have the same tables.
    fn next_calls(
        &mut self,
        database: &Database,
        catalogs: &Catalogs,
        lost: &BTreeSet<TableId>,
    ) -> Result<Vec<Call>, ClientError> {
        let Catalogs { others, first, .. } = catalogs;
        let copies = spread::to_return(&catalogs.others(), first, lost);
        let copies = copies.into_iter().map(|(table, from)| (table, others[from].0)).collect();
        let (returned, last) = self.copy_tables(database, (database.partition(), first), copies)?;
        let left = self.left_over(database, catalogs, lost)?;
        let numbers = || self.numbers(1);
        let back = spread::given_back(&catalogs.others(), &returned, (lost, &left), numbers)?;
        if !back.is_empty() {
            return Ok(vec![database.transact(back, Vec::new(), last)]);
        }
        let mut calls = Vec::new();
        for (partition, own) in others {
            let copies = spread::to_copy(own, first);
            let copies = copies.into_iter().map(|table| (table, database.partition())).collect();
            let (own, last) = self.copy_tables(database, (*partition, own), copies)?;
            let changes = spread::changes(&own, first, lost);
            if !changes.is_empty() {
                calls.push(database.transact_in(*partition, changes, Vec::new(), last));
            }
        }
        Ok(calls)
    }

    /// The tables of a database that the transaction manager knows, each with the version of its columns;
    /// nothing where transactions are not global.
    fn known_tables(&mut self, database: &Database) -> Result<BTreeMap<TableId, u32>, ClientError> {
        if !database.record().is_global() {
            return Ok(BTreeMap::new());
        }
        let manager = self.transaction_manager()?;
        let answer = self.call(manager.call(ManagerOp::Tables { first: database.partition() }))?;
        match answer.body {
            Body::Commit(CommitAnswer::Tables(known)) => Ok(known.into_iter().collect()),
            other => Err(unexpected(&other)),
        }
    }

    /// Tells the transaction manager what the tables of a database are like, if it does not know (PR-323),
    /// once all partitions have that secured. [`ClientError::Changed`]: a failover has lost what was read.
    fn announce(
        &mut self,
        database: &Database,
        catalogs: &Catalogs,
        known: &BTreeMap<TableId, u32>,
    ) -> Result<(), ClientError> {
        if !database.record().is_global() {
            return Ok(());
        }
        let tables = &catalogs.first;
        let there = || tables.values().filter(|(state, _)| *state != TableState::Dropping);
        let is_new = |table: &CatalogTable| {
            known.get(&table.id).is_none_or(|version| *version < table.schema.version())
        };
        let new = there().filter(|(_, table)| is_new(table));
        let new = new.map(|(_, table)| RecordText::new(database.table(table.clone()).record()));
        let is_there = |table: &TableId| there().any(|(_, known)| known.id == *table);
        let gone: Vec<TableId> = known.keys().filter(|table| !is_there(table)).copied().collect();
        let new: Vec<RecordText> = new.collect();
        if new.is_empty() && gone.is_empty() {
            return Ok(());
        }
        self.all(catalogs.securing(database))?;
        let manager = self.transaction_manager()?;
        let partitions = database.partitions().collect();
        let answer = self.call(manager.call(ManagerOp::Define { partitions, tables: new, gone }))?;
        match &answer.body {
            Body::Commit(CommitAnswer::Committed(previous)) => {
                self.bring((manager, database.id()), answer.position(), previous)
            }
            // Somebody else has told it meanwhile.
            _ => Ok(()),
        }
    }

    /// How far a constraint is, in each partition that has it.
    pub fn standings(
        &mut self,
        database: &Database,
        (table, number): (TableId, u32),
    ) -> Result<Vec<Option<Standing>>, ClientError> {
        let mut found = Vec::new();
        for partition in database.partitions() {
            let (tables, _) = self.tables_in(database, partition)?;
            let constraints = tables.get(&table).map(|(_, table)| table.schema.constraints());
            let one = constraints.unwrap_or_default().iter().find(|one| one.number == number);
            found.push(one.map(|one| one.standing));
        }
        Ok(found)
    }

    fn catalogs(&mut self, database: &Database) -> Result<Catalogs, ClientError> {
        let (mut others, mut states) = (Vec::new(), Vec::new());
        for partition in database.partitions().skip(1) {
            let (tables, at) = self.tables_in(database, partition)?;
            others.push((partition, tables));
            states.push((partition, at));
        }
        let (first, at) = self.tables_in(database, database.partition())?;
        states.push((database.partition(), at));
        Ok(Catalogs { others, first, states })
    }

    /// Every table of a partition of a database, those among them whose rows are being removed, and the state
    /// that was read. Those of the first partition say where they are in its log
    /// ([`types::CatalogTable::seen`]).
    fn tables_in(&mut self, database: &Database, partition: PartitionId) -> Result<ReadCatalog, ClientError> {
        let catalog = database.catalog_in(partition);
        let mut rows = Vec::new();
        let mut scan = self.scan_all(&catalog);
        for found in scan.by_ref() {
            rows.push(found?);
        }
        let at = scan.state_of(partition).expect("a scan that ended without an error has its first page");
        let mut tables = Tables::new();
        for found in rows {
            let (state, mut table) = database.read_row(&found.key, &found.stored)?;
            if partition == database.partition() {
                table.seen = Some(Position::new(at.term, found.lsn));
            }
            tables.insert(table.id, (state, table));
        }
        Ok((tables, at))
    }

    /// Of the tables that the first partition says nothing of those that it has lost: the entries of its log
    /// from which they came to another partition are not there any more. All others were dropped.
    fn lost_tables(
        &mut self,
        database: &Database,
        catalogs: &Catalogs,
    ) -> Result<BTreeSet<TableId>, ClientError> {
        let mut lost = BTreeSet::new();
        for table in spread::unknown(&catalogs.others(), &catalogs.first) {
            let has = table.seen.map(|seen| self.first_has(database, seen)).transpose()?;
            if has != Some(true) {
                lost.insert(table.id);
            }
        }
        Ok(lost)
    }

    /// Of the replicated tables in whose place others are given back those that had been dropped.
    fn left_over(
        &mut self,
        database: &Database,
        catalogs: &Catalogs,
        lost: &BTreeSet<TableId>,
    ) -> Result<BTreeSet<TableId>, ClientError> {
        let mut left = BTreeSet::new();
        for (table, state) in spread::left_over(&catalogs.others(), &catalogs.first, lost) {
            if self.first_has(database, state)? {
                left.insert(table);
            }
        }
        Ok(left)
    }

    /// Whether this state is part of what is in the first partition.
    fn first_has(&mut self, database: &Database, state: Position) -> Result<bool, ClientError> {
        // A write of nothing, which is refused if it is not.
        match self.call(database.transact(Vec::new(), Vec::new(), Some(state))) {
            Ok(_) => Ok(true),
            Err(ClientError::Changed) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::data::{Column, ColumnType, Schema};
    use types::{Holds, LogKind, Lsn, Policy, TableRecord, Term};
    use wire::Op;

    #[test]
    fn pr362_each_partition_secures_what_was_read_of_it_before_the_manager_is_told() {
        let schema = Schema::new(vec![Column::new("k", ColumnType::Int)], &["k"], 1, false).expect("valid");
        let policy = Policy::preset("async", 1, LogKind::Disk).expect("a preset");
        let record = TableRecord {
            holds: Holds::Database,
            partitions: 3,
            first_partition: PartitionId(64),
            ..TableRecord::new(TableId(5), "bank", schema, policy)
        };
        let database = Database::new(Arc::new(record));
        let read =
            |partition: u32| (PartitionId(partition), Position::new(Term(2), Lsn(u64::from(partition) + 10)));
        let states = vec![read(65), read(66), read(64)];
        let catalogs = Catalogs { others: Vec::new(), first: Tables::new(), states };
        let asked: Vec<(PartitionId, Option<Position>)> = catalogs
            .securing(&database)
            .into_iter()
            .map(|call| match call.op {
                Op::Transact { changes, parts, since } if changes.is_empty() && parts.is_empty() => {
                    (call.partition, since)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [65, 66, 64].map(|partition| (read(partition).0, Some(read(partition).1)));
        assert_eq!(asked, expected);
    }
}
