//! Nodes that are added and removed, with primaries that follow their advice, controllers that forget, and
//! nodes that die.

mod common;

use common::cluster::Cluster;
use common::lines::table;
use common::{OPERATOR, World};
use std::collections::{BTreeMap, BTreeSet};
use types::config::Cause;
use types::{LogKind, Member, NodeId, NodeRecord, PartitionId, PartitionRecord, Scheme};
use understudy_controller::Settings;
use wire::Message;
use wire::control::{AdminCommand, Advice, ClusterMap};

fn remove(node: u32) -> AdminCommand {
    AdminCommand::Remove { node: NodeId(node), losing: false }
}

#[test]
fn a_node_is_added_and_removed_again_without_a_copy_less() {
    let mut cluster = Cluster::new(
        3,
        &[("a", 2, 6, Scheme::Chained), ("b", 3, 4, Scheme::Spread), ("c", 1, 5, Scheme::Mirrored)],
    );
    cluster.pass(4000);
    let copies = cluster.settled();
    assert_eq!((copies.len(), copies.values().sum()), (3, 29), "{copies:?}");
    assert!(copies.values().all(|copies| (9..=10).contains(copies)), "{copies:?}");
    cluster.world.start(4, 1, 40);
    cluster.pass(8000);
    assert_eq!(cluster.settled().get(&4), None, "who only starts is a spare");

    cluster.ask(AdminCommand::Add(NodeId(4))).expect("it is there");
    assert!(cluster.node(4).expect("there").is_marked(NodeRecord::JOINING));
    cluster.pass(2000);
    cluster.world.restart_controller(0, Settings::default());
    cluster.pass(60_000);
    let copies = cluster.settled();
    assert!(copies.values().all(|copies| (7..=8).contains(copies)), "{copies:?}");
    assert!(!cluster.node(4).expect("there").is_marked(NodeRecord::JOINING));

    let single = cluster
        .world
        .partitions()
        .into_iter()
        .find(|record| record.in_sync.len() == 1 && record.primary.node != NodeId(4));
    let single = single.expect("table c has one copy of each");
    let there = AdminCommand::Move { partition: single.id, from: single.primary.node, to: NodeId(4) };
    cluster.ask(there).expect("moves");
    cluster.pass(20_000);
    let refused = cluster.ask(remove(4)).expect_err("table c has one copy");
    assert_eq!(refused.0, 5);
    assert!(refused.1.contains("n4 holds the last copy of table 'c' partition"), "{}", refused.1);
    let alone: Vec<PartitionId> = cluster
        .world
        .partitions()
        .into_iter()
        .filter(|record| record.in_sync.len() == 1 && record.primary.node == NodeId(4))
        .map(|record| record.id)
        .collect();
    for partition in &alone {
        cluster
            .ask(AdminCommand::Move { partition: *partition, from: NodeId(4), to: NodeId(1) })
            .expect("moves");
    }
    cluster.pass(20_000);
    let moved = cluster.settled();
    cluster.ask(remove(4)).expect("nothing is lost");
    cluster.pass(1000);
    let elsewhere =
        cluster.world.partitions().into_iter().find(|record| record.member_on(NodeId(4)).is_none());
    let record = elsewhere.expect("not everything was there");
    let into = AdminCommand::Move { partition: record.id, from: record.primary.node, to: NodeId(4) };
    assert_eq!(cluster.ask(into), Err((5, "n4 is being removed: everything is moved away from it".into())));
    cluster.world.restart_controller(0, Settings::default());
    cluster.pass(60_000);
    let copies = cluster.settled();
    assert_eq!(copies.get(&4), None);
    assert_eq!(copies.values().sum::<usize>(), moved.values().sum::<usize>());
    assert_eq!(cluster.node(4), None, "it is in no record any more");

    for record in cluster.world.partitions() {
        let table = cluster.tables().into_iter().find(|table| table.id == record.table).expect("it exists");
        assert_eq!(cluster.fewest[&record.id], usize::from(table.policy.factor), "{}", record.id);
    }
}

