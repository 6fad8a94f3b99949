//! Files on their way to members: what is pinned for them, what each lacks and has.

use crate::log_state::LogState;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use types::{Component, Engine, Lsn, Member, Micros, PinId, Position};
use wire::ship::{DESCRIPTION, MAX_PIECES, Piece, TransferRequest};
use xxhash_rust::xxh3::Xxh3;

/// A member that asked for nothing for so long is looked at anew.
pub(crate) const SILENT: Micros = Micros::from_millis(5_000);
/// The same of one that answers and has no more after so long: its disk may hang.
const STILL: Micros = Micros::from_millis(15_000);

/// Files that are being shipped.
#[derive(Debug)]
pub(crate) struct Shipping {
    pub(super) number: u64,
    pub(super) since: Micros,
    pub(super) tried_at: Micros,
    pub(super) pinned: Option<Pinned>,
    /// Wanted, and not sent yet.
    pub(super) wanted: VecDeque<Piece>,
    pub(super) offered_at: Micros,
    /// When the member last asked; it has not answered the newest offer yet if that is later.
    pub(super) heard_at: Micros,
    pub(super) answered: bool,
    /// When a piece that it asked for was sent: it says nothing while what it asked for comes (PR-349).
    pub(super) sent_at: Micros,
    /// Bytes of the files that the member said it has, or has and has checked, and when they were fewer.
    pub(super) have: (u64, Micros),
    /// Up to where its log is that of this replica, as long as it may choose the log alone.
    pub(super) agreed: Option<Lsn>,
    doubt: Doubt,
}

/// Whether what is read to be sent is what was offered.
#[derive(Debug, Default)]
struct Doubt {
    /// The member got a file that does not match its digest.
    tainted: bool,
    /// What was read of such a file since.
    reread: Option<Box<Reread>>,
}

/// A file that is read from its beginning, to be sent once more.
struct Reread {
    file: u32,
    /// What comes next.
    next: u64,
    hash: Xxh3,
}

impl fmt::Debug for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {} up to {}", self.file, self.next)
    }
}

#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) pin: PinId,
    pub(super) at: Position,
    pub(super) at_crc: u32,
    pub(super) description: Bytes,
    pub(super) files: Vec<Component>,
    pub(super) bytes: u64,
    /// The length of a piece.
    pub(super) piece_bytes: u32,
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

    /// The files that are kept for it.
    pub fn pin(&self) -> Option<PinId> {
        self.pinned.as_ref().map(|pinned| pinned.pin)
    }

    /// True if a piece is wanted.
    pub fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The next piece that is wanted, and the number of the offer.
    pub(super) fn take_wanted(&mut self) -> Option<(u64, Piece)> {
        Some((self.number, self.wanted.pop_front()?))
    }

    /// A member says what it lacks. True if it has just chosen the files: the log below them is not kept for
    /// it any more.
    pub(super) fn hear(&mut self, want: &TransferRequest, now: Micros) -> bool {
        (self.heard_at, self.answered) = (now, true);
        self.doubt.tainted |= want.tainted > 0;
        if want.have != self.have.0 {
            self.have = (want.have, now);
        }
        for piece in &want.pieces {
            if self.wanted.len() < 2 * MAX_PIECES && !self.wanted.contains(piece) {
                self.wanted.push_back(*piece);
            }
        }
        let takes_files = want.pieces.iter().any(|piece| piece.file != DESCRIPTION);
        takes_files && self.agreed.take().is_some()
    }

    /// A piece was read, to be sent. False if with it a file ends that is not what it was offered as. That is
    /// looked at once the member got one tainted: it is sent that one again from the beginning (PR-357).
    pub(super) fn is_as_offered(&mut self, piece: Piece, bytes: &[u8]) -> bool {
        let files = self.pinned.as_ref().map(|pinned| &pinned.files).filter(|_| self.doubt.tainted);
        let Some(file) = files.and_then(|files| files.get(piece.file as usize)).copied() else { return true };
        if piece.from == 0 {
            self.doubt.reread = Some(Box::new(Reread { file: piece.file, next: 0, hash: Xxh3::new() }));
        }
        // What was lost on the way and is sent once more was read before.
        let follows = |reread: &&mut Box<Reread>| (reread.file, reread.next) == (piece.file, piece.from);
        let Some(reread) = self.doubt.reread.as_mut().filter(follows) else { return true };
        reread.hash.update(bytes);
        reread.next += bytes.len() as u64;
        reread.next < file.bytes || reread.hash.digest128() == file.digest
    }

    /// True if newer files than these are on disk, up to `persisted`.
    pub fn is_older_than(&self, persisted: Lsn) -> bool {
        self.pinned.as_ref().is_some_and(|pinned| pinned.at.lsn < persisted)
    }

    /// The member takes part, and gets on.
    pub fn is_alive(&self, now: Micros) -> bool {
        now.since(self.heard_at.max(self.since).max(self.sent_at)) < SILENT && !self.is_stuck(now)
    }

    /// It gets no further.
    pub(super) fn is_stuck(&self, now: Micros) -> bool {
        now.since(self.have.1) >= STILL
    }
}

