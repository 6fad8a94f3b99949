//! `plan`: the planner's choices on paper.

use crate::args::plan::PlanArgs;
use crate::connect::{Context, node};
use controller::forecast::{Forecast, Share, Step, forecast};
use controller::placement::{self, Site};
use ops::Failure;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use types::NodeId;
use types::policy::MAX_FACTOR;

/// Above these the answer would take long, and nobody reads it.
const MOST_NODES: usize = 10_000;
const MOST_PARTITIONS: usize = 1_000_000;

/// What is printed.
#[derive(Serialize)]
struct Shown {
    nodes: usize,
    partitions_per_node: usize,
    partitions: usize,
    factor: usize,
    placement: &'static str,
    failed: Vec<u32>,
    moves: Vec<MoveLine>,
    lost: Vec<usize>,
    copies_without_a_node: usize,
    before: LoadLine,
    after: LoadLine,
    fatal_sets: FatalLine,
    elapsed_ms: f64,
}

/// A step after the failure.
#[derive(Serialize)]
struct MoveLine {
    partition: usize,
    /// `primary`: a copy takes over; `copy`: a new one is made.
    what: &'static str,
    from: u32,
    to: u32,
}

#[derive(Serialize)]
struct LoadLine {
    primaries: ShareLine,
    copies: ShareLine,
}

#[derive(Serialize)]
struct ShareLine {
    least: usize,
    mean: f64,
    most: usize,
}

#[derive(Serialize)]
struct FatalLine {
    nodes_in_each: usize,
    sets: usize,
    of: f64,
    share: f64,
}

/// `plan`.
pub fn run(args: &PlanArgs, context: &mut Context) -> Result<(), Failure> {
    let begun = Instant::now();
    let failed = check(args)?;
    let sites: Vec<Site> =
        (1..=args.nodes as u32).map(|id| Site { node: NodeId(id), zone: String::new() }).collect();
    let partitions = args.nodes * args.partitions;
    let rows = placement::place(args.placement, &sites, args.factor, partitions, 0)
        .ok_or_else(|| Failure::usage("there are fewer nodes than copies"))?;
    let seen = forecast(&sites, &rows, &failed);
    let shown = Shown::new(args, &failed, &seen, begun.elapsed().as_secs_f64() * 1e3);
    match context.out.json {
        true => context.out.object(&shown),
        false => shown.print(&seen, context),
    }
    Ok(())
}

/// The nodes that fail, if the question makes sense.
fn check(args: &PlanArgs) -> Result<BTreeSet<NodeId>, Failure> {
    let range = |name: &str, value: usize, most: usize| match value {
        value if (1..=most).contains(&value) => Ok(()),
        _ => Err(Failure::usage(format!("--{name} {value} is out of range: 1 to {most}"))),
    };
    range("nodes", args.nodes, MOST_NODES)?;
    range("factor", args.factor, MAX_FACTOR.into())?;
    range("partitions", args.partitions, MOST_PARTITIONS / args.nodes)?;
    if args.factor > args.nodes {
        return Err(Failure::usage(format!(
            "--factor {} wants more copies of a partition than there are nodes: --nodes {}",
            args.factor, args.nodes
        )));
    }
    let mut failed = BTreeSet::new();
    for text in &args.fail {
        let id = node(text)?;
        if !(1..=args.nodes).contains(&(id.0 as usize)) {
            return Err(Failure::usage(format!(
                "--fail {text}: there is no such node; they are 1 to {}",
                args.nodes
            )));
        }
        failed.insert(id);
    }
    Ok(failed)
}

