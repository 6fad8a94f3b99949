//! The number of copies is changed while partitions serve: the pure choice of nodes, and the planner's way
//! there.

mod common;

use common::cluster::Cluster;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, NodeRecord, Scheme};
use understudy_controller::Settings;
use understudy_controller::placement::{Site, place};
use understudy_controller::resize::{narrow, widen};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable};

fn to(name: &str, factor: u8) -> AlterTable {
    AlterTable { name: name.into(), factor: Some(factor), ..AlterTable::default() }
}

fn alter(cluster: &mut Cluster, request: &AlterTable) -> Result<String, (u8, String)> {
    cluster.ask(AdminCommand::AlterTable(RecordText::new(request)))
}

fn sites(nodes: u32, zones: u32) -> Vec<Site> {
    let zone = |node| if zones == 0 { String::new() } else { format!("z{}", node % zones) };
    (1..=nodes).map(|node| Site { node: NodeId(node), zone: zone(node) }).collect()
}

/// How many copies each node has.
fn copies(rows: &[Vec<NodeId>]) -> BTreeMap<NodeId, usize> {
    let mut copies = BTreeMap::new();
    rows.iter().flatten().for_each(|node| *copies.entry(*node).or_insert(0) += 1);
    copies
}

proptest! {
    #[test]
    fn what_is_there_stays_and_what_is_added_is_spread(
        nodes in 2u32..12,
        zones in 0u32..4,
        less in 1usize..4,
        more in 1usize..4,
        turns in 1usize..5,
        scheme in prop::sample::select(Scheme::ALL.to_vec()),
    ) {
        let factor = less + more;
        let sites = sites(nodes, zones);
        prop_assume!(factor <= nodes as usize);
        let rows = place(scheme, &sites, less, turns * nodes as usize, 0).expect("enough nodes");
        let wide = widen(scheme, &sites, &rows, &[], factor).expect("enough nodes");
        for (row, wider) in rows.iter().zip(&wide) {
            prop_assert_eq!(&wider[..less], &row[..], "what is there stays in its place");
            prop_assert_eq!(wider.iter().collect::<BTreeSet<_>>().len(), factor, "each node once");
            if zones > 0 {
                let zone = |node: &NodeId| node.0 % zones;
                let used: BTreeSet<u32> = wider.iter().map(zone).collect();
                let there: BTreeSet<u32> = sites.iter().map(|site| site.node.0 % zones).collect();
                prop_assert_eq!(used.len(), there.len().min(factor), "in as many zones as there are: {:?}", wider);
            }
        }
        if zones == 0 {
            let held = copies(&wide);
            let (least, most) = (held.values().min().copied(), held.values().max().copied());
            prop_assert!(held.len() == nodes as usize && most <= least.map(|least| least + 2), "{:?}", held);
        }
        // Back again: the copies that were there first.
        for (row, wider) in rows.iter().zip(&wide) {
            prop_assert_eq!(&narrow(wider, Some(wider[0]), |_| true, less), row);
        }
    }
}

#[test]
fn who_leads_and_who_is_level_stays_when_copies_go() {
    let row = [1, 2, 3, 4].map(NodeId);
    let level = |node: NodeId| node != NodeId(2);
    assert_eq!(narrow(&row, Some(NodeId(4)), level, 2), [1, 4].map(NodeId));
    assert_eq!(narrow(&row, Some(NodeId(1)), level, 2), [1, 3].map(NodeId));
    assert_eq!(narrow(&row, Some(NodeId(2)), level, 1), [2].map(NodeId), "never the primary");
    assert_eq!(narrow(&row, None, |_| false, 4), row);
}

#[test]
fn a_copy_without_a_place_is_given_one_first() {
    let rows = vec![vec![NodeId(1), NodeId(2)]];
    let held = vec![vec![NodeId(1), NodeId(5)]];
    let wide = widen(Scheme::Chained, &sites(5, 0), &rows, &held, 3).expect("enough nodes");
    assert_eq!(wide, vec![[1, 2, 5].map(NodeId).to_vec()]);
    assert_eq!(widen(Scheme::Chained, &sites(2, 0), &rows, &[], 3), None);
}

