//! What nodes and controllers did, each time with one promise broken.

use super::run::{NODES, Run, found, get, payload, put_row};
use super::{Accepted, KnownBad, bad};
use crate::check::availability::{BLOCKED_US, CLOSED_US, FAILOVER_US, Look, REACHED_US};
use crate::check::ends::Last;
use crate::check::epochs::tests::{member, record};
use crate::check::history::{Action, Answer};
use crate::check::lineage::tests::{P, at, entry};
use crate::check::loads::OWN_ROWS;
use crate::check::storage::Start;
use crate::rows;
use bytes::Bytes;
use types::config::{Cause, PreviousTerm};
use types::index::{Definition, IndexState};
use types::{
    Epoch, Indexes, KeySpace, LoadId, Lsn, Member, Mutation, NodeId, PartitionRecord, StoreId, Term,
};
use wire::bulk::LoadMark;
use wire::{Effects, Kind, ReadLevel};

pub(super) const CASES: &[KnownBad] = &[
    bad("lineage", "two contents at one position", &[("I3", "has checksum")], two_contents),
    bad("lineage", "an entry behind nothing", &[("I3", "that was never made")], an_entry_behind_nothing),
    bad("agree", "two commits at one LSN", &[("I3", "committed (1,2)")], two_commits),
    bad("agree", "two states at one position", &[("I6", "has digest")], two_states),
    bad("epochs", "an epoch is left out", &[("I10", "was written over")], an_epoch_left_out),
    bad("epochs", "a seal that nobody asked for", &[("I10", "no backup misses")], a_seal_without_reason),
    bad("epochs", "a record that is not written", &[("I10", "was never written")], a_record_of_nobody),
    bad("epochs", "a rebuild without a member", &[("I10", "counts others than")], a_rebuild_without_one),
    bad("serving", "two primaries in one term", &[("I2", "answered in the term of")], two_primaries),
    bad("serving", "a read in a term that is over", &[("I2", "answered after")], a_read_in_an_old_term),
    bad("availability", "nobody serves", &[("I13", "has not been served")], closed_for_long),
    bad("availability", "a slow failover", &[("I13", "no other serves")], a_slow_failover),
    bad("availability", "no copy is given", &[("I13", "waits for one")], blocked_for_long),
    bad("availability", "a copy does not count", &[("I13", "that its log reaches")], reached_for_long),
    bad("storage", "a durable entry is gone", &[("I12", "was durable")], a_start_without_an_entry),
    bad("storage", "a durable file is gone", &[("I12", "files held")], a_start_without_a_file),
    bad("requests", "two answers", &[("R12", "answered twice")], two_answers),
    bad("staleness", "an old state", &[("I5", "is shown to who wants")], an_old_state),
    bad("removed", "a member is removed", &[("I16", "is a member of")], a_member_is_removed),
    bad("removed", "it is let in again", &[("I16", "let in again")], let_in_again),
    bad("indexes", "a row is not in the index", &[("I15", "lacks the row")], || indexed(false, false)),
    bad("indexes", "an entry is left", &[("I15", "which no row has")], || indexed(true, true)),
    bad("loads", "a part of a load", &[("PR-39", "a part of a load")], || loaded(OWN_ROWS - 1)),
    bad("ends", "who was dead had it not", &[("I1", "did not have it")], || put_while_one_ends(false)),
];

pub(super) const ACCEPTED: &[Accepted] = &[
    ("a failover without a loss", failed_over),
    ("a ready index", || indexed(true, false)),
    ("a load", || loaded(OWN_ROWS)),
    ("who was dead had it before", || put_while_one_ends(true)),
];

fn failed_over() -> Run {
    let mut run = Run::of(&["r0", "r0"]);
    run.reads_any("r0", (2, 2), 2);
    run.fails_over(record(2, 2, &[2, 3]), 2);
    run.put("r0", 3);
    run.now += 10_000;
    run.reads_any("r0", (4, 3), 4);
    run
}

fn two_contents() -> Run {
    let mut run = Run::of(&["a", "a"]);
    let other = entry(at(1, 2), run.log[0].crc(), "a", 9);
    run.logs(3, &other);
    run
}

