//! A small cluster, shown to the checkers as the world shows it: three nodes, one partition, and whoever asks
//! something of it. Where the world itself compares what a checker knows, that is done here in the same way.

use crate::check::answers::{self, Has};
use crate::check::backups::{Backup, Restored};
use crate::check::cluster_snapshots::CompleteSnapshot;
use crate::check::commits::{GivenUp, TxnOperation};
use crate::check::effects::ReportedLoss;
use crate::check::ends::Last;
use crate::check::epochs::tests::{member, record};
use crate::check::history::{Action, Answer, Bound, Operation};
use crate::check::jobs::JobAnswer;
use crate::check::lineage::Lineage;
use crate::check::lineage::tests::P;
use crate::check::requests::Asked;
use crate::check::turns::Turn;
use crate::check::wanted::Wanted;
use crate::check::{Checks, ClientAnswers, calls, indexes, loads};
use crate::network::Conn;
use crate::rows;
use bytes::Bytes;
use engine::MemoryEngine;
use std::collections::{BTreeMap, BTreeSet};
use types::policy::Below;
use types::{
    Engine, Epoch, FailoverRecord, KeySpace, Lsn, Member, Mutation, NodeId, PartitionRecord, Policy,
    Position, ReadAt, SessionId, TableId, Term,
};
use wire::request::ReadSnapshot;
use wire::{Effects, Entry, Header, Kind, Op, ReadLevel, RecordText, Request};

/// The nodes of the first configuration.
pub(super) const NODES: [u32; 3] = [1, 2, 3];
/// All clients have one connection.
const CONNECTION: Conn = 1;

/// What has happened, and what was seen of it.
pub(super) struct Run {
    /// Who watches.
    pub checks: Checks,
    /// The newest configuration.
    pub record: PartitionRecord,
    /// The log of its primary.
    pub log: Vec<Entry>,
    /// The state that all replicas have.
    pub state: MemoryEngine,
    /// Virtual microseconds.
    pub now: u64,
    /// What clients asked and were told, and so on.
    pub operations: Vec<Operation>,
    pub jobs: Vec<JobAnswer>,
    pub lost: Vec<ReportedLoss>,
    pub transactions: Vec<TxnOperation>,
    pub given_up: Vec<GivenUp>,
    pub snapshots: Vec<CompleteSnapshot>,
    pub backups: Vec<Backup>,
    pub restored: Vec<Restored>,
    /// Turns at rows.
    pub turns: Vec<Turn>,
    /// What was asked of procedures.
    pub calls: BTreeMap<(SessionId, u64), calls::Asked>,
    /// What was told of it, by entry.
    pub called: BTreeMap<Position, i64>,
    pub failovers: Vec<FailoverRecord>,
    /// Nodes that came back behind a failover that lost something.
    pub returned: Vec<u32>,
    /// Nodes whose process has ended.
    ended: BTreeSet<u32>,
    requests: u64,
}

/// The change that puts a value to a key.
pub(super) fn put_row(key: &str, value: u64) -> Mutation {
    Mutation { key: KeySpace::Bare.row_key(key.as_bytes()), value: Some(rows::row(key, value, false)) }
}

/// A configuration whose members acknowledge by themselves, however few they are.
pub(super) fn available(record: PartitionRecord) -> PartitionRecord {
    let policy = Policy { below: Below::Available, ..record.policy };
    PartitionRecord { policy, ..record }
}

/// The payload of an entry of these changes.
pub(super) fn payload(mutations: &[Mutation]) -> Bytes {
    let mutations = mutations.to_vec();
    Effects { request_hash: 0, confirmed: 0, outcome: 0, affected: 1, mutations }.encode()
}

/// An answer to a read at an LSN: the row has this value since that LSN.
pub(super) fn found(lsn: u64, value: u64, read_at: u64) -> Answer {
    Answer::Found { row: Some((Lsn(lsn), value)), at: Lsn(read_at), epoch: Epoch(1) }
}

impl Run {
    /// Nothing is written yet.
    pub fn new() -> Run {
        Run::of_partition(|_| {})
    }

