//! What a seed is made of: nodes, tables, policies, and which faults are switched on.

pub mod backups;
pub mod calls;
pub mod copies;
pub mod databases;
pub mod executors;
pub mod file_faults;
pub mod flushes;
pub mod own;
pub mod profiles;
pub mod scrubs;
pub mod stranded;
pub mod transactions;
pub mod turns;
pub mod wide;
pub mod workload;

use crate::faults::Fault;
use crate::random::{Concern, Stream};
use calls::CallPlan;
use copies::CopyPlan;
use file_faults::FileFaults;
use flushes::FlushPlan;
use own::OwnFaults;
use std::collections::BTreeSet;
use transactions::TxnPlan;
use types::{EngineKind, Executors, Finding, LogKind, PartitionId, Policy, Ship, TableId};
use types::{Rules, policy::Standby};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable};
use workload::WorkloadPlan;

/// A table of the world.
#[derive(Clone, PartialEq, Debug)]
pub struct TablePlan {
    /// Its name.
    pub name: String,
    /// The preset of its policy.
    pub policy: &'static str,
    /// Where its log lives.
    pub log: LogKind,
    /// Copies.
    pub factor: u8,
    /// Fewest copies with which commits are allowed.
    pub min_in_sync: u8,
    /// Goes on below that.
    pub available: bool,
    /// True if backups are cold at first; none if that does not change.
    pub cold: Option<bool>,
    /// Its engines are the LSM engine on real files, not the one in memory.
    pub lsm: bool,
    /// Partitions.
    pub partitions: u32,
    /// It is a database.
    pub database: bool,
    /// What part it has in global transactions.
    pub part: Part,
    /// What members are sent of calls.
    pub ship: Ship,
}

/// What part a table has in global transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// None.
    #[default]
    None,
    /// It has the commits.
    Manager,
    /// It is a database that commits write.
    Written,
    /// It is a table that backups are restored into, and nobody else writes.
    Restored,
    /// It is a table that nobody writes, and that an operator would have to recover.
    Stranded,
}

impl TablePlan {
    /// The engine that the controller is told: one with files where backups may be cold.
    pub fn engine(&self) -> EngineKind {
        if self.lsm || self.cold.is_some() { EngineKind::Lsm } else { EngineKind::Memory }
    }

    /// True if its log is on disk, it has no part in global transactions, and its policy may be any.
    fn is_drawn_on_disk(&self) -> bool {
        self.log == LogKind::Disk && self.part == Part::None && !self.is_spread()
    }

    /// True for a database of several partitions without global transactions: each has all tables.
    pub fn is_spread(&self) -> bool {
        self.database && self.part == Part::None && self.partitions > 1
    }

    /// True if it is in no database, and has no part in global transactions.
    pub fn is_plain(&self) -> bool {
        !self.database && self.part == Part::None
    }

    /// What an operator sends who wants it changed.
    pub fn to_be_altered(&self, alter: &AlterTable) -> AdminCommand {
        let text = RecordText::new(alter);
        if self.database { AdminCommand::AlterDatabase(text) } else { AdminCommand::AlterTable(text) }
    }

    /// The policy that the controller will make of it.
    pub fn rule(&self) -> Policy {
        let rule = Policy::preset(self.policy, self.factor, self.log).expect("plans hold known presets");
        match self.cold {
            Some(true) => Policy { standby: Standby::Cold, ..rule },
            _ => rule,
        }
    }
}

/// The shape of one seed's world.
#[derive(Clone, PartialEq, Debug)]
pub struct RunPlan {
    /// Nodes.
    pub nodes: u32,
    /// Executors of each.
    pub executors: Executors,
    /// Controllers.
    pub controllers: u32,
    /// Tables.
    pub tables: Vec<TablePlan>,
    /// What clients and operators do.
    pub workload: WorkloadPlan,
    /// Faults that are switched on.
    pub faults: BTreeSet<Fault>,
    /// At least one good copy of everything is kept, so that failing to recover is a bug.
    pub recoverable: bool,
    /// A disk may be lost in a later term of a partition as well, once that one serves. Not so in the seeds
    /// that found something before: in these it may be lost in the first term alone.
    pub loses_later: bool,
    /// The disk that hangs for good may be that of a primary on which alone acknowledgements rest.
    pub hangs_alone: bool,
    /// About how long until the next fault, microseconds.
    pub think_us: u64,
    /// How copies are made.
    pub copies: CopyPlan,
    /// So many nodes come meanwhile, and nodes are removed.
    pub joins: u32,
    /// Nodes have a second directory for replicas.
    pub directories: bool,
    /// Faults that strike beside the others.
    pub own: OwnFaults,
    /// Faults of files that strike beside all others.
    pub files: FileFaults,
    /// When engines are written to disk.
    pub flushes: FlushPlan,
    /// Logs have little room.
    pub small_logs: bool,
    /// Procedures of the database.
    pub calls: Option<CallPlan>,
    /// An operator has replicas read their files back, and gives up those that are damaged.
    pub scrubs: bool,
}

