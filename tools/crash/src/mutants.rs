//! Bugs, put into a recording: what a process would have done that has them. What is found in such a
//! recording shows what the recorder can find.
//!
//! A process that leaves a sync out does everything else as before, so its recording is the sound one without
//! that sync. So no mutant needs a place in the engine.

use crate::record::{Change, Node, Recording, Step};
use crate::scenario::Scenario;

/// A bug.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// What it does wrongly.
    pub name: &'static str,
    /// Where it shows.
    pub scenario: Scenario,
    /// Makes the recording that of a process with the bug.
    change: fn(&mut Vec<Step>),
}

impl Mutant {
    /// The recording of a process that has the bug. Panics if the sound one never does what the bug does
    /// wrongly.
    pub fn apply(&self, sound: &Recording) -> Recording {
        let mut mutated = sound.clone();
        (self.change)(&mut mutated.steps);
        assert_ne!(mutated.steps, sound.steps, "{}: there is nothing to do wrongly", self.name);
        mutated
    }
}

/// Those that the recorder must find.
pub const MUTANTS: [Mutant; 14] = [
    mutant("a received file is installed without having been synced", Scenario::Install, |steps| {
        unsynced(steps, |path| path.starts_with("engine/incoming/tree/tables/"))
    }),
    mutant("the names of received files are not synced", Scenario::Install, |steps| {
        unsynced(steps, |path| path == "engine/incoming/tree/tables")
    }),
    mutant("the order of a received set is not synced", Scenario::Install, |steps| {
        unsynced(steps, |path| path.starts_with("engine/incoming/tree/v"))
    }),
    // Opening the tree syncs it too: one of the two would do.
    mutant(
        "the directory of a received set is synced neither before it is renamed nor after",
        Scenario::Install,
        |steps| unsynced(steps, |path| path == "engine/incoming/tree" || is_tree(path)),
    ),
    mutant("the new content of CURRENT is not synced", Scenario::Install, |steps| {
        unsynced(steps, |path| path == "engine/CURRENT.new")
    }),
    mutant("the engine's directory is not synced", Scenario::Install, |steps| {
        unsynced(steps, |path| path == "engine")
    }),
    mutant("a flushed file is not synced", Scenario::Flush, |steps| {
        unsynced(steps, |path| path.starts_with("engine/tree-000001/tables/"))
    }),
    mutant("the names of flushed files are not synced", Scenario::Flush, |steps| {
        unsynced(steps, |path| path == "engine/tree-000001/tables")
    }),
    mutant("a tree's version is not synced", Scenario::Flush, |steps| {
        unsynced(steps, |path| path.starts_with("engine/tree-000001/v"))
    }),
    mutant("the tree's directory is not synced", Scenario::Merge, |steps| {
        unsynced(steps, |path| path == "engine/tree-000001")
    }),
    mutant("`persisted` is told before the sync", Scenario::Flush, |steps| told_early(steps, "persisted")),
    mutant("a staged file is not synced", Scenario::Load, |steps| {
        unsynced(steps, |path| path.starts_with("engine/staged/") && is_number(path))
    }),
    mutant("a load is told to be staged before the sync", Scenario::Load, |steps| {
        told_early(steps, "staged")
    }),
    mutant(
        "the links of a load's files are not synced before the version that names them",
        Scenario::Load,
        |steps| unsynced(steps, |path| path == "engine/tree-000001/tables"),
    ),
];

const fn mutant(name: &'static str, scenario: Scenario, change: fn(&mut Vec<Step>)) -> Mutant {
    Mutant { name, scenario, change }
}

/// Leaves out the syncs of paths.
fn unsynced(steps: &mut Vec<Step>, is_meant: impl Fn(&str) -> bool) {
    steps.retain(|step| !matches!(step.change, Change::Sync(_)) || !is_meant(&step.path));
}

/// Has it said before the last sync instead of after it.
fn told_early(steps: &mut [Step], word: &str) {
    let is_meant = |step: &Step| matches!(&step.change, Change::Note(note) if note.starts_with(word));
    for at in (0..steps.len()).filter(|at| is_meant(&steps[*at])).collect::<Vec<_>>() {
        let sync = (0..at).rev().find(|before| matches!(steps[*before].change, Change::Sync(_)));
        steps[sync.expect("nothing is kept without a sync")..=at].rotate_right(1);
    }
}

fn is_tree(path: &str) -> bool {
    path.strip_prefix("engine/tree-").is_some_and(|rest| !rest.contains('/') && rest != "000001")
}

fn is_number(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.parse::<u64>().is_ok())
}

/// Bugs that do something at another time, or to another file.
pub const MOVED: [Mutant; 3] = [
    Mutant {
        name: "the old tree goes before CURRENT names the new one",
        scenario: Scenario::Install,
        change: |steps| {
            let rename =
                |step: &Step| matches!(step.change, Change::Rename(..)) && step.path == "engine/CURRENT";
            let last = steps.iter().rposition(rename).expect("a set is installed");
            let goes = |step: &Step| {
                matches!(step.change, Change::Unname(_)) && step.path.starts_with("engine/tree-")
            };
            let first = last + steps[last..].iter().position(goes).expect("the old tree goes");
            let count = steps[first..].iter().take_while(|step| goes(step)).count();
            steps[last..first + count].rotate_right(count);
        },
    },
    Mutant {
        name: "CURRENT is written over instead of replaced",
        scenario: Scenario::Install,
        change: overwrite_current,
    },
    Mutant {
        name: "a version goes before `current` names the next one",
        scenario: Scenario::Flush,
        change: |steps| {
            let goes = |step: &Step| {
                matches!(step.change, Change::Unname(_)) && step.path.starts_with("engine/tree-000001/v")
            };
            let last = steps.iter().rposition(goes).expect("versions go");
            let rename = |step: &Step| step.path == "engine/tree-000001/current";
            let first = steps[..last]
                .iter()
                .rposition(|step| rename(step) && matches!(step.change, Change::Rename(..)));
            steps[first.expect("`current` is replaced")..=last].rotate_right(1);
        },
    },
];

/// What is written to CURRENT.new goes to the file that CURRENT is from the first time on.
fn overwrite_current(steps: &mut Vec<Step>) {
    let mut first: Option<Node> = None;
    let mut new: Option<Node> = None;
    steps.retain_mut(|step| match &mut step.change {
        Change::Rename(_, _, node) if step.path == "engine/CURRENT" => {
            let keep = first.is_none();
            first.get_or_insert(*node);
            keep
        }
        Change::Name(_, node) if step.path == "engine/CURRENT.new" => {
            new = Some(*node);
            if let Some(first) = first {
                step.change = Change::SetLength(first, 0);
            }
            true
        }
        Change::Write(node, ..) | Change::Sync(node) => {
            if let (Some(first), true) = (first, Some(*node) == new) {
                *node = first;
            }
            true
        }
        _ => true,
    });
}
