//! Databases as operators make, alter and drop them.

mod common;

use common::lines::table;
use common::{Fate, World};
use types::policy::Standby;
use types::{LogKind, Ship};
use wire::control::{AdminCommand, AlterTable, CreateTable};

fn world() -> World {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world
}

#[test]
fn pr120_numbers_are_given_out_once() {
    let mut world = world();
    let numbers = |world: &mut World, count: u32| {
        let id = world.admin(AdminCommand::Numbers(count));
        world.answered(id).expect("answered").clone()
    };
    let next = |world: &World| world.record::<types::ClusterRecord>("cluster").expect("there").next_table;
    let first = next(&world);
    assert_eq!(numbers(&mut world, 3), Ok(first.to_string()));
    assert_eq!(numbers(&mut world, 1), Ok((first + 3).to_string()));
    let request = table("u", "durable", LogKind::Disk, None, 1);
    world.admin(AdminCommand::CreateTable(wire::RecordText::new(&request)));
    assert_eq!(next(&world), first + 5, "a table of its own has a number of the same kind");
    for wrong in [0, wire::control::MOST_NUMBERS + 1] {
        assert_eq!(numbers(&mut world, wrong).expect_err("out of range").0, 2);
    }
    assert_eq!(next(&world), first + 5);
}

/// Two controllers write the same into the cluster's record when each takes as many numbers: who does not
/// know whether its own was written does not find it out there.
#[test]
fn pr125_numbers_that_another_controller_gave_out_are_not_ones_own() {
    for fate in [Fate::RequestLost, Fate::AnswerLost] {
        let mut world = World::with(2, understudy_controller::Settings::default());
        world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
        let first = world.record::<types::ClusterRecord>("cluster").expect("there").next_table;
        world.fates.push(fate);
        let unsure = world.admin_at(0, AdminCommand::Numbers(6));
        let sure = world.admin_at(1, AdminCommand::Numbers(6));
        world.pass(200);
        let answer = |id| {
            let answer = world.answered(id).expect("answered").clone().expect("given");
            answer.parse::<u32>().expect("a number")
        };
        // What may have been taken in vain is used up.
        let expected = match fate {
            Fate::RequestLost => (first, first + 6),
            _ => (first + 6, first + 12),
        };
        assert_eq!((answer(sure), answer(unsure)), expected, "{fate:?}");
    }
}

/// A database that is spread by a column.
fn spread(policy: &str) -> CreateTable {
    let by = [types::data::Column::new("w", types::data::ColumnType::Int)];
    let schema = types::database::catalog_schema_by(&by).expect("valid");
    CreateTable { schema, ..CreateTable::database("spread", policy) }
}

#[test]
fn pr55_a_database_of_global_transactions_has_no_more_copies_than_the_commits() {
    let mut world = world();
    let ask = |world: &mut World, command: AdminCommand| {
        let id = world.admin(command);
        world.answered(id).expect("answered").clone()
    };
    let text = |request: &CreateTable| wire::RecordText::new(request);
    let ledger = CreateTable {
        partitions: 2,
        factor: Some(2),
        global: true,
        policy: "async".into(),
        ..CreateTable::database("ledger", "async")
    };
    let refused = ask(&mut world, AdminCommand::CreateDatabase(text(&ledger))).expect_err("no manager");
    assert!(refused.1.contains("sys_commits, on which global transactions rest"), "{}", refused.1);
    let commits = CreateTable::system(types::system::COMMITS, 2).expect("a system table");
    ask(&mut world, AdminCommand::CreateTable(text(&commits))).expect("made");
    let made = ask(&mut world, AdminCommand::CreateDatabase(text(&ledger))).expect("made, and lazy");
    let record: types::TableRecord = wire::RecordText(made).read().expect("a record");
    assert!(record.is_global() && world.partition(record.first_partition.0 + 1).is_global());
    assert!(world.partition(types::PartitionId::FIRST_SYSTEM).keeps_commits());
    let three = CreateTable { name: "wide".into(), factor: Some(3), ..ledger.clone() };
    let refused = ask(&mut world, AdminCommand::CreateDatabase(text(&three))).expect_err("too many");
    assert!(refused.1.contains("fewer than the 3"), "{}", refused.1);
    let wider = AlterTable { name: "ledger".into(), factor: Some(3), ..AlterTable::default() };
    let refused = ask(&mut world, AdminCommand::AlterDatabase(wire::RecordText::new(&wider)));
    assert!(refused.is_err_and(|(_, why)| why.contains("fewer than the 3")));
    for wrong in [
        CreateTable { log: LogKind::Memory, name: "m".into(), ..ledger.clone() },
        CreateTable { global: true, name: "s".into(), ..spread("durable") },
        CreateTable { global: true, ..table("t", "durable", LogKind::Disk, Some(2), 1) },
    ] {
        assert!(ask(&mut world, AdminCommand::CreateDatabase(text(&wrong))).is_err(), "{}", wrong.name);
    }
}

