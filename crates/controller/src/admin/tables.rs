//! Creating, dropping and altering tables and databases. Both are records with partitions, and go the same
//! way.
//!
//! A table is created in three kinds of transactions: numbers are reserved and a mark is set; its partitions
//! are written, a hundred at a time; its record and name are written and the mark is taken away, in one.
//! Nobody sees it before the last one. What an interrupted creation leaves is swept away.

use super::names::{called, check_name, name_key, none, not_held, too_few};
use super::transactions::check_several;
use super::{Answer, FAILED, Job, NOT_FOUND, REFUSED, Refusal, UNREACHABLE, USAGE};
use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::placement::{self, Site};
use crate::resize;
use crate::txn::Txn;
use std::collections::BTreeSet;
use types::config::{PartitionRecord, TableRecord, Unknown};
use types::data::Schema;
use types::database::SHARED;
use types::policy::{Below, Standby};
use types::{Epoch, Holds, Indexes, LogKind, Member, NodeId, Now, PartitionId, Policy, Ship, TableId};
use wire::RecordText;
use wire::control::{AddIndex, AlterTable, CreateTable, MOST_NUMBERS};

/// The most partitions of one table.
const MOST_PARTITIONS: u32 = 4096;

/// Milliseconds that can be asked for as the most that a failover replays. Below, each flush would be a file
/// of next to nothing.
const TARGETS: std::ops::RangeInclusive<u64> = 20..=3_600_000;

/// Copies, if nothing else is said and there are enough nodes.
pub(super) const COPIES: usize = 3;

/// The policy of a table to be, and where its copies go.
type Checked = (Policy, Vec<Vec<NodeId>>);

/// A creation under way.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Creation {
    /// What was asked for.
    pub(crate) request: CreateTable,
    /// The record to be.
    table: TableRecord,
    /// How many partitions are written.
    filled: u32,
    /// The revision of the mark; the creation is void once the mark is gone.
    mark: u64,
}

impl Controller {
    /// Checks the request and reserves numbers.
    pub(super) fn create_table(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        request: CreateTable,
    ) -> Option<Answer> {
        let (policy, placement) = match self.check_request(now, &request) {
            Ok(checked) => checked,
            Err(refusal) => return Some(Err(refusal)),
        };
        let mut cluster = self.records.cluster()?.clone();
        let seed = self.draw();
        let system = types::system::is_own(&request.name);
        let next = if system { &mut cluster.next_system } else { &mut cluster.next_partition };
        let first_partition = PartitionId(*next);
        *next += request.partitions;
        let table = TableRecord {
            engine: request.engine,
            log: request.log,
            first_partition,
            partitions: request.partitions,
            seed,
            placement,
            created_ms: now.wall_ms,
            holds: request.holds,
            ship: request.ship,
            ranges: request.ranges.clone(),
            failover_target_ms: request.failover_target_ms.filter(|target| *target > 0),
            unknown: as_placed(&request),
            ..TableRecord::new(TableId(cluster.next_table), &request.name, request.schema.clone(), policy)
        };
        let Some(next_table) = cluster.next_table.checked_add(1) else {
            return Some(Err((REFUSED, "all numbers of tables have been given out".into())));
        };
        cluster.next_table = next_table;
        let (mark, name) = (Key::Creating(table.id), name_key(table.holds, &table.name));
        let txn = Txn::default()
            .compare(Key::Cluster, self.records.compare_with(&Key::Cluster))
            .compare(&name, 0)
            .compare(&mark, 0)
            .put(Key::Cluster, &cluster)
            .put(&mark, &seed);
        let creation = Box::new(Creation { request, table, filled: 0, mark: 0 });
        self.submit(Purpose::Admin(conn, id, Job::Reserve(creation)), txn);
        None
    }

