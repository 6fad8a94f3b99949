//! PostgreSQL 15: a primary and two streaming standbys, both synchronous.

use super::pg::{self, PgClient};
use super::server::{Server, free_address};
use super::session::Session;
use crate::error::{BenchError, During};
use crate::generate::{Steps, Values, Workload, key};
use crate::load::Generator;
use crate::options::Common;
use crate::subject::{Counters, Load, Sources, Subject, Way};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use types::random::Random;

const STANDBYS: u32 = 2;
/// The table of records.
pub const TABLE: &str = "bench";
/// The database's own superuser; our servers trust this machine, and no other can reach them.
pub const USER: &str = "postgres";

fn peer(why: impl Into<String>) -> BenchError {
    BenchError::Peer { peer: "postgres", why: why.into() }
}

/// The folder of its programs, if they are all installed in one.
pub fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = PathBuf::from("/usr/lib/postgresql/15/bin");
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres", "pg_basebackup"].iter().all(|program| folder.join(program).is_file())
    };
    std::iter::once(debian).chain(std::env::split_paths(&path)).find(complete)
}

/// A primary with two synchronous standbys.
pub struct Servers {
    servers: Vec<Server>,
    /// A connection to each, the primary's first.
    controls: Vec<TcpStream>,
    version: String,
    // Behind the servers: removed after they were stopped.
    _folder: TempDir,
}

