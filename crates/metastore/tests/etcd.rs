//! Against a real etcd cluster of three members, started on free ports and stopped by process id. Skipped,
//! with a line that says so, where no `etcd` is installed.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use understudy_metastore::{Change, Changes, Compare, Election, Etcd, EtcdConfig, MetaError, Metastore, Txn};

/// Three members of etcd in temporary directories.
struct Cluster {
    members: Vec<Member>,
    _directory: tempfile::TempDir,
}

struct Member {
    client: String,
    process: Option<Child>,
}

impl Cluster {
    /// None if etcd is not installed.
    fn start() -> Option<Cluster> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        {
            testing::missing("etcd", "etcd is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        // All ports are held until all are known, so that they differ.
        let held: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let urls: Vec<String> =
            held.iter().map(|listener| format!("http://{}", listener.local_addr().unwrap())).collect();
        drop(held);
        let (clients, peers) = urls.split_at(3);
        let all: Vec<String> =
            peers.iter().enumerate().map(|(index, peer)| format!("m{index}={peer}")).collect();
        let start = |index: usize| {
            let process = Command::new("etcd")
                .args(["--name", &format!("m{index}")])
                .arg("--data-dir")
                .arg(directory.path().join(format!("m{index}")))
                .args(["--listen-client-urls", &clients[index], "--advertise-client-urls", &clients[index]])
                .args(["--listen-peer-urls", &peers[index], "--initial-advertise-peer-urls", &peers[index]])
                .args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "test"])
                .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            Member { client: clients[index].clone(), process: Some(process.unwrap()) }
        };
        let cluster = Cluster { members: (0..3).map(start).collect(), _directory: directory };
        cluster.wait_until_it_answers();
        Some(cluster)
    }

    fn config(&self, prefix: &str) -> EtcdConfig {
        EtcdConfig::new(self.members.iter().map(|member| member.client.clone()).collect(), prefix)
    }

    fn wait_until_it_answers(&self) {
        let mut etcd = Etcd::new(self.config("/wait")).unwrap();
        let since = Instant::now();
        while etcd.range("").is_err() {
            assert!(since.elapsed() < Duration::from_secs(60), "etcd does not come up");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Kills the member that leads.
    fn kill_leader(&mut self) {
        for member in &mut self.members {
            let url = format!("{}/v3/maintenance/status", member.client);
            let Ok(mut response) = ureq::post(&url).send_json(serde_json::json!({})) else { continue };
            let status: serde_json::Value = response.body_mut().read_json().unwrap();
            if status["leader"] == status["header"]["member_id"] {
                let mut process = member.process.take().unwrap();
                process.kill().unwrap();
                process.wait().unwrap();
                return;
            }
        }
        panic!("no member leads");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn cas(key: &str, revision: u64, value: &str) -> Txn {
    Txn {
        compares: vec![Compare { key: key.into(), revision }],
        puts: vec![(key.into(), value.into())],
        ..Txn::default()
    }
}

/// Waits for changes after `revision` until there are `count`.
fn follow(etcd: &mut Etcd, mut revision: u64, count: usize) -> Vec<Change> {
    let (mut all, since) = (Vec::new(), Instant::now());
    while all.len() < count {
        assert!(since.elapsed() < Duration::from_secs(30), "{} of {count} changes arrived", all.len());
        match etcd.changes_since(revision).unwrap() {
            Changes::Since { revision: next, changes } => {
                all.extend(changes);
                revision = next;
            }
            Changes::Reload => panic!("nothing was compacted"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    all
}

#[test]
fn etcd_keeps_the_contract() {
    let Some(cluster) = Cluster::start() else { return };
    transactions(&cluster);
    changes(&cluster);
    compaction(&cluster);
    elections(&cluster);
}

fn transactions(cluster: &Cluster) {
    let mut one = Etcd::new(cluster.config("/c1")).unwrap();
    let mut two = Etcd::new(cluster.config("/c1")).unwrap();
    let mut other = Etcd::new(cluster.config("/c2")).unwrap();
    assert!(one.txn(cas("a", 0, "1")).unwrap().succeeded);
    let lost = two.txn(Txn { also_read: vec!["b".into()], ..cas("a", 0, "2") }).unwrap();
    assert!(!lost.succeeded);
    let Some((revision, bytes)) = lost.current[0].1.clone() else { panic!("a is there") };
    assert_eq!((bytes.as_slice(), &lost.current[1]), (b"1".as_slice(), &("b".to_string(), None)));
    let won = two.txn(Txn { also_read: vec!["b".into()], ..cas("a", revision, "") }).unwrap();
    assert!(won.succeeded && won.revision > revision);
    assert_eq!(won.current, [("a".to_string(), Some((won.revision, vec![]))), ("b".to_string(), None)]);
    // Reading only, and many keys at once, with one removed.
    let read = one.txn(Txn { also_read: vec!["a".into()], ..Txn::default() }).unwrap();
    assert_eq!(read.current, [("a".to_string(), Some((won.revision, vec![])))]);
    let puts: Vec<(String, Vec<u8>)> =
        (0..99).map(|key| (format!("n/{key:03}"), vec![0, 255, key])).collect();
    let compares = puts.iter().map(|(key, _)| Compare { key: key.clone(), revision: 0 }).collect();
    assert!(one.txn(Txn { compares, puts, deletes: vec!["a".into()], also_read: vec![] }).unwrap().succeeded);
    let snapshot = two.range("n/").unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.entries[7].value.as_slice()), (99, [0, 255, 7].as_slice()));
    assert_eq!(two.range("").unwrap().entries.len(), 99);
    assert_eq!(other.range("").unwrap().entries, [], "prefixes do not mix");
    // What can never succeed is told apart from what is not known.
    let many: Vec<(String, Vec<u8>)> = (0..200).map(|key| (format!("x{key}"), vec![])).collect();
    assert!(matches!(one.txn(Txn { puts: many, ..Txn::default() }), Err(MetaError::Invalid(_))));
    assert!(one.txn(cas("after", 0, "1")).unwrap().succeeded, "the connection is still good");
}

fn changes(cluster: &Cluster) {
    let mut writer = Etcd::new(cluster.config("/c3")).unwrap();
    let mut reader = Etcd::new(cluster.config("/c3")).unwrap();
    let start = reader.range("").unwrap().revision;
    assert_eq!(reader.changes_since(start).unwrap(), Changes::Since { revision: start, changes: vec![] });
    let first = writer.txn(cas("a", 0, "1")).unwrap().revision;
    let second = writer.txn(Txn { deletes: vec!["a".into()], ..cas("b", 0, "2") }).unwrap().revision;
    let mut seen = follow(&mut reader, start, 3);
    seen[1..].sort_by(|x, y| x.key.cmp(&y.key));
    let change = |key: &str, revision, value: Option<&str>| Change {
        key: key.into(),
        revision,
        value: value.map(|value| value.into()),
    };
    assert_eq!(
        seen,
        [change("a", first, Some("1")), change("a", second, None), change("b", second, Some("2"))]
    );
    assert_eq!(follow(&mut reader, first, 2).len(), 2, "what has arrived can be asked for again");
    assert!(
        matches!(reader.changes_since(second + 100), Ok(Changes::Since { changes, .. }) if changes.is_empty())
    );
}

fn compaction(cluster: &Cluster) {
    let mut etcd = Etcd::new(cluster.config("/c4")).unwrap();
    let first = etcd.txn(cas("a", 0, "1")).unwrap().revision;
    let second = etcd.txn(cas("a", first, "2")).unwrap().revision;
    let url = format!("{}/v3/kv/compaction", cluster.members[0].client);
    ureq::post(&url).send_json(serde_json::json!({ "revision": second.to_string() })).unwrap();
    let since = Instant::now();
    while etcd.changes_since(first - 1).unwrap() != Changes::Reload {
        assert!(since.elapsed() < Duration::from_secs(20), "a gap in the history goes unnoticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let now = etcd.range("").unwrap().revision;
    etcd.changes_since(now).unwrap();
    etcd.txn(cas("b", 0, "3")).unwrap();
    assert_eq!(follow(&mut etcd, now, 1)[0].key, "b");
}

fn elections(cluster: &Cluster) {
    let config = cluster.config("/c5");
    let ttl = Duration::from_secs(2);
    let mut one = Election::new(&config, "one", ttl).unwrap();
    let mut two = Election::new(&config, "two", ttl).unwrap();
    assert!(one.step().unwrap() && one.leads());
    assert!(!two.step().unwrap());
    assert!(one.step().unwrap(), "it is renewed");
    one.resign().unwrap();
    assert!(!one.leads() && two.step().unwrap());
    // The holder falls silent: it stops by its own clock, and another one comes to lead.
    let since = Instant::now();
    while !one.step().unwrap() {
        assert!(since.elapsed() < Duration::from_secs(20), "a lease does not run out");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(!two.leads(), "two leaders by their own word");
    assert!(since.elapsed() > Duration::from_secs(1));
    assert!(!two.step().unwrap(), "its lease is gone, and it knows");
}

/// PR-16, F17: the leader of etcd dies in the middle of a stream of compare-and-set. Every step is applied
/// exactly once.
#[test]
fn no_compare_and_set_is_lost_or_applied_twice_when_the_leader_dies() {
    let Some(mut cluster) = Cluster::start() else { return };
    let mut etcd = Etcd::new(cluster.config("/stream")).unwrap();
    let mut reader = Etcd::new(cluster.config("/stream")).unwrap();
    let start = reader.range("").unwrap().revision;
    reader.changes_since(start).unwrap();
    let (steps, mut revision, mut unknown) = (400u32, 0, 0);
    for step in 1..=steps {
        if step == steps / 4 {
            cluster.kill_leader();
        }
        let since = Instant::now();
        revision = loop {
            assert!(since.elapsed() < Duration::from_secs(60), "etcd does not recover");
            match etcd.txn(cas("counter", revision, &step.to_string())) {
                Ok(outcome) => {
                    // Nobody else writes: whether it was this attempt or an earlier one, the step is in.
                    let (at, value) = outcome.current[0].1.clone().expect("the counter is there");
                    assert_eq!(value, step.to_string().into_bytes(), "a step was lost");
                    break at;
                }
                Err(MetaError::Unknown(_)) => unknown += 1,
                Err(error) => panic!("{error}"),
            }
        };
    }
    let seen = follow(&mut reader, start, steps as usize);
    let mut times: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for change in &seen {
        *times.entry(change.value.clone().unwrap()).or_insert(0) += 1;
    }
    assert_eq!(times.len(), steps as usize);
    assert!(times.values().all(|count| *count == 1), "a step was applied twice");
    assert_eq!(reader.range("").unwrap().entries[0].value, steps.to_string().into_bytes());
    eprintln!("{unknown} outcomes were unknown");
}
