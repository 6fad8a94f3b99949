//! What controllers tell: who is in the cluster, which partitions there are, and what becomes of proposals.
//! Replicas come and go by it.

use super::Node;
use super::mailbox::Handed;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{Generation, PartitionId, PartitionRecord, Ship, TableId};
use wire::Message;
use wire::control::{AdminAnswer, ClusterMap, RegisterRefused};
use wire::hello::Welcome;

impl Node {
    /// A controller answered our hello.
    pub(super) fn on_controllers_welcome(
        &mut self,
        key: u64,
        index: usize,
        welcome: Welcome,
    ) -> Result<(), Failure> {
        let generation = match welcome {
            Welcome::Rebuilt { generation, .. } => generation,
            _ => Generation::default(),
        };
        let outcome = match welcome {
            Welcome::Accepted { cluster, .. } | Welcome::Rebuilt { cluster, .. } => {
                self.storage.join(cluster)
            }
            Welcome::Refused(why) => {
                let address = self.connections.controller_address(index);
                Err(Failure::refused(format!("the controller {address}: {why}")))
            }
        };
        if let Err(failure) = outcome {
            // Before it has been let in anywhere, a refusal is for the operator; later, one controller is
            // wrong.
            if !self.reports.is_registered() {
                return Err(failure);
            }
            eprintln!("{failure}");
            self.connections.links().close(key);
            return Ok(());
        }
        if !self.listens_to(key, index, generation)? {
            return Ok(());
        }
        self.connections.controller_welcomes(key, index, generation, self.timer.mono());
        self.reports.will_register(self.storage.starts()?);
        self.connections.push(key, &self.reports.registration());
        Ok(())
    }

    pub(super) fn on_controller(&mut self, key: u64, message: Message) -> Result<(), Failure> {
        match message {
            Message::ClusterMap(cluster_map) => {
                let unasked = self.storage.is_unasked();
                self.on_cluster_map(&cluster_map, unasked)?;
                self.pass_on(cluster_map, unasked);
            }
            Message::RegisterRefused(RegisterRefused { why, for_good: true }) => {
                return Err(Failure::refused(why));
            }
            Message::RegisterRefused(refused) => self.reports.refused(refused.why),
            Message::Proposed(proposed) => {
                if let Ok(record) = proposed.record.read::<PartitionRecord>() {
                    self.view.remember(&record);
                }
                self.connections.proposal_answered();
                match self.connections.others().elsewhere(proposed.partition) {
                    Some(owner) => self.pass_to(owner, Message::Proposed(proposed)),
                    None => self
                        .replicas
                        .input(self.timer.now(), |host, now, out| host.proposed(now, &proposed, out)),
                }
            }
            Message::Advise(advise) => match self.connections.others().elsewhere(advise.partition) {
                Some(owner) => self.pass_to(owner, Message::Advise(advise)),
                None => {
                    self.replicas.input(self.timer.now(), |host, now, out| host.advise(now, advise, out));
                }
            },
            Message::AdminAnswer(AdminAnswer { result: Err((_, why)), .. }) if self.ending.has_begun() => {
                eprintln!("handing over: {why}");
            }
            Message::AdminAnswer(_) => {}
            _ => self.connections.links().close_bad(key),
        }
        Ok(())
    }

    /// A cluster map goes to all executors: each has its own part of what it says. What it may cost this node
    /// was decided when it came: by the time that an executor gets to it, this node may have been asked for
    /// what it keeps, and what the map does not name is still all that is left of it (PR-107).
    fn pass_on(&self, cluster_map: ClusterMap, unasked: bool) {
        let others = self.connections.others();
        if !others.is_alone() {
            let cluster_map = Arc::new(cluster_map);
            others.give_all(|| Handed::ClusterMap { cluster_map: cluster_map.clone(), unasked });
        }
    }

    fn pass_to(&self, owner: usize, message: Message) {
        self.connections.others().give(owner, Handed::Controller(Box::new(message)));
    }

