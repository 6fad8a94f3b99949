//! `scrub`: every replica reads its own files back, replicas of a partition are compared at one position, and
//! what is damaged is repaired if that is asked for.

use crate::failure::Failure;
use crate::load::Watcher;
use client::{Client, ClientError, FailKind, LaneId, Outcome, Table, Ticket};
use input::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::policy::Standby;
use types::{Lsn, Member, Micros, NodeId, PartitionId};
use wire::control::AdminCommand;
use wire::request::ReadSnapshot;
use wire::scrub::Scrubbed;
use wire::{Body, Op, ReadLevel};

/// Between two questions how far a replica is.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// A node that does not answer for so long is left out.
const ANSWER: Duration = Duration::from_secs(15);
/// How long copies may take to come to the position at which they are compared, and to read all rows.
const COMPARE: Duration = Duration::from_secs(120);

/// What is to be scrubbed.
#[derive(Clone, Debug)]
pub struct ScrubPlan {
    /// Only this table; `None`: all, the cluster's own too.
    pub table: Option<String>,
    /// Damaged replicas fetch good data.
    pub repair: bool,
    /// How long each may take for it.
    pub repair_within: Duration,
}

/// Damage that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// On this node.
    pub node: NodeId,
    /// In this partition.
    pub partition: PartitionId,
    /// Of this table.
    pub table: String,
    /// Which file: `component 7`, `log`, or `rows` where replicas differ.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
    /// The replica has fetched good data.
    pub repaired: bool,
    /// Why it was not repaired, if that was asked for.
    pub kept: String,
}

/// A replica that did not answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unread {
    /// On this node.
    pub node: NodeId,
    /// Of this partition.
    pub partition: PartitionId,
    /// Why.
    pub why: String,
}

/// How a scrubbing ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ScrubReport {
    /// Partitions.
    pub partitions: u64,
    /// Replicas that were read.
    pub replicas: u64,
    /// Their component files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Entries of logs that were read back.
    pub entries: u64,
    /// Replicas whose rows were compared with those of others at one LSN.
    pub compared: u64,
    /// Damage.
    pub damage: Vec<Found>,
    /// Replicas that were not read.
    pub unread: Vec<Unread>,
}

type Replica = (PartitionId, NodeId);

/// Scrubs, and repairs.
pub fn run(client: &mut Client, plan: &ScrubPlan, watcher: &mut dyn Watcher) -> Result<ScrubReport, Failure> {
    let tables = tables(client, plan)?;
    let lane = client.new_lane();
    let mut work = Work { client, lane, tables, report: ScrubReport::default(), watcher };
    let replicas = work.replicas();
    work.report.partitions = work.tables.len() as u64;
    work.read(&replicas)?;
    let partitions: Vec<PartitionId> = work.tables.keys().copied().collect();
    for partition in partitions {
        work.compare(partition)?;
    }
    if plan.repair {
        work.repair(plan.repair_within)?;
    }
    Ok(work.report)
}

fn tables(client: &mut Client, plan: &ScrubPlan) -> Result<BTreeMap<PartitionId, Table>, Failure> {
    let tables: Vec<Table> = match &plan.table {
        Some(name) => vec![client.table(name)?],
        None => client.cluster_map().owners().cloned().map(Table::new).collect(),
    };
    let parts = |table: &Table| -> Vec<_> { table.partitions().map(|part| (part, table.clone())).collect() };
    Ok(tables.iter().flat_map(parts).collect())
}

struct Work<'a> {
    client: &'a mut Client,
    lane: LaneId,
    tables: BTreeMap<PartitionId, Table>,
    report: ScrubReport,
    watcher: &'a mut dyn Watcher,
}

