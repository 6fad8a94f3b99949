//! A divergent tail that reaches below what the log has in memory (R9): entries that a primary published while it was alone, and
//! that the one which an operator forced never had.
//!
//! It is set aside piece by piece before anything takes its place, each piece as a tail of its own: first rows of the engine, where
//! the log does not reach back any more, then entries read back from the log. What is in memory goes last, with whatever gives it
//! up. Nothing changes meanwhile: appends are ignored and copies wait, and both come again.

use crate::output::{Output, ReadFor};
use crate::replica::{Ctx, Replica};
use std::collections::BTreeSet;
use types::config::TailReport;
use types::engine::{Version, space};
use types::{EngineError, Lsn, Micros, ReadAt};
use wire::Entry;

/// About so many bytes of rows, or of entries, are in one piece.
const PIECE: usize = 8 << 20;
/// Entries that cannot be read are asked for again so often.
const READS: u32 = 5;

/// How far it is.
pub(crate) struct Aside {
    /// The last entry that the primary has too.
    above: Lsn,
    /// Rows of the engine are looked through.
    rows: Option<Rows>,
    /// The next entry to be read back.
    next: Lsn,
    /// When it was asked for, if it has not come.
    asked_at: Option<Micros>,
    failures: u32,
}

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

impl Replica {
    /// True once all above `common`, the last entry that the primary has too, is set aside, but for what is in memory. Until
    /// then it goes on with it; to be asked again.
    pub(crate) fn is_aside(&mut self, ctx: &mut Ctx, common: Lsn) -> bool {
        let base = self.log.tail().base().lsn;
        if common >= base {
            return true;
        }
        if self.aside.as_ref().is_none_or(|aside| aside.above > common) {
            self.begin_aside(common);
        }
        self.read_aside(ctx);
        self.aside.as_ref().is_some_and(|aside| aside.rows.is_none() && aside.next > base)
    }

    fn begin_aside(&mut self, above: Lsn) {
        let upto = self.log.base().lsn;
        // Files may be of another log than this, or gone.
        let rows = (above < upto && self.published_in_log() >= upto).then(|| Rows {
            upto,
            from: vec![space::SESSION],
            piece: Vec::new(),
            bytes: 0,
            seen: BTreeSet::new(),
            sessions: 0,
        });
        // A log that cannot be trusted has nothing to be read back.
        let untrusted = self.is_damaged() && !self.log.is_whole();
        let next = if untrusted { self.log.tail().base().lsn } else { above.max(upto) }.next();
        self.aside = Some(Box::new(Aside { above, rows, next, asked_at: None, failures: 0 }));
    }

    /// Asks for the next entries, unless rows come first or everything has been read.
    fn read_aside(&mut self, ctx: &mut Ctx) {
        let (now, base) = (ctx.now.mono, self.log.tail().base().lsn);
        let Some(aside) = self.aside.as_mut() else { return };
        let waits = aside.asked_at.is_some_and(|at| now.since(at) < Micros(ctx.settings.resend.0 * 10));
        if aside.rows.is_some() || aside.next > base || waits {
            return;
        }
        aside.asked_at = Some(now);
        let from = aside.next;
        let (partition, purpose) = (self.id, ReadFor::Aside { from });
        ctx.out.push(Output::ReadLog { partition, from, max_bytes: PIECE, purpose });
    }

    /// Entries were read back.
    pub(crate) fn aside_read(&mut self, ctx: &mut Ctx, from: Lsn, entries: Result<Vec<Entry>, String>) {
        let base = self.log.tail().base().lsn;
        let Some(aside) = self.aside.as_mut().filter(|aside| aside.next == from && aside.rows.is_none())
        else {
            return;
        };
        let mut entries = match entries {
            Ok(entries) => entries,
            // It is asked for again, whenever something wants to take the tail's place.
            Err(_) if aside.failures < READS => return aside.failures += 1,
            Err(reason) => {
                aside.next = base.next();
                let what = format!("entries {from} to {base} of an older term cannot be set aside: {reason}");
                return ctx.out.push(Output::Notice { partition: self.id, what });
            }
        };
        entries.retain(|entry| (from..=base).contains(&entry.lsn()));
        aside.next = entries.last().map_or(base, Entry::lsn).next();
        aside.asked_at = None;
        self.set_aside(ctx, entries);
        self.read_aside(ctx);
    }

