//! The records, made anew from what nodes keep of them, after the metastore was lost (PR-107).
//!
//! Before a node acts on a record it keeps it durably. So among all nodes there is, of every partition, a
//! record at least as new as the newest one that anybody ever acted on: the one of the highest epoch. It is
//! not written as it was. The lost metastore may have had newer ones that nobody heard of, so each partition
//! is sealed: its next epoch lies beyond all that the old controllers can have given out, and its primary
//! leads a new term, after all of R6. Nodes take the word of the old controllers no more, because before they
//! are asked they note the new generation.
//!
//! A node that is not there may know more: of an epoch in which it acknowledged alone. So all are needed.
//! Whoever goes on without some of them leaves them out of every in-sync set: they come back as copies, and
//! what only they had is set aside then (R9).
//!
//! | file | what |
//! | --- | --- |
//! | `known` | one node's report, read |
//! | `merge` | which nodes, tables and partitions there are, and the newest record of each |
//! | `seals` | what is written of each partition |

mod known;
mod merge;
mod seals;

use crate::admin::name_key;
use crate::keys::Key;
use known::Known;
use merge::Merged;
pub use seals::Sealed;
use std::fmt;
use types::config::{FORMAT, TableRecord};
use types::{Epoch, Generation, Member, NodeId, PartitionId, Rules};
use wire::KeptRecords;

/// So many numbers of tables are skipped. Those of tables of databases stand in their partitions alone, and
/// that the newest of them were given out may not have been told to any node; none is ever given out again.
const SKIPPED_TABLES: u32 = 1_000_000;
/// So many more are skipped for each time that nodes were asked since the newest record that any of them
/// keeps: records may have been made then of which no node has heard, and numbers given out by them (PR-160).
const SKIPPED_PER_ASKING: u32 = 100_000;
/// Askings beyond so many are not counted: nodes that are asked again and again, because one of them is not
/// there, must not use up all numbers.
const MAX_ASKINGS: u32 = 10_000;
/// So many numbers of each table's indexes are skipped; and those of a generation are counted from its number
/// times this on: an index may be wanted in records of another one, of which nobody here was even asked.
const SKIPPED_INDEXES: u32 = 16;
const _: () = assert!(Generation::LAST.0 <= (u32::MAX / SKIPPED_INDEXES) as u64);
/// So many generations may have been made without asking anybody who tells now. They are counted by the
/// minutes between them, which say no more than that.
const MAX_UNASKED: u32 = 20;
/// So many numbers of partitions are skipped where nodes are missing, which may have some that nobody else
/// knows.
const SKIPPED_PARTITIONS: u32 = 100_000;
/// So many numbers of failovers are skipped: those of the newest ones may not have been told.
const SKIPPED_FAILOVERS: u64 = 1_000;
/// The failovers of each generation are counted from its number times this on: records may have been made
/// before of which no node has told here, and who led by them reports what it has kept (PR-258).
const FAILOVERS_OF_GENERATION: u64 = 1_000_000;
/// The new metastore counts on from so far beyond what nodes were told.
const SKIPPED_REVISIONS: u64 = 1_000;

/// How the records are to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The generation to be written. Every node that was asked listens to no lower one.
    pub generation: Generation,
    /// Go on without the nodes that are not there.
    pub accept_missing: bool,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
    /// A random number: the names of the seals come from it.
    pub seed: u64,
    /// Which rules are in force.
    pub rules: Rules,
}

/// The records, and what must be said about them.
#[derive(Clone, PartialEq, Debug)]
pub struct Rebuilt {
    /// Every key with its record as JSON.
    pub entries: Vec<(Key, Vec<u8>)>,
    /// The revision that the metastore begins with, where it can choose.
    pub revision: u64,
    /// Nodes that take part in nothing until they are given copies.
    pub missing: Vec<NodeId>,
    /// Every partition.
    pub partitions: Vec<Sealed>,
}