/// An operator asks, and is answered.
fn told(world: &mut World, command: AdminCommand) -> Result<String, (u8, String)> {
    let id = world.admin(command);
    world.answered(id).expect("answered").clone()
}

/// Makes the transaction manager's table with so many copies.
fn make_commits(world: &mut World, copies: usize) {
    let commits = CreateTable::system(types::system::COMMITS, copies).expect("a system table");
    told(world, AdminCommand::CreateTable(wire::RecordText::new(&commits))).expect("made");
}

/// A change of the transaction manager's table.
fn of_commits(change: AlterTable) -> AdminCommand {
    let name = types::system::COMMITS.into();
    AdminCommand::AlterTable(wire::RecordText::new(&AlterTable { name, ..change }))
}

/// The partition of the commits comes to what its table is to have, by the two records of such a change.
fn follow(world: &mut World) {
    let (id, cause) = (types::PartitionId::FIRST_SYSTEM, types::config::Cause::Policy);
    let table = world.partition(id).table;
    let wanted = world.record::<types::TableRecord>(&format!("table/{}", table.0)).expect("there").policy;
    let next = wanted.clone();
    world.propose(0, id, |record| (record.next_policy, record.cause) = (Some(next), cause));
    let last = wanted.clone();
    world.propose(0, id, |record| {
        (record.policy, record.next_policy, record.cause) = (last, None, cause);
    });
    assert_eq!(world.partition(id).policy, wanted);
}

/// A database of global transactions with three copies, two at least.
fn ledger() -> AdminCommand {
    let ledger = CreateTable {
        partitions: 2,
        factor: Some(3),
        global: true,
        ..CreateTable::database("ledger", "async")
    };
    AdminCommand::CreateDatabase(wire::RecordText::new(&ledger))
}

#[test]
fn pr366_the_commits_are_kept_as_databases_under_them_demand_also_once_they_are_altered() {
    let mut world = world();
    make_commits(&mut world, 3);
    told(&mut world, ledger()).expect("made");
    let policy = |name: &str| AlterTable { policy: Some(name.into()), ..AlterTable::default() };
    for (weaker, why) in [
        (policy("async"), "must be `durable`"),
        (policy("local"), "must be `durable`"),
        (policy("semi"), "must be `durable`"),
        (AlterTable { factor: Some(2), ..AlterTable::default() }, "fewer than the 3 (2)"),
        (AlterTable { factor: Some(1), min_in_sync: Some(1), ..policy("local") }, "fewer than the 3 (2)"),
        (AlterTable { min_in_sync: Some(1), ..AlterTable::default() }, "fewer than the 3 (2)"),
        (AlterTable { available: Some(true), ..AlterTable::default() }, "goes on with fewer"),
    ] {
        let (status, said) = told(&mut world, of_commits(weaker)).expect_err("it promises less");
        assert!(status == 2 && said.contains("database 'ledger'") && said.contains(why), "{said}");
    }
    told(&mut world, of_commits(AlterTable { min_in_sync: Some(3), ..policy("sync") })).expect("more");
    told(&mut world, of_commits(policy("durable"))).expect("still enough");
    let target = AlterTable { failover_target_ms: Some(500), ..AlterTable::default() };
    told(&mut world, of_commits(target)).expect("nothing of its policy");
    // What no database demands any more is let go of.
    let least = AlterTable { min_in_sync: Some(1), ..AlterTable::default() };
    told(&mut world, of_commits(least.clone())).expect_err("the database demands two");
    let own = AlterTable { name: "ledger".into(), ..least.clone() };
    told(&mut world, AdminCommand::AlterDatabase(wire::RecordText::new(&own))).expect("less");
    told(&mut world, of_commits(least)).expect("as much as the database");
}

