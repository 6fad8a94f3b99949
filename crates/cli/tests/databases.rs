//! Databases from the command line, on a cluster of real processes.

mod common;

use common::{Cluster, Ran, eventually};
use serde_json::{Value, json};

/// What SQL says in a database, or outside of all with the name `understudy`.
fn sql(cluster: &Cluster, database: &str, statements: &str) -> Ran {
    cluster.run(&["sql", "--database", database, "--command", statements, "--timeout", "30s"])
}

fn good(cluster: &Cluster, database: &str, statements: &str) -> String {
    let ran = sql(cluster, database, statements);
    assert_eq!(ran.status, 0, "{statements}: {ran:?}");
    ran.out
}

/// The rows of a query, as JSON.
fn rows(cluster: &Cluster, database: &str, query: &str) -> Vec<Value> {
    let ran = cluster.ok(&["sql", "--database", database, "--command", query, "--json"]);
    ran.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn tables_of_a_database_are_made_used_changed_and_dropped() {
    let cluster = Cluster::start();
    let bank = cluster.json(&["database", "create", "bank"]);
    assert_eq!((&bank["partitions"], &bank["factor"]), (&1.into(), &3.into()), "{bank}");
    for name in ["accounts", "history"] {
        let create =
            ["table", "create", name, "--database", "bank", "--columns", "id:int,v:text", "--key", "id"];
        let made = cluster.json(&create);
        assert_eq!(made["table"], format!("bank.{name}"), "{made}");
    }
    let again = cluster.run(&[
        "table",
        "create",
        "history",
        "--database",
        "bank",
        "--columns",
        "k:int",
        "--key",
        "k",
    ]);
    assert_eq!((again.status, again.sentence()), (1, "table 'bank.history' exists already"));
    cluster.ok(&["put", "bank.accounts", "id=1", "v=one"]);
    cluster.ok(&["put", "bank.accounts", "id=3", "v=three"]);
    cluster.ok(&["put", "bank.history", "id=2", "v=two"]);
    // A scan without an end stops at the end of its table.
    assert_eq!(cluster.ok(&["scan", "bank.accounts", "--json"]).lines().count(), 2);
    assert_eq!(cluster.ok(&["scan", "bank.history", "--json"]).lines().count(), 1);
    assert_eq!(cluster.ok(&["count", "bank.accounts"]).trim(), "2");
    cluster.ok(&["table", "alter", "bank.accounts", "--add-column", "note:text"]);
    cluster.ok(&["put", "bank.accounts", "id=1", "v=one", "note=new"]);
    let row = cluster.json(&["get", "bank.accounts", "3"]);
    assert_eq!((&row["v"], &row["note"]), (&"three".into(), &serde_json::Value::Null), "{row}");
    let policy = cluster.run(&["table", "alter", "bank.accounts", "--policy", "sync"]);
    assert_eq!(policy.status, 2, "{policy:?}");
    cluster.ok(&["database", "alter", "bank", "--policy", "sync"]);
    assert!(cluster.ok(&["database", "list"]).contains("sync"));
    cluster.ok(&["dev", "kill", "1"]);
    assert_eq!(cluster.ok(&["count", "bank.accounts", "--timeout", "30s"]).trim(), "2");
    cluster.ok(&["table", "drop", "bank.history", "--yes", "--timeout", "30s"]);
    let listed = cluster.ok(&["table", "list", "--database", "bank", "--timeout", "30s"]);
    assert!(listed.contains("bank.accounts") && !listed.contains("bank.history"), "{listed}");
    let gone = cluster.run(&["get", "bank.history", "2"]);
    assert_eq!(gone.status, 3, "{gone:?}");
    let kept = cluster.run(&["database", "drop", "bank"]);
    assert_eq!(kept.status, 5, "{kept:?}");
    assert!(kept.sentence().contains("1 table and all its rows"), "{kept:?}");
    cluster.ok(&["database", "drop", "bank", "--yes"]);
    assert_eq!(cluster.run(&["count", "bank.accounts"]).status, 3);
}

#[test]
fn the_shared_partition_and_databases_of_several_partitions_are_used_from_the_command_line() {
    let cluster = Cluster::start();
    let sql = |text: &str| cluster.ok(&["sql", "--command", text]);
    sql("CREATE TABLE pets (id int PRIMARY KEY, name text UNIQUE)");
    sql("CREATE TABLE wide (id int PRIMARY KEY) WITH (partitions = 3)");
    sql("INSERT INTO pets VALUES (1, 'Rex'), (2, 'Tom')");
    assert_eq!(cluster.ok(&["count", "pets"]).trim(), "2");
    assert_eq!(cluster.json(&["get", "understudy.pets", "2"])["name"], "Tom");
    let taken = cluster.run(&["table", "create", "pets", "--columns", "id:int", "--key", "id"]);
    assert_eq!(taken.status, 1, "{taken:?}");
    let listed = cluster.ok(&["table", "list"]);
    assert!(listed.contains("wide") && listed.contains("1 table lies together in one partition"), "{listed}");
    assert!(cluster.ok(&["table", "list", "--database", "understudy"]).contains("understudy.pets"));
    assert!(cluster.ok(&["database", "list"]).contains("understudy"));
    cluster.ok(&["database", "alter", "understudy", "--policy", "sync"]);
    let kept = cluster.run(&["database", "drop", "understudy", "--yes"]);
    assert_eq!(
        (kept.status, kept.sentence()),
        (5, "database 'understudy' is always there: drop tables of it")
    );
    cluster.ok(&["table", "drop", "pets", "--yes"]);
    assert_eq!(cluster.run(&["count", "pets"]).status, 3);

    let shop = ["database", "create", "shop", "--partitions", "4", "--partition-by", "w_id"];
    let made = cluster.json(&shop);
    assert_eq!((&made["partitions"], &made["partition_by"][0]), (&4.into(), &"w_id".into()), "{made}");
    let table = |columns: &str, key: &str| {
        cluster.run(&["table", "create", "stock", "--database", "shop", "--columns", columns, "--key", key])
    };
    let wrong = table("item:int,w_id:int", "item,w_id");
    assert!(wrong.status == 2 && wrong.sentence().contains("must begin with w_id int"), "{wrong:?}");
    assert_eq!(table("item:int,w_id:int,n:int", "w_id,item").status, 0);
    for number in 1..=9 {
        cluster.ok(&["put", "shop.stock", &format!("w_id={number}"), "item=1", "n=5"]);
    }
    cluster.ok(&["table", "alter", "shop.stock", "--add-column", "note:text"]);
    cluster.ok(&["put", "shop.stock", "w_id=9", "item=1", "n=5", "note=new"]);
    assert_eq!(cluster.ok(&["count", "shop.stock"]).trim(), "9");
    assert_eq!(cluster.json(&["get", "shop.stock", "9", "1"])["note"], "new");
    for (options, says) in [
        (&["--partitions", "4"][..], "needs a partition key"),
        (&["--partition-by", "w"], "has no partition key"),
        (&["--partitions", "4", "--partition-by", "w", "--policy", "async"], "a failover may lose commits"),
    ] {
        let refused = cluster.run(&[&["database", "create", "other"], options].concat());
        assert!(refused.status == 2 && refused.sentence().contains(says), "{refused:?}");
    }
    cluster.ok(&["database", "drop", "shop", "--yes"]);
}

/// A database with all that one can have: a table of every kind of constraint, two that refer to each other,
/// rows of older columns, numbered rows, a sequence, a view, and a table without a key.
const BANK: &str = "
    CREATE TABLE towns (id serial PRIMARY KEY, code text UNIQUE, size int CHECK (size > 0));
    CREATE TABLE pets (id int PRIMARY KEY, town int REFERENCES towns ON DELETE CASCADE, name text NOT NULL, chief int);
    ALTER TABLE pets ADD CONSTRAINT chiefs FOREIGN KEY (chief) REFERENCES pets;
    CREATE INDEX pets_name ON pets (name);
    CREATE TABLE notes (what text);
    CREATE SEQUENCE tickets START WITH 100 INCREMENT BY 10;
    CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT nextval('tickets'), pet int REFERENCES pets);
    CREATE VIEW big AS SELECT code FROM towns WHERE size > 1;
    INSERT INTO towns (code, size) VALUES ('a', 1), ('b', 2), ('c', 3);
    INSERT INTO pets SELECT n, n % 3 + 1, 'pet ' || n, NULL FROM generate_series(1, 3000) AS s(n);
    UPDATE pets SET chief = 3000 WHERE id < 10;
    ALTER TABLE pets ADD COLUMN weight numeric NOT NULL DEFAULT 1.5;
    INSERT INTO pets VALUES (4000, 1, 'late', 1, 7);
    INSERT INTO notes VALUES ('x'), ('x');
    INSERT INTO orders (pet) VALUES (1), (2);
