//! Workloads: which key comes next, read or update, and with which bytes. The same seed gives the same
//! sequence.

use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use types::random::{Random, mix};

/// How keys are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Distribution {
    /// All equally often.
    #[default]
    Uniform,
    /// YCSB's: the n-th most popular key comes in proportion to n to the power -0.99, and popular keys are
    /// spread over the whole range.
    Zipfian,
    /// The same, and the newest records are the popular ones.
    Latest,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        match text {
            "uniform" => Ok(Distribution::Uniform),
            "zipfian" => Ok(Distribution::Zipfian),
            "latest" => Ok(Distribution::Latest),
            other => Err(format!("'{other}' is not a distribution; choose uniform, zipfian or latest")),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
        })
    }
}

/// Ranks 0 to `items - 1`, rank 0 the most frequent (Gray and others, "Quickly generating billion-record
/// synthetic databases", as YCSB has it).
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// YCSB's exponent.
    pub const THETA: f64 = 0.99;

    /// Over so many items. Panics if there are none.
    pub fn new(items: u64) -> Zipfian {
        assert!(items > 0, "a distribution over no items");
        let theta = Zipfian::THETA;
        let zeta = Zipfian::zeta(items);
        let of_two = Zipfian::zeta(items.min(2));
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - of_two / zeta);
        Zipfian { items, theta, zeta, alpha: 1.0 / (1.0 - theta), eta }
    }

    fn zeta(items: u64) -> f64 {
        (1..=items).map(|n| (n as f64).powf(-Zipfian::THETA)).sum()
    }

    /// How often this rank comes, as a share of all.
    pub fn share(&self, rank: u64) -> f64 {
        ((rank + 1) as f64).powf(-self.theta) / self.zeta
    }

    /// The next rank.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let point = unit * self.zeta;
        if point < 1.0 || self.items == 1 {
            return 0;
        }
        if point < 1.0 + 0.5f64.powf(self.theta) || self.items == 2 {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// What a load is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// How many records there are.
    pub records: u64,
    /// Bytes of each record's value.
    pub value_bytes: usize,
    /// How many of a hundred operations update; the others read.
    pub update_percent: u8,
    /// How keys are chosen.
    pub distribution: Distribution,
    /// Decides the sequence.
    pub seed: u64,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            records: 10_000,
            value_bytes: 1_024,
            update_percent: 100,
            distribution: Distribution::Uniform,
            seed: 1,
        }
    }
}

/// One operation to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
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
}

/// A record's key, the same for every system.
pub fn key(record: u64) -> String {
    format!("user{record:010}")
}

/// An endless sequence of operations.
#[derive(Clone, Debug)]
pub struct Steps {
    workload: Workload,
    random: Random,
    zipfian: Option<Zipfian>,
    values: Values,
}

impl Steps {
    /// The sequence of this workload.
    pub fn new(workload: &Workload) -> Steps {
        Steps {
            random: Random::new(workload.seed),
            zipfian: (workload.distribution != Distribution::Uniform).then(|| Zipfian::new(workload.records)),
            values: Values::new(workload.seed, workload.value_bytes),
            workload: workload.clone(),
        }
    }

    fn record(&mut self) -> u64 {
        match &self.zipfian {
            None => self.random.below(self.workload.records),
            Some(zipfian) if self.workload.distribution == Distribution::Latest => {
                self.workload.records - 1 - zipfian.rank(&mut self.random)
            }
            // Spread as YCSB does it: by a hash, so a few records share a place and a few are never chosen.
            Some(zipfian) => mix(zipfian.rank(&mut self.random).wrapping_add(1)) % self.workload.records,
        }
    }

    /// The next operation.
    pub fn step(&mut self) -> Step {
        let record = self.record();
        if self.random.below(100) < u64::from(self.workload.update_percent) {
            Step::Update { record, value: self.values.draw(&mut self.random) }
        } else {
            Step::Read { record }
        }
    }
}

/// Values: windows into random bytes that no compression shortens.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Bytes,
    length: usize,
}

impl Values {
    const POOL: usize = 1 << 20;

    /// Values of `length` bytes.
    pub fn new(seed: u64, length: usize) -> Values {
        let mut random = Random::new(!seed);
        let pool: Vec<u8> =
            (0..(Values::POOL + length).div_ceil(8)).flat_map(|_| random.draw().to_le_bytes()).collect();
        Values { pool: pool.into(), length }
    }

    /// The next value. Shares memory with the others.
    pub fn draw(&self, random: &mut Random) -> Bytes {
        let at = random.below(Values::POOL as u64) as usize;
        self.pool.slice(at..at + self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(workload: &Workload, count: usize) -> Vec<Step> {
        let mut steps = Steps::new(workload);
        (0..count).map(|_| steps.step()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_steps() {
        for distribution in [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest] {
            let workload = Workload { distribution, update_percent: 50, ..Workload::default() };
            assert_eq!(take(&workload, 500), take(&workload, 500));
            let other = Workload { seed: 2, ..workload.clone() };
            assert_ne!(take(&workload, 500), take(&other, 500));
        }
    }

    #[test]
    fn the_share_of_updates_is_as_asked() {
        for (percent, least, most) in [(0, 0, 0), (50, 4_800, 5_200), (100, 10_000, 10_000)] {
            let workload = Workload { update_percent: percent, ..Workload::default() };
            let updates =
                take(&workload, 10_000).iter().filter(|step| matches!(step, Step::Update { .. })).count();
            assert!((least..=most).contains(&updates), "{updates} updates at {percent} %");
        }
    }

    #[test]
    fn values_have_the_length_and_differ() {
        let steps = take(&Workload::default(), 10);
        let values: Vec<&Bytes> = steps
            .iter()
            .map(|step| match step {
                Step::Update { value, .. } => value,
                Step::Read { .. } => panic!("all are updates"),
            })
            .collect();
        assert!(values.iter().all(|value| value.len() == 1_024));
        assert!(values.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn uniform_keys_come_equally_often() {
        let mut random = Random::new(7);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..=10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipfian_ranks_come_as_often_as_their_share_says() {
        let zipfian = Zipfian::new(1_000);
        let mut random = Random::new(3);
        let draws = 200_000;
        let mut counts = vec![0u32; 1_000];
        for _ in 0..draws {
            counts[zipfian.rank(&mut random) as usize] += 1;
        }
        // The method is exact for the first two ranks and approximate behind them.
        for (rank, slack) in [(0, 0.05), (1, 0.05), (10, 0.25), (100, 0.25)] {
            let share = f64::from(counts[rank]) / f64::from(draws);
            let expected = zipfian.share(rank as u64);
            assert!((share / expected - 1.0).abs() < slack, "rank {rank}: {share:.5} and not {expected:.5}");
        }
        let head: u32 = counts[..100].iter().sum();
        let expected: f64 = (0..100).map(|rank| zipfian.share(rank)).sum();
        assert!((f64::from(head) / f64::from(draws) / expected - 1.0).abs() < 0.03, "head {head} of {draws}");
        assert!(counts.iter().filter(|count| **count > 0).count() > 900, "the tail is reached");
    }

    #[test]
    fn small_zipfians_stay_within_their_items() {
        let mut random = Random::new(1);
        for items in 1..5 {
            let zipfian = Zipfian::new(items);
            assert!((0..1_000).all(|_| zipfian.rank(&mut random) < items));
        }
    }

    #[test]
    fn distributions_are_read_from_their_names() {
        for distribution in [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest] {
            assert_eq!(distribution.to_string().parse(), Ok(distribution));
        }
        assert!("normal".parse::<Distribution>().is_err());
    }
}
