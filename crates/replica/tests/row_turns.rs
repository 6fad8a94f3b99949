//! Turns at rows as a primary gives them to gateways: when they are told, and what ends them.

use bytes::Bytes;
use types::{
    Durable, Epoch, Finding, Incarnation, LogKind, Member, Micros, NodeId, Now, PartitionId, PartitionRecord,
    Policy, Position, Rules, SessionId, StoreId, TableId,
};
use understudy_engine::MemoryEngine;
use understudy_replica::{ClientRef, Host, LeaseManager, Output, Recovered, Replica, Settings};
use wire::log::Record;
use wire::request::ReadSnapshot;
use wire::{Body, Op, Reply, Request, RowOp, Status, TurnAnswer, TurnHolder, TurnOp};

const P: PartitionId = PartitionId(64);
const T: TableId = TableId(1);

fn member(node: u32) -> Member {
    Member { node: NodeId(node), store: StoreId(u64::from(node)), incarnation: Incarnation(1) }
}

/// One replica that leads alone. What it logs is durable when the test says so.
struct Alone {
    host: Host<LeaseManager>,
    now: Now,
    requests: u64,
    logged: Vec<Position>,
    replies: Vec<Reply>,
}

impl Alone {
    fn new() -> Alone {
        Alone::by(Rules::ALL)
    }

    fn by(rules: Rules) -> Alone {
        let me = member(1);
        let now = Now { mono: Micros::from_millis(1000), wall_ms: 1_000_000 };
        let lease_manager = LeaseManager::new(me, &Settings::default(), Micros::ZERO);
        let mut host = Host::new(me, Settings::default(), lease_manager);
        let engine = Box::new(MemoryEngine::volatile());
        host.add(Replica::recover(me, P, rules, engine, Recovered::nothing()));
        let mut alone = Alone { host, now, requests: 0, logged: Vec::new(), replies: Vec::new() };
        alone.configure(1, vec![me]);
        alone.sync();
        alone
    }

    /// The configuration of an epoch, and of the term that begins with it. The first one leads.
    fn configure(&mut self, epoch: u64, in_sync: Vec<Member>) {
        let policy = Policy::preset("durable", in_sync.len() as u8, LogKind::Disk).expect("a policy");
        let record = PartitionRecord::new(P, T, Epoch(epoch), in_sync, policy);
        self.with(|host, now, out| assert!(host.configure(now, record, out)));
    }

    fn with(&mut self, act: impl FnOnce(&mut Host<LeaseManager>, Now, &mut Vec<Output>)) {
        let mut out = Vec::new();
        act(&mut self.host, self.now, &mut out);
        self.host.flush(self.now, &mut out);
        for output in out {
            match output {
                Output::Log(Record::Entry(entry)) => self.logged.push(entry.at()),
                Output::Reply { reply, .. } => self.replies.push(*reply),
                _ => {}
            }
        }
        self.host.validate().expect("sound");
    }

    /// All that was logged is durable.
    fn sync(&mut self) {
        while !self.logged.is_empty() {
            let logged = std::mem::take(&mut self.logged);
            let synced: Vec<_> = logged.into_iter().map(|at| (P, Durable::by_storage(at))).collect();
            self.with(|host, now, out| host.synced(now, &synced, out));
        }
    }

    /// A request over a connection; requests are numbered from 1.
    fn request(&mut self, connection: u64, op: Op) {
        self.send(connection, Request::new(T, 1, P, op));
    }

    fn send(&mut self, connection: u64, request: Request) {
        self.requests += 1;
        let request = Request { id: self.requests, ..request };
        let to = ClientRef { connection, request: self.requests };
        self.with(|host, now, out| host.request(now, to, request, out));
    }

    fn ask(&mut self, who: u64, key: &'static str, wait_ms: u32) {
        let (who, key) = (holder(who), Bytes::from_static(key.as_bytes()));
        self.request(who.transaction, Op::Turn(TurnOp::Ask { who, key, wait_ms }));
    }

    fn put(&mut self, key: &'static str, row: &'static str) {
        self.request(0, put(key, row));
    }

    fn wait(&mut self, ms: u64) {
        self.now.mono = self.now.mono + Micros::from_millis(ms);
        self.with(|host, now, out| host.tick(now, out));
    }

    /// Which requests were answered since the last look, and with what.
    fn answers(&mut self) -> Vec<(u64, Status, Body)> {
        let replies = std::mem::take(&mut self.replies);
        replies.into_iter().map(|reply| (reply.id, reply.status, reply.body)).collect()
    }
}

fn put(key: &'static str, row: &'static str) -> Op {
    let (key, row) = (Bytes::from_static(key.as_bytes()), Bytes::from_static(row.as_bytes()));
    Op::write(vec![RowOp::Put { key, row }])
}

fn holder(transaction: u64) -> TurnHolder {
    TurnHolder { gateway: 7, transaction }
}

fn granted(waited: bool) -> Body {
    Body::Turn(TurnAnswer::Granted { waited })
}

fn ok(id: u64, body: Body) -> (u64, Status, Body) {
    (id, Status::Ok, body)
}

