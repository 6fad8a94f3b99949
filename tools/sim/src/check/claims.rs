//! PR-324, PR-325, PR-369: what rows of a database demand of each other over all its partitions. At no commit
//! are there two rows with the same unique value, or a row that refers to one that is not there, by its key
//! or by its unique value. What a row demands follows from its name and its value ([`crate::rows`]).

use super::lineage::Commit;
use crate::rows::{self, LETTERS, NOTES, PEOPLE, table_of};
use std::collections::BTreeMap;
use types::Position;

/// Rows of the database by name, with their values.
pub type Rows = BTreeMap<String, u64>;

/// What is wrong with these rows: the finding, and a sentence.
pub fn fault(rows: &Rows) -> Option<(&'static str, String)> {
    let mut unique: BTreeMap<i64, &str> = BTreeMap::new();
    for (name, value) in rows {
        let table = table_of(name);
        if let Some(mark) = rows::mark(name, *value).filter(|_| table == PEOPLE)
            && let Some(other) = unique.insert(mark, name)
        {
            return Some(("PR-324", format!("{other} and {name} both have the unique value {mark}")));
        }
        if let Some(parent) = rows::refers(name, *value).filter(|_| table == LETTERS)
            && !rows.contains_key(&parent)
        {
            return Some(("PR-325", format!("{name} refers to {parent}, which is not there")));
        }
    }
    let notes = rows.iter().filter(|(name, _)| table_of(name) == NOTES);
    let mut wanted = notes.filter_map(|(name, value)| Some((name, rows::mark(name, *value)?)));
    let (name, mark) = wanted.find(|(_, mark)| !unique.contains_key(mark))?;
    Some(("PR-369", format!("{name} refers to the unique value {mark}, which nobody has")))
}

/// Adds what a commit writes.
pub fn apply<'a>(rows: &mut Rows, writes: impl IntoIterator<Item = &'a (String, Option<u64>)>) {
    for (name, value) in writes {
        match value {
            Some(value) => rows.insert(name.clone(), *value),
            None => rows.remove(name),
        };
    }
}

/// Goes along the commits of the log that is left, in order. The error is a finding and a sentence.
pub fn check<'a>(
    commits: impl Iterator<Item = (&'a Position, &'a Commit)>,
) -> Result<(), (&'static str, String)> {
    let mut rows = Rows::new();
    for (at, commit) in commits {
        apply(&mut rows, commit);
        if let Some((id, why)) = fault(&rows) {
            return Err((id, format!("at commit {at} {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::commits::History;
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    /// A value of this row with that mark.
    fn marked(name: &str, mark: Option<i64>) -> Option<u64> {
        (1..).find(|value| rows::mark(name, *value) == mark)
    }

    /// A value of this row that refers to that one.
    fn referring(name: &str, parent: Option<&str>) -> Option<u64> {
        (1..).find(|value| rows::refers(name, *value).as_deref() == parent)
    }

    fn verdict(commits: &[&[(&str, Option<u64>)]]) -> Result<(), &'static str> {
        let commit = |writes: &&[(&str, Option<u64>)]| {
            writes.iter().map(|(name, value)| (name.to_string(), *value)).collect::<Commit>()
        };
        let commits = (1..).map(at).zip(commits.iter().map(commit));
        // Nobody read anything, and whatever is there was committed: nothing else is wrong with it.
        let broken = History::made_of(commits.collect()).check(&[]);
        broken.into_iter().next().map_or(Ok(()), |(id, _)| Err(id))
    }

    #[test]
    fn two_rows_with_one_unique_value_are_rejected() {
        let (one, other) = (marked("m0", Some(3)), marked("m1", Some(3)));
        assert_eq!(verdict(&[&[("m0", one)], &[("m1", other)]]), Err("PR-324"));
        assert_eq!(verdict(&[&[("m0", one), ("m1", other)]]), Err("PR-324"), "in one commit");
        assert_eq!(verdict(&[&[("m0", one)], &[("m0", None), ("m1", other)]]), Ok(()), "one after the other");
        let again = [("m0", marked("m0", Some(4)))];
        assert_eq!(verdict(&[&[("m0", one)], &again, &[("m1", other)]]), Ok(()), "it has another one now");
        assert_eq!(verdict(&[&[("m0", marked("m0", None))], &[("m1", marked("m1", None))]]), Ok(()), "nulls");
        assert_eq!(
            verdict(&[&[("m0", one)], &[("m1", other)], &[("m0", None)]]),
            Err("PR-324"),
            "for a while"
        );
    }

    #[test]
    fn a_row_that_refers_to_a_value_that_nobody_has_is_rejected() {
        let (person, note) = (marked("m1", Some(3)), marked("n0", Some(3)));
        let (other, another) = (marked("m1", Some(4)), marked("m2", Some(3)));
        assert_eq!(verdict(&[&[("n0", note)]]), Err("PR-369"), "nobody ever had it");
        assert_eq!(verdict(&[&[("n0", marked("n0", None))]]), Ok(()), "it refers to nothing");
        assert_eq!(verdict(&[&[("m1", person)], &[("n0", note)]]), Ok(()));
        assert_eq!(verdict(&[&[("m1", person), ("n0", note)]]), Ok(()), "in one commit");
        assert_eq!(verdict(&[&[("m1", person)], &[("n0", note)], &[("m1", None)]]), Err("PR-369"));
        assert_eq!(verdict(&[&[("m1", person)], &[("n0", note)], &[("m1", other)]]), Err("PR-369"));
        let there = [("m1", person), ("n0", note)];
        assert_eq!(verdict(&[&there, &[("m1", other), ("m2", another)]]), Ok(()), "another one has it now");
        assert_eq!(verdict(&[&there, &[("n0", None), ("m1", None)]]), Ok(()), "both go");
    }

    #[test]
    fn a_row_whose_parent_is_not_there_is_rejected() {
        let (person, letter) = (marked("m1", None), referring("l0", Some("m1")));
        assert_eq!(verdict(&[&[("l0", letter)]]), Err("PR-325"), "it never was");
        assert_eq!(verdict(&[&[("m1", person)], &[("l0", letter)]]), Ok(()));
        assert_eq!(verdict(&[&[("m1", person), ("l0", letter)]]), Ok(()), "in one commit");
        assert_eq!(verdict(&[&[("m1", person)], &[("l0", letter)], &[("m1", None)]]), Err("PR-325"));
        let there = [("m1", person), ("l0", letter)];
        assert_eq!(verdict(&[&there, &[("l0", None), ("m1", None)]]), Ok(()), "both go");
        let elsewhere = [("l0", referring("l0", None)), ("m1", None)];
        assert_eq!(verdict(&[&there, &elsewhere]), Ok(()), "it refers to nothing any more");
        assert_eq!(verdict(&[&there, &[("m1", None)], &[("m1", person)]]), Err("PR-325"), "for a while");
    }
}
