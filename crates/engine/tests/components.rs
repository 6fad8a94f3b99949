//! Components shipped from one LSM engine to another: installed under reads and writes, only what is missing,
//! resumed after a restart, whole or not at all (design section 7; the AsterixDB document, chapter 4).

mod common;

use common::*;
use std::path::Path;
use std::time::Duration;
use types::engine::ShipsFiles;
use types::{ComponentSet, Engine, Installation, Lsn, PinId, Position, ReadAt};
use understudy_engine::LsmEngine;

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const PIECE: usize = 700;

/// A primary and a cold backup: both execute every entry, only the primary publishes.
struct Pair {
    source: LsmEngine,
    target: LsmEngine,
    model: Model,
}

impl Pair {
    fn new(dir: &Path) -> Pair {
        std::fs::create_dir_all(dir).unwrap();
        let open = |name: &str| LsmEngine::open(&dir.join(name)).unwrap();
        Pair { source: open("source"), target: open("target"), model: Model::default() }
    }

    /// So many more entries.
    fn run(&mut self, entries: u64) {
        for _ in 0..entries {
            let lsn = self.source.applied().lsn.0 + 1;
            // Most keys are never written again, so that most files stay as they are.
            let mut change = vec![put(&format!("row {lsn:06}"), &format!("value {lsn} ").repeat(30))];
            if lsn.is_multiple_of(5) {
                change.push(delete(&format!("row {:06}", lsn / 2)));
            }
            self.target.execute(at(lsn), &change);
            self.model.execute(&mut self.source, at(lsn), change);
            self.source.publish(Lsn(lsn)).unwrap();
        }
    }

    /// The same, and then a flush of the primary, and a merge if one is due.
    fn flush(&mut self, entries: u64) {
        self.run(entries);
        self.source.checkpoint().unwrap();
        self.source.wait_for_merge().unwrap();
    }

    fn check(&self) {
        for engine in [&self.source, &self.target] {
            let applied = engine.applied().lsn;
            assert_eq!(applied, self.model.applied().lsn);
            for lsn in [engine.read_floor(), Lsn(engine.read_floor().0.midpoint(applied.0)), applied] {
                assert_eq!(all(engine, ReadAt::Lsn(lsn), 50), self.model.rows(lsn), "at {lsn}");
            }
        }
    }

    /// Ships what is missing, calls `between` after each piece, and returns how many bytes were shipped.
    fn ship(&mut self, pin: PinId, set: &ComponentSet, mut between: impl FnMut(&mut Pair)) -> u64 {
        let mut shipped = 0;
        while let Some(missing) = self.target.missing().first().copied() {
            let bytes = self.source.read_component(pin, missing.file, missing.from, PIECE).unwrap().unwrap();
            assert!(!bytes.is_empty() && bytes.len() <= PIECE);
            assert!(!self.target.receive_piece(missing.file, missing.from + 1, &bytes).unwrap());
            assert!(self.target.receive_piece(missing.file, missing.from, &bytes).unwrap());
            shipped += bytes.len() as u64;
            between(self);
        }
        assert!(shipped <= set.bytes());
        shipped
    }

    fn install(&mut self) -> Installation {
        let (wake, woken) = waker();
        let mut stands = self.target.begin_installation(&wake).unwrap();
        while stands == Installation::Waiting {
            woken.recv_timeout(WAIT_LIMIT).expect("it is woken while it waits");
            stands = self.target.go_on_installation().unwrap();
        }
        stands
    }
}

#[test]
fn versions_are_installed_under_reads_and_writes() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    assert!(pair.source.pin().unwrap().is_none(), "there is nothing to ship yet");
    let mut saved = 0;
    for round in 0..8 {
        pair.flush(60);
        let (pin, set) = pair.source.pin().unwrap().unwrap();
        assert_eq!((set.at, set.fault()), (pair.source.persisted(), None));
        assert!(pair.target.receive(set.clone()).unwrap());
        // The primary goes on writing and merging away what is being shipped.
        let mut pieces = 0;
        let shipped = pair.ship(pin, &set, |pair| {
            pieces += 1;
            if u64::is_multiple_of(pieces, 20) {
                pair.flush(3);
                pair.check();
            }
        });
        saved += set.bytes() - shipped;
        pair.run(2);
        let before = pair.target.digest(ReadAt::Applied).unwrap();
        assert_eq!(pair.install(), Installation::Done, "round {round}");
        assert_eq!((pair.target.persisted(), pair.target.published()), (set.at, set.at));
        assert_eq!(pair.target.digest(ReadAt::Applied).unwrap(), before);
        pair.source.unpin(pin);
        assert_eq!(pair.source.read_component(pin, 0, 0, 1).unwrap(), None);
        pair.check();
    }
    assert!(saved > 0, "files that both have are not shipped again");
    pair.target.verify().unwrap();
    // A failover: the backup publishes what it has, and goes on by itself.
    let end = pair.target.applied().lsn;
    pair.target.publish(end).unwrap();
    pair.target.checkpoint().unwrap();
    pair.target.wait_for_merge().unwrap();
    pair.check();
    drop(pair.target);
    pair.target = LsmEngine::open(&dir.path().join("target")).unwrap();
    pair.check();
}

