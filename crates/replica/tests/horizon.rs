//! How long snapshots of transactions over partitions can be read: at a primary, at those that follow it, and
//! at the one that is promoted.

mod harness;

use harness::World;

/// Three copies. The commits 1,5 and 1,8 are there.
fn partition() -> World {
    let mut world = World::new();
    for command in [
        "global durable 1 2 3",
        "settle",
        "wait 400",
        "flush 1 1,5 0,0",
        "settle",
        "flush 1 1,8 1,5",
        "settle",
    ] {
        world.run(command);
    }
    world
}

/// Commits more, one every two seconds, from this one on; before each the snapshot 1,5 is held if it `holds`,
/// else the newest. Gives the number of the last.
fn goes_on(world: &mut World, primary: u32, (first, count): (u64, u64), holds: bool) -> u64 {
    for commit in first..first + count {
        let snapshot = if holds { 5 } else { commit - 1 };
        let held = world.run(&format!("keep-at {primary} 1,{snapshot}"));
        assert!(held.contains(": ok"), "before commit {commit}: {held}");
        world.run(&format!("flush {primary} 1,{commit} 1,{}", commit - 1));
        world.run(&format!("wait 2000{}", if primary == 1 { "" } else { " alone=1" }));
    }
    first + count - 1
}

fn read(world: &mut World, node: &str) -> String {
    world.run(&format!("read-at {node}"))
}

fn is_shown(answer: &str) -> bool {
    assert!(answer.contains("nothing there") || answer.contains("TooOld"), "{answer}");
    answer.contains("nothing there")
}

#[test]
fn pr466_a_snapshot_that_is_held_is_shown_as_long_as_that_and_others_are_not() {
    for holds in [true, false] {
        let mut world = partition();
        goes_on(&mut world, 1, (9, 12), holds);
        for copy in ["1 1,5", "2 1,5 any", "3 1,5 any"] {
            assert_eq!(is_shown(&read(&mut world, copy)), holds, "held: {holds}, at {copy}");
        }
        assert!(is_shown(&read(&mut world, "1 1,18")), "it was the newest a few seconds ago");
    }
}

#[test]
fn pr465_what_a_primary_keeps_for_snapshots_is_kept_by_who_is_promoted() {
    let mut world = partition();
    let last = goes_on(&mut world, 1, (9, 12), true);
    // Nobody leads for longer than a snapshot is kept that nobody holds.
    world.run("wait 15000 alone=1");
    world.run("seal 2 3");
    world.run("tell 2 3");
    world.run("wait 1000 alone=1");
    let last = goes_on(&mut world, 2, (last + 1, 3), false);
    assert!(is_shown(&read(&mut world, "2 1,5")), "its reader has ten seconds to come");
    let last = goes_on(&mut world, 2, (last + 1, 12), true);
    for copy in ["2 1,5", "3 1,5 any"] {
        assert!(is_shown(&read(&mut world, copy)), "at {copy}");
    }
    goes_on(&mut world, 2, (last + 1, 12), false);
    for copy in ["2 1,5", "3 1,5 any"] {
        assert!(!is_shown(&read(&mut world, copy)), "nobody holds it any more, at {copy}");
    }
}
