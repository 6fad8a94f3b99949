//! Transactions that are open here, and what the transaction manager is told of them once a second: people
//! see there how many execute. Nothing rests on that. What they read is kept for them ([`SnapshotKeeper`]).

use super::snapshots::SnapshotKeeper;
use super::steps::Manager;
use crate::call::{Call, Ticket};
use crate::client::Options;
use crate::database::Database;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use types::{Micros, Position, TableId};
use wire::ManagerOp;
use wire::commit::MAX_EXECUTING;

/// Between two reports. The manager forgets who has said nothing for three times as long.
const INTERVAL: Micros = Micros::from_millis(1_000);
/// The same where the last report got no answer: a manager of an older version closes the connection.
const UNANSWERED_INTERVAL: Micros = Micros::from_millis(60_000);

/// The transactions that are open at one client or one gateway. Cheap to clone; clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct OpenTransactions(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    /// As many as the list has: looked at with each turn of a client, so without the lock.
    count: AtomicUsize,
    list: Mutex<List>,
}

/// What an open transaction reads: of which database, and at which snapshot.
type Reads = (Database, Position);

#[derive(Debug, Default)]
struct List {
    last: u64,
    /// By when each began, and its number: what it reads, if its client keeps that.
    all: BTreeMap<(Instant, u64), Option<Reads>>,
}

impl OpenTransactions {
    /// One more is open, as long as what is given back is there.
    pub fn begun(&self) -> OpenTransaction {
        self.since(Instant::now(), None)
    }

