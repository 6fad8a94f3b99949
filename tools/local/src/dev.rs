//! `understudy dev`: a cluster on this machine that is kept in a directory between runs, in the foreground
//! until Ctrl-C.
//!
//! Other commands find it by its `cluster.json` and harm it by pids that are verified first. Only the process
//! in the foreground starts processes, so that none outlives it: a restart is asked of it over a socket in
//! the directory.

mod keeper;

use crate::cluster::file::{LOCAL_FILE, read_json, write_json};
use crate::cluster::{Cluster, ClusterOptions, Metastore, Running, TOKEN_FILE, check_nodes};
use crate::error::LocalError;
use crate::process;
use crate::terminal::Progress;
use keeper::Keeper;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::NodeId;

/// The directory that `dev` uses if none is given.
pub const DEV_DIR: &str = "./understudy-dev";
/// The ports of a `dev` cluster begin here; those of the run before are kept as long as they are free.
const FIRST_PORT: u16 = 7400;
/// How long a node that was started again may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// What `dev` is asked for.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// Where it is kept.
    pub dir: PathBuf,
    /// How many nodes; `None`: as many as there were, 3 at first.
    pub nodes: Option<u32>,
    /// Directories in which each node keeps replicas; `None`: as many as there were, 1 at first.
    pub data_dirs: Option<u32>,
    /// Begin from nothing.
    pub reset: bool,
    /// The program with the subcommands `node` and `controller`.
    pub binary: PathBuf,
    /// Where the cluster's records are kept; `None`: as it was, embedded at first.
    pub metastore: Option<Metastore>,
    /// Print one JSON object on standard output once everything runs.
    pub json: bool,
}

impl Default for DevOptions {
    fn default() -> DevOptions {
        DevOptions {
            dir: DEV_DIR.into(),
            nodes: None,
            data_dirs: None,
            reset: false,
            binary: std::env::current_exe().unwrap_or_else(|_| "understudy".into()),
            metastore: None,
            json: false,
        }
    }
}

/// Harm to a cluster that `dev` keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DevCommand {
    /// Ends a node's process at once.
    Kill(String),
    /// Freezes a node's process.
    Stop(String),
    /// Cuts a node off from nodes, controllers and clients.
    Cut(String),
    /// Ends a cut, and lets a frozen process go on.
    Heal(String),
    /// Starts a node again, whatever became of it.
    Restart {
        /// The node.
        node: String,
        /// Copies that come back on it ignore what is there and are sent everything, in this life of the
        /// node.
        full: bool,
        /// Whether to wait until it answers; otherwise its ports are open, and no more is known.
        wait: bool,
    },
    /// Ends every process at once, unsynced bytes lost; `dev` starts all of them again.
    PowerLoss,
}

/// What stays between runs, and shows that the directory is ours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Kept {
    format: u16,
    nodes: u32,
    etcd: bool,
    #[serde(default = "one")]
    data_dirs: u32,
}

fn one() -> u32 {
    1
}

/// The most directories of a node.
const MOST_DIRS: u32 = 16;

const FORMAT: u16 = 1;

/// Runs a cluster in the foreground until SIGINT or SIGTERM.
pub fn dev(options: &DevOptions, out: &mut dyn Progress) -> Result<(), LocalError> {
    let kept_before = options.dir.join(LOCAL_FILE).exists() && !options.reset;
    let kept = prepare(options)?;
    process::catch_stop();
    let mut cluster = ClusterOptions::new(&options.dir);
    cluster.binary = options.binary.clone();
    cluster.nodes = kept.nodes;
    cluster.data_dirs = kept.data_dirs;
    (cluster.metastore, cluster.controllers) =
        if kept.etcd { (Metastore::Etcd, 3) } else { (Metastore::Embedded, 1) };
    // So that `dev power-loss` loses what a power loss would.
    cluster.volatile = true;
    cluster.first_port = Some(FIRST_PORT);
    let mut cluster = Cluster::start(cluster)?;
    let given_up = cluster.take_news();
    // At a first start nobody knew the ports that were given up.
    for line in given_up.iter().filter(|_| kept_before) {
        out.line(line);
    }
    let url = cluster.sql_url()?;
    for line in endpoints(&cluster, &url) {
        out.line(&line);
    }
    if options.json {
        let object = serde_json::json!({
            "dir": cluster.dir(), "controllers": cluster.controllers(), "sql_url": url,
            "web_url": cluster.web_url(),
        });
        let mut stdout = std::io::stdout().lock();
        // Whoever does not read it does not need it.
        let _ = writeln!(stdout, "{object}").and_then(|()| stdout.flush());
    }
    Keeper::new(cluster)?.keep(out)
}

