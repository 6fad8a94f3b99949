//! Bulk loads ([`crate::features::bulk`]) between clients, the primary and its members: who asks for what is staged, the entry, and
//! how far `committed` may go beside it.

use crate::features::bulk::{
    MOST, NotStaged, OURS, PIECE, Waiting, loaded_at, pieces_of_ours, stage_of_ours,
};
use crate::features::index::definitions_at;
use crate::output::{ClientRef, Origin, Output};
use crate::primary::progress::Mode;
use crate::replica::{Ctx, Replica, Role};
use bytes::Bytes;
use types::bulk::load_key;
use types::index::IndexState;
use types::{EngineError, LoadId, LogKind, Lsn, Member, Mutation, Position, ReadAt, Staging};
use wire::bulk::{LoadMark, LoadStatus, StageAnswer, Unstage};
use wire::entry::Kind;
use wire::peer::AppendRefused;
use wire::{Body, Effects, Entry, Op, Outcome, PeerMessage, Request, Status};

impl Replica {
    /// [`Op::Stage`], [`Op::StagePiece`], [`Op::Unstage`] and [`Op::Load`].
    pub(crate) fn on_load(&mut self, ctx: &mut Ctx, to: ClientRef, request: Request) {
        let able = self.engine.ships_files() && self.config.log_kind() == LogKind::Disk;
        if !able {
            let why = "bulk loads need an engine with files and a log on disk".into();
            return self.answer(ctx, to, &request, Status::Bad(why), Body::None, None);
        }
        let now = ctx.now.mono;
        let (loads, engine) = (&mut self.features.loads, self.engine.as_mut());
        let done = match &request.op {
            Op::Stage { load, .. } => {
                let load = *load;
                return self.stage(ctx, to, request, load);
            }
            Op::StagePiece { load, file, from, bytes } => {
                loads.take_piece(engine, now, (*load, *file, *from, bytes))
            }
            Op::Unstage { load } => loads.remove(engine, *load),
            Op::Load { load, digest } => return self.load(ctx, to, &request, (*load, *digest)),
            _ => Ok(()),
        };
        let valid_until = self.lease_until(ctx);
        let status = match done {
            Ok(()) => Status::Ok,
            Err(EngineError::Full(error)) => Status::Full(format!("the load has no room: {error}")),
            Err(error) => return self.engine_failed(ctx, to, &request, error),
        };
        if let (Status::Ok, Some(origin)) = (&status, self.origin()) {
            let message = match &request.op {
                Op::StagePiece { load, file, from, bytes } => {
                    Some(origin.stage_piece(*load, (*file, *from), bytes.clone()))
                }
                // What an entry names stays.
                Op::Unstage { load } if !self.engine.loads().contains(load) => {
                    let Origin { partition, epoch, me: from } = origin;
                    Some(PeerMessage::Unstage(Unstage { partition, epoch, from, load: *load }))
                }
                _ => None,
            };
            let sends =
                |message| self.lease_members().into_iter().map(move |to| (to, Clone::clone(&message)));
            let sent = message.into_iter().flat_map(sends);
            ctx.out.extend(sent.map(|(to, message)| Output::Send { to, message }));
        }
        self.answer(ctx, to, &request, status, Body::None, valid_until);
    }

