//! Runs the real binary, and real clusters of it, for tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The one line that it failed with.
    pub fn sentence(&self) -> &str {
        let line = self.err.lines().last().unwrap_or("");
        line.strip_prefix("understudy: ").unwrap_or_else(|| panic!("not a sentence of ours: {self:?}"))
    }

    /// Its one JSON object.
    pub fn object(&self) -> serde_json::Value {
        serde_json::from_str(self.out.trim()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The binary, in a directory, without the variables of whoever runs the tests.
pub fn understudy(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_understudy"));
    command.current_dir(dir).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("UNDERSTUDY_")) {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end.
pub fn run(dir: &Path, words: &[&str]) -> Ran {
    let output = understudy(dir).args(words).output().expect("the binary runs");
    Ran {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Asks until there is an answer. Nothing is slept for that could be awaited; what processes do among
/// themselves cannot.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A cluster that `understudy dev` runs in a temporary directory.
pub struct Cluster {
    pub dir: tempfile::TempDir,
    dev: Option<Child>,
    env: Vec<(&'static str, String)>,
    nodes: usize,
    /// More flags of `dev`.
    flags: Vec<&'static str>,
    _alone: MutexGuard<'static, ()>,
}

/// One cluster at a time: they share two cores and choose free ports.
static ALONE: Mutex<()> = Mutex::new(());

impl Cluster {
    /// Three nodes, ready.
    pub fn start() -> Cluster {
        Cluster::with(|_| Vec::new())
    }

    /// The same, with these in the environment of every process; they may name files in the cluster's
    /// directory.
    pub fn with(env: impl FnOnce(&Path) -> Vec<(&'static str, String)>) -> Cluster {
        Cluster::of(3, env)
    }

    /// The same with so many nodes.
    pub fn of(nodes: usize, env: impl FnOnce(&Path) -> Vec<(&'static str, String)>) -> Cluster {
        Cluster::begin(nodes, env, Vec::new())
    }

    /// Three nodes, with these flags of `dev`.
    pub fn flagged(flags: &[&'static str]) -> Cluster {
        // Who was not run for a moment is not suspected: tests of directories say whose terms stay.
        let patient = |_: &Path| vec![("UNDERSTUDY_TIMING_SUSPECT_MS", "1000".into())];
        Cluster::begin(3, patient, flags.to_vec())
    }

    fn begin(
        nodes: usize,
        env: impl FnOnce(&Path) -> Vec<(&'static str, String)>,
        flags: Vec<&'static str>,
    ) -> Cluster {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().expect("a directory");
        let env = env(dir.path());
        let mut cluster = Cluster { dir, dev: None, env, nodes, flags, _alone: alone };
        cluster.up();
        cluster
    }

    /// Starts `dev` on what is there.
    pub fn up(&mut self) {
        self.up_with(self.nodes);
    }

    /// The same, where so many nodes will be live.
    pub fn up_with(&mut self, nodes: usize) {
        let log = fs::File::create(self.path("dev.log")).expect("writable");
        let mut command = understudy(self.dir.path());
        let nodes_wanted = self.nodes.to_string();
        command.args(["dev", "--nodes", &nodes_wanted]).args(&self.flags).stdout(Stdio::null()).stderr(log);
        // A log that is opened again is read to the end of its segment, which takes long without
        // optimisation.
        command.env("UNDERSTUDY_LOG_SEGMENT_BYTES", "4194304");
        // Who was not run for a moment is not suspected: the machine may be busy.
        command.env("UNDERSTUDY_TIMING_SUSPECT_MS", "300").envs(self.env.iter().cloned());
        self.dev = Some(command.spawn().expect("the binary runs"));
        eventually("all nodes are live", || {
            let ended = self.dev.as_mut().expect("just started").try_wait().expect("a child");
            assert!(
                ended.is_none(),
                "dev ended: {}",
                fs::read_to_string(self.path("dev.log")).unwrap_or_default()
            );
            let seen = self.run(&["status", "--json", "--timeout", "1s"]);
            let live = |seen: &Ran| {
                seen.object()["nodes"]
                    .as_array()
                    .map(|nodes| nodes.iter().filter(|n| n["live"] == true).count())
            };
            (seen.status == 0 && live(&seen) == Some(nodes)).then_some(())
        });
    }

    /// Ends every process at once, as `kill -9` does.
    pub fn kill_everything(&mut self) {
        for pid in self.pids() {
            signal(pid, "KILL");
        }
        let mut dev = self.dev.take().expect("it runs");
        dev.kill().expect("ours");
        dev.wait().expect("ours");
        eventually("every process is gone", || self.pids().iter().all(|pid| !is_running(*pid)).then_some(()));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("writable");
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        run(self.dir.path(), words)
    }

    /// Runs a command that must succeed, and gives what it printed.
    pub fn ok(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.status, 0, "{words:?}: {}", ran.err);
        ran.out
    }

    /// Runs a command that must succeed, and gives its JSON object.
    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        let text = self.ok(&[words, &["--json"]].concat());
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    }

    /// `cluster.json`.
    pub fn file(&self) -> serde_json::Value {
        let text = fs::read_to_string(self.path("understudy-dev/cluster.json")).expect("it runs");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The controller's address.
    pub fn controller(&self) -> String {
        self.file()["controllers"][0]["address"].as_str().expect("an address").to_string()
    }

    /// Process ids of nodes and controllers, as long as the file is there.
    fn pids(&self) -> Vec<i64> {
        let Ok(text) = fs::read_to_string(self.path("understudy-dev/cluster.json")) else {
            return Vec::new();
        };
        let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let of = |list: &str| file[list].as_array().cloned().unwrap_or_default();
        let all = of("nodes").into_iter().chain(of("controllers"));
        all.filter_map(|process| process["process"]["pid"].as_i64()).collect()
    }

    /// Waits until every table has all its copies and nobody is behind.
    pub fn in_sync(&self) {
        eventually("all copies in sync", || {
            let seen = self.run(&["status", "--json"]);
            if seen.status != 0 {
                return None;
            }
            let seen = seen.object();
            let level = |table: &serde_json::Value| {
                table["copies"] == table["factor"] && table["behind"].as_array().is_some_and(Vec::is_empty)
            };
            seen["tables"].as_array()?.iter().all(level).then_some(())
        });
    }

    /// The node that leads a partition now.
    pub fn primary_of(&self, partition: u64) -> u64 {
        let seen = self.json(&["status"]);
        let all = seen["partitions"].as_array().expect("a list");
        let found = all.iter().find(|line| line["partition"] == partition).expect("it exists");
        found["primary"].as_u64().expect("a node")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Some(mut dev) = self.dev.take() else { return };
        signal(dev.id().into(), "TERM");
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = dev.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = dev.kill();
        let _ = dev.wait();
    }
}

/// Signals a process that this test started.
pub fn signal(pid: i64, name: &str) {
    let sent =
        Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status();
    sent.expect("kill is installed");
}

fn is_running(pid: i64) -> bool {
    // What has ended but was not waited for yet does no harm any more, once the last of its threads has.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest).split(' ').collect::<Vec<_>>();
    let threads = fields.get(17).and_then(|count| count.parse::<u32>().ok()).unwrap_or(1);
    !matches!(fields[0], "X" | "Z") || threads > 1
}

/// A connection to an address of the cluster.
pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream
}
