//! The planted bugs bite: each rule that is taken out does the harm it was there to prevent.

mod common;

use common::lines::table;
use common::{Fate, World};
use types::config::{Cause, PartitionRecord, PreviousTerm};
use types::{Epoch, Finding, LogKind, Lsn, Member, NodeId, PartitionId, Position, Rules, Term};
use understudy_controller::Settings;
use wire::Message;
use wire::control::{AdminCommand, ClusterStatus, CreateTable};

fn without(finding: Finding) -> Settings {
    let rules = Rules::without(finding).expect("tests are built with mutants");
    Settings { rules, ..Settings::default() }
}

fn world(finding: Finding, controllers: usize, policy: &str) -> World {
    let mut world = World::with(controllers, without(finding));
    world.with_table(3, table("t", policy, LogKind::Disk, None, 1));
    world
}

#[test]
fn f05_the_most_advanced_leads_though_it_never_counted() {
    let mut world = world(Finding::F05, 1, "durable");
    world.start(4, 1, 40);
    let spare = world.nodes[&NodeId(4)].member;
    world.propose(0, 64, |record| {
        record.catching_up.push(spare);
        record.cause = Cause::CatchingUp;
    });
    world.nodes.get_mut(&NodeId(4)).unwrap().ends.insert(PartitionId(64), Position::new(Term(1), Lsn(900)));
    world.kill(1);
    world.pass(200);
    world.suspect(2, 1, 100);
    assert_eq!(world.partition(64).primary, spare);
}

#[test]
fn f06_members_that_forgot_lead_without_waiting_for_the_rest() {
    let mut world = world(Finding::F06, 1, "semi");
    for node in 1..=3 {
        world.kill(node);
    }
    world.start(2, 2, 20);
    world.start(1, 2, 10);
    world.pass(700);
    let record = world.partition(64);
    assert_eq!(record.epoch, Epoch(2));
    assert!(!record.lossy, "and nothing is said of a loss");
}

#[test]
fn f07_the_absent_are_dropped_by_the_seal() {
    let mut world = world(Finding::F07, 1, "durable");
    world.kill(1);
    world.pass(200);
    world.suspect(2, 1, 100);
    assert_eq!(world.partition(64).in_sync.len(), 1);
}

#[test]
fn f16_a_controller_overwrites_what_it_has_not_heard_of() {
    let mut world = world(Finding::F16, 2, "durable");
    world.cut_off.insert(1);
    world.suspect_at(0, 2, 1, 101);
    world.suspect_at(0, 3, 1, 100);
    let sealed = world.partition(64);
    assert_eq!(sealed.primary.node, NodeId(2));
    // The zombie still has the first epoch, and grants its primary the very number that was given away.
    let mut zombie: PartitionRecord = sealed.clone();
    zombie.primary = sealed.before.as_ref().unwrap().primary;
    zombie.in_sync = sealed.before.as_ref().unwrap().in_sync.clone();
    zombie.term = Term(1);
    zombie.before = None;
    zombie.failover = None;
    zombie.cause = Cause::InSync;
    zombie.proposal = types::ProposalId(5);
    world.propose_record(1, NodeId(1), Epoch(1), &zombie);
    assert_eq!(world.partition(64), zombie, "two records have borne epoch 2");
}

#[test]
fn f17_an_unknown_outcome_is_taken_for_a_yes() {
    let mut world = world(Finding::F17, 1, "durable");
    world.fates = vec![Fate::RequestLost];
    world.propose(0, 64, |record| {
        record.in_sync.pop();
        record.cause = Cause::EvictedSilent;
    });
    let Some((_, _, Message::Proposed(answer))) =
        world.sent.iter().rfind(|(_, _, message)| matches!(message, Message::Proposed(_)))
    else {
        panic!("answered at once")
    };
    assert!(answer.accepted);
    assert_eq!(world.partition(64).in_sync.len(), 3, "the metastore never heard of it");
}

#[test]
fn f18_the_controllers_own_silence_seals() {
    let mut world = world(Finding::F18, 1, "durable");
    world.pause(1);
    world.pass(200);
    assert_eq!(world.partition(64).epoch, Epoch(2));
}

