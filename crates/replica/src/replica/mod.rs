//! One replica of one partition: a log, an engine, a configuration and a role (design sections 2, 5, 6).
//!
//! | file | what |
//! | --- | --- |
//! | `configure` | a new configuration: step up, step down, go on |
//! | `promote` | R6: gather, fetch, mark, wait out, serve |
//! | `serve` | clients' requests, sessions, replies |
//! | `job` | records of jobs, and what a job has done |
//! | `expire` | replies and sessions that nobody waits for or uses |
//! | `tally` | counts and digests, in slices |
//! | `index` | secondary indexes: maintained, built, read |
//! | `pause` | `committed` held back for a moment |
//! | `lead` | log shipping, progress of members, `committed` |
//! | `align` | where a member's log agrees |
//! | `follow` | appends taken in, checked, acknowledged |
//! | `change` | proposals: evictions, joins, hand-overs, policies |
//! | `flush` | who writes the engine to disk |
//! | `warm` | engines that follow their log later: cold standbys |
//! | `depart` | what only a replica has that is about to be removed |
//! | `rehouse` | an engine whose place is lost, and another place |
//! | `copy` | the state itself, for a log that is too old, by rows |
//! | `scrub` | a replica's own files, read back |
//! | `offer`, `receive` | the same by files: the primary's side, the member's |
//! | `state` | what all roles share: append, cut, publish, truncate |

mod align;
mod bulk;
mod change;
mod configure;
mod copy;
mod depart;
mod expire;
mod failback;
mod flush;
mod follow;
mod index;
mod job;
mod lead;
mod offer;
mod pause;
mod promote;
mod receive;
mod rehouse;
mod scrub;
mod serve;
mod state;
mod status;
mod tally;
mod warm;

use crate::history::History;
use crate::lease::Leases;
use crate::output::{ClientRef, Output};
use crate::settings::Settings;
use crate::tail::Tail;
use change::{Change, HandOver};
use copy::CopyIn;
pub use depart::{STAYS, has_moved};
use failback::Return;
use flush::Wish;
use lead::Progress;
use pause::Pause;
use receive::Incoming;
use scrub::Scrub;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tally::Tallies;
use types::{
    Engine, Epoch, Lsn, Member, Micros, Now, PartitionId, PartitionRecord, PinId, Policy, Position, Remedy,
};
use warm::Preparing;
use wire::Reply;
use wire::peer::Report;

/// What every input is handled with.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    pub leases: &'a mut dyn Leases,
    pub out: &'a mut Vec<Output>,
    pub settings: &'a Settings,
}

/// What a driver found when a node started.
pub struct Recovered {
    /// The position before the first entry of the log on disk.
    pub base: Position,
    /// The checksum of the entry at the base.
    pub base_crc: u32,
    /// The last entry of the log on disk; all of it is durable.
    pub end: Position,
    /// Its checksum.
    pub end_crc: u32,
    /// The epochs in it.
    pub history: History,
    /// What may be published without asking: the newest [`crate::Note::Secured`].
    pub secured: Lsn,
    /// True if a torn end was cut off, or damage was found: then the sentence says what (PR-18).
    pub cut: bool,
    /// Damage that keeps this replica from being used.
    pub damaged: Option<String>,
    /// Every entry from the base to the end is there as it was written, whatever else is damaged: what the primary never
    /// had of them can be set aside before a copy takes their place (R9).
    pub whole: bool,
    /// The place of its engine's files cannot be used: the engine is an empty one that keeps nothing, until the driver gives
    /// another ([`crate::Host::rehouse`]). It is damaged too then.
    pub homeless: bool,
}

impl Recovered {
    /// A replica that never was.
    pub fn nothing() -> Recovered {
        Recovered {
            base: Position::ZERO,
            base_crc: 0,
            end: Position::ZERO,
            end_crc: 0,
            history: History::default(),
            secured: Lsn::ZERO,
            cut: false,
            damaged: None,
            whole: true,
            homeless: false,
        }
    }

