//! The controller's disk is lost, rots or is full: over real processes (PR-107).

mod common;

use common::{Ran, eventually, run, signal, understudy};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testing::SmallDisk;

/// A controller and nodes, each a process that is started and killed by itself.
struct Processes {
    dir: tempfile::TempDir,
    /// Where the controller's directories are.
    place: PathBuf,
    address: String,
    controller: Option<Child>,
    nodes: Vec<Option<Child>>,
}

impl Processes {
    /// A controller on this disk, or beside the nodes, and so many nodes that have registered.
    fn start(nodes: u32, disk: Option<&SmallDisk>) -> Processes {
        let dir = tempfile::tempdir().expect("a directory");
        let place = disk.map_or(dir.path().to_path_buf(), |disk| disk.place(""));
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = held.local_addr().expect("an address").to_string();
        drop(held);
        let mut processes = Processes { dir, place, address, controller: None, nodes: Vec::new() };
        let first = processes.place.join("first").display().to_string();
        assert_eq!(run(processes.dir.path(), &["init", &first, "--controller"]).status, 0);
        processes.start_controller("first");
        for node in 1..=nodes {
            let name = format!("n{node}");
            let ran = run(processes.dir.path(), &["init", &name, "--node", &node.to_string()]);
            assert_eq!(ran.status, 0, "{ran:?}");
            processes.nodes.push(None);
            processes.start_node(node);
        }
        processes.wait_live(nodes as usize);
        processes
    }

    fn spawn(&self, what: &str, log: &str, settings: &[(&str, String)]) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.dir.path().join(log));
        let mut command = understudy(self.dir.path());
        command.arg(what).stdout(Stdio::null()).stderr(log.expect("a log"));
        for (name, value) in settings {
            command.args(["--set", &format!("{name}={value}")]);
        }
        command.spawn().expect("the binary runs")
    }

    fn controller_settings<'a>(&self, name: &str) -> Vec<(&'a str, String)> {
        let dir = self.place.join(name).display().to_string();
        vec![("controller.data_dir", dir), ("controller.listen", self.address.clone())]
    }

    fn start_controller(&mut self, name: &str) {
        self.controller = Some(self.spawn("controller", "controller.log", &self.controller_settings(name)));
    }

    /// Starts a controller that must end by itself, and gives what it says.
    fn failing_controller(&self, name: &str) -> Ran {
        let settings = self.controller_settings(name);
        let words: Vec<String> =
            settings.iter().flat_map(|(name, value)| ["--set".into(), format!("{name}={value}")]).collect();
        let words: Vec<&str> = ["controller"].into_iter().chain(words.iter().map(String::as_str)).collect();
        run(self.dir.path(), &words)
    }

    fn start_node(&mut self, node: u32) {
        let settings = [
            ("node.data_dir", format!("n{node}")),
            ("node.controllers", self.address.clone()),
            ("node.listen_client", "127.0.0.1:0".into()),
            ("node.listen_peer", "127.0.0.1:0".into()),
            ("node.listen_heartbeat", "127.0.0.1:0".into()),
            ("node.listen_http", "127.0.0.1:0".into()),
            ("sql.listen", "off".into()),
            ("log.segment_bytes", "4194304".into()),
        ];
        let child = self.spawn("node", &format!("n{node}.log"), &settings);
        self.nodes[node as usize - 1] = Some(child);
    }

    fn kill_node(&mut self, node: u32) {
        end(self.nodes[node as usize - 1].take());
    }

    fn kill_controller(&mut self) {
        end(self.controller.take());
    }

    fn run(&self, words: &[&str]) -> Ran {
        run(self.dir.path(), &[words, &["--connect", &self.address]].concat())
    }

    /// A command that must succeed, if not at once.
    fn ok(&self, words: &[&str]) -> String {
        eventually(&format!("{words:?}"), || {
            let ran = self.run(words);
            (ran.status == 0).then_some(ran.out)
        })
    }

    fn wait_live(&self, nodes: usize) {
        eventually("all nodes are live", || {
            let ran = self.run(&["status", "--json", "--timeout", "1s"]);
            let live = |ran: &Ran| {
                ran.object()["nodes"].as_array().map(|all| all.iter().filter(|n| n["live"] == true).count())
            };
            (ran.status == 0 && live(&ran) == Some(nodes)).then_some(())
        });
    }

    /// The nodes in sync of each partition of `t`.
    fn in_sync(&self) -> Option<Vec<Vec<u64>>> {
        let ran = self.run(&["status", "--json"]);
        let seen = (ran.status == 0).then(|| ran.object())?;
        let numbers = |line: &serde_json::Value| {
            let list = line["in_sync"].as_array().cloned().unwrap_or_default();
            let mut nodes: Vec<u64> = list.iter().filter_map(|node| node.as_u64()).collect();
            nodes.sort_unstable();
            nodes
        };
        let lines = seen["partitions"].as_array()?;
        Some(lines.iter().filter(|line| line["table"] == "t").map(numbers).collect())
    }

    fn wait_in_sync(&self, nodes: &[u64]) {
        eventually(&format!("{nodes:?} in sync"), || {
            let all = self.in_sync()?;
            (!all.is_empty() && all.iter().all(|set| set == nodes)).then_some(())
        });
    }

    /// Rows that are acknowledged.
    fn put(&self, ids: std::ops::Range<u32>) {
        for id in ids {
            self.ok(&["put", "t", &format!("id={id}"), &format!("n={}", id * 7), "--timeout", "30s"]);
        }
    }

    fn check(&self, ids: std::ops::Range<u32>) {
        for id in ids {
            let found = self.ok(&["get", "t", &id.to_string(), "--timeout", "30s"]);
            assert!(found.contains(&(id * 7).to_string()), "row {id}: {found}");
        }
    }

    fn client_of(&self, node: u32) -> String {
        eventually("a node that listens", || {
            let text = fs::read_to_string(self.dir.path().join(format!("n{node}/ports.json"))).ok()?;
            let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
            Some(ports["listen"]["client"].as_str()?.to_string())
        })
    }

    /// `controller rebuild` into this directory, from one node: it names the others.
    fn rebuild(&self, name: &str, more: &[&str]) -> Ran {
        let (from, dir) = (self.client_of(1), self.place.join(name).display().to_string());
        let words = ["controller", "rebuild", "--from", &from, "--data-dir", &dir];
        run(self.dir.path(), &[&words[..], more].concat())
    }

    fn said(&self, log: &str) -> String {
        fs::read_to_string(self.dir.path().join(log)).unwrap_or_default()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let children = self.nodes.iter_mut().chain([&mut self.controller]);
        children.for_each(|child| end(child.take()));
    }
}

