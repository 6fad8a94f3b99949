//! Data-driven scripts (habits 8): `tests/scripts/*.txt` hold inputs and the effects they must have.
//!
//! A line that begins with `> ` is an input; the lines below it are what must follow. `#` begins a remark.
//! With `UPDATE=1` in the environment the effects are written anew instead of compared; then read the
//! difference.

mod common;

use common::cluster::hand_over;
use common::lines::{describe, table};
use common::{Fate, World};
use std::collections::BTreeMap;
use std::path::Path;
use types::config::{Cause, TailReport};
use types::{LogKind, Lsn, NodeId, PartitionId, PartitionRecord, Policy, Position, Term};
use wire::RecordText;
use wire::control::{AddIndex, AdminCommand, AlterTable, Served};

#[test]
fn scripts() {
    testing::expected::check_all(Path::new("tests/scripts"), play);
}

/// Plays a script and returns it with the effects that it really had.
fn play(text: &str) -> String {
    let mut world = World::new();
    let mut out = String::new();
    let mut skipping = false;
    for line in text.lines() {
        if let Some(input) = line.strip_prefix("> ") {
            out += &format!("{line}\n");
            act(&mut world, input);
            for line in world.take_lines() {
                out += &format!("{line}\n");
            }
            skipping = true;
        } else if line.is_empty() || line.starts_with('#') {
            out += &format!("{line}\n");
            skipping = false;
        } else {
            assert!(skipping, "an effect without an input: {line}");
        }
    }
    out
}

/// The words of an input: plain ones in order, and `name=value` ones.
struct Words<'a> {
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(input: &'a str) -> Words<'a> {
        let (named, plain): (Vec<_>, Vec<_>) = input.split_whitespace().partition(|word| word.contains('='));
        Words { plain, named: named.into_iter().map(|word| word.split_once('=').unwrap()).collect() }
    }

    fn node(&self, place: usize) -> NodeId {
        NodeId(number(self.plain[place]))
    }

    fn partition(&self, place: usize) -> PartitionId {
        PartitionId(number(self.plain[place]))
    }

    fn get<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.named.get(name).map_or(default, |text| text.parse().ok().expect("a number"))
    }
}

fn number(word: &str) -> u32 {
    word.trim_start_matches(|c: char| c.is_alphabetic())
        .parse()
        .unwrap_or_else(|_| panic!("'{word}' has no number"))
}

fn act(world: &mut World, input: &str) {
    let words = Words::new(input);
    match words.plain[0] {
        "start" => start(world, &words),
        "kill" => words.plain[1..].iter().for_each(|node| world.kill(number(node))),
        "pause" => words.plain[1..].iter().for_each(|node| world.pause(number(node))),
        "pass" => world.pass(words.plain[1].parse().unwrap()),
        "promoting" => world.nodes.get_mut(&words.node(1)).unwrap().promoting = words.plain.len() < 3,
        "deaf" => {
            let other = words.node(2);
            world.nodes.get_mut(&words.node(1)).unwrap().deaf_to.insert(other);
        }
        "end" => {
            let position = Position::new(Term(words.get("epoch", 1)), Lsn(words.get("lsn", 0)));
            world.nodes.get_mut(&words.node(1)).unwrap().ends.insert(words.partition(2), position);
        }
        "suspect" => world.suspect(words.node(1).0, words.node(2).0, words.get("end", 100)),
        "lose" => {
            world.fates.push(if words.plain[1] == "answer" { Fate::AnswerLost } else { Fate::RequestLost })
        }
        "restart-controller" => world.restart_controller(0, Default::default()),
        "propose" => propose(world, &words),
        "record" => {
            let line = describe(&world.partition(words.partition(1).0));
            world.lines.push(line);
        }
        "served" => {
            let served = Served {
                failover: words.get("failover", 1),
                partition: words.partition(2),
                reconciled_ms: world.now.wall_ms,
                serving_ms: world.now.wall_ms + 10,
                kept: Position::new(Term(words.get("kept-term", 1)), Lsn(words.get("kept", 0))),
                last_heard: Lsn(words.get("heard", 0)),
            };
            world.node_says(0, words.node(1), served);
        }
        "tail" => tail(world, &words),
        _ => operator(world, &words),
    }
}

