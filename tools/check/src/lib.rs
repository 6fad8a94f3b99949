//! Layer 6: `understudy check`: a cluster of processes under load and faults, and a checker of what clients
//! saw.
//!
//! | what | where |
//! | --- | --- |
//! | what is asked for | [`options`] |
//! | the cluster and its table | [`scene`] |
//! | which rows are worked on | [`keys`] |
//! | what was called and what came back, on one clock | [`recorder`] |
//! | the load over the native client, and over SQL | [`native`], [`sql`] |
//! | a bank over global transactions | [`bank`] |
//! | what happens to nodes | [`faults`], [`run`] |
//! | what the cluster says it lost | [`told`] |
//! | how long nothing was acknowledged | [`gaps`] |
//! | what was found | [`report`] |
//!
//! The checkers themselves are pure, in the crate `history`.

mod bank;
mod faults;
mod gaps;
mod keys;
mod native;
mod options;
mod recorder;
pub mod report;
mod run;
mod scene;
mod sql;
mod told;
mod wrong;

pub use gaps::Gap;
pub use options::CheckOptions;
pub use report::CheckReport;

use history::{Finding, Losses, Operation, Subtracted};
use keys::Keys;
use local::{LocalError, Progress};
use recorder::{Shared, together};
use report::{Counts, Lost};
use run::{Played, Run};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// Plays load and faults on a cluster of its own, and checks what clients saw. What is found is in the
/// report; an error means that it could not be played to its end.
pub fn check(options: &CheckOptions, out: &mut dyn Progress) -> Result<CheckReport, LocalError> {
    options.check()?;
    let output = output(options)?;
    let dir = output.join("cluster");
    out.step(&format!("start a cluster of {} nodes in {}", options::NODES, dir.display()));
    if options.global {
        return bank::check(options, &output, out);
    }
    let mut cluster = scene::start(options, &dir)?;
    let mut client = scene::connect(&cluster, options.seed)?;
    let table = scene::create(&mut client, options)?;
    let keys = Keys::new(scene::shelves(&table)?);
    let shared = Shared::default();
    let faults: Vec<String> = options.faults.iter().map(ToString::to_string).collect();
    let (policy, seconds) = (&options.policy, options.seconds);
    out.step(&format!(
        "policy {policy}: load over the native client and SQL for {seconds} s, with {}",
        faults.join(", ")
    ));
    let run = Run {
        options,
        cluster: &mut cluster,
        client: &mut client,
        table: &table,
        keys: &keys,
        shared: &shared,
    };
    let Played { mut records, native, rounds, end } = run.play(out)?;
    out.step("wait until every partition serves, and read every row once more");
    client.wait_table(scene::TABLE)?;
    records.push(native::read_back(&mut client, &table, &keys, &shared)?);
    records.push(native.record);
    let (history, not_done) = together(records);
    let told = told::ask(&mut client, &table, &history, &native.noticed)?;
    drop(cluster);
    let gaps = gaps::of(&history, &rounds, end);
    let missed_goals = if options.goals_count()? { gaps::missed(&gaps) } else { Vec::new() };
    let mut report = CheckReport {
        policy: options.policy.clone(),
        seconds: options.seconds,
        injected: run::injected(&rounds),
        failovers: told.failovers,
        counts: counts(&history, not_done),
        bank: None,
        lost: None,
        gaps,
        missed_goals,
        findings: told.findings,
        history: None,
        checked_in_s: 0.0,
    };
    out.step(&format!("check {} operations", local::demo::report::grouped(report.counts.operations)));
    check_history(&mut report, &history, options.is_promised()?, &told.losses);
    report.history = wrong::write(&output, &report.findings, &history)?;
    out.line(&report.tables());
    for finding in &report.findings {
        out.line(&format!("WRONG: {}", finding.sentence));
    }
    out.line(&report.verdict());
    if report.findings.is_empty() {
        std::fs::remove_dir_all(&dir).map_err(|error| LocalError::Io { path: dir, error })?;
    }
    Ok(report)
}

/// Takes out what was reported lost, where the policy allows it, and runs the checkers over the rest.
fn check_history(report: &mut CheckReport, history: &[Operation], promised: bool, losses: &Losses) {
    let started = Instant::now();
    let found = match promised {
        true => {
            report.findings.extend(losses.none_of(history).err().map(Finding::of_losses));
            history::check(history)
        }
        false => match losses.subtract(history.to_vec()) {
            Ok((rest, taken)) => {
                let Subtracted { writes: reported, unsure: unsure_operations, reads } = taken;
                let unsure = unsure_operations.len() as u64;
                report.lost = Some(Lost { reported, unsure, unsure_operations, reads });
                history::check(&rest)
            }
            Err(wrong) => vec![Finding::of_losses(wrong)],
        },
    };
    report.findings.extend(found);
    report.findings.extend(history::unanswered(history));
    report.checked_in_s = started.elapsed().as_secs_f64();
}

fn counts(history: &[Operation], not_done: u64) -> Counts {
    let count =
        |wanted: fn(&Operation) -> bool| history.iter().filter(|operation| wanted(operation)).count() as u64;
    let mut counts = Counts {
        operations: history.len() as u64,
        sql: count(|operation| operation.protocol == history::Protocol::Sql),
        unknown: count(|operation| operation.end == history::End::Unknown),
        not_done,
        rows: history.iter().flat_map(Operation::keys).collect::<BTreeSet<_>>().len() as u64,
        skews: history::skew::count(history),
        ..Counts::default()
    };
    for operation in history {
        *counts.by_kind.entry(operation.what.clone()).or_default() += 1;
    }
    counts
}

/// Where the cluster is while it runs, and a wrong history afterwards.
fn output(options: &CheckOptions) -> Result<PathBuf, LocalError> {
    let dir = match &options.output {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("understudy-check-{}", std::process::id())),
    };
    let io = |error| LocalError::Io { path: dir.clone(), error };
    std::fs::create_dir_all(&dir).map_err(io)?;
    if dir.join("cluster").exists() {
        let left = dir.join("cluster");
        let why =
            format!("{} is left from an earlier run; remove it, or give another --output", left.display());
        return Err(LocalError::Usage(why));
    }
    std::fs::canonicalize(&dir).map_err(|error| LocalError::Io { path: dir, error })
}
