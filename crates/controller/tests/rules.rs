//! The rules of section 2 of the protocol, one test each, named after the finding.

mod common;

use common::lines::table;
use common::{Fate, OPERATOR, World};
use types::config::{Cause, ClusterRecord, FailoverRecord, NodeRecord, PartitionRecord, PreviousTerm};
use types::{Epoch, Incarnation, LogKind, Lsn, Member, NodeId, PartitionId, Policy, Position, StoreId, Term};
use understudy_controller::{ConnId, Input, Settings};
use wire::Message;
use wire::control::{AdminCommand, ClusterMap, ClusterStatus, Propose};

fn durable() -> World {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world
}

fn several(controllers: usize) -> World {
    let mut world = World::with(controllers, Settings::default());
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 1));
    world
}

fn failovers(world: &World) -> Vec<FailoverRecord> {
    let entries = world.table.snapshot("failover/").entries;
    entries.iter().map(|entry| serde_json::from_slice(&entry.value).unwrap()).collect()
}

fn accepted(world: &World) -> Vec<bool> {
    let answer = |(_, _, message): &(usize, ConnId, Message)| match message {
        Message::Proposed(proposed) => Some(proposed.accepted),
        _ => None,
    };
    world.sent.iter().filter_map(answer).collect()
}

#[test]
fn pr07_one_backup_is_not_believed_while_the_primary_is_heard() {
    let mut world = durable();
    world.suspect(2, 1, 100);
    world.pass(2000);
    assert_eq!(world.partition(64).epoch, Epoch(1));
    // The other backup is gone: all that the controller hears miss the primary.
    world.kill(3);
    world.pass(200);
    world.suspect(2, 1, 100);
    assert_eq!(world.partition(64).primary.node, NodeId(2));
}

#[test]
fn pr07_a_complaint_that_is_not_repeated_or_is_taken_back_is_forgotten() {
    let mut world = durable();
    world.suspect(2, 1, 100);
    world.pass(100);
    // n2's status says since then that it hears n1 again.
    world.suspect(3, 1, 100);
    assert_eq!(world.partition(64).epoch, Epoch(1));
    world.pass(100);
    world.nodes.get_mut(&NodeId(2)).unwrap().deaf_to.insert(NodeId(1));
    world.nodes.get_mut(&NodeId(3)).unwrap().deaf_to.insert(NodeId(1));
    world.suspect(2, 1, 100);
    world.pass(1200);
    world.suspect(3, 1, 100);
    assert_eq!(world.partition(64).epoch, Epoch(1), "n2's complaint is over a second old");
    world.suspect(2, 1, 100);
    assert_eq!(world.partition(64).epoch, Epoch(2));
}

#[test]
fn pr10_two_controllers_race_and_one_compare_and_set_wins() {
    let mut world = several(2);
    world.fates = vec![Fate::Held, Fate::Held];
    world.suspect(2, 1, 100);
    world.suspect(3, 1, 101);
    world.release();
    assert_eq!(world.partition(64).epoch, Epoch(2));
    assert_eq!(failovers(&world).len(), 1);
    assert_eq!(world.record::<ClusterRecord>("cluster").unwrap().next_failover, 2);
    world.pass(500);
    assert_eq!(world.partition(64).epoch, Epoch(2), "the loser does not seal again");
}

#[test]
fn pr10_a_controller_without_any_memory_seals() {
    let mut world = durable();
    world.kill(1);
    world.restart_controller(0, Settings::default());
    world.pass(200);
    world.suspect(3, 1, 100);
    assert_eq!(world.partition(64).primary.node, NodeId(3));
}

#[test]
fn pr10_a_controller_that_does_not_plan_seals_too() {
    let mut world = several(2);
    world.input(0, Input::Lead(false));
    world.cut_off.insert(0);
    world.suspect_at(1, 2, 1, 100);
    world.suspect_at(1, 3, 1, 100);
    assert_eq!(world.partition(64).epoch, Epoch(2));
}

