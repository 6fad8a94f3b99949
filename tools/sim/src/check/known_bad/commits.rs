//! What global transactions read and committed, and what calls of procedures came to, each time with one
//! promise broken.

use super::run::{NODES, Run, available, payload};
use super::{Accepted, KnownBad, bad};
use crate::check::aside;
use crate::check::calls::Asked;
use crate::check::commits::{GivenUp, TxnEnd, TxnOperation};
use crate::check::epochs::tests::record;
use crate::check::lineage::Transactional;
use crate::check::lineage::tests::{P, at};
use crate::check::report::tests::failover;
use crate::programs::{self, COUNTERS};
use crate::rows;
use bytes::Bytes;
use types::commits::{encode_timestamp, flush_key, newest_flush_key, removed_key, truncated_key};
use types::config::{Cause, PreviousTerm, TailReport};
use types::data::{Row, Value, encode_key, encode_row};
use types::system::{commit_key, commit_row};
use types::{Epoch, FailoverRecord, KeySpace, Mutation, NodeId, PartitionId, PartitionRecord, Position};
use types::{SessionId, Term};
use wire::commit::{KeptWrites, encode_write_set};
use wire::{Entry, Header, Kind, RowOp, TablePart};

/// The partition that commits write. The manager's is the one that is run.
const WRITTEN: PartitionId = PartitionId(65);

pub(super) const CASES: &[KnownBad] = &[
    bad("commits", "a read of another commit", &[("PR-252", "read a as None")], || read_as(None)),
    bad("commits", "a copy that lacks what is secured", &[("PR-322", "read a as None")], || stale(None)),
    bad("commits", "a backup of another state", &[("PR-330", "read a as None")], || backed_up(None)),
    bad("commits", "a row was written since", &[("PR-250", "writes a over")], || third_commit(1, 3)),
    bad("commits", "another content", &[("I1", "was acknowledged as")], || third_commit(2, 9)),
    bad("commits", "an acknowledged one is not seen", &[("R5", "behind the commit")], || began_behind(0)),
    bad("commits", "more is missing than was given up", &[("PR-252", "read b as None")], || skipped(2)),
    bad("commits", "it rests on what is lost", &[("PR-293", "rests on (1,2)")], || rests_on(2)),
    bad("commits", "nobody sees what is kept alone", &[("PR-252", "read b as None")], || lost_b(true, None)),
    bad("commits", "nobody had what is seen", &[("PR-252", "read b as Some(2)")], || lost_b(false, Some(2))),
    bad("cycles", "half of a commit", &[("I5", "G-single, read skew")], || half_of_a_commit(false)),
    bad("claims", "a unique value twice", &[("PR-324", "both have the unique value")], || people(3, 3)),
    bad("claims", "a letter to nobody", &[("PR-325", "which is not there")], || letter_to_m1("m0")),
    bad("claims", "a note to what nobody has", &[("PR-369", "which nobody has")], || note_of_3(4)),
    bad("timestamps", "one timestamp, twice", &[("PR-363", "of another one, (1,2)")], || given_again(2)),
    bad("timestamps", "another name", &[("PR-250", "calls itself (1,9)")], || given_again(9)),
    bad("timestamps", "another commit is stored", &[("PR-363", "stores b as Some(3)")], || stored_as(3)),
    bad("truncation", "a commit that one copy lacks", &[("I11", "which counts in p65")], || truncated(2)),
    bad("truncation", "a commit that nobody has", &[("I11", "n1.i1, which counts")], || truncated(0)),
    bad(
        "truncation",
        "an older one is kept, and one copy lacks it",
        &[("I11", "which counts in p65")],
        || removed_above(2),
    ),
    bad("truncation", "a tail counts too few", &[("I14", "are kept nowhere else")], || lost_with_tail(0)),
    bad("calls", "a call does not add to what is there", &[("I9", "makes Some(3) of 5")], || called(3)),
];

