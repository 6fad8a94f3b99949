//! `bench` on a cluster of the real binary, with as little work as makes figures.

mod common;

use common::run;
use serde_json::Value;
use std::path::Path;

#[test]
fn the_sql_gateway_is_measured_beside_postgresql() {
    let dir = tempfile::tempdir().expect("a directory");
    let ran = run(
        dir.path(),
        &[
            "bench",
            "sql",
            "--json",
            "--seconds",
            "0.2",
            "--rounds",
            "1",
            "--records",
            "300",
            "--rows",
            "3000",
            "--work-dir",
            dir.path().to_str().expect("UTF-8"),
        ],
    );
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let names: Vec<&str> = lines.iter().filter_map(|line| line["name"].as_str()).collect();
    let expected = [
        "select-vs-postgres",
        "update-durable-vs-postgres-on",
        "update-semi-vs-postgres-remote_write",
        "count-a-range",
        "psql-first-result",
    ];
    assert_eq!(names, expected);
    for line in &lines {
        match line["skipped"].as_str() {
            Some(why) => testing::missing("postgres", &format!("{}: {why}", line["name"])),
            None => {
                assert!(line["ours"]["ops_s"]["median"].as_f64().is_some_and(|ops| ops > 0.0), "{line}");
                assert!(line["ours"]["cpu_us_per_op"].as_f64().is_some_and(|us| us > 0.0), "{line}");
                // How long psql takes has a goal in milliseconds.
                let goals = line["goals"].as_array().is_some_and(|goals| !goals.is_empty());
                assert!(line["ratio"]["median"].as_f64().is_some(), "{line}");
                assert!(line["goal"].as_f64().is_some() || goals, "{line}");
            }
        }
    }
}

/// Lines of `bench ycsb` with as little work as makes figures.
fn ycsb(words: &str) -> (tempfile::TempDir, Vec<Value>) {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8").to_string();
    let all = format!("bench ycsb --json --records 300 --seconds 0.2 --rounds 1 {words} --work-dir {place}");
    let ran = run(dir.path(), &all.split(' ').collect::<Vec<&str>>());
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines = ran.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    (dir, lines)
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["name"].as_str()).collect()
}

/// Each operation's answer is checked by the bench itself: scans find what is there, inserts are new.
#[test]
fn ycsbs_workloads_are_measured_by_put_and_by_procedure() {
    let wanted = ["workload-a", "workload-b", "workload-c", "workload-d", "workload-e", "workload-f"];
    let (_dir, lines) = ycsb("--workload a,b,c,d,e,f");
    assert_eq!(names(&lines), wanted);
    for line in &lines {
        assert!(line["ours"]["ops_s"]["median"].as_f64().is_some_and(|ops| ops > 0.0), "{line}");
        let mix = &line["workload"]["mix"];
        let parts = ["read", "update", "insert", "scan", "modify"];
        let sum: u64 = parts.iter().filter_map(|part| mix[part].as_u64()).sum();
        assert_eq!((sum, line["workload"]["by"].as_str()), (100, Some("put")), "{line}");
        assert!(line["ours"]["service"].is_null(), "closed loops have one kind of latency: {line}");
    }
    assert_eq!(lines[3]["workload"]["distribution"], "latest");
    let (_dir, lines) =
        ycsb("--workload a,d,e,f --by procedure --value-bytes 100 --log memory --policy semi");
    assert_eq!(names(&lines), ["workload-a", "workload-d", "workload-e", "workload-f"]);
    assert!(lines.iter().all(|line| line["workload"]["by"] == "procedure"), "{lines:?}");
}

#[test]
fn an_open_loop_counts_from_when_an_operation_was_to_begin() {
    let (_dir, lines) = ycsb("--rate 200 --updates 50 --factor 1 --policy none --log memory");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(line["workload"]["offered_s"], 200.0);
    let ops = line["ours"]["ops_s"]["median"].as_f64().expect("measured");
    assert!(ops <= 210.0, "no more than offered: {ops}");
    let both =
        [&line["ours"], &line["ours"]["service"]].map(|times| times["mean_us"].as_f64().expect("measured"));
    assert!(both[0] >= both[1], "{both:?}");
}

