//! YCSB's core workloads A to F: which operation comes next, and on which record (Cooper and others,
//! "Benchmarking cloud serving systems with YCSB", and the workloads that come with the program).

use crate::generate::{Distribution, Values, Zipfian};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use types::random::{Random, mix};

/// The most records of a scan, as in YCSB's workload E.
pub const MAX_SCAN: u32 = 100;

/// A core workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Letter {
    /// Half updates.
    A,
    /// Few updates.
    B,
    /// Reads alone.
    C,
    /// Reads of what was inserted last, few inserts.
    D,
    /// Short scans, few inserts.
    E,
    /// Half of the operations read a record and write it.
    F,
}

impl Letter {
    /// All of them.
    pub const ALL: [Letter; 6] = [Letter::A, Letter::B, Letter::C, Letter::D, Letter::E, Letter::F];

    /// What it is made of.
    pub fn mix(self) -> Mix {
        match self {
            Letter::A => Mix::updates(50),
            Letter::B => Mix::updates(5),
            Letter::C => Mix::updates(0),
            Letter::D => Mix { insert: 5, ..Mix::updates(0) },
            Letter::E => Mix { insert: 5, scan: 95, ..Mix::updates(0) },
            Letter::F => Mix { modify: 50, ..Mix::updates(0) },
        }
    }

    /// How it chooses records.
    pub fn distribution(self) -> Distribution {
        if self == Letter::D { Distribution::Latest } else { Distribution::Zipfian }
    }
}

impl FromStr for Letter {
    type Err = String;

    fn from_str(text: &str) -> Result<Letter, String> {
        let found = Letter::ALL.into_iter().find(|letter| letter.to_string() == text.to_ascii_lowercase());
        found.ok_or_else(|| format!("'{text}' is not a workload of YCSB; choose from a, b, c, d, e, f"))
    }
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_ascii_lowercase())
    }
}

/// How many of a hundred operations do what. The rest read a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mix {
    /// Replace a record's value.
    pub update: u8,
    /// Add a record.
    pub insert: u8,
    /// Read some records in the order of their keys.
    pub scan: u8,
    /// Read a record and write it.
    pub modify: u8,
}

impl Mix {
    /// Updates and reads.
    pub fn updates(percent: u8) -> Mix {
        Mix { update: percent, ..Mix::default() }
    }

    /// How many of a hundred operations write.
    pub fn writes(self) -> u8 {
        self.update + self.insert + self.modify
    }

    /// How many read a record, and do nothing else.
    pub fn reads(self) -> u8 {
        100 - self.writes() - self.scan
    }

    /// In a few words.
    pub fn in_words(self) -> String {
        let parts = [
            (self.reads(), "get"),
            (self.update, "put"),
            (self.insert, "insert"),
            (self.scan, "scan"),
            (self.modify, "get and put"),
        ];
        let parts = parts.into_iter().filter(|(percent, _)| *percent > 0);
        let parts: Vec<String> = parts.map(|(percent, what)| format!("{percent} % {what}")).collect();
        parts.join(", ")
    }
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads a record.
    Read {
        /// Its number.
        record: u64,
    },
    /// Replaces a record's value.
    Update {
        /// Its number.
        record: u64,
        /// The new value.
        value: Bytes,
    },
    /// Adds a record.
    Insert {
        /// Its number, which no record has had.
        record: u64,
        /// Its value.
        value: Bytes,
    },
    /// Reads records in the order of their keys.
    Scan {
        /// The number of the first one.
        record: u64,
        /// At most so many.
        rows: u32,
        /// So many there are at least.
        least: u32,
    },
    /// Reads a record and writes it.
    Modify {
        /// Its number.
        record: u64,
        /// The new value.
        value: Bytes,
    },
}

/// Which records there are, of numbers that are given out one after the other.
#[derive(Clone, Debug)]
struct Records {
    next: u64,
    /// All below are there.
    there: u64,
    /// There are these, too, and some below them are on their way.
    early: BTreeSet<u64>,
}

impl Records {
    fn inserted(&mut self, record: u64) {
        self.early.insert(record);
        while self.early.remove(&self.there) {
            self.there += 1;
        }
    }
}

/// An endless sequence of operations on records, some of which are added on the way. The same seed gives the
/// same sequence, as far as inserted records are there equally soon.
#[derive(Clone, Debug)]
pub struct Operations {
    mix: Mix,
    distribution: Distribution,
    records: Records,
    random: Random,
    zipfian: Zipfian,
    values: Values,
}

impl Operations {
    /// Over records that are there, with values of so many bytes. Panics if there is none.
    pub fn new(records: u64, value_bytes: usize, seed: u64) -> Operations {
        Operations {
            mix: Mix::default(),
            distribution: Distribution::Uniform,
            records: Records { next: records, there: records, early: BTreeSet::new() },
            random: Random::new(seed),
            zipfian: Zipfian::new(records),
            values: Values::new(seed, value_bytes),
        }
    }

    /// Goes on with another mix over the records that are there by now.
    pub fn change(&mut self, mix: Mix, distribution: Distribution) {
        (self.mix, self.distribution) = (mix, distribution);
    }

