//! The state itself, by files: the member's side. It asks for what it lacks of an offer, beside whatever else it does, and then
//! has its engine make the set its state.
//!
//! Nothing is given up before that: whatever ends it leaves the replica as it was, with the files that came so far. The set
//! never takes a replica back: what it has published more stays, and only a log that has the set's position can have done so.

use crate::backup::Backup;
use crate::history::History;
use crate::output::Output;
use crate::replica::{Ctx, Replica, Role};
use std::collections::BTreeMap;
use types::engine::Wake;
use types::{ComponentSet, EngineError, Installation, Lsn, Micros, Missing, PartitionRecord, Position};
use wire::ship::{
    Chunk, DESCRIPTION, Installed, MAX_REASON_BYTES, Outcome, Piece, TransferOffer, TransferRequest,
    Withdrawn, decode_set,
};
use wire::{PeerMessage, control};

/// Pieces that are wanted at once.
const AT_ONCE: usize = 8;
/// Reads below a set hold up its installation for so long.
const READERS: Micros = Micros::from_millis(2_000);
/// After so many tainted pieces or files of one offer no more are wanted.
const TAINTED: u32 = 8;

/// A set that is on its way.
pub(crate) struct Incoming {
    offer: TransferOffer,
    history: History,
    stage: Stage,
    /// The next piece to ask for, unless it is here already.
    next: Piece,
    /// Asked for, and not here yet.
    asked: Vec<Piece>,
    /// A piece was lost: what was asked for behind it is of no use.
    gap: bool,
    /// When something came, or was asked for again.
    moved_at: Micros,
    /// Bytes of the files that are here, and of all of them.
    have: u64,
    all: u64,
    /// The length of each file.
    lengths: Vec<u64>,
    tainted: u32,
    /// Spoilt files that the primary was not told of yet.
    untold: u64,
}

enum Stage {
    /// The set's description comes in.
    Description(Vec<u8>),
    /// What is missing of each file: from where to where.
    Files(BTreeMap<u32, (u64, u64)>),
    /// Everything is here, and the engine makes it its state.
    Installing { begun: bool },
}

