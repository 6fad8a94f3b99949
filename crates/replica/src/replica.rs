//! One replica of one partition: a log, an engine, a configuration and a role (design sections 2, 5, 6).
//!
//! Its parts: what it has (`data`: log, engine, marks), its configuration (`config`), what it is (`role`: a
//! `primary`, a `backup`, or damaged), who reads (`readers`), the state on its way here (`transfer`), what
//! tables can do beside keeping rows (`features`). What one part can do is with that part. Here are the
//! functions that need several at once:
//!
//! | file | what |
//! | --- | --- |
//! | `call` | the turns of calls of procedures |
//! | `change` | proposals, and the entry of a policy |
//! | `configure` | a new configuration: step up, step down, go on |
//! | `copy` | the state as it is copied row by row, taken in |
//! | `decommission` | what only a replica has that is about to be removed |
//! | `follow` | appends, and what a new primary asks for |
//! | `horizon` | what is kept for snapshots of transactions over partitions |
//! | `lead` | what members are sent, how far commits reach |
//! | `load` | bulk loads between a primary and its members |
//! | `promote` | R6: gather, fetch, mark, serve |
//! | `receive` | files that are taken in, and become the state |
//! | `relocate` | an engine whose place is lost, and another place |
//! | `row_turns` | whose transaction changes a row next |
//! | `serve` | clients' requests and their answers |
//! | `state` | damage, publication, engines that follow their log later, checkpoints |
//! | `status` | what is told to people |

pub(crate) mod call;
pub(crate) mod change;
pub(crate) mod configure;
pub(crate) mod copy;
pub(crate) mod decommission;
pub(crate) mod follow;
pub(crate) mod horizon;
pub(crate) mod large;
pub(crate) mod lead;
pub(crate) mod load;
pub(crate) mod promote;
pub(crate) mod receive;
pub(crate) mod relocate;
pub(crate) mod row_turns;
pub(crate) mod serve;
pub(crate) mod state;
pub(crate) mod status;

use crate::backup::acks::Due;
use crate::config::Config;
use crate::context::{Ctx, Identity};
use crate::damage::Damage;
use crate::data::{Data, Kept};
use crate::features::Features;
use crate::log_state::LogState;
use crate::marks::Marks;
use crate::primary::{Primary, View};
use crate::readers::Readers;
use crate::recovered::Recovered;
pub(crate) use crate::role::Role;
use crate::serve::large::LargeWrites;

use crate::transfer::{Transfer, flush};
pub use decommission::{STAYS, has_moved};
use types::{Engine, Lsn, Member, Micros, PartitionId, PartitionRecord, Rules};

/// One replica of one partition.
pub struct Replica {
    pub(crate) identity: Identity,
    pub(crate) config: Config,
    /// Its log and its engine.
    pub(crate) data: Data,
    /// Whether it leads, follows, does neither, or is damaged.
    pub(crate) role: Role,
    pub(crate) readers: Readers,
    /// Writes of many rows, whose rows are read ahead.
    pub(crate) large: LargeWrites,
    /// Indexes, scrubbing.
    pub(crate) features: Features,
    /// The state itself on its way from here, or to here.
    pub(crate) transfer: Transfer,
    pub(crate) commits: u64,
}

impl Replica {
    /// A replica as it was found at the start; it leads nothing (R1). Entries from [`LogState::to_replay`] on
    /// must be given to [`Replica::replay`] before anything else.
    pub fn recover(
        me: Member,
        id: PartitionId,
        rules: Rules,
        engine: Box<dyn Engine>,
        found: Recovered,
    ) -> Replica {
        assert!(!found.storage_lost || found.damaged.is_some(), "{id}: an engine without a place is no copy");
        let identity = Identity { me, id, rules };
        let damaged = found.damage(engine.persisted(), rules.log_is_kept_for_members());
        let transfer = Transfer::new(engine.ships_files());
        let data = Data::recover(identity, engine, &found, damaged.is_some());
        let role = damaged.map_or(Role::Idle, |reason| {
            let mut damage = Damage::new(reason, Micros::ZERO);
            if found.storage_lost {
                damage.lose_storage();
            }
            Role::Damaged(damage)
        });
        Replica {
            identity,
            config: Config::default(),
            data,
            role,
            readers: Readers::default(),
            large: LargeWrites::default(),
            features: Features::default(),
            transfer,
            commits: 0,
        }
    }

    /// Its partition.
    pub fn id(&self) -> PartitionId {
        self.identity.id
    }

    /// The newest configuration known.
    pub fn record(&self) -> Option<&PartitionRecord> {
        self.config.record()
    }

    /// The engine, for checks and for reads that a driver does by itself.
    pub fn engine(&self) -> &dyn Engine {
        self.data.engine.as_ref()
    }

    /// The engine, for checkpoints.
    pub fn engine_mut(&mut self) -> &mut dyn Engine {
        self.data.engine.as_mut()
    }

    /// Its log.
    pub fn log(&self) -> &LogState {
        &self.data.log
    }

    /// How far the partition is, as known here.
    pub fn marks(&self) -> &Marks {
        &self.data.marks
    }

    /// True if it can be used only after it was given a copy.
    pub fn is_damaged(&self) -> bool {
        self.role.is_damaged()
    }

    /// True if it has a whole state: it is not damaged, and is not in the middle of taking in a copy.
    pub fn is_whole(&self) -> bool {
        !self.role.is_damaged() && !self.role.is_copying()
    }

