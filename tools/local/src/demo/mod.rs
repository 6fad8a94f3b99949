//! `understudy demo`: a cluster that outlives its nodes, shown and checked.
//!
//! An act ([`act`]) starts a cluster, loads rows ([`dataset`]), lets clients work ([`workload`], [`prober`]),
//! harms the node with the most primaries ([`run`]), and reads everything back ([`readback`]). The verdict
//! ([`verify`]) is pure: it compares what every replica holds with what the clients were told ([`history`]).

mod act;
mod bulk;
pub mod chart;
mod clock;
pub mod dataset;
pub mod figures;
pub mod history;
pub mod journal;
mod options;
mod prober;
mod readback;
pub mod report;
mod run;
pub mod social;
pub mod stale;
mod told;
pub mod verify;
mod workload;

pub use options::{DemoOptions, Fault};
pub use report::{ActReport, DemoReport};

use crate::error::LocalError;
use crate::terminal::Progress;
use act::Act;
use dataset::Dataset;
use std::path::PathBuf;
use std::time::Instant;

/// The policy of the second act: the one that may lose something, and must say what.
const SECOND_POLICY: &str = "async";

/// Plays the demo. What is found is in the report, and told to `out` as it is found; an error means that it
/// could not be played to its end.
pub fn demo(options: DemoOptions, out: &mut dyn Progress) -> Result<DemoReport, LocalError> {
    options.check()?;
    let started = Instant::now();
    if let Some(journal) = &options.journal {
        // A journal is of one run.
        std::fs::write(journal, "").map_err(LocalError::io(journal))?;
    }
    out.step(&match &options.data {
        Some(path) => format!("read {}", path.display()),
        None => format!("make up a social network of {} users", report::grouped(options.users)),
    });
    let mut data = Dataset::new(&options.source(), options.clients)?;
    let output = output(&options)?;
    let act = |number, policy: &str, fault| {
        let policy = options.policy_of(policy)?;
        Ok::<_, LocalError>(Act { options: &options, number, policy, fault, output: &output })
    };
    let first = act(1, &options.policy, options.fault)?.play(&mut data, out)?;
    let second = match options.short || options.nodes < 2 {
        true => None,
        false => {
            out.line("");
            let what = "second act: acknowledged by the primary alone, and then its node loses power";
            out.step(&format!("{what} (policy {SECOND_POLICY})"));
            Some(act(2, SECOND_POLICY, Fault::Power)?.play(&mut data, out)?)
        }
    };
    let report = DemoReport { first, second, took_s: started.elapsed().as_secs_f64(), output };
    out.line(&verdict(&report));
    Ok(report)
}

/// The whole thing in a sentence.
fn verdict(report: &DemoReport) -> String {
    let took = report.took_s;
    if !report.is_good() {
        let output = report.output.display();
        return format!("NOT good: see what is marked WRONG above, and {output} ({took:.0} s)");
    }
    let lost =
        report.second.as_ref().map_or(0, |act| act.counts.reported_lost) + report.first.counts.reported_lost;
    let found = match (lost, &report.second) {
        (0, None) => "nothing that was acknowledged is missing".to_string(),
        (0, Some(second)) => format!(
            "nothing that was acknowledged is missing; the second act may lose something under policy {}, and nothing was \
             lost this time",
            second.policy
        ),
        (lost, _) => {
            format!("nothing is missing but the {} writes that were reported lost", report::grouped(lost))
        }
    };
    format!("good: {found} ({took:.0} s)")
}

/// Where charts and lists go.
fn output(options: &DemoOptions) -> Result<PathBuf, LocalError> {
    let dir = match &options.output {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("understudy-demo-{}", std::process::id())),
    };
    std::fs::create_dir_all(&dir).map_err(LocalError::io(&dir))?;
    for number in [1, 2] {
        let cluster = act::cluster_dir(&dir, number);
        if cluster.exists() {
            let left = cluster.display();
            let why = format!("{left} is left from an earlier run; remove it, or give another --output");
            return Err(LocalError::Usage(why));
        }
        // A list is of one run, and it is added to.
        match std::fs::remove_file(act::lost_list(&dir, number)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LocalError::io(&dir)(error));
            }
            _ => {}
        }
    }
    std::fs::canonicalize(&dir).map_err(LocalError::io(&dir))
}

#[cfg(test)]
mod tests {
    use super::report::tests::good;
    use super::verify::Counts;
    use super::*;

    #[test]
    fn a_second_act_without_a_loss_is_said_to_be_one() {
        let said = |first: ActReport, second: Option<ActReport>| {
            verdict(&DemoReport { first, second, took_s: 61.0, output: "o".into() })
        };
        assert_eq!(said(good(), None), "good: nothing that was acknowledged is missing (61 s)");
        let second = || ActReport { policy: "async".into(), fault: Fault::Power, stale: None, ..good() };
        assert_eq!(
            said(good(), Some(second())),
            "good: nothing that was acknowledged is missing; the second act may lose something under policy async, and nothing \
             was lost this time (61 s)"
        );
        assert_eq!(
            said(
                good(),
                Some(ActReport { counts: Counts { reported_lost: 1200, ..second().counts }, ..second() })
            ),
            "good: nothing is missing but the 1,200 writes that were reported lost (61 s)"
        );
        let wrong = said(ActReport { counts: Counts { missing: 1, ..good().counts }, ..good() }, None);
        assert!(wrong.starts_with("NOT good: "), "{wrong}");
    }
}