/// The most nodes of a plan.
pub const MOST_NODES: u32 = 64;

/// An eighth of the seeds, and none of those that are recorded.
fn loses_later(seed: u64) -> bool {
    matches!(
        seed % 248,
        119..=123 | 133..=137 | 156..=160 | 193..=194 | 199..=203 | 207..=208 | 234..=236 | 238..=241
    )
}

/// True if nodes have a second directory for replicas.
fn has_directories(seed: u64) -> bool {
    [1, 3, 9, 14].contains(&(seed % 17))
}

/// A twelfth of the seeds, and none of those that are recorded.
fn hangs_alone(seed: u64) -> bool {
    [12, 49].contains(&(seed % 53)) || seed % 31 == 27 || seed % 47 == 5
}

impl RunPlan {
    /// The plan of a seed. A biased run may be biased towards what brings the plant to light: see
    /// [`crate::plants`].
    pub fn new(seed: u64, operations: u64, profile: Option<Finding>) -> RunPlan {
        let profile = profile.filter(|finding| !profiles::AS_DRAWN.contains(finding));
        let mut random = Stream::new(seed, Concern::Shape, 0);
        let nodes = *random.pick(&[3, 3, 3, 3, 4, 5]).expect("not empty");
        let controllers = 1 + u32::from(random.chance(400));
        let tables = 1 + random.below(2);
        let tables = (0..tables).map(|n| table(&mut random, n, nodes)).collect();
        let drawn = Fault::ALL.into_iter().filter(|fault| fault.is_drawn());
        let mut faults: BTreeSet<Fault> = drawn.filter(|_| random.chance(350)).collect();
        if random.chance(850) {
            // Most seeds have something that ends a term.
            faults.insert(*random.pick(&Fault::DEPOSING).expect("not empty"));
            faults.insert(*random.pick(&Fault::DEPOSING).expect("not empty"));
        }
        if random.chance(20) {
            faults.clear();
        }
        let clients = 3 + random.below(5) as u32;
        let recoverable = random.chance(800);
        let think_us = random.between(500_000, 1_500_000);
        let biased = profile.is_some();
        let own = if biased { OwnFaults::default() } else { OwnFaults::new(seed) };
        let directories = !biased && has_directories(seed);
        let mut plan = RunPlan {
            nodes,
            executors: if biased { Executors::ONE } else { executors::executors(seed) },
            controllers,
            tables,
            workload: WorkloadPlan::new(seed, clients, operations, biased),
            faults,
            recoverable,
            loses_later: !biased && loses_later(seed),
            hangs_alone: profile == Some(Finding::Pr300) || !biased && hangs_alone(seed),
            think_us,
            copies: CopyPlan::new(seed, biased),
            joins: match !biased && [4, 6, 14, 17, 22].contains(&(seed % 23)) {
                true => 1 + (seed / 23 % 2) as u32,
                false => 0,
            },
            directories,
            files: if biased { FileFaults::default() } else { FileFaults::new(seed, &own, directories) },
            own,
            flushes: if biased { FlushPlan::BY_LOT } else { FlushPlan::new(seed) },
            small_logs: false,
            calls: None,
            scrubs: false,
        };
        match profile {
            Some(finding) => profiles::bias(&mut plan, finding, seed, &mut random),
            None => plan.vary(seed),
        }
        plan
    }