#[test]
fn pr366_commits_that_are_not_on_every_disk_are_no_managers() {
    let mut world = world();
    let commits = CreateTable::system(types::system::COMMITS, 3).expect("a system table");
    let semi = CreateTable { policy: "semi".into(), ..commits };
    told(&mut world, AdminCommand::CreateTable(wire::RecordText::new(&semi))).expect("made");
    let (_, why) = told(&mut world, ledger()).expect_err("what is in memory alone may be lost");
    assert!(why.contains("must be `durable`"), "{why}");
    let durable = AlterTable { policy: Some("durable".into()), ..AlterTable::default() };
    told(&mut world, of_commits(durable)).expect("altered");
    follow(&mut world);
    told(&mut world, ledger()).expect("made");
}

/// One operator makes a database while another one takes copies from the commits. Whichever is written last
/// is refused.
#[test]
fn pr366_a_database_and_a_weaker_manager_do_not_come_at_once() {
    let weaker = || of_commits(AlterTable { min_in_sync: Some(1), ..AlterTable::default() });
    let mut first = world();
    make_commits(&mut first, 3);
    // Its numbers and its partitions are written, and its record is on the way.
    first.fates = vec![Fate::Answered, Fate::Answered, Fate::Held];
    let made = first.admin(ledger());
    told(&mut first, weaker()).expect("there is no database yet");
    first.release();
    first.answered(made).expect("answered").as_ref().expect_err("the commits have another policy");
    assert_eq!(first.record::<types::TableId>("database/ledger"), None);
    let mut second = world();
    make_commits(&mut second, 3);
    second.fates = vec![Fate::Held];
    let altered = second.admin(weaker());
    told(&mut second, ledger()).expect("made");
    second.release();
    let (_, why) = second.answered(altered).expect("answered").clone().expect_err("looked at again");
    assert!(why.contains("fewer than the 3 (2)"), "{why}");
}

/// The commits are to be kept as a database demands, and their partition is not there yet, or is on its way
/// to less.
#[test]
fn pr392_commits_rest_on_the_policy_in_force_and_not_on_the_wanted_one() {
    let mut world = world();
    make_commits(&mut world, 3);
    let least = |min| of_commits(AlterTable { min_in_sync: Some(min), ..AlterTable::default() });
    told(&mut world, least(1)).expect("there is no database yet");
    follow(&mut world);
    told(&mut world, least(2)).expect("altered");
    let (status, why) = told(&mut world, ledger()).expect_err("what is in force allows one");
    assert!(status == 5 && why.contains("ask again") && why.contains("fewer than the 3 (2)"), "{why}");
    follow(&mut world);
    told(&mut world, ledger()).expect("made");
    told(&mut world, least(3)).expect("altered");
    follow(&mut world);
    told(&mut world, least(2)).expect("as much as the database");
    let id = types::PartitionId::FIRST_SYSTEM;
    let two = types::Policy { min_in_sync: 2, ..world.partition(id).policy };
    world.propose(0, id, |record| {
        (record.next_policy, record.cause) = (Some(two), types::config::Cause::Policy);
    });
    assert!(world.partition(id).next_policy.is_some());
    told(&mut world, least(3)).expect("altered once more");
    let three = AlterTable { name: "ledger".into(), min_in_sync: Some(3), ..AlterTable::default() };
    let three = AdminCommand::AlterDatabase(wire::RecordText::new(&three));
    let (status, why) = told(&mut world, three.clone()).expect_err("two may be in force next");
    assert!(status == 5 && why.contains("fewer than the 3 (3)"), "{why}");
    follow(&mut world);
    told(&mut world, three).expect("altered");
}

