//! Placement for any number of nodes, partitions and copies, with and without zones.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::NodeId;
use understudy_controller::placement::{Site, chained, check};

fn sites(zones: &[usize]) -> Vec<Site> {
    let zoned =
        zones.iter().enumerate().flat_map(|(zone, count)| (0..*count).map(move |_| format!("z{zone}")));
    zoned.enumerate().map(|(node, zone)| Site { node: NodeId(node as u32 + 1), zone }).collect()
}

fn lone(count: usize) -> Vec<Site> {
    (1..=count as u32).map(|node| Site { node: NodeId(node), zone: String::new() }).collect()
}

/// The most minus the fewest that any of the nodes has.
fn spread(nodes: usize, counted: impl Iterator<Item = NodeId>) -> usize {
    let mut counts: BTreeMap<NodeId, usize> = (1..=nodes as u32).map(|node| (NodeId(node), 0)).collect();
    for node in counted {
        *counts.entry(node).or_insert(0) += 1;
    }
    counts.values().max().unwrap() - counts.values().min().unwrap()
}

fn zones_of(row: &[NodeId], sites: &[Site]) -> Vec<String> {
    row.iter().map(|node| sites.iter().find(|site| site.node == *node).unwrap().zone.clone()).collect()
}

proptest! {
    #[test]
    fn copies_and_primaries_are_balanced_within_one(
        nodes in 1usize..14, factor in 1usize..8, partitions in 0usize..80, offset in 0usize..20,
    ) {
        prop_assume!(factor <= nodes);
        let placement = chained(&lone(nodes), factor, partitions, offset).unwrap();
        prop_assert_eq!(placement.len(), partitions);
        for row in &placement {
            prop_assert_eq!(row.iter().collect::<BTreeSet<_>>().len(), factor, "a node holds a partition twice");
        }
        prop_assert!(spread(nodes, placement.iter().map(|row| row[0])) <= 1, "primaries: {:?}", placement);
        prop_assert!(spread(nodes, placement.iter().flatten().copied()) <= 1, "copies: {:?}", placement);
    }

    #[test]
    fn equal_zones_are_never_shared_and_stay_balanced(
        zones in 1usize..5, each in 1usize..4, factor in 1usize..5, partitions in 0usize..60, offset in 0usize..20,
    ) {
        prop_assume!(factor <= zones);
        let sites = sites(&vec![each; zones]);
        let placement = chained(&sites, factor, partitions, offset).unwrap();
        for row in &placement {
            let apart: BTreeSet<String> = zones_of(row, &sites).into_iter().collect();
            prop_assert_eq!(apart.len(), factor, "copies share a zone: {:?}", row);
        }
        prop_assert!(spread(sites.len(), placement.iter().map(|row| row[0])) <= 1);
        prop_assert!(spread(sites.len(), placement.iter().flatten().copied()) <= 1);
    }

    #[test]
    fn uneven_zones_are_shared_as_little_as_possible(
        counts in prop::collection::vec(1usize..5, 1..5), factor in 1usize..6, partitions in 0usize..40,
        offset in 0usize..20,
    ) {
        let sites = sites(&counts);
        prop_assume!(factor <= sites.len());
        for row in chained(&sites, factor, partitions, offset).unwrap() {
            prop_assert_eq!(row.iter().collect::<BTreeSet<_>>().len(), factor);
            let used: BTreeSet<String> = zones_of(&row, &sites).into_iter().collect();
            prop_assert_eq!(used.len(), factor.min(counts.len()), "{:?}", row);
        }
    }
}

#[test]
fn neighbours_are_chained() {
    let placement = chained(&lone(4), 2, 4, 0).unwrap();
    let rows: Vec<Vec<u32>> = placement.iter().map(|row| row.iter().map(|node| node.0).collect()).collect();
    assert_eq!(rows, [vec![1, 2], vec![3, 4], vec![2, 3], vec![4, 1]]);
}

#[test]
fn each_table_begins_elsewhere() {
    let first = |offset| chained(&lone(5), 3, 1, offset).unwrap()[0][0];
    assert_eq!((0..5).map(first).collect::<BTreeSet<_>>().len(), 5);
}

#[test]
fn more_copies_than_nodes_cannot_be_placed() {
    assert_eq!(chained(&lone(2), 3, 1, 0), None);
    assert_eq!(chained(&[], 1, 1, 0), None);
}

#[test]
fn an_explicit_placement_is_checked() {
    let nodes: BTreeSet<NodeId> = (1..=3).map(NodeId).collect();
    let rows = |rows: &[&[u32]]| {
        rows.iter().map(|row| row.iter().map(|node| NodeId(*node)).collect()).collect::<Vec<_>>()
    };
    assert_eq!(check(&rows(&[&[1, 2], &[3, 1]]), &nodes, 2, 2), Ok(()));
    for (bad, says) in [
        (rows(&[&[1, 2]]), "names 1 partitions"),
        (rows(&[&[1, 2], &[3]]), "names 1 nodes for 2 copies"),
        (rows(&[&[1, 2], &[3, 3]]), "names a node twice"),
        (rows(&[&[1, 2], &[3, 4]]), "n4, which is not a live node"),
    ] {
        let why = check(&bad, &nodes, 2, 2).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
}
