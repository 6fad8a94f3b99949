//! A store for tests that assumes no order of commits. Nodes have regions in memory and persist them to
//! disks; copies of a region are sent what it has. A failure gives a region to the next copy, which begins
//! with what is on its disk, and stays closed until what was lost is replayed.
//!
//! Versions are timestamps, as they are in the document's store (PR-48): so the order in which parts arrive
//! does not matter.

use crate::store::{Refused, Reopening, Sender, Servers, Store, Tenure};
use crate::suite::Subject;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, PartitionId, Position, TableId};
use wire::Flush;

/// Versions of rows, newest last; none: deleted.
type Versions = BTreeMap<(TableId, Bytes), BTreeMap<Position, Option<Bytes>>>;

/// What one node has of a region.
#[derive(Clone, Debug, Default)]
struct Copy {
    memory: Versions,
    disk: Versions,
    /// The region's threshold on this disk: everything up to here is on it.
    marker: Position,
}

#[derive(Clone, Debug)]
struct Region {
    /// Whose copies may be given the region; the first one has it.
    nodes: Vec<NodeId>,
    /// Who has lost its copy and was not sent another one yet: it is given no region.
    without: Vec<NodeId>,
    tenure: Tenure,
    open: bool,
}

/// The store. What it does beside [`Store`] is what tests do to it ([`Servers`]).
#[derive(Clone, Debug, Default)]
pub struct Unordered {
    regions: BTreeMap<PartitionId, Region>,
    copies: BTreeMap<(NodeId, PartitionId), Copy>,
    /// They are sent nothing.
    cut: BTreeSet<NodeId>,
}

impl Unordered {
    /// A store whose regions have copies on these nodes; the first of each has it.
    pub fn new(regions: &[(PartitionId, &[NodeId])]) -> Unordered {
        let region = |nodes: &[NodeId]| Region {
            nodes: nodes.to_vec(),
            without: Vec::new(),
            tenure: Tenure(1),
            open: true,
        };
        Unordered {
            regions: regions.iter().map(|(id, nodes)| (*id, region(nodes))).collect(),
            ..Unordered::default()
        }
    }

    /// The threshold on one node's disk alone: what the document's server reports.
    pub fn persisted_on(&self, node: NodeId, region: PartitionId) -> Position {
        self.copies.get(&(node, region)).map_or(Position::ZERO, |copy| copy.marker)
    }

    fn apply(&mut self, (node, region): (NodeId, PartitionId), flush: &Flush) {
        let copy = self.copies.entry((node, region)).or_default();
        for part in &flush.parts {
            for op in &part.ops {
                let versions = copy.memory.entry((part.table, op.key().clone())).or_default();
                versions.insert(flush.commit, op.row().cloned());
            }
        }
    }
}

impl Store for Unordered {
    fn put(&mut self, region: PartitionId, flush: &Flush, sender: Sender) -> Result<Tenure, Refused> {
        let Some(of) = self.regions.get(&region).cloned() else {
            return Err(Refused::Unavailable(format!("there is no region {region}")));
        };
        match sender {
            Sender::Client if !of.open => return Err(Refused::Closed),
            Sender::Recovery(tenure) if tenure != of.tenure => return Err(Refused::Deposed),
            _ => self.apply((of.nodes[0], region), flush),
        }
        Ok(of.tenure)
    }

    fn read(
        &mut self,
        region: PartitionId,
        (table, key): (TableId, &Bytes),
        at: Position,
    ) -> Result<Option<Bytes>, Refused> {
        let Some(of) = self.regions.get(&region) else {
            return Err(Refused::Unavailable(format!("there is no region {region}")));
        };
        if !of.open {
            return Err(Refused::Closed);
        }
        let memory = self.copies.get(&(of.nodes[0], region)).map(|copy| &copy.memory);
        let versions = memory.and_then(|memory| memory.get(&(table, key.clone())));
        Ok(versions.and_then(|versions| versions.range(..=at).next_back()?.1.clone()))
    }