/// Files kept for members.
///
/// Invariants (`validate`): what is being sent is pinned. Pins are compared with what is still being sent
/// after every turn ([`FilesOut::sweep`]), so nothing that ends a transfer has to think of them.
#[derive(Debug, Default)]
pub(crate) struct FilesOut {
    /// The number of the newest offer of files.
    pub(super) offers: u64,
    pub(super) pins: BTreeSet<PinId>,
    /// Who was sent the last piece of a file.
    pub(super) served: Option<Member>,
    /// The entry at which files end, with its checksum, where that was read back from the log.
    named: Option<(Position, u32)>,
}

impl FilesOut {
    pub(super) fn new_shipping(&mut self, now: Micros) -> Box<Shipping> {
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
            sent_at: Micros::ZERO,
            have: (0, now),
            agreed: None,
            doubt: Doubt::default(),
        })
    }

    /// The checksum of the entry at which files end, if it is in memory or was read back. Whoever begins a
    /// log behind it must know it: an operator may have it lead before any entry came that names it (PR-140).
    pub(super) fn checksum_at(&self, log: &LogState, at: Position) -> Option<u32> {
        let (_, in_memory) = log.position_at(at.lsn)?;
        let read_back = self.named.filter(|(named, _)| *named == at).map(|(_, crc)| crc);
        if at.lsn == Lsn::ZERO { Some(0) } else { in_memory.or(read_back) }
    }

    /// The checksum of an entry at which files end was read back.
    pub(super) fn name(&mut self, at: Position, crc: u32) {
        self.named = Some((at, crc));
    }

    /// Whose turn it is of those who wait for a piece: the one behind who was served last.
    pub fn next_in_turn(&mut self, waiting: &[Member]) -> Option<Member> {
        let next = waiting.iter().find(|member| Some(**member) > self.served).or(waiting.first()).copied()?;
        self.served = Some(next);
        Some(next)
    }

    /// Lets the files go that are not shipped any more, however that ended.
    pub fn sweep(&mut self, engine: &mut dyn Engine, used: impl Iterator<Item = PinId>) {
        if self.pins.is_empty() {
            return;
        }
        let used: BTreeSet<PinId> = used.collect();
        assert!(
            used.is_subset(&self.pins),
            "F14: files are sent that are not kept: {used:?}, {:?}",
            self.pins
        );
        if let Some(files) = engine.shipping_mut() {
            self.pins.difference(&used).for_each(|pin| files.unpin(*pin));
        }
        self.pins = used;
    }

    /// The engine that had the files is gone.
    pub fn forget(&mut self) {
        self.pins.clear();
    }

    /// What must hold of them, while the files in `used` are being sent.
    pub fn validate(&self, mut used: impl Iterator<Item = PinId>) -> Result<(), String> {
        match used.find(|pin| !self.pins.contains(pin)) {
            Some(pin) => Err(format!("F14: {pin:?} is sent and not kept")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at, member};
    use crate::recovered::Recovered;
    use types::engine::ShipsFiles;
    use types::{Epoch, NodeId, PartitionId};
    use wire::entry::Kind;
    use wire::{Entry, Header};

    fn other(node: u32) -> Member {
        Member { node: NodeId(node), ..member() }
    }

    #[test]
    fn pieces_are_sent_to_one_member_after_the_other() {
        let mut files = FilesOut::default();
        let waiting = [other(1), other(2), other(3)];
        let turns: Vec<_> = (0..4).filter_map(|_| files.next_in_turn(&waiting)).collect();
        assert_eq!(turns, [other(1), other(2), other(3), other(1)]);
        assert_eq!(files.next_in_turn(&waiting[2..]), Some(other(3)));
        assert_eq!(files.next_in_turn(&[]), None);
    }

    #[test]
    fn f14_files_are_kept_as_long_as_they_are_sent() {
        let mut engine = FakeEngine::new();
        engine.persisted = at(3);
        let mut files = FilesOut::default();
        let (pin, _) = engine.pin().expect("no error").expect("it has files");
        files.pins.insert(pin);
        files.sweep(&mut engine, [pin].into_iter());
        assert_eq!(engine.pinned, [pin]);
        files.validate([pin].into_iter()).expect("valid");
        files.sweep(&mut engine, [].into_iter());
        assert!(engine.pinned.is_empty());
        assert!(files.validate([pin].into_iter()).is_err(), "nobody keeps it");
    }

    #[test]
    fn pr140_an_offer_names_the_checksum_at_the_end_of_its_files() {
        let mut log = LogState::recover(&Recovered::nothing(), Position::ZERO, false);
        for lsn in 1..=4 {
            log.append(Entry::encode(Header::new(Kind::Noop, PartitionId(1), at(lsn), log.end_crc()), b""));
        }
        let [second, third] = [2, 3].map(|lsn| log.tail().at(Lsn(lsn)).expect("it is in memory").1);
        let mut files = FilesOut::default();
        assert_eq!(files.checksum_at(&log, at(2)), Some(second));
        log.trim_memory(Lsn(3), 0);
        assert_eq!(files.checksum_at(&log, at(3)), Some(third), "the log in memory begins behind it");
        assert_eq!(files.checksum_at(&log, at(2)), None, "it is to be read back");
        files.name(at(2), second);
        assert_eq!(files.checksum_at(&log, at(2)), Some(second));
        assert_eq!(files.checksum_at(&log, at(1)), None, "that is another entry");
    }

    #[test]
    fn a_member_says_what_it_lacks_and_chooses_by_that() {
        let mut shipping = FilesOut::default().new_shipping(Micros(1));
        shipping.agreed = Some(Lsn(3));
        let wants = |file: u32, have: u64| {
            let (partition, epoch, number) = (PartitionId(1), Epoch(1), 1);
            let pieces = vec![Piece { file, from: 0 }];
            TransferRequest { partition, epoch, from: other(2), number, pieces, have, tainted: 0 }
        };
        assert!(!shipping.hear(&wants(DESCRIPTION, 0), Micros(2)), "it does not know the files yet");
        assert!(shipping.hear(&wants(0, 7), Micros(3)), "it takes the files");
        assert!(!shipping.hear(&wants(0, 7), Micros(4)), "and has said so");
        assert_eq!(shipping.wanted.len(), 2, "what is asked for twice is sent once");
        assert!(shipping.is_alive(Micros(3) + SILENT), "it was heard later than that");
        assert!(!shipping.is_alive(Micros(4) + SILENT));
        shipping.sent_at = Micros(9);
        assert!(shipping.is_alive(Micros(8) + SILENT), "PR-349: it waits for what it asked for");
        assert!(!shipping.is_alive(Micros(9) + SILENT));
    }

    #[test]
    fn f19_a_member_that_asks_on_and_has_no_more_is_stuck_after_a_while() {
        let mut shipping = FilesOut::default().new_shipping(Micros(1));
        let wants = |have: u64| {
            let (partition, epoch, number) = (PartitionId(1), Epoch(1), 1);
            let pieces = vec![Piece { file: 0, from: have }];
            TransferRequest { partition, epoch, from: other(2), number, pieces, have, tainted: 0 }
        };
        // It asks all the time, so it is not silent.
        let mut asks = |have: u64, at: Micros| {
            shipping.hear(&wants(have), at);
            (shipping.is_alive(at), shipping.is_stuck(at))
        };
        assert_eq!(asks(7, Micros(5)), (true, false));
        assert_eq!(asks(7, Micros(4) + STILL), (true, false));
        assert_eq!(asks(8, Micros(4) + STILL), (true, false), "it has got further");
        assert_eq!(asks(8, Micros(5) + STILL), (true, false));
        assert_eq!(asks(8, Micros(4 + STILL.0) + STILL), (false, true), "its disk may hang");
    }

    #[test]
    fn pr357_pieces_that_are_sent_twice_are_read_once() {
        let file = Component { number: 1, bytes: 6, digest: xxhash_rust::xxh3::xxh3_128(b"abcdef") };
        let mut shipping = FilesOut::default().new_shipping(Micros(1));
        let (pin, at_crc, description, bytes) = (types::PinId(1), 0, Bytes::new(), 6);
        let files = vec![file];
        shipping.pinned = Some(Pinned { pin, at: at(7), at_crc, description, files, bytes, piece_bytes: 2 });
        shipping.doubt.tainted = true;
        let piece = |from| Piece { file: 0, from };
        for (from, read) in [(0, b"ab"), (2, b"cd"), (2, b"cd"), (4, b"ef")] {
            assert!(shipping.is_as_offered(piece(from), read));
        }
        for (from, read, sound) in [(0, b"ab", true), (2, b"cX", true), (4, b"ef", false)] {
            assert_eq!(shipping.is_as_offered(piece(from), read), sound);
        }
    }
}
