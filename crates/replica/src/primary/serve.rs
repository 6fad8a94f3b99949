//! Clients' requests at a replica: writes with exactly-once sessions (N13), reads at `committed` (R4, R5), and replies that
//! wait for what they did and saw (N7, R12).

use crate::features::bulk::{loading, readable};
use crate::features::{index, job};
use crate::output::{ClientRef, Output};
use crate::primary::reply_queue::{AckCondition, Waiting};
use crate::replica::{Ctx, Replica, Role};
use crate::session::{self, Seen, feed_key, row_key};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::engine::{EngineError, space};
use types::{Lsn, Micros, Mutation, Position, ReadAt};
use wire::entry::Kind;
use wire::request::{FeedMark, Hint, Snapshot};
use wire::{Body, Effects, Entry, Header, Op, Outcome, ReadLevel, Reply, Request, RowOp, Status};

/// The most bytes of rows in one reply to a scan.
pub(crate) const SCAN_BYTES: usize = 4 << 20;

/// What a write comes to: its outcome, how many rows change, and how.
pub(crate) type Evaluated = (Outcome, u32, Vec<Mutation>);

impl Replica {
    /// A client's request. Every path ends in exactly one reply, now or later.
    pub(crate) fn on_request(&mut self, ctx: &mut Ctx, to: ClientRef, request: Request) {
        let any = matches!(request.read, ReadLevel::Any { .. }) && !request.op.needs_primary();
        // Connections check this too; an engine has only assertions left (PR-72).
        if let Err(fault) = request.validate() {
            return self.answer(ctx, to, &request, Status::Bad(fault), Body::None, None);
        }
        if let Some(status) = self.not_here(&request, any) {
            return self.answer(ctx, to, &request, status, Body::None, None);
        }
        match &request.op {
            Op::Write { ops, mark, since } => self.write(ctx, to, &request, ops, (*mark, *since)),
            Op::OpenSession => self.open_session(ctx, to, &request),
            Op::Pause { .. } | Op::Resume { .. } => self.on_pause(ctx, to, &request),
            Op::Scrub { start } => {
                let (status, body) = self.features.scrub.ask(*start);
                self.answer(ctx, to, &request, status, body, None);
            }
            Op::Stage { .. } | Op::StagePiece { .. } | Op::Unstage { .. } | Op::Load { .. } => {
                self.on_load(ctx, to, request)
            }
            Op::Job { .. } | Op::EndJob { .. } => self.on_job(ctx, to, &request),
            Op::GiveUp { source, why } => self.on_give_up(ctx, to, &request, (*source, why)),
            _ => self.read(ctx, to, request, any),
        }
    }

    /// Why this replica does not handle the request, if so.
    pub(crate) fn not_here(&self, request: &Request, any: bool) -> Option<Status> {
        let Some(record) = self.config.record() else {
            return Some(Status::NotFound("no such partition here".into()));
        };
        if record.table != request.table {
            return Some(Status::NotFound(format!(
                "partition {} is not of table {}",
                self.id, request.table
            )));
        }
        // What is said of its files does not rest on its state.
        let files = matches!(request.op, Op::Scrub { .. } | Op::GiveUp { .. });
        if any && self.lags() && !files {
            return Some(Status::NotYet("this replica keeps the log only: it is a cold standby".into()));
        }
        match &self.role {
            Role::Leader(leader) => match leader.promotion.serves() {
                true if leader.membership.holds_writes() && !any => {
                    Some(Status::NotYet("the partition is being handed over".into()))
                }
                true => None,
                false if any => None,
                false => Some(
                    self.too_few()
                        .unwrap_or_else(|| Status::NotYet("the new primary is not ready yet".into())),
                ),
            },
            Role::Backup(backup) if any && !backup.copy.is_open() => None,
            Role::Damaged(damage) if any => Some(Status::Corrupt(damage.reason().into())),
            _ => Some(Status::NotPrimary),
        }
    }

    /// The sentence for a partition with fewer copies than its policy allows, if that is so now.
    pub(crate) fn too_few(&self) -> Option<Status> {
        let record = self.config.record()?;
        let (have, min) = (record.in_sync.len(), record.policy.min_in_sync);
        if record.policy.allows(have) {
            return None;
        }
        let left: Vec<String> = record.in_sync.iter().map(|member| member.node.to_string()).collect();
        Some(Status::TooFewCopies(format!(
            "partition {} has {have} of at least {min} copies left (on {}); start the other nodes again, or go on with \
             fewer: `understudy table alter TABLE --min-in-sync {have}`, or `--available`",
            self.id,
            left.join(", ")
        )))
    }

