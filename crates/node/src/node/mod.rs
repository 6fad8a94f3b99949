//! The executor: one thread that owns all of a node's replicas and connections.
//!
//! A turn: wait for events, feed what came to [`Host`], and when nothing is left to read, flush the host, carry out its
//! outputs in order, hand the turn's records to the log's thread in one submission, and write each connection's buffer once.
//!
//! | file | what |
//! | --- | --- |
//! | `staging` | files of bulk loads for which there is no room |
//! | `start` | directory, log, engines, doors, threads |
//! | `links`, `peers` | connections: all of them; whom we connect to |
//! | `dispatch` | messages in |
//! | `carry` | outputs out |
//! | `cluster_map` | what controllers tell; replicas come and go |
//! | `timer` | ticks, status, checkpoints, room on the disk |
//! | `blocked` | partitions whose divergent tail finds no room |
//! | `decommission` | replicas that have moved away |
//! | `data_dirs` | several directories for replicas |
//! | `room` | replicas for which there is no room |
//! | `ending` | handing over, the clean-shutdown mark |
//! | `freeze` | a node that freezes itself, for tests |

mod blocked;
mod carry;
mod cluster_map;
mod data_dirs;
mod decommission;
mod dispatch;
mod ending;
mod freeze;
mod links;
mod peers;
mod room;
mod staging;
mod start;
mod target;
mod timer;

pub use start::{Running, start};

use crate::clock;
use crate::config::{Config, FreezeAt};
use crate::datadir::DataDir;
use crate::failure::Failure;
use crate::journal::Journal;
use crate::lease_manager::{HeartbeatThread, SharedLeases};
use crate::metrics::Metrics;
use crate::net::conn::Got;
use crate::shared_status::SharedStatus;
use crate::stop::Stop;
use crate::stores::{Found, Meta};
use blocked::BlockedOutputs;
use cluster_map::View;
use data_dirs::DataDirs;
use ending::Ending;
use links::Links;
use mio::Events;
use peers::{Controllers, Peers};
use replica::{Host, Output, ReadFor};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use timer::Timer;
use types::config::{Addresses, TailReport};
use types::engine::Wake;
use types::{Lsn, Micros, Now, PartitionId};
use wire::control::Served;

/// A read of the log that was asked for.
struct LogRead {
    partition: PartitionId,
    from: Lsn,
    max_bytes: usize,
    purpose: ReadFor,
}

/// Reads of the log in one turn: each is of a bounded length, and clients wait meanwhile.
const LOG_READS: usize = 4;

/// The executor's state.
struct Node {
    config: Config,
    dir: DataDir,
    now: Now,
    host: Host<SharedLeases>,
    leases: SharedLeases,
    lease_manager: HeartbeatThread,
    links: Links,
    peers: Peers,
    controllers: Controllers,
    journal: Journal,
    /// Wakes this thread for an engine that is being written to disk.
    wake: Wake,
    /// Outputs of the host that are not carried out yet.
    out: Vec<Output>,
    log_reads: VecDeque<LogRead>,
    /// Partitions whose replica here installs files.
    installing: BTreeSet<PartitionId>,
    view: View,
    /// Replicas there are, and what they are made of.
    metas: BTreeMap<PartitionId, Meta>,
    /// What the log had of partitions that have no replica yet.
    found: Found,
    clean_start: bool,
    addresses: Addresses,
    /// Tails on this disk.
    tails: Vec<TailReport>,
    /// Partitions that wait for room for a divergent tail.
    blocked: BTreeMap<PartitionId, BlockedOutputs>,
    /// Partitions whose replica finds no room here, and when it is tried again.
    waiting: BTreeMap<PartitionId, Micros>,
    /// Replicas that have no place here any more, and since when.
    moved: BTreeMap<PartitionId, Micros>,
    /// Where replicas' files are.
    data_dirs: DataDirs,
    /// Failovers to this node in this life of it, with how they went.
    served: VecDeque<Served>,
    timer: Timer,
    ending: Ending,
    shared_status: Arc<SharedStatus>,
    metrics: Arc<Metrics>,
    faults_version: u64,
    /// Where it freezes itself, until it has.
    freeze_at: Option<FreezeAt>,
}

