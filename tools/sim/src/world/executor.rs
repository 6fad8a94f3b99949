//! A node's executor: inputs go to the replicas, and what they ask is done in order, as a real node does it.

use super::machines::End;
use super::{Event, World};
use crate::network::{Conn, Endpoint};
use crate::node::{Hosts, Process};
use driver::admission::{self, Admission};
use replica::{ClientRef, Notice, Output};
use types::{Executors, Member, Micros, Now, PartitionId, PartitionRecord};
use wire::control::{ClusterMap, ExecutorStatus, NodeStatus, Propose};
use wire::{Message, PeerMessage, Reply, Request, Status};

/// Between two reports to the controllers.
const STATUS: u64 = 60_000;

impl World {
    /// Hands an input to a node's replicas, does what they ask, and has them flushed soon.
    pub(super) fn input(&mut self, node: u32, act: impl FnOnce(&mut Hosts, Now, &mut Vec<Output>)) {
        let now = self.now();
        let machine = self.machine_mut(node);
        let clock = machine.clock.read(now);
        let Some(process) = machine.process.as_mut() else { return };
        let mut out = process.turn.begin(now);
        act(&mut process.host, clock, &mut out);
        let incarnation = process.incarnation;
        if process.turn.want_flush() {
            let wait = 5 + self.schedule.timing().below(60);
            self.after(wait, Event::Flush { node, incarnation });
        }
        self.look_at_files(node);
        self.carry_out(node, incarnation, &mut out);
        self.look_at(node);
        if let Some(process) = self.machine_mut(node).process.as_mut() {
            process.turn.end(out);
        }
        self.look_at_engines(node);
    }

    pub(super) fn flush(&mut self, node: u32, incarnation: u64) {
        if self.machine(node).incarnation() != Some(incarnation) {
            return;
        }
        let slice = self.plan.calls.map(|calls| Micros(calls.slice_us));
        self.input(node, |host, now, out| {
            let ran = host.aggregate(now, out).zip(slice);
            if let Some((partition, time)) = ran {
                host.ran(partition, time);
            }
            host.flush(now, out);
        });
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        process.turn.flushed();
        // As in a node: what is done in slices goes on in the next turn.
        if process.host.aggregates() && process.turn.want_flush() {
            let wait = 5 + self.schedule.timing().below(60);
            self.after(wait, Event::Flush { node, incarnation });
        }
    }

    fn carry_out(&mut self, node: u32, incarnation: u64, out: &mut Vec<Output>) {
        for output in out.drain(..) {
            let process = self.machine_mut(node).process.as_mut();
            let Some(process) = process.filter(|process| process.incarnation == incarnation) else { return };
            if let Some(output) = process.storage.held.hold(output) {
                self.carry(node, incarnation, output);
            }
        }
        self.submit_log(node);
    }

    pub(super) fn carry(&mut self, node: u32, incarnation: u64, output: Output) {
        match output {
            Output::Log(op) => {
                self.show_log(node, &op);
                self.log(node, op);
            }
            Output::Send { to, message } => self.send_peer(node, to, message),
            Output::Reply { to, reply, valid_until, .. } => {
                self.released(node, to, &reply);
                let wait = 1 + self.schedule.timing().below(40);
                self.after(wait, Event::Leave { node, incarnation, to, reply, valid_until });
            }
            Output::Propose(propose) => self.propose(node, propose),
            Output::Suspect(suspect) => {
                self.checks.suspected(self.now(), &suspect);
                self.tell_controllers(node, Message::Suspect(suspect));
            }
            Output::Served(served) => {
                if let Some(process) = self.machine_mut(node).process.as_mut() {
                    process.reports.serve(served.clone());
                }
                self.tell_controllers(node, Message::Served(served));
            }
            Output::SetAside { report, entries, rows } => {
                self.set_aside(node, report, entries, rows);
            }
            Output::ReadLog { partition, from, max_bytes, purpose } => {
                let wait = 50 + self.schedule.timing().below(400);
                self.after(wait, Event::Read { node, incarnation, partition, purpose, from, max_bytes });
            }
            Output::Install { partition } => {
                let wait = 50 + self.schedule.timing().below(4_000);
                self.after(wait, Event::Install { node, incarnation, partition });
            }
            Output::Checkpoint { partition } => {
                let wait = 50 + self.schedule.timing().below(4_000);
                self.after(wait, Event::Component { node, incarnation, partition });
            }
            Output::Notice { partition, what } => {
                match what {
                    Notice::BackByLog { .. } => self.injected("back-by-log"),
                    Notice::BackByFiles { .. } => self.injected("back-by-choice"),
                    Notice::Other(_) => {}
                }
                self.trace.note(self.now(), format_args!("n{node} p{}: {what}", partition.0));
            }
            Output::Damaged { partition, reason } => {
                self.show_damage(node, partition, &reason);
                self.injected("damage-found");
            }
        }
    }

