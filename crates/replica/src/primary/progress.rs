//! What a primary knows of one other member of its set.

use crate::backup::fresh::Echo;
use crate::transfer::copy::CopyOut;
use crate::transfer::offer::Shipping;
use std::collections::VecDeque;
use types::{Lsn, Micros, Watermarks};

/// How a member is brought level.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Its log is asked for.
    Probe { asked_at: Micros },
    /// It is sent what follows `next`.
    Stream,
    /// Entries for it are being read back from the log.
    Reading { since: Micros },
    /// It is sent the state itself, by rows.
    Copying(CopyOut),
    /// It is sent the state itself, by files: [`Progress::files`].
    Shipping,
}

/// What a primary knows of one other member.
#[derive(Debug)]
pub(crate) struct Progress {
    pub marks: Watermarks,
    pub mode: Mode,
    /// The next LSN to send.
    pub next: Lsn,
    /// What its log or its copy was found to have in common with this one, whether acknowledged or not.
    pub agreed: Lsn,
    /// Sent and not acknowledged as the policy needs it: last LSN, bytes, when.
    pub in_flight: VecDeque<(Lsn, usize, Micros)>,
    pub in_flight_bytes: usize,
    pub number: u64,
    /// Acknowledgements of appends up to this one tell of what it was before it was made anew.
    pub fence: u64,
    /// When the newest acknowledgement came.
    pub acked_at: Micros,
    /// The member's own clock in it.
    pub member_us: u64,
    /// What it is told of its own clock.
    pub echo: Echo,
    /// The clock that it echoed: everything sent before has been processed.
    pub echo_us: u64,
    /// How far it had come, as the policy needs it, and when it last got on or had nothing to do.
    pub still: (Lsn, Micros),
    /// The same of its disk, whatever the policy needs: what is not durable anywhere holds `secured` back (R7, PR-31).
    pub disk: (Lsn, Micros),
    /// Since when it has been level.
    pub level_since: Option<Micros>,
    /// It said that it is damaged, or its `durable` went back (PR-18).
    pub tainted: bool,
    /// It takes part in being sent files, and gets no further.
    pub stuck: bool,
    /// It cannot be given files.
    pub rows_only: bool,
    /// Files were offered instead of the log, and it took none: the log alone brings it level.
    pub log_only: bool,
    /// Files on their way to it, as its state or beside the log.
    pub files: Option<Box<Shipping>>,
    /// The newest files that went to it beside the log, whether it took them or not.
    pub delivered: Lsn,
    /// It asked for a flush, which has not ended yet.
    pub wants_flush: bool,
    /// The log from behind here on goes with the copy that it was given, or is given, or with what it has of the log.
    pub needs: Lsn,
    pub since: Micros,
}

impl Progress {
    pub fn new(now: Micros) -> Progress {
        Progress {
            marks: Watermarks::default(),
            mode: Mode::Probe { asked_at: Micros::ZERO },
            next: Lsn::ZERO,
            agreed: Lsn::ZERO,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            number: 0,
            fence: 0,
            acked_at: Micros::ZERO,
            member_us: 0,
            echo: Echo::default(),
            echo_us: 0,
            still: (Lsn::ZERO, now),
            disk: (Lsn::ZERO, now),
            level_since: None,
            tainted: false,
            stuck: false,
            rows_only: false,
            log_only: false,
            files: None,
            delivered: Lsn::ZERO,
            wants_flush: false,
            needs: Lsn::MAX,
            since: now,
        }
    }

    /// It has up to `lsn` what this replica has.
    pub fn agree(&mut self, lsn: Lsn) {
        self.agreed = lsn;
        self.rewind(lsn.next());
    }

    /// What was on its way is lost: sends again what is not known to have arrived.
    pub fn again(&mut self) {
        self.rewind(self.marks.received.max(self.agreed).next());
    }

    /// It is not what it was, as it left the set or is given a copy: what it has is found out anew.
    pub fn begin_from_scratch(&mut self, now: Micros) {
        let (number, stuck) = (self.number, self.stuck);
        let (rows_only, log_only) = (self.rows_only, self.log_only);
        *self = Progress { number, fence: number, stuck, rows_only, log_only, ..Progress::new(now) };
    }

    /// Starts sending again from behind what the member has surely taken.
    pub fn rewind(&mut self, to: Lsn) {
        self.next = to;
        self.in_flight.clear();
        self.in_flight_bytes = 0;
    }
}
