//! The log to one member: appends from memory or read back, and from where it is sent what it lacks.

use crate::output::{Output, ReadFor};
use crate::sender::Sender;
use bytes::{Bytes, BytesMut};
use types::engine::LARGE_VALUE_BYTES;
use types::{EngineError, Lsn, Member, PartitionRecord, Position, Term};
use wire::control::RecordText;
use wire::entry::Kind;
use wire::peer::{Append, Inform, LogReport, LogSummary, ReportRequest};
use wire::{Entry, PeerMessage};

/// Entries as one run of bytes, kept for the members that need the same.
pub(crate) struct Run {
    from: Lsn,
    last: Lsn,
    /// Calls are in it without what they came to.
    alone: bool,
    bytes: Bytes,
}

/// So many entries are in an append to who makes calls itself: others have their turn behind it.
const CALLS: usize = 512;

impl Run {
    fn of<'a>(from: Lsn, entries: impl Iterator<Item = &'a Entry>) -> Run {
        let (mut out, mut last) = (BytesMut::new(), Lsn::ZERO);
        for entry in entries {
            out.extend_from_slice(entry.bytes());
            last = entry.lsn();
        }
        Run { from, last, alone: false, bytes: out.freeze() }
    }

    /// Of the newest entries, in memory; `alone`: for who makes calls itself. A large one goes by itself, as
    /// it is there, and is not copied. The others up to it are put together.
    fn of_tail<'a>(from: Lsn, alone: bool, entries: impl Iterator<Item = &'a Entry>) -> Run {
        let mut entries = entries.peekable();
        if let Some(entry) = entries.next_if(|entry| goes_as_it_is(entry, alone)) {
            return Run { from, last: entry.lsn(), alone, bytes: entry.bytes().clone() };
        }
        let others = entries.take_while(|entry| !goes_as_it_is(entry, alone));
        if alone { Run::of_calls(from, others) } else { Run::of(from, others) }
    }

    fn of_calls<'a>(from: Lsn, entries: impl Iterator<Item = &'a Entry>) -> Run {
        let (mut out, mut last) = (BytesMut::new(), Lsn::ZERO);
        for entry in entries.take(CALLS) {
            entry.put_alone(&mut out);
            last = entry.lsn();
        }
        Run { from, last, alone: true, bytes: out.freeze() }
    }
}

/// True if copying it would cost more than a message of its own. Less than there is of a call goes to who
/// makes it itself (`alone`).
fn goes_as_it_is(entry: &Entry, alone: bool) -> bool {
    let is_shortened = alone && entry.header().kind == Kind::Call;
    entry.bytes().len() >= LARGE_VALUE_BYTES && !is_shortened
}

/// Asks for a member's log, in this configuration.
pub(crate) fn ask_report(record: &PartitionRecord, me: Member, to: Member, out: &mut Vec<Output>) {
    let inform = Inform { partition: record.id, record: RecordText::new(record) };
    let request = ReportRequest { partition: record.id, epoch: record.epoch, from: me };
    out.push(Output::Send { to, message: PeerMessage::Inform(inform) });
    out.push(Output::Send { to, message: PeerMessage::ReportRequest(request) });
}

