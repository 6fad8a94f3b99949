//! The state itself, by files: the member's side. It asks for what it lacks of an offer, beside whatever else
//! it does, and then has its engine make the set its state.
//!
//! Nothing is given up before that: whatever ends it leaves the replica as it was, with the files that came
//! so far. The set never takes a replica back: what it has published more stays, and only a log that has the
//! set's position can have done so.

use crate::history::History;
use crate::output::{Notice, Origin, Output};
use crate::transfer::failback::FailbackState;
use crate::transfer::files_in::{FilesIn, Incoming, IncomingStage};
use std::collections::BTreeMap;
use types::engine::{ShipsFiles, Wake};
use types::{ComponentSet, EngineError, Installation, Micros, Missing};
use wire::PeerMessage;
use wire::ship::{
    Chunk, Installed, MAX_REASON_BYTES, Outcome, Piece, TransferOffer, TransferRequest, decode_set,
};

/// After so many tainted pieces or files of one offer no more are wanted.
const TAINTED: u32 = 8;

/// What became of a piece, or of files that were to be installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Nothing that was asked for.
    Nothing,
    /// It was taken in, or is asked for again.
    Kept,
    /// Everything may be here now.
    MayBeWhole,
    /// The engine is not through: it is to be asked again.
    Installing,
    /// The set is the engine's state.
    Installed,
}

/// Why an engine cannot go on receiving.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// It could not take something in.
    Receiving(EngineError),
    /// It could not give up what it had received.
    Stopping(EngineError),
}

impl From<EngineError> for ReceiveError {
    fn from(error: EngineError) -> ReceiveError {
        ReceiveError::Receiving(error)
    }
}

/// Files on their way here, with all that they need.
pub(crate) struct Receiver<'a> {
    pub files: &'a mut FilesIn,
    /// None if the engine takes no files.
    pub engine: Option<&'a mut dyn ShipsFiles>,
    pub failback: &'a mut FailbackState,
    pub origin: Origin,
    pub now: Micros,
    /// Everything is to be sent, whatever is here.
    pub wants_all: bool,
    /// F14: a set is of the position that the offer names.
    pub names_position: bool,
    pub out: &'a mut Vec<Output>,
}