";

/// What is told of that database by statements whose answers say all of it.
fn told(cluster: &Cluster, database: &str) -> Vec<Value> {
    let queries = [
        "SELECT count(*) AS n, sum(weight) AS w, sum(chief) AS c, min(name) AS m FROM pets",
        "SELECT * FROM towns ORDER BY id",
        "SELECT code FROM big ORDER BY code",
        "SELECT id, pet FROM orders ORDER BY id",
        "SELECT count(*) AS notes FROM notes",
        "SELECT conname, contype, convalidated FROM pg_constraint ORDER BY conname",
        "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
        "SELECT sequencename, start_value, increment_by FROM pg_sequences ORDER BY 1",
    ];
    queries.iter().flat_map(|query| rows(cluster, database, query)).collect()
}

#[test]
fn a_database_is_backed_up_and_restored_as_a_whole() {
    let cluster = Cluster::start();
    good(&cluster, "understudy", "CREATE DATABASE bank");
    good(&cluster, "bank", BANK);
    let table = ["table", "create", "loose", "--columns", "id:int", "--key", "id"];
    cluster.ok(&table);
    cluster.ok(&["put", "loose", "id=1"]);
    let before = told(&cluster, "bank");
    let made = cluster.json(&["backup", "create", "b", "--timeout", "30s"]);
    let bank = json!({ "database": "bank", "tables": 4, "others": 3, "rows": 3008 });
    assert_eq!(made["databases"], json!([bank]), "{made}");
    let names: Vec<&str> =
        made["tables"].as_array().expect("a list").iter().filter_map(|t| t["table"].as_str()).collect();
    assert_eq!(names, ["loose", "bank.towns", "bank.pets", "bank.notes", "bank.orders"]);
    assert_eq!(cluster.json(&["backup", "list", "b"])["tables"], made["tables"]);
    assert_eq!(cluster.json(&["backup", "verify", "b"])["damaged"], json!([]));
    // A table of a database is nothing by itself.
    let alone = cluster.run(&["backup", "create", "c", "--tables", "bank.pets"]);
    assert!(alone.sentence().contains("backed up as a whole: --databases bank"), "{alone:?}");
    // Under another name, beside the one that it was.
    let copy =
        cluster.json(&["backup", "restore", "b", "--databases", "bank", "--as", "copy", "--timeout", "60s"]);
    assert_eq!(
        (&copy["databases"][0]["database"], &copy["replaced"]),
        (&"copy".into(), &json!([])),
        "{copy}"
    );
    assert_eq!(told(&cluster, "copy"), before);
    // Everything in it works on, and on its own numbers.
    let next = rows(&cluster, "copy", "INSERT INTO towns (code, size) VALUES ('d', 4) RETURNING id");
    let id = next[0]["id"].as_i64().expect("a number");
    assert!(id > 3, "a number that was given out: {id}");
    let ticket = rows(&cluster, "copy", "INSERT INTO orders (pet) VALUES (3) RETURNING id");
    assert!(
        ticket[0]["id"].as_i64().expect("a number") > 110 && ticket[0]["id"].as_i64().expect("one") % 10 == 0
    );
    for (wrong, code) in [
        ("INSERT INTO towns (code, size) VALUES ('a', 1)", "23505"),
        ("INSERT INTO towns (code, size) VALUES ('z', 0)", "23514"),
        ("INSERT INTO pets VALUES (1, 1, 'again', NULL)", "23505"),
        ("INSERT INTO pets VALUES (9999, 99, 'nowhere', NULL)", "23503"),
        ("DELETE FROM pets WHERE id = 3000", "23503"),
    ] {
        let ran = sql(&cluster, "copy", wrong);
        assert!(ran.status == 1 && ran.err.contains(code), "{wrong}: {ran:?}");
    }
    good(
        &cluster,
        "copy",
        "ALTER TABLE pets DROP COLUMN weight; DELETE FROM orders; DELETE FROM towns WHERE id = 3; DROP VIEW big",
    );
    assert_eq!(rows(&cluster, "copy", "SELECT count(*) AS n FROM pets")[0]["n"], 2001);
    assert_eq!(told(&cluster, "bank"), before, "the other one has nothing to do with it");
    // In the place of the one that it was, if that is meant.
    good(&cluster, "bank", "DROP TABLE orders; DELETE FROM pets");
    let refused = cluster.run(&["backup", "restore", "b"]);
    let sentence = "the tables `loose` and the databases `bank` exist already: --yes";
    assert!(refused.status == 5 && refused.sentence().starts_with(sentence), "{refused:?}");
    let back = cluster.json(&["backup", "restore", "b", "--yes", "--timeout", "60s"]);
    assert_eq!((&back["tables"], &back["replaced"]), (&made["tables"], &json!(["loose", "bank"])), "{back}");
    assert_eq!(told(&cluster, "bank"), before);
    // A copy of the copy is as good.
    cluster.ok(&["backup", "create", "c", "--databases", "bank", "--timeout", "30s"]);
    cluster.ok(&["backup", "restore", "c", "--as", "third", "--timeout", "60s"]);
    assert_eq!(told(&cluster, "third"), before);
}

