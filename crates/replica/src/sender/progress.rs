//! What a primary knows of one other member of its set.

use crate::sender::calls::Calls;
use crate::sender::copy_out::CopyOut;
use crate::sender::echo::Echo;
use crate::sender::shipping::Shipping;
use std::collections::VecDeque;
use types::{Lsn, Micros, Watermarks};

/// How a member is brought level. The table of its transitions is in `docs/rules.md`.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Its log is asked for.
    Probe { asked_at: Micros },
    /// It is sent what follows [`Flight::next`].
    Stream,
    /// Entries for it are being read back from the log.
    Reading { since: Micros },
    /// It is sent the state itself, by rows.
    Copying(CopyOut),
    /// It is sent the state itself, by files: [`Progress::files`].
    Shipping,
}

/// Whose log has no room for so long, and who got no further meanwhile, is given files.
const NO_ROOM: Micros = Micros::from_millis(1_000);

/// A refused append is of use as long as not so many were sent after it.
const CURRENT: u64 = 64;

/// Appends on their way to a member.
///
/// Invariants: what is in flight is in the order of LSNs and below `next`; an acknowledgement above `number`
/// is of nobody.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// The next LSN to send.
    next: Lsn,
    /// What the member's log or its copy was found to have in common with this one, whether acknowledged or
    /// not.
    agreed: Lsn,
    /// Sent and not acknowledged as the policy needs it: last LSN, bytes, when.
    sent: VecDeque<(Lsn, usize, Micros)>,
    bytes: usize,
    /// Of the newest append.
    number: u64,
    /// Acknowledgements of appends up to this one tell of what the member was before it was made anew.
    fence: u64,
    /// Whether calls are in them without what they came to.
    pub calls: Calls,
}

impl Flight {
    pub fn next(&self) -> Lsn {
        self.next
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest of what is not acknowledged was sent.
    pub fn oldest(&self) -> Option<Micros> {
        self.sent.front().map(|(_, _, at)| *at)
    }

    /// An append goes out; `last` is the LSN of its last entry. Gives its number.
    pub fn send(&mut self, now: Micros, last: Lsn, bytes: usize) -> u64 {
        self.number += 1;
        if bytes > 0 {
            assert!(last >= self.next, "R3: {last} is sent again, and {} is next", self.next);
            self.next = last.next();
            self.sent.push_back((last, bytes, now));
            self.bytes += bytes;
        }
        self.number
    }

    /// True if this append was sent after the member was last asked what it has: an older acknowledgement is
    /// of a state that it may not be in any more.
    pub fn takes_ack(&self, number: u64) -> bool {
        (self.fence + 1..=self.number).contains(&number)
    }

    /// True if a refusal of this append is of what is being sent now.
    pub fn is_current(&self, number: u64) -> bool {
        number + CURRENT > self.number && number <= self.number
    }

    /// What is needed up to `done` has been acknowledged.
    pub fn acknowledged(&mut self, done: Lsn) {
        while let Some((_, bytes, _)) = self.sent.pop_front_if(|(last, _, _)| *last <= done) {
            self.bytes -= bytes;
        }
    }

    /// The member has up to `lsn` what this replica has.
    pub fn agree(&mut self, lsn: Lsn) {
        self.agreed = lsn;
        self.rewind(lsn.next());
    }

    /// What was on its way is lost: sends again what is not known to have arrived.
    pub fn again(&mut self, received: Lsn) {
        self.rewind(received.max(self.agreed).next());
    }

    /// Starts sending again from behind what the member has surely taken.
    pub fn rewind(&mut self, to: Lsn) {
        self.next = to;
        self.sent.clear();
        self.bytes = 0;
    }

    /// Of the newest append.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Nothing is known of what the member has, and what it acknowledges of appends up to `number` says
    /// nothing: a number is given out once in a term, also to a member that left and came back (PR-108).
    fn behind(number: u64) -> Flight {
        Flight { number, fence: number, ..Flight::default() }
    }

    /// What holds of it after every event.
    pub fn validate(&self) -> Result<(), String> {
        let sorted = self.sent.iter().is_sorted_by_key(|(last, _, _)| *last);
        let bytes: usize = self.sent.iter().map(|(_, bytes, _)| bytes).sum();
        let below = self.sent.back().is_none_or(|(last, _, _)| *last < self.next);
        match sorted && below && bytes == self.bytes && self.fence <= self.number {
            true => Ok(()),
            false => Err(format!("R3: appends in flight do not fit together: {self:?}")),
        }
    }
}

/// Whether a member gets on, and whether it may count.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Since when it has been a member.
    since: Micros,
    /// How far it had come, as the policy needs it, and when it last got on or had nothing to do.
    still: (Lsn, Micros),
    /// The same of its disk, whatever the policy needs: what is not durable anywhere holds `secured` back
    /// (R7, PR-31).
    disk: (Lsn, Micros),
    /// Since when it has been level.
    level_since: Option<Micros>,
    /// It said that it is damaged, or its `durable` went back (PR-18).
    tainted: bool,
    /// It takes part in being sent files, and gets no further.
    stuck: bool,
    /// Since when it has found no room, and got no further.
    pub no_room: Option<Micros>,
}

