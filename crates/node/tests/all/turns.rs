//! Nobody waits for what takes long: big reads and checkpoints leave the executor its turns.

use crate::common::raw::{Raw, request};
use crate::common::{Cluster, create, put_all, row};
use types::data::Value;
use types::{EngineKind, LogKind};
use wire::{Body, Op, Status};

#[test]
fn others_are_served_while_a_big_table_is_counted_and_digested() {
    let cluster = Cluster::with(1, &[]);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Lsm, LogKind::Disk);
    (wanted.factor, wanted.partitions) = (Some(1), 1);
    let table = client.create_table(&wanted).expect("creates");
    const ROWS: i64 = 10_000;
    put_all(&mut client, &table, 0, ROWS, "x");
    let mut raw = Raw::connect(&cluster);
    let key = table.key(&[Value::Int(7)]).expect("a key");
    let everything = Op::Count { from: Default::default(), to: Default::default(), at: Default::default() };
    let id = table.partitions().next().expect("one");
    raw.send(&[
        request(&table, id, 1, Op::Digest),
        request(&table, id, 2, everything),
        request(&table, id, 3, Op::Get { key: key.clone(), at: Default::default() }),
    ]);
    let first = raw.reply();
    assert_eq!((first.id, &first.status), (3, &Status::Ok), "the row is there long before the sums are");
    client.put(&table, &row(ROWS, "written meanwhile")).expect("writes");
    let mut sums = [raw.reply(), raw.reply()];
    sums.sort_by_key(|reply| reply.id);
    assert_eq!(sums[1].body, Body::Number(ROWS as u64), "as of when it was asked: {:?}", sums[1]);
    assert_eq!((&sums[0].status, sums[0].lsn), (&Status::Ok, sums[1].lsn));
    assert_eq!(client.count(&table).expect("counts"), ROWS as u64 + 1);
}
