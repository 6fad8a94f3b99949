//! Who writes the engine to disk. Where engines ship files, only the primary makes them, so that every
//! replica has the same ones (PR-38): a member whose log is too long asks the primary for a flush, and
//! installs what it is offered then.
//!
//! A member that gets nothing for long makes files of its own; the primary's next ones take their place.

use crate::data::Data;
use crate::output::{Origin, Output};
use types::{Lsn, Member, Micros, PartitionRecord, Position};
use wire::PeerMessage;
use wire::ship::{FlushAnswer, FlushRequest};

/// A request is made again after so long.
const ASKS: Micros = Micros::from_millis(1_000);
/// A member makes files of its own if nothing came for so long.
const WAIT_LIMIT: Micros = Micros::from_millis(5_000);

/// What a member wants of its primary.
#[derive(Debug)]
struct PendingFlush {
    /// What its files held then.
    persisted: Lsn,
    /// Since when nothing came; zero: since the next tick.
    since: Micros,
    asked_at: Micros,
}

/// A member's requests for a flush, one at a time.
///
/// | from | to | by |
/// | --- | --- | --- |
/// | nothing | pending | [`FlushRequests::leave_to_primary`], [`FlushRequests::want_load`] |
/// | pending | nothing: its files have more, or need no more | [`FlushRequests::tick`], [`FlushRequests::hear`] |
/// | pending, for long | makes files of its own | [`FlushRequests::tick`] |
/// | makes files of its own | nothing | [`FlushRequests::leave_to_primary`] |
///
/// Whatever it waits for, what a checkpoint may do is decided by [`FlushRequests::leave_to_primary`] alone.
#[derive(Debug, Default)]
pub(crate) struct FlushRequests {
    /// The primary is asked for files.
    pending: Option<PendingFlush>,
    /// It gave none for long: the next checkpoint is this replica's own.
    makes_own: bool,
}

/// How a member's files stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilesHere {
    /// It follows a primary.
    pub follows: bool,
    pub persisted: Lsn,
    /// It has published more than its files hold, or waits for a load to be in them.
    pub lacks: bool,
    /// Files are on their way.
    pub receives: bool,
}

/// What is to be done for a pending request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushStep {
    Nothing,
    /// The primary is to be asked.
    Ask,
    /// It gave nothing for long.
    GiveUp,
}

impl FlushRequests {
    /// A checkpoint is due. True if it is left to the primary, which is asked for it, as `shipped` says that
    /// it may be.
    pub fn leave_to_primary(&mut self, shipped: bool, persisted: Lsn) -> bool {
        let ours = std::mem::take(&mut self.makes_own);
        if !shipped || ours {
            return false;
        }
        self.want(persisted, Micros::ZERO);
        true
    }

    /// A load is to be in this member's files.
    pub fn want_load(&mut self, persisted: Lsn, now: Micros) {
        self.want(persisted, now);
    }

    fn want(&mut self, persisted: Lsn, asked_at: Micros) {
        self.pending.get_or_insert(PendingFlush { persisted, since: Micros::ZERO, asked_at });
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Micros, here: FilesHere) -> FlushStep {
        let Some(pending) = &mut self.pending else { return FlushStep::Nothing };
        if !here.follows || pending.persisted < here.persisted {
            self.pending = None;
            return FlushStep::Nothing;
        }
        if here.receives || pending.since == Micros::ZERO {
            pending.since = now;
        }
        if now.since(pending.since) >= WAIT_LIMIT {
            (self.pending, self.makes_own) = (None, here.lacks);
            return FlushStep::GiveUp;
        }
        if here.receives || now.since(pending.asked_at) < ASKS {
            return FlushStep::Nothing;
        }
        pending.asked_at = now;
        FlushStep::Ask
    }

    /// The primary has files for this replica, or knows of nothing that is not in files here.
    pub fn hear(&mut self, now: Micros, answer: &FlushAnswer, persisted: Lsn) {
        let Some(pending) = self.pending.as_mut() else { return };
        if answer.flushed {
            pending.since = now;
        } else if answer.at.lsn <= persisted {
            self.pending = None;
        }
    }

    /// The engine that had the files is gone.
    pub fn forget(&mut self) {
        self.pending = None;
    }
}

