//! The client against a small server over real sockets: pieces, garbage, broken connections, failovers.

mod fake;

use fake::{CLUSTER, Fake, row};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{ClusterId, Epoch, Incarnation, Lsn, Member, Micros, NodeId, PartitionId, Position, Term};
use understudy_client::{
    Client, ClientError, CoreConfig, FailKind, Fate, LaneId, LoadOptions, Options, Outcome, PipeEnd,
    ScanOptions, local,
};
use wire::control::AdminCommand;
use wire::hello::Welcome;
use wire::{Message, Op, ReadLevel, frame};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const FIRST: PartitionId = PartitionId(PartitionId::FIRST_USER);

fn options(fake: &Fake) -> Options {
    Options { controllers: fake.controllers.clone(), timeout: Duration::from_secs(20), ..Options::default() }
}

fn connect(fake: &Fake) -> Client {
    Client::connect(options(fake)).expect("connects")
}

#[test]
fn rows_are_written_and_read_back() {
    let fake = Fake::start(2, 1, 4);
    let mut client = connect(&fake);
    let table = client.wait_table("t").expect("there");
    let answer = client.put(&table, &row(1, "one")).expect("done");
    assert_eq!((answer.epoch, answer.copies), (Epoch(1), 1));
    assert_eq!(client.get(&table, &[1.into()]).expect("read"), Some(row(1, "one")));
    assert_eq!(client.get(&table, &[2.into()]).expect("read"), None);
    assert_eq!(client.insert(&table, &row(1, "again")), Err(ClientError::Exists));
    assert!(client.delete(&table, &[1.into()]).expect("done"));
    assert_eq!(client.get(&table, &[1.into()]).expect("read"), None);
    assert!(matches!(client.table("nothing"), Err(ClientError::NoTable(_))));
    let traffic = client.traffic();
    assert!(traffic.sent > 100 && traffic.received > 100, "{traffic:?}");
    let polls = traffic.polls;
    assert!(traffic.writes > 5 && traffic.reads > 5 && polls > 5, "{traffic:?}");
    client.poll(Duration::ZERO).expect("polls");
    assert!(client.traffic().polls > polls, "a look at what has come is a system call");
}

#[test]
fn what_is_pushed_is_sent_without_a_look_at_what_has_come() {
    let fake = Fake::start(1, 1, 1);
    let mut client = connect(&fake);
    let table = client.wait_table("t").expect("there");
    let lane = LaneId(0);
    client.submit(lane, table.put(&row(1, "opens the session")).expect("a call"));
    assert_eq!(client.poll(Duration::from_secs(20)).expect("polls").len(), 1);
    let before = fake.state().executed;
    client.submit(lane, table.put(&row(2, "pushed")).expect("a call"));
    assert_eq!(client.push(), Vec::new());
    let deadline = Instant::now() + Duration::from_secs(20);
    while fake.state().executed == before {
        assert!(Instant::now() < deadline, "it was not sent");
        std::thread::yield_now();
    }
    assert_eq!(client.push(), Vec::new(), "its end has come, and nobody has looked");
    assert_eq!(client.poll(Duration::from_secs(20)).expect("polls").len(), 1);
}

