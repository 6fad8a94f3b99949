//! The configuration of a process: flag over environment over file over default (conventions).
//!
//! Settings of the cluster itself are in the metastore, not here. [`keys::SETTINGS`] lists every setting.

mod freeze;
pub mod keys;
mod source;

pub use freeze::FreezeAt;
pub use source::{Origin, Shown, Sources};

use crate::failure::Failure;
use crate::net::listen;
use procedure::{Builtin, Limits, Runtime};
use replica::Settings;
use source::Values;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use types::{Executors, Micros, NodeId};
use wire::hello::Secret;

/// A node's own settings.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its number; `None`: the one in its data directory.
    pub id: Option<NodeId>,
    /// Everything it keeps.
    pub data_dir: PathBuf,
    /// Further directories for replicas' files.
    pub data_dirs: Vec<PathBuf>,
    /// Where native clients connect.
    pub listen_client: SocketAddr,
    /// Where other nodes ship logs.
    pub listen_peer: SocketAddr,
    /// Where other nodes send heartbeats.
    pub listen_heartbeat: SocketAddr,
    /// Health, metrics and the web page.
    pub listen_http: SocketAddr,
    /// What operators give to the web page; `None`: it only shows.
    pub operator_token: Option<Secret>,
    /// Its zone, or empty.
    pub zone: String,
    /// Where controllers are.
    pub controllers: Vec<String>,
    /// The most connections of clients and nodes together, for each executor.
    pub max_connections: usize,
    /// How many threads have its partitions.
    pub executors: Executors,
    /// Addresses beyond loopback are allowed.
    pub insecure: bool,
    /// Unsynced log bytes stay off the disk.
    pub volatile: bool,
    /// Cuts of the network can be played.
    pub faults: bool,
    /// Where it freezes itself, with `faults`.
    pub freeze_at: Option<FreezeAt>,
}

/// The SQL gateway's settings.
#[derive(Clone, Debug)]
pub struct SqlConfig {
    /// Where PostgreSQL's clients connect; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// What they must know.
    pub password: Secret,
    /// The most of them.
    pub max_connections: usize,
    /// Bytes that a transaction keeps in memory before it spills.
    pub spill_from: usize,
    /// Bytes that all transactions spill at most; 0: nothing is spilled.
    pub spill_limit: u64,
    /// Encryption; `None`: there is none.
    pub tls: Option<pg::Tls>,
    /// Clients from other machines must ask for it: it is why they may come.
    pub must_encrypt: bool,
}

impl SqlConfig {
    /// Refuses an address that others can reach, unless they must encrypt and know the password, or that was
    /// said to be meant.
    pub fn allowed(&self, address: SocketAddr, insecure: bool) -> Result<(), Failure> {
        let safe = self.tls.is_some() && self.password.said().is_some();
        if address.ip().is_loopback() || insecure || safe {
            return Ok(());
        }
        let lacking = match self.tls {
            Some(_) => "nobody is asked for a password: set sql.password_file or the cluster's secret",
            None => {
                "statements would cross the network as they are: set sql.tls_cert_file and sql.tls_key_file"
            }
        };
        Err(Failure::refused(format!(
            "sql.listen {address} can be reached from other machines, and {lacking}; or use a loopback address, or --insecure on \
             a network that you trust"
        )))
    }
}

/// The log's settings.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Its directory; `None`: in the data directory.
    pub dir: Option<PathBuf>,
    /// How it is laid out.
    pub options: wal::Options,
    /// Log of a partition after which its engine is written to disk.
    pub checkpoint_bytes: u64,
    /// Free bytes below which writes are refused (F20).
    pub reserve_bytes: u64,
}

/// Where the cluster's records are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetastoreConfig {
    /// In the controller's own directory.
    Embedded,
    /// In etcd.
    Etcd {
        /// Its addresses.
        endpoints: Vec<String>,
        /// What the keys begin with.
        prefix: String,
    },
}

/// A controller's settings.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Everything it keeps.
    pub data_dir: PathBuf,
    /// Where nodes, operators and clients connect.
    pub listen: SocketAddr,
    /// Where the records are.
    pub metastore: MetastoreConfig,
    /// Its numbers.
    pub settings: controller::Settings,
    /// Between two passes of the recovery manager of global transactions.
    pub recovery: Duration,
    /// Addresses beyond loopback are allowed.
    pub insecure: bool,
}

