//! What an entry does to an engine: the same on every replica.

use crate::features::bulk::staged_load;
use crate::session::{self, Session, Sessions, session_key};
use crate::unfit::Unfit;
use bytes::Bytes;
use types::engine::{LARGE_VALUE_BYTES, most_held, mutation_fault};
use types::{Engine, Mutation, Rules, SessionId};
use wire::entry::Kind;
use wire::{Effects, Entry};

fn not_understood(entry: &Entry) -> Unfit {
    let (kind, at) = (entry.header().kind, entry.at());
    Unfit::Here(format!("an entry of kind {kind:?} at {at} is not understood by this version"))
}

/// What a call came to. It is made where it is taken in, and nowhere else: who takes part in no set, and who
/// replays, has what it came to beside it (PR-240).
fn of_call(entry: &Entry) -> Result<Bytes, Unfit> {
    let alone = || Unfit::Entry(format!("PR-240: the call at {} comes without what it came to", entry.at()));
    entry.effects().ok_or_else(alone)
}

/// Refuses an entry that no engine of this version could execute.
pub(crate) fn understood(entry: &Entry) -> Result<(), Unfit> {
    match entry.header().kind {
        Kind::Bulk => Ok(()),
        Kind::Call => of_call(entry).map(drop),
        Kind::Rows | Kind::SessionOpen | Kind::SessionExpire | Kind::Schema => Ok(()),
        Kind::Policy | Kind::Configuration | Kind::Noop => Ok(()),
        _ => Err(not_understood(entry)),
    }
}

/// Gives large values memory of their own that are too small a part of what they share: engines keep them as
/// they come. `holds`: how many bytes they keep in memory by sharing, if that is known.
pub(crate) fn own_large(mutations: &mut [Mutation], holds: Option<usize>) {
    for value in mutations.iter_mut().filter_map(|mutation| mutation.value.as_mut()) {
        let is_most = holds.is_some_and(|holds| holds <= most_held(value.len()));
        if value.len() >= LARGE_VALUE_BYTES && !is_most {
            *value = Bytes::copy_from_slice(value);
        }
    }
}

/// Executes the entry that follows what the engine has. `holds`: of how many bytes in memory the entry is a
/// part, if that is known.
pub(crate) fn execute(
    engine: &mut dyn Engine,
    sessions: &mut Sessions,
    rules: Rules,
    entry: &Entry,
    holds: Option<usize>,
) -> Result<(), Unfit> {
    let mut mutations = mutations(engine, sessions, rules, entry)?;
    own_large(&mut mutations, holds);
    let before = engine.applied();
    match entry.header().kind {
        Kind::Bulk => {
            let load = staged_load(engine, rules, entry)?.load;
            let staging = engine.staging_mut().expect("PR-39: it stages loads, or has none");
            staging.execute_load(entry.at(), load, &mutations);
        }
        _ => engine.execute(entry.at(), &mutations),
    }
    sessions.executed(before, entry.at(), &mutations);
    Ok(())
}

/// What an entry changes: the same on every replica, since it depends on the entry and the state below it
/// alone.
fn mutations(
    engine: &dyn Engine,
    sessions: &mut Sessions,
    rules: Rules,
    entry: &Entry,
) -> Result<Vec<Mutation>, Unfit> {
    match entry.header().kind {
        kind @ (Kind::Rows | Kind::Call) => {
            let effects = if kind == Kind::Call { of_call(entry)? } else { entry.payload() };
            let effects = Effects::decode(effects).map_err(Unfit::Entry)?;
            if let Some(fault) = effects.mutations.iter().find_map(mutation_fault) {
                return Err(Unfit::Entry(format!("PR-72: the entry at {}: {fault}", entry.at())));
            }
            Ok(session::mutations_of(engine, sessions, entry, effects)?)
        }
        Kind::Bulk => {
            let effects = staged_load(engine, rules, entry)?.effects;
            Ok(session::mutations_of(engine, sessions, entry, effects)?)
        }
        Kind::SessionOpen => {
            let session = Session { touched_ms: entry.header().wall_ms, ..Session::default() };
            let key = session_key(SessionId(entry.at()));
            Ok(vec![Mutation { key, value: Some(session.encode()) }])
        }
        Kind::SessionExpire => {
            let sessions = session::decode_expired(entry.payload()).map_err(Unfit::Entry)?;
            Ok(session::expire(engine, sessions)?)
        }
        Kind::Schema => crate::features::index::decode(entry).map_err(Unfit::Entry),
        Kind::Policy | Kind::Configuration | Kind::Noop => Ok(Vec::new()),
        _ => Err(not_understood(entry)),
    }
}
