//! Files on their way to a member, one set at a time: what it is, which pieces are here, which are asked for,
//! and what was installed.

use crate::history::History;
use std::collections::BTreeMap;
use types::{Lsn, Micros, Missing, Position};
use wire::control;
use wire::ship::{DESCRIPTION, Piece, TransferOffer, Withdrawn};

/// Pieces that are wanted at once.
const MAX_PIECES_IN_FLIGHT: usize = 8;

/// Reads below a set hold up its installation for so long.
pub(super) const READERS: Micros = Micros::from_millis(2_000);

/// A set that is on its way.
pub(super) struct Incoming {
    pub(super) offer: TransferOffer,
    pub(super) history: History,
    pub(super) stage: IncomingStage,
    /// The next piece to ask for, unless it is here already.
    pub(super) next: Piece,
    /// Asked for, and not here yet.
    pub(super) asked: Vec<Piece>,
    /// A piece was lost: what was asked for behind it is of no use.
    pub(super) gap: bool,
    /// When something came, or was asked for again.
    pub(super) moved_at: Micros,
    /// Bytes of the files that are here, and of all of them.
    pub(super) have: u64,
    pub(super) all: u64,
    /// The length of each file.
    pub(super) lengths: Vec<u64>,
    pub(super) tainted: u32,
    /// Spoilt files that the primary was not told of yet.
    pub(super) untold: u64,
}

pub(super) enum IncomingStage {
    /// The set's description comes in.
    Description(Vec<u8>),
    /// What is missing of each file: from where to where.
    Files(BTreeMap<u32, (u64, u64)>),
    /// Everything is here, and the engine makes it its state.
    Installing { begun: bool },
}

impl Incoming {
    pub(super) fn new(offer: TransferOffer, history: History, now: Micros) -> Incoming {
        Incoming {
            offer,
            history,
            stage: IncomingStage::Description(Vec::new()),
            next: Piece { file: DESCRIPTION, from: 0 },
            asked: Vec::new(),
            gap: false,
            moved_at: now,
            have: 0,
            all: 0,
            lengths: Vec::new(),
            tainted: 0,
            untold: 0,
        }
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        match &self.stage {
            IncomingStage::Installing { .. } => "installs the files that it was sent".into(),
            _ => format!("receives files: {} of {} bytes are here", self.have, self.all),
        }
    }

    /// Bytes of the files that are not here.
    pub(super) fn lacking(&self, missing: &[Missing]) -> u64 {
        let length = |file: usize| self.lengths.get(file).copied().unwrap_or(0);
        missing.iter().map(|missing| length(missing.file).saturating_sub(missing.from)).sum()
    }

    /// Bytes of log alone that would do as well, and of log above the files.
    pub(super) fn logs(&self) -> (Option<u64>, u64) {
        (self.offer.log_alone, self.offer.log_above)
    }

    /// It comes beside the log.
    pub(super) fn is_beside(&self) -> bool {
        self.offer.beside
    }

    /// Everything is here, and not installed yet.
    pub(super) fn is_whole(&self) -> bool {
        matches!(&self.stage, IncomingStage::Files(missing) if missing.is_empty())
    }

    /// The engine makes it its state.
    pub(super) fn is_installing(&self) -> bool {
        matches!(&self.stage, IncomingStage::Installing { .. })
    }

    /// How far it is.
    pub(super) fn stage(&self) -> control::FailbackStage {
        match &self.stage {
            IncomingStage::Description(_) => control::FailbackStage::Offered,
            IncomingStage::Files(_) => control::FailbackStage::Files,
            IncomingStage::Installing { .. } => control::FailbackStage::Installing,
        }
    }

    /// Begins to ask again, for what is not here.
    pub(super) fn rewind(&mut self) {
        self.asked.clear();
        self.gap = false;
        self.next = match &self.stage {
            IncomingStage::Description(bytes) => Piece { file: DESCRIPTION, from: bytes.len() as u64 },
            _ => Piece { file: 0, from: 0 },
        };
    }

