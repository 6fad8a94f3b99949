//! A process that is out of file descriptors lets nobody in, and goes on when it has some again. The limit is the whole
//! process's, so these tests have one of their own, and run one after the other.

mod common;

use common::Cluster;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use wire::hello::{Hello, HelloRole, PROTOCOL};
use wire::{Message, frame};

/// One test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn who_could_not_be_let_in_is_let_in_later() {
    let _alone = alone();
    // Nothing else in this process may take a descriptor meanwhile.
    let cluster = Cluster::with(1, &[("sql.listen", "off")]);
    drop(cluster.ready());
    let listeners = ["client", "peer"].map(|listener| cluster.node(1).ports().listen[listener].clone());
    let controller = cluster.controller_address();
    let listeners = listeners.iter().chain([&controller]);
    let limits = getrlimit(Resource::Nofile);
    // Every number below the limit is in use but those for the connections themselves.
    let mut blocked: Vec<File> =
        (0..listeners.clone().count()).map(|_| File::open("/dev/null").expect("opens")).collect();
    let next = std::os::fd::AsRawFd::as_raw_fd(blocked.last().expect("some")) as u64 + 1;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: limits.maximum }).expect("limits");
    let mut streams: Vec<TcpStream> = Vec::new();
    for listener in listeners {
        blocked.pop();
        streams.push(TcpStream::connect(listener).expect("connects"));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    setrlimit(Resource::Nofile, limits).expect("lifts the limit");
    for mut stream in streams {
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
    let blocked = File::open("/dev/null").expect("opens");
    let none = std::os::fd::AsRawFd::as_raw_fd(&blocked) as u64;
    drop(blocked);
    let (passing, root) = (understudy_node::datadir::data_dirs::is_passing, cluster.second_dir(1));
    // Every number below the limit is in use.
    setrlimit(Resource::Nofile, Rlimit { current: Some(none), maximum: limits.maximum }).expect("limits");
    let begun = std::time::Instant::now();
    let mut refused = 0;
    // Some looks of the node's thread, four in a second.
    while begun.elapsed() < std::time::Duration::from_millis(1_500) {
        let looked = std::fs::read(root.join("directory.id"));
        refused += u32::from(looked.is_err_and(|error| passing(&error)));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    setrlimit(Resource::Nofile, limits).expect("lifts the limit");
    assert!(refused > 10, "files could be opened: {refused}");
    let status = common::wait_for(&mut client, "the node's word of it", |status| {
        common::of_node(status, 1).is_some_and(|node| node.directories.len() == 2)
    });
    let directories = &common::of_node(&status, 1).expect("it is there").directories;
    assert_eq!(directories[1].lost, "");
}