    /// True if clients' writes are served here.
    pub fn serves(&self) -> bool {
        matches!(&self.role, Role::Leader(leader) if leader.promotion.serves())
    }

    /// Commits acknowledged here.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// The primary's part, if this replica leads, with what it looks at beside it.
    pub(crate) fn leading(&self) -> Option<(&Primary, View<'_>)> {
        match (&self.role, self.config.record()) {
            (Role::Leader(primary), Some(record)) => {
                Some((primary, View::new(self.identity, record, &self.data)))
            }
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn leading_mut(&mut self) -> Option<(&mut Primary, View<'_>)> {
        match (&mut self.role, self.config.record()) {
            (Role::Leader(primary), Some(record)) => {
                Some((primary, View::new(self.identity, record, &self.data)))
            }
            _ => None,
        }
    }

    /// Runs after every event in tests and in the simulator (habits 6).
    pub fn validate(&self) -> Result<(), String> {
        let here = |fault: String| format!("{}: {fault}", self.identity.id);
        let record = self.config.record();
        self.config.validate()?;
        self.role.validate(record).map_err(here)?;
        if record.is_some_and(|record| record.policy.log != self.data.log.kind()) {
            return Err(here("the log is not kept where the configuration says".into()));
        }
        if self.role.is_damaged() || self.role.is_copying() {
            return Ok(());
        }
        // The engine may follow the log later: a cold standby's, or what was one until a moment ago.
        let marked = matches!(&self.role, Role::Leader(leader) if leader.promotion.marker().is_some());
        self.data.validate(self.role.lags(&self.data), !marked).map_err(here)?;
        self.transfer.validate(self.role.pins_sent()).map_err(here)?;
        self.readers.aggregates.validate().map_err(here)?;
        self.large.validate().map_err(here)?;
        self.features.validate(self.role.term(), self.data.log.end().lsn).map_err(here)
    }

    /// Sends what is due after a batch of inputs.
    pub(crate) fn flush(&mut self, ctx: &mut Ctx) {
        let term = self.config.record().map(|record| record.term);
        if self.data.log.is_torn() && self.role.settles_torn(&self.data.log, term) {
            ctx.out.extend(self.data.log.settle_torn(self.identity.id));
        }
        let (persisted, origin) = (self.data.engine.persisted(), self.config.origin(self.identity));
        match &mut self.role {
            Role::Leader(leader) => {
                if let Some(origin) = origin {
                    leader.answer_flushes(origin, persisted, ctx.out);
                }
                self.ship(ctx);
                self.advance(ctx);
                if let Some((primary, view)) = self.leading_mut() {
                    primary.hand_over_step(&view, ctx);
                }
                lead::ask_successor(self, ctx);
            }
            role => {
                let who = (self.identity.me, self.config.record());
                ctx.out.extend(role.acknowledge(
                    &self.data,
                    who,
                    Due::new(ctx.settings, ctx.now.mono, false),
                ));
            }
        }
        self.transfer.outgoing.sweep(self.data.engine.as_mut(), self.role.pins_sent());
        let kept = Kept {
            memory: self.is_damaged() || self.transfer.incoming.is_installing(),
            later: self.role.lags(&self.data) || self.role.is_cold(&self.config, &self.data),
            held: self.leading().map_or(Lsn::MAX, |(primary, view)| primary.held(&view)),
            short: self.config.no_room() && self.role.backup().is_some(),
        };
        self.data.forget(ctx, kept);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, ctx: &mut Ctx) {
        self.readers.close_idle(ctx.now.mono, self.data.written());
        horizon::keep(self, ctx.now.mono);
        let who = (self.identity.me, self.config.record());
        ctx.out.extend(self.role.acknowledge(&self.data, who, Due::new(ctx.settings, ctx.now.mono, true)));
        self.receive_tick(ctx);
        let (follows, receives) = (self.role.backup().is_some(), self.transfer.incoming.is_receiving());
        if let Some(record) = self.config.record() {
            let (flush, to) = (&mut self.transfer.flush, (record, self.identity.me));
            let out = flush::tick(flush, &mut self.data, to, (follows, receives), ctx.now.mono);
            ctx.out.extend(out);
        }
        self.loads_tick(ctx);
        self.promote_tick(ctx);
        let (id, now) = (self.identity.id, ctx.now.mono);
        let Some(leader) = self.role.leader_mut() else { return };
        leader.expire(id, now, ctx.out);
        row_turns::tick(self, ctx);
        if self.role.leader_mut().is_some_and(|leader| leader.checks_sessions(now, ctx.settings.session_ttl))
        {
            self.write_own(ctx, |writing| writing.expire_sessions());
        }
        if let Some((primary, view)) = self.leading_mut() {
            primary.resend(&view, now, ctx.settings);
        }
        self.reconsider(ctx);
        if let Some((primary, view)) = self.leading_mut() {
            primary.prepare_tick(&view, ctx);
        }
        self.ship(ctx);
        self.advance(ctx);
        let every = Micros(ctx.settings.heartbeat.0 * 5);
        let due = self.leading_mut().map(|(primary, view)| primary.positions_due(&view, now, every));
        for (member, prev) in due.unwrap_or_default() {
            self.send(ctx, member, |sender| {
                sender.tell_positions(prev);
                Ok(())
            });
        }
    }
}
