//! The unordered store does what a store must; stores that do not are found out.

use bytes::Bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use types::{NodeId, PartitionId, Position, TableId};
use understudy_stores::suite::Subject;
use understudy_stores::{Refused, Reopening, Sender, Store, Tenure, Unordered, check};
use wire::Flush;

const A: PartitionId = PartitionId(64);

fn store() -> Unordered {
    Unordered::new(&[(A, &[NodeId(1), NodeId(2)])])
}

#[test]
fn the_unordered_store_does_what_a_store_must() {
    assert_eq!(check(&mut || Box::new(store())), 7);
}

/// What a store does wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Flaw {
    /// A later part is the newest version, whatever its timestamp.
    Arrival,
    /// What is put a second time is taken for something new.
    Twice,
    /// Reads show the newest version.
    Newest,
    /// The threshold is what was flushed, and nothing is written.
    Lazy,
    /// The threshold is forgotten in a failure.
    Forgets,
    /// Regions open by themselves with what is left.
    Opens,
    /// Deletions are not kept.
    Undead,
}

struct Flawed {
    store: Unordered,
    flaw: Flaw,
    arrived: u64,
    claimed: Position,
}

impl Store for Flawed {
    fn put(&mut self, region: PartitionId, flush: &Flush, sender: Sender) -> Result<Tenure, Refused> {
        let mut flush = flush.clone();
        self.arrived += 1;
        match self.flaw {
            Flaw::Arrival => flush.commit.lsn.0 = self.arrived,
            Flaw::Twice if self.arrived > 5 => flush.commit.lsn.0 += 1,
            Flaw::Undead => {
                flush.parts.iter_mut().for_each(|part| part.ops.retain(|op| op.row().is_some()));
            }
            _ => {}
        }
        self.store.put(region, &flush, sender)
    }

    fn read(
        &mut self,
        region: PartitionId,
        row: (TableId, &Bytes),
        at: Position,
    ) -> Result<Option<Bytes>, Refused> {
        let newest = Position { lsn: types::Lsn(1_000), ..at };
        self.store.read(region, row, if self.flaw == Flaw::Newest { newest } else { at })
    }

    fn persist(&mut self, region: PartitionId, flushed: Position) -> Result<Position, Refused> {
        match self.flaw {
            Flaw::Lazy => {
                self.claimed = flushed;
                Ok(flushed)
            }
            _ => self.store.persist(region, flushed),
        }
    }

    fn persisted(&mut self, region: PartitionId) -> Result<Position, Refused> {
        match self.flaw {
            Flaw::Lazy => Ok(self.claimed),
            Flaw::Forgets if self.store.tenure(region) > Tenure(1) => Ok(Position::ZERO),
            _ => self.store.persisted(region),
        }
    }

    fn reopening(&mut self) -> Vec<Reopening> {
        let closed = self.store.reopening();
        if self.flaw == Flaw::Opens {
            closed.iter().for_each(|one| self.store.open(one).expect("its own tenure"));
            return Vec::new();
        }
        closed
    }

    fn open(&mut self, reopening: &Reopening) -> Result<(), Refused> {
        self.store.open(reopening)
    }
}

impl Subject for Flawed {
    fn region(&self) -> PartitionId {
        A
    }

    fn fail(&mut self) -> bool {
        Subject::fail(&mut self.store)
    }
}

#[test]
fn stores_that_do_something_else_are_found_out() {
    let flaws = [Flaw::Arrival, Flaw::Twice, Flaw::Newest, Flaw::Lazy, Flaw::Forgets, Flaw::Undead];
    for flaw in flaws {
        let mut fresh = || -> Box<dyn Subject> {
            Box::new(Flawed { store: store(), flaw, arrived: 0, claimed: Position::ZERO })
        };
        let found = catch_unwind(AssertUnwindSafe(|| check(&mut fresh))).is_err();
        assert!(found, "{flaw:?} was not found");
    }
}

/// A store that opens by itself and whose readers bring what is missing, as the product's partitions do, is
/// none that does wrong: the rest is put again.
#[test]
fn a_store_may_open_by_itself() {
    let mut fresh = || -> Box<dyn Subject> {
        Box::new(Flawed { store: store(), flaw: Flaw::Opens, arrived: 0, claimed: Position::ZERO })
    };
    assert_eq!(check(&mut fresh), 7);
}
