//! Every state that a power loss can have left.

use crate::image::Image;
use crate::record::{Change, Node, Recording, Step};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// The units in which a write is torn, in bytes: a sector, and a page.
const TORN: [usize; 2] = [512, 4096];

/// How many states are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// At each step, and not only before each sync, rename and note.
    pub each_step: bool,
    /// Each of the unsynced changes alone, and all but each.
    pub singles: bool,
    /// Each two of the unsynced changes alone, and all but each two.
    pub pairs: bool,
    /// So many arbitrary choices of the unsynced changes before each sync, rename and note.
    pub arbitrary: u64,
}

impl Effort {
    /// All of the unsynced changes, or none: as a file system leaves them that keeps their order.
    pub const ORDERED: Effort = Effort { each_step: false, singles: false, pairs: false, arbitrary: 0 };
    /// For many recordings.
    pub const LEAST: Effort = Effort { singles: true, ..Effort::ORDERED };
    /// For a few.
    pub const SHORT: Effort = Effort { each_step: true, arbitrary: 10, ..Effort::LEAST };
    /// For those who have time.
    pub const LONG: Effort = Effort { pairs: true, arbitrary: 100, ..Effort::SHORT };
}

/// A state that a power loss can have left.
pub struct CrashState {
    /// What the directory holds.
    pub image: Image,
    /// So many steps had been taken.
    pub steps: usize,
    /// What became of the unsynced changes, for people.
    pub what: String,
}

/// Goes through the states of a recording before some of its steps, in order.
pub fn each(
    recording: &Recording,
    before: Range<usize>,
    effort: Effort,
    mut visit: impl FnMut(CrashState) -> Result<(), String>,
) -> Result<(), String> {
    let mut walk = Walk::new(recording);
    for at in 0..before.end.min(recording.steps.len() + 1) {
        if at >= before.start {
            walk.states(at, effort, &mut visit)?;
        }
        if let Some(step) = recording.steps.get(at) {
            walk.pass(at, step);
        }
    }
    Ok(())
}

struct Walk<'a> {
    steps: &'a [Step],
    /// All changes below the first that is not durable.
    base: Image,
    /// The first that is not in `base`.
    first: usize,
    /// Which of the changes passed are durable.
    durable: Vec<bool>,
    /// Writes that no sync makes durable any more, because one failed.
    lost: BTreeSet<usize>,
}

