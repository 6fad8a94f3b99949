//! A store for tests that takes commits in order, as the product's partitions do: a region is a log, and a
//! part is appended behind the one that it names or refused ([`Refused::Behind`]). A row as of a timestamp is
//! what the log says of it up to there. Copies are sent the log, and a failure leaves what was durable of it.

use crate::store::{Refused, Reopening, Sender, Servers, Store, Tenure};
use crate::suite::Subject;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, PartitionId, Position, TableId};
use wire::{Flush, RowOp};

/// What one server has of a region.
#[derive(Clone, Debug, Default)]
struct Log {
    /// In the order of their timestamps.
    entries: Vec<Flush>,
    /// So many of them are on the disk.
    durable: usize,
    /// The region's threshold on this disk.
    marker: Position,
}

impl Log {
    fn newest(&self) -> Position {
        self.entries.last().map_or(Position::ZERO, |newest| newest.commit)
    }

    fn append(&mut self, flush: &Flush) -> Result<(), Refused> {
        let newest = self.newest();
        if flush.commit <= newest {
            return Ok(());
        }
        // Where nothing is, nothing may be missing either: the first part names none that was put.
        if flush.previous > newest && !(self.entries.is_empty() && flush.previous <= self.marker) {
            return Err(Refused::Behind(newest));
        }
        self.entries.push(flush.clone());
        Ok(())
    }

    /// What the log says of a row, newest first.
    fn of_row<'a>(
        &'a self,
        (table, key): (TableId, &'a Bytes),
    ) -> impl Iterator<Item = (Position, &'a RowOp)> {
        self.entries.iter().rev().flat_map(move |flush| {
            let parts = flush.parts.iter().filter(move |part| part.table == table);
            let ops = parts.flat_map(|part| &part.ops).filter(move |op| op.key() == key);
            ops.map(|op| (flush.commit, op))
        })
    }
}

#[derive(Clone, Debug)]
struct Region {
    /// Whose copies may be given the region; the first one has it.
    nodes: Vec<NodeId>,
    /// Who has lost its copy and was not sent another one yet.
    without: Vec<NodeId>,
    tenure: Tenure,
    open: bool,
    logs: BTreeMap<NodeId, Log>,
}

impl Region {
    fn log(&mut self, node: NodeId) -> &mut Log {
        self.logs.entry(node).or_default()
    }

    /// The next copy has it, with what is on its disk.
    fn hand_over(&mut self) {
        self.nodes.rotate_left(1);
        (self.tenure, self.open) = (Tenure(self.tenure.0 + 1), false);
        let log = self.log(self.nodes[0]);
        log.entries.truncate(log.durable);
    }
}

/// The store.
#[derive(Clone, Debug, Default)]
pub struct Ordered {
    regions: BTreeMap<PartitionId, Region>,
    /// Their copies are sent nothing.
    cut: BTreeSet<NodeId>,
}

impl Ordered {
    /// A store whose regions have copies on these servers; the first of each has it. Parts name the ones
    /// before them from `before` on.
    pub fn new(regions: &[(PartitionId, &[NodeId])], before: Position) -> Ordered {
        let region = |nodes: &[NodeId]| {
            let log = Log { marker: before, ..Log::default() };
            Region {
                nodes: nodes.to_vec(),
                without: Vec::new(),
                tenure: Tenure(1),
                open: true,
                logs: nodes.iter().map(|node| (*node, log.clone())).collect(),
            }
        };
        let regions = regions.iter().map(|(id, nodes)| (*id, region(nodes))).collect();
        Ordered { regions, cut: BTreeSet::new() }
    }

    fn region_mut(&mut self, region: PartitionId) -> Result<&mut Region, Refused> {
        let unknown = || Refused::Unavailable(format!("there is no region {region}"));
        self.regions.get_mut(&region).ok_or_else(unknown)
    }
}

