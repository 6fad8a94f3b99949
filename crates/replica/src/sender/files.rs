//! Files to members: the primary's side. What it has on disk is pinned and offered, and the member asks for
//! what it lacks.
//!
//! To a member whose log is too old the files are the state itself ([`Mode::Shipping`]), and the log goes on
//! from there. The log above them is kept from before they are pinned until the member has it (R8, F14), so
//! what was written meanwhile needs no second copy. To members that follow the log they go beside it,
//! whenever the primary has flushed: only the primary makes files, so that all replicas have the same ones
//! (PR-38).

use crate::output::{Origin, Output, ReadFor};
use crate::sender::shipping::Pinned;
use crate::sender::{Given, Sender};
use crate::settings::Settings;
use bytes::Bytes;
use types::engine::ShipsFiles;
use types::{ComponentSet, EngineError, Lsn, Micros, Position};
use wire::ship::{
    Chunk, DESCRIPTION, Installed, MAX_DESCRIPTION_BYTES, Outcome, Piece, TransferOffer, TransferRequest,
    Withdrawn, encode_set, encode_set_evenly,
};
use wire::{Entry, PeerMessage};

/// Files that are being written when they are asked for are waited for so long; then rows are sent.
const PIN_PATIENCE: Micros = Micros::from_millis(10_000);
/// No piece is longer: entries of the log travel on the same connection.
const PIECE_BYTES: usize = 256 << 10;
/// Nor shorter, for a disk's sake.
const LEAST_PIECE_BYTES: u64 = 512;