/// More databases than one transaction of the metastore can name. The last of them is to have more while the
/// commits are to have less; or the database is written first.
#[test]
fn pr391_commits_are_not_weakened_under_one_of_many_databases() {
    let mut world = world();
    make_commits(&mut world, 3);
    let least =
        |name: &str, min| AlterTable { name: name.into(), min_in_sync: Some(min), ..AlterTable::default() };
    for number in 0..types::txn::Txn::MAX_KEYS + 5 {
        let database = CreateTable {
            factor: Some(3),
            min_in_sync: Some(1),
            global: true,
            ..CreateTable::database(&format!("d{number}"), "async")
        };
        told(&mut world, AdminCommand::CreateDatabase(wire::RecordText::new(&database))).expect("made");
    }
    let last = format!("d{}", types::txn::Txn::MAX_KEYS + 4);
    let stronger = AdminCommand::AlterDatabase(wire::RecordText::new(&least(&last, 2)));
    world.fates = vec![Fate::Held];
    let weaker = world.admin(of_commits(least("", 1)));
    told(&mut world, stronger.clone()).expect("the commits have two yet");
    world.release();
    let (_, why) = world.answered(weaker).expect("answered").clone().expect_err("looked at again");
    assert!(why.contains(&last) && why.contains("fewer than the 3 (2)"), "{why}");
    let back = AdminCommand::AlterDatabase(wire::RecordText::new(&least(&last, 1)));
    told(&mut world, back).expect("less");
    world.fates = vec![Fate::Held];
    let stronger = world.admin(stronger);
    told(&mut world, of_commits(least("", 1))).expect("as much as each of them, however many there are");
    world.release();
    let (_, why) = world.answered(stronger).expect("answered").clone().expect_err("looked at again");
    assert!(why.contains("fewer than the 3 (2)"), "{why}");
}

/// What a lazy partition of global transactions loses is in their manager's log, so nobody waits for the disk
/// of a primary that is gone; of another lazy table one does.
#[test]
fn pr291_a_lazy_partition_of_global_transactions_does_not_wait_for_its_old_primary() {
    let failed_over = |global: bool| {
        let mut world = world();
        let ask = |world: &mut World, command: AdminCommand| {
            let id = world.admin(command);
            world.answered(id).expect("answered").clone()
        };
        let commits = CreateTable::system(types::system::COMMITS, 2).expect("a system table");
        ask(&mut world, AdminCommand::CreateTable(wire::RecordText::new(&commits))).expect("made");
        let ledger = CreateTable { factor: Some(2), global, ..CreateTable::database("ledger", "async") };
        let made = ask(&mut world, AdminCommand::CreateDatabase(wire::RecordText::new(&ledger)));
        let record: types::TableRecord = wire::RecordText(made.expect("made")).read().expect("a record");
        let id = record.first_partition.0;
        let before = world.partition(id);
        let backup = before.in_sync.iter().find(|member| **member != before.primary).expect("a backup").node;
        world.kill(before.primary.node.0);
        world.pass(200);
        world.suspect(backup.0, before.primary.node.0, 100);
        world.partition(id).primary.node == backup
    };
    assert!(failed_over(true));
    assert!(!failed_over(false), "what it acknowledged alone may be on its disk (PR-85)");
}

/// What a partition of a lazy database of global transactions loses is brought again, but for changes of
/// tables, which are said by its first partition. An operator may give up what nobody has any more.
#[test]
fn pr368_what_is_brought_again_is_not_reported_as_lost() {
    let reported = |place: u32, forced: bool| {
        let mut world = world();
        make_commits(&mut world, 2);
        let (partitions, factor) = (2, Some(2));
        let lazy =
            CreateTable { partitions, factor, global: true, ..CreateTable::database("ledger", "async") };
        let made = told(&mut world, AdminCommand::CreateDatabase(wire::RecordText::new(&lazy)));
        let record: types::TableRecord = wire::RecordText(made.expect("made")).read().expect("a record");
        let id = record.first_partition.0 + place;
        let before = world.partition(id);
        let backup = before.in_sync.iter().find(|member| **member != before.primary).expect("a backup").node;
        world.kill(before.primary.node.0);
        world.pass(1_000);
        match forced {
            true => {
                let partition = types::PartitionId(id);
                told(&mut world, AdminCommand::Force { partition, node: Some(backup) }).expect("forced");
            }
            false => world.suspect(backup.0, before.primary.node.0, 100),
        }
        let after = world.partition(id);
        assert!(after.lossy && after.primary.node == backup, "whoever leads compares and waits as before");
        let failover = format!("failover/{}", after.failover.expect("a failover"));
        let loss = world.record::<types::FailoverRecord>(&failover).expect("there").loss;
        (loss.possible, loss.brought_again)
    };
    assert_eq!(reported(1, false), (false, true));
    assert_eq!(reported(0, false), (true, true), "it says what tables are like");
    assert_eq!(reported(1, true), (true, false));
}