    /// Writes the next partitions, or at last the table.
    pub(super) fn fill(&mut self, conn: ConnId, id: u64, mut creation: Creation) -> Option<Answer> {
        let mark = Key::Creating(creation.table.id);
        if creation.mark == 0 {
            creation.mark = self.records.compare_with(&mark);
        }
        if creation.filled == creation.table.partitions {
            return self.publish(conn, id, creation);
        }
        let mut txn = Txn::default();
        let ids: Vec<PartitionId> =
            creation.table.partition_ids().skip(creation.filled as usize).take(Txn::MAX_KEYS).collect();
        for partition in &ids {
            let record = match self.first_record(&creation.table, *partition) {
                Ok(record) => record,
                Err(refusal) => return Some(Err(refusal)),
            };
            let key = Key::Partition(*partition);
            txn = txn.compare(&key, 0).put(&key, &record);
        }
        creation.filled += ids.len() as u32;
        self.submit(Purpose::Admin(conn, id, Job::Fill(Box::new(creation))), txn);
        None
    }

    fn publish(&mut self, conn: ConnId, id: u64, creation: Creation) -> Option<Answer> {
        let table = &creation.table;
        assert_eq!(
            creation.filled, table.partitions,
            "R1: table '{}' has partitions without a record",
            table.name
        );
        if let Err(refusal) = self.check_global(&creation.request, &table.policy) {
            return Some(Err(refusal));
        }
        let (mark, name) = (Key::Creating(table.id), name_key(table.holds, &table.name));
        let under = self.under_manager(table.is_global());
        let txn = under
            .compare(&mark, creation.mark)
            .compare(&name, 0)
            .compare(Key::Table(table.id), 0)
            .put(Key::Table(table.id), table)
            .put(&name, &table.id)
            .delete(&mark);
        self.submit(Purpose::Admin(conn, id, Job::Publish(Box::new(creation))), txn);
        None
    }

    /// A partition's first configuration: everybody in their present lives, with empty logs, in sync.
    fn first_record(&mut self, table: &TableRecord, id: PartitionId) -> Result<PartitionRecord, Refusal> {
        let index = (id.0 - table.first_partition.0) as usize;
        let present = |node: &NodeId| self.records.node(*node).map(|node| node.member());
        let in_sync: Vec<Member> = table.placement[index].iter().filter_map(present).collect();
        if in_sync.len() != table.placement[index].len() {
            return Err((
                FAILED,
                format!("a node of {} was removed while it was created", called(table.holds, &table.name)),
            ));
        }
        let record = PartitionRecord {
            proposal: self.proposal(),
            ..PartitionRecord::new(id, table.id, Epoch(1), in_sync, table.policy.clone())
        };
        let record = record.with_transactions_of(table);
        Ok(if table.is_database() { record.of_database() } else { record })
    }

    /// The table is there.
    pub(super) fn created(&self, creation: &Creation) -> Answer {
        Ok(RecordText::new(&creation.table).0)
    }

    /// Somebody was faster, or the creation took so long that it was swept away.
    pub(super) fn creation_failed(&mut self, creation: &Creation) -> Answer {
        let (holds, name) = (creation.table.holds, &creation.table.name);
        let mark = Key::Creating(creation.table.id);
        if self.records.compare_with(&mark) == creation.mark && creation.mark > 0 {
            self.submit(Purpose::Sweep, Txn::default().compare(&mark, creation.mark).delete(&mark));
        }
        let what = called(holds, name);
        match self.records.compare_with(&name_key(holds, name)) {
            0 => Err((FAILED, format!("the creation of {what} was interrupted; nothing of it remains"))),
            _ => Err((FAILED, format!("{what} exists already"))),
        }
    }

