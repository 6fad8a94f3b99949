//! Where the log of a partition stands here: what it has, what of it is on the disk, where it begins.

use crate::history::History;
use crate::replica::Recovered;
use crate::tail::Tail;
use types::{Lsn, Micros, Position};
use wire::Entry;
use wire::peer::LogSummary;

/// A damaged replica remembers so many bytes of its log at least, and whatever was not everywhere.
const REMEMBERED: usize = 64 << 20;

/// A replica's log.
pub(crate) struct LogState {
    /// The newest entries, in memory.
    tail: Tail,
    history: History,
    /// The position before the first entry that the log still has.
    base: Position,
    durable: Lsn,
    /// The newest `secured` that was noted in the log.
    noted_secured: Lsn,
    /// The end of the log that a start found whole on the disk; of a replica that was damaged since, the end of its log then, if
    /// that is whole. Zero once this replica is something else.
    whole_to: Lsn,
    /// A torn end was cut off, and what it may have taken is not surely here again (PR-18).
    torn: bool,
    trimmed_at: Micros,
}

impl LogState {
    /// A log as a start found it, beside engine files that end at `persisted`. `damaged`: log or files cannot be used.
    pub fn recover(found: &Recovered, persisted: Position, damaged: bool) -> LogState {
        let keeps_tail = found.keeps_tail(persisted, damaged);
        let (base, crc) = if keeps_tail {
            (found.base, found.base_crc)
        } else if persisted.lsn >= found.end.lsn || damaged {
            (persisted, if persisted == found.end { found.end_crc } else { 0 })
        } else if persisted.lsn == found.base.lsn {
            (found.base, found.base_crc)
        } else {
            (persisted, 0)
        };
        let whole_to = if keeps_tail || !damaged { found.end.lsn } else { Lsn::ZERO };
        let mut history = found.history.clone();
        if keeps_tail {
            history.truncate(found.end.lsn);
        }
        LogState {
            tail: Tail::new(base, crc),
            history,
            base: found.base,
            durable: whole_to,
            noted_secured: found.secured,
            whole_to,
            torn: found.torn,
            trimmed_at: Micros::ZERO,
        }
    }

    /// The entries in memory.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// The terms that it holds.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The position before the first entry that it still has.
    pub fn base(&self) -> Position {
        self.base
    }

    /// The last entry.
    pub fn end(&self) -> Position {
        self.tail.end()
    }

    /// The last entry's checksum; zero if it is not known.
    pub fn end_crc(&self) -> u32 {
        self.tail.end_crc()
    }

    /// Up to where it is on the disk.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// True if a torn end was cut off, and what it took is not surely here again.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// The torn end counts no more. True if there was one.
    pub fn settle_torn(&mut self) -> bool {
        std::mem::take(&mut self.torn)
    }

    /// The log in few words.
    pub fn summary(&self) -> LogSummary {
        LogSummary { base: self.base, end: self.end(), history: self.history.starts().to_vec() }
    }

    /// What is in the log at `lsn`: its position, and its checksum if it is in memory.
    pub fn position_at(&self, lsn: Lsn) -> Option<(Position, Option<u32>)> {
        if lsn == Lsn::ZERO {
            // Before every log, whatever was trimmed of it.
            return Some((Position::ZERO, None));
        }
        if let Some((position, crc)) = self.tail.at(lsn) {
            return Some((position, (crc != 0).then_some(crc)));
        }
        if lsn > self.end().lsn {
            return None;
        }
        self.history.term_at(lsn).map(|term| (Position::new(term, lsn), None))
    }

    /// The last entry that this log and another one, of these terms and up to `end`, both have; zero if none is known.
    pub fn common_with(&self, theirs: &History, end: Lsn) -> Lsn {
        let common = theirs.common(end, &self.summary()).lsn;
        // Where the log's terms are not known any more, single positions are.
        let known = [self.base, self.tail.base(), self.end()].into_iter();
        let both = known.filter(|at| at.lsn <= end && theirs.term_at(at.lsn) == Some(at.term));
        both.map(|at| at.lsn).fold(common, Lsn::max)
    }

    /// True if nothing says what the last entry's checksum was.
    fn is_end_unknown(&self) -> bool {
        self.end_crc() == 0 && self.tail.bytes() == 0 && self.end().lsn > Lsn::ZERO
    }

