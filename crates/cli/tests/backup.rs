//! Backups of a real cluster: as of one point under load, through the death of a node, refused when damaged.

mod common;

use client::{Client, Options};
use common::{Cluster, eventually, understudy};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use types::data::{Row, Value};

fn tables(cluster: &Cluster, names: &[&str]) {
    for name in names {
        let words =
            ["table", "create", name, "--columns", "id:int,n:int", "--key", "id", "--partitions", "2"];
        cluster.ok(&words);
    }
}

/// The ids in a table.
fn ids(cluster: &Cluster, table: &str) -> BTreeSet<u64> {
    let rows = cluster.ok(&["scan", table, "--json", "--timeout", "30s"]);
    let id = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        row["id"].as_u64().expect("an id")
    };
    rows.lines().map(id).collect()
}

/// A client that writes x into one table and then, once told, y into another: one command after the other.
struct Writer(Child);

impl Writer {
    fn start(cluster: &Cluster) -> Writer {
        let mut command = understudy(cluster.dir.path());
        let command = command.arg("shell").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("runs");
        let mut to = child.stdin.take().expect("a pipe");
        // Ends when the shell does.
        std::thread::spawn(move || {
            for id in 1.. {
                let both = format!("put x id={id} n={id}\nput y id={id} n={id}\n");
                if to.write_all(both.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Writer(child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_backup_under_load_is_of_one_point_and_comes_back_as_it_was() {
    let cluster = Cluster::start();
    tables(&cluster, &["x", "y"]);
    let writer = Writer::start(&cluster);
    eventually("some rows are in", || (ids(&cluster, "y").len() > 100).then_some(()));
    let before = ids(&cluster, "y");
    let made: Vec<serde_json::Value> =
        (0..3).map(|n| cluster.json(&["backup", "create", &format!("b{n}")])).collect();
    drop(writer);
    let after = ids(&cluster, "x");
    for (n, made) in made.iter().enumerate() {
        let dir = format!("b{n}");
        assert!(made["held_ms"].as_u64().expect("a number") < 2_000, "{made}");
        assert_eq!(cluster.json(&["backup", "verify", &dir])["damaged"], serde_json::json!([]));
        let refused = cluster.run(&["backup", "restore", &dir]);
        assert_eq!(refused.status, 5, "{refused:?}");
        assert!(refused.sentence().starts_with("the tables `x`, `y` exist already: --yes"), "{refused:?}");
        let restored = cluster.json(&["backup", "restore", &dir, "--yes", "--timeout", "30s"]);
        assert_eq!(restored["tables"], made["tables"]);
        assert_eq!(restored["replaced"], serde_json::json!(["x", "y"]));
        let (x, y) = (ids(&cluster, "x"), ids(&cluster, "y"));
        assert!(y.is_subset(&x), "y without x: {:?}", y.difference(&x).collect::<Vec<_>>());
        assert!(x.len() - y.len() <= 1, "x is one ahead at most: {} and {}", x.len(), y.len());
        assert!(before.is_subset(&y) && x.is_subset(&after));
    }
    let again = cluster.run(&["backup", "create", "b0"]);
    assert_eq!((again.status, again.sentence().contains("is not empty")), (5, true), "{again:?}");
}

/// Many rows, so that reading them takes its time.
fn many(cluster: &Cluster, rows: u64) {
    let lines: String = (1..=rows).map(|id| format!("{id},{}\n", id * 7)).collect();
    cluster.write("rows.csv", &format!("id,n\n{lines}"));
    tables(cluster, &["t"]);
    cluster.ok(&["load", "rows.csv", "--table", "t", "--timeout", "60s"]);
}

#[test]
fn a_node_that_dies_meanwhile_does_not_end_a_backup() {
    let cluster = Cluster::start();
    many(&cluster, 20_000);
    let victim = cluster.json(&["status"])["partitions"][0]["primary"].as_u64().expect("a node");
    let mut backup = understudy(cluster.dir.path());
    backup.args(["backup", "create", "b", "--max-rate", "150KB", "--json", "--timeout", "30s"]);
    let backup = backup.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    eventually("rows are being written", || fs::read_dir(cluster.path("b")).ok()?.next().map(|_| ()));
    cluster.ok(&["dev", "kill", &victim.to_string()]);
    let ended = backup.wait_with_output().expect("ours");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{said}");
    let made: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!(made["tables"][0]["rows"], 20_000, "{made} {said}");
    cluster.ok(&["backup", "verify", "b"]);
    // Two nodes are left: the table comes back with as many copies.
    let short = cluster.run(&["backup", "restore", "b", "--yes", "--timeout", "30s"]);
    assert_eq!((short.status, short.sentence().contains("wants 3 copies")), (5, true), "{short:?}");
    let restored = cluster.json(&["backup", "restore", "b", "--factor", "2", "--yes", "--timeout", "30s"]);
    assert_eq!((&restored["tables"], &restored["copies"]), (&made["tables"], &2.into()));
    assert_eq!(cluster.ok(&["count", "t"]).trim(), "20000");
}

#[test]
fn a_damaged_or_unfinished_backup_is_told_file_by_file_and_not_restored() {
    let cluster = Cluster::start();
    many(&cluster, 20_000);
    // Interrupted: there is no manifest.
    let mut unfinished = understudy(cluster.dir.path());
    unfinished.args(["backup", "create", "half", "--max-rate", "5KB"]).stderr(Stdio::null());
    let mut unfinished = unfinished.spawn().expect("runs");
    eventually("it has begun", || fs::read_dir(cluster.path("half")).ok()?.next().map(|_| ()));
    unfinished.kill().expect("ours");
    unfinished.wait().expect("ours");
    for words in [["backup", "verify", "half"], ["backup", "restore", "half"]] {
        let ran = cluster.run(&words);
        assert_eq!((ran.status, ran.sentence().contains("is no complete backup")), (3, true), "{ran:?}");
    }
    cluster.ok(&["backup", "create", "b"]);
    let files: Vec<PathBuf> = listed(&cluster.path("b"));
    assert!(files.iter().any(|file| file.ends_with("MANIFEST")) && files.len() >= 3, "{files:?}");
    for file in &files {
        let good = fs::read(file).expect("there");
        let name = file.file_name().expect("a name").to_str().expect("UTF-8");
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for bad in [&flipped[..], &good[..good.len() / 2], &good[..good.len() - 1], b""] {
            fs::write(file, bad).expect("writable");
            let ran = cluster.run(&["backup", "verify", "b"]);
            assert_eq!(ran.status, 1, "{name}: {ran:?}");
            assert_eq!(ran.out.lines().count(), 1, "{name}: {ran:?}");
            assert!(ran.out.starts_with(&format!("{name}: ")), "{ran:?}");
            let ran = cluster.run(&["backup", "restore", "b", "--yes"]);
            assert_eq!((ran.status, ran.sentence().contains(name)), (1, true), "{ran:?}");
        }
        fs::write(file, &good).expect("writable");
    }
    for file in files.iter().filter(|file| !file.ends_with("MANIFEST")) {
        fs::remove_file(file).expect("there");
    }
    let ran = cluster.run(&["backup", "verify", "b"]);
    assert_eq!((ran.status, ran.out.lines().count()), (1, files.len() - 1), "{ran:?}");
    assert_eq!(cluster.ok(&["count", "t"]).trim(), "20000", "nothing was changed");
}

fn listed(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
}

/// Moves money in a database whose transactions are global, a hundred in each of its accounts. Before each
/// transfer it is numbered in table `x`, and with it in table `steps` of the database.
struct Bank {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

const ACCOUNTS: i64 = 40;

impl Bank {
    fn start(cluster: &Cluster) -> Bank {
        let mut client = client_of(cluster);
        let stop = Arc::new(AtomicBool::new(false));
        let ends = stop.clone();
        let thread = std::thread::spawn(move || {
            let x = client.table("x").expect("there");
            let mut step = 0;
            while !ends.load(Ordering::Acquire) {
                step += 1;
                client.put(&x, &row(step, step)).expect("written");
                transfer(&mut client, "bank", step);
            }
            step as u64
        });
        Bank { stop, thread: Some(thread) }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.take().expect("it runs").join().expect("it wrote")
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn client_of(cluster: &Cluster) -> Client {
    let nodes = cluster.file();
    let controllers = nodes["controllers"].as_array().expect("controllers").iter();
    let address = |one: &serde_json::Value| one["address"].as_str().expect("an address").to_string();
    let options = Options { controllers: controllers.map(address).collect(), ..Options::default() };
    let options =
        Options { secret: local::secret(), wait: true, timeout: Duration::from_secs(30), ..options };
    Client::connect(options).expect("connects")
}

fn row(id: i64, n: i64) -> Row {
    Row::new(vec![Value::Int(id), Value::Int(n)])
}

fn transfer(client: &mut Client, name: &str, step: i64) {
    let database = client.database(name).expect("there");
    let accounts = client.table(&format!("{name}.accounts")).expect("there");
    let steps = client.table(&format!("{name}.steps")).expect("there");
    let (from, to) = (step % ACCOUNTS, (step * 7 + 1) % ACCOUNTS);
    let done = client.transact(&database, |client, transaction| {
        for (account, by) in [(from, -1), (to, 1)] {
            let there = client.get_in(transaction, &accounts, &[Value::Int(account)])?.expect("there");
            let Value::Int(balance) = there.values[1] else { panic!("{there:?}") };
            transaction.put(&accounts, &row(account, balance + by))?;
        }
        transaction.put(&steps, &row(step, step))
    });
    done.expect("transferred");
}

fn sum(cluster: &Cluster, table: &str) -> i64 {
    let rows = cluster.ok(&["scan", table, "--json", "--timeout", "30s"]);
    let n = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        row["n"].as_i64().expect("a number")
    };
    rows.lines().map(n).sum()
}

/// Global transactions go on while a backup is taken: what it has of them is one snapshot, and fits what it
/// has of all others.
#[test]
fn a_backup_has_one_snapshot_of_global_transactions() {
    let cluster = Cluster::start();
    tables(&cluster, &["x"]);
    let create = ["database", "create", "bank", "--partitions", "4", "--transactions", "global"];
    cluster.json(&[&create[..], &["--policy", "async"]].concat());
    for table in ["accounts", "steps"] {
        let create = ["table", "create", table, "--database", "bank", "--columns", "id:int,n:int"];
        cluster.json(&[&create[..], &["--key", "id"]].concat());
    }
    for account in 0..ACCOUNTS {
        cluster.ok(&["put", "bank.accounts", &format!("id={account}"), "n=100"]);
    }
    let bank = Bank::start(&cluster);
    eventually("some transfers are made", || (ids(&cluster, "bank.steps").len() > 50).then_some(()));
    let made: Vec<serde_json::Value> =
        (0..3).map(|n| cluster.json(&["backup", "create", &format!("b{n}")])).collect();
    assert!(bank.end() > 50);
    for (n, made) in made.iter().enumerate() {
        let dir = format!("b{n}");
        assert_eq!(cluster.json(&["backup", "verify", &dir])["damaged"], serde_json::json!([]));
        let restored = cluster.json(&["backup", "restore", &dir, "--yes", "--timeout", "60s"]);
        assert_eq!(restored["tables"], made["tables"]);
        assert_eq!(sum(&cluster, "bank.accounts"), 100 * ACCOUNTS);
        let (x, steps) = (ids(&cluster, "x"), ids(&cluster, "bank.steps"));
        assert!(steps.is_subset(&x), "steps without x: {:?}", steps.difference(&x).collect::<Vec<_>>());
        assert!(x.len() - steps.len() <= 1, "one ahead at most: {} and {}", x.len(), steps.len());
    }
    // What is restored has chains of its own, and goes on.
    cluster.json(&["backup", "restore", "b0", "--databases", "bank", "--as", "copy", "--timeout", "60s"]);
    let mut client = client_of(&cluster);
    let next = ids(&cluster, "copy.steps").last().map_or(0, |last| *last as i64) + 1;
    for step in next..next + 20 {
        transfer(&mut client, "copy", step);
    }
    assert_eq!(sum(&cluster, "copy.accounts"), 100 * ACCOUNTS);
    assert_eq!(ids(&cluster, "copy.steps").len(), next as usize + 19);
}