    /// Why this log and engine files that end at `persisted` cannot be used together.
    fn misfit(&self, persisted: Position, kept_for_files: bool) -> Option<String> {
        if persisted.lsn < self.base.lsn && kept_for_files {
            let base = self.base;
            return Some(format!(
                "F13: the log begins behind {base} but the engine's files end at {persisted}"
            ));
        }
        if persisted.lsn > self.end.lsn {
            // Nothing says what the entry before the next one was: a copy is needed (PR-35).
            let end = self.end;
            return Some(format!("PR-35: the log ends at {end} below the engine's files at {persisted}"));
        }
        // The files are of a copy, or of entries, that the log on the disk has not got: it is of what was before (F15).
        let other = self.epoch_at(persisted.lsn).is_some_and(|epoch| epoch != persisted.epoch);
        other.then(|| {
            let end = self.end;
            format!(
                "F15: the engine's files end at {persisted}, and the log to {end} has another entry there"
            )
        })
    }

    /// True if the log of a damaged replica may have what is nowhere else.
    fn may_diverge(&self, persisted: Position) -> bool {
        let in_files = persisted.epoch == self.end.epoch && persisted.lsn >= self.end.lsn;
        self.whole && self.end.lsn > self.base.lsn && !in_files
    }

    /// The epoch of the log's entry at `lsn`, where the log has one and it is known.
    fn epoch_at(&self, lsn: Lsn) -> Option<Epoch> {
        match lsn {
            _ if lsn == self.base.lsn => Some(self.base.epoch),
            _ if lsn == self.end.lsn => Some(self.end.epoch),
            _ if lsn < self.base.lsn || lsn > self.end.lsn => None,
            _ => self.history.epoch_at(lsn),
        }
    }
}

/// A reply that waits for `committed` (N7, R12).
#[derive(Debug)]
struct Waiting {
    /// What `committed` must cover.
    lsn: Lsn,
    to: ClientRef,
    /// Complete but for `copies`.
    reply: Reply,
    /// It says how things are and is no entry: as for a read, no epoch fences it, and the lease must hold (R5).
    looked: bool,
    /// When the client stops waiting; zero: never.
    deadline: Micros,
}

/// How far a leader is (R6).
#[derive(Debug)]
enum Phase {
    /// Reports are coming in.
    Gathering { reports: BTreeMap<Member, Report>, since: Micros, asked_at: Micros },
    /// Another member has more; it is being fetched.
    Fetching {
        from: Member,
        to: Position,
        asked_at: Micros,
        /// Requests since the last answer.
        unanswered: u32,
        reports: BTreeMap<Member, Report>,
    },
    /// The log is complete, and the engine does not have all of it yet.
    Warming { reports: Vec<Report> },
    /// The marker is in the log; it must commit, and old promises must run out.
    Marking,
    /// Clients are served.
    Serving,
}

/// What a primary keeps beside the log.
struct Leader {
    /// The epoch in which this reign began: that of its entries.
    reign: Epoch,
    phase: Phase,
    /// Members that had more and did not give it, and since when the reign goes on without them.
    passed_over: BTreeMap<Member, Micros>,
    /// The marker's LSN, once it is appended.
    marker: Option<Lsn>,
    /// Until when this node's own promises to older reigns bind it (PR-02).
    wait_until: Micros,
    /// The last entry kept from older reigns.
    kept: Lsn,
    /// The highest LSN anybody reported of the old primary.
    last_heard: Lsn,
    reconciled_ms: u64,
    members: BTreeMap<Member, Progress>,
    /// The change of the set that was proposed and not decided yet (PR-16).
    change: Option<Change>,
    /// A catching-up member that commits already count, and since when, before it is proposed (PR-15).
    joining: Option<(Member, Micros)>,
    handing: Option<HandOver>,
    preparing: Option<Preparing>,
    waiting: VecDeque<Waiting>,
    /// Replies that wait for `secured` too (PR-82).
    securing: VecDeque<Waiting>,
    /// Lives of nodes seen on connections, where they differ from the record's.
    lives: BTreeMap<types::NodeId, Member>,
    advice: VecDeque<wire::control::Advice>,
    /// The LSN of the policy entry of a change under way, and the policy in it.
    policy_entry: Option<(Lsn, Policy)>,
    next_proposal: u64,
    last_beat: Micros,
    last_told: Lsn,
    sessions_checked: Micros,
    /// `committed` is held back, or was a moment ago.
    pause: Option<Pause>,
}

