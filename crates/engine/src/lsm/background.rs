//! Who does an engine's work beside its calls: threads at a node, a queue in simulated time in a simulator.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

/// A piece of work. It tells its outcome itself.
pub type Job = Box<dyn FnOnce() + Send>;

/// What an engine is about to do with a file, or with a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileCall {
    /// Opens one that is there, to read it or to sync it.
    Open,
    /// Makes one, or writes into it.
    Write,
    /// Makes it durable.
    Sync,
}

/// Does work beside an engine's calls.
pub trait Background: Send + Sync {
    /// Begins with a job, now or later.
    fn start(&self, name: &'static str, job: Job) -> io::Result<Box<dyn Running>>;

    /// The engine, or a job of it, has just made durable what it relies on from here on. A simulator notes
    /// what a loss of power leaves.
    fn made_durable(&self) {}

    /// Asked before the engine does something with a file of its own: an error is the call's, which is then
    /// not made. A simulator has disks fail so. What the crate `lsm-tree` does by itself is not asked for,
    /// but that a flush or a merge begins is.
    fn before(&self, _: FileCall, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A job that was begun.
pub trait Running: Send {
    /// True when it has ended, or will never be run.
    fn is_over(&self) -> bool;

    /// Somebody waits for what comes of it: it is run now, unless a thread runs it anyway.
    fn hurry(&mut self);

    /// Waits until it is over and has let go of everything.
    fn wait(&mut self);
}

/// A thread for each job.
pub struct Threads;

impl Background for Threads {
    fn start(&self, name: &'static str, job: Job) -> io::Result<Box<dyn Running>> {
        Ok(Box::new(Thread(Some(Builder::new().name(name.into()).spawn(job)?))))
    }
}

struct Thread(Option<JoinHandle<()>>);

impl Running for Thread {
    fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn hurry(&mut self) {}

    fn wait(&mut self) {
        // Whoever waits for an outcome sees that a panic left none.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

/// A job with an outcome. It is waited for, and its outcome lost, when this is dropped.
pub(super) struct Task<T> {
    outcome: Receiver<T>,
    running: Box<dyn Running>,
}

/// The job ended without an outcome: it panicked, or was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoOutcome;

impl<T: Send + 'static> Task<T> {
    /// Starts `work`, which sends its outcome before it ends.
    pub(super) fn start(
        background: &dyn Background,
        name: &'static str,
        work: impl FnOnce(Sender<T>) + Send + 'static,
    ) -> io::Result<Task<T>> {
        let (sender, outcome) = channel();
        let running = background.start(name, Box::new(move || work(sender)))?;
        Ok(Task { outcome, running })
    }

    /// True until the job has ended.
    pub(super) fn is_busy(&self) -> bool {
        !self.running.is_over()
    }

    /// What came of it, once that is known.
    pub(super) fn outcome(&self) -> Option<Result<T, NoOutcome>> {
        match self.outcome.try_recv() {
            Ok(outcome) => Some(Ok(outcome)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(NoOutcome)),
        }
    }

    /// Has it run now, if no thread does.
    pub(super) fn hurry(&mut self) {
        self.running.hurry();
    }

    /// Waits for the outcome and the end.
    pub(super) fn wait(&mut self) -> Result<T, NoOutcome> {
        self.running.hurry();
        let outcome = self.outcome.recv().map_err(|_| NoOutcome);
        self.running.wait();
        outcome
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.running.hurry();
        self.running.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A queue of one job.
    #[derive(Clone, Default)]
    struct Later(Arc<Mutex<Option<Job>>>);

    impl Background for Later {
        fn start(&self, _: &'static str, job: Job) -> io::Result<Box<dyn Running>> {
            *self.0.lock().unwrap() = Some(job);
            Ok(Box::new(self.clone()))
        }
    }

    impl Running for Later {
        fn is_over(&self) -> bool {
            self.0.lock().unwrap().is_none()
        }

        fn hurry(&mut self) {
            let job = self.0.lock().unwrap().take();
            job.into_iter().for_each(|job| job());
        }

        fn wait(&mut self) {}
    }

    fn begin(background: &dyn Background) -> Task<u32> {
        let work = |to: Sender<u32>| to.send(7).expect("somebody waits");
        Task::start(background, "work", work).unwrap()
    }

    #[test]
    fn a_thread_does_it_by_itself() {
        let mut task = begin(&Threads);
        assert_eq!(task.wait(), Ok(7));
        assert!(!task.is_busy());
        let panics = |_: Sender<u32>| panic!("as the test wants it");
        assert_eq!(Task::start(&Threads, "work", panics).unwrap().wait(), Err(NoOutcome));
    }

    #[test]
    fn what_is_queued_is_run_for_who_waits_and_may_be_dropped() {
        let queue = Later::default();
        let mut task = begin(&queue);
        assert!(task.is_busy() && task.outcome().is_none());
        assert_eq!(task.wait(), Ok(7));
        let task = begin(&queue);
        *queue.0.lock().unwrap() = None;
        assert!(!task.is_busy());
        assert_eq!(task.outcome(), Some(Err(NoOutcome)));
    }
}
