//! Clients, servers, the manager and a store, a step at a time: nothing happens by itself, and there is no
//! clock. So a test says in which order things come to pass. A store that takes commits in order is told for
//! each part which one comes before it in its region; one that needs no order does not look.

use crate::store::{Refused, Reopening, Sender, Servers, Tenure};
use crate::suite::TABLE;
use crate::tracking::Rules;
use crate::tracking::client::ClientTracker;
use crate::tracking::manager::{Aborted, ClientId, Logged, Manager};
use crate::tracking::server::ServerTracker;
use crate::unordered::Unordered;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{NodeId, PartitionId, Position};
use wire::commit::PartitionWrites;
use wire::request::TablePart;
use wire::{Flush, RowOp};

/// How often a flush is tried where that has a limit.
const TRIES: u32 = 3;
/// How often everybody does what is to be done, at least, until everybody is well.
const ROUNDS: usize = 4;

/// A client.
#[derive(Clone, Debug)]
struct Client {
    tracker: ClientTracker,
    /// Its newest commit.
    own: Position,
    /// Parts of its commits that are to be brought to regions, and how often that was tried.
    flushes: VecDeque<(Position, PartitionWrites, u32)>,
}

/// A server's regions that are replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    node: NodeId,
    /// T_P^r(s) of the server that has failed.
    threshold: Position,
    left: VecDeque<(Reopening, VecDeque<(Position, PartitionWrites)>)>,
}

/// A row that was committed, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The commit.
    pub commit: Position,
    /// The region.
    pub region: PartitionId,
    /// The row.
    pub key: &'static str,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct World<S = Unordered> {
    rules: Rules,
    /// The transaction manager and the recovery manager.
    pub manager: Manager,
    /// The store.
    pub store: S,
    clients: BTreeMap<ClientId, Client>,
    servers: BTreeMap<NodeId, ServerTracker>,
    /// What is flushed for clients that have failed, and that some region has not taken yet.
    owed: Vec<(ClientId, Position, Logged)>,
    /// Clients that have failed and for whom not everything was flushed yet.
    failed: BTreeSet<ClientId>,
    /// Every commit that was acknowledged.
    acknowledged: Vec<(Position, PartitionId, &'static str)>,
    /// The newest commit with a part in each region.
    newest: BTreeMap<PartitionId, Position>,
    /// For each part the commit before it in its region.
    previous: BTreeMap<(PartitionId, Position), Position>,
    next_client: u64,
}

