//! Sessions as rows of the data (N12, N13): what a retry is told again, at the same LSN as the effect.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use types::engine::space;
use types::keyspace::result_key;
use types::{Engine, EngineError, Lsn, Mutation, Position, ReadAt, Rules, SessionId, Term};
use wire::{Body, CallResult, Effects, Entry, Header, Outcome, Request, Status};

/// The most bytes of rows in one reply to a scan.
pub(crate) const SCAN_BYTES: usize = 4 << 20;

/// The most outcomes kept for one session: the most a client may have unconfirmed.
pub const MAX_OUTCOMES: usize = 1024;

/// What was told, or would have been, for one sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The sequence number.
    pub seq: u64,
    /// Hash of the request (PR-47).
    pub hash: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Rows changed; of a call the bytes of its result.
    pub affected: u32,
    /// The entry that carries it.
    pub at: Position,
}

/// One session's row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    /// The highest sequence number applied; all below are applied too.
    pub last: u64,
    /// Wall-clock stamp of its newest entry, milliseconds since 1970.
    pub touched_ms: u64,
    /// Outcomes that the client has not confirmed, ascending.
    pub kept: Vec<Kept>,
}

/// How a numbered request stands to its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The next one.
    Next,
    /// Applied before: this was its outcome.
    Repeated(Kept),
    /// Ahead of what is here: this number is next.
    Gap(u64),
    /// Another request was applied under this number, or its outcome was confirmed and forgotten.
    Wrong,
}

impl Session {
    /// Where a request with this number and hash stands. `gapless` is the rule against PR-47.
    pub fn standing(&self, seq: u64, hash: u64, gapless: bool) -> Standing {
        if seq == self.last + 1 {
            return Standing::Next;
        }
        if seq > self.last {
            return if gapless { Standing::Gap(self.last + 1) } else { Standing::Next };
        }
        match self.kept.iter().find(|kept| kept.seq == seq) {
            Some(kept) if kept.hash == hash => Standing::Repeated(*kept),
            Some(_) => Standing::Wrong,
            // Without the rule a number below the last counts as done, whether it was or not.
            None if !gapless => Standing::Repeated(Kept {
                seq,
                hash,
                outcome: Outcome::Done,
                affected: 0,
                at: Position::ZERO,
            }),
            None => Standing::Wrong,
        }
    }

    /// Notes an applied request. What is forgotten by it is given to `forgets`, the oldest first.
    pub fn apply(&mut self, kept: Kept, confirmed: u64, wall_ms: u64, mut forgets: impl FnMut(&Kept)) {
        assert!(
            self.kept.last().is_none_or(|last| last.at < kept.at),
            "R11: an outcome is older than one before it: {} of {:?}",
            kept.at,
            self.kept.last()
        );
        self.last = self.last.max(kept.seq);
        self.touched_ms = self.touched_ms.max(wall_ms);
        self.kept.retain(|old| {
            let goes = old.seq <= confirmed;
            if goes {
                forgets(old);
            }
            !goes
        });
        self.kept.push(kept);
        if self.kept.len() > MAX_OUTCOMES {
            forgets(&self.kept.remove(0));
        }
    }

    /// How many bytes of results are kept of requests above this number.
    pub fn result_bytes(&self, confirmed: u64) -> usize {
        let kept = self.kept.iter().filter(|kept| kept.seq > confirmed && kept.outcome.has_result());
        kept.map(|kept| kept.affected as usize).sum()
    }

    /// How much memory it takes, about.
    fn memory_bytes(&self) -> usize {
        size_of::<(SessionId, Session)>() + self.kept.capacity() * size_of::<Kept>()
    }

