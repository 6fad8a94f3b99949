//! Unique values and references in databases of global transactions (PR-324, PR-325, PR-360, PR-369).

use crate::common::Cluster;
use crate::common::talk::{Behind, Talk, service};
use client::{Client, ClientError};
use std::thread;
use types::data::{Row, Value};

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
    one.good("CREATE TABLE town (id int PRIMARY KEY, code text UNIQUE, twin text REFERENCES town (code))");
    one.good("INSERT INTO town (id, code) SELECT n, 'c' || n FROM generate_series(1, 40) AS s(n)");
    one.good("CREATE TABLE shop (id int PRIMARY KEY, town text REFERENCES town (code))");
    (cluster, services)
}

#[test]
fn pr369_references_to_unique_values_reach_over_all_partitions() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    one.good("INSERT INTO town VALUES (41, 'c41', 'c41'), (42, 'c42', 'c41'), (43, NULL, NULL)");
    two.good("INSERT INTO shop SELECT n, 'c' || n FROM generate_series(1, 10) AS s(n)");
    two.good("INSERT INTO shop VALUES (11, NULL)");
    let wrong = [
        ("INSERT INTO shop VALUES (50, 'c99')", "23503", "shop_town_fkey"),
        ("UPDATE shop SET town = 'c99' WHERE id = 1", "23503", "shop_town_fkey"),
        ("INSERT INTO town VALUES (50, 'c50', 'c51')", "23503", "town_twin_fkey"),
        ("BEGIN; INSERT INTO shop VALUES (50, 'c99')", "23503", "shop_town_fkey"),
        ("DELETE FROM town WHERE id = 7", "23503", "shop_town_fkey"),
        ("DELETE FROM town WHERE id = 41", "23503", "town_twin_fkey"),
        ("UPDATE town SET code = 'x' WHERE id = 7", "23503", "shop_town_fkey"),
        ("UPDATE town SET code = NULL WHERE id = 7", "23503", "shop_town_fkey"),
        ("BEGIN; DELETE FROM town WHERE id = 7; COMMIT", "23503", "shop_town_fkey"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; DELETE FROM town WHERE id = 7; COMMIT", "23503", "shop"),
    ];
    one.refused(&wrong);
    // What is referred to may come with what refers, and go with it; rows may change their values among
    // themselves; and what is locked is written as it is.
    for text in
        ["BEGIN", "INSERT INTO town VALUES (50, 'c50')", "INSERT INTO shop VALUES (50, 'c50')", "COMMIT"]
    {
        one.good(text);
    }
    for text in ["BEGIN", "DELETE FROM shop WHERE id = 50", "DELETE FROM town WHERE id = 50", "COMMIT"] {
        one.good(text);
    }
    one.good("UPDATE town SET code = CASE id WHEN 1 THEN 'c2' ELSE 'c1' END WHERE id IN (1, 2)");
    assert_eq!(two.good("SELECT code FROM town WHERE id = 1"), "c2");
    two.good("UPDATE town SET twin = 'c4' WHERE id IN (7, 8)");
    one.good("BEGIN");
    assert_eq!(one.good("SELECT id FROM shop WHERE id = 3 FOR UPDATE"), "3");
    one.good("UPDATE town SET twin = 'c41' WHERE id = 30");
    one.good("COMMIT");
    two.refused(&[("DELETE FROM town WHERE id = 1", "23503", "shop_town_fkey")]);
    // A table with rows comes to refer.
    one.good("CREATE TABLE late (id int PRIMARY KEY, town text)");
    one.good("INSERT INTO late VALUES (1, 'c35'), (2, 'c98')");
    let add = "ALTER TABLE late ADD FOREIGN KEY (town) REFERENCES town (code)";
    one.refused(&[(add, "23503", "late_town_fkey")]);
    one.good("DELETE FROM late WHERE id = 2");
    one.good(add);
    two.refused(&[("DELETE FROM town WHERE id = 35", "23503", "late_town_fkey")]);
}

