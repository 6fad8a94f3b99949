//! Which copies move when nodes join and leave: decided from what is, a few at a time, and decided anew after
//! each.
//!
//! Nothing is moved without need. A copy leaves a node that is to hold nothing; or it goes to a node that
//! joins, from one that has at least two more, so that every move makes the two more alike. Hence it ends:
//! what leaving nodes hold only shrinks, and then the sum of the squares of what the nodes hold does.
//!
//! How a move is made is not decided here: the partition's row is changed, and the planner sees to it that
//! the new copy is in sync before the old one goes.

use crate::placement::{self, Site};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use types::{NodeId, PartitionId};

/// What part a node has in moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Gives up everything it holds.
    Decommissions,
    /// Is given copies until it has as many as the others; also those of nodes that leave.
    Joins,
    /// Takes copies of nodes that leave, and gives to nodes that join.
    Takes,
    /// Takes nothing: it is away, or leads nothing for a while. Gives to nodes that join.
    Stays,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Where it is.
    pub site: Site,
    /// Its part.
    pub part: Part,
}

/// Where a partition's copies are wanted, and how far that is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The partition.
    pub partition: PartitionId,
    /// The nodes, first the one that is to lead. A node without a [`Place`] is taken for one that is being
    /// decommissioned.
    pub nodes: Vec<NodeId>,
    /// A move of it is under way.
    pub moving: bool,
    /// All of these nodes are in sync.
    pub whole: bool,
    /// Somebody said where it has to be: it is not moved to make nodes even.
    pub pinned: bool,
}

/// A copy that is to lie elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Of this partition.
    pub partition: PartitionId,
    /// From here.
    pub from: NodeId,
    /// To there.
    pub to: NodeId,
}

/// The next moves: at most so many that `most` are under way.
pub fn next(places: &[Place], rows: &[Row], most: usize) -> Vec<Move> {
    let under_way = rows.iter().filter(|row| row.moving).count();
    let mut draft = Draft::new(places, rows);
    draft.leave(most.saturating_sub(under_way));
    draft.join(most.saturating_sub(under_way));
    draft.moves
}

struct Draft<'a> {
    places: BTreeMap<NodeId, &'a Place>,
    rows: Vec<Row>,
    copies: BTreeMap<NodeId, usize>,
    led: BTreeMap<NodeId, usize>,
    moves: Vec<Move>,
}

