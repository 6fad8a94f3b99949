//! Scrubbing: a replica reads its own component files and log back and compares them with their checksums, a
//! piece at a time, between its other work. Nothing is changed by it. What is damaged is given up only when
//! an operator says so ([`wire::Op::GiveUp`]), and fetched from the others then.

use crate::answer::Answer;
use crate::context::Ctx;
use crate::damage::Fault;
use crate::log_state::LogState;
use crate::output::{Output, ReadFor};
use std::collections::BTreeSet;
use types::engine::ShipsFiles;
use types::{
    Component, ComponentSet, Engine, EngineError, LogKind, Lsn, Member, Micros, NodeId, PartitionId,
    PartitionRecord, PinId, Term,
};
use wire::scrub::{Damage, MAX_DAMAGE, Scrubbed};
use wire::{Body, Entry, Status};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// An answer of the log that did not come in this time was lost with what was asked.
const READ_PATIENCE: Micros = Micros::from_millis(10_000);

enum ScrubStage {
    /// The files are to be pinned: those that are being written are waited for.
    Pinning,
    /// They are read.
    Files(Box<Files>),
    /// The log is read from this LSN on; asked for it then.
    Log {
        next: Lsn,
        asked_at: Option<Micros>,
    },
    Over,
}

struct Files {
    pin: PinId,
    set: ComponentSet,
    file: usize,
    from: u64,
    hash: Xxh3,
}

/// What is known of the log that is read back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOnDisk {
    pub kind: LogKind,
    /// The last entry that the log does not have any more.
    pub base: Lsn,
    pub durable: Lsn,
}

/// The scrubbing of one replica: none yet, under way, or over.
#[derive(Default)]
pub(crate) struct Scrubber {
    newest: Option<Box<Scrub>>,
}

impl Scrubber {
    /// [`wire::Op::Scrub`]: begins one if there is none under way and `start` says so, and tells how far it
    /// is.
    pub fn ask(&mut self, start: bool) -> Answer {
        if start && !self.is_running() {
            self.newest = Some(Box::new(Scrub::new()));
        }
        match &self.newest {
            Some(scrub) => Answer::new(Status::Ok, Body::Scrubbed(scrub.found.clone())),
            None => {
                Answer::only(Status::NotFound("this replica was not scrubbed since its node started".into()))
            }
        }
    }

    /// True if there is more to read.
    pub fn is_running(&self) -> bool {
        self.newest.as_ref().is_some_and(|scrub| scrub.found.running)
    }

    /// Reads the next piece. Gives its length in bytes; and the first LSN of the log that is to be read back.
    pub fn read_on(&mut self, engine: &mut dyn Engine, log: LogOnDisk, now: Micros) -> (usize, Option<Lsn>) {
        let Some(scrub) = &mut self.newest else { return (0, None) };
        let (read, from) = scrub.piece(engine, log, now);
        let bytes = read + std::mem::take(&mut scrub.uncounted);
        scrub.found.running = !matches!(scrub.stage, ScrubStage::Over);
        (bytes, from)
    }

    /// Reads the next piece of a replica's own files or log. Gives its length in bytes. `whole`: it has a
    /// state that can be read.
    pub fn turn(
        &mut self,
        (engine, log): (&mut dyn Engine, &LogState),
        id: PartitionId,
        whole: bool,
        ctx: &mut Ctx,
    ) -> usize {
        if !whole {
            self.end(engine);
            return 0;
        }
        let log = LogOnDisk { kind: log.kind(), base: log.base().lsn, durable: log.durable() };
        let (bytes, read) = self.read_on(engine, log, ctx.now.mono);
        if let Some(from) = read {
            let purpose = ReadFor::Scrub { from };
            ctx.out.push(Output::ReadLog { partition: id, from, max_bytes: PIECE, purpose });
        }
        bytes
    }

    /// There is nothing any more that could be read back, if one is under way.
    pub fn end(&mut self, engine: &mut dyn Engine) {
        if let Some(scrub) = self.newest.as_mut().filter(|scrub| scrub.found.running) {
            scrub.end(engine);
        }
    }

