//! What is wrong with the disk under a node's LSM engines, or with its process's open files: their own calls
//! fail then. What the crate `lsm-tree` does inside a flush or a merge does not; that it begins does.

use engine::lsm::FileCall;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers of errors: no room, no open file, and a disk that fails.
const ENOSPC: i32 = 28;
const EMFILE: i32 = 24;
const EIO: i32 = 5;

/// Calls that are refused for a while, as a pattern: of 64 calls in a row those whose bit is set.
type Pattern = u64;

/// The trouble of one node. The engines of a node share it.
#[derive(Default)]
pub struct Trouble(Mutex<TroubleState>);

#[derive(Default)]
struct TroubleState {
    calls: u32,
    full: Pattern,
    few_files: Pattern,
    /// The sync after so many others fails.
    failing_sync: Option<u64>,
    /// A sync has failed in this life of the process.
    failed: bool,
    /// A call was refused for want of room or of open files in this life of the process.
    refused: bool,
    /// What calls were made to fail with since the last look.
    injected: Vec<&'static str>,
}

impl Trouble {
    fn state(&self) -> MutexGuard<'_, TroubleState> {
        // A panic of a state machine is caught by the world, which is then over.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is no room for some of what is written; none: there is again.
    pub fn fill(&self, refused: Option<u64>) {
        self.state().full = refused.unwrap_or(0);
    }

    /// The process is given no open file for some of its calls; none: it is again.
    pub fn take_files(&self, refused: Option<u64>) {
        self.state().few_files = refused.unwrap_or(0);
    }

    /// The sync after so many others fails.
    pub fn fail_sync(&self, after: u64) {
        self.state().failing_sync = Some(after);
    }

    /// Everything is well again.
    pub fn end(&self) {
        let mut state = self.state();
        (state.full, state.few_files, state.failing_sync) = (0, 0, None);
    }

    /// True while calls may be refused that succeed later.
    pub fn is_passing(&self) -> bool {
        let state = self.state();
        state.full | state.few_files != 0
    }

    /// True while something is wrong, or will be with the next sync.
    pub fn is_there(&self) -> bool {
        let state = self.state();
        state.full | state.few_files != 0 || state.failing_sync.is_some() || state.failed
    }

    /// True if a call was refused since the process started that may succeed later. What came of it can be
    /// shown long after: it may have waited for room for a tail.
    pub fn has_refused(&self) -> bool {
        self.state().refused
    }

    /// True if a sync has failed since the process started.
    pub fn has_failed(&self) -> bool {
        self.state().failed
    }

    /// The process is gone.
    pub(super) fn process_ended(&self) {
        let mut state = self.state();
        (state.failed, state.refused) = (false, false);
    }

    /// What was made to fail since the last call, by name.
    pub(super) fn take_injected(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().injected)
    }

    /// Whether this call may be made, or how it fails.
    pub(super) fn before(&self, call: FileCall) -> io::Result<()> {
        let mut state = self.state();
        state.calls = (state.calls + 1) % 64;
        let turn = 1 << state.calls;
        let (number, name) = match call {
            FileCall::Open | FileCall::Write if state.few_files & turn != 0 => (EMFILE, "lsm-no-open-file"),
            FileCall::Write if state.full & turn != 0 => (ENOSPC, "lsm-no-room"),
            FileCall::Sync => match state.failing_sync {
                Some(0) => {
                    (state.failing_sync, state.failed) = (None, true);
                    (EIO, "lsm-sync-failed")
                }
                after => {
                    state.failing_sync = after.map(|after| after - 1);
                    return Ok(());
                }
            },
            _ => return Ok(()),
        };
        state.refused |= call != FileCall::Sync;
        state.injected.push(name);
        Err(io::Error::from_raw_os_error(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(trouble: &Trouble, call: FileCall) -> Option<i32> {
        trouble.before(call).err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn calls_fail_as_they_are_told_to_and_are_counted() {
        let trouble = Trouble::default();
        assert_eq!(fails(&trouble, FileCall::Write), None);
        trouble.fill(Some(u64::MAX));
        assert_eq!(fails(&trouble, FileCall::Open), None);
        assert_eq!(fails(&trouble, FileCall::Write), Some(ENOSPC));
        trouble.take_files(Some(u64::MAX));
        assert_eq!(fails(&trouble, FileCall::Open), Some(EMFILE));
        assert!(trouble.has_refused() && !trouble.has_failed());
        trouble.fail_sync(1);
        assert_eq!([fails(&trouble, FileCall::Sync), fails(&trouble, FileCall::Sync)], [None, Some(EIO)]);
        assert_eq!(fails(&trouble, FileCall::Sync), None, "once");
        assert!(trouble.has_failed());
        trouble.end();
        trouble.process_ended();
        assert_eq!(fails(&trouble, FileCall::Write), None);
        assert!(!trouble.has_refused() && !trouble.has_failed());
        assert_eq!(trouble.take_injected(), ["lsm-no-room", "lsm-no-open-file", "lsm-sync-failed"]);
        assert!(trouble.take_injected().is_empty());
    }
}
