//! Connections to nodes: how they come, what they bring, and how they end.

use super::{Client, Ready, mark, token_of};
use crate::conn::{Amount, Broken, Expected, Incoming, NodeConns};
use types::{Micros, NodeId};
use wire::Message;

impl Client {
    /// Begins to connect to a node, by its record.
    pub(super) fn connect_node(&mut self, now: Micros, node: NodeId) {
        let record = self.core.map().node(node);
        let opened =
            record.ok_or_else(|| format!("the address of {node} is not known").into()).and_then(|record| {
                let token = |number| token_of(node, number);
                NodeConns::open(record, self.poll.registry(), token, &self.identity, now)
            });
        match opened {
            Ok(conns) => {
                // No event says that a pipe can be written to.
                mark(&mut self.dirty, node);
                if let Some(old) = self.nodes.insert(node, conns) {
                    old.close(self.poll.registry());
                }
            }
            Err(why) => self.core.disconnected(now, node, &why.to_string()),
        }
    }

    /// The node of this process has written something on one of its connections, or has read, or hung up.
    pub(super) fn on_local(&mut self) {
        let Some((local, _)) = &self.identity.local else { return };
        let (node, now) = (local.node(), self.now());
        let mut number = 0;
        // Where one of them breaks none is left.
        while let Some(events) = self.nodes.get(&node).and_then(|conns| conns.local_events(number)) {
            let readable = events.readable || events.ended;
            let ready = Ready { readable, writable: events.writable, closed: events.ended };
            if let Err(why) = self.node_event(now, (node, number), ready) {
                self.node_lost(now, node, &why.to_string());
            }
            number += 1;
        }
    }

    /// Takes in what one of a node's connections has brought. The error breaks all of them.
    pub(super) fn node_event(
        &mut self,
        now: Micros,
        (node, number): (NodeId, usize),
        ready: Ready,
    ) -> Result<(), Broken> {
        let Some(conns) = self.nodes.get_mut(&node) else { return Ok(()) };
        let Some(conn) = conns.get(number) else { return Ok(()) };
        if ready.writable {
            conn.writable()?;
            mark(&mut self.dirty, node);
        }
        let expected =
            Expected { cluster: self.core.map().cluster().map(|record| record.id), node: Some(node) };
        let mut more = ready.readable;
        while more {
            let Some(conn) = conns.get(number) else { return Ok(()) };
            // What came before the end of the connection still counts.
            let read = conn.read(&mut self.traffic);
            loop {
                let Some(conn) = conns.get(number) else { return Ok(()) };
                match conn.next(&expected)? {
                    Incoming::Nothing => break,
                    Incoming::Welcome if conns.is_ready() => self.core.connected(now, node),
                    Incoming::Welcome => {}
                    Incoming::Message(Message::Reply(reply)) => self.core.reply(now, node, reply),
                    Incoming::Message(other) => return Err(format!("a node sent a {}", other.name()).into()),
                }
            }
            let amount = read?;
            more = amount == Amount::Full || (ready.closed && amount == Amount::Short);
        }
        Ok(())
    }

    /// A node lives elsewhere, or again: a connection to its former life may hang for long.
    pub(super) fn moved(&mut self, now: Micros, node: NodeId) {
        if self.nodes.contains_key(&node) {
            self.node_lost(now, node, "the node restarted");
        }
    }

    /// The connections to a node are of no use any more.
    pub(super) fn node_lost(&mut self, now: Micros, node: NodeId, why: &str) {
        if let Some(conns) = self.nodes.remove(&node) {
            conns.close(self.poll.registry());
            self.core.disconnected(now, node, why);
        }
    }
}
