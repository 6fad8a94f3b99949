//! Replicas' engines: which kind a partition has, and the turns of what LSM engines do beside their calls.

use super::World;
use super::machines::End;
use crate::event::{Cure, Event};
use crate::faults::Fault;
use crate::lsm_files::{NewJob, Place};
use crate::node::{PartFiles, SECOND, SnapshotFile};
use driver::directories::FailedWrite;
use engine::MemoryEngine;
use std::sync::Arc;
use test_engines::PartsEngine;
use types::engine::{Checkpoint, Wake};
use types::{Engine, EngineError, NodeId, PartitionId, Rules};

/// Where a replica's files are.
pub(super) fn place(node: u32, directory_of: &str, partition: PartitionId) -> Place {
    Place { node, second: directory_of == SECOND, partition }
}

/// What is waited for is looked at when its job has ended.
fn unasked() -> Wake {
    Arc::new(|| {})
}

impl World {
    /// True if this partition's engines ship files.
    fn ships(&self, id: PartitionId) -> bool {
        self.plan.copies.ships.contains(&(id.0 % 2))
    }

    /// The engine on what the disk has; with the reason if that cannot be used, and then empty.
    pub(super) fn open_engine(
        &mut self,
        node: u32,
        directory_of: &str,
        id: PartitionId,
    ) -> Result<(Box<dyn Engine>, Option<String>), String> {
        if !self.plan.is_lsm(id) {
            let disk = self.machine(node).disk.clone();
            return open_memory(&disk, (directory_of, id), (self.settings.rules, self.ships(id)));
        }
        let (engine, trouble) = self.machines.files_mut().open(place(node, directory_of, id))?;
        self.trace.hide(self.machines.files().root());
        Ok((Box::new(engine), trouble))
    }

    /// I12: what an engine said a restart finds in its files, a start finds.
    pub(super) fn finds_files(&mut self, node: u32, id: PartitionId, engine: &dyn Engine) {
        let (found, faulted) = (engine.persisted().lsn, self.machine(node).health.is_impaired());
        let verdict = self.checks.storage.opens(NodeId(node), id, found, faulted);
        self.checks.expect("I12", self.now(), verdict);
    }

    /// Notes what engines say of their files.
    pub(super) fn look_at_files(&mut self, node: u32) {
        let Some(process) = &self.machines.get(node).process else { return };
        let storage = &mut self.checks.storage;
        for replica in process.host.replicas().filter(|replica| !process.logs.is_in_memory(replica.id())) {
            let persisted = replica.engine().persisted().lsn;
            if storage.said_persisted(NodeId(node), replica.id()) != persisted {
                storage.says_persisted(NodeId(node), replica.id(), persisted);
            }
        }
    }

    /// Counts calls that were made to fail, and gives times to jobs that were begun.
    pub(super) fn plan_jobs(&mut self) {
        for name in self.machines.files().take_injected() {
            self.injected(name);
        }
        for job in self.machines.files_mut().new_jobs() {
            let node = job.place.node;
            let Some(incarnation) = self.machine(node).incarnation() else { continue };
            let random = &mut self.machines.files_mut().random;
            let most = *random.pick(&[500, 20_000, 200_000, 900_000]).expect("not empty");
            let wait = 50 + random.below(most);
            self.after(wait, Event::Job { node, incarnation, job });
        }
    }

    pub(super) fn run_job(&mut self, node: u32, incarnation: u64, job: NewJob) {
        if self.machine(node).incarnation() != Some(incarnation) {
            return;
        }
        let machine = self.machine(node);
        let second = machine.second.hangs_until(self.now()).filter(|_| job.place.second);
        let stuck_until = machine.health.stuck_until().max(second.unwrap_or(0));
        if stuck_until > self.now() {
            let wait = stuck_until.saturating_sub(self.now()).min(1_000_000);
            return self.after(wait, Event::Job { node, incarnation, job });
        }
        if self.machines.files_mut().run(job) {
            let (wait, partition) = (1 + self.machines.files_mut().random.below(300), job.place.partition);
            self.after(wait, Event::GoOn { node, incarnation, partition });
        }
    }

    /// The calls of a node's LSM engines fail for a while, or the next sync but a few does. False if it has
    /// none.
    pub(super) fn trouble_trees(&mut self, fault: Fault, node: u32) -> bool {
        if self.machines.files().places(node).is_empty() {
            return false;
        }
        let random = self.faults.random();
        let us = random.between(300_000, 3_000_000);
        // Half of the calls, or all.
        let refused = random.next() | if random.chance(400) { u64::MAX } else { 0 };
        let after = random.below(6);
        let trouble = self.machines.files_mut().trouble(node);
        match fault {
            Fault::LsmFull => trouble.fill(Some(refused)),
            Fault::FewFiles => trouble.take_files(Some(refused)),
            _ => {
                trouble.fail_sync(after);
                return true;
            }
        }
        self.after(us, Event::Cure(Cure::Trees(node)));
        true
    }

    /// R10: an engine whose files could not be synced stops its node, or takes its directory with it.
    pub(super) fn look_at_engines(&mut self, node: u32) {
        let Some(process) = &self.machine(node).process else { return };
        let failed = |replica: &&replica::Replica| {
            self.plan.is_lsm(replica.id()) && replica.engine().failed_write().is_some()
        };
        let Some(id) = process.host.replicas().find(failed).map(|replica| replica.id()) else { return };
        self.engine_failed(node, id);
    }

