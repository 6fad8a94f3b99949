//! Where the log of a partition stands here: what it has, what of it is on the disk, where it begins.

use crate::history::History;
use crate::output::{Note, Output};
use crate::recovered::Recovered;
use crate::tail::Tail;
use bytes::Bytes;
use types::{LogKind, Lsn, Micros, PartitionId, Position};
use wire::Entry;
use wire::log::Record;
use wire::peer::LogSummary;

/// A damaged replica remembers so many bytes of its log at least, and whatever was not everywhere.
const REMEMBERED: usize = 64 << 20;

/// What is in a log where another one has a given entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compared {
    /// That entry, as far as it is known.
    Same,
    /// An entry of another term.
    Other,
    /// Nothing, or nothing is known of it.
    Missing,
    /// An entry of the same term with other contents: this is its checksum here. One of the two logs is
    /// damaged (PR-01).
    Damaged(u32),
}

/// A replica's log.
pub struct LogState {
    kind: LogKind,
    /// The newest entries, in memory.
    tail: Tail,
    history: History,
    /// The position before the first entry that the log still has.
    base: Position,
    durable: Lsn,
    /// The newest `secured` that was noted in the log.
    noted_secured: Lsn,
    /// The end of the log that a start found whole on the disk; of a replica that was damaged since, the end
    /// of its log then, if that is whole. Zero once this replica is something else.
    whole_to: Lsn,
    /// A torn end was cut off, and what it may have taken is not surely here again (PR-18).
    torn: bool,
    trimmed_at: Micros,
}

impl LogState {
    /// A log as a start found it, beside engine files that end at `persisted`. `damaged`: log or files cannot
    /// be used.
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
            kind: LogKind::Disk,
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

    /// Where entries are kept. Until a configuration says otherwise, on the disk.
    pub fn kind(&self) -> LogKind {
        self.kind
    }