impl Health {
    fn new(now: Micros) -> Health {
        let still = (Lsn::ZERO, now);
        Health { since: now, still, disk: still, ..Health::default() }
    }

    pub fn since(&self) -> Micros {
        self.since
    }

    /// How far the member has come, and its disk, in a log that ends at `end`. `excused`: nothing is expected
    /// of it now.
    pub fn observe(&mut self, now: Micros, (done, durable): (Lsn, Lsn), end: Lsn, excused: bool) {
        for (seen, reached) in [(&mut self.still, done), (&mut self.disk, durable)] {
            if excused || reached >= end || reached > seen.0 {
                *seen = (reached, now);
            }
        }
    }

    /// True if what the member was sent was not answered for so long, `oldest` being when it was, or got no
    /// further: a disk that does nothing holds up what was received long ago (F19).
    pub fn hangs(&self, now: Micros, oldest: Option<Micros>, patience: Micros) -> bool {
        now.since(oldest.unwrap_or(now).min(self.still.1)) >= patience
    }

    /// True if the member's disk has had something to do for so long and did nothing.
    pub fn disk_hangs(&self, now: Micros, patience: Micros) -> bool {
        now.since(self.disk.1) >= patience
    }

    /// Whether nothing is missing but what is on its way right now.
    pub fn note_level(&mut self, now: Micros, level: bool) {
        self.level_since = level.then(|| self.level_since.unwrap_or(now));
    }

    /// It has to show anew that it is level.
    pub fn forget_level(&mut self) {
        self.level_since = None;
    }

    /// It is level from now on, if it is.
    pub fn restart_level(&mut self, now: Micros) {
        self.level_since = self.level_since.map(|_| now);
    }

    pub fn is_level(&self) -> bool {
        self.level_since.is_some()
    }

    /// True if it has been level for so long, and may count.
    pub fn may_join(&self, now: Micros, time: Micros) -> bool {
        !self.tainted && self.level_since.is_some_and(|since| now.since(since) >= time)
    }

    /// The member has lost or damaged something that it had acknowledged: it must leave the set.
    pub fn taint(&mut self) {
        self.tainted = true;
    }

    pub fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// It takes part in being sent files, and gets no further.
    pub fn note_stuck(&mut self) {
        self.stuck = true;
    }

    pub fn is_stuck(&self) -> bool {
        self.stuck
    }
}

/// What a member's acknowledgements say of time.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// When the newest came.
    came_at: Micros,
    /// The member's own clock in it.
    member_us: u64,
    /// Times of the member's own clock, to be sent back to it.
    echo: Echo,
}

impl Acks {
    pub fn came_at(&self) -> Micros {
        self.came_at
    }

    /// An acknowledgement came. True if no newer one was there before.
    pub fn note(&mut self, now: Micros, member_us: u64) -> bool {
        let newest = member_us > self.member_us;
        self.came_at = now;
        self.member_us = self.member_us.max(member_us);
        self.echo.note(now, member_us);
        newest
    }

    /// What the next append says of the member's clock, by a primary that surely led at `led_at`.
    pub fn tell(&mut self, led_at: Micros) -> u64 {
        self.echo.tell(led_at)
    }
}

