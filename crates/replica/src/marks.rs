//! How far the partition is known to be, beside this replica's own log: `committed`, `secured` and the log's floor.

use types::Lsn;

/// Three LSNs that a primary works out from its members' watermarks, and that a backup is told.
///
/// They only ever move forward while a replica keeps its log. They go back where the log does ([`Marks::cut`],
/// [`Marks::begin_at`]), and `secured` where a member joins ([`Marks::secure_with_joiner`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// What the policy calls committed, as far as it is known here.
    committed: Lsn,
    /// The lowest LSN that every in-sync member has durable (memory logs: received): engine files stop here (R7).
    secured: Lsn,
    /// The lowest LSN that a member may still need (R8).
    log_floor: Lsn,
}

impl Marks {
    /// What a start knows.
    pub fn new(committed: Lsn, secured: Lsn) -> Marks {
        Marks { committed, secured, log_floor: Lsn::ZERO }
    }

    pub fn committed(&self) -> Lsn {
        self.committed
    }

    pub fn secured(&self) -> Lsn {
        self.secured
    }

    pub fn log_floor(&self) -> Lsn {
        self.log_floor
    }

    /// What anybody may publish of this term's log. Nobody is told more, so that what is above it can wait for who joins.
    pub fn publishable(&self) -> Lsn {
        self.secured.min(self.committed)
    }

    /// All up to `to` is committed, in a log that ends at `end`. Gives by how many entries that is more than before.
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

    /// A member is to join: what nobody can have published yet is not secured before it has it too.
    pub fn secure_with_joiner(&mut self, published: Lsn) {
        self.secured = self.publishable().max(published);
    }

    /// The log ends at `to` now.
    pub fn cut(&mut self, to: Lsn) {
        self.committed = self.committed.min(to);
    }

    /// The log begins anew at `at`, with a state that is committed and secured.
    pub fn begin_at(&mut self, at: Lsn) {
        *self = Marks::new(at, at);
    }
}
