//! Two nodes send to each other on one connection: there is one, it comes back, and whoever is at its other
//! end is whom it says.

use crate::common::{Cluster, LONG, create, in_sync, put_all, wait_for};
use client::Client;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::{ClusterId, EngineKind, Epoch, Executors, Incarnation, LogKind, Member, NodeId, PartitionId};
use understudy_node::net::Cut;
use wire::hello::{Hello, HelloRole, PROTOCOL, Welcome};
use wire::peer::ReportRequest;
use wire::{Message, frame};

/// So many looks in a row that find the same say that nothing changes any more: they take longer than a
/// connection too many is kept.
const SETTLED_LOOKS: u32 = 400;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The connections between nodes, counted where they were accepted.
fn between_nodes(cluster: &Cluster) -> usize {
    let port = |address: &str| address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let nodes = cluster.nodes.iter().flatten();
    let ports: BTreeSet<u16> = nodes.filter_map(|node| port(&node.ports().listen["peer"])).collect();
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").expect("the system tells its connections");
    // A line is: its number, the local address, the other one, the state (01: established), and more.
    let is_between = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().and_then(|local| local.rsplit(':').next());
        let local = local.and_then(|port| u16::from_str_radix(port, 16).ok());
        local.is_some_and(|port| ports.contains(&port)) && words.nth(1) == Some("01")
    };
    sockets.lines().filter(is_between).count()
}

/// Waits until there are so many, and stay.
fn settles(cluster: &Cluster, client: &mut Client, wanted: usize) {
    let deadline = Instant::now() + LONG;
    let mut same = 0;
    while same < SETTLED_LOOKS {
        let found = between_nodes(cluster);
        same = if found == wanted { same + 1 } else { 0 };
        assert!(Instant::now() < deadline, "{found} connections, and {wanted} are wanted");
        client.poll(LOOK_EVERY).expect("polls");
    }
}

#[test]
fn pr517_two_nodes_have_one_connection_also_after_restarts_and_cuts() {
    let mut cluster = Cluster::with(3, &[("node.harm", "true")]);
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Memory, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 100, "begun");
    settles(&cluster, &mut client, 3);
    for node in 1..=3 {
        cluster.kill(node);
        put_all(&mut client, &table, 0, 100, &format!("without {node}"));
        cluster.start_node(node);
        wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
        settles(&cluster, &mut client, 3);
    }
    let faults = cluster.node(2).shared_status().faults.as_ref().expect("allowed");
    faults.set(Cut::parse("1,3,controllers,clients").expect("a cut"));
    put_all(&mut client, &table, 50, 150, "during");
    wait_for(&mut client, "two copies", |status| in_sync(status, 2));
    faults.set(Cut::default());
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    settles(&cluster, &mut client, 3);
    assert_eq!(client.count(&table).expect("counts"), 150);
}

#[test]
fn pr517_executors_share_connections_where_nodes_have_as_many_of_them() {
    let mut cluster = Cluster::with(3, &[("node.executors", "3")]);
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Memory, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 100, "begun");
    settles(&cluster, &mut client, 3 * 3);
    cluster.kill(2);
    cluster.settings = vec![("node.executors".into(), "2".into())];
    cluster.start_node(2);
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    put_all(&mut client, &table, 50, 150, "after");
    // Nodes 1 and 3 as before; each executor of node 2 and of the others has its own to each node.
    settles(&cluster, &mut client, 3 + 2 * (3 + 2));
    assert_eq!(client.count(&table).expect("counts"), 150);
}

/// One end of a connection between nodes.
struct Other {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Other {
    fn new(stream: TcpStream) -> Other {
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        Other { stream, bytes: Vec::new() }
    }

    fn send(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes).expect("fits");
        self.stream.write_all(&bytes).expect("writes");
    }

    /// The next message; `None`: the other side has closed the connection.
    fn hear(&mut self) -> Option<Message> {
        loop {
            if let Some((message, length)) = frame::decode(&self.bytes).expect("frames") {
                self.bytes.drain(..length);
                return Some(message);
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(read) => self.bytes.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the node says nothing and does not hang up: {error}"),
            }
        }
    }

