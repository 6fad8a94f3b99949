//! What a node says of its own replica counts at once (PR-142), and what it says last (PR-155).

mod common;

use common::lines::table;
use common::{Fate, World};
use types::config::{Addresses, Cause, NodeRecord};
use types::{LogKind, Lsn, NodeId, PartitionId, Position, Term};
use understudy_controller::Settings;
use wire::control::{AdminCommand, Register};

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

/// A node's record says that a replica is damaged, which has been mended since and leads.
#[test]
fn pr155_a_primary_that_was_mended_is_not_taken_for_damaged() {
    let leads = |policy: &str, mended: bool| {
        let mut world = World::new();
        world.with_table(3, table("t", policy, LogKind::Disk, None, 1));
        world.nodes.get_mut(&NodeId(1)).unwrap().damaged = vec![PartitionId(64)];
        world.connect(NodeId(1));
        if mended {
            // What it registered then has not reached the metastore yet.
            world.nodes.get_mut(&NodeId(1)).unwrap().damaged.clear();
        }
        world.pass(40);
        world.suspect(2, 1, 0);
        world.partition(64).primary.node == NodeId(1)
    };
    for policy in ["durable", "local"] {
        assert!(leads(policy, true), "{policy}: it is heard, serves, and one of two misses it");
        assert!(!leads(policy, false), "{policy}: it has nothing to lead with");
    }
}

/// Who leads on after a restart has a long log to replay, and a member is not there.
#[test]
fn pr156_a_term_that_replays_its_log_does_not_wait_for_who_is_not_there() {
    let mut world = World::new();
    world.with_table(3, table("t", "local", LogKind::Disk, None, 1));
    world.kill(2);
    world.kill(1);
    world.nodes.get_mut(&NodeId(1)).unwrap().promoting = true;
    world.start(1, 2, 10);
    for applied in 1..100 {
        world.nodes.get_mut(&NodeId(1)).unwrap().applied = Lsn(applied);
        world.pass(100);
        assert!(!world.partition(64).lossy, "it replays, and nothing is lost");
    }
    world.pass(5200);
    let record = world.partition(64);
    assert!(record.lossy && record.primary.node == NodeId(1), "it got no further");
}

/// As long as a copy that catches up is being given its state its log is empty, and so is one that has
/// nothing yet.
#[test]
fn pr231_nobody_is_forced_to_lead_with_half_a_copy() {
    let leads = |log: u64| {
        let mut world = World::new();
        world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
        world.start(4, 1, 40);
        let spare = world.nodes[&NodeId(4)].member;
        world.propose(0, 64, |record| {
            record.catching_up.push(spare);
            record.cause = Cause::CatchingUp;
        });
        let end = Position::new(Term(u64::from(log > 0)), Lsn(log));
        world.nodes.get_mut(&NodeId(4)).unwrap().ends.insert(PartitionId(64), end);
        (1..=3).for_each(|node| world.kill(node));
        world.pass(1000);
        for node in [None, Some(NodeId(4))] {
            world.admin(AdminCommand::Force { partition: PartitionId(64), node });
        }
        world.partition(64).primary == spare
    };
    assert!(!leads(0), "nothing says that it has a state");
    assert!(leads(7), "what it has is a state, be it an old one");
}

/// A node says that its replica is damaged, and then that it is mended. One controller hears both late.
#[test]
fn pr354_what_a_node_said_first_is_not_written_last() {
    for told in [true, false] {
        let mut world = World::with(2, Settings::default());
        world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
        let (id, node) = (NodeId(2), world.nodes[&NodeId(2)].clone());
        let says = |damaged: &[PartitionId]| Register {
            member: node.member,
            clean_start: node.clean,
            addresses: Addresses::default(),
            zone: node.zone.clone(),
            damaged: damaged.to_vec(),
            starts: node.starts.clone().into(),
            executors: Default::default(),
        };
        let both = [says(&[PartitionId(64)]), says(&[])];
        world.cut_off = [1].into();
        both.iter().for_each(|said| world.node_says(0, id, said.clone()));
        world.cut_off = [0].into();
        if told {
            world.tell_changes();
        }
        world.fates = vec![Fate::Held, Fate::Held];
        both.iter().for_each(|said| world.node_says(1, id, said.clone()));
        world.fates.clear();
        world.release();
        let record = world.record::<NodeRecord>("node/2").unwrap();
        assert!(record.damaged.is_empty(), "the other one's is known: {told}");
    }
}
