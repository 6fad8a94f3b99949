//! The transaction manager's log, and algorithms 2 and 4: at the recovery manager.

use super::client::Heartbeat;
use super::{Failed, Idle, Rules};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::{Lsn, NodeId, PartitionId, Position, TableId, Term};
use wire::commit::{PartitionWrites, keys_of};

/// Names a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// A commit as the log has it.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Who has committed it.
    pub client: ClientId,
    /// What it writes, by region.
    pub writes: Vec<PartitionWrites>,
}

/// Why a transaction was not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aborted {
    /// Another one has written one of its keys since its snapshot, or may have.
    Conflict,
    /// Its client was declared dead.
    Fenced,
}

/// The manager. What is in its log survives it; the rest is tables in memory.
#[derive(Clone, Debug)]
pub struct Manager {
    rules: Rules,
    /// The log: write-sets, and up to where they were truncated.
    log: BTreeMap<Position, Logged>,
    truncated: Position,
    /// The thresholds as they were written there last: T_F* and T_P*.
    kept: (Position, Position),
    last: Position,
    /// Last commits of keys.
    keys: BTreeMap<(TableId, Bytes), Position>,
    /// C with T_F^r(c).
    clients: BTreeMap<ClientId, Position>,
    /// FQ of every client, where the manager counts.
    queues: BTreeMap<ClientId, BTreeSet<Position>>,
    /// Who was declared dead.
    fenced: BTreeSet<ClientId>,
    /// S with T_P^r(s).
    servers: BTreeMap<NodeId, Position>,
    /// T_P of every region.
    regions: BTreeMap<PartitionId, Position>,
    /// T_F* and T_P*.
    flushed_by_all: Position,
    persisted_by_all: Position,
}

fn before(at: Position) -> Position {
    Position::new(at.term, Lsn(at.lsn.0.saturating_sub(1)))
}

impl Manager {
    /// A manager with an empty log.
    pub fn new(rules: Rules) -> Manager {
        Manager {
            rules,
            log: BTreeMap::new(),
            truncated: Position::ZERO,
            kept: Default::default(),
            last: Position::ZERO,
            keys: BTreeMap::new(),
            clients: BTreeMap::new(),
            queues: BTreeMap::new(),
            fenced: BTreeSet::new(),
            servers: BTreeMap::new(),
            regions: BTreeMap::new(),
            flushed_by_all: Position::ZERO,
            persisted_by_all: Position::ZERO,
        }
    }

    /// T_F*: every commit up to here has been flushed to all of its regions.
    pub fn flushed_by_all(&self) -> Position {
        self.flushed_by_all
    }

    /// T_P*: every commit up to here is persistent in all of its regions.
    pub fn persisted_by_all(&self) -> Position {
        self.persisted_by_all
    }

    /// The newest commit.
    pub fn last(&self) -> Position {
        self.last
    }

    /// What is kept.
    pub fn log(&self) -> &BTreeMap<Position, Logged> {
        &self.log
    }

    /// Commits a transaction, if no other one has written one of its keys since its snapshot.
    pub fn commit(
        &mut self,
        client: ClientId,
        snapshot: Position,
        writes: Vec<PartitionWrites>,
    ) -> Result<Position, Aborted> {
        if self.fenced.contains(&client) && self.rules.dead_clients_are_fenced {
            return Err(Aborted::Fenced);
        }
        let parts = || writes.iter().flat_map(|writes| keys_of(&writes.parts));
        let later = |(table, key): (TableId, &Bytes)| {
            self.keys.get(&(table, key.clone())).is_some_and(|newest| *newest > snapshot)
        };
        let forgotten = snapshot < self.truncated && self.rules.old_snapshots_commit_nothing;
        if forgotten || parts().any(later) {
            return Err(Aborted::Conflict);
        }
        let at = Position::new(self.last.term.max(Term(1)), Lsn(self.last.lsn.0 + 1));
        self.last = at;
        let written: Vec<_> = parts().map(|(table, key)| (table, key.clone())).collect();
        self.keys.extend(written.into_iter().map(|key| (key, at)));
        self.queues.entry(client).or_default().insert(at);
        self.log.insert(at, Logged { client, writes });
        Ok(at)
    }

    /// On register of a client.
    pub fn register(&mut self, client: ClientId) -> Position {
        self.clients.insert(client, self.flushed_by_all);
        self.flushed_by_all
    }

    /// On unregister of a client: what is to be flushed for it, if that is done.
    pub fn unregister(&mut self, client: ClientId) -> Vec<(Position, Logged)> {
        self.clients.remove(&client);
        let left = if self.rules.leavers_are_flushed_for { self.unflushed(client) } else { Vec::new() };
        self.count_flushed();
        left
    }

    /// On a heartbeat of a client.
    pub fn client_heartbeat(&mut self, client: ClientId, heartbeat: &Heartbeat) {
        if self.fenced.contains(&client) && self.rules.dead_clients_are_fenced {
            return;
        }
        self.clients.insert(client, heartbeat.flushed_upto);
        heartbeat.flushed.iter().for_each(|at| self.was_flushed(client, *at));
        self.count_flushed();
    }

    /// On failure of a client: what is to be replayed of it.
    pub fn client_failed(&mut self, client: ClientId) -> Vec<(Position, Logged)> {
        self.fenced.insert(client);
        let threshold = self.clients.get(&client).copied().unwrap_or_default();
        let left = match self.rules.idle {
            Idle::ManagerCounts => self.unflushed(client),
            _ => self.committed_by(client, threshold),
        };
        if self.rules.failed == Failed::GoAtOnce {
            self.clients.remove(&client);
            self.count_flushed();
        }
        left
    }

