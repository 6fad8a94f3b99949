//! Clients that read and write single rows. All but one of a world are the native client's core ([`native`]),
//! so that its rules are tried against what the checkers know; the other is an adversary ([`adversary`]),
//! which sends what no client would. Both ask for the same things ([`operations`]).

pub mod adversary;
pub mod native;
pub mod operations;
pub mod shell;
pub mod wide;

use crate::check::effects::ReportedLoss;
use crate::network::{Conn, Endpoint};
use operations::Operations;
use std::collections::BTreeSet;
use types::PartitionId;
use wire::control::Admin;
use wire::{Message, Request};

/// What a client wants done.
#[derive(Debug)]
pub enum ClientEffect {
    /// Connect to a node. A client may have several connections to it, told apart by the last number.
    Dial(u32, u16),
    /// Connect to a controller.
    DialController(u32),
    /// Send a request.
    Send(Conn, Box<Request>),
    /// Ask a controller for the cluster map, and for its changes.
    Watch(Conn),
    /// Ask a controller for something.
    Ask(Conn, Box<Admin>),
    /// Close a connection.
    Close(Conn),
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkNews {
    /// It was made.
    Up(Conn),
    /// It could not be made.
    Failed,
    /// It is gone.
    Broken(Conn),
}

impl LinkNews {
    /// The connection, if it was made.
    pub fn up(self) -> Option<Conn> {
        match self {
            LinkNews::Up(conn) => Some(conn),
            LinkNews::Failed | LinkNews::Broken(_) => None,
        }
    }
}

/// A client of single rows, as the world drives it. Times are virtual microseconds.
pub trait RowClient {
    /// What it asks, and what it was told.
    fn operations(&self) -> &Operations;
    /// The same, to be changed.
    fn operations_mut(&mut self) -> &mut Operations;
    /// Does what is due.
    fn step(&mut self, now: u64) -> Vec<ClientEffect>;
    /// When it has something to do next, if nothing happens before.
    fn wakes_at(&self) -> Option<u64>;
    /// There is news of a connection to a node or a controller.
    fn linked(&mut self, now: u64, to: Endpoint, slot: u16, news: LinkNews);
    /// A message came.
    fn hear(&mut self, now: u64, from: Endpoint, conn: Conn, message: Message);
    /// The partitions of what is not decided, one for each.
    fn waits_for(&self) -> Vec<PartitionId>;
    /// Ends everything that is not decided: the run is over.
    fn abandon(&mut self, now: u64);
    /// What a reply said that it must never say, or what the client did that it must not.
    fn fault(&self) -> Option<&str>;
    /// Acknowledged writes that the client was told are lost.
    fn told_lost(&self) -> &[ReportedLoss];

    /// True if everything was asked and decided.
    fn is_done(&self) -> bool {
        self.operations().are_asked() && self.waits_for().is_empty()
    }

    /// True if everything that it waits for, now, is in these partitions.
    fn waits_only_for(&self, partitions: &BTreeSet<PartitionId>) -> bool {
        let waits = self.waits_for();
        !waits.is_empty() && waits.iter().all(|partition| partitions.contains(partition))
    }
}
