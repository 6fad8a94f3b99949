//! I13: what could be served is served soon, and whoever takes a primary's place does so quickly.

use std::collections::BTreeMap;
use types::{PartitionId, Term};

/// A partition that could be served is closed for so long at most. Microseconds.
pub const CLOSED_US: u64 = 2_000_000;
/// Where acknowledgements rest on the primary alone, it is missed and waited for this long as well (PR-85);
/// and who leads on in the middle of a bulk load has to install that first (PR-39). Microseconds.
pub const WAITED_US: u64 = 2_500_000;
/// A partition that may not acknowledge anything for want of a copy is given one within this, where there are
/// nodes enough. Microseconds.
pub const BLOCKED_US: u64 = 5_000_000;
/// The same where a copy is there: all that could have one have been heard for a while, and what they lack is
/// in the primary's log. Microseconds.
pub const REACHED_US: u64 = 500_000;
/// From the fault that takes a primary until another serves. Microseconds.
pub const FAILOVER_US: u64 = 1_000_000;

/// What is seen of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Nobody serves it, and somebody could.
    pub closed: bool,
    /// When a fault last concerned it, microseconds.
    pub hit: u64,
    /// The primary is waited for before another leads, has a load to install, or its disk does nothing.
    pub waits: bool,
    /// Its primary serves it.
    pub serves: bool,
}

/// A partition that nobody serves although somebody could.
#[derive(Clone, Copy, Debug)]
struct Closed {
    /// Since when, in microseconds; none: that was told.
    untold: Option<u64>,
    /// Since when, microseconds.
    since: u64,
    /// When a fault last concerned it until it was seen last, microseconds.
    hit: u64,
    /// Its primary, or a load of it, was waited for in that time: who takes its place begins when that has
    /// failed.
    waits: bool,
}

/// A primary that a fault has taken.
#[derive(Clone, Copy, Debug)]
struct Takeover {
    term: Term,
    at: u64,
    /// When another came to serve.
    serves: Option<u64>,
}

/// Partitions that nobody serves although somebody could.
#[derive(Debug, Default)]
pub struct Availability {
    closed: BTreeMap<PartitionId, Closed>,
    /// The same of partitions that may not acknowledge anything.
    blocked: BTreeMap<PartitionId, Option<u64>>,
    /// The same where what those that are to have a copy lack is in the primary's log.
    reached: BTreeMap<PartitionId, Option<u64>>,
    /// When a copy of a partition last got a piece of its files: they take as long as the budget for them
    /// makes them take.
    pieces: BTreeMap<PartitionId, u64>,
    taken: BTreeMap<PartitionId, Takeover>,
    failovers: Vec<u64>,
    /// When a primary of this partition last came to serve.
    served: BTreeMap<PartitionId, u64>,
    closures: Vec<u64>,
}

impl Availability {
    /// A partition was looked at, at the time `now` in microseconds. The error comes once per interruption.
    pub fn look(&mut self, id: PartitionId, now: u64, look: Look) -> Result<(), String> {
        if !look.closed {
            if let Some(closed) = self.closed.remove(&id).filter(|closed| look.serves && !closed.waits) {
                let from = closed.since.max(closed.hit);
                let until = self.served.get(&id).copied().filter(|served| *served >= from);
                self.closures.push(until.unwrap_or(now) - from);
            }
            return Ok(());
        }
        let new = Closed { untold: Some(now), since: now, hit: look.hit, waits: false };
        let closed = self.closed.entry(id).or_insert(new);
        closed.waits |= look.waits;
        closed.hit = look.hit;
        let most = if closed.waits { CLOSED_US + WAITED_US } else { CLOSED_US };
        match lasts(&mut closed.untold, now, look.hit, most) {
            Some(ms) => Err(format!("{id} has not been served for {ms} ms, and could be")),
            None => Ok(()),
        }
    }

    /// The same of a partition that may not acknowledge anything for want of a copy, although there are nodes
    /// enough. `hit` says when a fault last concerned any node.
    pub fn look_blocked(&mut self, id: PartitionId, now: u64, blocked: bool, hit: u64) -> Result<(), String> {
        if !blocked {
            self.blocked.remove(&id);
            return Ok(());
        }
        let hit = hit.max(self.pieces.get(&id).copied().unwrap_or(0));
        match lasts(self.blocked.entry(id).or_insert(Some(now)), now, hit, BLOCKED_US) {
            Some(ms) => {
                Err(format!("{id} could have been given another copy for {ms} ms, and waits for one"))
            }
            None => Ok(()),
        }
    }

