//! Drivers that people use, each with a program of its own against a cluster of three nodes. What is not
//! installed by `tests/drivers/install` is skipped, and that is said; `UNDERSTUDY_TOOLS` forbids it
//! (`docs/testing.md`).

use super::bank::number;
use super::sql::rows;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testing::missing;
use understudy_local::{Cluster, ClusterOptions};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers")
}

/// Where the drivers are.
fn installed() -> PathBuf {
    match std::env::var_os("UNDERSTUDY_DRIVERS") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/drivers"),
    }
}

/// True if a program can be run.
pub fn runs(program: &str, argument: &str) -> bool {
    let status = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Of clusters in which nobody fails: who was not run for a moment is not suspected, and no statement is told
/// to begin again.
pub fn patient(dir: &std::path::Path, suspect_ms: u64) -> ClusterOptions {
    let mut options = ClusterOptions::new(dir);
    options.settings.push(("timing.suspect_ms".into(), suspect_ms.to_string()));
    options
}

/// A cluster of three nodes, by its URL.
pub fn with_cluster(test: impl FnOnce(&str)) {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(patient(dir.path(), 10_000)).expect("starts");
    test(&cluster.sql_url().expect("a password"));
    cluster.shutdown();
}

/// The URL of another database of the cluster.
pub fn with_database(url: &str, database: &str) -> String {
    format!("{}/{database}", url.rsplit_once('/').expect("a database").0)
}

/// Runs a program to its end; what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).env_remove("PGPASSWORD").output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{complaint}");
    out
}

/// The file of a package's source, which has what its wheel lacks: documents and tests.
fn source(package: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(installed().join("source")).ok()?;
    let begins = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(package).is_some_and(|rest| rest.starts_with('-') && rest.ends_with(".tar.gz"))
    };
    files.filter_map(|entry| entry.ok().map(|entry| entry.path())).find(begins)
}

/// Runs a program in Python with a cluster's URL, and with the source of its package where it asks for that.
fn python(program: &str, package: &str, with_source: bool) {
    let packages = installed().join("python");
    if !packages.join(package).is_dir() {
        return missing(package, &format!("{package} is not in {}", packages.display()));
    }
    let source = source(package).filter(|_| with_source);
    if with_source && source.is_none() {
        return missing(
            &format!("{package}-source"),
            &format!("the source of {package} is not in {}", installed().join("source").display()),
        );
    }
    let path = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let paths = std::iter::once(packages).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(paths).expect("paths");
    with_cluster(|url| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(here().join(program)).arg(url).args(&source).env("PYTHONPATH", path);
        print!("{}", run(&mut command));
    });
}

/// psycopg 3: types, prepared statements, COPY, transactions over the tables of a database.
pub fn psycopg() {
    python("try_psycopg.py", "psycopg", false);
}

/// SQLAlchemy's ORM: relationships in both directions, cascades, violations, transactions begun again.
pub fn sqlalchemy() {
    python("try_sqlalchemy.py", "sqlalchemy", false);
}

/// SQLAlchemy's "ORM Quick Start" and Unified Tutorial, as its source package has them.
pub fn documents() {
    python("try_documents.py", "sqlalchemy", true);
}

/// What SQLAlchemy's dialect sends beside what its documents show, in a database.
pub fn tutorial() {
    python("try_tutorial.py", "sqlalchemy", false);
}

/// Django's bundled apps: `migrate`, and tests of our own in a database that Django makes.
pub fn django() {
    python("try_django.py", "django", false);
}

/// Django's own tests of its bundled apps, as its source package has them.
pub fn django_suites() {
    python("try_django_suites.py", "django", true);
}

/// pgjdbc: server-prepared statements in binary, generated keys, CopyManager, metadata, cursors, transactions
/// over the tables of a database.
pub fn jdbc() {
    let jars = installed().join("java");
    let jar = std::fs::read_dir(&jars).ok().and_then(|entries| {
        let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        paths.find(|path| path.extension().is_some_and(|extension| extension == "jar"))
    });
    let Some(jar) = jar.filter(|_| runs("java", "-version")) else {
        return missing("pgjdbc", &format!("no java, or no pgjdbc in {}", jars.display()));
    };
    with_cluster(|url| {
        let (user, rest) = url.split_once('@').expect("a user");
        let (hosts, _) = rest.split_once('/').expect("a database");
        let password = user.rsplit_once(':').expect("a password").1;
        let mut command = Command::new("java");
        command.arg("-cp").arg(&jar).arg(here().join("TryJdbc.java")).args([hosts, password]);
        print!("{}", run(&mut command));
    });
}

