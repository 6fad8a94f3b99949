//! Holes of the document's algorithms: each scenario fails on what is printed, and holds where it is mended.

use types::{NodeId, PartitionId, Position};
use understudy_stores::tracking::manager::Aborted;
use understudy_stores::{Failed, Idle, Rules, Servers, Unordered, World};

const A: PartitionId = PartitionId(64);
const B: PartitionId = PartitionId(65);
const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

/// Three nodes: the first has region A, the second region B.
fn world(rules: Rules) -> World {
    let store = Unordered::new(&[(A, &[N1, N2, N3]), (B, &[N2, N3, N1])]);
    World::new(rules, store, &[N1, N2, N3])
}

fn servers(world: &mut World) {
    [N1, N2, N3].into_iter().for_each(|node| world.server_heartbeat(node));
}

/// What is committed, told, flushed and reported.
fn done(world: &mut World, rows: &[(PartitionId, &'static str)]) -> Position {
    let client = world.start_client();
    let at = world.transact(client, rows).expect("no conflict");
    world.flush(client);
    world.client_heartbeat(client);
    world.stop_client(client);
    at
}

#[test]
fn idle_clients_hold_nothing_back() {
    let reached = |rules| {
        let mut world = world(rules);
        let _idle = world.start_client();
        let busy = world.start_client();
        let at = world.transact(busy, &[(A, "x"), (B, "y")]).expect("no conflict");
        world.settle();
        (world.manager.flushed_by_all(), world.manager.persisted_by_all(), at)
    };
    let (flushed, persisted, at) = reached(Rules::PRINTED);
    assert_eq!((flushed, persisted), (Position::ZERO, Position::ZERO), "printed: {at} is never passed");
    let (flushed, persisted, at) = reached(Rules::MENDED);
    assert_eq!((flushed, persisted), (at, at));
}

/// The cure that suggests itself: who has nothing in its queue says the newest timestamp that it has heard
/// of.
#[test]
fn pr50_what_is_flushed_does_not_jump_over_a_commit_whose_answer_is_on_its_way() {
    let lost = |rules| {
        let mut world = world(rules);
        let client = world.start_client();
        world.commit(client, Position::ZERO, &[(A, "x")]).expect("no conflict");
        world.hears(client);
        world.client_heartbeat(client);
        servers(&mut world);
        world.kill_client(client);
        world.settle();
        world.missing().len()
    };
    assert_eq!(lost(Rules { idle: Idle::Jumps, ..Rules::PRINTED }), 1);
    assert_eq!(lost(Rules { idle: Idle::Jumps, ..Rules::MENDED }), 1);
    assert_eq!(lost(Rules::MENDED), 0);
}

#[test]
fn a_client_that_failed_is_removed_once_it_was_replayed() {
    let reached = |rules| {
        let mut world = world(rules);
        let dead = world.start_client();
        world.transact(dead, &[(A, "x")]).expect("no conflict");
        world.kill_client(dead);
        assert_eq!(world.missing(), []);
        let last = done(&mut world, &[(A, "y")]);
        world.settle();
        (world.manager.flushed_by_all(), last)
    };
    let (flushed, _) = reached(Rules { idle: Idle::Jumps, ..Rules::PRINTED });
    assert_eq!(flushed, Position::ZERO, "printed: it holds T_F* back for ever");
    let (flushed, last) = reached(Rules::MENDED);
    assert_eq!(flushed, last);
}

#[test]
fn a_server_that_failed_is_removed_once_it_was_replayed() {
    let ends = |rules: Rules| {
        let mut world = world(Rules { idle: Idle::ManagerCounts, ..rules });
        done(&mut world, &[(A, "x"), (B, "y")]);
        world.kill_server(N1, false);
        let last = done(&mut world, &[(A, "z")]);
        world.settle();
        assert_eq!(world.missing(), []);
        (world.manager.persisted_by_all(), last)
    };
    assert_eq!(ends(Rules::PRINTED).0, Position::ZERO, "printed: it holds T_P* back for ever");
    let by_server = Rules { failed: Failed::GoOnceReplayed, ..Rules::PRINTED };
    let (persisted, last) = ends(by_server);
    assert_eq!(persisted, last);
    let (persisted, last) = ends(Rules::MENDED);
    assert_eq!(persisted, last);
}

/// As long as what a failed server had is not replayed, its threshold stands.
#[test]
fn pr49_a_server_that_failed_is_not_removed_before_it_was_replayed() {
    let lost = |rules| {
        let mut world = world(rules);
        done(&mut world, &[(A, "x")]);
        let replay = world.server_failed(N1, false);
        // The others report meanwhile, and the log is truncated.
        [N2, N3].into_iter().for_each(|node| world.server_heartbeat(node));
        drop(replay);
        world.replace_manager();
        let again = world.server_deposed(N1);
        world.replay(again);
        world.settle();
        world.missing().len()
    };
    let early = Rules { failed: Failed::GoAtOnce, idle: Idle::ManagerCounts, ..Rules::PRINTED };
    assert_eq!(lost(early), 1);
    assert_eq!(lost(Rules::MENDED), 0);
}

/// In the document what is persisted is in a replicated file system. Here it is one disk.
#[test]
fn pr49_what_one_disk_has_is_not_persisted() {
    let lost = |rules| {
        let mut world = world(Rules { idle: Idle::ManagerCounts, ..rules });
        done(&mut world, &[(A, "x")]);
        world.store.cut(N2, true);
        servers(&mut world);
        servers(&mut world);
        world.kill_server(N1, true);
        world.store.cut(N2, false);
        world.settle();
        world.missing().len()
    };
    assert_eq!(lost(Rules { failed: Failed::GoOnceReplayed, ..Rules::PRINTED }), 1);
    assert_eq!(lost(Rules::MENDED), 0);
}

/// Two servers fail, one behind the other, and what the first one had is half replayed into the second: this
/// one has reported T_F* meanwhile, since it persists what it inherits at once.
#[test]
fn who_inherits_a_region_keeps_its_threshold_until_all_of_it_was_replayed() {
    let lost = |rules| {
        let mut world = world(rules);
        let client = world.start_client();
        for key in ["one", "two", "three"] {
            world.transact(client, &[(A, key)]).expect("no conflict");
        }
        world.flush(client);
        world.client_heartbeat(client);
        world.server_heartbeat(N2);
        let mut first = world.server_failed(N1, false);
        assert!(world.replay_one(&mut first), "the first of three");
        world.kill_server(N2, false);
        world.replay(first);
        world.missing().iter().map(|missing| missing.key).collect::<Vec<_>>()
    };
    assert_eq!(lost(Rules::PRINTED), ["two", "three"]);
    assert_eq!(lost(Rules::MENDED), [""; 0]);
}

#[test]
fn f24_a_client_that_was_declared_dead_commits_nothing_and_reports_nothing() {
    let ends = |rules| {
        let mut world = world(rules);
        let hangs = world.start_client();
        world.transact(hangs, &[(A, "x")]).expect("no conflict");
        world.client_failed(hangs);
        // It wakes, commits, and dies before it has flushed.
        let late = world.commit(hangs, world.manager.flushed_by_all(), &[(B, "late")]);
        world.end_client(hangs);
        done(&mut world, &[(A, "y")]);
        world.settle();
        (late.err(), world.missing().len(), world.manager.flushed_by_all() == world.manager.last())
    };
    let removed = Rules { failed: Failed::GoOnceReplayed, ..Rules::PRINTED };
    assert_eq!(ends(removed), (None, 1, true), "T_F* has passed what nobody flushes");
    assert_eq!(ends(Rules::MENDED), (Some(Aborted::Fenced), 0, true));
    let unfenced = Rules { dead_clients_are_fenced: false, ..Rules::MENDED };
    assert_eq!(ends(unfenced), (None, 1, false), "nobody is left to flush it");
}

#[test]
fn f24_late_messages_of_a_dead_client_change_nothing() {
    let ends = |rules| {
        let mut world = world(rules);
        let hangs = world.start_client();
        let first = world.transact(hangs, &[(A, "x")]).expect("no conflict");
        world.client_failed(hangs);
        let last = done(&mut world, &[(A, "x")]);
        // Its flush and its heartbeat were on their way.
        world.flush(hangs);
        world.client_heartbeat(hangs);
        world.end_client(hangs);
        world.settle();
        assert!(first < last);
        assert_eq!(world.missing(), [], "a version is a timestamp: it hides no later one");
        (world.manager.flushed_by_all(), last)
    };
    let removed = Rules { failed: Failed::GoOnceReplayed, ..Rules::PRINTED };
    let (flushed, last) = ends(removed);
    assert!(flushed < last, "printed: it is registered again, and holds T_F* back");
    let (flushed, last) = ends(Rules::MENDED);
    assert_eq!(flushed, last);
}

#[test]
fn a_client_that_unregisters_leaves_nothing_behind() {
    let lost = |rules| {
        let mut world = world(rules);
        let client = world.start_client();
        world.transact(client, &[(A, "x")]).expect("no conflict");
        // A region does not answer, so it goes without having flushed.
        world.stop_client(client);
        servers(&mut world);
        world.settle();
        world.missing().len()
    };
    assert_eq!(lost(Rules::PRINTED), 1);
    assert_eq!(lost(Rules::MENDED), 0);
}

/// A new manager knows no client: T_F* over nobody is the newest commit.
#[test]
fn pr52_a_new_manager_takes_what_it_keeps_for_unflushed() {
    let lost = |rules| {
        let mut world = world(rules);
        let client = world.start_client();
        world.transact(client, &[(A, "x")]).expect("no conflict");
        world.replace_manager();
        servers(&mut world);
        servers(&mut world);
        world.kill_client(client);
        world.settle();
        world.missing().len()
    };
    assert_eq!(lost(Rules::PRINTED), 1);
    assert_eq!(lost(Rules { managers_begin_with_the_log: false, ..Rules::MENDED }), 1);
    assert_eq!(lost(Rules::MENDED), 0);
}

#[test]
fn pr52_a_snapshot_below_what_is_kept_commits_nothing() {
    let late = |rules| {
        let mut world = world(Rules { idle: Idle::ManagerCounts, ..rules });
        let slow = world.start_client();
        let snapshot = world.begin(slow).expect("nothing is committed");
        done(&mut world, &[(A, "x")]);
        servers(&mut world);
        servers(&mut world);
        assert!(world.manager.log().is_empty(), "it is truncated");
        world.commit(slow, snapshot, &[(A, "x")]).err()
    };
    assert_eq!(late(Rules::PRINTED), None, "an update is lost");
    assert_eq!(late(Rules::MENDED), Some(Aborted::Conflict));
}

#[test]
fn pr53_a_flush_that_a_deposed_server_takes_does_not_count() {
    let lost = |rules| {
        let mut world = world(rules);
        let client = world.start_client();
        let old = world.store.tenure(A);
        let replay = world.server_deposed(N1);
        world.replay(replay);
        world.transact(client, &[(A, "x")]).expect("no conflict");
        world.flush_one(client, Some((N1, old)));
        world.client_heartbeat(client);
        world.settle();
        world.missing().len()
    };
    assert_eq!(lost(Rules::PRINTED), 1);
    assert_eq!(lost(Rules { flushes_name_tenures: false, ..Rules::MENDED }), 1);
    assert_eq!(lost(Rules::MENDED), 0);
}

/// A snapshot is T_F*, and a client that has just committed is beyond it.
#[test]
fn pr51_begin_waits_for_the_clients_own_commits() {
    let begun = |rules| {
        let mut world = world(rules);
        let client = world.start_client();
        let at = world.transact(client, &[(A, "x")]).expect("no conflict");
        let first = world.begin(client);
        let own = first.map(|snapshot| world.commit(client, snapshot, &[(A, "x")]).is_ok());
        world.flush(client);
        world.client_heartbeat(client);
        (own, world.begin(client).is_some_and(|snapshot| snapshot >= at))
    };
    assert_eq!(begun(Rules::PRINTED), (Some(false), true), "it conflicts with itself");
    assert_eq!(begun(Rules::MENDED), (None, true), "it waits, and goes on behind its flush");
}

/// The document's own remedy, which its first version lacked.
#[test]
fn a_flush_is_tried_again_without_limit() {
    let reached = |rules| {
        let mut world = world(rules);
        let client = world.start_client();
        let replay = world.server_deposed(N1);
        world.transact(client, &[(A, "x")]).expect("no conflict");
        let last = world.transact(client, &[(B, "y")]).expect("no conflict");
        (0..5).for_each(|_| world.flush(client));
        world.replay(replay);
        world.settle();
        (world.manager.flushed_by_all() == last, world.missing().len())
    };
    let limited = Rules { flushes_are_tried_again: false, ..Rules::PRINTED };
    // What was committed meanwhile was not in the log that was fetched, so nobody brings it.
    assert_eq!(reached(limited), (false, 1));
    assert_eq!(reached(Rules::PRINTED), (true, 0));
    assert_eq!(reached(Rules::MENDED), (true, 0));
}

/// Servers fail at once, and only their regions are replayed.
#[test]
fn several_servers_are_replayed_at_once_and_only_what_they_had() {
    let mut world = world(Rules::MENDED);
    let client = world.start_client();
    world.transact(client, &[(A, "x"), (B, "y")]).expect("no conflict");
    world.flush(client);
    let mut first = world.server_failed(N1, false);
    // B is there all the time.
    world.transact(client, &[(B, "z")]).expect("no conflict");
    world.flush(client);
    assert!(world.missing().iter().all(|missing| missing.region == A));
    let mut second = world.server_failed(N2, false);
    loop {
        let (one, other) = (world.replay_one(&mut first), world.replay_one(&mut second));
        if !one && !other {
            break;
        }
    }
    world.settle();
    assert_eq!(world.missing(), []);
    assert_eq!(world.manager.persisted_by_all(), world.manager.last());
}

/// While nobody replays, transactions go on, and the thresholds of regions that are open.
#[test]
fn without_a_recovery_manager_transactions_go_on_and_another_one_resumes() {
    let mut world = world(Rules::MENDED);
    let client = world.start_client();
    world.transact(client, &[(A, "x")]).expect("no conflict");
    let _lost_with_its_manager = world.server_failed(N1, false);
    for key in ["a", "b", "c"] {
        world.transact(client, &[(B, key)]).expect("no conflict");
    }
    world.flush(client);
    world.client_heartbeat(client);
    servers_but_n1(&mut world);
    assert_eq!(world.manager.persisted_by_all(), Position::ZERO, "A's threshold stands");
    world.replace_manager();
    let resumed = world.server_deposed(NodeId(9));
    world.replay(resumed);
    world.settle();
    assert_eq!(world.missing(), []);
    assert_eq!(world.manager.persisted_by_all(), world.manager.last());
}

fn servers_but_n1(world: &mut World) {
    [N2, N3].into_iter().for_each(|node| world.server_heartbeat(node));
}

/// Found by chance: whoever takes over must know who was declared dead.
#[test]
fn pr52_a_new_manager_knows_who_was_declared_dead() {
    let late = |rules| {
        let mut world = world(rules);
        let hangs = world.start_client();
        world.client_failed(hangs);
        world.replace_manager();
        world.commit(hangs, Position::ZERO, &[(A, "late")]).err()
    };
    assert_eq!(late(Rules { managers_begin_with_the_log: false, ..Rules::MENDED }), None);
    assert_eq!(late(Rules::MENDED), Some(Aborted::Fenced));
}

/// Found by chance: a region that is replayed takes nothing from clients, and what was fetched from the log
/// for it may lack a commit that is flushed for a dead client meanwhile.
#[test]
fn what_a_closed_region_does_not_take_is_owed() {
    let mut world = world(Rules::MENDED);
    let replay = world.server_failed(N1, false);
    let client = world.start_client();
    let at = world.commit(client, Position::ZERO, &[(A, "x"), (B, "y")]).expect("no conflict");
    world.kill_client(client);
    assert!(world.manager.flushed_by_all() < at, "it is not flushed yet");
    world.replay(replay);
    world.settle();
    assert_eq!((world.missing(), world.manager.flushed_by_all()), (Vec::new(), at));
}

/// Found by chance: what the next server has of a region says nothing of who comes after it.
#[test]
fn pr49_a_region_that_reopens_has_no_higher_threshold_for_it() {
    let mut world = world(Rules::MENDED);
    world.store.cut(N3, true);
    done(&mut world, &[(A, "x")]);
    servers(&mut world);
    let first = world.server_failed(N1, false);
    servers_but_n1(&mut world);
    world.replay(first);
    servers_but_n1(&mut world);
    world.kill_server(N2, false);
    assert_eq!(world.missing(), []);
}