#[test]
fn pr16_a_proposal_is_accepted_once_however_often_it_is_asked() {
    let mut world = several(2);
    world.fates = vec![Fate::AnswerLost];
    let evict = |record: &mut PartitionRecord| {
        record.in_sync.pop();
        record.cause = Cause::EvictedSilent;
    };
    let proposed = world.propose(0, 64, evict);
    assert!(accepted(&world).is_empty(), "nobody knows yet");
    world.propose_record(1, NodeId(1), Epoch(1), &proposed);
    world.propose_record(0, NodeId(1), Epoch(1), &proposed);
    world.pass(100);
    assert!(accepted(&world).iter().all(|accepted| *accepted) && accepted(&world).len() >= 2);
    assert_eq!(world.partition(64), proposed);
}

#[test]
fn pr16_a_refused_primary_learns_the_record_in_force() {
    let mut world = several(2);
    world.cut_off.insert(1);
    let shrunk = world.propose(0, 64, |record| {
        record.in_sync.pop();
        record.cause = Cause::EvictedSilent;
    });
    // The other controller has not heard of it, and asks the metastore instead of believing its cluster map.
    let mut other = shrunk.clone();
    other.proposal = types::ProposalId(77);
    world.propose_record(1, NodeId(1), Epoch(1), &other);
    let answers = world.sent.iter().rev().filter_map(|(_, _, message)| match message {
        Message::Proposed(answer) => Some(answer),
        _ => None,
    });
    let answer = answers.into_iter().next().expect("answered");
    assert!(!answer.accepted);
    assert_eq!(answer.record.read::<PartitionRecord>().unwrap(), shrunk);
    // And a proposal upon an epoch that it has never seen.
    world.restart_controller(1, Settings::default());
    world.cut_off.insert(1);
    world.propose(0, 64, |record| record.cause = Cause::InSync);
    let mut next = world.partition(64);
    next.epoch = Epoch(4);
    next.proposal = types::ProposalId(78);
    world.propose_record(1, NodeId(1), Epoch(3), &next);
    assert_eq!(world.partition(64), next);
}

#[test]
fn r1_only_the_primary_changes_the_set_and_only_by_the_rules() {
    let mut world = durable();
    world.start(4, 1, 40);
    world.pass(100);
    let old = world.partition(64);
    let spare = world.nodes[&NodeId(4)].member;
    let mut refuse = |why: &str, by: u32, change: &dyn Fn(&mut PartitionRecord)| {
        let mut record = old.clone();
        record.epoch = Epoch(2);
        record.proposal = types::ProposalId(why.len() as u64);
        change(&mut record);
        world.propose_record(0, NodeId(by), Epoch(1), &record);
        assert_eq!(world.partition(64), old, "{why}");
    };
    let semi = Policy { version: 2, ..Policy::preset("semi", 3, LogKind::Disk).unwrap() };
    let ghost = Member { node: NodeId(4), store: StoreId(40), incarnation: Incarnation(9) };
    let second = old.in_sync[1];
    refuse("not the primary", 2, &|record| record.cause = Cause::InSync);
    refuse("an epoch is left out", 1, &|record| record.epoch = Epoch(3));
    refuse("counted without having caught up", 1, &|record| record.in_sync.push(spare));
    refuse("a life that nobody registered", 1, &|record| {
        record.catching_up.push(ghost);
        record.cause = Cause::CatchingUp;
    });
    refuse("twice on a node", 1, &|record| record.catching_up.push(second));
    refuse("the policy in one step", 1, &|record| {
        record.policy = semi.clone();
        record.cause = Cause::Policy;
    });
    refuse("a policy under another name", 1, &|record| record.next_policy = Some(semi.clone()));
    refuse("the term rewritten", 1, &|record| record.term = Term(2));
    refuse("a loss out of nowhere", 1, &|record| record.lossy = true);
    refuse("a seal by the primary", 1, &|record| record.cause = Cause::Suspected);
    refuse("another partition", 1, &|record| record.table = types::TableId(9));
    refuse("a hand-over without its term", 1, &|record| {
        record.in_sync.swap(0, 1);
        record.primary = second;
        record.term = Term(2);
        record.cause = Cause::Switchover;
    });
    refuse("a hand-over outside the set", 1, &|record| {
        record.before = Some(PreviousTerm {
            epoch: Epoch(1),
            term: old.term,
            primary: old.primary,
            handed_over: true,
            in_sync: old.in_sync.clone(),
        });
        record.in_sync[0] = spare;
        record.primary = spare;
        record.term = Term(2);
        record.cause = Cause::Switchover;
    });
    assert!(accepted(&world).iter().all(|accepted| !accepted));
}

