//! The controller's numbers, with their defaults (PR-64). Safety depends on none of them: epochs are numbers
//! in the metastore. They decide how fast a failover is and how often a false one happens.

use types::{Micros, Rules};

/// How long a controller waits for what.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Which rules are in force.
    pub rules: Rules,
    /// How often the shell calls with a tick. 20 ms.
    pub tick: Micros,
    /// A node is not heard if nothing came from it for this long. 120 ms. Nodes send something every half of
    /// it.
    pub suspect: Micros,
    /// A node counts as alive for planning and as a candidate if something came within this time. 500 ms.
    pub alive: Micros,
    /// A suspicion that is not repeated for this long is forgotten. 1 s. Nodes repeat it at least four times
    /// as often.
    pub suspicion_kept: Micros,
    /// Under a policy that rests on the primary alone, how long the old primary is waited for before a backup
    /// leads with loss (PR-85). 5 s.
    pub failover_wait: Micros,
    /// After a primary's process came back and no other member kept its memory, how long the other members
    /// may take to register before the restarted one leads. 500 ms.
    pub restart_reconcile: Micros,
    /// The loser of an arbitration is refused for this long; doubled with each loss in a row, up to 64 times
    /// (F18). 120 ms.
    pub arbitration: Micros,
    /// How often the planner looks. 100 ms.
    pub plan: Micros,
    /// The node placed first must have been in-sync for this long, without any change of primary, before it
    /// is handed the lead. 3 s.
    pub balance_after: Micros,
    /// A partition that lacks a copy waits this long for the nodes of its placement before another node
    /// stands in. 5 s.
    pub spare_after: Micros,
    /// When nodes join and leave, so many copies are on their way at once: the rest of the cluster has other
    /// work. 2.
    pub moves: usize,
    /// After the first failure of a node as a member of a partition, how long before it is admitted again;
    /// doubled with each further failure, up to 64 times (PR-67). 1 s.
    pub admit_again: Micros,
    /// A node that was in-sync for this long has its failures forgotten. 10 s.
    pub forgive_after: Micros,
    /// Advice that had no effect is repeated after this long. 1 s.
    pub advise_again: Micros,
    /// A transaction with an unknown outcome is repeated after this long. 50 ms.
    pub retry: Micros,
    /// A creation of a table that made no progress for this long is cleared away. 60 s.
    pub abandoned: Micros,
    /// How many failover records are kept. 1000.
    pub failovers_kept: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rules: Rules::ALL,
            tick: Micros::from_millis(20),
            suspect: Micros::from_millis(120),
            alive: Micros::from_millis(500),
            suspicion_kept: Micros::from_millis(1000),
            failover_wait: Micros::from_millis(5000),
            restart_reconcile: Micros::from_millis(500),
            arbitration: Micros::from_millis(120),
            plan: Micros::from_millis(100),
            balance_after: Micros::from_millis(3000),
            spare_after: Micros::from_millis(5000),
            moves: 2,
            admit_again: Micros::from_millis(1000),
            forgive_after: Micros::from_millis(10_000),
            advise_again: Micros::from_millis(1000),
            retry: Micros::from_millis(50),
            abandoned: Micros::from_millis(60_000),
            failovers_kept: 1000,
        }
    }
}

/// A number doubled `times` times, up to 64-fold.
pub(crate) fn doubled(base: Micros, times: u32) -> Micros {
    Micros(base.0.saturating_mul(1 << times.min(6)))
}