    /// What is asked for now.
    pub fn mix(&self) -> Mix {
        self.mix
    }

    /// A record that is there. How popular a record is follows from its rank among those that were loaded:
    /// what is added later is chosen by `Latest` and `Uniform` alone.
    fn record(&mut self) -> u64 {
        let there = self.records.there;
        match self.distribution {
            Distribution::Uniform => self.random.below(there),
            Distribution::Zipfian => mix(self.zipfian.rank(&mut self.random).wrapping_add(1)) % there,
            Distribution::Latest => there - 1 - self.zipfian.rank(&mut self.random),
        }
    }

    /// The next one.
    pub fn next(&mut self) -> Operation {
        let Mix { update, insert, scan, modify } = self.mix;
        let drawn = self.random.below(100) as u8;
        let value = |own: &mut Operations| own.values.draw(&mut own.random);
        if drawn < update {
            return Operation::Update { record: self.record(), value: value(self) };
        }
        if drawn < update + insert {
            let record = self.records.next;
            self.records.next += 1;
            return Operation::Insert { record, value: value(self) };
        }
        if drawn < update + insert + scan {
            let (record, rows) = (self.record(), 1 + self.random.below(MAX_SCAN.into()) as u32);
            let least = (self.records.there - record).min(rows.into()) as u32;
            return Operation::Scan { record, rows, least };
        }
        if drawn < update + insert + scan + modify {
            return Operation::Modify { record: self.record(), value: value(self) };
        }
        Operation::Read { record: self.record() }
    }

    /// A record that was to be added is there.
    pub fn inserted(&mut self, record: u64) {
        self.records.inserted(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(letter: Letter) -> [u32; 5] {
        let mut operations = Operations::new(1_000, 10, 3);
        operations.change(letter.mix(), letter.distribution());
        let mut counts = [0; 5];
        for _ in 0..20_000 {
            let at = match operations.next() {
                Operation::Read { .. } => 0,
                Operation::Update { .. } => 1,
                Operation::Insert { record, .. } => {
                    operations.inserted(record);
                    2
                }
                Operation::Scan { .. } => 3,
                Operation::Modify { .. } => 4,
            };
            counts[at] += 1;
        }
        counts.map(|count| (count + 100) / 200)
    }

    #[test]
    fn each_letter_has_the_shares_that_ycsb_gives_it() {
        let wanted = [
            (Letter::A, [50, 50, 0, 0, 0]),
            (Letter::B, [95, 5, 0, 0, 0]),
            (Letter::C, [100, 0, 0, 0, 0]),
            (Letter::D, [95, 0, 5, 0, 0]),
            (Letter::E, [0, 0, 5, 95, 0]),
            (Letter::F, [50, 0, 0, 0, 50]),
        ];
        for (letter, wanted) in wanted {
            let found = shares(letter);
            let near = found.iter().zip(wanted).all(|(found, wanted)| found.abs_diff(wanted) <= 1);
            assert!(near, "{letter}: {found:?} and not {wanted:?}");
            assert_eq!(letter.to_string().parse(), Ok(letter));
        }
        assert!("g".parse::<Letter>().is_err());
        assert_eq!(Letter::F.mix().in_words(), "50 % get, 50 % get and put");
    }

    #[test]
    fn no_record_is_asked_for_before_it_and_all_below_it_are_there() {
        let mut operations = Operations::new(10, 4, 1);
        operations.change(Letter::D.mix(), Distribution::Latest);
        let mut on_their_way = Vec::new();
        for _ in 0..2_000 {
            match operations.next() {
                Operation::Insert { record, .. } => on_their_way.push(record),
                Operation::Read { record } => {
                    assert!(on_their_way.iter().all(|waits| record < *waits), "{record}, {on_their_way:?}");
                }
                other => panic!("{other:?} is none of this workload"),
            }
            // The newest is there first.
            if on_their_way.len() == 3 {
                on_their_way.drain(..).rev().for_each(|record| operations.inserted(record));
            }
        }
    }

    #[test]
    fn the_latest_records_are_the_most_popular() {
        let mut operations = Operations::new(1_000, 4, 9);
        operations.change(Mix::updates(0), Distribution::Latest);
        let mut newest = 0;
        for _ in 0..10_000 {
            match operations.next() {
                Operation::Read { record: 990.. } => newest += 1,
                Operation::Read { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let expected: f64 = (0..10).map(|rank| Zipfian::new(1_000).share(rank)).sum();
        let share = f64::from(newest) / 10_000.0;
        assert!((share / expected - 1.0).abs() < 0.1, "{share} and not {expected}");
    }

    #[test]
    fn scans_know_how_many_rows_there_must_be() {
        let mut operations = Operations::new(50, 4, 2);
        operations.change(Mix { scan: 100, ..Mix::default() }, Distribution::Uniform);
        for _ in 0..1_000 {
            let Operation::Scan { record, rows, least } = operations.next() else { panic!("all are scans") };
            assert!((1..=MAX_SCAN).contains(&rows) && u64::from(least) == u64::from(rows).min(50 - record));
        }
    }
}