pub(super) const ACCEPTED: &[Accepted] = &[
    ("a transaction that reads its snapshot", || read_as(Some(1))),
    ("a transaction that reads what is secured", || stale(Some(1))),
    ("a backup of one state", || backed_up(Some(1))),
    ("a transaction that rests on the newest commit", || third_commit(2, 3)),
    ("a transaction that sees what was acknowledged", || began_behind(1)),
    ("what was given up is missing", || skipped(1)),
    ("it rests on what is left", || rests_on(1)),
    ("what a partition keeps alone is seen", || lost_b(true, Some(2))),
    ("nobody has what is lost", || lost_b(false, None)),
    ("what a partition stores is of its commit", || stored_as(2)),
    ("statements that have a snapshot each", || half_of_a_commit(true)),
    ("two people", || people(3, 4)),
    ("a letter to somebody", || letter_to_m1("m1")),
    ("a note to what somebody has", || note_of_3(3)),
    ("a commit that all copies have is removed", || truncated(3)),
    ("a commit that all copies have is removed, and an older one is kept", || removed_above(3)),
    ("what all had is lost, and counted in a tail", || lost_with_tail(1)),
    ("two calls", || called(8)),
];

/// Of a transaction manager.
fn manager() -> Run {
    let (manager, written) = (Some(P), vec![WRITTEN]);
    Run::of_partition(|lineage| lineage.will_have_transactions(Transactional { manager, written }))
}

/// A transaction is committed that writes a row.
fn commits(run: &mut Run, name: &str, value: u64) -> Position {
    commits_all(run, &[(name, value)])
}

/// A transaction is committed that writes these rows.
fn commits_all(run: &mut Run, all: &[(&str, u64)]) -> Position {
    let at = commits_as(run, run.next_at(), all);
    run.acknowledges(at);
    run.now += 10;
    at
}

/// The manager's log has a commit of these rows, under this timestamp: its entry.
fn commits_as(run: &mut Run, stamp: Position, all: &[(&str, u64)]) -> Position {
    let part = |(name, value): &(&str, u64)| {
        let ops = vec![RowOp::Put { key: rows::key(name, true), row: rows::table_row(name, *value, (1, 0)) }];
        TablePart { table: rows::table_of(name), schema: 1, ops, seen: Vec::new() }
    };
    let parts = all.iter().map(part).collect();
    let kept = [KeptWrites { partition: WRITTEN, previous: Position::ZERO, parts }];
    let (key, value) = commit_row(stamp, 0, (1, 1), &encode_write_set(&kept));
    run.changes(&[Mutation { key: KeySpace::Bare.row_key(&key), value: Some(value) }])
}

/// A transaction that begins and ends now, with a snapshot at this LSN.
fn transaction(run: &Run, lsn: u64, told: TxnEnd) -> TxnOperation {
    let snapshot = if lsn == 0 { Position::ZERO } else { at(1, lsn) };
    TxnOperation { snapshot: Some(snapshot), told, ..TxnOperation::new(1, run.now) }
}

/// At a snapshot of two commits, the first of which has put 1 to `a`, that is read.
fn read_as(value: Option<u64>) -> Run {
    let mut run = manager();
    commits(&mut run, "a", 1);
    commits(&mut run, "b", 2);
    let reads = vec![("a".to_string(), value, at(1, 2))];
    run.transactions.push(TxnOperation { reads, ..transaction(&run, 2, TxnEnd::ReadOnly) });
    run
}

/// The same in a backup.
fn backed_up(value: Option<u64>) -> Run {
    let mut run = read_as(value);
    run.transactions.iter_mut().for_each(|read| read.backup = true);
    run
}

