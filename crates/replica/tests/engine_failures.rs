//! What clients are told when the engine under a replica fails, or when it steps down: each request has its
//! one answer. The engine and its files are real.

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use types::engine::space;
use types::{
    Durable, Epoch, Incarnation, JobId, LogKind, Lsn, Member, Micros, NodeId, Now, PartitionId,
    PartitionRecord, Policy, Position, Rules, SessionId, StoreId, TableId, Term,
};
use understudy_engine::LsmEngine;
use understudy_replica::{ClientRef, Host, LeaseManager, Output, Recovered, Replica, Settings};
use wire::entry::Kind;
use wire::job::JobRecord;
use wire::log::Record;
use wire::peer::{Append, Copy, Refusal};
use wire::request::ReadSnapshot;
use wire::{Effects, Entry, Header, Op, PeerMessage, ReadLevel, Reply, Request, RowOp, Status};

const P: PartitionId = PartitionId(64);
const T: TableId = TableId(1);

/// One test at a time: the limit of open files is the whole process's.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Nothing can be opened as long as this lives.
struct NoFiles {
    limits: Rlimit,
    _last: File,
}

impl NoFiles {
    fn begin() -> NoFiles {
        let limits = getrlimit(Resource::Nofile);
        // It takes the lowest number that is free.
        let last = File::open("/dev/null").expect("opens");
        let next = std::os::fd::AsRawFd::as_raw_fd(&last) as u64 + 1;
        setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: limits.maximum }).expect("limits");
        NoFiles { limits, _last: last }
    }
}

impl Drop for NoFiles {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.limits).expect("lifts the limit");
    }
}

/// One replica that leads alone, on an LSM engine with files that no read has opened yet.
struct Alone {
    host: Host<LeaseManager>,
    now: Now,
    session: SessionId,
    requests: u64,
    replies: Vec<Reply>,
    damaged: Option<String>,
    dir: tempfile::TempDir,
}

impl Alone {
    fn new() -> Alone {
        let dir = tempfile::tempdir().expect("a directory");
        let me = member(1);
        let now = Now { mono: Micros::from_millis(1000), wall_ms: 1_000_000 };
        let lease_manager = LeaseManager::new(me, &Settings::default(), Micros::ZERO);
        let settings = Settings { slice_rows: 100, ..Settings::default() };
        let mut host = Host::new(me, settings, lease_manager);
        let engine = LsmEngine::open(&dir.path().join("engine")).expect("opens");
        host.add(Replica::recover(me, P, Rules::ALL, Box::new(engine), Recovered::nothing()));
        let session = SessionId::NONE;
        let mut alone = Alone { host, now, session, requests: 0, replies: Vec::new(), damaged: None, dir };
        alone.configure(1, me, vec![me]);
        alone.fill();
        alone
    }

    /// The configuration of an epoch.
    fn configure(&mut self, epoch: u64, _primary: Member, in_sync: Vec<Member>) {
        let record = PartitionRecord::new(
            P,
            T,
            Epoch(epoch),
            in_sync,
            Policy::preset("durable", 1, LogKind::Disk).expect("a policy"),
        );
        self.with(|host, now, out| assert!(host.configure(now, record, out)));
    }

    /// A session and enough rows for many blocks, in files.
    fn fill(&mut self) {
        let opened = self.ask(Op::OpenSession, false);
        assert_eq!(opened.status, Status::Ok);
        self.session = SessionId(opened.position());
        let put = |n: u32| RowOp::Put { key: key(n), row: Bytes::from(vec![n as u8; 500]) };
        assert_eq!(self.ask(Op::write((0..1000).map(put).collect()), false).status, Status::Ok);
        self.with(|host, _, _| {
            let persisted = host.replica_mut(P).expect("a replica").checkpoint().expect("writes");
            assert!(persisted.lsn > Lsn::ZERO);
        });
    }

    /// Does something, and all that follows from it: every entry is durable at once.
    fn with(&mut self, act: impl FnOnce(&mut Host<LeaseManager>, Now, &mut Vec<Output>)) {
        let mut out = Vec::new();
        act(&mut self.host, self.now, &mut out);
        loop {
            self.host.flush(self.now, &mut out);
            let mut synced = Vec::new();
            for output in std::mem::take(&mut out) {
                match output {
                    Output::Log(Record::Entry(entry)) => synced.push((P, Durable::by_storage(entry.at()))),
                    Output::Reply { reply, .. } => self.replies.push(*reply),
                    Output::Damaged { reason, .. } => self.damaged = Some(reason),
                    _ => {}
                }
            }
            if synced.is_empty() {
                return;
            }
            self.host.synced(self.now, &synced, &mut out);
        }
    }

