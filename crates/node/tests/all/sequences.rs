//! Sequences of a database on a cluster of this process: sessions of several nodes, a node that dies
//! meanwhile, and transactions.

use crate::common::Cluster;
use crate::common::talk::{Talk, service};
use std::collections::BTreeSet;

/// Numbers for one session.
const EACH: usize = 150;

fn within(service: &sql::Sql) -> Talk {
    Talk::within(service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn pr154_a_sequence_gives_no_number_twice_whoever_asks_and_whoever_dies() {
    let mut cluster = Cluster::start();
    drop(cluster.ready());
    let services = [service(&cluster), service(&cluster)];
    Talk::new(&services[0]).good("CREATE DATABASE bank");
    let mut one = within(&services[0]);
    one.good("CREATE SEQUENCE s");
    one.good("CREATE TABLE t (id serial PRIMARY KEY, n bigint DEFAULT nextval('s'))");
    let (begun, started) = std::sync::mpsc::channel();
    let numbers: Vec<String> = std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..4)
            .map(|number| {
                let (service, begun) = (&services[number % 2], begun.clone());
                scope.spawn(move || {
                    let mut talk = within(service);
                    let mut found = Vec::new();
                    while found.len() < EACH {
                        // What a failover ends is asked for again: then numbers are left out.
                        found.extend(talk.ask("SELECT nextval('s')"));
                        if found.len() == EACH / 5 {
                            begun.send(()).expect("somebody waits");
                        }
                    }
                    found
                })
            })
            .collect();
        started.recv().expect("one has begun");
        cluster.kill(1);
        sessions.into_iter().flat_map(|session| session.join().expect("it ends")).collect()
    });
    let distinct: BTreeSet<&String> = numbers.iter().collect();
    assert_eq!((numbers.len(), distinct.len()), (4 * EACH, 4 * EACH));
}

#[test]
fn sequences_go_with_what_their_transaction_does_and_numbers_do_not_come_back() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service), within(&service));
    one.good("BEGIN");
    one.good("CREATE TABLE t (id serial PRIMARY KEY, x int)");
    assert_eq!(one.good("INSERT INTO t (x) VALUES (1), (2) RETURNING id"), "1\n2");
    assert!(two.say("SELECT nextval('t_id_seq')").starts_with("42P01"));
    one.good("ROLLBACK");
    assert!(one.say("SELECT nextval('t_id_seq')").starts_with("42P01"));
    one.good("CREATE TABLE t (id serial PRIMARY KEY, x int)");
    one.good("BEGIN");
    assert_eq!(one.good("INSERT INTO t (x) VALUES (1) RETURNING id"), "1");
    one.good("ROLLBACK");
    assert_eq!(two.good("INSERT INTO t (x) VALUES (1) RETURNING id"), "2");
    assert!(two.say("SELECT currval('nope')").starts_with("42P01"));
    assert_eq!((two.good("SELECT lastval()"), one.good("SELECT lastval()")), ("2".into(), "1".into()));
    // A restart that is rolled back leaves numbers as they were.
    one.good("BEGIN");
    one.good("TRUNCATE t RESTART IDENTITY");
    assert_eq!(one.good("INSERT INTO t (x) VALUES (1) RETURNING id"), "1");
    one.good("ROLLBACK");
    assert_eq!(two.good("INSERT INTO t (x) VALUES (1) RETURNING id"), "3");
    one.good("TRUNCATE t RESTART IDENTITY");
    assert_eq!(two.good("INSERT INTO t (x) VALUES (1) RETURNING id"), "1");
    assert!(one.say("DROP SEQUENCE t_id_seq").starts_with("2BP01"));
    one.good("DROP TABLE t");
    assert!(one.say("SELECT nextval('t_id_seq')").starts_with("42P01"));
}
