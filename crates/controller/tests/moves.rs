//! Moves when nodes join and leave: played through on many small clusters, with nodes that fail in between.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, PartitionId, Scheme};
use understudy_controller::moves::{Move, Part, Place, Row, has_joined, next};
use understudy_controller::placement::{Site, place};

/// A partition as it is: where it is wanted, and who is in sync.
#[derive(Clone, Debug)]
struct Partition {
    wanted: Vec<NodeId>,
    in_sync: BTreeSet<NodeId>,
    pinned: bool,
}

/// A cluster in which copies are made and removed as the planner's other parts do it.
#[derive(Clone, Debug)]
struct Toy {
    parts: BTreeMap<NodeId, Part>,
    away: BTreeSet<NodeId>,
    zones: usize,
    partitions: Vec<Partition>,
}

const MAX_MOVES: usize = 2;

impl Toy {
    fn new(nodes: usize, zones: usize, factor: usize, partitions: usize) -> Toy {
        let mut toy = Toy {
            parts: (1..=nodes as u32).map(|node| (NodeId(node), Part::Takes)).collect(),
            away: BTreeSet::new(),
            zones,
            partitions: Vec::new(),
        };
        let sites: Vec<Site> = toy.places().into_iter().map(|place| place.site).collect();
        let rows = place(Scheme::Chained, &sites, factor, partitions, 0).expect("enough nodes");
        let partition = |row: Vec<NodeId>| Partition {
            in_sync: row.iter().copied().collect(),
            wanted: row,
            pinned: false,
        };
        toy.partitions = rows.into_iter().map(partition).collect();
        toy
    }

    fn places(&self) -> Vec<Place> {
        let zone = |node: NodeId| match self.zones {
            0 => String::new(),
            zones => format!("z{}", node.0 as usize % zones),
        };
        let part = |node: NodeId, part: Part| match part {
            Part::Takes | Part::Joins if self.away.contains(&node) => Part::Stays,
            part => part,
        };
        let place = |(node, as_asked): (&NodeId, &Part)| Place {
            site: Site { node: *node, zone: zone(*node) },
            part: part(*node, *as_asked),
        };
        self.parts.iter().map(place).collect()
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(number, partition): (usize, &Partition)| {
            let whole = partition.wanted.iter().all(|node| partition.in_sync.contains(node));
            let comes = partition
                .wanted
                .iter()
                .any(|node| !partition.in_sync.contains(node) && !self.away.contains(node));
            let goes = partition.in_sync.len() > partition.wanted.len();
            Row {
                partition: PartitionId(number as u32),
                nodes: partition.wanted.clone(),
                moving: comes || whole && goes,
                whole,
                pinned: partition.pinned,
            }
        };
        self.partitions.iter().enumerate().map(row).collect()
    }

    /// Decides the next moves, checks each and writes it down.
    fn decide(&mut self) -> Vec<Move> {
        let (places, rows) = (self.places(), self.rows());
        let steps = next(&places, &rows, MAX_MOVES);
        for step in &steps {
            self.check(step);
            let wanted = &mut self.partitions[step.partition.0 as usize].wanted;
            let place = wanted.iter().position(|node| *node == step.from).expect("checked");
            wanted[place] = step.to;
        }
        let under_way = |rows: &[Row]| rows.iter().filter(|row| row.moving).count();
        assert!(under_way(&self.rows()) <= MAX_MOVES.max(under_way(&rows)), "too many at once");
        steps
    }

    /// No move without need, and none to where nothing may go.
    fn check(&self, step: &Move) {
        let partition = &self.partitions[step.partition.0 as usize];
        assert!(partition.wanted.contains(&step.from) && !partition.wanted.contains(&step.to), "{step:?}");
        assert!(!self.away.contains(&step.to), "{step:?}");
        let part = |node| self.parts.get(&node).copied().unwrap_or(Part::Decommissions);
        if part(step.from) == Part::Decommissions {
            assert!(matches!(part(step.to), Part::Takes | Part::Joins), "{step:?}");
            return;
        }
        assert_eq!(part(step.to), Part::Joins, "{step:?}");
        assert!(part(step.from) != Part::Joins && !partition.pinned, "{step:?}");
        let (has, gets) = (self.placed(step.from), self.placed(step.to));
        assert!(has >= gets + 2, "{step:?}: from {has} to {gets} copies");
    }