    /// The checksum that the log's base gets from the first entry behind it, if it was not known.
    pub fn base_named_by(&self, entry: &Entry) -> Option<u32> {
        let crc = entry.header().prev_crc;
        (self.is_end_unknown() && crc != 0 && self.base == self.end()).then_some(crc)
    }

    /// True if the checksum before this entry is that of the log's end. Where that was not known, the entry names it.
    pub fn chains(&mut self, entry: &Entry) -> bool {
        let prev_crc = entry.header().prev_crc;
        if self.is_end_unknown() {
            self.tail = Tail::new(self.end(), prev_crc);
        }
        prev_crc == self.end_crc()
    }

    /// Appends the next entry (R3). True if a term begins with it: then the history is another one.
    pub fn append(&mut self, entry: Entry) -> bool {
        let at = entry.at();
        self.tail.push(entry);
        self.history.append(at)
    }

    /// The same at the start of a replica that is damaged: of what is `secured`, only the newest entries stay in memory.
    pub fn remember(&mut self, entry: Entry, secured: Lsn) {
        self.append(entry);
        self.tail.trim(secured, REMEMBERED);
    }

    /// The next LSN to be read from the disk at the start, if the log there has more of use.
    pub fn to_replay(&self) -> Option<Lsn> {
        let next = self.end().lsn.max(self.base.lsn).next();
        (next <= self.whole_to).then_some(next)
    }

    /// True if all of it was there as it was written when this replica was damaged.
    pub fn is_whole(&self) -> bool {
        self.end().lsn <= self.whole_to
    }

    /// The engine is damaged and the log is not.
    pub fn note_whole(&mut self) {
        self.whole_to = self.end().lsn;
    }

    /// The log is damaged too.
    pub fn distrust(&mut self) {
        self.whole_to = Lsn::ZERO;
    }

    /// Storage made `at` durable. One that was cut meanwhile is ignored.
    pub fn synced(&mut self, at: Position) {
        if at.lsn <= self.end().lsn && self.history.term_at(at.lsn) == Some(at.term) {
            self.durable = self.durable.max(at.lsn);
        }
    }

    /// Removes every entry above `to`, of which `tail` has all, and gives them (F02).
    pub fn truncate(&mut self, to: Lsn) -> Vec<Entry> {
        let cut = self.tail.truncate(to);
        self.history.truncate(to);
        self.durable = self.durable.min(to);
        cut
    }

    /// Removes from memory what lies above `to`, and nothing else: something else takes the log's place next.
    pub fn take_tail(&mut self, to: Lsn) -> Vec<Entry> {
        let keep = to.max(self.tail.base().lsn);
        if keep < self.end().lsn { self.tail.truncate(keep) } else { Vec::new() }
    }

    /// What is on the disk above `to` is of no use any more.
    pub fn lower_durable(&mut self, to: Lsn) {
        self.durable = self.durable.min(to);
    }

    /// Begins anew at `at`, with the terms in `history`. `durable` says how far the log on the disk is then.
    pub fn begin_at(&mut self, at: Position, crc: u32, history: History, durable: Lsn) {
        self.tail = Tail::new(at, crc);
        self.history = history;
        self.base = at;
        self.durable = durable;
        self.noted_secured = Lsn::ZERO;
        self.whole_to = Lsn::ZERO;
    }

    /// Forgets entries in memory at or below `upto`, while they take more than `keep_bytes`.
    pub fn trim_memory(&mut self, upto: Lsn, keep_bytes: usize) {
        self.tail.trim(upto, keep_bytes);
    }

    /// True if `secured` moved on so far that the log is to say so.
    pub fn notes_secured(&mut self, secured: Lsn) -> bool {
        let due = secured.0 >= self.noted_secured.0 + 1024;
        if due {
            self.noted_secured = secured;
        }
        due
    }

    /// When it was shortened last.
    pub fn trimmed_at(&self) -> Micros {
        self.trimmed_at
    }

    /// Begins behind `base` from now on.
    pub fn trim(&mut self, base: Position, now: Micros) {
        self.trimmed_at = now;
        self.base = base;
    }
}
