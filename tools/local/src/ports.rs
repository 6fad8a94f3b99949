//! Free ports below those that the kernel gives to outgoing connections, so that a restarted process finds
//! its own free.
//!
//! A port is free when it is looked at, and bound by a process a moment later. Clusters that start at the
//! same time would choose the same ones in between, so that whoever chooses holds a lock until all are bound.
//! It is advice: where it cannot be had, and among programs that know nothing of it, a process that finds its
//! port taken gets another one.

use crate::process;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// Ports are chosen from here on.
const FIRST: u16 = 20_000;
/// Up to here.
pub(crate) const END: u16 = 32_000;
/// How long others are waited for who choose ports. They may be frozen.
const LOCK_WITHIN: Duration = Duration::from_secs(15);
/// Between two tries to get the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Hands out ports, none of them twice.
#[derive(Debug)]
pub(crate) struct FreePorts {
    next: u16,
    given: BTreeSet<u16>,
}

impl FreePorts {
    /// From a base on, or from anywhere: clusters that start at the same time should not try the same ones.
    /// None of those `given` already is handed out.
    pub(crate) fn from(base: Option<u16>, given: BTreeSet<u16>) -> FreePorts {
        let random = || FIRST + (std::hash::RandomState::new().build_hasher().finish() % 12_000) as u16;
        FreePorts { next: base.unwrap_or_else(random), given }
    }

    /// A loopback address whose port nobody listens on now.
    pub(crate) fn address(&mut self) -> Option<String> {
        for _ in 0..30_000 {
            let port = self.next;
            self.next = if port >= END { FIRST } else { port + 1 };
            let address = format!("127.0.0.1:{port}");
            if !self.given.contains(&port) && is_free(&address) {
                self.given.insert(port);
                return Some(address);
            }
        }
        None
    }
}

/// True if nobody listens at this address now.
pub(crate) fn is_free(address: &str) -> bool {
    TcpListener::bind(address).is_ok()
}

/// Held while ports are chosen, until they are bound: one cluster of a user at a time.
#[derive(Debug)]
pub(crate) struct PortLock {
    /// Unlocked when closed.
    _file: File,
}

impl PortLock {
    /// Waits for the lock. `None` if it cannot be had: then others may choose the same ports.
    pub(crate) fn take() -> Option<PortLock> {
        // Another user's file of this name could be neither opened nor locked.
        let path = std::env::temp_dir().join(format!("understudy-ports-{}.lock", process::user()));
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path).ok()?;
        let deadline = Instant::now() + LOCK_WITHIN;
        while file.try_lock().is_err() {
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Some(PortLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_skipped() {
        let mut ports = FreePorts::from(None, BTreeSet::new());
        let first = ports.address().expect("a port");
        let _held = TcpListener::bind(&first).expect("free");
        let base = first.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
        let mut again = FreePorts::from(Some(base), BTreeSet::from([base + 1]));
        let other = again.address().expect("a port");
        assert_ne!(first, other);
        assert_ne!(other, format!("127.0.0.1:{}", base + 1));
        assert_ne!(again.address(), Some(other));
    }

    #[test]
    fn one_at_a_time_chooses_ports() {
        let held = PortLock::take().expect("the temporary directory can be written");
        let waits = std::thread::spawn(|| PortLock::take().map(|_| Instant::now()));
        // Not a wait for an event: that the other one is not let in shows only over some time.
        std::thread::sleep(POLL_INTERVAL * 5);
        let freed = Instant::now();
        drop(held);
        assert!(waits.join().expect("no panic").is_some_and(|taken| taken >= freed));
    }
}