/// Everything, with where each value came from.
#[derive(Clone, Debug)]
pub struct Config {
    /// For a node.
    pub node: NodeConfig,
    /// For a node's log.
    pub log: LogConfig,
    /// Times and bounds of replicas.
    pub timing: Settings,
    /// For a node's SQL gateway.
    pub sql: SqlConfig,
    /// For a controller.
    pub controller: ControllerConfig,
    /// What everyone who connects must say.
    pub secret: Secret,
    shown: Vec<Shown>,
}

impl LogConfig {
    /// Where the log lies, for this data directory.
    pub fn place(&self, data_dir: &Path) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| data_dir.join("log"))
    }
}

impl Config {
    /// Reads all sources and checks that the values fit together.
    pub fn load(sources: &Sources) -> Result<Config, Failure> {
        let values = Values::collect_reports(sources)?;
        Config::build(&values).map_err(Failure::usage)
    }

    /// The defaults with these changes, as flags would make them: `("node.data_dir", "/tmp/x")`.
    pub fn with(changes: &[(&str, &str)]) -> Result<Config, Failure> {
        let flags = changes.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Config::load(&Sources { flags, ..Sources::default() })
    }

    /// The same for a node that these programs are compiled into, each under its name: procedures in the
    /// language `builtin` name them. Every node of a cluster needs them, since any may lead.
    pub fn with_programs(mut self, programs: Vec<(String, Arc<dyn Builtin>)>) -> Config {
        self.timing.programs = Runtime::with(programs);
        self
    }

    /// Checks what a process refuses only when it starts: doors that other machines can reach.
    ///
    /// # Errors
    ///
    /// One sentence that names the setting, as the process itself would say it.
    pub fn check_listeners(&self) -> Result<(), Failure> {
        let node = &self.node;
        for (name, address) in [
            ("node.listen_client", node.listen_client),
            ("node.listen_peer", node.listen_peer),
            ("node.listen_heartbeat", node.listen_heartbeat),
            ("node.listen_http", node.listen_http),
        ] {
            listen::allowed(name, address, node.insecure)?;
        }
        if let Some(address) = self.sql.listen {
            self.sql.allowed(address, node.insecure)?;
        }
        listen::allowed("controller.listen", self.controller.listen, self.controller.insecure)
    }

    /// Every setting with its value and where it came from.
    pub fn show_origin(&self) -> &[Shown] {
        &self.shown
    }

    fn build(values: &Values) -> Result<Config, String> {
        let config = Config {
            node: node(values)?,
            log: log(values)?,
            timing: timing(values)?,
            sql: sql(values)?,
            controller: controller(values)?,
            secret: Secret::new(values.text("cluster.secret")),
            shown: values.shown(),
        };
        config.timing.check()?;
        Ok(config)
    }
}

/// Checks the text of a configuration file. The error is a sentence.
pub fn check(text: &str) -> Result<Config, String> {
    let values = Values::of_text(text)?;
    Config::build(&values)
}

fn node(values: &Values) -> Result<NodeConfig, String> {
    let id = values.number("node.id")?;
    let id = u32::try_from(id).map_err(|_| format!("node.id {id} is too large"))?;
    Ok(NodeConfig {
        id: (id > 0).then_some(NodeId(id)),
        data_dir: values.text("node.data_dir").into(),
        data_dirs: values.list("node.data_dirs").into_iter().map(PathBuf::from).collect(),
        listen_client: address(values, "node.listen_client")?,
        listen_peer: address(values, "node.listen_peer")?,
        listen_heartbeat: address(values, "node.listen_heartbeat")?,
        listen_http: address(values, "node.listen_http")?,
        operator_token: operator_token(values)?,
        zone: values.text("node.zone").into(),
        controllers: values.list("node.controllers"),
        max_connections: values.number("node.max_connections")? as usize,
        executors: executors(values)?,
        insecure: values.flag("node.insecure"),
        volatile: values.flag("node.volatile"),
        faults: values.flag("node.harm"),
        freeze_at: freeze_at(values)?,
    })
}

fn executors(values: &Values) -> Result<Executors, String> {
    let count = values.number("node.executors")?;
    if count == 0 {
        return Ok(Executors::for_cores(thread::available_parallelism().map_or(1, NonZero::get)));
    }
    let executors = u32::try_from(count).ok().and_then(Executors::new);
    executors.ok_or_else(|| format!("node.executors is {count}, and should be 1 to {}", Executors::MAX_COUNT))
}

fn freeze_at(values: &Values) -> Result<Option<FreezeAt>, String> {
    let at = FreezeAt::parse(values.text("node.freeze_at"))?;
    match at.is_some() && !values.flag("node.harm") {
        true => Err("node.freeze_at needs node.harm".into()),
        false => Ok(at),
    }
}