#[test]
fn pr369_what_follows_for_rows_that_refer_to_unique_values_is_done() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    one.good(
        "CREATE TABLE street (id int PRIMARY KEY, town text NOT NULL REFERENCES town (code) \
         ON DELETE CASCADE ON UPDATE CASCADE)",
    );
    one.good(
        "CREATE TABLE flag (id int PRIMARY KEY, town text REFERENCES town (code) \
         ON DELETE SET NULL ON UPDATE SET NULL)",
    );
    one.good("INSERT INTO street SELECT n, 'c' || n FROM generate_series(11, 20) AS s(n)");
    one.good("INSERT INTO flag SELECT n, 'c' || n FROM generate_series(21, 30) AS s(n)");
    assert_eq!(two.good("DELETE FROM town WHERE id = 11"), "DELETE 1");
    assert_eq!(two.good("SELECT count(*) FROM street"), "9");
    two.good("UPDATE town SET code = 'new' WHERE id = 12");
    assert_eq!(one.good("SELECT town FROM street WHERE id = 12"), "new");
    two.good("DELETE FROM town WHERE id = 21");
    two.good("UPDATE town SET code = 'other' WHERE id = 22");
    assert_eq!(
        one.good("SELECT string_agg(id::text, ' ' ORDER BY id) FROM flag WHERE town IS NULL"),
        "21 22"
    );
    for text in ["BEGIN", "DELETE FROM town WHERE id IN (13, 23)", "INSERT INTO town VALUES (60, 'c13')"] {
        one.good(text);
    }
    one.good("COMMIT");
    assert_eq!(two.good("SELECT (SELECT count(*) FROM street) + (SELECT count(*) FROM flag)"), "18");
}

/// A row that came to refer meanwhile would have gone with the other one, or would refer to nothing. So
/// nothing is violated, and who begins again has that follow.
#[test]
fn a_row_that_came_meanwhile_and_would_have_followed_violates_nothing() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    one.good(
        "CREATE TABLE street (id int PRIMARY KEY, town text REFERENCES town (code) \
         ON DELETE CASCADE ON UPDATE CASCADE)",
    );
    one.good("CREATE TABLE flag (id int PRIMARY KEY, town int REFERENCES town (id) ON DELETE SET NULL)");
    for (comes, goes) in [
        ("INSERT INTO street VALUES (1, 'c1')", "DELETE FROM town WHERE id = 1"),
        ("INSERT INTO street VALUES (2, 'c2')", "UPDATE town SET code = 'x' WHERE id = 2"),
        ("INSERT INTO flag VALUES (3, 3)", "DELETE FROM town WHERE id = 3"),
        ("UPDATE flag SET town = 4 WHERE id = 3", "DELETE FROM town WHERE id = 4"),
    ] {
        one.good("BEGIN");
        one.good(goes);
        two.good(comes);
        let began = std::time::Instant::now();
        let said = one.say("COMMIT");
        assert!(said.starts_with("40001"), "{goes}: {said}");
        assert!(began.elapsed() < std::time::Duration::from_secs(4), "it is told at once");
        one.good(goes);
    }
    assert_eq!(two.good("SELECT string_agg(town, ' ' ORDER BY id) FROM street"), "x");
    assert_eq!(two.good("SELECT count(*) FROM flag WHERE town IS NULL"), "1");
    // What the transaction writes itself stands against it whenever it begins again; and nothing follows
    // where the foreign key does not say so.
    one.refused(&[(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; DELETE FROM town WHERE id = 5; \
         INSERT INTO flag VALUES (5, 5); COMMIT",
        "23503",
        "flag_town_fkey",
    )]);
    one.good("BEGIN");
    one.good("DELETE FROM town WHERE id = 6");
    two.good("INSERT INTO shop VALUES (6, 'c6')");
    one.refused(&[("COMMIT", "23503", "shop_town_fkey")]);
}

