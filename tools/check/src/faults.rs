//! What happens to nodes, in turn: one at a time, two at once, and one again as soon as it is back.

use crate::recorder::Shared;
use crate::sql::{self, Gateways};
use local::demo::Fault;
use local::{Cluster, LocalError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use types::NodeId;
use types::random::Random;

/// A power loss is seldom clean: the node's links to others go this long before the node itself.
const DARK: Duration = Duration::from_millis(100);
/// How long a round should take, in seconds: shorter ones only where there is no time for more.
const ROUND: (f64, f64) = (1.9, 6.0);
/// A setting of a node: what it has not synced goes with its process.
const VOLATILE: &str = "node.volatile";

/// How nodes are hit in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// One node.
    One,
    /// Two at once.
    Two,
    /// One, and again as soon as it is back.
    Again,
}

/// A round that is planned: what happens to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// How.
    pub shape: Shape,
    /// What happens; the second to the other node, or the second time.
    pub faults: [Fault; 2],
}

/// A round that was played. Times in microseconds since the history's beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Round {
    /// What was planned.
    pub plan: FaultPlan,
    /// The nodes hit.
    pub nodes: Vec<u32>,
    /// Whether the controller was killed, too, and soon started again.
    pub controller: bool,
    /// Just before the first was hit.
    pub injected: u64,
    /// When the last was back: it was let go on, healed, or its process had started.
    pub healed: u64,
}

/// The rounds of a cycle: each kind alone, each with the next one at once, each repeatedly.
pub fn cycle(kinds: &[Fault]) -> Vec<FaultPlan> {
    let pairs = || kinds.iter().zip(kinds.iter().cycle().skip(1));
    let plan = |shape, one: &Fault, other: &Fault| FaultPlan { shape, faults: [*one, *other] };
    let ones = kinds.iter().map(|kind| plan(Shape::One, kind, kind));
    let twos = pairs().map(|(kind, next)| plan(Shape::Two, kind, next));
    ones.chain(twos).chain(pairs().map(|(kind, next)| plan(Shape::Again, kind, next))).collect()
}

/// How long a round takes, in seconds, if all of a cycle is to be played.
pub fn round_seconds(seconds: f64, kinds: usize) -> f64 {
    (seconds / (3 * kinds) as f64).clamp(ROUND.0, ROUND.1)
}

/// The cluster, and who harms it.
pub struct Faults<'a> {
    cluster: &'a mut Cluster,
    shared: &'a Shared,
    gateways: &'a Gateways,
    random: Random,
    /// Nodes whose process takes with it what it has not synced, in its present life.
    volatile: BTreeMap<u32, bool>,
}

impl<'a> Faults<'a> {
    /// All nodes are as the cluster was started.
    pub fn new(
        cluster: &'a mut Cluster,
        shared: &'a Shared,
        gateways: &'a Gateways,
        volatile: bool,
        seed: u64,
    ) -> Faults<'a> {
        let volatile = cluster.nodes().map(|node| (node.0, volatile)).collect();
        Faults { cluster, shared, gateways, random: Random::new(seed), volatile }
    }

    /// Chooses who is hit: first who leads most, so that something is taken over; but a power loss is of a
    /// node that forgets.
    pub fn choose(&mut self, plan: FaultPlan, leading: &BTreeMap<u32, usize>) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.volatile.keys().copied().collect();
        let lead = |node: &u32| leading.get(node).copied().unwrap_or(0);
        let turn = self.random.below(nodes.len() as u64) as usize;
        nodes.rotate_left(turn);
        nodes.sort_by_key(|node| std::cmp::Reverse(lead(node)));
        let fits = |node: &u32, fault: Fault| fault != Fault::Power || self.volatile[node];
        let mut chosen = Vec::new();
        let count = if plan.shape == Shape::Two { 2 } else { 1 };
        for fault in plan.faults.into_iter().take(count) {
            let free = |node: &&u32| !chosen.contains(*node);
            let found = nodes.iter().filter(free).find(|node| fits(node, fault));
            let node = found.or_else(|| nodes.iter().find(free)).copied();
            chosen.extend(node);
        }
        chosen
    }

    /// Something happens to a node.
    pub fn strike(&mut self, fault: Fault, node: u32) -> Result<(), LocalError> {
        let id = NodeId(node);
        match fault {
            Fault::Kill => self.cluster.kill(id),
            Fault::Stop => self.cluster.stop(id),
            // From the others alone, from controllers too, or from clients as well.
            Fault::Cut => match self.random.below(3) {
                0 => self.cluster.cut_links(id),
                1 => self.cluster.cut_from_cluster(id),
                _ => self.cluster.cut(id),
            },
            Fault::Power => {
                self.cluster.cut_links(id)?;
                std::thread::sleep(DARK);
                self.cluster.power_loss_of(id)
            }
        }
    }

    /// The controller ends at once, in the middle of what it decides.
    pub fn kill_controller(&mut self) -> Result<(), LocalError> {
        self.cluster.kill_controller(1)
    }

    /// The controller comes back.
    pub fn restart_controller(&mut self) -> Result<(), LocalError> {
        self.cluster.restart_controller(1)
    }

    /// The node comes back.
    pub fn heal(&mut self, fault: Fault, node: u32) -> Result<(), LocalError> {
        let id = NodeId(node);
        match fault {
            Fault::Stop => self.cluster.cont(id),
            Fault::Cut => self.cluster.heal(id),
            Fault::Kill | Fault::Power => {
                let volatile = self.next_incarnation(node);
                let value = volatile.to_string();
                self.cluster.restart_with(id, &[(VOLATILE, &value)])?;
                // A port may be another one.
                let place = sql::gateways(&self.cluster.sql_url()?)?;
                *self.gateways.lock().expect("a thread panicked while it looked for a node") = place;
                Ok(())
            }
        }
    }

    /// Whether a node forgets in its next life: by turns, where any does, and two of them always do.
    fn next_incarnation(&mut self, node: u32) -> bool {
        let others = self.volatile.iter().filter(|(other, volatile)| **other != node && **volatile).count();
        let volatile = match others {
            0 => self.volatile[&node],
            1 => true,
            _ => !self.volatile[&node],
        };
        self.volatile.insert(node, volatile);
        volatile
    }

    /// Right now, on the history's clock.
    pub fn now(&self) -> u64 {
        self.shared.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_has_every_kind_in_every_shape() {
        let kinds = [Fault::Kill, Fault::Stop, Fault::Power];
        let plans = cycle(&kinds);
        assert_eq!(plans.len(), 9);
        for shape in [Shape::One, Shape::Two, Shape::Again] {
            for kind in kinds {
                let first = |plan: &&FaultPlan| plan.shape == shape && plan.faults[0] == kind;
                assert_eq!(plans.iter().filter(first).count(), 1, "{shape:?} {kind}");
            }
        }
        // What is asked for comes first, each alone: a short run has it all.
        assert!(plans[..3].iter().all(|plan| plan.shape == Shape::One));
        assert_eq!(cycle(&[Fault::Cut]).len(), 3);
        assert_eq!(round_seconds(10.0, 4), 1.9);
        assert_eq!(round_seconds(300.0, 4), 6.0);
        assert_eq!(round_seconds(60.0, 4), 5.0);
    }
}
