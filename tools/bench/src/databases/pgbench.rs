//! pgbench as a process: what it is counts, and what it says.

use crate::error::{BenchError, During};
use crate::procfs;
use crate::subject::{Latencies, Load, latencies, note};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Accounts of each unit of scale, all of which `pgbench -i` writes.
const ACCOUNTS: u64 = 100_000;
/// How often a transaction is tried that others have made fail.
const TRIES: &str = "--max-tries=1000";

/// What its clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// Its own transaction: three updates, a select, an insert.
    Tpcb,
    /// `-S`: a select by key.
    Select,
}

/// True if it can be started.
pub fn installed() -> bool {
    let version =
        Command::new("pgbench").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// A database and who it is asked as. Nobody asks for a password.
#[derive(Clone, Debug)]
pub struct Address {
    /// Where the server listens.
    pub server: SocketAddr,
    /// The user.
    pub user: &'static str,
    /// The database.
    pub database: String,
}

/// What became of the transactions of one run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Done.
    pub processed: u64,
    /// Given up after all tries.
    pub failed: u64,
    /// Tries besides the first ones.
    pub retries: u64,
    /// A second, without the time that connecting took.
    pub per_second: f64,
}

impl Counts {
    /// Reads what pgbench 15 prints. None: it is something else.
    pub fn parse(text: &str) -> Option<Counts> {
        let number = |label: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(label))?;
            line.trim_start().split([' ', '/']).next()?.parse::<f64>().ok()
        };
        Some(Counts {
            processed: number("number of transactions actually processed:")? as u64,
            failed: number("number of failed transactions:").unwrap_or(0.0) as u64,
            retries: number("total number of retries:").unwrap_or(0.0) as u64,
            per_second: number("tps =")?,
        })
    }

    /// Adds another run's.
    pub fn add(&mut self, other: Counts) {
        self.processed += other.processed;
        self.failed += other.failed;
        self.retries += other.retries;
    }
}

impl Address {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("pgbench");
        let (host, port) = (self.server.ip().to_string(), self.server.port().to_string());
        command.args(["-h", &host, "-p", &port, "-U", self.user]).args(arguments).arg(&self.database);
        command.stdin(Stdio::null()).env_remove("PGPASSWORD");
        command
    }

    /// `pgbench -i`: makes and fills its tables, in place of those that are there; or fills those that are
    /// there. An operation is a row.
    pub fn fill(&self, scale: u32, there: bool) -> Result<Load, BenchError> {
        let (before, begun) = (procfs::reaped_cpu_us(), Instant::now());
        let steps = if there { "gv" } else { "dtgvp" };
        ran(self.command(&["-i", "-q", "-s", &scale.to_string(), "-I", steps]))?;
        let mut load = Load::empty();
        load.ops = u64::from(scale) * ACCOUNTS;
        load.elapsed = begun.elapsed();
        load.ended_cpu_us = procfs::reaped_cpu_us().saturating_sub(before);
        note(&mut load.latencies, load.elapsed);
        Ok(load)
    }

    /// Runs a script for a whole number of seconds, at least `time`. `folder` is for its own log of
    /// transactions, which is removed afterwards.
    pub fn run(
        &self,
        script: Script,
        clients: u32,
        time: Duration,
        folder: &Path,
    ) -> Result<(Load, Counts), BenchError> {
        let seconds = time.as_secs_f64().ceil().max(1.0).to_string();
        let (clients, prefix) = (clients.to_string(), folder.join("log").display().to_string());
        let prefix = format!("--log-prefix={prefix}");
        let mut arguments =
            vec!["-n", "-M", "prepared", "-c", &clients, "-T", &seconds, TRIES, "-l", &prefix];
        if script == Script::Select {
            arguments.push("-S");
        }
        let before = procfs::reaped_cpu_us();
        let text = ran(self.command(&arguments))?;
        let ended_cpu_us = procfs::reaped_cpu_us().saturating_sub(before);
        let counts = Counts::parse(&text)
            .ok_or_else(|| BenchError::Wrong(format!("pgbench: {}", text.lines().last().unwrap_or(""))))?;
        let elapsed = Duration::from_secs_f64(counts.processed as f64 / counts.per_second.max(1e-9));
        let load =
            Load { ops: counts.processed, elapsed, latencies: logged(folder)?, service: None, ended_cpu_us };
        Ok((load, counts))
    }
}

/// Runs it to its end. Gives what it says.
fn ran(mut command: Command) -> Result<String, BenchError> {
    let output = command.output().during("pgbench cannot be run")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().find(|line| line.contains("error")).or(said.lines().last());
    Err(BenchError::Wrong(error.unwrap_or("pgbench failed and says nothing").trim().to_string()))
}

/// Reads and removes its logs: the third number of each line is how long a transaction took, in microseconds,
/// all its tries together.
fn logged(folder: &Path) -> Result<Latencies, BenchError> {
    let mut all = latencies();
    for file in std::fs::read_dir(folder).during("pgbench's folder cannot be read")? {
        let path = file.during("pgbench's folder cannot be read")?.path();
        let text = std::fs::read_to_string(&path).during("pgbench's log cannot be read")?;
        for line in text.lines() {
            // A transaction that was given up has a word there.
            if let Some(Ok(us)) = line.split(' ').nth(2).map(str::parse::<u64>) {
                note(&mut all, Duration::from_micros(us));
            }
        }
        std::fs::remove_file(&path).during("pgbench's log cannot be removed")?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let text = "pgbench (15.14)\nnumber of transactions actually processed: 3412\n\
                    number of failed transactions: 2 (0.059%)\ntotal number of retries: 20\n\
                    tps = 1140.250000 (without initial connection time)\n";
        let counts = Counts { processed: 3412, failed: 2, retries: 20, per_second: 1140.25 };
        assert_eq!(Counts::parse(text), Some(counts));
        let of_a_count = "number of transactions actually processed: 10/10\ntps = 5.5 (without)\n";
        assert_eq!(Counts::parse(of_a_count).map(|counts| counts.processed), Some(10));
        assert_eq!(Counts::parse("pgbench: error: no\n"), None);
    }

    #[test]
    fn its_log_is_read_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "0 1 1500 0 1700000000 1 0\n1 1 failed 0 1700000000 2 3\n0 2 2500 0 1700000000 3 0\n";
        std::fs::write(folder.path().join("log.1"), text).expect("written");
        let read = logged(folder.path()).expect("read");
        assert_eq!(read.len(), 2);
        assert!((read.max() as f64 / 2.5e6 - 1.0).abs() < 0.01, "{}", read.max());
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0);
    }
}