    fn placed(&self, node: NodeId) -> usize {
        self.partitions.iter().filter(|partition| partition.wanted.contains(&node)).count()
    }

    /// One missing copy that can be made is made; then what is too much goes. Never is one in sync less than
    /// wanted because of that.
    fn copy_one(&mut self, which: usize) {
        let away = self.away.clone();
        let count = self.partitions.len();
        for partition in (0..count).map(|step| (which + step) % count) {
            let partition = &mut self.partitions[partition];
            let missing = partition
                .wanted
                .iter()
                .find(|node| !partition.in_sync.contains(node) && !away.contains(node))
                .copied()
                .filter(|_| !partition.in_sync.is_empty());
            let made = missing.is_some_and(|node| partition.in_sync.insert(node));
            let level = |node: &NodeId| partition.in_sync.contains(node) && !away.contains(node);
            let removed =
                partition.wanted.iter().all(level) && partition.in_sync.len() > partition.wanted.len();
            if removed {
                partition.in_sync = partition.wanted.iter().copied().collect();
            }
            if made || removed {
                return;
            }
        }
    }

    /// Returned nodes are brought level, and everything is done that can be done without further decisions.
    fn settle(&mut self) {
        for _ in 0..self.partitions.len() * 8 {
            self.copy_one(0);
        }
    }

    fn copies(&self) -> Vec<usize> {
        self.partitions.iter().map(|partition| partition.in_sync.len()).collect()
    }

    /// Decides and copies until nothing happens any more.
    fn play(&mut self) -> usize {
        let mut moves = 0;
        let bound = self.partitions.iter().map(|partition| partition.wanted.len()).sum::<usize>() + 1;
        // Each round makes a copy, or decides on a move, or is the last one.
        for _ in 0..bound * 4 {
            let before = self.copies();
            let quiet = self.rows().iter().all(|row| !row.moving);
            let steps = self.decide();
            moves += steps.len();
            assert!(moves <= bound, "it does not end");
            self.copy_one(moves);
            for (before, after) in before.iter().zip(self.copies()) {
                assert!(after >= (*before).min(self.partitions[0].wanted.len()), "fewer copies than before");
            }
            if steps.is_empty() && quiet {
                return moves;
            }
        }
        panic!("something waits for ever: {self:?}");
    }
}