#[test]
fn copies_come_and_go_while_controllers_forget() {
    let mut cluster = Cluster::new(5, &[("a", 2, 10, Scheme::Chained), ("b", 2, 5, Scheme::Spread)]);
    cluster.pass(4000);
    let before = cluster.tables();
    alter(&mut cluster, &to("a", 4)).expect("there are five nodes");
    cluster.pass(300);
    cluster.world.restart_controller(0, Settings::default());
    cluster.pass(20_000);
    let copies = cluster.settled();
    assert_eq!(copies.values().sum::<usize>(), 50, "{copies:?}");
    for (old, new) in before[0].placement.iter().zip(&cluster.tables()[0].placement) {
        assert_eq!(&new[..2], &old[..], "what was there has stayed");
    }
    assert_eq!(cluster.tables()[1], before[1], "of the other table nothing was changed");
    assert!(cluster.fewest.values().all(|fewest| *fewest == 2), "{:?}", cluster.fewest);

    cluster.fewest.clear();
    alter(&mut cluster, &to("a", 3)).expect("fewer");
    cluster.pass(300);
    alter(&mut cluster, &to("a", 2)).expect("fewer still, before the first was through");
    cluster.world.restart_controller(0, Settings::default());
    cluster.pass(20_000);
    assert_eq!(cluster.settled().values().sum::<usize>(), 30);
    assert_eq!(cluster.tables()[0].placement, before[0].placement);
    for record in cluster.world.partitions() {
        assert_eq!((record.policy.factor, &record.next_policy), (2, &None));
        assert_eq!(cluster.fewest[&record.id], 2);
    }
}

#[test]
fn the_record_says_fewer_before_a_copy_goes_and_enough_are_there_before_more_are_demanded() {
    let mut cluster = Cluster::new(3, &[("a", 3, 1, Scheme::Chained)]);
    cluster.pass(4000);
    let both = AlterTable { min_in_sync: Some(1), ..to("a", 1) };
    alter(&mut cluster, &both).expect("both at once");
    let mut seen = Vec::new();
    for _ in 0..100 {
        cluster.pass(100);
        let record = cluster.world.partition(64);
        seen.push((record.policy.factor, record.in_sync.len()));
    }
    seen.dedup();
    assert_eq!(seen.last(), Some(&(1, 1)));
    assert!(seen.iter().all(|(factor, copies)| usize::from(*factor) <= *copies), "{seen:?}");

    let both = AlterTable { min_in_sync: Some(3), ..to("a", 3) };
    alter(&mut cluster, &both).expect("both at once");
    for _ in 0..100 {
        cluster.pass(100);
        let record = cluster.world.partition(64);
        assert!(record.in_sync.len() >= record.policy.min_in_sync.into(), "commits go on: {record:?}");
    }
    let record = cluster.world.partition(64);
    assert_eq!((record.policy.min_in_sync, record.policy.factor, record.in_sync.len()), (3, 3, 3));
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence_and_changes_nothing() {
    let mut cluster = Cluster::new(3, &[("a", 3, 2, Scheme::Chained), ("b", 2, 2, Scheme::Chained)]);
    cluster.pass(4000);
    let before = cluster.tables();
    let refused = alter(&mut cluster, &to("a", 1)).expect_err("two must be in sync");
    assert_eq!(
        refused,
        (
            2,
            "table 'a' commits with at least 2 copies in sync; for 1 copy lower that in the same step: \
             min_in_sync 1"
                .into()
        )
    );
    let refused = alter(&mut cluster, &to("a", 4)).expect_err("three nodes");
    assert_eq!(refused, (5, "table 'a' wants 4 copies, but only 3 nodes are live: n1, n2, n3".into()));
    let refused = alter(&mut cluster, &to("a", 8)).expect_err("seven at most");
    assert_eq!(refused, (2, "factor 8 is out of range: 1 to 7 copies".into()));
    let alone = AlterTable { policy: Some("none".into()), ..to("b", 2) };
    let refused = alter(&mut cluster, &alone).expect_err("none is one copy");
    assert_eq!(refused, (2, "policy 'none' keeps one copy; factor 2 needs another policy".into()));
    assert_eq!(cluster.tables(), before);

    let alone = AlterTable { policy: Some("none".into()), ..to("b", 1) };
    alter(&mut cluster, &alone).expect("one copy under none");
    cluster.pass(8000);
    let refused = alter(&mut cluster, &to("b", 2)).expect_err("none is one copy");
    assert_eq!(refused.1, "policy 'none' keeps one copy; factor 2 needs another policy");
    // The same once more changes nothing: it is how one goes on after an interruption.
    let before = cluster.tables();
    alter(&mut cluster, &to("b", 1)).expect("nothing to do");
    assert_eq!(cluster.tables(), before);
}

#[test]
fn a_node_that_leaves_is_given_no_copy() {
    let mut cluster = Cluster::new(4, &[("a", 2, 4, Scheme::Chained)]);
    cluster.pass(4000);
    cluster.ask(AdminCommand::Remove { node: NodeId(4), losing: false }).expect("others can take it");
    alter(&mut cluster, &to("a", 3)).expect("three others");
    cluster.pass(60_000);
    assert_eq!(cluster.node(4), None::<NodeRecord>);
    assert_eq!(cluster.settled(), BTreeMap::from([(1, 4), (2, 4), (3, 4)]));
}
