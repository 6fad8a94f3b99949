//! Both stores for tests do what a store must, with failures and answers that are lost and without; stores
//! that do not are found out. `crates/node/tests/store.rs` has the product's partitions.

use bytes::Bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use types::{NodeId, PartitionId, Position, TableId};
use understudy_stores::suite::Subject;
use understudy_stores::{Ordered, Refused, Reopening, Sender, Servers, Store, Tenure, Unordered, check};
use wire::Flush;

const A: PartitionId = PartitionId(64);

fn store() -> Unordered {
    Unordered::new(&[(A, &[NodeId(1), NodeId(2)])])
}

/// It is told where its log begins.
fn in_order() -> Ordered {
    Ordered::new(&[(A, &[NodeId(1), NodeId(2)])], Subject::before(&store()))
}

/// Which faults there are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Faults {
    /// None: nobody fails.
    None,
    /// Whoever has a region may fail. Of what is done every third answer does not come, and it has to be
    /// asked again.
    LostAnswers,
}

struct WithFaults<S> {
    store: S,
    faults: Faults,
    asked: u64,
}

impl<S> WithFaults<S> {
    fn answer<T>(&mut self, done: Result<T, Refused>) -> Result<T, Refused> {
        self.asked += 1;
        match done {
            Ok(_) if self.faults == Faults::LostAnswers && self.asked.is_multiple_of(3) => {
                Err(Refused::Unavailable("no answer came".into()))
            }
            answer => answer,
        }
    }
}

impl<S: Subject> Store for WithFaults<S> {
    fn put(&mut self, region: PartitionId, flush: &Flush, sender: Sender) -> Result<Tenure, Refused> {
        let done = self.store.put(region, flush, sender);
        self.answer(done)
    }

    fn read(
        &mut self,
        region: PartitionId,
        row: (TableId, &Bytes),
        at: Position,
    ) -> Result<Option<Bytes>, Refused> {
        let read = self.store.read(region, row, at);
        self.answer(read)
    }

    fn persist(&mut self, region: PartitionId, flushed: Position) -> Result<Position, Refused> {
        let done = self.store.persist(region, flushed);
        self.answer(done)
    }

    fn persisted(&mut self, region: PartitionId) -> Result<Position, Refused> {
        let said = self.store.persisted(region);
        self.answer(said)
    }

    fn reopening(&mut self) -> Vec<Reopening> {
        self.store.reopening()
    }

    fn open(&mut self, reopening: &Reopening) -> Result<(), Refused> {
        self.store.open(reopening)
    }
}

impl<S: Subject> Subject for WithFaults<S> {
    fn region(&self) -> PartitionId {
        Subject::region(&self.store)
    }

    fn fail(&mut self) -> bool {
        self.faults != Faults::None && Subject::fail(&mut self.store)
    }
}

/// Each store as it is, where nothing fails (and two cases cannot be made), and where answers are lost.
fn does_what_it_must<S: Subject + 'static>(fresh: fn() -> S) {
    assert_eq!(check(&mut || Box::new(fresh())), 7);
    for (faults, cases) in [(Faults::None, 5), (Faults::LostAnswers, 7)] {
        let mut with_faults =
            || -> Box<dyn Subject> { Box::new(WithFaults { store: fresh(), faults, asked: 0 }) };
        assert_eq!(check(&mut with_faults), cases, "{faults:?}");
    }
}

#[test]
fn the_unordered_store_does_what_a_store_must() {
    does_what_it_must(store);
}

#[test]
fn the_ordered_store_does_what_a_store_must() {
    does_what_it_must(in_order);
}

/// The order is the store's own: what comes too early is refused with what is there, and changes nothing.
#[test]
fn the_ordered_store_says_what_it_has_to_whoever_comes_too_early() {
    let at = |lsn| Position::new(types::Term(1), types::Lsn(lsn));
    let flush = |commit, previous| Flush { commit: at(commit), previous: at(previous), parts: Vec::new() };
    let mut store = in_order();
    assert_eq!(store.put(A, &flush(7, 5), Sender::Client), Err(Refused::Behind(Position::ZERO)));
    assert_eq!(store.put(A, &flush(5, 0), Sender::Client), Ok(Tenure(1)));
    assert_eq!(store.put(A, &flush(9, 7), Sender::Client), Err(Refused::Behind(at(5))));
    assert_eq!(store.put(A, &flush(7, 5), Sender::Client), Ok(Tenure(1)));
    assert_eq!(store.put(A, &flush(5, 0), Sender::Client), Ok(Tenure(1)), "again");
    assert_eq!(store.put(A, &flush(9, 7), Sender::Client), Ok(Tenure(1)));
    // Of another one's disk only what was persisted is there.
    store.persist(A, at(5)).expect("it answers");
    store.put(A, &flush(11, 9), Sender::Client).expect("in order");
    assert!(Subject::fail(&mut store));
    let tenure = store.reopening()[0].tenure;
    let recovery = Sender::Recovery(tenure);
    assert_eq!(store.put(A, &flush(12, 11), recovery), Err(Refused::Behind(at(9))));
    assert_eq!(store.put(A, &flush(11, 9), Sender::Recovery(Tenure(1))), Err(Refused::Deposed));
    assert_eq!(store.put(A, &flush(11, 9), recovery), Ok(tenure));
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