    /// The row's value.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(20 + self.kept.len() * 37);
        out.put_u64_le(self.last);
        out.put_u64_le(self.touched_ms);
        out.put_u32_le(self.kept.len() as u32);
        for kept in &self.kept {
            out.put_u64_le(kept.seq);
            out.put_u64_le(kept.hash);
            out.put_u8(kept.outcome as u8);
            out.put_u32_le(kept.affected);
            out.put_u64_le(kept.at.term.0);
            out.put_u64_le(kept.at.lsn.0);
        }
        out.freeze()
    }

    /// From the row's value. The error is a sentence.
    pub fn decode(mut bytes: &[u8]) -> Result<Session, String> {
        if bytes.len() < 20 {
            return Err(format!("a session row of {} bytes is cut short", bytes.len()));
        }
        let last = bytes.get_u64_le();
        let touched_ms = bytes.get_u64_le();
        let count = bytes.get_u32_le() as usize;
        if bytes.len() != count * 37 {
            return Err(format!("a session row names {count} outcomes in {} bytes", bytes.len()));
        }
        // Who reads it usually adds one.
        let mut kept = Vec::with_capacity(count + 1);
        for _ in 0..count {
            kept.push(Kept {
                seq: bytes.get_u64_le(),
                hash: bytes.get_u64_le(),
                outcome: Outcome::from_number(bytes.get_u8())
                    .ok_or("a session row has an unknown outcome")?,
                affected: bytes.get_u32_le(),
                at: Position::new(Term(bytes.get_u64_le()), Lsn(bytes.get_u64_le())),
            });
        }
        Ok(Session { last, touched_ms, kept })
    }
}

/// The stored key of a session.
pub fn session_key(id: SessionId) -> Bytes {
    Bytes::copy_from_slice(&key_bytes(id))
}

fn key_bytes(id: SessionId) -> [u8; 17] {
    let mut key = [space::SESSION; 17];
    key[1..9].copy_from_slice(&id.0.term.0.to_be_bytes());
    key[9..].copy_from_slice(&id.0.lsn.0.to_be_bytes());
    key
}

/// The session of a stored key, if it is one.
pub fn session_of(key: &[u8]) -> Option<SessionId> {
    let (first, mut rest) = key.split_first()?;
    if *first != space::SESSION || rest.len() != 16 {
        return None;
    }
    Some(SessionId(Position::new(Term(rest.get_u64()), Lsn(rest.get_u64()))))
}

/// The stored key of a row.
pub fn row_key(key: &[u8]) -> Bytes {
    let mut stored = BytesMut::with_capacity(1 + key.len());
    stored.put_u8(space::ROW);
    stored.put_slice(key);
    stored.freeze()
}

/// A session as executed so far.
pub(crate) fn read(engine: &dyn Engine, id: SessionId) -> Result<Option<Session>, EngineError> {
    let row = engine.get(&key_bytes(id), ReadAt::Applied)?;
    row.map(|(_, value)| Session::decode(&value).map_err(EngineError::Corrupt)).transpose()
}

/// The sessions that were looked at or written last, decoded: what is asked or executed next is often of one
/// of them. They say what reads of their rows at the applied position would, and are of no use at any other
/// (PR-511).
///
/// There are two generations. Who is used is in the newer one; when that is full, the older one is forgotten
/// and the newer one takes its place. So what is here rests on the order of uses alone.
#[derive(Default)]
pub(crate) struct Sessions {
    /// What the engine had executed when they were so.
    at: Position,
    newer: BTreeMap<SessionId, Session>,
    older: BTreeMap<SessionId, Session>,
    /// Of the newer ones.
    bytes: usize,
    /// How the entry at this position, which is executed next, leaves its session.
    next: Option<(Position, SessionId, Session)>,
}

/// The most bytes of a generation of [`Sessions`], unless one session alone has more: [`MAX_OUTCOMES`] bounds
/// that.
const GENERATION_BYTES: usize = 32 << 10;

impl Sessions {
    /// A session as executed so far.
    pub fn look(&mut self, engine: &dyn Engine, id: SessionId) -> Result<Option<&Session>, EngineError> {
        match self.take(engine, id)? {
            Some(session) => self.put(id, session),
            None => return Ok(None),
        }
        Ok(self.newer.get(&id))
    }

    /// The same, to be changed by the next entry: whoever does not say how has it read again.
    fn take(&mut self, engine: &dyn Engine, id: SessionId) -> Result<Option<Session>, EngineError> {
        if self.at != engine.applied() {
            // Something was dropped, or came by another way than entries.
            self.forget();
            self.at = engine.applied();
        }
        let known = self.remove(id);
        debug_assert!(
            known.is_none() || !read(engine, id).is_ok_and(|session| session != known),
            "PR-511: session {} was {known:?} at {}, and is not so in the engine",
            id.0,
            self.at
        );
        if known.is_some() { Ok(known) } else { read(engine, id) }
    }