/// What a primary knows of one other member.
#[derive(Debug)]
pub(crate) struct Progress {
    pub marks: Watermarks,
    mode: Mode,
    pub flight: Flight,
    pub health: Health,
    pub acks: Acks,
    /// It had no use for the files that were to bring it level: its state goes to it as rows. Once it is
    /// level it is offered each new set beside the log like everybody else, or its files would never get any
    /// further (PR-105).
    pub rows_only: bool,
    /// Files were offered instead of the log, and it took none: the log alone brings it level.
    pub log_only: bool,
    /// Files on their way to it, as its state or beside the log.
    pub files: Option<Box<Shipping>>,
    /// The newest files that went to it beside the log, whether it took them or not.
    pub delivered: Lsn,
    /// It asked for a flush, which has not ended yet.
    pub wants_flush: bool,
    /// The member needs the log above this LSN, to go on from the copy that it was given or is given, or from
    /// the end of its own log.
    pub needs: Lsn,
    /// Its log had no room for a while, and it got no further.
    pub wants_room: bool,
}

impl Progress {
    /// Of a member of which nothing is known; appends up to `number` were sent to who was it before.
    pub fn new(now: Micros, number: u64) -> Progress {
        Progress {
            marks: Watermarks::default(),
            mode: Mode::Probe { asked_at: Micros::ZERO },
            flight: Flight::behind(number),
            health: Health::new(now),
            acks: Acks::default(),
            rows_only: false,
            log_only: false,
            files: None,
            delivered: Lsn::ZERO,
            wants_flush: false,
            needs: Lsn::MAX,
            wants_room: false,
        }
    }

    /// How it is brought level now.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// The copy by rows that is on its way to it.
    pub fn copy_out(&mut self) -> Option<&mut CopyOut> {
        match &mut self.mode {
            Mode::Copying(copy) => Some(copy),
            _ => None,
        }
    }

    /// True if it is sent the state itself by rows, in the copy of this number.
    pub fn copies(&self, number: u64) -> bool {
        matches!(&self.mode, Mode::Copying(copy) if copy.number == number)
    }

    /// True if it is sent the log as it comes.
    pub fn streams(&self) -> bool {
        matches!(self.mode, Mode::Stream)
    }

    /// True if it is sent the state itself by files.
    pub fn is_shipped_to(&self) -> bool {
        matches!(self.mode, Mode::Shipping)
    }

    /// True if it is sent the state itself, by rows or by files.
    pub fn is_given_state(&self) -> bool {
        matches!(self.mode, Mode::Copying(_) | Mode::Shipping)
    }

    /// Its log is asked for, at `asked_at` last: whatever was on its way to it counts no more.
    pub fn probe(&mut self, asked_at: Micros) {
        self.mode = Mode::Probe { asked_at };
    }

    /// It is sent the log from behind `agreed`, up to where both have the same. Panics while entries are
    /// being read back for it: those would be sent from another place than they were read for.
    pub fn stream_behind(&mut self, agreed: Lsn) {
        assert!(!matches!(self.mode, Mode::Reading { .. }), "R3: entries are being read back for it");
        self.flight.agree(agreed);
        self.mode = Mode::Stream;
    }

    /// What it needs next is read back from the log.
    pub fn begin_reading(&mut self, now: Micros) {
        assert!(self.streams(), "R3: entries are read back for who follows the log");
        self.mode = Mode::Reading { since: now };
    }

    /// What was read back is here, or does not come. True if it was waited for.
    pub fn end_reading(&mut self) -> bool {
        let waited = matches!(self.mode, Mode::Reading { .. });
        if waited {
            self.mode = Mode::Stream;
        }
        waited
    }

    /// It is sent the state by rows, as of the copy's position.
    pub fn begin_copying(&mut self, copy: CopyOut) {
        self.assert_from_scratch("by rows");
        self.flight.rewind(copy.at.lsn.next());
        self.needs = copy.at.lsn;
        self.mode = Mode::Copying(copy);
    }

    /// It is sent the state by files, as far as there are some up to `at`, with the log from there on.
    pub fn begin_shipping(&mut self, files: Box<Shipping>, at: Lsn) {
        self.assert_from_scratch("by files");
        self.flight.rewind(at.next());
        self.needs = at;
        self.mode = Mode::Shipping;
        self.files = Some(files);
    }

    /// R8: the state goes only to who was found out anew, and in one way at a time.
    fn assert_from_scratch(&self, how: &str) {
        assert!(
            matches!(self.mode, Mode::Probe { .. }),
            "R8: what goes {how} begins anew, not in {:?}",
            self.mode
        );
        assert!(self.files.is_none(), "R8: it is sent files already");
        assert!(self.marks == Watermarks::default(), "PR-18: what it had before counts no more");
    }

