//! Commits into a partition that secures nothing use up its budget, and only its own.

use crate::common::talk::{Talk, service};
use crate::common::{Cluster, LONG, wait_for};
use client::view::transactions::{PartitionCommits, Transactions};
use client::{Client, ClientError, Database, Options, Table};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::data::{Row, Value};
use types::{NodeId, PartitionId};
use wire::control::{ClusterStatus, Role};

/// The least room that there may be; a partition has a fourth of it.
const ROOM: &str = "67108864";
const BUDGET: u64 = 16 << 20;
/// Of a row: six of them in a write-set are below its limit.
const VALUE: usize = 900_000;

fn row(id: i64, length: usize) -> Row {
    Row::new(vec![Value::Int(id), Value::Text("x".repeat(length))])
}

/// Keys by the partition in which they lie.
fn keys(table: &Table) -> BTreeMap<PartitionId, Vec<i64>> {
    let mut keys: BTreeMap<PartitionId, Vec<i64>> = BTreeMap::new();
    for id in 0..2_000 {
        let key = table.key(&[Value::Int(id)]).expect("a key");
        keys.entry(table.partition_of(&key).expect("a partition")).or_default().push(id);
    }
    keys
}

/// What `understudy txn status` has of a partition.
fn commits_of(client: &mut Client, partition: PartitionId) -> (PartitionCommits, Transactions) {
    let found = Transactions::ask(client).expect("answered").expect("there is a manager");
    let own = found.partitions.iter().find(|one| one.partition == partition.0).expect("it was written");
    (own.clone(), found)
}

/// Waits until every partition has secured every commit.
fn until_level(client: &mut Client) {
    let deadline = Instant::now() + LONG;
    loop {
        let found = Transactions::ask(client).expect("answered").expect("there is a manager");
        if found.partitions.iter().all(|one| one.state == "level") {
            return;
        }
        assert!(Instant::now() < deadline, "{:?}", found.partitions);
    }
}

/// What the primary of the manager's partition says that it waits for.
fn alarm(status: &ClusterStatus, manager: PartitionId) -> String {
    let replicas = status.nodes.iter().flat_map(|(node, _)| &node.replicas);
    let leads = replicas.filter(|one| one.partition == manager && one.role == Role::Primary);
    leads.max_by_key(|one| one.epoch).map(|one| one.waits.clone()).unwrap_or_default()
}