    /// The same where all that a copy lacks is in the primary's log, and whoever could have one has been
    /// heard for a while (PR-460).
    pub fn look_reached(&mut self, id: PartitionId, now: u64, reached: bool, hit: u64) -> Result<(), String> {
        if !reached {
            self.reached.remove(&id);
            return Ok(());
        }
        let hit = hit.max(self.pieces.get(&id).copied().unwrap_or(0));
        match lasts(self.reached.entry(id).or_insert(Some(now)), now, hit, REACHED_US) {
            Some(ms) => Err(format!("{id} has waited for {ms} ms for a copy that its log reaches")),
            None => Ok(()),
        }
    }

    /// When a copy of any partition last got a piece of its files.
    pub fn last_piece(&self) -> Option<u64> {
        self.pieces.values().copied().max()
    }

    /// A copy of a partition gets a piece of its files.
    pub fn gets_piece(&mut self, id: PartitionId, now: u64) {
        self.pieces.insert(id, now);
    }

    /// A fault takes the primary of this term, while the others can go on without it.
    pub fn takes(&mut self, id: PartitionId, now: u64, term: Term) {
        self.taken.insert(id, Takeover { term, at: now, serves: None });
    }

    /// Something else befalls a partition, or its primary is there again: how long its failover takes says
    /// nothing.
    pub fn forget(&mut self, id: PartitionId) {
        self.taken.remove(&id);
    }

    /// Partitions whose primary was taken and whose next has not answered anybody yet, with the term that
    /// ended.
    pub fn taken(&self) -> impl Iterator<Item = (PartitionId, Term)> {
        self.taken.iter().map(|(id, taken)| (*id, taken.term))
    }

    /// A primary of this term came to serve.
    pub fn serves(&mut self, id: PartitionId, now: u64, term: Term) {
        self.served.insert(id, now);
        if let Some(taken) = self.taken.get_mut(&id).filter(|taken| taken.term < term) {
            taken.serves = taken.serves.or(Some(now));
        }
    }

    /// The first request was served in this term.
    pub fn answers(&mut self, id: PartitionId, now: u64, term: Term) {
        if let Some(taken) = self.taken.get(&id).filter(|taken| taken.term < term && taken.serves.is_some()) {
            self.failovers.push(now - taken.at);
            self.taken.remove(&id);
        }
    }

    /// Nothing else has befallen a partition whose primary was taken: whether another serves in time. The
    /// error comes once.
    pub fn waits(&mut self, id: PartitionId, now: u64) -> Result<(), String> {
        let Some(taken) = self.taken.get(&id).copied() else { return Ok(()) };
        if taken.serves.unwrap_or(now) - taken.at <= FAILOVER_US {
            return Ok(());
        }
        self.taken.remove(&id);
        Err(format!(
            "{id}: a fault took its primary of {} {} ms ago, and no other serves",
            taken.term,
            (now - taken.at) / 1000
        ))
    }

    /// How long it took each time until a partition was served again that could be: from the last fault that
    /// concerned it, or from when it could be, if that was later. Where its primary was waited for, or had
    /// something to install, it is not among them. Microseconds.
    pub fn closures(&self) -> &[u64] {
        &self.closures
    }

    /// How long each failover took, from the fault until the first request was served. Microseconds.
    pub fn failovers(&self) -> &[u64] {
        &self.failovers
    }
}