#[test]
fn databases_of_several_partitions_and_the_shared_one_are_backed_up_and_restored() {
    let cluster = Cluster::start();
    good(&cluster, "understudy", "CREATE DATABASE shop WITH (partitions = 3, partition_by = '(w)')");
    let tables = "CREATE TABLE stock (w int, item int, n int, PRIMARY KEY (w, item));
        CREATE TABLE orders (w int, id int, item int, PRIMARY KEY (w, id), FOREIGN KEY (w, item) REFERENCES stock)";
    good(&cluster, "shop", tables);
    let shared = "CREATE TABLE pets (id int PRIMARY KEY, name text UNIQUE);
        INSERT INTO pets VALUES (1, 'Rex'), (2, 'Tom')";
    good(&cluster, "understudy", shared);
    for w in 1..=9 {
        let both = format!("INSERT INTO stock VALUES ({w}, 1, {w}); INSERT INTO orders VALUES ({w}, 7, 1)");
        good(&cluster, "shop", &both);
    }
    let told = |database: &str| {
        let queries = ["SELECT * FROM stock ORDER BY w", "SELECT * FROM orders ORDER BY w"];
        queries.iter().flat_map(|query| rows(&cluster, database, query)).collect::<Vec<Value>>()
    };
    let before = told("shop");
    cluster.ok(&["backup", "create", "b", "--timeout", "30s"]);
    cluster.ok(&["backup", "restore", "b", "--databases", "shop", "--as", "copy", "--timeout", "60s"]);
    assert_eq!(told("copy"), before);
    let orphan = sql(&cluster, "copy", "INSERT INTO orders VALUES (3, 8, 99)");
    assert!(orphan.status == 1 && orphan.err.contains("23503"), "{orphan:?}");
    good(&cluster, "copy", "INSERT INTO orders VALUES (3, 8, 1)");
    // What is always there is filled again, with the constraints that it had.
    good(
        &cluster,
        "understudy",
        "INSERT INTO pets VALUES (3, 'Kim'); CREATE TABLE more (id int PRIMARY KEY)",
    );
    let kept = cluster.run(&["backup", "restore", "b", "--databases", "understudy"]);
    assert_eq!(kept.status, 5, "{kept:?}");
    cluster.ok(&["backup", "restore", "b", "--databases", "understudy", "--yes", "--timeout", "60s"]);
    let pets = rows(&cluster, "understudy", "SELECT id, name FROM pets ORDER BY id");
    assert_eq!(pets, [json!({ "id": 1, "name": "Rex" }), json!({ "id": 2, "name": "Tom" })]);
    let taken = sql(&cluster, "understudy", "INSERT INTO pets VALUES (9, 'Tom')");
    assert!(taken.status == 1 && taken.err.contains("23505"), "{taken:?}");
    assert!(sql(&cluster, "understudy", "SELECT * FROM more").err.contains("42P01"));
}

