//! Files to members: the primary's side. What it has on disk is pinned and offered, and the member asks for what it lacks.
//!
//! To a member whose log is too old the files are the state itself ([`Mode::Shipping`]), and the log goes on from there. The log
//! above them is kept from before they are pinned until the member has it (R8, F14), so what was written meanwhile needs no second
//! copy. To members that follow the log they go beside it, whenever the primary has flushed: only the primary makes files, so
//! that all replicas have the same ones (PR-38).

use crate::output::Output;
use crate::primary::progress::Mode;
use crate::replica::{Ctx, Replica, Role};
use crate::settings::Settings;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use types::{ComponentSet, EngineError, LogKind, Lsn, Member, Micros, PinId, Position};
use wire::PeerMessage;
use wire::ship::{
    Chunk, DESCRIPTION, Installed, MAX_DESCRIPTION_BYTES, MAX_PIECES, Outcome, Piece, TransferOffer,
    TransferRequest, Withdrawn, encode_set, encode_set_evenly,
};

/// Files that are being written when they are asked for are waited for so long; then rows are sent.
const PIN_PATIENCE: Micros = Micros::from_millis(10_000);
/// A member that asked for nothing for so long is looked at anew.
pub(crate) const SILENT: Micros = Micros::from_millis(5_000);
/// The same of one that answers and has no more after so long: its disk may hang.
const STILL: Micros = Micros::from_millis(15_000);
/// No piece is longer: entries of the log travel on the same connection.
const PIECE_BYTES: usize = 256 << 10;
/// Nor shorter, for a disk's sake.
const LEAST_PIECE_BYTES: u64 = 512;

/// Files that are being shipped.
#[derive(Debug)]
pub(crate) struct Shipping {
    number: u64,
    since: Micros,
    tried_at: Micros,
    pinned: Option<Pinned>,
    /// Wanted, and not sent yet.
    wanted: VecDeque<Piece>,
    offered_at: Micros,
    /// When the member last asked; it has not answered the newest offer yet if that is later.
    heard_at: Micros,
    answered: bool,
    /// Bytes of the files that the member said it has, or has and has checked, and when they were fewer.
    have: (u64, Micros),
    /// Up to where its log is that of this replica, as long as it may choose the log alone.
    agreed: Option<Lsn>,
}

#[derive(Debug)]
struct Pinned {
    pin: PinId,
    at: Position,
    at_crc: u32,
    description: Bytes,
    bytes: u64,
    /// The length of a piece.
    piece_bytes: u32,
}

impl Shipping {
    /// The connection is new: what was on its way is lost.
    pub fn resend(&mut self) {
        (self.offered_at, self.answered) = (Micros::ZERO, false);
        self.wanted.clear();
    }

    /// Bytes that the member has, and of the whole set.
    pub fn progress(&self) -> (u64, u64) {
        let all = self.pinned.as_ref().map_or(0, |pinned| pinned.bytes);
        (self.have.0.min(all), all)
    }

    /// The member takes part, and gets on.
    pub fn is_alive(&self, now: Micros) -> bool {
        now.since(self.heard_at.max(self.since)) < SILENT && !self.is_stuck(now)
    }

    /// It gets no further.
    fn is_stuck(&self, now: Micros) -> bool {
        now.since(self.have.1) >= STILL
    }
}

impl Replica {
    /// Begins to ship files to a member that was just made anew.
    pub(crate) fn start_shipping(&mut self, ctx: &mut Ctx, member: Member) {
        let persisted = self.engine.persisted();
        let files = self.new_shipping(ctx.now.mono);
        let Some(progress) = self.progress(member) else { return };
        progress.rewind(persisted.lsn.next());
        progress.needs = persisted.lsn;
        progress.mode = Mode::Shipping;
        progress.files = Some(files);
        self.ship_on(ctx, member);
    }

    fn new_shipping(&mut self, now: Micros) -> Box<Shipping> {
        self.offers = now.0.max(self.offers + 1);
        Box::new(Shipping {
            number: self.offers,
            since: now,
            tried_at: Micros::ZERO,
            pinned: None,
            wanted: VecDeque::new(),
            offered_at: Micros::ZERO,
            heard_at: now,
            answered: false,
            have: (0, now),
            agreed: None,
        })
    }

