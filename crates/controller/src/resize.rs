//! More or fewer copies of each partition of a table that is there: which nodes get one, and which give
//! theirs up.
//!
//! Copies that stay are not moved. Hence a table with more copies is not always placed as one that was
//! created with so many; how far it differs from that is told by `understudy plan` and can be made even by
//! moves.

use crate::placement::{self, Site};
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, Scheme};

/// The rows with further nodes at their ends, `factor` in each. Rows that are as long already stay as they
/// are.
///
/// `holders` names, row by row, nodes that hold a copy without a place: they are taken first, since nothing
/// has to be brought there. Then a node in a zone that the row is not in, then the one with the fewest copies
/// of the table, then what the scheme prefers: nodes that share few partitions with the row's (interleaved,
/// spread) or many (mirrored), or the next one in the ring (chained). `None`: some row cannot have so many
/// among these sites.
pub fn widen(
    scheme: Scheme,
    sites: &[Site],
    rows: &[Vec<NodeId>],
    holders: &[Vec<NodeId>],
    factor: usize,
) -> Option<Vec<Vec<NodeId>>> {
    let mut table = Spread::new(sites, rows);
    for index in 0..rows.len() {
        let held = holders.get(index).map_or(&[][..], Vec::as_slice);
        while table.rows[index].len() < factor {
            let node = table.best(scheme, index, held)?;
            table.add(index, node);
        }
    }
    Some(table.rows)
}

/// The row with `factor` nodes: the one that leads stays, and of the others those that are in sync before
/// those that are not, by their places. The order of those that stay is the row's.
pub fn narrow(
    row: &[NodeId],
    leads: Option<NodeId>,
    in_sync: impl Fn(NodeId) -> bool,
    factor: usize,
) -> Vec<NodeId> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by_key(|place| (Some(row[*place]) != leads, !in_sync(row[*place]), *place));
    let stay: BTreeSet<usize> = places.into_iter().take(factor).collect();
    stay.into_iter().map(|place| row[place]).collect()
}

/// How the copies of a table lie at present.
struct Spread<'a> {
    rows: Vec<Vec<NodeId>>,
    /// The sites in the order of the ring.
    ring: Vec<NodeId>,
    zones: BTreeMap<NodeId, &'a str>,
    copies: BTreeMap<NodeId, usize>,
    /// How many partitions two nodes have in common, the smaller number first.
    common: BTreeMap<(NodeId, NodeId), usize>,
}

impl<'a> Spread<'a> {
    fn new(sites: &'a [Site], rows: &[Vec<NodeId>]) -> Spread<'a> {
        let mut spread = Spread {
            rows: vec![Vec::new(); rows.len()],
            ring: placement::ring_of(sites),
            zones: sites.iter().map(|site| (site.node, site.zone.as_str())).collect(),
            copies: BTreeMap::new(),
            common: BTreeMap::new(),
        };
        for (index, row) in rows.iter().enumerate() {
            row.iter().for_each(|node| spread.add(index, *node));
        }
        spread
    }

    fn add(&mut self, index: usize, node: NodeId) {
        for other in &self.rows[index] {
            *self.common.entry(pair(*other, node)).or_insert(0) += 1;
        }
        *self.copies.entry(node).or_insert(0) += 1;
        self.rows[index].push(node);
    }

    /// The node for the next copy of this row.
    fn best(&self, scheme: Scheme, index: usize, held: &[NodeId]) -> Option<NodeId> {
        let row = &self.rows[index];
        let place = |node: NodeId| self.ring.iter().position(|other| *other == node);
        let last = row.last().and_then(|node| place(*node)).unwrap_or(0);
        let order = |node: &&NodeId| {
            let zone = self.zones.get(*node).copied().unwrap_or("");
            let shares = |other: &&NodeId| !zone.is_empty() && self.zones.get(*other).copied() == Some(zone);
            let common: usize = row.iter().map(|other| self.in_common(*other, **node)).sum();
            let common = match scheme {
                Scheme::Chained => 0,
                Scheme::Mirrored => usize::MAX - common,
                Scheme::Interleaved | Scheme::Spread => common,
            };
            let further = place(**node).map_or(0, |at| (at + self.ring.len() - last) % self.ring.len());
            let copies = self.copies.get(*node).copied().unwrap_or(0);
            (!held.contains(*node), row.iter().filter(shares).count(), copies, common, further)
        };
        self.ring.iter().filter(|node| !row.contains(node)).min_by_key(order).copied()
    }

    fn in_common(&self, a: NodeId, b: NodeId) -> usize {
        self.common.get(&pair(a, b)).copied().unwrap_or(0)
    }
}

fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}