impl Shown {
    fn new(args: &PlanArgs, failed: &BTreeSet<NodeId>, seen: &Forecast, elapsed_ms: f64) -> Shown {
        let line = |step: &Step| match *step {
            Step::Lead { partition, from, to } => {
                MoveLine { partition, what: "primary", from: from.0, to: to.0 }
            }
            Step::Copy { partition, from, to } => {
                MoveLine { partition, what: "copy", from: from.0, to: to.0 }
            }
        };
        Shown {
            nodes: args.nodes,
            partitions_per_node: args.partitions,
            partitions: args.nodes * args.partitions,
            factor: args.factor,
            placement: args.placement.name(),
            failed: failed.iter().map(|node| node.0).collect(),
            moves: seen.steps.iter().map(line).collect(),
            lost: seen.lost.clone(),
            copies_without_a_node: seen.storage_lost,
            before: load(&seen.before),
            after: load(&seen.after),
            fatal_sets: FatalLine {
                nodes_in_each: seen.fatal.size,
                sets: seen.fatal.sets,
                of: seen.fatal.of.round(),
                share: seen.fatal.share(),
            },
            elapsed_ms,
        }
    }

    fn print(&self, seen: &Forecast, context: &mut Context) {
        let out = &mut context.out;
        out.line(format!(
            "{} nodes, {} partitions ({} per node) with {} copies each, {}",
            self.nodes, self.partitions, self.partitions_per_node, self.factor, self.placement
        ));
        if !self.moves.is_empty() {
            let failed: Vec<String> = self.failed.iter().map(u32::to_string).collect();
            out.line(format!("\nmoves after the failure of {}", failed.join(", ")));
            out.table(&["partition", "led by", "new copies"], rows(&seen.steps));
        }
        out.line("");
        let figures = |share: &ShareLine| format!("{} / {:.2} / {}", share.least, share.mean, share.most);
        let row = |name: &str, load: &LoadLine| {
            vec![name.to_string(), figures(&load.primaries), figures(&load.copies)]
        };
        let loads = [row("before", &self.before), row("after", &self.after)];
        out.table(&["least / mean / most per node", "primaries", "copies"], loads);
        out.line("");
        let leads = self.moves.iter().filter(|line| line.what == "primary").count();
        out.line(format!("taken over             {leads} primaries"));
        out.line(format!("new copies             {}", self.moves.len() - leads));
        if self.copies_without_a_node > 0 {
            let left = self.copies_without_a_node;
            out.line(format!("without a node         {left} copies: too few nodes live"));
        }
        if !self.lost.is_empty() {
            let lost: Vec<String> = self.lost.iter().map(usize::to_string).collect();
            let which = if lost.len() == 1 { "partition, all copies" } else { "partitions, all copies" };
            out.line(format!("lost                   {} {which} failed: {}", lost.len(), lost.join(", ")));
        }
        let fatal = &self.fatal_sets;
        out.line(format!(
            "fatal {:<16} {} of {} ({:.2e})",
            set_of(fatal.nodes_in_each),
            fatal.sets,
            fatal.of,
            fatal.share
        ));
    }
}

fn set_of(nodes: usize) -> String {
    match nodes {
        1 => "nodes".into(),
        2 => "pairs".into(),
        3 => "triples".into(),
        nodes => format!("sets of {nodes}"),
    }
}

/// A row per partition that something happens to.
fn rows(steps: &[Step]) -> Vec<Vec<String>> {
    let mut lines: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Lead { partition, from, to } => {
                lines.entry(partition).or_default().0 = format!("{} instead of {}", to.0, from.0);
            }
            Step::Copy { partition, from, to } => {
                lines.entry(partition).or_default().1.push(format!("{} instead of {}", to.0, from.0));
            }
        }
    }
    let row = |(partition, (led, copies)): (usize, (String, Vec<String>))| {
        vec![partition.to_string(), led, copies.join(", ")]
    };
    lines.into_iter().map(row).collect()
}

fn load(load: &controller::forecast::Load) -> LoadLine {
    LoadLine { primaries: share(&load.primaries), copies: share(&load.copies) }
}

fn share(share: &Share) -> ShareLine {
    ShareLine { least: share.least, mean: share.mean, most: share.most }
}
