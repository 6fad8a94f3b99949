//! PR-190, R11, I9 over calls of procedures: each call that is in the log has added what it was to add to
//! what was there just before it, once; and who was told of it was told what it came to.

use crate::check::lineage::Known;
use crate::programs::BESIDE;
use std::collections::BTreeMap;
use types::{Position, SessionId};

/// What a call was asked to do: to add to a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The row.
    pub id: i64,
    /// What is added.
    pub by: i64,
}

/// What a call was told: the sum, of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallAnswer {
    /// The entry.
    pub at: Position,
    /// The sum.
    pub number: i64,
}

/// Compares a log, oldest entry first, with what was asked and told. The error is a sentence.
pub fn compare(
    line: &[&Known],
    asked: &BTreeMap<(SessionId, u64), Asked>,
    told: &BTreeMap<Position, i64>,
) -> Result<(), String> {
    let mut sums: BTreeMap<i64, i64> = BTreeMap::new();
    let mut done: BTreeMap<(SessionId, u64), Position> = BTreeMap::new();
    for known in line {
        let mut sum = None;
        for (id, number) in known.counters.iter().filter(|(id, _)| *id < BESIDE) {
            let Some(of) = known.session.filter(|of| asked.contains_key(of)) else {
                return Err(format!("{} changes row {id}, and nobody has asked for it", known.at));
            };
            let (call, before) = (asked[&of], sums.get(id).copied().unwrap_or(0));
            if call.id != *id || *number != before.checked_add(call.by) {
                return Err(format!("{}: {call:?} makes {number:?} of {before} in row {id}", known.at));
            }
            if let Some(first) = done.insert(of, known.at) {
                return Err(format!("R11: {call:?} is done at {first} and again at {}", known.at));
            }
            sum = *number;
            sums.extend(number.map(|number| (*id, number)));
        }
        match told.get(&known.at) {
            Some(number) if sum != Some(*number) => {
                return Err(format!("{} came to {sum:?}, and {number} was told", known.at));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::tests::{at, known};

    fn call(lsn: u64, seq: u64, id: i64, number: i64) -> Known {
        let session = Some((SessionId(at(1, 1)), seq));
        Known { session, counters: vec![(id, Some(number)), (id + BESIDE, Some(7))], ..known(lsn, &[], &[]) }
    }

    #[test]
    fn histories_that_cannot_be_are_rejected() {
        let by = |by: i64| Asked { id: 1, by };
        let session = SessionId(at(1, 1));
        let asked = BTreeMap::from([((session, 1), by(5)), ((session, 2), by(3))]);
        let told = BTreeMap::from([(at(1, 2), 5), (at(1, 3), 8), (at(9, 9), 1)]);
        let check = |line: &[Known]| compare(&line.iter().collect::<Vec<_>>(), &asked, &told);
        assert_eq!(check(&[call(2, 1, 1, 5), call(3, 2, 1, 8)]), Ok(()));
        assert!(check(&[known(2, &[], &[])]).is_err(), "it was told that something is done");
        assert!(check(&[call(2, 1, 1, 5), call(3, 2, 1, 3)]).is_err(), "it has not seen the one before");
        assert!(check(&[call(2, 1, 1, 5), call(4, 1, 1, 10)]).is_err(), "it is done twice");
        assert!(check(&[call(4, 3, 1, 5)]).is_err(), "nobody has asked");
        assert!(check(&[call(4, 1, 2, 5)]).is_err(), "it is another row");
    }
}