impl Receiver<'_> {
    /// A primary has files for this replica. `fits`: what is published here follows their state (R3).
    pub fn offered(&mut self, offer: TransferOffer, fits: bool) -> Result<(), ReceiveError> {
        let known = self.files.set.as_ref().map_or(0, |incoming| incoming.offer.number);
        if offer.number == known {
            // What was asked for on an older connection is lost.
            self.ask_again();
            return Ok(());
        }
        if offer.number <= known.max(self.files.installed) {
            if offer.number == self.files.installed {
                self.send_installed(&offer, Outcome::Installed);
            }
            return Ok(());
        }
        let history = match History::new(offer.history.clone()) {
            Ok(history) if offer.fault().is_none() => history,
            _ => return Ok(()),
        };
        let why = if self.engine.is_none() {
            Some("its engine has no files")
        } else if !fits {
            Some("it has published another log")
        } else {
            None
        };
        if let Some(why) = why {
            self.send_installed(&offer, Outcome::Refused(why.into()));
            return Ok(());
        }
        self.files.paused = None;
        self.files.set = Some(Box::new(Incoming::new(offer, history, self.now)));
        self.ask()
    }

    /// A piece arrives.
    pub fn chunk(&mut self, chunk: &Chunk) -> Result<Received, ReceiveError> {
        let Some(incoming) = self.files.set.as_mut() else { return Ok(Received::Nothing) };
        if incoming.offer.number != chunk.number || incoming.offer.from != chunk.from {
            return Ok(Received::Nothing);
        }
        let Some(place) = incoming.asked.iter().position(|piece| *piece == chunk.piece) else {
            return Ok(Received::Nothing);
        };
        incoming.asked.remove(place);
        incoming.moved_at = self.now;
        if !chunk.is_sound() || chunk.bytes.is_empty() {
            (incoming.gap, incoming.tainted) = (true, incoming.tainted + 1);
            self.notice(format!("a piece of a file from {} has a wrong checksum", chunk.from));
            return Ok(Received::Kept);
        }
        match incoming.stage {
            IncomingStage::Description(_) => self.take_description(chunk),
            IncomingStage::Files(_) => self.take_piece(chunk),
            IncomingStage::Installing { .. } => Ok(Received::Kept),
        }
    }

    fn take_description(&mut self, chunk: &Chunk) -> Result<Received, ReceiveError> {
        let Some(incoming) = self.files.set.as_mut() else { return Ok(Received::Kept) };
        let (all, at, state) = (incoming.offer.description_bytes, incoming.offer.at, !incoming.is_beside());
        let IncomingStage::Description(bytes) = &mut incoming.stage else { return Ok(Received::Kept) };
        let fits = bytes.len() as u64 + chunk.bytes.len() as u64 <= all;
        if chunk.piece.from != bytes.len() as u64 || !fits {
            incoming.gap = true;
            return Ok(Received::Kept);
        }
        bytes.extend_from_slice(&chunk.bytes);
        let decoded = ((bytes.len() as u64) >= all).then(|| decode_set(bytes));
        if state {
            self.failback.count_files(chunk.bytes.len() as u64);
        }
        let why = match decoded {
            None => return Ok(Received::Kept),
            Some(Ok(set)) if set.at == at || !self.names_position => return self.receive_set(set),
            Some(Ok(_)) => "they are of another position than was said".into(),
            Some(Err(why)) => why,
        };
        self.refuse(why)?;
        Ok(Received::Kept)
    }

    /// The set is known: the engine begins to receive it.
    fn receive_set(&mut self, set: ComponentSet) -> Result<Received, ReceiveError> {
        let Some(incoming) = self.files.set.as_mut() else { return Ok(Received::Kept) };
        incoming.all = set.bytes();
        incoming.lengths = set.files.iter().map(|file| file.bytes).collect();
        let (state, bytes) = (!incoming.is_beside(), set.bytes());
        let may_choose_log = incoming.logs().0.is_some();
        self.files.leftovers = true;
        if state {
            self.failback.is_offered_files(bytes);
        }
        let useful = match &mut self.engine {
            Some(engine) if self.wants_all => engine.receive_whole(set)?,
            Some(engine) => engine.receive(set)?,
            None => false,
        };
        match useful {
            true if state && self.chooses_log() => {
                self.take_log();
                self.stop_receiving()?;
            }
            true => {
                self.begin_files();
                return Ok(Received::MayBeWhole);
            }
            false if may_choose_log => self.take_log(),
            false => self.refuse("its engine has no use for this set".into())?,
        }
        Ok(Received::Kept)
    }

    /// Compares what is lacking of the files that are offered, and the log above them, with the log alone, if
    /// that would do too. What is cheaper is chosen, and said.
    fn chooses_log(&mut self) -> bool {
        let Some(incoming) = &self.files.set else { return false };
        let (log_alone, log_above) = incoming.logs();
        let files = incoming.lacking(&self.missing());
        let (log, what) = self.failback.choose(files, log_alone, log_above);
        self.notice(what);
        log
    }

    /// The log is less: the primary is to send that.
    fn take_log(&mut self) {
        if let Some(incoming) = self.files.set.take() {
            self.send_installed(&incoming.offer, Outcome::LogIsLess);
        }
    }

    /// Asks the engine what is missing.
    fn begin_files(&mut self) {
        let missing = self.missing();
        let Some(incoming) = self.files.set.as_mut() else { return };
        assert!(!matches!(incoming.stage, IncomingStage::Files(_)), "PR-35: its files come in already");
        let lengths = &incoming.lengths;
        let lacks =
            |missing: Missing| Some((missing.file as u32, (missing.from, *lengths.get(missing.file)?)));
        let missing: BTreeMap<u32, (u64, u64)> = missing.into_iter().filter_map(lacks).collect();
        let lacks: u64 = missing.values().map(|(from, to)| to.saturating_sub(*from)).sum();
        incoming.have = incoming.all.saturating_sub(lacks);
        incoming.stage = IncomingStage::Files(missing);
        incoming.rewind();
    }

    fn take_piece(&mut self, chunk: &Chunk) -> Result<Received, ReceiveError> {
        let (piece, length) = (chunk.piece, chunk.bytes.len() as u64);
        let fits = match &mut self.engine {
            Some(engine) => engine.receive_piece(piece.file as usize, piece.from, &chunk.bytes)?,
            None => false,
        };
        let Some(incoming) = self.files.set.as_mut() else { return Ok(Received::Kept) };
        let state = !incoming.is_beside();
        let IncomingStage::Files(missing) = &mut incoming.stage else { return Ok(Received::Kept) };
        let Some((from, to)) = missing.get_mut(&piece.file).filter(|_| fits) else {
            incoming.gap = true;
            return Ok(Received::Kept);
        };
        *from = piece.from + length;
        if *from >= *to {
            missing.remove(&piece.file);
        }
        incoming.have += length;
        if state {
            self.failback.count_files(length);
        }
        Ok(Received::MayBeWhole)
    }

    /// Asks for the next pieces.
    pub fn ask(&mut self) -> Result<(), ReceiveError> {
        let Some(incoming) = self.files.set.as_mut() else { return Ok(()) };
        if incoming.tainted > TAINTED {
            return self.refuse("its files come tainted again and again".into());
        }
        let pieces = incoming.take_pieces();
        if !pieces.is_empty() {
            self.send_request(pieces);
        }
        Ok(())
    }

    /// Asks again for all that is not here; says at least that this replica is still at it.
    pub fn ask_again(&mut self) {
        let Some(incoming) = self.files.set.as_mut() else { return };
        incoming.moved_at = self.now;
        incoming.rewind();
        let pieces = incoming.take_pieces();
        self.send_request(pieces);
    }

    fn send_request(&mut self, pieces: Vec<Piece>) {
        let checked = self.engine.as_ref().map_or(0, |engine| engine.checked_bytes());
        let Some(incoming) = self.files.set.as_mut() else { return };
        let want = TransferRequest {
            partition: self.origin.partition,
            epoch: incoming.offer.epoch,
            from: self.origin.me,
            number: incoming.offer.number,
            pieces,
            have: incoming.have.saturating_add(checked),
            tainted: std::mem::take(&mut incoming.untold),
        };
        let to = incoming.offer.from;
        self.out.push(Output::Send { to, message: PeerMessage::TransferRequest(want) });
    }

    pub fn send_installed(&mut self, offer: &TransferOffer, outcome: Outcome) {
        let Origin { partition, me: from, .. } = self.origin;
        let taken = Installed { partition, epoch: offer.epoch, from, number: offer.number, outcome };
        self.out.push(Output::Send { to: offer.from, message: PeerMessage::Installed(taken) });
    }

    fn notice(&mut self, what: impl Into<Notice>) {
        self.out.push(Output::Notice { partition: self.origin.partition, what: what.into() });
    }

    /// Files of this offer are of no use here: rows are.
    fn refuse(&mut self, mut why: String) -> Result<(), ReceiveError> {
        let Some(incoming) = self.files.set.take() else { return Ok(()) };
        while why.len() > MAX_REASON_BYTES {
            why.pop();
        }
        self.send_installed(&incoming.offer, Outcome::Refused(why));
        self.stop_receiving().map_err(ReceiveError::Stopping)
    }

    /// What the engine lacks of the set.
    fn missing(&self) -> Vec<Missing> {
        self.engine.as_ref().map_or_else(Vec::new, |engine| engine.missing())
    }

    /// The engine gives the set up.
    fn stop_receiving(&mut self) -> Result<(), EngineError> {
        self.engine.as_mut().map_or(Ok(()), |engine| engine.stop_receiving())
    }

    /// Goes on with the installation.
    pub fn install(&mut self, wake: &Wake) -> Result<Received, ReceiveError> {
        let Some(incoming) = self.files.set.as_mut() else { return Ok(Received::Nothing) };
        let IncomingStage::Installing { begun } = &mut incoming.stage else { return Ok(Received::Nothing) };
        let begins = !std::mem::replace(begun, true);
        let stands = match &mut self.engine {
            Some(engine) if begins => engine.begin_installation(wake)?,
            Some(engine) => engine.go_on_installation()?,
            None => Installation::Refused("this engine takes no files".into()),
        };
        Ok(match stands {
            Installation::Waiting => Received::Installing,
            Installation::Done => Received::Installed,
            Installation::Tainted(files) => {
                self.fetch_again(&files);
                Received::MayBeWhole
            }
            Installation::Refused(why) => {
                self.refuse(why)?;
                Received::Nothing
            }
        })
    }

    /// Some files are not what they should be.
    fn fetch_again(&mut self, files: &[usize]) {
        let Some(incoming) = self.files.set.as_mut() else { return };
        let what = format!(
            "{} files that {} sent do not match their digests and are fetched again",
            files.len(),
            incoming.offer.from
        );
        incoming.untold += files.len() as u64;
        incoming.tainted += 1;
        self.notice(what);
        self.begin_files();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at, member};
    use crate::transfer::files_in::{Due, READERS};
    use bytes::Bytes;
    use types::{Epoch, Lsn, PartitionId};
    use wire::ship::{Withdrawn, encode_set};

    /// A primary with one file, and a member that receives it.
    struct Pair {
        primary: FakeEngine,
        member: FakeEngine,
        files: FilesIn,
        failback: FailbackState,
        out: Vec<Output>,
    }

    impl Pair {
        fn new() -> Pair {
            let mut primary = FakeEngine::new();
            (primary.persisted, primary.file) = (at(7), Bytes::from_static(b"a file"));
            let (files, failback) = (FilesIn::new(false), FailbackState::default());
            Pair { primary, member: FakeEngine::new(), files, failback, out: Vec::new() }
        }

        fn offer(&self, number: u64, log_alone: Option<u64>) -> TransferOffer {
            TransferOffer {
                partition: PartitionId(1),
                epoch: Epoch(1),
                from: member(),
                number,
                at: at(7),
                at_crc: 0,
                history: vec![(types::Term(1), Lsn(1))],
                description_bytes: encode_set(&self.primary.set()).len() as u64,
                piece_bytes: 1 << 16,
                beside: false,
                log_alone,
                log_above: 0,
            }
        }

        fn receiver(&mut self) -> Receiver<'_> {
            Receiver {
                files: &mut self.files,
                engine: Some(&mut self.member),
                failback: &mut self.failback,
                origin: Origin { partition: PartitionId(1), epoch: Epoch(1), me: member() },
                now: Micros(9),
                wants_all: false,
                names_position: true,
                out: &mut self.out,
            }
        }

        fn chunk(&mut self, number: u64, file: u32, bytes: Bytes) -> Received {
            let (piece, crc) = (wire::ship::Piece { file, from: 0 }, Chunk::checksum(&bytes));
            let (partition, epoch, from) = (PartitionId(1), Epoch(1), member());
            let chunk = Chunk { partition, epoch, from, number, piece, crc, bytes };
            let received = self.receiver().chunk(&chunk).expect("no error");
            self.receiver().ask().expect("no error");
            self.files.validate().expect("valid");
            received
        }

        fn description(&mut self, number: u64) -> Received {
            let bytes = encode_set(&self.primary.set());
            self.chunk(number, wire::ship::DESCRIPTION, bytes)
        }

        fn outcomes(&self) -> Vec<&Outcome> {
            let sent = self.out.iter().filter_map(|output| match output {
                Output::Send { message: PeerMessage::Installed(taken), .. } => Some(&taken.outcome),
                _ => None,
            });
            sent.collect()
        }
    }

    #[test]
    fn a_set_comes_in_and_is_installed_once() {
        let mut pair = Pair::new();
        let offer = pair.offer(5, None);
        pair.receiver().offered(offer.clone(), true).expect("no error");
        assert_eq!(pair.description(5), Received::MayBeWhole);
        assert_eq!(pair.files.installable(Micros(9), None), None, "its file is not here");
        assert_eq!(pair.chunk(5, 0, Bytes::from_static(b"a file")), Received::MayBeWhole);
        assert_eq!(pair.chunk(5, 0, Bytes::from_static(b"a file")), Received::Nothing, "it came again");
        assert_eq!(pair.files.due(Micros(9), Micros(1)), Due::Install);
        assert!(pair.files.installable(Micros(9), Some(Lsn(3))).is_none(), "readers are waited for");
        assert!(pair.files.installable(Micros(9) + READERS, Some(Lsn(3))).is_some(), "but not for ever");
        pair.files.begin_installing();
        assert_eq!(pair.files.finish().map(|(offer, _)| offer.number), Some(5));
        pair.receiver().offered(offer, true).expect("no error");
        assert_eq!(pair.outcomes(), [&Outcome::Installed], "the primary is told again");
        assert!(!pair.files.is_receiving());
    }

    #[test]
    fn the_log_is_chosen_where_it_is_less() {
        let mut pair = Pair::new();
        let offer = pair.offer(5, Some(3));
        pair.receiver().offered(offer, true).expect("no error");
        assert_eq!(pair.description(5), Received::Kept);
        assert_eq!(pair.outcomes(), [&Outcome::LogIsLess]);
        assert!(!pair.files.is_receiving() && pair.member.receiving.is_none());
        assert_eq!(pair.files.due(Micros(9), Micros(1)), Due::Leftovers);
    }

    #[test]
    fn pr135_what_found_no_room_is_tried_again_and_given_up_with_its_offer() {
        let mut pair = Pair::new();
        let offer = pair.offer(5, None);
        for ended in 0..4 {
            pair.receiver().offered(offer.clone(), true).expect("no error");
            pair.files.pause(Micros(9));
            assert!(!pair.files.is_receiving());
            assert_eq!(pair.files.due(Micros(10), Micros(2)), Due::Nothing, "not yet");
            assert_eq!(pair.files.due(Micros(11), Micros(2)), Due::TryAgain);
            let (partition, epoch, from) = (PartitionId(1), Epoch(1), member());
            match ended {
                0 => pair.files.withdraw(&Withdrawn { partition, epoch, from, number: 5 }),
                1 => pair.files.reconsider(false, true),
                2 => pair.files.forget(),
                _ => assert_eq!(pair.files.take_paused().as_ref(), Some(&offer)),
            }
            assert_eq!(pair.files.due(Micros(11), Micros(2)), Due::Nothing, "way {ended} to end it");
        }
        pair.receiver().offered(offer, true).expect("no error");
        pair.files.pause(Micros(9));
        let newer = pair.offer(6, None);
        pair.receiver().offered(newer, true).expect("no error");
        pair.files.validate().expect("the newer one takes its place");
        assert!(pair.files.is_receiving());
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_older_ignored() {
        let mut pair = Pair::new();
        let offer = pair.offer(5, None);
        pair.receiver().offered(offer, false).expect("no error");
        assert!(matches!(pair.outcomes()[..], [Outcome::Refused(_)]));
        let (newer, older) = (pair.offer(6, None), pair.offer(5, None));
        pair.receiver().offered(newer, true).expect("no error");
        pair.receiver().offered(older, true).expect("no error");
        assert_eq!(pair.description(5), Received::Nothing);
        pair.files.reconsider(false, true);
        assert!(!pair.files.is_receiving(), "another term has begun");
    }

    #[test]
    fn files_that_come_damaged_again_and_again_are_refused() {
        let mut pair = Pair::new();
        let offer = pair.offer(5, None);
        pair.receiver().offered(offer, true).expect("no error");
        for _ in 0..=TAINTED {
            assert!(pair.files.is_receiving());
            assert_eq!(pair.chunk(5, wire::ship::DESCRIPTION, Bytes::new()), Received::Kept);
        }
        assert!(matches!(pair.outcomes()[..], [Outcome::Refused(_)]));
        assert!(!pair.files.is_receiving());
    }

    #[test]
    #[should_panic(expected = "only whole sets are installed")]
    fn pr35_half_a_set_is_not_installed() {
        let mut pair = Pair::new();
        let offer = pair.offer(5, None);
        pair.receiver().offered(offer, true).expect("no error");
        pair.files.begin_installing();
    }
}
