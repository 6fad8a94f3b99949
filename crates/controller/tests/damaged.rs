//! PR-142: what a node says of its own replica counts at once.

mod common;

use common::World;
use common::lines::table;
use types::{LogKind, NodeId, PartitionId};

#[test]
fn pr142_a_primary_that_says_it_is_damaged_has_no_benefit_of_the_doubt() {
    let leads = |said: bool| {
        let mut world = World::new();
        world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
        world.kill(1);
        world.pass(200);
        world.suspect(2, 1, 200);
        let second = world.partition(64).primary.node;
        let third = if second == NodeId(2) { 3 } else { 2 };
        if said {
            world.nodes.get_mut(&second).unwrap().damaged = vec![PartitionId(64)];
            world.connect(second);
        }
        world.suspect(third, second.0, 200);
        world.partition(64).primary.node == NodeId(third)
    };
    assert!(!leads(false), "it has just come to lead, and is heard");
    assert!(leads(true), "it has nothing to lead with");
}

#[test]
fn pr142_a_damaged_primary_whose_backups_were_started_again_is_followed() {
    let leads = |policy: &str, said: bool| {
        let mut world = World::new();
        world.with_table(3, table("t", policy, LogKind::Disk, None, 1));
        for node in 2..=3 {
            world.kill(node);
            world.start(node, 2, u64::from(node) * 10);
        }
        if said {
            world.nodes.get_mut(&NodeId(1)).unwrap().damaged = vec![PartitionId(64)];
            world.connect(NodeId(1));
        }
        world.pass(1000);
        let record = world.partition(64);
        (record.primary.node == NodeId(1), record.lossy)
    };
    for policy in ["durable", "local"] {
        assert_eq!(leads(policy, false), (true, false), "{policy}: it is heard");
    }
    assert_eq!(leads("durable", true), (false, false), "the others have everything");
    assert_eq!(leads("local", true), (false, true), "nobody else is sure to have it");
}
