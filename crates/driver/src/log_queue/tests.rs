//! What is kept while the log is full, in which order it is written, and what need not be written any more:
//! as a table of steps.

use super::*;
use types::{Epoch, Position, Term};
use wire::Entry;
use wire::entry::{Header, Kind};

const P: PartitionId = PartitionId(64);
const Q: PartitionId = PartitionId(65);

fn entry(partition: PartitionId, lsn: u64) -> Record {
    let at = Position::new(Term(1), Lsn(lsn));
    Record::Entry(Entry::encode(Header::new(Kind::Noop, partition, at, 0), b"an entry"))
}

fn promise(partition: PartitionId) -> Record {
    Record::Promise { partition, epoch: Epoch(1) }
}

fn trim(partition: PartitionId, below: u64) -> Record {
    Record::Trim { partition, below: Lsn(below) }
}

fn nothing(_: PartitionId) -> Option<Lsn> {
    None
}

fn up_to(lsn: u64) -> impl Fn(PartitionId) -> Option<Lsn> {
    move |_| Some(Lsn(lsn))
}

fn none() -> BTreeSet<Ticket> {
    BTreeSet::new()
}

/// A submission, short: its ticket, whether it is tried again, its records.
fn said(submissions: &[Submission]) -> Vec<(Ticket, bool, Vec<Record>)> {
    submissions.iter().map(|one| (one.ticket, one.again, one.records.clone())).collect()
}

/// A queue whose first submission, these operations, was refused at the time 0.
fn refused(ops: &[Record]) -> LogQueue {
    let mut queue = LogQueue::default();
    ops.iter().for_each(|op| queue.push(op.clone(), nothing));
    assert_eq!(said(&queue.submit(Micros(0), nothing)), [(1, false, ops.to_vec())]);
    queue.settle(1, &BTreeSet::from([1]));
    assert!(queue.is_full() && queue.oldest_pending().is_none());
    queue
}

#[test]
fn a_turn_is_one_submission_and_logs_in_memory_are_not_written() {
    let mut queue = LogQueue::default();
    queue.keep_in_memory(Q);
    for lsn in 1..=3 {
        queue.push(entry(P, lsn), nothing);
    }
    queue.push(entry(Q, 1), nothing);
    assert_eq!(queue.oldest_pending(), None);
    let sent = queue.submit(Micros(5), nothing);
    assert_eq!(said(&sent), [(1, false, (1..=3).map(|lsn| entry(P, lsn)).collect())]);
    assert!(queue.submit(Micros(6), nothing).is_empty(), "nothing is written twice");
    assert_eq!(queue.oldest_pending(), Some(Micros(5)));
    assert!(queue.is_writing(P) && !queue.is_writing(Q) && !queue.is_full());
    queue.settle(1, &none());
    assert!(queue.oldest_pending().is_none() && !queue.is_writing(P));
    assert!(queue.memory(P).is_none() && queue.memory(Q).is_some() && queue.memory_bytes() > 0);
}

#[test]
fn f20_what_follows_a_refused_record_waits_and_others_do_not() {
    let mut queue = refused(&[entry(P, 1)]);
    queue.push(promise(P), nothing);
    queue.push(entry(Q, 1), nothing);
    assert_eq!(said(&queue.submit(Micros(1), nothing)), [(2, false, vec![entry(Q, 1)])]);
    // It is not tried again before it is known what became of the others.
    assert!(queue.submit(RETRY, nothing).is_empty());
    queue.settle(2, &none());
    let sent = queue.submit(RETRY, nothing);
    assert_eq!(said(&sent), [(3, true, vec![entry(P, 1), promise(P)])]);
    assert!(queue.is_full(), "whether there is room for it is not known yet");
    queue.settle(3, &none());
    assert!(!queue.is_full());
}

#[test]
fn f20_it_is_tried_again_now_and_then_and_not_in_every_turn() {
    let mut queue = refused(&[entry(P, 1)]);
    for ticket in 2..4 {
        let now = Micros(RETRY.0 * ticket);
        assert_eq!(said(&queue.submit(now, nothing)), [(ticket, true, vec![entry(P, 1)])]);
        queue.settle(ticket, &BTreeSet::from([ticket]));
        assert!(queue.submit(now + Micros(RETRY.0 - 1), nothing).is_empty());
    }
}

#[test]
fn f20_a_truncation_passes_what_waits_if_the_log_has_what_it_names() {
    let mut queue = refused(&[entry(P, 5)]);
    queue.push(trim(P, 5), up_to(4));
    assert_eq!(said(&queue.submit(Micros(1), nothing)), [(2, false, vec![trim(P, 5)])]);
    queue.settle(2, &none());
    // What is not durable yet, and what a truncation of the log's end may take away, is waited for.
    queue.push(trim(P, 6), up_to(4));
    queue.push(Record::Truncate { partition: P, to: Position::new(Term(1), Lsn(3)) }, nothing);
    queue.push(trim(P, 4), up_to(4));
    assert!(queue.submit(Micros(2), nothing).is_empty());
}

#[test]
fn f20_what_may_make_room_is_tried_before_all_that_needs_some() {
    let mut queue = refused(&[entry(P, 5), trim(P, 4), promise(Q), entry(Q, 1)]);
    let sent = queue.submit(RETRY, up_to(4));
    let expected = [
        (2, false, vec![trim(P, 4)]),
        (3, true, vec![entry(P, 5)]),
        (4, true, vec![promise(Q)]),
        (5, false, vec![entry(Q, 1)]),
    ];
    assert_eq!(said(&sent), expected);
    let waits: Vec<Record> = queue.unwritten(Q).cloned().collect();
    assert_eq!(waits, vec![promise(Q), entry(Q, 1)]);
}

#[test]
fn f20_a_partition_that_is_forgotten_needs_nothing_written() {
    let mut queue = refused(&[entry(P, 1), entry(Q, 1)]);
    queue.push(entry(P, 2), nothing);
    queue.forget(P);
    let forget = Record::Forget { partition: P };
    assert_eq!(said(&queue.submit(Micros(1), nothing)), [(2, false, vec![forget.clone()])]);
    queue.settle(2, &BTreeSet::from([2]));
    let sent = queue.submit(RETRY, nothing);
    assert_eq!(said(&sent), [(3, true, vec![forget]), (4, true, vec![entry(Q, 1)])]);
}

#[test]
fn a_node_that_ends_submits_all_but_what_finds_no_room() {
    let mut queue = LogQueue::default();
    queue.push(entry(P, 1), nothing);
    let (sent, whole) = queue.close(Micros(1), nothing);
    assert_eq!((said(&sent), whole), (vec![(1, false, vec![entry(P, 1)])], true));
    let mut queue = refused(&[entry(P, 1)]);
    queue.push(entry(Q, 1), nothing);
    let (sent, whole) = queue.close(Micros(1), nothing);
    assert_eq!((said(&sent), whole), (vec![(2, false, vec![entry(Q, 1)])], false));
}