fn sql(values: &Values) -> Result<SqlConfig, String> {
    let listen = match values.text("sql.listen") {
        "off" => None,
        _ => Some(address(values, "sql.listen")?),
    };
    let password = match secret_file(values, "sql.password_file")? {
        Some(password) => password,
        None => values.text("cluster.secret").to_string(),
    };
    let max_connections = values.number("sql.max_connections")? as usize;
    let tls = tls(values)?;
    let must_encrypt = tls.is_some() && !values.flag("node.insecure");
    let spill_from = usize::try_from(values.number("sql.spill_from")?).unwrap_or(usize::MAX);
    let spill_limit = values.number("sql.spill_limit")?;
    let password = Secret::new(password);
    Ok(SqlConfig { listen, password, max_connections, spill_from, spill_limit, tls, must_encrypt })
}

fn tls(values: &Values) -> Result<Option<pg::Tls>, String> {
    let (certificate, key) = (values.text("sql.tls_cert_file"), values.text("sql.tls_key_file"));
    match (certificate.is_empty(), key.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => {
            let loaded = pg::Tls::load(Path::new(certificate), Path::new(key));
            loaded.map(Some).map_err(|why| format!("sql.tls_cert_file and sql.tls_key_file: {why}"))
        }
        (false, true) => Err("sql.tls_cert_file is set and sql.tls_key_file is not: both or none".into()),
        (true, false) => Err("sql.tls_key_file is set and sql.tls_cert_file is not: both or none".into()),
    }
}

/// What the file has that this setting names, without the end of its line; `None`: it names none.
fn secret_file(values: &Values, name: &str) -> Result<Option<String>, String> {
    let file = values.text(name);
    if file.is_empty() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(file).map_err(|error| format!("{name} {file}: {error}"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(format!("{name} {file} is empty"));
    }
    Ok(Some(text.to_string()))
}

/// The shortest token of an operator, bytes: it can be tried over and over.
const MIN_TOKEN: usize = 16;

fn operator_token(values: &Values) -> Result<Option<Secret>, String> {
    let name = "node.operator_token_file";
    let Some(token) = secret_file(values, name)? else { return Ok(None) };
    if token.len() < MIN_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let file = values.text(name);
        return Err(format!("{name} {file}: a token is {MIN_TOKEN} or more ASCII letters, digits and signs"));
    }
    Ok(Some(Secret::new(token)))
}

/// The shortest segment file that is allowed.
const MIN_SEGMENT: u64 = 1 << 20;

fn log(values: &Values) -> Result<LogConfig, String> {
    let dir = values.text("log.dir");
    let segment_bytes = values.number("log.segment_bytes")?;
    let max_bytes = values.number("log.max_bytes")?;
    if segment_bytes < MIN_SEGMENT {
        return Err(format!("log.segment_bytes {segment_bytes} is less than {MIN_SEGMENT}"));
    }
    if max_bytes < 2 * segment_bytes {
        return Err(format!("log.max_bytes {max_bytes} is less than two segments of {segment_bytes}"));
    }
    let keep_bytes = values.number("log.keep_bytes")? as usize;
    Ok(LogConfig {
        dir: (!dir.is_empty()).then(|| dir.into()),
        options: wal::Options { segment_bytes, max_bytes, keep_bytes, ..wal::Options::default() },
        checkpoint_bytes: values.number("log.checkpoint_bytes")?.max(1 << 16),
        reserve_bytes: values.number("log.reserve_bytes")?,
    })
}

/// The least room for commits of global transactions, in bytes: a write-set has 6 MiB at most, and one
/// partition has a fourth of the room.
const MIN_COMMITS: u64 = 64 << 20;