/// At what all copies have secured, which is the first of two acknowledged commits, that is read.
fn stale(value: Option<u64>) -> Run {
    let mut run = manager();
    commits(&mut run, "a", 1);
    let told = TxnEnd::Committed(commits(&mut run, "b", 2));
    let writes = vec![("b".to_string(), Some(2))];
    run.transactions.push(TxnOperation { writes, ..transaction(&run, 1, told) });
    run.now += 10;
    let reads = vec![("a".to_string(), value, at(1, 1))];
    run.transactions.push(TxnOperation { reads, stale: true, ..transaction(&run, 1, TxnEnd::ReadOnly) });
    run
}

/// Of three commits, of which the second has put `b`, an operator has given up those behind so many of them.
/// Then `b` is read, and is not there.
fn skipped(kept: u64) -> Run {
    let mut run = manager();
    for (name, value) in [("a", 1), ("b", 2), ("a", 3)] {
        commits(&mut run, name, value);
    }
    let (from, upto) = (at(1, kept), at(1, 3));
    run.given_up.push(GivenUp { partition: WRITTEN, from, upto, since: run.now });
    let reads = vec![("b".to_string(), None, at(1, 3))];
    let read = transaction(&run, 3, TxnEnd::ReadOnly);
    run.transactions.push(TxnOperation { reads, ..read });
    run
}

/// Of two acknowledged commits, which put `a` and `b`, the manager has lost the second one, since an operator
/// had a copy lead that lacks it: that commit.
fn lost_by_manager() -> (Run, Position) {
    let mut run = manager();
    commits(&mut run, "a", 1);
    run.configured(available(record(2, 1, &[1])));
    let lost = commits(&mut run, "b", 2);
    run.checks.survival.forced(run.now, P, Term(3));
    let (cause, lossy) = (Cause::Forced, true);
    run.fails_over(PartitionRecord { cause, lossy, ..available(record(3, 3, &[2])) }, 1);
    let (old_epoch, new_epoch) = (Epoch(2), Epoch(3));
    run.failovers.push(FailoverRecord { cause, old_epoch, new_epoch, ..failover(true, 1, 1) });
    (run, lost)
}

/// A transaction that has a snapshot at this LSN of the first term is committed behind that.
fn rests_on(lsn: u64) -> Run {
    let (mut run, _) = lost_by_manager();
    let told = TxnEnd::Committed(commits(&mut run, "a", 3));
    let writes = vec![("a".to_string(), Some(3))];
    run.transactions.push(TxnOperation { writes, ..transaction(&run, lsn, told) });
    run
}

/// `b` is read behind that as this. Its partition had it, so that the manager was told to go on behind it; or
/// it never had.
fn lost_b(had: bool, value: Option<u64>) -> Run {
    let (mut run, lost) = lost_by_manager();
    if had {
        is_flushed(&mut run, lost, 3);
        run.checks.tip(WRITTEN, at(1, 1));
        run.given_up.push(GivenUp { partition: WRITTEN, from: lost, upto: lost, since: run.now });
    }
    let snapshot = commits(&mut run, "a", 3);
    run.now += 10;
    let reads = vec![("b".to_string(), value, snapshot)];
    let read = TxnOperation { snapshot: Some(snapshot), reads, ..TxnOperation::new(1, run.now) };
    run.transactions.push(TxnOperation { told: TxnEnd::ReadOnly, ..read });
    run
}

/// Behind the commits of the first term, of which the second is lost, one has the timestamp with this LSN of
/// that term.
fn given_again(lsn: u64) -> Run {
    let (mut run, _) = lost_by_manager();
    commits_as(&mut run, at(1, lsn), &[("a", 3)]);
    run
}

/// Of a commit that has put 2 to `b` its partition stores this.
fn stored_as(value: u64) -> Run {
    let mut run = manager();
    let commit = commits(&mut run, "b", 2);
    let row = rows::table_row("b", value, (1, 0));
    let key = KeySpace::Table(rows::table_of("b")).row_key(&rows::key("b", true));
    let changes = [stored(newest_flush_key(), commit), Mutation { key, value: Some(row) }];
    let flush = Entry::encode(Header::new(Kind::Rows, WRITTEN, at(1, 1), 0), &payload(&changes));
    run.checks.entry(run.now, &flush);
    run
}