#[test]
fn a_database_is_a_record_with_a_name_of_its_own_and_marked_partitions() {
    let mut world = world();
    let ask = |world: &mut World, command: AdminCommand| {
        let id = world.admin(command);
        world.answered(id).expect("answered").clone()
    };
    let text = |request: &CreateTable| wire::RecordText::new(request);
    let bank = CreateTable { factor: Some(2), ..CreateTable::database("bank", "durable") };
    let made = ask(&mut world, AdminCommand::CreateDatabase(text(&bank))).expect("made");
    let record: types::TableRecord = wire::RecordText(made).read().expect("a record");
    assert!(record.is_database());
    let partition = world.partition(record.first_partition.0);
    assert!(partition.is_of_database() && partition.table == record.id);
    let again = ask(&mut world, AdminCommand::CreateDatabase(text(&bank)));
    assert_eq!(again.expect_err("taken").1, "database 'bank' exists already");
    let table = CreateTable { factor: Some(2), ..table("bank", "durable", LogKind::Disk, None, 1) };
    ask(&mut world, AdminCommand::CreateTable(text(&table))).expect("a table may have a database's name");
    for (wrong, status) in [
        (CreateTable { partitions: 2, ..CreateTable::database("two", "durable") }, 2),
        (CreateTable { partitions: 2, policy: "async".into(), ..spread("async") }, 2),
        (CreateTable { partitions: 1, ..spread("durable") }, 2),
        (CreateTable { schema: table.schema.clone(), ..CreateTable::database("other", "durable") }, 2),
        (CreateTable::database("9", "durable"), 2),
    ] {
        let refused = ask(&mut world, AdminCommand::CreateDatabase(text(&wrong))).expect_err("refused");
        assert_eq!(refused.0, status, "{}", refused.1);
    }
    let several = CreateTable { partitions: 2, factor: Some(2), ..spread("durable") };
    let made = ask(&mut world, AdminCommand::CreateDatabase(text(&several))).expect("made");
    let record: types::TableRecord = wire::RecordText(made).read().expect("a record");
    assert_eq!(record.partition_key(), [types::data::Column::new("w", types::data::ColumnType::Int)]);
    let second = world.partition(record.first_partition.0 + 1);
    assert!(second.is_of_database() && second.table == record.id);
    let loose = AlterTable { name: "spread".into(), policy: Some("async".into()), ..AlterTable::default() };
    assert!(ask(&mut world, AdminCommand::AlterDatabase(wire::RecordText::new(&loose))).is_err());
    let wider = AlterTable { name: "bank".into(), factor: Some(3), ..AlterTable::default() };
    ask(&mut world, AdminCommand::AlterDatabase(wire::RecordText::new(&wider))).expect("altered");
    let column = types::data::Column::new("more", types::data::ColumnType::Int);
    let more = AlterTable { name: "bank".into(), add_columns: vec![column], ..AlterTable::default() };
    assert!(ask(&mut world, AdminCommand::AlterDatabase(wire::RecordText::new(&more))).is_err());
    ask(&mut world, AdminCommand::DropDatabase("bank".into())).expect("dropped");
    let gone = ask(&mut world, AdminCommand::DropDatabase("bank".into())).expect_err("gone");
    assert_eq!(gone, (3, "there is no database 'bank'".into()));
    ask(&mut world, AdminCommand::DropTable("bank".into())).expect("the table was another thing");
    // The one that is always there has a record once it has a table that shares, and keeps it.
    let shared = CreateTable { factor: Some(2), ..CreateTable::database("understudy", "durable") };
    ask(&mut world, AdminCommand::CreateDatabase(text(&shared))).expect("made");
    let kept = ask(&mut world, AdminCommand::DropDatabase("understudy".into())).expect_err("kept");
    assert_eq!(kept, (5, "database 'understudy' is always there: drop tables of it".into()));
}

