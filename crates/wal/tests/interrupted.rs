//! Openings that are interrupted at every step: what a damaged log lost is told by the next one (PR-473).

mod common;
use common::*;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{PartitionId, Position};
use understudy_wal::faulty::{Faults, MemFiles};
use understudy_wal::{File, Files, Log, Options, Owner, Recovered};

/// A partition that comes later.
const OTHER: PartitionId = PartitionId(66);

/// Files of which so many changes succeed, and nothing afterwards.
struct Interrupted {
    files: MemFiles,
    left: Arc<AtomicU64>,
}

struct InterruptedFile {
    file: Arc<dyn File>,
    left: Arc<AtomicU64>,
}

fn change(left: &AtomicU64) -> io::Result<()> {
    let took = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    took.map(drop).map_err(|_| io::Error::from_raw_os_error(5))
}

impl Interrupted {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(InterruptedFile { file, left: self.left.clone() })
    }
}

impl Files for Interrupted {
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>> {
        change(&self.left)?;
        Ok(self.file(self.files.create(name, preallocate)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.files.open(name)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        change(&self.left)?;
        self.files.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        change(&self.left)?;
        self.files.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        change(&self.left)?;
        self.files.sync_dir()
    }
}

impl File for InterruptedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = change(&self.left) {
            // A part of it may have been written.
            self.file.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.file.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn sync_data(&self) -> io::Result<()> {
        change(&self.left)?;
        self.file.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
}

/// What an owner is told of a partition that had something durable in the last segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Answer {
    Whole,
    Torn,
    Damaged,
}

fn answer(recovered: &Recovered) -> Answer {
    match recovered.partitions.get(&P) {
        Some(found) if found.damaged.is_some() => Answer::Damaged,
        Some(found) if found.torn_end => Answer::Torn,
        Some(_) => Answer::Whole,
        None if recovered.may_have_lost(P) => Answer::Damaged,
        None if recovered.may_have_torn(P) => Answer::Torn,
        None => Answer::Whole,
    }
}

fn open_log(files: Arc<dyn Files>, options: &Options) -> Option<Recovered> {
    let owner = Owner { begun: true, partitions: &|_| vec![P, Q] };
    Some(Log::open_for(files, options.clone(), &owner).ok()?.1)
}

/// A log of so many segments, all of it synced.
fn log_of(segments: usize, options: &Options, marked: bool) -> (MemFiles, Position) {
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    add(&mut log, Q, 1, b"in the first segment");
    while files.list().expect("lists").len() < segments {
        add(&mut log, if segments == 1 { P } else { Q }, 1, &[7; 500]);
        log.sync().expect("syncs");
        if segments == 1 {
            break;
        }
    }
    add(&mut log, P, 1, b"in the last segment");
    log.sync().expect("syncs");
    if marked {
        log.mark().expect("marks");
    }
    let end = log.end(P).expect("known").0;
    drop(log);
    (files, end)
}

/// Interrupts the opening of damaged files after every change, lets the machine lose power or not, and opens
/// them again, once more interrupted and then not. Returns at how many places it was interrupted.
fn interrupt_everywhere(damaged: &MemFiles, options: &Options, end: Position, what: &str) -> u64 {
    let undisturbed = open_log(Arc::new(damaged.copy()), options).expect("opens");
    let expected = answer(&undisturbed);
    if expected == Answer::Whole {
        // Only a head was hit, and nothing that it says is missing.
        assert_eq!(undisturbed.partitions[&P].end, end, "{what}: {undisturbed:?}");
        return 0;
    }
    for changes in 0..1_000 {
        let files = damaged.copy();
        let interrupted = |files: &MemFiles, changes: u64| {
            let left = Arc::new(AtomicU64::new(changes));
            open_log(Arc::new(Interrupted { files: files.clone(), left }), options).is_none()
        };
        if !interrupted(&files, changes) {
            return changes;
        }
        let after = [Some(files.copy()), Some(files.crash(None)), Some(files.crash(Some(changes)))];
        for (how, after) in after.into_iter().flatten().enumerate() {
            for second in [None, Some(changes / 2), Some(changes), Some(changes + 1)] {
                let files = after.copy();
                if let Some(second) = second {
                    interrupted(&files, second);
                }
                let what = format!("{what}, interrupted after {changes} and {second:?} changes, power {how}");
                let found = open_log(Arc::new(files.clone()), options);
                let found = found.unwrap_or_else(|| panic!("{what}: cannot be opened"));
                assert!(answer(&found) >= expected, "{what}: {found:?}");
                goes_on(&files, options, expected, &what);
            }
        }
    }
    panic!("{what}: it never opens");
}

/// What is written from now on is there after a power loss, and so is what was told.
fn goes_on(files: &MemFiles, options: &Options, expected: Answer, what: &str) {
    let (mut log, _) = open_with(files, options.clone());
    let written = add(&mut log, OTHER, 1, b"acknowledged");
    log.sync().expect("syncs");
    drop(log);
    let (log, found) = open_with(&files.crash(None), options.clone());
    assert!(answer(&found) >= expected, "{what}, after a power loss: {found:?}");
    assert_eq!(all(&log, OTHER), [written], "{what}, after a power loss");
}

/// Damages a file of a copy of the log.
type Damage = fn(&MemFiles, &str);

const DAMAGES: [(&str, Damage); 7] = [
    ("shortened to its head", |files, name| files.shorten(name, 10)),
    ("shortened to nothing", |files, name| files.shorten(name, 0)),
    ("shortened behind its head", |files, name| files.shorten(name, 200)),
    ("with a damaged head", |files, name| files.flip(name, 3, 1)),
    ("with a damaged body of its head", |files, name| files.flip(name, 60, 1)),
    ("without its first page", |files, name| files.ruin(name, 0)),
    ("full of something else", |files, name| {
        (0..files.contents(name).len() as u64).step_by(8).for_each(|at| files.flip(name, at, 0x55));
    }),
];

#[test]
fn pr473_what_shows_that_something_is_missing_stays_until_that_is_noted() {
    let mut places = 0;
    for segments in 1..=4 {
        for marked in [false, true] {
            for spares in [0, 2] {
                let options = Options { segment_bytes: 4096 * 2, spares, ..small() };
                let (files, end) = log_of(segments, &options, marked);
                let last = format!("{segments:08x}.log");
                for (what, damage) in DAMAGES {
                    let damaged = files.copy();
                    damage(&damaged, &last);
                    if segments == 1 && open_log(Arc::new(damaged.copy()), &options).is_none() {
                        continue;
                    }
                    let what =
                        format!("segment {last} of {segments} {what}, marked {marked}, {spares} spares");
                    places += interrupt_everywhere(&damaged, &options, end, &what);
                }
            }
        }
    }
    assert!(places > 300, "{places} places");
}

#[test]
fn pr473_where_there_is_no_room_for_a_segment_there_is_for_its_head() {
    let options = Options { segment_bytes: 16 * 4096, spares: 1, ..small() };
    let (files, _) = log_of(2, &options, true);
    files.shorten("00000002.log", 10);
    let used: usize = files.list().expect("lists").iter().map(|name| files.contents(name).len()).sum();
    for (room, opens) in [(100, false), (8 * 1024, true)] {
        let full = files.copy();
        full.set_faults(Faults { capacity: Some((used + room) as u64), ..Faults::default() });
        let found = open_log(Arc::new(full.clone()), &options);
        assert_eq!(found.as_ref().map(answer), opens.then_some(Answer::Damaged), "{room} bytes: {found:?}");
        full.set_faults(Faults::default());
        let found = open_log(Arc::new(full), &options).expect("opens");
        assert_eq!(answer(&found), Answer::Damaged, "{room} bytes");
    }
}

#[test]
fn pr474_a_segment_that_has_lost_its_head_is_no_torn_one() {
    let options = Options { segment_bytes: 8 * 4096, ..small() };
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    let mut ends = Vec::new();
    for _ in 0..4 {
        add(&mut log, P, 1, &[7; 50]);
        log.sync().expect("syncs");
        ends.push(files.contents("00000001.log").iter().rposition(|byte| *byte != 0).expect("written") as u64);
    }
    drop(log);
    // The head names no partition: that it is damaged says nothing about one.
    files.flip("00000001.log", 60, 1);
    for end in &ends[..3] {
        let damaged = files.copy();
        damaged.shorten("00000001.log", end + 9);
        let found = open_log(Arc::new(damaged), &options).expect("opens");
        assert_eq!(answer(&found), Answer::Damaged, "{found:?}");
    }
}

#[test]
fn pr473_several_segments_behind_the_end_leave_no_gap_wherever_their_removal_stops() {
    let mut places = 0;
    for marked in [false, true] {
        let options = Options { segment_bytes: 4096 * 2, ..small() };
        let (files, end) = log_of(5, &options, marked);
        for (what, damage) in DAMAGES {
            let damaged = files.copy();
            (3..=5).for_each(|number| damage(&damaged, &format!("{number:08x}.log")));
            places += interrupt_everywhere(&damaged, &options, end, &format!("segments 3 to 5 {what}"));
        }
    }
    assert!(places > 100, "{places} places");
}
