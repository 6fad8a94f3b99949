//! Records that this version cannot read: nothing is thrown away because of them.

mod common;

use common::World;
use common::lines::table;
use types::{Epoch, LogKind};
use understudy_controller::{ConnId, Settings};
use wire::Message;

#[test]
fn partitions_of_a_table_that_cannot_be_read_are_not_swept_away() {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    let sound = world.table.snapshot("table/1").entries[0].value.clone();
    world.table.write(&[("table/1".into(), b"{\"format\":99}".to_vec())], &[]);
    world.restart_controller(0, Settings::default());
    world.pass(120_000);
    assert_eq!(world.partition(64).epoch, Epoch(1), "the partition is still there");
    // And nobody is told that this is all there is.
    let cluster_maps = |world: &World| {
        let whole = |(_, _, message): &(usize, ConnId, Message)| match message {
            Message::ClusterMap(cluster_map) => Some(cluster_map.whole),
            _ => None,
        };
        world.sent.iter().filter_map(whole).collect::<Vec<_>>()
    };
    world.sent.clear();
    world.start(4, 1, 40);
    assert!(!cluster_maps(&world).is_empty() && cluster_maps(&world).iter().all(|whole| !whole));
    world.table.write(&[("table/1".into(), sound)], &[]);
    world.restart_controller(0, Settings::default());
    world.sent.clear();
    world.start(5, 1, 50);
    assert!(cluster_maps(&world).contains(&true));
}