/// What a backup or a catching-up replica keeps.
struct Follower {
    /// The highest LSN that is known to agree with the present primary: acknowledgements stop here.
    matched: Lsn,
    /// Of the newest append processed.
    echo_us: u64,
    number: u64,
    /// The primary's echo of our own clock: `committed` is not older than this (PR-27).
    fresh_at: Micros,
    acked: types::Watermarks,
    /// The primary's newest `committed`, however far it is beyond this log.
    their_committed: Lsn,
    ack_due: bool,
    copy: Option<CopyIn>,
    /// The newest copy of this reign that was begun. Pieces of it, or of older ones, may come again after its end.
    newest_copy: u64,
    asked_seal: Micros,
    patience: Micros,
}

enum Role {
    /// Holds data, perhaps, but no part in the configuration.
    Idle,
    Leader(Box<Leader>),
    Follower(Follower),
    /// Found damage: refuses everything until it is given a copy.
    Damaged(String),
}

/// One replica of one partition.
pub struct Replica<R: Remedy> {
    me: Member,
    id: PartitionId,
    remedy: R,
    /// The newest configuration known; `None` until the first.
    record: Option<PartitionRecord>,
    engine: Box<dyn Engine>,
    tail: Tail,
    history: History,
    /// The position before the first entry that the log still has.
    log_base: Position,
    durable: Lsn,
    committed: Lsn,
    /// The lowest LSN that every in-sync member has durable (memory logs: received): engine files stop here (R7).
    secured: Lsn,
    /// The lowest LSN that a member may still need (R8).
    kept_from: Lsn,
    /// The newest `secured` that was noted in the log.
    noted: Lsn,
    /// The end of the log that a start found whole on the disk; of a replica that was damaged since, the end of its log then, if
    /// that is whole. Zero once this replica is something else.
    replays_to: Lsn,
    /// It has no place in the configuration, and nothing that only it has.
    departed: bool,
    cut: bool,
    /// When it may be made anew at the earliest, if it is damaged.
    anew_at: Micros,
    /// Its engine's place is lost, and no other one was given yet.
    homeless: bool,
    /// Its own files are read back, or were.
    scrub: Option<Box<Scrub>>,
    role: Role,
    /// Open scans, of clients and of copies: the position each reads at, and when it was last used. Backups have them too.
    scans: BTreeMap<u64, Micros>,
    /// Counts and digests under way.
    tallies: Tallies,
    /// What is known of the indexes, for a leader.
    indexes: Option<index::Known>,
    /// The number of the newest offer of files.
    offers: u64,
    /// Files kept for members.
    pins: BTreeSet<PinId>,
    /// Who was sent the last piece of a file.
    served_piece: Option<Member>,
    /// Files that are being received.
    incoming: Option<Box<Incoming>>,
    /// The newest offer of this reign that was installed.
    installed: u64,
    /// There may be files of a set that was never installed.
    leftovers: bool,
    /// Entries that the engine is to execute are being read back.
    warm_reads: bool,
    /// The primary is asked for files.
    wish: Option<Wish>,
    /// It gave none for long: the next checkpoint is this replica's own.
    makes_own_files: bool,
    /// How it comes back into the set, or did.
    way_back: Return,
    /// The log was short of room in this configuration.
    no_room: bool,
    /// Bulk loads that are staged.
    loads: bulk::Loads,
    configured_at: Micros,
    truncated_at: Micros,
    commits: u64,
}