    /// The same of a partition of a kind of its own.
    pub fn of_partition(tell: impl FnOnce(&mut Lineage)) -> Run {
        let mut run = Run {
            checks: Checks::default(),
            record: record(1, 1, &NODES),
            log: Vec::new(),
            state: MemoryEngine::volatile(),
            now: 0,
            operations: Vec::new(),
            jobs: Vec::new(),
            lost: Vec::new(),
            transactions: Vec::new(),
            given_up: Vec::new(),
            snapshots: Vec::new(),
            backups: Vec::new(),
            restored: Vec::new(),
            turns: Vec::new(),
            calls: BTreeMap::new(),
            called: BTreeMap::new(),
            failovers: Vec::new(),
            returned: Vec::new(),
            ended: BTreeSet::new(),
            requests: 0,
        };
        tell(&mut run.checks.lineage);
        run.configured(record(1, 1, &NODES));
        run.serves();
        run
    }

    /// A client has put 1, 2 and so on, each to the key of its place.
    pub fn of(keys: &[&str]) -> Run {
        let mut run = Run::new();
        for (value, key) in (1..).zip(keys) {
            run.put(key, value);
        }
        run
    }

    /// Where the log ends.
    pub fn tip(&self) -> Position {
        self.log.last().map_or(Position::ZERO, Entry::at)
    }

    /// Where the next entry comes.
    pub fn next_at(&self) -> Position {
        Position::new(self.record.term, self.tip().lsn.next())
    }

    /// The head of the next entry.
    pub fn header(&self, kind: Kind) -> Header {
        Header::new(kind, P, self.next_at(), self.log.last().map_or(0, Entry::crc))
    }
}

/// What controllers and nodes do.
impl Run {
    /// A record is written, and all who are in sync act in it.
    pub fn configured(&mut self, record: PartitionRecord) {
        if record.lossy {
            self.checks.agreement.may_lose(P, record.term);
        }
        let verdict = self.checks.epochs.written(self.now, record.clone());
        self.checks.expect("I10", self.now, verdict);
        for member in &record.in_sync {
            self.acts_in(*member, &record);
        }
        self.record = record;
    }

    /// A member keeps a record, and acts in it.
    pub fn acts_in(&mut self, member: Member, record: &PartitionRecord) {
        self.checks.epochs.heard(member.node, P, record.epoch);
        let verdict = self.checks.epochs.acted_in(record);
        self.checks.expect("I10", self.now, verdict);
    }

    /// Another leads from here on, and its log has the first entries of the one before: so many. Whoever is
    /// in its set drops the others.
    pub fn fails_over(&mut self, record: PartitionRecord, kept: usize) {
        self.configured(record);
        if kept < self.log.len() {
            let to = kept.checked_sub(1).map_or(Position::ZERO, |last| self.log[last].at());
            for member in self.record.in_sync.clone() {
                self.gives_up(member.node.0, to);
            }
            self.log.truncate(kept);
            self.state.discard_above(to);
        }
        let marker = self.header(Kind::Configuration);
        self.makes(marker, &[], &[]);
        self.serves();
        self.now += 10;
    }

    /// The recorded primary comes to serve.
    fn serves(&mut self) {
        let (record, tip, now) = (self.record.clone(), self.tip(), self.now);
        self.checks.availability.serves(P, now, record.term);
        let last = self.checks.epochs.before(&record);
        let past = (&self.checks.lineage, Some(&self.checks.epochs));
        let verdict = self.checks.survival.serves(now, past, last, &record, tip);
        self.checks.expect("I1", now, verdict);
        self.checks.tip(P, tip);
    }

    /// A node's log has an entry, and has it durable.
    pub fn logs(&mut self, node: u32, entry: &Entry) {
        let node = NodeId(node);
        self.checks.storage.given(node, P, entry.at());
        self.checks.entry(self.now, entry);
        self.checks.storage.proven(node, P, entry.at());
    }

    /// A member of the newest term holds an entry to be committed.
    pub fn commits(&mut self, by: Member, entry: &Entry) {
        let of = (P, self.record.term);
        let verdict = self.checks.agreement.commits(of, (entry.at(), entry.crc()), by);
        self.checks.expect("I3", self.now, verdict);
    }

    /// A member has this state at a position.
    pub fn has_state(&mut self, by: Member, at: Position, digest: u64) {
        let verdict = self.checks.agreement.state(P, at, digest, by);
        self.checks.expect("I6", self.now, verdict);
    }

    /// What the newest state is, in one number.
    pub fn digest(&self) -> u64 {
        self.state.digest(ReadAt::Applied).expect("it can be read")
    }