/// Commits into this partition until it has no room for more. How many were made.
fn fill(client: &mut Client, (database, table): (&Database, &Table), ids: &[i64]) -> u64 {
    for (at, ids) in ids.chunks_exact(4).enumerate() {
        let mut transaction = client.begin(database).expect("begun");
        ids.iter().for_each(|id| transaction.put(table, &row(*id, VALUE)).expect("a row"));
        match client.commit(transaction) {
            Ok(_) => {}
            Err(ClientError::Failed { kind: client::FailKind::TimedOut, sentence, .. }) => {
                assert!(sentence.contains("has not secured them"), "{sentence}");
                return at as u64;
            }
            // The last attempt was on its way at the end, and its session has found that it was not made.
            Err(ClientError::Changed) => return at as u64,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("nothing has stopped commits into a partition that is away")
}

/// The length and the age of its queue are told at the manager's partition, and who holds back what.
fn an_operator_sees_it(
    (client, brief): (&mut Client, &mut Client),
    (manager, partition): (PartitionId, PartitionId),
    made: u64,
) {
    wait_for(client, "an alarm", |status| {
        let said = alarm(status, manager);
        said.contains("commits are not secured") && said.contains(&format!("partition {partition} holds"))
    });
    // A partition that is away is asked for as long as its client waits.
    let (lags, found) = commits_of(brief, partition);
    let how = (lags.state, lags.holds_flushed_back, lags.holds_secured_back);
    assert_eq!(how, ("silent", true, true), "{:#?}", found.partitions);
    let committed = &found.stages.committed;
    assert!(committed.commits >= made && committed.oldest_ms > Some(500), "{committed:?}");
    assert!(found.stages.kept_bytes >= BUDGET, "{:?}", found.stages);
}

/// A row comes into a partition that is there.
fn others_go_on(talk: &mut Talk, id: i64) {
    let insert = format!("INSERT INTO texts VALUES ({id}, 'others go on')");
    let deadline = Instant::now() + LONG;
    // What was on its way when its client asked may be asked for again.
    while talk.say(&insert) == "40001 could not serialize access due to concurrent update" {
        assert!(Instant::now() < deadline, "others go on");
    }
    assert_eq!(talk.good(&format!("SELECT v FROM texts WHERE id = {id}")), "others go on");
}

/// A node is away that has the only copy of a partition. The manager takes commits into it until its budget
/// is used up, and says so; those into other partitions are made all the same. With the node all of them are.
#[test]
fn pr367_a_commit_into_a_partition_beyond_its_budget_is_57p03_until_the_partition_is_back() {
    let settings = [("limits.commits_bytes", ROOM), ("timing.commits_alarm_ms", "500")];
    let mut cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let service = service(&cluster);
    let options = "partitions = 6, transactions = global, policy = async, factor = 1";
    Talk::new(&service).good(&format!("CREATE DATABASE ledger WITH ({options})"));
    let within = || Talk::within(&service, "ledger").expect("a session");
    let mut talk = within();
    talk.good("CREATE TABLE texts (id bigint PRIMARY KEY, v text)");
    let database = client.database("ledger").expect("there");
    let table = client.table("ledger.texts").expect("there");
    let manager = client.transaction_manager().expect("there").partition();
    let status = wait_for(&mut client, "copies of the manager's table", |status| {
        status.partitions.iter().all(|record| record.id != manager || record.in_sync.len() == 3)
    });
    let leader = |id| status.partitions.iter().find(|record| record.id == id).expect("there").primary.node;
    // Neither the manager nor the partition that has the database's description.
    let stays = [leader(manager), leader(database.partition())];
    let away = (1..=3).find(|number| !stays.contains(&NodeId(*number))).expect("a third node");
    let all = keys(&table);
    let own = |(id, _): &(&PartitionId, &Vec<i64>)| leader(**id) == NodeId(away);
    let (partition, ids) = all.iter().find(own).map(|(id, ids)| (*id, ids.clone())).expect("it has some");
    let (_, others) = all.iter().find(|one| !own(one)).expect("and others have some");

    // Before the node ends the statement has seen that no such row is there. Nothing is read at COMMIT.
    let (waits, other) = (ids[0], others[0]);
    talk.good("BEGIN");
    talk.good(&format!("INSERT INTO texts VALUES ({waits}, 'waits')"));
    until_level(&mut client);
    cluster.kill(away);
    let short = Options {
        controllers: vec![cluster.controller_address()],
        wait: true,
        timeout: Duration::from_secs(6),
        ..Options::default()
    };
    let mut filling = Client::connect(short).expect("connects");
    let made = fill(&mut filling, (&database, &table), &ids[1..]);
    let least = BUDGET.div_ceil(4 * (VALUE as u64 + 1_000));
    assert_eq!(made, least, "commits of {} bytes, and a budget of {BUDGET}", 4 * VALUE);

    let begun = Instant::now();
    let said = talk.say("COMMIT");
    assert!(said.starts_with("57P03") && said.contains("has not secured them"), "{said}");
    assert!(said.contains(&partition.to_string()), "{said}");
    assert!(begun.elapsed() < LONG, "it is told in time: {:?}", begun.elapsed());
    talk.say("ROLLBACK");
    let mut elsewhere = within();
    others_go_on(&mut elsewhere, other);

    an_operator_sees_it((&mut client, &mut filling), (manager, partition), made);

    cluster.start_node(away);
    let deadline = Instant::now() + LONG;
    loop {
        let said = elsewhere.say(&format!("INSERT INTO texts VALUES ({waits}, 'is back')"));
        if said == "INSERT 0 1" {
            break;
        }
        assert!(said.starts_with("57P03") || said.starts_with("40001"), "{said}");
        assert!(Instant::now() < deadline, "the partition is back: {said}");
    }
    let count = format!("SELECT count(*) FROM texts WHERE length(v) = {VALUE}");
    assert_eq!(elsewhere.good(&count), (4 * made).to_string(), "all that was acknowledged is there");
    wait_for(&mut client, "the alarm to end", |status| alarm(status, manager).is_empty());
    until_level(&mut client);
}