    fn stage(&mut self, ctx: &mut Ctx, to: ClientRef, request: Request, load: LoadId) {
        let Op::Stage { files, .. } = &request.op else { return };
        let files = files.clone();
        match loaded_at(self.engine.as_ref(), load) {
            Ok(Some(lsn)) => {
                let (body, valid_until) = (self.loaded_body(lsn), self.lease_until(ctx));
                return self.answer(ctx, to, &request, Status::Ok, body, valid_until);
            }
            Ok(None) => {}
            Err(error) => return self.engine_failed(ctx, to, &request, error),
        }
        let known = self.engine.loads();
        if !known.contains(&load) && known.len() >= MOST {
            let why = Status::NotYet(format!("{MOST} bulk loads of this partition are under way already"));
            return self.answer(ctx, to, &request, why, Body::None, None);
        }
        let loads = &mut self.features.loads;
        match loads.stage(self.engine.as_mut(), ctx.now.mono, (load, &files)) {
            Ok(()) => {}
            Err(EngineError::Full(error)) => {
                let why = Status::Full(format!("the load has no room: {error}"));
                return self.answer(ctx, to, &request, why, Body::None, None);
            }
            Err(error) => return self.engine_failed(ctx, to, &request, error),
        }
        let number = loads.ask(ctx.now.mono, load, (to, request));
        let Some(origin) = self.origin() else { return };
        for to in self.lease_members() {
            let message = origin.stage(number, load, files.clone());
            ctx.out.push(Output::Send { to, message });
        }
        self.answer_stage(ctx, load);
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
        let loads = &mut self.features.loads;
        let (staging, waiting) = match loads.staged_everywhere(self.engine.as_mut(), &members, load) {
            Ok(Some(staged)) => staged,
            Ok(None) => return,
            Err(error) => return self.fail(ctx, error.to_string()),
        };
        let valid_until = self.lease_until(ctx);
        for (to, request) in waiting {
            let body = Body::Load(LoadStatus { staging: staging.clone(), loaded: None, installed: false });
            self.answer(ctx, to, &request, Status::Ok, body, valid_until);
        }
    }

    /// Time has passed: who waits for members that do not answer, and what nobody wants.
    pub(crate) fn loads_tick(&mut self, ctx: &mut Ctx) {
        let (now, unasked) = (ctx.now.mono, ctx.settings.load_unasked);
        let late = match self.features.loads.tick(self.engine.as_mut(), now, unasked) {
            Ok(late) => late,
            Err(error) => return self.fail(ctx, error.to_string()),
        };
        let why = "a replica that counts does not say how far it is with the load";
        self.refuse_loads(ctx, late, &Status::NotYet(why.into()));
    }

    /// Answers clients that waited for members in vain.
    pub(crate) fn refuse_loads(&self, ctx: &mut Ctx, waiting: Waiting, status: &Status) {
        for (to, request) in waiting {
            self.answer(ctx, to, &request, status.clone(), Body::None, None);
        }
    }

