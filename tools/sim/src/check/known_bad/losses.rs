//! Failovers after which something is missing, or is said to be, each time with one promise broken.

use super::run::{NODES, Run, available, found, put_row};
use super::{Accepted, KnownBad, bad};
use crate::check::aside;
use crate::check::backups::Backup;
use crate::check::cluster_snapshots::CompleteSnapshot;
use crate::check::epochs::tests::{member, record};
use crate::check::history::{Action, Answer, Batch, RowChange};
use crate::check::lineage::tests::{P, at, entry};
use crate::check::report::tests::failover;
use types::config::Cause;
use types::{Epoch, FailoverRecord, Lsn, NodeId, PartitionRecord, Term};
use wire::{Entry, Op};

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
    bad("survival", "lost behind who was forced", &[("I1", "has forgotten nothing")], || forced_and_lost(1)),
    bad("agree", "two commits behind a loss", &[("I3", "committed (2,4)")], two_commits_behind),
    bad("effects", "a row of a log that lost", &[("I4", "a row that never was")], || {
        refused_behind(Action::Insert(9), "a", Answer::Exists(Lsn(2)))
    }),
    bad("effects", "a row of no log", &[("I4", "a row that never was")], || {
        refused_before("b", Answer::Exists(Lsn(2)))
    }),
    bad("batches", "refused by a log that lost", &[("I9", "should come to")], || {
        refused_behind(insert_of("a"), "", Answer::Exists(Lsn(3)))
    }),
    bad("registers", "a replaced value that is lost since", &[("R5", "is not linearizable")], || {
        read_before_a_loss(1)
    }),
    bad("staleness", "an old state behind a loss", &[("I5", "is shown to who wants")], || shown_behind(1)),
    bad("cluster_snapshots", "a write behind a loss", &[("PR-80", "does not have")], || snapshot_behind(3)),
    bad("cluster_snapshots", "one that is lost since", &[("PR-80", "does not have")], snapshot_before),
    bad("backups", "never committed behind a loss", &[("PR-330", "never committed")], backup_behind),
];

