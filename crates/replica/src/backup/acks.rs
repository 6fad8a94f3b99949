//! What a backup tells its primary of its log, and when.

use crate::settings::Settings;
use types::{Lsn, Micros, Policy, Watermarks};
use wire::peer::Append;

/// Between two acknowledgements for which nobody waits passes this part of a heartbeat's interval.
const RESTS: u64 = 10;
/// Or this part of what may be on its way to a member has come.
const WINDOW_PART: usize = 32;

/// When an acknowledgement is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    now: Micros,
    /// All that has changed is told now, whoever waits for it.
    all: bool,
    /// What nobody waits for is told again after this time, or after so many bytes of entries (PR-510).
    rests: Micros,
    bytes: usize,
}

impl Due {
    /// After a batch of inputs; with a tick `all` is told.
    pub fn new(settings: &Settings, now: Micros, all: bool) -> Due {
        let (rests, bytes) = (Micros(settings.heartbeat.0 / RESTS), settings.window_bytes / WINDOW_PART);
        Due { now, all, rests, bytes }
    }

    /// The same where nothing is put off.
    pub fn at_once(self) -> Due {
        Due { rests: Micros::ZERO, ..self }
    }

    /// The time.
    pub fn now(&self) -> Micros {
        self.now
    }
}

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
    /// When that was, and bytes of entries that have come since.
    told_at: Micros,
    untold: usize,
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
        self.untold = self.untold.saturating_add(append.entries.len());
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
    /// waits for that much of this rank, or they changed and all is told. Where no policy waits for this rank
    /// what it has received is told after a while, and when the primary asks (PR-510).
    pub fn tell<'a>(
        &mut self,
        marks: Watermarks,
        (rank, policies): (usize, impl Iterator<Item = &'a Policy>),
        due: Due,
    ) -> Option<Watermarks> {
        if self.number == 0 {
            return None;
        }
        let marks = self.agreed(marks);
        let rested = due.now.since(self.told_at) >= due.rests || self.untold >= due.bytes || self.due;
        let further = |policy: &&Policy| policy.reached(rank, &marks) > policy.reached(rank, &self.told);
        let waited = policies.filter(further).any(|policy| policy.waits_for(rank) || rested);
        let changed = marks != self.told || self.due;
        if !(waited || due.all && changed) {
            return None;
        }
        (self.told, self.told_at, self.untold, self.due) = (marks, due.now, 0, false);
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

    /// At so many milliseconds.
    fn due(ms: u64, all: bool) -> Due {
        Due::new(&Settings::default(), Micros::from_millis(ms), all)
    }

    #[test]
    fn nothing_is_told_before_an_append_and_never_more_than_agrees() {
        let policy = Policy::preset("durable", 3, LogKind::Disk).expect("a preset");
        let mut acks = Acks::default();
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), due(0, true)), None);
        acks.heard(&append(1, false), Lsn(5));
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), due(0, false)), Some(marks(5, 5)));
        assert_eq!(acks.echo(), (7, 1));
        // The same acknowledgement is not sent twice, unless the primary asks for it with an empty append.
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), due(0, true)), None);
        acks.heard(&append(2, true), Lsn(5));
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), due(0, false)), None);
        assert_eq!(acks.tell(marks(9, 9), (1, [&policy].into_iter()), due(0, true)), Some(marks(5, 5)));
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

    #[test]
    fn pr510_where_nobody_waits_it_is_told_after_a_while_or_much_or_when_it_is_asked_for() {
        let policy = |name: &str| Policy::preset(name, 3, LogKind::Disk).expect("a preset");
        let (lazy, waits) = (policy("async"), policy("semi"));
        let mut acks = Acks::default();
        let mut hears = |number: u64, entries: usize, policies: &[&Policy], due: Due| {
            let entries = bytes::Bytes::from(vec![0; entries]);
            acks.heard(&Append { entries, ..append(number, true) }, Lsn(number));
            acks.tell(marks(number, 0), (1, policies.iter().copied()), due).map(|marks| marks.received.0)
        };
        assert_eq!(hears(1, 9, &[&lazy], due(10, false)), Some(1), "it has been quiet");
        assert_eq!(hears(2, 9, &[&lazy], due(11, false)), None);
        assert_eq!(hears(3, 9, &[&lazy], due(12, false)), Some(3));
        assert_eq!(hears(4, 9, &[&lazy], due(12, false)), None);
        assert_eq!(hears(5, 9, &[&lazy], due(12, true)), Some(5), "a tick tells all");
        assert_eq!(hears(6, 9, &[&lazy], due(12, false)), None);
        assert_eq!(hears(7, 0, &[&lazy], due(12, false)), Some(7), "the primary asks");
        assert_eq!(hears(8, (256 << 10) - 1, &[&lazy], due(12, false)), None);
        assert_eq!(hears(9, 1, &[&lazy], due(12, false)), Some(9), "it may not send much more");
        assert_eq!(hears(10, 9, &[&lazy], due(12, false).at_once()), Some(10));
        // While a policy changes both count.
        assert_eq!(hears(11, 9, &[&lazy, &waits], due(12, false)), Some(11));
        assert_eq!(hears(12, 9, &[&waits], due(12, false)), Some(12));
    }
}
