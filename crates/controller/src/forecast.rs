//! What a failure would do: the planner's choices played through on paper, for clusters that need not exist.
//!
//! Who takes over and where new copies go is decided by the very orders that the controller uses
//! ([`placement::order_of_lead`], [`placement::order_of_spare`]), with all copies alike and everybody else
//! alive.

use crate::placement::{self, Site};
use std::collections::{BTreeMap, BTreeSet};
use types::NodeId;

/// One step after the failure. Partitions are numbers of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A living copy leads instead of the one that is gone.
    Lead {
        /// The partition.
        partition: usize,
        /// Who led.
        from: NodeId,
        /// Who leads now.
        to: NodeId,
    },
    /// A new copy instead of one that is gone.
    Copy {
        /// The partition.
        partition: usize,
        /// Where the copy was.
        from: NodeId,
        /// Where the new one goes.
        to: NodeId,
    },
}

/// How much a kind of node has of something.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Share {
    /// The node with the least.
    pub least: usize,
    /// Over all of them.
    pub mean: f64,
    /// The node with the most.
    pub most: usize,
}

/// The load of living nodes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Primaries per node.
    pub primaries: Share,
    /// Copies per node, primaries among them.
    pub copies: Share,
}

/// Sets of as many nodes as there are copies, all of which some partition has its copies on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fatal {
    /// Nodes in each set.
    pub size: usize,
    /// Sets whose loss takes all copies of some partition.
    pub sets: usize,
    /// All sets of that size that the nodes have.
    pub of: f64,
}

impl Fatal {
    /// How likely so many nodes that fail at once are one of the sets.
    pub fn share(&self) -> f64 {
        if self.of > 0.0 { self.sets as f64 / self.of } else { 0.0 }
    }
}

/// What a failure would do.
#[derive(Clone, PartialEq, Debug)]
pub struct Forecast {
    /// What happens, by partition; who leads comes first.
    pub steps: Vec<Step>,
    /// Partitions without any copy left.
    pub lost: Vec<usize>,
    /// Copies that find no node: every living one has a copy already.
    pub storage_lost: usize,
    /// Before the failure, over all nodes.
    pub before: Load,
    /// When all steps are done, over the nodes that live.
    pub after: Load,
    /// Before the failure.
    pub fatal: Fatal,
}

/// Plays the failure of some nodes through. Each row has the nodes of a partition's copies, the one that
/// leads first.
pub fn forecast(sites: &[Site], rows: &[Vec<NodeId>], failed: &BTreeSet<NodeId>) -> Forecast {
    let mut draft = Draft::new(sites, rows, failed);
    let before = load(&draft.led, &draft.copies);
    let fatal = fatal(sites.len(), rows);
    for node in failed {
        draft.led.remove(node);
        draft.copies.remove(node);
    }
    let hit: Vec<usize> =
        (0..rows.len()).filter(|row| rows[*row].iter().any(|node| failed.contains(node))).collect();
    // As in a cluster: all leads are taken over at once, new copies are made later.
    hit.iter().for_each(|row| draft.take_over(*row));
    hit.iter().for_each(|row| draft.replace(*row));
    let partition = |step: &Step| match step {
        Step::Lead { partition, .. } | Step::Copy { partition, .. } => *partition,
    };
    draft.steps.sort_by_key(partition);
    Forecast {
        after: load(&draft.led, &draft.copies),
        steps: draft.steps,
        lost: draft.lost,
        storage_lost: draft.storage_lost,
        before,
        fatal,
    }
}

struct Draft<'a> {
    zones: BTreeMap<NodeId, &'a str>,
    rows: &'a [Vec<NodeId>],
    failed: &'a BTreeSet<NodeId>,
    led: BTreeMap<NodeId, usize>,
    copies: BTreeMap<NodeId, usize>,
    steps: Vec<Step>,
    lost: Vec<usize>,
    storage_lost: usize,
}

impl<'a> Draft<'a> {
    fn new(sites: &'a [Site], rows: &'a [Vec<NodeId>], failed: &'a BTreeSet<NodeId>) -> Draft<'a> {
        let nothing = || sites.iter().map(|site| (site.node, 0)).collect();
        let (mut led, mut copies): (BTreeMap<_, _>, BTreeMap<_, _>) = (nothing(), nothing());
        for row in rows {
            row.first().into_iter().for_each(|node| *led.entry(*node).or_insert(0) += 1);
            row.iter().for_each(|node| *copies.entry(*node).or_insert(0) += 1);
        }
        let zones = sites.iter().map(|site| (site.node, site.zone.as_str())).collect();
        Draft { zones, rows, failed, led, copies, steps: Vec::new(), lost: Vec::new(), storage_lost: 0 }
    }

    fn alive(&self, row: usize) -> impl Iterator<Item = (usize, NodeId)> {
        let placed = self.rows[row].iter().copied().enumerate();
        placed.filter(|(_, node)| !self.failed.contains(node))
    }

    /// The partition has a primary again, if a copy lives.
    fn take_over(&mut self, row: usize) {
        let from = self.rows[row][0];
        if !self.failed.contains(&from) {
            return;
        }
        let order = |(rank, node): &(usize, NodeId)| placement::order_of_lead(self.led[node], *rank, *node);
        match self.alive(row).min_by_key(order) {
            Some((_, to)) => {
                self.led.entry(to).and_modify(|led| *led += 1);
                self.steps.push(Step::Lead { partition: row, from, to });
            }
            None => self.lost.push(row),
        }
    }

    /// The partition has as many copies again as it had, if there are nodes for them.
    fn replace(&mut self, row: usize) {
        let mut holds: Vec<NodeId> = self.alive(row).map(|(_, node)| node).collect();
        if holds.is_empty() {
            return;
        }
        for from in self.rows[row].iter().filter(|node| self.failed.contains(node)) {
            let taken: BTreeSet<&str> =
                holds.iter().map(|node| self.zones[node]).filter(|zone| !zone.is_empty()).collect();
            let free = self.copies.iter().filter(|(node, _)| !holds.contains(node));
            let order = |(node, copies): &(&NodeId, &usize)| {
                placement::order_of_spare(taken.contains(self.zones[*node]), **copies, **node)
            };
            let Some(to) = free.min_by_key(order).map(|(node, _)| *node) else {
                self.storage_lost += 1;
                continue;
            };
            self.copies.entry(to).and_modify(|copies| *copies += 1);
            self.steps.push(Step::Copy { partition: row, from: *from, to });
            holds.push(to);
        }
    }
}

fn load(led: &BTreeMap<NodeId, usize>, copies: &BTreeMap<NodeId, usize>) -> Load {
    Load { primaries: share(led), copies: share(copies) }
}

fn share(counts: &BTreeMap<NodeId, usize>) -> Share {
    let (least, most) = (counts.values().min(), counts.values().max());
    let sum: usize = counts.values().sum();
    Share {
        least: least.copied().unwrap_or(0),
        mean: sum as f64 / counts.len().max(1) as f64,
        most: most.copied().unwrap_or(0),
    }
}

fn fatal(nodes: usize, rows: &[Vec<NodeId>]) -> Fatal {
    let size = rows.first().map_or(0, Vec::len);
    let mut sets: Vec<Vec<NodeId>> = rows.to_vec();
    sets.iter_mut().for_each(|set| set.sort_unstable());
    sets.sort_unstable();
    sets.dedup();
    let of = (0..size).map(|taken| (nodes - taken) as f64 / (taken + 1) as f64).product();
    Fatal { size, sets: sets.len(), of }
}
