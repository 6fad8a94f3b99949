//! Where copies are wanted (design section 8): four schemes over one ring.
//!
//! The nodes stand in a ring in which neighbours are of different zones. The ring is cut into cells: one of
//! all nodes for [`Scheme::Chained`] and [`Scheme::Spread`], small ones for [`Scheme::Mirrored`] and
//! [`Scheme::Interleaved`]. A partition lies within one cell; cells take partitions in turn, each as many as
//! its size allows. Within a cell each partition begins where the last one ended, so that copies are spread
//! evenly; after each full turn the beginning is shifted, so that primaries are. Each table begins at an
//! offset of its own.
//!
//! What differs is where the copies beside a primary go: to the next nodes of the cell, or (interleaved and
//! spread) so that no two nodes of the cell share more partitions than they must. A last round of partitions,
//! too short for every node to lead one of them, is always placed on neighbours: it could not be spread
//! without giving some node more than others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use types::{NodeId, Scheme};

/// A node with its zone; an empty zone is one of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The node.
    pub node: NodeId,
    /// Its zone.
    pub zone: String,
}

/// A group of [`Scheme::Interleaved`] has so many nodes per copy, if there are enough.
pub const GROUP: usize = 2;

/// For each partition the nodes of its copies, the one to lead first. `None` if there are fewer nodes than
/// copies.
pub fn place(
    scheme: Scheme,
    sites: &[Site],
    factor: usize,
    partitions: usize,
    offset: usize,
) -> Option<Vec<Vec<NodeId>>> {
    let ring = ring(sites);
    let nodes = ring.len();
    if factor == 0 || nodes < factor {
        return None;
    }
    let mut cells = cells(scheme, nodes, factor);
    let count = cells.len();
    cells.rotate_left(offset % count);
    let deal = deal(&cells);
    // Rounds in which every node leads one partition.
    let full = partitions / nodes;
    let apart = |cell: &Range<usize>| (cell.len(), apart(cell.len(), factor, full));
    let steps: BTreeMap<usize, Vec<Vec<usize>>> = match scheme {
        Scheme::Chained | Scheme::Mirrored => BTreeMap::new(),
        Scheme::Interleaved | Scheme::Spread => sizes(&cells).map(apart).collect(),
    };
    let neighbours = vec![0; factor];
    let mut given = vec![0; count];
    let row = |partition: usize| {
        let number = deal[partition % nodes];
        let (cell, before) = (&ring[cells[number].clone()], given[number]);
        given[number] += 1;
        // A turn is as many partitions as begin at different places when each begins where the last one
        // ended.
        let turn = cell.len() / gcd(cell.len(), factor);
        let lead = (offset / count + before * factor + before / turn) % cell.len();
        let spread = steps.get(&cell.len()).and_then(|rounds| rounds.get(partition / nodes));
        chain(cell, lead, spread.unwrap_or(&neighbours))
    };
    Some((0..partitions).map(row).collect())
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

/// The order in which equally good copies take over a partition whose primary is gone: who leads least, then
/// by placement.
pub fn order_of_lead(led: usize, rank: usize, node: NodeId) -> impl Ord {
    (led, rank, node)
}

/// The order in which nodes take a copy that has lost its node: in a zone that the others are not in, then
/// who holds least.
pub fn order_of_spare(shares_zone: bool, copies: usize, node: NodeId) -> impl Ord {
    (shares_zone, copies, node)
}

/// The nodes in the order of the ring.
pub(crate) fn ring_of(sites: &[Site]) -> Vec<NodeId> {
    ring(sites).into_iter().map(|seat| seat.node).collect()
}

/// A node of the ring with the number of its zone.
#[derive(Clone, Copy, Debug)]
struct Seat {
    node: NodeId,
    zone: usize,
}

/// The nodes so that neighbours are of different zones as far as possible: one of each zone in turn, the
/// largest first.
fn ring(sites: &[Site]) -> Vec<Seat> {
    let mut zones: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
    for site in sites {
        zones.entry(zone_of(site)).or_default().push(site.node);
    }
    let mut zones: Vec<Vec<NodeId>> = zones.into_values().collect();
    zones.iter_mut().for_each(|zone| zone.sort());
    zones.sort_by_key(|zone| (std::cmp::Reverse(zone.len()), zone[0]));
    let longest = zones.first().map_or(0, Vec::len);
    let seat = |place: usize, zone: usize| Some(Seat { node: *zones[zone].get(place)?, zone });
    let row = |place: usize| (0..zones.len()).filter_map(move |zone| seat(place, zone));
    (0..longest).flat_map(row).collect()
}

fn zone_of(site: &Site) -> String {
    // Named zones and lone nodes must never meet.
    match site.zone.is_empty() {
        true => format!("node {}", site.node.0),
        false => format!("zone {}", site.zone),
    }
}

/// The parts of the ring within which copies stay.
fn cells(scheme: Scheme, nodes: usize, factor: usize) -> Vec<Range<usize>> {
    let wanted = match scheme {
        Scheme::Chained | Scheme::Spread => nodes,
        Scheme::Mirrored => factor,
        Scheme::Interleaved => GROUP * factor,
    };
    let count = (nodes / wanted).max(1);
    // What is left over makes some cells larger: no node is without work, and no cell is too small.
    let begin = |number: usize| number * (nodes / count) + number.min(nodes % count);
    (0..count).map(|number| begin(number)..begin(number + 1)).collect()
}

fn sizes(cells: &[Range<usize>]) -> impl Iterator<Item = &Range<usize>> {
    let mut seen = BTreeSet::new();
    cells.iter().filter(move |cell| seen.insert(cell.len()))
}

/// Which cell takes each partition of one round: all in turn, each as often as it has nodes.
fn deal(cells: &[Range<usize>]) -> Vec<usize> {
    let turns = |(number, cell): (usize, &Range<usize>)| (1..=cell.len()).map(move |turn| (turn, number));
    let mut order: Vec<(usize, usize)> = cells.iter().enumerate().flat_map(turns).collect();
    // By the share of its own that a cell then has.
    order.sort_by(|(a_turn, a), (b_turn, b)| {
        (a_turn * cells[*b].len()).cmp(&(b_turn * cells[*a].len())).then(a.cmp(b))
    });
    order.into_iter().map(|(_, number)| number).collect()
}

/// For each of so many rounds, how far the copies lie from their primary, itself included: so that distances
/// between copies of one partition come as seldom again as they can. Who shares a partition are nodes in a
/// distance, so no two share many.
fn apart(size: usize, factor: usize, rounds: usize) -> Vec<Vec<usize>> {
    // How often copies lie so far from each other.
    let mut used = vec![0usize; size];
    // How often a backup lies so far from its primary: who takes over are nodes in such a distance.
    let mut backs = vec![0usize; size];
    let round = |_| {
        let mut steps = vec![0];
        while steps.len() < factor {
            let cost = |step: usize| -> usize {
                let pairs: usize = steps.iter().map(|other| used[(size + step - other) % size]).sum();
                pairs + backs[step]
            };
            let free = (1..size).filter(|step| !steps.contains(step));
            let step = free.min_by_key(|step| cost(*step)).expect("a cell has as many nodes as copies");
            for other in &steps {
                let distance = (size + step - other) % size;
                used[distance] += 1;
                used[size - distance] += 1;
            }
            backs[step] += 1;
            steps.push(step);
        }
        steps
    };
    (0..rounds).map(round).collect()
}

/// The nodes of one partition: for each step the first free one of the cell from there on whose zone is used
/// least.
fn chain(cell: &[Seat], lead: usize, steps: &[usize]) -> Vec<NodeId> {
    let mut chosen: Vec<usize> = Vec::with_capacity(steps.len());
    for step in steps {
        let shares =
            |place: usize| chosen.iter().filter(|other| cell[**other].zone == cell[place].zone).count();
        let mut best = None;
        let around = (0..cell.len()).map(|further| (lead + step + further) % cell.len());
        for place in around.filter(|place| !chosen.contains(place)) {
            let shared = shares(place);
            if best.is_none_or(|(least, _)| shared < least) {
                best = Some((shared, place));
            }
            if shared == 0 {
                break;
            }
        }
        let (_, place) = best.expect("a cell has at least as many nodes as copies");
        chosen.push(place);
    }
    chosen.into_iter().map(|place| cell[place].node).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