    /// True if [`Replica::aside_rows`] has something to do.
    pub(crate) fn asides(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.rows.is_some())
    }

    /// Looks at the next rows of the engine.
    pub(crate) fn aside_rows(&mut self, ctx: &mut Ctx) {
        let Some(mut aside) = self.aside.take() else { return };
        if let Some(mut rows) = aside.rows.take() {
            match self.next_rows(ctx, aside.above, &mut rows) {
                Ok(true) => self.rows_aside(ctx, aside.above, &mut rows, true),
                // Want of open files or memory passes: nothing that is here may be given up for it (F20).
                Ok(false) | Err(EngineError::Later(_)) => aside.rows = Some(rows),
                Err(reason) => {
                    self.rows_aside(ctx, aside.above, &mut rows, true);
                    let what = format!("not all rows of an older term can be set aside: {reason}");
                    ctx.out.push(Output::Notice { partition: self.id, what });
                }
            }
        }
        self.aside = Some(aside);
        self.read_aside(ctx);
    }

    /// One slice of them. True at the end. An error leaves `rows` where it was.
    fn next_rows(&mut self, ctx: &mut Ctx, above: Lsn, rows: &mut Rows) -> Result<bool, EngineError> {
        let at = ReadAt::Lsn(self.engine.published().lsn);
        let (limit, max_bytes) = (ctx.settings.slice_rows, ctx.settings.slice_bytes);
        let found = self.engine.scan(&rows.from, &[], at, limit, max_bytes)?;
        let to = found.last().map_or(Vec::new(), |row| [&row.key[..], &[0]].concat());
        let deleted = self.engine.deletions(&rows.from, &to, above)?;
        let deleted = deleted.into_iter().map(|(key, lsn)| Version { key, lsn, value: None });
        let found =
            found.into_iter().map(|row| Version { key: row.key, lsn: row.lsn, value: Some(row.value) });
        for version in found.chain(deleted) {
            if version.lsn <= above || version.lsn > rows.upto {
                continue;
            }
            rows.bytes += version.key.len() + version.value.as_ref().map_or(0, |value| value.len());
            rows.seen.insert(version.lsn);
            rows.sessions += u64::from(version.key.first() == Some(&space::SESSION));
            rows.piece.push(version);
        }
        if rows.bytes >= PIECE {
            self.rows_aside(ctx, above, rows, false);
        }
        rows.from = to;
        Ok(rows.from.is_empty())
    }

    /// Writes a piece. The last one counts the entries of all: as many as there were, and surely those that are known.
    fn rows_aside(&self, ctx: &mut Ctx, above: Lsn, rows: &mut Rows, last: bool) {
        let mut versions = std::mem::take(&mut rows.piece);
        versions.sort_by(|a, b| a.key.cmp(&b.key));
        rows.bytes = 0;
        let (commits, surely) = (rows.upto.0 - above.0, rows.seen.len() as u64);
        let report = TailReport {
            partition: self.id,
            node: self.me.node,
            file: String::new(),
            term: self.log.position_at(rows.upto).map_or(self.log.base().term, |(at, _)| at.term),
            from: above.next(),
            to: rows.upto,
            commits: if last { commits } else { 0 },
            surely_acknowledged: if last { surely } else { 0 },
            sessions: if last { rows.sessions } else { 0 },
            rows: Some(versions.len() as u64),
        };
        ctx.out.push(Output::SetAside { report, entries: Vec::new(), rows: versions });
    }
}