#[test]
fn pr19_without_the_rule_a_seal_is_repeated_when_its_reason_is_over() {
    let led = |settings: Settings| {
        let mut world = World::with(1, settings);
        world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
        // The metastore does not answer for longer than a seal is thought of, and the primary is heard again.
        world.fates = vec![Fate::RequestLost; 25];
        for by in [2, 3] {
            world.suspect(by, 1, 100);
        }
        world.pass(2_500);
        world.partition(64).primary.node
    };
    assert_eq!(led(Settings::default()), NodeId(1));
    assert_ne!(led(without(Finding::Pr19)), NodeId(1), "it was sealed although all of them hear it");
}

#[test]
fn pr67_without_the_rule_who_fails_again_is_admitted_as_soon_as_the_first_time() {
    assert_eq!(waits(Settings::default()), [1, 2, 4]);
    assert_eq!(waits(without(Finding::Pr67)), [1, 1, 1]);
}

/// For how many seconds a copy is not admitted that is evicted three times in a row because it is slow.
fn waits(settings: Settings) -> Vec<u64> {
    let mut world = World::with(1, settings);
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    let member = world.nodes[&NodeId(3)].member;
    let mut waits = Vec::new();
    for _ in 0..3 {
        world.propose(0, 64, |record| {
            record.in_sync.pop();
            record.cause = Cause::EvictedSlow;
        });
        world.take_lines();
        let start = world.now.mono;
        while !world.take_lines().iter().any(|line| line.contains("admit n3")) {
            world.pass(20);
        }
        waits.push((world.now.mono.since(start).as_millis() + 400) / 1000);
        world.propose(0, 64, |record| {
            record.catching_up.push(member);
            record.cause = Cause::CatchingUp;
        });
        world.propose(0, 64, |record| {
            record.catching_up.clear();
            record.in_sync.push(member);
            record.cause = Cause::InSync;
        });
    }
    waits
}

/// A table under `local` whose primary's log has three entries, of which one is on its disk, and which both
/// backups miss for as long as a primary is waited for. It serves, or leads on and does not serve yet.
fn hangs(settings: Settings, writes: bool, serves: bool) -> PartitionRecord {
    let mut world = World::with(1, settings);
    world.with_table(3, table("t", "local", LogKind::Disk, None, 1));
    let led = world.nodes.get_mut(&NodeId(1)).unwrap();
    led.ends.insert(PartitionId(64), Position::new(Term(1), Lsn(30)));
    led.durable = Lsn(1);
    led.promoting = !serves;
    for turn in 0..24 {
        if writes {
            world.nodes.get_mut(&NodeId(1)).unwrap().durable = Lsn(1 + turn);
        }
        for by in [2, 3] {
            world.suspect(by, 1, 100);
        }
        world.pass(250);
    }
    world.partition(64)
}

#[test]
fn pr300_a_primary_whose_disk_hangs_is_waited_for_as_long_as_one_that_is_silent() {
    let record = hangs(Settings::default(), false, true);
    assert!(record.primary.node != NodeId(1) && record.lossy, "{record:?}");
    assert_eq!(hangs(Settings::default(), true, true).primary.node, NodeId(1), "its disk is slow");
    assert_eq!(hangs(without(Finding::Pr300), false, true).primary.node, NodeId(1), "without the rule");
}

/// A table under `local` whose primary's log has no room for more, and is durable as far as it goes; `waits`
/// says how long its disk has not answered, in milliseconds, at each status. Both backups miss it.
fn is_full(settings: Settings, waits: fn(u64) -> u64) -> PartitionRecord {
    let mut world = World::with(1, settings);
    world.with_table(3, table("t", "local", LogKind::Disk, None, 1));
    for turn in 0..24 {
        let led = world.nodes.get_mut(&NodeId(1)).unwrap();
        led.ends.insert(PartitionId(64), Position::new(Term(1), Lsn(30)));
        (led.durable, led.full, led.log_waits_ms) = (Lsn(30), true, waits(turn * 250));
        for by in [2, 3] {
            world.suspect(by, 1, 100);
        }
        world.pass(250);
    }
    world.partition(64)
}

#[test]
fn pr351_a_primary_whose_log_is_full_and_whose_disk_hangs_is_waited_for_no_longer() {
    let record = is_full(Settings::default(), |passed| passed + 1_500);
    assert!(record.primary.node != NodeId(1) && record.lossy, "{record:?}");
    let stays = |waits| is_full(Settings::default(), waits).primary.node == NodeId(1);
    assert!(stays(|_| 0), "it is asked for nothing, and its disk may be sound");
    assert!(stays(|passed| 150 + passed % 500), "its disk answers that there is no room");
    assert_eq!(is_full(without(Finding::Pr300), |passed| passed + 1_500).primary.node, NodeId(1));
}