#[test]
fn what_has_arrived_is_kept_over_a_restart_and_for_the_next_set() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    // With the flush below these are three: a fourth would begin a merge, whose end could be before or after
    // the next pin.
    for _ in 0..2 {
        pair.flush(40);
    }
    let (pin, set) = pair.source.pin().unwrap().unwrap();
    assert!(set.files.len() > 1);
    assert!(pair.target.receive(set.clone()).unwrap());
    let first = set.files[0].bytes;
    while pair.target.missing()[0].file == 0 {
        let missing = pair.target.missing()[0];
        let bytes = pair.source.read_component(pin, 0, missing.from, PIECE).unwrap().unwrap();
        pair.target.receive_piece(0, missing.from, &bytes).unwrap();
    }
    assert_eq!(pair.install(), Installation::Refused("no whole set has been received".into()));
    drop(pair.target);
    pair.target = LsmEngine::open(&dir.path().join("target")).unwrap();
    assert_eq!((pair.target.persisted(), pair.target.missing()), (Position::ZERO, vec![]));
    // Another flush: the next set has the same files and one more.
    pair.model.log.iter().for_each(|(at, change)| pair.target.execute(*at, change));
    pair.run(10);
    pair.source.checkpoint().unwrap();
    let (next_pin, next) = pair.source.pin().unwrap().unwrap();
    assert!(next.files.contains(&set.files[0]));
    assert!(pair.target.receive(next.clone()).unwrap());
    assert_eq!(pair.ship(next_pin, &next, |_| {}), next.bytes() - first);
    assert_eq!(pair.install(), Installation::Done);
    pair.check();
}

/// To compare with: whatever is here counts for nothing, also if nothing is lacking.
#[test]
fn a_set_is_received_whole_where_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    pair.flush(60);
    for above in [0, 7, 0] {
        let (pin, set) = pair.source.pin().unwrap().unwrap();
        assert!(pair.target.receive_whole(set.clone()).unwrap());
        assert_eq!(pair.ship(pin, &set, |_| {}), set.bytes());
        pair.run(above);
        let end = pair.source.published().lsn;
        pair.target.publish(end).unwrap();
        assert_eq!(pair.install(), Installation::Done);
        assert_eq!((pair.target.persisted(), pair.target.published().lsn), (set.at, end));
        pair.source.unpin(pin);
        pair.check();
        assert!(!pair.target.receive(set).unwrap() || above == 0, "there is more here than in the set");
        pair.target.stop_receiving().unwrap();
    }
    pair.target.verify().unwrap();
}

#[test]
fn a_crash_leaves_the_old_state_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    let mut states = vec![(Position::ZERO, 0)];
    for round in 0..2 {
        pair.flush(50);
        let digest = pair.source.digest(ReadAt::Applied).unwrap();
        let (pin, set) = pair.source.pin().unwrap().unwrap();
        states.push((set.at, digest));
        assert!(pair.target.receive(set.clone()).unwrap());
        let mut copies = 0;
        let mut look = |old: usize| {
            let copy_dir = dir.path().join(format!("crash {round} {copies}"));
            copies += 1;
            copy(&dir.path().join("target"), &copy_dir);
            let mut engine = LsmEngine::open(&copy_dir).unwrap();
            let found = (engine.persisted(), engine.digest(ReadAt::Applied).unwrap());
            assert!(states[old..].contains(&found), "{found:?}");
            engine.verify().unwrap();
        };
        pair.ship(pin, &set, |_| look(round));
        let (wake, woken) = waker();
        assert_eq!(pair.target.begin_installation(&wake).unwrap(), Installation::Waiting);
        // What a power loss leaves in between is no copy of files that are being changed: `tools/crash` looks
        // at that.
        woken.recv_timeout(WAIT_LIMIT).expect("it is woken");
        look(round);
        assert_eq!(pair.target.go_on_installation().unwrap(), Installation::Done);
        look(round + 1);
    }
}