#[test]
fn pr377_the_next_turn_is_told_when_what_was_written_in_the_one_before_can_be_read() {
    let mut alone = Alone::new();
    alone.ask(1, "a", 5_000);
    assert_eq!(alone.answers(), [ok(1, granted(false))]);
    alone.ask(2, "a", 5_000);
    alone.put("a", "one");
    assert!(alone.answers().is_empty(), "it is not on the disk yet");
    alone.sync();
    let answers = alone.answers();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!((&answers[0].1, &answers[1]), (&Status::Ok, &ok(2, granted(true))), "the write is the first");
    // The one before says that it is over when it has nothing any more.
    alone.request(1, Op::Turn(TurnOp::Release { who: holder(1) }));
    assert_eq!(alone.answers(), [ok(4, Body::Turn(TurnAnswer::Released))]);
    let (key, at) = (Bytes::from_static(b"a"), ReadSnapshot::Newest);
    alone.request(2, Op::Get { key, at });
    let answers = alone.answers();
    assert!(matches!(&answers[0].2, Body::Row(Some((_, row))) if row[..] == b"one"[..]), "{answers:?}");
    // A row that somebody keeps as it is stays that one's; without a write the turn is passed on by its end.
    alone.ask(3, "a", 5_000);
    alone.request(2, Op::write(vec![RowOp::Keep { key: Bytes::from_static(b"a") }]));
    alone.sync();
    assert_eq!(alone.answers().len(), 1, "of the write alone");
    alone.request(2, Op::Turn(TurnOp::Release { who: holder(2) }));
    let answers = alone.answers();
    assert!(answers.contains(&ok(6, granted(true))), "{answers:?}");
}

#[test]
fn pr374_waits_end_with_time_with_connections_and_with_the_term() {
    let mut alone = Alone::new();
    alone.ask(1, "a", 5_000);
    alone.ask(2, "a", 100);
    assert_eq!(alone.answers(), [ok(1, granted(false))]);
    alone.wait(99);
    assert!(alone.answers().is_empty());
    alone.wait(1);
    assert_eq!(alone.answers(), [ok(2, Body::Turn(TurnAnswer::Without))]);
    alone.ask(3, "a", 5_000);
    alone.with(|host, now, out| host.client_gone(now, 9, out));
    assert!(alone.answers().is_empty(), "a connection of somebody else");
    alone.with(|host, now, out| host.client_gone(now, 1, out));
    assert_eq!(alone.answers(), [ok(3, granted(true))]);
    alone.ask(4, "a", 5_000);
    alone.configure(2, vec![member(2), member(1)]);
    assert_eq!(alone.answers(), [(4, Status::NotPrimary, Body::None)]);
}

#[test]
fn pr410_a_write_that_is_asked_for_again_passes_on_nothing() {
    let mut alone = Alone::new();
    alone.request(0, Op::OpenSession);
    alone.sync();
    let session = SessionId(alone.replies[0].position());
    alone.answers();
    alone.ask(1, "a", 5_000);
    assert_eq!(alone.answers(), [ok(2, granted(false))]);
    alone.ask(2, "a", 5_000);
    alone.ask(3, "a", 5_000);
    let write = Request { session, seq: 1, ..Request::new(T, 1, P, put("a", "one")) };
    alone.send(0, write.clone());
    alone.sync();
    let answers = alone.answers();
    assert!(answers.len() == 2 && answers.contains(&ok(3, granted(true))), "{answers:?}");
    // Its answer was lost, so it comes once more. By now the turn is somebody else's.
    alone.send(0, write);
    alone.sync();
    let answers = alone.answers();
    assert!(answers.len() == 1 && answers[0].0 == 6 && answers[0].1 == Status::Ok, "{answers:?}");
    alone.put("a", "two");
    alone.sync();
    let answers = alone.answers();
    assert!(answers.contains(&ok(4, granted(true))), "{answers:?}");
}

#[test]
fn pr374_pr377_and_pr410_without_the_rules_it_goes_wrong() {
    let by = |finding: Finding| Alone::by(Rules::without(finding).expect("this build has mutants"));
    let mut alone = by(Finding::Pr374);
    alone.ask(1, "a", 5_000);
    alone.wait(9_000);
    alone.ask(2, "a", 5_000);
    assert_eq!(alone.answers(), [ok(1, granted(false))]);
    alone.wait(2_000);
    assert!(alone.answers().is_empty(), "who is silent has it for ever");
    let mut alone = by(Finding::Pr377);
    alone.ask(1, "a", 5_000);
    alone.ask(2, "a", 5_000);
    alone.put("a", "one");
    assert!(alone.answers().contains(&ok(2, granted(true))), "what was written is on no disk yet");
    let mut alone = by(Finding::Pr410);
    alone.request(0, Op::OpenSession);
    alone.sync();
    let session = SessionId(alone.replies[0].position());
    for who in 1..=3 {
        alone.ask(who, "a", 5_000);
    }
    let write = Request { session, seq: 1, ..Request::new(T, 1, P, put("a", "one")) };
    for granted_to in [3, 4] {
        alone.answers();
        alone.send(0, write.clone());
        alone.sync();
        let answers = alone.answers();
        assert!(answers.contains(&ok(granted_to, granted(true))), "{answers:?}");
    }
}
