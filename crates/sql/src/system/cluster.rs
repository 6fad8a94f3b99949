//! The cluster's own views, and `pg_stat_replication`.

use super::facts::Facts;
use super::{Filling, array, int, text, transactions, truth};
use crate::engine::encode::decode;
use crate::ty::Ty;
use ::types::data::{Json, Value};
use ::types::{
    FailoverRecord, LogKind, Member, NodeRecord, PartitionRecord, TableRecord, Watermarks, system,
};
use client::view::survive;
use pg::Failure;
use std::collections::BTreeMap;
use wire::control::Role;

/// What operators ask of nodes.
const MARKS: [&str; 3] = [NodeRecord::JOINING, NodeRecord::DECOMMISSIONING, NodeRecord::DRAINING];

/// Fills one of the schema `understudy`.
pub fn fill(name: &str, facts: &Facts, filling: &mut Filling) -> Result<(), Failure> {
    match name {
        "nodes" => nodes(facts, filling),
        "tables" => tables(facts, filling),
        "partitions" => partitions(facts, filling),
        "replicas" => replicas(facts, filling),
        "failovers" => return failovers(facts, filling),
        "transactions" => transactions::states(facts, filling),
        "transaction_partitions" => transactions::partitions(facts, filling),
        _ => {}
    }
    Ok(())
}

fn nodes(facts: &Facts, filling: &mut Filling) {
    let seen = facts.seen();
    let records = facts.partitions();
    for node in seen.map.nodes() {
        let said = facts.status(node.id).map(|(status, _)| status);
        let heard = seen.status.nodes.iter().find(|(status, _)| status.member.node == node.id);
        let leads = records.values().filter(|record| record.primary.node == node.id).count();
        let holds = records.values().filter(|record| record.member_on(node.id).is_some()).count();
        let number = |of: Option<u64>| of.map_or(Value::Null, int);
        let marks = MARKS.into_iter().filter(|mark| node.is_marked(mark));
        filling.row(&[
            ("node", int(node.id.0)),
            ("address", text(&*node.addresses.client)),
            ("zone", if node.zone.is_empty() { Value::Null } else { text(&*node.zone) }),
            ("incarnation", int(node.incarnation.0)),
            ("live", truth(said.is_some())),
            ("heard_ms_ago", number(heard.map(|(_, age)| *age))),
            ("leads", int(leads)),
            ("holds", int(holds)),
            ("log_bytes", number(said.map(|said| said.log_bytes))),
            ("commits", number(said.map(|said| said.commits))),
            ("fsyncs", number(said.map(|said| said.fsyncs))),
            ("sent_bytes", number(said.map(|said| said.sent_bytes))),
            ("cpu_seconds", said.map_or(Value::Null, |said| Value::Float(said.cpu_us as f64 / 1e6))),
            ("disk_full", said.map_or(Value::Null, |said| truth(said.full))),
            ("tails", number(said.map(|said| said.tails.len() as u64))),
            ("damaged", array(Ty::Int8Array, node.damaged.iter().map(|partition| partition.0))),
            ("marks", array(Ty::TextArray, marks)),
        ]);
    }
}

fn tables(facts: &Facts, filling: &mut Filling) {
    let records = facts.partitions();
    for table in facts.seen().map.tables() {
        let own: Vec<&PartitionRecord> = table.partition_ids().filter_map(|id| records.get(&id)).collect();
        let weakest = survive::weakest(own.iter().copied());
        let policy = weakest.map_or(&table.policy, |record| &record.policy);
        let copies = weakest.map(|record| record.in_sync.len());
        let key = table.schema.key_columns().take(table.schema.partition_by());
        let survives = |copies| text(survive::survives(policy, copies, table.is_global()));
        filling.row(&[
            ("name", text(&*table.name)),
            ("id", int(table.id.0)),
            ("engine", text(lower(&table.engine))),
            ("log", text(if table.log == LogKind::Disk { "disk" } else { "memory" })),
            ("policy", text(&*policy.name)),
            ("factor", int(table.policy.factor)),
            ("min_in_sync", int(policy.min_in_sync)),
            ("below", text(lower(&policy.below))),
            ("partitions", int(table.partitions)),
            ("partition_by", array(Ty::TextArray, key.map(|column| column.name.clone()))),
            ("copies", copies.map_or(Value::Null, int)),
            ("acknowledges", truth(!own.is_empty() && !own.iter().any(|record| survive::stopped(record)))),
            ("survives", copies.map_or(Value::Null, survives)),
            ("created", time(table.created_ms)),
        ]);
    }
}