/// node-postgres: parameters, named statements, a pool, transactions over the tables of a database. It knows
/// one address only.
pub fn node() {
    let modules = installed().join("node/node_modules");
    if !modules.join("pg").is_dir() || !runs("node", "--version") {
        return missing("node-postgres", &format!("no node, or no pg in {}", modules.display()));
    }
    with_cluster(|url| {
        let (before, rest) = url.split_once('@').expect("a user");
        let (hosts, database) = rest.split_once('/').expect("a database");
        let first = hosts.split(',').next().expect("a node");
        let mut command = Command::new("node");
        command.arg(here().join("try_node.js")).arg(format!("{before}@{first}/{database}"));
        print!("{}", run(command.env("NODE_PATH", &modules)));
    });
}

/// pgbench with scripts of its own, in all three ways to send statements.
pub fn pgbench() {
    if !runs("pgbench", "--version") {
        return missing("pgbench", "pgbench is not installed");
    }
    with_cluster(|url| {
        rows(
            url,
            "CREATE TABLE bench (id bigint PRIMARY KEY, n bigint, filler varchar(20)) WITH (partitions = 2)",
        );
        for id in 1..=100 {
            rows(url, &format!("INSERT INTO bench VALUES ({id}, 0, 'new')"));
        }
        for mode in ["simple", "extended", "prepared"] {
            for script in ["pgbench_fill.sql", "pgbench_mix.sql", "pgbench_transaction.sql"] {
                let mut command = Command::new("pgbench");
                command.args(["-n", "-M", mode, "-c", "4", "-j", "2", "-t", "25", "--max-tries=100", "-f"]);
                let said = run(command.arg(here().join(script)).arg(url));
                assert!(said.contains("number of transactions actually processed: 100/100"), "{said}");
                assert!(said.contains("number of failed transactions: 0"), "{said}");
            }
        }
        // What was added is there once: 100 transactions of one in each mode, and what the mixed ones added.
        let changed = rows(url, "SELECT count(*) FROM bench WHERE filler = 'changed'");
        assert_ne!(changed, "0");
    });
}

/// Of 200 transactions of ten clients on one branch so many may be tried again.
const MOST_RETRIES: u64 = 20;

/// pgbench's own bank in a database: made by `pgbench -i`, and its own transactions in all three ways to send
/// statements. What accounts, tellers and branches have is what the history says.
pub fn pgbench_bank() {
    if !runs("pgbench", "--version") {
        return missing("pgbench", "pgbench is not installed");
    }
    with_cluster(|url| {
        rows(url, "CREATE DATABASE bank");
        let bank = &with_database(url, "bank");
        run(Command::new("pgbench").args(["-i", "-q", bank]));
        assert_eq!(rows(bank, "SELECT count(*) FROM pgbench_accounts"), "100000");
        let again = Command::new("pgbench").args(["-i", "-q", bank]).output().expect("it runs");
        assert!(again.status.success(), "a second time: {}", String::from_utf8_lossy(&again.stderr));
        let mut done = 0;
        for (at, mode) in ["simple", "extended", "prepared"].into_iter().enumerate() {
            for script in ["tpcb-like", "simple-update", "select-only"] {
                let mut command = Command::new("pgbench");
                command.args([
                    "-M",
                    mode,
                    "-b",
                    script,
                    "-c",
                    "10",
                    "-j",
                    "2",
                    "-t",
                    "20",
                    "--max-tries=1000",
                ]);
                // Once it clears the history away and has its tables vacuumed.
                if at > 0 || script != "tpcb-like" {
                    command.arg("-n");
                }
                let said = run(command.arg(bank));
                println!("{mode} {script}: {said}");
                assert!(said.contains("number of transactions actually processed: 200/200"), "{said}");
                assert!(said.contains("number of failed transactions: 0"), "{said}");
                // They take turns at the rows. Otherwise most would have to be tried again, more than once.
                assert!(number(&said, "total number of retries:") <= MOST_RETRIES, "{mode} {script}: {said}");
                done += if script == "select-only" { 0 } else { 200 };
            }
        }
        let total = |what: &str| rows(bank, &format!("SELECT sum({what}"));
        let history = total("delta) FROM pgbench_history");
        assert_eq!(rows(bank, "SELECT count(*) FROM pgbench_history"), done.to_string());
        assert_eq!(total("abalance) FROM pgbench_accounts"), history);
        assert_eq!(total("tbalance) FROM pgbench_tellers"), total("bbalance) FROM pgbench_branches"));
    });
}