    /// What holds of it after every event.
    pub fn validate(&self) -> Result<(), String> {
        self.flight.validate()?;
        match self.mode {
            Mode::Stream | Mode::Reading { .. } if self.flight.next() == Lsn::ZERO => {
                Err("R3: it is sent the log before it is known where it agrees".into())
            }
            Mode::Shipping if self.files.is_none() => Err("R8: files go to it, and there are none".into()),
            _ => Ok(()),
        }
    }

    /// It acknowledges these. True if a mark that never goes back did.
    pub fn raise(&mut self, marks: &Watermarks) -> bool {
        let back = marks.durable < self.marks.durable || marks.persisted < self.marks.persisted;
        self.health.no_room = self.health.no_room.filter(|_| marks.received <= self.marks.received);
        self.marks = Watermarks {
            received: self.marks.received.max(marks.received),
            durable: self.marks.durable.max(marks.durable),
            applied: self.marks.applied.max(marks.applied),
            persisted: self.marks.persisted.max(marks.persisted),
        };
        back
    }

    /// The connection is new: what was on its way is lost.
    pub fn reconnected(&mut self) {
        match &mut self.mode {
            Mode::Stream if self.flight.next() > Lsn::ZERO => self.again(),
            Mode::Copying(copy) => copy.resend(),
            _ => {}
        }
        if let Some(files) = &mut self.files {
            files.resend();
        }
    }

    /// True while it has something else to do than to follow the log.
    pub fn is_busy(&self, now: Micros) -> bool {
        match &self.mode {
            Mode::Reading { .. } | Mode::Copying(_) => true,
            Mode::Shipping => self.files.as_ref().is_some_and(|files| files.is_alive(now)),
            Mode::Probe { .. } | Mode::Stream => false,
        }
    }

    /// What was not acknowledged, or read back, in this time was lost.
    pub fn resend(&mut self, now: Micros, patience: Micros) {
        match &self.mode {
            Mode::Reading { since } if now.since(*since) > patience => {
                self.end_reading();
            }
            Mode::Stream => {
                let late = |at: Micros| now.since(at.max(self.acks.came_at())) > patience;
                let missing = self.marks.received.next() < self.flight.next();
                if missing && self.flight.oldest().is_some_and(late) {
                    self.again();
                }
            }
            _ => {}
        }
    }

    /// Its log has no room for what comes next. What it then has is asked for again; if that goes on, only
    /// files get it any further.
    pub fn finds_no_room(&mut self, now: Micros) {
        // That entries are read back for it, again and again, is no room either (PR-234).
        let since = *self.health.no_room.get_or_insert(now);
        self.wants_room |= self.health.hangs(now, None, NO_ROOM) || now.since(since) >= NO_ROOM;
        self.pause(now);
    }

    /// It takes nothing just now. What it then has is asked for again.
    pub fn pause(&mut self, now: Micros) {
        self.probe(now);
        self.health.forget_level();
    }

    /// What was on its way is lost: sends again what is not known to have arrived.
    pub fn again(&mut self) {
        self.flight.again(self.marks.received);
    }

    /// The member left the set or is given a copy, so nothing is known of what it has: it is asked again.
    pub fn begin_from_scratch(&mut self, now: Micros) {
        let (rows_only, log_only) = (self.rows_only, self.log_only);
        let health = Health { stuck: self.health.stuck, ..Health::new(now) };
        let number = self.flight.number();
        *self = Progress { health, rows_only, log_only, ..Progress::new(now, number) };
    }

    /// Starts sending again from behind what the member has surely taken.
    pub fn rewind(&mut self, to: Lsn) {
        self.flight.rewind(to);
    }

    /// True if it is followed by the log, and a refusal of this append is of what is being sent now.
    pub fn is_current(&self, number: u64) -> bool {
        self.streams() && self.flight.is_current(number)
    }

