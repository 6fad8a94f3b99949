//! CREATE, ALTER and DROP DATABASE on a cluster of this process: how a database is kept, its name, and who is
//! in it.

mod common;

use client::Client;
use common::Cluster;
use common::talk::{Talk, service};
use wire::RecordText;
use wire::control::{AdminCommand, ClusterStatus};

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// What the records say of a database's partitions: the policy in force, and how many copies are in sync.
fn kept(client: &mut Client, database: &str) -> Vec<(String, usize)> {
    let id = client.database(database).expect("it is there").id();
    let status = client.admin(AdminCommand::Status).expect("told");
    let status: ClusterStatus = RecordText(status).read().expect("a status");
    let of_it = status.partitions.iter().filter(|record| record.table == id);
    of_it.map(|record| (record.policy.name.clone(), record.in_sync.len())).collect()
}

#[test]
fn a_database_is_altered_while_it_serves() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE DATABASE bank WITH (policy = semi, factor = 2)");
    main.good(
        "CREATE DATABASE wide WITH (partitions = 2, partition_by = '(w)', policy = durable, factor = 2)",
    );
    let mut bank = within(&service, "bank");
    bank.good("CREATE TABLE t (id int PRIMARY KEY)");
    let mut client = cluster.client();
    assert_eq!(kept(&mut client, "bank"), [("semi".to_string(), 2)]);
    assert_eq!(main.good("ALTER DATABASE bank SET (policy = sync, factor = 3)"), "ALTER DATABASE");
    // It is told when every partition has it, of a database of several as well, and from within.
    assert_eq!(kept(&mut client, "bank"), [("sync".to_string(), 3)]);
    main.good("ALTER DATABASE wide SET (policy = sync, factor = 3)");
    assert_eq!(kept(&mut client, "wide"), vec![("sync".to_string(), 3); 2]);
    bank.good("ALTER DATABASE bank SET (policy = durable)");
    assert_eq!(kept(&mut client, "bank"), [("durable".to_string(), 3)]);
    bank.good("INSERT INTO t VALUES (1)");
    // The one that is always there has no record before it is needed.
    main.good("ALTER DATABASE understudy SET (policy = sync)");
    main.good("CREATE TABLE first (id int PRIMARY KEY)");
    assert_eq!(kept(&mut cluster.client(), "understudy"), [("sync".to_string(), 3)]);
    let too_many = "wants 4 copies, but only 3 nodes are live";
    main.refused(&[
        ("ALTER DATABASE nothing SET (policy = sync)", "3D000", "\"nothing\" does not exist"),
        ("ALTER DATABASE bank SET (factor = 4)", "53000", too_many),
        ("ALTER DATABASE bank SET (policy = quick)", "22023", "quick"),
        ("ALTER DATABASE bank SET (partitions = 2)", "0A000", "changing partitions"),
        ("ALTER DATABASE bank SET (speed = 2)", "22023", "unrecognized parameter \"speed\""),
        ("ALTER DATABASE bank SET TABLESPACE fast", "0A000", "SET TABLESPACE fast"),
        ("ALTER DATABASE bank SET default_transaction_read_only TO on", "0A000", "kept with a database"),
        ("BEGIN; ALTER DATABASE bank SET (policy = sync)", "25001", "ALTER DATABASE cannot run inside"),
    ]);
    assert_eq!(kept(&mut client, "bank"), [("durable".to_string(), 3)]);
    // What changes nothing is done anywhere, and said where somebody may count on it.
    main.notices();
    main.good("BEGIN; ALTER DATABASE bank OWNER TO understudy; COMMIT");
    assert_eq!(main.notices(), Vec::<String>::new());
    assert_eq!(main.good("ALTER DATABASE bank SET timezone TO 'UTC'"), "ALTER DATABASE");
    let told = main.notices();
    assert!(told.len() == 1 && told[0].starts_with("00000 parameters are not kept"), "{told:?}");
    assert!(main.say("ALTER DATABASE nothing OWNER TO understudy").starts_with("3D000"));
}

#[test]
fn a_database_gets_another_name_while_nobody_is_in_it() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE DATABASE bank");
    main.good("CREATE DATABASE other");
    main.refused(&[
        ("ALTER DATABASE nothing RENAME TO shop", "3D000", "\"nothing\" does not exist"),
        ("ALTER DATABASE bank RENAME TO other", "42P04", "\"other\" already exists"),
        ("ALTER DATABASE bank RENAME TO understudy", "42P04", "\"understudy\" already exists"),
        ("ALTER DATABASE understudy RENAME TO shop", "42501", "the cluster's own"),
        ("ALTER DATABASE bank RENAME TO \"a b\"", "22023", "not a database's name"),
    ]);
    let mut bank = within(&service, "bank");
    bank.good("CREATE TABLE t (id int PRIMARY KEY)");
    bank.good("INSERT INTO t VALUES (1)");
    bank.refused(&[("ALTER DATABASE bank RENAME TO shop", "0A000", "current database cannot be renamed")]);
    main.refused(&[("ALTER DATABASE bank RENAME TO shop", "55006", "is being accessed by other users")]);
    drop(bank);
    assert_eq!(main.good("ALTER DATABASE bank RENAME TO shop"), "ALTER DATABASE");
    assert_eq!(main.good("SELECT datname FROM pg_database ORDER BY 1"), "other\nshop\nunderstudy");
    assert_eq!(Talk::within(&service, "bank").map(drop).expect_err("gone").code, "3D000");
    let mut shop = within(&service, "shop");
    assert_eq!(shop.good("SELECT current_database()"), "shop");
    assert_eq!(shop.good("SELECT count(*) FROM t"), "1");
    drop(shop);
    // The name is free again.
    main.good("CREATE DATABASE bank");
    main.good("DROP DATABASE shop");
    assert_eq!(main.good("SELECT datname FROM pg_database ORDER BY 1"), "bank\nother\nunderstudy");
}
