//! `controller rebuild`: the records, made anew from what the nodes keep.

use super::process::load;
use crate::args::process::{RebuildArgs, RunArgs};
use crate::connect::Context;
use client::ask::{AskError, ask_node};
use controller::rebuild::{self, Order, Rebuilt, Refusal, Sealed};
use node::config::Config;
use ops::{Failure, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;
use types::{Generation, NodeId, Rules};
use wire::control::AdminCommand;
use wire::{KeptRecords, RecordText};

/// What nodes answered, and where.
#[derive(Default)]
struct Asked {
    reports: BTreeMap<NodeId, KeptRecords>,
    addresses: BTreeMap<NodeId, String>,
    /// Why others did not answer.
    silent: Vec<String>,
}

/// `controller rebuild`.
pub fn run(args: &RebuildArgs, context: &mut Context) -> Result<(), Failure> {
    let config = target(args)?;
    node::rebuilt::check(&config).map_err(stopped)?;
    let asked = ask_all(&args.from, context)?;
    let reports: Vec<KeptRecords> = asked.reports.values().cloned().collect();
    let order = Order {
        generation: Generation::beyond(rebuild::newest_generation(&reports), wall_ms()),
        accept_missing: args.accept_missing,
        wall_ms: wall_ms(),
        seed: node::datadir::random(),
        rules: Rules::ALL,
    };
    let planned = rebuild::rebuild(&reports, &order).map_err(|why| refused(&why, &asked))?;
    if !args.yes {
        show(&planned, &order, false, context);
        let sentence = "nothing was changed: run this again with --yes to write these records";
        return Err(Failure::refused(sentence));
    }
    // From here on nodes listen to no controller but the one that is made now.
    let reports = fence(&asked, order.generation, context)?;
    let rebuilt = rebuild::rebuild(&reports, &order).map_err(|why| refused(&why, &asked))?;
    let cluster = reports.iter().find_map(|report| report.cluster);
    let cluster = cluster.ok_or_else(|| Failure::failed("the nodes do not say which cluster is theirs"))?;
    node::rebuilt::write(&config, cluster, &rebuilt).map_err(stopped)?;
    show(&rebuilt, &order, true, context);
    Ok(())
}

/// Where the records go: the configuration that the controller will be started with.
fn target(args: &RebuildArgs) -> Result<Config, Failure> {
    let mut run = RunArgs { config: args.config.clone(), set: args.set.clone(), insecure: false };
    let dir =
        args.data_dir.as_ref().map(|dir| ("controller.data_dir".to_string(), dir.display().to_string()));
    run.set.extend(dir);
    load(&run, "controller rebuild --from NODES")
}

fn stopped(failure: node::Failure) -> Failure {
    Failure { status: failure.status, sentence: failure.sentence }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Asks the nodes at these addresses, and whomever they name.
fn ask_all(from: &[String], context: &Context) -> Result<Asked, Failure> {
    let mut asked = Asked::default();
    let mut tried: BTreeSet<String> = BTreeSet::new();
    let mut next: Vec<String> = from.to_vec();
    while !next.is_empty() {
        for address in std::mem::take(&mut next) {
            if !tried.insert(address.clone()) {
                continue;
            }
            match ask(&address, None, context) {
                Ok(report) => {
                    let (node, member) = (report.member.node, report.member);
                    match asked.reports.insert(node, report) {
                        // It has two addresses.
                        Some(before) if before.member == member => {}
                        Some(_) => return Err(Failure::refused(Refusal::Twice(node).to_string())),
                        None => drop(asked.addresses.insert(node, address)),
                    }
                }
                Err(AskError::Unreachable(why)) => asked.silent.push(why),
                Err(AskError::Refused(status, sentence)) if from.contains(&address) => {
                    return Err(Failure { status, sentence });
                }
                // Somebody else may listen where a node did that is gone.
                Err(AskError::Refused(_, sentence)) => asked.silent.push(format!("{address}: {sentence}")),
            }
        }
        let reports: Vec<KeptRecords> = asked.reports.values().cloned().collect();
        let named = rebuild::addresses(&reports).into_iter();
        let unasked = named.filter(|(node, _)| !asked.reports.contains_key(node)).map(|(_, address)| address);
        next = unasked.filter(|address| !tried.contains(address)).collect();
    }
    if asked.reports.is_empty() {
        let why = asked.silent.join("; ");
        return Err(Failure::new(Status::Unreachable, format!("no node answers: {why}")));
    }
    Ok(asked)
}

fn ask(address: &str, fence: Option<Generation>, context: &Context) -> Result<KeptRecords, AskError> {
    let text = ask_node(address, AdminCommand::Records(fence), local::secret(), context.global.timeout)?;
    RecordText(text).read().map_err(|why| AskError::Refused(1, format!("{address}: {why}")))
}

/// Asks those that answered once more; each notes the generation before it answers.
fn fence(asked: &Asked, generation: Generation, context: &Context) -> Result<Vec<KeptRecords>, Failure> {
    let mut reports: Vec<KeptRecords> = Vec::new();
    for address in asked.addresses.values() {
        let failure = match ask(address, Some(generation), context) {
            Ok(report) => {
                reports.push(report);
                continue;
            }
            Err(AskError::Refused(status, sentence)) => Failure { status, sentence },
            Err(AskError::Unreachable(why)) => {
                Failure::new(Status::Unreachable, format!("{why}; it answered a moment ago"))
            }
        };
        let fenced: Vec<NodeId> = reports.iter().map(|report| report.member.node).collect();
        return Err(match fenced.is_empty() {
            true => failure.and("nothing was changed: run this again"),
            false => failure.and(format!(
                "nothing is written, and {} listen to no older controller any more: run this again until it ends well",
                names(&fenced)
            )),
        });
    }
    Ok(reports)
}

fn refused(why: &Refusal, asked: &Asked) -> Failure {
    let mut sentence = why.to_string();
    if !asked.silent.is_empty() {
        sentence += &format!(" ({})", asked.silent.join("; "));
    }
    if why.is_acceptable() {
        sentence += "; start what can be started, or go on without it with --accept-missing: it comes back as a copy, and \
                     what only it has is set aside then";
    }
    Failure::refused(sentence)
}

fn show(rebuilt: &Rebuilt, order: &Order, written: bool, context: &mut Context) {
    let closed = |sealed: &&Sealed| sealed.closed;
    if context.out.json {
        let partitions: Vec<serde_json::Value> = rebuilt.partitions.iter().map(object).collect();
        return context.out.object(&serde_json::json!({
            "written": written,
            "generation": order.generation,
            "missing": rebuilt.missing,
            "partitions": partitions,
        }));
    }
    let rows = rebuilt.partitions.iter().map(|sealed| {
        let record = &sealed.record;
        let left_out = names(&sealed.left_out);
        let loss = match (sealed.closed, record.lossy) {
            (true, _) => "closed: nobody that counts is there",
            (_, true) => "commits may be lost",
            _ => "nothing is lost",
        };
        let in_sync: Vec<NodeId> = record.in_sync.iter().map(|member| member.node).collect();
        vec![
            record.id.0.to_string(),
            sealed.table.clone(),
            format!("{} -> {}", sealed.from, record.epoch),
            record.primary.node.to_string(),
            names(&in_sync),
            left_out,
            loss.to_string(),
        ]
    });
    let head = ["PARTITION", "TABLE", "EPOCH", "LEADS", "COUNT", "LEFT OUT", ""];
    context.out.table(&head, rows);
    if !rebuilt.missing.is_empty() {
        context.out.line(format!(
            "{} come back as copies: what only they have is set aside then",
            names(&rebuilt.missing)
        ));
    }
    let count = rebuilt.partitions.iter().filter(closed).count();
    if count > 0 {
        context.out.line(format!(
            "{count} partitions stay closed until a node that counts is back, or until `understudy partition recover`"
        ));
    }
    if written {
        let generation = order.generation;
        context.out.line(format!(
            "the records of {generation} are written: start the controller; nodes listen to no older one any more"
        ));
    }
}

fn names(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    if names.is_empty() { "-".into() } else { names.join(",") }
}

fn object(sealed: &Sealed) -> serde_json::Value {
    let record = &sealed.record;
    let in_sync: Vec<NodeId> = record.in_sync.iter().map(|member| member.node).collect();
    serde_json::json!({
        "partition": record.id,
        "table": sealed.table,
        "old_epoch": sealed.from,
        "epoch": record.epoch,
        "primary": record.primary.node,
        "in_sync": in_sync,
        "left_out": sealed.left_out,
        "closed": sealed.closed,
        "loss_possible": record.lossy,
    })
}