impl Store for Ordered {
    fn put(&mut self, region: PartitionId, flush: &Flush, sender: Sender) -> Result<Tenure, Refused> {
        let of = self.region_mut(region)?;
        match sender {
            Sender::Client if !of.open => return Err(Refused::Closed),
            Sender::Recovery(tenure) if tenure != of.tenure => return Err(Refused::Deposed),
            _ => of.log(of.nodes[0]).append(flush)?,
        }
        Ok(of.tenure)
    }

    fn read(
        &mut self,
        region: PartitionId,
        row: (TableId, &Bytes),
        at: Position,
    ) -> Result<Option<Bytes>, Refused> {
        let of = self.region_mut(region)?;
        if !of.open {
            return Err(Refused::Closed);
        }
        let log = of.log(of.nodes[0]);
        let newest = log.of_row(row).find(|(commit, _)| *commit <= at);
        Ok(newest.and_then(|(_, op)| op.row().cloned()))
    }

    fn persist(&mut self, region: PartitionId, flushed: Position) -> Result<Position, Refused> {
        let cut = self.cut.clone();
        let of = self.region_mut(region)?;
        let joining = of.without.extract_if(.., |node| !cut.contains(node)).collect::<Vec<_>>();
        of.nodes.extend(joining);
        let leader = of.nodes[0];
        let open = of.open;
        let log = of.log(leader);
        log.durable = log.entries.len();
        // While it is closed, not everything is in the log that was put.
        log.marker = if open { flushed.max(log.marker) } else { log.marker };
        let log = log.clone();
        let sent: Vec<NodeId> = of.nodes.iter().filter(|node| !cut.contains(node)).copied().collect();
        for node in sent.into_iter().filter(|node| *node != leader) {
            // With what it is sent a copy takes its threshold, also where its own was higher.
            *of.log(node) = log.clone();
        }
        self.persisted(region)
    }

    /// The least that any copy has: any of them may be given the region (PR-49).
    fn persisted(&mut self, region: PartitionId) -> Result<Position, Refused> {
        let of = self.region_mut(region)?;
        let markers = of.nodes.iter().map(|node| of.logs.get(node).map_or(Position::ZERO, |log| log.marker));
        Ok(markers.min().unwrap_or_default())
    }

    fn reopening(&mut self) -> Vec<Reopening> {
        let closed = self.regions.iter().filter(|(_, region)| !region.open);
        let closed = closed.map(|(id, of)| Reopening {
            region: *id,
            tenure: of.tenure,
            persisted: of.logs.get(&of.nodes[0]).map_or(Position::ZERO, |log| log.marker),
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

impl Servers for Ordered {
    fn regions(&self) -> Vec<PartitionId> {
        self.regions.keys().copied().collect()
    }

    fn leader(&self, region: PartitionId) -> NodeId {
        self.regions[&region].nodes[0]
    }

    fn tenure(&self, region: PartitionId) -> Tenure {
        self.regions[&region].tenure
    }

    fn versions(&self, region: PartitionId, row: (TableId, &Bytes)) -> BTreeSet<Position> {
        let log = self.regions[&region].logs.get(&self.leader(region));
        log.into_iter().flat_map(|log| log.of_row(row)).map(|(commit, _)| commit).collect()
    }

    fn end(&mut self, node: NodeId, disk: bool) {
        for region in self.regions.values_mut() {
            let log = region.log(node);
            log.entries.truncate(if disk { 0 } else { log.durable });
            if disk {
                *log = Log::default();
            }
        }
        self.depose(node);
        for region in self.regions.values_mut().filter(|region| disk && region.nodes.len() > 1) {
            let lost = region.nodes.extract_if(.., |other| *other == node);
            region.without.extend(lost);
        }
    }

    fn depose(&mut self, node: NodeId) {
        let led = self.regions.values_mut().filter(|region| region.nodes[0] == node);
        led.filter(|region| region.nodes.len() > 1).for_each(Region::hand_over);
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
        self.region_mut(region)?.log(node).append(flush)?;
        Ok(tenure)
    }
}

impl Subject for Ordered {
    fn region(&self) -> PartitionId {
        *self.regions.keys().next().expect("it has regions")
    }

    fn fail(&mut self) -> bool {
        let node = self.leader(Subject::region(self));
        self.end(node, false);
        true
    }
}
