//! Tests of the transaction manager's books.

mod claims;

use super::*;
use crate::fake::FakeEngine;
use types::{Lsn, PartitionId};
use wire::RowOp;
use wire::commit::PartitionWrites;
use wire::request::TablePart;

const ONE: PartitionId = PartitionId(64);
const OTHER: PartitionId = PartitionId(65);
const TERM: Term = Term(3);
/// So many commits, and so old, are worth a word.
const WORTH: (usize, Micros) = (100, Micros::from_millis(10_000));

fn at(lsn: u64) -> Position {
    Position::new(TERM, Lsn(lsn))
}

/// A manager in memory.
struct World {
    engine: FakeEngine,
    known: KnownCommits,
    lsn: u64,
    keep_ms: u64,
    keep_bytes: usize,
}

impl World {
    fn new() -> World {
        World {
            engine: FakeEngine::new(),
            known: KnownCommits::default(),
            lsn: 0,
            keep_ms: 1_000,
            keep_bytes: usize::MAX,
        }
    }

    fn execute(&mut self, mutations: &[Mutation]) -> Position {
        self.lsn += 1;
        self.engine.execute(at(self.lsn), mutations);
        at(self.lsn)
    }

    /// Commits these keys in these partitions; `None`: refused.
    fn commit(&mut self, snapshot: u64, keys: &[(PartitionId, &str)]) -> Option<Vec<Position>> {
        let mut writes: Vec<PartitionWrites> = Vec::new();
        for (partition, key) in keys {
            let put = RowOp::Put { key: Bytes::copy_from_slice(key.as_bytes()), row: "row".into() };
            let part = TablePart { table: TableId(7), schema: 1, ops: vec![put], seen: Vec::new() };
            writes.push(PartitionWrites { partition: *partition, parts: vec![part] });
        }
        let request = CommitRequest { snapshot: at(snapshot), writes };
        let books = self.known.books(&self.engine, TERM).expect("no error");
        if books.conflicts(Rules::ALL, (&request, None)) {
            return None;
        }
        let (mutations, previous) = books.commit((at(self.lsn + 1), 1_000 * self.lsn), (&request, &[]));
        self.execute(&mutations);
        Some(previous.into_iter().map(|(_, previous)| previous).collect())
    }

    /// How many write-sets were removed.
    fn secure(&mut self, wall_ms: u64, secured: &[(PartitionId, u64)]) -> u32 {
        let secured: Vec<_> = secured.iter().map(|(partition, lsn)| (*partition, at(*lsn))).collect();
        let books = self.known.books(&self.engine, TERM).expect("no error");
        let keep = (wall_ms, Keep { time: Micros::from_millis(self.keep_ms), bytes: self.keep_bytes });
        let secured = books.secure((&self.engine, Rules::ALL), keep, &secured);
        let (mutations, removed) = secured.expect("no error");
        self.execute(&mutations);
        removed
    }

    /// Why nothing is committed in these partitions, with so many bytes at most.
    fn full(&mut self, most: usize, partitions: &[PartitionId]) -> Option<String> {
        let books = self.known.books(&self.engine, TERM).expect("no error");
        books.is_full(most, partitions.iter().copied())
    }