#[test]
fn pr09_a_minority_is_evicted_at_once_and_a_majority_unless_it_complains() {
    let mut world = durable();
    world.suspect(3, 1, 100);
    let alone = |record: &mut PartitionRecord| {
        record.in_sync.truncate(1);
        record.cause = Cause::EvictedSilent;
    };
    // n3 misses the primary and hears n2: two against one.
    world.propose(0, 64, alone);
    assert_eq!(world.partition(64).epoch, Epoch(1));
    let minority = |record: &mut PartitionRecord| {
        record.in_sync.pop();
        record.cause = Cause::EvictedSilent;
    };
    world.propose(0, 64, minority);
    assert_eq!(world.partition(64).in_sync.len(), 2, "two of three may evict the third");
    let mut world = durable();
    world.propose(0, 64, alone);
    assert_eq!(world.partition(64).in_sync.len(), 1, "nobody objects");
}

#[test]
fn pr17_a_damaged_replica_and_a_new_disk_are_not_promoted() {
    let mut world = durable();
    world.nodes.get_mut(&NodeId(3)).unwrap().damaged = vec![PartitionId(64)];
    world.connect(NodeId(3));
    assert_eq!(world.record::<NodeRecord>("node/3").unwrap().damaged, [PartitionId(64)]);
    world.kill(2);
    world.start(2, 1, 99);
    world.kill(1);
    world.pass(200);
    world.suspect(3, 1, 500);
    world.suspect(2, 1, 500);
    world.pass(1000);
    assert_eq!(world.partition(64).epoch, Epoch(1), "nobody is left to lead");
}

#[test]
fn pr17_a_clean_start_counts_under_semi() {
    let mut world = World::new();
    world.with_table(3, table("t", "semi", LogKind::Disk, None, 1));
    world.kill(2);
    world.nodes.get_mut(&NodeId(2)).unwrap().clean = true;
    world.start(2, 2, 20);
    world.kill(3);
    world.start(3, 2, 30);
    world.kill(1);
    world.pass(200);
    world.suspect(3, 1, 900);
    world.suspect(2, 1, 100);
    let record = world.partition(64);
    assert_eq!((record.primary.node, record.primary.incarnation), (NodeId(2), Incarnation(2)));
    assert_eq!(record.in_sync[1].incarnation, Incarnation(1), "n3 forgot: it stays as it was recorded");
    assert!(!record.lossy);
}

#[test]
fn f05_a_replica_outside_the_set_is_never_promoted_however_far_it_is() {
    let mut world = durable();
    world.start(4, 1, 40);
    world.nodes.get_mut(&NodeId(4)).unwrap().ends.insert(PartitionId(64), Position::new(Term(9), Lsn(999)));
    world.pass(100);
    let spare = world.nodes[&NodeId(4)].member;
    world.propose(0, 64, |record| {
        record.catching_up.push(spare);
        record.cause = Cause::CatchingUp;
    });
    world.kill(1);
    world.pass(200);
    world.suspect(4, 1, 999);
    world.pass(200);
    assert_eq!(world.partition(64).epoch, Epoch(2), "who does not count does not seal either");
    world.suspect(2, 1, 100);
    assert_eq!(world.partition(64).primary.node, NodeId(2));
    assert_eq!(world.partition(64).catching_up, [spare]);
}

#[test]
fn f07_a_second_failure_during_a_failover_is_sealed_by_the_same_steps() {
    let mut world = durable();
    world.nodes.get_mut(&NodeId(2)).unwrap().promoting = true;
    world.kill(1);
    world.pass(200);
    world.suspect(2, 1, 101);
    assert_eq!(world.partition(64).primary.node, NodeId(2));
    assert_eq!(world.partition(64).in_sync.len(), 2, "n3 stays until the new primary has brought it level");
    world.kill(2);
    world.pass(200);
    world.suspect(3, 2, 100);
    let record = world.partition(64);
    assert_eq!((record.primary.node, record.epoch, record.term), (NodeId(3), Epoch(3), Term(3)));
    assert_eq!(failovers(&world).len(), 2);
}

