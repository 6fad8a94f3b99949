//! The executors of a node share one limit on the files that they ship, and each has its part.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use types::{
    Durable, Epoch, Incarnation, LogKind, Member, Micros, NodeId, Now, PartitionId, PartitionRecord, Policy,
    Rules, StoreId, TableId, Term,
};
use understudy_engine::LsmEngine;
use understudy_replica::{Budgets, ClientRef, Host, LeaseManager, Output, Recovered, Replica, Settings};
use wire::log::Record;
use wire::{Op, PeerMessage, ReadLevel, Request, RowOp};

const T: TableId = TableId(1);
/// Bytes in a second.
const LIMIT: u64 = 6_000;

type Executor = Host<LeaseManager>;

/// A node whose executors lead one partition each, numbered as they are, and ship it to another node, which
/// is the last host. What they send comes at once, and every entry is durable at once.
struct Pair {
    hosts: Vec<Executor>,
    now: Now,
    /// Bytes of files that were sent of each partition.
    sent: BTreeMap<PartitionId, u64>,
    _dir: tempfile::TempDir,
}

impl Pair {
    /// So many copies must count of each partition before anything is acknowledged.
    fn new(min_in_sync: &[u8]) -> Pair {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = Settings { tail_bytes: 0, ship_bytes_per_second: LIMIT, ..Settings::default() };
        let host = |node| {
            Host::new(
                member(node),
                settings.clone(),
                LeaseManager::new(member(node), &settings, Micros::ZERO),
            )
        };
        let replica = |node: u32, number: usize| {
            let engine = LsmEngine::open(&dir.path().join(format!("{node}-{number}"))).expect("opens");
            Replica::recover(member(node), id(number), Rules::ALL, Box::new(engine), Recovered::nothing())
        };
        let (budgets, mut other) = (Budgets::default(), host(2));
        let mut hosts = Vec::new();
        for number in 0..min_in_sync.len() {
            let mut host = host(1).sharing(budgets.clone());
            host.add(replica(1, number));
            other.add(replica(2, number));
            hosts.push(host);
        }
        hosts.push(other);
        let now = Now { mono: Micros::from_millis(1000), wall_ms: 1_000_000 };
        let mut pair = Pair { hosts, now, sent: BTreeMap::new(), _dir: dir };
        for (number, min_in_sync) in min_in_sync.iter().enumerate() {
            pair.fill(number);
            pair.admit(number, *min_in_sync);
        }
        pair
    }

    /// Its executor leads alone, and writes more than is shipped in three seconds to files.
    fn fill(&mut self, number: usize) {
        let record = PartitionRecord::new(id(number), T, Epoch(1), vec![member(1)], policy(1));
        self.with(number, |host, now, out| assert!(host.configure(now, record, out)));
        for n in 0..40_u8 {
            let row: Vec<u8> =
                (0..500_u32).map(|at| (at * at + u32::from(n) * 7919).to_be_bytes()[2]).collect();
            let op = Op::write(vec![RowOp::Put { key: Bytes::from(vec![n]), row: Bytes::from(row) }]);
            let to = ClientRef { connection: 0, request: n.into() };
            self.with(number, |host, now, out| host.request(now, to, request(number, n, op), out));
        }
        self.with(number, |host, _, _| {
            let persisted = host.replica_mut(id(number)).expect("a replica").checkpoint().expect("writes");
            assert!(persisted.lsn.0 > 40, "it has the rows");
        });
    }

    /// The other node catches up.
    fn admit(&mut self, number: usize, min_in_sync: u8) {
        let record = PartitionRecord {
            term: Term::of(Epoch(1)),
            catching_up: vec![member(2)],
            ..PartitionRecord::new(id(number), T, Epoch(2), vec![member(1)], policy(min_in_sync))
        };
        for host in [number, self.hosts.len() - 1] {
            let record = record.clone();
            self.with(host, |host, now, out| assert!(host.configure(now, record, out)));
        }
    }

    /// Does something at a host, and all that follows from it.
    fn with(&mut self, host: usize, act: impl FnOnce(&mut Executor, Now, &mut Vec<Output>)) {
        let (now, mut todo) = (self.now, VecDeque::new());
        let run = |hosts: &mut Vec<Executor>, todo: &mut VecDeque<(usize, Output)>, host: usize, mut out| {
            hosts[host].flush(now, &mut out);
            todo.extend(out.into_iter().map(|output| (host, output)));
        };
        let mut out = Vec::new();
        act(&mut self.hosts[host], now, &mut out);
        run(&mut self.hosts, &mut todo, host, out);
        while let Some((host, output)) = todo.pop_front() {
            let mut out = Vec::new();
            let at = match output {
                Output::Log(Record::Entry(entry)) => {
                    let synced = [(entry.header().partition, Durable::by_storage(entry.at()))];
                    self.hosts[host].synced(now, &synced, &mut out);
                    host
                }
                Output::Send { to, message } => {
                    let id = message.partition();
                    if let PeerMessage::Chunk(chunk) = &message {
                        *self.sent.entry(id).or_default() += chunk.bytes.len() as u64;
                    }
                    let other = self.hosts.len() - 1;
                    let at = if to == member(2) { other } else { (id.0 - 64) as usize };
                    self.hosts[at].peer(now, message, &mut out);
                    at
                }
                _ => continue,
            };
            run(&mut self.hosts, &mut todo, at, out);
        }
    }

    /// So many seconds pass. All executors are ticked, always in the same order.
    fn wait(&mut self, seconds: u64) -> Vec<u64> {
        for _ in 0..seconds * 50 {
            self.now.mono = Micros(self.now.mono.0 + 20_000);
            for host in 0..self.hosts.len() {
                self.with(host, |host, now, out| host.tick(now, out));
            }
        }
        let executors = self.hosts.len() - 1;
        (0..executors).map(|number| self.sent.get(&id(number)).copied().unwrap_or(0)).collect()
    }
}

fn member(node: u32) -> Member {
    Member { node: NodeId(node), store: StoreId(node.into()), incarnation: Incarnation(1) }
}

fn id(number: usize) -> PartitionId {
    PartitionId(64 + number as u32)
}

fn policy(min_in_sync: u8) -> Policy {
    Policy { min_in_sync, ..Policy::preset("durable", 2, LogKind::Disk).expect("a policy") }
}

fn request(number: usize, n: u8, op: Op) -> Request {
    Request {
        id: n.into(),
        session: types::SessionId::NONE,
        seq: 0,
        confirmed: 0,
        deadline_ms: 0,
        table: T,
        schema: 1,
        partition: id(number),
        read: ReadLevel::Primary,
        trace: 0,
        op,
    }
}

#[test]
fn pr472_every_executor_ships_its_part_whoever_is_ticked_first() {
    let sent = Pair::new(&[1, 1, 1]).wait(3);
    assert!(sent.iter().all(|sent| *sent >= LIMIT / 2), "{sent:?}");
    assert!(sent.iter().sum::<u64>() <= LIMIT * 4, "{sent:?}");
}

#[test]
fn pr472_a_partition_that_acknowledges_nothing_is_shipped_first_and_the_others_get_on() {
    let sent = Pair::new(&[1, 2, 1]).wait(3);
    assert!(sent[1] >= LIMIT * 2, "{sent:?}");
    assert!(sent[0] > 0 && sent[2] > 0, "{sent:?}");
}