    fn send_peer(&mut self, node: u32, to: Member, message: PeerMessage) {
        match &message {
            PeerMessage::Fetched(fetched) => self.gives(node, fetched),
            PeerMessage::Ack(ack) => self.says_durable(node, ack),
            PeerMessage::TransferOffer(offer) if !offer.beside => self.sends_state(node, to, offer.partition),
            PeerMessage::Copy(copy) => self.sends_state(node, to, copy.partition),
            _ => {}
        }
        let process = self.machine(node).process.as_ref();
        if let Some(conn) = process.and_then(|process| process.links.to_member(&to)) {
            let forth = self.is_dialler(conn, node);
            self.send(conn, forth, message.into());
        }
    }

    /// The thread that checks what was received gets on.
    pub(super) fn install(&mut self, node: u32, incarnation: u64, partition: PartitionId) {
        if self.machine(node).incarnation() != Some(incarnation) {
            return;
        }
        let (machine, now) = (self.machine(node), self.now());
        let hangs = machine.second.hangs_until(now).filter(|_| machine.second.holds_up(partition, now));
        if machine.health.is_stuck(now) || hangs.is_some() {
            let until = machine.health.stuck_until().max(hangs.unwrap_or(0));
            let wait = until.saturating_sub(now).min(1_000_000);
            return self.after(wait, Event::Install { node, incarnation, partition });
        }
        let wake: types::engine::Wake = std::sync::Arc::new(|| {});
        let mut again = false;
        self.input(node, |host, now, out| again = host.install(now, partition, &wake, out));
        if again {
            let wait = 100 + self.schedule.timing().below(20_000);
            self.after(wait, Event::Install { node, incarnation, partition });
        } else {
            self.injected("installed");
        }
    }

    fn is_dialler(&self, conn: Conn, node: u32) -> bool {
        self.network.get(conn).is_some_and(|open| open.from.0 == Endpoint::Node(node))
    }

    fn propose(&mut self, node: u32, propose: Propose) {
        let Some(process) = &self.machine(node).process else { return };
        let conns = process.links.controllers();
        if let Ok(record) = propose.record.read::<PartitionRecord>() {
            let all = self.control.proposed.entry(record.id).or_default();
            all.retain(|other| other.epoch >= record.epoch && other.proposal != record.proposal);
            all.push(record);
        }
        // Any controller will do; now and then all are asked.
        let all = self.schedule.timing().chance(200);
        let first =
            if conns.is_empty() { 0 } else { self.schedule.timing().below(conns.len() as u64) as usize };
        for (turn, conn) in conns.into_iter().enumerate() {
            if all || turn == first {
                self.send(conn, true, Message::Propose(propose.clone()));
            }
        }
    }

    pub(super) fn tell_controllers(&mut self, node: u32, message: Message) {
        let Some(process) = &self.machine(node).process else { return };
        let conns = process.links.controllers();
        for conn in conns {
            self.send(conn, true, message.clone());
        }
    }

    /// The bytes of an answer leave: the lease is compared with the clock now (F01).
    pub(super) fn leave(
        &mut self,
        node: u32,
        incarnation: u64,
        to: ClientRef,
        mut reply: Reply,
        valid_until: Option<Micros>,
    ) {
        let machine = self.machine(node);
        let clock = machine.clock.read(self.now()).mono;
        let Some(process) = machine.process.as_ref().filter(|process| process.incarnation == incarnation)
        else {
            return;
        };
        let member = process.member;
        let late = valid_until.is_some_and(|until| clock >= until);
        let request = self.checks.requests.take(to.connection, to.request);
        let Some(request) = request else {
            return self.checks.fault(
                "R12",
                self.now(),
                format!("{member} answers a request twice, or one never made"),
            );
        };
        if late {
            self.injected("lease-ran-out");
            let why = "the lease ran out before the answer left".to_string();
            let decided = matches!(reply.status, Status::Ok | Status::Refused(_));
            reply.status = if request.writes && decided { Status::Unknown(why) } else { Status::NotYet(why) };
            reply.body = wire::Body::None;
        }
        self.show_answer(node, &request, &reply);
        self.hear_scrub(to, &reply);
        self.send(to.connection, false, Message::Reply(reply));
    }

