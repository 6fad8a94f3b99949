//! Three nodes without a network, disks or clocks: the script moves every message, every fsync and the time
//! itself.

mod flushes;
mod forged;
mod indexes;
mod jobs;
mod ships;

use bytes::Bytes;
use ships::Files;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use types::config::{Cause, PreviousTerm};
use types::policy::Standby;
use types::{
    Durable, Engine, Epoch, Incarnation, LogKind, Lsn, Member, Micros, NodeId, Now, PartitionId,
    PartitionRecord, Policy, Position, Rules, SessionId, StoreId, TableId, Term,
};
use understudy_engine::MemoryEngine;
use understudy_replica::{ClientRef, Host, LeaseManager, Output, Recovered, Replica, Settings};
use wire::control::{Advice, Advise, Propose, Proposed, RecordText};
use wire::log::Record;
use wire::peer::{AppendRefused, Refusal};
use wire::request::ReadSnapshot;
use wire::{Body, Entry, Op, PeerMessage, ReadLevel, Reply, Request, RowOp, Status};

const P: PartitionId = PartitionId(64);
const T: TableId = TableId(1);

struct Node {
    host: Host<LeaseManager>,
    /// The log: what was written; everything at or below `synced` is fsynced.
    log: Vec<Entry>,
    /// What the log begins behind.
    base: (Position, u32),
    unsynced: bool,
    tails: usize,
    /// Its log cannot be read back.
    unreadable: bool,
    /// Its engine's files, where engines have some.
    files: Files,
    /// It installs what it has received.
    installs: bool,
}

/// The world of one script.
pub struct World {
    nodes: BTreeMap<u32, Node>,
    record: Option<PartitionRecord>,
    wire: BTreeMap<(u32, u32), VecDeque<PeerMessage>>,
    /// Links on which everything is lost.
    mute: BTreeSet<(u32, u32)>,
    proposals: Vec<PartitionRecord>,
    now: Micros,
    requests: u64,
    settings: Settings,
    /// What the table wants.
    indexes: types::Indexes,
    /// What is said about files is shown.
    shows_ships: bool,
    trace: String,
}

fn member(node: u32) -> Member {
    Member { node: NodeId(node), store: StoreId(u64::from(node)), incarnation: Incarnation(1) }
}

impl World {
    pub fn new() -> World {
        World::with_settings(Settings::default(), &[])
    }

    /// The engines of `files` have files.
    fn with_settings(settings: Settings, files: &[u32]) -> World {
        let now = Micros::from_millis(1000);
        let node = |id: u32| {
            let lease_manager = LeaseManager::new(member(id), &settings, Micros::ZERO);
            let mut host = Host::new(member(id), settings.clone(), lease_manager);
            let parts = Files::default();
            let engine: Box<dyn Engine> = match files.contains(&id) {
                true => parts.engine(),
                false => Box::new(MemoryEngine::volatile()),
            };
            host.add(Replica::recover(member(id), P, Rules::ALL, engine, Recovered::nothing()));
            let base = (Position::ZERO, 0);
            let (tails, unsynced, unreadable, installs) = (0, false, false, false);
            (id, Node { host, log: Vec::new(), base, unsynced, tails, unreadable, files: parts, installs })
        };
        World {
            nodes: (1..=3).map(node).collect(),
            record: None,
            wire: BTreeMap::new(),
            mute: BTreeSet::new(),
            proposals: Vec::new(),
            now,
            requests: 0,
            settings,
            indexes: Default::default(),
            shows_ships: !files.is_empty(),
            trace: String::new(),
        }
    }

