//! One replica of one partition: a log, an engine, a configuration and a role (design sections 2, 5, 6).
//!
//! What a primary does is in `primary`, what a backup does in `backup`, the state on its way to a member in `transfer`, what
//! tables can do beside keeping rows in `features`. What all roles share is parts with fields of their own: the log
//! (`log_state`), how far the partition is (`marks`), its configuration (`config`), who reads (`readers`), what this
//! replica is (`role`) and what is damaged (`damage`). Functions that need more than one part are here:
//!
//! | file | what |
//! | --- | --- |
//! | `configure` | a new configuration: step up, step down, go on |
//! | `aside` | a divergent tail that reaches below what is in memory |
//! | `decommission` | what only a replica has that is about to be removed |
//! | `relocate` | an engine whose place is lost, and another place |
//! | `recovered` | what a start found of its log |
//! | `state` | what all roles share: append, truncate, publish, trim |

pub(crate) mod aside;
pub(crate) mod configure;
pub(crate) mod decommission;
pub(crate) mod recovered;
pub(crate) mod relocate;
pub(crate) mod state;
pub(crate) mod status;

use crate::config::Config;
use crate::damage::Damage;
use crate::features::Features;
use crate::lease::Leases;
use crate::log_state::LogState;
use crate::marks::Marks;
use crate::output::{Origin, Output};
use crate::primary::{Primary, View};
use crate::readers::Readers;
pub(crate) use crate::role::Role;
use crate::settings::Settings;
use crate::tail::Tail;
use crate::transfer::Transfer;
use aside::Aside;
pub use decommission::{STAYS, has_moved};
pub use recovered::Recovered;
use types::{Engine, Lsn, Member, Micros, Now, PartitionId, PartitionRecord, Position, Rules};

/// What every input is handled with.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    pub leases: &'a mut dyn Leases,
    pub out: &'a mut Vec<Output>,
    pub settings: &'a Settings,
}

/// One replica of one partition.
pub struct Replica {
    pub(crate) me: Member,
    pub(crate) id: PartitionId,
    pub(crate) rules: Rules,
    pub(crate) config: Config,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) log: LogState,
    pub(crate) marks: Marks,
    pub(crate) role: Role,
    pub(crate) readers: Readers,
    /// Indexes, bulk loads, scrubbing.
    pub(crate) features: Features,
    /// The state itself on its way from here, or to here.
    pub(crate) transfer: Transfer,
    /// Entries that the engine is to execute are being read back.
    pub(crate) replay_reads: bool,
    pub(crate) commits: u64,
}

impl Replica {
    /// A replica as it was found at the start; it leads nothing (R1). Entries from [`Replica::to_replay`] on must be given
    /// to [`Replica::replay`] before anything else.
    pub fn recover(
        me: Member,
        id: PartitionId,
        rules: Rules,
        engine: Box<dyn Engine>,
        found: Recovered,
    ) -> Replica {
        assert!(!found.storage_lost || found.damaged.is_some(), "{id}: an engine without a place is no copy");
        let persisted = engine.persisted();
        let kept_for_files = rules.log_is_kept_for_members();
        let damaged = found.damaged.clone().or_else(|| found.misfit(persisted, kept_for_files));
        let keeps_tail = found.keeps_tail(persisted, damaged.is_some());
        let committed = if keeps_tail { found.secured.min(found.end.lsn) } else { persisted.lsn };
        // What is said of a log holds for that log, not for files that may be of another one.
        let files = if keeps_tail { Lsn::ZERO } else { persisted.lsn };
        let is_damaged = damaged.is_some();
        let role = damaged.map_or(Role::Idle, |reason| {
            let mut damage = Damage::new(reason, Micros::ZERO);
            if found.storage_lost {
                damage.lose_storage();
            }
            Role::Damaged(damage)
        });
        Replica {
            me,
            id,
            rules,
            config: Config::default(),
            log: LogState::recover(&found, persisted, is_damaged),
            marks: Marks::new(committed, found.secured.max(files)),
            role,
            readers: Readers::default(),
            features: Features::default(),
            transfer: Transfer::new(engine.ships_files()),
            replay_reads: false,
            commits: 0,
            engine,
        }
    }