    /// The same of one that reads this snapshot of a database.
    pub(crate) fn begun_at(&self, database: &Database, snapshot: Position) -> OpenTransaction {
        self.since(Instant::now(), Some((database.clone(), snapshot)))
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// How long the oldest has been open; none: there is none.
    pub fn oldest(&self) -> Option<Duration> {
        self.list().all.keys().next().map(|(since, _)| since.elapsed())
    }

    /// Of each database the oldest snapshot that a transaction reads which has been open for this time.
    pub(crate) fn snapshots(&self, age: Duration) -> Vec<(Database, Position)> {
        let list = self.list();
        let mut oldest: BTreeMap<TableId, Reads> = BTreeMap::new();
        let old = list.all.iter().take_while(|((since, _), _)| since.elapsed() >= age);
        for (database, snapshot) in old.filter_map(|(_, reads)| reads.as_ref()) {
            let known = oldest.entry(database.id()).or_insert_with(|| (database.clone(), *snapshot));
            known.1 = known.1.min(*snapshot);
        }
        oldest.into_values().collect()
    }

    fn since(&self, since: Instant, reads: Option<Reads>) -> OpenTransaction {
        let mut list = self.list();
        list.last += 1;
        let number = list.last;
        list.all.insert((since, number), reads);
        self.0.count.store(list.all.len(), Ordering::Relaxed);
        drop(list);
        OpenTransaction { of: self.clone(), since, number }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction that is open until this is dropped. A clone counts as one more.
#[derive(Debug)]
pub struct OpenTransaction {
    of: OpenTransactions,
    since: Instant,
    number: u64,
}

impl Clone for OpenTransaction {
    fn clone(&self) -> OpenTransaction {
        let reads = self.of.list().all.get(&(self.since, self.number)).cloned().flatten();
        self.of.since(self.since, reads)
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let mut list = self.of.list();
        list.all.remove(&(self.since, self.number));
        self.of.0.count.store(list.all.len(), Ordering::Relaxed);
    }
}

/// What a client says of them: to the transaction manager, and to partitions that are to keep what they read.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Says it to partitions.
    keeper: SnapshotKeeper,
    /// Names it among all clients.
    who: u64,
    /// Those of others that this client speaks for.
    others: OpenTransactions,
    /// Nothing is said before this.
    next: Micros,
    /// The last report named some.
    named: bool,
    /// The call that is under way.
    under_way: Option<Ticket>,
    /// The last one got no answer.
    unanswered: bool,
}

impl Reports {
    /// `who` is a number that no other client has; 0 is nobody's. `options`: how the cluster is reached.
    pub fn new(who: u64, options: Options) -> Reports {
        let others = OpenTransactions::default();
        Reports {
            keeper: SnapshotKeeper::new(options),
            who: who.max(1),
            others,
            next: Micros::ZERO,
            named: false,
            under_way: None,
            unanswered: false,
        }
    }

    /// It speaks for these, too.
    pub fn speak_for(&mut self, others: OpenTransactions) {
        self.others = others;
    }

    /// From now on partitions keep what the client's own transactions read, as long as these are open.
    pub fn keep_snapshots(&mut self, own: &OpenTransactions) {
        self.keeper.start(own);
    }

    /// When something is to be said; none: there is nothing to say, or an answer is waited for.
    pub fn due(&self, own: &OpenTransactions) -> Option<Micros> {
        let some = self.named || own.count() > 0 || self.others.count() > 0;
        (some && self.under_way.is_none()).then_some(self.next)
    }

    /// What is to be said now, if anything is.
    pub fn next(&mut self, now: Micros, own: &OpenTransactions) -> Option<ManagerOp> {
        self.due(own).filter(|due| *due <= now)?;
        self.next = now + if self.unanswered { UNANSWERED_INTERVAL } else { INTERVAL };
        let open = own.count() + self.others.count();
        let oldest = own.oldest().into_iter().chain(self.others.oldest()).max().unwrap_or_default();
        self.named = open > 0;
        Some(ManagerOp::Executing {
            who: self.who,
            open: u32::try_from(open).unwrap_or(u32::MAX).min(MAX_EXECUTING),
            oldest_ms: u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// The call that says it: no answer is waited for longer than until the next one.
    pub fn call(manager: Manager, op: ManagerOp) -> Call {
        manager.call(op).within(INTERVAL)
    }

    /// It was sent.
    pub fn sent(&mut self, ticket: Ticket) {
        self.under_way = Some(ticket);
    }

    /// A call has ended, perhaps without an answer. True if it was one of these.
    pub fn ended(&mut self, ticket: Ticket, answered: bool) -> bool {
        let own = self.under_way.take_if(|own| *own == ticket).is_some();
        self.unanswered = if own { !answered } else { self.unanswered };
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(op: Option<ManagerOp>) -> Option<u32> {
        op.map(|op| match op {
            ManagerOp::Executing { who: 7, open, .. } => open,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_is_open_is_counted_until_it_is_dropped() {
        let open = OpenTransactions::default();
        assert_eq!((open.count(), open.oldest()), (0, None));
        let first = open.begun();
        std::thread::sleep(Duration::from_millis(5));
        let (second, same) = (open.clone().begun(), first.clone());
        assert_eq!(open.count(), 3);
        drop(first);
        assert!(open.oldest() >= Some(Duration::from_millis(5)), "the clone began when the first did");
        drop(same);
        assert_eq!(open.count(), 1);
        drop(second);
        assert_eq!((open.count(), open.oldest()), (0, None));
    }

    #[test]
    fn pr466_of_each_database_the_oldest_snapshot_is_kept_that_somebody_still_reads() {
        let database = |id: u32| {
            let schema = types::system::schema(types::system::COMMITS).expect("a system table");
            let policy = types::Policy::preset("durable", 1, types::LogKind::Disk).expect("a preset");
            let record = types::TableRecord::new(TableId(id), "a", schema, policy);
            Database::new(Arc::new(types::TableRecord { holds: types::Holds::Database, ..record }))
        };
        let at = |lsn: u64| Position::new(types::Term(1), types::Lsn(lsn));
        let open = OpenTransactions::default();
        let kept = |open: &OpenTransactions| {
            let kept = open.snapshots(Duration::ZERO);
            kept.into_iter().map(|(database, snapshot)| (database.id().0, snapshot)).collect::<Vec<_>>()
        };
        let (one, stale) = (open.begun_at(&database(7), at(9)), open.begun_at(&database(7), at(4)));
        let (_other, _session) = (open.begun_at(&database(8), at(12)), open.begun());
        assert_eq!(kept(&open), [(7, at(4)), (8, at(12))]);
        let same = stale.clone();
        drop(stale);
        assert_eq!(kept(&open), [(7, at(4)), (8, at(12))], "a clone reads it, too");
        drop(same);
        assert_eq!(kept(&open), [(7, at(9)), (8, at(12))]);
        drop(one);
        assert_eq!(kept(&open), [(8, at(12))]);
        assert!(open.snapshots(Duration::from_secs(60)).is_empty(), "none is open for so long");
    }

    #[test]
    fn it_is_said_once_a_second_and_once_more_behind_the_last() {
        let ms = Micros::from_millis;
        let (own, others) = (OpenTransactions::default(), OpenTransactions::default());
        let mut reports = Reports::new(7, Options::default());
        reports.speak_for(others.clone());
        assert_eq!((reports.due(&own), reports.next(ms(10), &own)), (None, None), "nothing is open");
        let (one, two) = (own.begun(), others.begun());
        assert_eq!(named(reports.next(ms(10), &own)), Some(2));
        reports.sent(Ticket(5));
        assert_eq!(
            (reports.due(&own), reports.ended(Ticket(4), true), reports.ended(Ticket(5), true)),
            (None, false, true)
        );
        assert_eq!(reports.due(&own), Some(ms(1_010)));
        drop(one);
        assert_eq!(named(reports.next(ms(1_009), &own)), None);
        assert_eq!(named(reports.next(ms(1_010), &own)), Some(1));
        drop(two);
        assert_eq!(named(reports.next(ms(2_010), &own)), Some(0));
        assert_eq!((reports.due(&own), reports.next(ms(9_000), &own)), (None, None));
    }
}
