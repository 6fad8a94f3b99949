//! What comes along with a table that moves: numbers and checks. On a cluster of this process.

mod common;

use common::Cluster;
use common::talk::{Talk, service};

#[test]
fn pr453_numbers_go_on_and_checks_are_kept_where_a_table_moves_to() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    one.good(
        "CREATE TABLE t (id serial PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, v int CHECK (v < 1000))",
    );
    one.good("CREATE TABLE odd (id int GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2) PRIMARY KEY)");
    one.good("CREATE SEQUENCE s");
    one.good("CREATE TABLE others (id int DEFAULT nextval('s') PRIMARY KEY)");
    one.good("CREATE TABLE twice (id int PRIMARY KEY, v int UNIQUE)");
    one.good("CREATE TABLE late (id int PRIMARY KEY, v int)");
    one.good("ALTER TABLE late ADD CONSTRAINT sometimes CHECK (v > 0) NOT VALID");
    one.refused(&[
        ("ALTER TABLE odd SET (partitions = 2)", "0A000", "steps of 1"),
        ("ALTER TABLE others SET (partitions = 2)", "0A000", "does not go with it"),
        ("ALTER TABLE twice SET (partitions = 2)", "0A000", "UNIQUE"),
        ("ALTER TABLE late SET (partitions = 2)", "0A000", "a CHECK that is not valid"),
    ]);
    let insert = "INSERT INTO t (v) VALUES (7)";
    let mut count = 0;
    let mut both = |talks: [&mut Talk; 2]| {
        for talk in talks {
            (0..30).for_each(|_| drop(talk.good(insert)));
            count += 30;
            let all = "SELECT count(*), count(DISTINCT id), count(DISTINCT n), sum(v) FROM t";
            assert_eq!(talk.good(all), format!("{count}|{count}|{count}|{}", 7 * count));
            assert!(talk.say("INSERT INTO t (v) VALUES (1000)").starts_with("23514"));
        }
    };
    both([&mut one, &mut two]);
    for how in ["partitions = 3", "partitions = 2", "database = understudy", "partitions = 4"] {
        assert_eq!(one.good(&format!("ALTER TABLE t SET ({how})")), "ALTER TABLE", "{how}");
        both([&mut one, &mut two]);
    }
    assert_eq!(two.good("SELECT count(*) FROM pg_class WHERE relname IN ('t_id_seq', 't_n_seq')"), "0");
}