/// The word of a choice, as the records have it.
fn lower(choice: &impl std::fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

fn time(ms: u64) -> Value {
    Value::Timestamp(ms as i64 * 1_000)
}

/// Names of tables and databases by the partitions' records; those of tables that are gone have none.
fn named(facts: &Facts) -> Vec<(PartitionRecord, String)> {
    let tables: BTreeMap<_, &TableRecord> =
        facts.seen().map.owners().map(|table| (table.id, table.as_ref())).collect();
    let records = facts.partitions().into_values();
    records.filter_map(|record| Some((record.clone(), tables.get(&record.table)?.name.clone()))).collect()
}

fn partitions(facts: &Facts, filling: &mut Filling) {
    for (record, table) in named(facts) {
        let lead = facts.replica(&record.primary, &record);
        let state = match lead.map(|lead| lead.role) {
            Some(Role::Primary) => "serving",
            Some(Role::Promoting) => "promoting",
            Some(_) => "starting",
            None => "not heard",
        };
        let nodes = |members: &[Member]| array(Ty::Int4Array, members.iter().map(|member| member.node.0));
        filling.row(&[
            ("partition", int(record.id.0)),
            ("table_name", text(table)),
            ("epoch", int(record.epoch.0)),
            ("primary_node", int(record.primary.node.0)),
            ("state", text(state)),
            ("in_sync", nodes(&record.in_sync)),
            ("catching_up", nodes(&record.catching_up)),
            ("policy", text(&*record.policy.name)),
            ("committed", lead.map_or(Value::Null, |lead| int(lead.committed.0))),
            ("waits", lead.map_or(Value::Null, |lead| text(&*lead.waits))),
        ]);
    }
}

/// One replica: its member, whether it is in sync, how far it has got, and its lag in bytes and microseconds.
struct Copy<'a> {
    member: &'a Member,
    in_sync: bool,
    live: bool,
    marks: Option<Watermarks>,
    lag: Option<(u64, u64)>,
}

fn copies<'a>(facts: &'a Facts, record: &'a PartitionRecord) -> Vec<Copy<'a>> {
    let lead = facts.replica(&record.primary, record);
    let copy = |member: &'a Member| {
        let own = facts.replica(member, record).map(|replica| replica.marks);
        let seen = lead.and_then(|lead| lead.members.iter().find(|(other, ..)| other == member));
        let lag = match *member == record.primary {
            true => lead.map(|_| (0, 0)),
            false => seen.map(|(_, _, bytes, micros)| (*bytes, *micros)),
        };
        Copy {
            member,
            in_sync: record.in_sync.contains(member),
            live: facts.status(member.node).is_some(),
            marks: own.or(seen.map(|(_, marks, ..)| *marks)),
            lag,
        }
    };
    record.members().map(copy).collect()
}

fn replicas(facts: &Facts, filling: &mut Filling) {
    for (record, table) in named(facts) {
        for copy in copies(facts, &record) {
            let role = match (*copy.member == record.primary, copy.in_sync) {
                (true, _) => "primary",
                (_, true) => "in sync",
                (_, false) => "catching up",
            };
            let mark =
                |of: fn(&Watermarks) -> u64| copy.marks.as_ref().map_or(Value::Null, |marks| int(of(marks)));
            filling.row(&[
                ("partition", int(record.id.0)),
                ("table_name", text(&*table)),
                ("node", int(copy.member.node.0)),
                ("role", text(role)),
                ("live", truth(copy.live)),
                ("received", mark(|marks| marks.received.0)),
                ("durable", mark(|marks| marks.durable.0)),
                ("applied", mark(|marks| marks.applied.0)),
                ("persisted", mark(|marks| marks.persisted.0)),
                ("lag_bytes", copy.lag.map_or(Value::Null, |(bytes, _)| int(bytes))),
                (
                    "lag_seconds",
                    copy.lag.map_or(Value::Null, |(_, micros)| Value::Float(micros as f64 / 1e6)),
                ),
            ]);
        }
    }
}

/// One row for each backup of each partition, as its primary sees it. Positions are LSNs, which count
/// entries, written as `pg_lsn`. Where the primary is not heard, they are null.
pub fn replication(facts: &Facts, filling: &mut Filling) -> Result<(), Failure> {
    for (record, table) in named(facts) {
        let lead = facts.replica(&record.primary, &record);
        for copy in copies(facts, &record).into_iter().filter(|copy| *copy.member != record.primary) {
            let node = facts.seen().map.node(copy.member.node);
            let address = node.and_then(|node| node.addresses.peer.parse::<std::net::SocketAddr>().ok());
            let mark =
                |of: fn(&Watermarks) -> u64| copy.marks.as_ref().map_or(Value::Null, |marks| lsn(of(marks)));
            let lag = || copy.lag.map_or(Value::Null, |(_, micros)| interval(micros));
            let waits = record.rank(copy.member).is_some_and(|rank| record.policy.waits_for(rank));
            filling.row(&[
                ("pid", int(copy.member.node.0)),
                ("usename", text(crate::USER)),
                ("application_name", text(format!("{table}/{} n{}", record.id.0, copy.member.node.0))),
                ("client_addr", address.map_or(Value::Null, |address| text(address.ip().to_string()))),
                ("client_port", address.map_or(Value::Null, |address| int(address.port()))),
                ("state", text(if copy.in_sync { "streaming" } else { "catchup" })),
                ("sent_lsn", lead.map_or(Value::Null, |lead| lsn(lead.end.lsn.0))),
                ("write_lsn", mark(|marks| marks.received.0)),
                ("flush_lsn", mark(|marks| marks.durable.0)),
                ("replay_lsn", mark(|marks| marks.applied.0)),
                ("write_lag", lag()),
                ("flush_lag", lag()),
                ("replay_lag", lag()),
                ("sync_priority", int(i64::from(waits))),
                ("sync_state", text(if waits { "sync" } else { "async" })),
            ]);
        }
    }
    Ok(())
}

