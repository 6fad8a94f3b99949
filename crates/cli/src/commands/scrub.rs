//! `scrub`.

use crate::args::cluster::ScrubArgs;
use crate::connect::Context;
use crate::out::counted;
use crate::progress::Bar;
use ops::overview::size;
use ops::scrub::{self, ScrubPlan};
use ops::{Failure, Status};

/// `scrub`
pub fn run(args: ScrubArgs, context: &mut Context) -> Result<(), Failure> {
    let plan = ScrubPlan { table: args.table, repair: args.repair, repair_within: args.repair_within };
    let mut bar = Bar::new();
    let report = scrub::run(context.client()?, &plan, &mut bar)?;
    bar.clear();
    let out = &mut context.out;
    if out.json {
        out.object(&report);
    } else {
        for found in &report.damage {
            let end = if found.repaired { "repaired" } else { &found.kept };
            let end = if end.is_empty() { String::new() } else { format!(" ({end})") };
            out.line(format!(
                "{} {} of {}, {}: {}{end}",
                found.node, found.partition, found.table, found.file, found.what
            ));
        }
        for silent in &report.unread {
            out.line(format!("{} {}: not read: {}", silent.node, silent.partition, silent.why));
        }
        out.line(format!(
            "{} of {} read back: {}, {}, {}; rows of {} compared",
            counted(report.replicas, "replica", "replicas"),
            counted(report.partitions, "partition", "partitions"),
            counted(report.files, "component file", "component files"),
            size(report.bytes),
            counted(report.entries, "log entry", "log entries"),
            report.compared
        ));
    }
    let left = report.damage.iter().filter(|found| !found.repaired).count() as u64;
    if left > 0 {
        let places = counted(left, "place is", "places are");
        let how = if args.repair { "see above why" } else { "--repair fetches good data" };
        return Err(Failure::new(Status::Failed, format!("{places} damaged; {how}")));
    }
    if !report.unread.is_empty() {
        let replicas = counted(report.unread.len() as u64, "replica", "replicas");
        return Err(Failure::new(Status::Unreachable, format!("{replicas} could not be read")));
    }
    Ok(())
}