/// A row that was there before its foreign key, which is not valid, may refer to nothing.
#[test]
fn a_row_that_refers_to_nothing_by_a_foreign_key_that_is_not_valid_is_locked() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    one.good("CREATE TABLE late (id int PRIMARY KEY, town text)");
    one.good("INSERT INTO late VALUES (1, 'c1'), (2, 'nowhere'), (3, 'nowhere')");
    one.good("ALTER TABLE late ADD CONSTRAINT lies FOREIGN KEY (town) REFERENCES town (code) NOT VALID");
    for strength in ["UPDATE", "SHARE"] {
        one.good("BEGIN");
        assert_eq!(one.good(&format!("SELECT id FROM late ORDER BY id FOR {strength}")), "1\n2\n3");
        one.good("UPDATE town SET twin = 'c2' WHERE id = 5");
        one.good("COMMIT");
    }
    one.refused(&[("UPDATE late SET town = 'nowhere' WHERE id = 1", "23503", "lies")]);
    // It is locked: who changes it meanwhile is seen.
    one.good("BEGIN");
    assert_eq!(one.good("SELECT id FROM late WHERE id = 2 FOR UPDATE"), "2");
    two.good("UPDATE late SET town = 'c3' WHERE id = 2");
    let said = one.say("COMMIT");
    assert!(said.starts_with("40001"), "{said}");
    two.refused(&[("DELETE FROM town WHERE id = 3", "23503", "lies")]);
}

/// Only who changes what a row refers to must find it, where the foreign key is not valid.
#[test]
fn other_columns_of_a_row_that_refers_to_nothing_are_changed() {
    let (_cluster, services) = world();
    let mut one = within(&services[0]);
    one.good("CREATE TABLE late (id int PRIMARY KEY, town text, number int, note text)");
    one.good("INSERT INTO late VALUES (1, 'c1', 1, 'a'), (2, 'nowhere', 99, 'b')");
    one.good("ALTER TABLE late ADD CONSTRAINT lies FOREIGN KEY (town) REFERENCES town (code) NOT VALID");
    one.good("ALTER TABLE late ADD CONSTRAINT errs FOREIGN KEY (number) REFERENCES town NOT VALID");
    one.good("UPDATE late SET note = note || '!'");
    one.good("UPDATE late SET town = 'nowhere', number = 99 WHERE id = 2");
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        one.good(&format!("BEGIN ISOLATION LEVEL {isolation}"));
        one.good("UPDATE late SET note = note || '?' WHERE id = 2");
        one.good("COMMIT");
    }
    assert_eq!(one.good("SELECT note FROM late WHERE id = 2"), "b!??");
    one.refused(&[
        ("UPDATE late SET town = 'nowhere' WHERE id = 1", "23503", "lies"),
        ("UPDATE late SET number = 99 WHERE id = 1", "23503", "errs"),
        ("UPDATE late SET number = 98 WHERE id = 2", "23503", "errs"),
        ("INSERT INTO late VALUES (3, 'nowhere', 1, 'c')", "23503", "lies"),
        ("INSERT INTO late VALUES (3, 'c1', 99, 'c')", "23503", "errs"),
        ("BEGIN; UPDATE late SET number = 98, note = 'x'; COMMIT", "23503", "errs"),
        ("ALTER TABLE late VALIDATE CONSTRAINT errs", "23503", "errs"),
    ]);
    one.good("UPDATE late SET town = 'c2', number = 2 WHERE id = 2");
    one.refused(&[("UPDATE late SET town = 'nowhere' WHERE id = 2", "23503", "lies")]);
    one.good("ALTER TABLE late VALIDATE CONSTRAINT errs");
    one.refused(&[("DELETE FROM town WHERE id = 2", "23503", "late")]);
}

