//! A divergent tail that reaches below what the log has in memory (R9): entries that a primary published
//! while it was alone, and that the one which an operator forced never had.
//!
//! It is set aside piece by piece before anything takes its place, each piece as a tail of its own: first
//! what the log on the disk does not have any more, as rows of the engine or, where they are still in memory,
//! as entries (PR-137), then entries read back from the log. What is in memory and in the log goes last, with
//! whatever gives it up. Nothing changes meanwhile: appends are ignored and copies wait, and both come again.

use crate::context::Ctx;
use crate::data::Data;
use crate::log_state::LogState;
use crate::output::{Output, ReadFor};
use crate::settings::Settings;
use std::collections::BTreeSet;
use types::config::TailReport;
use types::engine::{Version, space};
use types::{
    Engine, EngineError, LogKind, Lsn, Member, Micros, NodeId, PartitionId, PartitionRecord, ReadAt,
};
use wire::Entry;
use wire::entry::Kind;

/// About so many bytes of rows, or of entries, are in one piece.
const PIECE: usize = 8 << 20;
/// Entries that cannot be read are asked for again so often.
const READS: u32 = 5;

/// How far it is.
#[derive(Debug)]
pub(crate) struct Aside {
    /// The last entry that the primary has too.
    above: Lsn,
    /// Rows of the engine are looked through.
    rows: Option<Rows>,
    /// Entries in memory that are not in the log on the disk any more are to be written.
    memory: bool,
    /// Whatever is here up to this entry is written, or will be once the two above are done.
    upto: Lsn,
    /// The next entry to be read back.
    next: Lsn,
    /// When it was asked for, if it has not come.
    asked_at: Option<Micros>,
    failures: u32,
}

#[derive(Debug)]
struct Rows {
    /// They are of entries up to here, behind which the log begins.
    upto: Lsn,
    /// The next key to look at.
    from: Vec<u8>,
    /// What is not written yet.
    piece: Vec<Version>,
    bytes: usize,
    /// Entries that are known by what they wrote, and sessions among it.
    seen: BTreeSet<Lsn>,
    sessions: u64,
}

impl Aside {
    /// Of a log that has `above` in common with the primary's. Files of this log hold all up to `published`;
    /// what is in a log that is not `readable` cannot be read back.
    pub fn new(above: Lsn, log: &LogState, published: Lsn, readable: bool) -> Aside {
        let (upto, base) = (log.base().lsn, log.tail().base().lsn);
        let memory = above >= base;
        // Files may be of another log than this, or gone.
        let rows = (!memory && above < upto && published >= upto).then(|| Rows::new(upto));
        let written = if memory || rows.is_some() { upto } else { Lsn::ZERO };
        let next = if readable && !memory { above.max(upto) } else { base }.next();
        Aside { above, rows, memory, upto: written, next, asked_at: None, failures: 0 }
    }

    /// True if something is to be written that the log on the disk does not have.
    pub fn has_rows(&self) -> bool {
        self.rows.is_some() || self.memory
    }

    /// True once all up to `base` is set aside, behind which everything is in memory.
    fn is_done(&self, base: Lsn) -> bool {
        !self.has_rows() && self.next > base
    }

    /// From where entries are to be read back now: rows come first, and what was asked for is waited for.
    fn reads(&mut self, now: Micros, base: Lsn, resend: Micros) -> Option<Lsn> {
        let waits = self.asked_at.is_some_and(|at| now.since(at) < Micros(resend.0 * 10));
        if self.has_rows() || self.next > base || waits {
            return None;
        }
        self.asked_at = Some(now);
        Some(self.next)
    }

    /// Entries from `from` on were read back: gives those to be set aside, or why there will be none.
    fn came(
        &mut self,
        from: Lsn,
        base: Lsn,
        entries: Result<Vec<Entry>, String>,
    ) -> Option<Result<Vec<Entry>, String>> {
        if self.next != from || self.has_rows() {
            return None;
        }
        let mut entries = match entries {
            Ok(entries) => entries,
            // It is asked for again, whenever something wants to take the tail's place.
            Err(_) if self.failures < READS => {
                self.failures += 1;
                return None;
            }
            Err(reason) => {
                self.next = base.next();
                return Some(Err(format!(
                    "entries {from} to {base} of an older term cannot be set aside: {reason}"
                )));
            }
        };
        entries.retain(|entry| (from..=base).contains(&entry.lsn()));
        self.next = entries.last().map_or(base, Entry::lsn).next();
        self.asked_at = None;
        Some(Ok(entries))
    }
}

