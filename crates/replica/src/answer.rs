//! What a client is told, as a value: it knows nothing of the replica that gives it.

use types::{Lsn, Position};
use wire::{Body, Status};

/// What a reply waits for, and what it tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckCondition {
    /// An entry.
    Entry,
    /// How things are, and no entry: as for a read, no epoch fences it, and the lease must hold (R5).
    Seen,
    /// An entry that every replica which may be promoted has (PR-82).
    Secured,
}

/// When an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    Now,
    /// At once, as long as the primary's lease holds.
    Leased,
    /// When `committed`, or `secured`, covers this.
    Covered(Lsn, AckCondition),
}

/// What a client is told.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answer {
    pub status: Status,
    pub body: Body,
    /// The position that it is of, if not `committed` as it is now.
    pub lsn: Option<Lsn>,
    /// The entry that it tells of.
    pub entry: Option<Position>,
    pub when: When,
}

impl Answer {
    /// To be given at once.
    pub fn new(status: Status, body: Body) -> Answer {
        Answer { status, body, lsn: None, entry: None, when: When::Now }
    }

    /// The same without anything but how it ended.
    pub fn only(status: Status) -> Answer {
        Answer::new(status, Body::None)
    }

    /// "Not yet", for this reason.
    pub fn not_yet(why: impl Into<String>) -> Answer {
        Answer::only(Status::NotYet(why.into()))
    }

    /// It rests on the primary's lease.
    pub fn leased(self) -> Answer {
        Answer { when: When::Leased, ..self }
    }

    /// It is of what was read at `lsn`.
    pub fn read_at(self, lsn: Lsn) -> Answer {
        Answer { lsn: Some(lsn), ..self }
    }

    /// It tells of this entry (N7).
    pub fn of_entry(self, at: Position) -> Answer {
        Answer { entry: Some(at), ..self }
    }

    /// It waits for this.
    pub fn covered(self, at: Lsn, condition: AckCondition) -> Answer {
        Answer { when: When::Covered(at, condition), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;

    #[test]
    fn n7_an_answer_goes_at_once_unless_it_waits() {
        let at = Position::new(Term(1), Lsn(7));
        let answer = Answer::only(Status::Ok);
        assert_eq!((answer.when, answer.lsn, answer.entry), (When::Now, None, None));
        assert_eq!(answer.clone().leased().read_at(Lsn(3)).lsn, Some(Lsn(3)));
        let waits = answer.of_entry(at).covered(at.lsn, AckCondition::Secured);
        assert_eq!(waits.entry, Some(at));
        assert_eq!(waits.when, When::Covered(Lsn(7), AckCondition::Secured), "the last word counts");
        assert_eq!(Answer::not_yet("why").status, Status::NotYet("why".into()));
    }
}