/// Harms a cluster that runs. What was done, in a sentence.
pub fn dev_command(dir: &Path, command: &DevCommand) -> Result<String, LocalError> {
    let running = Running::find(dir)?;
    let named = |text: &str| running.file().node_named(text).map(|node| node.id);
    Ok(match command {
        DevCommand::Kill(node) => {
            let id = named(node)?;
            running.kill(id)?;
            format!("node {} is killed; `understudy dev restart {}` starts it again", id.0, id.0)
        }
        DevCommand::Stop(node) => {
            let id = named(node)?;
            running.stop(id)?;
            format!("node {} is frozen; `understudy dev heal {}` lets it go on", id.0, id.0)
        }
        DevCommand::Cut(node) => {
            let id = named(node)?;
            running.cut(id)?;
            format!("node {} is cut off; `understudy dev heal {}` ends that", id.0, id.0)
        }
        DevCommand::Heal(node) => {
            let id = named(node)?;
            let healed = running.heal(id)?;
            match (healed.frozen, healed.cut) {
                (false, None) => format!("node {} was neither frozen nor cut off: nothing is changed", id.0),
                (true, None) => format!("node {} goes on; it was not cut off", id.0),
                (false, Some(cut)) => format!("node {} reaches {cut} again", id.0),
                (true, Some(cut)) => format!("node {} goes on, and reaches {cut} again", id.0),
            }
        }
        DevCommand::Restart { node, full, wait } => {
            let id = named(node)?;
            let news = keeper::ask(dir, &format!("restart{} {}", if *full { "-full" } else { "" }, id.0))?;
            if *wait {
                await_answer(dir, id)?;
            }
            let done = if *wait { "answers again" } else { "is started again" };
            let how = if *full { " and takes nothing from what it has" } else { "" };
            with_news(format!("node {} {done}{how}", id.0), &news)
        }
        DevCommand::PowerLoss => {
            let news = keeper::ask(dir, "power-loss")?;
            with_news("everything lost power at once and is started again".into(), &news)
        }
    })
}

/// Waits until a node that was started again answers. If it does not, the error says what to do.
fn await_answer(dir: &Path, node: NodeId) -> Result<(), LocalError> {
    // Its addresses and its process are those of its present life.
    Running::find(dir)?.settle(node, ANSWERS_WITHIN).map_err(|error| match error {
        LocalError::NotReady { name, seconds, why, log } => {
            let why = format!(
                "{why}; it runs and goes on trying: `understudy status` says whether a controller answers, \
                 and `--no-wait` waits for nothing"
            );
            LocalError::NotReady { name, seconds, why, log }
        }
        error => error,
    })
}

/// A sentence, and what else happened.
fn with_news(sentence: String, news: &str) -> String {
    if news.is_empty() { sentence } else { format!("{sentence}; {news}") }
}

/// Makes the directory, or checks that it is ours, and wipes it if that was asked for.
fn prepare(options: &DevOptions) -> Result<Kept, LocalError> {
    let dir = &options.dir;
    let not_ours = |why: &str| LocalError::NotOurs { dir: dir.clone(), why: why.into() };
    if let Ok(running) = Running::find(dir) {
        return Err(LocalError::Running { dir: dir.clone(), pid: running.file().keeper });
    }
    // Before anything is wiped or written: the number would be kept, and no later start could get past it.
    if let Some(nodes) = options.nodes {
        check_nodes(nodes)?;
    }
    if options.data_dirs.is_some_and(|dirs| !(1..=MOST_DIRS).contains(&dirs)) {
        return Err(LocalError::Usage(format!("a node has 1 to {MOST_DIRS} directories")));
    }
    let path = dir.join(LOCAL_FILE);
    let empty = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(LocalError::io(dir)(error)),
    };
    if !empty && !path.exists() {
        return Err(not_ours(&format!(
            "not the directory of a local cluster: it holds files, but no {LOCAL_FILE}"
        )));
    }
    if options.reset && !empty {
        fs::remove_dir_all(dir).map_err(LocalError::io(dir))?;
    }
    let known: Option<Kept> = if path.exists() { Some(read_json(&path)?) } else { None };
    if known.as_ref().is_some_and(|known| known.format > FORMAT) {
        return Err(not_ours("a newer release wrote it"));
    }
    let etcd_before = known.as_ref().is_some_and(|known| known.etcd);
    let etcd = options.metastore.map_or(etcd_before, |metastore| metastore == Metastore::Etcd);
    let nodes_before = known.as_ref().map_or(0, |known| known.nodes);
    let nodes = options.nodes.unwrap_or(if known.is_some() { nodes_before } else { 3 });
    if known.is_some() && etcd != etcd_before {
        return Err(not_ours("its records are in another metastore; --reset begins from nothing"));
    }
    if nodes < nodes_before {
        let why = format!(
            "the cluster has {nodes_before} nodes, and may have copies on all of them; --reset begins from nothing"
        );
        return Err(not_ours(&why));
    }
    let dirs_before = known.as_ref().map_or(1, |known| known.data_dirs);
    let data_dirs = options.data_dirs.unwrap_or(dirs_before);
    if data_dirs < dirs_before {
        let why =
            format!("its nodes have replicas in {dirs_before} directories each; --reset begins from nothing");
        return Err(not_ours(&why));
    }
    let kept = Kept { format: FORMAT, nodes, etcd, data_dirs };
    fs::create_dir_all(dir).map_err(LocalError::io(dir))?;
    write_json(&path, &kept)?;
    Ok(kept)
}