fn an_entry_behind_nothing() -> Run {
    let mut run = Run::of(&["a", "a"]);
    let torn = entry(at(1, 3), run.log[1].crc() ^ 1, "a", 9);
    run.logs(3, &torn);
    run
}

fn two_commits() -> Run {
    let mut run = Run::of(&["a"]);
    let alone = entry(at(1, 2), run.log[0].crc(), "a", 9);
    run.logs(1, &alone);
    run.commits(member(1), &alone);
    run.fails_over(record(2, 2, &[2, 3]), 1);
    run.put("a", 3);
    run
}

fn two_states() -> Run {
    let mut run = Run::of(&["a", "a"]);
    let (tip, digest) = (run.tip(), run.digest());
    run.has_state(member(3), tip, !digest);
    run
}

fn an_epoch_left_out() -> Run {
    let mut run = Run::of(&["a"]);
    run.configured(record(3, 1, &NODES));
    run
}

fn a_seal_without_reason() -> Run {
    let mut run = Run::of(&["a"]);
    run.fails_over(PartitionRecord { cause: Cause::Suspected, ..record(2, 2, &[2, 3]) }, 1);
    run
}

fn a_record_of_nobody() -> Run {
    let mut run = Run::of(&["a"]);
    run.acts_in(member(2), &record(2, 1, &[1, 2]));
    run
}

fn a_rebuild_without_one() -> Run {
    let mut run = Run::of(&["a"]);
    let before = PreviousTerm {
        epoch: Epoch(1),
        term: Term(1),
        primary: member(1),
        handed_over: false,
        in_sync: NODES.map(member).to_vec(),
    };
    let (cause, before) = (Cause::Rebuilt, Some(before));
    run.configured(PartitionRecord { cause, before, ..record(1 << 32, 1 << 32, &[1, 2]) });
    run
}

/// A client reads what the first write has put. This member answers, in the first term.
fn answered_by(run: &mut Run, member: Member) {
    run.asked("a", Action::Get(false), |run| {
        let request = run.asks(ReadLevel::Primary, get());
        run.answers(member, Term(1), request);
        found(1, 1, 1)
    });
}

fn two_primaries() -> Run {
    let mut run = Run::of(&["a"]);
    answered_by(&mut run, member(2));
    run
}

fn a_read_in_an_old_term() -> Run {
    let mut run = Run::of(&["a"]);
    run.fails_over(record(2, 2, &[2, 3]), 1);
    run.put("a", 2);
    answered_by(&mut run, member(1));
    run
}

fn closed_for_long() -> Run {
    let mut run = Run::of(&["a"]);
    for wait in [0, CLOSED_US + 1] {
        run.now += wait;
        let look = Look { closed: true, hit: 0, waits: false, serves: false };
        let verdict = run.checks.availability.look(P, run.now, look);
        run.checks.expect("I13", run.now, verdict);
    }
    run
}

fn a_slow_failover() -> Run {
    let mut run = Run::of(&["a"]);
    run.checks.availability.takes(P, run.now, Term(1));
    run.now += FAILOVER_US + 1;
    let verdict = run.checks.availability.waits(P, run.now);
    run.checks.expect("I13", run.now, verdict);
    run
}

fn blocked_for_long() -> Run {
    let mut run = Run::of(&["a"]);
    for wait in [0, BLOCKED_US + 1] {
        run.now += wait;
        let verdict = run.checks.availability.look_blocked(P, run.now, true, 0);
        run.checks.expect("I13", run.now, verdict);
    }
    run
}

fn reached_for_long() -> Run {
    let mut run = Run::of(&["a"]);
    for wait in [0, REACHED_US + 1] {
        run.now += wait;
        let verdict = run.checks.availability.look_reached(P, run.now, true, 0);
        run.checks.expect("I13", run.now, verdict);
    }
    run
}

fn a_start_without_an_entry() -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.ends(3, Last { end: at(1, 2), applied: Lsn(2) });
    let start = Start { end: Lsn(1), damaged: false, torn: false, faulted: false };
    let verdict = run.checks.storage.starts(NodeId(3), P, start);
    run.checks.expect("I12", run.now, verdict);
    run
}