/// Ends a process as `kill -9` does.
fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

const CREATE: [&str; 11] = [
    "table",
    "create",
    "t",
    "--columns",
    "id:int,n:int",
    "--key",
    "id",
    "--partitions",
    "2",
    "--policy",
    "durable",
];

#[test]
fn pr107_the_controllers_disk_is_lost_and_nothing_that_was_acknowledged() {
    let mut processes = Processes::start(3, None);
    processes.ok(&CREATE);
    processes.put(0..10);
    let refused = processes.rebuild("second", &["--yes"]);
    assert!(
        refused.status == 5 && refused.sentence().contains("is connected to the controller"),
        "{refused:?}"
    );
    // Node 3 does not hear what happens after its end.
    processes.kill_node(3);
    processes.wait_in_sync(&[1, 2]);
    processes.put(10..20);
    processes.kill_controller();

    let refused = eventually("nodes that miss their controller", || {
        let ran = processes.rebuild("second", &["--yes"]);
        (!ran.err.contains("is connected to")).then_some(ran)
    });
    assert_eq!(refused.status, 5, "{refused:?}");
    let says = refused.sentence();
    assert!(says.contains("n3 did not tell") && says.contains("--accept-missing"), "{says}");
    let planned = processes.rebuild("second", &["--accept-missing", "--json"]);
    assert!(planned.status == 5 && planned.sentence().contains("--yes"), "{planned:?}");
    assert_eq!(
        (&planned.object()["written"], &planned.object()["missing"]),
        (&false.into(), &vec![3].into())
    );
    assert!(!processes.place.join("second").exists(), "nothing was changed");
    let written = processes.rebuild("second", &["--accept-missing", "--json", "--yes"]);
    assert_eq!(written.status, 0, "{written:?}");
    let object = written.object();
    let of_table: Vec<&serde_json::Value> =
        object["partitions"].as_array().expect("a list").iter().filter(|one| one["table"] == "t").collect();
    // At least the minutes since 1970, so that no two rebuilds have the same one.
    assert!(object["generation"].as_u64() > Some(29_000_000), "{object}");
    assert_eq!(of_table.len(), 2);
    assert!(of_table.iter().all(|one| one["closed"] == false && one["loss_possible"] == false), "{object}");

    processes.start_controller("second");
    processes.check(0..20);
    processes.put(20..25);
    processes.start_node(3);
    processes.wait_in_sync(&[1, 2, 3]);
    processes.check(0..25);
    all_nodes_start_again_without_a_controller(&mut processes);
    the_controller_that_was_replaced_is_not_listened_to(&mut processes);
}