#[test]
fn pr85_a_primary_that_rests_alone_is_not_given_up_while_anybody_hears_it() {
    let mut world = World::new();
    world.with_table(3, table("t", "async", LogKind::Disk, None, 1));
    world.nodes.get_mut(&NodeId(2)).unwrap().deaf_to.insert(NodeId(1));
    for _ in 0..100 {
        world.suspect(2, 1, 100);
        world.pass(100);
    }
    assert_eq!(world.partition(64).epoch, Epoch(1));
    // It may evict those who miss it, also as a minority.
    world.propose(0, 64, |record| {
        record.in_sync.truncate(1);
        record.cause = Cause::EvictedSilent;
    });
    assert_eq!(world.partition(64).in_sync.len(), 1);
}

#[test]
fn pr85_a_damaged_or_lost_disk_is_not_waited_for() {
    let mut world = World::new();
    world.with_table(3, table("t", "local", LogKind::Disk, None, 1));
    world.kill(1);
    world.start(1, 1, 99);
    world.pass(100);
    let record = world.partition(64);
    assert_eq!(record.primary.node, NodeId(2));
    assert!(record.lossy, "what only the lost disk had is lost");
}

#[test]
fn pr85_a_primary_that_says_its_replica_is_damaged_is_not_waited_for() {
    let damage = |said: bool| {
        let mut world = World::new();
        world.with_table(3, table("t", "local", LogKind::Disk, None, 1));
        if said {
            world.nodes.get_mut(&NodeId(1)).unwrap().damaged = vec![PartitionId(64)];
            world.connect(NodeId(1));
        }
        for _ in 0..8 {
            (2..=3).for_each(|node| world.suspect(node, 1, 500));
            world.pass(900);
        }
        world.partition(64)
    };
    assert_eq!(damage(false).primary.node, NodeId(1), "its node is heard all the time");
    assert!(damage(true).primary.node == NodeId(2) && damage(true).lossy, "it has nothing to give");
}

#[test]
fn pr66_a_node_with_many_partitions_is_sealed_in_few_transactions() {
    let mut world = World::new();
    world.with_table(3, table("t", "durable", LogKind::Disk, None, 360));
    let led = world.partitions().iter().filter(|record| record.primary.node == NodeId(1)).count();
    assert_eq!(led, 120);
    world.kill(1);
    world.pass(200);
    let before = world.txns;
    world.suspect(2, 1, 100);
    assert_eq!(world.txns - before, 3);
    assert!(world.partitions().iter().all(|record| record.primary.node != NodeId(1)));
    let records = failovers(&world);
    assert_eq!(records.len(), 120);
    let to = |node| records.iter().filter(|failover| failover.new_primary.node == NodeId(node)).count();
    assert_eq!((to(2), to(3)), (120, 0), "n2 has the longer logs");
}

#[test]
fn pr67_what_fails_again_and_again_waits_longer_each_time() {
    let mut world = durable();
    let member = world.nodes[&NodeId(3)].member;
    let (mut waits, mut told) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        world.propose(0, 64, |record| {
            record.in_sync.pop();
            record.cause = Cause::EvictedSlow;
        });
        world.take_lines();
        let id = world.admin(AdminCommand::Status);
        let status = world.answered(id).cloned().expect("answers").expect("is not refused");
        let status: ClusterStatus = serde_json::from_str(&status).expect("is JSON");
        told.extend(status.back_offs.iter().map(|held| (held.node.0, held.times, held.ms.div_ceil(1000))));
        let start = world.now.mono;
        while !world.take_lines().iter().any(|line| line.contains("admit n3")) {
            world.pass(20);
        }
        waits.push((world.now.mono.since(start).as_millis() + 400) / 1000);
        world.propose(0, 64, |record| {
            record.catching_up.push(member);
            record.cause = Cause::CatchingUp;
        });
        world.propose(0, 64, |record| {
            record.catching_up.clear();
            record.in_sync.push(member);
            record.cause = Cause::InSync;
        });
    }
    assert_eq!(waits, [1, 2, 4, 8], "in seconds, with up to a tenth until the planner looks");
    assert_eq!(told, [(3, 1, 1), (3, 2, 2), (3, 3, 4), (3, 4, 8)], "and the status says so");
}

