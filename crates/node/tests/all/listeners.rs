//! What comes in from outside: garbage, strangers, people with browsers, wrong directories.

use crate::common::{Cluster, create, put_all, row, wait_for};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use types::data::Value;
use types::{ClusterId, EngineKind, Incarnation, LogKind, Member, NodeId, PartitionId};
use understudy_node::stop::Stop;
use understudy_node::{controller_process, node};
use wire::control::ClusterStatus;
use wire::hello::{Hello, HelloRole, PROTOCOL, Welcome};
use wire::request::ReadSnapshot;
use wire::{Message, Op, ReadLevel, Request, RowOp, frame};

fn hello(role: HelloRole, cluster: Option<ClusterId>) -> Vec<u8> {
    let hello = Hello { role, protocol: PROTOCOL, cluster, member: None, secret: None, agent: "test".into() };
    let mut bytes = Vec::new();
    frame::encode(&Message::Hello(hello), &mut bytes).expect("fits");
    bytes
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(crate::common::LONG)).expect("a timeout");
    stream
}

/// Everything that is said until the other side hangs up.
fn hear(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    bytes
}

fn get(address: &str, request: &str) -> (u16, String) {
    let mut stream = connect(address);
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .expect("writes");
    let text = String::from_utf8(hear(&mut stream)).expect("text");
    let status = text.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a status");
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_string()).unwrap_or_default())
}

#[test]
fn garbage_closes_its_connection_and_no_other() {
    let cluster = Cluster::with(1, &[]);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Memory, LogKind::Disk);
    wanted.factor = Some(1);
    let table = client.create_table(&wanted).expect("creates");
    let ports = cluster.node(1).ports().listen.clone();
    let controller = cluster.controller_address();
    let mut after_hello = hello(HelloRole::Client, None);
    after_hello.extend_from_slice(&[0xff; 64]);
    let mut long = hello(HelloRole::Client, None);
    long.extend_from_slice(&[255, 255, 255, 127, 10, 0, 0, 0, 0, 0, 0, 0]);
    let mut not_first = Vec::new();
    let cluster_map = wire::control::Admin { id: 1, command: wire::control::AdminCommand::Status };
    frame::encode(&Message::Admin(cluster_map), &mut not_first).expect("fits");
    for address in [&ports["client"], &ports["peer"], &ports["heartbeat"], &controller] {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 100], &after_hello, &long, &not_first] {
            let mut stream = connect(address);
            stream.write_all(garbage).expect("writes");
            hear(&mut stream);
        }
    }
    assert!(
        cluster.node(1).shared_status().metrics.bad_connections.load(std::sync::atomic::Ordering::Relaxed)
            > 0
    );
    put_all(&mut client, &table, 0, 10, "x");
    assert_eq!(client.get(&table, &[Value::Int(1)]).expect("reads"), Some(row(1, "x")));
}

/// What a client that checks nothing sends to ask for this.
fn request(table: &client::Table, partition: PartitionId, read: ReadLevel, op: Op) -> Vec<u8> {
    let request = Request { id: 1, read, ..Request::new(table.record().id, 1, partition, op) };
    let mut bytes = Vec::new();
    frame::encode(&Message::Request(request), &mut bytes).expect("fits");
    bytes
}

/// A connection of a client that was let in.
fn let_in(address: &str) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(&hello(HelloRole::Client, None)).expect("writes");
    let mut heard = Vec::new();
    let welcome = loop {
        if let Some((message, _)) = frame::decode(&heard).expect("a frame") {
            break message;
        }
        let mut bytes = [0; 512];
        let read = stream.read(&mut bytes).expect("an answer");
        assert!(read > 0, "it hangs up");
        heard.extend_from_slice(&bytes[..read]);
    };
    assert!(matches!(welcome, Message::Welcome(Welcome::Accepted { .. })), "{welcome:?}");
    stream
}