#[test]
fn a_load_is_scanned_in_order_and_counted() {
    let fake = Fake::start(2, 1, 4);
    fake.state().mischief.get_mut(&N1).expect("a node").piece = 7;
    let mut client = connect(&fake);
    let table = client.table("t").expect("there");
    let mut load = client.load(&table, LoadOptions { max_rows: 10, in_flight: 3, ..LoadOptions::default() });
    for id in 0..1000 {
        load.add(&mut client, &row(id, "some text")).expect("on its way");
    }
    let report = load.finish(&mut client).expect("done");
    assert_eq!((report.rows, report.unknown_rows), (1000, 0));
    assert_eq!(fake.state().executed, report.batches);
    assert_eq!(client.count(&table).expect("counted"), 1000);
    assert_eq!(client.digest(&table).expect("digests").len(), 4);

    for (ordered, page) in [(true, 7), (false, 7), (true, 1000)] {
        let scan = client.scan(&table, ScanOptions { ordered, page, ..ScanOptions::default() });
        let found: Vec<_> = scan.collect::<Result<_, _>>().expect("scanned");
        let mut ids: Vec<i64> = Vec::new();
        for found in &found {
            assert_eq!(table.partition_of(&found.key).expect("a key"), found.partition);
            let decoded = table.decode(&found.key, &found.stored).expect("decodes");
            ids.push(format!("{}", decoded.values[0]).parse().expect("a number"));
        }
        if !ordered {
            ids.sort();
        }
        assert_eq!(ids, (0..1000).collect::<Vec<_>>());
    }
    // A scan that is given up leaves nothing behind.
    client
        .scan(&table, ScanOptions { page: 5, ..ScanOptions::default() })
        .next()
        .expect("a row")
        .expect("scanned");
    assert_eq!(client.poll(Duration::from_millis(50)).expect("polls"), Vec::new());
    assert_eq!(client.open_calls(), 0);
}

#[test]
fn a_reply_cut_in_the_middle_and_garbage_do_not_repeat_a_write() {
    let fake = Fake::start(1, 1, 1);
    let mut client = connect(&fake);
    let table = client.table("t").expect("there");
    client.put(&table, &row(0, "opens the session")).expect("done");
    let before = {
        let state = fake.state();
        (state.executed, state.accepted)
    };
    fake.state().mischief.get_mut(&N1).expect("a node").cut_reply = 2;
    client.put(&table, &row(1, "cut")).expect("done at last");
    fake.state().mischief.get_mut(&N1).expect("a node").garbage = 2;
    client.put(&table, &row(2, "garbage")).expect("done at last");
    let state = fake.state();
    assert_eq!(
        (state.executed, state.accepted),
        (before.0 + 2, before.1 + 4),
        "each write once, each mischief a connection"
    );
}

#[test]
fn lanes_pipeline_through_a_failover_exactly_once() {
    let fake = Fake::start(2, 1, 1);
    let mut client = connect(&fake);
    let table = client.table("t").expect("there");
    let lanes: Vec<LaneId> = (0..5).map(LaneId).collect();
    let mut open = 0;
    for lane in &lanes {
        client.set_window(*lane, 8);
        for id in 0..40 {
            client.submit(*lane, table.put(&row(i64::from(lane.0) * 100 + id, "x")).expect("a call"));
            open += 1;
        }
    }
    let mut moved = false;
    let (mut done, start) = (0, Instant::now());
    while done < open {
        assert!(start.elapsed() < Duration::from_secs(20));
        for completed in client.poll(Duration::from_secs(1)).expect("polls") {
            assert!(completed.outcome.is_ok(), "{completed:?}");
            done += 1;
        }
        if done > 50 && !moved {
            moved = true;
            // In the middle of a reply, without a word from the controller: the hint must do.
            fake.state().mischief.get_mut(&N1).expect("a node").cut_reply = 1;
            fake.fail_over(FIRST, N2, false);
        }
    }
    assert_eq!(fake.state().executed, 200);
    assert_eq!(client.count(&table).expect("counted"), 200);
    assert_eq!(client.take_losses(), Vec::new());
    assert_eq!(client.cluster_map().epoch(FIRST), Epoch(2));
}