pub(super) const ACCEPTED: &[Accepted] = &[
    ("a loss with all disks, as it is reported", || lost_with_all_disks(failover(true, 1, 1))),
    ("a loss with one that was alone, set aside and reported", || lost_with_one(true, true)),
    ("a report of a failover that lost nothing", || reported_without_loss(2)),
    ("an operator's choice that kept everything", || forced_and_lost(2)),
    ("a refusal by a row that is lost since", || refused_before("a", Answer::Exists(Lsn(2)))),
    ("a batch that is refused behind a loss", || refused_behind(insert_of("b"), "", Answer::Exists(Lsn(3)))),
    ("a read of what is lost since", || read_before_a_loss(3)),
    ("a state behind a loss", || shown_behind(3)),
    ("a point behind a loss", || snapshot_behind(4)),
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
    run.configured(available(record(2, 1, &[1])));
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

/// A loss with all disks of the write that came second, of three: the first one, to `b`, is kept.
fn with_a_loss() -> Run {
    lost_behind(Run::of(&["b", "a"]))
}

/// All disks are lost, and of what was written the first entry is left.
fn lost_behind(mut run: Run) -> Run {
    for node in NODES {
        run.checks.survival.faulted(run.now, NodeId(node));
    }
    run.fails_over(of_two(true), 1);
    run.failovers.push(failover(true, 1, 1));
    run
}

/// An operator has another lead, which has all that was acknowledged; the next failover keeps so many
/// entries, although nobody has forgotten anything.
fn forced_and_lost(kept: usize) -> Run {
    let mut run = Run::new();
    run.asked("a", Action::Put(1), |run| {
        let at = run.changes(&[put_row("a", 1)]);
        run.acknowledges(at);
        Answer::Unknown
    });
    let second = run.changes(&[put_row("a", 2)]);
    run.checks.survival.acknowledged(run.now, second, &run.record);
    run.now += 10;
    run.checks.survival.forced(run.now, P, Term(2));
    let (cause, lossy) = (Cause::Forced, true);
    run.fails_over(PartitionRecord { cause, lossy, ..record(2, 2, &[2, 3]) }, 2);
    run.fails_over(PartitionRecord { lossy, ..record(3, 3, &[2, 3]) }, kept);
    run
}

/// Behind a loss two commits of different terms have one LSN.
fn two_commits_behind() -> Run {
    let mut run = with_a_loss();
    run.put("a", 3);
    let alone = entry(at(2, 4), run.log[2].crc(), "a", 9);
    run.logs(2, &alone);
    run.commits(member(2), &alone);
    run.fails_over(record(3, 3, &[3]), 3);
    run
}

fn insert_of(key: &str) -> Action {
    let ops = vec![(RowChange::Insert, key.to_string())];
    Action::Batch(Box::new(Batch { value: 9, ops, since: None, mark: None }))
}

/// What is done only if nothing is there is refused behind a loss.
fn refused_behind(action: Action, key: &str, told: Answer) -> Run {
    let mut run = with_a_loss();
    run.put("c", 3);
    run.asked(key, action, |run| {
        run.primary_answers(Op::write(Vec::new()));
        told
    });
    run
}

/// An insert is refused before a loss.
fn refused_before(key: &str, told: Answer) -> Run {
    let mut run = Run::of(&["c", "a"]);
    run.asked(key, Action::Insert(9), |run| {
        run.primary_answers(Op::write(Vec::new()));
        told
    });
    lost_behind(run)
}

/// 1, 2 and 3 are put to a register; then 2 or 3 is read as what was there a moment ago, before both are
/// lost.
fn read_before_a_loss(value: u64) -> Run {
    let mut run = Run::of(&["r0", "r0", "r0"]);
    let lsn = if value == 3 { 3 } else { 2 };
    run.reads("r0", Action::Get(false), found(lsn, lsn, lsn));
    let mut run = lost_behind(run);
    run.failovers.clear();
    run.failovers.push(failover(true, 1, 1));
    run
}

/// Behind a loss a replica shows this state to who wants to see all.
fn shown_behind(lsn: u64) -> Run {
    let mut run = with_a_loss();
    run.put("b", 3);
    run.now += 10_000;
    let (value, of) = if lsn == 3 { (3, 3) } else { (1, 1) };
    run.reads_any("b", (of, value), lsn);
    run
}

/// A point over all partitions, which was asked for when two writes behind a loss were acknowledged.
fn snapshot_behind(lsn: u64) -> Run {
    let mut run = with_a_loss();
    run.put("a", 3);
    run.put("a", 4);
    run.snapshots.push(CompleteSnapshot { began: run.now, at: [(P, at(2, lsn))].into() });
    run
}

/// One that was asked for before a loss, and lacks what was acknowledged then and is lost since.
fn snapshot_before() -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.snapshots.push(CompleteSnapshot { began: run.now, at: [(P, at(1, 1))].into() });
    lost_behind(run)
}

/// A backup behind a loss names an entry that was given up without ever being committed.
fn backup_behind() -> Run {
    let mut run = with_a_loss();
    let alone = entry(at(2, 3), run.log[1].crc(), "a", 9);
    run.logs(2, &alone);
    let rows = [("a", 3, 9), ("b", 1, 1)].map(|(key, lsn, value)| (key.to_string(), Lsn(lsn), value));
    let named = Backup::new(run.now, [(P, at(2, 3))].into());
    run.backups.push(Backup { rows: [(P, rows.to_vec())].into(), ..named });
    run.fails_over(record(3, 3, &[3]), 2);
    run
}

/// A failover after which all is there. Its report says up to where.
fn reported_without_loss(kept: u64) -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.fails_over(of_two(false), 2);
    run.failovers.push(failover(false, 1, kept));
    run
}
