//! Where copies are wanted: chained declustering (design section 8).
//!
//! The nodes stand in a ring in which neighbours are of different zones. Each partition takes the next `factor` nodes of
//! the ring, beginning where the last one ended, so that copies are spread evenly; after each full turn the beginning is
//! shifted, so that primaries are, and so that the copies of one node's partitions lie on many others. Each table begins at
//! an offset of its own.

use std::collections::{BTreeMap, BTreeSet};
use types::NodeId;

/// A node with its zone; an empty zone is one of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The node.
    pub node: NodeId,
    /// Its zone.
    pub zone: String,
}

/// For each partition the nodes of its copies, the one to lead first. `None` if there are fewer nodes than copies.
pub fn chained(sites: &[Site], factor: usize, partitions: usize, offset: usize) -> Option<Vec<Vec<NodeId>>> {
    let ring = ring(sites);
    let nodes = ring.len();
    if factor == 0 || nodes < factor {
        return None;
    }
    // A turn is as many partitions as begin at different places when each begins where the last one ended.
    let turn = nodes / gcd(nodes, factor);
    let beginning = |partition: usize| (offset + partition * factor + partition / turn) % nodes;
    Some((0..partitions).map(|partition| chain(&ring, beginning(partition), factor)).collect())
}

/// Checks an explicit placement. The error is a sentence.
pub fn check(
    placement: &[Vec<NodeId>],
    nodes: &BTreeSet<NodeId>,
    factor: usize,
    partitions: usize,
) -> Result<(), String> {
    if placement.len() != partitions {
        return Err(format!(
            "the placement names {} partitions, the table has {partitions}",
            placement.len()
        ));
    }
    for (index, row) in placement.iter().enumerate() {
        if row.len() != factor {
            return Err(format!(
                "the placement of partition number {index} names {} nodes for {factor} copies",
                row.len()
            ));
        }
        if row.iter().collect::<BTreeSet<_>>().len() != row.len() {
            return Err(format!("the placement of partition number {index} names a node twice"));
        }
        if let Some(node) = row.iter().find(|node| !nodes.contains(node)) {
            return Err(format!(
                "the placement of partition number {index} names {node}, which is not a live node"
            ));
        }
    }
    Ok(())
}

/// The nodes so that neighbours are of different zones as far as possible: one of each zone in turn, the largest first.
fn ring(sites: &[Site]) -> Vec<Site> {
    let mut zones: BTreeMap<String, Vec<Site>> = BTreeMap::new();
    for site in sites {
        zones.entry(zone_of(site)).or_default().push(site.clone());
    }
    let mut zones: Vec<Vec<Site>> = zones.into_values().collect();
    for zone in &mut zones {
        zone.sort_by_key(|site| site.node);
    }
    zones.sort_by_key(|zone| (std::cmp::Reverse(zone.len()), zone[0].node));
    let longest = zones.first().map_or(0, Vec::len);
    (0..longest).flat_map(|place| zones.iter().filter_map(move |zone| zone.get(place)).cloned()).collect()
}

/// The nodes of one partition: the one at `beginning`, then always the next in the ring whose zone is used least.
fn chain(ring: &[Site], beginning: usize, factor: usize) -> Vec<NodeId> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut left: Vec<&Site> = (0..ring.len()).map(|step| &ring[(beginning + step) % ring.len()]).collect();
    let mut chosen = Vec::with_capacity(factor);
    while chosen.len() < factor {
        let least =
            (0..left.len()).min_by_key(|place| used.get(&zone_of(left[*place])).copied().unwrap_or(0));
        let site = left.remove(least.expect("there are at least as many nodes as copies"));
        *used.entry(zone_of(site)).or_insert(0) += 1;
        chosen.push(site.node);
    }
    chosen
}

fn zone_of(site: &Site) -> String {
    // Named zones and lone nodes must never meet.
    match site.zone.is_empty() {
        true => format!("node {}", site.node.0),
        false => format!("zone {}", site.zone),
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
