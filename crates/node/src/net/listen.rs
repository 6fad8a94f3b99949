//! Doors to listen at. Loopback only, unless it is said otherwise.

use crate::datadir::Ports;
use crate::failure::Failure;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

/// A process that finds its port taken ends with a sentence that has these words.
pub const PORT_IN_USE: &str = "is in use: is another process of this kind running?";

/// Binds the setting `name`, and refuses addresses that others can reach. Where port 0 is asked for, the port
/// of the life before is tried first, so that a restarted process is found where it was.
pub fn bind(
    name: &str,
    address: SocketAddr,
    insecure: bool,
    before: Option<SocketAddr>,
) -> Result<TcpListener, Failure> {
    allowed(name, address, insecure)?;
    if let Some(before) = before.filter(|before| address.port() == 0 && before.ip() == address.ip())
        && let Ok(listener) = nonblocking(before)
    {
        return Ok(listener);
    }
    nonblocking(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::new(1, format!("{name} {address} {PORT_IN_USE}")),
        _ => Failure::new(1, format!("{name} {address}: {error}")),
    })
}

/// Refuses an address that others can reach, unless that was said to be meant. `name` is the setting's.
pub fn allowed(name: &str, address: SocketAddr, insecure: bool) -> Result<(), Failure> {
    if address.ip().is_loopback() || insecure {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{name} {address} can be reached from other machines, and connections are not encrypted yet (there is no TLS in \
         this version); use a loopback address, or --insecure on a network that you trust"
    )))
}

fn nonblocking(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What came of an attempt to accept.
pub enum Accepted {
    /// A connection.
    One(mio::net::TcpStream),
    /// Nobody waits; an event tells when somebody does.
    All,
    /// Somebody waits, but the system has no room, as of file descriptors. No event tells when it has: try
    /// again.
    NotNow,
}

/// Accepts one connection.
pub fn accept(listener: &mio::net::TcpListener) -> Accepted {
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Accepted::One(stream),
            Err(error) => match error.kind() {
                // Whoever hung up while he waited is no reason to let the others wait.
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                ErrorKind::WouldBlock => return Accepted::All,
                _ => return Accepted::NotNow,
            },
        }
    }
}

/// The address that a listener got, noted under `name`.
pub fn note(ports: &mut Ports, name: &str, listener: &TcpListener) -> String {
    let address = listener.local_addr().expect("a bound listener has an address").to_string();
    ports.listen.insert(name.into(), address.clone());
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_reach_is_refused_by_name() {
        let open = "0.0.0.0:0".parse().expect("an address");
        let error = bind("node.listen_client", open, false, None).unwrap_err();
        assert!(error.status == 5 && error.sentence.contains("TLS") && error.sentence.contains("--insecure"));
        bind("node.listen_client", open, true, None).expect("allowed");
    }

    #[test]
    fn a_port_in_use_is_told_and_the_old_one_is_taken_again() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let first = bind("x", any, false, None).expect("binds");
        let taken = first.local_addr().expect("bound");
        let error = bind("node.listen_peer", taken, false, None).unwrap_err();
        assert!(error.sentence.contains("in use") && error.sentence.contains("node.listen_peer"), "{error}");
        let other = bind("x", any, false, Some(taken)).expect("binds elsewhere").local_addr().expect("bound");
        assert_ne!(other, taken);
        drop(first);
        assert_eq!(bind("x", any, false, Some(taken)).expect("binds").local_addr().expect("bound"), taken);
    }
}
