//! The demo itself, small, for each fault: it must end well, and say what it found.

use std::path::Path;
use understudy_local::demo::{DemoOptions, DemoReport, Fault};
use understudy_local::{Terminal, demo};

/// Short and small: what matters is that nothing is missing.
fn small(dir: &Path, fault: Fault) -> DemoOptions {
    DemoOptions {
        fault,
        seconds: 9,
        users: 3000,
        short: true,
        output: Some(dir.join("out")),
        journal: Some(dir.join("journal.ndjson")),
        ..DemoOptions::default()
    }
}

fn play(options: DemoOptions) -> DemoReport {
    let journal = options.journal.clone().expect("asked for");
    let report = demo(options, &mut Terminal::new(false)).expect("played to its end");
    assert_eq!(report.exit_status(), 0, "{:#}", report.to_json());
    let first = &report.first;
    assert!(first.acknowledged > 100 && first.counts.compared > 3000, "{:#}", report.to_json());
    assert!(first.failover_ms.is_some() && first.detection_ms.is_some(), "{:#}", report.to_json());
    let svg = std::fs::read_to_string(&first.chart).expect("the chart is there");
    assert!(svg.starts_with("<svg ") && svg.contains(first.fault.done()));
    let lines = std::fs::read_to_string(journal).expect("the journal is there");
    let count =
        |act: u32| lines.lines().filter(|line| line.contains(&format!("\"act\":{act},"))).count() as u64;
    assert!(count(1) >= first.acknowledged, "{} lines", count(1));
    assert_eq!(count(2) > 0, report.second.is_some());
    report
}

/// A process is killed; then the second act, which may lose something and says exactly what.
pub fn kill() {
    let dir = tempfile::tempdir().expect("a directory");
    let report = play(DemoOptions { short: false, ..small(dir.path(), Fault::Kill) });
    let second = report.second.as_ref().expect("two acts");
    assert_eq!((second.policy.as_str(), second.fault), ("async", Fault::Power));
    assert_eq!((second.counts.unreported_lost, second.counts.wrongly_reported), (0, 0));
}

/// A process is frozen. Asked while it is, it acknowledges nothing and shows nothing old once it goes on.
pub fn stop() {
    let dir = tempfile::tempdir().expect("a directory");
    tested(&play(small(dir.path(), Fault::Stop)));
}

/// A node is cut off from all but its clients: whoever asks it meanwhile, and after that, is told nothing
/// old.
pub fn cut() {
    let dir = tempfile::tempdir().expect("a directory");
    tested(&play(small(dir.path(), Fault::Cut)));
}

/// A client of the past asked after another had taken over, and was answered.
fn tested(report: &DemoReport) {
    let stale = report.first.stale.as_ref().expect("a client of the past");
    assert!(stale.sent > 50 && stale.reads > 50 && stale.answered > 50, "{stale:?}");
    assert!(stale.reads_refused > 50, "{stale:?}");
    assert_eq!((stale.acknowledged, stale.stale_reads), (0, 0), "{stale:?}");
}

/// Rows from a file, under a key of several columns and with a marker for no value.
pub fn file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trips.csv");
    let rows = (0..3000).map(|trip| {
        let delay = if trip % 7 == 0 { "NA".to_string() } else { (trip % 90).to_string() };
        format!("{},{},{delay}\n", 1 + trip % 28, 1000 + trip)
    });
    std::fs::write(&path, format!("day,trip,delay\n{}", rows.collect::<String>())).expect("written");
    let mut options = small(dir.path(), Fault::Kill);
    (options.data, options.null) = (Some(path), Some("NA".into()));
    options.key = vec!["day".into(), "trip".into()];
    assert_eq!(play(options).first.loaded, 3000);
}