#[test]
fn a_wrong_backup_of_a_database_changes_nothing() {
    let cluster = Cluster::start();
    good(&cluster, "understudy", "CREATE DATABASE bank");
    good(&cluster, "bank", BANK);
    cluster.ok(&["backup", "create", "b", "--timeout", "30s"]);
    let files: Vec<std::path::PathBuf> = std::fs::read_dir(cluster.path("b"))
        .expect("there")
        .map(|file| file.expect("readable").path())
        .filter(|file| file.to_string_lossy().contains("-t") || file.ends_with("MANIFEST"))
        .collect();
    assert_eq!(files.len(), 5, "{files:?}");
    for file in &files {
        let good = std::fs::read(file).expect("there");
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for bad in [&flipped[..], &good[..good.len() / 2], b""] {
            std::fs::write(file, bad).expect("writable");
            assert_eq!(cluster.run(&["backup", "verify", "b"]).status, 1, "{file:?}");
            let ran = cluster.run(&["backup", "restore", "b", "--yes"]);
            assert!(ran.status == 1 && ran.err.lines().count() == 1, "{file:?}: {ran:?}");
        }
        std::fs::write(file, &good).expect("writable");
    }
    // The rows of one table in the place of another's.
    let of: Vec<_> = files.iter().filter(|file| !file.ends_with("MANIFEST")).collect();
    let (one, other) = (std::fs::read(of[0]).expect("there"), std::fs::read(of[1]).expect("there"));
    std::fs::write(of[0], &other).expect("writable");
    std::fs::write(of[1], &one).expect("writable");
    assert_eq!(cluster.run(&["backup", "restore", "b", "--yes"]).status, 1);
    let named = cluster.run(&["backup", "restore", "b", "--databases", "nothing"]);
    assert_eq!((named.status, named.sentence()), (3, "the backup has no database `nothing`"));
    assert_eq!(rows(&cluster, "bank", "SELECT count(*) AS n FROM pets")[0]["n"], 3001);
}

