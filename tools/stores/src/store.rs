//! What a transaction manager asks of the store under it. A *region* is a part of the store's rows that fails
//! and moves as one: here a partition.

use bytes::Bytes;
use types::{PartitionId, Position, TableId};
use wire::Flush;

/// Counts who had a region: a higher one is later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tenure(pub u64);

/// Why something was not done. Nothing of it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The store takes commits in order: it has those up to here, and the flush names a later one. Stores
    /// without an order never say so.
    Behind(Position),
    /// The region waits for what was lost to be replayed: [`Store::open`].
    Closed,
    /// Somebody else has the region by now.
    Deposed,
    /// What was there at this timestamp is not known any more.
    TooOld,
    /// Nobody has the region just now, or it does not answer.
    Unavailable(String),
}

/// Who brings a part of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// Whoever has committed, or flushes for a client that has failed.
    Client,
    /// Whoever replays into a region that is about to be opened in this tenure.
    Recovery(Tenure),
}

/// A region behind a failure, before anybody reads it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reopening {
    /// The region.
    pub region: PartitionId,
    /// The tenure that begins.
    pub tenure: Tenure,
    /// The region's own threshold: every commit up to this one is in what is left.
    pub persisted: Position,
}

/// A store under a transaction manager.
///
/// Its rows have versions, by timestamps of commits. Writing is lazy: what was put is persistent only once
/// [`Store::persist`] says so, and the manager's log has it until then.
pub trait Store {
    /// Brings a part of a commit to a region. *Idempotent*: the same part again changes nothing, also behind
    /// later ones. *In any order*: a store that wants one says [`Refused::Behind`], and is brought what it
    /// lacks. It answers with the tenure that took it: whoever counts what is flushed counts it in the newest
    /// tenure of the region alone (PR-53).
    fn put(&mut self, region: PartitionId, flush: &Flush, sender: Sender) -> Result<Tenure, Refused>;

    /// A row as the commits up to `at` have left it. The caller sees to it that these were put.
    fn read(
        &mut self,
        region: PartitionId,
        row: (TableId, &Bytes),
        at: Position,
    ) -> Result<Option<Bytes>, Refused>;

    /// Makes persistent what was put. `flushed`: everything up to here was put, by whomever (T_F*). It
    /// answers with the region's threshold, which may be lower: some copy that may be promoted lacks the
    /// rest.
    fn persist(&mut self, region: PartitionId, flushed: Position) -> Result<Position, Refused>;

    /// The region's threshold (T_P): every commit up to this one is in all that may be left of it after a
    /// failure. The store keeps it beside the rows, and it does not fall.
    fn persisted(&mut self, region: PartitionId) -> Result<Position, Refused>;

    /// The hook before regions are opened again: those that a failure has closed. Each is asked for until it
    /// was opened. A store that opens by itself, since its readers notice what it lacks, names none.
    fn reopening(&mut self) -> Vec<Reopening>;

    /// Everything above the region's threshold was replayed: it may be read and written from now on.
    fn open(&mut self, reopening: &Reopening) -> Result<(), Refused>;
}
