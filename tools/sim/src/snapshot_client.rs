//! A client that takes points over all partitions, as a backup does, with the code that backups use
//! ([`replica::ClusterSnapshot`]).

use crate::check::cluster_snapshots::CompleteSnapshot;
use crate::client::ClientEffect;
use crate::network::Conn;
use crate::plan::RunPlan;
use crate::random::Stream;
use replica::cluster_snapshot::{Ask, ClusterSnapshot, Found};
use std::collections::BTreeMap;
use types::{PartitionId, Rules, TableId};
use wire::{Op, Reply, Request, Status};

/// An attempt without an answer is given up after this.
const ATTEMPT: u64 = 300_000;
/// A search that has not come to an end is given up after this.
const WAIT_LIMIT_US: u64 = 1_500_000;

/// What a partition is being asked.
#[derive(Clone, Debug)]
struct Asked {
    ask: Ask,
    /// The attempt on its way: request, since when.
    flight: Option<(u64, u64)>,
    retry_at: u64,
    turn: u32,
}

#[derive(Clone, Debug)]
struct Search {
    began: u64,
    cluster_snapshot: ClusterSnapshot,
    open: BTreeMap<PartitionId, Asked>,
}

/// The taker. Has one connection per node.
pub struct SnapshotClient {
    id: u32,
    nodes: u32,
    random: Stream,
    rules: Rules,
    tables: BTreeMap<PartitionId, TableId>,
    links: BTreeMap<u32, Option<Conn>>,
    requests: BTreeMap<u64, PartitionId>,
    next_request: u64,
    next_at: u64,
    search: Option<Search>,
    taken: Vec<CompleteSnapshot>,
}

impl SnapshotClient {
    /// A taker of points over the plan's tables, with the name of a client.
    pub fn new(id: u32, random: Stream, plan: &RunPlan, rules: Rules) -> SnapshotClient {
        let tables = plan.partitions().map(|(partition, number, _)| (partition, number)).collect();
        SnapshotClient {
            id,
            nodes: plan.all_nodes(),
            random,
            rules,
            tables,
            links: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_request: 0,
            next_at: 0,
            search: None,
            taken: Vec::new(),
        }
    }

    /// The points found.
    pub fn taken(&self) -> &[CompleteSnapshot] {
        &self.taken
    }

    /// A connection was made, or not, or broke.
    pub fn linked(&mut self, node: u32, conn: Option<Conn>) {
        match conn {
            Some(conn) => drop(self.links.insert(node, Some(conn))),
            None => {
                self.links.remove(&node);
                for asked in self.search.iter_mut().flat_map(|search| search.open.values_mut()) {
                    asked.turn += 1;
                    asked.flight = None;
                }
            }
        }
    }

    /// Does what is due. Nothing new is begun unless `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        if self.search.is_none() && goes_on && now >= self.next_at {
            let cluster_snapshot = ClusterSnapshot::new(self.tables.keys().copied(), self.rules);
            self.search = Some(Search { began: now, cluster_snapshot, open: BTreeMap::new() });
            self.requests.clear();
        }
        let Some(mut search) = self.search.take() else { return Vec::new() };
        if now >= search.began + WAIT_LIMIT_US {
            search.cluster_snapshot.give_up("not in time");
        }
        for ask in search.cluster_snapshot.asks() {
            let (Ask::Pause(partition) | Ask::Resume(partition, _)) = ask;
            let asked = Asked { ask, flight: None, retry_at: now, turn: 0 };
            search.open.insert(partition, asked);
        }
        let mut wants = Vec::new();
        for (partition, asked) in &mut search.open {
            self.try_send(now, *partition, asked, &mut wants);
        }
        match search.cluster_snapshot.found() {
            Found::NotYet => self.search = Some(search),
            Found::ClusterSnapshot(at) => {
                self.taken.push(CompleteSnapshot { began: search.began, at });
                self.next_at = now + self.random.between(100_000, 700_000);
            }
            // Whoever is held was asked to go on, once. Else it does so by itself.
            Found::Void(_) => self.next_at = now + self.random.between(100_000, 700_000),
        }
        wants
    }

    fn try_send(
        &mut self,
        now: u64,
        partition: PartitionId,
        asked: &mut Asked,
        wants: &mut Vec<ClientEffect>,
    ) {
        if asked.flight.is_some_and(|(_, since)| now >= since + ATTEMPT) {
            asked.flight = None;
            asked.turn += 1;
        }
        if asked.flight.is_some() || now < asked.retry_at {
            return;
        }
        let node = 1 + (partition.0 + asked.turn) % self.nodes;
        match self.links.get(&node) {
            Some(Some(conn)) => {
                self.next_request += 1;
                let id = u64::from(self.id) << 32 | self.next_request;
                self.requests.insert(id, partition);
                asked.flight = Some((id, now));
                wants.push(ClientEffect::Send(*conn, Box::new(self.request(id, partition, asked.ask))));
            }
            Some(None) => {}
            None => {
                self.links.insert(node, None);
                wants.push(ClientEffect::Dial(node, 0));
            }
        }
    }

    fn request(&self, id: u64, partition: PartitionId, ask: Ask) -> Request {
        let op = match ask {
            Ask::Pause(_) => Op::Pause { for_ms: 2_000 },
            Ask::Resume(_, at) => Op::Resume { at },
        };
        Request { id, trace: id, ..Request::new(self.tables[&partition], 1, partition, op) }
    }

    /// A reply came. An answer to an earlier attempt at the same question is as good as one to the last.
    pub fn hear(&mut self, now: u64, reply: &Reply) {
        let Some(partition) = self.requests.remove(&reply.id) else { return };
        let wait = self.random.between(5_000, 40_000);
        let Some(search) = &mut self.search else { return };
        let Some(asked) = search.open.get_mut(&partition) else { return };
        match &reply.status {
            Status::Ok => {
                search.open.remove(&partition);
                search.cluster_snapshot.heard(partition, Ok(reply.position()));
                // What is still on its way was asked before: it is no answer to what comes next.
                self.requests.retain(|_, of| *of != partition);
            }
            Status::TooOld(why) => search.cluster_snapshot.heard(partition, Err(why.clone())),
            _ => {
                asked.flight = None;
                asked.retry_at = now + wait;
                asked.turn += u32::from(!matches!(reply.status, Status::NotYet(_)));
            }
        }
    }
}