#[test]
fn a_silent_primary_is_left_when_the_controller_names_another() {
    let fake = Fake::start(2, 1, 1);
    let mut client = connect(&fake);
    let table = client.table("t").expect("there");
    client.put(&table, &row(1, "x")).expect("done");
    fake.state().mischief.get_mut(&N1).expect("a node").silent = true;
    let ticket = client.submit(LaneId(1), table.put(&row(2, "x")).expect("a call"));
    assert_eq!(client.poll(Duration::from_millis(100)).expect("polls"), Vec::new());
    fake.fail_over(FIRST, N2, true);
    let start = Instant::now();
    let completed = client.wait_for(ticket).expect("done");
    assert!(completed.outcome.is_ok(), "{completed:?}");
    assert!(start.elapsed() < Duration::from_millis(1000), "no timeout was needed: {:?}", start.elapsed());
    let fate = |client: &mut Client, lsn| client.fate(&table, FIRST, Position::new(Term(1), Lsn(lsn)));
    assert_eq!(fate(&mut client, 2), Ok(Fate::Kept));
    assert_eq!(fate(&mut client, 3), Ok(Fate::Lost { ended: Lsn(2) }));
    assert_eq!(client.newest_lost(&table, FIRST), Ok(Some(false)));
}

#[test]
fn a_deadline_ends_a_write_as_unknown_and_a_read_as_failed() {
    let fake = Fake::start(1, 1, 1);
    let mut client = connect(&fake);
    let table = client.table("t").expect("there");
    client.put(&table, &row(1, "x")).expect("done");
    fake.state().mischief.get_mut(&N1).expect("a node").silent = true;
    let soon = Micros::from_millis(50);
    let write = client.submit(Client::BLOCKING, table.put(&row(2, "x")).expect("a call").within(soon));
    let read = client.submit(LaneId(1), table.get(&[1.into()]).expect("a call").within(soon));
    let write = client.wait_for(write).expect("ends").outcome;
    let read = client.wait_for(read).expect("ends").outcome;
    assert!(matches!(write, Outcome::Unknown(_)), "{write:?}");
    assert!(matches!(read, Outcome::Failed(FailKind::TimedOut, _)), "{read:?}");
    assert_eq!(write.into_result().expect_err("unknown").exit_status(), 4);
}

#[test]
fn one_replica_can_be_asked() {
    let fake = Fake::start(2, 1, 1);
    let mut client = connect(&fake);
    let table = client.table("t").expect("there");
    client.put(&table, &row(1, "x")).expect("done");
    let level = ReadLevel::Any { max_lag_ms: 1000, min_lsn: Lsn::ZERO };
    for node in [N1, N2] {
        let answer = client.replica_read(&table, node, FIRST, Op::Digest, level).expect("answers");
        assert_eq!(answer.number(), Some(33));
    }
    let all = [N1, N2].map(|node| fake.state().nodes[&node].addresses.client.clone());
    assert_eq!(
        client.cluster_map().nodes().map(|node| node.addresses.client.clone()).collect::<Vec<_>>(),
        all
    );
}

#[test]
fn commands_go_to_the_controller_that_leads() {
    let fake = Fake::start(1, 3, 1);
    let leader = fake.controllers[2].clone();
    fake.state().led_by = [(0, leader.clone()), (1, leader)].into();
    let mut client = connect(&fake);
    assert_eq!(client.admin(AdminCommand::Status).expect("answered"), "controller 2");
    let refused = client.admin(AdminCommand::DropTable("x".into())).expect_err("refused");
    assert_eq!((refused.exit_status(), refused.to_string().as_str()), (3, "there is no table `x`"));
    // What must not be done twice is not sent twice when its answer is lost; what may be is.
    let force = AdminCommand::Force { partition: FIRST, node: None };
    let before = fake.state().commands;
    assert!(matches!(client.admin(force), Err(ClientError::AdminUnknown { .. })));
    assert_eq!(fake.state().commands, before + 1);
    assert_eq!(client.admin(AdminCommand::Status).expect("answered"), "controller 2");
}

