//! The load over the native client: lanes with one operation at a time each, and a prober that writes to
//! every partition every few milliseconds. All on one thread.

use crate::keys::Keys;
use crate::recorder::{Called, Record, Shared};
use crate::scene;
use client::{Answer, Client, Completed, FailKind, LaneId, Outcome, Table, Ticket};
use history::{At, Key, Over, Protocol, Read, Seen, Write};
use local::LocalError;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use types::random::Random;
use types::{Micros, Position};
use wire::request::ReadSnapshot;
use wire::{Body, Op, Outcome as Refusal, RowOp};

/// Lanes of the mixed load.
const LANES: u32 = 8;
/// Between two operations of a lane.
const PAUSE: Duration = Duration::from_millis(4);
/// Between two writes of the prober to a partition.
const PROBE_PAUSE: Duration = Duration::from_millis(5);
/// How long one operation may take; after that nobody knows.
const OPERATION_TIMEOUT: Micros = Micros(4_000_000);
/// Rows of a scan: more than there are.
const ALL: u32 = 10_000;
/// What the prober's writes are called.
pub const PROBE: &str = "probe";

/// What a lane is waiting for.
#[derive(Clone, Debug)]
enum Asked {
    Get(Key),
    /// A get on whose answer a conditional write is to rest.
    First(Key),
    Scan {
        known: Vec<Key>,
    },
    Write(Vec<Write>),
}

#[derive(Debug)]
struct Lane {
    shelf: usize,
    probes: bool,
    next: Instant,
    open: Option<(Called, Asked)>,
}

/// What the native clients saw.
pub struct NativeReport {
    /// Every operation.
    pub record: Record,
    /// Acknowledged writes that the client itself found to be lost: where, and the position of each.
    pub noticed: Vec<(u32, At)>,
}

/// The load.
pub struct Native<'a> {
    pub client: Client,
    pub table: &'a Table,
    pub keys: &'a Keys,
    pub shared: &'a Shared,
    pub seed: u64,
}

struct Work<'a> {
    load: Native<'a>,
    lanes: Vec<Lane>,
    random: Random,
    record: Record,
    /// Acknowledged writes by their tickets.
    acknowledged: HashMap<Ticket, (u32, At)>,
    noticed: Vec<(u32, At)>,
}

impl Native<'_> {
    /// Runs until asked to stop, and then until every operation has ended.
    pub fn run(self) -> Result<NativeReport, LocalError> {
        let now = Instant::now();
        let lane = |shelf, probes| Lane { shelf, probes, next: now, open: None };
        let mut lanes: Vec<Lane> = (0..self.keys.count()).map(|shelf| lane(shelf, true)).collect();
        lanes.extend((0..LANES).map(|_| lane(0, false)));
        let (random, record) = (Random::new(self.seed), Record::new(0, Protocol::Native));
        let (acknowledged, noticed) = (HashMap::new(), Vec::new());
        let mut work = Work { load: self, lanes, random, record, acknowledged, noticed };
        loop {
            let stopping = work.load.shared.stopping();
            if stopping && work.load.client.open_calls() == 0 {
                let Work { record, noticed, .. } = work;
                return Ok(NativeReport { record, noticed });
            }
            if !stopping {
                work.submit_due()?;
            }
            let wait = work.wait();
            for completed in work.load.client.poll(wait)? {
                work.take_in(completed)?;
            }
            work.hear_of_losses();
        }
    }
}

/// The position of an answer.
fn at(answer: &Answer) -> At {
    At { term: answer.epoch.0, lsn: answer.lsn.0 }
}