/// Why the records cannot be made, or should not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No node keeps anything.
    Nothing,
    /// Nodes of two clusters were asked.
    Clusters(NodeId, NodeId),
    /// Two nodes say that they are this one.
    Twice(NodeId),
    /// A node is connected to a controller, which has the records: nothing need be rebuilt.
    HasController(NodeId, String),
    /// A node listens to this generation already.
    Newer(NodeId, Generation),
    /// A record of this node cannot be read.
    Unreadable(NodeId, String),
    /// Nodes are missing, or have lost what they kept: they may know a higher epoch.
    Missing(Vec<NodeId>),
    /// Two nodes have different records of one epoch.
    Differ(PartitionId, Epoch, NodeId, NodeId),
    /// Something on this node is of a higher epoch than every record.
    Ahead(PartitionId, Epoch, NodeId),
    /// A table's partition of which nobody has a record.
    NoRecord(PartitionId, String),
    /// Two tables have this name.
    SameName(String),
}

impl Refusal {
    /// True if the caller may choose to go on (`accept_missing`).
    pub fn is_acceptable(&self) -> bool {
        matches!(self, Refusal::Missing(_) | Refusal::Ahead(..))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Nothing => write!(f, "none of these nodes keeps any records"),
            Refusal::Clusters(a, b) => write!(f, "{a} and {b} belong to different clusters"),
            Refusal::Twice(node) => write!(f, "two nodes say that they are {node}"),
            Refusal::HasController(node, at) => {
                write!(
                    f,
                    "{node} is connected to the controller {at}: stop it first, if it is to be replaced"
                )
            }
            Refusal::Newer(node, generation) => {
                write!(f, "{node} listens to {generation} already: run this again, or start that controller")
            }
            Refusal::Unreadable(node, why) => write!(f, "what {node} keeps cannot be used: {why}"),
            Refusal::Missing(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "{} did not tell what it keeps, or lost it, and may know a higher epoch",
                    nodes.join(", ")
                )
            }
            Refusal::Differ(partition, epoch, a, b) => {
                write!(f, "{a} and {b} keep different records of {partition} in {epoch}")
            }
            Refusal::Ahead(partition, epoch, node) => {
                write!(
                    f,
                    "the replica of {partition} on {node} has seen {epoch}, and nobody keeps that record"
                )
            }
            Refusal::NoRecord(partition, table) => {
                write!(f, "nobody keeps a record of {partition} of table '{table}'")
            }
            Refusal::SameName(name) => write!(f, "two tables are named '{name}'"),
        }
    }
}

/// The highest generation that any of these nodes listens to, or was told of.
pub fn newest_generation(reports: &[KeptRecords]) -> Generation {
    let told = |report: &KeptRecords| Known::read(report).map_or(Generation(0), |known| known.told());
    let of = |report: &KeptRecords| report.generation.max(told(report));
    reports.iter().map(of).max().unwrap_or_default()
}

/// Where nodes say that others of their cluster are reached by clients.
pub fn addresses(reports: &[KeptRecords]) -> Vec<(NodeId, String)> {
    let known: Vec<Known<'_>> = reports.iter().filter_map(|report| Known::read(report).ok()).collect();
    let nodes = merge::nodes(&known);
    nodes.values().map(|node| (node.id, node.addresses.client.clone())).collect()
}

/// Makes the records of what these nodes keep.
pub fn rebuild(reports: &[KeptRecords], order: &Order) -> Result<Rebuilt, Refusal> {
    let merged = Merged::of(reports)?;
    if let Some(newer) = reports.iter().find(|report| report.generation > order.generation) {
        return Err(Refusal::Newer(newer.member.node, newer.generation));
    }
    if !order.accept_missing {
        if !merged.missing.is_empty() {
            return Err(Refusal::Missing(merged.missing.iter().copied().collect()));
        }
        if let Some((partition, epoch, node)) = merged.ahead() {
            return Err(Refusal::Ahead(partition, epoch, node));
        }
    }
    Ok(write(&merged, order))
}