#[test]
fn a_table_is_visible_when_it_is_whole_and_an_interrupted_one_is_swept_away() {
    let settings = Settings { abandoned: types::Micros::from_millis(3_000), ..Settings::default() };
    let mut world = World::with(1, settings);
    for node in 1..=3 {
        world.start(node, 1, u64::from(node) * 10);
    }
    world.pass(100);
    world.input(0, Input::Received { conn: OPERATOR, message: admin(AdminCommand::Watch) });
    world.sent.clear();
    // The reservation and the partitions are written; the last step is held back.
    world.fates = vec![Fate::Answered, Fate::Answered, Fate::Answered, Fate::Held];
    let request = table("t", "durable", LogKind::Disk, None, 150);
    world.admin(AdminCommand::CreateTable(wire::RecordText::new(&request)));
    assert_eq!(world.partitions().len(), 150);
    assert!(cluster_maps(&world).iter().all(|map| map.partitions.is_empty() && map.tables.is_empty()));
    // The controller dies; its last step, still on the way, must not make half a table appear.
    world.pass(2_800);
    assert_eq!(world.partitions().len(), 150, "another controller may still be at it");
    world.pass(600);
    assert_eq!(world.partitions().len(), 0);
    world.release();
    assert!(world.record::<types::TableRecord>("table/1").is_none());
    world.admin(AdminCommand::CreateTable(wire::RecordText::new(&request)));
    let last = cluster_maps(&world).into_iter().rfind(|cluster_map| !cluster_map.tables.is_empty()).unwrap();
    assert_eq!((last.tables.len(), last.partitions.len()), (1, 150));
    world.admin(AdminCommand::DropTable("t".into()));
    assert!(cluster_maps(&world).iter().any(|cluster_map| cluster_map.dropped == [2]));
    world.pass(500);
    assert_eq!(world.partitions().len(), 0);
}

fn admin(command: AdminCommand) -> Message {
    wire::control::Admin { id: 0, command }.into()
}

fn cluster_maps(world: &World) -> Vec<ClusterMap> {
    let here = world.sent.iter().filter(|(_, conn, _)| *conn == OPERATOR);
    let cluster_map = here.filter_map(|(_, _, message)| match message {
        Message::ClusterMap(cluster_map) => Some(cluster_map.clone()),
        _ => None,
    });
    cluster_map.collect()
}

#[test]
fn f16_nodes_are_told_only_what_the_metastore_has() {
    let mut world = durable();
    world.input(0, Input::Received { conn: OPERATOR, message: admin(AdminCommand::Watch) });
    assert_eq!(cluster_maps(&world)[0].partitions.len(), 1);
    assert_eq!(cluster_maps(&world)[0].nodes.len(), 3);
    world.fates = vec![Fate::Held];
    world.kill(1);
    world.suspect(2, 1, 100);
    world.suspect(3, 1, 100);
    assert_eq!(cluster_maps(&world).len(), 1);
    world.release();
    let delta = &cluster_maps(&world)[1];
    assert_eq!((delta.partitions.len(), delta.nodes.len(), delta.tables.len()), (1, 0, 0));
    let record: PartitionRecord = delta.partitions[0].read().unwrap();
    assert_eq!(record.epoch, Epoch(2));
}

#[test]
fn an_incarnation_that_has_ended_and_an_impostor_are_sent_away() {
    let mut world = durable();
    world.kill(3);
    world.start(3, 2, 30);
    world.take_lines();
    world.start(3, 1, 30);
    assert_eq!(world.take_lines(), ["-> n3 closed"]);
    world.start(3, 2, 30);
    // The same name on another disk beside a living node.
    world.input(
        0,
        Input::Received {
            conn: ConnId(9),
            message: wire::control::Register {
                member: Member { node: NodeId(3), store: StoreId(77), incarnation: Incarnation(1) },
                clean_start: false,
                addresses: Default::default(),
                zone: String::new(),
                damaged: vec![],
                starts: Box::default(),
                executors: Default::default(),
            }
            .into(),
        },
    );
    assert_eq!(world.record::<NodeRecord>("node/3").unwrap().store, StoreId(30));
    // Nobody without a name changes anything.
    let record = world.partition(64);
    let propose = Propose { expected: Epoch(1), record: wire::RecordText::new(&record) };
    world.input(0, Input::Received { conn: ConnId(9), message: propose.into() });
    assert_eq!(world.partition(64), record);
}