    fn check_request(&self, now: Now, request: &CreateTable) -> Result<Checked, Refusal> {
        check_name(request.holds, &request.name)?;
        self.check_system(request)?;
        check_database(request)?;
        if self.records.compare_with(&name_key(request.holds, &request.name)) > 0 {
            return Err((FAILED, format!("{} exists already", called(request.holds, &request.name))));
        }
        if request.partitions == 0 || request.partitions > MOST_PARTITIONS {
            return Err((
                USAGE,
                format!("{} partitions are out of range: 1 to {MOST_PARTITIONS}", request.partitions),
            ));
        }
        let sites = self.open_sites(now);
        if sites.is_empty() {
            return Err((UNREACHABLE, "no node is live".into()));
        }
        let default = if request.policy == "none" { 1 } else { sites.len().min(COPIES) };
        let factor = request.factor.unwrap_or(default as u8);
        let mut policy =
            policy(&request.policy, factor, request.log, 1, request.min_in_sync, Some(request.available))?;
        policy.standby = request.standby.unwrap_or(policy.standby);
        new_target(None, request.failover_target_ms)?;
        policy.check(request.engine).map_err(|error| (USAGE, error.to_string()))?;
        check_several((request.holds, request.global), request.partitions, &policy)?;
        self.check_global(request, &policy)?;
        check_ship(request.holds, request.ship, &policy)?;
        let (copies, partitions) = (usize::from(factor), request.partitions as usize);
        if copies > sites.len() {
            return Err((REFUSED, too_few((request.holds, &request.name), copies, &sites)));
        }
        if !request.placement.is_empty() {
            let live: BTreeSet<NodeId> = sites.iter().map(|site| site.node).collect();
            placement::check(&request.placement, &live, copies, partitions).map_err(|why| (USAGE, why))?;
            return Ok((policy, request.placement.clone()));
        }
        let offset = self.records.cluster().map_or(0, |cluster| cluster.next_table as usize - 1);
        let placed = placement::place(request.scheme, &sites, copies, partitions, offset);
        let few = || (REFUSED, too_few((request.holds, &request.name), copies, &sites));
        Ok((policy, placed.ok_or_else(few)?))
    }

    /// System tables are what this version says they are, and there is a number left for their partition.
    fn check_system(&self, request: &CreateTable) -> Result<(), Refusal> {
        let name = &request.name;
        if !types::system::is_own(name) {
            return Ok(());
        }
        let known = types::system::schema(name);
        let right = known.is_some_and(|schema| schema == request.schema) && request.partitions == 1;
        let left =
            self.records.cluster().is_some_and(|cluster| cluster.next_system < PartitionId::FIRST_USER);
        match right && left {
            true => Ok(()),
            false => Err((
                USAGE,
                format!(
                    "'{name}' is kept for the cluster itself: names of your tables cannot begin with sys_"
                ),
            )),
        }
    }

    /// Removes the record of a table or a database; its partitions are swept away after it.
    pub(super) fn drop_table(
        &mut self,
        conn: ConnId,
        id: u64,
        (holds, name): (Holds, String),
    ) -> Option<Answer> {
        let Some(table) = self.records.named(&name, holds) else { return Some(Err(none(holds, &name))) };
        if types::system::is_own(&name) {
            return Some(Err((
                REFUSED,
                format!("table '{name}' is the cluster's own and cannot be dropped"),
            )));
        }
        if table.is_database() && name == SHARED {
            let why = format!("database '{name}' is always there: drop tables of it");
            return Some(Err((REFUSED, why)));
        }
        if let Err(refusal) = not_held(table) {
            return Some(Err(refusal));
        }
        let (table, key) = (Key::Table(table.id), name_key(holds, &name));
        let txn = Txn::default()
            .compare(&table, self.records.compare_with(&table))
            .compare(&key, self.records.compare_with(&key))
            .delete(&table)
            .delete(&key);
        self.submit(Purpose::Admin(conn, id, Job::Drop(holds, name)), txn);
        None
    }