    /// Waits until the connection is closed, whatever comes before.
    fn closes(mut self) {
        while self.hear().is_some() {}
    }
}

fn asks(from: Member) -> Message {
    Message::ReportRequest(ReportRequest { partition: PartitionId(9999), epoch: Epoch(1), from })
}

#[test]
fn pr515_whoever_answers_is_whom_the_connection_was_opened_to() {
    let mut cluster = Cluster::with(2, &[]);
    let client = cluster.ready();
    let ours = client.cluster_map().cluster().expect("known").id;
    let member = client.cluster_map().node(NodeId(2)).expect("known").member();
    let address = cluster.node(2).ports().listen["peer"].clone();
    cluster.kill(2);
    let listener = TcpListener::bind(address).expect("the port is free");
    // Node 1 has the lower number, so it connects.
    let welcomed = |cluster: ClusterId, member: Option<Member>| {
        let mut other = Other::new(listener.accept().expect("node 1 connects").0);
        let Some(Message::Hello(hello)) = other.hear() else { panic!("no greeting") };
        assert_eq!(hello.role, HelloRole::Pair { executor: 0, executors: Executors::ONE });
        assert_eq!((hello.cluster, hello.member.map(|member| member.node)), (Some(ours), Some(NodeId(1))));
        other.send(&Message::Welcome(Welcome::Accepted { cluster, member }));
        other
    };
    let older = Member { incarnation: Incarnation(member.incarnation.0 - 1), ..member };
    let wrong = [
        (ClusterId(ours.0.wrapping_add(1)), Some(member)),
        (ours, Some(Member { node: NodeId(3), ..member })),
        (ours, None),
        // PR-516
        (ours, Some(older)),
    ];
    for (cluster, member) in wrong {
        welcomed(cluster, member).closes();
    }
    let bad = || cluster.node(1).shared_status().metrics.bad_connections.load(Ordering::Relaxed);
    let before = bad();
    let mut other = welcomed(ours, Some(member));
    // Of a partition that is not there: it goes unanswered, and so does nothing that is sound.
    other.send(&asks(member));
    other.send(&asks(older));
    other.closes();
    assert_eq!(bad(), before + 1, "what came from another incarnation closed it, and nothing else did");
}

#[test]
fn pr515_whoever_opens_a_connection_for_both_is_who_sends_on_it() {
    let cluster = Cluster::with(2, &[]);
    let client = cluster.ready();
    let ours = client.cluster_map().cluster().expect("known").id;
    let known = client.cluster_map().node(NodeId(2)).expect("known").member();
    let stranger = Member { node: NodeId(9), ..known };
    let opened = |cluster_id: ClusterId, member: Member, executors: u32| {
        let stream = TcpStream::connect(&cluster.node(1).ports().listen["peer"]).expect("connects");
        let mut other = Other::new(stream);
        let executors = Executors::new(executors).expect("so many can be");
        let (role, cluster) = (HelloRole::Pair { executor: 0, executors }, Some(cluster_id));
        let (member, agent) = (Some(member), "test".into());
        other.send(&Message::Hello(Hello { role, protocol: PROTOCOL, cluster, member, secret: None, agent }));
        other
    };
    let refused = |mut other: Other| matches!(other.hear(), Some(Message::Welcome(Welcome::Refused(_))));
    assert!(refused(opened(ClusterId(ours.0.wrapping_add(1)), stranger, 1)));
    assert!(refused(opened(ours, Member { node: NodeId(1), ..known }, 1)));
    // PR-516
    let older = Member { incarnation: Incarnation(known.incarnation.0 - 1), ..known };
    assert_eq!(opened(ours, older, 1).hear(), None, "node 2 is in another incarnation by now");
    for executors in [1, 3] {
        let mut other = opened(ours, stranger, executors);
        assert!(matches!(other.hear(), Some(Message::Welcome(Welcome::Accepted { .. }))));
        other.send(&asks(known));
        other.closes();
    }
}