    /// Runs one command and gives its trace.
    ///
    /// `create POLICY[/cold][/memory] N..`: the first configuration, told to its members · `seal N M..`: N
    /// leads the set N M.. in the next epoch, told to nobody · `force N M..`: the same by an operator ·
    /// `tell N..`: the newest configuration · `put|insert|update|remove|keep N KEY [VALUE] [s=EPOCH,LSN
    /// seq=N] [since=EPOCH,LSN]` · (`k*9`: a key of nine letters) · `get N KEY [begin|at=EPOCH,LSN]` · `hold
    /// N [begin|at=EPOCH,LSN]` · `session N` · `count N [any] [FROM*LENGTH] [begin|at=EPOCH,LSN]` · `digest
    /// N [any]` · `pause N MS` · `resume N at=EPOCH,LSN` · `with SETTING NUMBER [files N..]`: a new world
    /// with this setting, in which these have engines with files · `slice N [COUNT]` · `deliver A>B [COUNT]`
    /// · `lose A>B` · `hear A>B`: B has no room for the next append · `settle [N..]`: fsyncs and messages
    /// among these until nothing moves · `sync N` · `wait MS`: time, heartbeats and ticks among all told ·
    /// `wait MS alone=N..`: these are cut off · `.. asleep=N..`: these do nothing at all · `.. hung=N..`:
    /// their heartbeats name no partition · `tick N` · `busy N TO`: N has no room · `connect N TO`: N has a
    /// new connection to TO · `decommission N`: N has no place any more and asks what only it has ·
    /// `checkpoint N` · `install N`: one step · `restart N`: on its log and files · `rot N`: a byte that it
    /// has received changes · `corrupt A>B`: a byte of the next piece changes · `garbage A>B COUNT`: messages
    /// about files that no sound node sends · `files`: what there is beside the states · `scrub N [start]` ·
    /// `spoil N`: a byte of the last file that it reads back changes · `giveup N SOURCE` · `damage N [log]
    /// [gone]`: N starts again, with its log and without its engine's files; the log is damaged too; the
    /// files' place is gone · `full N`: its log is short of room · `unhouse N`: the directory of N's files is
    /// gone · `relocate N`: it gets another one, if it asks · `mute A>B`: from now on all is lost ·
    /// `unreadable N`: its log cannot be read back · `forge A>B EPOCH [space|garbled]`: B gets from A an
    /// entry of this epoch that follows its log; of where no row may be; garbled · `grant|refuse`: the oldest
    /// proposal · `hand N TO` · `admit N TO` · `allow N COPIES` · `aim N COPIES POLICY` · `state`.
    pub fn run(&mut self, command: &str) -> String {
        self.trace.clear();
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[0] {
            "create" => self.create(words[1], &numbers(&words[2..])),
            "seal" => self.seal(&numbers(&words[1..])),
            "force" => self.force(&numbers(&words[1..])),
            "tell" => numbers(&words[1..]).into_iter().for_each(|node| self.tell(node)),
            "put" | "insert" | "update" | "remove" | "keep" | "get" | "hold" | "session" | "count"
            | "digest" | "pause" | "resume" => self.request(&words),
            "slice" => self.slice(&words),
            "with" => {
                let files = words.get(4..).map(numbers).unwrap_or_default();
                self.begin_with(words[1], words[2].parse().expect("a number"), &files);
            }
            "unreadable" => self.nodes.get_mut(&numbers(&words[1..])[0]).expect("a node").unreadable = true,
            "depart" => {
                self.with(numbers(&words[1..])[0], |host, now, out| host.decommission(now, P, out));
            }
            "damage" => {
                self.damage(numbers(&words[1..2])[0], !words.contains(&"log"), words.contains(&"gone"));
            }
            "mute" => drop(self.mute.insert(link(words[1]))),
            "forge" => self.forge(&words),
            "connect" => self.connect(&numbers(&words[1..])),
            "deliver" => {
                self.deliver(words[1], words.get(2).map_or(1, |count| count.parse().expect("a count")))
            }
            "hear" => self.hear(link(words[1])),
            "lose" => {
                let lost = self.wire.remove(&link(words[1])).map_or(0, |queue| queue.len());
                let _ = writeln!(self.trace, "{lost} lost");
            }
            "settle" => self.settle(&numbers(&words[1..])),
            "sync" => self.sync(words[1].parse().expect("a node")),
            "wait" => self.wait(&words),
            "busy" => self.busy(&numbers(&words[1..])),
            "tick" => {
                self.with(words[1].parse().expect("a node"), |host, now, out| host.tick(now, out));
            }
            "grant" | "refuse" => self.decide(words[0] == "grant"),
            "hand" | "admit" | "allow" | "aim" => self.advise(&words),
            "state" => self.state(),
            other => {
                let files = self.run_ships(&words) || self.run_flushes(&words);
                assert!(files || self.run_indexes(&words) || self.run_jobs(&words), "no command {other}");
            }
        }
        for node in self.nodes.values() {
            node.host.validate().expect("the invariants hold");
        }
        std::mem::take(&mut self.trace)
    }

    fn time(&self) -> Now {
        Now { mono: self.now, wall_ms: self.now.as_millis() }
    }