#[test]
fn who_was_removed_is_told_and_does_not_come_back_on_its_old_disk() {
    let mut cluster = Cluster::new(4, &[("a", 2, 4, Scheme::Chained)]);
    cluster.pass(4000);
    cluster.ask(AdminCommand::Watch).expect("watches");
    cluster.ask(remove(2)).expect("others can take it");
    let mut told = BTreeSet::new();
    for _ in 0..600 {
        cluster.world.pass(100);
        let sent = std::mem::take(&mut cluster.world.sent);
        for (_, conn, message) in sent {
            match message {
                Message::Advise(advise) => cluster.follow(&advise),
                Message::ClusterMap(map) if map.whole && lacks(&map, 2) => drop(told.insert(conn)),
                _ => {}
            }
        }
    }
    assert_eq!(cluster.node(2), None);
    assert!(told.contains(&OPERATOR) && told.len() == 5, "four nodes and the operator: {told:?}");

    cluster.world.take_lines();
    cluster.world.start(2, 2, 20);
    assert!(cluster.world.take_lines().iter().any(|line| line.ends_with("closed")));
    assert_eq!(cluster.node(2), None);
    let again = cluster.ask(remove(2)).expect_err("it is gone");
    assert_eq!(again, (3, "there is no node n2".into()));
    // On an empty disk it is another node with the same number.
    cluster.world.start(2, 1, 21);
    assert_eq!(cluster.node(2).expect("there").store.0, 21);
    cluster.ask(AdminCommand::Add(NodeId(2))).expect("it is there");
    cluster.pass(60_000);
    assert_eq!(cluster.settled(), BTreeMap::from([(1, 2), (2, 2), (3, 2), (4, 2)]));
}

fn lacks(cluster_map: &ClusterMap, node: u32) -> bool {
    let nodes = cluster_map.nodes.iter().map(|text| text.read::<NodeRecord>().expect("a node").id);
    nodes.into_iter().all(|id| id != NodeId(node))
}

#[test]
fn a_dead_node_is_removed_when_others_have_what_it_had() {
    let mut cluster = Cluster::new(4, &[("a", 2, 4, Scheme::Chained)]);
    cluster.pass(4000);
    let led: Vec<PartitionRecord> =
        cluster.world.partitions().into_iter().filter(|record| record.primary.node == NodeId(2)).collect();
    assert!(!led.is_empty());
    cluster.bury(2);
    assert!(
        cluster.world.partitions().iter().all(|record| record.primary.node != NodeId(2)),
        "it was sealed"
    );
    cluster.ask(remove(2)).expect("others have it");
    cluster.pass(60_000);
    assert_eq!(cluster.node(2), None);
    assert_eq!(cluster.settled().values().sum::<usize>(), 8);
}

#[test]
fn who_may_have_acknowledged_alone_is_not_removed_by_the_way() {
    let mut cluster = Cluster::new(4, &[]);
    cluster.create("sure", "durable", (2, 4), Scheme::Chained);
    cluster.create("quick", "async", (2, 4), Scheme::Chained);
    cluster.pass(4000);
    let alone: Vec<PartitionId> = cluster
        .world
        .partitions()
        .into_iter()
        .filter(|record| record.primary.node == NodeId(2) && record.policy.rests_on().is_primary())
        .map(|record| record.id)
        .collect();
    let [quick] = alone[..] else { panic!("each leads one: {alone:?}") };
    // While it lives, what it has goes elsewhere before it goes.
    cluster.ask(remove(2)).expect("begun");
    cluster.ask(AdminCommand::Add(NodeId(2))).expect("taken back");
    cluster.bury(2);
    let refused = cluster.ask(remove(2)).expect_err("nobody knows what it acknowledged");
    let expected = format!(
        "n2 led table 'quick' partition {} when it failed, and has not been back: what it acknowledged alone is lost with it; \
         start it again, or say `--yes` if it is gone for good",
        quick.0
    );
    assert_eq!(refused, (5, expected));
    assert!(!cluster.node(2).expect("there").is_marked(NodeRecord::DECOMMISSIONING), "nothing was changed");
    // Back once more, it has told what it had.
    cluster.world.start(2, 2, 20);
    cluster.bury(2);
    cluster.ask(remove(2)).expect("it led nothing in that life");
    cluster.pass(60_000);
    assert_eq!(cluster.node(2), None);

    cluster.bury(3);
    cluster.ask(remove(3)).expect_err("the same again");
    cluster.ask(AdminCommand::Remove { node: NodeId(3), losing: true }).expect("it was said twice");
}

