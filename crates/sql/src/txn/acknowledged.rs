//! Rows that are stored before COMMIT names their table rest on the primary that took them. If it is lost,
//! and the next one lacks them, COMMIT must not give the table its name.

use crate::driver::Handle;
use crate::fault::{self, Decided};
use crate::read::CALL;
use pg::Failure;
use std::collections::BTreeMap;
use types::{Position, Term};

/// How often it is asked whether a log has what was acknowledged in an earlier term.
const MAX_ASKS: usize = 8;

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

    /// One entry that is on a log only if all others are; `None`: there are none. One term's entries are on
    /// one log. What is of an earlier term is asked for: the entry that answers lies behind it. The error: it
    /// is lost.
    pub async fn newest(mut self, handle: &Handle) -> Result<Option<Position>, Failure> {
        for _ in 0..MAX_ASKS {
            if self.0.len() <= 1 {
                return Ok(self.0.pop_first().map(|(_, at)| at));
            }
            let Some((_, oldest)) = self.0.pop_first() else { continue };
            let call = handle.database_record()?.transact(Vec::new(), Vec::new(), Some(oldest));
            match fault::decided(handle.call(call.within(CALL)).await)? {
                Decided::Done(answer) => self.add(answer.position()),
                Decided::Exists | Decided::Changed | Decided::Violates(_) => {
                    return Err(fault::conflict());
                }
            }
        }
        Err(fault::conflict())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Lsn;

    #[test]
    fn the_newest_entry_of_each_term_is_kept() {
        let at = |term, lsn| Position::new(Term(term), Lsn(lsn));
        let (mut one, mut two) = (Acknowledged::default(), Acknowledged::default());
        [at(1, 7), at(1, 5), at(2, 4)].into_iter().for_each(|at| one.add(at));
        [at(2, 9), at(1, 6)].into_iter().for_each(|at| two.add(at));
        one.join(&two);
        // An entry of a later term may have a smaller number, and says nothing of the earlier one's.
        assert_eq!(one.0.values().copied().collect::<Vec<_>>(), [at(1, 7), at(2, 9)]);
    }
}
