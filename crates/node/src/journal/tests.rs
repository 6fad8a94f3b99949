//! What is kept while the log is full, in which order it is written, and what need not be written any more.

use super::*;
use driver::log_queue::RETRY;
use mio::{Poll, Token};
use std::time::{Duration, Instant};
use types::{Epoch, Term};
use wal::{Options, RealFiles};
use wire::entry::{Header, Kind};

const P: PartitionId = PartitionId(64);
const Q: PartitionId = PartitionId(65);

struct Chain(PartitionId, Lsn, u32);

impl Chain {
    fn next(&mut self, bytes: usize) -> Entry {
        self.of(Kind::Noop, bytes)
    }

    fn of(&mut self, kind: Kind, bytes: usize) -> Entry {
        self.1 = self.1.next();
        let at = Position::new(Term(1), self.1);
        let entry = Entry::encode(Header::new(kind, self.0, at, self.2), &vec![7; bytes]);
        self.2 = entry.crc();
        entry
    }
}

fn journal(dir: &std::path::Path, options: Options) -> (Journal, Poll) {
    let (journal, poll, _) = watched_journal(dir, options);
    (journal, poll)
}

fn watched_journal(dir: &std::path::Path, options: Options) -> (Journal, Poll, Stopper) {
    let (mut journals, mut polls, stopper) = journals(dir, options, Executors::ONE);
    (journals.remove(0), polls.remove(0), stopper)
}

/// A journal for each executor, with the poll that it is woken at.
fn journals(
    dir: &std::path::Path,
    options: Options,
    executors: Executors,
) -> (Vec<Journal>, Vec<Poll>, Stopper) {
    let files = Arc::new(RealFiles::open(dir).expect("opens"));
    let (log, _) = Log::open(files, options).expect("opens");
    let polls: Vec<Poll> = (0..executors.threads()).map(|_| Poll::new().expect("a poll")).collect();
    let waker = |poll: &Poll| Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
    let wakers: Vec<Arc<Waker>> = polls.iter().map(waker).collect();
    let stopper = Stopper::new(wakers[0].clone());
    (Journal::start(log, &stopper, executors, &wakers, &Arc::default()), polls, stopper)
}

fn is_durable(journal: &Journal, partition: PartitionId, lsn: Lsn) -> bool {
    durable(&journal.reader)(partition) >= Some(lsn)
}

fn wait(journal: &mut Journal, poll: &mut Poll) -> Vec<(PartitionId, Durable<Position>)> {
    let mut events = mio::Events::with_capacity(4);
    poll.poll(&mut events, Some(std::time::Duration::from_secs(10))).expect("polls");
    assert!(!events.is_empty(), "nothing became durable in ten seconds");
    journal.synced().expect("the log works")
}

#[test]
fn a_turn_is_one_submission_and_memory_logs_never_become_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut journal, mut poll) = journal(dir.path(), Options::default());
    let (mut p, mut q) = (Chain(P, Lsn::ZERO, 0), Chain(Q, Lsn::ZERO, 0));
    journal.keep_in_memory(Q);
    for _ in 0..3 {
        journal.push(Record::Entry(p.next(10)));
        journal.push(Record::Entry(q.next(10)));
    }
    assert_eq!(journal.oldest_pending(), None);
    journal.submit(Micros(5));
    assert_eq!(journal.oldest_pending(), Some(Micros(5)));
    let tokens = wait(&mut journal, &mut poll);
    assert_eq!(tokens.iter().map(|(id, token)| (*id, token.get().lsn)).collect::<Vec<_>>(), [(P, Lsn(3))]);
    assert_eq!((journal.oldest_pending(), journal.stats().last_batch), (None, 3));
    assert_eq!(journal.read(Q, Lsn(2), 1 << 20).map(|entries| entries.len()), Ok(2));
    assert_eq!(journal.bytes_since(Q, Lsn(1)), 0);
    journal.shutdown(Micros(9), true).expect("closes");
}