#[test]
fn a_key_that_no_engine_takes_ends_one_connection_and_no_node() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let wanted = create("t", "durable", EngineKind::Lsm, LogKind::Disk);
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 50, "x");
    let (at, long, none) = (ReadSnapshot::Newest, Bytes::from(vec![b'k'; 70_000]), Bytes::new());
    let (from, to) = (long.clone(), long.clone());
    let ops = [
        Op::Get { key: long.clone(), at },
        Op::Scan { from: from.clone(), to: none.clone(), limit: 9, at },
        Op::Scan { from: none.clone(), to: to.clone(), limit: 9, at },
        Op::Count { from: from.clone(), to: none.clone(), at },
        Op::Count { from: none.clone(), to: to.clone(), at },
        Op::Find { index: 1, from, to: none.clone(), limit: 9, at },
        Op::Find { index: 1, from: none, to, limit: 9, at },
        Op::write(vec![RowOp::Delete { key: long }]),
    ];
    let any = ReadLevel::Any { max_lag_ms: u64::MAX, min_lsn: types::Lsn::ZERO };
    for node in 1..=3 {
        let address = cluster.node(node).ports().listen["client"].clone();
        for (op, read) in ops.iter().flat_map(|op| [(op, ReadLevel::Primary), (op, any)]) {
            for number in 0..wanted.partitions {
                let partition = PartitionId(table.record().first_partition.0 + number);
                let mut stream = let_in(&address);
                stream.write_all(&request(&table, partition, read, op.clone())).expect("writes");
                assert_eq!(hear(&mut stream), [0; 0], "the connection is closed without an answer");
            }
        }
    }
    let status = wait_for(&mut client, "every copy in sync", |status| crate::common::in_sync(status, 3));
    let incarnations = status.nodes.iter().map(|(node, _)| node.member.incarnation).collect::<Vec<_>>();
    assert_eq!(incarnations, [types::Incarnation(1); 3], "every node goes on in the life that it began");
    put_all(&mut client, &table, 50, 100, "y");
    assert_eq!(client.get(&table, &[Value::Int(1)]).expect("reads"), Some(row(1, "x")));
    assert_eq!(client.count(&table).expect("counts"), 100);
}

#[test]
fn strangers_are_refused_with_a_sentence() {
    let cluster = Cluster::with(1, &[]);
    let client = cluster.ready();
    let ours = client.cluster_map().cluster().expect("known").id;
    let stranger = ClusterId(ours.0 ^ 1);
    for (address, role) in [
        (cluster.node(1).ports().listen["client"].clone(), HelloRole::Client),
        (cluster.node(1).ports().listen["peer"].clone(), HelloRole::Peer),
        (cluster.controller_address(), HelloRole::Operator),
    ] {
        let mut stream = connect(&address);
        stream.write_all(&hello(role, Some(stranger))).expect("writes");
        let heard = hear(&mut stream);
        let (message, _) = frame::decode(&heard).expect("a frame").expect("whole");
        let Message::Welcome(Welcome::Refused(why)) = message else { panic!("{message:?}") };
        assert!(why.contains(&ours.to_string()), "{why}");
    }
}

#[test]
fn whoever_does_not_say_the_secret_is_told_so_and_turned_away() {
    const SECRET: &str = "open sesame";
    let cluster = Cluster::with(2, &[("cluster.secret", SECRET)]);
    let options = |secret: Option<&str>| client::Options {
        controllers: vec![cluster.controller_address()],
        secret: secret.map(str::to_string),
        timeout: crate::common::LONG,
        ..client::Options::default()
    };
    for wrong in [None, Some("open barley")] {
        let error = client::Client::connect(options(wrong)).map(|_| ()).expect_err("turned away");
        let sentence = error.to_string();
        assert!(sentence.contains("UNDERSTUDY_SECRET") && !sentence.contains(SECRET), "{sentence}");
    }
    // Nodes know each other by it, in logs and in heartbeats, or nothing would be acknowledged.
    let mut friend = client::Client::connect(options(Some(SECRET))).expect("let in");
    wait_for(&mut friend, "both nodes", |status| status.nodes.len() == 2);
    let mut wanted = create("t", "durable", EngineKind::Memory, LogKind::Disk);
    (wanted.factor, wanted.min_in_sync) = (Some(2), Some(2));
    let table = friend.create_table(&wanted).expect("creates");
    put_all(&mut friend, &table, 0, 10, "x");
    assert_eq!(friend.get(&table, &[Value::Int(1)]).expect("reads"), Some(row(1, "x")));
    let ports = &cluster.node(1).ports().listen;
    for (address, role) in [
        (&ports["client"], HelloRole::Client),
        (&ports["peer"], HelloRole::Peer),
        (&cluster.controller_address(), HelloRole::Operator),
        (&cluster.controller_address(), HelloRole::Node),
    ] {
        let mut stream = connect(address);
        stream.write_all(&hello(role, None)).expect("writes");
        let heard = hear(&mut stream);
        let (message, _) = frame::decode(&heard).expect("a frame").expect("whole");
        let Message::Welcome(Welcome::Refused(why)) = message else { panic!("{message:?}") };
        assert!(why.contains("UNDERSTUDY_SECRET"), "{why}");
    }
    let mut heartbeat = connect(&ports["heartbeat"]);
    heartbeat.write_all(&hello(HelloRole::Heartbeat, None)).expect("writes");
    assert!(hear(&mut heartbeat).is_empty(), "heartbeats are closed without a word");
    let mut stranger = cluster.node_config(2);
    stranger.node.data_dir = cluster.dir.path().join("stranger");
    stranger.secret = wire::hello::Secret::default();
    understudy_node::init_node(&stranger.node.data_dir, NodeId(3)).expect("initialises");
    let failure = node::start(stranger).expect("it starts, and asks the controllers").wait().unwrap_err();
    assert!(failure.status == 5 && failure.sentence.contains("UNDERSTUDY_SECRET"), "{failure}");
}