impl<R: Remedy> Replica<R> {
    /// A replica as it was found at the start; it leads nothing (R1). Entries from [`Replica::to_replay`] on must be given
    /// to [`Replica::replay`] before anything else.
    pub fn recover(
        me: Member,
        id: PartitionId,
        remedy: R,
        engine: Box<dyn Engine>,
        found: Recovered,
    ) -> Replica<R> {
        assert!(!found.homeless || found.damaged.is_some(), "{id}: an engine without a place is no copy");
        let persisted = engine.persisted();
        let kept_for_files = remedy.has(types::Finding::F13);
        let damaged = found.damaged.clone().or_else(|| found.misfit(persisted, kept_for_files));
        let keeps_tail = damaged.is_some() && found.may_diverge(persisted);
        let (base, crc) = if keeps_tail {
            (found.base, found.base_crc)
        } else if persisted.lsn >= found.end.lsn || damaged.is_some() {
            let same = persisted == found.end;
            (persisted, if same { found.end_crc } else { 0 })
        } else if persisted.lsn == found.base.lsn {
            (found.base, found.base_crc)
        } else {
            (persisted, 0)
        };
        let durable = if keeps_tail || damaged.is_none() { found.end.lsn } else { Lsn::ZERO };
        let mut history = found.history;
        if keeps_tail {
            history.cut(found.end.lsn);
        }
        // What is said of a log holds for that log, not for files that may be of another one.
        let files = if keeps_tail { Lsn::ZERO } else { persisted.lsn };
        Replica {
            me,
            id,
            remedy,
            record: None,
            tail: Tail::new(base, crc),
            history,
            log_base: found.base,
            durable,
            committed: if keeps_tail { found.secured.min(found.end.lsn) } else { persisted.lsn },
            secured: found.secured.max(files),
            kept_from: Lsn::ZERO,
            noted: found.secured,
            replays_to: if keeps_tail || damaged.is_none() { found.end.lsn } else { Lsn::ZERO },
            departed: false,
            cut: found.cut,
            anew_at: Micros::ZERO,
            homeless: found.homeless,
            scrub: None,
            role: damaged.map_or(Role::Idle, Role::Damaged),
            scans: BTreeMap::new(),
            tallies: Tallies::default(),
            indexes: None,
            offers: 0,
            pins: BTreeSet::new(),
            served_piece: None,
            incoming: None,
            installed: 0,
            leftovers: engine.capabilities().ships_files,
            warm_reads: false,
            wish: None,
            makes_own_files: false,
            way_back: Return::default(),
            no_room: false,
            loads: bulk::Loads::default(),
            configured_at: Micros::ZERO,
            truncated_at: Micros::ZERO,
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
        self.record.as_ref()
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
        self.committed
    }

    /// The last entry.
    pub fn end(&self) -> Position {
        self.tail.end()
    }

    /// True if it can be used only after it was given a copy.
    pub fn is_damaged(&self) -> bool {
        matches!(self.role, Role::Damaged(_))
    }

    /// The newest entries, for the simulator's checks.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// True if clients' writes are served here.
    pub fn serves(&self) -> bool {
        matches!(&self.role, Role::Leader(leader) if matches!(leader.phase, Phase::Serving))
    }

    /// Commits acknowledged here.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    fn leader(&mut self) -> Option<&mut Leader> {
        match &mut self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    fn follower(&mut self) -> Option<&mut Follower> {
        match &mut self.role {
            Role::Follower(follower) => Some(follower),
            _ => None,
        }
    }

    /// Runs after every event in tests and in the simulator (habits 6): the order of all positions.
    pub fn validate(&self) -> Result<(), String> {
        let (published, applied, end) = (self.engine.published(), self.engine.applied(), self.tail.end());
        let ordered = |what: &str, low: Lsn, high: Lsn| {
            if low <= high { Ok(()) } else { Err(format!("{}: {what}: {low} > {high}", self.id)) }
        };
        if matches!(self.role, Role::Damaged(_)) || self.copying() {
            return Ok(());
        }
        ordered("published <= applied", published.lsn, applied.lsn)?;
        ordered("committed <= received", self.committed, end.lsn)?;
        ordered(
            "R7: published <= committed",
            published.lsn,
            self.committed.max(self.engine.persisted().lsn),
        )?;
        ordered("durable <= received", self.durable, end.lsn)?;
        match self.lags() {
            true => ordered("the log holds what is not applied", self.log_base.lsn, applied.lsn)?,
            false => ordered(
                "the tail holds what is not published",
                self.tail.base().lsn,
                published.lsn.max(self.log_base.lsn).max(self.surely_kept()),
            )?,
        }
        if applied != end && !self.may_lag() {
            return Err(format!("{}: applied {applied} is not the log's end {end}", self.id));
        }
        ordered("applied <= received", applied.lsn, end.lsn)
    }

    /// True if the engine may follow the log later: a cold standby's, or what was one until a moment ago.
    fn may_lag(&self) -> bool {
        !self.serves() && !matches!(&self.role, Role::Leader(leader) if leader.marker.is_some())
    }

    fn copying(&self) -> bool {
        matches!(&self.role, Role::Follower(follower) if follower.copy.is_some())
    }

    /// Sends what is due after a batch of inputs.
    pub(crate) fn flush(&mut self, ctx: &mut Ctx) {
        self.settle_torn(ctx);
        match &self.role {
            Role::Leader(_) => {
                self.answer_flushes(ctx);
                self.ship(ctx);
                self.advance(ctx);
                if matches!(&self.role, Role::Leader(leader) if leader.handing.is_some()) {
                    self.hand_over_step(ctx);
                }
            }
            Role::Follower(_) => self.acknowledge(ctx, false),
            _ => {}
        }
        self.sweep_pins();
        self.forget(ctx);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, ctx: &mut Ctx) {
        self.close_scans(ctx.now.mono);
        if let Role::Follower(_) = &self.role {
            self.acknowledge(ctx, true);
        }
        self.receive_tick(ctx);
        self.wish_tick(ctx);
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

    fn at(epoch: u64, lsn: u64) -> Position {
        Position::new(Epoch(epoch), Lsn(lsn))
    }

    /// A log from (1,10) to (2,20), whose second epoch begins at 15.
    fn log() -> Recovered {
        let history = History::new(vec![(Epoch(1), Lsn(1)), (Epoch(2), Lsn(15))]).expect("ascends");
        Recovered { base: at(1, 10), end: at(2, 20), history, ..Recovered::nothing() }
    }

    #[test]
    fn f15_files_that_are_not_of_this_log_are_damage() {
        let why = |persisted: Position| log().misfit(persisted, true).unwrap_or_default();
        for sound in [at(1, 10), at(1, 14), at(2, 15), at(2, 20)] {
            assert_eq!(why(sound), "", "{sound}");
        }
        assert!(why(at(1, 9)).starts_with("F13: "), "{}", why(at(1, 9)));
        assert!(why(at(2, 21)).starts_with("PR-35: "), "{}", why(at(2, 21)));
        // A copy of a newer reign was installed, and the log still has what it replaced; and the other way round.
        for other in [at(2, 10), at(2, 14), at(3, 15), at(1, 20), at(3, 20)] {
            assert!(why(other).starts_with("F15: "), "{other}: {}", why(other));
        }
    }

    #[test]
    fn r9_a_log_may_diverge_unless_the_files_have_all_of_it() {
        for persisted in [Position::ZERO, at(1, 14), at(2, 19), at(3, 25)] {
            assert!(log().may_diverge(persisted), "{persisted}");
        }
        assert!(!log().may_diverge(at(2, 20)) && !log().may_diverge(at(2, 21)));
        assert!(!Recovered { whole: false, ..log() }.may_diverge(Position::ZERO));
        assert!(!Recovered { base: at(2, 20), ..log() }.may_diverge(Position::ZERO), "it has no entry");
    }
}