#[test]
fn files_are_loaded_and_fed_into_tables_of_a_database() {
    let cluster = Cluster::start();
    good(&cluster, "understudy", "CREATE DATABASE bank");
    let tables = "CREATE TABLE towns (id int PRIMARY KEY, code text UNIQUE);
        CREATE TABLE pets (id int PRIMARY KEY, town int REFERENCES towns, name text);
        CREATE TABLE sound (id int PRIMARY KEY, n int CHECK (n > 0));
        CREATE VIEW seen AS SELECT * FROM pets";
    good(&cluster, "bank", tables);
    cluster.write("towns.csv", "id,code\n1,a\n2,b\n3,c\n");
    let pets: String = (1..=2_000).map(|id| format!("{id},{},pet {id}\n", id % 3 + 1)).collect();
    cluster.write("pets.csv", &format!("id,town,name\n{pets}"));
    let loaded = cluster.json(&["load", "towns.csv", "--table", "bank.towns"]);
    assert_eq!((&loaded["table"], &loaded["rows"]), (&"bank.towns".into(), &3.into()), "{loaded}");
    let job = cluster.json(&["load", "pets.csv", "--table", "bank.pets", "--job", "--insert"]);
    assert_eq!((&job["committed"], &job["rows"]), (&true.into(), &2_000.into()), "{job}");
    assert_eq!(cluster.ok(&["count", "bank.pets"]).trim(), "2000");
    let made = cluster.json(&["load", "pets.csv", "--table", "bank.more", "--create", "--key", "id"]);
    assert_eq!((&made["created"], &made["rows"]), (&true.into(), &2_000.into()), "{made}");
    // A record that is against a constraint ends a job, and those before it are in.
    let more: String =
        (3_001..=3_600).map(|id| format!("{id},{},x\n", if id == 3_500 { 9 } else { 1 })).collect();
    cluster.write("bad.csv", &format!("id,town,name\n{more}"));
    let ran = cluster.run(&["load", "bad.csv", "--table", "bank.pets", "--job", "--json"]);
    let said = "record 500 was refused: the constraint `pets_town_fkey` of table `pets` forbids it";
    assert!(ran.status == 1 && ran.sentence().contains(said), "{ran:?}");
    let report = ran.object();
    let refused = json!({ "record": 500, "partition": report["partitions"][0]["partition"], "reason": "violates", "constraint": "pets_town_fkey" });
    assert_eq!((&report["refused"], &report["ranges"]), (&refused, &json!([[1, 499]])), "{report}");
    assert_eq!(cluster.ok(&["count", "bank.pets"]).trim(), "2499");
    let ran = cluster.run(&["load", "bad.csv", "--table", "bank.pets"]);
    assert!(ran.status == 1 && ran.sentence().contains("the constraint `pets_town_fkey`"), "{ran:?}");
    for (table, said) in [
        ("bank.sound", "rows must keep the CHECK `sound_n_check`, which SQL alone looks at"),
        ("bank.seen", "it is a view and has no rows"),
        ("bank.nothing", "there is no table `bank.nothing`"),
        ("nothing.pets", "there is no database `nothing`"),
    ] {
        for words in [&["load", "pets.csv", "--table", table][..], &["ingest", "pets.csv", "--table", table]]
        {
            let ran = cluster.run(words);
            assert!(ran.status != 0 && ran.sentence().contains(said), "{words:?}: {ran:?}");
        }
    }
    let bulk = cluster.run(&["load", "pets.csv", "--table", "bank.pets", "--bulk"]);
    let said = "has constraints or indexes, which a bulk load does not look at";
    assert!(bulk.status == 1 && bulk.sentence().contains(said), "{bulk:?}");
    feeds(&cluster);
}

/// A file of rows with these keys, in this order.
fn numbered(ids: impl Iterator<Item = u32>, name: &str) -> String {
    let lines: String = ids.map(|id| format!("{id},{name}\n")).collect();
    format!("id,name\n{lines}")
}

