//! Rows that are stored before COMMIT names their table rest on the primary that took them. If it is lost,
//! and the next one lacks them, COMMIT must not give the table its name.

use crate::driver::Handle;
use crate::fault::{self, Decided};
use crate::read::CALL;
use pg::Failure;
use std::collections::BTreeMap;
use types::{Position, Term};

/// How often it is asked at most whether a log has something.
const MAX_ASKS: usize = 64;

/// What was acknowledged, or the states that were seen: the newest of each term.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acknowledged(BTreeMap<Term, Position>);

impl Acknowledged {
    /// This entry was acknowledged, or this state was seen.
    pub fn add(&mut self, at: Position) {
        let newest = self.0.entry(at.term).or_insert(at);
        *newest = at.max(*newest);
    }

    /// All of these were.
    pub fn join(&mut self, others: &Acknowledged) {
        others.0.values().for_each(|at| self.add(*at));
    }

    /// One entry, or state, that is on a log only if all others are; `None`: there are none. One that is
    /// alone is not asked for. The error: one is lost.
    pub async fn newest(self, handle: &Handle) -> Result<Option<Position>, Failure> {
        let mut search = Search { left: self, newest: None };
        for _ in 0..MAX_ASKS {
            let Some(known) = search.next() else { return Ok(search.newest) };
            let call = handle.database_record()?.transact(Vec::new(), Vec::new(), Some(known));
            match fault::decided(handle.call(call.within(CALL)).await)? {
                Decided::Done(answer) => search.made(answer.position()),
                Decided::Exists | Decided::Changed | Decided::Violates(_) => {
                    return Err(fault::conflict());
                }
            }
        }
        Err(fault::conflict())
    }
}

/// What is still to be asked for. A state is known by the configuration that showed it, and an entry by its
/// term, which has many configurations. So each is asked for, and the entries that are made for that are
/// compared: those of one term are on one log, and one of an earlier term is asked for as well.
struct Search {
    left: Acknowledged,
    /// The newest entry that was made.
    newest: Option<Position>,
}

impl Search {
    /// What is asked for next: an entry is to be made where it is on the log. `None`: the newest one stands
    /// for all.
    fn next(&mut self) -> Option<Position> {
        let known = self.left.0.pop_first().map(|(_, at)| at);
        if self.newest.is_none() && self.left.0.is_empty() {
            self.newest = known;
            return None;
        }
        known
    }

    /// It was made.
    fn made(&mut self, at: Position) {
        let before = self.newest.replace(at).filter(|before| before.term != at.term);
        before.into_iter().for_each(|before| self.left.add(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Lsn;

    fn at(term: u64, lsn: u64) -> Position {
        Position::new(Term(term), Lsn(lsn))
    }

    /// What is asked for until one entry stands for all, and that entry, where entries are made in these
    /// terms one after the other.
    fn asked(known: &[Position], terms: &[u64]) -> (Vec<Position>, Option<Position>) {
        let mut search = Search { left: Acknowledged::default(), newest: None };
        known.iter().for_each(|at| search.left.add(*at));
        let (mut asked, mut terms) = (Vec::new(), terms.iter().zip(100..));
        while let Some(known) = search.next() {
            asked.push(known);
            let (term, lsn) = terms.next().expect("no more is asked");
            search.made(at(*term, lsn));
        }
        (asked, search.newest)
    }

    #[test]
    fn one_entry_stands_for_all_that_a_transaction_rests_on() {
        assert_eq!(asked(&[], &[]), (vec![], None));
        assert_eq!(asked(&[at(24, 9)], &[]), (vec![], Some(at(24, 9))));
        // A copy came or went, so the configuration is another, and the term is as it was.
        let states = [at(24, 9), at(26, 11), at(27, 12)];
        assert_eq!(asked(&states, &[1, 1, 1]), (states.to_vec(), Some(at(1, 102))));
        // Another primary leads behind the first question: what was made before that is asked for, too.
        let known = vec![at(24, 9), at(26, 11), at(1, 100)];
        assert_eq!(asked(&states[..2], &[1, 30, 30]), (known, Some(at(30, 102))));
    }

    #[test]
    fn the_newest_entry_of_each_term_is_kept() {
        let (mut one, mut two) = (Acknowledged::default(), Acknowledged::default());
        [at(1, 7), at(1, 5), at(2, 4)].into_iter().for_each(|at| one.add(at));
        [at(2, 9), at(1, 6)].into_iter().for_each(|at| two.add(at));
        one.join(&two);
        // An entry of a later term may have a smaller number, and says nothing of the earlier one's.
        assert_eq!(one.0.values().copied().collect::<Vec<_>>(), [at(1, 7), at(2, 9)]);
    }
}
