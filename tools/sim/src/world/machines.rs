//! Nodes start, recover what their disk has, and die.

use super::{Event, TAILS, World};
use crate::check::ends::Last;
use crate::disk::Disk;
use crate::network::{Endpoint, Lane};
use crate::node::{
    FIRST, Heard, Hosts, Links, Logs, Machine, Process, Reports, SECOND, SecondDirectory, Storage, Turn,
    Watched, lease_manager,
};
use crate::plan::RunPlan;
use driver::directories::{self, Candidate, STEP_BYTES};
use driver::recovery::{self, InLog, OpenEngine, Reopened};
use driver::tail_file::TailFile;
use engine::MemoryEngine;
use replica::Replica;
use std::collections::BTreeSet;
use types::config::TailReport;
use types::{Engine, LogKind, PartitionId, PartitionRecord, Rules};
use wal::{Log, Owner, RecoveredPartition};

/// The reports of all tails on a disk, as far as they can be read.
fn tails_on(disk: &Disk) -> Vec<TailReport> {
    let read = |name: String| Some(TailFile::decode(disk.read(&name).ok()?.into())?.report);
    disk.names(TAILS).into_iter().filter_map(read).collect()
}

/// Of the partitions `made` on a node, those that have files, and all that the log may have lost as a whole.
fn had(
    with_files: &BTreeSet<PartitionId>,
    made: &BTreeSet<PartitionId>,
    found: &wal::Recovered,
) -> BTreeSet<PartitionId> {
    let lost = |id: &&PartitionId| found.unknown_damaged || found.may_have_torn(**id);
    with_files.iter().chain(made.iter().filter(lost)).copied().collect()
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It dies; what it has written stays.
    Crash,
    /// The machine loses power.
    Power,
    /// It shuts down properly.
    Clean,
}

/// Bytes of log that are read at a time while it is replayed.
const REPLAY_BYTES: usize = 64 << 10;

/// The log's layout: small, so that its limits are met; where it is to be full soon, smaller.
fn log_options(rules: Rules, plan: &RunPlan) -> wal::Options {
    let (segment_bytes, max_bytes) = if plan.small_logs { (4 << 10, 32 << 10) } else { (64 << 10, 1 << 20) };
    wal::Options { segment_bytes, max_bytes, keep_bytes: 8 << 10, spares: 1, rules }
}

impl World {
    /// It is time for a node's process to start. Who is to be down as long as there are no records is started
    /// later.
    pub(super) fn start_in_time(&mut self, node: u32) {
        // Whoever looks into a directory whose disk does nothing waits for that.
        let waits = self.machine(node).second.hangs_until(self.now()).is_some();
        match waits || self.control.rebuilding.leaves_out(node) {
            true => self.after(100_000, Event::Start { node }),
            false => self.start(node),
        }
    }