/// Who comes second is told so: a row that refers comes, or the value that it refers to goes.
#[test]
fn pr369_one_of_a_reference_and_a_removal_is_committed() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    let told = |said: &str| said.starts_with("23503") || said.starts_with("40001");
    for (at, goes) in
        ["DELETE FROM town WHERE id = ", "UPDATE town SET code = NULL WHERE id = "].into_iter().enumerate()
    {
        let (first, second) = (at * 2 + 1, at * 2 + 2);
        one.good("BEGIN");
        one.good(&format!("INSERT INTO shop VALUES ({first}, 'c{first}')"));
        two.good(&format!("{goes}{first}"));
        let said = one.say("COMMIT");
        assert!(told(&said), "{said}");
        one.good("BEGIN");
        one.good(&format!("{goes}{second}"));
        two.good(&format!("INSERT INTO shop VALUES ({second}, 'c{second}')"));
        let said = one.say("COMMIT");
        assert!(told(&said), "{said}");
    }
    assert_eq!(one.good("SELECT string_agg(town, ' ' ORDER BY id) FROM shop"), "c2 c4");
    // Sessions that see nothing of each other.
    one.good("DELETE FROM shop");
    one.good("INSERT INTO town (id, code) SELECT n, 'n' || n FROM generate_series(101, 140) AS s(n)");
    thread::scope(|scope| {
        for session in 0..3 {
            let mut talk = within(&services[session % 2]);
            scope.spawn(move || {
                for step in 101..=140 {
                    let text = match session {
                        0 => format!("INSERT INTO shop VALUES ({step}, 'n{step}')"),
                        1 => format!("DELETE FROM town WHERE id = {step}"),
                        _ => format!("UPDATE town SET code = 'x{step}' WHERE id = {step}"),
                    };
                    let said = talk.say(&text);
                    let expected = ["INSERT", "DELETE", "UPDATE", "23503", "40001"];
                    assert!(expected.iter().any(|one| said.starts_with(one)), "{text}: {said}");
                }
            });
        }
    });
    let orphans = "SELECT count(*) FROM shop s WHERE NOT EXISTS (SELECT 1 FROM town t WHERE t.code = s.town)";
    assert_eq!(one.good(orphans), "0");
    // Each of them was decided: the shop is there, or its town is not there under this name.
    let kept = "SELECT (SELECT count(*) FROM shop) - (SELECT count(*) FROM town WHERE code LIKE 'n%')";
    assert_eq!(one.good(kept), "0");
}

/// The native client tells the manager what it has found, too.
#[test]
fn pr369_the_native_client_names_what_its_rows_refer_to() {
    let (cluster, _services) = world();
    let (mut client, mut other) = (cluster.client(), cluster.client());
    let [town, shop] = ["ledger.town", "ledger.shop"].map(|name| client.table(name).expect("there"));
    let database = client.database("ledger").expect("there");
    let text = |text: &str| if text.is_empty() { Value::Null } else { Value::Text(text.into()) };
    let town_row = |id: i64, code: &str, twin: &str| Row::new(vec![Value::Int(id), text(code), text(twin)]);
    let shop_row = |id: i64, town: &str| Row::new(vec![Value::Int(id), text(town)]);
    client.put(&shop, &shop_row(1, "c1")).expect("there is such a town");
    client.put(&town, &town_row(1, "c1", "c2")).expect("it has its code still");
    let wrong = [
        client.put(&shop, &shop_row(2, "c99")).map(drop),
        client.put(&town, &town_row(1, "x", "")).map(drop),
        client.put(&town, &town_row(2, "", "")).map(drop),
        client.delete(&town, &[Value::Int(1)]).map(drop),
        client.delete(&town, &[Value::Int(2)]).map(drop),
    ];
    for (at, said) in wrong.iter().enumerate() {
        assert!(matches!(said, Err(ClientError::Violates(_))), "{at}: {said:?}");
    }
    let both = |_: &mut Client, transaction: &mut client::Transaction| {
        transaction.put(&shop, &shop_row(50, "c50"))?;
        transaction.put(&town, &town_row(50, "c50", "c50"))?;
        transaction.delete(&shop, &[Value::Int(1)])?;
        transaction.delete(&town, &[Value::Int(1)])
    };
    client.transact(&database, both).expect("all of it fits");
    // Who comes second is told so.
    let mut late = client.begin(&database).expect("begun");
    late.put(&shop, &shop_row(3, "c3")).expect("a row");
    assert_eq!(other.delete(&town, &[Value::Int(3)]), Ok(true));
    assert!(matches!(client.commit(late), Err(ClientError::Violates(_))), "its town is gone");
    let mut late = client.begin(&database).expect("begun");
    late.delete(&town, &[Value::Int(4)]).expect("a key");
    other.put(&shop, &shop_row(4, "c4")).expect("its town is there");
    assert!(matches!(client.commit(late), Err(ClientError::Violates(_))), "a shop came");
}