    /// The next piece to ask for.
    pub(super) fn take_next(&mut self) -> Option<Piece> {
        let length = u64::from(self.offer.piece_bytes);
        match &self.stage {
            IncomingStage::Description(_) => {
                let piece = self.next;
                self.next.from += length;
                (piece.from < self.offer.description_bytes).then_some(piece)
            }
            IncomingStage::Files(missing) => {
                let next = self.next;
                let piece = missing.range(next.file..).find_map(|(file, (from, to))| {
                    let from = if *file == next.file { next.from.max(*from) } else { *from };
                    (from < *to).then_some(Piece { file: *file, from })
                })?;
                self.next = Piece { file: piece.file, from: piece.from.saturating_add(length) };
                Some(piece)
            }
            IncomingStage::Installing { .. } => None,
        }
    }

    /// The next pieces to ask for, once enough of the last ones are here.
    pub(super) fn take_pieces(&mut self) -> Vec<Piece> {
        if self.gap && self.asked.is_empty() {
            self.rewind();
        }
        let mut pieces = Vec::new();
        if !self.gap && self.asked.len() <= MAX_PIECES_IN_FLIGHT / 2 {
            while self.asked.len() < MAX_PIECES_IN_FLIGHT {
                let Some(piece) = self.take_next() else { break };
                self.asked.push(piece);
                pieces.push(piece);
            }
        }
        pieces
    }
}

/// What is next for files on their way here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Nothing,
    /// They are whole and may be installed.
    Install,
    /// What was lost is to be asked for again.
    AskAgain,
    /// What found no room is tried again.
    TryAgain,
    /// There may be files of a set that was never installed.
    Leftovers,
}

/// Files on their way to this replica, one set at a time.
///
/// | from | to | by |
/// | --- | --- | --- |
/// | nothing | the description comes in | [`super::receive::Receiver::offered`] |
/// | the description | the files come in | [`super::receive::Receiver::chunk`] |
/// | the files, all of them here | the engine installs them | [`FilesIn::begin_installing`] |
/// | installing | the files come in again, some were damaged | [`super::receive::Receiver::install`] |
/// | installing | nothing: they are the state | [`FilesIn::finish`] |
/// | any | nothing for now: there is no room | [`FilesIn::pause`] |
/// | any | nothing: refused, withdrawn, of another term | [`FilesIn::forget`], [`FilesIn::withdraw`], [`FilesIn::reconsider`] |
///
/// Invariants (`validate`): a set that comes in is newer than the one installed; no more is asked for at once
/// than [`MAX_PIECES_IN_FLIGHT`].
#[derive(Default)]
pub(crate) struct FilesIn {
    pub(super) set: Option<Box<Incoming>>,
    /// What was offered when there was no room for it, and when that was: it is tried again as if it were
    /// offered once more (PR-135).
    pub(super) paused: Option<Box<(TransferOffer, Micros)>>,
    /// The newest offer of this term that was installed.
    pub(super) installed: u64,
    /// There may be files of a set that was never installed.
    pub(super) leftovers: bool,
}

impl FilesIn {
    /// `leftovers`: the engine may have files of a set that was never installed.
    pub fn new(leftovers: bool) -> FilesIn {
        FilesIn { leftovers, ..FilesIn::default() }
    }

    /// True while a set comes in.
    pub fn is_receiving(&self) -> bool {
        self.set.is_some()
    }

    /// True while the engine makes it its state.
    pub fn is_installing(&self) -> bool {
        self.set.as_ref().is_some_and(|incoming| incoming.is_installing())
    }

    /// For people.
    pub fn words(&self) -> Option<String> {
        self.set.as_ref().map(|incoming| incoming.words())
    }

    /// How far the set is that is to become the state; none if there is none. Files that are sent beside the
    /// log, to a replica that follows it, are no part of a failback.
    pub fn state_stage(&self) -> Option<control::FailbackStage> {
        self.set.as_ref().filter(|incoming| !incoming.is_beside()).map(|incoming| incoming.stage())
    }

    /// Ends what comes in. The files that came stay.
    pub fn forget(&mut self) {
        (self.set, self.paused) = (None, None);
    }