/// The primary of three copies is gone. Who leads next, and serves or not, reaches no controller any more;
/// its backup says that so much of thirty entries is committed. Gives that primary, and the record after so
/// many milliseconds.
fn reaches_no_controller(serves: bool, committed: u64, ms: u64) -> (Member, PartitionRecord) {
    let mut world = World::with(1, Settings::default());
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    is_cut_off(world, serves, committed, ms)
}

/// The same of whatever is in partition 64 of this world of three nodes.
fn is_cut_off(mut world: World, serves: bool, committed: u64, ms: u64) -> (Member, PartitionRecord) {
    let first = world.partition(64).primary.node;
    for node in world.nodes.values_mut() {
        node.ends.insert(PartitionId(64), Position::new(Term(2), Lsn(30)));
        (node.promoting, node.committed) = (!serves, Lsn(committed));
    }
    world.kill(first.0);
    world.pass(300);
    let others = (1..=3).filter(|by| *by != first.0);
    others.for_each(|by| world.suspect(by, first.0, 100));
    let leads = world.partition(64).primary;
    assert_ne!(leads.node, first);
    world.pass(100);
    world.pause(leads.node.0);
    for _ in 0..ms / 250 {
        world.pass(250);
    }
    (leads, world.partition(64))
}

#[test]
fn pr352_who_gets_no_further_and_reaches_no_controller_is_followed_and_stays() {
    for (serves, ms) in [(false, 1_250), (true, 3_000)] {
        let (before, record) = reaches_no_controller(serves, 20, ms);
        assert_ne!(record.primary, before, "{serves}");
        assert!(record.in_sync.contains(&before) && !record.lossy, "{record:?}");
    }
    let stays = |serves, committed, ms| {
        let (before, record) = reaches_no_controller(serves, committed, ms);
        record.primary == before
    };
    assert!(stays(true, 20, 1_250), "it serves: it is waited for longer");
    assert!(stays(true, 30, 3_000), "all is committed");
    assert!(stays(false, 30, 3_000), "its backup says that it serves");
}

/// What a partition of global transactions has acknowledged alone is in their manager's log.
#[test]
fn pr368_a_lazy_partition_of_global_transactions_is_followed_as_well() {
    let record = |global: bool| {
        let mut world = World::with(1, Settings::default());
        world.with_table(3, CreateTable::system(types::system::COMMITS, 3).expect("a system table"));
        let lazy = CreateTable { factor: Some(3), global, ..CreateTable::database("ledger", "local") };
        let id = world.admin(AdminCommand::CreateDatabase(wire::RecordText::new(&lazy)));
        world.answered(id).expect("answered").as_ref().expect("made");
        world.pass(100);
        // Of the one that is not global the primary is waited for first, and it leads on.
        match global {
            true => is_cut_off(world, false, 20, 1_250),
            false => {
                let leads = world.partition(64).primary;
                world.nodes.values_mut().for_each(|node| node.promoting = true);
                world.pause(leads.node.0);
                world.pass(1_250);
                (leads, world.partition(64))
            }
        }
    };
    let (before, after) = record(true);
    assert!(after.primary != before && after.lossy, "{after:?}");
    let (before, after) = record(false);
    assert_eq!(after.primary, before);
}

#[test]
fn pr341_a_primary_that_leads_on_where_the_disk_hangs_is_waited_for_no_longer_than_one_that_serves() {
    let record = hangs(Settings::default(), false, false);
    assert!(record.primary.node != NodeId(1) && record.lossy, "{record:?}");
    assert_eq!(hangs(Settings::default(), true, false).primary.node, NodeId(1), "it is being brought level");
}

#[test]
fn pr300_status_says_that_a_primarys_disk_hangs_and_for_how_long() {
    let mut world = World::with(1, Settings::default());
    world.with_table(3, table("t", "local", LogKind::Disk, None, 1));
    let hung = |world: &mut World| {
        let id = world.admin(AdminCommand::Status);
        let answer = world.answered(id).cloned().expect("is answered").expect("is told");
        serde_json::from_str::<ClusterStatus>(&answer).expect("is JSON").hung
    };
    let led = world.nodes.get_mut(&NodeId(1)).unwrap();
    led.ends.insert(PartitionId(64), Position::new(Term(1), Lsn(3)));
    led.durable = Lsn(1);
    world.pass(900);
    assert_eq!(hung(&mut world), [], "any disk may take a moment");
    world.pass(600);
    let told = hung(&mut world);
    assert_eq!((told.len(), told[0].partition, told[0].primary.node), (1, PartitionId(64), NodeId(1)));
    assert!((1_400..=1_500).contains(&told[0].ms), "{told:?}");
    world.nodes.get_mut(&NodeId(1)).unwrap().durable = Lsn(3);
    world.pass(100);
    assert_eq!(hung(&mut world), []);
}