impl Servers {
    /// Starts all three.
    pub fn start(common: &Common) -> Result<Servers, BenchError> {
        let place = Place::new(common)?;
        place.run("initdb", &["-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "-D", "primary"])?;
        let mut primary =
            place.launch("primary", &[("synchronous_standby_names", "FIRST 2 (standby1, standby2)")])?;
        let mut control = connect(&mut primary)?;
        let port = primary.address.port().to_string();
        let mut servers = vec![primary];
        let mut controls = Vec::new();
        for number in 1..=STANDBYS {
            let name = format!("standby{number}");
            let from =
                ["-h", "127.0.0.1", "-p", &port, "-U", USER, "-D", &name, "-R", "-X", "stream", "-c", "fast"];
            place.run("pg_basebackup", &from)?;
            let mut standby = place.launch(&name, &[("cluster_name", &name)])?;
            controls.push(connect(&mut standby)?);
            servers.push(standby);
        }
        wait_for_standbys(&mut control).map_err(peer)?;
        let version = pg::query(&mut control, "SHOW server_version").map_err(peer)?.concat();
        controls.insert(0, control);
        Ok(Servers { servers, controls, version, _folder: place.folder })
    }

    /// Another connection to the primary, whose commits wait as `synchronous_commit` says.
    fn client(&mut self, commit: &str) -> Result<TcpStream, BenchError> {
        let mut stream = connect(&mut self.servers[0])?;
        pg::query(&mut stream, &format!("SET synchronous_commit = {commit}")).map_err(peer)?;
        Ok(stream)
    }

    /// A session of the primary, whose commits wait for both standbys.
    pub fn session(&mut self) -> Result<Session, BenchError> {
        let stream = self.servers[0].connect(Duration::from_secs(30)).map_err(peer)?;
        Session::start(stream, USER, "postgres")
    }

    /// Where the primary listens.
    pub fn primary(&self) -> SocketAddr {
        self.servers[0].address
    }

    /// Its first number.
    pub fn major(&self) -> &str {
        self.version.split('.').next().unwrap_or("")
    }

    /// Their process ids.
    pub fn processes(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }

    /// Their fsyncs and how long these took. What processes counted reaches the view up to a second late: in
    /// the reading before a round and in the one after.
    pub fn counters(&mut self) -> Result<Counters, BenchError> {
        let (mut fsyncs, mut fsync_ms) = (0, 0.0);
        for control in &mut self.controls {
            let sql = "SELECT wal_sync || ' ' || wal_sync_time FROM pg_stat_wal";
            let rows = pg::query(control, sql).map_err(peer)?;
            if let Some((count, ms)) = rows.first().and_then(|row| parse_syncs(row)) {
                (fsyncs, fsync_ms) = (fsyncs + count, fsync_ms + ms);
            }
        }
        let fsync_us = Some((fsync_ms * 1_000.0) as u64);
        Ok(Counters { fsyncs: Some(fsyncs), fsync_us, ..Counters::default() })
    }
}

/// How many fsyncs there were, and how many milliseconds they took together.
fn parse_syncs(row: &str) -> Option<(u64, f64)> {
    let (count, ms) = row.split_once(' ')?;
    Some((count.parse().ok()?, ms.parse().ok()?))
}

/// Who counts what [`Servers::counters`] says.
pub const SOURCES: Sources =
    Sources { wire: "", fsyncs: "pg_stat_wal.wal_sync of the primary and its standbys" };

/// How an update goes through them.
pub fn way() -> Way {
    Way::of_copies(STANDBYS + 1, STANDBYS + 1, true, 100)
}

/// A primary with two synchronous standbys under load.
pub struct Postgres {
    servers: Servers,
    generator: Generator<PgClient>,
    steps: Steps,
    commit: String,
}

impl Postgres {
    /// Starts all three, loads the records, connects `clients` clients whose commits wait as
    /// `synchronous_commit` says.
    pub fn start(
        common: &Common,
        workload: &Workload,
        clients: u32,
        commit: &str,
    ) -> Result<Postgres, BenchError> {
        let mut servers = Servers::start(common)?;
        load(&mut servers.controls[0], workload).map_err(peer)?;
        let mut connections = Vec::new();
        for _ in 0..clients {
            let mut stream = servers.client(commit)?;
            pg::prepare(&mut stream, TABLE).map_err(peer)?;
            connections.push((stream, PgClient::new(workload.value_bytes)));
        }
        let generator = Generator::new(connections)?;
        let (steps, commit) = (Steps::new(workload), commit.to_string());
        Ok(Postgres { servers, generator, steps, commit })
    }

    /// Where the primary listens.
    pub fn address(&self) -> SocketAddr {
        self.servers.primary()
    }
}

/// Where the servers' files lie, and as whom they run.
struct Place {
    programs: PathBuf,
    folder: TempDir,
    /// The servers refuse to run as root; then this user and group own the folder and run them.
    run_as: Option<(u32, u32)>,
}

impl Place {
    fn new(common: &Common) -> Result<Place, BenchError> {
        let programs = installed().ok_or_else(|| peer("initdb is not installed"))?;
        let folder = common.folder("postgres")?;
        let mut run_as = None;
        if rustix::process::geteuid().is_root() {
            let users = std::fs::read_to_string("/etc/passwd").during("/etc/passwd cannot be read")?;
            let (user, group) = unprivileged(&users)
                .ok_or_else(|| peer("it refuses to run as root, and there is no other user"))?;
            chown(folder.path(), Some(user), Some(group))
                .during("a folder cannot be given to another user")?;
            run_as = Some((user, group));
        }
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), private).during("a folder's permissions cannot be set")?;
        Ok(Place { programs, folder, run_as })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).env("LC_ALL", "C").env("HOME", self.folder.path());
        if let Some((user, group)) = self.run_as {
            command.gid(group).uid(user);
        }
        command
    }

    /// Runs one of its tools to the end.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), BenchError> {
        let output = self.command(program).args(arguments).stdin(Stdio::null()).output();
        let output = output.during(&format!("{program} cannot be run"))?;
        if output.status.success() {
            return Ok(());
        }
        let last = String::from_utf8_lossy(&output.stderr);
        Err(peer(format!("{program} failed: {}", last.trim().lines().last().unwrap_or("it says nothing"))))
    }

    fn launch(&self, name: &str, settings: &[(&str, &str)]) -> Result<Server, BenchError> {
        let address = free_address()?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.folder.path().join(name));
        let (port, sockets) = (address.port().to_string(), self.folder.path().display().to_string());
        let own = [
            ("listen_addresses", "127.0.0.1"),
            ("port", port.as_str()),
            ("unix_socket_directories", sockets.as_str()),
            // Two looks at the clock for each fsync, as ours have.
            ("track_wal_io_timing", "on"),
        ];
        for (name, value) in own.iter().chain(settings) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // SIGQUIT ends it at once with all its children; its files are thrown away anyway.
        Server::start(&mut command, address, &self.folder.path().join(format!("{name}.log")), Signal::QUIT)
    }
}

