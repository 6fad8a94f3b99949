//! What happens by the clock: ticks of the replicas, status, checkpoints, a look at the disk's room and at
//! the directories.

use super::Node;
use super::checkpoints::Failed;
use super::target::beyond_targets;
use crate::clock;
use crate::failure::Failure;
use crate::stores;
use driver::checkpoints::to_put_apart;
use driver::progress::is_vouched_for;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use types::{Engine, PartitionId};
use wire::Message;
use wire::control::{ExecutorStatus, NodeStatus, Role};

impl Node {
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        let (now, mono) = (self.timer.now(), self.timer.mono());
        self.replicas.host_mut().rest_indexes(self.storage.room().is_full());
        self.replicas.input(now, |host, now, out| host.tick(now, out));
        self.connections.tick(self.storage.cluster(), mono);
        self.journal.note_hung(self.connections.hung(mono));
        if self.timer.look_is_due(self.journal.is_full()) {
            self.look_at_disk();
            self.tails.forget_discarded();
            self.leave_moved()?;
        }
        if self.timer.targets_are_due() {
            let beyond = beyond_targets(&self.view, self.replicas.host());
            beyond.into_iter().for_each(|id| self.checkpoints.soon(id));
        }
        self.retry_blocked()?;
        for (id, error) in self.replicas.failed_writes() {
            self.storage.engine_failed(id, &error)?;
        }
        self.keep_data_dirs()?;
        self.make_waiting()?;
        self.storage.settle_room(self.journal.is_full());
        let news = self.storage.take_news() | self.tails.take_news() | self.reports.take_news();
        if self.timer.status_is_due(news) {
            self.tell_status(news);
        }
        if self.connections.others().me().is_coordinator() {
            self.go_on_ending();
        }
        Ok(())
    }

    /// Goes on with the node's ending, if one was asked for.
    fn go_on_ending(&mut self) {
        let (replicas, view, connections) = (&self.replicas, &self.view, &self.connections);
        let others_lead = || !connections.others().is_alone() && view.lead_for_others(replicas.me());
        let leads = || (replicas.lead_for_others() || others_lead()) && connections.has_controller();
        if let Some(drain) = self.ending.tick(replicas.me(), leads, self.timer.mono()) {
            self.connections.tell(&drain);
        }
    }

    /// Finds the logs that are too long, and the disk's room.
    fn look_at_disk(&mut self) {
        self.storage.look_at_room();
        let short = self.journal.is_full() || self.storage.room().is_low();
        if short {
            self.replicas.input(self.timer.now(), |host, now, out| host.short_of_room(now, out));
        }
        self.checkpoints.look(self.replicas.host(), &self.journal, self.storage.replicas(), short);
        if self.journal.is_full() {
            self.journal.put_apart(to_put_apart(self.replicas.host(), &self.journal));
        }
    }

    /// Goes on with the checkpoint that is under way, or begins with another.
    pub(super) fn checkpoint(&mut self) -> Result<(), Failure> {
        let metrics = self.reports.metrics();
        match self.checkpoints.go_on(self.replicas.host_mut(), &self.storage, metrics) {
            Ok(()) => Ok(()),
            Err(Failed::Disk(id, error)) => self.storage.engine_failed(id, &error),
            Err(Failed::Engine(id, why)) => {
                self.replicas.input(self.timer.now(), |host, now, out| host.fail(now, id, why, out));
                Ok(())
            }
        }
    }

    /// Looks after directories and the replicas that lost theirs.
    fn keep_data_dirs(&mut self) -> Result<(), Failure> {
        self.vouch();
        if !self.storage.has_several() {
            return Ok(());
        }
        for (id, why) in self.storage.newly_lost() {
            let empty = stores::no_engine();
            let lost =
                self.replicas.input(self.timer.now(), |host, now, out| host.lose(now, id, empty, why, out));
            lost.into_iter().for_each(close);
        }
        let mut storage_lost = self.replicas.host().storage_lost();
        storage_lost.retain(|id| !self.storage.waiting().rests(*id, self.timer.mono()));
        storage_lost.into_iter().try_for_each(|id| self.relocate(id))
    }

    /// What lies on a disk that hangs, and is not the log's, is led elsewhere where that can be at once
    /// (PR-456): whoever can is to miss this node's heartbeats.
    fn vouch(&mut self) {
        let (silent, host) = (self.storage.silent(), self.replicas.host());
        let record = |id: PartitionId| host.replica(id).and_then(|replica| replica.record());
        let hung = silent.into_iter().filter(|(id, silent)| !is_vouched_for(*silent, record(*id)));
        let hung: BTreeSet<PartitionId> = hung.map(|(id, _)| id).collect();
        hung.iter().for_each(|id| self.connections.lead(*id, None));
        for id in self.storage.note_unvouched(hung) {
            if !self.tails.held().holds(id) {
                self.lead_again(id);
            }
        }
    }

    /// A replica is to be given a copy, and has no place for it.
    fn relocate(&mut self, id: PartitionId) -> Result<(), Failure> {
        let place = self.storage.relocate(id);
        if let Some(Some(engine)) = self.storage.with_room(id, self.timer.mono(), place)? {
            self.replicas.input(self.timer.now(), |host, now, out| host.relocate(now, id, engine, out));
        }
        Ok(())
    }

    /// Puts the status up and sends it to every controller; an executor beside the coordinator leaves that to
    /// it.
    fn tell_status(&mut self, news: bool) {
        let status = self.status();
        let me = self.connections.others().me();
        if !me.is_coordinator() {
            return self.connections.others().tell_status(status, news);
        }
        let (connections, now) = (&self.connections, self.timer.mono());
        let status = self.reports.with_parts(status, |executor| connections.hangs(executor, now));
        if self.reports.note(&status, &self.view) {
            // Says anew who this is, after something about it changed.
            self.connections.tell_all(&self.reports.registration());
        }
        let message = Message::NodeStatus(status);
        self.connections.tell_all(&message);
        let Message::NodeStatus(status) = message else { unreachable!("made above") };
        self.reports.put_up(status, &self.view, self.timer.mono());
    }

    /// What this executor has of its node's status.
    pub(super) fn status(&self) -> NodeStatus {
        let (host, waiting) = (self.replicas.host(), self.storage.waiting());
        let (metrics, stats) = (self.reports.metrics(), self.journal.stats());
        let is_coordinator = self.connections.others().me().is_coordinator();
        if is_coordinator {
            metrics.fsyncs.store(stats.fsyncs, Ordering::Relaxed);
            metrics.log_bytes.store(stats.bytes, Ordering::Relaxed);
            metrics.log_entries.store(stats.entries, Ordering::Relaxed);
        }
        let silent: BTreeSet<PartitionId> = self.storage.silent().into_iter().map(|(id, _)| id).collect();
        let waits = |id: PartitionId| match (waiting.has(id), self.tails.held().holds(id)) {
            (true, _) => Some("no room for its files"),
            (false, true) => Some("no room to set its divergent tail aside"),
            (false, false) => silent.contains(&id).then_some("the disk with its files does not answer"),
        };
        let mut replicas = host.status(self.timer.now());
        for replica in &mut replicas {
            if let Some(why) = waits(replica.partition) {
                replica.waits = why.into();
            } else if replica.role == Role::Primary
                && let Some(place) = self.storage.without_room(replica.partition)
            {
                replica.waits = format!("room in {place}, and refuses writes");
            }
        }
        let blocked = !self.tails.held().is_empty();
        NodeStatus {
            member: host.me(),
            hears: self.connections.hears(clock::mono()),
            replicas,
            // The log on the disk is all executors'.
            log_bytes: if is_coordinator { self.journal.bytes() } else { self.journal.memory_bytes() },
            fsyncs: stats.fsyncs,
            commits: host.replicas().map(|replica| replica.commits()).sum(),
            sent_bytes: metrics.sent.load(Ordering::Relaxed),
            cpu_us: clock::cpu_us(),
            full: self.storage.room().is_full() || blocked || !waiting.is_empty(),
            tails: self.tails.there().to_vec(),
            directories: self.storage.directories(),
            log_waits_us: self.journal.oldest_pending().map_or(0, |at| self.timer.mono().since(at).0),
            executors: self.executor_status().into_iter().collect(),
            // Of the node's one gateway the coordinator tells.
            sessions: Vec::new(),
        }
    }

    /// What this executor is, if it is one of several.
    fn executor_status(&self) -> Option<ExecutorStatus> {
        let others = self.connections.others();
        let partitions = self.replicas.host().replicas().count() as u32;
        let connections = self.connections.count() as u32;
        let is_one_of_several = !others.is_alone() && others.me().has_partitions();
        is_one_of_several.then_some(ExecutorStatus { partitions, connections, hangs_us: 0 })
    }
}

/// Closes an engine whose disk may answer late or never: without the thread its files are closed here.
fn close(engine: Box<dyn Engine>) {
    drop(std::thread::Builder::new().name("close".into()).spawn(move || drop(engine)));
}
