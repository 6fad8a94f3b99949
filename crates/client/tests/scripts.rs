//! Scripts for the pure core: each file in `tests/scripts` holds inputs and the trace that they must give.
//!
//! A block is a line of input, then what came of it, indented, then an empty line or the next block. Lines
//! that begin with `#` are kept. With `UPDATE=1` the expected traces are written anew; look at the difference
//! before committing it.
//!
//! ```text
//! config window=N patience=MS idle=MS      before anything else
//! map p1 e2 n1 n2 n3                       a cluster map: partition 1 in epoch 2, led by node 1
//! at MS                                    the clock moves, and timers run
//! write L1 p1 KEY [deadline=MS]            read L1 p1 KEY [any] [node=n2] [deadline=MS]
//! up n1 / down n1                          a connection is there, or gone
//! reply n1 t3[@ATTEMPT] ok lsn=7 epoch=2   status: ok exists not-primary not-yet expected=N unknown bad few full
//!                                          not-found corrupt; [hint=p1,e3,n2,n1]
//! newest p1                                the newest acknowledgement
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use types::{Epoch, Lsn, Member, Micros, NodeId, PartitionId, PartitionRecord, Policy, TableId, Term};
use understudy_client::{Call, Core, CoreConfig, Effect, LaneId, Ticket};
use wire::control::ClusterMap;
use wire::request::{Hint, Outcome as Refusal};
use wire::{Body, Message, Op, ReadLevel, RecordText, Reply, RowOp, Status};

struct World {
    core: Core,
    now: Micros,
    /// Ids of the attempts of each call, in order.
    sent: BTreeMap<u64, Vec<u64>>,
}