    /// Takes so many numbers from the cluster's record. They are used up, whatever becomes of them.
    pub(super) fn give_numbers(&mut self, conn: ConnId, id: u64, count: u32) -> Option<Answer> {
        let mut cluster = self.records.cluster()?.clone();
        let first = cluster.next_table;
        let Some(next) = first.checked_add(count).filter(|_| (1..=MOST_NUMBERS).contains(&count)) else {
            return Some(Err((USAGE, format!("{count} numbers are out of range: 1 to {MOST_NUMBERS}"))));
        };
        cluster.next_table = next;
        let compared = self.records.compare_with(&Key::Cluster);
        let txn = Txn::default().compare(Key::Cluster, compared).put(Key::Cluster, &cluster);
        self.submit(Purpose::Admin(conn, id, Job::Numbers { first, count }), txn);
        None
    }

    /// Writes the new policy, places of copies, columns and indexes into the table's record; the partitions
    /// follow with the policy and the copies, advised by the planner (PR-24), and with the indexes, brought
    /// to it by their primaries. Columns concern only those who read and write rows: a row says under which
    /// version it was written.
    pub(super) fn alter_table(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        (holds, request): (Holds, AlterTable),
    ) -> Option<Answer> {
        let Some(table) = self.records.named(&request.name, holds) else {
            return Some(Err(none(holds, &request.name)));
        };
        let altered = new_policy(table, &request).and_then(|policy| {
            not_held(table)?;
            check_several((table.holds, table.is_global()), table.partitions, &policy)?;
            self.check_altered(table, &policy)?;
            let ship = request.ship.unwrap_or(table.ship);
            check_ship(table.holds, ship, &policy)?;
            let schema = new_schema(table, &request)?;
            let indexes = new_indexes(table, &schema, &request)?;
            let placement = self.resized(now, table, policy.factor.into())?;
            let failover_target_ms = new_target(table.failover_target_ms, request.failover_target_ms)?;
            Ok(TableRecord { policy, placement, schema, indexes, failover_target_ms, ship, ..table.clone() })
        });
        let txn = match altered {
            Ok(record) if record == *table => return Some(self.altered(holds, &request)),
            altered => altered.and_then(|record| self.altering(table, &record)),
        };
        match txn {
            Ok(txn) => self.submit(Purpose::Admin(conn, id, Job::Alter(holds, request)), txn),
            Err(refusal) => return Some(Err(refusal)),
        }
        None
    }

    /// The table's wanted nodes with so many copies of each partition: what is there and stays is not moved.
    fn resized(&self, now: Now, table: &TableRecord, factor: usize) -> Result<Vec<Vec<NodeId>>, Refusal> {
        let rows = &table.placement;
        if rows.iter().all(|row| row.len() == factor) {
            return Ok(rows.clone());
        }
        let record =
            |index: usize| self.records.partition(PartitionId(table.first_partition.0 + index as u32));
        let narrowed = rows.iter().enumerate().map(|(index, row)| {
            let record = record(index);
            let level = |node: NodeId| {
                self.is_live(now, node)
                    && record.is_some_and(|record| record.in_sync.iter().any(|member| member.node == node))
            };
            resize::narrow(row, record.map(|record| record.primary.node), level, factor)
        });
        let narrowed: Vec<Vec<NodeId>> = narrowed.collect();
        if narrowed.iter().all(|row| row.len() == factor) {
            return Ok(narrowed);
        }
        let sites = self.open_sites(now);
        let holders = |index: usize| {
            let members = record(index).into_iter().flat_map(|record| record.members());
            members.map(|member| member.node).collect()
        };
        let holders: Vec<Vec<NodeId>> = (0..rows.len()).map(holders).collect();
        let widened = resize::widen(table.scheme(), &sites, &narrowed, &holders, factor);
        let enough = sites.len() >= factor;
        widened
            .filter(|_| enough)
            .ok_or_else(|| (REFUSED, too_few((table.holds, &table.name), factor, &sites)))
    }

    /// Nodes that may be given copies.
    pub(super) fn open_sites(&self, now: Now) -> Vec<Site> {
        let nodes =
            self.records.nodes().filter(|node| self.is_live(now, node.id) && !self.is_draining(node.id));
        nodes.map(|node| Site { node: node.id, zone: node.zone.clone() }).collect()
    }

