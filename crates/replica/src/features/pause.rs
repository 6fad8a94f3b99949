//! `committed` held back for a moment, so that all partitions can be looked at as of one ([`crate::point`]): writes go on, what
//! they and reads would tell of waits.
//!
//! Safety does not rest on the pause. Who asked for it is told at its end where `committed` stands, and knows from that whether
//! it held: in one term `committed` never goes back, and the answer rests on the lease.

use crate::output::ClientRef;
use crate::primary::Primary;
use crate::replica::{Ctx, Replica};
use types::{Lsn, Micros};
use wire::{Body, Op, Request, Status};

/// The longest that one request holds `committed` back.
const LONGEST: Micros = Micros::from_millis(2_000);
/// Between the end of a pause and the next one: nobody can hold a partition up for good.
const REST: Micros = Micros::from_millis(500);

/// A hold of `committed`, or none. One that is over is kept for the rest after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// Where `committed` is held, and until when.
    held: Option<(Lsn, Micros)>,
}

impl Pause {
    /// Holds `committed` where it is. Whoever asks while it is held gets no more time. False during the rest after a hold.
    pub fn hold(&mut self, now: Micros, committed: Lsn, for_ms: u32) -> bool {
        match self.held {
            Some((at, until)) if now < until && at == committed => return true,
            Some((_, until)) if now < until + REST => return false,
            _ => {}
        }
        let time = Micros::from_millis(for_ms.into()).min(LONGEST);
        self.held = Some((committed, now + time));
        true
    }

    /// Lets `committed` go on.
    pub fn release(&mut self, now: Micros) {
        if let Some((_, until)) = &mut self.held {
            *until = (*until).min(now);
        }
    }

    /// How far `committed` may go of what the policy allows.
    pub fn bound(&self, now: Micros, committed: Lsn, point: Lsn) -> Lsn {
        match self.held {
            Some((at, until)) if now < until => point.min(at.max(committed)),
            _ => point,
        }
    }
}

impl Replica {
    /// [`wire::Op::Pause`] holds `committed` where it is, [`wire::Op::Resume`] lets it go on and says where it stood.
    pub(crate) fn on_pause(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request) {
        let (now, committed) = (ctx.now.mono, self.marks.committed());
        let lost = matches!(&request.op, Op::Resume { at } if !self.on_history(*at));
        let Some(leader) = self.leader() else { return };
        let refused = match &request.op {
            Op::Pause { for_ms } if leader.pause.hold(now, committed, *for_ms) => {
                self.readers.open(committed, now);
                None
            }
            Op::Pause { .. } => {
                Some(Status::NotYet("the partition was held at one position just now".into()))
            }
            _ if lost => {
                let why = "the position is no part of the partition's history: a failover has lost it";
                Some(Status::TooOld(why.into()))
            }
            _ => {
                leader.pause.release(now);
                None
            }
        };
        if let Some(status) = refused {
            return self.answer(ctx, to, request, status, Body::None, None);
        }
        let valid_until = self.lease_until(ctx);
        self.answer(ctx, to, request, Status::Ok, Body::None, valid_until);
    }
}

impl Primary {
    /// How far `committed` may go of what the policy allows: a pause holds it while the partition is served. A hand-over is
    /// not waited with.
    pub(crate) fn held_at(&self, now: Micros, committed: Lsn, point: Lsn) -> Lsn {
        match self.takes_requests() {
            true => self.pause.bound(now, committed, point),
            false => point,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    #[test]
    fn committed_is_held_for_a_while_and_rests_between_two_holds() {
        let mut pause = Pause::default();
        assert_eq!(pause.bound(ms(0), Lsn(3), Lsn(9)), Lsn(9), "nothing is held");
        assert!(pause.hold(ms(0), Lsn(5), 100));
        assert_eq!(pause.bound(ms(99), Lsn(5), Lsn(9)), Lsn(5));
        assert!(
            pause.hold(ms(50), Lsn(5), 100),
            "who asks meanwhile is told the same, and gets no more time"
        );
        assert_eq!(pause.bound(ms(100), Lsn(5), Lsn(9)), Lsn(9));
        assert!(!pause.hold(ms(100), Lsn(9), 100), "the partition rests");
        assert!(pause.hold(ms(600), Lsn(9), 1_000_000));
        assert_eq!(pause.bound(ms(2_600), Lsn(9), Lsn(12)), Lsn(12), "nobody holds it longer than that");
    }

    #[test]
    fn what_is_released_goes_on_at_once_and_what_is_committed_stays_so() {
        let mut pause = Pause::default();
        pause.release(ms(1));
        assert!(pause.hold(ms(1), Lsn(5), 100));
        assert_eq!(pause.bound(ms(2), Lsn(7), Lsn(9)), Lsn(7), "it never goes back");
        pause.release(ms(2));
        assert_eq!(pause.bound(ms(2), Lsn(5), Lsn(9)), Lsn(9));
    }
}