    /// A configuration says where entries are kept.
    pub fn keep_in(&mut self, kind: LogKind) {
        self.kind = kind;
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

    /// The torn end counts no more, if there was one: the log of this partition is to say so.
    pub(crate) fn settle_torn(&mut self, partition: PartitionId) -> Option<Output> {
        let note = || note(partition, Note::Torn, Bytes::new());
        std::mem::take(&mut self.torn).then(note)
    }

    /// The log of this partition is to say which terms it holds.
    pub(crate) fn note_history(&self, partition: PartitionId) -> Output {
        note(partition, Note::History, self.history.encode())
    }

    /// The same of what is `secured`.
    pub(crate) fn note_secured(partition: PartitionId, secured: Lsn) -> Output {
        note(partition, Note::Secured, Bytes::copy_from_slice(&secured.0.to_le_bytes()))
    }

    /// The log in few words.
    pub fn summary(&self) -> LogSummary {
        LogSummary { base: self.base, end: self.end(), history: self.history.starts().to_vec() }
    }

    /// What is in the log at `lsn`: its position, and its checksum if it is in memory.
    pub fn position_at(&self, lsn: Lsn) -> Option<(Position, Option<u32>)> {
        if lsn == Lsn::ZERO {
            // The position before the first entry is the same in every log, also in one that was trimmed.
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

    /// Compares `at`, with its checksum, with what is here (R2, R3). What is published is compared too: where
    /// two logs part is known when the other one's entries behind that come.
    pub(crate) fn compare(&self, at: Position, crc: u32) -> Compared {
        match self.position_at(at.lsn) {
            None => Compared::Missing,
            Some((here, _)) if here != at => Compared::Other,
            Some((here, Some(known))) if known != crc && here.lsn > Lsn::ZERO => Compared::Damaged(known),
            Some(_) => Compared::Same,
        }
    }

    /// Up to where this log and a state at `at` are the same, if the state is of this log; else zero. A
    /// damaged replica's files may be of another one (F15).
    pub fn common_end(&self, at: Position) -> Lsn {
        if self.holds(at) { at.lsn } else { Lsn::ZERO }
    }

    /// True if it has this entry, as far as that is known.
    pub fn holds(&self, at: Position) -> bool {
        self.position_at(at.lsn).is_some_and(|(here, _)| here == at)
    }

    /// The last entry that this log and another one, of these terms and up to `end`, both have; zero if none
    /// is known.
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

    /// True if the checksum before this entry is that of the log's end. Where that was not known, the entry
    /// names it.
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

    /// The same at the start of a replica that is damaged: of what is `secured`, only the newest entries stay
    /// in memory.
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
        if self.kind == LogKind::Disk
            && at.lsn <= self.end().lsn
            && self.history.term_at(at.lsn) == Some(at.term)
        {
            self.durable = self.durable.max(at.lsn);
        }
    }

    /// Removes every entry above `to`, of which `tail` has all, and gives them (F02).
    pub fn truncate(&mut self, to: Lsn) -> Vec<Entry> {
        let dropped = self.tail.truncate(to);
        self.history.truncate(to);
        self.durable = self.durable.min(to);
        dropped
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

    /// Begins again at `at`, with the terms in `history`. `durable` says how far the log on the disk is then.
    pub fn begin_at(&mut self, at: Position, crc: u32, history: History, durable: Lsn) {
        assert!(durable <= at.lsn, "PR-35: {durable} is not on the disk of a log from {at}");
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

    /// Bytes of it above `lsn`; entries that are not in memory are counted by the mean of those that are.
    pub fn bytes_above(&self, lsn: Lsn) -> u64 {
        let (base, end) = (self.tail.base().lsn.0, self.end().lsn.0);
        let mean = (self.tail.bytes() as u64).checked_div(end - base).unwrap_or(0);
        end.saturating_sub(lsn.0) * mean
    }

    /// What must hold after every event, unless the replica is damaged or has half a copy.
    pub fn validate(&self) -> Result<(), String> {
        let (base, end) = (self.base, self.end());
        if base.lsn > end.lsn {
            return Err(format!("the log begins at {base} and ends at {end}"));
        }
        if self.durable > end.lsn {
            return Err(format!("durable <= received: {} > {}", self.durable, end.lsn));
        }
        // The oldest terms may be forgotten, and a log without an entry may know none.
        if end.lsn > base.lsn && self.history.term_at(end.lsn) != Some(end.term) {
            return Err(format!("R3: the history {:?} is not of a log to {end}", self.history.starts()));
        }
        let first = self.history.starts().first().map(|(_, first)| *first);
        if first.is_some_and(|first| first > end.lsn) {
            return Err(format!("R3: the history {:?} is not of a log to {end}", self.history.starts()));
        }
        Ok(())
    }

    /// When it was shortened last.
    pub fn trimmed_at(&self) -> Micros {
        self.trimmed_at
    }

    /// Begins behind `base` from now on.
    pub fn trim(&mut self, base: Position, now: Micros) {
        let in_log = self.base.lsn < base.lsn && base.lsn <= self.end().lsn;
        assert!(in_log, "R8: the log of {} begins behind {base}", self.base);
        self.trimmed_at = now;
        self.base = base;
    }
}

fn note(partition: PartitionId, note: Note, value: Bytes) -> Output {
    Output::Log(Record::Custom { partition, key: note as u16, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;
    use wire::entry::{Header, Kind};

    fn at(term: u64, lsn: u64) -> Position {
        Position::new(Term(term), Lsn(lsn))
    }

    /// The entry at `lsn` behind this log.
    fn next(log: &LogState, term: u64) -> Entry {
        let at = at(term, log.end().lsn.next().0);
        Entry::encode(Header::new(Kind::Noop, PartitionId(1), at, log.end_crc()), b"")
    }

    fn log(entries: &[u64]) -> LogState {
        let mut log = LogState::recover(&Recovered::nothing(), Position::ZERO, false);
        for term in entries {
            let entry = next(&log, *term);
            log.append(entry);
        }
        assert_eq!(log.validate(), Ok(()));
        log
    }

    #[test]
    fn a_term_begins_with_its_first_entry() {
        let mut log = log(&[]);
        assert!(log.append(next(&log, 1)) && !log.append(next(&log, 1)) && log.append(next(&log, 3)));
        assert_eq!((log.end(), log.position_at(Lsn(2)).map(|(at, _)| at)), (at(3, 3), Some(at(1, 2))));
        assert!(log.holds(at(1, 1)) && !log.holds(at(3, 1)) && !log.holds(at(3, 4)));
        assert_eq!(log.validate(), Ok(()));
    }

    #[test]
    #[should_panic(expected = "R3: ")]
    fn r3_no_gap_comes_into_a_log() {
        let mut first = log(&[1]);
        first.append(next(&log(&[1, 1]), 1));
    }

    #[test]
    fn what_is_truncated_is_durable_no_more() {
        let mut log = log(&[1, 1, 2, 2]);
        log.synced(at(2, 4));
        assert_eq!(log.durable(), Lsn(4));
        let dropped = log.truncate(Lsn(2));
        assert_eq!((dropped.len(), log.end(), log.durable()), (2, at(1, 2), Lsn(2)));
        // A token of an entry that was cut, of another term, and of one that is there.
        log.synced(at(2, 4));
        log.append(next(&log, 3));
        log.synced(at(2, 3));
        assert_eq!(log.durable(), Lsn(2));
        log.synced(at(3, 3));
        assert_eq!((log.durable(), log.validate()), (Lsn(3), Ok(())));
    }

    #[test]
    fn it_begins_behind_what_was_dropped_and_again_where_files_end() {
        let mut log = log(&[1, 1, 2]);
        log.synced(at(2, 3));
        log.trim(at(1, 2), Micros(7));
        assert_eq!((log.base(), log.trimmed_at(), log.validate()), (at(1, 2), Micros(7), Ok(())));
        let terms = History::new(vec![(Term(4), Lsn(8))]).expect("ascends");
        log.begin_at(at(4, 9), 0, terms, Lsn(3));
        assert_eq!((log.base(), log.end(), log.durable()), (at(4, 9), at(4, 9), Lsn(3)));
        assert_eq!(log.validate(), Ok(()));
        // The sender did not remember the checksum there: the first entry names it.
        let header = Header::new(Kind::Noop, PartitionId(1), at(4, 10), 77);
        let entry = Entry::encode(header, b"");
        assert_eq!(log.base_named_by(&entry), Some(77));
        assert!(log.chains(&entry) && log.base_named_by(&entry).is_none());
        log.append(entry);
        assert_eq!(log.validate(), Ok(()));
    }

    #[test]
    fn positions_out_of_order_are_found() {
        let mut log = log(&[1, 1]);
        log.durable = Lsn(3);
        assert!(log.validate().is_err_and(|what| what.starts_with("durable")));
        log.durable = Lsn(2);
        log.base = at(1, 3);
        assert!(log.validate().is_err_and(|what| what.contains("begins at")));
        log.base = at(1, 0);
        log.history = History::new(vec![(Term(2), Lsn(1))]).expect("ascends");
        assert!(log.validate().is_err_and(|what| what.starts_with("R3")));
    }

    #[test]
    fn r3_one_position_has_one_content() {
        let log = log(&[1, 1, 3]);
        let crc = log.end_crc();
        assert_eq!(log.compare(at(3, 3), crc), Compared::Same);
        assert_eq!(log.compare(at(3, 3), !crc), Compared::Damaged(crc));
        assert_eq!(log.compare(at(2, 3), crc), Compared::Other);
        assert_eq!(log.compare(at(3, 4), crc), Compared::Missing);
        assert_eq!(log.compare(Position::ZERO, 0), Compared::Same, "before every log");
    }

    #[test]
    fn what_is_secured_is_noted_now_and_then() {
        let mut log = log(&[1]);
        assert!(
            !log.notes_secured(Lsn(1023)) && log.notes_secured(Lsn(1024)) && !log.notes_secured(Lsn(1025))
        );
    }

    #[test]
    fn r9_both_logs_have_it_up_to_where_their_terms_part() {
        let log = log(&[1, 1, 3, 3]);
        let theirs = History::new(vec![(Term(1), Lsn(1)), (Term(2), Lsn(3))]).expect("ascends");
        assert_eq!(log.common_with(&theirs, Lsn(9)), Lsn(2));
        let shorter = History::new(vec![(Term(1), Lsn(1))]).expect("ascends");
        assert_eq!(log.common_with(&shorter, Lsn(1)), Lsn(1));
    }

    #[test]
    fn a_start_remembers_a_damaged_log_only_where_it_may_diverge() {
        let history = History::new(vec![(Term(1), Lsn(1)), (Term(2), Lsn(15))]).expect("ascends");
        let found = Recovered { base: at(1, 10), end: at(2, 20), history, ..Recovered::nothing() };
        let kept = LogState::recover(&found, at(1, 14), true);
        assert_eq!((kept.end(), kept.durable(), kept.to_replay()), (at(1, 10), Lsn(20), Some(Lsn(11))));
        let gone = LogState::recover(&found, at(2, 20), true);
        assert_eq!((gone.end(), gone.durable(), gone.to_replay()), (at(2, 20), Lsn::ZERO, None));
        let sound = LogState::recover(&found, at(1, 14), false);
        assert_eq!((sound.end(), sound.to_replay()), (at(1, 14), Some(Lsn(15))));
    }
}