#[test]
fn pr396_each_executor_is_told_what_became_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { segment_bytes: 1 << 20, max_bytes: 3 << 20, ..Options::default() };
    let executors = Executors::new(2).expect("so many can be");
    let (mut journals, mut polls, _stopper) = journals(dir.path(), options, executors);
    let one_of = |number: usize| (64..).map(PartitionId).find(|id| executors.of(*id) == number);
    let mut chains = [0, 1].map(|number| Chain(one_of(number).expect("there are many"), Lsn::ZERO, 0));
    for turn in 1..=3 {
        for (journal, chain) in journals.iter_mut().zip(&mut chains) {
            journal.push(Record::Entry(chain.next(10)));
            journal.submit(Micros(turn));
        }
    }
    for ((journal, poll), chain) in journals.iter_mut().zip(&mut polls).zip(&chains) {
        while !is_durable(journal, chain.0, chain.1) || journal.oldest_pending().is_some() {
            let tokens = wait(journal, poll);
            assert!(tokens.iter().all(|(id, _)| *id == chain.0), "{tokens:?}");
        }
    }
    let [first, second, _coordinators] = &mut journals[..] else { panic!("there are three") };
    // Nobody is woken for it, and it is settled all the same.
    second.push(Record::Promise { partition: chains[1].0, epoch: Epoch(1) });
    second.submit(Micros(9));
    let deadline = Instant::now() + Duration::from_secs(10);
    while second.oldest_pending().is_some() {
        second.synced().expect("the log works");
        assert!(Instant::now() < deadline, "a write that is done looks as if it were pending");
    }
    while !first.is_full() {
        first.push(Record::Entry(chains[0].next(100_000)));
        first.submit(Micros(10));
        wait(first, &mut polls[0]);
        assert!(chains[0].1 < Lsn(60), "three megabytes never end");
    }
    second.synced().expect("the log works");
    assert!(!second.queue.is_full(), "what the first one was refused is none of the second one's");
    assert!(!journals.remove(0).close(Micros(11)), "what waits for room is not in the log");
    drop(journals.remove(0));
    journals.remove(0).shutdown(Micros(11), true).expect("closes");
}

#[test]
fn f20_a_log_without_room_for_one_executor_is_full_for_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { segment_bytes: 1 << 20, max_bytes: 3 << 20, ..Options::default() };
    let executors = Executors::new(2).expect("so many can be");
    let (mut journals, mut polls, _stopper) = journals(dir.path(), options, executors);
    let own = (64..).map(PartitionId).find(|id| executors.of(*id) == 1).expect("there are many");
    let mut chain = Chain(own, Lsn::ZERO, 0);
    let [first, second, _coordinators] = &mut journals[..] else { panic!("there are three") };
    while !second.is_full() {
        assert!(!first.is_full(), "there is room");
        second.push(Record::Entry(chain.next(100_000)));
        second.submit(Micros(0));
        wait(second, &mut polls[1]);
        assert!(chain.1 < Lsn(60), "three megabytes never end");
    }
    assert!(first.is_full() && !first.queue.is_full(), "nothing of it waits, and it makes room all the same");
    second.forget(own);
    assert!(!first.is_full() && !second.is_full(), "nothing waits any more");
}

#[test]
fn pr422_a_log_is_not_full_for_the_others_because_of_an_executor_that_hangs() {
    let dir = tempfile::tempdir().expect("a directory");
    let executors = Executors::new(2).expect("so many can be");
    let (mut journals, _polls, _stopper) = journals(dir.path(), Options::default(), executors);
    let [first, second, _coordinators] = &mut journals[..] else { panic!("there are three") };
    second.full.say(second.bit, true);
    assert!(first.is_full() && !second.is_full());
    first.note_hung([0, 2].into_iter());
    assert!(first.is_full(), "who has said so goes on");
    first.note_hung([1].into_iter());
    assert!(!first.is_full(), "there may be room by now, and who has said so does not look");
    first.note_hung([].into_iter());
    assert!(first.is_full(), "it goes on, and still waits for room");
}

#[test]
fn what_others_have_synced_does_not_pile_up_for_an_executor_that_hangs() {
    let dir = tempfile::tempdir().expect("a directory");
    let executors = Executors::new(2).expect("so many can be");
    let (mut journals, mut polls, _stopper) = journals(dir.path(), Options::default(), executors);
    let own = (64..).map(PartitionId).find(|id| executors.of(*id) == 0).expect("there are many");
    let mut chain = Chain(own, Lsn::ZERO, 0);
    let [first, second, _coordinators] = &mut journals[..] else { panic!("there are three") };
    for turn in 1..=20 {
        first.push(Record::Entry(chain.next(10)));
        first.submit(Micros(turn));
        while first.oldest_pending().is_some() {
            wait(first, &mut polls[0]);
        }
    }
    assert_eq!(second.done.take().len(), 1);
}