fn start(world: &mut World, words: &Words) {
    for node in &words.plain[1..] {
        let node = number(node);
        world.start(node, words.get("incarnation", 1), words.get("store", u64::from(node) * 10));
    }
    let Some(set) = words.plain.get(1).map(|node| NodeId(number(node))) else { return };
    let node = world.nodes.get_mut(&set).unwrap();
    node.clean = words.named.contains_key("clean");
    node.damaged = words.named.get("damaged").map(|text| PartitionId(number(text))).into_iter().collect();
    if words.named.contains_key("clean") || words.named.contains_key("damaged") {
        world.connect(set);
    }
}

fn propose(world: &mut World, words: &Words) {
    let (partition, verb) = (words.partition(1).0, words.plain[2]);
    let node = words.plain.get(3).map(|node| NodeId(number(node)));
    let member = node.and_then(|node| world.nodes.get(&node)).map(|node| node.member);
    let recorded = node.and_then(|node| world.partition(partition).member_on(node).copied());
    let change = |record: &mut PartitionRecord| match verb {
        "evict" => {
            record.in_sync.retain(|other| Some(*other) != recorded);
            record.catching_up.retain(|other| Some(*other) != recorded);
            record.cause = Cause::EvictedSilent;
        }
        "alone" => {
            record.in_sync.truncate(1);
            record.cause = Cause::EvictedSilent;
        }
        "admit" => {
            record.catching_up.extend(member);
            record.cause = Cause::CatchingUp;
        }
        "level" => {
            record.catching_up.retain(|other| Some(*other) != member);
            record.in_sync.extend(member);
            record.cause = Cause::InSync;
        }
        "hand-over" => hand_over(record, recorded.unwrap()),
        "policy" => {
            record.next_policy =
                Some(Policy { version: 2, ..Policy::preset(words.named["to"], 3, LogKind::Disk).unwrap() });
            record.cause = Cause::Policy;
        }
        "policy-done" => {
            record.policy = record.next_policy.take().unwrap();
            record.cause = Cause::Policy;
        }
        verb => panic!("nothing can be proposed by '{verb}'"),
    };
    world.propose(0, partition, change);
}

fn tail(world: &mut World, words: &Words) {
    let tail = TailReport {
        partition: words.partition(2),
        node: words.node(1),
        file: words.plain[3].into(),
        term: types::Term(words.get("epoch", 1)),
        from: Lsn(101),
        to: Lsn(110),
        commits: 10,
        surely_acknowledged: 4,
        sessions: 2,
        rows: None,
    };
    world.node_says(0, words.node(1), tail);
}

fn operator(world: &mut World, words: &Words) {
    let command = match words.plain[0] {
        "create" => {
            let log = if words.named.get("log") == Some(&"memory") { LogKind::Memory } else { LogKind::Disk };
            let factor = words.named.get("factor").map(|text| text.parse().unwrap());
            let policy = words.named.get("policy").unwrap_or(&"durable");
            let mut request = table(words.plain[1], policy, log, factor, words.get("partitions", 1));
            request.min_in_sync = words.named.get("min").map(|text| text.parse().unwrap());
            AdminCommand::CreateTable(RecordText::new(&request))
        }
        "drop" => AdminCommand::DropTable(words.plain[1].into()),
        "alter" => AdminCommand::AlterTable(RecordText::new(&AlterTable {
            name: words.plain[1].into(),
            policy: words.named.get("policy").map(|text| text.to_string()),
            min_in_sync: words.named.get("min").map(|text| text.parse().unwrap()),
            available: None,
            failover_target_ms: words.named.get("target").map(|text| text.parse().unwrap()),
            factor: words.named.get("factor").map(|text| text.parse().unwrap()),
            add_index: words.named.get("index").map(|columns| AddIndex {
                name: words.named.get("name").unwrap_or(&"one").to_string(),
                columns: columns.split(',').map(str::to_string).collect(),
            }),
            drop_index: words.named.get("unindex").map(|text| text.to_string()),
            ..AlterTable::default()
        })),
        "switchover" => AdminCommand::Switchover {
            partition: words.named.get("partition").map(|text| PartitionId(number(text))),
            to: words.named.get("to").map(|text| NodeId(number(text))),
        },
        "drain" => AdminCommand::Drain(words.node(1)),
        "move" => {
            AdminCommand::Move { partition: words.partition(1), from: words.node(2), to: words.node(3) }
        }
        "force" => AdminCommand::Force {
            partition: words.partition(1),
            node: words.named.get("node").map(|text| NodeId(number(text))),
        },
        "failovers" => AdminCommand::Failovers,
        verb => panic!("there is no verb '{verb}'"),
    };
    world.admin(command);
}