    fn request(&mut self, op: Op, in_session: bool) {
        self.requests += 1;
        let id = self.requests;
        let (session, seq) = if in_session { (self.session, 1) } else { (SessionId::NONE, 0) };
        let (deadline_ms, schema, read, confirmed, trace) = (0, 1, ReadLevel::Primary, 0, 0);
        let (table, partition) = (T, P);
        let request =
            Request { id, session, seq, confirmed, deadline_ms, table, schema, partition, read, trace, op };
        let to = ClientRef { connection: 0, request: id };
        self.with(|host, now, out| host.request(now, to, request, out));
    }

    /// The one answer to a request.
    fn ask(&mut self, op: Op, in_session: bool) -> Reply {
        self.request(op, in_session);
        // Counts go on by themselves in a node.
        while self.host.aggregates() {
            self.with(|host, now, out| {
                host.aggregate(now, out);
            });
        }
        self.answered()
    }

    fn answered(&mut self) -> Reply {
        let mut replies = std::mem::take(&mut self.replies);
        assert!(replies.len() == 1 && replies[0].id == self.requests, "exactly one answer: {replies:?}");
        replies.pop().expect("one")
    }

    fn tables(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        files_below(self.dir.path(), &mut found);
        found.retain(|path| path.parent().is_some_and(|dir| dir.ends_with("tables")));
        assert!(!found.is_empty(), "the engine has files");
        found
    }
}

fn member(node: u32) -> Member {
    Member { node: NodeId(node), store: StoreId(node.into()), incarnation: Incarnation(1) }
}

