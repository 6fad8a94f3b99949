//! Constraints that are added to tables with rows, in a database of global transactions.

use crate::common::Cluster;
use crate::common::talk::{Behind, Talk, service};
use std::thread;

fn within(service: &sql::Sql) -> Talk {
    Talk::within(service, "ledger").unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// A database of six partitions with forty towns, and two ways to it that know nothing of each other.
fn world() -> (Cluster, [Behind; 2]) {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let services = [service(&cluster), service(&cluster)];
    Talk::new(&services[0])
        .good("CREATE DATABASE ledger WITH (partitions = 6, transactions = global, factor = 3)");
    let mut one = within(&services[0]);
    one.good("CREATE TABLE town (id int PRIMARY KEY, name text, mayor int)");
    one.good("CREATE TABLE person (id int PRIMARY KEY, town int)");
    one.good("INSERT INTO town SELECT n, 't' || n, n FROM generate_series(1, 40) AS s(n)");
    one.good("INSERT INTO person SELECT n, n FROM generate_series(1, 30) AS s(n)");
    (cluster, services)
}

#[test]
fn pr346_a_gateway_that_does_not_know_who_refers_removes_nothing_that_is_referred_to() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    one.good("CREATE TABLE parent (id int PRIMARY KEY)");
    one.good("CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent)");
    one.good("INSERT INTO parent SELECT n FROM generate_series(1, 20) AS s(n)");
    // It knows both from now on, and nothing of the third.
    two.good("DELETE FROM parent WHERE id = 20");
    one.good("CREATE TABLE other (id int PRIMARY KEY, parent int REFERENCES parent)");
    one.good("INSERT INTO other SELECT n, n FROM generate_series(1, 10) AS s(n)");
    let said = two.say("DELETE FROM parent WHERE id = 7");
    assert!(said.starts_with("23503") && said.contains("other_parent_fkey"), "{said}");
    assert_eq!(one.good("SELECT count(*) FROM parent WHERE id = 7"), "1");
}

#[test]
fn what_rows_keep_is_added_and_what_they_do_not_keep_leaves_nothing() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    two.good("UPDATE town SET mayor = 1 WHERE id = 1");
    one.good("ALTER TABLE town ADD CONSTRAINT named UNIQUE (name)");
    one.good("ALTER TABLE person ADD CONSTRAINT lives FOREIGN KEY (town) REFERENCES town ON DELETE CASCADE");
    one.good("ALTER TABLE person ADD CONSTRAINT counted CHECK (id > 0)");
    one.good("ALTER TABLE town ADD COLUMN code int UNIQUE");
    let kept = [
        ("INSERT INTO town VALUES (50, 't7')", "23505", "named"),
        ("UPDATE town SET name = 't8' WHERE id = 9", "23505", "named"),
        ("INSERT INTO person VALUES (50, 60)", "23503", "lives"),
        ("INSERT INTO person VALUES (-1, 1)", "23514", "counted"),
        ("INSERT INTO town VALUES (50, 'x', 1, 5), (51, 'y', 1, 5)", "23505", "town_code_key"),
    ];
    two.refused(&kept);
    assert_eq!(two.good("DELETE FROM town WHERE id = 30"), "DELETE 1");
    assert_eq!(two.good("SELECT count(*) FROM person"), "29", "it went with its town");
    assert_eq!(two.good("INSERT INTO town VALUES (50, 't7') ON CONFLICT (name) DO NOTHING"), "INSERT 0 0");
    one.good("UPDATE town SET mayor = 3 WHERE id = 4");
    one.good("INSERT INTO person VALUES (60, NULL), (61, NULL)");
    let against = [
        ("ALTER TABLE town ADD CONSTRAINT once UNIQUE (mayor)", "23505", "could not create unique index"),
        ("CREATE UNIQUE INDEX once ON town (mayor)", "23505", "could not create unique index"),
        ("ALTER TABLE town ADD FOREIGN KEY (mayor) REFERENCES person", "23503", "town_mayor_fkey"),
        ("ALTER TABLE person ADD CHECK (id < 60)", "23514", "is violated by some row"),
        ("ALTER TABLE person ALTER COLUMN town SET NOT NULL", "23502", "town"),
    ];
    one.refused(&against);
    // Nothing of them is left.
    two.good("INSERT INTO town VALUES (70, 'z', 3)");
    two.good("INSERT INTO person VALUES (70, NULL)");
    assert_eq!(
        two.good("SELECT count(*) FROM pg_constraint WHERE conname IN ('once', 'town_mayor_fkey')"),
        "0"
    );
}

