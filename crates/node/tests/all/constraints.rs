//! Constraints of a database's tables on a cluster of this process: what PostgreSQL answers, sessions that do
//! not see each other, rows that were there before, and failovers in between.

use crate::common::Cluster;
use crate::common::talk::{Behind, Talk, service};
use std::collections::BTreeMap;

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// A cluster with a database.
fn world() -> (Cluster, Behind) {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    (cluster, service)
}

/// What is said to a statement, with the detail of an error.
fn said(talk: &mut Talk, text: &str) -> String {
    talk.ask(text).unwrap_or_else(|failure| {
        let detail = failure.detail.map_or(String::new(), |detail| format!(" / {detail}"));
        format!("{} {}{detail}", failure.code, failure.message)
    })
}

#[test]
fn constraints_are_what_postgresql_says() {
    let (_cluster, service) = world();
    let mut talks: BTreeMap<&str, Talk> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in include_str!("../../../sql/tests/scripts/constraints.txt").split("\n\n") {
        let lines = case.trim().lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
        let case = lines.join("\n");
        let Some((question, expected)) = case.split_once("\n=>") else { continue };
        let (who, text) = question.split_once(": ").unwrap_or_else(|| panic!("{case}: who says it?"));
        let talk = talks.entry(who.to_string().leak()).or_insert_with(|| within(&service, "bank"));
        let found = said(talk, text);
        if found != expected.trim() {
            wrong.push(format!("{text}\n=> {found}\n-- expected {}", expected.trim()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Each of two transactions writes rows that the other one does not write, and neither sees the other's.
#[test]
fn pr150_two_sessions_that_do_not_see_each_other_make_no_orphan_and_no_duplicate() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE town (id int PRIMARY KEY, code int UNIQUE)");
    one.good("CREATE TABLE pet (id int PRIMARY KEY, town int REFERENCES town)");
    one.good("INSERT INTO town VALUES (1, 10), (2, 20), (3, 30)");
    for (isolation, id) in [("REPEATABLE READ", 1), ("READ COMMITTED", 2)] {
        for talk in [&mut one, &mut two] {
            talk.good(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            talk.good("SELECT * FROM town");
        }
        one.good(&format!("DELETE FROM town WHERE id = {id}"));
        two.good(&format!("INSERT INTO pet VALUES ({id}, {id})"));
        let both = [one.say("COMMIT"), two.say("COMMIT")];
        assert_eq!(both[0], "COMMIT", "{isolation}");
        assert!(both[1].starts_with("23503 insert or update on table \"pet\""), "{isolation}: {}", both[1]);
        for talk in [&mut one, &mut two] {
            talk.good(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            talk.good("SELECT * FROM town");
        }
        one.good(&format!("INSERT INTO town VALUES ({}, {})", 10 * id, 77 + id));
        two.good(&format!("INSERT INTO town VALUES ({}, {})", 10 * id + 1, 77 + id));
        let both = [one.say("COMMIT"), two.say("COMMIT")];
        assert_eq!(both[0], "COMMIT", "{isolation}");
        assert!(both[1].starts_with("23505"), "{isolation}: {}", both[1]);
    }
    // The other order: whoever refers is first.
    for talk in [&mut one, &mut two] {
        talk.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
        talk.good("SELECT * FROM town");
    }
    one.good("DELETE FROM town WHERE id = 3");
    two.good("INSERT INTO pet VALUES (3, 3)");
    assert_eq!(two.say("COMMIT"), "COMMIT");
    assert!(one.say("COMMIT").starts_with("23503 update or delete on table \"town\""));
    let orphans = "SELECT count(*) FROM pet WHERE town NOT IN (SELECT id FROM town)";
    assert_eq!(one.good(orphans), "0");
    assert_eq!(one.good("SELECT count(*), count(DISTINCT code) FROM town"), "3|3");
}

/// ON CONFLICT in a transaction: what it would have met if it had come a little earlier.
#[test]
fn a_row_that_came_behind_the_look_of_on_conflict_has_the_transaction_begin_again() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE town (id int PRIMARY KEY, code int UNIQUE, n int)");
    let mut id = 0;
    for isolation in ["REPEATABLE READ", "READ COMMITTED"] {
        for (conflict, by_key, code) in [
            ("ON CONFLICT DO NOTHING", true, "40001"),
            ("ON CONFLICT DO NOTHING", false, "40001"),
            ("ON CONFLICT (id) DO UPDATE SET n = 7", true, "40001"),
            ("ON CONFLICT (code) DO UPDATE SET n = 7", false, "40001"),
            // By what it does not look it is a duplicate, as for any other statement.
            ("ON CONFLICT (id) DO NOTHING", false, "23505"),
            ("ON CONFLICT (code) DO NOTHING", true, "23505"),
            ("", true, "23505"),
            ("", false, "23505"),
        ] {
            id += 10;
            let mine = format!("INSERT INTO town VALUES ({id}, {id}, 0) {conflict}");
            let (key, other) = if by_key { (id, id + 1) } else { (id + 1, id) };
            one.good(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM town"));
            one.good(&mine);
            one.good(&format!("UPDATE town SET n = n + 1 WHERE id = {id}"));
            two.good(&format!("INSERT INTO town VALUES ({key}, {other}, 1)"));
            let said = one.say("COMMIT");
            assert!(said.starts_with(code), "{isolation}: {mine}: {said}");
            if code == "40001" {
                let again = if conflict.ends_with("NOTHING") { "INSERT 0 0" } else { "INSERT 0 1" };
                assert_eq!(one.good(&format!("BEGIN ISOLATION LEVEL {isolation}; {mine}")), again);
                assert_eq!(one.good("COMMIT"), "COMMIT");
            }
        }
    }
    // A statement behind it that sees the row is told so, too.
    one.good("BEGIN; INSERT INTO town VALUES (500, 500, 0) ON CONFLICT (code) DO NOTHING");
    two.good("INSERT INTO town VALUES (501, 500, 0)");
    one.refused(&[("UPDATE town SET n = 1 WHERE id = 500", "40001", "")]);
    // What was there, and what it has written itself, it would meet each time.
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM town";
    let first = "INSERT INTO town VALUES (600, 600, 0) ON CONFLICT (code) DO NOTHING";
    for second in ["UPDATE town SET code = 500 WHERE id = 600", "INSERT INTO town VALUES (601, 600, 0)"] {
        let all = format!("{begin}; {first}; {second}; COMMIT");
        one.refused(&[(all.as_str(), "23505", "town_code_key")]);
    }
}

/// What follows from an UPDATE is no reason to refuse it for a row that came meanwhile, and would have
/// followed.
#[test]
fn a_row_that_came_while_others_followed_has_the_transaction_begin_again() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE town (id int PRIMARY KEY, code int UNIQUE)");
    one.good("CREATE TABLE pet (id int PRIMARY KEY, code int REFERENCES town (code) ON UPDATE CASCADE)");
    one.good("INSERT INTO town VALUES (1, 10), (2, 20)");
    one.good("INSERT INTO pet VALUES (1, 10)");
    for isolation in ["REPEATABLE READ", "READ COMMITTED"] {
        one.good(&format!("BEGIN ISOLATION LEVEL {isolation}"));
        one.good("SELECT * FROM pet");
        one.good("UPDATE town SET code = code + 1 WHERE id = 1");
        two.good("INSERT INTO pet SELECT 1 + max(pet.id), min(town.code) FROM pet, town");
        let said = one.say("COMMIT");
        assert!(said.starts_with("40001"), "{isolation}: {said}");
        one.good("UPDATE town SET code = code + 1 WHERE id = 1");
        assert_eq!(one.good("SELECT count(*) FROM pet JOIN town USING (code) WHERE town.id <> 1"), "0");
    }
    // Nothing follows where the row goes: that is said at once, and not tried again for seconds.
    let began = std::time::Instant::now();
    one.refused(&[("DELETE FROM town WHERE id = 1", "23503", "update or delete on table \"town\"")]);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

/// Sessions that insert, remove and refer at once; some of them by CASCADE.
#[test]
fn pr151_sessions_that_race_leave_no_orphan_and_no_duplicate() {
    let (_cluster, service) = world();
    let mut talk = within(&service, "bank");
    talk.good("CREATE TABLE town (id int PRIMARY KEY, code int UNIQUE)");
    talk.good("CREATE TABLE pet (id int PRIMARY KEY, town int REFERENCES town ON DELETE CASCADE)");
    talk.good("CREATE TABLE toy (id int PRIMARY KEY, town int REFERENCES town)");
    talk.good("INSERT INTO town SELECT n, n FROM generate_series(1, 8) AS s(n)");
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let service: &sql::Sql = &service;
        let race = |who: u64| {
            let mut talk = within(service, "bank");
            let (mut counts, mut seed) = ((0, 0), who * 7919 + 1);
            for turn in 0..60 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let (town, id) = (seed % 8 + 1, who * 1_000 + turn);
                let text = match seed / 8 % 5 {
                    0 => format!("DELETE FROM town WHERE id = {town}"),
                    1 => format!("INSERT INTO town VALUES ({town}, {})", seed / 64 % 8),
                    2 => format!("INSERT INTO toy VALUES ({id}, {town})"),
                    3 => format!("DELETE FROM toy WHERE town = {town}"),
                    _ => format!("INSERT INTO pet VALUES ({id}, {town})"),
                };
                let said = talk.say(&text);
                match said.get(..5) {
                    Some("23505" | "23503" | "40001") => counts.1 += 1,
                    _ => counts.0 += 1,
                }
                let fine = ["INSERT", "DELETE", "23505", "23503", "40001"];
                assert!(fine.iter().any(|begin| said.starts_with(begin)), "{text}: {said}");
            }
            counts
        };
        let threads: Vec<_> = (1..=4).map(|who| scope.spawn(move || race(who))).collect();
        for thread in threads {
            let counts = thread.join().expect("no panic");
            (done, refused) = (done + counts.0, refused + counts.1);
        }
    });
    assert!(done > 20 && refused > 5, "{done} done, {refused} refused");
    for child in ["pet", "toy"] {
        let orphans = format!("SELECT count(*) FROM {child} WHERE town NOT IN (SELECT id FROM town)");
        assert_eq!(talk.good(&orphans), "0");
    }
    assert_eq!(talk.good("SELECT count(*) - count(DISTINCT code) FROM town"), "0");
}

#[test]
fn pr152_rows_that_were_there_are_looked_at_in_slices() {
    let (_cluster, service) = world();
    let mut talk = within(&service, "bank");
    talk.good("CREATE TABLE town (id int PRIMARY KEY, code int)");
    talk.good("CREATE TABLE pet (id int PRIMARY KEY, town int)");
    talk.good("INSERT INTO town SELECT n, n FROM generate_series(1, 6000) AS s(n)");
    talk.good("INSERT INTO pet SELECT n, n FROM generate_series(1, 6000) AS s(n)");
    talk.good("UPDATE town SET code = 1 WHERE id = 6000");
    let refused = said(&mut talk, "ALTER TABLE town ADD CONSTRAINT code UNIQUE (code)");
    let duplicate = "23505 could not create unique index \"code\" / Key (code)=(1) is duplicated.";
    assert_eq!(refused, duplicate);
    talk.good("INSERT INTO town VALUES (7000, 1)");
    talk.good("DELETE FROM town WHERE code = 1 AND id > 1");
    talk.good("ALTER TABLE town ADD CONSTRAINT code UNIQUE (code)");
    assert!(talk.say("INSERT INTO town VALUES (6000, 1)").starts_with("23505"));
    let refused = said(&mut talk, "ALTER TABLE pet ADD CONSTRAINT town FOREIGN KEY (town) REFERENCES town");
    assert!(refused.ends_with("Key (town)=(6000) is not present in table \"town\"."), "{refused}");
    talk.good("DELETE FROM pet WHERE id = 6000");
    talk.good("ALTER TABLE pet ADD CONSTRAINT town FOREIGN KEY (town) REFERENCES town ON DELETE CASCADE");
    assert_eq!(talk.good("DELETE FROM town WHERE id <= 10"), "DELETE 10");
    assert_eq!(talk.good("SELECT count(*) FROM pet"), "5989");
    // By a session of another node, which has heard of none of it.
    talk.good("CREATE TABLE late (id int PRIMARY KEY, v int)");
    talk.good("ALTER TABLE late ADD CONSTRAINT small CHECK (v < 10)");
    talk.good("INSERT INTO late VALUES (1, 1)");
    assert!(said(&mut talk, "INSERT INTO late VALUES (2, 10)").starts_with("23514"));
}

#[test]
fn pr490_a_constraint_that_failed_is_kept_with_an_index_of_all_rows_and_looked_at_again() {
    let (_cluster, service) = world();
    let mut talk = within(&service, "bank");
    talk.good("CREATE TABLE town (id int PRIMARY KEY)");
    talk.good("CREATE TABLE pet (id int PRIMARY KEY, town int)");
    talk.good("INSERT INTO town SELECT n FROM generate_series(1, 6000) AS s(n)");
    talk.good("INSERT INTO pet SELECT n, n FROM generate_series(1, 6000) AS s(n)");
    talk.good("UPDATE pet SET town = 9999 WHERE id = 3");
    talk.good("ALTER TABLE pet ADD CONSTRAINT home FOREIGN KEY (town) REFERENCES town NOT VALID");
    let validate = "ALTER TABLE pet VALIDATE CONSTRAINT home";
    let missing = "Key (town)=(9999) is not present in table \"town\".";
    for _ in 0..2 {
        let refused = said(&mut talk, validate);
        assert!(refused.starts_with("23503") && refused.ends_with(missing), "{refused}");
    }
    let valid = "SELECT convalidated FROM pg_constraint WHERE conname = 'home'";
    assert_eq!(talk.good(valid), "f");
    // Rows far behind the one that is against it are looked up by it.
    talk.refused(&[("DELETE FROM town WHERE id = 5999", "23503", "home")]);
    talk.refused(&[("INSERT INTO pet VALUES (7000, 9999)", "23503", "home")]);
    assert_eq!(talk.good("DELETE FROM town WHERE id = 3"), "DELETE 1");
    talk.good("UPDATE pet SET town = NULL WHERE id = 3");
    talk.good(validate);
    assert_eq!(talk.good(valid), "t");
    let again = "ALTER TABLE pet ADD CONSTRAINT home FOREIGN KEY (town) REFERENCES town";
    talk.refused(&[(again, "42710", "home")]);
}

#[test]
fn pr153_sessions_of_other_nodes_hear_of_constraints_and_of_what_refers_to_their_tables() {
    let (cluster, here) = world();
    let there = service(&cluster);
    drop(Talk::new(&there));
    let (mut one, mut two) = (within(&here, "bank"), within(&there, "bank"));
    one.good("CREATE TABLE town (id int PRIMARY KEY, code int)");
    two.good("INSERT INTO town VALUES (1, 10), (2, 20), (3, 30)");
    assert_eq!(two.good("DELETE FROM town WHERE id = 3"), "DELETE 1");
    one.good("CREATE TABLE pet (id int PRIMARY KEY, town int REFERENCES town ON DELETE CASCADE)");
    one.good("INSERT INTO pet VALUES (1, 1)");
    // The other node has a plan for this, and does not know of the table that refers.
    assert_eq!(two.good("DELETE FROM town WHERE id = 1"), "DELETE 1");
    assert_eq!(one.good("SELECT count(*) FROM pet"), "0");
    one.good("ALTER TABLE town ADD UNIQUE (code)");
    assert!(two.say("INSERT INTO town VALUES (4, 20)").starts_with("23505"));
    assert_eq!(two.good("INSERT INTO town VALUES (4, 20) ON CONFLICT (code) DO NOTHING"), "INSERT 0 0");
    assert!(two.say("DROP TABLE town").starts_with("2BP01"));
    two.good("DROP TABLE town CASCADE");
    one.good("INSERT INTO pet VALUES (5, 5)");
}

#[test]
fn what_pg_dump_writes_is_restored() {
    let (_cluster, service) = world();
    let mut talk = within(&service, "bank");
    let dump = include_str!("../../../sql/tests/scripts/dump.sql");
    let mut rest = dump;
    while let Some(end) = rest.find(";\n") {
        let (statement, behind) = rest.split_at(end);
        rest = &behind[2..];
        let text: Vec<&str> = statement.lines().filter(|line| !line.starts_with("--")).collect();
        let text = text.join("\n");
        if !text.trim_start().starts_with("COPY") {
            talk.good(&text);
            continue;
        }
        let (lines, behind) = rest.split_once("\\.\n").expect("the end of the rows");
        rest = behind;
        let said = talk.copy(&text, lines);
        assert!(said.starts_with("COPY "), "{text}: {said}");
    }
    assert!(talk.say("INSERT INTO town VALUES (9, 'a', 9)").starts_with("23505"));
    assert!(talk.say("INSERT INTO town VALUES (9, 'x', -9)").starts_with("23514"));
    assert!(talk.say("INSERT INTO pet VALUES (9, 99)").starts_with("23503"));
    assert_eq!(talk.good("DELETE FROM town WHERE id = 1"), "DELETE 1");
    assert_eq!(talk.good("SELECT * FROM pet ORDER BY id"), "2|2\n3|-");
    let valid = "SELECT count(*) FROM pg_constraint WHERE convalidated AND contype IN ('c', 'u', 'f')";
    assert_eq!(talk.good(valid), "4");
}

#[test]
fn what_is_not_kept_is_refused_by_name() {
    let (_cluster, service) = world();
    let (mut main, mut talk) = (Talk::new(&service), within(&service, "bank"));
    talk.good("CREATE TABLE town (id int PRIMARY KEY, code int UNIQUE)");
    main.good("CREATE TABLE bare (id int PRIMARY KEY, v int) WITH (partitions = 2)");
    for (text, name) in [
        ("CREATE TABLE t (id int PRIMARY KEY, v int UNIQUE) WITH (partitions = 2)", "UNIQUE"),
        ("CREATE TABLE t (id int PRIMARY KEY, v int CHECK (v > 0)) WITH (factor = 1)", "CHECK"),
        ("CREATE TABLE t (id int PRIMARY KEY, v int REFERENCES bare) WITH (log = disk)", "a foreign key"),
        ("CREATE TABLE t (id int PRIMARY KEY, v int REFERENCES bare)", "a foreign key to rows of \"bare\""),
        ("CREATE TABLE t (id int PRIMARY KEY, v int, FOREIGN KEY (v) REFERENCES bare)", "a foreign key"),
        ("CREATE UNIQUE INDEX ON bare (v)", "CREATE UNIQUE INDEX"),
        ("ALTER TABLE bare ADD CONSTRAINT c CHECK (v > 0)", "CHECK"),
        ("ALTER TABLE bare ADD UNIQUE (v)", "UNIQUE"),
    ] {
        let said = main.say(text);
        assert!(said.starts_with("0A000") && said.contains(name), "{text}: {said}");
    }
    main.good(
        "CREATE TABLE noted (id int PRIMARY KEY, v int REFERENCES bare NOT ENFORCED) WITH (partitions = 2)",
    );
    for (text, code) in [
        ("CREATE TABLE t (id int PRIMARY KEY, v int, EXCLUDE USING gist (v WITH =))", "0A000"),
        ("ALTER TABLE town ADD CONSTRAINT e EXCLUDE USING gist (code WITH =)", "0A000"),
        ("CREATE TABLE t (id int PRIMARY KEY, v int, UNIQUE NULLS NOT DISTINCT (v))", "0A000"),
        ("CREATE TABLE t (id int PRIMARY KEY REFERENCES town ON DELETE SET NULL)", "0A000"),
        ("ALTER TABLE town DROP COLUMN id", "0A000"),
        ("ALTER TABLE town ALTER COLUMN code TYPE text USING (SELECT 'x')", "0A000"),
        ("ALTER TABLE town ADD CHECK (id IN (SELECT id FROM town))", "0A000"),
        ("ALTER TABLE town ADD COLUMN more int, ADD UNIQUE (id)", "0A000"),
        ("ALTER TABLE town DROP CONSTRAINT town_pkey CASCADE", "0A000"),
        ("CREATE TABLE t (id int PRIMARY KEY, v int REFERENCES bare)", "42P01"),
        ("CREATE INDEX ON town (abs(code))", "0A000"),
        ("CREATE INDEX ON town (code) WHERE code > 5", "0A000"),
        ("DROP INDEX town_pkey", "2BP01"),
        ("DROP INDEX nothing", "42704"),
    ] {
        let said = talk.say(text);
        assert!(said.starts_with(code), "{text}: {said}");
    }
}
