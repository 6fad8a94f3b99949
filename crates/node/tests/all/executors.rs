//! Nodes with several executors: they do what nodes of one do, and end, come back and fail over as those.

use crate::common::raw::{Raw, request};
use crate::common::{Cluster, LONG, config, create, of_node, put_all, row, wait_for};
use bytes::Bytes;
use client::Client;
use controller::Key;
use controller::rebuild::Rebuilt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::config::ClusterRecord;
use types::data::Value;
use types::{EngineKind, Executors, Generation, LogKind, NodeId, PartitionId, PartitionRecord};
use understudy_node::stop::Stop;
use understudy_node::{controller_process, rebuilt};
use wire::control::{Admin, AdminCommand, ClusterStatus, CreateTable, Role};
use wire::{Body, Op, Reply, Status, TurnAnswer, TurnHolder, TurnOp};

/// Partitions enough that each of three executors leads some on each of three nodes.
const PARTITIONS: u32 = 24;

fn table(engine: EngineKind, log: LogKind) -> CreateTable {
    CreateTable { partitions: PARTITIONS, ..create("t", "durable", engine, log) }
}

/// All copies of the table are in sync, and every node has told of all of them, whichever executor has them.
fn all_there(client: &mut Client) -> ClusterStatus {
    wait_for(client, "all copies, and all that nodes tell of them", |status| {
        let told = |number: u32, id: PartitionId| {
            let replicas = of_node(status, number).map(|node| node.replicas.as_slice()).unwrap_or_default();
            let serves = |role: Role| matches!(role, Role::Primary | Role::Backup);
            replicas.iter().any(|replica| replica.partition == id && serves(replica.role))
        };
        let of_table: Vec<_> = status.partitions.iter().filter(|record| !record.id.is_system()).collect();
        let is_there = |record: &&PartitionRecord| {
            record.in_sync.len() == 3 && (1..=3).all(|number| told(number, record.id))
        };
        of_table.len() == PARTITIONS as usize && of_table.iter().all(is_there)
    })
}

#[test]
fn pr398_nodes_of_several_executors_do_what_nodes_of_one_do() {
    let mut cluster = Cluster::with(3, &[("node.executors", "3")]);
    let mut client = cluster.ready();
    let table = client.create_table(&table(EngineKind::Lsm, LogKind::Disk)).expect("creates");
    all_there(&mut client);
    put_all(&mut client, &table, 0, 500, "before");
    cluster.kill(2);
    put_all(&mut client, &table, 250, 750, "during");
    assert_eq!(client.count(&table).expect("counts"), 750);
    assert_eq!(client.get(&table, &[Value::Int(3)]).expect("reads"), Some(row(3, "before")));
    assert_eq!(client.get(&table, &[Value::Int(300)]).expect("reads"), Some(row(300, "during")));
    // Another number of executors is nothing that a disk remembers, or that another node knows.
    cluster.settings = vec![("node.executors".into(), "2".into())];
    cluster.start_node(2);
    all_there(&mut client);
    put_all(&mut client, &table, 0, 100, "after");
    assert_eq!(client.count(&table).expect("counts"), 750);
    assert_eq!(client.get(&table, &[Value::Int(99)]).expect("reads"), Some(row(99, "after")));
}

#[test]
fn a_gentle_end_writes_what_all_executors_have_and_leaves_a_mark() {
    // Patient, so that nobody is suspected because other tests keep the machine busy.
    let settings = [("timing.suspect_ms", "3000"), ("node.executors", "4")];
    let mut cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let table = client.create_table(&table(EngineKind::Memory, LogKind::Disk)).expect("creates");
    all_there(&mut client);
    put_all(&mut client, &table, 0, 200, "x");
    cluster.stop(1);
    wait_for(&mut client, "primaries elsewhere", |status| {
        status.partitions.iter().all(|record| record.primary.node != NodeId(1))
    });
    cluster.start_node(1);
    all_there(&mut client);
    assert!(client.cluster_map().node(NodeId(1)).expect("known").clean_start);
    assert_eq!(client.count(&table).expect("counts"), 200);
}