impl Work<'_> {
    fn members(&self, partition: PartitionId) -> Vec<Member> {
        let record = self.client.cluster_map().partition(partition);
        record.map_or_else(Vec::new, |record| record.in_sync.clone())
    }

    fn replicas(&self) -> Vec<Replica> {
        let of = |partition: &PartitionId| {
            let members = self.members(*partition);
            members.into_iter().map(|member| (*partition, member.node)).collect::<Vec<_>>()
        };
        self.tables.keys().flat_map(of).collect()
    }

    fn submit(&mut self, (partition, node): Replica, op: Op, within: Duration) -> Ticket {
        let read = ReadLevel::Any { max_lag_ms: 600_000, min_lsn: Lsn::ZERO };
        let call = self.tables[&partition].call(partition, op).at_node(node).at_level(read);
        self.client.submit(self.lane, call.within(micros(within)))
    }

    fn ask(&mut self, replica: Replica, op: Op, within: Duration) -> Result<Body, ClientError> {
        let ticket = self.submit(replica, op, within);
        Ok(self.client.wait_for(ticket)?.outcome.into_result()?.body)
    }

    fn scrubbed(&mut self, replica: Replica, start: bool) -> Result<Scrubbed, ClientError> {
        match self.ask(replica, Op::Scrub { start }, ANSWER)? {
            Body::Scrubbed(scrubbed) => Ok(scrubbed),
            other => Err(ClientError::Protocol(format!("{other:?}"))),
        }
    }

    fn found(&mut self, (partition, node): Replica, file: &str, what: &str) {
        let table = self.tables[&partition].name().to_string();
        let (file, what) = (file.to_string(), what.to_string());
        let (repaired, kept) = (false, String::new());
        self.report.damage.push(Found { node, partition, table, file, what, repaired, kept });
    }

    /// All replicas read their files and logs, each node all of its own at once.
    fn read(&mut self, replicas: &[Replica]) -> Result<(), Failure> {
        self.watcher.phase("reading", None);
        let mut running: BTreeMap<Replica, Scrubbed> = BTreeMap::new();
        for replica in replicas {
            match self.scrubbed(*replica, true) {
                Ok(scrubbed) => drop(running.insert(*replica, scrubbed)),
                Err(error) => self.not_read(*replica, error),
            }
        }
        let progress = Progress::new(None);
        self.watcher.phase("reading", Some(progress.clone()));
        let mut ended: BTreeMap<Replica, Scrubbed> = BTreeMap::new();
        while !running.is_empty() {
            if self.watcher.stopped() {
                return Err(Failure::failed("stopped; nodes read on by themselves"));
            }
            self.pause(POLL_INTERVAL)?;
            for (replica, before) in std::mem::take(&mut running) {
                match self.scrubbed(replica, false) {
                    Ok(now) => {
                        progress.add(now.bytes.1.saturating_sub(before.bytes.1));
                        if now.running {
                            running.insert(replica, now)
                        } else {
                            ended.insert(replica, now)
                        };
                    }
                    Err(error) => self.not_read(replica, error),
                }
            }
            self.watcher.rows(ended.len() as u64);
        }
        for (replica, scrubbed) in ended {
            self.report.replicas += 1;
            self.report.files += u64::from(scrubbed.files.1);
            self.report.bytes += scrubbed.bytes.1;
            self.report.entries += scrubbed.entries;
            scrubbed.damage.iter().for_each(|damage| self.found(replica, &damage.file, &damage.what));
        }
        Ok(())
    }

    fn not_read(&mut self, (partition, node): Replica, error: ClientError) {
        self.report.unread.push(Unread { node, partition, why: error.to_string() });
    }

    /// Waits, and takes in what the controllers tell meanwhile.
    fn pause(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let _ = self.client.poll(until.saturating_duration_since(Instant::now()))?;
        }
        Ok(())
    }

    /// The replicas of a partition are compared at one position. Where they differ, the one that is alone is
    /// damaged; of two nobody knows which. Whose files were found damaged, and who keeps no state as of its
    /// log's end, is not asked.
    fn compare(&mut self, partition: PartitionId) -> Result<(), Failure> {
        let nodes = self.comparable(partition);
        if nodes.len() < 2 {
            return Ok(());
        }
        // Each keeps what it has committed now: what the primary has a moment later is then kept by all until
        // it is read.
        let hold = || Op::Hold { at: ReadSnapshot::Begin };
        let holds: Vec<_> =
            nodes.iter().map(|node| self.submit((partition, *node), hold(), ANSWER)).collect();
        for ticket in holds {
            let _ = self.client.wait_for(ticket)?;
        }
        let call = self.tables[&partition].call(partition, hold());
        let at = match self.client.call(call.within(micros(ANSWER))) {
            Ok(answer) => answer.snapshot(),
            Err(error) => {
                self.not_read((partition, nodes[0]), error);
                return Ok(());
            }
        };
        // All at once: each keeps the versions that it reads as long as it reads.
        let op = || Op::DigestAt { at };
        let asked: Vec<_> =
            nodes.iter().map(|node| (*node, self.submit((partition, *node), op(), COMPARE))).collect();
        let mut digests: Vec<(NodeId, u64)> = Vec::new();
        for (node, ticket) in asked {
            match self.client.wait_for(ticket)?.outcome {
                Outcome::Failed(FailKind::Corrupt, why) => {
                    self.found((partition, node), "rows", &format!("they cannot be read: {why}"));
                }
                outcome => match outcome.into_result().map(|answer| answer.number()) {
                    Ok(Some(digest)) => digests.push((node, digest)),
                    Ok(None) => {
                        let why = "the answer is no digest".to_string();
                        self.not_read((partition, node), ClientError::Protocol(why));
                    }
                    Err(error) => self.not_read((partition, node), error),
                },
            }
        }
        self.report.compared += digests.len() as u64;
        for (node, what) in differing(&digests) {
            self.found((partition, node), "rows", &format!("at LSN {} {what}", at.lsn));
        }
        Ok(())
    }

    /// The replicas of a partition that can be asked for a digest.
    fn comparable(&self, partition: PartitionId) -> Vec<NodeId> {
        let Some(record) = self.client.cluster_map().partition(partition) else { return Vec::new() };
        let left_out = |node: NodeId| {
            let damaged =
                self.report.damage.iter().any(|found| (found.partition, found.node) == (partition, node));
            damaged || self.is_unread((partition, node))
        };
        let cold = |member: &Member| record.policy.standby == Standby::Cold && *member != record.primary;
        let asked = record.in_sync.iter().filter(|member| !cold(member) && !left_out(member.node));
        asked.map(|member| member.node).collect()
    }

    fn is_unread(&self, replica: Replica) -> bool {
        self.report.unread.iter().any(|unread| (unread.partition, unread.node) == replica)
    }

    /// One damaged replica after the other gives itself up and is sent a copy.
    fn repair(&mut self, within: Duration) -> Result<(), Failure> {
        let damaged: std::collections::BTreeSet<Replica> =
            self.report.damage.iter().map(|found| (found.partition, found.node)).collect();
        for replica in &damaged {
            self.watcher.say(&format!("repairs {} on {}", replica.0, replica.1));
            let good: Vec<NodeId> = self.members(replica.0).iter().map(|member| member.node).collect();
            let good: Vec<NodeId> = good
                .into_iter()
                .filter(|node| !damaged.contains(&(replica.0, *node)) && !self.is_unread((replica.0, *node)))
                .collect();
            let outcome = match good.is_empty() {
                false => self.renew(*replica, &good, within),
                true => Err("no other replica is known to be good".to_string()),
            };
            let found = self.report.damage.iter_mut().filter(|f| (f.partition, f.node) == *replica);
            for found in found {
                match &outcome {
                    Ok(()) => found.repaired = true,
                    Err(why) => found.kept.clone_from(why),
                }
            }
        }
        Ok(())
    }

    /// Replaces a replica's data. The copy comes from the primary, so one of `good` leads before anything is
    /// given up.
    fn renew(&mut self, replica: Replica, good: &[NodeId], within: Duration) -> Result<(), String> {
        let (partition, node) = replica;
        let until = Instant::now() + within;
        let text = |error: ClientError| error.to_string();
        let late = || "not in time; it may be repaired later".to_string();
        let primary = self.client.cluster_map().primary(partition);
        let source = primary.filter(|primary| good.contains(primary)).unwrap_or(good[0]);
        if primary != Some(source) {
            let command = AdminCommand::Switchover { partition: Some(partition), to: Some(source) };
            self.client.admin(command).map_err(text)?;
            while self.client.cluster_map().primary(partition) != Some(source) {
                if Instant::now() >= until {
                    return Err(late());
                }
                self.pause(POLL_INTERVAL).map_err(|failure| failure.sentence)?;
            }
        }
        let why = "a scrubbing found it damaged".to_string();
        self.ask(replica, Op::GiveUp { source, why }, ANSWER).map_err(text)?;
        loop {
            self.pause(POLL_INTERVAL).map_err(|failure| failure.sentence)?;
            let member = self.members(partition).iter().any(|member| member.node == node);
            if member && self.is_sound(replica, until) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(late());
            }
        }
    }

    /// Reads a replica once more.
    fn is_sound(&mut self, replica: Replica, until: Instant) -> bool {
        let mut scrubbed = self.scrubbed(replica, true);
        while matches!(&scrubbed, Ok(scrubbed) if scrubbed.running) && Instant::now() < until {
            if self.pause(POLL_INTERVAL).is_err() {
                return false;
            }
            scrubbed = self.scrubbed(replica, false);
        }
        scrubbed.is_ok_and(|scrubbed| !scrubbed.running && scrubbed.damage.is_empty())
    }
}