#[test]
fn the_sweep_has_a_line_for_each_way_and_share_and_four_figures() {
    let (dir, lines) = ycsb("--sweep --updates 0,100 --partitions 2 --cpu-quota 60 --plot figures");
    assert_eq!(lines.len(), 14, "{:?}", names(&lines));
    for line in lines.iter().filter(|line| line["workload"]["backups"] != 0) {
        assert!(line["ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{line}");
        assert!(line["latency_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{line}");
    }
    for number in 1..=4 {
        let svg = std::fs::read_to_string(dir.path().join(format!("figures/ycsb-figure-{number}.svg")));
        assert!(svg.expect("drawn").contains("share of updates"));
    }
}

/// The bench itself refuses numbers that do not add up to the calls that were answered.
#[test]
fn calls_are_measured_compiled_in_and_in_the_language_for_users() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8");
    let words = "bench calls --json --rows 100 --clients 8 --seconds 0.3 --rounds 1 --factor 3 --ship calls --work-dir";
    let ran = run(dir.path(), &words.split(' ').chain([place]).collect::<Vec<_>>());
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(names(&lines), ["calls-builtin", "calls-wasm"]);
    for line in &lines {
        assert!(line["ours"]["ops_s"]["median"].as_f64().is_some_and(|ops| ops > 0.0), "{line}");
        assert!(
            line["ours"]["label"].as_str().is_some_and(|label| label.contains("calls shipped")),
            "{line}"
        );
    }
    assert_eq!(ran.err.matches("the numbers add up to the").count(), 2, "{}", ran.err);
}

/// Tables in a database, and pgbench against both sides: the bench itself refuses sums that differ.
#[test]
fn databases_are_measured_beside_bare_tables_and_postgresql() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8");
    let words = "bench databases --json --records 100 --tables 3 --scale 1 --clients 4 --seconds 0.5 --rounds 1 --work-dir";
    let ran = run(dir.path(), &words.split(' ').chain([place]).collect::<Vec<_>>());
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(names(&lines), bench::DATABASE_LINES);
    for line in lines.iter().filter(|line| line["skipped"].is_null()) {
        assert!(line["ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{line}");
    }
    let bank = lines.iter().find(|line| line["name"] == "pgbench-tpcb-vs-postgres").expect("a line");
    if bank["skipped"].is_null() {
        assert!(bank["workload"]["done_ours"]["transactions"].as_u64() > Some(0), "{bank}");
        assert_eq!(bank["workload"]["done_ours"]["failed"], 0, "{bank}");
    }
}

/// TPC-C with a few rows, in one partition, in two, and with transactions over two: its conditions are
/// checked by the bench itself.
#[test]
fn tpcc_is_measured_beside_postgresql() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8");
    for (partitions, remote) in [("1", "0"), ("2", "0"), ("2", "50")] {
        let words =
            "bench tpcc --json --warehouses 2 --customers 30 --items 100 --seconds 1 --rounds 1 --clients 4";
        let more = ["--partitions", partitions, "--remote", remote, "--work-dir", place];
        let words: Vec<&str> = words.split(' ').chain(more).collect();
        let ran = run(dir.path(), &words);
        assert_eq!(ran.status, 0, "{ran:?}");
        let line: Value = serde_json::from_str(ran.out.trim()).expect("one object");
        assert_eq!((line["bench"].as_str(), line["name"].as_str()), (Some("tpcc"), Some("sql-vs-postgres")));
        assert!(ran.err.contains("the conditions hold on each replica, and all are alike"), "{}", ran.err);
        match line["skipped"].as_str() {
            Some(why) => testing::missing("postgres", why),
            None => {
                assert!(line["ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{line}");
            }
        }
    }
}

/// How many configurations each experiment has with one data set.
const EXPERIMENTS: [(&str, usize); 8] = [
    ("bulk-by-factor", 3),
    ("ingestion-by-factor", 3),
    ("query-by-factor", 3),
    ("failover", 5),
    ("ingestion-by-memory", 2),
    ("failover-by-checkpoint", 3),
    ("failback", 6),
    ("moves", 1),
];

/// The experiments with a few records: what each configuration must say, and figures that can be read.
#[test]
fn the_documents_experiments_have_their_figures() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8");
    let words =
        "bench gleambook --json --records 2000 --sizes 20 --rounds 1 --seconds 0.3 --moves 3 --plot figures";
    let words: Vec<&str> = words.split(' ').chain(["--work-dir", place]).collect();
    let ran = run(dir.path(), &words);
    assert_eq!(ran.status, 0, "{ran:?}");
    let points: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let of = |name: &str| -> Vec<&Value> { points.iter().filter(|point| point["name"] == name).collect() };
    for (name, expected) in EXPERIMENTS {
        assert_eq!(of(name).len(), expected, "{name} in {}", ran.out);
        for point in of(name) {
            assert!(point["value"]["median"].as_f64().is_some_and(|value| value > 0.0), "{point}");
            assert_eq!(point["bench"], "gleambook");
        }
        figure_of(&dir.path().join(format!("figures/gleambook-{name}.svg")), expected);
    }
    ingested(&of("ingestion-by-factor"));
    ingested(&of("ingestion-by-memory"));
    let increases =
        of("ingestion-by-factor").iter().filter(|point| !point["increase_percent"].is_null()).count();
    assert_eq!(increases, 2, "of factors 2 and 3");
    for point in of("bulk-by-factor") {
        above_zero(point, &["records_per_s", "cpu_us_per_record", "file_bytes_per_record"]);
        assert_eq!(point["copies"], point["factor"], "{point}");
        // The log has a mark for each partition, and no rows.
        assert!(point["log_bytes_per_record"].as_f64() < Some(100.0), "{point}");
    }
    for point in of("query-by-factor") {
        above_zero(point, &["queries", "p50_ms", "p99_ms", "ingested_per_s"]);
        assert_eq!(point["counted"], 899, "{point}");
    }
    for point in of("failover").into_iter().chain(of("failover-by-checkpoint")) {
        above_zero(point, &["from_fault_ms", "from_detection_ms", "first_write_ms", "log_bytes_of_node"]);
        above_zero(point, &["new_primaries", "failed_over", "others_reads"]);
        assert!(point["from_fault_ms"].as_f64() >= point["from_detection_ms"].as_f64(), "{point}");
    }
    for point in of("failback") {
        above_zero(point, &["lead_back_s", "log_bytes", "missed_records"]);
        // A full copy is sent as files.
        assert!(point["full"] == false || point["shipped_bytes"].as_f64() > Some(0.0), "{point}");
    }
    let moves = of("moves")[0];
    above_zero(moves, &["p99_ms", "max_ms", "move_s", "writes_per_s", "writes_per_s_moving", "share"]);
    assert_eq!((&moves["moves"], &moves["rounds"]), (&3.into(), &3.into()), "{moves}");
    let goals = points.iter().flat_map(|point| point["goals"].as_array().expect("a list"));
    let compared: Vec<&str> = goals.filter_map(|goal| goal["what"].as_str()).collect();
    for what in ["CPU per record", "bytes between nodes", "replay of cold", "replay of hot", "longest gap"] {
        assert!(compared.iter().any(|goal| goal.starts_with(what)), "{what} in {compared:?}");
    }
}