#[test]
fn what_is_not_valid_binds_what_is_written_and_is_looked_at_later() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    one.good("UPDATE person SET town = 99 WHERE id = 3");
    one.good("ALTER TABLE person ADD CONSTRAINT lives FOREIGN KEY (town) REFERENCES town NOT VALID");
    assert_eq!(one.good("SELECT convalidated FROM pg_constraint WHERE conname = 'lives'"), "f");
    two.refused(&[("INSERT INTO person VALUES (50, 60)", "23503", "lives")]);
    two.refused(&[("DELETE FROM town WHERE id = 5", "23503", "lives")]);
    one.refused(&[("ALTER TABLE person VALIDATE CONSTRAINT lives", "23503", "lives")]);
    assert_eq!(one.good("SELECT convalidated FROM pg_constraint WHERE conname = 'lives'"), "f");
    one.good("UPDATE person SET town = 9 WHERE id = 3");
    one.good("ALTER TABLE person VALIDATE CONSTRAINT lives");
    assert_eq!(two.good("SELECT convalidated FROM pg_constraint WHERE conname = 'lives'"), "t");
    one.good("ALTER TABLE person RENAME CONSTRAINT lives TO resides");
    two.refused(&[("INSERT INTO person VALUES (50, 60)", "23503", "resides")]);
    one.good("ALTER TABLE person DROP CONSTRAINT resides");
    two.good("INSERT INTO person VALUES (50, 60)");
}

/// Rows are looked at in pages, in each partition, and what is against a constraint may lie in the last one.
#[test]
fn rows_of_many_pages_are_looked_at_to_the_last() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    one.good("CREATE TABLE wide (id int PRIMARY KEY, a int, b text)");
    one.good("INSERT INTO wide SELECT n, n, 'w' || n FROM generate_series(1, 30000) AS s(n)");
    one.good("INSERT INTO wide SELECT n, NULL, NULL FROM generate_series(30001, 30100) AS s(n)");
    two.good("UPDATE wide SET b = 'w1' WHERE id = 29999");
    two.good("UPDATE wide SET a = 30000 WHERE id = 29998");
    let against = [
        ("ALTER TABLE wide ADD CONSTRAINT named UNIQUE (b)", "23505", "named"),
        (
            "ALTER TABLE wide ADD CONSTRAINT both_ UNIQUE (b, a); ALTER TABLE wide ADD UNIQUE (a)",
            "23505",
            "wide_a_key",
        ),
        ("ALTER TABLE wide ADD CONSTRAINT own FOREIGN KEY (a) REFERENCES person", "23503", "own"),
        ("ALTER TABLE wide ADD CHECK (id <> 30100)", "23514", "is violated by some row"),
    ];
    one.refused(&against);
    two.good("UPDATE wide SET b = NULL WHERE id = 29999");
    one.good("ALTER TABLE wide ADD CONSTRAINT named UNIQUE (b)");
    one.good("ALTER TABLE wide ADD CONSTRAINT own FOREIGN KEY (a) REFERENCES wide");
    two.refused(&[("INSERT INTO wide VALUES (40000, 50000, 'x')", "23503", "own")]);
    two.refused(&[("INSERT INTO wide VALUES (40000, 1, 'w29000')", "23505", "named")]);
    two.refused(&[("DELETE FROM wide WHERE id = 30000", "23503", "own")]);
}

/// Writers on both ways while constraints come: what is against them is not there in the end.
#[test]
fn constraints_come_while_rows_are_written() {
    let (_cluster, services) = world();
    let mut talk = within(&services[0]);
    talk.good("INSERT INTO town SELECT n, 'u' || n, n FROM generate_series(1000, 2000) AS s(n)");
    let added = thread::scope(|scope| {
        for (session, service) in services.iter().enumerate() {
            let mut talk = within(service);
            scope.spawn(move || {
                for step in 0..60 {
                    let id = 3_000 + step;
                    let own = 10_000 + 100 * session + step;
                    for text in [
                        format!("INSERT INTO town VALUES ({own}, 'same {step}', {own})"),
                        format!("INSERT INTO person VALUES ({own}, {id})"),
                        format!("DELETE FROM town WHERE id = {}", 1_000 + step),
                        format!("UPDATE person SET town = {} WHERE id = 1", 1_000 + step),
                    ] {
                        let said = talk.say(&text);
                        let told = ["INSERT", "DELETE", "UPDATE", "23505", "23503", "40001"];
                        assert!(told.iter().any(|one| said.starts_with(one)), "{text}: {said}");
                    }
                }
            });
        }
        let unique = talk.say("ALTER TABLE town ADD CONSTRAINT named UNIQUE (name)");
        let foreign = talk.say("ALTER TABLE person ADD CONSTRAINT lives FOREIGN KEY (town) REFERENCES town");
        [(unique, "23505"), (foreign, "23503")].map(|(said, against)| {
            assert!(said.starts_with("ALTER") || said.starts_with(against), "{said}");
            said.starts_with("ALTER")
        })
    });
    let twice =
        talk.good("SELECT count(*) FROM (SELECT name FROM town GROUP BY name HAVING count(*) > 1) AS d");
    let orphans = "SELECT count(*) FROM person AS p WHERE town IS NOT NULL AND NOT EXISTS (SELECT 1 FROM town WHERE id = p.town)";
    let orphans = talk.good(orphans);
    let constraints = "SELECT count(*) FROM pg_constraint WHERE conname = ";
    for (there, name, left) in [(added[0], "'named'", twice), (added[1], "'lives'", orphans)] {
        assert_eq!(talk.good(&format!("{constraints}{name}")), u32::from(there).to_string());
        assert!(!there || left == "0", "{name}: {left} against it");
    }
}
