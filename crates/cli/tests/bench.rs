//! `bench` on a cluster of the real binary, with as little work as makes figures.

mod common;

use common::run;
use serde_json::Value;

#[test]
fn the_sql_door_is_measured_beside_postgresql() {
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
            Some(why) => eprintln!("skipped: {}: {why}", line["name"]),
            None => {
                assert!(line["ours"]["ops_s"]["median"].as_f64().is_some_and(|ops| ops > 0.0), "{line}");
                assert!(line["ours"]["cpu_us_per_op"].as_f64().is_some_and(|us| us > 0.0), "{line}");
                assert!(
                    line["ratio"]["median"].as_f64().is_some() && line["goal"].as_f64().is_some(),
                    "{line}"
                );
            }
        }
    }
}