/// What they keep is on their disks.
fn all_nodes_start_again_without_a_controller(processes: &mut Processes) {
    processes.kill_controller();
    fs::remove_dir_all(processes.place.join("second")).expect("lost");
    for node in 1..=3 {
        processes.kill_node(node);
    }
    (1..=3).for_each(|node| processes.start_node(node));
    let written = eventually("all nodes", || {
        let ran = processes.rebuild("third", &["--yes"]);
        (ran.status == 0).then_some(ran)
    });
    assert!(written.out.contains("nothing is lost") && !written.out.contains("may be lost"), "{written:?}");
    processes.start_controller("third");
    processes.check(0..25);
    processes.wait_in_sync(&[1, 2, 3]);
    let again = processes.rebuild("third", &["--yes"]);
    assert!(again.status == 5 && again.sentence().contains("nothing was changed"), "{again:?}");
}

fn the_controller_that_was_replaced_is_not_listened_to(processes: &mut Processes) {
    processes.kill_controller();
    processes.start_controller("first");
    for node in 1..=3 {
        eventually("a node that does not listen", || {
            let said = processes.said(&format!("n{node}.log"));
            said.contains("does not listen to the controller").then_some(())
        });
    }
    processes.kill_controller();
    processes.start_controller("third");
    processes.put(25..27);
    processes.check(0..27);
}

/// The rows of everybody, of node 3 alone, and those that are written without it.
const ROWS: [std::ops::Range<u32>; 3] = [0..5, 10..13, 20..23];

/// A node that led is left out, with rows that it acknowledged when no other node was there (R9, PR-200).
#[test]
fn pr107_who_is_left_out_comes_back_as_a_copy_and_its_tail_is_set_aside() {
    let [everybody, alone, without] = ROWS;
    let mut processes = Processes::start(3, None);
    let partition = led_by_node_3(&processes);
    // They hear nothing that happens after their ends.
    processes.kill_node(1);
    processes.kill_node(2);
    processes.wait_in_sync(&[3]);
    processes.put(alone);
    processes.kill_node(3);
    processes.kill_controller();
    fs::remove_dir_all(processes.place.join("first")).expect("lost");

    processes.start_node(1);
    processes.start_node(2);
    let refused = eventually("both tell what they keep", || {
        let ran = processes.rebuild("second", &["--yes"]);
        ran.err.contains("understudy: n3 did not tell").then_some(ran)
    });
    assert!(refused.status == 5 && refused.sentence().contains("--accept-missing"), "{refused:?}");
    let written = processes.rebuild("second", &["--accept-missing", "--json", "--yes"]);
    assert_eq!(written.status, 0, "{written:?}");
    let object = written.object();
    let sealed = object["partitions"].as_array().expect("a list").iter().find(|one| one["table"] == "t");
    let sealed = sealed.expect("the table has one");
    assert_eq!((&object["missing"], &sealed["left_out"]), (&vec![3].into(), &vec![3].into()), "{object}");
    assert_eq!((&sealed["closed"], &sealed["loss_possible"]), (&false.into(), &true.into()), "{object}");
    assert_ne!(sealed["primary"], 3, "{object}");

    processes.start_controller("second");
    processes.check(everybody.clone());
    processes.put(without.clone());
    processes.start_node(3);
    processes.wait_in_sync(&[1, 2, 3]);
    the_tail_of_node_3_is_named(&processes, partition);
    all_copies_have(&processes, &everybody.chain(without).collect::<Vec<u32>>());
}