impl Incoming {
    fn new(offer: TransferOffer, history: History, now: Micros) -> Incoming {
        Incoming {
            offer,
            history,
            stage: Stage::Description(Vec::new()),
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
    pub fn words(&self) -> String {
        match &self.stage {
            Stage::Installing { .. } => "installs the files that it was sent".into(),
            _ => format!("receives files: {} of {} bytes are here", self.have, self.all),
        }
    }

    /// Bytes of the files that are not here.
    pub fn lacking(&self, missing: &[Missing]) -> u64 {
        let length = |file: usize| self.lengths.get(file).copied().unwrap_or(0);
        missing.iter().map(|missing| length(missing.file).saturating_sub(missing.from)).sum()
    }

    /// Bytes of log alone that would do as well, and of log above the files.
    pub fn logs(&self) -> (Option<u64>, u64) {
        (self.offer.log_alone, self.offer.log_above)
    }

    /// It comes beside the log.
    pub fn is_beside(&self) -> bool {
        self.offer.beside
    }

    /// Everything is here, and not installed yet.
    fn is_whole(&self) -> bool {
        matches!(&self.stage, Stage::Files(missing) if missing.is_empty())
    }

    /// The engine makes it its state.
    pub fn is_installing(&self) -> bool {
        matches!(&self.stage, Stage::Installing { .. })
    }

    /// How far it is.
    pub fn stage(&self) -> control::Stage {
        match &self.stage {
            Stage::Description(_) => control::Stage::Offered,
            Stage::Files(_) => control::Stage::Files,
            Stage::Installing { .. } => control::Stage::Installing,
        }
    }

    /// Begins to ask again, for what is not here.
    fn rewind(&mut self) {
        self.asked.clear();
        self.gap = false;
        self.next = match &self.stage {
            Stage::Description(bytes) => Piece { file: DESCRIPTION, from: bytes.len() as u64 },
            _ => Piece { file: 0, from: 0 },
        };
    }

    /// The next piece to ask for.
    fn take_next(&mut self) -> Option<Piece> {
        let length = u64::from(self.offer.piece_bytes);
        match &self.stage {
            Stage::Description(_) => {
                let piece = self.next;
                self.next.from += length;
                (piece.from < self.offer.description_bytes).then_some(piece)
            }
            Stage::Files(missing) => {
                let next = self.next;
                let piece = missing.range(next.file..).find_map(|(file, (from, to))| {
                    let from = if *file == next.file { next.from.max(*from) } else { *from };
                    (from < *to).then_some(Piece { file: *file, from })
                })?;
                self.next = Piece { file: piece.file, from: piece.from.saturating_add(length) };
                Some(piece)
            }
            Stage::Installing { .. } => None,
        }
    }

    /// The next pieces to ask for, once enough of the last ones are here.
    fn take_pieces(&mut self) -> Vec<Piece> {
        if self.gap && self.asked.is_empty() {
            self.rewind();
        }
        let mut pieces = Vec::new();
        if !self.gap && self.asked.len() <= AT_ONCE / 2 {
            while self.asked.len() < AT_ONCE {
                let Some(piece) = self.take_next() else { break };
                self.asked.push(piece);
                pieces.push(piece);
            }
        }
        pieces
    }
}

impl Replica {
    /// A primary has files for this replica.
    pub(crate) fn on_transfer_offer(&mut self, ctx: &mut Ctx, offer: TransferOffer) {
        let Some(record) = self.config.record() else { return };
        let ours = offer.epoch == record.epoch && offer.from == record.primary;
        let able = match &self.role {
            Role::Backup(_) => true,
            Role::Damaged(_) => self.awaits_copy(ctx),
            Role::Idle | Role::Leader(_) => false,
        };
        if !ours || !able || !record.holds(&self.me) {
            return;
        }
        let known = self.incoming.as_ref().map_or(0, |incoming| incoming.offer.number);
        if offer.number == known {
            // What was asked for on an older connection is lost.
            return self.ask_again(ctx);
        }
        if offer.number <= known.max(self.installed) {
            if offer.number == self.installed {
                self.send_installed(ctx, &offer, Outcome::Installed);
            }
            return;
        }
        let history = match History::new(offer.history.clone()) {
            Ok(history) if offer.fault().is_none() => history,
            _ => return,
        };
        let why = if !self.engine.capabilities().ships_files {
            Some("its engine has no files")
        } else if !self.may_hold(&offer) {
            Some("it has published another log")
        } else {
            None
        };
        if let Some(why) = why {
            return self.send_installed(ctx, &offer, Outcome::Refused(why.into()));
        }
        self.incoming = Some(Box::new(Incoming::new(offer, history, ctx.now.mono)));
        self.ask(ctx);
    }

    /// True if what is published here follows the state that is offered (R3).
    fn may_hold(&self, offer: &TransferOffer) -> bool {
        let at = offer.at;
        let agrees = || self.log.holds(at);
        at.lsn >= self.engine.published().lsn || !self.is_damaged() && agrees()
    }

    /// The primary does not offer this any more. What came of it stays for the next offer.
    pub(crate) fn on_withdrawn(&mut self, withdrawn: &Withdrawn) {
        let theirs = |incoming: &&mut Box<Incoming>| {
            incoming.offer.number == withdrawn.number && incoming.offer.from == withdrawn.from
        };
        if self.incoming.as_mut().filter(theirs).is_some() {
            self.incoming = None;
        }
    }

    /// A piece arrives.
    pub(crate) fn on_chunk(&mut self, ctx: &mut Ctx, chunk: &Chunk) {
        let (now, id) = (ctx.now.mono, self.id);
        let Some(incoming) = self.incoming.as_mut() else { return };
        if incoming.offer.number != chunk.number || incoming.offer.from != chunk.from {
            return;
        }
        let Some(place) = incoming.asked.iter().position(|piece| *piece == chunk.piece) else { return };
        incoming.asked.remove(place);
        incoming.moved_at = now;
        if !chunk.is_sound() || chunk.bytes.is_empty() {
            let what = format!("a piece of a file from {} has a wrong checksum", chunk.from);
            ctx.out.push(Output::Notice { partition: id, what });
            (incoming.gap, incoming.tainted) = (true, incoming.tainted + 1);
        } else {
            let taken = match incoming.stage {
                Stage::Description(_) => self.take_description(ctx, chunk),
                Stage::Files(_) => self.take_piece(ctx, chunk),
                Stage::Installing { .. } => Ok(()),
            };
            if let Err(error) = taken {
                return self.cannot_receive(ctx, error);
            }
        }
        self.ask(ctx);
    }

    fn take_description(&mut self, ctx: &mut Ctx, chunk: &Chunk) -> Result<(), EngineError> {
        let Some(incoming) = self.incoming.as_mut() else { return Ok(()) };
        let all = incoming.offer.description_bytes;
        let Stage::Description(bytes) = &mut incoming.stage else { return Ok(()) };
        let fits = bytes.len() as u64 + chunk.bytes.len() as u64 <= all;
        if chunk.piece.from != bytes.len() as u64 || !fits {
            incoming.gap = true;
            return Ok(());
        }
        bytes.extend_from_slice(&chunk.bytes);
        let decoded = ((bytes.len() as u64) >= all).then(|| decode_set(bytes));
        self.count_files(chunk.bytes.len() as u64);
        let Some(decoded) = decoded else { return Ok(()) };
        let Some(incoming) = self.incoming.as_mut() else { return Ok(()) };
        let why = match decoded {
            Ok(set) if set.at == incoming.offer.at || !self.rules.copies_name_their_position() => {
                return self.receive_set(ctx, set);
            }
            Ok(_) => "they are of another position than was said".into(),
            Err(why) => why,
        };
        self.refuse_files(ctx, why);
        Ok(())
    }

    /// The set is known: the engine begins to receive it.
    fn receive_set(&mut self, ctx: &mut Ctx, set: ComponentSet) -> Result<(), EngineError> {
        let Some(incoming) = self.incoming.as_mut() else { return Ok(()) };
        incoming.all = set.bytes();
        incoming.lengths = set.files.iter().map(|file| file.bytes).collect();
        self.leftovers = true;
        let (bytes, whole) = (set.bytes(), self.wants_all(ctx));
        self.returns_by_files(bytes);
        let useful = if whole { self.engine.receive_whole(set) } else { self.engine.receive(set) };
        match useful? {
            true if self.chooses_log(ctx) => {
                if let Some(incoming) = self.incoming.take() {
                    self.send_installed(ctx, &incoming.offer, Outcome::LogIsLess);
                }
                self.engine.stop_receiving()?;
            }
            true => self.begin_files(ctx),
            false if self.may_choose_log() => {
                if let Some(incoming) = self.incoming.take() {
                    self.send_installed(ctx, &incoming.offer, Outcome::LogIsLess);
                }
            }
            false => self.refuse_files(ctx, "its engine has no use for this set".into()),
        }
        Ok(())
    }

    /// Asks the engine what is missing.
    fn begin_files(&mut self, ctx: &mut Ctx) {
        let missing = self.engine.missing();
        let Some(incoming) = self.incoming.as_mut() else { return };
        let lengths = &incoming.lengths;
        let lacks =
            |missing: Missing| Some((missing.file as u32, (missing.from, *lengths.get(missing.file)?)));
        let missing: BTreeMap<u32, (u64, u64)> = missing.into_iter().filter_map(lacks).collect();
        let lacks: u64 = missing.values().map(|(from, to)| to.saturating_sub(*from)).sum();
        incoming.have = incoming.all.saturating_sub(lacks);
        incoming.stage = Stage::Files(missing);
        incoming.rewind();
        self.install_if_whole(ctx);
    }

    /// Reads at positions below the set's are waited for, a while: the set may not have their versions any more (PR-34). What the
    /// primary never had is set aside before (R9).
    fn install_if_whole(&mut self, ctx: &mut Ctx) {
        let (partition, now) = (self.id, ctx.now.mono);
        let reads = self.readers.lowest();
        let Some(incoming) = &self.incoming else { return };
        let (at, common) = (incoming.offer.at, self.log.common_with(&incoming.history, Lsn::MAX));
        let read = reads.is_some_and(|lowest| lowest < at.lsn);
        if !incoming.is_whole() || read && now.since(incoming.moved_at) < READERS {
            return;
        }
        if !self.follows_from(at) && !self.is_aside(ctx, common) {
            return;
        }
        if let Some(incoming) = self.incoming.as_mut() {
            incoming.stage = Stage::Installing { begun: false };
            ctx.out.push(Output::Install { partition });
        }
    }

    /// True if the log here goes on from this position of the primary's.
    fn follows_from(&self, at: Position) -> bool {
        let ends_behind = self.log.end().lsn >= at.lsn && !self.is_damaged();
        ends_behind && self.log.holds(at)
    }

    fn take_piece(&mut self, ctx: &mut Ctx, chunk: &Chunk) -> Result<(), EngineError> {
        let (piece, length) = (chunk.piece, chunk.bytes.len() as u64);
        let fits = self.engine.receive_piece(piece.file as usize, piece.from, &chunk.bytes)?;
        let Some(incoming) = self.incoming.as_mut() else { return Ok(()) };
        let Stage::Files(missing) = &mut incoming.stage else { return Ok(()) };
        let Some((from, to)) = missing.get_mut(&piece.file).filter(|_| fits) else {
            incoming.gap = true;
            return Ok(());
        };
        *from = piece.from + length;
        if *from >= *to {
            missing.remove(&piece.file);
        }
        incoming.have += length;
        self.count_files(length);
        self.install_if_whole(ctx);
        Ok(())
    }

    /// Asks for the next pieces.
    fn ask(&mut self, ctx: &mut Ctx) {
        let Some(incoming) = self.incoming.as_mut() else { return };
        if incoming.tainted > TAINTED {
            return self.refuse_files(ctx, "its files come tainted again and again".into());
        }
        let pieces = incoming.take_pieces();
        if !pieces.is_empty() {
            self.send_transfer_request(ctx, pieces);
        }
    }

    /// Asks again for all that is not here; says at least that this replica is still at it.
    fn ask_again(&mut self, ctx: &mut Ctx) {
        let now = ctx.now.mono;
        let Some(incoming) = self.incoming.as_mut() else { return };
        incoming.moved_at = now;
        incoming.rewind();
        let pieces = incoming.take_pieces();
        self.send_transfer_request(ctx, pieces);
    }

    fn send_transfer_request(&mut self, ctx: &mut Ctx, pieces: Vec<Piece>) {
        let (partition, from) = (self.id, self.me);
        let checked = self.engine.checked_bytes();
        let Some(incoming) = self.incoming.as_mut() else { return };
        let want = TransferRequest {
            partition,
            epoch: incoming.offer.epoch,
            from,
            number: incoming.offer.number,
            pieces,
            have: incoming.have.saturating_add(checked),
            tainted: std::mem::take(&mut incoming.untold),
        };
        let to = incoming.offer.from;
        ctx.out.push(Output::Send { to, message: PeerMessage::TransferRequest(want) });
    }

    fn send_installed(&self, ctx: &mut Ctx, offer: &TransferOffer, outcome: Outcome) {
        let taken = Installed {
            partition: self.id,
            epoch: offer.epoch,
            from: self.me,
            number: offer.number,
            outcome,
        };
        ctx.out.push(Output::Send { to: offer.from, message: PeerMessage::Installed(taken) });
    }

    /// Time has passed: what was lost is asked for again.
    pub(crate) fn receive_tick(&mut self, ctx: &mut Ctx) {
        let patience = Micros(ctx.settings.resend.0 * 20);
        let now = ctx.now.mono;
        match &self.incoming {
            Some(incoming) if incoming.is_whole() => self.install_if_whole(ctx),
            Some(incoming) if now.since(incoming.moved_at) >= patience => self.ask_again(ctx),
            Some(_) => {}
            None => self.clear_leftovers(ctx),
        }
    }

    /// Files of this offer are of no use here: rows are.
    fn refuse_files(&mut self, ctx: &mut Ctx, mut why: String) {
        let Some(incoming) = self.incoming.take() else { return };
        while why.len() > MAX_REASON_BYTES {
            why.pop();
        }
        self.send_installed(ctx, &incoming.offer, Outcome::Refused(why));
        if let Err(error) = self.engine.stop_receiving() {
            self.fail(ctx, error.to_string());
        }
    }

    /// Want of room ends it, for now: what came stays, and the primary offers again after a while.
    fn cannot_receive(&mut self, ctx: &mut Ctx, error: EngineError) {
        self.incoming = None;
        match error {
            EngineError::Full(_) => {
                let what = format!("files cannot be received: {error}");
                ctx.out.push(Output::Notice { partition: self.id, what });
            }
            _ => self.fail(ctx, format!("it cannot take in files: {error}")),
        }
    }

    /// Goes on with the installation. True if it is to be called again when `wake` was.
    pub(crate) fn install(&mut self, ctx: &mut Ctx, wake: &Wake) -> bool {
        let Some(incoming) = self.incoming.as_mut() else { return false };
        let Stage::Installing { begun } = &mut incoming.stage else { return false };
        let begins = !std::mem::replace(begun, true);
        let stands = match begins {
            true => self.engine.begin_installation(wake),
            false => self.engine.go_on_installation(),
        };
        match stands {
            Ok(Installation::Waiting) => return true,
            Ok(Installation::Done) => self.take_over(ctx),
            Ok(Installation::Tainted(files)) => self.fetch_again(ctx, &files),
            Ok(Installation::Refused(why)) => self.refuse_files(ctx, why),
            Err(error) => self.cannot_receive(ctx, error),
        }
        false
    }

    /// Some files are not what they should be.
    fn fetch_again(&mut self, ctx: &mut Ctx, files: &[usize]) {
        let id = self.id;
        let Some(incoming) = self.incoming.as_mut() else { return };
        let what = format!(
            "{} files that {} sent do not match their digests and are fetched again",
            files.len(),
            incoming.offer.from
        );
        ctx.out.push(Output::Notice { partition: id, what });
        incoming.untold += files.len() as u64;
        incoming.tainted += 1;
        self.begin_files(ctx);
        self.ask(ctx);
    }

    /// The set is the engine's state. Where the log does not hold its position, the log begins there (PR-35).
    fn take_over(&mut self, ctx: &mut Ctx) {
        let Some(incoming) = self.incoming.take() else { return };
        // Of its own term, the newest, the primary has all that there is (R9).
        let common = self.log.common_with(&incoming.history, Lsn::MAX);
        let Incoming { offer, mut history, .. } = *incoming;
        let at = offer.at;
        let agrees = self.follows_from(at);
        if agrees {
            self.marks.commit(at.lsn, self.log.end().lsn);
            self.marks.secure(at.lsn);
        } else {
            self.cut_aside(ctx, common);
            let in_both = if self.is_damaged() { Lsn::ZERO } else { common };
            self.log.lower_durable(in_both);
            self.engine.discard_above(at);
            history.truncate(at.lsn);
            self.rebase(ctx, at, offer.at_crc, history);
        }
        if self.is_damaged() {
            self.role.becomes(Role::Backup(Backup::new(ctx.settings.resend)));
        }
        if let Some(backup) = self.role.backup_mut() {
            match agrees {
                true => backup.acks.agrees(at.lsn),
                false => backup.acks.begin_at(at.lsn),
            }
        }
        (self.installed, self.leftovers) = (offer.number, false);
        self.given(self.wants_all(ctx));
        self.send_installed(ctx, &offer, Outcome::Installed);
    }

    /// In another configuration: what is received is of its term, and a replica that counts needs none of it.
    pub(crate) fn reconsider_incoming(&mut self, record: &PartitionRecord, old: Option<&PartitionRecord>) {
        let same_term = old.is_some_and(|old| old.term == record.term);
        if !same_term {
            self.installed = 0;
        }
        if !same_term || !record.holds(&self.me) {
            self.incoming = None;
        }
    }

    /// A replica that counts needs nothing of what never was a whole set. One that has no place now may be taken in again, and
    /// goes on with what is here.
    fn clear_leftovers(&mut self, ctx: &mut Ctx) {
        let counts = self.config.record().is_some_and(|record| record.in_sync.contains(&self.me));
        if counts
            && std::mem::take(&mut self.leftovers)
            && let Err(error) = self.engine.stop_receiving()
        {
            self.fail(ctx, error.to_string());
        }
    }
}