    /// The entry at `at`, which is executed next, leaves a session so.
    fn keep(&mut self, id: SessionId, at: Position, session: Session) {
        self.next = Some((at, id, session));
    }

    /// The engine has executed the entry at `at` behind `before`, with these changes.
    pub fn executed(&mut self, before: Position, at: Position, mutations: &[Mutation]) {
        let next = self.next.take();
        if self.at != before {
            self.forget();
        }
        // The row of the entry's own session is the last one.
        mutations
            .iter()
            .filter_map(|mutation| session_of(&mutation.key))
            .for_each(|id| drop(self.remove(id)));
        self.at = at;
        if let Some((_, id, session)) = next.filter(|(of, ..)| *of == at) {
            self.put(id, session);
        }
    }

    /// The state is changed otherwise than by entries that follow it.
    pub fn forget(&mut self) {
        *self = Sessions::default();
    }

    fn put(&mut self, id: SessionId, mut session: Session) {
        if session.kept.capacity() > 2 * session.kept.len() + 8 {
            session.kept.shrink_to(session.kept.len() + 1);
        }
        self.bytes += session.memory_bytes();
        if self.bytes > GENERATION_BYTES && !self.newer.is_empty() {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = session.memory_bytes();
        }
        self.newer.insert(id, session);
    }

    fn remove(&mut self, id: SessionId) -> Option<Session> {
        let Some(session) = self.newer.remove(&id) else { return self.older.remove(&id) };
        self.bytes -= session.memory_bytes();
        Some(session)
    }
}

/// Names in an entry what was asked for.
pub(crate) fn fill(header: &mut Header, request: &Request) {
    header.session = request.session;
    header.seq = request.seq;
    header.table = request.table;
    header.schema = request.schema;
}

/// What an entry changes with these effects: beside what they name the row of its session, and the results go
/// that the client has confirmed (PR-192).
pub(crate) fn mutations_of(
    engine: &dyn Engine,
    sessions: &mut Sessions,
    entry: &Entry,
    effects: Effects,
) -> Result<Vec<Mutation>, EngineError> {
    let header = entry.header();
    if !header.session.is_some() {
        return Ok(effects.mutations);
    }
    let mut session = sessions.take(engine, header.session)?.unwrap_or_default();
    let outcome = Outcome::from_number(effects.outcome).ok_or_else(|| {
        let (at, number) = (entry.at(), effects.outcome);
        EngineError::Corrupt(format!("the entry at {at} has the unknown outcome {number}"))
    })?;
    let kept = Kept {
        seq: header.seq,
        hash: effects.request_hash,
        outcome,
        affected: effects.affected,
        at: entry.at(),
    };
    let mut mutations = effects.mutations;
    session.apply(kept, effects.confirmed, header.wall_ms, |gone| {
        mutations.extend(without_result(header.session, gone));
    });
    mutations.push(Mutation { key: session_key(header.session), value: Some(session.encode()) });
    sessions.keep(header.session, entry.at(), session);
    Ok(mutations)
}

/// What a call changes that was done, with what it gave as a row of its own, if it is in a session (PR-192).
/// The same wherever it is made.
pub(crate) fn result_of(
    (session, seq): (SessionId, u64),
    (request_hash, confirmed): (u64, u64),
    done: procedure::Effects,
) -> Effects {
    let kept = session.is_some().then(|| CallResult::Rows(done.rows).encode());
    let affected = u32::try_from(kept.as_ref().map_or(0, Bytes::len)).expect("a result is short");
    let mut mutations = done.mutations;
    mutations.extend(kept.map(|kept| Mutation { key: result_key(session, seq), value: Some(kept) }));
    Effects { request_hash, confirmed, outcome: Outcome::Returned as u8, affected, mutations }
}

/// Removes what a call gave of which nobody asks any more.
fn without_result(session: SessionId, gone: &Kept) -> Option<Mutation> {
    gone.outcome.has_result().then(|| Mutation { key: result_key(session, gone.seq), value: None })
}