/// Calls are shipped to who executes what it is sent, and of databases alone.
#[test]
fn what_members_are_sent_of_calls_is_the_databases_and_goes_with_hot_standbys() {
    let mut world = world();
    let mut ask = |command: AdminCommand| {
        let id = world.admin(command);
        world.answered(id).expect("answered").clone()
    };
    let calls = |create: CreateTable| CreateTable { ship: Ship::Calls, factor: Some(2), ..create };
    let text = |request: &CreateTable| wire::RecordText::new(request);
    let record = |made: String| wire::RecordText(made).read::<types::TableRecord>().expect("a record");
    let bank = calls(CreateTable::database("bank", "durable"));
    let cold = CreateTable { standby: Some(Standby::Cold), ..bank.clone() };
    let refused = ask(AdminCommand::CreateDatabase(text(&cold))).expect_err("cold");
    assert_eq!((refused.0, refused.1.contains("cold standbys")), (2, true), "{}", refused.1);
    let bare = calls(table("u", "durable", LogKind::Disk, None, 1));
    let refused = ask(AdminCommand::CreateTable(text(&bare))).expect_err("bare");
    assert_eq!((refused.0, refused.1.contains("no procedures")), (2, true), "{}", refused.1);
    let made = record(ask(AdminCommand::CreateDatabase(text(&bank))).expect("made"));
    assert_eq!(made.ship, Ship::Calls);
    let mut alter = |ship: Option<Ship>, standby: Option<Standby>| {
        let alter = AlterTable { name: "bank".into(), ship, standby, ..AlterTable::default() };
        ask(AdminCommand::AlterDatabase(wire::RecordText::new(&alter)))
    };
    assert_eq!(alter(None, Some(Standby::Cold)).expect_err("it ships calls").0, 2);
    alter(Some(Ship::Effects), Some(Standby::Cold)).expect("both at once");
    assert_eq!(alter(Some(Ship::Calls), None).expect_err("they are cold").0, 2);
    alter(Some(Ship::Calls), Some(Standby::Hot)).expect("both at once");
    // A record of before says nothing, and means effects.
    let mut older = serde_json::to_value(&made).expect("JSON");
    assert_eq!(older.as_object_mut().expect("an object").remove("ship"), Some("calls".into()));
    let older: types::TableRecord = serde_json::from_value(older).expect("reads");
    assert_eq!(older.ship, Ship::Effects);
    assert!(!serde_json::to_string(&older).expect("JSON").contains("\"ship\""));
}

/// The request by which a table that has got the rows of another one takes its name.
fn named(from: &str, to: &str) -> AlterTable {
    AlterTable { name: from.into(), rename: Some(to.into()), ..AlterTable::default() }
}

fn asked(request: &AlterTable) -> AdminCommand {
    AdminCommand::AlterTable(wire::RecordText::new(request))
}

/// A table of two partitions for rows of a table that moves.
fn filled(world: &mut World, name: &str) -> types::TableRecord {
    let request = table(name, "durable", LogKind::Disk, None, 2);
    let made = told(world, AdminCommand::CreateTable(wire::RecordText::new(&request))).expect("made");
    wire::RecordText(made).read().expect("a record")
}