proptest! {
    #[test]
    fn a_node_that_joins_gets_as_much_as_the_others_and_no_more(
        nodes in 2usize..9, factor in 1usize..4, partitions in 1usize..40, joins in 1u32..4, zones in 0usize..2,
    ) {
        prop_assume!(factor <= nodes);
        // With a single zone all copies share it before and after.
        let mut toy = Toy::new(nodes, zones, factor, partitions);
        let added: Vec<NodeId> = (nodes as u32 + 1..=nodes as u32 + joins).map(NodeId).collect();
        for node in &added {
            toy.parts.insert(*node, Part::Joins);
        }
        let before: BTreeMap<NodeId, usize> = toy.parts.keys().map(|node| (*node, toy.placed(*node))).collect();
        let moves = toy.play();
        let least = added.iter().map(|node| toy.placed(*node)).min().unwrap();
        let most = toy.parts.keys().map(|node| toy.placed(*node)).max().unwrap();
        prop_assert!(most <= least + 1, "{least} to {most} copies");
        // Not one move more than what the new nodes have now.
        prop_assert_eq!(moves, added.iter().map(|node| toy.placed(*node)).sum::<usize>());
        for (node, before) in before.iter().filter(|(node, _)| !added.contains(node)) {
            prop_assert!(toy.placed(*node) <= *before);
        }
        let (places, rows) = (toy.places(), toy.rows());
        prop_assert!(added.iter().all(|node| has_joined(&places, &rows, *node)));
        prop_assert!(toy.partitions.iter().all(|partition| partition.in_sync.len() == factor));
        // Leads follow: nobody who joined leads less than a fair part, less two.
        let leads = |node: &NodeId| toy.partitions.iter().filter(|partition| partition.wanted[0] == *node).count();
        let fair = partitions / toy.parts.len();
        prop_assert!(added.iter().all(|node| leads(node) + 2 > fair.min(least)), "{:?}", toy.partitions);
    }

    #[test]
    fn a_node_that_leaves_ends_up_with_nothing(
        nodes in 2usize..9, factor in 1usize..4, partitions in 1usize..40, decommissions in 1u32..3, dead in any::<bool>(),
    ) {
        prop_assume!(factor + (decommissions as usize) <= nodes && factor > usize::from(dead) * decommissions as usize);
        let mut toy = Toy::new(nodes, 0, factor, partitions);
        let gone: Vec<NodeId> = (1..=decommissions).map(NodeId).collect();
        let held: usize = gone.iter().map(|node| toy.placed(*node)).sum();
        for node in &gone {
            toy.parts.insert(*node, Part::Decommissions);
            if dead {
                toy.away.insert(*node);
                toy.partitions.iter_mut().for_each(|partition| partition.in_sync.retain(|other| other != node));
            }
        }
        let moves = toy.play();
        prop_assert_eq!(moves, held, "each copy moves once");
        for node in &gone {
            prop_assert_eq!(toy.placed(*node), 0);
            prop_assert!(toy.partitions.iter().all(|partition| !partition.in_sync.contains(node)));
        }
        prop_assert!(toy.partitions.iter().all(|partition| partition.in_sync.len() == factor));
    }

    /// Whoever is away in between: what was begun ends when everybody is back.
    #[test]
    fn failures_only_delay(
        partitions in 1usize..30, failing in prop::collection::vec((1u32..7, 1usize..6), 0..12),
    ) {
        let mut toy = Toy::new(5, 0, 3, partitions);
        toy.parts.insert(NodeId(6), Part::Joins);
        toy.parts.insert(NodeId(1), Part::Decommissions);
        let mut moves = 0;
        for (node, steps) in failing {
            toy.away = BTreeSet::from([NodeId(node)]);
            for partition in &mut toy.partitions {
                if partition.in_sync.len() > 1 {
                    partition.in_sync.remove(&NodeId(node));
                }
            }
            for step in 0..steps {
                moves += toy.decide().len();
                toy.copy_one(step);
            }
        }
        toy.away.clear();
        toy.settle();
        moves += toy.play();
        prop_assert_eq!(toy.placed(NodeId(1)), 0);
        prop_assert!(moves <= partitions * 3);
        prop_assert!(has_joined(&toy.places(), &toy.rows(), NodeId(6)));
        prop_assert!(toy.partitions.iter().all(|partition| partition.in_sync.len() == 3));
    }
}

#[test]
fn zones_are_not_given_up_to_be_even() {
    // Node 4 is in the zone of node 1: it takes copies of node 1 only, which share no zone by that.
    let mut toy = Toy::new(3, 3, 2, 12);
    toy.parts.insert(NodeId(4), Part::Joins);
    toy.play();
    assert!(toy.placed(NodeId(4)) >= 3, "{toy:?}");
    for partition in &toy.partitions {
        let zones: BTreeSet<u32> = partition.wanted.iter().map(|node| node.0 % 3).collect();
        assert_eq!(zones.len(), 2, "{partition:?}");
    }
}

#[test]
fn what_was_written_down_stays_unless_its_node_leaves() {
    let mut toy = Toy::new(3, 0, 2, 9);
    toy.partitions.iter_mut().for_each(|partition| partition.pinned = true);
    toy.parts.insert(NodeId(4), Part::Joins);
    assert_eq!(toy.play(), 0);
    let held = toy.placed(NodeId(3));
    toy.parts.insert(NodeId(3), Part::Decommissions);
    assert_eq!(toy.play(), held);
}

#[test]
fn nothing_moves_where_nothing_can() {
    // As many copies as nodes: who leaves has nowhere to leave its copies.
    let mut toy = Toy::new(3, 0, 3, 4);
    toy.parts.insert(NodeId(1), Part::Decommissions);
    assert_eq!(toy.decide(), []);
    // A node that joins and is away waits.
    toy.parts.insert(NodeId(4), Part::Joins);
    toy.away.insert(NodeId(4));
    assert_eq!(toy.decide(), []);
    toy.away.clear();
    assert_eq!(toy.decide().len(), MAX_MOVES);
}