/// Values that are unique, and rows that others refer to, wherever they lie (PR-324, PR-325).
#[test]
fn unique_values_and_references_reach_over_all_partitions() {
    let (cluster, [service, _]) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    one.good("CREATE TABLE person (id int PRIMARY KEY, name text UNIQUE, boss int REFERENCES person)");
    one.good(
        "CREATE TABLE letter (id int PRIMARY KEY, recipient int NOT NULL REFERENCES person ON DELETE CASCADE, \
         carbon int REFERENCES person ON DELETE SET NULL)",
    );
    one.good("INSERT INTO person SELECT n, 'p' || n, NULL FROM generate_series(1, 40) AS s(n)");
    two.good("INSERT INTO person VALUES (41, NULL, 1), (42, NULL, 41)");
    one.good("INSERT INTO letter SELECT n, n, n + 1 FROM generate_series(1, 20) AS s(n)");
    let wrong = [
        ("INSERT INTO person VALUES (50, 'p7')", "23505", "person_name_key"),
        ("INSERT INTO person VALUES (50, 'x'), (51, 'x')", "23505", "person_name_key"),
        ("UPDATE person SET name = 'p9' WHERE id = 8", "23505", "person_name_key"),
        ("INSERT INTO person VALUES (50, 'x', 60)", "23503", "person_boss_fkey"),
        ("INSERT INTO letter VALUES (50, 60)", "23503", "letter_recipient_fkey"),
        ("UPDATE letter SET recipient = 60 WHERE id = 1", "23503", "letter_recipient_fkey"),
        ("DELETE FROM person WHERE id = 41", "23503", "person_boss_fkey"),
        ("BEGIN; INSERT INTO person VALUES (50, 'p7')", "23505", "person_name_key"),
        ("BEGIN; DELETE FROM person WHERE id = 41", "23503", "person_boss_fkey"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO person VALUES (50, 'p7'); COMMIT", "23505", ""),
    ];
    one.refused(&wrong);
    // Rows may change their values among themselves, and what refers goes with what it refers to.
    one.good("UPDATE person SET name = CASE id WHEN 1 THEN 'p2' ELSE 'p1' END WHERE id IN (1, 2)");
    assert_eq!(two.good("SELECT name FROM person WHERE id = 1"), "p2");
    assert_eq!(two.good("INSERT INTO person VALUES (60, 'p2') ON CONFLICT (name) DO NOTHING"), "INSERT 0 0");
    let upsert =
        "INSERT INTO person VALUES (60, 'p2') ON CONFLICT (name) DO UPDATE SET boss = 3 RETURNING id";
    assert_eq!(two.good(upsert), "1");
    assert_eq!(one.good("DELETE FROM person WHERE id = 20"), "DELETE 1");
    assert_eq!(one.good("SELECT count(*) FROM letter WHERE id = 20"), "0");
    assert_eq!(one.good("SELECT carbon IS NULL FROM letter WHERE id = 19"), "t");
    one.good("BEGIN");
    one.good("DELETE FROM person WHERE id IN (41, 42)");
    one.good("INSERT INTO person VALUES (43, 'p20', 1)");
    one.good("COMMIT");
    // Rows of the transaction's own hide no other one, however many they are.
    one.good("INSERT INTO person SELECT n, NULL, 30 FROM generate_series(1000, 1400) AS s(n)");
    for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"] {
        one.good(begin);
        one.good("UPDATE person SET boss = 31 WHERE id BETWEEN 1000 AND 1399");
        let said = match one.say("DELETE FROM person WHERE id = 30") {
            said if said.starts_with("DELETE") => one.say("COMMIT"),
            said => said,
        };
        assert!(said.starts_with("23503"), "{begin}: {said}");
        one.say("ROLLBACK");
    }
    one.good("BEGIN");
    one.good("UPDATE person SET boss = 31 WHERE id BETWEEN 1000 AND 1400");
    one.good("DELETE FROM person WHERE id = 30");
    one.good("COMMIT");
    natively(&cluster, &mut one);
}