#[test]
fn the_logs_thread_does_not_end_unnoticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut journal, mut poll, stopper) = watched_journal(dir.path(), Options::default());
    // An entry out of order is a bug, and a panic of the thread.
    journal.push(Record::Entry(Chain(P, Lsn(7), 0).next(10)));
    journal.submit(Micros(1));
    let mut events = mio::Events::with_capacity(4);
    while stopper.broken().is_none() {
        poll.poll(&mut events, Some(std::time::Duration::from_secs(10))).expect("polls");
        assert!(!events.is_empty(), "nobody was told in ten seconds");
    }
    let why = stopper.broken().expect("just seen");
    assert!(why.contains("'log'"), "{why}");
    std::mem::forget(journal.writer);
}

/// A log of three megabytes that `chain` has filled; a promise of the other partition stands between its
/// entries.
fn full_journal(dir: &std::path::Path, chain: &mut Chain) -> (Journal, Poll) {
    let options = Options { segment_bytes: 1 << 20, max_bytes: 3 << 20, ..Options::default() };
    let (mut journal, mut poll) = journal(dir, options);
    while !journal.is_full() {
        journal.push(Record::Entry(chain.next(100_000)));
        journal.push(Record::Promise { partition: Q, epoch: Epoch(1) });
        journal.submit(Micros(0));
        wait(&mut journal, &mut poll);
        assert!(chain.1 < Lsn(40), "three megabytes never end");
    }
    (journal, poll)
}

#[test]
fn f20_what_finds_no_room_is_kept_in_order_until_it_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut p = Chain(P, Lsn::ZERO, 0);
    let (mut journal, mut poll) = full_journal(dir.path(), &mut p);
    let mut now = Micros(0);
    let refused = p.1;
    journal.push(Record::Entry(p.next(100_000)));
    // The truncation that makes room does not wait behind what finds none.
    let last = journal.reader.end(P).expect("known").0;
    journal.push(Record::Trim { partition: P, below: last.lsn.next() });
    let mut durable = Lsn::ZERO;
    while journal.is_full() || durable < p.1 {
        now = now + RETRY;
        journal.submit(now);
        for (id, token) in wait(&mut journal, &mut poll) {
            if id == P {
                durable = token.get().lsn;
            }
        }
        assert!(now < Micros::from_millis(60_000), "it never went on: {durable} of {}", p.1);
    }
    assert_eq!(journal.reader.end(P).map(|(end, _)| end.lsn), Some(refused.next()));
}

#[test]
fn f20_a_term_begins_on_a_full_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut p, mut q) = (Chain(P, Lsn::ZERO, 0), Chain(Q, Lsn::ZERO, 0));
    let (mut journal, mut poll) = full_journal(dir.path(), &mut p);
    let mut now = Micros(0);
    // Beside others' entries in the same turn, and with some of its own behind it.
    journal.push(Record::Entry(q.of(Kind::Configuration, 50)));
    let marker = q.1;
    journal.push(Record::Entry(q.next(100_000)));
    journal.push(Record::Entry(p.next(100_000)));
    journal.submit(now);
    while !is_durable(&journal, Q, marker) {
        now = now + RETRY;
        journal.submit(now);
        wait(&mut journal, &mut poll);
        assert!(now < Micros::from_millis(60_000), "it is never written: {:?}", journal.reader.end(Q));
    }
    assert!(journal.is_full() && !is_durable(&journal, Q, q.1), "what it makes no room for is not let in");
}

#[test]
fn f20_a_partition_that_is_forgotten_gives_its_room_to_what_waits() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut p, mut q) = (Chain(P, Lsn::ZERO, 0), Chain(Q, Lsn::ZERO, 0));
    let (mut journal, mut poll) = full_journal(dir.path(), &mut p);
    let mut now = Micros(0);
    // Its own next entry waits, too, and what was forgotten is not written behind the end of it.
    journal.push(Record::Entry(p.next(100_000)));
    journal.push(Record::Entry(q.next(100_000)));
    journal.submit(now);
    journal.forget(P);
    while journal.is_full() || !is_durable(&journal, Q, q.1) || journal.is_writing(P) {
        now = now + RETRY;
        journal.submit(now);
        wait(&mut journal, &mut poll);
        assert!(now < Micros::from_millis(60_000), "it never went on: {:?}", journal.reader.end(Q));
    }
    assert_eq!(journal.reader.end(P), None);
}

