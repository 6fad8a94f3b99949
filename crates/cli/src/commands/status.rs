//! `status`, `node list` and the tables that they share with `partition list`.

use crate::args::cluster::StatusArgs;
use crate::connect::Context;
use crate::interrupt;
use ops::Failure;
use ops::overview::{NodeLine, Overview, PartitionLine, ReplicaLine, overview, size};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::NodeRecord;

/// Between two looks of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// With more partitions than these, those that are well are counted and not listed.
const LISTED_PARTITIONS: usize = 48;

/// `status`.
pub fn run(args: &StatusArgs, context: &mut Context) -> Result<(), Failure> {
    if !args.watch {
        let seen = look(context)?;
        show(&seen, args.all, context);
        return Ok(());
    }
    let stop = interrupt::stop_flag();
    while !stop.load(Ordering::Relaxed) {
        let seen = look(context)?;
        context.out.clear();
        show(&seen, args.all, context);
        context.out.flush();
        let next = Instant::now() + WATCH_INTERVAL;
        while !stop.load(Ordering::Relaxed) && Instant::now() < next {
            let _ = context.client()?.poll(Duration::from_millis(50))?;
        }
    }
    Ok(())
}

/// What is there now.
pub fn look(context: &mut Context) -> Result<Overview, Failure> {
    let status = context.status()?;
    Ok(overview(context.cluster_map()?, &status))
}

fn show(seen: &Overview, all: bool, context: &mut Context) {
    let out = &mut context.out;
    if out.json {
        return out.object(seen);
    }
    if seen.tables.is_empty() {
        out.line("no tables yet; `understudy table create` or `understudy load --create` makes one");
    }
    for table in &seen.tables {
        out.line(&table.words);
    }
    out.line("");
    show_nodes(&seen.nodes, context);
    show_directories(&seen.nodes, context);
    show_executors(&seen.nodes, context);
    if seen.partitions.is_empty() {
        return;
    }
    context.out.line("");
    if all || seen.partitions.len() <= LISTED_PARTITIONS {
        return show_partitions(&seen.partitions, context);
    }
    let notable: Vec<PartitionLine> = seen.notable_partitions().cloned().collect();
    let well = seen.partitions.len() - notable.len();
    if !notable.is_empty() {
        show_partitions(&notable, context);
        context.out.line("");
    }
    context.out.line(format!(
        "{well} of {} partitions serve with all of their copies in sync; `understudy status --all` lists them, too",
        seen.partitions.len()
    ));
}

/// A line per node.
pub fn show_nodes(nodes: &[NodeLine], context: &mut Context) {
    let head = ["node", "state", "clients", "leads", "holds", "log", "commits", "fsyncs", "heard", "remarks"];
    let row = |node: &NodeLine| {
        let mut remarks: Vec<String> = node.marks.iter().map(|mark| remark(node, mark)).collect();
        if node.full {
            remarks.push("disk full: refuses writes".to_string());
        }
        remarks.extend(node.lost_directories());
        remarks.extend(node.hung_executors());
        if node.tails > 0 {
            remarks.push(format!("{} tails set aside", node.tails));
        }
        if !node.damaged.is_empty() {
            remarks.push(format!("damaged partitions {:?}", node.damaged));
        }
        vec![
            node.node.to_string(),
            if node.live { "live" } else { "not heard" }.into(),
            node.address.clone(),
            node.leads.to_string(),
            node.holds.to_string(),
            size(node.log_bytes),
            node.commits.to_string(),
            node.fsyncs.to_string(),
            node.heard_ms_ago.map_or_else(|| "never".into(), |ms| format!("{ms} ms ago")),
            remarks.join(", "),
        ]
    };
    context.out.table(&head, nodes.iter().map(row));
}

/// A line per directory of replicas, of nodes that have several.
fn show_directories(nodes: &[NodeLine], context: &mut Context) {
    let head = ["node", "directory", "state", "replicas", "files", "free"];
    let rows = nodes.iter().flat_map(|node| {
        node.directories.iter().map(|directory| {
            let used = directory.lost.is_empty();
            vec![
                node.node.to_string(),
                directory.path.clone(),
                if used { "used" } else { "lost" }.into(),
                directory.replicas.to_string(),
                if used { size(directory.bytes) } else { String::new() },
                if used { size(directory.free) } else { String::new() },
            ]
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        context.out.line("");
        context.out.table(&head, rows);
    }
}

/// A line per executor, of nodes that have several.
fn show_executors(nodes: &[NodeLine], context: &mut Context) {
    let head = ["node", "executor", "state", "partitions", "connections"];
    let rows = nodes.iter().flat_map(|node| {
        node.executors.iter().enumerate().map(|(number, executor)| {
            vec![
                node.node.to_string(),
                number.to_string(),
                if executor.hangs_us > 0 { "hangs" } else { "goes on" }.into(),
                executor.partitions.to_string(),
                executor.connections.to_string(),
            ]
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        context.out.line("");
        context.out.table(&head, rows);
    }
}

/// What an operator asked of a node, and how far it is.
fn remark(node: &NodeLine, mark: &str) -> String {
    match mark {
        NodeRecord::DRAINING if node.drained => {
            format!("drained: leads nothing until it is started again or `node add {}`", node.node)
        }
        NodeRecord::DRAINING => format!("draining: leads {} partitions yet", node.leads),
        mark => mark.to_string(),
    }
}

/// A line per replica, grouped by partition.
pub fn show_partitions(partitions: &[PartitionLine], context: &mut Context) {
    let head = [
        "partition",
        "table",
        "epoch",
        "state",
        "committed",
        "node",
        "role",
        "received",
        "durable",
        "applied",
        "persisted",
        "lag",
        "behind",
        "waits for",
    ];
    let mut rows = Vec::new();
    for partition in partitions {
        for (index, replica) in partition.replicas.iter().enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let mut row = vec![
                first(partition.partition.to_string()),
                first(partition.table.clone()),
                first(partition.epoch.to_string()),
                first(partition.state.clone()),
                first(partition.committed.to_string()),
            ];
            row.extend(replica_cells(replica));
            row.push(first(partition.waits.clone()));
            rows.push(row);
        }
    }
    context.out.table(&head, rows);
}

fn replica_cells(replica: &ReplicaLine) -> Vec<String> {
    vec![
        replica.node.to_string(),
        replica.role.clone(),
        replica.received.to_string(),
        replica.durable.to_string(),
        replica.applied.to_string(),
        replica.persisted.to_string(),
        size(replica.lag_bytes),
        format!("{:.3} s", replica.lag_seconds),
    ]
}