    /// Sends a reply at once.
    pub(crate) fn answer(
        &self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        status: Status,
        body: Body,
        valid_until: Option<Micros>,
    ) {
        self.answer_as_of(ctx, to, request, (status, body), self.marks.committed(), valid_until);
    }

    /// The same for what was read at `lsn`.
    pub(crate) fn answer_as_of(
        &self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        (status, body): (Status, Body),
        lsn: Lsn,
        valid_until: Option<Micros>,
    ) {
        let mut reply = self.reply(request, status, body);
        reply.lsn = lsn;
        if matches!(reply.status, Status::NotPrimary) {
            reply.hint = self.config.record().map(|record| Box::new(Hint::new(record)));
        }
        self.give(ctx, to, reply, valid_until);
    }

    /// Answers a request at which the engine failed: nothing was done for it. What is damaged ends the replica, and with it what waits
    /// is answered.
    pub(crate) fn engine_failed(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        error: EngineError,
    ) {
        let reason = error.to_string();
        let status = match error {
            EngineError::SnapshotTooOld { .. } => Status::TooOld(reason),
            EngineError::Later(_) => Status::NotYet(reason),
            _ => {
                self.fail(ctx, reason.clone());
                Status::Corrupt(reason)
            }
        };
        self.answer(ctx, to, request, status, Body::None, None);
    }

    fn give(&self, ctx: &mut Ctx, to: ClientRef, reply: Reply, valid_until: Option<Micros>) {
        ctx.out.push(Output::Reply { partition: self.id, to, reply: Box::new(reply), valid_until });
    }

    pub(crate) fn reply(&self, request: &Request, status: Status, body: Body) -> Reply {
        let record = self.config.record();
        Reply {
            id: request.id,
            status,
            lsn: self.marks.committed(),
            epoch: record.map_or(types::Epoch::ZERO, |record| record.epoch),
            policy: record.map_or(0, |record| record.policy.version),
            copies: 0,
            hint: None,
            body,
        }
    }

    /// Holds a reply back until `committed` covers `at` (N7): the entry that it tells of.
    pub(crate) fn answer_at(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        at: Lsn,
        reply: Reply,
    ) {
        self.hold_back(ctx, to, request, (at, AckCondition::Entry), reply);
    }

    /// The same for what is told in another way.
    pub(crate) fn hold_back(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        (at, condition): (Lsn, AckCondition),
        mut reply: Reply,
    ) {
        if reply.lsn == Lsn::ZERO {
            reply.lsn = at;
        }
        let deadline = match request.deadline_ms {
            0 => Micros::ZERO,
            ms => ctx.now.mono + Micros::from_millis(ms),
        };
        let Some(leader) = self.leader() else {
            reply.status = Status::Unknown("the primary changed: it may have been done".into());
            return self.give(ctx, to, reply, None);
        };
        leader.replies.push(Waiting { lsn: at, to, reply, condition, deadline });
    }

    fn write(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        ops: &[RowOp],
        (mark, since): (Option<FeedMark>, Option<Position>),
    ) {
        if let Some(status) = self.too_few().or_else(|| self.overfull(ctx)) {
            return self.answer(ctx, to, request, status, Body::None, None);
        }
        let hash = request_hash(ops, mark, since);
        match self.check_session(request, hash) {
            Ok(None) => {}
            Ok(Some(reply)) => {
                return self.answer_seen(ctx, to, request, reply);
            }
            Err(error) => return self.engine_failed(ctx, to, request, error),
        }
        if let Some(status) = loading(self.engine.as_ref()) {
            return self.answer(ctx, to, request, status, Body::None, None);
        }
        let evaluated = self.evaluate(ops, mark, since).and_then(|evaluated| {
            let (indexes, engine) = (&mut self.features.indexes, self.engine.as_ref());
            indexes.with_index_rows(engine, self.role.term(), self.rules, evaluated)
        });
        let (outcome, affected, mutations) = match evaluated {
            Ok(evaluated) => evaluated,
            Err(error) => return self.engine_failed(ctx, to, request, error),
        };
        let status = if outcome == Outcome::Done { Status::Ok } else { Status::Refused(outcome) };
        if outcome != Outcome::Done && !request.session.is_some() {
            // Nothing is logged, but what was seen may not be committed yet (PR-23).
            let mut reply = self.reply(request, status, Body::Affected(0));
            reply.lsn = self.log.end().lsn;
            if !self.rules.refusals_wait() {
                return self.give(ctx, to, reply, None);
            }
            return self.hold_back(ctx, to, request, (self.log.end().lsn, AckCondition::Seen), reply);
        }
        let effects = Effects {
            request_hash: hash,
            confirmed: request.confirmed,
            outcome: outcome as u8,
            affected,
            mutations,
        };
        let at = match self.log_effects(ctx, request, effects) {
            Ok(at) => at,
            Err(error) => return self.engine_failed(ctx, to, request, error),
        };
        let mut reply = self.reply(request, status, Body::Affected(affected));
        (reply.lsn, reply.epoch) = (at.lsn, at.term.began());
        self.answer_at(ctx, to, request, at.lsn, reply);
    }