    /// The primary makes an entry. All who are in sync and run log it, execute these changes and hold it to
    /// be committed.
    pub fn makes(&mut self, header: Header, payload: &[u8], executed: &[Mutation]) -> Position {
        let entry = Entry::encode(header, payload);
        let at = entry.at();
        self.state.execute(at, executed);
        let digest = self.digest();
        let runs = |member: &&Member| !self.ended.contains(&member.node.0);
        let members: Vec<Member> = self.record.in_sync.iter().filter(runs).copied().collect();
        for member in &members {
            self.logs(member.node.0, &entry);
        }
        for member in members {
            self.commits(member, &entry);
            self.has_state(member, at, digest);
        }
        self.checks.tip(P, at);
        self.log.push(entry);
        at
    }

    /// The primary makes an entry of these changes.
    pub fn changes(&mut self, mutations: &[Mutation]) -> Position {
        let header = self.header(Kind::Rows);
        self.makes(header, &payload(mutations), mutations)
    }

    /// A node drops its log above a position.
    pub fn gives_up(&mut self, node: u32, to: Position) {
        let (node, others) = (NodeId(node), [self.tip()]);
        if let Some(proven) = self.checks.storage.holds(node, P) {
            self.checks.given_up(self.now, node, P, (to.lsn, proven), &others);
        }
        self.checks.storage.truncate(node, P, to);
    }

    /// A node's process ends.
    pub fn ends(&mut self, node: u32, last: Last) {
        self.checks.ends.ended(member(node), std::iter::once((P, last)));
        self.checks.ended(self.now, member(node));
        self.ended.insert(node);
    }
}

/// What clients ask, and what they are told.
impl Run {
    /// A request comes to a node: its number.
    pub fn asks(&mut self, read: ReadLevel, op: Op) -> u64 {
        self.requests += 1;
        let request = Request { id: self.requests, read, ..Request::new(TableId(1), 1, P, op) };
        self.checks.requests.received(self.now, CONNECTION, &request);
        request.id
    }

    /// A replica of this term answers a request.
    pub fn answers(&mut self, from: Member, term: Term, request: u64) {
        self.checks.requests.answered(CONNECTION, request, term);
        let Some(asked) = self.leaves(request) else { return };
        self.checks.availability.answers(P, self.now, asked.term);
        let verdict = self.checks.serving.answered(P, asked.term, from, !asked.fenced);
        self.checks.expect("I2", self.now, verdict);
    }

    fn leaves(&mut self, request: u64) -> Option<Asked> {
        let asked = self.checks.requests.take(CONNECTION, request);
        if asked.is_none() {
            self.checks.fault("R12", self.now, "a request is answered twice".into());
        }
        asked
    }

    /// The recorded primary answers what it is asked here.
    pub fn primary_answers(&mut self, op: Op) {
        let request = self.asks(ReadLevel::Primary, op);
        let (primary, term) = (self.record.primary, self.record.term);
        self.answers(primary, term, request);
    }

    /// The recorded primary acknowledges a write.
    pub fn acknowledges(&mut self, at: Position) {
        let (record, now) = (self.record.clone(), self.now);
        let (ends, lineage) = (&self.checks.ends, &self.checks.lineage);
        let has = |member: &Member, need| match self.ended.contains(&member.node.0) {
            true => Has::Ended(ends.lacks(lineage, member, (P, at), need)),
            false => {
                let there = self.checks.storage.holds(member.node, P);
                let there = there.is_some_and(|tip| lineage.has(P, tip, at));
                Has::Now(Wanted { received: there, durable: there, applied: there })
            }
        };
        let verdict = answers::check_cover((&record, &record.policy), at, has);
        self.checks.expect("I1", now, verdict);
        let verdict = answers::check_members(&record, at, false);
        self.checks.expect("I1", now, verdict);
        let verdict = answers::check_committed(P, at.lsn, self.tip().lsn);
        self.checks.expect("R12", now, verdict);
        self.primary_answers(Op::write(Vec::new()));
        self.checks.survival.acknowledged(now, at, &record);
        self.checks.staleness.acknowledged(now, P, at);
        self.checks.tip(P, at);
    }

    /// A client begins an operation, something happens, and it is told this.
    pub fn asked(&mut self, key: &str, action: Action, meanwhile: impl FnOnce(&mut Run) -> Answer) {
        let invoked = self.now;
        self.now += 5;
        let told = meanwhile(self);
        self.now += 5;
        let (number, session) = (self.operations.len() as u64, None);
        let (key, completed) = (key.to_string(), self.now);
        let operation =
            Operation { number, client: 0, partition: P, key, action, session, invoked, completed, told };
        self.operations.push(operation);
        self.now += 10;
    }

