//! What every engine must do, as cases with names: [`check`] runs them on one. An engine that offers more
//! than it must is asked about that, too; what it does is compared with a [`Model`], the log itself.
//!
//! Only tests depend on this crate.

mod background;
mod history;
mod model;
mod reads;
mod restart;
mod shipping;
mod staging;

pub use model::{Model, all, at, delete, history, key, keyed, put, read, waker};

use bytes::Bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use types::{Component, Engine, EngineError, LoadId};

/// What is waited for has come by then.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// An engine that is to be checked.
pub trait Subject {
    /// Opens what is in `dir`, which may not exist yet.
    fn open(&self, dir: &Path) -> Result<Box<dyn Engine>, EngineError>;

    /// The files of a bulk load with these rows, which come as stored keys in order and each once, with their
    /// values. `scratch` does not exist, and is the caller's to remove. Asked only of engines that stage
    /// loads.
    fn load_files(&self, scratch: &Path, load: LoadId, rows: &[(Bytes, Bytes)]) -> Vec<(Component, Bytes)> {
        panic!(
            "it stages loads, and makes no files for load {load} of {} rows in {}",
            rows.len(),
            scratch.display()
        )
    }
}

/// Directories for the engines of one case.
pub struct Place<'a> {
    dir: tempfile::TempDir,
    subject: &'a dyn Subject,
}

impl<'a> Place<'a> {
    fn new(subject: &'a dyn Subject) -> Place<'a> {
        Place { dir: tempfile::tempdir().expect("a directory"), subject }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// The engine of this name.
    fn open_as(&self, name: &str) -> Box<dyn Engine> {
        self.subject.open(&self.path(name)).expect("opens")
    }

    /// The engine of a case that needs one.
    fn open(&self) -> Box<dyn Engine> {
        self.open_as("engine")
    }

    /// The same after a restart.
    fn reopen(&self, engine: Box<dyn Engine>) -> Box<dyn Engine> {
        drop(engine);
        self.open()
    }
}

/// A case: its name, and what it does.
type Case = (&'static str, fn(&Place));

macro_rules! cases {
    ($($group:ident::$case:ident,)*) => {
        const CASES: &[Case] = &[$((stringify!($case), $group::$case)),*];
    };
}

cases!(
    reads::a_new_engine_stands_at_zero,
    reads::tentative_entries_are_read_at_their_lsn_and_dropped,
    reads::publishing_changes_no_read,
    reads::reads_below_the_floor_are_refused,
    reads::a_raised_floor_changes_no_read_above_it,
    reads::scans_merge_tentative_and_published_rows,
    reads::scans_keep_to_their_limits_and_bounds,
    reads::r9_deletions_are_known_while_something_needs_them,
    reads::a_range_can_be_deleted_and_written_again,
    reads::the_position_is_not_among_the_rows,
    reads::digests_do_not_depend_on_the_rhythm,
    reads::the_longest_key_is_stored,
    reads::reads_take_keys_of_any_length,
    reads::memory_is_counted,
    restart::another_entry_takes_the_place_of_a_discarded_one,
    restart::entries_without_changes_move_the_positions,
    reads::what_is_read_ahead_changes_no_answer,
    restart::a_restart_finds_the_checkpoint_and_replays,
    restart::a_restart_without_a_checkpoint_finds_the_last_one,
    restart::tentative_entries_are_in_no_checkpoint,
    restart::sessions_are_in_the_checkpoint,
    restart::an_installed_state_is_the_senders,
    restart::an_interrupted_installation_leaves_nothing,
    restart::an_installation_refuses_foreign_rows,
    restart::damaged_files_are_refused_in_one_line,
    history::random_histories_follow_the_log,
    background::a_background_checkpoint_is_of_one_position,
    shipping::nothing_is_shipped_before_there_are_files,
    shipping::files_sent_by_one_are_the_state_of_another,
    shipping::what_is_above_a_set_stays,
    shipping::what_is_published_during_an_installation_stays,
    shipping::a_set_that_came_in_part_goes_on_after_a_restart,
    shipping::files_that_changed_on_their_way_are_wanted_again,
    shipping::pinned_files_stay_as_they_are,
    shipping::pinned_files_outlive_what_takes_their_place,
    shipping::sets_of_no_use_are_not_received,
    staging::a_load_is_visible_all_at_once,
    staging::a_staged_load_outlives_a_restart_until_it_is_given_up,
    staging::a_discarded_load_leaves_the_state_as_it_was,
    staging::tainted_files_of_a_load_are_wanted_again,
    staging::a_file_that_is_none_is_refused_in_one_line,
);

/// What a subject does wrong: the case's name, and what was found.
pub fn faults(subject: &dyn Subject) -> Vec<(&'static str, String)> {
    let fault = |(name, case): &Case| Some((*name, fault_in(subject, *case)?));
    CASES.iter().filter_map(fault).collect()
}

/// What a subject does wrong in the case of this name.
///
/// # Panics
///
/// If there is no such case.
pub fn fault_of(subject: &dyn Subject, name: &str) -> Option<String> {
    let case = CASES.iter().find(|(known, _)| *known == name);
    let (_, case) = case.unwrap_or_else(|| panic!("there is no case {name}"));
    fault_in(subject, *case)
}

fn fault_in(subject: &dyn Subject, case: fn(&Place)) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| case(&Place::new(subject))));
    let panic = outcome.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some(text.unwrap_or_default())
}

/// Panics if the subject does something wrong, and says in which cases.
pub fn check(subject: &dyn Subject) {
    let faults = faults(subject);
    let lines: Vec<String> = faults.iter().map(|(name, what)| format!("  {name}: {what}")).collect();
    assert!(lines.is_empty(), "{} of {} cases fail:\n{}", lines.len(), CASES.len(), lines.join("\n"));
}

/// Text for a person: one line that says something.
pub(crate) fn one_line(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.trim().is_empty() && text.lines().count() == 1, "not one line: {text:?}");
}
