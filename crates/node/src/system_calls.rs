//! System calls that are counted, so that what an operation costs can be read from a node's metrics: those of
//! its executors and of its log. Not among them are heartbeats, the SQL gateway's sockets, files of engines,
//! and what threads wait for without a poll.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of all threads of a node together. They only grow.
#[derive(Debug, Default)]
pub struct SystemCalls {
    polls: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    wakes: AtomicU64,
    file_writes: AtomicU64,
}

/// What one executor has counted since it last told [`SystemCalls::add`]. Threads that share a counter slow
/// each other down, so each does so once in a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TurnCalls {
    /// Waits for events, and looks for some without waiting.
    pub polls: u64,
    /// Reads of sockets.
    pub reads: u64,
    /// Writes to sockets.
    pub writes: u64,
}

impl SystemCalls {
    /// Adds what an executor has counted.
    pub fn add(&self, calls: TurnCalls) {
        let TurnCalls { polls, reads, writes } = calls;
        for (counter, count) in [(&self.polls, polls), (&self.reads, reads), (&self.writes, writes)] {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// A thread wakes an executor.
    pub fn count_wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    /// Something is written to a file of the log.
    pub fn count_file_write(&self) {
        self.file_writes.fetch_add(1, Ordering::Relaxed);
    }

    /// What each kind of call is called in metrics, and how many there were.
    pub fn each(&self) -> [(&'static str, u64); 5] {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("poll", load(&self.polls)),
            ("read", load(&self.reads)),
            ("write", load(&self.writes)),
            ("wake", load(&self.wakes)),
            ("file_write", load(&self.file_writes)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_threads_are_added_up_by_their_kinds() {
        let calls = SystemCalls::default();
        calls.add(TurnCalls { polls: 1, reads: 2, writes: 0 });
        calls.add(TurnCalls { polls: 1, reads: 0, writes: 5 });
        (0..3).for_each(|_| calls.count_wake());
        calls.count_file_write();
        let expected = [("poll", 2), ("read", 2), ("write", 5), ("wake", 3), ("file_write", 1)];
        assert_eq!(calls.each(), expected);
    }
}