    fn persist(&mut self, region: PartitionId, flushed: Position) -> Result<Position, Refused> {
        let Some(of) = self.regions.get(&region).cloned() else {
            return Err(Refused::Unavailable(format!("there is no region {region}")));
        };
        let lead = self.copies.entry((of.nodes[0], region)).or_default().clone();
        let joining: Vec<NodeId> =
            of.without.iter().filter(|node| !self.cut.contains(node)).copied().collect();
        for node in &joining {
            let disk = lead.memory.clone();
            self.copies.insert((*node, region), Copy { memory: disk.clone(), disk, marker: lead.marker });
        }
        let of = self.regions.get_mut(&region).expect("looked up above");
        of.without.retain(|node| !joining.contains(node));
        of.nodes.extend(joining);
        let of = of.clone();
        // While it is closed, not everything is in memory that was put.
        let marker = if of.open { flushed.max(lead.marker) } else { lead.marker };
        for node in of.nodes.iter().filter(|node| **node == of.nodes[0] || !self.cut.contains(node)) {
            let copy = self.copies.entry((*node, region)).or_default();
            (copy.memory, copy.disk) = (lead.memory.clone(), lead.memory.clone());
            // With what it is sent a copy takes its threshold, also where its own was higher.
            copy.marker = marker;
        }
        self.persisted(region)
    }

    /// The least that any copy has: any of them may be given the region (PR-49).
    fn persisted(&mut self, region: PartitionId) -> Result<Position, Refused> {
        let Some(of) = self.regions.get(&region) else {
            return Err(Refused::Unavailable(format!("there is no region {region}")));
        };
        Ok(of.nodes.iter().map(|node| self.persisted_on(*node, region)).min().unwrap_or_default())
    }

    fn reopening(&mut self) -> Vec<Reopening> {
        let closed = self.regions.iter().filter(|(_, region)| !region.open);
        let closed = closed.map(|(id, of)| Reopening {
            region: *id,
            tenure: of.tenure,
            persisted: self.persisted_on(of.nodes[0], *id),
        });
        closed.collect()
    }

    fn open(&mut self, reopening: &Reopening) -> Result<(), Refused> {
        let region = self.regions.get_mut(&reopening.region);
        match region.filter(|region| region.tenure == reopening.tenure) {
            Some(region) => region.open = true,
            None => return Err(Refused::Deposed),
        }
        Ok(())
    }
}

impl Servers for Unordered {
    fn regions(&self) -> Vec<PartitionId> {
        self.regions.keys().copied().collect()
    }

    fn leader(&self, region: PartitionId) -> NodeId {
        self.regions[&region].nodes[0]
    }

    fn tenure(&self, region: PartitionId) -> Tenure {
        self.regions[&region].tenure
    }

    fn versions(&self, region: PartitionId, (table, key): (TableId, &Bytes)) -> BTreeSet<Position> {
        let copy = self.copies.get(&(self.leader(region), region));
        let versions = copy.and_then(|copy| copy.memory.get(&(table, key.clone())));
        versions.into_iter().flat_map(|versions| versions.keys().copied()).collect()
    }

    fn end(&mut self, node: NodeId, disk: bool) {
        for id in self.regions.keys() {
            if let Some(copy) = self.copies.get_mut(&(node, *id)) {
                match disk {
                    true => *copy = Copy::default(),
                    false => copy.memory = copy.disk.clone(),
                }
            }
        }
        self.depose(node);
        for region in self.regions.values_mut().filter(|region| disk && region.nodes.len() > 1) {
            let lost = region.nodes.extract_if(.., |other| *other == node);
            region.without.extend(lost);
        }
    }

    fn depose(&mut self, node: NodeId) {
        for (id, region) in &mut self.regions {
            if region.nodes[0] != node || region.nodes.len() < 2 {
                continue;
            }
            region.nodes.rotate_left(1);
            (region.tenure, region.open) = (Tenure(region.tenure.0 + 1), false);
            let copy = self.copies.entry((region.nodes[0], *id)).or_default();
            copy.memory = copy.disk.clone();
        }
    }

    fn cut(&mut self, node: NodeId, cut: bool) {
        match cut {
            true => self.cut.insert(node),
            false => self.cut.remove(&node),
        };
    }

    fn put_to_old(
        &mut self,
        node: NodeId,
        region: PartitionId,
        tenure: Tenure,
        flush: &Flush,
    ) -> Result<Tenure, Refused> {
        self.apply((node, region), flush);
        Ok(tenure)
    }
}

impl Subject for Unordered {
    fn region(&self) -> PartitionId {
        *self.regions.keys().next().expect("it has regions")
    }

    fn fail(&mut self) -> bool {
        let node = self.leader(Subject::region(self));
        self.end(node, false);
        true
    }
}
