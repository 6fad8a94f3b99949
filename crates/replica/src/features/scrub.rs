//! Scrubbing: a replica reads its own component files and log back and compares them with their checksums, a piece at a time,
//! between its other work. Nothing is changed by it. What is damaged is given up only when an operator says so
//! ([`wire::Op::GiveUp`]), and fetched from the others then.

use crate::output::{ClientRef, Output, ReadFor};
use crate::replica::{Ctx, Replica, Role};
use std::collections::BTreeSet;
use types::{Component, ComponentSet, EngineError, LogKind, Lsn, Micros, NodeId, PinId};
use wire::scrub::{Damage, MAX_DAMAGE, Scrubbed};
use wire::{Body, Entry, Request, Status};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// An answer of the log that did not come in this time was lost with what was asked.
const READ_PATIENCE: Micros = Micros::from_millis(10_000);

enum Stage {
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

/// A scrubbing, under way or over.
pub(crate) struct Scrub {
    stage: Stage,
    /// Digests of files that were read and are as they were written: they need not be read again where files come in between.
    sound: BTreeSet<u128>,
    /// Bytes of the log that came back and were not counted yet.
    uncounted: usize,
    found: Scrubbed,
}

impl Scrub {
    fn damage(&mut self, file: impl Into<String>, what: impl Into<String>) {
        if self.found.damage.len() < MAX_DAMAGE {
            self.found.damage.push(Damage { file: file.into(), what: what.into() });
        }
    }
}

impl Replica {
    /// [`wire::Op::Scrub`]: begins one if there is none under way and `start` says so, and tells how far it is.
    pub(crate) fn on_scrub(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request, start: bool) {
        let over = self.scrub.as_ref().is_none_or(|scrub| !scrub.found.running);
        if start && over {
            let found = Scrubbed { running: true, ..Scrubbed::default() };
            self.scrub =
                Some(Box::new(Scrub { stage: Stage::Pinning, sound: BTreeSet::new(), uncounted: 0, found }));
        }
        let (status, body) = match &self.scrub {
            Some(scrub) => (Status::Ok, Body::Scrubbed(scrub.found.clone())),
            None => {
                (Status::NotFound("this replica was not scrubbed since its node started".into()), Body::None)
            }
        };
        self.answer(ctx, to, request, status, body, None);
    }

    /// [`wire::Op::GiveUp`]: this replica is damaged by an operator's word, and waits for a copy. Not if nobody else has one: the
    /// primary counts and serves, and it is the one whose copy is known to be good.
    pub(crate) fn on_give_up(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        (source, why): (NodeId, &str),
    ) {
        let primary = self.config.record().map(|record| record.primary);
        let refusal = if matches!(self.role, Role::Leader(_)) || primary == Some(self.me) {
            Some("this replica leads the partition: hand it over first")
        } else if primary.map(|primary| primary.node) != Some(source) {
            Some("the replica that is known to be good does not lead: this may be the last good copy")
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.answer(ctx, to, request, Status::Bad(refusal.into()), Body::None, None);
        }
        self.fail_with_log(ctx, format!("given up by an operator: {why}"));
        self.answer(ctx, to, request, Status::Ok, Body::None, None);
    }

    /// True if there is more to read.
    pub(crate) fn scrubs(&self) -> bool {
        self.scrub.as_ref().is_some_and(|scrub| scrub.found.running)
    }

    /// Reads the next piece. Gives its length in bytes.
    pub(crate) fn scrub_on(&mut self, ctx: &mut Ctx) -> usize {
        let Some(mut scrub) = self.scrub.take() else { return 0 };
        if self.is_damaged() || self.copying() {
            self.scrub = Some(scrub);
            self.end_scrub();
            return 0;
        }
        let bytes = self.piece(ctx, &mut scrub) + std::mem::take(&mut scrub.uncounted);
        scrub.found.running = !matches!(scrub.stage, Stage::Over);
        self.scrub = Some(scrub);
        bytes
    }

    /// There is nothing any more that could be read back, if one is under way.
    pub(crate) fn end_scrub(&mut self) {
        let Some(mut scrub) = self.scrub.take() else { return };
        if scrub.found.running {
            self.end_files(&mut scrub);
            scrub.damage("components", "the replica is damaged or takes in a copy");
            scrub.stage = Stage::Over;
            scrub.found.running = false;
        }
        self.scrub = Some(scrub);
    }