/// Two rows are put together, and together again. Of the one the first version is read, of the other one the
/// second, each as it was at a snapshot: at that of a statement of its own, or not.
fn half_of_a_commit(statements: bool) -> Run {
    let mut run = manager();
    commits_all(&mut run, &[("a", 1), ("b", 2)]);
    commits_all(&mut run, &[("a", 3), ("b", 4)]);
    let reads = vec![("a".to_string(), Some(1), at(1, 1)), ("b".to_string(), Some(4), at(1, 2))];
    let read = transaction(&run, 2, TxnEnd::ReadOnly);
    run.transactions.push(TxnOperation { reads, statements, ..read });
    run
}

/// Of three commits to `a` the third is told: that it rests on this one, and has put that value.
fn third_commit(snapshot: u64, value: u64) -> Run {
    let mut run = manager();
    let all = [1, 2, 3].map(|value| commits(&mut run, "a", value));
    let writes = vec![("a".to_string(), Some(value))];
    let told = TxnEnd::Committed(all[2]);
    run.transactions.push(TxnOperation { writes, ..transaction(&run, snapshot, told) });
    run
}

/// A transaction begins when one was committed, at a snapshot with so many commits.
fn began_behind(snapshot: u64) -> Run {
    let mut run = manager();
    let told = TxnEnd::Committed(commits(&mut run, "b", 2));
    let writes = vec![("b".to_string(), Some(2))];
    run.transactions.push(TxnOperation { writes, ..transaction(&run, 0, told) });
    run.now += 10;
    run.transactions.push(transaction(&run, snapshot, TxnEnd::ReadOnly));
    run
}

/// Two people with these unique values.
fn people(one: i64, other: i64) -> Run {
    let mut run = manager();
    for (name, mark) in [("m0", one), ("m1", other)] {
        let value = (1..).find(|value| rows::mark(name, *value) == Some(mark));
        commits(&mut run, name, value.expect("there are few marks"));
    }
    run
}

/// A person, and a letter to `m1`.
fn letter_to_m1(person: &str) -> Run {
    let mut run = manager();
    let value = (1..).find(|value| rows::refers("l0", *value).as_deref() == Some("m1"));
    commits(&mut run, person, 1);
    commits(&mut run, "l0", value.expect("some refer"));
    run
}

/// A person with this unique value, and a note that refers to 3.
fn note_of_3(mark: i64) -> Run {
    let mut run = manager();
    for (name, mark) in [("m0", mark), ("n0", 3)] {
        let value = (1..).find(|value| rows::mark(name, *value) == Some(mark));
        commits(&mut run, name, value.expect("there are few marks"));
    }
    run
}

/// A commit is removed from the manager's log that so many copies of its partition have on their disks.
fn truncated(copies: usize) -> Run {
    let mut run = manager();
    let commit = commits(&mut run, "a", 1);
    is_flushed(&mut run, commit, copies);
    let gone = Mutation { key: KeySpace::Bare.row_key(&commit_key(commit)), value: None };
    run.changes(&[gone, stored(truncated_key(), commit)]);
    run.looks_at_truncation();
    run
}

/// The second of two commits is removed, which so many copies of its partition have on their disks. The first
/// one is kept.
fn removed_above(copies: usize) -> Run {
    let mut run = manager();
    commits(&mut run, "a", 1);
    let commit = commits(&mut run, "b", 2);
    is_flushed(&mut run, commit, copies);
    let gone = Mutation { key: KeySpace::Bare.row_key(&commit_key(commit)), value: None };
    run.changes(&[gone, stored(removed_key(), commit), stored(truncated_key(), Position::ZERO)]);
    run.looks_at_truncation();
    run
}

