//! Bulk loads (`types::bulk`, PR-39): the files are staged on every replica that counts, one entry marks them, and each replica
//! installs them at the entry's turn.
//!
//! A replica takes the entry only with the files of the load durable beside its engine, so `received` means staged. Until the files
//! are part of the engine's own state, nothing from the entry on is published. The primary installs them by a flush once the
//! entry is committed and secured, and only then does its `committed` pass the entry: what is told and read as committed is in
//! the files. Members follow by the primary's next set, of which they have the load's files already. A primary that dies after
//! the entry was committed leaves it to the next one, which has the files, too.

use crate::output::{ClientRef, Output};
use crate::primary::progress::Mode;
use crate::replica::state::Unfit;
use crate::replica::{Ctx, Replica, Role};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::bulk::load_key;
use types::engine::{mutation_fault, space};
use types::index::IndexState;
use types::{
    Component, EngineError, LoadId, LogKind, Lsn, Member, Micros, Mutation, Position, ReadAt, Staging,
};
use wire::bulk::{LoadMark, LoadStatus, Stage, StageAnswer, StagePiece, Unstage};
use wire::entry::Kind;
use wire::peer::AppendRefused;
use wire::{Body, Effects, Entry, Op, Outcome, PeerMessage, Request, Status};

/// So many loads are staged at once.
const MOST: usize = 8;
/// Members are waited for so long.
const ANSWERS: Micros = Micros::from_millis(1_000);
/// What a member said holds for so long.
const FRESH: Micros = Micros::from_millis(5_000);
/// A load waits so long for merges that run.
const SETTLES: Micros = Micros::from_millis(10_000);

/// Names what a primary stages at a member by itself, in place of a number.
const OURS: u64 = 0;
/// A piece of a file that it sends then, in bytes, and how many at once.
const PIECE: usize = 256 << 10;
const AT_ONCE: usize = 8;

/// What a replica knows of loads beside its engine's files.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// When each was last asked for.
    touched: BTreeMap<LoadId, Micros>,
    /// Those that entries of the log name. An engine that follows its log later does not know of them.
    named: Vec<(Lsn, LoadId)>,
    /// A primary's: what members said, and who waits for it.
    asked: BTreeMap<LoadId, Asked>,
    number: u64,
    /// Since when loads wait for the engine.
    unsettled: Option<Micros>,
    /// When a checkpoint was last asked for, and what was persisted then.
    checkpoint: (Micros, Lsn),
}

#[derive(Debug)]
struct Asked {
    number: u64,
    since: Micros,
    told: BTreeMap<Member, Staging>,
    waiting: Vec<(ClientRef, Request)>,
}

impl Asked {
    /// True if all of these answered.
    fn has(&self, members: &BTreeSet<Member>) -> bool {
        members.iter().all(|member| self.told.contains_key(member))
    }
}

impl Replica {
    /// [`Op::Stage`], [`Op::StagePiece`], [`Op::Unstage`] and [`Op::Load`].
    pub(crate) fn on_load(&mut self, ctx: &mut Ctx, to: ClientRef, request: Request) {
        let able = self.engine.capabilities().ships_files && self.config.log_kind() == LogKind::Disk;
        if !able {
            let why = "bulk loads need an engine with files and a log on disk".into();
            return self.answer(ctx, to, &request, Status::Bad(why), Body::None, None);
        }
        let done = match &request.op {
            Op::Stage { load, files } => {
                let (load, files) = (*load, files.clone());
                return self.stage(ctx, to, request, load, &files);
            }
            Op::StagePiece { load, file, from, bytes } => {
                let piece = (*load, *file, *from, bytes.clone());
                self.stage_piece(ctx, piece)
            }
            Op::Unstage { load } => self.unstage(ctx, *load),
            Op::Load { load, digest } => return self.load(ctx, to, &request, *load, *digest),
            _ => Ok(()),
        };
        let valid_until = self.lease_until(ctx);
        let status = match done {
            Ok(()) => Status::Ok,
            Err(EngineError::Full(error)) => Status::Full(format!("the load has no room: {error}")),
            Err(error) => return self.engine_failed(ctx, to, &request, error),
        };
        self.answer(ctx, to, &request, status, Body::None, valid_until);
    }