/// A request that is not to be done: what is said of it, and the entry that did it before.
pub(crate) struct Seen {
    pub status: Status,
    pub body: Body,
    pub at: Option<Position>,
}

/// Where a request stands in its session: none to go on; else what was seen of it.
pub(crate) fn check(
    engine: &dyn Engine,
    sessions: &mut Sessions,
    rules: Rules,
    request: &Request,
    hash: u64,
) -> Result<Option<Seen>, EngineError> {
    if !request.session.is_some() || !rules.retries_are_applied_once() {
        return Ok(None);
    }
    let seen = |status| Ok(Some(Seen { status, body: Body::None, at: None }));
    let Some(session) = sessions.look(engine, request.session)? else {
        let why = "the session is not known here: it expired, or its opening was lost";
        return seen(Status::Unknown(why.into()));
    };
    match session.standing(request.seq, hash, rules.sessions_have_no_gaps()) {
        Standing::Next => Ok(None),
        Standing::Gap(next) => seen(Status::Expected(next)),
        Standing::Wrong => {
            let seq = request.seq;
            seen(Status::Bad(format!("sequence {seq} was used for another request, or confirmed")))
        }
        Standing::Repeated(kept) => {
            let status = if kept.outcome.is_done() { Status::Ok } else { Status::Refused(kept.outcome) };
            let body = match kept.outcome.has_result() {
                true => Body::Called(kept_result(engine, request)?),
                false => Body::Affected(kept.affected),
            };
            Ok(Some(Seen { status, body, at: Some(kept.at) }))
        }
    }
}

/// What a call of this session and number gave.
fn kept_result(engine: &dyn Engine, request: &Request) -> Result<CallResult, EngineError> {
    let key = result_key(request.session, request.seq);
    let (session, seq) = (request.session, request.seq);
    let missing =
        || EngineError::Corrupt(format!("the result of call {seq} of session {} is missing", session.0));
    let (_, value) = engine.get(&key, ReadAt::Applied)?.ok_or_else(missing)?;
    CallResult::decode(&value).map_err(EngineError::Corrupt)
}

/// Sessions that nobody used for so long.
pub(crate) fn idle(engine: &dyn Engine, wall_ms: u64, ttl_ms: u64) -> Result<Vec<SessionId>, EngineError> {
    let rows = engine.scan(&[space::SESSION], &[space::SESSION + 1], ReadAt::Applied, 10_000, SCAN_BYTES)?;
    let idle = |value: &[u8]| Session::decode(value).is_ok_and(|s| s.touched_ms + ttl_ms < wall_ms);
    let idle = rows.iter().filter(|row| idle(&row.value));
    Ok(idle.filter_map(|row| session_of(&row.key)).take(1000).collect())
}

/// The payload that names expired sessions: epoch and LSN of each, little-endian.
pub(crate) fn encode_expired(sessions: &[SessionId]) -> Bytes {
    let mut out = BytesMut::with_capacity(sessions.len() * 16);
    for session in sessions {
        out.put_u64_le(session.0.term.0);
        out.put_u64_le(session.0.lsn.0);
    }
    out.freeze()
}

/// Which sessions expire by such an entry. The error is a sentence.
pub(crate) fn decode_expired(mut payload: Bytes) -> Result<Vec<SessionId>, String> {
    if !payload.len().is_multiple_of(16) {
        return Err(format!("a list of expired sessions of {} bytes", payload.len()));
    }
    let mut sessions = Vec::with_capacity(payload.len() / 16);
    while payload.has_remaining() {
        sessions.push(SessionId(Position::new(Term(payload.get_u64_le()), Lsn(payload.get_u64_le()))));
    }
    Ok(sessions)
}

/// What goes with sessions that expire: their rows, and what their calls gave.
pub(crate) fn expire(engine: &dyn Engine, sessions: Vec<SessionId>) -> Result<Vec<Mutation>, EngineError> {
    let mut mutations = Vec::with_capacity(sessions.len());
    for id in sessions {
        let kept = read(engine, id)?.map(|session| session.kept).unwrap_or_default();
        mutations.extend(kept.iter().filter_map(|kept| without_result(id, kept)));
        mutations.push(Mutation { key: session_key(id), value: None });
    }
    Ok(mutations)
}

#[cfg(test)]
mod tests;
