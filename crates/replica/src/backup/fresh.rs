//! How old what a replica reads may be (PR-27): reads at any replica name a bound.
//!
//! What a primary has committed is all that was ever acknowledged as long as nobody else leads, and that was so when the oldest of
//! the heartbeats on which its lease rests was sent. Once it is cut off, its freshness ends with that, though it goes on reading. A
//! backup is as fresh as an acknowledgement of its own that the primary had before that moment: so one that follows a primary
//! which leads no more gets older too.

use crate::features::bulk::readable;
use crate::replica::{Ctx, Replica, Role};
use types::{Lsn, Micros};
use wire::Status;

/// Which moment of a member's own clock its primary can vouch for: what is committed now is not older.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Of the member's clock, microseconds.
    vouched_us: u64,
    /// An acknowledgement that is not vouched for yet: when it came, and the member's clock in it.
    next: Option<(Micros, u64)>,
}

impl Echo {
    /// An acknowledgement came, sent at `member_us` of the member's clock.
    pub fn note(&mut self, now: Micros, member_us: u64) {
        self.next.get_or_insert((now, member_us));
    }

    /// What an append says. The primary led at `led_at`, and all that it committed until then is what was acknowledged.
    pub fn tell(&mut self, led_at: Micros) -> u64 {
        if let Some((_, member_us)) = self.next.take_if(|(came, _)| *came <= led_at) {
            self.vouched_us = self.vouched_us.max(member_us);
        }
        self.vouched_us
    }
}

impl Replica {
    /// When this replica's `committed` was surely all that was acknowledged, by its own clock; zero: never.
    pub(crate) fn fresh_at(&self, ctx: &Ctx) -> Micros {
        match &self.role {
            Role::Leader(leader) if leader.promotion.serves() => self.led_at(ctx),
            // What the primary before it acknowledged is not all committed here yet.
            Role::Leader(leader) => leader.promotion.fresh_at(),
            Role::Backup(backup) => backup.fresh_at(),
            Role::Idle | Role::Damaged(_) => Micros::ZERO,
        }
    }

    /// The last moment at which this primary surely led; zero before it serves.
    pub(crate) fn led_at(&self, ctx: &Ctx) -> Micros {
        let Role::Leader(leader) = &self.role else { return Micros::ZERO };
        match self.lease_until(ctx) {
            _ if !leader.promotion.serves() => Micros::ZERO,
            Some(until) => until.since(ctx.settings.lease),
            None => ctx.now.mono,
        }
    }

    /// Why a read at any replica is refused here, if so: below the LSN that was asked for, or too old.
    pub(crate) fn too_stale(&self, ctx: &Ctx, max_lag_ms: u64, min_lsn: Lsn) -> Option<Status> {
        if !self.rules.stale_reads_are_refused() {
            return None;
        }
        let committed = readable(self.engine.as_ref(), self.marks.committed());
        if committed < min_lsn {
            return Some(Status::NotYet(format!("this replica is at LSN {committed}, not at {min_lsn} yet")));
        }
        let age = ctx.now.mono.since(self.fresh_at(ctx)).as_millis();
        (age > max_lag_ms).then(|| {
            Status::NotYet(format!("this replica may be {age} ms behind, over the bound of {max_lag_ms} ms"))
        })
    }
}