    /// The table's record has the new policy.
    pub(super) fn altered(&self, holds: Holds, request: &AlterTable) -> Answer {
        let table = self.records.named(&request.name, holds).ok_or_else(|| none(holds, &request.name))?;
        Ok(RecordText::new(&table.policy).0)
    }
}

/// The table's policy as it is to be.
fn new_policy(table: &TableRecord, request: &AlterTable) -> Result<Policy, Refusal> {
    let AlterTable { policy: name, min_in_sync, available, standby, factor, .. } = request;
    let others = !request.add_columns.is_empty()
        || request.add_index.is_some()
        || request.drop_index.is_some()
        || request.failover_target_ms.is_some()
        || request.ship.is_some();
    let old = &table.policy;
    match (name, min_in_sync, available, standby, factor) {
        (None, None, None, None, None) if !others => {
            return Err((
                USAGE,
                format!("nothing is to be changed in {}", called(table.holds, &request.name)),
            ));
        }
        (None, None, None, None, None) => return Ok(old.clone()),
        _ => {}
    }
    let name = name.as_ref().unwrap_or(&old.name);
    let min = min_in_sync.or(Some(old.min_in_sync));
    let available = available.or(Some(old.below == Below::Available));
    let factor = factor.unwrap_or(old.factor);
    let mut changed = policy(name, factor, table.log, old.version + 1, min, available)?;
    changed.standby = standby.unwrap_or(old.standby);
    if factor < old.min_in_sync && min_in_sync.is_none() {
        let (least, what) = (old.min_in_sync, called(table.holds, &table.name));
        let copies = if factor == 1 { "copy" } else { "copies" };
        return Err((
            USAGE,
            format!(
                "{what} commits with at least {least} copies in sync; for {factor} {copies} lower that in the \
                 same step: min_in_sync {factor}"
            ),
        ));
    }
    changed.check(table.engine).map_err(|error| (USAGE, error.to_string()))?;
    // Asked for again what is there already: the copies may still be on their way.
    match Policy::same_but_version(&changed, old) {
        true => Ok(old.clone()),
        false => Ok(changed),
    }
}

/// The bound on what a failover replays, as it is to be.
fn new_target(old: Option<u64>, wanted: Option<u64>) -> Result<Option<u64>, Refusal> {
    match wanted {
        None => Ok(old),
        Some(0) => Ok(None),
        Some(target) if TARGETS.contains(&target) => Ok(Some(target)),
        Some(target) => Err((
            USAGE,
            format!(
                "a failover target of {target} ms is out of range: {} to {} ms",
                TARGETS.start(),
                TARGETS.end()
            ),
        )),
    }
}

/// The table's columns as they are to be.
fn new_schema(table: &TableRecord, request: &AlterTable) -> Result<Schema, Refusal> {
    let mut schema = table.schema.clone();
    if table.is_database() && (!request.add_columns.is_empty() || request.add_index.is_some()) {
        return Err((USAGE, format!("database '{}' has tables, and no columns of its own", table.name)));
    }
    for column in &request.add_columns {
        let known = schema.column_index(&column.name).map(|at| &schema.columns()[at]);
        if known == Some(column) {
            continue;
        }
        if types::system::is_reserved(&table.name) {
            return Err((REFUSED, format!("table '{}' is the cluster's own", table.name)));
        }
        schema = schema.with_column(column.clone()).map_err(|error| (USAGE, error.to_string()))?;
    }
    Ok(schema)
}

/// The table's indexes as they are to be.
fn new_indexes(table: &TableRecord, schema: &Schema, request: &AlterTable) -> Result<Indexes, Refusal> {
    let mut indexes = table.indexes.clone();
    let named = |why: String| format!("table '{}': {why}", table.name);
    if let Some(name) = &request.drop_index
        && !indexes.remove(name)
    {
        return Err((NOT_FOUND, format!("table '{}' has no index '{name}'", table.name)));
    }
    if let Some(AddIndex { name, columns }) = &request.add_index {
        if types::system::is_own(&table.name) {
            return Err((REFUSED, format!("table '{}' is the cluster's own", table.name)));
        }
        indexes.add(schema, name, columns).map_err(|why| (USAGE, named(why)))?;
    }
    Ok(indexes)
}