fn above_zero(point: &Value, fields: &[&str]) {
    for field in fields {
        assert!(point[field].as_f64().is_some_and(|value| value > 0.0), "{field} of {point}");
    }
}

fn ingested(points: &[&Value]) {
    for point in points {
        above_zero(point, &["records", "records_per_s", "cpu_us_per_record", "log_bytes_per_record"]);
        assert_eq!(point["copies"], point["factor"], "{point}");
        let backups = point["factor"].as_u64() > Some(1);
        // A log that backups do not get would show here.
        assert_eq!(point["network_bytes_per_record"].as_f64() > Some(300.0), backups, "{point}");
    }
}

/// A well formed SVG with a bar for each point on its ground.
fn figure_of(path: &Path, points: usize) {
    let svg = std::fs::read_to_string(path).expect("a figure");
    let document = roxmltree::Document::parse(&svg).expect("well formed");
    let named =
        |node: &roxmltree::Node<'_, '_>, name: &str| node.has_tag_name(("http://www.w3.org/2000/svg", name));
    assert!(named(&document.root_element(), "svg"));
    let bars = document.descendants().filter(|node| named(node, "rect")).count();
    assert!(bars > points, "{bars} in {}", path.display());
}

#[test]
fn an_experiment_that_is_not_there_is_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    for (words, says) in [
        (
            "bench gleambook --only failovers",
            "there is no experiment 'failovers'; choose from bulk-by-factor, ",
        ),
        ("bench gleambook --records 3", "the largest data set has 100 to 100000000 records, not 3"),
        ("bench gleambook --sizes 0", "sizes are twentieths of the largest data set, 1 to 20"),
    ] {
        let ran = run(dir.path(), &words.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.sentence().starts_with(says), "{ran:?}");
        assert!(ran.out.is_empty());
    }
}

