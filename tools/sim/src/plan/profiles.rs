//! Which faults, tables and pace bring each planted bug to light.
//!
//! A profile narrows what a seed is made of: which faults strike, how the tables keep their promises, how
//! fast it goes. It never says what happens when. The same profile with the rule in must be as clean as any
//! other seed.

use crate::faults::Fault;
use crate::plan::RunPlan;
use crate::plan::calls::CallPlan;
use crate::plan::own::OwnFaults;
use crate::plan::transactions::{Deaths, TxnPlan};
use crate::plan::turns::TurnPlan;
use crate::plan::wide::WidePlan;
use crate::random::Stream;
use Fault::*;
use Finding::*;
use std::collections::BTreeSet;
use types::{Finding, LogKind};

/// What takes so many things at once that a seed shows it which was drawn with all that seeds have: the plan
/// is that seed's own.
pub const AS_DRAWN: [Finding; 5] = [Pr280, Pr281, Pr282, Pr283, Pr284];

/// Biases a plan towards what brings this finding to light.
pub fn bias(plan: &mut RunPlan, finding: Finding, seed: u64, random: &mut Stream) {
    let known = PROFILES.iter().find(|profile| profile.finding == finding);
    let profile = known.expect("every finding has a profile");
    plan.faults = profile.always.iter().copied().collect();
    plan.faults.extend(profile.perhaps.iter().filter(|_| random.chance(500)));
    let own: BTreeSet<Fault> = plan.faults.extract_if(.., |fault| fault.is_own()).collect();
    if !own.is_empty() {
        plan.own = OwnFaults { faults: own, ..OwnFaults::new(seed) };
    }
    plan.nodes = *random.pick(profile.nodes).expect("not empty");
    plan.controllers = *random.pick(profile.controllers).expect("not empty");
    plan.tables.truncate(profile.tables);
    if profile.database {
        plan.add_database(seed);
    }
    for table in &mut plan.tables {
        (table.policy, table.log) = *random.pick(profile.rules).expect("not empty");
        table.factor = (*random.pick(profile.factors).expect("not empty")).min(plan.nodes as u8);
        table.min_in_sync = match profile.floor {
            MinInSync::Drawn => table.min_in_sync.min(table.factor),
            MinInSync::One => 1,
            MinInSync::StrictTwo => 2,
        };
        table.available &= profile.floor != MinInSync::StrictTwo;
        if profile.tables == 1 {
            table.partitions = 1;
        }
        table.lsm = profile.trees;
    }
    if finding == Pr301 {
        plan.add_stranded();
    }
    if profile.backups {
        plan.add_backups();
    }
    if profile.transactions {
        plan.add_transactions(seed, txn_plan(finding));
    }
    plan.workload.clients = random.between(profile.clients.0, profile.clients.1) as u32;
    plan.workload.operations = plan.workload.operations * profile.work / 100;
    plan.recoverable = random.chance(profile.recoverable);
    plan.copies.ships = if profile.ships { [0, 1].into() } else { Default::default() };
    plan.copies.ship_bytes_per_second = plan.copies.ship_bytes_per_second.clamp(6_000, 30_000);
    plan.workload.cluster_snapshots = profile.cluster_snapshots;
    plan.workload.loads = profile.loads;
    plan.workload.jobs = profile.jobs;
    plan.workload.indexes = profile.indexes;
    plan.workload.wide = None;
    plan.workload.forces = profile.forces;
    plan.think_us = 1_000 * random.between(profile.think_ms.0, profile.think_ms.1);
    if profile.calls {
        let (calls, odd) = (CallPlan::new(seed, plan.nodes).shipped(), Some(1 + seed as u32 % plan.nodes));
        let calls = match finding {
            F21 => CallPlan { unsteady: odd, ..calls },
            Pr240 => CallPlan { another: odd, ..calls },
            _ => calls,
        };
        plan.add_calls(seed, calls);
    }
    if profile.wide {
        plan.workload.wide = Some(WidePlan::all(random.next()));
    }
    plan.workload.turns = profile.turns.then(|| TurnPlan::crowded(seed));
}

/// What clients of global transactions do where they bring this finding to light.
fn txn_plan(finding: Finding) -> TxnPlan {
    TxnPlan {
        spread: finding == Pr170,
        claims: matches!(finding, Pr290 | Pr321 | Pr324 | Pr325),
        brief: finding == Pr365,
        recovers: finding == Pr363,
        deaths: match finding {
            Pr361 => Deaths::Anywhere,
            Pr365 => Deaths::Between,
            _ => Deaths::None,
        },
        ..TxnPlan::default()
    }
}