#[test]
fn clients_do_not_take_the_places_of_nodes() {
    let cluster = Cluster::with(1, &[("node.max_connections", "8")]);
    drop(cluster.ready());
    let ports = cluster.node(1).ports().listen.clone();
    let mut clients: Vec<TcpStream> = (0..12).map(|_| connect(&ports["client"])).collect();
    for client in &mut clients {
        let _ = client.write_all(&hello(HelloRole::Client, None));
    }
    let mut last = clients.pop().expect("twelve");
    assert!(hear(&mut last).is_empty(), "there are too many");
    let mut peer = connect(&ports["peer"]);
    peer.write_all(&hello(HelloRole::Peer, Some(ClusterId(1)))).expect("writes");
    assert!(!hear(&mut peer).is_empty(), "nodes are let in, and told if they are strangers");
}

#[test]
fn another_clusters_directory_stops_the_node_with_one_sentence() {
    let one = Cluster::with(1, &[]);
    drop(one.ready());
    let other = Cluster::with(0, &[]);
    let mut one = one;
    one.stop(1);
    let mut config = one.node_config(1);
    config.node.controllers = vec![other.controller_address()];
    let running = node::start(config).expect("it starts, and asks the controllers");
    let failure = running.wait().unwrap_err();
    assert!(failure.status == 5 && failure.sentence.contains("cluster"), "{failure}");
}

#[test]
fn pr145_a_node_on_an_older_copy_of_its_directory_is_refused() {
    let mut cluster = Cluster::with(2, &[]);
    let mut client = cluster.ready();
    cluster.stop(2);
    let (dir, copy, newest) =
        (cluster.node_dir(2), cluster.dir.path().join("copy"), cluster.dir.path().join("newest"));
    let copied = std::process::Command::new("cp").arg("-r").args([&dir, &copy]).status().expect("cp runs");
    assert!(copied.success());
    let runs = |incarnation| {
        move |status: &ClusterStatus| {
            crate::common::of_node(status, 2)
                .is_some_and(|node| node.member.incarnation == Incarnation(incarnation))
        }
    };
    cluster.start_node(2);
    wait_for(&mut client, "node 2 on its directory", runs(2));
    cluster.kill(2);
    std::fs::rename(&dir, &newest).expect("renames");
    std::fs::rename(&copy, &dir).expect("renames");
    for _ in 0..3 {
        // Started often enough it is in a later incarnation than the node ever was.
        cluster.start_node(2);
        let refused = cluster.ends(2).unwrap_err();
        assert!(refused.status == 5 && refused.sentence.contains("copy"), "{refused}");
    }
    std::fs::remove_dir_all(&dir).expect("removes");
    std::fs::rename(&newest, &dir).expect("renames");
    cluster.start_node(2);
    wait_for(&mut client, "node 2 on its newest directory", runs(3));
}

/// What another node hears at this door.
fn hear_as_peer(address: &str, cluster: ClusterId) -> Vec<u8> {
    let member = Member { node: NodeId(9), ..Member::default() };
    let hello = Hello {
        role: HelloRole::Peer,
        protocol: PROTOCOL,
        cluster: Some(cluster),
        member: Some(member),
        secret: None,
        agent: "test".into(),
    };
    let mut bytes = Vec::new();
    frame::encode(&Message::Hello(hello), &mut bytes).expect("fits");
    let mut stream = connect(address);
    stream.write_all(&bytes).expect("writes");
    let mut heard = [0; 64];
    // It is closed with or without what was sent being read.
    let length = stream.read(&mut heard).unwrap_or(0);
    heard[..length].to_vec()
}