    fn stage(&mut self, ctx: &mut Ctx, to: ClientRef, request: Request, load: LoadId, files: &[Component]) {
        let now = ctx.now.mono;
        let loaded = match self.loaded_at(load) {
            Ok(loaded) => loaded,
            Err(error) => return self.engine_failed(ctx, to, &request, error),
        };
        if let Some(lsn) = loaded {
            let body = self.loaded_body(lsn);
            let valid_until = self.lease_until(ctx);
            return self.answer(ctx, to, &request, Status::Ok, body, valid_until);
        }
        let known = self.engine.loads();
        if !known.contains(&load) && known.len() >= MOST {
            let why = Status::NotYet(format!("{MOST} bulk loads of this partition are under way already"));
            return self.answer(ctx, to, &request, why, Body::None, None);
        }
        self.loads.touched.insert(load, now);
        match self.engine.stage(load, files) {
            Ok(_) => {}
            Err(EngineError::Full(error)) => {
                let why = Status::Full(format!("the load has no room: {error}"));
                return self.answer(ctx, to, &request, why, Body::None, None);
            }
            Err(error) => return self.engine_failed(ctx, to, &request, error),
        }
        self.loads.number += 1;
        let number = self.loads.number;
        let asked = self.loads.asked.remove(&load);
        let mut waiting = asked.map(|asked| asked.waiting).unwrap_or_default();
        waiting.push((to, request));
        let asked = Asked { number, since: now, told: BTreeMap::new(), waiting };
        self.loads.asked.insert(load, asked);
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return };
        for member in self.lease_members() {
            let files = files.to_vec();
            let stage = Stage { partition: self.id, epoch, from: self.me, number, load, files };
            ctx.out.push(Output::Send { to: member, message: PeerMessage::Stage(stage) });
        }
        self.answer_stage(ctx, load);
    }

    /// Where a load became part of the state, as executed so far.
    fn loaded_at(&self, load: LoadId) -> Result<Option<Lsn>, EngineError> {
        Ok(self.engine.get(&load_key(load), ReadAt::Applied)?.map(|(lsn, _)| lsn))
    }

    fn loaded_body(&self, lsn: Lsn) -> Body {
        let Some((primary, view)) = self.leading() else { return Body::None };
        let installed = |member: &Member| primary.marks_of(&view, member).persisted >= lsn;
        let installed =
            self.engine.persisted().lsn >= lsn && primary.lease_members(&view).iter().all(installed);
        let loaded = (self.marks.committed() >= lsn).then_some(lsn);
        Body::Load(LoadStatus { staging: Staging::Checking, loaded, installed })
    }

    /// Answers those who asked for a load, once all members that count have said how far they are.
    fn answer_stage(&mut self, ctx: &mut Ctx, load: LoadId) {
        let members = self.lease_members();
        let Some(asked) = self.loads.asked.get(&load).filter(|asked| asked.has(&members)) else { return };
        let told: Vec<Staging> = members.iter().map(|member| asked.told[member].clone()).collect();
        let files = asked.waiting.iter().find_map(|(_, request)| match &request.op {
            Op::Stage { files, .. } => Some(files.clone()),
            _ => None,
        });
        let Some(files) = files else { return };
        let own = match self.engine.stage(load, &files) {
            Ok(own) => own,
            Err(EngineError::Full(_) | EngineError::Later(_)) => return,
            Err(error) => return self.fail(ctx, error.to_string()),
        };
        let staging = told.into_iter().fold(own, least);
        let valid_until = self.lease_until(ctx);
        let Some(asked) = self.loads.asked.get_mut(&load) else { return };
        for (to, request) in std::mem::take(&mut asked.waiting) {
            let body = Body::Load(LoadStatus { staging: staging.clone(), loaded: None, installed: false });
            self.answer(ctx, to, &request, Status::Ok, body, valid_until);
        }
    }

    fn stage_piece(
        &mut self,
        ctx: &mut Ctx,
        (load, file, at, bytes): (LoadId, u32, u64, Bytes),
    ) -> Result<(), EngineError> {
        self.loads.touched.insert(load, ctx.now.mono);
        self.engine.stage_piece(load, file as usize, at, &bytes)?;
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return Ok(()) };
        for member in self.lease_members() {
            let (partition, from, bytes) = (self.id, self.me, bytes.clone());
            let piece = StagePiece { partition, epoch, from, load, file, at, bytes };
            ctx.out.push(Output::Send { to: member, message: PeerMessage::StagePiece(piece) });
        }
        Ok(())
    }

    fn unstage(&mut self, ctx: &mut Ctx, load: LoadId) -> Result<(), EngineError> {
        self.remove_load(load)?;
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return Ok(()) };
        // What an entry names stays.
        if self.engine.loads().contains(&load) {
            return Ok(());
        }
        for member in self.lease_members() {
            let unstage = Unstage { partition: self.id, epoch, from: self.me, load };
            ctx.out.push(Output::Send { to: member, message: PeerMessage::Unstage(unstage) });
        }
        Ok(())
    }

    /// Makes the entry, if the load is staged everywhere.
    fn load(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request, load: LoadId, digest: [u8; 16]) {
        if let Some(status) = self.too_few().or_else(|| self.overfull(ctx)) {
            return self.answer(ctx, to, request, status, Body::None, None);
        }
        match self.check_session(request, hash_of(load, digest)) {
            Ok(None) => {}
            Ok(Some(reply)) => return self.answer_seen(ctx, to, request, reply),
            Err(error) => return self.engine_failed(ctx, to, request, error),
        }
        let loaded = match self.loaded_at(load) {
            Ok(loaded) => loaded.is_some(),
            Err(error) => return self.engine_failed(ctx, to, request, error),
        };
        if let Some(why) = if loaded { None } else { self.not_staged(ctx, load, digest) } {
            return self.answer(ctx, to, request, Status::NotYet(why), Body::None, None);
        }
        let logged = match loaded {
            // In another session: this one is told that nothing was left to be done.
            true => self
                .log_effects(ctx, request, effects(request, (load, digest), 0, Vec::new()))
                .map(|at| (at, 0)),
            false => self.log_load(ctx, request, load, digest),
        };
        match logged {
            Ok((at, affected)) => {
                let mut reply = self.reply(request, Status::Ok, Body::Affected(affected));
                (reply.lsn, reply.epoch) = (at.lsn, at.term.began());
                self.answer_at(ctx, to, request, at.lsn, reply);
            }
            Err(error) => self.engine_failed(ctx, to, request, error),
        }
    }

    /// Why the entry cannot be made now, if so.
    fn not_staged(&mut self, ctx: &mut Ctx, load: LoadId, digest: [u8; 16]) -> Option<String> {
        let now = ctx.now.mono;
        if self.engine.pending_load().is_some() {
            return Some("another bulk load is being installed".into());
        }
        if !self.engine.is_settled() {
            let since = *self.loads.unsettled.get_or_insert(now);
            if now.since(since) < SETTLES {
                ctx.out.push(Output::Checkpoint { partition: self.id });
                return Some("what is in memory is written to disk first".into());
            }
        }
        self.loads.unsettled = None;
        let own = self.engine.staged(load).is_some_and(|staged| staged.digest == digest);
        let members = self.lease_members();
        let ready = |asked: &&Asked| {
            let ready = |told: Option<&Staging>| matches!(told, Some(Staging::Ready(staged)) if staged.digest == digest);
            now.since(asked.since) < FRESH && members.iter().all(|member| ready(asked.told.get(member)))
        };
        let everywhere = self.loads.asked.get(&load).filter(ready).is_some();
        let staged = own && (everywhere || !self.rules.loads_are_staged_first());
        (!staged).then(|| format!("load {load} is not staged on every replica that counts"))
    }

    fn log_load(
        &mut self,
        ctx: &mut Ctx,
        request: &Request,
        load: LoadId,
        digest: [u8; 16],
    ) -> Result<(Position, u32), EngineError> {
        let rows = self.engine.staged(load).map_or(0, |staged| staged.rows);
        let affected = u32::try_from(rows).unwrap_or(u32::MAX);
        let value = Bytes::copy_from_slice(&rows.to_le_bytes());
        let mut mutations = vec![Mutation { key: load_key(load), value: Some(value) }];
        // What indexes have of the rows that are replaced is not known here: they are built anew.
        let definitions = self.definitions_at(ReadAt::Applied)?;
        let turned =
            |definition: &types::index::Definition| definition.turned(IndexState::Dropping).mutation();
        mutations.extend(definitions.iter().map(turned));
        let effects = effects(request, (load, digest), affected, mutations);
        let mut header = self.next_header(ctx, Kind::Bulk);
        header.session = request.session;
        header.seq = request.seq;
        header.table = request.table;
        header.schema = request.schema;
        let at = header.at;
        let entry = Entry::encode(header, &LoadMark { load, digest, effects }.encode());
        self.append(ctx, entry).map_err(|unfit| EngineError::Library(unfit.reason()))?;
        self.forget_definitions(at);
        Ok((at, affected))
    }

    /// Why writes have to wait, if a load is on its way into the engine's files.
    pub(crate) fn is_loading(&self) -> Option<Status> {
        let why = || Status::NotYet("a bulk load is being installed".into());
        self.engine.pending_load().map(|_| why())
    }

    /// How far `committed` may go: not past a load that is not in the files here. One that is committed and secured is installed.
    pub(crate) fn up_to_load(&mut self, ctx: &mut Ctx, point: Lsn) -> Lsn {
        let Some(at) = self.engine.pending_load() else { return point };
        let partition = self.id;
        let Role::Leader(leader) = &self.role else { return point };
        let covered = leader.promotion.marker().is_some_and(|marker| point >= marker) && point >= at.lsn;
        // What an older term is known to have committed stays so, whoever may commit now.
        if self.marks.secured() >= at.lsn && (covered || self.marks.committed() >= at.lsn) {
            self.engine.allow_load(at.lsn);
            let (now, persisted) = (ctx.now.mono, self.engine.persisted().lsn);
            let (asked_at, before) = self.loads.checkpoint;
            if persisted != before || now.since(asked_at) >= ctx.settings.resend {
                self.loads.checkpoint = (now, persisted);
                ctx.out.push(Output::Checkpoint { partition });
            }
        }
        point.min(at.lsn.prev())
    }

    /// What reads may see of what is committed.
    pub(crate) fn readable(&self) -> Lsn {
        self.engine
            .pending_load()
            .map_or(self.marks.committed(), |at| self.marks.committed().min(at.lsn.prev()))
    }

    /// The entry's load, if it is staged here (PR-39).
    pub(crate) fn staged_load(&self, entry: &Entry) -> Result<LoadMark, Unfit> {
        let mark = LoadMark::decode(entry.payload()).map_err(Unfit::Entry)?;
        let fits = |mutation: &Mutation| {
            mutation.key.first() == Some(&space::PARTITION) && mutation_fault(mutation).is_none()
        };
        if !mark.effects.mutations.iter().all(fits) {
            return Err(Unfit::Entry(format!(
                "the entry at {} about a load changes something else",
                entry.at()
            )));
        }
        let staged = self.engine.staged(mark.load).is_some_and(|staged| staged.digest == mark.digest);
        if !staged && self.rules.loads_are_staged_first() {
            return Err(Unfit::Unstaged(format!("PR-39: the files of load {} are not here", mark.load)));
        }
        Ok(mark)
    }

    /// An entry was taken in: the files that it names stay until they are part of the engine's own.
    pub(crate) fn note_load(&mut self, entry: &Entry) {
        if entry.header().kind == Kind::Bulk
            && let Ok(mark) = LoadMark::decode(entry.payload())
        {
            self.loads.named.push((entry.lsn(), mark.load));
        }
    }

    /// Entries above `to` are gone.
    pub(crate) fn forget_loads(&mut self, to: Lsn) {
        self.loads.named.retain(|(lsn, _)| *lsn <= to);
    }

    /// Removes the files of a load that no entry of the log names.
    fn remove_load(&mut self, load: LoadId) -> Result<(), EngineError> {
        let persisted = self.engine.persisted().lsn;
        self.loads.named.retain(|(lsn, _)| *lsn > persisted);
        match self.loads.named.iter().any(|(_, named)| *named == load) {
            true => Ok(()),
            false => self.engine.unstage(load),
        }
    }

    /// A primary has files staged here.
    pub(crate) fn on_stage(&mut self, ctx: &mut Ctx, stage: &Stage) {
        if !self.takes_loads(stage.from, stage.epoch) {
            return;
        }
        let (load, known) = (stage.load, self.engine.loads());
        let staging = match self.loaded_at(load) {
            Ok(Some(_)) => return,
            Ok(None) if !known.contains(&load) && known.len() >= 2 * MOST => {
                Staging::Refused("a member has too many loads already".into())
            }
            Ok(None) => match self.engine.stage(load, &stage.files) {
                Ok(staging) => staging,
                Err(EngineError::Full(error)) => Staging::Refused(format!("a member has no room: {error}")),
                // It is asked again.
                Err(EngineError::Later(_)) => return,
                Err(error) => return self.fail(ctx, error.to_string()),
            },
            Err(EngineError::Later(_)) => return,
            Err(error) => return self.fail(ctx, error.to_string()),
        };
        self.loads.touched.insert(load, ctx.now.mono);
        let (partition, epoch, from) = (self.id, stage.epoch, self.me);
        let told = StageAnswer { partition, epoch, from, number: stage.number, load, staging };
        ctx.out.push(Output::Send { to: stage.from, message: PeerMessage::StageAnswer(told) });
    }

    fn takes_loads(&self, from: Member, epoch: types::Epoch) -> bool {
        let ours = self.config.record().is_some_and(|record| record.primary == from && record.epoch == epoch);
        ours && self.role.is_whole_backup()
    }

    /// A piece of such a file.
    pub(crate) fn on_stage_piece(&mut self, ctx: &mut Ctx, piece: &StagePiece) {
        if !self.takes_loads(piece.from, piece.epoch) {
            return;
        }
        self.loads.touched.insert(piece.load, ctx.now.mono);
        match self.engine.stage_piece(piece.load, piece.file as usize, piece.at, &piece.bytes) {
            // What does not fit is asked for by the next answer; for room the client's patience waits.
            Ok(_) | Err(EngineError::Full(_) | EngineError::Later(_)) => {}
            Err(error) => self.fail(ctx, error.to_string()),
        }
    }

    /// Nobody wants a load any more.
    pub(crate) fn on_unstage(&mut self, ctx: &mut Ctx, unstage: &Unstage) {
        if self.takes_loads(unstage.from, unstage.epoch)
            && let Err(error) = self.remove_load(unstage.load)
        {
            self.fail(ctx, error.to_string());
        }
    }

    /// How far a member is.
    pub(crate) fn on_stage_answer(&mut self, ctx: &mut Ctx, told: StageAnswer) {
        if told.number == OURS {
            return self.stage_on(ctx, &told);
        }
        let leads = self.is_leader();
        let Some(asked) = self.loads.asked.get_mut(&told.load).filter(|_| leads) else { return };
        if asked.number != told.number {
            return;
        }
        asked.told.insert(told.from, told.staging);
        self.answer_stage(ctx, told.load);
    }

    /// A member lacks the files that an entry names. If this replica's own files have them, it is given those.
    pub(crate) fn on_unstaged(&mut self, ctx: &mut Ctx, refused: &AppendRefused, lsn: Lsn) {
        let counts = self.lease_members().contains(&refused.from);
        let (now, persisted) = (ctx.now.mono, self.engine.persisted().lsn);
        let Some(progress) = self.progress(refused.from) else { return };
        let current = progress.is_current(refused.number);
        if !current {
            return;
        }
        if persisted >= lsn {
            self.start_copy(ctx, refused.from);
        } else if counts {
            progress.health.taint();
        } else {
            progress.mode = Mode::Probe { asked_at: now };
            progress.health.forget_level();
            // The entry may have to wait for this very member: it is given the load's files from here.
            let load = self.loads.named.iter().find(|(at, _)| *at == lsn).map(|(_, load)| *load);
            load.into_iter().for_each(|load| self.stage_at(ctx, refused.from, load));
        }
    }

    fn stage_at(&self, ctx: &mut Ctx, member: Member, load: LoadId) {
        let files = self.engine.staged_files(load);
        let Some(epoch) = self.config.record().map(|record| record.epoch).filter(|_| !files.is_empty())
        else {
            return;
        };
        let stage = Stage { partition: self.id, epoch, from: self.me, number: OURS, load, files };
        ctx.out.push(Output::Send { to: member, message: PeerMessage::Stage(stage) });
    }

    /// A member that was refused goes on with what this replica stages there by itself.
    fn stage_on(&mut self, ctx: &mut Ctx, told: &StageAnswer) {
        let (Staging::Wants { file, from: first }, true) = (&told.staging, self.is_leader()) else { return };
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return };
        let mut at = *first;
        for _ in 0..AT_ONCE {
            let most = ctx.settings.copy_bytes.clamp(1, PIECE);
            let bytes = match self.engine.read_staged(told.load, *file as usize, at, most) {
                Ok(bytes) => bytes.unwrap_or_default(),
                Err(EngineError::Later(_)) => break,
                Err(error) => return self.fail(ctx, error.to_string()),
            };
            if bytes.is_empty() {
                break;
            }
            let (partition, from, next) = (self.id, self.me, at + bytes.len() as u64);
            let piece = StagePiece { partition, epoch, from, load: told.load, file: *file, at, bytes };
            ctx.out.push(Output::Send { to: told.from, message: PeerMessage::StagePiece(piece) });
            at = next;
        }
        self.stage_at(ctx, told.from, told.load);
    }

    fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Time has passed: who waits for members that do not answer, and what nobody wants.
    pub(crate) fn loads_tick(&mut self, ctx: &mut Ctx) {
        let now = ctx.now.mono;
        let known = self.engine.loads();
        self.loads.touched.retain(|load, _| known.contains(load));
        for load in known {
            let touched = *self.loads.touched.entry(load).or_insert(now);
            if now.since(touched) >= ctx.settings.load_unasked
                && let Err(error) = self.remove_load(load)
            {
                return self.fail(ctx, error.to_string());
            }
        }
        let late = |asked: &&mut Asked| now.since(asked.since) >= ANSWERS;
        let waiting: Vec<_> = self
            .loads
            .asked
            .values_mut()
            .filter(late)
            .flat_map(|asked| std::mem::take(&mut asked.waiting))
            .collect();
        for (to, request) in waiting {
            let why = "a replica that counts does not say how far it is with the load".into();
            self.answer(ctx, to, &request, Status::NotYet(why), Body::None, None);
        }
        self.loads.asked.retain(|_, asked| !asked.waiting.is_empty() || now.since(asked.since) < FRESH);
    }

    /// This replica leads no more.
    pub(crate) fn stop_staging(&mut self, ctx: &mut Ctx) {
        for (_, asked) in std::mem::take(&mut self.loads.asked) {
            for (to, request) in asked.waiting {
                self.answer(ctx, to, &request, Status::NotPrimary, Body::None, None);
            }
        }
    }
}