#[test]
fn pr378_a_table_takes_a_name_that_nothing_has_and_may_be_told_so_twice() {
    let mut world = world();
    let made = filled(&mut world, "sys_moving_70");
    assert!(made.first_partition.0 >= types::PartitionId::FIRST_USER, "it is a user's, but for its name");
    for (request, status) in [
        (named("sys_moving_70", "t"), 1),
        (named("sys_moving_70", "sys_other"), 2),
        (named("sys_moving_70", "a b"), 2),
        (named("t", "u"), 5),
        (AlterTable { factor: Some(1), ..named("sys_moving_70", "wide") }, 2),
    ] {
        let refused = told(&mut world, asked(&request)).expect_err("refused");
        assert_eq!(refused.0, status, "{request:?}: {}", refused.1);
    }
    let wide = named("sys_moving_70", "wide");
    for _ in 0..2 {
        let answer = told(&mut world, asked(&wide)).expect("it has the name");
        let record: types::TableRecord = wire::RecordText(answer).read().expect("a record");
        assert_eq!((record.id, record.name.as_str()), (made.id, "wide"));
    }
    // Its old name is free, and the new one is not.
    filled(&mut world, "sys_moving_70");
    let again = told(&mut world, asked(&wide)).expect_err("something has it");
    assert!(again.0 == 1 && again.1.contains("exists already"), "{}", again.1);
    told(&mut world, AdminCommand::DropTable("sys_moving_70".into())).expect("unlike the cluster's own");
    told(&mut world, AdminCommand::DropTable("wide".into())).expect("like any other");
    assert_eq!(told(&mut world, asked(&wide)).expect_err("neither is there").0, 3);
}

/// A controller that has not heard of a table does not say that there is none.
#[test]
fn pr380_that_there_is_no_table_is_found_out_in_the_metastore() {
    let mut world = World::with(2, understudy_controller::Settings::default());
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world.cut_off.insert(1);
    let made = filled(&mut world, "sys_moving_71");
    let found = |world: &mut World, request: &AlterTable| {
        let id = world.admin_at(1, asked(request));
        let answer = world.answered(id).expect("answered").clone().expect("it found the table");
        let record: types::TableRecord = wire::RecordText(answer).read().expect("a record");
        (record.id, record.name)
    };
    assert_eq!(found(&mut world, &named("sys_moving_71", "wide")), (made.id, "wide".into()));
    // It has got its name already, as another controller knows.
    let made = filled(&mut world, "sys_moving_72");
    let broad = named("sys_moving_72", "broad");
    told(&mut world, asked(&broad)).expect("named");
    assert_eq!(found(&mut world, &broad), (made.id, "broad".into()));
}

/// Nothing but its name changes: its partitions and their tables stay where they are.
#[test]
fn a_database_gets_another_name_that_no_other_one_has() {
    let mut world = world();
    let make = |world: &mut World, name: &str| {
        let request = CreateTable { factor: Some(2), ..CreateTable::database(name, "durable") };
        let made = told(world, AdminCommand::CreateDatabase(wire::RecordText::new(&request))).expect("made");
        wire::RecordText(made).read::<types::TableRecord>().expect("a record")
    };
    let bank = make(&mut world, "bank");
    make(&mut world, "shop");
    let alter = |request: &AlterTable| AdminCommand::AlterDatabase(wire::RecordText::new(request));
    for (request, status) in [
        (named("bank", "shop"), 1),
        (named("bank", "bank"), 1),
        (named("bank", "a b"), 2),
        (named("bank", "sys_bank"), 2),
        (AlterTable { factor: Some(1), ..named("bank", "other") }, 2),
        (named("nothing", "other"), 3),
        (named("bank", "understudy"), 5),
        (named("understudy", "other"), 5),
    ] {
        let refused = told(&mut world, alter(&request)).expect_err("refused");
        assert_eq!(refused.0, status, "{request:?}: {}", refused.1);
    }
    // A table may have the same name, and who asks twice is told the same.
    for _ in 0..2 {
        let answer = told(&mut world, alter(&named("bank", "t"))).expect("it has the name");
        let record: types::TableRecord = wire::RecordText(answer).read().expect("a record");
        assert_eq!(record, types::TableRecord { name: "t".into(), ..bank.clone() });
    }
    assert_eq!(told(&mut world, AdminCommand::DropDatabase("bank".into())).expect_err("renamed").0, 3);
    told(&mut world, AdminCommand::DropDatabase("t".into())).expect("by its new name");
    make(&mut world, "bank");
}
