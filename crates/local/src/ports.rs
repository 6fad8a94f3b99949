//! Free ports below those that the kernel gives to outgoing connections, so that a restarted process finds its own free.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;

/// Ports are chosen from here on.
const FIRST: u16 = 20_000;
/// Up to here.
const END: u16 = 32_000;

/// Hands out ports, none of them twice.
#[derive(Debug)]
pub(crate) struct Ports {
    next: u16,
    given: BTreeSet<u16>,
}

impl Ports {
    /// From a base on, or from anywhere: clusters that start at the same time should not try the same ones.
    pub(crate) fn from(base: Option<u16>) -> Ports {
        let random = || FIRST + (std::hash::RandomState::new().build_hasher().finish() % 12_000) as u16;
        Ports { next: base.unwrap_or_else(random), given: BTreeSet::new() }
    }

    /// A loopback address whose port nobody listens on now.
    pub(crate) fn address(&mut self) -> Option<String> {
        for _ in 0..20_000 {
            let port = self.next;
            self.next =
                if port >= END && self.given.iter().all(|given| *given < END) { FIRST } else { port + 1 };
            if !self.given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
                self.given.insert(port);
                return Some(format!("127.0.0.1:{port}"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_passed_over() {
        let mut ports = Ports::from(None);
        let first = ports.address().expect("a port");
        let _held = TcpListener::bind(&first).expect("free");
        let base = first.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
        let mut again = Ports::from(Some(base));
        let other = again.address().expect("a port");
        assert_ne!(first, other);
        assert_ne!(again.address(), Some(other));
    }
}