/// The fewest copies with which commits are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MinInSync {
    /// As the seed has it.
    Drawn,
    /// A primary may go on alone.
    One,
    /// Two, and no fewer.
    StrictTwo,
}

/// What a seed is narrowed to.
struct Profile {
    finding: Finding,
    /// Faults that are switched on.
    always: &'static [Fault],
    /// Faults each of which is on in every other seed.
    perhaps: &'static [Fault],
    /// Policies, with where the log lives.
    rules: &'static [(&'static str, LogKind)],
    factors: &'static [u8],
    floor: MinInSync,
    nodes: &'static [u32],
    controllers: &'static [u32],
    /// The most tables; with one it has one partition.
    tables: usize,
    clients: (u64, u64),
    /// Operations, of a hundred of what was asked for.
    work: u64,
    /// Of a thousand seeds, how many keep a good copy of everything.
    recoverable: u64,
    think_ms: (u64, u64),
    /// Copies go by files.
    ships: bool,
    /// Points over all partitions are taken.
    cluster_snapshots: bool,
    /// Backups are made and restored.
    backups: bool,
    /// There are indexes.
    indexes: bool,
    /// Rows are loaded in bulk.
    loads: bool,
    /// Jobs are run.
    jobs: bool,
    /// Clients ask for more than single rows.
    wide: bool,
    /// An operator forces a promotion.
    forces: bool,
    /// The engines are on real files.
    trees: bool,
    /// There is a database.
    database: bool,
    /// There are global transactions.
    transactions: bool,
    /// It has procedures, and calls are shipped.
    calls: bool,
    /// Clients ask for turns at rows.
    turns: bool,
}

const DURABLE: (&str, LogKind) = ("durable", LogKind::Disk);
const SYNC: (&str, LogKind) = ("sync", LogKind::Disk);
const SEMI: (&str, LogKind) = ("semi", LogKind::Disk);
const ASYNC: (&str, LogKind) = ("async", LogKind::Disk);
const LOCAL: (&str, LogKind) = ("local", LogKind::Disk);

/// What most profiles have in common, for a bug that these faults bring to light: some always, some in every
/// other seed.
const fn usual(finding: Finding, always: &'static [Fault], perhaps: &'static [Fault]) -> Profile {
    Profile {
        finding,
        always,
        perhaps,
        rules: &[DURABLE, SEMI, SYNC],
        factors: &[3, 3, 2],
        floor: MinInSync::Drawn,
        nodes: &[3],
        controllers: &[1],
        tables: 2,
        clients: (4, 8),
        work: 100,
        recoverable: 800,
        think_ms: (400, 1_000),
        ships: false,
        cluster_snapshots: false,
        backups: false,
        indexes: false,
        loads: false,
        jobs: false,
        wide: false,
        forces: false,
        trees: false,
        database: false,
        transactions: false,
        calls: false,
        turns: false,
    }
}

/// Engines on real files, which are shipped.
const fn trees(profile: Profile) -> Profile {
    Profile { ships: true, trees: true, think_ms: (200, 600), ..profile }
}

/// A database, and clients of its tables.
const fn tables(profile: Profile) -> Profile {
    Profile { tables: 1, database: true, ..profile }
}

/// Global transactions.
const fn transactions(profile: Profile) -> Profile {
    Profile { tables: 1, transactions: true, ..profile }
}

/// Clients of turns at rows of one partition.
const fn turns(profile: Profile) -> Profile {
    Profile { tables: 1, turns: true, recoverable: 1_000, ..profile }
}

/// A database, and clients of its procedures.
const fn calls(profile: Profile) -> Profile {
    Profile { calls: true, ..tables(profile) }
}

/// One partition that many clients write.
const fn crowded(profile: Profile) -> Profile {
    Profile { tables: 1, clients: (8, 12), work: 250, ..profile }
}

