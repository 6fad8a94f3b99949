//! Divergent tails in failovers' reports (R9).

mod common;

use common::World;
use common::lines::table;
use types::config::{Cause, FailoverRecord, LossReport, TailReport};
use types::{Epoch, LogKind, Lsn, NodeId, PartitionId, Term};
use understudy_controller::{Key, Settings};
use wire::control::AdminCommand;

const P: PartitionId = PartitionId(64);

fn tail(term: u64) -> TailReport {
    TailReport {
        partition: P,
        node: NodeId(1),
        file: format!("{term}.tail"),
        term: Term(term),
        from: Lsn(5),
        to: Lsn(7),
        commits: 3,
        surely_acknowledged: 0,
        sessions: 1,
        rows: None,
    }
}

fn fails_over(world: &mut World, by: u32, whom: u32) {
    world.kill(whom);
    world.pass(200);
    world.suspect(by, whom, 100);
    assert_eq!(world.partition(64).primary.node, NodeId(by));
}

/// The failovers that are kept, with the files of their tails.
fn told(world: &World) -> Vec<(u64, Vec<String>)> {
    let files = |tails: &[TailReport]| tails.iter().map(|tail| tail.file.clone()).collect();
    failovers(world).iter().map(|failover| (failover.id, files(&failover.loss.tails))).collect()
}

fn failovers(world: &World) -> Vec<FailoverRecord> {
    let entries = world.table.snapshot("failover/").entries;
    entries.iter().map(|entry| serde_json::from_slice(&entry.value).unwrap()).collect()
}

#[test]
fn r9_a_tail_that_is_told_again_is_entered_once_and_never_in_another_failover() {
    let settings = Settings { failovers_kept: 1, ..Settings::default() };
    let mut world = World::with(1, settings);
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
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

#[test]
fn pr200_a_tail_of_a_term_whose_failover_is_lost_with_the_records_is_in_the_report_of_the_new_ones() {
    let mut world = World::with(1, Settings::default());
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    fails_over(&mut world, 2, 1);
    fails_over(&mut world, 3, 2);
    // What a rebuild writes in their place, and what comes after that.
    let lost = failovers(&world);
    let rebuilt = FailoverRecord {
        id: 1003,
        cause: Cause::Rebuilt,
        old_epoch: Epoch(3),
        old_term: Term(3),
        new_epoch: Epoch(1 << 32),
        loss: LossReport { possible: true, ..LossReport::default() },
        ..lost[1].clone()
    };
    let later = FailoverRecord {
        id: 1004,
        old_epoch: Epoch(1 << 32),
        old_term: Term(1 << 32),
        new_epoch: Epoch((1 << 32) + 1),
        ..lost[1].clone()
    };
    let json = |record: &FailoverRecord| serde_json::to_vec(record).expect("a record");
    let puts: Vec<_> = [&rebuilt, &later]
        .map(|record| (Key::Failover(record.id).to_string(), json(record)))
        .into_iter()
        .collect();
    let gone: Vec<String> = lost.iter().map(|record| Key::Failover(record.id).to_string()).collect();
    world.table.write(&puts, &gone);
    world.restart_controller(0, Settings::default());
    let first = tail(1);
    world.node_says(0, NodeId(3), first.clone());
    world.node_says(0, NodeId(3), first);
    world.node_says(0, NodeId(3), tail(2));
    world.node_says(0, NodeId(3), tail(1 << 32));
    let both = vec!["1.tail".to_string(), "2.tail".to_string()];
    assert_eq!(told(&world), [(1003, both), (1004, vec![format!("{}.tail", 1u64 << 32)])]);
    // What the second node led is in none of them. Another one could take its copy.
    world.start(4, 1, 40);
    let id = world.admin(AdminCommand::Remove { node: NodeId(2), losing: false });
    let (_, why) = world.answered(id).expect("at once").clone().expect_err("it may have acknowledged alone");
    assert!(why.contains("n2 led table 't' partition 64"), "{why}");
}