#[test]
fn what_cannot_be_read_is_left_alone() {
    let mut world = durable();
    world.table.write(&[("partition/64".into(), b"{\"format\":99}".to_vec())], &[]);
    world.restart_controller(0, Settings::default());
    world.kill(1);
    world.start(1, 2, 10);
    world.pass(3000);
    assert_eq!(world.table.snapshot("partition/64").entries[0].value, b"{\"format\":99}");
}

#[test]
fn fields_of_a_newer_version_survive() {
    let mut world = durable();
    let mut text: serde_json::Value = world.record("partition/64").unwrap();
    text["colour"] = "blue".into();
    let mut node: serde_json::Value = world.record("node/2").unwrap();
    node["rack"] = 7.into();
    let puts =
        [("partition/64", &text), ("node/2", &node)].map(|(key, text)| (key.into(), text.to_string().into()));
    world.table.write(&puts, &[]);
    world.restart_controller(0, Settings::default());
    world.kill(1);
    world.pass(200);
    world.suspect(2, 1, 100);
    world.kill(2);
    world.start(2, 2, 20);
    let sealed: serde_json::Value = world.record("partition/64").unwrap();
    assert_eq!((&sealed["colour"], sealed["epoch"].as_u64() >= Some(2)), (&"blue".into(), true));
    assert_eq!(world.record::<serde_json::Value>("node/2").unwrap()["rack"], 7);
}

#[test]
fn pr08_a_forced_promotion_says_what_it_means() {
    let mut world = durable();
    let id = world.admin(AdminCommand::Force { partition: PartitionId(64), node: None });
    assert_eq!(
        world.answered(id).unwrap().as_ref().unwrap_err().0,
        5,
        "a living primary is not deposed by force"
    );
    world.start(4, 1, 40);
    let spare = world.nodes[&NodeId(4)].member;
    world.propose(0, 64, |record| {
        record.catching_up.push(spare);
        record.cause = Cause::CatchingUp;
    });
    world.nodes.get_mut(&NodeId(4)).unwrap().ends.insert(PartitionId(64), Position::new(Term(1), Lsn(7)));
    for node in 1..=3 {
        world.kill(node);
    }
    world.pass(1000);
    let id = world.admin(AdminCommand::Force { partition: PartitionId(64), node: Some(NodeId(2)) });
    assert_eq!(world.answered(id).unwrap().as_ref().unwrap_err().0, 5, "n2 is dead");
    let id = world.admin(AdminCommand::Force { partition: PartitionId(64), node: None });
    let said = world.answered(id).unwrap().as_ref().unwrap();
    assert!(said.contains("will be set aside and counted"), "{said}");
    let record = world.partition(64);
    assert_eq!((record.primary, record.cause, record.lossy), (spare, Cause::Forced, true));
    assert_eq!(record.in_sync, [spare]);
}

#[test]
fn f16_what_others_wrote_between_two_transactions_is_not_missed() {
    let mut world = several(2);
    // Controller 1 hears of nothing for a while, except through its own transactions.
    world.cut_off.insert(1);
    world.suspect_at(0, 2, 1, 100);
    world.suspect_at(0, 3, 1, 100);
    let old = world.nodes[&NodeId(3)].clone();
    let propose = |controller: usize, world: &mut World| {
        let mut record = world.partition(64);
        record.epoch = Epoch(record.epoch.0 + 5);
        world.propose_record(controller, old.member.node, Epoch(record.epoch.0 - 1), &record);
    };
    world.start(4, 1, 40);
    propose(1, &mut world);
    world.cut_off.clear();
    world.tell_changes();
    assert_eq!(world.controllers[1].partition(PartitionId(64)), Some(&world.partition(64)));
    assert_eq!(world.controllers[0].revision(), world.controllers[1].revision());
}