impl Sender<'_> {
    /// Begins to ship files to a member that was just made anew.
    pub(super) fn start_shipping(&mut self) -> Result<(), EngineError> {
        let files = self.files.new_shipping(self.now);
        self.progress.begin_shipping(files, self.engine.persisted().lsn);
        self.ship_on()
    }

    /// Offers files to a member that the log alone would bring level, too. The log is kept until it has
    /// chosen.
    fn offer_choice(&mut self, agreed: Lsn) -> Result<(), EngineError> {
        let mut files = self.files.new_shipping(self.now);
        files.agreed = Some(agreed);
        self.progress.begin_from_scratch(self.now);
        self.progress.begin_shipping(files, agreed);
        self.ship_on()
    }

    /// The logs agree up to here. True if the member is offered files nevertheless, since it may lack less of
    /// those.
    pub(super) fn offers_choice(&mut self, agreed: Lsn) -> Result<bool, EngineError> {
        let offers = self.files_may_be_less(agreed);
        if offers {
            self.offer_choice(agreed)?;
        }
        Ok(offers)
    }

    /// True if a member whose log agrees up to here may lack less in files than in the log.
    fn files_may_be_less(&self, agreed: Lsn) -> bool {
        let (persisted, missing) = (self.engine.persisted().lsn, self.log.bytes_above(agreed));
        let asked = self.progress.log_only || self.progress.rows_only;
        let long = persisted > agreed && missing > self.settings.failback_log_bytes;
        self.ships && self.catching_up() && !asked && long
    }

    /// Files that a member which follows the log does not have yet go to it beside the log.
    pub(super) fn deliver(&mut self) -> Result<(), EngineError> {
        let persisted = self.engine.persisted().lsn;
        let progress = &mut *self.progress;
        if progress.files.is_none() {
            let lacks = progress.marks.persisted < persisted && progress.delivered < persisted;
            if !(self.ships && self.serves && lacks && progress.health.is_level()) {
                return Ok(());
            }
            (progress.delivered, progress.files) = (persisted, Some(self.files.new_shipping(self.now)));
        }
        self.ship_on()
    }

    /// Offers what is to be shipped, or offers it again.
    pub(super) fn ship_on(&mut self) -> Result<(), EngineError> {
        let (now, resend) = (self.now, self.settings.resend);
        let Some(shipping) = self.progress.files.as_deref_mut() else { return Ok(()) };
        if shipping.pinned.is_none() {
            if now.since(shipping.tried_at) >= resend {
                shipping.tried_at = now;
                return self.pin();
            }
        } else if !shipping.is_alive(now) {
            let stuck = shipping.is_stuck(now);
            self.look_again();
            if stuck && !self.progress.streams() {
                self.progress.health.note_stuck();
            }
        } else if !shipping.answered && now.since(shipping.offered_at) >= Micros(resend.0 * 20) {
            self.send_transfer_offer();
        }
        Ok(())
    }

    fn pin(&mut self) -> Result<(), EngineError> {
        let now = self.now;
        let (pin, set) = match self.engine.shipping_mut().map_or(Ok(None), |files| files.pin()) {
            Ok(Some(pinned)) => pinned,
            Ok(None) => {
                let since = self.progress.files.as_ref().map(|shipping| shipping.since);
                // It may be writing some just now.
                let late = since.is_some_and(|since| now.since(since) >= PIN_PATIENCE);
                return match late || self.engine.persisted() == Position::ZERO {
                    true => self.send_rows(),
                    false => Ok(()),
                };
            }
            // It is tried again at the next tick.
            Err(EngineError::Later(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.files.pins.insert(pin);
        // The log goes on where the files end.
        let log = self.log;
        let in_log = set.at.lsn >= log.base().lsn && log.history().term_at(set.at.lsn) == Some(set.at.term);
        let even = self.settings.even_descriptions;
        let description = if even { encode_set_evenly(&set) } else { encode_set(&set) };
        if !in_log || set.fault().is_some() || description.len() as u64 > MAX_DESCRIPTION_BYTES {
            return self.send_rows();
        }
        let at = self.offered_position(&set);
        let Some(at_crc) = self.files.checksum_at(log, at) else {
            self.out.push(Output::ReadLog {
                partition: self.origin.partition,
                from: at.lsn.next(),
                max_bytes: 1,
                purpose: ReadFor::Offer { to: self.to, at },
            });
            return Ok(());
        };
        let (bytes, piece_bytes) = (set.bytes(), piece_bytes(self.settings));
        let agreed = self.progress.files.as_ref().and_then(|shipping| shipping.agreed);
        if self.progress.is_shipped_to() {
            self.progress.rewind(at.lsn.next());
            self.progress.needs = at.lsn.min(agreed.unwrap_or(Lsn::MAX));
        }
        let Some(shipping) = self.progress.files.as_mut() else { return Ok(()) };
        let files = set.files;
        shipping.pinned = Some(Pinned { pin, at, at_crc, description, files, bytes, piece_bytes });
        (shipping.heard_at, shipping.have.1) = (now, now);
        self.send_transfer_offer();
        Ok(())
    }

    /// The entry behind files that end at `at` was read back, or could not be: it names the checksum of the
    /// one at their end.
    pub fn offer_read(
        &mut self,
        at: Position,
        entries: Result<Vec<Entry>, String>,
    ) -> Result<(), EngineError> {
        let waits = self.progress.files.as_ref().is_some_and(|shipping| shipping.pinned.is_none());
        if !waits {
            return Ok(());
        }
        let entries = entries.unwrap_or_default();
        match entries.first().filter(|entry| entry.lsn() == at.lsn.next()) {
            Some(next) => self.files.name(at, next.header().prev_crc),
            None => return self.send_rows(),
        }
        self.pin()
    }

    /// The position of what was pinned. F14 without its rule: that of the state as it is meanwhile.
    fn offered_position(&self, set: &ComponentSet) -> Position {
        if self.names_position { set.at } else { self.engine.published() }
    }

    fn send_transfer_offer(&mut self) {
        let Origin { partition, epoch, me: from } = self.origin;
        let beside = !self.progress.is_shipped_to();
        let Some(shipping) = self.progress.files.as_deref_mut() else { return };
        let Some(pinned) = &shipping.pinned else { return };
        shipping.offered_at = self.now;
        let offer = TransferOffer {
            partition,
            epoch,
            from,
            number: shipping.number,
            at: pinned.at,
            at_crc: pinned.at_crc,
            history: self.log.history().starts().to_vec(),
            description_bytes: pinned.description.len() as u64,
            piece_bytes: pinned.piece_bytes,
            beside,
            // What brings the member level without files, if it may choose.
            log_alone: shipping.agreed.map(|agreed| self.log.bytes_above(agreed)),
            log_above: self.log.bytes_above(pinned.at.lsn),
        };
        self.send(PeerMessage::TransferOffer(offer));
    }

    /// Files are of no use to this member, or there are none. One that follows the log needs none.
    fn send_rows(&mut self) -> Result<(), EngineError> {
        self.progress.files = None;
        if self.progress.is_shipped_to() {
            self.progress.rows_only = true;
            return self.start_copy();
        }
        Ok(())
    }

    fn look_again(&mut self) {
        let files = self.progress.files.take();
        self.progress.log_only |= files.is_some_and(|shipping| shipping.agreed.is_some());
        if self.progress.is_shipped_to() {
            self.probe();
        }
    }

    /// The log is short of room: a member that is sent files is offered newer ones, which need less of it.
    /// For a member that comes back by the log it is held no longer: who lacks what goes then is sent files,
    /// too. `met`: how far it holds the log.
    pub fn offer_newer(&mut self, met: Lsn) {
        let (persisted, progress) = (self.engine.persisted().lsn, &mut *self.progress);
        let by_log = !progress.is_given_state();
        if by_log && progress.needs.max(met) < persisted {
            progress.needs = Lsn::MAX;
        }
        let older = progress.files.as_ref().is_some_and(|shipping| shipping.is_older_than(persisted));
        if progress.is_shipped_to() && older {
            (progress.files, progress.needs) = (None, Lsn::MAX);
            self.probe();
        }
    }

    /// The member lacks something.
    pub fn on_transfer_request(&mut self, want: &TransferRequest) {
        let Origin { partition, epoch, me: from } = self.origin;
        let shipping = match &mut self.progress.files {
            Some(shipping) if shipping.number == want.number => shipping,
            _ => {
                let withdrawn = Withdrawn { partition, epoch, from, number: want.number };
                return self.send(PeerMessage::Withdrawn(withdrawn));
            }
        };
        if shipping.hear(want, self.now) {
            self.progress.needs =
                shipping.pinned.as_ref().map_or(self.progress.needs, |pinned| pinned.at.lsn);
        }
        if want.tainted > 0 {
            let what =
                format!("{} got {} files from here that were tainted on the way", want.from, want.tainted);
            self.out.push(Output::Notice { partition, what: what.into() });
        }
    }

    /// The member is through with an offer.
    pub fn on_installed(&mut self, taken: &Installed) -> Given {
        let partition = self.origin.partition;
        let progress = &mut *self.progress;
        let offered = progress.files.as_ref().filter(|shipping| shipping.number == taken.number);
        let Some(at) = offered.and_then(|shipping| shipping.pinned.as_ref()).map(|pinned| pinned.at.lsn)
        else {
            return Given::Nothing;
        };
        let agreed = progress.files.take().and_then(|shipping| shipping.agreed);
        let state = progress.is_shipped_to();
        match &taken.outcome {
            Outcome::LogIsLess => return self.send_log(agreed),
            Outcome::Installed if state => {
                progress.stream_behind(at);
                return Given::Log;
            }
            Outcome::Installed => progress.delivered = progress.delivered.max(at),
            Outcome::Refused(why) => {
                if state {
                    progress.rows_only = true;
                    self.look_again();
                }
                let what = format!("{} takes no files: {why}", taken.from);
                self.out.push(Output::Notice { partition, what: what.into() });
            }
        }
        Given::Nothing
    }

    /// The member chose the log.
    fn send_log(&mut self, agreed: Option<Lsn>) -> Given {
        self.progress.log_only = true;
        if !self.progress.is_shipped_to() {
            return Given::Nothing;
        }
        match agreed.filter(|agreed| *agreed >= self.log.base().lsn) {
            Some(agreed) => {
                self.progress.needs = agreed;
                self.progress.stream_behind(agreed);
                Given::Log
            }
            None => {
                self.probe();
                Given::Nothing
            }
        }
    }

    /// Sends the next piece that the member wants. Gives its length.
    pub fn send_piece(&mut self) -> Result<usize, EngineError> {
        let wanted = self.progress.files.as_mut().and_then(|shipping| shipping.take_wanted());
        let Some((number, piece)) = wanted else { return Ok(0) };
        let bytes = match self.piece(piece) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                self.look_again();
                return Ok(0);
            }
            // The member asks for it again.
            Err(EngineError::Later(_)) => return Ok(0),
            Err(error) => return Err(error),
        };
        let shipping = self.progress.files.as_mut();
        let sound = shipping.is_none_or(|shipping| shipping.is_as_offered(piece, &bytes));
        // Who tells of it counts, and can lead. Else this may be the last copy, and rows of it may do.
        if !sound && self.record.in_sync.contains(&self.to) {
            let why = format!("file {} that {} is sent does not match its digest", piece.file, self.to);
            return Err(EngineError::Corrupt(why));
        }
        let (length, crc) = (bytes.len(), Chunk::checksum(&bytes));
        let Origin { partition, epoch, me: from } = self.origin;
        self.send(PeerMessage::Chunk(Chunk { partition, epoch, from, number, piece, crc, bytes }));
        if let Some(shipping) = &mut self.progress.files {
            shipping.sent_at = self.now;
        }
        Ok(length)
    }

    fn piece(&self, piece: Piece) -> Result<Option<Bytes>, EngineError> {
        let shipping = self.progress.files.as_ref();
        let Some(pinned) = shipping.and_then(|shipping| shipping.pinned.as_ref()) else { return Ok(None) };
        let most = pinned.piece_bytes as usize;
        if piece.file == DESCRIPTION {
            let from = piece.from.min(pinned.description.len() as u64) as usize;
            let to = from.saturating_add(most).min(pinned.description.len());
            return Ok(Some(pinned.description.slice(from..to)));
        }
        let read =
            |files: &dyn ShipsFiles| files.read_component(pinned.pin, piece.file as usize, piece.from, most);
        self.engine.shipping().map_or(Ok(None), read)
    }
}