    fn chain(&self, partition: PartitionId, after: u64) -> Result<Vec<u64>, String> {
        let chained = (partition, at(after), Position::ZERO);
        match chain(&self.engine, chained, ReadAt::Applied).expect("no error")? {
            CommitAnswer::Chain { flushes, next: None } => {
                Ok(flushes.iter().map(|flush| flush.commit.lsn.0).collect())
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn pr250_the_first_committer_wins_and_commits_of_a_partition_are_chained() {
    let mut world = World::new();
    assert_eq!(world.commit(0, &[(ONE, "a"), (OTHER, "b")]), Some(vec![Position::ZERO; 2]));
    assert_eq!(world.commit(0, &[(ONE, "a")]), None, "written behind the snapshot");
    assert_eq!(world.commit(0, &[(ONE, "c")]), Some(vec![at(1)]), "another key");
    assert_eq!(world.commit(1, &[(ONE, "a"), (OTHER, "b")]), Some(vec![at(2), at(1)]));
    assert_eq!((world.chain(ONE, 0), world.chain(OTHER, 1)), (Ok(vec![1, 2, 3]), Ok(vec![3])));
}

/// The manager's next term has lost the second commit, which a partition has. It commits at the same LSN.
#[test]
fn pr363_what_a_promotion_has_lost_is_no_timestamp_again_and_without_the_rule_it_is() {
    let given_twice = |rules: Rules| {
        let (mut world, lost) = (World::new(), at(2));
        world.commit(0, &[(ONE, "a")]).expect("committed");
        let next = Term(TERM.0 + 1);
        let books = world.known.books(&world.engine, next).expect("no error");
        let stamp = books.stamp(rules, Position::new(next, lost.lsn));
        assert_eq!(stamp.lsn, lost.lsn);
        stamp == lost
    };
    assert!(!given_twice(Rules::ALL));
    assert!(given_twice(Rules::without(types::Finding::Pr363).expect("this build has mutants")));
}

#[test]
fn pr250_a_row_may_have_been_written_up_to_where_it_was_read() {
    let mut world = World::new();
    world.commit(0, &[(ONE, "a")]).expect("committed");
    world.commit(0, &[(ONE, "b")]).expect("committed");
    let mut conflicts = |snapshot: u64, seen: &[u64]| {
        let ops = ["a", "b"].map(|key| RowOp::Put { key: key.into(), row: "row".into() }).to_vec();
        let seen = seen.iter().map(|lsn| at(*lsn)).collect();
        let part = TablePart { table: TableId(7), schema: 1, ops, seen };
        let writes = vec![PartitionWrites { partition: ONE, parts: vec![part] }];
        let books = world.known.books(&world.engine, TERM).expect("no error");
        books.conflicts(Rules::ALL, (&CommitRequest { snapshot: at(snapshot), writes }, None))
    };
    assert!(conflicts(1, &[]), "b was written behind 1");
    assert!(!conflicts(1, &[1, 2]));
    assert!(conflicts(0, &[0, 2]), "a was written behind 0");
}

#[test]
fn pr254_what_is_forgotten_makes_older_snapshots_worthless() {
    let mut world = World::new();
    for key in ["a", "b", "c"] {
        world.commit(10, &[(ONE, key)]).expect("committed");
    }
    world.commit(10, &[(OTHER, "z")]).expect("committed");
    world.secure(2_500, &[(ONE, 2), (OTHER, 4)]);
    assert_eq!(world.chain(ONE, 2), Ok(vec![3]), "the others are secured, and old");
    assert!(world.chain(ONE, 0).is_err_and(|why| why.contains("not kept any more")));
    assert_eq!(world.commit(1, &[(ONE, "new")]), None, "nobody knows what came after it");
    assert!(world.commit(2, &[(ONE, "new")]).is_some());
    world.known = KnownCommits::default();
    assert_eq!(world.commit(1, &[(ONE, "newer")]), None, "another term knows as much");
    assert_eq!(world.commit(3, &[(ONE, "new")]), None);
    assert!(world.commit(6, &[(ONE, "new")]).is_some());
}

#[test]
fn pr253_what_some_partition_has_not_secured_is_kept() {
    let mut world = World::new();
    world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
    world.commit(10, &[(ONE, "c")]).expect("committed");
    world.secure(1_000_000, &[(ONE, 2)]);
    assert_eq!(world.chain(OTHER, 0), Ok(vec![1]));
    assert_eq!(world.secure(1_000_000, &[(OTHER, 1)]), 1);
    assert_eq!(world.chain(OTHER, 1), Ok(Vec::new()));
    assert!(world.chain(OTHER, 0).is_err());
}

#[test]
fn pr290_everything_old_is_removed_and_not_a_little_of_it() {
    let mut world = World::new();
    (0..3_000).for_each(|_| drop(world.commit(5_000, &[(ONE, "a")]).expect("committed")));
    let removed: Vec<u32> = std::iter::once(world.secure(u64::MAX, &[(ONE, 3_000)]))
        .chain(std::iter::from_fn(|| Some(world.secure(u64::MAX, &[])).filter(|removed| *removed > 0)))
        .collect();
    assert_eq!(removed.iter().sum::<u32>(), 3_000);
    assert!(removed.len() <= 3, "{removed:?}");
    let books = world.known.books(&world.engine, TERM).expect("no error");
    assert_eq!((books.kept.len(), books.kept.bytes(), books.keys.len()), (0, 0, 0));
}

#[test]
fn pr290_what_is_young_goes_where_there_is_too_much_of_it() {
    let mut world = World::new();
    world.keep_ms = 1_000_000;
    world.lsn = 1;
    (0..100).for_each(|_| drop(world.commit(5_000, &[(ONE, "a")]).expect("committed")));
    assert_eq!(world.secure(0, &[(ONE, 101)]), 0, "young");
    world.keep_bytes = 50 * (BESIDE + "a".len() + "row".len());
    assert_eq!(world.secure(0, &[]), 50);
    assert_eq!(world.chain(ONE, 101), Ok(Vec::new()));
    world.commit(5_000, &[(OTHER, "b")]).expect("committed");
    let last = world.lsn;
    world.keep_bytes = 0;
    assert_eq!(world.secure(0, &[]), 50, "what is not secured stays alone");
    assert_eq!(world.chain(OTHER, 0).map(|chain| chain.len()), Ok(1));
    assert_eq!(world.secure(0, &[(OTHER, last)]), 1);
}

/// One partition secures nothing. What others have secured goes all the same, and leaves room.
#[test]
fn pr394_what_one_partition_has_not_secured_keeps_no_commits_of_others() {
    let mut world = World::new();
    world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
    for key in ["c", "d", "e"] {
        world.commit(10, &[(OTHER, key)]).expect("committed");
    }
    let bytes = BESIDE + "a".len() + "row".len();
    assert!(world.full(5 * bytes, &[PartitionId(90)]).is_some(), "there is no room for anybody");
    // The last one is young.
    assert_eq!(world.secure(3_500, &[(OTHER, 4)]), 2);
    let floors = |world: &mut World| {
        let books = world.known.books(&world.engine, TERM).expect("no error");
        (books.truncated.lsn.0, books.removed.lsn.0, books.kept.len(), books.kept.bytes())
    };
    for _ in 0..2 {
        assert_eq!(floors(&mut world), (0, 3, 2, 3 * bytes));
        assert_eq!(world.full(5 * bytes, &[PartitionId(90)]), None);
        assert_eq!((world.chain(ONE, 0), world.chain(OTHER, 3)), (Ok(vec![1]), Ok(vec![4])));
        assert!(world.chain(OTHER, 2).is_err_and(|why| why.contains("not kept any more")));
        let further = chain(&world.engine, (OTHER, at(2), at(3)), ReadAt::Applied).expect("no error");
        let Ok(CommitAnswer::Chain { flushes, .. }) = further else { panic!("{further:?}") };
        assert_eq!(flushes.first().map(|flush| flush.previous), Some(at(3)), "who asks from there on");
        assert_eq!(world.commit(2, &[(OTHER, "z")]), None, "nobody knows who wrote what before 3");
        world.known = KnownCommits::default();
    }
    assert_eq!(world.secure(3_500, &[(ONE, 1)]), 1, "it is old, and was held by that one alone");
    assert_eq!(floors(&mut world), (3, 3, 1, bytes));
    assert_eq!(world.commit(3, &[(OTHER, "z")]), Some(vec![at(4)]));
    world.known = KnownCommits::default();
    assert_eq!(floors(&mut world), (3, 3, 2, 2 * bytes));
}

#[test]
fn pr321_a_clock_that_jumps_takes_nothing_that_is_not_secured_and_keeps_nothing_for_ever() {
    let mut world = World::new();
    let early = world.known.books(&world.engine, TERM).expect("no error").truncated;
    assert_eq!(early, Position::ZERO);
    // The clock is an hour ahead for one commit, and then right again.
    world.commit(10, &[(ONE, "a")]).expect("committed");
    world.lsn = 3_600;
    world.commit(5_000, &[(ONE, "b")]).expect("committed");
    world.lsn = 3_700;
    let [first, ahead] = [1, 3_601];
    assert_eq!(world.secure(1_500, &[]), 0, "nothing is secured");
    assert_eq!(world.secure(1_500, &[(ONE, ahead)]), 2, "the first is old, and the other of the future");
    world.commit(5_000, &[(ONE, "c")]).expect("committed");
    let last = world.lsn;
    assert_eq!(world.secure(u64::MAX, &[]), 0, "however late it is, it is not secured");
    assert_eq!(world.chain(ONE, ahead), Ok(vec![last]));
    assert_eq!(world.secure(0, &[(ONE, last)]), 1, "the clock is back");
    assert_eq!(world.commit(first, &[(OTHER, "z")]), None, "whoever is older begins again");
    assert_eq!(world.known.alarm(TERM, 0, WORTH), "");
}

#[test]
fn pr293_a_partition_that_knows_more_than_the_manager_goes_on_when_an_operator_says_so() {
    let mut world = World::new();
    for key in ["a", "b"] {
        world.commit(10, &[(ONE, key)]).expect("committed");
    }
    // It has a commit of an older term, which the manager has lost.
    let lost = Position::new(Term(2), Lsn(900));
    let mend = |world: &mut World, partition, has, upto| {
        let books = world.known.books(&world.engine, TERM).expect("no error");
        let entry = (at(world.lsn + 1), 5);
        let mended = books.mend(&world.engine, entry, (partition, has, upto)).expect("no error");
        mended.map(|mutations| {
            world.execute(&mutations);
        })
    };
    assert_eq!(mend(&mut world, ONE, at(2), at(2)), Ok(()), "nothing is to be mended");
    assert_eq!(mend(&mut world, ONE, lost, lost), Ok(()), "the first commit behind it names it");
    let chained = chain(&world.engine, (ONE, lost, Position::ZERO), ReadAt::Applied).expect("no error");
    let Ok(CommitAnswer::Chain { flushes, .. }) = chained else { panic!("{chained:?}") };
    assert_eq!(flushes.iter().map(|flush| flush.previous).collect::<Vec<_>>(), [lost, at(1)]);
    let other = Position::new(Term(2), Lsn(800));
    assert_eq!(mend(&mut world, OTHER, other, other), Ok(()));
    assert_eq!(world.commit(10, &[(OTHER, "z")]), Some(vec![at(5)]), "one without rows lies between");
    let kept = world.known.kept(&world.engine, 9, &[at(1), at(90)]).expect("no error");
    assert_eq!((kept.commits, kept.counts), (4, vec![(1, Some(1_000)), (4, None)]));
    assert_eq!(kept.given_up, [(ONE, lost, lost, 5), (OTHER, other, other, 5)]);
}

/// A partition has a commit of an older term, which the manager has lost, and nobody has committed since.
#[test]
fn pr415_behind_what_the_manager_lacks_the_next_snapshot_is_of_its_own_log() {
    let (mut world, lost) = (World::new(), Position::new(Term(2), Lsn(900)));
    let books = world.known.books(&world.engine, TERM).expect("no error");
    let mended = books.mend(&world.engine, (at(1), 5), (ONE, lost, lost)).expect("no error");
    world.execute(&mended.expect("it goes on"));
    let asked = ManagerOp::Snapshot { since: Position::ZERO };
    let snapshot = look(&world.engine, &asked, ReadAt::Applied).expect("no error");
    assert_eq!(snapshot, Ok(CommitAnswer::Snapshot { at: at(1), heads: vec![(ONE, at(1))] }));
    let chained = chain(&world.engine, (ONE, lost, Position::ZERO), ReadAt::Applied).expect("no error");
    let flush = Flush { commit: at(1), previous: lost, parts: Vec::new() };
    assert_eq!(chained, Ok(CommitAnswer::Chain { flushes: vec![flush], next: None }));
    assert_eq!(world.commit(1, &[(ONE, "a")]), Some(vec![at(1)]));
}

#[test]
fn pr415_nobody_goes_on_behind_what_no_manager_can_have_committed() {
    let mut world = World::new();
    world.commit(0, &[(ONE, "a")]).expect("committed");
    let books = world.known.books(&world.engine, TERM).expect("no error");
    for has in [at(2), Position::new(Term(TERM.0 + 1), Lsn(1))] {
        let mended = books.mend(&world.engine, (at(2), 5), (ONE, has, has)).expect("no error");
        assert!(matches!(mended, Err(Unmended::Ahead(_))), "{mended:?}");
    }
    assert_eq!(world.commit(1, &[(ONE, "b")]), Some(vec![at(1)]));
}

#[test]
fn pr293_what_is_gone_is_given_up_by_name() {
    let mut world = World::new();
    for key in ["a", "b", "c"] {
        world.commit(10, &[(ONE, key)]).expect("committed");
    }
    world.secure(u64::MAX, &[(ONE, 2)]);
    let books = world.known.books(&world.engine, TERM).expect("no error");
    let entry = (at(world.lsn + 1), 5);
    let same = books.mend(&world.engine, entry, (ONE, at(1), at(1))).expect("no error");
    let gone = format!("commits up to {}, and those up to {} are not kept any more", at(1), at(2));
    let is_gone = |why: &Unmended| matches!(why, Unmended::Gone(why) if why.contains(&gone));
    assert!(same.as_ref().is_err_and(is_gone), "{same:?}");
    let given = books.mend(&world.engine, entry, (ONE, at(1), at(2))).expect("no error");
    assert_eq!(given.map(|mutations| mutations.len()), Ok(1), "it is noted");
}

/// What all partitions have secured is what readers of old snapshots see (T_P*): one that has done nothing
/// for long would take it back with its next commit.
#[test]
fn pr468_a_partition_that_had_secured_all_holds_back_no_more_than_its_next_commit() {
    let mut world = World::new();
    world.commit(0, &[(ONE, "a")]).expect("committed");
    world.commit(1, &[(OTHER, "b")]).expect("committed");
    world.secure(0, &[(ONE, 1), (OTHER, 2)]);
    for _ in 0..5 {
        world.commit(world.lsn, &[(OTHER, "b")]).expect("committed");
    }
    let newest = world.lsn;
    world.secure(0, &[(OTHER, newest)]);
    let next = world.lsn + 1;
    world.commit(world.lsn, &[(ONE, "a")]).expect("committed");
    world.commit(world.lsn, &[(ONE, "a")]).expect("committed");
    let heads = heads_at(&world.engine, ReadAt::Applied).expect("no error");
    assert_eq!(heads[&ONE], Head { newest: at(next + 1), secured: at(next - 1) });
    assert_eq!(heads[&OTHER], Head { newest: at(newest), secured: at(newest) });
    // It is no word for that commit: the partition says it, and both are kept until then.
    assert_eq!(world.secure(0, &[(ONE, 1)]), 0);
    let alarm = world.known.alarm(TERM, u64::MAX, WORTH);
    assert!(alarm.starts_with("2 commits are not secured"), "{alarm}");
    world.secure(0, &[(ONE, next + 1)]);
    assert_eq!(world.known.alarm(TERM, u64::MAX, WORTH), "");
}

#[test]
fn what_is_not_secured_for_long_is_worth_a_word() {
    let mut world = World::new();
    world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
    assert_eq!(world.known.alarm(TERM, 9_999, WORTH), "");
    let alarm = world.known.alarm(TERM, 12_000, WORTH);
    assert!(alarm.starts_with("1 commits are not secured, the oldest for 12 s"), "{alarm}");
    assert_eq!(world.known.alarm(TERM, 12_000, (2, Micros::from_millis(12_001))), "");
    assert_ne!(world.known.alarm(TERM, 12_000, (1, Micros::from_millis(12_001))), "");
    world.secure(0, &[(ONE, 1), (OTHER, 1)]);
    assert_eq!(world.known.alarm(TERM, 12_000, WORTH), "");
}

#[test]
fn what_partitions_do_not_secure_fills_no_memory_without_end() {
    let mut world = World::new();
    world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
    assert_eq!(world.full(1_000, &[ONE, OTHER]), None);
    assert!(world.full(100, &[ONE]).is_some_and(|why| why.contains("64 has not secured")));
    world.secure(0, &[(ONE, 1), (OTHER, 1)]);
    assert_eq!(world.full(100, &[ONE, OTHER]), None, "what is secured can be removed");
}

#[test]
fn pr367_a_backlog_of_one_partition_stops_commits_of_that_one_alone() {
    let mut world = World::new();
    for _ in 0..3 {
        world.commit(10, &[(ONE, "a")]).expect("committed");
    }
    world.commit(10, &[(ONE, "a"), (OTHER, "b")]).expect("committed");
    let bytes = BESIDE + "a".len() + "row".len();
    // A fourth of it is three and a half of those parts.
    let most = 14 * bytes;
    for known in [true, false] {
        if !known {
            world.known = KnownCommits::default();
        }
        let why = world.full(most, &[ONE]).expect("four are beyond its share");
        assert_eq!(
            why,
            format!("4 commits of {} bytes are kept, and partition p64 has not secured them", 4 * bytes)
        );
        assert_eq!(world.full(most, &[OTHER, ONE]), Some(why), "one part of it would be there");
        assert_eq!(world.full(most, &[OTHER]), None);
        assert!(world.full(5 * bytes, &[PartitionId(90)]).is_some(), "there is no room for anybody");
    }
    world.secure(0, &[(ONE, 1)]);
    for known in [true, false] {
        if !known {
            world.known = KnownCommits::default();
        }
        assert_eq!(world.full(most, &[ONE, OTHER]), None, "three are left");
    }
    world.commit(10, &[(ONE, "c")]).expect("committed");
    assert!(world.full(most, &[ONE]).is_some());
}

/// A table of four partitions from 64 on, by one number.
fn table(version: u32) -> types::TableRecord {
    use types::data::{Column, ColumnType, Schema};
    let schema = Schema::new(vec![Column::new("k", ColumnType::Int)], &["k"], 1, false).expect("valid");
    let mut parts = schema.into_parts();
    parts.version = version;
    let schema = Schema::from_parts(parts).expect("valid");
    let policy = types::Policy::preset("durable", 1, types::LogKind::Disk).expect("a preset");
    types::TableRecord {
        partitions: 4,
        first_partition: ONE,
        ..types::TableRecord::new(TableId(7), "t", schema, policy)
    }
}

#[test]
fn pr323_a_commit_fits_its_tables_as_they_are_or_is_refused() {
    use types::data::{Value, encode_key};
    let mut world = World::new();
    let place = |key: &[u8]| PartitionId(ONE.0 + table(1).place_of(&table(1).schema, key).expect("a key"));
    let fits =
        |world: &mut World, (snapshot, schema): (u64, u32), id: u32, partition: Option<PartitionId>| {
            let key: Bytes = encode_key(&table(1).schema, &[Value::Int(5)]).expect("a key").into();
            let partition = partition.unwrap_or(place(&key));
            let put = RowOp::Put { key, row: "row".into() };
            let part = TablePart { table: TableId(id), schema, ops: vec![put], seen: Vec::new() };
            let writes = vec![PartitionWrites { partition, parts: vec![part] }];
            let books = world.known.books(&world.engine, TERM).expect("no error");
            books.unfit((&CommitRequest { snapshot: at(snapshot), writes }, None))
        };
    let define = |world: &mut World, tables: Vec<types::TableRecord>, gone: Vec<TableId>| {
        let definitions = Definitions { partitions: (64..68).map(PartitionId).collect(), tables, gone };
        let books = world.known.books(&world.engine, TERM).expect("no error");
        let news = definitions.news(books);
        if news.is_empty() {
            return None;
        }
        let (mutations, previous) = books.define((at(world.lsn + 1), 1_000), news);
        world.execute(&mutations);
        Some(previous)
    };
    assert_eq!(fits(&mut world, (0, 1), 7, None), None, "nobody has said what tables are like");
    world.commit(0, &[(ONE, "a")]).expect("committed");
    let previous = define(&mut world, vec![table(1)], Vec::new()).expect("it is new");
    let before: Vec<u64> = previous.iter().map(|(_, previous)| previous.lsn.0).collect();
    assert_eq!(before, [1, 0, 0, 0], "it has a timestamp in all chains");
    assert_eq!(define(&mut world, vec![table(1)], Vec::new()), None, "the same is no news");
    assert_eq!(world.chain(OTHER, 0), Ok(vec![2]));
    for known in [true, false] {
        if !known {
            world.known = KnownCommits::default();
        }
        assert_eq!(fits(&mut world, (2, 1), 7, None), None);
        assert_eq!(fits(&mut world, (1, 1), 7, None), Some(Unfit::Changed), "it began below");
        assert_eq!(fits(&mut world, (2, 1), 8, None), Some(Unfit::Stale), "no such table");
        let elsewhere = fits(&mut world, (2, 1), 7, Some(PartitionId(90)));
        assert!(matches!(elsewhere, Some(Unfit::Place(_))), "{elsewhere:?}");
        assert_eq!(fits(&mut world, (2, 1), 8, Some(PartitionId(90))), None, "a database that nobody knows");
    }
    define(&mut world, vec![table(5)], Vec::new()).expect("other columns");
    assert_eq!(fits(&mut world, (2, 5), 7, None), Some(Unfit::Changed));
    assert_eq!(fits(&mut world, (3, 1), 7, None), Some(Unfit::Stale));
    assert_eq!((fits(&mut world, (3, 5), 7, None), fits(&mut world, (3, 6), 7, None)), (None, None));
    assert_eq!(define(&mut world, vec![table(1)], Vec::new()), None, "an older version is no news");
    let mut other = table(1);
    other.id = TableId(9);
    define(&mut world, vec![other], vec![TableId(7)]).expect("one comes and one goes");
    assert_eq!(fits(&mut world, (4, 5), 7, None), Some(Unfit::Stale));
    world.known = KnownCommits::default();
    assert_eq!(fits(&mut world, (4, 5), 7, None), Some(Unfit::Stale));
    // The last one of a database.
    define(&mut world, Vec::new(), vec![TableId(9)]).expect("it goes");
    assert_eq!(define(&mut world, Vec::new(), vec![TableId(9)]), None, "it has gone");
    for _ in 0..2 {
        let gone = [7, 9].map(|id| fits(&mut world, (9, 5), id, None));
        assert_eq!(gone, [Some(Unfit::Stale), Some(Unfit::Stale)]);
        world.known = KnownCommits::default();
    }
    let known = tables::known_tables(&world.engine, ONE, ReadAt::Applied).expect("no error");
    assert_eq!(known, Vec::new());
}

/// Forgets partitions, and says of how many there was anything.
fn forget(world: &mut World, partitions: &[PartitionId]) -> u32 {
    let books = world.known.books(&world.engine, TERM).expect("no error");
    let (mutations, removed) = books.forget_dropped(partitions);
    world.execute(&mutations);
    removed
}

#[test]
fn pr390_of_a_database_that_was_dropped_nothing_is_kept_once_nothing_refers_to_it() {
    let mut world = World::new();
    let later = PartitionId(90);
    let definitions =
        Definitions { partitions: (64..68).map(PartitionId).collect(), tables: vec![table(1)], gone: vec![] };
    let books = world.known.books(&world.engine, TERM).expect("no error");
    let (mutations, _) = books.define((at(1), 1_000), definitions);
    world.execute(&mutations);
    world.commit(1, &[(ONE, "a")]).expect("committed");
    let all: Vec<PartitionId> = (64..68).map(PartitionId).collect();
    assert_eq!(forget(&mut world, &all), 0, "what is not secured is brought yet");
    let last = world.lsn - 1;
    world.secure(0, &[(ONE, last), (OTHER, 1), (PartitionId(66), 1), (PartitionId(67), 1)]);
    assert_eq!(forget(&mut world, &all), 0, "its write-sets are kept");
    world.secure(u64::MAX, &[]);
    let newest = |world: &World| {
        let snapshot = ManagerOp::Snapshot { since: Position::ZERO };
        let looked = look(&world.engine, &snapshot, ReadAt::Applied).expect("no error");
        let Ok(CommitAnswer::Snapshot { at, heads }) = looked else { panic!("{looked:?}") };
        (at.lsn.0, heads.iter().map(|(partition, _)| partition.0).collect::<Vec<_>>())
    };
    let tables = |world: &World| tables::tables_at(&world.engine, ReadAt::Applied).expect("no error").len();
    assert_eq!((newest(&world), tables(&world)), ((last, vec![64, 65, 66, 67]), 1));
    assert_eq!(forget(&mut world, &all), 3);
    assert_eq!((newest(&world), tables(&world)), ((last, vec![64]), 0), "the next snapshot is no older");
    let at_last = world.lsn;
    world.commit(last, &[(later, "z")]).expect("a snapshot of what is left commits");
    assert_eq!(forget(&mut world, &all), 1, "another one is the newest");
    for _ in 0..2 {
        assert_eq!(newest(&world), (at_last + 1, vec![90]));
        assert_eq!(forget(&mut world, &[ONE, later]), 0);
        let books = world.known.books(&world.engine, TERM).expect("no error");
        assert_eq!((books.heads.len(), books.tables.len(), books.backlogs.len()), (1, 0, 1));
        world.known = KnownCommits::default();
    }
}

#[test]
fn what_clients_have_open_outlives_books_that_are_read_again() {
    let mut world = World::new();
    let now = Micros::from_millis(5_000);
    assert_eq!(world.known.executing(now, (1, 3, 40)), None);
    world.known.forget();
    world.known.books(&world.engine, Term(4)).expect("no error");
    let told = world.known.executing(now, (0, 0, 0)).expect("the sum, for who has nothing open");
    assert_eq!((told.transactions, told.senders, told.oldest_ms), (3, 1, Some(40)));
}
