//! Divergent tails in failovers' reports (R9).

mod common;

use common::World;
use common::lines::table;
use types::config::{FailoverRecord, TailReport};
use types::{LogKind, Lsn, NodeId, PartitionId};
use understudy_controller::Settings;

fn failovers(world: &World) -> Vec<FailoverRecord> {
    let entries = world.table.snapshot("failover/").entries;
    entries.iter().map(|entry| serde_json::from_slice(&entry.value).unwrap()).collect()
}

#[test]
fn r9_a_tail_that_is_told_again_is_entered_once_and_never_in_another_failover() {
    let settings = Settings { failovers_kept: 1, ..Settings::default() };
    let mut world = World::with(1, settings);
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    let tail = |epoch| TailReport {
        partition: PartitionId(64),
        node: NodeId(1),
        file: format!("{epoch}.tail"),
        term: types::Term(epoch),
        from: Lsn(5),
        to: Lsn(7),
        commits: 3,
        surely_acknowledged: 0,
        sessions: 1,
        rows: None,
    };
    let told = |world: &World| -> Vec<(u64, Vec<String>)> {
        let files = |tails: &[TailReport]| tails.iter().map(|tail| tail.file.clone()).collect();
        failovers(world).iter().map(|failover| (failover.id, files(&failover.loss.tails))).collect()
    };
    let fails_over = |world: &mut World, by: u32, whom: u32| {
        world.kill(whom);
        world.pass(200);
        world.suspect(by, whom, 100);
        assert_eq!(world.partition(64).primary.node, NodeId(by));
    };
    fails_over(&mut world, 2, 1);
    let first = tail(1);
    world.node_says(0, NodeId(3), first.clone());
    world.node_says(0, NodeId(3), first.clone());
    assert_eq!(told(&world), [(1, vec!["1.tail".to_string()])]);
    fails_over(&mut world, 3, 2);
    world.pass(5000);
    assert_eq!(told(&world), [(2, vec![])], "the first is not kept");
    // Of the term that the second failover ended, and of the one before it.
    world.node_says(0, NodeId(3), tail(2));
    world.node_says(0, NodeId(3), first);
    assert_eq!(told(&world), [(2, vec!["2.tail".to_string()])]);
}