    pub(super) fn node_hears(&mut self, node: u32, from: Endpoint, conn: Conn, message: Message) {
        let now = self.now();
        if let Err(reason) = message.validate() {
            let at = format!("{from} sends n{node} what no node may send: {reason}");
            return self.checks.fault("I12", now, at);
        }
        if !self.keep(node, from, conn, &message) {
            return;
        }
        self.check_listens_to(node, from);
        match message {
            Message::Heartbeat(heartbeat) => {
                let clock = self.machine(node).clock.read(now).mono;
                let Some(process) = self.machine_mut(node).process.as_mut() else { return };
                let answer = process.host.leases().on_heartbeat(clock, &heartbeat);
                let forth = self.is_dialler(conn, node);
                self.send(conn, forth, Message::HeartbeatAnswer(answer));
            }
            Message::HeartbeatAnswer(answer) => {
                let clock = self.machine(node).clock.read(now).mono;
                let Some(process) = self.machine_mut(node).process.as_mut() else { return };
                process.host.leases().on_answer(clock, &answer);
            }
            Message::ClusterMap(cluster_map) => {
                if let Some(process) = self.machine_mut(node).process.as_mut() {
                    (process.let_in, process.admitted) = (true, true);
                }
                let removed = self.learn_nodes(node, &cluster_map);
                self.learn_tables(node, &cluster_map);
                if !removed {
                    self.configure(node, &cluster_map);
                }
            }
            Message::Proposed(proposed) => {
                self.input(node, |host, now, out| host.proposed(now, &proposed, out))
            }
            Message::RegisterRefused(refused) if refused.for_good => {
                self.trace.note(self.now(), format_args!("n{node} is refused: {}", refused.why));
                self.end(node, End::Crash);
            }
            Message::Advise(advise) => self.input(node, |host, now, out| host.advise(now, advise, out)),
            Message::Request(request) => self.request(node, conn, request),
            other => {
                if let Some(message) = other.into_peer() {
                    self.note_failback(node, &message);
                    self.peer(node, message);
                }
            }
        }
    }

    /// A request reaches a node.
    pub(super) fn request(&mut self, node: u32, conn: Conn, request: Request) {
        self.checks.requests.received(self.schedule.now(), conn, &request);
        let to = ClientRef { connection: conn, request: request.id };
        let (id, Some(process)) = (request.partition, &self.machine(node).process) else { return };
        let record = process.host.replica(id).and_then(|replica| replica.record());
        let (held, full) = (process.storage.held.holds(id), process.logs.is_full().then_some("its log"));
        let Some(status) = admission::of_client(&request, process.member, record, held, full) else {
            return self.input(node, |host, now, out| host.request(now, to, request, out));
        };
        let (incarnation, reply) = (process.incarnation, admission::turned_away(&request, status, record));
        self.released(node, to, &reply);
        let wait = 1 + self.schedule.timing().below(40);
        let reply = Box::new(reply);
        self.after(wait, Event::Leave { node, incarnation, to, reply, valid_until: None });
    }

    /// A client's connection to a node has ended. An executor that stands still by itself hears of it behind
    /// what came for it before.
    pub(super) fn client_gone(&mut self, node: u32, incarnation: u64, conn: Conn) {
        if self.machine(node).incarnation() == Some(incarnation) {
            self.input(node, |host, now, out| host.client_gone(now, conn, out));
            let gone = Event::ClientGone { node, incarnation, conn };
            self.machine_mut(node).standing.repeat_later(gone);
        }
    }

    fn peer(&mut self, node: u32, message: PeerMessage) {
        let (id, now) = (message.partition(), self.now());
        if let PeerMessage::Chunk(chunk) = &message {
            self.checks.availability.gets_piece(id, now);
            self.stage.sends_files(chunk.from.node, chunk.bytes.len() as u64);
        }
        let Some(process) = &self.machine(node).process else { return };
        let (held, full) = (process.storage.held.holds(id), process.logs.is_full());
        match admission::of_peer(&message, process.member, held, full) {
            Admission::Given => self.input(node, |host, now, out| host.peer(now, message, out)),
            Admission::Lost => {}
            Admission::Refused(to, refused) => {
                self.injected("append-busy");
                self.send_peer(node, to, PeerMessage::AppendRefused(refused));
            }
            Admission::Heard(to, refused) => {
                if let PeerMessage::Append(append) = &message {
                    self.input(node, |host, now, out| host.hear_positions(now, append, out));
                }
                self.injected("append-busy");
                self.send_peer(node, to, PeerMessage::AppendRefused(refused));
            }
        }
    }