impl Node {
    /// Runs until it is asked to stop, or cannot go on.
    fn run(mut self) -> Result<(), Failure> {
        let mut events = Events::with_capacity(1024);
        loop {
            let busy = !self.log_reads.is_empty() || self.host.aggregates();
            let wait = if busy { Duration::ZERO } else { self.timer.wait(clock::mono()) };
            let wait = self.links.patience(wait);
            if let Err(error) = self.links.poll.poll(&mut events, Some(wait))
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                return Err(Failure::new(1, format!("the system's poll failed: {error}")));
            }
            self.now = clock::now();
            if self.shared_status.stop.asked() == Stop::Now {
                return Err(Failure::new(1, "stopped at once"));
            }
            if let Some(why) = self.shared_status.stop.broken() {
                // The log's thread says more before it ends.
                self.journal.synced()?;
                return Err(Failure::new(1, format!("this node stops: {why}")));
            }
            self.take_cut();
            for (key, to_the_end) in self.links.take_unread() {
                self.read(key, to_the_end)?;
            }
            for event in &events {
                if let Some((key, ended)) = self.links.on_event(event, self.now.mono) {
                    self.read(key, ended)?;
                }
            }
            self.turn()?;
            if self.ending.is_over() {
                return self.end();
            }
        }
    }

    /// What follows from the inputs of a turn.
    fn turn(&mut self) -> Result<(), Failure> {
        let synced = self.journal.synced()?;
        if !synced.is_empty() {
            self.host.synced(self.now, &synced, &mut self.out);
        }
        self.serve_log_reads();
        self.host.aggregate(self.now, &mut self.out);
        self.checkpoint()?;
        self.install();
        if self.timer.is_due(self.now.mono) {
            self.tick()?;
        }
        self.freeze_by_status();
        self.host.flush(self.now, &mut self.out);
        self.carry_out()?;
        self.journal.submit(self.now.mono);
        self.links.flush();
        self.note_closed();
        let end = clock::mono();
        self.metrics.turn_max_us.fetch_max(end.since(self.now.mono).0, Ordering::Relaxed);
        self.lease_manager.shared().pulse.lease_manager(end, self.journal.oldest_pending());
        Ok(())
    }

    /// Reads a connection, to its end or until others should have their turn.
    fn read(&mut self, key: u64, to_the_end: bool) -> Result<(), Failure> {
        for _ in 0..self.links.reads() {
            let Some(got) = self.links.read(key, to_the_end) else { return Ok(()) };
            self.handle_all(key)?;
            match got {
                Got::More => {}
                Got::All => return Ok(()),
                Got::Closed => {
                    self.links.close(key);
                    return Ok(());
                }
            }
        }
        self.links.read_on(key, to_the_end);
        Ok(())
    }

    /// Handles every message that a connection has brought.
    fn handle_all(&mut self, key: u64) -> Result<(), Failure> {
        loop {
            match self.links.next(key) {
                Ok(Some((role, message))) => {
                    self.on_message(key, role, message)?;
                    self.freeze_by_status();
                }
                Ok(None) => return Ok(()),
                Err(why) => {
                    self.links.close_unsound(key, &why, self.now.mono);
                    return Ok(());
                }
            }
        }
    }

    /// Goes on with installations; each waits for a thread that wakes this one.
    fn install(&mut self) {
        let Node { installing, host, now, wake, out, .. } = self;
        installing.retain(|id| host.install(*now, *id, wake, out));
    }

    /// Reads entries back for members that are behind.
    fn serve_log_reads(&mut self) {
        for _ in 0..LOG_READS {
            let Some(read) = self.log_reads.pop_front() else { return };
            let entries = self.journal.read(read.partition, read.from, read.max_bytes);
            self.host.log_read(self.now, read.partition, read.purpose, entries, &mut self.out);
        }
    }
}