impl Sender<'_> {
    /// Sends as much of the log as may be on its way at once.
    pub(super) fn ship_log(&mut self, cached: &mut Option<Run>) -> Result<(), EngineError> {
        let (log, alone) = (self.log, self.sends_calls());
        loop {
            let (next, most) = (self.progress.flight.next(), self.settings.append_bytes);
            if next > log.end().lsn || self.progress.flight.bytes() >= self.settings.window_bytes {
                return Ok(());
            }
            let (prev, base) = (next.prev(), log.base().lsn);
            let known = log.tail().at(prev).filter(|(_, crc)| *crc != 0 || prev == Lsn::ZERO);
            let Some(before) = known else {
                if prev < base {
                    return self.start_copy();
                }
                self.progress.begin_reading(self.now);
                // Of the entry before, whose checksum goes into the append, this one says it (PR-470).
                self.out.push(Output::ReadLog {
                    partition: self.origin.partition,
                    from: next,
                    max_bytes: most,
                    purpose: ReadFor::Ship(self.to),
                });
                return Ok(());
            };
            let run = match cached.take().filter(|run| run.from == next && run.alone == alone) {
                Some(run) => run,
                None => Run::of_tail(next, alone, log.tail().run(next, most)),
            };
            self.send_append(before, run.bytes.clone(), run.last);
            *cached = Some(run);
        }
    }

    /// Sends one append; `last` is the LSN of its last entry, or `prev`'s if it is empty.
    fn send_append(&mut self, prev: (Position, u32), entries: Bytes, last: Lsn) {
        let append = Append {
            partition: self.origin.partition,
            epoch: self.origin.epoch,
            from: self.origin.me,
            number: self.progress.flight.send(self.now, last, entries.len()),
            prev: prev.0,
            prev_crc: prev.1,
            committed: self.marks.committed(),
            secured: self.marks.publishable(),
            log_floor: self.marks.log_floor(),
            sent_us: self.now.0,
            echo_us: self.progress.acks.tell(self.led_at),
            entries,
        };
        self.send(PeerMessage::Append(append));
    }

    /// Tells the positions by an empty append behind `prev`.
    pub fn tell_positions(&mut self, prev: Lsn) {
        if let Some(prev_at) = self.log.tail().at(prev) {
            self.send_append(prev_at, Bytes::new(), prev);
        }
    }

    /// Entries for this member were read back from the log, or could not be.
    pub fn log_read(&mut self, entries: Result<Vec<Entry>, String>) -> Result<(), EngineError> {
        if !self.progress.end_reading() {
            return Ok(());
        }
        let next = self.progress.flight.next();
        let Ok(entries) = entries else { return self.start_copy() };
        let rest = || entries.iter().skip_while(|entry| entry.lsn() < next);
        let Some(first) = rest().next().filter(|entry| entry.lsn() == next) else {
            return self.start_copy();
        };
        let term = match next.prev() {
            Lsn::ZERO => Term::ZERO,
            prev => self.log.history().term_at(prev).unwrap_or(self.log.base().term),
        };
        let prev = (Position::new(term, next.prev()), first.header().prev_crc);
        let run = Run::of(next, rest());
        self.send_append(prev, run.bytes, run.last);
        Ok(())
    }

    /// The member did not take an append: its log is another one.
    pub fn realign(&mut self, number: u64, theirs: &LogSummary) -> Result<(), EngineError> {
        if !self.progress.is_current(number) {
            return Ok(());
        }
        self.align(theirs)
    }

    /// A member has told what it has: begins to send what it lacks.
    pub fn on_report(&mut self, report: &LogReport) -> Result<(), EngineError> {
        self.progress.flight.calls.announced(report.code);
        let files = self.ships && self.catching_up() && !self.progress.rows_only;
        if self.progress.wants_room && files && report.marks.persisted < self.engine.persisted().lsn {
            // Its log begins behind the files then, and has room again. There may be no other way: what is
            // to make room may wait for the log (PR-119).
            self.progress.begin_from_scratch(self.now);
            return self.start_shipping();
        }
        self.align(&report.log)
    }

    /// Begins to send to a member whose log is known, from where it agrees.
    pub fn align(&mut self, theirs: &LogSummary) -> Result<(), EngineError> {
        let common = self.log.history().common(self.log.end().lsn, theirs);
        if common.lsn < self.log.base().lsn || common.lsn < theirs.base.lsn {
            return self.start_copy();
        }
        if !self.offers_choice(common.lsn)? {
            // A member that catches up is to find the rest of the log, however long it takes (R8).
            self.progress.needs = common.lsn;
            self.progress.stream_behind(common.lsn);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at, member};
    use crate::history::History;
    use crate::log_state::LogState;
    use crate::marks::Marks;
    use crate::output::Origin;
    use crate::readers::Readers;
    use crate::recovered::Recovered;
    use crate::sender::progress::{Mode, Progress};
    use crate::sender::shipping::FilesOut;
    use crate::settings::Settings;
    use types::config::Cause;
    use types::{Epoch, LogKind, Micros, NodeId, PartitionId, Policy, TableId, Watermarks};
    use wire::{CallMark, Header};

    fn to() -> Member {
        Member { node: NodeId(2), ..member() }
    }

    fn record() -> PartitionRecord {
        PartitionRecord {
            catching_up: vec![to()],
            cause: Cause::CatchingUp,
            ..PartitionRecord::new(
                PartitionId(1),
                TableId(1),
                Epoch(1),
                vec![member()],
                Policy::preset("sync", 2, LogKind::Disk).expect("a preset"),
            )
        }
    }

    fn log() -> LogState {
        let mut log = LogState::recover(&Recovered::nothing(), Position::ZERO, false);
        for lsn in 1..=3 {
            log.append(Entry::encode(Header::new(Kind::Noop, PartitionId(1), at(lsn), log.end_crc()), b""));
        }
        log
    }

    /// Sends to a member with this progress; there is no primary, and there are no files.
    fn send(
        progress: &mut Progress,
        act: impl FnOnce(&mut Sender) -> Result<(), EngineError>,
    ) -> Vec<Output> {
        send_beside(Position::ZERO, progress, act)
    }

    /// The same where files are there up to here.
    fn send_beside(
        persisted: Position,
        progress: &mut Progress,
        act: impl FnOnce(&mut Sender) -> Result<(), EngineError>,
    ) -> Vec<Output> {
        send_of((record(), log()), persisted, progress, act)
    }

    /// The same of this log, to a member of this record.
    fn send_of(
        (record, log): (PartitionRecord, LogState),
        persisted: Position,
        progress: &mut Progress,
        act: impl FnOnce(&mut Sender) -> Result<(), EngineError>,
    ) -> Vec<Output> {
        let (marks, settings) = (Marks::new(Lsn(2), Lsn(2)), Settings::default());
        let (mut files, mut engine, mut readers) =
            (FilesOut::default(), FakeEngine::new(), Readers::default());
        let (mut out, me) = (Vec::new(), member());
        engine.persisted = persisted;
        let mut sender = Sender {
            to: to(),
            progress,
            files: &mut files,
            engine: &mut engine,
            log: &log,
            marks: &marks,
            readers: &mut readers,
            record: &record,
            origin: Origin { partition: record.id, epoch: record.epoch, me },
            led_at: Micros::ZERO,
            now: Micros::from_millis(60_000),
            settings: &settings,
            ships: true,
            serves: false,
            names_position: true,
            out: &mut out,
        };
        act(&mut sender).expect("the engine does not fail");
        out
    }

    fn message(out: &[Output]) -> &PeerMessage {
        match out {
            [Output::Send { message, .. }] => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whoever_has_members_asks_them_for_their_logs_and_sends_what_they_lack() {
        let mut progress = Progress::new(Micros::ZERO, 0);
        assert_eq!(send(&mut progress, |sender| sender.go_on(false, &mut None)).len(), 2, "it asks");
        let history = History::new(vec![(Term(1), Lsn(1))]).expect("ascends");
        let theirs = LogSummary { base: Position::ZERO, end: at(1), history: history.starts().to_vec() };
        assert!(send(&mut progress, |sender| sender.align(&theirs)).is_empty());
        assert!(send(&mut progress, |sender| sender.go_on(false, &mut None)).is_empty(), "no term has begun");
        let sent = send(&mut progress, |sender| sender.go_on(true, &mut None));
        let PeerMessage::Append(append) = message(&sent) else { panic!("{sent:?}") };
        assert_eq!((append.prev, append.committed), (at(1), Lsn(2)));
        assert_eq!(Entry::all(append.entries.clone()).map(|entries| entries.len()).ok(), Some(2));
        assert!(send(&mut progress, |sender| sender.go_on(true, &mut None)).is_empty(), "it is on its way");
    }

    #[test]
    fn pr240_a_member_is_sent_calls_alone_until_it_wants_what_they_came_to() {
        let with_call = || {
            let mut log = log();
            let header = Header::new(Kind::Call, PartitionId(1), at(4), log.end_crc());
            log.append(Entry::encode_call(header, &CallMark::default(), b"what it came to"));
            log
        };
        let both = || PartitionRecord { in_sync: vec![member(), to()], catching_up: Vec::new(), ..record() };
        let mut progress = Progress::new(Micros::ZERO, 0);
        let history = History::new(vec![(Term(1), Lsn(1))]).expect("ascends");
        let theirs = LogSummary { base: Position::ZERO, end: at(1), history: history.starts().to_vec() };
        let log =
            LogReport { log: theirs, code: Settings::default().programs.code(), ..LogReport::default() };
        let mut send = |record: PartitionRecord, act: &dyn Fn(&mut Sender) -> Result<(), EngineError>| {
            let sent = send_of((record, with_call()), Position::ZERO, &mut progress, act);
            let appends = sent.iter().map(|output| match output {
                Output::Send { message: PeerMessage::Append(append), .. } => append.clone(),
                other => panic!("{other:?}"),
            });
            appends.collect::<Vec<Append>>()
        };
        let alone = |append: &Append| {
            let entries = Entry::all(append.entries.clone()).expect("decodes");
            entries.last().expect("entries").is_call_alone()
        };
        assert!(send(both(), &|sender| sender.on_report(&log)).is_empty());
        let sent = send(both(), &|sender| sender.go_on(true, &mut None));
        assert!(alone(&sent[0]) && sent.len() == 1);
        assert!(send(both(), &|sender| sender.go_on(true, &mut None)).is_empty(), "it is on its way");
        let number = sent[0].number;
        let refused = |sender: &mut Sender| {
            sender.wants_effects(number, Lsn(4));
            Ok(())
        };
        assert!(send(both(), &refused).is_empty());
        let sent = send(both(), &|sender| sender.go_on(true, &mut None));
        assert_eq!((sent.len(), sent[0].prev, alone(&sent[0])), (1, at(3), false), "the call is sent again");
        // Who catches up is sent both from the beginning.
        assert!(send(record(), &|sender| sender.align(&log.log)).is_empty());
        let sent = send(record(), &|sender| sender.go_on(true, &mut None));
        assert!(!alone(&sent[0]) && sent[0].prev == at(1));
    }

    #[test]
    fn a_large_entry_is_shipped_by_itself_as_it_is_in_memory() {
        let (mut log, large) = (log(), vec![7; LARGE_VALUE_BYTES]);
        for (lsn, payload) in [(4, &large[..]), (5, &b"small"[..])] {
            let header = Header::new(Kind::Noop, PartitionId(1), at(lsn), log.end_crc());
            log.append(Entry::encode(header, payload));
        }
        let header = Header::new(Kind::Call, PartitionId(1), at(6), log.end_crc());
        log.append(Entry::encode_call(header, &CallMark::default(), &large));
        let in_memory = |lsn: u64| log.tail().get(Lsn(lsn)).expect("it is in memory").bytes().as_ptr();
        for alone in [false, true] {
            let run = |from: u64| Run::of_tail(Lsn(from), alone, log.tail().run(Lsn(from), 1 << 20));
            assert_eq!([run(2).last, run(4).last], [Lsn(3), Lsn(4)]);
            assert_eq!(Entry::all(run(2).bytes).map(|entries| entries.len()), Ok(2));
            assert_eq!(run(4).bytes.as_ptr(), in_memory(4), "it is not copied");
            // Who makes the call itself is sent no more of it than that.
            assert_eq!(run(6).bytes.as_ptr() == in_memory(6), !alone);
            assert_eq!(run(5).last, Lsn(if alone { 6 } else { 5 }));
        }
    }

    #[test]
    fn pr470_the_log_is_read_from_the_next_entry_on_that_a_member_lacks() {
        let mut whole = log();
        let (first, second) = (whole.tail().get(Lsn(1)).cloned(), whole.tail().get(Lsn(2)).cloned());
        let (first, second) = (first.expect("it is in memory"), second.expect("it is in memory"));
        whole.trim_memory(Lsn(3), 0);
        assert_eq!(whole.tail().base(), at(3), "it is on the disk alone");
        let mut progress = Progress::new(Micros::ZERO, 0);
        progress.stream_behind(Lsn(1));
        let asked =
            send_of((record(), whole), Position::ZERO, &mut progress, |sender| sender.ship_log(&mut None));
        let [Output::ReadLog { from: Lsn(2), .. }] = asked[..] else { panic!("{asked:?}") };
        // As much as fits, which is one at least, or what lies in one place.
        let sent = send(&mut progress, |sender| sender.log_read(Ok(vec![second.clone()])));
        let PeerMessage::Append(append) = message(&sent) else { panic!("{sent:?}") };
        assert_eq!((append.prev, append.prev_crc), (at(1), first.crc()));
        assert_eq!(&append.entries, second.bytes());
    }

    #[test]
    fn a_member_with_nothing_in_common_is_sent_the_state() {
        let mut progress = Progress::new(Micros::ZERO, 0);
        let first = Position::new(Term::ZERO, Lsn(1));
        let theirs = LogSummary { base: first, end: first, history: Vec::new() };
        let sent = send(&mut progress, |sender| sender.align(&theirs));
        assert!(matches!(message(&sent), PeerMessage::Copy(_)), "by rows: there are no files");
        assert!(matches!(progress.mode(), Mode::Copying(_)));
    }

    #[test]
    fn a_piece_of_a_copy_by_rows_is_sent_again_some_times_and_no_more() {
        let mut progress = Progress::new(Micros::ZERO, 0);
        let first = Position::new(Term::ZERO, Lsn(1));
        let theirs = LogSummary { base: first, end: first, history: Vec::new() };
        assert_eq!(send(&mut progress, |sender| sender.align(&theirs)).len(), 1);
        assert!(send(&mut progress, |sender| sender.go_on(true, &mut None)).is_empty(), "it is on its way");
        let again = |progress: &mut Progress| {
            progress.copy_out().expect("it is being copied").sent_at = Micros::ZERO;
            send(progress, |sender| sender.go_on(true, &mut None))
        };
        for time in 1..=5 {
            let sent = again(&mut progress);
            assert!(matches!(message(&sent), PeerMessage::Copy(copy) if copy.piece == 0), "time {time}");
        }
        assert!(again(&mut progress).is_empty(), "it may have lost what it had");
        assert!(matches!(progress.mode(), Mode::Probe { .. }));
    }

    #[test]
    fn pr119_who_finds_no_room_for_a_while_is_given_files_that_it_lacks() {
        let history = History::new(vec![(Term(1), Lsn(1))]).expect("ascends");
        let report = |persisted: u64| LogReport {
            partition: PartitionId(1),
            epoch: Epoch(1),
            from: to(),
            log: LogSummary { base: Position::ZERO, end: at(2), history: history.starts().to_vec() },
            marks: Watermarks { persisted: Lsn(persisted), ..Watermarks::default() },
            committed: Lsn::ZERO,
            torn: false,
            code: 0,
        };
        let mut progress = Progress::new(Micros::ZERO, 0);
        let mut refused_at = |ms: u64, persisted: u64| {
            progress.finds_no_room(Micros::from_millis(ms));
            send_beside(at(2), &mut progress, |sender| sender.on_report(&report(persisted)))
        };
        assert!(refused_at(900, 1).is_empty(), "it may have room soon");
        assert!(refused_at(1_000, 2).is_empty(), "it has these files");
        let sent = refused_at(1_000, 1);
        assert!(matches!(message(&sent), PeerMessage::TransferOffer(_)), "{sent:?}");
        assert!(matches!(progress.mode(), Mode::Shipping));
    }

    #[test]
    fn pr234_who_is_sent_what_is_read_back_finds_no_room_either() {
        let mut progress = Progress::new(Micros::ZERO, 0);
        let mut wants_at = |ms: u64, gets_to: u64| {
            // What it lacks is being read back just now: nothing is expected of it.
            progress.health.observe(Micros::from_millis(ms), (Lsn::ZERO, Lsn::ZERO), Lsn(9), true);
            progress.raise(&Watermarks { received: Lsn(gets_to), ..Watermarks::default() });
            progress.finds_no_room(Micros::from_millis(ms));
            progress.wants_room
        };
        assert!(!wants_at(2_000, 1) && !wants_at(2_900, 1), "it may have room soon");
        assert!(!wants_at(3_000, 2), "it has got further");
        assert!(!wants_at(3_900, 2) && wants_at(4_000, 2), "nothing else gets it any further");
    }
}