    /// Entries came back from the log, which lies between `base` and `end`, or could not be read.
    pub fn log_read(&mut self, bounds: (Lsn, Lsn), from: Lsn, entries: Result<Vec<Entry>, String>) {
        if let Some(scrub) = &mut self.newest {
            scrub.scrub_read(bounds, from, entries);
        }
    }

    /// What must hold of it.
    pub fn validate(&self) -> Result<(), String> {
        self.newest.as_ref().map_or(Ok(()), |scrub| scrub.validate())
    }
}

/// A scrubbing, under way or over.
///
/// Invariants (`validate`): it runs until its last stage is over, and has read no more than there is.
struct Scrub {
    stage: ScrubStage,
    /// Digests of files that were read and are as they were written: they need not be read again where files
    /// come in between.
    sound: BTreeSet<u128>,
    /// Bytes of the log that came back and were not counted yet.
    uncounted: usize,
    found: Scrubbed,
}

impl Scrub {
    fn new() -> Scrub {
        let found = Scrubbed { running: true, ..Scrubbed::default() };
        Scrub { stage: ScrubStage::Pinning, sound: BTreeSet::new(), uncounted: 0, found }
    }

    fn validate(&self) -> Result<(), String> {
        let over = matches!(self.stage, ScrubStage::Over);
        if over == self.found.running {
            return Err(format!("a scrubbing is over: {over}, and runs: {}", self.found.running));
        }
        match self.found.files.1 > self.found.files.0 {
            true => {
                Err(format!("a scrubbing has read {} of {} files", self.found.files.1, self.found.files.0))
            }
            false => Ok(()),
        }
    }

    fn damage(&mut self, file: impl Into<String>, what: impl Into<String>) {
        if self.found.damage.len() < MAX_DAMAGE {
            self.found.damage.push(Damage { file: file.into(), what: what.into() });
        }
    }

    fn end(&mut self, engine: &mut dyn Engine) {
        self.end_files(engine);
        self.damage("components", "the replica is damaged or takes in a copy");
        self.stage = ScrubStage::Over;
        self.found.running = false;
    }

    fn piece(&mut self, engine: &mut dyn Engine, log: LogOnDisk, now: Micros) -> (usize, Option<Lsn>) {
        match &mut self.stage {
            ScrubStage::Pinning => {
                self.pin_to_scrub(engine, log.kind);
                (0, None)
            }
            ScrubStage::Files(_) => (self.file_piece(engine, log.kind), None),
            ScrubStage::Log { next, asked_at } => {
                if asked_at.is_some_and(|at| now.since(at) < READ_PATIENCE) {
                    return (0, None);
                }
                // What was cut off meanwhile, because the components have it, is not there to be read.
                let from = (*next).max(log.base.next());
                if from > log.durable {
                    self.stage = ScrubStage::Over;
                    return (0, None);
                }
                (*next, *asked_at) = (from, Some(now));
                (0, Some(from))
            }
            ScrubStage::Over => (0, None),
        }
    }

    fn pin_to_scrub(&mut self, engine: &mut dyn Engine, kind: LogKind) {
        let has_files = engine.ships_files() && engine.persisted().lsn > Lsn::ZERO;
        let pinned = match engine.shipping_mut().filter(|_| has_files) {
            Some(files) => files.pin(),
            None => Ok(None),
        };
        match pinned {
            Ok(Some((pin, set))) => {
                let read = |file: &&Component| self.sound.contains(&file.digest);
                let read: Vec<u64> = set.files.iter().filter(read).map(|file| file.bytes).collect();
                self.found.files = (set.files.len() as u32, read.len() as u32);
                self.found.bytes = (set.bytes(), read.iter().sum());
                self.stage =
                    ScrubStage::Files(Box::new(Files { pin, set, file: 0, from: 0, hash: Xxh3::new() }));
            }
            Ok(None) if has_files => {}
            // A file that cannot be opened just now is not damaged for that.
            Err(EngineError::Later(_)) => {}
            Ok(None) => self.scrub_log(kind),
            Err(error) => {
                self.damage("components", error.to_string());
                self.scrub_log(kind);
            }
        }
    }

