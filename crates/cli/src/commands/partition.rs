//! `partition` and `switchover`.

use super::status;
use crate::args::cluster::{PartitionCommand, SwitchoverArgs, TailPlace, TailsCommand};
use crate::connect::{Context, node};
use crate::out::note;
use local::ClusterFile;
use node::tails::Content;
use ops::Failure;
use ops::export::{self, Tables};
use ops::overview;
use ops::secured::read;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::config::TailReport;
use types::{FailoverRecord, NodeId, PartitionId, TableRecord};
use wire::control::{AdminCommand, ClusterStatus};

/// Between two attempts at a hand-over that could not be made yet.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// `partition ...`
pub fn run(command: PartitionCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        PartitionCommand::List { table } => list(table.as_deref(), context),
        PartitionCommand::Move { partition, from, to } => {
            let partition = context.partition(&partition)?;
            let (from, to) = (node(&from)?, node(&to)?);
            context.admin(AdminCommand::Move { partition, from, to })?;
            let object = serde_json::json!({ "partition": partition, "from": from, "to": to });
            context.out.either(&object, || {
                format!(
                    "partition {partition} goes from {from} to {to}; `understudy status` shows how far it is"
                )
            });
            Ok(())
        }
        PartitionCommand::Recover { partition, node: wanted, yes } => {
            let partition = context.partition(&partition)?;
            let wanted = wanted.as_deref().map(node).transpose()?;
            recover(partition, wanted, yes, context)
        }
        PartitionCommand::Tails(command) => tails(command, context),
    }
}

fn list(table: Option<&str>, context: &mut Context) -> Result<(), Failure> {
    if let Some(table) = table {
        context.client()?.table(table)?;
    }
    let mut seen = status::look(context)?.partitions;
    seen.retain(|partition| table.is_none_or(|table| partition.table == table));
    if context.out.json {
        seen.iter().for_each(|partition| context.out.object(partition));
    } else {
        status::show_partitions(&seen, context);
    }
    Ok(())
}

/// Says what may be lost; does it only with `--yes`.
fn recover(
    partition: PartitionId,
    wanted: Option<NodeId>,
    yes: bool,
    context: &mut Context,
) -> Result<(), Failure> {
    let status = context.status()?;
    if !status.partitions.iter().any(|record| record.id == partition) {
        return Err(Failure::not_found(format!("there is no partition {}", partition.0)));
    }
    let risk = ops::recover::risk(&status, partition, wanted);
    if !yes {
        return Err(Failure::refused(format!("{risk}; add --yes if that is meant")));
    }
    let answer = context.admin(AdminCommand::Force { partition, node: wanted })?;
    let said: serde_json::Value = read(&answer)?;
    context.out.either(&said, || {
        let warning = said.get("warning").and_then(|text| text.as_str()).unwrap_or_default().to_string();
        format!("{risk}. {warning}")
    });
    Ok(())
}

/// `switchover`.
pub fn switchover(args: &SwitchoverArgs, context: &mut Context) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Advised {
        #[serde(default)]
        advised: Vec<u32>,
    }
    let partition = args.partition.as_deref().map(|text| context.partition(text)).transpose()?;
    let to = args.to.as_deref().map(node).transpose()?;
    let answer = ask_until_ready(context, partition, to)?;
    let advised: Advised = read(&answer)?;
    // The primaries hand over on their own: what was asked for is done once the records say so.
    let done = context.wait_for(|map| match (partition, to) {
        (Some(partition), Some(to)) => map.primary(partition) == Some(to),
        _ => advised.advised.iter().all(|id| {
            let record = map.partition(PartitionId(*id));
            record.is_none_or(|record| Some(record.primary.node) == placed_first(map, record))
        }),
    })?;
    if !done {
        return Err(Failure::new(
            ops::Status::Unreachable,
            "the hand-over was asked for but has not happened yet; `understudy status` shows who leads",
        ));
    }
    let object = serde_json::json!({ "moved": advised.advised, "partition": partition, "to": to });
    context.out.either(&object, || match (partition, to) {
        (Some(partition), Some(to)) => format!("partition {} is led by node {}", partition.0, to.0),
        _ if advised.advised.is_empty() => "every lead is where it was placed".to_string(),
        _ => format!("{} leads are back where they were placed", advised.advised.len()),
    });
    Ok(())
}

