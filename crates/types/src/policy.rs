//! Policies are data (design section 3): how many copies, what each must have done, and what that promises.
//!
//! This file is the only place that knows what a policy means. Nobody else looks at what is wanted of a rank:
//! who needs to know asks by name, and by rank where ranks differ. So a policy that ranks can say is a change
//! of this file, its tests, its page in the documents, the table of the simulator's checkers and the names
//! that SQL shows. `quorum(k)` is more: elsewhere any part of a set has what the set has committed
//! (`docs/how-to-change.md`).
//!
//! | question | asked by |
//! | --- | --- |
//! | [`Policy::commit`]: what has committed with these watermarks? | a primary |
//! | [`Policy::commit_with`]: and with those of a member that joins? | a primary |
//! | [`Policy::allows`]: may a set of so many members commit? | a primary |
//! | [`Policy::waits_for`]: do commits wait for this rank? | SQL, for `sync_state` |
//! | [`Policy::same_demands`]: does a commit need the same of every copy under both? | a change of policy: the primary, the planner |
//! | [`Policy::reached`]: how far has this rank come in what is wanted of it? | a primary; a backup before it acknowledges |
//! | [`Policy::kept`]: how much of the log does nothing take from this member? | a primary, for `secured` |
//! | [`Policy::synced`]: how far has this member's disk come with the log, if the log is there? | a primary, to see disks that hang |
//! | [`Policy::rests_on`]: whose loss takes an acknowledgement back? | promotion, leases, the controller, reports to clients |
//! | [`Policy::fenced_by`]: can nobody else have committed more than these report? | promotion |
//! | [`Policy::acknowledges_secured`]: is what is acknowledged as secure as can be already? | commands that wait for `secured` |
//! | [`Policy::survives_restart`]: does a member count in a later incarnation? | promotion, the controller |
//! | [`Policy::promise`], [`Policy::gives`]: what people are told | documents, SQL |

use crate::engine::EngineKind;
use crate::moves::Moves;
use crate::position::{Lsn, Watermarks};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;

/// The most copies a partition may have.
pub const MAX_FACTOR: u8 = 7;

/// Where a table's log lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    /// In the node's write-ahead log.
    Disk,
    /// In memory only: what all members forget together is gone.
    Memory,
}

/// The watermarks of one replica that must cover an entry before it commits. None demanded: the replica is
/// not counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Need {
    /// In its memory.
    pub received: bool,
    /// Fsynced in its log.
    pub durable: bool,
    /// Executed by its engine.
    pub applied: bool,
}

impl Need {
    const NOTHING: Need = Need { received: false, durable: false, applied: false };
    const RECEIVED: Need = Need { received: true, durable: false, applied: false };
    const DURABLE: Need = Need { received: true, durable: true, applied: false };
    const APPLIED: Need = Need { received: true, durable: false, applied: true };
    const BOTH: Need = Need { received: true, durable: true, applied: true };

    /// True if a replica with this need takes part in commits.
    fn counts(&self) -> bool {
        self.received || self.durable || self.applied
    }

    /// The highest LSN at which this need is met by `marks`; [`Lsn::MAX`] if nothing is needed.
    fn met(&self, marks: &Watermarks) -> Lsn {
        let demand = |wanted: bool, mark: Lsn| if wanted { mark } else { Lsn::MAX };
        demand(self.received, marks.received)
            .min(demand(self.durable, marks.durable))
            .min(demand(self.applied, marks.applied))
    }
}

/// What a backup does with what it receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standby {
    /// Applies on receipt.
    Hot,
    /// Keeps the log and components only.
    Cold,
}

/// What happens below `min_in_sync`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Below {
    /// `committed` stops until there are enough copies again (PR-21).
    Strict,
    /// Commits go on, and every reply says how many copies it has.
    Available,
}

/// One table's rule for commits. A small value; changed only through the metastore (PR-24).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// The preset's name, for people.
    pub name: String,
    /// Grows with every change of the table's policy. Every reply names it.
    pub version: u32,
    /// Copies, the primary included. 1 to [`MAX_FACTOR`].
    pub factor: u8,
    /// Demands by rank: the primary's first; the last one holds for all further ranks.
    pub ranks: Vec<Need>,
    /// What backups do.
    pub standby: Standby,
    /// Fewest members of the in-sync set, the primary included, with which commits are allowed.
    pub min_in_sync: u8,
    /// What happens below it.
    pub below: Below,
    /// Where the log lives: decides what a restart forgets.
    pub log: LogKind,
    /// The move that its table is in, if it is in one. What commits demand does not rest on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<Moves>,
}