impl Rows {
    fn new(upto: Lsn) -> Rows {
        Rows {
            upto,
            from: vec![space::SESSION],
            piece: Vec::new(),
            bytes: 0,
            seen: BTreeSet::new(),
            sessions: 0,
        }
    }

    /// Takes what the next slice has of entries above `above`.
    fn take(&mut self, versions: impl Iterator<Item = Version>, above: Lsn) {
        for version in versions {
            if version.lsn <= above || version.lsn > self.upto {
                continue;
            }
            self.bytes += version.key.len() + version.value.as_ref().map_or(0, |value| value.len());
            self.seen.insert(version.lsn);
            self.sessions += u64::from(version.key.first() == Some(&space::SESSION));
            self.piece.push(version);
        }
    }

    /// The piece to be written, and what is said of it. The last one counts the entries of all: as many as
    /// there were, and surely those that are known.
    fn piece(&mut self, owner: (PartitionId, NodeId), log: &LogState, above: Lsn, last: bool) -> Output {
        let mut rows = std::mem::take(&mut self.piece);
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        self.bytes = 0;
        let (commits, surely) = (self.upto.0 - above.0, self.seen.len() as u64);
        let report = TailReport {
            partition: owner.0,
            node: owner.1,
            file: String::new(),
            term: log.position_at(self.upto).map_or(log.base().term, |(at, _)| at.term),
            from: above.next(),
            to: self.upto,
            commits: if last { commits } else { 0 },
            surely_acknowledged: if last { surely } else { 0 },
            sessions: if last { self.sessions } else { 0 },
            rows: Some(rows.len() as u64),
        };
        Output::SetAside { report, entries: Vec::new(), rows }
    }
}

/// Clients' entries that will not be part of the log any more (R9), as they are written aside. None if no
/// client's are among them. What global transactions have written is in the log of their manager, and is
/// brought again: it is written aside and not counted (PR-368), unless it may be `secured`, so that the
/// manager may have removed it.
fn entries_aside(
    owner: (PartitionId, NodeId),
    entries: Vec<Entry>,
    (committed, secured): (Lsn, bool),
) -> Option<Output> {
    let ours =
        |entry: &&Entry| matches!(entry.header().kind, Kind::Rows | Kind::Bulk | Kind::Call | Kind::Sql);
    let any = entries.iter().any(|entry| ours(&entry));
    let (Some(first), Some(last), true) = (entries.first(), entries.last(), any) else { return None };
    let again = |entry: &Entry| !secured && entry.is_flush();
    let gone: Vec<&Entry> = entries.iter().filter(ours).filter(|entry| !again(entry)).collect();
    let commits = gone.len() as u64;
    let surely = gone.iter().filter(|entry| entry.lsn() <= committed).count() as u64;
    let sessions: BTreeSet<_> = gone.iter().map(|entry| entry.header().session).collect();
    let report = TailReport {
        partition: owner.0,
        node: owner.1,
        file: String::new(),
        term: last.at().term,
        from: first.lsn(),
        to: last.lsn(),
        commits,
        surely_acknowledged: surely,
        sessions: sessions.len() as u64,
        rows: None,
    };
    Some(Output::SetAside { report, entries, rows: Vec::new() })
}

impl Data {
    /// Another configuration is known. Who was promoted without an operator's word counted in the term
    /// before, and has what all had that counted. A copy that was forced to lead may lack it.
    pub fn note_primary(&mut self, record: &PartitionRecord) {
        let counted = |member: &Member| member.same_store(&record.primary);
        self.forced = record.before.as_ref().is_some_and(|before| !before.in_sync.iter().any(counted));
        self.forced_term = record.last_uncounted().unwrap_or_default();
    }

    /// Writes clients' entries aside that will not be part of the log any more (R9): some of those above
    /// `above`, the last one that the primary has too.
    pub fn set_aside(&self, above: Lsn, entries: Vec<Entry>, out: &mut Vec<Output>) {
        // How much of them was secured is known to the primary of that time alone, and not after a start,
        // which knows what the log notes of it now and then (PR-393). Nothing was, but where somebody was
        // forced to lead, in the term that is known or in one since these entries were made (PR-418).
        let since = entries.last().is_some_and(|entry| entry.at().term < self.forced_term);
        let secured = self.forced || since || above < self.marks.secured();
        let owner = (self.identity.id, self.identity.me.node);
        out.extend(entries_aside(owner, entries, (self.marks.committed(), secured)));
    }

