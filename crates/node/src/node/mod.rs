//! An executor: one thread that owns replicas and connections. A node has one of them or several, each with
//! the partitions that are its own ([`types::Executors`]). The coordinator has what a node has but once: with
//! several executors it is a thread beside them, without partitions.
//!
//! A turn: wait for events, feed what came to [`Host`], and when nothing is left to read, flush the host,
//! carry out its outputs in order, hand the turn's records to the log's thread in one submission, and write
//! each connection's buffer once.
//!
//! Parts, each of which owns its state and knows none of those that are named after it:
//!
//! | file | what |
//! | --- | --- |
//! | `timer` | the time of a turn, and when what is due |
//! | `view` | the cluster's records, as controllers have told them |
//! | `replicas` | the replicas, and what they asked for and were not given yet |
//! | `links`, `pair`, `peers`, `connections` | connections: all of them; the one that two nodes share; whom we connect to; what goes to whom |
//! | `mailbox` | what executors hand over to each other |
//! | `resolver`, `heartbeat_targets` | what addresses mean that are names; where heartbeats go |
//! | `room`, `data_dirs`, `storage` | room on the disk; directories; what is on the disks of which replica |
//! | `tails` | divergent tails on the disk, and partitions that wait for room for one |
//! | `checkpoints` | which engines are written to disk |
//! | `records` | what of the cluster's records is kept on the disk, and what waits until it is |
//! | `reports` | what this node tells of itself |
//! | `ending`, `faults` | how a node ends; cuts, and a node that freezes itself, for tests |
//! | `target`, `staging` | what a failover would replay; files of bulk loads for which there is no room |
//!
//! And what needs several of them, as methods of [`Node`]:
//!
//! | file | what |
//! | --- | --- |
//! | `start` | directory, log, engines, doors, threads |
//! | `dispatch` | messages in |
//! | `handover` | messages in, and connections, that belong to another executor |
//! | `carry` | outputs out |
//! | `cluster_map` | what controllers tell; replicas come and go |
//! | `rebuild` | controllers that were replaced, and what is told when the records are made anew |
//! | `tick` | ticks, status, checkpoints, room on the disk, lost directories |
//! | `decommission` | replicas that have moved away |

mod carry;
mod checkpoints;
mod cluster_map;
mod connections;
mod data_dirs;
mod decommission;
mod dispatch;
mod ending;
mod faults;
mod handover;
mod heartbeat_targets;
mod links;
mod mailbox;
mod pair;
mod peers;
mod rebuild;
mod records;
mod replicas;
mod reports;
mod resolver;
mod room;
mod staging;
mod start;
mod storage;
mod tails;
mod target;
mod tick;
mod timer;
mod view;

pub use start::{Running, start};

use crate::clock;
use crate::failure::Failure;
use crate::journal::Journal;
use crate::net::conn::Got;
use crate::stop::Watched;
use checkpoints::Checkpoints;
use connections::Connections;
use ending::Ending;
use faults::Faults;
use links::Closed;
use mailbox::Handed;
use mio::Events;
use records::Records;
use replicas::Replicas;
use reports::Reports;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::Storage;
use tails::Tails;
use timer::Timer;
use types::Now;
use view::View;

/// An executor's state.
struct Node {
    timer: Timer,
    records: Records,
    view: View,
    replicas: Replicas,
    connections: Connections,
    journal: Journal,
    storage: Storage,
    tails: Tails,
    checkpoints: Checkpoints,
    reports: Reports,
    ending: Ending,
    faults: Faults,
}