    /// Answers from what was seen of a session, when all that was seen is committed (PR-22).
    pub(crate) fn answer_seen(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request, reply: Reply) {
        let repeated = matches!(reply.status, Status::Ok | Status::Refused(_));
        if self.rules.duplicates_wait() {
            let seen = self.log.end().lsn;
            let told = if repeated { AckCondition::Entry } else { AckCondition::Seen };
            return self.hold_back(ctx, to, request, (seen, told), reply);
        }
        self.give(ctx, to, reply, None);
    }

    /// Replies that wait for `committed` or `secured`.
    pub fn waiting(&self) -> usize {
        match &self.role {
            Role::Leader(leader) => leader.replies.len(),
            _ => 0,
        }
    }

    /// Too much is waiting for slow backups: new writes wait at the client (F19). Replies are counted beside the bytes: those
    /// to repeated requests and refusals wait without an entry of their own.
    pub(crate) fn overfull(&self, ctx: &Ctx) -> Option<Status> {
        if self.waiting() >= ctx.settings.waiting_replies {
            return Some(Status::NotYet(
                "as many replies wait for the backups as this partition may keep".into(),
            ));
        }
        let waiting = self.log.end().lsn.0 - self.marks.committed().0.min(self.log.end().lsn.0);
        if waiting == 0 || self.log.tail().bytes() < ctx.settings.uncommitted_bytes {
            return None;
        }
        Some(Status::NotYet("the backups are behind by more than this partition may hold back".into()))
    }

    /// Where the request stands in its session: `None` to go on; else a reply to what was seen.
    pub(crate) fn check_session(&self, request: &Request, hash: u64) -> Result<Option<Reply>, EngineError> {
        let seen = session::check(self.engine.as_ref(), self.rules, request, hash)?;
        Ok(seen.map(|Seen { status, body, at }| {
            let mut reply = self.reply(request, status, body);
            if let Some(at) = at {
                (reply.lsn, reply.epoch) = (at.lsn, at.term.began());
            }
            reply
        }))
    }

    /// Runs the operations on the newest state: their outcome, how many rows change, and how.
    fn evaluate(
        &self,
        ops: &[RowOp],
        mark: Option<FeedMark>,
        since: Option<Position>,
    ) -> Result<Evaluated, EngineError> {
        if since.is_some_and(|since| !self.on_history(since)) {
            return Ok((Outcome::Changed, 0, Vec::new()));
        }
        let mut mutations = Vec::with_capacity(ops.len() + 2);
        // A write sees its own earlier operations.
        let mut own: BTreeMap<Bytes, bool> = BTreeMap::new();
        let looks = ops.len() > 1 && ops.iter().any(|op| !matches!(op, RowOp::Put { .. }));
        let mut affected = 0;
        for op in ops {
            let key = row_key(op.key());
            let exists = match (op, own.get(&key)) {
                (RowOp::Put { .. }, _) => true,
                (_, Some(exists)) => *exists,
                _ => {
                    let newest = self.engine.get(&key, ReadAt::Applied)?.map(|(lsn, _)| lsn);
                    let since = since.filter(|_| self.rules.first_committer_wins());
                    if let Some(outcome) = unfit(op, newest, since) {
                        return Ok((outcome, 0, Vec::new()));
                    }
                    newest.is_some()
                }
            };
            match op {
                RowOp::Insert { .. } if exists => return Ok((Outcome::Exists, 0, Vec::new())),
                RowOp::Delete { .. } | RowOp::Update { .. } if !exists => continue,
                RowOp::Keep { .. } => continue,
                _ => {}
            }
            if looks {
                own.insert(key.clone(), op.row().is_some());
            }
            affected += 1;
            mutations.push(Mutation { key, value: op.row().cloned() });
        }
        if let Some(mark) = mark {
            let value = Bytes::copy_from_slice(&mark.position.to_le_bytes());
            mutations.push(Mutation { key: feed_key(mark.feed), value: Some(value) });
        }
        Ok((Outcome::Done, affected, mutations))
    }