fn a_start_without_a_file() -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.checks.storage.says_persisted(NodeId(3), P, Lsn(2));
    run.ends(3, Last { end: at(1, 2), applied: Lsn(2) });
    let verdict = run.checks.storage.opens(NodeId(3), P, Lsn(1), false);
    run.checks.expect("I12", run.now, verdict);
    run
}

fn two_answers() -> Run {
    let mut run = Run::of(&["a"]);
    let request = run.asks(ReadLevel::Primary, get());
    for _ in 0..2 {
        run.answers(member(1), Term(1), request);
    }
    run
}

fn an_old_state() -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.now += 10_000;
    run.reads_any("a", (1, 1), 1);
    run
}

/// A node's record is removed.
fn removes(run: &mut Run, node: u32) {
    let (node, store) = (NodeId(node), StoreId(u64::from(node)));
    let verdict = run.checks.removed.leaves(node, store, run.checks.epochs.records());
    run.checks.expect("I16", run.now, verdict);
}

fn a_member_is_removed() -> Run {
    let mut run = Run::of(&["a"]);
    removes(&mut run, 3);
    run
}

fn let_in_again() -> Run {
    let mut run = Run::of(&["a"]);
    removes(&mut run, 4);
    let verdict = run.checks.removed.is_written(NodeId(4), StoreId(4));
    run.checks.expect("I16", run.now, verdict);
    run
}

/// An index of hues that is ready; and a row, which has its entry there or not, and may be gone again while
/// that stays.
fn indexed(has_entry: bool, is_gone: bool) -> Run {
    let mut indexes = Indexes::default();
    indexes.add(&rows::schema(), "hue", &["hue".into()]).expect("valid");
    let index = Definition::begin(indexes.wanted[0].clone(), rows::schema()).turned(IndexState::Ready);
    let (key, row) = (rows::key("k1", true), rows::row("k1", 7, true));
    let entry = Mutation { key: index.entry(&key, &row).expect("indexable"), value: Some(Bytes::new()) };
    let stored = |value: Option<Bytes>| Mutation { key: KeySpace::Bare.row_key(&key), value };
    let mut run = Run::new();
    let (header, defined) = (run.header(Kind::Schema), [index.mutation()]);
    run.makes(header, &payload(&defined), &defined);
    let mut changes = vec![stored(Some(row))];
    changes.extend(has_entry.then_some(entry));
    run.writes("k1", Action::Put(7), &changes);
    if is_gone {
        run.asked("k1", Action::Delete, |run| {
            run.changes(&[stored(None)]);
            Answer::Unknown
        });
    }
    run
}

/// A load, so many rows of which are there.
fn loaded(there: usize) -> Run {
    let mut run = Run::new();
    let (load, value) = (LoadId::from_random(9), 7);
    let names: Vec<String> = (0..OWN_ROWS).map(|row| format!("l{row}")).collect();
    let rows = names.iter().map(|name| (name.clone(), Some(value))).collect();
    run.checks.lineage.will_load(load, rows);
    let effects = Effects { request_hash: 0, confirmed: 0, outcome: 0, affected: 4, mutations: Vec::new() };
    let mark = LoadMark { load, digest: [0; 16], effects };
    let rows: Vec<Mutation> = names.iter().take(there).map(|name| put_row(name, value)).collect();
    let header = run.header(Kind::Bulk);
    let at = run.makes(header, &mark.encode(), &rows);
    run.acknowledges(at);
    run
}

/// A write is acknowledged by a set one member of which has ended: before it had the entry, or after.
fn put_while_one_ends(has_it: bool) -> Run {
    let mut run = Run::of(&["a"]);
    run.asked("a", Action::Put(2), |run| {
        if !has_it {
            run.ends(3, Last { end: at(1, 1), applied: Lsn(1) });
        }
        let at = run.changes(&[put_row("a", 2)]);
        if has_it {
            run.ends(3, Last { end: at, applied: at.lsn });
        }
        run.acknowledges(at);
        Answer::Done { at, copies: 2 }
    });
    run
}
