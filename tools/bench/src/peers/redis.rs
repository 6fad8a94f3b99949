//! Redis 7: a primary and two replicas, with a synced append-only file or without any.

use super::resp::{self, RedisClient, Reply};
use super::server::{Server, find_program, free_address};
use crate::error::BenchError;
use crate::generate::{Steps, Values, Workload, key};
use crate::load::{Generator, blocking};
use crate::options::Common;
use crate::subject::{Counters, Load, Sources, Subject, Way};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use types::random::Random;

const REPLICAS: u32 = 2;

fn peer(why: impl Into<String>) -> BenchError {
    BenchError::Peer { peer: "redis", why: why.into() }
}

/// Where the server is installed, if it is.
pub fn installed() -> Option<PathBuf> {
    find_program("redis-server", &[Path::new("/usr/bin"), Path::new("/usr/local/bin")])
}

/// A primary with two replicas under load.
pub struct Redis {
    servers: Vec<Server>,
    controls: Vec<TcpStream>,
    generator: Generator<RedisClient>,
    steps: Steps,
    append_only: bool,
    version: String,
    update_percent: u8,
    // Behind the servers: removed after they were stopped.
    _folder: TempDir,
}

impl Redis {
    /// Starts all three, loads the records, connects `clients` clients.
    pub fn start(
        common: &Common,
        workload: &Workload,
        clients: u32,
        append_only: bool,
    ) -> Result<Redis, BenchError> {
        let program = installed().ok_or_else(|| peer("redis-server is not installed"))?;
        let folder = common.folder("redis")?;
        let mut servers: Vec<Server> = Vec::new();
        let mut controls = Vec::new();
        for number in 0..=REPLICAS {
            let primary = servers.first().map(|server| server.address);
            let mut server = launch(&program, folder.path(), number, primary, append_only)?;
            let control = server.connect(Duration::from_secs(10)).map_err(peer)?;
            controls.push(control);
            servers.push(server);
        }
        load(&mut controls[0], workload).map_err(peer)?;
        wait_for_replicas(&mut controls[0]).map_err(peer)?;
        let mut connections = Vec::new();
        for _ in 0..clients {
            let stream = servers[0].connect(Duration::from_secs(1)).map_err(peer)?;
            connections.push((stream, RedisClient::new(Some(REPLICAS), workload.value_bytes)));
        }
        let generator = Generator::new(connections)?;
        let update_percent = workload.update_percent;
        let steps = Steps::new(workload);
        let version = info(&mut controls[0], "server").map_err(peer)?;
        let version = field(&version, "redis_version").unwrap_or("unknown").to_string();
        Ok(Redis {
            servers,
            controls,
            generator,
            steps,
            append_only,
            version,
            update_percent,
            _folder: folder,
        })
    }
}

fn launch(
    program: &Path,
    folder: &Path,
    number: u32,
    primary: Option<SocketAddr>,
    append_only: bool,
) -> Result<Server, BenchError> {
    let address = free_address()?;
    let own = folder.join(format!("server-{number}"));
    std::fs::create_dir(&own).map_err(|error| BenchError::io(own.display().to_string(), error))?;
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--repl-diskless-sync-delay", "0"]).arg("--dir").arg(&own);
    if append_only {
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    }
    if let Some(primary) = primary {
        command.args(["--replicaof", &primary.ip().to_string(), &primary.port().to_string()]);
    }
    Server::start(&mut command, address, &own.join("output"), Signal::TERM)
}

/// Writes every record, many to a round trip.
fn load(control: &mut TcpStream, workload: &Workload) -> Result<(), String> {
    let values = Values::new(workload.seed, workload.value_bytes);
    let mut random = Random::new(workload.seed);
    let records: Vec<u64> = (0..workload.records).collect();
    for chunk in records.chunks(200) {
        let mut out = Vec::new();
        for record in chunk {
            resp::command(&[b"SET", key(*record).as_bytes(), &values.draw(&mut random)], &mut out);
        }
        blocking(control, &out, |input| replies(input, chunk.len()))?;
    }
    Ok(())
}

/// How long so many replies are; `None` if they are not all there.
fn replies(input: &[u8], count: usize) -> Result<Option<usize>, String> {
    let mut at = 0;
    for _ in 0..count {
        match resp::reply(&input[at..])? {
            Some((_, length)) => at += length,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn wait_for_replicas(control: &mut TcpStream) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut out = Vec::new();
        resp::command(&[b"SET", b"ready", b"?"], &mut out);
        resp::command(&[b"WAIT", REPLICAS.to_string().as_bytes(), b"500"], &mut out);
        let answer = blocking(control, &out, |input| replies(input, 2))?;
        let first = resp::reply(&answer)?.map_or(0, |(_, length)| length);
        match resp::reply(&answer[first..])? {
            Some((Reply::Number(have), _)) if have >= i64::from(REPLICAS) => return Ok(()),
            _ if Instant::now() >= deadline => return Err("its replicas did not come up".into()),
            _ => {}
        }
    }
}

/// A section of what a server tells about itself.
fn info(control: &mut TcpStream, section: &str) -> Result<String, String> {
    let mut out = Vec::new();
    resp::command(&[b"INFO", section.as_bytes()], &mut out);
    let answer = blocking(control, &out, |input| replies(input, 1))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The value of a field in such a section.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

impl Subject for Redis {
    fn label(&self) -> String {
        let file = if self.append_only { "append-only always" } else { "no file" };
        let major = self.version.split('.').next().unwrap_or("");
        match self.update_percent {
            0 => format!("redis {major}, {file}, GET"),
            100 => format!("redis {major}, {file}, SET and WAIT {REPLICAS}"),
            percent => format!("redis {major}, {file}, {percent} % SET and WAIT {REPLICAS}, the rest GET"),
        }
    }

    fn settings(&self) -> String {
        let file =
            if self.append_only { "appendonly yes, appendfsync always on all three" } else { "no file" };
        let version = &self.version;
        format!(
            "version {version}; primary and {REPLICAS} replicas, save \"\", {file}; SET and WAIT {REPLICAS} 0 in one write; \
             each client has one connection, all are on one thread"
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }

    fn sources(&self) -> Sources {
        Sources {
            wire: "the generator's count of what it sent, and total_net_output_bytes of the three servers",
            fsyncs: "not counted by redis",
        }
    }

    fn way(&self) -> Way {
        let (copies, percent) = (REPLICAS + 1, self.update_percent);
        Way::of_copies(copies, copies, true, percent)
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        // Each byte is counted where it is sent. A server's total has replication in it.
        let mut bytes = self.generator.done.sent;
        for control in &mut self.controls {
            let text = info(control, "stats").map_err(peer)?;
            let total = field(&text, "total_net_output_bytes").and_then(|total| total.parse::<u64>().ok());
            bytes += total.ok_or_else(|| peer("it does not count what it sends"))?;
        }
        let generator_calls = Some(self.generator.done.calls);
        Ok(Counters { wire_bytes: Some(bytes), generator_calls, ..Counters::default() })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.generator.run(&mut self.steps, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "$70\r\n# Stats\r\ntotal_net_input_bytes:12\r\ntotal_net:5\r\n";
        assert_eq!(field(text, "total_net"), Some("5"));
        assert_eq!(field(text, "total_net_input_bytes"), Some("12"));
        assert_eq!(field(text, "nothing"), None);
    }
}