    /// Starts a node's process on what its disk has.
    fn start(&mut self, node: u32) {
        let now = self.now();
        let (rules, settings) = (self.settings.rules, self.settings.clone());
        let (keep, fresh_store) = (!rules.restarts_lead_nothing(), self.schedule.timing().next() >> 8);
        let options = log_options(rules, &self.plan);
        let storage = Storage::new(self.plan.flushes.log_bytes, options.max_bytes);
        let machine = self.machine_mut(node);
        machine.starts.begin();
        machine.health.tell_syncs(machine.disk.syncs().1);
        if machine.process.is_some() || machine.starts.is_dead() {
            return;
        }
        self.look_for_second(node);
        let opened = self.open_log(node, (fresh_store, keep), options);
        let (member, log, found) = match opened {
            Ok(opened) => opened,
            Err(reason) => return self.start_failed(node, &reason),
        };
        let machine = self.machine_mut(node);
        let (clock, tails) = (machine.clock.read(now).mono, tails_on(&machine.disk));
        let leases = lease_manager(member, &settings, clock);
        let let_in = !machine.disk.is_older();
        let starts = machine.disk.begin_incarnation(now << 8 | u64::from(node));
        let incarnation = self.counts.next_process();
        let equipped = self.plan.equipped((node, incarnation), settings.clone());
        let executors = self.plan.executors;
        let mut process = Process {
            incarnation,
            member,
            host: Hosts::new(executors, member, &equipped, leases),
            logs: Logs::new(log),
            storage,
            links: Links::default(),
            clean_start: found.clean_shutdown,
            starts,
            let_in,
            admitted: false,
            reports: Reports::new(tails),
            heard: Heard::default(),
            turn: Turn::new(now),
            watched: Watched::default(),
        };
        let store = member.store;
        self.trace.note(now, format_args!("n{node} starts as {member} of {store}, process {incarnation}"));
        for (id, part) in &found.partitions {
            match self.recover(node, &process, *id, part) {
                Ok(replica) => process.host.add(replica),
                Err(reason) => return self.start_failed(node, &reason),
            }
        }
        if let Err(reason) = self.recover_unlogged(node, &mut process, &found) {
            return self.start_failed(node, &reason);
        }
        let lost = self.replicas_of(node, &found).into_iter().filter(|id| found.may_have_lost(*id));
        let forgotten = lost.into_iter().find(|id| !process.host.has(*id));
        assert!(forgotten.is_none(), "R10: n{node} distrusts {forgotten:?}, and does not say so");
        let machine = self.machine_mut(node);
        machine.starts.succeeded(member);
        machine.health.restarted();
        machine.process = Some(process);
        self.started(node, incarnation);
    }

    /// Opens the log for the next life. As in the node, where there are replicas a log was begun.
    fn open_log(
        &mut self,
        node: u32,
        (fresh_store, keep): (u64, bool),
        options: wal::Options,
    ) -> Result<(types::Member, Log, wal::Recovered), String> {
        let (with_files, made) = (self.with_files(node), self.machine(node).made.clone());
        let had = |found: &wal::Recovered| had(&with_files, &made, found).into_iter().collect();
        let owner = Owner { begun: !made.is_empty() || !with_files.is_empty(), partitions: &had };
        let machine = self.machine_mut(node);
        let member = machine.next_member(fresh_store, keep).map_err(|error| error.to_string())?;
        let opened = Log::open_for(machine.disk.directory("log"), options, &owner);
        opened.map(|(log, found)| (member, log, found)).map_err(|error| error.to_string())
    }

    fn start_failed(&mut self, node: u32, reason: &str) {
        self.trace.note(self.now(), format_args!("n{node} cannot start: {reason}"));
        let (wait, dead) =
            (200_000 + self.schedule.timing().below(200_000), self.stage.phase() == super::Phase::Healed);
        // What is only wanted for now is no reason to give a disk up.
        let passes = self.is_short(node) || self.machine(node).disk.trouble().fail_writes > 0;
        let machine = self.machine_mut(node);
        let hopeless = !passes && machine.starts.fail();
        if hopeless && !dead && !self.may_lose_disk(node) {
            // Nothing to be done with this disk, and no good copy elsewhere yet: the operator waits.
            self.machine_mut(node).starts.hope();
        } else if hopeless {
            self.replace_disk(node);
        }
        self.machine_mut(node).starts.plan_again();
        self.after(wait, Event::Start { node });
    }

    /// A replica from the log and the newest component.
    fn recover(
        &mut self,
        node: u32,
        process: &Process,
        id: PartitionId,
        part: &RecoveredPartition,
    ) -> Result<Replica, String> {
        let storage_lost = self.machine(node).second.directory_of(id).is_none();
        let (engine, broken) = self.engine_found(node, id)?;
        self.finds_files(node, id, &*engine);
        let persisted = engine.persisted();
        let damaged = part.damaged.as_ref().map(ToString::to_string).or_else(|| broken.clone());
        self.show_start(node, id, part, (persisted.lsn, damaged.is_some()));
        let engine = OpenEngine { engine, broken, storage_lost };
        let who = (process.member, id, self.settings.rules);
        let read = |from| process.logs.log().read(id, from, REPLAY_BYTES);
        let Reopened { replica, .. } = recovery::open(who, engine, InLog::Found(part), read)?;
        self.trace.note(
            self.now(),
            format_args!(
                "n{node} recovers p{} from {} to {}, component at {persisted}, cut {}, damage {damaged:?}",
                id.0, part.base, part.end, part.torn_end
            ),
        );
        Ok(replica)
    }