fn micros(time: Duration) -> Micros {
    Micros(time.as_micros() as u64)
}

/// Who differs from the others, and how that is said.
fn differing(digests: &[(NodeId, u64)]) -> Vec<(NodeId, String)> {
    let alike = |digest: u64| digests.iter().filter(|(_, other)| *other == digest).count();
    let Some(most) = digests.iter().map(|(_, digest)| alike(*digest)).max() else { return Vec::new() };
    if most == digests.len() {
        return Vec::new();
    }
    let differ = |(node, digest): &(NodeId, u64)| {
        let others = alike(*digest);
        let what = match others * 2 > digests.len() {
            true => return None,
            false if most * 2 > digests.len() => "its rows are not those of the others",
            false => "its rows are not those of another replica; nobody knows whose are right",
        };
        Some((*node, what.to_string()))
    };
    digests.iter().filter_map(differ).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_alone_is_named() {
        let of = |digests: &[u64]| -> Vec<u32> {
            let digests: Vec<_> = (1..).map(NodeId).zip(digests.iter().copied()).collect();
            differing(&digests).into_iter().map(|(node, _)| node.0).collect()
        };
        assert!(of(&[]).is_empty() && of(&[7]).is_empty() && of(&[7, 7, 7]).is_empty());
        assert_eq!(of(&[7, 8, 7]), [2]);
        assert_eq!(of(&[7, 8]), [1, 2]);
        assert_eq!(of(&[7, 8, 9]), [1, 2, 3]);
    }
}