/// How often records may have been made of which none of these nodes has heard: as often as one of them was
/// asked since the newest record that they keep, or for as many generations as any of them was, if not all
/// were asked each time. This time does not count.
fn unheard(merged: &Merged, now: Generation) -> u32 {
    let by_one = merged.asked.saturating_sub(merged.cluster.asked.saturating_add(1));
    let since = |asking: &&Generation| **asking > merged.cluster.generation && **asking != now;
    let by_any = merged.askings.iter().filter(since).count() as u32;
    // Who was left out each time was not asked either.
    let between = now.0.saturating_sub(merged.cluster.generation.0.saturating_add(1));
    let by_nobody = between.min(u64::from(MAX_UNASKED)) as u32;
    by_one.max(by_any).min(MAX_ASKINGS).max(by_nobody)
}

fn write(merged: &Merged, order: &Order) -> Rebuilt {
    let mut cluster = merged.cluster.clone();
    let unheard = unheard(merged, order.generation);
    cluster.format = FORMAT;
    cluster.generation = order.generation;
    let skipped = SKIPPED_TABLES + unheard * SKIPPED_PER_ASKING;
    cluster.next_table = cluster.next_table.saturating_add(skipped);
    cluster.asked = cluster.asked.max(merged.asked);
    cluster.next_partition += if merged.missing.is_empty() { 0 } else { SKIPPED_PARTITIONS };
    let first = order.generation.0.saturating_mul(FAILOVERS_OF_GENERATION);
    cluster.next_failover = cluster.next_failover.saturating_add(SKIPPED_FAILOVERS).max(first);
    let mut entries = Vec::new();
    let mut partitions = Vec::new();
    for (partition, record) in &merged.partitions {
        let highest = merged.seen.get(partition).map_or(Epoch::ZERO, |(epoch, _)| *epoch).max(record.epoch);
        let table = merged.tables.get(&record.table).map_or(String::new(), |table| table.name.clone());
        let sealed = seals::seal(record, highest, table, merged, order, cluster.next_failover);
        assert_eq!(sealed.record.validate(), Ok(()), "R1: a seal must be a sound record");
        let beyond = sealed.record.epoch > highest && !sealed.record.in_sync.is_empty();
        assert!(beyond, "PR-107: {partition} would go on in an epoch that was there");
        entries.push((Key::Failover(cluster.next_failover), json(&sealed.failover)));
        entries.push((Key::Partition(*partition), json(&sealed.record)));
        cluster.next_failover += 1;
        partitions.push(sealed);
    }
    for table in merged.tables.values() {
        let mut table = table.clone();
        if !table.is_database() {
            // Partitions may have indexes that were wanted in records of which nobody here has heard. Below
            // the next number they are not wanted any more, and no other index is given theirs (PR-350).
            let beyond = table.indexes.last.saturating_add((1 + unheard).saturating_mul(SKIPPED_INDEXES));
            table.indexes.last = beyond.max(order.generation.0 as u32 * SKIPPED_INDEXES);
        }
        entries.push((Key::Table(table.id), json(&table)));
        entries.push((name_key(table.holds, &table.name), json(&table.id)));
    }
    entries.extend(merged.nodes.values().map(|node| (Key::Node(node.id), json(node))));
    entries.extend(merged.removed.iter().map(|(node, all)| (Key::Removed(*node), json(all))));
    entries.push((Key::Cluster, json(&cluster)));
    let revision = merged.revision + SKIPPED_REVISIONS;
    Rebuilt { entries, revision, missing: merged.missing.iter().copied().collect(), partitions }
}

fn json<T: serde::Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have only text keys")
}

/// Who of these is on a disk that told what it keeps.
fn there<'a>(
    members: impl IntoIterator<Item = &'a Member>,
    merged: &'a Merged,
) -> impl Iterator<Item = Member> + 'a
where
    <Vec<Member> as IntoIterator>::IntoIter: 'a,
{
    let members: Vec<Member> = members.into_iter().copied().collect();
    members.into_iter().filter(|member| merged.told.contains(&(member.node, member.store)))
}

/// The last partition of a table, plus one.
fn end_of(table: &TableRecord) -> u32 {
    table.first_partition.0 + table.partitions
}