#[test]
fn what_a_node_tells_first_is_of_all_executors() {
    let mut cluster = Cluster::with(1, &[("node.executors", "3")]);
    let mut client = cluster.ready();
    let wanted = CreateTable { factor: Some(1), ..table(EngineKind::Lsm, LogKind::Disk) };
    client.create_table(&wanted).expect("creates");
    let all = |replicas: usize| replicas == PARTITIONS as usize;
    wait_for(&mut client, "all replicas", |status| {
        of_node(status, 1).is_some_and(|node| all(node.replicas.len()))
    });
    cluster.kill(1);
    cluster.start_node(1);
    let deadline = Instant::now() + LONG;
    let mut told = 0;
    while told == 0 {
        told = cluster.node(1).shared_status().status().replicas.len();
        assert!(Instant::now() < deadline, "it tells nothing");
        std::thread::yield_now();
    }
    assert!(all(told), "{told} of them");
}

#[test]
fn tables_come_and_go_at_every_executor() {
    let cluster = Cluster::with(3, &[("timing.suspect_ms", "3000"), ("node.executors", "3")]);
    let mut client = cluster.ready();
    let dropped = client.create_table(&table(EngineKind::Lsm, LogKind::Disk)).expect("creates");
    all_there(&mut client);
    put_all(&mut client, &dropped, 0, 100, "x");
    let here = |number: u32| {
        std::fs::read_dir(cluster.node_dir(number).join("partitions")).expect("a directory").count()
    };
    assert_eq!((1..=3).map(here).sum::<usize>(), 3 * PARTITIONS as usize);
    client.admin(AdminCommand::DropTable("t".into())).expect("drops");
    wait_for(&mut client, "the end of the replicas", |status| {
        let empty = status.nodes.iter().all(|(node, _)| node.replicas.is_empty());
        empty && (1..=3).all(|number| here(number) == 0)
    });
    // A policy that wants disks is refused for logs in memory.
    let in_memory = create("t", "semi", EngineKind::Memory, LogKind::Memory);
    let again = client.create_table(&CreateTable { partitions: PARTITIONS, ..in_memory }).expect("creates");
    put_all(&mut client, &again, 0, 50, "y");
    assert_eq!(client.count(&again).expect("counts"), 50);
}

#[test]
fn who_knows_of_no_executors_is_answered_on_one_connection_by_all_of_them() {
    let cluster = Cluster::with(1, &[("node.executors", "4")]);
    let mut client = cluster.ready();
    let table = client
        .create_table(&CreateTable { factor: Some(1), ..table(EngineKind::Lsm, LogKind::Disk) })
        .expect("creates");
    put_all(&mut client, &table, 0, 500, "x");
    let count = || Op::Count { from: Default::default(), to: Default::default(), at: Default::default() };
    let asked: Vec<_> = (1..)
        .zip(table.partitions())
        .map(|(id, partition)| request(&table, partition, id, count()))
        .collect();
    assert_eq!(asked.len(), PARTITIONS as usize);
    let mut raw = Raw::connect(&cluster);
    raw.send(&asked);
    let (mut rows, mut answered) = (0, Vec::new());
    for _ in &asked {
        let reply = raw.reply();
        assert_eq!(reply.status, Status::Ok, "{reply:?}");
        let Body::Number(number) = reply.body else { panic!("{reply:?}") };
        rows += number;
        answered.push(reply.id);
    }
    answered.sort_unstable();
    assert_eq!((rows, answered), (500, (1..=u64::from(PARTITIONS)).collect()));
}

#[test]
fn pr374_who_hangs_up_has_turns_at_no_executor_any_more() {
    let cluster = Cluster::with(1, &[("node.executors", "4")]);
    let mut client = cluster.ready();
    let table = client
        .create_table(&CreateTable { factor: Some(1), ..table(EngineKind::Memory, LogKind::Disk) })
        .expect("creates");
    put_all(&mut client, &table, 0, 100, "x");
    let executors = Executors::new(4).expect("so many can be");
    let of = |number: usize| {
        let mut own = table.partitions().filter(|id| executors.of(*id) == number);
        own.next().expect("each has some")
    };
    let ask = |transaction: u64| {
        let who = TurnHolder { gateway: 7, transaction };
        Op::Turn(TurnOp::Ask { who, key: Bytes::from_static(b"a"), wait_ms: 5_000 })
    };
    let is_granted = |reply: Reply| matches!(reply.body, Body::Turn(TurnAnswer::Granted { .. }));
    let (mut holder, mut next) = (Raw::connect(&cluster), Raw::connect(&cluster));
    // The connection goes to the second executor; what is for the third one is handed over.
    for (id, number) in [(1, 1), (2, 2)] {
        holder.send(&[request(&table, of(number), id, ask(id))]);
        assert!(is_granted(holder.reply()));
    }
    next.send(&[request(&table, of(2), 3, ask(3))]);
    drop(holder);
    assert!(is_granted(next.reply()), "a connection that has ended is waited for");
}

