//! Failures on paper: who takes over, where new copies go, and what is lost.

use proptest::prelude::*;
use std::collections::BTreeSet;
use types::{NodeId, Scheme};
use understudy_controller::forecast::{Forecast, Step, forecast};
use understudy_controller::placement::{Site, place};

fn sites(count: usize) -> Vec<Site> {
    (1..=count as u32).map(|node| Site { node: NodeId(node), zone: String::new() }).collect()
}

fn failure(scheme: Scheme, nodes: usize, per_node: usize, factor: usize, failed: &[u32]) -> Forecast {
    let rows = place(scheme, &sites(nodes), factor, nodes * per_node, 0).unwrap();
    forecast(&sites(nodes), &rows, &failed.iter().map(|node| NodeId(*node)).collect())
}

proptest! {
    /// Played through, the steps give every partition that is not lost a living primary and all the copies
    /// there can be.
    #[test]
    fn every_step_is_needed_and_none_is_missing(
        scheme in prop::sample::select(Scheme::ALL.to_vec()), nodes in 1usize..16, factor in 1usize..5,
        partitions in 1usize..60, failed in prop::collection::btree_set(1u32..16, 0..8),
    ) {
        prop_assume!(factor <= nodes);
        let failed: BTreeSet<NodeId> = failed.into_iter().map(NodeId).collect();
        let before = place(scheme, &sites(nodes), factor, partitions, 0).unwrap();
        let seen = forecast(&sites(nodes), &before, &failed);
        let mut rows = before.clone();
        for step in &seen.steps {
            match *step {
                Step::Lead { partition, from, to } => {
                    prop_assert!(failed.contains(&from) && rows[partition][0] == from);
                    prop_assert!(rows[partition].contains(&to) && !failed.contains(&to));
                    let place = rows[partition].iter().position(|node| *node == to).unwrap();
                    rows[partition].swap(0, place);
                }
                Step::Copy { partition, from, to } => {
                    prop_assert!(failed.contains(&from) && !failed.contains(&to));
                    prop_assert!(!rows[partition].contains(&to));
                    let place = rows[partition].iter().position(|node| *node == from).unwrap();
                    rows[partition][place] = to;
                }
            }
        }
        let alive = (1..=nodes as u32).filter(|node| !failed.contains(&NodeId(*node))).count();
        let mut storage_lost = 0;
        for (number, row) in rows.iter().enumerate() {
            let copies = row.iter().filter(|node| !failed.contains(node)).count();
            let lost = before[number].iter().all(|node| failed.contains(node));
            prop_assert_eq!(seen.lost.contains(&number), lost);
            if lost {
                prop_assert_eq!(row, &before[number]);
                continue;
            }
            prop_assert!(!failed.contains(&row[0]));
            prop_assert_eq!(copies, factor.min(alive));
            storage_lost += factor - copies;
        }
        prop_assert_eq!(seen.storage_lost, storage_lost);
        let kept = rows.iter().filter(|row| !failed.contains(&row[0])).count();
        prop_assert!((seen.after.primaries.mean * alive as f64 - kept as f64).abs() < 1e-6);
    }

    #[test]
    fn fatal_sets_are_the_sets_that_take_something(
        scheme in prop::sample::select(Scheme::ALL.to_vec()), nodes in 2usize..9, partitions in 1usize..30,
    ) {
        let rows = place(scheme, &sites(nodes), 2, partitions, 0).unwrap();
        let mut fatal = 0;
        for a in 1..=nodes as u32 {
            for b in a + 1..=nodes as u32 {
                let failed = BTreeSet::from([NodeId(a), NodeId(b)]);
                fatal += usize::from(!forecast(&sites(nodes), &rows, &failed).lost.is_empty());
            }
        }
        let seen = forecast(&sites(nodes), &rows, &BTreeSet::new()).fatal;
        prop_assert_eq!((seen.size, seen.sets), (2, fatal));
        prop_assert_eq!(seen.of as usize, nodes * (nodes - 1) / 2);
    }
}

#[test]
fn schemes_trade_the_load_after_a_failure_for_fatal_sets() {
    let seen = Scheme::ALL.map(|scheme| failure(scheme, 1000, 16, 3, &[7]));
    let most = seen.each_ref().map(|seen| seen.after.primaries.most);
    assert_eq!(most, [24, 19, 24, 17], "chained, interleaved, mirrored, spread");
    let [chained, interleaved, mirrored, spread] = seen.each_ref().map(|seen| seen.fatal.sets);
    assert!(mirrored < chained && chained < interleaved && interleaved < spread, "{seen:?}");
    for seen in &seen {
        assert_eq!((seen.before.primaries.least, seen.before.primaries.most), (16, 16));
        assert_eq!((seen.before.copies.least, seen.before.copies.most), (48, 48));
        assert_eq!(seen.steps.len(), 16 + 48);
        assert_eq!(seen.after.copies.most, 49, "each of 48 nodes takes one copy");
        assert_eq!(seen.fatal.of, 166_167_000.0);
        assert!(seen.lost.is_empty() && seen.storage_lost == 0);
    }
}