/// The native client looks as well. What follows for rows that refer stays with SQL.
fn natively(cluster: &Cluster, one: &mut Talk) {
    let mut client = cluster.client();
    let person = client.table("ledger.person").expect("there");
    let row = |id: i64, name: Option<&str>, boss: Option<i64>| {
        let name = name.map_or(Value::Null, |name| Value::Text(name.into()));
        Row::new(vec![Value::Int(id), name, boss.map_or(Value::Null, Value::Int)])
    };
    client.put(&person, &row(70, None, None)).expect("it claims nothing");
    client.put(&person, &row(71, Some("p71"), Some(70))).expect("nothing is against it");
    for wrong in [row(72, Some("p7"), None), row(71, Some("p7"), None), row(72, None, Some(9999))] {
        let said = client.put(&person, &wrong);
        assert!(matches!(said, Err(client::ClientError::Violates(_))), "{wrong:?}: {said:?}");
    }
    let said = client.delete(&person, &[Value::Int(70)]);
    assert!(matches!(said, Err(client::ClientError::Violates(_))), "{said:?}");
    let said = client.delete(&person, &[Value::Int(5)]).expect_err("letters refer to it").to_string();
    assert!(said.contains("write it by SQL"), "{said}");
    assert_eq!(client.delete(&person, &[Value::Int(71)]), Ok(true));
    assert_eq!(client.delete(&person, &[Value::Int(70)]), Ok(true));
    assert_eq!(one.good("SELECT count(*) FROM person WHERE id >= 70 AND id < 1000"), "0");
}

/// Sessions that see nothing of each other: who commits first has the value, and what is referred to stays.
#[test]
fn sessions_race_for_unique_values_and_for_parents() {
    let (_cluster, [service, _]) = world();
    let mut one = within(&service);
    one.good("CREATE TABLE parent (id int PRIMARY KEY)");
    one.good("CREATE TABLE child (id int PRIMARY KEY, name text UNIQUE, parent int REFERENCES parent)");
    one.good("INSERT INTO parent SELECT n FROM generate_series(1, 200) AS s(n)");
    thread::scope(|scope| {
        for session in 0..4 {
            let mut talk = within(&service);
            scope.spawn(move || {
                for step in 1..=50 {
                    let parent = step * 4;
                    // All four want the same name, two of them a row of the same parent, and two remove it.
                    let text = match session % 2 {
                        0 => format!("INSERT INTO child VALUES ({session}{step:03}, 'n{step}', {parent})"),
                        _ => format!("DELETE FROM parent WHERE id = {parent}"),
                    };
                    let said = talk.say(&text);
                    let told = ["INSERT", "DELETE", "23505", "23503", "40001"];
                    assert!(told.iter().any(|one| said.starts_with(one)), "{said}");
                    let name = format!("INSERT INTO child VALUES ({session}{step:03}9, 'm{step}', NULL)");
                    let said = talk.say(&name);
                    assert!(["INSERT", "23505", "40001"].iter().any(|one| said.starts_with(one)), "{said}");
                }
            });
        }
    });
    let orphans = "SELECT count(*) FROM child c WHERE parent IS NOT NULL AND NOT EXISTS (SELECT 1 FROM parent p WHERE p.id = c.parent)";
    assert_eq!(one.good(orphans), "0");
    assert_eq!(one.good("SELECT count(*) - count(DISTINCT name) FROM child"), "0");
    assert_eq!(one.good("SELECT count(*) FROM child WHERE name LIKE 'm%'"), "50");
}

