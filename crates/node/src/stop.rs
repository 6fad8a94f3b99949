//! How a process is asked to end: by a signal, or by whoever started it on threads of its own process.

use crate::failure::Failure;
use mio::Waker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How a process is to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Stop {
    /// Not at all.
    No = 0,
    /// Hand over, write everything, mark the log.
    Gently = 1,
    /// At once, as if it had been killed.
    Now = 2,
}

/// Asks one event loop to end.
#[derive(Clone, Debug)]
pub struct Stopper {
    flag: Arc<AtomicU8>,
    /// Why it cannot go on.
    broken: Arc<Mutex<Option<String>>>,
    waker: Arc<Waker>,
}

impl Stopper {
    /// For the loop that this waker wakes.
    pub fn new(waker: Arc<Waker>) -> Stopper {
        Stopper { flag: Arc::new(AtomicU8::new(0)), broken: Arc::default(), waker }
    }

    /// Asks it to end. It never ends more gently than it was asked before.
    pub fn ask(&self, how: Stop) {
        self.flag.fetch_max(how as u8, Ordering::AcqRel);
        // Fails only when the loop is gone.
        let _ = self.waker.wake();
    }

    /// How it is to end.
    pub fn asked(&self) -> Stop {
        match self.flag.load(Ordering::Acquire) {
            0 => Stop::No,
            1 => Stop::Gently,
            _ => Stop::Now,
        }
    }

    /// Tells it that it cannot go on. The first reason counts.
    pub fn broke(&self, why: String) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        // Fails only when the loop is gone.
        let _ = self.waker.wake();
    }

    /// Why it cannot go on.
    pub fn broken(&self) -> Option<String> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The loop's waker.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}

/// Held by a thread that a loop relies on: if it ends without having been asked to, by a panic too, so does
/// the loop.
#[derive(Debug)]
pub struct Watched {
    stopper: Stopper,
    name: &'static str,
    well: bool,
}

impl Watched {
    /// For a thread of this name.
    pub fn new(stopper: &Stopper, name: &'static str) -> Watched {
        Watched { stopper: stopper.clone(), name, well: false }
    }

    /// The thread ends as it should.
    pub fn end_well(mut self) {
        self.well = true;
    }

    /// The thread ends because of this.
    pub fn end(self, why: &str) {
        self.stopper.broke(format!("the thread '{}' ended: {why}", self.name));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.well {
            self.stopper.broke(format!("the thread '{}' ended without being asked to", self.name));
        }
    }
}

/// Runs `wait` while SIGTERM and SIGINT ask to stop: the first gently, the second at once.
pub fn with_signals(stopper: Stopper, wait: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let system = |error: std::io::Error| Failure::new(1, format!("signals cannot be caught: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(system)?;
    let handle = signals.handle();
    let listen = move || {
        for (count, _) in signals.forever().enumerate() {
            stopper.ask(if count == 0 { Stop::Gently } else { Stop::Now });
        }
    };
    let listener = std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(system)?;
    let outcome = wait();
    handle.close();
    // A panic was reported when it happened.
    let _ = listener.join();
    outcome
}