impl<'a> Draft<'a> {
    fn new(places: &'a [Place], rows: &[Row]) -> Draft<'a> {
        let (mut copies, mut led) = (BTreeMap::new(), BTreeMap::new());
        for row in rows {
            row.nodes.first().into_iter().for_each(|node| *led.entry(*node).or_insert(0) += 1);
            row.nodes.iter().for_each(|node| *copies.entry(*node).or_insert(0) += 1);
        }
        let places = places.iter().map(|place| (place.site.node, place)).collect();
        Draft { places, rows: rows.to_vec(), copies, led, moves: Vec::new() }
    }

    fn part(&self, node: NodeId) -> Part {
        self.places.get(&node).map_or(Part::Decommissions, |place| place.part)
    }

    fn holds(&self, node: NodeId) -> usize {
        self.copies.get(&node).copied().unwrap_or(0)
    }

    fn leads(&self, node: NodeId) -> usize {
        self.led.get(&node).copied().unwrap_or(0)
    }

    /// Finds other nodes for what nodes that leave hold: one copy of a partition at a time.
    fn leave(&mut self, most: usize) {
        for index in 0..self.rows.len() {
            if self.moves.len() >= most {
                return;
            }
            let row = &self.rows[index];
            if row.moving {
                continue;
            }
            let decommissions = |node: &&NodeId| self.part(**node) == Part::Decommissions;
            let Some(from) = row.nodes.iter().find(decommissions).copied() else { continue };
            let takes = self.places.values().filter(|place| {
                matches!(place.part, Part::Takes | Part::Joins) && !row.nodes.contains(&place.site.node)
            });
            let order = |place: &&&Place| {
                let node = place.site.node;
                placement::order_of_spare(self.shares_zone(row, from, node), self.holds(node), node)
            };
            if let Some(to) = takes.min_by_key(order).map(|place| place.site.node) {
                self.go(index, from, to);
            }
        }
    }

    /// Brings copies to nodes that join, from whoever has the most.
    fn join(&mut self, most: usize) {
        while self.moves.len() < most {
            let joins = self.places.values().filter(|place| place.part == Part::Joins);
            let mut joins: Vec<NodeId> = joins.map(|place| place.site.node).collect();
            joins.sort_by_key(|node| (self.holds(*node), *node));
            let Some((index, from, to)) = joins.into_iter().find_map(|to| self.gift(to)) else { return };
            self.go(index, from, to);
        }
    }

    /// A copy that this node may have, and from whom.
    fn gift(&self, to: NodeId) -> Option<(usize, NodeId, NodeId)> {
        let gives = |place: &&&Place| {
            matches!(place.part, Part::Takes | Part::Stays)
                && self.holds(place.site.node) >= self.holds(to) + 2
        };
        let mut givers: Vec<NodeId> =
            self.places.values().filter(gives).map(|place| place.site.node).collect();
        givers.sort_by_key(|node| (Reverse(self.holds(*node)), *node));
        let row = |from: NodeId| {
            // With a copy that is to lead the lead goes along: only as long as that makes leads more even,
            // too.
            let lead = self.leads(from) >= self.leads(to) + 2;
            let fits = |row: &&(usize, &Row)| {
                !row.1.moving && row.1.whole && !row.1.pinned && self.improves(row.1, from, to)
            };
            let rows = self.rows.iter().enumerate();
            rows.collect::<Vec<_>>()
                .iter()
                .filter(fits)
                .min_by_key(|(index, row)| ((row.nodes.first() == Some(&from)) != lead, *index))
                .map(|(index, _)| (*index, from, to))
        };
        givers.into_iter().find_map(row)
    }

    /// True if the copy can go there, and the copies share no zone that they do not share now.
    fn improves(&self, row: &Row, from: NodeId, to: NodeId) -> bool {
        row.nodes.contains(&from)
            && !row.nodes.contains(&to)
            && (!self.shares_zone(row, from, to) || self.shares_zone(row, from, from))
    }

    /// True if a node that takes the place of `from` is in the zone of another copy.
    fn shares_zone(&self, row: &Row, from: NodeId, to: NodeId) -> bool {
        let zone = |node: NodeId| self.places.get(&node).map_or("", |place| place.site.zone.as_str());
        let wanted = zone(to);
        !wanted.is_empty() && row.nodes.iter().any(|node| *node != from && zone(*node) == wanted)
    }

    fn go(&mut self, index: usize, from: NodeId, to: NodeId) {
        let row = &mut self.rows[index];
        let place = row.nodes.iter().position(|node| *node == from).expect("it was found there");
        row.nodes[place] = to;
        row.moving = true;
        let change = |counts: &mut BTreeMap<NodeId, usize>| {
            *counts.entry(to).or_insert(0) += 1;
            counts.entry(from).and_modify(|count| *count -= 1);
        };
        change(&mut self.copies);
        if place == 0 {
            change(&mut self.led);
        }
        self.moves.push(Move { partition: row.partition, from, to });
    }
}

/// True if a node that joins has what it is to have: nothing is on its way to it, and nobody has anything for
/// it.
pub fn has_joined(places: &[Place], rows: &[Row], node: NodeId) -> bool {
    let on_its_way = rows.iter().any(|row| row.moving && row.nodes.contains(&node));
    // What cannot move now may well do so later.
    let settled: Vec<Row> =
        rows.iter().map(|row| Row { moving: false, whole: true, ..row.clone() }).collect();
    !on_its_way && next(places, &settled, usize::MAX).iter().all(|step| step.to != node)
}
