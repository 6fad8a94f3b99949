//! Terms in which all members forgot something, so that what each of them kept is compared (PR-17).

mod common;

use common::World;
use common::lines::table;
use types::config::{Cause, PartitionRecord};
use types::{Epoch, LogKind, NodeId};

/// Three copies of which each was started again; whoever leads does not come to serve.
fn all_restarted() -> (World, PartitionRecord) {
    let mut world = World::new();
    world.with_table(3, table("t", "semi", LogKind::Disk, None, 1));
    for node in 1..=3 {
        world.kill(node);
    }
    for node in 1..=3 {
        world.nodes.get_mut(&NodeId(node)).unwrap().promoting = true;
        world.start(node, 2, u64::from(node) * 10);
    }
    let first = world.partition(64);
    assert!(first.lossy && first.cause == Cause::Restarted);
    world.pass(100);
    (world, first)
}

#[test]
fn f07_a_promotion_that_never_served_hands_its_doubts_on() {
    let (mut world, first) = all_restarted();
    world.kill(first.primary.node.0);
    world.pass(200);
    first.in_sync[1..].iter().for_each(|member| world.suspect(member.node.0, first.primary.node.0, 100));
    assert_eq!(world.partition(64).epoch, Epoch(2), "what it has may be nowhere else (PR-343)");
    world.start(first.primary.node.0, 3, 10);
    world.pass(6_000);
    assert!(world.partition(64).epoch >= Epoch(3));
    assert!(world.partition(64).lossy, "what may be lost is not found again by another failover");
}

#[test]
fn pr345_who_has_more_than_the_primary_can_get_leads_in_its_place() {
    let (mut world, first) = all_restarted();
    let other = first.in_sync[1];
    let primary = world.nodes.get_mut(&first.primary.node).unwrap();
    primary.yields_to = Some(types::Member { incarnation: types::Incarnation(1), ..other });
    world.pass(1_000);
    assert_eq!(world.partition(64).epoch, first.epoch, "nobody counts in that life");
    world.nodes.get_mut(&first.primary.node).unwrap().yields_to = Some(other);
    world.pass(100);
    let next = world.partition(64);
    assert_eq!((next.primary, next.lossy), (other, true), "it compares all logs again");
    let mut sets = [first.in_sync.clone(), next.in_sync.clone()];
    sets.iter_mut().for_each(|set| set.sort());
    assert_eq!(sets[0], sets[1], "nobody leaves, and the one that yields is asked as well");
}

#[test]
fn pr345_who_serves_yields_to_nobody() {
    let (mut world, first) = all_restarted();
    let primary = world.nodes.get_mut(&first.primary.node).unwrap();
    (primary.promoting, primary.yields_to) = (false, Some(first.in_sync[1]));
    world.pass(1_000);
    assert_eq!(world.partition(64).epoch, first.epoch);
}
