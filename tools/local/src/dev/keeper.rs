//! The process in the foreground: it keeps the cluster, answers requests to start processes, and stops
//! everything at the end.

use crate::cluster::Cluster;
use crate::error::LocalError;
use crate::process;
use crate::terminal::Progress;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::NodeId;

/// The socket's name in the directory.
const SOCKET: &str = "dev.sock";
/// Between two looks at requests, signals and processes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long one request may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// How long the keeper may take to start what it is asked for.
const START_WITHIN: Duration = Duration::from_secs(90);
/// The longest path that a socket can have.
const PATH_BYTES: usize = 100;

/// Keeps a cluster.
pub(super) struct Keeper {
    cluster: Cluster,
    listener: UnixListener,
    socket: PathBuf,
    /// Processes whose end was told.
    told: BTreeSet<i32>,
}

impl Keeper {
    pub fn new(cluster: Cluster) -> Result<Keeper, LocalError> {
        let socket = cluster.dir().join(SOCKET);
        // Nobody listens on an old one: the directory had no running cluster.
        let _ = fs::remove_file(&socket);
        let listener = bind(&socket).map_err(LocalError::io(&socket))?;
        listener.set_nonblocking(true).map_err(LocalError::io(&socket))?;
        Ok(Keeper { cluster, listener, socket, told: BTreeSet::new() })
    }

    /// Runs until it is asked to stop; then stops the cluster.
    pub fn keep(mut self, out: &mut dyn Progress) -> Result<(), LocalError> {
        while process::stops_asked() == 0 {
            self.take_requests(out);
            for (name, pid) in self.cluster.ended() {
                if self.told.insert(pid) {
                    out.line(&format!("{name} (pid {pid}) ended"));
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        out.line("stopping");
        let _ = fs::remove_file(&self.socket);
        self.cluster.shutdown();
        Ok(())
    }

    fn take_requests(&mut self, out: &mut dyn Progress) {
        while let Ok((stream, _)) = self.listener.accept() {
            let answer = match request(&stream) {
                Ok(line) => self.carry_out(line.trim(), out),
                Err(error) => Err(error.to_string()),
            };
            let answer = match answer {
                Ok(news) => format!("ok {}\n", news.join("; ")),
                Err(why) => format!("failed {}\n", why.replace('\n', " ")),
            };
            // Whoever does not wait for the answer does not need it.
            let _ = (&stream).write_all(answer.as_bytes());
        }
    }

    /// Carries out a request. What the one who asked should hear besides: ports that were given up.
    fn carry_out(&mut self, line: &str, out: &mut dyn Progress) -> Result<Vec<String>, String> {
        let done = match line.split_once(' ') {
            Some((restart @ ("restart" | "restart-full"), node)) => {
                let node = NodeId(node.parse().map_err(|_| format!("`{node}` is no node"))?);
                let settings: &[_] = if restart == "restart" { &[] } else { &[("failback.full", "true")] };
                // Whoever asked waits for it to answer: meanwhile others can ask, too.
                self.cluster.restart_with(node, settings)
            }
            None if line == "power-loss" => self.cluster.restart_all(),
            _ => return Err(format!("`{line}` is no request")),
        };
        match &done {
            Ok(()) => out.line(&format!("{line}: done")),
            Err(error) => out.line(&format!("{line}: {error}")),
        }
        let news = self.cluster.take_news();
        news.iter().for_each(|line| out.line(line));
        for node in &self.cluster.file().nodes {
            out.line(&format!("  {}  pid {}", node.process.name, node.process.pid));
        }
        done.map(|()| news).map_err(|error| error.to_string())
    }
}

fn request(stream: &UnixStream) -> std::io::Result<String> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_WITHIN))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

/// Asks the process that keeps the cluster in `dir`. What else happened, if anything did.
pub(super) fn ask(dir: &Path, line: &str) -> Result<String, LocalError> {
    let path = fs::canonicalize(dir).map_err(LocalError::io(dir))?.join(SOCKET);
    let answer = exchange(&path, line).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => LocalError::NoCluster(dir.to_path_buf()),
        _ => LocalError::io(&path)(error),
    })?;
    match answer.trim().split_once(' ').unwrap_or((answer.trim(), "")) {
        ("ok", news) => Ok(news.to_string()),
        ("failed", why) => Err(LocalError::Failed(why.to_string())),
        _ => Err(LocalError::Failed(answer.trim().to_string())),
    }
}

fn exchange(path: &Path, line: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(short(path)?)?;
    stream.set_read_timeout(Some(START_WITHIN))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

fn bind(path: &Path) -> std::io::Result<UnixListener> {
    UnixListener::bind(short(path)?)
}

/// The path, if the kernel takes it for a socket.
fn short(path: &Path) -> std::io::Result<PathBuf> {
    if path.as_os_str().len() < PATH_BYTES {
        return Ok(path.to_path_buf());
    }
    let why = format!("its path is longer than {PATH_BYTES} bytes; give a shorter --dir");
    Err(std::io::Error::new(ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_over_the_socket() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = bind(&dir.path().join(SOCKET)).expect("bound");
        let server = std::thread::spawn(move || {
            for answer in ["ok \n", "ok a port was taken\n", "failed node 9 is unknown\n"] {
                let (mut stream, _) = listener.accept().expect("asked");
                assert_eq!(request(&stream).expect("a line"), "restart 2\n");
                stream.write_all(answer.as_bytes()).expect("answered");
            }
        });
        assert_eq!(ask(dir.path(), "restart 2").expect("ok"), "");
        assert_eq!(ask(dir.path(), "restart 2").expect("ok"), "a port was taken");
        let error = ask(dir.path(), "restart 2").expect_err("failed");
        assert_eq!(error.to_string(), "node 9 is unknown");
        server.join().expect("served");
        assert!(matches!(ask(dir.path(), "restart 2"), Err(LocalError::NoCluster(_))));
    }
}
