//! What controllers tell: who is in the cluster, which partitions there are, and what becomes of proposals. Replicas come
//! and go by it.

use super::Node;
use super::links::Role;
use crate::failure::Failure;
use crate::stop::Stop;
use crate::stores::{self, InLog, Meta};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use types::index::Wanted;
use types::{ClusterRecord, LogKind, NodeId, NodeRecord, PartitionId, PartitionRecord, TableId, TableRecord};
use wire::Message;
use wire::control::{AdminAnswer, ClusterMap, Register};
use wire::hello::Welcome;

/// The records as this node knows them.
#[derive(Debug, Default)]
pub struct View {
    /// Grows with every change of what is below.
    pub version: u64,
    /// The newest revision of the metastore that was told.
    revision: u64,
    cluster: Option<ClusterRecord>,
    /// All nodes.
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    /// All tables.
    pub tables: BTreeMap<TableId, TableRecord>,
    /// The newest configuration of every partition.
    pub partitions: BTreeMap<PartitionId, PartitionRecord>,
}

impl View {
    /// The records as clients have them.
    pub fn map(&self) -> client::Map {
        client::Map::of(
            self.nodes.values().cloned(),
            self.tables.values().cloned(),
            self.partitions.values().cloned(),
        )
    }
}

impl Node {
    /// A controller answered our hello.
    pub(super) fn on_controllers_welcome(
        &mut self,
        key: u64,
        index: usize,
        welcome: Welcome,
    ) -> Result<(), Failure> {
        let outcome = match welcome {
            Welcome::Accepted { cluster, .. } => self.dir.join(cluster),
            Welcome::Refused(why) => {
                Err(Failure::refused(format!("the controller {}: {why}", self.controllers.address(index))))
            }
        };
        if let Err(failure) = outcome {
            // Before it has been let in anywhere, a refusal is for the operator; later, one controller is wrong.
            if !self.shared_status.registered.load(Ordering::Acquire) {
                return Err(failure);
            }
            eprintln!("{failure}");
            self.links.close(key);
            return Ok(());
        }
        self.links.set_role(key, Role::Controller(index), self.now.mono);
        self.controllers.welcomed(index);
        let register = self.registration();
        self.links.push(key, &Message::Register(register));
        Ok(())
    }

    fn registration(&self) -> Register {
        Register {
            member: self.host.me(),
            clean_start: self.clean_start,
            addresses: self.addresses.clone(),
            zone: self.config.node.zone.clone(),
            damaged: self.timer.damaged.clone(),
        }
    }

    /// Says anew who this is, after something about it changed.
    pub(super) fn register_again(&mut self) {
        let register = Message::Register(self.registration());
        for key in self.controllers.all() {
            self.links.push(key, &register);
        }
    }

    pub(super) fn on_controller(&mut self, key: u64, message: Message) -> Result<(), Failure> {
        match message {
            Message::ClusterMap(cluster_map) => self.on_cluster_map(cluster_map)?,
            Message::Proposed(proposed) => {
                if let Ok(record) = proposed.record.read::<PartitionRecord>() {
                    self.remember(&record);
                }
                self.timer.answered();
                self.host.proposed(self.now, &proposed, &mut self.out);
            }
            Message::Advise(advise) => self.host.advise(self.now, advise, &mut self.out),
            Message::AdminAnswer(AdminAnswer { result: Err((_, why)), .. })
                if self.shared_status.stop.asked() != Stop::No =>
            {
                eprintln!("handing over: {why}");
            }
            Message::AdminAnswer(_) => {}
            _ => self.links.close_bad(key),
        }
        Ok(())
    }

    fn on_cluster_map(&mut self, cluster_map: ClusterMap) -> Result<(), Failure> {
        self.view.version += 1;
        // A controller that is behind says nothing new of nodes and tables; partitions carry epochs of their own.
        let newer = cluster_map.revision >= self.view.revision;
        // Nothing may be taken for gone because a line of what is there could not be read.
        let mut whole = cluster_map.whole && newer;
        if newer {
            self.view.revision = cluster_map.revision;
            whole &= self.take_records(&cluster_map);
        }
        for text in &cluster_map.partitions {
            match text.read::<PartitionRecord>() {
                Ok(record) => self.configure(record)?,
                Err(error) => {
                    eprintln!("{error}");
                    whole = false;
                }
            }
        }
        for table in &cluster_map.dropped {
            self.drop_table(TableId(*table))?;
        }
        if whole {
            self.forget_nodes(&cluster_map)?;
            self.drop_unknown()?;
        }
        self.connect_nodes();
        self.shared_status.registered.store(true, Ordering::Release);
        // A whole one is the answer to this node's registration.
        if cluster_map.whole {
            self.tell_again();
        }
        Ok(())
    }

    /// False if something in it cannot be read.
    fn take_records(&mut self, cluster_map: &ClusterMap) -> bool {
        let mut readable = true;
        let mut note = |error: String| {
            eprintln!("{error}");
            readable = false;
        };
        match cluster_map.cluster.as_ref().map(|text| text.read()) {
            Some(Ok(record)) => self.view.cluster = Some(record),
            Some(Err(error)) => note(error),
            None => {}
        }
        for text in &cluster_map.nodes {
            match text.read::<NodeRecord>() {
                Ok(record) => drop(self.view.nodes.insert(record.id, record)),
                Err(error) => note(error),
            }
        }
        for text in &cluster_map.tables {
            match text.read::<TableRecord>() {
                Ok(record) => {
                    let wanted = (!record.indexes.is_empty()).then(|| Wanted::of(&record));
                    self.host.want_indexes(record.id, wanted);
                    self.view.tables.insert(record.id, record);
                }
                Err(error) => note(error),
            }
        }
        readable
    }

