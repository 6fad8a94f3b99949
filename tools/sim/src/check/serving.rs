//! I2, R5: one primary acknowledges in a term, and none serves after a newer one has begun to.

use std::collections::BTreeMap;
use types::{Member, PartitionId, Term};

/// Who has served what.
#[derive(Debug, Default)]
pub struct Serving {
    /// The newest term that has served, per partition.
    newest: BTreeMap<PartitionId, (Term, Member)>,
    /// Who acknowledged in each term.
    by: BTreeMap<(PartitionId, Term), Member>,
}

impl Serving {
    /// An answer left a primary. `fresh` says that it must not come after a newer term has served: reads, and
    /// writes whose acknowledgement rests on the primary alone. Other writes are fenced by their epoch and
    /// may be answered late; and so may what a process that leads on found in the term before: it executes
    /// one request after the other, and what it shows was asked for before it led in the newer term.
    pub fn answered(
        &mut self,
        partition: PartitionId,
        term: Term,
        member: Member,
        fresh: bool,
    ) -> Result<(), String> {
        let known = *self.by.entry((partition, term)).or_insert(member);
        if known != member {
            return Err(format!("{partition}: both {known} and {member} answered in the term of {term}"));
        }
        let newest = self.newest.entry(partition).or_insert((term, member));
        if newest.0 < term {
            *newest = (term, member);
        } else if newest.0 > term && newest.1 != member && fresh {
            return Err(format!(
                "{partition}: {member} of {term} answered after {} of {} had",
                newest.1, newest.0
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, NodeId, StoreId};

    const P: PartitionId = PartitionId(64);

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), store: StoreId(1), incarnation: Incarnation(1) }
    }

    #[test]
    fn two_primaries_in_one_term_are_rejected() {
        let mut serving = Serving::default();
        serving.answered(P, Term(1), member(1), true).expect("the first");
        assert!(serving.answered(P, Term(1), member(2), true).is_err());
    }

    #[test]
    fn a_read_of_an_old_term_is_rejected_once_a_new_one_has_served() {
        let mut serving = Serving::default();
        serving.answered(P, Term(1), member(1), true).expect("the first");
        serving.answered(P, Term(2), member(2), true).expect("the next");
        assert!(serving.answered(P, Term(1), member(1), true).is_err());
        assert!(serving.answered(P, Term(1), member(1), false).is_ok(), "a fenced write may be late");
        serving.answered(P, Term(3), member(2), true).expect("it leads on");
        assert!(serving.answered(P, Term(2), member(2), true).is_ok(), "it was asked before");
        assert!(serving.answered(P, Term(1), member(1), true).is_err());
    }
}