    /// True if the state that a reply called so is a part of this log (first committer wins): no term since then began below it.
    pub(crate) fn on_history(&self, snapshot: Position) -> bool {
        !self.rules.snapshots_lie_on_the_history() || self.log.history().holds(snapshot, self.log.end().lsn)
    }

    /// Makes the entry of a write, logs and executes it.
    pub(crate) fn log_effects(
        &mut self,
        ctx: &mut Ctx,
        request: &Request,
        effects: Effects,
    ) -> Result<Position, EngineError> {
        let mut header = self.next_header(ctx, Kind::Rows);
        header.session = request.session;
        header.seq = request.seq;
        header.table = request.table;
        header.schema = request.schema;
        header.unit = request.op.job().map_or(0, |job| job.0);
        let at = header.at;
        let entry = Entry::encode(header, &effects.encode());
        let session = session::mutation_of(self.engine.as_ref(), &entry, &effects)?;
        let mut mutations = effects.mutations;
        mutations.extend(session);
        self.append_known(ctx, entry, &mutations);
        Ok(at)
    }

    /// The header of this term's next entry.
    pub(crate) fn next_header(&self, ctx: &Ctx, kind: Kind) -> Header {
        let Role::Leader(leader) = &self.role else { unreachable!("R1: only a leader makes entries") };
        let at = Position::new(leader.term, self.log.end().lsn.next());
        let mut header = Header::new(kind, self.id, at, self.log.end_crc());
        header.wall_ms = ctx.now.wall_ms;
        header
    }

    fn open_session(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request) {
        if let Some(status) = self.too_few().or_else(|| self.overfull(ctx)) {
            return self.answer(ctx, to, request, status, Body::None, None);
        }
        let header = self.next_header(ctx, Kind::SessionOpen);
        let at = header.at;
        if let Err(unfit) = self.append(ctx, Entry::encode(header, &[])) {
            let error = EngineError::Library(unfit.reason());
            return self.engine_failed(ctx, to, request, error);
        }
        let mut reply = self.reply(request, Status::Ok, Body::None);
        (reply.lsn, reply.epoch) = (at.lsn, at.term.began());
        self.answer_at(ctx, to, request, at.lsn, reply);
    }

    /// Reads at `committed`: at the primary within its lease, elsewhere within the staleness that was asked for (PR-27).
    fn read(&mut self, ctx: &mut Ctx, to: ClientRef, request: Request, any: bool) {
        if let (true, ReadLevel::Any { max_lag_ms, min_lsn }) = (any, request.read)
            && let Some(status) = self.too_stale(ctx, max_lag_ms, min_lsn)
        {
            return self.answer(ctx, to, &request, status, Body::None, None);
        }
        let (at, lsn) = match self.position_of(ctx, request.op.snapshot()) {
            Ok(position) => position,
            Err(status) => return self.answer(ctx, to, &request, status, Body::None, None),
        };
        if matches!(request.op, Op::Count { .. } | Op::Digest | Op::DigestAt { .. }) {
            return self.start_aggregate(ctx, to, request, (at, lsn));
        }
        let looked = match &request.op {
            op @ Op::Find { .. } => index::find(self.engine.as_ref(), self.id, op, at),
            op => self.look(ctx, op, at).map(|body| (Status::Ok, body)),
        };
        let (status, body) = match looked {
            Ok(answer) => answer,
            Err(error) => return self.engine_failed(ctx, to, &request, error),
        };
        if matches!(&body, Body::Found { next, .. } if !next.is_empty())
            && let ReadAt::Lsn(lsn) = at
        {
            self.readers.open(lsn, ctx.now.mono);
        }
        // The data were read first; the clock is compared when the bytes leave (F01, PR-03).
        let leads = matches!(self.role, Role::Leader(_));
        let valid_until = if any || !leads { None } else { self.lease_until(ctx) };
        self.answer_as_of(ctx, to, &request, (status, body), lsn, valid_until);
    }

