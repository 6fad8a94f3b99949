//! A node that connects again before its old connection is known to be dead stays within hearing.

mod common;

use common::lines::table;
use common::{Fate, World};
use types::{Incarnation, LogKind, NodeId};
use understudy_controller::Input;
use wire::Message;
use wire::control::Advice;

const NODE: NodeId = NodeId(3);

/// n3 has left the set and starts again. While the metastore keeps its registration waiting it connects a
/// second time, and registers at once. The outcome of the first registration comes after that: on a
/// connection that is dead.
fn registered_twice() -> (World, Vec<understudy_controller::ConnId>) {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world.kill(3);
    world.propose(0, 64, |record| {
        record.in_sync.retain(|member| member.node != NODE);
        record.cause = types::config::Cause::EvictedSilent;
    });
    world.fates = vec![Fate::Held];
    world.start(3, 2, 30);
    let dead = world.connect_beside(NODE);
    assert_eq!(dead.len(), 1);
    world.release();
    (world, dead)
}

fn is_admitted(world: &World) -> bool {
    world.sent.iter().any(|(_, _, message)| match message {
        Message::Advise(advise) => matches!(&advise.advice, Advice::Admit(member)
            if member.node == NODE && member.incarnation == Incarnation(2)),
        _ => false,
    })
}

#[test]
fn i13_a_late_outcome_on_a_dead_connection_does_not_make_a_node_unheard() {
    let (mut world, _) = registered_twice();
    world.pass(2_000);
    assert!(is_admitted(&world), "nothing that n3 says on its newer connection is heard");
}

#[test]
fn i13_the_end_of_an_older_connection_is_not_the_end_of_the_newer_one() {
    let (mut world, dead) = registered_twice();
    dead.into_iter().for_each(|conn| world.input(0, Input::Disconnected { conn }));
    world.pass(2_000);
    assert!(is_admitted(&world), "nothing that n3 says on its newer connection is heard");
}

#[test]
fn i13_a_primary_is_advised_on_the_connection_that_it_uses() {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world.nodes.get_mut(&NodeId(1)).unwrap().zone = "elsewhere".into();
    world.fates = vec![Fate::Held];
    // The first registration of the new zone waits; the second one, on the connection in use, does not.
    world.connect(NodeId(1));
    let dead = world.connect_beside(NodeId(1));
    world.release();
    world.pass(100);
    world.sent.clear();
    world.kill(3);
    world.propose(0, 64, |record| {
        record.in_sync.retain(|member| member.node != NODE);
        record.cause = types::config::Cause::EvictedSilent;
    });
    world.start(3, 2, 30);
    world.pass(2_000);
    assert!(is_admitted(&world));
    let advised =
        |(_, conn, message): &(usize, _, Message)| matches!(message, Message::Advise(_)).then_some(*conn);
    let to: Vec<_> = world.sent.iter().filter_map(advised).collect();
    assert!(!to.iter().any(|conn| dead.contains(conn)), "advice goes where nobody listens");
}