#[test]
fn pr157_a_node_talks_to_no_other_before_a_controller_has_let_it_in() {
    let mut cluster = Cluster::with(1, &[]);
    let client = cluster.ready();
    let ours = client.cluster_map().cluster().expect("known").id;
    let peer = |cluster: &Cluster| cluster.node(1).ports().listen["peer"].clone();
    assert!(!hear_as_peer(&peer(&cluster), ours).is_empty(), "it was let in");
    cluster.stop(1);
    let (config, controller) = (cluster.node_config(1), cluster.controller.take().expect("it runs"));
    controller.stopper().ask(Stop::Now);
    controller.wait().unwrap_err();
    let node = node::start(config).expect("the node starts");
    let address = node.ports().listen["peer"].clone();
    assert_eq!(hear_as_peer(&address, ours), [0; 0], "nobody knows yet that it is not an older copy");
    node.stopper().ask(Stop::Now);
    node.wait().unwrap_err();
}

#[test]
fn one_directory_one_process_and_only_its_own_kind() {
    let cluster = Cluster::with(1, &[]);
    let again = node::start(cluster.node_config(1)).err().expect("refused");
    assert!(again.status == 5 && again.sentence.contains("in use"), "{again}");
    let mut config = cluster.node_config(1);
    config.controller.data_dir = cluster.node_dir(1);
    assert!(controller_process::start(config).is_err());
    let mut config = cluster.node_config(1);
    config.node.data_dir = cluster.dir.path().join("fresh");
    understudy_node::init_node(&config.node.data_dir, NodeId(9)).expect("initialises");
    config.node.id = Some(NodeId(8));
    let wrong = node::start(config.clone()).err().expect("refused");
    assert!(wrong.sentence.contains("node 9") && wrong.sentence.contains("node 8"), "{wrong}");
    config.node.id = None;
    config.node.listen_client = "0.0.0.0:0".parse().expect("an address");
    let open = node::start(config).err().expect("refused");
    assert!(open.sentence.contains("TLS"), "{open}");
}

#[test]
fn health_and_metrics_answer_over_http() {
    let cluster = Cluster::with(1, &[("node.harm", "true")]);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Memory, LogKind::Disk);
    (wanted.factor, wanted.partitions) = (Some(1), 1);
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 5, "x");
    wait_for(&mut client, "the status", |status| crate::common::leads(status, 1) == 1);
    let http = cluster.node(1).ports().listen["http"].clone();
    assert_eq!(get(&http, "GET /livez"), (200, "ok\n".into()));
    let (code, text) = get(&http, "GET /readyz?verbose");
    assert!(code == 200 && text.contains("[+]controllers"), "{text}");
    assert!(get(&http, "GET /version").1.starts_with("understudy "));
    let partition = table.partitions().next().expect("one").0;
    assert_eq!(get(&http, &format!("GET /partition/{partition}/primary")), (200, "primary\n".into()));
    assert_eq!(get(&http, &format!("GET /partition/{partition}/replica?lag=100")).0, 200);
    assert_eq!(get(&http, "GET /partition/9999/primary").0, 503);
    let (_, metrics) = get(&http, "GET /metrics");
    for name in [
        "understudy_log_fsync_duration_seconds_count ",
        "understudy_commits_total{outcome=\"ok\"} ",
        "understudy_recovery_duration_seconds{phase=\"replay\"} ",
        &format!("understudy_partition_has_primary{{partition=\"{partition}\"}} 1\n"),
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
    for call in ["poll", "read", "write", "wake", "file_write", "fsync"] {
        let sample = format!("understudy_system_calls_total{{call=\"{call}\"}} ");
        let counted = metrics.lines().find_map(|line| line.strip_prefix(&sample));
        assert!(counted.is_some_and(|count| count != "0"), "no {call} was counted:\n{metrics}");
    }
    let status: wire::control::NodeStatus =
        serde_json::from_str(&get(&http, "GET /status.json").1).expect("a status");
    assert_eq!(status.member.node, NodeId(1));
    assert_eq!(get(&http, "POST /harm/cut?nodes=x").0, 400);
    assert_eq!(get(&http, "POST /harm/cut?nodes=2,clients").0, 200);
    let mut stream = connect(&cluster.node(1).ports().listen["client"]);
    stream.write_all(&hello(HelloRole::Client, None)).expect("writes");
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    assert!(stream.read(&mut [0; 64]).is_err(), "a cut says nothing, and stays open");
    assert_eq!(get(&http, "POST /harm/heal").0, 200);
    put_all(&mut client, &table, 5, 10, "y");
}
