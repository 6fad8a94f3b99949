//! What nodes did, each time with one promise broken, where the world itself has what a checker needs: here
//! that is taken from the run, or given.

use super::run::{Run, put_row};
use super::{Accepted, KnownBad, bad};
use crate::check::answers;
use crate::check::epochs::tests::{member, record};
use crate::check::history::{Action, Answer};
use crate::check::lineage::tests::{P, at, entry};
use crate::check::nodes::{self, At, DiskFaults};
use std::collections::BTreeSet;
use types::{Engine, Generation, Lsn, NodeId, Position, StoreId};

pub(super) const CASES: &[KnownBad] = &[
    bad("answers", "one that counts has it not", &[("I1", "has it received false")], || {
        put_with(&[1, 2], &[1, 2, 3])
    }),
    bad("answers", "too few count", &[("I1", "PR-21")], || put_with(&[1], &[1])),
    bad("answers", "not committed yet", &[("R12", "leaves at committed")], answered_early),
    bad("answers", "more copies than there are", &[("I14", "3 copies are named")], || copies_named(3)),
    bad("nodes", "called durable too early", &[("R10", "is said to be durable")], || said_durable(2)),
    bad("nodes", "a log that is not given", &[("R6", "it gives nothing behind")], || gives(false)),
    bad("nodes", "the state in place of the log", &[("R8", "is sent the state")], || sent_state(true)),
    bad("nodes", "a gap below the log", &[("I7", "the log begins behind")], || files_reach(at(1, 1))),
    bad("nodes", "damage out of nothing", &[("I12", "nothing was harmed")], || {
        damaged("a checksum is wrong", DiskFaults { no_room: true, unsteady: true, disk: false })
    }),
    bad("nodes", "two states out of nothing", &[("I12", "nothing was harmed")], || {
        damaged("F21: two states", DiskFaults { no_room: true, unsteady: false, disk: true })
    }),
    bad("nodes", "scrubbing finds something", &[("I12", "a scrubbing finds")], || scrubbed(Some(51))),
    bad("nodes", "an older generation", &[("PR-107", "listens to a controller")], || hears_of(6)),
    bad("nodes", "a node is in no record", &[("PR-107", "not in the new ones")], || names(&[1, 2])),
    bad("nodes", "a copy of a disk is let in", &[("PR-145", "is let in")], || clone_told(&[1, 2])),
    bad("nodes", "a copy of a disk is recorded", &[("PR-145", "is recorded on a copy")], || {
        with("PR-145", nodes::check_recorded(NodeId(1), true))
    }),
];

pub(super) const ACCEPTED: &[Accepted] = &[
    ("all have what is acknowledged", || put_with(&[1, 2, 3], &[1, 2, 3])),
    ("as many copies as there are", || copies_named(2)),
    ("durable as far as was proved", || said_durable(1)),
    ("a log that is given", || gives(true)),
    ("files that reach to the log", || files_reach(at(1, 2))),
    ("a call that finds no room", || {
        let reason = "there is no room for the engine's files";
        damaged(reason, DiskFaults { no_room: true, ..DiskFaults::default() })
    }),
    ("a scrubbing behind a fault", || scrubbed(Some(50))),
    ("a scrubbing in the middle of a fault", || scrubbed(None)),
    ("a newer generation", || hears_of(7)),
    ("all nodes are in the records", || names(&[1, 2, 3])),
    ("a copy of a disk that no node has", || clone_told(&[2])),
];

/// A run in which nothing else happens than that a checker says this.
fn with(id: &str, verdict: Result<(), String>) -> Run {
    let mut run = Run::of(&["a"]);
    run.checks.expect(id, run.now, verdict);
    run
}

fn replica() -> At {
    At(NodeId(1), P)
}

/// A write that these nodes log, and that is acknowledged where these count.
fn put_with(have: &[u32], count: &[u32]) -> Run {
    let mut run = Run::of(&["a"]);
    if count.len() < run.record.in_sync.len() {
        run.configured(record(2, 1, count));
    }
    run.asked("a", Action::Put(2), |run| {
        let next = entry(run.next_at(), run.log[0].crc(), "a", 2);
        run.state.execute(next.at(), &[put_row("a", 2)]);
        have.iter().for_each(|node| run.logs(*node, &next));
        let at = next.at();
        run.log.push(next);
        run.acknowledges(at);
        Answer::Done { at, copies: have.len() as u8 }
    });
    run
}

fn answered_early() -> Run {
    with("R12", answers::check_committed(P, Lsn(2), Lsn(1)))
}

/// An answer names so many copies of what two nodes have.
fn copies_named(named: u8) -> Run {
    with("I14", answers::check_copies((P, at(1, 1)), named, 2))
}

/// A replica calls what its log has durable up to this LSN.
fn said_durable(said: u64) -> Run {
    let mut run = Run::of(&["a"]);
    let proved = run.checks.storage.holds(NodeId(1), P).map_or(Lsn::ZERO, |proved| proved.lsn);
    let verdict = nodes::check_durable(replica(), Lsn(1), Lsn(said), proved);
    run.checks.expect("R10", run.now, verdict);
    run
}

/// Whose directory is lost has one more entry, and gives it or not.
fn gives(given: bool) -> Run {
    with("R6", nodes::check_gives(replica(), at(1, 2), at(1, 1), (true, given)))
}

fn sent_state(chose_log: bool) -> Run {
    with("R8", nodes::check_sends_state(replica(), member(2), chose_log))
}

/// A log begins behind the second entry, and the files have all up to this one.
fn files_reach(persisted: Position) -> Run {
    with("I7", nodes::check_reach(replica(), at(1, 2), persisted))
}

fn damaged(reason: &str, faults: DiskFaults) -> Run {
    with("I12", nodes::check_damage(replica(), reason, faults))
}

/// Something is found by a scrubbing that began 50 microseconds ago, at a node that has been sound for so
/// long.
fn scrubbed(sound_us: Option<u64>) -> Run {
    with("I12", nodes::check_scrubbed(replica(), &["a row".into()], sound_us, 50))
}

/// A node that knows the seventh generation hears from a controller of this one.
fn hears_of(generation: u64) -> Run {
    with("PR-107", nodes::check_listens(NodeId(1), Generation(7), Generation(generation)))
}

/// The new records name these of three nodes.
fn names(nodes: &[u32]) -> Run {
    let set = |all: &[u32]| all.iter().map(|node| NodeId(*node)).collect::<BTreeSet<_>>();
    with("PR-107", nodes::check_named(&set(&[1, 2, 3]), &set(nodes)))
}

/// A copy of the first node's disk is told of these nodes.
fn clone_told(nodes: &[u32]) -> Run {
    let of = |node: &u32| (NodeId(*node), StoreId(u64::from(*node)));
    let told: Vec<_> = nodes.iter().map(of).collect();
    with("PR-145", nodes::check_clone(of(&1), Some(&told), false))
}