fn timing(values: &Values) -> Result<Settings, String> {
    let commits = values.number("limits.commits_bytes")?;
    if commits < MIN_COMMITS {
        return Err(format!("limits.commits_bytes {commits} is less than {MIN_COMMITS}"));
    }
    let ms = |name: &str| values.number(name).map(Micros::from_millis);
    let bytes = |name: &str| values.number(name).map(|bytes| bytes as usize);
    Ok(Settings {
        heartbeat: ms("timing.heartbeat_ms").and_then(|heartbeat| match heartbeat {
            Micros::ZERO => Err("timing.heartbeat_ms must not be 0".into()),
            heartbeat => Ok(heartbeat),
        })?,
        suspect: ms("timing.suspect_ms")?,
        suspect_alone: ms("timing.suspect_alone_ms")?,
        lease: ms("timing.lease_ms")?,
        grace: ms("timing.grace_ms")?,
        drift_permille: values.number("timing.drift_permille")?,
        evict_lone: ms("timing.evict_lone_ms")?,
        evict_slow: ms("timing.evict_slow_ms")?,
        collect_reports: ms("timing.gather_ms")?,
        ask_old: ms("timing.ask_old_ms")?,
        level: ms("timing.level_ms")?,
        hand_over: ms("timing.hand_over_ms")?,
        resend: ms("timing.resend_ms")?,
        session_ttl: ms("timing.session_ttl_ms")?,
        window_bytes: bytes("limits.window_bytes")?,
        append_bytes: bytes("limits.append_bytes")?,
        uncommitted_bytes: bytes("limits.uncommitted_bytes")?,
        tail_bytes: bytes("limits.tail_bytes")?,
        copy_bytes: bytes("limits.copy_bytes")?,
        commits_most_bytes: commits as usize,
        commits_alarm: values.number("limits.commits_alarm")? as usize,
        commits_alarm_after: ms("timing.commits_alarm_ms")?,
        ship_bytes_per_second: values.number("ship.bytes_per_second")?,
        failback_log_bytes: values.number("failback.log_bytes")?,
        failback_keep_bytes: values.number("failback.keep_bytes")?,
        failback_full: values.flag("failback.full"),
        scrub_bytes_per_second: values.number("scrub.bytes_per_second")?,
        call: Limits { time: ms("procedures.time_ms")?, ..Limits::default() },
        ..Settings::default()
    })
}

fn controller(values: &Values) -> Result<ControllerConfig, String> {
    let ms = |name: &str| values.number(name).map(Micros::from_millis);
    let endpoints = values.list("controller.endpoints");
    let metastore = match values.text("controller.metastore") {
        "embedded" => MetastoreConfig::Embedded,
        "etcd" if endpoints.is_empty() => {
            return Err("controller.endpoints: etcd needs at least one address".into());
        }
        "etcd" => MetastoreConfig::Etcd { endpoints, prefix: values.text("controller.prefix").into() },
        other => return Err(format!("controller.metastore '{other}' is neither 'embedded' nor 'etcd'")),
    };
    let recovery = values.number("controller.recovery_ms")?;
    if !(10..=3_600_000).contains(&recovery) {
        return Err(format!("controller.recovery_ms is {recovery}, and should be 10 to 3600000"));
    }
    Ok(ControllerConfig {
        recovery: Duration::from_millis(recovery),
        data_dir: values.text("controller.data_dir").into(),
        listen: address(values, "controller.listen")?,
        metastore,
        settings: controller::Settings {
            suspect: ms("timing.suspect_ms")?,
            failover_wait: ms("controller.failover_wait_ms")?,
            balance_after: ms("controller.balance_after_ms")?,
            spare_after: ms("controller.spare_after_ms")?,
            ..controller::Settings::default()
        },
        insecure: values.flag("controller.insecure"),
    })
}