fn number(text: &str) -> u64 {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    digits.parse().unwrap_or_else(|_| panic!("no number in {text:?}"))
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn record(words: &[&str]) -> PartitionRecord {
    let member = |word: &&str| Member { node: NodeId(number(word) as u32), ..Member::default() };
    let in_sync: Vec<Member> = words[2..].iter().map(member).collect();
    PartitionRecord {
        term: Term(1),
        ..PartitionRecord::new(
            PartitionId(number(words[0]) as u32),
            TableId(1),
            Epoch(number(words[1])),
            in_sync,
            Policy::preset("durable", 1, types::LogKind::Disk).expect("a preset"),
        )
    }
}

impl World {
    fn new() -> World {
        World { core: Core::new(CoreConfig::default()), now: Micros::ZERO, sent: BTreeMap::new() }
    }

    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let now = self.now;
        let node = |word: &str| NodeId(number(word) as u32);
        let mut out = String::new();
        match words[0] {
            "config" => self.configure(&words),
            "map" => {
                let partitions = vec![RecordText::new(&record(&words[1..]))];
                let (cluster, nodes, tables) = (None, Vec::new(), Vec::new());
                let cluster_map = ClusterMap {
                    revision: 1,
                    cluster,
                    nodes,
                    tables,
                    partitions,
                    dropped: Vec::new(),
                    whole: true,
                };
                self.core.cluster_map(now, &cluster_map).expect("a good cluster map");
            }
            "at" => {
                self.now = Micros::from_millis(number(words[1]));
                // Every timer at its own time, as a driver would.
                while let Some(timer) = self.core.next_timer().filter(|timer| *timer <= self.now) {
                    self.core.tick(timer);
                    self.effects(timer, &mut out);
                }
            }
            "write" | "read" | "count" => self.submit(&words),
            "up" => self.core.connected(now, node(words[1])),
            "down" => self.core.disconnected(now, node(words[1]), "the connection broke"),
            "reply" => self.reply(&words),
            "newest" => {
                let newest = self.core.map().newest(PartitionId(number(words[1]) as u32));
                writeln!(out, "  {newest:?}").expect("a string");
            }
            other => panic!("unknown input {other:?}"),
        }
        self.effects(self.now, &mut out);
        out
    }

    fn configure(&mut self, words: &[&str]) {
        let default = CoreConfig::default();
        let ms = |name: &str, other: Micros| {
            option(words, name).map_or(other, |ms| Micros::from_millis(number(ms)))
        };
        self.core = Core::new(CoreConfig {
            window: option(words, "window").map_or(default.window, |n| number(n) as usize),
            attempt_timeout: ms("timeout", default.attempt_timeout),
            patience: ms("patience", default.patience),
            idle: ms("idle", default.idle),
            ..default
        });
    }

    fn submit(&mut self, words: &[&str]) {
        let key = bytes::Bytes::from(words[3].to_string());
        let op = match words[0] {
            "read" => Op::Get { key, at: Default::default() },
            "count" => Op::Count { from: key, to: bytes::Bytes::new(), at: Default::default() },
            _ => Op::write(vec![RowOp::Put { key, row: bytes::Bytes::from_static(b"row") }]),
        };
        let mut call = Call::new(TableId(1), 1, PartitionId(number(words[2]) as u32), op);
        if words.contains(&"any") {
            call.read = ReadLevel::Any { max_lag_ms: 100, min_lsn: Lsn::ZERO };
        }
        call.node = option(words, "node").map(|node| NodeId(number(node) as u32));
        call.deadline = Micros::from_millis(option(words, "deadline").map_or(0, number));
        self.core.submit(self.now, LaneId(number(words[1]) as u32), call);
    }

    fn reply(&mut self, words: &[&str]) {
        let (ticket, attempt) = words[2].split_once('@').unwrap_or((words[2], ""));
        let attempts = &self.sent[&number(ticket)];
        let id = if attempt.is_empty() {
            *attempts.last().expect("sent")
        } else {
            attempts[number(attempt) as usize - 1]
        };
        let why = || "because".to_string();
        let status = match words[3].split('=').next().expect("a status") {
            "ok" => Status::Ok,
            "exists" => Status::Refused(Refusal::Exists),
            "not-primary" => Status::NotPrimary,
            "not-yet" => Status::NotYet(why()),
            "expected" => Status::Expected(number(words[3].trim_start_matches("expected="))),
            "unknown" => Status::Unknown(why()),
            "bad" => Status::Bad(why()),
            "few" => Status::TooFewCopies(why()),
            "full" => Status::Full(why()),
            "not-found" => Status::NotFound(why()),
            "corrupt" => Status::Corrupt(why()),
            other => panic!("unknown status {other:?}"),
        };
        let hint = option(words, "hint").map(|hint| hint.split(',').collect::<Vec<_>>());
        let reply = Reply {
            id,
            status,
            lsn: Lsn(option(words, "lsn").map_or(0, number)),
            epoch: Epoch(option(words, "epoch").map_or(1, number)),
            policy: 1,
            copies: 3,
            hint: hint.map(|words| Box::new(Hint::new(&record(&words)))),
            body: Body::None,
        };
        self.core.reply(self.now, NodeId(number(words[1]) as u32), reply);
    }

    fn effects(&mut self, at: Micros, out: &mut String) {
        while let Some(effect) = self.core.next_effect() {
            let what = match effect {
                Effect::Connect(node) => format!("connect {node}"),
                Effect::Close(node) => format!("close {node}"),
                Effect::Send(node, id) => {
                    let Some(message) = self.core.message(id) else { continue };
                    let Message::Request(request) = message else { panic!("{message:?}") };
                    let ticket = Ticket(id >> 16);
                    self.sent.entry(ticket.0).or_default().push(request.id);
                    format!("send {node} {ticket} {}", describe(request))
                }
            };
            writeln!(out, "  {:>7.1} {what}", at.0 as f64 / 1000.0).expect("a string");
        }
        while let Some(completed) = self.core.next_completed() {
            let outcome = match &completed.outcome {
                understudy_client::Outcome::Ok(answer) => format!("ok {}", answer.position()),
                understudy_client::Outcome::Refused(why, answer) => {
                    format!("refused {why:?} {}", answer.position())
                }
                understudy_client::Outcome::Unknown(why) => format!("unknown: {why}"),
                understudy_client::Outcome::Failed(kind, why) => format!("failed {kind:?}: {why}"),
            };
            let (ticket, lane, attempts) = (completed.ticket, completed.lane, completed.attempts);
            writeln!(
                out,
                "  {:>7.1} done {ticket} {lane} {outcome} (attempts {attempts})",
                at.0 as f64 / 1000.0
            )
            .expect("a string");
        }
        for loss in self.core.take_losses() {
            let tickets: Vec<String> = loss.tickets.iter().map(Ticket::to_string).collect();
            let (from, to) = (loss.from_seq, loss.to_seq);
            let (lane, partition) = (loss.lane, loss.partition);
            writeln!(out, "          lost {lane} {partition} seq {from}..{to} [{}]", tickets.join(" "))
                .expect("a string");
        }
    }
}

fn describe(request: &wire::Request) -> String {
    let deadline =
        if request.deadline_ms > 0 { format!(" within {}", request.deadline_ms) } else { String::new() };
    match &request.op {
        Op::OpenSession => "open session".to_string(),
        Op::Write { ops, .. } => format!(
            "write {} session {} seq {} confirmed {}{deadline}",
            String::from_utf8_lossy(ops[0].key()),
            request.session.0,
            request.seq,
            request.confirmed
        ),
        Op::Get { key, .. } => format!("get {}{deadline}", String::from_utf8_lossy(key)),
        Op::Count { from, .. } => format!("count from {}{deadline}", String::from_utf8_lossy(from)),
        other => format!("{other:?}"),
    }
}

/// Runs a script; what it should look like.
fn play(script: &str) -> String {
    let mut world = World::new();
    let mut out = String::new();
    for line in script.lines() {
        if line.starts_with("  ") {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        if !line.is_empty() && !line.starts_with('#') {
            out.push_str(&world.run(line));
        }
    }
    out
}

#[test]
fn scripts_give_their_traces() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    testing::expected::check_all(&folder, play);
}