#[test]
fn f20_a_partition_is_forgotten_whatever_of_it_was_to_be_written_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut p, mut q) = (Chain(P, Lsn::ZERO, 0), Chain(Q, Lsn::ZERO, 0));
    let options = Options { segment_bytes: 1 << 20, max_bytes: 3 << 20, ..Options::default() };
    let (mut journal, mut poll) = journal(dir.path(), options);
    journal.push(Record::Entry(p.next(100)));
    while !journal.is_full() {
        journal.push(Record::Entry(q.next(100_000)));
        journal.submit(Micros(0));
        wait(&mut journal, &mut poll);
    }
    // Its next entry is of the same turn, and would find no room.
    journal.push(Record::Entry(p.next(200_000)));
    journal.forget(P);
    let mut now = Micros(0);
    while journal.is_writing(P) || journal.reader.end(P).is_some() {
        now = now + RETRY;
        journal.submit(now);
        wait(&mut journal, &mut poll);
        assert!(now < Micros::from_millis(60_000), "it is never forgotten: {:?}", journal.reader.end(P));
    }
    assert!(journal.is_full(), "there was room for what waits");
}

#[test]
fn f20_a_log_that_begins_again_gives_its_room_to_what_waits() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut p, mut q) = (Chain(P, Lsn::ZERO, 0), Chain(Q, Lsn::ZERO, 0));
    let (mut journal, mut poll) = full_journal(dir.path(), &mut p);
    let mut now = Micros(0);
    journal.push(Record::Entry(q.next(100_000)));
    // Twice it is given a copy, each time with more above it than there is room for.
    let note = |value: u8| Record::Custom {
        partition: P,
        key: replica::Note::Secured as u16,
        value: bytes::Bytes::from(vec![value]),
    };
    for begins in [1_000, 2_000] {
        p = Chain(P, Lsn(begins), 7);
        journal.push(Record::Base { partition: P, at: Position::new(Term(1), Lsn(begins)), crc: 7 });
        journal.push(note(begins.to_le_bytes()[0]));
        (0..10).for_each(|_| journal.push(Record::Entry(p.next(100_000))));
    }
    while journal.is_full() || !is_durable(&journal, Q, q.1) || !is_durable(&journal, P, p.1) {
        now = now + RETRY;
        journal.submit(now);
        wait(&mut journal, &mut poll);
        assert!(now < Micros::from_millis(60_000), "it never went on: {:?}", journal.reader.end(P));
    }
    assert_eq!(journal.reader.base(P).map(|(at, _)| at.lsn), Some(Lsn(2_000)));
    assert_eq!(journal.reader.end(P).map(|(at, _)| at.lsn), Some(Lsn(2_010)));
}

/// Bursts of several times what the log takes, and truncations that come in one turn with entries without
/// room.
#[test]
fn f20_a_burst_is_written_in_order_as_truncations_make_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { segment_bytes: 1 << 20, max_bytes: 3 << 20, ..Options::default() };
    let (mut journal, mut poll) = journal(dir.path(), options);
    let mut chains = [Chain(P, Lsn::ZERO, 0), Chain(Q, Lsn::ZERO, 0)];
    let mut now = Micros(0);
    for _ in 0..15 {
        for chain in &mut chains {
            journal.push(Record::Entry(chain.next(200_000)));
            journal.push(Record::Entry(chain.next(100)));
        }
        journal.submit(now);
    }
    let mut more = 5;
    while journal.is_full() || chains.iter().any(|chain| !is_durable(&journal, chain.0, chain.1)) {
        now = now + RETRY;
        journal.submit(now);
        for (partition, token) in wait(&mut journal, &mut poll) {
            journal.push(Record::Trim { partition, below: token.get().lsn.next() });
        }
        if more > 0 {
            more -= 1;
            journal.push(Record::Entry(chains[0].next(200_000)));
        }
        assert!(now < Micros::from_millis(60_000), "{:?} of {:?}", journal.reader.end(P), chains[0].1);
    }
    for chain in chains {
        assert_eq!(journal.reader.end(chain.0).map(|(end, crc)| (end.lsn, crc)), Some((chain.1, chain.2)));
    }
}