/// It ran on two directories: a copy of the first one is as little the node as one of the second.
#[test]
fn pr280_a_node_that_was_removed_comes_back_on_none_of_its_directories() {
    let mut cluster = Cluster::new(4, &[("a", 2, 4, Scheme::Chained)]);
    cluster.pass(4000);
    cluster.bury(3);
    cluster.world.start(3, 1, 31);
    cluster.pass(20_000);
    cluster.ask(remove(3)).expect("others can take its copies");
    cluster.pass(60_000);
    assert_eq!(cluster.node(3), None);
    for store in [30, 31] {
        cluster.world.start(3, 9, store);
        cluster.pass(1000);
        assert_eq!(cluster.node(3), None, "it had directory {store} before it was removed");
        cluster.world.kill(3);
    }
    cluster.world.start(3, 1, 32);
    cluster.pass(1000);
    assert_eq!(cluster.node(3).map(|node| node.store.0), Some(32), "on an empty one it is another node");
    // That one goes as well, and the older ones stay out.
    cluster.ask(remove(3)).expect("it holds nothing");
    cluster.pass(60_000);
    assert_eq!(cluster.node(3), None);
    for store in 30..33 {
        cluster.world.start(3, 10, store);
        cluster.pass(1000);
        assert_eq!(cluster.node(3), None, "directory {store}");
        cluster.world.kill(3);
    }
}

#[test]
fn who_leads_on_for_a_node_that_leaves_holds_nothing_up() {
    let mut cluster = Cluster::new(3, &[("a", 1, 1, Scheme::Chained)]);
    cluster.pass(4000);
    let record = cluster.world.partitions().remove(0);
    let first = record.primary.node;
    let other = NodeId(if first == NodeId(3) { 2 } else { 3 });
    cluster.ask(AdminCommand::Move { partition: record.id, from: first, to: other }).expect("moves");
    // The copy is there, and does not lead yet.
    while cluster.world.partition(record.id.0).in_sync.len() < 2 {
        cluster.world.pass(100);
        for (_, _, message) in std::mem::take(&mut cluster.world.sent) {
            match message {
                Message::Advise(advise) if matches!(advise.advice, Advice::Admit(_)) => {
                    cluster.follow(&advise)
                }
                _ => {}
            }
        }
    }
    assert_eq!(cluster.world.partition(record.id.0).primary.node, first);
    cluster.ask(remove(other.0)).expect("another node has it, too");
    cluster.pass(60_000);
    assert_eq!(cluster.node(other.0), None, "{:?}", cluster.world.partition(record.id.0));
    assert_eq!(cluster.settled().values().sum::<usize>(), 1);
}

