//! A node that connects again before its old connection is known to be dead stays within hearing; one that
//! comes on an older copy of its directory is refused.

mod common;

use common::lines::table;
use common::{Fate, World};
use types::{Incarnation, LogKind, Member, NodeId, NodeRecord, StoreId};
use understudy_controller::{ConnId, Input, Settings};
use wire::Message;
use wire::control::Advice;

const NODE: NodeId = NodeId(3);

/// n3 has left the set and starts again. While the metastore keeps its registration waiting it connects a
/// second time, and registers at once. The outcome of the first registration comes after that: on a
/// connection that is dead.
fn registered_twice() -> (World, Vec<ConnId>) {
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

#[test]
fn pr145_an_older_copy_of_a_directory_is_not_the_node() {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world.kill(3);
    world.start(3, 2, 30);
    let copied = world.nodes[&NodeId(3)].starts.clone();
    world.kill(3);
    world.start(3, 3, 30);
    let newest = world.nodes[&NodeId(3)].starts.clone();
    world.kill(3);
    world.pass(3_000);
    world.take_lines();
    // The copy is started again and again, and so is in a later incarnation than the node ever was.
    for incarnation in 3..6 {
        let id = NodeId(3);
        let starts = [&copied[..], &[7_000 + incarnation]].concat();
        let member = Member { node: id, store: StoreId(30), incarnation: Incarnation(incarnation) };
        let known = world.nodes.get_mut(&id).expect("it is there");
        (known.member, known.starts, known.running) = (member, starts, true);
        world.connect(id);
        assert_eq!(world.take_lines(), ["-> n3 closed"]);
        let told = |(.., message): &(usize, ConnId, Message)| matches!(message, Message::RegisterRefused(refused) if refused.for_good && refused.why.contains("copy"));
        assert!(std::mem::take(&mut world.sent).iter().any(told));
        assert_eq!(world.record::<NodeRecord>("node/3").unwrap().incarnation, Incarnation(3));
        world.kill(3);
    }
    world.nodes.get_mut(&NodeId(3)).expect("it is there").starts = newest;
    world.start(3, 4, 30);
    assert_eq!(world.record::<NodeRecord>("node/3").unwrap().incarnation, Incarnation(4));
}

#[test]
fn pr210_a_copy_of_a_directory_that_was_replaced_is_not_the_node() {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    let (id, copied) = (NodeId(3), world.nodes[&NodeId(3)].starts.clone());
    world.kill(3);
    world.start(3, 2, 30);
    let newest = world.nodes[&id].starts.clone();
    // The disk fails, the node is started on an empty one, and does not run when the copy is started.
    world.kill(3);
    world.start(3, 1, 31);
    let replaced = world.nodes[&id].starts.clone();
    world.kill(3);
    world.pass(3_000);
    world.take_lines();
    world.sent.clear();
    let come = |world: &mut World, store, incarnation, starts: Vec<u64>| {
        let member = Member { node: id, store: StoreId(store), incarnation: Incarnation(incarnation) };
        let known = world.nodes.get_mut(&id).expect("it is there");
        (known.member, known.starts, known.running) = (member, starts, true);
        world.connect(id);
    };
    come(&mut world, 30, 3, [&copied[..], &[7_001]].concat());
    let told = |(.., message): &(usize, ConnId, Message)| matches!(message, Message::RegisterRefused(refused) if refused.for_good && refused.why.contains("copy"));
    assert!(
        world.sent.iter().any(told),
        "what the first directory was given after it was copied is not there"
    );
    assert_eq!(world.record::<NodeRecord>("node/3").unwrap().store, StoreId(31));
    world.kill(3);
    // The newest state of the first directory is no copy, and the same holds of the second one from then on.
    come(&mut world, 30, 3, [&newest[..], &[7_002]].concat());
    assert_eq!(world.record::<NodeRecord>("node/3").unwrap().store, StoreId(30));
    world.kill(3);
    world.pass(3_000);
    world.sent.clear();
    come(&mut world, 31, 2, vec![7_003]);
    assert!(world.sent.iter().any(told));
    world.kill(3);
    come(&mut world, 31, 2, [&replaced[..], &[7_004]].concat());
    assert_eq!(world.record::<NodeRecord>("node/3").unwrap().store, StoreId(31));
}

#[test]
fn pr161_who_registers_while_not_all_is_known_is_told_later_what_there_is_not() {
    let mut world = World::with(2, Settings::default());
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world.kill(3);
    // What comes from the metastore lags at the second controller, where n3 registers.
    world.cut_off = [1].into();
    world.start(4, 1, 40);
    world.cut_off = [0].into();
    world.sent.clear();
    world.start(3, 2, 30);
    let maps = |(index, _, message): &(usize, ConnId, Message)| match message {
        Message::ClusterMap(map) if *index == 1 => Some((map.whole, map.nodes.len())),
        _ => None,
    };
    let of_n3 = |one: &&(usize, ConnId, Message)| world.whose(one.1) == "n3";
    let told: Vec<(bool, usize)> = world.sent.iter().filter(of_n3).filter_map(maps).collect();
    assert_eq!(told.first(), Some(&(false, 3)), "n4 may be there or not");
    assert_eq!(told.last(), Some(&(true, 4)), "{told:?}");
    assert_eq!(told.iter().filter(|(whole, _)| *whole).count(), 1);
}

#[test]
fn pr460_who_is_needed_is_asked_for_at_once_and_again_on_a_new_connection() {
    for since_it_looked in (0..100).step_by(20) {
        let mut world = World::new();
        world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
        world.kill(2);
        world.kill(3);
        world.propose(0, 64, |record| {
            record.in_sync.truncate(1);
            record.cause = types::config::Cause::EvictedSilent;
        });
        world.pass(1_000 + since_it_looked);
        world.start(3, 2, 30);
        world.sent.clear();
        world.pass(40);
        assert!(is_admitted(&world), "{since_it_looked} ms after the planner has looked at everything");
        world.sent.clear();
        world.pass(200);
        assert!(!is_admitted(&world), "it was said");
        // The connection broke before that came.
        world.connect(NodeId(1));
        world.pass(40);
        assert!(is_admitted(&world), "{since_it_looked} ms");
    }
}
