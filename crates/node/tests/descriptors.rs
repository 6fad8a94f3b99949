//! A process that is out of file descriptors lets nobody in, and goes on when it has some again. The limit is
//! the whole process's, so these tests have one of their own, and run one after the other.

#[path = "all/common/mod.rs"]
mod common;

use common::Cluster;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use wire::hello::{Hello, HelloRole, PROTOCOL};
use wire::{Message, frame};

/// One test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Opens files until this process may have no more, which are then just as many as it has open.
fn fill() -> Vec<File> {
    let limits = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").expect("opens").as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: limits.maximum }).expect("limits");
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn who_could_not_be_let_in_is_let_in_later() {
    let _alone = alone();
    // Nothing else in this process may take a descriptor meanwhile.
    let cluster = Cluster::with(1, &[("sql.listen", "off")]);
    drop(cluster.ready());
    let listeners = ["client", "peer"].map(|listener| cluster.node(1).ports().listen[listener].clone());
    let controller = cluster.controller_address();
    let listeners: Vec<&String> = listeners.iter().chain([&controller]).collect();
    // The sockets of the clients are there before, as nothing can be opened after.
    let sockets: Vec<Socket> =
        listeners.iter().map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket")).collect();
    let limits = getrlimit(Resource::Nofile);
    let blocked = fill();
    for (socket, listener) in sockets.iter().zip(&listeners) {
        let address: SocketAddr = listener.parse().expect("an address");
        socket.connect(&address.into()).expect("connects");
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(blocked);
    setrlimit(Resource::Nofile, limits).expect("lifts the limit");
    for socket in sockets {
        let mut stream = TcpStream::from(socket);
        let mut bytes = Vec::new();
        let message = Message::Hello(Hello {
            role: HelloRole::Client,
            protocol: PROTOCOL + 1,
            cluster: None,
            member: None,
            secret: None,
            agent: "test".into(),
        });
        frame::encode(&message, &mut bytes).expect("fits");
        stream.write_all(&bytes).expect("writes");
        stream.set_read_timeout(Some(common::LONG)).expect("a timeout");
        assert!(stream.read(&mut [0; 64]).expect("an answer") > 0, "it is let in, and told why not");
    }
}

#[test]
fn a_node_takes_as_many_files_as_it_may_have() {
    let _alone = alone();
    let limits = getrlimit(Resource::Nofile);
    let maximum = limits.maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(600), maximum }).expect("limits");
    let cluster = Cluster::with(1, &[("sql.listen", "off")]);
    drop(cluster.ready());
    let raised = getrlimit(Resource::Nofile).current;
    setrlimit(Resource::Nofile, limits).expect("as it was");
    assert_eq!(raised, maximum);
}

#[test]
fn a_directory_that_cannot_be_looked_at_just_now_is_not_lost() {
    let _alone = alone();
    let cluster = Cluster::with_second(1, &[("sql.listen", "off")]);
    let mut client = cluster.ready();
    let limits = getrlimit(Resource::Nofile);
    let (passing, root) = (understudy_node::datadir::data_dirs::is_passing, cluster.second_dir(1));
    let blocked = fill();
    let begun = std::time::Instant::now();
    let mut refused = 0;
    // Some looks of the node's thread, four in a second.
    while begun.elapsed() < std::time::Duration::from_millis(1_500) {
        let looked = std::fs::read(root.join("directory.id"));
        refused += u32::from(looked.is_err_and(|error| passing(&error)));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(blocked);
    setrlimit(Resource::Nofile, limits).expect("lifts the limit");
    assert!(refused > 10, "files could be opened: {refused}");
    let status = common::wait_for(&mut client, "the node's word of it", |status| {
        common::of_node(status, 1).is_some_and(|node| node.directories.len() == 2)
    });
    let directories = &common::of_node(&status, 1).expect("it is there").directories;
    assert_eq!(directories[1].lost, "");
}
