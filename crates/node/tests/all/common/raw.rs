//! A connection of a client without the native client's care for order, retries and whom to ask.

use super::{Cluster, LONG};
use client::Table;
use std::io::{Read, Write};
use std::net::TcpStream;
use types::PartitionId;
use wire::control::AdminAnswer;
use wire::hello::{Hello, HelloRole, PROTOCOL};
use wire::{Message, Op, Reply, Request, frame};

pub struct Raw {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Raw {
    /// To the first node.
    pub fn connect(cluster: &Cluster) -> Raw {
        Raw::connect_as(cluster, HelloRole::Client)
    }

    /// The same, as an operator who asks that very node.
    pub fn operator(cluster: &Cluster) -> Raw {
        Raw::connect_as(cluster, HelloRole::Operator)
    }

    fn connect_as(cluster: &Cluster, role: HelloRole) -> Raw {
        let stream = TcpStream::connect(&cluster.node(1).ports().listen["client"]).expect("connects");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        let mut raw = Raw { stream, bytes: Vec::new() };
        raw.send(&[Message::Hello(Hello {
            role,
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
    pub fn send(&mut self, messages: &[Message]) {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| frame::encode(message, &mut bytes).expect("fits"));
        self.stream.write_all(&bytes).expect("writes");
    }

    fn hear(&mut self) -> Message {
        loop {
            if let Some((message, length)) = frame::decode(&self.bytes).expect("frames") {
                self.bytes.drain(..length);
                return message;
            }
            let mut piece = [0; 4096];
            let read = self.stream.read(&mut piece).expect("the node answers");
            assert!(read > 0, "the node hung up");
            self.bytes.extend_from_slice(&piece[..read]);
        }
    }

    pub fn answer(&mut self) -> AdminAnswer {
        match self.hear() {
            Message::AdminAnswer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub fn reply(&mut self) -> Reply {
        match self.hear() {
            Message::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }
}

/// A request for one partition of a table.
pub fn request(table: &Table, partition: PartitionId, id: u64, op: Op) -> Message {
    Message::Request(Request { id, ..Request::new(table.record().id, 1, partition, op) })
}