/// A hash of what is asked (PR-47).
fn hash_of(load: LoadId, digest: [u8; 16]) -> u64 {
    let (one, other) = digest.split_at(8);
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("a half of sixteen bytes"));
    word(one) ^ word(other) ^ load.0
}

fn effects(
    request: &Request,
    (load, digest): (LoadId, [u8; 16]),
    affected: u32,
    mutations: Vec<Mutation>,
) -> Effects {
    let (request_hash, confirmed) = (hash_of(load, digest), request.confirmed);
    Effects { request_hash, confirmed, outcome: Outcome::Done as u8, affected, mutations }
}

/// The one of two that is less far.
fn least(one: Staging, other: Staging) -> Staging {
    match (one, other) {
        (Staging::Refused(why), _) | (_, Staging::Refused(why)) => Staging::Refused(why),
        (Staging::Wants { file, from }, Staging::Wants { file: other, from: behind }) => {
            let (file, from) = (file, from).min((other, behind));
            Staging::Wants { file, from }
        }
        (Staging::Wants { file, from }, _) | (_, Staging::Wants { file, from }) => {
            Staging::Wants { file, from }
        }
        (Staging::Checking, _) | (_, Staging::Checking) => Staging::Checking,
        (Staging::Ready(one), Staging::Ready(_)) => Staging::Ready(one),
    }
}