    /// Sets aside what is in memory above `common`, the last entry that the primary has too (R9).
    /// [`Data::is_aside`] comes first.
    pub fn truncate_aside(&mut self, common: Lsn, out: &mut Vec<Output>) {
        let mut entries = self.log.take_tail(common);
        let written = self.aside.as_deref().filter(|aside| aside.above <= common);
        let written = written.map_or(Lsn::ZERO, |aside| aside.upto);
        entries.retain(|entry| entry.lsn() > written);
        self.set_aside(common, entries, out);
    }

    /// True once all above `common`, the last entry that the primary has too, is set aside, but for what is
    /// in memory and in the log on the disk. Until then it goes on with it; to be asked again. `damaged`: so
    /// is the engine, or the log.
    pub fn is_aside(&mut self, ctx: &mut Ctx, common: Lsn, damaged: bool) -> bool {
        let base = self.log.tail().base().lsn;
        // What is in memory alone would be lost with the process, while its tail waits for room (PR-137).
        let on_disk = if self.log.kind() == LogKind::Disk { self.log.base().lsn } else { Lsn::ZERO };
        if common >= base.max(on_disk.min(self.log.end().lsn)) {
            return true;
        }
        if self.aside.as_ref().is_none_or(|aside| aside.above > common) {
            // A log that cannot be trusted has nothing to be read back.
            let readable = !damaged || self.log.is_whole();
            let aside = Aside::new(common, &self.log, self.log.common_end(self.engine.published()), readable);
            self.aside = Some(Box::new(aside));
        }
        self.read_aside(ctx);
        self.aside.as_ref().is_some_and(|aside| aside.is_done(base))
    }

    /// Asks for the next entries, unless rows come first or everything has been read.
    fn read_aside(&mut self, ctx: &mut Ctx) {
        let (now, base) = (ctx.now.mono, self.log.tail().base().lsn);
        let reads = |aside: &mut Aside| aside.reads(now, base, ctx.settings.resend);
        let Some(from) = self.aside.as_deref_mut().and_then(reads) else { return };
        let (partition, purpose) = (self.identity.id, ReadFor::Aside { from });
        ctx.out.push(Output::ReadLog { partition, from, max_bytes: PIECE, purpose });
    }

    /// Entries were read back.
    pub fn aside_read(&mut self, ctx: &mut Ctx, from: Lsn, entries: Result<Vec<Entry>, String>) {
        let base = self.log.tail().base().lsn;
        match self.aside.as_deref_mut().and_then(|aside| aside.came(from, base, entries)) {
            Some(Ok(entries)) => {
                let above = self.aside.as_deref().map_or(from.prev(), |aside| aside.above);
                self.set_aside(above, entries, ctx.out);
                self.read_aside(ctx);
            }
            Some(Err(what)) => {
                ctx.out.push(Output::Notice { partition: self.identity.id, what: what.into() })
            }
            None => {}
        }
    }

    /// True while a divergent tail is set aside, or waits for what takes its place.
    pub fn diverges(&self) -> bool {
        self.aside.is_some()
    }

    /// True if rows of the engine are to be set aside next.
    pub fn asides(&self) -> bool {
        self.aside.as_deref().is_some_and(Aside::has_rows)
    }

    /// Looks at the next rows of the engine.
    pub fn aside_rows(&mut self, ctx: &mut Ctx) {
        let Some(mut aside) = self.aside.take() else { return };
        if std::mem::take(&mut aside.memory) {
            let entries = self.log.tail().run(aside.above.next(), usize::MAX);
            let entries = entries.filter(|entry| entry.lsn() <= aside.upto);
            self.set_aside(aside.above, entries.cloned().collect(), ctx.out);
        }
        if let Some(mut rows) = aside.rows.take() {
            let (owner, above) = ((self.identity.id, self.identity.me.node), aside.above);
            match next_rows(self.engine.as_ref(), ctx.settings, above, &mut rows) {
                Ok(over) => {
                    if rows.bytes >= PIECE {
                        ctx.out.push(rows.piece(owner, &self.log, above, false));
                    }
                    match over {
                        true => ctx.out.push(rows.piece(owner, &self.log, above, true)),
                        false => aside.rows = Some(rows),
                    }
                }
                // Want of open files or memory passes: nothing that is here may be given up for it (F20).
                Err(EngineError::Later(_)) => aside.rows = Some(rows),
                Err(reason) => {
                    ctx.out.push(rows.piece(owner, &self.log, above, true));
                    let what = format!("not all rows of an older term can be set aside: {reason}");
                    ctx.out.push(Output::Notice { partition: self.identity.id, what: what.into() });
                }
            }
        }
        self.aside = Some(aside);
        self.read_aside(ctx);
    }
}