/// One partition is what a database has unless it asks for more.
/// ON CONFLICT in a transaction over all partitions: what it would have met if it had come earlier.
#[test]
fn values_that_came_behind_the_look_of_on_conflict_have_the_transaction_begin_again() {
    let (_cluster, services) = world();
    let (mut one, mut two) = (within(&services[0]), within(&services[1]));
    let mut id = 100;
    for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"] {
        for (conflict, code) in [("ON CONFLICT (code) DO NOTHING", "40001"), ("", "23505")] {
            id += 10;
            one.good(begin);
            one.good(&format!("INSERT INTO town (id, code) VALUES ({id}, 'n{id}') {conflict}"));
            two.good(&format!("INSERT INTO town (id, code) VALUES ({}, 'n{id}')", id + 1));
            let said = one.say("COMMIT");
            assert!(said.starts_with(code), "{begin}: {conflict}: {said}");
        }
    }
}

#[test]
fn pr360_a_global_database_of_one_partition_keeps_constraints_and_makes_tables_in_transactions() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE ledger WITH (transactions = global, factor = 3)");
    let (mut one, mut two) = (within(&service), within(&service));
    one.good("CREATE TABLE person (id int PRIMARY KEY, name text UNIQUE)");
    one.good("CREATE TABLE letter (id int PRIMARY KEY, recipient int NOT NULL REFERENCES person)");
    one.good("INSERT INTO person SELECT n, 'p' || n FROM generate_series(1, 10) AS s(n)");
    two.good("INSERT INTO letter VALUES (1, 1), (2, 9)");
    let wrong = [
        ("INSERT INTO person VALUES (50, 'p7')", "23505", "person_name_key"),
        ("INSERT INTO letter VALUES (50, 60)", "23503", "letter_recipient_fkey"),
        ("DELETE FROM person WHERE id = 9", "23503", "letter_recipient_fkey"),
        ("BEGIN; INSERT INTO person VALUES (50, 'p7'); COMMIT", "23505", "person_name_key"),
        ("BEGIN; DELETE FROM letter; CREATE TABLE t (id int PRIMARY KEY)", "25001", "written"),
    ];
    one.refused(&wrong);
    // Tables are made at once, as in a database of several partitions, and rows are the transaction's.
    for text in ["BEGIN", "CREATE TABLE note (id int PRIMARY KEY, letter int REFERENCES letter)"] {
        one.good(text);
    }
    one.good("INSERT INTO note VALUES (1, 2), (2, NULL)");
    assert_eq!(two.good("SELECT count(*) FROM note"), "0");
    one.good("UPDATE person SET name = 'n' WHERE id = 3");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT count(*) FROM note"), "2");
    two.refused(&[("DELETE FROM letter WHERE id = 2", "23503", "note_letter_fkey")]);
    one.good("ALTER TABLE note ADD COLUMN memo text UNIQUE");
    one.good("UPDATE note SET memo = 'm' WHERE id = 1");
    two.refused(&[("UPDATE note SET memo = 'm' WHERE id = 2", "23505", "note_memo_key")]);
    one.good("DROP TABLE note");
    assert_eq!(two.good("DELETE FROM letter WHERE id = 2"), "DELETE 1");
}
