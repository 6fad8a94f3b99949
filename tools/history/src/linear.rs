//! Reads and writes of each key are linearizable, unknown outcomes included.
//!
//! Every written value is unique, so a value's write and reads form a cluster. A cluster must hold its key
//! from the first end of one of its operations to the last beginning of one (Gibbons and Korach): these zones
//! must not overlap, and no cluster may fit wholly into the zone of another.

use crate::zones::{self, Span};
use std::collections::BTreeMap;

/// An operation on one register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The value written or read; `None` is the absence before the first write.
    pub value: Option<u64>,
    /// True for a write.
    pub writes: bool,
    /// When it began.
    pub began: u64,
    /// When it ended; `None`: a write of which nobody knows whether it happened.
    pub ended: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    value: Option<u64>,
    written: bool,
    read: bool,
    certain: bool,
    write_began: u64,
    first_end: u64,
    last_begin: u64,
    first_read_end: u64,
}

impl Cluster {
    fn new(value: Option<u64>) -> Cluster {
        let initial = value.is_none();
        Cluster {
            value,
            written: initial,
            read: false,
            certain: initial,
            write_began: 0,
            first_end: if initial { 0 } else { u64::MAX },
            last_begin: 0,
            first_read_end: u64::MAX,
        }
    }

    fn span(&self) -> Span {
        Span { first_end: self.first_end, last_begin: self.last_begin }
    }
}

/// Checks the operations on one register. The error is a sentence.
pub fn check(steps: &[Step]) -> Result<(), String> {
    let mut clusters: BTreeMap<Option<u64>, Cluster> = BTreeMap::new();
    clusters.insert(None, Cluster::new(None));
    for step in steps {
        let cluster = clusters.entry(step.value).or_insert_with(|| Cluster::new(step.value));
        cluster.last_begin = cluster.last_begin.max(step.began);
        cluster.first_end = cluster.first_end.min(step.ended.unwrap_or(u64::MAX));
        if step.writes {
            cluster.written = true;
            cluster.certain = step.ended.is_some();
            cluster.write_began = step.began;
        } else {
            cluster.read = true;
            cluster.first_read_end = cluster.first_read_end.min(step.ended.unwrap_or(u64::MAX));
        }
    }
    clusters.retain(|_, cluster| cluster.certain || cluster.read);
    let all: Vec<Cluster> = clusters.into_values().collect();
    for cluster in &all {
        let value = cluster.value;
        if !cluster.written {
            return Err(format!("{value:?} was read and never written"));
        }
        if cluster.first_read_end < cluster.write_began {
            return Err(format!("{value:?} was read before its write began"));
        }
    }
    let spans: Vec<Span> = all.iter().map(Cluster::span).collect();
    if let Some((one, other)) = zones::conflict(&spans) {
        let (zone, within) = (&spans[one], &spans[other]);
        return Err(format!(
            "{:?} must have been there from {} to {}, and {:?} within it ({} to {})",
            all[one].value,
            zone.first_end,
            zone.last_begin,
            all[other].value,
            within.first_end.min(within.last_begin),
            within.first_end.max(within.last_begin)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, began: u64, ended: impl Into<Option<u64>>) -> Step {
        Step { value: Some(value), writes: true, began, ended: ended.into() }
    }

    fn read(value: impl Into<Option<u64>>, began: u64, ended: u64) -> Step {
        Step { value: value.into(), writes: false, began, ended: Some(ended) }
    }

    #[test]
    fn good_histories_pass() {
        let good: [&[Step]; 6] = [
            &[],
            &[read(None, 1, 2), write(1, 3, 4), read(1, 5, 6)],
            &[write(1, 1, 10), read(None, 2, 3), read(1, 4, 5)],
            &[write(1, 1, 10), write(2, 2, 9), read(1, 11, 12)],
            &[write(1, 1, 2), write(2, 3, None), read(1, 5, 6), read(2, 100, 101), read(2, 200, 201)],
            &[write(1, 1, 2), write(2, 3, None), read(1, 50, 60)],
        ];
        for steps in good {
            assert_eq!(check(steps), Ok(()), "{steps:?}");
        }
    }

    #[test]
    fn bad_histories_are_rejected() {
        let bad: [(&str, &[Step]); 7] = [
            ("a stale read", &[write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)]),
            ("a lost write", &[write(1, 1, 2), read(None, 3, 4)]),
            ("read before written", &[read(1, 1, 2), write(1, 3, 4)]),
            ("never written", &[read(9, 1, 2)]),
            ("new, then old", &[write(1, 1, 2), write(2, 3, 20), read(2, 4, 5), read(1, 6, 7)]),
            (
                "an unknown write that comes and goes",
                &[write(1, 1, 2), write(2, 3, None), read(2, 4, 5), read(1, 6, 7), read(2, 8, 9)],
            ),
            ("an overwritten value returns", &[write(1, 1, 2), write(2, 3, 4), read(2, 5, 6), read(1, 7, 8)]),
        ];
        for (what, steps) in bad {
            assert!(check(steps).is_err(), "{what}");
        }
    }
}
