//! The load over SQL: sessions with one statement at a time each, each on a thread of its own.

use crate::keys::Keys;
use crate::recorder::{Called, Record, Shared};
use crate::scene::{self, TABLE};
use history::{Key, Over, Protocol, Read, Seen, Write};
use local::LocalError;
use ops::gateway::{Encryption, Event, Fault, Gateway, Place};
use std::sync::Mutex;
use std::time::Duration;
use types::random::Random;

/// How long a statement may take; then the session is left, and what became of the statement is not known.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one node may take to let a session in.
const LOGIN_WITHIN: Duration = Duration::from_millis(1000);
/// Between two operations of a session, and between two attempts to get one.
const PAUSE: Duration = Duration::from_millis(4);
/// Refusals that say that nothing was done: the row or the transaction had changed, there was one already,
/// the transaction had failed before.
const NOT_DONE: [&str; 3] = ["40001", EXISTS, "25P02"];
/// There was such a row already.
const EXISTS: &str = "23505";

/// Where nodes speak SQL, which changes when one of them is given another port.
pub type Gateways = Mutex<Place>;

/// From a cluster's URL.
pub fn gateways(url: &str) -> Result<Place, LocalError> {
    let place = Place::parse(url).map_err(LocalError::Failed)?;
    Ok(Place { encryption: Encryption::Never, ..place })
}

/// A session of the load.
pub struct Sql<'a> {
    pub number: u32,
    pub gateways: &'a Gateways,
    pub keys: &'a Keys,
    pub shared: &'a Shared,
    pub seed: u64,
}

/// Rows of an answer, with NULL as nothing.
type Rows = Vec<Vec<Option<String>>>;

/// How a statement went.
enum StatementAnswer {
    Rows(Rows),
    /// Nothing was done; true if that is so because there was such a row already.
    NotDone(bool),
    Unknown,
}

struct Work<'a> {
    load: Sql<'a>,
    session: Option<Gateway>,
    /// How many sessions there were: each begins with another node.
    opened: usize,
    random: Random,
    record: Record,
}

