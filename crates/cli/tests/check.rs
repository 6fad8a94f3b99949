//! `understudy check`: a short one of everything, and what makes no sense.

mod common;

use common::run;

#[test]
fn ten_seconds_of_all_faults_show_no_anomaly() {
    let dir = tempfile::tempdir().expect("a directory");
    let ran = run(dir.path(), &["check", "--seconds", "10", "--output", "out", "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let report = ran.object();
    assert_eq!(report["good"], true, "{report:#}");
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0), "{report:#}");
    for fault in ["kill", "stop", "cut", "power"] {
        assert!(report["injected"][fault].as_u64() >= Some(1), "{fault} was injected: {report:#}");
    }
    // A gap of each kind was measured, and somebody had to take over.
    assert!(report["gaps"].as_array().is_some_and(|gaps| gaps.len() >= 4), "{report:#}");
    assert!(report["failovers"].as_u64() >= Some(2), "{report:#}");
    for kind in [
        "get",
        "scan",
        "put of two",
        "delete",
        "commit",
        "increment",
        "conditional update",
        "select of a shelf",
        "last scan",
    ] {
        assert!(report["by_kind"][kind].as_u64() >= Some(1), "{kind}: {report:#}");
    }
    assert!(report["lost"].is_null(), "durable loses nothing: {report:#}");
    assert!(!dir.path().join("out/cluster").exists() && !dir.path().join("out/history.ndjson").exists());
}

#[test]
fn a_bank_over_partitions_keeps_its_total_in_every_snapshot() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = ["check", "--transactions", "global", "--policy", "async", "--seconds", "8", "--json"];
    let ran = run(dir.path(), &[&words[..], &["--faults", "kill,power", "--output", "out"]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    let report = ran.object();
    assert_eq!(report["good"], true, "{report:#}");
    let bank = &report["bank"];
    assert!(bank["committed"].as_u64() > Some(50) && bank["snapshots"].as_u64() > Some(50), "{report:#}");
    assert!(report["failovers"].as_u64() >= Some(2), "{report:#}");
}

#[test]
fn what_makes_no_sense_is_one_line_and_starts_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let wrong = [
        (&["--faults", "kill,rain"][..], "there is no fault `rain`; choose one of kill, stop, cut, power"),
        (&["--faults", ""], "there is no fault ``"),
        (&["--policy", "best"], "no policy 'best'"),
        (&["--seconds", "0"], "0 seconds are too few"),
        (&["--seconds", "-3"], "unexpected argument '-3'"),
    ];
    for (words, said) in wrong {
        let ran = run(dir.path(), &[&["check"], words].concat());
        assert_eq!(ran.status, 2, "{words:?}: {ran:?}");
        assert!(ran.sentence().contains(said), "{words:?}: {ran:?}");
        assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""), "{ran:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0);
}
