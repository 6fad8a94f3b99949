//! A bare table whose rows are being copied somewhere else, at a primary that leads alone: the hold comes and
//! goes with the policy that it is advised.

use bytes::Bytes;
use types::{
    Durable, Epoch, Incarnation, LogKind, Member, Micros, Moves, NodeId, Now, PartitionId, PartitionRecord,
    Policy, Position, Rules, StoreId, TableId,
};
use understudy_engine::MemoryEngine;
use understudy_replica::{ClientRef, Host, LeaseManager, Output, Recovered, Replica, Settings};
use wire::control::{Advice, Advise};
use wire::log::Record;
use wire::request::{Outcome, ReadSnapshot};
use wire::{Op, RecordText, Reply, Request, RowOp, Status};

const P: PartitionId = PartitionId(64);
const T: TableId = TableId(1);

struct Alone {
    host: Host<LeaseManager>,
    now: Now,
    epoch: Epoch,
    requests: u64,
    logged: Vec<Position>,
    replies: Vec<Reply>,
    proposed: Vec<PartitionRecord>,
}

impl Alone {
    fn new() -> Alone {
        let me = Member { node: NodeId(1), store: StoreId(1), incarnation: Incarnation(1) };
        let now = Now { mono: Micros::from_millis(1000), wall_ms: 1_000_000 };
        let lease_manager = LeaseManager::new(me, &Settings::default(), Micros::ZERO);
        let mut host = Host::new(me, Settings::default(), lease_manager);
        let engine = Box::new(MemoryEngine::volatile());
        host.add(Replica::recover(me, P, Rules::ALL, engine, Recovered::nothing()));
        let (logged, replies, proposed) = (Vec::new(), Vec::new(), Vec::new());
        let mut alone = Alone { host, now, epoch: Epoch::ZERO, requests: 0, logged, replies, proposed };
        alone.configure(PartitionRecord::new(P, T, Epoch(1), vec![me], policy(1, None)));
        alone
    }

    fn with(&mut self, act: impl FnOnce(&mut Host<LeaseManager>, Now, &mut Vec<Output>)) {
        let mut out = Vec::new();
        act(&mut self.host, self.now, &mut out);
        self.host.flush(self.now, &mut out);
        for output in out {
            match output {
                Output::Log(Record::Entry(entry)) => self.logged.push(entry.at()),
                Output::Reply { reply, .. } => self.replies.push(*reply),
                Output::Propose(propose) => self.proposed.push(propose.record.read().expect("a record")),
                _ => {}
            }
        }
        self.host.validate().expect("sound");
        self.sync();
    }

    /// All that was logged is durable.
    fn sync(&mut self) {
        while !self.logged.is_empty() {
            let logged = std::mem::take(&mut self.logged);
            let synced: Vec<_> = logged.into_iter().map(|at| (P, Durable::by_storage(at))).collect();
            self.with(|host, now, out| host.synced(now, &synced, out));
        }
    }

    fn configure(&mut self, record: PartitionRecord) {
        self.epoch = record.epoch;
        self.with(|host, now, out| assert!(host.configure(now, record, out)));
    }

    /// A controller advises this policy. What the primary proposes then, if it does.
    fn advised(&mut self, policy: Policy) -> Option<PartitionRecord> {
        self.proposed.clear();
        let advice = Advice::Policy(RecordText::new(&policy));
        let advise = Advise { partition: P, epoch: self.epoch, advice };
        self.with(|host, now, out| host.advise(now, advise, out));
        self.tick();
        self.proposed.first().cloned()
    }

    fn tick(&mut self) {
        self.now.mono = self.now.mono + Micros::from_millis(20);
        self.with(|host, now, out| host.tick(now, out));
    }

    /// It is recorded, and the second of both records, which has the policy alone.
    fn adopt(&mut self, proposed: PartitionRecord) {
        self.proposed.clear();
        self.configure(proposed);
        self.tick();
        let last = self.proposed.first().cloned().expect("the second step");
        assert!(last.next_policy.is_none());
        self.configure(last);
    }

    fn request(&mut self, op: Op) -> Status {
        self.requests += 1;
        let request = Request { id: self.requests, ..Request::new(T, 1, P, op) };
        let to = ClientRef { connection: 0, request: self.requests };
        self.with(|host, now, out| host.request(now, to, request, out));
        std::mem::take(&mut self.replies).pop().expect("it is answered").status
    }

    fn put(&mut self) -> Status {
        let (key, row) = (Bytes::from_static(b"k"), Bytes::from_static(b"row"));
        self.request(Op::write(vec![RowOp::Put { key, row }]))
    }

    fn get(&mut self) -> Status {
        self.request(Op::Get { key: Bytes::from_static(b"k"), at: ReadSnapshot::Newest })
    }
}

fn policy(version: u32, closed: Option<bool>) -> Policy {
    let moves = closed.map(|closed| Moves { number: TableId(7), into: None, closed });
    Policy { version, moves, ..Policy::preset("durable", 1, LogKind::Disk).expect("a policy") }
}

#[test]
fn pr401_advice_of_before_a_hold_does_not_end_it() {
    let mut alone = Alone::new();
    assert_eq!(alone.put(), Status::Ok);
    let hold = alone.advised(policy(2, Some(false))).expect("it is proposed");
    assert!(hold.next_policy.as_ref().is_some_and(|next| next.moves.is_some()));
    alone.adopt(hold);
    assert_eq!(alone.put(), Status::Refused(Outcome::Stale));
    // A controller that has not heard of it thinks that the partition is not as its table wants it.
    assert_eq!(alone.advised(policy(1, None)), None);
    assert_eq!(alone.put(), Status::Refused(Outcome::Stale));
    assert_eq!(alone.request(Op::Held { number: TableId(7), closed: false }), Status::Ok);
    assert_eq!(alone.get(), Status::Ok);
    let closed = alone.advised(policy(3, Some(true))).expect("it is proposed");
    alone.adopt(closed);
    assert!(matches!(alone.get(), Status::Stale(_)), "PR-403");
    assert_eq!(alone.advised(policy(2, Some(false))), None, "nobody opens it again by mistake");
    // Who ends it says so in a later version.
    let free = alone.advised(policy(4, None)).expect("it is proposed");
    alone.adopt(free);
    assert_eq!((alone.put(), alone.get()), (Status::Ok, Status::Ok));
}
