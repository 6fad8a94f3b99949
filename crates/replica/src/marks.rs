//! How far the partition is known to be, beside this replica's own log: `committed`, `secured` and the log's
//! floor.

use types::Lsn;

/// Three LSNs that a primary works out from its members' watermarks, and that a backup is told.
///
/// They only ever move forward while a replica keeps its log. They go back where the log does
/// ([`Marks::cut`], [`Marks::begin_at`]), and `secured` where a member joins ([`Marks::secure_with_joiner`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// What the policy calls committed, as far as it is known here.
    committed: Lsn,
    /// The lowest LSN that every in-sync member has durable (memory logs: received): engine files stop here
    /// (R7).
    secured: Lsn,
    /// The lowest LSN that a member may still need (R8).
    log_floor: Lsn,
}

impl Marks {
    /// What a start knows.
    pub fn new(committed: Lsn, secured: Lsn) -> Marks {
        Marks { committed, secured, log_floor: Lsn::ZERO }
    }

    /// What the policy calls committed, as far as it is known here.
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// What every in-sync member has.
    pub fn secured(&self) -> Lsn {
        self.secured
    }

    /// The lowest LSN that a member may still need.
    pub fn log_floor(&self) -> Lsn {
        self.log_floor
    }

    /// What anybody may publish of this term's log. Nobody is told more, so that what is above it can wait
    /// for who joins.
    pub fn publishable(&self) -> Lsn {
        self.secured.min(self.committed)
    }

    /// All up to `to` is committed, in a log that ends at `end`. Gives by how many entries that is more than
    /// before.
    pub fn commit(&mut self, to: Lsn, end: Lsn) -> u64 {
        assert!(to <= end, "R4: committed {to} is beyond the log");
        let more = to.0.saturating_sub(self.committed.0);
        self.committed = self.committed.max(to);
        more
    }

    /// Every in-sync member has all up to `to`. Gives by how many entries that is more than before.
    pub fn secure(&mut self, to: Lsn) -> u64 {
        let more = to.0.saturating_sub(self.secured.0);
        self.secured = self.secured.max(to);
        more
    }

    /// No member needs what is below `to`. The floor stays at or below `secured` (R8).
    pub fn raise_log_floor(&mut self, to: Lsn) {
        self.log_floor = self.log_floor.max(to.min(self.secured));
    }

    /// Up to where nothing of a log that is `durable` so far can be cut any more. A cold standby forgets it
    /// in memory, and may wait for a load when it publishes it.
    pub fn surely_kept(&self, durable: Lsn) -> Lsn {
        self.publishable().min(durable)
    }

    /// A member is to join: what nobody can have published yet is not secured before it has it too.
    pub fn secure_with_joiner(&mut self, published: Lsn) {
        self.secured = self.publishable().max(published);
    }

    /// The log ends at `to` now.
    pub fn truncate(&mut self, to: Lsn) {
        self.committed = self.committed.min(to);
    }

    /// What must hold after every event, beside a log that ends at `end` and an engine. What files have that
    /// were just installed may lie above what is known here.
    pub fn validate(&self, end: Lsn, published: Lsn, persisted: Lsn) -> Result<(), String> {
        let ordered = |what: &str, low: Lsn, high: Lsn| {
            if low <= high { Ok(()) } else { Err(format!("{what}: {low} > {high}")) }
        };
        ordered("committed <= received", self.committed, end)?;
        ordered("R7: published <= committed", published, self.committed.max(persisted))?;
        ordered("R7: published <= secured", published, self.secured.max(persisted))
    }

    /// The log begins again at `at`, with a state that is committed and secured.
    pub fn begin_at(&mut self, at: Lsn) {
        *self = Marks::new(at, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_say_by_how_much_they_moved_and_never_go_back() {
        let mut marks = Marks::new(Lsn(3), Lsn(2));
        assert_eq!((marks.commit(Lsn(7), Lsn(9)), marks.committed()), (4, Lsn(7)));
        assert_eq!((marks.commit(Lsn(5), Lsn(9)), marks.committed()), (0, Lsn(7)));
        assert_eq!((marks.secure(Lsn(6)), marks.secure(Lsn(4)), marks.secured()), (4, 0, Lsn(6)));
        assert_eq!(marks.publishable(), Lsn(6));
    }

    #[test]
    #[should_panic(expected = "R4: committed 10 is beyond the log")]
    fn r4_nothing_is_committed_that_is_not_in_the_log() {
        Marks::new(Lsn(3), Lsn(2)).commit(Lsn(10), Lsn(9));
    }

    #[test]
    fn r8_the_floor_stays_at_or_below_what_all_have() {
        let mut marks = Marks::new(Lsn(9), Lsn(5));
        marks.raise_log_floor(Lsn(8));
        assert_eq!(marks.log_floor(), Lsn(5));
        marks.secure(Lsn(7));
        marks.raise_log_floor(Lsn(6));
        marks.raise_log_floor(Lsn(2));
        assert_eq!(marks.log_floor(), Lsn(6));
    }

    #[test]
    fn r7_what_nobody_published_waits_for_a_member_that_joins() {
        let mut marks = Marks::new(Lsn(5), Lsn(9));
        marks.secure_with_joiner(Lsn(4));
        assert_eq!(marks.secured(), Lsn(5), "published up to `committed` at most");
        marks.secure_with_joiner(Lsn(6));
        assert_eq!(marks.secured(), Lsn(6), "what is published is not taken back");
    }

    #[test]
    fn r7_an_engine_ahead_of_the_marks_is_found() {
        let marks = Marks::new(Lsn(5), Lsn(7));
        assert_eq!(marks.validate(Lsn(9), Lsn(5), Lsn(3)), Ok(()));
        assert!(marks.validate(Lsn(4), Lsn(3), Lsn(3)).is_err_and(|what| what.contains("received")));
        assert!(marks.validate(Lsn(9), Lsn(6), Lsn(3)).is_err_and(|what| what.starts_with("R7")));
        assert_eq!(marks.validate(Lsn(9), Lsn(6), Lsn(6)), Ok(()), "files were just installed");
    }

    #[test]
    fn marks_go_back_with_the_log_and_begin_again_with_it() {
        let mut marks = Marks::new(Lsn(5), Lsn(7));
        marks.truncate(Lsn(4));
        assert_eq!((marks.committed(), marks.secured()), (Lsn(4), Lsn(7)));
        marks.begin_at(Lsn(2));
        assert_eq!(marks, Marks::new(Lsn(2), Lsn(2)));
    }
}