/// How the table was placed. A placement that somebody wrote down is not changed to make nodes even.
fn as_placed(request: &CreateTable) -> Unknown {
    let mut fields = Unknown::new();
    if request.global {
        fields.insert(TableRecord::TRANSACTIONS.into(), types::config::GLOBAL.into());
    }
    if !request.placement.is_empty() {
        fields.insert(TableRecord::PINNED.into(), true.into());
    } else if request.scheme != types::Scheme::default() {
        fields.insert(TableRecord::SCHEME.into(), serde_json::json!(request.scheme));
    }
    fields
}

/// A preset with its adjustments.
fn policy(
    name: &str,
    factor: u8,
    log: LogKind,
    version: u32,
    min_in_sync: Option<u8>,
    available: Option<bool>,
) -> Result<Policy, Refusal> {
    let mut policy = Policy::preset(name, factor, log).map_err(|error| (USAGE, error.to_string()))?;
    policy.version = version;
    policy.min_in_sync = min_in_sync.unwrap_or(policy.min_in_sync);
    if let Some(available) = available {
        policy.below = if available { Below::Available } else { Below::Strict };
    }
    Ok(policy)
}

/// A database has the columns of its catalog, and one partition.
fn check_database(request: &CreateTable) -> Result<(), Refusal> {
    let name = &request.name;
    match request.holds {
        Holds::Table if !request.ranges.is_empty() => Err((USAGE, "ranges are of databases".into())),
        Holds::Table => Ok(()),
        Holds::TableOf(_) => Err((USAGE, format!("table '{name}' is made by its database"))),
        Holds::Database => {
            let own = request.schema.columns().get(2..).unwrap_or_default();
            let spread = types::database::catalog_schema_by(own);
            if !spread.is_ok_and(|schema| schema == request.schema) {
                return Err((USAGE, format!("database '{name}' has tables, and no columns of its own")));
            }
            let ranges = Some(&request.ranges).filter(|ranges| !ranges.is_empty());
            let why = match (request.partitions, own.is_empty()) {
                (_, true) if ranges.is_some() => "ranges are of a partition key, and there is none".into(),
                (_, true) if request.global && name != SHARED => return Ok(()),
                (_, false) if request.global => {
                    "global transactions need no partition key: each table is spread by its own key".into()
                }
                (1, true) => return Ok(()),
                (1, false) => "a database of one partition has no partition key".into(),
                (several, true) => format!(
                    "a database of {several} partitions needs a partition key: the columns that all primary keys begin with"
                ),
                _ if name == SHARED => format!("database '{name}' has one partition"),
                _ if own.iter().any(|column| !column.column_type.may_be_key()) => {
                    "a partition key has no column of type json".into()
                }
                (several, _) => match ranges.and_then(|ranges| ranges.fault(own, several)) {
                    Some(why) => why,
                    None => return Ok(()),
                },
            };
            Err((USAGE, why))
        }
    }
}

/// Calls are shipped to who executes what it is sent, in databases: only they have procedures.
fn check_ship(holds: Holds, ship: Ship, policy: &Policy) -> Result<(), Refusal> {
    let refuse = |why: &str| Err((USAGE, format!("ship = calls {why}")));
    match (ship, holds, policy.standby) {
        (Ship::Effects, ..) => Ok(()),
        (Ship::Calls, Holds::Table | Holds::TableOf(_), _) => {
            refuse("is of databases: a bare table has no procedures")
        }
        (Ship::Calls, Holds::Database, Standby::Cold) => {
            refuse("does not go with cold standbys: they execute nothing (standby hot, or ship effects)")
        }
        (Ship::Calls, Holds::Database, Standby::Hot) => Ok(()),
    }
}