    /// What some seeds have, and none of those that once found something without it.
    fn vary(&mut self, seed: u64) {
        self.vary_databases(seed);
        if transactions::has_transactions(seed) {
            self.add_transactions(seed, TxnPlan::of(seed));
        }
        if backups::has_backups(seed) {
            self.add_backups();
        }
        if stranded::has_stranded(seed) {
            self.add_stranded();
        }
        let mut engines = Stream::new(seed, Concern::Engines, 0);
        if engines.chance(300) {
            let disk = self.tables.iter_mut().filter(|table| table.log == LogKind::Disk);
            disk.for_each(|table| table.lsm = engines.chance(850));
        }
        // Files of a tree are longer than those of the engine in memory.
        if self.tables.iter().any(|table| table.lsm) {
            self.copies.ship_bytes_per_second *= 8;
        }
        if self.tables.iter().any(|table| table.lsm) {
            let troubles = [Fault::LsmFull, Fault::LsmSyncFails, Fault::FewFiles];
            self.faults.extend(troubles.into_iter().filter(|_| engines.chance(500)));
        }
        // One in five has tables whose backups are cold, or hot in turn.
        if seed % 5 == 2 {
            let disk = self.tables.iter_mut().filter(|table| table.log == LogKind::Disk);
            let disk = disk.filter(|table| table.part == Part::None);
            disk.for_each(|table| table.cold = Some(table.policy != "sync"));
        }
        if transactions::has_cold_copies(seed) {
            let written = self.tables.iter_mut().filter(|table| table.part == Part::Written);
            written.for_each(|table| table.cold = Some(true));
        }
        if [11, 14].contains(&(seed % 19)) || [13, 16, 19].contains(&(seed % 23)) {
            self.faults.insert(Fault::QuietRot);
        }
        // A primary that is left alone goes on.
        if let Some(table) = self.tables.iter_mut().find(|table| table.is_drawn_on_disk())
            && self.workload.forces
        {
            table.min_in_sync = 1;
            // Nor does it keep its log for those that are away.
            self.copies.failback_keep_bytes = 0;
        }
        // Whoever lacks something is sent it from the disk, as long as the log is kept there.
        if [2, 5, 11].contains(&(seed % 13)) {
            self.copies.tail_bytes = 400;
        }
        if self.directories {
            self.faults.insert(Fault::DirectoryLoss);
        }
        // What an acknowledgement alone rests on is lost with the directory, and its log is not.
        if let Some(table) = self.tables.iter_mut().find(|table| table.is_drawn_on_disk())
            && self.directories
            && seed % 2 == 1
        {
            table.policy = if seed % 4 == 1 { "local" } else { "async" };
        }
        if calls::has_calls(seed) {
            self.add_calls(seed, CallPlan::new(seed, self.nodes));
        }
        if scrubs::has_scrubs(seed) {
            self.add_scrubs();
        }
    }

    /// Procedures of the database, which is made for them if there is none. What executes nothing makes no
    /// calls.
    fn add_calls(&mut self, seed: u64, plan: CallPlan) {
        if self.database().is_none() {
            self.add_database(seed);
            self.workload.table_clients = 0;
        }
        for table in self.tables.iter_mut().filter(|table| table.database) {
            table.ship = plan.ship;
            table.cold = table.cold.filter(|_| plan.ship.is_effects());
        }
        self.calls = Some(plan);
    }

    /// A database besides the tables, and clients of it.
    fn add_database(&mut self, seed: u64) {
        let mut random = Stream::new(seed, Concern::Shape, 6);
        let drawn = table(&mut random, 0, self.nodes);
        self.tables.push(TablePlan { name: "bank".into(), partitions: 1, database: true, ..drawn });
        self.workload.table_clients = random.between(2, 4) as u32;
    }

    /// A table beside the others, for something special. What is acknowledged there rests on disks.
    fn table_of_its_own(&self, name: &str, part: Part) -> TablePlan {
        TablePlan {
            name: name.into(),
            policy: "durable",
            log: LogKind::Disk,
            factor: 3.min(self.nodes as u8),
            min_in_sync: 1,
            available: false,
            cold: None,
            lsm: false,
            database: false,
            part,
            ship: Ship::Effects,
            partitions: 1,
        }
    }

    /// The settings of a process of a node: with what it has for procedures.
    pub fn equipped(&self, process: (u32, u64), settings: replica::Settings) -> replica::Settings {
        match self.calls {
            Some(calls) => calls.equipped(process, settings),
            None => settings,
        }
    }

