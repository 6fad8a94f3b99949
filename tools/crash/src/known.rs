//! Opens the engine on every state that a power loss can have left of what was recorded.

use crate::check::{Found, examine};
use crate::promise::{Note, Promise};
use crate::record::{Change, Recording};
use crate::run::scratch;
use crate::scenario::Scenario;
use crate::states::{self, Effort};
use std::collections::BTreeMap;
use std::ops::Range;

/// How much was looked at.
#[derive(Clone, Copy, Default, Debug)]
pub struct Looked {
    /// States, alike ones too.
    pub states: u64,
    /// States that differ.
    pub opened: u64,
}

/// States that were opened, by content, and what was found in them.
#[derive(Default)]
pub struct Known {
    found: BTreeMap<u128, Found>,
    looked: Looked,
}

impl Known {
    /// How much was looked at.
    pub fn looked(&self) -> Looked {
        self.looked
    }

    /// Opens the engine on every state of a recording before some of its steps. The first that is not right
    /// is the error.
    pub fn check(
        &mut self,
        scenario: Scenario,
        recording: &Recording,
        before: Range<usize>,
        effort: Effort,
    ) -> Result<(), String> {
        let (mut promise, mut told) = (Promise::default(), 0);
        states::each(recording, before, effort, |state| {
            for step in &recording.steps[told..state.steps] {
                if let Change::Note(line) = &step.change {
                    let note = Note::read(line).ok_or_else(|| format!("the worker said '{line}'"))?;
                    promise.note(note);
                }
            }
            told = state.steps;
            self.looked.states += 1;
            let found = self.found.entry(state.image.digest()).or_insert_with(|| {
                self.looked.opened += 1;
                let dir = scratch();
                state.image.write(dir.path()).expect("there is room for a state");
                examine(scenario, &dir.path().join("engine"))
            });
            let Some(fault) = found.fault(&promise) else { return Ok(()) };
            let next = recording.steps.get(state.steps).map_or("the end".into(), ToString::to_string);
            let (name, steps, what) = (scenario.name(), state.steps, state.what);
            Err(format!(
                "{name}: a power loss before step {steps}, {next}, leaves of the unsynced {what}: {fault}"
            ))
        })
    }
}