impl Sql<'_> {
    /// Runs until asked to stop.
    pub fn run(self) -> Result<Record, LocalError> {
        let (random, record) = (Random::new(self.seed), Record::new(self.number, Protocol::Sql));
        let opened = self.number as usize;
        let mut work = Work { load: self, session: None, opened, random, record };
        while !work.load.shared.stopping() {
            if work.log_in() {
                work.next()?;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(work.record)
    }
}

/// A row of `tag, prev, n`, from this column on.
fn seen(row: &[Option<String>], from: usize) -> Result<Seen, LocalError> {
    let number = |at: usize| row.get(from + at).and_then(|text| text.as_ref()?.parse().ok());
    match (number(0), number(1), number(2)) {
        (Some(tag), Some(prev), Some(count)) => Ok(Seen { tag, prev, count, lsn: None }),
        _ => Err(LocalError::Failed(format!("a row is none of ours: {row:?}"))),
    }
}

/// The one row that a statement about one key may answer with.
fn only(rows: &Rows) -> Result<Option<&Vec<Option<String>>>, LocalError> {
    match &rows[..] {
        [] => Ok(None),
        [row] => Ok(Some(row)),
        more => Err(LocalError::Failed(format!("{} rows have one key: {more:?}", more.len()))),
    }
}

/// Rows of `id, tag, prev, n` on the shelf of this number.
fn rows_of(number: u32, rows: &Rows) -> Result<Vec<(Key, Seen)>, LocalError> {
    let id = |row: &[Option<String>]| row.first()?.as_ref()?.parse().ok();
    let row = |row: &Vec<Option<String>>| {
        let none = || LocalError::Failed(format!("a row is none of ours: {row:?}"));
        Ok((Key(number, id(row).ok_or_else(none)?), seen(row, 1)?))
    };
    rows.iter().map(row).collect()
}

fn of(key: Key) -> String {
    format!("shelf = {} AND id = {}", key.0, key.1)
}

impl Work<'_> {
    /// Makes sure of a session; each new one is asked of the next node first.
    fn log_in(&mut self) -> bool {
        if self.session.is_none() {
            let mut place =
                self.load.gateways.lock().expect("a thread panicked while it looked for a node").clone();
            let hosts = place.hosts.len();
            place.hosts.rotate_left(self.opened % hosts);
            self.opened += 1;
            self.session = Gateway::open(&place, LOGIN_WITHIN).ok();
        }
        self.session.is_some()
    }

    fn ask(&mut self, statement: &str) -> StatementAnswer {
        let Some(session) = &mut self.session else { return StatementAnswer::NotDone(false) };
        let mut rows = Rows::new();
        let told = session.run_within(statement, STATEMENT_TIMEOUT, &mut |event| {
            if let Event::Row(row) = event {
                rows.push(row);
            }
        });
        match told {
            Ok(()) => StatementAnswer::Rows(rows),
            Err(Fault::Refused(complaint)) if NOT_DONE.contains(&complaint.code.as_str()) => {
                StatementAnswer::NotDone(complaint.code == EXISTS)
            }
            Err(Fault::Refused(_)) => StatementAnswer::Unknown,
            Err(Fault::Broken(_)) => {
                self.session = None;
                StatementAnswer::Unknown
            }
        }
    }

    fn called(&self, what: &'static str, shelf: usize) -> Called {
        Called { what, place: self.load.keys.place(shelf), invoked: self.load.shared.now() }
    }

    fn next(&mut self) -> Result<(), LocalError> {
        let keys = self.load.keys;
        let shelf = self.random.below(keys.count() as u64) as usize;
        let key = keys.to_write(shelf, &mut self.random);
        match self.random.below(100) {
            0..15 => {
                let key = keys.to_read(shelf, &mut self.random);
                self.get(shelf, key).map(drop)
            }
            15..27 => self.put(shelf, key),
            27..34 => self.insert(shelf, key),
            34..55 => self.increment(shelf, key),
            55..67 => self.update(shelf, key),
            67..77 => self.transaction(shelf),
            77..85 => self.skew(shelf),
            85..88 => self.delete(shelf),
            _ => self.scan(shelf),
        }
    }

    /// Puts the end of a write into the record.
    fn wrote(&mut self, called: Called, told: StatementAnswer, writes: Vec<Write>) {
        match told {
            StatementAnswer::Rows(_) => self.record.done(self.load.shared, called, None, Vec::new(), writes),
            StatementAnswer::NotDone(_) => self.record.not_done(),
            StatementAnswer::Unknown => self.record.unknown(called, writes),
        }
    }

    fn get(&mut self, shelf: usize, key: Key) -> Result<Option<Seen>, LocalError> {
        let called = self.called("select", shelf);
        let statement = format!("SELECT tag, prev, n FROM {TABLE} WHERE {}", of(key));
        let StatementAnswer::Rows(rows) = self.ask(&statement) else {
            self.record.not_done();
            return Ok(None);
        };
        let found = only(&rows)?.map(|row| seen(row, 0)).transpose()?;
        let reads = vec![Read { key, seen: found }];
        self.record.done(self.load.shared, called, None, reads, Vec::new());
        Ok(found)
    }

    fn put(&mut self, shelf: usize, key: Key) -> Result<(), LocalError> {
        let tag = self.load.shared.tag();
        let statement = format!(
            "INSERT INTO {TABLE} (shelf, id, tag, prev, n) VALUES ({}, {}, {tag}, 0, 0) \
             ON CONFLICT (shelf, id) DO UPDATE SET tag = EXCLUDED.tag, prev = 0, n = 0",
            key.0, key.1
        );
        let called = self.called("upsert", shelf);
        let told = self.ask(&statement);
        self.wrote(called, told, vec![Write { key, tag: Some(tag), over: Over::Blind }]);
        Ok(())
    }

    fn insert(&mut self, shelf: usize, key: Key) -> Result<(), LocalError> {
        let tag = self.load.shared.tag();
        let values = format!("({}, {}, {tag}, 0, 0)", key.0, key.1);
        let called = self.called("insert", shelf);
        let told = self.ask(&format!("INSERT INTO {TABLE} (shelf, id, tag, prev, n) VALUES {values}"));
        if let StatementAnswer::NotDone(true) = told {
            self.record.was_there(self.load.shared, called, None, vec![key]);
            return Ok(());
        }
        self.wrote(called, told, vec![Write { key, tag: Some(tag), over: Over::Absence }]);
        Ok(())
    }

    /// The row itself says which value it has replaced.
    fn increment(&mut self, shelf: usize, key: Key) -> Result<(), LocalError> {
        let tag = self.load.shared.tag();
        let called = self.called("increment", shelf);
        let told = self.ask(&format!(
            "UPDATE {TABLE} SET n = n + 1, prev = tag, tag = {tag} WHERE {} RETURNING tag, prev, n",
            of(key)
        ));
        let StatementAnswer::Rows(rows) = &told else {
            self.wrote(called, told, vec![Write { key, tag: Some(tag), over: Over::Something }]);
            return Ok(());
        };
        let found = only(rows)?.map(|row| seen(row, 0)).transpose()?;
        let writes = found.map(|found| Write { key, tag: Some(tag), over: Over::Value(found.prev) });
        let reads = vec![Read { key, seen: found }];
        self.record.done(self.load.shared, called, None, reads, writes.into_iter().collect());
        Ok(())
    }

    /// Only if the row still is as it was read.
    fn update(&mut self, shelf: usize, key: Key) -> Result<(), LocalError> {
        let Some(found) = self.get(shelf, key)? else { return Ok(()) };
        let (tag, old) = (self.load.shared.tag(), found.tag);
        let called = self.called("conditional update", shelf);
        let told = self.ask(&format!(
            "UPDATE {TABLE} SET tag = {tag}, prev = {old}, n = {} WHERE {} AND tag = {old} RETURNING n",
            found.count + 1,
            of(key)
        ));
        match told {
            StatementAnswer::Rows(rows) if rows.is_empty() => self.record.not_done(),
            told => self.wrote(called, told, vec![Write { key, tag: Some(tag), over: Over::Value(old) }]),
        }
        Ok(())
    }

    /// Reads two rows and writes what is there of them, all at once.
    fn transaction(&mut self, shelf: usize) -> Result<(), LocalError> {
        let both = self.load.keys.two(shelf, &mut self.random);
        if !self.begin() {
            return Ok(());
        }
        let called = self.called("transaction's select", shelf);
        let Some(found) = self.select(both)? else { return self.give_up() };
        let reads = scene::scanned(found.clone(), &both)?;
        self.record.done(self.load.shared, called, None, reads, Vec::new());
        let mut writes = Vec::new();
        for (key, seen) in &found {
            match self.replace(*key, seen)? {
                Some(write) => writes.push(write),
                None => return self.give_up(),
            }
        }
        let called = self.called("commit", shelf);
        let told = self.ask("COMMIT");
        if !writes.is_empty() {
            self.wrote(called, told, writes);
        }
        Ok(())
    }

    /// Reads two rows in one state and writes one of them. Two that do so to each other's row are both done:
    /// that is write skew, which snapshot isolation allows. What it forbids shows in what one of them has
    /// read, so it is recorded as one operation.
    fn skew(&mut self, shelf: usize) -> Result<(), LocalError> {
        let both = self.load.keys.two(shelf, &mut self.random);
        if !self.begin() {
            return Ok(());
        }
        let called = self.called("transaction on one of two rows", shelf);
        let Some(found) = self.select(both)? else { return self.give_up() };
        let written = found.iter().find(|(key, _)| *key == both[1]).copied();
        let Some((key, seen)) = written.filter(|_| found.len() == 2) else { return self.give_up() };
        let Some(write) = self.replace(key, &seen)? else { return self.give_up() };
        let reads = scene::scanned(found, &both)?;
        match self.ask("COMMIT") {
            StatementAnswer::Rows(_) => {
                self.record.done(self.load.shared, called, None, reads, vec![write]);
            }
            told => self.wrote(called, told, vec![write]),
        }
        Ok(())
    }

    /// Begins a transaction; false if that does not work.
    fn begin(&mut self) -> bool {
        let begun = matches!(self.ask("BEGIN"), StatementAnswer::Rows(_));
        if !begun {
            self.session = None;
        }
        begun
    }

    /// What is there of two rows, in arbitrary order; none if that is not told.
    fn select(&mut self, [one, other]: [Key; 2]) -> Result<Option<Vec<(Key, Seen)>>, LocalError> {
        let statement = format!(
            "SELECT id, tag, prev, n FROM {TABLE} WHERE shelf = {} AND id IN ({}, {})",
            one.0, one.1, other.1
        );
        let StatementAnswer::Rows(rows) = self.ask(&statement) else { return Ok(None) };
        rows_of(one.0, &rows).map(Some)
    }

    /// Replaces a row that the open transaction has read; none if it cannot.
    fn replace(&mut self, key: Key, seen: &Seen) -> Result<Option<Write>, LocalError> {
        let tag = self.load.shared.tag();
        let told = self.ask(&format!(
            "UPDATE {TABLE} SET tag = {tag}, prev = tag, n = n + 1 WHERE {} RETURNING prev",
            of(key)
        ));
        match told {
            // It sees the state that it has read.
            StatementAnswer::Rows(rows) if rows == [[Some(seen.tag.to_string())]] => {
                Ok(Some(Write { key, tag: Some(tag), over: Over::Value(seen.tag) }))
            }
            StatementAnswer::Rows(rows) => {
                let text = format!("a transaction read {seen:?} under {key} and replaced {rows:?}");
                Err(LocalError::Failed(text))
            }
            StatementAnswer::NotDone(_) | StatementAnswer::Unknown => Ok(None),
        }
    }

    /// Nothing of a transaction is done that was not committed.
    fn give_up(&mut self) -> Result<(), LocalError> {
        self.record.not_done();
        if !matches!(self.ask("ROLLBACK"), StatementAnswer::Rows(_)) {
            self.session = None;
        }
        Ok(())
    }

    fn delete(&mut self, shelf: usize) -> Result<(), LocalError> {
        let key = self.load.keys.to_remove(shelf, &mut self.random);
        let called = self.called("delete", shelf);
        let told = self.ask(&format!("DELETE FROM {TABLE} WHERE {} RETURNING tag, prev, n", of(key)));
        let StatementAnswer::Rows(rows) = &told else {
            self.wrote(called, told, vec![Write { key, tag: None, over: Over::Blind }]);
            return Ok(());
        };
        let found = only(rows)?.map(|row| seen(row, 0)).transpose()?;
        let (reads, writes) = match found {
            Some(found) => (vec![], vec![Write { key, tag: None, over: Over::Value(found.tag) }]),
            None => (vec![Read { key, seen: None }], vec![]),
        };
        self.record.done(self.load.shared, called, None, reads, writes);
        Ok(())
    }

    fn scan(&mut self, shelf: usize) -> Result<(), LocalError> {
        let known = self.load.keys.known(shelf);
        let number = self.load.keys.number(shelf);
        let called = self.called("select of a shelf", shelf);
        let StatementAnswer::Rows(rows) =
            self.ask(&format!("SELECT id, tag, prev, n FROM {TABLE} WHERE shelf = {number}"))
        else {
            self.record.not_done();
            return Ok(());
        };
        let reads = scene::scanned(rows_of(number, &rows)?, &known)?;
        self.record.done(self.load.shared, called, None, reads, Vec::new());
        Ok(())
    }
}