    fn file_piece(&mut self, engine: &mut dyn Engine, kind: LogKind) -> usize {
        let ScrubStage::Files(files) = &mut self.stage else { return 0 };
        let Some(file) = files.set.files.get(files.file).copied() else {
            self.end_files(engine);
            self.scrub_log(kind);
            return 0;
        };
        if files.from == 0 && self.sound.contains(&file.digest) {
            files.file += 1;
            return 0;
        }
        let name = format!("component {}", file.number);
        let read = |from: &dyn ShipsFiles| from.read_component(files.pin, files.file, files.from, PIECE);
        let wrong = match engine.shipping().map_or(Ok(None), read) {
            Ok(Some(bytes)) if !bytes.is_empty() && files.from < file.bytes => {
                files.hash.update(&bytes);
                files.from += bytes.len() as u64;
                self.found.bytes.1 += bytes.len() as u64;
                return bytes.len();
            }
            Ok(Some(more)) => {
                let same =
                    files.from == file.bytes && more.is_empty() && files.hash.digest128() == file.digest;
                (!same).then(|| "it does not match its digest".to_string())
            }
            // The files were exchanged for others, which has compared all that stayed; what was found is not
            // there any more.
            Ok(None) => {
                self.found.damage.clear();
                self.stage = ScrubStage::Pinning;
                return 0;
            }
            Err(EngineError::Later(_)) => return 0,
            Err(error) => Some(error.to_string()),
        };
        (files.file, files.from, files.hash) = (files.file + 1, 0, Xxh3::new());
        self.found.files.1 += 1;
        match wrong {
            Some(what) => self.damage(name, what),
            None => drop(self.sound.insert(file.digest)),
        }
        0
    }

    fn end_files(&self, engine: &mut dyn Engine) {
        if let ScrubStage::Files(files) = &self.stage
            && let Some(engine) = engine.shipping_mut()
        {
            engine.unpin(files.pin);
        }
    }

    fn scrub_log(&mut self, kind: LogKind) {
        self.stage = match kind {
            LogKind::Disk => ScrubStage::Log { next: Lsn(1), asked_at: None },
            LogKind::Memory => ScrubStage::Over,
        };
    }

    /// Entries came back from the log, or could not be read.
    pub fn scrub_read(&mut self, (base, end): (Lsn, Lsn), from: Lsn, entries: Result<Vec<Entry>, String>) {
        let ScrubStage::Log { next, asked_at } = &mut self.stage else { return };
        if *next != from || asked_at.is_none() {
            return;
        }
        *asked_at = None;
        // It was cut off at one end or the other between the question and the answer.
        let moved = from <= base || from > end;
        match entries {
            Ok(entries) if !entries.is_empty() => {
                let chained = entries.windows(2).all(|pair| pair[1].header().prev_crc == pair[0].crc());
                *next = entries.last().expect("not empty").lsn().next();
                self.found.entries += entries.len() as u64;
                self.uncounted += entries.iter().map(|entry| entry.bytes().len()).sum::<usize>();
                if !chained {
                    self.damage("log", format!("an entry from {from} on does not follow the one before it"));
                }
            }
            Ok(_) => self.stage = ScrubStage::Over,
            Err(_) if moved => {}
            Err(why) => {
                self.damage("log", format!("entries from {from} on cannot be read: {why}"));
                self.stage = ScrubStage::Over;
            }
        }
        self.found.running = !matches!(self.stage, ScrubStage::Over);
    }
}

/// Why a replica must not be given up for a copy of `source`, whose copy is known to be good; none: it may.
/// It must not if it leads itself, or if `source` does not: a primary counts and serves, so its copy is not
/// the last. `leading`: the term that this replica leads in.
pub(crate) fn keeps(
    leading: Option<Term>,
    record: Option<&PartitionRecord>,
    me: Member,
    source: NodeId,
) -> Option<&'static str> {
    let primary = record.map(|record| record.primary);
    if leading.is_some() || primary == Some(me) {
        return Some("this replica leads the partition: hand it over first");
    }
    (primary.map(|primary| primary.node) != Some(source))
        .then_some("the replica that is known to be good does not lead: this may be the last good copy")
}

