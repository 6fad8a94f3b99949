//! `node list|add|drain|remove`.

use super::follow::{Steps, follow};
use super::status;
use crate::args::cluster::NodeCommand;
use crate::connect::{Context, node};
use client::Map;
use ops::Failure;
use types::{NodeId, NodeRecord};
use wire::control::AdminCommand;

/// `node list|add|drain|remove`.
pub fn run(command: NodeCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        NodeCommand::List => list(context),
        NodeCommand::Add { node: name } => add(node(&name)?, context),
        NodeCommand::Drain { node: name } => drain(node(&name)?, context),
        NodeCommand::Remove { node: name, yes } => remove(node(&name)?, yes, context),
    }
}

fn list(context: &mut Context) -> Result<(), Failure> {
    let nodes = status::look(context)?.nodes;
    if context.out.json {
        nodes.iter().for_each(|node| context.out.object(node));
    } else {
        status::show_nodes(&nodes, context);
    }
    Ok(())
}

fn drain(node: NodeId, context: &mut Context) -> Result<(), Failure> {
    context.admin(AdminCommand::Drain(node))?;
    let empty = context.wait_for(|map| map.partitions().all(|record| record.primary.node != node))?;
    let object = serde_json::json!({ "node": node, "leads_nothing": empty });
    context.out.either(&object, || match empty {
        true => format!(
            "node {} leads nothing more; so it stays until it is started again, or until `understudy node add {}`",
            node.0, node.0
        ),
        false => format!("node {} is draining; `understudy node list` shows what it still leads", node.0),
    });
    Ok(())
}

/// Brings copies to a node that has registered; says what to do for one that has not.
fn add(node: NodeId, context: &mut Context) -> Result<(), Failure> {
    if context.cluster_map()?.node(node).is_none() {
        return instructions(node, context);
    }
    context.admin(AdminCommand::Add(node))?;
    let begun = placed_on(context.cluster_map()?, node);
    let joins = |map: &Map| map.node(node).is_some_and(|record| record.is_marked(NodeRecord::JOINING));
    let steps = |map: &Map| match joins(map) {
        false => Steps { left: 0, says: String::new() },
        true => {
            let (placed, all) = (placed_on(map, node), placed_on_all(map));
            // What it will have, as far as that can be told: even among the nodes there are.
            let even = all / map.nodes().count().max(1);
            let left = even.saturating_sub(placed) + on_their_way(map, node);
            let says = format!("{placed} copies placed, {} of them on their way", on_their_way(map, node));
            Steps { left: left.max(1), says }
        }
    };
    follow(context, &format!("node {} joins", node.0), steps)?;
    let map = context.cluster_map()?;
    let (copies, leads) = (placed_on(map, node), led_by(map, node));
    let object = serde_json::json!({
        "node": node, "registered": true, "copies": copies, "leads": leads, "moved": copies.saturating_sub(begun),
    });
    context.out.either(&object, || {
        format!(
            "node {} has {copies} copies and leads {leads} partitions: as many as the others, within one",
            node.0
        )
    });
    Ok(())
}

/// Nodes register themselves when they start: here is said how.
fn instructions(node: NodeId, context: &mut Context) -> Result<(), Failure> {
    let controllers = context.controllers()?;
    let listed: Vec<String> = controllers.iter().map(|address| format!("{address:?}")).collect();
    let (dir, file) = (format!("/var/lib/understudy-{}", node.0), format!("node{}.toml", node.0));
    let config =
        format!("[node]\nid = {}\ndata_dir = {dir:?}\ncontrollers = [{}]\n", node.0, listed.join(", "));
    let commands = [
        format!("understudy init {dir} --node {}", node.0),
        format!("understudy node --config {file}"),
        format!("understudy node add {}", node.0),
    ];
    let object =
        serde_json::json!({ "node": node, "registered": false, "config": config, "commands": commands });
    context.out.either(&object, || {
        let [init, start, add] = &commands;
        format!(
            "node {} has not registered yet: a node does that when it starts. On its machine:\n\n{file}:\n{config}\n  \
             {init}\n  {start}\n\nThen, for copies to move there until it has as many as the others:\n\n  {add}",
            node.0
        )
    });
    Ok(())
}

/// Moves everything away, and waits until the node is forgotten.
fn remove(node: NodeId, losing: bool, context: &mut Context) -> Result<(), Failure> {
    context.admin(AdminCommand::Remove { node, losing })?;
    let begun = held_by(context.cluster_map()?, node);
    let steps = |map: &Map| match map.node(node) {
        None => Steps { left: 0, says: String::new() },
        Some(_) => {
            let held = held_by(map, node);
            Steps {
                left: held.max(1),
                says: format!("{held} of {begun} copies left, leads {}", led_by(map, node)),
            }
        }
    };
    follow(context, &format!("node {} is being removed", node.0), steps)?;
    let object = serde_json::json!({ "node": node, "removed": true, "moved": begun });
    context.out.either(&object, || {
        format!("node {} is removed: its {begun} copies are elsewhere, and its process has ended", node.0)
    });
    Ok(())
}

/// Partitions with a place or a member on the node.
fn held_by(map: &Map, node: NodeId) -> usize {
    let rows = map.owners().flat_map(|table| table.partition_ids().zip(&table.placement));
    rows.filter(|(partition, row)| {
        row.contains(&node)
            || map.partition(*partition).is_some_and(|record| record.member_on(node).is_some())
    })
    .count()
}

fn placed_on(map: &Map, node: NodeId) -> usize {
    map.owners().flat_map(|table| &table.placement).filter(|row| row.contains(&node)).count()
}

fn placed_on_all(map: &Map) -> usize {
    map.owners().flat_map(|table| &table.placement).map(Vec::len).sum()
}

/// Partitions with a place on the node where it is not in sync, or where another node has not gone yet.
fn on_their_way(map: &Map, node: NodeId) -> usize {
    let rows = map.owners().flat_map(|table| table.partition_ids().zip(&table.placement));
    rows.filter(|(partition, row)| {
        row.contains(&node)
            && map.partition(*partition).is_none_or(|record| {
                record.in_sync.iter().all(|member| member.node != node)
                    || record.members().any(|member| !row.contains(&member.node))
            })
    })
    .count()
}

fn led_by(map: &Map, node: NodeId) -> usize {
    map.partitions().filter(|record| record.primary.node == node).count()
}