    /// Keeps the newest configuration. True if this one is.
    fn remember(&mut self, record: &PartitionRecord) -> bool {
        let known = self.view.partitions.get(&record.id);
        if known.is_some_and(|known| known.epoch > record.epoch) {
            return false;
        }
        self.view.partitions.insert(record.id, record.clone());
        self.view.version += 1;
        true
    }

    fn configure(&mut self, record: PartitionRecord) -> Result<(), Failure> {
        if self.remember(&record) { self.adopt(record) } else { Ok(()) }
    }

    /// Tells the replica of its configuration, and makes one where this node is a member and has none.
    pub(super) fn adopt(&mut self, record: PartitionRecord) -> Result<(), Failure> {
        let id = record.id;
        if !self.host.configure(self.now, record.clone(), &mut self.out) && self.make_replica(&record)? {
            let made = self.host.configure(self.now, record, &mut self.out);
            assert!(made, "partition {id} was just made");
        }
        Ok(())
    }

    /// Makes a replica; false if there is no room for it, for now.
    pub(super) fn make_replica(&mut self, record: &PartitionRecord) -> Result<bool, Failure> {
        let made = self.begin_replica(record);
        self.with_room(record.id, made)
    }

    fn begin_replica(&mut self, record: &PartitionRecord) -> Result<(), Failure> {
        let id = record.id;
        let meta = match (self.metas.get(&id), self.view.tables.get(&record.table)) {
            (Some(meta), _) => *meta,
            (None, Some(table)) => self.new_engine_dir(Meta::of(id, table))?,
            (None, None) => {
                let why = format!("partition {id} came before its table {}", record.table);
                return Err(Failure::corrupt(why));
            }
        };
        match meta.log {
            LogKind::Disk => stores::create(&self.dir, &meta)?,
            LogKind::Memory => self.journal.keep_in_memory(id),
        }
        // From here on its description says where its files are, whatever else finds no room.
        self.metas.insert(id, meta);
        let (me, reader) = (self.host.me(), self.journal.reader());
        let in_log = self.found.get(&id).map_or(InLog::New, InLog::Found);
        let replica = stores::open(&mut self.dir, me, &meta, in_log, reader, &self.metrics)?;
        self.found.remove(&id);
        self.host.add(replica);
        Ok(())
    }

    /// A table is gone, with all its data.
    fn drop_table(&mut self, table: TableId) -> Result<(), Failure> {
        self.view.tables.remove(&table);
        self.host.want_indexes(table, None);
        self.view.partitions.retain(|_, record| record.table != table);
        let gone: Vec<PartitionId> =
            self.metas.values().filter(|meta| meta.table == table).map(|meta| meta.partition).collect();
        gone.into_iter().try_for_each(|id| self.drop_replica(id))
    }

    /// Nodes that were removed. If this is one, it has nothing to do any more.
    fn forget_nodes(&mut self, cluster_map: &ClusterMap) -> Result<(), Failure> {
        let there = cluster_map.nodes.iter().filter_map(|text| text.read::<NodeRecord>().ok());
        let there: BTreeSet<NodeId> = there.map(|record| record.id).collect();
        self.view.nodes.retain(|node, _| there.contains(node));
        let me = self.host.me().node;
        match there.contains(&me) {
            true => Ok(()),
            false => Err(self.dir.note_removed()),
        }
    }

    /// Tables that were dropped while this node was away. A cluster map that is older than a partition does not prove that it
    /// is gone: numbers are given out in order and never again.
    fn drop_unknown(&mut self) -> Result<(), Failure> {
        let Some(cluster) = &self.view.cluster else { return Ok(()) };
        let known = self.metas.keys().chain(self.found.keys());
        let gone = |id: &&PartitionId| cluster.has_given_out(**id) && !self.view.partitions.contains_key(*id);
        let gone: Vec<PartitionId> = known.filter(gone).copied().collect();
        gone.into_iter().try_for_each(|id| self.drop_replica(id))
    }

    pub(super) fn drop_replica(&mut self, id: PartitionId) -> Result<(), Failure> {
        self.host.dismiss(self.now, id, &mut self.out);
        // The engine's files are closed before they are moved.
        drop(self.host.remove(id));
        self.give_up_blocked(id)?;
        self.leave_engine_dir(id);
        self.metas.remove(&id);
        self.found.remove(&id);
        self.waiting.remove(&id);
        self.journal.forget(id);
        let path = self.dir.partition(id);
        self.dir.discard(&path).map_err(|error| Failure::io(&path, &error))
    }

    /// Connects to whoever is in the cluster now.
    fn connect_nodes(&mut self) {
        let me = self.host.me();
        self.peers.set(me.node, &self.view.nodes, &mut self.links);
        let Some(cluster) = self.dir.identity().cluster else { return };
        self.peers.dial(me, cluster, &self.config.secret, &mut self.links, self.now.mono);
        let others = self.view.nodes.iter().filter(|(node, _)| **node != me.node);
        let heartbeats = others
            .filter_map(|(node, record)| Some((*node, super::peers::resolve(&record.addresses.heartbeat)?)));
        let heartbeats: BTreeMap<NodeId, SocketAddr> = heartbeats.collect();
        self.lease_manager.set_nodes(cluster, heartbeats);
    }
}