    /// Where a read looks, and the LSN that its answer is made at. A state that is asked for by name is kept from now on.
    fn position_of(&mut self, ctx: &Ctx, snapshot: Snapshot) -> Result<(ReadAt, Lsn), Status> {
        let committed = readable(self.engine.as_ref(), self.marks.committed());
        let newest =
            if self.rules.reads_are_at_committed() { ReadAt::Lsn(committed) } else { ReadAt::Applied };
        let wanted = match snapshot {
            Snapshot::Newest => return Ok((newest, committed)),
            Snapshot::Begin => committed,
            Snapshot::At(wanted) if !self.on_history(wanted) => {
                let why =
                    "the snapshot is no part of the partition's history: a failover has lost what it showed";
                return Err(Status::TooOld(why.into()));
            }
            Snapshot::At(wanted) if wanted.lsn > committed => {
                let why = format!("this replica is at LSN {committed}, not at {} yet", wanted.lsn);
                return Err(Status::NotYet(why));
            }
            Snapshot::At(wanted) if wanted.lsn < self.engine.read_floor() => {
                let (asked, read_floor) = (wanted.lsn, self.engine.read_floor());
                return Err(Status::TooOld(EngineError::SnapshotTooOld { asked, read_floor }.to_string()));
            }
            Snapshot::At(wanted) => wanted.lsn,
        };
        self.readers.open(wanted, ctx.now.mono);
        Ok((ReadAt::Lsn(wanted), wanted))
    }

    fn look(&mut self, ctx: &Ctx, op: &Op, at: ReadAt) -> Result<Body, EngineError> {
        Ok(match op {
            Op::Get { key, .. } => Body::Row(self.engine.get(&row_key(key), at)?),
            Op::Scan { from, to, limit, .. } => return self.scan(ctx, from, to, *limit, at),
            Op::Feed { feed } => {
                let row = self.engine.get(&feed_key(*feed), at)?;
                let position = row.and_then(|(_, value)| value[..].try_into().ok().map(u64::from_le_bytes));
                Body::Number(position.unwrap_or(0))
            }
            Op::TermEnd { term } => Body::TermEnd(self.log.history().ended(*term)),
            Op::Indexes => return index::index_status(self.engine.as_ref(), at),
            Op::ShowJob { job } => Body::Job(job::status_of(self.engine.as_ref(), *job, at)?),
            // Each of these is handled by itself, or reads nothing.
            _ => Body::None,
        })
    }

    fn scan(
        &mut self,
        ctx: &Ctx,
        from: &[u8],
        to: &[u8],
        limit: u32,
        at: ReadAt,
    ) -> Result<Body, EngineError> {
        let end = if to.is_empty() { vec![space::ROW + 1] } else { row_key(to).to_vec() };
        let limit = (limit as usize).clamp(1, 100_000);
        let mut rows = self.engine.scan(&row_key(from), &end, at, limit + 1, SCAN_BYTES)?;
        let bytes: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let more = rows.len() > limit || bytes >= SCAN_BYTES;
        rows.truncate(limit);
        if let (ReadAt::Lsn(lsn), true) = (at, more) {
            self.readers.open(lsn, ctx.now.mono);
        }
        let rows = rows.into_iter().map(|row| (row.key.slice(1..), row.lsn, row.value)).collect();
        Ok(Body::Rows { rows, more })
    }
}

/// Why a row whose newest version is this one refuses an operation that rests on a snapshot, if it does: the first committer
/// wins. An insert is refused for the row that is there, with or without one.
fn unfit(op: &RowOp, newest: Option<Lsn>, since: Option<Position>) -> Option<Outcome> {
    let since = since?.lsn;
    match (op, newest) {
        (RowOp::Put { .. } | RowOp::Insert { .. }, _) => None,
        (_, Some(lsn)) if lsn <= since => None,
        _ => Some(Outcome::Changed),
    }
}

/// A hash of what is asked, so that another request under an old number is noticed (PR-47).
fn request_hash(ops: &[RowOp], mark: Option<FeedMark>, since: Option<Position>) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    ops.iter().for_each(|op| hash_row(&mut hash, op));
    if let Some(mark) = mark {
        hash.update(&mark.feed.0.to_le_bytes());
        hash.update(&mark.position.to_le_bytes());
    }
    if let Some(since) = since {
        hash.update(&since.term.0.to_le_bytes());
        hash.update(&since.lsn.0.to_le_bytes());
    }
    hash.digest()
}

/// Adds what a row operation asks to a hash.
pub(crate) fn hash_row(hash: &mut xxhash_rust::xxh3::Xxh3, op: &RowOp) {
    let (kind, row) = match op {
        RowOp::Put { row, .. } => (1u8, &row[..]),
        RowOp::Insert { row, .. } => (2, &row[..]),
        RowOp::Delete { .. } => (3, &[][..]),
        RowOp::Update { row, .. } => (4, &row[..]),
        RowOp::Keep { .. } => (5, &[][..]),
    };
    hash.update(&[kind]);
    hash.update(&(op.key().len() as u64).to_le_bytes());
    hash.update(op.key());
    hash.update(&(row.len() as u64).to_le_bytes());
    hash.update(row);
}
