//! What happens by the clock: ticks of the replicas, status, checkpoints, a look at the disk's room.

use super::Node;
use crate::clock;
use crate::failure::Failure;
use crate::watch::free_bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::engine::Checkpoint;
use types::{EngineError, Micros, PartitionId};
use wire::Message;
use wire::control::{NodeStatus, Role};

/// How often the disk's room and the logs' lengths are looked at.
const POLL_INTERVAL: Micros = Micros::from_millis(500);
/// The same while a checkpoint could make room for what waits.
const LOOK_WHEN_FULL: Micros = Micros::from_millis(50);
/// How often what a failover would replay is compared with the tables' targets.
const LOOK_AT_TARGETS: Micros = Micros::from_millis(100);
/// What a component takes on the disk beside its rows, at most.
const COMPONENT: u64 = 1 << 20;
/// A proposal that comes again within this time was not answered.
const SAME_PROPOSAL: Micros = Micros::from_millis(1000);

/// When what is due, and what was found the last time.
#[derive(Debug)]
pub struct Timer {
    interval: Micros,
    next_tick: Micros,
    /// Controllers must hear something at least so often.
    status_every: Micros,
    next_status: Micros,
    next_look: Micros,
    next_targets: Micros,
    /// Partitions whose log has grown past the budget.
    to_checkpoint: Vec<PartitionId>,
    /// The partition whose engine is being written to disk, one at a time, since when, and where it stands.
    checkpoint: Option<(PartitionId, Instant, Checkpoint)>,
    /// Writes are refused: there is no room.
    pub full: bool,
    low_room: bool,
    /// Free bytes where the data directory is.
    free: u64,
    /// It was said that a checkpoint found no room.
    told_full: bool,
    /// Partitions whose replica here is damaged.
    pub damaged: Vec<PartitionId>,
    led: BTreeMap<PartitionId, types::Term>,
    /// Checksums of proposals that are not answered, and when they were made.
    proposals: BTreeMap<u32, Micros>,
}

impl Timer {
    /// One that is due now.
    pub fn new(settings: &replica::Settings, now: Micros) -> Timer {
        Timer {
            interval: settings.heartbeat,
            next_tick: now,
            status_every: Micros(settings.suspect.0 / 2),
            next_status: now,
            next_look: now,
            next_targets: now,
            to_checkpoint: Vec::new(),
            checkpoint: None,
            full: false,
            low_room: false,
            free: u64::MAX,
            told_full: false,
            damaged: Vec::new(),
            led: BTreeMap::new(),
            proposals: BTreeMap::new(),
        }
    }

    /// How long until something is due.
    pub fn wait(&self, now: Micros) -> Duration {
        let wait = if self.checkpoint_is_due() { Micros::ZERO } else { self.next_tick.since(now) };
        // Rounded up: the system would wake a little too early, for nothing.
        Duration::from_millis(wait.0.div_ceil(1000))
    }

    /// True if a tick is due.
    pub fn is_due(&self, now: Micros) -> bool {
        now >= self.next_tick
    }

    /// True if a checkpoint can begin or go on without waiting for the disk.
    fn checkpoint_is_due(&self) -> bool {
        match self.checkpoint {
            Some((_, _, stands)) => stands == Checkpoint::Ready,
            None => !self.to_checkpoint.is_empty(),
        }
    }

    /// A checkpoint of this partition is due, however long its log is.
    pub fn checkpoint_soon(&mut self, partition: PartitionId) {
        let under_way = self.checkpoint.is_some_and(|(id, ..)| id == partition);
        if !under_way && !self.to_checkpoint.contains(&partition) {
            self.to_checkpoint.push(partition);
        }
    }

    /// Free bytes where the data directory is.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// The next status goes out with the next tick.
    pub fn status_soon(&mut self) {
        self.next_status = Micros::ZERO;
    }

    /// True if the very same was proposed a moment ago: whoever got it does not answer.
    pub fn proposed_before(&mut self, now: Micros, text: &str) -> bool {
        self.proposals.retain(|_, at| now.since(*at) < SAME_PROPOSAL);
        self.proposals.insert(crc32c::crc32c(text.as_bytes()), now).is_some()
    }

    /// A controller answered a proposal.
    pub fn answered(&mut self) {
        self.proposals.clear();
    }
}

