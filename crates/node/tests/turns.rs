//! Nobody waits for what takes long: big reads and checkpoints leave the executor its turns.

mod common;

use client::Table;
use common::{Cluster, create, put_all, row};
use std::io::{Read, Write};
use std::net::TcpStream;
use types::data::Value;
use types::{EngineKind, LogKind};
use wire::hello::{Hello, HelloRole, PROTOCOL};
use wire::{Body, Message, Op, Reply, Request, Status, frame};

/// A connection without the native client's care for order.
struct Raw {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Raw {
    fn connect(cluster: &Cluster) -> Raw {
        let stream = TcpStream::connect(&cluster.node(1).ports().listen["client"]).expect("connects");
        stream.set_read_timeout(Some(common::LONG)).expect("a timeout");
        let mut raw = Raw { stream, bytes: Vec::new() };
        raw.send(&[Message::Hello(Hello {
            role: HelloRole::Client,
            protocol: PROTOCOL,
            cluster: None,
            member: None,
            secret: None,
            agent: "test".into(),
        })]);
        assert!(matches!(raw.hear(), Message::Welcome(_)));
        raw
    }

    /// All in one write, so that the node reads them in one turn.
    fn send(&mut self, messages: &[Message]) {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| frame::encode(message, &mut bytes).expect("fits"));
        self.stream.write_all(&bytes).expect("writes");
    }

    fn hear(&mut self) -> Message {
        loop {
            if let Some((message, taken)) = frame::decode(&self.bytes).expect("frames") {
                self.bytes.drain(..taken);
                return message;
            }
            let mut piece = [0; 4096];
            let read = self.stream.read(&mut piece).expect("the node answers");
            assert!(read > 0, "the node hung up");
            self.bytes.extend_from_slice(&piece[..read]);
        }
    }

    fn reply(&mut self) -> Reply {
        match self.hear() {
            Message::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }
}

fn request(table: &Table, id: u64, op: Op) -> Message {
    Message::Request(Request {
        id,
        ..Request::new(table.record().id, 1, table.partitions().next().expect("one"), op)
    })
}

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
    raw.send(&[
        request(&table, 1, Op::Digest),
        request(&table, 2, everything),
        request(&table, 3, Op::Get { key: key.clone(), at: Default::default() }),
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
