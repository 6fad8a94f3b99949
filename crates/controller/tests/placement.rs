//! Placement for any number of nodes, partitions and copies, by every scheme, with and without zones.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, Scheme};
use understudy_controller::placement::{GROUP, Site, check, place};

fn chained(sites: &[Site], factor: usize, partitions: usize, offset: usize) -> Option<Vec<Vec<NodeId>>> {
    place(Scheme::Chained, sites, factor, partitions, offset)
}

fn scheme() -> impl Strategy<Value = Scheme> {
    prop::sample::select(Scheme::ALL.to_vec())
}

/// For each node the nodes that have a copy of something that it leads.
fn beside(placement: &[Vec<NodeId>]) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
    let mut beside: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
    for row in placement {
        beside.entry(row[0]).or_default().extend(&row[1..]);
    }
    beside
}

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
    fn copies_and_primaries_are_balanced(
        scheme in scheme(), nodes in 1usize..24, factor in 1usize..8, partitions in 0usize..80, offset in 0usize..20,
    ) {
        prop_assume!(factor <= nodes);
        let placement = place(scheme, &lone(nodes), factor, partitions, offset).unwrap();
        prop_assert_eq!(placement.len(), partitions);
        for row in &placement {
            prop_assert_eq!(row.len(), factor);
            prop_assert_eq!(row.iter().collect::<BTreeSet<_>>().len(), factor, "a node holds a partition twice");
        }
        prop_assert!(spread(nodes, placement.iter().map(|row| row[0])) <= 1, "primaries: {:?}", placement);
        let copies = spread(nodes, placement.iter().flatten().copied());
        // A group may be one partition ahead of another, and the copies of a partition lie unevenly within a
        // larger group.
        let apart = usize::from(matches!(scheme, Scheme::Mirrored | Scheme::Interleaved));
        prop_assert!(copies <= 1 + apart, "copies: {} {:?}", copies, placement);
    }

    #[test]
    fn what_is_mirrored_or_interleaved_stays_in_its_group(
        nodes in 2usize..40, factor in 2usize..5, rounds in 1usize..5, offset in 0usize..20,
    ) {
        prop_assume!(factor <= nodes);
        for (scheme, group) in [(Scheme::Mirrored, factor), (Scheme::Interleaved, GROUP * factor)] {
            let placement = place(scheme, &lone(nodes), factor, rounds * nodes, offset).unwrap();
            // Groups are what copies connect.
            let mut groups: Vec<BTreeSet<NodeId>> = Vec::new();
            for row in &placement {
                let (touched, rest): (Vec<_>, Vec<_>) =
                    groups.into_iter().partition(|group| row.iter().any(|node| group.contains(node)));
                groups = rest;
                groups.push(touched.into_iter().flatten().chain(row.iter().copied()).collect());
            }
            let count = (nodes / group).max(1);
            prop_assert!(groups.len() >= count, "{:?}: {} groups of {}", scheme, groups.len(), nodes);
            prop_assert!(groups.iter().all(|group| group.len() <= nodes.div_ceil(count)), "{:?}", groups);
        }
    }

    #[test]
    fn spreading_never_leaves_fewer_neighbours_than_chaining(
        nodes in 3usize..40, factor in 2usize..5, rounds in 1usize..6,
    ) {
        prop_assume!(factor <= nodes);
        let least = |scheme| {
            let placement = place(scheme, &lone(nodes), factor, rounds * nodes, 0).unwrap();
            beside(&placement).values().map(BTreeSet::len).min().unwrap()
        };
        prop_assert!(least(Scheme::Spread) >= least(Scheme::Chained));
        // All others, as soon as there are copies enough for that, give or take what cannot be told apart.
        let all = (nodes - 1).min(rounds * (factor - 1));
        prop_assert!(least(Scheme::Spread) * 3 >= all * 2, "{} of {}", least(Scheme::Spread), all);
    }

    #[test]
    fn equal_zones_are_never_shared_and_stay_balanced(
        zones in 1usize..5, each in 1usize..4, factor in 1usize..5, partitions in 0usize..60, offset in 0usize..20,
        wide in any::<bool>(),
    ) {
        prop_assume!(factor <= zones);
        let sites = sites(&vec![each; zones]);
        let scheme = if wide { Scheme::Spread } else { Scheme::Chained };
        let placement = place(scheme, &sites, factor, partitions, offset).unwrap();
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
        offset in 0usize..20, wide in any::<bool>(),
    ) {
        let sites = sites(&counts);
        prop_assume!(factor <= sites.len());
        let scheme = if wide { Scheme::Spread } else { Scheme::Chained };
        for row in place(scheme, &sites, factor, partitions, offset).unwrap() {
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

fn rows(scheme: Scheme, nodes: usize, factor: usize, partitions: usize) -> Vec<Vec<u32>> {
    let placement = place(scheme, &lone(nodes), factor, partitions, 0).unwrap();
    placement.iter().map(|row| row.iter().map(|node| node.0).collect()).collect()
}

#[test]
fn mirrors_hold_the_same() {
    let held = rows(Scheme::Mirrored, 4, 2, 4);
    assert_eq!(held, [vec![1, 2], vec![3, 4], vec![2, 1], vec![4, 3]]);
    // Five nodes: the one that is left over makes a group larger.
    let held = rows(Scheme::Mirrored, 5, 2, 5);
    assert!(
        held.iter().all(|row| row.iter().all(|node| *node <= 3) || row.iter().all(|node| *node > 3)),
        "{held:?}"
    );
}

#[test]
fn in_a_group_of_three_both_others_have_a_part() {
    // The document's figure 2.2 is for two copies and groups of three; ours are of four.
    let held = rows(Scheme::Interleaved, 8, 2, 24);
    for (node, others) in [(1, [2, 3, 4]), (3, [1, 2, 4]), (8, [5, 6, 7])] {
        let backups = held.iter().filter(|row| row[0] == node).map(|row| row[1]);
        assert_eq!(backups.collect::<BTreeSet<_>>(), BTreeSet::from(others), "{held:?}");
    }
}

#[test]
fn spread_copies_meet_once() {
    let placement = place(Scheme::Spread, &lone(100), 3, 1600, 0).unwrap();
    let mut together: BTreeMap<(NodeId, NodeId), usize> = BTreeMap::new();
    for row in &placement {
        for (place, a) in row.iter().enumerate() {
            for b in &row[place + 1..] {
                *together.entry((*a.min(b), *a.max(b))).or_insert(0) += 1;
            }
        }
    }
    // 4800 pairs of copies on 4950 pairs of nodes.
    assert!(together.values().all(|times| *times <= 2), "{:?}", together.values().max());
    assert!(together.len() > 3600, "{}", together.len());
    assert!(beside(&placement).values().all(|others| others.len() >= 30));
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