    fn piece(&mut self, ctx: &mut Ctx, scrub: &mut Scrub) -> usize {
        match &mut scrub.stage {
            Stage::Pinning => {
                self.pin_to_scrub(scrub);
                0
            }
            Stage::Files(_) => self.file_piece(scrub),
            Stage::Log { next, asked_at } => {
                if asked_at.is_some_and(|at| ctx.now.mono.since(at) < READ_PATIENCE) {
                    return 0;
                }
                // What was cut off meanwhile, because the components have it, is not there to be read.
                let from = (*next).max(self.log.base().lsn.next());
                if from > self.log.durable() {
                    scrub.stage = Stage::Over;
                    return 0;
                }
                (*next, *asked_at) = (from, Some(ctx.now.mono));
                let (partition, purpose) = (self.id, ReadFor::Scrub { from });
                ctx.out.push(Output::ReadLog { partition, from, max_bytes: PIECE, purpose });
                0
            }
            Stage::Over => 0,
        }
    }

    fn pin_to_scrub(&mut self, scrub: &mut Scrub) {
        let has_files = self.engine.capabilities().ships_files && self.engine.persisted().lsn > Lsn::ZERO;
        let pinned = match has_files {
            true => self.engine.pin(),
            false => Ok(None),
        };
        match pinned {
            Ok(Some((pin, set))) => {
                let read = |file: &&Component| scrub.sound.contains(&file.digest);
                let read: Vec<u64> = set.files.iter().filter(read).map(|file| file.bytes).collect();
                scrub.found.files = (set.files.len() as u32, read.len() as u32);
                scrub.found.bytes = (set.bytes(), read.iter().sum());
                scrub.stage = Stage::Files(Box::new(Files { pin, set, file: 0, from: 0, hash: Xxh3::new() }));
            }
            Ok(None) if has_files => {}
            // That a file cannot be opened just now says nothing of it.
            Err(EngineError::Later(_)) => {}
            Ok(None) => self.scrub_log(scrub),
            Err(error) => {
                scrub.damage("components", error.to_string());
                self.scrub_log(scrub);
            }
        }
    }

    fn file_piece(&mut self, scrub: &mut Scrub) -> usize {
        let Stage::Files(files) = &mut scrub.stage else { return 0 };
        let Some(file) = files.set.files.get(files.file).copied() else {
            self.end_files(scrub);
            self.scrub_log(scrub);
            return 0;
        };
        if files.from == 0 && scrub.sound.contains(&file.digest) {
            files.file += 1;
            return 0;
        }
        let name = format!("component {}", file.number);
        let wrong = match self.engine.read_component(files.pin, files.file, files.from, PIECE) {
            Ok(Some(bytes)) if !bytes.is_empty() && files.from < file.bytes => {
                files.hash.update(&bytes);
                files.from += bytes.len() as u64;
                scrub.found.bytes.1 += bytes.len() as u64;
                return bytes.len();
            }
            Ok(Some(more)) => {
                let same =
                    files.from == file.bytes && more.is_empty() && files.hash.digest128() == file.digest;
                (!same).then(|| "it does not match its digest".to_string())
            }
            // The files were exchanged for others, which has compared all that stayed; what was found is not there any more.
            Ok(None) => {
                scrub.found.damage.clear();
                scrub.stage = Stage::Pinning;
                return 0;
            }
            Err(EngineError::Later(_)) => return 0,
            Err(error) => Some(error.to_string()),
        };
        (files.file, files.from, files.hash) = (files.file + 1, 0, Xxh3::new());
        scrub.found.files.1 += 1;
        match wrong {
            Some(what) => scrub.damage(name, what),
            None => drop(scrub.sound.insert(file.digest)),
        }
        0
    }

    fn end_files(&mut self, scrub: &mut Scrub) {
        if let Stage::Files(files) = &scrub.stage {
            self.engine.unpin(files.pin);
        }
    }

    fn scrub_log(&self, scrub: &mut Scrub) {
        scrub.stage = match self.config.log_kind() {
            LogKind::Disk => Stage::Log { next: Lsn(1), asked_at: None },
            LogKind::Memory => Stage::Over,
        };
    }

    /// Entries came back from the log, or could not be read.
    pub(crate) fn scrub_read(&mut self, from: Lsn, entries: Result<Vec<Entry>, String>) {
        let (base, end) = (self.log.base().lsn, self.log.end().lsn);
        let Some(scrub) = &mut self.scrub else { return };
        let Stage::Log { next, asked_at } = &mut scrub.stage else { return };
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
                scrub.found.entries += entries.len() as u64;
                scrub.uncounted += entries.iter().map(|entry| entry.bytes().len()).sum::<usize>();
                if !chained {
                    scrub.damage("log", format!("an entry from {from} on does not follow the one before it"));
                }
            }
            Ok(_) => scrub.stage = Stage::Over,
            Err(_) if moved => {}
            Err(why) => {
                scrub.damage("log", format!("entries from {from} on cannot be read: {why}"));
                scrub.stage = Stage::Over;
            }
        }
        scrub.found.running = !matches!(scrub.stage, Stage::Over);
    }
}
