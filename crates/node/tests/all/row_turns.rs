//! Sessions of several nodes take turns at a row that all of them want, in the memory of its primary
//! (`docs/databases-reference.md`, pgbench).

use crate::common::Cluster;
use crate::common::talk::{Behind, Talk, service};
use std::time::{Duration, Instant};

/// So many nodes, each with a gateway of its own, and a database with two rows.
fn world<const NODES: usize>() -> (Cluster, [Behind; NODES]) {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let services: [Behind; NODES] = std::array::from_fn(|_| service(&cluster));
    Talk::new(&services[0]).good("CREATE DATABASE bank");
    services.iter().for_each(|service| drop(Talk::new(service)));
    let mut first = within(&services[0]);
    first.good("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)");
    first.good("INSERT INTO t VALUES (1, 0), (2, 0)");
    (cluster, services)
}

fn within(service: &Behind) -> Talk {
    Talk::within(service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// One node's session is told that another one's was faster at both rows, so it asks for turns at them.
fn is_overtaken(one: &mut Talk, other: &mut Talk) {
    one.good("BEGIN");
    one.good("UPDATE t SET v = v + 1 WHERE id IN (1, 2)");
    for id in [1, 2] {
        other.good(&format!("UPDATE t SET v = v + 1 WHERE id = {id}"));
    }
    let said = one.say("COMMIT");
    assert!(said.starts_with("40001"), "{said}");
}

/// Adds one. False: somebody else was faster.
fn add(talk: &mut Talk) -> bool {
    talk.good("BEGIN");
    talk.good("UPDATE t SET v = v + 1 WHERE id = 1");
    match talk.say("COMMIT") {
        said if said == "COMMIT" => true,
        said if said.starts_with("40001") => false,
        said => panic!("{said}"),
    }
}

/// Each of these adds so often, all at the same time. How often they had to begin again.
fn add_at_once(talks: &mut [Talk], each: usize) -> usize {
    std::thread::scope(|scope| {
        let mut adders = Vec::new();
        for talk in talks {
            adders.push(scope.spawn(move || {
                let mut again: usize = 0;
                for _ in 0..each {
                    while !add(talk) {
                        again += 1;
                    }
                }
                again
            }));
        }
        adders.into_iter().map(|adder| adder.join().expect("no panic")).sum()
    })
}

#[test]
fn pr377_who_comes_next_reads_what_the_one_before_has_written_on_another_node() {
    const EACH: usize = 20;
    let (_cluster, services) = world::<3>();
    let mut talks: Vec<Talk> = services.iter().chain(&services).map(within).collect();
    let (first, second) = (add_at_once(&mut talks, EACH), add_at_once(&mut talks, EACH));
    let total = 2 * EACH * talks.len();
    assert_eq!(within(&services[0]).good("SELECT v FROM t WHERE id = 1"), total.to_string());
    // A node finds out that others want the row when it is too late for the first time. Behind that hardly
    // anybody is too late; without turns most would be, and more than once.
    assert!(second * 10 <= total, "{first} in the first half, and then {second}");
}

#[test]
fn pr375_sessions_of_two_nodes_that_wait_for_each_other_are_told() {
    let (_cluster, services) = world::<2>();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    is_overtaken(&mut one, &mut two);
    is_overtaken(&mut two, &mut one);
    for (talk, id) in [(&mut one, 1), (&mut two, 2)] {
        talk.good("BEGIN");
        talk.good(&format!("UPDATE t SET v = 0 WHERE id = {id}"));
    }
    let began = Instant::now();
    let said = std::thread::scope(|scope| {
        let first = scope.spawn(|| one.say("UPDATE t SET v = v + 100 WHERE id = 2"));
        let second = two.say("UPDATE t SET v = v + 100 WHERE id = 1");
        [first.join().expect("no panic"), second]
    });
    assert!(began.elapsed() < Duration::from_secs(4), "nobody waits until it is given up");
    // The one is told, and the other has its turn by that.
    let (told, done): (Vec<&String>, Vec<&String>) = said.iter().partition(|said| said.starts_with("40P01"));
    assert_eq!((told.len(), done), (1, vec![&"UPDATE 1".to_string()]), "{said:?}");
    let ended = [one.say("COMMIT"), two.say("COMMIT")];
    assert!(ended.contains(&"COMMIT".to_string()) && ended.contains(&"ROLLBACK".to_string()), "{ended:?}");
}

#[test]
fn pr374_a_node_that_goes_has_no_turn_any_more() {
    let (_cluster, [here, there]) = world::<2>();
    let (mut one, mut two) = (within(&here), within(&there));
    is_overtaken(&mut one, &mut two);
    is_overtaken(&mut two, &mut one);
    one.good("BEGIN");
    one.good("UPDATE t SET v = 7 WHERE id = 1");
    // Its connection ends, and nobody says that the transaction is over.
    drop(here);
    let began = Instant::now();
    two.good("UPDATE t SET v = 70 WHERE id = 1");
    assert!(began.elapsed() < Duration::from_secs(4), "it was waited for: {:?}", began.elapsed());
    assert_eq!(two.good("SELECT v FROM t WHERE id = 1"), "70");
    drop(one);
}