    /// True if what it was sent was not answered for so long, or got no further (F19).
    pub fn hangs(&self, now: Micros, patience: Micros) -> bool {
        self.health.hangs(now, self.flight.oldest(), patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_000_000);
    const LATER: Micros = Micros(3_000_000);

    #[test]
    fn what_is_in_flight_shrinks_with_acknowledgements_and_goes_again_when_it_is_lost() {
        let mut flight = Flight::default();
        flight.agree(Lsn(4));
        assert_eq!((flight.send(NOW, Lsn(6), 20), flight.send(LATER, Lsn(9), 30)), (1, 2));
        assert_eq!((flight.next(), flight.bytes(), flight.oldest()), (Lsn(10), 50, Some(NOW)));
        flight.validate().expect("in order");
        flight.acknowledged(Lsn(8));
        assert_eq!((flight.bytes(), flight.oldest()), (30, Some(LATER)));
        flight.again(Lsn(2));
        assert_eq!((flight.next(), flight.bytes(), flight.oldest()), (Lsn(5), 0, None), "it agreed up to 4");
        flight.send(LATER, Lsn(4), 0);
        assert_eq!(flight.next(), Lsn(5), "an append without entries moves nothing");
        flight.validate().expect("in order");
    }

    #[test]
    fn pr18_what_a_member_was_before_it_was_made_from_scratch_is_not_acknowledged_any_more() {
        let mut progress = Progress::new(NOW, 0);
        progress.flight.send(NOW, Lsn(3), 10);
        assert!(progress.flight.takes_ack(1) && !progress.flight.takes_ack(2));
        progress.raise(&Watermarks { received: Lsn(3), durable: Lsn(3), ..Watermarks::default() });
        progress.health.taint();
        progress.health.note_stuck();
        progress.begin_from_scratch(LATER);
        assert!(!progress.flight.takes_ack(1), "it was of what it had before");
        assert_eq!((progress.marks, progress.flight.next()), (Watermarks::default(), Lsn::ZERO));
        assert!(!progress.health.is_tainted() && progress.health.is_stuck());
        let number = progress.flight.send(LATER, Lsn(3), 10);
        assert!(progress.flight.takes_ack(number) && progress.flight.is_current(number));
    }

    #[test]
    fn pr108_acknowledgements_of_who_was_a_member_before_are_not_taken_for_those_of_who_is_one_now() {
        let mut before = Progress::new(NOW, 0);
        let old: Vec<u64> = (1..=56).map(|_| before.flight.send(NOW, Lsn(1), 0)).collect();
        let mut now = Progress::new(LATER, before.flight.number());
        assert!(old.iter().all(|number| !now.flight.takes_ack(*number)));
        // The member answers with the newest number that it ever saw.
        let number = now.flight.send(LATER, Lsn(1), 0);
        let seen = old.into_iter().max().max(Some(number)).expect("some");
        assert!(now.flight.takes_ack(seen));
    }

    #[test]
    fn pr18_a_durable_mark_that_goes_back_is_noticed_and_no_mark_falls() {
        let mut progress = Progress::new(NOW, 0);
        let high = Watermarks { received: Lsn(9), durable: Lsn(8), applied: Lsn(9), persisted: Lsn(2) };
        assert!(!progress.raise(&high));
        assert!(
            !progress.raise(&Watermarks { received: Lsn(5), ..high }),
            "received may be told out of order"
        );
        assert!(progress.raise(&Watermarks { durable: Lsn(7), ..high }));
        assert_eq!(progress.marks, high);
    }

    #[test]
    fn f19_who_gets_no_further_hangs_and_who_has_nothing_to_do_does_not() {
        let mut health = Health::new(NOW);
        let second = Micros(1_000_000);
        health.observe(LATER, (Lsn(5), Lsn(5)), Lsn(5), false);
        assert!(!health.hangs(LATER, None, second) && !health.disk_hangs(LATER, second));
        // One entry more is received at once, and never durable.
        let end = LATER + second;
        health.observe(end, (Lsn(6), Lsn(5)), Lsn(7), false);
        assert!(!health.hangs(end, None, second) && health.disk_hangs(end, second));
        assert!(health.hangs(end, Some(LATER), second), "an append was not answered");
        health.observe(end, (Lsn(6), Lsn(5)), Lsn(7), true);
        assert!(!health.disk_hangs(end, second), "nothing is expected of who is given a copy");
    }

    #[test]
    fn who_was_level_for_a_time_and_is_sound_may_join() {
        let mut health = Health::new(NOW);
        let time = Micros(500_000);
        health.note_level(NOW, true);
        health.note_level(NOW + time, true);
        assert!(health.may_join(NOW + time, time));
        health.restart_level(LATER);
        assert!(health.is_level() && !health.may_join(LATER, time));
        health.note_level(LATER, false);
        health.restart_level(LATER);
        assert!(!health.is_level());
        health.note_level(NOW, true);
        health.taint();
        assert!(!health.may_join(LATER, time));
    }
}
