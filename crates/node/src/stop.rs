//! How a process is asked to end: by a signal, or by whoever started it on threads of its own process.

use crate::failure::Failure;
use mio::Waker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

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
    waker: Arc<Waker>,
}

impl Stopper {
    /// For the loop that this waker wakes.
    pub fn new(waker: Arc<Waker>) -> Stopper {
        Stopper { flag: Arc::new(AtomicU8::new(0)), waker }
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

    /// The loop's waker.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
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