    /// Its partition.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// The newest configuration known.
    pub fn record(&self) -> Option<&PartitionRecord> {
        self.config.record()
    }

    /// The engine, for checks and for reads that a driver does by itself.
    pub fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    /// The engine, for checkpoints.
    pub fn engine_mut(&mut self) -> &mut dyn Engine {
        self.engine.as_mut()
    }

    /// The partition's `committed` as known here.
    pub fn committed(&self) -> Lsn {
        self.marks.committed()
    }

    /// The last entry.
    pub fn end(&self) -> Position {
        self.log.end()
    }

    /// True if it can be used only after it was given a copy.
    pub fn is_damaged(&self) -> bool {
        self.role.is_damaged()
    }

    /// The newest entries, for the simulator's checks.
    pub fn tail(&self) -> &Tail {
        self.log.tail()
    }

    /// True if clients' writes are served here.
    pub fn serves(&self) -> bool {
        matches!(&self.role, Role::Leader(leader) if leader.promotion.serves())
    }

    /// Commits acknowledged here.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Whom its messages are from; none before the first configuration.
    pub(crate) fn origin(&self) -> Option<Origin> {
        let epoch = self.config.record()?.epoch;
        Some(Origin { partition: self.id, epoch, me: self.me })
    }

    pub(crate) fn leader(&mut self) -> Option<&mut Primary> {
        match &mut self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    /// The primary's part, if this replica leads, with what it looks at beside it.
    pub(crate) fn leading(&self) -> Option<(&Primary, View<'_>)> {
        match (&self.role, self.config.record()) {
            (Role::Leader(primary), Some(record)) => Some((primary, self.view(record))),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn leading_mut(&mut self) -> Option<(&mut Primary, View<'_>)> {
        let (marks, published) = (self.watermarks(), self.engine.published().lsn);
        let (Role::Leader(primary), Some(record)) = (&mut self.role, self.config.record()) else {
            return None;
        };
        let view = View {
            me: self.me,
            id: self.id,
            record,
            rules: self.rules,
            marks,
            committed: self.marks.committed(),
            secured: self.marks.secured(),
            published,
            end: self.log.end(),
            torn: self.log.is_torn(),
        };
        Some((primary, view))
    }

    fn view<'a>(&'a self, record: &'a PartitionRecord) -> View<'a> {
        View {
            me: self.me,
            id: self.id,
            record,
            rules: self.rules,
            marks: self.watermarks(),
            committed: self.marks.committed(),
            secured: self.marks.secured(),
            published: self.engine.published().lsn,
            end: self.log.end(),
            torn: self.log.is_torn(),
        }
    }

    /// Runs after every event in tests and in the simulator (habits 6): the order of all positions.
    pub fn validate(&self) -> Result<(), String> {
        let (published, applied, end) = (self.engine.published(), self.engine.applied(), self.log.end());
        let ordered = |what: &str, low: Lsn, high: Lsn| {
            if low <= high { Ok(()) } else { Err(format!("{}: {what}: {low} > {high}", self.id)) }
        };
        self.config.validate()?;
        if let Some(backup) = self.role.backup() {
            backup.validate()?;
        }
        if let (Role::Leader(primary), Some(record)) = (&self.role, self.config.record()) {
            primary.validate(record).map_err(|fault| format!("{}: {fault}", self.id))?;
        }
        if self.role.is_damaged() || self.copying() {
            return Ok(());
        }
        self.log.validate().map_err(|what| format!("{}: {what}", self.id))?;
        self.marks
            .validate(end.lsn, published.lsn, self.engine.persisted().lsn)
            .map_err(|what| format!("{}: {what}", self.id))?;
        self.transfer.validate(self.role.pins_sent()).map_err(|why| format!("{}: {why}", self.id))?;
        self.readers.aggregates.validate()?;
        self.features.validate(self.role.term(), end.lsn).map_err(|why| format!("{}: {why}", self.id))?;
        ordered("published <= applied", published.lsn, applied.lsn)?;
        match self.lags() {
            true => ordered("the log holds what is not applied", self.log.base().lsn, applied.lsn)?,
            false => ordered(
                "the tail holds what is not published",
                self.log.tail().base().lsn,
                published.lsn.max(self.log.base().lsn).max(self.marks.surely_kept(self.log.durable())),
            )?,
        }
        if applied != end && !self.may_lag() {
            return Err(format!("{}: applied {applied} is not the log's end {end}", self.id));
        }
        ordered("applied <= received", applied.lsn, end.lsn)
    }

    /// True if rows of the engine are to be set aside next.
    pub(crate) fn asides(&self) -> bool {
        self.log.aside().is_some_and(Aside::has_rows)
    }

    /// True if the engine may follow the log later: a cold standby's, or what was one until a moment ago.
    pub(crate) fn may_lag(&self) -> bool {
        !self.serves() && !matches!(&self.role, Role::Leader(leader) if leader.promotion.marker().is_some())
    }

    pub(crate) fn copying(&self) -> bool {
        self.role.is_copying()
    }

    /// Sends what is due after a batch of inputs.
    pub(crate) fn flush(&mut self, ctx: &mut Ctx) {
        self.settle_torn(ctx);
        let (persisted, origin) = (self.engine.persisted(), self.origin());
        match &mut self.role {
            Role::Leader(leader) => {
                if let Some(origin) = origin {
                    leader.answer_flushes(origin, persisted, ctx.out);
                }
                self.ship(ctx);
                self.advance(ctx);
                self.hand_over_step(ctx);
            }
            Role::Backup(_) => self.acknowledge(ctx, false),
            _ => {}
        }
        self.transfer.outgoing.sweep(self.engine.as_mut(), self.role.pins_sent());
        self.forget(ctx);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, ctx: &mut Ctx) {
        self.readers.close_idle(ctx.now.mono);
        if let Role::Backup(_) = &self.role {
            self.acknowledge(ctx, true);
        }
        self.receive_tick(ctx);
        self.pending_flush_tick(ctx);
        self.loads_tick(ctx);
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        self.promote_tick(ctx);
        self.expire(ctx);
        self.expire_sessions(ctx);
        self.resend(ctx);
        self.reconsider(ctx);
        self.prepare_tick(ctx);
        self.ship(ctx);
        self.advance(ctx);
        self.tell_positions(ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use types::Term;

    pub(crate) fn at(epoch: u64, lsn: u64) -> Position {
        Position::new(Term(epoch), Lsn(lsn))
    }

    /// A log from (1,10) to (2,20), whose second epoch begins at 15.
    pub(crate) fn log() -> Recovered {
        let history = History::new(vec![(Term(1), Lsn(1)), (Term(2), Lsn(15))]).expect("ascends");
        Recovered { base: at(1, 10), end: at(2, 20), history, ..Recovered::nothing() }
    }

    #[test]
    pub(crate) fn f15_files_that_are_not_of_this_log_are_damage() {
        let why = |persisted: Position| log().misfit(persisted, true).unwrap_or_default();
        for sound in [at(1, 10), at(1, 14), at(2, 15), at(2, 20)] {
            assert_eq!(why(sound), "", "{sound}");
        }
        assert!(why(at(1, 9)).starts_with("F13: "), "{}", why(at(1, 9)));
        assert!(why(at(2, 21)).starts_with("PR-35: "), "{}", why(at(2, 21)));
        // A copy of a newer term was installed, and the log still has what it replaced; and the other way round.
        for other in [at(2, 10), at(2, 14), at(3, 15), at(1, 20), at(3, 20)] {
            assert!(why(other).starts_with("F15: "), "{other}: {}", why(other));
        }
    }

    #[test]
    pub(crate) fn r9_a_log_may_diverge_unless_the_files_have_all_of_it() {
        for persisted in [Position::ZERO, at(1, 14), at(2, 19), at(3, 25)] {
            assert!(log().may_diverge(persisted), "{persisted}");
        }
        assert!(!log().may_diverge(at(2, 20)) && !log().may_diverge(at(2, 21)));
        assert!(!Recovered { whole: false, ..log() }.may_diverge(Position::ZERO));
        assert!(!Recovered { base: at(2, 20), ..log() }.may_diverge(Position::ZERO), "it has no entry");
    }
}