/// A user to run as, from the text of `/etc/passwd`: `postgres`, or else `nobody`.
fn unprivileged(users: &str) -> Option<(u32, u32)> {
    ["postgres", "nobody"].iter().find_map(|wanted| {
        let line = users.lines().find(|line| line.split(':').next() == Some(*wanted))?;
        let mut ids = line.split(':').skip(2).map(|id| id.parse::<u32>().ok());
        Some((ids.next()??, ids.next()??))
    })
}

/// Connects once it lets clients in.
fn connect(server: &mut Server) -> Result<TcpStream, BenchError> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut stream = server.connect(Duration::from_secs(30)).map_err(peer)?;
        match pg::start(&mut stream, USER, "postgres") {
            Ok(()) => return Ok(stream),
            Err(why) if Instant::now() >= deadline => return Err(peer(why)),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn wait_for_standbys(control: &mut TcpStream) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'";
    while pg::query(control, sql)?.first().map(String::as_str) != Some("2") {
        if Instant::now() >= deadline {
            return Err("its standbys did not come up".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Makes the table with every record.
fn load(control: &mut TcpStream, workload: &Workload) -> Result<(), String> {
    pg::query(control, &format!("CREATE TABLE {TABLE} (k text PRIMARY KEY, v bytea NOT NULL)"))?;
    let values = Values::new(workload.seed, workload.value_bytes);
    let mut random = Random::new(workload.seed);
    let records: Vec<u64> = (0..workload.records).collect();
    for chunk in records.chunks(500) {
        let mut sql = format!("INSERT INTO {TABLE} VALUES ");
        for (at, record) in chunk.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let hex: String = values.draw(&mut random).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            let _ = write!(sql, "{comma}('{}','\\x{hex}')", key(*record));
        }
        pg::query(control, &sql)?;
    }
    pg::query(control, &format!("VACUUM ANALYZE {TABLE}")).map(|_| ())
}

impl Subject for Postgres {
    fn label(&self) -> String {
        format!("postgresql {}, synchronous_commit = {}", self.servers.major(), self.commit)
    }

    fn settings(&self) -> String {
        format!(
            "version {}; primary and {STANDBYS} streaming standbys, synchronous_standby_names = 'FIRST 2 (standby1, standby2)', fsync \
             on, track_wal_io_timing on, all else as installed; prepared statements, one transaction per statement; each client has one \
             connection, all are on one thread",
            self.servers.version
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.processes()
    }

    fn sources(&self) -> Sources {
        SOURCES
    }

    fn way(&self) -> Way {
        way()
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        let generator_calls = Some(self.generator.done.calls);
        Ok(Counters { generator_calls, ..self.servers.counters()? })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.generator.run(&mut self.steps, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsyncs_are_read_with_their_time() {
        assert_eq!(parse_syncs("12 3.75"), Some((12, 3.75)));
        assert_eq!(parse_syncs("12"), None);
    }

    #[test]
    fn an_unprivileged_user_is_found() {
        let users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:n:/:/x\npostgres:x:101:104:P:/:/x\n";
        assert_eq!(unprivileged(users), Some((101, 104)));
        let without: String =
            users.lines().filter(|line| !line.starts_with("postgres")).collect::<Vec<_>>().join("\n");
        assert_eq!(unprivileged(&without), Some((65_534, 65_533)));
        assert_eq!(unprivileged("root:x:0:0:::\n"), None);
    }
}