    /// Files that a member which follows the log does not have yet go to it beside the log.
    pub(crate) fn deliver(&mut self, ctx: &mut Ctx, member: Member) {
        let persisted = self.engine.persisted().lsn;
        let ships = self.engine.capabilities().ships_files && self.config.log_kind() == LogKind::Disk;
        let serves = self.serves();
        let Some(progress) = self.progress(member) else { return };
        if progress.files.is_none() {
            let lacks = progress.marks.persisted < persisted && progress.delivered < persisted;
            if !(ships && serves && lacks) || progress.rows_only || !progress.health.is_level() {
                return;
            }
            let files = self.new_shipping(ctx.now.mono);
            let Some(progress) = self.progress(member) else { return };
            (progress.delivered, progress.files) = (persisted, Some(files));
        }
        self.ship_on(ctx, member);
    }

    /// Offers what is to be shipped, or offers it again.
    pub(crate) fn ship_on(&mut self, ctx: &mut Ctx, member: Member) {
        let (now, resend) = (ctx.now.mono, ctx.settings.resend);
        let Some(shipping) = self.shipping(member) else { return };
        if shipping.pinned.is_none() {
            if now.since(shipping.tried_at) >= resend {
                shipping.tried_at = now;
                self.pin_for(ctx, member);
            }
        } else if !shipping.is_alive(now) {
            let stuck = shipping.is_stuck(now);
            self.look_again(member);
            if let Some(progress) = self.progress(member) {
                if stuck && !matches!(progress.mode, Mode::Stream) {
                    progress.health.note_stuck();
                }
            }
        } else if !shipping.answered && now.since(shipping.offered_at) >= Micros(resend.0 * 20) {
            self.send_transfer_offer(ctx, member);
        }
    }

    fn shipping(&mut self, member: Member) -> Option<&mut Shipping> {
        self.progress(member)?.files.as_deref_mut()
    }

    fn pin_for(&mut self, ctx: &mut Ctx, member: Member) {
        let now = ctx.now.mono;
        let (pin, set) = match self.engine.pin() {
            Ok(Some(pinned)) => pinned,
            Ok(None) => {
                let Some(since) = self.shipping(member).map(|shipping| shipping.since) else { return };
                // It may be writing some just now.
                if now.since(since) >= PIN_PATIENCE || self.engine.persisted() == Position::ZERO {
                    self.send_rows(ctx, member);
                }
                return;
            }
            // It is tried again at the next tick.
            Err(EngineError::Later(_)) => return,
            Err(error) => return self.fail(ctx, error.to_string()),
        };
        self.pins.insert(pin);
        // The log goes on where the files end.
        let in_log =
            set.at.lsn >= self.log.base().lsn && self.log.history().term_at(set.at.lsn) == Some(set.at.term);
        let even = ctx.settings.even_descriptions;
        let description = if even { encode_set_evenly(&set) } else { encode_set(&set) };
        if !in_log || set.fault().is_some() || description.len() as u64 > MAX_DESCRIPTION_BYTES {
            return self.send_rows(ctx, member);
        }
        let at = self.offered_position(&set);
        let at_crc = self.log.tail().at(at.lsn).map_or(0, |(_, crc)| crc);
        let (bytes, piece_bytes) = (set.bytes(), piece_bytes(ctx.settings));
        let Some(progress) = self.progress(member) else { return };
        let agreed = progress.files.as_ref().and_then(|shipping| shipping.agreed);
        if matches!(progress.mode, Mode::Shipping) {
            progress.rewind(at.lsn.next());
            progress.needs = at.lsn.min(agreed.unwrap_or(Lsn::MAX));
        }
        let Some(shipping) = progress.files.as_mut() else { return };
        shipping.pinned = Some(Pinned { pin, at, at_crc, description, bytes, piece_bytes });
        (shipping.heard_at, shipping.have.1) = (now, now);
        self.send_transfer_offer(ctx, member);
    }

