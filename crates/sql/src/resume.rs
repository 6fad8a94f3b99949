//! Changes of tables that somebody has left half done in a database that is told of them partition by
//! partition: they are finished without a statement that needs them (PR-503).
//!
//! The gateway of the node that leads the first partition reads that one's catalog now and then. If it is
//! another one than all partitions are known to have, or one of them has another primary since, they are
//! brought level as a client does it ([`several::level`]). So a table is dropped elsewhere only because the
//! first partition's catalog says so (PR-172). Then goes what nobody fills any more, and what nobody has
//! spoken of for long is written again ([`database::clear`]).
//!
//! Whoever changes tables brings them level by himself, so what has just changed is left to him for a look.
//! Nothing rests on who does this, how many do it at once, or whether anybody does.

use crate::catalog::Catalog;
use crate::database;
use crate::driver::{Handle, Place};
use crate::several;
use pg::Failure;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use types::{NodeId, TableId, Term};

/// How often a gateway looks at the databases whose first partition its node leads.
pub const RESUME_INTERVAL: Duration = Duration::from_secs(2);
/// Tables that are others at each look are brought level at the latest when they were looked at so often.
const MAX_WAITING_LOOKS: u32 = 8;
/// A database whose partitions do not answer is skipped up to so often before it is looked at again.
const MAX_SKIPPED: u32 = 32;

/// The task. Dropping it ends it; what it has begun is finished by whoever comes next.
pub struct Resuming(JoinHandle<()>);

impl Resuming {
    /// Starts it, on the runtime that this is called in, for databases whose first partition this node leads.
    pub fn start(handle: Handle, node: NodeId, every: Duration) -> Resuming {
        Resuming(tokio::spawn(resume(handle, node, every)))
    }
}

impl Drop for Resuming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn resume(handle: Handle, node: NodeId, every: Duration) {
    let mut watched: BTreeMap<TableId, Watched> = BTreeMap::new();
    loop {
        sleep(every).await;
        let led = led(&handle, node);
        watched.retain(|id, _| led.contains(id));
        for id in led {
            let own = watched.entry(id).or_default();
            if own.is_skipped() {
                continue;
            }
            let there = handle.within(Place::In(id));
            let done = look(&there, own).await;
            if let (Err(why), Ok(database), 0) = (&done, there.database_record(), own.failures) {
                let (name, why) = (database.name(), &why.message);
                eprintln!("sql: changes of tables of database `{name}` are not finished yet: {why}");
            }
            own.looked(done.is_ok());
        }
    }
}

/// The databases that are told of their tables partition by partition, and whose first one this node leads.
fn led(handle: &Handle, node: NodeId) -> Vec<TableId> {
    let map = handle.map();
    let own = map.databases().filter(|record| map.primary(record.first_partition) == Some(node));
    own.map(|record| record.id).filter(|id| handle.within(Place::In(*id)).spread().is_some()).collect()
}

/// One look at a database, and what is to be done then.
async fn look(handle: &Handle, own: &mut Watched) -> Result<(), Failure> {
    let catalog = handle.look().await?;
    let seen = Seen { terms: terms(handle), catalog };
    match own.next(&seen) {
        Step::Wait => return Ok(()),
        Step::Level => {
            several::level(handle).await?;
            own.level = Some(seen.clone());
        }
        Step::Clear => {}
    }
    database::clear(handle, &seen.catalog).await
}

/// The terms of a database's partitions, as far as this node knows.
fn terms(handle: &Handle) -> Vec<Option<Term>> {
    let map = handle.map();
    let partitions = handle.database_record().map(|record| record.partitions().collect::<Vec<_>>());
    let term = |partition| map.partition(partition).map(|record| record.term);
    partitions.unwrap_or_default().into_iter().map(term).collect()
}

/// What decides whether the partitions of a database may have other tables than the first one: as long as it
/// stays they have the same, once they had. Versions of tables are never given out again (PR-120), and what a
/// partition loses it loses with its term.
#[derive(Clone)]
struct Seen {
    /// The first partition's tables. Looks that show the same share it.
    catalog: Arc<Catalog>,
    terms: Vec<Option<Term>>,
}

impl Seen {
    fn is(&self, other: &Seen) -> bool {
        Arc::ptr_eq(&self.catalog, &other.catalog) && self.terms == other.terms
    }
}