/// `bench tpcc` with few rows and these words more.
fn tpcc(words: &str) -> common::Ran {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8").to_string();
    let all = format!("bench tpcc --json --customers 20 --items 100 {words} --work-dir {place}");
    run(dir.path(), &all.split(' ').collect::<Vec<&str>>())
}

/// The bench itself refuses a replica on which a condition does not hold, one that differs, and an order that
/// was acknowledged and is not there.
#[test]
fn tpccs_conditions_hold_on_every_replica_after_kill_freeze_and_cut() {
    for words in [
        "--by procedure --faults kill,stop,cut --seconds 2 --warehouses 2 --partitions 2",
        "--by procedure --faults kill --seconds 2 --warehouses 1 --partitions 1 --ship calls --policy sync",
    ] {
        let ran = tpcc(words);
        assert_eq!(ran.status, 0, "{ran:?}");
        let line: Value = serde_json::from_str(ran.out.trim()).expect("an object");
        assert_eq!(
            (&line["name"], &line["workload"]["remote_percent"]),
            (&"procedure-under-faults".into(), &0.into())
        );
        let done = &line["workload"]["done"];
        for what in ["committed", "acknowledged_orders", "replicas_checked"] {
            assert!(done[what].as_u64() >= Some(6), "{what}: {line}");
        }
        assert!(ran.err.contains("the conditions hold on each of"), "{ran:?}");
    }
}

#[test]
fn tpcc_by_procedure_is_measured_beside_postgresql() {
    let ran = tpcc("--by procedure --seconds 0.3 --rounds 1 --warehouses 1 --partitions 1");
    assert_eq!(ran.status, 0, "{ran:?}");
    let line: Value = serde_json::from_str(ran.out.trim()).expect("an object");
    assert_eq!(line["name"], "procedure-vs-postgres");
    assert!(line["ours"]["ops_s"]["median"].as_f64().is_some_and(|ops| ops > 0.0), "{line}");
    for (words, said) in [
        ("--remote 101", "--remote is a share of 100"),
        ("--remote 15 --by procedure", "--remote goes with --by sql"),
        ("--remote 15 --warehouses 1", "at least 2 warehouses"),
        ("--faults kill", "go with --by procedure"),
        ("--by procedure --faults power", "choose of kill, stop, cut"),
        ("--by procedure --faults rain", "there is no fault `rain`"),
    ] {
        let ran = tpcc(words);
        assert!(ran.status == 2 && ran.err.contains(said), "{words}: {ran:?}");
    }
}