#[test]
fn tainted_files_are_wanted_again_and_tainted_sets_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    pair.flush(40);
    pair.flush(40);
    let (pin, set) = pair.source.pin().unwrap().unwrap();
    assert!(pair.target.receive(set.clone()).unwrap());
    // One bit of the second file is wrong on the way.
    let mut flipped = false;
    while let Some(missing) = pair.target.missing().first().copied() {
        let bytes = pair.source.read_component(pin, missing.file, missing.from, PIECE).unwrap().unwrap();
        let mut bytes = bytes.to_vec();
        if missing.file == 1 && !flipped {
            (bytes[3], flipped) = (bytes[3] ^ 4, true);
        }
        assert!(pair.target.receive_piece(missing.file, missing.from, &bytes).unwrap());
    }
    assert_eq!(pair.install(), Installation::Tainted(vec![1]));
    pair.check();
    assert_eq!(pair.ship(pin, &set, |_| {}), set.files[1].bytes);
    // A set that lies about its order, its position or a file's number.
    let mut order = set.clone();
    order.order[40] ^= 1;
    assert!(!pair.target.receive(order).unwrap());
    let mut short = set.clone();
    short.order.truncate(20);
    assert!(!pair.target.receive(short).unwrap());
    let mut later = set.clone();
    later.at = at(81);
    let mut fewer = set.clone();
    fewer.files.pop();
    for lie in [later, fewer] {
        assert!(pair.target.receive(lie.clone()).unwrap());
        pair.ship(pin, &lie, |_| {});
        let refused = pair.install();
        assert!(matches!(&refused, Installation::Refused(_)), "{refused:?}");
        assert!(!dir.path().join("target/incoming").exists());
        pair.check();
    }
    assert!(pair.target.receive(set.clone()).unwrap());
    pair.ship(pin, &set, |_| {});
    assert_eq!(pair.install(), Installation::Done);
    pair.check();
}

/// Flips a byte in the middle of a component of this engine.
fn rot_a_file(engine: &Path) {
    let trees = std::fs::read_dir(engine).unwrap().map(|entry| entry.unwrap().path().join("tables"));
    let tables = trees.into_iter().find(|path| path.is_dir()).expect("there is a tree");
    let file = std::fs::read_dir(tables).unwrap().next().expect("it has a component").unwrap();
    rot(&file.path());
}

/// Flips a byte in the middle of a file that is there already.
fn rot(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 8], at).unwrap();
}

#[test]
fn f11_a_file_that_rotted_here_is_not_taken_for_the_one_of_the_set() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    pair.flush(40);
    let (pin, set) = pair.source.pin().unwrap().unwrap();
    assert!(pair.target.receive(set.clone()).unwrap());
    pair.ship(pin, &set, |_| {});
    assert_eq!(pair.install(), Installation::Done);
    pair.flush(10);
    let (pin, next) = pair.source.pin().unwrap().unwrap();
    let both = next.files.iter().position(|file| set.files.contains(file)).expect("a file stays as it is");
    let trees: Vec<_> = std::fs::read_dir(dir.path().join("target")).unwrap().collect();
    let tree = trees.iter().map(|entry| entry.as_ref().unwrap().path());
    let tree = tree.into_iter().find(|path| path.join("tables").is_dir()).expect("the target has a tree");
    rot(&tree.join("tables").join(next.files[both].number.to_string()));
    assert!(pair.target.receive(next.clone()).unwrap());
    let shipped = pair.ship(pin, &next, |_| {});
    assert!(shipped < next.bytes(), "what is here is not sent");
    assert_eq!(pair.install(), Installation::Tainted(vec![both]));
    assert_eq!(pair.ship(pin, &next, |_| {}), next.files[both].bytes);
    assert_eq!(pair.install(), Installation::Done);
    pair.check();
    pair.target.verify().unwrap();
}

#[test]
fn a_replica_with_files_of_its_own_goes_on_with_those_it_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    for round in 0..6 {
        // Both flush and merge for themselves, and number their files alike.
        for _ in 0..3 {
            pair.flush(30);
            let end = pair.target.applied().lsn;
            pair.target.publish(end).unwrap();
            pair.target.checkpoint().unwrap();
        }
        pair.target.wait_for_merge().unwrap();
        // The target is away for a while.
        drop(pair.target);
        let target = LsmEngine::open(&dir.path().join("away")).unwrap();
        pair.target = target;
        pair.target.reset(pair.source.applied()).unwrap();
        pair.target.finish_install().unwrap();
        pair.flush(20);
        pair.target = LsmEngine::open(&dir.path().join("target")).unwrap();
        let (pin, set) = pair.source.pin().unwrap().unwrap();
        assert!(pair.target.receive(set.clone()).unwrap());
        pair.ship(pin, &set, |_| {});
        assert_eq!(pair.install(), Installation::Done, "round {round}");
        pair.source.unpin(pin);
        pair.check();
        pair.target.verify().unwrap();
    }
}

