//! Failovers after which something is missing, or is said to be, each time with one promise broken.

use super::run::{NODES, Run, put_row};
use super::{Accepted, KnownBad, bad};
use crate::check::aside;
use crate::check::epochs::tests::record;
use crate::check::history::{Action, Answer};
use crate::check::lineage::tests::{P, at, entry};
use crate::check::report::tests::failover;
use types::config::Cause;
use types::{Epoch, FailoverRecord, NodeId, PartitionRecord, Term};
use wire::Entry;

pub(super) const CASES: &[KnownBad] = &[
    bad("survival", "lost, and nobody forgot it", &[("I1", "has forgotten nothing")], || given_up(true)),
    // Nobody has said that commits may differ, so that they do is wrong as well.
    bad(
        "survival",
        "lost without a word",
        &[("I1", "which names no loss"), ("I3", "committed (1,2)")],
        || given_up(false),
    ),
    // What its client was told is not there, either.
    bad(
        "survival",
        "lost, and its client was told that it is done",
        &[("I1", "has forgotten nothing"), ("I9", "has no effect there"), ("I9", "without an effect")],
        told_and_given_up,
    ),
    bad("aside", "given up, in no tail", &[("R9", "is given up and not set aside")], dropped),
    bad("aside", "lost with who was alone", &[("R9", "is in no tail")], || lost_with_one(false, true)),
    bad("aside", "a tail of other entries", &[("I14", "reported as it is not")], a_wrong_tail),
    bad("report", "no report names a tail", &[("R9", "no failover's report")], || lost_with_one(true, false)),
    bad("report", "a loss is denied", &[("I14", "no failover's report says so")], || {
        lost_with_all_disks(failover(false, 1, 1))
    }),
    bad("report", "a loss that is none", &[("I14", "says that")], || reported_without_loss(1)),
];

pub(super) const ACCEPTED: &[Accepted] = &[
    ("a loss with all disks, as it is reported", || lost_with_all_disks(failover(true, 1, 1))),
    ("a loss with one that was alone, set aside and reported", || lost_with_one(true, true)),
    ("a report of a failover that lost nothing", || reported_without_loss(2)),
];

/// The second configuration, whose term does not have all that was there before.
fn of_two(lossy: bool) -> PartitionRecord {
    PartitionRecord { lossy, ..record(2, 2, &[2, 3]) }
}

/// What all three have acknowledged and still have is given up. Its client never heard of it.
fn given_up(lossy: bool) -> Run {
    let mut run = Run::of(&["a"]);
    run.asked("a", Action::Put(2), |run| {
        let at = run.changes(&[put_row("a", 2)]);
        run.acknowledges(at);
        Answer::Unknown
    });
    run.fails_over(of_two(lossy), 1);
    run
}

fn told_and_given_up() -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.fails_over(of_two(true), 1);
    run
}

/// An entry that the first node alone has durable, and nobody acknowledged.
fn logged_by_one(run: &mut Run) -> Entry {
    let alone = entry(at(1, 2), run.log[0].crc(), "a", 9);
    run.logs(1, &alone);
    alone
}

fn dropped() -> Run {
    let mut run = Run::of(&["a"]);
    logged_by_one(&mut run);
    run.fails_over(of_two(false), 1);
    run.gives_up(1, at(1, 1));
    run
}

fn a_wrong_tail() -> Run {
    let mut run = Run::of(&["a"]);
    let alone = logged_by_one(&mut run);
    run.fails_over(of_two(false), 1);
    run.checks.set_aside(run.now, &aside::tests::report(2, 3, None), &[alone], &[]);
    run
}

/// What the first node acknowledged alone is lost, as an operator wanted who had another one lead. When it
/// comes back that is set aside, or not; and the failover's report names the tail, or not.
fn lost_with_one(set_aside: bool, named: bool) -> Run {
    let mut run = Run::of(&["a"]);
    run.configured(record(2, 1, &[1]));
    run.put("a", 2);
    let tail = run.log[1].clone();
    run.checks.survival.forced(run.now, P, Term(3));
    let (cause, lossy) = (Cause::Forced, true);
    run.fails_over(PartitionRecord { cause, lossy, ..record(3, 3, &[2]) }, 1);
    let report = aside::tests::report(2, 2, None);
    if set_aside {
        run.checks.set_aside(run.now, &report, &[tail], &[]);
    }
    let (old_epoch, new_epoch) = (Epoch(2), Epoch(3));
    let mut reported = FailoverRecord { cause, old_epoch, new_epoch, ..failover(true, 1, 1) };
    if named {
        reported.loss.tails.push(report);
    }
    run.failovers.push(reported);
    run.returned.push(1);
    run
}

/// Something is lost with the disks of all who had it, as the record says; and this is reported of it.
fn lost_with_all_disks(reported: FailoverRecord) -> Run {
    let mut run = Run::of(&["a", "a"]);
    for node in NODES {
        run.checks.survival.faulted(run.now, NodeId(node));
    }
    run.fails_over(of_two(true), 1);
    run.failovers.push(reported);
    run
}

/// A failover after which all is there. Its report says up to where.
fn reported_without_loss(kept: u64) -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.fails_over(of_two(false), 2);
    run.failovers.push(failover(false, 1, kept));
    run
}