/// For how many milliseconds something has lasted that should not last longer than `most` microseconds, from
/// `since` or the last fault on; none if that is not too long, or was told.
fn lasts(since: &mut Option<u64>, now: u64, hit: u64, most: u64) -> Option<u64> {
    let span = now - (*since)?.max(hit);
    if span <= most {
        return None;
    }
    *since = None;
    Some(span / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::tests::P;

    const CLOSED: Look = Look { closed: true, hit: 0, waits: false, serves: false };

    #[test]
    fn a_partition_that_stays_closed_is_rejected_once_and_one_that_opens_in_between_is_not() {
        let mut availability = Availability::default();
        for now in [0, CLOSED_US] {
            availability.look(P, now, CLOSED).expect("not long");
        }
        availability.look(P, CLOSED_US + 1, CLOSED).expect_err("too long");
        availability.look(P, CLOSED_US + 2, CLOSED).expect("told already");
        availability.look(P, CLOSED_US + 3, Look { closed: false, ..CLOSED }).expect("open");
        for now in [2 * CLOSED_US, 3 * CLOSED_US] {
            availability.look(P, now, CLOSED).expect("not long");
        }
        availability.look(P, 3 * CLOSED_US + 1, CLOSED).expect_err("again");
    }

    #[test]
    fn a_partition_is_given_time_from_the_last_fault_that_concerned_it() {
        let mut availability = Availability::default();
        availability.look(P, 0, CLOSED).expect("not long");
        let hit = Look { hit: 50, ..CLOSED };
        availability.look(P, CLOSED_US + 50, hit).expect("not long since the fault");
        availability.look(P, CLOSED_US + 51, hit).expect_err("too long");
        let mut waiting = Availability::default();
        let waits = Look { waits: true, ..CLOSED };
        waiting.look(P, 0, waits).expect("not long");
        waiting.look(P, CLOSED_US + WAITED_US, waits).expect("its primary is waited for");
        waiting.look(P, CLOSED_US + WAITED_US + 1, waits).expect_err("not for ever");
        let mut followed = Availability::default();
        followed.look(P, 0, waits).expect("not long");
        followed.look(P, CLOSED_US + WAITED_US, CLOSED).expect("another took its place in the meantime");
        followed.look(P, CLOSED_US + WAITED_US + 1, CLOSED).expect_err("nor is that one waited for");
    }

    #[test]
    fn the_time_until_a_partition_is_served_again_counts_from_the_last_fault() {
        let mut availability = Availability::default();
        let open = Look { closed: false, serves: true, ..CLOSED };
        availability.look(P, 100, CLOSED).expect("not long");
        availability.look(P, 200, Look { hit: 150, ..CLOSED }).expect("not long");
        availability.serves(P, 240, Term(2));
        availability.look(P, 300, Look { hit: 260, ..open }).expect("open");
        assert_eq!(availability.closures(), [90], "from the fault until it came to serve");
        availability.look(P, 400, CLOSED).expect("not long");
        availability.look(P, 500, Look { serves: false, ..open }).expect("nobody could serve it");
        availability.look(P, 600, Look { waits: true, ..CLOSED }).expect("not long");
        availability.look(P, 700, open).expect("open");
        assert_eq!(availability.closures().len(), 1, "it could not be served, or was waited for");
        availability.look(P, 800, CLOSED).expect("not long");
        availability.look(P, 850, open).expect("who led goes on");
        assert_eq!(availability.closures(), [90, 50]);
    }

    #[test]
    fn a_partition_that_waits_for_a_copy_is_given_one() {
        let mut availability = Availability::default();
        availability.look_blocked(P, 0, true, 0).expect("not long");
        availability.look_blocked(P, BLOCKED_US + 5, true, 5).expect("not long since the fault");
        availability.look_blocked(P, BLOCKED_US + 6, true, 5).expect_err("too long");
        availability.look_blocked(P, BLOCKED_US + 7, false, 5).expect("it has one");
        availability.look_blocked(P, 2 * BLOCKED_US, true, 5).expect("not long again");
        availability.gets_piece(P, 3 * BLOCKED_US);
        availability.look_blocked(P, 4 * BLOCKED_US, true, 5).expect("its files come in");
        availability.look_blocked(P, 4 * BLOCKED_US + 1, true, 5).expect_err("they do no more");
    }

    #[test]
    fn pr460_a_copy_that_the_log_reaches_counts_soon() {
        let mut availability = Availability::default();
        availability.look_reached(P, 7, true, 0).expect("not long");
        availability.look_reached(P, 7 + REACHED_US, true, 0).expect("not too long");
        availability.look_reached(P, 8 + REACHED_US, true, 0).expect_err("too long");
        availability.look_reached(P, 9 + REACHED_US, true, 0).expect("told already");
        availability.look_reached(P, 10 + REACHED_US, false, 0).expect("it counts");
        availability.look_reached(P, 2 * REACHED_US, true, 0).expect("again");
        availability.look_reached(P, 3 * REACHED_US + 5, true, 2 * REACHED_US + 5).expect("a fault came");
        availability.look_reached(P, 3 * REACHED_US + 6, true, 2 * REACHED_US + 5).expect_err("too long");
    }

    #[test]
    fn a_failover_takes_less_than_a_second() {
        let mut availability = Availability::default();
        availability.takes(P, 10, Term(1));
        availability.answers(P, 20, Term(2));
        assert_eq!(availability.taken().count(), 1, "nobody serves in that term");
        availability.serves(P, 200, Term(2));
        availability.answers(P, 260, Term(1));
        availability.answers(P, 270, Term(2));
        assert_eq!(availability.failovers(), [260]);
        availability.takes(P, 300, Term(2));
        availability.waits(P, 300 + FAILOVER_US).expect("in time");
        availability.waits(P, 301 + FAILOVER_US).expect_err("too late");
        availability.waits(P, 302 + FAILOVER_US).expect("told already");
        availability.takes(P, 300, Term(2));
        availability.forget(P);
        availability.waits(P, 301 + FAILOVER_US).expect("something else befell it");
    }
}