/// Why a policy cannot be had. Each is one sentence for a person.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// No preset of this name.
    #[error("there is no policy '{0}'; choose one of none, async, semi, local, durable, sync")]
    Unknown(String),
    /// Named in the design, not built yet.
    #[error("policy '{0}' is not available yet; choose one of none, async, semi, local, durable, sync")]
    NotYet(String),
    /// The factor is out of range.
    #[error("factor {0} is out of range: 1 to {MAX_FACTOR} copies")]
    Factor(u8),
    /// A policy that counts backups with no backup to count, or one that allows none with several.
    #[error("policy 'none' keeps one copy; factor {0} needs another policy")]
    NoneWithBackups(u8),
    /// Demands durability from a log that has none.
    #[error("policy '{0}' needs log = disk; with log = memory choose none, async, semi or sync")]
    NeedsDisk(String),
    /// An engine that cannot restart without a log.
    #[error("engine lsm needs log = disk: a main-memory table is engine = memory with log = memory")]
    LsmNeedsDisk,
    /// Only files of the primary keep a cold standby near.
    #[error(
        "a cold standby needs engine = lsm: backups of an engine without files of its own must apply everything"
    )]
    ColdNeedsFiles,
    /// A commit waits for what a cold standby does not do.
    #[error(
        "policy '{0}' waits until backups have applied a commit; a cold standby applies nothing: choose async, semi, local or durable"
    )]
    ColdApplies(String),
    /// More copies demanded than kept.
    #[error("min_in_sync {min} is out of range: 1 to the factor, {factor}")]
    MinInSync {
        /// What was asked for.
        min: u8,
        /// The most that is possible.
        factor: u8,
    },
}

/// Whose loss, all at once, may take back what was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestsOn {
    /// The primary's alone: a failover may lose some (PR-19, PR-85).
    Primary,
    /// That of the first so many ranks, the primary included.
    First(usize),
    /// That of every member of the in-sync set: any one of them has all that was committed.
    All,
}

impl RestsOn {
    /// True if no other member than the primary need have what was acknowledged.
    pub fn is_primary(self) -> bool {
        self == RestsOn::Primary
    }
}

/// What a client may ask of an acknowledgement, for [`Policy::gives`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guarantee {
    /// The primary has it on its disk.
    PrimaryDurable,
    /// Every backup has it in memory.
    BackupsReceived,
    /// Every copy has it on its disk.
    AllDurable,
    /// Every copy has it on its disk, and every backup has applied it.
    AllDurableAndApplied,
}

/// What happens to a cluster, for [`Policy::promise`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureScenario {
    /// Any one node crashes.
    OneCrash,
    /// Any two nodes crash.
    TwoCrash,
    /// All nodes lose power at once.
    AllPower,
    /// The primary is cut off from everybody else.
    PrimaryCut,
}

/// What becomes of an acknowledged commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// It stays.
    Survives,
    /// It stays if it was fsynced somewhere that counts; the rest is reported.
    WhatWasDurable,
    /// It stays if the promoted replica had it; the rest is reported, and set aside if its disk returns.
    WhatThePromotedHad,
    /// It is gone, and the partition stays closed until an operator says otherwise.
    Gone,
    /// The partition stops, with everything in place, until a copy returns.
    Stops,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Promise::Survives => "yes",
            Promise::WhatWasDurable => "what was durable",
            Promise::WhatThePromotedHad => "what the promoted replica had; the rest is reported",
            Promise::Gone => "no",
            Promise::Stops => "stops until the copy returns",
        })
    }
}

