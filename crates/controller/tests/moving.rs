//! Bare tables that move: they are held, freed, dropped and replaced as whoever copies their rows asks for
//! it.

mod common;

use common::World;
use common::lines::table;
use types::{LogKind, TableId, TableRecord};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable};
use wire::moves::{MoveStep, MoveTable};

type Answered = Result<String, (u8, String)>;

fn told_by(world: &mut World, index: usize, command: AdminCommand) -> Answered {
    let id = world.admin_at(index, command);
    world.answered(id).expect("answered").clone()
}

fn told(world: &mut World, command: AdminCommand) -> Answered {
    told_by(world, 0, command)
}

/// The record of the table with this name.
fn named(world: &World, name: &str) -> Option<TableRecord> {
    let id: TableId = world.record(&format!("name/{name}"))?;
    world.record(&format!("table/{}", id.0))
}

fn asked(table: TableId, (number, version): (u32, u32), step: MoveStep) -> AdminCommand {
    let asked = MoveTable { table, number: TableId(number), version, step };
    AdminCommand::MoveTable(RecordText::new(&asked))
}

fn record(answer: Answered) -> TableRecord {
    RecordText(answer.expect("done")).read().expect("a record")
}

/// With a table `t` of two partitions.
fn world(controllers: usize) -> (World, TableId) {
    let mut world = World::with(controllers, understudy_controller::Settings::default());
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 2));
    let id = named(&world, "t").expect("there").id;
    (world, id)
}

/// Makes a table of four partitions for the rows of the move with this number.
fn filled(world: &mut World, number: u32) -> TableId {
    let request = table(&format!("sys_moving_{number}"), "durable", LogKind::Disk, None, 4);
    record(told(world, AdminCommand::CreateTable(RecordText::new(&request)))).id
}

const fn hold(at_ms: u64) -> MoveStep {
    MoveStep::Hold { at_ms, into: None }
}

#[test]
fn pr400_a_hold_is_part_of_the_policy_and_partitions_are_brought_to_it() {
    let (mut world, id) = world(1);
    let before = named(&world, "t").expect("there");
    let held = record(told(&mut world, asked(id, (70, 0), hold(5))));
    let moves = held.policy.moves.expect("it is held");
    assert_eq!((moves.number, moves.closed, held.held_ms()), (TableId(70), false, 5));
    assert_eq!(held.policy.version, before.policy.version + 1);
    assert_eq!(named(&world, "t"), Some(held.clone()));
    world.take_lines();
    world.pass(1_000);
    let advised = world.take_lines();
    for partition in held.partition_ids() {
        let advice = format!("{partition} e1: policy");
        assert!(advised.iter().any(|line| line.contains(&advice)), "{advice}: {advised:?}");
    }
    // What is no bare table of users is not held.
    let commits = wire::control::CreateTable::system(types::system::SEQUENCES, 3).expect("a system table");
    let own = record(told(&mut world, AdminCommand::CreateTable(RecordText::new(&commits)))).id;
    let database = wire::control::CreateTable::database("bank", "durable");
    let bank = record(told(&mut world, AdminCommand::CreateDatabase(RecordText::new(&database)))).id;
    for (table, status) in [(own, 5), (bank, 2), (TableId(9_999), 3)] {
        let refused = told(&mut world, asked(table, (71, 0), hold(5))).expect_err("refused");
        assert_eq!(refused.0, status, "{table}: {}", refused.1);
    }
}

#[test]
fn pr402_while_a_table_is_held_nobody_else_holds_alters_or_drops_it() {
    let (mut world, id) = world(1);
    let held = record(told(&mut world, asked(id, (70, 0), hold(5))));
    assert_eq!(record(told(&mut world, asked(id, (70, 0), hold(5)))), held, "asked for again");
    let fewer = AlterTable { name: "t".into(), min_in_sync: Some(1), ..AlterTable::default() };
    for command in [
        asked(id, (71, 0), hold(6)),
        AdminCommand::DropTable("t".into()),
        AdminCommand::AlterTable(RecordText::new(&fewer)),
    ] {
        let (status, why) = told(&mut world, command).expect_err("it is held");
        assert!(status == 5 && why.contains("is being moved"), "{why}");
    }
    assert_eq!(named(&world, "t"), Some(held));
    let free = asked(id, (70, 2), MoveStep::Free { said_ms: None });
    let freed = record(told(&mut world, free));
    assert_eq!((freed.policy.moves, freed.policy.version, freed.held_ms()), (None, 3, 0));
    assert!(!freed.unknown.contains_key(TableRecord::HELD));
    told(&mut world, AdminCommand::AlterTable(RecordText::new(&fewer))).expect("it is free");
    told(&mut world, AdminCommand::DropTable("t".into())).expect("it is free");
}

