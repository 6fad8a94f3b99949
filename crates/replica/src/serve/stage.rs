//! Files of bulk loads ([`crate::features::bulk`]) between clients, the primary and its members, before the
//! load's entry.

use crate::answer::Answer;
use crate::data::Data;
use crate::features::bulk::{MAX_LOADS, loaded_at};
use crate::output::{ClientRef, Origin, Output};
use crate::primary::{Primary, View};
use std::collections::BTreeSet;
use types::{EngineError, LoadId, Lsn, Member, Micros, Staging};
use wire::bulk::{LoadStatus, StageAnswer, Unstage};
use wire::{Body, Op, PeerMessage, Request, Status};

/// Clients that are answered, each with what it asked for.
pub(crate) type Answers = Vec<(ClientRef, Request, Answer)>;

/// What a primary stages files with, here and on `members`.
pub(crate) struct Stager<'a> {
    pub data: &'a mut Data,
    pub members: BTreeSet<Member>,
    pub origin: Origin,
    pub now: Micros,
    pub out: &'a mut Vec<Output>,
}

impl Stager<'_> {
    fn send(&mut self, message: &PeerMessage) {
        let sent = self.members.iter().map(|to| Output::Send { to: *to, message: message.clone() });
        self.out.extend(sent);
    }

    /// [`Op::StagePiece`] and [`Op::Unstage`].
    pub fn pass_on(&mut self, op: &Op) -> Result<Answer, EngineError> {
        let (loads, engine) = (&mut self.data.loads, self.data.engine.as_mut());
        let message = match op {
            Op::StagePiece { load, file, from, bytes } => {
                let piece = (*load, *file, *from, bytes);
                match loads.take_piece(engine, self.now, piece) {
                    Ok(()) => Some(self.origin.stage_piece(*load, (*file, *from), bytes.clone())),
                    Err(EngineError::Full(error)) => return Ok(no_room(&error).leased()),
                    Err(error) => return Err(error),
                }
            }
            Op::Unstage { load } => {
                match loads.remove(engine, *load) {
                    Ok(()) => {}
                    Err(EngineError::Full(error)) => return Ok(no_room(&error).leased()),
                    Err(error) => return Err(error),
                }
                // What an entry names stays.
                let Origin { partition, epoch, me: from } = self.origin;
                let unstage = Unstage { partition, epoch, from, load: *load };
                (!engine.loads().contains(load)).then_some(PeerMessage::Unstage(unstage))
            }
            _ => None,
        };
        if let Some(message) = message {
            self.send(&message);
        }
        Ok(Answer::only(Status::Ok).leased())
    }

    /// [`Op::Stage`] of a load that is no part of the state yet: members are asked how far they are. None:
    /// who asks is answered when they have said it.
    pub fn stage(&mut self, who: (ClientRef, Request), load: LoadId) -> Result<Option<Answer>, EngineError> {
        let Op::Stage { files, .. } = &who.1.op else { return Ok(None) };
        let files = files.clone();
        let known = self.data.engine.loads();
        if !known.contains(&load) && known.len() >= MAX_LOADS {
            let why = format!("{MAX_LOADS} bulk loads of this partition are under way already");
            return Ok(Some(Answer::not_yet(why)));
        }
        let (loads, engine) = (&mut self.data.loads, self.data.engine.as_mut());
        match loads.stage(engine, self.now, (load, &files)) {
            Ok(()) => {}
            Err(EngineError::Full(error)) => return Ok(Some(no_room(&error))),
            Err(error) => return Err(error),
        }
        let number = loads.ask(self.now, load, who);
        let message = self.origin.stage(number, load, files);
        self.send(&message);
        Ok(None)
    }

    /// Answers those who asked for a load, once all members that count have said how far they are.
    pub fn answers(&mut self, load: LoadId) -> Result<Answers, EngineError> {
        let (loads, engine) = (&mut self.data.loads, self.data.engine.as_mut());
        let Some((staging, waiting)) = loads.staged_everywhere(engine, &self.members, load)? else {
            return Ok(Vec::new());
        };
        let body = Body::Load(LoadStatus { staging, loaded: None, installed: false });
        let answer = Answer::new(Status::Ok, body).leased();
        Ok(waiting.into_iter().map(|(to, request)| (to, request, answer.clone())).collect())
    }
}

fn no_room(error: &std::io::Error) -> Answer {
    Answer::only(Status::Full(format!("the load has no room: {error}")))
}

/// What is said of a load that is part of the state already, if it is.
pub(crate) fn loaded(
    primary: &Primary,
    view: &View,
    data: &Data,
    load: LoadId,
) -> Result<Option<Answer>, EngineError> {
    let body = |lsn: Lsn| {
        let installed = |member: &Member| primary.marks_of(view, member).persisted >= lsn;
        let installed =
            data.engine.persisted().lsn >= lsn && primary.lease_members(view).iter().all(installed);
        let loaded = (view.committed >= lsn).then_some(lsn);
        Body::Load(LoadStatus { staging: Staging::Checking, loaded, installed })
    };
    let loaded = loaded_at(data.engine.as_ref(), load)?;
    Ok(loaded.map(|lsn| Answer::new(Status::Ok, body(lsn)).leased()))
}

/// A primary has files staged here, sends pieces of them, or wants them no more.
pub(crate) fn take_staging(
    data: &mut Data,
    origin: Origin,
    now: Micros,
    message: &PeerMessage,
    out: &mut Vec<Output>,
) -> Result<(), EngineError> {
    let (loads, engine) = (&mut data.loads, data.engine.as_mut());
    match message {
        PeerMessage::StageLoad(stage) => {
            let Origin { partition, epoch, me } = origin;
            let (number, load) = (stage.number, stage.load);
            if let Some(staging) = loads.take_stage(engine, now, (number, load, &stage.files))? {
                let told = StageAnswer { partition, epoch, from: me, number, load, staging };
                out.push(Output::Send { to: stage.from, message: PeerMessage::StageAnswer(told) });
            }
            Ok(())
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
    }
}