/// Asks for the hand-over. A copy that is not in sync yet, or a primary that is still taking over, is waited
/// for.
fn ask_until_ready(
    context: &mut Context,
    partition: Option<PartitionId>,
    to: Option<NodeId>,
) -> Result<String, Failure> {
    let deadline = Instant::now() + context.global.timeout;
    loop {
        let refused = match context.admin(AdminCommand::Switchover { partition, to }) {
            Err(failure) if failure.status == ops::Status::Refused as u8 => failure,
            other => return other,
        };
        let Some(partition) = partition else { return Err(refused) };
        // A node that neither has nor is to have a copy will not become ready by waiting.
        let cluster_map = context.cluster_map()?;
        if to.is_some_and(|to| !has_place(cluster_map, partition, to)) {
            return Err(refused);
        }
        if Instant::now() >= deadline {
            let waited = context.global.timeout.as_secs_f64();
            let sentence = format!("{}; waited {waited:.0} s for it (--timeout)", refused.sentence);
            return Err(Failure { sentence, ..refused });
        }
        let _ = context.client()?.poll(ASK_AGAIN)?;
    }
}

fn has_place(map: &client::Map, partition: PartitionId, node: NodeId) -> bool {
    let Some(record) = map.partition(partition) else { return false };
    let placed = map.owners().find(|table| table.id == record.table).and_then(|table| {
        let place = record.id.0.checked_sub(table.first_partition.0)?;
        table.placement.get(place as usize)
    });
    record.member_on(node).is_some() || placed.is_some_and(|row| row.contains(&node))
}

fn placed_first(map: &client::Map, record: &types::PartitionRecord) -> Option<NodeId> {
    let table = map.owners().find(|table| table.id == record.table)?;
    let place = record.id.0.checked_sub(table.first_partition.0)?;
    table.placement.get(place as usize)?.first().copied()
}

fn tails(command: TailsCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        TailsCommand::List { data_dir } => {
            let tails = match data_dir {
                Some(dir) => node::tails::list(&dir).map_err(stopped)?,
                None => reported_tails(context)?,
            };
            show_tails(&tails, context);
            Ok(())
        }
        TailsCommand::Export { file, place } => {
            let (report, content) =
                node::tails::read(&directory(&place, context)?, &file).map_err(stopped)?;
            export(&report, &content, context);
            Ok(())
        }
        TailsCommand::Discard { file, place, yes } => {
            let dir = directory(&place, context)?;
            let (report, _) = node::tails::read(&dir, &file).map_err(stopped)?;
            if !yes {
                return Err(Failure::refused(format!(
                    "this deletes {} commits, {} of them surely acknowledged; add --yes if that is meant",
                    report.commits, report.surely_acknowledged
                )));
            }
            node::tails::discard(&dir, &file).map_err(stopped)?;
            context.out.either(&serde_json::json!({ "discarded": file }), || format!("{file} is deleted"));
            Ok(())
        }
    }
}

/// Prints what is in a tail, a line each.
fn export(report: &TailReport, content: &Content, context: &mut Context) {
    let mut tables = tables_with_columns(report.partition, context);
    match content {
        Content::Entries(entries) => {
            entries.iter().for_each(|entry| context.out.object(&export::entry(entry, &mut tables)));
        }
        Content::Rows(rows) => {
            rows.iter().for_each(|row| context.out.object(&export::row(row, report, &mut tables)));
        }
    }
}

/// The tables, for their columns; of databases those of the one that has this partition. Without a cluster to
/// ask there are none: a tail can be read all the same.
fn tables_with_columns(partition: PartitionId, context: &mut Context) -> Tables {
    let unknown = |why: &dyn std::fmt::Display| {
        note(format!(
            "keys and rows are printed in hexadecimal digits, as the tables' columns are not known: {why}"
        ));
    };
    let owners: Vec<Arc<TableRecord>> = match context.cluster_map() {
        Ok(map) => map.owners().cloned().collect(),
        Err(why) => {
            unknown(&why);
            return Tables::default();
        }
    };
    let own = |record: &&Arc<TableRecord>| record.partition_ids().any(|own| own == partition);
    let database = owners.iter().find(own).filter(|record| record.is_database()).cloned();
    let mut tables = Tables::new(owners);
    let Some(database) = database.map(client::Database::new) else { return tables };
    let asked = context.client().and_then(|client| Ok(client.tables_of(&database)?));
    match asked {
        Ok(found) => found.iter().for_each(|table| tables.add(table.record().clone())),
        Err(why) => unknown(&why),
    }
    tables
}

