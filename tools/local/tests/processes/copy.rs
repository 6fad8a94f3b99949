//! COPY with psql, into a cluster of three nodes and out again.

use super::sql::{psql, rows};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use types::NodeId;
use understudy_local::Cluster;

/// Rows of the table that is copied, unless the environment names the flights of a year.
const ROWS: u32 = 60_000;
const COLUMNS: &str = "year int, month int, day int, dep_time int, carrier text, flight int, note text, air_time numeric, \
    time_hour timestamptz, PRIMARY KEY (year, month, day, carrier, flight)";

/// A file like that of the flights, with texts that need care.
fn file(dir: &Path) -> PathBuf {
    let path = dir.join("some.csv");
    let mut file = std::io::BufWriter::new(fs::File::create(&path).expect("a file"));
    writeln!(file, "year,month,day,dep_time,carrier,flight,note,air_time,time_hour").expect("written");
    let notes = ["\"a, \"\"b\"\"\"", "\"two\nlines\"", "\\.", "NA", "é", ""];
    for row in 0..ROWS {
        let (month, day) = (row % 12 + 1, row / 12 % 28 + 1);
        let (note, time) = (notes[row as usize % notes.len()], row % 2400);
        let time = if time == 0 { "NA".to_string() } else { time.to_string() };
        writeln!(
            file,
            "2013,{month},{day},{time},UA,{row},{note},{}.{},2013-01-01 05:00:00+00",
            row % 500,
            row % 9 + 1
        )
        .expect("written");
    }
    file.flush().expect("written");
    path
}

fn sorted(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a file");
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// Runs a `\copy`, and what it says.
fn copy(url: &str, command: &str) -> (String, String) {
    psql(url, &["-c", &format!("\\copy {command}")])
}

/// A file goes in and comes out the same; what is wrong with one is told with its line, and how much of it is
/// stored.
pub fn in_and_out(cluster: &mut Cluster) {
    let url = cluster.sql_url().expect("a password");
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path());
    rows(&url, &format!("CREATE TABLE some ({COLUMNS}) WITH (partitions = 6)"));
    let options = "(FORMAT csv, HEADER, NULL 'NA')";
    let from = format!("some FROM '{}' {options}", path.display());
    assert_eq!(copy(&url, &from).1, "");
    assert_eq!(
        rows(&url, "SELECT count(*), count(dep_time) FROM some"),
        format!("{ROWS}|{}", ROWS - ROWS / 2400)
    );
    let out = dir.path().join("out.csv");
    assert_eq!(copy(&url, &format!("some TO '{}' {options}", out.display())).1, "");
    let expected: Vec<String> = sorted(&path);
    assert_eq!(sorted(&out).len(), expected.len());
    assert!(sorted(&out) == expected, "the file comes out as it went in");
    let again = copy(&url, &from).1;
    assert!(
        again.contains("23505") && again.contains("DETAIL:  Key (year, month, day, carrier, flight)=("),
        "{again}"
    );
    assert!(again.contains("nothing was written") && again.contains("CONTEXT:  COPY some, line "), "{again}");
    flights(&url, dir.path());
    refusals(&url, dir.path());
    through_a_failover(cluster, &path, options);
}

/// The flights of a year, if the environment says where they are.
fn flights(url: &str, dir: &Path) {
    let Some(packed) = std::env::var_os("UNDERSTUDY_FLIGHTS").filter(|path| !path.is_empty()) else { return };
    let plain = dir.join("flights.csv");
    let unpack = std::process::Command::new("gzip").arg("-dc").arg(packed).output().expect("gzip runs");
    fs::write(&plain, unpack.stdout).expect("written");
    rows(
        url,
        "CREATE TABLE flights (year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, \
         sched_arr_time int, arr_delay int, carrier text, flight int, tailnum text, origin text, dest text, air_time int, \
         distance int, hour int, minute int, time_hour text, PRIMARY KEY (year, month, day, carrier, flight, origin)) WITH (partitions = 6)",
    );
    let options = "(FORMAT csv, HEADER, NULL 'NA')";
    let started = std::time::Instant::now();
    assert_eq!(copy(url, &format!("flights FROM '{}' {options}", plain.display())).1, "");
    let taken = started.elapsed().as_secs_f64();
    assert_eq!(rows(url, "SELECT count(*) FROM flights"), "336776");
    let out = dir.join("flights.out");
    let started = std::time::Instant::now();
    assert_eq!(copy(url, &format!("flights TO '{}' {options}", out.display())).1, "");
    println!("the flights: {taken:.1} s in, {:.1} s out", started.elapsed().as_secs_f64());
    assert!(sorted(&out) == sorted(&plain), "the flights come out as they went in");
    rows(url, "DROP TABLE flights");
}