    /// The position of what was pinned. F14 without its rule: that of the state as it is meanwhile.
    fn offered_position(&self, set: &ComponentSet) -> Position {
        if self.rules.copies_name_their_position() { set.at } else { self.engine.published() }
    }

    fn send_transfer_offer(&mut self, ctx: &mut Ctx, member: Member) {
        let now = ctx.now.mono;
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return };
        let (partition, from, history) = (self.id, self.me, self.log.history().starts().to_vec());
        let (log_alone, log_above) = self.log_bytes_for(member);
        let Some(progress) = self.progress(member) else { return };
        let beside = !matches!(progress.mode, Mode::Shipping);
        let Some(shipping) = progress.files.as_deref_mut() else { return };
        let Some(pinned) = &shipping.pinned else { return };
        shipping.offered_at = now;
        let offer = TransferOffer {
            partition,
            epoch,
            from,
            number: shipping.number,
            at: pinned.at,
            at_crc: pinned.at_crc,
            history,
            description_bytes: pinned.description.len() as u64,
            piece_bytes: pinned.piece_bytes,
            beside,
            log_alone,
            log_above,
        };
        ctx.out.push(Output::Send { to: member, message: PeerMessage::TransferOffer(offer) });
    }

    /// Files are of no use to this member, or there are none. One that follows the log needs none.
    fn send_rows(&mut self, ctx: &mut Ctx, member: Member) {
        let Some(progress) = self.progress(member) else { return };
        progress.files = None;
        if matches!(progress.mode, Mode::Shipping) {
            progress.rows_only = true;
            self.start_copy(ctx, member);
        }
    }

    fn look_again(&mut self, member: Member) {
        let Some(progress) = self.progress(member) else { return };
        progress.log_only |= progress.files.as_ref().is_some_and(|shipping| shipping.agreed.is_some());
        progress.files = None;
        if matches!(progress.mode, Mode::Shipping) {
            progress.mode = Mode::Probe { asked_at: Micros::ZERO };
        }
    }

    /// The log is short of room: members that are sent files are offered newer ones, which need less of it. For members that come
    /// back by the log it is held no longer: who lacks what goes then is sent files, too.
    pub(crate) fn offer_newer(&mut self) {
        let (persisted, memory) = (self.engine.persisted().lsn, self.config.log_kind() == LogKind::Memory);
        self.config.note_no_room();
        let Some(leader) = self.leader() else { return };
        for progress in leader.members.values_mut() {
            let met = if memory { progress.marks.received } else { progress.marks.durable };
            let by_log = !matches!(progress.mode, Mode::Shipping | Mode::Copying(_));
            if by_log && progress.needs.max(met) < persisted {
                progress.needs = Lsn::MAX;
            }
            let pinned = progress.files.as_ref().and_then(|shipping| shipping.pinned.as_ref());
            if matches!(progress.mode, Mode::Shipping)
                && pinned.is_some_and(|pinned| pinned.at.lsn < persisted)
            {
                progress.mode = Mode::Probe { asked_at: Micros::ZERO };
                (progress.files, progress.needs) = (None, Lsn::MAX);
            }
        }
    }

    /// A member lacks something.
    pub(crate) fn on_transfer_request(&mut self, ctx: &mut Ctx, want: &TransferRequest) {
        let (now, id, me) = (ctx.now.mono, self.id, self.me);
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return };
        let Some(leader) = self.leader() else { return };
        if want.epoch < leader.term.began() || want.epoch > epoch {
            return;
        }
        let Some(progress) = leader.members.get_mut(&want.from) else { return };
        let shipping = match &mut progress.files {
            Some(shipping) if shipping.number == want.number => shipping,
            _ => {
                let withdrawn = Withdrawn { partition: id, epoch, from: me, number: want.number };
                let message = PeerMessage::Withdrawn(withdrawn);
                return ctx.out.push(Output::Send { to: want.from, message });
            }
        };
        (shipping.heard_at, shipping.answered) = (now, true);
        if want.have != shipping.have.0 {
            shipping.have = (want.have, now);
        }
        for piece in &want.pieces {
            if shipping.wanted.len() < 2 * MAX_PIECES && !shipping.wanted.contains(piece) {
                shipping.wanted.push_back(*piece);
            }
        }
        let takes_files = want.pieces.iter().any(|piece| piece.file != DESCRIPTION);
        if takes_files && shipping.agreed.take().is_some() {
            // It has chosen: the log below the files is not kept for it any more.
            progress.needs = shipping.pinned.as_ref().map_or(progress.needs, |pinned| pinned.at.lsn);
        }
        if want.tainted > 0 {
            let what =
                format!("{} got {} files from here that were tainted on the way", want.from, want.tainted);
            ctx.out.push(Output::Notice { partition: id, what });
        }
    }

    /// The member is through with an offer.
    pub(crate) fn on_installed(&mut self, ctx: &mut Ctx, taken: &Installed) {
        let id = self.id;
        let Some(progress) = self.progress(taken.from) else { return };
        let pinned = progress.files.as_ref().filter(|shipping| shipping.number == taken.number);
        let Some(at) = pinned.and_then(|shipping| shipping.pinned.as_ref()).map(|pinned| pinned.at.lsn)
        else {
            return;
        };
        let agreed = progress.files.take().and_then(|shipping| shipping.agreed);
        let state = matches!(progress.mode, Mode::Shipping);
        match &taken.outcome {
            Outcome::LogIsLess => self.send_log(ctx, taken.from, agreed),
            Outcome::Installed if state => {
                progress.mode = Mode::Stream;
                progress.agree(at);
                self.ship(ctx);
            }
            Outcome::Installed => progress.delivered = progress.delivered.max(at),
            Outcome::Refused(why) => {
                if state {
                    progress.rows_only = true;
                    self.look_again(taken.from);
                }
                let what = format!("{} takes no files: {why}", taken.from);
                ctx.out.push(Output::Notice { partition: id, what });
            }
        }
    }

    /// True if a member whose log agrees up to here may lack less in files than in the log.
    pub(crate) fn files_may_be_less(&mut self, ctx: &Ctx, member: Member, agreed: Lsn) -> bool {
        let (persisted, missing) = (self.engine.persisted().lsn, self.log.bytes_above(agreed));
        let ships = self.engine.capabilities().ships_files && self.config.log_kind() == LogKind::Disk;
        let catching_up = self.config.is_catching_up(&member);
        let asked = self.progress(member).is_some_and(|progress| progress.log_only || progress.rows_only);
        ships && catching_up && !asked && persisted > agreed && missing > ctx.settings.failback_log_bytes
    }

    /// Offers files to a member that the log alone would bring level, too. The log is kept until it has chosen.
    pub(crate) fn offer_choice(&mut self, ctx: &mut Ctx, member: Member, agreed: Lsn) {
        let now = ctx.now.mono;
        let mut files = self.new_shipping(now);
        files.agreed = Some(agreed);
        let Some(progress) = self.progress(member) else { return };
        progress.begin_from_scratch(now);
        progress.rewind(agreed.next());
        progress.needs = agreed;
        progress.mode = Mode::Shipping;
        progress.files = Some(files);
        self.ship_on(ctx, member);
    }

    /// Bytes of log that bring a member level without files, if it may choose, and above the files that it is offered.
    fn log_bytes_for(&self, member: Member) -> (Option<u64>, u64) {
        let Role::Leader(leader) = &self.role else { return (None, 0) };
        let shipping = leader.members.get(&member).and_then(|progress| progress.files.as_ref());
        let Some(shipping) = shipping else { return (None, 0) };
        let above = shipping.pinned.as_ref().map_or(0, |pinned| self.log.bytes_above(pinned.at.lsn));
        (shipping.agreed.map(|agreed| self.log.bytes_above(agreed)), above)
    }

    /// A member chose the log.
    fn send_log(&mut self, ctx: &mut Ctx, member: Member, agreed: Option<Lsn>) {
        let log_base = self.log.base().lsn;
        let Some(progress) = self.progress(member) else { return };
        progress.log_only = true;
        if !matches!(progress.mode, Mode::Shipping) {
            return;
        }
        match agreed.filter(|agreed| *agreed >= log_base) {
            Some(agreed) => {
                progress.mode = Mode::Stream;
                progress.needs = agreed;
                progress.agree(agreed);
                self.ship(ctx);
            }
            None => progress.mode = Mode::Probe { asked_at: Micros::ZERO },
        }
    }

    /// True if a member waits for a piece.
    pub(crate) fn has_pieces_to_send(&self) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        let mut shipped = leader.members.values().filter_map(|progress| progress.files.as_ref());
        shipped.any(|shipping| !shipping.wanted.is_empty())
    }

    /// Sends one piece, to one member after the other. Gives its length.
    pub(crate) fn send_piece(&mut self, ctx: &mut Ctx) -> usize {
        let Some((member, number, piece)) = self.next_wanted() else { return 0 };
        self.served_piece = Some(member);
        let bytes = match self.piece_of(member, piece) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                self.look_again(member);
                return 0;
            }
            // The member asks for it again.
            Err(EngineError::Later(_)) => return 0,
            Err(error) => {
                self.fail(ctx, error.to_string());
                return 0;
            }
        };
        let Some(epoch) = self.config.record().map(|record| record.epoch) else { return 0 };
        let crc = Chunk::checksum(&bytes);
        let length = bytes.len();
        let chunk = Chunk { partition: self.id, epoch, from: self.me, number, piece, crc, bytes };
        ctx.out.push(Output::Send { to: member, message: PeerMessage::Chunk(chunk) });
        length
    }

    fn next_wanted(&mut self) -> Option<(Member, u64, Piece)> {
        let last = self.served_piece;
        let leader = self.leader()?;
        let wants = |(member, progress): (&Member, &crate::primary::progress::Progress)| {
            progress.files.as_ref().filter(|shipping| !shipping.wanted.is_empty()).map(|_| *member)
        };
        let waiting: Vec<Member> = leader.members.iter().filter_map(wants).collect();
        let next = waiting.iter().find(|member| Some(**member) > last).or(waiting.first()).copied()?;
        let shipping = leader.members.get_mut(&next)?.files.as_mut()?;
        Some((next, shipping.number, shipping.wanted.pop_front()?))
    }

    fn piece_of(&mut self, member: Member, piece: Piece) -> Result<Option<Bytes>, EngineError> {
        let Some(shipping) = self.shipping(member) else { return Ok(None) };
        let Some(pinned) = &shipping.pinned else { return Ok(None) };
        let most = pinned.piece_bytes as usize;
        if piece.file == DESCRIPTION {
            let from = piece.from.min(pinned.description.len() as u64) as usize;
            let to = from.saturating_add(most).min(pinned.description.len());
            return Ok(Some(pinned.description.slice(from..to)));
        }
        let pin = pinned.pin;
        self.engine.read_component(pin, piece.file as usize, piece.from, most)
    }

    /// Lets the files go that are not shipped any more, however that ended.
    pub(crate) fn sweep_pins(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let mut used = BTreeSet::new();
        if let Role::Leader(leader) = &self.role {
            let shipped = leader.members.values().filter_map(|progress| progress.files.as_ref());
            used.extend(shipped.filter_map(|shipping| shipping.pinned.as_ref()).map(|pinned| pinned.pin));
        }
        for pin in self.pins.difference(&used) {
            self.engine.unpin(*pin);
        }
        self.pins = used;
    }

    /// The lowest LSN from which on a member that catches up needs the log, because of what it has, was sent or is being sent (R8, F14).
    pub(crate) fn held(&self) -> Lsn {
        let Some((primary, view)) = self.leading() else { return Lsn::MAX };
        let needs = |member: &Member| {
            let progress = primary.members.get(member)?;
            Some(progress.needs.max(primary.met(&view, member)))
        };
        view.record.catching_up.iter().filter_map(needs).min().unwrap_or(Lsn::MAX)
    }
}

/// How long pieces are: a slow limit is kept in small steps.
fn piece_bytes(settings: &Settings) -> u32 {
    let (most, rate) = (settings.copy_bytes.clamp(1, PIECE_BYTES) as u64, settings.ship_bytes_per_second);
    let piece = if rate == 0 { most } else { most.min((rate / 8).max(LEAST_PIECE_BYTES)) };
    piece as u32
}