/// What is in `ledger.accounts`: how many rows, and how many of this name.
fn accounts(cluster: &Cluster, name: &str) -> (Value, Value) {
    let count = |more: &str| {
        let query = format!("SELECT count(*) AS n FROM accounts {more}");
        rows(cluster, "ledger", &query)[0]["n"].clone()
    };
    (count(""), count(&format!("WHERE name = '{name}'")))
}

/// Rows of a file are committed by global transactions, also while a node is gone.
#[test]
fn a_file_is_loaded_by_global_transactions() {
    let cluster = Cluster::start();
    cluster.json(&["database", "create", "ledger", "--partitions", "4", "--transactions", "global"]);
    cluster.write("first.csv", &numbered((1..=5_000).chain([5]), "first"));
    let load = ["load", "first.csv", "--table", "ledger.accounts", "--create", "--key", "id"];
    let made = cluster.json(&load);
    assert_eq!((&made["created"], &made["rows"]), (&true.into(), &5_001.into()), "{made}");
    assert_eq!((&made["table"], &made["policy"]), (&"ledger.accounts".into(), &"durable".into()), "{made}");
    assert_eq!(accounts(&cluster, "first"), (5_000.into(), 5_000.into()));
    // A key that is there ends the load: what was committed before it is in, and nothing of its transaction.
    cluster.write("second.csv", &numbered((5_001..=7_500).chain([7]).chain(7_501..=9_000), "second"));
    let insert = ["load", "second.csv", "--table", "ledger.accounts", "--insert"];
    let ran = cluster.run(&insert);
    let (why, rest) = ran.sentence().split_once("; ").expect("what is in is said");
    assert_eq!(why, "record 2501 was refused: a row with its key exists already");
    assert_eq!((ran.status, rest), (1, "2000 rows are in, the rest is not"));
    assert_eq!(accounts(&cluster, "second"), (7_000.into(), 2_000.into()));
    let ran = cluster.run(&[&insert[..], &["--batch", "100"]].concat());
    assert!(ran.sentence().starts_with("record 1 was refused"), "{ran:?}");
    // Without it rows are replaced.
    cluster.ok(&["dev", "kill", "1"]);
    let again = cluster.json(&["load", "second.csv", "--table", "ledger.accounts", "--timeout", "30s"]);
    assert_eq!((&again["created"], &again["rows"]), (&false.into(), &4_001.into()), "{again}");
    let found = eventually("both are there", || {
        let ran = cluster.run(&["count", "ledger.accounts", "--timeout", "30s"]);
        (ran.status == 0).then(|| ran.out.trim().to_string())
    });
    assert_eq!(found, "9000");
    assert_eq!(cluster.json(&["get", "ledger.accounts", "7", "--timeout", "30s"])["name"], "second");
}

/// Rows come in bulk into a table that has no name until all of them are there.
#[test]
fn a_new_table_of_a_database_with_global_transactions_is_filled_in_bulk() {
    let cluster = Cluster::start();
    let create = ["database", "create", "ledger", "--partitions", "4", "--transactions", "global"];
    cluster.json(&[&create[..], &["--policy", "async"]].concat());
    cluster.write("first.csv", &numbered((1..=20_000).chain([5]), "first"));
    let load =
        ["load", "first.csv", "--table", "ledger.accounts", "--create", "--key", "id", "--timeout", "30s"];
    let bulk = [&load[..], &["--bulk"]].concat();
    let made = cluster.json(&bulk);
    assert_eq!((&made["created"], &made["rows"]), (&true.into(), &20_001.into()), "{made}");
    assert_eq!((&made["table"], &made["policy"]), (&"ledger.accounts".into(), &"async".into()), "{made}");
    assert_eq!(accounts(&cluster, "first"), (20_000.into(), 20_000.into()));
    // It is a table like any other, and transactions write it.
    cluster.ok(&["put", "ledger.accounts", "id=7", "name=second"]);
    good(&cluster, "ledger", "UPDATE accounts SET name = 'second' WHERE id = 8");
    assert_eq!(accounts(&cluster, "second"), (20_000.into(), 2.into()));
    let again = cluster.run(&bulk);
    assert!(again.status == 1 && again.sentence().contains("exists already"), "{again:?}");
    let into = cluster.run(&["load", "first.csv", "--table", "ledger.accounts", "--bulk"]);
    assert!(into.status == 5 && into.sentence().contains("is filled so with --create"), "{into:?}");
    // What cannot be a table leaves nothing behind.
    cluster.write("bad.csv", "id,name\n1,a\nx,b\n");
    let bad = ["load", "bad.csv", "--table", "ledger.none", "--create", "--key", "id", "--bulk"];
    let ran = cluster.run(&[&bad[..], &["--types", "id:int"]].concat());
    assert!(ran.status == 1 && ran.sentence().contains("nothing was loaded"), "{ran:?}");
    assert_eq!(cluster.run(&["count", "ledger.none"]).status, 3);
}