    /// The partitions that have files in some directory; where the log may have lost some, all of these that
    /// were made here.
    fn replicas_of(&self, node: u32, found: &wal::Recovered) -> BTreeSet<PartitionId> {
        had(&self.with_files(node), &self.machine(node).made, found)
    }

    /// The partitions that have files in some directory.
    fn with_files(&self, node: u32) -> BTreeSet<PartitionId> {
        let disk = &self.machine(node).disk;
        let prefixes = [FIRST, SECOND].map(|directory_of| format!("{directory_of}snapshot/"));
        let number = |name: &str| prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)?.parse().ok());
        let names = prefixes.iter().flat_map(|prefix| disk.names(prefix));
        let named = names.filter_map(|name| number(&name)).map(PartitionId);
        let on_files = self.machines.files().places(node).into_iter().map(|place| place.partition);
        named.chain(on_files).collect()
    }

    /// Partitions that have files, and that the log knows nothing of: its owner lost the log, or it was never
    /// synced. As in a real node, one whose directory cannot be used is damaged.
    fn recover_unlogged(
        &mut self,
        node: u32,
        process: &mut Process,
        found: &wal::Recovered,
    ) -> Result<(), String> {
        for id in self.replicas_of(node, found) {
            if process.host.has(id) {
                continue;
            }
            let storage_lost = self.machine(node).second.directory_of(id).is_none();
            let (engine, broken) = self.engine_found(node, id)?;
            let persisted = engine.persisted().lsn;
            let engine = OpenEngine { engine, broken, storage_lost };
            let who = (process.member, id, self.settings.rules);
            let read = |from| process.logs.log().read(id, from, REPLAY_BYTES);
            let torn = found.may_have_torn(id);
            let in_log = recovery::in_log(None, (found.unknown_damaged, torn));
            let opened = recovery::open(who, engine, in_log, read)?;
            self.show_unlogged(node, id, (persisted, torn), opened.replica.is_damaged());
            process.host.add(opened.replica);
        }
        Ok(())
    }

    /// True if this node is refused room or files for now, and for nothing worse.
    pub(super) fn is_short(&mut self, node: u32) -> bool {
        let passing = self.machines.files_mut().trouble(node).is_passing();
        passing || self.machine(node).disk.trouble().no_files != 0
    }

    /// True if a new replica's files go into the second directory. What else lies in the first one takes more
    /// or less room.
    fn choose_second(&self, node: u32, id: PartitionId) -> bool {
        let Machine { second, process, .. } = self.machine(node);
        if !self.plan.directories || !second.is_there() || second.hangs_until(self.now()).is_some() {
            return false;
        }
        let all = process.as_ref().map_or(0, |process| {
            let on_disk = |replica: &&Replica| !process.logs.is_in_memory(replica.id());
            process.host.replicas().filter(on_disk).count()
        });
        let inside = second.replicas().len();
        let candidate = |id, bytes, replicas| Candidate { id, bytes, free: u64::MAX, replicas };
        let beside = u64::from((id.0 + node) % 2) * STEP_BYTES;
        let both = [candidate(None, beside, all.saturating_sub(inside)), candidate(Some(()), 0, inside)];
        directories::choose(both, 0).is_some()
    }

    /// A replica of a partition that this node has nothing of. Without room for it, it is tried again.
    pub(super) fn new_replica(&mut self, node: u32, record: &PartitionRecord) {
        let (rules, id, log) = (self.settings.rules, record.id, record.policy.log);
        if log == LogKind::Disk && self.choose_second(node, id) {
            self.machine_mut(node).second.house(id);
        }
        let machine = self.machine_mut(node);
        let directory_of = machine.second.directory_of(id).unwrap_or(FIRST);
        if machine.process.is_none() {
            return;
        }
        let engine: Box<dyn Engine> = match log {
            LogKind::Memory => Box::new(MemoryEngine::volatile_with(rules)),
            LogKind::Disk => match self.open_engine(node, directory_of, id) {
                Ok((engine, _)) => engine,
                Err(why) => return self.finds_no_room(node, id, Some(record), &why),
            },
        };
        let machine = self.machine_mut(node);
        let Some(process) = machine.process.as_mut() else { return };
        process.storage.found_room(id);
        if log == LogKind::Memory {
            process.logs.keep_in_memory(id);
        } else {
            machine.made.insert(id);
        }
        let engine = OpenEngine { engine, broken: None, storage_lost: false };
        let read = |_| Err("a new replica has no log");
        match recovery::open((process.member, id, rules), engine, InLog::New, read) {
            Ok(opened) => process.host.add(opened.replica),
            Err(_) => self.end(node, End::Crash),
        }
    }

    /// The files of a replica cannot be made. That is tried again if nothing but room is wanting (F20), and
    /// else the end of the process. `record`: of one that is not there yet.
    pub(super) fn finds_no_room(
        &mut self,
        node: u32,
        id: PartitionId,
        record: Option<&PartitionRecord>,
        why: &str,
    ) {
        let now = self.now();
        if !self.is_short(node) {
            self.end(node, End::Crash);
            return self.start_later(node, 300_000);
        }
        let machine = self.machine_mut(node);
        let clock = machine.clock.read(now).mono;
        let Some(process) = machine.process.as_mut() else { return };
        let news = match record {
            Some(record) => process.storage.wait(record.clone(), clock),
            None => process.storage.waiting.add(id, clock),
        };
        if news {
            self.trace.note(now, format_args!("n{node} finds no room for p{}: {why}", id.0));
            self.injected("replica-waits");
        }
    }

    /// Tries again to make replicas that found no room and are still wanted here.
    pub(super) fn make_waiting(&mut self, node: u32) {
        let now = self.now();
        let machine = self.machine_mut(node);
        let clock = machine.clock.read(now).mono;
        let Some(process) = machine.process.as_mut() else { return };
        if process.storage.waiting.is_empty() {
            return;
        }
        let lost = process.host.storage_lost();
        let due = process.storage.due(&process.member, &lost, clock);
        due.into_iter().for_each(|record| self.adopt(node, record));
    }

    fn started(&mut self, node: u32, incarnation: u64) {
        let from = (Endpoint::Node(node), incarnation);
        for peer in (1..=self.plan.nodes).filter(|peer| *peer != node) {
            for lane in [Lane::Heartbeat, Lane::Peer] {
                let wait = 100 + self.schedule.timing().below(2_000);
                self.after(wait, Event::Dial { from, to: Endpoint::Node(peer), lane });
            }
        }
        for id in 0..self.plan.controllers {
            let wait = 100 + self.schedule.timing().below(2_000);
            self.after(wait, Event::Dial { from, to: Endpoint::Controller(id), lane: Lane::Control });
        }
        self.dial_old_controller(node);
        let wait = self.schedule.timing().below(20_000);
        self.after(wait, Event::Tick { node, incarnation });
        let wait = self.schedule.timing().below(60_000);
        self.after(wait, Event::Status { node, incarnation });
        let wait = 200_000 + self.schedule.timing().below(2_000_000);
        self.after(wait, Event::Checkpoint { node, incarnation });
        self.note_damage(node);
        self.look_at(node);
        self.strand_again(node);
    }

    /// Ends a node's process.
    pub(super) fn end(&mut self, node: u32, how: End) {
        let now = self.now();
        let machine = self.machine_mut(node);
        let hung = machine.standing.has_hung();
        machine.standing.clear();
        let Some(process) = machine.process.take() else {
            if how == End::Power {
                machine.disk.lose_power();
                self.machines.files_mut().stopped(node, true);
            }
            return;
        };
        machine.starts.ended(now);
        self.disturbs(Some(node));
        let (incarnation, member) = (process.incarnation, process.member);
        // On an older copy of its disk it has the name of a life that was another one's, and nobody heard it.
        if process.let_in {
            self.checks.ends.ended(member, process.host.replicas().map(last));
        }
        let machine = self.machine_mut(node);
        if how == End::Power {
            machine.disk.lose_power();
        }
        if how == End::Clean {
            // A log that has failed cannot be shut down, and an executor that hangs may lack something
            // (PR-424).
            let _ = process.logs.shutdown(now, process.storage.held.is_empty() && !hung);
        } else {
            if self.machines.files_mut().stop(node) {
                self.injected("lsm-job-cut");
            }
            drop(process);
        }
        if self.machines.files_mut().stopped(node, how == End::Power) {
            self.injected("lsm-back-to-synced");
        }
        self.trace.note(now, format_args!("n{node} ends: {how:?}, life {incarnation}"));
        self.checks.ended(now, member);
        self.drop_links(Endpoint::Node(node), how != End::Power);
    }

    /// Has a node's process start after a while.
    pub(super) fn start_later(&mut self, node: u32, us: u64) {
        let machine = self.machine_mut(node);
        if machine.starts.plan() {
            self.after(us, Event::Start { node });
        }
    }

    /// The machine gets an empty disk.
    pub(super) fn replace_disk(&mut self, node: u32) {
        self.end(node, End::Power);
        self.trace.note(self.now(), format_args!("n{node} gets an empty disk"));
        self.machines.files_mut().wipe(node, false);
        let machine = self.machine_mut(node);
        machine.disk.wipe();
        machine.second = SecondDirectory::default();
        machine.kept = Default::default();
        (machine.asked, machine.generation) = (0, Default::default());
        machine.made.clear();
        machine.starts.renew();
        let id = types::NodeId(node);
        self.checks.storage.wiped(id);
        self.faults(node);
    }

    /// A disk no longer holds what it was given, or may not.
    pub(super) fn faults(&mut self, node: u32) {
        let machine = self.machine_mut(node);
        machine.health.impair();
        self.disturbs(Some(node));
        self.checks.survival.faulted(self.now(), types::NodeId(node));
    }

    /// The same, but whatever a start finds of it shows: nothing can be taken for a torn end.
    pub(super) fn faults_soundly(&mut self, node: u32) {
        let tears = self.machine(node).health.tears();
        self.faults(node);
        self.machine_mut(node).health.impair_plainly(tears);
    }

    /// Keeps the list of damaged replicas, and tells it when it changes.
    pub(super) fn note_damage(&mut self, node: u32) {
        let now = self.now();
        let machine = self.machine_mut(node);
        let clock = machine.clock.read(now);
        let Some(process) = machine.process.as_mut() else { return };
        let status = process.host.status(clock);
        let is_damaged = |status: &&wire::control::ReplicaStatus| status.role == wire::control::Role::Damaged;
        let damaged: Vec<PartitionId> =
            status.iter().filter(is_damaged).map(|status| status.partition).collect();
        if !process.reports.damage(damaged) {
            return;
        }
        let conns: Vec<_> = process.links.controllers();
        for conn in conns {
            self.register(node, conn);
        }
    }
}

/// How far a replica is, before what it has is gone.
pub(super) fn last(replica: &Replica) -> (PartitionId, Last) {
    let (end, applied) = (replica.log().end(), replica.engine().applied().lsn);
    (replica.id(), Last { end, applied })
}