/// A hot backup publishes what is committed and makes no files: the primary's come later.
#[test]
fn what_is_published_above_a_set_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    for round in 0..6 {
        pair.flush(60);
        let (pin, set) = pair.source.pin().unwrap().unwrap();
        pair.run(15);
        pair.target.publish(Lsn(set.at.lsn.0 + 7)).unwrap();
        assert!(pair.target.receive(set.clone()).unwrap());
        pair.ship(pin, &set, |_| {});
        let (wake, woken) = waker();
        assert_eq!(pair.target.begin_installation(&wake).unwrap(), Installation::Waiting);
        // Beside the check both go on.
        pair.run(15);
        pair.target.publish(Lsn(set.at.lsn.0 + 20)).unwrap();
        let digest = pair.target.digest(ReadAt::Applied).unwrap();
        woken.recv_timeout(WAIT_LIMIT).expect("it is woken");
        assert_eq!(pair.target.go_on_installation().unwrap(), Installation::Done, "round {round}");
        assert_eq!((pair.target.persisted(), pair.target.published()), (set.at, at(set.at.lsn.0 + 20)));
        assert_eq!(pair.target.digest(ReadAt::Applied).unwrap(), digest);
        pair.source.unpin(pin);
        pair.check();
    }
    pair.target.verify().unwrap();
    // Promoted, it makes files of what was above.
    let end = pair.target.applied().lsn;
    pair.target.publish(end).unwrap();
    pair.target.checkpoint().unwrap();
    pair.target.wait_for_merge().unwrap();
    drop(pair.target);
    pair.target = LsmEngine::open(&dir.path().join("target")).unwrap();
    assert_eq!(pair.target.persisted().lsn, end);
    pair.check();
}

#[test]
fn a_set_below_files_of_its_own_is_of_no_use() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(dir.path());
    pair.flush(10);
    let (pin, set) = pair.source.pin().unwrap().unwrap();
    assert!(pair.target.receive(set.clone()).unwrap());
    pair.ship(pin, &set, |_| {});
    pair.run(5);
    pair.target.publish(Lsn(12)).unwrap();
    pair.target.checkpoint().unwrap();
    assert!(matches!(pair.install(), Installation::Refused(_)));
    assert!(!pair.target.receive(set).unwrap());
    pair.check();
    // What was pinned is gone with the tree.
    pair.source.reset(at(3)).unwrap();
    assert_eq!(pair.source.read_component(pin, 0, 0, 1).unwrap(), None);
}

#[test]
fn f11_an_engine_that_found_damage_takes_another_state() {
    let dir = tempfile::tempdir().unwrap();
    for by_rows in [false, true] {
        let mut pair = Pair::new(&dir.path().join(format!("{by_rows}")));
        pair.flush(40);
        let end = pair.target.applied().lsn;
        pair.target.publish(end).unwrap();
        pair.target.checkpoint().unwrap();
        rot_a_file(&dir.path().join(format!("{by_rows}/target")));
        // A merge meets it, beside flushes of what comes.
        let mut damage = None;
        while damage.is_none() {
            pair.run(10);
            let end = pair.target.applied().lsn;
            pair.target.publish(end).unwrap();
            let merged = pair.target.checkpoint().and_then(|_| pair.target.wait_for_merge());
            damage = merged.err();
        }
        assert!(matches!(damage, Some(types::EngineError::Corrupt(_))), "{damage:?}");
        assert!(pair.target.checkpoint().is_err(), "nothing more is made of it");
        pair.run(5);
        pair.source.checkpoint().unwrap();
        let base = pair.source.applied();
        if by_rows {
            pair.target.reset(base).unwrap();
            pair.target
                .install(&pair.source.scan(&[], &[], ReadAt::Applied, 10_000, 1 << 30).unwrap())
                .unwrap();
            pair.target.finish_install().unwrap();
        } else {
            let (pin, set) = pair.source.pin().unwrap().unwrap();
            assert!(pair.target.receive(set.clone()).unwrap());
            pair.ship(pin, &set, |_| {});
            assert_eq!(pair.install(), Installation::Done);
        }
        assert_eq!(pair.target.persisted(), base);
        pair.target.verify().unwrap();
        assert_eq!(all(&pair.target, ReadAt::Applied, 50), pair.model.rows(base.lsn));
    }
}