/// Has an executor of a node do nothing for so long, and waits until another one has noticed.
fn hang(cluster: &Cluster, node: u32, executor: usize, time: Duration) {
    let shared = cluster.node(node).shared_status();
    let noticed = || shared.metrics.executor_hangs.load(Ordering::Relaxed);
    let before = noticed();
    shared.faults.as_ref().expect("faults are allowed").hang(executor, time);
    let deadline = Instant::now() + LONG;
    while noticed() == before {
        assert!(Instant::now() < deadline, "nobody notices that executor {executor} hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pr423_whichever_executor_hangs_its_node_speaks_to_controllers_and_lets_clients_in() {
    let cluster = Cluster::with(1, &[("node.executors", "2"), ("node.harm", "true")]);
    let mut client = cluster.ready();
    let wanted = CreateTable { factor: Some(1), ..table(EngineKind::Memory, LogKind::Disk) };
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 50, "x");
    let executors = Executors::new(2).expect("so many can be");
    let of = |number: usize| {
        let mut own = table.partitions().filter(|id| executors.of(*id) == number);
        own.next().expect("each has some")
    };
    let count = || Op::Count { from: Default::default(), to: Default::default(), at: Default::default() };
    for number in 0..2 {
        hang(&cluster, 1, number, Duration::from_millis(3_000));
        let mut raw = Raw::connect(&cluster);
        raw.send(&[request(&table, of(1 - number), 1, count())]);
        assert_eq!(raw.reply().status, Status::Ok, "the other one goes on");
        wait_for(&mut client, "what the node tells meanwhile", |status| status.nodes[0].1 < 250);
        raw.send(&[request(&table, of(number), 2, count())]);
        assert!(matches!(raw.reply().status, Status::NotYet(_)), "nobody waits for it in vain");
        for id in 3.. {
            raw.send(&[request(&table, of(number), id, count())]);
            match raw.reply().status {
                Status::Ok => break,
                Status::NotYet(_) => std::thread::sleep(Duration::from_millis(20)),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn pr421_what_an_executor_that_hangs_leads_fails_over_and_the_rest_stays() {
    // Patient, so that nobody else is suspected because other tests keep the machine busy.
    let settings = [("timing.suspect_ms", "1000"), ("node.executors", "2"), ("node.harm", "true")];
    let cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let table = client.create_table(&table(EngineKind::Memory, LogKind::Disk)).expect("creates");
    let before = all_there(&mut client);
    put_all(&mut client, &table, 0, 200, "before");
    let executors = Executors::new(2).expect("so many can be");
    let leads = |status: &ClusterStatus, number: usize| {
        let led = status.partitions.iter().filter(|record| record.primary.node == NodeId(1));
        let of_table = led.map(|record| record.id).filter(|id| !id.is_system());
        of_table.filter(|id| executors.of(*id) == number).collect::<Vec<_>>()
    };
    assert!((0..2).all(|number| !leads(&before, number).is_empty()));
    hang(&cluster, 1, 1, Duration::from_secs(8));
    let after = wait_for(&mut client, "other primaries", |status| leads(status, 1).is_empty());
    assert_eq!(leads(&after, 0), leads(&before, 0), "the other one goes on");
    let told = of_node(&after, 1).expect("it is heard");
    assert_eq!([0, 1].map(|number| told.executors[number].hangs_us > 0), [false, true]);
    assert_eq!(told.executors.iter().map(|executor| executor.partitions).sum::<u32>(), PARTITIONS);
    put_all(&mut client, &table, 0, 200, "during");
    all_there(&mut client);
    assert_eq!(client.count(&table).expect("counts"), 200);
    assert_eq!(client.get(&table, &[Value::Int(7)]).expect("reads"), Some(row(7, "during")));
}

#[test]
fn pr424_a_node_ends_although_an_executor_hangs_and_leaves_no_mark() {
    let mut cluster = Cluster::with(1, &[("node.executors", "2"), ("node.harm", "true")]);
    let mut client = cluster.ready();
    let wanted = CreateTable { factor: Some(1), ..table(EngineKind::Lsm, LogKind::Disk) };
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 100, "x");
    hang(&cluster, 1, 0, Duration::from_secs(3));
    let begins = Instant::now();
    cluster.node(1).stopper().ask(Stop::Gently);
    let failure = cluster.ends(1).expect_err("not all of it has ended well");
    assert_eq!(failure.status, 1, "{failure}");
    assert!(failure.sentence.contains("executors [0] do not end"), "{failure}");
    assert!(begins.elapsed() < Duration::from_secs(20));
    cluster.start_node(1);
    wait_for(&mut client, "the node", |status| {
        of_node(status, 1).is_some_and(|node| node.member.incarnation.0 == 2)
    });
    assert!(!client.cluster_map().node(NodeId(1)).expect("known").clean_start);
    assert_eq!(client.count(&table).expect("counts"), 100);
}

#[test]
fn a_data_directory_is_the_same_whatever_the_number_of_executors() {
    let mut cluster = Cluster::with(1, &[]);
    let mut client = cluster.ready();
    let wanted = CreateTable { factor: Some(1), ..table(EngineKind::Lsm, LogKind::Disk) };
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 100, "first");
    for (start, (executors, gently)) in (2..).zip([("4", true), ("2", false), ("1", true), ("3", false)]) {
        match gently {
            true => cluster.stop(1),
            false => cluster.kill(1),
        }
        cluster.settings = vec![("node.executors".into(), executors.into())];
        cluster.start_node(1);
        wait_for(&mut client, "the node", |status| {
            of_node(status, 1).is_some_and(|node| node.member.incarnation.0 == start)
        });
        assert_eq!(client.count(&table).expect("counts"), 100, "with {executors} executors");
        assert_eq!(client.cluster_map().node(NodeId(1)).expect("known").clean_start, gently);
        put_all(&mut client, &table, 0, 100, executors);
        assert_eq!(client.get(&table, &[Value::Int(5)]).expect("reads"), Some(row(5, executors)));
    }
}

#[test]
fn pr107_a_map_that_was_made_without_this_node_costs_it_nothing_however_late_an_executor_gets_to_it() {
    let mut cluster = Cluster::with(1, &[("node.executors", "2"), ("node.harm", "true")]);
    let mut client = cluster.ready();
    let wanted = CreateTable { factor: Some(1), ..table(EngineKind::Lsm, LogKind::Disk) };
    client.create_table(&wanted).expect("creates");
    let known = client.cluster_map().cluster().expect("known").clone();
    // Records of the same cluster in which there are no tables, as nobody asked this node.
    let address = cluster.controller_address();
    let place = cluster.dir.path().join("other");
    let place = place.to_str().expect("a name");
    let other = config(&[("controller.listen", &address), ("controller.data_dir", place)]);
    let record = ClusterRecord { generation: Generation(5), ..known.clone() };
    let entries = vec![(Key::Cluster, serde_json::to_vec(&record).expect("a record"))];
    let made = Rebuilt { entries, revision: 1_000, missing: Vec::new(), partitions: Vec::new() };
    rebuilt::write(&other, known.id, &made).expect("writes");
    drop(cluster.controller.take());
    hang(&cluster, 1, 1, Duration::from_secs(5));
    let other = controller_process::start(other).expect("starts");
    let deadline = Instant::now() + LONG;
    let identity = cluster.node_dir(1).join("node.id");
    while !std::fs::read_to_string(&identity).expect("is there").contains("unasked") {
        assert!(Instant::now() < deadline, "it hears nothing of them");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Time for the map to come behind the welcome.
    std::thread::sleep(Duration::from_millis(500));
    drop(other);
    let mut operator = Raw::operator(&cluster);
    for id in 1.. {
        let command = AdminCommand::Records(Some(Generation(6)));
        operator.send(&[Admin { id, command }.into()]);
        // It is answered once all executors have said what they know.
        match operator.answer().result {
            Ok(_) => break,
            Err((_, why)) => assert!(Instant::now() < deadline, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = std::fs::read_dir(cluster.node_dir(1).join("partitions")).expect("a directory").count();
    assert_eq!(left, PARTITIONS as usize, "what it has may be all that is left of it");
}