/// A commit is removed that both copies of its partition have on their disks. An operator has a third one
/// lead that lacks it, and a tail with it counts so many.
fn lost_with_tail(counted: u64) -> Run {
    let mut run = manager();
    let commit = commits(&mut run, "a", 1);
    let flush = is_flushed_by(&mut run, commit, (&NODES[..2], 2));
    let gone = Mutation { key: KeySpace::Bare.row_key(&commit_key(commit)), value: None };
    run.changes(&[gone, stored(truncated_key(), commit)]);
    run.looks_at_truncation();
    let PartitionRecord { epoch, term, primary, in_sync, .. } = record(1, 1, &NODES[..2]);
    let before = Some(PreviousTerm { epoch, term, primary, handed_over: false, in_sync });
    let (cause, lossy) = (Cause::Forced, true);
    let forced = PartitionRecord { id: WRITTEN, cause, lossy, before, ..record(2, 2, &NODES[2..]) };
    let verdict = run.checks.epochs.written(run.now, forced);
    run.checks.expect("I10", run.now, verdict);
    run.checks.epochs.heard(NodeId(NODES[0]), WRITTEN, Epoch(2));
    let report = aside::tests::report(1, 1, None);
    let report = TailReport { partition: WRITTEN, commits: counted, ..report };
    run.checks.set_aside(run.now, &report, &[flush], &[]);
    run
}

/// The change that keeps a timestamp under this key.
fn stored(key: Bytes, at: Position) -> Mutation {
    Mutation { key, value: Some(Bytes::copy_from_slice(&encode_timestamp(at))) }
}

/// So many copies of the partition that commits write have this one on their disks.
fn is_flushed(run: &mut Run, commit: Position, copies: usize) {
    is_flushed_by(run, commit, (&NODES, copies));
}

/// The partition that commits write has copies on these nodes, and so many of them have this commit on their
/// disks: the entry.
fn is_flushed_by(run: &mut Run, commit: Position, (nodes, copies): (&[u32], usize)) -> Entry {
    let written = PartitionRecord { id: WRITTEN, ..record(1, 1, nodes) };
    let verdict = run.checks.epochs.written(run.now, written);
    run.checks.expect("I10", run.now, verdict);
    let marks = [stored(flush_key(commit), Position::ZERO), stored(newest_flush_key(), commit)];
    let flush = Entry::encode(Header::new(Kind::Rows, WRITTEN, at(1, 1), 0), &payload(&marks));
    for node in nodes.iter().copied().take(copies).map(NodeId) {
        run.checks.storage.given(node, WRITTEN, flush.at());
        run.checks.entry(run.now, &flush);
        run.checks.storage.proven(node, WRITTEN, flush.at());
    }
    flush
}

/// The change that puts a number to a row that procedures are about.
fn counter(id: i64, number: i64) -> Mutation {
    let [table, ..] = programs::definitions();
    let key = encode_key(&table.schema, &[Value::Int(id)]).expect("a key");
    let row = Row::new(vec![Value::Int(id), Value::Int(number)]);
    let row = encode_row(&table.schema, &row).expect("a row");
    Mutation { key: KeySpace::Table(COUNTERS).row_key(&key), value: Some(row.into()) }
}

/// Two calls add 5 and 3 to a row. The second makes this of it, and its client is told so.
fn called(second: i64) -> Run {
    let mut run = Run::of_partition(|lineage| lineage.will_have_tables(P));
    let opens = run.header(Kind::SessionOpen);
    let session = SessionId(run.makes(opens, &[], &[]));
    for (seq, by, number) in [(1, 5, 5), (2, 3, second)] {
        let changes = [counter(1, number)];
        let mut header = run.header(Kind::Rows);
        (header.session, header.seq) = (session, seq);
        let at = run.makes(header, &payload(&changes), &changes);
        run.acknowledges(at);
        run.calls.insert((session, seq), Asked { id: 1, by });
        run.called.insert(at, number);
    }
    run
}