/// A position as PostgreSQL writes one.
fn lsn(number: u64) -> Value {
    text(format!("{:X}/{:X}", number >> 32, number & 0xffff_ffff))
}

/// Microseconds as an interval.
fn interval(micros: u64) -> Value {
    let micros = i64::try_from(micros).unwrap_or(i64::MAX);
    Value::Interval(::types::data::Interval { micros, ..::types::data::Interval::default() })
}

/// Every failover: those in the cluster's table, and those that are not written there yet.
fn failovers(facts: &Facts, filling: &mut Filling) -> Result<(), Failure> {
    let mut records: BTreeMap<u64, (FailoverRecord, Option<String>)> = BTreeMap::new();
    let kept = facts.catalog.table(system::FAILOVERS).map(|table| (facts.read(table), table));
    match kept {
        Some((Ok(rows), table)) => {
            let at = |name| table.schema.column_index(name);
            let (Some(record), Some(name)) = (at("record"), at("table")) else { return Ok(()) };
            for row in rows {
                let tree = decode((&row[record]).into(), Ty::Json)?;
                let Value::Json(tree) = tree else { continue };
                let Some(record) = read(&tree) else { continue };
                let Value::Text(name) = decode((&row[name]).into(), Ty::Text)? else { continue };
                records.insert(record.id, (record, Some(name)));
            }
        }
        // The controllers know the newest thousand.
        Some((Err(failure), _)) if facts.seen().failovers.is_empty() => return Err(failure),
        _ => {}
    }
    let names: BTreeMap<_, _> = named(facts).into_iter().map(|(record, name)| (record.id, name)).collect();
    for record in &facts.seen().failovers {
        let name = records.remove(&record.id).and_then(|(_, name)| name);
        let name = name.or_else(|| names.get(&record.partition).cloned());
        records.insert(record.id, (record.clone(), name));
    }
    for (record, name) in records.into_values() {
        failover(&record, name, filling);
    }
    Ok(())
}

fn read(tree: &Json) -> Option<FailoverRecord> {
    serde_json::from_str(&tree.to_string()).ok()
}

fn failover(record: &FailoverRecord, name: Option<String>, filling: &mut Filling) {
    let between = |from: Option<u64>, to: Option<u64>| match (from, to) {
        (Some(from), Some(to)) => int(to.saturating_sub(from)),
        _ => Value::Null,
    };
    let maybe = |ms: Option<u64>| ms.map_or(Value::Null, time);
    let (heard, suspected, sealed) =
        (Some(record.last_heard_ms), Some(record.suspected_ms), Some(record.sealed_ms));
    let cause = serde_json::to_value(record.cause).ok();
    filling.row(&[
        ("id", int(record.id)),
        ("partition", int(record.partition.0)),
        ("table_name", name.map_or(Value::Null, text)),
        ("cause", cause.and_then(|cause| cause.as_str().map(text)).unwrap_or_default()),
        ("from_node", int(record.old_primary.node.0)),
        ("to_node", int(record.new_primary.node.0)),
        ("last_heard", maybe(heard)),
        ("suspected", maybe(suspected)),
        ("sealed", maybe(sealed)),
        ("reconciled", maybe(record.reconciled_ms)),
        ("serving", maybe(record.serving_ms)),
        ("detect_ms", between(heard, suspected)),
        ("seal_ms", between(suspected, sealed)),
        ("reconcile_ms", between(sealed, record.reconciled_ms)),
        ("serve_ms", between(record.reconciled_ms, record.serving_ms)),
        ("total_ms", between(heard, record.serving_ms)),
        ("loss_possible", truth(record.loss.possible)),
        ("kept", record.loss.kept.map_or(Value::Null, |lsn| int(lsn.0))),
        ("lost_commits", int(record.loss.tails.iter().map(|tail| tail.commits).sum::<u64>())),
    ]);
}