    fn create(&mut self, policy: &str, nodes: &[u32]) {
        let (name, log) = match policy.strip_suffix("/memory") {
            Some(name) => (name, LogKind::Memory),
            None => (policy, LogKind::Disk),
        };
        let (name, standby) = match name.strip_suffix("/cold") {
            Some(name) => (name, Standby::Cold),
            None => (name, Standby::Hot),
        };
        let policy = Policy { standby, ..Policy::preset(name, nodes.len() as u8, log).expect("a policy") };
        self.record = Some(PartitionRecord::new(
            P,
            T,
            Epoch(1),
            nodes.iter().map(|node| member(*node)).collect(),
            policy,
        ));
        nodes.iter().for_each(|node| self.tell(*node));
    }

    fn seal(&mut self, nodes: &[u32]) {
        let record = self.record.as_mut().expect("created");
        record.before = Some(PreviousTerm {
            epoch: record.epoch,
            term: record.term,
            primary: record.primary,
            handed_over: false,
            in_sync: record.in_sync.clone(),
        });
        let epoch = record.epoch.next();
        (record.epoch, record.term, record.primary) = (epoch, types::Term::of(epoch), member(nodes[0]));
        record.in_sync = nodes.iter().map(|node| member(*node)).collect();
        record.catching_up.retain(|member| !nodes.contains(&member.node.0));
        record.cause = Cause::Suspected;
        record.lossy = record.policy.rests_on().is_primary();
        record.failover = Some(1);
    }

    fn force(&mut self, nodes: &[u32]) {
        self.seal(nodes);
        let record = self.record.as_mut().expect("created");
        (record.cause, record.lossy) = (Cause::Forced, true);
    }

    fn with(&mut self, id: u32, act: impl FnOnce(&mut Host<LeaseManager>, Now, &mut Vec<Output>)) {
        let now = self.time();
        let mut out = Vec::new();
        let node = self.nodes.get_mut(&id).expect("a node");
        act(&mut node.host, now, &mut out);
        node.host.flush(now, &mut out);
        for output in out {
            self.carry_out(id, output);
        }
    }

    fn tell(&mut self, id: u32) {
        let record = self.record.clone().expect("created");
        self.with(id, |host, now, out| {
            host.configure(now, record, out);
        });
    }