/// A table of one partition, with its first rows on the disks of all nodes.
fn led_by_node_3(processes: &Processes) -> u64 {
    fs::write(processes.dir.path().join("placement"), "3 1 2\n").expect("writes");
    let create = ["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--partitions", "1"];
    // What is acknowledged is on the primary's disk, and need not be anywhere else.
    let rules = ["--policy", "local", "--min-in-sync", "1", "--placement", "placement"];
    processes.ok(&[&create[..], &rules].concat());
    processes.put(ROWS[0].clone());
    // It has a value already: this is one more entry, behind all of them.
    let last = processes.ok(&["put", "t", "id=0", "n=0", "--timeout", "30s", "--json"]);
    let last: serde_json::Value = serde_json::from_str(last.trim()).expect("JSON");
    eventually("all of it on all disks", || {
        let ran = processes.run(&["status", "--json"]);
        let seen = (ran.status == 0).then(|| ran.object())?;
        let line = seen["partitions"].as_array()?.iter().find(|line| line["table"] == "t")?;
        let replicas = line["replicas"].as_array()?;
        let level = replicas.iter().all(|copy| copy["durable"].as_u64() >= last["lsn"].as_u64());
        (line["primary"] == 3 && replicas.len() == 3 && level).then_some(())
    });
    processes.wait_in_sync(&[1, 2, 3]);
    last["partition"].as_u64().expect("a number")
}

/// With all that it acknowledged alone, and in the report of the rebuild.
fn the_tail_of_node_3_is_named(processes: &Processes, partition: u64) {
    let tails = eventually("what only node 3 had", || {
        let listed = processes.ok(&["partition", "tails", "list", "--json"]);
        let tails = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let tails: Vec<_> = tails.filter(|tail| tail["partition"] == partition).collect();
        let commits: u64 = tails.iter().filter_map(|tail| tail["commits"].as_u64()).sum();
        (commits >= ROWS[1].len() as u64).then_some(tails)
    });
    assert!(tails.iter().all(|tail| tail["node"] == 3), "{tails:?}");
    let files: Vec<&str> = tails.iter().map(|tail| tail["file"].as_str().expect("a name")).collect();
    let export = |file: &str| processes.ok(&["partition", "tails", "export", file, "--data-dir", "n3"]);
    let exported: String = files.iter().copied().map(export).collect();
    for id in ROWS[1].clone() {
        let values = format!(r#""values":{{"id":{id},"n":{}}}"#, id * 7);
        assert!(exported.contains(&values), "{values} of {tails:?}: {exported}");
    }
    eventually("a report that names it", || {
        let told = processes.ok(&["failover", "list", "--json"]);
        files.iter().all(|file| told.contains(*file)).then_some(())
    });
}

/// The rows of these numbers and no others, the same ones on all three nodes.
fn all_copies_have(processes: &Processes, ids: &[u32]) {
    let rows = processes.ok(&["scan", "t", "--json", "--timeout", "30s"]);
    let found = rows.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        (row["id"].as_u64(), row["n"].as_u64())
    });
    let expected = ids.iter().map(|id| (Some(u64::from(*id)), Some(u64::from(id * 7))));
    assert!(found.eq(expected), "{ids:?}: {rows}");
    // The lead may be handed back to node 3 meanwhile: then it is done again.
    eventually("three replicas that are compared", || {
        let ran = processes.run(&["scrub", "--table", "t", "--json", "--timeout", "30s"]);
        assert_ne!(ran.status, 1, "nothing is damaged: {ran:?}");
        (ran.status == 0 && ran.object()["compared"] == 3).then_some(())
    });
}

#[test]
fn pr107_records_that_rot_are_not_believed_and_the_way_out_is_named() {
    let mut processes = Processes::start(1, None);
    processes.ok(&CREATE);
    processes.put(0..5);
    let pid = processes.controller.as_ref().expect("it runs").id();
    signal(pid.into(), "TERM");
    end(processes.controller.take());
    let journal = processes.place.join("first/metastore/journal");
    let mut bytes = fs::read(&journal).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&journal, &bytes).expect("rots");
    let ran = processes.failing_controller("first");
    assert_eq!((ran.status, ran.err.lines().count()), (6, 1), "{ran:?}");
    assert!(ran.sentence().contains("damaged") && ran.sentence().contains("controller rebuild"), "{ran:?}");
    // It is gone: the records are made again beside it, and nothing that was acknowledged is lost.
    let written = eventually("a node that misses its controller", || {
        let ran = processes.rebuild("second", &["--yes"]);
        (ran.status == 0).then_some(ran)
    });
    assert!(written.out.contains("nothing is lost") && !written.out.contains("may be lost"), "{written:?}");
    assert_eq!(fs::read(&journal).expect("there"), bytes, "nothing was written over it");
    processes.start_controller("second");
    processes.check(0..5);
    processes.put(5..7);
    processes.check(0..7);
}