    fn configure(&mut self, node: u32, cluster_map: &ClusterMap) {
        for text in &cluster_map.partitions {
            let record: PartitionRecord = match text.read() {
                Ok(record) => record,
                Err(reason) => return self.checks.fault("I10", self.now(), reason),
            };
            self.adopt(node, record);
        }
    }

    /// Tells the replica of its configuration, and makes one where this node has none.
    pub(super) fn adopt(&mut self, node: u32, record: PartitionRecord) {
        let executor = self.plan.executors.of(record.id);
        let standing = &mut self.machine_mut(node).standing;
        if standing.hangs(executor) {
            return standing.adopt_later(record);
        }
        let mut known = true;
        let again = record.clone();
        self.input(node, |host, now, out| known = host.configure(now, record, out));
        if !known {
            self.new_replica(node, &again);
            self.input(node, |host, now, out| {
                host.configure(now, again, out);
            });
        }
    }

    /// A heartbeat interval: heartbeats go out whatever the executor does; the executor ticks if it can.
    pub(super) fn tick(&mut self, node: u32, incarnation: u64) {
        if self.machine(node).incarnation() != Some(incarnation) {
            return;
        }
        let (now, interval, executors) = (self.now(), self.settings.heartbeat, self.plan.executors);
        let machine = self.machine_mut(node);
        let (clock, stalled) = (machine.clock.read(now), machine.standing.is_stalled());
        let silent = machine.standing.silent(now).map(|(executor, _)| executor);
        let wait = machine.clock.real(interval);
        self.after(wait, Event::Tick { node, incarnation });
        let unvouched = self.unvouched(node);
        if !unvouched.is_empty() {
            self.injected("not-vouched-for");
        }
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        let progress = process.vouches(now);
        let vouches =
            |id: PartitionId| progress && silent != Some(executors.of(id)) && !unvouched.contains(&id);
        process.host.rest_indexes(process.logs.is_full());
        let links: Vec<_> = process.links.heartbeats();
        let heartbeats: Vec<_> = {
            let mut leases = process.host.leases();
            leases.turn(clock.mono);
            let heartbeat = |(conn, to)| (conn, leases.heartbeat(clock.mono, to, vouches));
            links.into_iter().map(heartbeat).collect()
        };
        for (conn, heartbeat) in heartbeats {
            let forth = self.is_dialler(conn, node);
            self.send(conn, forth, Message::Heartbeat(heartbeat));
        }
        if !stalled {
            self.input(node, |host, now, out| host.tick(now, out));
            self.retry_held(node, incarnation);
            self.look_at_second(node);
            self.relocate(node);
            self.make_waiting(node);
            self.go_on_with_checkpoint(node, incarnation);
        }
    }

    pub(super) fn status(&mut self, node: u32, incarnation: u64) {
        if self.machine(node).incarnation() != Some(incarnation) {
            return;
        }
        self.after(STATUS, Event::Status { node, incarnation });
        self.note_damage(node);
        self.leave_moved(node);
        let (now, executors) = (self.now(), self.plan.executors);
        let machine = self.machine_mut(node);
        let clock = machine.clock.read(now);
        let Some(process) = machine.process.as_mut() else { return };
        let executors = executor_status(process, executors, machine.standing.silent(now));
        let hears = process.host.leases().heard_nodes();
        let hears = hears.into_iter().map(|(node, at)| (node, clock.mono.since(at).0)).collect();
        let status = NodeStatus {
            member: process.member,
            hears,
            replicas: process.host.status(clock),
            full: process.logs.is_full()
                || !process.storage.held.is_empty()
                || !process.storage.waiting.is_empty(),
            tails: process.reports.tails().to_vec(),
            log_waits_us: process.logs.oldest_pending().map_or(0, |at| types::Micros(now).since(at).0),
            executors,
            ..NodeStatus::default()
        };
        let again = process.reports.repeat();
        self.tell_controllers(node, Message::NodeStatus(status));
        for served in again {
            self.tell_controllers(node, Message::Served(served));
        }
    }
}

/// What a process says of its executors, if it has several. `silent`: the one that is seen to stand still.
fn executor_status(
    process: &Process,
    executors: Executors,
    silent: Option<(usize, Micros)>,
) -> Vec<ExecutorStatus> {
    let mut all = vec![ExecutorStatus::default(); if executors.is_one() { 0 } else { executors.count() }];
    for (number, executor) in all.iter_mut().enumerate() {
        let own = process.host.replicas().filter(|replica| executors.of(replica.id()) == number);
        executor.partitions = own.count() as u32;
        executor.hangs_us = silent.filter(|(silent, _)| *silent == number).map_or(0, |(_, time)| time.0);
    }
    all
}