impl Node {
    /// Runs until it is asked to stop, or cannot go on.
    fn run(mut self) -> Result<(), Failure> {
        let mut events = Events::with_capacity(1024);
        loop {
            let busy = self.replicas.is_busy() || self.checkpoints.are_due();
            let wait = if busy { Duration::ZERO } else { self.timer.wait(clock::mono()) };
            if let Err(error) = self.connections.links().wait(&mut events, wait)
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                return Err(Failure::new(1, format!("the system's poll failed: {error}")));
            }
            self.timer.begin(clock::now());
            if self.ending.is_at_once() {
                return Err(Failure::new(1, "stopped at once"));
            }
            if let Some(why) = self.ending.broken() {
                // The log's thread says more before it ends.
                self.journal.synced()?;
                return Err(Failure::new(1, format!("this node stops: {why}")));
            }
            // A cut is in force for everything that is read after it was asked for.
            if let Some(cut) = self.faults.take_cut() {
                self.connections.set_cut(cut);
            }
            self.faults.hang(self.connections.others().me().number);
            self.take_handed()?;
            for (key, to_the_end) in self.connections.links().take_unread() {
                self.read(key, to_the_end)?;
            }
            for (key, ended) in self.connections.links().on_local(self.timer.mono()) {
                self.read(key, ended)?;
            }
            for event in &events {
                if let Some((key, ended)) = self.connections.links().on_event(event, self.timer.mono()) {
                    self.read(key, ended)?;
                }
            }
            self.turn()?;
            if self.ending.is_over() && self.others_have_ended() {
                return self.end();
            }
        }
    }

    /// The same for an executor beside the coordinator: what ends it by itself ends the node.
    fn run_beside(self, watched: Watched) {
        let others = self.connections.others().clone();
        if let Err(failure) = self.run() {
            others.give_coordinator(Handed::Failed(failure));
        }
        watched.end_well();
    }

    /// What follows from the inputs of a turn.
    fn turn(&mut self) -> Result<(), Failure> {
        let now = self.timer.now();
        self.act_on_kept()?;
        let synced = self.journal.synced()?;
        if !synced.is_empty() {
            self.replicas.input(now, |host, now, out| host.synced(now, &synced, out));
        }
        self.replicas.serve_log_reads(now, &self.journal);
        self.aggregate();
        self.checkpoint()?;
        self.replicas.install(now);
        if self.timer.tick_is_due() {
            self.tick()?;
        }
        self.faults.freeze_by_status(self.replicas.host(), now);
        self.replicas.input(now, |host, now, out| host.flush(now, out));
        self.carry_out()?;
        self.journal.submit(now.mono);
        self.connections.links().flush();
        self.note_closed(now);
        let end = clock::mono();
        self.reports.metrics().turn_max_us.fetch_max(end.since(now.mono).0, Ordering::Relaxed);
        let pending = [self.journal.oldest_pending(), self.records.oldest_waiting()];
        self.connections.alive(end, pending.into_iter().flatten().min());
        Ok(())
    }

    /// Notes which connections are gone. The turns at rows that clients have over them are others' from here
    /// on (PR-374), also where requests were handed over.
    fn note_closed(&mut self, now: Now) {
        let (clients, members) = self.connections.note_closed(now.mono);
        members.into_iter().for_each(|member| self.connected(member));
        for Closed { key, handed, .. } in clients {
            if handed {
                self.connections.others().give_all(|| Handed::ClientGone(key));
            }
            self.replicas.input(now, |host, now, out| host.client_gone(now, key, out));
        }
    }

    /// Goes on with what takes several turns. How long a call of a procedure runs is measured here: the host
    /// reads no clock.
    fn aggregate(&mut self) {
        let now = self.timer.now();
        let began = self.replicas.host().calls().then(clock::thread_cpu);
        let ran = self.replicas.input(now, |host, now, out| host.aggregate(now, out));
        if let (Some(partition), Some(began)) = (ran, began) {
            self.replicas.host_mut().ran(partition, clock::thread_cpu().since(began));
        }
    }

    /// Reads a connection, to its end or until others should have their turn.
    fn read(&mut self, key: u64, to_the_end: bool) -> Result<(), Failure> {
        for _ in 0..self.connections.links().reads() {
            let Some(got) = self.connections.links().read(key, to_the_end) else { return Ok(()) };
            self.handle_all(key)?;
            match got {
                Got::More => {}
                Got::All => return Ok(()),
                Got::Closed => {
                    self.connections.links().close(key);
                    return Ok(());
                }
            }
        }
        self.connections.links().read_on(key, to_the_end);
        Ok(())
    }

    /// Handles every message that a connection has brought.
    fn handle_all(&mut self, key: u64) -> Result<(), Failure> {
        loop {
            match self.connections.links().next(key) {
                Ok(Some((role, message))) => {
                    self.on_message(key, role, message)?;
                    self.faults.freeze_by_status(self.replicas.host(), self.timer.now());
                }
                Ok(None) => return Ok(()),
                Err(why) => {
                    self.connections.links().close_unsound(key, &why, self.timer.mono());
                    return Ok(());
                }
            }
        }
    }
}