/// [`wire::Op::GiveUp`]: a replica is damaged by an operator's word, and waits for a copy.
pub(crate) fn given_up(why: &str) -> Fault {
    Fault::Log(format!("given up by an operator: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at};
    use bytes::Bytes;
    use wire::Header;
    use wire::entry::Kind;

    const LOG: LogOnDisk = LogOnDisk { kind: LogKind::Disk, base: Lsn(3), durable: Lsn(4) };

    fn engine() -> FakeEngine {
        let mut engine = FakeEngine::new();
        (engine.persisted, engine.file) = (at(3), Bytes::from_static(b"rows"));
        engine
    }

    fn found(scrubber: &mut Scrubber) -> Scrubbed {
        scrubber.validate().expect("valid");
        match scrubber.ask(false).body {
            Body::Scrubbed(found) => found,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_are_read_first_and_then_the_log() {
        let (mut scrubber, mut engine) = (Scrubber::default(), engine());
        assert!(matches!(scrubber.ask(false).status, Status::NotFound(_)));
        scrubber.ask(true);
        let mut asked = None;
        for _ in 0..8 {
            asked = asked.or(scrubber.read_on(&mut engine, LOG, Micros(1)).1);
        }
        assert_eq!(asked, Some(Lsn(4)), "what the log has no more is not read");
        assert!(engine.pinned.is_empty(), "the files are let go of when they are read");
        let entry = Entry::encode(Header::new(Kind::Noop, types::PartitionId(1), at(4), 0), &[]);
        scrubber.log_read((Lsn(3), Lsn(4)), Lsn(4), Ok(vec![entry]));
        let _ = scrubber.read_on(&mut engine, LOG, Micros(1));
        let found = found(&mut scrubber);
        assert!(!found.running && found.damage.is_empty(), "{found:?}");
        assert_eq!((found.files, found.entries), ((1, 1), 1));
    }

    #[test]
    fn pr355_an_answer_of_the_log_that_is_lost_is_asked_for_again() {
        let (mut scrubber, mut engine) = (Scrubber::default(), engine());
        scrubber.ask(true);
        let first = (0..8).find_map(|_| scrubber.read_on(&mut engine, LOG, Micros(7)).1);
        assert_eq!(first, Some(Lsn(4)));
        let mut asked_at = |at: Micros| scrubber.read_on(&mut engine, LOG, at).1;
        assert_eq!(asked_at(Micros(6) + READ_PATIENCE), None, "it may be on its way");
        assert_eq!(asked_at(Micros(7) + READ_PATIENCE), Some(Lsn(4)));
        assert_eq!(asked_at(Micros(8) + READ_PATIENCE), None);
        assert!(scrubber.is_running());
    }

    #[test]
    fn what_is_not_as_it_was_written_is_damage() {
        let (mut scrubber, mut engine) = (Scrubber::default(), engine());
        scrubber.ask(true);
        let _ = scrubber.read_on(&mut engine, LOG, Micros(1));
        engine.file = Bytes::from_static(b"rots");
        for _ in 0..8 {
            let _ = scrubber.read_on(&mut engine, LOG, Micros(1));
        }
        scrubber.log_read((Lsn(3), Lsn(4)), Lsn(4), Err("torn".into()));
        let found = found(&mut scrubber);
        assert_eq!(found.damage.len(), 2, "{found:?}");
        assert!(!scrubber.is_running());
    }

    #[test]
    fn the_end_lets_go_of_what_was_pinned() {
        let (mut scrubber, mut engine) = (Scrubber::default(), engine());
        scrubber.ask(true);
        let _ = scrubber.read_on(&mut engine, LOG, Micros(1));
        assert_eq!(engine.pinned.len(), 1);
        scrubber.end(&mut engine);
        assert!(engine.pinned.is_empty() && !found(&mut scrubber).running);
        scrubber.end(&mut engine);
    }
}
