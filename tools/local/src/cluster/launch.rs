//! Starting: which processes, with which arguments, and when they are ready.

use crate::error::LocalError;
use crate::http;
use crate::process::{Process, Program};
use node::datadir::{self, Kind, Ports};
use std::path::Path;
use std::time::{Duration, Instant};
use types::NodeId;
use types::config::Addresses;

/// Between two looks for a file that will appear.
const POLL_INTERVAL: Duration = Duration::from_millis(3);
/// How long one question over HTTP may take.
const ASK: Duration = Duration::from_secs(2);

/// Starts a process of ours. A data directory that does not exist is initialised.
pub(super) fn start_on(
    program: Program,
    data_dir: &Path,
    kind: Kind,
    node: NodeId,
) -> Result<Process, LocalError> {
    if !data_dir.exists() {
        datadir::init(data_dir, kind, node)?;
    }
    Process::start(program)
}

/// Waits until a process has written its ports: the file of a former life names another process.
pub(super) fn wait_ports(
    process: &mut Process,
    data_dir: &Path,
    within: Duration,
) -> Result<Ports, LocalError> {
    let pid = process.pid() as u32;
    wait(process, within, POLL_INTERVAL, || {
        Ports::read(data_dir).filter(|ports| ports.pid == pid).ok_or_else(|| "it opened no ports".to_string())
    })
}

/// The addresses of a node among its ports.
pub(super) fn addresses(ports: &Ports) -> Addresses {
    let address = |name: &str| ports.listen.get(name).cloned().unwrap_or_default();
    Addresses {
        client: address("client"),
        peer: address("peer"),
        heartbeat: address("heartbeat"),
        http: address("http"),
    }
}

/// Where a node speaks SQL.
pub(super) fn sql_address(ports: &Ports) -> String {
    ports.listen.get("sql").cloned().unwrap_or_default()
}

/// Waits until a process answers this path over HTTP with success.
pub(super) fn wait_http(
    process: &mut Process,
    address: &str,
    path: &str,
    within: Duration,
) -> Result<(), LocalError> {
    wait(process, within, Duration::from_millis(10), || match http::request("GET", address, path, ASK) {
        Ok((200..=299, _)) => Ok(()),
        Ok((status, body)) => Err(format!("{status} {body}")),
        Err(why) => Err(why),
    })
}

/// Tries until it succeeds, the process ends or the time is over.
fn wait<T>(
    process: &mut Process,
    within: Duration,
    pause: Duration,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, LocalError> {
    let deadline = Instant::now() + within;
    loop {
        let why = match attempt() {
            Ok(done) => return Ok(done),
            Err(why) => why,
        };
        let (name, log) = (process.program().name.clone(), process.program().log.clone());
        if !process.is_running() {
            let (why, status) = process.last_words();
            if is_port_taken(&why) {
                return Err(LocalError::PortTaken { name, why, log });
            }
            return Err(LocalError::NotStarted { name, why, status, log });
        }
        if Instant::now() >= deadline {
            return Err(LocalError::NotReady { name, seconds: within.as_secs(), why, log });
        }
        std::thread::sleep(pause);
    }
}

/// True if a process ended with these words because somebody else has its port.
fn is_port_taken(why: &str) -> bool {
    why.contains(node::net::listen::PORT_IN_USE) || why.contains("address already in use")
}