#[test]
fn pr284_without_the_rule_the_lead_stays_on_a_disk_that_hangs() {
    let led = |settings: Settings| {
        let mut world = World::with(1, settings);
        world.with_table(3, table("t", "local", LogKind::Disk, None, 1));
        let to = world.nodes[&NodeId(2)].member;
        world.nodes.get_mut(&NodeId(2)).unwrap().promoting = true;
        world.propose(0, 64, |record| {
            record.before = Some(PreviousTerm {
                epoch: Epoch(record.epoch.0 - 1),
                term: record.term,
                primary: record.primary,
                handed_over: true,
                in_sync: record.in_sync.clone(),
            });
            record.primary = to;
            record.in_sync.sort_by_key(|member| *member != to);
            record.term = Term::of(record.epoch);
            record.cause = Cause::Switchover;
        });
        for _ in 0..24 {
            for by in [1, 3] {
                world.suspect(by, 2, 100);
            }
            world.pass(250);
        }
        world.partition(64).primary.node
    };
    assert_eq!(led(Settings::default()), NodeId(1), "it may go back");
    assert_eq!(led(without(Finding::Pr284)), NodeId(2));
}

/// A partition that can acknowledge nothing is bringing node 2 level, which dies, and node 3 could have the
/// copy. What the primary is told within a second.
fn told_of_who_is_away(settings: Settings) -> Vec<String> {
    let mut world = World::with(1, settings);
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world.pass(3_100);
    for node in [3, 2] {
        world.propose(0, 64, |record| {
            record.in_sync.retain(|member| member.node != NodeId(node));
            record.cause = Cause::EvictedSilent;
        });
    }
    let member = world.nodes[&NodeId(2)].member;
    world.propose(0, 64, |record| {
        record.catching_up.push(member);
        record.cause = Cause::CatchingUp;
    });
    world.kill(2);
    world.take_lines();
    world.pass(1_000);
    world.take_lines().into_iter().filter(|line| line.starts_with("-> n1 p64")).collect()
}

#[test]
fn pr110_without_the_rule_nobody_makes_way_who_is_away() {
    assert_eq!(told_of_who_is_away(Settings::default()), ["-> n1 p64 e4: remove n2.i1"]);
    assert_eq!(told_of_who_is_away(without(Finding::Pr110)), Vec::<String>::new());
}

/// Nodes 3 and 4 lack a copy each, and node 3 has failed once more in a row. Whom the primary is told to
/// admit.
fn admitted(settings: Settings) -> Vec<String> {
    let mut world = World::with(1, settings);
    let request = CreateTable { min_in_sync: Some(1), ..table("t", "durable", LogKind::Disk, Some(4), 1) };
    world.with_table(4, request);
    world.pass(3_100);
    let evict = |world: &mut World, node: u32| {
        world.propose(0, 64, |record| {
            record.in_sync.retain(|member| member.node != NodeId(node));
            record.catching_up.retain(|member| member.node != NodeId(node));
            record.cause = Cause::EvictedSilent;
        });
    };
    world.kill(4);
    evict(&mut world, 4);
    evict(&mut world, 3);
    world.pass(1_300);
    let member = world.nodes[&NodeId(3)].member;
    world.propose(0, 64, |record| {
        record.catching_up.push(member);
        record.cause = Cause::CatchingUp;
    });
    evict(&mut world, 3);
    world.kill(3);
    world.pass(4_000);
    world.start(3, 2, 30);
    world.start(4, 2, 40);
    world.take_lines();
    world.pass(300);
    world.take_lines().into_iter().filter(|line| line.contains(": admit ")).collect()
}

#[test]
fn pr282_without_the_rule_who_has_failed_comes_first() {
    assert_eq!(admitted(Settings::default()), ["-> n1 p64 e5: admit n4.i2"]);
    assert_eq!(admitted(without(Finding::Pr282)), ["-> n1 p64 e5: admit n3.i2"]);
}
