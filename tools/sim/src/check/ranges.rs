//! I4, I5: scans, finds by an index and counts show the state at the position that they name, and nothing
//! else: no row too many, none too few, none that is not committed there.

use crate::check::history::{Answer, IndexRange, KeyRange};
use crate::check::states::{StateRow, States};
use crate::rows;
use types::Lsn;

/// A row that was shown: its key's name, the LSN that wrote it, and its value.
pub type Shown = (String, Lsn, u64);

/// Checks what a scan found of a range, of which it wanted so many rows at most. The error is a sentence.
pub fn check_scan(
    (range, limit): (&KeyRange, u32),
    (rows, more, at): (&[Shown], bool, Lsn),
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

/// Checks what was found by an index, of which so many rows were wanted at most, and where the range is said
/// to go on. The error is a sentence.
pub fn check_find(
    (range, limit): (&IndexRange, u32),
    (rows, next, at): (&[Shown], &[u8], Lsn),
    states: &States<'_>,
) -> Result<(), String> {
    let entry =
        |row: StateRow<'_>| Some((rows::entry(&range.name, row.0, row.2)?, row.0.to_string(), row.1, row.2));
    let within = |entry: &[u8]| entry >= &range.from[..] && (range.to.is_empty() || entry < &range.to[..]);
    let all = states.rows(at).filter_map(|row| entry((row.0, row.1, row.2)));
    let mut expected: Vec<_> = all.filter(|(entry, ..)| within(entry)).collect();
    expected.sort();
    let rest = expected.split_off(expected.len().min(limit as usize));
    let shown = rows.iter().map(|(key, lsn, value)| (key, lsn, value));
    if !shown.eq(expected.iter().map(|(_, key, lsn, value)| (key, lsn, value))) {
        let expected: Vec<_> = expected.iter().map(|(_, key, lsn, value)| (key, lsn, value)).collect();
        return Err(format!("should have found {expected:?}"));
    }
    let goes_on = match (expected.last(), rest.first()) {
        (Some((last, ..)), Some((first, ..))) => next > &last[..] && next <= &first[..],
        _ => next.is_empty(),
    };
    match goes_on {
        true => Ok(()),
        false => Err(format!("goes on in another place than behind {} rows", expected.len())),
    }
}

/// Checks how many rows were counted in a range. The error is a sentence.
pub fn check_count(range: &KeyRange, (number, at): (u64, Lsn), states: &States<'_>) -> Result<(), String> {
    let expected = states.rows(at).filter(|(key, ..)| range.has(key)).count() as u64;
    if number == expected { Ok(()) } else { Err(format!("should have counted {expected}")) }
}

/// The rows that an answer shows of keys: what it found, or that there is none.
pub fn shown<'a>(told: &'a Answer, range: &KeyRange, key: &str) -> Option<Option<&'a Shown>> {
    let Answer::Rows { rows, more, .. } = told else { return None };
    // Behind the last row of a page nothing was looked at.
    let seen = !more || rows.last().is_some_and(|(last, ..)| key <= last.as_str());
    (range.has(key) && seen).then(|| rows.iter().find(|(shown, ..)| shown == key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::Known;
    use crate::check::lineage::tests::known;
    use types::Epoch;

    fn line() -> Vec<Known> {
        let known = |(lsn, key, value)| known(lsn, &[(key, value)], &[]);
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
    fn a_find_of_another_state_order_or_place_is_rejected() {
        // Hues 1, 2, 1: c stands before b.
        let known = |(lsn, key, value)| known(lsn, &[(key, Some(value))], &[]);
        let line: Vec<Known> = [(2, "a", 1), (3, "b", 2), (4, "c", 6)].into_iter().map(known).collect();
        let find = |names: &[&str], limit, next: &[u8], at| {
            let states = States::of(&line);
            let row = |name: &&str| {
                let (lsn, value) = states.row(name, Lsn(9)).expect("a row of the line");
                (name.to_string(), lsn, value)
            };
            let rows: Vec<_> = names.iter().map(row).collect();
            let range = IndexRange {
                index: 1,
                name: "hues".into(),
                from: Default::default(),
                to: Default::default(),
            };
            check_find((&range, limit), (&rows, next, Lsn(at)), &states)
        };
        let of = |name: &str, value| rows::entry("hues", name, value).expect("it has a place");
        assert_eq!(find(&["a", "c", "b"], 9, b"", 4), Ok(()));
        assert!(find(&["a", "b", "c"], 9, b"", 4).is_err(), "in the order of keys");
        assert!(find(&["a", "c", "b"], 9, b"", 3).is_err(), "c was not committed there");
        assert!(find(&["a", "b"], 9, b"", 4).is_err(), "c is missing");
        assert_eq!(find(&["a", "c"], 2, &of("b", 2), 4), Ok(()));
        assert!(find(&["a", "c"], 2, b"", 4).is_err(), "there is one more");
        assert!(find(&["a", "c"], 2, &of("c", 6), 4).is_err(), "c comes again");
        assert!(find(&["a", "c"], 2, &of("d", 2), 4).is_err(), "b is passed over");
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
