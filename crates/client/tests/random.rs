//! The pure core in random weather: connections break and lose what is on them, primaries change and step
//! down with what is not committed, nodes refuse, deadlines pass. Every write is done at most once, what was
//! acknowledged was done, what failed was not.

use std::collections::{BTreeMap, VecDeque};
use types::random::Random;
use types::{
    Epoch, LogKind, Lsn, Member, Micros, NodeId, PartitionId, PartitionRecord, Policy, Position, ProposalId,
    SessionId, TableId,
};
use understudy_client::{Call, Core, CoreConfig, Effect, LaneId, Outcome, Ticket};
use wire::request::Hint;
use wire::{Body, Message, Op, Reply, Request, RowOp, Status};

const NODES: u32 = 3;
const PARTITION: PartitionId = PartitionId(64);

/// The bytes on one connection, as messages: in order, and gone when it breaks.
#[derive(Default)]
struct Wires {
    up: bool,
    to_node: VecDeque<Request>,
    to_client: VecDeque<Reply>,
}

struct World {
    core: Core,
    now: Micros,
    random: Random,
    wires: BTreeMap<NodeId, Wires>,
    record: PartitionRecord,
    lsn: u64,
    sessions: BTreeMap<SessionId, Vec<(Position, Vec<u8>)>>,
    done: BTreeMap<Vec<u8>, u32>,
    /// The order in which each lane's writes were done.
    order: BTreeMap<u8, Vec<u64>>,
    names: BTreeMap<Ticket, Vec<u8>>,
    ends: BTreeMap<Vec<u8>, Outcome>,
    /// Failovers lose a tail of the log, as under `async`.
    lossy: bool,
    /// What the last entries did: opened a session, or wrote a key in one.
    tail: Vec<(SessionId, Option<Vec<u8>>)>,
    lost: Vec<Vec<u8>>,
    finished: BTreeMap<Ticket, Vec<u8>>,
}

fn record(epoch: u64, primary: u32) -> PartitionRecord {
    let member = |node| Member { node: NodeId(node), ..Member::default() };
    let mut in_sync = vec![member(primary)];
    in_sync.extend((1..=NODES).filter(|node| *node != primary).map(member));
    PartitionRecord {
        proposal: ProposalId(epoch),
        ..PartitionRecord::new(
            PARTITION,
            TableId(1),
            Epoch(epoch),
            in_sync,
            Policy::preset("durable", 3, LogKind::Disk).expect("a preset"),
        )
    }
}