static PROFILES: [Profile; Finding::ALL.len() - AS_DRAWN.len()] = [
    usual(F01, &[Isolate, Pause], &[Cut, CutOneWay, HalfHealed]),
    usual(F02, &[Isolate, Crash], &[Cut, Pause, Clog]),
    usual(F03, &[SlowDisk, Crash], &[Clog]),
    usual(F04, &[Isolate, Pause, MetaSlow], &[Cut, MetaDown]),
    Profile { rules: &[DURABLE, SEMI], ..usual(F05, &[Isolate, Pause, SlowDisk], &[Cut, Crash, StuckDisk]) },
    Profile { rules: &[SEMI], recoverable: 500, ..usual(F06, &[PowerAll, SlowDisk], &[Power, Crash]) },
    Profile {
        rules: &[DURABLE, SEMI],
        think_ms: (250, 600),
        ..usual(F07, &[SlowDisk, Isolate, Crash], &[Clog, Pause, Cut])
    },
    Profile { rules: &[DURABLE, SYNC, LOCAL], ..usual(F08, &[SyncFails, Power, PowerAll], &[]) },
    Profile { rules: &[DURABLE, SYNC, LOCAL], ..usual(F09, &[Power, PowerAll], &[]) },
    Profile { rules: &[DURABLE, SYNC], ..usual(F10, &[Rot, Crash], &[ReadFlip, Restart]) },
    Profile {
        rules: &[DURABLE, SEMI],
        tables: 1,
        clients: (2, 3),
        work: 40,
        think_ms: (200, 500),
        ships: true,
        ..usual(F11, &[QuietRot, Restart], &[Crash, Pause])
    },
    Profile {
        rules: &[DURABLE, SEMI],
        think_ms: (200, 600),
        ships: true,
        ..crowded(usual(F12, &[ReadFlip, Pause], &[Power, SlowDisk]))
    },
    crowded(usual(F13, &[SlowDisk, Pause], &[Crash, Clog])),
    Profile { ships: true, ..crowded(usual(F14, &[SlowDisk, Pause], &[Crash, Clog])) },
    Profile { controllers: &[2], ..usual(F16, &[MetaStale, TwoLead, Crash], &[MetaSlow, ControllerCrash]) },
    usual(F17, &[MetaLost, Crash], &[MetaDown, Isolate]),
    usual(F18, &[CutOneWay, Cut], &[CutLane, HalfHealed]),
    Profile {
        rules: &[DURABLE, SYNC],
        factors: &[3],
        recoverable: 1_000,
        think_ms: (2_000, 6_000),
        ..usual(F19, &[SlowDisk], &[StuckDisk, Stall])
    },
    usual(F20, &[Full, Crash], &[Power, Restart]),
    calls(Profile { factors: &[3], ..usual(F21, &[SlowDisk], &[]) }),
    usual(F22, &[Loss, Break], &[Crash, Duplication]),
    Profile { rules: &[ASYNC, LOCAL, SEMI], ..usual(F25, &[Delay, Cut], &[Clog, Pause]) },
    Profile { rules: &[DURABLE, SEMI], ..usual(Pr01, &[Crash], &[Power, SlowDisk]) },
    usual(Pr02, &[Isolate, Pause], &[Cut, CutOneWay, HalfHealed]),
    usual(Pr05, &[HalfHealed, Isolate], &[CutLane, Cut]),
    Profile {
        factors: &[2],
        floor: MinInSync::One,
        think_ms: (200, 500),
        ..usual(Pr06, &[Crash, Isolate, MetaSlow], &[MetaLost, HalfHealed])
    },
    Profile {
        floor: MinInSync::One,
        forces: true,
        think_ms: (3_000, 6_000),
        ..usual(Pr08, &[Pause], &[Isolate, Crash])
    },
    Profile {
        rules: &[ASYNC, LOCAL],
        floor: MinInSync::One,
        think_ms: (200, 500),
        ..usual(Pr12, &[Isolate, Crash], &[Clog, Pause])
    },
    Profile {
        rules: &[DURABLE, LOCAL],
        think_ms: (200, 500),
        ..usual(Pr13, &[Rot, Crash, Power], &[Isolate, ReadFlip])
    },
    Profile {
        rules: &[DURABLE, SEMI],
        factors: &[2],
        floor: MinInSync::One,
        think_ms: (200, 500),
        ..usual(Pr15, &[Clog, Crash, Delay], &[Power, CutLane])
    },
    Profile {
        rules: &[ASYNC, SEMI, LOCAL],
        think_ms: (200, 500),
        ..usual(Pr16, &[Alter, MetaSlow, Clog], &[MetaLost, SlowDisk, Delay])
    },
    Profile {
        rules: &[DURABLE, SEMI],
        recoverable: 500,
        think_ms: (250, 600),
        ..usual(Pr17, &[DiskLoss, Crash], &[Isolate, Power])
    },
    Profile { rules: &[DURABLE], think_ms: (200, 500), ..usual(Pr18, &[Rot], &[ReadFlip]) },
    Profile {
        rules: &[ASYNC, LOCAL],
        think_ms: (200, 500),
        ..usual(Pr19, &[Isolate, Pause, MetaLost], &[MetaDown, Crash])
    },
    Profile { floor: MinInSync::StrictTwo, ..usual(Pr21, &[Isolate, Pause], &[Crash, Cut]) },
    usual(Pr22, &[Break, SlowDisk], &[Loss, Clog]),
    usual(Pr23, &[SlowDisk], &[Clog, Crash]),
    Profile {
        rules: &[ASYNC, LOCAL, DURABLE],
        think_ms: (200, 500),
        ..usual(Pr24, &[Alter, Crash, Clog], &[Isolate, SlowDisk, Delay])
    },
    Profile {
        rules: &[DURABLE, SEMI, SYNC],
        factors: &[3],
        wide: true,
        think_ms: (200, 500),
        ..usual(Pr27, &[Isolate, Pause], &[Cut, CutLane, HalfHealed])
    },
    Profile { rules: &[ASYNC, LOCAL], ships: true, ..usual(Pr31, &[Isolate, Crash], &[Cut, Pause, Clog]) },
    Profile {
        rules: &[ASYNC, LOCAL],
        ships: true,
        ..crowded(usual(Pr35, &[Isolate, Crash], &[Pause, SlowDisk]))
    },
    Profile { ships: true, ..crowded(usual(Pr36, &[SlowDisk, Pause], &[Crash, Isolate])) },
    Profile { ships: true, ..crowded(usual(Pr37, &[SlowDisk, Pause, Crash], &[Isolate, Power])) },
    Profile { tables: 1, ships: true, loads: true, ..usual(Pr39, &[Crash, Loss], &[Isolate, Restart]) },
    Profile { rules: &[DURABLE, SEMI, SYNC, LOCAL], ..usual(Pr40, &[Crash, Power], &[]) },
    Profile { rules: &[DURABLE, SEMI, SYNC, LOCAL], ..usual(Pr45, &[Crash, Power], &[]) },
    usual(Pr47, &[Break, Crash], &[Loss, Isolate]),
    Profile {
        floor: MinInSync::StrictTwo,
        think_ms: (200, 500),
        ..usual(Pr67, &[SlowDisk, Crash], &[Isolate])
    },
    usual(Pr78, &[SlowDisk], &[Clog]),
    Profile {
        rules: &[ASYNC],
        factors: &[2, 3],
        floor: MinInSync::One,
        tables: 1,
        clients: (8, 12),
        work: 300,
        think_ms: (250, 600),
        ..usual(Pr79, &[Isolate, Clog, Crash], &[Delay])
    },
    Profile {
        rules: &[DURABLE, SEMI, SYNC],
        clients: (6, 10),
        work: 150,
        cluster_snapshots: true,
        ..usual(Pr80, &[Crash, SlowDisk], &[Isolate, Delay, Clog])
    },
    Profile { indexes: true, ..usual(Pr81, &[Crash], &[Isolate, SlowDisk]) },
    Profile {
        rules: &[ASYNC, LOCAL],
        factors: &[3],
        jobs: true,
        ..usual(Pr82, &[Isolate, Crash], &[Cut, Pause, Clog])
    },
    Profile {
        rules: &[ASYNC, LOCAL],
        floor: MinInSync::One,
        ..usual(Pr85, &[Crash, Isolate], &[Power, Pause])
    },
    Profile {
        floor: MinInSync::StrictTwo,
        factors: &[2],
        nodes: &[2],
        think_ms: (200, 500),
        ..usual(Pr106, &[Isolate], &[Pause, Cut])
    },
    usual(Pr107, &[RecordsLost, OldController], &[Crash]),
    Profile {
        floor: MinInSync::StrictTwo,
        factors: &[2, 3],
        nodes: &[4],
        ships: true,
        think_ms: (250, 600),
        ..usual(Pr110, &[Crash, Power, SlowDisk], &[Isolate, Pause])
    },
    Profile { wide: true, ..usual(Pr111, &[SlowDisk], &[Clog, Crash]) },
    Profile { wide: true, ..usual(Pr112, &[SlowDisk], &[Clog, Crash]) },
    Profile { wide: true, indexes: true, ..usual(Pr113, &[SlowDisk], &[Clog, Crash]) },
    Profile {
        rules: &[DURABLE, SYNC],
        floor: MinInSync::StrictTwo,
        nodes: &[3],
        think_ms: (100, 300),
        ..crowded(usual(Pr117, &[Full, Crash, Isolate], &[Rot, ReadFlip]))
    },
    tables(usual(Pr120, &[Crash], &[Isolate, SlowDisk])),
    tables(usual(Pr121, &[Crash], &[Isolate, SlowDisk])),
    tables(usual(Pr122, &[Crash], &[Isolate, SlowDisk])),
    tables(usual(Pr123, &[Crash], &[Isolate, SlowDisk])),
    tables(usual(Pr124, &[SlowDisk], &[Crash, Clog])),
    Profile { rules: &[DURABLE, SYNC], ..crowded(usual(Pr145, &[GoBack, Crash, Isolate], &[Power, Pause])) },
    tables(usual(Pr150, &[SlowDisk], &[Clog, Crash])),
    transactions(usual(Pr170, &[Crash], &[Isolate, SlowDisk])),
    tables(usual(Pr180, &[SlowDisk], &[Clog, Crash])),
    Profile {
        rules: &[ASYNC],
        recoverable: 1_000,
        ..usual(Pr230, &[RecordsLost, Crash], &[Restart, Isolate])
    },
    transactions(usual(Pr250, &[Clog], &[Crash])),
    transactions(usual(Pr251, &[Isolate, Clog], &[Crash, Pause])),
    transactions(usual(Pr252, &[Isolate, Clog], &[Crash, Pause])),
    transactions(usual(Pr253, &[Crash, Isolate], &[Power, Pause])),
    transactions(usual(Pr254, &[Clog], &[Pause, Crash])),
    transactions(usual(Pr257, &[Clog], &[Pause, Crash])),
    transactions(usual(Pr290, &[Clog], &[Pause, Crash])),
    transactions(usual(Pr321, &[ClockJump, Crash], &[Isolate, Clog])),
    transactions(usual(Pr324, &[Clog], &[Crash, Isolate])),
    transactions(usual(Pr325, &[Clog], &[Crash, Isolate])),
    calls(Profile { factors: &[3], ..usual(Pr220, &[Crash], &[Isolate, SlowDisk]) }),
    calls(Profile { factors: &[3], ..usual(Pr240, &[Crash], &[Loss, Break]) }),
    Profile {
        rules: &[LOCAL, ASYNC],
        factors: &[3],
        recoverable: 1_000,
        ..usual(Pr300, &[SlowDisk], &[Crash, Isolate])
    },
    Profile { recoverable: 1_000, ..crowded(usual(Pr301, &[Strand], &[Crash, Isolate, SlowDisk])) },
    Profile { backups: true, ..usual(Pr330, &[SlowDisk], &[Crash, Clog]) },
    transactions(usual(Pr361, &[Clog], &[Crash, Isolate])),
    Profile {
        factors: &[3],
        forces: true,
        recoverable: 1_000,
        think_ms: (3_000, 6_000),
        ..transactions(usual(Pr363, &[Pause], &[Isolate, Crash]))
    },
    transactions(usual(Pr364, &[Isolate, Clog], &[Crash, Pause])),
    transactions(usual(Pr365, &[SlowDisk, Isolate], &[Crash, Power, Clog])),
    turns(usual(Pr374, &[Crash], &[Break])),
    Profile { rules: &[DURABLE], ..turns(usual(Pr377, &[SlowDisk], &[Clog])) },
    turns(usual(Pr410, &[SlowDisk], &[Break])),
    trees(usual(Le01, &[Crash, Power], &[Restart, SlowDisk])),
    trees(crowded(usual(Le02, &[StuckDisk, Crash], &[Power, Pause]))),
    Profile { cluster_snapshots: true, ..trees(crowded(usual(Le03, &[SlowDisk, Pause], &[Crash, Clog]))) },
    trees(crowded(usual(Le04, &[Crash], &[Power, SlowDisk]))),
    Profile { rules: &[DURABLE, SEMI], ..trees(crowded(usual(Le05, &[SlowDisk, Pause], &[Crash, Clog]))) },
    Profile { rules: &[DURABLE, SEMI], ..trees(crowded(usual(Le06, &[Isolate, Pause], &[Crash, Rot]))) },
    Profile { tables: 1, loads: true, ..trees(usual(Le07, &[Crash], &[Isolate, Restart])) },
    Profile { rules: &[ASYNC, LOCAL], ..trees(usual(Le08, &[Isolate, Crash], &[Cut, Pause, Clog])) },
    Profile { cluster_snapshots: true, ..trees(crowded(usual(Le09, &[SlowDisk, Pause], &[Crash, Clog]))) },
    Profile { rules: &[DURABLE, SEMI], ..trees(crowded(usual(Le10, &[Power, Pause], &[SlowDisk, Isolate]))) },
    Profile { rules: &[DURABLE, SEMI], ..trees(crowded(usual(Le11, &[Isolate, Crash], &[Power, Pause]))) },
    Profile {
        rules: &[DURABLE, SEMI],
        ..trees(crowded(usual(Le12, &[LsmSyncFails, Power, Isolate], &[PowerAll, Pause])))
    },
    Profile { wide: true, indexes: true, ..trees(crowded(usual(Le13, &[SlowDisk], &[Clog, Crash]))) },
];