/// What global transactions of the client cannot do is refused before the file is read and anything is made.
#[test]
fn what_cannot_be_loaded_by_global_transactions_is_refused_at_once() {
    let cluster = Cluster::start();
    good(&cluster, "understudy", "CREATE DATABASE ledger WITH (partitions = 4, transactions = global)");
    let tables = "CREATE TABLE codes (id int PRIMARY KEY, name text UNIQUE);
        CREATE TABLE pets (id int PRIMARY KEY, name text, code int REFERENCES codes);
        CREATE TABLE plain (id int PRIMARY KEY, name text)";
    good(&cluster, "ledger", tables);
    cluster.write("bad.csv", "id,name\n1,a\nx,b\n");
    let constrained = "it has unique values or foreign keys, which a load does not look at: use COPY";
    for table in ["ledger.codes", "ledger.pets"] {
        let ran = cluster.run(&["load", "bad.csv", "--table", table]);
        assert!(ran.status == 1 && ran.sentence().ends_with(constrained), "{table}: {ran:?}");
        assert_eq!(cluster.ok(&["count", table]).trim(), "0");
    }
    let (job, feed, bulk) =
        ("load without --job", "use `understudy load`, COPY or SQL", "load without --bulk");
    for (words, remedy) in [
        (&["load", "bad.csv", "--table", "ledger.none", "--create", "--key", "id", "--job"][..], job),
        (&["load", "bad.csv", "--table", "ledger.plain", "--job", "--insert"], job),
        (&["load", "bad.csv", "--table", "ledger.plain", "--bulk"], bulk),
        (&["ingest", "bad.csv", "--table", "ledger.plain", "--on-error", "skip"], feed),
    ] {
        let ran = cluster.run(words);
        assert!(ran.status == 5 && ran.sentence().contains("by global transactions: "), "{words:?}: {ran:?}");
        assert!(ran.sentence().contains(remedy), "{words:?}: {ran:?}");
    }
    assert_eq!(cluster.run(&["count", "ledger.none"]).status, 3, "nothing was made");
    assert_eq!(cluster.ok(&["count", "ledger.plain"]).trim(), "0", "nothing was loaded");
    cluster.json(&["database", "create", "bank"]);
    let ran =
        cluster.run(&["load", "bad.csv", "--table", "bank.none", "--create", "--key", "id", "--insert"]);
    assert!(ran.status == 2 && ran.sentence().starts_with("--insert needs --job"), "{ran:?}");
}

/// One source into two tables: each has a position of its own, which a failover and other columns keep.
fn feeds(cluster: &Cluster) {
    good(
        cluster,
        "bank",
        "CREATE TABLE one (id int PRIMARY KEY, name text); CREATE TABLE two (id int PRIMARY KEY, name text)",
    );
    let lines = |ids: std::ops::RangeInclusive<u32>| {
        ids.map(|id| format!("{{\"id\":{id},\"name\":\"n\"}}\n")).collect::<String>()
    };
    cluster.write("feed.ndjson", &lines(1..=300));
    let feed = |table: &str| cluster.json(&["ingest", "feed.ndjson", "--table", table, "--timeout", "30s"]);
    for table in ["bank.one", "bank.two"] {
        let fed = feed(table);
        assert_eq!(
            (&fed["table"], &fed["rows"], &fed["already_in"]),
            (&table.into(), &300.into(), &0.into()),
            "{fed}"
        );
    }
    good(cluster, "bank", "ALTER TABLE one ADD COLUMN more int; DELETE FROM two WHERE id <= 100");
    cluster.write("feed.ndjson", &lines(1..=500));
    let leader = cluster.json(&["status"])["partitions"].as_array().and_then(|all| {
        all.iter().find(|one| one["table"] == "bank").and_then(|one| one["primary"].as_u64())
    });
    cluster.ok(&["dev", "kill", &leader.expect("a primary").to_string()]);
    let fed = feed("bank.one");
    assert_eq!(
        (&fed["rows"], &fed["already_in"], &fed["position"]),
        (&200.into(), &300.into(), &500.into()),
        "{fed}"
    );
    let fed = feed("bank.two");
    assert_eq!((&fed["rows"], &fed["already_in"]), (&200.into(), &300.into()), "{fed}");
    assert_eq!(cluster.ok(&["count", "bank.two", "--timeout", "30s"]).trim(), "400");
    // Another table of the name has no position.
    good(cluster, "bank", "DROP TABLE two; CREATE TABLE two (id int PRIMARY KEY, name text)");
    let fed = feed("bank.two");
    assert_eq!((&fed["rows"], &fed["already_in"]), (&500.into(), &0.into()), "{fed}");
    let both = eventually("both are there", || {
        let ran = cluster.run(&["count", "bank.one", "--timeout", "30s"]);
        (ran.status == 0).then(|| ran.out.trim().to_string())
    });
    assert_eq!(both, "500");
}

