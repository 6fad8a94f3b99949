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
/// Between two questions over HTTP.
pub(super) const ASK_INTERVAL: Duration = Duration::from_millis(10);
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
    wait(process, within, ASK_INTERVAL, || match http::request("GET", address, path, ASK) {
        Ok((200..=299, _)) => Ok(()),
        Ok((status, body)) => Err(format!("{status} {body}")),
        Err(why) => Err(why),
    })
}

/// Waits until a node answers.
pub(super) fn wait_answers(process: &mut Process, address: &str, within: Duration) -> Result<(), LocalError> {
    wait(process, within, ASK_INTERVAL, || answers(address))
}

/// Whether the node with this HTTP address answers: a controller has let it in, and the thread that heard so
/// is the one that serves clients. The error says what is lacking. A full disk and a damaged replica are for
/// `status` to tell: with them a node answers all the same.
pub(super) fn answers(address: &str) -> Result<(), String> {
    let (_, body) = http::request("GET", address, "/readyz?verbose", ASK)?;
    lacking(&body).map_or(Ok(()), Err)
}

/// What `/readyz?verbose` says that a node lacks before it answers.
fn lacking(body: &str) -> Option<String> {
    let is_good = |name: &str| body.lines().any(|line| line.strip_prefix("[+]") == Some(name));
    match (is_good("running"), is_good("controllers")) {
        (true, true) => None,
        (true, false) => Some("no controller has let it in yet".into()),
        (false, _) => Some(format!("it says `{}`", body.replace('\n', " "))),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_answers_when_a_controller_has_let_it_in() {
        let damaged = "[+]controllers\n[+]running\n[-]disk\n[-]replicas\nnot ready";
        assert_eq!(lacking(damaged), None, "it serves what it has");
        let alone = "[-]controllers\n[+]running\n[+]disk\n[+]replicas\nnot ready";
        assert_eq!(lacking(alone).as_deref(), Some("no controller has let it in yet"));
        let ends = "[+]controllers\n[-]running\nnot ready";
        assert_eq!(lacking(ends).as_deref(), Some("it says `[+]controllers [-]running not ready`"));
    }
}