impl World {
    fn new(seed: u64, window: usize) -> World {
        let mut core = Core::new(CoreConfig {
            window,
            attempt_timeout: Micros::from_millis(60),
            seed,
            ..CoreConfig::default()
        });
        core.adopt(Micros::ZERO, record(1, 1));
        World {
            core,
            now: Micros::ZERO,
            random: Random::new(seed ^ 0x5eed),
            wires: (1..=NODES).map(|node| (NodeId(node), Wires::default())).collect(),
            record: record(1, 1),
            lsn: 0,
            sessions: BTreeMap::new(),
            done: BTreeMap::new(),
            order: BTreeMap::new(),
            names: BTreeMap::new(),
            ends: BTreeMap::new(),
            lossy: seed % 2 == 1,
            tail: Vec::new(),
            lost: Vec::new(),
            finished: BTreeMap::new(),
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.draw() % 100 < percent
    }

    fn submit(&mut self, number: u64) {
        let lane = (self.random.draw() % 2) as u8;
        let name = [&[lane][..], &number.to_be_bytes()].concat();
        let ops = vec![RowOp::Put { key: name.clone().into(), row: bytes::Bytes::new() }];
        let mut call = Call::new(TableId(1), 1, PARTITION, Op::write(ops));
        if self.chance(30) {
            call.deadline = Micros(self.random.draw() % 200_000 + 1);
        }
        let ticket = self.core.submit(self.now, LaneId(lane.into()), call);
        self.names.insert(ticket, name);
    }

    fn step(&mut self, weather: bool) {
        self.now = self.now + Micros(self.random.draw() % 4_000);
        self.core.tick(self.now);
        self.effects();
        for node in (1..=NODES).map(NodeId) {
            if weather && self.chance(3) {
                self.cut(node);
            }
            self.carry(node, weather);
        }
        if weather && self.chance(2) {
            let next = (self.random.draw() % u64::from(NODES)) as u32 + 1;
            let (old, waiting) = self.uncommitted();
            self.record = record(self.record.epoch.0 + 1, next);
            self.step_down(old, waiting);
            if self.lossy {
                self.lose_tail();
            }
            if self.chance(50) {
                self.core.adopt(self.now, self.record.clone());
            }
        }
        self.effects();
    }

    /// The primary, and what it says to requests that it has executed and not committed.
    fn uncommitted(&mut self) -> (NodeId, Vec<Reply>) {
        let primary = self.record.primary.node;
        let wires = self.wires.get_mut(&primary).expect("a node");
        let arrived = self.random.draw() as usize % (wires.to_node.len() + 1);
        let requests: Vec<Request> = wires.to_node.drain(..arrived).collect();
        (primary, requests.iter().map(|request| self.execute(primary, request)).collect())
    }

    /// It steps down with them: clients hear who leads now, and that it may be done (PR-372).
    fn step_down(&mut self, old: NodeId, waiting: Vec<Reply>) {
        let hint = Box::new(Hint::new(&self.record));
        let wires = self.wires.get_mut(&old).expect("a node");
        for mut reply in waiting {
            if reply.status == Status::Ok {
                reply.status = Status::Unknown("the primary changed".into());
                reply.hint = Some(hint.clone());
            }
            wires.to_client.push_back(reply);
        }
    }

    fn lose_tail(&mut self) {
        for _ in 0..self.random.draw() % 5 {
            let Some((session, key)) = self.tail.pop() else { return };
            match key {
                None => drop(self.sessions.remove(&session)),
                Some(key) => {
                    self.sessions.get_mut(&session).map(Vec::pop);
                    self.order.get_mut(&key[0]).map(Vec::pop);
                    *self.done.get_mut(&key).expect("done once") -= 1;
                }
            }
        }
    }

    fn cut(&mut self, node: NodeId) {
        let wires = self.wires.get_mut(&node).expect("a node");
        if std::mem::take(&mut wires.up) {
            wires.to_client.clear();
            // A part of what was sent arrives even so.
            let arrived = self.random.draw() as usize % (wires.to_node.len() + 1);
            let requests: Vec<Request> = wires.to_node.drain(..).take(arrived).collect();
            for request in requests {
                self.execute(node, &request);
            }
            self.core.disconnected(self.now, node, "cut");
        }
    }

    fn carry(&mut self, node: NodeId, weather: bool) {
        let pieces = self.random.draw() % 4;
        for _ in 0..pieces {
            let Some(request) = self.wires.get_mut(&node).expect("a node").to_node.pop_front() else { break };
            let reply = match weather && self.chance(10) {
                true => self.reply(&request, Status::NotYet("later".into()), Position::ZERO),
                false => self.execute(node, &request),
            };
            self.wires.get_mut(&node).expect("a node").to_client.push_back(reply);
        }
        for _ in 0..self.random.draw() % 4 {
            let Some(reply) = self.wires.get_mut(&node).expect("a node").to_client.pop_front() else { break };
            self.core.reply(self.now, node, reply);
        }
    }

    fn reply(&self, request: &Request, status: Status, at: Position) -> Reply {
        let hint = (status == Status::NotPrimary).then(|| Box::new(Hint::new(&self.record)));
        Reply {
            id: request.id,
            status,
            lsn: at.lsn,
            epoch: at.term.began(),
            policy: 1,
            copies: 3,
            hint,
            body: Body::None,
        }
    }

    /// One log that every node has; a lossy failover shortens it.
    fn execute(&mut self, node: NodeId, request: &Request) -> Reply {
        if self.record.primary.node != node {
            return self.reply(request, Status::NotPrimary, Position::ZERO);
        }
        let next = Position::new(self.record.term, Lsn(self.lsn + 1));
        let Op::Write { ops, .. } = &request.op else {
            self.lsn += 1;
            self.sessions.insert(SessionId(next), Vec::new());
            self.tail.push((SessionId(next), None));
            return self.reply(request, Status::Ok, next);
        };
        if self.chance(1) {
            // A session that expires early.
            self.sessions.remove(&request.session);
        }
        let key = ops[0].key().to_vec();
        let Some(outcomes) = self.sessions.get_mut(&request.session) else {
            return self.reply(request, Status::Unknown("no such session".into()), Position::ZERO);
        };
        let known = outcomes.len() as u64;
        if request.seq > known + 1 {
            return self.reply(request, Status::Expected(known + 1), Position::ZERO);
        }
        if request.seq == known + 1 {
            outcomes.push((next, key.clone()));
            self.lsn += 1;
            self.tail.push((request.session, Some(key.clone())));
            *self.done.entry(key.clone()).or_default() += 1;
            let number = u64::from_be_bytes(key[1..].try_into().expect("eight bytes"));
            self.order.entry(key[0]).or_default().push(number);
        }
        let (at, first) = &self.sessions[&request.session][request.seq as usize - 1];
        assert_eq!(*first, key, "a number was used for two requests");
        self.reply(request, Status::Ok, *at)
    }

    fn effects(&mut self) {
        while let Some(effect) = self.core.next_effect() {
            match effect {
                Effect::Connect(node) => {
                    self.wires.insert(node, Wires { up: true, ..Wires::default() });
                    self.core.connected(self.now, node);
                }
                Effect::Close(node) => {
                    self.wires.insert(node, Wires::default());
                }
                Effect::Send(node, id) => {
                    let Some(Message::Request(request)) = self.core.message(id) else { continue };
                    Message::Request(request.clone()).validate().expect("a valid request");
                    let wires = self.wires.get_mut(&node).expect("a node");
                    if wires.up {
                        wires.to_node.push_back(request.clone());
                    }
                }
            }
        }
        while let Some(completed) = self.core.next_completed() {
            let name = self.names.remove(&completed.ticket).expect("each call ends once");
            self.finished.insert(completed.ticket, name.clone());
            self.ends.insert(name, completed.outcome);
        }
        for loss in self.core.take_losses() {
            self.lost.extend(loss.tickets.iter().map(|ticket| self.finished[ticket].clone()));
        }
    }

    fn check(&self, seed: u64) {
        for (name, outcome) in &self.ends {
            let done = self.done.get(name).copied().unwrap_or(0);
            let right = match outcome {
                Outcome::Ok(_) => done == 1 || (self.lossy && done == 0),
                Outcome::Failed(..) => done == 0,
                Outcome::Unknown(_) => done <= 1,
                Outcome::Refused(..) => false,
            };
            assert!(right, "seed {seed}: {name:?} ended as {outcome:?} and was done {done} times");
        }
        for name in &self.lost {
            assert!(
                self.ends[name].is_ok(),
                "seed {seed}: {name:?} is reported lost, but was not acknowledged"
            );
            assert_eq!(self.done[name], 0, "seed {seed}: {name:?} is reported lost, but is there");
        }
        for (lane, numbers) in &self.order {
            assert!(numbers.is_sorted(), "seed {seed}: lane {lane} was done out of order: {numbers:?}");
        }
    }
}

#[test]
fn whatever_the_weather_each_write_is_done_at_most_once_and_in_order() {
    let (mut ok, mut unknown, mut failed, mut lost) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed, [1, 3, 16][seed as usize % 3]);
        for number in 0..60 {
            world.submit(number);
            for _ in 0..world.random.draw() % 6 {
                world.step(true);
            }
        }
        let mut calm = 0;
        while world.core.open_calls() > 0 {
            world.step(false);
            calm += 1;
            assert!(calm < 2_000, "seed {seed}: {} calls never end in calm weather", world.core.open_calls());
        }
        assert_eq!(world.ends.len(), 60, "seed {seed}");
        world.check(seed);
        lost += world.lost.len();
        for outcome in world.ends.values() {
            match outcome {
                Outcome::Ok(_) => ok += 1,
                Outcome::Unknown(_) => unknown += 1,
                _ => failed += 1,
            }
        }
    }
    // The weather was neither too fine nor too foul to test anything.
    assert!(ok > unknown && unknown > 100 && failed > 10 && lost > 10, "{ok} {unknown} {failed} {lost}");
}