    /// So much of it was.
    pub fn client_replayed(&mut self, client: ClientId, replayed: &[Position]) {
        replayed.iter().for_each(|at| self.was_flushed(client, *at));
        self.count_flushed();
    }

    /// All of it was.
    pub fn client_gone(&mut self, client: ClientId) {
        if self.rules.failed == Failed::GoOnceReplayed {
            self.clients.remove(&client);
        }
        self.count_flushed();
    }

    fn was_flushed(&mut self, client: ClientId, at: Position) {
        if let Some(queue) = self.queues.get_mut(&client) {
            queue.remove(&at);
        }
    }

    fn committed_by(&self, client: ClientId, above: Position) -> Vec<(Position, Logged)> {
        let of_client = |(at, logged): &(&Position, &Logged)| logged.client == client && **at > above;
        self.log.iter().filter(of_client).map(|(at, logged)| (*at, logged.clone())).collect()
    }

    fn unflushed(&self, client: ClientId) -> Vec<(Position, Logged)> {
        let queue = self.queues.get(&client);
        let all = queue.into_iter().flatten();
        all.filter_map(|at| Some((*at, self.log.get(at)?.clone()))).collect()
    }

    /// T_F*: the least T_F^r(c); where the manager counts, what lies before the oldest commit that is not
    /// flushed. Over no clients it is the newest commit.
    fn count_flushed(&mut self) {
        let least = match self.rules.idle {
            Idle::ManagerCounts => {
                let oldest = self.queues.values().filter_map(|queue| queue.first()).min();
                oldest.map(|at| before(*at))
            }
            _ => self.clients.values().min().copied(),
        };
        self.flushed_by_all = least.unwrap_or(self.last);
    }

    /// On register of a server.
    pub fn register_server(&mut self, node: NodeId) -> Position {
        self.servers.insert(node, self.persisted_by_all);
        self.flushed_by_all
    }

    /// On a heartbeat of a server: T_P(s), and the thresholds of its regions.
    pub fn server_heartbeat(
        &mut self,
        node: NodeId,
        persisted: Position,
        regions: &[(PartitionId, Position)],
    ) {
        self.servers.insert(node, persisted);
        self.regions.extend(regions.iter().copied());
        self.count_persisted();
    }

    /// On failure of a server: T_P^r(s).
    pub fn server_failed(&mut self, node: NodeId) -> Position {
        let threshold = self.servers.get(&node).copied().unwrap_or_default();
        if self.rules.failed == Failed::GoAtOnce {
            self.servers.remove(&node);
        }
        threshold
    }

    /// All of its regions were replayed.
    pub fn server_replayed(&mut self, node: NodeId) {
        if self.rules.failed == Failed::GoOnceReplayed {
            self.servers.remove(&node);
        }
        self.count_persisted();
    }

    /// A region reopens with what lies up to here. Other copies may have less, so its threshold does not
    /// rise.
    pub fn region_reopens(&mut self, region: PartitionId, persisted: Position) {
        let known = self.regions.entry(region).or_insert(persisted);
        *known = persisted.min(*known);
    }

    /// What was committed above a threshold, with a part in a region.
    pub fn fetch(&self, above: Position, region: PartitionId) -> Vec<(Position, PartitionWrites)> {
        let mut found = Vec::new();
        for (at, logged) in self.log.range((std::ops::Bound::Excluded(above), std::ops::Bound::Unbounded)) {
            let part = logged.writes.iter().find(|writes| writes.partition == region);
            found.extend(part.map(|part| (*at, part.clone())));
        }
        found
    }

    /// T_P*: the least of servers, or of regions. What lies up to it is truncated.
    fn count_persisted(&mut self) {
        let least = match self.rules.thresholds_of_regions {
            true => self.regions.values().min().copied(),
            false => self.servers.values().min().copied(),
        };
        self.persisted_by_all = least.unwrap_or(self.persisted_by_all);
        self.kept = (self.flushed_by_all, self.persisted_by_all);
        let upto = self.persisted_by_all;
        for (at, logged) in self.log.extract_if(..=upto, |_, _| true) {
            for (table, key) in logged.writes.iter().flat_map(|writes| keys_of(&writes.parts)) {
                let key = (table, key.clone());
                if self.keys.get(&key) == Some(&at) {
                    self.keys.remove(&key);
                }
            }
        }
        self.truncated = self.truncated.max(upto);
    }

    /// Another manager begins with this one's log. Who is registered, it does not know. What it must flush:
    /// everything that it takes for unflushed.
    pub fn replaced(&mut self) -> Vec<(Position, Logged)> {
        let mut next = Manager::new(self.rules);
        (next.log, next.truncated, next.kept) = (std::mem::take(&mut self.log), self.truncated, self.kept);
        next.last = self.last;
        for (at, logged) in &next.log {
            let keys = logged.writes.iter().flat_map(|writes| keys_of(&writes.parts));
            next.keys.extend(keys.map(|(table, key)| ((table, key.clone()), *at)));
        }
        let mut unflushed = Vec::new();
        if self.rules.managers_begin_with_the_log {
            // Who was declared dead is noted there, too, or would commit again.
            next.fenced = std::mem::take(&mut self.fenced);
            (next.flushed_by_all, next.persisted_by_all) = (next.kept.1, next.kept.1);
            next.regions = self.regions.keys().map(|region| (*region, next.kept.1)).collect();
            next.servers = self.servers.keys().map(|server| (*server, next.kept.1)).collect();
            for (at, logged) in &next.log {
                next.queues.entry(logged.client).or_default().insert(*at);
                unflushed.push((*at, logged.clone()));
            }
            // Each client that is named there may have flushed none of its commits.
            let clients = next.log.values().map(|logged| (logged.client, next.kept.1));
            next.clients = clients.collect();
        } else {
            next.count_flushed();
        }
        *self = next;
        unflushed
    }
}
