//! Taking a point: the code that the simulator checks ([`replica::ClusterSnapshot`]), with real calls.

use crate::failure::{Failure, Status};
use client::{Client, Database, LaneId, Table, Ticket};
use replica::ClusterSnapshot;
use replica::cluster_snapshot::{Ask, Found};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use types::{Lsn, Micros, NodeId, PartitionId, Position, Rules};
use wire::request::ReadSnapshot;
use wire::{Op, ReadLevel};

/// How long partitions are asked to be held; they go on by themselves after it.
const HOLD: Duration = Duration::from_secs(2);
/// A search is given up when it took so long: the first that was held is about to go on.
const WAIT_LIMIT: Duration = Duration::from_millis(1_500);
/// How long copies may take to say that they keep the state too.
const COPIES: Duration = Duration::from_millis(150);
/// Searches before it is given up.
const ATTEMPTS: u32 = 8;
/// Between two searches: a partition rests before it is held again.
const REST: Duration = Duration::from_millis(700);

/// A point over partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotPositions {
    /// Where each partition stood.
    pub at: BTreeMap<PartitionId, Position>,
    /// How long acknowledgements were held back, at most.
    pub held: Duration,
    /// Milliseconds since 1970 when all were held, by this machine's clock.
    pub wall_ms: u64,
    /// Searches that were void before it.
    pub void: u32,
}

/// Partitions with their tables.
pub type Parts = BTreeMap<PartitionId, Table>;

/// Looks for a point over these partitions, several times if need be. Databases whose transactions are global
/// are read at a snapshot of theirs, taken while all others are held: what was acknowledged before is in it,
/// and what it shows was not made by anybody who had seen more of the others. Calls `say` with why one was
/// void.
pub fn take(
    client: &mut Client,
    (parts, global): (&Parts, &[Database]),
    say: &mut dyn FnMut(&str),
) -> Result<SnapshotPositions, Failure> {
    let mut why = String::new();
    for void in 0..ATTEMPTS {
        if void > 0 {
            // Ends of calls that nobody waits for any more are taken in on the way.
            let until = Instant::now() + REST * void.min(3);
            while Instant::now() < until {
                let _ = client.poll(until.saturating_duration_since(Instant::now()))?;
            }
        }
        match search(client, (parts, global))? {
            Ok((at, held, wall_ms)) => return Ok(SnapshotPositions { at, held, wall_ms, void }),
            Err(void) => {
                say(&format!("no common point yet: {void}"));
                why = void;
            }
        }
    }
    Err(Failure::new(
        Status::Unreachable,
        format!("the partitions could not be brought to one point in {ATTEMPTS} attempts: {why}; try again"),
    ))
}

type Sought = Result<(BTreeMap<PartitionId, Position>, Duration, u64), String>;

fn search(client: &mut Client, (parts, global): (&Parts, &[Database])) -> Result<Sought, Failure> {
    let lane = client.new_lane();
    let of_global: BTreeSet<PartitionId> = global.iter().flat_map(Database::partitions).collect();
    let held = parts.keys().copied().filter(|partition| !of_global.contains(partition));
    let mut cluster_snapshot = ClusterSnapshot::new(held, Rules::ALL);
    let mut of_snapshots = BTreeMap::new();
    let mut waiting: BTreeMap<Ticket, PartitionId> = BTreeMap::new();
    let begun = Instant::now();
    let mut wall_ms = 0;
    loop {
        if let Some(at) = cluster_snapshot.paused() {
            wall_ms = now_ms();
            for database in global {
                of_snapshots.extend(client.positions_of_snapshot(database)?.1);
            }
            keep_at_copies(client, parts, &at.into_iter().chain(of_snapshots.clone()).collect())?;
        }
        for ask in cluster_snapshot.asks() {
            let (partition, op) = match ask {
                Ask::Pause(partition) => (partition, Op::Pause { for_ms: HOLD.as_millis() as u32 }),
                Ask::Resume(partition, at) => (partition, Op::Resume { at }),
            };
            waiting.insert(submit(client, lane, parts, partition, op, WAIT_LIMIT), partition);
        }
        match cluster_snapshot.found() {
            Found::ClusterSnapshot(at) => {
                let all = at.into_iter().chain(of_snapshots).collect();
                return Ok(Ok((all, begun.elapsed(), wall_ms)));
            }
            Found::Void(why) => {
                // Everybody who is held was asked to go on above; that is sent before anything else is done.
                let _ = client.poll(Duration::ZERO)?;
                return Ok(Err(why));
            }
            Found::NotYet => {}
        }
        let left = WAIT_LIMIT.saturating_sub(begun.elapsed());
        if left.is_zero() {
            cluster_snapshot.give_up("not every partition answered in time");
        }
        for completed in client.poll(left)? {
            let Some(partition) = waiting.remove(&completed.ticket) else { continue };
            let answer = completed.outcome.into_result().map(|answer| answer.position());
            cluster_snapshot.heard(partition, answer.map_err(|error| error.to_string()));
        }
    }
}

/// Asks every in-sync copy to keep the state as well: then a failover does not end the backup. Nothing rests
/// on their answers.
fn keep_at_copies(
    client: &mut Client,
    parts: &Parts,
    at: &BTreeMap<PartitionId, Position>,
) -> Result<(), Failure> {
    let lane = client.new_lane();
    let mut open: Vec<Ticket> = Vec::new();
    for (partition, at) in at {
        open.extend(hold(client, lane, parts, *partition, *at, COPIES));
    }
    let until = Instant::now() + COPIES;
    while !open.is_empty() && Instant::now() < until {
        for completed in client.poll(until.saturating_duration_since(Instant::now()))? {
            open.retain(|ticket| *ticket != completed.ticket);
        }
    }
    Ok(())
}

/// Asks the primary and every in-sync copy of a partition to keep a state's versions for ten seconds more.
pub fn hold(
    client: &mut Client,
    lane: LaneId,
    parts: &Parts,
    partition: PartitionId,
    at: Position,
    within: Duration,
) -> Vec<Ticket> {
    let members: Vec<NodeId> = client
        .cluster_map()
        .partition(partition)
        .map_or_else(Vec::new, |record| record.in_sync.iter().map(|member| member.node).collect());
    let table = &parts[&partition];
    let read = ReadLevel::Any { max_lag_ms: 60_000, min_lsn: Lsn::ZERO };
    let deadline = Micros(within.as_micros() as u64);
    let call = |node| {
        let call = table.call(partition, Op::Hold { at: ReadSnapshot::At(at) });
        call.at_level(read).at_node(node).within(deadline)
    };
    members.into_iter().map(|node| client.submit(lane, call(node))).collect()
}

fn submit(
    client: &mut Client,
    lane: LaneId,
    parts: &Parts,
    partition: PartitionId,
    op: Op,
    within: Duration,
) -> Ticket {
    let call = parts[&partition].call(partition, op);
    client.submit(lane, call.within(Micros(within.as_micros() as u64)))
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