    /// There is no room for what comes in. The files that came stay, and it is tried again later: the primary
    /// waits for what it has offered.
    pub fn pause(&mut self, now: Micros) {
        self.paused = self.set.take().map(|incoming| Box::new((incoming.offer, now)));
    }

    /// What is to be tried again.
    pub fn take_paused(&mut self) -> Option<TransferOffer> {
        self.paused.take().map(|paused| paused.0)
    }

    /// The primary does not offer this any more. What came of it stays for the next offer.
    pub fn withdraw(&mut self, withdrawn: &Withdrawn) {
        let theirs = |incoming: &mut Box<Incoming>| {
            incoming.offer.number == withdrawn.number && incoming.offer.from == withdrawn.from
        };
        drop(self.set.take_if(theirs));
        drop(self.paused.take_if(|paused| paused.0.number == withdrawn.number));
    }

    /// The configuration has changed. What comes in is dropped if another term began, or if this replica has
    /// no place any more.
    pub fn reconsider(&mut self, same_term: bool, has_place: bool) {
        if !same_term {
            self.installed = 0;
        }
        if !same_term || !has_place {
            self.forget();
        }
    }

    /// What is next, after `patience` without anything new.
    pub fn due(&self, now: Micros, patience: Micros) -> Due {
        match &self.set {
            Some(incoming) if incoming.is_whole() => Due::Install,
            Some(incoming) if now.since(incoming.moved_at) >= patience => Due::AskAgain,
            Some(_) => Due::Nothing,
            None if self.paused.as_ref().is_some_and(|paused| now.since(paused.1) >= patience) => {
                Due::TryAgain
            }
            None if self.paused.is_some() => Due::Nothing,
            None if self.leftovers => Due::Leftovers,
            None => Due::Nothing,
        }
    }

    /// Another engine: it may have files of a set that was never installed, or may not.
    pub fn expect_leftovers(&mut self, leftovers: bool) {
        assert!(self.set.is_none(), "F15: a set comes in to an engine that is exchanged");
        self.paused = None;
        self.leftovers = leftovers;
    }

    /// Files of sets that were never installed are removed.
    pub fn clear_leftovers(&mut self) {
        self.leftovers = false;
    }

    /// The position of a set that is whole, and the terms of the log that it is of. Reads at positions below
    /// it are waited for, a while: the set may not have their versions any more (PR-34).
    pub fn installable(&self, now: Micros, reads: Option<Lsn>) -> Option<(Position, &History)> {
        let incoming = self.set.as_ref().filter(|incoming| incoming.is_whole())?;
        let read = reads.is_some_and(|lowest| lowest < incoming.offer.at.lsn);
        let waits = read && now.since(incoming.moved_at) < READERS;
        (!waits).then_some((incoming.offer.at, &incoming.history))
    }

    /// The engine is to make the set its state.
    pub fn begin_installing(&mut self) {
        let incoming = self.set.as_mut().filter(|incoming| incoming.is_whole());
        incoming.expect("PR-35: only whole sets are installed").stage =
            IncomingStage::Installing { begun: false };
    }

    /// The set is the engine's state. Gives what it was, and the terms of its log.
    pub fn finish(&mut self) -> Option<(TransferOffer, History)> {
        let incoming = self.set.take()?;
        assert!(incoming.is_installing(), "PR-35: a set is the state that was not being installed");
        let Incoming { offer, history, .. } = *incoming;
        (self.installed, self.leftovers) = (offer.number, false);
        Some((offer, history))
    }

    /// What must hold of them.
    pub fn validate(&self) -> Result<(), String> {
        let Some(incoming) = &self.set else { return Ok(()) };
        if self.paused.is_some() {
            return Err("a set comes in, and another one waits for room".into());
        }
        let number = incoming.offer.number;
        if number <= self.installed {
            return Err(format!("set {number} comes in, and {} is installed", self.installed));
        }
        if incoming.asked.len() > MAX_PIECES_IN_FLIGHT || incoming.have > incoming.all {
            let Incoming { asked, have, all, .. } = &**incoming;
            return Err(format!(
                "of set {number}, {have} of {all} bytes are here, and {asked:?} is asked for"
            ));
        }
        Ok(())
    }
}