    /// A client's write makes an entry of these changes, is acknowledged, and the client is told so.
    pub fn writes(&mut self, key: &str, action: Action, mutations: &[Mutation]) -> Position {
        let next = self.next_at();
        self.asked(key, action, |run| {
            let at = run.changes(mutations);
            run.acknowledges(at);
            Answer::Done { at, copies: run.record.in_sync.len() as u8 }
        });
        next
    }

    /// A client puts a value to a key.
    pub fn put(&mut self, key: &str, value: u64) -> Position {
        self.writes(key, Action::Put(value), &[put_row(key, value)])
    }

    /// A client reads at the primary, and is told this.
    pub fn reads(&mut self, key: &str, action: Action, told: Answer) {
        self.asked(key, action, |run| {
            run.primary_answers(get());
            told
        });
    }

    /// A client reads at any replica, and is told of the state at this LSN. It wants to see what was there a
    /// millisecond ago.
    pub fn reads_any(&mut self, key: &str, (lsn, value): (u64, u64), shown: u64) {
        let bound = Bound { token: Lsn::ZERO, max_lag_ms: 1 };
        self.asked(key, Action::GetAny(bound), |run| {
            let read = ReadLevel::Any { max_lag_ms: bound.max_lag_ms, min_lsn: bound.token };
            let request = run.asks(read, get());
            if let Some(read) = run.leaves(request).and_then(|asked| asked.any) {
                let must_have = read.must_have(0);
                run.checks.shows_at_any(run.now, P, (must_have, Lsn(shown)));
            }
            found(lsn, value, shown)
        });
    }
}

/// A read of the newest state.
pub(super) fn get() -> Op {
    Op::Get { key: Bytes::new(), at: ReadSnapshot::Newest }
}

impl Run {
    /// The run is over: what is broken, ids and sentences. Every checker goes on to the end.
    pub fn end(mut self) -> Vec<(String, String)> {
        self.shows_replicas();
        let records: Vec<RecordText> = self.failovers.iter().map(RecordText::new).collect();
        self.checks.failovers(&records);
        for node in std::mem::take(&mut self.returned) {
            self.checks.told_of_lost(self.now, P, NodeId(node));
        }
        let told = ClientAnswers {
            operations: &self.operations,
            jobs: &self.jobs,
            lost: &self.lost,
            tables: &[],
            transactions: &self.transactions,
            given_up: &self.given_up,
            turns: &self.turns,
        };
        self.checks.finish_to_the_end(self.now, told);
        self.checks.cluster_snapshots(self.now, &self.snapshots, &self.operations);
        let named: Vec<CompleteSnapshot> = self.backups.iter().map(Backup::cluster_snapshot).collect();
        self.checks.cluster_snapshots(self.now, &named, &self.operations);
        self.checks.backups(self.now, &self.backups, &self.restored);
        let violations = self.checks.violations().iter();
        violations.map(|broken| (broken.id.clone(), broken.sentence.clone())).collect()
    }

    /// What the transaction manager's log has removed is looked at.
    pub fn looks_at_truncation(&mut self) {
        let checks = &mut self.checks;
        for one in checks.truncation.removed(&checks.lineage) {
            let Some(record) = checks.epochs.newest(one.partition) else { continue };
            let has = |member: &Member, at| {
                let tip = checks.storage.holds(member.node, one.partition);
                tip.is_some_and(|tip| checks.lineage.has(one.partition, tip, at))
            };
            let verdict = one.fault(record, has).map_or(Ok(()), Err);
            checks.expect("I11", self.now, verdict);
        }
    }

    /// What replicas have in the end: they are all alike.
    fn shows_replicas(&mut self) {
        let (now, at) = (self.now, self.tip());
        let mut line: Vec<_> = self.checks.lineage.line(P, at).collect();
        line.reverse();
        let verdict = calls::compare(&line, &self.calls, &self.called);
        self.checks.expect("I9", now, verdict);
        // Others have checkers of their own.
        let lineage = &self.checks.lineage;
        if lineage.has_tables(P) || lineage.transactional().has(P) {
            return;
        }
        let verdict = indexes::check(&self.state, ReadAt::Applied).expect("it can be read");
        self.checks.expect("I15", now, verdict);
        let verdict = loads::check(&self.state, at.lsn).expect("it can be read");
        self.checks.expect("PR-39", now, verdict);
    }
}
