//! What a backup tells its primary of its log, and when.

use types::{Lsn, Policy, Watermarks};
use wire::peer::Append;

/// What was heard from the present primary, and what it was told.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// The highest LSN that is known to agree with the primary: acknowledgements stop here.
    matched: Lsn,
    /// The primary's clock in the newest append that was taken in; and that append's number, zero before the
    /// first.
    echo_us: u64,
    number: u64,
    /// What the primary was told last.
    told: Watermarks,
    /// It waits for an answer, whatever that says.
    due: bool,
}

impl Acks {
    /// Up to where this log is known to be the primary's.
    pub fn matched(&self) -> Lsn {
        self.matched
    }

    /// The primary's clock in the newest append, and that append's number.
    pub fn echo(&self) -> (u64, u64) {
        (self.echo_us, self.number)
    }

    /// An append was taken in: this log is the primary's up to `last`.
    pub fn heard(&mut self, append: &Append, last: Lsn) {
        self.agrees(last);
        self.echo_us = self.echo_us.max(append.sent_us);
        self.number = self.number.max(append.number);
        self.due |= append.entries.is_empty();
    }

    /// This log is the primary's up to `upto`.
    pub fn agrees(&mut self, upto: Lsn) {
        self.matched = self.matched.max(upto);
    }

    /// The log begins again, and is the primary's up to `upto`.
    pub fn begin_at(&mut self, upto: Lsn) {
        self.matched = upto;
    }

    /// What is to be told now, if anything is: `marks` as far as they agree, if a primary with these policies
    /// waits for that much of this rank, or they changed and `all` is asked for.
    pub fn tell<'a>(
        &mut self,
        marks: Watermarks,
        (rank, mut policies): (usize, impl Iterator<Item = &'a Policy>),
        all: bool,
    ) -> Option<Watermarks> {
        if self.number == 0 {
            return None;
        }
        let marks = self.agreed(marks);
        let waited = policies.any(|policy| policy.reached(rank, &marks) > policy.reached(rank, &self.told));
        let changed = marks != self.told || self.due;
        if !(waited || all && changed) {
            return None;
        }
        (self.told, self.due) = (marks, false);
        Some(marks)
    }

    fn agreed(&self, marks: Watermarks) -> Watermarks {
        Watermarks {
            received: marks.received.min(self.matched),
            durable: marks.durable.min(self.matched),
            applied: marks.applied.min(self.matched),
            persisted: marks.persisted.min(self.matched),
        }
    }

    /// What must hold after every event.
    pub fn validate(&self) -> Result<(), String> {
        match self.number == 0 && self.told != Watermarks::default() {
            true => Err(format!("{:?} was told and no append was heard", self.told)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, LogKind, Member, PartitionId, Position, Term};

    fn append(number: u64, empty: bool) -> Append {
        Append {
            partition: PartitionId(1),
            epoch: Epoch(1),
            from: Member::default(),
            number,
            prev: Position::new(Term(1), Lsn(0)),
            prev_crc: 0,
            committed: Lsn(0),
            secured: Lsn(0),
            log_floor: Lsn(0),
            sent_us: 7,
            echo_us: 0,
            entries: if empty { bytes::Bytes::new() } else { bytes::Bytes::from_static(b"x") },
        }
    }

    fn marks(received: u64, durable: u64) -> Watermarks {
        Watermarks { received: Lsn(received), durable: Lsn(durable), ..Watermarks::default() }
    }

    #[test]
    fn nothing_is_told_before_an_append_and_never_more_than_agrees() {
        let policy = Policy::preset("durable", 3, LogKind::Disk).expect("a preset");
        let mut acks = Acks::default();
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), true), None);
        acks.heard(&append(1, false), Lsn(5));
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), false), Some(marks(5, 5)));
        assert_eq!(acks.echo(), (7, 1));
        // The same acknowledgement is not sent twice, unless the primary asks for it with an empty append.
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), true), None);
        acks.heard(&append(2, true), Lsn(5));
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), false), None);
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), true), Some(marks(5, 5)));
        assert_eq!(acks.validate(), Ok(()));
    }

    #[test]
    fn an_older_append_takes_nothing_back_and_another_log_does() {
        let mut acks = Acks::default();
        acks.heard(&append(4, false), Lsn(8));
        acks.heard(&append(3, false), Lsn(6));
        assert_eq!((acks.matched(), acks.echo().1), (Lsn(8), 4));
        acks.begin_at(Lsn(2));
        assert_eq!(acks.matched(), Lsn(2));
    }
}