impl<'a> Walk<'a> {
    fn new(recording: &'a Recording) -> Walk<'a> {
        let made = |step: &Step| match step.change {
            Change::NameDir(_, node) => Some(node),
            _ => None,
        };
        let directories: BTreeSet<Node> = recording.steps.iter().filter_map(made).collect();
        let base = Image::new(Rc::new(directories));
        Walk { steps: &recording.steps, base, first: 0, durable: Vec::new(), lost: BTreeSet::new() }
    }

    /// A step has been taken.
    fn pass(&mut self, at: usize, step: &Step) {
        self.durable.push(matches!(step.change, Change::Sync(_) | Change::SyncFailed(_) | Change::Note(_)));
        let (node, failed) = match step.change {
            Change::Sync(node) => (node, false),
            Change::SyncFailed(node) => (node, true),
            _ => return,
        };
        for before in (self.first..at).filter(|before| !self.durable[*before]).collect::<Vec<_>>() {
            if !makes_durable(node, &self.steps[before].change) || self.lost.contains(&before) {
                continue;
            }
            if !failed {
                self.durable[before] = true;
            } else if self.steps[before].is_write() {
                self.lost.insert(before);
            }
        }
        while self.durable.get(self.first) == Some(&true) {
            self.base.apply(&self.steps[self.first].change);
            self.first += 1;
        }
    }

    /// The states before step `at`.
    fn states(
        &self,
        at: usize,
        effort: Effort,
        visit: &mut impl FnMut(CrashState) -> Result<(), String>,
    ) -> Result<(), String> {
        let unsynced: Vec<usize> = (self.first..at).filter(|step| !self.durable[*step]).collect();
        let name = |step: usize| format!("{} ({step})", self.steps[step]);
        let mut take = |what: String, torn: Option<usize>, has: &dyn Fn(usize) -> bool| {
            visit(CrashState { image: self.image(at, torn, has), steps: at, what })
        };
        take("all".into(), None, &|_| true)?;
        if let Some(last) = unsynced.iter().rev().find(|step| self.steps[**step].is_write()) {
            for length in torn_lengths(&self.steps[*last]) {
                let what = format!("all, and of {} {length} bytes", name(*last));
                take(what, Some(length), &|_| true)?;
            }
        }
        let here = self.steps.get(at).is_none_or(|step| step.is_point());
        if !here && !effort.each_step {
            return Ok(());
        }
        take("none".into(), None, &|_| false)?;
        for &one in unsynced.iter().filter(|_| effort.singles) {
            take(format!("{} alone", name(one)), None, &|step| step == one)?;
            take(format!("all but {}", name(one)), None, &|step| step != one)?;
        }
        if here {
            for (nth, &one) in unsynced.iter().enumerate().filter(|_| effort.pairs) {
                for &two in &unsynced[nth + 1..] {
                    let both = format!("{} and {}", name(one), name(two));
                    take(format!("{both} alone"), None, &|step| step == one || step == two)?;
                    take(format!("all but {both}"), None, &|step| step != one && step != two)?;
                }
            }
            for choice in 0..effort.arbitrary {
                let has = |step: usize| mixed(at as u64, choice, step as u64).is_multiple_of(2);
                let taken = unsynced.iter().filter(|step| has(**step)).map(|step| name(*step));
                take(format!("only {}", taken.collect::<Vec<_>>().join(", ")), None, &has)?;
            }
        }
        Ok(())
    }

    /// The durable changes before `at`, and the unsynced ones that `has` names. Of the last unsynced write
    /// only so many bytes.
    fn image(&self, at: usize, torn: Option<usize>, has: &dyn Fn(usize) -> bool) -> Image {
        let mut image = self.base.clone();
        let last = (self.first..at).rev().find(|step| !self.durable[*step] && self.steps[*step].is_write());
        for step in self.first..at {
            if !self.durable[step] && !has(step) {
                continue;
            }
            match (&self.steps[step].change, torn) {
                (Change::Write(node, from, bytes), Some(length)) if Some(step) == last => {
                    image.apply(&Change::Write(*node, *from, bytes[..length].into()));
                }
                (change, _) => image.apply(change),
            }
        }
        image
    }
}

/// True if a sync of the node makes the change durable. A rename is durable when the directory is that it
/// leads to.
fn makes_durable(synced: Node, change: &Change) -> bool {
    match change {
        Change::Name(entry, _) | Change::NameDir(entry, _) | Change::Unname(entry) => entry.dir == synced,
        Change::Rename(_, to, _) => to.dir == synced,
        Change::Write(node, ..) | Change::SetLength(node, _) => *node == synced,
        Change::Sync(_) | Change::SyncFailed(_) | Change::Note(_) => true,
    }
}

/// How many bytes a torn write has left.
fn torn_lengths(step: &Step) -> BTreeSet<usize> {
    let Change::Write(_, _, bytes) = &step.change else { return BTreeSet::new() };
    let last = bytes.len().saturating_sub(1);
    let lengths = TORN.into_iter().flat_map(|unit| [unit, last / unit * unit]);
    lengths.filter(|length| (1..bytes.len()).contains(length)).collect()
}

/// Numbers that look random and are the same each time (SplitMix64).
fn mixed(a: u64, b: u64, c: u64) -> u64 {
    let mut mix = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.rotate_left(21) ^ c.rotate_left(42);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        mix = (mix ^ (mix >> 29)).wrapping_mul(factor);
    }
    mix ^ (mix >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Entry;

    const DIR: Node = Node(1);
    const FILE: Node = Node(2);

    fn entry(dir: Node, name: &str) -> Entry {
        Entry { dir, name: name.into() }
    }

    fn recording(changes: Vec<Change>) -> Recording {
        let steps = changes.into_iter().map(|change| Step { change, path: String::new() }).collect();
        Recording { steps, ..Recording::default() }
    }

    /// A directory, a file in it, and its content.
    fn begun() -> Vec<Change> {
        let name = Change::Name(entry(DIR, "new"), FILE);
        vec![Change::NameDir(entry(Node::ROOT, "dir"), DIR), name, Change::Write(FILE, 0, (*b"text").into())]
    }

    /// The files of every state after all steps, as paths and contents.
    fn left(changes: Vec<Change>, effort: Effort) -> BTreeSet<String> {
        let (recording, mut left) = (recording(changes), BTreeSet::new());
        let end = recording.steps.len();
        let outcome = each(&recording, end..usize::MAX, effort, |state| {
            let place = tempfile::tempdir().unwrap();
            state.image.write(place.path()).unwrap();
            let mut found = Vec::new();
            for name in ["dir/new", "dir/old"] {
                if let Ok(content) = std::fs::read(place.path().join(name)) {
                    found.push(format!("{name}={}", content.escape_ascii()));
                }
            }
            left.insert(if place.path().join("dir").is_dir() { found.join(" ") } else { "nothing".into() });
            Ok(())
        });
        outcome.unwrap();
        left
    }

    fn set(states: &[&str]) -> BTreeSet<String> {
        states.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn content_and_names_are_durable_each_by_a_sync_of_its_own() {
        let with = |syncs: &[Node]| {
            let syncs = syncs.iter().map(|node| Change::Sync(*node));
            left(begun().into_iter().chain(syncs).collect(), Effort::LEAST)
        };
        assert_eq!(with(&[]), set(&["nothing", "", "dir/new=", "dir/new=text"]));
        assert_eq!(with(&[FILE]), set(&["nothing", "", "dir/new=text"]));
        assert_eq!(with(&[Node::ROOT]), set(&["", "dir/new=", "dir/new=text"]));
        assert_eq!(with(&[Node::ROOT, DIR]), set(&["dir/new=", "dir/new=text"]));
        assert_eq!(with(&[FILE, DIR, Node::ROOT]), set(&["dir/new=text"]));
    }

    #[test]
    fn a_rename_is_one_step() {
        let mut changes = begun();
        changes.extend([Change::Sync(FILE), Change::Sync(DIR), Change::Sync(Node::ROOT)]);
        changes.push(Change::Rename(entry(DIR, "new"), entry(DIR, "old"), FILE));
        assert_eq!(left(changes.clone(), Effort::LEAST), set(&["dir/new=text", "dir/old=text"]));
        changes.push(Change::Sync(DIR));
        assert_eq!(left(changes, Effort::LEAST), set(&["dir/old=text"]));
    }

    #[test]
    fn what_a_failed_sync_has_lost_no_later_one_brings_back() {
        let mut changes = begun();
        changes.extend([Change::Sync(DIR), Change::Sync(Node::ROOT), Change::SyncFailed(FILE)]);
        changes.push(Change::Write(FILE, 4, (*b"more").into()));
        changes.push(Change::Sync(FILE));
        let lost = r"dir/new=\x00\x00\x00\x00more";
        assert_eq!(left(changes, Effort::LEAST), set(&["dir/new=textmore", lost]));
    }

    #[test]
    fn the_last_write_is_torn_at_sectors_and_pages() {
        let step = |length: usize| Step {
            change: Change::Write(FILE, 0, vec![1; length].into()),
            path: String::new(),
        };
        let lengths = |length: usize| torn_lengths(&step(length)).into_iter().collect::<Vec<_>>();
        assert!(lengths(512).is_empty());
        assert_eq!(lengths(513), [512]);
        assert_eq!(lengths(9000), [512, 4096, 8192, 8704]);
        let mut changes = begun();
        changes.extend([Change::Sync(DIR), Change::Sync(Node::ROOT), Change::Sync(FILE)]);
        changes.push(Change::Write(FILE, 0, vec![b'x'; 600].into()));
        let expected = ["text".to_owned(), "x".repeat(512), "x".repeat(600)];
        let expected = expected.iter().map(|content| format!("dir/new={content}")).collect();
        assert_eq!(left(changes, Effort::LEAST), expected);
    }
}
