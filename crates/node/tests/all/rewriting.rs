//! SQL whose rows become others while somebody writes them, and workers that share a queue.

use crate::common::talk::{Talk, service};
use crate::common::{Cluster, LONG};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Instant;

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// A database of its own, and sessions in it.
fn sessions(service: &sql::Sql, name: &str, count: usize) -> Vec<Talk> {
    Talk::new(service).good(&format!("CREATE DATABASE {name}"));
    (0..count).map(|_| within(service, name)).collect()
}

#[test]
fn workers_of_a_queue_get_different_rows() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut all = sessions(&service, "queue", 3);
    let [one, two, three] = &mut all[..] else { panic!("three sessions") };
    one.good("CREATE TABLE jobs (id int PRIMARY KEY, state text)");
    one.good("INSERT INTO jobs SELECT n, CASE WHEN n % 2 = 0 THEN 'new' ELSE 'again' END FROM generate_series(1, 10) AS s(n)");
    let next = "SELECT id FROM jobs WHERE state = 'new' OR state = 'again' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
    for (worker, row) in [(&mut *one, "1"), (&mut *two, "2"), (&mut *three, "3")] {
        worker.good("BEGIN");
        assert_eq!(worker.good(next), row);
    }
    one.good("UPDATE jobs SET state = 'done' WHERE id = 1");
    assert_eq!(one.good(next), "4", "its own row is done");
    one.good("COMMIT");
    // What another one has given up is free again; a row that somebody has is not there.
    two.good("ROLLBACK");
    two.good("BEGIN");
    assert_eq!(two.good(next), "2");
    assert_eq!(two.good("SELECT id FROM jobs WHERE id = 3 FOR UPDATE SKIP LOCKED"), "SELECT 0");
    assert_eq!(two.good("SELECT id FROM jobs WHERE id = 2 FOR UPDATE SKIP LOCKED"), "2");
    let rest = "SELECT id FROM jobs WHERE state <> 'done' ORDER BY id DESC FOR UPDATE SKIP LOCKED";
    assert_eq!(two.good(rest).replace('\n', " "), "10 9 8 7 6 5 4 2");
    assert_eq!(three.good(next), "3", "the one that it has");
    three.good("UPDATE jobs SET state = 'done' WHERE id = 3");
    assert_eq!(three.good(next), "SELECT 0", "all others are somebody's");
    three.good("COMMIT");
    two.good("COMMIT");
    // A savepoint, a snapshot of the whole transaction, and a statement by itself.
    one.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(one.good(next), "2");
    one.good("COMMIT");
    assert_eq!(one.good(next), "2");
    assert!(one.say(&format!("SELECT * FROM ({next}) AS s")).starts_with("0A000"));
}

#[test]
fn rows_that_are_written_meanwhile_become_others_too() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut all = sessions(&service, "shop", 2);
    let [one, other] = &mut all[..] else { panic!("two sessions") };
    one.good("CREATE TABLE goods (id int PRIMARY KEY, price text NOT NULL, code text UNIQUE)");
    one.good("CREATE TABLE sold (n serial PRIMARY KEY, good int REFERENCES goods ON DELETE CASCADE)");
    one.good("INSERT INTO goods SELECT n, '1', 'c' || n FROM generate_series(1, 5000) AS s(n)");
    let (stop, last) = (AtomicBool::new(false), AtomicI64::new(5000));
    thread::scope(|scope| {
        let writes = || {
            let mut writer = within(&service, "shop");
            while !stop.load(Ordering::Acquire) {
                let id = last.load(Ordering::Acquire) + 1;
                // It says nothing of the column's type.
                writer.good(&format!("INSERT INTO goods VALUES ({id}, '2', 'c{id}')"));
                writer.good(&format!("INSERT INTO sold (good) VALUES ({id})"));
                last.store(id, Ordering::Release);
            }
        };
        let writer = scope.spawn(writes);
        let until = |wanted: i64| {
            let began = Instant::now();
            while last.load(Ordering::Acquire) < wanted && !writer.is_finished() && began.elapsed() < LONG {
                thread::yield_now();
            }
        };
        until(5010);
        one.good("ALTER TABLE goods ALTER price TYPE int USING price::int * 10, ADD COLUMN tag uuid NOT NULL DEFAULT gen_random_uuid()");
        until(last.load(Ordering::Acquire) + 10);
        one.good("ALTER TABLE sold DROP CONSTRAINT sold_pkey, ADD PRIMARY KEY (good)");
        until(last.load(Ordering::Acquire) + 10);
        stop.store(true, Ordering::Release);
        writer.join().expect("writes");
    });
    let count = last.load(Ordering::Acquire);
    assert_eq!(
        other.good("SELECT count(*), count(DISTINCT tag), count(DISTINCT code) FROM goods"),
        format!("{count}|{count}|{count}")
    );
    assert_eq!(other.good("SELECT count(*) FROM goods WHERE price NOT IN (2, 10, 20)"), "0");
    assert_eq!(other.good("SELECT count(*) FROM goods WHERE price = 10"), "5000");
    assert_eq!(other.good("SELECT count(*), count(DISTINCT n) FROM sold"), format!("{0}|{0}", count - 5000));
    // Constraints look at the table that has the rows now.
    assert!(other.say("INSERT INTO goods VALUES (1, 1, 'new')").starts_with("23505"));
    assert!(other.say("INSERT INTO goods VALUES (0, 1, 'c7')").starts_with("23505"));
    assert!(other.say("INSERT INTO sold (good) VALUES (0)").starts_with("23503"));
    other.good("DELETE FROM goods WHERE id > 5000");
    assert_eq!(other.good("SELECT count(*) FROM sold"), "0");
    // What one row does not become none does, and the table is written again.
    assert!(
        one.say("ALTER TABLE goods ALTER code TYPE int USING substring(code FROM 2)::int / (id - 77)")
            .starts_with("22012")
    );
    assert_eq!(other.good("UPDATE goods SET code = 'x' WHERE id = 77"), "UPDATE 1");
    assert!(one.say("ALTER TABLE goods ALTER code TYPE int USING length(code)").starts_with("23505"));
    assert_eq!(other.good("SELECT count(*) FROM goods WHERE code LIKE 'c%'"), "4999");
}