impl Work<'_> {
    fn wait(&self) -> Duration {
        let due = self.lanes.iter().filter(|lane| lane.open.is_none()).map(|lane| lane.next).min();
        let due = due.map_or(PAUSE, |due| due.saturating_duration_since(Instant::now()));
        due.clamp(Duration::from_micros(100), PAUSE)
    }

    fn submit_due(&mut self) -> Result<(), LocalError> {
        let now = Instant::now();
        for at in 0..self.lanes.len() {
            if self.lanes[at].open.is_none() && self.lanes[at].next <= now {
                self.next(at)?;
            }
        }
        Ok(())
    }

    fn next(&mut self, at: usize) -> Result<(), LocalError> {
        let keys = self.load.keys;
        if self.lanes[at].probes {
            let key = keys.probe(self.lanes[at].shelf);
            return self.write(at, PROBE, &[key], Over::Blind);
        }
        let shelf = self.random.below(keys.count() as u64) as usize;
        self.lanes[at].shelf = shelf;
        let key = keys.to_write(shelf, &mut self.random);
        match self.random.below(100) {
            0..20 => {
                let key = keys.to_read(shelf, &mut self.random);
                self.get(at, "get", key, Asked::Get(key))
            }
            20..45 => self.get(at, "get", key, Asked::First(key)),
            45..60 => self.write(at, "put", &[key], Over::Blind),
            60..68 => self.write(at, "insert", &[key], Over::Absence),
            68..80 => {
                let both = keys.two(shelf, &mut self.random);
                self.write(at, "put of two", &both, Over::Blind)
            }
            80..83 => self.delete(at),
            _ => self.scan(at),
        }
    }

    fn submit(&mut self, at: usize, what: &'static str, op: Op, asked: Asked) {
        let place = self.load.keys.place(self.lanes[at].shelf);
        let call = self.load.table.call(scene::partition(place), op).within(OPERATION_TIMEOUT);
        let called = Called { what, place, invoked: self.load.shared.now() };
        self.lanes[at].open = Some((called, asked));
        self.load.client.submit(LaneId(at as u32), call);
    }

    fn get(&mut self, at: usize, what: &'static str, key: Key, asked: Asked) -> Result<(), LocalError> {
        let op = Op::Get { key: scene::key(self.load.table, key)?, at: ReadSnapshot::Newest };
        self.submit(at, what, op, asked);
        Ok(())
    }

    fn scan(&mut self, at: usize) -> Result<(), LocalError> {
        let shelf = self.lanes[at].shelf;
        let (from, to) = scene::range(self.load.table, self.load.keys.number(shelf))?;
        let known = self.load.keys.known(shelf);
        let op = Op::Scan { from, to, limit: ALL, at: ReadSnapshot::Newest };
        self.submit(at, "scan", op, Asked::Scan { known });
        Ok(())
    }

    fn delete(&mut self, at: usize) -> Result<(), LocalError> {
        let key = self.load.keys.to_remove(self.lanes[at].shelf, &mut self.random);
        let op = Op::write(vec![RowOp::Delete { key: scene::key(self.load.table, key)? }]);
        self.submit(at, "delete", op, Asked::Write(vec![Write { key, tag: None, over: Over::Blind }]));
        Ok(())
    }

    fn write(&mut self, at: usize, what: &'static str, keys: &[Key], over: Over) -> Result<(), LocalError> {
        let (mut ops, mut writes) = (Vec::new(), Vec::new());
        for key in keys {
            let tag = self.load.shared.tag();
            let (name, row) = scene::put(self.load.table, *key, tag, 0, 0)?;
            ops.push(match over {
                Over::Absence => RowOp::Insert { key: name, row },
                _ => RowOp::Put { key: name, row },
            });
            writes.push(Write { key: *key, tag: Some(tag), over });
        }
        self.submit(at, what, Op::write(ops), Asked::Write(writes));
        Ok(())
    }

    /// A write that counts on, if nobody has changed the row since it was read.
    fn update(&mut self, at: usize, key: Key, seen: Seen, since: Position) -> Result<(), LocalError> {
        let tag = self.load.shared.tag();
        let (name, row) = scene::put(self.load.table, key, tag, seen.tag, seen.count + 1)?;
        let ops = vec![RowOp::Update { key: name, row }];
        let writes = vec![Write { key, tag: Some(tag), over: Over::Value(seen.tag) }];
        let op = Op::Write { ops, mark: None, since: Some(since) };
        self.submit(at, "conditional update", op, Asked::Write(writes));
        Ok(())
    }

    fn take_in(&mut self, completed: Completed) -> Result<(), LocalError> {
        let at = completed.lane.0 as usize;
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
        let Some((called, asked)) = lane.open.take() else { return Ok(()) };
        lane.next = Instant::now() + if lane.probes { PROBE_PAUSE } else { PAUSE };
        match (completed.outcome, asked) {
            (Outcome::Failed(FailKind::Bad | FailKind::NotFound | FailKind::Corrupt, why), _) => {
                return Err(LocalError::Failed(format!("an operation was refused: {why}")));
            }
            (Outcome::Ok(answer), Asked::Write(writes)) => {
                self.acknowledged.insert(completed.ticket, (called.place, self::at(&answer)));
                self.wrote(called, writes, &answer);
            }
            (Outcome::Refused(Refusal::Exists, answer), Asked::Write(writes)) => {
                let found = writes.iter().map(|write| write.key).collect();
                self.record.was_there(self.load.shared, called, Some(self::at(&answer)), found);
            }
            (Outcome::Unknown(_), Asked::Write(writes)) => self.record.unknown(called, writes),
            (Outcome::Refused(..) | Outcome::Failed(..), _) | (Outcome::Unknown(_), _) => {
                self.record.not_done()
            }
            (Outcome::Ok(answer), asked) => self.read(at, called, &asked, &answer)?,
        }
        Ok(())
    }

    fn wrote(&mut self, called: Called, writes: Vec<Write>, answer: &Answer) {
        let (reads, writes) = match (&answer.body, &writes[..]) {
            // There was nothing to remove.
            (Body::Affected(0), [Write { key, tag: None, .. }]) => {
                (vec![Read { key: *key, seen: None }], vec![])
            }
            _ => (vec![], writes),
        };
        self.record.done(self.load.shared, called, Some(at(answer)), reads, writes);
    }

    fn read(
        &mut self,
        lane: usize,
        called: Called,
        asked: &Asked,
        answer: &Answer,
    ) -> Result<(), LocalError> {
        let table = self.load.table;
        let reads = match (asked, &answer.body) {
            (Asked::Get(key) | Asked::First(key), Body::Row(row)) => {
                let name = scene::key(table, *key)?;
                let shown = row.as_ref().map(|(lsn, stored)| scene::shown(table, &name, *lsn, stored));
                vec![Read { key: *key, seen: shown.transpose()?.map(|(_, seen)| seen) }]
            }
            (Asked::Scan { known }, Body::Rows { rows, more: false }) => {
                let shown = rows.iter().map(|(key, lsn, stored)| scene::shown(table, key, *lsn, stored));
                scene::scanned(shown.collect::<Result<_, _>>()?, known)?
            }
            (_, other) => return Err(LocalError::Failed(format!("an answer of another kind: {other:?}"))),
        };
        let found = reads.first().and_then(|read: &Read| read.seen);
        self.record.done(self.load.shared, called, Some(at(answer)), reads, Vec::new());
        match (asked, found) {
            (Asked::First(key), Some(seen)) if !self.load.shared.stopping() => {
                self.update(lane, *key, seen, answer.snapshot())
            }
            _ => Ok(()),
        }
    }

    fn hear_of_losses(&mut self) {
        for loss in self.load.client.take_losses() {
            self.noticed.extend(loss.tickets.iter().filter_map(|ticket| self.acknowledged.get(ticket)));
        }
    }
}

/// Reads every shelf once more, when all has ended.
pub fn read_back(
    client: &mut Client,
    table: &Table,
    keys: &Keys,
    shared: &Shared,
) -> Result<Record, LocalError> {
    let mut record = Record::new(u32::MAX, Protocol::Native);
    for shelf in 0..keys.count() {
        let (from, to) = scene::range(table, keys.number(shelf))?;
        let known = keys.known(shelf);
        let place = keys.place(shelf);
        let called = Called { what: "last scan", place, invoked: shared.now() };
        let op = Op::Scan { from, to, limit: ALL, at: ReadSnapshot::Newest };
        let answer = client.call(table.call(scene::partition(place), op))?;
        let Body::Rows { rows, more: false } = &answer.body else {
            return Err(LocalError::Failed(format!("an answer of another kind: {:?}", answer.body)));
        };
        let shown = rows.iter().map(|(key, lsn, stored)| scene::shown(table, key, *lsn, stored));
        let reads = scene::scanned(shown.collect::<Result<_, _>>()?, &known)?;
        record.done(shared, called, Some(at(&answer)), reads, Vec::new());
    }
    Ok(record)
}
