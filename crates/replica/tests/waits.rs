//! Waits of a primary, let run out: each ends at its time, and not before.

mod harness;

use harness::World;

/// A world in which these commands were given.
fn world(commands: &[&str]) -> World {
    let mut world = World::new();
    commands.iter().for_each(|command| drop(world.run(command)));
    world
}

#[test]
fn pr02_a_target_that_stops_during_a_hand_over_holds_writes_up_for_a_second() {
    let mut world = world(&["create durable 1 2 3", "settle", "wait 40", "put 1 a one", "settle"]);
    // It is heard, and nothing reaches it any more.
    for command in ["mute 1>2", "put 1 b two", "settle", "hand 1 2"] {
        world.run(command);
    }
    let waits = |trace: &str| trace.contains("the partition is being handed over");
    assert!(waits(&world.run("put 1 c three")));
    world.run("wait 960");
    assert!(waits(&world.run("put 1 d four")), "it may get level");
    assert!(!world.run("wait 100").contains("Switchover"), "it is not level");
    assert!(!waits(&world.run("put 1 e five")), "the old primary leads on");
}

#[test]
fn pr15_who_stops_while_it_joins_catches_up_again() {
    let mut world = world(&["create durable 1", "settle", "admit 1 2", "grant", "tell 2", "settle"]);
    // It is asked for no promise, so that it is not proposed as soon as it counts.
    let joins = (0..50).any(|_| {
        world.run("wait 20 hung=1");
        world.run("put 1 a one");
        let counts = !world.run("sync 1").contains("answers");
        if !counts {
            world.run("settle");
        }
        counts
    });
    assert!(joins, "it was level for long enough");
    assert!(!world.run("wait 480 alone=2").contains("answers"), "it counts");
    assert!(world.run("wait 60 alone=2").contains("answers"), "it does not any more");
}

/// The primary's engine has no files to give, so that the target has nothing but the log.
#[test]
fn pr44_a_cold_standby_that_gets_no_files_is_handed_the_lead_all_the_same() {
    let begin = ["with tail_bytes 65536 files 2 3", "create durable/cold 1 2 3", "settle", "put 1 a one"];
    let mut world = world(&begin);
    for command in ["settle", "wait 40", "hand 1 2"] {
        world.run(command);
    }
    assert!(!world.run("wait 29960").contains("Switchover"), "files may come");
    assert!(world.run("wait 60").contains("Switchover"), "whoever leads next has more to replay");
}
