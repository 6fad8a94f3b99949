//! I4, I5: scans and counts show the state at the position that they name, and nothing else: no row too many,
//! none too few, none that is not committed there.

use crate::check::history::{Answer, KeyRange};
use crate::check::states::{StateRow, States};
use types::Lsn;

/// Checks what a scan found of a range, of which it wanted so many rows at most. The error is a sentence.
pub fn check_scan(
    (range, limit): (&KeyRange, u32),
    (rows, more, at): (&[(String, Lsn, u64)], bool, Lsn),
    states: &States<'_>,
) -> Result<(), String> {
    let mut expected: Vec<StateRow> = states.rows(at).filter(|(key, ..)| range.has(key)).collect();
    let goes_on = expected.len() > limit as usize;
    expected.truncate(limit as usize);
    let shown = rows.iter().map(|(key, lsn, value)| (key.as_str(), *lsn, *value));
    if !shown.eq(expected.iter().copied()) {
        return Err(format!("should have found {expected:?}"));
    }
    if more != goes_on {
        return Err(format!("should have said that there are more: {goes_on}"));
    }
    Ok(())
}

/// Checks how many rows were counted in a range. The error is a sentence.
pub fn check_count(range: &KeyRange, (number, at): (u64, Lsn), states: &States<'_>) -> Result<(), String> {
    let expected = states.rows(at).filter(|(key, ..)| range.has(key)).count() as u64;
    if number == expected { Ok(()) } else { Err(format!("should have counted {expected}")) }
}

/// The rows that an answer shows of keys: what it found, or that there is none.
pub fn shown<'a>(told: &'a Answer, range: &KeyRange, key: &str) -> Option<Option<&'a (String, Lsn, u64)>> {
    let Answer::Rows { rows, more, .. } = told else { return None };
    // Behind the last row of a page nothing was looked at.
    let seen = !more || rows.last().is_some_and(|(last, ..)| key <= last.as_str());
    (range.has(key) && seen).then(|| rows.iter().find(|(shown, ..)| shown == key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::Known;
    use crate::check::lineage::tests::at;
    use types::Epoch;

    fn line() -> Vec<Known> {
        let known = |(lsn, key, value): (u64, &str, Option<u64>)| {
            let changes = vec![(key.to_string(), value)];
            Known { at: at(1, lsn), crc: 0, prev_crc: 0, session: None, changes, marks: Vec::new() }
        };
        let all =
            [(2, "a", Some(1)), (3, "b", Some(2)), (4, "b", None), (5, "c", Some(3)), (6, "d", Some(4))];
        all.into_iter().map(known).collect()
    }

    fn range(from: &str, behind: bool, to: &str) -> KeyRange {
        KeyRange { from: from.into(), behind, to: to.into() }
    }

    fn scan(
        range: &KeyRange,
        limit: u32,
        rows: &[(&str, u64, u64)],
        more: bool,
        at: u64,
    ) -> Result<(), String> {
        let line = line();
        let rows: Vec<_> =
            rows.iter().map(|(key, lsn, value)| (key.to_string(), Lsn(*lsn), *value)).collect();
        check_scan((range, limit), (&rows, more, Lsn(at)), &States::of(&line))
    }

    #[test]
    fn a_scan_of_another_state_than_it_names_is_rejected() {
        let all = range("", false, "");
        assert_eq!(scan(&all, 9, &[("a", 2, 1), ("b", 3, 2)], false, 3), Ok(()));
        assert_eq!(scan(&all, 9, &[("a", 2, 1)], false, 4), Ok(()));
        assert!(scan(&all, 9, &[("a", 2, 1), ("b", 3, 2)], false, 4).is_err(), "b was removed");
        assert!(scan(&all, 9, &[("a", 2, 1), ("c", 5, 3)], false, 4).is_err(), "c was not committed there");
        assert!(scan(&all, 9, &[("b", 3, 2)], false, 3).is_err(), "a is missing");
        assert!(scan(&all, 9, &[("a", 1, 1)], false, 2).is_err(), "another LSN wrote it");
    }

    #[test]
    fn a_page_that_is_cut_in_another_place_is_rejected() {
        let behind = range("a", true, "d");
        assert_eq!(scan(&behind, 9, &[("c", 5, 3)], false, 6), Ok(()));
        assert!(scan(&behind, 9, &[("a", 2, 1), ("c", 5, 3)], false, 6).is_err(), "a was on the page before");
        assert!(scan(&behind, 9, &[("c", 5, 3), ("d", 6, 4)], false, 6).is_err(), "d is the end");
        let all = range("", false, "");
        assert_eq!(scan(&all, 2, &[("a", 2, 1), ("c", 5, 3)], true, 6), Ok(()));
        assert!(scan(&all, 2, &[("a", 2, 1), ("c", 5, 3)], false, 6).is_err(), "there is one more");
        assert!(scan(&all, 2, &[("a", 2, 1)], false, 2).is_ok());
        assert!(scan(&all, 1, &[("a", 2, 1)], true, 2).is_err(), "there is no more");
    }

    #[test]
    fn a_wrong_count_is_rejected() {
        let line = line();
        let states = States::of(&line);
        let count = |number, at| check_count(&range("b", false, ""), (number, Lsn(at)), &states);
        assert_eq!([count(1, 3), count(0, 4), count(2, 6)], [Ok(()), Ok(()), Ok(())]);
        assert!(count(1, 4).is_err() && count(3, 6).is_err());
    }

    #[test]
    fn a_page_says_nothing_of_what_is_behind_it() {
        let rows = vec![("a".to_string(), Lsn(2), 1), ("c".to_string(), Lsn(5), 3)];
        let told = |more| Answer::Rows { rows: rows.clone(), more, at: Lsn(6), epoch: Epoch(1) };
        let all = range("", false, "");
        assert_eq!(shown(&told(true), &all, "b"), Some(None));
        assert_eq!(shown(&told(true), &all, "d"), None);
        assert_eq!(shown(&told(false), &all, "d"), Some(None));
        assert_eq!(shown(&told(true), &range("a", true, ""), "a"), None);
        assert_eq!(shown(&told(true), &all, "c"), Some(Some(&rows[1])));
    }
}