#[test]
fn who_cannot_be_reached_is_said_in_a_sentence() {
    let error = Client::connect(Options { controllers: vec!["127.0.0.1:1".into()], ..Options::default() });
    let error = error.err().expect("nobody is there");
    assert_eq!(
        error.to_string(),
        "cannot reach any controller of [127.0.0.1:1]: 127.0.0.1:1: connection refused; is the cluster running? start one \
         with `understudy dev`"
    );
    assert_eq!(error.exit_status(), 4);

    let fake = Fake::start(1, 1, 1);
    let other = Options { cluster: Some(ClusterId(CLUSTER.0 + 1)), ..options(&fake) };
    let error = Client::connect(other).err().expect("another cluster");
    assert!(matches!(&error, ClientError::NotWelcome { .. }), "{error}");

    // The first address is dead, the second is not.
    let mut some = options(&fake);
    some.controllers.insert(0, "127.0.0.1:1".into());
    let mut client = Client::connect(some).expect("one is enough");
    fake.state().mischief.get_mut(&N1).expect("a node").unwelcome = true;
    let table = client.table("t").expect("there");
    let call = table.get(&[1.into()]).expect("a call").within(Micros::from_millis(100));
    let error = client.call(call).expect_err("not let in");
    assert!(error.to_string().contains("go away"), "{error}");
}

#[test]
fn calls_that_are_wrong_fail_before_they_are_sent() {
    let fake = Fake::start(1, 1, 1);
    let config = CoreConfig { patience: Micros::from_millis(50), ..CoreConfig::default() };
    let mut client = Client::connect(Options { core: config, ..options(&fake) }).expect("connects");
    let table = client.table("t").expect("there");
    let error =
        client.call(table.write(FIRST, Vec::new()).at_node(N1)).expect_err("a write has no chosen node");
    assert!(matches!(error, ClientError::Failed { kind: FailKind::Bad, .. }), "{error}");
    let error = client.call(table.call(PartitionId(9999), Op::Digest)).expect_err("no such partition");
    assert_eq!(error.exit_status(), 3);
    assert!(client.put(&table, &types::data::Row::new(vec!["text".into(), "x".into()])).is_err());
}

/// The next message that a client of this process has sent.
fn heard(end: &mut PipeEnd) -> Message {
    let mut room = [0; 4096];
    let read = end.read(&mut room).expect("something was sent");
    let (message, length) = frame::decode(&room[..read]).expect("a frame").expect("whole");
    assert_eq!(length, read, "one message");
    message
}

#[test]
fn pr431_only_the_incarnation_that_the_map_names_is_reached_without_a_socket() {
    let fake = Fake::start(1, 1, 1);
    let this = fake.state().nodes[&N1].member();
    let later = Member { incarnation: Incarnation(this.incarnation.0 + 1), ..this };
    let within = |member: Member| {
        let (listener, node) = local::listen(member, Arc::new(|| {}));
        (listener, Client::connect(Options { local: Some(node), ..options(&fake) }).expect("connects"))
    };
    let (listener, mut client) = within(later);
    let table = client.wait_table("t").expect("there");
    client.put(&table, &row(1, "by a socket")).expect("done");
    assert!(listener.accept().is_none());
    let accepted = fake.state().accepted;
    let (listener, mut client) = within(this);
    let table = client.table("t").expect("there");
    client.submit(LaneId(0), table.get(&[1.into()]).expect("a call"));
    let turn = |client: &mut Client| client.poll(Duration::from_millis(20)).expect("polls").len();
    assert_eq!(turn(&mut client), 0);
    let mut end = listener.accept().expect("it comes");
    assert!(matches!(heard(&mut end), Message::Hello(_)));
    let mut welcome = Vec::new();
    let accepts = Welcome::Accepted { cluster: CLUSTER, member: Some(this) };
    frame::encode(&Message::Welcome(accepts), &mut welcome).expect("fits");
    end.write_all(&welcome).expect("fits");
    assert_eq!(turn(&mut client), 0);
    assert!(matches!(heard(&mut end), Message::Request(_)));
    // Who hangs up is connected to once more, and asked again.
    drop(end);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut again = None;
    while again.is_none() {
        assert!(Instant::now() < deadline, "it does not come again");
        assert_eq!(turn(&mut client), 0);
        again = listener.accept();
    }
    assert!(matches!(heard(&mut again.expect("it came")), Message::Hello(_)));
    assert_eq!(fake.state().accepted, accepted, "no socket of the node's");
}