    /// Makes the entry, if the load is staged everywhere.
    fn load(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request, load: (LoadId, [u8; 16])) {
        if let Some(status) = self.too_few().or_else(|| self.overfull(ctx)) {
            return self.answer(ctx, to, request, status, Body::None, None);
        }
        match self.check_session(request, hash_of(load)) {
            Ok(None) => {}
            Ok(Some(reply)) => return self.answer_seen(ctx, to, request, reply),
            Err(error) => return self.engine_failed(ctx, to, request, error),
        }
        let loaded = match loaded_at(self.engine.as_ref(), load.0) {
            Ok(loaded) => loaded.is_some(),
            Err(error) => return self.engine_failed(ctx, to, request, error),
        };
        if !loaded {
            let members = (&self.lease_members(), self.rules.loads_are_staged_first());
            let (loads, engine) = (&mut self.features.loads, self.engine.as_ref());
            if let Some(why) = loads.not_staged(engine, ctx.now.mono, load, members) {
                if why == NotStaged::Unsettled {
                    ctx.out.push(Output::Checkpoint { partition: self.id });
                }
                let status = Status::NotYet(why.words(load.0));
                return self.answer(ctx, to, request, status, Body::None, None);
            }
        }
        let logged = match loaded {
            // In another session: this one is told that nothing was left to be done.
            true => self.log_effects(ctx, request, effects(request, load, 0, Vec::new())).map(|at| (at, 0)),
            false => self.log_load(ctx, request, load),
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

    fn log_load(
        &mut self,
        ctx: &mut Ctx,
        request: &Request,
        (load, digest): (LoadId, [u8; 16]),
    ) -> Result<(Position, u32), EngineError> {
        let rows = self.engine.staged(load).map_or(0, |staged| staged.rows);
        let affected = u32::try_from(rows).unwrap_or(u32::MAX);
        let value = Bytes::copy_from_slice(&rows.to_le_bytes());
        let mut mutations = vec![Mutation { key: load_key(load), value: Some(value) }];
        // What indexes have of the rows that are replaced is not known here: they are built anew.
        let definitions = definitions_at(self.engine.as_ref(), ReadAt::Applied)?;
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
        self.features.indexes.changed_at(at);
        Ok((at, affected))
    }

    /// The primary has files staged here, sends pieces of them, or wants them no more.
    pub(crate) fn on_staging(&mut self, ctx: &mut Ctx, message: &PeerMessage) {
        let (from, epoch) = match message {
            PeerMessage::Stage(stage) => (stage.from, stage.epoch),
            PeerMessage::StagePiece(piece) => (piece.from, piece.epoch),
            PeerMessage::Unstage(unstage) => (unstage.from, unstage.epoch),
            _ => return,
        };
        let ours = self.config.record().is_some_and(|record| record.primary == from && record.epoch == epoch);
        if !ours || !self.role.is_whole_backup() {
            return;
        }
        let (now, loads, engine) = (ctx.now.mono, &mut self.features.loads, self.engine.as_mut());
        let done = match message {
            PeerMessage::Stage(stage) => {
                loads.take_stage(engine, now, (stage.load, &stage.files)).map(|staging| {
                    let (partition, me) = (self.id, self.me);
                    let (number, load) = (stage.number, stage.load);
                    let told = |staging| StageAnswer { partition, epoch, from: me, number, load, staging };
                    let answer = staging.map(|staging| PeerMessage::StageAnswer(told(staging)));
                    ctx.out.extend(answer.map(|message| Output::Send { to: from, message }));
                })
            }
            PeerMessage::StagePiece(piece) => {
                match loads.take_piece(engine, now, (piece.load, piece.file, piece.at, &piece.bytes)) {
                    // What does not fit is asked for by the next answer; for room the client's patience waits.
                    Err(EngineError::Full(_) | EngineError::Later(_)) => Ok(()),
                    done => done,
                }
            }
            PeerMessage::Unstage(unstage) => loads.remove(engine, unstage.load),
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.fail(ctx, error.to_string());
        }
    }

    /// How far a member is. One that was refused goes on with what this replica stages there by itself.
    pub(crate) fn on_stage_answer(&mut self, ctx: &mut Ctx, told: StageAnswer) {
        let (Role::Leader(_), Some(origin)) = (&self.role, self.origin()) else { return };
        if told.number == OURS {
            let most = ctx.settings.copy_bytes.clamp(1, PIECE);
            if let Err(error) = pieces_of_ours(self.engine.as_mut(), &origin, &told, most, ctx.out) {
                self.fail(ctx, error.to_string());
            }
            return;
        }
        let load = told.load;
        if self.features.loads.hear(told) {
            self.answer_stage(ctx, load);
        }
    }

    /// A member lacks the files that an entry names. If this replica's own files have them, it is given those.
    pub(crate) fn on_unstaged(&mut self, ctx: &mut Ctx, refused: &AppendRefused, lsn: Lsn) {
        let counts = self.lease_members().contains(&refused.from);
        let (now, persisted) = (ctx.now.mono, self.engine.persisted().lsn);
        let Some(progress) = self.progress(refused.from) else { return };
        if !progress.is_current(refused.number) {
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
            let (load, origin) = (self.features.loads.named_at(lsn), self.origin());
            let message = load
                .zip(origin)
                .and_then(|(load, origin)| stage_of_ours(self.engine.as_ref(), &origin, load));
            ctx.out.extend(message.map(|message| Output::Send { to: refused.from, message }));
        }
    }
}

/// A hash of what is asked (PR-47).
fn hash_of((load, digest): (LoadId, [u8; 16])) -> u64 {
    let (one, other) = digest.split_at(8);
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("a half of sixteen bytes"));
    word(one) ^ word(other) ^ load.0
}

fn effects(request: &Request, load: (LoadId, [u8; 16]), affected: u32, mutations: Vec<Mutation>) -> Effects {
    let (request_hash, confirmed) = (hash_of(load), request.confirmed);
    Effects { request_hash, confirmed, outcome: Outcome::Done as u8, affected, mutations }
}