    /// `unasked`: the records that it is made of were made without asking this node.
    pub(super) fn on_cluster_map(&mut self, cluster_map: &ClusterMap, unasked: bool) -> Result<(), Failure> {
        let is_coordinator = self.connections.others().me().is_coordinator();
        let taken = self.view.take(cluster_map);
        let mut whole = taken.whole;
        for (table, wanted) in taken.indexes {
            self.replicas.host_mut().want_indexes(table, wanted);
        }
        for (database, ship) in taken.ships {
            self.replicas.host_mut().ship(database, ship);
        }
        for text in &cluster_map.partitions {
            match text.read::<PartitionRecord>() {
                Ok(record) if self.view.remember(&record) => self.adopt(record)?,
                Ok(_) => {}
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
            if !self.view.forget_nodes(cluster_map, self.replicas.me().node) && is_coordinator {
                // This one was removed: it has nothing to do any more.
                return Err(self.storage.note_removed());
            }
            // Tables that were dropped while this node was away, unless it is the only one that knows of
            // them.
            let gone = self.view.gone(self.storage.known());
            if !unasked {
                gone.into_iter().try_for_each(|id| self.drop_replica(id))?;
            }
        }
        let (nodes, cluster) = (self.view.nodes(), self.storage.cluster());
        let connected = self.connections.set_nodes(nodes, cluster, self.timer.mono());
        connected.into_iter().for_each(|member| self.connected(member));
        self.reports.registered();
        // A whole one is the answer to this node's registration.
        if cluster_map.whole {
            let again = self.reports.again(self.tails.there());
            again.iter().for_each(|message| self.connections.tell(message));
        }
        Ok(())
    }

    /// Tells the replica of its configuration, and makes one where this node is a member and has none.
    fn adopt(&mut self, record: PartitionRecord) -> Result<(), Failure> {
        if self.connections.others().elsewhere(record.id).is_some() {
            return Ok(());
        }
        let again = record.clone();
        match self.replicas.input(self.timer.now(), |host, now, out| host.configure(now, record, out)) {
            true => Ok(()),
            false => self.make_replica(again),
        }
    }

    /// Makes a replica, and tells it of its configuration. If there is no room for it, it waits for some.
    pub(super) fn make_replica(&mut self, record: PartitionRecord) -> Result<(), Failure> {
        let (id, table) = (record.id, self.view.table(record.table));
        let made = self.storage.open(&record, table, &mut self.journal, self.reports.metrics());
        let Some(replica) = self.storage.with_room(id, self.timer.mono(), made)? else { return Ok(()) };
        self.replicas.host_mut().add(replica);
        let known = self.replicas.input(self.timer.now(), |host, now, out| host.configure(now, record, out));
        assert!(known, "partition {id} was just made");
        Ok(())
    }

    /// Tries again to make replicas that found no room and are still wanted here.
    pub(super) fn make_waiting(&mut self) -> Result<(), Failure> {
        let (host, view) = (self.replicas.host(), &self.view);
        let lost: BTreeSet<PartitionId> = match self.storage.has_waiting() {
            true => host.storage_lost().into_iter().collect(),
            false => return Ok(()),
        };
        let due = self.storage.waiting_due(self.timer.mono(), |id| match host.has(id) {
            // It has another place meanwhile, or needs none.
            true => lost.contains(&id),
            false => view.partition(id).is_some_and(|record| record.holds(&host.me())),
        });
        for id in due {
            let record = self.view.partition(id).filter(|_| !self.replicas.host().has(id)).cloned();
            record.map_or(Ok(()), |record| self.adopt(record))?;
        }
        Ok(())
    }

    /// A table is gone, with all its data.
    fn drop_table(&mut self, table: TableId) -> Result<(), Failure> {
        self.view.drop_table(table);
        self.replicas.host_mut().want_indexes(table, None);
        self.replicas.host_mut().ship(table, Ship::Effects);
        self.storage.of_table(table).into_iter().try_for_each(|id| self.drop_replica(id))
    }

    pub(super) fn drop_replica(&mut self, id: PartitionId) -> Result<(), Failure> {
        self.replicas.input(self.timer.now(), |host, now, out| host.dismiss(now, id, out));
        // The engine's files are closed before they are moved.
        drop(self.replicas.host_mut().remove(id));
        self.give_up_blocked(id)?;
        self.journal.forget(id);
        self.storage.remove(id)
    }
}
