//! What a transaction manager asks of the store under it. A *region* is a part of the store's rows that fails
//! and moves as one: here a partition.

use bytes::Bytes;
use std::collections::BTreeSet;
use types::{NodeId, PartitionId, Position, TableId};
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

/// A store on servers that tests end, cut off and look into. [`crate::World`] runs the document's algorithms
/// over any of them.
pub trait Servers: Store {
    /// All regions.
    fn regions(&self) -> Vec<PartitionId>;

    /// Who has the region, open or not.
    fn leader(&self, region: PartitionId) -> NodeId;

    /// In which tenure somebody has it.
    fn tenure(&self, region: PartitionId) -> Tenure;

    /// The timestamps of a row's versions where the region is led, open or not.
    fn versions(&self, region: PartitionId, row: (TableId, &Bytes)) -> BTreeSet<Position>;

    /// A server ends with what is in its memory alone, and with `disk` with its disk. Each region that it had
    /// is the next copy's, and closed.
    fn end(&mut self, node: NodeId, disk: bool);

    /// Everybody but the server, and clients that have not heard of it, takes it for failed: its regions are
    /// the next copies'.
    fn depose(&mut self, node: NodeId);

    /// From now on a server's copies are sent nothing, or are again.
    fn cut(&mut self, node: NodeId, cut: bool);

    /// Puts a part at a server that once had the region, as a client does that has not heard of another one.
    /// The server does not know either that it was deposed, and answers with its own tenure.
    fn put_to_old(
        &mut self,
        node: NodeId,
        region: PartitionId,
        tenure: Tenure,
        flush: &Flush,
    ) -> Result<Tenure, Refused>;

    /// The regions that a server has.
    fn regions_of(&self, node: NodeId) -> Vec<PartitionId> {
        self.regions().into_iter().filter(|region| self.leader(*region) == node).collect()
    }
}
