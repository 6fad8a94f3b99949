//! The clock of a history, and each client's part of it.

use history::{At, End, Key, Operation, Protocol, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// What all threads of a check share.
#[derive(Debug)]
pub struct Shared {
    start: Instant,
    tags: AtomicU64,
    stop: AtomicBool,
    done: AtomicU64,
}

impl Default for Shared {
    fn default() -> Shared {
        let (tags, done) = (AtomicU64::new(1), AtomicU64::new(0));
        Shared { start: Instant::now(), tags, stop: AtomicBool::new(false), done }
    }
}

impl Shared {
    /// Microseconds since the beginning, from one monotonic clock for all threads.
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// A value that nobody else writes.
    pub fn tag(&self) -> u64 {
        self.tags.fetch_add(1, Ordering::Relaxed)
    }

    /// No more operations are wanted.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True once no more operations are wanted.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// One more was answered.
    pub fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Operations that were answered.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// An operation that was called.
#[derive(Clone, Debug)]
pub struct Called {
    /// In a word or two.
    pub what: &'static str,
    /// The partition.
    pub place: u32,
    /// Before the request was handed over.
    pub invoked: u64,
}

/// What one client called and was told.
#[derive(Debug)]
pub struct Record {
    client: u32,
    protocol: Protocol,
    /// Numbered when all are put together.
    operations: Vec<Operation>,
    /// Operations that surely were not done.
    not_done: u64,
}

impl Record {
    /// Of nothing yet.
    pub fn new(client: u32, protocol: Protocol) -> Record {
        Record { client, protocol, operations: Vec::new(), not_done: 0 }
    }

    /// Answered, right now.
    pub fn done(
        &mut self,
        shared: &Shared,
        called: Called,
        at: Option<At>,
        reads: Vec<Read>,
        writes: Vec<Write>,
    ) {
        shared.done.fetch_add(1, Ordering::Relaxed);
        let completed = Some(shared.now());
        self.add(called, completed, End::Done, at, reads, writes);
    }

    /// Refused, right now, as these rows were there.
    pub fn was_there(&mut self, shared: &Shared, called: Called, at: Option<At>, found: Vec<Key>) {
        self.done(shared, called, at, Vec::new(), Vec::new());
        if let Some(refused) = self.operations.last_mut() {
            refused.found = found;
        }
    }

    /// A write of which it is not known whether it was done, or still will be. A read without an answer says
    /// nothing.
    pub fn unknown(&mut self, called: Called, writes: Vec<Write>) {
        if !writes.is_empty() {
            self.add(called, None, End::Unknown, None, Vec::new(), writes);
        }
    }

    /// Surely not done.
    pub fn not_done(&mut self) {
        self.not_done += 1;
    }

    fn add(
        &mut self,
        called: Called,
        completed: Option<u64>,
        end: End,
        at: Option<At>,
        reads: Vec<Read>,
        writes: Vec<Write>,
    ) {
        let Called { what, place, invoked } = called;
        let (client, protocol, what) = (self.client, self.protocol, what.to_string());
        let number = 0;
        self.operations.push(Operation {
            number,
            client,
            protocol,
            what,
            place,
            invoked,
            completed,
            end,
            at,
            reads,
            writes,
            found: Vec::new(),
        });
    }
}

/// All records as one history, in the order in which operations were called, with numbers from 1; and how
/// many surely were not done.
pub fn together(records: Vec<Record>) -> (Vec<Operation>, u64) {
    let not_done = records.iter().map(|record| record.not_done).sum();
    let mut all: Vec<Operation> = records.into_iter().flat_map(|record| record.operations).collect();
    all.sort_by_key(|operation| (operation.invoked, operation.client));
    for (number, operation) in (1..).zip(&mut all) {
        operation.number = number;
    }
    (all, not_done)
}