/// How long pieces are: a slow limit is kept in small steps.
fn piece_bytes(settings: &Settings) -> u32 {
    let (most, rate) = (settings.copy_bytes.clamp(1, PIECE_BYTES) as u64, settings.ship_bytes_per_second);
    let piece = if rate == 0 { most } else { most.min((rate / 8).max(LEAST_PIECE_BYTES)) };
    piece as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at, member};
    use crate::log_state::LogState;
    use crate::marks::Marks;
    use crate::readers::Readers;
    use crate::recovered::Recovered;
    use crate::sender::progress::Progress;
    use crate::sender::shipping::FilesOut;
    use types::{Epoch, LogKind, Member, NodeId, PartitionId, PartitionRecord, Policy, TableId};

    /// A file that was offered as `b"written"` is read as this, for a member that got `tainted` files.
    fn sends(read: &'static [u8], tainted: u64, counts: bool) -> Result<usize, EngineError> {
        let to = Member { node: NodeId(2), ..member() };
        let in_sync = if counts { vec![member(), to] } else { vec![member()] };
        let policy = Policy::preset("sync", 2, LogKind::Disk).expect("a preset");
        let record = PartitionRecord::new(PartitionId(1), TableId(1), Epoch(1), in_sync, policy);
        let mut engine = FakeEngine::new();
        (engine.persisted, engine.file) = (at(7), Bytes::from_static(b"written"));
        let (pin, set) = engine.pin().expect("no error").expect("it has files");
        engine.file = Bytes::from_static(read);
        let (mut files, mut progress) = (FilesOut::default(), Progress::new(Micros::ZERO, 0));
        let mut shipping = files.new_shipping(Micros(1));
        let (number, description) = (shipping.number, encode_set(&set));
        let (at, at_crc, bytes, piece_bytes, set) = (set.at, 0, 7, 4, set.files);
        shipping.pinned = Some(Pinned { pin, at, at_crc, description, files: set, bytes, piece_bytes });
        progress.files = Some(shipping);
        let log = LogState::recover(&Recovered::nothing(), Position::ZERO, false);
        let (marks, settings) = (Marks::new(Lsn(2), Lsn(2)), Settings::default());
        let (mut readers, mut out) = (Readers::default(), Vec::new());
        let (partition, epoch) = (record.id, record.epoch);
        let mut sender = Sender {
            to,
            progress: &mut progress,
            files: &mut files,
            engine: &mut engine,
            log: &log,
            marks: &marks,
            readers: &mut readers,
            record: &record,
            origin: Origin { partition, epoch, me: member() },
            led_at: Micros::ZERO,
            now: Micros(2),
            settings: &settings,
            ships: true,
            serves: true,
            names_position: true,
            out: &mut out,
        };
        let pieces = vec![Piece { file: 0, from: 0 }, Piece { file: 0, from: 4 }];
        let want = TransferRequest { partition, epoch, from: to, number, pieces, have: 0, tainted };
        sender.on_transfer_request(&want);
        assert_eq!(sender.send_piece()?, 4);
        sender.send_piece()
    }

    /// What a member that catches up is sent by an engine that writes files just then, so long after it was
    /// found out that it needs the state.
    fn sent_while_files_are_written(waited: Micros) -> Vec<Output> {
        let to = Member { node: NodeId(2), ..member() };
        let policy = Policy::preset("sync", 2, LogKind::Disk).expect("a preset");
        let record = PartitionRecord {
            catching_up: vec![to],
            ..PartitionRecord::new(PartitionId(1), TableId(1), Epoch(1), vec![member()], policy)
        };
        let mut engine = FakeEngine::new();
        (engine.persisted, engine.file, engine.writes) = (at(7), Bytes::from_static(b"written"), true);
        let (mut files, mut progress) = (FilesOut::default(), Progress::new(Micros::ZERO, 0));
        let began = Micros::from_millis(60_000);
        progress.begin_shipping(files.new_shipping(began), Lsn(7));
        let log = LogState::recover(&Recovered::nothing(), Position::ZERO, false);
        let (marks, settings) = (Marks::new(Lsn(2), Lsn(2)), Settings::default());
        let (mut readers, mut out) = (Readers::default(), Vec::new());
        let mut sender = Sender {
            to,
            progress: &mut progress,
            files: &mut files,
            engine: &mut engine,
            log: &log,
            marks: &marks,
            readers: &mut readers,
            record: &record,
            origin: Origin { partition: record.id, epoch: record.epoch, me: member() },
            led_at: Micros::ZERO,
            now: began + waited,
            settings: &settings,
            ships: true,
            serves: true,
            names_position: true,
            out: &mut out,
        };
        sender.ship_on().expect("the engine does not fail");
        out
    }

    #[test]
    fn files_that_are_being_written_are_waited_for_and_then_rows_are_sent() {
        let before = Micros(PIN_PATIENCE.0 - 1);
        assert!(sent_while_files_are_written(before).is_empty(), "the flush may end soon");
        let sent = sent_while_files_are_written(PIN_PATIENCE);
        assert!(matches!(&sent[..], [Output::Send { message: PeerMessage::Copy(_), .. }]), "{sent:?}");
    }

    #[test]
    fn pr357_who_sends_a_file_again_that_came_tainted_looks_at_it() {
        assert!(matches!(sends(b"wriTten", 1, true), Err(EngineError::Corrupt(_))));
        assert!(matches!(sends(b"written", 1, true), Ok(3)), "it was spoilt on the way");
        assert!(matches!(sends(b"wriTten", 0, true), Ok(3)), "nobody has said anything");
        assert!(matches!(sends(b"wriTten", 1, false), Ok(3)), "nobody else may have it");
    }
}