#[test]
fn pr402_a_step_behind_the_end_of_a_hold_decides_nothing() {
    let (mut world, id) = world(1);
    told(&mut world, asked(id, (70, 0), hold(5))).expect("held");
    let refused = |world: &mut World, version: u32, step: MoveStep| {
        let (status, why) = told(world, asked(id, (70, version), step)).expect_err("refused");
        assert_eq!(status, 5, "{step:?} {version}: {why}");
    };
    refused(&mut world, 1, MoveStep::Renew { at_ms: 6 });
    assert_eq!(record(told(&mut world, asked(id, (70, 2), MoveStep::Renew { at_ms: 6 }))).held_ms(), 6);
    refused(&mut world, 2, MoveStep::Replace);
    refused(&mut world, 2, MoveStep::Drop);
    // Somebody thinks that nobody speaks of it any more, and has not heard the last word.
    refused(&mut world, 2, MoveStep::Free { said_ms: Some(5) });
    let free = asked(id, (70, 2), MoveStep::Free { said_ms: Some(6) });
    for _ in 0..2 {
        assert_eq!(record(told(&mut world, free.clone())).policy.moves, None);
    }
    for step in [MoveStep::Renew { at_ms: 7 }, MoveStep::Close, MoveStep::Replace, MoveStep::Drop] {
        refused(&mut world, 2, step);
    }
    // The request that held it comes once more: whoever sent it knows another version.
    assert_eq!(record(told(&mut world, asked(id, (70, 0), hold(5)))).policy.version, 4);
    for step in [MoveStep::Renew { at_ms: 8 }, MoveStep::Close, MoveStep::Replace, MoveStep::Drop] {
        refused(&mut world, 2, step);
    }
}

#[test]
fn pr402_a_table_takes_the_place_of_another_one_at_once_and_may_be_told_so_twice() {
    let (mut world, id) = world(1);
    told(&mut world, asked(id, (70, 0), hold(5))).expect("held");
    let close = asked(id, (70, 2), MoveStep::Close);
    let closed = record(told(&mut world, close.clone()));
    assert!(closed.policy.version == 3 && closed.policy.moves.is_some_and(|moves| moves.closed));
    assert_eq!(record(told(&mut world, close)), closed, "asked for again");
    let replace = asked(id, (70, 3), MoveStep::Replace);
    assert_eq!(told(&mut world, replace.clone()).expect_err("there is nothing yet").0, 3);
    let new = filled(&mut world, 70);
    for _ in 0..2 {
        told(&mut world, replace.clone()).expect("replaced");
    }
    let now = named(&world, "t").expect("there");
    assert_eq!((now.id, now.partitions, now.name.as_str()), (new, 4, "t"));
    assert!(named(&world, "sys_moving_70").is_none());
    assert!(world.record::<TableRecord>(&format!("table/{}", id.0)).is_none());
    let late = asked(id, (70, 3), MoveStep::Free { said_ms: None });
    assert_eq!(told(&mut world, late).expect_err("it is gone").0, 3);
    // One that somebody has dropped meanwhile was not replaced.
    let (number, gone) = (72, filled(&mut world, 71));
    filled(&mut world, number);
    told(&mut world, AdminCommand::DropTable("sys_moving_71".into())).expect("dropped");
    assert_eq!(told(&mut world, asked(gone, (number, 3), MoveStep::Replace)).expect_err("gone").0, 3);
}

/// A controller that has heard neither of the hold nor of the table with the rows says nothing of either.
#[test]
fn pr402_what_a_controller_has_not_heard_of_is_found_out_in_the_metastore() {
    let (mut world, id) = world(2);
    world.cut_off.insert(1);
    told(&mut world, asked(id, (70, 0), hold(5))).expect("held");
    let new = filled(&mut world, 70);
    told(&mut world, asked(id, (70, 2), MoveStep::Close)).expect("closed");
    told_by(&mut world, 1, asked(id, (70, 3), MoveStep::Replace)).expect("it looks");
    assert_eq!(named(&world, "t").map(|record| record.id), Some(new));
}