fn refusals(url: &str, dir: &Path) {
    rows(url, "CREATE TABLE few (id bigint PRIMARY KEY, name text NOT NULL) WITH (partitions = 6)");
    let path = dir.join("few.txt");
    let put = |text: &str| fs::write(&path, text).expect("written");
    let from = format!("few FROM '{}'", path.display());
    put("1\tone\n2\ttwo\nx\tthree\n");
    let why = copy(url, &from).1;
    assert!(why.contains("22P02") && why.contains("CONTEXT:  COPY few, line 3, column id: \"x\""), "{why}");
    put("1\tone\n2\t\\N\n");
    let why = copy(url, &from).1;
    assert!(
        why.contains("23502") && why.contains("COPY few, line 2") && why.contains("nothing was written"),
        "{why}"
    );
    put("1\tone\n2\n");
    assert!(copy(url, &from).1.contains("missing data for column \"name\""));
    put("1\tone\n2\ttwo\n1\tagain\n");
    let why = copy(url, &from).1;
    assert!(why.contains("Key (id)=(1) already exists.") && why.contains("COPY few, line "), "{why}");
    rows(url, "DROP TABLE few");
    // Of one partition, and short: all or nothing.
    rows(url, "CREATE TABLE few (id bigint PRIMARY KEY, name text NOT NULL) WITH (partitions = 1)");
    put("1\tone\n2\ttwo\n1\tagain\n");
    let why = copy(url, &from).1;
    assert!(why.contains("nothing was written") && why.contains("COPY few, line 3"), "{why}");
    assert_eq!(rows(url, "SELECT count(*) FROM few"), "0");
    put("1\tone\n2\ttwo\n");
    assert_eq!(copy(url, &from), (String::new(), String::new()));
    assert_eq!(rows(url, "COPY (SELECT name, id + 1 FROM few ORDER BY id DESC) TO STDOUT"), "two\t3\none\t2");
    let (_, why) = psql(url, &["-c", "BEGIN; COPY few FROM STDIN"]);
    assert!(why.contains("0A000") && why.contains("HINT:"), "{why}");
    // Long, and wrong at its end: some of it is stored, and that is said.
    let mut long: String = (10..400_000).map(|id| format!("{id}\tsome text of a row\n")).collect();
    long.push_str("wrong\n");
    put(&long);
    let why = copy(url, &from).1;
    let stored: u64 = rows(url, "SELECT count(*) FROM few WHERE id >= 10").parse().expect("a number");
    assert!(
        stored > 0 && why.contains(&format!("{stored} rows of this COPY are stored and stay")),
        "{stored}: {why}"
    );
}

/// A node is killed while rows come in: each is stored once.
fn through_a_failover(cluster: &mut Cluster, path: &Path, options: &str) {
    let url = cluster.sql_url().expect("a password");
    let last = url.rsplit_once(',').map(|(_, last)| last).expect("several nodes");
    let user = url.split_once('@').map(|(user, _)| user).expect("a user");
    let of_last = format!("{user}@{last}");
    rows(&url, "DROP TABLE some");
    rows(&url, &format!("CREATE TABLE some ({COLUMNS}) WITH (partitions = 6)"));
    let from = format!("some FROM '{}' {options}", path.display());
    let copying = std::thread::spawn(move || copy(&of_last, &from).1);
    while rows(&url, "SELECT count(*) > 1000 FROM some") == "f" {}
    cluster.kill(NodeId(1)).expect("killed");
    assert_eq!(copying.join().expect("psql"), "");
    assert_eq!(rows(&url, "SELECT count(*) FROM some"), ROWS.to_string());
}