/// A row that a transaction writes: its region and its key.
pub type Written = (PartitionId, &'static str);

impl<S: Servers> World<S> {
    /// A world with this store, all of whose nodes are registered.
    pub fn new(rules: Rules, store: S, nodes: &[NodeId]) -> World<S> {
        let mut world = World {
            rules,
            manager: Manager::new(rules),
            store,
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
            owed: Vec::new(),
            failed: BTreeSet::new(),
            acknowledged: Vec::new(),
            newest: BTreeMap::new(),
            previous: BTreeMap::new(),
            next_client: 1,
        };
        nodes.iter().for_each(|node| world.start_server(*node));
        for region in world.store.regions() {
            world.manager.region_reopens(region, Position::ZERO);
        }
        world
    }

    /// A server starts, or starts again.
    pub fn start_server(&mut self, node: NodeId) {
        let flushed_by_all = self.manager.register_server(node);
        self.servers.insert(node, ServerTracker::start(flushed_by_all));
    }

    /// A client comes.
    pub fn start_client(&mut self) -> ClientId {
        let id = ClientId(self.next_client);
        self.next_client += 1;
        let flushed_by_all = self.manager.register(id);
        let tracker = ClientTracker::start(flushed_by_all);
        self.clients.insert(id, Client { tracker, own: Position::ZERO, flushes: VecDeque::new() });
        id
    }

    /// Begins a transaction: the snapshot that it reads, T_F*. None: the client is to wait.
    pub fn begin(&mut self, client: ClientId) -> Option<Position> {
        let snapshot = self.manager.flushed_by_all();
        let own = self.clients[&client].own;
        (snapshot >= own || !self.rules.begin_waits).then_some(snapshot)
    }

    /// The manager commits a transaction. Its answer is on its way: [`World::told`].
    pub fn commit(
        &mut self,
        client: ClientId,
        snapshot: Position,
        rows: &[Written],
    ) -> Result<Position, Aborted> {
        let mut writes: BTreeMap<PartitionId, Vec<RowOp>> = BTreeMap::new();
        for (region, key) in rows {
            let put = RowOp::Put { key: Bytes::from_static(key.as_bytes()), row: Bytes::new() };
            writes.entry(*region).or_default().push(put);
        }
        let part = |(partition, ops)| {
            let parts = vec![TablePart { table: TABLE, schema: 1, ops, seen: Vec::new() }];
            PartitionWrites { partition, parts }
        };
        let regions: Vec<PartitionId> = writes.keys().copied().collect();
        let at = self.manager.commit(client, snapshot, writes.into_iter().map(part).collect())?;
        for region in regions {
            let before = self.newest.insert(region, at).unwrap_or(Position::ZERO);
            self.previous.insert((region, at), before);
        }
        self.acknowledged.extend(rows.iter().map(|(region, key)| (at, *region, *key)));
        Ok(at)
    }

    /// The client is told that its transaction is committed.
    pub fn told(&mut self, id: ClientId, at: Position) {
        let writes = self.manager.log().get(&at).map(|logged| logged.writes.clone()).unwrap_or_default();
        let client = self.clients.get_mut(&id).expect("a client");
        client.tracker.committed(at);
        client.own = client.own.max(at);
        client.flushes.extend(writes.into_iter().map(|part| (at, part, 0)));
    }

    /// Both, and nothing between.
    pub fn transact(&mut self, client: ClientId, rows: &[Written]) -> Result<Position, Aborted> {
        let snapshot = self.begin(client).unwrap_or(self.manager.flushed_by_all());
        let at = self.commit(client, snapshot, rows)?;
        self.told(client, at);
        Ok(at)
    }

    /// A client hears of the newest commit.
    pub fn hears(&mut self, client: ClientId) {
        let last = self.manager.last();
        self.clients.get_mut(&client).expect("a client").tracker.heard(last);
    }

    /// A client brings all that it can to the regions.
    pub fn flush(&mut self, id: ClientId) {
        for _ in 0..self.clients[&id].flushes.len() {
            self.flush_one(id, None);
        }
    }

    /// A client brings the next part to its region: or to a node that had it, which it takes for the
    /// region's.
    pub fn flush_one(&mut self, id: ClientId, old: Option<(NodeId, Tenure)>) {
        let client = self.clients.get_mut(&id).expect("a client");
        let Some((at, part, tries)) = client.flushes.pop_front() else { return };
        let region = part.partition;
        let flush = flush_of(&self.previous, at, &part);
        let taken = match old {
            Some((node, tenure)) => self.store.put_to_old(node, region, tenure, &flush),
            None => self.store.put(region, &flush, Sender::Client),
        };
        let newest = self.store.tenure(region);
        let counts = taken.as_ref().is_ok_and(|by| *by == newest || !self.rules.flushes_name_tenures);
        if counts {
            let last = !client.flushes.iter().any(|(of, ..)| *of == at);
            if last {
                client.tracker.flushed(at);
            }
            if old.is_none() {
                let node = self.store.leader(region);
                self.servers.get_mut(&node).expect("a server").received(at, region);
            }
        } else if self.rules.flushes_are_tried_again || tries + 1 < TRIES {
            client.flushes.push_back((at, part, tries + 1));
        }
    }

    /// A client sends a heartbeat.
    pub fn client_heartbeat(&mut self, id: ClientId) {
        let heartbeat = self.clients.get_mut(&id).expect("a client").tracker.heartbeat(self.rules);
        self.manager.client_heartbeat(id, &heartbeat);
    }

    /// A client ends in good order: a heartbeat, and it unregisters.
    pub fn stop_client(&mut self, id: ClientId) {
        self.client_heartbeat(id);
        let left = self.manager.unregister(id);
        self.clients.remove(&id);
        self.flush_for(id, left);
    }

    /// The manager misses a client's heartbeats, and replays what it had. Whether the client knows is another
    /// question.
    pub fn client_failed(&mut self, id: ClientId) {
        let left = self.manager.client_failed(id);
        self.failed.insert(id);
        self.flush_for(id, left);
    }

    /// Of a client that has failed nothing is left.
    pub fn end_client(&mut self, id: ClientId) {
        self.clients.remove(&id);
    }

    /// A client has failed, and what it had is replayed.
    pub fn kill_client(&mut self, id: ClientId) {
        self.end_client(id);
        self.client_failed(id);
    }

    /// Flushes for a client what it has left, as far as regions take it: the rest is owed.
    fn flush_for(&mut self, id: ClientId, left: Vec<(Position, Logged)>) {
        self.owed.extend(left.into_iter().map(|(at, logged)| (id, at, logged)));
        self.pay();
    }

    /// What is owed is tried again.
    fn pay(&mut self) {
        for (id, at, logged) in std::mem::take(&mut self.owed) {
            let mut taken = true;
            for part in &logged.writes {
                let region = part.partition;
                if self.store.put(region, &flush_of(&self.previous, at, part), Sender::Client).is_err() {
                    taken = false;
                    continue;
                }
                let node = self.store.leader(region);
                self.servers.get_mut(&node).expect("a server").received(at, region);
            }
            match taken {
                true => self.manager.client_replayed(id, &[at]),
                false => self.owed.push((id, at, logged)),
            }
        }
        let owing: BTreeSet<ClientId> = self.owed.iter().map(|(id, ..)| *id).collect();
        for id in self.failed.extract_if(.., |id| !owing.contains(id)) {
            self.manager.client_gone(id);
        }
    }

    /// A server sends a heartbeat: it persists what it has received.
    pub fn server_heartbeat(&mut self, node: NodeId) {
        let flushed_by_all = self.manager.flushed_by_all();
        let server = self.servers.get_mut(&node).expect("a server");
        let mut regions = server.to_persist();
        if self.rules.thresholds_of_regions {
            // Idle regions have a threshold, too.
            regions.extend(self.store.regions_of(node));
        }
        let own = regions.into_iter().filter(|region| self.store.leader(*region) == node);
        let own: Vec<PartitionId> = own.collect();
        let threshold = |store: &mut S, region| Some((region, store.persist(region, flushed_by_all).ok()?));
        let thresholds: Vec<_> =
            own.into_iter().filter_map(|region| threshold(&mut self.store, region)).collect();
        let persisted = self.servers.get_mut(&node).expect("a server").persisted(flushed_by_all);
        self.manager.server_heartbeat(node, persisted, &thresholds);
    }

    /// A server ends, and with `disk` its disk. What of its regions is to be replayed.
    pub fn server_failed(&mut self, node: NodeId, disk: bool) -> Replay {
        self.store.end(node, disk);
        self.servers.remove(&node);
        self.deposed(node)
    }

    /// Everybody takes a server for failed.
    pub fn server_deposed(&mut self, node: NodeId) -> Replay {
        self.store.depose(node);
        self.deposed(node)
    }

    fn deposed(&mut self, node: NodeId) -> Replay {
        let threshold = self.manager.server_failed(node);
        let mut left = VecDeque::new();
        for one in self.store.reopening() {
            if self.rules.thresholds_of_regions {
                self.manager.region_reopens(one.region, one.persisted);
            }
            let above = if self.rules.thresholds_of_regions { one.persisted } else { threshold };
            left.push_back((one, self.manager.fetch(above, one.region).into()));
        }
        Replay { node, threshold, left }
    }

    /// The next write-set is replayed, or the next region opened. False: nothing is left.
    pub fn replay_one(&mut self, replay: &mut Replay) -> bool {
        let Some((reopening, commits)) = replay.left.front_mut() else {
            self.manager.server_replayed(replay.node);
            return false;
        };
        let region = reopening.region;
        let node = self.store.leader(region);
        match commits.pop_front() {
            Some((at, part)) => {
                let flush = flush_of(&self.previous, at, &part);
                let taken = self.store.put(region, &flush, Sender::Recovery(reopening.tenure));
                if taken == Err(Refused::Deposed) {
                    replay.left.pop_front();
                    return true;
                }
                if taken.is_err() {
                    // It names a part that nobody has any more: what is missing is found at the end.
                    return true;
                }
                let server = self.servers.get_mut(&node).expect("a server");
                if server.replayed(at, region, replay.threshold) {
                    self.server_heartbeat(node);
                }
            }
            None => {
                let reopening = *reopening;
                replay.left.pop_front();
                // Somebody else may have it by now: then it is another's to open.
                let _ = self.store.open(&reopening);
            }
        }
        true
    }

    /// All of it is.
    pub fn replay(&mut self, mut replay: Replay) {
        while self.replay_one(&mut replay) {}
    }

    /// A server fails, and its regions are replayed and opened.
    pub fn kill_server(&mut self, node: NodeId, disk: bool) {
        let replay = self.server_failed(node, disk);
        self.replay(replay);
    }

    /// Another manager takes over.
    pub fn replace_manager(&mut self) {
        // Whoever paid for others is gone, too: what the log has is taken for unflushed.
        self.owed.clear();
        for (at, logged) in self.manager.replaced() {
            self.flush_for(logged.client, vec![(at, logged)]);
        }
    }

    /// What is still to be brought to regions.
    fn left(&self) -> usize {
        self.owed.len() + self.clients.values().map(|client| client.flushes.len()).sum::<usize>()
    }

    /// Everybody who is there does what is to be done, until nothing changes any more. Where parts come in
    /// order a client may wait for another one's.
    pub fn settle(&mut self) {
        let mut round = 0;
        let mut before = usize::MAX;
        while round < ROUNDS || self.left() < before {
            (before, round) = (self.left(), round + 1);
            self.pay();
            let clients: Vec<_> = self.clients.keys().copied().collect();
            for client in clients {
                self.flush(client);
                self.client_heartbeat(client);
            }
            let servers: Vec<_> = self.servers.keys().copied().collect();
            servers.into_iter().for_each(|server| self.server_heartbeat(server));
        }
    }

    /// True if the row has a version of this commit, as of the newest timestamp.
    pub fn reads(&mut self, (region, key): Written, at: Position) -> bool {
        let key = Bytes::from_static(key.as_bytes());
        self.store.versions(region, (TABLE, &key)).contains(&at)
    }

    /// What was acknowledged and is not in its region.
    pub fn missing(&mut self) -> Vec<Missing> {
        let acknowledged = self.acknowledged.clone();
        let gone = acknowledged.into_iter().filter(|(at, region, key)| !self.reads((*region, key), *at));
        gone.map(|(commit, region, key)| Missing { commit, region, key }).collect()
    }
}

fn flush_of(
    previous: &BTreeMap<(PartitionId, Position), Position>,
    at: Position,
    part: &PartitionWrites,
) -> Flush {
    let previous = previous.get(&(part.partition, at)).copied().unwrap_or(Position::ZERO);
    Flush { commit: at, previous, parts: part.told() }
}