/// Tells a member whether a flush gave it anything.
pub(crate) fn answer_flush(origin: Origin, to: Member, at: Position, theirs: Lsn) -> Output {
    let Origin { partition, epoch, me: from } = origin;
    let answer = FlushAnswer { partition, epoch, from, at, flushed: at.lsn > theirs };
    Output::Send { to, message: PeerMessage::FlushAnswer(answer) }
}

/// Asks the primary of this configuration for files, and gives up waiting for them. A load that is committed,
/// secured and not in this member's files is in the primary's next set.
pub(crate) fn tick(
    flush: &mut FlushRequests,
    data: &mut Data,
    (record, me): (&PartitionRecord, Member),
    (follows, receives): (bool, bool),
    now: Micros,
) -> Option<Output> {
    let persisted = data.engine.persisted().lsn;
    let publishable = data.marks.publishable();
    let load = data.engine.pending_load().filter(|at| follows && publishable >= at.lsn);
    if let Some(at) = load {
        if let Some(staging) = data.engine.staging_mut() {
            staging.allow_load(at.lsn);
        }
        flush.want_load(persisted, now);
    }
    let lacks = load.is_some() || data.engine.published().lsn > persisted;
    match flush.tick(now, FilesHere { follows, persisted, lacks, receives }) {
        FlushStep::Nothing => None,
        FlushStep::Ask => {
            let request = FlushRequest { partition: record.id, epoch: record.epoch, from: me, persisted };
            Some(Output::Send { to: record.primary, message: PeerMessage::FlushRequest(request) })
        }
        FlushStep::GiveUp => load.map(|_| Output::Checkpoint { partition: record.id }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: FilesHere = FilesHere { follows: true, persisted: Lsn(3), lacks: true, receives: false };

    fn answer(flushed: bool, lsn: u64) -> FlushAnswer {
        let (partition, from) = (types::PartitionId(1), crate::fake::member());
        FlushAnswer { partition, epoch: types::Epoch(1), from, at: crate::fake::at(lsn), flushed }
    }

    #[test]
    fn pr38_files_are_the_primarys_until_it_gives_none_for_long() {
        let mut flush = FlushRequests::default();
        assert!(!flush.leave_to_primary(false, Lsn(3)), "nobody else makes its files");
        assert!(flush.leave_to_primary(true, Lsn(3)));
        let begun = Micros::from_millis(2_000);
        assert_eq!(flush.tick(begun, HERE), FlushStep::Ask);
        assert_eq!(flush.tick(begun, HERE), FlushStep::Nothing, "it was asked just now");
        assert_eq!(flush.tick(begun + ASKS, HERE), FlushStep::Ask);
        assert_eq!(flush.tick(begun + WAIT_LIMIT, HERE), FlushStep::GiveUp);
        assert!(!flush.leave_to_primary(true, Lsn(3)), "one checkpoint is its own");
        assert!(flush.leave_to_primary(true, Lsn(3)), "and the next one is not");
    }

    #[test]
    fn a_request_ends_when_there_is_nothing_more_to_be_had() {
        let begun = Micros::from_millis(2_000);
        let pending = || {
            let mut flush = FlushRequests::default();
            flush.want_load(Lsn(3), Micros::ZERO);
            assert_eq!(flush.tick(begun, HERE), FlushStep::Ask);
            flush
        };
        for here in [FilesHere { persisted: Lsn(4), ..HERE }, FilesHere { follows: false, ..HERE }] {
            let mut flush = pending();
            assert_eq!(flush.tick(begun + WAIT_LIMIT, here), FlushStep::Nothing, "{here:?}");
            assert_eq!(flush.tick(begun + WAIT_LIMIT, HERE), FlushStep::Nothing, "it is over");
        }
        let mut flush = pending();
        flush.hear(begun + WAIT_LIMIT, &answer(true, 4), Lsn(3));
        assert_eq!(flush.tick(begun + WAIT_LIMIT, HERE), FlushStep::Ask, "files are to come");
        flush.hear(begun, &answer(false, 3), Lsn(3));
        assert_eq!(flush.tick(begun + WAIT_LIMIT, HERE), FlushStep::Nothing, "the primary has no more");
        let mut flush = pending();
        let receives = FilesHere { receives: true, ..HERE };
        assert_eq!(flush.tick(begun + WAIT_LIMIT, receives), FlushStep::Nothing, "they are on their way");
    }
}