#[test]
fn a_removal_does_not_wait_for_a_third_node_that_is_away() {
    let mut cluster = Cluster::new(5, &[("a", 2, 10, Scheme::Chained)]);
    cluster.pass(4000);
    cluster.bury(2);
    cluster.pass(20_000);
    cluster.ask(remove(3)).expect("others have it");
    cluster.pass(60_000);
    assert_eq!(cluster.node(3), None);
    assert!(cluster.world.partitions().iter().all(|record| record.in_sync.len() == 2));
    assert!(cluster.node(2).is_some(), "who is away is waited for");
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence() {
    let mut cluster = Cluster::new(3, &[("wide", 3, 2, Scheme::Chained)]);
    cluster.pass(4000);
    assert_eq!(cluster.ask(AdminCommand::Add(NodeId(9))), Err((3, "there is no node n9".into())));
    assert_eq!(cluster.ask(remove(9)), Err((3, "there is no node n9".into())));
    let refused = cluster.ask(remove(3)).expect_err("three copies need three nodes");
    assert_eq!(
        refused,
        (5, "table 'wide' has 3 copies, and without n3 there would be 2 nodes: add a node first".into())
    );
    // The last one that lives has the last copies, whatever the records say of the others.
    cluster.world.kill(1);
    cluster.world.kill(2);
    cluster.world.pass(1000);
    let refused = cluster.ask(remove(3)).expect_err("it is the last one");
    assert!(
        refused.1.starts_with("n3 holds the last copy of table 'wide' partitions 64-65: "),
        "{}",
        refused.1
    );
    assert!(!cluster.node(3).expect("there").is_marked(NodeRecord::DECOMMISSIONING), "nothing was changed");
}

#[test]
fn a_removal_is_taken_back() {
    let mut cluster = Cluster::new(4, &[("a", 2, 8, Scheme::Chained)]);
    cluster.pass(4000);
    cluster.ask(remove(1)).expect("begun");
    cluster.pass(300);
    cluster.ask(AdminCommand::Add(NodeId(1))).expect("taken back");
    cluster.pass(60_000);
    assert!(!cluster.node(1).expect("there").is_marked(NodeRecord::DECOMMISSIONING));
    assert_eq!(cluster.settled(), BTreeMap::from([(1, 4), (2, 4), (3, 4), (4, 4)]));
}

/// Found by the simulator's seed 90427: its copy was waited for before the partition's next move.
#[test]
fn pr109_a_node_whose_copies_never_get_level_leaves_all_the_same() {
    let mut cluster = Cluster::new(4, &[("a", 2, 4, Scheme::Chained)]);
    cluster.pass(4000);
    cluster.hang(2);
    cluster.ask(remove(2)).expect("others have everything");
    cluster.pass(60_000);
    assert_eq!(cluster.node(2), None, "{:?}", cluster.world.partitions());
    assert_eq!(cluster.settled().values().sum::<usize>(), 8);
}

/// Found by the simulator's seed 2001535: another node's copy never got level, and that was waited for.
#[test]
fn pr158_a_node_leaves_although_the_disk_of_another_hangs() {
    let mut cluster = Cluster::new(5, &[("a", 3, 5, Scheme::Chained)]);
    cluster.pass(4000);
    cluster.hang(2);
    cluster.ask(remove(1)).expect("others have everything");
    cluster.pass(200_000);
    assert_eq!(cluster.node(1), None, "{:?}", cluster.world.partitions());
    assert!(cluster.node(2).is_some(), "nobody has asked it to leave");
}

#[test]
fn a_table_is_created_by_its_scheme() {
    let cluster = Cluster::new(4, &[("pairs", 2, 8, Scheme::Mirrored)]);
    for row in &cluster.tables()[0].placement {
        assert_eq!(row[0].0.div_ceil(2), row[1].0.div_ceil(2), "1 and 2, or 3 and 4: {row:?}");
    }
}

/// A world of two controllers of which the first one plans and is told nothing, and a spare node.
fn with_a_spare() -> (World, Member) {
    let mut world = World::with(2, Settings::default());
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world.start(4, 1, 40);
    world.pass(1000);
    let spare = world.record::<NodeRecord>("node/4").expect("it has registered").member();
    world.cut_off.insert(0);
    (world, spare)
}

/// The primary takes it in, as the second controller knows the records.
fn takes_in(world: &mut World, spare: Member) -> Vec<Member> {
    world.propose(1, 64, |record| (record.catching_up, record.cause) = (vec![spare], Cause::CatchingUp));
    world.partition(64).catching_up
}

fn is_removed(world: &World) -> bool {
    world.record::<NodeRecord>("node/4").is_none()
}

fn goes_when_it_is_no_member(world: &mut World) {
    world.pass(3000);
    assert!(!is_removed(world), "the first controller does not know yet that it is a member");
    world.cut_off.clear();
    world.pass(3000);
    assert!(!is_removed(world), "it is a member");
    world.propose(1, 64, |record| (record.catching_up, record.cause) = (vec![], Cause::EvictedSilent));
    world.pass(3000);
    assert!(is_removed(world));
}

#[test]
fn pr201_who_became_a_member_before_it_was_to_leave_is_not_forgotten_unseen() {
    let (mut world, spare) = with_a_spare();
    assert_eq!(takes_in(&mut world, spare), [spare]);
    world.admin(remove(4));
    goes_when_it_is_no_member(&mut world);
}

#[test]
fn pr201_who_becomes_a_member_although_it_is_to_leave_is_not_forgotten_unseen() {
    let (mut world, spare) = with_a_spare();
    world.admin(remove(4));
    assert_eq!(takes_in(&mut world, spare), [spare]);
    goes_when_it_is_no_member(&mut world);
}

#[test]
fn pr201_nobody_makes_a_member_on_a_node_that_was_removed_unseen() {
    let (mut world, spare) = with_a_spare();
    world.cut_off = BTreeSet::from([1]);
    world.admin(remove(4));
    world.pass(3000);
    assert!(is_removed(&world));
    assert_eq!(takes_in(&mut world, spare), []);
}