fn address(values: &Values, name: &str) -> Result<SocketAddr, String> {
    let text = values.text(name);
    let wrong = |why: String| format!("{name} '{text}' is not an address like 127.0.0.1:7401: {why}");
    let mut found = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("no such host".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together() {
        let config = check("").expect("the defaults are good");
        assert_eq!(config.timing.grace, Settings::default().grace);
        assert_eq!(config.timing.session_ttl, Settings::default().session_ttl);
        let commits = |of: &Settings| (of.commits_most_bytes, of.commits_alarm, of.commits_alarm_after);
        assert_eq!(commits(&config.timing), commits(&Settings::default()));
        assert_eq!(config.show_origin().len(), keys::SETTINGS.len());
        assert!(config.show_origin().iter().all(|shown| shown.origin == Origin::Default));
    }

    #[test]
    fn what_is_said_of_executors_wins_over_what_the_cores_allow() {
        let of = |text: &str| check(text).map(|config| config.node.executors);
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        for by_cores in ["", "[node]\nexecutors = 0\n"] {
            assert_eq!(of(by_cores), Ok(Executors::for_cores(cores)));
        }
        assert_eq!(of("[node]\nexecutors = 1\n"), Ok(Executors::ONE));
        assert_eq!(of("[node]\nexecutors = 63\n").map(Executors::count), Ok(63));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_neighbour() {
        let error = check("[node]\ndata_dirr = \"x\"\n").unwrap_err();
        assert!(error.contains("node.data_dirr") && error.contains("node.data_dir"), "{error}");
        let error = check("[nodes]\nid = 1\n").unwrap_err();
        assert!(error.contains("nodes.id"), "{error}");
        let error = check("id = 1\n").unwrap_err();
        assert!(error.contains("'id'"), "{error}");
    }

    #[test]
    fn wrong_values_are_named() {
        let cases = [
            ("[node]\nid = \"one\"\n", "node.id"),
            ("[node]\ninsecure = 1\n", "node.insecure"),
            ("[node]\nlisten_client = \"nowhere\"\n", "node.listen_client"),
            ("[timing]\ngrace_ms = 160\n", "grace 160 ms is too short"),
            ("[timing]\nheartbeat_ms = 0\n", "timing.heartbeat_ms"),
            ("[node]\nexecutors = 64\n", "node.executors is 64, and should be 1 to 63"),
            ("[limits]\ncommits_bytes = 1000\n", "limits.commits_bytes 1000"),
            ("[controller]\nmetastore = \"paper\"\n", "paper"),
            ("[controller]\nmetastore = \"etcd\"\n", "controller.endpoints"),
            ("[log]\nmax_bytes = 1\n", "log.max_bytes"),
            ("[sql]\ntls_cert_file = \"x\"\n", "sql.tls_key_file is not"),
            ("[sql]\ntls_cert_file = \"/no/x\"\ntls_key_file = \"/no/y\"\n", "/no/x"),
            ("[node\n", "line 1"),
        ];
        for (text, named) in cases {
            let error = check(text).unwrap_err();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }

    #[test]
    fn sql_is_open_to_others_only_with_tls_and_a_password() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).expect("writes");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("writes");
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let tls = [("sql.tls_cert_file", certificate.as_str()), ("sql.tls_key_file", key.as_str())];
        let open = [("sql.listen", "0.0.0.0:0")];
        let secret = [("cluster.secret", "open sesame")];
        let listeners = |changes: &[&[(&str, &str)]]| {
            let config = Config::with(&changes.concat()).expect("fits together");
            (config.sql.must_encrypt, config.check_listeners().map_err(|error| error.sentence))
        };
        let (_, refused) = listeners(&[&open, &secret]);
        assert!(refused.is_err_and(|why| why.contains("sql.listen") && why.contains("sql.tls_cert_file")));
        let (_, refused) = listeners(&[&open, &tls]);
        assert!(refused.is_err_and(|why| why.contains("sql.password_file")));
        assert_eq!(listeners(&[&open, &tls, &secret]), (true, Ok(())));
        assert_eq!(listeners(&[&open, &tls, &[("node.insecure", "true")]]), (false, Ok(())));
    }

    #[test]
    fn a_flag_goes_before_the_environment_before_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("node.toml");
        std::fs::write(&file, "[node]\nid = 1\nzone = \"a\"\nharm = true\n").expect("writes");
        let sources = Sources {
            file: Some(file.clone()),
            env: vec![
                ("UNDERSTUDY_NODE_ID".into(), "2".into()),
                ("UNDERSTUDY_NODE_ZONE".into(), "b".into()),
                ("UNDERSTUDY_CONNECT".into(), "127.0.0.1:1".into()),
                ("UNDERSTUDY_SECRET".into(), "open sesame".into()),
                ("HOME".into(), "/".into()),
            ],
            flags: vec![("node.id".into(), "3".into()), ("node.controllers".into(), "a:1, b:2".into())],
        };
        let config = Config::load(&sources).expect("loads");
        assert_eq!((config.node.id, config.node.zone.as_str()), (Some(NodeId(3)), "b"));
        assert_eq!(config.node.controllers, ["a:1", "b:2"]);
        let origin =
            |name: &str| config.show_origin().iter().find(|s| s.name == name).unwrap().origin.to_string();
        assert_eq!(origin("node.id"), "flag");
        assert_eq!(origin("node.zone"), "environment UNDERSTUDY_NODE_ZONE");
        assert_eq!(origin("node.harm"), format!("file {}", file.display()));
        assert_eq!(origin("log.dir"), "default");
        assert_eq!(origin("cluster.secret"), "environment UNDERSTUDY_SECRET");
        assert!(config.secret.admits(Some("open sesame")) && !config.secret.admits(None));
        assert!(!format!("{config:?}").contains("sesame"), "a secret is not shown");
        let sources = Sources { env: vec![("UNDERSTUDY_LOG_DRI".into(), "x".into())], ..Sources::default() };
        let error = Config::load(&sources).unwrap_err();
        assert!(error.status == 2 && error.sentence.contains("UNDERSTUDY_LOG_DRI"), "{error}");
    }
}