/// Every experiment of `bench txn` with a few rows: what was acknowledged is compared with the rows by the
/// bench itself.
#[test]
fn transactions_over_partitions_are_measured_and_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().to_str().expect("UTF-8");
    let words = "bench txn --json --rows 300 --rounds 1 --seconds 0.5 --clients 1,8 --servers 3 --partitions 3 \
                 --intervals 100 --rate 50 --check --plot figures";
    let words: Vec<&str> = words.split_whitespace().chain(["--work-dir", place]).collect();
    let ran = run(dir.path(), &words);
    assert_eq!(ran.status, 0, "{ran:?}");
    let points: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let of = |name: &str| -> Vec<&Value> { points.iter().filter(|point| point["name"] == name).collect() };
    for (name, expected) in [("persistence", 6), ("interval", 2), ("failure", 3), ("manager", 2)] {
        assert_eq!(of(name).len(), expected, "{name} in {}", ran.out);
    }
    for point in of("persistence").into_iter().chain(of("interval")).chain(of("manager")) {
        above_zero(point, &["p50_ms", "p99_ms", "mean_ms", "cpu_us_per_txn"]);
        assert!(point["value"]["median"].as_f64().is_some_and(|value| value > 0.0), "{point}");
    }
    for point in of("failure") {
        above_zero(point, &["before_s", "own_back_ms", "stall_ms", "offered_s", "peak_s"]);
        assert!(point["over_time"].as_array().is_some_and(|line| line.len() == 20), "{point}");
        // Where the manager fails nobody gets a snapshot for a while: the others are not measured then.
        let others = point["others_gap_ms"].as_f64();
        assert_eq!(others.is_some_and(|gap| gap > 0.0), point["with_manager"] == false, "{point}");
        above_zero(point, &["own_gap_ms"]);
        assert!(point["recovered_rounds"].as_u64() <= Some(1), "{point}");
        let says = "s until 90 % of the throughput";
        let goals = point["goals"].as_array().expect("a list");
        let until = goals.iter().find(|goal| goal["what"] == says).expect("it has a goal");
        assert!(point["recovered_rounds"] == 1 || until["met"] == false, "{point}");
    }
    assert_eq!(ran.err.matches("; the others' longest gap ").count(), 3, "{}", ran.err);
    // The server has one core, and of two or more the load generator has the others.
    for point in of("manager") {
        let core = point["server_core"].as_u64().expect("a core");
        let generator = point["generator_cores"].as_array().expect("a list");
        assert_eq!(
            generator.iter().any(|of| of.as_u64() == Some(core)),
            generator.len() == 1 && generator[0] == core,
            "{point}"
        );
    }
    let goals = points.iter().flat_map(|point| point["goals"].as_array().expect("a list"));
    let compared: Vec<&str> = goals.filter_map(|goal| goal["what"].as_str()).collect();
    for what in
        ["throughput at equal median", "longest gap of partitions", "s until 90 %", "write-sets a second"]
    {
        assert!(compared.iter().any(|goal| goal.starts_with(what)), "{what} in {compared:?}");
    }
    for name in ["persistence", "interval", "failure"] {
        let svg = std::fs::read_to_string(dir.path().join(format!("figures/txn-{name}.svg"))).expect("drawn");
        assert!(roxmltree::Document::parse(&svg).is_ok(), "{name}");
    }
    for (words, says) in [
        ("bench txn --only figures", "there is no line 'figures'; choose from persistence, "),
        ("bench txn --rows 3", "a table has 100 to 10000000 rows here"),
        ("bench txn --only failure --servers 1", "two servers and two copies at least"),
    ] {
        let ran = run(dir.path(), &words.split(' ').collect::<Vec<_>>());
        assert!(ran.status == 2 && ran.sentence().contains(says), "{ran:?}");
    }
}