/// What is done behind a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing: whoever has changed tables may be at it.
    Wait,
    /// The partitions are brought level.
    Level,
    /// They are.
    Clear,
}

/// What is known of a database.
#[derive(Default)]
struct Watched {
    /// What was seen when all partitions had the same tables.
    level: Option<Seen>,
    /// What was seen last.
    last: Option<Seen>,
    /// Looks in a row that have shown something else than what is level.
    waiting: u32,
    /// Looks in a row that have failed.
    failures: u32,
    /// Turns that are still skipped.
    skipped: u32,
}

impl Watched {
    /// What is to be done, as this is seen.
    fn next(&mut self, seen: &Seen) -> Step {
        if self.level.as_ref().is_some_and(|level| level.is(seen)) {
            (self.last, self.waiting) = (None, 0);
            return Step::Clear;
        }
        let stays = self.last.as_ref().is_some_and(|last| last.is(seen));
        self.last = Some(seen.clone());
        self.waiting += 1;
        if stays || self.waiting >= MAX_WAITING_LOOKS {
            self.waiting = 0;
            return Step::Level;
        }
        Step::Wait
    }

    /// True if it is not this database's turn: it has just failed.
    fn is_skipped(&mut self) -> bool {
        let skipped = self.skipped > 0;
        self.skipped = self.skipped.saturating_sub(1);
        skipped
    }

    /// How a look has ended. Each one in a row that fails has twice as many turns skipped.
    fn looked(&mut self, good: bool) {
        if good {
            self.failures = 0;
            return;
        }
        self.skipped = (1 << self.failures.min(MAX_SKIPPED.ilog2())).min(MAX_SKIPPED);
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(catalog: &Arc<Catalog>, terms: [u64; 2]) -> Seen {
        Seen { catalog: catalog.clone(), terms: terms.map(|term| Some(Term(term))).to_vec() }
    }

    #[test]
    fn pr503_tables_are_brought_level_when_they_stay_as_they_are_and_once() {
        let (one, two) = (Arc::new(Catalog::default()), Arc::new(Catalog::default()));
        let mut own = Watched::default();
        let mut steps = |all: &[(&Arc<Catalog>, [u64; 2])]| {
            let step = |(catalog, terms): &(&Arc<Catalog>, [u64; 2])| {
                let seen = seen(catalog, *terms);
                let step = own.next(&seen);
                if step == Step::Level {
                    own.level = Some(seen);
                }
                step
            };
            all.iter().map(step).collect::<Vec<_>>()
        };
        let first = steps(&[(&one, [1, 1]), (&one, [1, 1]), (&one, [1, 1]), (&one, [1, 1])]);
        assert_eq!(first, [Step::Wait, Step::Level, Step::Clear, Step::Clear]);
        assert_eq!(
            steps(&[(&two, [1, 1]), (&two, [1, 1]), (&two, [1, 1])]),
            first[..3],
            "a change of tables"
        );
        assert_eq!(steps(&[(&two, [1, 2]), (&two, [1, 2]), (&two, [1, 2])]), first[..3], "a failover");
        // Whoever changes them has brought them back to what they were.
        assert_eq!(
            steps(&[(&one, [1, 2]), (&two, [1, 2]), (&one, [1, 2])]),
            [Step::Wait, Step::Clear, Step::Wait]
        );
        assert_eq!(steps(&[(&two, [1, 2])]), [Step::Clear]);
        let changing: Vec<_> = (10..20).map(|term| (&one, [term, term])).collect();
        let step = |at: u32| if at == MAX_WAITING_LOOKS { Step::Level } else { Step::Wait };
        assert_eq!(steps(&changing), (1..=10).map(step).collect::<Vec<_>>(), "nobody is waited for for ever");
    }

    #[test]
    fn pr503_what_does_not_answer_is_asked_less_and_less_often() {
        let mut own = Watched::default();
        let mut skipped = |good: bool| {
            own.looked(good);
            (0..1_000).take_while(|_| own.is_skipped()).count()
        };
        assert_eq!([false; 7].map(&mut skipped), [1, 2, 4, 8, 16, 32, 32]);
        assert_eq!([true, false].map(skipped), [0, 1]);
    }
}
