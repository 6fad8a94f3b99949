//! An executor of a node hangs while the node goes on: what its partitions need is done as if the whole node
//! hung, and nothing else (PR-421).

mod common;

use common::World;
use common::lines::table;
use types::config::Cause;
use types::{Executors, LogKind, NodeId};
use wire::control::{AdminCommand, ExecutorStatus};

/// A node with two executors says that one of them hangs, or that none does.
fn hang(world: &mut World, node: u32, executor: Option<usize>) {
    let status = |number: usize| ExecutorStatus {
        hangs_us: if executor == Some(number) { 700_000 } else { 0 },
        ..ExecutorStatus::default()
    };
    world.nodes.get_mut(&NodeId(node)).unwrap().executors = [0, 1].map(status).to_vec();
}

/// Three copies of two partitions, one for each of two executors: 65 and 64. The first node leads both, and
/// its second executor hangs.
fn world(policy: &str) -> World {
    let executors = Executors::new(2).expect("so many can be");
    assert_eq!([64, 65].map(|id| executors.of(types::PartitionId(id))), [1, 0]);
    let mut world = World::new();
    let placed = vec![vec![NodeId(1), NodeId(2), NodeId(3)]; 2];
    let wanted = table("t", policy, LogKind::Disk, None, 2);
    world.with_table(3, wire::control::CreateTable { placement: placed, ..wanted });
    (1..=3).for_each(|node| hang(&mut world, node, None));
    world.pass(200);
    assert!([64, 65].iter().all(|id| world.partition(*id).primary.node == NodeId(1)));
    hang(&mut world, 1, Some(1));
    world.pass(100);
    world
}

/// A backup says over and over that it misses the first node.
fn suspect(world: &mut World, by: u32, ms: u64) {
    for _ in 0..ms / 100 {
        world.suspect(by, 1, 100);
        world.pass(100);
    }
}

#[test]
fn pr421_what_an_executor_that_hangs_leads_fails_over_and_the_rest_does_not() {
    let mut world = world("durable");
    // All nodes hear the first one, which answers their heartbeats, and one of two backups has noticed.
    suspect(&mut world, 2, 500);
    let record = world.partition(64);
    assert_eq!((record.primary.node, record.cause), (NodeId(2), Cause::Suspected));
    assert_eq!(world.partition(65).primary.node, NodeId(1), "one backup of two is not believed");
}

#[test]
fn pr421_a_primary_that_acknowledgements_rest_on_is_waited_for_no_longer_than_another_one() {
    let mut world = world("local");
    suspect(&mut world, 2, 4_000);
    assert_eq!(world.partition(64).primary.node, NodeId(1), "what it has may be nowhere else");
    suspect(&mut world, 2, 2_000);
    let record = world.partition(64);
    assert_eq!((record.primary.node, record.lossy), (NodeId(2), true));
    assert_eq!(world.partition(65).primary.node, NodeId(1), "it is heard");
}

#[test]
fn pr421_no_lead_and_no_copy_goes_to_an_executor_that_hangs() {
    let mut world = world("durable");
    hang(&mut world, 2, Some(1));
    world.pass(100);
    world.suspect(3, 1, 100);
    assert_eq!(world.partition(64).primary.node, NodeId(3), "node 2 has as much, and it hangs too");
    let before = world.partition(64).epoch;
    world.admin(AdminCommand::Switchover { partition: Some(types::PartitionId(64)), to: Some(NodeId(2)) });
    world.pass(10_000);
    let lines = world.take_lines();
    let advises = |line: &&String| line.contains("hand over") || line.contains("admit");
    let advice = lines.iter().filter(|line| line.contains(" p64 ")).filter(advises);
    assert_eq!(advice.count(), 0, "{lines:#?}");
    assert_eq!(world.partition(64).epoch, before);
}

#[test]
fn pr421_an_executor_that_goes_on_is_heard_again() {
    let mut world = world("durable");
    hang(&mut world, 1, None);
    world.pass(40);
    suspect(&mut world, 2, 500);
    assert_eq!(world.partition(64).primary.node, NodeId(1), "one backup of two is not believed");
}