    fn request(&mut self, words: &[&str]) {
        let text = |at: usize| match words[at].split_once('*') {
            Some((letter, count)) => letter.repeat(count.parse().expect("a count")).into(),
            None => Bytes::copy_from_slice(words[at].as_bytes()),
        };
        let position = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).map(position);
        let since = position("since=");
        let at = snapshot(words);
        let op = match words[0] {
            "put" => write(RowOp::Put { key: text(2), row: text(3) }, since),
            "insert" => write(RowOp::Insert { key: text(2), row: text(3) }, since),
            "update" => write(RowOp::Update { key: text(2), row: text(3) }, since),
            "remove" => write(RowOp::Delete { key: text(2) }, since),
            "keep" => write(RowOp::Keep { key: text(2) }, since),
            "hold" => Op::Hold { at },
            "session" => Op::OpenSession,
            "pause" => Op::Pause { for_ms: words[2].parse().expect("milliseconds") },
            "resume" => Op::Resume { at: position("at=").expect("a position") },
            "count" => {
                let from = words.iter().position(|word| word.contains('*')).map(text).unwrap_or_default();
                Op::Count { from, to: Bytes::new(), at }
            }
            "digest" => Op::Digest,
            _ => Op::Get { key: text(2), at },
        };
        self.ask(words[1].parse().expect("a node"), op, words);
    }

    fn ask(&mut self, node: u32, op: Op, words: &[&str]) {
        self.requests += 1;
        let mut request = Request { id: self.requests, ..Request::new(T, 1, P, op) };
        if words.contains(&"any") {
            request.read = ReadLevel::Any { max_lag_ms: 1000, min_lsn: Lsn::ZERO };
        }
        for word in words {
            if let Some(position) = word.strip_prefix("s=") {
                request.session = SessionId(self::position(position));
            }
            if let Some(seq) = word.strip_prefix("seq=") {
                request.seq = seq.parse().expect("a number");
            }
            if let Some(ms) = word.strip_prefix("deadline=") {
                request.deadline_ms = ms.parse().expect("milliseconds");
            }
        }
        let to = ClientRef { connection: 0, request: self.requests };
        self.with(node, |host, now, out| host.request(now, to, request, out));
    }

    /// Counts and digests go on by themselves in a node; here a script says when.
    fn slice(&mut self, words: &[&str]) {
        let node = words[1].parse().expect("a node");
        for _ in 0..words.get(2).map_or(1, |count| count.parse().expect("a count")) {
            self.with(node, |host, now, out| {
                host.aggregate(now, out);
            });
        }
    }

    fn connect(&mut self, nodes: &[u32]) {
        self.with(nodes[0], |host, now, out| host.connected(now, member(nodes[1]), out));
    }

    /// The first says to the second that it can take no appends now.
    fn busy(&mut self, nodes: &[u32]) {
        let epoch = self.record.as_ref().expect("created").epoch;
        let refused =
            AppendRefused { partition: P, epoch, from: member(nodes[0]), number: 1, why: Refusal::Busy };
        self.with(nodes[1], |host, now, out| host.peer(now, PeerMessage::AppendRefused(refused), out));
    }

    fn deliver(&mut self, name: &str, count: usize) {
        for _ in 0..count {
            let Some(message) = self.wire.get_mut(&link(name)).and_then(VecDeque::pop_front) else { return };
            self.show_ships(link(name).0, link(name).1, &message);
            self.with(link(name).1, |host, now, out| host.peer(now, message, out));
        }
    }

    fn hear(&mut self, link: (u32, u32)) {
        let next = self.wire.get_mut(&link).and_then(VecDeque::pop_front);
        let Some(PeerMessage::Append(append)) = next else { panic!("no append: {next:?}") };
        self.with(link.1, |host, now, out| host.hear_positions(now, &append, out));
    }

    fn sync(&mut self, id: u32) {
        let node = self.nodes.get_mut(&id).expect("a node");
        node.unsynced = false;
        let last = node.log.last().map_or(node.base.0, Entry::at);
        self.with(id, |host, now, out| host.synced(now, &[(P, Durable::by_storage(last))], out));
    }

    fn settle(&mut self, among: &[u32]) {
        let among: Vec<u32> =
            if among.is_empty() { self.nodes.keys().copied().collect() } else { among.to_vec() };
        for round in 0.. {
            assert!(round < 10_000, "it never settles: {:?}", self.wire);
            let unsynced: Vec<u32> = among.iter().copied().filter(|id| self.nodes[id].unsynced).collect();
            unsynced.iter().for_each(|id| self.sync(*id));
            let ready = |(from, to): &&(u32, u32)| among.contains(from) && among.contains(to);
            let next =
                self.wire.iter().filter(|(_, queue)| !queue.is_empty()).map(|(link, _)| link).find(ready);
            match (next.copied(), unsynced.is_empty()) {
                (Some((from, to)), _) => self.deliver(&format!("{from}>{to}"), 1),
                (None, true) => match among.iter().copied().find(|id| self.nodes[id].installs) {
                    Some(id) => self.install(id),
                    None => return,
                },
                (None, false) => {}
            }
        }
    }

    /// Time passes in heartbeat steps; those named in `alone=` hear nobody and are heard by nobody.
    fn wait(&mut self, words: &[&str]) {
        let end = self.now + Micros::from_millis(words[1].parse().expect("milliseconds"));
        let listed = |name: &str| -> Vec<u32> {
            let list = words.iter().find_map(|word| word.strip_prefix(name));
            list.map(|list| numbers(&list.split(',').collect::<Vec<_>>())).unwrap_or_default()
        };
        let (mut alone, asleep, hung) = (listed("alone="), listed("asleep="), listed("hung="));
        alone.extend(&asleep);
        let quiet = words.contains(&"still");
        while self.now < end {
            self.now = self.now + self.settings.heartbeat;
            let ids: Vec<u32> = self.nodes.keys().copied().filter(|id| !asleep.contains(id)).collect();
            for from in &ids {
                self.nodes.get_mut(from).expect("a node").host.leases().turn(self.now);
                for to in ids.iter().filter(|to| *to != from && !alone.contains(to) && !alone.contains(from))
                {
                    let now = self.now;
                    let sender = self.nodes.get_mut(from).expect("a node").host.leases();
                    let heartbeat = sender.heartbeat(now, member(*to), |_| !hung.contains(from));
                    let answer =
                        self.nodes.get_mut(to).expect("a node").host.leases().on_heartbeat(now, &heartbeat);
                    self.nodes.get_mut(from).expect("a node").host.leases().on_answer(now, &answer);
                }
            }
            for id in &ids {
                self.with(*id, |host, now, out| host.tick(now, out));
            }
            if !quiet {
                let among: Vec<u32> = ids.iter().copied().filter(|id| !alone.contains(id)).collect();
                self.settle(&among);
            }
        }
    }

    fn decide(&mut self, grant: bool) {
        let proposal = self.proposals.remove(0);
        let current = self.record.as_mut().expect("created");
        let accepted = grant && proposal.epoch == current.epoch.next();
        if accepted {
            *current = proposal.clone();
        }
        let proposed = Proposed {
            proposal: proposal.proposal,
            partition: P,
            accepted,
            record: RecordText::new(self.record.as_ref().expect("created")),
        };
        let asker = if accepted && proposal.before.as_ref().is_some_and(|term| term.handed_over) {
            proposal.before.expect("a term").primary
        } else {
            proposal.primary
        };
        self.with(asker.node.0, |host, now, out| host.proposed(now, &proposed, out));
    }

    fn advise(&mut self, words: &[&str]) {
        let epoch = self.record.as_ref().expect("created").epoch;
        let node = words[1].parse().expect("a node");
        let number: u32 = words[2].parse().expect("a number");
        let advice = match words[0] {
            "hand" => Advice::HandOver(member(number)),
            "admit" => Advice::Admit(member(number)),
            _ => {
                let mut policy = self.record.as_ref().expect("created").policy.clone();
                let version = policy.version + 1;
                if let Some(name) = words.get(3) {
                    policy = Policy::preset(name, policy.factor, policy.log).expect("a policy");
                }
                (policy.min_in_sync, policy.version) = (number as u8, version);
                Advice::Policy(RecordText::new(&policy))
            }
        };
        self.with(node, |host, now, out| {
            host.advise(now, Advise { partition: P, epoch, advice }, out);
            host.tick(now, out);
        });
    }

    fn carry_out(&mut self, id: u32, output: Output) {
        match output {
            Output::Log(Record::Entry(entry)) => self.logged(id, entry),
            Output::Log(Record::Truncate { to, .. }) => {
                let node = self.nodes.get_mut(&id).expect("a node");
                node.log.retain(|entry| entry.lsn() <= to.lsn);
                let _ = writeln!(self.trace, "n{id} cuts its log to {to}");
            }
            Output::Log(Record::Base { at, crc, .. }) => {
                let node = self.nodes.get_mut(&id).expect("a node");
                (node.log, node.base, node.unsynced) = (Vec::new(), (at, crc), true);
                let _ = writeln!(self.trace, "n{id} begins its log behind {at}");
            }
            Output::Log(Record::Trim { below, .. }) if self.shows_ships => {
                let node = self.nodes.get_mut(&id).expect("a node");
                if let Some(last) = node.log.iter().rfind(|entry| entry.lsn() < below) {
                    node.base = (last.at(), last.crc());
                    let _ = writeln!(self.trace, "n{id} forgets its log up to {}", last.at());
                }
                node.log.retain(|entry| entry.lsn() >= below);
            }
            Output::Log(_) => {}
            Output::Send { to, .. } if self.mute.contains(&(id, to.node.0)) => {}
            Output::Send { to, message } => self.wire.entry((id, to.node.0)).or_default().push_back(message),
            Output::Reply { to, reply, valid_until, .. } => self.replied(id, to, &reply, valid_until),
            Output::Propose(propose) => self.proposed(id, &propose),
            Output::Suspect(suspect) => {
                let _ = writeln!(
                    self.trace,
                    "n{id} misses {} ({} ms)",
                    suspect.primary.node,
                    suspect.silent_us / 1000
                );
            }
            Output::Served(served) => {
                let _ = writeln!(
                    self.trace,
                    "n{id} serves; kept up to {}, heard up to {}",
                    served.kept.lsn, served.last_heard
                );
            }
            Output::SetAside { report, entries, rows } => {
                self.nodes.get_mut(&id).expect("a node").tails += entries.len();
                let _ = writeln!(
                    self.trace,
                    "n{id} sets aside {}..{} of {}: {} commits, {} surely acknowledged",
                    report.from, report.to, report.term, report.commits, report.surely_acknowledged
                );
                assert!(entries.is_empty() == report.rows.is_some(), "{report:?}");
                self.show_rows(&rows);
            }
            Output::ReadLog { partition, from, max_bytes: _, purpose } => {
                let node = &self.nodes[&id];
                let entries = match node.unreadable {
                    true => Err("the disk gives nothing back".to_owned()),
                    false => Ok(node.log.iter().filter(|entry| entry.lsn() >= from).cloned().collect()),
                };
                self.with(id, |host, now, out| host.log_read(now, partition, purpose, entries, out));
            }
            Output::Install { .. } => self.nodes.get_mut(&id).expect("a node").installs = true,
            Output::Checkpoint { .. } => self.asked_for_flush(id),
            Output::Notice { what, .. } => {
                let _ = writeln!(self.trace, "n{id} notes: {what}");
            }
            Output::Damaged { reason, .. } => drop(writeln!(self.trace, "n{id} stops: {reason}")),
        }
    }

    fn replied(&mut self, id: u32, to: ClientRef, reply: &Reply, valid_until: Option<Micros>) {
        let stale = valid_until.is_some_and(|until| self.now >= until);
        let what = if stale { "no lease: not answered".into() } else { show(&reply.status, &reply.body) };
        let _ = writeln!(self.trace, "n{id} answers #{}: {what}", to.request);
        self.show_job(reply);
        if let (Status::Ok, Body::Number(_), false) = (&reply.status, &reply.body, stale) {
            let _ = writeln!(self.trace, "  as of LSN {}", reply.lsn);
        }
        if matches!(reply.status, Status::Ok)
            && matches!(reply.body, Body::Affected(_) | Body::None)
            && !stale
        {
            let _ = writeln!(self.trace, "  at {} with {} copies", reply.position(), reply.copies);
        }
    }

    fn proposed(&mut self, id: u32, propose: &Propose) {
        let record: PartitionRecord = propose.record.read().expect("a record");
        if self.proposals.iter().all(|known| known.proposal != record.proposal) {
            let names = |members: &[Member]| -> Vec<String> {
                members.iter().map(|member| member.node.to_string()).collect()
            };
            let (set, up) = (names(&record.in_sync).join(" "), names(&record.catching_up).join(" "));
            let doubt = if record.lossy { ", in doubt" } else { "" };
            let (epoch, cause) = (record.epoch, record.cause);
            let _ = writeln!(
                self.trace,
                "n{id} proposes {epoch} {cause:?}: in sync {set}, catching up [{up}]{doubt}"
            );
            self.proposals.push(record);
        }
    }

    fn state(&mut self) {
        let now = self.time();
        for (id, node) in &self.nodes {
            for status in node.host.status(now) {
                let _ = writeln!(
                    self.trace,
                    "n{id} {:?} {}: end {} {} committed {}{}",
                    status.role,
                    status.epoch,
                    status.end,
                    status.marks,
                    status.committed,
                    if status.waits.is_empty() { String::new() } else { format!("; {}", status.waits) }
                );
            }
        }
    }
}