impl Policy {
    /// The presets that can be chosen, weakest first within each ladder.
    pub const PRESETS: [&'static str; 6] = ["none", "async", "semi", "local", "durable", "sync"];

    /// The preset `name` with `factor` copies on `log`. `min_in_sync` is 2 from factor 3 on, else 1, and
    /// `strict`.
    pub fn preset(name: &str, factor: u8, log: LogKind) -> Result<Policy, PolicyError> {
        if factor == 0 || factor > MAX_FACTOR {
            return Err(PolicyError::Factor(factor));
        }
        let disk = log == LogKind::Disk;
        let ranks = match name {
            "none" if factor > 1 => return Err(PolicyError::NoneWithBackups(factor)),
            "none" | "async" => vec![Need::APPLIED, Need::NOTHING],
            "semi" => vec![Need::APPLIED, Need::RECEIVED],
            "sync" if !disk => vec![Need::APPLIED, Need::APPLIED],
            "local" | "durable" if !disk => return Err(PolicyError::NeedsDisk(name.into())),
            "local" => vec![Need::DURABLE, Need::NOTHING],
            "durable" => vec![Need::DURABLE, Need::DURABLE],
            "sync" => vec![Need::BOTH, Need::BOTH],
            "triplet" => return Err(PolicyError::NotYet(name.into())),
            quorum if quorum.starts_with("quorum") => return Err(PolicyError::NotYet(name.into())),
            unknown => return Err(PolicyError::Unknown(unknown.into())),
        };
        Ok(Policy {
            name: name.into(),
            version: 1,
            factor,
            ranks,
            standby: Standby::Hot,
            min_in_sync: if factor >= 3 { 2 } else { 1 },
            below: Below::Strict,
            log,
            moves: None,
        })
    }

    /// Checks this policy together with the engine it is to run on. The combinations that pass are listed in
    /// `docs/policies.md`.
    pub fn check(&self, engine: EngineKind) -> Result<(), PolicyError> {
        if self.factor == 0 || self.factor > MAX_FACTOR {
            return Err(PolicyError::Factor(self.factor));
        }
        if self.min_in_sync == 0 || self.min_in_sync > self.factor {
            return Err(PolicyError::MinInSync { min: self.min_in_sync, factor: self.factor });
        }
        if engine.needs_log_on_disk() && self.log == LogKind::Memory {
            return Err(PolicyError::LsmNeedsDisk);
        }
        if self.standby == Standby::Cold && !engine.ships_files() {
            return Err(PolicyError::ColdNeedsFiles);
        }
        if self.standby == Standby::Cold && self.ranks.iter().skip(1).any(|need| need.applied) {
            return Err(PolicyError::ColdApplies(self.name.clone()));
        }
        Ok(())
    }

    /// True if a commit needs the same of every copy under both: they differ at most in how few copies are
    /// allowed.
    pub fn same_demands(&self, other: &Policy) -> bool {
        self.ranks == other.ranks && self.log == other.log && self.factor == other.factor
    }

    /// True if both say the same, whenever each was said.
    pub fn same_but_version(&self, other: &Policy) -> bool {
        Policy { version: other.version, ..self.clone() } == *other
    }

    /// The demand on the replica of this rank; rank 0 is the primary.
    fn need(&self, rank: usize) -> Need {
        self.ranks.get(rank).or(self.ranks.last()).copied().unwrap_or_default()
    }

    /// The highest LSN that may commit with these watermarks, the primary's first (R4). Every member of the
    /// set is given; those without a demand do not hold it back. An empty set commits nothing.
    pub fn commit<M: Borrow<Watermarks>>(&self, marks: impl IntoIterator<Item = M>) -> Lsn {
        let ranked = marks.into_iter().enumerate();
        ranked.map(|(rank, marks)| self.need(rank).met(marks.borrow())).min().unwrap_or(Lsn::ZERO)
    }

    /// How far commits may go for the sake of a member with these watermarks that is about to join, behind
    /// all others.
    pub fn commit_with(&self, joining: &Watermarks) -> Lsn {
        self.need(usize::from(MAX_FACTOR)).met(joining)
    }

    /// True if a set of so many members may commit (PR-21).
    pub fn allows(&self, members: usize) -> bool {
        self.below == Below::Available || members >= usize::from(self.min_in_sync)
    }

    /// True if commits wait for the replica of this rank.
    pub fn waits_for(&self, rank: usize) -> bool {
        self.need(rank).counts()
    }

    /// How far the replica of this rank has come in what is wanted of it; where nothing is, in memory.
    pub fn reached(&self, rank: usize, marks: &Watermarks) -> Lsn {
        let need = self.need(rank);
        if need.counts() { need.met(marks) } else { marks.received }
    }

    /// How much of the log a member with these watermarks keeps, whatever happens to it short of the loss of
    /// its store.
    pub fn kept(&self, marks: &Watermarks) -> Lsn {
        match self.log {
            LogKind::Disk => marks.durable,
            LogKind::Memory => marks.received,
        }
    }

    /// How far the disk of a member with these watermarks has come with the log; `None` where the log owes
    /// the disk nothing.
    pub fn synced(&self, marks: &Watermarks) -> Option<Lsn> {
        match self.log {
            LogKind::Disk => Some(marks.durable),
            LogKind::Memory => None,
        }
    }

    /// On whom an acknowledgement rests.
    pub fn rests_on(&self) -> RestsOn {
        match self.ranks.iter().position(|need| !need.counts()) {
            None => RestsOn::All,
            Some(0 | 1) => RestsOn::Primary,
            Some(ranks) => RestsOn::First(ranks),
        }
    }

    /// True if an acknowledgement already says that every in-sync copy has it as secure as can be.
    pub fn acknowledges_secured(&self) -> bool {
        let counted = self.rests_on() == RestsOn::All || self.factor == 1;
        counted && (self.survives_restart() || self.log == LogKind::Memory)
    }

    /// True if an acknowledgement says so much. Without backups every guarantee is the primary's disk.
    pub fn gives(&self, guarantee: Guarantee) -> bool {
        let (primary, backup) = (self.need(0), self.need(1));
        let all_durable = primary.durable && backup.durable;
        match guarantee {
            _ if self.factor == 1 => primary.durable,
            Guarantee::PrimaryDurable => primary.durable,
            Guarantee::BackupsReceived => backup.received,
            Guarantee::AllDurable => all_durable,
            Guarantee::AllDurableAndApplied => all_durable && backup.applied,
        }
    }

    /// True if every counted copy was fsynced before the commit: then a member counts in any later life of
    /// its store (PR-17, F06).
    pub fn survives_restart(&self) -> bool {
        let counted = match self.rests_on() {
            RestsOn::Primary => 1,
            RestsOn::First(ranks) => ranks,
            RestsOn::All => self.ranks.len(),
        };
        self.log == LogKind::Disk && self.ranks.iter().take(counted).all(|need| need.durable)
    }

    /// True if these members of the recorded in-sync set are enough that nobody else could have committed
    /// more (PR-13).
    ///
    /// `reporters` are members in an unforgetful life (see [`Policy::survives_restart`]); `primary_reports`
    /// says whether the sealed epoch's primary is one of them, or left nothing behind as it handed over.
    pub fn fenced_by(&self, reporters: usize, primary_reports: bool) -> bool {
        // The others may have less than was committed, as far as is known of a reporter here.
        let any_member = self.rests_on() == RestsOn::All;
        primary_reports || (any_member && reporters > 0)
    }

    /// What becomes of an acknowledged commit, with every copy in sync, under a failure scenario (design
    /// section 12).
    pub fn promise(&self, failure_scenario: FailureScenario) -> Promise {
        let backups = usize::from(self.factor) - 1;
        let forgets = !self.survives_restart();
        let alone = match (self.survives_restart(), self.log) {
            (true, _) => Promise::Stops,
            (false, LogKind::Disk) => Promise::WhatWasDurable,
            (false, LogKind::Memory) => Promise::Gone,
        };
        match failure_scenario {
            FailureScenario::AllPower if !forgets => Promise::Survives,
            FailureScenario::AllPower => alone,
            FailureScenario::PrimaryCut if backups == 0 => Promise::Stops,
            FailureScenario::OneCrash if backups == 0 => alone,
            FailureScenario::TwoCrash if backups <= 1 => alone,
            _ => match (self.rests_on(), failure_scenario) {
                (RestsOn::All, _) => Promise::Survives,
                (RestsOn::First(_), FailureScenario::OneCrash | FailureScenario::PrimaryCut) => {
                    Promise::Survives
                }
                (RestsOn::First(_) | RestsOn::Primary, _) => Promise::WhatThePromotedHad,
            },
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = match self.below {
            Below::Strict => "strict",
            Below::Available => "available",
        };
        let cold = if self.standby == Standby::Cold { " cold" } else { "" };
        write!(f, "{} factor {} min_in_sync {} {below}{cold}", self.name, self.factor, self.min_in_sync)
    }
}