/// What does not fit is one line; what fits is shown, and a backup of it is made as it was.
#[test]
fn databases_are_spread_by_ranges() {
    let cluster = Cluster::start();
    let create = ["database", "create", "shop", "--partition-by", "w:text", "--partitions"];
    for (words, says) in [
        (&["3", "--ranges", "g"][..], "3 partitions have 2 bounds between them, not 1"),
        (&["3", "--ranges", "p,g"], "bounds ascend, and `g` does not come behind `p`"),
    ] {
        let refused = cluster.run(&[&create[..], words].concat());
        assert!(refused.status == 2 && refused.sentence().contains(says), "{refused:?}");
        assert_eq!(refused.err.lines().count(), 1, "{refused:?}");
    }
    let wrong = ["database", "create", "shop", "--partition-by", "w", "--partitions", "2", "--ranges", "x"];
    let refused = cluster.run(&wrong);
    let says = "`x` is no bound of `w`, which is of type int";
    assert!(refused.status == 2 && refused.sentence().contains(says), "{refused:?}");
    let made = cluster.json(&[&create[..], &["3", "--ranges", "g,p"]].concat());
    assert_eq!(made["ranges"], serde_json::json!(["g", "p"]), "{made}");
    assert!(cluster.ok(&["database", "list"]).contains("shop"));
    let table = ["table", "create", "goods", "--database", "shop", "--columns", "w:text,n:int", "--key", "w"];
    cluster.json(&table);
    for w in ["a", "f", "g", "o", "p", "z"] {
        cluster.ok(&["put", "shop.goods", &format!("w={w}"), "n=1"]);
    }
    assert_eq!(cluster.json(&["get", "shop.goods", "o"])["n"], 1);
    // Rows that every partition has are counted and backed up once.
    good(&cluster, "shop", "CREATE TABLE item (id int PRIMARY KEY) WITH (replicated = true)");
    good(&cluster, "shop", "INSERT INTO item VALUES (1), (2)");
    let listed = cluster.ok(&["table", "list", "--database", "shop", "--json"]);
    let replicated = |line: &&str| line.contains(r#""replicated":true"#);
    assert_eq!(listed.lines().filter(replicated).count(), 1, "{listed}");
    let put = cluster.run(&["put", "shop.item", "id=3"]);
    assert!(put.status != 0 && put.sentence().contains("it is in all partitions"), "{put:?}");
    cluster.ok(&["backup", "create", "b", "--timeout", "30s"]);
    cluster.ok(&["backup", "restore", "b", "--databases", "shop", "--as", "copy", "--timeout", "60s"]);
    assert_eq!(cluster.json(&["get", "copy.goods", "z"])["n"], 1);
    assert_eq!(cluster.ok(&["count", "copy.item"]).trim(), "2");
    good(&cluster, "copy", "INSERT INTO item VALUES (3)");
    assert_eq!(cluster.ok(&["scan", "copy.item", "--json"]).lines().count(), 3);
    let all = cluster.ok(&["database", "list", "--json"]);
    let restored = all.lines().find(|line| line.contains("copy")).expect("it is there");
    assert!(restored.contains(r#""ranges":["g","p"]"#), "{restored}");
}

#[test]
fn copies_of_a_database_go_where_a_file_says() {
    let cluster = Cluster::start();
    cluster.write("placement", "2 3\n3 1\n");
    let create = ["database", "create", "shop", "--partitions", "2", "--partition-by", "w", "--placement"];
    let made = cluster.json(&[&create[..], &["placement"]].concat());
    assert_eq!((&made["partitions"], &made["factor"]), (&2.into(), &2.into()), "{made}");
    let status = cluster.json(&["status"]);
    let all = status["partitions"].as_array().expect("a list");
    let of_it = all.iter().filter(|one| one["table"] == "shop");
    assert_eq!(of_it.map(|one| one["primary"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(3)], "{status}");
    cluster.write("few", "1 2\n");
    let wrong = cluster.run(&[&create[..], &["few"]].concat());
    assert!(wrong.status == 2 && wrong.sentence().contains("the placement has 1 partitions"), "{wrong:?}");
}
