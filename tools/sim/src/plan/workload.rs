//! What clients and operators do in a seed's world.

use crate::check::backups::Backup;
use crate::plan::transactions::TxnPlan;
use crate::plan::turns::TurnPlan;
use crate::plan::wide::WidePlan;
use crate::random::{Concern, Stream};

/// What clients and operators do.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkloadPlan {
    /// Clients that read and write rows.
    pub clients: u32,
    /// Operations of all of them together.
    pub operations: u64,
    /// Indexes are created and dropped.
    pub indexes: bool,
    /// Points over all partitions are taken meanwhile.
    pub cluster_snapshots: bool,
    /// Backups are made and restored meanwhile.
    pub backups: bool,
    /// Backups that were made in another cluster, and are restored in this one.
    pub given: Vec<Backup>,
    /// The number of copies is changed meanwhile.
    pub factors: bool,
    /// Rows are loaded in bulk.
    pub loads: bool,
    /// Jobs are run.
    pub jobs: bool,
    /// An operator forces a promotion.
    pub forces: bool,
    /// Clients of a database's tables; none where there is no database.
    pub table_clients: u32,
    /// They make large transactions, too: of several entries, over several tables.
    pub large_writes: bool,
    /// What clients of global transactions do.
    pub transactions: TxnPlan,
    /// What clients ask beside single rows.
    pub wide: Option<WidePlan>,
    /// Clients ask for turns at rows.
    pub turns: Option<TurnPlan>,
}

impl WorkloadPlan {
    /// What a seed has. A biased run has no more than its profile says: what once found something without
    /// the rest still does.
    pub fn new(seed: u64, clients: u32, operations: u64, biased: bool) -> WorkloadPlan {
        let wide = WidePlan::new(seed).filter(|_| !biased);
        let mut forced = Stream::new(seed, Concern::Operator, 0);
        WorkloadPlan {
            clients,
            operations,
            indexes: Stream::new(seed, Concern::Shape, 3).chance(350),
            cluster_snapshots: !biased && seed % 11 == 4,
            backups: false,
            given: Vec::new(),
            factors: !biased && [7, 8, 12, 15].contains(&(seed % 19)),
            loads: !biased && seed % 6 == 1,
            jobs: !biased && [1, 6].contains(&(seed % 7)),
            forces: !biased && (forced.chance(30) || wide.is_some() && forced.chance(150)),
            table_clients: 0,
            large_writes: false,
            transactions: TxnPlan::default(),
            wide,
            turns: TurnPlan::new(seed).filter(|_| !biased),
        }
    }
}