fn key(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("lists") {
        let path = entry.expect("lists").path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

/// Requests of every kind that look at the engine before they are answered, and whether they are made in a
/// session.
fn looking() -> Vec<(Op, bool)> {
    let (at, none) = (ReadSnapshot::Newest, Bytes::new());
    let insert = || RowOp::Insert { key: key(700), row: Bytes::from_static(b"new") };
    let job = JobId::new(1_000_000, 7);
    vec![
        (Op::Get { key: key(700), at }, false),
        (Op::Scan { from: key(600), to: none.clone(), limit: 9, at }, false),
        (Op::Count { from: none.clone(), to: none, at }, false),
        (Op::Indexes, false),
        (Op::write(vec![insert()]), false),
        (Op::write(vec![insert()]), true),
        (Op::Job { job, after: 0, records: vec![JobRecord { number: 1, op: insert() }] }, true),
        (Op::EndJob { job, through: 0, abort: true }, true),
    ]
}

#[test]
fn every_request_is_answered_when_the_files_are_damaged() {
    let _alone = alone();
    for (op, in_session) in looking() {
        let mut alone = Alone::new();
        for path in alone.tables() {
            let length = std::fs::metadata(&path).expect("a file").len() as usize;
            let mut file = OpenOptions::new().write(true).open(&path).expect("opens");
            file.write_all(&vec![0xa5; length]).expect("writes");
        }
        let reply = alone.ask(op.clone(), in_session);
        assert!(matches!(reply.status, Status::Corrupt(_)), "{op:?}: {:?}", reply.status);
        // From here on another replica leads.
        let again = alone.ask(op, in_session);
        assert_eq!(again.status, Status::NotPrimary);
    }
}

#[test]
fn a_count_is_answered_when_the_replica_is_removed_meanwhile() {
    let _alone = alone();
    let mut alone = Alone::new();
    alone.request(Op::Count { from: Bytes::new(), to: Bytes::new(), at: ReadSnapshot::Newest }, false);
    assert!(alone.replies.is_empty() && alone.host.aggregates(), "it takes more than one slice");
    alone.with(|host, now, out| host.dismiss(now, P, out));
    assert_eq!(alone.answered().status, Status::NotPrimary);
    assert!(alone.host.remove(P).is_some());
}

#[test]
fn pr372_who_steps_down_says_who_leads_and_who_knows_no_session_does_not() {
    let _alone = alone();
    let put = || Op::write(vec![RowOp::Put { key: key(1), row: Bytes::from_static(b"new") }]);
    let mut old = Alone::new();
    let asked = Request { id: 7, session: old.session, seq: 1, ..Request::new(T, 1, P, put()) };
    let policy = Policy::preset("durable", 1, LogKind::Disk).expect("a policy");
    let next = PartitionRecord::new(P, T, Epoch(2), vec![member(2), member(1)], policy);
    // The entry is not durable yet when another one leads.
    old.with(|host, now, out| {
        host.request(now, ClientRef { connection: 0, request: 7 }, asked, out);
        assert!(host.configure(now, next, out));
    });
    let told = old.replies.pop().expect("an answer");
    assert!(matches!(told.status, Status::Unknown(_)) && old.replies.is_empty(), "{told:?}");
    let leads = told.hint.and_then(|hint| hint.record()).map(|record| record.primary);
    assert_eq!(leads, Some(member(2)), "it is asked what became of the write");
    let mut other = Alone::new();
    other.session = SessionId(Position::new(Term(1), Lsn(9_999)));
    let told = other.ask(put(), true);
    assert!(matches!(told.status, Status::Unknown(_)) && told.hint.is_none(), "{told:?}");
}

#[test]
fn want_of_open_files_is_no_damage() {
    let _alone = alone();
    for (op, in_session) in looking() {
        let mut leader = Alone::new();
        let none = NoFiles::begin();
        for _ in 0..2 {
            let reply = leader.ask(op.clone(), in_session);
            assert!(matches!(reply.status, Status::NotYet(_)), "{op:?}: {:?}", reply.status);
        }
        drop(none);
        let reply = leader.ask(op.clone(), in_session);
        let answered = matches!(reply.status, Status::Ok | Status::Refused(_));
        assert!(answered, "{op:?} is done later: {:?}", reply.status);
    }
}

#[test]
fn a_backup_without_open_files_takes_the_entry_later() {
    let _alone = alone();
    let mut backup = Alone::new();
    let end = |backup: &Alone| backup.host.replica(P).expect("a replica").log().tail().end();
    let (before, crc) = (end(&backup), backup.host.replica(P).expect("a replica").log().tail().end_crc());
    backup.configure(2, member(2), vec![member(2), member(1)]);
    let mut header = Header::new(Kind::Rows, P, Position::new(Term(2), before.lsn.next()), crc);
    (header.table, header.session, header.seq) = (T, backup.session, 1);
    let effects = Effects { request_hash: 1, confirmed: 0, outcome: 0, affected: 0, mutations: Vec::new() };
    // What a session's row becomes depends on what it was.
    let append = Append {
        partition: P,
        epoch: Epoch(2),
        from: member(2),
        number: 1,
        prev: before,
        prev_crc: crc,
        committed: Lsn::ZERO,
        secured: Lsn::ZERO,
        log_floor: Lsn::ZERO,
        sent_us: 0,
        echo_us: 0,
        entries: Entry::encode(header, &effects.encode()).bytes().clone(),
    };
    let none = NoFiles::begin();
    backup.with(|host, now, out| host.peer(now, PeerMessage::Append(append.clone()), out));
    drop(none);
    assert_eq!((end(&backup), backup.damaged.take()), (before, None), "it waits, and is not damaged");
    backup.with(|host, now, out| host.peer(now, PeerMessage::Append(append), out));
    assert_eq!((end(&backup).lsn, backup.damaged), (before.lsn.next(), None));
}

#[test]
fn pr117_who_is_damaged_in_the_middle_of_a_copy_says_so() {
    let _alone = alone();
    let mut joiner = Alone::new();
    let record = PartitionRecord {
        catching_up: vec![member(1)],
        ..PartitionRecord::new(
            P,
            T,
            Epoch(2),
            vec![member(2)],
            Policy::preset("durable", 2, LogKind::Disk).expect("a policy"),
        )
    };
    joiner.with(|host, now, out| assert!(host.configure(now, record, out)));
    let piece = |piece: u32| {
        // No engine takes the key of the second one.
        let key = Bytes::copy_from_slice(if piece == 0 { &[space::ROW, 7] } else { &[0; 4] });
        let rows = vec![(key, Lsn(3), Bytes::from_static(b"row"))];
        PeerMessage::Copy(Copy {
            partition: P,
            epoch: Epoch(2),
            from: member(2),
            number: 9,
            piece,
            at: Position::new(Term(2), Lsn(1000)),
            at_crc: 7,
            history: vec![(Term(1), Lsn(1)), (Term(2), Lsn(1000))],
            last: false,
            rows,
        })
    };
    let mut answers = |message: PeerMessage| {
        let mut out = Vec::new();
        joiner.host.peer(joiner.now, message, &mut out);
        let sent = |output| if let Output::Send { message, .. } = output { Some(message) } else { None };
        out.into_iter().filter_map(sent).collect::<Vec<_>>()
    };
    let first = answers(piece(0));
    assert!(matches!(&first[..], [PeerMessage::Copied(_)]), "{first:?}");
    let refused = |answers: &[PeerMessage]| match answers {
        [PeerMessage::AppendRefused(refused)] => refused.number == 9 && refused.why == Refusal::Busy,
        _ => false,
    };
    for piece in [piece(1), piece(1), piece(2)] {
        let told = answers(piece);
        assert!(refused(&told), "{told:?}");
    }
}