/// What a person wants to know of a cluster that has just started.
fn endpoints(cluster: &Cluster, url: &str) -> Vec<String> {
    let file = cluster.file();
    let mut lines = vec![format!("cluster in {}", cluster.dir().display())];
    for process in &file.etcd {
        lines.push(format!("  {:12}  pid {}", process.name, process.pid));
    }
    for controller in &file.controllers {
        let (name, pid) = (&controller.process.name, controller.process.pid);
        lines.push(format!("  {name:12}  pid {pid:<8} connect {}", controller.address));
    }
    for node in &file.nodes {
        let (name, pid) = (&node.process.name, node.process.pid);
        let (client, http) = (&node.addresses.client, &node.addresses.http);
        lines.push(format!("  {name:12}  pid {pid:<8} clients {client}  http http://{http}"));
    }
    lines.push(format!("  {:12}  psql '{url}'", "SQL"));
    let token = cluster.dir().join(TOKEN_FILE);
    lines.push(format!(
        "  {:12}  {} (to operate there: the token in {})",
        "web page",
        cluster.web_url(),
        token.display()
    ));
    lines.push(format!(
        "commands find it by --connect {} or in this directory",
        cluster.controllers().join(",")
    ));
    lines.push("harm it with `understudy dev kill|stop|cut|heal|restart NODE` and `dev power-loss`".into());
    lines.push(
        "Ctrl-C stops it; its data stay, but its logs wait for no disk: not for data that you cannot lose"
            .into(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path) -> DevOptions {
        DevOptions { dir: dir.to_path_buf(), ..DevOptions::default() }
    }

    #[test]
    fn a_wrong_number_of_nodes_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        prepare(&options(dir.path())).expect("made");
        let before = fs::read_to_string(dir.path().join(LOCAL_FILE)).expect("made");
        fs::write(dir.path().join("data"), "of a node").expect("written");
        for (nodes, reset) in [(0, false), (100, false), (100, true)] {
            let error = prepare(&DevOptions { nodes: Some(nodes), reset, ..options(dir.path()) });
            assert_eq!(error.expect_err("refused").exit_status(), 2);
            assert_eq!(fs::read_to_string(dir.path().join(LOCAL_FILE)).expect("there"), before);
            assert!(dir.path().join("data").exists());
        }
    }

    #[test]
    fn a_directory_that_is_not_ours_is_never_touched() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("thesis.txt"), "years of work").expect("written");
        for reset in [false, true] {
            let error = prepare(&DevOptions { reset, ..options(dir.path()) }).expect_err("refused");
            assert_eq!(error.exit_status(), 5);
            assert!(error.to_string().contains("nothing in it was touched"), "{error}");
        }
        assert!(dir.path().join("thesis.txt").exists());
    }

    #[test]
    fn a_cluster_is_kept_as_it_was_and_reset_only_on_request() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("dev");
        let kept = |nodes, reset| prepare(&DevOptions { nodes, reset, ..options(&path) });
        assert_eq!(kept(Some(4), false).expect("made").nodes, 4);
        fs::write(path.join("data"), "x").expect("written");
        assert_eq!(kept(None, false).expect("kept").nodes, 4);
        assert!(kept(Some(2), false).is_err());
        assert!(path.join("data").exists());
        assert_eq!(kept(None, true).expect("begun again").nodes, 3);
        assert!(!path.join("data").exists());
    }

    #[test]
    fn directories_are_added_and_not_taken_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("dev");
        let kept = |data_dirs| prepare(&DevOptions { data_dirs, ..options(&path) });
        for (asked, has) in [(None, 1), (Some(2), 2), (None, 2), (Some(3), 3)] {
            assert_eq!(kept(asked).expect("kept").data_dirs, has);
        }
        for wrong in [0, 2, 17] {
            assert!(kept(Some(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(kept(None).expect("kept").data_dirs, 3);
    }

    #[test]
    fn without_a_cluster_a_fault_command_says_what_to_do() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = dev_command(dir.path(), &DevCommand::Kill("1".into())).expect_err("none runs");
        assert_eq!(error.exit_status(), 4);
        assert!(error.to_string().ends_with("start one with `understudy dev`"), "{error}");
    }
}