/// What nodes have on their disks now, and what failovers reported of nodes that cannot say.
fn reported_tails(context: &mut Context) -> Result<Vec<TailReport>, Failure> {
    let status = context.status()?;
    let records: Vec<FailoverRecord> = read(&context.admin(AdminCommand::Failovers)?)?;
    let reported = records.into_iter().flat_map(|record| record.loss.tails);
    let mut tails = known_tails(&status, reported);
    // A node notices a moment later that `discard` took a file away beside it. In a local cluster it is seen
    // at once.
    if context.global.connect.is_empty()
        && let Ok(file) = ClusterFile::find(&context.global.dir)
    {
        tails.retain(|tail| {
            let node = file.node_named(&tail.node.0.to_string());
            node.map_or(true, |node| node.data_dir.join("tails").join(&tail.file).exists())
        });
    }
    Ok(tails)
}

/// Tails on the disks of nodes that were heard lately are as they say; what failovers once reported of them
/// may have been discarded since. Of other nodes both are listed.
fn known_tails(status: &ClusterStatus, reported: impl Iterator<Item = TailReport>) -> Vec<TailReport> {
    let heard = |node: NodeId| {
        status.nodes.iter().any(|(said, age_ms)| said.member.node == node && *age_ms < overview::SILENT_MS)
    };
    let mut tails: Vec<TailReport> = status.nodes.iter().flat_map(|(node, _)| node.tails.clone()).collect();
    for tail in reported {
        let listed = tails.iter().any(|known| known.node == tail.node && known.file == tail.file);
        if !listed && !heard(tail.node) {
            tails.push(tail);
        }
    }
    tails.sort_by(|a, b| (a.node, &a.file).cmp(&(b.node, &b.file)));
    tails
}

fn show_tails(tails: &[TailReport], context: &mut Context) {
    if context.out.json {
        return tails.iter().for_each(|tail| context.out.object(tail));
    }
    if tails.is_empty() {
        return context.out.line("no tails were set aside");
    }
    let head = [
        "node",
        "file",
        "partition",
        "term",
        "from",
        "to",
        "commits",
        "surely acknowledged",
        "sessions",
        "rows",
    ];
    let row = |tail: &TailReport| {
        vec![
            tail.node.0.to_string(),
            tail.file.clone(),
            tail.partition.0.to_string(),
            tail.term.0.to_string(),
            tail.from.to_string(),
            tail.to.to_string(),
            tail.commits.to_string(),
            tail.surely_acknowledged.to_string(),
            tail.sessions.to_string(),
            tail.rows.map_or(String::new(), |rows| rows.to_string()),
        ]
    };
    context.out.table(&head, tails.iter().map(row));
}

/// The data directory that is meant.
fn directory(place: &TailPlace, context: &Context) -> Result<PathBuf, Failure> {
    if let Some(dir) = &place.data_dir {
        return Ok(dir.clone());
    }
    let file = ClusterFile::find(&context.global.dir).map_err(crate::connect::failure)?;
    let name = place.node.as_deref().unwrap_or_default();
    Ok(file.node_named(name).map_err(crate::connect::failure)?.data_dir.clone())
}

fn stopped(failure: node::failure::Failure) -> Failure {
    Failure { status: failure.status, sentence: failure.sentence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;
    use types::{Lsn, Member};
    use wire::control::NodeStatus;

    fn tail(node: u32, file: &str) -> TailReport {
        TailReport {
            partition: PartitionId(64),
            node: NodeId(node),
            file: file.into(),
            term: Term(2),
            from: Lsn(11),
            to: Lsn(11),
            commits: 1,
            surely_acknowledged: 0,
            sessions: 1,
            rows: None,
        }
    }

    fn node(node: u32, tails: Vec<TailReport>) -> NodeStatus {
        let member = Member { node: NodeId(node), ..Member::default() };
        NodeStatus { member, tails, ..NodeStatus::default() }
    }

    #[test]
    fn a_discarded_tail_is_listed_no_more_once_its_node_can_say_so() {
        let reported = [tail(1, "kept"), tail(1, "discarded"), tail(2, "away")];
        let nodes = vec![(node(1, vec![tail(1, "kept")]), 50), (node(2, Vec::new()), 60_000)];
        let mut status = ClusterStatus { nodes, ..ClusterStatus::default() };
        let files = |status: &ClusterStatus| -> Vec<String> {
            known_tails(status, reported.iter().cloned()).into_iter().map(|tail| tail.file).collect()
        };
        assert_eq!(files(&status), ["kept", "away"], "node 2 is not heard: what was reported of it counts");
        status.nodes[0].1 = 60_000;
        assert_eq!(files(&status), ["discarded", "kept", "away"]);
    }
}
