//! `committed` held back for a moment, so that all partitions can be looked at as of one ([`crate::point`]): writes go on, what
//! they and reads would tell of waits.
//!
//! Safety does not rest on the pause. Who asked for it is told at its end where `committed` stands, and knows from that whether
//! it held: in one term `committed` never goes back, and the answer rests on the lease.

use crate::output::ClientRef;
use crate::primary::Primary;
use crate::replica::{Ctx, Replica, Role};
use types::{Lsn, Micros, Position};
use wire::{Body, Request, Status};

/// The longest that one request holds `committed` back.
const LONGEST: Micros = Micros::from_millis(2_000);
/// Between the end of a pause and the next one: nobody can hold a partition up for good.
const REST: Micros = Micros::from_millis(500);

/// Where `committed` is held, and until when. Kept when it is over, for the rest after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    at: Lsn,
    until: Micros,
}

impl Replica {
    /// [`wire::Op::Pause`]: holds `committed` where it is. Whoever asks while it is held is told the same, and gets no more time.
    pub(crate) fn pause(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request, for_ms: u32) {
        let (now, committed) = (ctx.now.mono, self.marks.committed());
        let Some(leader) = self.leader() else { return };
        let held = leader.pause.is_some_and(|pause| now < pause.until && pause.at == committed);
        if !held {
            if leader.pause.is_some_and(|pause| now < pause.until + REST) {
                let why = "the partition was held at one position just now".into();
                return self.answer(ctx, to, request, Status::NotYet(why), Body::None, None);
            }
            let time = Micros::from_millis(for_ms.into()).min(LONGEST);
            leader.pause = Some(Pause { at: committed, until: now + time });
        }
        self.readers.open(committed, now);
        let valid_until = self.lease_until(ctx);
        self.answer(ctx, to, request, Status::Ok, Body::None, valid_until);
    }

    /// [`wire::Op::Resume`]: lets `committed` go on, and says where it stood.
    pub(crate) fn resume(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request, at: Position) {
        if !self.on_history(at) {
            let why = "the position is no part of the partition's history: a failover has lost it";
            return self.answer(ctx, to, request, Status::TooOld(why.into()), Body::None, None);
        }
        let now = ctx.now.mono;
        if let Some(pause) = self.leader().and_then(|leader| leader.pause.as_mut()) {
            pause.until = pause.until.min(now);
        }
        let valid_until = self.lease_until(ctx);
        self.answer(ctx, to, request, Status::Ok, Body::None, valid_until);
    }

    /// How far `committed` may go of what the policy allows. A hand-over is not waited with.
    pub(crate) fn held_at(&self, ctx: &Ctx, point: Lsn) -> Lsn {
        let Role::Leader(leader) = &self.role else { return point };
        match leader.holding(ctx.now.mono) {
            Some(at) => point.min(at.max(self.marks.committed())),
            None => point,
        }
    }
}

impl Primary {
    fn holding(&self, now: Micros) -> Option<Lsn> {
        let pause = self.pause.filter(|pause| now < pause.until)?;
        self.takes_requests().then_some(pause.at)
    }
}