fn show(status: &Status, body: &Body) -> String {
    if let (Status::Ok, Some(text)) = (status, indexes::show(body).or_else(|| ships::show(body))) {
        return text;
    }
    match (status, body) {
        (Status::Ok, Body::Row(Some((lsn, row)))) => format!("{} (LSN {lsn})", String::from_utf8_lossy(row)),
        (Status::Ok, Body::Row(None)) => "nothing there".into(),
        (Status::Ok, Body::Number(number)) => format!("{number}"),
        (Status::Ok, _) => "ok".into(),
        (other, _) => format!("{other:?}"),
    }
}

fn numbers(words: &[&str]) -> Vec<u32> {
    words.iter().map(|word| word.parse().expect("a node")).collect()
}

fn link(name: &str) -> (u32, u32) {
    let (from, to) = name.split_once('>').expect("A>B");
    (from.parse().expect("a node"), to.parse().expect("a node"))
}

fn snapshot(words: &[&str]) -> ReadSnapshot {
    match words.contains(&"begin") {
        true => ReadSnapshot::Begin,
        false => words
            .iter()
            .find_map(|word| word.strip_prefix("at="))
            .map_or(ReadSnapshot::Newest, |at| ReadSnapshot::At(position(at))),
    }
}

fn position(text: &str) -> Position {
    let (epoch, lsn) = text.split_once(',').expect("epoch,lsn");
    Position::new(Term(epoch.parse().expect("a number")), Lsn(lsn.parse().expect("a number")))
}

fn write(op: RowOp, since: Option<Position>) -> Op {
    Op::Write { ops: vec![op], mark: None, since }
}
