//! What happens to a node in the middle of a round: the kinds of `understudy check`.

use crate::cluster::Ours;
use crate::error::BenchError;
use local::demo::Fault;
use std::collections::BTreeMap;
use std::time::Duration;
use types::NodeId;

/// The parts of a round behind which the node is hit, and comes back.
const PARTS: (f64, f64) = (0.3, 0.65);

/// A fault that is to come, goes on, or is over.
pub struct Striking {
    fault: Option<Fault>,
    at: (Duration, Duration),
    database: String,
    node: Option<NodeId>,
    is_over: bool,
}

impl Striking {
    /// In a round that takes so long, to the node that leads most partitions of this database.
    pub fn new(fault: Option<Fault>, time: Duration, database: &str) -> Striking {
        let at = (time.mul_f64(PARTS.0), time.mul_f64(PARTS.1));
        Striking { is_over: fault.is_none(), fault, at, database: database.into(), node: None }
    }

    /// True if the fault is still to come or goes on.
    pub fn is_open(&self) -> bool {
        !self.is_over
    }

    /// True as soon as the node was hit.
    pub fn has_injected(&self) -> bool {
        self.node.is_some()
    }

    /// Does what is due.
    pub fn turn(&mut self, ours: &mut Ours, elapsed: Duration) -> Result<(), BenchError> {
        let Some(fault) = self.fault.filter(|_| !self.is_over) else { return Ok(()) };
        match self.node {
            None if elapsed >= self.at.0 => {
                let node = leader(ours, &self.database)?;
                let cluster = ours.cluster()?;
                match fault {
                    Fault::Kill | Fault::Power => cluster.kill(node)?,
                    Fault::Stop => cluster.stop(node)?,
                    Fault::Cut => cluster.cut_from_cluster(node)?,
                }
                self.node = Some(node);
            }
            Some(node) if elapsed >= self.at.1 => {
                let cluster = ours.cluster()?;
                match fault {
                    Fault::Kill | Fault::Power => cluster.restart(node)?,
                    Fault::Stop => cluster.cont(node)?,
                    Fault::Cut => cluster.heal(node)?,
                }
                self.is_over = true;
            }
            _ => {}
        }
        Ok(())
    }
}

fn leader(ours: &mut Ours, database: &str) -> Result<NodeId, BenchError> {
    let client = ours.client();
    let table = client.table(&format!("{database}.warehouse"))?;
    let mut leads: BTreeMap<NodeId, u32> = BTreeMap::new();
    for record in table.partitions().filter_map(|id| client.cluster_map().partition(id)) {
        *leads.entry(record.primary.node).or_default() += 1;
    }
    let most = leads.into_iter().max_by_key(|(_, many)| *many);
    most.map(|(node, _)| node).ok_or_else(|| BenchError::Wrong("nobody leads a partition".into()))
}