    /// Every partition, with the table that it is of: those of the first table have the first numbers.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, TableId, &TablePlan)> {
        let each = self.tables.iter().zip(1..);
        let each = each.flat_map(|(table, number)| vec![(TableId(number), table); table.partitions as usize]);
        // A system table's partition has a number of its own.
        let (mut next, mut system) = (PartitionId::FIRST_USER, PartitionId::FIRST_SYSTEM);
        each.map(move |(number, table)| {
            let id = if table.part == Part::Manager { &mut system } else { &mut next };
            *id += 1;
            (PartitionId(*id - 1), number, table)
        })
    }

    /// The partitions of tables that are in no database.
    pub fn bare_partitions(&self) -> impl Iterator<Item = (PartitionId, TableId)> {
        let bare = self.partitions().filter(|(_, _, table)| table.is_plain());
        bare.map(|(partition, number, _)| (partition, number))
    }

    /// The partition of the database that has one, and its id.
    pub fn database(&self) -> Option<(PartitionId, TableId)> {
        let is = |table: &TablePlan| table.database && table.part == Part::None && !table.is_spread();
        let found = self.partitions().find(|(_, _, table)| is(table));
        found.map(|(partition, number, _)| (partition, number))
    }

    /// The partitions of the database without global transactions, be they one or several, and its id.
    pub fn database_partitions(&self) -> Vec<(PartitionId, TableId)> {
        let is = |table: &TablePlan| table.database && table.part == Part::None;
        let found = self.partitions().filter(|(_, _, table)| is(table));
        found.map(|(partition, number, _)| (partition, number)).collect()
    }

    /// Nodes, those that come later included.
    pub fn all_nodes(&self) -> u32 {
        self.nodes + self.joins
    }

    /// The table of each partition: those of the first table have the first numbers.
    pub fn table_of(&self, partition: PartitionId) -> Option<&TablePlan> {
        self.partitions().find(|(id, ..)| *id == partition).map(|(_, _, table)| table)
    }

    /// True if this partition's engines are on real files.
    pub fn is_lsm(&self, partition: PartitionId) -> bool {
        self.table_of(partition).is_some_and(|table| table.lsm)
    }

    /// The same with so many nodes, and partitions for them: 1 to [`MOST_NODES`].
    pub fn with_nodes(mut self, nodes: u32) -> RunPlan {
        self.nodes = nodes.clamp(1, MOST_NODES);
        let count = self.tables.len() as u32;
        for table in &mut self.tables {
            table.factor = table.factor.min(self.nodes as u8);
            table.min_in_sync = table.min_in_sync.min(table.factor);
            if table.database || table.part != Part::None {
                continue;
            }
            table.partitions = table.partitions.max(self.nodes / 4 / count);
        }
        self
    }

    /// The rules of a run with this mutant.
    ///
    /// # Panics
    ///
    /// If this build has no mutants (feature `mutants`).
    pub fn rules(mutant: Option<Finding>) -> Rules {
        mutant.map_or(Rules::ALL, |finding| Rules::without(finding).expect("this build has no mutants"))
    }
}

fn table(random: &mut Stream, number: u64, nodes: u32) -> TablePlan {
    const RULES: [(&str, LogKind); 10] = [
        ("durable", LogKind::Disk),
        ("durable", LogKind::Disk),
        ("durable", LogKind::Disk),
        ("sync", LogKind::Disk),
        ("semi", LogKind::Disk),
        ("async", LogKind::Disk),
        ("local", LogKind::Disk),
        ("sync", LogKind::Memory),
        ("semi", LogKind::Memory),
        ("async", LogKind::Memory),
    ];
    let (policy, log) = *random.pick(&RULES).expect("not empty");
    let factor = if random.chance(850) { 3 } else { 2 };
    let factor = factor.min(nodes as u8);
    let min_in_sync = if factor >= 3 && random.chance(700) { 2 } else { 1 };
    TablePlan {
        name: format!("t{number}"),
        policy,
        log,
        factor,
        min_in_sync,
        available: random.chance(300),
        cold: None,
        lsm: false,
        database: false,
        part: Part::None,
        ship: Ship::Effects,
        partitions: 1 + u32::from(random.chance(300)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_same_every_time_and_seeds_differ() {
        assert_eq!(RunPlan::new(4, 300, None), RunPlan::new(4, 300, None));
        assert_ne!(RunPlan::new(4, 300, None), RunPlan::new(5, 300, None));
    }

    #[test]
    fn every_planned_policy_can_be_had() {
        for seed in 0..200 {
            for table in RunPlan::new(seed, 300, None).tables {
                let mut rule = table.rule();
                rule.min_in_sync = table.min_in_sync;
                assert_eq!(rule.check(table.engine()), Ok(()), "seed {seed}");
            }
        }
    }
}