impl Node {
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        let now = self.now.mono;
        self.timer.next_tick = now + self.timer.interval;
        self.host.rest_indexes(self.timer.full);
        self.host.tick(self.now, &mut self.out);
        self.links.tidy(now);
        let (me, cluster) = (self.host.me(), self.dir.identity().cluster);
        let secret = &self.config.secret;
        self.controllers.dial(me, cluster, secret, &mut self.links, now);
        if let Some(cluster) = cluster {
            self.peers.dial(me, cluster, secret, &mut self.links, now);
        }
        if now >= self.timer.next_look {
            self.timer.next_look = now + if self.journal.is_full() { LOOK_WHEN_FULL } else { POLL_INTERVAL };
            self.look_at_disk();
            self.forget_discarded();
            self.leave_moved()?;
        }
        if now >= self.timer.next_targets {
            self.timer.next_targets = now + LOOK_AT_TARGETS;
            self.beyond_targets().into_iter().for_each(|id| self.timer.checkpoint_soon(id));
        }
        self.retry_blocked()?;
        self.look_at_engines()?;
        self.keep_data_dirs()?;
        self.make_waiting()?;
        self.timer.full = self.journal.is_full() || self.timer.low_room;
        if now >= self.timer.next_status {
            self.timer.next_status = now + self.timer.status_every;
            self.tell_status();
        }
        self.ending_tick();
        Ok(())
    }

    /// A cut is in force for everything that is read after it was asked for.
    pub(super) fn take_cut(&mut self) {
        let Some(faults) = &self.shared_status.faults else { return };
        if let Some(cut) = faults.news(&mut self.faults_version) {
            self.links.set_cut(cut);
        }
    }

    /// Finds the logs that are too long, and the disk's room.
    fn look_at_disk(&mut self) {
        self.timer.free = free_bytes(self.dir.root());
        let for_log = free_bytes(&self.config.log.place(self.dir.root()));
        self.timer.low_room = self.timer.free.min(for_log) < self.config.log.reserve_bytes;
        // Where there is no room, every checkpoint may free some of the log.
        let is_full = self.journal.is_full() || self.timer.low_room;
        if is_full {
            self.host.short_of_room(self.now, &mut self.out);
        }
        let budget = if is_full { 0 } else { self.config.log.checkpoint_bytes };
        let long = self.host.replicas().filter(|replica| {
            let persisted = replica.engine().persisted().lsn;
            replica.engine().is_persistent()
                && replica.engine().published().lsn > persisted
                && self.journal.bytes_since(replica.id(), persisted.next()) > budget
        });
        let mut due: BTreeSet<PartitionId> = long.map(|replica| replica.id()).collect();
        due.extend(self.holding_back());
        if let Some((under_way, ..)) = self.timer.checkpoint {
            due.remove(&under_way);
        }
        due.extend(std::mem::take(&mut self.timer.to_checkpoint));
        self.timer.to_checkpoint = due.into_iter().collect();
    }

    /// The partitions with little in the log that keep much of others in it: segments are given back from the oldest on.
    fn holding_back(&mut self) -> Vec<PartitionId> {
        let log = &self.config.log;
        // What all partitions may have together, if each stays below its own budget.
        let together = log.checkpoint_bytes.saturating_mul(self.metas.len() as u64 + 1);
        if self.journal.disk_bytes() <= together.min(log.options.max_bytes / 2) {
            return Vec::new();
        }
        let mut holding = self.journal.holding_back();
        holding.retain(|id| {
            let replica = self.host.replica_mut(*id);
            replica.is_some_and(|replica| {
                let engine = replica.engine();
                engine.is_persistent() && engine.published().lsn > engine.persisted().lsn
            })
        });
        holding
    }

    /// Goes on writing one engine to disk, beside its other work, or begins with another.
    pub(super) fn checkpoint(&mut self) -> Result<(), Failure> {
        let (id, since, begins) = match self.timer.checkpoint {
            Some((id, since, _)) => (id, since, false),
            None => match self.timer.to_checkpoint.pop() {
                Some(id) if self.fits(id) => (id, Instant::now(), true),
                _ => return Ok(()),
            },
        };
        self.timer.checkpoint = None;
        let Some(replica) = self.host.replica_mut(id) else { return Ok(()) };
        let before = replica.engine().persisted();
        let outcome = if begins {
            replica.begin_checkpoint(&self.wake)
        } else {
            replica.engine_mut().go_on_checkpoint()
        };
        match outcome {
            Ok(Checkpoint::Idle) if replica.engine().persisted() == before => {}
            Ok(Checkpoint::Idle) => {
                self.timer.told_full = false;
                self.metrics.checkpointed(since.elapsed());
            }
            Ok(stands) => self.timer.checkpoint = Some((id, since, stands)),
            // It is as it was, and the log keeps what the files lack.
            Err(error @ EngineError::Full(_)) => {
                if !std::mem::replace(&mut self.timer.told_full, true) {
                    eprintln!("partition {id}: {error}; it is tried again");
                }
            }
            Err(EngineError::Io(error)) => self.disk_failed(id, &error.to_string())?,
            Err(error) => {
                self.host.fail(self.now, id, format!("its checkpoint failed: {error}"), &mut self.out);
            }
        }
        Ok(())
    }

    /// True if there is room for what a checkpoint of this partition writes.
    fn fits(&self, id: PartitionId) -> bool {
        let bytes = self.host.replica(id).map_or(0, |replica| replica.engine().memory_bytes());
        bytes.saturating_add(bytes / 4).saturating_add(COMPONENT) <= self.free_for(id)
    }

    /// Puts the status up and sends it to every controller.
    fn tell_status(&mut self) {
        let status = self.status();
        let damaged: Vec<PartitionId> = status
            .replicas
            .iter()
            .filter(|replica| replica.role == Role::Damaged)
            .map(|replica| replica.partition)
            .collect();
        self.count_terms(&status);
        if damaged != self.timer.damaged {
            self.timer.damaged = damaged;
            self.register_again();
        }
        let message = Message::NodeStatus(status);
        for key in self.controllers.all() {
            self.links.push(key, &message);
        }
        let Message::NodeStatus(status) = message else { unreachable!("made above") };
        self.shared_status.put_status(status);
        self.shared_status.put_cluster_map(self.now.mono, self.view.version, || self.view.map());
    }

    fn count_terms(&mut self, status: &NodeStatus) {
        let led = status.replicas.iter().filter(|replica| replica.role == Role::Primary);
        let led: BTreeMap<_, _> = led
            .filter_map(|replica| {
                let record = self.view.partitions.get(&replica.partition)?;
                Some((replica.partition, record.term))
            })
            .collect();
        let new = led.iter().filter(|(id, since)| self.timer.led.get(id) != Some(since)).count();
        self.metrics.primary_changes.fetch_add(new as u64, Ordering::Relaxed);
        self.timer.led.extend(led);
    }

    pub(super) fn status(&self) -> NodeStatus {
        let now = clock::mono();
        let stats = self.journal.stats();
        self.metrics.fsyncs.store(stats.fsyncs, Ordering::Relaxed);
        self.metrics.log_bytes.store(stats.bytes, Ordering::Relaxed);
        self.metrics.log_entries.store(stats.entries, Ordering::Relaxed);
        let mut replicas = self.host.status(self.now);
        for replica in replicas.iter_mut().filter(|replica| self.holds(replica.partition)) {
            replica.waits = "no room to set its divergent tail aside".into();
        }
        for replica in replicas.iter_mut().filter(|replica| self.waiting.contains_key(&replica.partition)) {
            replica.waits = "no room for its files".into();
        }
        let heard = self.leases.heard_nodes().into_iter().filter(|(_, at)| *at > Micros::ZERO);
        NodeStatus {
            member: self.host.me(),
            hears: heard.map(|(node, at)| (node, now.since(at).0)).collect(),
            replicas,
            log_bytes: self.journal.bytes(),
            fsyncs: stats.fsyncs,
            commits: self.host.replicas().map(|replica| replica.commits()).sum(),
            sent_bytes: self.metrics.sent.load(Ordering::Relaxed),
            cpu_us: clock::cpu_us(),
            full: self.timer.full || !self.blocked.is_empty() || !self.waiting.is_empty(),
            tails: self.tails.clone(),
            directories: self.directories(),
        }
    }
}
