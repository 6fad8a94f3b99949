//! Planted bugs: which faults bring each to light, and a seed that finds it.
//!
//! A profile narrows what a seed is made of: which faults strike, how the tables keep their promises, how fast it goes. It
//! never says what happens when. The same profile with the rule in must be as clean as any other seed.

use crate::faults::Fault;
use crate::plan::RunPlan;
use crate::random::Stream;
use types::{Finding, LogKind};

/// A seed at which each finding is found under its profile: see [`crate::Options::planted`].
pub const FOUND: [(Finding, u64); 42] = [
    (Finding::F01, 0),
    (Finding::F02, 2),
    (Finding::F03, 0),
    (Finding::F04, 0),
    (Finding::F05, 2),
    (Finding::F06, 8),
    (Finding::F07, 3),
    (Finding::F08, 6),
    (Finding::F09, 0),
    (Finding::F10, 0),
    (Finding::F11, 44),
    (Finding::F12, 5),
    (Finding::F13, 0),
    (Finding::F14, 0),
    (Finding::F16, 0),
    (Finding::F17, 0),
    (Finding::F18, 0),
    (Finding::F19, 11),
    (Finding::F20, 8),
    (Finding::F22, 2),
    (Finding::F25, 1),
    (Finding::Pr01, 1),
    (Finding::Pr05, 0),
    (Finding::Pr06, 55),
    (Finding::Pr15, 247),
    (Finding::Pr16, 0),
    (Finding::Pr18, 16),
    (Finding::Pr21, 0),
    (Finding::Pr22, 0),
    (Finding::Pr23, 0),
    (Finding::Pr31, 0),
    (Finding::Pr36, 0),
    (Finding::Pr37, 0),
    (Finding::Pr39, 2),
    (Finding::Pr40, 0),
    (Finding::Pr45, 0),
    (Finding::Pr47, 0),
    (Finding::Pr78, 0),
    (Finding::Pr79, 26),
    (Finding::Pr80, 2),
    (Finding::Pr81, 0),
    (Finding::Pr82, 7),
];

/// Biases a plan towards what brings this finding to light.
pub fn bias(plan: &mut RunPlan, finding: Finding, random: &mut Stream) {
    let known = PROFILES.iter().find(|profile| profile.finding == finding);
    let profile = known.expect("every finding has a profile");
    plan.faults = profile.always.iter().copied().collect();
    plan.faults.extend(profile.perhaps.iter().filter(|_| random.chance(500)));
    plan.nodes = *random.pick(profile.nodes).expect("not empty");
    plan.controllers = *random.pick(profile.controllers).expect("not empty");
    plan.tables.truncate(profile.tables);
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
    }
    plan.clients = random.between(profile.clients.0, profile.clients.1) as u32;
    plan.operations = plan.operations * profile.work / 100;
    plan.recoverable = random.chance(profile.recoverable);
    plan.ships = if profile.ships { [0, 1].into() } else { Default::default() };
    plan.ship_bytes_per_second = plan.ship_bytes_per_second.clamp(6_000, 30_000);
    plan.cluster_snapshots = profile.cluster_snapshots;
    plan.loads = profile.loads;
    plan.jobs = profile.jobs;
    plan.indexes = profile.indexes;
    plan.think_us = 1_000 * random.between(profile.think_ms.0, profile.think_ms.1);
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
    /// There are indexes.
    indexes: bool,
    /// Rows are loaded in bulk.
    loads: bool,
    /// Jobs are run.
    jobs: bool,
}

const DURABLE: (&str, LogKind) = ("durable", LogKind::Disk);
const SYNC: (&str, LogKind) = ("sync", LogKind::Disk);
const SEMI: (&str, LogKind) = ("semi", LogKind::Disk);
const ASYNC: (&str, LogKind) = ("async", LogKind::Disk);
const LOCAL: (&str, LogKind) = ("local", LogKind::Disk);

/// What most profiles have in common.
const USUAL: Profile = Profile {
    finding: Finding::F01,
    always: &[],
    perhaps: &[],
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
    indexes: false,
    loads: false,
    jobs: false,
};