/// One slice of them. True at the end. An error leaves `rows` where it was.
fn next_rows(
    engine: &dyn Engine,
    settings: &Settings,
    above: Lsn,
    rows: &mut Rows,
) -> Result<bool, EngineError> {
    let at = ReadAt::Lsn(engine.published().lsn);
    let found = engine.scan(&rows.from, &[], at, settings.slice_rows, settings.slice_bytes)?;
    let to = found.last().map_or(Vec::new(), |row| [&row.key[..], &[0]].concat());
    let deleted = engine.deletions(&rows.from, &to, above)?;
    let deleted = deleted.into_iter().map(|(key, lsn)| Version { key, lsn, value: None });
    let found = found.into_iter().map(|row| Version { key: row.key, lsn: row.lsn, value: Some(row.value) });
    rows.take(found.chain(deleted), above);
    rows.from = to;
    Ok(rows.from.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Identity;
    use crate::fake::{FakeEngine, member};
    use crate::history::History;
    use crate::recovered::Recovered;
    use types::config::PreviousTerm;
    use types::{Epoch, Position, Rules, TableId, Term};
    use wire::entry::Header;

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    /// A log from 10 to 20, nothing of which is in memory.
    fn log() -> LogState {
        let history = History::new(vec![(Term(1), Lsn(1))]).expect("ascends");
        let found = Recovered { base: at(10), end: at(20), history, ..Recovered::nothing() };
        LogState::recover(&found, at(20), false)
    }

    fn entry(lsn: u64) -> Entry {
        Entry::encode(Header::new(Kind::Noop, PartitionId(1), at(lsn), 0), b"")
    }

    /// A client's entry that writes this.
    fn writes(lsn: u64, key: bytes::Bytes) -> Entry {
        let mutations = vec![types::Mutation { key, value: Some("v".into()) }];
        let effects = wire::Effects { request_hash: 0, confirmed: 0, outcome: 0, affected: 1, mutations };
        Entry::encode(Header::new(Kind::Rows, PartitionId(1), at(lsn), 0), &effects.encode())
    }

    #[test]
    fn pr368_commits_that_are_brought_again_are_set_aside_and_not_counted() {
        let (flush, table) =
            (types::commits::newest_flush_key, types::database::catalog_key(types::TableId(7)));
        let entries = || vec![writes(11, flush()), writes(12, table.clone()), writes(13, flush())];
        let aside = |entries, secured| {
            let out = entries_aside((PartitionId(1), NodeId(2)), entries, (Lsn(12), secured));
            let Some(Output::SetAside { report, entries, .. }) = out else { panic!("nothing is set aside") };
            (report.from.0, report.to.0, report.commits, report.surely_acknowledged, entries.len())
        };
        let of_tables = aside(entries(), false);
        assert_eq!(of_tables, (11, 13, 1, 1, 3), "the change of tables is told of by nobody else");
        assert_eq!(aside(entries(), true), (11, 13, 3, 2, 3), "the manager may have removed the others");
        assert_eq!(aside(vec![writes(13, flush())], false), (13, 13, 0, 0, 1));
        assert!(entries_aside((PartitionId(1), NodeId(2)), vec![entry(11)], (Lsn(12), false)).is_none());
    }

    /// The old primary, who counted beside it, and who did not.
    fn members() -> [Member; 3] {
        [1, 2, 3].map(|id| Member { node: NodeId(id), ..member() })
    }

    /// The record of a term that follows the one before it, of this primary and another one in sync.
    fn follows(term: u64, (before, other): (Member, Member), primary: Member) -> PartitionRecord {
        let policy = types::Policy::preset("async", 3, LogKind::Disk).expect("a preset");
        let before = PreviousTerm {
            epoch: Epoch(term - 1),
            term: Term(term - 1),
            primary: before,
            handed_over: false,
            in_sync: vec![before, other],
        };
        let record = PartitionRecord::new(PartitionId(1), TableId(1), Epoch(term), vec![primary], policy);
        PartitionRecord { before: Some(before), ..record }
    }

    /// The old primary was started again with a log of five parts of commits of the first term, and knows of
    /// so many that they were secured. It hears of this record, and gives up what is above so many: what its
    /// tails count.
    fn counted((noted, common): (u64, u64), record: &PartitionRecord) -> u64 {
        let identity = Identity { me: members()[0], id: PartitionId(1), rules: Rules::ALL };
        let found = Recovered { secured: Lsn(noted), ..Recovered::nothing() };
        let mut data = Data::recover(identity, Box::new(FakeEngine::new()), &found, false);
        let mut out = Vec::new();
        for lsn in 1..=5 {
            let flush = writes(lsn, types::commits::newest_flush_key());
            let header = data.next_header(Term(1), Kind::Rows, 0);
            assert!(data.append(Entry::encode(header, &flush.payload()), true, &mut out).is_ok());
        }
        data.note_primary(record);
        assert!(data.truncate(Lsn(common), &mut out));
        let reports = out.into_iter().filter_map(|output| match output {
            Output::SetAside { report, .. } => Some(report.commits),
            _ => None,
        });
        reports.sum()
    }

    /// The primary of a term had told the manager that all had its commits. It is started again, and knows of
    /// the first of them alone that they were secured; somebody who lacks them leads.
    #[test]
    fn pr393_commits_that_were_secured_are_lost_with_a_forced_promotion_also_after_a_start() {
        let [old, other, forced] = members();
        let counted = |found, primary: Member| counted(found, &follows(2, (old, other), primary));
        assert_eq!(counted((1, 2), forced), 3, "it lacks what all had");
        assert_eq!(counted((1, 2), other), 0, "it has what all had: the others are brought again");
        assert_eq!(counted((3, 2), other), 3, "whoever led between has lost what all had");
    }

    /// The same, and the old primary hears of a later term alone, whose primary counted in the forced one.
    #[test]
    fn pr418_commits_that_were_secured_are_lost_also_where_other_terms_follow_the_forced_one() {
        let [old, other, forced] = members();
        let counted = |uncounted: Option<u64>| {
            let later = follows(3, (forced, other), other);
            let noted = uncounted.map(|term| follows(term, (old, other), forced).led_by_uncounted());
            let unknown = noted.map_or(later.unknown.clone(), |noted| noted.unknown);
            counted((1, 2), &PartitionRecord { unknown, ..later })
        };
        assert_eq!(counted(Some(2)), 3, "what all had is gone since the term between");
        assert_eq!(counted(None), 0, "whoever led between had it: the others are brought again");
        assert_eq!(counted(Some(1)), 0, "these are of the forced term itself");
    }

    #[test]
    fn r9_entries_are_read_back_in_order_and_asked_for_again() {
        let (log, resend) = (log(), Micros(10));
        let base = log.tail().base().lsn;
        let mut aside = Aside::new(Lsn(15), &log, Lsn::ZERO, true);
        assert!(!aside.has_rows() && !aside.is_done(base));
        assert_eq!(aside.reads(Micros(5), base, resend), Some(Lsn(16)));
        assert_eq!(aside.reads(Micros(100), base, resend), None, "the answer may come yet");
        assert_eq!(aside.reads(Micros(105), base, resend), Some(Lsn(16)));
        assert!(aside.came(Lsn(11), base, Ok(vec![entry(11)])).is_none(), "nobody asked for that");
        let came = aside.came(Lsn(16), base, Ok((16..19).map(entry).collect()));
        assert!(came.is_some_and(|entries| entries.is_ok_and(|entries| entries.len() == 3)));
        assert_eq!(aside.reads(Micros(105), base, resend), Some(Lsn(19)));
        aside.came(Lsn(19), base, Ok(vec![entry(19), entry(20), entry(21)]));
        assert!(aside.is_done(base));
    }

    #[test]
    fn r9_what_cannot_be_read_is_given_up_after_some_attempts() {
        let log = log();
        let base = log.tail().base().lsn;
        let mut aside = Aside::new(Lsn(15), &log, Lsn::ZERO, true);
        for _ in 0..READS {
            assert!(aside.came(Lsn(16), base, Err("no".into())).is_none() && !aside.is_done(base));
        }
        assert!(aside.came(Lsn(16), base, Err("no".into())).is_some_and(|came| came.is_err()));
        assert!(aside.is_done(base));
    }

    #[test]
    fn r9_below_the_log_rows_come_first_and_an_untrusted_log_is_not_read() {
        let log = log();
        let base = log.tail().base().lsn;
        let mut aside = Aside::new(Lsn(5), &log, Lsn(20), true);
        assert!(aside.has_rows());
        assert_eq!(aside.reads(Micros(5), base, Micros(1)), None);
        assert!(!Aside::new(Lsn(5), &log, Lsn(9), true).has_rows(), "files of another log");
        assert!(Aside::new(Lsn(15), &log, Lsn::ZERO, false).is_done(base));
    }
}