#[test]
fn f20_a_controller_whose_disk_is_full_says_so_and_goes_on_when_there_is_room() {
    let name = "f20_a_controller_whose_disk_is_full_says_so_and_goes_on_when_there_is_room";
    let Some(disk) = SmallDisk::of_test(name, 16, 500) else { return };
    let mut processes = Processes::start(1, Some(&disk));
    processes.ok(&CREATE);
    processes.put(0..3);
    disk.fill();
    let create =
        processes.run(&["table", "create", "u", "--columns", "id:int", "--key", "id", "--timeout", "2s"]);
    assert_ne!(create.status, 0, "it cannot be recorded: {create:?}");
    let status = processes.controller.take().expect("it ran").wait().expect("ours");
    assert_eq!(status.code(), Some(7));
    let said = processes.said("controller.log");
    assert!(said.lines().last().is_some_and(|line| line.contains("No space left")), "{said}");
    let ran = processes.failing_controller("first");
    assert_eq!((ran.status, ran.err.lines().count()), (7, 1), "{ran:?}");
    assert!(ran.sentence().contains("No space left"), "{ran:?}");
    disk.make_room();
    processes.start_controller("first");
    processes.wait_live(1);
    processes.check(0..3);
    processes.put(3..5);
}

/// One member of etcd, where it is installed.
fn etcd(dir: &Path) -> Option<(Child, String)> {
    let held: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().expect("an address"));
    let (client, peer) = (url(&held[0]), url(&held[1]));
    drop(held);
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(dir).stdout(Stdio::null()).stderr(Stdio::null());
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    match command.spawn() {
        Ok(child) => Some((child, client)),
        Err(error) => {
            testing::missing("etcd", &format!("etcd cannot be started ({error})"));
            None
        }
    }
}

#[test]
fn pr107_a_cluster_moves_into_etcd() {
    let mut processes = Processes::start(2, None);
    let Some((etcd, endpoint)) = etcd(&processes.place.join("etcd")) else { return };
    let _etcd = Ended(Some(etcd));
    processes.ok(&CREATE);
    processes.put(0..5);
    processes.wait_in_sync(&[1, 2]);
    processes.kill_controller();
    let settings = [
        "controller.metastore=etcd".to_string(),
        format!("controller.endpoints={endpoint}"),
        "controller.prefix=/understudy/moved".to_string(),
    ];
    let set: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let from = processes.client_of(2);
    let words = [&["controller", "rebuild", "--from", &from, "--yes"][..], &set].concat();
    let written = eventually("etcd, and nodes that miss their controller", || {
        let ran = run(processes.dir.path(), &words);
        (ran.status == 0).then_some(ran)
    });
    assert!(written.out.contains("nothing is lost"), "{written:?}");
    let again = run(processes.dir.path(), &words);
    assert!(again.status == 5 && again.sentence().contains("etcd has a cluster"), "{again:?}");
    let dir = processes.place.join("beside-etcd").display().to_string();
    assert_eq!(run(processes.dir.path(), &["init", &dir, "--controller"]).status, 0);
    let mut all = processes.controller_settings("beside-etcd");
    all.extend(settings.iter().map(|setting| {
        let (name, value) = setting.split_once('=').expect("a setting");
        (name, value.to_string())
    }));
    let controller = processes.spawn("controller", "controller.log", &all);
    processes.controller = Some(controller);
    processes.check(0..5);
    processes.put(5..8);
    processes.wait_in_sync(&[1, 2]);
    processes.check(0..8);
}

/// A process that ends with the test.
struct Ended(Option<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        end(self.0.take());
    }
}

/// For the tests that need none of the above.
#[test]
fn what_is_asked_for_wrongly_is_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let fails = |words: &[&str], status: i32, says: &str| {
        let ran = run(dir.path(), words);
        assert_eq!((ran.status, ran.err.lines().count()), (status, 1), "{ran:?}");
        assert!(ran.sentence().contains(says), "{says}: {ran:?}");
    };
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = held.local_addr().expect("an address").to_string();
    drop(held);
    fails(&["controller", "rebuild", "--data-dir", "new"], 2, "--from");
    fails(&["controller", "rebuild", "--from", &nobody], 2, "--data-dir");
    fails(&["controller", "rebuild", "--from", &nobody, "--data-dir", "new"], 4, "no node answers");
    fs::write(dir.path().join("letter"), "dear").expect("writes");
    fails(&["controller", "rebuild", "--from", &nobody, "--data-dir", "."], 5, "nothing was changed");
    assert!(!Path::new(&dir.path().join("new")).exists());
}