const PROFILES: [Profile; 42] = [
    Profile {
        finding: Finding::F01,
        always: &[Fault::Isolate, Fault::Pause],
        perhaps: &[Fault::Cut, Fault::CutOneWay, Fault::HalfHealed],
        ..USUAL
    },
    Profile {
        finding: Finding::F02,
        always: &[Fault::Isolate, Fault::Crash],
        perhaps: &[Fault::Cut, Fault::Pause, Fault::Clog],
        ..USUAL
    },
    Profile {
        finding: Finding::F03,
        always: &[Fault::SlowDisk, Fault::Crash],
        perhaps: &[Fault::Clog],
        ..USUAL
    },
    Profile {
        finding: Finding::F04,
        always: &[Fault::Isolate, Fault::Pause, Fault::MetaSlow],
        perhaps: &[Fault::Cut, Fault::MetaDown],
        ..USUAL
    },
    Profile {
        finding: Finding::F05,
        always: &[Fault::Isolate, Fault::Pause, Fault::SlowDisk],
        perhaps: &[Fault::Cut, Fault::Crash, Fault::StuckDisk],
        rules: &[DURABLE, SEMI],
        ..USUAL
    },
    Profile {
        finding: Finding::F06,
        always: &[Fault::PowerAll, Fault::SlowDisk],
        perhaps: &[Fault::Power, Fault::Crash],
        rules: &[SEMI],
        recoverable: 500,
        ..USUAL
    },
    Profile {
        finding: Finding::F07,
        always: &[Fault::SlowDisk, Fault::Isolate, Fault::Crash],
        perhaps: &[Fault::Clog, Fault::Pause, Fault::Cut],
        rules: &[DURABLE, SEMI],
        think_ms: (250, 600),
        ..USUAL
    },
    Profile {
        finding: Finding::F08,
        always: &[Fault::SyncFails, Fault::Power, Fault::PowerAll],
        rules: &[DURABLE, SYNC, LOCAL],
        ..USUAL
    },
    Profile {
        finding: Finding::F09,
        always: &[Fault::Power, Fault::PowerAll],
        rules: &[DURABLE, SYNC, LOCAL],
        ..USUAL
    },
    Profile {
        finding: Finding::F10,
        always: &[Fault::Rot, Fault::Crash],
        perhaps: &[Fault::ReadFlip, Fault::Restart],
        rules: &[DURABLE, SYNC],
        ..USUAL
    },
    Profile {
        finding: Finding::F11,
        always: &[Fault::QuietRot, Fault::Restart],
        perhaps: &[Fault::Crash, Fault::Pause],
        rules: &[DURABLE, SEMI],
        tables: 1,
        clients: (2, 3),
        work: 40,
        think_ms: (200, 500),
        ships: true,
        ..USUAL
    },
    Profile {
        finding: Finding::F12,
        always: &[Fault::ReadFlip, Fault::Pause],
        perhaps: &[Fault::Power, Fault::SlowDisk],
        rules: &[DURABLE, SEMI],
        tables: 1,
        clients: (8, 12),
        work: 250,
        think_ms: (200, 600),
        ships: true,
        ..USUAL
    },
    Profile {
        finding: Finding::F13,
        always: &[Fault::SlowDisk, Fault::Pause],
        perhaps: &[Fault::Crash, Fault::Clog],
        tables: 1,
        clients: (8, 12),
        work: 250,
        ..USUAL
    },
    Profile {
        finding: Finding::F14,
        always: &[Fault::SlowDisk, Fault::Pause],
        perhaps: &[Fault::Crash, Fault::Clog],
        tables: 1,
        clients: (8, 12),
        work: 250,
        ships: true,
        ..USUAL
    },
    Profile {
        finding: Finding::F16,
        always: &[Fault::MetaStale, Fault::TwoLead, Fault::Crash],
        perhaps: &[Fault::MetaSlow, Fault::ControllerCrash],
        controllers: &[2],
        ..USUAL
    },
    Profile {
        finding: Finding::F17,
        always: &[Fault::MetaLost, Fault::Crash],
        perhaps: &[Fault::MetaDown, Fault::Isolate],
        ..USUAL
    },
    Profile {
        finding: Finding::F18,
        always: &[Fault::CutOneWay, Fault::Cut],
        perhaps: &[Fault::CutLane, Fault::HalfHealed],
        ..USUAL
    },
    Profile {
        finding: Finding::F19,
        always: &[Fault::SlowDisk],
        perhaps: &[Fault::StuckDisk, Fault::Stall],
        rules: &[DURABLE, SYNC],
        factors: &[3],
        recoverable: 1_000,
        think_ms: (2_000, 6_000),
        ..USUAL
    },
    Profile {
        finding: Finding::F20,
        always: &[Fault::Full, Fault::Crash],
        perhaps: &[Fault::Power, Fault::Restart],
        ..USUAL
    },
    Profile {
        finding: Finding::F22,
        always: &[Fault::Loss, Fault::Break],
        perhaps: &[Fault::Crash, Fault::Duplication],
        ..USUAL
    },
    Profile {
        finding: Finding::F25,
        always: &[Fault::Delay, Fault::Cut],
        perhaps: &[Fault::Clog, Fault::Pause],
        rules: &[ASYNC, LOCAL, SEMI],
        ..USUAL
    },
    Profile {
        finding: Finding::Pr01,
        always: &[Fault::Crash],
        perhaps: &[Fault::Power, Fault::SlowDisk],
        rules: &[DURABLE, SEMI],
        ..USUAL
    },
    Profile {
        finding: Finding::Pr05,
        always: &[Fault::HalfHealed, Fault::Isolate],
        perhaps: &[Fault::CutLane, Fault::Cut],
        ..USUAL
    },
    Profile {
        finding: Finding::Pr06,
        always: &[Fault::Crash, Fault::Isolate, Fault::MetaSlow],
        perhaps: &[Fault::MetaLost, Fault::HalfHealed],
        factors: &[2],
        floor: MinInSync::One,
        think_ms: (200, 500),
        ..USUAL
    },
    Profile {
        finding: Finding::Pr15,
        always: &[Fault::Clog, Fault::Crash, Fault::Delay],
        perhaps: &[Fault::Power, Fault::CutLane],
        rules: &[DURABLE, SEMI],
        factors: &[2],
        floor: MinInSync::One,
        think_ms: (200, 500),
        ..USUAL
    },
    Profile {
        finding: Finding::Pr16,
        always: &[Fault::Alter, Fault::MetaSlow, Fault::Clog],
        perhaps: &[Fault::MetaLost, Fault::SlowDisk, Fault::Delay],
        rules: &[ASYNC, SEMI, LOCAL],
        think_ms: (200, 500),
        ..USUAL
    },
    Profile {
        finding: Finding::Pr18,
        always: &[Fault::Rot],
        perhaps: &[Fault::ReadFlip],
        rules: &[DURABLE],
        think_ms: (200, 500),
        ..USUAL
    },
    Profile {
        finding: Finding::Pr21,
        always: &[Fault::Isolate, Fault::Pause],
        perhaps: &[Fault::Crash, Fault::Cut],
        floor: MinInSync::StrictTwo,
        ..USUAL
    },
    Profile {
        finding: Finding::Pr22,
        always: &[Fault::Break, Fault::SlowDisk],
        perhaps: &[Fault::Loss, Fault::Clog],
        ..USUAL
    },
    Profile {
        finding: Finding::Pr23,
        always: &[Fault::SlowDisk],
        perhaps: &[Fault::Clog, Fault::Crash],
        ..USUAL
    },
    Profile {
        finding: Finding::Pr31,
        always: &[Fault::Isolate, Fault::Crash],
        perhaps: &[Fault::Cut, Fault::Pause, Fault::Clog],
        rules: &[ASYNC, LOCAL],
        ships: true,
        ..USUAL
    },
    Profile {
        finding: Finding::Pr36,
        always: &[Fault::SlowDisk, Fault::Pause],
        perhaps: &[Fault::Crash, Fault::Isolate],
        tables: 1,
        clients: (8, 12),
        work: 250,
        ships: true,
        ..USUAL
    },
    Profile {
        finding: Finding::Pr37,
        always: &[Fault::SlowDisk, Fault::Pause, Fault::Crash],
        perhaps: &[Fault::Isolate, Fault::Power],
        tables: 1,
        clients: (8, 12),
        work: 250,
        ships: true,
        ..USUAL
    },
    Profile {
        finding: Finding::Pr39,
        always: &[Fault::Crash, Fault::Loss],
        perhaps: &[Fault::Isolate, Fault::Restart],
        tables: 1,
        ships: true,
        loads: true,
        ..USUAL
    },
    Profile {
        finding: Finding::Pr40,
        always: &[Fault::Crash, Fault::Power],
        rules: &[DURABLE, SEMI, SYNC, LOCAL],
        ..USUAL
    },
    Profile {
        finding: Finding::Pr45,
        always: &[Fault::Crash, Fault::Power],
        rules: &[DURABLE, SEMI, SYNC, LOCAL],
        ..USUAL
    },
    Profile {
        finding: Finding::Pr47,
        always: &[Fault::Break, Fault::Crash],
        perhaps: &[Fault::Loss, Fault::Isolate],
        ..USUAL
    },
    Profile { finding: Finding::Pr78, always: &[Fault::SlowDisk], perhaps: &[Fault::Clog], ..USUAL },
    Profile {
        finding: Finding::Pr79,
        always: &[Fault::Isolate, Fault::Clog, Fault::Crash],
        perhaps: &[Fault::Delay],
        rules: &[ASYNC],
        factors: &[2, 3],
        floor: MinInSync::One,
        tables: 1,
        clients: (8, 12),
        work: 300,
        think_ms: (250, 600),
        ..USUAL
    },
    Profile {
        finding: Finding::Pr80,
        always: &[Fault::Crash, Fault::SlowDisk],
        perhaps: &[Fault::Isolate, Fault::Delay, Fault::Clog],
        rules: &[DURABLE, SEMI, SYNC],
        clients: (6, 10),
        work: 150,
        cluster_snapshots: true,
        ..USUAL
    },
    Profile {
        finding: Finding::Pr81,
        always: &[Fault::Crash],
        perhaps: &[Fault::Isolate, Fault::SlowDisk],
        indexes: true,
        ..USUAL
    },
    Profile {
        finding: Finding::Pr82,
        always: &[Fault::Isolate, Fault::Crash],
        perhaps: &[Fault::Cut, Fault::Pause, Fault::Clog],
        rules: &[ASYNC, LOCAL],
        factors: &[3],
        jobs: true,
        ..USUAL
    },
];