    fn engine_failed(&mut self, node: u32, id: PartitionId) {
        let second = self.machine(node).second.directory_of(id).filter(|directory| *directory == SECOND);
        if let FailedWrite::LosesDirectory(_) = FailedWrite::of(second)
            && self.may_lose_disk(node)
            && self.lose_second(node)
        {
            return self.injected("lsm-directory-given-up");
        }
        self.end(node, End::Crash);
        self.start_later(node, 300_000);
    }

    /// Writes the engines that are due to disk, one after the other, until one goes on beside other work.
    pub(super) fn write_engines(&mut self, node: u32) {
        loop {
            let Some(process) = self.machine_mut(node).process.as_mut() else { return };
            let Some(id) = process.storage.checkpoints.take_next() else { return };
            let lsm = self.plan.is_lsm(id);
            // It is begun, and goes on when its disk does: others wait meanwhile.
            if !lsm && self.is_held_up(node, id) {
                return self.begin_held_up(node, id);
            }
            // The engine in memory writes its file at once: beside other work it would use a thread.
            self.write_engine(node, id, |replica| match lsm {
                true => replica.begin_checkpoint(&unasked()),
                false => replica.checkpoint().map(|_| Checkpoint::Idle),
            });
        }
    }

    /// True if the disk with a replica's files does nothing now, and that of the log goes on.
    fn is_held_up(&self, node: u32, partition: PartitionId) -> bool {
        self.machine(node).second.holds_up(partition, self.now())
    }

    fn begin_held_up(&mut self, node: u32, partition: PartitionId) {
        if let Some(process) = self.machine_mut(node).process.as_mut() {
            process.storage.checkpoints.begin(partition);
        }
    }

    /// Goes on with the one that is being written, whoever has done its job, as a turn of a real node does.
    pub(super) fn go_on_with_checkpoint(&mut self, node: u32, incarnation: u64) {
        let process = self.machine(node).process.as_ref();
        if let Some(id) = process.and_then(|process| process.storage.checkpoints.under_way()) {
            self.go_on_checkpoint(node, incarnation, id);
        }
    }

    /// Goes on with the one that is being written, if it is this one, and with those that are due behind it.
    pub(super) fn go_on_checkpoint(&mut self, node: u32, incarnation: u64, partition: PartitionId) {
        let process = self.machine(node).process.as_ref();
        let under_way = process.and_then(|process| process.storage.checkpoints.under_way());
        let goes_on = under_way == Some(partition) && !self.is_held_up(node, partition);
        if self.machine(node).incarnation() == Some(incarnation) && goes_on {
            self.write_engine(node, partition, |replica| replica.engine_mut().go_on_checkpoint());
            self.write_engines(node);
        }
    }

    fn write_engine(
        &mut self,
        node: u32,
        partition: PartitionId,
        act: impl FnOnce(&mut replica::Replica) -> Result<Checkpoint, EngineError>,
    ) {
        let lsm = self.plan.is_lsm(partition);
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        let (incarnation, checkpoints) = (process.incarnation, &mut process.storage.checkpoints);
        checkpoints.ended(partition);
        let Some(replica) = process.host.replica_mut(partition) else { return };
        let before = replica.engine().persisted();
        let outcome = act(replica);
        let now = replica.engine().persisted();
        if let Ok(Checkpoint::Ready | Checkpoint::Waiting) = outcome {
            checkpoints.begin(partition);
        }
        if now != before {
            self.trace
                .note(self.now(), format_args!("n{node} makes a component of p{} at {now}", partition.0));
            self.injected(if lsm { "lsm-checkpoint" } else { "checkpoint" });
        }
        match outcome {
            Ok(Checkpoint::Ready) => self.after(1, Event::GoOn { node, incarnation, partition }),
            // It is as it was, and the log keeps what the files lack.
            Ok(_) | Err(EngineError::Full(_)) => {}
            // A disk of the engine in memory that has no room, or fails for now: the log is kept for longer.
            Err(EngineError::Io(_)) if !lsm => {}
            Err(EngineError::Io(error)) => {
                self.trace.note(self.now(), format_args!("n{node} p{}: {error}", partition.0));
                self.engine_failed(node, partition);
            }
            Err(error) => {
                let why = format!("its checkpoint failed: {error}");
                self.input(node, |host, now, out| host.fail(now, partition, why, out));
            }
        }
        self.look_at(node);
    }
}

/// The engine in memory on what a simulated disk has.
fn open_memory(
    disk: &crate::disk::Disk,
    (directory_of, id): (&str, PartitionId),
    (rules, ships): (Rules, bool),
) -> Result<(Box<dyn Engine>, Option<String>), String> {
    let text = |error: types::EngineError| error.to_string();
    let snapshot = || Box::new(SnapshotFile::new(disk, directory_of, id));
    let (engine, trouble) = match MemoryEngine::with_store_and(snapshot(), rules) {
        Ok(engine) => (engine, None),
        Err(types::EngineError::Corrupt(reason)) => {
            disk.remove(&SnapshotFile::name(directory_of, id)).map_err(|error| error.to_string())?;
            (MemoryEngine::with_store_and(snapshot(), rules).map_err(text)?, Some(reason))
        }
        Err(error) => return Err(error.to_string()),
    };
    if !ships {
        return Ok((Box::new(engine), trouble));
    }
    let parts = Box::new(PartFiles::new(disk, directory_of, id));
    Ok((Box::new(PartsEngine::new(engine, snapshot(), parts, rules).map_err(text)?), trouble))
}
